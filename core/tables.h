/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What the BPF programs know: which files' unwind tables lie in the slabs, shared by
 * all processes that map them, and which processes' mappings are published. A process is taken in
 * when a sample hits it; least recently sampled ones give way when the byte budget is reached.
 * Main thread only.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct modules;
struct process;
struct processes;
struct tables;

/* The kernel's side; sampler.c in the daemon, plain memory in tests. */
struct tables_kernel {
	void *arg;
	void *(*grow)(void *arg, u32 slab);
	int (*publish)(void *arg, u32 tgid, const struct proc_entry *entry);
	void (*unpublish)(void *arg, u32 tgid);
	/* Returns when no program that runs now can hold what was unpublished before. */
	void (*sync)(void *arg);
};

/* The books are borrowed; processes tell this one when an image goes. Owned; NULL: no memory. */
struct tables *tables_new(struct processes *procs, struct modules *modules,
			  const struct tables_kernel *kernel, u64 max_bytes);
void tables_free(struct tables *t);
/* A sample hit this image: it is published soon, and kept while others are less recent. */
void tables_want(struct tables *t, struct process *p);
/*
 * Publishes what has become ready and what has changed; frees what no program can see any more.
 * Called a few times a second; a process whose mappings keep changing is taken once a second.
 */
void tables_round(struct tables *t, u64 now_ns);

struct tables_figures {
	u32 processes, files; /* published; with a table in the slabs */
	u64 rows, table_bytes, map_bytes, slab_bytes;
};
void tables_figures(const struct tables *t, struct tables_figures *ret);
