// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See stat.h. */
#include "stat.h"

static u64 values[STAT_MAX];

void stat_add(enum stat_id stat, u64 n)
{
	__atomic_fetch_add(&values[stat], n, __ATOMIC_RELAXED);
}

u64 stat_get(enum stat_id stat)
{
	return __atomic_load_n(&values[stat], __ATOMIC_RELAXED);
}

const char *stat_name(enum stat_id stat)
{
	static const char *const names[] = {
#define X(name, help) #name,
		STAT_LIST(X)
#undef X
	};

	return names[stat];
}

const char *stat_help(enum stat_id stat)
{
	static const char *const helps[] = {
#define X(name, help) help,
		STAT_LIST(X)
#undef X
	};

	return helps[stat];
}
