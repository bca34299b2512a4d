// SPDX-License-Identifier: Apache-2.0
/*
 * Room: live tests. A 32-bit program that spins, built without a C library:
 * gcc -m32 -static -nostdlib -ffreestanding.
 */
static volatile unsigned int sink;

__attribute__((noinline)) static void compat_spin(void)
{
	for (;;)
		sink++;
}

void _start(void);
void _start(void)
{
	compat_spin();
}
