/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books, private to elfsym.c. Entries of procedure linkage tables, named after the function
 * that they jump to. By what their code says, so that lazy and direct tables, those with landing
 * pads and those of every linker are understood: the slot they read decides.
 */
#pragma once

#include "elfsym.h"

#include <elf.h>

/*
 * Adds "NAME@plt" for each entry of the file's tables that is understood. Pure; costs at most
 * PLT_BYTES_MAX of each of what is read. Returns 0, -ENOMEM, -EIO; nothing is added for what is
 * damaged.
 */
#define PLT_BYTES_MAX (16u << 20)
int plt_names(const struct elfsym_source *src, const struct elfsym_sections *s,
	      struct elfsym_names *ret);
