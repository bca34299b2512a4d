// SPDX-License-Identifier: Apache-2.0
/*
 * What a test guest checks: the real profiler, in /t, on this kernel. Without argument, the base:
 * the daemon, while a program runs whose chain of calls is known, one whose children live for
 * milliseconds and one in a signal handler; then its store is judged. Else the cases named by the
 * arguments. Out: "@@ ok NAME" and "@@ not ok NAME: why", and figures as "@@ insns PROGRAM N"
 * (verifier.c), "@@ samples N", "@@ whole PERCENT". Status 0 when all is well.
 */
#include "guest.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define CHILDREN 20
#define PIDS_MAX 1024

/* Emulated x86-64 has no counter of cycles; emulated arm64 has one, which has to drive the samples. */
#ifdef __aarch64__
#define CLOCK "hardware cycles"
#else
#define CLOCK "software cpu-clock"
#endif

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
	u64 frames = 0, nameless = 0, entries = 0, here;
	struct stack s;
	u32 i, k;

	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		for (k = 0, here = 0; k < s.n; k++) {
			frames += s.kernel[k];
			here += s.kernel[k] && !*s.names[k];
			entries += s.kernel[k] && strstr(s.names[k], "execve");
		}
		nameless += here;
		if (here)
			profile_print_stack("nameless", &s);
	}
	verdict(frames > 100 && !nameless && entries > 0, "kernel-names",
		"%" PRIu64 " of %" PRIu64 " frames nameless, %" PRIu64 " in execve", nameless,
		frames, entries);
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

static void check_flash(const struct profile *p)
{
	check_children(p);
	check_kernel_names(p);
	verdict(profile_says(p, CLOCK), "clock", "of the samples: %s", CLOCK);
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
	/* A part of it may pass without tables, see workload(). */
	verdict(work >= 50 && whole * 4 >= work, "signal-on-another-stack",
		"%" PRIu64 " of %" PRIu64, whole, work);
}

/* What doctor knows of the kernel is shown, to be held against features.txt. */
static void check_doctor(void)
{
	static const char log[] = "/tmp/doctor.log";
	char *doctor[] = { "/t/ebpfprofiler", "doctor", "--json", NULL };
	struct child c = { .log = log };
	int status = child_run(&c, doctor);

	verdict(!status, "doctor", "status %d", status);
	verdict(log_has(log, CLOCK), "doctor-tells-the-clock", "%s", CLOCK);
	log_show(log, true);
}

/* --- the base --------------------------------------------------------------------------------- */

/*
 * The program whose chain is known runs twice: on an emulated machine making the tables of it and
 * the C library takes a good part of a second, which is the first one's time. The second one and
 * the one that handles a signal find most of them made.
 */
static int workload(void)
{
	char *first[] = { "/t/deep", DEPTH_ARG, "0", "1", NULL };
	char *second[] = { "/t/deep", DEPTH_ARG, "0", "2", NULL };
	char *flash[] = { "/t/flash", "20", "20", NULL };
	char *other[] = { "/t/switch", "altstack", NULL };
	const struct child c = { 0 };
	pid_t aside;
	int bad;

	bad = child_run(&c, first);
	bad |= child_run(&c, flash);
	aside = child_start(&c, other);
	bad |= child_run(&c, second);
	bad |= child_wait(aside);
	return bad;
}

/* The daemon has said that it samples; false when it ended, or says nothing for a minute. */
static bool wait_for_daemon(const char *log)
{
	u32 i;

	for (i = 0; i < 600; i++) {
		if (log_has(log, " Hz per CPU by "))
			return true;
		if (log_has(log, "error: "))
			return false;
		pause_ms(100);
	}
	return false;
}

static void judge_store(void)
{
	static const struct {
		const char *part; /* of the file's name */
		void (*check)(const struct profile *p);
	} files[] = {
		{ "-cpu-deep.", check_chain },
		{ "-cpu-flash.", check_flash },
		{ "-cpu-switch.", check_signal },
	};
	struct profile p = { 0 };
	char path[512];
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		err = store_find(files[i].part, path, sizeof(path));
		if (!err)
			err = profile_read(path, &p);
		verdict(!err, files[i].part, "%s", err ? strerror(-err) : "decoded");
		if (!err)
			files[i].check(&p);
		profile_fini(&p);
		memset(&p, 0, sizeof(p));
	}
	check_store_sums();
}

/*
 * `run` as a service manager does it, all that it can on, over one window that SIGTERM ends.
 * Whatever it cannot have it warns of.
 */
static int base(void)
{
	static const char log[] = "/tmp/run.log";
	char *run[] = { "/t/ebpfprofiler", "run", "-c", "/t/run.ini", NULL };
	const struct child as_daemon = { .verifier = true, .log = log };
	pid_t daemon = child_start(&as_daemon, run);
	bool bad = !wait_for_daemon(log) || workload();
	int status;

	kill(daemon, SIGTERM);
	status = child_wait(daemon);
	bad |= status != 0;
	verdict(!bad && !log_has(log, "warning: no "), "daemon", "status %d", status);
	log_show(log, bad || log_has(log, "warning: no "));
	if (!bad) {
		judge_store();
		check_doctor();
	}
	return guest_failed();
}

static const struct {
	const char *name;
	int (*run)(void);
} cases[] = {
	{ "waits-by-frame-pointers", case_waits_by_frame_pointers },
	{ "waits-by-tables", case_waits_by_tables },
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
