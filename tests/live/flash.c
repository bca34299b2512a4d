// SPDX-License-Identifier: Apache-2.0
/*
 * Ten thousand short lives: forks and executes "flash child" argv[1] times, argv[2] of them a
 * second; each child is busy for a few ms and lives for about 50.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile uint64_t sink;

static uint64_t now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

__attribute__((noinline)) static void burn(uint64_t ns)
{
	uint64_t end = now(CLOCK_PROCESS_CPUTIME_ID) + ns;

	while (now(CLOCK_PROCESS_CPUTIME_ID) < end)
		for (int i = 0; i < 2000; i++)
			sink += (uint64_t)i;
}

int main(int argc, char **argv)
{
	char self[4096] = "";
	long n, rate, i;
	uint64_t start;

	if (argc > 1 && !strcmp(argv[1], "child")) {
		burn(3000000);
		usleep(45000);
		return 0;
	}
	/* By its real path: the kernel names a process after the path it executes. */
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	n = argc > 1 ? atol(argv[1]) : 100;
	rate = argc > 2 ? atol(argv[2]) : 170;
	start = now(CLOCK_MONOTONIC);
	for (i = 0; i < n; i++) {
		uint64_t due = start + (uint64_t)i * 1000000000 / (uint64_t)rate;
		pid_t pid = fork();

		if (!pid) {
			execl(self, "flash", "child", NULL);
			_exit(1);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (now(CLOCK_MONOTONIC) < due)
			usleep((useconds_t)((due - now(CLOCK_MONOTONIC)) / 1000));
	}
	while (wait(NULL) > 0)
		;
	printf("%ld processes in %.1f s\n", n, (double)(now(CLOCK_MONOTONIC) - start) / 1e9);
	return 0;
}
