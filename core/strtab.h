/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Interned strings: each distinct text once, numbered 0, 1, 2... in order of arrival.
 * Equal texts of one table are equal pointers.
 */
#pragma once

#include "util.h"
#include "arena.h"
#include "htab.h"

struct strtab_entry {
	char *s; /* in the arena, NUL-terminated */
	size_t len;
};

/* All zero is an empty table. */
struct strtab {
	struct strtab_entry *entries;
	u32 n, cap;
	struct htab by_text;
	struct arena arena; /* open to the table's owner for what shall live as long */
	size_t bytes;       /* of all texts, NULs included */
	size_t max_bytes;   /* 0: no limit */
};

void strtab_fini(struct strtab *t);
/*
 * The text's number; adds it when it is new. s holds no NUL within len. Returns 0, -ENOMEM, or
 * -E2BIG when max_bytes would be passed.
 */
int strtab_add(struct strtab *t, const char *s, size_t len, u32 *ret);
