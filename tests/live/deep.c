// SPDX-License-Identifier: Apache-2.0
/*
 * A busy leaf under argv[1] frames of 16 different functions; argv[2]: MiB that are written at
 * random between looks at the clock, so that caches are cold (0: hot); argv[3]: seconds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

volatile uint64_t sink;
static uint8_t *memory;
static size_t bytes;
static double end;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static void busy(void)
{
	uint64_t x = 88172645463325252ull;

	while (now() < end) {
		for (int i = 0; i < 100000; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			if (bytes)
				memory[x % bytes]++;
			sink += x;
		}
	}
}

static void (*const table[16])(int);

/* Frames of different sizes; the array keeps the compiler from merging the functions. */
#define LEVEL(n)                                                  \
	__attribute__((noinline)) static void level##n(int depth) \
	{                                                         \
		volatile char room[8 + 24 * n];                   \
                                                                  \
		room[n] = (char)depth;                            \
		if (depth <= 1)                                   \
			busy();                                   \
		else                                              \
			table[(n + 7) % 16](depth - 1);           \
		sink += (uint64_t)room[n];                        \
	}
LEVEL(0)
LEVEL(1)
LEVEL(2)
LEVEL(3)
LEVEL(4)
LEVEL(5)
LEVEL(6)
LEVEL(7)
LEVEL(8)
LEVEL(9)
LEVEL(10)
LEVEL(11)
LEVEL(12)
LEVEL(13)
LEVEL(14)
LEVEL(15)

static void (*const table[16])(int) = { level0,  level1,  level2,  level3, level4,  level5,
					level6,  level7,  level8,  level9, level10, level11,
					level12, level13, level14, level15 };

int main(int argc, char **argv)
{
	int depth = argc > 1 ? atoi(argv[1]) : 64;

	bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 0) << 20;
	end = now() + (argc > 3 ? atof(argv[3]) : 10);
	if (bytes) {
		memory = malloc(bytes);
		if (!memory)
			return 1;
		memset(memory, 1, bytes);
	}
	table[0](depth);
	printf("%d frames\n", depth);
	return 0;
}
