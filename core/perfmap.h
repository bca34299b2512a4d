/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Names of code made at run time, from the /tmp/perf-PID.map that a JIT writes: of
 * the process's own mount and pid namespace, believed only when it is a regular file, not a link,
 * that the process's user or root owns and nobody else may write. Read as it grows; the newest
 * entry of an address wins. Main thread only; files are read through the reader.
 */
#pragma once

#include "util.h"

#define PERFMAP_BYTES_MAX   (256u << 20) /* of one file; what is behind is not read */
#define PERFMAP_ENTRIES_MAX (1u << 20)   /* of one process */
#define PERFMAP_LINE_MAX    4096         /* longer lines are skipped */
#define PERFMAP_NAME_MAX    512          /* longer names are cut */
#define PERFMAPS_TEXT_MAX   (32u << 20)  /* names of one process */
#define PERFMAPS_BYTES_MAX  (96u << 20)  /* of all processes; who is not asked about makes room */

struct reader;

/* One file's content: pure, for tests and fuzzing. */
struct perfmap;

struct perfmap *perfmap_new(size_t max_text);
void perfmap_free(struct perfmap *m);
/*
 * More of the file; lines may be cut anywhere. "START SIZE name" in hex, with or without 0x; what
 * is no such line, or wraps, is skipped and counted. Returns 0, -ENOMEM, -E2BIG when a limit is
 * reached (what was taken in stays).
 */
int perfmap_feed(struct perfmap *m, const char *data, size_t len);
/* Name of the newest entry that covers addr; valid UTF-8; NULL: none. Borrowed until fed again. */
const char *perfmap_lookup(struct perfmap *m, u64 addr);
size_t perfmap_bytes(const struct perfmap *m);
u32 perfmap_entries(const struct perfmap *m);
u64 perfmap_bad_lines(const struct perfmap *m);

/* --- of all processes ----------------------------------------------------------------------- */

struct perfmaps;
struct process;

/* reader is borrowed. proc_root: "/proc", or a test's own. Owned; NULL: no memory. */
struct perfmaps *perfmaps_new(struct reader *reader, const char *proc_root);
void perfmaps_free(struct perfmaps *pm);
/*
 * Name of an address in code that process made at run time; NULL while unknown: its map is then
 * read soon. Borrowed until perfmaps_round(). *ret_id: for perfmaps_find() later, 0: none.
 */
const char *perfmaps_lookup(struct perfmaps *pm, const struct process *p, u64 addr, u64 *ret_id);
/* The same, of a process that may be gone by now. */
const char *perfmaps_find(struct perfmaps *pm, u64 id, u64 addr);
/* What is missing is read by the next round, however short ago the last reading was. */
void perfmaps_hurry(struct perfmaps *pm, u64 id);
/* Whether names may be missing because the map is still to be read on. */
bool perfmaps_behind(const struct perfmaps *pm, u64 id);
/*
 * Reads on, a bounded piece; forgets processes that nobody asked about for a while. A map that is
 * not there is looked for less and less often, and a large one read on less often.
 */
void perfmaps_round(struct perfmaps *pm, u64 now_ns);
/* Processes held, and bytes that their names take, for tests and figures. */
u32 perfmaps_count(const struct perfmaps *pm);
size_t perfmaps_bytes(const struct perfmaps *pm);
/*
 * Opens the map of a process as above: a descriptor, or -errno: -ENOENT none, -ELOOP a link,
 * -EPERM not to be trusted (not a regular file, owner, mode, more than one name). May block.
 */
int perfmap_open(const char *proc_root, u32 pid);
