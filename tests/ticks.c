// SPDX-License-Identifier: Apache-2.0
/*
 * Looks at the threads of one interpreter as the daemon does, tick by tick: ticks PID HZ SECONDS
 * [stacks]. The last line is JSON: what a tick took of this process, its helper threads included,
 * and how many system calls it made, and what came of the threads. With "stacks" the lines
 * before it are all that was told, for live_ticks.sh to judge:
 *
 *     stack N {"frames": [...]}      leaf first; empty: the thread has no frame of the interpreter
 *     at FROM TO TID N               thread TID (as it has it itself) stood on stack N at some
 *                                    moment between these two times of CLOCK_MONOTONIC, and all
 *                                    of it is of that moment
 *     moved FROM TO TID              nothing is told of it: it ran
 */
#include "core/features.h"
#include "core/htab.h"
#include "core/log.h"
#include "core/module.h"
#include "core/process.h"
#include "core/reader.h"
#include "core/runtime.h"
#include "core/threads.h"
#include "core/walker.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#define TICKS_MAX    100000
#define THREADS_SEEN 4096
#define DETECT_NS    (20 * NSEC_PER_SEC)

struct seen {
	u32 tid, ns_tid;
	u64 stack; /* number of its last one; 0: nothing is known */
};

struct looker {
	struct modules *modules;
	struct processes *procs;
	struct reader *reader;
	struct threads *threads;
	struct runtimes *runtimes;
	struct walker *walker;
	struct process *process;
	u32 pid, hz;
	bool told; /* stacks are printed */
	/* Of the walk that is on. */
	threads_fn *fn;
	void *fn_arg;
	u64 from_ns;
	struct event {
		u32 tid;
		u64 stack;
		bool moved;
	} * events;
	u32 nevents;
	struct seen seen[THREADS_SEEN];
	u32 nseen;
	u64 nstacks;
	struct runtime_frames frames;
	/* Figures. */
	int counter;
	u64 *cpu_ns, *calls;
	u32 nticks;
};

/* --- what is told of a thread ------------------------------------------------------------------ */

static struct seen *seen_of(struct looker *k, u32 tid)
{
	u32 i;

	for (i = 0; i < k->nseen; i++)
		if (k->seen[i].tid == tid)
			return &k->seen[i];
	if (k->nseen == THREADS_SEEN)
		return NULL;
	k->seen[k->nseen] = (struct seen){ .tid = tid };
	return &k->seen[k->nseen++];
}

static void print_json(const char *s)
{
	putchar('"');
	for (; s && *s; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		putchar((u8)*s < 0x20 ? ' ' : *s);
	}
	putchar('"');
}

static void print_stack(struct looker *k)
{
	u32 i;

	printf("stack %" PRIu64 " {\"frames\": [", ++k->nstacks);
	for (i = 0; i < k->frames.n; i++) {
		const struct runtime_frame *f = &k->frames.frames[i];

		printf("%s{\"func\": ", i ? ", " : "");
		print_json(f->func);
		printf(", \"file\": ");
		print_json(f->file);
		printf(", \"line\": %u}", f->line);
	}
	printf("], \"cut\": %s}\n", k->frames.cut ? "true" : "false");
}

/* Number of the stack that is printed for a list; 0: it is refused. */
static u64 stack_of(struct looker *k, const struct thread_event *ev, const u64 *words)
{
	struct list l = {
		.words = words,
		.n = ev->nlist,
		.width = ev->list_width,
		.end = ev->list_end,
		.head = ev->list_head,
		.ip = ev->ip,
		.ip_image = true,
	};
	struct runtime *r = runtime_of(k->process);
	enum verdict v = UNWIND_IDLE;

	k->frames.n = 0;
	if (ev->list_end == LIST_END_MOVED || !r)
		return 0;
	if (l.n)
		v = runtime_frames(k->runtimes, r, ev->recipe_gen, &l, &k->frames);
	if (v != UNWIND_OK && v != UNWIND_IDLE)
		return 0;
	print_stack(k);
	return k->nstacks;
}

static void on_record(void *arg, const struct thread_event *ev, const u64 *words)
{
	struct looker *k = arg;
	struct seen *s = seen_of(k, ev->tid);

	if (s && ev->kind == THREAD_LIST) {
		s->ns_tid = ev->ns_tid;
		s->stack = stack_of(k, ev, words);
	}
	if (s && k->nevents < THREADS_SEEN)
		k->events[k->nevents++] = (struct event){
			.tid = s->ns_tid,
			.stack = s->stack,
			.moved = ev->kind == THREAD_LIST && ev->list_end == LIST_END_MOVED,
		};
	k->fn(k->fn_arg, ev, words);
}

static void print_events(struct looker *k)
{
	u64 to = now_monotonic();
	u32 i;

	for (i = 0; i < k->nevents; i++) {
		const struct event *e = &k->events[i];

		if (e->stack)
			printf("at %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n", k->from_ns, to,
			       e->tid, e->stack);
		else
			printf("%s %" PRIu64 " %" PRIu64 " %u\n", e->moved ? "moved" : "refused",
			       k->from_ns, to, e->tid);
	}
}

/* --- the walker's kernel ------------------------------------------------------------------------ */

static int counts(void *arg, u32 tgid, threads_fn *fn, void *fn_arg, struct threads_told *ret)
{
	return threads_counts(((struct looker *)arg)->threads, tgid, fn, fn_arg, ret);
}

static int walk(void *arg, u32 tgid, const struct recipe_entry *entry, threads_fn *fn, void *fn_arg,
		struct threads_told *ret)
{
	struct looker *k = arg;
	int err;

	if (!k->told)
		return threads_walk(k->threads, tgid, entry, fn, fn_arg, ret);
	k->fn = fn;
	k->fn_arg = fn_arg;
	k->nevents = 0;
	k->from_ns = now_monotonic();
	err = threads_walk(k->threads, tgid, entry, on_record, k, ret);
	if (!err)
		print_events(k);
	return err;
}

static void forget(void *arg, u32 tgid)
{
	threads_forget(((struct looker *)arg)->threads, tgid);
}

static enum verdict waited(void *arg, struct process *p, u32 gen, const struct list *l,
			   const char comm[COMM_LEN] __unused, bool ready __unused, u64 ns __unused)
{
	struct looker *k = arg;
	struct runtime *r = runtime_of(p);

	return r ? runtime_frames(k->runtimes, r, gen, l, &k->frames) : UNWIND_NOT_MINE;
}

static u32 rate(void *arg, const struct unwinder *u __unused)
{
	return ((struct looker *)arg)->hz;
}

static int no_arm(void *arg __unused, u32 tgid __unused, const struct recipe_entry *e __unused)
{
	return 0;
}

static void no_disarm(void *arg __unused, u32 tgid __unused)
{
}

static int list_threads(void *arg, u32 tgid,
			void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
			void *fn_arg)
{
	return threads_list(((struct looker *)arg)->threads, tgid, fn, fn_arg);
}

/* --- books -------------------------------------------------------------------------------------- */

static int make_books(struct looker *k)
{
	struct runtimes_kernel kernel = {
		.arg = k,
		.arm = no_arm,
		.disarm = no_disarm,
		.threads = list_threads,
	};
	struct walker_kernel wk = { .arg = k, .counts = counts, .walk = walk, .forget = forget };
	struct walker_options wo = { .waited = waited, .arg = k, .hz = rate, .hz_arg = k };
	struct task_event born = { .type = TASK_FORK, .pid = k->pid };
	struct stack_key key = { .tgid = k->pid };

	k->modules = modules_new(64u << 20);
	k->procs = k->modules ? processes_new(k->modules, "/proc", true) : NULL;
	k->reader = reader_new();
	if (!k->procs || !k->reader || threads_new(features_host(), k->reader, -1, &k->threads))
		return -ENOMEM;
	if (!threads_can_walk(k->threads))
		return -EOPNOTSUPP;
	k->runtimes = runtimes_new(k->procs, k->reader, &kernel, NULL);
	k->walker = k->runtimes ? walker_new(k->procs, k->runtimes, &wk, &wo) : NULL;
	if (!k->walker)
		return -ENOMEM;
	processes_event(k->procs, &born);
	k->process = processes_current(k->procs, &key);
	return k->process ? 0 : -ESRCH;
}

static void looker_fini(struct looker *k)
{
	walker_free(k->walker);
	runtimes_free(k->runtimes);
	threads_free(k->threads);
	processes_free(k->procs);
	modules_free(k->modules);
	reader_free(k->reader);
	free(k->events);
	free(k->cpu_ns);
	free(k->calls);
	closep(&k->counter);
}

/* Until it can be walked. */
static int find_runtime(struct looker *k)
{
	u64 end = now_monotonic() + DETECT_NS;
	struct runtime_info info;
	struct runtime *r;

	do {
		runtimes_want(k->runtimes, k->process);
		while (runtimes_queued(k->runtimes))
			runtimes_round(k->runtimes, now_monotonic());
		r = runtime_of(k->process);
		if (r)
			runtime_info(r, &info);
		if (r && info.found->verdict == UNWIND_OK)
			return 0;
		usleep(100000);
	} while (now_monotonic() < end);
	return -ENOENT;
}

/* --- figures ------------------------------------------------------------------------------------ */

/* System calls of this process and of the threads that it starts from now on; -1: unknown. */
static int open_counter(void)
{
	static const char *const paths[] = {
		"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
		"/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
	};
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.inherit = 1,
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		_cleanup_free_ char *text = NULL;

		if (read_file(paths[i], 64, &text, NULL))
			continue;
		attr.config = strtoul(text, NULL, 10);
		return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	}
	return -1;
}

static u64 calls_so_far(const struct looker *k)
{
	u64 n = 0;

	if (k->counter < 0 || read(k->counter, &n, sizeof(n)) != sizeof(n))
		return 0;
	return n;
}

static u64 cpu_so_far(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void tick(struct looker *k, bool counted)
{
	u64 cpu = cpu_so_far(), calls = calls_so_far(k);

	walker_tick(k->walker, now_monotonic());
	calls = calls_so_far(k) - calls - 1; /* the look at the counter itself */
	cpu = cpu_so_far() - cpu;
	if (!counted || k->nticks == TICKS_MAX)
		return;
	k->cpu_ns[k->nticks] = cpu;
	k->calls[k->nticks++] = calls;
}

static int by_value(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double mean(const u64 *v, u32 n)
{
	double sum = 0;
	u32 i;

	for (i = 0; i < n; i++)
		sum += (double)v[i];
	return sum / MAX(n, 1u);
}

static void print_figures(struct looker *k, const struct walker_figures *before)
{
	struct walker_figures f;
	double us = mean(k->cpu_ns, k->nticks) / 1e3, calls = mean(k->calls, k->nticks);
	u32 n = k->nticks;

	walker_figures(k->walker, &f);
	qsort(k->cpu_ns, n, sizeof(*k->cpu_ns), by_value);
	printf("{\"threads\": %u, \"ticks\": %u, \"us_mean\": %.1f, \"us_median\": %.1f, \"us_p10\": "
	       "%.1f, \"calls\": %.2f, \"same\": %" PRIu64 ", \"walked\": %" PRIu64
	       ", \"moved\": %" PRIu64 ", \"failed\": %" PRIu64 "}\n",
	       f.threads, n, us, n ? (double)k->cpu_ns[n / 2] / 1e3 : 0,
	       n ? (double)k->cpu_ns[n / 10] / 1e3 : 0, k->counter < 0 ? -1 : calls,
	       f.same - before->same, f.walked - before->walked, f.moved - before->moved,
	       f.failed - before->failed);
}

/* Ticks when they are due; in the first second all is new, and nothing is counted. */
static void look_for(struct looker *k, u64 ns)
{
	u64 start = now_monotonic(), now = start, warm = start + NSEC_PER_SEC;
	struct walker_figures before = { 0 };
	bool counted = false;

	while (now < warm + ns) {
		u64 due = MAX(walker_due(k->walker), now);
		struct timespec at = { .tv_sec = (time_t)(due / NSEC_PER_SEC),
				       .tv_nsec = (long)(due % NSEC_PER_SEC) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		now = now_monotonic();
		if (!counted && now >= warm) {
			counted = true;
			walker_figures(k->walker, &before);
		}
		tick(k, counted);
	}
	print_figures(k, &before);
}

int main(int argc, char **argv)
{
	static struct looker k;
	int err;

	if (argc < 4) {
		fputs("usage: ticks PID HZ SECONDS [stacks]\n", stderr);
		return 2;
	}
	k.pid = (u32)strtoul(argv[1], NULL, 10);
	k.hz = (u32)strtoul(argv[2], NULL, 10);
	k.told = argc > 4 && !strcmp(argv[4], "stacks");
	k.counter = open_counter();
	k.cpu_ns = calloc(TICKS_MAX, sizeof(*k.cpu_ns));
	k.calls = calloc(TICKS_MAX, sizeof(*k.calls));
	k.events = calloc(THREADS_SEEN, sizeof(*k.events));
	err = k.cpu_ns && k.calls && k.events ? make_books(&k) : -ENOMEM;
	if (!err)
		err = find_runtime(&k);
	if (!err)
		look_for(&k, (u64)(strtod(argv[3], NULL) * 1e9));
	else
		fprintf(stderr, "ticks: process %u: %s\n", k.pid, strerror(-err));
	looker_fini(&k);
	return err ? 1 : 0;
}
