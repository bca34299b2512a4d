// SPDX-License-Identifier: Apache-2.0
/*
 * What each protocol puts around a profile, read by Google's protobuf through tests/fleet/judge.py,
 * which holds it to the rules of the servers; what is in it is compared with what this file made.
 */
#include "core/envelope.h"
#include "core/gzip.h"
#include "core/headers.h"
#include "core/pprof_cut.h"
#include "core/spool.h"
#include "pprof_make.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char dir[] = "/tmp/test_envelope.XXXXXX";

static int setup(void **state __unused)
{
	setenv("FLEET_ANY_TIME", "1", 1);
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state __unused)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* --- helpers ---------------------------------------------------------------------------------- */

static struct profile *new_profile(const struct make *o)
{
	struct profile *p = calloc(1, sizeof(*p));

	strcpy(p->service, "shop/\xc3\xbc");
	strcpy(p->container, "c0ffee");
	strcpy(p->type, o->counted ? "offcpu" : "cpu");
	p->start_ns = MAKE_START;
	p->memory = make_pprof(o, &p->len);
	p->body = p->memory;
	return p;
}

/* What judge.py prints of a body; owned. */
static char *judged(const char *protocol, const u8 *body, size_t len)
{
	static u32 n;
	char path[64], cmd[256], *text = calloc(1, 4 << 20);
	size_t have = 0, got;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%u", dir, n++);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(body, 1, len, f), len);
	fclose(f);
	snprintf(cmd, sizeof(cmd), "/usr/bin/python3 -B tests/fleet/judge.py %s %s", protocol,
		 path);
	f = popen(cmd, "r");
	assert_non_null(f);
	while ((got = fread(text + have, 1, (4 << 20) - 1 - have, f)))
		have += got;
	if (pclose(f))
		fail_msg("%s: %s", protocol, text);
	return text;
}

static void make(enum protocol protocol, const struct make *o, struct envelope *ret)
{
	struct profile *p = new_profile(o);

	assert_int_equal(envelope_make(protocol, p, "host1", ret), 0);
	profile_free(p);
}

#define MAKE_PROTOCOL(protocol, name, o, want)              \
	do {                                                \
		_cleanup_(envelope_fini) struct envelope e; \
		_cleanup_free_ char *got = NULL;            \
		make((protocol), (o), &e);                  \
		got = judged(name, e.body, e.len);          \
		assert_string_equal(got, want);             \
	} while (0)

/* --- the bodies ------------------------------------------------------------------------------- */

static const struct make two = { .samples = 2 }, waits = { .samples = 2, .counted = true };

#define TIME    "time 1796043300000000000 duration 60000000000\n"
#define NOTES   "comment first line\ncomment second line\n"
#define KERNEL  ";do_idle:0@[kernel.kallsyms]+ffffffff81000000"
#define STACK_0 "@/bin/app+1000;f0:0@/lib/l.so+2000" KERNEL
#define STACK_1 "@/bin/app+1001;f1:0@/lib/l.so+2001" KERNEL
#define STACK_2 "@/bin/app+1002;f2:0@/lib/l.so+2002" KERNEL
#define CPU     "type cpu nanoseconds period 10000000 " TIME NOTES

static void pyroscope_keeps_all_but_labels_of_many_values(void **state __unused)
{
	MAKE_PROTOCOL(PROTOCOL_PYROSCOPE, "pyroscope", &two,
		      "service shop/\xc3\xbc container - host -\n" CPU "10000000 " STACK_0
		      " host=host1 pid=7 process.executable=app\n"
		      "20000000 " STACK_1 " host=host1 pid=8 process.executable=app\n");
}

static void parca_has_the_profile_as_it_is(void **state __unused)
{
	MAKE_PROTOCOL(PROTOCOL_PARCA, "parca", &two,
		      "service shop/\xc3\xbc container - host -\n" CPU "10000000 " STACK_0
		      " host=host1 pid=7 process.executable=app thread.name=worker-0\n"
		      "20000000 " STACK_1
		      " host=host1 pid=8 process.executable=app thread.name=worker-1\n");
}

/* On-CPU time as samples and their period, which is what readers of the signal look for. */
static void otlp_counts_samples(void **state __unused)
{
	MAKE_PROTOCOL(PROTOCOL_OTLP, "otlp", &two,
		      "service shop/\xc3\xbc container c0ffee host host1\n"
		      "type samples count period 10000000 " TIME NOTES "1 " STACK_0
		      " pid=7 process.executable.name=app thread.name=worker-0\n"
		      "2 " STACK_1 " pid=8 process.executable.name=app thread.name=worker-1\n");
}

/* A span is a link there; Pyroscope keeps its id beside the series, what else there is would be one. */
static void spans_are_links(void **state __unused)
{
#define TRACE " trace_id=0af7651916cd43dd8448eb211c80319c\n"
	static const struct make spans = { .samples = 3, .spans = true };

	MAKE_PROTOCOL(PROTOCOL_OTLP, "otlp", &spans,
		      "service shop/\xc3\xbc container c0ffee host host1\n"
		      "type samples count period 10000000 " TIME NOTES "1 " STACK_0
		      " http.route=/cart/{id} pid=7 process.executable.name=app"
		      " span_id=00f067aa0ba902b7 thread.name=worker-0" TRACE "2 " STACK_1
		      " http.route=/cart/{id} pid=8 process.executable.name=app"
		      " span_id=b7ad6b7169203331 thread.name=worker-1" TRACE "3 " STACK_2
		      " http.route=/cart/{id} pid=7 process.executable.name=app"
		      " span_id=00f067aa0ba902b7 thread.name=worker-2" TRACE);
	MAKE_PROTOCOL(PROTOCOL_PYROSCOPE, "pyroscope", &spans,
		      "service shop/\xc3\xbc container - host -\n" CPU "10000000 " STACK_0
		      " host=host1 pid=7 process.executable=app span_id=00f067aa0ba902b7\n"
		      "20000000 " STACK_1
		      " host=host1 pid=8 process.executable=app span_id=b7ad6b7169203331\n"
		      "30000000 " STACK_2
		      " host=host1 pid=7 process.executable=app span_id=00f067aa0ba902b7\n");
}

/* A profile per type; time off CPU without a period. */
static void otlp_has_a_profile_per_type(void **state __unused)
{
#define OFF_0 STACK_0 " pid=7 process.executable.name=app thread.name=worker-0\n"
#define OFF_1 STACK_1 " pid=8 process.executable.name=app thread.name=worker-1\n"
	MAKE_PROTOCOL(PROTOCOL_OTLP, "otlp", &waits,
		      "service shop/\xc3\xbc container c0ffee host host1\n"
		      "type waits count period 1 " TIME NOTES "1 " OFF_0 "2 " OFF_1
		      "type off_cpu nanoseconds period 0 " TIME NOTES "10000000 " OFF_0
		      "20000000 " OFF_1);
}

static void grpc_is_the_same_in_a_frame(void **state __unused)
{
	_cleanup_(envelope_fini) struct envelope http, grpc;

	make(PROTOCOL_OTLP, &waits, &http);
	make(PROTOCOL_OTLP_GRPC, &waits, &grpc);
	assert_int_equal(grpc.len, http.len + 5);
	assert_int_equal(grpc.body[0], 1);
	assert_int_equal((u32)grpc.body[1] << 24 | (u32)grpc.body[2] << 16 |
				 (u32)grpc.body[3] << 8 | grpc.body[4],
			 http.len);
	assert_memory_equal(grpc.body + 5, http.body, http.len);
	assert_string_equal(grpc.path, "/opentelemetry.proto.collector.profiles.v1development"
				       ".ProfilesService/Export");
}

static void two_deliveries_are_equal(void **state __unused)
{
	static const struct make other = { .samples = 3 };
	_cleanup_(envelope_fini) struct envelope a, b, c;

	make(PROTOCOL_PYROSCOPE, &two, &a);
	make(PROTOCOL_PYROSCOPE, &two, &b);
	make(PROTOCOL_PYROSCOPE, &other, &c);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.body, b.body, a.len);
	assert_true(c.len != a.len);
}

static void profile_without_samples_is_one(void **state __unused)
{
	static const struct make none = { 0 };

	MAKE_PROTOCOL(PROTOCOL_PYROSCOPE, "pyroscope", &none,
		      "service shop/\xc3\xbc container - host -\n" CPU);
	MAKE_PROTOCOL(PROTOCOL_OTLP, "otlp", &none,
		      "service shop/\xc3\xbc container c0ffee host host1\n"
		      "type samples count period 10000000 " TIME NOTES);
}

/* --- limits and halves ------------------------------------------------------------------------ */

static int try_make(enum protocol protocol, const struct make *o)
{
	struct profile *p = new_profile(o);
	struct envelope e;
	int r = envelope_make(protocol, p, "host1", &e);

	envelope_fini(&e);
	profile_free(p);
	return r;
}

static void what_is_over_a_servers_limit_is_told(void **state __unused)
{
	static const struct make at = { .samples = 16000 }, over = { .samples = 16001 };
	/* 150 * 30000 bytes are 4.3 MiB. */
	static const struct make large = { .samples = 150, .name_len = 30000 };

	assert_int_equal(try_make(PROTOCOL_PYROSCOPE, &at), 0);
	assert_int_equal(try_make(PROTOCOL_PYROSCOPE, &over), -E2BIG);
	assert_int_equal(try_make(PROTOCOL_PYROSCOPE, &large), -E2BIG);
	assert_int_equal(try_make(PROTOCOL_OTLP_GRPC, &large), -E2BIG);
	assert_int_equal(try_make(PROTOCOL_OTLP, &large), 0);
	assert_int_equal(try_make(PROTOCOL_PPROF, &large), 0);
	assert_int_equal(try_make(PROTOCOL_OTEL_PPROF, &large), 0);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The samples' lines of one or two texts, sorted. */
static u32 sample_lines(char *one, char *other, char **lines, u32 max)
{
	char *texts[] = { one, other }, *line, *save;
	u32 n = 0, i;

	for (i = 0; i < 2 && texts[i]; i++)
		for (line = strtok_r(texts[i], "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			if (*line >= '0' && *line <= '9' && n < max)
				lines[n++] = line;
	qsort(lines, n, sizeof(*lines), compare_lines);
	return n;
}

/* Each is a sound profile of its own, smaller, and together they are what there was. */
static void halves_have_every_sample_once(void **state __unused)
{
	static const struct make odd = { .samples = 101, .counted = true };
	struct profile *p = new_profile(&odd), *half[2];
	_cleanup_free_ char *all = judged("raw", p->body, p->len), *a = NULL, *b = NULL;
	char *want[300], *got[300];
	u32 n, i;

	assert_int_equal(envelope_split(p, half), 0);
	assert_string_equal(half[0]->service, p->service);
	assert_string_equal(half[1]->container, p->container);
	assert_string_equal(half[1]->type, "offcpu");
	assert_true(half[0]->start_ns == p->start_ns);
	assert_true(half[0]->len < p->len * 2 / 3 && half[1]->len < p->len * 2 / 3);
	a = judged("raw", half[0]->body, half[0]->len);
	b = judged("raw", half[1]->body, half[1]->len);
	n = sample_lines(all, NULL, want, ARRAY_SIZE(want));
	assert_int_equal(n, 202); /* two types */
	assert_int_equal(sample_lines(a, b, got, ARRAY_SIZE(got)), n);
	for (i = 0; i < n; i++)
		assert_string_equal(got[i], want[i]);
	profile_free(half[0]);
	profile_free(half[1]);
	profile_free(p);
}

static void one_sample_is_not_split(void **state __unused)
{
	static const struct make one = { .samples = 1 };
	struct profile *p = new_profile(&one), *half[2];

	assert_int_equal(envelope_split(p, half), -ENOENT);
	profile_free(p);
}

/* --- what is no sound profile ----------------------------------------------------------------- */

static void break_string(Pprof__Profile *pb)
{
	pb->function[0]->name = (s64)pb->n_string_table;
}

static void break_negative(Pprof__Profile *pb)
{
	pb->sample[0]->label[0]->str = -1;
}

static void break_id(Pprof__Profile *pb)
{
	pb->location[1]->id = 77;
}

static void break_location(Pprof__Profile *pb)
{
	pb->sample[1]->location_id[0] = pb->n_location + 1;
}

static void break_zero_location(Pprof__Profile *pb)
{
	pb->sample[1]->location_id[0] = 0;
}

static void break_mapping(Pprof__Profile *pb)
{
	pb->location[0]->mapping_id = 4;
}

static void break_function(Pprof__Profile *pb)
{
	pb->location[0]->line[0]->function_id = UINT64_MAX;
}

static void break_values(Pprof__Profile *pb)
{
	pb->sample[0]->n_value = 0;
}

static void break_texts(Pprof__Profile *pb)
{
	pb->n_string_table = 0;
}

static void break_comment(Pprof__Profile *pb)
{
	pb->comment[0] = 1000000;
}

static void broken_profiles_are_refused(void **state __unused)
{
	static void (*const breaks[])(Pprof__Profile *) = {
		break_string,  break_negative, break_id,     break_location, break_zero_location,
		break_mapping, break_function, break_values, break_texts,    break_comment,
	};
	struct profile *p = new_profile(&two), *half[2];
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(breaks); i++) {
		struct profile bad = *p;
		struct pprof_in in;
		struct envelope e;
		size_t len;
		u8 *body;

		assert_int_equal(pprof_in_open(&in, p->body, p->len, 1 << 20, 1 << 20), 0);
		assert_true(pprof_is_whole(in.pb));
		breaks[i](in.pb);
		assert_int_equal(pprof_pack(in.pb, &body, &len), 0);
		pprof_in_fini(&in);
		bad.body = body;
		bad.len = len;
		for (k = PROTOCOL_PYROSCOPE; k < PROTOCOL_MAX; k++) {
			if (k == PROTOCOL_PARCA)
				continue;
			assert_int_equal(envelope_make(k, &bad, "h", &e), -EBADMSG);
			envelope_fini(&e);
		}
		assert_int_equal(envelope_split(&bad, half), -EBADMSG);
		free(body);
	}
	profile_free(p);
}

/* --- answers ---------------------------------------------------------------------------------- */

static struct judgement judge(enum protocol protocol, long status, const char *type,
			      const void *body, size_t len)
{
	struct answer a = { .status = status, .grpc_status = -1, .body_len = len };
	struct judgement j;

	snprintf(a.type, sizeof(a.type), "%s", type);
	memcpy(a.body, body, len);
	envelope_judge(protocol, &a, &j);
	return j;
}

static void statuses_are_judged(void **state __unused)
{
	static const struct {
		long status;
		enum envelope_verdict want;
	} rows[] = {
		{ 0, ENVELOPE_RETRY },       { 200, ENVELOPE_ACCEPTED }, { 204, ENVELOPE_ACCEPTED },
		{ 302, ENVELOPE_RETRY },     { 307, ENVELOPE_RETRY },    { 400, ENVELOPE_REFUSED },
		{ 401, ENVELOPE_REFUSED },   { 404, ENVELOPE_REFUSED },  { 408, ENVELOPE_RETRY },
		{ 413, ENVELOPE_TOO_LARGE }, { 415, ENVELOPE_REFUSED },  { 429, ENVELOPE_RETRY },
		{ 500, ENVELOPE_RETRY },     { 503, ENVELOPE_RETRY },    { 599, ENVELOPE_RETRY },
	};
	u32 i, k;

	for (k = 0; k < PROTOCOL_MAX; k++)
		for (i = 0; i < ARRAY_SIZE(rows); i++)
			if (k != PROTOCOL_OTLP_GRPC || rows[i].status != 200)
				assert_int_equal(judge(k, rows[i].status, "", "", 0).verdict,
						 rows[i].want);
}

static void page_for_people_is_no_yes(void **state __unused)
{
	struct judgement j =
		judge(PROTOCOL_PPROF, 200, "text/html; charset=utf-8", "<html>Log in", 12);

	assert_int_equal(j.verdict, ENVELOPE_RETRY);
	assert_string_equal(j.why, "HTTP 200 with a page for people: is it the right address?");
}

static void pyroscopes_own_limits_are_known_by_its_words(void **state __unused)
{
	static const char size[] = "{\"code\":\"invalid_argument\",\"message\":\"the profile with "
				   "labels '{}' exceeds the size limit (max_profile_size_byte\"}";

	assert_int_equal(judge(PROTOCOL_PYROSCOPE, 400, "", size, sizeof(size) - 1).verdict,
			 ENVELOPE_TOO_LARGE);
	assert_int_equal(judge(PROTOCOL_PARCA, 400, "", size, sizeof(size) - 1).verdict,
			 ENVELOPE_REFUSED);
}

static void partial_success_is_read(void **state __unused)
{
	/* protoc --encode of partial_success { rejected_profiles: 3 error_message: "no\033" } */
	static const char reply[] = "\x0a\x07\x08\x03\x12\x03no\x1b";
	struct judgement j =
		judge(PROTOCOL_OTLP, 200, "application/x-protobuf", reply, sizeof(reply) - 1);

	assert_int_equal(j.verdict, ENVELOPE_ACCEPTED);
	assert_int_equal(j.rejected, 3);
	assert_string_equal(j.why, "no?");
	/* Any other bytes are no reason to send it again. */
	j = judge(PROTOCOL_OTLP, 200, "", "\xff\xff", 2);
	assert_int_equal(j.verdict, ENVELOPE_ACCEPTED);
	assert_int_equal(j.rejected, 0);
	assert_int_equal(judge(PROTOCOL_PPROF, 200, "", reply, sizeof(reply) - 1).rejected, 0);
}

static void grpc_statuses_are_judged(void **state __unused)
{
	static const enum envelope_verdict want[17] = {
		ENVELOPE_ACCEPTED, ENVELOPE_RETRY,   ENVELOPE_REFUSED, ENVELOPE_REFUSED,
		ENVELOPE_RETRY,    ENVELOPE_REFUSED, ENVELOPE_REFUSED, ENVELOPE_REFUSED,
		ENVELOPE_RETRY,    ENVELOPE_REFUSED, ENVELOPE_RETRY,   ENVELOPE_RETRY,
		ENVELOPE_REFUSED,  ENVELOPE_REFUSED, ENVELOPE_RETRY,   ENVELOPE_RETRY,
		ENVELOPE_REFUSED,
	};
	struct answer a = { .status = 200, .body = "\0\0\0\0\x04\x0a\x02\x08\x05", .body_len = 9 };
	struct judgement j;

	for (a.grpc_status = 0; a.grpc_status <= 16; a.grpc_status++) {
		envelope_judge(PROTOCOL_OTLP_GRPC, &a, &j);
		assert_int_equal(j.verdict, want[a.grpc_status]);
		assert_int_equal(j.rejected, a.grpc_status ? 0 : 5);
	}
	a.grpc_status = -1;
	envelope_judge(PROTOCOL_OTLP_GRPC, &a, &j);
	assert_int_equal(j.verdict, ENVELOPE_RETRY);
	a.grpc_status = 8;
	strcpy(a.grpc_message, "grpc: received message larger than max (5 vs. 4)");
	envelope_judge(PROTOCOL_OTLP_GRPC, &a, &j);
	assert_int_equal(j.verdict, ENVELOPE_TOO_LARGE);
}

/* Texts by Google's protobuf library and Python's base64; gRPC leaves the padding out. */
static void grpc_servers_may_ask_for_peace(void **state __unused)
{
	static const struct {
		const char *text;
		u64 ns;
	} cases[] = {
		{ "CA4aNQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIJCgcIAhCA5Zp3",
		  2250000000 },
		{ "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIHg==",
		  30 * NSEC_PER_SEC },
		{ "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIHg",
		  30 * NSEC_PER_SEC },
		/* Behind a detail of another type. */
		{ "CA4SBGJ1c3kaLwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLkRlYnVnSW5mbxIDEgF4GjYK"
		  "KHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SCgoICAMQgMq17gE=",
		  3500000000 },
		/* A QuotaFailure of the same bytes. */
		{ "CA4SBGJ1c3kaMwordHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlF1b3RhRmFpbHVyZRIECgII"
		  "BQ==",
		  0 },
		/* -1 s; 1 s less 5 ns; 2^62 s: none of them is a duration to wait. */
		{ "CA4SBGJ1c3kaOQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxINCgsI////"
		  "////////AQ==",
		  0 },
		{ "CA4SBGJ1c3kaOwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIPCg0IARD7"
		  "//////////8B",
		  0 },
		{ "CA4SBGJ1c3kaOAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIMCgoIgICA"
		  "gICAgIBA",
		  0 },
		{ "", 0 },
		{ "CA4", 0 },
		{ "CAgaMAoodHlwZS5nb29nbGVhcGlz", 0 },
		{ "not base64!", 0 },
	};
	char large[16384];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(envelope_retry_delay(cases[i].text, strlen(cases[i].text)),
				 cases[i].ns);
	memset(large, 'A', sizeof(large));
	assert_int_equal(envelope_retry_delay(large, sizeof(large)), 0);
}

/* --- headers ---------------------------------------------------------------------------------- */

static int collect(void *arg, const char *header)
{
	strcat(arg, header);
	strcat(arg, "|");
	return 0;
}

static void headers_are_split_and_checked(void **state __unused)
{
	static const struct {
		const char *text, *want;
	} bad[] = {
		{ "X-A", "NAME: VALUE" },
		{ ": v", "a header's name before :" },
		{ "X A: v", "a header's name before :" },
		{ "X-A: ", "printable ASCII text after :" },
		{ "X-A: a\x01", "printable ASCII text after :" },
		{ "X-A: \xc3\xbc", "printable ASCII text after :" },
		{ "content-type: x", "none of the headers that belong to the protocol" },
		{ "a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1",
		  "at most 16 headers" },
	};
	char got[256] = "";
	const char *want;
	size_t i;

	assert_int_equal(headers_each(" X-Scope-OrgID:a b , ,X-Api-Key :: c:d,", ',', collect, got,
				      &want),
			 -EINVAL);
	*got = '\0';
	assert_int_equal(
		headers_each(" X-Scope-OrgID:a b , ,X-Api-Key: c:d,", ',', collect, got, &want), 0);
	assert_string_equal(got, "X-Scope-OrgID: a b|X-Api-Key: c:d|");
	*got = '\0';
	assert_int_equal(headers_each("A: 1,2\r\n\r\nB: 3\n", '\n', collect, got, &want), 0);
	assert_string_equal(got, "A: 1,2|B: 3|");
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(headers_each(bad[i].text, ',', NULL, NULL, &want), -EINVAL);
		assert_string_equal(want, bad[i].want);
	}
}

static void protocols_have_names(void **state __unused)
{
	enum protocol p;

	assert_true(envelope_protocol("otlp-grpc", &p));
	assert_int_equal(p, PROTOCOL_OTLP_GRPC);
	assert_true(envelope_protocol("pprof", &p));
	assert_int_equal(p, PROTOCOL_PPROF);
	assert_false(envelope_protocol("", &p));
	assert_false(envelope_protocol("otlp-", &p));
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(pyroscope_keeps_all_but_labels_of_many_values),
		T(parca_has_the_profile_as_it_is),
		T(otlp_counts_samples),
		T(spans_are_links),
		T(otlp_has_a_profile_per_type),
		T(grpc_is_the_same_in_a_frame),
		T(two_deliveries_are_equal),
		T(profile_without_samples_is_one),
		T(what_is_over_a_servers_limit_is_told),
		T(halves_have_every_sample_once),
		T(one_sample_is_not_split),
		T(broken_profiles_are_refused),
		T(statuses_are_judged),
		T(page_for_people_is_no_yes),
		T(pyroscopes_own_limits_are_known_by_its_words),
		T(partial_success_is_read),
		T(grpc_statuses_are_judged),
		T(grpc_servers_may_ask_for_peace),
		T(headers_are_split_and_checked),
		T(protocols_have_names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
