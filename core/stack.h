/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The joined sample: one distinct stack of one process and thread name, as frames.
 * In: struct stack_event (bpf/abi.h) and the process book. Out: struct sample for the fold room.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct kallsyms;
struct module;
struct processes;
struct tables;

/* What a profile measures, always in nanoseconds. Compared by address. */
struct sample_type {
	const char *name; /* "cpu"; no '-' in it */
	bool counted; /* the number of waits is a value of its own, and one nanosecond the period */
};

extern const struct sample_type sample_cpu, sample_offcpu, sample_lock;

enum frame_kind {
	FRAME_KERNEL,  /* named here, from kallsyms */
	FRAME_NATIVE,  /* in a mapped file: module + file offset, named when the window closes */
	FRAME_ANON,    /* in executable memory that is no file; `mapping` says which */
	FRAME_UNKNOWN, /* no mapping is known for it */
	FRAME_RUNTIME, /* of an interpreter: func, file and line, no address */
};

struct frame {
	enum frame_kind kind;
	/* FRAME_NATIVE: file offset; others: absolute. Callers' addresses are return address - 1. */
	u64 address;
	struct module *module; /* FRAME_NATIVE; borrowed */
	const char *mapping;   /* "[kernel.kallsyms]", "//anon", ...; NULL for FRAME_NATIVE */
	const char *func;      /* FRAME_KERNEL, FRAME_RUNTIME; NULL when unknown */
	const char *file;      /* FRAME_KERNEL: kernel module; FRAME_RUNTIME: source file */
	u32 line;              /* FRAME_RUNTIME; 0: unknown */
};

#define SAMPLE_LABELS_MAX 6

struct sample_label {
	const char *key; /* static */
	const char *value;
};

/* All pointers are borrowed until fold_add() returns. Text is valid UTF-8 here. */
struct sample {
	const struct sample_type *type;
	const char *service;   /* container id, else executable's base name */
	const char *container; /* "" when in none */
	const char *exe;       /* base name */
	const char *cmdline;   /* NULL unless strip_process_args is off */
	const char *thread;    /* thread name */
	struct sample_label labels[SAMPLE_LABELS_MAX]; /* what else is known: state, wait, ... */
	u32 nlabels;
	u32 pid;
	enum stack_end end;
	const struct frame *frames; /* leaf first, kernel before user */
	u32 nframes;
};

struct stack_joiner;

/*
 * The books are borrowed for the joiner's life; tables may be NULL (nobody unwinds by tables), and
 * kallsyms (kernel frames unnamed).
 */
struct stack_joiner *stack_joiner_new(struct processes *procs, struct tables *tables,
				      const struct kallsyms *kallsyms, bool with_cmdline);
void stack_joiner_free(struct stack_joiner *j);
/*
 * Joins one event. The sample's pointers live until the next call. Return addresses outside
 * executable mappings end the stack there (STACK_END_NOT_EXEC). len: bytes at ev, which is
 * checked against the counts inside. last_try false: -EAGAIN when the process may still be
 * announced; true: what is unknown stays unknown. Returns 0, -EAGAIN, -EINVAL for a malformed
 * event, -ENOMEM.
 */
int stack_join(struct stack_joiner *j, const struct stack_event *ev, size_t len, bool last_try,
	       struct sample *ret);
/* What an end means, for people; static. */
const char *stack_end_text(enum stack_end end);
