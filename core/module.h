/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. One struct module per mapped file, shared by all processes that map it. A worker
 * thread opens and parses files, so that a dead file system can stall it but never the main
 * thread; what it has published is const. All other calls belong to the main thread.
 */
#pragma once

#include "util.h"

#define BUILD_ID_MAX 20
#define MODULE_VDSO  "[vdso]"
#define MODULES_MAX  16384 /* held at a time; unreferenced ones make room, oldest first */

/* A file as a mapping names it. */
struct mapped_file {
	const char
		*path; /* as the process sees it, without " (deleted)"; MODULE_VDSO for the vdso */
	u8 build_id[BUILD_ID_MAX];
	u8 build_id_len;  /* 0: the kernel did not say */
	u32 major, minor; /* of the file's device; with ino 0: the kernel did not say */
	u64 ino;
	u32 pid; /* a process that maps it at [lo, hi): for /proc/PID/map_files; 0: none */
	u64 lo, hi;
};

enum module_state {
	MODULE_LOADING,
	MODULE_READY,
	MODULE_UNREADABLE, /* could not be opened: gone, no permission, other mount namespace */
	MODULE_REFUSED,    /* opened, but not a sound ELF file, or over a limit */
	MODULE_CHANGED,    /* what was found is not the file that was mapped */
};

/* A PT_LOAD entry. */
struct module_segment {
	u64 offset, file_size;
	u64 vaddr, mem_size;
	bool exec;
};

struct module;
struct modules;
struct table;

/*
 * symbol_bytes: budget for symbol tables of all modules; least recently used ones go first and
 * are read again on need. Starts the worker. Owned; NULL when out of memory or threads.
 */
struct modules *modules_new(size_t symbol_bytes);
/*
 * Waits for the file operation under way, for a second at most: a worker that hangs in a dead file
 * system is left behind with its memory, for the process's end. NULL is fine.
 */
void modules_free(struct modules *ms);

/*
 * The module of a mapped file: found when all that the mapping says of it is equal (build id,
 * device, inode, path: a build id alone can be forged); else made, and queued for the worker.
 * Never blocks. A new reference; NULL when out of memory, or when MODULES_MAX are referenced.
 */
struct module *modules_get(struct modules *ms, const struct mapped_file *file);
/* The same, but a new module is read for its unwind table, and for symbols only when asked. */
struct module *modules_get_unwind(struct modules *ms, const struct mapped_file *file);
struct module *module_ref(struct module *m);
/* NULL is fine. The last reference does not free a module at once: it stays cached. */
void module_put(struct module *m);
/*
 * Waits until all queued modules are settled, at most until CLOCK_MONOTONIC deadline_ns, and not
 * for a file system that does not answer. False when some are not.
 */
bool modules_settle(struct modules *ms, u64 deadline_ns);
/*
 * Whether anything asked for is still to come without a file system that does not answer having to
 * do so first. Never blocks.
 */
bool modules_working(struct modules *ms);
/* Readable (epoll, edge-triggered) when the worker has done what was asked. */
int modules_fd(const struct modules *ms);
/* Number of modules held, for tests and figures; bytes of symbol tables. */
u32 modules_count(const struct modules *ms);
size_t modules_symbol_bytes(const struct modules *ms);
/* Drops modules that nobody references and that were not used since max_age_ns. */
void modules_trim(struct modules *ms, u64 max_age_ns);

enum module_state module_state(const struct module *m);
/* MODULE_REFUSED, and it does not even begin as an ELF file does. */
bool module_is_no_elf(const struct module *m);
/* Borrowed, live as long as the module. Build id as lower-case hex, "" when there is none. */
const char *module_path(const struct module *m);
const char *module_build_id(const struct module *m);
/* The PT_LOAD that holds a file offset, executable ones first; NULL: none, not ready. Borrowed. */
const struct module_segment *module_segment(const struct module *m, u64 file_offset);
/*
 * Function at a file offset, of the sources and by the rule of elfsym.h, as linked. *ret_name is
 * borrowed and valid until the next call with ms. Returns 0, -ENOENT when no symbol covers the address (a sized
 * symbol never reaches past its size) or no symbols can be had, -EAGAIN while they are loading.
 */
int module_symbol(struct modules *ms, struct module *m, u64 file_offset, const char **ret_name);

enum module_unwind {
	MODULE_UNWIND_UNKNOWN, /* being read: ask again later */
	MODULE_UNWIND_READY,   /* module_take_unwind() has it */
	MODULE_UNWIND_NONE,    /* the file has no CFI: frame pointers are all there is */
	MODULE_UNWIND_FAILED,  /* unreadable, refused or over a limit */
};

/* Where unwind tables are cached on disk; before the first module. Returns 0 or -ENOMEM. */
int modules_set_cache(struct modules *ms, const char *dir);
/* State of the file's unwind table; asks for it at the first call. Never blocks. */
enum module_unwind module_unwind(struct modules *ms, struct module *m);
/* The table, owned by the caller (table_fini() and free()); a later module_unwind() reads it anew. */
struct table *module_take_unwind(struct module *m);
/* An executable PT_LOAD that overlaps file offsets [lo, hi); NULL: none. Borrowed. */
const struct module_segment *module_exec_segment(const struct module *m, u64 lo, u64 hi);
