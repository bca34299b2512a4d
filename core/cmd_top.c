// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `top`: what runs now, by service and by function, on a terminal. Samples by itself, a
 * short window after the other, and shows each as the page would; needs neither daemon nor store.
 */
#include "cmd.h"

#include "agent.h"
#include "fold.h"
#include "log.h"
#include "pprof.h"
#include "preflight.h"
#include "stack.h"
#include "view.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>

#define NAMES_WAIT_NS (NSEC_PER_SEC / 4)
#define TABLE_BYTES   (128u << 20)
#define ROWS_DEFAULT  40 /* when the output is no terminal */

struct top_options {
	double interval_s;
	u32 hz, rounds; /* rounds 0: until a signal comes */
	u32 pid;        /* 0: all */
	bool force, waits;
};

static const char usage[] =
	"usage: ebpfprofiler top [-p PID] [-d SECONDS] [-n ROUNDS] [-F HZ] [--offcpu] [--force]\n"
	"  -p, --pid PID       only this process\n"
	"  -d, --delay SECONDS between two pictures (default 2)\n"
	"  -n, --rounds N      end after so many pictures\n"
	"  -F HZ               samples per second on each CPU (default 49)\n"
	"  --offcpu            where threads wait, instead of where they run\n";

static int parse_one(int c, struct top_options *o)
{
	double n = 0;
	int err = 0;

	switch (c) {
	case 'p':
		err = cmd_option(optarg, "a process id", 1, INT_MAX, &n);
		o->pid = (u32)n;
		break;
	case 'd':
		err = cmd_option(optarg, "seconds", 0.2, 3600, &o->interval_s);
		break;
	case 'n':
		err = cmd_option(optarg, "a number of pictures", 1, 1e9, &n);
		o->rounds = (u32)n;
		break;
	case 'F':
		err = cmd_option(optarg, "a rate in Hz", 1, 1000, &n);
		o->hz = (u32)n;
		break;
	case 'O':
		o->waits = true;
		break;
	case 'X':
		o->force = true;
		break;
	case 'h':
		fputs(usage, stdout);
		return 1;
	default:
		fputs(usage, stderr);
		err = -EINVAL;
	}
	return err;
}

static int parse(int argc, char **argv, struct top_options *o)
{
	static const struct option longs[] = {
		{ "pid", required_argument, NULL, 'p' },
		{ "delay", required_argument, NULL, 'd' },
		{ "rounds", required_argument, NULL, 'n' },
		{ "offcpu", no_argument, NULL, 'O' },
		{ "force", no_argument, NULL, 'X' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, err;

	while ((c = getopt_long(argc, argv, "p:d:n:F:h", longs, NULL)) != -1) {
		err = parse_one(c, o);
		if (err)
			return err;
	}
	return optind < argc ? log_err(-EINVAL, "unexpected argument '%s'", argv[optind]) : 0;
}

/* Rows and columns of the terminal; as many as anybody wants when it is none. */
static void screen(u32 *rows, u32 *columns)
{
	struct winsize ws;

	*rows = ROWS_DEFAULT;
	*columns = 120;
	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) || !ws.ws_row)
		return;
	*rows = MAX(ws.ws_row, 10);
	*columns = MAX(ws.ws_col, 40);
}

/* At most so many bytes of a text, not ending in the middle of a character. */
static int fits(const char *s, u32 max)
{
	size_t n = strnlen(s, max);

	while (n && s[n] && (s[n] & 0xc0) == 0x80)
		n--;
	return (int)n;
}

struct share {
	const char *name;
	u64 ns;
};

static int by_ns(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns > y->ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void print_services(const struct window *w, const struct sample_type *type, double seconds,
			   u32 rows, u32 columns)
{
	_cleanup_free_ struct share *s = calloc((size_t)w->nprofiles + 1, sizeof(*s));
	char clean[256];
	u32 i, k, n = 0;

	for (i = 0; s && i < w->nprofiles; i++) {
		const struct profile *p = &w->profiles[i];

		if (p->type != type)
			continue;
		s[n].name = p->service;
		for (k = 0; k < p->nsamples; k++)
			s[n].ns += p->samples[k].value_ns;
		n++;
	}
	if (n)
		qsort(s, n, sizeof(*s), by_ns);
	printf("%9s  service\n", "threads");
	for (i = 0; i < n && i < rows; i++) {
		utf8_clean(clean, sizeof(clean), s[i].name, sizeof(clean));
		printf("%8.1f%%  %.*s\n", (double)s[i].ns / 1e7 / seconds,
		       fits(clean, columns - 12), clean);
	}
}

static int print_functions(const struct view *v, double seconds, u32 rows, u32 columns)
{
	_cleanup_free_ struct view_row *r = NULL;
	u32 n, i;
	int err = view_table(v, &r, &n);

	if (err)
		return err;
	printf("%9s %9s  function\n", "self", "total");
	for (i = 0; i < n && i < rows; i++) {
		const struct view_symbol *s = &v->symbols[r[i].symbol];

		printf("%8.1f%% %8.1f%%  %.*s", (double)r[i].self[0] / 1e7 / seconds,
		       (double)r[i].total[0] / 1e7 / seconds, fits(s->name, columns / 2), s->name);
		if (*s->group)
			printf("  (%.*s)", fits(s->group, columns / 4), s->group);
		putchar('\n');
	}
	return 0;
}

/* The window as the page would read it from the store. */
static int add_profiles(struct view *v, const struct window *w, const struct sample_type *type)
{
	struct pprof_options o = { .names = true, .period_ns = 1, .plain_pid = true };
	u32 i;
	int err = 0;

	for (i = 0; i < w->nprofiles && !err; i++) {
		_cleanup_free_ u8 *data = NULL;
		size_t len;

		if (w->profiles[i].type != type)
			continue;
		err = pprof_encode(w, &w->profiles[i], &o, &data, &len);
		if (!err)
			err = view_add(v, 0, data, len);
	}
	return err ? err : view_finish(v);
}

static int show(const struct top_options *o, struct window *w)
{
	const struct sample_type *type = o->waits ? &sample_offcpu : &sample_cpu;
	struct view_options vo = { .type = type->name };
	double seconds = MAX((double)(w->end_ns - w->start_ns) / 1e9, 0.001);
	u32 rows, columns, services;
	struct view *v = view_new(&vo);
	char all[32];
	int err = v ? add_profiles(v, w, type) : -ENOMEM;

	if (!err) {
		screen(&rows, &columns);
		services = MIN(rows / 3, 12u);
		/* Home, and clear what the last picture left. */
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		view_amount(v, v->tree.nodes[0].total[0], all, sizeof(all));
		printf("%s of %s in %.1f s; percent of one %s\n", all,
		       o->waits ? "waiting" : "CPU time", seconds, o->waits ? "thread" : "CPU");
		print_services(w, type, seconds, services - 1, columns);
		err = print_functions(v, seconds, rows - services - 4, columns);
		if (!isatty(STDOUT_FILENO))
			putchar('\n');
		if (fflush(stdout))
			err = -EIO;
	}
	view_free(v);
	return err;
}

static int watch(const struct top_options *o, struct agent *a, int signals)
{
	u64 step = (u64)(o->interval_s * 1e9), end = now_monotonic() + step;
	u32 i;

	for (i = 0; !o->rounds || i < o->rounds; i++) {
		struct window *w = NULL;
		int err = agent_work(a, end, signals);

		if (err < 0 || (err && cmd_next_signal(signals)))
			return MIN(err, 0);
		end = now_monotonic() + step;
		err = agent_close_window(a, false, &w);
		if (err)
			return err;
		agent_names_resolve(a, w, NAMES_WAIT_NS);
		err = show(o, w);
		window_free(w);
		if (err)
			return log_err(err, "cannot show a window: %s", strerror(-err));
	}
	return 0;
}

static int top(const struct top_options *o, int signals)
{
	static const struct agent_runtimes every_runtime;
	struct agent_options ao = {
		.hz = o->hz,
		.kernel_frames = true,
		.max_frames = 128,
		.no_cpu = o->waits,
		.offcpu = o->waits,
		.offcpu_tables = true,
		.offcpu_min_ns = 1000000,
		.table_bytes = TABLE_BYTES,
		.only_pids = o->pid,
		.runtimes = o->waits ? NULL : &every_runtime,
	};
	struct agent *a = NULL;
	int err = agent_new(&ao, &a);

	if (!err && o->pid)
		err = agent_add_pid(a, o->pid);
	if (!err)
		err = agent_start(a);
	if (!err)
		err = watch(o, a, signals);
	agent_free(a);
	return err;
}

int cmd_top(int argc, char **argv)
{
	struct top_options o = { .interval_s = 2, .hz = 49 };
	char why[512];
	int err = parse(argc, argv, &o), signals;

	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	if (o.force ? preflight_check_forced(why, sizeof(why))
		    : preflight_check(why, sizeof(why))) {
		log_err(0, "%s", why);
		return EXIT_CANNOT_RUN;
	}
	signals = cmd_signals(false);
	if (signals < 0)
		return EXIT_FAILED;
	err = top(&o, signals);
	close(signals);
	return err ? EXIT_FAILED : EXIT_DONE;
}
