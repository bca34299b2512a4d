/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Names of kernel addresses: /proc/kallsyms, and what has come and gone since it was
 * read. Main thread only.
 */
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
 * The kernel has code of this name at [addr, addr + len) from now on, or none any more (NULL):
 * BPF programs, trampolines, what the kernel makes for probes. Nobody of these is known to the file
 * that was read. An empty module stands for vmlinux.
 */
void kallsyms_change(struct kallsyms *k, u64 addr, u64 len, const char *name, const char *module);
/*
 * Reads the file again when `lost` (changes may be missing), when changes got too many to keep, or
 * when other modules are loaded than then. Cheap otherwise. What cannot be read stays as it was.
 */
void kallsyms_follow(struct kallsyms *k, bool lost);
/*
 * Function that covers addr, or NULL; *ret_module (may be NULL) gets "vmlinux" or the module's
 * name. Borrowed until the next call of the three above.
 */
const char *kallsyms_lookup(const struct kallsyms *k, u64 addr, const char **ret_module);
