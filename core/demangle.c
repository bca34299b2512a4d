// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: base. See demangle.h. libiberty hands the text out piece by piece and keeps nothing on
 * the heap meanwhile, so a name that prints without end is left by longjmp().
 */
#include "demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

struct sink {
	char text[DEMANGLE_OUT_MAX + 1];
	size_t n;
	u32 pieces;
	jmp_buf full;
};

#define PIECES_MAX 65536 /* empty ones cost time, too */

static void on_text(const char *s, size_t len, void *arg)
{
	struct sink *o = arg;
	size_t room = DEMANGLE_OUT_MAX - o->n;

	/* An empty piece may be at no address. */
	if (len)
		memcpy(o->text + o->n, s, MIN(len, room));
	o->n += MIN(len, room);
	if (len > room || ++o->pieces > PIECES_MAX)
		longjmp(o->full, 1);
}

static bool is_rust_legacy(const char *name)
{
	/* "17h", 16 hex digits, "E": then nothing, or a compiler's suffix. */
	const char *h = name;

	while ((h = strstr(h, "17h"))) {
		size_t n = strspn(h + 3, "0123456789abcdef");

		if (n == 16 && h[19] == 'E' && (!h[20] || h[20] == '.'))
			return true;
		h += 3;
	}
	return false;
}

/* Whether anything came out; the text may be cut. */
static bool run(const char *name, bool rust, struct sink *o)
{
	volatile bool whole = false;

	/*
	 * The library's own limit refuses whatever is longer than 1 KiB, as many C++ names are.
	 * Without it recursion is as deep as the name is long: DEMANGLE_IN_MAX levels, under 1 MiB
	 * of stack.
	 */
	const int cxx = DMGL_GNU_V3 | DMGL_RET_DROP | DMGL_NO_RECURSE_LIMIT;
	const int v0 = DMGL_RUST | DMGL_NO_RECURSE_LIMIT;

	o->n = 0;
	o->pieces = 0;
	if (!setjmp(o->full)) {
		int ok = rust ? rust_demangle_callback(name, v0, on_text, o)
			      : cplus_demangle_v3_callback(name, cxx, on_text, o);

		if (!ok)
			return false;
		whole = true;
	}
	if (!whole) {
		o->n = MAX(o->n, 3u);
		memcpy(o->text + o->n - 3, "...", 3);
	}
	o->text[o->n] = '\0';
	return o->n > 0;
}

bool demangle(const char *name, char *dst, size_t size)
{
	bool v0 = !strncmp(name, "_R", 2), itanium = !strncmp(name, "_Z", 2);
	struct sink o;
	size_t n;

	if ((!v0 && !itanium) || !size || strnlen(name, DEMANGLE_IN_MAX + 1) > DEMANGLE_IN_MAX)
		return false;
	if (!run(name, v0 || is_rust_legacy(name), &o))
		return false;
	n = MIN(o.n, size - 1);
	memcpy(dst, o.text, n);
	dst[n] = '\0';
	return true;
}

/* Length of a number at s, behind a known stem: "14", "$14", "/123456", "/0x0000000800c0". */
static size_t number_len(const char *s)
{
	size_t sep = *s == '/' || *s == '$' || *s == '+', n;

	if (sep && s[1] == '0' && s[2] == 'x') {
		n = strspn(s + 3, "0123456789abcdefABCDEF");
		return n ? n + 3 : 0;
	}
	n = strspn(s + sep, "0123456789");
	return n ? n + sep : 0;
}

/* Removes what number_len() finds at s; at most the two that stand behind each other. */
static void cut_numbers(char *s)
{
	size_t n = number_len(s);

	if (n)
		n += number_len(s + n);
	if (n)
		memmove(s, s + n, strlen(s + n) + 1);
}

void demangle_hidden(char *name)
{
	/* java.lang.invoke and java.lang.reflect of JDK 8 to 28; the stem ends where numbers begin. */
	static const char *const stems[] = {
		"$$Lambda",
		"LambdaForm$DMH",
		"LambdaForm$MH",
		"LambdaForm$BMH",
		"LambdaForm$VH",
		"LambdaForm$Holder",
		"GeneratedMethodAccessor",
		"GeneratedConstructorAccessor",
		"GeneratedSerializationConstructorAccessor",
		"$Proxy",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(stems); i++) {
		char *s = name;

		while ((s = strstr(s, stems[i]))) {
			s += strlen(stems[i]);
			cut_numbers(s);
		}
	}
}
