/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Every loss has a name. One list: counter, and what it tells a person.
 * Counters only grow; any thread may add. Shown in the log (changes, once a minute at most), in
 * `record`'s last line and on /metrics.
 */
#pragma once

#include "util.h"

#define STAT_LIST(X)                                                                               \
	X(samples_due, "sampling program ran")                                                     \
	X(samples_kept, "samples that went into a profile")                                        \
	X(samples_left_out, "samples of processes that the filter, or their own wish, leaves out") \
	X(samples_passed_over, "samples not taken of them, once that was known")                   \
	X(samples_outside, "samples of what runs outside our own pid namespace; not taken")        \
	X(lost_counts_full, "samples lost: map of distinct stacks full")                           \
	X(lost_ring_full, "samples lost: ring buffer full")                                        \
	X(lost_busy, "samples lost: kernel map busy under the sample")                             \
	X(lost_scratch_busy, "samples lost: sample interrupted a sample")                          \
	X(lost_exit, "samples lost: the thread, or profiling, ended before its stack was taken")   \
	X(lost_fold_full, "samples lost: window full")                                             \
	X(waits_due, "waits of the minimum length and more")                                       \
	X(waits_kept, "waits that went into a profile")                                            \
	X(waits_left_out, "waits of such processes")                                               \
	X(waits_sampled_out, "short waits left out; others stand for them")                        \
	X(wait_lost_counts_full, "waits lost: map of distinct stacks full")                        \
	X(wait_lost_ring_full, "waits lost: ring buffer full")                                     \
	X(wait_lost_busy, "waits lost: kernel map busy")                                           \
	X(wait_lost_scratch, "waits lost: too many stacks taken at once")                          \
	X(wait_lost_exit,                                                                          \
	  "waits lost: the thread, or profiling, ended before its stack was taken")                \
	X(wait_lost_moved, "waits lost: their end was not seen")                                   \
	X(wait_lost_fold_full, "waits lost: window full")                                          \
	X(waits_no_place, "waits not seen, short and long: too many threads")                      \
	X(waits_no_user, "waits without their user stack: too many at once")                       \
	X(marks_lost, "events without their time: ring buffer or time line full")                  \
	X(lock_lost, "waits for locks missing in the profile of locks: window full")               \
	X(open_waits_later, "open waits left to a later window: too many at once")                 \
	X(open_waits_moved,                                                                        \
	  "open waits that ended while they were looked at; charged at their end")                 \
	X(open_waits_hung, "processes left alone for a minute: reading their memory hung")         \
	X(pages_fetched, "pages that threads fetched for stacks cut by them")                      \
	X(pages_refused, "pages not fetched: over the budget, or not the kernel's to serve")       \
	X(sideband_lost, "process events lost by the kernel; /proc was read again")                \
	X(sideband_bad, "process events that could not be parsed")                                 \
	X(process_unknown, "stacks of a process that was gone before it was seen")                 \
	X(process_refused, "processes not tracked: too many")                                      \
	X(mapping_refused, "mappings not tracked: too many in one process")                        \
	X(maps_line_bad, "lines of /proc/PID/maps that could not be parsed")                       \
	X(no_access, "processes whose /proc files could not be read: permission")                  \
	X(identity_hung, "processes whose environment was not read: their memory did not answer")  \
	X(module_unreadable, "mapped files that could not be opened")                              \
	X(module_refused, "mapped files refused: not a sound ELF file, or too large")              \
	X(module_changed, "mapped files that had changed or were replaced when read")              \
	X(module_hung, "mapped files whose file system did not answer; left behind")               \
	X(perfmap_refused,                                                                         \
	  "names of code made at run time not read: the file is not to be trusted, or hangs")      \
	X(names_late, "frames left without a name: their file was not read in time")               \
	X(unwind_refused, "mapped files without an unwind table: damaged or over a limit")         \
	X(unwind_evicted, "unwind tables evicted to stay under table_memory_mb")                   \
	X(unwind_no_room, "unwind tables that found no room under table_memory_mb")                \
	X(publish_failed, "processes whose mappings the kernel could not be told")                 \
	X(stack_cut, "stacks cut at the frame limit")                                              \
	X(stack_stopped, "stacks that ended at a failed check")                                    \
	X(runtime_refused, "processes whose runtime cannot be read: see doctor")                   \
	X(runtime_no_room, "processes whose recipe found no room in the kernel")                   \
	X(runtime_left_alone, "processes left alone for a while: reading them failed")             \
	X(runtime_stale, "runtime stacks dropped: the process was looked at anew since")           \
	X(runtime_torn, "runtime stacks refused: half-made, or not as the version has it")         \
	X(runtime_apart, "runtime stacks kept apart from the native ones")                         \
	X(contexts_dropped, "stacks without what their thread worked on: too many spans at once")  \
	X(wall_lost, "waiting stacks of runtimes lost: window full")                               \
	X(wall_no_room, "waiting threads of runtimes not held: too many")                          \
	X(names_refused, "names of functions not read: too many")                                  \
	X(profiles_written, "profiles written to the store")                                       \
	X(profiles_removed, "profiles removed from the store to stay under max_mb")                \
	X(profiles_failed, "profiles that could not be written")                                   \
	X(upload_due, "profiles handed over to be sent, once per server")                          \
	X(upload_parts, "profiles sent in parts: parts more than profiles")                        \
	X(upload_sent, "profiles accepted by the server")                                          \
	X(upload_retried, "attempts to send that failed and will be tried again")                  \
	X(upload_refused, "profiles refused by the server for good and dropped")                   \
	X(upload_too_large, "profiles dropped: too large for the server, even in parts")           \
	X(upload_rejected, "profiles that a server rejected out of what it accepted")              \
	X(spool_expired, "profiles dropped from the spool: older than spool_hours")                \
	X(spool_dropped, "profiles dropped from the full spool, oldest first")                     \
	X(spool_bad, "spool files set aside: damaged")                                             \
	X(config_reloads, "configurations taken over while running")                               \
	X(config_refused, "configurations not taken over: the file is wrong, or cannot be had")    \
	X(remote_failed, "remote configurations not had: no answer, or a refused one")             \
	X(remote_ignored, "keys of remote configurations that mean nothing here")                  \
	X(cpu_over_budget, "windows over cpu_budget; the rate was lowered")                        \
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
