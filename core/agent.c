// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See agent.h. */
#include "agent.h"

#include "kallsyms.h"
#include "line.h"
#include "log.h"
#include "module.h"
#include "process.h"
#include "sampler.h"
#include "sideband.h"
#include "stat.h"
#include "tables.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define CYCLE_NS       (NSEC_PER_SEC / 4)
#define NEWS_PAUSE_NS  (NSEC_PER_SEC / 20)
#define CPU_CHECK_NS   NSEC_PER_SEC
#define TRIM_NS        NSEC_PER_SEC
#define SIDEBAND_BYTES (512u << 10) /* a CPU; holds about 3,000 execs' worth of a cycle */
#define SYMBOL_BYTES   (64u << 20)
#define MODULE_AGE_NS  (600 * NSEC_PER_SEC)
#define PENDING_MAX    (64u << 20)

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
	struct tables *tables;
	struct line *line;
	int epoll_fd;
	u32 hz, want_hz;
	u8 *bytes;
	u32 nbytes, bytes_cap;
	struct waiting *waiting;
	u32 nwaiting, waiting_cap;
	u64 cpu_check_ns, trim_ns;
	u64 window_mono_ns, window_real_ns; /* start of the window */
	u64 bpf_seen[BPF_STAT_MAX];
};

static int add_fd(struct agent *a, int fd, u32 how)
{
	struct epoll_event ev = { .events = EPOLLIN | how, .data.fd = fd };

	return epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static u32 kernel_rate_limit(u32 hz)
{
	_cleanup_free_ char *text = NULL;
	unsigned long max;

	if (read_file("/proc/sys/kernel/perf_event_max_sample_rate", 64, &text, NULL))
		return hz;
	max = strtoul(text, NULL, 10);
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

int agent_new(const struct agent_options *o, struct agent **ret)
{
	struct sampler_options so = {
		.kernel_frames = o->kernel_frames,
		.max_frames = o->max_frames,
		.only_pids = o->only_pids,
		.news_pause_ns = o->table_bytes ? NEWS_PAUSE_NS : 0,
	};
	struct line_options lo = { .with_cmdline = o->with_cmdline, .service = o->service };
	struct agent *a = calloc(1, sizeof(*a));
	int err = -ENOMEM;

	if (!a)
		return log_err(-ENOMEM, "cannot start: out of memory");
	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	a->want_hz = o->hz;
	a->hz = kernel_rate_limit(o->hz);
	if (a->hz < o->hz)
		log_warn(
			"sampling at %u Hz instead of %u: kernel.perf_event_max_sample_rate allows no more",
			a->hz, o->hz);
	so.hz = a->hz;
	lo.period_ns = NSEC_PER_SEC / a->hz;
	a->modules = modules_new(SYMBOL_BYTES);
	a->procs = a->modules ? processes_new(a->modules, "/proc", o->with_cmdline) : NULL;
	if (a->epoll_fd < 0 || !a->procs) {
		log_err(err, "cannot start: out of memory or descriptors");
		goto fail;
	}
	if (o->kernel_frames && kallsyms_new(NULL, &a->kallsyms))
		log_warn("kernel functions stay without names: /proc/kallsyms shows no addresses; "
			 "needs CAP_SYSLOG, see kernel.kptr_restrict");
	err = sampler_new(&so, &a->sampler);
	if (err)
		goto fail;
	/* First the side band, then /proc: what happens in between is in both, never in neither. */
	err = sideband_new(SIDEBAND_BYTES, &a->sideband);
	if (err)
		goto fail;
	err = processes_snapshot(a->procs);
	if (err) {
		log_err(err, "cannot read /proc: %s", strerror(-err));
		goto fail;
	}
	if (o->table_bytes)
		a->tables = make_tables(a, o->table_bytes);
	a->line = line_new(a->procs, a->tables, a->kallsyms, &lo);
	err = a->line && (a->tables || !o->table_bytes) ? 0 : -ENOMEM;
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
	if (!a)
		return;
	tables_free(a->tables);
	sampler_free(a->sampler);
	sideband_free(a->sideband);
	line_free(a->line);
	processes_free(a->procs);
	modules_free(a->modules);
	kallsyms_free(a->kallsyms);
	closep(&a->epoll_fd);
	free(a->bytes);
	free(a->waiting);
	free(a);
}

int agent_add_pid(struct agent *a, u32 pid)
{
	int err = sampler_add_pid(a->sampler, pid);

	return err ? log_err(err, "cannot select process %u: %s", pid, strerror(-err)) : 0;
}

int agent_start(struct agent *a)
{
	int err;

	a->window_mono_ns = now_monotonic();
	a->window_real_ns = now_realtime();
	err = line_open_epoch(a->line, sampler_epoch(a->sampler), true, a->window_real_ns);
	return err ? err : sampler_start(a->sampler);
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
	a->waiting[a->nwaiting++] = (struct waiting){ ev->time_ns, a->nbytes, size };
	memcpy(a->bytes + a->nbytes, ev, len);
	a->nbytes += size;
}

static int by_time(const void *x, const void *y)
{
	const struct waiting *a = x, *b = y;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void apply_tasks(struct agent *a, u64 before_ns)
{
	const struct task_event *ev;

	while ((ev = sideband_next(a->sideband, before_ns)))
		processes_event(a->procs, ev);
}

/* One round: all stacks that wait, each after the process events older than it. */
static void cycle(struct agent *a)
{
	u32 i, later = 0;

	a->nbytes = 0;
	a->nwaiting = 0;
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
	if (a->tables)
		tables_round(a->tables, now_monotonic());
}

/* Program counters of the kernel side to the named ones of ours. */
static void update_stats(struct agent *a)
{
	static const struct {
		enum bpf_stat from;
		enum stat_id to;
	} pairs[] = {
		{ BPF_STAT_DUE, STAT_samples_due },
		{ BPF_STAT_LOST_COUNTS_FULL, STAT_lost_counts_full },
		{ BPF_STAT_LOST_BUSY, STAT_lost_busy },
		{ BPF_STAT_LOST_SCRATCH_BUSY, STAT_lost_scratch_busy },
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
};

static void on_count(void *arg, const struct stack_key *key, const struct stack_count *count)
{
	struct count_target *t = arg;

	line_count(t->agent->line, t->epoch, key, count);
}

/*
 * Ends the epoch and takes its counts in. Realtime is derived from the monotonic clock within a
 * window, so that a clock step cannot stretch it.
 */
static int turn_epoch(struct agent *a, bool new_window, struct window **ret)
{
	struct count_target t = { a, sampler_epoch(a->sampler) };
	u64 now = now_monotonic(), end = a->window_real_ns + (now - a->window_mono_ns);
	int err;

	if (new_window) {
		a->window_mono_ns = now;
		a->window_real_ns = now_realtime();
	}
	err = line_open_epoch(a->line, t.epoch + 1, new_window, a->window_real_ns);
	if (!err)
		err = sampler_flip(a->sampler);
	if (err)
		return log_err(err, "cannot end the window: %s", strerror(-err));
	cycle(a);
	err = sampler_read_counts(a->sampler, on_count, &t);
	if (err)
		log_err(err, "cannot read the counts of a window: %s", strerror(-err));
	update_stats(a);
	*ret = line_close_epoch(a->line, t.epoch, end);
	return 0;
}

static void housekeeping(struct agent *a, u64 now)
{
	if (now - a->cpu_check_ns > CPU_CHECK_NS) {
		a->cpu_check_ns = now;
		if (sampler_follow_cpus(a->sampler))
			log_info("CPUs changed: %u are sampled now", sampler_ncpus(a->sampler));
		if (sideband_follow_cpus(a->sideband))
			processes_snapshot(a->procs);
	}
	if (now - a->trim_ns > TRIM_NS) {
		a->trim_ns = now;
		processes_trim(a->procs, now);
		modules_trim(a->modules, MODULE_AGE_NS);
	}
	/* A map that fills before its window ends is emptied early, into the same window. */
	if (line_epoch_stacks(a->line, sampler_epoch(a->sampler)) >
	    sampler_capacity(a->sampler) / 2) {
		struct window *none = NULL;

		turn_epoch(a, false, &none);
	}
}

int agent_work(struct agent *a, u64 until_ns, int wake_fd)
{
	int err, woken = 0;

	if (wake_fd >= 0) {
		err = add_fd(a, wake_fd, 0);
		if (err)
			return log_err(err, "cannot wait for signals: %s", strerror(-err));
	}
	while (!woken) {
		struct epoll_event ev[4];
		u64 now = now_monotonic();
		int n, i;

		if (now >= until_ns)
			break;
		n = epoll_wait(a->epoll_fd, ev, ARRAY_SIZE(ev),
			       (int)((MIN(until_ns - now, CYCLE_NS) + 999999) / 1000000));
		for (i = 0; i < n; i++)
			woken |= wake_fd >= 0 && ev[i].data.fd == wake_fd;
		cycle(a);
		housekeeping(a, now_monotonic());
	}
	if (wake_fd >= 0)
		epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, wake_fd, NULL);
	return woken;
}

int agent_close_window(struct agent *a, bool finish, struct window **ret)
{
	u32 hz = kernel_rate_limit(a->want_hz);
	int err;

	if (hz < a->hz && hz < a->want_hz)
		log_warn(
			"sampling at %u Hz from now on: kernel.perf_event_max_sample_rate was lowered",
			hz);
	/* Another rate begins with another window: one period holds for all samples of a window. */
	if (finish || hz != a->hz)
		sampler_stop(a->sampler);
	err = turn_epoch(a, true, ret);
	if (err || finish || hz == a->hz)
		return err;
	sampler_set_hz(a->sampler, hz);
	err = sampler_start(a->sampler);
	if (err)
		return err;
	a->hz = hz;
	line_set_period(a->line, NSEC_PER_SEC / hz);
	return 0;
}

void agent_set_hz(struct agent *a, u32 hz)
{
	a->want_hz = hz;
}

u32 agent_hz(const struct agent *a)
{
	return a->hz;
}

struct modules *agent_modules(struct agent *a)
{
	return a->modules;
}

static u64 rss_bytes(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long size, resident = 0;

	if (!read_file("/proc/self/statm", 256, &text, NULL))
		sscanf(text, "%lu %lu", &size, &resident);
	return (u64)resident * (u64)sysconf(_SC_PAGESIZE);
}

void agent_cost(struct agent *a, struct agent_cost *ret)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	ret->user_s = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
		      (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
	ret->rss_bytes = rss_bytes();
	ret->bpf_s = (double)sampler_stat(a->sampler, BPF_STAT_RUN_NS) / 1e9;
	ret->bpf_samples = sampler_stat(a->sampler, BPF_STAT_DUE);
	ret->map_bytes = sampler_map_bytes(a->sampler);
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
