// SPDX-License-Identifier: Apache-2.0
/*
 * Functions: what lies in a zend_function now, and its name, file and line as PHP shows them. In:
 * addresses that a walk kept, some milliseconds ago. Out: what they mean, or that they mean
 * something else by now.
 */
#include "php.h"

#define OPCODES_MAX (1u << 24)
#define NAME_SIZE   512

#define FUNC_FLAGS      4
#define FLAG_TRAMPOLINE (1u << 18) /* ZEND_ACC_CALL_VIA_TRAMPOLINE */

/* zend_class_entry, zend_string, the same since 7.0. */
#define CLASS_NAME 8
#define STRING_LEN 16
#define STRING_VAL 24

int string_read(struct target *t, uint64_t str, char *dst, size_t size)
{
	uint64_t len;

	*dst = '\0';
	if (!str || str & 7 || target_u64(t, str + STRING_LEN, &len) || len > 1u << 20)
		return -1;
	return target_string(t, str + STRING_VAL, (size_t)len, dst, size);
}

static uint64_t u64_of(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static uint32_t u32_of(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

enum verdict func_read(struct target *t, const struct php *s, uint64_t addr, struct func *ret)
{
	uint8_t bytes[OFFSET_MAX + 8];
	size_t rest = (size_t)s->l.op_line_start + 4 - FUNC_HEAD;

	if (!addr || addr & 7 || target_read(t, addr, bytes, FUNC_HEAD))
		return UNWIND_FAULT;
	*ret = (struct func){
		.type = bytes[0],
		.name = u64_of(bytes + FUNC_NAME),
		.scope = u64_of(bytes + FUNC_SCOPE),
	};
	if (ret->type == FUNC_INTERNAL)
		return UNWIND_OK;
	if (ret->type != FUNC_USER && ret->type != FUNC_EVAL)
		return UNWIND_BAD_FRAME;
	if (target_read(t, addr + FUNC_HEAD, bytes + FUNC_HEAD, rest))
		return UNWIND_FAULT;
	ret->opcodes = u64_of(bytes + s->l.op_opcodes);
	ret->last = u32_of(bytes + s->l.op_last);
	ret->file = u64_of(bytes + s->l.op_filename);
	ret->line_start = u32_of(bytes + s->l.op_line_start);
	ret->handed_on = u32_of(bytes + FUNC_FLAGS) & FLAG_TRAMPOLINE;
	if (ret->opcodes & 7 || !ret->opcodes ||
	    (!ret->handed_on && (!ret->last || ret->last > OPCODES_MAX)))
		return UNWIND_BAD_FRAME;
	return UNWIND_OK;
}

bool func_holds(const struct func *f, uint64_t opline)
{
	return opline >= f->opcodes && opline - f->opcodes < (uint64_t)f->last * OPLINE_SIZE &&
	       !((opline - f->opcodes) % OPLINE_SIZE);
}

/* "Class::method", "function", "{main}", "include", "eval". */
static enum verdict func_name(struct target *t, const struct func *f, bool root, char *dst,
			      size_t size)
{
	char name[NAME_SIZE];
	uint64_t class_name;

	*dst = '\0';
	if (!f->name) {
		text_append(dst, size, root ? "{main}" : f->type == FUNC_EVAL ? "eval" : "include");
		return UNWIND_OK;
	}
	if (f->scope) {
		if (target_u64(t, f->scope + CLASS_NAME, &class_name) ||
		    string_read(t, class_name, name, sizeof(name)) < 0)
			return UNWIND_BAD_FRAME;
		text_append(dst, size, name);
		text_append(dst, size, "::");
	}
	if (string_read(t, f->name, name, sizeof(name)) <= 0)
		return UNWIND_BAD_FRAME;
	text_append(dst, size, name);
	return UNWIND_OK;
}

/* Reads what a new key means. Its place is an opline; 0: none that is known. */
enum verdict func_name_frame(struct target *t, const struct php *s, const struct frame_key *key,
			     bool root, struct frames *ret)
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
	v = func_name(t, &f, root, name, sizeof(name));
	if (v != UNWIND_OK)
		return v;
	if (f.type == FUNC_INTERNAL || f.handed_on) {
		frames_name(ret, name, NULL, 0);
		return UNWIND_OK;
	}
	if (string_read(t, f.file, file, sizeof(file)) < 0)
		return UNWIND_BAD_FRAME;
	if (func_holds(&f, key->pos) && target_u32(t, key->pos + OP_LINENO, &line))
		line = 0;
	frames_name(ret, name, file, line);
	return UNWIND_OK;
}
