// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of core/tablefile: ELF images made here, whole and hostile, from memory and from files; the
 * cache. Numbers in test names are those of the list of bad inputs that the daemon has to survive.
 * With arguments it is the tool behind tests/live_tables.sh:
 *
 *	test_tablefile --mutate N | --limits | --sum < LIST | --tables ARGS...
 */
#include "core/tablefile.h"
#include "core/cfi.h"
#include "core/cmd.h"
#include "core/log.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#include <cmocka.h>

#define TEXT_AT 0x1000ull
#define FUN_LEN 0x40ull

static u64 rng_state;

static u32 rng(u32 below)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (u32)(rng_state >> 32) % below;
}

/* --- an ELF file --------------------------------------------------------------------------- */

/* What the image shall have. Zeros: x86-64, two functions in .eh_frame, with section headers. */
struct plan {
	u32 functions;    /* 0: two */
	u32 text_size;    /* 0: as the functions need */
	u8 cfa_off;       /* of the second row; 0: 16 */
	bool no_sections; /* but PT_GNU_EH_FRAME */
	bool no_eh_frame;
	bool debug_frame, compressed, zdebug;
	u64 claim; /* of the compressed section; 0: the truth */
	bool sframe;
};

enum { SEC_NULL, SEC_EH_FRAME, SEC_DEBUG_FRAME, SEC_SFRAME, SEC_NAMES, SECTIONS };

struct image {
	u8 *b;
	size_t n, cap;
	Elf64_Shdr sec[SECTIONS];
};

static void put(struct image *m, const void *p, size_t n)
{
	if (m->n + n > m->cap) {
		m->cap = (m->n + n) * 2;
		m->b = realloc(m->b, m->cap);
		assert_non_null(m->b);
	}
	memcpy(m->b + m->n, p, n);
	m->n += n;
}

static void put_int(struct image *m, u64 v, size_t n)
{
	put(m, &v, n);
}

static void align(struct image *m, size_t to)
{
	while (m->n % to)
		put_int(m, 0, 1);
}

/* "zR", absolute addresses of 8 bytes in .eh_frame; no augmentation in .debug_frame. */
static void put_cie(struct image *m, bool debug)
{
	static const u8 eh[] = { 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1, 0, 0 };
	static const u8 dbg[] = { 3, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0 };

	put_int(m, 4 + (debug ? sizeof(dbg) : sizeof(eh)), 4);
	put_int(m, debug ? UINT32_MAX : 0, 4);
	if (debug)
		put(m, dbg, sizeof(dbg));
	else
		put(m, eh, sizeof(eh));
}

/* push %rbp at once: CFA rsp + 8, one byte later rsp + 16 with rbp at CFA - 16. */
static void put_fde(struct image *m, bool debug, size_t section, u64 start, u8 cfa_off)
{
	const u8 code[] = { 0x41, 0x0e, cfa_off, 0x86, 2, 0, 0 };

	put_int(m, 4 + 16 + !debug + sizeof(code), 4);
	put_int(m, debug ? 0 : m->n - section, 4);
	put_int(m, start, 8);
	put_int(m, FUN_LEN, 8);
	if (!debug)
		put_int(m, 0, 1);
	put(m, code, sizeof(code));
}

static void put_frame(struct image *m, const struct plan *p, bool debug)
{
	u32 i, n = p->functions ? p->functions : 2;
	size_t section = m->n;

	put_cie(m, debug);
	/* Functions of .debug_frame lie behind those of .eh_frame. */
	for (i = 0; i < n; i++)
		put_fde(m, debug, section, TEXT_AT + (i + (debug ? n : 0)) * 2 * FUN_LEN,
			p->cfa_off ? p->cfa_off : 16);
	if (!debug)
		put_int(m, 0, 4);
}

static void put_debug_frame(struct image *m, const struct plan *p)
{
	struct image plain = { 0 };
	uLongf len;
	u8 *packed;
	u64 claim;

	put_frame(&plain, p, true);
	if (!p->compressed && !p->zdebug) {
		put(m, plain.b, plain.n);
		free(plain.b);
		return;
	}
	claim = p->claim ? p->claim : plain.n;
	len = compressBound(plain.n);
	packed = malloc(len);
	assert_int_equal(compress(packed, &len, plain.b, plain.n), Z_OK);
	if (p->zdebug) {
		put(m, "ZLIB", 4);
		put_int(m, __builtin_bswap64(claim), 8);
	} else {
		Elf64_Chdr c = { .ch_type = ELFCOMPRESS_ZLIB, .ch_size = claim, .ch_addralign = 8 };

		put(m, &c, sizeof(c));
	}
	put(m, packed, len);
	free(packed);
	free(plain.b);
}

static void section(struct image *m, u32 i, size_t from, u32 name, u32 type)
{
	m->sec[i] = (Elf64_Shdr){ .sh_name = name,
				  .sh_type = type,
				  .sh_offset = from,
				  .sh_addr = i == SEC_EH_FRAME ? from : 0,
				  .sh_size = m->n - from };
}

static void put_sections(struct image *m, const struct plan *p)
{
	static const char names[] = "\0.eh_frame\0.debug_frame\0.sframe\0.shstrtab\0.zdebug_frame";
	/* Magic, version 2, flags, x86-64, two offsets, no header behind, 7 functions. */
	static const u8 sframe[28] = { 0xe2, 0xde, 2, 1, 3, 0, 0xf8, 0, 7 };
	Elf64_Ehdr *eh;
	size_t from;

	if (p->debug_frame) {
		from = m->n;
		put_debug_frame(m, p);
		section(m, SEC_DEBUG_FRAME, from, p->zdebug ? 42 : 11, SHT_PROGBITS);
		if (p->compressed)
			m->sec[SEC_DEBUG_FRAME].sh_flags = SHF_COMPRESSED;
	}
	if (p->sframe) {
		from = m->n;
		put(m, sframe, sizeof(sframe));
		section(m, SEC_SFRAME, from, 24, 0x6ffffff4);
	}
	from = m->n;
	put(m, names, sizeof(names));
	section(m, SEC_NAMES, from, 32, SHT_STRTAB);
	align(m, 8);
	from = m->n;
	put(m, m->sec, sizeof(m->sec));
	eh = (Elf64_Ehdr *)m->b;
	eh->e_shoff = from;
	eh->e_shnum = SECTIONS;
	eh->e_shentsize = sizeof(Elf64_Shdr);
	eh->e_shstrndx = SEC_NAMES;
}

/* Loaded at 0: addresses are file offsets. Text itself needs no bytes in the file. */
static struct image build(const struct plan *p)
{
	u32 n = p->functions ? p->functions : 2;
	Elf64_Ehdr eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			  .e_type = ET_DYN,
			  .e_machine = EM_X86_64,
			  .e_version = EV_CURRENT,
			  .e_phoff = sizeof(eh),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = 3,
			  .e_ehsize = sizeof(eh) };
	Elf64_Phdr ph[3] = { { .p_type = PT_LOAD, .p_flags = PF_R },
			     { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = TEXT_AT },
			     { .p_type = PT_GNU_EH_FRAME, .p_flags = PF_R } };
	struct image m = { 0 };
	size_t hdr, frame;

	put(&m, &eh, sizeof(eh));
	put(&m, ph, sizeof(ph));
	hdr = m.n;
	put_int(&m, 0x3b031b01, 4); /* version 1; pcrel sdata4, udata4, datarel sdata4 */
	put_int(&m, 8, 4);          /* from this field: 4 bytes of it, 4 behind */
	put_int(&m, 0, 4);
	frame = m.n;
	if (!p->no_eh_frame) {
		put_frame(&m, p, false);
		section(&m, SEC_EH_FRAME, frame, 1, SHT_PROGBITS);
	}
	/* Something behind .eh_frame in its segment. */
	put_int(&m, UINT64_MAX, 8);
	ph[0].p_filesz = ph[0].p_memsz = m.n;
	ph[1].p_memsz = p->text_size ? p->text_size : 4 * n * FUN_LEN;
	ph[2].p_offset = ph[2].p_vaddr = hdr;
	ph[2].p_filesz = ph[2].p_memsz = frame - hdr;
	if (p->no_eh_frame)
		ph[2].p_type = PT_NULL;
	memcpy(m.b + sizeof(eh), ph, sizeof(ph));
	if (!p->no_sections)
		put_sections(&m, p);
	return m;
}

static Elf64_Ehdr *ehdr(struct image *m)
{
	return (Elf64_Ehdr *)m->b;
}

static Elf64_Phdr *phdr(struct image *m, u32 i)
{
	return (Elf64_Phdr *)(m->b + sizeof(Elf64_Ehdr)) + i;
}

static Elf64_Shdr *shdr(struct image *m, u32 i)
{
	return (Elf64_Shdr *)(m->b + ehdr(m)->e_shoff) + i;
}

/* On the heap to the byte, so that a sanitizer sees a read behind it. */
static int compile_bytes(const u8 *b, size_t n, struct table *t, struct tablefile_info *info)
{
	u8 *exact = malloc(n ? n : 1);
	int err;

	assert_non_null(exact);
	memcpy(exact, b, n);
	err = tablefile_compile(-1, exact, n, "", NULL, t, info);
	free(exact);
	return err;
}

static int compile_image(const struct image *m, struct table *t, struct tablefile_info *info)
{
	return compile_bytes(m->b, m->n, t, info);
}

static int compile_plan(const struct plan *p, struct table *t, struct tablefile_info *info)
{
	struct image m = build(p);
	int err = compile_image(&m, t, info);

	free(m.b);
	return err;
}

/* A compile that is to fail, or to end well in bounds. */
static int expect_survived(const u8 *b, size_t n)
{
	struct unwind_rule rule;
	struct table t;
	int err = compile_bytes(b, n, &t, NULL);
	u64 page;

	if (err) {
		assert_true(err == -EINVAL || err == -ENOENT || err == -E2BIG);
		return err;
	}
	for (page = 0; page < t.npages && page < 64; page++)
		table_find(&t, t.base + (page << t.shift) + rng(1u << t.shift), &rule, NULL);
	table_fini(&t);
	return 0;
}

static s32 cfa_at(const struct table *t, u64 addr)
{
	struct unwind_rule rule;

	return table_find(t, addr, &rule, NULL) ? rule.cfa_off : -1;
}

/* The functions of build(), from number `first` on. */
static void expect_functions(const struct table *t, u32 first, u32 n, s32 second_row)
{
	u32 i;

	for (i = first; i < first + n; i++) {
		u64 start = TEXT_AT + i * 2 * FUN_LEN;

		assert_int_equal(cfa_at(t, start), 8);
		assert_int_equal(cfa_at(t, start + 1), second_row);
		assert_int_equal(cfa_at(t, start + FUN_LEN - 1), second_row);
		assert_int_equal(cfa_at(t, start + FUN_LEN), -1);
		assert_int_equal(cfa_at(t, start + 2 * FUN_LEN - 1), -1);
	}
}

/* --- what a file can have ------------------------------------------------------------------ */

static void image_in_memory_gives_its_table(void **state __unused)
{
	struct plan p = { .sframe = true };
	struct tablefile_info info;
	struct unwind_rule rule;
	struct table t;

	assert_int_equal(compile_plan(&p, &t, &info), 0);
	expect_functions(&t, 0, 2, 16);
	assert_true(table_find(&t, TEXT_AT + 1, &rule, NULL));
	assert_int_equal(rule.cfa, UNWIND_CFA_REG);
	assert_int_equal(rule.cfa_reg, 7);
	assert_int_equal(rule.fp, UNWIND_FROM_CFA);
	assert_int_equal(rule.fp_off, -16);
	assert_int_equal(rule.ra, UNWIND_FROM_CFA);
	assert_int_equal(rule.ra_off, -8);
	assert_true(info.eh_frame && !info.debug_frame && !info.cached && !info.eh_frame_unsized);
	assert_int_equal(info.eh_frame_size, 24 + 2 * 32 + 4);
	assert_int_equal(info.text_size, 8 * FUN_LEN);
	assert_true(info.sframe);
	assert_int_equal(info.sframe_version, 2);
	assert_int_equal(info.sframe_fdes, 7);
	table_fini(&t);
}

static void vdso_from_memory_gives_a_table(void **state __unused)
{
	char line[256];
	FILE *f = fopen("/proc/self/maps", "re");
	u64 lo = 0, hi = 0;
	struct table t;

#ifdef __aarch64__
	skip(); /* arch/arm64/kernel/vdso/vdso.lds.S discards .eh_frame */
#endif
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "[vdso]"))
			sscanf(line, "%" SCNx64 "-%" SCNx64, &lo, &hi);
	fclose(f);
	if (!lo)
		skip();
	assert_int_equal(compile_bytes((const u8 *)(uintptr_t)lo, hi - lo, &t, NULL), 0);
	assert_true(t.nmerged > 10);
	table_fini(&t);
}

static void debug_frame_fills_what_eh_frame_leaves(void **state __unused)
{
	struct plan p = { .debug_frame = true };
	struct tablefile_info info;
	struct table t;

	assert_int_equal(compile_plan(&p, &t, &info), 0);
	assert_true(info.eh_frame && info.debug_frame);
	expect_functions(&t, 0, 4, 16);
	table_fini(&t);
	p.no_eh_frame = true;
	assert_int_equal(compile_plan(&p, &t, &info), 0);
	assert_true(!info.eh_frame && info.debug_frame);
	assert_int_equal(cfa_at(&t, TEXT_AT), -1);
	expect_functions(&t, 2, 2, 16);
	table_fini(&t);
}

static void compressed_debug_frame_is_inflated(void **state __unused)
{
	struct plan p = { .debug_frame = true, .no_eh_frame = true, .functions = 3000 };
	struct tablefile_info info;
	struct table t;
	u32 i;

	for (i = 0; i < 2; i++) {
		p.compressed = !i;
		p.zdebug = i;
		assert_int_equal(compile_plan(&p, &t, &info), 0);
		assert_int_equal(info.debug_frame_size, 20 + 3000 * 31);
		expect_functions(&t, 3000, 3000, 16);
		table_fini(&t);
	}
}

static void file_without_cfi_has_none(void **state __unused)
{
	struct plan p = { .no_eh_frame = true };
	struct image m = build(&p);
	struct table t;

	assert_int_equal(compile_image(&m, &t, NULL), -ENOENT);
	free(m.b);
	/* Nothing executable: nothing to unwind. */
	p = (struct plan){ 0 };
	m = build(&p);
	phdr(&m, 1)->p_flags = PF_R;
	assert_int_equal(compile_image(&m, &t, NULL), -ENOENT);
	free(m.b);
}

static void arm64_registers_are_those_of_arm64(void **state __unused)
{
	struct plan p = { 0 };
	struct image m = build(&p);
	struct tablefile_info info;
	struct unwind_rule rule;
	struct table t;

	ehdr(&m)->e_machine = EM_AARCH64;
	/* The CIE: sp is 31, the return address column is 30. */
	m.b[shdr(&m, SEC_EH_FRAME)->sh_offset + 8 + 6] = 30;
	m.b[shdr(&m, SEC_EH_FRAME)->sh_offset + 8 + 10] = 31;
	assert_int_equal(compile_image(&m, &t, &info), 0);
	assert_true(table_find(&t, TEXT_AT, &rule, NULL));
	assert_int_equal(rule.cfa_reg, 31);
	assert_int_equal(rule.ra, UNWIND_FROM_REG);
	assert_int_equal(rule.ra_reg, 30);
	table_fini(&t);
	free(m.b);
}

/* --- hostile files ------------------------------------------------------------------------- */

static void c3_1_tiny_and_truncated_files(void **state __unused)
{
	struct plan p = { .debug_frame = true, .compressed = true, .sframe = true };
	struct image m = build(&p);
	size_t n;

	for (n = 0; n < m.n; n++) {
		int err = expect_survived(m.b, n);

		if (n < sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr))
			assert_int_equal(err, -EINVAL);
	}
	free(m.b);
}

static void c3_2_counts_and_offsets_past_the_end(void **state __unused)
{
	static const u64 far[] = { 0,         1, 0x7fffffff, 1ull << 40, INT64_MAX, UINT64_MAX - 63,
				   UINT64_MAX };
	struct plan p = { 0 };
	struct image m = build(&p);
	u64 shoff = ehdr(&m)->e_shoff;
	struct table t;
	u32 i;

	ehdr(&m)->e_phnum = 0xffff;
	assert_int_equal(compile_image(&m, &t, NULL), -E2BIG);
	ehdr(&m)->e_phnum = 3;
	ehdr(&m)->e_shnum = 0xffff;
	expect_survived(m.b, m.n);
	ehdr(&m)->e_shnum = 0; /* extended numbering */
	assert_int_equal(compile_image(&m, &t, NULL), 0);
	expect_functions(&t, 0, 2, 16);
	table_fini(&t);
	ehdr(&m)->e_shnum = SECTIONS;
	ehdr(&m)->e_shstrndx = 0xffff;
	expect_survived(m.b, m.n);
	ehdr(&m)->e_shstrndx = SEC_NAMES;
	for (i = 0; i < ARRAY_SIZE(far); i++) {
		ehdr(&m)->e_shoff = far[i];
		assert_int_equal(compile_image(&m, &t, NULL), 0); /* by .eh_frame_hdr */
		table_fini(&t);
	}
	ehdr(&m)->e_shoff = shoff;
	for (i = 0; i < ARRAY_SIZE(far); i++) {
		Elf64_Shdr keep = *shdr(&m, SEC_EH_FRAME);

		shdr(&m, SEC_EH_FRAME)->sh_offset = far[i];
		expect_survived(m.b, m.n);
		*shdr(&m, SEC_EH_FRAME) = keep;
		shdr(&m, SEC_EH_FRAME)->sh_addr = far[i];
		expect_survived(m.b, m.n);
		*shdr(&m, SEC_EH_FRAME) = keep;
		shdr(&m, SEC_NAMES)->sh_offset = far[i];
		expect_survived(m.b, m.n);
		shdr(&m, SEC_NAMES)->sh_offset = keep.sh_offset; /* overlap */
		expect_survived(m.b, m.n);
		shdr(&m, SEC_EH_FRAME)->sh_name = (u32)far[i];
		expect_survived(m.b, m.n);
		*shdr(&m, SEC_EH_FRAME) = keep;
	}
	free(m.b);
}

static int temp_file(void)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int image_file(const struct image *m)
{
	int fd = temp_file();

	assert_int_equal(write(fd, m->b, m->n), m->n);
	return fd;
}

static void c3_3_section_of_2_to_the_40_and_sparse_file_of_64_gib(void **state __unused)
{
	struct plan p = { 0 };
	struct image m = build(&p);
	struct table t;
	int fd;

	shdr(&m, SEC_EH_FRAME)->sh_size = 1ull << 40;
	assert_int_equal(compile_image(&m, &t, NULL), -EINVAL);
	shdr(&m, SEC_EH_FRAME)->sh_size = 1ull << 35;
	fd = image_file(&m);
	if (ftruncate(fd, 64ll << 30)) {
		close(fd);
		free(m.b);
		skip();
	}
	assert_int_equal(tablefile_compile(fd, NULL, 0, "", NULL, &t, NULL), -E2BIG);
	/* Sound sections in a file of that size are read as always. */
	shdr(&m, SEC_EH_FRAME)->sh_size = 24 + 2 * 32 + 4;
	assert_int_equal(pwrite(fd, m.b, m.n, 0), m.n);
	assert_int_equal(tablefile_compile(fd, NULL, 0, "", NULL, &t, NULL), 0);
	expect_functions(&t, 0, 2, 16);
	table_fini(&t);
	close(fd);
	free(m.b);
}

struct changing {
	int fd;
	const struct image *m;
	bool stop;
};

static void *change(void *arg)
{
	struct changing *c = arg;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		if (ftruncate(c->fd, (off_t)c->m->n / 2) ||
		    pwrite(c->fd, c->m->b, c->m->n, 0) != (ssize_t)c->m->n)
			break;
	}
	return NULL;
}

static void c3_4_file_truncated_while_it_is_read(void **state __unused)
{
	struct plan p = { .functions = 2000 };
	struct image m = build(&p);
	struct changing c = { .fd = image_file(&m), .m = &m };
	pthread_t thread;
	u32 i;

	assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
	for (i = 0; i < 200; i++) {
		struct table t;
		int err = tablefile_compile(c.fd, NULL, 0, "", NULL, &t, NULL);

		assert_true(err == 0 || err == -EINVAL || err == -ENOENT);
		if (!err)
			table_fini(&t);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	close(c.fd);
	free(m.b);
}

static void c3_4_what_is_no_file_is_refused(void **state __unused)
{
	struct table t;
	int fd[2];

	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	assert_int_equal(tablefile_compile(fd[0], NULL, 0, "", NULL, &t, NULL), -EINVAL);
	close(fd[0]);
	close(fd[1]);
	fd[0] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(tablefile_compile(fd[0], NULL, 0, "", NULL, &t, NULL), -EINVAL);
	close(fd[0]);
	assert_int_equal(tablefile_compile(-1, NULL, 0, "", NULL, &t, NULL), -EINVAL);
}

static void c3_11_eh_frame_over_512_mib_is_refused(void **state __unused)
{
	struct plan p = { 0 };
	struct image m = build(&p);
	struct table t;
	int fd;

	shdr(&m, SEC_EH_FRAME)->sh_size = (512ull << 20) + 1;
	fd = image_file(&m);
	assert_int_equal(ftruncate(fd, 1ll << 30), 0);
	assert_int_equal(tablefile_compile(fd, NULL, 0, "", NULL, &t, NULL), -E2BIG);
	close(fd);
	free(m.b);
}

static void c3_12_text_without_cfi_has_no_rows(void **state __unused)
{
	struct plan p = { .functions = 100, .text_size = 16 << 20 };
	struct table t;
	u64 addr;

	assert_int_equal(compile_plan(&p, &t, NULL), 0);
	expect_functions(&t, 0, 100, 16);
	for (addr = TEXT_AT + 100 * 2 * FUN_LEN; addr < TEXT_AT + (16 << 20); addr += 4096)
		assert_int_equal(cfa_at(&t, addr), -1);
	table_fini(&t);
}

static void c3_13_no_section_headers(void **state __unused)
{
	struct plan p = { .no_sections = true, .functions = 50 };
	struct tablefile_info info;
	struct table t;

	assert_int_equal(compile_plan(&p, &t, &info), 0);
	expect_functions(&t, 0, 50, 16);
	assert_true(info.eh_frame && info.eh_frame_unsized);
	table_fini(&t);
}

static void c3_13_hostile_eh_frame_hdr(void **state __unused)
{
	struct plan p = { .no_sections = true };
	struct image m = build(&p);
	u8 *hdr = m.b + phdr(&m, 2)->p_offset;
	u32 i, keep;

	memcpy(&keep, hdr + 4, 4);
	for (i = 0; i < 256; i++) {
		hdr[0] = (u8)i;
		assert_int_equal(expect_survived(m.b, m.n), i == 1 ? 0 : -EINVAL);
	}
	hdr[0] = 1;
	for (i = 0; i < 256; i++) {
		hdr[1] = (u8)i;
		expect_survived(m.b, m.n);
	}
	hdr[1] = 0x1b;
	for (i = 0; i < 33; i++) {
		u32 v = i == 32 ? 0x7fffffff : 1u << i;

		memcpy(hdr + 4, &v, 4);
		expect_survived(m.b, m.n);
	}
	memcpy(hdr + 4, &keep, 4);
	phdr(&m, 2)->p_vaddr = UINT64_MAX - 3;
	expect_survived(m.b, m.n);
	phdr(&m, 2)->p_filesz = 3;
	assert_int_equal(expect_survived(m.b, m.n), -EINVAL);
	phdr(&m, 2)->p_offset = UINT64_MAX - 1;
	assert_int_equal(expect_survived(m.b, m.n), -EINVAL);
	free(m.b);
}

static void c3_15_debug_frame_that_claims_100_gb(void **state __unused)
{
	struct plan p = { .debug_frame = true, .no_eh_frame = true, .claim = 100000000000ull };
	struct tablefile_info info;
	struct table t;
	u32 i;

	for (i = 0; i < 2; i++) {
		p.compressed = !i;
		p.zdebug = i;
		p.no_eh_frame = true;
		assert_int_equal(compile_plan(&p, &t, NULL), -E2BIG);
		/* It does not take .eh_frame away. */
		p.no_eh_frame = false;
		assert_int_equal(compile_plan(&p, &t, &info), 0);
		assert_false(info.debug_frame);
		expect_functions(&t, 0, 2, 16);
		table_fini(&t);
	}
}

static void c3_15_debug_frame_over_a_ratio_of_1000(void **state __unused)
{
	struct plan p = { .debug_frame = true, .no_eh_frame = true, .compressed = true };
	struct table t;

	p.claim = 1 << 20; /* from a hundred bytes */
	assert_int_equal(compile_plan(&p, &t, NULL), -E2BIG);
}

static void c3_15_debug_frame_that_lies_about_its_size(void **state __unused)
{
	struct plan p = { .debug_frame = true, .no_eh_frame = true, .compressed = true };
	struct image m;
	struct table t;
	u64 claim;

	/* The truth is 20 + 2 * 31. */
	for (claim = 1; claim < 200; claim++) {
		p.claim = claim;
		assert_int_equal(compile_plan(&p, &t, NULL), claim == 82 ? 0 : -EINVAL);
		if (claim == 82)
			table_fini(&t);
	}
	/* Cut short, of an unknown kind, too small for its header. */
	p.claim = 0;
	m = build(&p);
	shdr(&m, SEC_DEBUG_FRAME)->sh_size--;
	assert_int_equal(compile_image(&m, &t, NULL), -EINVAL);
	shdr(&m, SEC_DEBUG_FRAME)->sh_size = 23;
	assert_int_equal(compile_image(&m, &t, NULL), -EINVAL);
	shdr(&m, SEC_DEBUG_FRAME)->sh_size = 24;
	assert_int_equal(compile_image(&m, &t, NULL), -EINVAL);
	m.b[shdr(&m, SEC_DEBUG_FRAME)->sh_offset] = 2; /* zstd */
	assert_int_equal(compile_image(&m, &t, NULL), -EINVAL);
	free(m.b);
}

static u64 thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

/* Bytes of headers and frames turned, sizes and offsets among them; some are cut as well. */
static void mutate(const struct image *m, u8 *copy, size_t *n)
{
	static const u64 evil[] = { 0,          1,          0x7f,       0xff,      0xffff,
				    0x7fffffff, 0xffffffff, 1ull << 40, INT64_MAX, UINT64_MAX };
	u32 turns = 1 + rng(6);

	memcpy(copy, m->b, m->n);
	*n = rng(8) ? m->n : rng((u32)m->n + 1);
	while (turns--) {
		size_t at = rng((u32)m->n);

		switch (rng(3)) {
		case 0:
			copy[at] = (u8)rng(256);
			break;
		case 1:
			copy[at] ^= (u8)(1 << rng(8));
			break;
		default:
			at = MIN(at & ~(size_t)7, m->n - 8);
			memcpy(copy + at, &evil[rng(ARRAY_SIZE(evil))], rng(2) ? 4 : 8);
		}
	}
}

struct mutations {
	u32 compiled, refused, no_memory;
	u64 longest_ns;
};

static struct mutations run_mutations(u32 n)
{
	static const struct plan plans[] = {
		{ 0 },
		{ .debug_frame = true, .sframe = true },
		{ .no_sections = true },
		{ .debug_frame = true, .compressed = true, .functions = 40 },
	};
	struct mutations r = { 0 };
	struct image m[ARRAY_SIZE(plans)];
	u8 *copy = malloc(1 << 16);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(plans); i++) {
		m[i] = build(&plans[i]);
		assert_true(m[i].n <= 1 << 16);
	}
	for (i = 0; i < n; i++) {
		u64 start;
		size_t len;
		int err;

		mutate(&m[i % ARRAY_SIZE(plans)], copy, &len);
		start = thread_ns();
		err = expect_survived(copy, len);
		r.longest_ns = MAX(r.longest_ns, thread_ns() - start);
		r.compiled += !err;
		r.refused += err != 0;
		r.no_memory += err == -ENOMEM;
	}
	for (i = 0; i < ARRAY_SIZE(plans); i++)
		free(m[i].b);
	free(copy);
	return r;
}

static void c3_mutated_images_are_survived(void **state __unused)
{
	struct mutations r;

	rng_state = 20240611;
	r = run_mutations(3000);
	assert_int_equal(r.compiled + r.refused, 3000);
	assert_true(r.compiled > 300 && r.refused > 300);
	assert_true(r.longest_ns < NSEC_PER_SEC);
}

/* --- cache --------------------------------------------------------------------------------- */

#define ID "00112233445566778899aabbccddeeff00112233"

static char *cache_dir;

static int cache_setup(void **state __unused)
{
	char dir[] = "/tmp/test_tablefile.XXXXXX";

	cache_dir = mkdtemp(dir) ? strdup(dir) : NULL;
	return cache_dir ? 0 : -1;
}

static u32 files_in(const char *dir, bool remove)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	u32 n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		n++;
		if (remove)
			unlinkat(dirfd(d), e->d_name, 0);
	}
	closedir(d);
	return n;
}

static int cache_teardown(void **state __unused)
{
	files_in(cache_dir, true);
	rmdir(cache_dir);
	free(cache_dir);
	return 0;
}

/* Enough functions to be worth a cache file. */
static const struct plan big = { .functions = 1000 };

static bool compile_cached(const struct plan *p, const char *id, struct table *t)
{
	struct image m = build(p);
	struct tablefile_info info;

	assert_int_equal(tablefile_compile(-1, m.b, m.n, id, cache_dir, t, &info), 0);
	free(m.b);
	return info.cached;
}

static bool cached(const struct plan *p, const char *id)
{
	struct table t;
	bool hit = compile_cached(p, id, &t);

	expect_functions(&t, 0, p->functions, p->cfa_off ? p->cfa_off : 16);
	table_fini(&t);
	return hit;
}

static void cache_path(char *to, size_t size)
{
	snprintf(to, size, "%s/" ID "-%d.tbl", cache_dir, TABLE_VERSION);
}

static void second_time_comes_from_the_cache(void **state __unused)
{
	struct table a, b;

	assert_false(compile_cached(&big, ID, &a));
	assert_int_equal(files_in(cache_dir, false), 1);
	assert_true(compile_cached(&big, ID, &b));
	assert_int_equal(a.leaves_len, b.leaves_len);
	assert_memory_equal(a.leaves, b.leaves, a.leaves_len);
	assert_int_equal(a.nmerged, b.nmerged);
	table_fini(&a);
	table_fini(&b);
}

static void cache_file_is_for_us_alone(void **state __unused)
{
	char path[300];
	struct stat st;

	assert_false(cached(&big, ID));
	cache_path(path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void cache_directory_is_made(void **state __unused)
{
	char *parent = cache_dir, dir[300];
	struct stat st;

	snprintf(dir, sizeof(dir), "%s/tables", parent);
	cache_dir = dir;
	assert_false(cached(&big, ID));
	assert_true(cached(&big, ID));
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	files_in(dir, true);
	rmdir(dir);
	cache_dir = parent;
}

static void directory_that_others_may_write_is_not_used(void **state __unused)
{
	assert_int_equal(chmod(cache_dir, 0777), 0);
	assert_false(cached(&big, ID));
	assert_int_equal(files_in(cache_dir, false), 0);
}

static void damaged_cache_file_is_made_again(void **state __unused)
{
	char path[300];
	struct stat st;
	off_t at;

	cache_path(path, sizeof(path));
	assert_false(cached(&big, ID));
	assert_int_equal(stat(path, &st), 0);
	for (at = 0; at < st.st_size; at += 997) {
		int fd = open(path, O_RDWR | O_CLOEXEC);
		u8 b;

		assert_int_equal(pread(fd, &b, 1, at), 1);
		b ^= 0x10;
		assert_int_equal(pwrite(fd, &b, 1, at), 1);
		close(fd);
		assert_false(cached(&big, ID));
		assert_true(cached(&big, ID));
	}
	for (at = 0; at < st.st_size; at = at * 2 + 1) {
		assert_int_equal(truncate(path, at), 0);
		assert_false(cached(&big, ID));
	}
	/* A name that leads elsewhere is not followed, but replaced. */
	unlink(path);
	assert_int_equal(symlink("/dev/zero", path), 0);
	assert_false(cached(&big, ID));
	assert_true(cached(&big, ID));
}

/* An id is part of a path. */
static void c3_14_odd_build_ids_are_not_cached(void **state __unused)
{
	char longest[300];

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_false(cached(&big, ""));
	assert_false(cached(&big, "../../x"));
	assert_false(cached(&big, "AB"));
	assert_false(cached(&big, "00 11"));
	assert_false(cached(&big, longest));
	assert_int_equal(files_in(cache_dir, false), 0);
	longest[128] = '\0'; /* 64 bytes: the longest that is believed */
	assert_false(cached(&big, longest));
	assert_true(cached(&big, longest));
}

static void c3_17_ten_thousand_tiny_files_leave_no_trace(void **state __unused)
{
	struct plan tiny = { 0 };
	struct image m = build(&tiny);
	u32 i;

	for (i = 0; i < 10000; i++) {
		struct table t;
		char id[41];

		snprintf(id, sizeof(id), "%040x", i);
		assert_int_equal(tablefile_compile(-1, m.b, m.n, id, cache_dir, &t, NULL), 0);
		table_fini(&t);
	}
	free(m.b);
	assert_int_equal(files_in(cache_dir, false), 0);
}

/* A file of that size, last used `age` seconds ago. */
static void old_file(u32 i, off_t size, u32 age)
{
	struct timespec ts[2];
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%040x-%d.tbl", cache_dir, i, TABLE_VERSION);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	clock_gettime(CLOCK_REALTIME, &ts[0]);
	ts[0].tv_sec -= age;
	ts[1] = ts[0];
	assert_int_equal(futimens(fd, ts), 0);
	close(fd);
}

static bool there(u32 i)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%040x-%d.tbl", cache_dir, i, TABLE_VERSION);
	return !access(path, F_OK);
}

static void c3_17_cache_keeps_to_its_number_of_files(void **state __unused)
{
	u32 i;

	for (i = 0; i < TABLEFILE_CACHE_FILES + 10; i++)
		old_file(i, 0, 100000 - i);
	assert_false(cached(&big, ID));
	assert_int_equal(files_in(cache_dir, false), TABLEFILE_CACHE_FILES);
	assert_false(there(0));
	assert_false(there(10));
	assert_true(there(11));
	assert_true(cached(&big, ID));
}

static void c3_17_cache_keeps_to_its_bytes(void **state __unused)
{
	u32 i;

	for (i = 0; i < 5; i++)
		old_file(i, 60 << 20, 1000 * (i == 3 ? 10 : i + 1));
	old_file(7, 0, 0);
	assert_false(cached(&big, ID));
	/* 300 MiB and some: the one used longest ago goes. */
	assert_int_equal(files_in(cache_dir, false), 6);
	assert_false(there(3));
	assert_true(cached(&big, ID));
}

static void use_keeps_a_cache_file_young(void **state __unused)
{
	struct timespec ts[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	char path[300];
	struct stat st;

	cache_path(path, sizeof(path));
	assert_false(cached(&big, ID));
	assert_int_equal(utimensat(AT_FDCWD, path, ts, 0), 0);
	assert_true(cached(&big, ID));
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_mtim.tv_sec > 1000);
}

static void temporary_files_of_a_killed_run_go(void **state __unused)
{
	struct timespec ts[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/.tbl-1-2", cache_dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(futimens(fd, ts), 0);
	close(fd);
	assert_false(cached(&big, ID));
	assert_int_equal(files_in(cache_dir, false), 1);
}

static void c3_18_forged_build_id_brings_no_foreign_table(void **state __unused)
{
	struct plan other = big;

	/* Same size, same headers, same build id; one offset in the CFI differs. */
	other.cfa_off = 32;
	assert_false(cached(&other, ID));
	assert_false(cached(&big, ID));
	assert_true(cached(&big, ID));
	assert_false(cached(&other, ID));
	assert_int_equal(files_in(cache_dir, false), 1);
	/* The same CFI over another range of text. */
	other = big;
	other.text_size = 1 << 20;
	assert_false(cached(&big, ID));
	assert_false(cached(&other, ID));
}

/* --- tools --------------------------------------------------------------------------------- */

static void verdict(bool ok, const char *name)
{
	printf("%s %s", ok ? "ok" : "not ok", name);
}

static long peak_kib(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_maxrss;
}

/* Heap limited to 64 MiB: what is over it shows as -ENOMEM. */
static int tool_mutate(u32 n)
{
	struct rlimit limit = { 64 << 20, 64 << 20 };
	struct mutations r;
	bool ok;

	setrlimit(RLIMIT_DATA, &limit);
	rng_state = 77;
	r = run_mutations(n);
	ok = r.compiled && r.refused && !r.no_memory && r.longest_ns < NSEC_PER_SEC &&
	     peak_kib() < 64 << 10;
	verdict(ok, "tables_mutated_images");
	printf(" # %u images, %u compiled, %u refused, longest %.3f s, peak %ld KiB\n", n,
	       r.compiled, r.refused, (double)r.longest_ns / 1e9, peak_kib());
	return !ok;
}

static int timed(const struct image *m, double *ret_s)
{
	u64 start = thread_ns();
	struct table t;
	int err = tablefile_compile(-1, m->b, m->n, "", NULL, &t, NULL);

	*ret_s = (double)(thread_ns() - start) / 1e9;
	if (!err)
		table_fini(&t);
	return err;
}

/* Row 11: more functions, rows and instructions than a file may have. */
static int tool_limits(void)
{
	struct plan p = { .functions = (1 << 20) + 1 };
	struct image m = build(&p);
	int failed = 0, err;
	u8 *code;
	u32 i, n;
	double s;

	err = timed(&m, &s);
	failed |= err != -E2BIG;
	verdict(err == -E2BIG, "tables_c3_11_functions");
	printf(" # a million and one, %.2f s\n", s);
	/* One function of 5 M rows: the first FDE swallows the section. */
	n = (u32)shdr(&m, SEC_EH_FRAME)->sh_size - 24 - 4;
	code = m.b + shdr(&m, SEC_EH_FRAME)->sh_offset + 24;
	memcpy(code, &n, 4);
	code[4] = 28;
	memset(code + 5, 0, 3);
	memset(code + 8 + 8, 0xff, 3);
	code[8 + 8 + 3] = 0x0f;
	for (i = 8 + 17; i + 3 < n; i += 3) {
		code[i] = 0x41;
		code[i + 1] = 0x0e;
		code[i + 2] = (u8)(8 + 8 * (i & 1));
	}
	phdr(&m, 1)->p_memsz = 0x0fffffff;
	err = timed(&m, &s);
	failed |= err != -E2BIG;
	verdict(err == -E2BIG, "tables_c3_11_rows");
	printf(" # 10 million rows in one function, error %d, %.2f s, peak %ld KiB\n", err, s,
	       peak_kib());
	free(m.b);
	return failed;
}

struct sum {
	u32 files, without, refused, failed;
	u64 rows, bytes, largest;
	double cpu_s, worst_s;
};

static void sum_file(struct sum *s, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct tablefile_info info = { 0 };
	struct table t;
	int err;

	if (fd < 0)
		return;
	err = tablefile_compile(fd, NULL, 0, "", NULL, &t, &info);
	if (err == -EINVAL) {
		char head[5] = { 0 };

		/* Scripts, 32-bit files and object files are none of ours. */
		s->refused += pread(fd, head, 5, 0) == 5 && !memcmp(head, ELFMAG "\2", 5);
		return;
	}
	s->without += err == -ENOENT;
	if (err == -ENOENT)
		return;
	if (err) {
		printf("# %s: error %d\n", path, err);
		s->failed++;
		return;
	}
	s->files++;
	s->rows += t.nmerged;
	s->bytes += table_bytes(&t);
	s->largest = MAX(s->largest, table_bytes(&t));
	s->cpu_s += info.compile_s;
	s->worst_s = MAX(s->worst_s, info.compile_s);
	table_fini(&t);
}

static int tool_sum(void)
{
	struct sum s = { 0 };
	char path[4096];
	double bytes, us;
	bool ok;

	while (fgets(path, sizeof(path), stdin)) {
		path[strcspn(path, "\n")] = '\0';
		sum_file(&s, path);
	}
	bytes = s.rows ? (double)s.bytes / (double)s.rows : 0;
	us = s.rows ? s.cpu_s * 1e6 / (double)s.rows : 0;
	ok = s.files && !s.failed && bytes <= 4.3 && us <= 0.6;
	verdict(ok, "tables_all_files");
	printf(" # %u files, %u without CFI, %u refused, %u failed; %" PRIu64 " rows, %" PRIu64
	       " bytes, %.3f bytes/row, %.2f s CPU, %.3f us/row; worst file %.3f s, largest table %" PRIu64
	       " bytes, peak %ld KiB\n",
	       s.files, s.without, s.refused, s.failed, s.rows, s.bytes, bytes, s.cpu_s, us,
	       s.worst_s, s.largest, peak_kib());
	return !ok;
}

static int tool(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--mutate"))
		return tool_mutate((u32)atoi(argv[2]));
	if (argc == 2 && !strcmp(argv[1], "--limits"))
		return tool_limits();
	if (argc == 2 && !strcmp(argv[1], "--sum"))
		return tool_sum();
	if (argc > 1 && !strcmp(argv[1], "--tables")) {
		log_init(LOG_LEVEL_INFO);
		return cmd_tables(argc - 1, argv + 1);
	}
	fprintf(stderr, "usage: %s [--mutate N|--limits|--sum|--tables ARGS...]\n", argv[0]);
	return 2;
}

#define CACHE_TEST(f) cmocka_unit_test_setup_teardown(f, cache_setup, cache_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_in_memory_gives_its_table),
		cmocka_unit_test(vdso_from_memory_gives_a_table),
		cmocka_unit_test(debug_frame_fills_what_eh_frame_leaves),
		cmocka_unit_test(compressed_debug_frame_is_inflated),
		cmocka_unit_test(file_without_cfi_has_none),
		cmocka_unit_test(arm64_registers_are_those_of_arm64),
		cmocka_unit_test(c3_1_tiny_and_truncated_files),
		cmocka_unit_test(c3_2_counts_and_offsets_past_the_end),
		cmocka_unit_test(c3_3_section_of_2_to_the_40_and_sparse_file_of_64_gib),
		cmocka_unit_test(c3_4_file_truncated_while_it_is_read),
		cmocka_unit_test(c3_4_what_is_no_file_is_refused),
		cmocka_unit_test(c3_11_eh_frame_over_512_mib_is_refused),
		cmocka_unit_test(c3_12_text_without_cfi_has_no_rows),
		cmocka_unit_test(c3_13_no_section_headers),
		cmocka_unit_test(c3_13_hostile_eh_frame_hdr),
		cmocka_unit_test(c3_15_debug_frame_that_claims_100_gb),
		cmocka_unit_test(c3_15_debug_frame_over_a_ratio_of_1000),
		cmocka_unit_test(c3_15_debug_frame_that_lies_about_its_size),
		cmocka_unit_test(c3_mutated_images_are_survived),
		CACHE_TEST(second_time_comes_from_the_cache),
		CACHE_TEST(cache_file_is_for_us_alone),
		CACHE_TEST(cache_directory_is_made),
		CACHE_TEST(directory_that_others_may_write_is_not_used),
		CACHE_TEST(damaged_cache_file_is_made_again),
		CACHE_TEST(c3_14_odd_build_ids_are_not_cached),
		CACHE_TEST(c3_17_ten_thousand_tiny_files_leave_no_trace),
		CACHE_TEST(c3_17_cache_keeps_to_its_number_of_files),
		CACHE_TEST(c3_17_cache_keeps_to_its_bytes),
		CACHE_TEST(use_keeps_a_cache_file_young),
		CACHE_TEST(temporary_files_of_a_killed_run_go),
		CACHE_TEST(c3_18_forged_build_id_brings_no_foreign_table),
	};

	if (argc > 1)
		return tool(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
