// SPDX-License-Identifier: Apache-2.0
/*
 * PHP 7.4 and later, with and without thread safety. Its stack is a list of zend_execute_data that
 * begins in the executor's globals. README.md beside it says where each fact comes from and how a
 * version is added.
 */
#include "php.h"

#define MODULES_TO_LOOK_AT 128 /* of PHP's own registry */
#define BUCKETS_TO_LOOK_AT 16
#define OFFSET_MAX         1024

/* HashTable and Bucket, the same since 7.0. */
#define TABLE_DATA  16
#define TABLE_USED  24
#define BUCKET_SIZE 32
#define BUCKET_KEY  24

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

/* --- which version ---------------------------------------------------------------------------- */

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
		    !version_parse(text, ret) ||
		    target_read(t, module + MODULE_ZTS, &zts, sizeof(zts)))
			return UNWIND_BAD_LAYOUT;
		s->zts = zts != 0;
		return UNWIND_OK;
	}
	return UNWIND_NOT_READY;
}

/* --- detect -------------------------------------------------------------------------------------- */

/* A function is read from its head to op_line_start, so what is read of it lies between. */
static bool layout_sound(const struct layout *l)
{
	const int32_t *v = (const int32_t *)l;

	for (size_t i = 0; i < NFIELDS; i++)
		if (v[i] < 0 || v[i] > OFFSET_MAX || v[i] & 3)
			return false;
	if (l->op_opcodes < FUNC_HEAD || l->op_last < FUNC_HEAD || l->op_filename < FUNC_HEAD ||
	    l->op_opcodes > l->op_line_start - 4 || l->op_last > l->op_line_start ||
	    l->op_filename > l->op_line_start - 4)
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
	if (!target_layout(t, ret, layout_rows, &s->l))
		return UNWIND_VERSION;
	if (!layout_sound(&s->l))
		return UNWIND_BAD_LAYOUT;
	s->frameless = target_symbol(t, s->module, "zend_flf_functions", NULL);
	if (s->zts)
		return owner_find_globals(t, s);
	/* Programs have this from the C library's start files, libraries have it not. */
	s->library = !target_symbol(t, s->module, "_IO_stdin_used", NULL);
	s->sapi = target_symbol(t, s->module, "sapi_globals", NULL);
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

/* The constant E_ERROR, in a bucket of a table of constants: a zval of 1 and its name. */
static bool is_e_error(struct target *t, uint64_t bucket)
{
	uint64_t constant, value, key;
	char text[16];

	return !target_u64(t, bucket, &constant) && !target_u64(t, bucket + BUCKET_KEY, &key) &&
	       !target_u64(t, constant, &value) && value == 1 &&
	       string_read(t, key, text, sizeof(text)) > 0 && !strcmp(text, "E_ERROR");
}

/* Does a HashTable have that among its first? NOT_READY: there is no table, or nothing in it. */
static enum verdict table_begins(struct target *t, uint64_t field,
				 bool (*is)(struct target *t, uint64_t bucket))
{
	uint64_t table, data;
	uint32_t used;

	if (target_u64(t, field, &table))
		return UNWIND_FAULT;
	if (!table)
		return UNWIND_NOT_READY;
	if (table & 7 || target_u64(t, table + TABLE_DATA, &data) ||
	    target_u32(t, table + TABLE_USED, &used))
		return UNWIND_BAD_LAYOUT;
	if (!data || !used)
		return UNWIND_NOT_READY;
	for (uint32_t i = 0; i < used && i < BUCKETS_TO_LOOK_AT; i++)
		if (is(t, data + (uint64_t)i * BUCKET_SIZE))
			return UNWIND_OK;
	return UNWIND_BAD_LAYOUT;
}

/*
 * The executor's table of functions begins with those of PHP's core, zend_version the first or
 * one of the first (Zend/zend_builtin_functions.c): proves the globals, the table, functions and
 * strings. A server's worker has it from its first request on, but the table of constants, two
 * fields further, from the start; its first is E_ERROR (Zend/zend_constants.c).
 */
enum verdict globals_check(struct target *t, const struct php *s, uint64_t globals)
{
	uint64_t functions = globals + (uint64_t)s->l.eg_function_table;
	enum verdict v = table_begins(t, functions, is_zend_version);

	return v == UNWIND_NOT_READY ? table_begins(t, functions + 16, is_e_error) : v;
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

static enum verdict self_check(struct target *t, void *state)
{
	struct php *s = state;
	uint64_t globals = s->globals;
	enum verdict v;

	find_loops(t, s);
	v = s->zts ? owner_prove_globals(t, s, &globals) : globals_check(t, s, globals);
	if (v == UNWIND_OK && !s->zts)
		v = owner_find(t, s);
	if (v != UNWIND_OK)
		return v;
	return check_stack(t, s, globals);
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
		ret->head = s->by_thread ? RECIPE_TID : RECIPE_ADDR;
		ret->addr = s->globals;
		ret->first_thread = 1;
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
	/* Compiled code takes the place of execute_ex() on the stack, or is called by it. */
	.loop_runs = true,
	.detect = detect,
	.self_check = self_check,
	.recipe = recipe,
	.heads = owner_heads,
	.frames = php_frames,
	.loops = loops,
};
UNWINDER_REGISTER(php);
