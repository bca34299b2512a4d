/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The only file that knows libbpf and the skeleton: loads the programs, opens a perf
 * event per CPU, hands out what they recorded. Replace it by recorded events and the line runs
 * without kernel and root.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct sampler;

struct sampler_options {
	u32 hz;
	bool kernel_frames;
	u32 max_frames;
	bool only_pids;    /* sample only sampler_add_pid()s and their children born from then on */
	u64 news_pause_ns; /* sampler_fd() tells of new processes this often at most; 0: never */
	u32 counts;        /* distinct stacks between two drains; 0: from the number of CPUs */
};

/* Loads and attaches; nothing runs before sampler_start(). Logs its own errors. Owned. */
int sampler_new(const struct sampler_options *o, struct sampler **ret);
/* Detaches and unloads; nothing stays in the kernel. NULL is fine. */
void sampler_free(struct sampler *s);

int sampler_add_pid(struct sampler *s, u32 pid);
/* Opens the events: 0, or -errno (logged). */
int sampler_start(struct sampler *s);
/* Closes the events. What was sampled can still be read. */
void sampler_stop(struct sampler *s);
/* The rate from the next sampler_start() on. */
void sampler_set_hz(struct sampler *s, u32 hz);
/* Lets CPUs that came online join, forgets those that went. True when something changed. */
bool sampler_follow_cpus(struct sampler *s);
/* Text for people: which counter drives the samples; static. */
const char *sampler_clock(const struct sampler *s);
u32 sampler_ncpus(const struct sampler *s);

/* Readable (epoll) when the ring buffer is half full. */
int sampler_fd(const struct sampler *s);
/* Each stack that waits in the ring buffer; ev is only valid inside the call. Returns 0 or -errno. */
typedef void sampler_stack_fn(void *arg, const struct stack_event *ev, size_t len);
int sampler_read_stacks(struct sampler *s, sampler_stack_fn *fn, void *arg);

/* Number of the epoch that is being counted, starting with 0. */
u64 sampler_epoch(const struct sampler *s);
/*
 * Ends the epoch: new samples go to the other map. When it returns, no program writes to the old
 * one any more. Then read the stacks, then the counts of the old epoch with sampler_read_counts().
 */
int sampler_flip(struct sampler *s);
typedef void sampler_count_fn(void *arg, const struct stack_key *key,
			      const struct stack_count *count);
int sampler_read_counts(struct sampler *s, sampler_count_fn *fn, void *arg);

/*
 * Unwind tables, as struct tables_kernel wants them; the first argument is the sampler. A slab is
 * mapped memory of SLAB_BYTES, as long as the sampler; slabs are made in order.
 */
void *sampler_grow(void *sampler, u32 slab);
int sampler_publish(void *sampler, u32 tgid, const struct proc_entry *entry);
void sampler_unpublish(void *sampler, u32 tgid);
void sampler_sync(void *sampler);

/* Distinct stacks that one epoch can hold. */
u32 sampler_capacity(const struct sampler *s);
/* Sum of a program counter over all CPUs. */
u64 sampler_stat(const struct sampler *s, enum bpf_stat stat);
/* Nanoseconds that the sampling program ran and how often; zeros without kernel statistics. */
int sampler_run_time(const struct sampler *s, u64 *ret_ns, u64 *ret_count);
/* Asks the kernel for run-time statistics while the descriptor is open. Owned; -errno. */
int sampler_enable_run_time(void);
/* Instructions the verifier walked for the sampling program; 0 when the kernel does not tell. */
u32 sampler_verified(const struct sampler *s);
/* Bytes that the kernel holds for the maps. */
u64 sampler_map_bytes(const struct sampler *s);
