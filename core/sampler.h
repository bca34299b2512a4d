/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The only file that knows libbpf and the skeleton: loads the programs, opens a perf
 * event per CPU, hands out what they recorded. Replace it by recorded events and the line runs
 * without kernel and root.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "counts.h"

struct sampler;

struct sampler_options {
	u32 hz;
	bool kernel_frames;
	u32 max_frames;
	bool marks;          /* each event's time is told, besides; see sampler_mark_process() */
	bool thread_context; /* stacks carry what their threads work on */
	bool only_pids;    /* sample only sampler_add_pid()s and their children born from then on */
	u64 min_age_ns;    /* processes younger than that are not sampled */
	u64 news_pause_ns; /* sampler_fd() tells of new processes this often at most; 0: never */
	u32 counts;        /* distinct stacks between two drains; 0: from the number of CPUs */
};

/* Loads and attaches; nothing runs before sampler_start(). Logs its own errors. Owned. */
int sampler_new(const struct sampler_options *o, struct sampler **ret);
/* Detaches and unloads; nothing stays in the kernel. NULL is fine. */
void sampler_free(struct sampler *s);
/* What libbpf says goes to the debug log; once, before it is first used. */
void sampler_take_log(void);

int sampler_add_pid(struct sampler *s, u32 pid);
/*
 * The image of this start and number of execs is not sampled any more, nor are children that it has
 * from then on until they exec; or it is again. Not with only_pids. 0 or -errno.
 */
int sampler_leave_out(struct sampler *s, u32 tgid, u64 start_ns, u32 exec_id, bool out);
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
/* Who gets the times of events, each after its stack, while stacks are read. NULL: nobody. */
typedef void sampler_mark_fn(void *arg, const struct sample_mark *mark);
void sampler_take_marks(struct sampler *s, sampler_mark_fn *fn);
/* Without sampler_options.marks: whose events are told from now on; 0: nobody's. */
void sampler_mark_process(struct sampler *s, u32 tgid);

/* Number of the epoch that is being counted, starting with 0. */
u64 sampler_epoch(const struct sampler *s);
/*
 * Ends the epoch: new samples go to the other map. When it returns, no program writes to the old
 * one any more. Then read the stacks, then the counts of the old epoch with sampler_read_counts().
 */
int sampler_flip(struct sampler *s);
int sampler_read_counts(struct sampler *s, counts_fn *fn, void *arg);

/*
 * Unwind tables, as struct tables_kernel wants them; the first argument is the sampler. A slab is
 * mapped memory of SLAB_BYTES, as long as the sampler; slabs are made in order.
 */
void *sampler_grow(void *sampler, u32 slab);
int sampler_publish(void *sampler, u32 tgid, const struct proc_entry *entry);
void sampler_unpublish(void *sampler, u32 tgid);
void sampler_sync(void *sampler);

/*
 * Recipes, as struct runtimes_kernel wants them; the first argument is the sampler. From then on
 * each sample of the image carries its thread's list. head: RECIPE_TID; 0 removes it.
 */
int sampler_arm(void *sampler, u32 tgid, const struct recipe_entry *entry);
void sampler_disarm(void *sampler, u32 tgid);
int sampler_head(void *sampler, u32 tid, u64 head);
/* Where threads keep their contexts, as struct contexts_kernel wants it, with the option only. */
int sampler_context_arm(void *sampler, u32 tgid, const struct context_entry *entry);
void sampler_context_disarm(void *sampler, u32 tgid);
/* The map of heads, for threads_new(); borrowed. */
int sampler_heads_fd(const struct sampler *s);

/* Distinct stacks that one epoch can hold. */
u32 sampler_capacity(const struct sampler *s);
/* Sum of a program counter over all CPUs. */
u64 sampler_stat(const struct sampler *s, enum bpf_stat stat);
/* Nanoseconds that the sampling program ran and how often; zeros without kernel statistics. */
int sampler_run_time(const struct sampler *s, u64 *ret_ns, u64 *ret_count);
/* The same of each loaded program, by name. Returns how many, at most max. */
struct program_time {
	char name[16]; /* as bpftool shows it */
	u64 ns, runs;
};
u32 sampler_programs(const struct sampler *s, struct program_time *ret, u32 max);
/* Of one program; false when the kernel does not tell. */
bool program_time(int fd, struct program_time *ret);
/* Asks the kernel for run-time statistics while the descriptor is open. Owned; -errno. */
int sampler_enable_run_time(void);
/* Instructions the verifier walked for the sampling program; 0 when the kernel does not tell. */
u32 sampler_verified(const struct sampler *s);
/* Bytes that the kernel holds for the maps. */
u64 sampler_map_bytes(const struct sampler *s);

/* For offcpu.c, whose object shares maps: the descriptor of one by name, borrowed; -ENOENT. */
int sampler_map(const struct sampler *s, const char *name);
/* The memory of a slab; NULL: there is none. The first argument is the sampler. */
const u8 *sampler_slab(const void *sampler, u32 slab);
/* What all objects have to know of the machine. */
u64 sampler_address_mask(void); /* bits of a return address that count */
u64 sampler_thread_size(void);  /* of a kernel stack, where the kernel does not tell */
u64 sampler_ring_wake(const struct sampler *s); /* waiting bytes that wake us */
/* Nanoseconds that threads spent on stacks of theirs that a missing page had cut. */
u64 sampler_work_ns(const struct sampler *s);
/* Samples whose stacks their threads are still to take; they are in no count yet. */
u64 sampler_pending(const struct sampler *s);
