// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `run`: the daemon. Each window: one profile per service into the store and to
 * the servers that are set. SIGTERM and SIGINT flush the window; SIGHUP rereads the file.
 */
#include "cmd.h"

#include "agent.h"
#include "choice.h"
#include "config.h"
#include "cost.h"
#include "fold.h"
#include "guard.h"
#include "local.h"
#include "log.h"
#include "pprof.h"
#include "preflight.h"
#include "report.h"
#include "sending.h"
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>

#define NAMES_STOP_NS (NSEC_PER_SEC / 2) /* for names of the last window */
#define STOP_SEND_NS  (2 * NSEC_PER_SEC)
#define PID_KEY_BYTES 32

/* What is told of a window whose names are still being looked up. */
struct closed {
	struct report report;
	u64 period_ns;
};

/* One life of the daemon with one configuration; a reload ends it and begins another. */
struct daemon {
	const struct config *config;
	struct choice *choice;
	struct agent_runtimes runtimes;
	struct agent *agent;
	struct store *store;
	struct sending *sending; /* NULL: nothing leaves the host */
	struct local *local;     /* NULL: there is no page */
	int wake_fd;             /* signals and the page */
	struct guard guard;
	struct cost_meter meter;
	struct report report; /* of the window under way, or of the one that goes out */
	struct closed closed[NAMINGS_MAX + 1]; /* oldest first */
	u32 nclosed;
	u64 windows;
	char host[256];
	u8 pid_key[PID_KEY_BYTES];
	struct log_limit losses;
};

static const char usage[] = "usage: ebpfprofiler [run] [-c FILE] [--force] [--verbose]\n";

/* Made once and kept, so that a process keeps its hash over restarts of the daemon. */
static int load_pid_key(const char *store_path, u8 key[PID_KEY_BYTES])
{
	char path[PATH_MAX];
	_cleanup_free_ char *data = NULL;
	size_t len;
	int err;

	snprintf(path, sizeof(path), "%s/pid.key", store_path);
	err = read_file(path, PID_KEY_BYTES, &data, &len);
	if (!err && len == PID_KEY_BYTES) {
		memcpy(key, data, PID_KEY_BYTES);
		return 0;
	}
	if (err && err != -ENOENT)
		return log_err(err, "cannot read '%s': %s", path, strerror(-err));
	if (getrandom(key, PID_KEY_BYTES, 0) != PID_KEY_BYTES)
		return log_err(-EIO, "cannot make a key for process ids: no random bytes");
	err = write_file_atomic(path, key, PID_KEY_BYTES, 0600);
	return err ? log_err(err, "cannot write '%s': %s", path, strerror(-err)) : 0;
}

/* One descriptor for the agent to wait on besides its own. */
static int wait_for_both(struct daemon *d, int signals)
{
	struct epoll_event ev = { .events = EPOLLIN };

	d->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->wake_fd < 0 || epoll_ctl(d->wake_fd, EPOLL_CTL_ADD, signals, &ev))
		return log_err(-errno, "cannot wait for signals: %s", strerror(errno));
	return local_watch(d->local, d->wake_fd);
}

static int daemon_start(struct daemon *d, const struct config *c, int signals)
{
	struct agent_options ao = {
		.hz = c->sample_hz,
		.kernel_frames = c->kernel_frames,
		.max_frames = c->max_frames,
		.with_cmdline = !c->strip_process_args,
		.offcpu = c->offcpu,
		.lock = c->lock,
		.offcpu_tables = c->offcpu_dwarf,
		.offcpu_min_ns = config_offcpu_min_ns(c),
		.table_bytes = config_table_bytes(c),
	};
	struct guard_options go = {
		.budget = c->cpu_budget,
		.hz = c->sample_hz,
		.offcpu = c->offcpu || c->lock,
		.runtimes = c->python_stacks || *c->runtime_stacks || c->nruntimes,
		.min_ns = config_offcpu_min_ns(c),
	};
	char cache[PATH_MAX];
	int err;

	snprintf(cache, sizeof(cache), "%s/tables", c->store_path);
	ao.cache_dir = cache;
	*d = (struct daemon){ .config = c, .meter.fd = -1, .wake_fd = -1 };
	guard_init(&d->guard, &go);
	strcpy(d->host, "localhost");
	gethostname(d->host, sizeof(d->host) - 1);
	err = store_open(c->store_path, (u64)c->store_max_mb << 20, &d->store);
	if (!err)
		err = load_pid_key(c->store_path, d->pid_key);
	if (!err)
		err = sending_open(c, d->host, &d->sending);
	if (!err)
		err = local_open(c, &d->local);
	if (!err)
		err = wait_for_both(d, signals);
	if (!err)
		err = choice_new(c, &d->choice);
	if (!err) {
		d->runtimes = choice_runtimes(d->choice);
		ao.runtimes = go.runtimes ? &d->runtimes : NULL;
		err = agent_new(&ao, &d->agent);
	}
	if (!err)
		err = agent_start(d->agent);
	if (err)
		return err;
	cost_meter_init(&d->meter, d->agent, COST_PERIOD_NS);
	report_begin(&d->report);
	return 0;
}

static void daemon_stop(struct daemon *d)
{
	cost_meter_fini(&d->meter);
	agent_free(d->agent);
	local_free(d->local);
	closep(&d->wake_fd);
	choice_free(d->choice);
	sending_close(d->sending, now_monotonic() + STOP_SEND_NS);
	store_free(d->store);
}

static void to_store(struct daemon *d, const struct window *w, const struct profile *p,
		     const struct closed *c)
{
	struct pprof_options o = {
		.names = true,
		.period_ns = c->period_ns,
		.host = d->host,
		.plain_pid = true, /* nothing leaves the host here */
		.labels = (const char *const *)d->config->labels,
		.nlabels = d->config->nlabels,
		.comments = c->report.lines,
		.ncomments = c->report.nlines,
	};
	_cleanup_free_ u8 *data = NULL;
	size_t len;

	if (pprof_encode(w, p, &o, &data, &len)) {
		stat_inc(STAT_no_memory);
		return;
	}
	if (!store_put(d->store, w->start_ns, p->type->name, p->service, data, len))
		local_stored(d->local, w, p, store_last(d->store));
}

static void to_servers(struct daemon *d, const struct window *w, const struct profile *p,
		       const struct closed *c)
{
	struct sending_source from = {
		.host = d->host,
		.pid_key = d->pid_key,
		.period_ns = c->period_ns,
		.comments = c->report.lines,
		.ncomments = c->report.nlines,
	};

	sending_put(d->sending, w, p, &from);
}

/* What a lever stands at, for people. */
static void put_lever(const struct guard *g, enum guard_side side, char *dst, size_t size)
{
	switch (side) {
	case GUARD_CPU:
		snprintf(dst, size, "sampling at %u Hz", g->hz);
		break;
	case GUARD_OFFCPU:
		if (g->sample_ns)
			snprintf(dst, size, "sampling waits shorter than %.6g ms",
				 (double)g->sample_ns / 1e6);
		else
			snprintf(dst, size, "keeping every wait");
		break;
	default:
		snprintf(dst, size, "walking %u %% of runtimes' stacks", g->share);
	}
}

static void tell_move(const struct daemon *d, enum guard_move move, enum guard_side side)
{
	const struct cost *c = &d->report.cost;
	const struct guard *g = &d->guard;
	char lever[64];

	put_lever(g, side, lever, sizeof(lever));
	switch (move) {
	case GUARD_DOWN:
		log_warn(
			"profiling used %.2f %% of a CPU, more than cpu_budget = %.2f; %s from now on",
			c->total, g->o.budget, lever);
		break;
	case GUARD_UP:
		log_info("%s again", lever);
		break;
	case GUARD_PAUSE:
		log_warn(
			"looking at each context switch used %.2f %% of a CPU, more than cpu_budget = "
			"%.2f; off-CPU profiling pauses",
			c->switches, g->o.budget);
		break;
	case GUARD_RESUME:
		log_info("off-CPU profiling goes on, %s", lever);
		break;
	case GUARD_HELPLESS:
		log_warn(
			"profiling used %.2f %% of a CPU, more than cpu_budget = %.2f, and samples "
			"as little as it can",
			c->total, g->o.budget);
		break;
	default:
		break;
	}
}

static void apply_guard(struct daemon *d)
{
	const struct cost *c = &d->report.cost;
	struct guard_cost cost = { .switches = c->switches };
	struct guard *g = &d->guard;
	enum guard_side side = GUARD_CPU;
	enum guard_move move;

	memcpy(cost.side, c->sides, sizeof(cost.side));
	move = guard_window(g, &cost, &side);
	if (c->total > g->o.budget)
		stat_inc(STAT_cpu_over_budget);
	tell_move(d, move, side);
	if (move == GUARD_PAUSE || move == GUARD_RESUME)
		agent_pause_waits(d->agent, g->paused);
	else if (move == GUARD_NONE || move == GUARD_HELPLESS)
		return;
	else if (side == GUARD_CPU)
		agent_set_hz(d->agent, g->hz);
	else if (side == GUARD_OFFCPU)
		agent_sample_waits(d->agent, g->sample_ns);
	else
		agent_set_runtime_share(d->agent, g->share);
}

/* For `doctor --cost`. What cannot be written is not worth a word: profiles go there as well. */
static void save_cost(const struct daemon *d)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" COST_FILE, d->config->store_path);
	cost_save(&d->report.cost, path);
}

/* The window's cost; hz is the rate that held until now. */
static void measure(struct daemon *d, const struct window *w, u32 hz)
{
	struct cost c;

	agent_cost_aside(d->agent, local_cpu_seconds(d->local));
	cost_meter_end(&d->meter, &c);
	c.hz = hz;
	c.configured_hz = d->config->sample_hz;
	c.budget = d->config->cpu_budget;
	c.share = d->guard.share;
	report_end(&d->report, &c, w, config_offcpu_min_ns(d->config));
}

/* Hands out the oldest of the windows that have their names by now, or within wait_ns. */
static bool hand_out(struct daemon *d, u64 wait_ns)
{
	struct window *w = agent_named(d->agent, wait_ns);
	struct closed *c = &d->closed[0];
	u32 i;

	if (!w)
		return false;
	assert(d->nclosed);
	for (i = 0; i < w->nprofiles; i++) {
		report_profile(&c->report, w, &w->profiles[i]);
		to_store(d, w, &w->profiles[i], c);
		to_servers(d, w, &w->profiles[i], c);
	}
	window_free(w);
	d->nclosed--;
	memmove(&d->closed[0], &d->closed[1], d->nclosed * sizeof(d->closed[0]));
	for (i = 0; i < d->nclosed; i++)
		report_moved(&d->closed[i].report);
	return true;
}

/* Ends a window; when `finish`, sampling ends with it. It goes out when its names are there. */
static int end_window(struct daemon *d, bool finish)
{
	struct closed *c = &d->closed[d->nclosed];
	u32 hz = agent_hz(d->agent);
	struct window *w = NULL;
	char text[1024];
	int err = agent_close_window(d->agent, finish, &w);

	if (err)
		return err;
	measure(d, w, hz);
	local_status(d->local, &d->report, w, d->agent);
	report_line(&d->report, w, text, sizeof(text));
	log_info("%s", text);
	report_changes(&d->report, text, sizeof(text));
	if (strcmp(text, "none") && log_limit(&d->losses, NULL))
		log_info("counters of this window: %s", text);
	save_cost(d);
	/* The first one has the making of tables in it, which no lever acts on. */
	if (!finish && d->windows++)
		apply_guard(d);
	c->report = d->report;
	report_moved(&c->report);
	c->period_ns = report_period(w, hz);
	d->nclosed++;
	agent_name(d->agent, w);
	report_begin(&d->report);
	/* One too many, or the last ones: now. */
	while (hand_out(d, finish ? NAMES_STOP_NS : 0))
		;
	return 0;
}

/* Until SIGTERM/SIGINT (returns 0), SIGHUP (1), or an error. */
static int daemon_work(struct daemon *d, int signals)
{
	u64 window = (u64)d->config->upload_interval_s * NSEC_PER_SEC;
	u64 end = now_monotonic() + window;
	int err, sig;

	for (;;) {
		u64 next = MIN(cost_meter_next(&d->meter), local_next(d->local));

		err = agent_work(d->agent, MIN(end, next), d->wake_fd);
		if (err < 0)
			return err;
		local_work(d->local);
		cost_meter_tick(&d->meter, now_monotonic());
		while (hand_out(d, 0))
			;
		sig = cmd_next_signal(signals);
		if (sig) {
			err = end_window(d, true);
			return err ? err : sig == SIGHUP;
		}
		if (now_monotonic() < end)
			continue;
		end += window;
		err = end_window(d, false);
		if (err)
			return err;
		/* A suspended host, or a machine too slow for its windows: no burst of empty ones. */
		if (now_monotonic() > end)
			end = now_monotonic() + window;
	}
}

static int parse(int argc, char **argv, const char **path, bool *force)
{
	static const struct option longs[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "force", no_argument, NULL, 'X' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:vh", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			*path = optarg;
			break;
		case 'X':
			*force = true;
			break;
		case 'v':
			log_init(LOG_LEVEL_DEBUG);
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (optind < argc) {
		log_err(0, "unexpected argument '%s'", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

/* Reads the file into fresh defaults; says what is wrong. */
static int load_config(struct config *c, const char *path)
{
	char why[1024];
	int err = config_init(c);

	if (err)
		return log_err(err, "cannot read '%s': out of memory", path);
	err = config_read(c, path, why, sizeof(why));
	if (err) {
		log_err(err, "%s", why);
		config_fini(c);
	}
	return err;
}

/* A new configuration after SIGHUP, or the old one when the new file is bad. */
static void reload(struct config *c, const char *path)
{
	struct config fresh;

	if (load_config(&fresh, path)) {
		log_warn("keeping the configuration in force");
		return;
	}
	config_fini(c);
	*c = fresh;
	log_info("configuration read again from '%s'", path);
}

/* How waits are seen, if they are; why not was told where it turned out. */
static void tell_waits(const struct daemon *d)
{
	struct agent_waits w;

	agent_waits(d->agent, &w);
	if (w.mode)
		log_info("waits of %.6g ms and more: %s", d->config->offcpu_min_ms, w.mode);
}

static int run(struct config *c, const char *path, int signals)
{
	struct daemon d;
	int err;

	do {
		if (!c->enabled) {
			log_info(
				"profiling is off: '%s' has no [ebpf_profiler] section with enabled = true",
				path);
			return 0;
		}
		err = daemon_start(&d, c, signals);
		if (!err) {
			log_info("sampling at %u Hz per CPU by %s; profiles every %u s in %s",
				 agent_hz(d.agent), agent_clock(d.agent), c->upload_interval_s,
				 store_path(d.store));
			tell_waits(&d);
			err = daemon_work(&d, signals);
		}
		daemon_stop(&d);
		if (err == 1)
			reload(c, path);
	} while (err == 1);
	return err;
}

int cmd_run(int argc, char **argv)
{
	const char *path = CONFIG_DEFAULT_PATH;
	bool force = false;
	struct config c;
	char why[512];
	int err, signals;

	err = parse(argc, argv, &path, &force);
	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	if (load_config(&c, path))
		return EXIT_USAGE;
	err = force ? preflight_check_forced(why, sizeof(why)) : preflight_check(why, sizeof(why));
	if (err && c.enabled) {
		log_err(0, "%s", why);
		config_fini(&c);
		return EXIT_CANNOT_RUN;
	}
	signals = cmd_signals(false);
	err = signals < 0 ? signals : run(&c, path, signals);
	closep(&signals);
	config_fini(&c);
	return err ? EXIT_FAILED : EXIT_DONE;
}
