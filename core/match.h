/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What a process is known by, and patterns over it: "exe:post*", "unit:nginx.service".
 * Patterns are the operator's, what they are held against is whatever processes chose: matching
 * takes at most pattern times text steps.
 */
#pragma once

#include "util.h"

/* Kind, and what it is. */
#define MATCH_LIST(X)                                        \
	X(exe, "base name of the executable")                \
	X(path, "path of the executable, as it was started") \
	X(comm, "name of the main thread")                   \
	X(user, "effective user, name or number")            \
	X(container, "id or name of the container")          \
	X(cgroup, "path of the control group")               \
	X(unit, "systemd unit")                              \
	X(pod, "Kubernetes pod")                             \
	X(namespace, "Kubernetes namespace")                 \
	X(service, "service's name by its own word")

enum match_kind {
#define X(name, help) MATCH_##name,
	MATCH_LIST(X)
#undef X
		MATCH_MAX,
};

#define MATCH_PATTERN_MAX 255
#define MATCH_ALL_MAX     64 /* patterns of one list */

/* NULL: not known, which no pattern fits. A container has two names. */
struct match_facts {
	const char *text[MATCH_MAX];
	const char *container_id;
};

struct match_pattern {
	enum match_kind kind;
	char glob[MATCH_PATTERN_MAX + 1];
};

struct match_list {
	struct match_pattern v[MATCH_ALL_MAX];
	u32 n;
};

/* '*' stands for any bytes, '?' for one. */
bool match_glob(const char *glob, const char *text);
/*
 * "KIND:PATTERN" of len bytes; users become numbers. Returns 0, or -EINVAL with a reason in *why
 * (static), -E2BIG when it is too long.
 */
int match_parse(const char *s, size_t len, struct match_pattern *ret, const char **why);
/* Patterns with commas or blanks between them: the same, and -E2BIG for too many. */
int match_parse_list(const char *s, struct match_list *ret, const char **why);
bool match_fits(const struct match_pattern *p, const struct match_facts *f);
/* Does any of them fit? */
bool match_any(const struct match_list *l, const struct match_facts *f);
/* The kind that len bytes name; MATCH_MAX: none. */
enum match_kind match_kind(const char *s, size_t len);

/* Who is wanted: all whom one of `include` fits, or all when it is empty, less those of `exclude`. */
struct match_filter {
	struct match_list include, exclude;
};
bool match_wanted(const struct match_filter *w, const struct match_facts *f);
/* Has a pattern to do with it? */
bool match_uses(const struct match_filter *w, enum match_kind kind);
