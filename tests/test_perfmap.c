// SPDX-License-Identifier: Apache-2.0
/*
 * Names of code made at run time: what a map says, and which file is believed. Demangled names
 * are those of c++filt and of the Rust reference (rustc's symbol mangling, RFC 2603).
 */
#include "core/demangle.h"
#include "core/perfmap.h"
#include "core/process.h"
#include "core/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct perfmap *map_of(const char *text)
{
	struct perfmap *m = perfmap_new(1u << 20);

	assert_non_null(m);
	assert_int_equal(perfmap_feed(m, text, strlen(text)), 0);
	return m;
}

static void an_entry_covers_its_range_and_no_more(void **state)
{
	struct perfmap *m = map_of("1000 10 first\n1020 10 second one\n");

	(void)state;
	assert_null(perfmap_lookup(m, 0xfff));
	assert_string_equal(perfmap_lookup(m, 0x1000), "first");
	assert_string_equal(perfmap_lookup(m, 0x100f), "first");
	assert_null(perfmap_lookup(m, 0x1010));
	assert_string_equal(perfmap_lookup(m, 0x102f), "second one");
	assert_null(perfmap_lookup(m, 0x1030));
	perfmap_free(m);
}

static void numbers_may_have_0x(void **state)
{
	struct perfmap *m = map_of("0x7f0000001000 0x20 a\n00007F0000001020 20 b\n");

	(void)state;
	assert_string_equal(perfmap_lookup(m, 0x7f000000101f), "a");
	assert_string_equal(perfmap_lookup(m, 0x7f0000001020), "b");
	perfmap_free(m);
}

static void the_newest_entry_wins(void **state)
{
	struct perfmap *m = map_of("1000 100 old\n1040 20 new\n");

	(void)state;
	assert_string_equal(perfmap_lookup(m, 0x1010), "old");
	assert_string_equal(perfmap_lookup(m, 0x1050), "new");
	assert_string_equal(perfmap_lookup(m, 0x1060), "old");
	assert_int_equal(perfmap_feed(m, "0fc0 200 newest\n", 16), 0);
	assert_string_equal(perfmap_lookup(m, 0x1050), "newest");
	assert_string_equal(perfmap_lookup(m, 0x10ff), "newest");
	assert_string_equal(perfmap_lookup(m, 0x11bf), "newest");
	assert_null(perfmap_lookup(m, 0x11c0));
	perfmap_free(m);
}

/* Against the plain definition: the last line whose range holds the address. */
static void overlaps_of_any_kind_are_resolved_in_file_order(void **state)
{
	static u64 lo[400], hi[400];
	struct perfmap *m = perfmap_new(1u << 20);
	u32 seed = 7, i, at;
	char line[64], want[16];

	(void)state;
	for (i = 0; i < ARRAY_SIZE(lo); i++) {
		seed = seed * 1103515245 + 12345;
		lo[i] = 0x1000 + (seed >> 16) % 1000;
		seed = seed * 1103515245 + 12345;
		hi[i] = lo[i] + 1 + (seed >> 16) % (i % 3 ? 20 : 300);
		snprintf(line, sizeof(line), "%llx %llx f%u\n", (unsigned long long)lo[i],
			 (unsigned long long)(hi[i] - lo[i]), i);
		assert_int_equal(perfmap_feed(m, line, strlen(line)), 0);
	}
	for (at = 0xff0; at < 0x1600; at++) {
		const char *name = perfmap_lookup(m, at);

		for (i = ARRAY_SIZE(lo); i && !(at >= lo[i - 1] && at < hi[i - 1]); i--)
			;
		if (!i) {
			assert_null(name);
			continue;
		}
		snprintf(want, sizeof(want), "f%u", i - 1);
		assert_non_null(name);
		assert_string_equal(name, want);
	}
	perfmap_free(m);
}

static void lines_may_be_cut_anywhere(void **state)
{
	static const char text[] = "1000 10 first\n1020 10 second one\n";
	struct perfmap *m = perfmap_new(1u << 20);
	size_t i;

	(void)state;
	for (i = 0; i + 1 < sizeof(text); i++)
		assert_int_equal(perfmap_feed(m, text + i, 1), 0);
	assert_string_equal(perfmap_lookup(m, 0x1020), "second one");
	assert_int_equal(perfmap_entries(m), 2);
	perfmap_free(m);
}

static void what_is_no_entry_is_counted_and_skipped(void **state)
{
	struct perfmap *m = map_of("zzz\n"
				   "1000\n"
				   "1000 10\n"
				   "1000 10 \n"
				   "1000 0 empty\n"
				   "ffffffffffffffff 10 wraps\n"
				   "11112222333344445 10 too_long\n"
				   "-1 10 negative\n"
				   "\n"
				   "2000 10 good\r\n");

	(void)state;
	assert_int_equal(perfmap_entries(m), 1);
	assert_int_equal(perfmap_bad_lines(m), 8);
	assert_string_equal(perfmap_lookup(m, 0x2000), "good");
	perfmap_free(m);
}

static void a_line_without_end_costs_nothing(void **state)
{
	struct perfmap *m = perfmap_new(1u << 20);
	char big[65536];
	u32 i;

	(void)state;
	memset(big, 'a', sizeof(big));
	for (i = 0; i < 64; i++)
		assert_int_equal(perfmap_feed(m, big, sizeof(big)), 0);
	assert_int_equal(perfmap_feed(m, "\n3000 8 after\n", 14), 0);
	assert_string_equal(perfmap_lookup(m, 0x3000), "after");
	assert_int_equal(perfmap_bad_lines(m), 1);
	assert_true(perfmap_bytes(m) < 65536);
	perfmap_free(m);
}

static void names_are_text_of_bounded_length(void **state)
{
	char line[2048], *s = line + sprintf(line, "1000 10 ");
	struct perfmap *m = perfmap_new(1u << 20);

	(void)state;
	memset(s, 'x', 1500);
	strcpy(s + 1500, "\n4000 4 a\033[2Jb\xff\n");
	assert_int_equal(perfmap_feed(m, line, strlen(line)), 0);
	assert_int_equal(strlen(perfmap_lookup(m, 0x1000)), PERFMAP_NAME_MAX);
	assert_string_equal(perfmap_lookup(m, 0x4000), "a?[2Jb\xef\xbf\xbd");
	perfmap_free(m);
}

static void names_over_the_budget_end_the_reading(void **state)
{
	struct perfmap *m = perfmap_new(4096);
	char line[128];
	u32 i;
	int err = 0;

	(void)state;
	for (i = 0; i < 1000 && !err; i++) {
		snprintf(line, sizeof(line), "%x 10 function_number_%u\n", 0x1000 + i * 16, i);
		err = perfmap_feed(m, line, strlen(line));
	}
	assert_int_equal(err, -E2BIG);
	assert_string_equal(perfmap_lookup(m, 0x1000), "function_number_0");
	perfmap_free(m);
}

/* --- which file is believed ------------------------------------------------------------------ */

struct root {
	char dir[64], map[128];
};

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A /proc of our own with one process, 7, which is 3 in its own namespace. */
static int setup(void **state)
{
	struct root *r = calloc(1, sizeof(*r));
	char path[256], text[256];

	strcpy(r->dir, "/tmp/perfmap.XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	snprintf(path, sizeof(path), "%s/7", r->dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/7/root", r->dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/7/root/tmp", r->dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/7/status", r->dir);
	snprintf(text, sizeof(text), "Name:\tx\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t7\t3\n", getuid(),
		 getuid(), getuid(), getuid());
	write_text(path, text);
	snprintf(r->map, sizeof(r->map), "%s/7/root/tmp/perf-3.map", r->dir);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct root *r = *state;
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", r->dir);
	assert_int_equal(system(cmd), 0);
	free(r);
	return 0;
}

static int try_open(const struct root *r)
{
	int fd = perfmap_open(r->dir, 7);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static void the_innermost_pid_names_the_file(void **state)
{
	struct root *r = *state;

	assert_int_equal(try_open(r), -ENOENT);
	write_text(r->map, "");
	chmod(r->map, 0644);
	assert_int_equal(try_open(r), 0);
}

static void a_link_is_not_followed(void **state)
{
	struct root *r = *state;

	assert_int_equal(symlink("/etc/passwd", r->map), 0);
	assert_int_equal(try_open(r), -ELOOP);
}

static void a_directory_that_is_a_link_is_not_followed(void **state)
{
	struct root *r = *state;
	char tmp[128];

	snprintf(tmp, sizeof(tmp), "%s/7/root/tmp", r->dir);
	assert_int_equal(rmdir(tmp), 0);
	assert_int_equal(symlink("/tmp", tmp), 0);
	assert_int_equal(try_open(r), -ELOOP);
}

static void a_fifo_neither_blocks_nor_is_read(void **state)
{
	struct root *r = *state;

	assert_int_equal(mkfifo(r->map, 0600), 0);
	assert_int_equal(try_open(r), -EPERM);
}

static void a_file_that_others_may_write_is_refused(void **state)
{
	struct root *r = *state;

	write_text(r->map, "");
	chmod(r->map, 0666);
	assert_int_equal(try_open(r), -EPERM);
	chmod(r->map, 0664);
	assert_int_equal(try_open(r), -EPERM);
}

static void a_file_with_a_second_name_is_refused(void **state)
{
	struct root *r = *state;
	char other[128];

	write_text(r->map, "");
	chmod(r->map, 0644);
	snprintf(other, sizeof(other), "%s/other", r->dir);
	assert_int_equal(link(r->map, other), 0);
	assert_int_equal(try_open(r), -EPERM);
}

static void a_file_of_another_user_is_refused(void **state)
{
	struct root *r = *state;
	char path[128], text[128];

	write_text(r->map, "");
	chmod(r->map, 0644);
	/* The process is somebody else's now; root's files stay good for all. */
	snprintf(path, sizeof(path), "%s/7/status", r->dir);
	snprintf(text, sizeof(text), "Name:\tx\nUid:\t4242\t4242\t4242\t4242\nNSpid:\t7\t3\n");
	write_text(path, text);
	assert_int_equal(try_open(r), getuid() ? -EPERM : 0);
}

static void a_growing_map_is_read_on(void **state)
{
	struct root *r = *state;
	struct process p = { .pid = 7, .start_ns = 1, .exec_id = 1 };
	struct reader *reader = reader_new();
	struct perfmaps *pm = perfmaps_new(reader, r->dir);
	u64 now = now_monotonic(), id;
	FILE *f;

	write_text(r->map, "1000 10 one\n");
	chmod(r->map, 0644);
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	perfmaps_round(pm, now);
	assert_string_equal(perfmaps_lookup(pm, &p, 0x1000, &id), "one");
	f = fopen(r->map, "a");
	fputs("2000 10 two\n", f);
	fclose(f);
	assert_null(perfmaps_lookup(pm, &p, 0x2000, &id));
	perfmaps_round(pm, now + 2 * NSEC_PER_SEC);
	assert_string_equal(perfmaps_lookup(pm, &p, 0x2000, &id), "two");
	assert_string_equal(perfmaps_lookup(pm, &p, 0x1000, &id), "one");
	/* Another image under the same pid has names of its own. */
	p.exec_id = 2;
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	perfmaps_free(pm);
	reader_free(reader);
}

static void a_map_that_was_begun_anew_loses_its_old_names(void **state)
{
	struct root *r = *state;
	struct process p = { .pid = 7, .start_ns = 1, .exec_id = 1 };
	struct reader *reader = reader_new();
	struct perfmaps *pm = perfmaps_new(reader, r->dir);
	u64 now = now_monotonic(), id;

	write_text(r->map, "1000 10 one\n3000 10 three\n");
	chmod(r->map, 0644);
	perfmaps_lookup(pm, &p, 0x1000, &id);
	perfmaps_round(pm, now);
	write_text(r->map, "2000 10 two\n");
	perfmaps_lookup(pm, &p, 0x2000, &id);
	perfmaps_round(pm, now + 2 * NSEC_PER_SEC);
	perfmaps_lookup(pm, &p, 0x2000, &id);
	perfmaps_round(pm, now + 4 * NSEC_PER_SEC);
	assert_string_equal(perfmaps_lookup(pm, &p, 0x2000, &id), "two");
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	perfmaps_free(pm);
	reader_free(reader);
}

static void a_map_of_an_earlier_process_is_not_believed(void **state)
{
	struct root *r = *state;
	struct timespec old[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	struct process p = { .pid = 7, .exec_id = 1 };
	struct reader *reader = reader_new();
	struct perfmaps *pm = perfmaps_new(reader, r->dir);
	u64 now = now_monotonic(), id;

	p.start_ns = now_boottime();
	write_text(r->map, "1000 10 one\n");
	chmod(r->map, 0644);
	utimensat(AT_FDCWD, r->map, old, 0);
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	perfmaps_round(pm, now);
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	/* Once the process writes one itself, it is found. */
	write_text(r->map, "1000 10 two\n");
	perfmaps_round(pm, now + NSEC_PER_SEC / 2);
	assert_null(perfmaps_lookup(pm, &p, 0x1000, &id));
	perfmaps_round(pm, now + 2 * NSEC_PER_SEC);
	assert_string_equal(perfmaps_lookup(pm, &p, 0x1000, &id), "two");
	perfmaps_free(pm);
	reader_free(reader);
}

static void names_are_found_after_the_process_has_gone(void **state)
{
	struct root *r = *state;
	struct process p = { .pid = 7, .start_ns = 1, .exec_id = 1 };
	struct reader *reader = reader_new();
	struct perfmaps *pm = perfmaps_new(reader, r->dir);
	u64 now = now_monotonic(), id, other;
	char cmd[128];

	write_text(r->map, "1000 10 one\n");
	chmod(r->map, 0644);
	perfmaps_lookup(pm, &p, 0x1000, &id);
	assert_true(perfmaps_behind(pm, id));
	perfmaps_round(pm, now);
	assert_false(perfmaps_behind(pm, id));
	snprintf(cmd, sizeof(cmd), "rm -rf %s/7", r->dir);
	assert_int_equal(system(cmd), 0);
	assert_string_equal(perfmaps_find(pm, id, 0x1000), "one");
	/* Long after, it is forgotten, and its number means nobody. */
	perfmaps_round(pm, now + 200 * NSEC_PER_SEC);
	assert_int_equal(perfmaps_count(pm), 0);
	assert_int_equal(perfmaps_bytes(pm), 0);
	p.exec_id = 2;
	perfmaps_lookup(pm, &p, 0x1000, &other);
	assert_int_not_equal(id, other);
	assert_null(perfmaps_find(pm, id, 0x1000));
	assert_null(perfmaps_find(pm, 0, 0x1000));
	perfmaps_free(pm);
	reader_free(reader);
}

/* --- readable names -------------------------------------------------------------------------- */

static void assert_demangled(const char *name, const char *want)
{
	char got[DEMANGLE_OUT_MAX + 1];

	assert_true(demangle(name, got, sizeof(got)));
	assert_string_equal(got, want);
}

static void cpp_names_lose_their_parameters(void **state)
{
	(void)state;
	assert_demangled("_ZN3foo3barEi", "foo::bar");
	assert_demangled("_ZNSt6vectorIiSaIiEE9push_backERKi",
			 "std::vector<int, std::allocator<int> >::push_back");
	assert_demangled("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()");
	assert_demangled("_ZNK3FooIiEltERKS0_", "Foo<int>::operator<");
	assert_demangled("_ZN3FooD1Ev", "Foo::~Foo");
	assert_demangled("_ZTv0_n24_N3Foo3barEv", "virtual thunk to Foo::bar()");
}

static void rust_names_lose_their_hash(void **state)
{
	(void)state;
	assert_demangled("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write");
	assert_demangled("_ZN4core3fmt5write17h0123456789abcdefE.llvm.1234", "core::fmt::write");
	assert_demangled("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$"
			 "$GT$3bar17h0123456789abcdefE",
			 "<Test + 'static as foo::Bar<Test>>::bar");
	assert_demangled("_RNvCs1234_7mycrate3foo", "mycrate::foo");
	assert_demangled("_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
			 "std::mem::align_of::<std::mem::Discriminant>");
}

static void what_is_not_mangled_stays(void **state)
{
	static const char *const names[] = {
		"main",       "_ZN",   "_R", "_RINvNtC0std3mem", "", "_Z", "__libc_start_main",
		"_Znonsense", "_start"
	};
	char got[64] = "untouched";
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		assert_false(demangle(names[i], got, sizeof(got)));
		assert_string_equal(got, "untouched");
	}
}

/* Back-references make a name of n bytes print 2^n: billions of nested pairs here. */
static void a_name_that_explodes_is_cut(void **state)
{
	char name[1024] = "_Z1f1aIiiE", got[DEMANGLE_OUT_MAX + 1];
	u64 start = now_monotonic();
	u32 i;

	(void)state;
	for (i = 0; i < 30; i++) {
		char ref[32];

		/* S1_, S2_, ...: each substitution doubles the one before. */
		snprintf(ref, sizeof(ref), "1aIS%X_S%X_E", i, i);
		strcat(name, ref);
	}
	demangle(name, got, sizeof(got));
	assert_true(now_monotonic() - start < NSEC_PER_SEC);
}

static void a_long_name_is_left_alone(void **state)
{
	char name[DEMANGLE_IN_MAX + 64], got[64];

	(void)state;
	memset(name, 'P', sizeof(name));
	memcpy(name, "_Z1f", 4);
	name[sizeof(name) - 1] = '\0';
	assert_false(demangle(name, got, sizeof(got)));
}

static void a_deeply_nested_name_fits_the_stack(void **state)
{
	char name[DEMANGLE_IN_MAX + 1], got[DEMANGLE_OUT_MAX + 1];

	(void)state;
	memset(name, 'P', sizeof(name));
	memcpy(name, "_Z1fI", 5);
	strcpy(name + DEMANGLE_IN_MAX - 4, "iEvv");
	if (demangle(name, got, sizeof(got)))
		assert_memory_equal(got, "f<", 2);
	memset(name + 2, 'N', DEMANGLE_IN_MAX - 2);
	demangle(name, got, sizeof(got));
}

static void a_long_result_ends_in_dots(void **state)
{
	char name[2048] = "_Z1200", got[DEMANGLE_OUT_MAX + 1];

	(void)state;
	memset(name + 6, 'a', 1200);
	strcpy(name + 1206, "v");
	assert_true(demangle(name, got, sizeof(got)));
	assert_int_equal(strlen(got), DEMANGLE_OUT_MAX);
	assert_string_equal(got + DEMANGLE_OUT_MAX - 3, "...");
}

static void a_jvms_numbers_go(void **state)
{
	static const char *const pairs[][2] = {
		{ "a.B$$Lambda$14/0x0000000800c0a440.run", "a.B$$Lambda.run" },
		{ "a.B$$Lambda/0x00007f8a1c001000.run", "a.B$$Lambda.run" },
		{ "a.B$$Lambda$14/1234567.run", "a.B$$Lambda.run" },
		{ "java.lang.invoke.LambdaForm$MH/0x0000000800c01000.invoke",
		  "java.lang.invoke.LambdaForm$MH.invoke" },
		{ "jdk.internal.reflect.GeneratedMethodAccessor12.invoke",
		  "jdk.internal.reflect.GeneratedMethodAccessor.invoke" },
		{ "com.sun.proxy.$Proxy33.run", "com.sun.proxy.$Proxy.run" },
		{ "plain.Name$1.run", "plain.Name$1.run" },
	};
	char name[128];
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		strcpy(name, pairs[i][0]);
		demangle_hidden(name);
		assert_string_equal(name, pairs[i][1]);
	}
}

int main(void)
{
#define FILES(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_covers_its_range_and_no_more),
		cmocka_unit_test(numbers_may_have_0x),
		cmocka_unit_test(the_newest_entry_wins),
		cmocka_unit_test(overlaps_of_any_kind_are_resolved_in_file_order),
		cmocka_unit_test(lines_may_be_cut_anywhere),
		cmocka_unit_test(what_is_no_entry_is_counted_and_skipped),
		cmocka_unit_test(a_line_without_end_costs_nothing),
		cmocka_unit_test(names_are_text_of_bounded_length),
		cmocka_unit_test(names_over_the_budget_end_the_reading),
		FILES(the_innermost_pid_names_the_file),
		FILES(a_link_is_not_followed),
		FILES(a_directory_that_is_a_link_is_not_followed),
		FILES(a_fifo_neither_blocks_nor_is_read),
		FILES(a_file_that_others_may_write_is_refused),
		FILES(a_file_with_a_second_name_is_refused),
		FILES(a_file_of_another_user_is_refused),
		FILES(a_growing_map_is_read_on),
		FILES(a_map_that_was_begun_anew_loses_its_old_names),
		FILES(a_map_of_an_earlier_process_is_not_believed),
		FILES(names_are_found_after_the_process_has_gone),
		cmocka_unit_test(cpp_names_lose_their_parameters),
		cmocka_unit_test(rust_names_lose_their_hash),
		cmocka_unit_test(what_is_not_mangled_stays),
		cmocka_unit_test(a_name_that_explodes_is_cut),
		cmocka_unit_test(a_long_name_is_left_alone),
		cmocka_unit_test(a_deeply_nested_name_fits_the_stack),
		cmocka_unit_test(a_long_result_ends_in_dots),
		cmocka_unit_test(a_jvms_numbers_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
