/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Extra layouts of a runtime, so that a version can be added without a rebuild. In:
 * the file that the configuration names, and the names of the numbers a layout of that runtime
 * consists of. Out: a row of numbers per version; target_layout() of unwinders/unwinder.h reads it.
 */
#pragma once

#include "util.h"
#include "unwinders/unwinder.h"

#define LAYOUT_FILE_MAX (256u << 10)
#define LAYOUT_ROWS_MAX 256

struct layouts;

/*
 * Reads "[MAJOR.MINOR]" or "[MAJOR.MINOR.PATCH]" sections of "FIELD = NUMBER" lines; "like =
 * VERSION" starts from an earlier section. A section that lacks a field, an unknown field and a
 * duplicate are errors: one line in err says where and why. Owned; 0, -EINVAL, -ENOMEM, -errno.
 */
int layouts_read(const char *path, const struct unwinder *u, struct layouts **ret, char *err,
		 size_t err_size);
int layouts_parse(const char *name, char *text, const struct unwinder *u, struct layouts **ret,
		  char *err, size_t err_size);
void layouts_free(struct layouts *ls);
/* The row of exactly this version, else of its MAJOR.MINOR; NULL: none. Borrowed. */
const s32 *layouts_find(const struct layouts *ls, const struct version *v);
