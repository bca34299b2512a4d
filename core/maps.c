// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See maps.h. */
#include "maps.h"

#include <ctype.h>

#define HEX_MAX     16 /* digits of a 64-bit number */
#define DECIMAL_MAX 20

/* A number and the character behind it, which is taken too; NULL: there is none. */
static const char *number(const char *p, const char *end, char stop, u64 *ret)
{
	const char *start = p;
	u64 v = 0;

	for (; p < end && hex_digit(*p) >= 0; p++)
		v = v << 4 | (u64)hex_digit(*p);
	*ret = v;
	return p > start && p - start <= HEX_MAX && p < end && *p == stop ? p + 1 : NULL;
}

bool maps_parse(const char *line, size_t len, struct maps_line *ret)
{
	const char *p = line, *end = line + len, *start;
	u64 major, minor;

	*ret = (struct maps_line){ 0 };
	p = number(p, end, '-', &ret->lo);
	p = p ? number(p, end, ' ', &ret->hi) : NULL;
	if (!p || ret->lo >= ret->hi || end - p < 5 || p[4] != ' ')
		return false;
	ret->readable = p[0] == 'r';
	ret->exec = p[2] == 'x';
	p = number(p + 5, end, ' ', &ret->offset);
	p = p ? number(p, end, ':', &major) : NULL;
	p = p ? number(p, end, ' ', &minor) : NULL;
	if (!p || major > UINT32_MAX || minor > UINT32_MAX)
		return false;
	ret->major = (u32)major;
	ret->minor = (u32)minor;
	for (start = p; p < end && isdigit((u8)*p); p++)
		ret->ino = ret->ino * 10 + (u64)(*p - '0');
	if (p == start || p - start > DECIMAL_MAX || (p < end && *p != ' '))
		return false;
	while (p < end && *p == ' ')
		p++;
	ret->path = p;
	ret->path_len = (size_t)(end - p);
	return true;
}
