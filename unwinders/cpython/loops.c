// SPDX-License-Identifier: Apache-2.0
/*
 * The code that runs the eval loop: _PyEval_EvalFrameDefault, and the parts of it that the compiler
 * has put elsewhere as seldom executed (with profile-guided builds whole halves of the loop:
 * Debian's 3.14 has 1 KiB at the symbol and 83 KiB elsewhere). No symbol names such a part in a
 * stripped file. It is a function of the unwind tables that jumps into the middle of the loop,
 * which no other function does, and that the loop jumps to.
 */
#include "cpython.h"

#define SCAN_MAX  16384 /* bytes of each function that are looked at */
#define PIECE     4096
#define INSN_MAX  6
#define PARTS_MAX 16 /* functions that are tried */

struct part {
	struct code_range range;
	bool tried;
};

struct jumps {
	struct target *t;
	const struct cpython *s;
	struct part part[PARTS_MAX];
	uint32_t nparts;
};

/* Target of a direct jump at this place, 0: none. */
static uint64_t jump_x86(const uint8_t *code, uint64_t pc)
{
	int32_t rel;

	if (code[0] == 0xe9) {
		memcpy(&rel, code + 1, sizeof(rel));
		return pc + 5 + (uint64_t)(int64_t)rel;
	}
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80) {
		memcpy(&rel, code + 2, sizeof(rel));
		return pc + 6 + (uint64_t)(int64_t)rel;
	}
	return 0;
}

/* b; b.cond, cbz and cbnz. */
static uint64_t jump_arm64(const uint8_t *code, uint64_t pc)
{
	uint32_t insn;

	memcpy(&insn, code, sizeof(insn));
	if (insn >> 26 == 5)
		return pc + (uint64_t)((int64_t)(int32_t)(insn << 6) >> 4);
	if ((insn & 0xff000010) == 0x54000000 || (insn & 0x7e000000) == 0x34000000)
		return pc + (uint64_t)(((int64_t)(int32_t)(insn << 8) >> 13) * 4);
	return 0;
}

typedef bool jump_fn(struct jumps *j, uint64_t to);

/* Calls fn for jumps in [lo, hi) until it says true; true then. */
static bool each_jump(struct jumps *j, struct code_range r, jump_fn *fn)
{
	bool arm = target_arch(j->t) == TARGET_ARM64;
	uint8_t code[PIECE + INSN_MAX];
	uint64_t hi = r.hi - r.lo > SCAN_MAX ? r.lo + SCAN_MAX : r.hi;

	for (uint64_t pc = r.lo; pc < hi; pc += PIECE) {
		uint32_t n = hi - pc < PIECE ? (uint32_t)(hi - pc) : PIECE;

		memset(code, 0, sizeof(code));
		if (target_read(j->t, pc, code, n))
			return false;
		for (uint32_t i = 0; i < n; i += arm ? 4 : 1) {
			uint64_t to = (arm ? jump_arm64 : jump_x86)(code + i, pc + i);

			if (to && fn(j, to))
				return true;
		}
	}
	return false;
}

static bool inside(const struct code_range *r, uint64_t addr)
{
	return addr >= r->lo && addr < r->hi;
}

static bool into_loop(struct jumps *j, uint64_t to)
{
	return to != j->s->loops[0].lo && inside(&j->s->loops[0], to);
}

/* Remembers the function that is jumped to. */
static bool out_of_loop(struct jumps *j, uint64_t to)
{
	struct code_range r;

	if (inside(&j->s->loops[0], to))
		return false;
	for (uint32_t i = 0; i < j->nparts; i++)
		if (inside(&j->part[i].range, to))
			return false;
	if (j->nparts == PARTS_MAX)
		return true;
	if (target_function(j->t, j->s->module, to, &r.lo, &r.hi) && inside(&r, to))
		j->part[j->nparts++] = (struct part){ .range = r };
	return false;
}

void loops_find(struct target *t, struct cpython *s)
{
	struct jumps j = { .t = t, .s = s };
	uint64_t size, lo = target_symbol(t, s->module, "_PyEval_EvalFrameDefault", &size);

	s->nloops = 0;
	if (!lo || !size || size > 1u << 24)
		return;
	s->loops[0] = (struct code_range){ lo, lo + size };
	s->nloops = 1;
	each_jump(&j, s->loops[0], out_of_loop);
	for (uint32_t i = 0; i < j.nparts && s->nloops < UNWINDER_LOOPS; i++)
		if (each_jump(&j, j.part[i].range, into_loop))
			s->loops[s->nloops++] = j.part[i].range;
}
