// SPDX-License-Identifier: Apache-2.0
/* The base shelf: hash table against an array, UTF-8, CPU lists, files. */
#include "core/cpus.h"
#include "core/htab.h"
#include "core/log.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

static bool has(const struct htab *t, u64 hash, u32 index)
{
	u32 pos, i;

	for (pos = htab_start(t, hash); htab_next(t, hash, &pos, &i);)
		if (i == index)
			return true;
	return false;
}

static void htab_equals_a_plain_array(void **state __unused)
{
	enum { N = 4096 };
	bool model[N] = { 0 };
	struct htab t = { 0 };
	u32 seed = 7, i, n = 0, k;

	for (i = 0; i < 60000; i++) {
		seed = seed * 1664525 + 1013904223;
		k = (seed >> 12) % N;
		/* Few distinct hashes: long runs, so that deletion has something to move. */
		if (model[k]) {
			htab_remove(&t, k % 61, k);
			n--;
		} else {
			assert_int_equal(htab_insert(&t, k % 61, k), 0);
			n++;
		}
		model[k] = !model[k];
		assert_int_equal(t.n, n);
		if (i % 1000 == 0)
			for (k = 0; k < N; k++)
				assert_int_equal(has(&t, k % 61, k), model[k]);
	}
	htab_remove(&t, 3, N + 1);
	assert_int_equal(t.n, n);
	htab_fini(&t);
}

static void cleaned_text_is_valid_utf8(void **state __unused)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "plain", "plain" },
		{ "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
		{ "a\xff"
		  "b",
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xc3", "\xef\xbf\xbd" },
		{ "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },                 /* overlong */
		{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* surrogate */
		{ "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
		{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "esc\033[31m\n", "esc?[31m?" },
		/* What would show "exe.jpg", and what would end a line. */
		{ "\xe2\x80\xae"
		  "gpj.exe",
		  "\\u202egpj.exe" },
		{ "\xd8\x9c\xe2\x80\xa8\xe2\x81\xa6", "\\u061c\\u2028\\u2066" },
		{ "\xe2\x80\xaf\xe2\x81\xaa", "\xe2\x80\xaf\xe2\x81\xaa" },
	};
	char buf[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		utf8_clean(buf, sizeof(buf), cases[i].in, strlen(cases[i].in));
		assert_string_equal(buf, cases[i].out);
	}
	/* Never half a character at the end of the room. */
	assert_int_equal(utf8_clean(buf, 4, "ab\xc3\xbc", 4), 2);
	assert_string_equal(buf, "ab");
	assert_int_equal(utf8_clean(buf, 7, "a\xe2\x80\xae", 4), 1);
}

static void cpu_lists(void **state __unused)
{
	struct cpu_set_bits set;
	u32 i, n = 0;

	assert_int_equal(cpus_parse("0-3,8,10-11\n", &set), 0);
	for (i = 0; i < CPUS_MAX; i++)
		n += set.online[i];
	assert_int_equal(n, 7);
	assert_true(set.online[3] && set.online[8] && set.online[10] && set.online[11]);
	assert_false(set.online[4] || set.online[9]);
	assert_int_equal(cpus_parse("0-99999999\n", &set), 0);
	assert_int_equal(cpus_parse("x\n", &set), -EINVAL);
	assert_int_equal(cpus_parse("1-\n", &set), -EINVAL);
	assert_int_equal(cpus_parse("1;2\n", &set), -EINVAL);
}

static void read_file_is_bounded(void **state __unused)
{
	char *text = NULL;
	size_t len;

	assert_int_equal(read_file("/proc/self/status", 10, &text, NULL), -E2BIG);
	assert_null(text);
	assert_int_equal(read_file("/proc/self/comm", 64, &text, &len), 0);
	assert_int_equal(strlen(text), len);
	free(text);
	assert_int_equal(read_file("/nonexistent", 10, &text, NULL), -ENOENT);
}

static void hex_both_ways(void **state __unused)
{
	static const u8 bytes[] = { 0x00, 0x9a, 0xff };
	char text[7], digit[3];
	u8 back[3];
	int c;

	hex_encode(text, bytes, 3);
	assert_string_equal(text, "009aff");
	assert_true(hex_decode(back, "009AfF!", 3));
	assert_memory_equal(back, bytes, 3);
	assert_false(hex_decode(back, "0", 1));
	for (c = 1; c < 256; c++) {
		snprintf(digit, sizeof(digit), "0%c", c);
		assert_int_equal(hex_decode(back, digit, 1), isxdigit(c) != 0);
		assert_int_equal(hex_digit((char)c), isxdigit(c) ? strtol(digit, NULL, 16) : -1);
	}
}

static void vec_stops_at_its_limit(void **state __unused)
{
	u32 *v = NULL, cap = 0;

	assert_int_equal(VEC_RESERVE(v, cap, 20, 20), 0);
	assert_true(cap >= 20);
	assert_int_equal(VEC_RESERVE(v, cap, cap + 1, cap), -E2BIG);
	free(v);
}

static void log_limit_once_a_minute(void **state __unused)
{
	struct log_limit l = { 0 };
	u64 suppressed = 9;

	assert_true(log_limit(&l, &suppressed));
	assert_int_equal(suppressed, 0);
	assert_false(log_limit(&l, &suppressed));
	assert_false(log_limit(&l, &suppressed));
	l.last_ns -= 61 * NSEC_PER_SEC;
	assert_true(log_limit(&l, &suppressed));
	assert_int_equal(suppressed, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(htab_equals_a_plain_array),
		cmocka_unit_test(cleaned_text_is_valid_utf8),
		cmocka_unit_test(cpu_lists),
		cmocka_unit_test(read_file_is_bounded),
		cmocka_unit_test(hex_both_ways),
		cmocka_unit_test(vec_stops_at_its_limit),
		cmocka_unit_test(log_limit_once_a_minute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
