/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to the module book and its tests. Bytes of an ELF file in, segments,
 * build id and a compact function table out. Pure: no paths, no state, no logging; reads by
 * pread() into own buffers, since a file that shrinks under mmap() would be a SIGBUS.
 *
 * What a file can cost: 256 program headers, 65279 sections, 1 MiB of notes, 4 M symbols, 128 MiB
 * of symbol and string tables (less when the caller wants less), as much for what is compressed in
 * it and for a Go program's own table. Over a limit is -E2BIG, everything unsound is -ENOEXEC.
 *
 * Which name an address gets:
 *  - Sources, the better first: .symtab; that of a separate debug file, or of .gnu_debugdata; then
 *    .dynsym, entries of PLTs, Go's table. What a worse one has fills what the better ones leave.
 *  - A symbol with a size names [start, start + size) and never more: what is behind it has no name,
 *    not the neighbour's. Symbols inside it name their part of it.
 *  - A symbol of .symtab without a size reaches to the next symbol, but not out of its section, and
 *    names nothing inside of a sized one.
 *  - Of several at one address: global before weak before local, the better source, the longer one,
 *    fewer leading underscores, then the first in the string table.
 *  - No indirect functions (the code there is their resolver's), no mapping symbols ($x, $d), no
 *    marks that begin with a dot. What follows '@' is a version, and goes.
 */
#pragma once

#include "module.h"

#include <elf.h>

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

/* Bytes of the file, all of them. 0, -ENOEXEC when it is shorter, -EIO. */
int elfsym_read(const struct elfsym_source *src, u64 off, void *buf, size_t len);
/* The same to new memory, of n elements; owned. Also -ENOMEM. Nothing is paid for a lie. */
int elfsym_read_array(const struct elfsym_source *src, u64 off, u64 n, size_t size, void **ret);

/* Section headers, with their names. */
struct elfsym_sections {
	Elf64_Shdr *v;
	u32 n;
	u16 machine;
	u64 entry; /* of the program */
	char *names;
	size_t names_len;
};

/* Returns 0, -ENOENT when the file has none, or an error. To be ended with elfsym_sections_fini(). */
int elfsym_sections(const struct elfsym_source *src, struct elfsym_sections *ret);
void elfsym_sections_fini(struct elfsym_sections *s);
/* The first one of a name with bytes in the file; NULL: none. */
const Elf64_Shdr *elfsym_section(const struct elfsym_sections *s, const char *name);

/* Functions that are not from a symbol table. */
struct elfsym_names {
	struct elfsym_name {
		u64 addr;
		u32 size, name; /* offset in text */
	} * v;
	u32 n, cap;
	char *text;
	u32 len, text_cap;
};

void elfsym_names_fini(struct elfsym_names *n);
/* 0, -ENOMEM; -E2BIG over the limits for symbols. The name is cut at 4 KiB. */
int elfsym_names_add(struct elfsym_names *n, u64 addr, u32 size, const char *name,
		     const char *suffix);

struct elfsym_table;

/*
 * Headers and build id of a 64-bit little-endian executable or shared object for x86-64 or arm64.
 * ret is to be ended with elfsym_info_fini(). Returns 0, -ENOEXEC, -E2BIG, -ENOMEM, -EIO.
 */
int elfsym_info(const struct elfsym_source *src, struct elfsym_info *ret);
void elfsym_info_fini(struct elfsym_info *info);
/* Whether it begins as an ELF file does, sound or not. */
bool elfsym_is_elf(const struct elfsym_source *src);

/* Where a file says that its symbols are. */
struct elfsym_link {
	char name[256]; /* a base name */
	u32 crc;
};

/* False when it says so not at all, or names no mere file. */
bool elfsym_debuglink(const struct elfsym_source *src, struct elfsym_link *ret);
/* Whether it has a .symtab of its own. */
bool elfsym_has_symtab(const struct elfsym_source *src);

/*
 * Function table of a file that elfsym_info() accepted; owned. *ret is NULL when the file has no
 * function symbols. -E2BIG also when the table would take more than max_bytes. debug: a file that
 * was made of this one with its symbols, or NULL; what is wrong with it costs only its symbols.
 */
int elfsym_table(const struct elfsym_source *src, const struct elfsym_source *debug,
		 size_t max_bytes, struct elfsym_table **ret);
void elfsym_table_free(struct elfsym_table *t);
size_t elfsym_table_bytes(const struct elfsym_table *t);
/* Function that covers an ELF address, valid UTF-8; NULL: none. Borrowed. t may be NULL. */
const char *elfsym_lookup(const struct elfsym_table *t, u64 vaddr);
