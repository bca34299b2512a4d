/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The joined sample: one distinct stack of one process and thread name, as frames.
 * In: struct stack_event (bpf/abi.h) and the process book. Out: struct sample for the fold room.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "unwinders/unwinder.h"

struct identities;
struct kallsyms;
struct module;
struct perfmaps;
struct process;
struct processes;
struct runtimes;
struct tables;
struct unwinder;

/* What a profile measures, always in nanoseconds. Compared by address. */
struct sample_type {
	const char *name; /* "cpu"; no '-' in it */
	bool counted; /* the number of waits is a value of its own, and one nanosecond the period */
	bool looked;  /* time between looks, of any length: no multiple of a period */
};

extern const struct sample_type sample_cpu, sample_offcpu, sample_lock;

enum frame_kind {
	FRAME_KERNEL,  /* named here, from kallsyms */
	FRAME_NATIVE,  /* in a mapped file: module + file offset, named when the window closes */
	FRAME_ANON,    /* in executable memory that is no ELF file; `mapping` says which */
	FRAME_UNKNOWN, /* no mapping is known for it */
	FRAME_RUNTIME, /* of an interpreter: func, file and line, no address */
};

struct frame {
	enum frame_kind kind;
	/* FRAME_NATIVE: file offset; others: absolute. Callers' addresses are return address - 1. */
	u64 address;
	struct module *module; /* FRAME_NATIVE; borrowed */
	const char *mapping;   /* "[kernel.kallsyms]", "//anon", ...; NULL for FRAME_NATIVE */
	const char *func;      /* FRAME_KERNEL, FRAME_ANON, FRAME_RUNTIME; NULL when unknown */
	const char *file;      /* FRAME_KERNEL: kernel module; FRAME_RUNTIME: source file */
	u32 line;              /* FRAME_RUNTIME; 0: unknown */
	u64 map;               /* FRAME_ANON without a name: for perfmaps_find(); 0: none */
};

/* What became of the interpreter's own stack, if the thread has one. */
#define SAMPLE_LIST_LIST(X)                             \
	X(NONE, "no runtime")                           \
	X(MERGED, "merged with the native stack")       \
	X(CUT, "merged, but cut")                       \
	X(APART, "kept apart from the native stack")    \
	X(IDLE, "no frame of the runtime on the stack") \
	X(REFUSED, "refused, native stack only")

enum sample_list {
#define X(name, text) SAMPLE_LIST_##name,
	SAMPLE_LIST_LIST(X)
#undef X
		SAMPLE_LIST_MAX,
};

#define SAMPLE_LABELS_MAX  8
#define SAMPLE_CONTEXT_MAX 3

struct sample_label {
	const char *key; /* static */
	const char *value;
};

/* All pointers are borrowed until fold_add() returns. Text is valid UTF-8 here. */
struct sample {
	const struct sample_type *type;
	const char *service;    /* as identity.h says */
	const char *const *who; /* labels by enum identity_label, NULL each; NULL: nothing known */
	const char *exe;        /* base name */
	const char *cmdline;    /* NULL unless strip_process_args is off */
	const char *thread;     /* thread name */
	struct sample_label labels[SAMPLE_LABELS_MAX]; /* what else is known: state, wait, ... */
	u32 nlabels;
	/* What the thread worked on, if it said so: trace_id, span_id, http.route. */
	struct sample_label context[SAMPLE_CONTEXT_MAX];
	u32 ncontext;
	u32 pid;
	enum stack_end end;
	enum sample_list list;
	const struct frame *frames; /* leaf first, kernel before user */
	u32 nframes;
};

struct stack_joiner;

struct stack_options {
	struct tables *tables;           /* NULL: nobody unwinds by tables */
	struct runtimes *runtimes;       /* NULL: interpreters stay native */
	const struct kallsyms *kallsyms; /* NULL: kernel frames unnamed */
	struct perfmaps *perfmaps;       /* NULL: code made at run time unnamed */
	struct identities *identities;   /* NULL: processes are their executables */
	bool with_cmdline;
	bool internals;   /* the interpreters' own loop frames are shown, too */
	bool wait_tables; /* tables are wanted for waits, too */
};

/* The books are borrowed for the joiner's life. */
struct stack_joiner *stack_joiner_new(struct processes *procs, const struct stack_options *o);
void stack_joiner_free(struct stack_joiner *j);
/*
 * Joins one event. The sample's pointers live until the next call. Return addresses outside
 * executable mappings end the stack there (STACK_END_NOT_EXEC). len: bytes at ev, which is
 * checked against the counts inside. last_try false: -EAGAIN when the process may still be
 * announced; true: what is unknown stays unknown. Returns 0, -EAGAIN, -EINVAL for a malformed
 * event, -ENOMEM, -ECANCELED for a process that is left out (identity.h).
 */
int stack_join(struct stack_joiner *j, const struct stack_event *ev, size_t len, bool last_try,
	       struct sample *ret);
/*
 * The last joined event as a sample of its runtime's own type: the interpreter's frames alone.
 * False when it has none. Pointers live as the joined sample's.
 */
bool stack_wall(struct stack_joiner *j, struct sample *ret);
/*
 * The last joined event as a sample of type lock, when it waited for a futex and the program was
 * asked to say which. Otherwise false. Pointers live as the joined sample's.
 */
bool stack_lock(struct stack_joiner *j, struct sample *ret);
/*
 * A list that was taken otherwise, of a thread that waits, as such a sample: text and frames live
 * until the next call. state: for the label thread.state, static. UNWIND_OK, or why there is none;
 * a process that is left out is UNWIND_NOT_MINE.
 */
enum verdict stack_join_list(struct stack_joiner *j, struct process *p, u32 gen,
			     const struct list *l, const char comm[COMM_LEN], const char *state,
			     struct sample *ret);
/* The type of a runtime's samples; static. */
const struct sample_type *stack_runtime_type(const struct unwinder *u);
/* What an end means, for people; static. */
const char *stack_end_text(enum stack_end end);
const char *sample_list_text(enum sample_list list);
