// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of core/table. On real files the table must say at each address what cfi_find() says;
 * hand-made rows prove the layout byte by byte against the description in bpf/abi.h; saved tables
 * are cut and mutated.
 */
#include "core/table.h"
#include "core/cfi.h"
#include "core/tablefile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#if defined(__aarch64__)
#define LIB    "/usr/lib/aarch64-linux-gnu/"
#define LINKER "/lib/ld-linux-aarch64.so.1"
#else
#define LIB    "/usr/lib/x86_64-linux-gnu/"
#define LINKER "/lib64/ld-linux-x86-64.so.2"
#endif

/* Seeded, so that a failure comes back. */
static u64 rng_state;

static u32 rng(u32 below)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (u32)(rng_state >> 32) % below;
}

/* --- what a rule should have become -------------------------------------------------------- */

static u8 from_of(u8 cfi_from)
{
	switch (cfi_from) {
	case CFI_FROM_LOST:
		return UNWIND_FROM_LOST;
	case CFI_FROM_SAME:
		return UNWIND_FROM_SAME;
	case CFI_FROM_CFA:
		return UNWIND_FROM_CFA;
	case CFI_FROM_REG:
		return UNWIND_FROM_REG;
	default:
		return UNWIND_FROM_DEREF;
	}
}

/* Saved at *(CFA + off); one that is far off may be told from the CFA's register instead. */
static bool same_place(const struct cfi_rule *c, u8 from, u8 reg, s32 off, u8 kind, u8 kind_reg,
		       s32 kind_off)
{
	if (from == CFI_FROM_CFA && (off < INT16_MIN || off > INT16_MAX) && c->cfa == CFI_CFA_REG)
		return kind == UNWIND_FROM_DEREF && kind_reg == c->cfa_reg &&
		       kind_off == c->cfa_off + off;
	return kind == from_of(from) && kind_reg == reg && kind_off == off;
}

static bool same_rule(const struct cfi_rule *c, const struct unwind_rule *r,
		      const struct unwind_wide *w)
{
	if (r->cfa != c->cfa)
		return false;
	if (((r->flags & UNWIND_SIGNAL_FRAME) != 0) != ((c->flags & CFI_RULE_SIGNAL_FRAME) != 0) ||
	    ((r->flags & UNWIND_RA_SIGNED) != 0) != ((c->flags & CFI_RULE_RA_SIGNED) != 0))
		return false;
	if (c->cfa < CFI_CFA_REG)
		return true;
	return r->cfa_reg == c->cfa_reg && r->cfa_off == c->cfa_off &&
	       same_place(c, c->fp, c->fp_reg, c->fp_off, r->fp, r->fp_reg, r->fp_off) &&
	       same_place(c, c->ra, c->ra_reg, c->ra_off, r->ra, r->ra_reg, r->ra_off) &&
	       r->bx == from_of(c->bx) && w->cfa_add == c->cfa_add && w->bx_off == c->bx_off &&
	       w->cfa_index == c->cfa_index && w->cfa_scale == c->cfa_scale;
}

/* Index of the cfi row in force. */
static u32 row_index(const struct cfi *c, u64 addr)
{
	u32 lo = 0, hi = c->nrows;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (c->base + c->rows[mid].pc <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

/* What cfi says there; in padding between functions also what it says before the padding. */
static void expect_at(const struct cfi *c, const struct table *t, u64 addr)
{
	const struct cfi_rule *want = cfi_find(c, addr);
	struct unwind_wide wide;
	struct unwind_rule rule;
	bool found = table_find(t, addr, &rule, &wide);

	if (want->cfa == CFI_CFA_NONE && found) {
		u32 i = row_index(c, addr);

		/* Too long a gap for a hole: code that keeps frame pointers instead. */
		if (rule.cfa == UNWIND_CFA_FP) {
			assert_int_equal(rule.flags, 0);
			assert_true(c->rows[i + 1].pc - c->rows[i].pc >= 65536);
			return;
		}
		assert_true(i > 0 && i + 1 < c->nrows);
		assert_true(c->rows[i + 1].pc - c->rows[i].pc <= 15);
		want = &c->rules[c->rows[i - 1].rule];
	}
	assert_int_equal(found, want->cfa != CFI_CFA_NONE);
	if (!same_rule(want, &rule, &wide))
		fail_msg("%#" PRIx64 ": cfa %u/%u", addr, rule.cfa, want->cfa);
}

static void expect_layout(const struct table *t)
{
	u32 i, rows = 0;

	for (i = 0; i < t->npages; i++) {
		struct leaf_head head;

		if (t->leaf_at[i] == UINT32_MAX)
			continue;
		assert_int_equal(t->leaf_at[i] % SLAB_GRAIN, 0);
		assert_true((u64)t->leaf_at[i] + t->leaf_len[i] <= t->leaves_len);
		assert_true(t->leaf_len[i] <= SLAB_BYTES);
		memcpy(&head, t->leaves + t->leaf_at[i], sizeof(head));
		/* 8 bytes may be read from the last gap on. */
		assert_true(head.gap_at * 8u + head.nrows - 1 + 8 <= t->leaf_len[i]);
		rows += head.nrows;
	}
	assert_int_equal(rows, t->nrows);
	assert_true(t->nslots * sizeof(t->rules[0]) <= SLAB_BYTES);
	assert_true(t->npages * sizeof(u32) <= SLAB_BYTES);
}

/* --- real files ---------------------------------------------------------------------------- */

static bool compile(const char *path, struct cfi *c)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && !tablefile_cfi(fd, NULL, 0, c, NULL);
}

/* Each step-th row: its start, its last byte and some place in it; and places anywhere. */
static void compare_all(const struct cfi *c, const struct table *t, u32 step)
{
	u32 last = c->rows[c->nrows - 1].pc, i;

	rng_state = 0x9e3779b97f4a7c15ull;
	for (i = 0; i + 1 < c->nrows; i += step) {
		u32 pc = c->rows[i].pc, next = c->rows[i + 1].pc;

		expect_at(c, t, c->base + pc);
		expect_at(c, t, c->base + next - 1);
		expect_at(c, t, c->base + pc + rng(next - pc));
	}
	for (i = 0; i < 20000; i++)
		expect_at(c, t, c->base + rng(last + 4096));
	expect_at(c, t, c->base + last);
	expect_at(c, t, UINT64_MAX);
	expect_at(c, t, 0);
}

static void finds_what_cfi_finds(const char *path, u32 at_least, u32 step)
{
	struct table t;
	struct cfi c;

	if (!compile(path, &c))
		skip();
	assert_true(c.nrows >= at_least);
	assert_int_equal(table_pack(&c, &t), 0);
	expect_layout(&t);
	compare_all(&c, &t, step);
	print_message("%s: %u rows of %u, %.3f bytes per row\n", base_name(path), t.nmerged,
		      c.nrows, (double)table_bytes(&t) / t.nmerged);
	table_fini(&t);
	cfi_fini(&c);
}

static void finds_what_cfi_finds_in_libc(void **state __unused)
{
	finds_what_cfi_finds(LIB "libc.so.6", 20000, 1);
}

static void finds_what_cfi_finds_in_the_dynamic_linker(void **state __unused)
{
	finds_what_cfi_finds(LINKER, 1000, 1);
}

static void finds_what_cfi_finds_in_a_cpp_library(void **state __unused)
{
	finds_what_cfi_finds(LIB "libstdc++.so.6", 10000, 1);
}

static void finds_what_cfi_finds_in_this_binary(void **state __unused)
{
	finds_what_cfi_finds("/proc/self/exe", 300, 1);
}

static void finds_what_cfi_finds_in_libllvm(void **state __unused)
{
	finds_what_cfi_finds(LIB "libLLVM-14.so.1", 500000, 7);
}

/* At most 2.5 bytes per row, index and rules included. */
static void bytes_per_row(const char *path)
{
	struct table t;
	struct cfi c;

	if (!compile(path, &c))
		skip();
	/* Debian's node is a mere caller of its library: what a table costs in any case is most of it. */
	if (c.nrows < 100000) {
		cfi_fini(&c);
		skip();
	}
	assert_int_equal(table_pack(&c, &t), 0);
	print_message("%s: %.3f bytes per row\n", base_name(path),
		      (double)table_bytes(&t) / t.nmerged);
	assert_true((double)table_bytes(&t) <= 2.5 * t.nmerged);
	table_fini(&t);
	cfi_fini(&c);
}

static void p4_bytes_per_row_of_libllvm(void **state __unused)
{
	bytes_per_row(LIB "libLLVM-14.so.1");
}

static void p4_bytes_per_row_of_node(void **state __unused)
{
	bytes_per_row("/usr/bin/node");
}

static void p4_bytes_per_row_of_libjvm(void **state __unused)
{
	bytes_per_row("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so");
}

/* --- hand-made rows ------------------------------------------------------------------------ */

#define BASE 0x400000ull

/* Rule i > 0 is rsp + 8 * i, all else as on entry of a function. */
struct made {
	struct cfi c;
	struct cfi_row *rows;
	u32 cap;
};

static struct made make(u32 nrules)
{
	struct made m = { .c = { .base = BASE, .nrules = nrules } };
	u32 i;

	m.c.rules = calloc(nrules, sizeof(m.c.rules[0]));
	assert_non_null(m.c.rules);
	for (i = 1; i < nrules; i++)
		m.c.rules[i] = (struct cfi_rule){ .cfa = CFI_CFA_REG,
						  .cfa_reg = 7,
						  .cfa_off = 8 * (s32)i,
						  .fp = CFI_FROM_SAME,
						  .ra = CFI_FROM_CFA,
						  .ra_off = -8 };
	return m;
}

static void row(struct made *m, u32 pc, u32 rule)
{
	assert_int_equal(VEC_RESERVE(m->rows, m->cap, m->c.nrows + 1, 1u << 24), 0);
	m->rows[m->c.nrows++] = (struct cfi_row){ pc, rule };
	m->c.rows = m->rows;
}

static void made_fini(struct made *m)
{
	free(m->rows);
	free(m->c.rules);
}

static struct leaf_head head_of(const struct table *t, u32 page)
{
	struct leaf_head h;

	assert_int_not_equal(t->leaf_at[page], UINT32_MAX);
	memcpy(&h, t->leaves + t->leaf_at[page], sizeof(h));
	return h;
}

static struct leaf_block block_of(const struct table *t, u32 page, u32 i)
{
	struct leaf_block b;

	memcpy(&b, t->leaves + t->leaf_at[page] + 8 + 4 * i, sizeof(b));
	return b;
}

static u8 gap_of(const struct table *t, u32 page, u32 i)
{
	return t->leaves[t->leaf_at[page] + 8 * head_of(t, page).gap_at + i];
}

static void pack(struct made *m, struct table *t)
{
	u32 i;

	assert_int_equal(table_pack(&m->c, t), 0);
	expect_layout(t);
	for (i = 0; i < m->c.nrows; i++) {
		expect_at(&m->c, t, BASE + m->rows[i].pc);
		expect_at(&m->c, t, BASE + m->rows[i].pc - 1);
	}
}

static void gap_of_255_stays_in_its_block(void **state __unused)
{
	struct made m = make(3);
	struct table t;

	row(&m, 0, 1);
	row(&m, 255, 2);
	row(&m, 510, 0);
	pack(&m, &t);
	assert_int_equal(head_of(&t, 0).nblocks, 1);
	assert_int_equal(head_of(&t, 0).nrows, 3);
	assert_int_equal(gap_of(&t, 0, 0), 0);
	assert_int_equal(gap_of(&t, 0, 1), 255);
	assert_int_equal(gap_of(&t, 0, 2), 255);
	table_fini(&t);
	made_fini(&m);
}

static void gap_of_256_starts_a_block(void **state __unused)
{
	struct made m = make(3);
	struct leaf_block b;
	struct table t;

	row(&m, 0, 1);
	row(&m, 256, 2);
	row(&m, 300, 0);
	pack(&m, &t);
	assert_int_equal(head_of(&t, 0).nblocks, 2);
	b = block_of(&t, 0, 1);
	assert_int_equal(b.pc, 256);
	assert_int_equal(b.first, 1);
	assert_int_equal(gap_of(&t, 0, 1), 0);
	assert_int_equal(gap_of(&t, 0, 2), 44);
	table_fini(&t);
	made_fini(&m);
}

static void row_65_starts_a_block(void **state __unused)
{
	struct made m = make(3);
	struct leaf_block b;
	struct table t;
	u32 i;

	for (i = 0; i < 64; i++)
		row(&m, i * 40, 1 + i % 2);
	row(&m, 64 * 40, 0);
	pack(&m, &t);
	assert_int_equal(head_of(&t, 0).nrows, 65);
	assert_int_equal(head_of(&t, 0).nblocks, 2);
	b = block_of(&t, 0, 1);
	assert_int_equal(b.pc, 64 * 40);
	assert_int_equal(b.first, 64);
	table_fini(&t);
	made_fini(&m);
}

/* Bytes as abi.h describes them, written down by hand. */
static void leaf_is_what_abi_h_says(void **state __unused)
{
	static const u8 want[] = {
		1, 0,    2,    0, 3, 0, 3, 0, /* 1 block, 2 rules, 3 rows, gap[] at 24 */
		0, 0,    0,    0,             /* block: pc 0, first row 0 */
		0, 0,    1,    0,             /* rules: slots 0 and 1 */
		0, 1,    0,                   /* rows: NONE up to 0x10, then slot 1, then NONE */
		0, 0,    0,    0, 0,          /* padding */
		0, 0x10, 0x40,                /* gaps */
		0, 0,    0,    0, 0, 0, 0,    /* room for a read of 8 bytes */
	};
	struct made m = make(2);
	struct table t;

	row(&m, 0x10, 1);
	row(&m, 0x50, 0);
	pack(&m, &t);
	assert_int_equal(t.base, BASE);
	assert_int_equal(t.npages, 1);
	assert_int_equal(t.leaf_at[0], 0);
	assert_int_equal(t.leaf_len[0], sizeof(want));
	assert_memory_equal(t.leaves, want, sizeof(want));
	/* 34 bytes of leaf in 48, an index of 4 in 16, two slots of 16. */
	assert_int_equal(table_bytes(&t), 48 + 16 + 32);
	table_fini(&t);
	made_fini(&m);
}

static void page_that_starts_inside_a_row_begins_with_it(void **state __unused)
{
	struct made m = make(4);
	struct table t;

	row(&m, 0xff00, 1);
	row(&m, 0x10100, 2);
	row(&m, 0x20000, 3); /* right at a page's start: no row is carried over */
	row(&m, 0x20010, 0);
	pack(&m, &t);
	assert_int_equal(t.npages, 3);
	assert_int_equal(head_of(&t, 0).nrows, 2);
	assert_int_equal(head_of(&t, 1).nrows, 2);
	assert_int_equal(block_of(&t, 1, 1).pc, 0x100);
	assert_int_equal(head_of(&t, 2).nrows, 2);
	assert_int_equal(head_of(&t, 2).nrules, 2);
	assert_int_equal(t.nmerged, 4);
	assert_int_equal(t.nrows, 6);
	table_fini(&t);
	made_fini(&m);
}

static void page_inside_a_long_function_has_one_row(void **state __unused)
{
	struct made m = make(2);
	struct table t;
	u32 page;

	row(&m, 0x8000, 1);
	row(&m, 0x48000, 0);
	pack(&m, &t);
	assert_int_equal(t.npages, 5);
	for (page = 1; page < 4; page++) {
		assert_int_equal(head_of(&t, page).nrows, 1);
		assert_int_equal(t.leaf_len[page], 24);
		expect_at(&m.c, &t, BASE + page * 0x10000);
		expect_at(&m.c, &t, BASE + page * 0x10000 + 0xffff);
	}
	table_fini(&t);
	made_fini(&m);
}

static void long_stretch_without_cfi_has_frame_pointers(void **state __unused)
{
	struct made m = make(2);
	struct unwind_rule rule;
	struct table t;

	row(&m, 0x100, 1);
	row(&m, 0x8000, 0); /* 64 KiB - 1: a hole */
	row(&m, 0x17fff, 1);
	row(&m, 0x18000, 0); /* 64 KiB */
	row(&m, 0x28000, 1);
	row(&m, 0x40000, 0); /* the end of the file is a hole */
	pack(&m, &t);
	assert_false(table_find(&t, BASE + 0x8000, &rule, NULL));
	assert_true(table_find(&t, BASE + 0x18000, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_FP);
	assert_true(table_find(&t, BASE + 0x27fff, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_FP);
	assert_true(table_find(&t, BASE + 0x28000, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_REG);
	assert_false(table_find(&t, BASE + 0x40000, &rule, NULL));
	table_fini(&t);
	made_fini(&m);
}

static void outside_the_table_is_no_rule(void **state __unused)
{
	struct made m = make(2);
	struct unwind_rule rule;
	struct table t;

	row(&m, 0x100, 1);
	row(&m, 0x40000, 0);
	pack(&m, &t);
	assert_int_equal(t.npages, 4);
	assert_false(table_find(&t, BASE + 0x40000, &rule, NULL));
	assert_false(table_find(&t, BASE - 1, &rule, NULL));
	table_fini(&t);
	made_fini(&m);
}

static void base_is_that_of_the_first_rows_page(void **state __unused)
{
	struct made m = make(2);
	struct table t;

	m.c.base = 0xfffffffffff12345ull; /* up to the very end of the address space */
	row(&m, 0x20000, 1);
	row(&m, 0xedcba, 0);
	assert_int_equal(table_pack(&m.c, &t), 0);
	assert_true(t.base == 0xfffffffffff30000ull);
	assert_int_equal(t.npages, 13);
	expect_at(&m.c, &t, 0xfffffffffff32345ull);
	expect_at(&m.c, &t, 0xfffffffffff32344ull);
	expect_at(&m.c, &t, 0xffffffffffffff00ull);
	table_fini(&t);
	made_fini(&m);
}

static void file_without_rows_gives_an_empty_table(void **state __unused)
{
	struct made m = make(1);
	struct unwind_rule rule;
	struct table t;

	assert_int_equal(table_pack(&m.c, &t), 0);
	assert_int_equal(t.npages, 0);
	assert_false(table_find(&t, BASE, &rule, NULL));
	table_fini(&t);
	made_fini(&m);
}

/* A coroutine's stack ends at the first byte of such a function; the byte before must say so. */
static void padding_before_an_end_of_stacks_stays(void **state __unused)
{
	struct unwind_rule rule;
	struct made m = make(3);
	struct table t;

	m.c.rules[2] = (struct cfi_rule){ .cfa = CFI_CFA_END };
	row(&m, 0, 1);
	row(&m, 0x100, 0);
	row(&m, 0x108, 2);
	row(&m, 0x200, 0);
	pack(&m, &t);
	assert_false(table_find(&t, BASE + 0x107, &rule, NULL));
	assert_true(table_find(&t, BASE + 0x108, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_END);
	table_fini(&t);
	made_fini(&m);
}

static void padding_of_15_bytes_is_bridged_16_are_not(void **state __unused)
{
	struct unwind_rule rule;
	struct made m = make(3);
	struct table t;

	row(&m, 0, 1);
	row(&m, 0x100, 0);
	row(&m, 0x10f, 2);
	row(&m, 0x200, 0);
	row(&m, 0x210, 1);
	row(&m, 0x300, 0);
	row(&m, 0x308, 1); /* the same rule on both sides: one row */
	row(&m, 0x400, 0); /* the last one stays */
	pack(&m, &t);
	assert_int_equal(t.nmerged, 5);
	assert_true(table_find(&t, BASE + 0x10e, &rule, NULL));
	assert_int_equal(rule.cfa_off, 8);
	assert_false(table_find(&t, BASE + 0x200, &rule, NULL));
	assert_true(table_find(&t, BASE + 0x307, &rule, NULL));
	assert_false(table_find(&t, BASE + 0x400, &rule, NULL));
	table_fini(&t);
	made_fini(&m);
}

static void page_of_256_rules_is_kept_257_halve_it(void **state __unused)
{
	u32 nrules;

	/* NONE at the end is one of them. */
	for (nrules = 256; nrules <= 257; nrules++) {
		struct made m = make(nrules);
		struct table t;
		u32 i;

		for (i = 1; i < nrules; i++)
			row(&m, i * 200, i);
		row(&m, i * 200, 0);
		pack(&m, &t);
		assert_int_equal(t.shift, nrules == 256 ? 16 : 15);
		assert_int_equal(t.nslots, nrules);
		table_fini(&t);
		made_fini(&m);
	}
}

static void page_with_a_row_at_every_byte_is_halved(void **state __unused)
{
	struct made m = make(3);
	struct table t;
	u32 i;

	for (i = 0; i < 65536; i++)
		row(&m, i, 1 + i % 2);
	row(&m, i, 0);
	pack(&m, &t);
	assert_int_equal(t.shift, 15);
	assert_int_equal(head_of(&t, 0).nrows, 32768);
	table_fini(&t);
	made_fini(&m);
}

/* 65535 rules at 65535 bytes in a row: 256 to a page. */
static void smallest_page_has_256_rules_at_most(void **state __unused)
{
	struct made m = make(UINT16_MAX);
	struct table t;
	u32 i;

	for (i = 1; i < UINT16_MAX; i++)
		row(&m, i, i);
	row(&m, i, 0);
	pack(&m, &t);
	assert_int_equal(t.shift, 8);
	assert_int_equal(t.nslots, UINT16_MAX);
	table_fini(&t);
	made_fini(&m);
}

static void over_65535_slots_is_too_big(void **state __unused)
{
	struct made m = make(40000);
	struct table t;
	u32 i;

	for (i = 1; i < 40000; i++) {
		m.c.rules[i].cfa = CFI_CFA_DEREF;
		m.c.rules[i].cfa_add = 16; /* two slots each */
		row(&m, i * 64, i);
	}
	row(&m, i * 64, 0);
	assert_int_equal(table_pack(&m.c, &t), -E2BIG);
	made_fini(&m);
}

static void index_over_a_slab_is_too_big(void **state __unused)
{
	struct made m = make(400);
	struct table t;
	u32 i;

	/* 400 rules need pages of 4 KiB; of these 4 GiB have a million. */
	for (i = 1; i < 400; i++)
		row(&m, i * 20, i);
	row(&m, UINT32_MAX, 0);
	assert_int_equal(table_pack(&m.c, &t), -E2BIG);
	made_fini(&m);
}

static void wide_rules_take_two_slots(void **state __unused)
{
	struct made m = make(6);
	struct unwind_wide wide;
	struct unwind_rule rule;
	struct table t;
	u32 i;

	m.c.rules[1] = (struct cfi_rule){ .cfa = CFI_CFA_DEREF, /* no addend: not wide */
					  .cfa_reg = 6,
					  .cfa_off = -8,
					  .fp = CFI_FROM_DEREF,
					  .fp_reg = 6,
					  .ra = CFI_FROM_CFA,
					  .ra_off = -8 };
	m.c.rules[2] = (struct cfi_rule){ .cfa = CFI_CFA_SCALED,
					  .cfa_reg = 7,
					  .cfa_index = 9,
					  .cfa_scale = 8,
					  .cfa_off = -16,
					  .cfa_add = 8,
					  .fp = CFI_FROM_LOST,
					  .ra = CFI_FROM_CFA,
					  .ra_off = -8 };
	m.c.rules[3] = (struct cfi_rule){ .cfa = CFI_CFA_PLT,
					  .cfa_reg = 7,
					  .cfa_off = 8,
					  .cfa_add = 11,
					  .fp = CFI_FROM_SAME,
					  .ra = CFI_FROM_CFA,
					  .ra_off = -8 };
	m.c.rules[4] = m.c.rules[5];
	m.c.rules[4].bx = CFI_FROM_CFA;
	m.c.rules[4].bx_off = -16;
	m.c.rules[5].bx = CFI_FROM_SAME;
	m.c.rules[5].ra = CFI_FROM_REG;
	m.c.rules[5].ra_reg = 5;
	m.c.rules[5].ra_off = 0;
	for (i = 1; i < 6; i++)
		row(&m, i * 0x100, i);
	row(&m, i * 0x100, 0);
	pack(&m, &t);
	assert_int_equal(t.nrules, 6);
	assert_int_equal(t.nslots, 6 + 3);
	assert_true(table_find(&t, BASE + 0x200, &rule, &wide));
	assert_true(rule.flags & UNWIND_WIDE);
	assert_int_equal(wide.cfa_add, 8);
	assert_int_equal(wide.cfa_index, 9);
	assert_int_equal(wide.cfa_scale, 8);
	assert_true(table_find(&t, BASE + 0x100, &rule, &wide));
	assert_false(rule.flags & UNWIND_WIDE);
	assert_int_equal(rule.fp, UNWIND_FROM_DEREF);
	assert_true(table_find(&t, BASE + 0x400, &rule, &wide));
	assert_int_equal(rule.bx, UNWIND_FROM_CFA);
	assert_int_equal(wide.bx_off, -16);
	table_fini(&t);
	made_fini(&m);
}

static void offset_over_16_bits_is_unsupported_and_counted(void **state __unused)
{
	struct made m = make(5);
	struct unwind_rule rule;
	struct table t;

	m.c.rules[1].fp = m.c.rules[2].fp = CFI_FROM_CFA;
	m.c.rules[1].fp_off = INT16_MIN;
	m.c.rules[2].fp_off = INT16_MIN - 17; /* too far from the register, too */
	m.c.rules[3].ra_off = INT16_MAX + 1;
	row(&m, 0, 1);
	row(&m, 0x100, 2);
	row(&m, 0x200, 4);
	row(&m, 0x300, 3);
	row(&m, 0x400, 0);
	assert_int_equal(table_pack(&m.c, &t), 0);
	assert_int_equal(t.unsupported, 2);
	assert_true(table_find(&t, BASE, &rule, NULL));
	assert_int_equal(rule.fp_off, INT16_MIN);
	assert_true(table_find(&t, BASE + 0x100, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_UNSUPPORTED);
	assert_true(table_find(&t, BASE + 0x300, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_UNSUPPORTED);
	assert_int_equal(rule.ra_off, 0);
	table_fini(&t);
	made_fini(&m);
}

/* As arm64 keeps fp and lr: at the bottom of the frame, however large. */
static void offset_over_16_bits_is_counted_from_the_register_when_near(void **state __unused)
{
	struct made m = make(3);
	struct unwind_rule rule;
	struct table t;

	m.c.rules[1].cfa_off = 65552;
	m.c.rules[1].fp = CFI_FROM_CFA;
	m.c.rules[1].fp_off = -65552;
	m.c.rules[1].ra_off = -65544;
	row(&m, 0, 1);
	row(&m, 0x100, 0);
	assert_int_equal(table_pack(&m.c, &t), 0);
	assert_int_equal(t.unsupported, 0);
	assert_true(table_find(&t, BASE, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_REG);
	assert_int_equal(rule.cfa_off, 65552);
	assert_int_equal(rule.fp, UNWIND_FROM_DEREF);
	assert_int_equal(rule.fp_reg, 7);
	assert_int_equal(rule.fp_off, 0);
	assert_int_equal(rule.ra, UNWIND_FROM_DEREF);
	assert_int_equal(rule.ra_reg, 7);
	assert_int_equal(rule.ra_off, 8);
	table_fini(&t);
	made_fini(&m);
}

static void rules_that_differ_in_their_reason_only_are_one(void **state __unused)
{
	struct made m = make(3);
	struct table t;

	m.c.rules[2] = m.c.rules[1];
	m.c.rules[1].reason = CFI_NOTE_row_fp;
	row(&m, 0, 1);
	row(&m, 0x100, 2);
	row(&m, 0x200, 0);
	pack(&m, &t);
	assert_int_equal(t.nrules, 2);
	assert_int_equal(t.nmerged, 2);
	table_fini(&t);
	made_fini(&m);
}

static void random_rows_are_found_again(void **state __unused)
{
	u32 round;

	rng_state = 42;
	for (round = 0; round < 200; round++) {
		u32 nrules = 2 + rng(400), most = 1 + rng(round % 10 ? 400 : 40000), n, last = 0;
		struct made m = make(nrules);
		struct table t;
		u32 pc = rng(70000);

		for (n = rng(1500); n; n--, pc += 1 + rng(most)) {
			u32 rule = rng(nrules);

			if (rule == last)
				continue;
			row(&m, pc, rule);
			last = rule;
		}
		if (m.c.nrows && last)
			row(&m, pc, 0);
		/* The first row of a compiled file is never a gap. */
		while (m.c.nrows && !m.c.rows->rule) {
			m.c.rows++;
			m.c.nrows--;
		}
		assert_int_equal(table_pack(&m.c, &t), 0);
		expect_layout(&t);
		if (m.c.nrows)
			compare_all(&m.c, &t, 1);
		table_fini(&t);
		made_fini(&m);
	}
}

/* --- saved tables -------------------------------------------------------------------------- */

static void small_table(struct table *t)
{
	struct made m = make(40);
	u32 i;

	for (i = 1; i < 30; i++) {
		m.c.rules[i].cfa = CFI_CFA_DEREF;
		m.c.rules[i].cfa_add = i % 3 ? 0 : 16;
	}
	for (i = 0; i < 300; i++)
		row(&m, i * 700 + i % 3, 1 + i % 37);
	row(&m, i * 700, 0);
	pack(&m, t);
	made_fini(&m);
}

static void expect_equal(const struct table *a, const struct table *b)
{
	assert_true(a->base == b->base && a->shift == b->shift && a->npages == b->npages);
	assert_int_equal(a->leaves_len, b->leaves_len);
	assert_int_equal(a->nslots, b->nslots);
	assert_int_equal(a->nrules, b->nrules);
	assert_int_equal(a->nrows, b->nrows);
	assert_int_equal(a->nmerged, b->nmerged);
	assert_int_equal(a->unsupported, b->unsupported);
	assert_memory_equal(a->leaf_at, b->leaf_at, a->npages * sizeof(u32));
	assert_memory_equal(a->leaf_len, b->leaf_len, a->npages * sizeof(u32));
	assert_memory_equal(a->rules, b->rules, a->nslots * sizeof(a->rules[0]));
	assert_memory_equal(a->leaves, b->leaves, a->leaves_len);
}

static void saved_table_comes_back(const struct table *t)
{
	struct table back;
	size_t len;
	u8 *data;

	assert_int_equal(table_save(t, &data, &len), 0);
	assert_int_equal(table_load(data, len, &back), 0);
	if (t->npages)
		expect_equal(t, &back);
	table_fini(&back);
	free(data);
}

static void saved_tables_come_back(void **state __unused)
{
	struct made m = make(1);
	struct table t;
	struct cfi c;

	small_table(&t);
	saved_table_comes_back(&t);
	table_fini(&t);
	assert_int_equal(table_pack(&m.c, &t), 0);
	saved_table_comes_back(&t);
	table_fini(&t);
	made_fini(&m);
	if (!compile(LIB "libc.so.6", &c))
		return;
	assert_int_equal(table_pack(&c, &t), 0);
	saved_table_comes_back(&t);
	table_fini(&t);
	cfi_fini(&c);
}

static void each_truncation_is_refused(void **state __unused)
{
	struct table t, back;
	size_t len, n;
	u8 *data;

	small_table(&t);
	assert_int_equal(table_save(&t, &data, &len), 0);
	for (n = 0; n < len; n++) {
		/* On the heap to the byte, so that a sanitizer sees a read behind it. */
		u8 *cut = malloc(n ? n : 1);

		memcpy(cut, data, n);
		assert_int_equal(table_load(cut, n, &back), -EINVAL);
		free(cut);
	}
	free(data);
	table_fini(&t);
}

static void mend_checksum(u8 *data, size_t len)
{
	u32 crc;

	memset(data + TABLE_CRC_AT, 0, sizeof(crc));
	crc = (u32)crc32(0, data, (uInt)len);
	memcpy(data + TABLE_CRC_AT, &crc, sizeof(crc));
}

/* Whatever was let in: every page answers, with a rule that the walk knows. */
static void expect_in_bounds(const struct table *t)
{
	u32 page, step;

	expect_layout(t);
	for (page = 0; page < t->npages; page++) {
		for (step = 0; step < 64; step++) {
			u64 off = ((u64)page << t->shift) + ((u64)step << t->shift) / 64;
			struct unwind_wide wide;
			struct unwind_rule rule;

			table_find(t, t->base + off, &rule, &wide);
			assert_true(rule.cfa < UNWIND_CFA_FP && rule.ra <= UNWIND_FROM_LOST);
			assert_true(rule.cfa_reg < 32 && wide.cfa_index < 32);
		}
	}
}

static void mutations(u32 n, bool mend, u32 *loaded)
{
	struct table t, back;
	u8 *data, *copy;
	size_t len;

	small_table(&t);
	assert_int_equal(table_save(&t, &data, &len), 0);
	copy = malloc(len);
	*loaded = 0;
	while (n--) {
		u32 flips = 1 + rng(4);

		memcpy(copy, data, len);
		while (flips--) {
			/* A third of them in the header. */
			u32 at = rng(3) ? rng((u32)len) : rng(72);

			copy[at] = rng(2) ? (u8)rng(256) : (u8)(copy[at] ^ (1 << rng(8)));
		}
		if (!memcmp(copy, data, len))
			continue;
		if (mend)
			mend_checksum(copy, len);
		if (table_load(copy, len, &back))
			continue;
		++*loaded;
		expect_in_bounds(&back);
		table_fini(&back);
	}
	free(copy);
	free(data);
	table_fini(&t);
}

static void damaged_bytes_are_refused(void **state __unused)
{
	u32 loaded;

	rng_state = 7;
	mutations(5000, false, &loaded);
	assert_int_equal(loaded, 0);
}

static void forged_bytes_are_refused_or_stay_in_bounds(void **state __unused)
{
	u32 loaded;

	rng_state = 8;
	mutations(5000, true, &loaded);
	/* Offsets and registers of rules may be anything; places may not. */
	assert_true(loaded > 100 && loaded < 4500);
}

static void expect_refused_with(u32 at, u32 value)
{
	struct table t, back;
	size_t len;
	u8 *data;

	small_table(&t);
	assert_int_equal(table_save(&t, &data, &len), 0);
	memcpy(data + at, &value, sizeof(value));
	mend_checksum(data, len);
	assert_int_equal(table_load(data, len, &back), -EINVAL);
	free(data);
	table_fini(&t);
}

static void other_magic_or_version_is_refused(void **state __unused)
{
	expect_refused_with(0, 0x464c457f);
	expect_refused_with(8, TABLE_VERSION + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_what_cfi_finds_in_libc),
		cmocka_unit_test(finds_what_cfi_finds_in_the_dynamic_linker),
		cmocka_unit_test(finds_what_cfi_finds_in_a_cpp_library),
		cmocka_unit_test(finds_what_cfi_finds_in_this_binary),
		cmocka_unit_test(finds_what_cfi_finds_in_libllvm),
		cmocka_unit_test(p4_bytes_per_row_of_libllvm),
		cmocka_unit_test(p4_bytes_per_row_of_node),
		cmocka_unit_test(p4_bytes_per_row_of_libjvm),
		cmocka_unit_test(gap_of_255_stays_in_its_block),
		cmocka_unit_test(gap_of_256_starts_a_block),
		cmocka_unit_test(row_65_starts_a_block),
		cmocka_unit_test(leaf_is_what_abi_h_says),
		cmocka_unit_test(page_that_starts_inside_a_row_begins_with_it),
		cmocka_unit_test(page_inside_a_long_function_has_one_row),
		cmocka_unit_test(long_stretch_without_cfi_has_frame_pointers),
		cmocka_unit_test(outside_the_table_is_no_rule),
		cmocka_unit_test(base_is_that_of_the_first_rows_page),
		cmocka_unit_test(file_without_rows_gives_an_empty_table),
		cmocka_unit_test(padding_before_an_end_of_stacks_stays),
		cmocka_unit_test(padding_of_15_bytes_is_bridged_16_are_not),
		cmocka_unit_test(page_of_256_rules_is_kept_257_halve_it),
		cmocka_unit_test(page_with_a_row_at_every_byte_is_halved),
		cmocka_unit_test(smallest_page_has_256_rules_at_most),
		cmocka_unit_test(over_65535_slots_is_too_big),
		cmocka_unit_test(index_over_a_slab_is_too_big),
		cmocka_unit_test(wide_rules_take_two_slots),
		cmocka_unit_test(offset_over_16_bits_is_unsupported_and_counted),
		cmocka_unit_test(offset_over_16_bits_is_counted_from_the_register_when_near),
		cmocka_unit_test(rules_that_differ_in_their_reason_only_are_one),
		cmocka_unit_test(random_rows_are_found_again),
		cmocka_unit_test(saved_tables_come_back),
		cmocka_unit_test(each_truncation_is_refused),
		cmocka_unit_test(damaged_bytes_are_refused),
		cmocka_unit_test(forged_bytes_are_refused_or_stay_in_bounds),
		cmocka_unit_test(other_magic_or_version_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
