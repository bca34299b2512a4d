// SPDX-License-Identifier: Apache-2.0
/*
 * Code objects: an address and a place in it become a qualified name, a file and a line. All of it
 * is read from the process: strings of any width (PEP 393), and the three formats that line tables
 * had (Objects/lnotab_notes.txt of 3.6 to 3.10, InternalDocs/code_objects.md of 3.13).
 */
#include "cpython.h"

#define LINES_MAX (1u << 20) /* bytes of a line table that are looked at */
#define CODE_MAX  512        /* no field of a code object lies beyond */

/* --- objects ---------------------------------------------------------------------------------- */

bool object_is(struct target *t, const struct cpython *s, uint64_t addr, const char *type,
	       uint64_t *ret_type)
{
	uint64_t ob_type, name;
	char text[16];

	if (!addr || addr & 7 || target_u64(t, addr + s->l.object_type, &ob_type) || !ob_type ||
	    target_u64(t, ob_type + s->l.type_name, &name) ||
	    target_string(t, name, sizeof(text) - 1, text, sizeof(text)) < 0 || strcmp(text, type))
		return false;
	*ret_type = ob_type;
	return true;
}

/* The same once the type is known. */
static bool object_has_type(struct target *t, const struct cpython *s, uint64_t addr, uint64_t type)
{
	uint64_t ob_type;

	return addr && !(addr & 7) && !target_u64(t, addr + s->l.object_type, &ob_type) &&
	       ob_type == type;
}

static uint64_t word_at(const uint8_t *bytes, int32_t off)
{
	uint64_t v;

	memcpy(&v, bytes + off, sizeof(v));
	return v;
}

static int32_t int_at(const uint8_t *bytes, int32_t off)
{
	int32_t v;

	memcpy(&v, bytes + off, sizeof(v));
	return v;
}

/* All fields are below CODE_MAX - 8: self_check() has seen to it. */
static size_t code_size(const struct layout *l)
{
	const int32_t fields[] = { l->code_file,  l->code_name,  l->code_qualname,
				   l->code_lines, l->bytes_size, l->code_firstline & ~7,
				   l->object_type };
	int32_t max = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (fields[i] > max)
			max = fields[i];
	return (size_t)max + 8;
}

enum verdict code_read(struct target *t, const struct cpython *s, uint64_t addr, struct code *ret)
{
	const struct layout *l = &s->l;
	uint8_t bytes[CODE_MAX];
	uint64_t type;

	if (addr < 4096 || addr & 7 || target_read(t, addr, bytes, code_size(l)))
		return UNWIND_FAULT;
	*ret = (struct code){
		.addr = addr,
		.name = word_at(bytes, l->code_qualname < 0 ? l->code_name : l->code_qualname),
		.file = word_at(bytes, l->code_file),
		.lines = word_at(bytes, l->code_lines),
		.firstline = int_at(bytes, l->code_firstline),
	};
	ret->check[0] = ret->name;
	ret->check[1] = word_at(bytes, l->code_firstline & ~7);
	if (l->positions == POSITIONS_TABLE)
		ret->nunits = word_at(bytes, l->bytes_size);
	type = word_at(bytes, l->object_type);
	if (s->code_type ? type != s->code_type : !object_is(t, s, addr, "code", &type))
		return UNWIND_BAD_FRAME;
	return UNWIND_OK;
}

/* --- strings ---------------------------------------------------------------------------------- */

/* Appends a code point; false: no room. A lone surrogate is no character of UTF-8. */
static bool put_utf8(char *dst, size_t size, size_t *n, uint32_t c)
{
	char b[4];
	size_t len = 0;

	if (!c || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		c = 0xfffd;
	if (c < 0x80) {
		b[len++] = (char)c;
	} else if (c < 0x800) {
		b[len++] = (char)(0xc0 | c >> 6);
		b[len++] = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		b[len++] = (char)(0xe0 | c >> 12);
		b[len++] = (char)(0x80 | (c >> 6 & 63));
		b[len++] = (char)(0x80 | (c & 63));
	} else {
		b[len++] = (char)(0xf0 | c >> 18);
		b[len++] = (char)(0x80 | (c >> 12 & 63));
		b[len++] = (char)(0x80 | (c >> 6 & 63));
		b[len++] = (char)(0x80 | (c & 63));
	}
	if (*n + len >= size)
		return false;
	memcpy(dst + *n, b, len);
	*n += len;
	return true;
}

static enum verdict wide_read(struct target *t, uint64_t addr, unsigned kind, size_t len, char *dst,
			      size_t size)
{
	uint8_t units[NAME_MAX_ * 4];
	size_t n = 0;

	if (target_read(t, addr, units, len * kind))
		return UNWIND_FAULT;
	for (size_t i = 0; i < len; i++) {
		uint32_t c = 0;

		memcpy(&c, units + i * kind, kind);
		if (!put_utf8(dst, size, &n, c))
			break;
	}
	dst[n] = '\0';
	return UNWIND_OK;
}

enum verdict text_read(struct target *t, const struct cpython *s, uint64_t addr, char *dst,
		       size_t size)
{
	const struct layout *l = &s->l;
	uint64_t len;
	uint32_t state;
	unsigned kind;
	bool compact, ascii;

	if (s->text_type && !object_has_type(t, s, addr, s->text_type))
		return UNWIND_BAD_FRAME;
	if (target_u64(t, addr + l->text_length, &len) ||
	    target_u32(t, addr + l->text_state, &state))
		return UNWIND_FAULT;
	state >>= l->text_kind;
	kind = state & 7;
	compact = state >> 3 & 1;
	ascii = state >> 4 & 1;
	if (!compact || (kind != 1 && kind != 2 && kind != 4) || len >> 62)
		return UNWIND_BAD_FRAME;
	if (size > NAME_MAX_)
		size = NAME_MAX_;
	if (len > size - 1)
		len = size - 1;
	if (!ascii)
		return wide_read(t, addr + l->text_ascii + l->text_wide, kind, len, dst, size);
	return target_string(t, addr + l->text_ascii, len, dst, size) < 0 ? UNWIND_FAULT
									  : UNWIND_OK;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* A line table, byte by byte, read in pieces. */
struct table {
	struct target *t;
	uint64_t addr;
	uint32_t len, at;
	bool capped; /* it is longer than we look */
	bool cut;    /* more was wanted than could be had: what it gave is no line */
	uint8_t piece[256];
};

static bool table_open(struct table *b, struct target *t, const struct cpython *s, uint64_t object)
{
	uint64_t len;

	if (!object_has_type(t, s, object, s->bytes_type) ||
	    target_u64(t, object + s->l.bytes_size, &len))
		return false;
	b->t = t;
	b->addr = object + s->l.bytes_data;
	b->len = len < LINES_MAX ? (uint32_t)len : LINES_MAX;
	b->capped = len > LINES_MAX;
	b->cut = false;
	b->at = 0;
	return true;
}

/* The next byte, -1 at the end. */
static int table_byte(struct table *b)
{
	uint32_t i = b->at % sizeof(b->piece), n = b->len - b->at;

	if (b->at >= b->len) {
		b->cut |= b->capped;
		return -1;
	}
	if (!i && target_read(b->t, b->addr + b->at, b->piece,
			      n < sizeof(b->piece) ? n : sizeof(b->piece))) {
		b->len = b->at;
		b->capped = b->cut = true;
		return -1;
	}
	b->at++;
	return b->piece[i];
}

/* Six bits a byte, the lowest first; bit 6: more follow. */
static uint32_t table_varint(struct table *b)
{
	uint32_t v = 0;

	for (unsigned shift = 0; shift < 36; shift += 6) {
		int c = table_byte(b);

		if (c < 0)
			break;
		if (shift < 32)
			v |= (uint32_t)(c & 63) << shift;
		if (!(c & 64))
			break;
	}
	return v;
}

/* Bit 0 is the sign. */
static int32_t table_signed(struct table *b)
{
	uint32_t v = table_varint(b);

	return v & 1 ? -(int32_t)(v >> 1) : (int32_t)(v >> 1);
}

static void table_skip(struct table *b, unsigned bytes)
{
	while (bytes--)
		table_byte(b);
}

/* 3.11 and later: entries of 1 to 8 instructions; what is in them is in their first byte. */
static int64_t line_of_table(struct table *b, int64_t line, int64_t pos)
{
	int64_t at = 0;
	int c;

	/* An entry takes a byte at least. */
	while ((c = table_byte(b)) >= 0) {
		unsigned kind = (unsigned)c >> 3 & 15;

		if (kind == 14) {
			line += table_signed(b);
			table_varint(b);
			table_varint(b);
			table_varint(b);
		} else if (kind == 13) {
			line += table_signed(b);
		} else if (kind >= 10 && kind <= 12) {
			line += kind - 10;
			table_skip(b, 2);
		} else if (kind < 10) {
			table_skip(b, 1);
		}
		at += (c & 7) + 1;
		if (pos < at)
			return kind == 15 ? 0 : line;
	}
	return 0;
}

/* 3.10: pairs of bytes of code and change of line; -128: these have none. */
static int64_t line_of_pairs(struct table *b, int64_t line, int64_t pos)
{
	int64_t at = 0;
	int bytes, change;

	while ((bytes = table_byte(b)) >= 0 && (change = table_byte(b)) >= 0) {
		bool none = change == 128;

		if (!none)
			line += (int8_t)change;
		at += bytes;
		if (pos < at)
			return none ? 0 : line;
	}
	return 0;
}

/* Before: pairs of bytes since the last pair, and change of line from there on. */
static int64_t line_of_lnotab(struct table *b, int64_t line, int64_t pos)
{
	int64_t at = 0;
	int bytes, change;

	while ((bytes = table_byte(b)) >= 0 && (change = table_byte(b)) >= 0) {
		at += bytes;
		if (at > pos)
			break;
		line += (int8_t)change;
	}
	return line;
}

uint32_t code_line(struct target *t, const struct cpython *s, const struct code *c, int64_t pos)
{
	struct table b;
	int64_t line = c->firstline;

	/* Before its first instruction a function is at its first line. */
	if (pos >= 0) {
		if (!table_open(&b, t, s, c->lines))
			return 0;
		switch (s->l.positions) {
		case POSITIONS_TABLE:
			line = line_of_table(&b, line, pos);
			break;
		case POSITIONS_UNITS:
			line = line_of_pairs(&b, line, pos * 2);
			break;
		default:
			line = line_of_lnotab(&b, line, pos);
		}
		if (b.cut)
			return 0;
	}
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* --- frames ----------------------------------------------------------------------------------- */

enum verdict code_name(struct target *t, const struct cpython *s, const struct frame_key *key,
		       struct frames *ret)
{
	char func[NAME_MAX_], file[NAME_MAX_];
	int64_t pos = (int64_t)key->pos;
	struct code c;
	enum verdict v = code_read(t, s, key->object, &c);

	/* Was it a code object when the stack was taken? Then it is gone; else it never was one. */
	if (v == UNWIND_FAULT && !key->check[0] && !key->check[1])
		return UNWIND_BAD_FRAME;
	if (v == UNWIND_FAULT || c.check[0] != key->check[0] || c.check[1] != key->check[1]) {
		frames_gone(ret);
		return UNWIND_OK;
	}
	if (v != UNWIND_OK)
		return v;
	if (pos < -1 || (c.nunits && pos >= (int64_t)c.nunits))
		return UNWIND_BAD_FRAME;
	v = text_read(t, s, c.name, func, sizeof(func));
	if (v != UNWIND_OK)
		return v;
	if (text_read(t, s, c.file, file, sizeof(file)) != UNWIND_OK)
		file[0] = '\0';
	frames_name(ret, func, file[0] ? file : NULL, code_line(t, s, &c, pos));
	return UNWIND_OK;
}
