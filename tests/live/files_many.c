// SPDX-License-Identifier: Apache-2.0
/*
 * Room: live tests. A process of very many executable mappings of a file (argv[1], a library):
 * argv[2] of them, then it writes argv[3] and spins in many_spin(); argv[4]: pages mapped and
 * unmapped per second meanwhile. Ends after 120 s.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static void many_spin(void)
{
	for (uint64_t i = 0; i < 100000; i++)
		sink += i;
}

__attribute__((noinline)) static void many_outer(int fd, double rate)
{
	double start = now(), done = 0;

	for (;;) {
		many_spin();
		for (; done < rate * (now() - start); done++) {
			void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

			if (page != MAP_FAILED)
				munmap(page, 4096);
		}
	}
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? atol(argv[2]) : 0, i;
	int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1, ready;

	alarm(120);
	if (fd < 0 || argc < 4)
		return 2;
	/* The same page each time, so that the kernel cannot make one mapping of two. */
	for (i = 0; i < n; i++)
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
	ready = open(argv[3], O_WRONLY | O_CREAT, 0644);
	if (ready < 0 || dprintf(ready, "%ld\n", i) < 0)
		return 1;
	many_outer(fd, argc > 4 ? atof(argv[4]) : 0);
	return 0;
}
