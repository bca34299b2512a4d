// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See service.h. */
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define BLANKS " \t\r"

struct rule {
	struct match_pattern *patterns;
	u32 npatterns;
	char name[SERVICE_NAME_MAX + 1];
};

struct service_rules {
	struct rule *v;
	u32 n, cap;
};

void service_free(struct service_rules *r)
{
	u32 i;

	if (!r)
		return;
	for (i = 0; i < r->n; i++)
		free(r->v[i].patterns);
	free(r->v);
	free(r);
}

/* The next part of a template: text up to a '{', or the kind in braces. */
static bool next_part(const char **s, const char **text, size_t *len, enum match_kind *kind)
{
	const char *end;

	*kind = MATCH_MAX;
	if (!**s)
		return false;
	end = **s == '{' ? strchr(*s, '}') : NULL;
	if (end) {
		*kind = match_kind(*s + 1, (size_t)(end - *s - 1));
		*len = 0;
		*s = end + 1;
		return true;
	}
	*text = *s;
	*len = 1 + strcspn(*s + 1, "{");
	*s += *len;
	return true;
}

static bool template_ok(const char *s)
{
	const char *p = s, *text;
	enum match_kind kind;
	size_t len;

	while (next_part(&p, &text, &len, &kind))
		if (!len ? kind == MATCH_MAX : *text == '{')
			return false;
	return *s != '\0';
}

/* Patterns of one line, up to its '='. */
static int parse_patterns(const char *s, size_t len, struct rule *r, const char **why)
{
	struct match_pattern found[SERVICE_PATTERNS_MAX];
	const char *end = s + len;
	u32 n = 0;
	int err;

	for (;;) {
		size_t size;

		while (s < end && strchr(BLANKS, *s))
			s++;
		if (s == end)
			break;
		for (size = 0; s + size < end && !strchr(BLANKS, s[size]); size++)
			;
		if (n == SERVICE_PATTERNS_MAX) {
			*why = "too many patterns in one rule";
			return -E2BIG;
		}
		err = match_parse(s, size, &found[n], why);
		if (err)
			return err;
		n++;
		s += size;
	}
	if (!n) {
		*why = "expected KIND:PATTERN before =";
		return -EINVAL;
	}
	r->patterns = malloc(n * sizeof(*found));
	if (!r->patterns) {
		*why = "out of memory";
		return -ENOMEM;
	}
	memcpy(r->patterns, found, n * sizeof(*found));
	r->npatterns = n;
	return 0;
}

/* One line without blanks at its ends. */
static int parse_line(const char *s, size_t len, struct rule *r, const char **why)
{
	const char *end = s + len, *eq = end;
	size_t n;

	/* The last " = ", since a pattern may have a '=' in it, and a name hardly. */
	while (eq > s && *--eq != '=')
		;
	if (eq == s || *eq != '=') {
		*why = "expected KIND:PATTERN = NAME";
		return -EINVAL;
	}
	for (n = (size_t)(end - eq - 1); n && strchr(BLANKS, eq[1]); n--)
		eq++;
	if (n > SERVICE_NAME_MAX) {
		*why = "name too long";
		return -E2BIG;
	}
	utf8_clean(r->name, sizeof(r->name), eq + 1, n);
	if (!template_ok(r->name)) {
		*why = "expected a name behind =, with a known {KIND} in braces if any";
		return -EINVAL;
	}
	while (*eq != '=')
		eq--;
	return parse_patterns(s, (size_t)(eq - s), r, why);
}

int service_parse(const char *name, const char *text, size_t len, struct service_rules **ret,
		  char *err, size_t err_size)
{
	struct service_rules *r = calloc(1, sizeof(*r));
	const char *s = text, *end = text + len, *why = "out of memory";
	int rc = r ? 0 : -ENOMEM;
	u32 line = 0;

	while (!rc && s < end) {
		const char *stop = memchr(s, '\n', (size_t)(end - s)), *next;
		struct rule rule = { 0 };
		size_t n;

		stop = stop ? stop : end;
		next = stop < end ? stop + 1 : end;
		line++;
		while (s < stop && strchr(BLANKS, *s) && *s)
			s++;
		while (s < stop && strchr(BLANKS, stop[-1]) && stop[-1])
			stop--;
		n = (size_t)(stop - s);
		if (n && *s != '#' && *s != ';') {
			if (memchr(s, '\0', n)) {
				why = "NUL byte, expected text";
				rc = -EINVAL;
			} else if (VEC_RESERVE(r->v, r->cap, r->n + 1, SERVICE_RULES_MAX)) {
				why = "too many rules";
				rc = -E2BIG;
			} else {
				rc = parse_line(s, n, &rule, &why);
			}
			if (!rc)
				r->v[r->n++] = rule;
		}
		s = next;
	}
	if (rc) {
		char what[1024];

		snprintf(what, sizeof(what), "%s:%u: %s", name, line, why);
		utf8_clean(err, err_size, what, sizeof(what));
		service_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int service_read(const char *path, struct service_rules **ret, char *err, size_t err_size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *text = NULL;
	char name[64];
	struct stat st;
	size_t len;
	int rc = fd < 0 || fstat(fd, &st) ? -errno : 0;

	if (!rc && !S_ISREG(st.st_mode))
		rc = -EINVAL;
	/* Who writes it decides under which name data leaves the host. */
	if (!rc && ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH)))
		rc = -EPERM;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (!rc)
		rc = read_file(name, SERVICE_FILE_MAX, &text, &len);
	if (rc) {
		snprintf(err, err_size, "%s: cannot be read: %s%s", path, strerror(-rc),
			 rc == -EPERM ? "; others than root may write it: chown root, chmod go-w"
				      : "");
		return rc;
	}
	return service_parse(path, text, len, ret, err, err_size);
}

static bool fill(const char *template, const struct match_facts *f, char ret[SERVICE_NAME_MAX + 1])
{
	const char *p = template, *text;
	enum match_kind kind;
	char raw[2 * SERVICE_NAME_MAX + 1];
	size_t used = 0, len;

	while (next_part(&p, &text, &len, &kind)) {
		if (!len) {
			text = f->text[kind];
			if (!text || !*text)
				return false;
			len = strlen(text);
		}
		len = MIN(len, sizeof(raw) - used);
		memcpy(raw + used, text, len);
		used += len;
	}
	return utf8_clean(ret, SERVICE_NAME_MAX + 1, raw, used) > 0;
}

static bool fits(const struct rule *r, const struct match_facts *f)
{
	u32 i;

	for (i = 0; i < r->npatterns; i++)
		if (!match_fits(&r->patterns[i], f))
			return false;
	return true;
}

bool service_name(const struct service_rules *r, const struct match_facts *f,
		  char ret[SERVICE_NAME_MAX + 1])
{
	u32 i;

	for (i = 0; r && i < r->n; i++)
		if (fits(&r->v[i], f) && fill(r->v[i].name, f, ret))
			return true;
	return false;
}

bool service_uses(const struct service_rules *r, enum match_kind kind)
{
	u32 i, k;

	for (i = 0; r && i < r->n; i++)
		for (k = 0; k < r->v[i].npatterns; k++)
			if (r->v[i].patterns[k].kind == kind)
				return true;
	return false;
}
