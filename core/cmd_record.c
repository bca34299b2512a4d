// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `record`: one shot, no configuration. Samples a command, some processes or the
 * whole host into one profile.
 */
#include "cmd.h"

#include "agent.h"
#include "cost.h"
#include "fold.h"
#include "log.h"
#include "pprof.h"
#include "preflight.h"
#include "report.h"
#include "stack.h"
#include "stat.h"
#include "store.h"
#include "timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define NAMES_WAIT_NS (10 * NSEC_PER_SEC)
#define MAX_PIDS      4096
#define TABLE_BYTES   (256u << 20)
#define MAX_TYPES     8

struct record_options {
	u32 pids[MAX_PIDS];
	u32 npids;
	double seconds; /* 0: until the command ends or a signal comes */
	u32 hz;
	const struct sample_type *types[MAX_TYPES]; /* the first one is what readers show first */
	u32 ntypes;
	double min_ms; /* shorter waits are dropped */
	bool offcpu_tables;
	const char *out; /* "-": stdout; NULL: a name that says what it holds */
	enum { PPROF, FOLDED, PERFETTO, FIREFOX } format;
	bool force, frame_pointers, no_runtimes;
	char **cmd;
};

static const char usage[] =
	"usage: ebpfprofiler record [-p PID]... [-d SECONDS] [-F HZ] [-e cpu,offcpu,lock]\n"
	"                           [--offcpu-min-ms MS] [--offcpu-dwarf] [--frame-pointers]\n"
	"                           [--no-runtimes] [-o FILE|-] [--force]\n"
	"                           [--format pprof|folded|perfetto|firefox] [-- CMD...]\n";

static const struct {
	const char *name, *suffix;
} formats[] = {
	[PPROF] = { "pprof", "pb.gz" },
	[FOLDED] = { "folded", "folded" },
	[PERFETTO] = { "perfetto", "perfetto-trace.gz" },
	[FIREFOX] = { "firefox", "firefox.json.gz" },
};

static bool is_timeline(const struct record_options *o)
{
	return o->format == PERFETTO || o->format == FIREFOX;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static bool records(const struct record_options *o, const struct sample_type *type)
{
	u32 i;

	for (i = 0; i < o->ntypes; i++)
		if (o->types[i] == type)
			return true;
	return false;
}

static int add_type(struct record_options *o, const struct sample_type *type)
{
	if (records(o, type) || o->ntypes == MAX_TYPES)
		return -EEXIST;
	o->types[o->ntypes++] = type;
	return 0;
}

/* "cpu", or what an interpreter's own samples are called; NULL: there is no such type. */
static const struct sample_type *find_type(const char *name)
{
	static const struct sample_type *const known[] = { &sample_cpu, &sample_offcpu,
							   &sample_lock };
	const struct unwinder *u;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(known[i]->name, name))
			return known[i];
	for (i = 0; (u = unwinder_at(i)); i++)
		if (u->sample_type && !strcmp(u->sample_type, name))
			return stack_runtime_type(u);
	return NULL;
}

static bool is_runtime(const struct sample_type *type)
{
	return type != &sample_cpu && type != &sample_offcpu && type != &sample_lock;
}

static int refuse_types(const char *list)
{
	char own[256] = "";
	const struct unwinder *u;
	u32 i;

	for (i = 0; (u = unwinder_at(i)); i++)
		if (u->sample_type && strlen(own) + strlen(u->sample_type) + 3 < sizeof(own)) {
			strcat(own, ", ");
			strcat(own, u->sample_type);
		}
	return log_err(-EINVAL, "-e %s: expected a list of cpu, offcpu, lock%s, each once", list,
		       own);
}

/* "cpu,offcpu": each type once. */
static int parse_types(struct record_options *o, char *list)
{
	_cleanup_free_ char *whole = strdup(list);
	char *name;

	if (!whole)
		return -ENOMEM;
	o->ntypes = 0;
	while ((name = strsep(&list, ","))) {
		const struct sample_type *type = find_type(name);

		if (!type || add_type(o, type))
			return refuse_types(whole);
	}
	return 0;
}

static int check_options(const struct record_options *o)
{
	u32 i;

	if (o->cmd && o->npids)
		return log_err(-EINVAL, "-p and a command exclude each other");
	if (o->frame_pointers && o->offcpu_tables)
		return log_err(-EINVAL, "--frame-pointers and --offcpu-dwarf exclude each other");
	if (is_timeline(o))
		for (i = 0; i < o->ntypes; i++)
			if (o->types[i] != &sample_cpu && o->types[i] != &sample_offcpu)
				return log_err(
					-EINVAL,
					"-e %s: a time line (--format %s) shows cpu and offcpu, with "
					"the runtimes' frames in them",
					o->types[i]->name, formats[o->format].name);
	if (o->format == FOLDED && o->ntypes > 1)
		return log_err(-EINVAL, "--format folded has room for one number per stack: give "
					"one type with -e");
	return 0;
}

static int parse_format(struct record_options *o, const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(formats); i++)
		if (!strcmp(formats[i].name, name)) {
			o->format = i;
			return 0;
		}
	return log_err(-EINVAL, "--format %s: expected pprof, folded, perfetto or firefox", name);
}

static int parse(int argc, char **argv, struct record_options *o)
{
	static const struct option longs[] = {
		{ "format", required_argument, NULL, 'f' },
		{ "force", no_argument, NULL, 'X' },
		{ "frame-pointers", no_argument, NULL, 'P' },
		{ "no-runtimes", no_argument, NULL, 'R' },
		{ "offcpu", no_argument, NULL, 'O' },
		{ "offcpu-min-ms", required_argument, NULL, 'M' },
		{ "offcpu-dwarf", no_argument, NULL, 'D' },
		{ "help", no_argument, NULL, 'h' },
		{ "verbose", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	double n;
	int c;

	while ((c = getopt_long(argc, argv, "+p:d:F:e:o:hv", longs, NULL)) != -1) {
		switch (c) {
		case 'p':
			if (!cmd_number(optarg, 1, INT_MAX, &n) || n != (double)(u32)n)
				return log_err(-EINVAL, "-p %s: expected a process id", optarg);
			if (o->npids == MAX_PIDS)
				return log_err(-EINVAL, "-p: at most %d processes", MAX_PIDS);
			o->pids[o->npids++] = (u32)n;
			break;
		case 'd':
			if (!cmd_number(optarg, 0.01, 86400, &o->seconds))
				return log_err(-EINVAL, "-d %s: expected seconds, 0.01 to 86400",
					       optarg);
			break;
		case 'F':
			if (!cmd_number(optarg, 1, 1000, &n) || n != (double)(u32)n)
				return log_err(-EINVAL, "-F %s: expected a rate in Hz, 1 to 1000",
					       optarg);
			o->hz = (u32)n;
			break;
		case 'e':
			if (parse_types(o, optarg))
				return -EINVAL;
			break;
		case 'O':
			if (!records(o, &sample_offcpu))
				add_type(o, &sample_offcpu);
			break;
		case 'M':
			if (!cmd_number(optarg, 0, 10000, &o->min_ms))
				return log_err(
					-EINVAL,
					"--offcpu-min-ms %s: expected milliseconds, 0 to 10000",
					optarg);
			break;
		case 'D':
			o->offcpu_tables = true;
			break;
		case 'R':
			o->no_runtimes = true;
			break;
		case 'o':
			o->out = optarg;
			break;
		case 'f':
			if (parse_format(o, optarg))
				return -EINVAL;
			break;
		case 'P':
			o->frame_pointers = true;
			break;
		case 'X':
			o->force = true;
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
	if (optind < argc && strcmp(argv[optind - 1], "--"))
		return log_err(-EINVAL, "unexpected argument '%s'; a command goes after --",
			       argv[optind]);
	o->cmd = optind < argc ? argv + optind : NULL;
	if (!o->cmd && !o->seconds)
		o->seconds = 10;
	return check_options(o);
}

/* Says beforehand that the file can be made, so that nobody records for nothing. */
static int check_output(const char *path)
{
	_cleanup_free_ char *dir = NULL;
	const char *slash = strrchr(path, '/');
	struct stat st;

	dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!dir)
		return -ENOMEM;
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return -EISDIR;
	if (stat(dir, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return access(dir, W_OK | X_OK) ? -errno : 0;
}

static void default_name(const struct record_options *o, char *dst, size_t size)
{
	char what[80] = "host", when[32], types[160] = "";
	time_t t = time(NULL);
	struct tm tm;
	u32 i;

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
	if (o->cmd)
		snprintf(what, sizeof(what), "%.64s", base_name(o->cmd[0]));
	else if (o->npids)
		snprintf(what, sizeof(what), "pid%u", o->pids[0]);
	for (i = 0; i < o->ntypes; i++) {
		if (strlen(types) + strlen(o->types[i]->name) + 2 > sizeof(types))
			break;
		strcat(types, i ? "+" : "");
		strcat(types, o->types[i]->name);
	}
	snprintf(dst, size, "%s-%s-%s.%s", what, types, when, formats[o->format].suffix);
}

/* The command, stopped before its exec until *go is closed. Returns its pid or -errno. */
static pid_t start_command(char **cmd, int *go, int *failed)
{
	int start[2], result[2];
	sigset_t none;
	pid_t pid;
	char c;
	int err;

	if (pipe2(start, O_CLOEXEC))
		return -errno;
	if (pipe2(result, O_CLOEXEC)) {
		err = -errno;
		close(start[0]);
		close(start[1]);
		return err;
	}
	pid = fork();
	if (!pid) {
		close(start[1]);
		close(result[0]);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (read(start[0], &c, 1) == 0) {
			execvp(cmd[0], cmd);
			err = errno;
			if (write(result[1], &err, sizeof(err)) < 0)
				_exit(127);
		}
		_exit(127);
	}
	close(start[0]);
	close(result[1]);
	*go = start[1];
	*failed = result[0];
	return pid < 0 ? -errno : pid;
}

static int exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ends a command that outlives the recording: asks, and insists after 2 s. */
static void end_command(pid_t pid)
{
	int i;

	kill(pid, SIGTERM);
	for (i = 0; i < 200; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The window's profile of a type; `empty` when there is none. */
static const struct profile *find_profile(const struct window *w, const struct sample_type *type,
					  struct profile *empty)
{
	u32 i;

	for (i = 0; i < w->nprofiles; i++)
		if (w->profiles[i].type == type)
			return &w->profiles[i];
	*empty = (struct profile){ .type = type, .service = "host", .container = "" };
	return empty;
}

static int write_profile(const struct record_options *o, const char *path, struct agent *a,
			 struct window *w, const struct report *r)
{
	struct pprof_options po = {
		.names = true,
		.period_ns = report_period(w, o->hz),
		.plain_pid = true,
		.comments = r->lines,
		.ncomments = r->nlines,
	};
	const struct profile *ps[MAX_TYPES];
	struct profile empty[MAX_TYPES];
	_cleanup_free_ u8 *data = NULL;
	u32 i;
	char host[256] = "localhost";
	size_t len = 0;
	int err;

	gethostname(host, sizeof(host) - 1);
	po.host = host;
	agent_names_resolve(a, w, NAMES_WAIT_NS);
	for (i = 0; i < o->ntypes; i++)
		ps[i] = find_profile(w, o->types[i], &empty[i]);
	if (is_timeline(o)) {
		const struct timeline_options to = {
			.format = o->format == FIREFOX ? TIMELINE_FIREFOX : TIMELINE_PERFETTO,
			.hz = o->hz,
			.host = host,
			.gzip = ends_with(path, ".gz"),
			.comments = r->lines,
			.ncomments = r->nlines,
		};

		err = timeline_encode(w, &to, &data, &len);
	} else if (o->format == FOLDED) {
		FILE *f = open_memstream((char **)&data, &len);

		if (!f)
			return -errno;
		err = pprof_write_folded(w, ps[0], f);
		if (fclose(f) && !err)
			err = -errno;
	} else {
		err = pprof_encode_all(w, ps, o->ntypes, &po, &data, &len);
	}
	if (err)
		return err;
	if (strcmp(path, "-"))
		return write_file_atomic(path, data, len, 0644);
	if (fwrite(data, 1, len, stdout) != len || fflush(stdout))
		return -EIO;
	return 0;
}

static void progress(struct agent *a, double seconds, double total)
{
	struct agent_cost cost;
	char of[32] = "";

	if (!isatty(STDERR_FILENO))
		return;
	agent_cost(a, &cost);
	if (total > 0)
		snprintf(of, sizeof(of), " of %.0f", total);
	fprintf(stderr, "\r\033[Krecording: %.0f%s s, %" PRIu64 " samples", seconds, of,
		cost.bpf_samples);
}

/* Until the time is over, the command has ended, or a signal says so. *status: the command's. */
static int sample_until(struct agent *a, const struct record_options *o, int signals, pid_t child,
			int *status, bool *child_ended)
{
	u64 start = now_monotonic(), end;
	int sig, err;

	end = o->seconds > 0 ? start + (u64)(o->seconds * 1e9) : UINT64_MAX;
	for (;;) {
		u64 now = now_monotonic();

		if (now >= end)
			return 0;
		err = agent_work(a, MIN(end, now + NSEC_PER_SEC), signals);
		if (err < 0)
			return err;
		progress(a, (double)(now_monotonic() - start) / 1e9, o->seconds);
		while ((sig = cmd_next_signal(signals))) {
			if (sig != SIGCHLD)
				return 0;
			if (child > 0 && waitpid(child, status, WNOHANG) == child) {
				*child_ended = true;
				return 0;
			}
		}
	}
}

static void measure(const struct record_options *o, struct cost_meter *m, const struct window *w,
		    struct report *r)
{
	struct cost c;

	cost_meter_end(m, &c);
	c.configured_hz = records(o, &sample_cpu) ? o->hz : 0;
	c.budget = 100;
	report_end(r, &c, w, (u64)(o->min_ms * 1e6 + 0.5));
	r->nlines--; /* one profile: its stacks are the host's */
}

/* An interpreter's own type counts threads that run by sampling, those that wait by looking. */
static bool records_runtime(const struct record_options *o)
{
	u32 i;

	for (i = 0; i < o->ntypes; i++)
		if (is_runtime(o->types[i]))
			return true;
	return false;
}

/* Waits alone were asked for, and there is no way to see them here. */
static int check_waits(const struct record_options *o, struct agent *a)
{
	struct agent_waits w;

	agent_waits(a, &w);
	if (records(o, &sample_cpu) || records_runtime(o) || w.mode)
		return 0;
	return log_err(-EOPNOTSUPP, "cannot record waits here: %s",
		       w.refused ? w.refused : "not known why");
}

static void say_written(const struct record_options *o, const char *path)
{
	u64 lost = stat_get(STAT_marks_lost);

	if (is_timeline(o) && lost)
		fprintf(stderr, "time line: %" PRIu64 " events are not in it, for want of room\n",
			lost);
	if (o->format == PPROF)
		fprintf(stderr, "wrote %s; open it with: go tool pprof -http=: %s\n", path, path);
	else if (is_timeline(o))
		fprintf(stderr, "wrote %s; open it at %s (it is read in the browser, not sent)\n",
			path,
			o->format == FIREFOX ? "https://profiler.firefox.com"
					     : "https://ui.perfetto.dev");
	else
		fprintf(stderr, "wrote %s\n", path);
}

static int record(const struct record_options *o, const char *path, int signals, pid_t child,
		  int go, int failed)
{
	struct agent_options ao = {
		.hz = o->hz,
		.kernel_frames = true,
		.max_frames = MAX_USER_FRAMES,
		.no_cpu = !records(o, &sample_cpu) && !records_runtime(o),
		.offcpu = records(o, &sample_offcpu),
		.lock = records(o, &sample_lock),
		.offcpu_tables = o->offcpu_tables,
		.offcpu_min_ns = (u64)(o->min_ms * 1e6 + 0.5),
		.table_bytes = o->frame_pointers ? 0 : TABLE_BYTES,
		.only_pids = o->npids || child > 0,
		.service = o->cmd ? base_name(o->cmd[0]) : "host",
		.marks = is_timeline(o),
	};
	const struct agent_runtimes every_runtime = { .no_wall = !records_runtime(o) };
	int err, status = 0, exec_errno = 0;
	bool child_ended = false;
	struct agent *a = NULL;
	struct cost_meter meter = { .fd = -1 };
	struct window *w = NULL;
	struct report r;
	u32 i;

	ao.runtimes = o->no_runtimes ? NULL : &every_runtime;
	err = agent_new(&ao, &a);
	for (i = 0; !err && i < o->npids; i++)
		err = agent_add_pid(a, o->pids[i]);
	if (!err && child > 0)
		err = agent_add_pid(a, (u32)child);
	if (!err) {
		report_begin(&r);
		err = agent_start(a);
	}
	if (!err)
		err = check_waits(o, a);
	if (!err)
		cost_meter_init(&meter, a, 0);
	close(go); /* the command runs, or, after an error, meets a closed pipe and is ended below */
	if (!err && child > 0 && read(failed, &exec_errno, sizeof(exec_errno)) > 0)
		err = log_err(-exec_errno, "cannot execute '%s': %s", o->cmd[0],
			      strerror(exec_errno));
	if (!err)
		err = sample_until(a, o, signals, child, &status, &child_ended);
	if (!err)
		err = agent_close_window(a, true, &w);
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	if (child > 0 && !child_ended)
		end_command(child);
	if (!err) {
		measure(o, &meter, w, &r);
		err = write_profile(o, path, a, w, &r);
		if (err)
			log_err(err, "cannot write '%s': %s", path, strerror(-err));
	}
	if (!err) {
		for (i = 2; i < r.nlines; i++)
			fprintf(stderr, "%s\n", r.lines[i]);
		if (strcmp(path, "-"))
			say_written(o, path);
	}
	window_free(w);
	cost_meter_fini(&meter);
	agent_free(a);
	if (err)
		return EXIT_FAILED;
	return child_ended ? exit_status(status) : EXIT_DONE;
}

int cmd_record(int argc, char **argv)
{
	static struct record_options o; /* holds the list of processes: too large for a stack */
	char name[PATH_MAX], why[512];
	int err, signals, go = -1, failed = -1, ret;
	pid_t child = 0;
	u32 i;

	o = (struct record_options){ .hz = 99, .types = { &sample_cpu }, .ntypes = 1, .min_ms = 1 };
	err = parse(argc, argv, &o);
	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	for (i = 0; i < o.npids; i++)
		if (kill((pid_t)o.pids[i], 0) && errno == ESRCH) {
			log_err(0, "-p %u: there is no such process", o.pids[i]);
			return EXIT_FAILED;
		}
	if (o.out && !strcmp(o.out, "-") && o.format != FOLDED && o.format != FIREFOX &&
	    isatty(STDOUT_FILENO)) {
		log_err(0,
			"-o -: a %s file is binary and stdout is a terminal; redirect it or use "
			"--format folded",
			formats[o.format].name);
		return EXIT_USAGE;
	}
	default_name(&o, name, sizeof(name));
	if (!o.out)
		o.out = name;
	err = strcmp(o.out, "-") ? check_output(o.out) : 0;
	if (err) {
		log_err(err, "cannot write '%s': %s", o.out, strerror(-err));
		return EXIT_FAILED;
	}
	ret = o.force ? preflight_check_forced(why, sizeof(why))
		      : preflight_check(why, sizeof(why));
	if (ret) {
		log_err(0, "%s", why);
		return EXIT_CANNOT_RUN;
	}
	signals = cmd_signals(true);
	if (signals < 0)
		return EXIT_FAILED;
	if (o.cmd) {
		child = start_command(o.cmd, &go, &failed);
		if (child < 0) {
			log_err(child, "cannot start a process for '%s': %s", o.cmd[0],
				strerror(-child));
			return EXIT_FAILED;
		}
	}
	ret = record(&o, o.out, signals, child, go, failed);
	closep(&failed);
	close(signals);
	return ret;
}
