/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to target_live.c. What mapped ELF files say of sections and symbols, kept
 * for all targets. Files are opened through a process that maps them, by the reader, so that a file
 * system that does not answer costs one deadline and is then left alone for a while.
 */
#pragma once

#include "target.h"

/* A file as one process maps it. path is borrowed. */
struct target_file {
	u32 pid;
	u64 lo, hi; /* of the mapping of its beginning */
	u32 major, minor;
	u64 ino;
	u64 head_hash; /* hash_bytes() of its first head_len bytes, as they are in memory */
	u32 head_len;
	const char *path;
};

struct target_file_symbol {
	u64 value, size;
	bool tls, absolute;
};

/*
 * ELF virtual address of a section, or a symbol of .symtab. *budget: bytes of symbol tables that
 * may still be searched, lowered by what was. Returns 0; -ENOENT when the file has none, cannot be
 * opened or is not the one that is mapped; -ETIMEDOUT when its file system did not answer just now.
 */
int target_files_section(struct target_files *files, struct reader *reader,
			 const struct target_file *file, const char *name, u64 *addr, u64 *size);
int target_files_symbol(struct target_files *files, struct reader *reader,
			const struct target_file *file, const char *name, u64 *budget,
			struct target_file_symbol *ret);
