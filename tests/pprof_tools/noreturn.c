// SPDX-License-Identifier: Apache-2.0
/*
 * caller() ends with a call that never returns, so that the call's return address is already
 * successor(). Only symbols and addresses matter; built with -falign-functions=1.
 */
#include <stdlib.h>

void caller(void);
int successor(int x);

__attribute__((noreturn, noinline)) static void never_returns(void)
{
	exit(0);
}

__attribute__((noinline)) void caller(void)
{
	never_returns();
}

__attribute__((noinline)) int successor(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		caller();
	return successor(argc) == 0;
}
