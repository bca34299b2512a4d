/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of bpf/unwind.h: its maps as plain arrays, user memory through a function. In:
 * tables, mappings, registers. Out: the walk exactly as the BPF program would take it.
 * unwind_host.c is included by the one file of a test that needs it, so that it is the only
 * translation unit with the walk. Not thread safe: one host is in use at a time.
 */
#pragma once

#include "core/table.h"
#include "core/util.h"

#include <sys/types.h>

#define HOST_SLABS  256
#define HOST_PROCS  16
#define HOST_REGS   34 /* arm64: x0..x30, sp, pc, pstate; x86-64 has 27 */
#define HOST_FRAMES (MAX_USER_FRAMES + 1)

struct unwind_host;

/* Reads user memory for a walk; 0 or -EFAULT. */
typedef int unwind_host_read_fn(void *arg, void *dst, size_t size, u64 addr);

/* What a walk gave. */
struct unwind_host_walk {
	u64 ip[HOST_FRAMES];
	u32 n;
	u32 end; /* enum stack_end */
	/* Only unwind_host_trace(): by which rule each frame was left, and its stack pointer. */
	struct unwind_rule rule[HOST_FRAMES];
	u64 sp[HOST_FRAMES];
};

/* Owned; NULL without memory. */
struct unwind_host *unwind_host_new(unwind_host_read_fn *read, void *arg);
void unwind_host_free(struct unwind_host *h);

/* Room in the slabs, zeroed; ref never 0. NULL when size is over a slab or all slabs are full. */
u8 *unwind_host_alloc(struct unwind_host *h, size_t size, u32 *ref);
/* Lays a table into the slabs and makes *e name it; lo, hi, bias are the caller's. 0, -ENOSPC. */
int unwind_host_place(struct unwind_host *h, const struct table *t, struct map_entry *e);
/*
 * Publishes the mappings (sorted by lo) of an image under a new gen, in place of what it had.
 * Returns 0, -E2BIG over MAP_ENTRIES_MAX, -ENOSPC.
 */
int unwind_host_publish(struct unwind_host *h, const struct stack_key *key,
			const struct map_entry *maps, u32 n);
void unwind_host_forget(struct unwind_host *h, u32 tgid);
/* Empties the row cache, or takes it away (on = false). */
void unwind_host_cache(struct unwind_host *h, bool on);

struct unwind_host_ask {
	struct stack_key key;
	u64 regs[HOST_REGS]; /* in the order of the architecture's user registers */
	u64 stack_top, stack_size;
	u32 max_frames;
};

void unwind_host_run(struct unwind_host *h, const struct unwind_host_ask *ask,
		     struct unwind_host_walk *ret);
/* The same walk frame by frame, for the reasons behind it. */
void unwind_host_trace(struct unwind_host *h, const struct unwind_host_ask *ask,
		       struct unwind_host_walk *ret);

/* Reads another process's memory; arg is a pid_t *. */
unwind_host_read_fn unwind_host_read_pid;
