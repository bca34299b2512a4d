// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See view.h. Symbols, the tree, labels, and what is computed from them; files are
 * read in view_pprof.c, text and pictures written in view_print.c.
 */
#include "view.h"

#include <errno.h>
#include <string.h>

#define NO_ROOM "[more names than there is room for]"

/* --- texts and symbols ------------------------------------------------------------------------ */

const char *view_text(struct view *v, const char *s, size_t len)
{
	char clean[VIEW_NAME_MAX + 1];
	size_t n = utf8_clean(clean, sizeof(clean), s, MIN(len, (size_t)VIEW_NAME_MAX));
	u32 i;

	return strtab_add(&v->texts, clean, n, &i) ? NULL : v->texts.entries[i].s;
}

static u64 symbol_hash(const struct view_symbol *s)
{
	return hash_bytes((u64[]){ (uintptr_t)s->name, (uintptr_t)s->file, (uintptr_t)s->group,
				   s->kind },
			  4 * sizeof(u64));
}

static u32 symbol_find(const struct view *v, const struct view_symbol *s, u64 hash)
{
	u32 pos, i;

	for (pos = htab_start(&v->symbols_by_key, hash);
	     htab_next(&v->symbols_by_key, hash, &pos, &i);) {
		const struct view_symbol *o = &v->symbols[i];

		if (o->name == s->name && o->file == s->file && o->group == s->group &&
		    o->kind == s->kind)
			return i;
	}
	return VIEW_NONE;
}

u32 view_symbol(struct view *v, const struct view_symbol *s)
{
	u64 hash = symbol_hash(s);
	u32 i = symbol_find(v, s, hash);

	if (i != VIEW_NONE)
		return i;
	if (v->nsymbols == VIEW_SYMBOLS_MAX || !s->name || !s->file || !s->group) {
		v->cut = true;
		return 0;
	}
	if (VEC_RESERVE(v->symbols, v->symbols_cap, v->nsymbols + 1, VIEW_SYMBOLS_MAX) ||
	    htab_insert(&v->symbols_by_key, hash, v->nsymbols))
		return VIEW_NONE;
	v->symbols[v->nsymbols] = *s;
	return v->nsymbols++;
}

/* --- the tree --------------------------------------------------------------------------------- */

static int tree_init(struct view_tree *t)
{
	*t = (struct view_tree){ 0 };
	if (VEC_RESERVE(t->nodes, t->cap, 1, VIEW_NODES_MAX))
		return -ENOMEM;
	t->nodes[0] = (struct view_node){
		.parent = VIEW_NONE, .symbol = VIEW_NONE, .first = VIEW_NONE, .next = VIEW_NONE
	};
	t->n = 1;
	return 0;
}

void view_tree_fini(struct view_tree *t)
{
	free(t->nodes);
	htab_fini(&t->by_key);
	*t = (struct view_tree){ 0 };
}

/* A child, made when it is new. VIEW_NONE: no room (t->full), or no memory. */
static u32 tree_child(struct view_tree *t, u32 parent, u32 symbol)
{
	u64 hash = hash_mix(hash_mix(0x51ed270b, parent), symbol);
	u32 pos, i;

	for (pos = htab_start(&t->by_key, hash); htab_next(&t->by_key, hash, &pos, &i);)
		if (t->nodes[i].parent == parent && t->nodes[i].symbol == symbol)
			return i;
	if (t->n == VIEW_NODES_MAX) {
		t->full = true;
		return VIEW_NONE;
	}
	if (VEC_RESERVE(t->nodes, t->cap, t->n + 1, VIEW_NODES_MAX) ||
	    htab_insert(&t->by_key, hash, t->n))
		return VIEW_NONE;
	t->nodes[t->n] = (struct view_node){
		.parent = parent, .symbol = symbol, .first = VIEW_NONE, .next = VIEW_NONE
	};
	return t->n++;
}

static u64 add_capped(u64 a, u64 b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static int tree_add(struct view_tree *t, const u32 *symbols, u32 n, bool leaf_first,
		    const u64 weight[VIEW_SIDES])
{
	u32 at = 0, i;

	for (i = 0; i < n; i++) {
		u32 child = tree_child(t, at, symbols[leaf_first ? n - 1 - i : i]);

		if (child == VIEW_NONE && !t->full)
			return -ENOMEM;
		if (child == VIEW_NONE)
			break;
		at = child;
	}
	for (i = 0; i < VIEW_SIDES; i++)
		t->nodes[at].self[i] = add_capped(t->nodes[at].self[i], weight[i]);
	return 0;
}

u64 view_weight(const struct view_node *n)
{
	return add_capped(n->total[0], n->total[1]);
}

/* By parent, then by weight; equal ones in order of arrival, so that answers are reproducible. */
static int by_parent(const void *a, const void *b, void *arg)
{
	const struct view_node *nodes = arg, *x = &nodes[*(const u32 *)a],
			       *y = &nodes[*(const u32 *)b];
	u64 wx = view_weight(x), wy = view_weight(y);

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	if (wx != wy)
		return wx > wy ? -1 : 1;
	return *(const u32 *)a < *(const u32 *)b ? -1 : 1;
}

/* Totals, from the leaves up; then the lists of children. */
static int tree_finish(struct view_tree *t)
{
	_cleanup_free_ u32 *order = malloc((size_t)t->n * sizeof(*order));
	u32 i, k;

	if (!order)
		return -ENOMEM;
	for (i = t->n; i--;) {
		struct view_node *n = &t->nodes[i];

		for (k = 0; k < VIEW_SIDES; k++) {
			n->total[k] = add_capped(n->total[k], n->self[k]);
			if (i)
				t->nodes[n->parent].total[k] =
					add_capped(t->nodes[n->parent].total[k], n->total[k]);
		}
		order[i] = i;
	}
	qsort_r(order + 1, t->n - 1, sizeof(*order), by_parent, t->nodes);
	for (i = t->n; i-- > 1;) {
		struct view_node *n = &t->nodes[order[i]], *p = &t->nodes[n->parent];

		n->next = p->first;
		p->first = order[i];
	}
	htab_fini(&t->by_key);
	return 0;
}

/* --- a view ----------------------------------------------------------------------------------- */

struct view *view_new(const struct view_options *o)
{
	struct view *v = calloc(1, sizeof(*v));
	struct view_symbol none = { .kind = VIEW_UNKNOWN };

	if (!v)
		return NULL;
	v->o = *o;
	/* So much is always there; the limit is for what files bring. */
	none.name = view_text(v, NO_ROOM, strlen(NO_ROOM));
	none.file = none.group = v->type = v->unit = view_text(v, "", 0);
	v->texts.max_bytes = VIEW_TEXT_MAX;
	if (!none.name || !none.file || view_symbol(v, &none) != 0 || tree_init(&v->tree)) {
		view_free(v);
		return NULL;
	}
	return v;
}

void view_free(struct view *v)
{
	if (!v)
		return;
	strtab_fini(&v->texts);
	free(v->symbols);
	htab_fini(&v->symbols_by_key);
	view_tree_fini(&v->tree);
	free(v->labels);
	htab_fini(&v->labels_by_key);
	free(v);
}

int view_stack(struct view *v, u32 side, const u32 *symbols, u32 n, u64 weight)
{
	u64 weights[VIEW_SIDES] = { 0 };

	weights[side] = weight;
	return tree_add(&v->tree, symbols, n, false, weights);
}

int view_count_label(struct view *v, u32 side, const char *key, const char *value, u64 weight)
{
	u64 hash = hash_bytes((u64[]){ (uintptr_t)key, (uintptr_t)value }, 2 * sizeof(u64));
	struct view_label *l = NULL;
	u32 pos, i;

	for (pos = htab_start(&v->labels_by_key, hash);
	     !l && htab_next(&v->labels_by_key, hash, &pos, &i);)
		if (v->labels[i].key == key && v->labels[i].value == value)
			l = &v->labels[i];
	if (!l) {
		if (v->nlabels == VIEW_LABELS_MAX) {
			v->cut = true;
			return 0;
		}
		if (VEC_RESERVE(v->labels, v->labels_cap, v->nlabels + 1, VIEW_LABELS_MAX) ||
		    htab_insert(&v->labels_by_key, hash, v->nlabels))
			return -ENOMEM;
		l = &v->labels[v->nlabels++];
		*l = (struct view_label){ .key = key, .value = value };
	}
	l->sum[side] = add_capped(l->sum[side], weight);
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct view_label *x = a, *y = b;
	u64 wx = add_capped(x->sum[0], x->sum[1]), wy = add_capped(y->sum[0], y->sum[1]);
	int c = x->key == y->key ? 0 : strcmp(x->key, y->key);

	if (c)
		return c;
	if (wx != wy)
		return wx > wy ? -1 : 1;
	return strcmp(x->value, y->value);
}

int view_finish(struct view *v)
{
	if (v->nlabels)
		qsort(v->labels, v->nlabels, sizeof(v->labels[0]), by_key);
	v->cut |= v->tree.full;
	return tree_finish(&v->tree);
}

/* --- functions -------------------------------------------------------------------------------- */

static int by_total(const void *a, const void *b)
{
	const struct view_row *x = a, *y = b;
	u64 wx = add_capped(x->self[0], x->self[1]), wy = add_capped(y->self[0], y->self[1]);

	if (wx != wy)
		return wx > wy ? -1 : 1;
	wx = add_capped(x->total[0], x->total[1]);
	wy = add_capped(y->total[0], y->total[1]);
	if (wx != wy)
		return wx > wy ? -1 : 1;
	return x->symbol < y->symbol ? -1 : 1;
}

/* Enters a node: its weight counts unless the function is on the stack already. */
static void row_enter(struct view_row *row, u32 *depth, const struct view_node *n)
{
	u32 k;

	for (k = 0; k < VIEW_SIDES; k++) {
		row->self[k] = add_capped(row->self[k], n->self[k]);
		if (!*depth)
			row->total[k] = add_capped(row->total[k], n->total[k]);
	}
	++*depth;
}

int view_table(const struct view *v, struct view_row **ret, u32 *ret_n)
{
	_cleanup_free_ struct view_row *rows = calloc(v->nsymbols, sizeof(*rows));
	_cleanup_free_ u32 *depth = calloc(v->nsymbols, sizeof(*depth));
	const struct view_tree *t = &v->tree;
	u32 at = t->nodes[0].first, i, n = 0;

	if (!rows || !depth)
		return -ENOMEM;
	while (at != VIEW_NONE) {
		u32 next;

		row_enter(&rows[t->nodes[at].symbol], &depth[t->nodes[at].symbol], &t->nodes[at]);
		next = t->nodes[at].first;
		/* Up to where there is a sibling. */
		while (next == VIEW_NONE && at) {
			depth[t->nodes[at].symbol]--;
			next = t->nodes[at].next;
			at = t->nodes[at].parent;
		}
		at = next;
	}
	for (i = 0; i < v->nsymbols; i++) {
		if (!rows[i].total[0] && !rows[i].total[1])
			continue;
		rows[n] = rows[i];
		rows[n++].symbol = i;
	}
	if (n)
		qsort(rows, n, sizeof(*rows), by_total);
	*ret_n = n;
	*ret = take_ptr(rows);
	return 0;
}

/* Is it called so? Names are interned, but the asked one is not. */
static bool *named_symbols(const struct view *v, const char *name)
{
	bool *is = calloc(v->nsymbols, sizeof(*is));
	u32 i;

	for (i = 0; is && i < v->nsymbols; i++)
		is[i] = !strcmp(v->symbols[i].name, name);
	return is;
}

/* Marks nodes: 1: of the function, outermost of its kind; 2: below such a one; 0: neither. */
static u8 *mark_nodes(const struct view *v, const bool *is)
{
	const struct view_tree *t = &v->tree;
	u8 *mark = calloc(t->n, 1);
	u32 i;

	for (i = 1; mark && i < t->n; i++) {
		if (mark[t->nodes[i].parent])
			mark[i] = 2;
		else if (is[t->nodes[i].symbol])
			mark[i] = 1;
	}
	return mark;
}

static int hand_over(struct view_tree *t, int err, struct view_tree *ret)
{
	if (!err)
		err = tree_finish(t);
	if (err)
		view_tree_fini(t);
	else
		*ret = *t;
	return err;
}

int view_callers(const struct view *v, const char *name, struct view_tree *ret)
{
	_cleanup_free_ bool *is = named_symbols(v, name);
	_cleanup_free_ u8 *mark = is ? mark_nodes(v, is) : NULL;
	u32 path[VIEW_DEPTH_MAX + 1], i, at, n;
	const struct view_tree *t = &v->tree;
	struct view_tree out;
	int err = mark ? tree_init(&out) : -ENOMEM;

	if (err)
		return err;
	for (i = 1; i < t->n && !err; i++) {
		if (mark[i] != 1)
			continue;
		for (n = 0, at = i; at && n < VIEW_DEPTH_MAX; at = t->nodes[at].parent)
			path[n++] = t->nodes[at].symbol;
		err = tree_add(&out, path, n, false, t->nodes[i].total);
	}
	return hand_over(&out, err, ret);
}

int view_callees(const struct view *v, const char *name, struct view_tree *ret)
{
	_cleanup_free_ bool *is = named_symbols(v, name);
	_cleanup_free_ u8 *mark = is ? mark_nodes(v, is) : NULL;
	u32 path[VIEW_DEPTH_MAX + 1], i, at, n;
	const struct view_tree *t = &v->tree;
	struct view_tree out;
	int err = mark ? tree_init(&out) : -ENOMEM;

	if (err)
		return err;
	for (i = 1; i < t->n && !err; i++) {
		if (!mark[i] || (!t->nodes[i].self[0] && !t->nodes[i].self[1]))
			continue;
		for (n = 0, at = i; n < VIEW_DEPTH_MAX; at = t->nodes[at].parent) {
			path[n++] = t->nodes[at].symbol;
			if (mark[at] == 1)
				break;
		}
		err = tree_add(&out, path, n, true, t->nodes[i].self);
	}
	return hand_over(&out, err, ret);
}

static int descending(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x > y ? -1 : x < y;
}

int view_threshold(const struct view_tree *t, u32 max, u64 *ret)
{
	_cleanup_free_ u64 *weights = NULL;
	u32 i;

	*ret = 1;
	if (t->n <= max)
		return 0;
	weights = malloc((size_t)t->n * sizeof(*weights));
	if (!weights)
		return -ENOMEM;
	for (i = 0; i < t->n; i++)
		weights[i] = view_weight(&t->nodes[i]);
	qsort(weights, t->n, sizeof(*weights), descending);
	*ret = MAX(weights[max ? max - 1 : 0], 1u);
	/*
	 * Of many equal ones the first in the tree's order would take all the room, and heavier
	 * ones behind them would miss: none is shown.
	 */
	for (i = 0; i < max && weights[i] > *ret; i++)
		;
	if (i >= max / 4 && weights[max] == *ret)
		++*ret;
	return 0;
}
