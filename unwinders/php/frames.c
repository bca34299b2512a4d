// SPDX-License-Identifier: Apache-2.0
/*
 * Frames: turns one list of zend_execute_data into the frames that PHP's own debug_backtrace() has,
 * generators and fibers included, and says where runs of the loop end. In: words that a walk kept.
 */
#include "php.h"

#define PATH_TEXT        512
#define SAPI_REQUEST_URI 48    /* sapi_globals_struct (main/SAPI.h), 7.4 to 8.6 */
#define OPCODES_NEAR     65536 /* further ones are looked at more closely */
#define GENERATORS_MAX   32    /* that delegate to each other */
#define FRAMELESS_FIRST  204   /* ZEND_FRAMELESS_ICALL_0, 8.4 and later */
#define FRAMELESS_LAST   207

#define TYPE_OBJECT    8          /* of a zval; the low byte of the same word */
#define CALL_TOP       (1u << 17) /* called from C: a run of the loop of its own */
#define CALL_GENERATOR (1u << 24)

struct node {
	uint64_t opline, func;
	uint32_t info;
	uint64_t name, opcodes; /* of the function, as they were when the stack was taken */
};

static struct node node_at(const struct list *l, uint32_t i)
{
	const uint64_t *w = l->words + (size_t)i * l->width;

	return (struct node){
		.opline = w[WORD_OPLINE],
		.func = w[WORD_FUNC],
		.info = (uint32_t)w[WORD_INFO],
		.name = w[WORDS],
		.opcodes = w[WORDS + 1],
	};
}

/*
 * Where the innermost frame is: the register while the loop runs it. Memory has the place that was
 * last saved, before a call or what may fail; in a frame that just began it is what lay there.
 */
static uint64_t leaf_place(struct target *t, const struct php *s, const struct list *l,
			   const struct node *n)
{
	struct func f;

	if (func_read(t, s, n->func, &f) != UNWIND_OK)
		return 0;
	if (l->reg && func_holds(&f, l->reg))
		return l->reg;
	return func_holds(&f, n->opline) ? n->opline : 0;
}

/* A place within the function's opcodes is one of code in PHP, which saves most of the reads. */
static bool is_user(struct target *t, const struct node *n)
{
	uint8_t type;

	if (n->opcodes && n->opline >= n->opcodes &&
	    n->opline - n->opcodes < OPCODES_NEAR * OPLINE_SIZE &&
	    !((n->opline - n->opcodes) % OPLINE_SIZE))
		return true;
	return !target_read(t, n->func, &type, sizeof(type)) && type != FUNC_INTERNAL;
}

/* The nameless function at the bottom of a fiber (Zend/zend_fibers.c), and no name not there yet. */
static bool is_fiber_bottom(struct target *t, const struct node *n)
{
	uint64_t name;

	return !target_u64(t, n->func + FUNC_NAME, &name) && !name;
}

/* Where a frame is in its list. */
#define AT_LEAF 1
#define AT_ROOT 2

static enum verdict push(struct target *t, const struct php *s, const struct list *l,
			 const struct node *n, unsigned at, struct frames *ret)
{
	struct frame_key key = { .object = n->func, .check = { n->name, n->opcodes } };
	bool user = is_user(t, n), root = at & AT_ROOT;
	unsigned flags = user ? 0 : FRAME_C;

	if (user)
		key.pos = at & AT_LEAF ? leaf_place(t, s, l, n) : n->opline;
	/* The same code may be a script and an include of another one. */
	if (!n->name)
		key.pos |= root;
	/* Compiled code sets the frame and the place when it comes to need them. */
	if (at & AT_LEAF && l->running && !l->ip_image)
		flags |= FRAME_UNSURE;
	if (frames_push(ret, &key, flags))
		return UNWIND_OK;
	key.pos &= ~1ull;
	return func_name_frame(t, s, &key, root, ret);
}

/*
 * Since 8.4 some functions of PHP are called without a frame of their own; when such a one calls
 * back, its caller's place says which it is (zend_fetch_debug_backtrace in Zend/
 * zend_builtin_functions.c).
 */
static enum verdict push_frameless(struct target *t, const struct php *s, const struct node *n,
				   struct frames *ret)
{
	struct frame_key key = { 0 };
	uint64_t table;
	uint32_t index;
	uint8_t opcode;

	if (!s->frameless || target_read(t, n->opline + OP_OPCODE, &opcode, sizeof(opcode)) ||
	    opcode < FRAMELESS_FIRST || opcode > FRAMELESS_LAST)
		return UNWIND_OK;
	if (target_u32(t, n->opline + OP_EXTENDED, &index) || target_u64(t, s->frameless, &table) ||
	    target_u64(t, table + index * 8ull, &key.object) ||
	    target_u64(t, key.object + FUNC_NAME, &key.check[0]))
		return UNWIND_BAD_FRAME;
	if (frames_push(ret, &key, FRAME_C))
		return UNWIND_OK;
	return func_name_frame(t, s, &key, false, ret);
}

/* A generator's frame by its execute_data, which a generator that delegates keeps for itself. */
static enum verdict push_generator(struct target *t, const struct php *s, uint64_t ex,
				   const struct list *l, struct frames *ret)
{
	struct node n = { 0 };

	if (target_u64(t, ex + EX_OPLINE, &n.opline) || target_u64(t, ex + EX_FUNC, &n.func) ||
	    !n.func || target_u64(t, n.func + FUNC_NAME, &n.name) ||
	    target_u64(t, n.func + (uint64_t)s->l.op_opcodes, &n.opcodes))
		return UNWIND_BAD_FRAME;
	n.info = CALL_GENERATOR;
	return push(t, s, l, &n, 0, ret);
}

/*
 * "yield from": the running generator's list leads to a placeholder in the outermost one, and those
 * between are not in it (zend_generator_check_placeholder_frame in Zend/zend_generators.c). Other
 * frames without a function are what C code puts between when it calls a function.
 */
static bool is_placeholder(const struct list *l, uint32_t i)
{
	struct node n = node_at(l, i);

	return !n.func && i && i + 1 < l->n && (n.info & 0xff) == TYPE_OBJECT &&
	       node_at(l, i - 1).info & CALL_GENERATOR;
}

/* Address of the i-th frame; the thread stands still. */
static int node_address(struct target *t, const struct list *l, uint32_t i, uint64_t *ret)
{
	uint64_t ex = l->head;

	while (i--)
		if (target_u64(t, ex + EX_PREV, &ex))
			return -1;
	*ret = ex;
	return 0;
}

/*
 * The generators that delegate stand still while the innermost runs, but a running thread may have
 * left them all by now: then a mark takes their place.
 */
static enum verdict push_delegates(struct target *t, const struct php *s, uint32_t i,
				   const struct list *l, struct frames *ret)
{
	uint64_t gen, parent, inner, running, ex[GENERATORS_MAX];
	uint32_t depth = 0;

	if (l->running) {
		frames_mark(ret, "(yield from)");
		return UNWIND_OK;
	}
	if (node_address(t, l, i, &gen) || target_u64(t, gen + EX_THIS, &gen))
		return UNWIND_BAD_FRAME;
	for (; depth < GENERATORS_MAX; depth++) {
		if (target_u64(t, gen + (uint64_t)s->l.gen_parent, &parent))
			return UNWIND_BAD_FRAME;
		if (!parent) /* the one that runs, and is in the list */
			break;
		if (target_u64(t, gen + (uint64_t)s->l.gen_execute_data, &ex[depth]))
			return UNWIND_BAD_FRAME;
		gen = parent;
	}
	if (node_address(t, l, i - 1, &inner) ||
	    target_u64(t, gen + (uint64_t)s->l.gen_execute_data, &running) || running != inner)
		return UNWIND_BAD_FRAME;
	while (depth--) {
		enum verdict v = push_generator(t, s, ex[depth], l, ret);

		if (v != UNWIND_OK)
			return v;
	}
	return UNWIND_OK;
}

/*
 * A whole list ends in what C called: a script, or a function that runs at a request's end. A
 * generator that is being resumed is published before its caller is linked to it.
 */
static bool ends_in_root(const struct list *l)
{
	struct node last = node_at(l, l->n - 1);

	/* Without a function it may be one that is not filled in yet. */
	return last.func && last.info & CALL_TOP && !(last.info & CALL_GENERATOR);
}

/*
 * What a request asked for, without the question mark and what follows, which may hold anything. It
 * is read after the stack was taken, so it counts only for a thread that still stands there: the
 * next request may be another one.
 */
static void add_uri(struct target *t, const struct php *s, const struct list *l, struct frames *ret)
{
	uint64_t head, uri;
	char text[PATH_TEXT];

	if (l->running || !s->sapi || target_u64(t, s->sapi + SAPI_REQUEST_URI, &uri) || !uri ||
	    target_string(t, uri, sizeof(text) - 1, text, sizeof(text)) <= 0 ||
	    target_u64(t, s->globals + (uint64_t)s->l.eg_current_execute_data, &head) ||
	    head != l->head)
		return;
	text[strcspn(text, "?")] = '\0';
	frames_label(ret, "request.uri", text);
}

/* The script that a request runs, as the outermost frame has it. */
static void add_labels(struct target *t, const struct php *s, const struct list *l,
		       struct frames *ret)
{
	struct node n = node_at(l, l->n - 1);
	char file[PATH_TEXT];
	struct func f;

	if (!frames_labels_wanted(ret) || l->end != LIST_END_NULL)
		return;
	add_uri(t, s, l, ret);
	if (n.func && !n.name && func_read(t, s, n.func, &f) == UNWIND_OK &&
	    f.opcodes == n.opcodes && string_read(t, f.file, file, sizeof(file)) > 0)
		frames_label(ret, "request.script", file);
}

enum verdict php_frames(struct target *t, const void *state, const struct list *l,
			struct frames *ret)
{
	const struct php *s = state;
	bool any = false, from_c = false;

	if (l->width != WORDS + 2)
		return UNWIND_BAD_LAYOUT;
	if (l->end == LIST_END_MISALIGNED || l->end == LIST_END_ORDER ||
	    (l->end == LIST_END_NULL && !ends_in_root(l)))
		return UNWIND_TORN;
	for (uint32_t i = 0; i < l->n; i++) {
		struct node n = node_at(l, i);
		enum verdict v = UNWIND_OK;
		bool user;

		if (!n.func) {
			if (is_placeholder(l, i))
				v = push_delegates(t, s, i, l, ret);
			if (v != UNWIND_OK)
				return v;
			continue;
		}
		user = is_user(t, &n);
		if (!user && !n.name) {
			if (!is_fiber_bottom(t, &n))
				return UNWIND_TORN;
			frames_switch(ret);
			continue;
		}
		if (user && from_c)
			v = push_frameless(t, s, &n, ret);
		if (v == UNWIND_OK)
			v = push(t, s, l, &n,
				 (any ? 0 : AT_LEAF) |
					 (i + 1 == l->n && l->end == LIST_END_NULL ? AT_ROOT : 0),
				 ret);
		if (v != UNWIND_OK)
			return v;
		any = true;
		from_c = user && n.info & CALL_TOP;
		if (from_c)
			frames_boundary(ret);
	}
	if (any)
		add_labels(t, s, l, ret);
	return any ? UNWIND_OK : UNWIND_IDLE;
}
