/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a finished walk to user space, for every program that takes stacks. In: struct scratch with
 * the key, kernel frames first, user frames, list. Out: counts[epoch & 1], a hash from key to how
 * often and how long, and, once for each new key of an epoch, the stack itself in the ring buffer.
 *
 * Whoever includes it says which counters its losses go to: EMIT_LOST_FULL, EMIT_LOST_BUSY.
 * TASK_WORK_ARGS: it has parts that may be preempted.
 */
#pragma once

#include "bpf/context.h"
#include "bpf/pidns.h"

const volatile bool kernel_frames = true;
const volatile bool filter_on = false; /* only whom the filter has */
const volatile u64 min_age_ns = 0;     /* younger processes are left out */
const volatile u32 max_frames = 64;
const volatile u64 hash_seed = 0;
const volatile u64 addr_mask = ~0ull;
const volatile u64 thread_size = 16384; /* where there is no bpf_task_pt_regs */
const volatile u64 ring_wake = 1 << 19; /* bytes waiting that wake the reader */
const volatile bool marks = false; /* each event is sent with its time, besides; see marks_of */
const volatile u64 news_pause = 0; /* least time between wake-ups for new processes; 0: none */

/* With task work only; all builds of an object have the same constants. */
const volatile u32 pending_mask = 0; /* entries of `pending` - 1, PENDING_WAYS cleared */
const volatile u32 scratch_cpus = 0; /* slots of `scratch` before the pool */
const volatile u32 scratch_pool = 0; /* slots of the pool */

/* Which hash is written to. A map of its own: all objects share the sampler's. */
u64 epoch SEC(".data.shared") = 0;
/* Set as soon as anybody is left out: until then nobody is looked up. */
u32 leaves_out SEC(".data.shared") = 0;
/* Without `marks`: whose events are sent with their times; 0: nobody's. */
u32 marks_of SEC(".data.shared") = 0;
u64 last_news = 0; /* racy, and only a matter of a wake-up more or less */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BPF_STAT_MAX);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

/* Two of these, made and put in place by user space. */
struct counts_inner {
	__uint(type, BPF_MAP_TYPE_HASH); /* preallocated: perf_event programs before 6.1 need it */
	__uint(max_entries, COUNTS_DECLARED);
	__uint(key_size, sizeof(struct stack_key));
	__uint(value_size, sizeof(struct stack_count));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct counts_inner);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stacks SEC(".maps");

/* Thread groups to sample when filter_on, else those not to; children follow their parents. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct filter_entry);
} filter SEC(".maps");

static __always_inline void stat_add(u32 which, u64 n)
{
	u64 *sum = bpf_map_lookup_elem(&stats, &which);

	if (!sum)
		return;
#ifdef TASK_WORK_ARGS
	__sync_fetch_and_add(sum, n);
#else
	*sum += n;
#endif
}

static __always_inline void stat_inc(u32 which)
{
	stat_add(which, 1);
}

/* Is nothing wanted of the process image? Said before anything is walked. */
static __always_inline bool left_out(u32 tgid, u64 start_ns, u32 exec_id)
{
	struct filter_entry *e;

	if (min_age_ns && bpf_ktime_get_boot_ns() - start_ns < min_age_ns)
		return true;
	if (!filter_on && !leaves_out)
		return false;
	e = bpf_map_lookup_elem(&filter, &tgid);
	if (filter_on)
		return !e || (e->start_ns && e->start_ns != start_ns);
	return e && e->start_ns == start_ns && e->exec_id == exec_id;
}

/*
 * A number that no other living task has: its address, less that of a map, since programs must not
 * compute with addresses.
 */
static __always_inline u64 task_key(struct task_struct *task)
{
	u64 key = (u64)task;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(&stats));
	return key;
}

static __always_inline u32 key_hash(u64 key)
{
	return (u32)(key * 0x9e3779b97f4a7c15ull >> 40);
}

/* A stack of nothing, with the options that hold for all. */
static __always_inline void walk_none(struct scratch *s)
{
	struct walk *w = &s->walk;

	w->n = 0;
	w->nuser = 0;
	w->gen = 0;
	w->unmapped = 0;
	w->addr_mask = addr_mask;
	w->max_frames = max_frames;
	s->ev.nkernel = 0;
	s->ev.in_exec = 0;
	s->ev.ncontext = 0;
	list_none(s);
}

/*
 * The stack's bounds without a look-up of its mapping: from sp to the main thread's stack top,
 * or over the stack size that new threads get (the stack limit, as the C library uses it).
 */
static __always_inline void stack_bounds(struct task_struct *task, struct walk *w)
{
	u64 size = BPF_CORE_READ(task, signal, rlim[RLIMIT_STACK].rlim_cur);

	if (size < 8ull << 20)
		size = 8ull << 20;
	if (size > 1ull << 30)
		size = 1ull << 30;
	w->stack_top = BPF_CORE_READ(task, mm, start_stack);
	w->stack_size = size;
}

/* Takes HASH_ROUND words into s->hash; a round at a time, so that verifiers see few of each. */
__noinline int hash_round(u32 slot, u32 at)
{
	struct scratch *s = walk_scratch(slot);
	u64 h;
	u32 i;

	if (!s)
		return 1;
	h = s->hash;
	for (i = 0; i < HASH_ROUND; i++) {
		h ^= s->ip[(at + i) & WALK_MASK];
		h *= 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	s->hash = h;
	return 0;
}

/* All that tells one stack from another: addresses, kept words, and how they are to be read. */
__noinline u64 stack_hash(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u32 i, n;
	u64 h;

	if (!s)
		return 0;
	n = s->walk.n + list_words(s) + context_words(s);
	for (i = 0; i < HASH_ROUND; i++)
		s->ip[(n + i) & WALK_MASK] = 0;
	s->hash = hash_seed ^ s->ev.list_reg;
	for (i = 0; i < STACK_WORDS_MAX / HASH_ROUND + 1; i++)
		if (i * HASH_ROUND >= n || hash_round(slot, i * HASH_ROUND))
			break;
	/* The same words split differently are another stack. */
	h = s->hash ^ ((u64)s->ev.nkernel << 48 | (u64)s->walk.nuser << 32 | s->walk.end << 16 |
		       s->ev.nlist << 8 | s->ev.list_end);
	h *= 0x9e3779b97f4a7c15ull;
	h ^= s->ev.recipe_gen ^ (u64)context_words(s) << 32 ^ (u64)s->ev.list_flag << 48;
	h *= 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

static __always_inline int send(struct scratch *s)
{
	u64 flags = BPF_RB_NO_WAKEUP;
	u64 n = s->walk.n + list_words(s) + context_words(s);

	/* Checked and used from one register: the verifier knows no other to be equal. */
	asm volatile("" : "+r"(n));
	if (n > STACK_WORDS_MAX)
		return -1;
	/* A process or mapping without tables is news: the sooner it is seen, the better. */
	if (bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA) > ring_wake ||
	    (news_pause && (!s->walk.gen || s->walk.unmapped) && s->ev.end != STACK_END_NO_USER &&
	     s->ev.time_ns - last_news > news_pause)) {
		last_news = s->ev.time_ns;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	return bpf_ringbuf_output(&stacks, &s->ev, sizeof(s->ev) + n * sizeof(u64), flags);
}

static __always_inline void count_add(struct stack_count *c, u64 n, u64 ns)
{
	__sync_fetch_and_add(&c->count, n);
	if (ns)
		__sync_fetch_and_add(&c->ns, ns);
}

/*
 * That the n events happened at this time. Where few are asked for, the stacks of all others come
 * first: half of the ring is theirs.
 */
static __always_inline void send_mark(struct scratch *s, u64 n, u64 ns, u64 at)
{
	u64 wake = marks ? ring_wake : ring_wake / 2, used;
	struct sample_mark *m = NULL;

	used = bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA);
	if (marks || used <= ring_wake)
		m = bpf_ringbuf_reserve(&stacks, sizeof(*m), 0);
	if (!m)
		return stat_add(BPF_STAT_MARKS_LOST, n);
	m->key = s->ev.key;
	m->time_ns = at;
	m->epoch = s->ev.epoch;
	m->ns = ns;
	m->n = n;
	m->tid = s->ev.tid;
	bpf_ringbuf_submit(m, used > wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Adds n events of ns nanoseconds, at that time, to what the epoch has of the key. */
static __always_inline void count(struct scratch *s, u64 n, u64 ns, u64 at)
{
	u32 slot = s->ev.epoch & 1;
	void *map = bpf_map_lookup_elem(&counts, &slot);
	struct stack_count first = { .count = n, .ns = ns }, *c;
	long err;

	if (!map)
		return stat_add(EMIT_LOST_BUSY, n);
	c = bpf_map_lookup_elem(map, &s->ev.key);
	if (!c) {
		err = bpf_map_update_elem(map, &s->ev.key, &first, BPF_NOEXIST);
		if (err && err != -17 /* -EEXIST: another CPU was first */)
			return stat_add(err == -7 /* -E2BIG */ ? EMIT_LOST_FULL : EMIT_LOST_BUSY,
					n);
		c = bpf_map_lookup_elem(map, &s->ev.key);
		if (!c)
			return stat_add(EMIT_LOST_BUSY, n);
		if (err)
			count_add(c, n, ns);
	} else {
		count_add(c, n, ns);
	}
	/* A stack that found no room in the ring buffer is sent with its next sample. */
	if (!c->sent && !send(s))
		c->sent = 1;
	if (marks || (marks_of && marks_of == s->ev.key.tgid))
		send_mark(s, n, ns, at);
}

/*
 * A finished stack, complete but for what the walk left, taken now: n events of ns nanoseconds that
 * happened at an earlier time.
 */
static __always_inline void emit_of(struct scratch *s, u32 slot, u64 n, u64 ns, u64 now, u64 at)
{
	s->ev.nuser = s->walk.nuser;
	s->ev.end = s->walk.end;
	s->ev.time_ns = now;
	s->ev.epoch = epoch;
	s->ev.key.stack_hash = stack_hash(slot);
	count(s, n, ns, at);
}

static __always_inline void emit(struct scratch *s, u32 slot, u64 n, u64 ns, u64 now)
{
	emit_of(s, slot, n, ns, now, now);
}
