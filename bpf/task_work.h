/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread does for us on its way back to user space, where page faults are allowed and where
 * it stands as it stood when it entered the kernel: walks its own stack (6.18 and newer). In: a
 * pending entry with the kernel frames and what they stand for. Out: the whole stack, counted.
 *
 * Only _resume: the other way wakes the thread, which then sees EINTR. A page is fetched only where
 * the kernel itself serves it (page_is_ours()): a thread must not come to wait for a user space
 * that may never answer. TASK_WORK_ARGS says how the kernel declares the call; whoever includes
 * this names its counters WORK_*, and PENDING_PLACES entries are made by user space.
 */
#pragma once

#include "bpf/emit.h"
#include "bpf/vma.h"

#define FETCHES_A_WALK  32  /* missing pages of one stack */
#define FETCHES_AT_ONCE 256 /* of one process; as many more as its share of a second allows */
#define FETCHES_A_SEC   64
#define SCRATCH_WAYS    8
#define FETCH_ENTRIES   1024
#define NSEC_PER_SEC    1000000000ull

/* Kernel declarations, as its BTF has them; the first must be more than a name. */
struct bpf_map {
	int id;
};

struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

typedef int task_work_fn(struct bpf_map *map, void *key, void *value);

#if TASK_WORK_ARGS == 5 /* 6.18 */
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, task_work_fn *callback,
					      void *aux__prog) __ksym __weak;
#define task_work_schedule(task, tw, map, fn) \
	bpf_task_work_schedule_resume_impl(task, tw, map, fn, 0)
#else /* 7.0 */
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw,
					 void *map__map, task_work_fn *callback) __ksym __weak;
#define task_work_schedule(task, tw, map, fn) bpf_task_work_schedule_resume(task, tw, map, fn)
#endif

extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/* A stack whose user part the thread is to take itself. */
struct pending {
	struct bpf_task_work work;
	u64 task;      /* whose, task_key(); 0: free */
	u64 count, ns; /* what it stands for; the same kernel stack again is added */
	u64 time_ns;   /* of the first one */
	u64 kernel_hash;
	u64 object;
	u32 holder;
	u32 exec_id;
	u32 nkernel;
	s16 call;
	u8 kind, state;
	u8 in_exec;
	u8 running; /* from here on nothing is added */
	u64 ip[MAX_KERNEL_FRAMES];
};

_Static_assert(__builtin_offsetof(struct pending, ns) ==
		       __builtin_offsetof(struct pending_head, ns),
	       "pending_head is how user space sees it");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PENDING_WAYS);
	__type(key, u32);
	__type(value, struct pending);
} pending SEC(".maps");

struct fetches {
	u64 time_ns; /* when `left` was reckoned */
	u32 left;
	u32 pad;
};

/* Pages fetched, by process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FETCH_ENTRIES);
	__type(key, u32);
	__type(value, struct fetches);
} fetches SEC(".maps");

/* --- pages ------------------------------------------------------------------------------------ */

/* In the process's budget? Two of its threads at once may get one more. */
static __always_inline bool in_budget(u32 tgid)
{
	struct fetches *f = bpf_map_lookup_elem(&fetches, &tgid);
	struct fetches first = { .left = FETCHES_AT_ONCE - 1 };
	u64 now = bpf_ktime_get_ns(), since;

	if (!f) {
		first.time_ns = now;
		bpf_map_update_elem(&fetches, &tgid, &first, BPF_ANY);
		return true;
	}
	since = now - f->time_ns;
	if (since > NSEC_PER_SEC / FETCHES_A_SEC) {
		since = f->left + since / (NSEC_PER_SEC / FETCHES_A_SEC);
		f->left = since < FETCHES_AT_ONCE ? since : FETCHES_AT_ONCE;
		f->time_ns = now;
	}
	if (!f->left)
		return false;
	f->left--;
	return true;
}

/*
 * Of the current process: counts what it refuses, too. Global, so that the verifier takes it once,
 * not once a page.
 */
__noinline int may_fetch(u64 addr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool ours = false;

	if (bpf_find_vma(task, addr, judge_vma, &ours, 0) || !ours || !in_budget(task->tgid)) {
		stat_inc(WORK_PAGES_REFUSED);
		return 0;
	}
	stat_inc(WORK_PAGES_FETCHED);
	return 1;
}

/* A list_may_fn. */
static __always_inline bool page_is_ours(struct task_struct *task, u64 addr)
{
	return may_fetch(addr) != 0;
}

/* Brings in what the walk could not read; nonzero: it stays missing. */
static __always_inline int fetch_fault(struct task_struct *task, const struct walk *w)
{
	u64 at = w->fault, last = at + w->fault_len - sizeof(u64), word;

	if (!at || !page_is_ours(task, at))
		return 1;
	if (bpf_copy_from_user(&word, sizeof(word), (void *)at))
		return 1;
	/* It may lie on two pages; the second is another mapping's only in a broken process. */
	return (int)bpf_copy_from_user(&word, sizeof(word), (void *)last);
}

/* --- the walk --------------------------------------------------------------------------------- */

/* A slot of the pool, or 0: all that were tried are in use. */
static __always_inline u32 claim_scratch(u32 tid)
{
	struct scratch *s;
	u32 i, slot;

	for (i = 0; i < SCRATCH_WAYS && scratch_pool; i++) {
		slot = scratch_cpus + (tid + i) % scratch_pool;
		s = walk_scratch(slot);
		if (s && !s->busy && !__sync_val_compare_and_swap(&s->busy, 0, 1))
			return slot;
	}
	return 0;
}

/* The walk from where it stands. Global, so that the verifier takes it once, not once a page. */
__noinline int walk_more(u32 slot)
{
	struct scratch *s = walk_scratch(slot);

	if (!s)
		return 1;
	walk_use_maps(&s->walk, &s->ev.key);
	walk_retry(&s->walk);
	walk_go_on(&s->walk, slot);
	return 0;
}

/* Walks the current task, fetching what is missing; within RCU, so that tables stay in place. */
static __always_inline void walk_current(struct scratch *s, u32 slot, struct task_struct *task,
					 u32 how)
{
	struct walk *w = &s->walk;
	u32 i;

	bpf_rcu_read_lock();
	list_arm(s, &s->ev.key);
	walk_stack(s, slot, &s->ev.key, how);
	bpf_rcu_read_unlock();
	for (i = 0; i < FETCHES_A_WALK; i++) {
		if (w->end != STACK_END_UNREADABLE)
			break;
		if (fetch_fault(task, w)) {
			w->end = STACK_END_NOT_RESIDENT;
			break;
		}
		bpf_rcu_read_lock();
		walk_more(slot);
		bpf_rcu_read_unlock();
	}
	list_walk(s, slot, task, tid_of(task, task->pid), true);
	list_fetch(s, slot, task, page_is_ours);
	context_take(s, slot, task);
}

/* Registers with which the current task entered the kernel. 0; 1: 32-bit process; 2: unreadable. */
static __always_inline int current_regs(struct task_struct *task, struct scratch *s)
{
	struct user_regs *regs = (struct user_regs *)s->regs;

	if (bpf_probe_read_kernel(regs, sizeof(*regs), (void *)bpf_task_pt_regs(task)))
		return 2;
	s->walk.ip = REGS_IP(regs);
	s->walk.sp = REGS_SP(regs);
	s->walk.fp = REGS_FP(regs);
	return REGS_COMPAT(regs) ? 1 : 0;
}

static __always_inline void take_user_part(struct scratch *s, u32 slot, struct task_struct *task,
					   u32 how)
{
	struct walk *w = &s->walk;

	switch (current_regs(task, s)) {
	case 0:
		stack_bounds(task, w);
		walk_current(s, slot, task, how);
		break;
	case 1:
		s->ip[w->n & WALK_MASK] = w->ip;
		w->n++;
		w->nuser = 1;
		w->end = STACK_END_COMPAT;
		break;
	default:
		w->end = STACK_END_UNREADABLE;
	}
}

/* The key of the current task's image into the scratch, and the pending kernel frames. */
static __always_inline void begin_stack(struct scratch *s, struct task_struct *task,
					const struct pending *p)
{
	u32 n = p->nkernel;

	walk_none(s);
	s->ev.key.tgid = tgid_of(task, task->tgid);
	s->ev.key.start_ns = task->group_leader->start_boottime;
	s->ev.key.exec_id = (u32)task->self_exec_id;
	s->ev.key.kind = p->kind;
	s->ev.key.state = p->state;
	s->ev.key.call = p->call;
	s->ev.key.object = p->object;
	s->ev.key.holder = p->holder;
	/* Between two images: the stack that waited is gone. */
	s->ev.in_exec = p->in_exec || s->ev.key.exec_id != p->exec_id;
	if (n > MAX_KERNEL_FRAMES)
		n = MAX_KERNEL_FRAMES;
	bpf_probe_read_kernel(s->ip, n * sizeof(u64), p->ip);
	s->walk.n = n;
	s->ev.nkernel = n;
}

/* Counts a finished stack; within RCU, so that user space knows when an epoch is over. */
static __always_inline void finish_stack(struct scratch *s, u32 slot, struct task_struct *task,
					 const struct pending *p, u64 now)
{
	s->ev.tid = tid_of(task, task->pid);
	bpf_get_current_comm(s->ev.key.comm, sizeof(s->ev.key.comm));
	bpf_rcu_read_lock();
	emit_of(s, slot, p->count, p->ns, now, p->time_ns);
	bpf_rcu_read_unlock();
}

/*
 * In the thread. What it was interrupted by, or waited for on a page, is not in its own time: such
 * runs are counted, not timed.
 */
static __always_inline void take_pending(struct pending *p, u32 how)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 start = bpf_ktime_get_ns(), switches = task->nvcsw + task->nivcsw;
	u32 slot = claim_scratch(task->pid);
	struct scratch *s = walk_scratch(slot);

	p->running = 1;
	if (!slot || !s) {
		stat_add(WORK_LOST_SCRATCH, p->count);
		return;
	}
	begin_stack(s, task, p);
	if (s->ev.in_exec)
		s->walk.end = STACK_END_COMPLETE;
	else
		take_user_part(s, slot, task, how | WALK_UNCACHED);
	finish_stack(s, slot, task, p, start);
	s->busy = 0;
	stat_inc(WORK_RUNS);
	if (task->nvcsw + task->nivcsw != switches)
		return;
	stat_inc(WORK_TIMED);
	stat_add(WORK_NS, bpf_ktime_get_ns() - start);
}

/* --- what is pending -------------------------------------------------------------------------- */

/*
 * The task's own entry with these kernel frames, or a free one that is then its own; NULL: neither
 * is to be had. *mine: it is there already, and more can be added.
 */
static __always_inline struct pending *get_pending(u64 key, u64 kernel_hash, bool *mine)
{
	u32 h = key_hash(key), group = h & pending_mask, i, k;
	struct pending *p;

	*mine = false;
	for (i = 0; i < PENDING_WAYS; i++) {
		k = group + ((h >> 20) + i) % PENDING_WAYS;
		p = bpf_map_lookup_elem(&pending, &k);
		if (p && p->task == key && !p->running && p->kernel_hash == kernel_hash) {
			*mine = true;
			return p;
		}
	}
	for (i = 0; i < PENDING_WAYS; i++) {
		k = group + ((h >> 20) + i) % PENDING_WAYS;
		p = bpf_map_lookup_elem(&pending, &k);
		if (p && !p->task && !__sync_val_compare_and_swap(&p->task, 0, key))
			return p;
	}
	return 0;
}

static __always_inline void free_pending(struct pending *p)
{
	p->running = 0;
	/* Whoever takes it must not see what was in it. */
	__sync_lock_test_and_set(&p->task, 0);
}

/*
 * Fills an entry from the scratch, whose first words are the kernel frames, and leaves the work to
 * the task. 0, or the scratch's stack has to do without its user part.
 */
static __always_inline int leave_pending(struct scratch *s, struct task_struct *task, u64 key,
					 u64 kernel_hash, u64 n, u64 ns, task_work_fn *fn)
{
	struct pending *p;
	u32 frames = s->ev.nkernel;
	bool mine;

	p = get_pending(key, kernel_hash, &mine);
	if (!p)
		return -1;
	if (mine) {
		p->count += n;
		p->ns += ns;
		return 0;
	}
	if (frames > MAX_KERNEL_FRAMES)
		frames = MAX_KERNEL_FRAMES;
	p->kernel_hash = kernel_hash;
	p->count = n;
	p->ns = ns;
	p->time_ns = bpf_ktime_get_ns();
	p->object = s->ev.key.object;
	p->holder = s->ev.key.holder;
	p->exec_id = s->ev.key.exec_id;
	p->call = s->ev.key.call;
	p->kind = s->ev.key.kind;
	p->state = s->ev.key.state;
	p->in_exec = s->ev.in_exec;
	p->nkernel = frames;
	bpf_probe_read_kernel(p->ip, frames * sizeof(u64), s->ip);
	if (task_work_schedule(task, &p->work, &pending, fn)) {
		free_pending(p);
		return -1;
	}
	return 0;
}
