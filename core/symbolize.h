/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. A stored profile in, the same with names, lines and inlined functions out, from the
 * files on this host that its mappings name: of the very build, or not at all.
 */
#pragma once

#include "util.h"

#define SYMBOLIZE_FILE_MAX   (256u << 20)    /* of the profile, compressed and not */
#define SYMBOLIZE_MEMORY_MAX (2048ull << 20) /* of what it becomes in memory */

struct symbolize_options {
	bool debuginfod;  /* ask its servers for what is not here */
	const char *root; /* "/", or a test's own: where files and debug files are looked for */
};

struct symbolize_figures {
	u32 files, files_found,
		files_lines; /* mappings with a path; of the right build; with DWARF */
	u32 locations, named, lines, inlined; /* native ones; that have a name, a line, an inlined
						 function now */
};

/*
 * data: a pprof file, gzip or not. *ret: an owned gzip file. Returns 0, -EBADMSG for what is no
 * profile, -E2BIG over a limit, -ENOMEM.
 */
int symbolize(const u8 *data, size_t len, const struct symbolize_options *o, u8 **ret,
	      size_t *ret_len, struct symbolize_figures *figures);
