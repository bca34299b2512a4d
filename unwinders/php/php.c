// SPDX-License-Identifier: Apache-2.0
/*
 * PHP 7.4 and later, with and without thread safety. Its stack is a list of zend_execute_data that
 * begins in the executor's globals. README.md beside it says where each fact comes from and how a
 * version is added.
 */
#include "unwinders/unwinder.h"
#include "unwinders/php/layouts.h"

#define NAME_SIZE            512
#define FILE_SIZE            1024
#define PATH_TEXT            512
#define MODULES_TO_LOOK_AT   128 /* of PHP's own registry */
#define FUNCTIONS_TO_LOOK_AT 16
#define GENERATORS_MAX       32 /* that delegate to each other */
#define OPLINE_SIZE          32
#define FRAMELESS_FIRST      204 /* ZEND_FRAMELESS_ICALL_0, 8.4 and later */
#define FRAMELESS_LAST       207
#define OPCODES_MAX          (1u << 24)

/* zend_execute_data (Zend/zend_compile.h), the same since 7.0. */
#define EX_OPLINE 0
#define EX_FUNC   24
#define EX_THIS   32
#define EX_INFO   40
#define EX_PREV   48

#define TYPE_OBJECT    8          /* of a zval; the low byte of the same word */
#define CALL_TOP       (1u << 17) /* called from C: a run of the loop of its own */
#define CALL_GENERATOR (1u << 24)

/* zend_function, zend_op, zend_class_entry, zend_string, HashTable, Bucket. */
#define FUNC_NAME     8
#define FUNC_SCOPE    16
#define FUNC_HEAD     24
#define FUNC_INTERNAL 1
#define FUNC_USER     2
#define FUNC_EVAL     4
#define OP_EXTENDED   20
#define OP_OPCODE     28
#define OP_LINENO     24
#define CLASS_NAME    8
#define STRING_LEN    16
#define STRING_VAL    24
#define TABLE_DATA    16
#define TABLE_USED    24
#define BUCKET_SIZE   32
#define BUCKET_KEY    24

/* zend_module_entry (Zend/zend_modules.h). */
#define MODULE_ZTS     9
#define MODULE_NAME    32
#define MODULE_VERSION 88

static const char *const fields[] = {
#define X(name) #name,
	LAYOUT_FIELDS(X)
#undef X
};

#define NFIELDS (sizeof(fields) / sizeof(*fields))

_Static_assert(sizeof(struct layout) == NFIELDS * sizeof(int32_t), "a row is its numbers");

struct php {
	struct layout l;
	uint32_t module;
	bool zts;
	uint64_t frameless; /* address of zend_flf_functions; 0: before 8.4 */
	uint64_t globals;   /* address of the executor's globals; thread safe: 0 */
	/* Thread safe: thread pointer -> block of the thread -> globals. */
	int32_t tls_slot;
	int32_t globals_offset;
	struct code_range loop[2];
	uint32_t nloops;
};

/* Not what differs from object to object: equal calls have to be equal stacks. */
enum { WORD_OPLINE, WORD_FUNC, WORD_INFO, WORDS };

/* --- strings and versions ---------------------------------------------------------------------- */

/* A zend_string's text; its length, or -EFAULT and the like. */
static int string_read(struct target *t, uint64_t str, char *dst, size_t size)
{
	uint64_t len;

	*dst = '\0';
	if (!str || str & 7 || target_u64(t, str + STRING_LEN, &len) || len > 1u << 20)
		return -1;
	return target_string(t, str + STRING_VAL, (size_t)len, dst, size);
}

/* "8.2.36-1+deb12u1" */
static bool parse_version(const char *s, struct version *ret)
{
	uint16_t *const parts[] = { &ret->major, &ret->minor, &ret->patch };

	for (size_t i = 0; i < 3; i++) {
		uint32_t n = 0, digits = 0;

		for (; *s >= '0' && *s <= '9' && digits < 4; s++, digits++)
			n = n * 10 + (uint32_t)(*s - '0');
		if (!digits || (i < 2 && *s++ != '.'))
			return false;
		*parts[i] = (uint16_t)n;
	}
	return true;
}

/*
 * The version, from the registry of PHP's extensions: that of "standard" is PHP's own, and is
 * compiled into the same image. A release's structures may grow, so sizes tell nothing.
 */
static enum verdict read_version(struct target *t, struct php *s, uint64_t registry,
				 struct version *ret)
{
	uint64_t data, module, name;
	char text[32];
	uint8_t zts;
	uint32_t used;

	if (target_u64(t, registry + TABLE_DATA, &data) ||
	    target_u32(t, registry + TABLE_USED, &used))
		return UNWIND_FAULT;
	if (!data || !used)
		return UNWIND_NOT_READY;
	for (uint32_t i = 0; i < used && i < MODULES_TO_LOOK_AT; i++) {
		if (target_u64(t, data + (uint64_t)i * BUCKET_SIZE, &module) || !module ||
		    target_u64(t, module + MODULE_NAME, &name) ||
		    target_string(t, name, sizeof(text) - 1, text, sizeof(text)) < 0 ||
		    strcmp(text, "standard"))
			continue;
		if (target_u64(t, module + MODULE_VERSION, &name) ||
		    target_string(t, name, sizeof(text) - 1, text, sizeof(text)) < 0 ||
		    !parse_version(text, ret) ||
		    target_read(t, module + MODULE_ZTS, &zts, sizeof(zts)))
			return UNWIND_BAD_LAYOUT;
		s->zts = zts != 0;
		return UNWIND_OK;
	}
	return UNWIND_NOT_READY;
}

/* --- thread safety: where a thread keeps its globals -------------------------------------------- */

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
		/* glibc since 2.4 (nptl/descr.h): the first 32 keys lie in the thread's block. */
		if (target_u32(t, at, &key) || key >= 32)
			return 0;
		return (int32_t)(0x310 + 16 * key + 8);
	}
	if (!memcmp(code, "\x48\x8b\x05", 3) && !memcmp(code + 7, "\x64\x48\x8b\x00\xc3", 5)) {
		at = addr + 7 + (uint64_t)(int64_t)read_s32(code + 3);
		if (target_u64(t, at, &at))
			return 0;
		return (int32_t)at;
	}
	return 0;
}

static enum verdict find_thread_globals(struct target *t, struct php *s)
{
	uint64_t addr = target_symbol(t, s->module, "tsrm_get_ls_cache", NULL);
	uint64_t offset = target_symbol(t, s->module, "executor_globals_offset", NULL), value;
	uint8_t code[32];

	if (!addr || !offset || target_arch(t) != TARGET_X86_64)
		return UNWIND_NO_SYMBOL;
	if (target_read(t, addr, code, sizeof(code)) || target_u64(t, offset, &value))
		return UNWIND_FAULT;
	s->tls_slot = decode_x86(t, addr, code);
	if (!s->tls_slot)
		return UNWIND_NO_SYMBOL;
	if (!value)
		return UNWIND_NOT_READY;
	if (value > 1u << 24 || value & 7)
		return UNWIND_BAD_LAYOUT;
	s->globals_offset = (int32_t)value;
	return UNWIND_OK;
}

/* --- detect -------------------------------------------------------------------------------------- */

static bool row_of(struct target *t, const struct version *v, struct layout *ret)
{
	const int32_t *extra = target_layout(t, v);

	if (extra) {
		memcpy(ret, extra, sizeof(*ret));
		return true;
	}
	for (size_t i = 0; i < sizeof(layout_rows) / sizeof(*layout_rows); i++) {
		if (layout_rows[i].major != v->major || layout_rows[i].minor != v->minor)
			continue;
		*ret = layout_rows[i].layout;
		return true;
	}
	return false;
}

/* What lies in a function or in the globals is read with one look. */
static bool layout_sound(const struct layout *l)
{
	const int32_t *v = (const int32_t *)l;

	for (size_t i = 0; i < NFIELDS; i++)
		if (v[i] < 0 || v[i] > 1024 || v[i] & 3)
			return false;
	return !((l->eg_function_table | l->eg_current_execute_data | l->op_opcodes |
		  l->op_filename | l->gen_execute_data | l->gen_parent) &
		 7);
}

static enum verdict detect_in(struct target *t, struct php *s, uint64_t registry,
			      struct version *ret)
{
	enum verdict v = read_version(t, s, registry, ret);

	if (v != UNWIND_OK)
		return v;
	if (!row_of(t, ret, &s->l))
		return UNWIND_VERSION;
	if (!layout_sound(&s->l))
		return UNWIND_BAD_LAYOUT;
	s->frameless = target_symbol(t, s->module, "zend_flf_functions", NULL);
	if (s->zts)
		return find_thread_globals(t, s);
	s->globals = target_symbol(t, s->module, "executor_globals", NULL);
	return s->globals ? UNWIND_OK : UNWIND_NO_SYMBOL;
}

static enum verdict detect(struct target *t, void *state, struct version *ret)
{
	struct php *s = state;
	struct target_module m;

	for (uint32_t i = 0; target_module(t, i, &m); i++) {
		uint64_t registry = target_symbol(t, i, "module_registry", NULL);

		if (!registry || !target_symbol(t, i, "execute_ex", NULL))
			continue;
		s->module = i;
		return detect_in(t, s, registry, ret);
	}
	return UNWIND_NOT_MINE;
}

/* --- self check ----------------------------------------------------------------------------------- */

/* The function zend_version, in a bucket of a table of functions. */
static bool is_zend_version(struct target *t, uint64_t bucket)
{
	uint64_t func, key, name;
	char text[32];
	uint8_t type;

	return !target_u64(t, bucket, &func) && !target_u64(t, bucket + BUCKET_KEY, &key) &&
	       !target_read(t, func, &type, sizeof(type)) && type == FUNC_INTERNAL &&
	       !target_u64(t, func + FUNC_NAME, &name) &&
	       string_read(t, key, text, sizeof(text)) > 0 && !strcmp(text, "zend_version") &&
	       string_read(t, name, text, sizeof(text)) > 0 && !strcmp(text, "zend_version");
}

/*
 * The executor's table of functions begins with those of PHP's core, zend_version the first or
 * one of the first (Zend/zend_builtin_functions.c): proves the globals, the table, functions and
 * strings.
 */
static enum verdict check_globals(struct target *t, const struct php *s, uint64_t globals)
{
	uint64_t table, data;
	uint32_t used;

	if (target_u64(t, globals + (uint64_t)s->l.eg_function_table, &table))
		return UNWIND_FAULT;
	if (!table)
		return UNWIND_NOT_READY;
	if (target_u64(t, table + TABLE_DATA, &data) || target_u32(t, table + TABLE_USED, &used))
		return UNWIND_BAD_LAYOUT;
	if (!data || !used)
		return UNWIND_NOT_READY;
	for (uint32_t i = 0; i < used && i < FUNCTIONS_TO_LOOK_AT; i++)
		if (is_zend_version(t, data + (uint64_t)i * BUCKET_SIZE))
			return UNWIND_OK;
	return UNWIND_BAD_LAYOUT;
}

struct func {
	uint8_t type;
	uint64_t name, scope;
	/* User functions only. */
	uint64_t opcodes, file;
	uint32_t last, line_start;
};

static enum verdict func_read(struct target *t, const struct php *s, uint64_t addr,
			      struct func *ret)
{
	uint8_t head[FUNC_HEAD];

	if (!addr || addr & 7 || target_read(t, addr, head, sizeof(head)))
		return UNWIND_FAULT;
	*ret = (struct func){ .type = head[0] };
	memcpy(&ret->name, head + FUNC_NAME, sizeof(ret->name));
	memcpy(&ret->scope, head + FUNC_SCOPE, sizeof(ret->scope));
	if (ret->type == FUNC_INTERNAL)
		return UNWIND_OK;
	if (ret->type != FUNC_USER && ret->type != FUNC_EVAL)
		return UNWIND_BAD_FRAME;
	if (target_u64(t, addr + (uint64_t)s->l.op_opcodes, &ret->opcodes) ||
	    target_u32(t, addr + (uint64_t)s->l.op_last, &ret->last) ||
	    target_u64(t, addr + (uint64_t)s->l.op_filename, &ret->file) ||
	    target_u32(t, addr + (uint64_t)s->l.op_line_start, &ret->line_start))
		return UNWIND_FAULT;
	if (!ret->last || ret->last > OPCODES_MAX || !ret->opcodes || ret->opcodes & 7)
		return UNWIND_BAD_FRAME;
	return UNWIND_OK;
}

static bool holds(const struct func *f, uint64_t opline)
{
	return opline >= f->opcodes && opline - f->opcodes < (uint64_t)f->last * OPLINE_SIZE &&
	       !((opline - f->opcodes) % OPLINE_SIZE);
}

/*
 * A user function of the stack, if there is one now: it has opcodes with rising line numbers and a
 * file. The process may be running, so what does not fit proves nothing, but two things that fit
 * so well do not come by chance.
 */
static enum verdict check_stack(struct target *t, const struct php *s, uint64_t globals)
{
	uint64_t ex, func;
	char file[FILE_SIZE];
	struct func f;

	if (target_u64(t, globals + (uint64_t)s->l.eg_current_execute_data, &ex))
		return UNWIND_FAULT;
	for (uint32_t i = 0; ex && !(ex & 7) && i < RECIPE_NODES_MAX; i++) {
		if (target_u64(t, ex + EX_FUNC, &func))
			return UNWIND_OK;
		if (func && func_read(t, s, func, &f) == UNWIND_OK && f.type != FUNC_INTERNAL) {
			if (string_read(t, f.file, file, sizeof(file)) <= 0)
				return UNWIND_BAD_LAYOUT;
			return UNWIND_OK;
		}
		if (target_u64(t, ex + EX_PREV, &ex))
			return UNWIND_OK;
	}
	return UNWIND_OK;
}

static void add_loop(struct php *s, uint64_t lo, uint64_t hi)
{
	if (s->nloops < sizeof(s->loop) / sizeof(*s->loop))
		s->loop[s->nloops++] = (struct code_range){ lo, hi };
}

static void find_loops(struct target *t, struct php *s)
{
	uint64_t size, addr = target_symbol(t, s->module, "execute_ex", &size), lo, hi;

	s->nloops = 0;
	if (!addr)
		return;
	if (target_function(t, s->module, addr, &lo, &hi))
		add_loop(s, lo, hi);
	else if (size)
		add_loop(s, addr, addr + size);
	/* What the compiler took to be seldom lies elsewhere; only some builds say where. */
	addr = target_symbol(t, s->module, "execute_ex.cold", &size);
	if (addr && size)
		add_loop(s, addr, addr + size);
}

/* Thread safe: every thread whose pointer is known and that has globals; one has to be sound. */
static enum verdict check_threads(struct target *t, struct php *s)
{
	struct target_thread thread;
	enum verdict v = UNWIND_NOT_READY;
	uint64_t block;

	for (uint32_t i = 0; i < 256 && target_thread(t, i, &thread); i++) {
		if (!thread.tp ||
		    target_u64(t, thread.tp + (uint64_t)(int64_t)s->tls_slot, &block) || !block)
			continue;
		v = check_globals(t, s, block + (uint64_t)s->globals_offset);
		if (v == UNWIND_OK)
			return check_stack(t, s, block + (uint64_t)s->globals_offset);
	}
	return v;
}

static enum verdict self_check(struct target *t, void *state)
{
	struct php *s = state;
	enum verdict v;

	find_loops(t, s);
	if (s->zts)
		return check_threads(t, s);
	v = check_globals(t, s, s->globals);
	return v == UNWIND_OK ? check_stack(t, s, s->globals) : v;
}

/* --- recipe ---------------------------------------------------------------------------------------- */

static void recipe(const void *state, struct recipe *ret)
{
	const struct php *s = state;

	if (s->zts) {
		ret->head = RECIPE_TP;
		ret->hop[ret->nhops++] = s->tls_slot;
		ret->hop[ret->nhops++] = s->globals_offset + s->l.eg_current_execute_data;
	} else {
		ret->head = RECIPE_ADDR;
		ret->addr = s->globals;
		ret->hop[ret->nhops++] = s->l.eg_current_execute_data;
	}
	ret->len = EX_PREV + 8;
	ret->word[WORD_OPLINE] = EX_OPLINE / 8;
	ret->word[WORD_FUNC] = EX_FUNC / 8;
	ret->word[WORD_INFO] = EX_INFO / 8;
	ret->nwords = WORDS;
	ret->next_word = EX_PREV / 8;
	/* A function that was freed and made anew differs in one of these. */
	ret->peek_word[0] = ret->peek_word[1] = WORD_FUNC;
	ret->peek_off[0] = FUNC_NAME;
	ret->peek_off[1] = (int16_t)s->l.op_opcodes;
	ret->npeeks = 2;
	ret->limit = RECIPE_NODES_MAX;
	/*
	 * While the loop runs, its place lies in a register, beside one with the frame: r15 and r14,
	 * x28 and x27 (Zend/zend_execute.c, ZEND_VM_FP_GLOBAL_REG).
	 */
#if defined(__aarch64__)
	ret->reg_is_head = 27;
	ret->reg_kept = 28;
#else
	ret->reg_is_head = 1; /* r14 in struct user_regs */
	ret->reg_kept = 0;    /* r15 */
#endif
}

/* --- frames ---------------------------------------------------------------------------------------- */

static void append(char *dst, size_t size, const char *s)
{
	size_t n = strlen(dst), len = strlen(s);

	if (len > size - 1 - n)
		len = size - 1 - n;
	memcpy(dst + n, s, len);
	dst[n + len] = '\0';
}

/* "Class::method", "function", "{main}", "include", "eval". */
static enum verdict func_name(struct target *t, const struct func *f, bool top, char *dst,
			      size_t size)
{
	char name[NAME_SIZE];
	uint64_t class_name;

	*dst = '\0';
	if (!f->name) {
		append(dst, size, f->type == FUNC_EVAL ? "eval" : top ? "{main}" : "include");
		return UNWIND_OK;
	}
	if (f->scope) {
		if (target_u64(t, f->scope + CLASS_NAME, &class_name) ||
		    string_read(t, class_name, name, sizeof(name)) < 0)
			return UNWIND_BAD_FRAME;
		append(dst, size, name);
		append(dst, size, "::");
	}
	if (string_read(t, f->name, name, sizeof(name)) <= 0)
		return UNWIND_BAD_FRAME;
	append(dst, size, name);
	return UNWIND_OK;
}

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

/* Reads what a new key means. Its place is an opline; 0: none that is known. */
static enum verdict name_frame(struct target *t, const struct php *s, const struct frame_key *key,
			       bool top, struct frames *ret)
{
	char name[2 * NAME_SIZE + 4], file[FILE_SIZE];
	uint32_t line = 0;
	struct func f;
	enum verdict v = func_read(t, s, key->object, &f);

	if (v != UNWIND_OK || f.name != key->check[0] ||
	    (f.type != FUNC_INTERNAL && f.opcodes != key->check[1])) {
		frames_gone(ret);
		return UNWIND_OK;
	}
	v = func_name(t, &f, top, name, sizeof(name));
	if (v != UNWIND_OK)
		return v;
	if (f.type == FUNC_INTERNAL) {
		frames_name(ret, name, NULL, 0);
		return UNWIND_OK;
	}
	if (string_read(t, f.file, file, sizeof(file)) < 0)
		return UNWIND_BAD_FRAME;
	if (holds(&f, key->pos) && target_u32(t, key->pos + OP_LINENO, &line))
		line = 0;
	frames_name(ret, name, file, line);
	return UNWIND_OK;
}

/*
 * Where the innermost frame is: the register while the loop runs it. Memory has the place that was
 * last saved, before a call or what may fail; in a frame that just began it is what lay there.
 */
static uint64_t leaf_place(struct target *t, const struct php *s, const struct list *l,
			   const struct node *n)
{
	struct func f;

	if (l->reg)
		return l->reg;
	if (func_read(t, s, n->func, &f) != UNWIND_OK || !holds(&f, n->opline))
		return 0;
	return n->opline;
}

static bool is_user(struct target *t, const struct node *n)
{
	uint8_t type;

	return !target_read(t, n->func, &type, sizeof(type)) && type != FUNC_INTERNAL;
}

static enum verdict push(struct target *t, const struct php *s, const struct list *l,
			 const struct node *n, bool leaf, struct frames *ret)
{
	struct frame_key key = { .object = n->func, .check = { n->name, n->opcodes } };
	bool user = is_user(t, n), top = n->info & CALL_TOP;

	if (user)
		key.pos = leaf ? leaf_place(t, s, l, n) : n->opline;
	/* The same code may be a script's top and an include. */
	if (!n->name)
		key.pos |= top;
	if (frames_push(ret, &key, user ? 0 : FRAME_C))
		return UNWIND_OK;
	key.pos &= ~1ull;
	return name_frame(t, s, &key, top, ret);
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
	return name_frame(t, s, &key, false, ret);
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
	return push(t, s, l, &n, false, ret);
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
	uint64_t gen, parent, ex[GENERATORS_MAX];
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

	return !last.func || (last.info & CALL_TOP && !(last.info & CALL_GENERATOR));
}

static void add_labels(struct target *t, const struct php *s, const struct list *l,
		       struct frames *ret)
{
	struct node n = node_at(l, l->n - 1);
	char file[PATH_TEXT];
	struct func f;

	if (!frames_labels_wanted(ret) || !n.func || n.name)
		return;
	if (func_read(t, s, n.func, &f) == UNWIND_OK && f.opcodes == n.opcodes &&
	    string_read(t, f.file, file, sizeof(file)) > 0)
		frames_label(ret, "request.script", file);
}

static enum verdict frames(struct target *t, const void *state, const struct list *l,
			   struct frames *ret)
{
	const struct php *s = state;
	bool any = false, leaf = true, from_c = false;

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
		/* The nameless function at the bottom of a fiber (Zend/zend_fibers.c). */
		if (!user && !n.name) {
			frames_switch(ret);
			continue;
		}
		if (user && from_c)
			v = push_frameless(t, s, &n, ret);
		if (v == UNWIND_OK)
			v = push(t, s, l, &n, leaf, ret);
		if (v != UNWIND_OK)
			return v;
		any = true;
		leaf = false;
		from_c = user && n.info & CALL_TOP;
		if (from_c)
			frames_boundary(ret);
	}
	if (any)
		add_labels(t, s, l, ret);
	return any ? UNWIND_OK : UNWIND_IDLE;
}

static uint32_t loops(const void *state, struct code_range ret[UNWINDER_LOOPS])
{
	const struct php *s = state;

	memcpy(ret, s->loop, sizeof(s->loop));
	return s->nloops;
}

static const struct unwinder php = {
	.name = "php",
	.title = "PHP",
	.sample_type = "php_wall",
	.ranges = { { "php", { 7, 4, 0 }, { 8, 6, 0 } } },
	.state_size = sizeof(struct php),
	.layout_fields = fields,
	.nlayout_fields = NFIELDS,
	.detect = detect,
	.self_check = self_check,
	.recipe = recipe,
	.frames = frames,
	.loops = loops,
};
UNWINDER_REGISTER(php);
