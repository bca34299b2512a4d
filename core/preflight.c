// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. In: /proc, /sys, what features.c found out, and probing system calls. Out: the
 * report of `doctor`, or the one reason why `run` and `record` cannot start here. Each check is a
 * function that fills one struct check; the table at the end gives their order.
 */
#include "preflight.h"

#include "census.h"
#include "features.h"
#include "sampler.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Newer than the oldest headers that the build accepts (linux/capability.h of 5.9). */
#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

#define TESTED_ON       "5.10, 6.1, 6.12, 6.18, 7.2 and 7.3"
#define HEAD_MAX        (64 * 1024) /* of any file that a check reads */
#define PROCESSES_TRIED 4096
#define PIDS_MAX        (1u << 22) /* of the kernel: include/linux/threads.h */
#define KERNEL(a, b, c) ((u64)(a) << 40 | (u64)(b) << 20 | (u64)(c))
#define INITIAL_PID_NS  "pid:[4026531836]" /* fixed in the kernel: include/linux/proc_ns.h */
#define INITIAL_USER_NS "user:[4026531837]"

enum state {
	STATE_OK,
	STATE_LIMITED, /* profiling runs, something is lost */
	STATE_MISSING, /* profiling cannot run */
};

struct check {
	enum state state;
	char found[192];
	char cost[224];
	char remedy[224];
};

/* What several checks need, looked up once. */
struct probe {
	const struct preflight_host *h;
	const struct features *f;
	bool report;  /* doctor: whatever takes a moment is tried, too */
	bool missing; /* a check before this one found what profiling cannot do without */
	u64 caps;
	bool seccomp;
	bool foreign_user_ns;
	bool kallsyms_shown;
	char release[128]; /* as uname -r says */
	u64 version;       /* of the upstream source, as far as it can be told */
	char version_text[32];
};

/* --- small tools ----------------------------------------------------------------------------- */

/* At most size - 1 first bytes of a file under the host's root, NUL-terminated; or -errno. */
static ssize_t read_head(const struct probe *p, const char *path, char *buf, size_t size)
{
	char full[PATH_MAX];
	_cleanup_close_ int fd = -1;
	size_t len = 0;

	buf[0] = '\0';
	if (snprintf(full, sizeof(full), "%s%s", p->h->root, path) >= (int)sizeof(full))
		return -ENAMETOOLONG;
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	while (len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

/* The file's first line, clean. */
static int read_line(const struct probe *p, const char *path, char *buf, size_t size)
{
	char raw[512];
	ssize_t len = read_head(p, path, raw, sizeof(raw));

	if (len < 0) {
		buf[0] = '\0';
		return (int)len;
	}
	utf8_clean(buf, size, raw, strcspn(raw, "\n"));
	return 0;
}

/* A file that holds one number. */
static int read_number(const struct probe *p, const char *path, long *ret)
{
	char text[64], *end;
	int rc = read_line(p, path, text, sizeof(text));
	long v;

	if (rc)
		return rc;
	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* Value of "NAME:\tVALUE" in a /proc status text; NULL when it is not there. */
static const char *status_field(const char *status, const char *name)
{
	size_t len = strlen(name);
	const char *s = status;

	while (s) {
		if (!strncmp(s, name, len) && s[len] == ':')
			return s + len + 1;
		s = strchr(s, '\n');
		if (s)
			s++;
	}
	return NULL;
}

/* What was found may quote the host: it is made clean for a terminal. */
static void set(struct check *c, enum state state, const char *fmt, ...) __printf(3, 4);
static void set(struct check *c, enum state state, const char *fmt, ...)
{
	char text[sizeof(c->found)];
	va_list args;

	c->state = state;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	utf8_clean(c->found, sizeof(c->found), text, sizeof(text));
}

static void say(char *field, size_t size, const char *fmt, ...) __printf(3, 4);
static void say(char *field, size_t size, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(field, size, fmt, args);
	va_end(args);
}
#define COST(c, ...)   say((c)->cost, sizeof((c)->cost), __VA_ARGS__)
#define REMEDY(c, ...) say((c)->remedy, sizeof((c)->remedy), __VA_ARGS__)

static bool has_cap(const struct probe *p, u32 cap)
{
	return p->caps & 1ull << cap;
}

/* CAP_SYS_ADMIN still stands for what was split from it in 5.8 and 5.9. */
static bool can(const struct probe *p, u32 cap)
{
	if (has_cap(p, cap))
		return true;
	return (cap == CAP_BPF || cap == CAP_PERFMON || cap == CAP_CHECKPOINT_RESTORE) &&
	       has_cap(p, CAP_SYS_ADMIN);
}

/* --- kernel version -------------------------------------------------------------------------- */

/* "6", "6.1", "6.1.36-foo"; what is missing counts as 0. 0 when it is no version at all. */
static u64 parse_version(const char *s)
{
	unsigned long part[3] = { 0 };
	u32 i;

	for (i = 0; i < 3; i++) {
		char *end;

		if (*s < '0' || *s > '9')
			break;
		part[i] = strtoul(s, &end, 10);
		if (part[i] >= 1ul << 20)
			return 0;
		s = end;
		if (*s != '.')
			break;
		s++;
	}
	return KERNEL(part[0], part[1], part[2]);
}

static void take_version(struct probe *p, const char *s)
{
	u64 v = parse_version(s);

	if (!v)
		return;
	p->version = v;
	snprintf(p->version_text, sizeof(p->version_text), "%u.%u.%u", (u32)(v >> 40),
		 (u32)(v >> 20 & 0xfffff), (u32)(v & 0xfffff));
}

/*
 * Debian and Ubuntu freeze the release name: 6.1.0-57-amd64 is 6.1.192. Debian says so in the
 * version ("#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (...)"), Ubuntu at the end of
 * /proc/version_signature ("Ubuntu 6.2.0-39.40-generic 6.2.16").
 */
static void read_version(struct probe *p)
{
	static const char debian[] = " Debian ";
	char text[512];
	const char *s;

	read_line(p, "/proc/sys/kernel/osrelease", p->release, sizeof(p->release));
	take_version(p, p->release);
	if (!read_line(p, "/proc/sys/kernel/version", text, sizeof(text))) {
		s = strstr(text, debian);
		if (s)
			take_version(p, s + strlen(debian));
	}
	if (!read_line(p, "/proc/version_signature", text, sizeof(text))) {
		s = strrchr(text, ' ');
		if (s)
			take_version(p, s + 1);
	}
}

static void check_kernel(struct probe *p, struct check *c)
{
	if (!p->version) {
		set(c, STATE_MISSING, "version cannot be read from /proc/sys/kernel/osrelease");
		COST(c, "nothing can be profiled");
		REMEDY(c, "mount /proc");
		return;
	}
	set(c, STATE_OK, "%s, source %s (needed: 5.8; this build was tested on " TESTED_ON ")",
	    p->release, p->version_text);
	if (p->version >= KERNEL(5, 8, 0))
		return;
	c->state = STATE_MISSING;
	COST(c, "nothing can be profiled: no ring buffer, no CAP_BPF");
	REMEDY(c, "use Linux 5.8 or newer");
}

/*
 * Kernels on which a profiler has frozen or crashed hosts. A range goes by the upstream version;
 * a vendor's kernel by words of its release, since vendors carry patches of their own.
 * Not listed: the panic in updates of BPF LPM tries, a kind of map that is not used here.
 */
static const struct bad_kernel {
	u64 from, before; /* [from, before); 0, 0: any version */
	const char *word[2];
	bool harmless; /* needs something that this profiler never does */
	const char *bug;
	const char *mend;
} bad_kernels[] = {
	/* parca-dev/parca-agent#1675; mended upstream in 6.1.36, 6.3.10 and 6.4. */
	{ .from = KERNEL(5, 19, 0),
	  .before = KERNEL(6, 1, 36),
	  .bug = "reading user memory in an interrupt takes a lock: the whole host can freeze",
	  .mend = "update to 6.1.36 or newer" },
	{ .from = KERNEL(6, 2, 0),
	  .before = KERNEL(6, 3, 10),
	  .bug = "reading user memory in an interrupt takes a lock: the whole host can freeze",
	  .mend = "update to 6.3.10 or newer" },
	/* parca-dev/parca-agent#3112. */
	{ .word = { ".amzn2023", ".aarch64" },
	  .bug = "walking the kernel stack has crashed hosts with Amazon Linux 2023 on arm64",
	  .mend = "set kernel_frames = false and use --force" },
	/* yandex/perforator#68. */
	{ .word = { "5.14.0-427.", ".el9" },
	  .bug = "hard lockups under BPF profilers were reported for the kernel of RHEL 9.4",
	  .mend = "update to the kernel of 9.5 or newer" },
	/* siderolabs/talos#9671; commit b583ef82b671 in 6.13. */
	{ .from = KERNEL(6, 6, 58),
	  .before = KERNEL(6, 6, 59),
	  .harmless = true,
	  .bug = "the kernel's own user stack walk races with uprobes",
	  .mend = "" },
	{ .from = KERNEL(6, 11, 0),
	  .before = KERNEL(6, 12, 0),
	  .harmless = true,
	  .bug = "the kernel's own user stack walk races with uprobes",
	  .mend = "" },
};

static bool is_bad(const struct probe *p, const struct bad_kernel *b)
{
	size_t i;

	if (b->before && (p->version < b->from || p->version >= b->before))
		return false;
	for (i = 0; i < ARRAY_SIZE(b->word); i++)
		if (b->word[i] && !strstr(p->release, b->word[i]))
			return false;
	return true;
}

static void check_known_bad(struct probe *p, struct check *c)
{
	size_t i;

	set(c, STATE_OK, "%s is not on the list of kernels that a profiler can bring down",
	    p->version_text);
	for (i = 0; i < ARRAY_SIZE(bad_kernels); i++) {
		const struct bad_kernel *b = &bad_kernels[i];

		if (!is_bad(p, b))
			continue;
		if (b->harmless) {
			set(c, STATE_OK, "%s: %s; harmless here, that walk is never used",
			    p->version_text, b->bug);
			continue;
		}
		set(c, STATE_MISSING, "%s: %s", p->release, b->bug);
		COST(c, "run and record refuse unless --force is given");
		REMEDY(c, "%s", b->mend);
		return;
	}
}

/* --- kernel features ------------------------------------------------------------------------- */

static void check_btf(struct probe *p, struct check *c)
{
	static const char path[] = "/sys/kernel/btf/vmlinux";
	char head[8];
	ssize_t len = read_head(p, path, head, sizeof(head));
	u16 magic = 0;

	if (len >= (ssize_t)sizeof(magic))
		memcpy(&magic, head, sizeof(magic));
	if (magic == 0xeb9f) {
		set(c, STATE_OK, "%s", path);
		return;
	}
	set(c, STATE_MISSING, "%s: %s", path, len < 0 ? strerror((int)-len) : "not BTF");
	COST(c, "BPF programs cannot be fitted to this kernel: nothing can be profiled");
	REMEDY(c, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; in a container, mount /sys");
}

static void check_lockdown(struct probe *p, struct check *c)
{
	char text[128];

	if (read_line(p, "/sys/kernel/security/lockdown", text, sizeof(text))) {
		set(c, STATE_OK, "not in this kernel, or /sys/kernel/security is not mounted");
		return;
	}
	set(c, STATE_OK, "%s", text);
	if (!strstr(text, "[confidentiality]"))
		return;
	c->state = STATE_MISSING;
	COST(c, "the kernel refuses BPF programs that read memory: nothing can be profiled");
	REMEDY(c, "boot with lockdown=integrity, or without lockdown");
}

static void remedy_refused(const struct probe *p, struct check *c, int rc)
{
	if (rc == -ENOSYS)
		REMEDY(c, "use a kernel built with CONFIG_PERF_EVENTS=y and CONFIG_BPF_SYSCALL=y");
	else if (p->foreign_user_ns)
		REMEDY(c, "see user namespace");
	else if (!can(p, CAP_PERFMON) || !can(p, CAP_BPF))
		REMEDY(c, "give CAP_BPF and CAP_PERFMON, see there");
	else if (p->seccomp)
		REMEDY(c,
		       "a seccomp filter is on: allow bpf and perf_event_open, or in a container "
		       "use seccomp=unconfined");
	else
		REMEDY(c, "give CAP_SYS_ADMIN, or look for a security module that refuses it");
}

static void check_ring(struct probe *p, struct check *c)
{
	_cleanup_close_ int fd = p->h->ring_open();

	if (fd >= 0) {
		set(c, STATE_OK, "can be made");
		return;
	}
	set(c, STATE_MISSING, "cannot be made: %s", strerror(-fd));
	COST(c, "BPF has no way to hand over stacks: nothing can be profiled");
	remedy_refused(p, c, fd);
}

/* Some kernels count maps as locked memory of whoever makes them. */
static void check_memlock(struct probe *p, struct check *c)
{
	static const char name[] = "Max locked memory";
	char limits[4096];
	const char *s;

	set(c, STATE_OK,
	    p->f->memlock ? "this kernel counts BPF maps in; the limit can be lifted"
			  : "this kernel does not count BPF maps in");
	if (!p->f->memlock || has_cap(p, CAP_SYS_RESOURCE) ||
	    read_head(p, "/proc/self/limits", limits, sizeof(limits)) <= 0)
		return;
	s = strstr(limits, name);
	if (!s)
		return;
	s += strlen(name);
	if (!strncmp(s + strspn(s, " "), "unlimited", strlen("unlimited")))
		return;
	set(c, STATE_LIMITED, "limited, and this kernel counts BPF maps in");
	COST(c, "BPF maps may not fit");
	REMEDY(c, "run: ulimit -l unlimited, or set LimitMEMLOCK=infinity (systemd)");
}

/* The sampling event itself: every process on a CPU. What paranoid means is up to the kernel. */
static void check_paranoid(struct probe *p, struct check *c)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = 1,
		.disabled = 1,
	};
	int cpu = sched_getcpu();
	_cleanup_close_ int fd = p->h->perf_open(&attr, -1, MAX(cpu, 0));
	char level[32] = "unknown";
	long n = 0;

	if (!read_number(p, "/proc/sys/kernel/perf_event_paranoid", &n))
		snprintf(level, sizeof(level), "%ld", n);
	if (fd >= 0) {
		set(c, STATE_OK, "%s; sampling every process is allowed", level);
		return;
	}
	set(c, STATE_MISSING, "%s; sampling every process is refused: %s", level, strerror(-fd));
	COST(c, "nothing can be profiled");
	remedy_refused(p, c, fd);
	/* Levels over 2 are distributions' own; some let only CAP_SYS_ADMIN pass. */
	if (can(p, CAP_PERFMON) && (fd == -EACCES || fd == -EPERM) && n > 2)
		REMEDY(c, "run: sysctl kernel.perf_event_paranoid=2, or give CAP_SYS_ADMIN");
}

static void check_rate(struct probe *p, struct check *c)
{
	long n;

	if (read_number(p, "/proc/sys/kernel/perf_event_max_sample_rate", &n)) {
		set(c, STATE_OK, "no limit known");
		return;
	}
	set(c, STATE_OK, "%ld samples per second", n);
	if (n >= 1000)
		return;
	c->state = STATE_LIMITED;
	COST(c, "sample_hz over %ld is refused", n);
	REMEDY(c, "run: sysctl kernel.perf_event_max_sample_rate=100000");
}

static void check_cycles(struct probe *p, struct check *c)
{
	int err = p->f->cycles_error;

	if (!err) {
		set(c, STATE_OK, "hardware cycles drive the sampling");
		return;
	}
	if (err == -EACCES || err == -EPERM) {
		set(c, STATE_LIMITED, "cannot be told: %s", strerror(-err));
		COST(c, "none by itself");
		REMEDY(c, "see perf_event_paranoid");
		return;
	}
	set(c, STATE_LIMITED, "no hardware counter (%s), software cpu-clock is used",
	    strerror(-err));
	COST(c, "kernel code that runs with interrupts off is shown where they come on again");
	REMEDY(c, "on a virtual machine, let the hypervisor pass the PMU through");
}

/* sideband.c asks for inodes, which stand in the same place of a record and cannot be made up. */
static void check_build_id(struct probe *p, struct check *c)
{
	set(c, STATE_OK, "read from the files; the kernel %s send them, which is not used",
	    p->f->build_id_error ? "cannot" : "can");
}

static void check_batch(struct probe *p, struct check *c)
{
	int err = p->f->batch_error;

	if (!err) {
		set(c, STATE_OK, "counts are read and emptied many at a time");
	} else if (err == -EPERM) {
		set(c, STATE_LIMITED, "cannot be told: %s", strerror(-err));
		COST(c, "none by itself");
		REMEDY(c, "see CAP_BPF");
	} else {
		set(c, STATE_MISSING, "not in this kernel (%s)", strerror(-err));
		COST(c, "counts cannot be read: nothing can be profiled");
		REMEDY(c, "use Linux 5.8 or newer");
	}
}

static void check_registers(struct probe *p, struct check *c)
{
	set(c, STATE_OK, "of threads in the kernel: %s",
	    p->f->task_pt_regs ? "the kernel tells where (bpf_task_pt_regs)"
			       : "read at the top of the kernel stack (no bpf_task_pt_regs)");
}

static void check_task_work(struct probe *p, struct check *c)
{
	static const char *const how[] = {
		[TASK_WORK_IMPL] = "5 arguments, as 6.18 has it",
		[TASK_WORK_PLAIN] = "4 arguments, as 7.0 has it",
	};

	if (p->f->task_work != TASK_WORK_NONE) {
		set(c, STATE_OK, "threads finish their own stacks, absent pages included (%s)",
		    how[p->f->task_work]);
		return;
	}
	set(c, STATE_LIMITED, "not in this kernel; stacks are taken in interrupts only");
	COST(c, "a stack whose memory is not there at that moment is cut");
	REMEDY(c, "use Linux 6.18 or newer");
}

/* In the order in which core/offcpu.c tries them. */
static void check_waits(struct probe *p, struct check *c)
{
	if (p->f->task_work != TASK_WORK_NONE) {
		set(c, STATE_OK, "stacks of waits are taken by the threads, when they have waited");
	} else if (p->f->own_interrupt) {
		set(c, STATE_OK, "stacks of waits are taken in an interrupt, when they are over");
	} else {
		set(c, STATE_LIMITED, "stacks of waits are taken when they begin");
		COST(c, "each wait is paid for, kept or not; of many short ones a share is seen");
		REMEDY(c, "use Linux 6.18 or newer");
	}
}

/* As core/threads.c needs it. */
static void check_iterator(struct probe *p, struct check *c)
{
	const struct features *f = p->f;

	if (f->iter_task_sleeps && f->iter_task_filtered && f->task_storage) {
		set(c, STATE_OK, "waiting threads of a process are read within the kernel");
		return;
	}
	set(c, STATE_LIMITED, "%s; waiting threads are read by process_vm_readv",
	    f->iter_task ? "it only counts switches in this kernel" : "not in this kernel");
	COST(c, "more system calls for each interpreter that is watched");
	REMEDY(c, "use Linux 6.1 or newer");
}

/* " there: A, B; not there: C": for people who wonder why something is done the long way. */
struct named {
	const char *name;
	bool there;
};

static void set_list(struct check *c, const struct named *list, size_t n)
{
	char text[2][160] = { "", "" };
	size_t i;

	for (i = 0; i < n; i++) {
		char *to = text[list[i].there];
		size_t len = strlen(to);

		snprintf(to + len, sizeof(text[0]) - len, "%s%s", len ? ", " : "", list[i].name);
	}
	set(c, STATE_OK, "%s%s%s%s%s", *text[1] ? "there: " : "", text[1],
	    *text[0] && *text[1] ? "; " : "", *text[0] ? "not there, nor needed: " : "", text[0]);
}

static void check_helpers(struct probe *p, struct check *c)
{
	const struct features *f = p->f;
	const struct named list[] = {
		{ "bpf_loop", f->loop },
		{ "bpf_find_vma", f->find_vma },
		{ "cookies", f->attach_cookie },
		{ "timers", f->timer },
		{ "open-coded iterators", f->iter_num },
		{ "arena", f->arena },
	};

	set_list(c, list, ARRAY_SIZE(list));
}

static void check_probes(struct probe *p, struct check *c)
{
	const struct features *f = p->f;
	const struct named list[] = {
		{ "kprobe", f->kprobe },
		{ "uprobe", f->uprobe },
		{ "kprobe_multi", f->kprobe_multi },
		{ "uprobe_multi", f->uprobe_multi },
		{ "links of perf events", f->perf_link },
	};

	set_list(c, list, ARRAY_SIZE(list));
}

/*
 * Whether this kernel takes our programs is known when it has. `run` loads them anyway; only where
 * they would not be compiled is it asked first, since some kernels then refuse them.
 */
static void check_programs(struct probe *p, struct check *c)
{
	static const char jit_on[] = "run: sysctl net.core.bpf_jit_enable=1";
	int err;

	if (p->missing) {
		set(c, STATE_LIMITED, "not tried, since something else is missing");
		COST(c, "none by itself");
		REMEDY(c, "see above");
		return;
	}
	err = p->report || !p->f->jit ? p->h->load() : 0;
	if (!err && p->f->jit) {
		set(c, STATE_OK, "the kernel takes them, and compiles them");
	} else if (!err) {
		set(c, STATE_LIMITED, "the kernel takes them, but net.core.bpf_jit_enable is 0");
		COST(c, "they run interpreted: a sample takes several times as long");
		REMEDY(c, "%s", jit_on);
	} else {
		set(c, STATE_MISSING, "the kernel refuses them%s: %s",
		    p->f->jit ? "" : " uncompiled (net.core.bpf_jit_enable is 0)", strerror(-err));
		COST(c, "nothing can be profiled");
		REMEDY(c, "%s",
		       p->f->jit
			       ? "record --verbose shows the kernel's own words; please report them"
			       : jit_on);
	}
}

/* --- what hides names and processes ---------------------------------------------------------- */

/* Hidden addresses are all zero; some symbols of per-CPU data are at zero anyway. */
static bool kallsyms_shown(const struct probe *p)
{
	_cleanup_free_ char *text = malloc(HEAD_MAX);
	const char *s = text;

	if (!text || read_head(p, "/proc/kallsyms", text, HEAD_MAX) <= 0)
		return false;
	while (s) {
		size_t zeros = strspn(s, "0");

		if (strspn(s + zeros, "123456789abcdef"))
			return true;
		s = strchr(s, '\n');
		if (s)
			s++;
	}
	return false;
}

static void check_kallsyms(struct probe *p, struct check *c)
{
	if (p->kallsyms_shown) {
		set(c, STATE_OK, "/proc/kallsyms shows addresses");
		return;
	}
	set(c, STATE_LIMITED, "/proc/kallsyms is absent or hides the addresses");
	COST(c, "kernel frames have no names");
	if (has_cap(p, CAP_SYSLOG))
		REMEDY(c, "run: sysctl kernel.kptr_restrict=1");
	else
		REMEDY(c, "give CAP_SYSLOG, see there");
}

/* Yama guards attaching; sampling and /proc/PID/maps are not attaching. */
static void check_yama(struct probe *p, struct check *c)
{
	long n;

	if (read_number(p, "/proc/sys/kernel/yama/ptrace_scope", &n))
		set(c, STATE_OK, "Yama is not in this kernel");
	else
		set(c, STATE_OK, "%ld; does not touch what this build reads", n);
}

static int read_ns(const struct probe *p, const char *path, char *buf, size_t size)
{
	char full[PATH_MAX];
	ssize_t len;

	buf[0] = '\0';
	if (snprintf(full, sizeof(full), "%s%s", p->h->root, path) >= (int)sizeof(full))
		return -ENAMETOOLONG;
	len = readlink(full, buf, size - 1);
	if (len < 0)
		return -errno;
	buf[len] = '\0';
	return 0;
}

/*
 * BPF and perf tell pids of our namespace; does /proc? NSpid begins at the namespace of /proc and
 * ends at the reader's.
 */
static bool proc_is_ours(const struct probe *p)
{
	char status[8192];
	const char *s;

	if (read_head(p, "/proc/self/status", status, sizeof(status)) <= 0)
		return false;
	s = status_field(status, "NSpid");
	if (!s)
		return false;
	s += strspn(s, " \t");
	s += strspn(s, "0123456789");
	return *s == '\n' || !*s;
}

static u32 count_processes(const struct probe *p)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[PATH_MAX];
	struct dirent *e;
	u32 n = 0;

	snprintf(path, sizeof(path), "%s/proc", p->h->root);
	dir = opendir(path);
	while (dir && n < PIDS_MAX && (e = readdir(dir)))
		n += *e->d_name >= '1' && *e->d_name <= '9';
	return n;
}

static void check_pid_ns(struct probe *p, struct check *c)
{
	char ns[64];
	int rc = read_ns(p, "/proc/self/ns/pid", ns, sizeof(ns));

	if (!rc && !strcmp(ns, INITIAL_PID_NS)) {
		set(c, STATE_OK, "the host's");
		return;
	}
	if (rc || !proc_is_ours(p)) {
		set(c, STATE_MISSING, "not the host's (%s), and /proc is not its own",
		    rc ? strerror(-rc) : ns);
		COST(c, "samples would be put down to the wrong processes");
		REMEDY(c, "mount a /proc of the pid namespace, or run with --pid=host (Docker), "
			  "hostPID: true (Kubernetes)");
		return;
	}
	set(c, STATE_LIMITED,
	    "not the host's: %u processes of this namespace are seen; the rest of the host is out "
	    "of reach",
	    count_processes(p));
	COST(c, "processes outside it and threads of the kernel are not profiled");
	REMEDY(c, "for the whole host run on it, or with --pid=host (Docker), hostPID: true "
		  "(Kubernetes)");
}

/* Capabilities of another user namespace count nothing for perf and BPF. */
static void check_user_ns(struct probe *p, struct check *c)
{
	char ns[64];
	int rc = read_ns(p, "/proc/self/ns/user", ns, sizeof(ns));

	if (rc == -ENOENT || (!rc && !strcmp(ns, INITIAL_USER_NS))) {
		set(c, STATE_OK, rc ? "not in this kernel" : "the host's");
		return;
	}
	p->foreign_user_ns = true;
	set(c, STATE_MISSING, "not the host's (%s)", rc ? strerror(-rc) : ns);
	COST(c, "capabilities do not count: nothing can be profiled");
	REMEDY(c, "run on the host, or in a container without a user namespace (not rootless)");
}

/* --- capabilities ---------------------------------------------------------------------------- */

static void lacks(struct check *c, enum state state, const char *name, const char *cost)
{
	set(c, state, "not held");
	COST(c, "%s", cost);
	REMEDY(c,
	       "run as root, or give it: AmbientCapabilities=CAP_%s (systemd), --cap-add %s "
	       "(containers)",
	       name, name);
}

static void check_cap(const struct probe *p, struct check *c, u32 cap, enum state state,
		      const char *name, const char *cost)
{
	if (has_cap(p, cap))
		set(c, STATE_OK, "held");
	else if (can(p, cap))
		set(c, STATE_OK, "CAP_SYS_ADMIN stands for it");
	else
		lacks(c, state, name, cost);
}

static void check_cap_bpf(struct probe *p, struct check *c)
{
	check_cap(p, c, CAP_BPF, STATE_MISSING, "BPF",
		  "BPF programs cannot be loaded: nothing can be profiled");
}

static void check_cap_perfmon(struct probe *p, struct check *c)
{
	check_cap(p, c, CAP_PERFMON, STATE_MISSING, "PERFMON",
		  "other processes cannot be sampled: nothing can be profiled");
}

/* Of some other user's process: one is enough, and some show theirs to nobody. */
static bool maps_shown(const struct probe *p)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[PATH_MAX], head[16];
	struct dirent *e;
	struct stat st;
	u32 i;

	snprintf(path, sizeof(path), "%s/proc", p->h->root);
	dir = opendir(path);
	for (i = 0; dir && i < PROCESSES_TRIED && (e = readdir(dir)); i++) {
		if (*e->d_name < '1' || *e->d_name > '9' ||
		    fstatat(dirfd(dir), e->d_name, &st, 0) || st.st_uid == geteuid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/maps", e->d_name);
		if (read_head(p, path, head, sizeof(head)) > 0)
			return true;
	}
	return false;
}

static void check_cap_ptrace(struct probe *p, struct check *c)
{
	/* Linux 6.15 and newer show them to CAP_PERFMON, but not the files behind them. */
	if (!has_cap(p, CAP_SYS_PTRACE) && can(p, CAP_PERFMON) && maps_shown(p))
		lacks(c, STATE_LIMITED, "SYS_PTRACE",
		      "of other users' processes, files in containers and those that were deleted "
		      "or replaced have no names, and interpreters are not walked");
	else
		check_cap(
			p, c, CAP_SYS_PTRACE, STATE_LIMITED, "SYS_PTRACE",
			"mappings of other users' processes cannot be read: their frames are bare "
			"addresses");
}

static void check_cap_syslog(struct probe *p, struct check *c)
{
	if (!has_cap(p, CAP_SYSLOG) && p->kallsyms_shown)
		set(c, STATE_OK, "not held and not needed: kallsyms is open to all");
	else
		check_cap(p, c, CAP_SYSLOG, STATE_LIMITED, "SYSLOG", "kernel frames have no names");
}

static void check_cap_dac(struct probe *p, struct check *c)
{
	check_cap(p, c, CAP_DAC_READ_SEARCH, STATE_LIMITED, "DAC_READ_SEARCH",
		  "files that only other users may read, and those of other users that were "
		  "deleted or replaced, have no build id and no names");
}

static void check_cap_restore(struct probe *p, struct check *c)
{
	check_cap(p, c, CAP_CHECKPOINT_RESTORE, STATE_LIMITED, "CHECKPOINT_RESTORE",
		  "mapped files that were deleted or replaced have no build id and no names");
}

/* --- all of them ----------------------------------------------------------------------------- */

enum weight {
	EXTRA,
	VITAL,    /* can make profiling impossible */
	YIELDING, /* vital, but --force gets past it */
};

static const struct item {
	const char *name;
	void (*check)(struct probe *p, struct check *c);
	enum weight weight;
} items[] = {
	{ "kernel", check_kernel, VITAL },
	{ "known bugs", check_known_bad, YIELDING },
	{ "BTF", check_btf, VITAL },
	{ "lockdown", check_lockdown, VITAL },
	{ "pid namespace", check_pid_ns, VITAL },
	{ "user namespace", check_user_ns, VITAL },
	{ "CAP_BPF", check_cap_bpf, VITAL },
	{ "CAP_PERFMON", check_cap_perfmon, VITAL },
	{ "CAP_SYS_PTRACE", check_cap_ptrace, EXTRA },
	{ "CAP_SYSLOG", check_cap_syslog, EXTRA },
	{ "CAP_DAC_READ_SEARCH", check_cap_dac, EXTRA },
	{ "CAP_CHECKPOINT_RESTORE", check_cap_restore, EXTRA },
	{ "perf_event_paranoid", check_paranoid, VITAL },
	{ "perf_event_max_sample_rate", check_rate, EXTRA },
	{ "BPF ring buffer", check_ring, VITAL },
	{ "batch calls", check_batch, VITAL },
	{ "locked memory", check_memlock, EXTRA },
	{ "BPF programs", check_programs, VITAL },
	{ "cycles", check_cycles, EXTRA },
	{ "build ids of mappings", check_build_id, EXTRA },
	{ "user registers", check_registers, EXTRA },
	{ "task work", check_task_work, EXTRA },
	{ "off CPU", check_waits, EXTRA },
	{ "thread iterator", check_iterator, EXTRA },
	{ "other BPF features", check_helpers, EXTRA },
	{ "probes", check_probes, EXTRA },
	{ "kallsyms", check_kallsyms, EXTRA },
	{ "ptrace_scope", check_yama, EXTRA },
};

static void probe_init(struct probe *p, const struct preflight_host *h)
{
	char status[8192];
	const char *s;

	*p = (struct probe){ .h = h, .f = h->features ? h->features : features_host() };
	read_version(p);
	p->kallsyms_shown = kallsyms_shown(p);
	if (read_head(p, "/proc/self/status", status, sizeof(status)) <= 0)
		return;
	s = status_field(status, "CapEff");
	if (s)
		p->caps = strtoull(s, NULL, 16);
	s = status_field(status, "Seccomp");
	p->seccomp = s && strtol(s, NULL, 10) == 2;
}

static const char *const state_names[] = { "ok", "limited", "missing" };

static void put_line(FILE *out, bool colour, const char *name, const struct check *c)
{
	static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31m" };

	fprintf(out, "%s%-7s%s %-26s %s", colour ? colours[c->state] : "", state_names[c->state],
		colour ? "\033[0m" : "", name, c->found);
	if (c->cost[0])
		fprintf(out, "; cost: %s", c->cost);
	if (c->remedy[0])
		fprintf(out, "; remedy: %s", c->remedy);
	fputc('\n', out);
}

/* A JSON string; the text is made valid UTF-8 first. */
static void put_json(FILE *out, const char *text)
{
	char clean[1024];
	const char *s;

	utf8_clean(clean, sizeof(clean), text, strlen(text));
	fputc('"', out);
	for (s = clean; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void put_object(FILE *out, const char *name, const struct check *c)
{
	const char *const texts[][2] = {
		{ "name", name },        { "state", state_names[c->state] },
		{ "found", c->found },   { "cost", c->cost },
		{ "remedy", c->remedy },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		fprintf(out, "%s\"%s\":", i ? "," : "{", texts[i][0]);
		put_json(out, texts[i][1]);
	}
	fputc('}', out);
}

/* For scripts: what the lines above say in words. Numbers are arguments, or -errno, or 0 and 1. */
static void put_features(FILE *out, const struct features *f)
{
	const struct {
		const char *name;
		int value;
	} list[] = {
		{ "btf", f->btf },
		{ "ring_buffer", f->ring_buffer },
		{ "task_pt_regs", f->task_pt_regs },
		{ "attach_cookie", f->attach_cookie },
		{ "loop", f->loop },
		{ "find_vma", f->find_vma },
		{ "copy_from_user", f->copy_from_user },
		{ "copy_from_user_task", f->copy_from_user_task },
		{ "task_storage", f->task_storage },
		{ "timer", f->timer },
		{ "arena", f->arena },
		{ "iter_num", f->iter_num },
		{ "task_work_args", f->task_work == TASK_WORK_IMPL    ? 5
				    : f->task_work == TASK_WORK_PLAIN ? 4
								      : 0 },
		{ "perf_link", f->perf_link },
		{ "sched_switch_args", (int)f->sched_switch_args },
		{ "own_interrupt", f->own_interrupt },
		{ "iter_task", f->iter_task },
		{ "iter_task_filtered", f->iter_task_filtered },
		{ "iter_task_sleeps", f->iter_task_sleeps },
		{ "iter_task_vma", f->iter_task_vma },
		{ "kprobe", f->kprobe },
		{ "uprobe", f->uprobe },
		{ "kprobe_multi", f->kprobe_multi },
		{ "uprobe_multi", f->uprobe_multi },
		{ "batch_error", f->batch_error },
		{ "build_id_error", f->build_id_error },
		{ "cycles_error", f->cycles_error },
		{ "memlock", f->memlock },
		{ "verified_insns", f->verified_insns },
		{ "jit", f->jit },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(list); i++)
		fprintf(out, "%s\"%s\":%d", i ? "," : "{", list[i].name, list[i].value);
	fputc('}', out);
}

static bool want_colour(FILE *out)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
	int fd = fileno(out);

	if ((no_color && *no_color) || (term && !strcmp(term, "dumb")))
		return false;
	return fd >= 0 && isatty(fd);
}

int preflight_run_on(const struct preflight_host *h, FILE *out, bool json)
{
	bool colour = !json && want_colour(out);
	u32 missing = 0, limited = 0;
	struct probe p;
	size_t i;

	probe_init(&p, h);
	p.report = true;
	if (json)
		fputs("{\"checks\":[", out);
	for (i = 0; i < ARRAY_SIZE(items); i++) {
		struct check c = { 0 };

		items[i].check(&p, &c);
		p.missing |= c.state == STATE_MISSING;
		missing += c.state == STATE_MISSING;
		limited += c.state == STATE_LIMITED;
		if (json) {
			fputs(i ? ",\n" : "\n", out);
			put_object(out, items[i].name, &c);
		} else {
			put_line(out, colour, items[i].name, &c);
		}
	}
	if (json) {
		fputs("\n],\"features\":", out);
		put_features(out, p.f);
		if (h->more)
			h->more(out, json);
		fprintf(out, ",\"can_run\":%s,\"missing\":%u,\"limited\":%u}\n",
			missing ? "false" : "true", missing, limited);
	} else {
		if (h->more)
			h->more(out, json);
		fprintf(out, "profiling %s here: %u missing, %u limited\n",
			missing ? "cannot run" : "can run", missing, limited);
	}
	return missing ? 1 : 0;
}

static void put_reason(char *why, size_t size, const char *name, const struct check *c, u32 more)
{
	char text[1024], rest[64] = "";

	if (more)
		snprintf(rest, sizeof(rest), " (%u more: see ebpfprofiler doctor)", more);
	snprintf(text, sizeof(text), "cannot run here: %s: %s; %s; remedy: %s%s", name, c->found,
		 c->cost, c->remedy, rest);
	utf8_clean(why, size, text, sizeof(text));
}

int preflight_check_on(const struct preflight_host *h, bool force, char *why, size_t size)
{
	struct check first = { 0 };
	const char *name = NULL;
	struct probe p;
	u32 missing = 0;
	size_t i;

	probe_init(&p, h);
	for (i = 0; i < ARRAY_SIZE(items); i++) {
		struct check c = { 0 };

		if (items[i].weight == EXTRA || (force && items[i].weight == YIELDING))
			continue;
		items[i].check(&p, &c);
		p.missing |= c.state == STATE_MISSING;
		if (c.state == STATE_MISSING && !missing++) {
			first = c;
			name = items[i].name;
		}
	}
	if (!missing)
		return 0;
	put_reason(why, size, name, &first, missing - 1);
	return 3;
}

/* --- this host ------------------------------------------------------------------------------- */

static int host_perf_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	long fd = syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

/*
 * Before 5.11 maps count as locked memory, of all processes of the user together, and those that
 * ended a moment ago still count; over the limit is EPERM. libbpf lifts the limit when it loads.
 */
static int host_ring_open(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	union bpf_attr attr;
	long fd;

	/* All of it: the kernel refuses bytes that it does not know unless they are zero. */
	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_RINGBUF;
	attr.max_entries = (u32)sysconf(_SC_PAGESIZE);
	fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	if (fd < 0 && errno == EPERM) {
		if (setrlimit(RLIMIT_MEMLOCK, &all))
			return -EPERM;
		fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	}
	return fd < 0 ? -errno : (int)fd;
}

/* The way `run` loads them; says by itself what went wrong. */
static int host_load(void)
{
	const struct sampler_options o = { .hz = 1, .kernel_frames = true, .max_frames = 64 };
	struct sampler *s;
	int err = sampler_new(&o, &s);

	if (!err)
		sampler_free(s);
	return err;
}

static const struct preflight_host this_host = {
	.root = "",
	.perf_open = host_perf_open,
	.ring_open = host_ring_open,
	.load = host_load,
	.more = census_report,
};

int preflight_run(FILE *out, bool json)
{
	return preflight_run_on(&this_host, out, json);
}

int preflight_check(char *why, size_t size)
{
	return preflight_check_on(&this_host, false, why, size);
}

int preflight_check_forced(char *why, size_t size)
{
	return preflight_check_on(&this_host, true, why, size);
}
