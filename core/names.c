// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See names.h. A naming is the list of locations that have no name yet, one module
 * after the other; each pass goes through what is left of it. Of the modules whose symbols must be
 * read first some are asked for ahead: the book's budget for symbol tables may hold only a few of a
 * window's modules at a time, so more of them would push each other out.
 */
#include "names.h"

#include "demangle.h"
#include "fold.h"
#include "module.h"
#include "perfmap.h"
#include "stat.h"

#include <errno.h>
#include <string.h>

/* A name that a file chose; readers of profiles refuse names of 64 KiB, people far shorter ones. */
#define NAME_MAX_BYTES 4096
#define MODULES_AHEAD  4                   /* asked for, and not read yet */
#define CLOCK_LOOK     32                  /* locations between looks at the clock */
#define SLICE_NS       (NSEC_PER_SEC / 50) /* naming_finish() waits for the books at a time */

struct naming {
	struct window *w;
	struct modules *ms;
	struct perfmaps *pm;
	u64 deadline_ns;
	u32 *left; /* locations without a name; those that are awaited first */
	u32 nleft;
	bool idle; /* the last step found nobody at work, and changed nothing */
	/* The last function: neighbours often have the same one. */
	const struct module *module;
	const char *raw, *func, *linked;
};

static int by_module(const void *a, const void *b, void *locations)
{
	const struct location *x = (const struct location *)locations + *(const u32 *)a;
	const struct location *y = (const struct location *)locations + *(const u32 *)b;

	if (x->module != y->module)
		return (uintptr_t)x->module < (uintptr_t)y->module ? -1 : 1;
	return x->address < y->address ? -1 : x->address > y->address;
}

static bool is_unnamed(const struct naming *n, const struct location *l)
{
	if (l->func)
		return false;
	return l->kind == FRAME_NATIVE ? l->module != NULL
				       : l->kind == FRAME_ANON && l->map && n->pm;
}

struct naming *naming_new(struct window *w, struct modules *ms, struct perfmaps *pm,
			  u64 deadline_ns)
{
	struct naming *n = calloc(1, sizeof(*n));
	u32 i;

	if (n)
		n->left = calloc(MAX(w->nlocations, 1u), sizeof(*n->left));
	if (!n || !n->left) {
		stat_inc(STAT_no_memory);
		naming_free(n);
		return NULL;
	}
	n->w = w;
	n->ms = ms;
	n->pm = pm;
	n->deadline_ns = deadline_ns;
	for (i = 0; i < w->nlocations; i++) {
		struct location *l = &w->locations[i];

		if (!is_unnamed(n, l))
			continue;
		n->left[n->nleft++] = i;
		if (l->kind == FRAME_ANON)
			perfmaps_hurry(pm, l->map);
	}
	qsort_r(n->left, n->nleft, sizeof(*n->left), by_module, w->locations);
	return n;
}

void naming_free(struct naming *n)
{
	if (!n)
		return;
	/* What has no name in its file is not left. */
	stat_add(STAT_names_late, n->nleft);
	free(n->left);
	free(n);
}

/* Fills n->func and n->linked from a name as the file has it. */
static void make_names(struct naming *n, const struct module *m, const char *raw)
{
	char clean[NAME_MAX_BYTES + 1], readable[DEMANGLE_OUT_MAX + 1];

	n->module = m;
	n->raw = raw;
	n->func = n->linked = NULL;
	if (!utf8_clean(clean, sizeof(clean), raw, NAME_MAX_BYTES))
		return;
	n->func = window_string(n->w, clean);
	if (n->func && demangle(clean, readable, sizeof(readable))) {
		/* What an escape in a name stands for is as foreign as the name. */
		utf8_clean(clean, sizeof(clean), readable, DEMANGLE_OUT_MAX);
		n->linked = n->func;
		n->func = window_string(n->w, clean);
	}
	if (!n->func)
		stat_inc(STAT_no_memory);
}

/* False: its name may still come. */
static bool name_anon(struct naming *n, struct location *l)
{
	const char *name = perfmaps_find(n->pm, l->map, l->address);

	if (!name)
		return !perfmaps_behind(n->pm, l->map);
	l->func = window_string(n->w, name);
	if (!l->func)
		stat_inc(STAT_no_memory);
	return true;
}

static bool name_native(struct naming *n, struct location *l)
{
	const char *raw;
	int err = module_symbol(n->ms, l->module, l->address, &raw);

	if (err)
		return err != -EAGAIN;
	/* A name's place in its table tells it from others, as long as the table is there. */
	if (raw != n->raw || l->module != n->module)
		make_names(n, l->module, raw);
	l->func = n->func;
	l->linked = n->linked;
	return true;
}

/*
 * One pass over what is left, or a part of it. What is awaited is moved to the front, so that the
 * next pass asks for it first. Returns whether perf maps are awaited.
 */
static bool pass(struct naming *n, u64 until_ns)
{
	const struct module *awaited = NULL;
	u32 i, kept = 0, ahead = 0;
	bool anon = false;

	n->raw = NULL; /* tables may have gone since */
	for (i = 0; i < n->nleft && ahead < MODULES_AHEAD; i++) {
		u32 index = n->left[i];
		struct location *l = &n->w->locations[index];

		if (i && !(i % CLOCK_LOOK) && now_monotonic() >= until_ns)
			break;
		if (l->module && l->module == awaited) {
			n->left[kept++] = index;
		} else if (l->module ? !name_native(n, l) : !name_anon(n, l)) {
			n->left[kept++] = index;
			awaited = l->module;
			anon |= !awaited;
			/* One that is still to be opened is on its way whoever asks. */
			ahead += awaited && module_state(awaited) == MODULE_READY;
		}
	}
	memmove(n->left + kept, n->left + i, (n->nleft - i) * sizeof(*n->left));
	n->nleft -= i - kept;
	return anon;
}

bool naming_step(struct naming *n, u64 now_ns)
{
	bool working = modules_working(n->ms), anon;
	u32 before = n->nleft;

	if (n->pm)
		perfmaps_round(n->pm, now_ns);
	anon = pass(n, now_ns + NAMING_STEP_NS);
	/* What the pass has asked for is at work at the next step, or there: else it never comes. */
	if (working || anon || n->nleft != before)
		n->idle = false;
	else if (n->idle)
		return true;
	else
		n->idle = true;
	return !n->nleft || now_ns >= n->deadline_ns;
}

void naming_finish(struct naming *n, u64 deadline_ns)
{
	u64 now;

	while ((now = now_monotonic()) < MIN(deadline_ns, n->deadline_ns)) {
		if (naming_step(n, now))
			return;
		modules_settle(n->ms, MIN(deadline_ns, now + SLICE_NS));
	}
	pass(n, UINT64_MAX);
}

void names_resolve(struct window *w, struct modules *ms, struct perfmaps *pm, u64 wait_ns)
{
	u64 deadline = now_monotonic() + MIN(wait_ns, 3600 * NSEC_PER_SEC);
	struct naming *n = naming_new(w, ms, pm, deadline);

	if (!n)
		return;
	naming_finish(n, deadline);
	naming_free(n);
}
