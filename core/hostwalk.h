/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. bpf/unwind.h built into the daemon: walks the user stack of a thread that stands
 * still, from its registers, over its process's memory and our own unwind tables. Reads only pages
 * that are there: nothing is brought in, a swapped-out stack stays swapped out, and nobody is asked
 * for a page who may not answer. That a page goes between the look and the read cannot be helped,
 * so a batch is run by a thread that may be left behind (reader.h).
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct hostwalk_job {
	struct stack_key key;
	u32 tid;
	u32 max_frames;
	__u64 regs[OPEN_WAIT_REGS];
	u64 stack_top, stack_size, addr_mask;
	struct proc_entry image; /* gen 0: by frame pointers */
	/* What came out. */
	u32 n, end; /* enum stack_end */
	u64 ip[MAX_USER_FRAMES];
};

/* Where the thread was in user space. */
u64 hostwalk_ip(const __u64 regs[OPEN_WAIT_REGS]);

/* Memory of a slab; NULL: none. */
typedef const u8 *hostwalk_slab_fn(const void *arg, u32 slab);

struct hostwalk {
	hostwalk_slab_fn *slab;
	const void *slab_arg;
	u32 njobs;
	u32 at;        /* jobs before it are done; the others are being written to */
	u32 cancelled; /* nobody waits any more: slabs may go */
	u32 refs;
	u64 cpu_ns; /* once it has run */
	struct hostwalk_job jobs[];
};

/* With one reference; NULL when out of memory. */
struct hostwalk *hostwalk_new(u32 njobs, hostwalk_slab_fn *slab, const void *slab_arg);
/* Drops a reference. From any thread; NULL is fine. */
void hostwalk_put(void *hostwalk);
struct hostwalk *hostwalk_get(struct hostwalk *h);
/* Runs all jobs, for reader_call(): returns 0. */
int hostwalk_run(void *hostwalk);
/* Jobs that are done; from any thread. */
u32 hostwalk_done(const struct hostwalk *h);
void hostwalk_cancel(struct hostwalk *h);
