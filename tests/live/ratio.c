// SPDX-License-Identifier: Apache-2.0
/* Two busy functions, 70 to 30, each with a frame of its own; argv[1]: seconds to run. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

volatile uint64_t sink;

__attribute__((noinline)) static void spin(uint64_t n)
{
	while (n--)
		sink += n;
}

__attribute__((noinline)) void heavy(void)
{
	spin(7000000);
	sink++;
}

__attribute__((noinline)) void light(void)
{
	spin(3000000);
	sink++;
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1000000);

	while (time(NULL) < end) {
		heavy();
		light();
	}
	return argc > 2 ? atoi(argv[2]) : 0;
}
