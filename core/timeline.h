/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. A window's events as a time line, one of them for each sample and each wait, by
 * thread: as a trace for Perfetto, or as a profile for the Firefox Profiler. In: a window whose
 * events were asked for (struct window_event) and whose frames are named.
 */
#pragma once

#include "util.h"

struct window;
struct window_event;
struct label_set;

enum timeline_format { TIMELINE_PERFETTO, TIMELINE_FIREFOX };

struct timeline_options {
	enum timeline_format format;
	u32 hz;
	const char *host;
	bool gzip; /* both viewers unpack it themselves */
	/* Lines for people, as in struct pprof_options; Perfetto's format has no place for them. */
	const char *const *comments;
	u32 ncomments;
};

/* *ret is an owned buffer of *ret_len bytes. Returns 0 or -ENOMEM. */
int timeline_encode(const struct window *w, const struct timeline_options *o, u8 **ret,
		    size_t *ret_len);

/* --- what the two writers share --------------------------------------------------------------- */

struct timeline_thread {
	u32 pid, tid;
	const struct label_set *labels; /* of its youngest event: names change */
	u32 first, n;                   /* in timeline.events, by time */
};

struct timeline {
	const struct window *w;
	const struct timeline_options *o;
	const struct window_event **events; /* thread by thread */
	struct timeline_thread *threads;    /* by process */
	u32 nthreads;
	FILE *out;
};

const struct label_set *timeline_labels(const struct window *w, const struct window_event *ev);
u32 timeline_stack(const struct window *w, const struct window_event *ev);
bool timeline_waited(const struct window *w, const struct window_event *ev);
/* When the event began: a wait before its end, a sample when it was taken. */
u64 timeline_begin(const struct window *w, const struct window_event *ev);
/* The label's value, or NULL. */
const char *timeline_label(const struct label_set *l, const char *key);
/* File or memory that a frame lies in; an interpreter's: "[interpreter]". Borrowed. */
const char *timeline_mapping(const struct window *w, u32 location);
/* The function; a frame without a name gets its place in the file. Bounded, in buf if need be. */
#define TIMELINE_NAME 512
const char *timeline_name(const struct window *w, u32 location, char buf[TIMELINE_NAME]);

/* The writers: to t->out. 0 or -ENOMEM. */
int timeline_write_perfetto(const struct timeline *t);
int timeline_write_firefox(const struct timeline *t);
