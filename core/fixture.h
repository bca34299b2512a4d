/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. All that is done to a process to get its stacks once: detect, self-check, walk each
 * thread's list, name the frames. In: a target, live, recorded or being recorded. Out: text that
 * compares with what the runtime itself says of its threads.
 */
#pragma once

#include "util.h"
#include "runtime.h"

/* Threads of one process; more are left out. */
#define FIXTURE_THREADS_MAX 1024

struct fixture_result {
	const struct unwinder *unwinder; /* NULL: nobody's process */
	struct version version;
	enum verdict verdict;
	char text[256];      /* the verdict as a sentence */
	u32 threads, stacks; /* with frames */
	u32 refused;         /* lists */
	u32 reads_max;       /* of detection or one walk */
};

/*
 * runtime: the one unwinder that may answer; NULL: any. Prints, when out is not NULL:
 *
 *	refused: TITLE 3.5.10: this version is not supported
 *
 * or for each thread that has frames, in the order of thread ids:
 *
 *	thread 1234
 *		func (file:line)
 *
 * leaf first; "thread 1234: refused: REASON" when its list was refused, " (cut)" behind the number
 * when it is not whole. Text is clean. Returns 0 or -ENOMEM.
 */
int fixture_walk(struct target *t, const char *runtime, FILE *out, struct fixture_result *ret);
