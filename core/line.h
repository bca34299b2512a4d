/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. From events to windows, wherever the events come from: the kernel (agent.c) or a
 * recording (tests). Events are given in time order; an epoch's stacks before its counts.
 */
#pragma once

#include "util.h"
#include "fold.h"
#include "task_event.h"

struct line;
struct identities;
struct kallsyms;
struct perfmaps;
struct modules;
struct process;
struct processes;
struct runtimes;
struct tables;

struct line_options {
	u64 period_ns; /* what one sample stands for */
	bool with_cmdline;
	const char *service;           /* one profile of this name for all; NULL: one per service */
	struct runtimes *runtimes;     /* borrowed; NULL: interpreters stay native */
	struct perfmaps *perfmaps;     /* borrowed; NULL: code made at run time unnamed */
	struct identities *identities; /* borrowed; NULL: services are executables */
	bool internals;                /* their own loop frames are shown, too */
	bool lock_only;                /* of waits, those for locks only */
	bool wait_tables;              /* user stacks of waits are walked by tables */
};

/* Books are borrowed; tables and kallsyms may be NULL. Owned; NULL when out of memory. */
struct line *line_new(struct processes *procs, struct tables *tables,
		      const struct kallsyms *kallsyms, const struct line_options *o);
void line_free(struct line *l);
void line_set_period(struct line *l, u64 period_ns);

/*
 * A new epoch begins: its samples go into the window of the one before, or into a fresh one.
 * At most two epochs are open. Returns 0 or -ENOMEM.
 */
int line_open_epoch(struct line *l, u64 epoch, bool new_window, u64 now_realtime_ns);
/*
 * One distinct stack. Returns 0; -EAGAIN when its process is not known yet and last_try is false:
 * give it again after later task events. Losses are counted when the stack's count comes.
 */
int line_stack(struct line *l, const struct stack_event *ev, size_t len, bool last_try);
void line_count(struct line *l, u64 epoch, const struct stack_key *key,
		const struct stack_count *count);
/*
 * One or more events of a stack that was given before, at a time by CLOCK_REALTIME. Those of a lost
 * stack are counted as lost.
 */
void line_mark(struct line *l, const struct sample_mark *mark, u64 realtime_ns);
/*
 * Stacks of a process that come from now on are kept in `w`, too, and so are their marks, at most
 * max of them, and no others. start_ns 0: not known yet. Borrowed until line_watch(l, NULL, ...). A
 * stack that an epoch knew before is in it from the next epoch on.
 */
void line_watch(struct line *l, struct window *w, u32 tgid, u64 start_ns, u32 max);
/*
 * A thread of a runtime waited for ns where this list says, for a CPU only when ready; comm need
 * not be terminated.
 * UNWIND_OK, or why nothing was added. ns 0: nothing is, but names are read.
 */
enum verdict line_waited(struct line *l, u64 epoch, struct process *p, u32 gen,
			 const struct list *list, const char comm[COMM_LEN], bool ready, u64 ns);
/* Distinct stacks of an open epoch so far. */
u32 line_epoch_stacks(const struct line *l, u64 epoch);
/*
 * Ends an epoch. Returns its window, closed and owned by the caller, when no open epoch uses it
 * any more; else NULL.
 */
struct window *line_close_epoch(struct line *l, u64 epoch, u64 now_realtime_ns);
