/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The overhead guard: what a window cost -> what the next may do. Each side of the
 * profiler has its own lever:
 *
 *   on CPU    sample_hz is halved, never under 1 Hz
 *   off CPU   short waits are sampled: one shorter than T is kept with probability d / T, which
 *             halves their number with each doubling of T; and where the context switches alone
 *             cost more than the budget, which no T can help, the side is paused
 *   runtimes  the share of their stacks that is walked is halved, never under 1 %
 *
 * Over the budget one step is given up, of the side that has more to give. After three windows in
 * a row under half the budget one step is taken back, of the side that costs less: a step at most
 * doubles what its side costs, so that the same load stays within the budget afterwards. A load
 * that varies may be over it all the same: each time that a step back proves wrong soon, twice as
 * many calm windows are waited for next time (and half as many when it held long), so that the
 * guard cannot flap.
 */
#pragma once

#include "util.h"

/* Where T ends (OFFCPU_SAMPLING_MAX_NS): the cost is then bounded by the seconds of waiting. */
#define GUARD_MAX_SAMPLE_NS (4 * NSEC_PER_SEC)

enum guard_side { GUARD_CPU, GUARD_OFFCPU, GUARD_RUNTIMES, GUARD_SIDES };

struct guard_options {
	double budget; /* percent of one CPU */
	u32 hz;        /* what is configured; 0: nothing is sampled on CPU */
	bool offcpu, runtimes;
	u64 min_ns; /* shorter waits are dropped anyway */
};

enum guard_move {
	GUARD_NONE,
	GUARD_DOWN,
	GUARD_UP,
	GUARD_PAUSE, /* off CPU only */
	GUARD_RESUME,
	GUARD_HELPLESS, /* over the budget, and nothing is left to give; told once */
};

struct guard {
	struct guard_options o;
	u64 first_sample_ns; /* least T that is not 0 */
	/* What holds for the next window. */
	u32 hz;
	u64 sample_ns; /* T; 0: every wait is kept */
	bool paused;
	u32 share; /* percent */
	/* Memory. */
	u32 calm;      /* windows in a row with room */
	u32 need;      /* how many of them take a step back */
	bool on_trial; /* a step was taken back, and no window has been over the budget since */
	u32 trial;     /* windows since then */
	bool helpless;
};

/* What a window cost, in percent of one CPU. */
struct guard_cost {
	double side[GUARD_SIDES];
	double switches; /* of the off-CPU side: what is spent whether waits are kept or not */
};

void guard_init(struct guard *g, const struct guard_options *o);
/* Takes a window's cost; says what changes for the next one, in *g, and on which side. */
enum guard_move guard_window(struct guard *g, const struct guard_cost *cost,
			     enum guard_side *ret_side);
