/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Names of a closed window's frames, once per distinct frame: native ones from the
 * module book, readable ones for mangled ones; those of code made at run time from perf maps,
 * where the name was not known yet when the stack was taken. In steps that are short, while
 * workers read the files. Between fold and pprof; a window that is only sent bare may skip it.
 */
#pragma once

#include "util.h"

struct modules;
struct naming;
struct perfmaps;
struct window;

#define NAMING_STEP_NS (NSEC_PER_SEC / 200) /* of work in one step, about */

/*
 * Begins with a window, which is borrowed. At deadline_ns (CLOCK_MONOTONIC) what has no name stays
 * bare. pm may be NULL. Owned; NULL when out of memory.
 */
struct naming *naming_new(struct window *w, struct modules *ms, struct perfmaps *pm,
			  u64 deadline_ns);
void naming_free(struct naming *n);
/* Goes on; never blocks. True: all is done. False: again when modules_fd() tells, or soon. */
bool naming_step(struct naming *n, u64 now_ns);

/* All steps at once, at most until deadline_ns. */
void naming_finish(struct naming *n, u64 deadline_ns);
/* All of it, waiting wait_ns at most for files still being read. */
void names_resolve(struct window *w, struct modules *ms, struct perfmaps *pm, u64 wait_ns);
