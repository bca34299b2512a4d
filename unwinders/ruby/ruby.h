/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: what is known of a process with Ruby, and who does what.
 * ruby.c finds and walks, frames.c tells what was met, find.c reads off Ruby's code where things are,
 * gc.c who collects garbage, vmloop.c the code of its loop, object.c reads objects, iseq.c the code of
 * methods and blocks.
 */
#pragma once

#include "unwinders/unwinder.h"
#include "unwinders/ruby/layouts.h"

#define NAME_SIZE  512
#define FILE_SIZE  1024
#define LABEL_SIZE (2 * NAME_SIZE + 64)

struct ruby {
	struct layout l;
	uint32_t module;
	uint64_t vm;
	uint64_t symbols;   /* address of the table of symbols */
	uint64_t classpath; /* IDs of two hidden variables of classes; 0: not known */
	uint64_t attached;
	int32_t hop[4]; /* from the thread pointer to the execution context */
	uint8_t nhops;
	/*
	 * A byte and its bit that is set while garbage is collected (0: not known), and who does it, as
	 * recipe.flag_owner and flag_hop tell; gc_hops hops lead to what that is compared with.
	 */
	uint8_t gc_mask, gc_hops;
	int16_t gc_hop;
	uint64_t gc_flag, gc_owner[2];
	uint32_t nloops;
	struct code_range loops[UNWINDER_LOOPS];
};

#define EP_METHOD (-16) /* method entry, class reference or special variables */

/* What is kept of each control frame. */
enum { WORD_PC, WORD_ISEQ, WORD_EP, WORDS };
enum { PEEK_FLAGS, PEEK_METHOD, PEEKS };

/* A number as instructions have it. */
static inline int32_t s32_at(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* --- frames.c ----------------------------------------------------------------------------------- */

enum verdict frames_of(struct target *t, const void *state, const struct list *l,
		       struct frames *ret);

/* --- find.c: all return false when there is no such thing -------------------------------------- */

#define CODE_READ  192
#define PLACES_MAX 16

/* Addresses of variables that some code names. */
struct places {
	uint64_t v[PLACES_MAX];
	uint32_t n;
};

/* The code at pc. */
bool find_code(struct target *t, uint64_t pc, uint8_t code[CODE_READ]);
/* Adds the variables that the code at pc names. */
void find_places(struct target *t, uint64_t pc, struct places *ret);

/* The VM, by the code of ruby_vm_at_exit(). *ready false: it is not up yet. */
bool find_vm(struct target *t, struct ruby *s, bool *ready);
/* The table of symbols, by the code of rb_id2str(). */
bool find_symbols(struct target *t, struct ruby *s);
/* How threads find their execution context: hop and nhops. */
enum verdict find_context(struct target *t, struct ruby *s);
/* The first thread of the VM; 0: none. */
uint64_t find_thread(struct target *t, const struct ruby *s, uint64_t vm);

/* --- gc.c ---------------------------------------------------------------------------------------- */

/* After find_context(): how to see that a thread collects garbage. Not found: it is not told. */
void gc_find(struct target *t, struct ruby *s);

/* --- vmloop.c ------------------------------------------------------------------------------------ */

/* insn: the address of some instruction's code. */
void vmloop_find(struct target *t, struct ruby *s, uint64_t insn);

/* --- object.c ----------------------------------------------------------------------------------- */

#define TYPE_MASK   0x1fu /* of RBasic.flags */
#define TYPE_CLASS  0x02u
#define TYPE_MODULE 0x03u
#define TYPE_STRING 0x05u
#define TYPE_ARRAY  0x07u
#define TYPE_IMEMO  0x1au
#define IMEMO_SVAR  2u
#define IMEMO_MENT  6u
#define IMEMO_ISEQ  7u

bool object_is_imemo(uint64_t flags, unsigned type);
/* Length of the text, or -1. */
int object_string(struct target *t, const struct ruby *s, uint64_t str, char *dst, size_t size);
/* Element i of an Array; 0: none. */
uint64_t object_at(struct target *t, uint64_t ary, uint32_t i);
/* The text of an ID: its length, or -1. */
int object_id(struct target *t, const struct ruby *s, uint64_t id, char *dst, size_t size);
/*
 * "Shop::Cart#", "Shop::Cart.": what comes before the name of a method that the class owns; its
 * length, 0 when the class has no name of its own, or -1 when that cannot be read.
 */
int object_class(struct target *t, const struct ruby *s, uint64_t owner, char *dst, size_t size);
/* IDs that class names hide behind up to 3.1. */
bool object_class_ids(struct target *t, struct ruby *s);

/* --- iseq.c ------------------------------------------------------------------------------------- */

enum iseq_type {
	ISEQ_TOP,
	ISEQ_METHOD,
	ISEQ_BLOCK,
	ISEQ_CLASS,
	ISEQ_RESCUE,
	ISEQ_ENSURE,
	ISEQ_EVAL,
	ISEQ_MAIN,
	ISEQ_PLAIN,
};

#define ATTR_C_TRACE 8 /* BUILTIN_ATTR_C_TRACE */

struct iseq {
	uint32_t type, size, attrs;
	uint64_t code;
	uint64_t path, base_label, label;
	uint32_t firstline;
	uint64_t insns, index;
	uint32_t ninsns;
	uint64_t parent, local;
};

enum verdict iseq_read(struct target *t, const struct ruby *s, uint64_t addr, struct iseq *ret);
bool iseq_holds(const struct iseq *q, uint64_t pc);
/* 0: not known. */
uint32_t iseq_line(struct target *t, const struct ruby *s, const struct iseq *q, uint64_t pc);
int iseq_path(struct target *t, const struct ruby *s, const struct iseq *q, char *dst, size_t size);
/* As backtraces print it, the method's class before its name; owner 0: not known. */
int iseq_label(struct target *t, const struct ruby *s, const struct iseq *q, uint64_t owner,
	       char *dst, size_t size);
