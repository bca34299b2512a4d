/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Where the threads of interpreters wait. In: processes that the runtime book has
 * armed; at each tick, their threads as the kernel tells them (threads.h). Out: lists with the time
 * that was spent there. A thread that has not run since the last tick keeps its stack and costs no
 * read. Time on a CPU is the sampler's: the kernel says how much it was, the rest is charged from
 * look to look, so that late or skipped ticks, and threads that we ourselves keep off a CPU, change
 * how finely it is told apart, not how much it is. Main thread only.
 */
#pragma once

#include "util.h"
#include "threads.h"

struct process;
struct processes;
struct runtimes;
struct walker;

#define WALKER_THREADS_MAX (1u << 17)  /* of all processes */
#define WALKER_HELD_BYTES  (32u << 20) /* of stacks that wait to be charged */

/* As threads.h has them. */
struct walker_kernel {
	void *arg;
	int (*counts)(void *arg, u32 tgid, threads_fn *fn, void *fn_arg, struct threads_told *ret);
	/* NULL: the kernel reads no lists; threads are walked from outside then. */
	int (*walk)(void *arg, u32 tgid, const struct recipe_entry *entry, threads_fn *fn,
		    void *fn_arg, struct threads_told *ret);
	void (*forget)(void *arg, u32 tgid);
};

struct walker_options {
	/*
	 * Threads of this name were at this list for ns; ready: they waited for a CPU only. ns 0:
	 * the list is new, and its names can be read now. OK, or it need not be told again.
	 */
	enum verdict (*waited)(void *arg, struct process *p, u32 gen, const struct list *l,
			       const char comm[COMM_LEN], bool ready, u64 ns);
	void *arg;
	u32 (*hz)(void *hz_arg, const struct unwinder *u); /* NULL: 19 */
	void *hz_arg;
};

/* Books are borrowed. Owned; NULL: no memory. */
struct walker *walker_new(struct processes *procs, struct runtimes *runtimes,
			  const struct walker_kernel *kernel, const struct walker_options *o);
void walker_free(struct walker *w);
/* CLOCK_MONOTONIC of the next tick that has something to do. */
u64 walker_due(const struct walker *w);
/* Looks at the processes that are due, as many as its share of time allows; the rest goes first. */
void walker_tick(struct walker *w, u64 now_ns);
/* A window ends: all time that was charged is told. */
void walker_flush(struct walker *w);
/* Percent of the usual work a tick may do, 1..100. */
void walker_set_share(struct walker *w, u32 percent);

struct walker_figures {
	u64 ticks;  /* looks at a process */
	u64 same;   /* threads that had not run since */
	u64 walked; /* lists taken */
	u64 moved;  /* threads that ran while they were looked at */
	u64 late;   /* looks that had to wait for a later tick: no time, no share */
	u64 failed; /* looks that the kernel or the process refused */
	u64 cpu_ns; /* of this thread, without the naming of frames (runtime.h counts it) */
	u32 processes, threads;
	size_t held_bytes;
};
void walker_figures(const struct walker *w, struct walker_figures *ret);
