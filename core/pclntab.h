/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Functions of a Go program from the table that its runtime needs for tracebacks,
 * and that stripping leaves. All layouts since Go 1.2, told by their magic number: 1.2, 1.16, 1.18,
 * 1.20 (src/runtime/symtab.go, src/debug/gosym/pclntab.go).
 */
#pragma once

#include "elfsym.h"

/* What an ELF file says of its code: only for tables that do not know where it begins. */
struct pclntab_text {
	u64 start; /* address of .text; 0: unknown */
	u64 entry; /* the program's */
};

/*
 * A file's table, at most max bytes; owned. Returns 0, -ENOENT when it has none or a larger one, or an
 * error of elfsym_read_array().
 */
int pclntab_read(const struct elfsym_source *src, const struct elfsym_sections *s, size_t max,
		 u8 **ret, size_t *ret_len, struct pclntab_text *ret_text);
/*
 * Adds the functions of a table, len bytes that are to be read only. Pure; bounded by len. Returns
 * 0, -ENOMEM, -ENOEXEC for what is no sound table: then nothing of it is to be believed, but may
 * have been added.
 */
int pclntab_names(const u8 *table, size_t len, const struct pclntab_text *text,
		  struct elfsym_names *ret);

#define PCLNTAB_SWITCHERS_MAX 4096 /* more are no sound table: Go's runtime has some two dozen */

/*
 * Starts of the functions that move the stack pointer to another stack, as Go's linker marks them
 * (funcFlag_SPWRITE of src/internal/abi/symtab.go, since Go 1.17), in rising order: what the file's
 * CFI says of their frames is not so. *ret is owned, NULL when *ret_n is 0. Bounds and errors as
 * above; on failure there is nothing.
 */
int pclntab_switchers(const u8 *table, size_t len, const struct pclntab_text *text, u64 **ret,
		      u32 *ret_n);
