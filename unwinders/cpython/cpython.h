/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this unwinder share: the state of one process, and the steps that fill it.
 * cpython.c finds the interpreter and answers core; threads.c proves where a thread keeps its
 * state; loops.c and entry.c find the code of the eval loop; code.c names code objects.
 */
#pragma once

#include "layouts.h"
#include "unwinders/unwinder.h"

#define INTERPS_MAX 64   /* interpreters that are looked at */
#define STATES_MAX  4096 /* thread states of all of them */
#define PROOFS_MAX  64   /* threads that the place of thread states is proven on */
#define NAME_MAX_   512  /* bytes of a name, its NUL included */
#define HALF_MAX    32   /* places in the loop where a list is half made */

struct cpython {
	struct layout l; /* offsets: nothing is PLACED any more */
	uint32_t module; /* the image with the interpreter */
	uint32_t minor;  /* of 3.minor */
	uint64_t runtime;
	uint64_t interps; /* address of the pointer to the first interpreter */
	uint64_t key;     /* address of the pthread key of thread states, 0: none */
	uint64_t code_type, text_type, bytes_type;
	struct code_range loops[UNWINDER_LOOPS]; /* the first one begins at the function's entry */
	uint32_t nloops;
	struct code_range half[HALF_MAX]; /* instructions within which a list is half made */
	uint32_t nhalf;
	bool free_threaded;
	uint8_t head, nhops; /* enum recipe_head; from it to the thread's state */
	int32_t hop[RECIPE_HOPS];
};

/* Which kept word is which; a peek follows them. */
enum { WORD_CODE, WORD_INSTR, WORD_OWNER };

/* A thread's state, as the interpreter lists it. */
struct state {
	uint64_t addr, ident; /* ident: pthread_self() */
	uint32_t native;      /* thread id, 0: not known to this release */
};

/*
 * Up to max states of all interpreters; NOT_READY when there is none yet, BAD_LAYOUT when none
 * belongs to the interpreter that lists it.
 */
enum verdict states_list(struct target *t, const struct cpython *s, struct state *ret, uint32_t max,
			 uint32_t *n);
/* First frame of a state, 0: none. */
int state_frame(struct target *t, const struct cpython *s, uint64_t state, uint64_t *ret);
/* Fills in head and hops, proven on all these states' threads. */
enum verdict threads_prove(struct target *t, struct cpython *s, const struct state *states,
			   uint32_t n);

/* The ranges of code that run the eval loop. */
void loops_find(struct target *t, struct cpython *s);
/* The instructions of the loop that leave the list half made. */
void entry_find(struct target *t, struct cpython *s);

/* A code object as it lies in memory now. */
struct code {
	uint64_t addr, name, file, lines;
	uint64_t check[2]; /* what a peek into it gives */
	uint64_t nunits;   /* instructions; 0: not known */
	int32_t firstline;
};

/* Reads it; BAD_FRAME: it is none. With code_type 0 any type that calls itself "code" will do. */
enum verdict code_read(struct target *t, const struct cpython *s, uint64_t addr, struct code *ret);
/* Is it an object of a type of that name? *ret_type is the type. */
bool object_is(struct target *t, const struct cpython *s, uint64_t addr, const char *type,
	       uint64_t *ret_type);
/* UTF-8, cut at size - 1 bytes; BAD_FRAME: no string. */
enum verdict text_read(struct target *t, const struct cpython *s, uint64_t addr, char *dst,
		       size_t size);
/* Line of a place in the code (pos as code_pos() has it), 0: none. */
uint32_t code_line(struct target *t, const struct cpython *s, const struct code *c, int64_t pos);
/* Names the frame that was just pushed, or says that the object is gone. */
enum verdict code_name(struct target *t, const struct cpython *s, const struct frame_key *key,
		       struct frames *ret);
