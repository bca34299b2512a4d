// SPDX-License-Identifier: Apache-2.0
/*
 * CPython 3.6 and later. Finds the interpreter in a process by what is in it, takes its own table of
 * offsets (3.13 on) or a row of layouts.h, proves them on its threads and code objects, and turns
 * lists of interpreter frames into functions, files and lines. README.md beside it says where each
 * fact comes from and how a version is added.
 */
#include "cpython.h"

#define COOKIE          0x7970677562656478ull /* "xdebugpy" */
#define TABLE_MAX       256 /* words of the interpreter's table that a row may name */
#define FRAMES_SEEN_MAX 128
#define OFFSET_MAX      (1 << 22)
#define PARTS_MAX       16 /* interpreters that one thread is in */

static const char *const fields[] = {
#define X(name) #name,
	LAYOUT_FIELDS(X)
#undef X
};

#define NFIELDS (sizeof(fields) / sizeof(*fields))

_Static_assert(sizeof(struct layout) == NFIELDS * sizeof(int32_t), "a row is its numbers");
_Static_assert(NFIELDS <= UNWINDER_FIELDS, "core gives no more");

/* --- which version ---------------------------------------------------------------------------- */

static bool has(struct target *t, uint32_t module, const char *symbol)
{
	return target_symbol(t, module, symbol, NULL) != 0;
}

static struct version of_hex(uint64_t hex)
{
	return (struct version){ hex >> 24 & 0xff, hex >> 16 & 0xff, hex >> 8 & 0xff };
}

/* What came with which release (Include/, "New in version" of the C API's documentation). */
static uint16_t minor_by_symbols(struct target *t, uint32_t module)
{
	static const struct {
		const char *symbol;
		uint16_t minor;
	} since[] = {
		{ "PyModule_AddObjectRef", 10 },    { "PyFrame_GetCode", 9 },
		{ "PyCode_NewWithPosOnlyArgs", 8 }, { "_PyRuntime", 7 },
		{ "_PyEval_EvalFrameDefault", 6 },
	};

	for (size_t i = 0; i < sizeof(since) / sizeof(*since); i++)
		if (has(t, module, since[i].symbol))
			return since[i].minor;
	return 0;
}

/* 3.10 and older tell their version in no word of memory that a symbol names. */
static struct version version_by_symbols(struct target *t, uint32_t module)
{
	uint64_t addr = target_symbol(t, module, "Py_Version", NULL), hex;

	if (addr && !target_u64(t, addr, &hex))
		return of_hex(hex);
	if (has(t, module, "PyString_Type"))
		return (struct version){ 2, 7, 0 };
	return (struct version){ 3, minor_by_symbols(t, module), 0 };
}

/* --- the interpreter's own table -------------------------------------------------------------- */

/* PLACED numbers become what the table has at these places. */
static enum verdict resolve_table(struct target *t, struct cpython *s)
{
	uint64_t table[TABLE_MAX];
	int32_t *const placed[] = {
#define X(name) &s->l.name,
		LAYOUT_PLACED(X)
#undef X
	};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(placed) / sizeof(*placed); i++) {
		if (*placed[i] >= TABLE_MAX)
			return UNWIND_BAD_LAYOUT;
		if (*placed[i] >= (int32_t)n)
			n = (size_t)*placed[i] + 1;
	}
	if (target_read(t, s->runtime, table, n * sizeof(*table)))
		return UNWIND_FAULT;
	s->free_threaded = table[2] != 0;
	for (size_t i = 0; i < sizeof(placed) / sizeof(*placed); i++) {
		if (*placed[i] < 0)
			continue;
		if (table[*placed[i]] > OFFSET_MAX)
			return UNWIND_BAD_LAYOUT;
		*placed[i] = (int32_t)table[*placed[i]];
	}
	if (s->free_threaded)
		s->l.text_kind = s->l.text_kind_free;
	else
		s->l.frame_copy = s->l.code_copies = -1;
	return UNWIND_OK;
}

static bool all_within(const int32_t *v, size_t n, int32_t max)
{
	for (size_t i = 0; i < n; i++)
		if (v[i] < -1 || v[i] > max)
			return false;
	return true;
}

/* What is to be read in one piece has to fit into it; pointers are aligned. */
static bool layout_sound(const struct layout *l)
{
	const int32_t node[] = { l->frame_code, l->frame_previous, l->frame_instr, l->frame_owner,
				 l->frame_copy };
	const int32_t code[] = { l->code_file,      l->code_name,  l->code_qualname, l->code_lines,
				 l->code_firstline, l->bytes_size, l->object_type };
	const int32_t pointers = l->frame_code | l->frame_previous | l->code_file | l->code_name |
				 l->code_lines | l->object_type |
				 (l->code_qualname < 0 ? 0 : l->code_qualname) |
				 (l->positions == POSITIONS_TABLE ? l->frame_instr : 0);

	return all_within(node, sizeof(node) / sizeof(*node), RECIPE_NODE_MAX + 16) &&
	       all_within(code, sizeof(code) / sizeof(*code), 480) &&
	       all_within((const int32_t *)l, NFIELDS, OFFSET_MAX) && !(pointers & 7) &&
	       l->frame_code >= 0 && l->frame_previous >= 0 && l->frame_instr >= 0 &&
	       l->code_name >= 0 && l->code_file >= 0 && l->code_lines >= 0 &&
	       l->code_firstline >= 0 && l->object_type >= 0 && l->type_name >= 0 &&
	       l->bytes_size >= 0 && l->bytes_data >= 0 && l->runtime_interps >= 0 &&
	       (l->frames == FRAMES_OBJECTS) == (l->frame_owner < 0) && l->text_kind >= 0 &&
	       l->text_kind <= 24;
}

/* --- detect ----------------------------------------------------------------------------------- */

/* The image with an interpreter; its version, and where its structure begins. */
static bool find_runtime(struct target *t, uint32_t module, struct cpython *s)
{
	uint64_t addr = target_section(t, module, ".PyRuntime", NULL);

	if (!addr)
		addr = target_symbol(t, module, "_PyRuntime", NULL);
	if (!addr && has(t, module, "_PyThreadState_Current")) {
		/* 3.6 has no such structure, only a pointer to the first interpreter. */
		addr = target_symbol(t, module, "interp_head", NULL);
		if (!addr)
			addr = 1;
	}
	s->runtime = addr;
	s->module = module;
	return addr != 0;
}

/*
 * sys.hexversion, for those that tell their patch release nowhere else: the table of the dictionary
 * of sys is scanned for it (Objects/dict-common.h and longintrepr.h of 3.6 to 3.10).
 */
static void find_patch(struct target *t, const struct cpython *s, struct version *ret)
{
	uint64_t interp, dict, keys, head[5], entry[3], digits, at;
	char name[16];

	if (target_u64(t, s->interps, &interp) ||
	    target_u64(t, interp + (uint64_t)s->l.interp_sys, &dict) ||
	    target_u64(t, dict + 32, &keys) || target_read(t, keys, head, sizeof(head)) ||
	    head[1] < 8 || head[1] > 65536)
		return;
	at = keys + 40 + head[1] * (head[1] <= 0xff ? 1 : head[1] <= 0xffff ? 2 : 4);
	for (uint32_t i = 0; i < 512 && i < head[4]; i++) {
		if (target_read(t, at + i * sizeof(entry), entry, sizeof(entry)))
			return;
		if (!entry[1] || text_read(t, s, entry[1], name, sizeof(name)) ||
		    strcmp(name, "hexversion") || target_u64(t, entry[2] + 24, &digits))
			continue;
		if (of_hex(digits).minor == ret->minor)
			ret->patch = of_hex(digits).patch;
		return;
	}
}

static enum verdict detect_in(struct target *t, struct cpython *s, struct version *ret)
{
	uint64_t head[2];
	enum verdict v;

	if (target_read(t, s->runtime, head, sizeof(head)))
		head[0] = 0;
	*ret = head[0] == COOKIE ? of_hex(head[1]) : version_by_symbols(t, s->module);
	if (s->runtime == 1)
		return ret->minor == 6 ? UNWIND_NO_SYMBOL : UNWIND_VERSION;
	if (!target_layout(t, ret, layout_rows, &s->l))
		return UNWIND_VERSION;
	if (s->l.table && head[0] != COOKIE)
		return UNWIND_NOT_READY;
	v = s->l.table ? resolve_table(t, s) : UNWIND_OK;
	if (v != UNWIND_OK)
		return v;
	if (!layout_sound(&s->l))
		return UNWIND_BAD_LAYOUT;
	s->minor = ret->minor;
	s->interps = s->runtime + (uint64_t)s->l.runtime_interps;
	s->key = s->l.runtime_key < 0 ? 0 : s->runtime + (uint64_t)s->l.runtime_key;
	if (s->l.interp_sys >= 0)
		find_patch(t, s, ret);
	return UNWIND_OK;
}

/*
 * A program may hold two interpreters, its own and one that a library brought: the one that lives
 * counts.
 */
static enum verdict detect(struct target *t, void *state, struct version *ret)
{
	enum verdict best = UNWIND_NOT_MINE;
	struct cpython *s = state;
	struct target_module m;
	uint64_t first;

	for (uint32_t i = 0; target_module(t, i, &m); i++) {
		struct cpython found = { 0 };
		struct version v = { 0 };
		enum verdict verdict;

		if (!find_runtime(t, i, &found))
			continue;
		verdict = detect_in(t, &found, &v);
		if (best != UNWIND_NOT_MINE &&
		    (verdict != UNWIND_OK || target_u64(t, found.interps, &first) || !first))
			continue;
		best = verdict;
		*s = found;
		*ret = v;
		if (best == UNWIND_OK && !target_u64(t, s->interps, &first) && first)
			break;
	}
	return best;
}

/* --- self check ------------------------------------------------------------------------------- */

/* A code object with names that are strings and a line table that is bytes. */
static enum verdict check_code(struct target *t, struct cpython *s, uint64_t addr)
{
	char name[NAME_MAX_];
	struct code c;
	enum verdict v = code_read(t, s, addr, &c);
	uint64_t text, bytes;

	if (v != UNWIND_OK)
		return v;
	if (!object_is(t, s, c.name, "str", &text) || !object_is(t, s, c.file, "str", &text) ||
	    !object_is(t, s, c.lines, "bytes", &bytes))
		return UNWIND_BAD_LAYOUT;
	v = text_read(t, s, c.name, name, sizeof(name));
	if (v != UNWIND_OK || !name[0] || c.firstline < 0)
		return UNWIND_BAD_LAYOUT;
	object_is(t, s, addr, "code", &s->code_type);
	s->text_type = text;
	s->bytes_type = bytes;
	return UNWIND_OK;
}

/*
 * Looks for a code object among the frames of a thread. The thread may be running: its list may
 * lead astray, which proves nothing.
 */
static enum verdict check_frames(struct target *t, struct cpython *s, uint64_t state)
{
	uint64_t frame, code;
	enum verdict v = UNWIND_NOT_READY;

	if (state_frame(t, s, state, &frame))
		return UNWIND_NOT_READY;
	for (uint32_t i = 0; frame && !(frame & 7) && i < FRAMES_SEEN_MAX; i++) {
		if (target_u64(t, frame + (uint64_t)s->l.frame_code, &code))
			return v;
		v = check_code(t, s, code & ~7ull);
		if (v == UNWIND_OK || v == UNWIND_BAD_LAYOUT)
			return v;
		v = UNWIND_NOT_READY;
		if (target_u64(t, frame + (uint64_t)s->l.frame_previous, &frame))
			return v;
	}
	return v;
}

static enum verdict self_check(struct target *t, void *state)
{
	struct state states[PROOFS_MAX];
	struct cpython *s = state;
	enum verdict v;
	uint32_t n;

	v = states_list(t, s, states, PROOFS_MAX, &n);
	if (v != UNWIND_OK)
		return v;
	s->code_type = s->text_type = s->bytes_type = 0;
	v = UNWIND_NOT_READY;
	for (uint32_t i = 0; i < n && !s->code_type; i++)
		v = check_frames(t, s, states[i].addr);
	if (v != UNWIND_OK)
		return v;
	loops_find(t, s);
	entry_find(t, s);
	/* Without it lists that are taken while the function begins could not be told. */
	if (s->l.cframe_frame >= 0 && !s->nloops)
		return UNWIND_NO_SYMBOL;
	return threads_prove(t, s, states, n);
}

/* --- recipe ----------------------------------------------------------------------------------- */

static void grow(int32_t field, int32_t *lo, int32_t *hi)
{
	if (field < 0)
		return;
	field &= ~7;
	if (field < *lo)
		*lo = field;
	if (field + 8 > *hi)
		*hi = field + 8;
}

static uint8_t node_word(const struct recipe *r, int32_t field)
{
	return (uint8_t)((field - r->lo) / 8);
}

static void recipe(const void *state, struct recipe *ret)
{
	const struct cpython *s = state;
	const struct layout *l = &s->l;
	int32_t lo = INT32_MAX, hi = 0;

	ret->head = s->head;
	for (uint8_t i = 0; i < s->nhops; i++)
		ret->hop[ret->nhops++] = s->hop[i];
	ret->thread_hops = s->nhops;
	ret->hop[ret->nhops++] = l->thread_frame;
	if (l->cframe_frame >= 0)
		ret->hop[ret->nhops++] = l->cframe_frame;
	grow(l->frame_code, &lo, &hi);
	grow(l->frame_previous, &lo, &hi);
	grow(l->frame_instr, &lo, &hi);
	grow(l->frame_owner, &lo, &hi);
	ret->lo = lo;
	ret->len = (uint16_t)(hi - lo > RECIPE_NODE_MAX ? RECIPE_NODE_MAX : hi - lo);
	ret->next_word = node_word(ret, l->frame_previous);
	ret->word[WORD_CODE] = node_word(ret, l->frame_code);
	ret->word[WORD_INSTR] = node_word(ret, l->frame_instr);
	ret->nwords = WORD_INSTR + 1;
	if (l->frame_owner >= 0)
		ret->word[ret->nwords++] = node_word(ret, l->frame_owner);
	ret->peek_word[0] = ret->peek_word[1] = WORD_CODE;
	ret->peek_off[0] = (int16_t)(l->code_qualname < 0 ? l->code_name : l->code_qualname);
	ret->peek_off[1] = (int16_t)(l->code_firstline & ~7);
	ret->npeeks = 2;
	ret->limit = RECIPE_NODES_MAX;
	/* A thread has a state in each interpreter that it has entered. */
	ret->groups = s->interps;
	ret->group_next = l->interp_next;
	ret->group_member = l->interp_threads;
	ret->member_next = l->thread_next;
	ret->member_id = l->thread_ident;
}

static enum verdict heads(struct target *t, const void *state, struct heads *ret)
{
	const struct cpython *s = state;
	struct state states[256];
	enum verdict v;
	uint32_t n;

	v = states_list(t, s, states, sizeof(states) / sizeof(*states), &n);
	for (uint32_t i = 0; v == UNWIND_OK && i < n; i++)
		if (states[i].native)
			heads_add(ret, states[i].native, states[i].addr);
	return v;
}

/* --- frames ----------------------------------------------------------------------------------- */

struct node {
	uint64_t code, instr, owner_word, check[2];
};

static struct node node_at(const struct cpython *s, const struct list *l, uint32_t i)
{
	const uint64_t *w = l->words + (size_t)i * l->width;
	uint32_t nwords = l->width - 2;

	return (struct node){
		.code = w[WORD_CODE] & ~7ull,
		.instr = w[WORD_INSTR],
		.owner_word = s->l.frame_owner < 0 ? 0 : w[WORD_OWNER],
		.check = { w[nwords], w[nwords + 1] },
	};
}

static uint8_t byte_of(uint64_t word, int32_t field)
{
	return (uint8_t)(word >> (field & 7) * 8);
}

/* enum _frameowner: 1 is a generator's frame; from 3 on a frame on the C stack, no function's. */
static bool is_shim(const struct cpython *s, const struct node *n)
{
	return s->l.frames >= FRAMES_SHIM && byte_of(n->owner_word, s->l.frame_owner) >= 3;
}

/* The outermost frame that one call of the eval loop runs. */
static bool is_entry(const struct cpython *s, const struct node *n)
{
	return s->l.frames == FRAMES_OBJECTS ||
	       (s->l.frames == FRAMES_ENTRY && byte_of(n->owner_word, s->l.frame_owner - 1));
}

/* The frames of one interpreter: nodes [from, to) of the list. */
struct part {
	uint32_t from, to;
	bool whole;
	uint64_t root; /* place on the C stack of its outermost call of the eval loop, 0: unknown */
};

/* Those without a frame are left out. False: more than a thread can be in. */
static bool split(const struct cpython *s, const struct list *l,
		  struct part parts[static PARTS_MAX], uint32_t *n)
{
	uint32_t from = 0;

	*n = 0;
	for (uint32_t i = 0; i <= l->n; i++) {
		const uint64_t *w = l->words + (size_t)i * l->width;
		bool seam = i < l->n && w[0] == RECIPE_SEAM;
		struct part p = { from, i, seam || l->end == LIST_END_NULL, 0 };

		if (i < l->n && !seam)
			continue;
		from = i + 1;
		if (seam)
			p.root = w[s->l.frames == FRAMES_BASE ? 2 : 1];
		/* The frame that all lists end in belongs to no run of the loop. */
		if (s->l.frames == FRAMES_BASE && p.whole && p.to > p.from) {
			struct node base = node_at(s, l, p.to - 1);

			p.to -= is_shim(s, &base);
		}
		if (p.to == p.from)
			continue;
		if (*n == PARTS_MAX)
			return false;
		parts[(*n)++] = p;
	}
	return true;
}

/*
 * Puts the interpreter that runs now first, and the one that the thread began in last. Up to 3.11 the
 * thread's own state stays the first that it had; the others are met newest first. Later it is that
 * of the interpreter that runs; that the others are met in the order in which they were entered is
 * proven by their places on the C stack: two that call each other by turns are on it by turns.
 */
static bool in_order(const struct cpython *s, struct part *parts, uint32_t n)
{
	struct part first = parts[0];

	if (n < 2)
		return true;
	if (!parts[n - 1].whole)
		return false;
	if (s->l.frames < FRAMES_SHIM) {
		memmove(parts, parts + 1, (n - 1) * sizeof(*parts));
		parts[n - 1] = first;
		return true;
	}
	for (uint32_t i = 1; i < n; i++)
		if (parts[i].root <= parts[i - 1].root)
			return false;
	return true;
}

/*
 * Of a whole list the last frame is where some call of the eval loop began. A generator that is
 * being resumed is published before its caller is linked to it, and would look like one.
 */
static bool ends_in_root(const struct cpython *s, const struct list *l, const struct part *p)
{
	struct node last;

	if (!p->whole)
		return true;
	last = node_at(s, l, p->to - 1);
	return is_shim(s, &last) || is_entry(s, &last);
}

/* The thread's list is being changed: see entry.c. */
static bool is_half_made(const struct cpython *s, const struct list *l)
{
	uint32_t i;

	for (i = 0; i < s->nhalf; i++)
		if (l->ip >= s->half[i].lo && l->ip < s->half[i].hi)
			return true;
	return false;
}

/* Free-threaded: which copy of its code the frame runs. */
static uint64_t code_start(struct target *t, const struct cpython *s, const struct node *n)
{
	uint64_t copies, size, start = n->code + (uint64_t)s->l.code_bytes;
	uint32_t i;

	if (s->l.frame_copy < 0 || s->l.code_copies < 0 ||
	    (s->l.frame_copy ^ s->l.frame_owner) & ~7 || s->l.frame_copy & 3)
		return start;
	i = (uint32_t)(n->owner_word >> (s->l.frame_copy & 4) * 8);
	if (!i || target_u64(t, n->code + (uint64_t)s->l.code_copies, &copies) ||
	    target_u64(t, copies, &size) || i >= size ||
	    target_u64(t, copies + 8 + i * 8ull, &start))
		return n->code + (uint64_t)s->l.code_bytes;
	return start;
}

/* The place in the code, in instructions (bytes before 3.10); -1: at its start. */
static int64_t code_pos(struct target *t, const struct cpython *s, const struct node *n)
{
	if (s->l.positions == POSITIONS_TABLE)
		return (int64_t)(n->instr - code_start(t, s, n)) >> 1;
	return (int32_t)(n->instr >> (s->l.frame_instr & 4) * 8);
}

/* The interpreter runs constructors through code of its own that is nobody's function. */
static bool is_helper(struct target *t, const struct cpython *s, const struct node *n)
{
	int32_t line = (int32_t)(n->check[1] >> (s->l.code_firstline & 4) * 8);

	return s->l.frames >= FRAMES_SHIM && n->check[0] && !line &&
	       target_memory(t, n->code) == TARGET_IMAGE;
}

static enum verdict push(struct target *t, const struct cpython *s, const struct node *n,
			 struct frames *ret)
{
	struct frame_key key = { .object = n->code, .check = { n->check[0], n->check[1] } };

	if (!n->code)
		return UNWIND_BAD_FRAME;
	if (is_helper(t, s, n))
		return UNWIND_OK;
	key.pos = (uint64_t)code_pos(t, s, n);
	if (frames_push(ret, &key, 0))
		return UNWIND_OK;
	return code_name(t, s, &key, ret);
}

/* *any: there were some. */
static enum verdict part_frames(struct target *t, const struct cpython *s, const struct list *l,
				const struct part *p, struct frames *ret, bool *any)
{
	for (uint32_t i = p->from; i < p->to; i++) {
		struct node node = node_at(s, l, i);
		enum verdict v;

		if (is_shim(s, &node)) {
			frames_boundary(ret);
			continue;
		}
		v = push(t, s, &node, ret);
		if (v != UNWIND_OK)
			return v;
		*any = true;
		if (is_entry(s, &node))
			frames_boundary(ret);
	}
	return UNWIND_OK;
}

static enum verdict frames(struct target *t, const void *state, const struct list *l,
			   struct frames *ret)
{
	const struct cpython *s = state;
	struct part parts[PARTS_MAX];
	bool any = false;
	uint32_t n;

	if (l->width != (s->l.frame_owner < 0 ? 2 : 3) + 2)
		return UNWIND_BAD_LAYOUT;
	if (is_half_made(s, l) || l->end == LIST_END_MISALIGNED || l->end == LIST_END_ORDER)
		return UNWIND_TORN;
	if (!split(s, l, parts, &n) || !in_order(s, parts, n))
		return UNWIND_TORN;
	for (uint32_t i = 0; i < n; i++)
		if (!ends_in_root(s, l, &parts[i]))
			return UNWIND_TORN;
	for (uint32_t i = 0; i < n; i++) {
		enum verdict v = part_frames(t, s, l, &parts[i], ret, &any);

		if (v != UNWIND_OK)
			return v;
	}
	return any ? UNWIND_OK : UNWIND_IDLE;
}

static uint32_t loops(const void *state, struct code_range ret[UNWINDER_LOOPS])
{
	const struct cpython *s = state;

	memcpy(ret, s->loops, sizeof(s->loops));
	return s->nloops;
}

static const struct unwinder cpython = {
	.name = "cpython",
	.title = "CPython",
	.sample_type = "python_wall",
	.ranges = { { "python", { 3, 13, 0 }, { 3, 15, 0 } },
		    { "python_legacy", { 3, 6, 0 }, { 3, 12, 0 } } },
	.state_size = sizeof(struct cpython),
	.layout_fields = fields,
	.nlayout_fields = NFIELDS,
	.detect = detect,
	.self_check = self_check,
	.recipe = recipe,
	.heads = heads,
	.frames = frames,
	.loops = loops,
};
UNWINDER_REGISTER(cpython);
