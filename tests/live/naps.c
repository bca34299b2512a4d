// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that nap: each sleeps MICROSECONDS again and again and does nothing else, so that it
 * waits all the time, in short waits. usage: naps THREADS MICROSECONDS SECONDS. Prints how long all
 * of them waited by their own clock, in nanoseconds, and how often.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 256

static atomic_llong waited, naps;
static long micros, seconds;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static __attribute__((noinline)) void nap(void)
{
	struct timespec t = { 0, micros * 1000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static void *sleeper(void *arg)
{
	long long t = now(), end = t + seconds * 1000000000ll, next;

	while (t < end) {
		nap();
		next = now();
		waited += next - t;
		naps++;
		t = next;
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	int n, i;

	if (argc != 4 || (n = atoi(argv[1])) > THREADS_MAX)
		return 2;
	micros = atol(argv[2]);
	seconds = atol(argv[3]);
	for (i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, sleeper, NULL))
			return 1;
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	printf("%lld %lld\n", (long long)waited, (long long)naps);
	return 0;
}
