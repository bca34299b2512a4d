// SPDX-License-Identifier: Apache-2.0
/*
 * Several ways may lead from a thread to its state: other libraries remember it in keys and variables
 * of their own, and the interpreter has a second variable that is set only while the thread may run
 * Python (_Py_tss_tstate). The one that is set as long as the thread has a state is known by its
 * pthread key (3.7 to 3.14), or by the code of the function that returns it (3.15).
 */
#include "search.h"

#define CODE_LEN    64
#define OFFSETS_MAX (2 + DTV_MAX)

/* --- by the key ------------------------------------------------------------------------------- */

/* Whether a word of the thread's own leads to this address. */
static bool leads_to(struct search *h, uint64_t block)
{
	uint64_t tp = h->proof[0].tp, words[PIECE / 8];

	for (int32_t from = 0; from < SELF_MAX; from += PIECE) {
		if (target_read(h->t, away(tp, from), words, sizeof(words)))
			return false;
		for (uint32_t i = 0; i < PIECE / 8; i++)
			if (words[i] == block)
				return true;
	}
	return false;
}

/*
 * glibc (nptl/descr.h): the thread's structure has a block of 32 {generation, value} pairs, and
 * behind it pointers to this and further blocks.
 */
static bool is_glibc_key(struct search *h, const struct chain *c, uint32_t key)
{
	uint64_t tp = h->proof[0].tp, blocks, first;
	int32_t in_block = (int32_t)(key % 32) * 16 + 8;

	if (c->n == 1)
		blocks = away(tp, c->hop[0] - in_block + 512);
	else
		blocks = away(tp, c->hop[0] - (int32_t)(key / 32) * 8);
	return c->n <= 2 && (c->n == 1) == (key < 32) && (c->n == 1 || c->hop[1] == in_block) &&
	       !target_u64(h->t, blocks, &first) && first == blocks - 512;
}

/* musl (src/internal/pthread_impl.h): the thread's structure leads to an array of values. */
static bool is_musl_key(struct search *h, const struct chain *c, uint32_t key)
{
	if (c->n == 2)
		return c->hop[1] == (int32_t)key * 8;
	return c->n == 1 && leads_to(h, away(h->proof[0].tp, c->hop[0] - (int32_t)key * 8));
}

static const struct chain *choose_by_key(struct search *h)
{
	static bool (*const is_key[])(struct search *, const struct chain *, uint32_t) = {
		is_glibc_key,
		is_musl_key,
	};

	for (size_t k = 0; h->key >= 0 && k < sizeof(is_key) / sizeof(*is_key); k++)
		for (uint32_t i = 0; i < h->nfound; i++)
			if (is_key[k](h, &h->found[i], (uint32_t)h->key))
				return &h->found[i];
	return NULL;
}

/* --- by the code ------------------------------------------------------------------------------ */

static uint32_t insn_at(const uint8_t *code, size_t i)
{
	uint32_t v;

	memcpy(&v, code + i, sizeof(v));
	return v;
}

/*
 * arm64: the offset is added up from immediates; or it is in the second word of a descriptor, whose
 * address is (adrp, add).
 */
static uint32_t arm64_offsets(struct search *h, uint64_t pc, const uint8_t *code, size_t len,
			      int32_t *ret)
{
	uint64_t page = 0, word;
	int64_t sum = 0;

	for (size_t i = 0; i + 4 <= len; i += 4) {
		uint32_t insn = insn_at(code, i), imm = insn >> 10 & 0xfff;

		if ((insn & 0x9f000000) == 0x90000000) { /* adrp */
			int64_t pages = ((int64_t)(int32_t)(insn << 8) >> 13) * 4 |
					(insn >> 29 & 3);

			page = away(pc + i, pages * 4096) & ~4095ull;
			sum = 0;
		} else if (insn >> 23 == 0x91000000u >> 23) { /* add, shifted or not */
			if ((insn & 31) != 29)
				sum += insn >> 22 & 1 ? (int64_t)imm << 12 : imm;
		} else if (!page && insn >> 22 == 0xf9400000u >> 22) { /* ldr of 8 bytes */
			sum += (int64_t)imm * 8;
		}
	}
	if (page) {
		if (target_u64(h->t, away(page, sum) + 8, &word))
			return 0;
		sum = (int64_t)word;
	}
	*ret = (int32_t)sum;
	return 1;
}

/*
 * x86-64: the offset is an immediate, which offset_is_named() looks for; or it is in a word that is
 * loaded (mov disp(%rip), %rax).
 */
static uint32_t x86_offsets(struct search *h, uint64_t pc, const uint8_t *code, size_t len,
			    int32_t *ret)
{
	uint64_t word;
	int32_t disp;

	for (size_t i = 0; i + 7 <= len; i++) {
		if (code[i] != 0x48 || code[i + 1] != 0x8b || (code[i + 2] & 0xc7) != 5)
			continue;
		memcpy(&disp, code + i + 3, sizeof(disp));
		if (target_u64(h->t, away(pc + i + 7, disp), &word))
			return 0;
		*ret = (int32_t)word;
		return 1;
	}
	return 0;
}

/*
 * What the code may name a way by: its offset from the thread pointer, or where it is in the block
 * of the module's variables.
 */
static uint32_t names_of(struct search *h, const struct chain *c, int32_t *ret)
{
	uint64_t tp = h->proof[0].tp, at = away(tp, c->hop[0]), dtv, block;
	uint32_t n = 0;

	if (c->n == 3)
		ret[n++] = c->hop[2];
	if (c->n != 1)
		return n;
	ret[n++] = c->hop[0];
	if (target_u64(h->t, away(tp, dtv_at(h)), &dtv))
		return n;
	for (uint32_t m = 1; m <= DTV_MAX; m++)
		if (!target_u64(h->t, dtv + m * 16, &block) && at >= block &&
		    at - block < BLOCK_MAX)
			ret[n++] = (int32_t)(at - block);
	return n;
}

/* Zero is no immediate: it is not written down. */
static bool offset_is_named(const uint8_t *code, size_t len, int32_t off)
{
	for (size_t i = 0; off && i + sizeof(off) <= len; i++)
		if (!memcmp(code + i, &off, sizeof(off)))
			return true;
	return false;
}

static const struct chain *choose_by_code(struct search *h)
{
	uint64_t size,
		pc = target_symbol(h->t, h->s->module, "PyGILState_GetThisThreadState", &size);
	bool arm = target_arch(h->t) == TARGET_ARM64, have;
	int32_t names[OFFSETS_MAX], off;
	uint8_t code[CODE_LEN];

	if (!pc)
		return NULL;
	if (size > sizeof(code))
		size = sizeof(code);
	if (target_read(h->t, pc, code, size))
		return NULL;
	have = arm ? arm64_offsets(h, pc, code, size, &off) : x86_offsets(h, pc, code, size, &off);
	for (uint32_t i = 0; i < h->nfound; i++) {
		uint32_t n = names_of(h, &h->found[i], names);

		for (uint32_t k = 0; k < n; k++)
			if ((have && names[k] == off) ||
			    (!arm && offset_is_named(code, size, names[k])))
				return &h->found[i];
	}
	return NULL;
}

/* ---------------------------------------------------------------------------------------------- */

/* The first key that was made, else the variable nearest to the thread pointer. */
static const struct chain *choose_by_place(struct search *h)
{
	const struct chain *best = &h->found[0];

	for (uint32_t i = 1; i < h->nfound; i++) {
		int32_t a = h->found[i].hop[0], b = best->hop[0];

		if (h->found[i].n == 1 && best->n == 1 &&
		    ((a >= 0 && (b < 0 || a < b)) || (a < 0 && b < 0 && a > b)))
			best = &h->found[i];
	}
	return best;
}

const struct chain *search_choose(struct search *h)
{
	const struct chain *c = NULL;

	if (h->nfound > 1)
		c = h->s->key ? choose_by_key(h) : choose_by_code(h);
	return c ? c : choose_by_place(h);
}
