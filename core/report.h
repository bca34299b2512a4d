/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. What a window was like, for people: losses by name, how stacks ended, what
 * profiling cost. As pprof comments, as a log line.
 */
#pragma once

#include "util.h"
#include "agent.h"
#include "stat.h"

struct profile;
struct window;

#define REPORT_LINES 8

struct report {
	/* At the window's start. */
	u64 stats[STAT_MAX];
	struct agent_cost cost;
	u64 mono_ns;
	/* Set by report_end(). */
	double seconds, user_percent, bpf_percent; /* of one CPU */
	u64 due, kept;
	char text[REPORT_LINES][256];
	const char *lines[REPORT_LINES];
	u32 nlines;
};

void report_begin(struct report *r, struct agent *a);
/* Fills in the figures and the comment lines; hz is the window's rate. */
void report_end(struct report *r, struct agent *a, const struct window *w, u32 hz);
/* "ring_full 3, busy 1": counters of the list that grew since report_begin(), lost_ ones or all. */
void report_changes(const struct report *r, bool only_losses, char *dst, size_t size);
/*
 * "complete 61.0 %, cut ... 2.0 %": samples by how their stack ended, of one profile, or of the
 * whole window (p NULL).
 */
void report_ends(const struct window *w, const struct profile *p, char *dst, size_t size);
/* Puts the profile's own shares into the last comment line, for each profile in turn. */
void report_profile(struct report *r, const struct window *w, const struct profile *p);
