/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. All threads of one process in one read of a kernel iterator: how often each has
 * left a CPU, its thread pointer, and, where the kernel has what it takes (6.1 and newer), the
 * interpreter's list of each thread that waits. In: a process, its recipe. Out: struct
 * thread_event, in the kernel's order. Beside sampler.c the file that knows libbpf for this.
 * Main thread only.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "unwinders/unwinder.h"

struct features;
struct reader;
struct threads;

#define THREADS_MAX       8192 /* records of one call; where more are, calls take turns */
#define THREADS_WALKS_MAX 512  /* lists of one call */

/*
 * heads_fd: sampler_heads_fd(), or -1. Logs its own errors; -EOPNOTSUPP when the kernel has no
 * iterator over threads. Owned.
 */
int threads_new(const struct features *f, struct reader *reader, int heads_fd,
		struct threads **ret);
/* NULL is fine. */
void threads_free(struct threads *t);
/* Lists can be had, not just counts. */
bool threads_can_walk(const struct threads *t);

/* One record; words: nlist * list_width. Both are only valid inside the call. */
typedef void threads_fn(void *arg, const struct thread_event *ev, const u64 *words);

struct threads_told {
	u32 told;  /* records */
	u32 same;  /* of these, threads that have not run since their list was told */
	bool more; /* the process has more threads; the next call goes on with them */
};

/*
 * Counts, states and thread pointers, as THREAD_COUNTS. A process that is gone has no threads: 0
 * and nothing told. -errno; -ENOSPC while too many runs hang.
 */
int threads_counts(struct threads *t, u32 tgid, threads_fn *fn, void *arg,
		   struct threads_told *ret);
/*
 * The same with lists. A thread that has left no CPU since its list was told by an earlier call,
 * with the same entry, comes as THREAD_SAME: what was told then still holds. Else THREAD_LIST:
 * list_end MOVED when it was or came on a CPU, and then nothing is sure; any other end is certain
 * and is held from now on. The kernel reads the process's memory; when that takes longer than
 * THREADS_WAIT_NS the run is left behind (-ETIMEDOUT), and the process is -EBUSY until it ends.
 * A run in which nothing has changed reads nothing, and takes about 6 system calls.
 */
int threads_walk(struct threads *t, u32 tgid, const struct recipe_entry *entry, threads_fn *fn,
		 void *arg, struct threads_told *ret);
#define THREADS_WAIT_NS (3 * NSEC_PER_SEC / 10)
/* Lists that were told are not held any more: the next walk tells all. */
void threads_forget(struct threads *t, u32 tgid);

/* Threads with their thread pointers, as struct runtimes_kernel wants them. */
int threads_list(void *threads, u32 tgid,
		 void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
		 void *fn_arg);

/* CPU time of the runs that took the reader's thread; what the programs took is part of it. */
u64 threads_cpu_ns(const struct threads *t);
struct program_time;
u32 threads_programs(const struct threads *t, struct program_time *ret, u32 max);
/* Bytes that the kernel holds for the maps. */
u64 threads_map_bytes(const struct threads *t);
