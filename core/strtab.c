// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See strtab.h. */
#include "strtab.h"

#include <errno.h>
#include <string.h>

void strtab_fini(struct strtab *t)
{
	free(t->entries);
	htab_fini(&t->by_text);
	arena_fini(&t->arena);
	*t = (struct strtab){ 0 };
}

static bool equal(const struct strtab_entry *e, const char *s, size_t len)
{
	return e->len == len && !memcmp(e->s, s, len);
}

int strtab_add(struct strtab *t, const char *s, size_t len, u32 *ret)
{
	u64 hash = hash_bytes(s, len);
	u32 pos, i;
	char *copy;
	int err;

	for (pos = htab_start(&t->by_text, hash); htab_next(&t->by_text, hash, &pos, &i);) {
		if (equal(&t->entries[i], s, len)) {
			*ret = i;
			return 0;
		}
	}
	if (t->max_bytes && len >= t->max_bytes - MIN(t->bytes, t->max_bytes))
		return -E2BIG;
	err = VEC_RESERVE(t->entries, t->cap, t->n + 1, HTAB_EMPTY - 1);
	if (err)
		return err;
	copy = arena_string(&t->arena, s, len);
	if (!copy)
		return -ENOMEM;
	err = htab_insert(&t->by_text, hash, t->n);
	if (err)
		return err;
	t->entries[t->n] = (struct strtab_entry){ copy, len };
	t->bytes += len + 1;
	*ret = t->n++;
	return 0;
}
