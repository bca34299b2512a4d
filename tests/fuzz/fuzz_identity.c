// SPDX-License-Identifier: Apache-2.0
/* What processes and the host's files say of who somebody is: environments, contexts, JSON, rules. */
#include "core/container.h"
#include "core/otel.h"
#include "core/service.h"

#include <string.h>

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void rules(const char *text, size_t len)
{
	const struct match_facts f = { .text = { [MATCH_exe] = text, [MATCH_unit] = "a.service" } };
	char err[256], name[SERVICE_NAME_MAX + 1];
	struct service_rules *r;

	if (service_parse("R", text, len, &r, err, sizeof(err)))
		return;
	service_name(r, &f, name);
	service_free(r);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct container_names n = { 0 };
	_cleanup_free_ char *text = NULL;
	struct otel_header header;
	struct otel_words w;
	u8 head[OTEL_HEADER];
	u64 addr;

	if (size < 1 || size > 65536)
		return 0;
	/* Exactly as long as the input, so that a read past its end is seen. */
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 8) {
	case 0:
		otel_environ((const char *)data + 1, size - 1, &w);
		break;
	case 1:
		otel_payload(data + 1, size - 1, &w);
		break;
	case 2:
		otel_maps_line(text, size - 1, &addr);
		if (size > OTEL_HEADER) {
			memcpy(head, data + 1, OTEL_HEADER);
			otel_header(head, &header);
		}
		break;
	case 3:
		container_docker(text, size - 1, &n);
		break;
	case 4:
		container_bundle(text, size - 1, &n);
		break;
	case 5:
		container_storage(text, size - 1, ID, &n);
		break;
	case 6:
		container_log_name(text, ID, &n);
		break;
	default:
		if (!strstr(text, "user:")) /* asks the name service */
			rules(text, size - 1);
	}
	return 0;
}
