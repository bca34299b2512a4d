/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The only header that BPF programs and user space share: what a sample's key looks like, what a
 * stack looks like in the ring buffer, limits, and how a stack can end.
 */
#pragma once

#include <linux/types.h>
#include <stddef.h>

#include "bpf/recipe_abi.h"

#define COMM_LEN          16
#define MAX_KERNEL_FRAMES 127
#define MAX_USER_FRAMES   512
#define COUNTS_DECLARED   16384 /* entries of a map of counts where none else are allowed */
#define OPEN_WAIT_REGS    34    /* arm64: x0..x30, sp, pc, pstate; x86-64 has 21 */
#define LIST_WORDS_MAX    (RECIPE_NODES_MAX * RECIPE_WIDTH_MAX)

/*
 * How the user part of a stack ended: what it means. GUESSED reached the first frame like COMPLETE,
 * but with a frame pointer step where a table should have been.
 */
#define STACK_END_LIST(X)                                                \
	X(COMPLETE, "complete")                                          \
	X(NO_USER, "kernel thread, no user stack")                       \
	X(GUESSED, "complete, in part guessed from frame pointers")      \
	X(CUT, "cut at the frame limit")                                 \
	X(BAD_FP, "frame pointer outside the stack or not growing")      \
	X(BAD_CFA, "table leads down the stack or out of it")            \
	X(NO_RULE, "function whose frame cannot be described")           \
	X(NO_REGISTER, "frame needs a register that is not known there") \
	X(JIT, "ended in code made at run time, without frame pointers") \
	X(UNREADABLE, "stack memory not readable")                       \
	X(NOT_EXEC, "return address not in executable memory")           \
	X(COMPAT, "32-bit process, not unwound")                         \
	X(NOT_RESIDENT, "stack page not resident")                       \
	X(NOT_TAKEN, "user stack not taken: too many at once")           \
	X(MOVED, "thread ran while its stack was read")

enum stack_end {
#define X(name, text) STACK_END_##name,
	STACK_END_LIST(X)
#undef X
		STACK_END_MAX,
};

/*
 * Counters that the programs keep per CPU. Sampling: DUE = samples counted + all LOST ones. Waits:
 * WAITS_DUE = waits counted + all WAIT_LOST ones, weighted where short ones are sampled. Times are
 * the programs' own: RUN_NS of sampling, WAIT_NS of taking stacks of waits, SWITCH_NS of looking at
 * each switch, of which every SWITCH_TIMED-th is timed, WAIT_KEPT_NS the part of it that goes to
 * waits that are kept. Work is what threads do themselves on their
 * way to user space: of WORK_RUNS, WORK_TIMED were not interrupted and took WORK_NS.
 */
#define BPF_STAT_LIST(X)      \
	X(DUE)                \
	X(RUN_NS)             \
	X(FILTERED)           \
	X(LEFT_OUT)           \
	X(LOST_COUNTS_FULL)   \
	X(LOST_BUSY)          \
	X(LOST_SCRATCH_BUSY)  \
	X(LOST_EXIT)          \
	X(WORK_RUNS)          \
	X(WORK_TIMED)         \
	X(WORK_NS)            \
	X(PAGES_FETCHED)      \
	X(PAGES_REFUSED)      \
	X(WAITS_DUE)          \
	X(WAIT_STACKS)        \
	X(WAIT_NO_USER)       \
	X(WAIT_LOST_FULL)     \
	X(WAIT_LOST_BUSY)     \
	X(WAIT_LOST_SCRATCH)  \
	X(WAIT_LOST_EXIT)     \
	X(WAIT_LOST_MOVED)    \
	X(WAITS_SAMPLED_OUT)  \
	X(SWITCHES)           \
	X(WAIT_NO_PLACE)      \
	X(WAIT_NS)            \
	X(SWITCH_NS)          \
	X(WAIT_WORK_RUNS)     \
	X(WAIT_WORK_TIMED)    \
	X(WAIT_WORK_NS)       \
	X(WAIT_PAGES_FETCHED) \
	X(WAIT_PAGES_REFUSED) \
	X(WAIT_KEPT_NS)       \
	X(MARKS_LOST)         \
	X(OUTSIDE)

#define SWITCH_TIMED 251 /* a prime: no rhythm of the load is in step with it */

enum bpf_stat {
#define X(name) BPF_STAT_##name,
	BPF_STAT_LIST(X)
#undef X
		BPF_STAT_MAX,
};

/*
 * What is known of a thread group (key: tgid) in the filter. With filter_on it is sampled whatever
 * stands here; else the image of this start and number of execs is not.
 */
struct filter_entry {
	__u64 start_ns;
	__u32 exec_id;
	__u32 pad;
};

_Static_assert(sizeof(struct filter_entry) == 16, "filter_entry is an ABI between two compilers");

/*
 * What is counted. A process image is {tgid, start of the thread group's leader, number of
 * execs}: a reused pid has another start, an exec another number.
 */
struct stack_key {
	__u64 start_ns; /* CLOCK_BOOTTIME */
	__u64 stack_hash;
	__u64 object; /* off CPU: address of the futex that is waited for, when asked for; else 0 */
	__u32 tgid;   /* as the profiler's pid namespace has it */
	__u32 exec_id;
	__u32 holder;        /* thread that held it, 0 when unknown */
	__u8 kind;           /* enum stack_kind */
	__u8 state;          /* off CPU: the thread's state as a letter (man 5 proc) */
	__s16 call;          /* off CPU: system call that waits; -1: none */
	char comm[COMM_LEN]; /* of the thread */
};

enum stack_kind { STACK_ON_CPU, STACK_OFF_CPU };

struct stack_count {
	__u64 count; /* weighted where short waits are sampled */
	__u64 ns;    /* off CPU: time waited, weighted likewise */
	__u32 sent;  /* the stack itself went into the ring buffer */
	__u32 pad;
};

/*
 * One distinct stack of one epoch. Kernel frames first, each part leaf first, raw addresses; then
 * the interpreter's list, if one was walked; then what the thread works on, if it says so.
 */
struct stack_event {
	struct stack_key key;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 epoch;   /* which of the two count maps has the key */
	__u32 tid;
	__u16 nkernel;
	__u16 nuser;
	__u32 end;      /* enum stack_end */
	__u8 in_exec;   /* between two images: which one the key means is not certain */
	__u8 list_flag; /* recipe.flag is set, by this thread */
	__u16 ncontext; /* words of what the thread works on; 0: it says nothing, or is not asked */
	__u64 list_head;
	__u64 list_reg;   /* recipe.reg_kept, or 0 */
	__u32 recipe_gen; /* of struct recipe_entry; 0: no list */
	__u16 nlist;      /* nodes */
	__u8 list_width;  /* words a node */
	__u8 list_end;    /* enum list_end */
	/* nkernel + nuser addresses, nlist * list_width words, ncontext words: __u64 each. */
};

/*
 * Words of a context: trace id, span id, as many of the route as it takes, in memory order. An id
 * of zeros is none. The route ends at the first NUL, or with the last word.
 */
#define CONTEXT_ID_WORDS  3
#define CONTEXT_WORDS     16
#define CONTEXT_ROUTE_MAX ((CONTEXT_WORDS - CONTEXT_ID_WORDS) * 8) /* bytes; the rest is cut */

/*
 * The record as threads keep it, opentelemetry-specification 4947, thread-local context record: its
 * first 28 bytes, then {key, length, value} of each attribute.
 */
struct context_record {
	__u64 id[CONTEXT_ID_WORDS];
	__u8 valid; /* 1; else it is being changed, or none */
	__u8 flags;
	__u16 attributes; /* their bytes */
} __attribute__((packed));

#define CONTEXT_RECORD_BYTES 28
#define CONTEXT_BYTES_MAX    4096 /* records with more are not believed */

_Static_assert(sizeof(struct context_record) == CONTEXT_RECORD_BYTES, "as the others have it");

/*
 * How to the record of a thread of this image: p = thread pointer; for each hop p = *(p + hop).
 * Before the second hop *(p + check) must be at least `module`: how many the vector there has.
 */
#define CONTEXT_HOPS        3
#define CONTEXT_ENTRIES_MAX 4096

struct context_entry {
	__u64 start_ns;
	__u32 exec_id;
	__u32 module;
	__s32 hop[CONTEXT_HOPS];
	__s32 check;
	__u16 nhops;
	__u8 route; /* its key */
	__u8 has_route;
	__u32 pad;
};

_Static_assert(sizeof(struct context_entry) == 40, "context_entry is an ABI between two compilers");

/*
 * When one of the events that a key counts happened; only when asked for. In the ring buffer, after
 * the key's stack, and told from one by its size. Off CPU: when the wait ended.
 */
struct sample_mark {
	struct stack_key key;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 epoch;
	__u64 ns; /* as in struct stack_count */
	__u32 n;
	__u32 tid;
};

#define STACK_WORDS_MAX (MAX_KERNEL_FRAMES + MAX_USER_FRAMES + LIST_WORDS_MAX + CONTEXT_WORDS)
#define STACK_EVENT_MAX (sizeof(struct stack_event) + STACK_WORDS_MAX * sizeof(__u64))

_Static_assert(sizeof(struct stack_key) == 56, "stack_key is an ABI between two compilers");
_Static_assert(sizeof(struct stack_count) == 24, "stack_count is an ABI between two compilers");
_Static_assert(sizeof(struct stack_event) == 112, "stack_event is an ABI between two compilers");
_Static_assert(sizeof(struct sample_mark) == 88, "sample_mark is an ABI, and shorter than a stack");

/* The recipe of a process image; gen is never twice the same. Key of its map: tgid. */
struct recipe_entry {
	__u64 start_ns;
	__u32 exec_id;
	__u32 gen;
	struct recipe recipe;
};

#define RECIPE_ENTRIES_MAX 4096
#define RECIPE_HEADS_MAX   16384 /* threads with a head that user space told (RECIPE_TID) */

_Static_assert(sizeof(struct recipe_entry) == 160, "recipe_entry is an ABI between two compilers");

/*
 * A thread of a process, as an iterator over its threads tells it. THREAD_SAME: has not run since
 * it was told with a list; of it come the first 8 bytes only.
 */
enum thread_kind { THREAD_SAME, THREAD_COUNTS, THREAD_LIST };

#define THREAD_ON_CPU       1 /* when its turn came */
#define THREAD_ON_CPU_AFTER 2 /* when its list had been walked */

struct thread_event {
	__u32 tid;        /* as the profiler's pid namespace has it */
	__u8 kind;        /* enum thread_kind */
	__u8 on_cpu;      /* THREAD_ON_CPU_* */
	__u8 state;       /* a letter, as in man 5 proc */
	__u8 list_end;    /* enum list_end; MOVED: it ran, or may have */
	__u32 ns_tid;     /* innermost pid namespace */
	__u32 recipe_gen; /* of struct recipe_entry; 0: no list */
	__u64 start_ns;   /* CLOCK_BOOTTIME, of the thread: tids come again */
	__u64 switches;   /* how often it has left a CPU */
	__u64 cpu_ns;     /* time on CPUs so far; the last stretch of one that runs may lack */
	__u64 tp;         /* thread pointer */
	__u64 ip;         /* where it entered the kernel; 0: not known */
	__u64 list_head;
	__u64 list_reg; /* as in struct stack_event */
	__u16 nlist;
	__u8 list_width;
	__u8 list_flag;
	__u32 exec_id; /* of the image, as in struct stack_key */
	char comm[COMM_LEN];
	/* nlist * list_width words: __u64 each. */
};

#define THREAD_SAME_SIZE 8

_Static_assert(sizeof(struct thread_event) == 96, "thread_event is an ABI between two compilers");
_Static_assert(offsetof(struct thread_event, ns_tid) == THREAD_SAME_SIZE, "a short record");

/* One run of an iterator, written by user space beforehand; the last five by the program. */
struct threads_run {
	/* start_ns 0: whatever process has the tgid now; gen 0: no lists. */
	struct recipe_entry entry;
	__u32 tgid;
	__u32 held; /* what was told under another number is not known to user space any more */
	__u32 from; /* threads to pass over */
	__u32 max;  /* records at most */
	__u32 max_walks; /* lists; the run ends before the first thread whose list is one too many */
	__u32 told, same, walks;
	__u32 next; /* thread to begin with the next time, when there are more than fit */
	__u32 more;
};

/* The reader's pid namespace: depth, address, and the number that the reader has in it. */
struct own_ns {
	__u64 at;
	__u32 level, nr;
};

#define THREADS_RUNS 16 /* under way at a time; more than one only while one hangs */

/* How a user stack is walked. */
#define WALK_FP_ONLY  1 /* by frame pointers, whatever tables there are */
#define WALK_UNCACHED 2 /* the walk may be interrupted by others: it keeps off the row cache */

#define ROW_CACHE_SIZE 4096 /* per CPU */

/*
 * Off CPU: what is known of a thread that was seen to wait, from its first wait to its death. An
 * array of these, in groups of WAIT_WAYS; a thread's key says which group, and where in it to
 * begin. User space maps it: a wait that is still open is charged by moving `from` on, if it still
 * has the value that was read. Who closes a wait takes `from` and leaves 0.
 */
struct wait_slot {
	__u64 task;     /* whose: a number that no other living thread has; 0: nobody's */
	__u64 start;    /* CLOCK_MONOTONIC, when the open wait began; 0: none is open */
	__u64 from;     /* up to when it has been charged; its start when it has not been */
	__u32 switches; /* how often the thread had left a CPU when it began */
	__u32 state;    /* the kernel's bits */
	__u32 holder;   /* thread that held the lock waited for; 0: not known */
	__u32 claims;   /* by who wants the slot; 1: has it */
	__u64 told;     /* start of the wait that user space knows */
	__u32 index;    /* in the array */
	__u32 pad[3];
};

#define EARLY_ENTRIES 4096  /* waits at a time whose stacks were taken when they began */
#define WAIT_WAYS     8     /* a power of two */
#define KICK_BYTES    16384 /* of a ring that only wakes */

/* Events whose stack their thread is still to take (bpf/task_work.h), as far as user space looks. */
struct pending_head {
	__u64 work; /* the kernel's; reads as 0 */
	__u64 task; /* whose; 0: the entry is free */
	__u64 count, ns;
};

#define PENDING_WAYS 8 /* places an entry may have; a power of two */

/* A wait that is open and not yet told, as the iterator over all threads gives it. */
struct open_wait {
	struct stack_key key; /* without hash */
	__u64 task, start;
	__u32 slot, tid;
	__u32 end; /* enum stack_end when there is nothing to walk, else STACK_END_MAX */
	__u32 in_exec;
	__u64 stack_top, stack_size;
	__u64 regs[OPEN_WAIT_REGS]; /* struct user_regs of the architecture */
	__u32 nkernel;
	__u32 pad;
	/* nkernel addresses: __u64 each. */
};

_Static_assert(sizeof(struct wait_slot) == 64, "wait_slot is an ABI between two compilers");
_Static_assert(sizeof(struct open_wait) == 384, "open_wait is an ABI between two compilers");

/*
 * Unwind tables. All of them lie in slabs: 1 MiB values, written by user space through mmap, read
 * by the programs. A ref names a place: slab << 16 | offset / 16. Nothing in a slab is changed
 * while a published mapping leads to it.
 */
#define SLAB_BYTES     (1u << 20)
#define SLAB_GRAIN     16
#define SLAB_REF(s, o) ((__u32)(s) << 16 | (__u32)(o) / SLAB_GRAIN)
#define REF_SLAB(ref)  ((ref) >> 16)
#define REF_OFF(ref)   (((ref)&0xffff) * SLAB_GRAIN)
#define SLABS_MAX      4096

/* enum cfi_cfa of core/cfi.h, number by number; from where is named alike there; FP is not CFI. */
enum unwind_cfa {
	UNWIND_CFA_NONE,
	UNWIND_CFA_END,
	UNWIND_CFA_UNSUPPORTED,
	UNWIND_CFA_SIGNAL,
	UNWIND_CFA_REG,
	UNWIND_CFA_DEREF,
	UNWIND_CFA_SCALED,
	UNWIND_CFA_PLT,
	UNWIND_CFA_URETPROBE, /* not CFI either: the return address is in the task's list */
	UNWIND_CFA_FP,        /* step by frame pointer: no table, or code that does without CFI */
};

enum unwind_from {
	UNWIND_FROM_SAME,
	UNWIND_FROM_CFA,
	UNWIND_FROM_REG,
	UNWIND_FROM_DEREF,
	UNWIND_FROM_LOST,
};

#define UNWIND_SIGNAL_FRAME (1 << 0) /* its pc is exact, and so is its caller's */
#define UNWIND_RA_SIGNED    (1 << 1) /* arm64; the address mask strips it anyway */
#define UNWIND_WIDE         (1 << 2) /* the next slot of the dictionary is struct unwind_wide */
#define UNWIND_GUESSED      (1 << 3) /* UNWIND_CFA_FP: a table should have been here */
#define UNWIND_JIT          (1 << 4) /* UNWIND_CFA_FP: memory that is no file */

/* A slot of a file's rule dictionary. Registers are DWARF numbers. */
struct unwind_rule {
	__u8 cfa, cfa_reg;
	__u8 fp, fp_reg;
	__u8 ra, ra_reg;
	__u8 bx;
	__u8 flags;
	__s32 cfa_off;
	__s16 fp_off, ra_off;
};

struct unwind_wide {
	__s32 cfa_add;
	__s32 bx_off;
	__u8 cfa_index, cfa_scale;
	__u8 pad[6];
};

_Static_assert(sizeof(struct unwind_rule) == 16, "unwind_rule is an ABI between two compilers");
_Static_assert(sizeof(struct unwind_wide) == 16, "unwind_wide fills a slot");

/*
 * A leaf: the rows of one page of text (1 << shift bytes). Rows lie in blocks of at most
 * LEAF_BLOCK_ROWS; a block starts at an address of its own, each further row is a gap of 1..255
 * from the row before. The first block starts at 0: it holds the rule in force where the page
 * begins. Layout, in order:
 *	struct leaf_head
 *	struct leaf_block block[nblocks]  sorted by pc; block i has rows first .. block[i + 1].first - 1
 *	__u16 rule[nrules]                page-local list: slot numbers of the file's dictionary
 *	__u8 row[nrows]                   index into rule[]
 *	__u8 gap[nrows]                   0 for the first row of a block
 * gap[] begins at a multiple of 8 from the leaf's start, and 8 bytes may be read anywhere in it.
 */
#define LEAF_BLOCK_ROWS 64
#define LEAF_RULES_MAX  256

struct leaf_head {
	__u16 nblocks, nrules, nrows;
	__u16 gap_at; /* offset of gap[] / 8 */
};

struct leaf_block {
	__u16 pc; /* low bits: from the page's start */
	__u16 first;
};

_Static_assert(sizeof(struct leaf_head) == 8, "leaf_head is an ABI between two compilers");

enum map_kind {
	MAP_TABLE,     /* index and rules are there */
	MAP_PENDING,   /* a table is being made */
	MAP_FP,        /* a file without a table: frame pointers are the rule */
	MAP_JIT,       /* memory that is no file: frame pointers, if anything */
	MAP_URETPROBE, /* the kernel's trampoline: return addresses are in the task's list */
};

/* One executable mapping of a process; sorted by lo, without overlaps. */
struct map_entry {
	__u64 lo, hi;
	__u64 bias;  /* address - bias = offset from the table's base */
	__u32 index; /* ref of __u32 leaf refs, one per page; 0: no row in that page */
	__u32 rules; /* ref of the dictionary */
	__u32 npages;
	__u8 shift;
	__u8 kind;
	__u16 pad;
};

#define MAP_ENTRIES_MAX  16384
#define PROC_ENTRIES_MAX 16384

/* The image that a tgid runs, and where its mappings lie. */
struct proc_entry {
	__u64 start_ns;
	__u32 exec_id;
	__u32 gen;  /* never twice the same: also names entries of the row cache */
	__u32 maps; /* ref of struct map_entry[nmaps] */
	__u32 nmaps;
};

_Static_assert(sizeof(struct map_entry) == 40, "map_entry is an ABI between two compilers");
_Static_assert(sizeof(struct proc_entry) == 24, "proc_entry is an ABI between two compilers");
