/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between threads.c, which finds all ways from a thread pointer to the thread's state, and
 * choose.c, which knows the interpreter's own among them.
 */
#pragma once

#include "cpython.h"

#define NEAR      4096 /* bytes around the thread pointer that are looked at */
#define PIECE     256  /* bytes that are read at once: what lies behind may not be mapped */
#define SELF_MAX  3072 /* of the thread's own structure, from the thread pointer on */
#define FOUND_MAX 64
#define BLOCK_MAX 1024 /* bytes of a block that a word of the thread's leads to */
#define DTV_MAX   64   /* modules with thread-local variables */
#define CHAIN_MAX 3

/* A way from the thread pointer to the state: words to follow, one by one. */
struct chain {
	int32_t hop[CHAIN_MAX];
	uint8_t n;
};

/* A thread, and the states that are its own: one an interpreter. */
struct proof {
	uint64_t tp;
	uint64_t state[4];
	uint32_t n;
};

struct search {
	struct target *t;
	const struct cpython *s;
	struct proof proof[PROOFS_MAX];
	uint32_t nproofs;
	struct chain found[FOUND_MAX];
	uint32_t nfound;
	int32_t key; /* pthread key of thread states, -1: not known */
};

/* Offset of the vector of thread-local blocks from the thread pointer, in glibc. */
static inline int32_t dtv_at(const struct search *h)
{
	return target_arch(h->t) == TARGET_ARM64 ? 0 : 8;
}

/* An offset from an address of the process. */
static inline uint64_t away(uint64_t addr, int64_t off)
{
	return addr + (uint64_t)off;
}

/* One of those that were found, at least one. */
const struct chain *search_choose(struct search *h);
