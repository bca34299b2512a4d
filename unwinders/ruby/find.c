// SPDX-License-Identifier: Apache-2.0
/*
 * Where a stripped libruby has its VM, its symbols and the threads' execution contexts: read off the
 * code of functions that it exports, each thing then proven by what is in it. In: the process. Out:
 * addresses, and the way from a thread pointer to the thread's context.
 */
#include "ruby.h"

#define VM_WORDS    80   /* of rb_vm_t, among which a thread is looked for */
#define NEAR        4096 /* bytes around the thread pointer that are looked at */
#define PIECE       256
#define THREADS_MAX 64
#define LIST_MAX    4096

static void add_place(struct places *p, uint64_t addr)
{
	if (p->n < PLACES_MAX && addr >= 4096)
		p->v[p->n++] = addr;
}

static uint32_t u32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* --- code --------------------------------------------------------------------------------------- */

/* Operands relative to the instruction pointer of mov, lea and cmp; every place is tried. */
static void places_x86(const uint8_t *code, uint32_t n, uint64_t pc, struct places *ret)
{
	for (uint32_t i = 0; i + 6 <= n; i++) {
		uint8_t op = code[i];

		if ((op == 0x8b || op == 0x8d || op == 0x39 || op == 0x3b) &&
		    (code[i + 1] & 0xc7) == 5)
			add_place(ret, pc + i + 6 + (uint64_t)(int64_t)s32_at(code + i + 2));
	}
}

/* adrp, and the add or load that takes its register. */
static void places_arm64(const uint8_t *code, uint32_t n, uint64_t pc, struct places *ret)
{
	uint64_t page[32] = { 0 };

	for (uint32_t i = 0; i + 4 <= n; i += 4) {
		uint32_t insn = u32_at(code + i), imm = insn >> 10 & 0xfff, from = insn >> 5 & 31;
		uint64_t base = page[from];

		if ((insn & 0x9f000000) == 0x90000000) {
			int64_t pages = ((int64_t)(int32_t)(insn << 8) >> 13) * 4 |
					(insn >> 29 & 3);

			page[insn & 31] = ((pc + i) & ~4095ull) + (uint64_t)pages * 4096;
			continue;
		}
		if (!base)
			continue;
		if (insn >> 22 == 0x91000000u >> 22) /* add, 64 bits */
			add_place(ret, base + imm);
		else if (insn >> 22 == 0xf9400000u >> 22) /* ldr of 8 bytes */
			add_place(ret, base + imm * 8ull);
		else if (insn >> 22 == 0xb9400000u >> 22) /* ldr of 4 bytes */
			add_place(ret, base + imm * 4ull);
	}
}

bool find_code(struct target *t, uint64_t pc, uint8_t code[CODE_READ])
{
	memset(code, 0, CODE_READ);
	return pc && !target_read(t, pc, code, CODE_READ);
}

void find_places(struct target *t, uint64_t pc, struct places *ret)
{
	uint8_t code[CODE_READ];

	if (!find_code(t, pc, code))
		return;
	if (target_arch(t) == TARGET_ARM64)
		places_arm64(code, CODE_READ, pc, ret);
	else
		places_x86(code, CODE_READ, pc, ret);
}

/* Where the i-th call or jump of this code that leaves it goes; 0: none. */
static uint64_t callee(struct target *t, uint64_t pc, uint32_t i)
{
	bool arm = target_arch(t) == TARGET_ARM64;
	uint8_t code[CODE_READ];

	if (!find_code(t, pc, code))
		return 0;
	for (uint32_t at = 0; at + 5 <= CODE_READ; at += arm ? 4 : 1) {
		uint32_t insn = u32_at(code + at);

		if (arm ? (insn & 0x7c000000) != 0x14000000 : code[at] != 0xe8 && code[at] != 0xe9)
			continue;
		if (i--)
			continue;
		if (arm)
			return pc + at + (uint64_t)((int64_t)(int32_t)(insn << 6) >> 4);
		return pc + at + 5 + (uint64_t)(int64_t)s32_at(code + at + 1);
	}
	return 0;
}

/* --- the VM ------------------------------------------------------------------------------------- */

static bool is_thread(struct target *t, const struct ruby *s, uint64_t vm, uint64_t th)
{
	uint64_t v;

	return th >= 4096 && !(th & 7) && !target_u64(t, th + (uint64_t)s->l.thread_vm, &v) &&
	       v == vm && !target_u64(t, th + (uint64_t)s->l.thread_ec, &v) && v && !(v & 7) &&
	       !target_u64(t, v + (uint64_t)s->l.ec_thread, &v) && v == th;
}

uint64_t find_thread(struct target *t, const struct ruby *s, uint64_t vm)
{
	uint64_t word;

	if (vm < 4096 || vm & 7)
		return 0;
	for (uint32_t i = 1; i < VM_WORDS; i++) {
		if (target_u64(t, vm + i * 8ull, &word))
			return 0;
		if (is_thread(t, s, vm, word))
			return word;
	}
	return 0;
}

/*
 * ruby_vm_at_exit() begins by loading the pointer to the VM; where that is exported, its address,
 * from the table that the linker fills in.
 */
bool find_vm(struct target *t, struct ruby *s, bool *ready)
{
	struct places p = { .n = 0 };
	bool null = false;

	find_places(t, target_symbol(t, s->module, "ruby_vm_at_exit", NULL), &p);
	for (uint32_t i = 0; i < p.n; i++) {
		uint64_t v = p.v[i];

		for (uint32_t k = 0; k < 2 && !target_u64(t, v, &v); k++) {
			null |= !v;
			if (!find_thread(t, s, v))
				continue;
			s->vm = v;
			*ready = true;
			return true;
		}
	}
	*ready = !null;
	return false;
}

/* --- symbols ------------------------------------------------------------------------------------ */

/* Operators are symbols whose number is their character. */
static bool is_symbols(struct target *t, struct ruby *s, uint64_t addr)
{
	char text[4];

	s->symbols = addr;
	return object_id(t, s, '+', text, sizeof(text)) == 1 && text[0] == '+' &&
	       object_id(t, s, '<', text, sizeof(text)) == 1 && text[0] == '<';
}

/* The code names the table's first word, or its third. */
bool find_symbols(struct target *t, struct ruby *s)
{
	uint64_t pc = target_symbol(t, s->module, "rb_id2str", NULL);
	struct places p = { .n = 0 };

	find_places(t, pc, &p);
	for (uint32_t k = 0; k < 2; k++)
		find_places(t, callee(t, pc, k), &p);
	for (uint32_t i = 0; i < p.n; i++)
		if (is_symbols(t, s, p.v[i]) || is_symbols(t, s, p.v[i] - 16))
			return true;
	s->symbols = 0;
	return false;
}

/* --- execution contexts ------------------------------------------------------------------------- */

/* 1: the thread finds a context of this VM, -1: something else, 0: it has none. */
static int context_of(struct target *t, const struct ruby *s, uint64_t tp)
{
	uint64_t p = tp, th, vm;

	for (uint8_t i = 0; i < s->nhops; i++)
		if (target_u64(t, p + (uint64_t)(int64_t)s->hop[i], &p) || p < 4096 || p & 7)
			return p ? -1 : 0;
	if (target_u64(t, p + (uint64_t)s->l.ec_thread, &th) ||
	    target_u64(t, th + (uint64_t)s->l.thread_vm, &vm) || vm != s->vm)
		return -1;
	return 1;
}

/* At least one thread has a context, and seven in eight of those that have anything. */
static bool contexts_good(struct target *t, const struct ruby *s)
{
	struct target_thread th;
	uint32_t good = 0, bad = 0;

	for (uint32_t i = 0; i < THREADS_MAX && target_thread(t, i, &th); i++) {
		int v = th.tp ? context_of(t, s, th.tp) : 0;

		good += v > 0;
		bad += v < 0;
	}
	return good && bad * 8 <= good + bad;
}

/*
 * A pair {module, offset} of the general-dynamic model (x86-64: the argument of __tls_get_addr()),
 * or {function, offset from the thread pointer} of a descriptor (arm64).
 */
static bool try_pair(struct target *t, struct ruby *s, uint64_t addr)
{
	uint64_t pair[2];

	if (target_read(t, addr, pair, sizeof(pair)))
		return false;
	s->nhops = 0;
	if (target_arch(t) == TARGET_ARM64) {
		if (pair[1] > 1u << 24 || target_memory(t, pair[0]) != TARGET_IMAGE)
			return false;
		s->hop[s->nhops++] = (int32_t)pair[1];
	} else {
		if (!pair[0] || pair[0] > 4096 || pair[1] > 1u << 24)
			return false;
		/* glibc: thread -> vector of blocks, two words a module -> the module's block. */
		s->hop[s->nhops++] = 8;
		s->hop[s->nhops++] = (int32_t)pair[0] * 16;
		s->hop[s->nhops++] = (int32_t)pair[1];
	}
	return contexts_good(t, s);
}

static bool by_code(struct target *t, struct ruby *s)
{
	uint64_t pc = target_symbol(t, s->module, "rb_profile_frames", NULL);
	struct places p = { .n = 0 };

	find_places(t, pc, &p);
	/* arm64, 3.3 and later: a function that returns it is called first. */
	if (target_arch(t) == TARGET_ARM64)
		find_places(t, callee(t, pc, 0), &p);
	for (uint32_t i = 0; i < p.n; i++)
		if (try_pair(t, s, p.v[i]))
			return true;
	return false;
}

/* --- by looking --------------------------------------------------------------------------------- */

/* All threads of the first one's ractor, or their contexts. */
struct known {
	uint64_t v[THREADS_MAX];
	uint32_t n;
};

static void list_known(struct target *t, const struct ruby *s, struct known *ret)
{
	uint64_t first = find_thread(t, s, s->vm), th = first, v;

	/* The list's head, which is no thread, lies among them. */
	for (uint32_t i = 0; th && i < LIST_MAX && ret->n < THREADS_MAX; i++) {
		v = th;
		if (is_thread(t, s, s->vm, th) &&
		    (!s->l.thread_local_ec || !target_u64(t, th + (uint64_t)s->l.thread_ec, &v)))
			ret->v[ret->n++] = v;
		if (target_u64(t, th, &th) || th == first)
			return;
	}
}

static bool is_known(const struct known *k, uint64_t v)
{
	for (uint32_t i = 0; i < k->n; i++)
		if (k->v[i] == v)
			return true;
	return false;
}

static bool try_offset(struct target *t, struct ruby *s, int32_t off)
{
	s->nhops = 0;
	s->hop[s->nhops++] = off;
	if (!s->l.thread_local_ec)
		s->hop[s->nhops++] = s->l.thread_ec;
	return contexts_good(t, s);
}

/*
 * A word near the thread pointer that leads to a thread's own structure, in every thread: a key of
 * pthread (2.7), a variable of a program that Ruby is linked into.
 */
static bool by_looking(struct target *t, struct ruby *s, uint64_t tp, const struct known *k)
{
	uint64_t words[PIECE / 8];

	for (int32_t at = -NEAR; at < NEAR; at += PIECE) {
		if (target_read(t, tp + (uint64_t)(int64_t)at, words, sizeof(words)))
			continue;
		for (uint32_t i = 0; i < PIECE / 8; i++)
			if (is_known(k, words[i]) && try_offset(t, s, at + (int32_t)i * 8))
				return true;
	}
	return false;
}

enum verdict find_context(struct target *t, struct ruby *s)
{
	struct known k = { .n = 0 };
	struct target_thread th;
	bool any = false;

	if (s->l.thread_local_ec && by_code(t, s))
		return UNWIND_OK;
	list_known(t, s, &k);
	for (uint32_t i = 0; i < THREADS_MAX && target_thread(t, i, &th); i++) {
		if (!th.tp)
			continue;
		any = true;
		if (by_looking(t, s, th.tp, &k))
			return UNWIND_OK;
	}
	return any ? UNWIND_NO_SYMBOL : UNWIND_NOT_READY;
}
