/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this unwinder share: the state of one process, and the steps between them.
 * php.c finds PHP, proves its offsets and answers core; owner.c finds which thread runs it, and
 * where threads of a thread-safe PHP keep their globals; code.c reads and names functions; frames.c
 * turns lists into frames.
 */
#pragma once

#include "layouts.h"
#include "unwinders/unwinder.h"

#define FILE_SIZE  1024 /* bytes of a path, its NUL included */
#define OFFSET_MAX 1024 /* of a field that a row names */

/* zend_execute_data (Zend/zend_compile.h), the same since 7.0. */
#define EX_OPLINE 0
#define EX_FUNC   24
#define EX_THIS   32
#define EX_INFO   40
#define EX_PREV   48

/* zend_function, zend_op, the same since 7.4. */
#define FUNC_NAME     8
#define FUNC_SCOPE    16
#define FUNC_HEAD     24
#define FUNC_INTERNAL 1
#define FUNC_USER     2
#define FUNC_EVAL     4
#define OP_EXTENDED   20
#define OP_LINENO     24
#define OP_OPCODE     28
#define OPLINE_SIZE   32

struct php {
	struct layout l;
	uint32_t module; /* the image with PHP */
	bool zts;
	bool library;   /* it is not the program itself */
	bool by_thread; /* not thread safe: the stack belongs to another thread than the first */
	uint64_t frameless; /* address of zend_flf_functions; 0: before 8.4 */
	uint64_t globals;   /* address of the executor's globals; thread safe: 0 */
	uint64_t sapi;      /* of sapi_globals, which have the request; thread safe: 0 */
	/* Thread safe: thread pointer -> block of the thread -> globals. */
	int32_t tls_slot;
	int32_t globals_offset;
	struct code_range loop[2];
	uint32_t nloops;
};

/* What is kept of a node. Not what differs from object to object: equal calls have to be equal. */
enum { WORD_OPLINE, WORD_FUNC, WORD_INFO, WORDS };

/* Are these the executor's globals? Proven by what PHP's core registers in every process. */
enum verdict globals_check(struct target *t, const struct php *s, uint64_t globals);

/* Thread safe: where threads have their globals, as far as code tells. */
enum verdict owner_find_globals(struct target *t, struct php *s);
/* That proven, or found by looking; *ret: globals of a thread. */
enum verdict owner_prove_globals(struct target *t, struct php *s, uint64_t *ret);
/* Not thread safe: whose the stack is; NOT_READY: nobody's that is known. */
enum verdict owner_find(struct target *t, struct php *s);
/* struct unwinder.heads */
enum verdict owner_heads(struct target *t, const void *state, struct heads *ret);

/* A function as it lies in memory now. */
struct func {
	uint8_t type;
	uint64_t name, scope;
	/* User functions only. */
	uint64_t opcodes, file;
	uint32_t last, line_start;
	bool handed_on; /* has no code of its own: leads to __call() or __callStatic() */
};

/* Reads it; BAD_FRAME: it is none. */
enum verdict func_read(struct target *t, const struct php *s, uint64_t addr, struct func *ret);
/* Is that one of its opcodes? */
bool func_holds(const struct func *f, uint64_t opline);
/*
 * Names the frame that was just pushed, or says that the function is gone. root: it is the
 * outermost of its stack.
 */
enum verdict func_name_frame(struct target *t, const struct php *s, const struct frame_key *key,
			     bool root, struct frames *ret);
/* A zend_string's text; its length, or -1. */
int string_read(struct target *t, uint64_t str, char *dst, size_t size);

/* struct unwinder.frames */
enum verdict php_frames(struct target *t, const void *state, const struct list *l,
			struct frames *ret);
