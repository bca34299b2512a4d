// SPDX-License-Identifier: Apache-2.0
/*
 * Lines and inlined functions of addresses, and a stored profile that gets them. Programs are made
 * by the compilers here; what each address is, binutils' addr2line says, which reads DWARF by code
 * of its own.
 */
#include "core/dwarfnames.h"
#include "core/symbolize.h"

#include "profile.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

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

static const char program[] =
	"#include <stdio.h>\n"
	"#include <stdlib.h>\n"
	"static inline __attribute__((always_inline)) unsigned innermost(unsigned x)\n"
	"{\n"
	"	return x * 2654435761u ^ x >> 7;\n"
	"}\n"
	"static inline __attribute__((always_inline)) unsigned middle(unsigned x)\n"
	"{\n"
	"	unsigned s = 0, i;\n"
	"	for (i = 0; i < 8; i++) {\n"
	"		unsigned y = x + i;\n"
	"		s += innermost(y) / (y | 1);\n"
	"	}\n"
	"	return s;\n"
	"}\n"
	"__attribute__((noinline)) unsigned hot(const unsigned *v, unsigned n)\n"
	"{\n"
	"	unsigned s = 0;\n"
	"	while (n--)\n"
	"		s += middle(v[n]);\n"
	"	return s;\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	unsigned v[64] = { (unsigned)argc }, s = hot(v, 64);\n"
	"	printf(\"%u %s\\n\", s, argv[0]);\n"
	"	return middle(s) == 7;\n"
	"}\n";

static int setup(void **state __unused)
{
	char path[128];
	FILE *f;

	strcpy(dir, "/tmp/symbolize.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.c", dir);
	f = fopen(path, "w");
	fputs(program, f);
	fclose(f);
	return 0;
}

static int teardown(void **state __unused)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static int open_file(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", *name == '/' ? "" : dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd;
}

/* "func file:line" as addr2line writes it; the files' base names are enough. */
static void print_frames(FILE *out, u64 addr, const struct dwarf_frame *f, u32 n)
{
	u32 i;

	fprintf(out, "0x%016llx\n", (unsigned long long)addr);
	for (i = 0; i < n; i++) {
		fprintf(out, "%s\n", f[i].linked ? f[i].linked : "??");
		if (f[i].file && f[i].line)
			fprintf(out, "%s:%u\n", base_name(f[i].file), f[i].line);
		else
			fprintf(out, "%s:?\n", f[i].file ? base_name(f[i].file) : "??");
	}
}

/* Reads addresses; writes what they are. Returns how many have an inlined function. */
static u32 print_all(int fd, FILE *in, FILE *out)
{
	struct dwarf_frame f[DWARFNAMES_DEPTH];
	struct dwarfnames *d = NULL;
	unsigned long long addr;
	u32 inlined = 0;

	if (dwarfnames_new(fd, &d))
		return 0;
	while (fscanf(in, "%llx", &addr) == 1) {
		u32 n = dwarfnames_find(d, addr, f);

		/* Padding behind the code. */
		if (!n)
			continue;
		inlined += n > 1;
		print_frames(out, addr, f, n);
	}
	dwarfnames_free(d);
	return inlined;
}

/* Each instruction of some functions of `name` is what addr2line says it is. */
static u32 compare(const char *name)
{
	char path[128];
	FILE *in, *out;
	u32 inlined;
	int fd;

	sh("objdump -dw --section=.text %s | awk '/^[0-9a-f]+ <(hot|main)>:/ { on = 1 } /^$/ { on = 0 } "
	   "on && !/nop|xchg/ && /^ *[0-9a-f]+:/ { sub(/:/, \"\", $1); print $1 }' > addrs && test -s addrs && "
	   "addr2line -a -f -i -e %s < addrs | sed -E 's/ \\(discriminator.*//; s,^/?[^:]*/,,' | awk '/^0x/ { a = $0; "
	   "getline f; getline l; if (l != \"??:?\") { print a; print f; print l } next } { print }' > want",
	   name, name);
	snprintf(path, sizeof(path), "%s/addrs", dir);
	in = fopen(path, "r");
	snprintf(path, sizeof(path), "%s/got", dir);
	out = fopen(path, "w");
	assert_true(in && out);
	fd = open_file(name);
	inlined = print_all(fd, in, out);
	close(fd);
	fclose(in);
	fclose(out);
	sh("diff want got > diff || { head -40 diff; false; }");
	return inlined;
}

static void each_address_is_what_addr2line_says(void **state __unused)
{
	static const char *const how[] = {
		"gcc -O2 -g -gdwarf-5",
		"gcc -O2 -g -gdwarf-4",
		"gcc -O1 -g -no-pie -gz",
		"clang -O2 -g -gdwarf-5 -fno-unroll-loops -fno-vectorize",
		"clang -O1 -g -gdwarf-4 -fno-unroll-loops -fno-vectorize",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(how); i++) {
		u32 inlined;

		sh("%s -o prog%u a.c", how[i], i);
		{
			char name[16];

			snprintf(name, sizeof(name), "prog%u", i);
			inlined = compare(name);
		}
		print_message("%s: %u addresses in inlined functions\n", how[i], inlined);
		assert_true(inlined > 10);
	}
}

static void a_file_without_dwarf_says_so(void **state __unused)
{
	struct dwarfnames *d = NULL;
	int fd;

	sh("gcc -O1 -o plain a.c && strip plain");
	fd = open_file("plain");
	assert_int_equal(dwarfnames_new(fd, &d), -ENOENT);
	close(fd);
	fd = open_file("a.c");
	assert_int_equal(dwarfnames_new(fd, &d), -ENOENT);
	close(fd);
	dwarfnames_free(NULL);
}

/* --- profiles -------------------------------------------------------------------------------- */

struct made {
	Pprof__Profile p;
	Pprof__ValueType type, *types[1];
	Pprof__Mapping mapping, *mappings[1];
	Pprof__Location location[4], *locations[4];
	Pprof__Sample sample, *samples[1];
	Pprof__Function function, *functions[1];
	Pprof__Line line, *lines[1];
	char *strings[8];
	uint64_t ids[4];
	int64_t value;
};

/* A profile of one sample at n addresses of a file. */
static void make(struct made *m, const char *file, const char *build_id, const u64 *addr, u32 n)
{
	u32 i;

	memset(m, 0, sizeof(*m));
	pprof__profile__init(&m->p);
	pprof__value_type__init(&m->type);
	pprof__mapping__init(&m->mapping);
	pprof__sample__init(&m->sample);
	m->strings[0] = (char *)(uintptr_t) "";
	m->strings[1] = (char *)(uintptr_t)file;
	m->strings[2] = (char *)(uintptr_t)build_id;
	m->strings[3] = (char *)(uintptr_t) "cpu";
	m->strings[4] = (char *)(uintptr_t) "hot";
	m->type.type = 3;
	m->types[0] = &m->type;
	m->mapping.id = 1;
	m->mapping.memory_limit = UINT64_MAX;
	m->mapping.filename = 1;
	m->mapping.build_id = 2;
	m->mappings[0] = &m->mapping;
	for (i = 0; i < n; i++) {
		pprof__location__init(&m->location[i]);
		m->location[i].id = i + 1;
		m->location[i].mapping_id = 1;
		m->location[i].address = addr[i];
		m->locations[i] = &m->location[i];
		m->ids[i] = i + 1;
	}
	m->value = 5;
	m->sample.value = &m->value;
	m->sample.n_value = 1;
	m->sample.location_id = m->ids;
	m->sample.n_location_id = n;
	m->samples[0] = &m->sample;
	/* The first one has a name from a symbol table. */
	pprof__function__init(&m->function);
	m->function.id = 9;
	m->function.name = m->function.system_name = 4;
	m->functions[0] = &m->function;
	pprof__line__init(&m->line);
	m->line.function_id = 9;
	m->lines[0] = &m->line;
	m->location[0].line = m->lines;
	m->location[0].n_line = 1;
	m->p.sample_type = m->types;
	m->p.n_sample_type = 1;
	m->p.mapping = m->mappings;
	m->p.n_mapping = 1;
	m->p.location = m->locations;
	m->p.n_location = n;
	m->p.sample = m->samples;
	m->p.n_sample = 1;
	m->p.function = m->functions;
	m->p.n_function = 1;
	m->p.string_table = m->strings;
	m->p.n_string_table = 5;
}

static Pprof__Profile *run(const struct made *m, struct symbolize_figures *f)
{
	struct symbolize_options o = { .root = "/" };
	size_t len = pprof__profile__get_packed_size(&m->p), out_len = 0;
	_cleanup_free_ u8 *raw = malloc(len), *out = NULL, *plain = malloc(1u << 20);
	uLong plain_len = 1u << 20;
	z_stream z = { 0 };

	pprof__profile__pack(&m->p, raw);
	assert_int_equal(symbolize(raw, len, &o, &out, &out_len, f), 0);
	assert_int_equal(inflateInit2(&z, 31), Z_OK);
	z.next_in = out;
	z.avail_in = (uInt)out_len;
	z.next_out = plain;
	z.avail_out = (uInt)plain_len;
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	plain_len = z.total_out;
	inflateEnd(&z);
	return pprof__profile__unpack(NULL, plain_len, plain);
}

static const Pprof__Function *function_of(const Pprof__Profile *p, const Pprof__Line *l)
{
	size_t i;

	for (i = 0; i < p->n_function; i++)
		if (p->function[i]->id == l->function_id)
			return p->function[i];
	fail_msg("no function %llu", (unsigned long long)l->function_id);
	return NULL;
}

static const char *name_of(const Pprof__Profile *p, u32 location, u32 line)
{
	return p->string_table[function_of(p, p->location[location]->line[line])->name];
}

/* Address of the first instruction that addr2line finds `depth` functions at; in *id the build id. */
static u64 address_with(const char *name, u32 depth, char *id)
{
	unsigned long long addr = 0;
	char path[128];
	FILE *f;

	sh("objdump -d %s | awk '/<hot>:/ { on = 1 } /^$/ { on = 0 } on && /^ *[0-9a-f]+:/ { sub(/:/, "
	   "\"\", $1); print $1 }' | while read a; do n=$(addr2line -f -i -e %s $a | wc -l); "
	   "test $n -eq %u && { echo $a; break; }; done > one; readelf -n %s | sed -n "
	   "'s/.*Build ID: //p' > id",
	   name, name, depth * 2, name);
	snprintf(path, sizeof(path), "%s/one", dir);
	f = fopen(path, "r");
	assert_int_equal(fscanf(f, "%llx", &addr), 1);
	fclose(f);
	snprintf(path, sizeof(path), "%s/id", dir);
	f = fopen(path, "r");
	assert_int_equal(fscanf(f, "%100s", id), 1);
	fclose(f);
	return addr;
}

static void a_stored_profile_gets_lines_and_inlined_functions(void **state __unused)
{
	struct symbolize_figures f;
	char file[128], id[128];
	Pprof__Profile *p;
	struct made m;
	u64 addr[2];

	sh("gcc -O2 -g -no-pie -Wl,--build-id -Wl,-z,noseparate-code -o prog a.c");
	snprintf(file, sizeof(file), "%s/prog", dir);
	addr[0] = address_with("prog", 3, id);
	addr[1] = address_with("prog", 1, id);
	make(&m, file, id, addr, 2);
	/* The whole file is one mapping from its own base. */
	m.mapping.memory_start = 0x400000;
	p = run(&m, &f);
	assert_non_null(p);
	assert_int_equal(p->n_location, 2);
	assert_int_equal(p->location[0]->n_line, 3);
	assert_string_equal(name_of(p, 0, 0), "innermost");
	assert_string_equal(name_of(p, 0, 1), "middle");
	assert_string_equal(name_of(p, 0, 2), "hot");
	/* The line in the source text that calls it. */
	assert_int_equal(p->location[0]->line[1]->line, 12);
	assert_int_equal(p->location[0]->line[2]->line, 20);
	assert_int_equal(p->location[1]->n_line, 1);
	assert_string_equal(name_of(p, 1, 0), "hot");
	assert_int_equal(function_of(p, p->location[1]->line[0])->start_line, 16);
	assert_true(p->mapping[0]->has_functions && p->mapping[0]->has_inline_frames &&
		    p->mapping[0]->has_line_numbers && p->mapping[0]->has_filenames);
	assert_int_equal(p->sample[0]->value[0], 5);
	assert_int_equal(f.named, 2);
	assert_int_equal(f.inlined, 1);
	pprof__profile__free_unpacked(p, NULL);
	/* A file of another build names nothing. */
	id[0] = id[0] == '0' ? '1' : '0';
	p = run(&m, &f);
	assert_int_equal(p->location[0]->n_line, 1);
	assert_int_equal(p->location[0]->line[0]->line, 0);
	assert_int_equal(p->location[1]->n_line, 0);
	assert_false(p->mapping[0]->has_functions);
	assert_int_equal(f.files_found, 0);
	pprof__profile__free_unpacked(p, NULL);
}

static void without_dwarf_there_are_names_at_least(void **state __unused)
{
	struct symbolize_figures f;
	char file[128], id[128];
	Pprof__Profile *p;
	struct made m;
	u64 addr[2];

	sh("gcc -O2 -g -no-pie -Wl,-z,noseparate-code -o prog a.c");
	addr[0] = addr[1] = address_with("prog", 1, id);
	sh("strip -g prog");
	snprintf(file, sizeof(file), "%s/prog", dir);
	make(&m, file, "", addr, 2);
	m.mapping.memory_start = 0x400000;
	p = run(&m, &f);
	assert_string_equal(name_of(p, 1, 0), "hot");
	assert_int_equal(p->location[1]->line[0]->line, 0);
	assert_int_equal(f.files_lines, 0);
	pprof__profile__free_unpacked(p, NULL);
}

static void what_is_no_profile_is_refused(void **state __unused)
{
	static const u8 bad[] = { 0x1f, 0x8b, 8, 0, 1, 2, 3 }, text[] = "hello, world";
	struct symbolize_options o = { .root = "/" };
	struct symbolize_figures f;
	size_t len;
	u8 *out;

	assert_int_equal(symbolize(bad, sizeof(bad), &o, &out, &len, &f), -EBADMSG);
	assert_int_equal(symbolize(text, sizeof(text), &o, &out, &len, &f), -EBADMSG);
	assert_int_equal(symbolize(text, 0, &o, &out, &len, &f), -EBADMSG);
}

/* Ids and numbers of strings that lead nowhere, and bytes changed at random. */
static void a_hostile_profile_is_survived(void **state __unused)
{
	struct symbolize_options o = { .root = "/" };
	struct symbolize_figures f;
	u64 addr[2] = { 0x401000, 7 };
	u32 seed = 3, i, k;
	struct made m;
	size_t len, out_len;
	u8 *raw, *copy;

	make(&m, "/proc/self/exe", "", addr, 2);
	m.mapping.filename = -5;
	m.mapping.build_id = 77;
	m.location[1].mapping_id = 8;
	m.line.function_id = UINT64_MAX;
	m.function.name = INT64_MIN;
	len = pprof__profile__get_packed_size(&m.p);
	raw = malloc(len);
	copy = malloc(len);
	pprof__profile__pack(&m.p, raw);
	for (i = 0; i < 3000; i++) {
		u8 *out = NULL;

		memcpy(copy, raw, len);
		for (k = 0; k < i % 5; k++) {
			seed = seed * 1103515245 + 12345;
			copy[(seed >> 16) % len] = (u8)(seed >> 8);
		}
		symbolize(copy, len, &o, &out, &out_len, &f);
		free(out);
	}
	free(raw);
	free(copy);
}

/* For live tests: FILE's frames at the addresses in stdin, as addr2line -a -f -i writes them. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(each_address_is_what_addr2line_says),
		TEST(a_file_without_dwarf_says_so),
		TEST(a_stored_profile_gets_lines_and_inlined_functions),
		TEST(without_dwarf_there_are_names_at_least),
		cmocka_unit_test(what_is_no_profile_is_refused),
		cmocka_unit_test(a_hostile_profile_is_survived),
	};

	if (argc == 3 && !strcmp(argv[1], "lines"))
		return print_all(open(argv[2], O_RDONLY | O_CLOEXEC), stdin, stdout) == UINT32_MAX;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
