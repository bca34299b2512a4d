// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See agent.h. */
#include "agent.h"

#include "context.h"
#include "cpus.h"
#include "features.h"
#include "identity.h"
#include "kallsyms.h"
#include "line.h"
#include "log.h"
#include "module.h"
#include "names.h"
#include "offcpu.h"
#include "perfmap.h"
#include "pidns.h"
#include "process.h"
#include "reader.h"
#include "runtime.h"
#include "sampler.h"
#include "sideband.h"
#include "stat.h"
#include "tables.h"
#include "threads.h"
#include "walker.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define CYCLE_NS        (NSEC_PER_SEC / 4)
#define NEWS_PAUSE_NS   (NSEC_PER_SEC / 20)
#define NAMING_PAUSE_NS (NSEC_PER_SEC / 50) /* between steps when no worker tells */
#define CPU_CHECK_NS    NSEC_PER_SEC
#define TRIM_NS         NSEC_PER_SEC
#define SIDEBAND_BYTES  (512u << 10) /* a CPU; holds about 3,000 execs' worth of a cycle */
#define SYMBOL_BYTES    (64u << 20)
#define MODULE_AGE_NS   (600 * NSEC_PER_SEC)
#define PENDING_MAX     (64u << 20)
#define LOW_LIMIT       1000 /* ticks a second at most, whatever the kernel's HZ is */
#define LIMITED_SAMPLES 20   /* fewer say nothing about the rate */
#define LIMITED_FACTOR  8

/* A stack copied out of the ring buffer until the process events before it are in. */
struct waiting {
	u64 time_ns;
	u32 offset, len;
};

struct agent {
	struct sampler *sampler;
	struct sideband *sideband;
	struct modules *modules;
	struct processes *procs;
	struct kallsyms *kallsyms;
	bool code_lost; /* what happened to the kernel's code may be missing */
	struct tables *tables;
	struct reader *reader;
	struct threads *threads;    /* NULL: the kernel tells no threads */
	struct runtimes *runtimes;  /* NULL: interpreters stay native */
	struct walker *walker;      /* NULL: no sample types of runtimes' own */
	struct offcpu *offcpu;      /* NULL: waits are not seen */
	const char *offcpu_refused; /* why not, if they should be; static */
	bool offcpu_paused;
	struct line *line;
	struct perfmaps *perfmaps;
	struct identities *identities;
	struct contexts *contexts; /* NULL: nobody asks what threads work on */
	struct {
		struct window *w;
		struct naming *naming; /* NULL: done, or no memory for it */
	} namings[NAMINGS_MAX + 1];    /* oldest first */
	u32 nnamings;
	struct {
		struct window *w; /* NULL: there is none */
		struct naming *naming;
		u32 pid;  /* 0: none, or it has ended */
		u64 lost; /* until it ends: of all, when it began */
	} timeline;
	int epoll_fd;
	u32 hz, want_hz;
	bool no_cpu, only_pids, with_marks;
	bool limited;              /* by kernel.perf_event_max_sample_rate */
	bool low_limit;            /* so low that the kernel may take one sample a tick at most */
	u64 busy_ns, busy_samples; /* when the epoch began: time of CPUs that were not idle */
	bool restart; /* events are to be opened at another rate; tried again until they are */
	struct sample_mark *marks; /* whose stacks are being read */
	u32 nmarks, marks_cap;
	u8 *bytes;
	u32 nbytes, bytes_cap;
	struct waiting *waiting;
	u32 nwaiting, waiting_cap;
	u64 cycle_ns, cpu_check_ns, trim_ns;
	u64 deaf_ns;                        /* until then nothing new wakes us */
	u64 window_mono_ns, window_real_ns; /* start of the window */
	u64 clocks_apart_ns;                /* when profiling began */
	u64 bpf_seen[BPF_STAT_MAX];
	double aside_user_s, aside_system_s; /* own threads' time that is not profiling's */
	u64 stacks[2];                       /* taken from the ring buffer, by enum stack_kind */
};

static int add_fd(struct agent *a, int fd, u32 how)
{
	struct epoll_event ev = { .events = EPOLLIN | how, .data.fd = fd };

	return epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* What the kernel allows of a rate. */
static u32 limit_rate(struct agent *a, u32 hz)
{
	_cleanup_free_ char *text = NULL;
	unsigned long max = 0;

	if (!read_file("/proc/sys/kernel/perf_event_max_sample_rate", 64, &text, NULL))
		max = strtoul(text, NULL, 10);
	a->low_limit = max && max <= LOW_LIMIT;
	return max && max < hz ? (u32)max : hz;
}

static struct tables *make_tables(struct agent *a, u64 max_bytes)
{
	struct tables_kernel kernel = {
		.arg = a->sampler,
		.grow = sampler_grow,
		.publish = sampler_publish,
		.unpublish = sampler_unpublish,
		.sync = sampler_sync,
	};

	return tables_new(a->procs, a->modules, &kernel, max_bytes);
}

/* --- interpreters ----------------------------------------------------------------------------- */

static enum verdict on_waited(void *arg, struct process *p, u32 gen, const struct list *l,
			      const char comm[COMM_LEN], bool ready, u64 ns)
{
	struct agent *a = arg;

	return line_waited(a->line, sampler_epoch(a->sampler), p, gen, l, comm, ready, ns);
}

static int count_threads(void *arg, u32 tgid, threads_fn *fn, void *fn_arg,
			 struct threads_told *ret)
{
	return threads_counts(arg, tgid, fn, fn_arg, ret);
}

static int walk_threads(void *arg, u32 tgid, const struct recipe_entry *entry, threads_fn *fn,
			void *fn_arg, struct threads_told *ret)
{
	return threads_walk(arg, tgid, entry, fn, fn_arg, ret);
}

static void forget_threads(void *arg, u32 tgid)
{
	threads_forget(arg, tgid);
}

static int list_threads(void *arg, u32 tgid,
			void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
			void *fn_arg)
{
	struct agent *a = arg;

	return threads_list(a->threads, tgid, fn, fn_arg);
}

static int arm_process(void *arg, u32 tgid, const struct recipe_entry *entry)
{
	struct agent *a = arg;

	return sampler_arm(a->sampler, tgid, entry);
}

static void disarm_process(void *arg, u32 tgid)
{
	struct agent *a = arg;

	sampler_disarm(a->sampler, tgid);
}

static int set_head(void *arg, u32 tid, u64 head)
{
	struct agent *a = arg;

	return sampler_head(a->sampler, tid, head);
}

/* Before the line, which asks for frames. */
static int make_runtimes(struct agent *a, const struct agent_runtimes *o)
{
	struct runtimes_kernel kernel = {
		.arg = a,
		.arm = arm_process,
		.disarm = disarm_process,
		.head = set_head,
	};

	/* Without it thread pointers and waiting threads stay unknown; it has said why. */
	threads_new(features_host(), a->reader, sampler_heads_fd(a->sampler), &a->threads);
	if (a->threads)
		kernel.threads = list_threads;
	a->runtimes = runtimes_new(a->procs, a->reader, &kernel, &o->choice);
	return a->runtimes ? 0 : -ENOMEM;
}

static int make_walker(struct agent *a, const struct agent_runtimes *o)
{
	struct walker_kernel kernel = {
		.arg = a->threads,
		.counts = count_threads,
		.forget = forget_threads,
	};
	struct walker_options wo = {
		.waited = on_waited,
		.arg = a,
		.hz = o->hz,
		.hz_arg = o->choice.arg,
	};

	if (!a->threads)
		return 0;
	if (threads_can_walk(a->threads))
		kernel.walk = walk_threads;
	a->walker = walker_new(a->procs, a->runtimes, &kernel, &wo);
	return a->walker ? 0 : -ENOMEM;
}

void agent_set_runtime_share(struct agent *a, u32 percent)
{
	if (a->walker)
		walker_set_share(a->walker, percent);
}

struct runtimes *agent_runtimes(struct agent *a)
{
	return a->runtimes;
}

/* --- waits ------------------------------------------------------------------------------------ */

/* Sampling goes on without it. */
static void make_offcpu(struct agent *a, const struct agent_options *o)
{
	struct offcpu_options oo = {
		.min_ns = o->offcpu_min_ns,
		.tables = o->offcpu_tables && o->table_bytes,
		.lock = o->lock,
		.lock_only = !o->offcpu,
		.kernel_frames = o->kernel_frames,
		.marks = o->marks,
		.thread_context = o->thread_context,
		.only_pids = o->only_pids,
		.min_age_ns = o->identity.min_age_ns,
		.max_frames = o->max_frames,
		.news_pause_ns = NEWS_PAUSE_NS,
	};
	int err;

	oo.reader = a->reader;
	a->offcpu_refused = "out of memory";
	err = offcpu_new(a->sampler, &oo, &a->offcpu, &a->offcpu_refused);
	if (err)
		log_warn("no off-CPU profiles: %s: %s", a->offcpu_refused, strerror(-err));
}

static void start_offcpu(struct agent *a)
{
	int err = a->offcpu ? offcpu_start(a->offcpu) : 0;

	if (!err)
		return;
	a->offcpu_refused = "the kernel does not let it watch switches";
	log_warn("no off-CPU profiles: %s: %s", a->offcpu_refused, strerror(-err));
	offcpu_free(a->offcpu);
	a->offcpu = NULL;
}

/* --- identities ------------------------------------------------------------------------------- */

static void on_verdict(void *arg, u32 tgid, u64 start_ns, u32 exec_id, bool left_out)
{
	struct agent *a = arg;
	int err = sampler_leave_out(a->sampler, tgid, start_ns, exec_id, left_out);

	/* Its samples are taken, then, and dropped here. */
	if (err)
		log_debug("process %u is not left out in the kernel: %s", tgid, strerror(-err));
}

static struct identities *make_identities(struct agent *a, const struct agent_options *o)
{
	const struct identity_options io = {
		.proc = "/proc",
		/*
		 * The host's, also from within a container that sees its processes. Process 1 of
		 * another pid namespace is just one of those that are profiled.
		 */
		.root = !pidns_is_first() || access("/proc/1/root/.", X_OK) ? "/" : "/proc/1/root",
		.rules = o->identity.rules,
		.filter = o->identity.filter,
		.all = o->only_pids,
		.verdict = o->only_pids ? NULL : on_verdict,
		.arg = a,
	};

	return identities_new(a->procs, a->reader, &io);
}

static struct contexts *make_contexts(struct agent *a)
{
	const struct contexts_kernel kernel = {
		.arg = a->sampler,
		.arm = sampler_context_arm,
		.disarm = sampler_context_disarm,
	};

	return contexts_new(a->procs, a->reader, &kernel);
}

/* Until the stacks that were read with it are joined. */
static void on_mark(void *arg, const struct sample_mark *mark)
{
	struct agent *a = arg;

	/* One that comes after its time line has ended. */
	if (!a->with_marks && !a->timeline.pid)
		return;
	if (VEC_RESERVE(a->marks, a->marks_cap, a->nmarks + 1, PENDING_MAX / sizeof(*mark)))
		stat_add(STAT_marks_lost, mark->n);
	else
		a->marks[a->nmarks++] = *mark;
}

int agent_new(const struct agent_options *o, struct agent **ret)
{
	struct sampler_options so = {
		.kernel_frames = o->kernel_frames,
		.max_frames = o->max_frames,
		.marks = o->marks,
		.thread_context = o->thread_context,
		.only_pids = o->only_pids,
		.min_age_ns = o->identity.min_age_ns,
		.news_pause_ns = o->table_bytes ? NEWS_PAUSE_NS : 0,
	};
	struct line_options lo = { .with_cmdline = o->with_cmdline, .service = o->service };
	struct agent *a = calloc(1, sizeof(*a));
	int err = -ENOMEM;

	if (!a)
		return log_err(-ENOMEM, "cannot start: out of memory");
	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	a->want_hz = o->hz;
	a->hz = limit_rate(a, o->hz);
	a->no_cpu = o->no_cpu;
	a->only_pids = o->only_pids;
	a->with_marks = o->marks;
	a->limited = a->hz < o->hz;
	if (a->limited)
		log_warn(
			"sampling at %u Hz instead of %u: kernel.perf_event_max_sample_rate allows no more",
			a->hz, o->hz);
	so.hz = a->hz;
	lo.period_ns = NSEC_PER_SEC / a->hz;
	a->modules = modules_new(SYMBOL_BYTES);
	a->procs = a->modules ? processes_new(a->modules, "/proc", o->with_cmdline) : NULL;
	a->reader = reader_new();
	a->perfmaps = a->reader ? perfmaps_new(a->reader, "/proc") : NULL;
	a->identities = a->perfmaps ? make_identities(a, o) : NULL;
	if (a->epoll_fd < 0 || !a->procs || !a->identities) {
		log_err(err, "cannot start: out of memory or descriptors");
		goto fail;
	}
	err = sampler_new(&so, &a->sampler);
	if (err)
		goto fail;
	sampler_take_marks(a->sampler, on_mark);
	/* First the side band, then /proc: what happens in between is in both, never in neither. */
	err = sideband_new(SIDEBAND_BYTES, &a->sideband);
	if (err)
		goto fail;
	err = processes_snapshot(a->procs);
	if (err) {
		log_err(err, "cannot read /proc: %s", strerror(-err));
		goto fail;
	}
	if (o->kernel_frames && kallsyms_new(NULL, &a->kallsyms))
		log_warn("kernel functions stay without names: /proc/kallsyms shows no addresses; "
			 "needs CAP_SYSLOG, see kernel.kptr_restrict");
	if (o->table_bytes)
		a->tables = make_tables(a, o->table_bytes);
	err = o->runtimes ? make_runtimes(a, o->runtimes) : 0;
	if (!err && o->thread_context) {
		a->contexts = make_contexts(a);
		err = a->contexts ? 0 : -ENOMEM;
	}
	lo.runtimes = a->runtimes;
	lo.perfmaps = a->perfmaps;
	lo.identities = a->identities;
	lo.internals = o->runtimes && o->runtimes->internals;
	lo.wait_tables = o->offcpu_tables;
	lo.lock_only = o->lock && !o->offcpu;
	a->line = line_new(a->procs, a->tables, a->kallsyms, &lo);
	if (!a->line || (!a->tables && o->table_bytes))
		err = -ENOMEM;
	if (!err && o->runtimes && !o->runtimes->no_wall)
		err = make_walker(a, o->runtimes);
	if (!err && (o->offcpu || o->lock))
		make_offcpu(a, o);
	if (!err && o->cache_dir)
		err = modules_set_cache(a->modules, o->cache_dir);
	/* Edge: level would wake us for every sample, whatever the program asked for. */
	if (!err)
		err = add_fd(a, sampler_fd(a->sampler), EPOLLET);
	if (!err)
		err = add_fd(a, sideband_fd(a->sideband), EPOLLET);
	if (!err)
		err = add_fd(a, modules_fd(a->modules), EPOLLET);
	if (err) {
		log_err(err, "cannot start: %s", strerror(-err));
		goto fail;
	}
	*ret = a;
	return 0;
fail:
	agent_free(a);
	return err;
}

void agent_free(struct agent *a)
{
	u32 i;

	if (!a)
		return;
	agent_timeline_drop(a);
	tables_free(a->tables);
	walker_free(a->walker);
	runtimes_free(a->runtimes);
	threads_free(a->threads);
	offcpu_free(a->offcpu);
	contexts_free(a->contexts);
	sampler_free(a->sampler);
	sideband_free(a->sideband);
	line_free(a->line);
	for (i = 0; i < a->nnamings; i++) {
		naming_free(a->namings[i].naming);
		window_free(a->namings[i].w);
	}
	perfmaps_free(a->perfmaps);
	identities_free(a->identities);
	processes_free(a->procs);
	modules_free(a->modules);
	kallsyms_free(a->kallsyms);
	reader_free(a->reader);
	closep(&a->epoll_fd);
	free(a->marks);
	free(a->bytes);
	free(a->waiting);
	free(a);
}

int agent_add_pid(struct agent *a, u32 pid)
{
	const struct stack_key key = { .tgid = pid };
	struct process *p = processes_current(a->procs, &key);
	int err = sampler_add_pid(a->sampler, pid);

	/* It may do nothing but wait, so that no sample ever asks for it. */
	if (p && a->runtimes)
		runtimes_want(a->runtimes, p);
	return err ? log_err(err, "cannot select process %u: %s", pid, strerror(-err)) : 0;
}

/* Of all that runs on the CPUs, whether it is taken or not: as cpus_busy() counts. */
static u64 samples_due(struct agent *a)
{
	u64 due = sampler_stat(a->sampler, BPF_STAT_DUE);

	due += sampler_stat(a->sampler, BPF_STAT_LEFT_OUT);
	due += sampler_stat(a->sampler, BPF_STAT_OUTSIDE);
	return a->only_pids ? due + sampler_stat(a->sampler, BPF_STAT_FILTERED) : due;
}

/*
 * What a sample of the epoch that ends stands for. Where the kernel allows not more than one sample
 * a tick, it stops an event after each sample until the next tick (kernel/events/core.c,
 * __perf_event_account_interrupt), so that samples come later than asked for; then the period is
 * what the CPUs were busy for, by the number of samples.
 */
static u64 epoch_period(struct agent *a)
{
	u64 nominal = NSEC_PER_SEC / a->hz, busy = 0, n = samples_due(a), ns, real;
	bool known = !cpus_busy(&busy) && busy >= a->busy_ns;

	ns = busy - a->busy_ns;
	n -= MIN(n, a->busy_samples);
	a->busy_ns = busy;
	a->busy_samples += n;
	if (!a->low_limit || !known || n < LIMITED_SAMPLES)
		return nominal;
	real = ns / n;
	return real > nominal / 2 && real < LIMITED_FACTOR * nominal ? real : nominal;
}

int agent_start(struct agent *a)
{
	int err;

	a->window_mono_ns = now_monotonic();
	a->window_real_ns = now_realtime();
	a->clocks_apart_ns = a->window_real_ns - a->window_mono_ns;
	epoch_period(a); /* from now on */
	err = line_open_epoch(a->line, sampler_epoch(a->sampler), true, a->window_real_ns);
	if (!err)
		start_offcpu(a);
	return err || a->no_cpu ? err : sampler_start(a->sampler);
}

/* Ring buffer to waiting list; a stack that finds no memory is lost with its count, named. */
static void on_stack(void *arg, const struct stack_event *ev, size_t len)
{
	struct agent *a = arg;
	u32 size = (u32)len;

	if (VEC_RESERVE(a->bytes, a->bytes_cap, a->nbytes + size, PENDING_MAX) ||
	    VEC_RESERVE(a->waiting, a->waiting_cap, a->nwaiting + 1, PENDING_MAX / 64)) {
		stat_inc(STAT_no_memory);
		return;
	}
	a->stacks[ev->key.kind == STACK_OFF_CPU]++;
	a->waiting[a->nwaiting++] = (struct waiting){ ev->time_ns, a->nbytes, size };
	memcpy(a->bytes + a->nbytes, ev, len);
	a->nbytes += size;
}

static int by_time(const void *x, const void *y)
{
	const struct waiting *a = x, *b = y;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* By one and the same distance of the clocks: a clock that is set must not part events. */
static void place_mark(struct agent *a, const struct sample_mark *mark)
{
	line_mark(a->line, mark, mark->time_ns + a->clocks_apart_ns);
}

static void apply_tasks(struct agent *a, u64 before_ns)
{
	const struct task_event *ev;

	while ((ev = sideband_next(a->sideband, before_ns))) {
		if (ev->type == TASK_CODE && a->kallsyms)
			kallsyms_change(a->kallsyms, ev->code, ev->code_len, ev->symbol,
					ev->module);
		a->code_lost |= ev->type == TASK_LOST;
		processes_event(a->procs, ev);
	}
}

/* One round: all stacks that wait, each after the process events older than it. */
static void cycle(struct agent *a)
{
	u32 i, later = 0;

	a->nbytes = 0;
	a->nwaiting = 0;
	a->nmarks = 0;
	sampler_read_stacks(a->sampler, on_stack, a);
	/* Taken after the stacks: so all process events older than any of them are read below. */
	sideband_read(a->sideband, now_monotonic());
	if (a->nwaiting)
		qsort(a->waiting, a->nwaiting, sizeof(*a->waiting), by_time);
	for (i = 0; i < a->nwaiting; i++) {
		struct waiting w = a->waiting[i];

		apply_tasks(a, w.time_ns);
		if (line_stack(a->line, (void *)(a->bytes + w.offset), w.len, false) == -EAGAIN)
			a->waiting[later++] = w;
	}
	apply_tasks(a, UINT64_MAX);
	for (i = 0; i < later; i++)
		line_stack(a->line, (void *)(a->bytes + a->waiting[i].offset), a->waiting[i].len,
			   true);
	for (i = 0; i < a->nmarks; i++)
		place_mark(a, &a->marks[i]);
	if (a->offcpu)
		offcpu_round(a->offcpu);
	if (a->tables)
		tables_round(a->tables, now_monotonic());
	if (a->runtimes)
		runtimes_round(a->runtimes, now_monotonic());
	perfmaps_round(a->perfmaps, now_monotonic());
	identities_round(a->identities, now_monotonic());
	if (a->contexts)
		contexts_round(a->contexts, now_monotonic());
}

/* --- names ----------------------------------------------------------------------------------- */

static void naming_end(struct agent *a)
{
	naming_free(a->namings[0].naming);
	a->namings[0].naming = NULL;
}

static bool has_named(const struct agent *a)
{
	return a->nnamings && !a->namings[0].naming;
}

/* In order: the oldest one's turn first. */
static void name_on(struct agent *a, u64 now)
{
	if (a->nnamings && a->namings[0].naming && naming_step(a->namings[0].naming, now))
		naming_end(a);
}

void agent_name(struct agent *a, struct window *w)
{
	assert(a->nnamings <= NAMINGS_MAX);
	if (a->nnamings == NAMINGS_MAX)
		naming_end(a);
	a->namings[a->nnamings].w = w;
	a->namings[a->nnamings++].naming =
		naming_new(w, a->modules, a->perfmaps, now_monotonic() + NAMING_MAX_NS);
}

struct window *agent_named(struct agent *a, u64 wait_ns)
{
	struct window *w;

	if (!a->nnamings)
		return NULL;
	if (a->namings[0].naming && wait_ns) {
		naming_finish(a->namings[0].naming, now_monotonic() + wait_ns);
		naming_end(a);
	}
	if (!has_named(a))
		return NULL;
	w = a->namings[0].w;
	a->nnamings--;
	memmove(&a->namings[0], &a->namings[1], a->nnamings * sizeof(a->namings[0]));
	return w;
}

void agent_names_resolve(struct agent *a, struct window *w, u64 wait_ns)
{
	names_resolve(w, a->modules, a->perfmaps, wait_ns);
}

/* Program counters of the kernel side to the named ones of ours. */
static void update_stats(struct agent *a)
{
	static const struct {
		enum bpf_stat from;
		enum stat_id to;
	} pairs[] = {
		{ BPF_STAT_DUE, STAT_samples_due },
		{ BPF_STAT_LEFT_OUT, STAT_samples_passed_over },
		{ BPF_STAT_OUTSIDE, STAT_samples_outside },
		{ BPF_STAT_LOST_COUNTS_FULL, STAT_lost_counts_full },
		{ BPF_STAT_LOST_BUSY, STAT_lost_busy },
		{ BPF_STAT_LOST_SCRATCH_BUSY, STAT_lost_scratch_busy },
		{ BPF_STAT_PAGES_FETCHED, STAT_pages_fetched },
		{ BPF_STAT_PAGES_REFUSED, STAT_pages_refused },
		{ BPF_STAT_WAITS_DUE, STAT_waits_due },
		{ BPF_STAT_WAITS_SAMPLED_OUT, STAT_waits_sampled_out },
		{ BPF_STAT_WAIT_LOST_FULL, STAT_wait_lost_counts_full },
		{ BPF_STAT_WAIT_LOST_BUSY, STAT_wait_lost_busy },
		{ BPF_STAT_WAIT_LOST_SCRATCH, STAT_wait_lost_scratch },
		{ BPF_STAT_WAIT_LOST_EXIT, STAT_wait_lost_exit },
		{ BPF_STAT_WAIT_LOST_MOVED, STAT_wait_lost_moved },
		{ BPF_STAT_WAIT_NO_PLACE, STAT_waits_no_place },
		{ BPF_STAT_WAIT_NO_USER, STAT_waits_no_user },
		{ BPF_STAT_MARKS_LOST, STAT_marks_lost },
		{ BPF_STAT_WAIT_PAGES_FETCHED, STAT_pages_fetched },
		{ BPF_STAT_WAIT_PAGES_REFUSED, STAT_pages_refused },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		u64 now = sampler_stat(a->sampler, pairs[i].from),
		    *seen = &a->bpf_seen[pairs[i].from];

		stat_add(pairs[i].to, now - *seen);
		*seen = now;
	}
}

struct count_target {
	struct agent *agent;
	u64 epoch;
	u64 now_ns;
};

static void on_count(void *arg, const struct stack_key *key, const struct stack_count *count)
{
	struct count_target *t = arg;

	line_count(t->agent->line, t->epoch, key, count);
}

static void on_open_wait(void *arg, const struct stack_event *ev, size_t len,
			 const struct stack_count *count)
{
	struct count_target *t = arg;

	stat_add(STAT_waits_due, count->count);
	line_stack(t->agent->line, ev, len, true);
	line_count(t->agent->line, t->epoch, &ev->key, count);
	if (t->agent->with_marks || t->agent->timeline.pid)
		place_mark(t->agent, &(struct sample_mark){
					     .key = ev->key,
					     .time_ns = t->now_ns,
					     .epoch = t->epoch,
					     .ns = count->ns,
					     .n = (u32)count->count,
					     .tid = ev->tid,
				     });
}

/*
 * Waits that go on are charged to the epoch up to now; what they wait for next is the next's. tgid:
 * those of one process; 0: all.
 */
static void charge_open_waits(struct agent *a, u32 tgid, u64 now)
{
	struct count_target t = { a, sampler_epoch(a->sampler), now };
	int err;

	if (!a->offcpu || a->offcpu_paused)
		return;
	cycle(a); /* who lives now is known */
	err = offcpu_open_waits(a->offcpu, tgid, now, t.epoch, on_open_wait, &t);
	if (err)
		log_debug("waits that are open are not all charged: %s", strerror(-err));
}

/* What threads have not done by now they will do for nobody. */
static void count_pending(struct agent *a)
{
	u64 waits = a->offcpu ? offcpu_pending(a->offcpu) : 0;

	stat_add(STAT_lost_exit, sampler_pending(a->sampler));
	stat_add(STAT_waits_due, waits);
	stat_add(STAT_wait_lost_exit, waits);
}

/*
 * Ends the epoch and takes its counts in. Realtime is derived from the monotonic clock within a
 * window, so that a clock step cannot stretch it.
 */
static int turn_epoch(struct agent *a, u64 now, bool new_window, struct window **ret)
{
	struct count_target t = { a, sampler_epoch(a->sampler), now };
	u64 end = a->window_real_ns + (now - a->window_mono_ns), period;
	int err;

	/* What waited so far belongs to the window that ends. */
	if (new_window && a->walker)
		walker_flush(a->walker);
	if (new_window) {
		a->window_mono_ns = now;
		a->window_real_ns = now_realtime();
	}
	err = line_open_epoch(a->line, t.epoch + 1, new_window, a->window_real_ns);
	/* First: the flip waits for programs, and what is due meanwhile is of the next one. */
	update_stats(a);
	period = epoch_period(a);
	if (!err)
		err = sampler_flip(a->sampler);
	if (err)
		return log_err(err, "cannot end the window: %s", strerror(-err));
	/* Before all the work that follows, so that little goes unseen. */
	if (a->restart)
		a->restart = sampler_start(a->sampler) != 0;
	cycle(a);
	line_set_period(a->line, period);
	err = sampler_read_counts(a->sampler, on_count, &t);
	if (!err && a->offcpu)
		err = offcpu_read_counts(a->offcpu, on_count, &t);
	if (err)
		log_err(err, "cannot read the counts of a window: %s", strerror(-err));
	*ret = line_close_epoch(a->line, t.epoch, end);
	return 0;
}

/* One period holds for all samples of an epoch; the window is the same. */
static int restart_at(struct agent *a, u32 hz)
{
	struct window *none = NULL;
	int err;

	sampler_stop(a->sampler);
	sampler_set_hz(a->sampler, hz);
	a->restart = true;
	err = turn_epoch(a, now_monotonic(), false, &none);
	a->hz = hz;
	return err || a->restart ? -EIO : 0;
}

/* The rate that is wanted, or what the kernel allows of it. */
static void follow_rate(struct agent *a)
{
	u32 before = a->hz, hz = limit_rate(a, a->want_hz);

	if (a->no_cpu || (hz == before && !a->restart) || restart_at(a, hz))
		return;
	if (hz < before && hz < a->want_hz)
		log_warn(
			"sampling at %u Hz from now on: kernel.perf_event_max_sample_rate was lowered",
			hz);
	else if (hz > before && a->limited)
		log_info("sampling at %u Hz: kernel.perf_event_max_sample_rate allows it again",
			 hz);
	a->limited = hz < a->want_hz;
}

static u32 capacity(const struct agent *a)
{
	u32 n = sampler_capacity(a->sampler);

	return a->offcpu ? MIN(n, offcpu_capacity(a->offcpu)) : n;
}

static void housekeeping(struct agent *a, u64 now)
{
	/* In each cycle: until then the kernel drops what is over a lowered limit. */
	follow_rate(a);
	if (now - a->cpu_check_ns > CPU_CHECK_NS) {
		a->cpu_check_ns = now;
		if (sampler_follow_cpus(a->sampler))
			log_info("CPUs changed: %u are sampled now", sampler_ncpus(a->sampler));
		if (sideband_follow_cpus(a->sideband))
			processes_snapshot(a->procs);
	}
	if (now - a->trim_ns > TRIM_NS) {
		a->trim_ns = now;
		if (a->kallsyms)
			kallsyms_follow(a->kallsyms, a->code_lost);
		a->code_lost = false;
		processes_trim(a->procs, now);
		modules_trim(a->modules, MODULE_AGE_NS);
	}
	/* A map that fills before its window ends is emptied early, into the same window. */
	if (line_epoch_stacks(a->line, sampler_epoch(a->sampler)) > capacity(a) / 2) {
		struct window *none = NULL;

		turn_epoch(a, now_monotonic(), false, &none);
	}
}

/* Until the next cycle or tick, in the unit that epoll has. */
static int wait_ms(const struct agent *a, u64 now, u64 until_ns)
{
	u64 due = MIN(until_ns, a->cycle_ns);

	if (a->walker)
		due = MIN(due, walker_due(a->walker));
	due = MIN(due, now + (a->nnamings ? NAMING_PAUSE_NS : CYCLE_NS));
	return due > now ? (int)((due - now + 999999) / 1000000) : 0;
}

int agent_work(struct agent *a, u64 until_ns, int wake_fd)
{
	int err, woken = 0;

	if (wake_fd >= 0) {
		err = add_fd(a, wake_fd, 0);
		if (err)
			return log_err(err, "cannot wait for signals: %s", strerror(-err));
	}
	while (!woken && !has_named(a)) {
		struct epoll_event ev[4];
		u64 now = now_monotonic();
		int n, i;

		if (now >= until_ns)
			break;
		n = epoll_wait(a->epoll_fd, ev, ARRAY_SIZE(ev), wait_ms(a, now, until_ns));
		for (i = 0; i < n; i++) {
			woken |= wake_fd >= 0 && ev[i].data.fd == wake_fd;
			/*
			 * What is new meanwhile does not wake us, nor later: a stack that has been sent
			 * is counted only.
			 */
			if (ev[i].data.fd == sampler_fd(a->sampler))
				a->deaf_ns = now_monotonic() + NEWS_PAUSE_NS;
		}
		now = now_monotonic();
		if (a->walker && now >= walker_due(a->walker))
			walker_tick(a->walker, now);
		name_on(a, now);
		/* A tick alone is no reason to look at everything. */
		if (n <= 0 && now < a->cycle_ns)
			continue;
		a->cycle_ns = now < a->deaf_ns ? a->deaf_ns : now + CYCLE_NS;
		cycle(a);
		housekeeping(a, now_monotonic());
	}
	if (wake_fd >= 0)
		epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, wake_fd, NULL);
	return woken;
}

int agent_close_window(struct agent *a, bool finish, struct window **ret)
{
	u64 now = now_monotonic();
	int err;

	charge_open_waits(a, 0, now);
	if (finish) {
		a->restart = false;
		sampler_stop(a->sampler);
		if (a->offcpu)
			offcpu_stop(a->offcpu);
	}
	err = turn_epoch(a, now, true, ret);
	if (finish)
		count_pending(a);
	return err;
}

/* --- a time line of one process ------------------------------------------------------------------ */

static u64 marks_lost(const struct agent *a)
{
	return stat_get(STAT_marks_lost) + sampler_stat(a->sampler, BPF_STAT_MARKS_LOST) -
	       a->bpf_seen[BPF_STAT_MARKS_LOST];
}

int agent_timeline_begin(struct agent *a, u32 pid)
{
	struct window *none = NULL;
	struct process *p;
	u64 now;
	int err;

	if (a->with_marks)
		return -EOPNOTSUPP;
	if (a->timeline.w)
		return -EBUSY;
	cycle(a); /* who lives now is known */
	p = processes_pid(a->procs, pid);
	if (!pid || !p || p->exited)
		return -ESRCH;
	if (identities_of(a->identities, p)->left_out)
		return -EACCES;
	now = now_monotonic();
	a->timeline.w = window_new(now + a->clocks_apart_ns);
	if (!a->timeline.w)
		return -ENOMEM;
	a->timeline.pid = pid;
	line_watch(a->line, a->timeline.w, pid, p->start_ns, AGENT_TIMELINE_EVENTS);
	if (a->runtimes)
		runtimes_want(a->runtimes, p);
	/* A stack is sent once in an epoch: those that were are sent again in a new one. */
	err = turn_epoch(a, now, false, &none);
	if (err) {
		agent_timeline_drop(a);
		return err;
	}
	a->timeline.lost = marks_lost(a);
	sampler_mark_process(a->sampler, pid);
	return 0;
}

bool agent_timeline_alive(struct agent *a)
{
	const struct process *p = processes_pid(a->procs, a->timeline.pid);

	return p && !p->exited;
}

void agent_timeline_end(struct agent *a)
{
	struct window *w = a->timeline.w;
	u64 now = now_monotonic();

	if (!a->timeline.pid)
		return;
	charge_open_waits(a, a->timeline.pid, now);
	sampler_mark_process(a->sampler, 0);
	cycle(a);
	line_watch(a->line, NULL, 0, 0, 0);
	w->end_ns = now + a->clocks_apart_ns;
	a->timeline.lost = marks_lost(a) - a->timeline.lost;
	a->timeline.pid = 0;
	a->timeline.naming =
		naming_new(w, a->modules, a->perfmaps, now_monotonic() + NAMING_MAX_NS);
}

struct window *agent_timeline_take(struct agent *a, u64 *ret_lost)
{
	if (!a->timeline.w || a->timeline.pid ||
	    (a->timeline.naming && !naming_step(a->timeline.naming, now_monotonic())))
		return NULL;
	naming_free(a->timeline.naming);
	a->timeline.naming = NULL;
	*ret_lost = a->timeline.lost;
	return take_ptr(a->timeline.w);
}

void agent_timeline_drop(struct agent *a)
{
	if (!a->timeline.w)
		return;
	sampler_mark_process(a->sampler, 0);
	line_watch(a->line, NULL, 0, 0, 0);
	naming_free(a->timeline.naming);
	a->timeline.naming = NULL;
	a->timeline.pid = 0;
	window_free(take_ptr(a->timeline.w));
}

/* ---------------------------------------------------------------------------------------------- */

void agent_set_hz(struct agent *a, u32 hz)
{
	a->want_hz = hz;
	follow_rate(a);
}

u32 agent_hz(const struct agent *a)
{
	return a->hz;
}

static u64 rss_bytes(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long size, resident = 0;

	if (!read_file("/proc/self/statm", 256, &text, NULL))
		sscanf(text, "%lu %lu", &size, &resident);
	return (u64)resident * (u64)sysconf(_SC_PAGESIZE);
}

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

/* CPU time of looking at interpreters: it is part of our own threads' time. */
static double runtime_seconds(const struct agent *a)
{
	struct runtimes_figures rf = { .cpu_ns = 0 };
	struct walker_figures wf = { .cpu_ns = 0 };
	u64 ns = a->threads ? threads_cpu_ns(a->threads) : 0;

	if (a->runtimes)
		runtimes_figures(a->runtimes, &rf);
	if (a->walker)
		walker_figures(a->walker, &wf);
	return (double)(ns + rf.cpu_ns + wf.cpu_ns) / 1e9;
}

void agent_cost_aside(struct agent *a, double user_s, double system_s)
{
	a->aside_user_s = user_s;
	a->aside_system_s = system_s;
}

void agent_cost(struct agent *a, struct agent_cost *ret)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	*ret = (struct agent_cost){
		.user_s = seconds(&ru.ru_utime) - a->aside_user_s,
		.system_s = seconds(&ru.ru_stime) - a->aside_system_s,
		.bpf_s = (double)(sampler_stat(a->sampler, BPF_STAT_RUN_NS) +
				  sampler_work_ns(a->sampler)) /
			 1e9,
		.bpf_samples = sampler_stat(a->sampler, BPF_STAT_DUE),
		.map_bytes = sampler_map_bytes(a->sampler) +
			     (a->offcpu ? offcpu_map_bytes(a->offcpu) : 0) +
			     (a->threads ? threads_map_bytes(a->threads) : 0),
		.runtime_s = runtime_seconds(a),
		.rss_bytes = rss_bytes(),
		.stacks = a->stacks[STACK_ON_CPU],
		.wait_stacks = a->stacks[STACK_OFF_CPU],
	};
}

void agent_tables(const struct agent *a, struct tables_figures *ret)
{
	*ret = (struct tables_figures){ 0 };
	if (a->tables)
		tables_figures(a->tables, ret);
}

const char *agent_clock(const struct agent *a)
{
	return sampler_clock(a->sampler);
}

u32 agent_cpus(const struct agent *a)
{
	return sampler_ncpus(a->sampler);
}

u32 agent_programs(struct agent *a, struct agent_program *ret, u32 max)
{
	struct program_time times[AGENT_PROGRAMS_MAX];
	u32 n, i, waits;

	n = sampler_programs(a->sampler, times, MIN(max, (u32)AGENT_PROGRAMS_MAX));
	for (i = 0; i < n; i++)
		ret[i] = (struct agent_program){ .time = times[i] };
	max = MIN(max, (u32)AGENT_PROGRAMS_MAX) - n;
	if (a->threads) {
		u32 own = threads_programs(a->threads, times, max);

		for (i = 0; i < own; i++)
			ret[n + i] = (struct agent_program){ .time = times[i] };
		n += own;
		max -= own;
	}
	waits = a->offcpu ? offcpu_programs(a->offcpu, times, max) : 0;
	for (i = 0; i < waits; i++)
		ret[n + i] = (struct agent_program){ .time = times[i], .waits = true };
	return n + waits;
}

void agent_waits(struct agent *a, struct agent_waits *ret)
{
	struct offcpu_cost cost;

	*ret = (struct agent_waits){ .probability = 1, .refused = a->offcpu_refused };
	if (!a->offcpu)
		return;
	offcpu_cost(a->offcpu, &cost);
	*ret = (struct agent_waits){
		.mode = offcpu_mode_text(offcpu_mode(a->offcpu)),
		.sample_ns = offcpu_sampling(a->offcpu),
		.probability = offcpu_probability(a->offcpu),
		.switch_s = (double)cost.switch_ns / 1e9,
		.kept_s = (double)cost.kept_ns / 1e9,
		.stack_s = (double)cost.stack_ns / 1e9,
		.callback_s = (double)cost.work_ns / 1e9,
		.own_s = (double)cost.own_ns / 1e9,
		.callbacks = cost.work_runs,
		.switches = cost.switches,
		.paused = a->offcpu_paused,
	};
}

void agent_sample_waits(struct agent *a, u64 sample_ns)
{
	if (a->offcpu)
		offcpu_set_sampling(a->offcpu, sample_ns);
}

void agent_pause_waits(struct agent *a, bool paused)
{
	if (!a->offcpu || paused == a->offcpu_paused)
		return;
	if (paused) {
		charge_open_waits(a, 0, now_monotonic());
		offcpu_stop(a->offcpu);
	} else {
		start_offcpu(a);
	}
	a->offcpu_paused = paused;
}
