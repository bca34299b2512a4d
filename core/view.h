/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Stored profiles, read again: parsed, filtered and merged into one call tree, with
 * two sides when two sets of profiles are compared. In: bytes of pprof files, ours or anybody's.
 * Out: a tree, its functions and labels, for the page, `tree`, `folded` and `top`. Memory is
 * bounded by the VIEW_*_MAX whatever the files hold. One thread per view.
 */
#pragma once

#include "util.h"
#include "htab.h"
#include "strtab.h"

#define VIEW_SIDES       2
#define VIEW_NODES_MAX   (1u << 19)
#define VIEW_SYMBOLS_MAX (1u << 18)
#define VIEW_LABELS_MAX  (1u << 14)  /* distinct label values */
#define VIEW_TEXT_MAX    (24u << 20) /* bytes of all names */
#define VIEW_NAME_MAX    1024        /* bytes of one; longer ones are cut */
#define VIEW_DEPTH_MAX   1024        /* frames of one stack; more are left out at the leaf's end */
#define VIEW_FILE_MAX    (32u << 20) /* of a file, unpacked */
#define VIEW_MEMORY_MAX  (96u << 20) /* for one file while it is read */
#define VIEW_FILTERS_MAX 8
#define VIEW_TYPES_MAX   8
#define VIEW_NOTES_MAX   16
#define VIEW_NONE        UINT32_MAX

/* What a frame is of; the page colours by it. */
enum view_kind { VIEW_NATIVE, VIEW_KERNEL, VIEW_RUNTIME, VIEW_CODE, VIEW_UNKNOWN, VIEW_LABEL };

/* Texts are the view's, valid UTF-8 without control and bidirectional marks; never NULL. */
struct view_symbol {
	const char *name, *file;
	const char *group; /* mapped file, source file or "[kernel]": what it belongs to */
	enum view_kind kind;
	u32 line;
};

struct view_node {
	u32 parent, symbol;
	u32 first, next; /* children by weight, set by view_finish(); VIEW_NONE: none */
	u64 self[VIEW_SIDES], total[VIEW_SIDES];
};

/* Node 0 is the root, without symbol. Parents come before their children. */
struct view_tree {
	struct view_node *nodes;
	u32 n, cap;
	struct htab by_key;
	bool full; /* stacks were cut where no node was left */
};

struct view_label {
	const char *key, *value;
	u64 sum[VIEW_SIDES];
};

/* A function's share, wherever it is called; recursion counts once. */
struct view_row {
	u32 symbol;
	u64 self[VIEW_SIDES], total[VIEW_SIDES];
};

struct view_filter {
	const char *key, *value;
};

/* Strings are borrowed while the view lives. */
struct view_options {
	const char *type;     /* sample type; NULL: the file's own default */
	const char *root_key; /* label whose value is the first frame of each stack; NULL: none */
	bool no_kernel;       /* without frames of the kernel */
	struct view_filter filters[VIEW_FILTERS_MAX]; /* samples need all of these labels */
	u32 nfilters;
};

struct view {
	struct view_options o;
	struct strtab texts;
	struct view_symbol *symbols;
	u32 nsymbols, symbols_cap;
	struct htab symbols_by_key;
	struct view_tree tree;
	struct view_label *labels;
	u32 nlabels, labels_cap;
	struct htab labels_by_key;
	const char *types[VIEW_TYPES_MAX]; /* that the files have */
	u32 ntypes;
	const char *type, *unit; /* shown; "" until a file was added */
	u64 period;              /* of the youngest file */
	const char *notes[VIEW_NOTES_MAX];
	u32 nnotes; /* comments of the youngest file */
	s64 notes_ns;
	s64 start_ns[VIEW_SIDES], end_ns[VIEW_SIDES]; /* of all files; 0: none */
	u32 files[VIEW_SIDES];
	bool cut; /* something found no room */
};

struct view *view_new(const struct view_options *o);
void view_free(struct view *v);
static inline void view_freep(struct view **v)
{
	view_free(*v);
}
/*
 * Adds a profile, packed by gzip or not, to a side. Returns 0, -EBADMSG when it is none,
 * -E2BIG over VIEW_FILE_MAX or VIEW_MEMORY_MAX, -ENOMEM; then nothing of it was added, or, without
 * memory, a part. A file without the wanted type adds nothing but its types.
 */
int view_add(struct view *v, u32 side, const void *data, size_t len);
/* Reads such a file. */
int view_add_file(struct view *v, u32 side, int dir_fd, const char *path);
/* Sums up and orders; once, after the last file. */
int view_finish(struct view *v);

/* Functions by weight; owned array of *ret_n. */
int view_table(const struct view *v, struct view_row **ret, u32 *ret_n);
/*
 * Who calls the functions of this name (root: the function, then its callers), and what they call.
 * Ended by view_tree_fini().
 */
int view_callers(const struct view *v, const char *name, struct view_tree *ret);
int view_callees(const struct view *v, const char *name, struct view_tree *ret);
void view_tree_fini(struct view_tree *t);
/*
 * The total that a node needs, so that about `max` nodes of a tree have it: not more, unless so
 * many are equal that without them there would be next to nothing.
 */
int view_threshold(const struct view_tree *t, u32 max, u64 *ret);
/* Weight of a node for ordering and pruning: the sum of both sides. */
u64 view_weight(const struct view_node *n);

/* Root-first lines "a;b;c N" of one side. 0 or -errno. */
int view_write_folded(const struct view *v, u32 side, FILE *out);
struct view_text_options {
	double min_share; /* percent of all that a line needs */
	u32 max_lines, max_depth;
};
/* An indented call tree with shares, chains of single callees in one line each. */
int view_write_text(const struct view *v, const struct view_text_options *o, FILE *out);
/* A picture that stands alone: no script, no reference to anything. */
int view_write_svg(const struct view *v, u32 width, FILE *out);
/* What is in the tree as one pprof file: names and stacks, no labels, no addresses. Owned. */
int view_write_pprof(const struct view *v, u32 side, u8 **ret, size_t *ret_len);
/* "1.24 s", "87 %", "12" in the view's unit. */
void view_amount(const struct view *v, u64 value, char *dst, size_t size);

/* --- for readers of files (view_pprof.c) ------------------------------------------------------- */

/* A text as it may be shown anywhere; NULL: no room. */
const char *view_text(struct view *v, const char *s, size_t len);
/* VIEW_NONE: no memory. Without room all that is new is one symbol that says so. */
u32 view_symbol(struct view *v, const struct view_symbol *s);
/* Symbols root first. */
int view_stack(struct view *v, u32 side, const u32 *symbols, u32 n, u64 weight);
int view_count_label(struct view *v, u32 side, const char *key, const char *value, u64 weight);
