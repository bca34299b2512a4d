// SPDX-License-Identifier: Apache-2.0
/*
 * Names that are not in a file's own symbol table: entries of PLTs, separate debug files, compressed
 * symbols, Go's table. Files are made by gcc and binutils here; expected names are those of nm and
 * objdump. Go's tables are laid out by hand as src/debug/gosym/pclntab.go reads them.
 */
#include "core/debugfile.h"
#include "core/pclntab.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define BUDGET (64u << 20)

static char dir[64];

static void sh(const char *fmt, ...) __printf(1, 2);
static void sh(const char *fmt, ...)
{
	char cmd[4096] = "cd ", *s = cmd + 3;
	va_list args;

	s += sprintf(s, "%s && ", dir);
	va_start(args, fmt);
	vsnprintf(s, sizeof(cmd) - (size_t)(s - cmd), fmt, args);
	va_end(args);
	if (system(cmd))
		fail_msg("failed: %s", cmd);
}

static int setup(void **state __unused)
{
	FILE *f;
	char path[128];

	strcpy(dir, "/tmp/symbols.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.c", dir);
	f = fopen(path, "w");
	fputs("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
	      "static __attribute__((noinline)) int inner(int x) { return rand() + x; }\n"
	      "int outer(int x) { return inner(x) + (int)strtol(\"1\", 0, 10); }\n"
	      "__attribute__((weak)) int weak_one(void) { return getenv(\"A\") != 0; }\n"
	      "int main(int c, char **v) { puts(v[0]); atexit((void (*)(void))main);\n"
	      "free(malloc(c)); return outer(c) + weak_one(); }\n",
	      f);
	fclose(f);
	return 0;
}

static int teardown(void **state __unused)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* A file below the test's directory, open. */
static struct elfsym_source open_file(const char *name)
{
	char path[256];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	return (struct elfsym_source){ .fd = fd, .size = (u64)st.st_size };
}

static struct elfsym_table *table_of(const char *name, const struct elfsym_source *debug)
{
	struct elfsym_source src = open_file(name);
	struct elfsym_table *t = NULL;

	assert_int_equal(elfsym_table(&src, debug, BUDGET, &t), 0);
	close(src.fd);
	return t;
}

/* Lines "ADDRESS NAME" of a command: each is what the table says. Returns how many. */
static u32 compare(const struct elfsym_table *t, const char *fmt, ...) __printf(2, 3);
static u32 compare(const struct elfsym_table *t, const char *fmt, ...)
{
	char cmd[1024], line[4096], name[2048];
	unsigned long long addr;
	va_list args;
	u32 n = 0;
	FILE *f;

	va_start(args, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, args);
	va_end(args);
	f = popen(cmd, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		const char *got;

		if (sscanf(line, "%llx %2047s", &addr, name) != 2)
			continue;
		got = elfsym_lookup(t, addr);
		if (!got || strcmp(got, name))
			fail_msg("%llx is %s, not %s", addr, name, got ? got : "(none)");
		n++;
	}
	assert_int_equal(pclose(f), 0);
	return n;
}

/* Functions of known size as nm has them. */
#define NM_FUNCTIONS "nm -S --defined-only %s/%s | awk 'NF == 4 && $3 ~ /[TtW]/ { print $1, $4 }'"

/* --- PLTs ------------------------------------------------------------------------------------ */

static void plt_entries_are_named_after_their_target(void **state __unused)
{
	static const char *const flags[] = {
		"-Wl,-z,lazy",
		"-Wl,-z,now",
		"-Wl,-z,lazy -fcf-protection=full -Wl,-z,ibtplt",
		"-Wl,-z,now -no-pie",
		"-Wl,-z,lazy -fno-plt",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		struct elfsym_table *t;
		u32 n;

		/* Flags of the other architecture make the same file again. */
		sh("gcc -O1 %s -o plt%u a.c 2>/dev/null || gcc -O1 -o plt%u a.c", flags[i], i, i);
		sh("strip plt%u", i);
		sh("chmod 644 plt%u", i);
		{
			char name[16];

			snprintf(name, sizeof(name), "plt%u", i);
			t = table_of(name, NULL);
		}
		/* As objdump makes them up: "0000000000001030 <puts@plt>:". */
		n = compare(t,
			    "objdump -d %s/plt%u | sed -n "
			    "'s/^\\([0-9a-f]*\\) <\\(.*@plt\\)>:$/\\1 \\2/p'",
			    dir, i);
		print_message("%s: %u entries\n", flags[i], n);
		assert_true(n >= (i == 4 ? 1 : 5));
		elfsym_table_free(t);
	}
}

/* --- separate files -------------------------------------------------------------------------- */

struct found {
	int fd;
	u64 size;
	char path[PATH_MAX];
};

static struct found look_for(const char *name, const char *path)
{
	struct elfsym_source src = open_file(name);
	struct found f = { .fd = -1 };
	struct elfsym_info info;
	struct debugfile_question q = {
		.src = &src, .info = &info, .path = path, .host_root = dir
	};

	assert_int_equal(elfsym_info(&src, &info), 0);
	f.fd = debugfile_open(&q, &f.size, f.path);
	elfsym_info_fini(&info);
	close(src.fd);
	return f;
}

static void expect_found(const char *name, const char *path, const char *where)
{
	struct found f = look_for(name, path);
	struct elfsym_source debug = { .fd = f.fd, .size = f.size };
	struct elfsym_table *t;

	assert_true(f.fd >= 0);
	assert_string_equal(f.path, where);
	t = table_of(name, &debug);
	assert_true(compare(t, NM_FUNCTIONS, dir, "full") >= 4);
	elfsym_table_free(t);
	close(f.fd);
}

static void expect_none(const char *name, const char *path)
{
	assert_int_equal(look_for(name, path).fd, -ENOENT);
}

static void a_debug_file_is_found_by_build_id(void **state __unused)
{
	sh("gcc -O1 -Wl,--build-id=0x0123456789abcdef -o full a.c && "
	   "objcopy --only-keep-debug full full.debug && strip -o app full && "
	   "mkdir -p usr/lib/debug/.build-id/01 && "
	   "cp full.debug usr/lib/debug/.build-id/01/23456789abcdef.debug");
	expect_found("app", "/opt/app", "/usr/lib/debug/.build-id/01/23456789abcdef.debug");
	/* Another one of the same name is not it. */
	sh("gcc -O1 -Wl,--build-id=0x0123456789abcdee -o full a.c && "
	   "objcopy --only-keep-debug full usr/lib/debug/.build-id/01/23456789abcdef.debug");
	expect_none("app", "/opt/app");
}

static void a_debug_link_is_followed_in_fixed_directories(void **state __unused)
{
	sh("gcc -O1 -Wl,--build-id=none -o full a.c && mkdir -p opt/.debug usr/lib/debug/opt && "
	   "objcopy --only-keep-debug full opt/app.debug && strip -o app full && "
	   "objcopy --add-gnu-debuglink=opt/app.debug app");
	expect_found("app", "/opt/app", "/opt/app.debug");
	sh("mv opt/app.debug opt/.debug");
	expect_found("app", "/opt/app", "/opt/.debug/app.debug");
	sh("mv opt/.debug/app.debug usr/lib/debug/opt");
	expect_found("app", "/opt/app", "/usr/lib/debug/opt/app.debug");
	/* Anywhere else it is not looked for. */
	sh("mv usr/lib/debug/opt/app.debug usr/lib/debug");
	expect_none("app", "/opt/app");
}

static void a_debug_file_of_another_build_is_refused(void **state __unused)
{
	sh("gcc -O1 -Wl,--build-id=none -o full a.c && mkdir -p opt && "
	   "objcopy --only-keep-debug full opt/app.debug && strip -o app full && "
	   "objcopy --add-gnu-debuglink=opt/app.debug app && gcc -O2 -Wl,--build-id=none -o full a.c "
	   "&& objcopy --only-keep-debug full opt/app.debug");
	expect_none("app", "/opt/app");
}

/* Rows of the threat model: a link that leads out, a thing that is no file. */
static void row16_a_link_never_leaves_its_directories(void **state __unused)
{
	sh("gcc -O1 -Wl,--build-id=none -o full a.c && mkdir -p opt/deep/er && "
	   "objcopy --only-keep-debug full app.debug && strip -o app full && "
	   "objcopy --add-gnu-debuglink=app.debug app && mv app.debug opt && "
	   /* The same length: "app.debug" to "../ap.dbg". */
	   "cp opt/app.debug opt/ap.dbg && sed 's,app.debug,../ap.dbg,' app > bad");
	expect_none("bad", "/opt/deep/app");
	sh("rm opt/app.debug && mkfifo opt/app.debug");
	expect_none("app", "/opt/app");
	/* Out of the root by a link: it is the root's own path that is meant. */
	sh("rm opt/app.debug && ln -s /../../../../..%s/opt/ap.dbg opt/app.debug", dir);
	expect_none("app", "/opt/app");
	sh("ln -sf /opt/ap.dbg opt/app.debug");
	expect_found("app", "/opt/app", "/opt/app.debug");
}

/* --- compressed symbols ---------------------------------------------------------------------- */

static void pack(const char *in, const char *out)
{
	static u8 plain[1u << 20], packed[1u << 20];
	char path[256];
	size_t n, pos = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, in);
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(plain, 1, sizeof(plain), f);
	fclose(f);
	assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, plain, n, packed, &pos,
						 sizeof(packed)),
			 LZMA_OK);
	snprintf(path, sizeof(path), "%s/%s", dir, out);
	f = fopen(path, "w");
	fwrite(packed, 1, pos, f);
	fclose(f);
}

static void compressed_symbols_are_read(void **state __unused)
{
	struct elfsym_table *t;

	sh("gcc -O1 -o full a.c && objcopy -S --keep-symbol=inner --keep-symbol=outer "
	   "--keep-symbol=main --keep-symbol=weak_one full mini && strip -o app full");
	pack("mini", "mini.xz");
	sh("objcopy --add-section .gnu_debugdata=mini.xz app");
	t = table_of("app", NULL);
	assert_true(compare(t,
			    "nm -S %s/full | awk '/(inner|outer|main|weak_one)$/ && NF == 4 "
			    "{ print $1, $4 }'",
			    dir) == 4);
	elfsym_table_free(t);
	/* Cut short, and no xz at all: the file has no symbols then, and is none the worse. */
	sh("head -c 300 mini.xz > cut.xz && strip -o app2 full && "
	   "objcopy --add-section .gnu_debugdata=cut.xz app2 && strip -o app3 full && "
	   "objcopy --add-section .gnu_debugdata=a.c app3");
	elfsym_table_free(table_of("app2", NULL));
	elfsym_table_free(table_of("app3", NULL));
}

/* --- Go's table ------------------------------------------------------------------------------ */

#define TEXT 0x401000ull

struct go {
	u8 bytes[2048];
	size_t len;
};

static void put32(struct go *g, size_t at, u32 v)
{
	memcpy(g->bytes + at, &v, sizeof(v));
	g->len = MAX(g->len, at + sizeof(v));
}

static void put64(struct go *g, size_t at, u64 v)
{
	memcpy(g->bytes + at, &v, sizeof(v));
	g->len = MAX(g->len, at + sizeof(v));
}

#define NAMES   0x100 /* where names are */
#define RECORDS 0x200 /* where functions are listed */

static const char *const go_names[] = { "_rt0_amd64_linux", "runtime.main", "main.(*T).Run-fm" };

/* Three functions of 0x20, 0x100 and 0x40 bytes. */
static struct go go_table(u32 magic, u64 text)
{
	static const u32 starts[] = { 0, 0x20, 0x120, 0x160 };
	bool old = magic == 0xfffffffb, narrow = magic == 0xfffffff0 || magic == 0xfffffff1;
	size_t list = old ? 16 : RECORDS, width = narrow ? 4 : 8, name = NAMES, i;
	struct go g = { .len = 0 };

	put32(&g, 0, magic);
	g.bytes[6] = 1;
	g.bytes[7] = 8;
	put64(&g, 8, 3);
	if (!old) {
		put64(&g, narrow ? 24 : 16, narrow ? text : 0);
		put64(&g, narrow ? 32 : 24, NAMES);
		put64(&g, narrow ? 64 : 56, RECORDS);
	}
	for (i = 0; i < 4; i++) {
		size_t record = 0x300 + i * 64, at = list + i * 2 * width;
		u64 from_list = record - (old ? 0 : RECORDS);

		if (narrow)
			put32(&g, at, starts[i]);
		else
			put64(&g, at, TEXT + starts[i]);
		if (i == 3)
			break;
		if (narrow)
			put32(&g, at + 4, (u32)from_list);
		else
			put64(&g, at + 8, from_list);
		if (narrow)
			put32(&g, record, starts[i]);
		else
			put64(&g, record, TEXT + starts[i]);
		put32(&g, record + width, (u32)(name - (old ? 0 : NAMES)));
		strcpy((char *)g.bytes + name, go_names[i]);
		name += strlen(go_names[i]) + 1;
	}
	g.len = sizeof(g.bytes);
	return g;
}

static void expect_go(const struct go *g, const struct pclntab_text *text)
{
	static const u64 starts[] = { TEXT, TEXT + 0x20, TEXT + 0x120 };
	static const u32 sizes[] = { 0x20, 0x100, 0x40 };
	struct elfsym_names n = { 0 };
	u32 i;

	assert_int_equal(pclntab_names(g->bytes, g->len, text, &n), 0);
	assert_int_equal(n.n, 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(n.v[i].addr, starts[i]);
		assert_int_equal(n.v[i].size, sizes[i]);
		assert_string_equal(n.text + n.v[i].name, go_names[i]);
	}
	elfsym_names_fini(&n);
}

static void go_tables_of_all_versions_are_read(void **state __unused)
{
	static const u32 magics[] = { 0xfffffffb, 0xfffffffa, 0xfffffff0, 0xfffffff1 };
	const struct pclntab_text unknown = { 0 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(magics); i++) {
		struct go g = go_table(magics[i], TEXT);

		expect_go(&g, &unknown);
	}
}

static void where_go_code_begins_may_follow_from_the_entry(void **state __unused)
{
	struct pclntab_text text = { .start = TEXT, .entry = TEXT };
	struct go g = go_table(0xfffffff1, 0);
	struct elfsym_names n = { 0 };

	expect_go(&g, &text);
	/* Code of another compiler comes first: nothing says where Go's begins. */
	text.entry = TEXT + 0x20;
	assert_int_equal(pclntab_names(g.bytes, g.len, &text, &n), -ENOEXEC);
	text.entry = TEXT + 8;
	assert_int_equal(pclntab_names(g.bytes, g.len, &text, &n), -ENOEXEC);
	text.start = 0;
	assert_int_equal(pclntab_names(g.bytes, g.len, &text, &n), -ENOEXEC);
	assert_int_equal(n.n, 0);
	elfsym_names_fini(&n);
}

static void functions_that_leave_their_stack_are_told(void **state __unused)
{
	/* The flags' place in a record, as struct _func of each version has it; 0: before Go 1.17. */
	static const struct {
		u32 magic, flag;
	} layouts[] = {
		{ 0xfffffffb, 0 }, { 0xfffffffa, 41 }, { 0xfffffff0, 37 }, { 0xfffffff1, 41 }
	};
	struct pclntab_text text = { .start = TEXT, .entry = TEXT };
	u64 *starts;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(layouts); i++) {
		struct go g = go_table(layouts[i].magic, TEXT);

		assert_int_equal(pclntab_switchers(g.bytes, g.len, &text, &starts, &n), 0);
		assert_int_equal(n, 0);
		assert_null(starts);
		g.bytes[0x300 + layouts[i].flag] |= 1; /* first frame of a thread */
		g.bytes[0x340 + layouts[i].flag] |= 2;
		g.bytes[0x380 + layouts[i].flag] |= 6; /* and written in assembly */
		assert_int_equal(pclntab_switchers(g.bytes, g.len, &text, &starts, &n), 0);
		if (!layouts[i].flag) {
			assert_int_equal(n, 0);
			continue;
		}
		assert_int_equal(n, 2);
		assert_int_equal(starts[0], TEXT + 0x20);
		assert_int_equal(starts[1], TEXT + 0x120);
		free(starts);
		/* One record that lies outside: nothing of it is believed. */
		put32(&g, RECORDS + (layouts[i].magic == 0xfffffffa ? 8 : 4), 0x7ffffff0);
		assert_int_equal(pclntab_switchers(g.bytes, g.len, &text, &starts, &n), -ENOEXEC);
		assert_null(starts);
		assert_int_equal(n, 0);
	}
}

static void damaged_go_tables_are_survived(void **state __unused)
{
	struct pclntab_text text = { .start = TEXT, .entry = TEXT };
	u32 seed = 1, i, k, nstarts;
	u64 *starts;

	for (i = 0; i < 20000; i++) {
		struct go g = go_table(i % 2 ? 0xfffffff1 : 0xfffffffa, i % 4 ? TEXT : 0);
		struct elfsym_names n = { 0 };
		size_t len = sizeof(g.bytes);
		u8 *copy;

		for (k = 0; k < 1 + i % 4; k++) {
			seed = seed * 1103515245 + 12345;
			g.bytes[(seed >> 16) % (i % 3 ? 80 : 0x3c0)] = (u8)(seed >> 8);
		}
		if (i % 5 == 0)
			len = (seed >> 12) % sizeof(g.bytes);
		/* Of exactly that size, so that a byte too far is seen. */
		copy = malloc(MAX(len, 1u));
		memcpy(copy, g.bytes, len);
		pclntab_names(copy, len, &text, &n);
		pclntab_switchers(copy, len, &text, &starts, &nstarts);
		free(starts);
		elfsym_names_fini(&n);
		free(copy);
	}
}

/* For live tests: names of the addresses in stdin, "ADDRESS NAME" each, as FILE has them. */
static int print_names(const char *path)
{
	struct elfsym_table *t = NULL;
	struct elfsym_source src;
	unsigned long long addr;
	struct stat st;

	src.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (src.fd < 0 || fstat(src.fd, &st))
		return 1;
	src.size = (u64)st.st_size;
	if (elfsym_table(&src, NULL, BUDGET, &t))
		return 1;
	while (scanf("%llx", &addr) == 1) {
		const char *name = elfsym_lookup(t, addr);

		printf("%llx %s\n", addr, name ? name : "?");
	}
	elfsym_table_free(t);
	close(src.fd);
	return 0;
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(plt_entries_are_named_after_their_target),
		TEST(a_debug_file_is_found_by_build_id),
		TEST(a_debug_link_is_followed_in_fixed_directories),
		TEST(a_debug_file_of_another_build_is_refused),
		TEST(row16_a_link_never_leaves_its_directories),
		TEST(compressed_symbols_are_read),
		cmocka_unit_test(go_tables_of_all_versions_are_read),
		cmocka_unit_test(where_go_code_begins_may_follow_from_the_entry),
		cmocka_unit_test(functions_that_leave_their_stack_are_told),
		cmocka_unit_test(damaged_go_tables_are_survived),
	};

	if (argc == 3 && !strcmp(argv[1], "names"))
		return print_names(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
