/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. A line of /proc/PID/maps (kernel: fs/proc/task_mmu.c, show_map_vma()):
 * LO-HI PERMS OFFSET MAJOR:MINOR INODE [PATH].
 */
#pragma once

#include "util.h"

struct maps_line {
	u64 lo, hi, offset, ino;
	u32 major, minor;
	bool readable, exec;
	/* Borrowed from the line and not terminated; escapes and " (deleted)" stay. */
	const char *path;
	size_t path_len;
};

/* False for what is no such line, or of an empty mapping; the line has no newline. */
bool maps_parse(const char *line, size_t len, struct maps_line *ret);
