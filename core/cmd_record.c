// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `record`: one shot, no configuration. Samples a command, some processes or the
 * whole host into one profile.
 */
#include "cmd.h"

#include "agent.h"
#include "fold.h"
#include "log.h"
#include "names.h"
#include "pprof.h"
#include "preflight.h"
#include "report.h"
#include "store.h"

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

struct record_options {
	u32 pids[MAX_PIDS];
	u32 npids;
	double seconds; /* 0: until the command ends or a signal comes */
	u32 hz;
	const char *out; /* "-": stdout; NULL: a name that says what it holds */
	bool folded, force, frame_pointers;
	char **cmd;
};

static const char usage[] =
	"usage: ebpfprofiler record [-p PID]... [-d SECONDS] [-F HZ] [-o FILE|-]\n"
	"                           [--format pprof|folded] [--frame-pointers] [--force] [-- CMD...]\n";

static bool parse_number(const char *s, double min, double max, double *ret)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !(v >= min && v <= max))
		return false;
	*ret = v;
	return true;
}

static int parse(int argc, char **argv, struct record_options *o)
{
	static const struct option longs[] = {
		{ "format", required_argument, NULL, 'f' },   { "force", no_argument, NULL, 'X' },
		{ "frame-pointers", no_argument, NULL, 'P' }, { "help", no_argument, NULL, 'h' },
		{ "verbose", no_argument, NULL, 'v' },        { NULL, 0, NULL, 0 },
	};
	double n;
	int c;

	while ((c = getopt_long(argc, argv, "+p:d:F:o:hv", longs, NULL)) != -1) {
		switch (c) {
		case 'p':
			if (!parse_number(optarg, 1, INT_MAX, &n) || n != (double)(u32)n)
				return log_err(-EINVAL, "-p %s: expected a process id", optarg);
			if (o->npids == MAX_PIDS)
				return log_err(-EINVAL, "-p: at most %d processes", MAX_PIDS);
			o->pids[o->npids++] = (u32)n;
			break;
		case 'd':
			if (!parse_number(optarg, 0.01, 86400, &o->seconds))
				return log_err(-EINVAL, "-d %s: expected seconds, 0.01 to 86400",
					       optarg);
			break;
		case 'F':
			if (!parse_number(optarg, 1, 1000, &n) || n != (double)(u32)n)
				return log_err(-EINVAL, "-F %s: expected a rate in Hz, 1 to 1000",
					       optarg);
			o->hz = (u32)n;
			break;
		case 'o':
			o->out = optarg;
			break;
		case 'f':
			if (strcmp(optarg, "pprof") && strcmp(optarg, "folded"))
				return log_err(-EINVAL, "--format %s: expected pprof or folded",
					       optarg);
			o->folded = *optarg == 'f';
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
	if (o->cmd && o->npids)
		return log_err(-EINVAL, "-p and a command exclude each other");
	if (!o->cmd && !o->seconds)
		o->seconds = 10;
	return 0;
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
	char what[80] = "host", when[32];
	time_t t = time(NULL);
	struct tm tm;

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
	if (o->cmd)
		snprintf(what, sizeof(what), "%.64s", base_name(o->cmd[0]));
	else if (o->npids)
		snprintf(what, sizeof(what), "pid%u", o->pids[0]);
	snprintf(dst, size, "%s-cpu-%s.%s", what, when, o->folded ? "folded" : "pb.gz");
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

static int write_profile(const struct record_options *o, const char *path, struct agent *a,
			 struct window *w, const struct report *r)
{
	struct pprof_options po = {
		.names = true,
		.period_ns = NSEC_PER_SEC / agent_hz(a),
		.plain_pid = true,
		.comments = r->lines,
		.ncomments = r->nlines,
	};
	static const struct profile empty = { .service = "host", .container = "" };
	const struct profile *p = w->nprofiles ? &w->profiles[0] : &empty;
	_cleanup_free_ u8 *data = NULL;
	char host[256] = "localhost";
	size_t len = 0;
	int err;

	gethostname(host, sizeof(host) - 1);
	po.host = host;
	names_resolve(w, agent_modules(a), NAMES_WAIT_NS);
	if (o->folded) {
		FILE *f = open_memstream((char **)&data, &len);

		if (!f)
			return -errno;
		err = pprof_write_folded(w, p, f);
		if (fclose(f) && !err)
			err = -errno;
	} else {
		err = pprof_encode(w, p, &po, &data, &len);
	}
	if (err)
		return err;
	if (strcmp(path, "-"))
		return write_file_atomic(path, data, len, 0644);
	if (fwrite(data, 1, len, stdout) != len || fflush(stdout))
		return -EIO;
	return 0;
}

static void progress(double seconds, double total, u64 due)
{
	char of[32] = "";

	if (!isatty(STDERR_FILENO))
		return;
	if (total > 0)
		snprintf(of, sizeof(of), " of %.0f", total);
	fprintf(stderr, "\r\033[Krecording: %.0f%s s, %" PRIu64 " samples", seconds, of, due);
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
		struct agent_cost cost;

		if (now >= end)
			return 0;
		err = agent_work(a, MIN(end, now + NSEC_PER_SEC), signals);
		if (err < 0)
			return err;
		agent_cost(a, &cost);
		progress((double)(now_monotonic() - start) / 1e9, o->seconds, cost.bpf_samples);
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

static int record(const struct record_options *o, const char *path, int signals, pid_t child,
		  int go, int failed)
{
	struct agent_options ao = {
		.hz = o->hz,
		.kernel_frames = true,
		.max_frames = MAX_USER_FRAMES,
		.table_bytes = o->frame_pointers ? 0 : TABLE_BYTES,
		.only_pids = o->npids || child > 0,
		.service = o->cmd ? base_name(o->cmd[0]) : "host",
	};
	int err, status = 0, exec_errno = 0;
	bool child_ended = false;
	struct agent *a = NULL;
	struct window *w = NULL;
	struct report r;
	u32 i;

	err = agent_new(&ao, &a);
	for (i = 0; !err && i < o->npids; i++)
		err = agent_add_pid(a, o->pids[i]);
	if (!err && child > 0)
		err = agent_add_pid(a, (u32)child);
	if (!err) {
		report_begin(&r, a);
		err = agent_start(a);
	}
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
		report_end(&r, a, w, agent_hz(a));
		r.nlines--; /* one profile: its stacks are the host's */
		err = write_profile(o, path, a, w, &r);
		if (err)
			log_err(err, "cannot write '%s': %s", path, strerror(-err));
	}
	if (!err) {
		for (i = 2; i < r.nlines; i++)
			fprintf(stderr, "%s\n", r.lines[i]);
		if (strcmp(path, "-"))
			fprintf(stderr, "wrote %s%s%s\n", path,
				o->folded ? "" : "; open it with: go tool pprof -http=: ",
				o->folded ? "" : path);
	}
	window_free(w);
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

	o = (struct record_options){ .hz = 99 };
	err = parse(argc, argv, &o);
	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	for (i = 0; i < o.npids; i++)
		if (kill((pid_t)o.pids[i], 0) && errno == ESRCH) {
			log_err(0, "-p %u: there is no such process", o.pids[i]);
			return EXIT_FAILED;
		}
	if (o.out && !strcmp(o.out, "-") && !o.folded && isatty(STDOUT_FILENO)) {
		log_err(0,
			"-o -: a pprof file is binary and stdout is a terminal; redirect it or use "
			"--format folded");
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
