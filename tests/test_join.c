// SPDX-License-Identifier: Apache-2.0
/*
 * A sample that carries an interpreter's list, all the way into profiles: what stands where in the
 * cpu profile, what in the runtime's own, what is counted. The runtime and its processes are those of
 * fake_runtime.h: its loop function is what lies at 0x400000 to 0x401000.
 */
#include "fake_runtime.h"

#include "core/fold.h"
#include "core/line.h"
#include "core/pprof.h"
#include "core/stat.h"

#define PERIOD 10000000ull
#define LOOP   0x400010ull
#define OTHER  0x401010ull /* native code of the same file */

struct stage {
	struct world w;
	struct line *line;
	struct memory *memory;
	u32 gen;
};

static void map(struct world *w, u64 lo, u64 hi, const char *path)
{
	struct task_event ev = {
		.type = TASK_MMAP,
		.time_ns = 900000,
		.pid = 10,
		.file = { .path = path, .lo = lo, .hi = hi, .ino = 7 },
	};

	processes_event(w->procs, &ev);
}

static void stage_init(struct stage *s, bool internals, const char *service)
{
	struct line_options o = { .period_ns = PERIOD, .internals = internals, .service = service };

	world_init(&s->w);
	s->memory = new_interpreter(10, 2, 0);
	put_object(s->memory, 0, "outer");
	put_object(s->memory, 1, "inner");
	event(&s->w, TASK_FORK, 10, 1, NULL);
	event(&s->w, TASK_EXEC, 10, 0, NULL);
	map(&s->w, 0x400000, 0x402000, "/bin/lang");
	look(&s->w, image(&s->w, 10, 1));
	s->gen = armed(&s->w, 10)->gen;
	o.runtimes = s->w.rs;
	s->line = line_new(s->w.procs, NULL, NULL, &o);
	assert_int_equal(line_open_epoch(s->line, 0, true, 1), 0);
}

static void stage_fini(struct stage *s)
{
	line_free(s->line);
	world_fini(&s->w);
}

#define STAGE(s, internals, service) \
	struct stage s;              \
	stage_init(&s, internals, service)

struct sampled {
	struct stack_event ev;
	u64 words[64];
};

/* Addresses leaf first, 0 ends; then nodes of two words. */
static void put(struct sampled *x, const struct stage *s, const u64 *ip, const u64 *nodes, u32 n)
{
	static u64 hash;

	*x = (struct sampled){
		.ev = {
			.key = { .tgid = 10, .start_ns = 5010, .exec_id = 1, .stack_hash = ++hash,
				 .comm = "main" },
			.time_ns = 950000,
			.tid = 10,
			.end = STACK_END_COMPLETE,
			.recipe_gen = s->gen,
			.list_width = 2,
			.list_end = LIST_END_NULL,
			.nlist = (u16)n,
		},
	};
	for (; *ip; ip++)
		x->words[x->ev.nuser++] = *ip;
	memcpy(x->words + x->ev.nuser, nodes, n * 2 * sizeof(u64));
}

static void take(struct stage *s, struct sampled *x, u64 count)
{
	int err = line_stack(s->line, &x->ev, sizeof(*x), true);

	assert_int_equal(err, 0);
	line_count(s->line, 0, &x->ev.key, &(struct stack_count){ .count = count });
}

/* The window's profiles: "TYPE SERVICE THREAD.STATE: folded", one stack a line. */
static char *profiles(struct stage *s, u64 lists[SAMPLE_LIST_MAX])
{
	struct window *w = line_close_epoch(s->line, 0, 2);
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	u32 i, k;

	for (i = 0; i < w->nprofiles; i++) {
		const struct profile *p = &w->profiles[i];
		const char *state = "-";

		for (k = 0; p->nsamples && k < w->labels[p->samples[0].labels].nlabels; k++)
			if (!strcmp(w->labels[p->samples[0].labels].labels[k].key, "thread.state"))
				state = w->labels[p->samples[0].labels].labels[k].value;
		fprintf(f, "== %s %s %s\n", p->type->name, p->service, state);
		assert_int_equal(pprof_write_folded(w, p, f), 0);
	}
	if (lists)
		memcpy(lists, w->lists, sizeof(w->lists));
	window_free(w);
	fclose(f);
	return text;
}

#define AT(i) (MEMORY_AT + (i)*8)

/* Innermost first: a C function, the loop, a C function, the loop, who called it all. */
static const u64 NATIVE[] = { OTHER, LOOP, OTHER + 0x20, LOOP + 0x40, OTHER + 0x80, 0 };
/* "inner" in the inner loop, "outer" in the outer one. */
static const u64 NODES[] = {
	AT(W_OBJECT + 1), AT(W_TEXT + 4), 2, 0, AT(W_OBJECT), AT(W_TEXT), 2, 0
};

/* As take() three times, what the profiles are, and what is counted. */
static void expect(struct stage *s, struct sampled *x, const char *want, enum sample_list list)
{
	u64 lists[SAMPLE_LIST_MAX];
	_cleanup_free_ char *got = NULL;

	take(s, x, 3);
	got = profiles(s, lists);
	assert_string_equal(got, want);
	assert_int_equal(lists[list], 3);
}

static void lists_take_the_place_of_loop_frames(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 4);
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;outer;lang+0x102f;inner;lang+0x1010 3\n"
	       "== testlang_wall lang running\n"
	       "lang;outer;inner 30000000\n",
	       SAMPLE_LIST_MERGED);
	stage_fini(&s);
}

/* On top of the frames, below the native code that it runs. */
static void what_the_recipe_s_flag_says_is_a_frame_of_the_innermost_run(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 4);
	x.ev.list_flag = 1;
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;outer;lang+0x102f;inner;(housekeeping);lang+0x1010 3\n"
	       "== testlang_wall lang running\n"
	       "lang;outer;inner;(housekeeping) 30000000\n",
	       SAMPLE_LIST_MERGED);
	stage_fini(&s);
}

static void the_loop_is_shown_when_asked_for(void **state __unused)
{
	struct sampled x;
	STAGE(s, true, NULL);

	put(&x, &s, NATIVE, NODES, 4);
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x4f;outer;lang+0x102f;lang+0xf;inner;lang+0x1010 3\n"
	       "== testlang_wall lang running\n"
	       "lang;outer;inner 30000000\n",
	       SAMPLE_LIST_MERGED);
	stage_fini(&s);
}

static void one_name_for_all_holds_for_both_profiles(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, "recording");

	put(&x, &s, NATIVE, NODES, 4);
	expect(&s, &x,
	       "== cpu recording -\n"
	       "lang;lang+0x108f;outer;lang+0x102f;inner;lang+0x1010 3\n"
	       "== testlang_wall recording running\n"
	       "lang;outer;inner 30000000\n",
	       SAMPLE_LIST_MERGED);
	stage_fini(&s);
}

static void a_cut_list_is_merged_and_marked(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 2);
	x.ev.list_end = LIST_END_LIMIT;
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x4f;lang+0x102f;inner;lang+0x1010 3\n"
	       "== testlang_wall lang running\n"
	       "lang;inner 30000000\n",
	       SAMPLE_LIST_CUT);
	stage_fini(&s);
}

static void a_refused_list_leaves_the_native_stack(void **state __unused)
{
	const u64 torn[] = { AT(W_OBJECT + 1), AT(W_TEXT + 4), 0, 0 };
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, torn, 2);
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x4f;lang+0x102f;lang+0xf;lang+0x1010 3\n",
	       SAMPLE_LIST_REFUSED);
	stage_fini(&s);
}

static void a_list_of_another_recipe_is_refused(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 4);
	x.ev.recipe_gen++;
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x4f;lang+0x102f;lang+0xf;lang+0x1010 3\n",
	       SAMPLE_LIST_REFUSED);
	stage_fini(&s);
}

static void a_thread_outside_of_the_interpreter_stays_native(void **state __unused)
{
	static const u64 native[] = { OTHER, OTHER + 0x80, 0 };
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, native, NODES, 0);
	x.ev.list_end = LIST_END_EMPTY;
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x1010 3\n",
	       SAMPLE_LIST_IDLE);
	stage_fini(&s);
}

static void what_is_not_explained_is_kept_apart_and_counted(void **state __unused)
{
	static const u64 native[] = { OTHER, OTHER + 0x80, 0 };
	u64 before = stat_get(STAT_runtime_apart);
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, native, NODES, 4);
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;outer;inner;[not merged];lang+0x108f;lang+0x1010 3\n"
	       "== testlang_wall lang running\n"
	       "lang;outer;inner 30000000\n",
	       SAMPLE_LIST_APART);
	assert_int_equal(stat_get(STAT_runtime_apart) - before, 1);
	stage_fini(&s);
}

static void a_sample_without_a_list_is_as_it_always_was(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 0);
	x.ev.recipe_gen = 0;
	expect(&s, &x,
	       "== cpu lang -\n"
	       "lang;lang+0x108f;lang+0x4f;lang+0x102f;lang+0xf;lang+0x1010 3\n",
	       SAMPLE_LIST_NONE);
	stage_fini(&s);
}

static void lists_that_lie_about_their_size_are_refused(void **state __unused)
{
	struct sampled x;
	STAGE(s, false, NULL);

	put(&x, &s, NATIVE, NODES, 4);
	x.ev.nlist = 60; /* more than follows */
	assert_int_equal(line_stack(s.line, &x.ev, sizeof(x), true), -EINVAL);
	x.ev.nlist = RECIPE_NODES_MAX + 1;
	assert_int_equal(line_stack(s.line, &x.ev, sizeof(x), true), -EINVAL);
	x.ev.nlist = 4;
	x.ev.list_width = RECIPE_WIDTH_MAX + 1;
	assert_int_equal(line_stack(s.line, &x.ev, sizeof(x), true), -EINVAL);
	x.ev.list_width = 2;
	x.ev.list_end = LIST_END_MAX;
	assert_int_equal(line_stack(s.line, &x.ev, sizeof(x), true), -EINVAL);
	window_free(line_close_epoch(s.line, 0, 2));
	stage_fini(&s);
}

static void waits_are_told_by_what_they_wait_for(void **state __unused)
{
	struct list l = { .words = NODES, .n = 4, .width = 2, .end = LIST_END_NULL };
	char comm[COMM_LEN] = "worker";
	struct process *p;
	struct window *w;
	u32 i;
	STAGE(s, false, NULL);

	p = image(&s.w, 10, 1);
	assert_int_equal(line_waited(s.line, 0, p, s.gen, &l, comm, false, 700), UNWIND_OK);
	assert_int_equal(line_waited(s.line, 0, p, s.gen, &l, comm, false, 77), UNWIND_OK);
	assert_int_equal(line_waited(s.line, 0, p, s.gen, &l, comm, true, 5000), UNWIND_OK);
	/* Only to have the names read. */
	assert_int_equal(line_waited(s.line, 0, p, s.gen, &l, comm, true, 0), UNWIND_OK);
	assert_int_equal(line_waited(s.line, 0, p, s.gen + 1, &l, comm, true, 9), UNWIND_TORN);
	w = line_close_epoch(s.line, 0, 2);
	assert_int_equal(w->nprofiles, 1);
	assert_string_equal(w->profiles[0].type->name, "testlang_wall");
	assert_int_equal(w->profiles[0].nsamples, 2);
	for (i = 0; i < 2; i++) {
		const struct profile_sample *x = &w->profiles[0].samples[i];
		const struct label_set *labels = &w->labels[x->labels];

		assert_int_equal(x->value_ns, i ? 5000 : 777);
		assert_string_equal(labels->thread, "worker");
		assert_int_equal(labels->nlabels, 1);
		assert_string_equal(labels->labels[0].key, "thread.state");
		assert_string_equal(labels->labels[0].value, i ? "ready" : "waiting");
		assert_int_equal(w->stacks[x->stack].n, 2);
	}
	window_free(w);
	stage_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_take_the_place_of_loop_frames),
		cmocka_unit_test(what_the_recipe_s_flag_says_is_a_frame_of_the_innermost_run),
		cmocka_unit_test(the_loop_is_shown_when_asked_for),
		cmocka_unit_test(one_name_for_all_holds_for_both_profiles),
		cmocka_unit_test(a_cut_list_is_merged_and_marked),
		cmocka_unit_test(a_refused_list_leaves_the_native_stack),
		cmocka_unit_test(a_list_of_another_recipe_is_refused),
		cmocka_unit_test(a_thread_outside_of_the_interpreter_stays_native),
		cmocka_unit_test(what_is_not_explained_is_kept_apart_and_counted),
		cmocka_unit_test(a_sample_without_a_list_is_as_it_always_was),
		cmocka_unit_test(lists_that_lie_about_their_size_are_refused),
		cmocka_unit_test(waits_are_told_by_what_they_wait_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
