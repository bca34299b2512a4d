// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See cpus.h. */
#include "cpus.h"

#include <errno.h>
#include <string.h>

int cpus_parse(const char *text, struct cpu_set_bits *ret)
{
	const char *p = text;
	char *end;

	memset(ret, 0, sizeof(*ret));
	while (*p && *p != '\n') {
		unsigned long a = strtoul(p, &end, 10), b = a;

		if (end == p)
			return -EINVAL;
		if (*end == '-') {
			p = end + 1;
			b = strtoul(p, &end, 10);
			if (end == p)
				return -EINVAL;
		}
		for (; a <= b && a < CPUS_MAX; a++)
			ret->online[a] = 1;
		p = *end == ',' ? end + 1 : end;
		if (p == end && *end && *end != '\n')
			return -EINVAL;
	}
	return 0;
}

int cpus_online(struct cpu_set_bits *ret)
{
	_cleanup_free_ char *text = NULL;
	int err = read_file("/sys/devices/system/cpu/online", 65536, &text, NULL);

	return err ? err : cpus_parse(text, ret);
}
