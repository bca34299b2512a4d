// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Iterators over the threads of one process. In: runs[run], what is asked for. Out: a struct
 * thread_event for each thread: how often it has left a CPU, whether it is on one, its thread
 * pointer and, from the iterator that may sleep, its interpreter's list. A list is certain when
 * the thread was on no CPU and had left one as often before as after: then it has not run
 * meanwhile. A thread that has not run since its list was told is told in 8 bytes.
 */
#include "bpf/pidns.h"
#include "bpf/recipe.h"
#include "bpf/vma.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The slot of the run that begins; a program that hangs in an older run keeps its own. */
u32 run = 0;
struct threads_run runs[THREADS_RUNS] = {};

/* What one thread's turn needs besides; a run has its own. */
struct thread_turn {
	struct recipe_walk list;
	u64 node_page, peek_page; /* known to come, whenever they are asked for */
	struct thread_event ev;
	u64 words[LIST_WORDS_MAX]; /* directly behind ev: what is told is one run of bytes */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS_RUNS);
	__type(key, u32);
	__type(value, struct thread_turn);
} turns SEC(".maps");

/* Thread to head, for RECIPE_TID: the sampler's map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RECIPE_HEADS_MAX);
	__type(key, u32);
	__type(value, u64);
} heads SEC(".maps");

/* What user space holds of a thread; goes with the thread. */
struct held {
	u64 switches;
	u32 gen, held;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct held);
} held SEC(".maps");

static __always_inline u8 state_letter(struct task_struct *task)
{
	u32 bits = task->exit_state, i;

	if (bpf_core_field_exists(task->__state))
		bits |= task->__state;
	else
		bits |= ((struct task_struct___before_5_14 *)task)->state;
	/* include/linux/sched.h: the lowest bit that is set names it. */
	if (!bits)
		return 'R';
	if (bits & 0x400 && bits & 2) /* TASK_NOLOAD: a kernel thread that idles */
		return 'I';
	for (i = 0; i < 7; i++)
		if (bits & 1u << i)
			return "SDTtXZP"[i];
	return bits & 0x1000 ? 'D' : 'R'; /* TASK_RTLOCK_WAIT */
}

static __always_inline u64 switches(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

static __always_inline bool on_cpu(struct task_struct *task)
{
	return bpf_core_field_exists(task->on_cpu) && task->on_cpu;
}

static __always_inline u32 innermost_tid(struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	u32 level = pid->level, tid = task->pid;

	if (level)
		bpf_probe_read_kernel(&tid, sizeof(tid),
				      (void *)pid + bpf_core_field_offset(pid->numbers) +
					      level * bpf_core_type_size(struct upid));
	return tid;
}

static __always_inline u64 thread_pointer(struct task_struct *task)
{
#if UNWIND_ARM64
	return task->thread.uw.tp_value;
#else
	return task->thread.fsbase;
#endif
}

/* Bounded where it is used: on the way there verifiers may have lost what they knew of it. */
static __always_inline struct threads_run *run_at(u32 slot)
{
	u64 i = slot;

	asm volatile("" : "+r"(i));
	return &runs[i & (THREADS_RUNS - 1)];
}

/* The next run goes on with this thread. */
static __always_inline void end_here(struct bpf_iter__task *ctx, struct threads_run *r)
{
	r->next = ctx->meta->seq_num;
	r->more = 1;
}

/* The run's slot if the task is one of its threads and its turn has come, else THREADS_RUNS. */
static __always_inline u32 turn_of(struct bpf_iter__task *ctx, struct task_struct *task)
{
	u32 slot = run & (THREADS_RUNS - 1);
	struct threads_run *r = run_at(slot);

	if (tgid_of(task, task->tgid) != r->tgid || ctx->meta->seq_num < r->from || r->more)
		return THREADS_RUNS;
	if (r->entry.start_ns && (task->group_leader->start_boottime != r->entry.start_ns ||
				  (u32)task->self_exec_id != r->entry.exec_id))
		return THREADS_RUNS;
	if (r->told >= r->max) {
		end_here(ctx, r);
		return THREADS_RUNS;
	}
	return slot;
}

static __always_inline void describe(struct task_struct *task, struct thread_event *ev)
{
	ev->tid = tid_of(task, task->pid);
	ev->kind = THREAD_COUNTS;
	ev->on_cpu = on_cpu(task) ? THREAD_ON_CPU : 0;
	ev->state = state_letter(task);
	ev->list_end = LIST_END_NONE;
	ev->ns_tid = innermost_tid(task);
	ev->recipe_gen = 0;
	ev->exec_id = (u32)task->self_exec_id;
	ev->start_ns = task->start_boottime;
	ev->switches = switches(task);
	ev->cpu_ns = task->se.sum_exec_runtime;
	ev->tp = thread_pointer(task);
	ev->ip = 0;
	ev->list_head = 0;
	ev->list_reg = 0;
	ev->nlist = 0;
	ev->list_width = 0;
	ev->list_flag = 0;
	bpf_probe_read_kernel(ev->comm, sizeof(ev->comm), task->comm);
}

/* Nonzero: not told, for want of room; the kernel then comes again with the same thread. */
static __always_inline long tell(struct bpf_iter__task *ctx, struct threads_run *r, void *ev,
				 u64 len)
{
	long err;

	asm volatile("" : "+r"(len));
	if (len > sizeof(struct thread_event) + sizeof(u64) * LIST_WORDS_MAX)
		return -1;
	err = bpf_seq_write(ctx->meta->seq, ev, len);
	if (!err)
		r->told++;
	return err;
}

SEC("iter/task")
int thread_counts(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread_event ev = {};
	u32 slot;

	if (!task)
		return 0;
	slot = turn_of(ctx, task);
	if (slot >= THREADS_RUNS)
		return 0;
	describe(task, &ev);
	tell(ctx, run_at(slot), &ev, sizeof(ev));
	return 0;
}

static __always_inline u64 find_head(struct recipe *r, struct task_struct *task)
{
	u64 *known, tp = thread_pointer(task);
	u32 tid = tid_of(task, task->pid);

	/* Else one instruction would load from two kinds of memory. */
	asm volatile("" : "+r"(tp));
	switch (r->head) {
	case RECIPE_TP:
		return tp;
	case RECIPE_ADDR:
		return r->first_thread && task->pid != task->tgid ? 0 : r->addr;
	case RECIPE_TID:
		known = bpf_map_lookup_elem(&heads, &tid);
		return known ? *known : 0;
	default:
		return 0; /* RECIPE_JIT_FP: takes a walk of the native stack */
	}
}

/* Takes what was read last; nonzero: the list's end. Global, so that verifiers take it once. */
__noinline int turn_step(u32 slot, int failed)
{
	struct thread_turn *t = bpf_map_lookup_elem(&turns, &slot);

	return t ? recipe_step(&t->list, t->words, LIST_WORDS_MAX - 1, failed) : 1;
}

/* What a read needs, in the one argument that a loop's body gets. */
struct turn {
	struct task_struct *task;
	struct thread_turn *t;
	u32 slot;
};

/*
 * A page that user space serves, or a server far away, may never come, and there is no way out of
 * waiting for it. Where the kernel is busy with the process's mappings the read decides.
 */
static __always_inline bool may_hang(struct turn *turn)
{
	u64 addr = turn->t->list.need, page = addr >> 12, *known;
	bool ours = false;

	known = turn->t->list.phase == RECIPE_PEEK ? &turn->t->peek_page : &turn->t->node_page;
	if (*known == page)
		return false;
	if (!bpf_find_vma(turn->task, addr, judge_vma, &ours, 0) && !ours)
		return true;
	*known = page;
	return false;
}

/* The read that is due, and what follows from it; 1: the list's end. */
static long turn_read(u32 i, struct turn *turn)
{
	struct thread_turn *t = turn->t;
	u64 len = t->list.need_len;
	long err = -1;

	asm volatile("" : "+r"(len));
	if (len > RECIPE_NODE_MAX)
		return 1;
	if (!may_hang(turn))
		err = bpf_copy_from_user_task(t->list.node, len, (void *)t->list.need, turn->task,
					      0);
	return turn_step(turn->slot, err != 0) ? 1 : 0;
}

static __always_inline void walk_list(struct thread_turn *t, u32 slot, struct task_struct *task)
{
	struct turn turn = { .task = task, .t = t, .slot = slot };

	t->node_page = 0;
	t->peek_page = 0;
	recipe_begin(&t->list, find_head(&t->list.recipe, task), 0, false);
	if (!turn_step(slot, 0))
		bpf_loop(RECIPE_READS_MAX, turn_read, &turn, 0);
}

/* The registers with which the thread entered the kernel, of which the list wants some. */
static __always_inline void read_regs(struct thread_turn *t, struct task_struct *task)
{
	const struct recipe *r = &t->list.recipe;
	struct user_regs regs;
	u64 head;

	if (bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task)))
		return;
	t->ev.ip = REGS_IP(&regs);
	if (r->reg_is_head == r->reg_kept || r->reg_is_head >= sizeof(regs) / sizeof(u64) ||
	    r->reg_kept >= sizeof(regs) / sizeof(u64))
		return;
	head = ((u64 *)&regs)[r->reg_is_head & 31];
	if (head && head == t->list.head)
		t->ev.list_reg = ((u64 *)&regs)[r->reg_kept & 31];
}

/* Walks the list, and makes sure that the thread stood still meanwhile. */
static __always_inline void take_list(struct thread_turn *t, u32 slot, struct task_struct *task)
{
	struct threads_run *r = run_at(slot);

	t->list.recipe = r->entry.recipe;
	r->walks++;
	walk_list(t, slot, task);
	read_regs(t, task);
	if (on_cpu(task))
		t->ev.on_cpu |= THREAD_ON_CPU_AFTER;
	if (t->ev.on_cpu || switches(task) != t->ev.switches)
		return;
	t->ev.list_end = t->list.end;
	t->ev.list_flag = t->list.flag;
	t->ev.list_head = t->list.head;
	t->ev.nlist = t->list.n;
	t->ev.list_width = t->list.width;
}

/* What user space was told last of a task; NULL: no memory for it. */
static __always_inline struct held *held_of(struct task_struct *task)
{
	return bpf_task_storage_get(&held, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline bool is_held(struct task_struct *task, const struct threads_run *r, u64 n)
{
	struct held *h = held_of(task);

	return h && h->switches == n && h->gen == r->entry.gen && h->held == r->held;
}

/* Looked up again: a pointer that lives through the walk would double what verifiers walk. */
static __always_inline void hold(struct task_struct *task, const struct threads_run *r, u64 n)
{
	struct held *h = held_of(task);

	if (!h)
		return;
	h->switches = n;
	h->gen = r->entry.gen;
	h->held = r->held;
}

SEC("iter.s/task")
int thread_lists(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct threads_run *r;
	struct thread_turn *t;
	u32 slot;

	if (!task)
		return 0;
	slot = turn_of(ctx, task);
	t = bpf_map_lookup_elem(&turns, &slot);
	if (!t || slot >= THREADS_RUNS)
		return 0;
	r = run_at(slot);
	if (!on_cpu(task) && is_held(task, r, switches(task))) {
		t->ev.tid = tid_of(task, task->pid);
		t->ev.kind = THREAD_SAME;
		if (!tell(ctx, r, &t->ev, THREAD_SAME_SIZE))
			r->same++;
		return 0;
	}
	if (!on_cpu(task) && r->walks >= r->max_walks) {
		end_here(ctx, r);
		return 0;
	}
	describe(task, &t->ev);
	t->ev.kind = THREAD_LIST;
	t->ev.list_end = LIST_END_MOVED;
	t->ev.recipe_gen = r->entry.gen;
	if (!t->ev.on_cpu)
		take_list(t, slot, task);
	if (!tell(ctx, r, &t->ev, sizeof(t->ev) + t->ev.nlist * t->ev.list_width * sizeof(u64)) &&
	    t->ev.list_end != LIST_END_MOVED)
		hold(task, r, t->ev.switches);
	return 0;
}
