// SPDX-License-Identifier: Apache-2.0
/*
 * Fixed work that only computes: hashes over a table that fits the second-level cache, below calls
 * 24 deep in functions without frame pointers. usage: work ROUNDS CPU [PIECES]. Prints nanoseconds of
 * wall time and of CPU time of the median piece, of ROUNDS each: what the machine does besides for
 * a moment is in few pieces, what a profiler does 19 times a second in all that take 0.1 s. A tenth
 * of a piece comes before, untimed.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TABLE 32768 /* of 8 bytes: 256 KiB */
#define STEPS 20000 /* of one round: about 40 us */
#define DEPTH 24

#define PIECES_MAX 1000

static uint64_t table[TABLE];

static __attribute__((noinline)) uint64_t leaf(uint64_t h)
{
	int i;

	for (i = 0; i < STEPS; i++) {
		h ^= table[h % TABLE];
		h *= 0x9e3779b97f4a7c15ull;
		table[(h >> 20) % TABLE] += h >> 32;
	}
	return h;
}

static __attribute__((noinline)) uint64_t call(uint64_t h, int depth)
{
	uint64_t below = depth ? call(h + (uint64_t)depth, depth - 1) : leaf(h);

	/* Not the last thing, so that the frame stays. */
	return below ^ (uint64_t)depth;
}

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	static int64_t wall[PIECES_MAX], cpu[PIECES_MAX];
	int pieces = argc > 3 ? atoi(argv[3]) : 1, n;
	uint64_t h = 1;
	cpu_set_t set;
	long rounds, i;

	if (argc < 3 || pieces < 1 || pieces > PIECES_MAX)
		return 2;
	rounds = atol(argv[1]);
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("sched_setaffinity");
	for (i = 0; i < TABLE; i++)
		table[i] = h = h * 6364136223846793005ull + 1442695040888963407ull;
	for (i = 0; i < rounds / 10; i++)
		h = call(h, DEPTH);
	for (n = 0; n < pieces; n++) {
		wall[n] = now(CLOCK_MONOTONIC);
		cpu[n] = now(CLOCK_PROCESS_CPUTIME_ID);
		for (i = 0; i < rounds; i++)
			h = call(h, DEPTH);
		wall[n] = now(CLOCK_MONOTONIC) - wall[n];
		cpu[n] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu[n];
	}
	qsort(wall, (size_t)pieces, sizeof(wall[0]), by_value);
	qsort(cpu, (size_t)pieces, sizeof(cpu[0]), by_value);
	printf("%lld %lld %llu\n", (long long)wall[pieces / 2], (long long)cpu[pieces / 2],
	       (unsigned long long)h % 10);
	return 0;
}
