/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: base. gzip, all at once and bounded: by zlib. */
#pragma once

#include "util.h"

/*
 * Unpacks one gzip stream to at most max bytes (below 2^32 - 1); what follows it is not looked at.
 * *ret is owned, *ret_len may be 0. Returns 0, -EBADMSG when it is damaged or cut, -E2BIG, -ENOMEM.
 */
int gzip_unpack(const void *data, size_t len, size_t max, u8 **ret, size_t *ret_len);
/* Without a name and a time in its header, so that equal input gives equal output. 0 or -ENOMEM. */
int gzip_pack(const void *data, size_t len, u8 **ret, size_t *ret_len);
/* Does it begin as gzip does? */
bool gzip_is(const void *data, size_t len);
