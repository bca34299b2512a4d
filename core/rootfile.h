/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Files of other people's directories, found without side effects: first a descriptor
 * that only names what is there, whatever it is, then one to read it when it is a regular file. In
 * between nobody can put anything else there.
 */
#pragma once

#include "util.h"

struct stat;

/*
 * What a path below a directory leads to, as for who has that directory as root: never out of it.
 * links: symbolic ones are followed. An O_PATH descriptor, or -errno.
 */
int rootfile_at(int root, const char *path, bool links);
/* The same below the root of a process. */
int rootfile_of(u32 pid, const char *path);
/*
 * A readable descriptor of a regular file that such a descriptor names. Fills in *ret_stat. -ENOENT
 * when it is no regular file or path_fd is negative, or -errno.
 */
int rootfile_open(int path_fd, struct stat *ret_stat);
