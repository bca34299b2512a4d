/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The user side of bpf/task_work.h: sizes of its maps, before an object that has them
 * is loaded, and what is left in them.
 */
#pragma once

#include "util.h"

struct bpf_object;

struct pending_pool {
	u32 entries;   /* of `pending` */
	u32 cpus;      /* slots of `scratch` that are a CPU's own */
	u32 scratches; /* behind them */
};

/* Before the object is loaded. Returns 0 or -errno. */
int pending_size(struct pending_pool *pool, struct bpf_object *obj);
/* Events whose stacks are still to be taken. pending_fd may be negative: none. */
u64 pending_left(const struct pending_pool *pool, int pending_fd);
/* Of `runs` runs `timed` took ns: what all took, if the others were like them. */
u64 pending_work_ns(u64 ns, u64 timed, u64 runs);
