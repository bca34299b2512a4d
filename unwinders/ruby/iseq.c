// SPDX-License-Identifier: Apache-2.0
/*
 * The code of a method, block, class body or clause (rb_iseq_t): what it is called, its file, and
 * the line of a place in it. Layouts: vm_core.h (rb_iseq_struct, rb_iseq_constant_body), iseq.h
 * (iseq_insn_info_entry), iseq.c (succ_index_table).
 */
#include "ruby.h"

#define ISEQ_BODY   16
#define BODY_READ   184
#define CODE_MAX    (1u << 24)
#define CLAUSES_MAX 64 /* one in another */
#define IMMEDIATE   54 /* positions that the index has counted out */
#define BLOCK_BITS  512
#define BLOCK_SIZE  80 /* count before it, seven counts within, eight words of bits */

static uint64_t word_at(const uint8_t *body, int32_t off)
{
	uint64_t v;

	memcpy(&v, body + off, sizeof(v));
	return v;
}

static uint32_t half_at(const uint8_t *body, int32_t off)
{
	uint32_t v;

	memcpy(&v, body + off, sizeof(v));
	return v;
}

enum verdict iseq_read(struct target *t, const struct ruby *s, uint64_t addr, struct iseq *ret)
{
	uint64_t head[3];
	uint8_t body[BODY_READ];

	if (addr < 4096 || addr & 7 || target_read(t, addr, head, sizeof(head)))
		return UNWIND_FAULT;
	if (!object_is_imemo(head[0], IMEMO_ISEQ))
		return UNWIND_BAD_FRAME;
	if (target_read(t, head[ISEQ_BODY / 8], body, sizeof(body)))
		return UNWIND_FAULT;
	*ret = (struct iseq){
		.type = half_at(body, 0),
		.size = half_at(body, 4),
		.code = word_at(body, 8),
		.path = word_at(body, 64),
		.base_label = word_at(body, 72),
		.label = word_at(body, 80),
		.firstline = half_at(body, s->l.body_firstline),
		.insns = word_at(body, s->l.body_insns),
		.ninsns = half_at(body, s->l.body_insns + 16),
		.index = word_at(body, s->l.body_insns + 24),
		.parent = word_at(body, s->l.body_parent),
		.local = word_at(body, s->l.body_local),
	};
	if (s->l.firstline_value)
		ret->firstline = (uint32_t)(word_at(body, s->l.body_firstline) >> 1);
	if (s->l.body_attrs >= 0 &&
	    target_u32(t, head[ISEQ_BODY / 8] + (uint64_t)s->l.body_attrs, &ret->attrs))
		return UNWIND_FAULT;
	if (ret->type > ISEQ_PLAIN || ret->size > CODE_MAX || ret->code & 7 ||
	    ret->ninsns > ret->size)
		return UNWIND_BAD_FRAME;
	return UNWIND_OK;
}

bool iseq_holds(const struct iseq *q, uint64_t pc)
{
	return pc >= q->code && pc - q->code <= q->size * 8ull && !(pc & 7);
}

/* --- lines -------------------------------------------------------------------------------------- */

/* How many entries begin at or before this position, by the index; 0: not known. */
static uint32_t rank(struct target *t, const struct iseq *q, uint32_t pos)
{
	uint64_t word, block[BLOCK_SIZE / 8];
	uint32_t i, in_block, n;

	if (pos < IMMEDIATE) {
		if (target_u64(t, q->index + pos / 9 * 8ull, &word))
			return 0;
		return (uint32_t)(word >> pos % 9 * 7) & 0x7f;
	}
	pos -= IMMEDIATE;
	in_block = pos % BLOCK_BITS;
	i = in_block / 64;
	if (target_read(t, q->index + IMMEDIATE / 9 * 8 + (uint64_t)(pos / BLOCK_BITS) * BLOCK_SIZE,
			block, sizeof(block)))
		return 0;
	n = (uint32_t)block[0];
	if (i)
		n += (uint32_t)(block[1] >> (i - 1) * 9) & 0x1ff;
	word = block[2 + i] << (63 - in_block % 64);
	return n + (uint32_t)__builtin_popcountll(word);
}

/* A frame's pc is the next instruction's, so the place is the one before. */
uint32_t iseq_line(struct target *t, const struct ruby *s, const struct iseq *q, uint64_t pc)
{
	uint32_t pos, n = 1, line;

	if (!iseq_holds(q, pc) || !q->ninsns)
		return 0;
	pos = (uint32_t)((pc - q->code) / 8);
	if (pos)
		pos--;
	if (q->ninsns > 1)
		n = rank(t, q, pos);
	if (!n || n > q->ninsns ||
	    target_u32(t, q->insns + (n - 1) * (uint64_t)s->l.insn_size, &line) || line > 1u << 30)
		return 0;
	return line;
}

/* --- names -------------------------------------------------------------------------------------- */

/* Either the path, or an array of it and the real one. */
int iseq_path(struct target *t, const struct ruby *s, const struct iseq *q, char *dst, size_t size)
{
	int n = object_string(t, s, q->path, dst, size);

	return n >= 0 ? n : object_string(t, s, object_at(t, q->path, 0), dst, size);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !memcmp(s + n - m, end, m);
}

/* Since 3.4 a clause is shown as what it is in (calculate_iseq_label() in vm_backtrace.c). */
static enum verdict shown_as(struct target *t, const struct ruby *s, struct iseq *q)
{
	for (uint32_t i = 0; i < CLAUSES_MAX; i++) {
		enum verdict v;

		if (!s->l.hides_clauses ||
		    (q->type != ISEQ_RESCUE && q->type != ISEQ_ENSURE && q->type != ISEQ_EVAL) ||
		    !q->parent)
			return UNWIND_OK;
		v = iseq_read(t, s, q->parent, q);
		if (v != UNWIND_OK)
			return v;
	}
	return UNWIND_BAD_FRAME;
}

int iseq_label(struct target *t, const struct ruby *s, const struct iseq *q, uint64_t owner,
	       char *dst, size_t size)
{
	char base[NAME_SIZE], prefix[NAME_SIZE];
	struct iseq shown = *q, local;
	size_t cut;

	*dst = '\0';
	if (shown_as(t, s, &shown) != UNWIND_OK)
		return -1;
	if (object_string(t, s, shown.label, dst, size) <= 0)
		return -1;
	if (!owner)
		return (int)strlen(dst);
	if (object_string(t, s, shown.base_label, base, sizeof(base)) <= 0 ||
	    iseq_read(t, s, shown.local, &local) != UNWIND_OK)
		return -1;
	if (!ends_with(dst, base) || local.type != ISEQ_METHOD)
		return (int)strlen(dst);
	if (object_class(t, s, owner, prefix, sizeof(prefix)) < 0)
		return -1;
	cut = strlen(dst) - strlen(base);
	dst[cut] = '\0';
	text_append(dst, size, prefix);
	text_append(dst, size, base);
	return (int)strlen(dst);
}
