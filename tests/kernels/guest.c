// SPDX-License-Identifier: Apache-2.0
/*
 * What a test guest checks: the real profiler, in /t, on this kernel. Without argument, the base:
 * records, in one go, a program whose chain of calls is known, one whose children live for
 * milliseconds and one in a signal handler, and judges the profile. Else the cases named by the
 * arguments. Out: "@@ ok NAME" and "@@ not ok NAME: why", and figures as "@@ insns PROGRAM N"
 * (verifier.c), "@@ samples N", "@@ whole PERCENT". Status 0 when all is well.
 */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define CHILDREN 20
#define PIDS_MAX 1024

/* --- what is checked -------------------------------------------------------------------------- */

/* The later of the two processes of this program: see workload(). */
static void check_chain(const struct profile *p)
{
	s64 pid = profile_last_busy(p);
	struct chain c;
	double percent;

	profile_chain(p, "deep", pid, &c);
	percent = c.busy ? 100.0 / (double)c.busy : 0;
	printf("@@ samples %" PRIu64 "\n@@ whole %.1f\n", c.busy, percent * (double)c.whole);
	verdict(c.busy >= 50 && percent * (double)c.chain >= 80, "chain-of-40-frames",
		"%" PRIu64 " of %" PRIu64, c.chain, c.busy);
	if (percent * (double)c.whole < 95)
		profile_show_broken(p, "deep", pid);
	/* Through the C library, which is mapped later than the program. */
	verdict(percent * (double)c.whole >= 80, "chain-to-the-start-of-the-program",
		"%" PRIu64 " of %" PRIu64, c.whole, c.busy);
}

static void check_kernel_names(const struct profile *p)
{
	u64 frames = 0, named = 0, entries = 0;
	struct stack s;
	u32 i, k;

	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		for (k = 0; k < s.n; k++) {
			frames += s.kernel[k];
			named += s.kernel[k] && *s.names[k];
			entries += s.kernel[k] && strstr(s.names[k], "execve");
		}
	}
	verdict(frames > 100 && named * 100 >= frames * 99 && entries > 0, "kernel-names",
		"%" PRIu64 " of %" PRIu64 " frames named, %" PRIu64 " in execve", named, frames,
		entries);
}

/* Children that were born and dead within the recording, each a process with names of its own. */
static void check_children(const struct profile *p)
{
	s64 pids[PIDS_MAX];
	struct stack s;
	u32 i, k, n = 0, known;

	for (i = 0; i < profile_samples(p) && n < PIDS_MAX; i++) {
		profile_sample(p, i, &s);
		for (k = 0; k < s.n && strncmp(s.names[k], "burn", 4); k++)
			;
		if (k == s.n || strcmp(s.executable, "flash"))
			continue;
		for (known = 0; known < n && pids[known] != s.pid; known++)
			;
		if (known == n)
			pids[n++] = s.pid;
	}
	/* Each is in burn() for about as long as there is between two samples. */
	verdict(n >= CHILDREN / 4 && n <= CHILDREN, "short-lived-children",
		"%u of %d processes in burn()", n, CHILDREN);
}

/* From a signal handler on a stack of its own back to what was interrupted on another. */
static void check_signal(const struct profile *p)
{
	static const char *const chain[] = { "work", "handler", "interrupted", "outer", "main" };
	u64 work = 0, whole = 0;
	struct stack s;
	u32 i, k, found;

	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		for (k = 0, found = 0; k < s.n && found < ARRAY_SIZE(chain); k++)
			found += !strcmp(s.names[k], chain[found]);
		work += found ? s.count : 0;
		whole += found == ARRAY_SIZE(chain) ? s.count : 0;
	}
	/* The first second may pass without tables, see workload(). */
	verdict(work >= 50 && whole * 4 >= work, "signal-on-another-stack",
		"%" PRIu64 " of %" PRIu64, whole, work);
}

/*
 * Emulated x86-64 has no counter of cycles, emulated arm64 has one; it has to drive the samples.
 * What doctor knows of the kernel is shown, to be held against features.txt.
 */
static void check_doctor(const struct profile *p)
{
#ifdef __aarch64__
	static const char clock[] = "hardware cycles";
#else
	static const char clock[] = "software cpu-clock";
#endif
	static const char log[] = "/tmp/doctor.log";
	char *doctor[] = { "/t/ebpfprofiler", "doctor", "--json", NULL };
	struct child c = { .log = log };
	int status = child_run(&c, doctor);

	verdict(profile_says(p, clock), "clock", "of the samples: %s", clock);
	verdict(!status, "doctor", "status %d", status);
	verdict(log_has(log, clock), "doctor-tells-the-clock", "%s", clock);
	log_show(log, true);
}

/* --- the base --------------------------------------------------------------------------------- */

/*
 * Runs under `record`. The program whose chain is known runs twice: on an emulated machine making
 * its tables takes a good part of a second, which is the first one's time. The second one finds
 * them made.
 */
static int workload(void)
{
	char *first[] = { "/t/deep", DEPTH_ARG, "0", "1.5", NULL };
	char *second[] = { "/t/deep", DEPTH_ARG, "0", "2", NULL };
	char *flash[] = { "/t/flash", "20", "20", NULL };
	char *other[] = { "/t/switch", "altstack", NULL };
	const struct child c = { 0 };
	pid_t aside = child_start(&c, other);
	int bad;

	bad = child_run(&c, first);
	bad |= child_run(&c, flash);
	bad |= child_wait(aside);
	bad |= child_run(&c, second);
	return bad != 0;
}

static int base(void)
{
	static const char path[] = "/tmp/base.pb.gz", log[] = "/tmp/record.log";
	char *record[] = { "/t/ebpfprofiler", "record", "-d",       "60",   "-F", "299", "-o",
			   (char *)path,      "--",     "/t/guest", "work", NULL };
	struct child c = { .verifier = true, .log = log };
	int status = child_run(&c, record), err;
	struct profile p = { 0 };

	log_show(log, status != 0);
	err = status ? -EINVAL : profile_read(path, &p);
	verdict(!err, "record", "status %d, profile: %s", status, err ? strerror(-err) : "decoded");
	if (!err) {
		check_chain(&p);
		check_children(&p);
		check_signal(&p);
		check_kernel_names(&p);
		check_sums(&p, "due-is-kept-plus-lost");
		check_doctor(&p);
	}
	profile_fini(&p);
	return guest_failed();
}

/* --- the daemon ------------------------------------------------------------------------------- */

/* Profiles of the store whose name has this in it: stacks of the known chain. */
static u64 stored_chains(const char *part)
{
	static const char dir[] = "/tmp/store/profiles";
	struct profile p = { 0 };
	struct dirent *e;
	struct chain c;
	char path[512];
	DIR *d = opendir(dir);
	u64 sum = 0;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (*e->d_name == '.' || !strstr(e->d_name, part) || profile_read(path, &p))
			continue;
		profile_chain(&p, "deep", 0, &c);
		sum += c.chain;
		profile_fini(&p);
		memset(&p, 0, sizeof(p));
	}
	if (d)
		closedir(d);
	return sum;
}

/*
 * `run` as a service manager does it, all that it can on: until a profile is there, then SIGTERM.
 * Whatever it could not have it would have warned of.
 */
static int daemon_case(void)
{
	static const char log[] = "/tmp/run.log";
	char *run[] = { "/t/ebpfprofiler", "run", "-c", "/t/run.ini", NULL };
	char *deep[] = { "/t/deep", DEPTH_ARG, "0", "120", NULL };
	const struct child as_daemon = { .verifier = true, .log = log }, as_root = { 0 };
	pid_t daemon = child_start(&as_daemon, run), busy = child_start(&as_root, deep);
	u64 chains = 0;
	int status, i;
	bool bad;

	for (i = 0; i < 120 && chains < 10 && !waitpid(daemon, &status, WNOHANG); i++) {
		pause_ms(500);
		chains = stored_chains("-cpu-deep");
	}
	child_kill(busy);
	kill(daemon, SIGTERM);
	status = child_wait(daemon);
	bad = chains < 10 || status || log_has(log, "warning: no ");
	verdict(!bad, "daemon", "status %d, %" PRIu64 " whole stacks in its store", status, chains);
	log_show(log, bad);
	return guest_failed();
}

static const struct {
	const char *name;
	int (*run)(void);
} cases[] = {
	{ "work", workload },
	{ "daemon", daemon_case },
	{ "waits", case_waits },
	{ "sysctls", case_sysctls },
	{ "lockdown", case_lockdown },
	{ "rights", case_rights },
	{ "hotplug", case_hotplug },
	{ "hotplug-work", case_hotplug_work },
	{ "known-bad", case_known_bad },
};

int main(int argc, char **argv)
{
	int bad = argc > 1 ? 0 : base(), i;
	size_t k;

	for (i = 1; i < argc; i++) {
		for (k = 0; k < ARRAY_SIZE(cases) && strcmp(argv[i], cases[k].name); k++)
			;
		bad |= k < ARRAY_SIZE(cases) ? cases[k].run() : 2;
	}
	return bad;
}
