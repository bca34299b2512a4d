// SPDX-License-Identifier: Apache-2.0
/*
 * Stored profiles as call trees: small profiles are made here by protobuf-c, with sums that one can
 * do in the head; what readers of pprof agree on (leaf first, innermost line first, any ids) is
 * proved by each. With --write FILE it writes one for other tools (live_page.sh).
 */
#include "core/view.h"
#include "profile.pb-c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define MS 1000000ull

/* --- profiles by hand ------------------------------------------------------------------------- */

#define MAX_THINGS 64

struct maker {
	Pprof__Profile pb;
	char *texts[MAX_THINGS];
	Pprof__Function functions[MAX_THINGS], *function[MAX_THINGS];
	Pprof__Location locations[MAX_THINGS], *location[MAX_THINGS];
	Pprof__Line lines[MAX_THINGS][2], *line[MAX_THINGS][2];
	Pprof__Mapping mappings[3], *mapping[3];
	Pprof__Sample samples[MAX_THINGS], *sample[MAX_THINGS];
	uint64_t ids[MAX_THINGS][8];
	int64_t values[MAX_THINGS][2];
	Pprof__Label labels[MAX_THINGS][2], *label[MAX_THINGS][2];
	Pprof__ValueType types[2], *type[2];
	u64 id_step; /* ids are 1, 1 + step, ... */
};

static s64 text(struct maker *m, const char *s)
{
	size_t i;

	for (i = 0; i < m->pb.n_string_table; i++)
		if (!strcmp(m->texts[i], s))
			return (s64)i;
	assert_true(i < MAX_THINGS);
	m->texts[i] = (char *)s;
	m->pb.n_string_table++;
	return (s64)i;
}

static void maker_init(struct maker *m, u64 id_step)
{
	static const char *const files[] = { "/usr/bin/prog", "/lib/libc.so.6",
					     "[kernel.kallsyms]" };
	u32 i;

	memset(m, 0, sizeof(*m));
	pprof__profile__init(&m->pb);
	m->id_step = id_step;
	m->pb.string_table = m->texts;
	text(m, "");
	for (i = 0; i < 2; i++) {
		pprof__value_type__init(&m->types[i]);
		m->type[i] = &m->types[i];
		m->types[i].type = text(m, i ? "cpu" : "samples");
		m->types[i].unit = text(m, i ? "nanoseconds" : "count");
	}
	m->pb.sample_type = m->type;
	m->pb.n_sample_type = 2;
	for (i = 0; i < 3; i++) {
		pprof__mapping__init(&m->mappings[i]);
		m->mapping[i] = &m->mappings[i];
		m->mappings[i].id = 1 + i * id_step;
		m->mappings[i].memory_start = 0x1000;
		m->mappings[i].memory_limit = i == 2 ? UINT64_MAX : 0x9000;
		m->mappings[i].file_offset = 0x400;
		m->mappings[i].filename = text(m, files[i]);
	}
	m->pb.mapping = m->mapping;
	m->pb.n_mapping = 3;
	m->pb.function = m->function;
	m->pb.location = m->location;
	m->pb.sample = m->sample;
	m->pb.time_nanos = 1700000000000000000;
	m->pb.duration_nanos = 10000000000;
}

static u64 new_function(struct maker *m, const char *name, const char *file)
{
	size_t i = m->pb.n_function++;

	pprof__function__init(&m->functions[i]);
	m->function[i] = &m->functions[i];
	m->functions[i].id = 1 + i * m->id_step;
	m->functions[i].name = text(m, name);
	m->functions[i].filename = text(m, file);
	return m->functions[i].id;
}

/* mapping: 0 program, 1 libc, 2 kernel, -1 none. name NULL: unnamed. inlined: into `name`. */
static u64 location(struct maker *m, int mapping, const char *name, const char *inlined)
{
	size_t i = m->pb.n_location++, n = 0;
	const char *names[] = { inlined, name };
	u32 k;

	pprof__location__init(&m->locations[i]);
	m->location[i] = &m->locations[i];
	m->locations[i].id = 1 + i * m->id_step;
	m->locations[i].mapping_id = mapping < 0 ? 0 : m->mappings[mapping].id;
	m->locations[i].address = 0x1000 + 0x10 * i;
	for (k = 0; k < 2; k++) {
		if (!names[k])
			continue;
		pprof__line__init(&m->lines[i][n]);
		m->lines[i][n].function_id =
			new_function(m, names[k], mapping < 0 ? "/srv/app/main.py" : "");
		m->line[i][n] = &m->lines[i][n];
		n++;
	}
	m->locations[i].line = m->line[i];
	m->locations[i].n_line = n;
	return m->locations[i].id;
}

/* Leaf first, ended by 0. */
static void sample(struct maker *m, s64 ns, const char *thread, const u64 *ids)
{
	size_t i = m->pb.n_sample++, n;

	pprof__sample__init(&m->samples[i]);
	m->sample[i] = &m->samples[i];
	for (n = 0; ids[n]; n++)
		m->ids[i][n] = ids[n];
	m->samples[i].location_id = m->ids[i];
	m->samples[i].n_location_id = n;
	m->values[i][0] = 1;
	m->values[i][1] = ns;
	m->samples[i].value = m->values[i];
	m->samples[i].n_value = 2;
	pprof__label__init(&m->labels[i][0]);
	pprof__label__init(&m->labels[i][1]);
	m->labels[i][0].key = text(m, "thread.name");
	m->labels[i][0].str = text(m, thread);
	m->labels[i][1].key = text(m, "pid");
	m->labels[i][1].num = 42;
	m->label[i][0] = &m->labels[i][0];
	m->label[i][1] = &m->labels[i][1];
	m->samples[i].label = m->label[i];
	m->samples[i].n_label = 2;
}
#define SAMPLE(m, ns, thread, ...) sample(m, ns, thread, (u64[]){ __VA_ARGS__, 0 })

static size_t pack(struct maker *m, u8 *dst, size_t size)
{
	size_t len = pprof__profile__get_packed_size(&m->pb);

	assert_true(len <= size);
	return pprof__profile__pack(&m->pb, dst);
}

/*
 * main -> work -> read -> [kernel] sys_read   30 ms  thread a
 * main -> work                                50 ms  thread a
 * main -> read                                20 ms  thread b
 */
static size_t plain(u8 *dst, size_t size, u64 id_step)
{
	struct maker m;
	u64 main_id, work, read, sys;

	maker_init(&m, id_step);
	main_id = location(&m, 0, "main", NULL);
	work = location(&m, 0, "work", NULL);
	read = location(&m, 1, "read", NULL);
	sys = location(&m, 2, "sys_read", NULL);
	SAMPLE(&m, 30 * MS, "a", sys, read, work, main_id);
	SAMPLE(&m, 50 * MS, "a", work, main_id);
	SAMPLE(&m, 20 * MS, "b", read, main_id);
	return pack(&m, dst, size);
}

static struct view *view_of(const struct view_options *o)
{
	struct view_options cpu = o ? *o : (struct view_options){ 0 };
	struct view *v;

	cpu.type = "cpu";
	v = view_new(&cpu);
	assert_non_null(v);
	return v;
}

static char *folded(const struct view *v, u32 side)
{
	char *s = NULL;
	size_t len;
	FILE *f = open_memstream(&s, &len);

	assert_int_equal(view_write_folded(v, side, f), 0);
	fclose(f);
	return s;
}

static void expect_folded(struct view *v, u32 side, const char *expect)
{
	char *s = folded(v, side);

	assert_string_equal(s, expect);
	free(s);
}

static const struct view_row *row(const struct view *v, const struct view_row *rows, u32 n,
				  const char *name)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (!strcmp(v->symbols[rows[i].symbol].name, name))
			return &rows[i];
	fail_msg("no row %s", name);
	return NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Lines in any order are the same profile. */
static void expect_lines(struct view *v, u32 side, const char *const *lines, u32 n)
{
	char *s = folded(v, side);
	size_t len = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		assert_non_null(strstr(s, lines[i]));
		len += strlen(lines[i]);
	}
	assert_int_equal(strlen(s), len);
	free(s);
}

static const char *const plain_lines[] = { "main;work;read;sys_read_[k] 30000000\n",
					   "main;work 50000000\n", "main;read 20000000\n" };

static void ids_may_be_any_numbers(void **state)
{
	static const u64 steps[] = { 1, 7, 1ull << 40 };
	u8 data[4096];
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		struct view *v = view_of(NULL);
		size_t len = plain(data, sizeof(data), steps[i]);

		assert_int_equal(view_add(v, 0, data, len), 0);
		assert_int_equal(view_finish(v), 0);
		expect_lines(v, 0, plain_lines, 3);
		assert_int_equal(v->tree.nodes[0].total[0], 100 * MS);
		assert_string_equal(v->unit, "nanoseconds");
		view_free(v);
	}
}

static void packed_by_gzip_or_not_is_the_same(void **state)
{
	u8 data[4096], packed[8192];
	size_t len = plain(data, sizeof(data), 1);
	z_stream z = { .next_in = data,
		       .avail_in = (uInt)len,
		       .next_out = packed,
		       .avail_out = sizeof(packed) };
	struct view *v = view_of(NULL);

	(void)state;
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, 0), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(view_add(v, 0, packed, z.total_out), 0);
	/* Cut in the middle, it is refused and adds nothing. */
	assert_int_equal(view_add(v, 0, packed, z.total_out / 2), -EBADMSG);
	assert_int_equal(view_add(v, 0, packed, z.total_out - 1), -EBADMSG);
	assert_int_equal(view_finish(v), 0);
	expect_lines(v, 0, plain_lines, 3);
	deflateEnd(&z);
	view_free(v);
}

static void files_of_one_side_are_summed(void **state)
{
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);
	struct view *v = view_of(NULL);

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_add(v, 1, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(v->tree.nodes[0].total[0], 200 * MS);
	assert_int_equal(v->tree.nodes[0].total[1], 100 * MS);
	expect_lines(v, 1, plain_lines, 3);
	view_free(v);
}

static void kernel_frames_can_be_left_out(void **state)
{
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);
	struct view_options o = { .no_kernel = true };
	struct view *v = view_of(&o);
	static const char *const lines[] = { "main;work;read 30000000\n", "main;work 50000000\n",
					     "main;read 20000000\n" };

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	expect_lines(v, 0, lines, 3);
	view_free(v);
}

static void labels_filter_and_are_counted(void **state)
{
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);
	struct view_options o = { .filters = { { "thread.name", "b" }, { "pid", "42" } },
				  .nfilters = 2 };
	struct view *v = view_of(&o);

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	expect_folded(v, 0, "main;read 20000000\n");
	view_free(v);

	o.filters[1].value = "43";
	v = view_of(&o);
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	expect_folded(v, 0, "");
	view_free(v);

	v = view_of(NULL);
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	/* By key, then by weight. */
	assert_int_equal(v->nlabels, 3);
	assert_string_equal(v->labels[0].key, "pid");
	assert_string_equal(v->labels[0].value, "42");
	assert_int_equal(v->labels[0].sum[0], 100 * MS);
	assert_string_equal(v->labels[1].value, "a");
	assert_int_equal(v->labels[1].sum[0], 80 * MS);
	assert_string_equal(v->labels[2].value, "b");
	view_free(v);
}

static void inlined_and_unnamed_frames_have_their_names(void **state)
{
	struct view *v = view_of(NULL);
	struct maker m;
	u8 data[4096];
	u64 a, b, c;

	(void)state;
	maker_init(&m, 1);
	a = location(&m, 0, "outer", "inner"); /* innermost first in the file */
	b = location(&m, 1, NULL, NULL);       /* at 0x1010 of a mapping at 0x1000, offset 0x400 */
	c = location(&m, -1, "handler", NULL);
	SAMPLE(&m, 5, "t", b, a);
	SAMPLE(&m, 7, "t", c);
	assert_int_equal(view_add(v, 0, data, pack(&m, data, sizeof(data))), 0);
	assert_int_equal(view_finish(v), 0);
	expect_lines(v, 0,
		     (const char *const[]){ "outer;inner;libc.so.6+0x410 5\n", "handler 7\n" }, 2);
	view_free(v);
}

static void the_default_type_is_the_files_own(void **state)
{
	struct view_options o = { 0 };
	struct view *v = view_new(&o);
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);

	(void)state;
	/* None is named: the last one. */
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_string_equal(v->type, "cpu");
	view_free(v);
	o.type = "samples";
	v = view_new(&o);
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(v->tree.nodes[0].total[0], 3);
	view_free(v);
	o.type = "wine";
	v = view_new(&o);
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(v->tree.nodes[0].total[0], 0);
	assert_string_equal(v->type, "");
	assert_int_equal(v->ntypes, 2);
	view_free(v);
}

/* --- what is computed ------------------------------------------------------------------------- */

static void recursion_counts_once_in_the_table(void **state)
{
	struct view *v = view_of(NULL);
	const struct view_row *f, *g;
	struct view_row *rows;
	struct maker m;
	u8 data[4096];
	u64 a, b;
	u32 n;

	(void)state;
	maker_init(&m, 1);
	a = location(&m, 0, "f", NULL);
	b = location(&m, 0, "g", NULL);
	SAMPLE(&m, 10, "t", a, b, a, a);
	SAMPLE(&m, 1, "t", b);
	assert_int_equal(view_add(v, 0, data, pack(&m, data, sizeof(data))), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(view_table(v, &rows, &n), 0);
	assert_int_equal(n, 2);
	f = row(v, rows, n, "f");
	g = row(v, rows, n, "g");
	assert_int_equal(f->total[0], 10);
	assert_int_equal(f->self[0], 10);
	assert_int_equal(g->total[0], 11);
	assert_int_equal(g->self[0], 1);
	free(rows);
	view_free(v);
}

static void expect_child(const struct view *v, const struct view_tree *t, u32 at, const char *name,
			 u64 total, u32 *ret)
{
	u32 c;

	for (c = t->nodes[at].first; c != VIEW_NONE; c = t->nodes[c].next)
		if (!strcmp(v->symbols[t->nodes[c].symbol].name, name)) {
			assert_int_equal(t->nodes[c].total[0], total);
			*ret = c;
			return;
		}
	fail_msg("no child %s", name);
}

static void callers_and_callees_of_a_function(void **state)
{
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);
	struct view *v = view_of(NULL);
	struct view_tree up, down;
	u32 read, c;

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(view_callers(v, "read", &up), 0);
	expect_child(v, &up, 0, "read", 50 * MS, &read);
	expect_child(v, &up, read, "work", 30 * MS, &c);
	expect_child(v, &up, c, "main", 30 * MS, &c);
	expect_child(v, &up, read, "main", 20 * MS, &c);
	assert_int_equal(view_callees(v, "read", &down), 0);
	expect_child(v, &down, 0, "read", 50 * MS, &read);
	assert_int_equal(down.nodes[read].self[0], 20 * MS);
	expect_child(v, &down, read, "sys_read", 30 * MS, &c);
	view_tree_fini(&up);
	view_tree_fini(&down);
	/* Nobody is called so. */
	assert_int_equal(view_callers(v, "nobody", &up), 0);
	assert_int_equal(up.n, 1);
	view_tree_fini(&up);
	view_free(v);
}

static void pruning_keeps_what_is_heavy(void **state)
{
	struct view *v = view_of(NULL);
	u32 syms[2], i;
	u64 least;

	(void)state;
	/* 1 function of 1000, behind 500 of 1 each that came first. */
	for (i = 0; i < 501; i++) {
		struct view_symbol s = { .file = "", .group = "" };
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		s.name = view_text(v, name, strlen(name));
		s.file = s.group = view_text(v, "", 0);
		syms[0] = view_symbol(v, &s);
		assert_int_equal(view_stack(v, 0, syms, 1, i == 500 ? 1000 : 1 + (i < 100)), 0);
	}
	assert_int_equal(view_finish(v), 0);
	assert_string_equal(v->symbols[v->tree.nodes[v->tree.nodes[0].first].symbol].name, "f500");
	/* 102 nodes weigh 2 and more, the 200th weighs 1 as 300 others do: those go. */
	assert_int_equal(view_threshold(&v->tree, 200, &least), 0);
	assert_int_equal(least, 2);
	/* Room for all. */
	assert_int_equal(view_threshold(&v->tree, 1000, &least), 0);
	assert_int_equal(least, 1);
	view_free(v);
}

static void a_written_profile_reads_the_same(void **state)
{
	u8 data[4096], *out;
	size_t len = plain(data, sizeof(data), 3), out_len;
	struct view *v = view_of(NULL), *again = view_of(NULL);

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(view_write_pprof(v, 0, &out, &out_len), 0);
	assert_int_equal(view_add(again, 0, out, out_len), 0);
	assert_int_equal(view_finish(again), 0);
	expect_lines(again, 0, plain_lines, 3);
	assert_int_equal(again->start_ns[0], v->start_ns[0]);
	free(out);
	view_free(v);
	view_free(again);
}

static void the_text_tree_has_shares_and_chains(void **state)
{
	struct view_text_options o = { .min_share = 1, .max_lines = 50, .max_depth = 50 };
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1), out_len;
	struct view *v = view_of(NULL);
	char *out;
	FILE *f = open_memstream(&out, &out_len);

	(void)state;
	assert_int_equal(view_add(v, 0, data, len), 0);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(view_write_text(v, &o, f), 0);
	fclose(f);
	assert_string_equal(out, "100 ms of cpu in all\n"
				 "  total    self\n"
				 " 100.0%          main\n"
				 "  80.0%   50.0%   work\n"
				 "  30.0%   30.0%    read > sys_read [k]\n"
				 "  20.0%   20.0%   read\n");
	free(out);
	view_free(v);
}

/* --- hostile files ---------------------------------------------------------------------------- */

/* Names that are markup, steer terminals, turn the direction of writing, are no UTF-8, or long. */
static const char *const hostile[] = {
	"</script><img src=x onerror=alert(1)>",
	"javascript:alert(1)",
	"\x1b]0;owned\x07\x1b[31m",
	"\xe2\x80\xaegpj.exe",
	"bad\xff\xfe utf8 \xc3",
	"a;b\nc\td",
};

static void hostile_names_are_text(void **state)
{
	struct view_options o = { .type = "cpu" };
	struct view *v = view_new(&o);
	char *big = malloc(65537), *out;
	struct maker m;
	static u8 data[1 << 18];
	size_t len;
	FILE *f;
	u32 i;

	(void)state;
	memset(big, 'A', 65536);
	big[65536] = '\0';
	maker_init(&m, 1);
	for (i = 0; i < ARRAY_SIZE(hostile); i++)
		SAMPLE(&m, 1, "t", location(&m, 0, hostile[i], NULL));
	SAMPLE(&m, 1, big, location(&m, 0, big, NULL));
	assert_int_equal(view_add(v, 0, data, pack(&m, data, sizeof(data))), 0);
	assert_int_equal(view_finish(v), 0);
	out = folded(v, 0);
	for (i = 0; out[i]; i++)
		assert_true((u8)out[i] >= 0x20 || out[i] == '\n');
	assert_null(strstr(out, "\xe2\x80\xae"));
	assert_non_null(strstr(out, "\\u202egpj.exe"));
	assert_non_null(strstr(out, "a:b?c?d 1\n"));
	assert_true(strlen(out) < 2048);
	free(out);
	f = open_memstream(&out, &len);
	assert_int_equal(view_write_svg(v, 800, f), 0);
	fclose(f);
	assert_null(strstr(out, "<img"));
	assert_null(strstr(out, "</script>"));
	free(out);
	view_free(v);
	free(big);
}

static void damaged_files_never_crash(void **state)
{
	u8 data[4096], bad[4096];
	size_t len = plain(data, sizeof(data), 7), i;
	u32 k;

	(void)state;
	for (i = 0; i < len; i++)
		for (k = 0; k < 3; k++) {
			struct view *v = view_of(NULL);

			memcpy(bad, data, len);
			bad[i] = (u8)(k == 0 ? 0xff : k == 1 ? bad[i] ^ 1 : bad[i] + 0x40);
			view_add(v, 0, bad, len);
			view_add(v, 0, data, i);
			assert_int_equal(view_finish(v), 0);
			view_free(v);
		}
}

static void memory_of_a_file_is_bounded(void **state)
{
	static u8 empty[VIEW_FILE_MAX];
	struct view *v = view_of(NULL);
	size_t i;

	(void)state;
	/* Samples without anything in them: two bytes each, and 70 times as much when decoded. */
	for (i = 0; i + 1 < sizeof(empty); i += 2)
		empty[i] = 0x12;
	assert_int_equal(view_add(v, 0, empty, sizeof(empty)), -E2BIG);
	view_free(v);
}

static void a_full_tree_keeps_the_sum(void **state)
{
	struct view *v = view_of(NULL);
	struct view_symbol s = { 0 };
	u32 ids[2], i;

	(void)state;
	s.file = s.group = view_text(v, "", 0);
	s.name = view_text(v, "a", 1);
	ids[0] = view_symbol(v, &s);
	for (i = 0; i < VIEW_NODES_MAX; i++) {
		ids[1] = i; /* any number will do for a tree */
		if (view_stack(v, 0, ids, 2, 1))
			break;
	}
	assert_int_equal(i, VIEW_NODES_MAX);
	assert_true(v->tree.full);
	assert_int_equal(view_finish(v), 0);
	assert_int_equal(v->tree.nodes[0].total[0], VIEW_NODES_MAX);
	assert_true(v->cut);
	view_free(v);
}

static int write_file(const char *path)
{
	u8 data[4096];
	size_t len = plain(data, sizeof(data), 1);
	FILE *f = fopen(path, "w");

	return !f || fwrite(data, 1, len, f) != len || fclose(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_may_be_any_numbers),
		cmocka_unit_test(packed_by_gzip_or_not_is_the_same),
		cmocka_unit_test(files_of_one_side_are_summed),
		cmocka_unit_test(kernel_frames_can_be_left_out),
		cmocka_unit_test(labels_filter_and_are_counted),
		cmocka_unit_test(inlined_and_unnamed_frames_have_their_names),
		cmocka_unit_test(the_default_type_is_the_files_own),
		cmocka_unit_test(recursion_counts_once_in_the_table),
		cmocka_unit_test(callers_and_callees_of_a_function),
		cmocka_unit_test(pruning_keeps_what_is_heavy),
		cmocka_unit_test(a_written_profile_reads_the_same),
		cmocka_unit_test(the_text_tree_has_shares_and_chains),
		cmocka_unit_test(hostile_names_are_text),
		cmocka_unit_test(damaged_files_never_crash),
		cmocka_unit_test(memory_of_a_file_is_bounded),
		cmocka_unit_test(a_full_tree_keeps_the_sum),
	};

	if (argc == 3 && !strcmp(argv[1], "--write"))
		return write_file(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
