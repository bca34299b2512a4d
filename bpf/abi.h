/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The only header that BPF programs and user space share: what a sample's key looks like, what a
 * stack looks like in the ring buffer, limits, and how a stack can end.
 */
#pragma once

#include <linux/types.h>

#define COMM_LEN          16
#define MAX_KERNEL_FRAMES 127
#define MAX_USER_FRAMES   512
#define COUNTS_DECLARED   16384 /* entries of a map of counts where none else are allowed */

/* How the user part of a stack ended: what it means, and whether it reached the first frame. */
#define STACK_END_LIST(X)                                           \
	X(COMPLETE, "complete")                                     \
	X(NO_USER, "kernel thread, no user stack")                  \
	X(CUT, "cut at the frame limit")                            \
	X(BAD_FP, "frame pointer outside the stack or not growing") \
	X(UNREADABLE, "stack memory not readable")                  \
	X(NOT_EXEC, "return address not in executable memory")      \
	X(COMPAT, "32-bit process, not unwound")

enum stack_end {
#define X(name, text) STACK_END_##name,
	STACK_END_LIST(X)
#undef X
		STACK_END_MAX,
};

/*
 * Counters that the sampling program keeps per CPU. DUE = samples counted + all LOST ones;
 * RUN_NS is the program's own time.
 */
#define BPF_STAT_LIST(X)    \
	X(DUE)              \
	X(RUN_NS)           \
	X(FILTERED)         \
	X(LOST_COUNTS_FULL) \
	X(LOST_BUSY)        \
	X(LOST_SCRATCH_BUSY)

enum bpf_stat {
#define X(name) BPF_STAT_##name,
	BPF_STAT_LIST(X)
#undef X
		BPF_STAT_MAX,
};

/*
 * What is counted. A process image is {tgid, start of the thread group's leader, number of
 * execs}: a reused pid has another start, an exec another number.
 */
struct stack_key {
	__u64 start_ns; /* CLOCK_BOOTTIME */
	__u64 stack_hash;
	__u32 tgid; /* initial pid namespace */
	__u32 exec_id;
	char comm[COMM_LEN]; /* of the thread */
};

struct stack_count {
	__u64 count;
	__u32 sent; /* the stack itself went into the ring buffer */
	__u32 pad;
};

/* One distinct stack of one epoch. Kernel frames first, each part leaf first, raw addresses. */
struct stack_event {
	struct stack_key key;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 epoch;   /* which of the two count maps has the key */
	__u32 tid;
	__u16 nkernel;
	__u16 nuser;
	__u32 end; /* enum stack_end */
	__u32 pad;
	/* nkernel + nuser addresses follow, __u64 each. */
};

#define STACK_EVENT_MAX \
	(sizeof(struct stack_event) + (MAX_KERNEL_FRAMES + MAX_USER_FRAMES) * sizeof(__u64))

_Static_assert(sizeof(struct stack_key) == 40, "stack_key is an ABI between two compilers");
_Static_assert(sizeof(struct stack_count) == 16, "stack_count is an ABI between two compilers");
_Static_assert(sizeof(struct stack_event) == 72, "stack_event is an ABI between two compilers");
