// SPDX-License-Identifier: Apache-2.0
/*
 * Objects of Ruby: strings, arrays, IDs and the names of classes. In: an address that was found in
 * the process, which may hold anything by now. Out: text. Layouts: include/ruby/internal/core/
 * rstring.h and rarray.h, symbol.c (rb_symbols_t), st.c, internal/class.h.
 */
#include "ruby.h"

#define FLAG_NOEMBED   (1u << 13) /* of a string: its text lies elsewhere */
#define FLAG_EMBED     (1u << 13) /* of an array: its elements lie within */
#define IMEMO_SHIFT    12
#define STRING_MAX     (1u << 20)
#define IDS_PER_ARRAY  512
#define FIRST_NAMED_ID 1024 /* below: operators and keywords, which are their own numbers */
#define IVARS_MAX      256

bool object_is_imemo(uint64_t flags, unsigned type)
{
	return (flags & TYPE_MASK) == TYPE_IMEMO && (flags >> IMEMO_SHIFT & 0xf) == type;
}

static bool is_pointer(uint64_t v)
{
	return v >= 4096 && !(v & 7);
}

/*
 * flags, class, then since 3.2 the length and text or pointer; before, the length of a short text is
 * in the flags and the text follows.
 */
int object_string(struct target *t, const struct ruby *s, uint64_t str, char *dst, size_t size)
{
	uint64_t head[4], len, at;

	*dst = '\0';
	if (!is_pointer(str) || target_read(t, str, head, sizeof(head)) ||
	    (head[0] & TYPE_MASK) != TYPE_STRING)
		return -1;
	len = head[2];
	at = head[3];
	if (!(head[0] & FLAG_NOEMBED)) {
		at = str + (s->l.string_len ? 24 : 16);
		if (!s->l.string_len)
			len = head[0] >> 14 & 0x1f;
	}
	if (len > STRING_MAX)
		return -1;
	return target_string(t, at, (size_t)len, dst, size);
}

uint64_t object_at(struct target *t, uint64_t ary, uint32_t i)
{
	uint64_t head[5], ret;

	if (!is_pointer(ary) || target_read(t, ary, head, sizeof(head)) ||
	    (head[0] & TYPE_MASK) != TYPE_ARRAY)
		return 0;
	if (head[0] & FLAG_EMBED)
		return i < 3 ? head[2 + i] : 0;
	if (i >= head[2] || target_u64(t, head[4] + i * 8ull, &ret))
		return 0;
	return ret;
}

/* The table: {last, set of strings, ids}; ids is an array of arrays of {string, symbol}. */
int object_id(struct target *t, const struct ruby *s, uint64_t id, char *dst, size_t size)
{
	uint64_t serial = id < FIRST_NAMED_ID ? id : id >> 4, ids, part;

	*dst = '\0';
	if (!id || serial > UINT32_MAX || target_u64(t, s->symbols + 16, &ids))
		return -1;
	part = object_at(t, ids, (uint32_t)serial / IDS_PER_ARRAY);
	return object_string(t, s, object_at(t, part, (uint32_t)serial % IDS_PER_ARRAY * 2), dst,
			     size);
}

/* --- classes ------------------------------------------------------------------------------------ */

struct ivars {
	uint64_t entries;
	uint32_t lo, hi;
};

/* A class's variables up to 3.1: class -> rb_classext_t -> st_table -> {hash, id, value}s. */
static bool ivars_read(struct target *t, const struct ruby *s, uint64_t class, struct ivars *ret)
{
	uint64_t ext, table, v[3];

	if (target_u64(t, class + 24, &ext) ||
	    target_u64(t, ext + (uint64_t)s->l.class_ivars, &table) || !is_pointer(table) ||
	    target_read(t, table + 32, v, sizeof(v)) || v[0] > v[1] || v[1] > UINT32_MAX)
		return false;
	*ret = (struct ivars){ .lo = (uint32_t)v[0], .hi = (uint32_t)v[1], .entries = v[2] };
	return true;
}

static int ivar_at(struct target *t, const struct ivars *v, uint32_t i, uint64_t ret[2])
{
	return target_read(t, v->entries + (v->lo + i) * 24ull + 8, ret, 16);
}

/* *ret 0: it has none. */
static int ivar_get(struct target *t, const struct ruby *s, uint64_t class, uint64_t id,
		    uint64_t *ret)
{
	struct ivars v;
	uint64_t pair[2];

	*ret = 0;
	if (!ivars_read(t, s, class, &v))
		return -1;
	for (uint32_t i = 0; i < IVARS_MAX && v.lo + i < v.hi; i++) {
		if (ivar_at(t, &v, i, pair))
			return -1;
		if (pair[0] != id)
			continue;
		*ret = pair[1];
		return 0;
	}
	return 0;
}

static uint64_t ivar_id(struct target *t, const struct ruby *s, uint64_t class, const char *name)
{
	struct ivars v;
	uint64_t pair[2];
	char text[32];

	if (!ivars_read(t, s, class, &v))
		return 0;
	for (uint32_t i = 0; i < IVARS_MAX && v.lo + i < v.hi && !ivar_at(t, &v, i, pair); i++)
		if (object_id(t, s, pair[0], text, sizeof(text)) > 0 && !strcmp(text, name))
			return pair[0];
	return 0;
}

bool object_class_ids(struct target *t, struct ruby *s)
{
	uint64_t addr = target_symbol(t, s->module, "rb_cThread", NULL), class, meta;

	s->classpath = s->attached = 0;
	if (s->l.class_ivars < 0)
		return true;
	if (!addr || target_u64(t, addr, &class) || !is_pointer(class) ||
	    target_u64(t, class + 8, &meta))
		return false;
	s->classpath = ivar_id(t, s, class, "__classpath__");
	s->attached = ivar_id(t, s, meta, "__attached__");
	return s->classpath && s->attached;
}

/* 3.2 keeps names of classes where none of the others does. */
static bool classes_known(const struct ruby *s)
{
	return s->l.class_path >= 0 || s->l.class_ivars >= 0;
}

/*
 * Its name, when it is one for good: "#<Class:0x...>" would be of one moment. 0: it has none, -1: not
 * readable.
 */
static int class_name(struct target *t, const struct ruby *s, uint64_t class, char *dst,
		      size_t size)
{
	uint64_t path;
	uint8_t bits = 1;
	int n;

	*dst = '\0';
	if (s->l.class_path >= 0) {
		if (target_u64(t, class + (uint64_t)s->l.class_path, &path) ||
		    target_read(t, class + (uint64_t)s->l.class_permanent, &bits, 1))
			return -1;
	} else if (ivar_get(t, s, class, s->classpath, &path)) {
		return -1;
	}
	if (!path || !(bits & 1))
		return 0;
	n = object_string(t, s, path, dst, size);
	return n ? n : -1;
}

static bool is_class(uint64_t flags)
{
	return (flags & TYPE_MASK) == TYPE_CLASS || (flags & TYPE_MASK) == TYPE_MODULE;
}

static int class_attached(struct target *t, const struct ruby *s, uint64_t class, uint64_t *ret)
{
	if (s->l.class_attached < 0)
		return ivar_get(t, s, class, s->attached, ret);
	return target_u64(t, class + (uint64_t)s->l.class_attached, ret);
}

int object_class(struct target *t, const struct ruby *s, uint64_t owner, char *dst, size_t size)
{
	const char *mark = "#";
	uint64_t flags;
	int n;

	*dst = '\0';
	if (!owner || !classes_known(s))
		return 0;
	if (!is_pointer(owner) || target_u64(t, owner, &flags) || !is_class(flags))
		return -1;
	if ((flags & TYPE_MASK) == TYPE_CLASS && flags >> s->l.singleton_flag & 1) {
		mark = ".";
		if (class_attached(t, s, owner, &owner) || !is_pointer(owner) ||
		    target_u64(t, owner, &flags))
			return -1;
		if (!is_class(flags))
			return 0;
	}
	n = class_name(t, s, owner, dst, size);
	if (n > 0)
		text_append(dst, size, mark);
	return n;
}
