// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See slabs.h: a bitmap of blocks per slab, first fit. */
#include "slabs.h"

#include <errno.h>
#include <string.h>

#define BLOCKS (SLAB_BYTES / SLAB_BLOCK)

struct slab {
	u8 *mem;
	u8 taken[BLOCKS]; /* a byte a block: runs are found by memchr() */
	u32 nfree;
};

struct slabs {
	void *(*grow)(void *arg, u32 slab);
	void *arg;
	u32 max;
	struct slab **v;
	u32 n, cap;
	u64 used;
};

struct slabs *slabs_new(void *(*grow)(void *arg, u32 slab), void *arg, u64 max_bytes)
{
	struct slabs *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->grow = grow;
	s->arg = arg;
	s->max = (u32)MIN(MAX(max_bytes / SLAB_BYTES, 1ull), (u64)SLABS_MAX);
	return s;
}

void slabs_free(struct slabs *s)
{
	u32 i;

	if (!s)
		return;
	for (i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
	free(s);
}

/* First block of a free run of n, or BLOCKS. */
static u32 find_run(const struct slab *slab, u32 n)
{
	const u8 *p = slab->taken, *end = slab->taken + BLOCKS, *full;

	while (p + n <= end) {
		p = memchr(p, 0, (size_t)(end - p));
		if (!p || p + n > end)
			break;
		full = memchr(p, 1, n);
		if (!full)
			return (u32)(p - slab->taken);
		p = full + 1;
	}
	return BLOCKS;
}

static int add_slab(struct slabs *s)
{
	struct slab *slab;
	int err;

	if (s->n == s->max)
		return -ENOSPC;
	err = VEC_RESERVE(s->v, s->cap, s->n + 1, SLABS_MAX);
	if (err)
		return err;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return -ENOMEM;
	slab->mem = s->grow(s->arg, s->n);
	if (!slab->mem) {
		free(slab);
		return -ENOSPC;
	}
	slab->nfree = BLOCKS;
	/* Ref 0 means nothing: its block is never handed out. */
	if (!s->n) {
		slab->taken[0] = 1;
		slab->nfree--;
	}
	s->v[s->n++] = slab;
	return 0;
}

int slabs_alloc(struct slabs *s, u32 bytes, u32 *ret_ref)
{
	u32 n = (bytes + SLAB_BLOCK - 1) / SLAB_BLOCK, i, at;
	int err;

	if (!n || n > BLOCKS)
		return -EINVAL;
	for (i = 0;; i++) {
		if (i == s->n) {
			err = add_slab(s);
			if (err)
				return err;
		}
		if (s->v[i]->nfree < n)
			continue;
		at = find_run(s->v[i], n);
		if (at < BLOCKS)
			break;
		/* The first slab misses one block: a run of a whole slab lies in the next one. */
	}
	memset(s->v[i]->taken + at, 1, n);
	s->v[i]->nfree -= n;
	s->used += (u64)n * SLAB_BLOCK;
	*ret_ref = SLAB_REF(i, at * SLAB_BLOCK);
	return 0;
}

void slabs_release(struct slabs *s, u32 ref, u32 bytes)
{
	u32 n = (bytes + SLAB_BLOCK - 1) / SLAB_BLOCK;
	struct slab *slab = s->v[REF_SLAB(ref)];

	memset(slab->taken + REF_OFF(ref) / SLAB_BLOCK, 0, n);
	slab->nfree += n;
	s->used -= (u64)n * SLAB_BLOCK;
}

void *slabs_at(const struct slabs *s, u32 ref)
{
	return s->v[REF_SLAB(ref)]->mem + REF_OFF(ref);
}

u64 slabs_used(const struct slabs *s)
{
	return s->used;
}

u64 slabs_bytes(const struct slabs *s)
{
	return (u64)s->n * SLAB_BYTES;
}
