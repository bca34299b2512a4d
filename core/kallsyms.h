/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: books. Names of kernel addresses from /proc/kallsyms. Main thread only. */
#pragma once

#include "util.h"

struct kallsyms;

/*
 * Reads a kallsyms file (path NULL: /proc/kallsyms). Owned. Returns 0; -EACCES when all addresses
 * read as zero (no CAP_SYSLOG under kptr_restrict); -errno. *ret is untouched on failure.
 */
int kallsyms_new(const char *path, struct kallsyms **ret);
void kallsyms_free(struct kallsyms *k);
/*
 * Function that covers addr, or NULL; *ret_module (may be NULL) gets "vmlinux" or the module's
 * name. Borrowed until the book is freed or refreshed.
 */
const char *kallsyms_lookup(const struct kallsyms *k, u64 addr, const char **ret_module);
