/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Open addressing (linear probing, backward-shift deletion) from a 64-bit hash to a
 * u32 index into the caller's own array. The caller compares keys:
 *
 *	for (pos = htab_start(t, hash); htab_next(t, hash, &pos, &i);)
 *		if (items[i].key == key)
 *			return &items[i];
 *
 * Hashes of what a process chose must be seeded (hash_bytes() is).
 */
#pragma once

#include "util.h"

#define HTAB_EMPTY UINT32_MAX

struct htab {
	u64 *hash;
	u32 *index;
	u32 mask; /* slots - 1; meaningless while hash is NULL */
	u32 n;
};

void htab_fini(struct htab *t);
/* Forgets all entries, keeps the memory. */
void htab_clear(struct htab *t);
/* Adds an entry; the caller made sure that the key is not there. Returns 0 or -ENOMEM. */
int htab_insert(struct htab *t, u64 hash, u32 index);
/* Removes the entry {hash, index}; nothing happens when it is not there. */
void htab_remove(struct htab *t, u64 hash, u32 index);

/* Seeded once per run, so that nobody outside can craft collisions. */
u64 hash_bytes(const void *data, size_t len);
static inline u64 hash_mix(u64 h, u64 v)
{
	h ^= v;
	h *= 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static inline u32 htab_start(const struct htab *t, u64 hash)
{
	return (u32)(hash ^ hash >> 32) & t->mask;
}

/* Next candidate with this very hash; *pos moves on. At least one slot is always empty. */
static inline bool htab_next(const struct htab *t, u64 hash, u32 *pos, u32 *index)
{
	if (!t->hash)
		return false;
	for (;;) {
		u32 p = *pos;

		if (t->index[p] == HTAB_EMPTY)
			return false;
		*pos = (p + 1) & t->mask;
		if (t->hash[p] == hash) {
			*index = t->index[p];
			return true;
		}
	}
}
