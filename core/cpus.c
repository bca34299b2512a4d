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

int cpus_busy_parse(const char *text, long ticks, u64 *ret_ns)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;

	if (ticks <= 0 || sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
				 &system, &idle, &iowait, &irq, &softirq) != 7)
		return -EINVAL;
	*ret_ns = (user + nice + system + irq + softirq) * (NSEC_PER_SEC / (u64)ticks);
	return 0;
}

int cpus_busy(u64 *ret_ns)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/stat", "re");
	char line[512];

	if (!f)
		return -errno;
	/* The file is long: a line for each CPU, numbers for each interrupt. */
	return fgets(line, sizeof(line), f) ? cpus_busy_parse(line, sysconf(_SC_CLK_TCK), ret_ns)
					    : -EINVAL;
}
