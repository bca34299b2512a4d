// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Off-CPU time: from the moment a thread leaves its CPU in a state that is not runnable to the
 * moment it is back on one. In: every switch of every CPU. Out: as emit.h says, with the time.
 *
 * All that each switch costs is one look at the clock and one at the slot of either thread; what
 * follows is for waits that are kept, and their duration is known by then. Where the user stack is
 * then taken depends on the kernel:
 * - with task work (TASK_WORK_ARGS): by the thread itself, on its way back to user space;
 * - else in the next interrupt, which the program provokes by an irq_work of its own CPU: it comes
 *   as soon as the switch is done, when the thread is the current one and its memory is there;
 * - where neither is (walk_early): when the thread leaves, of a share of the waits only.
 *
 * A slot outlives the wait, so that a thread pays for finding one only once. Only its thread's CPU
 * writes to it, except that user space moves `from` on while the wait is open.
 */
#define EMIT_LOST_FULL BPF_STAT_WAIT_LOST_FULL
#define EMIT_LOST_BUSY BPF_STAT_WAIT_LOST_BUSY
#ifdef TASK_WORK_ARGS
#define WALK_SCRATCH_ARRAY
#define WORK_RUNS          BPF_STAT_WAIT_WORK_RUNS
#define WORK_TIMED         BPF_STAT_WAIT_WORK_TIMED
#define WORK_NS            BPF_STAT_WAIT_WORK_NS
#define WORK_PAGES_FETCHED BPF_STAT_WAIT_PAGES_FETCHED
#define WORK_PAGES_REFUSED BPF_STAT_WAIT_PAGES_REFUSED
#define WORK_LOST_SCRATCH  BPF_STAT_WAIT_LOST_SCRATCH
#include "bpf/task_work.h"
#else
#include "bpf/emit.h"
#endif

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* include/linux/sched.h, the same since 4.14 */
#define TASK_INTERRUPTIBLE   0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED         0x0004
#define TASK_TRACED          0x0008
#define TASK_PARKED          0x0040
#define TASK_DEAD            0x0080
#define TASK_NOLOAD          0x0400

#define STATE_HELD 0x80000000u /* ours: `held` has the stack with which the wait began */

#define EARLY_FRAMES 128 /* user frames that walk_early keeps */

const volatile u64 min_ns = 1000000; /* shorter waits are dropped */
const volatile u32 slot_mask = 0;    /* wait_slots - 1, WAIT_WAYS cleared */
const volatile u32 walk_how = 0;     /* WALK_* */
const volatile bool lock_profile = false;
const volatile bool lock_only = false; /* other waits are of no interest */
const volatile bool walk_early = false;
const volatile bool have_prev_state = false; /* sched_switch has a fourth argument */

/*
 * Set by user space at any time. A wait d shorter than threshold, which is below 2^32, is kept with
 * probability d / threshold and then stands for threshold / d of its kind. walk_early: one wait of
 * early_weight is kept, whatever its length, and stands for all.
 */
u64 threshold = 0;
u64 early_weight = 0;

/* Of one run of the iterator: waits that are older than `longest` at the time `until` are told. */
bool seeding = false; /* instead: every thread that waits gets a slot, as if it began now */
u64 until = 0;
u64 longest = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAIT_WAYS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct wait_slot);
} wait_slots SEC(".maps");

/* --- registers, state ------------------------------------------------------------------------- */

/* The thread's registers at its entry to the kernel: where they lie. */
static __always_inline void *entry_regs(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (void *)bpf_task_pt_regs(task);
	return task->stack + thread_size - bpf_core_type_size(struct pt_regs);
}

#if UNWIND_ARM64
struct pt_regs___entry {
	int syscallno;
} __attribute__((preserve_access_index));
#endif

/* System call in which the thread is; -1: in none, or in one of another table. */
static __always_inline s16 system_call(const struct user_regs *regs, void *entry)
{
	s64 call;

	if (REGS_COMPAT(regs))
		return -1;
#if UNWIND_ARM64
	call = BPF_CORE_READ((struct pt_regs___entry *)entry, syscallno);
#else
	call = (s64)regs->orig_ax & ~0x40000000ll; /* x32 has the same numbers and a bit */
#endif
	return call < 0 || call > 0x7fff ? -1 : (s16)call;
}

#define FUTEX_CMD_MASK 127 /* include/uapi/linux/futex.h */
#define FUTEX_WAIT     0
#define FUTEX_TID_MASK 0x3fffffff
#define FUTEX_WAITERS  0x80000000u

/* Whether the thread's system call is futex(), and its first two arguments. */
#if UNWIND_ARM64
#define NR_FUTEX     98
#define REGS_ARG1(r) ((r)->regs[0])

/* Field by field: all the registers would not fit the stack of four calls. */
static __always_inline int futex_args(void *entry, u64 args[2])
{
	struct user_regs *regs = entry;
	struct {
		u64 pstate;
	} mode;

	return !bpf_probe_read_kernel(&mode, sizeof(mode), &regs->pstate) && !REGS_COMPAT(&mode) &&
	       BPF_CORE_READ((struct pt_regs___entry *)entry, syscallno) == NR_FUTEX &&
	       !bpf_probe_read_kernel(args, 2 * sizeof(u64), regs->regs);
}
#else
#define NR_FUTEX     202
#define REGS_ARG1(r) ((r)->di)

static __always_inline int futex_args(void *entry, u64 args[2])
{
	struct user_regs regs;

	if (bpf_probe_read_kernel(&regs, sizeof(regs), entry) ||
	    system_call(&regs, entry) != NR_FUTEX)
		return 0;
	args[0] = regs.di;
	args[1] = regs.si;
	return 1;
}
#endif

static __always_inline u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return (u32)((struct task_struct___before_5_14 *)task)->state;
}

static __always_inline u8 state_letter(u32 state)
{
	if (state & TASK_INTERRUPTIBLE)
		return 'S';
	if (state & TASK_UNINTERRUPTIBLE)
		return state & TASK_NOLOAD ? 'I' : 'D';
	if (state & TASK_STOPPED)
		return 'T';
	if (state & TASK_TRACED)
		return 't';
	/* Frozen, or waiting for a lock of a kernel with real-time locks: man 5 proc says D. */
	return state & TASK_PARKED ? 'P' : 'D';
}

/*
 * Who holds the futex that the current thread is about to wait for, as far as its word and the one
 * behind it tell: the word itself has the owner (priority inheritance, robust mutexes, musl), or it
 * is 2, "taken and waited for", and the owner stands at 8 (glibc: struct __pthread_mutex_s in
 * sysdeps/nptl/bits/struct_mutex.h). 0: nothing is there that looks like it.
 */
static __always_inline u32 lock_holder(struct task_struct *task)
{
	u32 words[3];
	u64 args[2];

	if (!futex_args(entry_regs(task), args) ||
	    bpf_probe_read_user(words, sizeof(words), (void *)args[0]))
		return 0;
	if (words[0] & FUTEX_WAITERS)
		return words[0] & FUTEX_TID_MASK;
	return words[0] == 2 && (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ? words[2] : 0;
}

/* --- what a wait stands for ------------------------------------------------------------------- */

struct wait {
	u64 n, ns;
	u64 key;
	u32 state, holder;
};

/* n / d, rounded up or down by chance so that the mean is right. */
static __always_inline u64 divide(u64 n, u64 d)
{
	u64 rest = n % d;

	return n / d + (rest && bpf_get_prandom_u32() % d < rest);
}

/* Is a wait of d kept, and what does it then stand for? limit is below 2^32. */
static __always_inline bool draw(struct wait *w, u64 d, u64 limit)
{
	if (d >= limit)
		return true;
	if (!d || (u64)bpf_get_prandom_u32() * limit >= d << 32)
		return false;
	w->n = divide(limit, d);
	w->ns = w->ns * limit / d;
	return true;
}

/* --- slots ------------------------------------------------------------------------------------ */

static __always_inline u32 slot_index(u64 key, u32 way)
{
	u32 h = key_hash(key);

	return (h & slot_mask) + ((h >> 21) + way) % WAIT_WAYS;
}

static __always_inline struct wait_slot *find_slot(u64 key)
{
	struct wait_slot *w;
	u32 i, k;

	for (i = 0; i < WAIT_WAYS; i++) {
		k = slot_index(key, i);
		w = bpf_map_lookup_elem(&wait_slots, &k);
		if (w && w->task == key)
			return w;
	}
	return 0;
}

/*
 * A free slot for good. Not every kernel has an atomic exchange for programs, all have an addition:
 * who sees 1 behind its own has the slot. Two at once may both go on to the next.
 */
static __noinline struct wait_slot *claim_slot(u64 key)
{
	struct wait_slot *w;
	u32 i, k;

	for (i = 0; i < WAIT_WAYS; i++) {
		k = slot_index(key, i);
		w = bpf_map_lookup_elem(&wait_slots, &k);
		if (!w)
			return 0;
		if (w->claims)
			continue;
		__sync_fetch_and_add(&w->claims, 1);
		if (*(volatile u32 *)&w->claims == 1) {
			w->index = k;
			w->task = key;
			return w;
		}
		__sync_fetch_and_add(&w->claims, -1);
	}
	return 0;
}

/* The thread is dead: all slots that are its own. */
static __noinline void release_slots(u64 key)
{
	struct wait_slot *w;
	u32 i, k;

	for (i = 0; i < WAIT_WAYS; i++) {
		k = slot_index(key, i);
		w = bpf_map_lookup_elem(&wait_slots, &k);
		if (w && w->task == key) {
			w->start = 0;
			w->from = 0;
			w->told = 0;
			w->task = 0;
			__sync_fetch_and_add(&w->claims, -1);
		}
	}
}

/*
 * From when on a wait that is closed is to be charged. With an exchange nobody can move it on
 * later. Without one user space may do so in the few nanoseconds between the two lines, and has
 * then charged up to its own time what is charged here, too.
 */
static __always_inline u64 take_from(struct wait_slot *w)
{
#ifdef TASK_WORK_ARGS
	return __sync_lock_test_and_set(&w->from, 0);
#else
	u64 from = *(volatile u64 *)&w->from;

	*(volatile u64 *)&w->from = 0;
	return from;
#endif
}

/* --- the stack -------------------------------------------------------------------------------- */

static __always_inline u32 kernel_stack(struct task_struct *task, u64 *ip)
{
	long bytes = 0;

	if (kernel_frames)
		bytes = bpf_get_task_stack(task, ip, MAX_KERNEL_FRAMES * sizeof(u64), 0);
	return bytes > 0 ? (u32)bytes / sizeof(u64) : 0;
}

/*
 * All of the key that the thread need not say itself; regs go to the scratch. False: a wait of no
 * interest.
 */
static __always_inline bool describe(struct scratch *s, struct task_struct *task,
				     const struct wait *w, bool with_kernel)
{
	struct user_regs *regs = (struct user_regs *)s->regs;
	void *entry = entry_regs(task);

	walk_none(s);
	s->ev.key.kind = STACK_OFF_CPU;
	s->ev.key.tgid = tgid_of(task, task->tgid);
	s->ev.key.start_ns = task->group_leader->start_boottime;
	s->ev.key.exec_id = (u32)task->self_exec_id;
	s->ev.key.state = state_letter(w->state);
	s->ev.key.call = -1;
	s->ev.key.object = 0;
	s->ev.key.holder = 0;
	bpf_probe_read_kernel(s->ev.key.comm, sizeof(s->ev.key.comm), task->comm);
	s->ev.tid = tid_of(task, task->pid);
	s->ev.in_exec = BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
	s->walk.end = STACK_END_MAX;
	s->walk.ip = 0;
	/* Nothing to walk: never was in user space, is between two images, or on its way out. */
	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_EXITING) || s->ev.in_exec) {
		s->walk.end = STACK_END_COMPLETE;
	} else if (bpf_probe_read_kernel(regs, sizeof(*regs), entry)) {
		s->walk.end = STACK_END_UNREADABLE;
	} else {
		s->walk.ip = REGS_IP(regs);
		s->walk.sp = REGS_SP(regs);
		s->walk.fp = REGS_FP(regs);
		if (REGS_COMPAT(regs))
			s->walk.end = STACK_END_COMPAT;
		s->ev.key.call = system_call(regs, entry);
		if (lock_profile && s->ev.key.call == NR_FUTEX) {
			s->ev.key.object = REGS_ARG1(regs);
			s->ev.key.holder = w->holder;
		}
	}
	if (!s->ev.key.tgid || !s->ev.tid || (lock_only && !s->ev.key.object))
		return false;
	if (with_kernel)
		s->walk.n = kernel_stack(task, s->ip);
	s->ev.nkernel = s->walk.n;
	if (s->walk.end == STACK_END_COMPAT) {
		s->ip[s->walk.n & WALK_MASK] = s->walk.ip;
		s->walk.n++;
		s->walk.nuser = 1;
	}
	return true;
}

static __always_inline void emit_wait(struct scratch *s, u32 slot, u64 n, u64 ns, u64 now)
{
	emit(s, slot, n, ns, now);
	stat_add(BPF_STAT_WAITS_DUE, n);
	stat_inc(BPF_STAT_WAIT_STACKS);
}

/* The wait is kept, its user stack could not be had. */
static __always_inline void emit_without_user(struct scratch *s, u32 slot, u64 n, u64 ns, u64 now)
{
	s->walk.n = s->ev.nkernel;
	s->walk.nuser = 0;
	s->walk.end = STACK_END_NOT_TAKEN;
	stat_add(BPF_STAT_WAIT_NO_USER, n);
	emit_wait(s, slot, n, ns, now);
}

/* --- stacks taken when the wait begins -------------------------------------------------------- */

#ifdef TASK_WORK_ARGS
static __always_inline void take_early(struct task_struct *prev, struct wait_slot *w)
{
}

static __always_inline void drop_early(struct wait_slot *w)
{
}

static __always_inline void emit_early(struct task_struct *next, const struct wait *w, u64 now)
{
}
#else
struct early {
	u64 weight;
	u32 nuser;
	u32 end;
	u64 ip[EARLY_FRAMES];
};

/* User stacks of waits under way, by task_key(). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct early);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct early);
} early_buffer SEC(".maps");

/* The current thread's stack, of one wait in early_weight; its program sets STATE_HELD. */
static __noinline void take_early(struct task_struct *prev, struct wait_slot *slot)
{
	u64 key = slot->task, weight = early_weight ? early_weight : 1;
	u32 zero = 0, n;
	struct scratch *s = walk_scratch(zero);
	struct early *e = bpf_map_lookup_elem(&early_buffer, &zero);
	struct wait w = { .state = slot->state };

	if (!s || !e || bpf_get_prandom_u32() * weight >= 1ull << 32)
		return;
	if (!describe(s, prev, &w, false))
		return;
	if (s->walk.end == STACK_END_MAX) {
		s->walk.max_frames = MIN(max_frames, EARLY_FRAMES);
		stack_bounds(prev, &s->walk);
		walk_stack(s, zero, &s->ev.key, walk_how);
	}
	n = MIN(s->walk.nuser, EARLY_FRAMES);
	e->weight = weight;
	e->nuser = n;
	e->end = s->walk.end;
	bpf_probe_read_kernel(e->ip, n * sizeof(u64), s->ip);
	if (!bpf_map_update_elem(&held, &key, e, BPF_ANY))
		slot->state |= STATE_HELD;
	else
		stat_inc(BPF_STAT_WAIT_NO_PLACE);
}

/* next has waited with that stack; the kernel's part is what it is now. */
static __always_inline void emit_early(struct task_struct *next, const struct wait *w, u64 now)
{
	u64 key = w->key;
	struct early *e = w->state & STATE_HELD ? bpf_map_lookup_elem(&held, &key) : 0;
	u32 zero = 0, n, at;
	struct scratch *s = walk_scratch(zero);

	if (!e || !s)
		return;
	if (!describe(s, next, w, true))
		return;
	if (s->walk.end == STACK_END_MAX) {
		n = MIN(e->nuser, EARLY_FRAMES);
		at = MIN(s->walk.n, MAX_KERNEL_FRAMES);
		bpf_probe_read_kernel(&s->ip[at], n * sizeof(u64), e->ip);
		s->walk.n = at + n;
		s->walk.nuser = n;
		s->walk.end = e->end;
	}
	emit_wait(s, zero, e->weight, w->ns * e->weight, now);
	bpf_map_delete_elem(&held, &key);
}

static __always_inline void drop_early(struct wait_slot *slot)
{
	u64 key = slot->task;

	if (walk_early && slot->state & STATE_HELD)
		bpf_map_delete_elem(&held, &key);
}
#endif

#ifdef TASK_WORK_ARGS
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct pending *p = value;
	u64 n = p->count;

	take_pending(p, walk_how);
	stat_add(BPF_STAT_WAITS_DUE, n);
	stat_inc(BPF_STAT_WAIT_STACKS);
	free_pending(p);
	return 0;
}

/* next has waited, and is about to run. */
static __always_inline void take_stack(struct task_struct *next, const struct wait *w, u64 now)
{
	u32 slot = bpf_get_smp_processor_id();
	struct scratch *s = walk_scratch(slot);

	if (!s)
		return;
	if (!describe(s, next, w, true))
		return;
	if (s->walk.end != STACK_END_MAX)
		return emit_wait(s, slot, w->n, w->ns, now);
	s->walk.end = 0;
	if (leave_pending(s, next, w->key, stack_hash(slot), w->n, w->ns, on_return))
		emit_without_user(s, slot, w->n, w->ns, now);
}

/* Does the wait come from our own work in the thread, for a page that it fetched? */
static __always_inline bool is_ours(u64 key)
{
	u32 h = key_hash(key), i, k;
	struct pending *p;

	for (i = 0; i < PENDING_WAYS; i++) {
		k = (h & pending_mask) + i;
		p = bpf_map_lookup_elem(&pending, &k);
		if (p && p->task == key && p->running)
			return true;
	}
	return false;
}

/* The thread is dead; nobody will take what it has left. */
static __noinline void forget_pending(u64 key)
{
	u32 h = key_hash(key), i, k;
	struct pending *p;

	for (i = 0; i < PENDING_WAYS; i++) {
		k = (h & pending_mask) + i;
		p = bpf_map_lookup_elem(&pending, &k);
		if (!p || p->task != key)
			continue;
		stat_add(BPF_STAT_WAITS_DUE, p->count);
		stat_add(BPF_STAT_WAIT_LOST_EXIT, p->count);
		free_pending(p);
	}
}
#else
static __always_inline bool is_ours(u64 key)
{
	return false;
}

static __always_inline void forget_pending(u64 key)
{
}

/* A wait whose user stack the next interrupt is to take; its kernel frames are in the scratch. */
struct parked {
	u64 n, ns;
	u32 tid; /* 0: none */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct parked);
} parked SEC(".maps");

/*
 * Whatever is written to it wakes its reader up, by an irq_work of this CPU. There is no reader.
 * One per CPU: an irq_work that waits on one CPU is not queued on another.
 */
struct kick_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, KICK_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct kick_ring);
} kicks SEC(".maps");

/* Provokes an interrupt of this CPU as soon as it takes any. */
static __always_inline long kick(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&kicks, &cpu);
	u64 nothing = 0;

	return ring ? bpf_ringbuf_output(ring, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP) : -1;
}

static __always_inline void take_stack(struct task_struct *next, const struct wait *w, u64 now)
{
	u32 zero = 0;
	struct parked *p = bpf_map_lookup_elem(&parked, &zero);
	struct scratch *s = walk_scratch(zero);

	if (!p || !s)
		return;
	/* The interrupt for the one before has not come. */
	if (p->tid)
		emit_without_user(s, zero, p->n, p->ns, now);
	p->tid = 0;
	if (!describe(s, next, w, true))
		return;
	if (s->walk.end != STACK_END_MAX)
		return emit_wait(s, zero, w->n, w->ns, now);
	if (kick())
		return emit_without_user(s, zero, w->n, w->ns, now);
	p->n = w->n;
	p->ns = w->ns;
	p->tid = next->pid;
}

#if UNWIND_ARM64
#define AFTER_SWITCH "tp_btf/ipi_entry"
#else
#define AFTER_SWITCH "tp_btf/irq_work_entry"
#endif

/* In the interrupt: current is the thread that has waited, and goes nowhere. */
SEC(AFTER_SWITCH)
int after_switch(u64 *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 zero = 0, tid = (u32)bpf_get_current_pid_tgid();
	struct parked *p = bpf_map_lookup_elem(&parked, &zero);
	struct scratch *s;
	u64 start;

	if (!p || !p->tid || p->tid != tid)
		return 0;
	s = walk_scratch(zero);
	if (!s)
		return 0;
	start = bpf_ktime_get_ns();
	stack_bounds(task, &s->walk);
	list_arm(s, &s->ev.key);
	walk_stack(s, zero, &s->ev.key, walk_how);
	list_walk(s, zero, task, s->ev.tid, false);
	context_take(s, zero, task);
	emit_wait(s, zero, p->n, p->ns, start);
	p->tid = 0;
	stat_add(BPF_STAT_WAIT_NS, bpf_ktime_get_ns() - start);
	return 0;
}
#endif

/* --- switches --------------------------------------------------------------------------------- */

static __always_inline u32 switches(struct task_struct *task)
{
	return (u32)(task->nvcsw + task->nivcsw);
}

/* A wait whose end was not seen; it was shorter than d. */
static __noinline void lose(u64 d)
{
	if (d < min_ns)
		return;
	stat_inc(BPF_STAT_WAITS_DUE);
	stat_inc(BPF_STAT_WAIT_LOST_MOVED);
}

/* prev leaves the CPU, and is not runnable. */
static __always_inline void leave(struct task_struct *prev, u32 state, u64 now)
{
	u64 key = task_key(prev);
	struct wait_slot *w = find_slot(key);

	if (state & TASK_DEAD) {
		if (w)
			release_slots(key);
		forget_pending(key);
		return;
	}
	if (!w && !tid_of(prev, prev->pid))
		return;
	if (!w)
		w = claim_slot(key);
	if (!w) {
		stat_inc(BPF_STAT_WAIT_NO_PLACE);
		return;
	}
	if (w->start)
		lose(now - w->start);
	w->switches = switches(prev);
	w->state = state;
	if (lock_profile)
		w->holder = lock_holder(prev);
	if (walk_early) {
		take_early(prev, w);
		stat_add(BPF_STAT_WAIT_KEPT_NS, bpf_ktime_get_ns() - now);
	}
	w->from = now;
	w->start = now;
}

static __always_inline bool is_left_out(struct task_struct *task)
{
	return left_out(tgid_of(task, task->tgid), task->group_leader->start_boottime,
			(u32)task->self_exec_id);
}

/* next is back after d nanoseconds, since `start`. */
static __noinline void came_back(struct task_struct *next, struct wait_slot *slot, u64 now, u64 d)
{
	struct wait w = { .n = 1, .key = slot->task, .state = slot->state, .holder = slot->holder };
	u64 from = take_from(slot), limit = threshold;

	if (is_left_out(next))
		return;
	/* It has been back since, which was not seen, or the slot was seeded too late. */
	if (slot->switches != switches(next))
		return lose(d);
	w.ns = now > from ? now - from : 0;
	if (walk_early) {
		emit_early(next, &w, now);
	} else if (is_ours(w.key)) {
		return;
	} else if (!draw(&w, d, limit)) {
		stat_inc(BPF_STAT_WAITS_SAMPLED_OUT);
		return;
	} else {
		take_stack(next, &w, now);
	}
	stat_add(BPF_STAT_WAIT_KEPT_NS, bpf_ktime_get_ns() - now);
}

/* One in SWITCH_TIMED, whichever threads they are. */
static __always_inline bool is_timed(struct task_struct *prev)
{
	return (switches(prev) + prev->pid * 31) % SWITCH_TIMED == 0;
}

SEC("tp_btf/sched_switch")
int switch_threads(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	struct wait_slot *w;
	u64 now = 0, start, entry = 0;
	u32 state;

	if (is_timed(prev))
		now = entry = bpf_ktime_get_ns();
	if (!ctx[0] && !(prev->flags & PF_KTHREAD)) {
		state = task_state(prev);
		if (state) {
			/* By now somebody may be waking it up: what it was is in the argument. */
			if (have_prev_state)
				state = (u32)ctx[3];
			if (!now)
				now = bpf_ktime_get_ns();
			leave(prev, state, now);
		}
	}
	if (!(next->flags & PF_KTHREAD)) {
		w = find_slot(task_key(next));
		if (w && w->start) {
			if (!now)
				now = bpf_ktime_get_ns();
			start = w->start;
			w->start = 0;
			if (now - start >= min_ns)
				came_back(next, w, now, now - start);
			else
				drop_early(w);
		}
	}
	if (entry) {
		stat_add(BPF_STAT_SWITCHES, SWITCH_TIMED);
		stat_add(BPF_STAT_SWITCH_NS, (bpf_ktime_get_ns() - entry) * SWITCH_TIMED);
	}
	return 0;
}

/* --- waits that are open ---------------------------------------------------------------------- */

/* What the iterator works in: it can be preempted, but only one runs at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} iter_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_wait);
} iter_record SEC(".maps");

/* A thread that has been waiting since before the programs were there. */
static __always_inline void seed(struct task_struct *task, u64 key, struct wait_slot *w)
{
	u32 before = switches(task), state = task_state(task);

	if (!state || state & TASK_DEAD || task->exit_state)
		return;
	if (bpf_core_field_exists(task->on_cpu) && task->on_cpu)
		return; /* about to leave, which will be seen */
	if (!w)
		w = claim_slot(key);
	if (!w || w->start)
		return;
	/* If it comes back meanwhile, `switches` will not fit any more. */
	w->switches = before;
	w->state = state;
	w->from = until;
	w->start = until;
}

static __always_inline void tell(struct bpf_iter__task *ctx, struct task_struct *task,
				 const struct wait_slot *slot, u64 start)
{
	struct wait w = { .state = slot->state, .holder = slot->holder };
	u32 zero = 0, n;
	struct scratch *s = bpf_map_lookup_elem(&iter_scratch, &zero);
	struct open_wait *o = bpf_map_lookup_elem(&iter_record, &zero);

	if (!s || !o)
		return;
	if (!describe(s, task, &w, true))
		return;
	n = MIN(s->ev.nkernel, MAX_KERNEL_FRAMES);
	stack_bounds(task, &s->walk);
	o->key = s->ev.key;
	o->task = slot->task;
	o->start = start;
	o->slot = slot->index;
	o->tid = s->ev.tid;
	o->end = s->walk.end;
	o->in_exec = s->ev.in_exec;
	o->stack_top = s->walk.stack_top;
	o->stack_size = s->walk.stack_size;
	o->nkernel = n;
	bpf_probe_read_kernel(o->regs, sizeof(struct user_regs), s->regs);
	if (!bpf_seq_write(ctx->meta->seq, o, sizeof(*o)))
		bpf_seq_write(ctx->meta->seq, s->ip, n * sizeof(u64));
}

/* Runs when user space reads. What finds no room is shown again, so nothing is noted here. */
SEC("iter/task")
int open_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct wait_slot *w;
	u64 key, start;

	if (!task || task->flags & PF_KTHREAD)
		return 0;
	if (!seeding && is_left_out(task))
		return 0;
	key = task_key(task);
	w = find_slot(key);
	if (seeding) {
		seed(task, key, w);
		return 0;
	}
	if (!w)
		return 0;
	start = w->start;
	if (!start || start + longest > until || w->told == start || w->switches != switches(task))
		return 0;
	tell(ctx, task, w, start);
	return 0;
}
