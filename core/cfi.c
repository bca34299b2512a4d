// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. The CFI compiler, see cfi.h. In come the bytes of .eh_frame and .debug_frame, out
 * go sorted rows and a dictionary of distinct rules. Two passes: cfi_add() lists {start, offset}
 * of every function, cfi_run() sorts the list and interprets function by function, so that rows
 * come out in order and no row is moved again. Followed are stack pointer,
 * frame pointer and return address, and rbx in the few files that need it.
 *
 * Census (x86-64 unless named; rows after merging, gaps are rows of kind NONE):
 *
 *	file (Debian 12)          raw rows      rows  functions  distinct rules
 *	ld.so 2.36                   2,187     2,422        293             113  (94 without rbx)
 *	libc 2.36                   25,212    28,275      3,713             303
 *	libLLVM 14                 860,973   948,864     94,994             585
 *	libjvm 17                  197,070   191,042     43,666               8
 *	node 20                    396,409   372,210     75,922             110
 *	Go hello (.debug_frame)      7,868     7,956      1,416              86
 *	Rust hello                   2,679     2,678        528              19
 *	1,730 files of the system  14.02 M   15.21 M                max    884
 *	29 arm64 libraries         103,863    74,159                max    277
 *	kind                 1,730 files    rows   |  29 arm64 libraries        rows
 *	CFA rsp + n             89.403 %  13.6 M   |  CFA sp + n             81.05 %
 *	CFA rbp + n              1.087 %    165 k  |  CFA x29 + n             2.58 %
 *	no rule (gap)            9.326 %   1.42 M  |  no rule (gap)          16.36 %
 *	CFA r10 + n              0.083 %   12,565  |  CFA other register          6
 *	CFA *(rbp + n)           0.066 %   10,097  |
 *	CFA r13 + n              0.014 %    2,169  |
 *	CFA PLT                  0.011 %    1,705  |
 *	end of stack             0.005 %      710  |  end of stack                2
 *	CFA other register                    678  |
 *	CFA *(rsp + n) + m                    143  |
 *	CFA *(rsp + r*8 + n) + m                6  |
 *	signal frame                            3  |
 *	unsupported (row_sp: longjmp, contexts) 7  |
 *	fp same / CFA + n / *(reg)   32.7 / 57.8 / 0.17 %   |  same 59.3, CFA 24.3 %
 *	ra CFA - 8 / register        90.7 % / 106 rows      |  x30 48.6, CFA 35.0 %
 *
 * CFA bases other than sp and fp occur in prologues of realigned frames and in leaf functions of
 * crypto code, where the registers of the sample itself do; the one that calls is rbx in ld.so
 * (see follows_bx), also in libtsan.
 */
#include "cfi.h"

#include <errno.h>
#include <string.h>

/* DWARF 5 section 7.24 (call frame instructions) and 7.7.1 (operators); GNU and ARM additions. */
enum {
	CFA_ADVANCE_LOC = 0x40, /* low six bits: operand */
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_MIPS_ADVANCE_LOC8 = 0x1d,
	CFA_AARCH64_NEGATE_RA_STATE_WITH_PC = 0x2c,
	CFA_AARCH64_NEGATE_RA_STATE = 0x2d,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

enum {
	OP_DEREF = 0x06,
	OP_CONST1U = 0x08,
	OP_CONST1S = 0x09,
	OP_CONST2U = 0x0a,
	OP_CONST2S = 0x0b,
	OP_CONST4U = 0x0c,
	OP_CONST4S = 0x0d,
	OP_CONST8U = 0x0e,
	OP_CONST8S = 0x0f,
	OP_CONSTU = 0x10,
	OP_CONSTS = 0x11,
	OP_MINUS = 0x1c,
	OP_MUL = 0x1e,
	OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23,
	OP_SHL = 0x24,
	OP_LIT0 = 0x30,
	OP_LIT31 = 0x4f,
	OP_BREG0 = 0x70,
	OP_BREG31 = 0x8f,
	OP_BREGX = 0x92,
	OP_NOP = 0x96,
};

/* Pointer encodings (DW_EH_PE_*): low four bits format, next three base, top bit indirect. */
enum {
	PE_ABSPTR = 0x00,
	PE_ULEB128 = 0x01,
	PE_UDATA2 = 0x02,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SLEB128 = 0x09,
	PE_SDATA2 = 0x0a,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_FORMAT = 0x0f,
	PE_PCREL = 0x10,
	PE_BASE = 0x70,
	PE_ALIGNED = 0x50,
	PE_OMIT = 0xff,
};

#define STACK_DEPTH      16 /* remember_state */
#define EXPR_DEPTH       8
#define AUGMENTATION_MAX 8
#define SECTION_MAX      INT32_MAX
#define CIE_CACHE        64
#define NO_REG           0xff
#define CFA_REG          0xfe /* the CFA as base of an expression */

struct arch {
	u8 sp, fp;
	u8 base;     /* callee-saved register that a CFA may be based on, see cfi.follows_bx */
	u8 ra;       /* highest possible return address column */
	u8 reg_last; /* highest register that may be a base */
	bool link;   /* the return address may still be in its register */
};

static const struct arch archs[] = {
	[CFI_X86_64] = { .sp = 7, .fp = 6, .base = 3, .ra = 16, .reg_last = 15 },
	[CFI_ARM64] = { .sp = 31,
			.fp = 29,
			.base = NO_REG,
			.ra = 30,
			.reg_last = 31,
			.link = true },
};

/* A function found by cfi_add(): start, relative to base; section << 31 | offset of its entry. */
struct cfi_fde {
	u32 start;
	u32 where;
};

/* Cursor over foreign bytes. The first error sticks; reads after it give 0. */
struct reader {
	const u8 *p, *end;
	enum cfi_note bad;
};

enum how { DEFAULT, UNDEFINED, SAME, AT_CFA, VAL_CFA, IN_REG, DEREF, BAD };

struct reg_rule {
	u8 how;
	u8 reg;
	s64 off;
};

enum { SLOT_SP, SLOT_FP, SLOT_RA, SLOT_BX, SLOTS };

/* One row of the virtual table that the instructions build. */
struct state {
	u8 cfa; /* enum cfi_cfa */
	u8 reg, index, scale;
	s64 off, add;
	/* Last register and offset: what def_cfa_register and def_cfa_offset keep. */
	u64 def_reg;
	s64 def_off;
	struct reg_rule slot[SLOTS];
	bool ra_signed;
};

struct cie {
	u64 offset;
	const struct cfi_section *section; /* NULL: empty cache entry */
	enum cfi_note bad;
	u8 ra;
	u8 encoding; /* of addresses in its FDEs */
	bool sized;  /* 'z': FDEs have augmentation data to skip */
	bool signal;
	u64 code_align;
	s64 data_align;
	struct state initial;
};

/* One entry of a section. */
struct entry {
	struct reader r; /* what follows the id */
	u64 id_at, next;
	u64 id;
	bool is_cie;
};

/* Interpretation of one function, or of a CIE's instructions. */
struct work {
	struct cfi *c;
	const struct arch *arch;
	const struct cfi_section *section;
	const struct cie *cie;
	u64 loc, end; /* relative to base */
	bool in_cie;
	u32 depth;
	struct state now;
	struct state stack[STACK_DEPTH];
	struct cie cache[CIE_CACHE];
};

const char *cfi_note_name(enum cfi_note note)
{
	static const char *const names[] = {
#define X(name, text) #name,
		CFI_NOTE_LIST(X)
#undef X
	};

	return names[note];
}

const char *cfi_note_text(enum cfi_note note)
{
	static const char *const texts[] = {
#define X(name, text) text,
		CFI_NOTE_LIST(X)
#undef X
	};

	return texts[note];
}

/* --- reading bytes ------------------------------------------------------------------------ */

static size_t left(const struct reader *r)
{
	return (size_t)(r->end - r->p);
}

static void fail(struct reader *r, enum cfi_note note)
{
	if (!r->bad)
		r->bad = note;
	r->p = r->end;
}

static u64 fixed(struct reader *r, size_t n)
{
	u64 v = 0;

	/* Both machines are little endian. */
	if (left(r) < n) {
		fail(r, CFI_NOTE_fde_broken);
		return 0;
	}
	memcpy(&v, r->p, n);
	r->p += n;
	return v;
}

static u64 leb(struct reader *r, bool is_signed)
{
	u64 v = 0;
	u32 shift;

	/* Ten bytes hold 70 bits; of the tenth only what still fits may be set. */
	for (shift = 0; shift < 70; shift += 7) {
		u8 b = (u8)fixed(r, 1);

		if (shift == 63 && b != 0 && b != (is_signed ? 0x7f : 1))
			break;
		v |= (u64)(b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if (is_signed && b & 0x40 && shift < 57)
			v |= ~0ull << (shift + 7);
		return v;
	}
	fail(r, CFI_NOTE_op_number);
	return 0;
}

static inline u64 uleb(struct reader *r)
{
	if (r->p < r->end && *r->p < 0x80)
		return *r->p++;
	return leb(r, false);
}

static s64 sleb(struct reader *r)
{
	return (s64)leb(r, true);
}

static struct reader block(struct reader *r)
{
	u64 n = uleb(r);
	struct reader b = { .p = r->p, .end = r->p };

	if (n > left(r)) {
		fail(r, CFI_NOTE_fde_broken);
		return b;
	}
	b.end = r->p += n;
	return b;
}

/* The number under an encoding's format; the base is not added. */
static u64 encoded(struct reader *r, u8 encoding)
{
	switch (encoding & PE_FORMAT) {
	case PE_ULEB128:
		return uleb(r);
	case PE_SLEB128:
		return (u64)sleb(r);
	case PE_UDATA2:
		return fixed(r, 2);
	case PE_SDATA2:
		return (u64)(s64)(s16)fixed(r, 2);
	case PE_UDATA4:
		return fixed(r, 4);
	case PE_SDATA4:
		return (u64)(s64)(s32)fixed(r, 4);
	default:
		return fixed(r, 8);
	}
}

static bool encoding_format_known(u8 encoding)
{
	u8 format = encoding & PE_FORMAT;

	return format <= PE_UDATA8 || (format >= PE_SLEB128 && format <= PE_SDATA8);
}

/* Resolvable from the section alone: absolute or relative to the field. */
static bool encoding_usable(u8 encoding)
{
	return encoding_format_known(encoding) && (encoding & ~PE_FORMAT & ~PE_PCREL) == 0;
}

static u64 encoded_address(const struct cfi_section *s, struct reader *r, u8 encoding)
{
	u64 field = s->vaddr + (u64)(r->p - s->data);
	u64 v = encoded(r, encoding);

	return encoding & PE_PCREL ? v + field : v;
}

/* --- entries ------------------------------------------------------------------------------ */

enum step { STEP_ENTRY, STEP_ZERO, STEP_END };

/* The entry at `pos`. STEP_END with *note set: the section is cut here. */
static enum step entry_at(const struct cfi_section *s, u64 pos, struct entry *e,
			  enum cfi_note *note)
{
	struct reader r = { .p = s->data + pos, .end = s->data + s->size };
	bool wide = false;
	u64 len;

	if (left(&r) < 4)
		return STEP_END;
	len = fixed(&r, 4);
	if (len == 0xffffffff) {
		wide = true;
		len = fixed(&r, 8);
	}
	e->next = (u64)(r.p - s->data) + len;
	if (len == 0 && !wide)
		return STEP_ZERO;
	if (r.bad || len > left(&r) || (!wide && len >= 0xfffffff0)) {
		*note = CFI_NOTE_section_cut;
		return STEP_END;
	}
	r.end = r.p + len;
	e->id_at = (u64)(r.p - s->data);
	/* In .eh_frame the id has four bytes even with a 64-bit length (LSB 5.0, chapter 10). */
	wide &= s->debug_frame;
	e->id = fixed(&r, wide ? 8 : 4);
	e->is_cie = !r.bad && e->id == (!s->debug_frame ? 0 : wide ? UINT64_MAX : UINT32_MAX);
	e->r = r;
	return STEP_ENTRY;
}

/* Offset of an FDE's CIE; out of range when there is none. */
static u64 cie_offset(const struct cfi_section *s, const struct entry *e)
{
	if (s->debug_frame)
		return e->id;
	return e->id <= e->id_at ? e->id_at - e->id : UINT64_MAX;
}

/* --- expressions, evaluated with unknown registers ---------------------------------------- */

/* base + index * scale + off; with deref: *(that) + add. */
struct sym {
	u8 base, index;
	u64 scale;
	bool deref;
	s64 off, add;
};

static struct sym sym_const(s64 v)
{
	return (struct sym){ .base = NO_REG, .index = NO_REG, .off = v };
}

static bool sym_is_const(const struct sym *s)
{
	return s->base == NO_REG && s->index == NO_REG && !s->deref;
}

static bool sym_plus(struct sym *a, struct sym b)
{
	if (a->deref || b.deref) {
		/* One constant may be added to what was loaded. */
		if (b.deref) {
			struct sym t = *a;

			*a = b;
			b = t;
		}
		return sym_is_const(&b) && !__builtin_add_overflow(a->add, b.off, &a->add);
	}
	if (__builtin_add_overflow(a->off, b.off, &a->off))
		return false;
	if (b.index != NO_REG) {
		if (a->index != NO_REG)
			return false;
		a->index = b.index;
		a->scale = b.scale;
	}
	if (b.base == NO_REG)
		return true;
	if (a->base == NO_REG) {
		a->base = b.base;
		return true;
	}
	if (a->index != NO_REG)
		return false;
	a->index = b.base;
	a->scale = 1;
	return true;
}

static bool sym_mul(struct sym *a, s64 k)
{
	if (a->deref || k < 0 || __builtin_mul_overflow(a->off, k, &a->off))
		return false;
	if (a->base != NO_REG) {
		if (a->index != NO_REG)
			return false;
		a->index = a->base;
		a->base = NO_REG;
		a->scale = 1;
	}
	return a->index == NO_REG || !__builtin_mul_overflow(a->scale, (u64)k, &a->scale);
}

static bool sym_binary(u8 op, struct sym *a, struct sym b)
{
	switch (op) {
	case OP_PLUS:
		return sym_plus(a, b);
	case OP_MINUS:
		if (!sym_is_const(&b) || b.off == INT64_MIN)
			return false;
		b.off = -b.off;
		return sym_plus(a, b);
	case OP_MUL:
		if (sym_is_const(a)) {
			s64 k = a->off;

			*a = b;
			return sym_mul(a, k);
		}
		return sym_is_const(&b) && sym_mul(a, b.off);
	default: /* OP_SHL */
		return sym_is_const(&b) && b.off >= 0 && b.off < 32 && sym_mul(a, 1ll << b.off);
	}
}

static bool sym_operand(const struct arch *arch, u8 op, struct reader *r, struct sym *ret)
{
	u64 reg;

	if (op >= OP_LIT0 && op <= OP_LIT31) {
		*ret = sym_const(op - OP_LIT0);
		return true;
	}
	if ((op >= OP_BREG0 && op <= OP_BREG31) || op == OP_BREGX) {
		reg = op == OP_BREGX ? uleb(r) : (u64)(op - OP_BREG0);
		*ret = sym_const(sleb(r));
		ret->base = (u8)reg;
		return reg <= arch->reg_last;
	}
	switch (op) {
	case OP_CONST1U:
		*ret = sym_const((u8)fixed(r, 1));
		return true;
	case OP_CONST1S:
		*ret = sym_const((int8_t)fixed(r, 1));
		return true;
	case OP_CONST2U:
		*ret = sym_const((u16)fixed(r, 2));
		return true;
	case OP_CONST2S:
		*ret = sym_const((s16)fixed(r, 2));
		return true;
	case OP_CONST4U:
		*ret = sym_const((u32)fixed(r, 4));
		return true;
	case OP_CONST4S:
		*ret = sym_const((s32)fixed(r, 4));
		return true;
	case OP_CONST8U:
	case OP_CONST8S:
		*ret = sym_const((s64)fixed(r, 8));
		return true;
	case OP_CONSTU:
		*ret = sym_const((s64)uleb(r));
		return true;
	case OP_CONSTS:
		*ret = sym_const(sleb(r));
		return true;
	default:
		return false;
	}
}

/* False: not expressible. The CFA is on the stack at first if with_cfa. */
static bool evaluate(struct work *w, struct reader r, bool with_cfa, struct sym *ret)
{
	struct sym stack[EXPR_DEPTH], s;
	u32 n = 0;

	if (with_cfa) {
		stack[n] = sym_const(0);
		stack[n++].base = CFA_REG;
	}
	while (r.p < r.end) {
		u8 op = *r.p++;

		/* run() finds the limit exceeded and says so. */
		if (++w->c->ops > w->c->limits.ops)
			return false;
		switch (op) {
		case OP_NOP:
			break;
		case OP_DEREF:
			if (!n || stack[n - 1].deref || stack[n - 1].base == NO_REG)
				return false;
			stack[n - 1].deref = true;
			break;
		case OP_PLUS_UCONST:
			s = sym_const((s64)uleb(&r));
			if (!n || s.off < 0 || !sym_plus(&stack[n - 1], s))
				return false;
			break;
		case OP_PLUS:
		case OP_MINUS:
		case OP_MUL:
		case OP_SHL:
			if (n < 2 || !sym_binary(op, &stack[n - 2], stack[n - 1]))
				return false;
			n--;
			break;
		default:
			if (n == EXPR_DEPTH || !sym_operand(w->arch, op, &r, &stack[n]))
				return false;
			n++;
		}
	}
	if (!n || r.bad)
		return false;
	*ret = stack[n - 1];
	return true;
}

/*
 * Lazy PLT stubs push a word in their second half. Linkers describe it as
 * rsp + 8 + (((rip & 15) >= lit) << 3), where lit depends on the kind of stub: 11, and 10 or 5 for
 * stubs with branch tracking (binutils, bfd/elf64-x86-64.c).
 */
static bool plt_expression(struct reader r, u8 *threshold)
{
	static const u8 head[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a };
	static const u8 tail[] = { 0x2a, 0x33, 0x24, 0x22 };

	if (left(&r) != sizeof(head) + 1 + sizeof(tail) || memcmp(r.p, head, sizeof(head)) ||
	    memcmp(r.p + sizeof(head) + 1, tail, sizeof(tail)))
		return false;
	*threshold = (u8)(r.p[sizeof(head)] - OP_LIT0);
	return *threshold <= 15;
}

static void cfa_expression(struct work *w, struct reader r)
{
	struct state *st = &w->now;
	struct sym s;
	u8 threshold;

	st->index = st->scale = 0;
	st->add = 0;
	if (w->arch == &archs[CFI_X86_64] && plt_expression(r, &threshold)) {
		st->cfa = CFI_CFA_PLT;
		st->reg = w->arch->sp;
		st->off = 8;
		st->add = threshold;
		return;
	}
	st->cfa = CFI_CFA_UNSUPPORTED;
	if (!evaluate(w, r, false, &s) || s.base == NO_REG)
		return;
	if (s.index != NO_REG) {
		if (!s.deref || !s.scale || s.scale > UINT8_MAX)
			return;
		st->index = s.index;
		st->scale = (u8)s.scale;
		st->cfa = CFI_CFA_SCALED;
	} else {
		st->cfa = s.deref ? CFI_CFA_DEREF : CFI_CFA_REG;
	}
	st->reg = s.base;
	st->off = s.off;
	st->add = s.add;
}

static struct reg_rule reg_expression(struct work *w, struct reader r, bool is_value)
{
	struct reg_rule bad = { .how = BAD };
	struct sym s;

	if (!evaluate(w, r, true, &s) || s.base == NO_REG || s.index != NO_REG)
		return bad;
	if (!is_value) {
		/* The register lies at the result. */
		if (s.deref)
			return bad;
		return (struct reg_rule){ s.base == CFA_REG ? AT_CFA : DEREF, s.base, s.off };
	}
	if (s.deref) {
		if (s.add)
			return bad;
		return (struct reg_rule){ s.base == CFA_REG ? AT_CFA : DEREF, s.base, s.off };
	}
	if (s.base == CFA_REG)
		return (struct reg_rule){ VAL_CFA, 0, s.off };
	return s.off ? bad : (struct reg_rule){ IN_REG, s.base, 0 };
}

/* --- rows --------------------------------------------------------------------------------- */

static bool fits_s32(s64 v)
{
	return v >= INT32_MIN && v <= INT32_MAX;
}

static bool is_deref(const struct reg_rule *r, u8 reg, s64 off)
{
	return r->how == DEREF && r->reg == reg && r->off == off;
}

static bool is_at_cfa(const struct reg_rule *r, s64 off)
{
	return r->how == AT_CFA && r->off == off;
}

/*
 * x86-64: how glibc describes its __restore_rt: ucontext at sp, gregs at 40, rbp at 120, rsp at
 * 160, rip at 168. arm64: a trampoline that describes the frame record at x29; that one lies behind
 * the signal frame and lacks the interrupted pc, which only the signal frame at sp has.
 */
static bool kernel_signal_frame(const struct work *w)
{
	const struct state *st = &w->now;
	const struct reg_rule *fp = &st->slot[SLOT_FP], *ra = &st->slot[SLOT_RA];

	if (w->arch == &archs[CFI_X86_64])
		return st->cfa == CFI_CFA_DEREF && st->reg == 7 && st->off == 160 && !st->add &&
		       is_deref(fp, 7, 120) && is_deref(ra, 7, 168);
	return st->cfa == CFI_CFA_REG && st->reg == 29 && st->off == 0 && is_at_cfa(fp, 0) &&
	       is_at_cfa(ra, 8);
}

/* The caller's stack pointer is the CFA, as all rules assume. */
static bool sp_is_cfa(const struct state *st)
{
	const struct reg_rule *sp = &st->slot[SLOT_SP];

	switch (sp->how) {
	case DEFAULT:
		return true;
	case VAL_CFA:
		return sp->off == 0;
	case DEREF:
		return st->cfa == CFI_CFA_DEREF && st->add == 0 && is_deref(sp, st->reg, st->off);
	default:
		return false;
	}
}

static enum cfi_note rule_ra(const struct work *w, struct cfi_rule *rule)
{
	const struct reg_rule *ra = &w->now.slot[SLOT_RA];

	if (!fits_s32(ra->off))
		return CFI_NOTE_row_offset;
	rule->ra_off = (s32)ra->off;
	switch (ra->how) {
	case DEFAULT:
	case SAME:
		rule->ra = CFI_FROM_REG;
		rule->ra_reg = w->cie->ra;
		return w->arch->link ? CFI_NOTE_none : CFI_NOTE_row_ra;
	case AT_CFA:
		rule->ra = CFI_FROM_CFA;
		return CFI_NOTE_none;
	case IN_REG:
		rule->ra = CFI_FROM_REG;
		rule->ra_reg = ra->reg;
		return CFI_NOTE_none;
	case DEREF:
		rule->ra = CFI_FROM_DEREF;
		rule->ra_reg = ra->reg;
		return CFI_NOTE_none;
	default:
		return CFI_NOTE_row_ra;
	}
}

static void rule_fp(const struct work *w, struct cfi_rule *rule)
{
	const struct reg_rule *fp = &w->now.slot[SLOT_FP];

	rule->fp = CFI_FROM_LOST;
	switch (fp->how) {
	case DEFAULT:
	case SAME:
		rule->fp = CFI_FROM_SAME;
		return;
	case UNDEFINED:
		return;
	case IN_REG:
		rule->fp = fp->reg == w->arch->fp ? CFI_FROM_SAME : CFI_FROM_REG;
		rule->fp_reg = fp->reg == w->arch->fp ? 0 : fp->reg;
		return;
	case AT_CFA:
	case DEREF:
		if (!fits_s32(fp->off))
			break;
		rule->fp = fp->how == AT_CFA ? CFI_FROM_CFA : CFI_FROM_DEREF;
		rule->fp_reg = fp->how == AT_CFA ? 0 : fp->reg;
		rule->fp_off = (s32)fp->off;
		return;
	default:
		break;
	}
	rule->reason = CFI_NOTE_row_fp;
}

static void rule_bx(const struct work *w, struct cfi_rule *rule)
{
	const struct reg_rule *bx = &w->now.slot[SLOT_BX];

	if (bx->how == DEFAULT || bx->how == SAME) {
		rule->bx = CFI_FROM_SAME;
	} else if (bx->how == AT_CFA && fits_s32(bx->off)) {
		rule->bx = CFI_FROM_CFA;
		rule->bx_off = (s32)bx->off;
	}
}

static enum cfi_note rule_cfa(const struct work *w, struct cfi_rule *rule)
{
	const struct state *st = &w->now;

	if (st->cfa == CFI_CFA_UNSUPPORTED)
		return CFI_NOTE_row_cfa;
	if (!sp_is_cfa(st))
		return CFI_NOTE_row_sp;
	if (!fits_s32(st->off) || !fits_s32(st->add))
		return CFI_NOTE_row_offset;
	rule->cfa = st->cfa;
	rule->cfa_reg = st->reg;
	rule->cfa_index = st->index;
	rule->cfa_scale = st->scale;
	rule->cfa_off = (s32)st->off;
	rule->cfa_add = (s32)st->add;
	return CFI_NOTE_none;
}

static void rule_now(const struct work *w, struct cfi_rule *rule)
{
	enum cfi_note note;

	*rule = (struct cfi_rule){ 0 };
	if (w->now.slot[SLOT_RA].how == UNDEFINED) {
		rule->cfa = CFI_CFA_END;
		return;
	}
	if (w->cie->signal) {
		rule->flags |= CFI_RULE_SIGNAL_FRAME;
		if (kernel_signal_frame(w)) {
			rule->cfa = CFI_CFA_SIGNAL;
			return;
		}
	}
	if (w->now.ra_signed)
		rule->flags |= CFI_RULE_RA_SIGNED;
	note = rule_cfa(w, rule);
	if (!note)
		note = rule_ra(w, rule);
	if (note) {
		*rule = (struct cfi_rule){ .cfa = CFI_CFA_UNSUPPORTED, .reason = note };
		return;
	}
	rule_fp(w, rule);
	if (w->c->follows_bx)
		rule_bx(w, rule);
}

/* Index of a rule; 0 (no rule) when the dictionary is full. */
static int intern(struct cfi *c, const struct cfi_rule *rule, u32 *ret)
{
	u64 hash = hash_bytes(rule, sizeof(*rule));
	u32 pos, i;
	int err;

	for (pos = htab_start(&c->by_rule, hash); htab_next(&c->by_rule, hash, &pos, &i);) {
		if (!memcmp(&c->rules[i], rule, sizeof(*rule))) {
			*ret = i;
			return 0;
		}
	}
	if (c->nrules >= c->limits.rules) {
		c->note[CFI_NOTE_limit_rules]++;
		*ret = 0;
		return 0;
	}
	err = VEC_RESERVE(c->rules, c->rules_cap, c->nrules + 1, c->limits.rules);
	if (!err)
		err = htab_insert(&c->by_rule, hash, c->nrules);
	if (err)
		return err;
	c->rules[c->nrules] = *rule;
	*ret = c->nrules++;
	return 0;
}

/* Grows by a quarter, not by doubling: rows are nearly all of the memory. */
static int rows_reserve(struct cfi *c)
{
	u32 cap = (u32)MIN((u64)c->rows_cap + c->rows_cap / 4 + 64, c->limits.rows);
	struct cfi_row *rows;

	if (c->nrows < c->rows_cap)
		return 0;
	rows = realloc(c->rows, cap * sizeof(rows[0]));
	if (!rows)
		return -ENOMEM;
	c->rows = rows;
	c->rows_cap = cap;
	return 0;
}

static int push_row(struct cfi *c, u64 pc, u32 rule)
{
	int err;

	if (c->nrows ? c->rows[c->nrows - 1].rule == rule : !rule)
		return 0;
	/* The last slot is kept for the closing row. */
	if (c->nrows + 1 >= c->limits.rows)
		return CFI_NOTE_limit_rows;
	err = rows_reserve(c);
	if (err)
		return err;
	c->rows[c->nrows++] = (struct cfi_row){ (u32)pc, rule };
	return 0;
}

/* Returns 0, an enum cfi_note that ends the function, or -ENOMEM; so do all below. */
static int emit(struct work *w)
{
	struct cfi *c = w->c;
	struct cfi_rule rule;
	u32 i;
	int err;

	/* Rows that merge away cost time as well. */
	if (c->raw_rows >= c->limits.rows)
		return CFI_NOTE_limit_rows;
	c->raw_rows++;
	rule_now(w, &rule);
	if (rule.reason)
		c->note[rule.reason]++;
	if (c->nrows) {
		i = c->rows[c->nrows - 1].rule;
		if (!memcmp(&c->rules[i], &rule, sizeof(rule)))
			return 0;
	}
	err = intern(c, &rule, &i);
	return err ? err : push_row(c, w->loc, i);
}

/* --- instructions ------------------------------------------------------------------------- */

static int advance_to(struct work *w, u64 loc)
{
	int err;

	if (loc == w->loc)
		return 0;
	if (w->in_cie || loc < w->loc)
		return CFI_NOTE_op_advance;
	err = emit(w);
	w->loc = loc;
	return err;
}

static int advance(struct work *w, u64 delta)
{
	if (__builtin_mul_overflow(delta, w->cie->code_align, &delta) ||
	    __builtin_add_overflow(delta, w->loc, &delta))
		return CFI_NOTE_op_advance;
	return advance_to(w, delta);
}

static int set_loc(struct work *w, struct reader *r)
{
	u64 to = encoded_address(w->section, r, w->cie->encoding);

	if (r->bad || to < w->c->base)
		return CFI_NOTE_op_advance;
	return advance_to(w, to - w->c->base);
}

/* Which of the followed registers this is, or -1. */
static inline int slot_of(const struct work *w, u64 reg)
{
	return reg == w->arch->fp     ? SLOT_FP
	       : reg == w->cie->ra    ? SLOT_RA
	       : reg == w->arch->sp   ? SLOT_SP
	       : reg == w->arch->base ? SLOT_BX
				      : -1;
}

static void set_reg(struct work *w, u64 reg, struct reg_rule rule)
{
	int slot = slot_of(w, reg);

	if (slot >= 0)
		w->now.slot[slot] = rule;
}

static void set_reg_offset(struct work *w, u64 reg, u8 how, s64 factored)
{
	struct reg_rule rule = { .how = how };

	if (slot_of(w, reg) < 0)
		return;
	if (__builtin_mul_overflow(factored, w->cie->data_align, &rule.off))
		rule = (struct reg_rule){ .how = BAD };
	set_reg(w, reg, rule);
}

/* Unsigned factored offsets over 2^63 are hostile; they become what is refused later. */
static s64 uleb_offset(struct reader *r)
{
	u64 v = uleb(r);

	return v > INT64_MAX ? INT64_MAX : (s64)v;
}

static void restore(struct work *w, u64 reg)
{
	int slot = slot_of(w, reg);

	if (slot >= 0)
		w->now.slot[slot] = w->cie->initial.slot[slot];
}

static void def_cfa(struct work *w, u64 reg, s64 off)
{
	struct state *st = &w->now;

	st->def_reg = reg;
	st->def_off = off;
	st->index = st->scale = 0;
	st->add = 0;
	st->off = off;
	st->reg = (u8)reg;
	st->cfa = reg <= w->arch->reg_last ? CFI_CFA_REG : CFI_CFA_UNSUPPORTED;
}

static s64 sf_offset(struct work *w, struct reader *r)
{
	s64 v;

	return __builtin_mul_overflow(sleb(r), w->cie->data_align, &v) ? INT64_MAX : v;
}

static int remember(struct work *w)
{
	if (w->depth == STACK_DEPTH)
		return CFI_NOTE_op_stack;
	w->stack[w->depth++] = w->now;
	return 0;
}

static int restore_state(struct work *w)
{
	if (!w->depth)
		return CFI_NOTE_op_stack;
	w->now = w->stack[--w->depth];
	return 0;
}

static int negate_ra_state(struct work *w)
{
	/* The number means a register window on SPARC, and nothing on x86-64. */
	if (w->arch != &archs[CFI_ARM64])
		return CFI_NOTE_op_unknown;
	w->now.ra_signed ^= 1;
	return 0;
}

static int cfa_instruction(struct work *w, u8 op, struct reader *r)
{
	u64 reg;

	switch (op) {
	case CFA_DEF_CFA:
		reg = uleb(r);
		def_cfa(w, reg, uleb_offset(r));
		return 0;
	case CFA_DEF_CFA_SF:
		reg = uleb(r);
		def_cfa(w, reg, sf_offset(w, r));
		return 0;
	case CFA_DEF_CFA_REGISTER:
		def_cfa(w, uleb(r), w->now.def_off);
		return 0;
	case CFA_DEF_CFA_OFFSET:
		def_cfa(w, w->now.def_reg, uleb_offset(r));
		return 0;
	case CFA_DEF_CFA_OFFSET_SF:
		def_cfa(w, w->now.def_reg, sf_offset(w, r));
		return 0;
	case CFA_DEF_CFA_EXPRESSION:
		cfa_expression(w, block(r));
		return 0;
	default:
		return CFI_NOTE_op_unknown;
	}
}

static void in_register(struct work *w, struct reader *r)
{
	u64 reg = uleb(r), other = uleb(r);
	bool known = other <= w->arch->reg_last;

	set_reg(w, reg, (struct reg_rule){ known ? IN_REG : BAD, known ? (u8)other : 0, 0 });
}

static int reg_instruction(struct work *w, u8 op, struct reader *r)
{
	u64 reg;

	switch (op) {
	case CFA_OFFSET_EXTENDED:
	case CFA_VAL_OFFSET:
		reg = uleb(r);
		set_reg_offset(w, reg, op == CFA_VAL_OFFSET ? VAL_CFA : AT_CFA, uleb_offset(r));
		return 0;
	case CFA_OFFSET_EXTENDED_SF:
	case CFA_VAL_OFFSET_SF:
		reg = uleb(r);
		set_reg_offset(w, reg, op == CFA_VAL_OFFSET_SF ? VAL_CFA : AT_CFA, sleb(r));
		return 0;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		reg = uleb(r);
		set_reg_offset(w, reg, AT_CFA, -uleb_offset(r));
		return 0;
	case CFA_RESTORE_EXTENDED:
		restore(w, uleb(r));
		return 0;
	case CFA_UNDEFINED:
		set_reg(w, uleb(r), (struct reg_rule){ .how = UNDEFINED });
		return 0;
	case CFA_SAME_VALUE:
		set_reg(w, uleb(r), (struct reg_rule){ .how = SAME });
		return 0;
	case CFA_REGISTER:
		in_register(w, r);
		return 0;
	case CFA_EXPRESSION:
	case CFA_VAL_EXPRESSION:
		reg = uleb(r);
		set_reg(w, reg, reg_expression(w, block(r), op == CFA_VAL_EXPRESSION));
		return 0;
	default:
		return cfa_instruction(w, op, r);
	}
}

static int instruction(struct work *w, u8 op, struct reader *r)
{
	switch (op) {
	case CFA_NOP:
		return 0;
	case CFA_SET_LOC:
		return set_loc(w, r);
	case CFA_ADVANCE_LOC1:
		return advance(w, fixed(r, 1));
	case CFA_ADVANCE_LOC2:
		return advance(w, fixed(r, 2));
	case CFA_ADVANCE_LOC4:
		return advance(w, fixed(r, 4));
	case CFA_MIPS_ADVANCE_LOC8:
		return advance(w, fixed(r, 8));
	case CFA_REMEMBER_STATE:
		return remember(w);
	case CFA_RESTORE_STATE:
		return restore_state(w);
	case CFA_AARCH64_NEGATE_RA_STATE:
	case CFA_AARCH64_NEGATE_RA_STATE_WITH_PC:
		return negate_ra_state(w);
	case CFA_GNU_ARGS_SIZE:
		uleb(r);
		return 0;
	default:
		return reg_instruction(w, op, r);
	}
}

/* Bounded by the bytes of the entry; across entries by limits.ops. */
static int run(struct work *w, struct reader *r)
{
	while (r->p < r->end && w->loc < w->end) {
		u8 op = *r->p++, low = op & 0x3f;
		int err;

		if (++w->c->ops > w->c->limits.ops)
			return CFI_NOTE_limit_ops;
		switch (op & 0xc0) {
		case CFA_ADVANCE_LOC:
			err = advance(w, low);
			break;
		case CFA_OFFSET:
			set_reg_offset(w, low, AT_CFA, uleb_offset(r));
			err = 0;
			break;
		case CFA_RESTORE:
			restore(w, low);
			err = 0;
			break;
		default:
			err = instruction(w, op, r);
		}
		if (r->bad)
			return (int)r->bad;
		if (err)
			return err;
	}
	return 0;
}

/* --- CIEs --------------------------------------------------------------------------------- */

/* Fields between version and instructions; those that depend on the augmentation come later. */
static enum cfi_note cie_head(struct cie *cie, struct reader *r, const char **augmentation)
{
	u64 version = fixed(r, 1), ra;
	const u8 *nul = memchr(r->p, 0, MIN(left(r), (size_t)AUGMENTATION_MAX));

	if (r->bad)
		return CFI_NOTE_cie_broken;
	if (version != 1 && version != 3 && version != 4)
		return CFI_NOTE_cie_version;
	if (!nul)
		return CFI_NOTE_cie_augmentation;
	*augmentation = (const char *)r->p;
	r->p = nul + 1;
	if (version == 4 && fixed(r, 2) != 8) /* address size 8, segment selector size 0 */
		return CFI_NOTE_cie_version;
	if (!strcmp(*augmentation, "eh"))
		fixed(r, 8); /* pointer of an ancient compiler */
	cie->code_align = uleb(r);
	cie->data_align = sleb(r);
	ra = version == 1 ? fixed(r, 1) : uleb(r);
	if (r->bad)
		return CFI_NOTE_cie_broken;
	if (!cie->code_align)
		return CFI_NOTE_cie_factor;
	cie->ra = (u8)MIN(ra, (u64)NO_REG);
	return CFI_NOTE_none;
}

static enum cfi_note cie_augment(struct cie *cie, struct reader *r, const char *augmentation)
{
	struct reader data;
	u8 encoding;

	cie->encoding = PE_ABSPTR;
	if (!augmentation[0] || !strcmp(augmentation, "eh"))
		return CFI_NOTE_none;
	/* Without 'z' nobody knows how much to skip. */
	if (augmentation[0] != 'z')
		return CFI_NOTE_cie_augmentation;
	cie->sized = true;
	data = block(r);
	for (augmentation++; *augmentation; augmentation++) {
		switch (*augmentation) {
		case 'R':
			cie->encoding = (u8)fixed(&data, 1);
			break;
		case 'L':
			fixed(&data, 1);
			break;
		case 'P':
			encoding = (u8)fixed(&data, 1);
			if (encoding == PE_OMIT)
				break;
			if (!encoding_format_known(encoding) || (encoding & PE_BASE) == PE_ALIGNED)
				return CFI_NOTE_cie_encoding;
			encoded(&data, encoding);
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* signed with the B key */
		case 'G': /* tagged stack */
			break;
		default:
			return CFI_NOTE_cie_augmentation;
		}
	}
	if (r->bad || data.bad)
		return CFI_NOTE_cie_broken;
	return encoding_usable(cie->encoding) ? CFI_NOTE_none : CFI_NOTE_cie_encoding;
}

static bool ra_possible(const struct arch *arch, u8 reg)
{
	return reg <= arch->ra && reg != arch->sp && reg != arch->fp;
}

static int cie_read(struct work *w, u64 offset, struct cie *cie)
{
	const char *augmentation;
	enum cfi_note note = CFI_NOTE_none;
	struct entry e;
	int err;

	if (offset >= w->section->size || entry_at(w->section, offset, &e, &note) != STEP_ENTRY ||
	    !e.is_cie)
		return CFI_NOTE_cie_missing;
	note = cie_head(cie, &e.r, &augmentation);
	if (!note)
		note = cie_augment(cie, &e.r, augmentation);
	if (!note && !ra_possible(w->arch, cie->ra))
		note = CFI_NOTE_cie_register;
	if (note)
		return (int)note;
	w->cie = cie;
	w->now = (struct state){ .cfa = CFI_CFA_UNSUPPORTED, .def_reg = NO_REG };
	w->depth = 0;
	w->in_cie = true;
	w->loc = 0;
	w->end = 1;
	err = run(w, &e.r);
	w->in_cie = false;
	cie->initial = w->now;
	return err == 0 || err == CFI_NOTE_limit_ops ? err : CFI_NOTE_cie_broken;
}

/*
 * The CIE at an offset of w->section; check ->bad. A small direct-mapped cache: real files have a
 * handful of CIEs, and what a hostile one costs counts as operations.
 */
static const struct cie *cie_get(struct work *w, u64 offset)
{
	struct cie *cie = &w->cache[offset / 8 % CIE_CACHE];

	if (cie->section == w->section && cie->offset == offset)
		return cie;
	*cie = (struct cie){ .offset = offset, .section = w->section };
	cie->bad = (enum cfi_note)cie_read(w, offset, cie);
	return cie;
}

/* --- functions ---------------------------------------------------------------------------- */

/* An FDE's head; r is left at its instructions. */
static enum cfi_note fde_head(struct work *w, struct entry *e, u64 *start, u64 *len)
{
	const struct cie *cie;

	if (e->r.bad)
		return e->r.bad;
	cie = cie_get(w, cie_offset(w->section, e));
	if (cie->bad)
		return cie->bad;
	w->cie = cie;
	*start = encoded_address(w->section, &e->r, cie->encoding);
	*len = encoded(&e->r, cie->encoding & PE_FORMAT);
	if (cie->sized)
		block(&e->r);
	if (e->r.bad)
		return CFI_NOTE_fde_broken;
	if (*len == 0)
		return CFI_NOTE_fde_empty;
	if (*len > INT64_MAX || *start + *len < *start)
		return CFI_NOTE_fde_range;
	return CFI_NOTE_none;
}

static int list_fde(struct work *w, struct entry *e, u64 pos)
{
	struct cfi *c = w->c;
	u64 start, len;
	enum cfi_note note = fde_head(w, e, &start, &len);
	int err;

	c->nfdes++;
	if (note)
		return (int)note;
	if (start < c->base || start - c->base >= c->text_size)
		return CFI_NOTE_fde_outside;
	if (c->fdes_n >= c->limits.fdes)
		return CFI_NOTE_limit_fdes;
	err = VEC_RESERVE(c->fdes, c->fdes_cap, c->fdes_n + 1, c->limits.fdes);
	if (err)
		return err;
	c->fdes[c->fdes_n++] = (struct cfi_fde){ (u32)(start - c->base),
						 (u32)(w->section - c->section) << 31 | (u32)pos };
	return 0;
}

static int list_section(struct work *w)
{
	struct cfi *c = w->c;
	enum cfi_note cut = CFI_NOTE_none;
	struct entry e;
	u64 pos;

	for (pos = 0; pos < w->section->size; pos = e.next) {
		enum step step = entry_at(w->section, pos, &e, &cut);
		int err = 0;

		if (step == STEP_END || (step == STEP_ZERO && w->section->unsized))
			break;
		if (++c->ops > c->limits.ops)
			err = CFI_NOTE_limit_ops;
		else if (step == STEP_ENTRY && !e.is_cie)
			err = list_fde(w, &e, pos);
		if (err < 0)
			return err;
		c->note[err]++;
		if (err == CFI_NOTE_limit_ops)
			break;
	}
	c->note[cut]++;
	c->note[CFI_NOTE_none] = 0;
	return 0;
}

int cfi_add(struct cfi *c, const struct cfi_section *section)
{
	struct work w = { .c = c, .arch = &archs[c->arch] };

	if (c->nsections == CFI_SECTIONS_MAX)
		return -E2BIG;
	c->section[c->nsections] = *section;
	if (section->size > SECTION_MAX) {
		c->section[c->nsections].size = SECTION_MAX;
		c->note[CFI_NOTE_section_size]++;
	}
	w.section = &c->section[c->nsections++];
	return list_section(&w);
}

/* By start, three passes over 11 bits each; stable, so equal starts stay in order of offset. */
static int sort_fdes(struct cfi *c)
{
	_cleanup_free_ struct cfi_fde *other = malloc(MAX(c->fdes_n, 1u) * sizeof(other[0]));
	u32 at[1 << 11], pass, i, sum, n;

	if (!other)
		return -ENOMEM;
	for (pass = 0; pass < 33; pass += 11) {
		struct cfi_fde *t = other;

		memset(at, 0, sizeof(at));
		for (i = 0; i < c->fdes_n; i++)
			at[c->fdes[i].start >> pass & 0x7ff]++;
		for (i = sum = 0; i < ARRAY_SIZE(at); i++, sum += n) {
			n = at[i];
			at[i] = sum;
		}
		for (i = 0; i < c->fdes_n; i++)
			other[at[c->fdes[i].start >> pass & 0x7ff]++] = c->fdes[i];
		other = c->fdes;
		c->fdes = t;
	}
	c->fdes_cap = MAX(c->fdes_n, 1u);
	return 0;
}

/* Start of the next function that starts later than number i. */
static u64 next_start(const struct cfi *c, u32 i)
{
	u32 start = c->fdes[i].start;

	for (i++; i < c->fdes_n; i++)
		if (c->fdes[i].start > start)
			return c->fdes[i].start;
	return c->text_size;
}

/* Rows of one function. On failure none of them stay. */
static int run_fde(struct work *w, const struct cfi_fde *fde, u64 limit, u64 *covered)
{
	struct cfi *c = w->c;
	enum cfi_note note = CFI_NOTE_none;
	u32 nrows = c->nrows;
	u64 start, len;
	struct entry e;
	int err = 0;

	w->section = &c->section[fde->where >> 31];
	entry_at(w->section, fde->where & INT32_MAX, &e, &note);
	note = fde_head(w, &e, &start, &len);
	if (note)
		return (int)note;
	if (*covered < fde->start)
		err = push_row(c, *covered, 0);
	w->now = w->cie->initial;
	w->depth = 0;
	w->loc = fde->start;
	w->end = MIN(fde->start + len, limit);
	if (!err)
		err = run(w, &e.r);
	if (!err && w->loc < w->end)
		err = emit(w);
	if (err)
		c->nrows = nrows;
	else
		*covered = w->end;
	return err;
}

static int by_address(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static bool is_left_out(const struct cfi *c, const struct cfi_fde *fde)
{
	u64 start = c->base + fde->start;

	return c->nleft_out &&
	       bsearch(&start, c->left_out, c->nleft_out, sizeof(start), by_address);
}

static int run_all(struct work *w)
{
	struct cfi *c = w->c;
	u64 covered = 0, limit = 0;
	u32 i;
	int err;

	for (i = 0; i < c->fdes_n; i++) {
		if (c->fdes[i].start >= limit)
			limit = next_start(c, i);
		if (c->fdes[i].start < covered) {
			c->note[CFI_NOTE_fde_duplicate]++;
			continue;
		}
		if (is_left_out(c, &c->fdes[i])) {
			c->note[CFI_NOTE_fde_left_out]++;
			continue;
		}
		err = run_fde(w, &c->fdes[i], limit, &covered);
		if (err < 0)
			return err;
		if (err == CFI_NOTE_limit_ops || err == CFI_NOTE_limit_rows) {
			c->note[err] += err == CFI_NOTE_limit_rows ? c->fdes_n - i : 1;
			break;
		}
		c->note[err]++;
	}
	c->note[CFI_NOTE_none] = 0;
	if (!c->nrows || !c->rows[c->nrows - 1].rule)
		return 0;
	err = rows_reserve(c);
	if (!err)
		c->rows[c->nrows++] = (struct cfi_row){ (u32)covered, 0 };
	return err;
}

void cfi_leave_out(struct cfi *c, const u64 *starts, u32 n)
{
	c->left_out = starts;
	c->nleft_out = n;
}

static void forget_work(struct cfi *c)
{
	free(c->fdes);
	c->fdes = NULL;
	c->fdes_n = c->fdes_cap = 0;
	htab_fini(&c->by_rule);
	c->nsections = 0;
	cfi_leave_out(c, NULL, 0);
}

static bool needs_bx(const struct cfi *c)
{
	u32 i;

	for (i = 0; i < c->nrules; i++)
		if (c->rules[i].cfa >= CFI_CFA_REG && c->rules[i].cfa_reg == archs[c->arch].base)
			return true;
	return false;
}

/* All rows, from nothing. */
static int run_from_start(struct work *w)
{
	static const struct cfi_rule none;
	struct cfi *c = w->c;
	u32 i;
	int err;

	htab_clear(&c->by_rule);
	c->nrows = c->nrules = 0;
	c->raw_rows = 0;
	err = intern(c, &none, &i);
	return err ? err : run_all(w);
}

static void shrink_rows(struct cfi *c)
{
	struct cfi_row *rows;

	if (!c->nrows)
		return;
	rows = realloc(c->rows, c->nrows * sizeof(rows[0]));
	if (!rows)
		return;
	c->rows = rows;
	c->rows_cap = c->nrows;
}

int cfi_run(struct cfi *c)
{
	struct work w = { .c = c, .arch = &archs[c->arch] };
	u64 note[CFI_NOTE_MAX], ops = c->ops;
	int err;

	memcpy(note, c->note, sizeof(note));
	err = sort_fdes(c);
	if (!err)
		err = run_from_start(&w);
	if (!err && needs_bx(c)) {
		memcpy(c->note, note, sizeof(note));
		c->ops = ops;
		c->follows_bx = true;
		err = run_from_start(&w);
	}
	forget_work(c);
	if (!err)
		shrink_rows(c);
	return err;
}

void cfi_init(struct cfi *c, enum cfi_arch arch, u64 text_lo, u64 text_hi,
	      const struct cfi_limits *limits)
{
	u64 size = text_hi > text_lo ? text_hi - text_lo : 0;

	*c = (struct cfi){ .arch = arch, .base = text_lo, .limits = *limits };
	c->text_size = (u32)MIN(size, (u64)UINT32_MAX);
	c->limits.rules = MAX(c->limits.rules, 1u);
	c->limits.rows = MAX(c->limits.rows, 1u);
}

void cfi_fini(struct cfi *c)
{
	forget_work(c);
	free(c->rows);
	free(c->rules);
	*c = (struct cfi){ 0 };
}

const struct cfi_rule *cfi_find(const struct cfi *c, u64 pc)
{
	static const struct cfi_rule none;
	u32 lo = 0, hi = c->nrows;

	if (pc < c->base || pc - c->base > UINT32_MAX)
		return &none;
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (c->rows[mid].pc <= pc - c->base)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &c->rules[c->rows[lo - 1].rule] : &none;
}
