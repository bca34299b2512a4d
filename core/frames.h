/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What unwinders push (the frames_ calls of unwinders/unwinder.h) becomes an array of
 * frames; names are kept per process image, so that each is read once. In: keys and, for unknown
 * ones, names as a process has them. Out: struct runtime_frames, text clean and bounded.
 */
#pragma once

#include "util.h"
#include "unwinders/unwinder.h"

#define FRAME_KEYS_MAX    200000      /* of one image; then "[too many names]" */
#define FRAME_NAMES_BYTES (64u << 20) /* of all images, keys included */
#define FRAME_FUNC_MAX    512         /* bytes of a name */
#define FRAME_FILE_MAX    1024
#define FRAME_LABEL_MAX   256

#define RUNTIME_FRAMES_MAX (2 * RECIPE_NODES_MAX) /* inlined ones and marks included */
#define RUNTIME_LABELS_MAX 2

#define FRAME_GONE 0x80 /* flags of a frame: its object was another one when it was to be named */

struct runtime_frame {
	const char *func; /* never NULL */
	const char *file; /* NULL: unknown */
	u32 line;         /* 0: unknown */
	u8 flags;         /* FRAME_C, FRAME_UNSURE, FRAME_GONE */
};

/* Frames of one list, leaf first; text is borrowed until the next walk. */
struct runtime_frames {
	struct runtime_frame frames[RUNTIME_FRAMES_MAX];
	u32 n;
	u32 segment[RUNTIME_FRAMES_MAX]; /* run i of the loop ends before frame segment[i] */
	u32 nsegments;                   /* boundaries seen */
	u32 switched; /* runs up to the first frames_switch(); UINT32_MAX: there was none */
	bool cut;     /* the list did not reach its end */
	struct {
		const char *key;
		char value[FRAME_LABEL_MAX];
	} labels[RUNTIME_LABELS_MAX];
	u32 nlabels;
};

/* Bytes that all images' names take together. All zero but max is a fresh one. */
struct frame_names;

struct frame_names_total {
	size_t bytes, max;
	/* Makes room by clearing names other than `keep`; may be NULL. */
	void (*evict)(void *arg, const struct frame_names *keep);
	void *arg;
};

struct frame_names;

/* Owned; NULL: no memory. total is borrowed. */
struct frame_names *frame_names_new(struct frame_names_total *total);
void frame_names_free(struct frame_names *names);
void frame_names_clear(struct frame_names *names);
size_t frame_names_bytes(const struct frame_names *names);
u32 frame_names_count(const struct frame_names *names);
/* No further name finds room: clearing it would help. */
bool frame_names_full(const struct frame_names *names);

/* What an unwinder is given. Everything is private to frames.c. */
struct frames {
	struct frame_names *names;
	struct runtime_frames *out;
	struct frame_key key; /* of the frame that waits for its name */
	u8 flags;
	bool waits;
	bool labels_wanted;
	bool no_reads; /* names that are not known stay so: too many were read of late */
	u32 refused;   /* names that found no room, or no time */
};

/* One walk: frames go into *out, which is emptied. */
void frames_begin(struct frames *f, struct frame_names *names, struct runtime_frames *out);
/* A frame that waits for its name gets none. */
void frames_end(struct frames *f);
