// SPDX-License-Identifier: Apache-2.0
/*
 * Busy in functions whose names are what nobody should write into a page or a terminal: markup, an
 * escape sequence, a mark that turns the direction of writing, a byte that is no UTF-8, and one of
 * 64 KB. The assembler takes any byte in a quoted symbol.
 */
#include <stdint.h>
#include <sys/prctl.h>

#define NOINLINE __attribute__((noinline, noclone))
#define X16(s)   s s s s s s s s s s s s s s s s

void markup(void) __asm__("\"</script><img src=x onerror=alert(1)>\"");
void escape(void) __asm__("\"red\033[31m\a\"");
void turned(void) __asm__("\"turned\342\200\256gpj\377\"");
void longest(void) __asm__("\"long_" X16(X16(X16("sixteen_letters_"))) "\"");

volatile uint64_t sink;

static void spin(void)
{
	uint64_t i;

	for (i = 0; i < 2000000; i++)
		sink += i;
}

NOINLINE void markup(void)
{
	spin();
	sink++;
}

NOINLINE void escape(void)
{
	spin();
	sink++;
}

NOINLINE void turned(void)
{
	spin();
	sink++;
}

NOINLINE void longest(void)
{
	spin();
	sink++;
}

int main(void)
{
	prctl(PR_SET_NAME, "\033[31m<b>\377");
	for (;;) {
		markup();
		escape();
		turned();
		longest();
	}
}
