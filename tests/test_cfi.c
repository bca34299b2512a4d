// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of core/cfi. Hand-assembled sections with expectations read off the DWARF standard and the
 * x86-64 and arm64 ABIs; real files compared row by row with readelf (binutils) and, value by
 * value, with libdw (elfutils). With arguments it is the tool behind tests/live_cfi_oracle.sh:
 *
 *	test_cfi --readelf|--libdw|--census|--time|--rows FILE...
 */
#include "core/cfi.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

extern char **environ;

#define TEXT  0x1000ull
#define FRAME 0x200000ull /* where hand-made sections claim to be loaded */

/* --- rules as text ------------------------------------------------------------------------ */

static void from_text(char *to, size_t size, u8 kind, u8 reg, s32 off)
{
	switch (kind) {
	case CFI_FROM_SAME:
		snprintf(to, size, "same");
		break;
	case CFI_FROM_CFA:
		snprintf(to, size, "c%+d", off);
		break;
	case CFI_FROM_REG:
		snprintf(to, size, "in r%u", reg);
		break;
	case CFI_FROM_DEREF:
		snprintf(to, size, "*(r%u%+d)", reg, off);
		break;
	default:
		snprintf(to, size, "lost");
	}
}

static const char *rule_text(const struct cfi_rule *r)
{
	static char text[200];
	char cfa[64], fp[32], ra[32], bx[32] = "", bx_from[24];

	switch (r->cfa) {
	case CFI_CFA_NONE:
		return "none";
	case CFI_CFA_END:
		return "end";
	case CFI_CFA_SIGNAL:
		return "signal";
	case CFI_CFA_UNSUPPORTED:
		snprintf(text, sizeof(text), "unsupported %s", cfi_note_name(r->reason));
		return text;
	case CFI_CFA_REG:
		snprintf(cfa, sizeof(cfa), "r%u%+d", r->cfa_reg, r->cfa_off);
		break;
	case CFI_CFA_DEREF:
		snprintf(cfa, sizeof(cfa), "*(r%u%+d)%+d", r->cfa_reg, r->cfa_off, r->cfa_add);
		break;
	case CFI_CFA_SCALED:
		snprintf(cfa, sizeof(cfa), "*(r%u+r%u*%u%+d)%+d", r->cfa_reg, r->cfa_index,
			 r->cfa_scale, r->cfa_off, r->cfa_add);
		break;
	case CFI_CFA_PLT:
		snprintf(cfa, sizeof(cfa), "plt r%u%+d >=%d", r->cfa_reg, r->cfa_off, r->cfa_add);
		break;
	default:
		fail_msg("CFA kind %u", r->cfa);
	}
	from_text(fp, sizeof(fp), r->fp, r->fp_reg, r->fp_off);
	from_text(ra, sizeof(ra), r->ra, r->ra_reg, r->ra_off);
	if (r->bx) {
		from_text(bx_from, sizeof(bx_from), r->bx, 0, r->bx_off);
		snprintf(bx, sizeof(bx), " bx %s", bx_from);
	}
	snprintf(text, sizeof(text), "%s fp %s ra %s%s%s%s%s%s", cfa, fp, ra, bx,
		 r->flags & CFI_RULE_SIGNAL_FRAME ? " signal-frame" : "",
		 r->flags & CFI_RULE_RA_SIGNED ? " signed" : "", r->reason ? " but " : "",
		 r->reason ? cfi_note_name(r->reason) : "");
	return text;
}

/* --- hand-made sections ------------------------------------------------------------------- */

struct buf {
	u8 b[1 << 16];
	size_t n;
};

#define LIT(...) (const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ })

static void put(struct buf *b, const void *p, size_t n)
{
	assert_true(b->n + n <= sizeof(b->b));
	memcpy(b->b + b->n, p, n);
	b->n += n;
}

static void put_int(struct buf *b, u64 v, size_t n)
{
	put(b, &v, n);
}

/* A CIE or FDE: length, id, then the two parts. */
static size_t put_entry(struct buf *b, u32 id, const void *head, size_t head_n, const void *ops,
			size_t ops_n)
{
	size_t at = b->n;

	put_int(b, 4 + head_n + ops_n, 4);
	put_int(b, id, 4);
	put(b, head, head_n);
	put(b, ops, ops_n);
	return at;
}

/* FDE of .eh_frame with absolute 64-bit pointers and empty augmentation data ('z'). */
static size_t put_fde(struct buf *b, size_t cie, u64 start, u64 len, const void *ops, size_t ops_n)
{
	u8 head[17] = { 0 };

	memcpy(head, &start, 8);
	memcpy(head + 8, &len, 8);
	return put_entry(b, (u32)(b->n + 4 - cie), head, sizeof(head), ops, ops_n);
}

/* Version 1, "zR" with absolute pointers, factors 1 and -8. */
#define CIE_HEAD(ra) 1, 'z', 'R', 0, 1, 0x78, ra, 1, 0x00

static size_t put_cie_x86(struct buf *b)
{
	/* def_cfa rsp+8; offset rip c-8 */
	return put_entry(b, 0, LIT(CIE_HEAD(16)), LIT(0x0c, 7, 8, 0x90, 1));
}

static size_t put_cie_arm64(struct buf *b)
{
	/* def_cfa sp+0 */
	return put_entry(b, 0, LIT(1, 'z', 'R', 0, 4, 0x78, 30, 1, 0x00), LIT(0x0c, 31, 0));
}

static const struct cfi_limits limits = CFI_LIMITS_DEFAULT;

static void compile(struct cfi *c, enum cfi_arch arch, const struct buf *b, bool debug_frame,
		    const struct cfi_limits *lim)
{
	/* An exact heap copy, so that the address sanitizer sees reads past the end. */
	u8 *copy = malloc(b->n + !b->n);
	struct cfi_section s = { .data = copy, .size = b->n, .vaddr = FRAME };

	assert_non_null(copy);
	memcpy(copy, b->b, b->n);
	s.debug_frame = debug_frame;
	cfi_init(c, arch, TEXT, TEXT + 0x100000, lim);
	assert_int_equal(cfi_add(c, &s), 0);
	assert_int_equal(cfi_run(c), 0);
	free(copy);
}

static void fini(struct cfi *c)
{
	u32 i;

	/* What every result promises. */
	for (i = 0; i < c->nrows; i++) {
		assert_true(c->rows[i].rule < c->nrules);
		if (i) {
			assert_true(c->rows[i].pc > c->rows[i - 1].pc);
			assert_true(c->rows[i].rule != c->rows[i - 1].rule);
		}
	}
	if (c->nrows)
		assert_int_equal(c->rows[c->nrows - 1].rule, 0);
	cfi_fini(c);
}

static void expect(const struct cfi *c, u64 pc, const char *text)
{
	assert_string_equal(rule_text(cfi_find(c, pc)), text);
}

static u64 notes(const struct cfi *c)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < CFI_NOTE_MAX; i++)
		sum += c->note[i];
	return sum;
}

/* --- one instruction, or one form of it, per test ----------------------------------------- */

#define X86_START "r7+8 fp same ra c-8"
#define A64_START "r31+0 fp same ra in r30"

/* FDE [0x1000, 0x1100). The rule at its start, at 0x1010, and what was noted. */
struct op_case {
	const char *name;
	enum cfi_arch arch;
	const u8 *ops;
	size_t n;
	const char *at_0, *at_10;
	enum cfi_note note;
};

#define OPS(...) LIT(__VA_ARGS__)
#define MOVE     0x50 /* advance_loc 16 */

static const struct op_case op_cases[] = {
	{ "op_none_keeps_the_initial_rule", 0, OPS(0), X86_START, X86_START, 0 },
	{ "op_advance_loc", 0, OPS(0x4f, 0x0e, 16, 0x41, 0x0e, 24), X86_START,
	  "r7+24 fp same ra c-8", 0 },
	{ "op_advance_loc1", 0, OPS(2, 0x10, 0x0e, 16), X86_START, "r7+16 fp same ra c-8", 0 },
	{ "op_advance_loc2", 0, OPS(3, 0x10, 0, 0x0e, 16), X86_START, "r7+16 fp same ra c-8", 0 },
	{ "op_advance_loc4", 0, OPS(4, 0x10, 0, 0, 0, 0x0e, 16), X86_START, "r7+16 fp same ra c-8",
	  0 },
	{ "op_mips_advance_loc8", 0, OPS(0x1d, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x0e, 16), X86_START,
	  "r7+16 fp same ra c-8", 0 },
	{ "op_set_loc", 0, OPS(1, 0x10, 0x10, 0, 0, 0, 0, 0, 0, 0x0e, 16), X86_START,
	  "r7+16 fp same ra c-8", 0 },
	{ "op_set_loc_backwards_drops_the_function", 0,
	  OPS(MOVE, 1, 0x08, 0x10, 0, 0, 0, 0, 0, 0, 0x0e, 16), "none", "none",
	  CFI_NOTE_op_advance },
	{ "op_advance_that_wraps_drops_the_function", 0,
	  OPS(0x44, 0x1d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "none", "none",
	  CFI_NOTE_op_advance },
	{ "op_advance_past_the_end_is_clipped", 0, OPS(0x0e, 16, 3, 0xff, 0xff, 0x0e, 24),
	  "r7+16 fp same ra c-8", "r7+16 fp same ra c-8", 0 },
	{ "op_code_factor_is_applied", CFI_ARM64, OPS(0x44, 0x0e, 32), A64_START,
	  "r31+32 fp same ra in r30", 0 },
	{ "op_def_cfa", 0, OPS(MOVE, 0x0c, 6, 16), X86_START, "r6+16 fp same ra c-8", 0 },
	{ "op_def_cfa_any_register", 0, OPS(MOVE, 0x0c, 10, 0), X86_START, "r10+0 fp same ra c-8",
	  0 },
	{ "op_def_cfa_of_no_base_register", 0, OPS(MOVE, 0x0c, 17, 0), X86_START,
	  "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_def_cfa_sf", 0, OPS(MOVE, 0x12, 6, 0x7e), X86_START, "r6+16 fp same ra c-8", 0 },
	{ "op_def_cfa_register", 0, OPS(MOVE, 0x0d, 6), X86_START, "r6+8 fp same ra c-8", 0 },
	{ "op_def_cfa_offset", 0, OPS(MOVE, 0x0e, 0x80, 0x02), X86_START, "r7+256 fp same ra c-8",
	  0 },
	{ "op_def_cfa_offset_sf", 0, OPS(MOVE, 0x13, 0x7c), X86_START, "r7+32 fp same ra c-8", 0 },
	{ "op_def_cfa_offset_over_32_bits", 0, OPS(MOVE, 0x0e, 0x80, 0x80, 0x80, 0x80, 0x10),
	  X86_START, "unsupported row_offset", CFI_NOTE_row_offset },
	{ "op_cfa_expression_drap", 0, OPS(MOVE, 0x0f, 3, 0x76, 0x78, 0x06), X86_START,
	  "*(r6-8)+0 fp same ra c-8", 0 },
	{ "op_cfa_expression_deref_plus", 0, OPS(MOVE, 0x0f, 6, 0x77, 0xa0, 0x04, 0x06, 0x23, 8),
	  X86_START, "*(r7+544)+8 fp same ra c-8", 0 },
	{ "op_cfa_expression_deref_plus_literal", 0, OPS(MOVE, 0x0f, 5, 0x77, 40, 0x06, 0x38, 0x22),
	  X86_START, "*(r7+40)+8 fp same ra c-8", 0 },
	{ "op_cfa_expression_scaled", 0,
	  OPS(MOVE, 0x0f, 10, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8), X86_START,
	  "*(r7+r9*8+8)+8 fp same ra c-8", 0 },
	{ "op_cfa_expression_scaled_by_shift", 0,
	  OPS(MOVE, 0x0f, 8, 0x77, 8, 0x79, 0, 0x33, 0x24, 0x22, 0x06), X86_START,
	  "*(r7+r9*8+8)+0 fp same ra c-8", 0 },
	{ "op_cfa_expression_without_deref", 0, OPS(MOVE, 0x0f, 4, 0x77, 8, 0x23, 8), X86_START,
	  "r7+16 fp same ra c-8", 0 },
	{ "op_cfa_expression_bregx_and_constants", 0,
	  OPS(MOVE, 0x0f, 8, 0x92, 6, 0x08, 0x0a, 0x18, 0x00, 0x1c, 0x06), X86_START,
	  "*(r6-16)+0 fp same ra c-8", 0 },
	{ "op_cfa_expression_plt", 0,
	  OPS(MOVE, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22),
	  X86_START, "plt r7+8 >=11 fp same ra c-8", 0 },
	{ "op_cfa_expression_plt_with_branch_tracking", 0,
	  OPS(MOVE, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3a, 0x2a, 0x33, 0x24, 0x22),
	  X86_START, "plt r7+8 >=10 fp same ra c-8", 0 },
	{ "op_cfa_expression_unknown_operator", 0, OPS(MOVE, 0x0f, 2, 0xe3, 0x06), X86_START,
	  "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_empty", 0, OPS(MOVE, 0x0f, 0), X86_START, "unsupported row_cfa",
	  CFI_NOTE_row_cfa },
	{ "op_cfa_expression_stack_underflow", 0, OPS(MOVE, 0x0f, 2, 0x38, 0x22), X86_START,
	  "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_stack_overflow", 0,
	  OPS(MOVE, 0x0f, 10, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30),
	  X86_START, "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_cut_operand", 0, OPS(MOVE, 0x0f, 2, 0x77, 0x80), X86_START,
	  "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_branch_is_not_followed", 0,
	  OPS(MOVE, 0x0f, 5, 0x77, 8, 0x2f, 0xfb, 0xff), X86_START, "unsupported row_cfa",
	  CFI_NOTE_row_cfa },
	{ "op_cfa_expression_call_is_not_followed", 0, OPS(MOVE, 0x0f, 5, 0x99, 0, 0, 0, 0),
	  X86_START, "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_overflow", 0,
	  OPS(MOVE, 0x0f, 22, 0x77, 1, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x22,
	      0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x22),
	  X86_START, "unsupported row_cfa", CFI_NOTE_row_cfa },
	{ "op_cfa_expression_then_def_cfa_offset", 0,
	  OPS(0x0f, 3, 0x76, 0x78, 0x06, MOVE, 0x0e, 16), "*(r6-8)+0 fp same ra c-8",
	  "r7+16 fp same ra c-8", 0 },
	{ "op_offset", 0, OPS(MOVE, 0x86, 2), X86_START, "r7+8 fp c-16 ra c-8", 0 },
	{ "op_offset_of_an_ignored_register", 0, OPS(MOVE, 0x83, 2), X86_START, X86_START, 0 },
	{ "op_offset_extended", 0, OPS(MOVE, 5, 6, 3), X86_START, "r7+8 fp c-24 ra c-8", 0 },
	{ "op_offset_extended_sf", 0, OPS(MOVE, 0x11, 6, 0x7f), X86_START, "r7+8 fp c+8 ra c-8",
	  0 },
	{ "op_negative_offset_extended", 0, OPS(MOVE, 0x2f, 6, 2), X86_START, "r7+8 fp c+16 ra c-8",
	  0 },
	{ "op_offset_overflow_loses_the_frame_pointer", 0,
	  OPS(MOVE, 5, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), X86_START,
	  "r7+8 fp lost ra c-8 but row_fp", CFI_NOTE_row_fp },
	{ "op_restore", 0, OPS(0x86, 2, MOVE, 0xc6), "r7+8 fp c-16 ra c-8", X86_START, 0 },
	{ "op_restore_extended", 0, OPS(0x86, 2, MOVE, 6, 6), "r7+8 fp c-16 ra c-8", X86_START, 0 },
	{ "op_undefined_return_address_ends_the_stack", 0, OPS(7, 16), "end", "end", 0 },
	{ "op_undefined_frame_pointer", 0, OPS(MOVE, 7, 6), X86_START, "r7+8 fp lost ra c-8", 0 },
	{ "op_same_value_frame_pointer", 0, OPS(0x86, 2, MOVE, 8, 6), "r7+8 fp c-16 ra c-8",
	  X86_START, 0 },
	{ "op_same_value_return_address_on_x86", 0, OPS(MOVE, 8, 16), X86_START,
	  "unsupported row_ra", CFI_NOTE_row_ra },
	{ "op_register_return_address", 0, OPS(MOVE, 9, 16, 5), X86_START, "r7+8 fp same ra in r5",
	  0 },
	{ "op_register_frame_pointer", 0, OPS(MOVE, 9, 6, 9), X86_START, "r7+8 fp in r9 ra c-8",
	  0 },
	{ "op_register_unknown", 0, OPS(MOVE, 9, 16, 99), X86_START, "unsupported row_ra",
	  CFI_NOTE_row_ra },
	{ "op_register_stack_pointer", 0, OPS(MOVE, 9, 7, 8), X86_START, "unsupported row_sp",
	  CFI_NOTE_row_sp },
	{ "op_remember_and_restore_state", 0, OPS(0x0a, 0x0e, 16, 0x86, 2, 0x48, 0x0b, MOVE),
	  "r7+16 fp c-16 ra c-8", X86_START, 0 },
	{ "op_restore_state_without_remember", 0, OPS(MOVE, 0x0b), "none", "none",
	  CFI_NOTE_op_stack },
	{ "op_remember_16_deep", 0,
	  OPS(10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, MOVE, 0x0e, 16),
	  X86_START, "r7+16 fp same ra c-8", 0 },
	{ "op_remember_17_deep", 0,
	  OPS(10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10), "none", "none",
	  CFI_NOTE_op_stack },
	{ "op_expression_saved_frame_pointer", 0, OPS(MOVE, 0x10, 6, 2, 0x76, 0), X86_START,
	  "r7+8 fp *(r6+0) ra c-8", 0 },
	{ "op_expression_return_address", 0, OPS(MOVE, 0x10, 16, 3, 0x77, 0xa8, 1), X86_START,
	  "r7+8 fp same ra *(r7+168)", 0 },
	{ "op_expression_from_the_cfa", 0, OPS(MOVE, 0x10, 6, 2, 0x40, 0x1c), X86_START,
	  "r7+8 fp c-16 ra c-8", 0 },
	{ "op_expression_realigned_by_mask", 0,
	  OPS(MOVE, 0x10, 6, 6, 0x38, 0x1c, 0x09, 0xe0, 0x1a, 0x96), X86_START,
	  "r7+8 fp lost ra c-8 but row_fp", CFI_NOTE_row_fp },
	{ "op_val_offset_stack_pointer_is_the_cfa", 0, OPS(MOVE, 0x14, 7, 0), X86_START, X86_START,
	  0 },
	{ "op_val_offset_stack_pointer_is_not_the_cfa", 0, OPS(MOVE, 0x14, 7, 1), X86_START,
	  "unsupported row_sp", CFI_NOTE_row_sp },
	{ "op_val_offset_sf", 0, OPS(MOVE, 0x15, 7, 0), X86_START, X86_START, 0 },
	{ "op_val_offset_frame_pointer", 0, OPS(MOVE, 0x14, 6, 1), X86_START,
	  "r7+8 fp lost ra c-8 but row_fp", CFI_NOTE_row_fp },
	{ "op_val_expression_register", 0, OPS(MOVE, 0x16, 6, 2, 0x79, 0), X86_START,
	  "r7+8 fp in r9 ra c-8", 0 },
	{ "op_val_expression_deref", 0, OPS(MOVE, 0x16, 6, 3, 0x77, 16, 0x06), X86_START,
	  "r7+8 fp *(r7+16) ra c-8", 0 },
	{ "op_val_expression_stack_pointer", 0, OPS(MOVE, 0x16, 7, 2, 0x23, 0), X86_START,
	  X86_START, 0 },
	{ "op_args_size_is_ignored", 0, OPS(MOVE, 0x2e, 0x80, 1, 0x0e, 16), X86_START,
	  "r7+16 fp same ra c-8", 0 },
	{ "op_nop", 0, OPS(0, 0, MOVE, 0, 0x0e, 16), X86_START, "r7+16 fp same ra c-8", 0 },
	{ "op_negate_ra_state", CFI_ARM64, OPS(0x44, 0x2d, 0x0e, 16, 0x9d, 2, 0x9e, 1), A64_START,
	  "r31+16 fp c-16 ra c-8 signed", 0 },
	{ "op_negate_ra_state_with_pc", CFI_ARM64, OPS(0x44, 0x2c), A64_START,
	  "r31+0 fp same ra in r30 signed", 0 },
	{ "op_negate_ra_state_twice", CFI_ARM64, OPS(0x2d, 0x44, 0x2d),
	  "r31+0 fp same ra in r30 signed", A64_START, 0 },
	{ "op_ra_state_is_restored_with_the_state", CFI_ARM64, OPS(0x2d, 0x0a, 0x2d, 0x44, 0x0b),
	  A64_START, "r31+0 fp same ra in r30 signed", 0 },
	{ "op_window_save_means_nothing_on_x86", 0, OPS(MOVE, 0x2d), "none", "none",
	  CFI_NOTE_op_unknown },
	{ "op_same_value_link_register", CFI_ARM64, OPS(0x9e, 1, 0x44, 8, 30),
	  "r31+0 fp same ra c-8", A64_START, 0 },
	{ "op_undefined_link_register_ends_the_stack", CFI_ARM64, OPS(7, 30), "end", "end", 0 },
	{ "op_unknown", 0, OPS(MOVE, 0x3f), "none", "none", CFI_NOTE_op_unknown },
	{ "op_cut_operand", 0, OPS(MOVE, 0x0c, 6), "none", "none", CFI_NOTE_fde_broken },
	{ "op_cut_block", 0, OPS(MOVE, 0x0f, 9, 0x77), "none", "none", CFI_NOTE_fde_broken },
	{ "op_block_of_2_to_the_63", 0,
	  OPS(MOVE, 0x0f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1), "none", "none",
	  CFI_NOTE_fde_broken },
	{ "op_leb_of_11_bytes", 0,
	  OPS(MOVE, 0x0e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1), "none",
	  "none", CFI_NOTE_op_number },
	{ "op_leb_of_10_bytes_over_64_bits", 0,
	  OPS(MOVE, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3), "none", "none",
	  CFI_NOTE_op_number },
	{ "op_leb_padded_to_10_bytes", 0,
	  OPS(MOVE, 0x0e, 0x90, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0), X86_START,
	  "r7+16 fp same ra c-8", 0 },
	{ "op_sleb_padded_to_10_bytes", 0,
	  OPS(MOVE, 0x13, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), X86_START,
	  "r7+16 fp same ra c-8", 0 },
};

static void one_op(void **state)
{
	const struct op_case *t = *state;
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = t->arch == CFI_ARM64 ? put_cie_arm64(&b) : put_cie_x86(&b);

	put_fde(&b, cie, TEXT, 0x100, t->ops, t->n);
	compile(&c, t->arch, &b, false, &limits);
	expect(&c, TEXT, t->at_0);
	expect(&c, TEXT + 0x10, t->at_10);
	expect(&c, TEXT + 0xff, t->at_10);
	expect(&c, TEXT + 0x100, "none");
	expect(&c, TEXT - 1, "none");
	assert_int_equal(notes(&c), t->note ? 1 : 0);
	assert_int_equal(c.note[t->note], t->note ? 1 : 0);
	fini(&c);
}

/* --- one CIE form per test ---------------------------------------------------------------- */

/* CIE bytes after the id, without instructions; FDE head bytes after the id. Rule at 0x1000. */
struct cie_case {
	const char *name;
	const u8 *cie;
	size_t cie_n;
	const u8 *fde;
	size_t fde_n;
	bool debug_frame;
	enum cfi_note note;
};

#define ABS_1000_LEN_100 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0
#define U32_1000_LEN_100 0, 0x10, 0, 0, 0, 1, 0, 0

static const struct cie_case cie_cases[] = {
	{ "cie_version_1", LIT(1, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false, 0 },
	{ "cie_version_3", LIT(3, 0, 1, 0x78, 0x90, 0), LIT(ABS_1000_LEN_100), false, 0 },
	{ "cie_version_4", LIT(4, 0, 8, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false, 0 },
	{ "cie_version_0", LIT(0, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_version },
	{ "cie_version_2", LIT(2, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_version },
	{ "cie_version_255", LIT(255, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_version },
	{ "cie_version_4_with_32_bit_addresses", LIT(4, 0, 4, 0, 1, 0x78, 16),
	  LIT(ABS_1000_LEN_100), false, CFI_NOTE_cie_version },
	{ "cie_version_4_with_segments", LIT(4, 0, 8, 2, 1, 0x78, 16), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_version },
	{ "cie_return_column_2_to_the_63",
	  LIT(3, 0, 1, 0x78, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1),
	  LIT(ABS_1000_LEN_100), false, CFI_NOTE_cie_register },
	{ "cie_return_column_is_the_stack_pointer", LIT(1, 0, 1, 0x78, 7), LIT(ABS_1000_LEN_100),
	  false, CFI_NOTE_cie_register },
	{ "cie_return_column_256", LIT(3, 0, 1, 0x78, 0x90, 2), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_register },
	{ "cie_code_factor_0", LIT(1, 0, 0, 0x78, 16), LIT(ABS_1000_LEN_100), false,
	  CFI_NOTE_cie_factor },
	{ "cie_leb_of_11_bytes",
	  LIT(1, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x78, 16),
	  LIT(ABS_1000_LEN_100), false, CFI_NOTE_cie_broken },
	{ "cie_augmentation_eh", LIT(1, 'e', 'h', 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0x78, 16),
	  LIT(ABS_1000_LEN_100), false, 0 },
	{ "cie_augmentation_z", LIT(1, 'z', 0, 1, 0x78, 16, 0), LIT(ABS_1000_LEN_100, 0), false,
	  0 },
	{ "cie_augmentation_zPLR_skips_personality_and_lsda",
	  LIT(1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 16, 7, 0x9b, 1, 2, 3, 4, 0x1b, 0x03),
	  LIT(U32_1000_LEN_100, 4, 9, 9, 9, 9), false, 0 },
	{ "cie_augmentation_personality_of_8_bytes",
	  LIT(1, 'z', 'P', 'R', 0, 1, 0x78, 16, 10, 0x00, 1, 2, 3, 4, 5, 6, 7, 8, 0x03),
	  LIT(U32_1000_LEN_100, 0), false, 0 },
	{ "cie_augmentation_personality_omitted",
	  LIT(1, 'z', 'P', 'R', 0, 1, 0x78, 16, 2, 0xff, 0x03), LIT(U32_1000_LEN_100, 0), false,
	  0 },
	{ "cie_augmentation_personality_aligned",
	  LIT(1, 'z', 'P', 'R', 0, 1, 0x78, 16, 10, 0x50, 1, 2, 3, 4, 5, 6, 7, 8, 0x03),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_encoding },
	{ "cie_augmentation_longer_than_its_letters",
	  LIT(1, 'z', 'R', 0, 1, 0x78, 16, 4, 0x03, 9, 9, 9), LIT(U32_1000_LEN_100, 0), false, 0 },
	{ "cie_augmentation_shorter_than_its_letters", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 0),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_broken },
	{ "cie_augmentation_past_the_entry", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 99, 0x03),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_broken },
	{ "cie_augmentation_unknown_letter", LIT(1, 'z', 'Q', 0, 1, 0x78, 16, 0),
	  LIT(ABS_1000_LEN_100, 0), false, CFI_NOTE_cie_augmentation },
	{ "cie_augmentation_without_z", LIT(1, 'R', 0, 1, 0x78, 16, 0), LIT(ABS_1000_LEN_100),
	  false, CFI_NOTE_cie_augmentation },
	{ "cie_augmentation_not_terminated",
	  LIT(1, 'z', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R', 'R'),
	  LIT(ABS_1000_LEN_100, 0), false, CFI_NOTE_cie_augmentation },
	{ "cie_empty", LIT(), LIT(ABS_1000_LEN_100), false, CFI_NOTE_cie_broken },
	{ "encoding_udata2", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x02), LIT(0, 0x10, 0, 1, 0),
	  false, 0 },
	{ "encoding_udata4", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03), LIT(U32_1000_LEN_100, 0),
	  false, 0 },
	{ "encoding_udata8", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x04), LIT(ABS_1000_LEN_100, 0),
	  false, 0 },
	{ "encoding_sdata2", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x0a), LIT(0, 0x10, 0, 1, 0),
	  false, 0 },
	{ "encoding_sdata4", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x0b), LIT(U32_1000_LEN_100, 0),
	  false, 0 },
	{ "encoding_sdata8", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x0c), LIT(ABS_1000_LEN_100, 0),
	  false, 0 },
	{ "encoding_uleb", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x01),
	  LIT(0x80, 0x20, 0x80, 0x02, 0), false, 0 },
	{ "encoding_sleb", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x09),
	  LIT(0x80, 0x20, 0x80, 0x02, 0), false, 0 },
	/* CIE of 4 + 4 + 9 + 5 bytes, FDE head 8: the field lies at FRAME + 30. */
	{ "encoding_pcrel_sdata4", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b),
	  LIT(0xe2, 0x0f, 0xe0, 0xff, 0, 1, 0, 0, 0), false, 0 },
	{ "encoding_pcrel_absptr", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x10),
	  LIT(0xe2, 0x0f, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0), false,
	  0 },
	{ "encoding_datarel_is_refused", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x3b),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_encoding },
	{ "encoding_indirect_is_refused", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x9b),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_encoding },
	{ "encoding_omit_is_refused", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0xff),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_encoding },
	{ "encoding_unknown_format", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x06),
	  LIT(U32_1000_LEN_100, 0), false, CFI_NOTE_cie_encoding },
	{ "debug_frame_version_1", LIT(1, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), true, 0 },
	{ "debug_frame_version_3", LIT(3, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), true, 0 },
	{ "debug_frame_version_4", LIT(4, 0, 8, 0, 1, 0x78, 16), LIT(ABS_1000_LEN_100), true, 0 },
	{ "fde_empty_head", LIT(1, 0, 1, 0x78, 16), LIT(), false, CFI_NOTE_fde_broken },
	{ "fde_cut_head", LIT(1, 0, 1, 0x78, 16), LIT(0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1), false,
	  CFI_NOTE_fde_broken },
	{ "fde_augmentation_past_the_entry", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03),
	  LIT(U32_1000_LEN_100, 0x7f), false, CFI_NOTE_fde_broken },
	{ "fde_negative_length", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x0b),
	  LIT(0, 0x10, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0), false, CFI_NOTE_fde_range },
	{ "fde_wrapping_range", LIT(1, 0, 1, 0x78, 16),
	  LIT(0, 0x10, 0, 0, 0, 0, 0, 0xf0, 0, 0, 0, 0, 0, 0, 0, 0x20), false, CFI_NOTE_fde_range },
	{ "fde_of_length_0", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03),
	  LIT(0, 0x10, 0, 0, 0, 0, 0, 0, 0), false, CFI_NOTE_fde_empty },
	{ "fde_before_the_text", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03),
	  LIT(0, 0, 0, 0, 0, 0x20, 0, 0, 0), false, CFI_NOTE_fde_outside },
	{ "fde_behind_the_text", LIT(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03),
	  LIT(0, 0x10, 0x10, 0, 0, 1, 0, 0, 0), false, CFI_NOTE_fde_outside },
};

static void one_cie(void **state)
{
	static const u8 ops[] = { 0x0c, 7, 8, 0x90, 1 }; /* def_cfa rsp+8; offset rip c-8 */
	const struct cie_case *t = *state;
	struct buf b = { .n = 0 };
	struct cfi c;

	put_entry(&b, t->debug_frame ? UINT32_MAX : 0, t->cie, t->cie_n, ops,
		  t->cie_n ? sizeof(ops) : 0);
	put_entry(&b, t->debug_frame ? 0 : (u32)b.n + 4, t->fde, t->fde_n,
		  LIT(MOVE, 0x0e, 16, 0x86, 2));
	compile(&c, CFI_X86_64, &b, t->debug_frame, &limits);
	expect(&c, TEXT, t->note ? "none" : X86_START);
	expect(&c, TEXT + 0x10, t->note ? "none" : "r7+16 fp c-16 ra c-8");
	expect(&c, TEXT + 0xff, t->note ? "none" : "r7+16 fp c-16 ra c-8");
	expect(&c, TEXT + 0x100, "none");
	assert_int_equal(notes(&c), t->note ? 1 : 0);
	assert_int_equal(c.note[t->note], t->note ? 1 : 0);
	assert_int_equal(c.nfdes, 1);
	fini(&c);
}

/* --- signal frames ------------------------------------------------------------------------ */

/* As glibc 2.36 writes it: CFA *(rsp+160), rbp at rsp+120, rsp at rsp+160, rip at rsp+168. */
#define RESTORE_RT                                                                                \
	0x0f, 4, 0x77, 0xa0, 1, 0x06, 0x10, 6, 3, 0x77, 0xf8, 0, 0x10, 7, 3, 0x77, 0xa0, 1, 0x10, \
		16, 3, 0x77, 0xa8, 1

static void signal_case(const char *augmentation, const u8 *ops, size_t n, const char *text)
{
	struct buf b = { .n = 0 }, head = { .n = 0 };
	struct cfi c;

	put_int(&head, 1, 1);
	put(&head, augmentation, strlen(augmentation) + 1);
	put(&head, LIT(1, 0x78, 16, 1, 0));
	put_entry(&b, 0, head.b, head.n, LIT(0));
	put_fde(&b, 0, TEXT, 0x10, ops, n);
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, TEXT, text);
	fini(&c);
}

static void signal_frame_of_glibc_is_recognised(void **state __unused)
{
	signal_case("zRS", LIT(RESTORE_RT), "signal");
}

static void signal_frame_needs_its_augmentation(void **state __unused)
{
	signal_case("zR", LIT(RESTORE_RT), "*(r7+160)+0 fp *(r7+120) ra *(r7+168)");
}

static void signal_frame_with_another_layout_keeps_its_rules(void **state __unused)
{
	signal_case("zRS", LIT(0x0f, 3, 0x77, 8, 0x06, 0x10, 7, 2, 0x77, 8, 0x10, 16, 2, 0x77, 0),
		    "*(r7+8)+0 fp same ra *(r7+0) signal-frame");
}

static void signal_frame_whose_sp_differs_from_the_cfa_is_refused(void **state __unused)
{
	signal_case("zRS", LIT(0x0f, 3, 0x77, 8, 0x06, 0x10, 7, 2, 0x77, 16, 0x10, 16, 2, 0x77, 0),
		    "unsupported row_sp");
}

static void signal_frame_of_the_arm64_vdso_is_recognised(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_entry(&b, 0, LIT(1, 'z', 'R', 'S', 0, 4, 0x78, 30, 1, 0), LIT(0x0c, 31, 0));
	/* def_cfa x29+0; offset x29 c+0; offset x30 c+8 */
	put_fde(&b, 0, TEXT, 0x10, LIT(0x0c, 29, 0, 0x9d, 0, 0x11, 30, 0x7f));
	compile(&c, CFI_ARM64, &b, false, &limits);
	expect(&c, TEXT, "signal");
	fini(&c);
}

static void cie_augmentation_B_is_accepted_on_arm64(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_entry(&b, 0, LIT(1, 'z', 'R', 'B', 0, 4, 0x78, 30, 1, 0), LIT(0x0c, 31, 0));
	put_fde(&b, 0, TEXT, 0x10, LIT(0));
	compile(&c, CFI_ARM64, &b, false, &limits);
	expect(&c, TEXT, A64_START);
	fini(&c);
}

/* --- sections ----------------------------------------------------------------------------- */

static void functions_come_out_sorted_with_gaps_between(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x3000, 0x10, LIT(0x0e, 24));
	put_fde(&b, cie, 0x1000, 0x10, LIT(0x0e, 16));
	put_fde(&b, cie, 0x2000, 0x1000, LIT(0x0e, 32));
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_int_equal(c.nrows, 5);
	expect(&c, 0x1000, "r7+16 fp same ra c-8");
	expect(&c, 0x1010, "none");
	expect(&c, 0x1fff, "none");
	expect(&c, 0x2000, "r7+32 fp same ra c-8");
	expect(&c, 0x2fff, "r7+32 fp same ra c-8");
	expect(&c, 0x3000, "r7+24 fp same ra c-8");
	expect(&c, 0x3010, "none");
	assert_int_equal(notes(&c), 0);
	fini(&c);
}

static void functions_that_are_left_out_are_gaps(void **state __unused)
{
	static const u64 starts[] = { 0x1010, 0x2008, 0x9000 };
	struct buf b = { .n = 0 };
	struct cfi_section s;
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0x0e, 16));
	put_fde(&b, cie, 0x1010, 0x10, LIT(0x0e, 24));
	put_fde(&b, cie, 0x1020, 0x10, LIT(0x0e, 32));
	put_fde(&b, cie, 0x2000, 0x10, LIT(0x0e, 40));
	s = (struct cfi_section){ .data = b.b, .size = b.n, .vaddr = FRAME };
	cfi_init(&c, CFI_X86_64, TEXT, TEXT + 0x10000, &limits);
	assert_int_equal(cfi_add(&c, &s), 0);
	cfi_leave_out(&c, starts, ARRAY_SIZE(starts));
	assert_int_equal(cfi_run(&c), 0);
	expect(&c, 0x100f, "r7+16 fp same ra c-8");
	expect(&c, 0x1010, "none");
	expect(&c, 0x101f, "none");
	expect(&c, 0x1020, "r7+32 fp same ra c-8");
	/* Not by what lies in the middle. */
	expect(&c, 0x2008, "r7+40 fp same ra c-8");
	assert_int_equal(c.note[CFI_NOTE_fde_left_out], 1);
	fini(&c);
}

static void equal_neighbours_are_merged_across_functions(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0x48, 0x83, 2));
	put_fde(&b, cie, 0x1010, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_int_equal(c.nrows, 2);
	assert_int_equal(c.raw_rows, 3);
	assert_int_equal(c.nrules, 2);
	expect(&c, 0x101f, X86_START);
	fini(&c);
}

/* def_cfa rbx+24 is how ld.so's lazy binding describes itself; the other function saves rbx. */
static void rbx_is_followed_where_a_frame_address_needs_it(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_cie_x86(&b);
	put_fde(&b, 0, 0x1000, 0x10, LIT(0x44, 0x83, 2, 0x44, 0xc3));
	put_fde(&b, 0, 0x1010, 0x10, LIT(0x83, 3, 0x44, 0x0c, 3, 24, 0x44, 7, 3));
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_true(c.follows_bx);
	assert_int_equal(c.raw_rows, 6);
	expect(&c, 0x1000, "r7+8 fp same ra c-8 bx same");
	expect(&c, 0x1004, "r7+8 fp same ra c-8 bx c-16");
	expect(&c, 0x1008, "r7+8 fp same ra c-8 bx same");
	expect(&c, 0x1010, "r7+8 fp same ra c-8 bx c-24");
	expect(&c, 0x1014, "r3+24 fp same ra c-8 bx c-24");
	expect(&c, 0x1018, "r3+24 fp same ra c-8");
	fini(&c);
}

static void rbx_is_not_followed_elsewhere(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_cie_x86(&b);
	put_fde(&b, 0, 0x1000, 0x10, LIT(0x44, 0x83, 2, 0x44, 0xc3));
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_false(c.follows_bx);
	assert_int_equal(c.nrows, 2);
	expect(&c, 0x1004, X86_START);
	fini(&c);
}

static void overlap_ends_at_the_next_start(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x100, LIT(0x0e, 16));
	put_fde(&b, cie, 0x1020, 0x10, LIT(0x0e, 24));
	put_fde(&b, cie, 0x1028, 0x20, LIT(0x0e, 32));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x101f, "r7+16 fp same ra c-8");
	expect(&c, 0x1020, "r7+24 fp same ra c-8");
	expect(&c, 0x1028, "r7+32 fp same ra c-8");
	expect(&c, 0x1047, "r7+32 fp same ra c-8");
	expect(&c, 0x1048, "none");
	fini(&c);
}

static void duplicate_starts_the_first_sound_one_counts(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0x44, 0x3f));
	put_fde(&b, cie, 0x1000, 0x20, LIT(0x0e, 24));
	put_fde(&b, cie, 0x1000, 0x30, LIT(0x0e, 32));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1000, "r7+24 fp same ra c-8");
	expect(&c, 0x1020, "none");
	assert_int_equal(c.note[CFI_NOTE_op_unknown], 1);
	assert_int_equal(c.note[CFI_NOTE_fde_duplicate], 1);
	fini(&c);
}

static void bad_function_leaves_a_gap_and_the_others_stay(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0x0e, 16));
	put_fde(&b, cie, 0x1010, 0x10, LIT(0x0e, 24, 0x44, 0x0e, 32, 0x44, 0x3f));
	put_fde(&b, cie, 0x1020, 0x10, LIT(0x0e, 16));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x100f, "r7+16 fp same ra c-8");
	expect(&c, 0x1010, "none");
	expect(&c, 0x101f, "none");
	expect(&c, 0x1020, "r7+16 fp same ra c-8");
	assert_int_equal(c.nrows, 4);
	fini(&c);
}

static void bad_cie_drops_its_functions_only(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t bad = put_entry(&b, 0, LIT(CIE_HEAD(16)), LIT(0x0c)), cie;

	put_fde(&b, bad, 0x1000, 0x10, LIT(0));
	put_fde(&b, bad, 0x1010, 0x10, LIT(0));
	cie = put_cie_x86(&b);
	put_fde(&b, cie, 0x1020, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1010, "none");
	expect(&c, 0x1020, X86_START);
	assert_int_equal(c.note[CFI_NOTE_cie_broken], 2);
	fini(&c);
}

static void cie_that_moves_the_location_is_refused(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_entry(&b, 0, LIT(CIE_HEAD(16)), LIT(0x0c, 7, 8, 0x44, 0x90, 1));
	put_fde(&b, 0, 0x1000, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1000, "none");
	assert_int_equal(c.note[CFI_NOTE_cie_broken], 1);
	fini(&c);
}

static void fde_pointing_outside_before_or_at_itself(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	u8 head[17] = { 0, 0x10, [8] = 0x10 };

	put_cie_x86(&b);
	/* Before the section; its own length; its own id; another FDE; into a CIE. */
	put_entry(&b, 0x7fffffff, head, sizeof(head), LIT(0));
	put_entry(&b, 4, head, sizeof(head), LIT(0));
	put_entry(&b, 2, head, sizeof(head), LIT(0));
	put_fde(&b, b.n - 26, TEXT, 0x10, LIT(0));
	put_fde(&b, 5, TEXT, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_int_equal(c.nfdes, 5);
	assert_int_equal(c.nrows, 0);
	assert_int_equal(c.note[CFI_NOTE_cie_missing], 5);
	fini(&c);
}

static void debug_frame_pointing_outside(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_entry(&b, UINT32_MAX, LIT(1, 0, 1, 0x78, 16), LIT(0x0c, 7, 8, 0x90, 1));
	put_entry(&b, 0xfffffffe, LIT(ABS_1000_LEN_100), LIT(0));
	put_entry(&b, (u32)b.n, LIT(ABS_1000_LEN_100), LIT(0));
	compile(&c, CFI_X86_64, &b, true, &limits);
	assert_int_equal(c.nrows, 0);
	assert_int_equal(c.note[CFI_NOTE_cie_missing], 2);
	fini(&c);
}

static void length_0_in_the_middle_is_passed_over(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0));
	put_int(&b, 0, 4);
	put_fde(&b, cie, 0x2000, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x2000, X86_START);
	assert_int_equal(notes(&c), 0);
	fini(&c);
}

static void length_0_ends_a_section_of_unknown_size(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi_section s = { .data = b.b, .unsized = true };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0));
	put_int(&b, 0, 4);
	put(&b, "\xff\xfe\xfd\xfcgarbage", 11);
	s.size = b.n;
	cfi_init(&c, CFI_X86_64, TEXT, TEXT + 0x100000, &limits);
	assert_int_equal(cfi_add(&c, &s), 0);
	assert_int_equal(cfi_run(&c), 0);
	expect(&c, 0x1000, X86_START);
	assert_int_equal(notes(&c), 0);
	fini(&c);
}

static void cut_section_keeps_what_came_before(u64 len, size_t len_size)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t cie = put_cie_x86(&b);

	put_fde(&b, cie, 0x1000, 0x10, LIT(0));
	put_int(&b, len, len_size);
	put_int(&b, 0, 2);
	put_fde(&b, cie, 0x2000, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1000, X86_START);
	expect(&c, 0x2000, "none");
	assert_int_equal(c.note[CFI_NOTE_section_cut], 1);
	assert_int_equal(notes(&c), 1);
	fini(&c);
}

static void length_past_the_section_stops_it(void **state __unused)
{
	cut_section_keeps_what_came_before(0x1000, 4);
}

static void length_of_reserved_value_stops_it(void **state __unused)
{
	cut_section_keeps_what_came_before(0xfffffff0, 4);
}

static void length_0xffffffff_with_64_bits_past_the_section_stops_it(void **state __unused)
{
	cut_section_keeps_what_came_before(0xffffffff, 4);
}

static void length_of_64_bits_in_eh_frame(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;
	size_t at;

	put_int(&b, 0xffffffff, 4);
	put_int(&b, 4 + 9 + 5, 8);
	put_int(&b, 0, 4);
	put(&b, LIT(CIE_HEAD(16)));
	put(&b, LIT(0x0c, 7, 8, 0x90, 1));
	put_int(&b, 0xffffffff, 4);
	put_int(&b, 4 + 17 + 3, 8);
	at = b.n;
	put_int(&b, at, 4);
	put(&b, LIT(ABS_1000_LEN_100, 0));
	put(&b, LIT(MOVE, 0x0e, 16));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1010, "r7+16 fp same ra c-8");
	assert_int_equal(notes(&c), 0);
	fini(&c);
}

static void length_of_64_bits_in_debug_frame(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_int(&b, 0xffffffff, 4);
	put_int(&b, 8 + 5 + 5, 8);
	put_int(&b, UINT64_MAX, 8);
	put(&b, LIT(1, 0, 1, 0x78, 16));
	put(&b, LIT(0x0c, 7, 8, 0x90, 1));
	put_int(&b, 0xffffffff, 4);
	put_int(&b, 8 + 16 + 3, 8);
	put_int(&b, 0, 8);
	put(&b, LIT(ABS_1000_LEN_100));
	put(&b, LIT(MOVE, 0x0e, 16));
	compile(&c, CFI_X86_64, &b, true, &limits);
	expect(&c, 0x1010, "r7+16 fp same ra c-8");
	assert_int_equal(notes(&c), 0);
	fini(&c);
}

static void entry_too_short_for_its_id(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	put_cie_x86(&b);
	put_int(&b, 2, 4);
	put_int(&b, 0, 2);
	put_fde(&b, 0, 0x1000, 0x10, LIT(0));
	compile(&c, CFI_X86_64, &b, false, &limits);
	expect(&c, 0x1000, X86_START);
	assert_int_equal(c.note[CFI_NOTE_fde_broken], 1);
	fini(&c);
}

static void empty_and_tiny_sections(void **state __unused)
{
	struct buf b = { .n = 0 };
	struct cfi c;

	for (b.n = 0; b.n < 8; b.n++) {
		compile(&c, CFI_X86_64, &b, false, &limits);
		assert_int_equal(c.nrows, 0);
		fini(&c);
	}
}

static void two_sections_fill_each_others_gaps(void **state __unused)
{
	struct buf eh = { .n = 0 }, df = { .n = 0 };
	struct cfi_section s[3];
	struct cfi c;

	put_cie_x86(&eh);
	put_fde(&eh, 0, 0x1000, 0x10, LIT(0x0e, 16));
	put_entry(&df, UINT32_MAX, LIT(1, 0, 1, 0x78, 16), LIT(0x0c, 7, 8, 0x90, 1));
	put_entry(&df, 0, LIT(0, 0x10, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0), LIT(0x0e, 24));
	put_entry(&df, 0, LIT(0, 0x20, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0), LIT(0x0e, 32));
	s[0] = (struct cfi_section){ .data = eh.b, .size = eh.n, .vaddr = FRAME };
	s[1] = (struct cfi_section){ .data = df.b, .size = df.n, .debug_frame = true };
	s[2] = s[1];
	cfi_init(&c, CFI_X86_64, TEXT, TEXT + 0x100000, &limits);
	assert_int_equal(cfi_add(&c, &s[0]), 0);
	assert_int_equal(cfi_add(&c, &s[1]), 0);
	assert_int_equal(cfi_add(&c, &s[2]), -E2BIG);
	assert_int_equal(cfi_run(&c), 0);
	expect(&c, 0x1000, "r7+16 fp same ra c-8");
	expect(&c, 0x2000, "r7+32 fp same ra c-8");
	assert_int_equal(c.note[CFI_NOTE_fde_duplicate], 1);
	fini(&c);
}

/* --- limits ------------------------------------------------------------------------------- */

static void limit_of_functions_keeps_the_first_ones(void **state __unused)
{
	struct cfi_limits lim = limits;
	struct buf b = { .n = 0 };
	struct cfi c;
	u32 i;

	put_cie_x86(&b);
	for (i = 0; i < 10; i++)
		put_fde(&b, 0, 0x1000 + i * 0x20, 0x10, LIT(0));
	lim.fdes = 3;
	compile(&c, CFI_X86_64, &b, false, &lim);
	expect(&c, 0x1040, X86_START);
	expect(&c, 0x1060, "none");
	assert_int_equal(c.note[CFI_NOTE_limit_fdes], 7);
	fini(&c);
}

static void limit_of_rows_ends_with_a_gap(void **state __unused)
{
	struct cfi_limits lim = limits;
	struct buf b = { .n = 0 };
	struct cfi c;
	u32 i;

	put_cie_x86(&b);
	for (i = 0; i < 10; i++)
		put_fde(&b, 0, 0x1000 + i * 0x20, 0x10, LIT(0x44, 0x0e, 16));
	/* Six rows are two functions with their gaps; the third needs a row that closes it. */
	for (lim.rows = 0; lim.rows < 9; lim.rows++) {
		compile(&c, CFI_X86_64, &b, false, &lim);
		assert_true(c.nrows <= lim.rows);
		expect(&c, 0x1000, lim.rows >= 3 ? X86_START : "none");
		expect(&c, 0x1020, lim.rows >= 6 ? X86_START : "none");
		expect(&c, 0x1040, "none");
		assert_int_equal(c.note[CFI_NOTE_limit_rows], 10 - lim.rows / 3);
		fini(&c);
	}
}

static void limit_of_rules_degrades_to_no_rule(void **state __unused)
{
	struct cfi_limits lim = limits;
	struct buf b = { .n = 0 };
	struct cfi c;

	put_cie_x86(&b);
	put_fde(&b, 0, 0x1000, 0x30, LIT(0x44, 0x0e, 16, 0x44, 0x0e, 24, 0x44, 0x0e, 16));
	lim.rules = 3;
	compile(&c, CFI_X86_64, &b, false, &lim);
	expect(&c, 0x1000, X86_START);
	expect(&c, 0x1004, "r7+16 fp same ra c-8");
	expect(&c, 0x1008, "none");
	expect(&c, 0x100c, "r7+16 fp same ra c-8");
	assert_int_equal(c.note[CFI_NOTE_limit_rules], 1);
	fini(&c);
}

static void limit_of_instructions_stops_the_file(void **state __unused)
{
	struct cfi_limits lim = limits;
	struct buf b = { .n = 0 };
	struct cfi c;
	u8 nops[1000] = { 0 };
	u32 i;

	put_cie_x86(&b);
	for (i = 0; i < 10; i++)
		put_fde(&b, 0, 0x1000 + i * 0x20, 0x10, nops, sizeof(nops));
	lim.ops = 3500;
	compile(&c, CFI_X86_64, &b, false, &lim);
	assert_true(c.ops <= lim.ops + 1);
	expect(&c, 0x1040, X86_START);
	expect(&c, 0x1060, "none");
	assert_int_equal(c.note[CFI_NOTE_limit_ops], 1);
	fini(&c);
}

static void million_remember_states(void **state __unused)
{
	static struct buf b;
	struct cfi c;
	u8 *ops = malloc(60000);

	memset(ops, 0x0a, 60000);
	b.n = 0;
	put_cie_x86(&b);
	put_fde(&b, 0, 0x1000, 0x10, ops, 60000);
	compile(&c, CFI_X86_64, &b, false, &limits);
	assert_int_equal(c.note[CFI_NOTE_op_stack], 1);
	assert_true(c.ops < 100);
	fini(&c);
	free(ops);
}

/* Many CIEs with long instructions, each used in turn: the cache misses, the bound holds. */
static void alternating_cies_cannot_make_it_quadratic(void **state __unused)
{
	struct cfi_limits lim = limits;
	static struct buf b;
	struct cfi c;
	u8 nops[120] = { 0 };
	u32 i, j;

	b.n = 0;
	for (i = 0; i < 150; i++)
		put_entry(&b, 0, LIT(CIE_HEAD(16)), nops, sizeof(nops));
	for (j = 0; j < 1000; j++)
		put_fde(&b, j % 150 * 137, 0x1000 + j, 1, LIT(0));
	lim.ops = 50000;
	compile(&c, CFI_X86_64, &b, false, &lim);
	assert_true(c.ops <= lim.ops + 2);
	assert_true(c.note[CFI_NOTE_limit_ops] >= 1);
	fini(&c);
}

/* --- whole files -------------------------------------------------------------------------- */

struct file {
	int fd;
	Elf *elf;
	enum cfi_arch arch;
	u64 text_lo, text_hi;
	struct cfi_section section[2]; /* .eh_frame, .debug_frame; no data: not there */
};

static void file_close(struct file *f)
{
	if (f->elf)
		elf_end(f->elf);
	if (f->fd >= 0)
		close(f->fd);
}

static void file_section(struct file *f, Elf_Scn *scn, const GElf_Shdr *h, u32 i)
{
	Elf_Data *d = elf_rawdata(scn, NULL);

	if (!d || !d->d_buf || h->sh_type == SHT_NOBITS || h->sh_flags & SHF_COMPRESSED)
		return;
	f->section[i] = (struct cfi_section){
		.data = d->d_buf, .size = d->d_size, .vaddr = h->sh_addr, .debug_frame = i == 1
	};
}

static bool file_open(struct file *f, const char *path)
{
	size_t n = 0, i, names;
	GElf_Ehdr eh;

	*f = (struct file){ .fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY),
			    .text_lo = UINT64_MAX };
	elf_version(EV_CURRENT);
	f->elf = f->fd >= 0 ? elf_begin(f->fd, ELF_C_READ_MMAP, NULL) : NULL;
	if (!f->elf || !gelf_getehdr(f->elf, &eh) || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    (eh.e_machine != EM_X86_64 && eh.e_machine != EM_AARCH64) || eh.e_type == ET_REL ||
	    elf_getshdrstrndx(f->elf, &names) || elf_getphdrnum(f->elf, &n))
		return false;
	f->arch = eh.e_machine == EM_X86_64 ? CFI_X86_64 : CFI_ARM64;
	for (i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(f->elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
		    !(ph.p_flags & PF_X))
			continue;
		f->text_lo = MIN(f->text_lo, ph.p_vaddr);
		f->text_hi = MAX(f->text_hi, ph.p_vaddr + ph.p_memsz);
	}
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(f->elf, scn));) {
		GElf_Shdr h;
		const char *name;

		if (!gelf_getshdr(scn, &h))
			continue;
		name = elf_strptr(f->elf, names, h.sh_name);
		if (name && !strcmp(name, ".eh_frame"))
			file_section(f, scn, &h, 0);
		else if (name && !strcmp(name, ".debug_frame"))
			file_section(f, scn, &h, 1);
	}
	return f->section[0].data || f->section[1].data;
}

static bool file_compile(const struct file *f, u32 section, struct cfi *c)
{
	static const struct cfi_limits large = {
		.fdes = 1 << 22, .rows = 1 << 25, .rules = UINT16_MAX, .ops = 1ull << 30
	};

	cfi_init(c, f->arch, f->text_lo, f->text_hi, &large);
	return !cfi_add(c, &f->section[section]) && !cfi_run(c);
}

/* --- oracle 1: readelf -------------------------------------------------------------------- */

/* One interval [pc, next row's pc) of one function, as readelf shows it. */
struct shown {
	u64 pc;
	char cfa[24], fp[16], ra[16];
};

struct shown_fde {
	u64 lo, hi;
	u32 first, n, order;
	u32 section;
};

struct shown_file {
	struct shown *rows;
	struct shown_fde *fdes;
	u32 nrows, rows_cap, nfdes, fdes_cap;
};

struct column {
	int fp, ra;
};

static void columns(struct column *col, char *line, const char *fp)
{
	char *save, *t;
	int i;

	*col = (struct column){ -1, -1 };
	for (i = 0, t = strtok_r(line, " \n", &save); t; t = strtok_r(NULL, " \n", &save), i++) {
		if (!strcmp(t, fp))
			col->fp = i;
		else if (!strcmp(t, "ra"))
			col->ra = i;
	}
}

static bool row_line(struct shown *row, char *line, const struct column *col)
{
	char *save, *t, *end;
	int i;

	*row = (struct shown){ .fp = "u", .ra = "u" };
	t = strtok_r(line, " \n", &save);
	if (!t)
		return false;
	row->pc = strtoull(t, &end, 16);
	if (*end)
		return false;
	for (i = 1; (t = strtok_r(NULL, " \n", &save)); i++) {
		/* A register is "r5 (rdi)"; "ZERO terminator" is no row. */
		if (t[0] == '(')
			i--;
		else if (i == 1 && !strcmp(t, "ZERO"))
			return false;
		else if (i == 1)
			snprintf(row->cfa, sizeof(row->cfa), "%s", t);
		else if (i == col->fp)
			snprintf(row->fp, sizeof(row->fp), "%s", t);
		else if (i == col->ra)
			snprintf(row->ra, sizeof(row->ra), "%s", t);
	}
	return i > 1;
}

/* CIE rows of the section, so that functions without instructions have theirs. */
struct shown_cie {
	u64 offset;
	struct shown row;
};

static void shown_free(struct shown_file *s)
{
	free(s->rows);
	free(s->fdes);
}

static void shown_row(struct shown_file *s, const struct shown *row)
{
	assert_int_equal(VEC_RESERVE(s->rows, s->rows_cap, s->nrows + 1, UINT32_MAX), 0);
	s->rows[s->nrows++] = *row;
	s->fdes[s->nfdes - 1].n++;
}

static void readelf_parse(struct shown_file *s, FILE *in, enum cfi_arch arch)
{
	const char *fp = arch == CFI_X86_64 ? "rbp" : "x29";
	struct shown_cie *cies = NULL;
	u32 ncies = 0, cies_cap = 0, section = 0, i;
	struct column col = { -1, -1 };
	bool in_cie = false;
	char line[4096], *p;
	u64 a, cie, lo, hi;
	struct shown row;

	while (fgets(line, sizeof(line), in)) {
		if (!strncmp(line, "Contents of the ", 16)) {
			section = strstr(line, ".debug_frame") != NULL;
			ncies = 0;
		} else if ((p = strstr(line, " FDE cie="))) {
			assert_int_equal(sscanf(p, " FDE cie=%" SCNx64 " pc=%" SCNx64 "..%" SCNx64,
						&cie, &lo, &hi),
					 3);
			in_cie = false;
			assert_int_equal(
				VEC_RESERVE(s->fdes, s->fdes_cap, s->nfdes + 1, UINT32_MAX), 0);
			s->fdes[s->nfdes] =
				(struct shown_fde){ lo, hi, s->nrows, 0, s->nfdes, section };
			s->nfdes++;
			for (i = ncies; i-- > 0;) {
				if (cies[i].offset != cie)
					continue;
				row = cies[i].row;
				row.pc = lo;
				shown_row(s, &row);
				break;
			}
		} else if ((p = strstr(line, " CIE \""))) {
			in_cie = true;
			a = strtoull(line, NULL, 16);
			assert_int_equal(VEC_RESERVE(cies, cies_cap, ncies + 1, UINT32_MAX), 0);
			cies[ncies++] = (struct shown_cie){ a, { .fp = "u", .ra = "u" } };
		} else if (!strncmp(line, "   LOC ", 7)) {
			columns(&col, line, fp);
		} else if (row_line(&row, line, &col)) {
			if (in_cie && ncies)
				cies[ncies - 1].row = row;
			else if (s->nfdes)
				shown_row(s, &row);
		}
	}
	free(cies);
}

static bool readelf_read(struct shown_file *s, const char *path, enum cfi_arch arch)
{
	char *argv[] = { "readelf", "--debug-dump=frames-interp,no-follow-links", (char *)path,
			 NULL };
	posix_spawn_file_actions_t fa;
	int fds[2], status;
	pid_t pid;
	FILE *in;

	*s = (struct shown_file){ 0 };
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fds[1], 1);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	status = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(fds[1]);
	if (status) {
		close(fds[0]);
		return false;
	}
	in = fdopen(fds[0], "r");
	readelf_parse(s, in, arch);
	fclose(in);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status);
}

static const char *reg_name(enum cfi_arch arch, u8 reg)
{
	static const char *const x86[] = { "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
					   "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15" };
	static char name[8];

	if (arch == CFI_X86_64 && reg < 16)
		return x86[reg];
	snprintf(name, sizeof(name), reg == 31 ? "sp" : "x%u", reg);
	return name;
}

static void from_shown(char *to, size_t size, u8 kind, u8 reg, s32 off)
{
	switch (kind) {
	case CFI_FROM_CFA:
		snprintf(to, size, "c%+d", off);
		break;
	case CFI_FROM_REG:
		snprintf(to, size, "r%u", reg);
		break;
	case CFI_FROM_DEREF:
		snprintf(to, size, "exp");
		break;
	default:
		snprintf(to, size, "u");
	}
}

/* readelf shows 'u' for undefined and for not mentioned, 's' for same value. */
static bool agrees(const struct cfi_rule *r, const struct shown *s, enum cfi_arch arch)
{
	char cfa[40] = "exp", fp[24], ra[24];

	switch (r->cfa) {
	case CFI_CFA_NONE:
		return false;
	case CFI_CFA_END:
		return !strcmp(s->ra, "u");
	case CFI_CFA_SIGNAL:
		return arch == CFI_ARM64 || (!strcmp(s->cfa, "exp") && !strcmp(s->ra, "exp"));
	case CFI_CFA_UNSUPPORTED:
		return r->reason != CFI_NOTE_row_cfa || !strcmp(s->cfa, "exp");
	case CFI_CFA_REG:
		snprintf(cfa, sizeof(cfa), "%s%+d", reg_name(arch, r->cfa_reg), r->cfa_off);
	}
	if (strcmp(cfa, s->cfa))
		return false;
	from_shown(fp, sizeof(fp), r->fp, r->fp_reg, r->fp_off);
	from_shown(ra, sizeof(ra), r->ra, r->ra_reg, r->ra_off);
	/* The return address column of the CIE, x15 for glibc's vfork, is not shown. */
	if (arch == CFI_ARM64 && r->ra == CFI_FROM_REG &&
	    (!strcmp(s->ra, "u") || !strcmp(s->ra, "s")))
		snprintf(ra, sizeof(ra), "%s", s->ra);
	if (r->fp == CFI_FROM_SAME && !strcmp(s->fp, "s"))
		return !strcmp(ra, s->ra);
	if (r->reason == CFI_NOTE_row_fp)
		return strchr("ev", s->fp[0]) && !strcmp(ra, s->ra);
	return !strcmp(fp, s->fp) && !strcmp(ra, s->ra);
}

static int by_start(const void *a, const void *b)
{
	const struct shown_fde *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

struct verdict {
	u64 compared, wrong, skipped;
};

static u32 row_index(const struct cfi *c, u64 pc)
{
	u32 lo = 0, hi = c->nrows;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (c->base + c->rows[mid].pc <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void wrong(struct verdict *v, const char *path, u64 pc, const char *ours, const char *theirs)
{
	if (v->wrong++ < 10)
		fprintf(stderr, "%s: %#" PRIx64 ": ours '%s', theirs '%s'\n", path, pc, ours,
			theirs);
}

/* Rows [first, first + n) of a function; `next` is where the next one starts. */
static void compare_fde(struct verdict *v, const struct cfi *c, const struct shown_file *s,
			const struct shown_fde *f, u64 next, const char *path)
{
	u32 i;

	for (i = 0; i < f->n; i++) {
		const struct shown *row = &s->rows[f->first + i];
		u64 hi = MIN(i + 1 < f->n ? row[1].pc : f->hi, MIN(f->hi, next));
		char theirs[64];

		if (row->pc >= hi)
			continue;
		v->compared++;
		snprintf(theirs, sizeof(theirs), "%s fp %s ra %s", row->cfa, row->fp, row->ra);
		if (!agrees(cfi_find(c, row->pc), row, c->arch))
			wrong(v, path, row->pc, rule_text(cfi_find(c, row->pc)), theirs);
		else if (row_index(c, hi - 1) != row_index(c, row->pc))
			wrong(v, path, hi - 1, rule_text(cfi_find(c, hi - 1)), theirs);
	}
	if (next > f->hi && cfi_find(c, f->hi)->cfa != CFI_CFA_NONE)
		wrong(v, path, f->hi, rule_text(cfi_find(c, f->hi)), "end of function");
}

static void compare_section(struct verdict *v, const struct file *file, const struct shown_file *s,
			    u32 section, const char *path)
{
	struct cfi c;
	u32 i, j;

	if (!file->section[section].data)
		return;
	assert_true(file_compile(file, section, &c));
	for (i = 0; i < s->nfdes; i++) {
		const struct shown_fde *f = &s->fdes[i];
		u64 next;

		if (f->section != section || f->lo < file->text_lo || f->lo >= file->text_hi ||
		    f->hi <= f->lo)
			continue;
		if (i && s->fdes[i - 1].section == section && s->fdes[i - 1].lo == f->lo) {
			v->skipped++;
			continue;
		}
		for (j = i + 1; j < s->nfdes && s->fdes[j].lo == f->lo; j++)
			;
		next = j < s->nfdes && s->fdes[j].section == section ? s->fdes[j].lo : UINT64_MAX;
		compare_fde(v, &c, s, f, next, path);
	}
	cfi_fini(&c);
}

static bool readelf_compare(const char *path, struct verdict *v)
{
	struct shown_file s;
	struct file f;
	bool done = false;

	*v = (struct verdict){ 0 };
	if (file_open(&f, path) && readelf_read(&s, path, f.arch)) {
		qsort(s.fdes, s.nfdes, sizeof(s.fdes[0]), by_start);
		compare_section(v, &f, &s, 0, path);
		compare_section(v, &f, &s, 1, path);
		shown_free(&s);
		done = true;
	}
	file_close(&f);
	return done;
}

/* --- oracle 2: libdw, by value ------------------------------------------------------------ */

/* Loaded at run time: the daemon's link line has no libdw. */
struct dw {
	void *lib;
	Dwarf_CFI *(*getcfi_elf)(Elf *elf);
	int (*addrframe)(Dwarf_CFI *cfi, Dwarf_Addr pc, Dwarf_Frame **ret);
	int (*cfa)(Dwarf_Frame *frame, Dwarf_Op **ops, size_t *n);
	int (*reg)(Dwarf_Frame *frame, int reg, Dwarf_Op mem[3], Dwarf_Op **ops, size_t *n);
	int (*cfi_end)(Dwarf_CFI *cfi);
};

static bool dw_load(struct dw *dw)
{
	dw->lib = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!dw->lib)
		return false;
	*(void **)&dw->getcfi_elf = dlsym(dw->lib, "dwarf_getcfi_elf");
	*(void **)&dw->addrframe = dlsym(dw->lib, "dwarf_cfi_addrframe");
	*(void **)&dw->cfa = dlsym(dw->lib, "dwarf_frame_cfa");
	*(void **)&dw->reg = dlsym(dw->lib, "dwarf_frame_register");
	*(void **)&dw->cfi_end = dlsym(dw->lib, "dwarf_cfi_end");
	return dw->getcfi_elf && dw->addrframe && dw->cfa && dw->reg && dw->cfi_end;
}

/* A made-up machine: every register and every word of memory has a value of its own. */
static u64 made_up(u64 v)
{
	v = (v + 1) * 0x9e3779b97f4a7c15ull;
	return (v ^ v >> 31) & 0x7ffffffffff8ull;
}

static u64 reg_value(u64 reg, u64 pc)
{
	return reg == 16 && pc ? pc : made_up(reg);
}

enum got { GOT_VALUE, GOT_UNDEFINED, GOT_SAME, GOT_UNKNOWN };

/* Runs what libdw answered; `location`: the result is where the value lies. */
static enum got dw_run(const Dwarf_Op *ops, size_t n, u64 pc, u64 cfa, bool location, u64 *ret)
{
	u64 st[32], t;
	size_t i, sp = 0;

	for (i = 0; i < n; i++) {
		const Dwarf_Op *op = &ops[i];
		u8 a = op->atom;

		if (sp > 28)
			return GOT_UNKNOWN;
		if (a >= DW_OP_lit0 && a <= DW_OP_lit31) {
			st[sp++] = a - DW_OP_lit0;
		} else if (a >= DW_OP_breg0 && a <= DW_OP_breg31) {
			st[sp++] = reg_value(a - DW_OP_breg0, pc) + op->number;
		} else if (a == DW_OP_bregx) {
			st[sp++] = reg_value(op->number, pc) + op->number2;
		} else if (a >= DW_OP_reg0 && a <= DW_OP_reg31) {
			st[sp++] = reg_value(a - DW_OP_reg0, pc);
			location = false;
		} else if (a == DW_OP_regx) {
			st[sp++] = reg_value(op->number, pc);
			location = false;
		} else if (a == DW_OP_call_frame_cfa) {
			st[sp++] = cfa;
		} else if (a >= DW_OP_const1u && a <= DW_OP_consts) {
			st[sp++] = op->number;
		} else if (a == DW_OP_stack_value) {
			location = false;
		} else if (a == DW_OP_deref && sp) {
			st[sp - 1] = made_up(st[sp - 1]);
		} else if (a == DW_OP_plus_uconst && sp) {
			st[sp - 1] += op->number;
		} else if (sp >= 2) {
			t = st[--sp];
			if (a == DW_OP_plus)
				st[sp - 1] += t;
			else if (a == DW_OP_minus)
				st[sp - 1] -= t;
			else if (a == DW_OP_mul)
				st[sp - 1] *= t;
			else if (a == DW_OP_and)
				st[sp - 1] &= t;
			else if (a == DW_OP_shl)
				st[sp - 1] <<= t & 63;
			else if (a == DW_OP_ge)
				st[sp - 1] = (s64)st[sp - 1] >= (s64)t;
			else
				return GOT_UNKNOWN;
		} else {
			return GOT_UNKNOWN;
		}
	}
	if (!sp)
		return GOT_UNKNOWN;
	*ret = location ? made_up(st[sp - 1]) : st[sp - 1];
	return GOT_VALUE;
}

static u64 our_cfa(const struct cfi_rule *r, u64 pc)
{
	u64 v = reg_value(r->cfa_reg, pc) + r->cfa_off;

	switch (r->cfa) {
	case CFI_CFA_REG:
		return v;
	case CFI_CFA_DEREF:
		return made_up(v) + r->cfa_add;
	case CFI_CFA_SCALED:
		return made_up(v + reg_value(r->cfa_index, pc) * r->cfa_scale) + r->cfa_add;
	case CFI_CFA_PLT:
		return v + ((pc & 15) >= (u64)r->cfa_add ? 8 : 0);
	case CFI_CFA_SIGNAL:
		return made_up(reg_value(7, pc) + 160);
	default:
		return 0;
	}
}

static u64 our_from(u8 kind, u8 reg, s32 off, u64 cfa, u64 pc)
{
	switch (kind) {
	case CFI_FROM_CFA:
		return made_up(cfa + off);
	case CFI_FROM_REG:
		return reg_value(reg, pc);
	case CFI_FROM_DEREF:
		return made_up(reg_value(reg, pc) + off);
	default:
		return 0;
	}
}

static bool dw_value(const struct dw *dw, Dwarf_Frame *frame, int reg, u64 pc, u64 cfa,
		     enum got *got, u64 *v)
{
	Dwarf_Op mem[3], *ops;
	size_t n;

	if (dw->reg(frame, reg, mem, &ops, &n))
		return false;
	if (!n)
		*got = ops == mem ? GOT_UNDEFINED : GOT_SAME;
	else
		*got = dw_run(ops, n, pc, cfa, true, v);
	return true;
}

static const char *dw_compare_frame(const struct dw *dw, Dwarf_Frame *frame, enum cfi_arch arch,
				    const struct cfi_rule *r, u64 pc)
{
	u8 fp_reg = arch == CFI_X86_64 ? 6 : 29, ra_reg = arch == CFI_X86_64 ? 16 : 30;
	u64 cfa = 0, fp = 0, ra = 0, ours = our_cfa(r, pc);
	enum got got;
	Dwarf_Op *ops;
	size_t n;

	if (!dw_value(dw, frame, ra_reg, pc, 0, &got, &ra))
		return "libdw: no return address";
	if (r->cfa == CFI_CFA_END || got == GOT_UNDEFINED)
		return r->cfa == CFI_CFA_END && got == GOT_UNDEFINED ? NULL : "end of stack";
	if (dw->cfa(frame, &ops, &n) || dw_run(ops, n, pc, 0, false, &cfa) != GOT_VALUE)
		return "libdw: no CFA";
	if (cfa != ours)
		return "CFA";
	if (!dw_value(dw, frame, ra_reg, pc, cfa, &got, &ra))
		return "libdw: return address";
	if (r->cfa == CFI_CFA_SIGNAL)
		return ra == made_up(reg_value(7, pc) + 168) ? NULL
							     : "return address of signal frame";
	if (got == GOT_SAME ? r->ra != CFI_FROM_REG || r->ra_reg != ra_reg
			    : our_from(r->ra, r->ra_reg, r->ra_off, cfa, pc) != ra)
		return "return address";
	if (!dw_value(dw, frame, fp_reg, pc, cfa, &got, &fp))
		return "libdw: frame pointer";
	if (got == GOT_SAME)
		return r->fp == CFI_FROM_SAME ? NULL : "frame pointer not same";
	if (got == GOT_UNDEFINED)
		return r->fp == CFI_FROM_LOST ? NULL : "frame pointer not undefined";
	if (r->fp == CFI_FROM_LOST && r->reason)
		return NULL;
	return our_from(r->fp, r->fp_reg, r->fp_off, cfa, pc) == fp ? NULL : "frame pointer";
}

static const char *dw_compare_bx(const struct dw *dw, Dwarf_Frame *frame, const struct cfi_rule *r,
				 u64 pc)
{
	u64 cfa = our_cfa(r, pc), bx = 0;
	enum got got;

	if (!dw_value(dw, frame, 3, pc, cfa, &got, &bx))
		return "libdw: rbx";
	/* elfutils 0.188 takes 0 for rbx's number in the ABI's defaults, so it says undefined. */
	if (got == GOT_SAME || got == GOT_UNDEFINED)
		return r->bx == CFI_FROM_SAME ? NULL : "rbx not same";
	return got == GOT_VALUE && our_from(r->bx, 3, r->bx_off, cfa, pc) == bx ? NULL : "rbx";
}

static void dw_compare_pc(const struct dw *dw, struct verdict *v, enum cfi_arch arch,
			  Dwarf_CFI *cfi, const struct cfi_rule *r, u64 pc, const char *path)
{
	Dwarf_Frame *frame = NULL;
	bool covered = !dw->addrframe(cfi, pc, &frame), ours = r->cfa != CFI_CFA_NONE;
	const char *what = covered == ours ? NULL : "coverage";

	v->compared++;
	if (covered && ours)
		what = dw_compare_frame(dw, frame, arch, r, pc);
	if (!what && covered && r->bx)
		what = dw_compare_bx(dw, frame, r, pc);
	if (what)
		wrong(v, path, pc, rule_text(r), what);
	free(frame);
}

/* At the first and the last byte of each of our rows; PLT rules depend on each byte of a stub. */
static void dw_compare_rows(const struct dw *dw, struct verdict *v, struct cfi *c, Dwarf_CFI *cfi,
			    const char *path)
{
	u32 i;

	for (i = 0; i + 1 < c->nrows; i++) {
		const struct cfi_rule *r = &c->rules[c->rows[i].rule];
		u64 lo = c->base + c->rows[i].pc, last = c->base + c->rows[i + 1].pc - 1, pc;

		if (r->cfa == CFI_CFA_UNSUPPORTED) {
			v->skipped++;
			continue;
		}
		for (pc = lo; r->cfa == CFI_CFA_PLT && pc < MIN(last, lo + 16); pc++)
			dw_compare_pc(dw, v, c->arch, cfi, r, pc, path);
		dw_compare_pc(dw, v, c->arch, cfi, r, lo, path);
		dw_compare_pc(dw, v, c->arch, cfi, r, last, path);
	}
}

static bool libdw_compare(const struct dw *dw, const char *path, struct verdict *v)
{
	struct file f;
	struct cfi c;
	Dwarf_CFI *cfi;
	bool done = false;

	*v = (struct verdict){ 0 };
	if (file_open(&f, path) && f.section[0].data && (cfi = dw->getcfi_elf(f.elf))) {
		assert_true(file_compile(&f, 0, &c));
		dw_compare_rows(dw, v, &c, cfi, path);
		cfi_fini(&c);
		/* The CFI of an Elf goes with libdw's handle of it, which elf_end() does not know. */
		dw->cfi_end(cfi);
		done = true;
	}
	file_close(&f);
	return done;
}

/* --- whole files as tests ----------------------------------------------------------------- */

static void expect_readelf_agrees(const char *path, u64 at_least)
{
	struct verdict v;

	if (access(path, R_OK))
		skip();
	if (!readelf_compare(path, &v))
		skip();
	assert_int_equal(v.wrong, 0);
	assert_true(v.compared >= at_least);
}

static void expect_libdw_agrees(const char *path, u64 at_least)
{
	struct verdict v;
	struct dw dw = { 0 };

	if (!dw_load(&dw) || access(path, R_OK))
		skip();
	assert_true(libdw_compare(&dw, path, &v));
	assert_int_equal(v.wrong, 0);
	assert_true(v.compared >= at_least);
}

#ifdef __x86_64__
#define LIB    "/lib/x86_64-linux-gnu/"
#define LINKER LIB "ld-linux-x86-64.so.2"
#else
#define LIB    "/lib/aarch64-linux-gnu/"
#define LINKER LIB "ld-linux-aarch64.so.1"
#endif

static void readelf_agrees_on_the_dynamic_linker(void **state __unused)
{
	expect_readelf_agrees(LINKER, 1000);
}

static void readelf_agrees_on_libc(void **state __unused)
{
	expect_readelf_agrees(LIB "libc.so.6", 20000);
}

static void readelf_agrees_on_this_binary(void **state __unused)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	assert_true(n > 0);
	path[n] = 0;
	expect_readelf_agrees(path, 300);
}

static void libdw_agrees_on_the_dynamic_linker(void **state __unused)
{
	expect_libdw_agrees(LINKER, 1000);
}

static void libdw_agrees_on_libc(void **state __unused)
{
	expect_libdw_agrees(LIB "libc.so.6", 20000);
}

static void libdw_agrees_on_libcrypto(void **state __unused)
{
	expect_libdw_agrees(LIB "libcrypto.so.3", 20000);
}

/* --- tool --------------------------------------------------------------------------------- */

static int tool_compare(const char *mode, char **paths)
{
	struct dw dw = { 0 };
	struct verdict v;
	int bad = 0;

	if (!strcmp(mode, "--libdw") && !dw_load(&dw)) {
		printf("skip libdw: not installed\n");
		return 0;
	}
	for (; *paths; paths++) {
		bool done = dw.lib ? libdw_compare(&dw, *paths, &v) : readelf_compare(*paths, &v);

		if (!done) {
			printf("skip %s: no 64-bit ELF file with CFI\n", *paths);
			continue;
		}
		printf("%s %s # %" PRIu64 " compared, %" PRIu64 " wrong, %" PRIu64 " skipped\n",
		       v.wrong ? "not ok" : "ok", *paths, v.compared, v.wrong, v.skipped);
		bad |= v.wrong != 0;
	}
	return bad;
}

static u64 cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.tv_sec * NSEC_PER_SEC + (u64)t.tv_nsec;
}

static int tool_rows(char **paths)
{
	for (; *paths; paths++) {
		struct file f;
		struct cfi c;
		u32 s, i;

		for (s = 0; file_open(&f, *paths) && s < 2; s++, file_close(&f)) {
			if (!f.section[s].data || !file_compile(&f, s, &c))
				continue;
			for (i = 0; i < c.nrows; i++)
				printf("%016" PRIx64 " %s\n", c.base + c.rows[i].pc,
				       rule_text(&c.rules[c.rows[i].rule]));
			cfi_fini(&c);
		}
		file_close(&f);
	}
	return 0;
}

/* CFA kinds by register, FP, RA; rows after merging. */
static void census_kind(char *to, size_t n, const struct cfi_rule *r, enum cfi_arch arch)
{
	static const char *const kinds[] = { "none", "end",   "unsupported", "signal",
					     "reg",  "deref", "scaled",      "plt" };

	snprintf(to, n, "cfa %s%s%s", kinds[r->cfa], r->cfa >= CFI_CFA_REG ? " " : "",
		 r->cfa >= CFI_CFA_REG ? reg_name(arch, r->cfa_reg) : "");
}

struct tally {
	char name[40];
	u64 n;
};

static struct tally tallies[200];

static void tally(const char *name)
{
	u32 i;

	for (i = 0; i + 1 < ARRAY_SIZE(tallies) && tallies[i].n && strcmp(tallies[i].name, name);
	     i++)
		;
	snprintf(tallies[i].name, sizeof(tallies[i].name), "%s", name);
	tallies[i].n++;
}

static void census_rule(const struct cfi_rule *r, enum cfi_arch arch)
{
	static const char *const from[] = { "lost", "same", "cfa", "reg", "deref" };
	char name[40];

	census_kind(name, sizeof(name), r, arch);
	tally(name);
	if (r->cfa < CFI_CFA_REG)
		return;
	snprintf(name, sizeof(name), "fp %s%+d", from[r->fp],
		 r->fp == CFI_FROM_CFA ? r->fp_off : 0);
	tally(r->fp == CFI_FROM_CFA && r->fp_off != -16 ? "fp cfa other" : name);
	snprintf(name, sizeof(name), "ra %s%+d", from[r->ra],
		 r->ra == CFI_FROM_CFA ? r->ra_off : 0);
	tally(r->ra == CFI_FROM_CFA && r->ra_off != -8 && arch == CFI_ARM64 ? "ra cfa other"
									    : name);
	if (r->flags & CFI_RULE_RA_SIGNED)
		tally("ra signed");
	if (r->flags & CFI_RULE_SIGNAL_FRAME)
		tally("signal frame, rules kept");
}

static int tool_census(char **paths)
{
	u64 rows = 0, raw = 0, note[CFI_NOTE_MAX] = { 0 };
	u32 i, s, files = 0, most = 0, fits = 0;

	for (; *paths; paths++) {
		struct file f;
		struct cfi c;

		if (!file_open(&f, *paths)) {
			file_close(&f);
			continue;
		}
		for (s = 0; s < 2; s++) {
			if (!f.section[s].data)
				continue;
			if (!file_compile(&f, s, &c))
				continue;
			for (i = 0; i < c.nrows; i++)
				census_rule(&c.rules[c.rows[i].rule], f.arch);
			for (i = 0; i < CFI_NOTE_MAX; i++)
				note[i] += c.note[i];
			printf("%-60s %c %8u rows %8" PRIu64 " raw %6" PRIu64 " fdes %5u rules\n",
			       *paths, s ? 'd' : 'e', c.nrows, c.raw_rows, c.nfdes, c.nrules);
			rows += c.nrows;
			raw += c.raw_rows;
			most = MAX(most, c.nrules);
			fits += c.nrules <= 256;
			files++;
			cfi_fini(&c);
		}
		file_close(&f);
	}
	printf("%u sections, %" PRIu64 " rows, %" PRIu64 " raw; most rules %u, %u with <= 256\n",
	       files, rows, raw, most, fits);
	for (i = 0; i < ARRAY_SIZE(tallies) && tallies[i].n; i++)
		printf("%10" PRIu64 " %7.3f %% %s\n", tallies[i].n,
		       100.0 * (double)tallies[i].n / (double)rows, tallies[i].name);
	for (i = 0; i < CFI_NOTE_MAX; i++)
		if (note[i])
			printf("%10" PRIu64 " note %s: %s\n", note[i], cfi_note_name(i),
			       cfi_note_text(i));
	return 0;
}

/* CPU time per raw row, and how far the heap grew above the final rows. */
static int tool_time(char **paths)
{
	for (; *paths; paths++) {
		struct file f;
		struct cfi c;
		u64 ns, best = UINT64_MAX;
		u32 i;

		if (!file_open(&f, *paths) || !f.section[0].data) {
			file_close(&f);
			continue;
		}
		for (i = 0; i < 5; i++) {
			ns = cpu_ns();
			if (file_compile(&f, 0, &c))
				best = MIN(best, cpu_ns() - ns);
			if (i < 4)
				cfi_fini(&c);
		}
		printf("%-55s %9" PRIu64 " raw %9u rows %8.3f ms %6.1f ns/raw row %8.2f MB rows\n",
		       *paths, c.raw_rows, c.nrows, (double)best / 1e6,
		       (double)best / (double)MAX(c.raw_rows, 1ull),
		       (double)c.nrows * sizeof(c.rows[0]) / 1e6);
		cfi_fini(&c);
		file_close(&f);
	}
	return 0;
}

static int tool(int argc, char **argv)
{
	if (argc > 2 && (!strcmp(argv[1], "--readelf") || !strcmp(argv[1], "--libdw")))
		return tool_compare(argv[1], argv + 2);
	if (argc > 2 && !strcmp(argv[1], "--rows"))
		return tool_rows(argv + 2);
	if (argc > 2 && !strcmp(argv[1], "--census"))
		return tool_census(argv + 2);
	if (argc > 2 && !strcmp(argv[1], "--time"))
		return tool_time(argv + 2);
	fprintf(stderr, "usage: %s [--readelf|--libdw|--rows|--census|--time FILE...]\n", argv[0]);
	return 2;
}

static int run_table(void)
{
	struct CMUnitTest t[ARRAY_SIZE(op_cases) + ARRAY_SIZE(cie_cases)] = { 0 };
	size_t i, n = 0;

	for (i = 0; i < ARRAY_SIZE(op_cases); i++, n++)
		t[n] = (struct CMUnitTest){ .name = op_cases[i].name,
					    .test_func = one_op,
					    .initial_state = (void *)&op_cases[i] };
	for (i = 0; i < ARRAY_SIZE(cie_cases); i++, n++)
		t[n] = (struct CMUnitTest){ .name = cie_cases[i].name,
					    .test_func = one_cie,
					    .initial_state = (void *)&cie_cases[i] };
	return cmocka_run_group_tests_name("cfi_forms", t, NULL, NULL);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(signal_frame_of_glibc_is_recognised),
		cmocka_unit_test(signal_frame_needs_its_augmentation),
		cmocka_unit_test(signal_frame_with_another_layout_keeps_its_rules),
		cmocka_unit_test(signal_frame_whose_sp_differs_from_the_cfa_is_refused),
		cmocka_unit_test(signal_frame_of_the_arm64_vdso_is_recognised),
		cmocka_unit_test(cie_augmentation_B_is_accepted_on_arm64),
		cmocka_unit_test(functions_come_out_sorted_with_gaps_between),
		cmocka_unit_test(functions_that_are_left_out_are_gaps),
		cmocka_unit_test(equal_neighbours_are_merged_across_functions),
		cmocka_unit_test(rbx_is_followed_where_a_frame_address_needs_it),
		cmocka_unit_test(rbx_is_not_followed_elsewhere),
		cmocka_unit_test(overlap_ends_at_the_next_start),
		cmocka_unit_test(duplicate_starts_the_first_sound_one_counts),
		cmocka_unit_test(bad_function_leaves_a_gap_and_the_others_stay),
		cmocka_unit_test(bad_cie_drops_its_functions_only),
		cmocka_unit_test(cie_that_moves_the_location_is_refused),
		cmocka_unit_test(fde_pointing_outside_before_or_at_itself),
		cmocka_unit_test(debug_frame_pointing_outside),
		cmocka_unit_test(length_0_in_the_middle_is_passed_over),
		cmocka_unit_test(length_0_ends_a_section_of_unknown_size),
		cmocka_unit_test(length_past_the_section_stops_it),
		cmocka_unit_test(length_of_reserved_value_stops_it),
		cmocka_unit_test(length_0xffffffff_with_64_bits_past_the_section_stops_it),
		cmocka_unit_test(length_of_64_bits_in_eh_frame),
		cmocka_unit_test(length_of_64_bits_in_debug_frame),
		cmocka_unit_test(entry_too_short_for_its_id),
		cmocka_unit_test(empty_and_tiny_sections),
		cmocka_unit_test(two_sections_fill_each_others_gaps),
		cmocka_unit_test(limit_of_functions_keeps_the_first_ones),
		cmocka_unit_test(limit_of_rows_ends_with_a_gap),
		cmocka_unit_test(limit_of_rules_degrades_to_no_rule),
		cmocka_unit_test(limit_of_instructions_stops_the_file),
		cmocka_unit_test(million_remember_states),
		cmocka_unit_test(alternating_cies_cannot_make_it_quadratic),
		cmocka_unit_test(readelf_agrees_on_the_dynamic_linker),
		cmocka_unit_test(readelf_agrees_on_libc),
		cmocka_unit_test(readelf_agrees_on_this_binary),
		cmocka_unit_test(libdw_agrees_on_the_dynamic_linker),
		cmocka_unit_test(libdw_agrees_on_libc),
		cmocka_unit_test(libdw_agrees_on_libcrypto),
	};

	if (argc > 1)
		return tool(argc, argv);
	return run_table() + cmocka_run_group_tests_name("cfi", tests, NULL, NULL);
}
