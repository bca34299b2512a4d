// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `doctor`: what this host offers (preflight.c), or, with --cost, what profiling costs
 * it: the last window of the daemon that runs, else a short run of our own.
 */
#include "cmd.h"

#include "agent.h"
#include "config.h"
#include "cost.h"
#include "fold.h"
#include "log.h"
#include "preflight.h"
#include "report.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define OWN_RUN_S 10

struct doctor_options {
	bool json, cost, force;
	double seconds;   /* of an own run; 0: only when no daemon runs */
	const char *path; /* of the configuration; NULL: the usual one, if it can be read */
};

static const char usage[] =
	"usage: ebpfprofiler doctor [--json] [--cost [-c FILE] [-d SECONDS] [--force]]\n";

static int parse(int argc, char **argv, struct doctor_options *o)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },         { "cost", no_argument, NULL, 'C' },
		{ "config", required_argument, NULL, 'c' }, { "force", no_argument, NULL, 'X' },
		{ "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
	};
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "c:d:h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			o->json = true;
			break;
		case 'C':
			o->cost = true;
			break;
		case 'X':
			o->force = true;
			break;
		case 'c':
			o->path = optarg;
			break;
		case 'd':
			o->seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(o->seconds >= 1 && o->seconds <= 3600))
				return log_err(-EINVAL, "-d %s: expected seconds, 1 to 3600",
					       optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (optind < argc || (!o->cost && (o->path || o->seconds > 0 || o->force))) {
		fputs(usage, stderr);
		return -EINVAL;
	}
	return 0;
}

/* What the file says, or, when it was not named and cannot be read, the defaults. */
static int load(const struct doctor_options *o, struct config *c)
{
	char why[1024];
	int err = config_init(c);

	if (err)
		return log_err(err, "out of memory");
	err = config_read(c, o->path ? o->path : CONFIG_DEFAULT_PATH, why, sizeof(why));
	if (!err)
		return 0;
	config_fini(c);
	if (o->path || (err != -ENOENT && err != -EACCES))
		return log_err(err, "%s", why);
	err = config_init(c);
	return err ? log_err(err, "out of memory") : 0;
}

static void print(const struct doctor_options *o, const struct cost *c, bool own)
{
	double ago = (double)(s64)(now_realtime() - c->end_ns) / 1e9;

	if (o->json) {
		cost_print_json(c, stdout);
		return;
	}
	if (own)
		printf("a run of %.1f s on %" PRIu64 " CPUs\n", c->seconds, c->cpus);
	else
		printf("daemon %" PRIu64 ": window of %.1f s on %" PRIu64 " CPUs that ended %.0f s "
		       "ago\n",
		       c->pid, c->seconds, c->cpus, MAX(ago, 0.0));
	cost_print(c, stdout);
}

/* Samples for so long, or until a signal comes; its profiles are thrown away. */
static int work(struct agent *a, struct cost_meter *m, double seconds, int signals)
{
	u64 end = now_monotonic() + (u64)(seconds * 1e9);
	int err = 0;

	while (!err && now_monotonic() < end && !cmd_next_signal(signals)) {
		err = agent_work(a, MIN(end, cost_meter_next(m)), signals);
		cost_meter_tick(m, now_monotonic());
		err = MIN(err, 0);
	}
	return err;
}

static int measure(const struct config *c, double seconds, int signals, struct cost *ret)
{
	struct agent_options ao = {
		.hz = c->sample_hz,
		.kernel_frames = c->kernel_frames,
		.max_frames = c->max_frames,
		.offcpu = c->offcpu,
		.lock = c->lock,
		.offcpu_tables = c->offcpu_dwarf,
		.thread_context = c->thread_context,
		.offcpu_min_ns = config_offcpu_min_ns(c),
		.table_bytes = config_table_bytes(c),
	};
	struct cost_meter m = { .fd = -1 };
	struct window *w = NULL;
	struct agent *a = NULL;
	struct report r;
	int err = agent_new(&ao, &a);

	report_begin(&r);
	if (!err)
		err = agent_start(a);
	if (!err) {
		cost_meter_init(&m, a, (u64)(seconds * 1e9));
		err = work(a, &m, seconds, signals);
	}
	if (!err)
		err = agent_close_window(a, true, &w);
	if (!err) {
		cost_meter_end(&m, ret);
		ret->configured_hz = c->sample_hz;
		ret->budget = c->cpu_budget;
		report_end(&r, ret, w, ao.offcpu_min_ns);
		*ret = r.cost;
	}
	cost_meter_fini(&m);
	window_free(w);
	agent_free(a);
	return err;
}

static int own_run(const struct doctor_options *o, const struct config *c)
{
	double seconds = o->seconds > 0 ? o->seconds : OWN_RUN_S;
	char why[512];
	struct cost cost;
	int err, signals;

	err = o->force ? preflight_check_forced(why, sizeof(why))
		       : preflight_check(why, sizeof(why));
	if (err) {
		log_err(0, "%s", why);
		return EXIT_CANNOT_RUN;
	}
	signals = cmd_signals(false);
	if (signals < 0)
		return EXIT_FAILED;
	fprintf(stderr, "profiling this host for %.0f s to see what it costs\n", seconds);
	err = measure(c, seconds, signals, &cost);
	close(signals);
	if (err)
		return EXIT_FAILED;
	print(o, &cost, true);
	return EXIT_DONE;
}

static int doctor_cost(const struct doctor_options *o)
{
	char path[PATH_MAX];
	struct config c;
	struct cost cost;
	int err;

	if (load(o, &c))
		return EXIT_USAGE;
	snprintf(path, sizeof(path), "%s/" COST_FILE, c.store_path);
	err = o->seconds > 0 ? -ENOENT : cost_load(path, &cost);
	if (!err) {
		print(o, &cost, false);
		config_fini(&c);
		return EXIT_DONE;
	}
	if (o->seconds <= 0 && err != -ENOENT && err != -ESRCH)
		log_warn("cannot read '%s', where the daemon says what it costs: %s", path,
			 err == -EINVAL ? "not understood" : strerror(-err));
	err = own_run(o, &c);
	config_fini(&c);
	return err;
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_options o = { .path = NULL };
	int err = parse(argc, argv, &o);

	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	return o.cost ? doctor_cost(&o) : preflight_run(stdout, o.json);
}
