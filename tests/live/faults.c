// SPDX-License-Identifier: Apache-2.0
/*
 * A thread whose stack keeps going away under it. usage: faults MEMORY WHAT SECONDS. Its stack has 40
 * frames of a page and more each; another thread drops all pages but the lowest ones each
 * millisecond, so that nobody but a page fault can read them.
 *
 * MEMORY shared: a memfd's pages; what is dropped is still in the file. uffd: private memory
 * registered with a userfaultfd that nobody reads: who touches a dropped page waits for ever.
 * WHAT spin: computes at the bottom; sleep: sleeps there for 150 ms at a time.
 *
 * Prints one line of JSON: rounds done and the longest of them, in nanoseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define LEVELS   40
#define FRAME    6000
#define STACK    (1 << 20)

static char *stack;
static int sleeps;
static long long end_ns, worst_ns;
static long rounds;
static char *_Atomic bottom; /* pages above it may go */
static atomic_int done;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

NOINLINE static unsigned busy(void)
{
	struct timespec t = { 0, 150000000 };
	long long last = now(), at;
	unsigned x = 1;

	bottom = (char *)__builtin_frame_address(0) + 2 * FRAME;
	while ((at = now()) < end_ns) {
		worst_ns = at - last > worst_ns ? at - last : worst_ns;
		last = at;
		rounds++;
		if (sleeps)
			nanosleep(&t, NULL);
		for (int i = 0; i < 10000; i++)
			x = x * 1664525 + 1013904223;
	}
	bottom = NULL;
	return x;
}

NOINLINE static unsigned level(int n)
{
	volatile char frame[FRAME];

	frame[0] = (char)n;
	return (n ? level(n - 1) : busy()) + (unsigned char)frame[0];
}

NOINLINE static void *base(void *arg)
{
	(void)arg;
	rounds += level(LEVELS - 1) == 12345;
	return NULL;
}

static void *drop(void *arg)
{
	struct timespec t = { 0, 1000000 };
	long page = sysconf(_SC_PAGESIZE);

	(void)arg;
	while (!done) {
		char *from = bottom;

		if (from) {
			from = (char *)(((unsigned long)from + page - 1) & -(unsigned long)page);
			madvise(from, 7 * (size_t)page, MADV_DONTNEED);
		}
		nanosleep(&t, NULL);
	}
	return NULL;
}

static char *make_stack(int shared)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = shared ? memfd_create("stack", 0) : -1;
	char *mem;

	if (shared && ftruncate(fd, STACK))
		return MAP_FAILED;
	mem = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
		   (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd, 0);
	if (mem == MAP_FAILED || shared)
		return mem;
	memset(mem, 0, STACK); /* all of it is there for now */
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	reg.range.start = (unsigned long)mem;
	reg.range.len = STACK;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		return MAP_FAILED;
	return mem;
}

int main(int argc, char **argv)
{
	pthread_t walker, dropper;
	pthread_attr_t attr;

	if (argc < 4)
		return 2;
	sleeps = !strcmp(argv[2], "sleep");
	end_ns = now() + (long long)(atof(argv[3]) * 1e9);
	stack = make_stack(!strcmp(argv[1], "shared"));
	if (stack == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, STACK);
	if (pthread_create(&walker, &attr, base, NULL) ||
	    pthread_create(&dropper, NULL, drop, NULL))
		return 1;
	if (!strcmp(argv[1], "shared")) {
		pthread_join(walker, NULL);
	} else {
		/* It cannot come back over frames that are gone: its time is over with ours. */
		while (now() < end_ns - 100000000ll)
			usleep(10000);
	}
	done = 1;
	printf("{\"rounds\": %ld, \"worst\": %lld}\n", rounds, worst_ns);
	fflush(stdout);
	_exit(0);
}
