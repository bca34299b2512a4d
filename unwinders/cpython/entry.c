// SPDX-License-Identifier: Apache-2.0
/*
 * 3.11 and 3.12: the first instructions of the eval function publish a structure on its stack
 * (tstate->cframe = &cframe) and fill in cframe.current_frame some instructions later; in between
 * the list begins with whatever was on the stack before. Which instructions these are is read off
 * the function: where the structure's address is computed, stored into the thread's state, and where
 * the first store to its field is. Where that cannot be read, ENTRY_LEN bytes are taken for it.
 */
#include "cpython.h"

#define ENTRY_LEN 256

/* A place in memory as an instruction names it: [base + disp], in a 64-bit register or from one. */
struct operand {
	uint8_t reg, base; /* base: r/m and index bits as they stand */
	int32_t disp;
	uint8_t len; /* bytes of the instruction, 0: another form */
};

/* --- x86-64 ----------------------------------------------------------------------------------- */

/* ModRM and what follows it, of a plain base with displacement. */
static bool x86_operand(const uint8_t *p, size_t n, uint8_t rex, struct operand *ret)
{
	size_t at = 1;
	uint8_t mod, rm;

	if (n < 7)
		return false;
	mod = p[0] >> 6;
	rm = p[0] & 7;
	if (mod == 3 || mod == 0)
		return false;
	if (rm == 4 && p[at++] != 0x24)
		return false;
	ret->reg = (uint8_t)((p[0] >> 3 & 7) | (rex & 4) << 1);
	ret->base = (uint8_t)(rm | (rex & 1) << 3);
	if (mod == 1)
		ret->disp = (int8_t)p[at];
	else
		memcpy(&ret->disp, p + at, sizeof(ret->disp));
	ret->len = (uint8_t)(at + (mod == 1 ? 1 : 4));
	return true;
}

/* REX.W, opcode and operand. */
static bool x86_wide(const uint8_t *p, size_t n, uint8_t opcode, struct operand *ret)
{
	if (n < 9 || (p[0] & 0xf8) != 0x48 || p[1] != opcode ||
	    !x86_operand(p + 2, n - 2, p[0], ret))
		return false;
	ret->len += 2;
	return true;
}

/* A store of eight bytes or sixteen. */
static bool x86_store(const uint8_t *p, size_t n, struct operand *ret)
{
	uint8_t rex = 0;

	if (x86_wide(p, n, 0x89, ret))
		return true;
	if (n && (p[0] & 0xf0) == 0x40) {
		rex = *p++;
		n--;
	}
	return n >= 9 && p[0] == 0x0f && (p[1] == 0x11 || p[1] == 0x29) &&
	       x86_operand(p + 2, n - 2, rex, ret);
}

/* Where the address that `publish` stores was computed: the last lea into its register. */
static bool x86_computed(const uint8_t *code, size_t upto, uint8_t reg, struct operand *ret)
{
	struct operand lea;
	bool found = false;

	for (size_t i = 0; i < upto; i++) {
		if (!x86_wide(code + i, upto - i + 9, 0x8d, &lea) || lea.reg != reg)
			continue;
		*ret = lea;
		found = true;
	}
	return found;
}

static bool x86_window(const struct layout *l, const uint8_t *code, size_t n, uint32_t *lo,
		       uint32_t *hi)
{
	struct operand publish, place, store;

	for (size_t i = 0; i + 16 < n; i++) {
		/* The thread's state is the first argument, still in its register (rdi). */
		if (!x86_wide(code + i, n - i, 0x89, &publish) || publish.base != 7 ||
		    publish.disp != l->thread_frame || !x86_computed(code, i, publish.reg, &place))
			continue;
		for (size_t k = i + 4; k + 16 < n; k++) {
			if (!x86_store(code + k, n - k, &store) || store.base != place.base ||
			    store.disp != place.disp + l->cframe_frame)
				continue;
			*lo = (uint32_t)i;
			*hi = (uint32_t)k;
			return true;
		}
	}
	return false;
}

/* --- arm64 ------------------------------------------------------------------------------------ */

static uint32_t insn_at(const uint8_t *code, size_t i)
{
	uint32_t v;

	memcpy(&v, code + i, sizeof(v));
	return v;
}

/* add xD, xN, #imm */
static bool arm_add(uint32_t insn, struct operand *ret)
{
	*ret = (struct operand){ insn & 31, insn >> 5 & 31, (int32_t)(insn >> 10 & 0xfff), 4 };
	return insn >> 22 == 0x91000000u >> 22;
}

/* str xT, [xN, #imm]; stp xT, xU, [xN, #imm] */
static bool arm_store(uint32_t insn, struct operand *ret)
{
	*ret = (struct operand){ insn & 31, insn >> 5 & 31, (int32_t)(insn >> 10 & 0xfff) * 8, 4 };
	if (insn >> 22 == 0xf9000000u >> 22)
		return true;
	ret->disp = ((int32_t)(insn << 10) >> 25) * 8;
	return insn >> 22 == 0xa9000000u >> 22;
}

static bool arm_window(const struct layout *l, const uint8_t *code, size_t n, uint32_t *lo,
		       uint32_t *hi)
{
	struct operand add, place = { 0 }, publish, store;

	for (size_t i = 0; i + 4 <= n; i += 4) {
		if (!arm_store(insn_at(code, i), &publish) || publish.disp != l->thread_frame ||
		    publish.base == 31)
			continue;
		for (size_t k = 0; k < i; k += 4)
			if (arm_add(insn_at(code, k), &add) && add.reg == publish.reg)
				place = add;
		for (size_t k = i + 4; place.len && k + 4 <= n; k += 4) {
			if (!arm_store(insn_at(code, k), &store) || store.base != place.base ||
			    store.disp != place.disp + l->cframe_frame)
				continue;
			*lo = (uint32_t)i;
			*hi = (uint32_t)k;
			return true;
		}
	}
	return false;
}

/* ---------------------------------------------------------------------------------------------- */

void entry_find(struct target *t, struct cpython *s)
{
	uint8_t code[ENTRY_LEN + 16] = { 0 };
	uint64_t at = s->loops[0].lo;
	uint32_t lo, hi;
	bool found;

	s->entry = (struct code_range){ 0 };
	if (s->l.cframe_frame < 0 || !s->nloops)
		return;
	s->entry = (struct code_range){ at, at + ENTRY_LEN };
	if (target_read(t, at, code, ENTRY_LEN))
		return;
	found = target_arch(t) == TARGET_ARM64 ? arm_window(&s->l, code, ENTRY_LEN, &lo, &hi)
					       : x86_window(&s->l, code, ENTRY_LEN, &lo, &hi);
	/* Both instructions have taken effect when the next one is reached. */
	if (found)
		s->entry = (struct code_range){ at + lo + 1, at + hi + 1 };
}
