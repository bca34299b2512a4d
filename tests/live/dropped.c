// SPDX-License-Identifier: Apache-2.0
/*
 * A thread whose stack is a mapped file, and another that takes the stack's older pages out of the
 * process again and again (the data stay in the page cache): whoever walks that stack meets pages
 * that are not resident. usage: dropped FILE SECONDS. Functions, outermost first: run, deep (32
 * deep), spin.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (1 << 20)
#define FRAME_BYTES 2048
#define DEPTH       32
#define KEEP_BYTES  8192 /* above the innermost frame: what runs needs them */

static atomic_uintptr_t leaf_sp;
static volatile uint64_t sink;
static time_t end;

static __attribute__((noinline)) void spin(void)
{
	leaf_sp = (uintptr_t)__builtin_frame_address(0);
	while (time(NULL) < end)
		sink++;
}

static __attribute__((noinline)) void deep(int n)
{
	volatile char room[FRAME_BYTES];

	memset((char *)room, n, sizeof(room));
	if (n)
		deep(n - 1);
	else
		spin();
	sink += (uint64_t)room[n];
}

static __attribute__((noinline)) void *run(void *arg)
{
	deep(DEPTH - 1);
	return arg;
}

int main(int argc, char **argv)
{
	struct timespec ms = { 0, 1000000 };
	pthread_attr_t attr;
	pthread_t thread;
	uintptr_t lo;
	char *stack;
	int fd;

	if (argc != 3)
		return 2;
	end = time(NULL) + atoi(argv[2]);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, STACK_BYTES))
		return 1;
	stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stack == MAP_FAILED)
		return 1;
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, STACK_BYTES);
	if (pthread_create(&thread, &attr, run, NULL))
		return 1;
	while (!leaf_sp)
		nanosleep(&ms, NULL);
	lo = (leaf_sp + KEEP_BYTES) & ~(uintptr_t)4095;
	while (time(NULL) < end) {
		madvise((void *)lo, (uintptr_t)stack + STACK_BYTES - lo, MADV_DONTNEED);
		nanosleep(&ms, NULL);
	}
	pthread_join(thread, NULL);
	return 0;
}
