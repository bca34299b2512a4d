/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Waits that are still open when a window ends are charged to it up to that moment. In:
 * records of the kernel's iterator over threads, and the slots that programs and we share. Out: one
 * stack and its share of the time for each. A thread that waits stands still, so its stack is read
 * from here, once per wait: as long as it goes on, later windows cost two loads and an exchange.
 *
 * A wait is charged by moving its slot's `from` on: if that fails the wait has ended, and whoever
 * ended it has charged all of it. So nothing is charged twice, and nothing is lost: what is not
 * charged now is charged later.
 */
#pragma once

#include "util.h"
#include "hostwalk.h"
#include "bpf/abi.h"

struct openwaits;
struct reader;

#define OPENWAITS_A_WINDOW 4096                /* stacks read */
#define OPENWAITS_TIME_NS  (NSEC_PER_SEC / 4)  /* and how long that may take */
#define OPENWAITS_BYTES    (32u << 20)         /* stacks remembered */
#define OPENWAITS_LEFT_NS  (60 * NSEC_PER_SEC) /* a process whose memory hung is left alone */

struct openwaits_options {
	struct reader *reader;   /* borrowed */
	struct wait_slot *slots; /* shared with the programs; borrowed */
	u32 nslots;
	u32 max_frames;
	u64 addr_mask;
	bool tables; /* else by frame pointers */
	hostwalk_slab_fn *slab;
	const void *slab_arg;
	/* What is published of a tgid, for tables: 0 or -errno. */
	int (*image)(void *arg, u32 tgid, struct proc_entry *ret);
	void *arg;
};

/* Owned; NULL when out of memory. */
struct openwaits *openwaits_new(const struct openwaits_options *o);
void openwaits_free(struct openwaits *w);
/* One record of the iterator; len as it came. Returns 0, -EINVAL, -E2BIG over the limit, -ENOMEM. */
int openwaits_add(struct openwaits *w, const struct open_wait *o, size_t len);
/* The record's length by what its first bytes say; 0: malformed. */
size_t openwaits_record_len(const struct open_wait *o);

/* ev lives until the call returns. */
typedef void openwaits_fn(void *arg, const struct stack_event *ev, size_t len,
			  const struct stack_count *count);
/*
 * Charges all waits, known and added, up to CLOCK_MONOTONIC until_ns; epoch goes into the events.
 * tgid: only those of one process, and no others must have been added; 0: all.
 */
void openwaits_charge(struct openwaits *w, u32 tgid, u64 until_ns, u64 epoch, openwaits_fn *fn,
		      void *arg);
/* Waits that are remembered. */
u32 openwaits_known(const struct openwaits *w);
/* CPU time of reading stacks, in a thread of its own. */
u64 openwaits_cpu_ns(const struct openwaits *w);
