/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. What happens to processes, as the kernel's perf side band tells it: fork, exec,
 * rename, executable mapping, exit; per CPU rings, put in time order. Knows perf records and
 * nothing else.
 */
#pragma once

#include "util.h"
#include "task_event.h"

struct sideband;

/* Opens a ring of ring_bytes (a power of two of pages) per online CPU. Logs. Owned. */
int sideband_new(u32 ring_bytes, struct sideband **ret);
void sideband_free(struct sideband *s);
/*
 * Opens rings of CPUs that came online, drops those that went. True when something changed: what
 * ran there in between was not seen, and /proc has to be read again.
 */
bool sideband_follow_cpus(struct sideband *s);
/* Readable (epoll) when a ring is a quarter full. */
int sideband_fd(const struct sideband *s);
/*
 * Reads all rings now. After it, sideband_next() hands out the events older than until_ns
 * (CLOCK_MONOTONIC, taken before this call) in time order; younger ones wait for the next round.
 */
int sideband_read(struct sideband *s, u64 until_ns);
/* The oldest event before the time given, or NULL; borrowed until the next call. */
const struct task_event *sideband_next(struct sideband *s, u64 before_ns);

/*
 * One perf record (header included, len bytes) as an event; strings point into the record.
 * Returns 0, -ENOENT for a record that means nothing here, -EINVAL for a malformed one.
 */
int sideband_parse(const void *record, size_t len, struct task_event *ret);
