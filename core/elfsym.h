/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to the module book and its tests. Bytes of an ELF file in, segments,
 * build id and a compact function table out. Pure: no paths, no state, no logging; reads by
 * pread() into own buffers, since a file that shrinks under mmap() would be a SIGBUS.
 *
 * What a file can cost: 256 program headers, 65279 sections, 1 MiB of notes, 4 M symbols, 128 MiB
 * of symbol and string tables (less when the caller wants less). Over a limit is -E2BIG, everything
 * unsound is -ENOEXEC.
 */
#pragma once

#include "module.h"

#define ELFSYM_ID_MAX 64 /* bytes of a build id that we believe */

/* A file, or with fd < 0 memory. size bounds every read. */
struct elfsym_source {
	int fd;
	const void *mem;
	u64 size;
};

struct elfsym_info {
	struct module_segment *segments; /* PT_LOAD in file order, at least one */
	u32 nsegments;
	u32 id_len; /* 0: no build id */
	u8 id[ELFSYM_ID_MAX];
};

struct elfsym_table;

/*
 * Headers and build id of a 64-bit little-endian executable or shared object for x86-64 or arm64.
 * ret is to be ended with elfsym_info_fini(). Returns 0, -ENOEXEC, -E2BIG, -ENOMEM, -EIO.
 */
int elfsym_info(const struct elfsym_source *src, struct elfsym_info *ret);
void elfsym_info_fini(struct elfsym_info *info);
/* Whether it begins as an ELF file does, sound or not. */
bool elfsym_is_elf(const struct elfsym_source *src);

/*
 * Function table of a file that elfsym_info() accepted; owned. *ret is NULL when the file has no
 * function symbols. -E2BIG also when the table would take more than max_bytes.
 */
int elfsym_table(const struct elfsym_source *src, size_t max_bytes, struct elfsym_table **ret);
void elfsym_table_free(struct elfsym_table *t);
size_t elfsym_table_bytes(const struct elfsym_table *t);
/* Function that covers an ELF address, valid UTF-8; NULL: none. Borrowed. t may be NULL. */
const char *elfsym_lookup(const struct elfsym_table *t, u64 vaddr);
