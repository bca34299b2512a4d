/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Our own pid namespace, as BPF programs need it to tell its processes from the rest
 * of the host, and to number them as /proc does. In: /proc/self/ns/pid, and where that is not the
 * first one a BPF iterator, read once.
 */
#pragma once

#include "util.h"

struct pidns {
	u32 level; /* 0: the first namespace, the whole host */
	u64 at;    /* what the kernel knows it by; 0 in the first */
};

/* 0 or -errno; from the first success on always the same. */
int pidns_own(struct pidns *ret);

/* Is the process's namespace the first one? Also true when that cannot be told. */
bool pidns_is_first(void);
