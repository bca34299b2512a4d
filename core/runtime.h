/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Which runtime a process has, what came of detecting it, its recipe in the kernel,
 * and the names of its frames. In: images that samples hit, lists that walks kept. Out: frames.
 * The registry of unwinders is asked here and nowhere else. Main thread only.
 */
#pragma once

#include "util.h"
#include "frames.h"
#include "bpf/abi.h"
#include "unwinders/unwinder.h"

struct layouts;
struct process;
struct processes;
struct reader;
struct runtime; /* one image that has a runtime, armed or refused */
struct runtimes;
struct target_files;

#define UNWINDERS_MAX 32

/* --- the registry ---------------------------------------------------------------------------- */

/* By name; NULL past the end. The first call checks them all and aborts: our own bug. */
const struct unwinder *unwinder_at(u32 i);
u32 unwinder_index(const struct unwinder *u);
const char *verdict_text(enum verdict v);   /* a sentence without subject; static */
const char *list_end_text(enum list_end e); /* static */

/* --- one process, live or recorded ------------------------------------------------------------ */

/* What the configuration says; arg is borrowed. All members may be NULL: everything is on. */
struct runtime_choice {
	bool (*enabled)(void *arg, const struct unwinder *u, const char *word);
	const struct layouts *(*layouts)(void *arg, const struct unwinder *u); /* NULL: none */
	bool (*labels)(void *arg, const struct unwinder *u);                   /* wanted */
	void *arg;
};

struct runtime_found {
	const struct unwinder *unwinder; /* NULL: none; the rest is then zero */
	struct version version;
	enum verdict verdict; /* UNWIND_OK: what follows is there */
	const char *word;     /* of the configuration that this version hangs on; NULL: none */
	void *state;
	struct recipe recipe; /* head RECIPE_NO_HEAD: no list */
	struct code_range loops[UNWINDER_LOOPS];
	u32 nloops;
};

/*
 * Asks all unwinders that are on: the first one that says OK, else the first refusal. Reads are
 * bounded whatever the process is. Ended with runtime_found_fini().
 */
void runtime_detect(struct target *t, const struct runtime_choice *choice,
		    struct runtime_found *ret);
void runtime_found_fini(struct runtime_found *found);
/* Recipe and loops anew, from a state that passed its self-check; OK, or BAD_LAYOUT. */
enum verdict runtime_prepare(struct runtime_found *found);
/*
 * Where threads' walks begin, as the unwinder tells it (struct unwinder.heads); tid is the process's
 * own, innermost. UNWIND_NOT_MINE: it cannot tell.
 */
enum verdict runtime_heads(struct target *t, const struct runtime_found *found,
			   void (*fn)(void *arg, u32 tid, u64 head), void *arg);
/*
 * The same walk for threads whose thread pointer nobody knows, but whose head runtime_heads() told:
 * a RECIPE_TID one. False when there is none.
 */
bool runtime_recipe_by_tid(const struct recipe *r, struct recipe *ret);
/*
 * Frames of one list of a process that was found OK: frames_begin() was called. Returns UNWIND_OK,
 * UNWIND_IDLE or the refusal; without OK there are no frames.
 */
enum verdict runtime_list(struct target *t, const struct runtime_found *found, const struct list *l,
			  struct frames *f);
/* What an unwinder's heads() tells (RECIPE_TID); tid is the process's own, innermost. */
struct heads {
	void (*fn)(void *arg, u32 tid, u64 head);
	void *arg;
};
/* "TITLE 3.13.5: this version is not supported"; without anything found, an empty text. */
void runtime_found_text(const struct runtime_found *found, char *dst, size_t size);

/* --- the book -------------------------------------------------------------------------------- */

/* The kernel's side; sampler.c and threads.c in the daemon, plain memory in tests. */
struct runtimes_kernel {
	void *arg;
	int (*arm)(void *arg, u32 tgid, const struct recipe_entry *entry);
	void (*disarm)(void *arg, u32 tgid);
	int (*head)(void *arg, u32 tid, u64 head); /* RECIPE_TID; 0 removes */
	/*
	 * Threads of a process with their thread pointers; tid is the initial namespace's, the
	 * struct has the innermost. NULL: nobody knows thread pointers. 0 or -errno.
	 */
	int (*threads)(void *arg, u32 tgid,
		       void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
		       void *fn_arg);
	/* Instead of target_live_new() and now_monotonic(), for tests; may be NULL. */
	int (*target)(void *arg, u32 tgid, struct target **ret);
	u64 (*now)(void *arg);
};

/* All borrowed for the book's life. Owned; NULL: no memory. */
struct runtimes *runtimes_new(struct processes *procs, struct reader *reader,
			      const struct runtimes_kernel *kernel,
			      const struct runtime_choice *choice);
void runtimes_free(struct runtimes *rs);

/* A sample hit this image, or it is asked for: detected soon, and kept armed. */
void runtimes_want(struct runtimes *rs, struct process *p);
/* Detects, checks, arms: a bounded piece of work at a time; a few times a second. */
void runtimes_round(struct runtimes *rs, u64 now_ns);
/* Images that wait to be looked at. */
u32 runtimes_queued(const struct runtimes *rs);
/* NULL while nothing is known of it, or it is no runtime's. Borrowed until the image goes. */
struct runtime *runtime_of(const struct process *p);
struct runtime *runtimes_next(struct runtimes *rs, struct runtime *after); /* all of them */

/* What is known of one. */
struct runtime_info {
	struct process *process;
	const struct runtime_found *found; /* borrowed */
	bool armed;                        /* the kernel has its recipe */
	bool left_alone;                   /* it failed too often; for a while */
	u32 gen;                           /* of its recipe */
	u64 lists[UNWIND_VERDICT_MAX];     /* lists by what came of them */
};
void runtime_info(const struct runtime *r, struct runtime_info *ret);
/* What the unwinder told of a thread (RECIPE_TID), as the kernel was told; 0: nothing. */
u64 runtime_head(const struct runtime *r, u32 tid);
/* The process's memory, for walks from outside; NULL while it is left alone or gone. Borrowed. */
struct target *runtime_target(struct runtimes *rs, struct runtime *r);

/*
 * Turns a list that was taken with recipe `gen` into frames; counts what came of it. UNWIND_OK,
 * UNWIND_IDLE or the refusal; without OK there are no frames.
 */
enum verdict runtime_frames(struct runtimes *rs, struct runtime *r, u32 gen, const struct list *l,
			    struct runtime_frames *ret);
/* Names one address of code made at run time: UNWIND_OK and frames, or not. */
enum verdict runtime_resolve(struct runtimes *rs, struct runtime *r, u64 ip,
			     struct runtime_frames *ret);

/* Lists of all processes by what came of them, and processes by verdict, since the start. */
struct runtimes_figures {
	u64 lists[UNWINDERS_MAX][UNWIND_VERDICT_MAX];
	u64 found[UNWINDERS_MAX][UNWIND_VERDICT_MAX];
	u32 armed;
	size_t name_bytes;
	u64 cpu_ns; /* of this thread, for detecting and naming */
};
void runtimes_figures(const struct runtimes *rs, struct runtimes_figures *ret);
u64 runtimes_cpu_ns(const struct runtimes *rs); /* of them */
