// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See htab.h. */
#include "htab.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

void htab_fini(struct htab *t)
{
	free(t->hash);
	free(t->index);
	*t = (struct htab){ 0 };
}

void htab_clear(struct htab *t)
{
	if (t->hash)
		memset(t->index, 0xff, ((size_t)t->mask + 1) * sizeof(t->index[0]));
	t->n = 0;
}

static void put(struct htab *t, u64 hash, u32 index)
{
	u32 pos = htab_start(t, hash);

	while (t->index[pos] != HTAB_EMPTY)
		pos = (pos + 1) & t->mask;
	t->hash[pos] = hash;
	t->index[pos] = index;
}

static int grow(struct htab *t)
{
	size_t slots = t->hash ? ((size_t)t->mask + 1) * 2 : 64, i;
	struct htab bigger = { .mask = (u32)(slots - 1), .n = t->n };

	if (slots > 1u << 30)
		return -ENOMEM;
	bigger.hash = calloc(slots, sizeof(bigger.hash[0]));
	bigger.index = malloc(slots * sizeof(bigger.index[0]));
	if (!bigger.hash || !bigger.index) {
		htab_fini(&bigger);
		return -ENOMEM;
	}
	memset(bigger.index, 0xff, slots * sizeof(bigger.index[0]));
	for (i = 0; t->hash && i <= t->mask; i++)
		if (t->index[i] != HTAB_EMPTY)
			put(&bigger, t->hash[i], t->index[i]);
	htab_fini(t);
	*t = bigger;
	return 0;
}

int htab_insert(struct htab *t, u64 hash, u32 index)
{
	/* Linear probing stays short up to two thirds. */
	if (!t->hash || t->n + 1 > (t->mask + 1) / 3 * 2) {
		int err = grow(t);

		if (err)
			return err;
	}
	put(t, hash, index);
	t->n++;
	return 0;
}

void htab_remove(struct htab *t, u64 hash, u32 index)
{
	u32 pos, hole;

	if (!t->hash)
		return;
	for (pos = htab_start(t, hash); t->index[pos] != index || t->hash[pos] != hash;
	     pos = (pos + 1) & t->mask)
		if (t->index[pos] == HTAB_EMPTY)
			return;
	/* Close the hole: move up each later entry of the run that may live at or before it. */
	hole = pos;
	for (;;) {
		u32 home;

		pos = (pos + 1) & t->mask;
		if (t->index[pos] == HTAB_EMPTY)
			break;
		home = htab_start(t, t->hash[pos]);
		if (((pos - home) & t->mask) < ((pos - hole) & t->mask))
			continue;
		t->hash[hole] = t->hash[pos];
		t->index[hole] = t->index[pos];
		hole = pos;
	}
	t->index[hole] = HTAB_EMPTY;
	t->n--;
}

static u64 seed(void)
{
	static u64 value;

	/* Two threads may race here at first use only if both hash before main() did; main() does. */
	if (!value && getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value))
		value = now_monotonic() | 1;
	return value;
}

u64 hash_bytes(const void *data, size_t len)
{
	const u8 *p = data;
	u64 h = seed() ^ len, v;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&v, p, 8);
		h = hash_mix(h, v);
	}
	if (len) {
		v = 0;
		memcpy(&v, p, len);
		h = hash_mix(h, v);
	}
	return h ^ h >> 32;
}
