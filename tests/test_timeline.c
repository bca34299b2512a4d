// SPDX-License-Identifier: Apache-2.0
/*
 * Time lines of windows made by hand: what each writer makes of threads, samples, waits, unnamed
 * frames and of nothing at all. Whole recordings are judged by tests/live_timeline.sh.
 */
#include "core/timeline.h"
#include "core/fold.h"
#include "core/gzip.h"
#include "perfetto.pb-c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define START 1700000000000000000ull
#define MS    1000000ull

static const struct frame frames[] = {
	{ .kind = FRAME_KERNEL,
	  .address = 0xffffffff81000010,
	  .mapping = "[kernel.kallsyms]",
	  .func = "schedule" },
	{ .kind = FRAME_RUNTIME, .func = "work", .file = "job.py", .line = 7 },
	{ .kind = FRAME_ANON, .address = 0x7000, .mapping = "//anon" },
};

static struct fold_ref place(struct window *w, const struct sample_type *type, u32 pid,
			     const char *thread, u32 first, u32 n)
{
	const struct sample s = {
		.type = type,
		.service = "host",
		.exe = "</script>",
		.thread = thread,
		.pid = pid,
		.labels = { { "thread.state", "S" }, { "wait", "futex" } },
		.nlabels = type->counted ? 2 : 0,
		.frames = frames + first,
		.nframes = n,
	};
	struct fold_ref ref;

	assert_int_equal(fold_add(w, &s, &ref), 0);
	return ref;
}

static void event(struct window *w, struct fold_ref ref, u32 tid, u64 at, u64 ns, u32 n)
{
	const struct window_event ev = { .time_ns = START + at, .ns = ns, .n = n, .tid = tid };

	assert_int_equal(fold_event(w, ref, &ev), 0);
}

/* Of two processes; given in no order. */
static struct window *two_processes(void)
{
	struct window *w = window_new(START);
	struct fold_ref wait = place(w, &sample_offcpu, 20, "worker", 0, 3);
	struct fold_ref run = place(w, &sample_cpu, 20, "worker", 1, 2);
	struct fold_ref other = place(w, &sample_cpu, 10, "main", 2, 1);

	event(w, wait, 21, 30 * MS, 10 * MS, 1);
	event(w, run, 21, 12 * MS, 10 * MS, 1);
	event(w, other, 10, 50 * MS, 20 * MS, 2);
	event(w, wait, 21, 5 * MS, 9 * MS, 1); /* began before the window */
	return w;
}

static char *encode(const struct window *w, enum timeline_format format, size_t *len)
{
	static const char *const comments[] = { "one \"line\"" };
	const struct timeline_options o = {
		.format = format, .hz = 100, .host = "here", .comments = comments, .ncomments = 1
	};
	u8 *data;

	assert_int_equal(timeline_encode(w, &o, &data, len), 0);
	return (char *)data;
}

static void a_trace_is_in_order_of_threads_and_time(void **state __unused)
{
	struct window *w = two_processes();
	size_t len, i, n = 0;
	_cleanup_free_ char *data = encode(w, TIMELINE_PERFETTO, &len);
	Perfetto__Trace *t = perfetto__trace__unpack(NULL, len, (u8 *)data);
	struct {
		u64 at;
		u32 type, tid;
	} seen[8];

	assert_non_null(t);
	for (i = 0; i < t->n_packet; i++) {
		const Perfetto__TracePacket *p = t->packet[i];

		assert_int_equal(p->trusted_packet_sequence_id, 1);
		assert_int_equal(p->sequence_flags, i ? 2 : 3);
		if (!p->has_timestamp)
			continue;
		assert_true(n < ARRAY_SIZE(seen));
		seen[n].at = p->timestamp - START;
		seen[n].type = p->track_event ? p->track_event->type : 0;
		seen[n++].tid = p->perf_sample ? p->perf_sample->tid
					       : (u32)p->track_event->track_uuid;
	}
	/* Two samples that no time tells apart are two. */
	assert_int_equal(n, 7);
	for (i = 0; i < 2; i++)
		assert_true(seen[i].at == 50 * MS && !seen[i].type && seen[i].tid == 10);
	assert_true(seen[2].at == 0 && seen[2].type == 1 && seen[2].tid == 21);
	assert_true(seen[3].at == 5 * MS && seen[3].type == 2);
	assert_true(seen[4].at == 12 * MS && !seen[4].type);
	assert_true(seen[5].at == 20 * MS && seen[5].type == 1);
	assert_true(seen[6].at == 30 * MS && seen[6].type == 2);
	perfetto__trace__free_unpacked(t, NULL);
	window_free(w);
}

static void an_unnamed_frame_has_its_place(void **state __unused)
{
	struct window *w = two_processes();
	size_t len;
	_cleanup_free_ char *trace = encode(w, TIMELINE_PERFETTO, &len);
	_cleanup_free_ char *profile = NULL;

	assert_non_null(memmem(trace, len, "//anon+0x7000", 13));
	profile = encode(w, TIMELINE_FIREFOX, &len);
	assert_non_null(strstr(profile, "\"//anon+0x7000\""));
	window_free(w);
}

static void a_profile_shares_stacks_and_tells_waits_apart(void **state __unused)
{
	static const char *const parts[] = {
		"\"preprocessedProfileVersion\":60,",
		"\"interval\":10.000000,\"startTime\":1700000000000.000000,",
		"\"value\":\"one \\\"line\\\"\"",
		/* Leaf first in a window, root first here; a wait's frames are its own. */
		"\"stackTable\":{\"length\":5,\"frame\":",
		"\"prefix\":[null,0,1,null,3]}",
		"\"tid\":21,\"isMainThread\":false",
		"\"time\":[5.000000,12.000000,30.000000],\"weight\":[9.000000,10.000000,10.000000],"
		"\"threadCPUDelta\":[0,10000000,0]}",
		"\"startTime\":[0.000000,20.000000],\"endTime\":[5.000000,30.000000],",
		"\"what\":\"futex\",\"state\":\"S\"",
		"\"name\":\"main\",\"processName\":\"\\u003c/script\\u003e\"",
	};
	struct window *w = two_processes();
	size_t len, i;
	_cleanup_free_ char *data = encode(w, TIMELINE_FIREFOX, &len);

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strstr(data, parts[i]))
			fail_msg("no %s in %s", parts[i], data);
	window_free(w);
}

static void nothing_recorded_is_a_valid_file(void **state __unused)
{
	struct window *w = window_new(START);
	size_t len;
	_cleanup_free_ char *trace = encode(w, TIMELINE_PERFETTO, &len);
	_cleanup_free_ char *profile = NULL;
	Perfetto__Trace *t = perfetto__trace__unpack(NULL, len, (u8 *)trace);

	assert_non_null(t);
	assert_int_equal(t->n_packet, 1);
	perfetto__trace__free_unpacked(t, NULL);
	profile = encode(w, TIMELINE_FIREFOX, &len);
	assert_non_null(strstr(profile, "\"threads\":[]}"));
	window_free(w);
}

static void packed_is_the_same(void **state __unused)
{
	struct window *w = two_processes();
	struct timeline_options o = { .format = TIMELINE_FIREFOX, .hz = 100, .host = "here" };
	_cleanup_free_ u8 *plain = NULL, *packed = NULL, *again = NULL;
	size_t plain_len, packed_len, again_len;

	assert_int_equal(timeline_encode(w, &o, &plain, &plain_len), 0);
	o.gzip = true;
	assert_int_equal(timeline_encode(w, &o, &packed, &packed_len), 0);
	assert_int_equal(gzip_unpack(packed, packed_len, 1 << 20, &again, &again_len), 0);
	assert_int_equal(again_len, plain_len);
	assert_memory_equal(again, plain, plain_len);
	window_free(w);
}

static void events_are_bounded(void **state __unused)
{
	struct window *w = window_new(START);
	struct fold_ref ref = place(w, &sample_cpu, 1, "t", 2, 1);
	const struct window_event ev = { .n = 1 };
	u32 i;

	for (i = 0; i < WINDOW_MAX_EVENTS; i++)
		if (fold_event(w, ref, &ev))
			break;
	assert_int_equal(i, WINDOW_MAX_EVENTS);
	assert_int_equal(fold_event(w, ref, &ev), -E2BIG);
	window_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trace_is_in_order_of_threads_and_time),
		cmocka_unit_test(an_unnamed_frame_has_its_place),
		cmocka_unit_test(a_profile_shares_stacks_and_tells_waits_apart),
		cmocka_unit_test(nothing_recorded_is_a_valid_file),
		cmocka_unit_test(packed_is_the_same),
		cmocka_unit_test(events_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
