// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See guard.h. */
#include "guard.h"

#define CALM_WINDOWS 3

u32 guard_window(struct guard *g, double percent)
{
	if (percent > g->budget) {
		g->calm = 0;
		g->hz = MAX(g->hz / 2, 1u);
	} else if (percent < g->budget / 4 && g->hz < g->max_hz) {
		if (++g->calm >= CALM_WINDOWS) {
			g->calm = 0;
			g->hz = MIN(g->hz * 2, g->max_hz);
		}
	} else {
		g->calm = 0;
	}
	return g->hz;
}
