// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See gzip.h. */
#include "gzip.h"

#include <errno.h>
#include <zlib.h>

#define FIRST 65536 /* bytes of room to begin with */

static int unpack(z_stream *z, u32 max, u8 **out, u32 *ret_used)
{
	u32 cap = 0, used = 0;
	int r = Z_OK;

	/* Each turn doubles the room, ends the stream, or is the last. */
	while (r == Z_OK) {
		/* One byte more than allowed tells a stream that is too long from one that fits. */
		int err = VEC_RESERVE(*out, cap, MAX(used + 1, MIN(FIRST, max + 1)), max + 1);

		if (err)
			return err;
		z->next_out = *out + used;
		z->avail_out = cap - used;
		r = inflate(z, Z_NO_FLUSH);
		used = cap - z->avail_out;
		if (used > max)
			return -E2BIG;
		if (r == Z_BUF_ERROR || (r == Z_OK && !z->avail_in && z->avail_out))
			return -EBADMSG; /* the input ends within */
	}
	*ret_used = used;
	return r == Z_STREAM_END ? 0 : r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

int gzip_unpack(const void *data, size_t len, size_t max, u8 **ret, size_t *ret_len)
{
	z_stream z = { .next_in = (u8 *)data, .avail_in = (uInt)len };
	_cleanup_free_ u8 *out = NULL;
	u32 used = 0;
	int err;

	if (len > UINT32_MAX || max >= UINT32_MAX - 1)
		return -E2BIG;
	if (inflateInit2(&z, MAX_WBITS + 16) != Z_OK)
		return -ENOMEM;
	err = unpack(&z, (u32)max, &out, &used);
	inflateEnd(&z);
	if (err)
		return err;
	*ret_len = used;
	*ret = take_ptr(out);
	return 0;
}

int gzip_pack(const void *data, size_t len, u8 **ret, size_t *ret_len)
{
	z_stream z = { .next_in = (u8 *)data, .avail_in = (uInt)len };
	_cleanup_free_ u8 *out = NULL;
	uLong bound;
	u8 *fit;
	int r;

	if (deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	bound = deflateBound(&z, len);
	out = malloc(bound);
	z.next_out = out;
	z.avail_out = (uInt)bound;
	r = out ? deflate(&z, Z_FINISH) : Z_MEM_ERROR;
	deflateEnd(&z);
	if (r != Z_STREAM_END)
		return -ENOMEM;
	fit = realloc(out, z.total_out);
	if (fit)
		out = fit;
	*ret_len = z.total_out;
	*ret = take_ptr(out);
	return 0;
}

bool gzip_is(const void *data, size_t len)
{
	const u8 *b = data;

	return len >= 2 && b[0] == 0x1f && b[1] == 0x8b;
}
