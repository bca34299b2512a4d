/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. ELF file to unwind table: finds .eh_frame and .debug_frame (also without section
 * headers, and compressed), compiles and packs them, in bounded time and heap; keeps tables in a
 * cache directory by build id. Called from a worker thread: no globals, no shared state.
 */
#pragma once

#include "util.h"
#include "table.h"

struct cfi;

/* What a file had, for `tables` and the log. */
struct tablefile_info {
	bool eh_frame, debug_frame, sframe;
	bool eh_frame_unsized; /* found by .eh_frame_hdr: eh_frame_size is only an upper bound */
	u8 sframe_version;
	u32 sframe_fdes;
	u64 eh_frame_size, debug_frame_size, text_size; /* .debug_frame after inflating */
	double compile_s;                               /* thread CPU time */
	bool cached;                                    /* came from the cache */
};

/* A smaller file is compiled in less time than its table is read: no cache file for it. */
#define TABLEFILE_CACHE_MIN (16u << 10) /* bytes of CFI */
/* What a cache directory may hold; the files not used for longest go first. */
#define TABLEFILE_CACHE_FILES 4096
#define TABLEFILE_CACHE_BYTES (256ull << 20)

/*
 * The table of an open ELF file (or vdso image: fd -1, image and image_len given). cache_dir may be
 * NULL; it is made when it is missing, and not used unless it is ours alone to write. build_id is
 * lower-case hex or "" (then nothing is cached). Returns 0; -ENOENT when the file has no CFI at
 * all; -EINVAL when it is no sound ELF file; -E2BIG over a limit; -ENOMEM. info may be NULL.
 */
int tablefile_compile(int fd, const u8 *image, size_t image_len, const char *build_id,
		      const char *cache_dir, struct table *ret, struct tablefile_info *info);
/*
 * Half of it, for people: the compiled CFI before it is packed, also when it went over a limit (see
 * its notes). *ret is to be ended with cfi_fini().
 */
int tablefile_cfi(int fd, const u8 *image, size_t image_len, struct cfi *ret,
		  struct tablefile_info *info);
/* Compiled in part only; tablefile_compile() refuses such a file. */
bool tablefile_over_limit(const struct cfi *c);
