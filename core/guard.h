/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The overhead guard: own CPU over a window -> rate of the next. Over the budget it
 * is halved, never under 1 Hz; after three windows under a quarter of it, doubled again, never
 * over what is configured: doubling a quarter stays under a half, so it cannot flap.
 */
#pragma once

#include "util.h"

struct guard {
	u32 hz, max_hz;
	double budget; /* percent of one CPU */
	u32 calm;      /* windows in a row with room */
};

/* Takes a window's cost in percent of one CPU; returns the rate for the next. */
u32 guard_window(struct guard *g, double percent);
