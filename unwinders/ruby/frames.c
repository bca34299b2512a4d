// SPDX-License-Identifier: Apache-2.0
/*
 * Control frames of one thread into frames with names: which are shown, whose method each one is,
 * and where one call of the loop ends. In: the words that a walk kept of each frame. The thread may
 * have run on since: what is read now is proven to be what it was then, or left unsaid.
 */
#include "ruby.h"

#define EP_CHAIN_MAX 64

/* enum vm_frame_env_flags, in the word that ep points to. */
#define MAGIC_MASK   0x7fff0001u
#define MAGIC_METHOD 0x11110001u
#define MAGIC_BLOCK  0x22220001u
#define MAGIC_CLASS  0x33330001u
#define MAGIC_TOP    0x44440001u
#define MAGIC_CFUNC  0x55550001u
#define MAGIC_IFUNC  0x66660001u
#define MAGIC_EVAL   0x77770001u
#define MAGIC_RESCUE 0x78880001u
#define MAGIC_DUMMY  0x79990001u
#define FLAG_FINISH  0x20u
#define FLAG_LOCAL   0x02u

/* rb_callable_method_entry_t, rb_method_definition_struct (method.h); vm_svar (internal/imemo.h). */
#define METHOD_DEF      16
#define METHOD_OWNER    32
#define DEF_TYPE_MASK   0xfu
#define DEF_TYPE_ISEQ   0
#define DEF_ISEQ        8
#define DEF_ORIGINAL_ID 32
#define SVAR_CREF_OR_ME 8

/* --- methods ------------------------------------------------------------------------------------- */

/*
 * What lies below a frame's flags: a method entry, or where the method has used $~ or $_, a
 * structure that has it. *ret 0: neither, or it is no more. -1: not readable.
 */
static int method_entry(struct target *t, uint64_t addr, uint64_t *ret)
{
	uint64_t head[2];

	*ret = 0;
	for (uint32_t i = 0; i < 2; i++) {
		if (addr < 4096 || addr & 7)
			return 0;
		if (target_read(t, addr, head, sizeof(head)))
			return -1;
		if (object_is_imemo(head[0], IMEMO_MENT)) {
			*ret = addr;
			return 0;
		}
		if (!object_is_imemo(head[0], IMEMO_SVAR))
			return 0;
		addr = head[SVAR_CREF_OR_ME / 8];
	}
	return 0;
}

struct method {
	uint64_t def, owner;
	uint64_t iseq; /* 0: not in Ruby */
	uint64_t id;
};

static int method_read(struct target *t, uint64_t addr, struct method *ret)
{
	uint64_t v[5], def[5];

	if (target_read(t, addr, v, sizeof(v)) || !object_is_imemo(v[0], IMEMO_MENT) ||
	    target_read(t, v[METHOD_DEF / 8], def, sizeof(def)))
		return -1;
	*ret = (struct method){
		.def = v[METHOD_DEF / 8],
		.owner = v[METHOD_OWNER / 8],
		.iseq = (def[0] & DEF_TYPE_MASK) == DEF_TYPE_ISEQ ? def[DEF_ISEQ / 8] : 0,
		.id = def[DEF_ORIGINAL_ID / 8],
	};
	return 0;
}

/* The method entry, when it is the one of this code. */
static int entry_of(struct target *t, uint64_t addr, uint64_t iseq, uint64_t *ret)
{
	struct method m;

	if (method_entry(t, addr, ret) || (*ret && method_read(t, *ret, &m)))
		return -1;
	if (*ret && m.iseq != iseq)
		*ret = 0;
	return 0;
}

/* --- frames -------------------------------------------------------------------------------------- */

struct node {
	uint64_t pc, iseq, ep, flags, method;
};

static struct node node_at(const struct list *l, uint32_t i)
{
	const uint64_t *w = l->words + (size_t)i * l->width;

	return (struct node){
		.pc = w[WORD_PC],
		.iseq = w[WORD_ISEQ],
		.ep = w[WORD_EP],
		.flags = w[WORDS + PEEK_FLAGS],
		.method = w[WORDS + PEEK_METHOD],
	};
}

static uint32_t magic(const struct node *n)
{
	return n->flags >> 32 ? 0 : (uint32_t)n->flags & MAGIC_MASK;
}

static bool is_frame(const struct node *n)
{
	static const uint32_t known[] = { MAGIC_METHOD, MAGIC_BLOCK,  MAGIC_CLASS,
					  MAGIC_TOP,    MAGIC_CFUNC,  MAGIC_IFUNC,
					  MAGIC_EVAL,   MAGIC_RESCUE, MAGIC_DUMMY };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (magic(n) == known[i])
			return true;
	return false;
}

/* Code in Ruby. What C code passes as a block, and the stack's first frame, have no place. */
static bool is_ruby(const struct node *n)
{
	return n->iseq && n->pc && magic(n) != MAGIC_CFUNC && magic(n) != MAGIC_IFUNC &&
	       magic(n) != MAGIC_DUMMY;
}

/* By the environments that a block's frame leads to. */
static int entry_by_env(struct target *t, uint64_t ep, uint64_t local, uint64_t *ret)
{
	uint64_t v[3];

	for (uint32_t k = 0; k < EP_CHAIN_MAX; k++) {
		if (target_read(t, ep + (uint64_t)EP_METHOD, v, sizeof(v)) ||
		    entry_of(t, v[0], local, ret))
			return -1;
		if (*ret || v[2] & FLAG_LOCAL)
			return 0;
		ep = v[1] & ~3ull;
	}
	return 0;
}

/*
 * The entry of the method that a frame's code is in. A block's frame does not have it: the frame of
 * the method that it is written in does, farther out, while that is still there; else the
 * environments lead to it, which a thread that has run on may have left: an entry of other code is
 * not taken. *ret 0: not known, -1: not readable.
 */
static int home_entry(struct target *t, const struct list *l, uint32_t i, uint64_t local,
		      uint64_t *ret)
{
	*ret = 0;
	for (uint32_t k = i; k < l->n; k++) {
		struct node n = node_at(l, k);

		if (n.iseq != local || magic(&n) != MAGIC_METHOD)
			continue;
		if (entry_of(t, n.method, local, ret))
			return -1;
		if (*ret)
			return 0;
	}
	if (entry_by_env(t, node_at(l, i).ep, local, ret))
		return l->running ? 0 : -1;
	return 0;
}

struct walk {
	struct target *t;
	const struct ruby *s;
	const struct list *l;
	struct frames *out;
	bool any;
};

static bool is_internal(const char *path)
{
	return !strncmp(path, "<internal:", 10);
}

/* Reads what a new key means. False: it is no more. */
static bool name_ruby(struct walk *w, uint32_t i, const struct frame_key *key, unsigned flags)
{
	char name[LABEL_SIZE], path[FILE_SIZE];
	struct method m = { 0 };
	uint64_t me;
	struct iseq q;

	if (iseq_read(w->t, w->s, key->object, &q) != UNWIND_OK)
		return false;
	/* Compiled code leaves an old place behind. */
	if (!iseq_holds(&q, key->pos) && !(flags & FRAME_UNSURE))
		return false;
	if (home_entry(w->t, w->l, i, q.local, &me) || (me && method_read(w->t, me, &m)) ||
	    iseq_label(w->t, w->s, &q, m.owner, name, sizeof(name)) <= 0 ||
	    iseq_path(w->t, w->s, &q, path, sizeof(path)) < 0)
		return false;
	/* Written in Ruby, but shown like a function in C: without a place of its own. */
	if (q.attrs & ATTR_C_TRACE || (w->s->l.hides_internal > 0 && is_internal(path)))
		frames_name(w->out, name, NULL, 0);
	else
		frames_name(w->out, name, path, iseq_line(w->t, w->s, &q, key->pos));
	return true;
}

/*
 * What is known already takes no read: the code and the place in it, which lies in memory of the
 * code's own, tell a frame from all others. Code that two classes share (module_function) has the
 * class that it was first met with.
 */
static void push_ruby(struct walk *w, uint32_t i, unsigned flags)
{
	struct node n = node_at(w->l, i);
	struct frame_key key = { .object = n.iseq, .pos = n.pc };

	if (!frames_push(w->out, &key, flags) && !name_ruby(w, i, &key, flags))
		frames_gone(w->out);
}

static bool name_c(struct walk *w, const struct frame_key *key)
{
	char name[NAME_SIZE], full[LABEL_SIZE];
	struct method m;
	uint64_t me;

	if (method_entry(w->t, key->object, &me) || !me || method_read(w->t, me, &m) ||
	    object_id(w->t, w->s, m.id, name, sizeof(name)) <= 0 ||
	    object_class(w->t, w->s, m.owner, full, sizeof(full)) < 0)
		return false;
	text_append(full, sizeof(full), name);
	frames_name(w->out, full, NULL, 0);
	return true;
}

/* The place that C code was called from: the next frame's in Ruby. */
static uint64_t call_site(const struct list *l, uint32_t i)
{
	for (; i < l->n; i++) {
		struct node n = node_at(l, i);

		if (is_ruby(&n))
			return n.pc;
	}
	return 0;
}

/*
 * Entries of methods move when the heap is compacted, and another one may come to lie there, but not
 * one that is called from the same place.
 */
static void push_c(struct walk *w, uint32_t i, unsigned flags)
{
	struct node n = node_at(w->l, i);
	struct frame_key key = { .object = n.method, .pos = call_site(w->l, i) };

	if (!frames_push(w->out, &key, flags | FRAME_C) && !name_c(w, &key))
		frames_gone(w->out);
}

/*
 * Compiled code makes a new frame the innermost one before it is filled in: such a frame is left out,
 * and as one cannot always tell, the innermost one is unsure while compiled code runs.
 */
static bool skip_leaf(const struct list *l, bool *ret_compiled)
{
	struct node n = node_at(l, 0);

	*ret_compiled = l->running && l->ip && !l->ip_image;
	return *ret_compiled && !is_frame(&n);
}

enum verdict frames_of(struct target *t, const void *state, const struct list *l,
		       struct frames *ret)
{
	struct walk w = { .t = t, .s = state, .l = l, .out = ret };
	bool compiled, skip_clause = false;
	uint32_t first;

	if (l->width != WORDS + PEEKS)
		return UNWIND_BAD_LAYOUT;
	if (l->end != LIST_END_END && l->end != LIST_END_LIMIT && l->end != LIST_END_UNREADABLE)
		return UNWIND_TORN;
	if (l->flag)
		frames_mark(ret, "(garbage collection)");
	first = skip_leaf(l, &compiled);
	for (uint32_t i = first; i < l->n; i++) {
		struct node n = node_at(l, i);
		unsigned flags = compiled && !w.any ? FRAME_UNSURE : 0;

		if (!is_frame(&n))
			return UNWIND_TORN;
		if (is_ruby(&n)) {
			if (!skip_clause)
				push_ruby(&w, i, flags);
			skip_clause = w.s->l.hides_clauses > 0 && magic(&n) == MAGIC_RESCUE;
			w.any = true;
		} else if (magic(&n) == MAGIC_CFUNC) {
			push_c(&w, i, flags);
			w.any = true;
		}
		if (n.flags & FLAG_FINISH && is_ruby(&n))
			frames_boundary(ret);
	}
	return w.any ? UNWIND_OK : UNWIND_IDLE;
}
