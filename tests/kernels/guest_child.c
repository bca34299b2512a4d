// SPDX-License-Identifier: Apache-2.0
/*
 * Test guest: verdicts, and children with chosen rights. In: a command. Out: its status and what
 * it said. See guest.h.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define LINE_MAX_BYTES 4096

static bool failed;

void verdict(bool good, const char *name, const char *fmt, ...)
{
	va_list args;

	printf("@@ %s %s: ", good ? "ok" : "not ok", name);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	failed |= !good;
}

bool guest_failed(void)
{
	return failed;
}

/* --- children --------------------------------------------------------------------------------- */

/* Another user with these capabilities and no others, as a service manager grants them. */
static int become(uid_t uid, u64 caps)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	u32 i;

	/* Before 5.11 BPF maps count as locked memory. */
	if (setrlimit(RLIMIT_MEMLOCK, &all) || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) ||
	    setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		return -errno;
	for (i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = data[i].inheritable =
			(u32)(caps >> (32 * i));
	if (syscall(SYS_capset, &head, data))
		return -errno;
	for (i = 0; i < 64; i++)
		if ((caps & 1ull << i) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0))
			return -errno;
	return 0;
}

static int prepare(const struct child *c)
{
	cpu_set_t set;
	int fd, err;

	if (c->log) {
		fd = open(c->log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
			return -errno;
	}
	if (c->idle && setpriority(PRIO_PROCESS, 0, 19))
		return -errno;
	if (c->cpu) {
		CPU_ZERO(&set);
		CPU_SET(c->cpu - 1, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return -errno;
	}
	if (c->uid) {
		err = become(c->uid, c->caps);
		if (err)
			return err;
	}
	return c->verifier && setenv("LD_PRELOAD", "/t/verifier.so", 1) ? -errno : 0;
}

pid_t child_start(const struct child *c, char *const *argv)
{
	pid_t pid;
	int err;

	fflush(stdout);
	pid = fork();
	if (pid)
		return MAX(pid, 0);
	err = prepare(c);
	if (err) {
		dprintf(STDERR_FILENO, "cannot prepare %s: %s\n", argv[0], strerror(-err));
		_exit(126);
	}
	execv(argv[0], argv);
	_exit(127);
}

int child_wait(pid_t pid)
{
	int status = 0;

	if (pid <= 0 || waitpid(pid, &status, 0) != pid)
		return 126;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_kill(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		child_wait(pid);
	}
}

int child_run(const struct child *c, char *const *argv)
{
	return child_wait(child_start(c, argv));
}

/* --- files ------------------------------------------------------------------------------------ */

void log_show(const char *path, bool everything)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[LINE_MAX_BYTES];

	while (f && fgets(line, sizeof(line), f))
		if (everything || !strncmp(line, "@@ ", 3))
			fputs(line, stdout);
}

bool log_has(const char *path, const char *text)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[LINE_MAX_BYTES];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, text))
			return true;
	return false;
}

bool put_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t len = strlen(text);

	if (fd >= 0 && write(fd, text, len) == (ssize_t)len)
		return true;
	verdict(false, "write", "%s: %s", path, strerror(errno));
	return false;
}

bool copy_file(const char *from, const char *to, mode_t mode)
{
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	char buf[65536];
	ssize_t n = -1;

	while (in >= 0 && out >= 0 && (n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n) {
			n = -1;
			break;
		}
	if (!n && !fchmod(out, mode))
		return true;
	verdict(false, "copy", "%s to %s: %s", from, to, strerror(errno));
	return false;
}

void pause_ms(u32 ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}
