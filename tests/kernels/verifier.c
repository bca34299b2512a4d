// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the profiler: what the verifier said of each program that it loads, in the very
 * configuration that runs. "@@ insns NAME N" for one that was taken, the end of the verifier's log
 * for one that was refused. The kernel tells N since 5.16 (bpf_prog_info.verified_insns); before,
 * it stands in the log, so statistics are asked for. libbpf makes all its calls by syscall().
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* kernel: include/linux/bpf_verifier.h */
#define LOG_STEPS 1
#define LOG_STATS 4

#define SHOWN 4000 /* of the steps before a refusal */

static char verifier_log[16 << 20]; /* older kernels want all of it to fit */

static long (*next)(long, ...);

/* "processed 46+163+1355 insns (limit 1000000) ...": a figure per function since 7.x, or one. */
static unsigned long from_log(void)
{
	const char *s = strstr(verifier_log, "processed ");
	unsigned long sum = 0;
	char *end;

	if (!s)
		return 0;
	s += strlen("processed ");
	for (;;) {
		sum += strtoul(s, &end, 10);
		if (end == s || *end != '+')
			return sum;
		s = end + 1;
	}
}

static unsigned long from_info(int fd)
{
	struct bpf_prog_info info;
	union bpf_attr attr;

	memset(&info, 0, sizeof(info));
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = (uint32_t)fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uint64_t)(uintptr_t)&info;
	return next(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) ? 0 : info.verified_insns;
}

/* Once more, with every step written down; its end says where and why. */
static void print_refusal(union bpf_attr *attr, unsigned size, int err)
{
	size_t len;

	attr->log_level = LOG_STEPS;
	attr->log_buf = (uint64_t)(uintptr_t)verifier_log;
	attr->log_size = sizeof(verifier_log);
	next(SYS_bpf, BPF_PROG_LOAD, attr, size);
	verifier_log[sizeof(verifier_log) - 1] = '\0';
	len = strlen(verifier_log);
	dprintf(STDERR_FILENO, "\nverifier refused %.15s: %s\n%s\n", attr->prog_name, strerror(err),
		verifier_log + (len > SHOWN ? len - SHOWN : 0));
}

/* The line of figures itself, which newer kernels give per function. */
static void print_figures(const char *name)
{
	const char *s = strstr(verifier_log, "processed ");

	if (s)
		dprintf(STDERR_FILENO, "verifier: %.15s: %.*s\n", name, (int)strcspn(s, "\n"), s);
}

static long load(const union bpf_attr *attr, unsigned size)
{
	union bpf_attr with_log;
	unsigned long insns;
	long fd;
	int err;

	if (size > sizeof(with_log))
		size = sizeof(with_log);
	memset(&with_log, 0, sizeof(with_log));
	memcpy(&with_log, attr, size);
	with_log.log_level = LOG_STATS;
	with_log.log_buf = (uint64_t)(uintptr_t)verifier_log;
	with_log.log_size = sizeof(verifier_log);
	verifier_log[0] = '\0';
	fd = next(SYS_bpf, BPF_PROG_LOAD, &with_log, size);
	if (fd < 0) {
		err = errno;
		print_refusal(&with_log, size, err);
		errno = err;
		return fd;
	}
	print_figures(attr->prog_name);
	insns = from_info((int)fd);
	dprintf(STDERR_FILENO, "@@ insns %.15s %lu\n", attr->prog_name, insns ? insns : from_log());
	return fd;
}

/* Programs of ours carry type information; those that libbpf probes the kernel with do not. */
static bool is_ours(const union bpf_attr *attr, unsigned size)
{
	return size >= offsetof(union bpf_attr, func_info_cnt) + sizeof(attr->func_info_cnt) &&
	       attr->func_info_cnt && !attr->log_level;
}

/* All arguments of a system call are registers: six are passed on, whatever the call takes. */
long syscall(long nr, ...)
{
	union bpf_attr *attr;
	va_list args;
	long a[6];
	int i;

	va_start(args, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	attr = (union bpf_attr *)a[1];
	if (nr == SYS_bpf && a[0] == BPF_PROG_LOAD && is_ours(attr, (unsigned)a[2]))
		return load(attr, (unsigned)a[2]);
	return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The command that is profiled goes without. */
__attribute__((constructor)) static void only_here(void)
{
	unsetenv("LD_PRELOAD");
}
