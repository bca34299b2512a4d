/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Functions, inlined ones too, files and lines of addresses, from a file's DWARF, by
 * libdw. Not for the daemon: what libdw takes to read a large file is seconds and hundreds of
 * megabytes. Best asked in order of addresses: what was read of a unit is kept until the next one.
 */
#pragma once

#include "util.h"

struct dwarfnames;

/* Text is valid UTF-8, and lives as long as what gave it. */
struct dwarf_frame {
	const char *func;   /* readable; NULL: unknown */
	const char *linked; /* as the linker knows it; equal to func unless that is demangled */
	const char *file;   /* NULL: unknown */
	u32 line;           /* being executed, or called from; 0: unknown */
	u32 start_line;     /* where the function is declared; 0: unknown */
};

#define DWARFNAMES_DEPTH 128 /* inlined functions in each other; outer ones are left out beyond */

/* fd stays the caller's, and open. Returns 0, -ENOENT when the file has no DWARF, -ENOMEM. */
int dwarfnames_new(int fd, struct dwarfnames **ret);
void dwarfnames_free(struct dwarfnames *d);
/*
 * What is executed at an ELF address, innermost first, at most DWARFNAMES_DEPTH. Returns how many;
 * 0: nothing is known. A single one may have a line without a function.
 */
u32 dwarfnames_find(struct dwarfnames *d, u64 vaddr, struct dwarf_frame *ret);
