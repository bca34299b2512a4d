/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Off-CPU time: loads and attaches bpf/offcpu.bpf.c in the best way that the kernel
 * has, and hands out what it recorded. Stacks come through the sampler's ring buffer like all
 * others, counts through maps of its own, in the sampler's epochs. That it cannot be loaded does no
 * harm to sampling.
 */
#pragma once

#include "util.h"
#include "counts.h"
#include "openwaits.h"
#include "sampler.h"

struct offcpu;
struct reader;

/* How user stacks are taken, best first. */
enum offcpu_mode {
	OFFCPU_TASK_WORK,  /* by the thread itself, when its wait is over */
	OFFCPU_INTERRUPT,  /* in an interrupt right after the switch to it */
	OFFCPU_SWITCH_OUT, /* when it leaves, of a share of all waits */
	OFFCPU_MODES,
};

struct offcpu_options {
	u64 min_ns;     /* shorter waits are dropped; 0: none is */
	bool tables;    /* user stacks by tables, else by frame pointers */
	bool lock;      /* futexes and who holds them become part of the key */
	bool lock_only; /* and no other wait is of interest */
	bool kernel_frames;
	bool marks;          /* as the sampler's */
	bool thread_context; /* likewise */
	bool only_pids;      /* the sampler's choice */
	u64 min_age_ns;      /* likewise */
	u32 max_frames;
	u64 news_pause_ns;     /* as the sampler's */
	struct reader *reader; /* for stacks of threads that still wait; borrowed */
};

/*
 * Loads. The sampler is borrowed for longer than this lives. EBPFPROFILER_OFFCPU=MODE,T in the
 * environment asks for one mode by its number and for a threshold, for tests. Returns 0 or -errno (not logged: *why says it in
 * words, static).
 */
int offcpu_new(struct sampler *s, const struct offcpu_options *o, struct offcpu **ret,
	       const char **why);
void offcpu_free(struct offcpu *o);
/* Attaches; threads that wait already are taken as if they began now. Returns 0 or -errno. */
int offcpu_start(struct offcpu *o);
/* Detaches; gives threads a moment for what they were left to do. */
void offcpu_stop(struct offcpu *o);

enum offcpu_mode offcpu_mode(const struct offcpu *o);
const char *offcpu_mode_text(enum offcpu_mode mode);

#define OFFCPU_SAMPLING_MAX_NS (4 * NSEC_PER_SEC)

/*
 * Waits shorter than threshold_ns are kept with a probability and weighted, so that sums stay right
 * in expectation; 0: all are kept. OFFCPU_SWITCH_OUT: one in threshold / minimum of all waits.
 */
void offcpu_set_sampling(struct offcpu *o, u64 threshold_ns);
u64 offcpu_sampling(const struct offcpu *o);
/* Of a wait to be looked at at all; below 1 only with OFFCPU_SWITCH_OUT. */
double offcpu_probability(const struct offcpu *o);

/* To be called a few times a second. */
void offcpu_round(struct offcpu *o);
/* After sampler_flip(): the counts of the epoch that is over. Returns 0 or -errno. */
int offcpu_read_counts(struct offcpu *o, counts_fn *fn, void *arg);
u32 offcpu_capacity(const struct offcpu *o);
/*
 * Charges waits that are open to `epoch` up to until_ns: all, or those of one process (tgid not 0).
 * Returns 0 or -errno.
 */
int offcpu_open_waits(struct offcpu *o, u32 tgid, u64 until_ns, u64 epoch, openwaits_fn *fn,
		      void *arg);
/* Waits whose stacks their threads are still to take; they are in no count yet. */
u64 offcpu_pending(const struct offcpu *o);

struct offcpu_cost {
	u64 switch_ns; /* looking at switches, from a share of them */
	u64 kept_ns;   /* of switch_ns: for waits that are kept */
	u64 stack_ns;  /* taking stacks in interrupts */
	u64 work_ns;   /* in the threads that waited, those that could not be timed at the mean */
	u64 own_ns;    /* this thread: stacks of threads that still wait */
	u64 work_runs, switches;
};
void offcpu_cost(const struct offcpu *o, struct offcpu_cost *ret);
u32 offcpu_programs(const struct offcpu *o, struct program_time *ret, u32 max);
u64 offcpu_map_bytes(const struct offcpu *o);
