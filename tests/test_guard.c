// SPDX-License-Identifier: Apache-2.0
/*
 * The overhead guard: what it does is computed here from what it promises (guard.h), with loads
 * whose cost follows a formula: so much whatever is done, so much per sample, so much per wait.
 */
#include "core/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

#define MS 1000000ull

static enum guard_side side; /* of the last move */

static void init(struct guard *g, u32 hz, bool offcpu, u64 min_ns)
{
	guard_init(g, &(struct guard_options){
			      .budget = 1.0, .hz = hz, .offcpu = offcpu, .min_ns = min_ns });
}

static enum guard_move window(struct guard *g, double cpu, double offcpu)
{
	struct guard_cost c = { .side = { cpu, offcpu, 0 } };

	return guard_window(g, &c, &side);
}

static void over_the_budget_halves_the_rate_down_to_1_hz(void **state)
{
	static const u32 rates[] = { 9, 4, 2, 1 };
	struct guard g;
	size_t i;

	(void)state;
	init(&g, 19, false, 0);
	assert_int_equal(window(&g, 1.0, 0), GUARD_NONE); /* not above */
	assert_int_equal(g.hz, 19);
	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		assert_int_equal(window(&g, 1.01, 0), GUARD_DOWN);
		assert_int_equal(g.hz, rates[i]);
	}
	assert_int_equal(window(&g, 50, 0), GUARD_HELPLESS);
	assert_int_equal(window(&g, 50, 0), GUARD_NONE); /* told once */
	assert_int_equal(g.hz, 1);
}

static void three_windows_under_half_the_budget_double_it_back(void **state)
{
	static const u32 rates[] = { 2, 4, 8, 16, 19 };
	struct guard g;
	size_t i;

	(void)state;
	init(&g, 19, false, 0);
	while (g.hz > 1)
		window(&g, 2, 0);
	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		assert_int_equal(window(&g, 0.499, 0), GUARD_NONE);
		assert_int_equal(window(&g, 0.499, 0), GUARD_NONE);
		assert_int_equal(window(&g, 0.499, 0), GUARD_UP);
		assert_int_equal(g.hz, rates[i]);
	}
	for (i = 0; i < 10; i++)
		assert_int_equal(window(&g, 0, 0), GUARD_NONE);
	assert_int_equal(g.hz, 19);
}

static void a_window_of_half_the_budget_begins_the_count_anew(void **state)
{
	struct guard g;

	(void)state;
	init(&g, 19, false, 0);
	window(&g, 2, 0);
	window(&g, 0.4, 0);
	window(&g, 0.4, 0);
	assert_int_equal(window(&g, 0.5, 0), GUARD_NONE);
	assert_int_equal(window(&g, 0.4, 0), GUARD_NONE);
	assert_int_equal(window(&g, 0.4, 0), GUARD_NONE);
	assert_int_equal(window(&g, 0.4, 0), GUARD_UP);
}

static void the_side_that_costs_more_gives_way(void **state)
{
	struct guard g;

	(void)state;
	init(&g, 19, true, MS);
	assert_int_equal(window(&g, 0.3, 0.8), GUARD_DOWN);
	assert_int_equal(g.hz, 19);
	assert_int_equal(g.sample_ns, 2 * MS);
	assert_int_equal(window(&g, 0.3, 0.8), GUARD_DOWN);
	assert_int_equal(g.sample_ns, 4 * MS);
	assert_int_equal(window(&g, 0.8, 0.3), GUARD_DOWN);
	assert_int_equal(g.hz, 9);
	assert_int_equal(g.sample_ns, 4 * MS);
	/* Back: the cheaper one first. */
	window(&g, 0.3, 0.1);
	window(&g, 0.3, 0.1);
	assert_int_equal(window(&g, 0.3, 0.1), GUARD_UP);
	assert_int_equal(g.sample_ns, 2 * MS);
	window(&g, 0.3, 0.1);
	window(&g, 0.3, 0.1);
	assert_int_equal(window(&g, 0.3, 0.1), GUARD_UP);
	assert_int_equal(g.sample_ns, 0);
	window(&g, 0.3, 0.1);
	window(&g, 0.3, 0.1);
	assert_int_equal(window(&g, 0.3, 0.1), GUARD_UP);
	assert_int_equal(g.hz, 18);
}

static void a_lever_at_its_end_leaves_the_other(void **state)
{
	struct guard g;
	u32 i;

	(void)state;
	init(&g, 2, true, MS);
	assert_int_equal(window(&g, 2, 0.1), GUARD_DOWN);
	assert_int_equal(window(&g, 2, 0.1), GUARD_DOWN);
	for (i = 0; i < 40; i++)
		window(&g, 0.1, 2);
	assert_int_equal(g.sample_ns, GUARD_MAX_SAMPLE_NS);
	assert_int_equal(g.hz, 1);
	/* Nothing on CPU to begin with. */
	init(&g, 0, true, MS);
	assert_int_equal(window(&g, 5, 0.1), GUARD_DOWN);
	assert_int_equal(g.hz, 0);
}

static void runtimes_give_way_by_the_share_that_is_walked(void **state)
{
	struct guard_cost much = { .side = { 0.2, 0.1, 0.9 } },
			  little = { .side = { 0.1, 0.1, 0.1 } };
	struct guard g;
	u32 i;

	(void)state;
	guard_init(&g, &(struct guard_options){ .budget = 1.0, .hz = 19, .runtimes = true });
	assert_int_equal(g.share, 100);
	for (i = 0; i < 6; i++) {
		assert_int_equal(guard_window(&g, &much, &side), GUARD_DOWN);
		assert_int_equal(side, GUARD_RUNTIMES);
	}
	assert_int_equal(g.share, 1);
	assert_int_equal(guard_window(&g, &much, &side), GUARD_DOWN);
	assert_int_equal(side, GUARD_CPU);
	for (i = 0; i < 60; i++)
		guard_window(&g, &little, &side);
	assert_int_equal(g.share, 100);
	assert_int_equal(g.hz, 19);
}

static void switches_that_cost_too_much_by_themselves_pause_the_side(void **state)
{
	struct guard_cost heavy = { .side = { 0.1, 1.3, 0 }, .switches = 1.2 };
	struct guard_cost half = { .side = { 0.5, 0.8, 0 }, .switches = 0.7 };
	u32 i, tries = 0, last = 0;
	struct guard g;

	(void)state;
	init(&g, 19, true, MS);
	assert_int_equal(guard_window(&g, &heavy, &side), GUARD_PAUSE);
	assert_true(g.paused);
	assert_int_equal(g.sample_ns, 0); /* no wait was thrown away for nothing */
	/* Tried again, ever more seldom: after 3, 6, 12, ... windows. */
	for (i = 1; i <= 2000; i++) {
		enum guard_move m;

		m = g.paused ? window(&g, 0.1, 0) : guard_window(&g, &heavy, &side);
		if (m == GUARD_RESUME) {
			assert_true(i - last >= MIN(3u << tries, 96u));
			last = i;
			tries++;
		}
	}
	assert_in_range(tries, 5, 25);
	/* Fixed cost within the budget: only the other lever can help. */
	init(&g, 19, true, MS);
	assert_int_equal(guard_window(&g, &half, &side), GUARD_DOWN);
}

/* What a load costs at a setting; `noise` is a factor of its own for each window. */
struct load {
	double base, per_hz, per_switch, per_wait, per_walk;
};

static struct guard_cost cost_of(const struct load *l, const struct guard *g, double noise)
{
	double kept = g->sample_ns ? (double)g->first_sample_ns / 2 / (double)g->sample_ns : 1;
	struct guard_cost c = { .side = { noise * (l->base + l->per_hz * g->hz) } };

	if (g->o.offcpu && !g->paused) {
		c.switches = noise * l->per_switch;
		c.side[GUARD_OFFCPU] = c.switches + noise * l->per_wait * kept;
	}
	if (g->o.runtimes)
		c.side[GUARD_RUNTIMES] = noise * l->per_walk * g->share / 100;
	return c;
}

/* xorshift: the same numbers in each run. */
static double chance(u64 *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (double)(*seed >> 11) / (double)(1ull << 53);
}

/* From nearly nothing to max, over several orders of magnitude. */
static double mostly_small(u64 *seed, double max)
{
	double u = chance(seed);

	return max * u * u * u * u * u;
}

static double total(const struct guard_cost *c)
{
	return c->side[0] + c->side[1] + c->side[2];
}

static bool all_given(const struct guard *g)
{
	return g->hz <= 1 && (!g->o.runtimes || g->share == 1) &&
	       (!g->o.offcpu || g->paused || g->sample_ns == GUARD_MAX_SAMPLE_NS);
}

/*
 * Whatever a load costs, if it costs the same in each window then the guard comes to rest, apart
 * from the ever rarer trials of a paused side; and it rests under the budget if it can.
 */
static void a_steady_load_never_makes_it_flap(void **state)
{
	u64 seed = 0x1234567;
	u32 k, i;

	(void)state;
	for (k = 0; k < 20000; k++) {
		struct load l = {
			.base = 0.3 * chance(&seed),
			.per_hz = mostly_small(&seed, 0.1),
			.per_switch = mostly_small(&seed, 3),
			.per_wait = mostly_small(&seed, 1000),
			.per_walk = mostly_small(&seed, 20),
		};
		u32 moves = 0, trials = 0;
		struct guard_cost c;
		struct guard g;

		guard_init(&g, &(struct guard_options){
				       .budget = 1.0,
				       .hz = 1 + (u32)(200 * chance(&seed)),
				       .offcpu = k % 4,
				       .runtimes = k % 5,
				       .min_ns = k % 3 * MS,
			       });
		for (i = 0; i < 1200; i++) {
			c = cost_of(&l, &g, 1);
			switch (guard_window(&g, &c, &side)) {
			case GUARD_NONE:
				break;
			case GUARD_PAUSE:
			case GUARD_RESUME:
				trials++;
				break;
			default:
				moves += i >= 200;
			}
		}
		assert_int_equal(moves, 0);
		assert_true(trials <= 40);
		c = cost_of(&l, &g, 1);
		/* Over the budget only with nothing left to give, or for one window of a trial. */
		if (total(&c) > 1.0 && !all_given(&g))
			assert_int_equal(guard_window(&g, &c, &side), GUARD_PAUSE);
	}
}

/* A load around the point where a step back is just too much, with noise of up to +-20 %. */
static void a_load_that_varies_moves_it_ever_more_seldom(void **state)
{
	struct load l = { .base = 0.02, .per_hz = 0.047 };
	u32 moves[2] = { 0 }, i;
	u64 seed = 99;
	struct guard g;

	(void)state;
	init(&g, 19, false, 0);
	for (i = 0; i < 4000; i++) {
		struct guard_cost c = cost_of(&l, &g, 0.8 + 0.4 * chance(&seed));

		moves[i >= 400] += guard_window(&g, &c, &side) != GUARD_NONE;
	}
	print_message("moves in 400 windows: %u, in 3600 more: %u\n", moves[0], moves[1]);
	assert_true(moves[0] <= 40);
	/* At most one step down and one up in 48 windows on the average. */
	assert_true(moves[1] <= 2 * 3600 / 48);
}

/* Three times the budget: back under it as fast as halving gets there, and back up when it ends. */
static void an_overload_passes(void **state)
{
	struct load heavy = { .per_hz = 3.0 / 19 }, light = { .per_hz = 0.2 / 19 };
	struct guard_cost c;
	struct guard g;
	u32 i;

	(void)state;
	init(&g, 19, false, 0);
	for (i = 0; i < 2; i++) {
		c = cost_of(&heavy, &g, 1);
		guard_window(&g, &c, &side);
	}
	c = cost_of(&heavy, &g, 1);
	assert_true(total(&c) <= 1.0);
	assert_int_equal(g.hz, 4);
	for (i = 0; i < 9; i++) {
		c = cost_of(&light, &g, 1);
		guard_window(&g, &c, &side);
	}
	assert_int_equal(g.hz, 19);
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(over_the_budget_halves_the_rate_down_to_1_hz),
		T(three_windows_under_half_the_budget_double_it_back),
		T(a_window_of_half_the_budget_begins_the_count_anew),
		T(the_side_that_costs_more_gives_way),
		T(a_lever_at_its_end_leaves_the_other),
		T(runtimes_give_way_by_the_share_that_is_walked),
		T(switches_that_cost_too_much_by_themselves_pause_the_side),
		T(a_steady_load_never_makes_it_flap),
		T(a_load_that_varies_moves_it_ever_more_seldom),
		T(an_overload_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
