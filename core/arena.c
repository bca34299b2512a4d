// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See arena.h. */
#include "arena.h"

#include <string.h>

#define CHUNK_SIZE (256u << 10)

struct arena_chunk {
	struct arena_chunk *older;
	_Alignas(16) char data[];
};

void arena_fini(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *c = a->chunks;

		a->chunks = c->older;
		free(c);
	}
	*a = (struct arena){ 0 };
}

static struct arena_chunk *chunk_new(struct arena *a, size_t size)
{
	struct arena_chunk *c;

	if (size > SIZE_MAX - sizeof(*c))
		return NULL;
	c = malloc(sizeof(*c) + size);
	if (!c)
		return NULL;
	c->older = a->chunks;
	a->chunks = c;
	return c;
}

void *arena_alloc(struct arena *a, size_t size, size_t align)
{
	size_t skip = -(uintptr_t)a->next & (align - 1);
	struct arena_chunk *c;
	char *p;

	if (a->left >= skip && a->left - skip >= size) {
		p = a->next + skip;
		a->next = p + size;
		a->left -= skip + size;
		return p;
	}
	/* Something large gets a chunk of its own; the newest one stays in use. */
	if (size > CHUNK_SIZE / 4) {
		c = chunk_new(a, size);
		return c ? c->data : NULL;
	}
	c = chunk_new(a, CHUNK_SIZE);
	if (!c)
		return NULL;
	a->next = c->data + size;
	a->left = CHUNK_SIZE - size;
	return c->data;
}

char *arena_string(struct arena *a, const char *s, size_t len)
{
	char *p = arena_alloc(a, len + 1, 1);

	if (!p)
		return NULL;
	memcpy(p, s, len);
	p[len] = '\0';
	return p;
}
