/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings that lie: a target between a recording and whoever walks it, which spoils single
 * answers. In: a recording, a program of mutations (bytes, so that a fuzzer can write one). Out: a
 * walk that must end in a verdict, with bounded reads. Included by the one file of a test or fuzz
 * target that needs it.
 */
#pragma once

#include "core/fixture.h"
#include "core/target.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define MUTATE_MAX     32 /* mutations of one program */
#define MUTATE_BYTES   8  /* of one mutation */
#define MUTATE_THREADS 4  /* that a mutated process seems to have */

/* What becomes of an answer. */
#define MUTATE_LIST(X)                                              \
	X(NOTHING) /* for programs that shall change nothing */     \
	X(FAIL)    /* it cannot be read */                          \
	X(CUT)     /* only its beginning can */                     \
	X(ZERO)                                                     \
	X(ONES)                                                     \
	X(NUMBER)  /* a word is a number that breaks sums */        \
	X(POINTER) /* a word leads where nothing can be read */     \
	X(SELF)    /* a word leads to where it was read */          \
	X(BACK)    /* a word leads to something read before */      \
	X(SWAP)    /* a word is another one that was read before */ \
	X(SKEW)    /* a word is no multiple of 8 any more */        \
	X(FLIP)    /* a bit is another one */                       \
	X(TEXT)    /* bytes that are no text, without an end */     \
	X(HANG)    /* it, and nothing after it, ever comes back */

enum mutate {
#define X(name) MUTATE_##name,
	MUTATE_LIST(X)
#undef X
		MUTATE_KINDS,
};

struct mutation {
	u32 nth; /* read, counted over the whole walk */
	u8 kind;
	bool stays; /* the same address gives the same from then on */
	u8 at;      /* which word or bit */
	u32 param;
	u64 addr; /* of the read that it has hit */
	bool hit;
};

struct mutant {
	struct target t;
	struct target *tape; /* borrowed */
	struct mutation m[MUTATE_MAX];
	u32 n;
	u32 first_thread;
	u32 reads;         /* over the whole walk */
	u64 seen_addr[64]; /* of the last reads */
	u64 seen_word[64];
	/* Only reads of fields whose text has this in it are counted and hit; NULL: all. */
	const char *field;
	size_t longer_than; /* and only reads of more bytes */
};

static inline struct mutant *mutant_of(struct target *t)
{
	return (struct mutant *)t;
}

/* --- what is done to the bytes ---------------------------------------------------------------- */

static inline void mutate_word(const struct mutation *m, u8 *data, size_t len, u64 value)
{
	size_t at = len >= 8 ? m->at * 8 % (len / 8 * 8) : 0;

	memcpy(data + at, &value, MIN(len, 8));
}

static inline u64 mutate_old_word(const struct mutation *m, const u8 *data, size_t len)
{
	u64 value = 0;

	memcpy(&value, data + (len >= 8 ? m->at * 8 % (len / 8 * 8) : 0), MIN(len, 8));
	return value;
}

static inline void mutate_text(const struct mutation *m, u8 *data, size_t len)
{
	u64 h = m->param | 1;
	size_t i;

	for (i = 0; i < len; i++) {
		h = h * 6364136223846793005ull + 1442695040888963407ull;
		data[i] = (u8)(h >> 56) | (h & 1 << 20 ? 0x80 : 1);
	}
}

/* 0 or -EFAULT. */
static inline int mutate_bytes(struct mutant *mu, const struct mutation *m, u64 addr, u8 *data,
			       size_t len)
{
	static const u64 numbers[] = {
		UINT64_MAX,         1ull << 63, 1ull << 31, UINT32_MAX, 1ull << 62, 0x7fffffff,
		0x7fffffffffffffff, 1,          1ull << 32, 0xffff,     1000000
	};
	static const u64 pointers[] = { 8,
					0xdead000000000000,
					0xffffffff81000000,
					0x0000800000000000,
					0x00007ffffffff000,
					UINT64_MAX - 7,
					0x1000 };

	switch ((enum mutate)m->kind) {
	case MUTATE_FAIL:
		return -EFAULT;
	case MUTATE_CUT:
		memset(data + len / 2, 0, len - len / 2);
		return len > 1 ? 0 : -EFAULT;
	case MUTATE_ZERO:
		memset(data, 0, len);
		break;
	case MUTATE_ONES:
		memset(data, 0xff, len);
		break;
	case MUTATE_NUMBER:
		mutate_word(m, data, len, numbers[m->param % ARRAY_SIZE(numbers)]);
		break;
	case MUTATE_POINTER:
		mutate_word(m, data, len, pointers[m->param % ARRAY_SIZE(pointers)]);
		break;
	case MUTATE_SELF:
		mutate_word(m, data, len, addr);
		break;
	case MUTATE_BACK:
		mutate_word(m, data, len, mu->seen_addr[m->param % ARRAY_SIZE(mu->seen_addr)]);
		break;
	case MUTATE_SWAP:
		mutate_word(m, data, len, mu->seen_word[m->param % ARRAY_SIZE(mu->seen_word)]);
		break;
	case MUTATE_SKEW:
		mutate_word(m, data, len, mutate_old_word(m, data, len) + 1 + m->param % 7);
		break;
	case MUTATE_FLIP:
		if (len)
			data[m->param / 8 % len] ^= (u8)(1u << m->param % 8);
		break;
	case MUTATE_TEXT:
		mutate_text(m, data, len);
		break;
	case MUTATE_HANG:
		mu->t.hung = true;
		return -EFAULT;
	case MUTATE_NOTHING:
	case MUTATE_KINDS:
		break;
	}
	return 0;
}

static inline bool mutate_hits(struct mutation *m, u32 nth, u64 addr)
{
	if (m->hit)
		return m->stays && m->addr == addr;
	if (m->nth != nth)
		return false;
	m->hit = true;
	m->addr = addr;
	return true;
}

/* After the recording's answer, err: what it was. */
static inline int mutate_answer(struct mutant *mu, u64 addr, u8 *data, size_t len, int err)
{
	u32 nth = mu->reads, i;

	if (len <= mu->longer_than && mu->longer_than)
		return err;
	if (mu->field && !(mu->t.field && strstr(mu->t.field, mu->field)))
		return err;
	mu->reads++;
	mu->seen_addr[nth % ARRAY_SIZE(mu->seen_addr)] = addr;
	if (!err && len >= 8)
		memcpy(&mu->seen_word[nth % ARRAY_SIZE(mu->seen_word)], data, 8);
	for (i = 0; !err && i < mu->n; i++)
		if (mutate_hits(&mu->m[i], nth, addr))
			err = mutate_bytes(mu, &mu->m[i], addr, data, len);
	return err;
}

/* --- the target ------------------------------------------------------------------------------- */

static inline int mutant_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct mutant *mu = mutant_of(t);

	assert(!t->hung);
	mu->tape->reads = 0;
	return mutate_answer(mu, addr, dst, len,
			     target_read_for(mu->tape, addr, dst, len, t->func, t->field));
}

static inline int mutant_string(struct target *t, u64 addr, size_t len, char *dst, size_t size)
{
	struct mutant *mu = mutant_of(t);
	int n;

	assert(!t->hung);
	mu->tape->reads = 0;
	n = target_string_for(mu->tape, addr, len, dst, size, t->func, t->field);
	/* All of the room, so that a text may lose its end. */
	if (n >= 0)
		memset(dst + n, 0, size - (size_t)n);
	if (mutate_answer(mu, addr, (u8 *)dst, MIN(len, size - 1), n < 0 ? n : 0))
		return -EFAULT;
	dst[MIN(len, size - 1)] = '\0';
	return (int)strlen(dst);
}

static inline bool mutant_module(struct target *t, u32 i, struct target_module *ret)
{
	return target_module(mutant_of(t)->tape, i, ret);
}

/* Symbols and sections count as reads: their address and size are words like others. */
static inline u64 mutant_name(struct target *t, u64 addr, u64 *size)
{
	u64 words[2] = { addr, *size };

	if (mutate_answer(mutant_of(t), 0, (u8 *)words, sizeof(words), 0))
		words[0] = words[1] = 0;
	*size = words[1];
	return words[0];
}

static inline u64 mutant_symbol(struct target *t, u32 i, const char *name, u64 *size)
{
	t->field = name;
	return mutant_name(t, target_symbol(mutant_of(t)->tape, i, name, size), size);
}

static inline u64 mutant_section(struct target *t, u32 i, const char *name, u64 *size)
{
	t->field = name;
	return mutant_name(t, target_section(mutant_of(t)->tape, i, name, size), size);
}

static inline bool mutant_function(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi)
{
	u64 words[2];

	if (!target_function(mutant_of(t)->tape, i, addr, lo, hi))
		return false;
	words[0] = *lo;
	words[1] = *hi;
	t->field = "function";
	if (mutate_answer(mutant_of(t), addr, (u8 *)words, sizeof(words), 0))
		return false;
	*lo = words[0];
	*hi = words[1];
	return true;
}

static inline bool mutant_thread(struct target *t, u32 i, struct target_thread *ret)
{
	struct mutant *mu = mutant_of(t);

	if (i >= MUTATE_THREADS || !target_thread(mu->tape, mu->first_thread + i, ret))
		return false;
	t->field = "thread";
	if (mutate_answer(mu, 0, (u8 *)&ret->tp, sizeof(ret->tp), 0))
		ret->tp = 0;
	return true;
}

static inline enum target_memory mutant_memory(struct target *t, u64 addr)
{
	return target_memory(mutant_of(t)->tape, addr);
}

static inline void mutant_begin(struct target *t)
{
	target_begin(mutant_of(t)->tape);
}

static inline void mutant_free(struct target *t)
{
	free(t);
}

/* --- programs ---------------------------------------------------------------------------------- */

/* Owned; the recording is borrowed. NULL: no memory. */
static inline struct mutant *mutant_new(struct target *tape)
{
	static const struct target_ops ops = {
		.read = mutant_read,
		.string = mutant_string,
		.module = mutant_module,
		.symbol = mutant_symbol,
		.section = mutant_section,
		.function = mutant_function,
		.thread = mutant_thread,
		.memory = mutant_memory,
		.begin = mutant_begin,
		.free = mutant_free,
		.direct = true,
	};
	struct mutant *mu = calloc(1, sizeof(*mu));

	if (!mu)
		return NULL;
	mu->t = (struct target){ .ops = &ops, .arch = tape->arch };
	mu->tape = tape;
	return mu;
}

static inline void mutant_add(struct mutant *mu, u32 nth, enum mutate kind, bool stays, u8 at,
			      u32 param)
{
	if (mu->n < MUTATE_MAX)
		mu->m[mu->n++] = (struct mutation){
			.nth = nth, .kind = (u8)kind, .stays = stays, .at = at, .param = param
		};
}

/* MUTATE_BYTES each: which read (2), kind and whether it stays (1), place (1), parameter (4). */
static inline void mutant_program(struct mutant *mu, const u8 *data, size_t len)
{
	for (; len >= MUTATE_BYTES; data += MUTATE_BYTES, len -= MUTATE_BYTES) {
		u32 param;

		memcpy(&param, data + 4, sizeof(param));
		mutant_add(mu, data[0] | (u32)data[1] << 8,
			   (enum mutate)((data[2] & 0x7f) % MUTATE_KINDS), data[2] & 0x80, data[3],
			   param);
	}
}

/* Does the text print as it is: valid UTF-8, no control characters but those of the format? */
static inline bool mutate_is_clean(const char *text, size_t len)
{
	char clean[8192];
	size_t n;

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t line = end ? (size_t)(end - text) : len;
		size_t tab = *text == '\t';

		n = utf8_clean(clean, sizeof(clean), text + tab, line - tab);
		if (n != line - tab || memcmp(clean, text + tab, n))
			return false;
		text += line + (end ? 1 : 0);
		len -= line + (end ? 1 : 0);
	}
	return true;
}

/*
 * Walks; *ret_text is owned and may be NULL. Whatever was done to the process, this holds or the
 * program aborts.
 */
static inline struct fixture_result mutate_run(struct mutant *mu, const char *runtime,
					       char **ret_text)
{
	struct fixture_result result;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert(out);
	if (fixture_walk(&mu->t, runtime, out, &result))
		abort();
	fclose(out);
	if (result.verdict >= UNWIND_VERDICT_MAX || result.reads_max > TARGET_READS_MAX ||
	    !mutate_is_clean(text, len))
		abort();
	if (ret_text)
		*ret_text = text;
	else
		free(text);
	return result;
}
