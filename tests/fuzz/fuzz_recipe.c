// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes list_walk(): a recipe, then the process's memory. Whatever both say, the walk ends in its
 * bounds and with a reason, and keeps no word outside of what it says it has kept.
 */
#include "bpf/recipe.h"
#include "core/listwalk.h"
#include "core/target.h"

#include <errno.h>
#include <string.h>

#define BASE  0x1000ull
#define GUARD 0x6b6b6b6b6b6b6b6bull

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

struct world {
	struct target t;
	const u8 *mem;
	size_t size;
	u32 nreads;
};

static void require(bool ok)
{
	if (!ok)
		abort();
}

/* Addresses are folded, so that most lead somewhere; the memory's end is an end. */
static int world_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct world *w = (struct world *)t;
	u64 at = (addr - BASE) & 0xffff;

	w->nreads++;
	require(len <= RECIPE_NODE_MAX);
	if (at >= w->size || len > w->size - at)
		return -EFAULT;
	memcpy(dst, w->mem + at, len);
	return 0;
}

static const struct target_ops ops = { .read = world_read, .direct = true };

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct world w = { .t.ops = &ops };
	u64 words[LIST_WORDS_MAX], head = 0, i;
	enum list_end end;
	struct recipe r;
	struct list l;

	if (size < sizeof(r))
		return 0;
	memcpy(&r, data, sizeof(r));
	w.mem = data + sizeof(r);
	w.size = size - sizeof(r);
	for (i = 0; i < LIST_WORDS_MAX; i++)
		words[i] = GUARD;
	target_begin(&w.t);
	end = list_walk(&w.t, &r, BASE, BASE + 8, words, &l);
	require(end > LIST_END_NONE && end < LIST_END_MOVED && end == l.end);
	require(l.n <= RECIPE_NODES_MAX && l.width <= RECIPE_WIDTH_MAX);
	require(l.n <= (r.limit ? r.limit : RECIPE_NODES_MAX));
	require(w.nreads <= RECIPE_READS_MAX);
	require(!l.n || l.head);
	/* A node that a peek cut off has left words behind. */
	for (i = (l.n + 1) * l.width; i < LIST_WORDS_MAX; i++)
		require(words[i] == GUARD);
	target_begin(&w.t);
	end = list_head(&w.t, &r, BASE, BASE + 8, &head);
	require(head == l.head && (end == LIST_END_NONE) == (head != 0));
	return 0;
}
