// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On-CPU sampling. In: a perf event per CPU. Out: counts[epoch & 1], a hash from {process image,
 * thread name, stack} to the number of samples, and, once for each new key, the stack itself in
 * the ring buffer. User space moves `epoch` on, waits until no program uses the old hash, and
 * reads it in batches: so its cost follows distinct stacks, not samples.
 *
 * Built once more for each way in which kernels declare task work (TASK_WORK_ARGS): there a walk
 * that a missing page cut is left for the thread itself to do, on its way back to user space.
 */
#define EMIT_LOST_FULL BPF_STAT_LOST_COUNTS_FULL
#define EMIT_LOST_BUSY BPF_STAT_LOST_BUSY
#ifdef TASK_WORK_ARGS
#define WALK_SCRATCH_ARRAY
#define WORK_RUNS          BPF_STAT_WORK_RUNS
#define WORK_TIMED         BPF_STAT_WORK_TIMED
#define WORK_NS            BPF_STAT_WORK_NS
#define WORK_PAGES_FETCHED BPF_STAT_PAGES_FETCHED
#define WORK_PAGES_REFUSED BPF_STAT_PAGES_REFUSED
#define WORK_LOST_SCRATCH  BPF_STAT_LOST_SCRATCH_BUSY
#include "bpf/task_work.h"
#else
#include "bpf/emit.h"
#endif

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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

#ifdef TASK_WORK_ARGS
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct pending *p = value;

	take_pending(p, 0);
	free_pending(p);
	return 0;
}

static __always_inline u32 scratch_slot(void)
{
	return bpf_get_smp_processor_id();
}

/* A stack or list that a missing page cut: the thread can take it itself. True: it will. */
static __always_inline bool finish_later(struct scratch *s, u32 slot, u32 task_flags)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!(s->walk.end == STACK_END_UNREADABLE && s->walk.fault) &&
	    s->ev.list_end != LIST_END_UNREADABLE)
		return false;
	if (task_flags & PF_EXITING)
		return false; /* it will not come back */
	return !leave_pending(s, task, task_key(task), stack_hash(slot), 1, 0, on_return);
}
#else
static __always_inline u32 scratch_slot(void)
{
	return 0;
}

static __always_inline bool finish_later(struct scratch *s, u32 slot, u32 task_flags)
{
	return false;
}
#endif

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u64 ids = bpf_get_current_pid_tgid();
	u32 slot = scratch_slot(), tgid = ids >> 32, tid, flags;
	u64 start = bpf_ktime_get_ns();
	struct scratch *s;
	struct walk *w;
	u64 born;
	u32 exec_id;
	long bytes = 0;

	/* Idle is excluded by the event where the kernel can; here for events where it cannot. */
	if (!tgid) {
		stat_inc(BPF_STAT_FILTERED);
		return 0;
	}
	tgid = tgid_of(task, tgid);
	tid = tid_of(task, (u32)ids);
	if (!tgid || !tid) {
		stat_inc(BPF_STAT_OUTSIDE);
		return 0;
	}
	born = BPF_CORE_READ(task, group_leader, start_boottime);
	exec_id = (u32)BPF_CORE_READ(task, self_exec_id);
	if (left_out(tgid, born, exec_id)) {
		stat_inc(filter_on ? BPF_STAT_FILTERED : BPF_STAT_LEFT_OUT);
		return 0;
	}
	stat_inc(BPF_STAT_DUE);
	s = walk_scratch(slot);
	if (!s)
		return 0;
	if (s->busy) {
		stat_inc(BPF_STAT_LOST_SCRATCH_BUSY);
		return 0;
	}
	s->busy = 1;
	s->ev.key.tgid = tgid;
	s->ev.key.start_ns = born;
	s->ev.key.exec_id = exec_id;
	s->ev.key.call = -1;

	w = &s->walk;
	walk_none(s);
	if (kernel_frames && !REGS_USER(&ctx->regs)) {
		bytes = bpf_get_stack(ctx, s->ip, MAX_KERNEL_FRAMES * sizeof(u64), 0);
		if (bytes > 0)
			w->n = (u32)bytes / sizeof(u64);
	}
	s->ev.nkernel = w->n;

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
			list_arm(s, &s->ev.key);
			walk_stack(s, slot, &s->ev.key, 0);
			list_walk(s, slot, task, tid, false);
			context_take(s, slot, task);
			break;
		case 1:
			s->ip[w->n & WALK_MASK] = w->ip;
			w->n++;
			w->nuser = 1;
			w->end = STACK_END_COMPAT;
			break;
		default:
			w->end = STACK_END_UNREADABLE;
			w->fault = 0;
		}
	}
	s->ev.tid = tid;
	bpf_get_current_comm(s->ev.key.comm, sizeof(s->ev.key.comm));
	if (!finish_later(s, slot, flags))
		emit(s, slot, 1, 0, start);
	s->busy = 0;
	stat_add(BPF_STAT_RUN_NS, bpf_ktime_get_ns() - start);
	return 0;
}

/* Is the process in the filter, as the image that it is? */
static __always_inline bool left_out_or_chosen(struct task_struct *task)
{
	u32 tgid = tgid_of(task, task->tgid);
	struct filter_entry *e = bpf_map_lookup_elem(&filter, &tgid);
	u64 start = task->group_leader->start_boottime;

	if (filter_on)
		return e && (!e->start_ns || e->start_ns == start);
	return e && (e->start_ns == start && e->exec_id == (u32)task->self_exec_id);
}

/* What holds for a process holds for its children, from their first instruction to an exec. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	struct filter_entry entry = { .start_ns = child->start_boottime };
	u32 to = tgid_of(child, child->tgid);

	if (parent->tgid == child->tgid || !to || !left_out_or_chosen(parent))
		return 0;
	entry.exec_id = (u32)child->self_exec_id;
	bpf_map_update_elem(&filter, &to, &entry, BPF_ANY);
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

/*
 * Outside the first pid namespace a task that is freed has no number any more: as it exits, the
 * entry is bound to this process, so that a stranger with its number is another. The map forgets.
 */
SEC("tp_btf/sched_process_exit")
int bind_process(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tgid = tgid_of(task, task->tgid);
	struct filter_entry *e = bpf_map_lookup_elem(&filter, &tgid);

	if (e && !e->start_ns)
		e->start_ns = task->group_leader->start_boottime;
	return 0;
}
