// SPDX-License-Identifier: Apache-2.0
/*
 * The pprof room and the names room: windows are made by hand, with modules read from small ELF
 * files that are written here; profiles are gunzipped and decoded by protobuf-c. One test for
 * each rule that readers of pprof rely on. With --write FILE... it writes a profile for the tools
 * (live_pprof_tools.sh) instead.
 */
#include "core/pprof.h"
#include "core/fold.h"
#include "core/module.h"
#include "core/names.h"
#include "profile.pb-c.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <zlib.h>

#include <cmocka.h>

#define START_NS 1700000000000000000ull
#define END_NS   (START_NS + 60 * NSEC_PER_SEC)
#define PERIOD   52631578ull
#define BUILD_ID "000102030405060708090a0b0c0d0e0faabbccdd"

/* What the ELF files that are written here look like; file offsets and addresses differ. */
static const Elf64_Phdr SEGMENTS[] = {
	{ .p_type = PT_LOAD,
	  .p_flags = PF_R,
	  .p_offset = 0,
	  .p_vaddr = 0,
	  .p_filesz = 0x840,
	  .p_memsz = 0x840,
	  .p_align = 0x1000 },
	{ .p_type = PT_LOAD,
	  .p_flags = PF_R | PF_X,
	  .p_offset = 0x840,
	  .p_vaddr = 0x1840,
	  .p_filesz = 0x1000,
	  .p_memsz = 0x1000,
	  .p_align = 0x1000 },
	{ .p_type = PT_LOAD,
	  .p_flags = PF_R | PF_X,
	  .p_offset = 0x4000,
	  .p_vaddr = 0x9000,
	  .p_filesz = 0x500,
	  .p_memsz = 0x500,
	  .p_align = 0x1000 },
};

#define ELF_SIZE 0x5000

struct world {
	char dir[32];
	struct modules *ms;
	struct module *exe, *lib, *plain /* no build id */, *gone;
	char exe_path[64], lib_path[64];
	struct window *w;
	void *maps[3];
};

static void write_elf(const char *path, bool with_id)
{
	_cleanup_fclose_ FILE *f = fopen(path, "w");
	Elf64_Ehdr e = { .e_type = ET_DYN,
			 .e_machine = EM_X86_64,
			 .e_version = EV_CURRENT,
			 .e_phoff = sizeof(e),
			 .e_ehsize = sizeof(e),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_shentsize = sizeof(Elf64_Shdr) };
	Elf64_Phdr note = { .p_type = PT_NOTE,
			    .p_flags = PF_R,
			    .p_offset = 0x400,
			    .p_vaddr = 0x400,
			    .p_filesz = 36,
			    .p_memsz = 36,
			    .p_align = 4 };
	u8 data[ELF_SIZE] = { 0 }, *p = data + 0x400;
	u32 i;

	memcpy(e.e_ident, ELFMAG, SELFMAG);
	e.e_ident[EI_CLASS] = ELFCLASS64;
	e.e_ident[EI_DATA] = ELFDATA2LSB;
	e.e_ident[EI_VERSION] = EV_CURRENT;
	e.e_phnum = (u16)(ARRAY_SIZE(SEGMENTS) + with_id);
	memcpy(data, &e, sizeof(e));
	memcpy(data + sizeof(e), SEGMENTS, sizeof(SEGMENTS));
	if (with_id) {
		memcpy(data + sizeof(e) + sizeof(SEGMENTS), &note, sizeof(note));
		memcpy(p, (u32[]){ 4, 20, NT_GNU_BUILD_ID }, 12);
		memcpy(p + 12, "GNU", 4);
		for (i = 0; i < 16; i++)
			p[16 + i] = (u8)i;
		memcpy(p + 32, (u8[]){ 0xaa, 0xbb, 0xcc, 0xdd }, 4);
	}
	assert_non_null(f);
	/* Files without a build id differ in content. */
	data[ELF_SIZE - 1] = with_id;
	assert_int_equal(fwrite(data, sizeof(data), 1, f), 1);
}

/* Maps the file, so that it can be found as a process's mapped file. */
static struct module *map_module(struct modules *ms, const char *path, void **ret_map)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct mapped_file file = { .path = path, .pid = (u32)getpid() };
	struct stat st;
	void *map;

	assert_true(fd >= 0 && !fstat(fd, &st));
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	file.major = major(st.st_dev);
	file.minor = minor(st.st_dev);
	file.ino = st.st_ino;
	file.lo = (uintptr_t)map;
	file.hi = file.lo + (((u64)st.st_size + 4095) & ~4095ull);
	*ret_map = map;
	return modules_get(ms, &file);
}

static void hex_id(struct mapped_file *file, const char *hex)
{
	unsigned int byte;

	for (; file->build_id_len < BUILD_ID_MAX && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		file->build_id[file->build_id_len++] = (u8)byte;
}

static int setup(void **state)
{
	struct mapped_file gone = { .path = "/nowhere/gone.so", .pid = (u32)getpid() };
	struct world *t = calloc(1, sizeof(*t));
	char plain[64];

	snprintf(t->dir, sizeof(t->dir), "/tmp/test_pprof.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->exe_path, sizeof(t->exe_path), "%s/svc", t->dir);
	snprintf(t->lib_path, sizeof(t->lib_path), "%s/lib.so", t->dir);
	snprintf(plain, sizeof(plain), "%s/plain.so", t->dir);
	write_elf(t->exe_path, false);
	write_elf(t->lib_path, true);
	write_elf(plain, false);
	t->ms = modules_new(1 << 20);
	assert_non_null(t->ms);
	t->exe = map_module(t->ms, t->exe_path, &t->maps[0]);
	t->lib = map_module(t->ms, t->lib_path, &t->maps[1]);
	t->plain = map_module(t->ms, plain, &t->maps[2]);
	hex_id(&gone, "feedbeef");
	t->gone = modules_get(t->ms, &gone);
	assert_true(modules_settle(t->ms, now_monotonic() + 10 * NSEC_PER_SEC));
	assert_int_equal(module_state(t->exe), MODULE_READY);
	assert_int_equal(module_state(t->lib), MODULE_READY);
	t->w = window_new(START_NS);
	t->w->end_ns = END_NS;
	unlink(t->exe_path);
	unlink(t->lib_path);
	unlink(plain);
	rmdir(t->dir);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct world *t = *state;
	u32 i;

	window_free(t->w);
	module_put(t->exe);
	module_put(t->lib);
	module_put(t->plain);
	module_put(t->gone);
	modules_free(t->ms);
	for (i = 0; i < ARRAY_SIZE(t->maps); i++)
		munmap(t->maps[i], ELF_SIZE);
	free(t);
	return 0;
}

/* --- making samples, decoding profiles ------------------------------------------------------ */

static struct frame native(struct module *m, u64 offset)
{
	return (struct frame){ .kind = FRAME_NATIVE, .address = offset, .module = m };
}

static struct frame kernel(u64 address, const char *func, const char *file)
{
	return (struct frame){ .kind = FRAME_KERNEL,
			       .address = address,
			       .mapping = "[kernel.kallsyms]",
			       .func = func,
			       .file = file };
}

static struct sample sample_of(const struct frame *frames, u32 n)
{
	return (struct sample){ .type = &sample_cpu,
				.service = "svc",
				.exe = "svc",
				.thread = "main",
				.pid = 4242,
				.end = STACK_END_COMPLETE,
				.frames = frames,
				.nframes = n };
}

static void count(struct window *w, const struct sample *s, u64 n)
{
	struct fold_ref ref;

	assert_int_equal(fold_add(w, s, &ref), 0);
	fold_count(w, ref, n, n * PERIOD);
}

static void add(struct window *w, const struct frame *frames, u32 n, u64 samples)
{
	struct sample s = sample_of(frames, n);

	count(w, &s, samples);
}

#define ADD(w, samples, ...)                                \
	do {                                                \
		const struct frame __f[] = { __VA_ARGS__ }; \
		add((w), __f, ARRAY_SIZE(__f), (samples));  \
	} while (0)

/* As names_resolve() leaves it. */
static void name_location(struct window *w, const struct module *m, u64 offset, const char *name)
{
	u32 i;

	for (i = 0; i < w->nlocations; i++)
		if (w->locations[i].module == m && w->locations[i].address == offset)
			w->locations[i].func = window_string(w, name);
}

static Pprof__Profile *unpack(const u8 *gz, size_t len)
{
	static u8 raw[1 << 22];
	z_stream z = { .next_in = (u8 *)gz,
		       .avail_in = (uInt)len,
		       .next_out = raw,
		       .avail_out = sizeof(raw) };
	Pprof__Profile *p;

	/* +16: gzip and nothing else. */
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.avail_in, 0);
	p = pprof__profile__unpack(NULL, z.total_out, raw);
	inflateEnd(&z);
	assert_non_null(p);
	return p;
}

static Pprof__Profile *encode(const struct window *w, u32 i, const struct pprof_options *o)
{
	_cleanup_free_ u8 *gz = NULL;
	size_t len;

	assert_int_equal(pprof_encode(w, &w->profiles[i], o, &gz, &len), 0);
	return unpack(gz, len);
}

static void profilep(Pprof__Profile **p)
{
	pprof__profile__free_unpacked(*p, NULL);
}

#define PROFILE(p) _cleanup_(profilep) Pprof__Profile *p

static const struct pprof_options BARE = { .period_ns = PERIOD, .host = "h1", .plain_pid = true };
static const struct pprof_options NAMED = {
	.names = true, .period_ns = PERIOD, .host = "h1", .plain_pid = true
};

static const char *str(const Pprof__Profile *p, int64_t i)
{
	assert_true(i >= 0 && (size_t)i < p->n_string_table);
	return p->string_table[i];
}

static const Pprof__Location *loc(const Pprof__Profile *p, size_t sample, size_t frame)
{
	assert_true(sample < p->n_sample && frame < p->sample[sample]->n_location_id);
	return p->location[p->sample[sample]->location_id[frame] - 1];
}

static const Pprof__Mapping *map_of(const Pprof__Profile *p, const Pprof__Location *l)
{
	assert_true(l->mapping_id >= 1 && l->mapping_id <= p->n_mapping);
	return p->mapping[l->mapping_id - 1];
}

static const char *func_of(const Pprof__Profile *p, const Pprof__Location *l)
{
	assert_int_equal(l->n_line, 1);
	return str(p, p->function[l->line[0]->function_id - 1]->name);
}

/* A sample's label; NULL for none. */
static const Pprof__Label *label(const Pprof__Profile *p, size_t sample, const char *key)
{
	size_t i;

	for (i = 0; i < p->sample[sample]->n_label; i++)
		if (!strcmp(str(p, p->sample[sample]->label[i]->key), key))
			return p->sample[sample]->label[i];
	return NULL;
}

static const char *label_str(const Pprof__Profile *p, size_t sample, const char *key)
{
	const Pprof__Label *l = label(p, sample, key);

	return l ? str(p, l->str) : NULL;
}

/* Every kind of frame, two executables, two threads. */
static void add_everything(struct world *t)
{
	const struct frame f[] = {
		kernel(0xffffffff81000100, "ksys_read", "vmlinux"),
		kernel(0xffffffffc0000200, "ext4_read", "ext4"),
		kernel(0xffffffff81000300, NULL, NULL),
		native(t->lib, 0x900),
		native(t->lib, 0x4100),
		native(t->exe, 0x900),
		native(t->exe, 0x4100),
		native(t->plain, 0x900),
		native(t->gone, 0x1234),
		{ .kind = FRAME_ANON, .address = 0x7f0000001000, .mapping = "//anon" },
		{ .kind = FRAME_UNKNOWN, .address = 0x1234 },
	};
	const char *who[IDENTITY_MAX] = { [IDENTITY_CONTAINER] = "c0ffee",
					  [IDENTITY_K8S_POD] = "web-1",
					  [IDENTITY_VERSION] = "1.2" };
	struct sample s = sample_of(f, ARRAY_SIZE(f));

	s.service = "c0ffee";
	s.who = who;
	count(t->w, &s, 5);
	s.exe = "helper";
	s.thread = "worker";
	s.pid = 4243;
	s.nframes = 4;
	count(t->w, &s, 2);
	s.frames = f + 4;
	s.nframes = 3;
	count(t->w, &s, 1);
	name_location(t->w, t->lib, 0x900, "named_in_lib");
	name_location(t->w, t->exe, 0x4100, "named_in_exe");
}

/* --- rules for the whole profile ----------------------------------------------------------- */

static void string_table_begins_with_the_empty_string(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_string_equal(p->string_table[0], "");
}

static void ids_of_mappings_locations_functions_are_1_2_3_in_order(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_true(p->n_mapping > 5 && p->n_location == 11 && p->n_function == 4);
	for (i = 0; i < p->n_mapping; i++)
		assert_int_equal(p->mapping[i]->id, i + 1);
	for (i = 0; i < p->n_location; i++)
		assert_int_equal(p->location[i]->id, i + 1);
	for (i = 0; i < p->n_function; i++)
		assert_int_equal(p->function[i]->id, i + 1);
}

static void all_references_lead_somewhere(void **state)
{
	struct world *t = *state;
	size_t i, k;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	for (i = 0; i < p->n_sample; i++) {
		for (k = 0; k < p->sample[i]->n_location_id; k++)
			assert_in_range(p->sample[i]->location_id[k], 1, p->n_location);
		for (k = 0; k < p->sample[i]->n_label; k++) {
			assert_true(*str(p, p->sample[i]->label[k]->key));
			str(p, p->sample[i]->label[k]->str);
			str(p, p->sample[i]->label[k]->num_unit);
		}
	}
	for (i = 0; i < p->n_location; i++) {
		assert_in_range(p->location[i]->mapping_id, 0, p->n_mapping);
		for (k = 0; k < p->location[i]->n_line; k++)
			assert_in_range(p->location[i]->line[k]->function_id, 1, p->n_function);
	}
	for (i = 0; i < p->n_mapping; i++) {
		str(p, p->mapping[i]->filename);
		str(p, p->mapping[i]->build_id);
	}
	for (i = 0; i < p->n_function; i++) {
		str(p, p->function[i]->name);
		str(p, p->function[i]->system_name);
		str(p, p->function[i]->filename);
	}
}

static void each_sample_has_one_value_per_type_in_nanoseconds(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample_type, 1);
	assert_int_equal(p->n_sample, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(p->sample[i]->n_value, 1);
	assert_int_equal(p->sample[0]->value[0], 5 * PERIOD);
	assert_int_equal(p->sample[1]->value[0], 2 * PERIOD);
	assert_int_equal(p->sample[2]->value[0], 1 * PERIOD);
}

static void values_never_turn_negative(void **state)
{
	struct world *t = *state;
	struct frame f = native(t->exe, 0x900);
	struct sample s = sample_of(&f, 1);
	struct fold_ref ref;

	assert_int_equal(fold_add(t->w, &s, &ref), 0);
	fold_count(t->w, ref, 1, UINT64_MAX);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_true(p->sample[0]->value[0] == INT64_MAX);
}

static void samples_without_a_count_are_left_out(void **state)
{
	struct world *t = *state;

	ADD(t->w, 0, native(t->exe, 0x900));
	ADD(t->w, 1, native(t->exe, 0x910));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->n_location, 1);
	assert_int_equal(loc(p, 0, 0)->address, 0x1910);
}

static void a_profile_without_samples_is_still_valid(void **state)
{
	struct world *t = *state;

	ADD(t->w, 0, native(t->exe, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample + p->n_location + p->n_mapping + p->n_function, 0);
	assert_int_equal(p->n_sample_type, 1);
	assert_non_null(p->period_type);
	assert_string_equal(p->string_table[0], "");
}

static void strings_are_valid_utf8_on_one_line(void **state)
{
	const char *labels[] = { "team=a\xff\xfe"
				 "b",
				 "bad\xc0\x80key=x" };
	const char *comments[] = { "two\nlines\xed\xa0\x80", "ok" };
	struct pprof_options o = BARE;
	struct mapped_file file = { .path = "/nowhere/\xff\xfe.so", .pid = (u32)getpid() };
	struct world *t = *state;
	struct module *odd = modules_get(t->ms, &file);
	iconv_t cd = iconv_open("UTF-32LE", "UTF-8");
	size_t i;

	o.labels = labels;
	o.nlabels = ARRAY_SIZE(labels);
	o.comments = comments;
	o.ncomments = ARRAY_SIZE(comments);
	o.host = "h\x80";
	ADD(t->w, 1, native(odd, 0x10));
	module_put(odd);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_true(cd != (iconv_t)-1);
	for (i = 0; i < p->n_string_table; i++) {
		char *in = p->string_table[i], out[4096], *to = out;
		size_t n = strlen(in), left = sizeof(out);

		assert_null(strchr(in, '\n'));
		assert_int_equal(iconv(cd, &in, &n, &to, &left), 0);
	}
	iconv_close(cd);
	assert_int_equal(p->n_comment, 2);
}

/* Two waits of one stack, and, where asked for, a sample on CPU of the same stack. */
static void add_waits(struct world *t, bool with_cpu)
{
	struct frame f[] = { kernel(0xffffffff81000100, "futex_wait", "vmlinux"),
			     native(t->lib, 0x900) };
	struct sample s = sample_of(f, ARRAY_SIZE(f));
	struct fold_ref ref;

	if (with_cpu)
		count(t->w, &s, 3);
	s.type = &sample_offcpu;
	s.labels[s.nlabels++] = (struct sample_label){ "thread.state", "S" };
	s.labels[s.nlabels++] = (struct sample_label){ "wait", "futex" };
	assert_int_equal(fold_add(t->w, &s, &ref), 0);
	fold_count(t->w, ref, 2, 7000000123);
	name_location(t->w, t->lib, 0x900, "lock_it");
}

static void waits_have_a_count_and_nanoseconds_and_period_1(void **state)
{
	struct world *t = *state;

	add_waits(t, false);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample_type, 2);
	assert_string_equal(str(p, p->sample_type[0]->type), "waits");
	assert_string_equal(str(p, p->sample_type[0]->unit), "count");
	assert_string_equal(str(p, p->sample_type[1]->type), "offcpu");
	assert_string_equal(str(p, p->sample_type[1]->unit), "nanoseconds");
	assert_string_equal(str(p, p->default_sample_type), "offcpu");
	assert_non_null(p->period_type);
	assert_string_equal(str(p, p->period_type->type), "offcpu");
	assert_string_equal(str(p, p->period_type->unit), "nanoseconds");
	assert_int_equal(p->period, 1);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->n_value, 2);
	assert_int_equal(p->sample[0]->value[0], 2);
	assert_int_equal(p->sample[0]->value[1], 7000000123);
	assert_string_equal(label_str(p, 0, "thread.state"), "S");
	assert_string_equal(label_str(p, 0, "wait"), "futex");
}

static void waits_and_samples_are_told_apart_by_how_they_ended(void **state)
{
	struct world *t = *state;

	add_waits(t, true);
	assert_int_equal(t->w->ends[STACK_END_COMPLETE], 3);
	assert_int_equal(t->w->wait_ends[STACK_END_COMPLETE], 2);
}

/* The two profiles of add_waits() in one file, in the order that is given. */
static Pprof__Profile *encode_both(const struct window *w, u32 first)
{
	const struct profile *ps[] = { &w->profiles[first], &w->profiles[!first] };
	_cleanup_free_ u8 *gz = NULL;
	size_t len;

	assert_int_equal(w->nprofiles, 2);
	assert_int_equal(pprof_encode_all(w, ps, 2, &BARE, &gz, &len), 0);
	return unpack(gz, len);
}

static void types_in_one_file_keep_their_values_apart(void **state)
{
	struct world *t = *state;

	add_waits(t, true);
	PROFILE(p) = encode_both(t->w, 0);
	assert_int_equal(p->n_sample_type, 3);
	assert_string_equal(str(p, p->sample_type[0]->type), "cpu");
	assert_string_equal(str(p, p->sample_type[1]->type), "waits");
	assert_string_equal(str(p, p->sample_type[2]->type), "offcpu");
	assert_string_equal(str(p, p->default_sample_type), "cpu");
	assert_string_equal(str(p, p->period_type->type), "cpu");
	assert_int_equal(p->period, PERIOD);
	assert_int_equal(p->n_sample, 2);
	assert_int_equal(p->sample[0]->n_value, 3);
	assert_int_equal(p->sample[0]->value[0], 3 * PERIOD);
	assert_int_equal(p->sample[0]->value[1], 0);
	assert_int_equal(p->sample[0]->value[2], 0);
	assert_int_equal(p->sample[1]->n_value, 3);
	assert_int_equal(p->sample[1]->value[0], 0);
	assert_int_equal(p->sample[1]->value[1], 2);
	assert_int_equal(p->sample[1]->value[2], 7000000123);
	/* One stack, once in the file. */
	assert_int_equal(p->n_location, 2);
	assert_null(label(p, 0, "wait"));
	assert_string_equal(label_str(p, 1, "wait"), "futex");
}

static void the_first_type_in_a_file_is_the_default(void **state)
{
	struct world *t = *state;

	add_waits(t, true);
	PROFILE(p) = encode_both(t->w, 1);
	assert_string_equal(str(p, p->sample_type[0]->type), "waits");
	assert_string_equal(str(p, p->default_sample_type), "offcpu");
	assert_string_equal(str(p, p->period_type->type), "offcpu");
	assert_int_equal(p->period, 1);
	assert_int_equal(p->sample[1]->value[2], 3 * PERIOD);
}

static void names_of_sample_types_have_no_dash(void **state)
{
	(void)state;
	assert_null(strchr(sample_cpu.name, '-'));
	assert_null(strchr(sample_offcpu.name, '-'));
	assert_null(strchr(sample_lock.name, '-'));
}

static void default_sample_type_is_cpu(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->default_sample_type), "cpu");
}

static void type_and_period_are_cpu_nanoseconds(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->sample_type[0]->type), "cpu");
	assert_string_equal(str(p, p->sample_type[0]->unit), "nanoseconds");
	assert_non_null(p->period_type);
	assert_string_equal(str(p, p->period_type->type), "cpu");
	assert_string_equal(str(p, p->period_type->unit), "nanoseconds");
	assert_int_equal(p->period, PERIOD);
}

static void time_is_the_start_of_the_window(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_true(p->time_nanos == (s64)START_NS);
	assert_true(p->duration_nanos == (s64)(END_NS - START_NS));
}

static void time_is_the_end_where_the_server_wants_it(void **state)
{
	struct pprof_options o = BARE;
	struct world *t = *state;

	o.time_is_end = true;
	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_true(p->time_nanos == (s64)END_NS);
	assert_true(p->duration_nanos == (s64)(END_NS - START_NS));
}

static void a_clock_set_back_makes_no_negative_duration(void **state)
{
	struct world *t = *state;

	add_everything(t);
	t->w->end_ns = t->w->start_ns - 5;
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->duration_nanos, 0);
}

static void comments_are_kept_in_order(void **state)
{
	const char *comments[] = { "version 1", "kernel 6.1", "lost: 0" };
	struct pprof_options o = BARE;
	struct world *t = *state;

	o.comments = comments;
	o.ncomments = 3;
	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_int_equal(p->n_comment, 3);
	assert_string_equal(str(p, p->comment[0]), "version 1");
	assert_string_equal(str(p, p->comment[1]), "kernel 6.1");
	assert_string_equal(str(p, p->comment[2]), "lost: 0");
}

static void doc_url_and_frame_filters_are_empty(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->doc_url, 0);
	assert_int_equal(p->drop_frames, 0);
	assert_int_equal(p->keep_frames, 0);
}

static void equal_windows_make_equal_files(void **state)
{
	_cleanup_free_ u8 *a = NULL, *b = NULL;
	struct world *t = *state;
	size_t alen, blen;

	add_everything(t);
	assert_int_equal(pprof_encode(t->w, &t->w->profiles[0], &NAMED, &a, &alen), 0);
	assert_int_equal(pprof_encode(t->w, &t->w->profiles[0], &NAMED, &b, &blen), 0);
	assert_int_equal(alen, blen);
	assert_memory_equal(a, b, alen);
	/* Bytes 4 to 7 of a gzip header are the time of the file. */
	assert_memory_equal(a + 4, "\0\0\0\0", 4);
}

/* Only what this profile's samples lead to goes into its file. */
static void a_profile_holds_nothing_of_other_services(void **state)
{
	struct world *t = *state;
	struct frame f = kernel(0xffffffff81000100, "secret_of_another", "vmlinux");
	struct sample s = sample_of(&f, 1);
	size_t i;

	s.service = "other";
	count(t->w, &s, 1);
	ADD(t->w, 1, native(t->exe, 0x900));
	PROFILE(p) = encode(t->w, 1, &BARE);
	assert_int_equal(p->n_location, 1);
	for (i = 0; i < p->n_string_table; i++)
		assert_null(strstr(p->string_table[i], "other"));
}

/* --- labels -------------------------------------------------------------------------------- */

static void labels_say_host_container_executable_thread_and_pid(void **state)
{
	struct world *t = *state;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(label_str(p, 0, "host"), "h1");
	assert_string_equal(label_str(p, 0, "container"), "c0ffee");
	assert_string_equal(label_str(p, 1, "k8s.pod"), "web-1");
	assert_string_equal(label_str(p, 1, "service.version"), "1.2");
	assert_null(label(p, 0, "service.instance.id"));
	assert_string_equal(label_str(p, 0, "process.executable"), "svc");
	assert_string_equal(label_str(p, 0, "thread.name"), "main");
	assert_string_equal(label_str(p, 1, "process.executable"), "helper");
	assert_string_equal(label_str(p, 1, "thread.name"), "worker");
	assert_int_equal(label(p, 0, "pid")->num, 4242);
	assert_int_equal(label(p, 1, "pid")->num, 4243);
}

static void paths_of_home_directories_stay_here(void **state)
{
	static const char *const homes[] = { "/home/ann/src/tool/deep.so", "/root/deep.so",
					     "/var/home/ann/a/deep.so" };
	struct pprof_options o = NAMED;
	struct world *t = *state;
	struct frame f[4] = { { .kind = FRAME_ANON, .address = 1, .mapping = homes[0] },
			      { .kind = FRAME_ANON, .address = 1, .mapping = homes[1] },
			      { .kind = FRAME_RUNTIME,
				.func = "job (file:///home/ann/web/app.js:3)",
				.file = homes[2] },
			      { .kind = FRAME_ANON, .address = 1, .mapping = "/srv/home/x.so" } };
	struct sample s = sample_of(f, 4);
	u32 i;

	count(t->w, &s, 1);
	o.strip_homes = true;
	PROFILE(p) = encode(t->w, 0, &o);
	for (i = 0; i < p->n_string_table; i++) {
		assert_null(strstr(p->string_table[i], "ann"));
		assert_null(strstr(p->string_table[i], "/root"));
	}
	assert_string_equal(str(p, p->mapping[0]->filename), "deep.so");
	assert_string_equal(str(p, p->mapping[2]->filename), "/srv/home/x.so");
	assert_string_equal(str(p, p->function[0]->name), "job (file://app.js:3)");
	assert_string_equal(str(p, p->function[0]->filename), "deep.so");
	o.strip_homes = false;
	PROFILE(q) = encode(t->w, 0, &o);
	assert_string_equal(str(q, q->mapping[0]->filename), homes[0]);
}

static void container_and_command_line_are_absent_when_there_is_none(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, native(t->exe, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_null(label(p, 0, "container"));
	assert_null(label(p, 0, "process.command_line"));
}

static void command_line_is_a_label_when_the_sample_has_it(void **state)
{
	struct world *t = *state;
	struct frame f = native(t->exe, 0x900);
	struct sample s = sample_of(&f, 1);

	s.cmdline = "svc --port 1";
	count(t->w, &s, 1);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(label_str(p, 0, "process.command_line"), "svc --port 1");
}

/* A reader takes a string label without a value for the number 0. */
static void empty_values_make_no_label(void **state)
{
	const char *labels[] = { "team=" };
	struct pprof_options o = BARE;
	struct world *t = *state;
	struct frame f = native(t->exe, 0x900);
	struct sample s = sample_of(&f, 1);

	s.thread = "";
	o.host = "";
	o.labels = labels;
	o.nlabels = 1;
	count(t->w, &s, 1);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_null(label(p, 0, "thread.name"));
	assert_null(label(p, 0, "host"));
	assert_null(label(p, 0, "team"));
}

static void pid_is_a_number_and_all_else_a_string(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	for (i = 0; i < p->sample[0]->n_label; i++) {
		const Pprof__Label *l = p->sample[0]->label[i];
		bool number = !strcmp(str(p, l->key), "pid");

		assert_int_equal(!l->str, number);
		assert_int_equal(l->num != 0, number);
	}
}

static void a_label_key_has_one_value(void **state)
{
	const char *labels[] = { "team=a",      "team=b",    "pid=7",    "host=x",
				 "container=y", "zone=eu=1", "noequals", "=v" };
	struct pprof_options o = BARE;
	struct world *t = *state;
	size_t i, k, m;

	o.labels = labels;
	o.nlabels = ARRAY_SIZE(labels);
	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &o);
	for (i = 0; i < p->n_sample; i++)
		for (k = 0; k < p->sample[i]->n_label; k++)
			for (m = 0; m < k; m++)
				assert_true(p->sample[i]->label[k]->key !=
					    p->sample[i]->label[m]->key);
	assert_string_equal(label_str(p, 0, "team"), "a");
	assert_string_equal(label_str(p, 0, "host"), "h1");
	assert_string_equal(label_str(p, 0, "zone"), "eu=1");
	assert_int_equal(label(p, 2, "pid")->num, 4243);
	assert_int_equal(p->sample[0]->n_label, 9);
}

/*
 * printf '\0\0\x10\x92' | openssl dgst -sha256 -mac HMAC -macopt hexkey:00..1f, whose first six
 * bytes are the value.
 */
static void pid_is_hashed_with_the_key_by_default(void **state)
{
	struct pprof_options o = BARE;
	struct world *t = *state;
	u8 key[32];
	u32 i;

	for (i = 0; i < sizeof(key); i++)
		key[i] = (u8)i;
	o.plain_pid = false;
	o.pid_key = key;
	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_true(label(p, 0, "pid")->num == 0x8115addf50b5);
	assert_true(label(p, 1, "pid")->num == 0x82cfeb2b6cfa);
	assert_true(label(p, 2, "pid")->num == 0x82cfeb2b6cfa);
}

static void no_key_means_no_pid(void **state)
{
	struct pprof_options o = BARE;
	struct world *t = *state;

	o.plain_pid = false;
	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &o);
	assert_null(label(p, 0, "pid"));
}

/* --- frames -------------------------------------------------------------------------------- */

static void frames_are_leaf_first(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, kernel(0xffffffff81000100, "ksys_read", "vmlinux"), native(t->lib, 0x900),
	    native(t->exe, 0x4100));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->sample[0]->n_location_id, 3);
	assert_string_equal(func_of(p, loc(p, 0, 0)), "ksys_read");
	assert_string_equal(str(p, map_of(p, loc(p, 0, 1))->filename), module_path(t->lib));
	assert_string_equal(str(p, map_of(p, loc(p, 0, 2))->filename), module_path(t->exe));
}

/* The joiner has already made return addresses point into the call. */
static void addresses_are_not_moved_a_second_time(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, kernel(0xffffffff81000104, "k", "vmlinux"), native(t->lib, 0x904),
	    native(t->lib, 0x90f));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_true(loc(p, 0, 0)->address == 0xffffffff81000104);
	assert_int_equal(loc(p, 0, 1)->address, 0x1904);
	assert_int_equal(loc(p, 0, 2)->address, 0x190f);
}

/* readelf -l would show: offset 0x840 vaddr 0x1840 size 0x1000; the loader maps whole pages. */
static void mapping_is_the_segments_range_in_the_files_own_addresses(void **state)
{
	const Pprof__Mapping *m;
	struct world *t = *state;

	ADD(t->w, 1, native(t->lib, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	m = map_of(p, loc(p, 0, 0));
	assert_int_equal(m->memory_start, 0x1000);
	assert_int_equal(m->memory_limit, 0x3000);
	assert_int_equal(m->file_offset, 0);
	assert_int_equal(loc(p, 0, 0)->address, 0x1900);
}

static void two_segments_of_a_file_are_two_mappings(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, native(t->lib, 0x900), native(t->lib, 0x4100), native(t->lib, 0x44ff));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_mapping, 2);
	assert_int_equal(map_of(p, loc(p, 0, 1))->memory_start, 0x9000);
	assert_int_equal(map_of(p, loc(p, 0, 1))->memory_limit, 0xa000);
	assert_int_equal(map_of(p, loc(p, 0, 1))->file_offset, 0x4000);
	assert_int_equal(loc(p, 0, 1)->address, 0x9100);
	assert_int_equal(loc(p, 0, 2)->address, 0x94ff);
	assert_int_equal(loc(p, 0, 1)->mapping_id, loc(p, 0, 2)->mapping_id);
}

static void every_address_lies_in_its_mapping_and_none_is_0_to_0(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	for (i = 0; i < p->n_location; i++) {
		const Pprof__Location *l = p->location[i];
		const Pprof__Mapping *m;

		if (!l->mapping_id)
			continue;
		m = map_of(p, l);
		assert_true(l->address >= m->memory_start && l->address < m->memory_limit);
		assert_true(m->memory_limit != 0);
	}
}

static void build_id_is_lower_case_hex(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, native(t->lib, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->mapping[0]->build_id), BUILD_ID);
}

static void build_id_is_empty_when_the_file_has_none(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, native(t->plain, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->mapping[0]->build_id), "");
	assert_int_equal(p->mapping[0]->filename != 0, true);
}

static void an_unreadable_file_keeps_its_build_id_and_file_offsets(void **state)
{
	const Pprof__Mapping *m;
	struct world *t = *state;

	ADD(t->w, 1, native(t->gone, 0x1234));
	PROFILE(p) = encode(t->w, 0, &BARE);
	m = map_of(p, loc(p, 0, 0));
	assert_string_equal(str(p, m->filename), "/nowhere/gone.so");
	assert_string_equal(str(p, m->build_id), "feedbeef");
	assert_int_equal(loc(p, 0, 0)->address, 0x1234);
	assert_int_equal(m->memory_start, 0x1000);
	assert_int_equal(m->file_offset, 0x1000);
	assert_int_equal(m->memory_limit, 0x2000);
}

static void an_offset_outside_all_segments_is_kept(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, native(t->lib, 0x3000), native(t->lib, UINT64_MAX / 2 - 1));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_mapping, 2);
	assert_int_equal(loc(p, 0, 0)->address, 0x3000);
	assert_int_equal(map_of(p, loc(p, 0, 0))->memory_start, 0x3000);
	assert_true(loc(p, 0, 1)->address == UINT64_MAX / 2 - 1);
}

static void unnamed_native_frames_carry_no_line(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	for (i = 0; i < p->n_location; i++)
		if (p->location[i]->mapping_id && !map_of(p, p->location[i])->has_functions)
			assert_int_equal(p->location[i]->n_line, 0);
}

static void a_bare_profile_names_no_native_frame(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_function, 2);
	for (i = 0; i < p->n_mapping; i++)
		assert_int_equal(p->mapping[i]->has_functions,
				 !strcmp(str(p, p->mapping[i]->filename), "[kernel.kallsyms]") &&
					 i != p->n_mapping - 1);
}

static void named_and_unnamed_frames_of_a_segment_are_two_mappings(void **state)
{
	const Pprof__Mapping *named, *bare;
	struct world *t = *state;

	ADD(t->w, 1, native(t->lib, 0x900), native(t->lib, 0x910));
	name_location(t->w, t->lib, 0x900, "f");
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_int_equal(p->n_mapping, 2);
	named = map_of(p, loc(p, 0, 0));
	bare = map_of(p, loc(p, 0, 1));
	assert_true(named->has_functions && !bare->has_functions);
	assert_string_equal(func_of(p, loc(p, 0, 0)), "f");
	assert_int_equal(loc(p, 0, 1)->n_line, 0);
	assert_int_equal(named->memory_start, bare->memory_start);
	assert_int_equal(named->file_offset, bare->file_offset);
	assert_int_equal(named->filename, bare->filename);
	assert_int_equal(named->build_id, bare->build_id);
	/* pprof merges entries of one size in pages, and one of the flags with them. */
	assert_true(named->memory_limit != bare->memory_limit);
}

static void no_mapping_mixes_named_and_unnamed_frames(void **state)
{
	struct world *t = *state;
	size_t i;

	add_everything(t);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	for (i = 0; i < p->n_location; i++)
		if (p->location[i]->mapping_id)
			assert_int_equal(map_of(p, p->location[i])->has_functions,
					 p->location[i]->n_line == 1);
}

static void kernel_frames_have_symbol_and_module(void **state)
{
	const Pprof__Function *f;
	struct world *t = *state;

	ADD(t->w, 1, kernel(0xffffffffc0000200, "ext4_read", "ext4"));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->mapping[0]->filename), "[kernel.kallsyms]");
	assert_true(p->mapping[0]->has_functions);
	assert_int_equal(p->mapping[0]->build_id, 0);
	f = p->function[0];
	assert_string_equal(str(p, f->name), "ext4_read");
	assert_string_equal(str(p, f->system_name), "ext4_read");
	assert_string_equal(str(p, f->filename), "ext4");
	assert_int_equal(f->start_line, 0);
	assert_int_equal(loc(p, 0, 0)->line[0]->line, 0);
	assert_int_equal(loc(p, 0, 0)->line[0]->column, 0);
}

static void one_symbol_name_in_two_kernel_modules_is_two_functions(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, kernel(0xffffffffc0000200, "init", "a"),
	    kernel(0xffffffffc0000300, "init", "b"), kernel(0xffffffffc0000310, "init", "b"));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_function, 2);
	assert_int_equal(p->n_location, 3);
}

static void anonymous_code_is_in_a_mapping_of_its_name(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, { .kind = FRAME_ANON, .address = 0x7f0000001000, .mapping = "//anon" },
	    { .kind = FRAME_ANON, .address = 0x7f0000002000, .mapping = "/memfd:doublemapper" });
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_int_equal(p->n_mapping, 2);
	assert_string_equal(str(p, map_of(p, loc(p, 0, 0))->filename), "//anon");
	assert_string_equal(str(p, map_of(p, loc(p, 0, 1))->filename), "/memfd:doublemapper");
	assert_true(loc(p, 0, 0)->address == 0x7f0000001000);
	assert_int_equal(loc(p, 0, 0)->n_line, 0);
}

static void an_unknown_address_has_no_mapping(void **state)
{
	struct world *t = *state;

	ADD(t->w, 1, { .kind = FRAME_UNKNOWN, .address = 0xabcd });
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_int_equal(p->n_mapping, 0);
	assert_int_equal(loc(p, 0, 0)->mapping_id, 0);
	assert_int_equal(loc(p, 0, 0)->address, 0xabcd);
}

static void the_vdso_goes_by_its_own_name(void **state)
{
	struct mapped_file file = { .path = MODULE_VDSO, .pid = (u32)getpid() };
	struct world *t = *state;
	struct module *vdso = modules_get(t->ms, &file);

	ADD(t->w, 1, native(vdso, 0x700));
	module_put(vdso);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_string_equal(str(p, p->mapping[0]->filename), "[vdso]");
}

static void first_mapping_is_the_executable_and_the_kernel_is_last(void **state)
{
	struct world *t = *state;
	size_t i;

	/* In the samples the kernel and a library come first, and the higher segment. */
	ADD(t->w, 1, kernel(0xffffffff81000100, "k", "vmlinux"),
	    kernel(0xffffffff81000200, NULL, NULL), native(t->lib, 0x900), native(t->exe, 0x4100),
	    native(t->exe, 0x900), native(t->plain, 0x900));
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_mapping, 6);
	assert_string_equal(str(p, p->mapping[0]->filename), module_path(t->exe));
	assert_string_equal(str(p, p->mapping[1]->filename), module_path(t->exe));
	assert_int_equal(p->mapping[0]->memory_start, 0x1000);
	assert_int_equal(p->mapping[1]->memory_start, 0x9000);
	for (i = 2; i < 4; i++)
		assert_string_not_equal(str(p, p->mapping[i]->filename), "[kernel.kallsyms]");
	for (i = 4; i < 6; i++)
		assert_string_equal(str(p, p->mapping[i]->filename), "[kernel.kallsyms]");
}

static void a_containers_main_executable_is_the_heaviest(void **state)
{
	struct world *t = *state;
	struct frame f[2] = { native(t->lib, 0x900), native(t->exe, 0x900) };
	struct sample s = sample_of(f, 2);

	s.exe = "sidecar";
	count(t->w, &s, 1);
	s.exe = "svc";
	count(t->w, &s, 9);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_string_equal(str(p, p->mapping[0]->filename), module_path(t->exe));
}

static void a_stack_without_frames_keeps_its_time(void **state)
{
	struct world *t = *state;

	add(t->w, NULL, 0, 3);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->n_location_id, 0);
	assert_int_equal(p->sample[0]->value[0], 3 * PERIOD);
}

/* 600 frames, each of them once, and every sum is there again. */
static void deep_stacks_and_many_samples_survive(void **state)
{
	struct world *t = *state;
	struct frame f[600];
	s64 sum = 0;
	size_t i;

	for (i = 0; i < 600; i++)
		f[i] = kernel(0xffffffff81000000 + i, "k", "vmlinux");
	for (i = 1; i <= 600; i++)
		add(t->w, f, (u32)i, i);
	PROFILE(p) = encode(t->w, 0, &BARE);
	assert_int_equal(p->n_sample, 600);
	assert_int_equal(p->n_location, 600);
	assert_int_equal(p->n_function, 1);
	for (i = 0; i < p->n_sample; i++) {
		assert_int_equal(p->sample[i]->n_location_id, i + 1);
		sum += p->sample[i]->value[0];
	}
	assert_true(sum == (s64)(600 * 601 / 2 * PERIOD));
}

/* --- folded lines -------------------------------------------------------------------------- */

static char *folded(const struct window *w, u32 i)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(pprof_write_folded(w, &w->profiles[i], f), 0);
	fclose(f);
	return text;
}

static void folded_lines_are_root_first_with_counts(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;

	ADD(t->w, 7, kernel(0xffffffff81000100, "ksys_read", "vmlinux"), native(t->lib, 0x900),
	    native(t->exe, 0x4100));
	name_location(t->w, t->exe, 0x4100, "main");
	text = folded(t->w, 0);
	assert_string_equal(text, "svc;main;lib.so+0x900;ksys_read_[k] 7\n");
}

static void folded_waits_are_weighed_in_nanoseconds(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;

	add_waits(t, false);
	text = folded(t->w, 0);
	assert_string_equal(text, "svc;lock_it;futex_wait_[k] 7000000123\n");
}

static void folded_equal_lines_are_one(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;
	struct frame f = native(t->exe, 0x4100);
	struct sample s = sample_of(&f, 1);

	count(t->w, &s, 1);
	s.thread = "other";
	s.pid = 1;
	count(t->w, &s, 2);
	/* Another address of the same function. */
	f = native(t->exe, 0x4101);
	count(t->w, &s, 4);
	s.exe = "sidecar";
	count(t->w, &s, 8);
	count(t->w,
	      &(struct sample){ .type = &sample_cpu,
				.service = "svc",
				.exe = "x",
				.thread = "",
				.frames = &f,
				.nframes = 1 },
	      0);
	name_location(t->w, t->exe, 0x4100, "main");
	name_location(t->w, t->exe, 0x4101, "main");
	text = folded(t->w, 0);
	assert_string_equal(text, "svc;main 7\nsidecar;main 8\n");
}

static void folded_names_cannot_break_the_line(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;
	struct frame f = kernel(0xffffffff81000100, "a;b\nc\td e\xff", "vmlinux");
	struct sample s = sample_of(&f, 1);

	s.exe = "x;y";
	count(t->w, &s, 1);
	text = folded(t->w, 0);
	assert_string_equal(text, "x:y;a:b?c?d e\xef\xbf\xbd_[k] 1\n");
}

static void folded_frames_without_a_name_say_where_they_are(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;

	ADD(t->w, 1, kernel(0xffffffff81000100, NULL, NULL), native(t->gone, 0x1234),
	    { .kind = FRAME_ANON, .address = 0x7f0000001000, .mapping = "//anon" },
	    { .kind = FRAME_UNKNOWN, .address = 0xabcd });
	text = folded(t->w, 0);
	assert_string_equal(text, "svc;[unknown]+0xabcd;//anon+0x7f0000001000;gone.so+0x1234;"
				  "[kernel.kallsyms]+0xffffffff81000100_[k] 1\n");
}

static void folded_names_are_cut_at_a_length(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct world *t = *state;
	char name[60000];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ADD(t->w, 1, kernel(0xffffffff81000100, name, "vmlinux"));
	text = folded(t->w, 0);
	assert_true(strlen(text) < 1100);
	assert_non_null(strstr(text, "n_[k] 1\n"));
}

static void folded_reports_a_full_disk(void **state)
{
	_cleanup_fclose_ FILE *f = fopen("/dev/full", "w");
	struct world *t = *state;

	ADD(t->w, 1, native(t->exe, 0x900));
	assert_non_null(f);
	assert_int_equal(pprof_write_folded(t->w, &t->w->profiles[0], f), -ENOSPC);
}

/* --- names --------------------------------------------------------------------------------- */

__attribute__((noinline, used)) static int a_function_of_this_file(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

static int own_offset(struct dl_phdr_info *info, size_t size, void *arg)
{
	u64 address = (uintptr_t)a_function_of_this_file - info->dlpi_addr, *ret = arg;
	u32 i;

	(void)size;
	/* The first one is the program itself. */
	for (i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - p->p_vaddr < p->p_filesz)
			*ret = address - p->p_vaddr + p->p_offset;
	}
	return 1;
}

static void names_come_from_the_files_symbols(void **state)
{
	struct world *t = *state;
	char path[4096] = { 0 };
	struct module *own;
	u64 offset = 0;
	void *map;

	assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	dl_iterate_phdr(own_offset, &offset);
	own = map_module(t->ms, path, &map);
	ADD(t->w, 1, kernel(1, "k", "vmlinux"), native(own, offset), native(t->gone, 5),
	    native(t->lib, 0x900), { .kind = FRAME_UNKNOWN, .address = 1 });
	names_resolve(t->w, t->ms, NULL, 10 * NSEC_PER_SEC);
	module_put(own);
	assert_string_equal(t->w->locations[0].func, "k");
	assert_string_equal(t->w->locations[1].func, "a_function_of_this_file");
	assert_null(t->w->locations[2].func);
	assert_null(t->w->locations[3].func);
	assert_null(t->w->locations[4].func);
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_string_equal(func_of(p, loc(p, 0, 1)), "a_function_of_this_file");
	assert_true(map_of(p, loc(p, 0, 1))->has_functions);
}

/* pprof then takes the readable name as it is; else it would cut what it takes for C++ itself. */
static void a_readable_name_keeps_the_linked_one_beside_it(void **state)
{
	struct world *t = *state;
	const Pprof__Function *f;

	ADD(t->w, 1, native(t->exe, 0x4100));
	t->w->locations[0].func = window_string(t->w, "outer::inner");
	t->w->locations[0].linked = window_string(t->w, "_ZN5outer5innerEv");
	PROFILE(p) = encode(t->w, 0, &NAMED);
	assert_int_equal(p->n_function, 1);
	f = p->function[0];
	assert_string_equal(str(p, f->name), "outer::inner");
	assert_string_equal(str(p, f->system_name), "_ZN5outer5innerEv");
}

static void code_made_at_run_time_has_its_name_for_every_server(void **state)
{
	struct world *t = *state;
	struct pprof_options bare = NAMED;

	ADD(t->w, 1,
	    { .kind = FRAME_ANON, .address = 0x7f0000001000, .mapping = "//anon", .func = "JS:*f" },
	    { .kind = FRAME_ANON, .address = 0x7f0000002000, .mapping = "//anon", .map = 7 });
	bare.names = false;
	PROFILE(p) = encode(t->w, 0, &bare);
	assert_string_equal(func_of(p, loc(p, 0, 0)), "JS:*f");
	assert_int_equal(loc(p, 0, 1)->n_line, 0);
	/* Nobody shall think that all of it has names. */
	assert_int_equal(p->n_mapping, 2);
	assert_true(map_of(p, loc(p, 0, 0))->has_functions);
	assert_false(map_of(p, loc(p, 0, 1))->has_functions);
	assert_true(map_of(p, loc(p, 0, 0))->memory_limit != map_of(p, loc(p, 0, 1))->memory_limit);
}

static void naming_an_empty_window_does_nothing(void **state)
{
	struct world *t = *state;

	names_resolve(t->w, t->ms, NULL, 0);
	assert_int_equal(t->w->nlocations, 0);
}

/* --- a profile for the tools --------------------------------------------------------------- */

static int write_file(const char *path, const struct window *w, const struct pprof_options *o)
{
	_cleanup_fclose_ FILE *f = fopen(path, "w");
	_cleanup_free_ u8 *gz = NULL;
	size_t len;

	if (!f || pprof_encode(w, &w->profiles[0], o, &gz, &len) || fwrite(gz, len, 1, f) != 1)
		return 1;
	return 0;
}

static int write_everything(const char *path)
{
	const char *labels[] = { "team=a" }, *comments[] = { "first comment", "second comment" };
	struct pprof_options o = NAMED;
	void *state;
	int err;

	setup(&state);
	add_everything(state);
	o.labels = labels;
	o.nlabels = 1;
	o.comments = comments;
	o.ncomments = 2;
	err = write_file(path, ((struct world *)state)->w, &o);
	teardown(&state);
	return err;
}

/* A file of waits, and one of samples on CPU and waits. */
static int write_waits(const char *waits, const char *both)
{
	_cleanup_free_ u8 *gz = NULL;
	const struct profile *ps[2];
	void *state;
	struct world *t;
	size_t len;
	FILE *f;
	int err;

	setup(&state);
	t = state;
	add_waits(t, true);
	ps[0] = &t->w->profiles[0];
	ps[1] = &t->w->profiles[1];
	err = pprof_encode_all(t->w, ps, 2, &NAMED, &gz, &len);
	f = fopen(both, "w");
	err = err || !f || fwrite(gz, len, 1, f) != 1 || fclose(f);
	free(take_ptr(gz));
	err = err || pprof_encode(t->w, ps[1], &NAMED, &gz, &len);
	f = fopen(waits, "w");
	err = err || !f || fwrite(gz, len, 1, f) != 1 || fclose(f);
	teardown(&state);
	return err;
}

/* One stack, leaf first, of PATH:OFFSET frames; "NAME=PATH:OFFSET" is named. id: or NULL */
static int write_stack(const char *path, const char *id, char **frames, int n)
{
	struct modules *ms = modules_new(64 << 20);
	struct window *w = window_new(START_NS);
	struct frame f[16];
	struct sample s = sample_of(f, (u32)n);
	int i, err;

	w->end_ns = END_NS;
	for (i = 0; i < n && i < (int)ARRAY_SIZE(f); i++) {
		char *eq = strchr(frames[i], '='), *colon = strrchr(frames[i], ':');
		struct mapped_file file = { .path = eq ? eq + 1 : frames[i], .pid = (u32)getpid() };
		void *map;

		if (!colon)
			return 2;
		*colon = '\0';
		f[i] = native(NULL, strtoull(colon + 1, NULL, 16));
		if (id)
			hex_id(&file, id);
		if (access(file.path, R_OK))
			f[i].module = modules_get(ms, &file);
		else
			f[i].module = map_module(ms, file.path, &map);
	}
	modules_settle(ms, now_monotonic() + 10 * NSEC_PER_SEC);
	count(w, &s, 10);
	for (i = 0; i < n; i++) {
		char *eq = strchr(frames[i], '=');

		if (eq) {
			*eq = '\0';
			name_location(w, f[i].module, f[i].address, frames[i]);
		}
		module_put(f[i].module);
	}
	err = write_file(path, w, &NAMED);
	window_free(w);
	modules_free(ms);
	return err;
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(string_table_begins_with_the_empty_string, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			ids_of_mappings_locations_functions_are_1_2_3_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(all_references_lead_somewhere, setup, teardown),
		cmocka_unit_test_setup_teardown(each_sample_has_one_value_per_type_in_nanoseconds,
						setup, teardown),
		cmocka_unit_test_setup_teardown(values_never_turn_negative, setup, teardown),
		cmocka_unit_test_setup_teardown(samples_without_a_count_are_left_out, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_profile_without_samples_is_still_valid, setup,
						teardown),
		cmocka_unit_test_setup_teardown(strings_are_valid_utf8_on_one_line, setup,
						teardown),
		cmocka_unit_test_setup_teardown(waits_have_a_count_and_nanoseconds_and_period_1,
						setup, teardown),
		cmocka_unit_test_setup_teardown(waits_and_samples_are_told_apart_by_how_they_ended,
						setup, teardown),
		cmocka_unit_test_setup_teardown(types_in_one_file_keep_their_values_apart, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_first_type_in_a_file_is_the_default, setup,
						teardown),
		cmocka_unit_test_setup_teardown(names_of_sample_types_have_no_dash, setup,
						teardown),
		cmocka_unit_test_setup_teardown(default_sample_type_is_cpu, setup, teardown),
		cmocka_unit_test_setup_teardown(type_and_period_are_cpu_nanoseconds, setup,
						teardown),
		cmocka_unit_test_setup_teardown(time_is_the_start_of_the_window, setup, teardown),
		cmocka_unit_test_setup_teardown(time_is_the_end_where_the_server_wants_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_clock_set_back_makes_no_negative_duration, setup,
						teardown),
		cmocka_unit_test_setup_teardown(comments_are_kept_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(doc_url_and_frame_filters_are_empty, setup,
						teardown),
		cmocka_unit_test_setup_teardown(equal_windows_make_equal_files, setup, teardown),
		cmocka_unit_test_setup_teardown(a_profile_holds_nothing_of_other_services, setup,
						teardown),
		cmocka_unit_test_setup_teardown(labels_say_host_container_executable_thread_and_pid,
						setup, teardown),
		cmocka_unit_test_setup_teardown(paths_of_home_directories_stay_here, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			container_and_command_line_are_absent_when_there_is_none, setup, teardown),
		cmocka_unit_test_setup_teardown(command_line_is_a_label_when_the_sample_has_it,
						setup, teardown),
		cmocka_unit_test_setup_teardown(empty_values_make_no_label, setup, teardown),
		cmocka_unit_test_setup_teardown(pid_is_a_number_and_all_else_a_string, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_label_key_has_one_value, setup, teardown),
		cmocka_unit_test_setup_teardown(pid_is_hashed_with_the_key_by_default, setup,
						teardown),
		cmocka_unit_test_setup_teardown(no_key_means_no_pid, setup, teardown),
		cmocka_unit_test_setup_teardown(frames_are_leaf_first, setup, teardown),
		cmocka_unit_test_setup_teardown(addresses_are_not_moved_a_second_time, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			mapping_is_the_segments_range_in_the_files_own_addresses, setup, teardown),
		cmocka_unit_test_setup_teardown(two_segments_of_a_file_are_two_mappings, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			every_address_lies_in_its_mapping_and_none_is_0_to_0, setup, teardown),
		cmocka_unit_test_setup_teardown(build_id_is_lower_case_hex, setup, teardown),
		cmocka_unit_test_setup_teardown(build_id_is_empty_when_the_file_has_none, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			an_unreadable_file_keeps_its_build_id_and_file_offsets, setup, teardown),
		cmocka_unit_test_setup_teardown(an_offset_outside_all_segments_is_kept, setup,
						teardown),
		cmocka_unit_test_setup_teardown(unnamed_native_frames_carry_no_line, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_bare_profile_names_no_native_frame, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			named_and_unnamed_frames_of_a_segment_are_two_mappings, setup, teardown),
		cmocka_unit_test_setup_teardown(no_mapping_mixes_named_and_unnamed_frames, setup,
						teardown),
		cmocka_unit_test_setup_teardown(kernel_frames_have_symbol_and_module, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			one_symbol_name_in_two_kernel_modules_is_two_functions, setup, teardown),
		cmocka_unit_test_setup_teardown(anonymous_code_is_in_a_mapping_of_its_name, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_unknown_address_has_no_mapping, setup, teardown),
		cmocka_unit_test_setup_teardown(the_vdso_goes_by_its_own_name, setup, teardown),
		cmocka_unit_test_setup_teardown(
			first_mapping_is_the_executable_and_the_kernel_is_last, setup, teardown),
		cmocka_unit_test_setup_teardown(a_containers_main_executable_is_the_heaviest, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_stack_without_frames_keeps_its_time, setup,
						teardown),
		cmocka_unit_test_setup_teardown(deep_stacks_and_many_samples_survive, setup,
						teardown),
		cmocka_unit_test_setup_teardown(folded_lines_are_root_first_with_counts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(folded_waits_are_weighed_in_nanoseconds, setup,
						teardown),
		cmocka_unit_test_setup_teardown(folded_equal_lines_are_one, setup, teardown),
		cmocka_unit_test_setup_teardown(folded_names_cannot_break_the_line, setup,
						teardown),
		cmocka_unit_test_setup_teardown(folded_frames_without_a_name_say_where_they_are,
						setup, teardown),
		cmocka_unit_test_setup_teardown(folded_names_are_cut_at_a_length, setup, teardown),
		cmocka_unit_test_setup_teardown(folded_reports_a_full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(names_come_from_the_files_symbols, setup, teardown),
		cmocka_unit_test_setup_teardown(a_readable_name_keeps_the_linked_one_beside_it,
						setup, teardown),
		cmocka_unit_test_setup_teardown(code_made_at_run_time_has_its_name_for_every_server,
						setup, teardown),
		cmocka_unit_test_setup_teardown(naming_an_empty_window_does_nothing, setup,
						teardown),
	};

	if (argc == 3 && !strcmp(argv[1], "--write"))
		return write_everything(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "--write-waits"))
		return write_waits(argv[2], argv[3]);
	if (argc > 3 && argc <= 3 + 16 && !strcmp(argv[1], "--write"))
		return write_stack(argv[2], NULL, argv + 3, argc - 3);
	if (argc > 4 && argc <= 4 + 16 && !strcmp(argv[1], "--write-unreadable"))
		return write_stack(argv[2], argv[3], argv + 4, argc - 4);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
