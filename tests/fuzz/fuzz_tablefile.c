// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes tablefile_compile() with ELF images: headers, sections, .eh_frame_hdr, inflating, and all
 * that lies behind. A table that comes out must say at each row what the compiler said.
 */
#include "core/tablefile.h"
#include "core/cfi.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

/* The kind of rule is enough; NONE may be padding, an offset may have been too wide. */
static void check(const struct cfi *c, const struct table *t)
{
	u32 i;

	for (i = 0; i < c->nrows; i++) {
		u64 addr = c->base + c->rows[i].pc;
		u8 want = c->rules[c->rows[i].rule].cfa;
		struct unwind_rule rule;
		bool found = table_find(t, addr, &rule, NULL);

		require(want == CFI_CFA_NONE || found);
		require(want == CFI_CFA_NONE || rule.cfa == want ||
			rule.cfa == UNWIND_CFA_UNSUPPORTED);
		require(want != CFI_CFA_NONE || !found || i + 1 < c->nrows);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct tablefile_info info, again;
	struct table t;
	struct cfi c;
	int err, err2;

	err = tablefile_compile(-1, data, size, "", NULL, &t, &info);
	require(!err || err == -EINVAL || err == -ENOENT || err == -E2BIG);
	if (err)
		return 0;
	err2 = tablefile_cfi(-1, data, size, &c, &again);
	require(!err2 && again.eh_frame_size == info.eh_frame_size);
	check(&c, &t);
	cfi_fini(&c);
	table_fini(&t);
	return 0;
}
