// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See guard.h. */
#include "guard.h"

#define CALM_WINDOWS     3
#define CALM_WINDOWS_MAX 96
#define HELD(need)       (4 * (need)) /* windows after which a step back was none too early */
/* Waits are rarely shorter than a switch takes; steps down there would not change a thing. */
#define FIRST_SAMPLE_NS 16384

void guard_init(struct guard *g, const struct guard_options *o)
{
	*g = (struct guard){
		.o = *o,
		.first_sample_ns = MAX(2 * o->min_ns, (u64)FIRST_SAMPLE_NS),
		.hz = o->hz,
		.share = 100,
		.need = CALM_WINDOWS,
	};
}

/* What a side's lever acts on: the switches themselves cost what they cost. */
static double movable(const struct guard_cost *c, enum guard_side side)
{
	double fixed = side == GUARD_OFFCPU ? c->switches : 0;

	return MAX(c->side[side] - fixed, 0.0);
}

static bool can_fall(const struct guard *g, enum guard_side side)
{
	switch (side) {
	case GUARD_CPU:
		return g->hz > 1;
	case GUARD_OFFCPU:
		return g->o.offcpu && !g->paused && g->sample_ns < GUARD_MAX_SAMPLE_NS;
	default:
		return g->o.runtimes && g->share > 1;
	}
}

static bool can_rise(const struct guard *g, enum guard_side side)
{
	switch (side) {
	case GUARD_CPU:
		return g->hz < g->o.hz;
	case GUARD_OFFCPU:
		return g->paused || g->sample_ns;
	default:
		return g->share < 100;
	}
}

static void fall(struct guard *g, enum guard_side side)
{
	switch (side) {
	case GUARD_CPU:
		g->hz /= 2;
		break;
	case GUARD_OFFCPU:
		g->sample_ns = g->sample_ns ? g->sample_ns * 2 : g->first_sample_ns;
		g->sample_ns = MIN(g->sample_ns, GUARD_MAX_SAMPLE_NS);
		break;
	default:
		g->share /= 2;
	}
}

static enum guard_move rise(struct guard *g, enum guard_side side)
{
	switch (side) {
	case GUARD_CPU:
		g->hz = MIN(g->hz * 2, g->o.hz);
		break;
	case GUARD_OFFCPU:
		if (g->paused) {
			g->paused = false;
			return GUARD_RESUME;
		}
		g->sample_ns = g->sample_ns > g->first_sample_ns ? g->sample_ns / 2 : 0;
		break;
	default:
		g->share = MIN(g->share * 2, 100u);
	}
	return GUARD_UP;
}

static enum guard_move give_way(struct guard *g, const struct guard_cost *c, enum guard_side *side)
{
	enum guard_side i, best = GUARD_SIDES;

	*side = GUARD_OFFCPU;
	if (g->o.offcpu && !g->paused && c->switches > g->o.budget) {
		g->paused = true;
		return GUARD_PAUSE;
	}
	for (i = 0; i < GUARD_SIDES; i++)
		if (can_fall(g, i) && (best == GUARD_SIDES || movable(c, i) > movable(c, best)))
			best = i;
	if (best == GUARD_SIDES) {
		if (g->helpless)
			return GUARD_NONE;
		g->helpless = true;
		return GUARD_HELPLESS;
	}
	fall(g, best);
	*side = best;
	return GUARD_DOWN;
}

static enum guard_move step_back(struct guard *g, const struct guard_cost *c, enum guard_side *side)
{
	enum guard_side i, best = GUARD_SIDES;

	for (i = 0; i < GUARD_SIDES; i++) {
		/* What a paused side would cost is not known, only that it was too much: last. */
		if (!can_rise(g, i) || (i == GUARD_OFFCPU && g->paused))
			continue;
		if (best == GUARD_SIDES || movable(c, i) < movable(c, best))
			best = i;
	}
	if (best == GUARD_SIDES) {
		if (!g->paused)
			return GUARD_NONE;
		best = GUARD_OFFCPU;
	}
	g->on_trial = true;
	g->trial = 0;
	g->helpless = false;
	*side = best;
	return rise(g, best);
}

/* Was the last step back right? The first window over the budget tells. */
static void judge_trial(struct guard *g)
{
	if (!g->on_trial)
		return;
	g->on_trial = false;
	if (g->trial <= HELD(g->need))
		g->need = MIN(g->need * 2, (u32)CALM_WINDOWS_MAX);
	else
		g->need = MAX(g->need / 2, (u32)CALM_WINDOWS);
}

enum guard_move guard_window(struct guard *g, const struct guard_cost *c, enum guard_side *ret_side)
{
	double percent = 0;
	u32 i;

	for (i = 0; i < GUARD_SIDES; i++)
		percent += c->side[i];
	if (g->on_trial && g->trial < UINT32_MAX)
		g->trial++;
	if (percent > g->o.budget) {
		g->calm = 0;
		judge_trial(g);
		return give_way(g, c, ret_side);
	}
	if (percent >= g->o.budget / 2) {
		g->calm = 0;
		return GUARD_NONE;
	}
	if (++g->calm < g->need)
		return GUARD_NONE;
	g->calm = 0;
	return step_back(g, c, ret_side);
}
