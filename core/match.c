// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See match.h. */
#include "match.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <string.h>

#define SEPARATORS ", \t"

/* Back to the last '*' only: an earlier one could take nothing that it cannot. */
bool match_glob(const char *glob, const char *text)
{
	const char *star = NULL, *from = NULL;

	while (*text) {
		if (*glob == '*') {
			star = glob++;
			from = text;
		} else if (*glob == '?' || *glob == *text) {
			glob++;
			text++;
		} else if (star) {
			glob = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

enum match_kind match_kind(const char *s, size_t len)
{
	static const char *const names[] = {
#define X(name, help) #name,
		MATCH_LIST(X)
#undef X
	};
	u32 i;

	for (i = 0; i < MATCH_MAX; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], s, len))
			return (enum match_kind)i;
	return MATCH_MAX;
}

/* Asked for once, at start: the name service may be slow, and the kernel knows numbers only. */
static int user_number(struct match_pattern *p, const char **why)
{
	const struct passwd *pw;

	if (p->glob[strspn(p->glob, "0123456789*?")] == '\0')
		return 0;
	pw = getpwnam(p->glob);
	if (!pw) {
		*why = "no such user on this host";
		return -EINVAL;
	}
	snprintf(p->glob, sizeof(p->glob), "%u", (unsigned int)pw->pw_uid);
	return 0;
}

int match_parse(const char *s, size_t len, struct match_pattern *ret, const char **why)
{
	const char *colon = memchr(s, ':', len);

	ret->kind = colon ? match_kind(s, (size_t)(colon - s)) : MATCH_MAX;
	if (ret->kind == MATCH_MAX) {
		*why = "expected KIND:PATTERN with exe, path, comm, user, container, cgroup, unit, pod, "
		       "namespace or service for KIND";
		return -EINVAL;
	}
	len -= (size_t)(colon + 1 - s);
	if (!len) {
		*why = "expected a pattern behind the colon";
		return -EINVAL;
	}
	if (len > MATCH_PATTERN_MAX) {
		*why = "pattern too long";
		return -E2BIG;
	}
	memcpy(ret->glob, colon + 1, len);
	ret->glob[len] = '\0';
	return ret->kind == MATCH_user ? user_number(ret, why) : 0;
}

int match_parse_list(const char *s, struct match_list *ret, const char **why)
{
	int err;

	ret->n = 0;
	for (s += strspn(s, SEPARATORS); *s; s += strspn(s, SEPARATORS)) {
		size_t len = strcspn(s, SEPARATORS);

		if (ret->n == MATCH_ALL_MAX) {
			*why = "too many patterns";
			return -E2BIG;
		}
		err = match_parse(s, len, &ret->v[ret->n], why);
		if (err)
			return err;
		ret->n++;
		s += len;
	}
	return 0;
}

bool match_fits(const struct match_pattern *p, const struct match_facts *f)
{
	const char *text = f->text[p->kind];

	if (text && match_glob(p->glob, text))
		return true;
	return p->kind == MATCH_container && f->container_id &&
	       match_glob(p->glob, f->container_id);
}

bool match_any(const struct match_list *l, const struct match_facts *f)
{
	u32 i;

	for (i = 0; i < l->n; i++)
		if (match_fits(&l->v[i], f))
			return true;
	return false;
}

bool match_wanted(const struct match_filter *w, const struct match_facts *f)
{
	return (!w->include.n || match_any(&w->include, f)) && !match_any(&w->exclude, f);
}

static bool list_uses(const struct match_list *l, enum match_kind kind)
{
	u32 i;

	for (i = 0; i < l->n; i++)
		if (l->v[i].kind == kind)
			return true;
	return false;
}

bool match_uses(const struct match_filter *w, enum match_kind kind)
{
	return list_uses(&w->include, kind) || list_uses(&w->exclude, kind);
}
