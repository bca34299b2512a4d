// SPDX-License-Identifier: Apache-2.0
/* Kernel names: hand-written lists, and the running kernel's own against its text. */
#include "core/kallsyms.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

/* Writes a list to a temporary file and reads it. */
static int read_text(const char *text, size_t len, struct kallsyms **ret)
{
	char path[] = "/tmp/kallsyms-XXXXXX";
	int fd = mkstemp(path), err;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
	err = kallsyms_new(path, ret);
	unlink(path);
	return err;
}

static struct kallsyms *must_read(const char *text)
{
	struct kallsyms *k = NULL;

	assert_int_equal(read_text(text, strlen(text), &k), 0);
	return k;
}

static void assert_name(const struct kallsyms *k, u64 addr, const char *name, const char *module)
{
	const char *got_module = NULL, *got = kallsyms_lookup(k, addr, &got_module);

	if (!name) {
		assert_null(got);
		return;
	}
	assert_non_null(got);
	assert_string_equal(got, name);
	assert_string_equal(got_module, module);
}

static void function_reaches_to_the_next_symbol(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000100 T first\n"
				       "ffffffff81000200 t second\n"
				       "ffffffff81000300 W third\n");

	assert_name(k, 0xffffffff810000ff, NULL, NULL);
	assert_name(k, 0xffffffff81000100, "first", "vmlinux");
	assert_name(k, 0xffffffff810001ff, "first", "vmlinux");
	assert_name(k, 0xffffffff81000200, "second", "vmlinux");
	assert_name(k, 0xffffffff81000300, "third", "vmlinux");
	kallsyms_free(k);
}

static void lines_need_no_order(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000300 T c\nffffffff81000100 T a\n"
				       "ffffffff81000200 T b");

	assert_name(k, 0xffffffff81000150, "a", "vmlinux");
	assert_name(k, 0xffffffff81000250, "b", "vmlinux");
	assert_name(k, 0xffffffff81000350, "c", "vmlinux");
	kallsyms_free(k);
}

static void data_and_etext_end_a_function(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000100 T code\n"
				       "ffffffff81000200 D data\n"
				       "ffffffff81000300 R more_data\n"
				       "ffffffff81000400 t last\n"
				       "ffffffff81000480 T _etext\n");

	assert_name(k, 0xffffffff810001ff, "code", "vmlinux");
	assert_name(k, 0xffffffff81000200, NULL, NULL);
	assert_name(k, 0xffffffff81000350, NULL, NULL);
	assert_name(k, 0xffffffff8100047f, "last", "vmlinux");
	assert_name(k, 0xffffffff81000480, NULL, NULL);
	kallsyms_free(k);
}

static void last_function_does_not_reach_into_unmapped_space(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000000 T only\n");

	assert_name(k, 0xffffffff81000fff, "only", "vmlinux");
	assert_name(k, 0xffffffff81100000, NULL, NULL);
	assert_name(k, UINT64_MAX, NULL, NULL);
	kallsyms_free(k);
}

static void global_before_weak_before_local(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000100 t local\n"
				       "ffffffff81000100 W weak\n"
				       "ffffffff81000100 T global\n"
				       "ffffffff81000200 t local2\n"
				       "ffffffff81000200 w weak2\n"
				       "ffffffff81000300 T _stext\n"
				       "ffffffff81000300 T __sched_text_start\n"
				       "ffffffff81000300 t real\n");

	assert_name(k, 0xffffffff81000110, "global", "vmlinux");
	assert_name(k, 0xffffffff81000210, "weak2", "vmlinux");
	assert_name(k, 0xffffffff81000310, "real", "vmlinux");
	kallsyms_free(k);
}

static void modules_are_named(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffffc0000000 t ext4_a\t[ext4]\n"
				       "ffffffffc0000100 T ext4_b\t[ext4]\n"
				       "ffffffffc0001000 t bpf_prog_6deef7357e7b4530_f\t[bpf]\n"
				       "ffffffff81000000 T vm\n");

	assert_name(k, 0xffffffffc0000050, "ext4_a", "ext4");
	assert_name(k, 0xffffffffc0000150, "ext4_b", "ext4");
	assert_name(k, 0xffffffffc0001010, "bpf_prog_6deef7357e7b4530_f", "bpf");
	assert_name(k, 0xffffffff81000010, "vm", "vmlinux");
	assert_non_null(kallsyms_lookup(k, 0xffffffff81000010, NULL));
	kallsyms_free(k);
}

static void compiler_suffixes_are_kept(void **state __unused)
{
	struct kallsyms *k = must_read("ffffffff81000100 t f.constprop.0.isra.0\n");

	assert_name(k, 0xffffffff81000100, "f.constprop.0.isra.0", "vmlinux");
	kallsyms_free(k);
}

static void hidden_addresses_are_EACCES(void **state __unused)
{
	static const char text[] = "0000000000000000 T a\n0000000000000000 t b\n";
	struct kallsyms *k = NULL;

	assert_int_equal(read_text(text, strlen(text), &k), -EACCES);
	assert_null(k);
}

static void missing_empty_and_odd_files_are_errors(void **state __unused)
{
	char dir[] = "/tmp/kallsyms-XXXXXX", fifo[64];
	struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new("/nonexistent/kallsyms", &k), -ENOENT);
	assert_int_equal(read_text("", 0, &k), -ENODATA);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(kallsyms_new(dir, &k), -EISDIR);
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(kallsyms_new(fifo, &k), -ENODATA);
	unlink(fifo);
	rmdir(dir);
	assert_null(k);
}

static void malformed_lines_are_skipped(void **state __unused)
{
	static const char head[] = "\n\n \nnonsense\nffffffff81000050\nffffffff81000060 T\n"
				   "fffffffffffffffff T too_many_digits\n"
				   "ffffffff81000070 TT two_types\n"
				   "ffffffff81000100 T good\n";
	static const char tail[] = "\nffffffff81000200 T after\n";
	size_t len = 0, longest = 200000, size = sizeof(head) + longest + sizeof(tail);
	char *text = malloc(size);
	struct kallsyms *k = NULL;

	assert_non_null(text);
	memcpy(text, head, sizeof(head) - 1);
	len += sizeof(head) - 1;
	/* A line over several buffers whose tail must not pass for a line of its own. */
	memset(text + len, 'a', longest);
	memcpy(text + len + longest - 28, "\0ffffffff81000180 T sneaked_", 28);
	len += longest;
	memcpy(text + len, tail, sizeof(tail) - 1);
	len += sizeof(tail) - 1;
	assert_int_equal(read_text(text, len, &k), 0);
	assert_name(k, 0xffffffff81000065, NULL, NULL);
	assert_name(k, 0xffffffff81000075, NULL, NULL);
	assert_name(k, 0xffffffff81000190, "good", "vmlinux");
	assert_name(k, 0xffffffff81000210, "after", "vmlinux");
	kallsyms_free(k);
	free(text);
}

static void random_bytes_never_crash(void **state __unused)
{
	static const char alphabet[] = "0123456789abcdef0f TtWd\t[]\n\n_\0\xff";
	char text[4096];
	u64 x = 88172645463325252u;
	int round;

	for (round = 0; round < 200; round++) {
		struct kallsyms *k = NULL;
		size_t i;

		for (i = 0; i < sizeof(text); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			text[i] = alphabet[x % (sizeof(alphabet) - 1)];
		}
		if (!read_text(text, sizeof(text), &k))
			kallsyms_lookup(k, x, NULL);
		kallsyms_free(k);
	}
}

/* Random changes against a plain table of which name each byte has. */
static void code_that_comes_and_goes_is_known_at_each_address(void **state __unused)
{
	static const u64 base = 0xffffffffc0000000;
	struct kallsyms *k = must_read("ffffffffc0000000 t old\t[mod]\nffffffffc0000100 d end\n");
	char want[256][8];
	u64 x = 88172645463325252u;
	u32 round, i;

	for (i = 0; i < 256; i++)
		strcpy(want[i], "old");
	for (round = 0; round < 1000; round++) {
		char name[8];
		u32 lo, len;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		lo = x % 256;
		len = 1 + (x >> 8) % 60;
		len = MIN(len, 256 - lo);
		snprintf(name, sizeof(name), "n%u", round);
		if ((x >> 20) % 3 == 0)
			*name = '\0';
		kallsyms_change(k, base + lo, len, *name ? name : NULL, "bpf");
		for (i = lo; i < lo + len; i++)
			strcpy(want[i], name);
		for (i = 0; i < 256; i++)
			assert_name(k, base + i, *want[i] ? want[i] : NULL,
				    strcmp(want[i], "old") ? "bpf" : "mod");
	}
	/* Nothing, and round the end of all addresses. */
	kallsyms_change(k, base, 0, "none", "");
	kallsyms_change(k, UINT64_MAX - 1, 10, "none", "");
	assert_name(k, base, *want[0] ? want[0] : NULL, strcmp(want[0], "old") ? "bpf" : "mod");
	assert_null(kallsyms_lookup(k, UINT64_MAX, NULL));
	kallsyms_free(k);
}

struct files {
	char dir[32], symbols[64], modules[64];
};

static void files_init(struct files *f)
{
	strcpy(f->dir, "/tmp/kallsyms-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->symbols, sizeof(f->symbols), "%s/kallsyms", f->dir);
	snprintf(f->modules, sizeof(f->modules), "%s/modules", f->dir);
}

static void files_fini(struct files *f)
{
	unlink(f->symbols);
	unlink(f->modules);
	rmdir(f->dir);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A module's number of users changes all the time; that is no reason to read anything. */
static void symbols_are_read_again_when_other_modules_are_loaded(void **state __unused)
{
	struct kallsyms *k = NULL;
	struct files f;

	files_init(&f);
	write_text(f.symbols, "ffffffffc0000000 t one\t[a]\n");
	write_text(f.modules, "a 4096 0 - Live 0xffffffffc0000000\n");
	assert_int_equal(kallsyms_new(f.symbols, &k), 0);
	write_text(f.symbols, "ffffffffc0000000 t two\t[b]\n");
	write_text(f.modules, "a 4096 7 x,y, Live 0xffffffffc0000000\n");
	kallsyms_follow(k, false);
	assert_name(k, 0xffffffffc0000000, "one", "a");
	write_text(f.modules, "b 4096 0 - Live 0xffffffffc0000000\n");
	kallsyms_follow(k, false);
	assert_name(k, 0xffffffffc0000000, "two", "b");
	/* What cannot be read stays as it was, and is not tried each time. */
	unlink(f.symbols);
	write_text(f.modules, "c 4096 0 - Live 0xffffffffc0000000\n");
	kallsyms_follow(k, false);
	assert_name(k, 0xffffffffc0000000, "two", "b");
	write_text(f.symbols, "ffffffffc0000000 t three\n");
	kallsyms_follow(k, false);
	assert_name(k, 0xffffffffc0000000, "two", "b");
	kallsyms_follow(k, true);
	assert_name(k, 0xffffffffc0000000, "three", "vmlinux");
	files_fini(&f);
	kallsyms_free(k);
}

static void too_many_changes_are_made_up_for_by_reading_again(void **state __unused)
{
	struct kallsyms *k = NULL;
	struct files f;
	u32 i;

	files_init(&f);
	write_text(f.symbols, "ffffffffc0000000 t one\n");
	assert_int_equal(kallsyms_new(f.symbols, &k), 0);
	for (i = 0; i < 100000; i++)
		kallsyms_change(k, 0xffffffffd0000000 + 16 * (i % 9000), 16, "prog", "bpf");
	assert_name(k, 0xffffffffc0000000, "one", "vmlinux");
	write_text(f.symbols, "ffffffffc0000000 t one\nffffffffd0000000 t prog\t[bpf]\n"
			      "ffffffffd0000010 t last\t[bpf]\n");
	kallsyms_follow(k, false);
	assert_name(k, 0xffffffffd0000000, "prog", "bpf");
	assert_name(k, 0xffffffffd0000010, "last", "bpf");
	files_fini(&f);
	kallsyms_free(k);
}

/* The address of a symbol of the running kernel, by a plain scan of the text. */
static u64 scan(FILE *f, const char *want)
{
	char line[1024], name[512], type;
	unsigned long long addr;

	rewind(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx %c %511s", &addr, &type, name) == 3 && !strcmp(name, want))
			return addr;
	return 0;
}

static void running_kernel_fits_its_budget(void **state __unused)
{
	static const char *const names[] = { "schedule", "do_exit", "vfs_read", "__x64_sys_read",
					     "__arm64_sys_read" };
	struct kallsyms *k = NULL;
	FILE *f = fopen("/proc/kallsyms", "re");
	size_t before, used;
	u64 start, took;
	u32 i, found = 0;
	int err;

	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	start = now_monotonic();
	err = kallsyms_new(NULL, &k);
	took = now_monotonic() - start;
	if (err == -EACCES || err == -EPERM || err == -ENOENT || !f) {
		if (f)
			fclose(f);
		skip();
	}
	assert_int_equal(err, 0);
	used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
	print_message("kallsyms: %zu bytes, %llu ms\n", used, (unsigned long long)(took / 1000000));
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		u64 addr = scan(f, names[i]);

		if (!addr)
			continue;
		assert_name(k, addr, names[i], "vmlinux");
		assert_name(k, addr + 1, names[i], "vmlinux");
		found++;
	}
	assert_true(found >= 3);
	assert_null(kallsyms_lookup(k, 0x400000, NULL));
	fclose(f);
	kallsyms_free(k);
#ifndef __SANITIZE_ADDRESS__
	assert_true(used < 16u << 20);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(function_reaches_to_the_next_symbol),
		cmocka_unit_test(lines_need_no_order),
		cmocka_unit_test(data_and_etext_end_a_function),
		cmocka_unit_test(last_function_does_not_reach_into_unmapped_space),
		cmocka_unit_test(global_before_weak_before_local),
		cmocka_unit_test(modules_are_named),
		cmocka_unit_test(compiler_suffixes_are_kept),
		cmocka_unit_test(hidden_addresses_are_EACCES),
		cmocka_unit_test(missing_empty_and_odd_files_are_errors),
		cmocka_unit_test(malformed_lines_are_skipped),
		cmocka_unit_test(random_bytes_never_crash),
		cmocka_unit_test(code_that_comes_and_goes_is_known_at_each_address),
		cmocka_unit_test(symbols_are_read_again_when_other_modules_are_loaded),
		cmocka_unit_test(too_many_changes_are_made_up_for_by_reading_again),
		cmocka_unit_test(running_kernel_fits_its_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
