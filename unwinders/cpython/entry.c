// SPDX-License-Identifier: Apache-2.0
/*
 * 3.11 and 3.12: where the eval function leaves the list half made for some instructions. Which
 * these are depends on the compiler, so they are read off the function.
 *
 * At its entry it publishes a structure on its stack (tstate->cframe = &cframe) and fills in
 * cframe.current_frame later; in between the list begins with whatever was on the stack before. The
 * structure's place is where its address was computed; the first store to its field is the end.
 * Where that cannot be read, ENTRY_LEN bytes are taken for it.
 *
 * When it calls Python code it makes the new frame the innermost one (cframe.current_frame =
 * new_frame), and the compiler may put stores behind that one that stand before it in the source:
 * new_frame->previous, and the caller's prev_instr. Until then the frame leads to where an older one
 * at its place led, and the caller is at an older line.
 */
#include "cpython.h"

#define ENTRY_LEN 256
#define LATE_LEN  80          /* bytes behind a store within which others belong to it */
#define NEXT_LEN  16          /* the next instruction or two */
#define LOOP_MAX  (256 << 10) /* bytes of the function that are looked at */
#define CHUNK     4096

/* A place in memory as an instruction names it: [base + disp], in a 64-bit register or from one. */
struct operand {
	uint8_t reg, base; /* base: r/m and index bits as they stand */
	int32_t disp;
	uint8_t len;   /* bytes of the instruction, 0: another form */
	uint8_t bytes; /* stored */
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

	ret->bytes = 8;
	if (x86_wide(p, n, 0x89, ret))
		return true;
	ret->bytes = 16;
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
	struct operand lea = { 0 };
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
		       uint32_t *hi, struct operand *ret_place)
{
	struct operand publish = { 0 }, place, store = { 0 };

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
			*ret_place = place;
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
	*ret = (struct operand){ insn & 31, insn >> 5 & 31, (int32_t)(insn >> 10 & 0xfff), 4, 0 };
	return insn >> 22 == 0x91000000u >> 22;
}

/* str xT, [xN, #imm]; stp xT, xU, [xN, #imm] */
static bool arm_store(uint32_t insn, struct operand *ret)
{
	*ret = (struct operand){ insn & 31, insn >> 5 & 31, (int32_t)(insn >> 10 & 0xfff) * 8, 4,
				 8 };
	if (insn >> 22 == 0xf9000000u >> 22)
		return true;
	ret->bytes = 16;
	ret->disp = ((int32_t)(insn << 10) >> 25) * 8;
	return insn >> 22 == 0xa9000000u >> 22;
}

static bool arm_window(const struct layout *l, const uint8_t *code, size_t n, uint32_t *lo,
		       uint32_t *hi, struct operand *ret_place)
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
			*ret_place = place;
			return true;
		}
	}
	return false;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* What is looked at, and for what. */
struct loop_search {
	struct cpython *s;
	struct operand place; /* of cframe */
	bool arm;
};

static bool store_at(const struct loop_search *f, const uint8_t *p, size_t n, struct operand *ret)
{
	if (f->arm)
		return n >= 4 && arm_store(insn_at(p, 0), ret);
	return x86_store(p, n, ret);
}

static bool covers(const struct operand *store, int32_t field)
{
	return store->disp <= field && field < store->disp + store->bytes;
}

/* A frame is made the innermost one here: it is in a register. */
static bool is_publish(const struct loop_search *f, const struct operand *store)
{
	return store->bytes == 8 && store->base == f->place.base &&
	       store->disp == f->place.disp + f->s->l.cframe_frame;
}

/* Stores that should have been before that one: the new frame's link or code, */
static bool is_late_link(const struct loop_search *f, const struct operand *publish,
			 const struct operand *store)
{
	return store->base == publish->reg &&
	       (covers(store, f->s->l.frame_previous) || covers(store, f->s->l.frame_code));
}

/* and its caller's place, which every instruction of Python stores: another one's is farther off. */
static bool is_late_place(const struct loop_search *f, const struct operand *publish,
			  const struct operand *store)
{
	return store->base != publish->reg && store->base != f->place.base &&
	       covers(store, f->s->l.frame_instr);
}

/* More of them than there is room for are taken for one, with what lies between. */
static void add_half(struct cpython *s, uint64_t lo, uint64_t hi)
{
	if (s->nhalf < HALF_MAX)
		s->half[s->nhalf++] = (struct code_range){ lo, hi };
	else
		s->half[HALF_MAX - 1].hi = hi;
}

/* Of the stores that begin in the first n bytes of code, which is at `at`; more is behind them. */
static void find_half(struct loop_search *f, const uint8_t *code, size_t n, size_t len, uint64_t at)
{
	size_t step = f->arm ? 4 : 1, i, k, last;
	struct operand publish = { 0 }, store = { 0 };

	for (i = 0; i < n; i += step) {
		if (!store_at(f, code + i, len - i, &publish) || !is_publish(f, &publish))
			continue;
		last = i;
		for (k = i + publish.len; k < i + LATE_LEN && k < len; k += step)
			if (store_at(f, code + k, len - k, &store) &&
			    (is_late_link(f, &publish, &store) ||
			     (k <= last + NEXT_LEN && is_late_place(f, &publish, &store))))
				last = k;
		if (last != i)
			add_half(f->s, at + i + 1, at + last + 1);
	}
}

static void search_loop(struct target *t, struct loop_search *f, const struct code_range *loop)
{
	uint8_t code[CHUNK + LATE_LEN + 16];
	uint64_t end = loop->hi - loop->lo < LOOP_MAX ? loop->hi : loop->lo + LOOP_MAX;

	for (uint64_t at = loop->lo; at < end; at += CHUNK) {
		size_t len = end - at < sizeof(code) ? end - at : sizeof(code);

		if (target_read(t, at, code, len))
			return;
		find_half(f, code, len < CHUNK ? len : CHUNK, len, at);
	}
}

void entry_find(struct target *t, struct cpython *s)
{
	struct loop_search f = { .s = s, .arm = target_arch(t) == TARGET_ARM64 };
	uint8_t code[ENTRY_LEN + 16] = { 0 };
	uint64_t at = s->loops[0].lo;
	uint32_t lo, hi, i;

	s->nhalf = 0;
	if (s->l.cframe_frame < 0 || !s->nloops)
		return;
	if (target_read(t, at, code, ENTRY_LEN) ||
	    !(f.arm ? arm_window : x86_window)(&s->l, code, ENTRY_LEN, &lo, &hi, &f.place)) {
		add_half(s, at, at + ENTRY_LEN);
		return;
	}
	/* Both instructions have taken effect when the next one is reached. */
	add_half(s, at + lo + 1, at + hi + 1);
	for (i = 0; i < s->nloops; i++)
		search_loop(t, &f, &s->loops[i]);
}
