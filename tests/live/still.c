// SPDX-License-Identifier: Apache-2.0
/* A program of one stack: main() calls still(), which stays at one instruction for a second at most. */
#include <unistd.h>

static __attribute__((noipa)) int still(int n)
{
	for (;;)
		asm volatile("");
	return n;
}

int main(int argc, char **argv)
{
	(void)argv;
	alarm(1);
	return still(argc) + 1;
}
