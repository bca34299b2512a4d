/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to the module room and what names profiles afterwards. Finds the separate
 * file with a stripped file's symbols, where distributions install it: by build id, or by the name
 * that the file gives, in fixed directories only. Believed only when its build id, or for files
 * without one its checksum, is what the file says. May block; no state.
 */
#pragma once

#include "elfsym.h"

#define DEBUGFILE_CRC_MAX (1ull << 30) /* larger files are not read for their checksum */

struct debugfile_question {
	const struct elfsym_source *src; /* the stripped file */
	const struct elfsym_info *info;  /* its build id */
	const char *path;                /* its path, as its process sees it */
	u32 pid;               /* whose root is looked through before ours; 0: only ours */
	const char *host_root; /* "/", or a test's own */
};

/*
 * A descriptor for reading, the file's size in *ret_size; -ENOENT when there is none that is to be
 * believed. ret_path, PATH_MAX bytes, may be NULL: where it was found below its root.
 */
int debugfile_open(const struct debugfile_question *q, u64 *ret_size, char *ret_path);
