/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Which runtime a process has, what came of detecting it, its recipe in the kernel,
 * and the names of its frames. In: images that samples hit, lists that walks kept. Out: frames.
 * The registry of unwinders is asked here and nowhere else. Main thread only.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "unwinders/unwinder.h"

struct frame;
struct process;
struct processes;
struct reader;
struct runtime; /* one armed or refused image */
struct runtimes;

/* The kernel's side; sampler.c and threads.c in the daemon, plain memory in tests. */
struct runtimes_kernel {
	void *arg;
	int (*arm)(void *arg, u32 tgid, const struct recipe_entry *entry);
	void (*disarm)(void *arg, u32 tgid);
	int (*head)(void *arg, u32 tid, u64 head); /* RECIPE_TID; 0 removes */
	/* Threads of a process with their thread pointers (target_threads_fn of target.h). */
	int (*threads)(void *arg, u32 tgid,
		       void (*fn)(void *fn_arg, const struct target_thread *thread), void *fn_arg);
};

struct runtimes_options {
	/* Is this unwinder, by one of its words, switched on; borrowed config behind arg. */
	bool (*enabled)(void *arg, const struct unwinder *u, const char *word);
	void *arg;
	u32 threads_max; /* of one process, told to the kernel */
};

/* All borrowed for the book's life. Owned; NULL: no memory. */
struct runtimes *runtimes_new(struct processes *procs, struct reader *reader,
			      const struct runtimes_kernel *kernel,
			      const struct runtimes_options *o);
void runtimes_free(struct runtimes *rs);

/* The registry, in a stable order; NULL past the end. */
const struct unwinder *unwinder_at(u32 i);
const char *verdict_text(enum verdict v);

/* A sample hit this image: detected soon. */
void runtimes_want(struct runtimes *rs, struct process *p);
/* Detects, checks, arms: a bounded piece of work at a time; a few times a second. */
void runtimes_round(struct runtimes *rs, u64 now_ns);
/* NULL while nothing is known of it, or it is no runtime's. Borrowed until the image goes. */
struct runtime *runtime_of(struct runtimes *rs, const struct process *p);
struct runtime *runtimes_next(struct runtimes *rs, struct runtime *after); /* all of them */

/* What is known of one. text: one plain sentence for people. */
struct runtime_info {
	const struct unwinder *unwinder;
	struct version version;
	enum verdict verdict; /* UNWIND_OK: armed */
	u32 pid;
	u32 gen; /* of its recipe */
	struct recipe recipe;
	struct code_range loops[UNWINDER_LOOPS];
	u32 nloops;
	u64 lists[UNWIND_VERDICT_MAX]; /* lists by what came of them */
};
void runtime_info(const struct runtime *r, struct runtime_info *ret);
void runtime_describe(const struct runtime *r, char *dst, size_t size);

#define RUNTIME_FRAMES_MAX RECIPE_NODES_MAX
#define RUNTIME_LABELS_MAX 2

/* Frames of one list; names are borrowed until the image goes. */
struct runtime_frames {
	struct frame *frames; /* RUNTIME_FRAMES_MAX, the caller's */
	u32 n;
	u32 segment[RUNTIME_FRAMES_MAX]; /* segment i ends before frame segment[i] */
	u32 nsegments;                   /* boundaries seen */
	bool cut;                        /* the list did not reach its end */
	struct {
		const char *key, *value;
	} labels[RUNTIME_LABELS_MAX];
	u32 nlabels;
};
/* Turns a list into frames; counts what came of it. UNWIND_OK, UNWIND_IDLE or the refusal. */
enum verdict runtime_frames(struct runtimes *rs, struct runtime *r, const struct list *l,
			    struct runtime_frames *ret);
