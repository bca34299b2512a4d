// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes core/cfi. First byte: bit 0 arm64, bit 1 .debug_frame, bit 2 unsized, bit 3 small limits,
 * bit 4 the rest is split over two sections. Whatever comes in, the result keeps its promises:
 * sorted, merged, closed by a gap, within its limits.
 */
#include "core/cfi.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void check(const struct cfi *c, const struct cfi_limits *limits)
{
	u32 i;

	require(c->nrows <= limits->rows && c->nrules <= limits->rules);
	/* Each section may see the limit once, and once when run. */
	require(c->ops <= limits->ops + 8 + 64);
	for (i = 0; i < c->nrows; i++) {
		const struct cfi_row *row = &c->rows[i];

		require(row->rule < c->nrules);
		require(!i || row[-1].pc < row->pc);
		require(!i || row[-1].rule != row->rule);
		require(cfi_find(c, c->base + row->pc) == &c->rules[row->rule]);
	}
	require(!c->nrows || c->rows[c->nrows - 1].rule == 0);
	for (i = 0; i < c->nrules; i++) {
		const struct cfi_rule *r = &c->rules[i];

		require(r->cfa < CFI_CFA_MAX && r->fp < CFI_FROM_MAX && r->ra < CFI_FROM_MAX);
		require(r->cfa_reg < 32 && r->cfa_index < 32 && r->fp_reg < 32 && r->ra_reg < 32);
		require(r->bx <= CFI_FROM_CFA && (!r->bx || c->follows_bx));
		require(r->cfa < CFI_CFA_REG || r->ra > CFI_FROM_SAME);
		require((r->cfa == CFI_CFA_UNSUPPORTED) <= (r->reason != CFI_NOTE_none));
	}
}

static struct cfi_section section(u8 flags, const u8 *data, size_t size)
{
	return (struct cfi_section){ .data = data,
				     .size = size,
				     .vaddr = 0x200000,
				     .debug_frame = flags & 2,
				     .unsized = flags & 4 };
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct cfi_limits limits = CFI_LIMITS_DEFAULT;
	struct cfi_section s;
	struct cfi c;
	size_t half;
	u8 flags;

	if (!size)
		return 0;
	flags = *data++;
	size--;
	if (flags & 8)
		limits = (struct cfi_limits){ .fdes = 3, .rows = 7, .rules = 4, .ops = 50 };
	half = flags & 16 ? size / 2 : size;
	cfi_init(&c, flags & 1 ? CFI_ARM64 : CFI_X86_64, 0x1000, 0x101000, &limits);
	s = section(flags, data, half);
	require(!cfi_add(&c, &s));
	s = section(flags ^ 2, data + half, size - half);
	require(half == size || !cfi_add(&c, &s));
	require(!cfi_run(&c));
	check(&c, &limits);
	cfi_fini(&c);
	return 0;
}
