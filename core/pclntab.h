/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to elfsym.c. Functions of a Go program from the table that its runtime
 * needs for tracebacks, and that stripping leaves. All layouts since Go 1.2, told by their magic
 * number: 1.2, 1.16, 1.18, 1.20 (src/runtime/symtab.go, src/debug/gosym/pclntab.go).
 */
#pragma once

#include "elfsym.h"

/* What an ELF file says of its code: only for tables that do not know where it begins. */
struct pclntab_text {
	u64 start; /* address of .text; 0: unknown */
	u64 entry; /* the program's */
};

/*
 * Adds the functions of a table, len bytes that are to be read only. Pure; bounded by len. Returns
 * 0, -ENOMEM, -ENOEXEC for what is no sound table: then nothing of it is to be believed, but may
 * have been added.
 */
int pclntab_names(const u8 *table, size_t len, const struct pclntab_text *text,
		  struct elfsym_names *ret);
