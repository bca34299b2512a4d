// SPDX-License-Identifier: Apache-2.0
/*
 * Whose stack it is. Thread safe PHP has globals in each thread: this finds the way to them from the
 * thread pointer, by the code of tsrm_get_ls_cache() where it is known, else by looking for what
 * proves to be globals. Other PHP has one stack, which belongs to one thread: the first one where
 * PHP is the program itself, else the one that entered it.
 */
#include "php.h"

#define THREADS_MAX 256
#define LOOKED_AT   8    /* threads that are searched for their globals */
#define NEAR        2048 /* bytes around the thread pointer that are searched */
#define PIECE       256  /* bytes that are read at once: what lies behind may not be mapped */
#define STACK_MAX   (1ull << 20) /* bytes of a stack that lie behind the entry into PHP */
#define PAGE        4096
#define GLOBALS_MAX (1u << 24) /* bytes of all globals of a thread */
#define GLIBC_KEYS  0x310      /* x86-64, since 2.4 (nptl/descr.h): the block's first keys */
#define GLIBC_NKEYS 32
#define EG_BAILOUT  416 /* where zend_try was entered, on the thread's stack; 7.4 to 8.6 */

/* --- thread safe ------------------------------------------------------------------------------- */

static int32_t read_s32(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/*
 * tsrm_get_ls_cache() on x86-64, as compilers write it: a pthread key,
 *	mov key(%rip),%edi; jmp pthread_getspecific
 * or a thread-local variable of the initial-exec model,
 *	mov slot(%rip),%rax; mov %fs:(%rax),%rax; ret
 * Returns the place relative to the thread pointer, 0 when it is neither.
 */
static int32_t decode_x86(struct target *t, uint64_t addr, const uint8_t *code)
{
	uint64_t at;
	uint32_t key;

	/* endbr64 */
	if (!memcmp(code, "\xf3\x0f\x1e\xfa", 4)) {
		code += 4;
		addr += 4;
	}
	if (code[0] == 0x8b && code[1] == 0x3d && (code[6] == 0xe9 || code[6] == 0xff)) {
		at = addr + 6 + (uint64_t)(int64_t)read_s32(code + 2);
		if (target_u32(t, at, &key) || key >= GLIBC_NKEYS)
			return 0;
		return (int32_t)(GLIBC_KEYS + 16 * key + 8);
	}
	if (!memcmp(code, "\x48\x8b\x05", 3) && !memcmp(code + 7, "\x64\x48\x8b\x00\xc3", 5)) {
		at = addr + 7 + (uint64_t)(int64_t)read_s32(code + 3);
		if (target_u64(t, at, &at))
			return 0;
		return (int32_t)at;
	}
	return 0;
}

enum verdict owner_find_globals(struct target *t, struct php *s)
{
	uint64_t addr = target_symbol(t, s->module, "tsrm_get_ls_cache", NULL);
	uint64_t offset = target_symbol(t, s->module, "executor_globals_offset", NULL), value;
	uint8_t code[32];

	if (!addr || !offset)
		return UNWIND_NO_SYMBOL;
	if (target_read(t, addr, code, sizeof(code)) || target_u64(t, offset, &value))
		return UNWIND_FAULT;
	if (!value)
		return UNWIND_NOT_READY;
	if (value > GLOBALS_MAX || value & 7)
		return UNWIND_BAD_LAYOUT;
	s->globals_offset = (int32_t)value;
	s->tls_slot = target_arch(t) == TARGET_X86_64 ? decode_x86(t, addr, code) : 0;
	return UNWIND_OK;
}

/* Globals of a thread by the way that is known, 0: it has none. */
static uint64_t thread_globals(struct target *t, const struct php *s, uint64_t tp)
{
	uint64_t block;

	if (!tp || target_u64(t, tp + (uint64_t)(int64_t)s->tls_slot, &block) || block < 4096 ||
	    block & 7)
		return 0;
	return block + (uint64_t)s->globals_offset;
}

/* Every thread that has globals; one has to be sound. */
static enum verdict check_threads(struct target *t, const struct php *s, uint64_t *ret)
{
	enum verdict v = UNWIND_NOT_READY;
	struct target_thread thread;

	for (uint32_t i = 0; i < THREADS_MAX && target_thread(t, i, &thread); i++) {
		*ret = thread_globals(t, s, thread.tp);
		if (*ret)
			v = globals_check(t, s, *ret);
		if (v == UNWIND_OK)
			return v;
	}
	return v;
}

/* A word near the thread pointer that leads to globals; false: there is none. */
static bool look_near(struct target *t, struct php *s, uint64_t tp)
{
	uint64_t words[PIECE / 8];

	for (int32_t at = -NEAR; at < NEAR; at += PIECE) {
		if (target_read(t, tp + (uint64_t)(int64_t)at, words, sizeof(words)))
			continue;
		for (uint32_t i = 0; i < PIECE / 8; i++) {
			if (words[i] < 4096 || words[i] & 7 ||
			    globals_check(t, s, words[i] + (uint64_t)s->globals_offset) !=
				    UNWIND_OK)
				continue;
			s->tls_slot = at + (int32_t)(i * 8);
			return true;
		}
	}
	return false;
}

enum verdict owner_prove_globals(struct target *t, struct php *s, uint64_t *ret)
{
	enum verdict v = s->tls_slot ? check_threads(t, s, ret) : UNWIND_NOT_READY;
	struct target_thread thread;

	if (v == UNWIND_OK)
		return v;
	for (uint32_t i = 0; i < LOOKED_AT && target_thread(t, i, &thread); i++)
		if (thread.tp && look_near(t, s, thread.tp))
			return check_threads(t, s, ret);
	return v;
}

/* --- one stack for all threads ----------------------------------------------------------------- */

/* All of it is one piece of memory: a thread's stack has a page at its end that nobody may read. */
static bool is_one_piece(struct target *t, uint64_t lo, uint64_t hi)
{
	uint64_t word;

	for (uint64_t at = lo & ~7ull; at < hi; at = (at | (PAGE - 1)) + 1)
		if (target_u64(t, at, &word))
			return false;
	return true;
}

/*
 * The thread that entered PHP has on its stack the place to which errors jump. The C library puts a
 * thread's own block at the end of its stack, so its pointer is the next one above; but for the first
 * thread, whose stack lies above all that is mapped later. A fiber's stack is neither: which thread
 * it is on can only be told when it is left.
 */
static bool find_owner(struct target *t, const struct php *s, struct target_thread *ret)
{
	struct target_thread thread;
	uint64_t at;
	bool above = true, found = false;

	if (target_u64(t, s->globals + EG_BAILOUT, &at) || !at || at & 7 ||
	    !target_thread(t, 0, &thread))
		return false;
	for (uint32_t i = 0; i < THREADS_MAX && target_thread(t, i, &thread); i++) {
		if (!thread.tp)
			return false;
		above &= at > thread.tp;
		if (!i || thread.tp <= at || thread.tp - at > STACK_MAX ||
		    (found && thread.tp > ret->tp))
			continue;
		*ret = thread;
		found = true;
	}
	if (above)
		return target_thread(t, 0, ret);
	return found && is_one_piece(t, at, ret->tp);
}

enum verdict owner_find(struct target *t, struct php *s)
{
	struct target_thread thread;

	s->by_thread = false;
	if (!s->library || !target_thread(t, 1, &thread))
		return UNWIND_OK;
	if (!find_owner(t, s, &thread))
		return UNWIND_NOT_READY;
	/* Asked again from time to time: it may be another one tomorrow. */
	s->by_thread = true;
	return UNWIND_OK;
}

enum verdict owner_heads(struct target *t, const void *state, struct heads *ret)
{
	const struct php *s = state;
	struct target_thread thread;

	if (!s->by_thread)
		return UNWIND_OK;
	if (!find_owner(t, s, &thread))
		return UNWIND_NOT_READY;
	heads_add(ret, thread.tid, s->globals);
	return UNWIND_OK;
}
