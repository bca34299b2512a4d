// SPDX-License-Identifier: Apache-2.0
/*
 * Preflight on hosts made of a few files: what is missing is named, with what it costs and how to
 * mend it, and only what makes profiling impossible stops it.
 */
#include "core/features.h"
#include "core/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define CAPS_ALL "000001ffffffffff"
#define BTF      "\x9f\xeb\x01"

/* Bits of linux/capability.h. */
#define BIT(n)     (1ull << (n))
#define DAC_READ   BIT(2)
#define SYS_PTRACE BIT(19)
#define SYS_ADMIN  BIT(21)
#define SYSLOG     BIT(34)
#define PERFMON    BIT(38)
#define BPF        BIT(39)
#define RESTORE    BIT(40)

static char root[] = "/tmp/test_preflight.XXXXXX";

/* --- the made-up host ------------------------------------------------------------------------ */

static struct {
	int clock, ring, load; /* 0 or -errno */
	u32 loads;             /* how often it was asked for */
} answers;

static struct features features;

static const struct features whole = {
	.btf = true,
	.ring_buffer = true,
	.task_pt_regs = true,
	.loop = true,
	.copy_from_user_task = true,
	.task_storage = true,
	.task_work = TASK_WORK_PLAIN,
	.sched_switch_args = 4,
	.iter_task = true,
	.iter_task_filtered = true,
	.iter_task_sleeps = true,
	.jit = true,
};

static int fake_fd(int answer)
{
	return answer ? answer : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int fake_perf(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	/* Every process on one CPU, as the sampler asks. */
	assert_int_equal(attr->type, PERF_TYPE_SOFTWARE);
	assert_int_equal(pid, -1);
	assert_true(cpu >= 0);
	return fake_fd(answers.clock);
}

static int fake_ring(void)
{
	return fake_fd(answers.ring);
}

static int fake_load(void)
{
	answers.loads++;
	return answers.load;
}

static const struct preflight_host host = {
	.root = root,
	.perf_open = fake_perf,
	.ring_open = fake_ring,
	.load = fake_load,
	.features = &features,
};

/* A shell command in the host's root. */
static void run(const char *what)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "cd %s && %s", root, what);
	assert_int_equal(system(cmd), 0);
}

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void drop(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s%s", root, path);
	assert_int_equal(unlink(full), 0);
}

static void put_link(const char *path, const char *target)
{
	char full[256];

	snprintf(full, sizeof(full), "%s%s", root, path);
	unlink(full);
	assert_int_equal(symlink(target, full), 0);
}

static void put_caps(u64 caps)
{
	char text[128];

	snprintf(text, sizeof(text),
		 "Name:\tx\nCapPrm:\t" CAPS_ALL "\nCapEff:\t%016llx\nSeccomp:\t0\n",
		 (unsigned long long)caps);
	put("/proc/self/status", text);
}

static void put_kernel(const char *release, const char *version)
{
	put("/proc/sys/kernel/osrelease", release);
	put("/proc/sys/kernel/version", version);
}

/* A host on which everything is there; each test then takes something away. */
static int fresh_host(void **state)
{
	(void)state;
	memset(&answers, 0, sizeof(answers));
	features = whole;
	run("rm -rf proc sys");
	run("mkdir -p proc/self/ns proc/sys/kernel/yama sys/kernel/btf sys/kernel/security");
	put_kernel("6.18.1\n", "#1 SMP PREEMPT_DYNAMIC\n");
	put_caps(~0ull >> 23);
	put_link("/proc/self/ns/pid", "pid:[4026531836]");
	put_link("/proc/self/ns/user", "user:[4026531837]");
	put("/proc/sys/kernel/perf_event_paranoid", "2\n");
	put("/proc/sys/kernel/perf_event_max_sample_rate", "100000\n");
	put("/proc/sys/kernel/yama/ptrace_scope", "1\n");
	put("/proc/kallsyms", "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _stext\n");
	put("/sys/kernel/btf/vmlinux", BTF);
	put("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	run("rm -rf $PWD");
	return 0;
}

/* --- helpers --------------------------------------------------------------------------------- */

static char report[16384];

static int doctor(bool json)
{
	FILE *f = fmemopen(report, sizeof(report), "w");
	int rc;

	assert_non_null(f);
	rc = preflight_run_on(&host, f, json);
	fclose(f);
	return rc;
}

/* The line of the report that is about `name`; copied. */
static const char *line_of(const char *name)
{
	static char line[1024];
	const char *s = report;

	while (*s) {
		size_t len = strcspn(s, "\n");

		if (len > 8 && !strncmp(s + 8, name, strlen(name)) && s[8 + strlen(name)] == ' ') {
			assert_true(len < sizeof(line));
			snprintf(line, sizeof(line), "%.*s", (int)len, s);
			return line;
		}
		s += len + (s[len] == '\n');
	}
	fail_msg("no line about %s in:\n%s", name, report);
	return "";
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static void assert_state(const char *name, const char *state)
{
	const char *line = line_of(name);

	if (strncmp(line, state, strlen(state)) || line[strlen(state)] != ' ')
		fail_msg("expected %s: %s", state, line);
}

/* A state that is not ok says what it costs and how to mend it. */
static void assert_told(const char *name, const char *state)
{
	assert_state(name, state);
	assert_has(line_of(name), "; cost: ");
	assert_has(line_of(name), "; remedy: ");
}

/* Profiling cannot run, and both forms say so. */
static void assert_refused(const char *name, const char *why_part)
{
	char why[512] = "";

	assert_int_equal(doctor(false), 1);
	assert_told(name, "missing");
	assert_int_equal(preflight_check_on(&host, false, why, sizeof(why)), 3);
	assert_has(why, "cannot run here: ");
	assert_has(why, name);
	assert_has(why, why_part);
	assert_has(why, "; remedy: ");
	assert_null(strchr(why, '\n'));
}

static void assert_runs(void)
{
	char why[512] = "";

	if (doctor(false))
		fail_msg("%s", report);
	assert_int_equal(preflight_check_on(&host, false, why, sizeof(why)), 0);
	assert_string_equal(why, "");
}

static void assert_limited(const char *name)
{
	assert_runs();
	assert_told(name, "limited");
}

/* --- tests ----------------------------------------------------------------------------------- */

static void whole_host_is_ok_on_every_line(void **state)
{
	const char *s;

	(void)state;
	assert_runs();
	assert_has(report, "profiling can run here: 0 missing, 0 limited\n");
	for (s = report; *s && strncmp(s, "profiling", 9); s += strcspn(s, "\n") + 1)
		assert_int_equal(strncmp(s, "ok ", 3), 0);
	assert_has(line_of("kernel"), "this build was tested on 5.10");
}

static void missing_btf_is_named(void **state)
{
	(void)state;
	drop("/sys/kernel/btf/vmlinux");
	assert_refused("BTF", "CONFIG_DEBUG_INFO_BTF=y");
	put("/sys/kernel/btf/vmlinux", "");
	assert_refused("BTF", "not BTF");
}

static void no_capabilities_names_each_with_its_cost(void **state)
{
	static const char *const vital[] = { "CAP_BPF", "CAP_PERFMON", "perf_event_paranoid",
					     "BPF ring buffer" };
	static const char *const extra[] = {
		"CAP_SYS_PTRACE", "CAP_SYSLOG",  "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE",
		"kallsyms",       "batch calls", "BPF programs"
	};
	size_t i;

	(void)state;
	put_caps(0);
	put("/proc/kallsyms", "0000000000000000 A a\n0000000000000000 T _stext\n");
	answers.clock = -EACCES;
	features.cycles_error = -EACCES;
	features.batch_error = answers.ring = -EPERM;
	assert_refused("CAP_BPF", "3 more: see ebpfprofiler doctor");
	for (i = 0; i < ARRAY_SIZE(vital); i++)
		assert_told(vital[i], "missing");
	for (i = 0; i < ARRAY_SIZE(extra); i++)
		assert_told(extra[i], "limited");
	assert_has(report, "profiling cannot run here: 4 missing, 8 limited\n");
	assert_has(line_of("BPF ring buffer"), "give CAP_BPF and CAP_PERFMON");
}

static void each_missing_capability_changes_its_own_line(void **state)
{
	static const struct {
		u64 bit;
		const char *name, *state;
	} caps[] = {
		{ BPF, "CAP_BPF", "missing" },
		{ PERFMON, "CAP_PERFMON", "missing" },
		{ SYS_PTRACE, "CAP_SYS_PTRACE", "limited" },
		{ DAC_READ, "CAP_DAC_READ_SEARCH", "limited" },
		{ RESTORE, "CAP_CHECKPOINT_RESTORE", "limited" },
	};
	u64 all = BPF | PERFMON | SYS_PTRACE | SYSLOG | DAC_READ | RESTORE;
	size_t i, k;

	(void)state;
	put_caps(all);
	assert_runs();
	for (i = 0; i < ARRAY_SIZE(caps); i++) {
		put_caps(all & ~caps[i].bit);
		assert_int_equal(doctor(false), !strcmp(caps[i].state, "missing"));
		for (k = 0; k < ARRAY_SIZE(caps); k++)
			assert_state(caps[k].name, k == i ? caps[k].state : "ok");
		assert_told(caps[i].name, caps[i].state);
	}
}

static void sys_admin_stands_for_bpf_perfmon_and_checkpoint_restore_only(void **state)
{
	(void)state;
	put_caps(SYS_ADMIN);
	put("/proc/kallsyms", "");
	assert_runs();
	assert_has(line_of("CAP_BPF"), "CAP_SYS_ADMIN stands for it");
	assert_has(line_of("CAP_PERFMON"), "CAP_SYS_ADMIN stands for it");
	assert_has(line_of("CAP_CHECKPOINT_RESTORE"), "CAP_SYS_ADMIN stands for it");
	assert_told("CAP_SYS_PTRACE", "limited");
	assert_told("CAP_SYSLOG", "limited");
	assert_told("CAP_DAC_READ_SEARCH", "limited");
}

static void syslog_is_not_needed_where_kallsyms_is_open(void **state)
{
	(void)state;
	put_caps(BPF | PERFMON | SYS_PTRACE | DAC_READ | RESTORE);
	assert_runs();
	assert_state("CAP_SYSLOG", "ok");
	assert_state("kallsyms", "ok");
}

static void hidden_kallsyms_with_syslog_blames_kptr_restrict(void **state)
{
	(void)state;
	put("/proc/kallsyms", "0000000000000000 A a\n0000000000000000 T _stext\n");
	assert_limited("kallsyms");
	assert_has(line_of("kallsyms"), "kernel.kptr_restrict=1");
	drop("/proc/kallsyms");
	assert_limited("kallsyms");
}

static void lockdown_confidentiality_refuses_and_integrity_does_not(void **state)
{
	(void)state;
	put("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
	assert_runs();
	put("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
	assert_refused("lockdown", "lockdown=integrity");
	drop("/sys/kernel/security/lockdown");
	assert_runs();
}

static void paranoid_4_is_ok_when_the_kernel_lets_us(void **state)
{
	(void)state;
	put("/proc/sys/kernel/perf_event_paranoid", "4\n");
	assert_runs();
	assert_has(line_of("perf_event_paranoid"), "4; sampling every process is allowed");
}

static void paranoid_4_without_capabilities_is_refused(void **state)
{
	(void)state;
	put("/proc/sys/kernel/perf_event_paranoid", "4\n");
	put_caps(0);
	answers.clock = -EACCES;
	assert_refused("CAP_BPF", "CAP_BPF");
	assert_told("perf_event_paranoid", "missing");
	assert_has(line_of("perf_event_paranoid"), "give CAP_BPF and CAP_PERFMON");
}

static void paranoid_4_that_wants_sys_admin_is_named(void **state)
{
	(void)state;
	put("/proc/sys/kernel/perf_event_paranoid", "4\n");
	put_caps(BPF | PERFMON | SYS_PTRACE | SYSLOG | DAC_READ | RESTORE);
	answers.clock = -EACCES;
	assert_refused("perf_event_paranoid", "sysctl kernel.perf_event_paranoid=2");
}

static void seccomp_filter_is_suspected_when_capabilities_are_held(void **state)
{
	(void)state;
	put("/proc/self/status", "CapEff:\t" CAPS_ALL "\nSeccomp:\t2\n");
	answers.ring = -EPERM;
	assert_refused("BPF ring buffer", "seccomp=unconfined");
}

static void kernel_without_perf_events_is_named(void **state)
{
	(void)state;
	answers.clock = -ENOSYS;
	assert_refused("perf_event_paranoid", "CONFIG_PERF_EVENTS=y");
}

static void software_clock_limits_only(void **state)
{
	(void)state;
	features.cycles_error = -ENOENT;
	assert_limited("cycles");
	assert_has(line_of("cycles"), "cpu-clock");
}

static void build_ids_in_mapping_records_are_told_and_not_needed(void **state)
{
	(void)state;
	assert_runs();
	assert_has(line_of("build ids of mappings"), "the kernel can send them");
	features.build_id_error = -EINVAL;
	assert_runs();
	assert_has(line_of("build ids of mappings"), "the kernel cannot send them");
}

/* What an old kernel lacks is said, with what is done instead, and stops nothing. */
static void lacking_features_limit_only_and_name_the_other_way(void **state)
{
	(void)state;
	features = (struct features){ .btf = true,
				      .ring_buffer = true,
				      .iter_task = true,
				      .sched_switch_args = 3,
				      .memlock = true,
				      .jit = true };
	assert_runs();
	assert_has(line_of("user registers"), "top of the kernel stack");
	assert_told("task work", "limited");
	assert_has(line_of("task work"), "in interrupts");
	assert_told("thread iterator", "limited");
	assert_has(line_of("thread iterator"), "process_vm_readv");
	assert_has(line_of("other BPF features"), "not there, nor needed: bpf_loop");
	features.iter_task = false;
	assert_limited("thread iterator");
	assert_has(line_of("thread iterator"), "not in this kernel");
	features.task_work = TASK_WORK_IMPL;
	assert_runs();
	assert_has(line_of("task work"), "5 arguments");
}

/* Each of the three things that threads are read with is needed. */
static void thread_iterator_needs_all_its_parts(void **state)
{
	bool *const parts[] = { &features.iter_task_sleeps, &features.iter_task_filtered,
				&features.task_storage };
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		features = whole;
		*parts[i] = false;
		assert_limited("thread iterator");
		assert_has(line_of("thread iterator"), "only counts switches");
	}
}

static void kernel_without_batch_calls_is_refused(void **state)
{
	(void)state;
	features.batch_error = -EINVAL;
	assert_refused("batch calls", "5.8");
}

static void programs_are_loaded_by_doctor_and_not_before_run(void **state)
{
	char why[512];

	(void)state;
	assert_int_equal(doctor(false), 0);
	assert_int_equal(answers.loads, 1);
	assert_has(line_of("BPF programs"), "compiles them");
	assert_int_equal(preflight_check_on(&host, false, why, sizeof(why)), 0);
	assert_int_equal(answers.loads, 1);
	answers.load = -EINVAL;
	assert_int_equal(doctor(false), 1);
	assert_told("BPF programs", "missing");
	assert_has(line_of("BPF programs"), "--verbose");
}

static void programs_are_not_tried_when_something_else_is_missing(void **state)
{
	(void)state;
	drop("/sys/kernel/btf/vmlinux");
	assert_int_equal(doctor(false), 1);
	assert_int_equal(answers.loads, 0);
	assert_told("BPF programs", "limited");
	assert_has(line_of("BPF programs"), "not tried");
}

static void jit_that_is_off_limits_or_refuses_as_the_kernel_decides(void **state)
{
	(void)state;
	features.jit = false;
	assert_limited("BPF programs");
	assert_has(line_of("BPF programs"), "sysctl net.core.bpf_jit_enable=1");
	answers.load = -EINVAL;
	assert_refused("BPF programs", "sysctl net.core.bpf_jit_enable=1");
}

static void low_maximum_sample_rate_limits(void **state)
{
	(void)state;
	put("/proc/sys/kernel/perf_event_max_sample_rate", "999\n");
	assert_limited("perf_event_max_sample_rate");
	put("/proc/sys/kernel/perf_event_max_sample_rate", "1000\n");
	assert_runs();
	assert_state("perf_event_max_sample_rate", "ok");
}

static void locked_memory_counts_where_the_kernel_says_so(void **state)
{
	static const char limits[] = "Limit                     Soft Limit\n"
				     "Max locked memory         65536                65536 bytes\n";

	(void)state;
	put("/proc/self/limits", limits);
	put_caps(BPF | PERFMON | SYS_PTRACE | SYSLOG | DAC_READ | RESTORE);
	assert_runs();
	assert_state("locked memory", "ok");
	features.memlock = true;
	assert_limited("locked memory");
	put("/proc/self/limits", "Max locked memory         unlimited   unlimited   bytes\n");
	assert_runs();
	assert_state("locked memory", "ok");
}

static void put_nspid(const char *line)
{
	char text[256];

	snprintf(text, sizeof(text), "CapEff:\t" CAPS_ALL "\nSeccomp:\t0\n%s", line);
	put("/proc/self/status", text);
	put_link("/proc/self/ns/pid", "pid:[4026532999]");
}

static void other_pid_namespace_limits(void **state)
{
	(void)state;
	put_nspid("NSpid:\t7\n");
	assert_limited("pid namespace");
	assert_has(line_of("pid namespace"), "the rest of the host is out of reach");
}

/* Its pids would be those of another namespace than BPF's and perf's. */
static void foreign_proc_is_refused(void **state)
{
	(void)state;
	put_nspid("NSpid:\t4711\t7\n");
	assert_refused("pid namespace", "mount a /proc");
	put_nspid("");
	assert_refused("pid namespace", "mount a /proc");
}

static void other_user_namespace_is_refused(void **state)
{
	(void)state;
	put_link("/proc/self/ns/user", "user:[4026532999]");
	answers.ring = answers.clock = -EPERM;
	assert_refused("user namespace", "capabilities do not count");
	assert_has(line_of("BPF ring buffer"), "see user namespace");
	answers.ring = answers.clock = 0;
	drop("/proc/self/ns/user");
	assert_runs();
}

static void kernel_before_5_8_is_refused(void **state)
{
	(void)state;
	put_kernel("5.7.19\n", "");
	assert_refused("kernel", "5.8 or newer");
	put_kernel("5.8.0-63-generic\n", "");
	assert_runs();
	drop("/proc/sys/kernel/osrelease");
	drop("/proc/sys/kernel/version");
	assert_refused("kernel", "cannot be read");
}

/* Edges of the ranges: peers' reports name 6.1.36 and 6.3.10 as the first good ones. */
static void kernels_that_freeze_are_refused_within_their_range_only(void **state)
{
	static const struct {
		const char *release;
		bool bad;
	} rows[] = {
		{ "5.18.19", false },    { "5.19.0", true },
		{ "5.19.17", true },     { "6.0.0", true },
		{ "6.0.19", true },      { "6.1", true },
		{ "6.1.35", true },      { "6.1.36", false },
		{ "6.1.36-rc1", false }, { "6.1.192", false },
		{ "6.2.0", true },       { "6.2.16", true },
		{ "6.3.9", true },       { "6.3.10", false },
		{ "6.4.0", false },      { "6.3.9-200.fc38.x86_64", true },
	};
	char why[512];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		put_kernel(rows[i].release, "");
		if (!rows[i].bad) {
			assert_runs();
			continue;
		}
		assert_refused("known bugs", "whole host can freeze");
		assert_has(line_of("known bugs"), "refuse unless --force");
		assert_int_equal(preflight_check_on(&host, true, why, sizeof(why)), 0);
	}
}

static void force_gets_past_known_bugs_only(void **state)
{
	char why[512];

	(void)state;
	put_kernel("6.1.35", "");
	put("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
	assert_int_equal(preflight_check_on(&host, true, why, sizeof(why)), 3);
	assert_has(why, "lockdown");
	assert_null(strstr(why, "freeze"));
}

static void frozen_release_names_of_debian_and_ubuntu_are_looked_through(void **state)
{
	(void)state;
	put_kernel("6.1.0-57-cloud-amd64\n",
		   "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-01)\n");
	assert_runs();
	assert_has(line_of("kernel"), "6.1.192");
	put_kernel("6.1.0-9-amd64\n", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.27-1 (2023-05-08)\n");
	assert_refused("known bugs", "freeze");
	put_kernel("6.2.0-39-generic\n", "#40-Ubuntu SMP\n");
	put("/proc/version_signature", "Ubuntu 6.2.0-39.40-generic 6.2.16\n");
	assert_refused("known bugs", "freeze");
	put_kernel("6.8.0-31-generic\n", "#31-Ubuntu SMP\n");
	put("/proc/version_signature", "Ubuntu 6.8.0-31.31-generic 6.8.1\n");
	assert_runs();
	assert_has(line_of("kernel"), "6.8.1");
}

static void vendor_kernels_on_the_list_are_refused(void **state)
{
	(void)state;
	put_kernel("6.1.112-124.190.amzn2023.aarch64\n", "");
	assert_refused("known bugs", "kernel_frames = false");
	put_kernel("6.1.112-124.190.amzn2023.x86_64\n", "");
	assert_runs();
	put_kernel("5.14.0-427.13.1.el9_4.x86_64\n", "");
	assert_refused("known bugs", "9.5");
	put_kernel("5.14.0-503.11.1.el9_5.x86_64\n", "");
	assert_runs();
}

static void races_of_a_walk_that_is_never_used_are_told_but_run(void **state)
{
	(void)state;
	put_kernel("6.6.58\n", "");
	assert_runs();
	assert_has(line_of("known bugs"), "harmless here");
	put_kernel("6.11.0-19-generic\n", "");
	assert_runs();
	assert_has(line_of("known bugs"), "harmless here");
	put_kernel("6.13.0\n", "");
	assert_runs();
	assert_null(strstr(line_of("known bugs"), "harmless"));
}

static void yama_is_reported_and_never_stops(void **state)
{
	(void)state;
	put("/proc/sys/kernel/yama/ptrace_scope", "3\n");
	assert_runs();
	assert_has(line_of("ptrace_scope"), " 3;");
}

static void json_is_sound_and_escaped(void **state)
{
	char cmd[512];
	FILE *f;

	(void)state;
	put_kernel("6.18.1-\"quote\\back\x1b\xff\n", "");
	drop("/sys/kernel/btf/vmlinux");
	assert_int_equal(doctor(true), 1);
	assert_has(report, "6.18.1-\\\"quote\\\\back?\xef\xbf\xbd, source");
	assert_has(report, "\"can_run\":false,\"missing\":1,\"limited\":1}");
	/* An independent reader. */
	if (system("command -v python3 >/dev/null"))
		return;
	snprintf(cmd, sizeof(cmd), "%s/report.json", root);
	f = fopen(cmd, "we");
	assert_non_null(f);
	fputs(report, f);
	fclose(f);
	snprintf(cmd, sizeof(cmd),
		 "python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); "
		 "c={x[\"name\"]: x for x in r[\"checks\"]}; "
		 "f=r[\"features\"]; "
		 "sys.exit(c[\"BTF\"][\"state\"] != \"missing\" or not c[\"BTF\"][\"remedy\"] "
		 "or f[\"loop\"] != 1 or f[\"arena\"] != 0 or f[\"task_work_args\"] != 4)' "
		 "%s/report.json",
		 root);
	assert_int_equal(system(cmd), 0);
}

static void text_has_no_control_bytes_of_a_hostile_host(void **state)
{
	char why[512];
	const char *s;

	(void)state;
	put_kernel("6.1.1\x1b[2J\x07\n", "");
	put("/sys/kernel/security/lockdown", "\x1b[31m[confidentiality]\x9b\n");
	put_link("/proc/self/ns/pid", "\x1b[31mpid\n:[1]");
	assert_int_equal(doctor(false), 1);
	for (s = report; *s; s++)
		assert_true((u8)*s >= 0x20 || *s == '\n');
	assert_int_equal(preflight_check_on(&host, false, why, sizeof(why)), 3);
	for (s = why; *s; s++)
		assert_true((u8)*s >= 0x20);
}

static void no_colour_off_a_terminal(void **state)
{
	(void)state;
	unsetenv("NO_COLOR");
	assert_runs();
	assert_null(strchr(report, '\x1b'));
}

/* What the report writes to a terminal has colour codes in it. */
static bool coloured_on_a_terminal(void)
{
	_cleanup_close_ int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	char text[8192];
	ssize_t n;
	FILE *f;
	int fd;

	if (master < 0 || grantpt(master) || unlockpt(master))
		skip();
	fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	assert_int_equal(preflight_run_on(&host, f, false), 0);
	fflush(f);
	n = read(master, text, sizeof(text) - 1);
	fclose(f);
	assert_true(n > 0);
	text[n] = '\0';
	return strchr(text, '\x1b') != NULL;
}

static void colour_on_a_terminal_unless_no_color_or_dumb(void **state)
{
	(void)state;
	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	assert_true(coloured_on_a_terminal());
	setenv("NO_COLOR", "", 1);
	assert_true(coloured_on_a_terminal());
	setenv("NO_COLOR", "1", 1);
	assert_false(coloured_on_a_terminal());
	unsetenv("NO_COLOR");
	setenv("TERM", "dumb", 1);
	assert_false(coloured_on_a_terminal());
}

static void empty_host_is_refused_without_crash(void **state)
{
	char why[64];

	(void)state;
	run("rm -rf proc sys");
	answers.clock = answers.ring = answers.load = -ENOSYS;
	features = (struct features){ .cycles_error = -ENOSYS,
				      .build_id_error = -ENOSYS,
				      .batch_error = -ENOSYS };
	assert_int_equal(doctor(false), 1);
	assert_int_equal(doctor(true), 1);
	assert_int_equal(preflight_check_on(&host, false, why, sizeof(why)), 3);
	assert_int_equal(strlen(why), sizeof(why) - 1);
}

/* Whatever this host is: the report and the short form agree. */
static void real_host_gives_one_verdict(void **state)
{
	FILE *f = fopen("/dev/null", "we");
	char why[512];
	int rc;

	(void)state;
	assert_non_null(f);
	rc = preflight_run(f, true);
	assert_int_equal(preflight_check(why, sizeof(why)), rc ? 3 : 0);
	fclose(f);
}

#define T(f) cmocka_unit_test_setup(f, fresh_host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(whole_host_is_ok_on_every_line),
		T(missing_btf_is_named),
		T(no_capabilities_names_each_with_its_cost),
		T(each_missing_capability_changes_its_own_line),
		T(sys_admin_stands_for_bpf_perfmon_and_checkpoint_restore_only),
		T(syslog_is_not_needed_where_kallsyms_is_open),
		T(hidden_kallsyms_with_syslog_blames_kptr_restrict),
		T(lockdown_confidentiality_refuses_and_integrity_does_not),
		T(paranoid_4_is_ok_when_the_kernel_lets_us),
		T(paranoid_4_without_capabilities_is_refused),
		T(paranoid_4_that_wants_sys_admin_is_named),
		T(seccomp_filter_is_suspected_when_capabilities_are_held),
		T(kernel_without_perf_events_is_named),
		T(software_clock_limits_only),
		T(build_ids_in_mapping_records_are_told_and_not_needed),
		T(lacking_features_limit_only_and_name_the_other_way),
		T(thread_iterator_needs_all_its_parts),
		T(kernel_without_batch_calls_is_refused),
		T(programs_are_loaded_by_doctor_and_not_before_run),
		T(programs_are_not_tried_when_something_else_is_missing),
		T(jit_that_is_off_limits_or_refuses_as_the_kernel_decides),
		T(low_maximum_sample_rate_limits),
		T(locked_memory_counts_where_the_kernel_says_so),
		T(other_pid_namespace_limits),
		T(foreign_proc_is_refused),
		T(other_user_namespace_is_refused),
		T(kernel_before_5_8_is_refused),
		T(kernels_that_freeze_are_refused_within_their_range_only),
		T(force_gets_past_known_bugs_only),
		T(frozen_release_names_of_debian_and_ubuntu_are_looked_through),
		T(vendor_kernels_on_the_list_are_refused),
		T(races_of_a_walk_that_is_never_used_are_told_but_run),
		T(yama_is_reported_and_never_stops),
		T(json_is_sound_and_escaped),
		T(text_has_no_control_bytes_of_a_hostile_host),
		T(no_colour_off_a_terminal),
		T(colour_on_a_terminal_unless_no_color_or_dumb),
		T(empty_host_is_refused_without_crash),
		T(real_host_gives_one_verdict),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
