// SPDX-License-Identifier: Apache-2.0
/*
 * Where a thread keeps its interpreter state. The interpreter lists all thread states with the
 * thread that each belongs to; the thread itself finds its own through a pthread key or a variable
 * of its own (Python/pystate.c: autoTSSkey up to 3.14, _Py_tss_gilstate from 3.15 on). Which offset
 * from the thread pointer that is depends on the C library and on how the program was linked, so it
 * is found by looking: a word of the thread's block that leads to its state, in every thread.
 */
#include "search.h"

/* --- thread states ---------------------------------------------------------------------------- */

static bool state_read(struct target *t, const struct cpython *s, uint64_t addr, uint64_t interp,
		       struct state *ret)
{
	uint64_t back, native = 0;

	if (target_u64(t, addr + s->l.thread_interp, &back) || back != interp ||
	    target_u64(t, addr + s->l.thread_ident, &ret->ident) ||
	    (s->l.thread_native >= 0 && target_u64(t, addr + s->l.thread_native, &native)))
		return false;
	ret->addr = addr;
	ret->native = native <= UINT32_MAX ? (uint32_t)native : 0;
	return true;
}

/* States of one interpreter; *bad: some were none. */
static void interp_states(struct target *t, const struct cpython *s, uint64_t interp,
			  struct state *ret, uint32_t max, uint32_t *n, uint32_t *bad)
{
	uint64_t addr;

	if (target_u64(t, interp + s->l.interp_threads, &addr)) {
		++*bad;
		return;
	}
	while (addr && *n < max) {
		if (addr & 7 || !state_read(t, s, addr, interp, &ret[*n])) {
			++*bad;
			return;
		}
		++*n;
		if (target_u64(t, addr + s->l.thread_next, &addr))
			return;
	}
}

enum verdict states_list(struct target *t, const struct cpython *s, struct state *ret, uint32_t max,
			 uint32_t *n)
{
	uint64_t interp;
	uint32_t bad = 0;

	*n = 0;
	if (target_u64(t, s->interps, &interp))
		return UNWIND_FAULT;
	for (uint32_t i = 0; interp && *n < max && i < INTERPS_MAX; i++) {
		if (interp & 7) {
			bad++;
			break;
		}
		interp_states(t, s, interp, ret, max, n, &bad);
		if (target_u64(t, interp + s->l.interp_next, &interp))
			break;
	}
	if (*n)
		return UNWIND_OK;
	return bad ? UNWIND_BAD_LAYOUT : UNWIND_NOT_READY;
}

int state_frame(struct target *t, const struct cpython *s, uint64_t state, uint64_t *ret)
{
	uint64_t p;

	if (target_u64(t, state + s->l.thread_frame, &p))
		return -1;
	if (s->l.cframe_frame >= 0 && (!p || target_u64(t, p + s->l.cframe_frame, &p)))
		return -1;
	*ret = p;
	return 0;
}

/* --- which thread has which state ------------------------------------------------------------- */

/* Thread pointers of x86-64 point to a word that holds themselves, and are pthread_self(). */
static bool ident_is_pointer(struct target *t, uint64_t ident)
{
	uint64_t self;

	return target_arch(t) == TARGET_X86_64 && ident && !target_u64(t, ident, &self) &&
	       self == ident;
}

static void add_proof(struct search *h, uint64_t tp, uint64_t state)
{
	struct proof *p = NULL;

	if (!tp || tp & 7)
		return;
	for (uint32_t i = 0; i < h->nproofs && !p; i++)
		if (h->proof[i].tp == tp)
			p = &h->proof[i];
	if (!p) {
		if (h->nproofs == PROOFS_MAX)
			return;
		p = &h->proof[h->nproofs++];
		*p = (struct proof){ .tp = tp };
	}
	if (p->n < sizeof(p->state) / sizeof(*p->state))
		p->state[p->n++] = state;
}

/*
 * The thread block lies at a fixed distance from pthread_self() where it is not that itself:
 * below the thread pointer, nearer than any other thread's.
 */
static bool same_thread(const struct state *state, const struct target_thread *th)
{
	if (state->native)
		return state->native == th->tid;
	return th->tp >= state->ident && th->tp - state->ident < NEAR;
}

static void match_threads(struct search *h, const struct state *states, uint32_t n)
{
	bool matched[PROOFS_MAX] = { false };
	struct target_thread th;

	if (n > PROOFS_MAX)
		n = PROOFS_MAX;
	for (uint32_t k = 0; k < n; k++) {
		matched[k] = ident_is_pointer(h->t, states[k].ident);
		if (matched[k])
			add_proof(h, states[k].ident, states[k].addr);
	}
	/* At most 65536 threads, says the interface. */
	for (uint32_t i = 0; target_thread(h->t, i, &th); i++)
		for (uint32_t k = 0; k < n; k++)
			if (!matched[k] && same_thread(&states[k], &th))
				add_proof(h, th.tp, states[k].addr);
}

/* --- ways from the thread pointer ------------------------------------------------------------- */

static bool is_state(const struct proof *p, uint64_t word)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->state[i] == word)
			return true;
	return false;
}

static bool follow(struct target *t, const struct chain *c, uint64_t tp, uint64_t *ret)
{
	uint64_t p = tp;

	for (uint8_t i = 0; i < c->n; i++)
		if (target_u64(t, p + (int64_t)c->hop[i], &p))
			return false;
	*ret = p;
	return true;
}

static void add_found(struct search *h, const int32_t *hop, uint8_t n)
{
	struct chain *c;

	if (h->nfound == FOUND_MAX)
		return;
	c = &h->found[h->nfound++];
	c->n = n;
	for (uint8_t i = 0; i < n; i++)
		c->hop[i] = hop[i];
}

/*
 * Looks for the first thread's state in the piece at addr, which is `base` away from where the
 * hops lead; the last hop is filled in.
 */
static void scan(struct search *h, uint64_t addr, int32_t base, int32_t *hop, uint8_t n)
{
	uint64_t words[PIECE / 8];

	if (target_read(h->t, addr, words, sizeof(words)))
		return;
	for (uint32_t i = 0; i < PIECE / 8; i++) {
		if (!is_state(&h->proof[0], words[i]))
			continue;
		hop[n - 1] = base + (int32_t)(i * 8);
		add_found(h, hop, n);
	}
}

/* Variables of modules that were there at the start, and the first keys of glibc. */
static void find_near(struct search *h)
{
	uint64_t tp = h->proof[0].tp;
	int32_t hop[1];

	for (int32_t at = -NEAR; at < NEAR; at += PIECE)
		scan(h, tp + (int64_t)at, at, hop, 1);
}

/* Blocks that words of the thread's own lead to: further keys, musl's keys. */
static void find_blocks(struct search *h)
{
	uint64_t tp = h->proof[0].tp, words[PIECE / 8];

	for (int32_t at = -1024; at < SELF_MAX; at += PIECE) {
		if (target_read(h->t, tp + (int64_t)at, words, PIECE))
			continue;
		for (uint32_t i = 0; i < PIECE / 8; i++) {
			int32_t hop[2] = { at + (int32_t)(i * 8), 0 };

			if (words[i] < 4096 || words[i] & 7 ||
			    target_memory(h->t, words[i]) == TARGET_NOTHING)
				continue;
			for (int32_t off = 0; off < BLOCK_MAX; off += PIECE)
				scan(h, words[i] + (uint64_t)off, off, hop, 2);
		}
	}
}

/* Variables of modules that were loaded later: pairs of {block, what to free} a module. */
static void find_modules(struct search *h)
{
	uint64_t tp = h->proof[0].tp, dtv, block;

	if (target_u64(h->t, tp + (uint64_t)dtv_at(h), &dtv))
		return;
	for (int32_t m = 1; m <= DTV_MAX; m++) {
		int32_t hop[3] = { dtv_at(h), m * 16, 0 };

		if (target_u64(h->t, dtv + (uint64_t)m * 16, &block) || block < 4096 || block & 7)
			continue;
		for (int32_t off = 0; off < BLOCK_MAX; off += PIECE)
			scan(h, block + (uint64_t)off, off, hop, 3);
	}
}

/*
 * Keeps the ways that lead to the own state in every thread. One in eight may fail: threads come
 * and go meanwhile.
 */
static void keep_proven(struct search *h)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < h->nfound; i++) {
		uint32_t wrong = 0;
		uint64_t word;

		for (uint32_t k = 0; k < h->nproofs; k++)
			wrong += !follow(h->t, &h->found[i], h->proof[k].tp, &word) ||
				 !is_state(&h->proof[k], word);
		if (wrong * 8 <= h->nproofs)
			h->found[kept++] = h->found[i];
	}
	h->nfound = kept;
}

/* --- all of it ------------------------------------------------------------------------------- */

/* The pthread key of thread states, -1: not known. */
static int32_t read_key(struct target *t, const struct cpython *s)
{
	uint32_t key[2]; /* is it initialised, and the key */

	if (!s->key || target_read(t, s->key, key, sizeof(key)) || key[0] != 1 || key[1] >= 1024)
		return -1;
	return (int32_t)key[1];
}

static void find_all(struct search *h)
{
	find_near(h);
	keep_proven(h);
	/* Something else may be near, such as a variable that has the state only while it runs. */
	if (!h->nfound || h->key >= 32) {
		find_blocks(h);
		keep_proven(h);
	}
	if (!h->nfound) {
		find_modules(h);
		keep_proven(h);
	}
}

enum verdict threads_prove(struct target *t, struct cpython *s, const struct state *states,
			   uint32_t n)
{
	struct search h = { .t = t, .s = s, .key = read_key(t, s) };
	const struct chain *c;

	match_threads(&h, states, n);
	if (h.nproofs)
		find_all(&h);
	if (h.nfound) {
		c = search_choose(&h);
		s->head = RECIPE_TP;
		s->nhops = c->n;
		memcpy(s->hop, c->hop, sizeof(c->hop));
		return UNWIND_OK;
	}
	s->head = RECIPE_TID;
	s->nhops = 0;
	if (s->l.thread_native >= 0)
		return UNWIND_OK;
	return h.nproofs ? UNWIND_BAD_LAYOUT : UNWIND_NOT_READY;
}
