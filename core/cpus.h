/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: base. Which CPUs are there. */
#pragma once

#include "util.h"

#define CPUS_MAX 4096

struct cpu_set_bits {
	u8 online[CPUS_MAX];
};

/* "0-3,5\n" as sysfs writes it. Returns 0 or -EINVAL; CPUs over the limit are left out. */
int cpus_parse(const char *text, struct cpu_set_bits *ret);
/* CPUs online now. */
int cpus_online(struct cpu_set_bits *ret);
/*
 * Time that all CPUs together were not idle, since boot, from the first line of /proc/stat; it
 * counts ticks, so it is right in the mean. Returns 0, -EINVAL, or -errno.
 */
int cpus_busy(u64 *ret_ns);
/* The same for a text; ticks: of its unit, per second. */
int cpus_busy_parse(const char *text, long ticks, u64 *ret_ns);
