// SPDX-License-Identifier: Apache-2.0
/*
 * Fixed work that does nothing but switch: two threads hand one byte back and forth through two
 * pipes, ROUNDS times. usage: pingpong ROUNDS CPU CPU. Both on one CPU: each round is two switches;
 * on two CPUs: each round is a wake-up of either CPU. Prints nanoseconds of wall time, nanoseconds
 * of CPU time, and switches (of both threads).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];
static long rounds;

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("sched_setaffinity");
}

static void *answer(void *arg)
{
	char c;
	long i;

	stay_on(*(int *)arg);
	for (i = 0; i < rounds; i++)
		if (read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1)
			break;
	return NULL;
}

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(int argc, char **argv)
{
	long long wall, cpu;
	struct rusage ru;
	int a, b;
	pthread_t t;
	char c = 0;
	long i;

	if (argc != 4)
		return 2;
	rounds = atol(argv[1]);
	a = atoi(argv[2]);
	b = atoi(argv[3]);
	if (pipe(there) || pipe(back) || pthread_create(&t, NULL, answer, &b))
		return 1;
	stay_on(a);
	wall = now(CLOCK_MONOTONIC);
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	for (i = 0; i < rounds; i++)
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			return 1;
	wall = now(CLOCK_MONOTONIC) - wall;
	cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	pthread_join(t, NULL);
	getrusage(RUSAGE_SELF, &ru);
	printf("%lld %lld %ld\n", wall, cpu, ru.ru_nvcsw + ru.ru_nivcsw);
	return 0;
}
