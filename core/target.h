/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. A process as unwinders see it (unwinders/unwinder.h has the calls): live
 * (target_live.c), recorded, or both at once while a recording is made (target_tape.c). target.c
 * holds what all share: bounds, a page cache that lives for one walk, counting of reads.
 */
#pragma once

#include "util.h"
#include "unwinders/unwinder.h"

#define TARGET_READ_MAX    65536
#define TARGET_READS_MAX   4096  /* of one walk, detection or naming; over it every read fails */
#define TARGET_ASKS_MAX    65536 /* for modules, symbols, sections...; likewise */
#define TARGET_THREADS_MAX 65536
#define TARGET_MODULES_MAX \
	2048                /* the first and the last ones in address order, if there are more */
#define TARGET_NAME_MAX 128 /* of a symbol or section that is asked for, with its NUL */

struct layouts;
struct reader;

struct target_files;
struct target_pages;

/* Each answers for itself, within the bounds that target.c has checked. */
struct target_ops {
	/* 0, -EFAULT; what else is negative is told as -EFAULT. */
	int (*read)(struct target *t, u64 addr, void *dst, size_t len);
	/* Only with `direct`; as target_string(), len and size being sound. */
	int (*string)(struct target *t, u64 addr, size_t len, char *dst, size_t size);
	bool (*module)(struct target *t, u32 i, struct target_module *ret);
	u64 (*symbol)(struct target *t, u32 i, const char *name, u64 *size); /* size is not NULL */
	u64 (*section)(struct target *t, u32 i, const char *name, u64 *size);
	bool (*function)(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi);
	bool (*thread)(struct target *t, u32 i, struct target_thread *ret);
	enum target_memory (*memory)(struct target *t, u64 addr);
	void (*begin)(struct target *t); /* may be NULL, as the next */
	void (*rest)(struct target *t);
	void (*free)(struct target *t);
	bool direct; /* no page cache: each read goes through as it was asked for */
};

/* Embedded first in whatever implements the ops. */
struct target {
	const struct target_ops *ops;
	enum target_arch arch;
	u32 reads, asks; /* since target_begin() */
	bool hung;       /* a read did not come back; all later ones fail */
	struct target_pages *pages;
	const char *func, *field;      /* who reads what just now, as the source has it */
	const struct layouts *layouts; /* of the unwinder that is asked (layout.h); borrowed */
};

/* A walk begins: the page cache is emptied, the counts too. */
void target_begin(struct target *t);
/* Gives back what can be had again: pages, modules. For a target that is kept for later. */
void target_rest(struct target *t);
void target_free(struct target *t);

/* What mapped files say (sections, .symtab), kept for all targets; main thread. Owned; NULL. */
struct target_files *target_files_new(void);
void target_files_free(struct target_files *files);

/* Tells a live target's threads and their thread pointers; 0 or -errno. */
typedef void target_thread_fn(void *arg, const struct target_thread *thread);
typedef int target_threads_fn(void *arg, u32 tgid, target_thread_fn *fn, void *fn_arg);

/*
 * The process pid; reads go through the reader, which no hanging page can stall. threads may be
 * NULL: threads then come from /proc without thread pointers. files may be NULL: then what files
 * say is kept for this target only. All are borrowed for its life. Owned; -errno: -ESRCH when it is
 * gone, -ETIMEDOUT when its memory or /proc files hang.
 */
int target_live_new(u32 pid, struct reader *reader, struct target_files *files,
		    target_threads_fn *threads, void *arg, struct target **ret);
/* --- recordings ------------------------------------------------------------------------------- */

/*
 * A target whose every answer also goes into a recording: the bytes that were asked for and nothing
 * beside them, of texts up to their end. The inner target is owned from now on. Owned; 0, -ENOMEM.
 */
int target_tape_record(struct target *inner, struct target **ret);
/* A line for people, or for whoever replays: text without control characters. 0, -ENOMEM, -E2BIG. */
int target_tape_note(struct target *t, const char *key, const char *value);
/* Writes a new file, notes first, in plain text. 0 or -errno. */
int target_tape_save(struct target *t, const char *path);
/* Bytes whose content changed while they were recorded: the process ran. */
u64 target_tape_changed(const struct target *t);

/* Replays a recording. Owned; 0, -EINVAL when it is none, -E2BIG, -ENOMEM, -errno. */
int target_tape_open(const char *path, struct target **ret);
/* The same of a file's bytes; with `plain` the body is not compressed. */
int target_tape_parse(const u8 *data, size_t len, bool plain, struct target **ret);
/* The note, NULL when there is none; borrowed. */
const char *target_tape_noted(const struct target *t, const char *key);
/* What was asked first of all that the recording lacks: a sentence. False: it lacks nothing. */
bool target_tape_missing(const struct target *t, char *dst, size_t size);
/* Takes the i-th range of bytes out of a recording; false: there are fewer. For tests. */
bool target_tape_cut(struct target *t, u32 i, u64 *addr, size_t *len);
