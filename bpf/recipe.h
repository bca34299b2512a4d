/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Executes a recipe (bpf/recipe_abi.h), for BPF and for the host from this one source. In: the
 * recipe and where the thread's walk begins. Out: the kept words of each node, and how the list
 * ended. It reads nothing itself: a step takes what was read last and says what is to be read
 * next. So whoever drives it reads as it can (the current thread, another task, a process, a
 * recording), a verifier takes the step once, and a walk that met a missing page stays where it is
 * until the page has been fetched:
 *
 *	recipe_begin(w, head, at, faults);
 *	if (!recipe_step(w, words, mask, 0))
 *		do
 *			failed = (read w->need_len bytes at w->need into w->node);
 *		while (!recipe_step(w, words, mask, failed));
 *
 * takes at most RECIPE_READS_MAX reads. The recipe is ours, but is masked for the verifier; what
 * it leads to is the process's: every word read may be anything.
 */
#pragma once

#include "bpf/abi.h"
#include "bpf/env.h"

#define RECIPE_NODE_WORDS (RECIPE_NODE_MAX / 8)
#define RECIPE_SEEKS_MAX  512 /* reads on the way to further lists of the thread */
#define RECIPE_FLAG_READS 4
#define RECIPE_READS_MAX                                                               \
	(RECIPE_HOPS + 2 + RECIPE_FLAG_READS + RECIPE_NODES_MAX * (1 + RECIPE_PEEKS) + \
	 RECIPE_SEEKS_MAX)

/* What is being read. */
enum recipe_phase {
	RECIPE_START, /* nothing yet */
	RECIPE_END_A, /* the two words that tell the array's end */
	RECIPE_END_B,
	RECIPE_HOP,
	RECIPE_NODE,
	RECIPE_PEEK,
	RECIPE_FLAG, /* whether it is set, and who has set it */
	RECIPE_FLAG_OWNER,
	RECIPE_FLAG_OTHER,
	RECIPE_FLAG_WHOSE,
	RECIPE_GROUPS, /* from here on: looking for another list of the thread */
	RECIPE_GROUP_NEXT,
	RECIPE_GROUP_MEMBER,
	RECIPE_OWN_ID,
	RECIPE_MEMBER_ID,
	RECIPE_MEMBER_NEXT,
};

struct recipe_walk {
	struct recipe recipe; /* a copy: user space may replace its own at any time */
	u64 p;                /* where the walk stands: what a hop adds to, or a node */
	u64 next;             /* the node after it, while its peeks are read */
	u64 stop;             /* end of the array */
	u64 mark;             /* a node met before, to notice a list that leads back into itself */
	u64 head;             /* first node; 0: none was reached */
	u64 peek[RECIPE_PEEKS];
	u64 last, before_last; /* nodes of this list */
	u64 own, id;           /* whose the first list is, and of which thread */
	u64 group, group_next, member;
	u64 need; /* to be read next, and after LIST_END_UNREADABLE what could not be */
	u32 need_len;
	u32 at; /* index of the first kept word */
	u16 n;  /* nodes */
	u8 width;
	u8 phase;
	u8 hop;      /* hops that are behind */
	u8 peeked;   /* peeks of this node that are behind */
	u8 end;      /* enum list_end; NONE while under way */
	u8 at_nodes; /* all hops are behind */
	u8 has_stop;
	u8 faults;   /* the driver can fetch pages: those that peeks miss are wanted, too */
	u8 given_up; /* this peek's or flag's page cannot be had even so */
	u8 whole;    /* how the lists so far have ended, enum list_end */
	u16 seeks;   /* reads on the way to further lists */
	u8 seeking;  /* the first list is behind */
	u8 known_id;
	u8 seam;  /* a node of another list is under way, and the one before is not closed off */
	u8 seams; /* so many are */
	u8 flag;  /* the recipe's flag is set, by this thread */
	u8 pad[5];
	u64 node[RECIPE_NODE_WORDS]; /* where the driver puts what it has read */
};

static __always_inline int recipe_stop(struct recipe_walk *w, u8 end)
{
	w->end = end;
	return 1;
}

static __always_inline int recipe_want(struct recipe_walk *w, u8 phase, u64 addr, u32 len)
{
	w->phase = phase;
	w->need = addr;
	w->need_len = len;
	return 0;
}

/*
 * Begins a walk of w->recipe, which is set; words will go to words[at] and up. head: the value
 * that recipe.head names (thread pointer, RECIPE_ADDR's own address, ...), 0: not known; then the
 * walk has ended at once.
 */
static __always_inline void recipe_begin(struct recipe_walk *w, u64 head, u32 at, bool faults)
{
	if (w->recipe.nwords > RECIPE_WORDS)
		w->recipe.nwords = RECIPE_WORDS;
	if (w->recipe.npeeks > RECIPE_PEEKS)
		w->recipe.npeeks = RECIPE_PEEKS;
	w->width = w->recipe.nwords + w->recipe.npeeks;
	if (!w->recipe.mask)
		w->recipe.mask = ~0ull;
	if (!w->recipe.limit || w->recipe.limit > RECIPE_NODES_MAX)
		w->recipe.limit = RECIPE_NODES_MAX;
	if (w->recipe.len > RECIPE_NODE_MAX)
		w->recipe.len = RECIPE_NODE_MAX;
	w->p = head;
	w->stop = 0;
	w->mark = 0;
	w->head = 0;
	w->need = 0;
	w->need_len = 0;
	w->at = at;
	w->n = 0;
	w->phase = RECIPE_START;
	w->hop = 0;
	w->at_nodes = 0;
	w->has_stop = 0;
	w->faults = faults;
	w->given_up = 0;
	w->last = 0;
	w->before_last = 0;
	w->own = 0;
	w->id = 0;
	w->group = 0;
	w->group_next = 0;
	w->member = 0;
	w->whole = LIST_END_NONE;
	w->seeks = 0;
	w->seeking = 0;
	w->known_id = 0;
	w->seam = 0;
	w->seams = 0;
	w->flag = 0;
	w->end = head ? LIST_END_NONE : LIST_END_NO_HEAD;
}

/* A list is behind, end says how: to the next, if the thread may have one. */
static __always_inline int recipe_end_list(struct recipe_walk *w, u8 end)
{
	if (w->whole != LIST_END_NULL)
		w->whole = end;
	if (!w->recipe.groups || w->recipe.stride || !w->own)
		return recipe_stop(w, end);
	if (w->seeking)
		return recipe_want(w, RECIPE_MEMBER_NEXT, w->member + (s64)w->recipe.member_next,
				   sizeof(u64));
	w->seeking = 1;
	return recipe_want(w, RECIPE_GROUPS, w->recipe.groups, sizeof(u64));
}

/* Wants the node at w->p, or says why there is none. */
static __always_inline int recipe_want_node(struct recipe_walk *w)
{
	if (w->recipe.stride && w->p >= w->stop)
		/* A head beyond the end is none of this array's. */
		return recipe_stop(w, w->p > w->stop && !w->n ? LIST_END_ORDER : LIST_END_END);
	if (!w->p)
		return recipe_end_list(w, LIST_END_NULL);
	if (w->p & 7)
		return recipe_stop(w, LIST_END_MISALIGNED);
	if (w->n >= w->recipe.limit)
		return recipe_stop(w, LIST_END_LIMIT);
	return recipe_want(w, RECIPE_NODE, w->p + (s64)w->recipe.lo, w->recipe.len);
}

/* Wants whatever comes next from w->p on. */
static __always_inline int recipe_advance(struct recipe_walk *w)
{
	u32 i = w->hop;

	if (w->at_nodes)
		return recipe_want_node(w);
	if (i == w->recipe.thread_hops && !w->own)
		w->own = w->p;
	if (w->recipe.stride && i == w->recipe.end_hop && !w->has_stop)
		return recipe_want(w, RECIPE_END_A, w->p + (s64)w->recipe.end_a, sizeof(u64));
	if (i < w->recipe.nhops && i < RECIPE_HOPS)
		return recipe_want(w, RECIPE_HOP, w->p + (s64)w->recipe.hop[i], sizeof(u64));
	w->p = (w->p + (s64)w->recipe.add) & w->recipe.mask;
	if (!w->p)
		return recipe_end_list(w, LIST_END_EMPTY);
	if (!w->head)
		w->head = w->p;
	w->at_nodes = 1;
	w->seam = w->n != 0;
	if (recipe_want_node(w))
		return 1;
	if (w->recipe.flag_mask && !w->seeking)
		recipe_want(w, RECIPE_FLAG, w->recipe.flag, sizeof(u64));
	return 0;
}

/* Keeps what the recipe wants of the node in w->node, and notes what it leads to. */
static __always_inline void recipe_keep(struct recipe_walk *w, u64 *words, u32 mask)
{
	u32 to = w->at + w->n * w->width, k, from;
	u64 word;

	for (k = 0; k < RECIPE_WORDS; k++) {
		if (k >= w->recipe.nwords)
			break;
		words[(to + k) & mask] = w->node[w->recipe.word[k] & (RECIPE_NODE_WORDS - 1)];
	}
	for (k = 0; k < RECIPE_PEEKS; k++) {
		from = w->recipe.peek_word[k];
		from = from < RECIPE_WORDS ? w->recipe.word[from] : 0;
		word = w->node[from & (RECIPE_NODE_WORDS - 1)];
		w->peek[k] = word < 4096 ? 0 : (word & ~7ull) + (s64)w->recipe.peek_off[k];
	}
	w->peeked = 0;
	w->next = w->recipe.stride
			  ? w->p + (s64)w->recipe.stride
			  : w->node[w->recipe.next_word & (RECIPE_NODE_WORDS - 1)] & w->recipe.mask;
}

static __always_inline void recipe_keep_peek(struct recipe_walk *w, u64 *words, u32 mask, u64 value)
{
	u32 first = w->at + (w->n + 1) * w->width - w->recipe.npeeks;

	words[(first + w->peeked) & mask] = value;
	w->peeked++;
	w->given_up = 0;
}

/* Wants the node's next peek; 1 when it has none left. */
static __always_inline int recipe_want_peek(struct recipe_walk *w, u64 *words, u32 mask)
{
	u32 k;

	for (k = 0; k < RECIPE_PEEKS; k++) {
		if (w->peeked >= w->recipe.npeeks || w->peeked >= RECIPE_PEEKS)
			break;
		if (w->peek[w->peeked & 1])
			return recipe_want(w, RECIPE_PEEK, w->peek[w->peeked & 1], sizeof(u64));
		recipe_keep_peek(w, words, mask, 0);
	}
	return 1;
}

_Static_assert(RECIPE_PEEKS == 2, "an index of a peek is bounded by a mask");

/* The node is done: to the next. */
static __always_inline int recipe_leave_node(struct recipe_walk *w)
{
	u64 p = w->p, next = w->next;

	w->n++;
	w->before_last = w->last;
	w->last = p;
	w->p = next;
	if (!w->recipe.stride && next) {
		if (next == p || next == w->mark || (w->recipe.up && next < p))
			return recipe_stop(w, LIST_END_ORDER);
		/* The mark moves on ever more seldom, so that a cycle comes to pass it (Brent). */
		if (!(w->n & (w->n - 1)))
			w->mark = next;
	}
	return recipe_want_node(w);
}

/* Closes off the list before this one; nonzero: there is no room for it and what follows. */
static __always_inline int recipe_put_seam(struct recipe_walk *w, u64 *words, u32 mask)
{
	const u64 value[RECIPE_WIDTH_MAX] = { RECIPE_SEAM, w->last, w->before_last };
	u32 to = w->at + w->n * w->width, k;

	if (w->n >= w->recipe.limit)
		return recipe_stop(w, LIST_END_LIMIT);
	for (k = 0; k < RECIPE_WIDTH_MAX; k++)
		if (k < w->width)
			words[(to + k) & mask] = value[k];
	w->n++;
	w->seam = 0;
	w->seams++;
	w->last = 0;
	w->before_last = 0;
	return 0;
}

/* Others change what leads from one to the next, and this thread does not wait for them. */
static __always_inline int recipe_lose_way(struct recipe_walk *w)
{
	return recipe_stop(w, LIST_END_UNREADABLE);
}

static __always_inline int recipe_want_group(struct recipe_walk *w)
{
	if (!w->group)
		return recipe_stop(w, w->whole);
	if (w->group & 7)
		return recipe_lose_way(w);
	return recipe_want(w, RECIPE_GROUP_NEXT, w->group + (s64)w->recipe.group_next, sizeof(u64));
}

static __always_inline int recipe_want_member(struct recipe_walk *w)
{
	if (!w->member) {
		w->group = w->group_next;
		return recipe_want_group(w);
	}
	if (w->member & 7)
		return recipe_lose_way(w);
	if (w->member == w->own)
		return recipe_want(w, RECIPE_MEMBER_NEXT, w->member + (s64)w->recipe.member_next,
				   sizeof(u64));
	return recipe_want(w, RECIPE_MEMBER_ID, w->member + (s64)w->recipe.member_id, sizeof(u64));
}

/* The walk of another list of the same thread. */
static __always_inline void recipe_begin_list(struct recipe_walk *w)
{
	w->p = w->member;
	w->hop = w->recipe.thread_hops;
	w->at_nodes = 0;
	w->mark = 0;
	w->phase = RECIPE_START;
}

/* A step on the way from one list to the next. */
static __always_inline int recipe_seek(struct recipe_walk *w)
{
	u64 got = w->node[0];

	switch (w->phase) {
	case RECIPE_GROUPS:
		w->group = got;
		return recipe_want_group(w);
	case RECIPE_GROUP_NEXT:
		w->group_next = got;
		if (w->known_id)
			break;
		if (!got)
			return recipe_stop(w, w->whole);
		return recipe_want(w, RECIPE_OWN_ID, w->own + (s64)w->recipe.member_id,
				   sizeof(u64));
	case RECIPE_OWN_ID:
		w->id = got;
		w->known_id = 1;
		break;
	case RECIPE_MEMBER_ID:
		return recipe_want(w, RECIPE_MEMBER_NEXT, w->member + (s64)w->recipe.member_next,
				   sizeof(u64));
	default: /* RECIPE_GROUP_MEMBER, RECIPE_MEMBER_NEXT */
		w->member = got;
		return recipe_want_member(w);
	}
	return recipe_want(w, RECIPE_GROUP_MEMBER, w->group + (s64)w->recipe.group_member,
			   sizeof(u64));
}

/* A list is whole without what these read. */
static __always_inline bool recipe_optional(const struct recipe_walk *w)
{
	return w->phase >= RECIPE_PEEK && w->phase <= RECIPE_FLAG_WHOSE;
}

/*
 * A step on the way to whether this thread has set the flag, and back to the first node, which was
 * wanted before. What cannot be read says no.
 */
static __always_inline int recipe_seek_flag(struct recipe_walk *w, int failed)
{
	u64 got = failed ? 0 : w->node[0], to = 0;
	u8 next = RECIPE_FLAG_WHOSE;

	w->given_up = 0;
	if (w->phase == RECIPE_FLAG) {
		next = RECIPE_FLAG_OWNER;
		if (got & w->recipe.flag_mask)
			to = w->recipe.flag_owner[0];
	} else if (w->phase == RECIPE_FLAG_WHOSE) {
		w->flag = got && got == w->own;
	} else if (got) {
		to = got + (s64)w->recipe.flag_hop;
	} else if (w->phase == RECIPE_FLAG_OWNER && !failed) {
		next = RECIPE_FLAG_OTHER;
		to = w->recipe.flag_owner[1];
	}
	if (to)
		return recipe_want(w, next, to, sizeof(u64));
	return recipe_want(w, RECIPE_NODE, w->p + (s64)w->recipe.lo, w->recipe.len);
}

/* A node was read, or what one of its words leads to. */
static __always_inline int recipe_take_node(struct recipe_walk *w, u64 *words, u32 mask, int failed)
{
	if (w->phase == RECIPE_PEEK) {
		recipe_keep_peek(w, words, mask, failed ? 0 : w->node[0]);
	} else {
		if (w->seam && (recipe_put_seam(w, words, mask) || w->n >= w->recipe.limit))
			return recipe_stop(w, LIST_END_LIMIT);
		recipe_keep(w, words, mask);
	}
	return recipe_want_peek(w, words, mask) ? recipe_leave_node(w) : 0;
}

/*
 * Takes what was read into w->node, or that it could not be (failed), and says in w->need and
 * w->need_len what to read next. The first step takes nothing. Nonzero: the list has ended, w->end
 * says how. Words go to words[(at + ...) & mask].
 */
static __always_inline int recipe_step(struct recipe_walk *w, u64 *words, u32 mask, int failed)
{
	if (w->end != LIST_END_NONE)
		return 1;
	if (failed && (!recipe_optional(w) || (w->faults && !w->given_up)))
		return recipe_stop(w, LIST_END_UNREADABLE);
	if (w->phase == RECIPE_NODE || w->phase == RECIPE_PEEK)
		return recipe_take_node(w, words, mask, failed);
	if (recipe_optional(w))
		return recipe_seek_flag(w, failed);
	if (w->seeking && w->seeks++ >= RECIPE_SEEKS_MAX)
		return recipe_stop(w, LIST_END_LIMIT);
	if (w->phase == RECIPE_MEMBER_ID && w->node[0] == w->id)
		recipe_begin_list(w);
	if (w->phase >= RECIPE_GROUPS) {
		recipe_seek(w);
		if (w->end == LIST_END_NULL && w->seams)
			recipe_put_seam(w, words, mask);
		return w->end != LIST_END_NONE;
	}
	switch (w->phase) {
	case RECIPE_END_A:
		w->stop = w->node[0];
		return recipe_want(w, RECIPE_END_B, w->p + (s64)w->recipe.end_b, sizeof(u64));
	case RECIPE_END_B:
		w->stop += (w->node[0] << (w->recipe.end_shift & 63)) + (s64)w->recipe.end_add;
		w->has_stop = 1;
		break;
	case RECIPE_HOP:
		w->p = w->node[0];
		w->hop++;
		if (!w->p)
			return recipe_end_list(w, LIST_END_EMPTY);
		break;
	default:
		break;
	}
	return recipe_advance(w);
}

/*
 * After LIST_END_UNREADABLE, when the page has been fetched (failed 0) or cannot be. Nonzero: read
 * w->need again and go on.
 */
static __always_inline int recipe_fetched(struct recipe_walk *w, int failed)
{
	if (failed && !recipe_optional(w))
		return 0;
	w->given_up = failed != 0;
	w->end = LIST_END_NONE;
	return 1;
}
