// SPDX-License-Identifier: Apache-2.0
/*
 * The first process of a test guest. In: a file with one command per line (argv[1], else
 * /t/plan). Mounts what BPF and the profiler need, runs the commands one by one in /t, prints
 * "@@ exit STATUS COMMAND" for each and "@@ end" behind the last, powers off. No shell.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MAX     32
#define COMMANDS_MAX 64

static double uptime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void mount_all(void)
{
	static const struct {
		const char *type, *dir;
	} mounts[] = {
		{ "proc", "/proc" },
		{ "sysfs", "/sys" },
		{ "devtmpfs", "/dev" },
		{ "tmpfs", "/tmp" },
		{ "bpf", "/sys/fs/bpf" },
		{ "tracefs", "/sys/kernel/tracing" },
		{ "securityfs", "/sys/kernel/security" },
		{ "cgroup2", "/sys/fs/cgroup" },
	};
	size_t i;

	for (i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		mkdir(mounts[i].dir, 0755);
		if (mount(mounts[i].type, mounts[i].dir, mounts[i].type, 0, NULL) && errno != EBUSY)
			printf("init: cannot mount %s: %s\n", mounts[i].dir, strerror(errno));
	}
}

static void execute(char *line)
{
	char *argv[ARGS_MAX + 1] = { NULL }, *save = NULL;
	int i;

	for (i = 0; i < ARGS_MAX; i++) {
		argv[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!argv[i])
			break;
	}
	setenv("PATH", "/t", 1);
	setenv("HOME", "/tmp", 1);
	if (!argv[0] || chdir("/t"))
		_exit(126);
	execvp(argv[0], argv);
	printf("init: cannot execute %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Its status, as a shell would say it; orphans are reaped on the way. */
static int run(char *line)
{
	int status = 0;
	pid_t pid = fork(), ended;

	if (!pid)
		execute(line);
	do
		ended = wait(&status);
	while (ended != pid && !(ended < 0 && errno == ECHILD));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	FILE *plan = fopen(argc > 1 ? argv[1] : "/t/plan", "re");
	char line[1024], shown[1024];
	struct utsname u;
	int n, status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	mount_all();
	uname(&u);
	printf("\n@@ kernel %s %s\n", u.release, u.machine);
	for (n = 0; plan && n < COMMANDS_MAX && fgets(line, sizeof(line), plan); n++) {
		double start = uptime();

		line[strcspn(line, "\n")] = '\0';
		memcpy(shown, line, sizeof(shown));
		status = run(line);
		printf("\n@@ exit %d %.1f %s\n", status, uptime() - start, shown);
	}
	printf("@@ end %.1f\n", uptime());
	tcdrain(STDOUT_FILENO);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
