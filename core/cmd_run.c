// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `run`: the daemon. Each window: one profile per service into the store and, when a
 * URL is set, to the server. SIGTERM and SIGINT flush the window; SIGHUP rereads the file.
 */
#include "cmd.h"

#include "agent.h"
#include "config.h"
#include "fold.h"
#include "guard.h"
#include "log.h"
#include "names.h"
#include "pprof.h"
#include "preflight.h"
#include "report.h"
#include "store.h"
#include "upload.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define NAMES_WAIT_NS (2 * NSEC_PER_SEC)
#define STOP_SEND_NS  (2 * NSEC_PER_SEC)
#define PID_KEY_BYTES 32
#define RETRY_MIN_NS  NSEC_PER_SEC
#define RETRY_MAX_NS  (300 * NSEC_PER_SEC)
#define SEND_TIMEOUT  (30 * NSEC_PER_SEC)

/* One life of the daemon with one configuration; a reload ends it and begins another. */
struct daemon {
	const struct config *config;
	struct agent *agent;
	struct store *store;
	struct upload *upload;
	struct guard guard;
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

static int start_upload(struct daemon *d)
{
	const struct config *c = d->config;
	char spool[PATH_MAX];
	struct upload_options o = {
		.url = c->upload_url,
		.token_file = c->upload_token_file,
		.ca_file = c->upload_ca_file,
		.proxy = c->upload_proxy,
		.host = d->host,
		.spool_path = spool,
		.spool_bytes = (u64)c->upload_spool_mb << 20,
		.timeout_ns = SEND_TIMEOUT,
		.retry_min_ns = RETRY_MIN_NS,
		.retry_max_ns = RETRY_MAX_NS,
	};

	if (!*c->upload_url)
		return 0;
	snprintf(spool, sizeof(spool), "%s/spool", c->store_path);
	return upload_new(&o, &d->upload);
}

static int daemon_start(struct daemon *d, const struct config *c)
{
	struct agent_options ao = {
		.hz = c->sample_hz,
		.kernel_frames = c->kernel_frames,
		.max_frames = c->max_frames,
		.with_cmdline = !c->strip_process_args,
		.table_bytes = c->dwarf_unwind ? (u64)c->table_memory_mb << 20 : 0,
	};
	char cache[PATH_MAX];
	int err;

	snprintf(cache, sizeof(cache), "%s/tables", c->store_path);
	ao.cache_dir = cache;
	*d = (struct daemon){
		.config = c,
		.guard = { .hz = c->sample_hz, .max_hz = c->sample_hz, .budget = c->cpu_budget },
	};
	strcpy(d->host, "localhost");
	gethostname(d->host, sizeof(d->host) - 1);
	err = store_open(c->store_path, (u64)c->store_max_mb << 20, &d->store);
	if (!err)
		err = load_pid_key(c->store_path, d->pid_key);
	if (!err)
		err = start_upload(d);
	if (!err)
		err = agent_new(&ao, &d->agent);
	if (!err)
		err = agent_start(d->agent);
	return err;
}

static void daemon_stop(struct daemon *d)
{
	agent_free(d->agent);
	upload_free(d->upload, now_monotonic() + STOP_SEND_NS);
	store_free(d->store);
}

static void to_store(struct daemon *d, const struct window *w, const struct profile *p,
		     const struct report *r, u64 period_ns)
{
	struct pprof_options o = {
		.names = true,
		.period_ns = period_ns,
		.host = d->host,
		.plain_pid = true, /* nothing leaves the host here */
		.labels = (const char *const *)d->config->labels,
		.nlabels = d->config->nlabels,
		.comments = r->lines,
		.ncomments = r->nlines,
	};
	_cleanup_free_ u8 *data = NULL;
	size_t len;

	if (pprof_encode(w, p, &o, &data, &len)) {
		stat_inc(STAT_no_memory);
		return;
	}
	store_put(d->store, w->start_ns, p->type->name, p->service, data, len);
}

static void to_server(struct daemon *d, const struct window *w, const struct profile *p,
		      const struct report *r, u64 period_ns)
{
	struct pprof_options o = {
		.names = !strcmp(d->config->upload_symbolize, "host"),
		.time_is_end = true,
		.period_ns = period_ns,
		.host = d->host,
		.plain_pid = d->config->plain_pid,
		.pid_key = d->pid_key,
		.labels = (const char *const *)d->config->labels,
		.nlabels = d->config->nlabels,
		.comments = r->lines,
		.ncomments = r->nlines,
	};
	u8 *data;
	size_t len;

	if (!d->upload)
		return;
	if (pprof_encode(w, p, &o, &data, &len)) {
		stat_inc(STAT_no_memory);
		return;
	}
	upload_submit(d->upload, p->service, p->container, p->type->name,
		      w->start_ns, data, len);
}

static void apply_guard(struct daemon *d, const struct report *r)
{
	double percent = r->user_percent + r->bpf_percent;
	u32 before = d->guard.hz, after = guard_window(&d->guard, percent);

	if (after == before)
		return;
	agent_set_hz(d->agent, after);
	if (after < before) {
		stat_inc(STAT_cpu_over_budget);
		log_warn(
			"profiling used %.2f %% of a CPU, more than cpu_budget = %.2f; sampling at %u Hz "
			"instead of %u",
			percent, d->guard.budget, after, before);
	} else {
		log_info("sampling at %u Hz again", after);
	}
}

/* Ends a window and hands it out; when `finish`, sampling ends with it. */
static int end_window(struct daemon *d, struct report *r, bool finish)
{
	u32 hz = agent_hz(d->agent), i;
	struct window *w = NULL;
	struct tables_figures tables;
	char text[512];
	int err = agent_close_window(d->agent, finish, &w);

	if (err)
		return err;
	report_end(r, d->agent, w, hz);
	names_resolve(w, agent_modules(d->agent), finish ? NSEC_PER_SEC / 2 : NAMES_WAIT_NS);
	for (i = 0; i < w->nprofiles; i++) {
		report_profile(r, w, &w->profiles[i]);
		to_store(d, w, &w->profiles[i], r, NSEC_PER_SEC / hz);
		to_server(d, w, &w->profiles[i], r, NSEC_PER_SEC / hz);
	}
	report_ends(w, NULL, text, sizeof(text));
	agent_tables(d->agent, &tables);
	log_info("window of %.1f s: %" PRIu64 " samples due, %" PRIu64
		 " kept, %u services, %u stacks (%s); "
		 "cost %.2f %% of a CPU in user space, %.2f %% in BPF; %.1f MB, BPF maps %.1f MB; "
		 "unwind tables of %u files (%.1f MB) for %u processes",
		 r->seconds, r->due, r->kept, w->nprofiles, w->nstacks, text, r->user_percent,
		 r->bpf_percent, (double)r->cost.rss_bytes / 1e6, (double)r->cost.map_bytes / 1e6,
		 tables.files, (double)tables.table_bytes / 1e6, tables.processes);
	report_changes(r, false, text, sizeof(text));
	if (strcmp(text, "none") && log_limit(&d->losses, NULL))
		log_info("counters of this window: %s", text);
	apply_guard(d, r);
	window_free(w);
	report_begin(r, d->agent);
	return 0;
}

/* Until SIGTERM/SIGINT (returns 0), SIGHUP (1), or an error. */
static int daemon_work(struct daemon *d, int signals)
{
	u64 window = (u64)d->config->upload_interval_s * NSEC_PER_SEC;
	u64 end = now_monotonic() + window;
	struct report r;
	int err, sig;

	report_begin(&r, d->agent);
	for (;;) {
		err = agent_work(d->agent, end, signals);
		if (err < 0)
			return err;
		sig = cmd_next_signal(signals);
		if (sig) {
			err = end_window(d, &r, true);
			return err ? err : sig == SIGHUP;
		}
		if (now_monotonic() < end)
			continue;
		end += window;
		err = end_window(d, &r, false);
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
		err = daemon_start(&d, c);
		if (!err) {
			log_info("sampling at %u Hz per CPU by %s; profiles every %u s in %s%s%s",
				 agent_hz(d.agent), agent_clock(d.agent), c->upload_interval_s,
				 store_path(d.store), *c->upload_url ? " and to " : "",
				 c->upload_url);
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
