// SPDX-License-Identifier: Apache-2.0
/*
 * The code of Ruby's loop, of which no symbol is left in a stripped library. An instruction of a
 * method is the address of the code that executes it, which lies in vm_exec_core(); the unwind
 * tables tell where that function begins and ends. vm_exec() is the function behind it that calls
 * it; what is seldom executed lies elsewhere, in a function that jumps back into its middle.
 */
#include "ruby.h"

#define BEHIND    4  /* functions that are tried for vm_exec() */
#define GAP       64 /* bytes between two functions */
#define PIECE     4096
#define SCAN_MAX  65536
#define INSN_MAX  6
#define PARTS_MAX 16

struct jumps {
	struct target *t;
	const struct ruby *s;
	struct code_range part[PARTS_MAX];
	uint32_t nparts;
};

/* Where a direct call, or a jump, at this place goes; 0: none. */
static uint64_t branch_x86(const uint8_t *code, uint64_t pc, bool call)
{
	if (code[0] == (call ? 0xe8 : 0xe9))
		return pc + 5 + (uint64_t)(int64_t)s32_at(code + 1);
	if (!call && code[0] == 0x0f && (code[1] & 0xf0) == 0x80)
		return pc + 6 + (uint64_t)(int64_t)s32_at(code + 2);
	return 0;
}

static uint64_t branch_arm64(const uint8_t *code, uint64_t pc, bool call)
{
	uint32_t insn = (uint32_t)s32_at(code);

	if (insn >> 26 == (call ? 0x25u : 5u))
		return pc + (uint64_t)((int64_t)(int32_t)(insn << 6) >> 4);
	if (call)
		return 0;
	if ((insn & 0xff000010) == 0x54000000 || (insn & 0x7e000000) == 0x34000000)
		return pc + (uint64_t)(((int64_t)(int32_t)(insn << 8) >> 13) * 4);
	return 0;
}

typedef bool branch_fn(struct jumps *j, uint64_t to);

/* Calls fn for calls, or jumps, in r until it says true; true then. */
static bool each_branch(struct jumps *j, struct code_range r, bool call, branch_fn *fn)
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
			uint64_t to = (arm ? branch_arm64 : branch_x86)(code + i, pc + i, call);

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

static bool to_core(struct jumps *j, uint64_t to)
{
	return to == j->s->loops[0].lo;
}

static bool into_core(struct jumps *j, uint64_t to)
{
	return to != j->s->loops[0].lo && inside(&j->s->loops[0], to);
}

/* Remembers the function that is branched to. */
static bool out_of_core(struct jumps *j, uint64_t to)
{
	struct code_range r;

	if (inside(&j->s->loops[0], to))
		return false;
	for (uint32_t i = 0; i < j->nparts; i++)
		if (inside(&j->part[i], to))
			return false;
	if (j->nparts == PARTS_MAX)
		return true;
	/* A function's beginning is a call; its part has been reached elsewhere. */
	if (target_function(j->t, j->s->module, to, &r.lo, &r.hi) && inside(&r, to) && r.lo != to)
		j->part[j->nparts++] = r;
	return false;
}

/* The function that begins behind this address, at most GAP bytes. */
static bool next_function(struct target *t, uint32_t module, uint64_t addr, struct code_range *ret)
{
	for (uint64_t at = addr; at < addr + GAP; at++)
		if (target_function(t, module, at, &ret->lo, &ret->hi) && ret->lo >= addr &&
		    ret->hi > ret->lo)
			return true;
	return false;
}

static void add_loop(struct ruby *s, struct code_range r)
{
	if (s->nloops < UNWINDER_LOOPS)
		s->loops[s->nloops++] = r;
}

void vmloop_find(struct target *t, struct ruby *s, uint64_t insn)
{
	struct jumps j = { .t = t, .s = s };
	struct code_range r;
	uint64_t at;

	s->nloops = 0;
	if (!target_function(t, s->module, insn, &r.lo, &r.hi) || !inside(&r, insn))
		return;
	add_loop(s, r);
	at = r.hi;
	for (uint32_t i = 0; i < BEHIND && next_function(t, s->module, at, &r); i++) {
		if (each_branch(&j, r, true, to_core))
			add_loop(s, r);
		at = r.hi;
	}
	each_branch(&j, s->loops[0], false, out_of_core);
	for (uint32_t i = 0; i < j.nparts; i++)
		if (each_branch(&j, j.part[i], false, into_core))
			add_loop(s, j.part[i]);
}
