/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Memory that is given back all at once: an allocation costs an addition, and
 * nothing is freed one by one. For what lives as long as a window or one encoding.
 */
#pragma once

#include "util.h"

struct arena_chunk;

/* All zero is an empty arena. */
struct arena {
	struct arena_chunk *chunks;
	char *next;
	size_t left; /* in the newest chunk, from next */
};

void arena_fini(struct arena *a);
/* align: a power of two, at most 16. Not zeroed, borrowed from the arena; NULL: out of memory. */
void *arena_alloc(struct arena *a, size_t size, size_t align);
/* Copy of len bytes with a NUL behind them; the same terms. */
char *arena_string(struct arena *a, const char *s, size_t len);
