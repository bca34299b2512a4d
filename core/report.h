/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. What a window was like, for people: losses by name, how stacks ended, what
 * profiling cost. As pprof comments, as a log line.
 */
#pragma once

#include "util.h"
#include "cost.h"
#include "stat.h"

struct profile;
struct window;

#define REPORT_LINES 11
#define REPORT_TEXT  512

struct report {
	u64 stats[STAT_MAX]; /* at the window's start */
	bool sidecar;        /* of the host, only our own pid namespace is profiled */
	/* Set by report_end(). */
	struct cost cost;
	u64 due, kept, outside;
	char text[REPORT_LINES][REPORT_TEXT];
	const char *lines[REPORT_LINES];
	u32 nlines;
};

void report_begin(struct report *r);
/*
 * Takes the window's cost, fills its counts in, and makes the comment lines. offcpu_min_ns: as it
 * is configured.
 */
void report_end(struct report *r, const struct cost *c, const struct window *w, u64 offcpu_min_ns);
/* After the struct was copied: `lines` are its own. */
void report_moved(struct report *r);
/* One line for the log. */
void report_line(const struct report *r, const struct window *w, char *dst, size_t size);
/* "samples_kept 3, lost_busy 1": counters that grew since report_begin(); "none". */
void report_changes(const struct report *r, char *dst, size_t size);
/*
 * "complete 61.0 %, cut ... 2.0 %": samples by how their stack ended, of one profile, or of the
 * whole window (p NULL).
 */
void report_ends(const struct window *w, const struct profile *p, char *dst, size_t size);
/* Likewise what became of interpreters' stacks; empty when there was none. */
void report_lists(const struct window *w, const struct profile *p, char *dst, size_t size);
/* Puts the profile's own shares into the last comment line, for each profile in turn. */
void report_profile(struct report *r, const struct window *w, const struct profile *p);
/*
 * What a sample on CPU stands for in this window: the mean where the rate changed within it.
 * hz: what to go by when there is none.
 */
u64 report_period(const struct window *w, u32 hz);
