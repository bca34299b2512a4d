/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Names native frames of a closed window from the module book, once per distinct
 * frame. Between fold and pprof; a window that is only sent bare may skip it.
 */
#pragma once

#include "util.h"

struct modules;
struct window;

/* Waits up to wait_ns for files still being read; frames of files that are not ready stay bare. */
void names_resolve(struct window *w, struct modules *ms, u64 wait_ns);
