// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See openwaits.h. */
#include "openwaits.h"

#include "htab.h"
#include "reader.h"
#include "stat.h"

#include <errno.h>
#include <string.h>

#define BATCH    16
#define LEFT_MAX 64

/* A wait whose stack is known. */
struct known {
	u64 task, start;
	u32 slot;
	u32 len;
	struct stack_event *ev; /* owned */
};

/* A process that is left alone. */
struct left {
	u32 tgid;
	u64 start_ns;
	u64 until_ns;
};

struct openwaits {
	struct openwaits_options o;
	struct known *known;
	u32 nknown, known_cap;
	u64 known_bytes;
	struct open_wait **added;
	u32 nadded, added_cap;
	struct left left[LEFT_MAX];
	u64 cpu_ns;
};

/* Where one charge goes. */
struct charge {
	u64 until_ns, epoch;
	openwaits_fn *fn;
	void *arg;
};

struct openwaits *openwaits_new(const struct openwaits_options *o)
{
	struct openwaits *w = calloc(1, sizeof(*w));

	if (w)
		w->o = *o;
	return w;
}

static void drop_added(struct openwaits *w)
{
	while (w->nadded)
		free(w->added[--w->nadded]);
}

void openwaits_free(struct openwaits *w)
{
	if (!w)
		return;
	drop_added(w);
	while (w->nknown)
		free(w->known[--w->nknown].ev);
	free(w->known);
	free(w->added);
	free(w);
}

u32 openwaits_known(const struct openwaits *w)
{
	return w->nknown;
}

u64 openwaits_cpu_ns(const struct openwaits *w)
{
	return w->cpu_ns;
}

size_t openwaits_record_len(const struct open_wait *o)
{
	return o->nkernel > MAX_KERNEL_FRAMES ? 0 : sizeof(*o) + o->nkernel * sizeof(u64);
}

int openwaits_add(struct openwaits *w, const struct open_wait *o, size_t len)
{
	struct open_wait *copy;
	int err;

	if (len < sizeof(*o) || openwaits_record_len(o) != len || o->slot >= w->o.nslots ||
	    o->end > STACK_END_MAX)
		return -EINVAL;
	err = VEC_RESERVE(w->added, w->added_cap, w->nadded + 1, OPENWAITS_A_WINDOW);
	if (err) {
		if (err == -E2BIG)
			stat_inc(STAT_open_waits_later);
		return err;
	}
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, o, len);
	w->added[w->nadded++] = copy;
	return 0;
}

/* --- slots ------------------------------------------------------------------------------------ */

static bool is_open(const struct wait_slot *s, u64 task, u64 start)
{
	return __atomic_load_n(&s->task, __ATOMIC_ACQUIRE) == task &&
	       __atomic_load_n(&s->start, __ATOMIC_ACQUIRE) == start;
}

/*
 * Nanoseconds that are ours to charge; negative: the wait is over. `from` lies before the start
 * only while the thread's CPU writes the slot anew.
 */
static s64 take(struct wait_slot *s, u64 task, u64 start, u64 until)
{
	__u64 from = __atomic_load_n(&s->from, __ATOMIC_ACQUIRE);

	if (!is_open(s, task, start))
		return -1;
	if (from < start || from >= until)
		return 0;
	if (!__atomic_compare_exchange_n(&s->from, &from, until, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return -1;
	return (s64)(until - from);
}

static void give(const struct charge *c, struct stack_event *ev, size_t len, u64 ns)
{
	struct stack_count count = { .count = 1, .ns = ns };

	if (!ns)
		return;
	ev->epoch = c->epoch;
	ev->time_ns = c->until_ns;
	c->fn(c->arg, ev, len, &count);
}

static void charge_known(struct openwaits *w, u32 tgid, const struct charge *c)
{
	u32 i = 0;
	s64 ns;

	while (i < w->nknown) {
		struct known *k = &w->known[i];

		if (tgid && k->ev->key.tgid != tgid) {
			i++;
			continue;
		}
		ns = take(&w->o.slots[k->slot], k->task, k->start, c->until_ns);
		if (ns >= 0) {
			give(c, k->ev, k->len, (u64)ns);
			i++;
			continue;
		}
		w->known_bytes -= k->len;
		free(k->ev);
		*k = w->known[--w->nknown];
	}
}

/* --- processes that hang ---------------------------------------------------------------------- */

static bool is_left_alone(const struct openwaits *w, const struct stack_key *key, u64 now)
{
	u32 i;

	for (i = 0; i < LEFT_MAX; i++)
		if (w->left[i].until_ns > now && w->left[i].tgid == key->tgid &&
		    w->left[i].start_ns == key->start_ns)
			return true;
	return false;
}

static void leave_alone(struct openwaits *w, const struct stack_key *key, u64 now)
{
	struct left *l = &w->left[0];
	u32 i;

	for (i = 1; i < LEFT_MAX; i++)
		if (w->left[i].until_ns < l->until_ns)
			l = &w->left[i];
	*l = (struct left){ key->tgid, key->start_ns, now + OPENWAITS_LEFT_NS };
	stat_inc(STAT_open_waits_hung);
}

/* --- stacks ----------------------------------------------------------------------------------- */

static struct stack_event *make_event(const struct open_wait *o, const u64 *user, u32 nuser,
				      u32 end, u32 *ret_len)
{
	u32 len = (u32)(sizeof(struct stack_event) + (o->nkernel + nuser) * sizeof(u64));
	struct stack_event *ev = calloc(1, len);
	u64 *words = (u64 *)(ev + 1);

	if (!ev)
		return NULL;
	ev->key = o->key;
	ev->tid = o->tid;
	ev->nkernel = (u16)o->nkernel;
	ev->nuser = (u16)nuser;
	ev->end = end;
	ev->in_exec = o->in_exec;
	memcpy(words, o + 1, o->nkernel * sizeof(u64));
	if (nuser)
		memcpy(words + o->nkernel, user, nuser * sizeof(u64));
	ev->key.stack_hash = hash_mix(hash_bytes(words, (o->nkernel + nuser) * sizeof(u64)),
				      (u64)o->nkernel << 32 | end);
	*ret_len = len;
	return ev;
}

/* From now on the iterator passes the wait over. */
static void remember(struct openwaits *w, const struct open_wait *o, struct stack_event *ev,
		     u32 len)
{
	struct wait_slot *s = &w->o.slots[o->slot];

	if (w->known_bytes + len > OPENWAITS_BYTES ||
	    VEC_RESERVE(w->known, w->known_cap, w->nknown + 1, 1u << 20)) {
		free(ev);
		return;
	}
	w->known[w->nknown++] = (struct known){ o->task, o->start, o->slot, len, ev };
	w->known_bytes += len;
	__atomic_store_n(&s->told, o->start, __ATOMIC_RELEASE);
}

/* A stack that was read is the wait's own only if the thread has not come back since. */
static void settle(struct openwaits *w, const struct charge *c, const struct open_wait *o,
		   const u64 *user, u32 nuser, u32 end)
{
	struct wait_slot *s = &w->o.slots[o->slot];
	struct stack_event *ev;
	u32 len;
	s64 ns;

	if (!is_open(s, o->task, o->start)) {
		stat_inc(STAT_open_waits_moved);
		return;
	}
	ev = make_event(o, user, nuser, end, &len);
	if (!ev) {
		stat_inc(STAT_no_memory);
		return;
	}
	ns = take(s, o->task, o->start, c->until_ns);
	if (ns < 0) {
		free(ev);
		stat_inc(STAT_open_waits_moved);
		return;
	}
	give(c, ev, len, (u64)ns);
	remember(w, o, ev, len);
}

/* Without its user part: there is none, or it cannot be had. */
static void settle_bare(struct openwaits *w, const struct charge *c, const struct open_wait *o,
			u32 end)
{
	u64 ip = hostwalk_ip(o->regs);

	settle(w, c, o, &ip, end == STACK_END_COMPAT, end);
}

static void fill_job(const struct openwaits *w, const struct open_wait *o, struct hostwalk_job *j)
{
	struct proc_entry image;

	j->key = o->key;
	j->tid = o->tid;
	j->max_frames = w->o.max_frames;
	memcpy(j->regs, o->regs, sizeof(j->regs));
	j->stack_top = o->stack_top;
	j->stack_size = o->stack_size;
	j->addr_mask = w->o.addr_mask;
	if (w->o.tables && !w->o.image(w->o.arg, o->key.tgid, &image) &&
	    image.start_ns == o->key.start_ns && image.exec_id == o->key.exec_id)
		j->image = image;
}

/* Walks v[0 .. n) and settles them; returns how many: less than n when one of them hangs. */
static u32 walk_batch(struct openwaits *w, const struct charge *c, struct open_wait **v, u32 n)
{
	struct hostwalk *h = hostwalk_new(n, w->o.slab, w->o.slab_arg);
	u32 i, done;
	int err;

	if (!h) {
		stat_inc(STAT_no_memory);
		return n;
	}
	for (i = 0; i < n; i++)
		fill_job(w, v[i], &h->jobs[i]);
	hostwalk_get(h); /* the reader's */
	err = reader_call(w->o.reader, hostwalk_run, h, hostwalk_put, READER_WAIT_NS);
	if (err == -ETIMEDOUT)
		hostwalk_cancel(h);
	else
		hostwalk_put(h);
	done = hostwalk_done(h);
	w->cpu_ns += err ? 0 : h->cpu_ns;
	for (i = 0; i < done; i++)
		settle(w, c, v[i], h->jobs[i].ip, h->jobs[i].n, h->jobs[i].end);
	hostwalk_put(h);
	return err && err != -ETIMEDOUT ? n : done;
}

static void walk_added(struct openwaits *w, const struct charge *c, struct open_wait **v, u32 n)
{
	u64 now = now_monotonic(), deadline = now + OPENWAITS_TIME_NS;
	u32 i = 0, done, want;

	/* Each turn settles at least one. */
	while (i < n) {
		now = now_monotonic();
		if (now >= deadline) {
			stat_add(STAT_open_waits_later, n - i);
			break;
		}
		want = MIN(n - i, (u32)BATCH);
		done = walk_batch(w, c, v + i, want);
		i += done;
		if (done == want)
			continue;
		leave_alone(w, &v[i]->key, now);
		settle_bare(w, c, v[i++], STACK_END_NOT_TAKEN);
	}
}

static void charge_added(struct openwaits *w, const struct charge *c)
{
	u64 now = now_monotonic();
	u32 i, n = 0;

	/* Those that can be walked to the front. */
	for (i = 0; i < w->nadded; i++) {
		struct open_wait *o = w->added[i];

		if (o->end != STACK_END_MAX) {
			settle_bare(w, c, o, o->end);
		} else if (is_left_alone(w, &o->key, now)) {
			settle_bare(w, c, o, STACK_END_NOT_TAKEN);
		} else {
			w->added[i] = w->added[n];
			w->added[n++] = o;
		}
	}
	walk_added(w, c, w->added, n);
	drop_added(w);
}

void openwaits_charge(struct openwaits *w, u32 tgid, u64 until_ns, u64 epoch, openwaits_fn *fn,
		      void *arg)
{
	struct charge c = { until_ns, epoch, fn, arg };

	charge_known(w, tgid, &c);
	charge_added(w, &c);
}
