/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that lister.c keeps its lists by, for whoever reads them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t lister_mix(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	v ^= v >> 33;
	return v;
}

/* Of the node without one before it. */
static inline uint64_t lister_root(uint64_t tid)
{
	return lister_mix(tid + 1);
}

static inline uint64_t lister_value(uint64_t before, uint64_t depth, uint64_t stamp)
{
	return lister_mix(before + depth * 0x9e3779b97f4a7c15ull + stamp * 0xc2b2ae3d27d4eb4full);
}

/* What a node's object holds. */
static inline uint64_t lister_check(uint64_t value)
{
	return ~value * 3;
}

/* What the second register holds while the first one holds the head. */
static inline uint64_t lister_register(uint64_t value)
{
	return (value ^ 0x1234567) | 1;
}
