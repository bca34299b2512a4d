// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See line.h. An epoch remembers where in its window each key's counts go. */
#include "line.h"

#include "htab.h"
#include "stat.h"

#include <errno.h>
#include <string.h>

#define EPOCH_STACKS_MAX (1u << 20)

struct epoch_key {
	struct stack_key key;
	struct fold_ref ref;
	bool lost; /* the window had no room for it */
};

struct epoch {
	bool open;
	u64 number;
	struct window *window;
	struct htab by_key;
	struct epoch_key *keys;
	u32 nkeys, cap;
};

struct line {
	struct stack_joiner *joiner;
	u64 period_ns;
	const char *service;
	struct epoch epochs[2];
};

struct line *line_new(struct processes *procs, struct tables *tables,
		      const struct kallsyms *kallsyms, const struct line_options *o)
{
	struct line *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->period_ns = o->period_ns;
	l->service = o->service;
	l->joiner = stack_joiner_new(procs, tables, kallsyms, o->with_cmdline);
	if (!l->joiner) {
		free(l);
		return NULL;
	}
	return l;
}

void line_free(struct line *l)
{
	u32 i;

	if (!l)
		return;
	if (l->epochs[0].window == l->epochs[1].window)
		l->epochs[1].window = NULL;
	for (i = 0; i < 2; i++) {
		window_free(l->epochs[i].window);
		htab_fini(&l->epochs[i].by_key);
		free(l->epochs[i].keys);
	}
	stack_joiner_free(l->joiner);
	free(l);
}

void line_set_period(struct line *l, u64 period_ns)
{
	l->period_ns = period_ns;
}

static struct epoch *find_epoch(struct line *l, u64 number)
{
	struct epoch *e = &l->epochs[number & 1];

	return e->open && e->number == number ? e : NULL;
}

int line_open_epoch(struct line *l, u64 epoch, bool new_window, u64 now_realtime_ns)
{
	struct epoch *e = &l->epochs[epoch & 1], *before = &l->epochs[(epoch + 1) & 1];

	if (!new_window && before->open) {
		e->window = before->window;
	} else {
		e->window = window_new(now_realtime_ns);
		if (!e->window)
			return -ENOMEM;
	}
	e->open = true;
	e->number = epoch;
	e->nkeys = 0;
	htab_clear(&e->by_key);
	return 0;
}

static u64 key_hash(const struct stack_key *key)
{
	return hash_bytes(key, sizeof(*key));
}

static struct epoch_key *find_key(struct epoch *e, const struct stack_key *key, u64 hash)
{
	u32 pos, i;

	for (pos = htab_start(&e->by_key, hash); htab_next(&e->by_key, hash, &pos, &i);)
		if (!memcmp(&e->keys[i].key, key, sizeof(*key)))
			return &e->keys[i];
	return NULL;
}

int line_stack(struct line *l, const struct stack_event *ev, size_t len, bool last_try)
{
	struct epoch_key entry = { .lost = false };
	struct epoch *e;
	struct sample s;
	u64 hash;
	int err;

	if (len < sizeof(*ev))
		return -EINVAL;
	e = find_epoch(l, ev->epoch);
	if (!e)
		return -EINVAL;
	entry.key = ev->key;
	hash = key_hash(&ev->key);
	if (find_key(e, &ev->key, hash))
		return 0;
	err = stack_join(l->joiner, ev, len, last_try, &s);
	if (err)
		return err;
	if (l->service) {
		s.service = l->service;
		s.container = "";
	}
	if (VEC_RESERVE(e->keys, e->cap, e->nkeys + 1, EPOCH_STACKS_MAX))
		return -ENOMEM;
	err = fold_add(e->window, &s, &entry.ref);
	entry.lost = err != 0;
	err = htab_insert(&e->by_key, hash, e->nkeys);
	if (err)
		return err;
	e->keys[e->nkeys++] = entry;
	return 0;
}

void line_count(struct line *l, u64 epoch, const struct stack_key *key, const struct stack_count *c)
{
	struct epoch *e = find_epoch(l, epoch);
	struct epoch_key *k = e ? find_key(e, key, key_hash(key)) : NULL;

	if (!k) {
		stat_add(STAT_lost_ring_full, c->count);
	} else if (k->lost) {
		stat_add(STAT_lost_fold_full, c->count);
	} else {
		fold_count(e->window, k->ref, c->count, c->count * l->period_ns);
		stat_add(STAT_samples_kept, c->count);
	}
}

u32 line_epoch_stacks(const struct line *l, u64 epoch)
{
	const struct epoch *e = &l->epochs[epoch & 1];

	return e->open && e->number == epoch ? e->nkeys : 0;
}

struct window *line_close_epoch(struct line *l, u64 epoch, u64 now_realtime_ns)
{
	struct epoch *e = find_epoch(l, epoch), *other = &l->epochs[(epoch + 1) & 1];
	struct window *w;

	if (!e)
		return NULL;
	w = take_ptr(e->window);
	e->open = false;
	if (other->open && other->window == w)
		return NULL;
	w->end_ns = now_realtime_ns;
	return w;
}
