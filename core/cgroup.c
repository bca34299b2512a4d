// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See cgroup.h. */
#include "cgroup.h"

#include <ctype.h>
#include <string.h>

#define ID_SHORT 32 /* hex digits of an ECS id, before its '-' and number */
#define UID_MIN  32 /* static pods have a hash for a uid */

/* Of an id: they are in lower case. */
static bool is_hex(char c)
{
	return hex_digit(c) >= 0 && !isupper((u8)c);
}

static bool starts(const char *s, size_t len, const char *with)
{
	return len >= strlen(with) && !memcmp(s, with, strlen(with));
}

static bool ends(const char *s, size_t len, const char *with)
{
	return len >= strlen(with) && !memcmp(s + len - strlen(with), with, strlen(with));
}

static bool is(const char *s, size_t len, const char *what)
{
	return len == strlen(what) && !memcmp(s, what, len);
}

/* A name as systemd puts it into a unit's: "\x2d" is a byte. */
static void unit_name(char *dst, const char *s, size_t len)
{
	char raw[CGROUP_NAME_MAX + 1];
	size_t in = 0, out = 0;

	while (in < len && out < CGROUP_NAME_MAX) {
		u8 byte;
		bool escape = len - in >= 4 && s[in] == '\\' && s[in + 1] == 'x' &&
			      hex_decode(&byte, s + in + 2, 1);

		raw[out++] = escape ? (char)byte : s[in];
		in += escape ? 4 : 1;
	}
	utf8_clean(dst, CGROUP_NAME_MAX + 1, raw, out);
}

/* The id that a component ends with. What watches over a container is not in it. */
static bool take_id(const char *s, size_t len, struct cgroup *ret)
{
	size_t end = ends(s, len, ".scope") ? len - strlen(".scope") : len, i = end;

	while (i && is_hex(s[i - 1]))
		i--;
	if (end - i == CGROUP_ID_LEN && (!i || s[i - 1] == '-' || s[i - 1] == ':') &&
	    !ends(s, i, "conmon-")) {
		snprintf(ret->container, sizeof(ret->container), "%.*s", CGROUP_ID_LEN, s + i);
		ret->has_id = true;
		return true;
	}
	for (i = 0; i < len && is_hex(s[i]); i++)
		;
	if (i != ID_SHORT || len < i + 2 || s[i] != '-' || len > CGROUP_ID_LEN)
		return false;
	while (++i < len)
		if (!isdigit((u8)s[i]))
			return false;
	snprintf(ret->container, sizeof(ret->container), "%.*s", (int)len, s);
	ret->has_id = false;
	return true;
}

/* Containers that go by name; `before`: the component that it lies in. */
static bool take_name(const char *s, size_t len, const char *before, size_t before_len,
		      struct cgroup *ret)
{
	static const char nspawn[] = "systemd-nspawn@", payload[] = "lxc.payload.", lxc[] = "lxc-";
	const char *name = NULL;
	size_t n = 0;

	if (starts(s, len, nspawn) && ends(s, len, ".service")) {
		name = s + strlen(nspawn);
		n = len - strlen(nspawn) - strlen(".service");
	} else if (starts(s, len, "machine-") && ends(s, len, ".scope") &&
		   !starts(s, len, "machine-qemu\\x2d") &&
		   is(before, before_len, "machine.slice")) {
		name = s + strlen("machine-");
		n = len - strlen("machine-") - strlen(".scope");
	} else if (starts(s, len, payload)) {
		name = s + strlen(payload);
		n = len - strlen(payload);
	} else if (is(before, before_len, "lxc") || is(before, before_len, "lxc.payload")) {
		name = s;
		n = len;
	}
	if (!n)
		return false;
	unit_name(ret->container, name, n);
	/* libvirt: the kind of machine and a number come first. */
	if (starts(s, len, "machine-lxc\\x2d")) {
		char *rest = ret->container + strlen(lxc);

		rest += strspn(rest, "0123456789");
		if (*rest == '-' && rest[1])
			memmove(ret->container, rest + 1, strlen(rest + 1) + 1);
	}
	ret->has_id = false;
	return true;
}

/* "user-UID.slice" */
static void take_owner(const char *s, size_t len, struct cgroup *ret)
{
	static const char prefix[] = "user-", suffix[] = ".slice";
	size_t i;
	u64 uid = 0;

	if (!starts(s, len, prefix) || !ends(s, len, suffix))
		return;
	for (i = strlen(prefix); i < len - strlen(suffix) && isdigit((u8)s[i]); i++)
		uid = MIN(uid * 10 + (u64)(s[i] - '0'), (u64)UINT32_MAX);
	if (i == len - strlen(suffix) && uid < UINT32_MAX)
		ret->owner = (u32)uid;
}

/* "pod" and a uid, at the beginning or behind a '-', up to the end or what no uid has. */
static void take_pod(const char *s, size_t len, struct cgroup *ret)
{
	size_t i, n;

	for (i = 0; i + strlen("pod") + UID_MIN <= len; i++) {
		const char *uid = s + i + strlen("pod");
		size_t left = len - i - strlen("pod");

		if (!starts(s + i, len - i, "pod") || (i && s[i - 1] != '-'))
			continue;
		for (n = 0; n < left && (is_hex(uid[n]) || uid[n] == '-' || uid[n] == '_'); n++)
			;
		if (n < UID_MIN || n > CGROUP_UID_LEN)
			continue;
		snprintf(ret->pod_uid, sizeof(ret->pod_uid), "%.*s", (int)n, uid);
		for (n = 0; ret->pod_uid[n]; n++)
			if (ret->pod_uid[n] == '_')
				ret->pod_uid[n] = '-';
		return;
	}
}

static void parse_path(const char *s, size_t len, struct cgroup *ret)
{
	const char *end, *before = "";
	size_t before_len = 0;

	/* Its directory is gone already; no name of its own may end so and mean anything. */
	if (ends(s, len, " (deleted)"))
		len -= strlen(" (deleted)");
	end = s + len;
	utf8_clean(ret->path, sizeof(ret->path), s, len);
	while (s < end) {
		const char *slash = memchr(s, '/', (size_t)(end - s));
		size_t n = (size_t)((slash ? slash : end) - s);

		/* A uid belongs to what lies in the pod, so it comes first. */
		take_pod(s, n, ret);
		take_owner(s, n, ret);
		if (take_id(s, n, ret) || take_name(s, n, before, before_len, ret))
			*ret->unit = '\0';
		else if (!*ret->container && n <= CGROUP_NAME_MAX &&
			 (ends(s, n, ".service") || ends(s, n, ".scope")))
			unit_name(ret->unit, s, n);
		before = s;
		before_len = n;
		s += n + 1;
	}
}

/* Which of two hierarchies tells more of a process. */
static u32 weight(const struct cgroup *c, bool unified, bool systemd)
{
	return (*c->container ? 16u : 0) + (*c->pod_uid ? 8u : 0) + (*c->unit ? 4u : 0) +
	       (strcmp(c->path, "/") ? 2u : 0) + (unified || systemd ? 1u : 0);
}

void cgroup_parse(const char *text, struct cgroup *ret)
{
	u32 best = 0;

	*ret = (struct cgroup){ .path = "/" };
	/* "ID:CONTROLLERS:PATH"; the kernel lets no newline into a name. */
	while (*text) {
		const char *end = text + strcspn(text, "\n"), *colon, *path;
		size_t n = (size_t)(end - text);
		struct cgroup c = { 0 };
		bool unified, systemd;

		colon = memchr(text, ':', n);
		path = colon ? memchr(colon + 1, ':', (size_t)(end - colon - 1)) : NULL;
		unified = starts(text, n, "0::");
		systemd = colon && starts(colon, (size_t)(end - colon), ":name=systemd:");
		if (path && path + 1 < end) {
			u32 w;

			parse_path(path + 1, (size_t)(end - path - 1), &c);
			w = weight(&c, unified, systemd);
			if (w > best) {
				best = w;
				*ret = c;
			}
		}
		text = *end ? end + 1 : end;
	}
}
