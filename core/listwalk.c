// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See listwalk.h. The only core file that builds bpf/recipe.h. */
#include "listwalk.h"

#include "bpf/recipe.h"

#include <string.h>

_Static_assert(!(LIST_WORDS_MAX & (LIST_WORDS_MAX - 1)), "an index is bounded by a mask");

const struct recipe *list_recipe_for(const struct recipe *r, bool first)
{
	static const struct recipe none = { .head = RECIPE_NO_HEAD };

	return r->head == RECIPE_ADDR && r->first_thread && !first ? &none : r;
}

static void begin(struct recipe_walk *w, const struct recipe *r, u64 tp, u64 head)
{
	w->recipe = *r;
	switch (r->head) {
	case RECIPE_TP:
		recipe_begin(w, tp, 0, false);
		break;
	case RECIPE_ADDR:
		recipe_begin(w, r->addr, 0, false);
		break;
	case RECIPE_TID:
	case RECIPE_JIT_FP:
		recipe_begin(w, head, 0, false);
		break;
	default:
		recipe_begin(w, 0, 0, false);
	}
}

/* To the list's end, or with head_only to its first node. */
static void run(struct recipe_walk *w, struct target *t, u64 *words, bool head_only)
{
	u32 mask = LIST_WORDS_MAX - 1, i;

	if (recipe_step(w, words, mask, 0))
		return;
	for (i = 0; i < RECIPE_READS_MAX && !(head_only && w->at_nodes); i++)
		if (recipe_step(w, words, mask, target_read(t, w->need, w->node, w->need_len) < 0))
			return;
}

enum list_end list_walk(struct target *t, const struct recipe *r, u64 tp, u64 head, u64 *words,
			struct list *ret)
{
	struct recipe_walk w;

	begin(&w, r, tp, head);
	run(&w, t, words, false);
	memset(ret, 0, sizeof(*ret));
	ret->words = words;
	ret->n = w.n;
	ret->width = w.width;
	ret->end = w.end;
	ret->head = w.head;
	ret->flag = w.flag;
	return ret->end;
}

enum list_end list_head(struct target *t, const struct recipe *r, u64 tp, u64 head, u64 *ret_head)
{
	struct recipe_walk w;

	begin(&w, r, tp, head);
	run(&w, t, NULL, true);
	if (!w.head)
		return w.end;
	*ret_head = w.head;
	return LIST_END_NONE;
}
