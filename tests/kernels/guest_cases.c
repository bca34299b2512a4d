// SPDX-License-Identifier: Apache-2.0
/*
 * Test guest: hosts that are set up in an unusual way. Each case changes something, asks `doctor`
 * what that costs, records, and holds the profile against what doctor said. In: a fresh guest, as
 * root. Out: verdicts. See guest.h; which kernel has which case is in run.sh.
 */
#include "guest.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

#define CANNOT_RUN 3 /* exit status of `run` and `record` */
/*
 * Whole stacks of one program that show that it works. A guest on a busy host is slow by any
 * factor, its clock is not: shares are judged only in the base.
 */
#define ENOUGH 10

static const char doctor_log[] = "/tmp/doctor.log";
static const char record_log[] = "/tmp/record.log";
static const char profile_path[] = "/tmp/case.pb.gz";

/* --- tools ------------------------------------------------------------------------------------ */

static int doctor(const struct child *as)
{
	char *argv[] = { "/t/ebpfprofiler", "doctor", NULL };
	struct child c = *as;

	c.log = doctor_log;
	return child_run(&c, argv);
}

/* `record` of the whole host. */
static pid_t start_record(const struct child *as, const char *seconds)
{
	char *argv[] = { "/t/ebpfprofiler",    "record", "-F", "199", "-d", (char *)seconds, "-o",
			 (char *)profile_path, NULL };
	struct child c = *as;

	c.log = record_log;
	return child_start(&c, argv);
}

/* The profile of a recording that has ended; a bad verdict when there is none. */
static bool read_case(const char *name, int status, struct profile *p)
{
	int err = status ? -EINVAL : profile_read(profile_path, p);

	if (!err)
		return true;
	verdict(false, name, "status %d, profile: %s", status, strerror(-err));
	log_show(record_log, true);
	return false;
}

static pid_t start_deep(const struct child *as, const char *path, const char *seconds)
{
	char *argv[] = { (char *)path, DEPTH_ARG, "0", (char *)seconds, NULL };

	return child_start(as, argv);
}

static bool has_enough(const struct profile *p, const char *const *programs)
{
	struct chain c;

	for (; *programs; programs++) {
		profile_chain(p, *programs, 0, &c);
		if (c.samples < ENOUGH || (c.busy && c.chain < ENOUGH))
			return false;
	}
	return true;
}

/* A profile with enough of these programs; for longer when the first try had not. */
static bool record_enough(const char *name, const struct child *as, const char *const *programs,
			  struct profile *p)
{
	if (!read_case(name, child_wait(start_record(as, "1.5")), p))
		return false;
	if (has_enough(p, programs))
		return true;
	profile_fini(p);
	return read_case(name, child_wait(start_record(as, "10")), p);
}

static double percent(u64 part, u64 all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

/* Share of kernel frames that have a name. */
static double kernel_named(const struct profile *p)
{
	u64 frames = 0, named = 0;
	struct stack s;
	u32 i, k;

	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		for (k = 0; k < s.n; k++) {
			frames += s.kernel[k];
			named += s.kernel[k] && *s.names[k];
		}
	}
	return percent(named, frames);
}

/* --- sysctls ---------------------------------------------------------------------------------- */

static const char *const only_deep[] = { "deep", NULL };

/* Whole stacks of the program that runs meanwhile. */
static void judge_deep(const char *name, struct profile *p)
{
	const struct child root = { 0 };
	pid_t deep = start_deep(&root, "/t/deep", "120");
	struct chain c;

	if (record_enough(name, &root, only_deep, p)) {
		profile_chain(p, "deep", 0, &c);
		verdict(c.chain >= ENOUGH, name, "%" PRIu64 " of %" PRIu64 " whole", c.chain,
			c.samples);
	}
	child_kill(deep);
}

/* Interpreted, or, where the kernel takes our programs compiled only, refused in plain words. */
static void judge_without_jit(void)
{
	static const char words[] = "sysctl net.core.bpf_jit_enable=1";
	const struct child root = { 0 };
	struct profile p = { 0 };
	int status, refused;

	if (!put_file("/proc/sys/net/core/bpf_jit_enable", "0"))
		return;
	status = doctor(&root);
	verdict(log_has(doctor_log, words), "no-jit-doctor", "status %d", status);
	if (status) {
		refused = child_wait(start_record(&root, "1"));
		verdict(refused == CANNOT_RUN && log_has(record_log, words), "no-jit-refused",
			"doctor %d, record %d", status, refused);
	} else {
		judge_deep("no-jit-record", &p);
	}
	profile_fini(&p);
	put_file("/proc/sys/net/core/bpf_jit_enable", "1");
}

/* What a hardened host sets: root with all capabilities is not hindered, only names are lost. */
int case_sysctls(void)
{
	const struct child root = { 0 };
	struct profile p = { 0 };
	int status;

	if (!put_file("/proc/sys/kernel/perf_event_paranoid", "4") ||
	    !put_file("/proc/sys/kernel/kptr_restrict", "2"))
		return 1;
	status = doctor(&root);
	verdict(!status && log_has(doctor_log, "4; sampling every process is allowed") &&
			log_has(doctor_log, "kernel frames have no names"),
		"sysctls-doctor", "status %d", status);
	judge_deep("sysctls-record", &p);
	if (p.msg)
		verdict(kernel_named(&p) == 0, "sysctls-kernel-names", "%.1f %%", kernel_named(&p));
	profile_fini(&p);
	put_file("/proc/sys/kernel/kptr_restrict", "0");
	judge_without_jit();
	return guest_failed();
}

/* --- lockdown --------------------------------------------------------------------------------- */

/* Both levels; it can only be raised, so this is a guest's last case. */
int case_lockdown(void)
{
	static const char lockdown[] = "/sys/kernel/security/lockdown";
	char *run[] = { "/t/ebpfprofiler", "run", "-c", "/t/run.ini", NULL };
	struct child root = { 0 };
	struct profile p = { 0 };
	int status;

	if (!put_file(lockdown, "integrity"))
		return 1;
	judge_deep("lockdown-integrity", &p);
	profile_fini(&p);
	if (!put_file(lockdown, "confidentiality"))
		return 1;
	status = doctor(&root);
	verdict(status == 1 && log_has(doctor_log, "boot with lockdown=integrity"),
		"lockdown-confidentiality-doctor", "status %d", status);
	status = child_wait(start_record(&root, "1"));
	verdict(status == CANNOT_RUN && log_has(record_log, "cannot run here: lockdown"),
		"lockdown-confidentiality-record", "status %d", status);
	root.log = record_log;
	status = child_run(&root, run);
	verdict(status == CANNOT_RUN && log_has(record_log, "cannot run here: lockdown"),
		"lockdown-confidentiality-run", "status %d", status);
	return guest_failed();
}

/* --- capabilities ----------------------------------------------------------------------------- */

/* Which programs of another user are named, and whether the kernel is. */
struct seen {
	bool open;   /* /tmp/open: an ordinary file */
	bool secret; /* /tmp/secret: only its owner may read it */
	bool gone;   /* /tmp/gone: deleted since it was started */
	bool kernel;
};

#define BIT(n) (1ull << (n))
#define ALL_RIGHTS                                                                 \
	(BIT(CAP_BPF) | BIT(CAP_PERFMON) | BIT(CAP_SYS_PTRACE) | BIT(CAP_SYSLOG) | \
	 BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_CHECKPOINT_RESTORE))

/* What is lost without each, as doctor tells it. */
static const struct {
	u32 cap;
	const char *name, *cost;
	struct seen seen;
} rights[] = {
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "their frames are bare addresses", { .kernel = true } },
	{ CAP_SYSLOG,
	  "CAP_SYSLOG",
	  "kernel frames have no names",
	  { .open = true, .secret = true, .gone = true } },
	/* Deleted files are reached through /proc/PID/map_files, which only its user may enter. */
	{ CAP_DAC_READ_SEARCH,
	  "CAP_DAC_READ_SEARCH",
	  "files that only other users may read, and those of other users that were deleted",
	  { .open = true, .kernel = true } },
	{ CAP_CHECKPOINT_RESTORE,
	  "CAP_CHECKPOINT_RESTORE",
	  "mapped files that were deleted or replaced",
	  { .open = true, .secret = true, .kernel = true } },
};

static void judge_program(const struct profile *p, const char *what, const char *program, bool want)
{
	char name[96];
	struct chain c;

	profile_chain(p, program, 0, &c);
	snprintf(name, sizeof(name), "rights-%s-%s", what, program);
	verdict(c.samples >= ENOUGH &&
			(want ? percent(c.busy, c.samples) >= 80 && c.chain >= ENOUGH : !c.busy),
		name, "%" PRIu64 " samples, %" PRIu64 " named, %" PRIu64 " whole; %s expected",
		c.samples, c.busy, c.chain, want ? "names" : "bare addresses");
}

static void judge_rights(const char *what, u64 caps, const struct seen *want)
{
	static const char *const programs[] = { "open", "secret", "gone", NULL };
	const struct child as = { .uid = 1000, .caps = caps };
	struct profile p = { 0 };
	double kernel;

	if (record_enough(what, &as, programs, &p)) {
		kernel = kernel_named(&p);
		verdict(want->kernel ? kernel >= 99 : kernel == 0, what,
			"%.1f %% of kernel frames named", kernel);
		judge_program(&p, what, "open", want->open);
		judge_program(&p, what, "secret", want->secret);
		judge_program(&p, what, "gone", want->gone);
	}
	profile_fini(&p);
}

/* Without it nothing runs, and the one that is missing is named. */
static void judge_refusal(u32 cap, const char *name)
{
	const struct child as = { .uid = 1000, .caps = ALL_RIGHTS & ~BIT(cap) };
	char words[64];
	int status;

	snprintf(words, sizeof(words), "cannot run here: %s: not held", name);
	status = child_wait(start_record(&as, "1"));
	verdict(status == CANNOT_RUN && log_has(record_log, words), name, "status %d", status);
}

/*
 * Debian and Ubuntu have levels over 2, at which only CAP_SYS_ADMIN passes: all the other
 * capabilities are not enough, and doctor says why. Upstream ends at 2, where they are.
 */
static void judge_distribution_level(void)
{
	static const char level[] = "/proc/sys/kernel/perf_event_paranoid";
	struct child as = { .uid = 1000, .caps = ALL_RIGHTS };
	int status, refused;

	put_file(level, "3");
	status = doctor(&as);
	refused = child_wait(start_record(&as, "0.2"));
	verdict(status == 1 && refused == CANNOT_RUN &&
			log_has(doctor_log, "sysctl kernel.perf_event_paranoid=2") &&
			log_has(record_log, "sysctl kernel.perf_event_paranoid=2"),
		"rights-at-level-3", "doctor %d, record %d", status, refused);
	put_file(level, "2");
}

int case_rights(void)
{
	static const struct seen all = { true, true, true, true };
	const struct child other = { .uid = 1001, .idle = true };
	struct child as = { .uid = 1000 };
	pid_t deep[3] = { 0 };
	size_t i;

	if (!copy_file("/t/deep", "/tmp/open", 0755) ||
	    !copy_file("/t/deep", "/tmp/secret", 0711) || !copy_file("/t/deep", "/tmp/gone", 0755))
		return 1;
	deep[0] = start_deep(&other, "/tmp/open", "600");
	deep[1] = start_deep(&other, "/tmp/secret", "600");
	deep[2] = start_deep(&other, "/tmp/gone", "600");
	pause_ms(200);
	unlink("/tmp/gone");

	judge_distribution_level();
	judge_refusal(CAP_BPF, "CAP_BPF");
	judge_refusal(CAP_PERFMON, "CAP_PERFMON");
	judge_rights("with-all", ALL_RIGHTS, &all);
	for (i = 0; i < ARRAY_SIZE(rights); i++) {
		as.caps = ALL_RIGHTS & ~BIT(rights[i].cap);
		verdict(!doctor(&as) && log_has(doctor_log, rights[i].cost), rights[i].name,
			"doctor says: %s", rights[i].cost);
		judge_rights(rights[i].name, as.caps, &rights[i].seen);
	}
	for (i = 0; i < ARRAY_SIZE(deep); i++)
		child_kill(deep[i]);
	return guest_failed();
}

/* --- CPUs that come and go -------------------------------------------------------------------- */

/* Runs under `record`, so that all of it is seen. */
int case_hotplug_work(void)
{
	static const char online[] = "/sys/devices/system/cpu/cpu1/online";
	const struct child root = { 0 }, on_1 = { .cpu = 2 };
	pid_t deep = start_deep(&root, "/t/deep", "120");
	bool good;
	int bad;

	pause_ms(1000);
	good = put_file(online, "0");
	pause_ms(1500);
	good = good && put_file(online, "1");
	/* Only a sampler on the CPU that came back sees this one. */
	bad = child_wait(start_deep(&on_1, "/tmp/late", "3"));
	child_kill(deep);
	return bad || !good;
}

int case_hotplug(void)
{
	char *argv[] = {
		"/t/ebpfprofiler",    "record", "-F",       "199",          "-d", "120", "-o",
		(char *)profile_path, "--",     "/t/guest", "hotplug-work", NULL
	};
	const struct child root = { .log = record_log };
	struct chain stayed, late;
	struct profile p = { 0 };

	if (!copy_file("/t/deep", "/tmp/late", 0755))
		return 1;
	if (read_case("cpu-gone-and-back", child_run(&root, argv), &p)) {
		profile_chain(&p, "deep", 0, &stayed);
		profile_chain(&p, "late", 0, &late);
		verdict(stayed.chain >= ENOUGH, "cpu-that-stayed",
			"%" PRIu64 " of %" PRIu64 " whole", stayed.chain, stayed.samples);
		verdict(late.chain >= ENOUGH, "cpu-gone-and-back",
			"%" PRIu64 " of %" PRIu64 " whole", late.chain, late.samples);
		check_sums(&p, "cpu-sums");
	}
	profile_fini(&p);
	return guest_failed();
}

/* --- kernels that a profiler can bring down --------------------------------------------------- */

/* No kernel of the matrix is one; this guest claims to be. --force gets past, and it works. */
int case_known_bad(void)
{
	static const char release[] = "/proc/sys/kernel/osrelease",
			  version[] = "/proc/sys/kernel/version";
	char *forced[] = { "/t/ebpfprofiler",
			   "record",
			   "--force",
			   "-d",
			   "1",
			   "-o",
			   (char *)profile_path,
			   "--",
			   "/t/deep",
			   DEPTH_ARG,
			   "0",
			   "1",
			   NULL };
	char *run[] = { "/t/ebpfprofiler", "run", "-c", "/t/run.ini", NULL };
	struct child root = { 0 };
	struct profile p = { 0 };
	int status;

	if (!put_file("/tmp/release", "6.1.30\n") || !put_file("/tmp/version", "#1 SMP\n") ||
	    mount("/tmp/release", release, NULL, MS_BIND, NULL) ||
	    mount("/tmp/version", version, NULL, MS_BIND, NULL)) {
		verdict(false, "known-bad", "cannot claim to be another kernel: %s",
			strerror(errno));
		return 1;
	}
	status = doctor(&root);
	verdict(status == 1 && log_has(doctor_log, "the whole host can freeze"), "known-bad-doctor",
		"status %d", status);
	status = child_wait(start_record(&root, "1"));
	verdict(status == CANNOT_RUN && log_has(record_log, "the whole host can freeze"),
		"known-bad-record", "status %d", status);
	root.log = record_log;
	status = child_run(&root, run);
	verdict(status == CANNOT_RUN && log_has(record_log, "the whole host can freeze"),
		"known-bad-run", "status %d", status);
	status = child_run(&root, forced);
	if (read_case("known-bad-forced", status, &p))
		verdict(profile_samples(&p) > 0, "known-bad-forced", "%u stacks",
			profile_samples(&p));
	profile_fini(&p);
	umount(release);
	umount(version);
	return guest_failed();
}
