/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Makes a smaller pprof message of one: some of its samples, without some of their
 * labels, and of its tables only what these use. In: a message as pprof_in.h gives it.
 */
#pragma once

#include "pprof_in.h"

/*
 * Is it whole? Ids count 1, 2, 3 ... in each table, every reference is inside its table, every
 * sample has a value per type, the first text is "". All of ours are; whoever holds to ids and
 * indices as places asks here first.
 */
bool pprof_is_whole(const struct Pprof__Profile *pb);
/*
 * Cuts a whole message down to its samples first .. first + n - 1, in place: tables keep their
 * order and are numbered anew, and the first mapping, which names the program, stays. Labels whose
 * key is in `without` (NULL-terminated; may be NULL) go. Returns 0 or -ENOMEM (also for what finds
 * no room in the bound of pprof_in).
 */
int pprof_cut(struct pprof_in *in, size_t first, size_t n, const char *const *without);
