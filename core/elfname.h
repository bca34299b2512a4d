/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. An ELF file asked by name: sections, and symbols of .symtab of any type. Reads by
 * pread() in bounded pieces, keeps the names of sections only; a symbol costs a pass over the
 * file's tables. No paths, no state.
 */
#pragma once

#include "elfsym.h"

#define ELFNAME_TABLE_MAX (64ull << 20) /* bytes of .symtab, of .strtab: else there are none */

struct elfname;

/*
 * The sections of a 64-bit little-endian executable or shared object. Owned. Returns 0, -ENOEXEC
 * (also when it has no sections), -E2BIG, -EIO, -ENOMEM.
 */
int elfname_open(const struct elfsym_source *src, struct elfname **ret);
void elfname_free(struct elfname *e);
/* ELF virtual address of a section that is in memory; false: there is none. */
bool elfname_section(const struct elfname *e, const char *name, u64 *addr, u64 *size);
/* Bytes that a search for a symbol may read; 0: no symbols. */
u64 elfname_symbol_cost(const struct elfname *e);

struct elfname_symbol {
	u64 value, size;
	bool tls, absolute;
};

/*
 * A defined symbol of .symtab; of several a global one, else the first. src is the file that e was
 * made of. Returns 0, -ENOENT, -EIO, -ENOEXEC, -ENOMEM.
 */
int elfname_symbol(const struct elfname *e, const struct elfsym_source *src, const char *name,
		   struct elfname_symbol *ret);
