// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See json.h. */
#include "json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

int json_init(struct json *j)
{
	*j = (struct json){ 0 };
	j->out = open_memstream(&j->data, &j->len);
	return j->out ? 0 : -ENOMEM;
}

int json_finish(struct json *j)
{
	bool failed = ferror(j->out);

	assert(!j->depth);
	if (fclose(j->out))
		failed = true;
	j->out = NULL;
	return failed ? -ENOMEM : 0;
}

void json_fini(struct json *j)
{
	if (j->out)
		fclose(j->out);
	free(j->data);
	*j = (struct json){ 0 };
}

static void before(struct json *j)
{
	if (!j->keyed && j->more[j->depth])
		putc_unlocked(',', j->out);
	j->keyed = false;
	j->more[j->depth] = true;
}

void json_open(struct json *j, char kind)
{
	before(j);
	putc_unlocked(kind, j->out);
	assert(j->depth + 1 < JSON_DEPTH);
	j->more[++j->depth] = false;
}

void json_close(struct json *j, char kind)
{
	putc_unlocked(kind == '{' ? '}' : ']', j->out);
	j->depth--;
}

void json_put(const char *s, FILE *out)
{
	char clean[JSON_TEXT];
	const char *c;

	utf8_clean(clean, sizeof(clean), s, sizeof(clean));
	putc_unlocked('"', out);
	for (c = clean; *c; c++) {
		if (*c == '"' || *c == '\\')
			putc_unlocked('\\', out);
		if (*c == '<' || *c == '>' || *c == '&')
			fprintf(out, "\\u%04x", (u8)*c);
		else
			putc_unlocked(*c, out);
	}
	putc_unlocked('"', out);
}

void json_key(struct json *j, const char *key)
{
	before(j);
	json_put(key, j->out);
	putc_unlocked(':', j->out);
	j->keyed = true;
}

void json_text(struct json *j, const char *s)
{
	before(j);
	json_put(s, j->out);
}

void json_number(struct json *j, u64 n)
{
	char digits[24], *d = digits + sizeof(digits);

	before(j);
	n = MIN(n, 1ull << 53);
	do
		*--d = (char)('0' + n % 10);
	while (n /= 10);
	fwrite_unlocked(d, 1, (size_t)(digits + sizeof(digits) - d), j->out);
}

void json_real(struct json *j, double n)
{
	before(j);
	fprintf(j->out, "%.6g", isfinite(n) ? n : 0);
}

void json_millis(struct json *j, u64 ns)
{
	before(j);
	fprintf(j->out, "%" PRIu64 ".%06u", ns / 1000000, (u32)(ns % 1000000));
}

void json_null(struct json *j)
{
	before(j);
	fputs("null", j->out);
}

void json_bool(struct json *j, bool b)
{
	before(j);
	fputs(b ? "true" : "false", j->out);
}
