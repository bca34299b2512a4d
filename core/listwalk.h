/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. The walk of an interpreter's list over a process that is read from outside: of
 * threads that wait, where the kernel cannot read for us, for `dump`, and over recordings. The
 * same source as in the programs, bpf/recipe.h. In: a recipe, where the thread's list begins.
 * Out: words. Whether the thread stood still meanwhile is the caller's to find out.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "unwinders/unwinder.h"

/*
 * The recipe as it holds for a thread, which is the process's first one or not: r, or one that
 * finds no list (LIST_END_NO_HEAD). Borrowed, like r.
 */
const struct recipe *list_recipe_for(const struct recipe *r, bool first);
/*
 * Walks; words has LIST_WORDS_MAX. tp: thread pointer, 0: not known; head: what user space knows
 * for the thread (RECIPE_TID, RECIPE_JIT_FP), 0: nothing. Fills in words, n, width, end, head
 * and flag of *ret and zeroes the rest. At most RECIPE_READS_MAX reads. Returns the end.
 */
enum list_end list_walk(struct target *t, const struct recipe *r, u64 tp, u64 head, u64 *words,
			struct list *ret);
/* The same, the head alone: a few reads. LIST_END_NONE: *ret_head is the first node. */
enum list_end list_head(struct target *t, const struct recipe *r, u64 tp, u64 head, u64 *ret_head);
