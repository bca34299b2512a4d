// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See headers.h. */
#include "headers.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* RFC 9110's token. */
static bool is_token(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (!isalnum((u8)s[i]) && (!s[i] || !strchr("!#$%&'*+-.^_`|~", s[i])))
			return false;
	return len;
}

/* A control character would let a value write headers of its own. */
static bool is_value(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (((u8)s[i] < 0x20 && s[i] != '\t') || (u8)s[i] >= 0x7f)
			return false;
	return len;
}

static bool is_ours(const char *name, size_t len)
{
	static const char *const ours[] = { "Host",
					    "Content-Length",
					    "Content-Type",
					    "Content-Encoding",
					    "Transfer-Encoding",
					    "Connection",
					    "Upgrade",
					    "Expect",
					    "TE",
					    "Trailer",
					    "Accept",
					    "User-Agent",
					    "grpc-encoding",
					    "grpc-timeout" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ours); i++)
		if (strlen(ours[i]) == len && !strncasecmp(ours[i], name, len))
			return true;
	return false;
}

static void strip(const char **s, size_t *len)
{
	while (*len && strchr(" \t\r", **s)) {
		++*s;
		--*len;
	}
	while (*len && strchr(" \t\r", (*s)[*len - 1]))
		--*len;
}

static const char *check(const char *s, size_t len, const char **ret_value)
{
	const char *colon = memchr(s, ':', len), *value;
	size_t name_len, value_len;

	if (!colon)
		return "NAME: VALUE";
	name_len = (size_t)(colon - s);
	value = colon + 1;
	value_len = len - name_len - 1;
	strip(&value, &value_len);
	*ret_value = value;
	if (!is_token(s, name_len))
		return "a header's name before :";
	if (is_ours(s, name_len))
		return "none of the headers that belong to the protocol";
	return is_value(value, value_len) ? NULL : "printable ASCII text after :";
}

int headers_each(const char *text, char separator, int (*add)(void *arg, const char *header),
		 void *arg, const char **ret_want)
{
	u32 n = 0;

	while (*text) {
		const char *end = strchrnul(text, separator), *s = text, *value;
		size_t len = (size_t)(end - text);
		char *header;
		int err;

		text = *end ? end + 1 : end;
		strip(&s, &len);
		if (!len)
			continue;
		*ret_want = ++n > HEADERS_MAX ? "at most 16 headers" : check(s, len, &value);
		if (*ret_want)
			return -EINVAL;
		if (!add)
			continue;
		if (asprintf(&header, "%.*s: %.*s", (int)(strchr(s, ':') - s), s,
			     (int)(s + len - value), value) < 0)
			return -ENOMEM;
		err = add(arg, header);
		explicit_bzero(header, strlen(header));
		free(header);
		if (err)
			return err;
	}
	return 0;
}
