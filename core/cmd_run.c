// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `run`: the daemon. Each window: one profile per service into the store and to
 * the servers that are set. SIGTERM and SIGINT flush the window; SIGHUP rereads the file: what can
 * be changed in place is, else all is made anew, and made again as it was when that fails.
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
#include "match.h"
#include "notify.h"
#include "pprof.h"
#include "preflight.h"
#include "remote.h"
#include "report.h"
#include "sending.h"
#include "service.h"
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>

#define NAMES_STOP_NS (NSEC_PER_SEC / 2) /* for names of the last window */
#define STOP_SEND_NS  (2 * NSEC_PER_SEC)
#define PID_KEY_BYTES 32
#define IDLE_MS_MAX   60000
#define LARGE_BYTES   (1 << 20) /* memory of its own, which goes back when it is freed */
#define ANEW          1 /* instead of 0 or -errno: all is to be made from another configuration */

/* What is told of a window whose names are still being looked up. */
struct closed {
	struct report report;
	u64 period_ns;
};

/* What does not change while the process lives. */
struct life {
	const char *path; /* of the configuration */
	bool force;
	int signals;
	struct notify notify;
	struct remote_settings remote; /* what the server said last; all zero: nothing */
};

/* What is made from one configuration. */
struct daemon {
	struct life *life;
	struct config *config;
	struct config fresh; /* what to go on with, when work ended with ANEW */
	struct choice *choice;
	struct service_rules *rules; /* NULL: none */
	struct match_filter filter;
	struct agent_runtimes runtimes;
	struct agent *agent; /* NULL: profiling is off */
	struct store *store;
	struct sending *sending; /* NULL: nothing leaves the host */
	struct local *local;     /* NULL: there is no page */
	struct remote *remote;   /* NULL: nobody else has a say */
	int wake_fd;             /* signals, the page, the remote configuration */
	struct guard guard;
	struct cost_meter meter;
	struct report report; /* of the window under way, or of the one that goes out */
	struct closed closed[NAMINGS_MAX + 1]; /* oldest first */
	u32 nclosed;
	u64 windows;
	u64 begin_ns, window_ns;             /* the window under way */
	double aside_user_s, aside_system_s; /* what the page had taken when sampling began */
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

static int start_remote(struct daemon *d)
{
	const struct config *c = d->config;
	struct remote_options o = {
		.url = c->remote_url,
		.token_file = c->remote_token_file,
		.ca_file = c->remote_ca_file,
		.poll_ns = c->remote_poll_s * NSEC_PER_SEC,
	};

	return *c->remote_url ? remote_new(&o, &d->remote) : 0;
}

/* One descriptor for the agent to wait on besides its own. */
static int wait_for_all(struct daemon *d)
{
	struct epoll_event ev = { .events = EPOLLIN };

	d->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->wake_fd < 0 || epoll_ctl(d->wake_fd, EPOLL_CTL_ADD, d->life->signals, &ev) ||
	    (d->remote && epoll_ctl(d->wake_fd, EPOLL_CTL_ADD, remote_fd(d->remote), &ev)))
		return log_err(-errno, "cannot wait for signals: %s", strerror(errno));
	return local_watch(d->local, d->wake_fd);
}

/* What the file says of names and of who is wanted. */
static int read_identity(struct daemon *d, struct agent_identity *ret)
{
	const struct config *c = d->config;
	char err[512];
	const char *why = "";
	int rc = 0;

	d->filter = (struct match_filter){ 0 };
	if (*c->service_rules)
		rc = service_read(c->service_rules, &d->rules, err, sizeof(err));
	if (rc)
		return log_err(rc, "%s", err);
	/* Both were parsed when the file was read; what may be otherwise by now is a user. */
	rc = match_parse_list(c->filter_include, &d->filter.include, &why);
	if (!rc)
		rc = match_parse_list(c->filter_exclude, &d->filter.exclude, &why);
	if (rc)
		return log_err(rc, "[filter]: %s", why);
	*ret = (struct agent_identity){
		.rules = d->rules,
		.filter = d->filter.include.n || d->filter.exclude.n ? &d->filter : NULL,
		.min_age_ns = c->filter_min_age_s * NSEC_PER_SEC,
	};
	return 0;
}

static bool has_runtimes(const struct config *c)
{
	return c->python_stacks || *c->runtime_stacks || c->nruntimes;
}

static void start_guard(struct daemon *d)
{
	const struct config *c = d->config;
	struct guard_options go = {
		.budget = c->cpu_budget,
		.hz = c->sample_hz,
		.offcpu = c->offcpu || c->lock,
		.runtimes = has_runtimes(c),
		.min_ns = config_offcpu_min_ns(c),
	};

	guard_init(&d->guard, &go);
}

static int start_agent(struct daemon *d)
{
	const struct config *c = d->config;
	struct agent_options ao = {
		.hz = c->sample_hz,
		.kernel_frames = c->kernel_frames,
		.max_frames = c->max_frames,
		.with_cmdline = !c->strip_process_args,
		.offcpu = c->offcpu,
		.lock = c->lock,
		.offcpu_tables = c->offcpu_dwarf,
		.thread_context = c->thread_context,
		.offcpu_min_ns = config_offcpu_min_ns(c),
		.table_bytes = config_table_bytes(c),
	};
	char cache[PATH_MAX];
	int err;

	snprintf(cache, sizeof(cache), "%s/tables", c->store_path);
	ao.cache_dir = cache;
	err = read_identity(d, &ao.identity);
	if (!err)
		err = choice_new(c, &d->choice);
	if (err)
		return err;
	d->runtimes = choice_runtimes(d->choice);
	ao.runtimes = has_runtimes(c) ? &d->runtimes : NULL;
	err = agent_new(&ao, &d->agent);
	return err ? err : agent_start(d->agent);
}

static void tell_page(struct daemon *d)
{
	local_set(d->local, d->agent != NULL, (u32)(d->window_ns / NSEC_PER_SEC));
}

static void stop_sampling(struct daemon *d)
{
	cost_meter_fini(&d->meter);
	local_agent(d->local, NULL, d->config);
	agent_free(d->agent);
	d->agent = NULL;
	choice_free(d->choice);
	d->choice = NULL;
	service_free(d->rules);
	d->rules = NULL;
	tell_page(d);
}

/* How waits are seen, if they are; why not was told where it turned out. */
static void tell_waits(const struct daemon *d)
{
	struct agent_waits w;

	agent_waits(d->agent, &w);
	if (w.mode)
		log_info("waits of %.6g ms and more: %s", d->config->offcpu_min_ms, w.mode);
}

static int start_sampling(struct daemon *d)
{
	int err = start_agent(d);

	if (err) {
		stop_sampling(d);
		return err;
	}
	start_guard(d);
	cost_meter_init(&d->meter, d->agent, COST_PERIOD_NS);
	report_begin(&d->report);
	d->windows = 0;
	local_cpu_seconds(d->local, &d->aside_user_s, &d->aside_system_s);
	d->begin_ns = now_monotonic();
	log_info("sampling at %u Hz per CPU by %s; profiles every %u s in %s", agent_hz(d->agent),
		 agent_clock(d->agent), (u32)(d->window_ns / NSEC_PER_SEC), store_path(d->store));
	tell_waits(d);
	local_agent(d->local, d->agent, d->config);
	tell_page(d);
	return 0;
}

/* The server's word goes over the file's, but it switches on nothing that the file does not have. */
static bool is_wanted(const struct daemon *d)
{
	const struct remote_settings *r = &d->life->remote;

	return d->config->defined && (r->has_enabled ? r->enabled : d->config->enabled);
}

static u64 wanted_window(const struct daemon *d)
{
	const struct remote_settings *r = &d->life->remote;

	return (r->interval_s ? r->interval_s : d->config->upload_interval_s) * NSEC_PER_SEC;
}

static void tell_off(const struct daemon *d)
{
	if (d->config->defined && d->life->remote.has_enabled)
		log_info("profiling is off: the remote configuration says so");
	else
		log_info("profiling is off: '%s' has no [ebpf_profiler] section with enabled = "
			 "true; once it has, SIGHUP switches it on",
			 d->life->path);
}

static int daemon_start(struct daemon *d, struct life *life, struct config *c)
{
	int err;

	*d = (struct daemon){ .life = life, .config = c, .meter.fd = -1, .wake_fd = -1 };
	host_name(d->host, sizeof(d->host));
	d->window_ns = wanted_window(d);
	err = store_open(c->store_path, (u64)c->store_max_mb << 20, &d->store);
	if (!err)
		err = load_pid_key(c->store_path, d->pid_key);
	if (!err)
		err = sending_open(c, d->host, &d->sending);
	if (!err)
		err = local_open(c, d->sending, &d->local);
	if (!err)
		err = start_remote(d);
	if (!err)
		err = wait_for_all(d);
	if (err)
		return err;
	if (is_wanted(d))
		return start_sampling(d);
	tell_off(d);
	return 0;
}

/* anew: the next daemon takes over what could not be sent. */
static void daemon_stop(struct daemon *d, bool anew)
{
	stop_sampling(d);
	remote_free(d->remote);
	local_free(d->local);
	closep(&d->wake_fd);
	sending_close(d->sending, now_monotonic() + (anew ? 0 : STOP_SEND_NS));
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
	double user, system;
	struct cost c;

	local_cpu_seconds(d->local, &user, &system);
	agent_cost_aside(d->agent, user - d->aside_user_s, system - d->aside_system_s);
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

/* Says how we are, as READY or by itself. */
static void tell_status(struct daemon *d, void (*tell)(struct notify *n, const char *status))
{
	const struct report *r = &d->report;
	char text[NOTIFY_TEXT], cost[128] = "";

	if (!d->agent) {
		tell(&d->life->notify, "profiling is off");
		return;
	}
	if (r->cost.seconds > 0)
		cost_summary(&r->cost, cost, sizeof(cost));
	snprintf(text, sizeof(text), "sampling at %u Hz%s%s", agent_hz(d->agent),
		 *cost ? "; last window: " : "", cost);
	tell(&d->life->notify, text);
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
	if (!finish)
		tell_status(d, notify_status);
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

/* Closes the window when its time has come. */
static int sampling_work(struct daemon *d)
{
	int err;

	cost_meter_tick(&d->meter, now_monotonic());
	while (hand_out(d, 0))
		;
	if (now_monotonic() < d->begin_ns + d->window_ns)
		return 0;
	d->begin_ns += d->window_ns;
	err = end_window(d, false);
	/* A suspended host, or a machine too slow for its windows: no burst of empty ones. */
	if (now_monotonic() > d->begin_ns + d->window_ns)
		d->begin_ns = now_monotonic();
	return err;
}

/* Sleeps, or works, until something is to be done here. */
static int wait_for_work(struct daemon *d)
{
	u64 next = MIN(notify_next(&d->life->notify), local_next(d->local)), now;
	struct pollfd p = { .fd = d->wake_fd, .events = POLLIN };

	if (d->agent) {
		next = MIN(next, cost_meter_next(&d->meter));
		return agent_work(d->agent, MIN(d->begin_ns + d->window_ns, next), d->wake_fd);
	}
	now = now_monotonic();
	if (next > now)
		poll(&p, 1, (int)MIN((next - now) / 1000000 + 1, (u64)IDLE_MS_MAX));
	return 0;
}

static int can_run(const struct life *life, char *why, size_t size)
{
	return life->force ? preflight_check_forced(why, size) : preflight_check(why, size);
}

/* --- another configuration -------------------------------------------------------------------- */

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

/* The guard's levers as they are without it. */
static void reset_levers(struct daemon *d)
{
	start_guard(d);
	if (!d->agent)
		return;
	agent_set_hz(d->agent, d->config->sample_hz);
	agent_sample_waits(d->agent, 0);
	agent_pause_waits(d->agent, false);
	agent_set_runtime_share(d->agent, d->guard.share);
}

static void set_window(struct daemon *d, u64 ns)
{
	if (d->window_ns == ns)
		return;
	d->window_ns = ns;
	tell_page(d);
	log_info("profiles every %u s from now on", (u32)(ns / NSEC_PER_SEC));
}

/*
 * Window and switch as file and server have them now. What cannot be switched on stays off: it has
 * said why.
 */
static int follow(struct daemon *d)
{
	char why[512];
	int err = 0;

	set_window(d, wanted_window(d));
	if (is_wanted(d) == (d->agent != NULL))
		return 0;
	if (d->agent) {
		err = end_window(d, true);
		stop_sampling(d);
		tell_off(d);
		return err;
	}
	if (can_run(d->life, why, sizeof(why)))
		log_err(0, "%s", why);
	else
		start_sampling(d);
	return 0;
}

/* 0, or -errno, which ends the daemon. */
static int remote_work(struct daemon *d)
{
	struct remote_settings *r = &d->life->remote, s;
	int err;

	if (!d->remote || !remote_take(d->remote, &s) ||
	    (s.has_enabled == r->has_enabled && s.enabled == r->enabled &&
	     s.interval_s == r->interval_s))
		return 0;
	*r = s;
	log_info("remote configuration: enabled = %s, upload_interval_s = %u%s",
		 !s.has_enabled ? "(as the file says)"
		 : s.enabled    ? "true"
				: "false",
		 (u32)(wanted_window(d) / NSEC_PER_SEC),
		 s.enabled && !d->config->defined ? "; the file has no profiler to switch on" : "");
	err = follow(d);
	tell_status(d, notify_status);
	return err;
}

/* 0, ANEW, or -errno, which ends the daemon. */
static int reload(struct daemon *d)
{
	struct config *c = d->config;
	u32 hz = c->sample_hz;
	double budget = c->cpu_budget;
	int err = 0;

	notify_reloading(&d->life->notify);
	if (load_config(&d->fresh, d->life->path)) {
		stat_inc(STAT_config_refused);
		log_warn("keeping the configuration in force");
		tell_status(d, notify_ready);
		return 0;
	}
	if (!config_set_live(c, &d->fresh)) {
		log_info("configuration read again from '%s': starting anew with it",
			 d->life->path);
		if (d->agent)
			err = end_window(d, true);
		if (err)
			config_fini(&d->fresh);
		return err ? err : ANEW;
	}
	config_fini(&d->fresh);
	stat_inc(STAT_config_reloads);
	log_info("configuration read again from '%s'", d->life->path);
	if (c->sample_hz != hz || c->cpu_budget < budget || c->cpu_budget > budget) {
		reset_levers(d);
		log_info("sampling at %u Hz, cpu_budget = %.2f", c->sample_hz, c->cpu_budget);
	}
	err = follow(d);
	tell_status(d, notify_ready);
	return err;
}

/* Until SIGTERM or SIGINT (0), until all has to be made anew (ANEW), or an error. */
static int daemon_work(struct daemon *d)
{
	int err, sig;

	for (;;) {
		err = wait_for_work(d);
		if (err < 0)
			return err;
		local_work(d->local);
		err = d->agent ? sampling_work(d) : 0;
		if (!err)
			err = remote_work(d);
		if (err)
			return err;
		notify_alive(&d->life->notify, now_monotonic());
		sig = cmd_next_signal(d->life->signals);
		if (sig == SIGHUP) {
			err = reload(d);
			if (err)
				return err;
		} else if (sig) {
			notify_stopping(&d->life->notify, "storing and sending the last window");
			return d->agent ? end_window(d, true) : 0;
		}
	}
}

/* The new configuration, or the old one again. What `c` holds is then in force. */
static int start_anew(struct daemon *d, struct life *life, struct config *c)
{
	const struct remote_settings said = life->remote;
	struct config old = *c;
	int err;

	*c = d->fresh;
	/* What another server said, or one that has no say any more, is forgotten. */
	if (strcmp(c->remote_url, old.remote_url))
		life->remote = (struct remote_settings){ 0 };
	err = daemon_start(d, life, c);
	if (!err) {
		config_fini(&old);
		stat_inc(STAT_config_reloads);
		return 0;
	}
	stat_inc(STAT_config_refused);
	daemon_stop(d, true);
	config_fini(c);
	*c = old;
	life->remote = said;
	log_warn("keeping the configuration in force");
	return daemon_start(d, life, c);
}

static int run(struct life *life, struct config *c)
{
	struct daemon d;
	int err = daemon_start(&d, life, c);

	while (!err) {
		tell_status(&d, notify_ready);
		err = daemon_work(&d);
		if (err != ANEW)
			break;
		daemon_stop(&d, true);
		err = start_anew(&d, life, c);
	}
	daemon_stop(&d, false);
	return err;
}

/* ---------------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct life *life)
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
			life->path = optarg;
			break;
		case 'X':
			life->force = true;
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

int cmd_run(int argc, char **argv)
{
	struct life life = { .path = CONFIG_DEFAULT_PATH, .signals = -1 };
	struct config c;
	char why[512];
	int err;

	err = parse(argc, argv, &life);
	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	/* Else once a large buffer was freed, buffers up to its size stay on the heap of their thread. */
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	if (load_config(&c, life.path))
		return EXIT_USAGE;
	if (c.enabled && can_run(&life, why, sizeof(why))) {
		log_err(0, "%s", why);
		config_fini(&c);
		return EXIT_CANNOT_RUN;
	}
	notify_init(&life.notify);
	life.signals = cmd_signals(false);
	err = life.signals < 0 ? life.signals : run(&life, &c);
	closep(&life.signals);
	notify_fini(&life.notify);
	config_fini(&c);
	return err ? EXIT_FAILED : EXIT_DONE;
}
