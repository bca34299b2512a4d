// SPDX-License-Identifier: Apache-2.0
/*
 * Where threads keep their contexts: images made here as linkers and loaders of both architectures
 * and C libraries leave them in memory. What is expected are the distances that their ABIs give,
 * in numbers. tests/live_context.sh has the same with real ones.
 */
#include "core/context.h"
#include "core/elfmem.h"

#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BASE 0x10000
#define SIZE 8192
#define GOT  0x1000
#define ARG  0x1800 /* what a descriptor leads to */

struct world {
	u8 bytes[SIZE];
	char maps[512];
};

struct image {
	u16 machine;
	bool executable;
	u64 value, tls_size, tls_align; /* of the symbol, of the file's block */
	u32 reloc;                      /* 0: none */
	u32 symbol;                     /* of the relocation: 1 is ours, 0 none */
	s64 addend;
	u64 got[2], arg[2];
	const char *libc; /* a mapping's path */
};

/* Everything between [BASE, BASE + SIZE) is there. */
static int read_world(void *arg, u64 addr, void *dst, size_t len)
{
	const struct world *w = arg;

	if (addr < BASE || addr - BASE > SIZE || len > SIZE - (addr - BASE))
		return -EFAULT;
	memcpy(dst, w->bytes + (addr - BASE), len);
	return 0;
}

static void build(struct world *w, const struct image *im)
{
	enum { SYMS = 0x400, STRS = 0x500, HASH = 0x600, RELA = 0x700, DYN = 0x800 };
	Elf64_Ehdr *eh = (void *)w->bytes;
	Elf64_Phdr *ph = (void *)(w->bytes + sizeof(*eh));
	Elf64_Sym *sym = (void *)(w->bytes + SYMS);
	Elf64_Rela *r = (void *)(w->bytes + RELA);
	Elf64_Dyn *d = (void *)(w->bytes + DYN);
	const u32 hash[] = { 1, 2, 1, 0, 0 }; /* a bucket, that begins with symbol 1 */

	memset(w, 0, sizeof(*w));
	memcpy(eh->e_ident, ELFMAG, SELFMAG);
	eh->e_ident[EI_CLASS] = ELFCLASS64;
	eh->e_ident[EI_DATA] = ELFDATA2LSB;
	eh->e_type = ET_DYN;
	eh->e_machine = im->machine;
	eh->e_phoff = sizeof(*eh);
	eh->e_phentsize = sizeof(*ph);
	eh->e_phnum = 3;
	ph[0] = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = SIZE, .p_memsz = SIZE
	};
	ph[1] = (Elf64_Phdr){ .p_type = PT_DYNAMIC, .p_vaddr = DYN, .p_memsz = 10 * sizeof(*d) };
	ph[2] = (Elf64_Phdr){ .p_type = PT_TLS, .p_memsz = im->tls_size, .p_align = im->tls_align };
	sym[1] = (Elf64_Sym){ .st_name = 1,
			      .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_TLS),
			      .st_shndx = 5,
			      .st_value = im->value,
			      .st_size = 8 };
	strcpy((char *)w->bytes + STRS + 1, CONTEXT_SYMBOL);
	memcpy(w->bytes + HASH, hash, sizeof(hash));
	*r = (Elf64_Rela){ GOT, ELF64_R_INFO((u64)im->symbol, im->reloc), im->addend };
	*d++ = (Elf64_Dyn){ DT_SYMTAB, { SYMS } };
	*d++ = (Elf64_Dyn){ DT_STRTAB, { STRS } };
	*d++ = (Elf64_Dyn){ DT_STRSZ, { 64 } };
	*d++ = (Elf64_Dyn){ DT_HASH, { HASH } };
	*d++ = (Elf64_Dyn){ DT_RELA, { RELA } };
	*d++ = (Elf64_Dyn){ DT_RELASZ, { im->reloc ? sizeof(*r) : 0 } };
	if (im->executable)
		*d++ = (Elf64_Dyn){ DT_DEBUG, { 0 } };
	memcpy(w->bytes + GOT, im->got, sizeof(im->got));
	memcpy(w->bytes + ARG, im->arg, sizeof(im->arg));
	snprintf(w->maps, sizeof(w->maps),
		 "00010000-00012000 r-xp 00000000 08:01 77     /srv/a\n"
		 "7f000000-7f001000 r-xp 00001000 08:01 78     %s\n"
		 "7ffff000-80000000 r-xp 00000000 00:00 0      [vdso]\n",
		 im->libc ? im->libc : "/lib/x86_64-linux-gnu/libc.so.6");
}

static const char *locate(struct world *w, const struct image *im, struct context_entry *ret)
{
	const struct elfmem_source src = { read_world, w };

	build(w, im);
	*ret = (struct context_entry){ 0 };
	return context_locate(&src, w->maps, strlen(w->maps), ret);
}

static void is_static(const struct image *im, s32 off)
{
	struct context_entry e;
	struct world w;

	assert_null(locate(&w, im, &e));
	assert_int_equal(e.nhops, 1);
	assert_int_equal(e.hop[0], off);
}

static void is_dynamic(const struct image *im, s32 vector, s32 entry, s32 off, s32 check)
{
	struct context_entry e;
	struct world w;

	assert_null(locate(&w, im, &e));
	assert_int_equal(e.nhops, 3);
	assert_int_equal(e.hop[0], vector);
	assert_int_equal(e.hop[1], entry);
	assert_int_equal(e.hop[2], off);
	assert_int_equal(e.check, check);
}

static void is_refused(const struct image *im, const char *why)
{
	struct context_entry e;
	struct world w;
	const char *said = locate(&w, im, &e);

	assert_non_null(said);
	if (!strstr(said, why))
		fail_msg("%s: not \"%s\"", said, why);
	assert_int_equal(e.nhops, 0);
}

#define X86 .machine = EM_X86_64
#define ARM .machine = EM_AARCH64

static void programs_have_it_where_the_abi_says(void **state __unused)
{
	/* x86-64: right below the thread pointer; arm64: behind two words. Both aligned. */
	is_static(&(struct image){ X86, true, 0x10, 0x18, 8 }, -8);
	is_static(&(struct image){ X86, true, 0x10, 0x48, 64 }, 0x10 - 128);
	is_static(&(struct image){ ARM, true, 0x10, 0x18, 8 }, 0x20);
	is_static(&(struct image){ ARM, true, 0x10, 0x18, 64 }, 0x50);
	/* What the loader says agrees, or nothing is believed. */
	is_static(&(struct image){ X86, true, 0x10, 0x18, 8, R_X86_64_TPOFF64, 1, 0, { -8ull } },
		  -8);
	is_refused(&(struct image){ X86, true, 0x10, 0x18, 8, R_X86_64_TPOFF64, 1, 0, { -16ull } },
		   "not where the ABI has it");
}

static void libraries_have_it_where_the_loader_says(void **state __unused)
{
	/* At a fixed distance. */
	is_static(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TPOFF64, 1, 0, { -72ull } }, -72);
	is_static(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TLSDESC, 1, 0, { 1, -72ull } },
		  -72);
	is_static(&(struct image){ ARM, false, 8, 16, 8, R_AARCH64_TLS_TPREL, 1, 0, { 96 } }, 96);
	is_static(&(struct image){ ARM, false, 8, 16, 8, R_AARCH64_TLSDESC, 1, 0, { 1, 96 } }, 96);
	/* By its module: glibc has two words a module, musl one; their vectors lie elsewhere. */
	is_dynamic(&(struct image){ X86, false, 8, 16, 8, R_X86_64_DTPMOD64, 1, 0, { 3, 8 } }, 8,
		   48, 8, -16);
	is_dynamic(&(struct image){ X86, false, 8, 16, 8, R_X86_64_DTPMOD64, 0, 0, { 3, 0 } }, 8,
		   48, 8, -16);
	is_dynamic(&(struct image){ X86,
				    false,
				    8,
				    16,
				    8,
				    R_X86_64_DTPMOD64,
				    1,
				    0,
				    { 3, 8 },
				    .libc = "/lib/ld-musl-x86_64.so.1" },
		   8, 24, 8, 0);
	is_dynamic(
		&(struct image){
			X86, false, 8, 16, 8, R_X86_64_TLSDESC, 1, 0, { 1, BASE + ARG }, { 5, 8 } },
		8, 80, 8, -16);
	is_dynamic(&(struct image){ ARM, false, 8, 16, 8, R_AARCH64_TLS_DTPMOD, 1, 0, { 2, 8 } }, 0,
		   32, 8, -16);
	is_dynamic(&(struct image){ ARM,
				    false,
				    8,
				    16,
				    8,
				    R_AARCH64_TLS_DTPMOD,
				    1,
				    0,
				    { 2, 8 },
				    .libc = "/lib/ld-musl-aarch64.so.1" },
		   -8, 16, 8, 0);
}

static void what_is_not_certain_is_refused(void **state __unused)
{
	static const char nowhere[] = "is not written anywhere";

	is_refused(&(struct image){ X86, false, 8, 16, 8 }, nowhere);
	/* Not written yet; of another variable; of another file's symbol; not a module's number. */
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TLSDESC, 1 }, nowhere);
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_DTPMOD64, 1, 0, { 3, 16 } },
		   nowhere);
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TPOFF64, 0, 0, { -72ull } },
		   nowhere);
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TPOFF64, 2, 8, { -72ull } },
		   nowhere);
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_DTPMOD64, 1, 0, { 1 << 20, 8 } },
		   nowhere);
	/* On the wrong side of the thread pointer. */
	is_refused(&(struct image){ X86, false, 8, 16, 8, R_X86_64_TPOFF64, 1, 0, { 72 } },
		   nowhere);
	is_refused(&(struct image){ ARM, false, 8, 16, 8, R_AARCH64_TLS_TPREL, 1, 0, { -72ull } },
		   nowhere);
	is_refused(&(struct image){ X86,
				    false,
				    8,
				    16,
				    8,
				    R_X86_64_DTPMOD64,
				    1,
				    0,
				    { 3, 8 },
				    .libc = "/lib/libother.so" },
		   "C library is not known");
	/* The program's own block is not so long; an alignment that is none. */
	is_refused(&(struct image){ X86, true, 32, 16, 8 }, nowhere);
	is_refused(&(struct image){ X86, true, 8, 16, 24 }, nowhere);
}

/* Any byte of an image may be anything: it is refused, or the chain is within its bounds. */
static void hostile_images_do_no_harm(void **state __unused)
{
	const struct image im = {
		X86, true, 8, 16, 8, R_X86_64_TLSDESC, 1, 0, { 1, BASE + ARG }, { 5, 8 }
	};
	struct context_entry e;
	struct world w;
	const struct elfmem_source src = { read_world, &w };
	u32 at, n, seed = 1;

	for (n = 0; n < 20000; n++) {
		build(&w, &im);
		for (at = 0; at < 3; at++) {
			seed = seed * 1664525 + 1013904223;
			w.bytes[(seed >> 8) % 0x900] = (u8)(seed >> 24);
		}
		e = (struct context_entry){ 0 };
		if (!context_locate(&src, w.maps, strlen(w.maps), &e))
			assert_in_range(e.nhops, 1, CONTEXT_HOPS);
	}
	assert_non_null(context_locate(&src, "", 0, &e));
	assert_non_null(context_locate(&src, "x\n\n-\n", 5, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_have_it_where_the_abi_says),
		cmocka_unit_test(libraries_have_it_where_the_loader_says),
		cmocka_unit_test(what_is_not_certain_is_refused),
		cmocka_unit_test(hostile_images_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
