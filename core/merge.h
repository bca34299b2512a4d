/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. One stack out of two of the same moment: the native one, in which the interpreter's
 * loop functions stand for what the program does, and the interpreter's own list, cut into runs of
 * that loop. In: both. Out: frames, in which each loop frame has given way to its run. Pure.
 */
#pragma once

#include "util.h"
#include "frames.h"
#include "stack.h"

#define MERGE_FRAMES_MAX (MAX_USER_FRAMES + RUNTIME_FRAMES_MAX + 1)

struct merge_native {
	const struct frame *frames; /* user part, leaf first */
	const u64 *ip;              /* as they were on the stack: callers' are return addresses */
	u32 n;
	bool whole; /* the walk reached the thread's first frame */
};

struct merge_options {
	const struct code_range *loops;
	u32 nloops;
	bool runs;      /* struct unwinder.loop_runs */
	bool internals; /* loop frames stay, behind their runs */
};

/*
 * Matches from the leaf: the k-th loop frame is the k-th run. One loop frame more than runs: the
 * leaf's run has not begun. Runs left over where the native walk was cut, or behind a switch of
 * stacks, follow without native frames; loop frames left over where the list was cut stay. When
 * loop frames are missing, code made at run time that none follows stands for one. Any
 * other difference is not explained: SAMPLE_LIST_APART, the native frames first, then a mark, then
 * the list. Else SAMPLE_LIST_MERGED, or SAMPLE_LIST_IDLE when there was nothing to merge. out has
 * MERGE_FRAMES_MAX.
 */
enum sample_list merge_frames(const struct merge_native *native, const struct runtime_frames *list,
			      const struct merge_options *o, struct frame *out, u32 *ret_n);
/* The list alone, as frames. Returns how many. */
u32 merge_list_only(const struct runtime_frames *list, struct frame *out);
