/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interpreter's list of the current thread, for every program that walks its native stack:
 * before that walk list_arm() says whether the image has a recipe, after it list_walk() appends
 * the kept words to the addresses in scratch.ip[]. The thread stands still meanwhile, so the list
 * cannot change. A program that may sleep goes on with list_fetch() where a page was missing.
 */
#pragma once

#include "bpf/unwind.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RECIPE_ENTRIES_MAX);
	__type(key, u32);
	__type(value, struct recipe_entry);
} recipes SEC(".maps");

/* Thread to head, for RECIPE_TID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RECIPE_HEADS_MAX);
	__type(key, u32);
	__type(value, u64);
} heads SEC(".maps");

#define LIST_ROUND       16 /* reads of one list_round() */
#define LIST_FETCHES_MAX 16 /* missing pages of one list */

/* Thread pointer of a task that has been switched out since it was set, as all but the newest have. */
static __always_inline u64 task_tp(struct task_struct *task)
{
#if UNWIND_ARM64
	return BPF_CORE_READ(task, thread.uw.tp_value);
#else
	return BPF_CORE_READ(task, thread.fsbase);
#endif
}

/* Of every event, whether a list follows or not. */
static __always_inline void list_none(struct scratch *s)
{
	s->ev.recipe_gen = 0;
	s->ev.nlist = 0;
	s->ev.list_width = 0;
	s->ev.list_end = LIST_END_NONE;
	s->ev.list_head = 0;
	s->ev.list_reg = 0;
	s->ev.list_flag = 0;
}

/*
 * After list_none(): is key's image armed? Copies its recipe, and the two registers that it asks for, which the walk
 * of the native stack may change.
 */
static __always_inline void list_arm(struct scratch *s, const struct stack_key *key)
{
	u32 tgid = key->tgid, gen;
	struct recipe_entry *e = bpf_map_lookup_elem(&recipes, &tgid);

	if (!e || e->start_ns != key->start_ns || e->exec_id != key->exec_id)
		return;
	gen = e->gen;
	s->list.recipe = e->recipe;
	/* A removed entry is used again at once, and gen is written before the recipe. */
	asm volatile("" ::: "memory");
	if (e->gen != gen)
		return;
	s->ev.recipe_gen = gen;
	s->list_reg = 0;
	s->list_kept = 0;
	if (s->list.recipe.reg_is_head != s->list.recipe.reg_kept) {
		s->list_reg = s->regs[s->list.recipe.reg_is_head & (WALK_REGS - 1)];
		s->list_kept = s->regs[s->list.recipe.reg_kept & (WALK_REGS - 1)];
	}
}

/* Where the list of the task begins; 0: not known. */
static __always_inline u64 list_find_head(struct scratch *s, struct task_struct *task, u32 tid)
{
	u64 *known;

	switch (s->list.recipe.head) {
	case RECIPE_TP:
		return task_tp(task);
	case RECIPE_ADDR:
		return s->list.recipe.first_thread && tid != s->ev.key.tgid ? 0
									    : s->list.recipe.addr;
	case RECIPE_TID:
		known = bpf_map_lookup_elem(&heads, &tid);
		return known ? *known : 0;
	case RECIPE_JIT_FP:
		return s->walk.jit_fp;
	default:
		return 0;
	}
}

/* Takes what was read last, and says what to read next; nonzero: the end. */
__noinline int list_step(u32 slot, int failed)
{
	struct scratch *s = walk_scratch(slot);

	return s ? recipe_step(&s->list, s->ip, WALK_MASK, failed) : 1;
}

/* Some reads of the current process's memory, for which no page is fetched. Nonzero: the end. */
__noinline int list_round(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u64 len;
	u32 i;
	long err;

	if (!s)
		return 1;
	for (i = 0; i < LIST_ROUND; i++) {
		len = s->list.need_len;
		asm volatile("" : "+r"(len));
		if (len > RECIPE_NODE_MAX)
			return 1;
		err = bpf_probe_read_user(s->list.node, len, (const void *)s->list.need);
		if (list_step(slot, err != 0))
			return 1;
	}
	return 0;
}

/* From the read that is due to the list's end, or to a page that is missing. */
__noinline int list_go_on(u32 slot)
{
	u32 i;

	for (i = 0; i < RECIPE_READS_MAX / LIST_ROUND + 1; i++)
		if (list_round(slot))
			break;
	return 0;
}

/* Goes on after a missing page; nonzero: the end. */
__noinline int list_resume(u32 slot, int failed)
{
	struct scratch *s = walk_scratch(slot);

	if (!s || !recipe_fetched(&s->list, failed))
		return 1;
	list_go_on(slot);
	return 0;
}

/* What user space is told. */
static __always_inline void list_tell(struct scratch *s)
{
	struct recipe_walk *l = &s->list;

	s->ev.nlist = l->n;
	s->ev.list_width = l->width;
	s->ev.list_end = l->end;
	s->ev.list_head = l->head;
	s->ev.list_flag = l->flag;
	s->ev.list_reg = l->head && s->list_reg == l->head ? s->list_kept : 0;
}

/* A native walk that knew all mappings and got to its end has seen that nothing was compiled. */
static __always_inline bool list_saw_no_jit(const struct walk *w)
{
	return !w->jit_fp && w->gen && !w->unmapped &&
	       (w->end == STACK_END_COMPLETE || w->end == STACK_END_GUESSED);
}

/*
 * After list_arm() and the walk of the native stack, in the thread itself, which the walk leaves
 * where it stands. faults: the caller goes on with list_fetch().
 */
static __always_inline void list_walk(struct scratch *s, u32 slot, struct task_struct *task,
				      u32 tid, bool faults)
{
	if (!s->ev.recipe_gen || s->list.recipe.head == RECIPE_NO_HEAD)
		return;
	recipe_begin(&s->list, list_find_head(s, task, tid), s->walk.n, faults);
	if (s->list.recipe.head == RECIPE_JIT_FP && list_saw_no_jit(&s->walk))
		s->list.end = LIST_END_EMPTY;
	if (!list_step(slot, 0))
		list_go_on(slot);
	list_tell(s);
}

/*
 * In the callback of a task work, in the thread itself: fetches missing pages, each of which `may`
 * allows, and goes on. What may not or cannot be fetched ends the list, or is a peek of 0.
 */
typedef bool list_may_fn(struct task_struct *task, u64 addr);

static __always_inline void list_fetch(struct scratch *s, u32 slot, struct task_struct *task,
				       list_may_fn *may)
{
	int failed;
	u64 len;
	u32 i;

	if (!s->ev.recipe_gen)
		return;
	for (i = 0; i < LIST_FETCHES_MAX; i++) {
		if (s->list.end != LIST_END_UNREADABLE)
			break;
		failed = 1;
		if (may(task, s->list.need)) {
			len = s->list.need_len;
			asm volatile("" : "+r"(len));
			if (len <= RECIPE_NODE_MAX)
				failed = bpf_copy_from_user(s->list.node, len,
							    (void *)s->list.need) != 0;
		}
		/* Out of line: what it finds out is not followed by verifiers. */
		if (list_resume(slot, failed))
			break;
	}
	list_tell(s);
}

/* Words that follow the addresses. */
static __always_inline u32 list_words(const struct scratch *s)
{
	return (u32)s->ev.nlist * s->ev.list_width;
}
