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

/* Owned; NULL when out of memory or threads. */
struct reader *reader_new(void);
/* Threads that hang stay behind for the process's end. NULL is fine. */
void reader_free(struct reader *r);
/*
 * Runs fn(arg) in the reader's thread. When it does not return within wait_ns: -ETIMEDOUT, and the
 * thread is left behind with arg, which is freed by `drop` when fn returns after all. Otherwise fn's
 * result, and arg stays the caller's.
 */
int reader_call(struct reader *r, int (*fn)(void *arg), void *arg, void (*drop)(void *arg),
		u64 wait_ns);
/* process_vm_readv of [addr, addr + len): 0, -EFAULT when not all could be read, -ETIMEDOUT. */
int reader_memory(struct reader *r, u32 pid, u64 addr, void *dst, size_t len);
/* Threads that hang now. */
u32 reader_abandoned(const struct reader *r);
