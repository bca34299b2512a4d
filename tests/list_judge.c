// SPDX-License-Identifier: Apache-2.0
/*
 * Judges what each place where recipes are executed makes of lists that change at full speed:
 * list_judge LISTER PLACE MODE SECONDS [SLOW]. Starts the lister (tests/live/lister.c) on one CPU, reads
 * its lists from another, and checks each by the lister's rule. PLACE:
 *
 * sample:   each on-CPU sample at 999 Hz carries the list of the running thread.
 * offcpu:   as sample, and each wait carries the list of the thread that waited.
 * iterator: waiting threads, by a kernel iterator; and that a thread whose count of switches is
 *           what it was has the list that it had.
 * outside:  waiting threads, by process_vm_readv between two looks at their counts; and, to see
 *           that the rule sees what it should, a running thread without any such care.
 * many:     a process of 20,000 threads, which no call looks at all of.
 * quiet:    microseconds of a look at waiting threads none of which has changed.
 * cold:     as sample, at a low rate, of lists some of whose pages are not resident; MODE is cold.
 * hang:     a process whose memory never answers; MODE is hang.
 * cost:     nanoseconds of the sampling program by depth, without and with a recipe.
 *
 * SLOW: waits are so many times longer, and samples as many times rarer, for emulated machines. Prints figures, and `ok NAME` or `not ok NAME` for each thing that must hold.
 */
#include "core/features.h"
#include "core/listwalk.h"
#include "core/offcpu.h"
#include "core/reader.h"
#include "core/sampler.h"
#include "core/target.h"
#include "core/threads.h"
#include "tests/live/lister.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define HZ       999
#define TIDS_MAX 256
#define TICK_NS  50000000

/* Where the lister's made code returns. */
#ifdef __aarch64__
#define JIT_RET 40
#else
#define JIT_RET 28
#endif

enum mode { LIST, ARRAY, JIT };

struct seen {
	u32 tid;
	u64 start_ns, switches;
	u32 n, width;
	u64 words[LIST_WORDS_MAX];
};

struct judge {
	enum mode mode;
	const char *place, *mode_name, *slow, *waiting;
	u32 nthreads; /* that the lister has */
	pid_t pid;
	struct recipe recipe;
	struct recipe_entry entry; /* gen 0: not armed yet */
	u64 jit_lo, jit_hi;
	struct offcpu *offcpu;
	/* What came. */
	u64 lists, waits, nodes, broken, empty, without, with_reg;
	u64 ends[LIST_END_MAX];
	char why[256]; /* of the first broken one */
	/* iterator */
	struct seen *seen;
	u32 nseen;
	u64 same_count, same_list, other_count, other_list, held_wrong, same_told, moved;
};

static bool failed;

static void out(bool ok, const struct judge *j, const char *what)
{
	failed |= !ok;
	printf("%s %s-%s-%s\n", ok ? "ok" : "not ok", j->place, j->mode_name, what);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set); /* one CPU only: then so be it */
}

static void nap(u64 ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			      .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	nanosleep(&t, NULL);
}

/* --- the lister --------------------------------------------------------------------------------- */

static bool parse_recipe(const char *hex, struct recipe *ret)
{
	u32 i, byte;

	for (i = 0; i < sizeof(*ret); i++) {
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return false;
		((u8 *)ret)[i] = (u8)byte;
	}
	return true;
}

static bool start(struct judge *j, const char *lister, const char *running, const char *waiting,
		  const char *depth)
{
	char hex[2 * sizeof(struct recipe) + 8];
	int fd[2];
	FILE *f;

	if (pipe(fd))
		return false;
	j->pid = fork();
	if (!j->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		pin(0);
		execl(lister, lister, j->mode_name, running, waiting, depth, j->slow, NULL);
		_exit(127);
	}
	close(fd[1]);
	f = fdopen(fd[0], "r");
	if (j->pid < 0 || !f || !fgets(hex, sizeof(hex), f) || !parse_recipe(hex, &j->recipe)) {
		fprintf(stderr, "%s does not say its recipe\n", lister);
		return false;
	}
	fclose(f);
	return true;
}

static void stop(struct judge *j)
{
	kill(j->pid, SIGKILL);
	waitpid(j->pid, NULL, 0);
	j->pid = 0;
}

/* --- the rule ----------------------------------------------------------------------------------- */

static const char *check_list(const u64 *words, u32 n, u32 tid, u64 reg, bool whole)
{
	u32 i;

	for (i = 0; i < n; i++) {
		const u64 *w = words + 5 * i;

		/* Without the rest, an object may be missing too. */
		if (w[4] != lister_check(w[0]) && (whole || w[4]))
			return "an object is not its node's";
		if (i + 1 == n)
			break;
		if (w[1] != w[6] + 1)
			return "depths do not follow each other";
		if (w[0] != lister_value(w[5], w[1], w[2]))
			return "a value is not made from the one before";
	}
	if (whole && (words[5 * (n - 1)] != lister_root(tid) || words[5 * (n - 1) + 1]))
		return "it does not end in the thread's root";
	return n && reg && reg != lister_register(words[0]) ? "the register is not the head's"
							    : NULL;
}

static const char *check_array(const u64 *words, u32 n, u32 tid)
{
	u32 i;

	for (i = 0; i < n; i++) {
		const u64 *w = words + 3 * i;

		if (w[1] != n - i)
			return "depths do not follow each other";
		if (w[0] != lister_value(i + 1 < n ? w[3] : lister_root(tid), w[1], w[2]))
			return "a value is not made from the one before";
	}
	return NULL;
}

static const char *check_jit(const struct judge *j, const u64 *words, u32 n, u64 ip)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (words[2 * i] > words[2 * i + 1] || words[2 * i + 1] != words[1] ||
		    (i && words[2 * i] != words[2 * i - 2] + 1))
			break;
		if (words[2 * i] == words[2 * i + 1])
			return NULL;
	}
	/* The leaf has no frame yet, or no more: were it the outermost call's, there is none. */
	if ((ip >= j->jit_lo && ip < j->jit_lo + 12) || ip == j->jit_lo + JIT_RET)
		return NULL;
	return "depths do not rise to the outermost one's";
}

static void judge_list(struct judge *j, const struct list *l, u32 tid)
{
	const char *why = NULL;
	u32 width = j->mode == LIST ? 5 : j->mode == ARRAY ? 3 : 2;

	j->lists++;
	j->nodes += l->n;
	j->ends[l->end]++;
	j->with_reg += l->reg != 0;
	if (l->end == LIST_END_EMPTY || (j->mode == JIT && l->end == LIST_END_NO_HEAD)) {
		j->empty++;
		return;
	}
	if (!strcmp(j->place, "hang"))
		return;
	if (l->width != width)
		why = "width";
	else if (j->mode == JIT)
		why = check_jit(j, l->words, l->n, l->ip);
	else if (l->end == LIST_END_UNREADABLE && !strcmp(j->place, "cold"))
		why = check_list(l->words, l->n, tid, l->reg, false);
	else if (l->end != (j->mode == LIST ? LIST_END_NULL : LIST_END_END))
		why = "it does not end";
	else if (j->mode == LIST)
		why = l->n ? check_list(l->words, l->n, tid, l->reg, true) : "no node";
	else
		why = check_array(l->words, l->n, tid);
	if (!why)
		return;
	if (!j->broken)
		snprintf(j->why, sizeof(j->why), "%s (tid %u, %u nodes, end %u, ip %llx)", why, tid,
			 l->n, l->end, (unsigned long long)l->ip);
	j->broken++;
}

static void print_ends(const struct judge *j)
{
#define X(name, text) #name,
	static const char *const names[] = { LIST_END_LIST(X) };
#undef X
	u32 i;

	printf("%s %s: %llu lists, %llu nodes, %llu broken%s%s; ends:", j->place, j->mode_name,
	       (unsigned long long)j->lists, (unsigned long long)j->nodes,
	       (unsigned long long)j->broken, j->broken ? ": " : "", j->why);
	for (i = 0; i < LIST_END_MAX; i++)
		if (j->ends[i])
			printf(" %s %llu", names[i], (unsigned long long)j->ends[i]);
	printf("; with register %llu\n", (unsigned long long)j->with_reg);
}

/* --- sample ------------------------------------------------------------------------------------- */

static void on_stack(void *arg, const struct stack_event *ev, size_t len)
{
	const u64 *words = (const u64 *)(ev + 1);
	struct judge *j = arg;
	struct list l = {
		.words = words + ev->nkernel + ev->nuser,
		.n = ev->nlist,
		.width = ev->list_width,
		.end = ev->list_end,
		.head = ev->list_head,
		.reg = ev->list_reg,
		.ip = ev->nuser ? words[ev->nkernel] : 0,
	};

	if (ev->key.tgid != (u32)j->pid || ev->in_exec)
		return;
	if (!j->entry.start_ns) {
		j->entry.start_ns = ev->key.start_ns;
		j->entry.exec_id = ev->key.exec_id;
	}
	if (!ev->recipe_gen) {
		j->without += j->entry.gen != 0;
		return;
	}
	if (len < sizeof(*ev) + ((size_t)ev->nkernel + ev->nuser + l.n * l.width) * sizeof(u64) ||
	    ev->recipe_gen != j->entry.gen) {
		j->broken++;
		snprintf(j->why, sizeof(j->why), "a record is shorter than it says");
		return;
	}
	j->waits += ev->key.kind == STACK_OFF_CPU;
	judge_list(j, &l, ev->tid);
}

static void drop_count(void *arg __unused, const struct stack_key *key __unused,
		       const struct stack_count *count __unused)
{
}

/* A second: stacks as they come, then the counts make room for the next. */
static bool sample_second(struct judge *j, struct sampler *s)
{
	int i, err = 0;

	for (i = 0; i < 20 && !err; i++) {
		nap(NSEC_PER_SEC / 20);
		err = sampler_read_stacks(s, on_stack, j);
		if (j->offcpu)
			offcpu_round(j->offcpu);
	}
	return !err && !sampler_flip(s) && !sampler_read_stacks(s, on_stack, j) &&
	       !sampler_read_counts(s, drop_count, NULL) &&
	       (!j->offcpu || !offcpu_read_counts(j->offcpu, drop_count, NULL));
}

/* The process's mappings, as the walk wants them: frame pointers everywhere, and what is no file. */
static bool publish(struct judge *j, struct sampler *s)
{
	struct proc_entry p = { .start_ns = j->entry.start_ns,
				.exec_id = j->entry.exec_id,
				.gen = 1,
				.maps = SLAB_REF(0, SLAB_GRAIN) };
	u8 *slab = sampler_grow(s, 0);
	struct map_entry *e = (struct map_entry *)(slab + SLAB_GRAIN);
	char path[64], line[512], exec;
	unsigned long long lo, hi, inode;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", j->pid);
	f = slab ? fopen(path, "r") : NULL;
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f) && p.nmaps < 256) {
		if (sscanf(line, "%llx-%llx %*c%*c%c%*c %*x %*x:%*x %llu", &lo, &hi, &exec,
			   &inode) != 4 ||
		    exec != 'x')
			continue;
		e[p.nmaps] = (struct map_entry){ .lo = lo, .hi = hi, .kind = MAP_FP };
		if (!inode && !strchr(line, '[')) {
			e[p.nmaps].kind = MAP_JIT;
			j->jit_lo = lo;
			j->jit_hi = hi;
		}
		p.nmaps++;
	}
	fclose(f);
	return !sampler_publish(s, (u32)j->pid, &p);
}

/* A process image is known by its first sample; then it is armed. */
static bool arm(struct judge *j, struct sampler *s)
{
	u32 i;

	for (i = 0; i < 20 && !j->entry.start_ns; i++)
		if (!sample_second(j, s))
			return false;
	if (!j->entry.start_ns || (j->mode == JIT && !publish(j, s)))
		return false;
	j->entry.recipe = j->recipe;
	j->entry.gen = 7;
	if (sampler_arm(s, (u32)j->pid, &j->entry))
		return false;
	/* What was sampled before does not count. */
	if (!sample_second(j, s))
		return false;
	j->without = 0;
	return true;
}

static int sample(struct judge *j, const char *lister, u32 seconds)
{
	const struct sampler_options o = {
		.hz = HZ / (u32)atoi(j->slow),
		.kernel_frames = true,
		.max_frames = 127,
	};
	struct sampler *s = NULL;
	u64 least;
	u32 i;

	if (!start(j, lister, "2", "3", "0") || sampler_new(&o, &s) || sampler_start(s) ||
	    !arm(j, s))
		return 1;
	for (i = 0; i < seconds; i++)
		if (!sample_second(j, s))
			return 1;
	sampler_disarm(s, (u32)j->pid);
	stop(j);
	print_ends(j);
	printf("verified instructions %u, samples without a list %llu\n", sampler_verified(s),
	       (unsigned long long)j->without);
	/* An emulated machine takes few samples. */
	least = 20ull * seconds;
	out(!j->broken && j->lists >= least, j, "no-list-breaks-the-rule");
	out(!j->without, j, "every-sample-has-a-list");
	if (j->mode == LIST)
		out(j->with_reg * 2 > j->lists, j, "register-belongs-to-the-head");
	if (j->mode == JIT)
		out(j->empty * 5 < j->lists, j, "code-made-at-run-time-is-found");
	sampler_free(s);
	return 0;
}

static int offcpu(struct judge *j, const char *lister, u32 seconds)
{
	const struct sampler_options o = {
		.hz = HZ / (u32)atoi(j->slow),
		.kernel_frames = true,
		.max_frames = 127,
	};
	struct offcpu_options off = {
		.min_ns = NSEC_PER_SEC / 1000,
		.kernel_frames = true,
		.max_frames = 127,
		.reader = reader_new(),
	};
	u64 least = 5ull * seconds;
	struct sampler *s = NULL;
	const char *why = "";
	u32 i;

	if (!start(j, lister, "1", j->waiting, "0") || sampler_new(&o, &s) || sampler_start(s))
		return 1;
	if (offcpu_new(s, &off, &j->offcpu, &why) || offcpu_start(j->offcpu)) {
		fprintf(stderr, "no off-CPU stacks: %s\n", why);
		return 1;
	}
	if (!arm(j, s))
		return 1;
	for (i = 0; i < seconds; i++)
		if (!sample_second(j, s))
			return 1;
	sampler_disarm(s, (u32)j->pid);
	stop(j);
	print_ends(j);
	printf("%llu of them of waits: %s; stacks without a list %llu\n",
	       (unsigned long long)j->waits, offcpu_mode_text(offcpu_mode(j->offcpu)),
	       (unsigned long long)j->without);
	out(!j->broken && j->waits >= least && j->lists >= j->waits + least, j,
	    "no-list-breaks-the-rule");
	/* A wait that began before the process was armed. */
	out(j->without < j->nthreads, j, "every-wait-has-a-list");
	offcpu_stop(j->offcpu);
	offcpu_free(j->offcpu);
	sampler_free(s);
	reader_free(off.reader);
	return 0;
}

static int cold(struct judge *j, const char *lister, u32 seconds)
{
	const struct sampler_options o = { .hz = 19, .kernel_frames = true, .max_frames = 127 };
	u64 fetched, refused, whole;
	struct sampler *s = NULL;
	u32 i;

	if (!start(j, lister, "1", "0", "0") || sampler_new(&o, &s) || sampler_start(s) ||
	    !arm(j, s))
		return 1;
	for (i = 0; i < seconds; i++)
		if (!sample_second(j, s))
			return 1;
	fetched = sampler_stat(s, BPF_STAT_PAGES_FETCHED);
	refused = sampler_stat(s, BPF_STAT_PAGES_REFUSED);
	stop(j);
	print_ends(j);
	whole = j->ends[LIST_END_NULL];
	printf("pages fetched %llu, refused %llu\n", (unsigned long long)fetched,
	       (unsigned long long)refused);
	out(!j->broken, j, "no-list-breaks-the-rule");
	if (features_host()->task_work == TASK_WORK_NONE)
		out(j->lists > whole, j, "a-missing-page-cuts-the-list");
	else
		out(fetched && whole * 2 > j->lists && j->ends[LIST_END_UNREADABLE] <= refused, j,
		    "missing-pages-are-fetched");
	sampler_free(s);
	return 0;
}

/* --- cost --------------------------------------------------------------------------------------- */

static bool cost_of(struct judge *j, struct sampler *s, u32 seconds, u64 *ret)
{
	u64 ns = sampler_stat(s, BPF_STAT_RUN_NS), due = sampler_stat(s, BPF_STAT_DUE);
	u32 i;

	for (i = 0; i < seconds; i++)
		if (!sample_second(j, s))
			return false;
	due = sampler_stat(s, BPF_STAT_DUE) - due;
	ns = sampler_stat(s, BPF_STAT_RUN_NS) - ns;
	*ret = due ? ns / due : 0;
	return true;
}

static int cost(struct judge *j, const char *lister, u32 seconds)
{
	const struct sampler_options o = { .hz = HZ, .max_frames = 127, .only_pids = true };
	static const char *const depths[] = { "1", "10", "40", "100" };
	struct sampler *s = NULL;
	u64 bare, full;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		if (!start(j, lister, "1", "0", depths[i]) || sampler_new(&o, &s) ||
		    sampler_add_pid(s, (u32)j->pid) || sampler_start(s))
			return 1;
		memset(&j->entry, 0, sizeof(j->entry));
		j->nodes = j->lists = 0;
		if (!sample_second(j, s) || !cost_of(j, s, seconds, &bare) || !arm(j, s) ||
		    !cost_of(j, s, seconds, &full))
			return 1;
		stop(j);
		sampler_free(s);
		printf("depth %s, %.1f nodes: %llu ns a sample without, %llu with, %.0f a node\n",
		       depths[i], (double)j->nodes / (double)MAX(j->lists, 1),
		       (unsigned long long)bare, (unsigned long long)full,
		       ((double)full - (double)bare) * (double)j->lists / (double)MAX(j->nodes, 1));
	}
	return 0;
}

/* --- waiting threads ---------------------------------------------------------------------------- */

static struct seen *seen_of(struct judge *j, u32 tid, u64 start_ns)
{
	u32 i;

	for (i = 0; i < j->nseen; i++)
		if (j->seen[i].tid == tid && j->seen[i].start_ns == start_ns)
			return &j->seen[i];
	if (j->nseen == TIDS_MAX)
		return NULL;
	j->seen[j->nseen] = (struct seen){ .tid = tid, .start_ns = start_ns };
	return &j->seen[j->nseen++];
}

static bool is_same(const struct seen *a, const u64 *words, u32 n, u32 width)
{
	return a->n == n && a->width == width &&
	       !memcmp(a->words, words, (size_t)n * width * sizeof(u64));
}

static void on_thread(void *arg, const struct thread_event *ev, const u64 *words)
{
	struct judge *j = arg;
	struct list l = { .words = words,
			  .n = ev->nlist,
			  .width = ev->list_width,
			  .end = ev->list_end,
			  .head = ev->list_head,
			  .reg = ev->list_reg };
	struct seen *s;

	if (ev->kind == THREAD_COUNTS)
		return;
	if (ev->kind == THREAD_SAME) {
		j->same_told++;
		return;
	}
	if (ev->list_end == LIST_END_MOVED) {
		j->moved++;
		return;
	}
	judge_list(j, &l, ev->tid);
	s = seen_of(j, ev->tid, ev->start_ns);
	if (!s)
		return;
	if (s->width && s->switches == ev->switches) {
		j->same_count++;
		j->same_list += is_same(s, words, l.n, l.width);
	} else if (s->width) {
		j->other_count++;
		j->other_list += !is_same(s, words, l.n, l.width);
	}
	s->switches = ev->switches;
	s->n = l.n;
	s->width = l.width;
	memcpy(s->words, words, (size_t)l.n * l.width * sizeof(u64));
}

static struct threads *threads_open(struct reader *reader)
{
	struct threads *t = NULL;

	return threads_new(features_host(), reader, -1, &t) ? NULL : t;
}

/* A tick in which nothing has changed. */
static int quiet(struct judge *j, const char *lister, u32 seconds)
{
	static const char *const waiting[] = { "10", "100", "1000" };
	struct reader *reader = reader_new();
	struct threads *t = threads_open(reader);
	struct threads_told told = {};
	u64 end, ns, n, counts_ns, before;
	u32 i;

	for (i = 0; t && i < ARRAY_SIZE(waiting); i++) {
		if (!start(j, lister, "0", waiting[i], "20"))
			return 1;
		nap(NSEC_PER_SEC / 2);
		j->entry.recipe = j->recipe;
		j->entry.gen = 7;
		end = now_monotonic() + seconds * NSEC_PER_SEC;
		for (ns = counts_ns = n = 0; now_monotonic() < end; n++) {
			before = now_monotonic();
			threads_counts(t, (u32)j->pid, on_thread, j, &told);
			counts_ns += now_monotonic() - before;
			before = now_monotonic();
			threads_walk(t, (u32)j->pid, &j->entry, on_thread, j, &told);
			ns += n ? now_monotonic() - before : 0;
			nap(TICK_NS);
		}
		stop(j);
		printf("%s threads that wait: %.0f us a walk, %u unchanged; counts alone %.0f us\n",
		       waiting[i], (double)ns / 1e3 / (double)(n - 1), told.same,
		       (double)counts_ns / 1e3 / (double)n);
	}
	threads_free(t);
	reader_free(reader);
	return !t;
}

/* Says so when lists cannot be had; that is right only where the kernel has not what it takes. */
static bool skips(const struct judge *j, const struct threads *t)
{
	const struct features *f = features_host();

	if (threads_can_walk(t))
		return false;
	if (f->iter_task_sleeps && f->iter_task_filtered)
		out(false, j, "loads");
	else
		printf("skip %s-%s: this kernel has no iterator that may read a process\n",
		       j->place, j->mode_name);
	return true;
}

static int iterator(struct judge *j, const char *lister, u32 seconds)
{
	struct reader *reader = reader_new();
	struct threads *t = threads_open(reader);
	struct threads_told told;
	u64 end, walks = 0, ns = 0, quiet_ns = 0, quiet = 0, before;

	if (!reader || !t || !start(j, lister, "1", j->waiting, "0"))
		return 1;
	if (skips(j, t)) {
		stop(j);
		return 0;
	}
	nap(NSEC_PER_SEC / 2);
	j->entry.recipe = j->recipe;
	j->entry.gen = 7;
	for (end = now_monotonic() + seconds * NSEC_PER_SEC; now_monotonic() < end; walks++) {
		before = now_monotonic();
		if (threads_walk(t, (u32)j->pid, &j->entry, on_thread, j, &told) || !told.told)
			return 1;
		ns += now_monotonic() - before;
		/* Again at once: hardly anything can have changed. */
		before = now_monotonic();
		threads_walk(t, (u32)j->pid, &j->entry, on_thread, j, &told);
		quiet_ns += now_monotonic() - before;
		quiet += told.same;
		/* And once more, now all are told, held or not. */
		threads_forget(t, (u32)j->pid);
		threads_walk(t, (u32)j->pid, &j->entry, on_thread, j, &told);
		j->held_wrong += told.same;
		nap(TICK_NS);
	}
	stop(j);
	print_ends(j);
	printf("%llu walks of %u threads, %.0f us each; at once after it %.0f us, %.1f of them told as "
	       "unchanged; pairs with one count %llu, of one list %llu; with another count %llu, of "
	       "another list %llu; moved %llu\n",
	       (unsigned long long)walks, j->nthreads, (double)ns / 1e3 / (double)walks,
	       (double)quiet_ns / 1e3 / (double)walks, (double)quiet / (double)walks,
	       (unsigned long long)j->same_count, (unsigned long long)j->same_list,
	       (unsigned long long)j->other_count, (unsigned long long)j->other_list,
	       (unsigned long long)j->moved);
	out(!j->broken && j->lists > walks, j, "no-list-breaks-the-rule");
	out(j->same_count && j->same_list == j->same_count, j, "same-count-same-list");
	/* One that was preempted has another count and the same list. */
	out(!j->other_count || j->other_list * 2 > j->other_count, j, "other-count-other-list");
	out(!j->held_wrong && quiet > walks, j, "held-lists-are-not-told-again");
	threads_free(t);
	reader_free(reader);
	return 0;
}

struct many {
	u8 *seen; /* by tid */
	u32 n, again;
};

#define PIDS (1u << 22) /* kernel: PID_MAX_LIMIT */

static void on_one_of_many(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct many *m = arg;

	m->again += m->seen[ev->tid % PIDS];
	m->n += !m->seen[ev->tid % PIDS];
	m->seen[ev->tid % PIDS] = 1;
}

static int many(struct judge *j, const char *lister)
{
	const u32 threads = 20001;
	struct reader *reader = reader_new();
	struct threads *t = threads_open(reader);
	struct many m = { .seen = calloc(1, PIDS) };
	struct threads_told told = { .more = true };
	u64 before, longest = 0, sum = 0;
	u32 i, most = 0;
	int err;

	if (!t || !m.seen || !start(j, lister, "0", "20000", "5"))
		return 1;
	nap(5 * NSEC_PER_SEC);
	j->entry.recipe = j->recipe;
	j->entry.gen = 7;
	for (i = 0; i < 100 && told.more; i++) {
		before = now_monotonic();
		err = threads_can_walk(t)
			      ? threads_walk(t, (u32)j->pid, &j->entry, on_one_of_many, &m, &told)
			      : threads_counts(t, (u32)j->pid, on_one_of_many, &m, &told);
		if (err) {
			fprintf(stderr, "call %u: %s\n", i, strerror(-err));
			return 1;
		}
		before = now_monotonic() - before;
		sum += before;
		longest = MAX(longest, before);
		most = MAX(most, told.told);
	}
	stop(j);
	printf("%u threads in %u calls, at most %u in one; the longest took %.1f ms\n", m.n, i,
	       most, (double)longest / 1e6);
	out(m.n == threads && !m.again && most <= THREADS_MAX && i > 1, j, "calls-take-turns");
	out(longest < NSEC_PER_SEC, j, "no-call-takes-long");
	free(m.seen);
	threads_free(t);
	reader_free(reader);
	return 0;
}

static int hang(struct judge *j, const char *lister)
{
	struct reader *reader = reader_new();
	struct threads *t = threads_open(reader);
	struct threads_told told;
	u64 before;
	int err;

	if (!reader || !t || !start(j, lister, "0", "0", "0"))
		return 1;
	if (skips(j, t)) {
		stop(j);
		return 0;
	}
	nap(NSEC_PER_SEC / 5);
	j->entry.recipe = j->recipe;
	j->entry.gen = 7;
	before = now_monotonic();
	err = threads_walk(t, (u32)j->pid, &j->entry, on_thread, j, &told);
	before = now_monotonic() - before;
	/* Its own file holds the lister, too. */
	if (getenv("LISTER_SERVER"))
		kill(atoi(getenv("LISTER_SERVER")), SIGTERM);
	stop(j);
	print_ends(j);
	printf("%.3f ms\n", (double)before / 1e6);
	/* Not even the thread that reads waits for the page. */
	out(!err && told.told == 1 && j->ends[LIST_END_UNREADABLE] == 1 &&
		    before < NSEC_PER_SEC / 5 && !reader_abandoned(reader),
	    j, "a-page-that-never-comes-ends-the-list");
	threads_free(t);
	reader_free(reader);
	return 0;
}

struct look {
	u32 n;
	struct thread_event ev[TIDS_MAX];
};

static void on_count(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct look *c = arg;

	if (c->n < TIDS_MAX)
		c->ev[c->n++] = *ev;
}

static const struct thread_event *count_of(const struct look *c, const struct thread_event *ev)
{
	u32 i;

	for (i = 0; i < c->n; i++)
		if (c->ev[i].tid == ev->tid && c->ev[i].start_ns == ev->start_ns)
			return &c->ev[i];
	return NULL;
}

/* One look at all threads; the lists of those that stood still count. */
static bool look_from_outside(struct judge *j, struct judge *control, struct threads *t,
			      struct target *target)
{
	static struct look before, after;
	static u64 words[TIDS_MAX][LIST_WORDS_MAX];
	static struct list lists[TIDS_MAX];
	const struct thread_event *ev;
	struct threads_told told;
	u32 i;

	before.n = after.n = 0;
	if (threads_counts(t, (u32)j->pid, on_count, &before, &told) || told.told < j->nthreads)
		return false;
	for (i = 0; i < before.n; i++) {
		target_begin(target);
		list_walk(target, &j->recipe, before.ev[i].tp, 0, words[i], &lists[i]);
	}
	if (threads_counts(t, (u32)j->pid, on_count, &after, &told))
		return false;
	for (i = 0; i < before.n; i++) {
		ev = count_of(&after, &before.ev[i]);
		if (ev && !ev->on_cpu && !before.ev[i].on_cpu &&
		    ev->switches == before.ev[i].switches)
			judge_list(j, &lists[i], ev->tid);
		else if (before.ev[i].on_cpu)
			judge_list(control, &lists[i], before.ev[i].tid);
	}
	return true;
}

static int outside(struct judge *j, const char *lister, u32 seconds)
{
	struct reader *reader = reader_new();
	struct threads *t = threads_open(reader);
	struct judge control = *j;
	struct target *target;
	u64 end;

	if (!t || !reader || !start(j, lister, "1", j->waiting, "0"))
		return 1;
	nap(NSEC_PER_SEC / 2);
	if (target_live_new((u32)j->pid, reader, NULL, NULL, NULL, &target))
		return 1;
	for (end = now_monotonic() + seconds * NSEC_PER_SEC; now_monotonic() < end; nap(TICK_NS))
		if (!look_from_outside(j, &control, t, target))
			return 1;
	stop(j);
	print_ends(j);
	printf("running threads without care: %llu lists, %llu broken\n",
	       (unsigned long long)control.lists, (unsigned long long)control.broken);
	out(!j->broken && j->lists >= 5ull * seconds, j, "no-list-breaks-the-rule");
	/* On one CPU nothing runs while we read. */
	out(control.broken || control.lists < 20, j, "rule-sees-what-is-torn");
	target_free(target);
	threads_free(t);
	reader_free(reader);
	return 0;
}

int main(int argc, char **argv)
{
	struct judge j = {};
	u32 seconds;
	int err = 2;

	if (argc < 5)
		return 2;
	j.slow = argc > 5 ? argv[5] : "1";
	j.waiting = argc > 5 ? "8" : "40";
	j.nthreads = (u32)atoi(j.waiting) + 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	j.place = argv[2];
	j.mode_name = argv[3];
	j.mode = !strcmp(argv[3], "array") ? ARRAY : !strcmp(argv[3], "jit") ? JIT : LIST;
	seconds = (u32)strtoul(argv[4], NULL, 10);
	j.seen = calloc(TIDS_MAX, sizeof(*j.seen));
	if (!j.seen)
		return 1;
	pin(1);
	if (!strcmp(j.place, "sample"))
		err = sample(&j, argv[1], seconds);
	else if (!strcmp(j.place, "iterator"))
		err = iterator(&j, argv[1], seconds);
	else if (!strcmp(j.place, "outside"))
		err = outside(&j, argv[1], seconds);
	else if (!strcmp(j.place, "offcpu"))
		err = offcpu(&j, argv[1], seconds);
	else if (!strcmp(j.place, "cold"))
		err = cold(&j, argv[1], seconds);
	else if (!strcmp(j.place, "hang"))
		err = hang(&j, argv[1]);
	else if (!strcmp(j.place, "many"))
		err = many(&j, argv[1]);
	else if (!strcmp(j.place, "quiet"))
		err = quiet(&j, argv[1], seconds);
	else if (!strcmp(j.place, "cost"))
		err = cost(&j, argv[1], seconds);
	if (err)
		out(false, &j, "ran");
	if (j.pid > 0)
		stop(&j);
	free(j.seen);
	return err ? err : failed;
}
