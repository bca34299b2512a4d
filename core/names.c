// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. In: a closed window whose native locations are bare, and the module book. Out: the
 * same window with `func` set where the file's symbol tables know the address.
 */
#include "names.h"

#include "fold.h"
#include "module.h"
#include "stat.h"

#include <errno.h>
#include <string.h>

/* A name that a file chose; readers of profiles refuse names of 64 KiB, people far shorter ones. */
#define NAME_MAX_BYTES 4096

static int by_module(const void *a, const void *b, void *locations)
{
	const struct location *x = (const struct location *)locations + *(const u32 *)a;
	const struct location *y = (const struct location *)locations + *(const u32 *)b;

	if (x->module != y->module)
		return (uintptr_t)x->module < (uintptr_t)y->module ? -1 : 1;
	return x->address < y->address ? -1 : x->address > y->address;
}

/*
 * The locations to name, one module after the other: the book's budget for symbol tables may hold
 * only a few of the window's modules at a time. Owned; NULL when out of memory.
 */
static u32 *unnamed_locations(const struct window *w, u32 *ret_n)
{
	u32 *order = calloc(MAX(w->nlocations, 1u), sizeof(*order));
	u32 i, n = 0;

	if (!order)
		return NULL;
	for (i = 0; i < w->nlocations; i++)
		if (w->locations[i].kind == FRAME_NATIVE && w->locations[i].module &&
		    !w->locations[i].func)
			order[n++] = i;
	qsort_r(order, n, sizeof(*order), by_module, w->locations);
	*ret_n = n;
	return order;
}

static void set_name(struct window *w, struct location *l, const char *name)
{
	char clean[NAME_MAX_BYTES + 1];

	if (!utf8_clean(clean, sizeof(clean), name, NAME_MAX_BYTES))
		return;
	l->func = window_string(w, clean);
	if (!l->func)
		stat_inc(STAT_no_memory);
}

void names_resolve(struct window *w, struct modules *ms, u64 wait_ns)
{
	u64 deadline = now_monotonic() + MIN(wait_ns, 3600 * NSEC_PER_SEC);
	const struct module *awaited = NULL;
	_cleanup_free_ u32 *order = NULL;
	u32 i, n = 0;

	modules_settle(ms, deadline);
	order = unnamed_locations(w, &n);
	if (!order) {
		stat_inc(STAT_no_memory);
		return;
	}
	for (i = 0; i < n; i++) {
		struct location *l = &w->locations[order[i]];
		const char *name;
		int err;

		err = module_symbol(ms, l->module, l->address, &name);
		/* Its table had to make room for others and is read again: waited for, once. */
		if (err == -EAGAIN && awaited != l->module) {
			awaited = l->module;
			modules_settle(ms, deadline);
			err = module_symbol(ms, l->module, l->address, &name);
		}
		if (!err)
			set_name(w, l, name);
	}
}
