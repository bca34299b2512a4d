/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Every loss has a name. One list: counter, and what it tells a person.
 * Counters only grow; any thread may add. Shown in the log (changes, once a minute at most), in
 * `record`'s last line and, later, on /metrics.
 */
#pragma once

#include "util.h"

#define STAT_LIST(X)                                                                       \
	X(samples_due, "sampling program ran")                                             \
	X(samples_kept, "samples that went into a profile")                                \
	X(lost_counts_full, "samples lost: map of distinct stacks full")                   \
	X(lost_ring_full, "samples lost: ring buffer full")                                \
	X(lost_busy, "samples lost: kernel map busy under the sample")                     \
	X(lost_scratch_busy, "samples lost: sample interrupted a sample")                  \
	X(lost_fold_full, "samples lost: window full")                                     \
	X(sideband_lost, "process events lost by the kernel; /proc was read again")        \
	X(sideband_bad, "process events that could not be parsed")                         \
	X(process_unknown, "stacks of a process that was gone before it was seen")         \
	X(process_refused, "processes not tracked: too many")                              \
	X(mapping_refused, "mappings not tracked: too many in one process")                \
	X(maps_line_bad, "lines of /proc/PID/maps that could not be parsed")               \
	X(no_access, "processes whose /proc files could not be read: permission")          \
	X(module_unreadable, "mapped files that could not be opened")                      \
	X(module_refused, "mapped files refused: not a sound ELF file, or too large")      \
	X(module_changed, "mapped files that had changed or were replaced when read")      \
	X(module_hung, "mapped files whose file system did not answer; left behind")       \
	X(unwind_refused, "mapped files without an unwind table: damaged or over a limit") \
	X(unwind_evicted, "unwind tables evicted to stay under table_memory_mb")           \
	X(unwind_no_room, "unwind tables that found no room under table_memory_mb")        \
	X(publish_failed, "processes whose mappings the kernel could not be told")         \
	X(stack_cut, "stacks cut at the frame limit")                                      \
	X(stack_stopped, "stacks that ended at a failed check")                            \
	X(profiles_written, "profiles written to the store")                               \
	X(profiles_removed, "profiles removed from the store to stay under max_mb")        \
	X(profiles_failed, "profiles that could not be written")                           \
	X(upload_sent, "profiles accepted by the server")                                  \
	X(upload_retried, "attempts to send that failed and will be tried again")          \
	X(upload_refused, "profiles refused by the server for good and dropped")           \
	X(spool_dropped, "profiles dropped from the full spool, oldest first")             \
	X(spool_bad, "spool files set aside: damaged")                                     \
	X(cpu_over_budget, "windows over cpu_budget; the rate was lowered")                \
	X(no_memory, "work skipped: out of memory")

enum stat_id {
#define X(name, help) STAT_##name,
	STAT_LIST(X)
#undef X
		STAT_MAX,
};

void stat_add(enum stat_id stat, u64 n);
u64 stat_get(enum stat_id stat);
/* The counter's name and its sentence; static strings. */
const char *stat_name(enum stat_id stat);
const char *stat_help(enum stat_id stat);

static inline void stat_inc(enum stat_id stat)
{
	stat_add(stat, 1);
}
