// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See layout.h. One pass over the file's lines; a section is finished by the next. */
#include "layout.h"

#include "target.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define ANY_PATCH UINT16_MAX

struct row {
	struct version version; /* patch ANY_PATCH: all that have no row of their own */
	u32 line;
	u64 set; /* bit per field */
	s32 value[UNWINDER_FIELDS];
};

struct layouts {
	u32 n, cap;
	struct row *rows;
};

struct parse {
	const char *name;
	const struct unwinder *u;
	struct layouts *ls;
	u32 line;
	char *err;
	size_t err_size;
};

static int bad(struct parse *p, u32 line, const char *fmt, ...) __printf(3, 4);
static int bad(struct parse *p, u32 line, const char *fmt, ...)
{
	char why[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	snprintf(p->err, p->err_size, "%s:%u: %s", p->name, line, why);
	return -EINVAL;
}

/* "3.16" or "3.16.2", nothing else. */
static bool parse_version(const char *s, struct version *ret)
{
	unsigned int v[3] = { 0, 0, ANY_PATCH };
	u32 i;

	for (i = 0; i < 3; i++) {
		char *end;

		if (!isdigit((u8)*s))
			return false;
		v[i] = (unsigned int)MIN(strtoul(s, &end, 10), 65535ul);
		if (v[i] == ANY_PATCH)
			return false;
		s = end;
		if (!*s && i)
			break;
		if (i == 2 || *s++ != '.')
			return false;
	}
	*ret = (struct version){ (uint16_t)v[0], (uint16_t)v[1], (uint16_t)v[2] };
	return true;
}

static bool same_version(const struct version *a, const struct version *b)
{
	return a->major == b->major && a->minor == b->minor && a->patch == b->patch;
}

static struct row *find_row(const struct layouts *ls, const struct version *v)
{
	u32 i;

	for (i = 0; i < ls->n; i++)
		if (same_version(&ls->rows[i].version, v))
			return &ls->rows[i];
	return NULL;
}

/* The section that ends here has all its numbers. */
static int end_section(struct parse *p)
{
	const struct row *r = p->ls->n ? &p->ls->rows[p->ls->n - 1] : NULL;
	u32 i;

	for (i = 0; r && i < p->u->nlayout_fields; i++)
		if (!(r->set & 1ull << i))
			return bad(p, r->line, "this section lacks the field '%s'",
				   p->u->layout_fields[i]);
	return 0;
}

static int begin_section(struct parse *p, char *s)
{
	char *close = strchr(s, ']');
	struct version v;
	int err = end_section(p);

	if (err)
		return err;
	if (!close || close[1])
		return bad(p, p->line, "expected [MAJOR.MINOR] or [MAJOR.MINOR.PATCH]");
	*close = '\0';
	if (!parse_version(s + 1, &v))
		return bad(p, p->line, "'%.40s' is no version: expected MAJOR.MINOR[.PATCH]",
			   s + 1);
	if (find_row(p->ls, &v))
		return bad(p, p->line, "a second section for %.40s", s + 1);
	err = VEC_RESERVE(p->ls->rows, p->ls->cap, p->ls->n + 1, LAYOUT_ROWS_MAX);
	if (err == -E2BIG)
		return bad(p, p->line, "more than %d sections", LAYOUT_ROWS_MAX);
	if (err)
		return err;
	p->ls->rows[p->ls->n++] = (struct row){ .version = v, .line = p->line };
	return 0;
}

static int take_like(struct parse *p, struct row *r, const char *value)
{
	struct version v;
	const struct row *from;

	if (!parse_version(value, &v) || !(from = find_row(p->ls, &v)) || from == r)
		return bad(p, p->line, "like = %.40s: there is no such section before this one",
			   value);
	if (r->set)
		return bad(p, p->line, "like has to be the first line of its section");
	memcpy(r->value, from->value, sizeof(r->value));
	r->set = from->set;
	return 0;
}

static int take_field(struct parse *p, struct row *r, const char *key, const char *value, u64 *own)
{
	char *end;
	long n;
	u32 i;

	for (i = 0; i < p->u->nlayout_fields; i++)
		if (!strcmp(p->u->layout_fields[i], key))
			break;
	if (i == p->u->nlayout_fields)
		return bad(p, p->line, "unknown field '%.40s'", key);
	if (*own & 1ull << i)
		return bad(p, p->line, "a second '%s' in this section", key);
	errno = 0;
	n = strtol(value, &end, 0);
	if (errno || end == value || *end || n < INT32_MIN || n > INT32_MAX)
		return bad(p, p->line, "%s = %.40s: expected a number", key, value);
	r->value[i] = (s32)n;
	r->set |= 1ull << i;
	*own |= 1ull << i;
	return 0;
}

/* Without blanks on either side; in place. */
static char *trim(char *s)
{
	size_t n;

	while (isspace((u8)*s))
		s++;
	for (n = strlen(s); n && isspace((u8)s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

static int parse_line(struct parse *p, char *s, u64 *own)
{
	struct row *r = p->ls->n ? &p->ls->rows[p->ls->n - 1] : NULL;
	char *equals;

	s[strcspn(s, ";#")] = '\0';
	s = trim(s);
	if (!*s)
		return 0;
	if (*s == '[') {
		*own = 0;
		return begin_section(p, s);
	}
	equals = strchr(s, '=');
	if (!equals)
		return bad(p, p->line, "expected FIELD = NUMBER");
	if (!r)
		return bad(p, p->line, "expected a section before the first field");
	*equals = '\0';
	s = trim(s);
	return strcmp(s, "like") ? take_field(p, r, s, trim(equals + 1), own)
				 : take_like(p, r, trim(equals + 1));
}

int layouts_parse(const char *name, char *text, const struct unwinder *u, struct layouts **ret,
		  char *err, size_t err_size)
{
	struct parse p = { .name = name, .u = u, .err = err, .err_size = err_size };
	char *next = text;
	u64 own = 0;
	int rc = 0;

	snprintf(err, err_size, "%s: out of memory", name);
	if (!u->nlayout_fields || u->nlayout_fields > UNWINDER_FIELDS)
		return bad(&p, 1, "%s takes no layout file", u->title);
	p.ls = calloc(1, sizeof(*p.ls));
	if (!p.ls)
		return -ENOMEM;
	while (!rc && next) {
		char *line = strsep(&next, "\n");

		p.line++;
		rc = parse_line(&p, line, &own);
	}
	if (!rc)
		rc = end_section(&p);
	if (rc) {
		layouts_free(p.ls);
		return rc;
	}
	*ret = p.ls;
	return 0;
}

int layouts_read(const char *path, const struct unwinder *u, struct layouts **ret, char *err,
		 size_t err_size)
{
	_cleanup_free_ char *text = NULL;
	int rc = read_file(path, LAYOUT_FILE_MAX, &text, NULL);

	if (rc) {
		snprintf(err, err_size, "cannot read '%s': %s", path,
			 rc == -E2BIG ? "it is too large" : strerror(-rc));
		return rc;
	}
	return layouts_parse(path, text, u, ret, err, err_size);
}

void layouts_free(struct layouts *ls)
{
	if (!ls)
		return;
	free(ls->rows);
	free(ls);
}

const s32 *layouts_find(const struct layouts *ls, const struct version *v)
{
	struct version any = { v->major, v->minor, ANY_PATCH };
	const struct row *r = find_row(ls, v);

	if (!r)
		r = find_row(ls, &any);
	return r ? r->value : NULL;
}

bool target_layout_of(struct target *t, const struct version *v, const void *rows, size_t nrows,
		      size_t size, void *ret)
{
	const void *found = t->layouts ? layouts_find(t->layouts, v) : NULL;
	size_t i;

	for (i = 0; i < nrows && !found; i++) {
		const u16 *row = (const u16 *)((const char *)rows + i * (2 * sizeof(u16) + size));

		if (row[0] == v->major && row[1] == v->minor)
			found = row + 2;
	}
	if (found)
		memcpy(ret, found, size);
	return found;
}
