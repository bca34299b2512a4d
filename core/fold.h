/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. A window: interned strings, locations, stacks and label sets, and one profile per
 * service and sample type. In: struct sample. Out: struct window for the pprof room. Everything a
 * window points to lies in it or is referenced by it, and dies with it.
 */
#pragma once

#include "util.h"
#include "identity.h"
#include "stack.h"

#define WINDOW_MAX_LOCATIONS (1u << 22)
#define WINDOW_MAX_STACKS    (1u << 20)
#define WINDOW_MAX_PROFILES  (1u << 16)
#define WINDOW_MAX_SAMPLES   (1u << 20) /* of all profiles together */
#define WINDOW_MAX_FRAMES    (1u << 24) /* of all stacks, and of all samples' stacks */
/*
 * Label sets with what threads worked on, of which each span makes another. Once there are so many,
 * further stacks go without it, and are counted.
 */
#define WINDOW_MAX_CONTEXTS (1u << 14)
#define WINDOW_MAX_EVENTS   (1u << 21)
#define WINDOW_MAX_TEXT     (64u << 20) /* bytes of all strings */

/* A distinct frame. Names of native frames are filled in by names_resolve() (names.h). */
struct location {
	enum frame_kind kind;
	u64 address;           /* as in struct frame */
	struct module *module; /* a reference of the window's; NULL unless FRAME_NATIVE */
	const char *mapping;
	const char *func;   /* NULL: unnamed */
	const char *linked; /* the mangled name that func was made of; NULL: none */
	const char *file;
	u32 line; /* FRAME_RUNTIME; 0: unknown */
	u64 map;  /* as in struct frame */
};

struct stack {
	u32 first, n; /* in window.frames */
	enum stack_end end;
	enum sample_list list;
};

/* Labels that tell who a process is, each NULL when not known. */
struct identity_set {
	const char *label[IDENTITY_MAX];
};

struct label_set {
	const char *exe, *cmdline /* or NULL */, *thread;
	u64 identity; /* in window.identities */
	u32 pid;
	u32 nlabels;
	struct sample_label labels[SAMPLE_LABELS_MAX + SAMPLE_CONTEXT_MAX];
};

struct profile_sample {
	u32 stack, labels; /* indices in the window */
	u64 count;
	u64 value_ns;
};

struct profile {
	const struct sample_type *type;
	const char *service;
	const char *container; /* that all its samples are of; "": of none, or of several */
	struct profile_sample *samples;
	u32 nsamples, cap;
};

/* When samples of a place were taken; a wait: when it ended. */
struct window_event {
	u64 time_ns; /* CLOCK_REALTIME, as the window's own */
	u64 ns;      /* all of them together: CPU time, or time waited */
	u32 n;       /* how many */
	u32 tid;
	u32 profile, sample; /* which place */
};

struct window {
	u64 start_ns, end_ns; /* CLOCK_REALTIME; end set by the caller when it closes the window */
	struct location *locations;
	u32 nlocations;
	u32 *frames; /* pool of location indices, leaf first per stack */
	u32 nframes;
	struct stack *stacks;
	u32 nstacks;
	struct label_set *labels;
	u32 nlabels;
	struct identity_set *identities;
	u32 nidentities;
	struct profile *profiles;
	u32 nprofiles;
	struct window_event *events; /* only when asked for; in no order */
	u32 nevents, events_cap;
	u64 ends[STACK_END_MAX];      /* on-CPU samples by how their stack ended */
	u64 lists[SAMPLE_LIST_MAX];   /* and by what became of the interpreter's stack */
	u64 wait_ends[STACK_END_MAX]; /* the same for types that count waits */
	struct fold_index *index;     /* private to fold.c */
};

struct window *window_new(u64 start_ns);
void window_free(struct window *w);

/* Where a sample's counts go: stays valid for the window's life. */
struct fold_ref {
	u32 profile, sample;
};

/*
 * Makes the sample's place in the window (count 0), or finds it. Returns 0, -ENOMEM, or -E2BIG
 * when a WINDOW_MAX_* is reached; the window is then unchanged as far as readers can tell.
 */
int fold_add(struct window *w, const struct sample *s, struct fold_ref *ret);
/* Adds to a place; wraps never (saturates). */
void fold_count(struct window *w, struct fold_ref ref, u64 count, u64 value_ns);
/* Another event at a place; profile and sample of ev are not looked at. 0, -ENOMEM or -E2BIG. */
int fold_event(struct window *w, struct fold_ref ref, const struct window_event *ev);
/* Interned copy, as long as the window; NULL when out of memory or over WINDOW_MAX_TEXT. */
const char *window_string(struct window *w, const char *s);
