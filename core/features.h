/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What this kernel has and what it has not, found out once: by what its type
 * information (BTF) names and by cheap system calls, never by its version number. Whoever has two
 * ways of doing something chooses by this; `doctor` prints it. In: nothing but the host, or a BTF
 * blob. Out: a plain struct; "false" is always the safe answer.
 */
#pragma once

#include "util.h"

/* How bpf_task_work_schedule_resume has to be declared and called. */
enum features_task_work {
	TASK_WORK_NONE,
	TASK_WORK_IMPL,  /* 6.18: ..._resume_impl(task, tw, map, cb, NULL), 5 arguments */
	TASK_WORK_PLAIN, /* 7.0 and newer: ..._resume(task, tw, map, cb), 4 arguments */
};

/* Versions are where upstream has it from; for people only. */
struct features {
	bool btf; /* the kernel's BTF could be read; without it all that follows is false */

	/* Helpers and maps that programs may use. */
	bool ring_buffer;         /* BPF_MAP_TYPE_RINGBUF, 5.8 */
	bool task_pt_regs;        /* bpf_task_pt_regs and bpf_get_current_task_btf, 5.15 */
	bool attach_cookie;       /* bpf_get_attach_cookie, 5.15 */
	bool loop;                /* bpf_loop, 5.17 */
	bool find_vma;            /* bpf_find_vma, 5.17 */
	bool copy_from_user;      /* bpf_copy_from_user, sleepable programs, 5.10 */
	bool copy_from_user_task; /* bpf_copy_from_user_task, sleepable programs, 5.18 */
	bool task_storage;        /* BPF_MAP_TYPE_TASK_STORAGE in tracing programs, 5.12 */
	bool timer;               /* bpf_timer_init, 5.15 */
	bool arena;               /* BPF_MAP_TYPE_ARENA, 6.9 */
	bool iter_num;            /* bpf_iter_num_new, open-coded iterators, 6.4 */
	enum features_task_work task_work;

	/* Where programs can be attached. */
	bool perf_link;          /* a BPF link on a perf event, 5.15; libbpf falls back by itself */
	u32 sched_switch_args;   /* of tp_btf/sched_switch: 3, or 4 with the state before, 5.18 */
	bool own_interrupt;      /* tracepoint of interrupts that a CPU sends itself */
	bool iter_task;          /* iter/task, 5.8 */
	bool iter_task_filtered; /* link_info.task.{tid,pid,pid_fd}, 6.1 */
	bool iter_task_sleeps;   /* iter.s/task, 5.18 */
	bool iter_task_vma;      /* iter/task_vma, 5.12 */
	bool kprobe;             /* perf events of type kprobe */
	bool uprobe;             /* perf events of type uprobe */
	bool kprobe_multi;       /* one link for many kernel functions, 5.18 */
	bool uprobe_multi;       /* one link for many places of a file, 6.6 */

	/* System calls. Zero when it is there, else the -errno that says why not. */
	int batch_error;    /* reading and emptying a hash map in batches, 5.6 */
	int build_id_error; /* build ids in PERF_RECORD_MMAP2, 5.12 */
	int cycles_error;   /* the hardware counter of cycles as sampling event */

	bool memlock;        /* maps and programs count as locked memory, before 5.11 */
	bool verified_insns; /* bpf_prog_info.verified_insns, 5.16 */
	bool jit;            /* programs run compiled */
};

/* This host's, probed at the first call and unchanged from then on; static, never NULL. */
const struct features *features_host(void);

/* Probes this host. Returns 0, or -errno when its BTF cannot be read; *ret is filled anyway. */
int features_probe(struct features *ret);

/* Only what BTF tells, from a blob as /sys/kernel/btf/vmlinux is one. 0 or -errno. */
int features_from_btf(const void *btf, size_t size, struct features *ret);

/*
 * Arguments of a kernel function that programs may call (kfunc), as BTF declares it; -ENOENT when
 * there is no such function, -errno when the kernel's BTF cannot be read. For what the struct has
 * no field for: slow (some milliseconds).
 */
int features_kfunc_args(const char *name);
