// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes what is done with a profile of a spool, and with a server's answer. The first byte chooses the
 * protocol; the rest is a pprof file, and an answer. No crash; what was made can be read again, and
 * halves are profiles that can be sent.
 */
#include "core/envelope.h"
#include "core/headers.h"
#include "core/spool.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void send(enum protocol protocol, const struct profile *p)
{
	struct envelope e;
	int r = envelope_make(protocol, p, "host", &e);

	require(r == 0 || r == -E2BIG || r == -EBADMSG || r == -ENOMEM);
	require(r || (e.path && e.headers[0] && (e.body || !e.len)));
	envelope_fini(&e);
}

static void answer(enum protocol protocol, const u8 *data, size_t size)
{
	struct answer a = { .status = 200, .grpc_status = 0 };
	struct judgement j;

	a.body_len = MIN(size, sizeof(a.body));
	memcpy(a.body, data, a.body_len);
	envelope_judge(protocol, &a, &j);
	require(j.verdict == ENVELOPE_ACCEPTED);
	a.status = 400;
	envelope_judge(protocol, &a, &j);
	require(j.verdict == ENVELOPE_REFUSED || j.verdict == ENVELOPE_TOO_LARGE);
	require(memchr(j.why, '\0', sizeof(j.why)) != NULL);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct profile p = { .service = "s", .type = "cpu" }, *half[2];
	enum protocol protocol;
	const char *want;
	char *text;

	if (!size)
		return 0;
	protocol = data[0] % PROTOCOL_MAX;
	p.body = data + 1;
	p.len = size - 1;
	send(protocol, &p);
	answer(protocol, p.body, p.len);
	envelope_retry_delay((const char *)p.body, p.len);
	if (!envelope_split(&p, half)) {
		send(PROTOCOL_OTLP, half[0]);
		send(PROTOCOL_PYROSCOPE, half[1]);
		profile_free(half[0]);
		profile_free(half[1]);
	}
	text = strndup((const char *)p.body, p.len);
	headers_each(text, '\n', NULL, NULL, &want);
	free(text);
	return 0;
}
