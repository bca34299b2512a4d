/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Where the threads of a process keep what they work on: trace, span, route, for
 * readers like us (opentelemetry-specification, oteps/profiles/4947-thread-ctx.md). In: processes
 * whose published context (otel.h) says that they do. Out: the chain from a thread's pointer to its
 * record, which BPF follows when it takes a stack of the thread. Main thread only.
 *
 * The variable is the thread-local symbol otel_thread_ctx_v1 in some file's .dynsym. Where it is
 * for a thread is known from what the loader wrote for the program's own accesses (descriptors,
 * pairs of module and offset, offsets from the thread pointer), or, in the program's own block,
 * from the ABI. What is not proven in one of these ways is refused, and the log says why.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct contexts;
struct elfmem_source;
struct processes;
struct reader;

#define CONTEXT_SYMBOL "otel_thread_ctx_v1"

/*
 * From the text of /proc/PID/maps and the process's memory; fills in the chain only. NULL, or why
 * not, for people: static.
 */
const char *context_locate(const struct elfmem_source *src, const char *maps, size_t len,
			   struct context_entry *ret);

/* The kernel's side; sampler.c in the daemon. */
struct contexts_kernel {
	void *arg;
	int (*arm)(void *arg, u32 tgid, const struct context_entry *entry); /* 0 or -errno */
	void (*disarm)(void *arg, u32 tgid);
};

/* All borrowed for its life. Owned; NULL: no memory. */
struct contexts *contexts_new(struct processes *ps, struct reader *r,
			      const struct contexts_kernel *kernel);
void contexts_free(struct contexts *cs);
/* Looks at processes that are due, a few per call; a few times a second. */
void contexts_round(struct contexts *cs, u64 now_ns);
