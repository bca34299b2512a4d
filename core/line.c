// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See line.h. An epoch remembers where in its window each key's counts go. */
#include "line.h"

#include "htab.h"
#include "stat.h"

#include <errno.h>
#include <string.h>

#define EPOCH_STACKS_MAX (1u << 20)
#define WATCH_STACKS_MAX (1u << 16)

struct epoch_key {
	struct stack_key key;
	struct fold_ref ref;
	struct fold_ref wall; /* in the profile of the runtime's own type */
	struct fold_ref lock; /* in the profile of locks */
	struct fold_ref seen; /* in the window of the watch */
	u32 watch;            /* its number; 0: none */
	bool lost;            /* the window had no room for it */
	bool left_out;        /* nothing of its process is kept */
	bool has_wall, has_lock;
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
	bool lock_only;
	struct epoch epochs[2];
	struct {
		struct window *window; /* NULL: nobody is watched */
		u32 tgid, max, number;
		u64 start_ns;
	} watch;
};

struct line *line_new(struct processes *procs, struct tables *tables,
		      const struct kallsyms *kallsyms, const struct line_options *o)
{
	struct line *l = calloc(1, sizeof(*l));
	struct stack_options so;

	if (!l)
		return NULL;
	l->period_ns = o->period_ns;
	l->service = o->service;
	l->lock_only = o->lock_only;
	so = (struct stack_options){
		.tables = tables,
		.runtimes = o->runtimes,
		.kallsyms = kallsyms,
		.perfmaps = o->perfmaps,
		.identities = o->identities,
		.with_cmdline = o->with_cmdline,
		.internals = o->internals,
		.wait_tables = o->wait_tables,
	};
	l->joiner = stack_joiner_new(procs, &so);
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

static void set_service(const struct line *l, struct sample *s)
{
	if (l->service)
		s->service = l->service;
}

/* The same sample once more, in the profile of its runtime. */
static void add_wall(struct line *l, struct window *w, struct epoch_key *entry)
{
	struct sample s;

	if (!stack_wall(l->joiner, &s))
		return;
	set_service(l, &s);
	entry->has_wall = !fold_add(w, &s, &entry->wall);
	if (!entry->has_wall)
		stat_inc(STAT_wall_lost);
}

/* And in the profile of locks. */
static void add_lock(struct line *l, struct window *w, struct epoch_key *entry)
{
	struct sample s;

	if (!stack_lock(l->joiner, &s))
		return;
	set_service(l, &s);
	entry->has_lock = !fold_add(w, &s, &entry->lock);
	if (!entry->has_lock)
		stat_inc(STAT_lock_lost);
}

void line_watch(struct line *l, struct window *w, u32 tgid, u64 start_ns, u32 max)
{
	l->watch.window = w;
	l->watch.tgid = tgid;
	l->watch.start_ns = start_ns;
	l->watch.max = max;
	l->watch.number++;
}

static bool is_watched(const struct line *l, const struct stack_key *key)
{
	return l->watch.window && key->tgid == l->watch.tgid &&
	       (!l->watch.start_ns || key->start_ns == l->watch.start_ns);
}

/* And in the window of who is watched. */
static void add_watched(struct line *l, const struct sample *s, struct epoch_key *entry)
{
	struct window *w = l->watch.window;

	if (!is_watched(l, &entry->key))
		return;
	l->watch.start_ns = entry->key.start_ns;
	if (w->nstacks < WATCH_STACKS_MAX && !fold_add(w, s, &entry->seen))
		entry->watch = l->watch.number;
}

/* False: there was no room for it. */
static bool mark_watched(struct line *l, const struct epoch_key *k, const struct window_event *ev)
{
	struct window *w = l->watch.window;

	return k->watch == l->watch.number && w->nevents < l->watch.max &&
	       !fold_event(w, k->seen, ev);
}

static int add_key(struct epoch *e, u64 hash, const struct epoch_key *key)
{
	int err = VEC_RESERVE(e->keys, e->cap, e->nkeys + 1, EPOCH_STACKS_MAX);

	if (!err)
		err = htab_insert(&e->by_key, hash, e->nkeys);
	if (!err)
		e->keys[e->nkeys++] = *key;
	return err;
}

int line_stack(struct line *l, const struct stack_event *ev, size_t len, bool last_try)
{
	struct epoch_key entry = { .lost = false };
	struct epoch *e;
	struct sample s;
	bool both;
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
	if (err == -ECANCELED)
		return add_key(e, hash, &(struct epoch_key){ .key = ev->key, .left_out = true });
	if (err)
		return err;
	/* Only the profile of locks is wanted: it is the sample. */
	both = !l->lock_only || !stack_lock(l->joiner, &s);
	set_service(l, &s);
	if (VEC_RESERVE(e->keys, e->cap, e->nkeys + 1, EPOCH_STACKS_MAX))
		return -ENOMEM; /* before anything goes into the window */
	err = fold_add(e->window, &s, &entry.ref);
	entry.lost = err != 0;
	add_watched(l, &s, &entry);
	if (!entry.lost) {
		add_wall(l, e->window, &entry);
		if (both)
			add_lock(l, e->window, &entry);
	}
	return add_key(e, hash, &entry);
}

void line_count(struct line *l, u64 epoch, const struct stack_key *key, const struct stack_count *c)
{
	struct epoch *e = find_epoch(l, epoch);
	struct epoch_key *k = e ? find_key(e, key, key_hash(key)) : NULL;
	bool off = key->kind == STACK_OFF_CPU;
	u64 ns = off ? c->ns : c->count * l->period_ns;

	if (!k) {
		stat_add(off ? STAT_wait_lost_ring_full : STAT_lost_ring_full, c->count);
		return;
	}
	if (k->left_out) {
		stat_add(off ? STAT_waits_left_out : STAT_samples_left_out, c->count);
		return;
	}
	if (k->lost) {
		stat_add(off ? STAT_wait_lost_fold_full : STAT_lost_fold_full, c->count);
		return;
	}
	fold_count(e->window, k->ref, c->count, ns);
	if (k->has_wall)
		fold_count(e->window, k->wall, c->count, ns);
	if (k->has_lock)
		fold_count(e->window, k->lock, c->count, ns);
	stat_add(off ? STAT_waits_kept : STAT_samples_kept, c->count);
}

void line_mark(struct line *l, const struct sample_mark *mark, u64 realtime_ns)
{
	struct epoch *e = find_epoch(l, mark->epoch);
	struct epoch_key *k = e ? find_key(e, &mark->key, key_hash(&mark->key)) : NULL;
	const struct window_event ev = {
		.time_ns = realtime_ns,
		.ns = mark->key.kind == STACK_OFF_CPU ? mark->ns : mark->n * l->period_ns,
		.n = mark->n,
		.tid = mark->tid,
	};

	if (k && k->left_out)
		return; /* counted with its stack */
	if (l->watch.window ? is_watched(l, &mark->key) && (!k || !mark_watched(l, k, &ev))
			    : !k || k->lost || fold_event(e->window, k->ref, &ev))
		stat_add(STAT_marks_lost, mark->n);
}

enum verdict line_waited(struct line *l, u64 epoch, struct process *p, u32 gen,
			 const struct list *list, const char comm[COMM_LEN], bool ready, u64 ns)
{
	struct epoch *e = find_epoch(l, epoch);
	struct fold_ref ref;
	struct sample s;
	enum verdict v;

	if (!e)
		return UNWIND_FAULT;
	v = stack_join_list(l->joiner, p, gen, list, comm, ready ? "ready" : "waiting", &s);
	/* Without time it was for the names only. */
	if (v != UNWIND_OK || !ns)
		return v;
	set_service(l, &s);
	if (fold_add(e->window, &s, &ref)) {
		stat_inc(STAT_wall_lost);
		return UNWIND_FAULT;
	}
	fold_count(e->window, ref, 1, ns);
	return UNWIND_OK;
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
