// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See pprof_in.h. */
#include "pprof_in.h"

#include "gzip.h"
#include "profile.pb-c.h"

#include <errno.h>

void *pprof_in_alloc(struct pprof_in *in, size_t size)
{
	/* What the arena adds to each piece is less than this. */
	if (size > in->left || in->left - size < 16) {
		in->refused = true;
		return NULL;
	}
	in->left -= size + 16;
	return arena_alloc(&in->arena, size, 16);
}

static void *allocate(void *arg, size_t size)
{
	return pprof_in_alloc(arg, size);
}

/* All goes with the arena. */
static void release(void *arg __unused, void *piece __unused)
{
}

int pprof_in_open(struct pprof_in *in, const void *data, size_t len, size_t max_bytes,
		  size_t max_memory)
{
	ProtobufCAllocator memory = { allocate, release, in };
	_cleanup_free_ u8 *plain = NULL;
	int err;

	*in = (struct pprof_in){ .left = max_memory };
	if (len > max_bytes)
		return -E2BIG;
	if (gzip_is(data, len)) {
		err = gzip_unpack(data, len, max_bytes, &plain, &len);
		if (err)
			return err;
		data = plain;
	}
	if (!len)
		return -EBADMSG;
	in->pb = pprof__profile__unpack(&memory, len, data);
	if (!in->pb)
		return in->refused ? -E2BIG : -EBADMSG;
	return in->pb->n_sample_type ? 0 : -EBADMSG;
}

void pprof_in_fini(struct pprof_in *in)
{
	arena_fini(&in->arena);
	*in = (struct pprof_in){ 0 };
}
