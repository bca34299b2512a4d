/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. The process book: images (one per exec), their executable mappings.
 * Kept by task events in time order, begun with a look at /proc. Main thread only.
 */
#pragma once

#include "util.h"
#include "task_event.h"
#include "bpf/abi.h"

#define PROCESSES_MAX        65536
#define PROCESS_MAPPINGS_MAX 65536 /* executable ones, per process */

struct process_maps;
struct processes;

/* What others may read of an image. Text is as the kernel gave it, not cleaned. */
struct process {
	u32 pid, ppid;
	u64 start_ns;    /* CLOCK_BOOTTIME of the leader's start; 0 until a sample told it */
	u64 start_ticks; /* the same in clock ticks, from /proc; 0: not read */
	u32 exec_id;
	bool id_known; /* start_ns and exec_id are */
	bool exited;   /* the main thread has ended */
	bool replaced; /* another image runs under the pid */
	bool forked;   /* born with its parent's memory, no exec since */
	u64 born_ns;   /* CLOCK_MONOTONIC of the fork or exec; 0: before us */
	u64 read_ns;   /* when /proc was read: events before it are in */
	char comm[COMM_LEN];
	char *exe;     /* path; NULL: unknown */
	char *cmdline; /* spaces between arguments; NULL: not read */
	bool cmdline_read;
	u64 maps_read_ns;
	u64 maps_version; /* grows with each change of the mappings */
	struct process_maps *maps;
	void *published;              /* tables.c: what the BPF programs know of it */
	void *identity;               /* identity.c: who it is */
	void *context;                /* context.c: where its threads say what they work on */
	void *runtime;                /* runtime.c: the interpreter in it */
	u64 runtime_seen, runtime_ns; /* likewise: mappings looked at so far, and when */
};

/* modules is borrowed. proc_root: "/proc", or a test's own. Owned; NULL when out of memory. */
struct processes *processes_new(struct modules *modules, const char *proc_root, bool with_cmdline);
void processes_free(struct processes *ps);

/* Reads all of /proc: at start, and after events were lost. Returns 0 or -errno. */
int processes_snapshot(struct processes *ps);
/* TASK_LOST asks for a snapshot, at most one in 5 s: processes_trim() makes it. */
void processes_event(struct processes *ps, const struct task_event *ev);
/*
 * The image that a sample belongs to: {tgid, start_ns, exec_id} decide, time only between images
 * that no sample has named yet. With read_proc a process that no event announced is looked up in
 * /proc, and one that is gone gets an image of its own with nothing but its thread's name.
 * Borrowed until the next processes_trim() or processes_event(); NULL when there is none.
 */
struct process *processes_find(struct processes *ps, const struct stack_key *key, u64 time_ns,
			       bool read_proc);
/*
 * The image that runs under a key's pid now, for a sample from within an exec: its number of execs
 * may be the old image's or the new one's, so nothing is concluded from it. Borrowed; may be NULL.
 */
struct process *processes_current(struct processes *ps, const struct stack_key *key);
/* The image that runs under a pid now, borrowed likewise; NULL: none that we know. */
struct process *processes_pid(struct processes *ps, u32 pid);
/* Command line, if it is wanted, read when first asked for. */
void processes_read_cmdline(struct processes *ps, struct process *p);

/*
 * Name of a thread that the process has now, by the number that the process itself has for it. 0;
 * -ENOENT when there is none, or it cannot be told for the process's pid namespace is another one.
 */
int processes_thread(struct processes *ps, const struct process *p, u32 tid, char ret[COMM_LEN]);

/* What lies at a user address. */
struct process_place {
	struct module *module; /* borrowed; NULL for memory that is no file, or an unknown file */
	const char *mapping;   /* name of it when module is NULL; borrowed */
	u64 offset;            /* in the file */
};
/* 0, or -ENOENT when no executable mapping is known there. */
int processes_locate(struct processes *ps, struct process *p, u64 addr, struct process_place *ret);

/* One executable mapping, in address order. */
struct process_mapping {
	u64 lo, hi, offset;
	bool image;            /* a file; false: memory that is none */
	const char *path;      /* borrowed */
	struct module *module; /* borrowed; NULL unless image, or when out of memory */
};
/*
 * The i-th mapping; false past the end. A file that nobody asked for yet is asked for by
 * modules_get_unwind(). Valid until the next event.
 */
bool processes_mapping(struct processes *ps, struct process *p, u32 i, struct process_mapping *ret);
/*
 * A number for the file of the i-th mapping: equal for equal files, of one run of this program. 0
 * for memory that is no file. False past the end. Asks for no module.
 */
bool processes_file(const struct process *p, u32 i, u64 *ret);
/* Called for each image before it goes; at most PROCESS_DROP_MAX. The second takes it back. */
#define PROCESS_DROP_MAX 5
void processes_on_drop(struct processes *ps, void (*fn)(void *arg, struct process *p), void *arg);
void processes_off_drop(struct processes *ps, void *arg);

/* Drops images of processes that are gone; makes the snapshot that lost events asked for. */
void processes_trim(struct processes *ps, u64 now_ns);
u32 processes_count(const struct processes *ps);
/* All images, in no order; NULL past the end. Borrowed likewise. */
struct process *processes_at(const struct processes *ps, u32 i);

/*
 * One line of /proc/PID/maps. Path lies in buf (PATH_MAX bytes hold any), unescaped. Returns 0,
 * -ENOENT for a mapping that is not executable, -EINVAL for a malformed line.
 */
int process_parse_maps_line(const char *line, size_t len, struct mapped_file *ret, u64 *ret_offset,
			    char *buf, size_t buf_size);
