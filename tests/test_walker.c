// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting threads: a kernel of our own tells threads as core/threads.h says, the test moves them and
 * the clock. What has to come out is what the threads did: the time that each spent at each list.
 */
#include "fake_runtime.h"

#include "core/stat.h"
#include "core/walker.h"

#define THREADS 20000
#define TICK    (NSEC_PER_SEC / 19)

struct fake_thread {
	u32 tid;
	u64 start_ns, switches;
	u64 object;         /* its list: one node; 0: none */
	bool on_cpu, moves; /* moves: it runs while it is looked at */
	bool flag;          /* the recipe's, which it has set */
	bool busy;          /* it runs, but whenever it is looked at it has just been put off */
	u64 cpu_ns, seen_ns;
	u64 told, told_gen; /* what the kernel holds */
	char comm[COMM_LEN];
};

static struct fake_thread threads[THREADS];
static u32 nthreads, from, max_records, walks, counts, forgets, same;
static int walk_error;

struct told_ns {
	u64 object;
	u64 ns;
	u32 times;
	bool ready, flag;
	char comm[COMM_LEN];
};

static struct told_ns told[64];
static u32 ntold;
static enum verdict told_verdict;
static const u64 *now; /* the world's clock */

static u64 told_of(u64 object)
{
	u64 ns = 0;
	u32 i;

	for (i = 0; i < ntold; i++)
		if (told[i].object == object)
			ns += told[i].ns;
	return ns;
}

static u64 told_all(void)
{
	u64 ns = 0;
	u32 i;

	for (i = 0; i < ntold; i++)
		ns += told[i].ns;
	return ns;
}

static enum verdict on_waited(void *arg __unused, struct process *p, u32 gen, const struct list *l,
			      const char comm[COMM_LEN], bool ready, u64 ns)
{
	u32 i;

	assert_int_equal(p->pid, 10);
	assert_true(gen > 0 && l->n == 1 && l->width == 2 && !l->running);
	for (i = 0; i < ntold; i++)
		if (told[i].object == l->words[0] && told[i].ready == ready &&
		    told[i].flag == l->flag && !memcmp(told[i].comm, comm, COMM_LEN))
			break;
	if (i == ntold) {
		assert_true(ntold < ARRAY_SIZE(told));
		ntold++;
		told[i] =
			(struct told_ns){ .object = l->words[0], .ready = ready, .flag = l->flag };
		memcpy(told[i].comm, comm, COMM_LEN);
	}
	told[i].ns += ns;
	told[i].times++;
	return told_verdict;
}

/* --- the kernel --------------------------------------------------------------------------------- */

static void fill(struct fake_thread *t, struct thread_event *ev)
{
	if (t->on_cpu || t->busy)
		t->cpu_ns += *now - t->seen_ns;
	t->seen_ns = *now;
	*ev = (struct thread_event){
		.tid = t->tid,
		.ns_tid = t->tid,
		.kind = THREAD_COUNTS,
		.state = t->busy ? 'R' : 'S',
		.start_ns = t->start_ns,
		.switches = t->switches,
		.cpu_ns = t->cpu_ns,
		.tp = 0x7000,
		.on_cpu = t->on_cpu ? THREAD_ON_CPU : 0,
	};
	memcpy(ev->comm, t->comm, COMM_LEN);
}

/* Records of threads from where the last call ended; true: all were told. */
static void turn(threads_fn *fn, void *arg, u32 gen, struct threads_told *ret)
{
	u32 n = 0;

	memset(ret, 0, sizeof(*ret));
	if (from >= nthreads)
		from = 0;
	for (; from < nthreads && n < max_records; from++, n++) {
		struct fake_thread *t = &threads[from];
		struct thread_event ev;
		u64 words[2] = { t->object, 0x77 };

		fill(t, &ev);
		if (gen && !t->on_cpu && t->told_gen == gen && t->told == t->switches + 1) {
			ev.kind = THREAD_SAME;
			ret->same++;
			same++;
		} else if (gen) {
			walks++;
			ev.kind = THREAD_LIST;
			ev.recipe_gen = gen;
			ev.list_end = t->on_cpu || t->moves ? LIST_END_MOVED
				      : t->object           ? LIST_END_NULL
							    : LIST_END_EMPTY;
			ev.nlist = ev.list_end == LIST_END_NULL;
			ev.list_width = 2;
			ev.list_flag = t->flag;
			t->told = ev.list_end == LIST_END_MOVED ? 0 : t->switches + 1;
			t->told_gen = gen;
		}
		fn(arg, &ev, words);
		ret->told++;
	}
	ret->more = from < nthreads;
}

static int k_walk(void *arg __unused, u32 tgid, const struct recipe_entry *entry, threads_fn *fn,
		  void *fn_arg, struct threads_told *ret)
{
	assert_int_equal(tgid, 10);
	assert_int_equal(entry->recipe.addr, MEMORY_AT);
	if (walk_error)
		return walk_error;
	turn(fn, fn_arg, entry->gen, ret);
	return 0;
}

static int k_counts(void *arg __unused, u32 tgid, threads_fn *fn, void *fn_arg,
		    struct threads_told *ret)
{
	assert_int_equal(tgid, 10);
	counts++;
	turn(fn, fn_arg, 0, ret);
	return 0;
}

static void k_forget(void *arg __unused, u32 tgid __unused)
{
	u32 i;

	forgets++;
	for (i = 0; i < nthreads; i++)
		threads[i].told = 0;
}

/* --- a test's world ----------------------------------------------------------------------------- */

struct stage {
	struct world w;
	struct walker *walker;
	struct memory *memory;
};

static struct fake_thread *add_thread(u64 object)
{
	struct fake_thread *t = &threads[nthreads];

	*t = (struct fake_thread){ .tid = 100 + nthreads, .start_ns = 5, .object = object };
	strcpy(t->comm, "worker");
	t->seen_ns = *now;
	nthreads++;
	return t;
}

static void stage_init(struct stage *s, bool kernel_walks)
{
	struct walker_kernel k = { .counts = k_counts,
				   .walk = kernel_walks ? k_walk : NULL,
				   .forget = k_forget };
	struct walker_options o = { .waited = on_waited };

	nthreads = from = walks = counts = forgets = same = ntold = 0;
	walk_error = 0;
	told_verdict = UNWIND_OK;
	max_records = UINT32_MAX;
	memset(told, 0, sizeof(told));
	world_init(&s->w);
	now = &s->w.now;
	s->memory = new_interpreter(10, 2, 0);
	look(&s->w, start(&s->w, 10, "/bin/lang", NULL));
	s->walker = walker_new(s->w.procs, s->w.rs, &k, &o);
	assert_non_null(s->walker);
}

static void stage_fini(struct stage *s)
{
	walker_free(s->walker);
	world_fini(&s->w);
}

/* The walker's clock runs with the world's; as the agent does: whenever it is due. */
static void run_for(struct stage *s, double seconds)
{
	u64 end = s->w.now + (u64)(seconds * 1e9);

	while (s->w.now < end) {
		u64 due = MAX(walker_due(s->walker), s->w.now);

		s->w.now = MIN(due, end);
		if (s->w.now >= walker_due(s->walker))
			walker_tick(s->walker, s->w.now);
		else
			break;
	}
	s->w.now = end;
}

static double seconds_at(u64 object)
{
	return (double)told_of(object) / 1e9;
}

static void near(double got, double want, double within)
{
	if (got < want - within || got > want + within)
		fail_msg("%f is not %f", got, want);
}

/* One look's worth of time at either end. */
#define END 0.06

static void figures(struct stage *s, struct walker_figures *ret)
{
	walker_figures(s->walker, ret);
}

#define STAGE(s, kernel_walks) \
	struct stage s;        \
	stage_init(&s, kernel_walks)

/* --- tests -------------------------------------------------------------------------------------- */

static void all_time_of_waiting_threads_is_charged(void **state __unused)
{
	STAGE(s, true);

	add_thread(0xa0);
	add_thread(0xb0);
	add_thread(0xb0);
	run_for(&s, 10);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 10, END);
	near(seconds_at(0xb0), 20, 2 * END);
	stage_fini(&s);
}

static void threads_that_did_not_run_are_not_walked_again(void **state __unused)
{
	struct walker_figures f;
	STAGE(s, true);

	add_thread(0xa0);
	add_thread(0xb0);
	run_for(&s, 2);
	assert_int_equal(walks, 2);
	assert_true(same >= 2 * 36);
	figures(&s, &f);
	assert_int_equal(f.walked, 2);
	/* Told when it is new, and when the window ends; not at each tick. */
	walker_flush(s.walker);
	assert_int_equal(told[0].times, 2);
	stage_fini(&s);
}

static void a_thread_that_ran_is_walked_and_charged_where_it_is(void **state __unused)
{
	struct fake_thread *t;
	STAGE(s, true);

	t = add_thread(0xa0);
	run_for(&s, 3);
	t->switches++;
	t->object = 0xb0;
	run_for(&s, 2);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 3, END);
	near(seconds_at(0xb0), 2, END);
	assert_int_equal(walks, 2);
	stage_fini(&s);
}

static void time_on_a_cpu_is_not_charged(void **state __unused)
{
	struct fake_thread *t;
	STAGE(s, true);

	t = add_thread(0xa0);
	run_for(&s, 1);
	t->on_cpu = true;
	run_for(&s, 5);
	t->on_cpu = false;
	t->switches++;
	run_for(&s, 1);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 2, 2 * END);
	stage_fini(&s);
}

/* A look from here puts a busy thread off its CPU: its time is the sampler's all the same. */
static void time_on_a_cpu_is_known_even_if_nobody_sees_it(void **state __unused)
{
	struct fake_thread *t;
	u32 i;
	STAGE(s, true);

	t = add_thread(0xa0);
	t->busy = true;
	for (i = 0; i < 100; i++) {
		t->switches++;
		run_for(&s, 0.05);
	}
	walker_flush(s.walker);
	near(seconds_at(0xa0), 0, END);
	/* Then it gets no CPU for two seconds: that is time that it waited, for a CPU. */
	t->busy = false;
	run_for(&s, 2);
	t->switches++;
	run_for(&s, 1);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 3, END);
	stage_fini(&s);
}

static void who_waits_for_a_cpu_is_told_apart(void **state __unused)
{
	struct fake_thread *t;
	STAGE(s, true);

	t = add_thread(0xa0);
	run_for(&s, 2);
	t->busy = true; /* state R */
	t->switches++;
	run_for(&s, 0.06);
	t->busy = false;
	run_for(&s, 1);
	walker_flush(s.walker);
	assert_int_equal(ntold, 2);
	assert_false(told[0].ready);
	assert_true(told[1].ready);
	near((double)told[1].ns / 1e9, 1, 2 * END);
	stage_fini(&s);
}

static void time_of_a_thread_that_moved_is_charged_where_it_is_found(void **state __unused)
{
	struct fake_thread *t;
	struct walker_figures f;
	STAGE(s, true);

	t = add_thread(0xa0);
	run_for(&s, 1);
	t->switches++;
	t->moves = true;
	run_for(&s, 2);
	t->moves = false;
	t->object = 0xb0;
	run_for(&s, 1);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 1, END);
	near(seconds_at(0xb0), 3, END);
	figures(&s, &f);
	assert_true(f.moved >= 36);
	stage_fini(&s);
}

static void late_ticks_lose_no_time(void **state __unused)
{
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 1);
	pass(&s.w, 7.5); /* nobody called */
	run_for(&s, 0.5);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 9, END);
	stage_fini(&s);
}

static void a_window_gets_what_waited_in_it(void **state __unused)
{
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 3);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 3, END);
	ntold = 0;
	run_for(&s, 4);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 4, END);
	assert_int_equal(told[0].times, 1);
	stage_fini(&s);
}

static void threads_outside_of_the_runtime_are_not_told(void **state __unused)
{
	STAGE(s, true);

	add_thread(0);
	run_for(&s, 5);
	walker_flush(s.walker);
	assert_int_equal(ntold, 0);
	assert_int_equal(walks, 1);
	stage_fini(&s);
}

static void a_list_that_is_refused_is_not_told_again(void **state __unused)
{
	STAGE(s, true);

	told_verdict = UNWIND_TORN;
	add_thread(0xa0);
	run_for(&s, 1);
	walker_flush(s.walker);
	run_for(&s, 1);
	walker_flush(s.walker);
	assert_int_equal(told[0].times, 1);
	stage_fini(&s);
}

static void a_thread_that_ends_is_told_and_forgotten(void **state __unused)
{
	struct walker_figures f;
	STAGE(s, true);

	add_thread(0xa0);
	add_thread(0xb0);
	run_for(&s, 2);
	nthreads = 1;
	run_for(&s, 1);
	near(seconds_at(0xb0), 2, END);
	figures(&s, &f);
	assert_int_equal(f.threads, 1);
	stage_fini(&s);
}

static void a_reused_thread_id_is_another_thread(void **state __unused)
{
	struct fake_thread *t;
	STAGE(s, true);

	t = add_thread(0xa0);
	run_for(&s, 2);
	t->start_ns = 99;
	t->told = 0;
	t->object = 0xb0;
	run_for(&s, 1);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 2, END);
	near(seconds_at(0xb0), 1, END);
	stage_fini(&s);
}

static void threads_of_other_names_are_told_apart(void **state __unused)
{
	STAGE(s, true);

	add_thread(0xa0);
	strcpy(add_thread(0xa0)->comm, "other");
	run_for(&s, 1);
	walker_flush(s.walker);
	assert_int_equal(ntold, 2);
	assert_string_equal(told[1].comm, "other");
	near(seconds_at(0xa0), 2, 2 * END);
	stage_fini(&s);
}

/* The same frames, but one of them does something for the whole process in them. */
static void threads_that_have_the_recipe_s_flag_are_told_apart(void **state __unused)
{
	STAGE(s, true);

	add_thread(0xa0);
	add_thread(0xa0)->flag = true;
	run_for(&s, 1);
	walker_flush(s.walker);
	assert_int_equal(ntold, 2);
	assert_true(told[0].flag != told[1].flag);
	near((double)told[0].ns / 1e9, 1, 2 * END);
	stage_fini(&s);
}

static void more_threads_than_fit_take_turns(void **state __unused)
{
	struct walker_figures f;
	u32 i;
	STAGE(s, true);

	for (i = 0; i < THREADS; i++)
		add_thread(0xa0 + i % 16 * 16);
	max_records = 8192;
	run_for(&s, 10);
	walker_flush(s.walker);
	figures(&s, &f);
	assert_int_equal(f.threads, THREADS);
	/* Each is looked at once in three ticks, and its time is whole all the same. */
	near((double)told_all() / 1e9, 10.0 * THREADS, 10.0 * THREADS * 0.02);
	assert_int_equal(walks, THREADS);
	stage_fini(&s);
}

static void a_process_that_hangs_is_asked_ever_more_seldom(void **state __unused)
{
	struct walker_figures f;
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 1);
	walk_error = -ETIMEDOUT;
	run_for(&s, 60);
	figures(&s, &f);
	assert_true(f.failed >= 5 && f.failed <= 8); /* 1, 2, 4, 8, 16, 32 s */
	near(seconds_at(0xa0), 1, END);              /* told, not lost */
	walk_error = 0;
	run_for(&s, 65);
	walker_flush(s.walker);
	assert_true(seconds_at(0xa0) > 2);
	stage_fini(&s);
}

static void what_the_kernel_holds_but_we_do_not_is_asked_for_again(void **state __unused)
{
	struct fake_thread *t;
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 1);
	t = add_thread(0xb0);
	t->told = t->switches + 1; /* "as before", to somebody who knows no before */
	t->told_gen = threads[0].told_gen;
	forgets = 0;
	run_for(&s, 1);
	assert_int_equal(forgets, 1);
	walker_flush(s.walker);
	near(seconds_at(0xb0), 1, 2 * END);
	near(seconds_at(0xa0), 2, END);
	stage_fini(&s);
}

static void a_dropped_image_takes_its_threads_along(void **state __unused)
{
	struct walker_figures f;
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 1);
	event(&s.w, TASK_EXIT, 10, 0, NULL);
	processes_trim(s.w.procs, 1);
	figures(&s, &f);
	assert_int_equal(f.processes, 0);
	assert_int_equal(f.threads, 0);
	assert_int_equal(f.held_bytes, 0);
	run_for(&s, 1);
	walker_flush(s.walker);
	stage_fini(&s);
}

static void a_process_left_alone_is_not_walked(void **state __unused)
{
	const u64 torn[] = { 0, 0 };
	struct runtime *r;
	u32 i, before;
	STAGE(s, true);

	add_thread(0xa0);
	run_for(&s, 1);
	r = runtime_of(image(&s.w, 10, 1));
	for (i = 0; i < 128; i++)
		frames_of(&s.w, r, torn, 1, LIST_END_NULL);
	run_for(&s, 0.5);
	before = walks + same;
	run_for(&s, 5);
	assert_int_equal(walks + same, before);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 1, 0.3);
	stage_fini(&s);
}

static void a_smaller_share_looks_at_fewer_and_charges_all(void **state __unused)
{
	struct walker_figures f;
	u32 i;
	STAGE(s, true);

	walker_set_share(s.walker, 1);
	for (i = 0; i < 100; i++)
		add_thread(0xa0);
	run_for(&s, 5);
	walker_flush(s.walker);
	figures(&s, &f);
	near(seconds_at(0xa0), 500, 100 * END);
	stage_fini(&s);
}

static void memory_for_stacks_is_bounded(void **state __unused)
{
	struct walker_figures f;
	u32 i;
	STAGE(s, true);

	for (i = 0; i < THREADS; i++) {
		snprintf(add_thread(0xa0)->comm, COMM_LEN, "t%u", i % 40);
		threads[i].object = 0xa0;
	}
	run_for(&s, 1);
	figures(&s, &f);
	/* One stack for all threads of a name, however many there are. */
	assert_true(f.held_bytes < 40 * 512);
	stage_fini(&s);
}

/* --- kernels that read no lists ----------------------------------------------------------------- */

/* The list in the process's memory: one node at its start, ended by null. */
static void set_list(struct stage *s, u64 object)
{
	s->memory->words[0] = object;
	s->memory->words[1] = 0x77;
	s->memory->words[2] = 0;
}

static void threads_are_read_from_outside_between_two_counts(void **state __unused)
{
	STAGE(s, false);

	set_list(&s, 0xa0);
	add_thread(1);
	run_for(&s, 4);
	walker_flush(s.walker);
	near(seconds_at(0xa0), 4, END);
	/* One count a tick while nothing runs, one more for the one that was read. */
	assert_true(counts >= 76 && counts <= 79);
	stage_fini(&s);
}

static struct fake_thread *runner;

/* It runs between the counts: whatever was read is not to be believed. */
static int k_counts_moving(void *arg, u32 tgid, threads_fn *fn, void *fn_arg,
			   struct threads_told *ret)
{
	runner->switches++;
	return k_counts(arg, tgid, fn, fn_arg, ret);
}

static void a_thread_that_runs_between_the_counts_is_not_believed(void **state __unused)
{
	struct walker_kernel k = { .counts = k_counts_moving, .forget = k_forget };
	struct walker_options o = { .waited = on_waited };
	struct walker_figures f;
	STAGE(s, false);

	set_list(&s, 0xa0);
	runner = add_thread(1);
	walker_free(s.walker);
	s.walker = walker_new(s.w.procs, s.w.rs, &k, &o);
	run_for(&s, 2);
	walker_flush(s.walker);
	assert_int_equal(ntold, 0);
	figures(&s, &f);
	assert_true(f.moved >= 36);
	stage_fini(&s);
}

static void a_thread_on_a_cpu_is_never_read_from_outside(void **state __unused)
{
	u32 reads;
	STAGE(s, false);

	set_list(&s, 0xa0);
	add_thread(1)->on_cpu = true;
	s.memory->reads_left = reads = 1000;
	run_for(&s, 2);
	walker_flush(s.walker);
	assert_int_equal(ntold, 0);
	assert_int_equal(s.memory->reads_left, reads);
	stage_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_time_of_waiting_threads_is_charged),
		cmocka_unit_test(threads_that_did_not_run_are_not_walked_again),
		cmocka_unit_test(a_thread_that_ran_is_walked_and_charged_where_it_is),
		cmocka_unit_test(time_on_a_cpu_is_not_charged),
		cmocka_unit_test(time_on_a_cpu_is_known_even_if_nobody_sees_it),
		cmocka_unit_test(who_waits_for_a_cpu_is_told_apart),
		cmocka_unit_test(time_of_a_thread_that_moved_is_charged_where_it_is_found),
		cmocka_unit_test(late_ticks_lose_no_time),
		cmocka_unit_test(a_window_gets_what_waited_in_it),
		cmocka_unit_test(threads_outside_of_the_runtime_are_not_told),
		cmocka_unit_test(a_list_that_is_refused_is_not_told_again),
		cmocka_unit_test(a_thread_that_ends_is_told_and_forgotten),
		cmocka_unit_test(a_reused_thread_id_is_another_thread),
		cmocka_unit_test(threads_of_other_names_are_told_apart),
		cmocka_unit_test(threads_that_have_the_recipe_s_flag_are_told_apart),
		cmocka_unit_test(more_threads_than_fit_take_turns),
		cmocka_unit_test(a_process_that_hangs_is_asked_ever_more_seldom),
		cmocka_unit_test(what_the_kernel_holds_but_we_do_not_is_asked_for_again),
		cmocka_unit_test(a_dropped_image_takes_its_threads_along),
		cmocka_unit_test(a_process_left_alone_is_not_walked),
		cmocka_unit_test(a_smaller_share_looks_at_fewer_and_charges_all),
		cmocka_unit_test(memory_for_stacks_is_bounded),
		cmocka_unit_test(threads_are_read_from_outside_between_two_counts),
		cmocka_unit_test(a_thread_that_runs_between_the_counts_is_not_believed),
		cmocka_unit_test(a_thread_on_a_cpu_is_never_read_from_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
