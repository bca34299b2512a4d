/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. ELF file to unwind table: finds .eh_frame and .debug_frame (also without section
 * headers, and compressed), compiles and packs them, in bounded time and heap; keeps tables in a
 * cache directory by build id. Called from a worker thread: no globals, no shared state.
 */
#pragma once

#include "util.h"
#include "table.h"

/* What a file had, for `tables` and the log. */
struct tablefile_info {
	bool eh_frame, debug_frame, sframe;
	u8 sframe_version;
	u32 sframe_fdes;
	u64 eh_frame_size, debug_frame_size, text_size;
	double compile_s; /* thread CPU time */
	bool cached;      /* came from the cache */
};

/*
 * The table of an open ELF file (or vdso image: fd -1, image and image_len given). cache_dir may be
 * NULL; build_id is lower-case hex or "" (then nothing is cached). Returns 0; -ENOENT when the file
 * has no CFI at all; -EINVAL when it is no sound ELF file; -E2BIG over a limit; -ENOMEM. info may
 * be NULL.
 */
int tablefile_compile(int fd, const u8 *image, size_t image_len, const char *build_id,
		      const char *cache_dir, struct table *ret, struct tablefile_info *info);
