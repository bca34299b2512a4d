// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On-CPU sampling. In: a perf event per CPU. Out: counts[epoch & 1], a hash from {process image,
 * thread name, stack} to the number of samples, and, once for each new key, the stack itself in
 * the ring buffer. User space moves `epoch` on, waits until no program uses the old hash, and
 * reads it in batches: so its cost follows distinct stacks, not samples.
 */
#include "bpf/unwind.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool kernel_frames = true;
const volatile bool filter_on = false;
const volatile u32 max_frames = 64;
const volatile u64 hash_seed = 0;
const volatile u64 addr_mask = ~0ull;
const volatile u64 thread_size = 16384; /* where there is no bpf_task_pt_regs */
const volatile u64 ring_wake = 1 << 19; /* bytes waiting that wake the reader */
const volatile u64 news_pause = 0;      /* least time between wake-ups for new processes; 0: none */

u64 epoch = 0;
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

/* Thread groups to sample when filter_on; children join by themselves. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u8);
} filter SEC(".maps");

static __always_inline void stat_add(u32 which, u64 n)
{
	u64 *sum = bpf_map_lookup_elem(&stats, &which);

	if (sum)
		*sum += n;
}

static __always_inline void stat_inc(u32 which)
{
	stat_add(which, 1);
}

/*
 * User registers: the sampled ones, or those that kernel entry saved at the top of the kernel
 * stack. Helper where there is one (5.15), else found by the stack's size. Returns 0; 1 for a
 * 32-bit process; 2 when they cannot be read.
 */
static __always_inline int user_regs(struct bpf_perf_event_data *ctx, struct task_struct *task,
				     struct scratch *s)
{
	struct user_regs *regs = (struct user_regs *)s->regs;
	void *from;
	long err;

	if (REGS_USER(&ctx->regs)) {
		/* The context may only be read 8 bytes at a time, at constant offsets. */
		err = 0;
#pragma unroll
		for (u32 i = 0; i < sizeof(*regs) / sizeof(u64); i++)
			s->regs[i] = ((const u64 *)&ctx->regs)[i];
	} else if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		from = (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
		err = bpf_probe_read_kernel(regs, sizeof(*regs), from);
	} else {
		from = BPF_CORE_READ(task, stack);
		from += thread_size - bpf_core_type_size(struct pt_regs);
		err = bpf_probe_read_kernel(regs, sizeof(*regs), from);
	}
	if (err)
		return 2;
	s->walk.ip = REGS_IP(regs);
	s->walk.sp = REGS_SP(regs);
	s->walk.fp = REGS_FP(regs);
	return REGS_COMPAT(regs) ? 1 : 0;
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

__noinline u64 stack_hash(u32 slot)
{
	struct scratch *s = bpf_map_lookup_elem(&scratch, &slot);
	u64 h = hash_seed;
	u32 i, n;

	if (!s)
		return 0;
	n = s->walk.n;
	for (i = 0; i < MAX_KERNEL_FRAMES + MAX_USER_FRAMES; i++) {
		if (i >= n)
			break;
		h ^= s->ip[i & WALK_MASK];
		h *= 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	/* The same addresses split differently are another stack. */
	h ^= (u64)s->ev.nkernel << 32 | (u64)s->walk.end << 16;
	h *= 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

static __always_inline int send(struct scratch *s)
{
	u64 flags = BPF_RB_NO_WAKEUP;
	u32 n = s->walk.n;

	if (n > MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
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

static __always_inline void count(struct scratch *s, u64 now_epoch)
{
	u32 slot = now_epoch & 1;
	void *map = bpf_map_lookup_elem(&counts, &slot);
	struct stack_count one = { .count = 1 }, *c;
	long err;

	if (!map)
		return stat_inc(BPF_STAT_LOST_BUSY);
	c = bpf_map_lookup_elem(map, &s->ev.key);
	if (!c) {
		err = bpf_map_update_elem(map, &s->ev.key, &one, BPF_NOEXIST);
		if (err && err != -17 /* -EEXIST: another CPU was first */)
			return stat_inc(err == -7 /* -E2BIG */ ? BPF_STAT_LOST_COUNTS_FULL
							       : BPF_STAT_LOST_BUSY);
		c = bpf_map_lookup_elem(map, &s->ev.key);
		if (!c)
			return stat_inc(BPF_STAT_LOST_BUSY);
		if (err)
			__sync_fetch_and_add(&c->count, 1);
	} else {
		__sync_fetch_and_add(&c->count, 1);
	}
	/* A stack that found no room in the ring buffer is sent with its next sample. */
	if (!c->sent && !send(s))
		c->sent = 1;
}

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 slot = 0, tgid = bpf_get_current_pid_tgid() >> 32, flags;
	u64 start = bpf_ktime_get_ns();
	struct scratch *s;
	struct walk *w;
	long bytes = 0;

	/* Idle is excluded by the event where the kernel can; here for events where it cannot. */
	if (!tgid || (filter_on && !bpf_map_lookup_elem(&filter, &tgid))) {
		stat_inc(BPF_STAT_FILTERED);
		return 0;
	}
	stat_inc(BPF_STAT_DUE);
	s = bpf_map_lookup_elem(&scratch, &slot);
	if (!s)
		return 0;
	if (s->busy) {
		stat_inc(BPF_STAT_LOST_SCRATCH_BUSY);
		return 0;
	}
	s->busy = 1;
	s->ev.key.tgid = tgid;
	s->ev.key.start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	s->ev.key.exec_id = (u32)BPF_CORE_READ(task, self_exec_id);
	s->ev.key.call = -1;

	w = &s->walk;
	w->n = 0;
	w->nuser = 0;
	w->gen = 0;
	w->unmapped = 0;
	w->addr_mask = addr_mask;
	w->max_frames = max_frames;
	if (kernel_frames && !REGS_USER(&ctx->regs)) {
		bytes = bpf_get_stack(ctx, s->ip, MAX_KERNEL_FRAMES * sizeof(u64), 0);
		if (bytes > 0)
			w->n = (u32)bytes / sizeof(u64);
	}
	s->ev.nkernel = w->n;
	s->ev.in_exec = 0;

	flags = BPF_CORE_READ(task, flags);
	if (flags & PF_KTHREAD) {
		w->end = STACK_END_NO_USER;
	} else if (flags & (PF_IO_WORKER | PF_USER_WORKER)) {
		w->end = STACK_END_COMPLETE; /* a thread that never runs user code */
	} else if (BPF_CORE_READ_BITFIELD_PROBED(task, in_execve)) {
		/* The saved registers are the old image's, the memory may be the new one's. */
		w->end = STACK_END_COMPLETE;
		s->ev.in_exec = 1;
	} else {
		switch (user_regs(ctx, task, s)) {
		case 0:
			stack_bounds(task, w);
			walk_stack(s, slot, &s->ev.key);
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
	s->ev.nuser = w->nuser;
	s->ev.end = w->end;
	s->ev.time_ns = start;
	s->ev.epoch = epoch;
	s->ev.tid = (u32)bpf_get_current_pid_tgid();
	s->ev.key.stack_hash = stack_hash(slot);
	bpf_get_current_comm(s->ev.key.comm, sizeof(s->ev.key.comm));
	count(s, s->ev.epoch);
	s->busy = 0;
	stat_add(BPF_STAT_RUN_NS, bpf_ktime_get_ns() - start);
	return 0;
}

/* With filter_on: children of sampled processes are sampled from their first instruction. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 one = 1;

	if (from != to && bpf_map_lookup_elem(&filter, &from))
		bpf_map_update_elem(&filter, &to, &one, BPF_ANY);
	return 0;
}

/* The leader's task is freed last; then its pid may be used again by a stranger. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(forget_process, struct task_struct *task)
{
	u32 tgid = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&filter, &tgid);
	return 0;
}
