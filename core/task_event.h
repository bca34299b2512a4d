/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: books. What happened to a process, or to the kernel's own code; books are kept by these. */
#pragma once

#include "util.h"
#include "module.h"

enum task_event_type {
	TASK_FORK, /* a new process; not a new thread */
	TASK_EXEC, /* pid has a new image, named comm, and no mappings yet */
	TASK_COMM, /* the main thread renamed itself to comm */
	TASK_MMAP, /* [lo, hi) is executable now */
	TASK_EXIT, /* the main thread ended; others may go on */
	TASK_LOST, /* n events are missing */
	TASK_CODE, /* of the kernel, see kallsyms_change() */
};

struct task_event {
	enum task_event_type type;
	u64 time_ns; /* CLOCK_MONOTONIC */
	u32 pid;
	u32 ppid;         /* TASK_FORK */
	u64 n;            /* TASK_LOST */
	const char *comm; /* TASK_EXEC, TASK_COMM; borrowed */
	/* TASK_MMAP: file.path borrowed; file.lo/hi/pid set; offset in the file of lo */
	struct mapped_file file;
	u64 offset;
	/* TASK_CODE; symbol and module borrowed, symbol NULL: gone */
	u64 code, code_len;
	const char *symbol, *module;
};
