/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The stacks of all threads of one process, now. In: a pid. Out: one stack per thread,
 * in a window whose native frames are named. The process is not stopped: threads that wait are read
 * between two looks at their switch counts, those that run are sampled once. Programs are loaded only
 * for what needs them: none for waiting threads of an interpreter whose threads can be found without.
 */
#pragma once

#include "util.h"
#include "runtime.h"

struct modules;
struct window;

#define DUMP_THREADS_MAX 16384
#define NO_STACK         UINT32_MAX

struct dump_thread {
	u32 tid, ns_tid; /* initial and innermost pid namespace */
	char name[COMM_LEN * 3 + 1];
	char state; /* as in man 5 proc; 'R' also for who waits for a CPU */
	bool running;
	bool interpreted; /* the stack has frames of the runtime */
	bool cut;
	u32 stack;     /* in window.stacks, NO_STACK: none */
	char why[128]; /* then why; for people */
};

struct dump {
	u32 pid;
	char *exe, *cmdline; /* NULL: unknown */
	char runtime[256];   /* what was found or why it was refused, a sentence; "": nothing */
	const struct unwinder *unwinder; /* NULL: none */
	struct version version;
	enum verdict verdict;
	struct window *window;
	struct modules *modules;     /* of the window's frames */
	struct dump_thread *threads; /* by tid */
	u32 nthreads;
	bool more; /* threads beyond DUMP_THREADS_MAX */
};

struct dump_options {
	bool native;    /* native frames between the interpreter's, and behind them */
	bool internals; /* with native: the interpreter's own loop frames, too */
};

/* Logs. -ESRCH: there is no such process. Owned. */
int dump_new(u32 pid, const struct dump_options *o, struct dump **ret);
void dump_free(struct dump *d);
