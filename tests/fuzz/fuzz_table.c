// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes table_load(): bytes of a cache file, given their right length and checksum so that
 * everything behind is reached. What is let in must answer at every address with a rule that the walk knows, and
 * be the same after another way out and in.
 */
#include "core/table.h"

#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void ask(const struct table *t, u64 addr)
{
	struct unwind_wide wide;
	struct unwind_rule rule;

	table_find(t, addr, &rule, &wide);
	require(rule.cfa < UNWIND_CFA_FP && rule.fp <= UNWIND_FROM_LOST &&
		rule.ra <= UNWIND_FROM_LOST && rule.cfa_reg < 32 && rule.fp_reg < 32 &&
		rule.ra_reg < 32 && wide.cfa_index < 32);
}

static void check(const struct table *t)
{
	u32 page, i;

	for (page = 0; page < t->npages; page++) {
		u64 at = t->base + ((u64)page << t->shift);
		struct leaf_head head;

		if (t->leaf_at[page] == UINT32_MAX)
			continue;
		memcpy(&head, t->leaves + t->leaf_at[page], sizeof(head));
		require(head.gap_at * 8u + head.nrows + 7 <= t->leaf_len[page]);
		require((u64)t->leaf_at[page] + t->leaf_len[page] <= t->leaves_len);
		for (i = 0; i < 1u << t->shift; i += 1 + (1u << t->shift) / 300)
			ask(t, at + i);
		ask(t, at + (1u << t->shift) - 1);
	}
	ask(t, t->base - 1);
	ask(t, 0);
}

static void check_saved(const struct table *t, const u8 *data, size_t size)
{
	u8 *again;
	size_t len;

	if (table_save(t, &again, &len))
		return;
	/* Only padding inside leaves may hold anything, and it is kept. */
	require(len == size && !memcmp(again, data, len));
	free(again);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	u8 *copy = malloc(size ? size : 1);
	struct table t;
	u64 len = size;
	u32 crc;

	if (!copy)
		return 0;
	if (size)
		memcpy(copy, data, size);
	if (size >= TABLE_CRC_AT + sizeof(crc) + sizeof(len)) {
		memcpy(copy + TABLE_CRC_AT + sizeof(crc), &len, sizeof(len));
		memset(copy + TABLE_CRC_AT, 0, sizeof(crc));
		crc = (u32)crc32(0, copy, (uInt)size);
		memcpy(copy + TABLE_CRC_AT, &crc, sizeof(crc));
	}
	if (!table_load(copy, size, &t)) {
		check(&t);
		check_saved(&t, copy, size);
		table_fini(&t);
	}
	free(copy);
	return 0;
}
