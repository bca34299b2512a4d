// SPDX-License-Identifier: Apache-2.0
/*
 * The executor of recipes over plain memory: each thing that a recipe can say, each way in which a
 * list can end, and memory that lies. Lists are laid out by hand; what a walk must keep of them is
 * written beside.
 */
#include "bpf/recipe.h"
#include "core/listwalk.h"
#include "core/runtime.h"
#include "core/target.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BASE  0x10000ull
#define WORDS 8192
#define PAGE  4096ull

/* A process: one piece of memory, some of whose pages may be missing. */
struct world {
	struct target t;
	u64 mem[WORDS];
	bool missing[WORDS * 8 / PAGE];
	u32 nreads;
	u64 words[LIST_WORDS_MAX];
	struct list l;
};

static int world_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct world *w = (struct world *)t;
	u64 a;

	w->nreads++;
	for (a = addr & ~(PAGE - 1); a < addr + len; a += PAGE)
		if (a < BASE || a >= BASE + sizeof(w->mem) || w->missing[(a - BASE) / PAGE])
			return -EFAULT;
	if (addr + len < addr || addr + len > BASE + sizeof(w->mem))
		return -EFAULT;
	memcpy(dst, (u8 *)w->mem + (addr - BASE), len);
	return 0;
}

static const struct target_ops ops = { .read = world_read, .direct = true };

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		return -1;
	w->t.ops = &ops;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void put(struct world *w, u64 addr, u64 value)
{
	assert_true(addr >= BASE && addr + 8 <= BASE + sizeof(w->mem) && !(addr & 7));
	w->mem[(addr - BASE) / 8] = value;
}

/* n nodes of {value 100 + i, next} at `at`, `gap` bytes apart; the last one's next is 0. */
static void lay_chain(struct world *w, u64 at, u32 n, s64 gap)
{
	u32 i;

	for (i = 0; i < n; i++, at += (u64)gap) {
		put(w, at, 100 + i);
		put(w, at + 8, i + 1 < n ? at + (u64)gap : 0);
	}
}

/* Of such a chain: the value alone. */
static struct recipe chain_recipe(u64 at)
{
	return (struct recipe){
		.head = RECIPE_ADDR,
		.addr = at,
		.len = 16,
		.nwords = 1,
		.word = { 0 },
		.next_word = 1,
	};
}

static enum list_end walk(struct world *w, const struct recipe *r, u64 tp, u64 head)
{
	w->nreads = 0;
	target_begin(&w->t);
	return list_walk(&w->t, r, tp, head, w->words, &w->l);
}

static void assert_chain(const struct world *w, u32 n)
{
	u32 i;

	assert_int_equal(w->l.n, n);
	assert_int_equal(w->l.width, 1);
	for (i = 0; i < n; i++)
		assert_int_equal(w->l.words[i], 100 + i);
}

static void keeps_the_words_of_each_node_of_a_linked_list(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);

	lay_chain(w, BASE + 0x100, 5, 0x40);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 5);
	assert_int_equal(w->l.head, BASE + 0x100);
	assert_int_equal(w->nreads, 5);
}

/* Else any thread of a process would seem to run what its first one does. */
static void what_is_the_first_thread_s_alone_no_other_thread_has(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);

	lay_chain(w, BASE + 0x100, 5, 0x40);
	assert_int_equal(walk(w, list_recipe_for(&r, false), 0, 0), LIST_END_NULL);
	r.first_thread = 1;
	assert_int_equal(walk(w, list_recipe_for(&r, true), 0, 0), LIST_END_NULL);
	assert_chain(w, 5);
	assert_int_equal(walk(w, list_recipe_for(&r, false), 0, 0), LIST_END_NO_HEAD);
	assert_int_equal(w->l.n, 0);
	assert_int_equal(w->nreads, 0);
	r.head = RECIPE_TP; /* a thread's own is its own */
	assert_int_equal(walk(w, list_recipe_for(&r, false), BASE + 0x100, 0), LIST_END_NULL);
}

static void keeps_words_in_the_order_that_the_recipe_gives(void **state)
{
	struct world *w = *state;
	struct recipe r = {
		.head = RECIPE_ADDR,
		.addr = BASE + 0x200,
		.lo = -16,
		.len = 128,
		.nwords = 6,
		.word = { 15, 0, 7, 7, 1, 2 },
		.next_word = 3,
	};
	u32 i;

	for (i = 0; i < 16; i++)
		put(w, BASE + 0x200 - 16 + 8 * i, i == 3 ? 0 : 1000 + i);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_int_equal(w->l.n, 1);
	assert_int_equal(w->l.width, 6);
	assert_int_equal(w->words[0], 1015);
	assert_int_equal(w->words[1], 1000);
	assert_int_equal(w->words[2], 1007);
	assert_int_equal(w->words[3], 1007);
	assert_int_equal(w->words[4], 1001);
	assert_int_equal(w->words[5], 1002);
}

/* As a thread-local variable of a library is found: block table, block, variable, then the list. */
static void hops_lead_from_the_thread_pointer_to_the_first_node(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(0);
	u64 tp = BASE + 0x1000, head;

	r.head = RECIPE_TP;
	r.nhops = 4;
	r.hop[0] = 8;
	r.hop[1] = 48;
	r.hop[2] = -24;
	r.hop[3] = 0x38;
	r.add = 0x20;
	put(w, tp + 8, BASE + 0x2000);
	put(w, BASE + 0x2000 + 48, BASE + 0x3000);
	put(w, BASE + 0x3000 - 24, BASE + 0x4000);
	put(w, BASE + 0x4000 + 0x38, BASE + 0x500);
	lay_chain(w, BASE + 0x520, 3, 0x40);
	assert_int_equal(walk(w, &r, tp, 0), LIST_END_NULL);
	assert_chain(w, 3);
	assert_int_equal(w->l.head, BASE + 0x520);
	assert_int_equal(list_head(&w->t, &r, tp, 0, &head), LIST_END_NONE);
	assert_int_equal(head, BASE + 0x520);
}

static void all_six_hops_are_taken_and_no_seventh(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE);
	u32 i;

	r.nhops = 200;
	for (i = 0; i < RECIPE_HOPS; i++) {
		r.hop[i] = 8;
		put(w, BASE + 0x40 * i + 8, BASE + 0x40 * (i + 1));
	}
	lay_chain(w, BASE + 0x40 * RECIPE_HOPS, 2, 0x40);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 2);
}

static void a_head_that_nobody_knows_is_no_head(void **state)
{
	static const u8 kinds[] = { RECIPE_NO_HEAD, RECIPE_TP,     RECIPE_ADDR,
				    RECIPE_TID,     RECIPE_JIT_FP, 99 };
	struct world *w = *state;
	struct recipe r = chain_recipe(0);
	u64 head = 1;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		r.head = kinds[i];
		assert_int_equal(walk(w, &r, 0, 0), LIST_END_NO_HEAD);
		assert_int_equal(w->l.n, 0);
		assert_int_equal(w->nreads, 0);
		assert_int_equal(list_head(&w->t, &r, 0, 0, &head), LIST_END_NO_HEAD);
		assert_int_equal(head, 1);
	}
}

static void a_head_told_for_the_thread_is_used_where_the_recipe_says_so(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(0);

	lay_chain(w, BASE + 0x40, 4, 0x40);
	r.head = RECIPE_TID;
	assert_int_equal(walk(w, &r, BASE, BASE + 0x40), LIST_END_NULL);
	assert_chain(w, 4);
	r.head = RECIPE_JIT_FP;
	assert_int_equal(walk(w, &r, BASE, BASE + 0x40), LIST_END_NULL);
	assert_chain(w, 4);
}

static void a_null_pointer_on_the_way_is_an_empty_list(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE);
	u64 head = 1;

	r.nhops = 2;
	r.hop[1] = 8;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_EMPTY);
	put(w, BASE, BASE + 0x100);
	r.add = 0x40; /* of nothing there is no offset */
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_EMPTY);
	assert_int_equal(list_head(&w->t, &r, 0, 0, &head), LIST_END_EMPTY);
	assert_int_equal(head, 1);
}

/* {base, size} stand where hop 1 begins; frames of 64 bytes lie from the head to the block's end. */
static struct recipe array_recipe(struct world *w, u64 head, u64 base, u64 size)
{
	put(w, BASE, BASE + 0x100);
	put(w, BASE + 0x100 + 0x10, base);
	put(w, BASE + 0x100 + 0x18, size);
	put(w, BASE + 0x100 + 0x20, head);
	return (struct recipe){
		.head = RECIPE_ADDR,
		.addr = BASE,
		.nhops = 2,
		.hop = { 0, 0x20 },
		.end_hop = 1,
		.end_a = 0x10,
		.end_b = 0x18,
		.end_shift = 3,
		.end_add = -64,
		.stride = 64,
		.len = 16,
		.nwords = 1,
		.word = { 1 },
	};
}

static void an_array_ends_where_its_end_is_computed_to_be(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1000, BASE + 0x800, (0x800 + 3 * 64 + 64) / 8);
	u32 i;

	for (i = 0; i < 10; i++)
		put(w, BASE + 0x1000 + 64 * i + 8, 7 + i);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_END);
	assert_int_equal(w->l.n, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(w->words[i], 7 + i);
}

static void an_arrays_end_can_be_found_behind_the_last_hop(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1000, 0, 0);

	put(w, BASE + 0x1000 + 0x10, BASE + 0x1000);
	put(w, BASE + 0x1000 + 0x18, (0x200 + 64 + 2 * 64) / 8);
	r.end_hop = 2;
	r.add = 0x200;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_END);
	assert_int_equal(w->l.n, 2);
	assert_int_equal(w->l.head, BASE + 0x1200);
}

static void an_array_that_begins_at_its_end_is_whole_and_empty(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1000, BASE + 0x800, (0x800 + 64) / 8);

	assert_int_equal(walk(w, &r, 0, 0), LIST_END_END);
	assert_int_equal(w->l.n, 0);
	assert_int_equal(w->l.head, BASE + 0x1000);
}

static void an_array_that_begins_beyond_its_end_is_refused(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1008, BASE + 0x800, (0x800 + 64) / 8);

	assert_int_equal(walk(w, &r, 0, 0), LIST_END_ORDER);
	assert_int_equal(w->l.n, 0);
	/* An end that is never computed is none. */
	r.end_hop = 77;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_ORDER);
}

static void an_array_whose_end_lies_far_away_is_cut_at_the_limit(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1000, BASE + 0x800, 1ull << 40);

	assert_int_equal(walk(w, &r, 0, 0), LIST_END_LIMIT);
	assert_int_equal(w->l.n, RECIPE_NODES_MAX);
}

static void the_mask_strips_tags_of_the_head_and_of_each_pointer(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x103);

	lay_chain(w, BASE + 0x100, 4, 0x40);
	put(w, BASE + 0x148, (BASE + 0x180) | 5);
	r.mask = ~7ull;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 4);
	/* A tagged null is null. */
	put(w, BASE + 0x148, 3);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 2);
}

static void peeks_follow_kept_words_one_level_further(void **state)
{
	struct world *w = *state;
	struct recipe r = {
		.head = RECIPE_ADDR,
		.addr = BASE + 0x100,
		.len = 24,
		.nwords = 2,
		.word = { 2, 0 },
		.npeeks = 2,
		.peek_word = { 1, 0 },
		.peek_off = { 0x10, -8 },
		.next_word = 1,
	};

	/* Node 1: word 0 leads to an object (with a tag), word 2 to another. */
	put(w, BASE + 0x100, (BASE + 0x400) | 1);
	put(w, BASE + 0x108, BASE + 0x200);
	put(w, BASE + 0x110, BASE + 0x500);
	put(w, BASE + 0x410, 41);
	put(w, BASE + 0x4f8, 42);
	/* Node 2: word 0 is a small number, word 2 leads nowhere. */
	put(w, BASE + 0x200, 4095);
	put(w, BASE + 0x208, 0);
	put(w, BASE + 0x210, 0xdead0000beef0000ull);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_int_equal(w->l.n, 2);
	assert_int_equal(w->l.width, 4);
	assert_int_equal(w->words[0], BASE + 0x500);
	assert_int_equal(w->words[1], (BASE + 0x400) | 1);
	assert_int_equal(w->words[2], 41);
	assert_int_equal(w->words[3], 42);
	assert_int_equal(w->words[4], 0xdead0000beef0000ull);
	assert_int_equal(w->words[5], 4095);
	assert_int_equal(w->words[6], 0);
	assert_int_equal(w->words[7], 0);
}

/* Found by the fuzzer: the words of a peek went elsewhere. */
static void counts_over_the_most_are_the_most(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE);
	u32 i;

	lay_chain(w, BASE, 2, 0x40);
	for (i = 0; i < 2; i++)
		put(w, BASE + 0x40 * i, BASE + 0x400 + 0x40 * i);
	put(w, BASE + 0x400, 7);
	put(w, BASE + 0x440, 8);
	r.npeeks = 7;
	r.nwords = 9;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_int_equal(w->l.n, 2);
	assert_int_equal(w->l.width, RECIPE_WIDTH_MAX);
	assert_int_equal(w->words[6], 7);
	assert_int_equal(w->words[7], 7);
	assert_int_equal(w->words[14], 8);
	assert_int_equal(w->words[15], 8);
	for (i = 16; i < LIST_WORDS_MAX; i++)
		assert_int_equal(w->words[i], 0);
}

static void a_list_that_has_to_go_up_is_refused_when_it_goes_down(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);

	r.up = 1;
	lay_chain(w, BASE + 0x100, 6, 0x40);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 6);
	put(w, BASE + 0x188, BASE + 0x140); /* the third node's next is the second */
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_ORDER);
	assert_chain(w, 3);
	r.up = 0;
	put(w, BASE + 0x188, BASE + 0x80); /* down, but not up again */
	put(w, BASE + 0x80, 103);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 4);
}

static void a_list_longer_than_the_limit_is_cut_there(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);

	lay_chain(w, BASE + 0x100, 10, 0x40);
	r.limit = 9;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_LIMIT);
	assert_chain(w, 9);
	r.limit = 10;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 10);
	r.limit = 60000;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, 10);
	lay_chain(w, BASE + 0x100, RECIPE_NODES_MAX + 1, 0x40);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_LIMIT);
	assert_chain(w, RECIPE_NODES_MAX);
	lay_chain(w, BASE + 0x100, RECIPE_NODES_MAX, 0x40);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_NULL);
	assert_chain(w, RECIPE_NODES_MAX);
}

static void a_list_that_leads_back_into_itself_is_refused(void **state)
{
	static const u32 cycles[] = { 1, 2, 3, 5, 17, 64 };
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE);
	u32 i, before;

	for (i = 0; i < ARRAY_SIZE(cycles); i++) {
		for (before = 0; before < 3; before++) {
			u32 n = before + cycles[i];

			lay_chain(w, BASE, n, 0x40);
			put(w, BASE + 0x40 * (n - 1) + 8, BASE + 0x40 * before);
			walk(w, &r, 0, 0);
			/* Of the longest, the nodes that are walked may not be enough. */
			if (w->l.end != LIST_END_LIMIT || cycles[i] < 64)
				assert_int_equal(w->l.end, LIST_END_ORDER);
			assert_true(w->l.n <= RECIPE_NODES_MAX);
		}
	}
}

static void a_misaligned_pointer_ends_the_list(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);

	lay_chain(w, BASE + 0x100, 4, 0x40);
	put(w, BASE + 0x148, BASE + 0x184);
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_MISALIGNED);
	assert_chain(w, 2);
	r.addr |= 1;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_MISALIGNED);
	assert_int_equal(w->l.n, 0);
}

static void memory_that_cannot_be_read_ends_the_list(void **state)
{
	static const u64 bad[] = { 8,
				   BASE - 8,
				   BASE + WORDS * 8,
				   0x7ffffffffff8ull,
				   0x0001000000000000ull,
				   0xffff800000000000ull,
				   0xfffffffffffffff8ull };
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);
	u32 i;

	lay_chain(w, BASE + 0x100, 4, 0x40);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		put(w, BASE + 0x148, bad[i]);
		assert_int_equal(walk(w, &r, 0, 0), LIST_END_UNREADABLE);
		assert_chain(w, 2);
		r.addr = bad[i];
		assert_int_equal(walk(w, &r, 0, 0), LIST_END_UNREADABLE);
		assert_int_equal(w->l.n, 0);
		r.nhops = 1;
		assert_int_equal(walk(w, &r, 0, 0), LIST_END_UNREADABLE);
		assert_int_equal(w->l.head, 0);
		r.nhops = 0;
		r.addr = BASE + 0x100;
	}
	/* A node that reaches into a missing page. */
	lay_chain(w, BASE + 2 * PAGE - 8, 1, 0x40);
	put(w, BASE + 0x148, BASE + 2 * PAGE - 8);
	w->missing[2] = true;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_UNREADABLE);
	assert_chain(w, 2);
}

static void reads_are_bounded_whatever_memory_says(void **state)
{
	struct world *w = *state;
	struct recipe r = array_recipe(w, BASE + 0x1000, 0, 1ull << 50);
	u32 i;

	r.npeeks = 2;
	r.nhops = 6;
	for (i = 0; i < 4; i++)
		r.hop[i + 1] = 0;
	for (i = 0x200; i < WORDS; i++)
		w->mem[i] = BASE + 0x1000;
	put(w, BASE + 0x100, BASE + 0x100);
	r.hop[5] = 0x20;
	r.flag = BASE + 0x1001;
	r.flag_mask = 0xff;
	r.flag_owner[0] = BASE + 0x80; /* null */
	r.flag_owner[1] = BASE + 0x1000;
	assert_int_equal(walk(w, &r, 0, 0), LIST_END_LIMIT);
	assert_int_equal(w->l.n, RECIPE_NODES_MAX);
	assert_int_equal(w->nreads, RECIPE_READS_MAX - RECIPE_SEEKS_MAX);
}

/* --- further lists of the thread ----------------------------------------------------------------- */

#define GROUPS (BASE + 0x100)
#define MY_ID  0x77

/* A group of n members, each of them {id, next, list}, one for each id; the lists are empty. */
static void lay_group(struct world *w, u64 at, u64 next, const u64 *ids, u32 n)
{
	u32 i;

	put(w, at, next);
	put(w, at + 8, n ? at + 0x40 : 0);
	for (i = 0; i < n; i++) {
		put(w, at + 0x40 * (i + 1), ids[i]);
		put(w, at + 0x40 * (i + 1) + 8, i + 1 < n ? at + 0x40 * (i + 2) : 0);
		put(w, at + 0x40 * (i + 1) + 16, 0);
	}
}

/* The thread pointer leads to the owner, which leads to its list of {value, next}. */
static struct recipe member_recipe(void)
{
	return (struct recipe){
		.head = RECIPE_TP,
		.nhops = 2,
		.hop = { 0, 16 },
		.thread_hops = 1,
		.groups = GROUPS,
		.group_next = 0,
		.group_member = 8,
		.member_id = 0,
		.member_next = 8,
		.len = 24,
		.nwords = 3,
		.word = { 0, 2, 2 },
		.next_word = 1,
	};
}

/* Two groups: in the first one the thread's own and another's, in the second another's and its own. */
static struct recipe lay_groups(struct world *w)
{
	const u64 first[] = { MY_ID, 5 }, second[] = { 6, MY_ID };

	put(w, GROUPS, BASE + 0x200);
	lay_group(w, BASE + 0x200, BASE + 0x400, first, 2);
	lay_group(w, BASE + 0x400, 0, second, 2);
	put(w, BASE + 8, BASE + 0x240); /* what the thread pointer leads to */
	return member_recipe();
}

#define OWN_LIST   (BASE + 0x250)
#define OTHER_LIST (BASE + 0x490)

static void assert_words(const struct world *w, const u64 *first, u32 n)
{
	u32 i;

	assert_int_equal(w->l.n, n);
	assert_int_equal(w->l.width, 3);
	for (i = 0; i < n; i++)
		assert_int_equal(w->l.words[3 * i], first[i]);
}

static void lists_of_the_same_thread_follow_each_closed_off(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w), by_tid;
	const u64 want[] = { 100, 101, 102, RECIPE_SEAM, 100, 101, RECIPE_SEAM };

	lay_chain(w, BASE + 0x1000, 3, 0x40);
	lay_chain(w, BASE + 0x2000, 2, 0x40);
	lay_chain(w, BASE + 0x3000, 2, 0x40);
	put(w, OWN_LIST, BASE + 0x1000);
	put(w, OTHER_LIST, BASE + 0x2000);
	put(w, BASE + 0x290, BASE + 0x3000); /* another thread's */
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_NULL);
	assert_words(w, want, 7);
	assert_int_equal(w->l.head, BASE + 0x1000);
	/* Each seam has the last node of the list before it, and the one before that. */
	assert_int_equal(w->l.words[3 * 3 + 1], BASE + 0x1080);
	assert_int_equal(w->l.words[3 * 3 + 2], BASE + 0x1040);
	assert_int_equal(w->l.words[6 * 3 + 1], BASE + 0x2040);
	assert_int_equal(w->l.words[6 * 3 + 2], BASE + 0x2000);
	/* The same from the owner on, and where no other member has a node. */
	assert_true(runtime_recipe_by_tid(&r, &by_tid));
	assert_int_equal(walk(w, &by_tid, 0, BASE + 0x240), LIST_END_NULL);
	assert_words(w, want, 7);
	put(w, OTHER_LIST, 0);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_NULL);
	assert_words(w, want, 3);
}

static void a_thread_whose_first_list_is_empty_may_have_another(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w);
	const u64 want[] = { 100, 101 };
	u64 head;

	lay_chain(w, BASE + 0x2000, 2, 0x40);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_EMPTY);
	put(w, OTHER_LIST, BASE + 0x2000);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_NULL);
	assert_words(w, want, 2);
	target_begin(&w->t);
	assert_int_equal(list_head(&w->t, &r, BASE + 8, 0, &head), LIST_END_NONE);
	assert_int_equal(head, BASE + 0x2000);
	/* No owner, no thread. */
	put(w, BASE + 8, 0);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_EMPTY);
	assert_int_equal(w->nreads, 1);
}

static void with_one_group_nothing_is_looked_for(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w);
	const u64 want[] = { 100, 101, 102 };

	lay_chain(w, BASE + 0x1000, 3, 0x40);
	put(w, OWN_LIST, BASE + 0x1000);
	put(w, BASE + 0x200, 0);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_NULL);
	assert_words(w, want, 3);
	assert_int_equal(w->nreads, 2 + 3 + 2);
}

/* Others make and unmake members meanwhile: what was found stays, and counts as cut. */
static void a_search_that_is_led_astray_ends_and_keeps_what_it_has(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w);
	const u64 want[] = { 100, 101, 102 }, wrong[] = { BASE + 0x441, 8, 0xdeadbeef000ull };
	u32 i;

	lay_chain(w, BASE + 0x1000, 3, 0x40);
	put(w, OWN_LIST, BASE + 0x1000);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		put(w, BASE + 0x408, wrong[i]);
		assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_UNREADABLE);
		assert_words(w, want, 3);
	}
	/* Members and groups in a circle. */
	put(w, BASE + 0x408, BASE + 0x440);
	put(w, BASE + 0x448, BASE + 0x440);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_LIMIT);
	assert_words(w, want, 3);
	assert_int_equal(w->nreads, 2 + 3 + RECIPE_SEEKS_MAX + 1);
	put(w, BASE + 0x448, 0);
	put(w, BASE + 0x400, BASE + 0x200);
	assert_int_equal(walk(w, &r, BASE + 8, 0), LIST_END_LIMIT);
	assert_words(w, want, 3);
}

static void no_seam_goes_beyond_the_limit(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w);
	u32 limit;

	lay_chain(w, BASE + 0x1000, 3, 0x40);
	lay_chain(w, BASE + 0x2000, 2, 0x40);
	put(w, OWN_LIST, BASE + 0x1000);
	put(w, OTHER_LIST, BASE + 0x2000);
	for (limit = 1; limit < 9; limit++) {
		r.limit = (u16)limit;
		assert_int_equal(walk(w, &r, BASE + 8, 0),
				 limit < 7 ? LIST_END_LIMIT : LIST_END_NULL);
		assert_int_equal(w->l.n, MIN(limit, 7u));
	}
}

#define FLAG      (BASE + 0x5003)
#define OWNER     (BASE + 0x6000)
#define OTHER     (BASE + 0x6100)
#define HOLDER    (BASE + 0x6200)
#define FLAG_BIT  0x20
#define LIST_HERE (BASE + 0x1000)

/* The thread pointer leads to a thread at BASE + 0x240, that to its list; what holds the lock, to a thread. */
static struct recipe flag_recipe(struct world *w)
{
	struct recipe r = member_recipe();

	r.groups = 0;
	r.flag = FLAG;
	r.flag_mask = FLAG_BIT;
	r.flag_owner[0] = OWNER;
	r.flag_owner[1] = OTHER;
	r.flag_hop = 0x18;
	put(w, BASE + 8, BASE + 0x240);
	put(w, BASE + 0x250, LIST_HERE);
	lay_chain(w, LIST_HERE, 3, 0x40);
	/* Its neighbours are set anyway. */
	put(w, FLAG & ~7ull, ~((u64)FLAG_BIT << 24));
	put(w, OWNER, HOLDER);
	put(w, HOLDER + 0x18, BASE + 0x240);
	return r;
}

static void set_flag(struct world *w)
{
	put(w, FLAG & ~7ull, (u64)FLAG_BIT << 24);
}

/* The list with it, and whether the flag is the thread's. */
static bool flagged(struct world *w, const struct recipe *r)
{
	const u64 want[] = { 100, 101, 102 };

	assert_int_equal(walk(w, r, BASE + 8, 0), LIST_END_NULL);
	assert_words(w, want, 3);
	return w->l.flag;
}

static void a_flag_of_the_process_is_told_for_the_thread_that_set_it(void **state)
{
	struct world *w = *state;
	struct recipe r = flag_recipe(w), by_tid;

	assert_false(flagged(w, &r));
	assert_int_equal(w->nreads, 2 + 3 + 1);
	set_flag(w);
	assert_true(flagged(w, &r));
	assert_int_equal(w->nreads, 2 + 3 + 3);
	assert_true(runtime_recipe_by_tid(&r, &by_tid));
	assert_int_equal(walk(w, &by_tid, 0, BASE + 0x240), LIST_END_NULL);
	assert_true(w->l.flag);
	/* Another thread has set it. */
	put(w, HOLDER + 0x18, BASE + 0x280);
	assert_false(flagged(w, &r));
	/* Nobody has. */
	put(w, HOLDER + 0x18, 0);
	assert_false(flagged(w, &r));
	/* Nobody asks. */
	put(w, HOLDER + 0x18, BASE + 0x240);
	r.flag_mask = 0;
	assert_false(flagged(w, &r));
	assert_int_equal(w->nreads, 2 + 3);
}

static void who_set_a_flag_may_stand_in_a_second_place(void **state)
{
	struct world *w = *state;
	struct recipe r = flag_recipe(w);

	set_flag(w);
	put(w, OWNER, 0);
	assert_false(flagged(w, &r));
	put(w, OTHER, HOLDER);
	assert_true(flagged(w, &r));
	assert_int_equal(w->nreads, 2 + 3 + RECIPE_FLAG_READS);
	/* Only when the first has nobody. */
	put(w, OWNER, HOLDER + 0x100);
	assert_false(flagged(w, &r));
	put(w, OWNER, 0);
	r.flag_owner[1] = 0;
	assert_false(flagged(w, &r));
	assert_int_equal(w->nreads, 2 + 3 + 2);
}

/* A second list of the thread does not ask again, and does not unset it. */
static void a_flag_is_the_thread_s_and_not_the_list_s(void **state)
{
	struct world *w = *state;
	struct recipe r = lay_groups(w), f = flag_recipe(w);

	f.groups = r.groups;
	lay_chain(w, BASE + 0x2000, 2, 0x40);
	put(w, OTHER_LIST, BASE + 0x2000);
	put(w, BASE + 0x240, MY_ID);
	put(w, BASE + 0x248, 0);
	set_flag(w);
	assert_int_equal(walk(w, &f, BASE + 8, 0), LIST_END_NULL);
	assert_int_equal(w->l.n, 3 + 1 + 2 + 1);
	assert_true(w->l.flag);
}

/* The list does not depend on it. */
static void a_flag_that_cannot_be_read_is_not_set(void **state)
{
	struct world *w = *state;
	struct recipe r = flag_recipe(w), bad;

	set_flag(w);
	bad = r;
	bad.flag = 8;
	assert_false(flagged(w, &bad));
	bad = r;
	bad.flag_owner[0] = 8;
	assert_false(flagged(w, &bad));
	put(w, OWNER, 0);
	bad = r;
	bad.flag_owner[1] = ~0ull;
	assert_false(flagged(w, &bad));
	put(w, OWNER, 8);
	assert_false(flagged(w, &r));
}

static void a_recipe_of_garbage_stays_within_its_bounds(void **state)
{
	struct world *w = *state;
	struct recipe r;
	u64 seed = 1;
	u32 i, k;

	for (i = 0; i < 20000; i++) {
		for (k = 0; k < sizeof(r); k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			((u8 *)&r)[k] = (u8)(seed >> 56);
		}
		if (i & 1) {
			r.addr = BASE + (r.addr & 0xfff8);
			r.mask |= 0xffffff8;
			r.head = RECIPE_ADDR;
		}
		for (k = 0; k < 64; k++)
			w->mem[(seed >> 20) % WORDS] = BASE + (seed >> 10 & 0xfff8);
		walk(w, &r, BASE, BASE + 8);
		assert_true(w->l.end > LIST_END_NONE && w->l.end < LIST_END_MAX);
		assert_true(w->l.n <= RECIPE_NODES_MAX);
		assert_true(w->l.width <= RECIPE_WIDTH_MAX);
		assert_true(w->nreads <= RECIPE_READS_MAX);
	}
}

/* --- pages that come later ---------------------------------------------------------------------- */

/* Drives the walk as a program does that can fetch pages, at most `budget` of them. */
static u32 drive(struct world *w, struct recipe_walk *rw, u32 budget)
{
	u32 fetched = 0, i;
	int failed;

	if (recipe_step(rw, w->words, LIST_WORDS_MAX - 1, 0))
		return 0;
	for (i = 0; i < 4 * RECIPE_READS_MAX; i++) {
		failed = world_read(&w->t, rw->need, rw->node, rw->need_len) != 0;
		if (!recipe_step(rw, w->words, LIST_WORDS_MAX - 1, failed))
			continue;
		if (rw->end != LIST_END_UNREADABLE)
			return fetched;
		failed = fetched == budget || rw->need < BASE || rw->need >= BASE + sizeof(w->mem);
		if (!failed) {
			fetched++;
			w->missing[(rw->need - BASE) / PAGE] = false;
			w->missing[(rw->need + rw->need_len - 1 - BASE) / PAGE] = false;
		}
		if (!recipe_fetched(rw, failed))
			return fetched;
	}
	fail_msg("it never ends");
	return 0;
}

/* A chain over three pages, each node with a peek into a fourth and fifth. */
static struct recipe paged_recipe(struct world *w)
{
	struct recipe r = chain_recipe(BASE + 8);
	u32 i;

	lay_chain(w, BASE + 8, 40, 0x138);
	for (i = 0; i < 40; i++)
		put(w, BASE + 8 + 0x138 * i, BASE + 5 * PAGE + 0x40 * i);
	for (i = 0; i < PAGE / 8 * 2; i++)
		put(w, BASE + 5 * PAGE + 8 * i, 5000 + i);
	r.npeeks = 1;
	r.nhops = 1;
	r.addr = BASE + 8 * PAGE;
	put(w, r.addr, BASE + 8);
	return r;
}

static void begin(struct recipe_walk *rw, const struct recipe *r, bool faults)
{
	memset(rw, 0xa5, sizeof(*rw));
	rw->recipe = *r;
	recipe_begin(rw, r->addr, 0, faults);
}

static void assert_paged(const struct world *w, const struct recipe_walk *rw)
{
	u32 i;

	assert_int_equal(rw->end, LIST_END_NULL);
	assert_int_equal(rw->n, 40);
	assert_int_equal(rw->width, 2);
	for (i = 0; i < 40; i++) {
		assert_int_equal(w->words[2 * i], BASE + 5 * PAGE + 0x40 * i);
		assert_int_equal(w->words[2 * i + 1], 5000 + 8 * i);
	}
}

static void a_walk_goes_on_where_a_page_was_missing(void **state)
{
	struct world *w = *state;
	struct recipe r = paged_recipe(w);
	struct recipe_walk rw;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(w->missing); i++)
		w->missing[i] = true;
	begin(&rw, &r, true);
	/* Pages 0 to 2 hold the chain, 5 the peeks, 8 the head. */
	assert_int_equal(drive(w, &rw, 100), 5);
	assert_paged(w, &rw);
}

static void a_page_that_cannot_be_fetched_cuts_the_list_there(void **state)
{
	struct world *w = *state;
	struct recipe r = paged_recipe(w);
	struct recipe_walk rw;

	w->missing[2] = true;
	begin(&rw, &r, true);
	assert_int_equal(drive(w, &rw, 0), 0);
	assert_int_equal(rw.end, LIST_END_UNREADABLE);
	/* The last node before the third page begins at 8 + 26 * 0x138 = 8120. */
	assert_int_equal(rw.n, 27);
	assert_int_equal(rw.need, BASE + 8 + 0x138 * rw.n);
}

static void a_peek_that_cannot_be_fetched_is_nothing(void **state)
{
	struct world *w = *state;
	struct recipe r = paged_recipe(w);
	struct recipe_walk rw;
	u32 i;

	w->missing[5] = true;
	begin(&rw, &r, true);
	assert_int_equal(drive(w, &rw, 0), 0);
	assert_int_equal(rw.end, LIST_END_NULL);
	assert_int_equal(rw.n, 40);
	for (i = 0; i < 40; i++)
		assert_int_equal(w->words[2 * i + 1], 0);
	/* Where nothing can be fetched nobody is asked to. */
	begin(&rw, &r, false);
	assert_int_equal(drive(w, &rw, 100), 0);
	assert_int_equal(rw.end, LIST_END_NULL);
	assert_true(w->missing[5]);
	/* And where all can, all is there. */
	begin(&rw, &r, true);
	assert_int_equal(drive(w, &rw, 100), 1);
	assert_paged(w, &rw);
}

static void begin_flag(struct world *w, struct recipe_walk *rw, const struct recipe *r, bool faults)
{
	w->missing[(FLAG - BASE) / PAGE] = true;
	w->missing[(OWNER - BASE) / PAGE] = true;
	memset(rw, 0xa5, sizeof(*rw));
	rw->recipe = *r;
	recipe_begin(rw, BASE + 8, 0, faults);
}

static void a_flag_s_page_is_fetched_and_if_it_cannot_be_the_list_goes_on(void **state)
{
	struct world *w = *state;
	struct recipe r = flag_recipe(w);
	struct recipe_walk rw;

	set_flag(w);
	begin_flag(w, &rw, &r, true);
	assert_int_equal(drive(w, &rw, 100), 2);
	assert_int_equal(rw.end, LIST_END_NULL);
	assert_int_equal(rw.n, 3);
	assert_int_equal(rw.flag, 1);
	begin_flag(w, &rw, &r, true);
	assert_int_equal(drive(w, &rw, 1), 1);
	assert_int_equal(rw.end, LIST_END_NULL);
	assert_int_equal(rw.n, 3);
	assert_int_equal(rw.flag, 0);
	/* What could not be had does not count for the page after it. */
	begin_flag(w, &rw, &r, true);
	w->missing[(LIST_HERE - BASE) / PAGE] = true;
	assert_int_equal(drive(w, &rw, 0), 0);
	assert_int_equal(rw.end, LIST_END_UNREADABLE);
	assert_int_equal(rw.need, LIST_HERE);
	w->missing[(LIST_HERE - BASE) / PAGE] = false;
	begin_flag(w, &rw, &r, false);
	assert_int_equal(drive(w, &rw, 100), 0);
	assert_int_equal(rw.end, LIST_END_NULL);
	assert_int_equal(rw.flag, 0);
}

static void words_are_kept_where_they_are_to_begin(void **state)
{
	struct world *w = *state;
	struct recipe r = chain_recipe(BASE + 0x100);
	struct recipe_walk rw;

	lay_chain(w, BASE + 0x100, 3, 0x40);
	rw.recipe = r;
	recipe_begin(&rw, r.addr, 639, false);
	drive(w, &rw, 0);
	assert_int_equal(rw.n, 3);
	assert_int_equal(w->words[638], 0);
	assert_int_equal(w->words[639], 100);
	assert_int_equal(w->words[641], 102);
	assert_int_equal(w->words[642], 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(keeps_the_words_of_each_node_of_a_linked_list),
		T(what_is_the_first_thread_s_alone_no_other_thread_has),
		T(keeps_words_in_the_order_that_the_recipe_gives),
		T(hops_lead_from_the_thread_pointer_to_the_first_node),
		T(all_six_hops_are_taken_and_no_seventh),
		T(a_head_that_nobody_knows_is_no_head),
		T(a_head_told_for_the_thread_is_used_where_the_recipe_says_so),
		T(a_null_pointer_on_the_way_is_an_empty_list),
		T(an_array_ends_where_its_end_is_computed_to_be),
		T(an_arrays_end_can_be_found_behind_the_last_hop),
		T(an_array_that_begins_at_its_end_is_whole_and_empty),
		T(an_array_that_begins_beyond_its_end_is_refused),
		T(an_array_whose_end_lies_far_away_is_cut_at_the_limit),
		T(the_mask_strips_tags_of_the_head_and_of_each_pointer),
		T(peeks_follow_kept_words_one_level_further),
		T(counts_over_the_most_are_the_most),
		T(a_list_that_has_to_go_up_is_refused_when_it_goes_down),
		T(a_list_longer_than_the_limit_is_cut_there),
		T(a_list_that_leads_back_into_itself_is_refused),
		T(a_misaligned_pointer_ends_the_list),
		T(memory_that_cannot_be_read_ends_the_list),
		T(reads_are_bounded_whatever_memory_says),
		T(lists_of_the_same_thread_follow_each_closed_off),
		T(a_thread_whose_first_list_is_empty_may_have_another),
		T(with_one_group_nothing_is_looked_for),
		T(a_search_that_is_led_astray_ends_and_keeps_what_it_has),
		T(no_seam_goes_beyond_the_limit),
		T(a_flag_of_the_process_is_told_for_the_thread_that_set_it),
		T(who_set_a_flag_may_stand_in_a_second_place),
		T(a_flag_is_the_thread_s_and_not_the_list_s),
		T(a_flag_that_cannot_be_read_is_not_set),
		T(a_flag_s_page_is_fetched_and_if_it_cannot_be_the_list_goes_on),
		T(a_recipe_of_garbage_stays_within_its_bounds),
		T(a_walk_goes_on_where_a_page_was_missing),
		T(a_page_that_cannot_be_fetched_cuts_the_list_there),
		T(a_peek_that_cannot_be_fetched_is_nothing),
		T(words_are_kept_where_they_are_to_begin),
	};
#undef T

	return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
