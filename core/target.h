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
#define TARGET_READS_MAX   4096 /* of one walk, detection or naming; over it every read fails */
#define TARGET_THREADS_MAX 65536

struct reader;

/* Each answers for itself; memory is read in whole pages when wanted by the cache. */
struct target_ops {
	int (*read)(struct target *t, u64 addr, void *dst,
		    size_t len); /* 0 or -EFAULT, -ETIMEDOUT */
	bool (*module)(struct target *t, u32 i, struct target_module *ret);
	u64 (*symbol)(struct target *t, u32 i, const char *name, u64 *size);
	u64 (*section)(struct target *t, u32 i, const char *name, u64 *size);
	bool (*function)(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi);
	bool (*thread)(struct target *t, u32 i, struct target_thread *ret);
	enum target_memory (*memory)(struct target *t, u64 addr);
	void (*free)(struct target *t);
};

/* Embedded first in whatever implements the ops. */
struct target {
	const struct target_ops *ops;
	enum target_arch arch;
	u32 reads; /* since target_begin() */
	bool hung; /* a read did not come back; all later ones fail */
	struct target_page *pages;
};

/* A walk begins: the page cache is emptied, the count of reads too. */
void target_begin(struct target *t);
void target_free(struct target *t);

/* Tells a live target's threads and their thread pointers; 0 or -errno. */
typedef void target_thread_fn(void *arg, const struct target_thread *thread);
typedef int target_threads_fn(void *arg, u32 tgid, target_thread_fn *fn, void *fn_arg);

/*
 * The process pid; reads go through the reader, which no hanging page can stall. threads may be
 * NULL: threads then come from /proc without thread pointers. Owned; -errno.
 */
int target_live_new(u32 pid, struct reader *reader, target_threads_fn *threads, void *arg,
		    struct target **ret);
/*
 * A live target whose every answer also goes into a recording; strings that are read as text stay,
 * all else that was read stays as the pages' touched bytes. The inner target is owned from now on.
 */
int target_tape_record(struct target *inner, struct target **ret);
/* Adds what is to be replayed besides the target's answers. */
void target_tape_note(struct target *t, const char *key, const char *value);
int target_tape_save(struct target *t, const char *path);
/* Replays a recording; a read outside it is -ENODATA and remembered. Owned. */
int target_tape_open(const char *path, struct target **ret);
int target_tape_parse(const u8 *data, size_t len, struct target **ret);
const char *target_tape_noted(const struct target *t, const char *key);
/* First read that the recording lacks: true, and where. */
bool target_tape_missing(const struct target *t, u64 *addr, size_t *len);
