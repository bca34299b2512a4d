// SPDX-License-Identifier: Apache-2.0
/*
 * Room: live tests. A library whose functions carry a prefix, -DNAME=good gives good_outer,
 * good_inner and good_spin; -DROOM=bytes sets the size of their frames and -DSHIFT=bytes moves
 * them in the file. So two builds have neither names nor unwind tables in common, and a profiler
 * that reads the wrong one of them gives wrong names and broken stacks.
 */
#include <stdint.h>

#define JOIN(a, b)  a##_##b
#define JOIN2(a, b) JOIN(a, b)
#define FN(x)       JOIN2(NAME, x)
#define STR(x)      #x
#define STR2(x)     STR(x)

/* Keeps calls from becoming jumps, and frames of the chosen size. */
#define FRAME(size)               \
	volatile char room[size]; \
	room[0] = 1
#define KEEP (void)room[0]

volatile uint64_t FN(sink);

__asm__(".text\n.skip " STR2(SHIFT) ", 0xcc\n.previous");

__attribute__((noinline)) static void FN(spin)(const volatile int *stop)
{
	while (!*stop)
		for (uint64_t i = 0; i < 100000; i++)
			FN(sink) += i;
}

__attribute__((noinline)) static void FN(inner)(const volatile int *stop)
{
	FRAME(ROOM);
	FN(spin)(stop);
	KEEP;
}

__attribute__((noinline)) static void FN(outer)(const volatile int *stop)
{
	FRAME(ROOM + 56);
	FN(inner)(stop);
	KEEP;
}

void entry(const volatile int *stop);
void entry(const volatile int *stop)
{
	FRAME(24);
	FN(outer)(stop);
	KEEP;
}
