// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See merge.h. */
#include "merge.h"

#define NOT_MERGED "[not merged]"
#define NO_GROUP   UINT32_MAX

/* Which loop frame, counted from the leaf, a native frame belongs to. */
struct groups {
	u32 of[MAX_USER_FRAMES];
	u32 n;
};

static bool is_loop(const struct merge_native *native, const struct merge_options *o, u32 i)
{
	u64 addr = i ? native->ip[i] - 1 : native->ip[i];
	u32 k;

	for (k = 0; k < o->nloops; k++)
		if (addr >= o->loops[k].lo && addr < o->loops[k].hi)
			return true;
	return false;
}

/* Code made at run time that the loop calls, or is called by in a run, is the loop's. */
static bool is_jit(const struct merge_native *native, u32 i)
{
	return native->frames[i].kind == FRAME_ANON;
}

/* The last frame, from the leaf, of code made at run time that no loop frame follows. */
static bool ends_orphans(const struct merge_native *native, const struct merge_options *o, u32 i)
{
	return is_jit(native, i) &&
	       (i + 1 == native->n || (!is_jit(native, i + 1) && !is_loop(native, o, i + 1)));
}

/* orphans: code made at run time stands for the loop frame that it was called by. */
static void group_single(const struct merge_native *native, const struct merge_options *o,
			 bool orphans, struct groups *g)
{
	u32 i, k;

	g->n = 0;
	for (i = 0; i < native->n; i++) {
		g->of[i] = NO_GROUP;
		if (!is_loop(native, o, i) && !(orphans && ends_orphans(native, o, i)))
			continue;
		g->of[i] = g->n;
		for (k = i; k && is_jit(native, k - 1) && g->of[k - 1] == NO_GROUP; k--)
			g->of[k - 1] = g->n;
		g->n++;
	}
}

static void group_runs(const struct merge_native *native, const struct merge_options *o,
		       struct groups *g)
{
	bool inside = false;
	u32 i;

	for (i = 0; i < native->n; i++) {
		bool mine = is_loop(native, o, i) || is_jit(native, i);

		if (mine && !inside)
			g->n++;
		g->of[i] = mine ? g->n - 1 : NO_GROUP;
		inside = mine;
	}
}

/* Runs of the list, those behind the last boundary included. */
static u32 runs_of(const struct runtime_frames *list)
{
	u32 n = list->nsegments;

	return n + (list->n > (n ? list->segment[n - 1] : 0));
}

static u32 run_end(const struct runtime_frames *list, u32 k)
{
	return k < list->nsegments ? list->segment[k] : list->n;
}

static void put_frame(const struct runtime_frame *from, struct frame *out, u32 *n)
{
	out[(*n)++] = (struct frame){
		.kind = FRAME_RUNTIME,
		.func = from->func,
		.file = from->file,
		.line = from->line,
	};
}

static void put_run(const struct runtime_frames *list, u32 k, struct frame *out, u32 *n)
{
	u32 i, from = k ? run_end(list, k - 1) : 0;

	for (i = from; i < run_end(list, k); i++)
		put_frame(&list->frames[i], out, n);
}

u32 merge_list_only(const struct runtime_frames *list, struct frame *out)
{
	u32 n = 0, i;

	for (i = 0; i < list->n; i++)
		put_frame(&list->frames[i], out, &n);
	return n;
}

static enum sample_list keep_apart(const struct merge_native *native,
				   const struct runtime_frames *list, struct frame *out, u32 *ret_n)
{
	u32 n, i;

	for (n = 0; n < native->n; n++)
		out[n] = native->frames[n];
	if (list->n)
		out[n++] = (struct frame){ .kind = FRAME_RUNTIME, .func = NOT_MERGED };
	for (i = 0; i < list->n; i++)
		put_frame(&list->frames[i], out, &n);
	*ret_n = n;
	return SAMPLE_LIST_APART;
}

/*
 * Where both stacks are laid out: loop frames [0, skip) have no run, then they go pair by pair.
 * False when the difference is not explained.
 */
static bool align(const struct merge_native *native, const struct runtime_frames *list, u32 loops,
		  u32 runs, u32 *skip)
{
	u32 expected = MIN(runs, list->switched);

	*skip = 0;
	if (loops == expected)
		return true;
	if (loops < expected)
		return !native->whole;
	if (list->cut)
		return true;
	*skip = 1;
	return loops == expected + 1;
}

/* False when the difference is not explained. */
static bool group(const struct merge_native *native, const struct runtime_frames *list,
		  const struct merge_options *o, u32 runs, struct groups *g, u32 *skip)
{
	if (o->runs) {
		group_runs(native, o, g);
		return align(native, list, g->n, runs, skip);
	}
	group_single(native, o, false, g);
	if (align(native, list, g->n, runs, skip))
		return true;
	/*
	 * Code made at run time without a frame of its own leaves its caller's frame pointer as it
	 * was: a walk by that passes over the loop frame that called it (CPython 3.14, -X jit).
	 */
	if (g->n >= MIN(runs, list->switched))
		return false;
	group_single(native, o, true, g);
	return align(native, list, g->n, runs, skip) && !*skip;
}

enum sample_list merge_frames(const struct merge_native *native, const struct runtime_frames *list,
			      const struct merge_options *o, struct frame *out, u32 *ret_n)
{
	u32 runs = runs_of(list), skip, next = 0, n = 0, i;
	struct groups g = { .n = 0 };

	if (!group(native, list, o, runs, &g, &skip))
		return keep_apart(native, list, out, ret_n);
	/* next: the run that comes next; a group's run is put before its leaf-most frame. */
	for (i = 0; i < native->n; i++) {
		u32 group = g.of[i], run = group - skip;
		bool has_run = group != NO_GROUP && group >= skip && run < runs;

		if (has_run && run == next)
			put_run(list, next++, out, &n);
		if (group == NO_GROUP || o->internals || (group >= skip && !has_run))
			out[n++] = native->frames[i];
	}
	for (; next < runs; next++)
		put_run(list, next, out, &n);
	*ret_n = n;
	return g.n || runs ? SAMPLE_LIST_MERGED : SAMPLE_LIST_IDLE;
}
