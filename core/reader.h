/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Calls that may never return, made by a thread that may be left behind: reading
 * memory behind userfaultfd or FUSE, files of dead file systems. The caller waits, with a limit.
 */
#pragma once

#include "util.h"

struct reader;

#define READER_WAIT_NS     (NSEC_PER_SEC / 10)
#define READER_ABANDON_MAX 8 /* threads left behind at a time; then every call fails at once */

#define READER_MEMORY_MAX (64u << 10)

/* One thread at a time may call. Owned; NULL when out of memory or threads. */
struct reader *reader_new(void);
/* Threads that hang stay behind for the process's end. NULL is fine. */
void reader_free(struct reader *r);
/*
 * Runs fn(arg) in the reader's thread; fn does not call the reader. Not back within wait_ns (while
 * its thread runs, or only lacks a CPU: within a second), or too many threads hang already:
 * -ETIMEDOUT, and arg is the caller's no more; `drop` (may be NULL) frees it when fn returns after
 * all. Otherwise fn's result, which must be another one, and arg stays the caller's.
 */
int reader_call(struct reader *r, int (*fn)(void *arg), void *arg, void (*drop)(void *arg),
		u64 wait_ns);
/*
 * process_vm_readv of [addr, addr + len), at most READER_MEMORY_MAX: 0, -EFAULT when not all could
 * be read, -ESRCH, -EPERM, -ENOMEM, -ETIMEDOUT.
 */
int reader_memory(struct reader *r, u32 pid, u64 addr, void *dst, size_t len);
/* Threads that hang now. */
u32 reader_abandoned(const struct reader *r);
