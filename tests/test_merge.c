// SPDX-License-Identifier: Apache-2.0
/*
 * Merging: a native stack and an interpreter's list of the same moment, as short texts, leaf first.
 * Native: "L" a loop frame, "j" code made at run time, other letters functions. List: letters, "|" a
 * boundary, "^" a switch of stacks. What is to come out was worked out by hand from what the two
 * mean; a frame of the list comes out as 'a.
 */
#include "core/merge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

#define LOOP_AT 0x1000
#define CODE_AT 0x9000

struct stacks {
	struct frame frames[64];
	u64 ip[64];
	char names[64][2];
	struct merge_native native;
	struct runtime_frames list;
	char list_names[64][2];
};

static void set_native(struct stacks *s, const char *text, bool whole)
{
	u32 i;

	for (i = 0; text[i]; i++) {
		s->names[i][0] = text[i];
		s->frames[i] = (struct frame){
			.kind = text[i] == 'j' ? FRAME_ANON : FRAME_NATIVE,
			.func = s->names[i],
		};
		/* Callers stand at return addresses: the first byte behind the loop belongs to it. */
		s->ip[i] = text[i] == 'L' ? LOOP_AT + (i ? 0x100 : 0) : CODE_AT + i;
	}
	s->native = (struct merge_native){ s->frames, s->ip, i, whole };
}

static void set_list(struct stacks *s, const char *text, bool cut)
{
	struct runtime_frames *l = &s->list;
	u32 i;

	memset(l, 0, sizeof(*l));
	l->switched = UINT32_MAX;
	l->cut = cut;
	for (i = 0; text[i]; i++) {
		if (text[i] == '|' || text[i] == '^') {
			l->segment[l->nsegments++] = l->n;
			if (text[i] == '^')
				l->switched = l->nsegments;
			continue;
		}
		s->list_names[l->n][0] = text[i];
		l->frames[l->n] = (struct runtime_frame){ .func = s->list_names[l->n] };
		l->n++;
	}
}

static const struct code_range LOOPS[] = { { LOOP_AT, LOOP_AT + 0x100 } };

struct expectation {
	const char *native, *list, *merged;
	enum sample_list result;
	bool cut_native, cut_list, runs, internals;
};

static void expect(const struct expectation *e)
{
	static struct frame out[MERGE_FRAMES_MAX];
	struct stacks s = { .native = { 0 } };
	struct merge_options o = { LOOPS, ARRAY_SIZE(LOOPS), e->runs, e->internals };
	char text[512] = "";
	enum sample_list got;
	u32 n, i;

	set_native(&s, e->native, !e->cut_native);
	set_list(&s, e->list, e->cut_list);
	got = merge_frames(&s.native, &s.list, &o, out, &n);
	for (i = 0; i < n; i++) {
		strcat(text, out[i].kind == FRAME_RUNTIME ? "'" : "");
		strcat(text, strlen(out[i].func) == 1 ? out[i].func : "!");
	}
	assert_string_equal(text, e->merged);
	assert_int_equal(got, e->result);
}

#define EXPECT(n, l, m, r, ...)       \
	expect(&(struct expectation){ \
		.native = n, .list = l, .merged = m, .result = r, ##__VA_ARGS__ })

static void loop_frames_give_way_to_their_runs(void **state __unused)
{
	EXPECT("Lms", "ab|", "'a'bms", SAMPLE_LIST_MERGED);
	EXPECT("xLms", "ab|", "x'a'bms", SAMPLE_LIST_MERGED);
	/* A C function calls back: python, C, python stay in their places. */
	EXPECT("LkqLms", "a|bc|", "'akq'b'cms", SAMPLE_LIST_MERGED);
	EXPECT("xLkLqLms", "a|b|c|", "x'ak'bq'cms", SAMPLE_LIST_MERGED);
}

static void neighbouring_loop_frames_are_two_runs(void **state __unused)
{
	EXPECT("LLms", "a|b|", "'a'bms", SAMPLE_LIST_MERGED);
}

static void frames_behind_the_last_boundary_are_a_run(void **state __unused)
{
	EXPECT("LkLms", "a|bc", "'ak'b'cms", SAMPLE_LIST_MERGED);
	EXPECT("Lms", "ab", "'a'bms", SAMPLE_LIST_MERGED);
}

static void an_empty_run_is_a_run(void **state __unused)
{
	EXPECT("LkLms", "|a|", "k'ams", SAMPLE_LIST_MERGED);
	EXPECT("LkLms", "a||", "'akms", SAMPLE_LIST_MERGED);
}

static void a_loop_that_has_just_begun_has_no_run(void **state __unused)
{
	EXPECT("LkLms", "a|", "k'ams", SAMPLE_LIST_MERGED);
	EXPECT("Lms", "", "ms", SAMPLE_LIST_MERGED);
}

static void a_thread_outside_of_the_interpreter_is_idle(void **state __unused)
{
	EXPECT("xyms", "", "xyms", SAMPLE_LIST_IDLE);
	EXPECT("", "", "", SAMPLE_LIST_IDLE);
}

static void what_a_cut_native_stack_lacks_follows(void **state __unused)
{
	EXPECT("xLk", "a|b|c|", "x'ak'b'c", SAMPLE_LIST_MERGED, .cut_native = true);
	/* It ended in code made at run time, before any loop frame. */
	EXPECT("x", "a|b|", "x'a'b", SAMPLE_LIST_MERGED, .cut_native = true);
	EXPECT("", "a|", "'a", SAMPLE_LIST_MERGED, .cut_native = true);
}

static void what_a_cut_list_lacks_stays_native(void **state __unused)
{
	EXPECT("LkLqLms", "a|b", "'ak'bqLms", SAMPLE_LIST_MERGED, .cut_list = true);
	/* One too many is not a run that has not begun: the list is known to lack its end. */
	EXPECT("LkLms", "ab", "'a'bkLms", SAMPLE_LIST_MERGED, .cut_list = true);
}

static void a_fiber_is_followed_by_who_resumed_it(void **state __unused)
{
	EXPECT("Lf", "a^b|c|", "'af'b'c", SAMPLE_LIST_MERGED);
	EXPECT("LkLf", "a|b^c|", "'ak'bf'c", SAMPLE_LIST_MERGED);
	EXPECT("LkLf", "a^c|", "k'af'c", SAMPLE_LIST_MERGED);
}

static void code_made_at_run_time_belongs_to_the_loop_that_calls_it(void **state __unused)
{
	EXPECT("jjLms", "ab|", "'a'bms", SAMPLE_LIST_MERGED);
	EXPECT("xjLkjLms", "a|b|", "x'ak'bms", SAMPLE_LIST_MERGED);
	/* A thunk between C functions is not the interpreter's. */
	EXPECT("LqjkLms", "a|b|", "'aqjk'bms", SAMPLE_LIST_MERGED);
}

/* A walk by frame pointers passes over the loop frame that called such code. */
static void code_made_at_run_time_stands_for_a_loop_frame_that_is_missing(void **state __unused)
{
	EXPECT("xLkjjms", "a|b|", "x'ak'bms", SAMPLE_LIST_MERGED);
	EXPECT("jjkLms", "a|b|", "'ak'bms", SAMPLE_LIST_MERGED);
	EXPECT("jkjms", "a|b|", "'ak'bms", SAMPLE_LIST_MERGED);
	/* None is missing: it is somebody else's, and stays. */
	EXPECT("xjkLms", "a|", "xjk'ams", SAMPLE_LIST_MERGED);
	/* More than it explains. */
	EXPECT("jkms", "a|b|", "jkms'!'a'b", SAMPLE_LIST_APART);
}

static void unexplained_differences_are_kept_apart(void **state __unused)
{
	EXPECT("LkLqLms", "a|", "LkLqLms'!'a", SAMPLE_LIST_APART);
	EXPECT("Lms", "a|b|", "Lms'!'a'b", SAMPLE_LIST_APART);
	EXPECT("xms", "a|", "xms'!'a", SAMPLE_LIST_APART);
	EXPECT("LkLms", "", "LkLms", SAMPLE_LIST_APART);
	/* A switch says where the native stack ends: one run before it, none found. */
	EXPECT("xf", "a^b|", "xf'!'a'b", SAMPLE_LIST_APART);
}

static void neighbours_are_one_run_where_code_calls_code(void **state __unused)
{
	EXPECT("jLjLms", "abc|", "'a'b'cms", SAMPLE_LIST_MERGED, .runs = true);
	EXPECT("xjjLkjLms", "ab|c|", "x'a'bk'cms", SAMPLE_LIST_MERGED, .runs = true);
	EXPECT("xjj", "ab|c|", "x'a'b'c", SAMPLE_LIST_MERGED, .runs = true, .cut_native = true);
}

static void internals_show_loop_frames_behind_their_runs(void **state __unused)
{
	EXPECT("xLkLms", "a|bc|", "x'aLk'b'cLms", SAMPLE_LIST_MERGED, .internals = true);
	EXPECT("jLms", "a|", "'ajLms", SAMPLE_LIST_MERGED, .internals = true);
}

static void the_longest_stacks_fit(void **state __unused)
{
	static struct frame frames[MAX_USER_FRAMES], out[MERGE_FRAMES_MAX + 1];
	static u64 ip[MAX_USER_FRAMES];
	static struct runtime_frames list;
	struct merge_native native = { frames, ip, MAX_USER_FRAMES, true };
	struct merge_options o = { LOOPS, 1, false, true };
	u32 n, i;

	for (i = 0; i < MAX_USER_FRAMES; i++) {
		frames[i].kind = FRAME_NATIVE;
		ip[i] = LOOP_AT + 1;
	}
	list.n = RUNTIME_FRAMES_MAX;
	list.switched = UINT32_MAX;
	for (i = 0; i < RUNTIME_FRAMES_MAX; i++) {
		list.frames[i].func = "f";
		list.segment[i] = i + 1;
	}
	list.nsegments = RUNTIME_FRAMES_MAX;
	out[MERGE_FRAMES_MAX].line = 12345;
	assert_int_equal(merge_frames(&native, &list, &o, out, &n), SAMPLE_LIST_APART);
	assert_int_equal(n, MERGE_FRAMES_MAX);
	list.cut = true;
	assert_int_equal(merge_frames(&native, &list, &o, out, &n), SAMPLE_LIST_MERGED);
	assert_int_equal(n, MAX_USER_FRAMES + RUNTIME_FRAMES_MAX);
	assert_int_equal(out[MERGE_FRAMES_MAX].line, 12345);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loop_frames_give_way_to_their_runs),
		cmocka_unit_test(neighbouring_loop_frames_are_two_runs),
		cmocka_unit_test(frames_behind_the_last_boundary_are_a_run),
		cmocka_unit_test(an_empty_run_is_a_run),
		cmocka_unit_test(a_loop_that_has_just_begun_has_no_run),
		cmocka_unit_test(a_thread_outside_of_the_interpreter_is_idle),
		cmocka_unit_test(what_a_cut_native_stack_lacks_follows),
		cmocka_unit_test(what_a_cut_list_lacks_stays_native),
		cmocka_unit_test(a_fiber_is_followed_by_who_resumed_it),
		cmocka_unit_test(code_made_at_run_time_belongs_to_the_loop_that_calls_it),
		cmocka_unit_test(code_made_at_run_time_stands_for_a_loop_frame_that_is_missing),
		cmocka_unit_test(unexplained_differences_are_kept_apart),
		cmocka_unit_test(neighbours_are_one_run_where_code_calls_code),
		cmocka_unit_test(internals_show_loop_frames_behind_their_runs),
		cmocka_unit_test(the_longest_stacks_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
