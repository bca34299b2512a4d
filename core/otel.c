// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See otel.h. */
#include "otel.h"

#include "maps.h"
#include "otel.pb-c.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SIGNATURE      "OTEL_CTX"
#define VERSION_KNOWN  2
#define ATTRIBUTES_MAX 1024 /* of one payload; what is behind is not looked at */

static void set_text(char dst[OTEL_TEXT_MAX + 1], const char *s, size_t len)
{
	while (len && isspace((u8)*s)) {
		s++;
		len--;
	}
	while (len && isspace((u8)s[len - 1]))
		len--;
	utf8_clean(dst, OTEL_TEXT_MAX + 1, s, len);
}

static bool is(const char *s, size_t len, const char *what)
{
	return len == strlen(what) && !memcmp(s, what, len);
}

/* One attribute; names: https://opentelemetry.io/docs/specs/semconv/resource/#service */
static void attribute(struct otel_words *w, const char *key, size_t key_len, const char *value,
		      size_t len)
{
	static const char unknown[] = "unknown_service";

	if (is(key, key_len, "service.name")) {
		set_text(w->service, value, len);
		if (!strncmp(w->service, unknown, strlen(unknown)))
			*w->service = '\0';
	} else if (is(key, key_len, "service.version")) {
		set_text(w->version, value, len);
	} else if (is(key, key_len, "service.instance.id")) {
		set_text(w->instance, value, len);
	}
}

/* --- environment ------------------------------------------------------------------------------ */

/* "%2C" is a byte: values are written as in W3C baggage. Returns the length of dst. */
static size_t percent_decode(char *dst, size_t size, const char *s, size_t len)
{
	size_t in = 0, out = 0;

	while (in < len && out < size) {
		u8 byte;
		bool escape = len - in >= 3 && s[in] == '%' && hex_decode(&byte, s + in + 1, 1);

		dst[out++] = escape ? (char)byte : s[in];
		in += escape ? 3 : 1;
	}
	return out;
}

static void trim(const char **s, size_t *len)
{
	while (*len && isspace((u8) * *s)) {
		(*s)++;
		(*len)--;
	}
	while (*len && isspace((u8)(*s)[*len - 1]))
		(*len)--;
}

/* "key=value,key=value" */
static void resource_attributes(struct otel_words *w, const char *s, size_t len)
{
	const char *end = s + len;

	while (s < end) {
		const char *comma = memchr(s, ',', (size_t)(end - s)), *eq, *key = s;
		size_t n = (size_t)((comma ? comma : end) - s), key_len;
		char value[4 * OTEL_TEXT_MAX];

		eq = memchr(s, '=', n);
		if (eq) {
			key_len = (size_t)(eq - s);
			trim(&key, &key_len);
			attribute(w, key, key_len, value,
				  percent_decode(value, sizeof(value), eq + 1,
						 n - (size_t)(eq - s) - 1));
		}
		s += n + 1;
	}
}

/* The value of "NAME=value", NULL when it is another variable. */
static const char *variable(const char *s, size_t len, const char *name, size_t *ret_len)
{
	size_t n = strlen(name);

	if (len <= n || memcmp(s, name, n) || s[n] != '=')
		return NULL;
	*ret_len = len - n - 1;
	return s + n + 1;
}

static bool is_off(const char *s, size_t len)
{
	return is(s, len, "off") || is(s, len, "false") || is(s, len, "no") || is(s, len, "0");
}

void otel_environ(const char *data, size_t len, struct otel_words *ret)
{
	struct otel_words name = { 0 };
	const char *s = data, *v;
	size_t left = len, n;

	*ret = (struct otel_words){ 0 };
	while (left) {
		const char *end = memchr(s, '\0', left);
		size_t size = end ? (size_t)(end - s) : left;

		/* A variable that was cut says nothing. */
		if (end && (v = variable(s, size, "OTEL_SERVICE_NAME", &n)))
			attribute(&name, "service.name", strlen("service.name"), v, n);
		else if (end && (v = variable(s, size, "OTEL_RESOURCE_ATTRIBUTES", &n)))
			resource_attributes(ret, v, n);
		else if (end && (v = variable(s, size, OTEL_OWN_SERVICE, &n)))
			set_text(ret->own_service, v, n);
		else if (end && (v = variable(s, size, OTEL_OWN_SWITCH, &n)))
			ret->opted_out = is_off(v, n);
		size = MIN(size + 1, left);
		s += size;
		left -= size;
	}
	/* It wins over the attribute. */
	if (*name.service)
		memcpy(ret->service, name.service, sizeof(ret->service));
}

/* --- process context -------------------------------------------------------------------------- */

bool otel_maps_line(const char *line, size_t len, u64 *ret_addr)
{
	static const char *const names[] = { "/memfd:" SIGNATURE, "[anon_shmem:" SIGNATURE "]",
					     "[anon:" SIGNATURE "]" };
	struct maps_line m;
	size_t i;

	if (!maps_parse(line, len, &m))
		return false;
	*ret_addr = m.lo;
	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (m.path_len >= strlen(names[i]) && !memcmp(m.path, names[i], strlen(names[i])))
			return true;
	return false;
}

int otel_header(const u8 data[OTEL_HEADER], struct otel_header *ret)
{
	u32 version;

	memcpy(&version, data + 8, sizeof(version));
	memcpy(&ret->size, data + 12, sizeof(ret->size));
	memcpy(&ret->published_ns, data + 16, sizeof(ret->published_ns));
	memcpy(&ret->payload, data + 24, sizeof(ret->payload));
	if (memcmp(data, SIGNATURE, strlen(SIGNATURE)) || version != VERSION_KNOWN)
		return -EINVAL;
	return ret->size > OTEL_PAYLOAD_MAX ? -E2BIG : 0;
}

/* The attribute's text; NULL: it has none. */
static const ProtobufCBinaryData *text_of(const Otel__KeyValue *kv)
{
	const Otel__AnyValue *v = kv->n_value ? kv->value[kv->n_value - 1] : NULL;

	return v && v->n_string_value ? &v->string_value[v->n_string_value - 1] : NULL;
}

static void resource(const Otel__Resource *r, struct otel_words *w, u32 *left)
{
	size_t i;

	for (i = 0; i < r->n_attributes && *left; i++, (*left)--) {
		const Otel__KeyValue *kv = r->attributes[i];
		const ProtobufCBinaryData *text = text_of(kv);

		if (text)
			attribute(w, (const char *)kv->key.data, kv->key.len,
				  (const char *)text->data, text->len);
	}
}

static bool is_bytes(const ProtobufCBinaryData *b, const char *what)
{
	return is((const char *)b->data, b->len, what);
}

/* The names of what threads say, by key; a name further behind has none. */
static void thread_keys(const Otel__KeyValue *kv, struct otel_words *w)
{
	const Otel__AnyValue *v = kv->n_value ? kv->value[kv->n_value - 1] : NULL;
	const Otel__ArrayValue *list = v && v->n_array_value ? v->array_value[v->n_array_value - 1]
							     : NULL;
	size_t i;

	for (i = 0; list && i < list->n_values && i <= UINT8_MAX && !w->has_route; i++) {
		const ProtobufCBinaryData *name = &list->values[i]->string_value;

		w->has_route = is_bytes(name, "http.route") || is_bytes(name, "http_route");
		w->route = (u8)i;
	}
}

/* Names: opentelemetry-specification, oteps/profiles/4947-thread-ctx.md */
static void thread_attribute(const Otel__KeyValue *kv, struct otel_words *w)
{
	const ProtobufCBinaryData *text = text_of(kv);

	if (text && is_bytes(&kv->key, "threadlocal.schema_version"))
		w->threads = is_bytes(text, "tls_v1") || is_bytes(text, "tlsdesc_v1_dev");
	else if (is_bytes(&kv->key, "threadlocal.attribute_key_map"))
		thread_keys(kv, w);
}

/*
 * Taken for a resource, a context is one whose only attribute is named like a message, which begins
 * with the tag of a field 1 or 2 that has a length: no key begins with a control character.
 */
static bool is_resource(const Otel__Resource *r)
{
	size_t i;

	for (i = 0; i < r->n_attributes; i++) {
		const ProtobufCBinaryData *key = &r->attributes[i]->key;

		if (key->len && *key->data != 0x0a && *key->data != 0x12)
			return true;
	}
	return false;
}

static void free_resource(Otel__Resource **r)
{
	otel__resource__free_unpacked(*r, NULL);
}

static void free_context(Otel__ProcessContext **c)
{
	otel__process_context__free_unpacked(*c, NULL);
}

int otel_payload(const u8 *data, size_t len, struct otel_words *ret)
{
	_cleanup_(free_resource) Otel__Resource *alone = otel__resource__unpack(NULL, len, data);
	_cleanup_(free_context) Otel__ProcessContext *c = NULL;
	u32 left = ATTRIBUTES_MAX;
	size_t i;

	*ret = (struct otel_words){ 0 };
	/* As the first SDKs have it. */
	if (alone && is_resource(alone)) {
		resource(alone, ret, &left);
		return 0;
	}
	c = otel__process_context__unpack(NULL, len, data);
	if (!c)
		return -EINVAL;
	for (i = 0; i < c->n_resource; i++)
		resource(c->resource[i], ret, &left);
	for (i = 0; i < c->n_attributes && left; i++, left--)
		thread_attribute(c->attributes[i], ret);
	return 0;
}
