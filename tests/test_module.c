// SPDX-License-Identifier: Apache-2.0
/*
 * ELF files and the module book. Expected values come from readelf, or from the images that the
 * tests build by hand. Rows are those of the list of bad inputs in the threat model.
 */
#include "core/elfsym.h"
#include "core/stat.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <cmocka.h>

#define BUDGET (64u << 20)

/* --- an ELF image, built by hand ------------------------------------------------------------- */

#define TEXT_ADDR   0x401000ull
#define TEXT_OFFSET 0x1000ull
#define TEXT_SIZE   0x400ull
#define OTHER_ADDR  0x402000ull /* a second executable section, right behind no symbol's end */
#define SYMS_MAX    64

enum {
	SEC_NULL,
	SEC_TEXT,
	SEC_OTHER,
	SEC_DATA,
	SEC_SYMTAB,
	SEC_STRTAB,
	SEC_DYNSYM,
	SEC_DYNSTR,
	SEC_NOTE,
	SECTIONS
};

struct image {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[3];
	Elf64_Shdr sh[SECTIONS];
	u8 notes[512];
	Elf64_Sym sym[2][SYMS_MAX];
	char str[2][4096];
	u32 nsym[2], nstr[2];
};

#define FIELD_SECTION(type_, field)                                             \
	(Elf64_Shdr)                                                            \
	{                                                                       \
		.sh_type = (type_), .sh_offset = offsetof(struct image, field), \
		.sh_size = sizeof(((struct image *)0)->field)                   \
	}

static void image_init(struct image *img)
{
	u32 t;

	*img = (struct image){
		.eh = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				     EV_CURRENT },
			.e_type = ET_EXEC,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_phoff = offsetof(struct image, ph),
			.e_shoff = offsetof(struct image, sh),
			.e_ehsize = sizeof(Elf64_Ehdr),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = 3,
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_shnum = SECTIONS },
		.ph = { { .p_type = PT_LOAD,
			  .p_flags = PF_R,
			  .p_vaddr = 0x400000,
			  .p_filesz = TEXT_OFFSET,
			  .p_memsz = TEXT_OFFSET },
			{ .p_type = PT_LOAD,
			  .p_flags = PF_R | PF_X,
			  .p_offset = TEXT_OFFSET,
			  .p_vaddr = TEXT_ADDR,
			  .p_filesz = 0x2000,
			  .p_memsz = 0x2000 },
			{ .p_type = PT_NULL,
			  .p_offset = offsetof(struct image, notes),
			  .p_align = 4 } },
	};
	img->sh[SEC_TEXT] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
					  .sh_addr = TEXT_ADDR,
					  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
					  .sh_offset = TEXT_OFFSET,
					  .sh_size = TEXT_SIZE };
	img->sh[SEC_OTHER] = img->sh[SEC_TEXT];
	img->sh[SEC_OTHER].sh_addr = OTHER_ADDR;
	img->sh[SEC_OTHER].sh_offset = TEXT_OFFSET + OTHER_ADDR - TEXT_ADDR;
	img->sh[SEC_DATA] = (Elf64_Shdr){ .sh_type = SHT_NOBITS,
					  .sh_addr = 0x500000,
					  .sh_flags = SHF_ALLOC | SHF_WRITE,
					  .sh_size = 0x1000 };
	img->sh[SEC_SYMTAB] = FIELD_SECTION(SHT_SYMTAB, sym[0]);
	img->sh[SEC_STRTAB] = FIELD_SECTION(SHT_STRTAB, str[0]);
	img->sh[SEC_DYNSYM] = FIELD_SECTION(SHT_DYNSYM, sym[1]);
	img->sh[SEC_DYNSTR] = FIELD_SECTION(SHT_STRTAB, str[1]);
	img->sh[SEC_SYMTAB].sh_link = SEC_STRTAB;
	img->sh[SEC_DYNSYM].sh_link = SEC_DYNSTR;
	img->sh[SEC_SYMTAB].sh_entsize = img->sh[SEC_DYNSYM].sh_entsize = sizeof(Elf64_Sym);
	for (t = 0; t < 2; t++)
		img->nsym[t] = img->nstr[t] = 1;
}

static void put(struct image *img, u32 table, const char *name, u64 addr, u64 size, u8 info,
		u16 section)
{
	u32 n = img->nsym[table]++;

	assert_true(n < SYMS_MAX);
	img->sym[table][n] = (Elf64_Sym){ .st_name = img->nstr[table],
					  .st_info = info,
					  .st_shndx = section,
					  .st_value = addr,
					  .st_size = size };
	strcpy(img->str[table] + img->nstr[table], name);
	img->nstr[table] += (u32)strlen(name) + 1;
	assert_true(img->nstr[table] < sizeof(img->str[table]));
}

#define INFO(bind, type) ELF64_ST_INFO(STB_##bind, STT_##type)

static u32 put_note(struct image *img, u32 at, const char *name, u32 type, const void *desc,
		    u32 len)
{
	Elf64_Nhdr nh = { .n_namesz = (u32)strlen(name) + 1, .n_descsz = len, .n_type = type };

	memcpy(img->notes + at, &nh, sizeof(nh));
	at += sizeof(nh);
	memcpy(img->notes + at, name, nh.n_namesz);
	at += (nh.n_namesz + 3) & ~3u;
	if (len)
		memcpy(img->notes + at, desc, len);
	at += (len + 3) & ~3u;
	img->ph[2].p_type = PT_NOTE;
	img->ph[2].p_filesz = at;
	return at;
}

static struct elfsym_source source(const void *mem, size_t size)
{
	return (struct elfsym_source){ .fd = -1, .mem = mem, .size = size };
}

static struct elfsym_table *table_of(const struct image *img)
{
	struct elfsym_source src = source(img, sizeof(*img));
	struct elfsym_table *t = NULL;

	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), 0);
	return t;
}

static int info_of(const void *mem, size_t size)
{
	struct elfsym_source src = source(mem, size);
	struct elfsym_info info;
	int err = elfsym_info(&src, &info);

	if (!err)
		elfsym_info_fini(&info);
	return err;
}

static void assert_at(const struct elfsym_table *t, u64 addr, const char *name)
{
	const char *got = elfsym_lookup(t, addr);

	if (!name && got)
		fail_msg("%llx is %s", (unsigned long long)addr, got);
	if (!name)
		return;
	assert_non_null(got);
	assert_string_equal(got, name);
}

/* --- the choice of names --------------------------------------------------------------------- */

static void sized_symbol_never_reaches_past_its_size(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "a", TEXT_ADDR + 0x10, 0x10, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "b", TEXT_ADDR + 0x40, 0x10, INFO(LOCAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR + 0x0f, NULL);
	assert_at(t, TEXT_ADDR + 0x10, "a");
	assert_at(t, TEXT_ADDR + 0x1f, "a");
	assert_at(t, TEXT_ADDR + 0x20, NULL);
	assert_at(t, TEXT_ADDR + 0x3f, NULL);
	assert_at(t, TEXT_ADDR + 0x4f, "b");
	assert_at(t, TEXT_ADDR + 0x50, NULL);
	assert_at(t, 0, NULL);
	assert_at(t, UINT64_MAX, NULL);
	elfsym_table_free(t);
}

static void sizeless_symbol_reaches_to_the_next_of_its_section(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "label", TEXT_ADDR, 0, INFO(GLOBAL, NOTYPE), SEC_TEXT);
	put(&img, 0, "func", TEXT_ADDR + 0x20, 0, INFO(LOCAL, FUNC), SEC_TEXT);
	put(&img, 0, "sized", TEXT_ADDR + 0x40, 8, INFO(LOCAL, FUNC), SEC_TEXT);
	put(&img, 0, "last", TEXT_ADDR + 0x80, 0, INFO(LOCAL, NOTYPE), SEC_TEXT);
	put(&img, 0, "other", OTHER_ADDR + 0x10, 0, INFO(LOCAL, NOTYPE), SEC_OTHER);
	put(&img, 0, "variable", 0x500000, 0, INFO(GLOBAL, NOTYPE), SEC_DATA);
	put(&img, 1, "dynamic_sizeless", TEXT_ADDR + 0x90, 0, INFO(GLOBAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "label");
	assert_at(t, TEXT_ADDR + 0x1f, "label");
	assert_at(t, TEXT_ADDR + 0x3f, "func");
	assert_at(t, TEXT_ADDR + 0x47, "sized");
	assert_at(t, TEXT_ADDR + 0x48, NULL);
	assert_at(t, TEXT_ADDR + TEXT_SIZE - 1, "last");
	assert_at(t, TEXT_ADDR + TEXT_SIZE, NULL);
	assert_at(t, OTHER_ADDR, NULL);
	assert_at(t, OTHER_ADDR + TEXT_SIZE - 1, "other");
	assert_at(t, OTHER_ADDR + TEXT_SIZE, NULL);
	assert_at(t, 0x500000, NULL);
	elfsym_table_free(t);
}

static void label_inside_a_sized_function_is_not_its_name(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "label", TEXT_ADDR + 8, 0, INFO(LOCAL, NOTYPE), SEC_TEXT);
	put(&img, 0, "label_at_start", TEXT_ADDR, 0, INFO(GLOBAL, NOTYPE), SEC_TEXT);
	put(&img, 0, "f", TEXT_ADDR, 16, INFO(LOCAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "f");
	assert_at(t, TEXT_ADDR + 15, "f");
	assert_at(t, TEXT_ADDR + 16, NULL);
	elfsym_table_free(t);
}

static void alias_global_before_weak_before_local(void **state __unused)
{
	static const char *const order[][3] = { { "l", "w", "g" }, { "g", "l", "w" } };
	u32 o, i;

	for (o = 0; o < ARRAY_SIZE(order); o++) {
		struct elfsym_table *t;
		struct image img;

		image_init(&img);
		for (i = 0; i < 3; i++) {
			u8 info = order[o][i][0] == 'g'   ? INFO(GLOBAL, FUNC)
				  : order[o][i][0] == 'w' ? INFO(WEAK, FUNC)
							  : INFO(LOCAL, FUNC);

			put(&img, 0, order[o][i], TEXT_ADDR, 16, info, SEC_TEXT);
			if (order[o][i][0] != 'g')
				put(&img, 0, order[o][i], TEXT_ADDR + 32, 16, info, SEC_TEXT);
		}
		put(&img, 0, "__plain", TEXT_ADDR + 64, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
		put(&img, 0, "plain", TEXT_ADDR + 64, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
		t = table_of(&img);
		assert_at(t, TEXT_ADDR + 8, "g");
		assert_at(t, TEXT_ADDR + 40, "w");
		assert_at(t, TEXT_ADDR + 70, "plain");
		elfsym_table_free(t);
	}
}

static void nested_symbol_names_its_own_range_only(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "outer", TEXT_ADDR, 0x100, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "inner", TEXT_ADDR + 0x20, 0x10, INFO(LOCAL, FUNC), SEC_TEXT);
	put(&img, 0, "crossing", TEXT_ADDR + 0xf0, 0x20, INFO(LOCAL, FUNC), SEC_TEXT);
	/* The better alias is short: the other one has what is left. */
	put(&img, 0, "short", TEXT_ADDR + 0x200, 0x10, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "long", TEXT_ADDR + 0x200, 0x20, INFO(LOCAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR + 0x1f, "outer");
	assert_at(t, TEXT_ADDR + 0x20, "inner");
	assert_at(t, TEXT_ADDR + 0x2f, "inner");
	assert_at(t, TEXT_ADDR + 0x30, "outer");
	assert_at(t, TEXT_ADDR + 0xef, "outer");
	assert_at(t, TEXT_ADDR + 0xf0, "crossing");
	assert_at(t, TEXT_ADDR + 0x10f, "crossing");
	assert_at(t, TEXT_ADDR + 0x110, NULL);
	assert_at(t, TEXT_ADDR + 0x20f, "short");
	assert_at(t, TEXT_ADDR + 0x210, "long");
	assert_at(t, TEXT_ADDR + 0x220, NULL);
	elfsym_table_free(t);
}

static void no_ifunc_mapping_or_foreign_symbols(void **state __unused)
{
	static const char *const marks[] = { "$x",    "$d",          "$a",  "$t",
					     "$x.42", "$d.realdata", ".L7", ".annobin_init.c",
					     "" };
	struct elfsym_table *t;
	struct image img;
	u32 i;

	image_init(&img);
	for (i = 0; i < ARRAY_SIZE(marks); i++)
		put(&img, 0, marks[i], TEXT_ADDR + 8, 0, INFO(LOCAL, NOTYPE), SEC_TEXT);
	put(&img, 0, "resolver", TEXT_ADDR + 0x10, 16, INFO(GLOBAL, GNU_IFUNC), SEC_TEXT);
	put(&img, 0, "undefined", TEXT_ADDR + 0x20, 16, INFO(GLOBAL, FUNC), SHN_UNDEF);
	put(&img, 0, "absolute", TEXT_ADDR + 0x30, 16, INFO(GLOBAL, FUNC), SHN_ABS);
	put(&img, 0, "object", TEXT_ADDR + 0x40, 16, INFO(GLOBAL, OBJECT), SEC_TEXT);
	put(&img, 0, "file.c", TEXT_ADDR + 0x50, 16, INFO(LOCAL, FILE), SEC_TEXT);
	put(&img, 0, "$xylophone", TEXT_ADDR + 0x100, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	for (i = 0; i < 0x100; i++)
		assert_at(t, TEXT_ADDR + i, NULL);
	assert_at(t, TEXT_ADDR + 0x100, "$xylophone");
	elfsym_table_free(t);
}

static void dynsym_is_merged_and_symtab_preferred(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "from_symtab", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 1, "from_dynsym", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 1, "only_dynsym", TEXT_ADDR + 32, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "from_symtab");
	assert_at(t, TEXT_ADDR + 32, "only_dynsym");
	elfsym_table_free(t);
	img.sh[SEC_SYMTAB].sh_type = SHT_NULL;
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "from_dynsym");
	elfsym_table_free(t);
	/* A damaged .symtab does not cost the other. */
	img.sh[SEC_SYMTAB].sh_type = SHT_SYMTAB;
	img.sh[SEC_SYMTAB].sh_offset = 1ull << 40;
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "from_dynsym");
	elfsym_table_free(t);
}

static void version_suffix_is_cut_and_names_are_utf8(void **state __unused)
{
	struct elfsym_table *t;
	struct image img;

	image_init(&img);
	put(&img, 0, "fopen@@GLIBC_2.2.5", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "fopen@GLIBC_2.1", TEXT_ADDR + 16, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "@odd", TEXT_ADDR + 32, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	put(&img, 0, "esc\x1b[0m\xff", TEXT_ADDR + 48, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	assert_at(t, TEXT_ADDR, "fopen");
	assert_at(t, TEXT_ADDR + 16, "fopen");
	assert_at(t, TEXT_ADDR + 32, "@odd");
	assert_at(t, TEXT_ADDR + 48, "esc?[0m\xef\xbf\xbd");
	elfsym_table_free(t);
}

static void table_over_its_budget_is_E2BIG(void **state __unused)
{
	struct elfsym_table *t = NULL;
	struct elfsym_source src;
	struct image img;
	size_t bytes;

	image_init(&img);
	src = source(&img, sizeof(img));
	put(&img, 0, "a_function", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	t = table_of(&img);
	bytes = elfsym_table_bytes(t);
	elfsym_table_free(t);
	assert_int_equal(elfsym_table(&src, NULL, bytes - 1, &t), -E2BIG);
	assert_int_equal(elfsym_table(&src, NULL, bytes, &t), 0);
	elfsym_table_free(t);
}

/* --- headers and notes ----------------------------------------------------------------------- */

static void row1_truncated_headers_are_refused(void **state __unused)
{
	struct image img;
	size_t size;

	image_init(&img);
	for (size = 0; size < offsetof(struct image, sh); size++) {
		/* A copy of its own, so that a read past the end is seen. */
		void *copy = malloc(size + 1);

		assert_non_null(copy);
		memcpy(copy, &img, size);
		assert_int_equal(info_of(copy, size), -ENOEXEC);
		free(copy);
	}
	assert_int_equal(info_of(&img, sizeof(img)), 0);
}

static void row1_truncated_sections_cost_only_the_symbols(void **state __unused)
{
	struct image img;
	size_t size;

	image_init(&img);
	put(&img, 0, "a", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	for (size = offsetof(struct image, sh); size < sizeof(img); size += 7) {
		struct elfsym_source src;
		struct elfsym_table *t = NULL;
		void *copy = malloc(size);

		assert_non_null(copy);
		memcpy(copy, &img, size);
		src = source(copy, size);
		assert_int_equal(info_of(copy, size), 0);
		if (!elfsym_table(&src, NULL, BUDGET, &t))
			elfsym_table_free(t);
		free(copy);
	}
}

static void row2_counts_and_offsets_are_checked_in_64_bits(void **state __unused)
{
	struct elfsym_table *t = NULL;
	struct elfsym_source src;
	struct image img;

	image_init(&img);
	src = source(&img, sizeof(img));
	img.eh.e_phnum = PN_XNUM;
	assert_int_equal(info_of(&img, sizeof(img)), -E2BIG);
	img.eh.e_phnum = 257;
	assert_int_equal(info_of(&img, sizeof(img)), -E2BIG);
	img.eh.e_phnum = 0;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	img.eh.e_phnum = 3;
	img.eh.e_phoff = UINT64_MAX - 8;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.ph[1].p_offset = UINT64_MAX - 8;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.ph[1].p_filesz = img.ph[1].p_memsz + 1;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.eh.e_shoff = UINT64_MAX - 8;
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), -ENOEXEC);
	img.eh.e_shoff = sizeof(img) - 1;
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), -ENOEXEC);
	image_init(&img);
	img.eh.e_shnum = 0xffff;
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), -E2BIG);
	image_init(&img);
	img.sh[SEC_SYMTAB].sh_link = img.sh[SEC_DYNSYM].sh_link = 0xffff;
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), 0);
	assert_null(t);
}

static void row13_no_section_headers_is_a_sound_file(void **state __unused)
{
	struct elfsym_table *t = NULL;
	struct elfsym_source src;
	struct image img;

	image_init(&img);
	put(&img, 0, "a", TEXT_ADDR, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	img.eh.e_shoff = 0;
	img.eh.e_shnum = 0;
	src = source(&img, sizeof(img));
	assert_int_equal(info_of(&img, sizeof(img)), 0);
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), 0);
	assert_null(t);
}

static void other_classes_and_machines_are_refused(void **state __unused)
{
	struct image img;

	image_init(&img);
	img.eh.e_machine = EM_AARCH64;
	assert_int_equal(info_of(&img, sizeof(img)), 0);
	img.eh.e_machine = EM_386;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.eh.e_ident[EI_CLASS] = ELFCLASS32;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.eh.e_ident[EI_DATA] = ELFDATA2MSB;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.eh.e_type = ET_REL;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
	image_init(&img);
	img.ph[0].p_type = img.ph[1].p_type = PT_NULL;
	assert_int_equal(info_of(&img, sizeof(img)), -ENOEXEC);
}

static void assert_id(const struct image *img, const void *id, u32 len)
{
	struct elfsym_source src = source(img, sizeof(*img));
	struct elfsym_info info;

	assert_int_equal(elfsym_info(&src, &info), 0);
	assert_int_equal(info.id_len, len);
	if (len)
		assert_memory_equal(info.id, id, len);
	elfsym_info_fini(&info);
}

static void row14_first_valid_build_id_counts(void **state __unused)
{
	static const u8 id[80] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
				   11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };
	static const u8 other[20] = { 0xff };
	struct image img;
	u32 at;

	image_init(&img);
	assert_id(&img, NULL, 0);
	at = put_note(&img, 0, "GNU", NT_GNU_ABI_TAG, other, 16);
	at = put_note(&img, at, "XYZ", NT_GNU_BUILD_ID, other, 20);
	at = put_note(&img, at, "GNU", NT_GNU_BUILD_ID, NULL, 0);
	at = put_note(&img, at, "GNU", NT_GNU_BUILD_ID, id, 65);
	assert_id(&img, NULL, 0);
	at = put_note(&img, at, "GNU", NT_GNU_BUILD_ID, id, 20);
	at = put_note(&img, at, "GNU", NT_GNU_BUILD_ID, other, 20);
	assert_id(&img, id, 20);
	image_init(&img);
	put_note(&img, 0, "GNU", NT_GNU_BUILD_ID, id, 64);
	assert_id(&img, id, 64);
	/* The segment ends inside the note. */
	img.ph[2].p_filesz = 30;
	assert_id(&img, NULL, 0);
	/* A note of 1 MB and one outside the file. */
	img.ph[2].p_filesz = (1u << 20) + 1;
	assert_id(&img, NULL, 0);
	img.ph[2].p_filesz = 100;
	img.ph[2].p_offset = UINT64_MAX - 10;
	assert_id(&img, NULL, 0);
}

static void build_id_of_a_note_section_without_segment(void **state __unused)
{
	static const u8 id[8] = { 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4 };
	struct image img;

	image_init(&img);
	put_note(&img, 0, "GNU", NT_GNU_BUILD_ID, id, sizeof(id));
	img.ph[2].p_type = PT_NULL;
	img.sh[SEC_NOTE] = FIELD_SECTION(SHT_NOTE, notes);
	img.sh[SEC_NOTE].sh_addralign = 4;
	assert_id(&img, id, sizeof(id));
}

static void notes_aligned_to_8_bytes(void **state __unused)
{
	static const u8 id[20] = { 9, 8, 7 }, property[5] = { 1 };
	struct image img;
	u32 at;

	image_init(&img);
	at = put_note(&img, 0, "GNU", 5, property, sizeof(property));
	at = (at + 7) & ~7u;
	put_note(&img, at, "GNU", NT_GNU_BUILD_ID, id, sizeof(id));
	img.ph[2].p_align = 8;
	assert_id(&img, id, sizeof(id));
}

/* --- hostile content ------------------------------------------------------------------------- */

static u64 random_next(u64 *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void try_all(const void *mem, size_t size)
{
	struct elfsym_source src = source(mem, size);
	struct elfsym_table *t = NULL;
	struct elfsym_info info;

	if (!elfsym_info(&src, &info))
		elfsym_info_fini(&info);
	if (elfsym_table(&src, NULL, 1u << 20, &t))
		return;
	elfsym_lookup(t, TEXT_ADDR);
	elfsym_lookup(t, UINT64_MAX);
	elfsym_table_free(t);
}

static void mutated_files_never_crash(void **state __unused)
{
	static const u64 odd[] = { 0,          1,          0x7f,       0xff,      0xffff,
				   0x7fffffff, 0xffffffff, 1ull << 40, INT64_MAX, UINT64_MAX };
	struct image seed, *img = malloc(sizeof(*img));
	u64 x = 0x9e3779b97f4a7c15ull;
	u32 round, i;

	assert_non_null(img);
	image_init(&seed);
	for (i = 0; i < 20; i++)
		put(&seed, i & 1, "function", TEXT_ADDR + i * 13, i * 3, INFO(GLOBAL, FUNC),
		    SEC_TEXT);
	put_note(&seed, 0, "GNU", NT_GNU_BUILD_ID, "0123456789", 10);
	for (round = 0; round < 2000; round++) {
		*img = seed;
		for (i = 0; i <= round % 8; i++) {
			size_t width = 1u << random_next(&x) % 4, at;
			u64 value = random_next(&x) % 2 ? random_next(&x)
							: odd[random_next(&x) % ARRAY_SIZE(odd)];

			/* Mostly the headers, where it hurts. */
			at = random_next(&x) %
			     (random_next(&x) % 4 ? offsetof(struct image, str) : sizeof(*img));
			at = MIN(at, sizeof(*img) - width);
			memcpy((u8 *)img + at, &value, width);
		}
		try_all(img, random_next(&x) % 8 ? sizeof(*img) : random_next(&x) % sizeof(*img));
	}
	free(img);
}

/* One address, one long prefix, strings without an end: must not be quadratic. */
static void many_aliases_of_long_names_take_bounded_time(void **state __unused)
{
	size_t n = 20000, i, strings = 1u << 20, size = sizeof(struct image) + n * 24 + strings;
	struct image *img = calloc(1, size);
	struct elfsym_table *t = NULL;
	struct elfsym_source src;
	u64 start = now_monotonic();
	Elf64_Sym *sym;

	assert_non_null(img);
	image_init(img);
	sym = (void *)((char *)img + sizeof(*img));
	for (i = 1; i < n; i++)
		sym[i] = (Elf64_Sym){ .st_name = (u32)i,
				      .st_info = INFO(GLOBAL, FUNC),
				      .st_shndx = SEC_TEXT,
				      .st_value = TEXT_ADDR + i % 2 };
	memset(sym + n, '_', strings);
	img->sh[SEC_SYMTAB].sh_offset = sizeof(*img);
	img->sh[SEC_SYMTAB].sh_size = n * 24;
	img->sh[SEC_STRTAB].sh_offset = sizeof(*img) + n * 24;
	img->sh[SEC_STRTAB].sh_size = strings;
	src = source(img, size);
	assert_int_equal(elfsym_table(&src, NULL, BUDGET, &t), 0);
	assert_non_null(elfsym_lookup(t, TEXT_ADDR));
	elfsym_table_free(t);
	free(img);
	assert_true(now_monotonic() - start < NSEC_PER_SEC);
}

/* --- real files, against readelf ------------------------------------------------------------- */

static bool have(const char *command)
{
	char line[128];

	snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", command);
	return !system(line);
}

static FILE *run_command(const char *fmt, const char *arg)
{
	char line[8192];
	FILE *f;

	snprintf(line, sizeof(line), fmt, arg);
	f = popen(line, "re");
	assert_non_null(f);
	return f;
}

struct open_file {
	struct elfsym_source src;
	struct stat st;
};

static struct open_file open_elf(const char *path)
{
	struct open_file f;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &f.st), 0);
	f.src = (struct elfsym_source){ .fd = fd, .size = (u64)f.st.st_size };
	return f;
}

static void assert_segments(const char *path)
{
	struct open_file file = open_elf(path);
	struct elfsym_info info;
	char line[512], flags[8];
	u32 n = 0;
	FILE *f;

	assert_int_equal(elfsym_info(&file.src, &info), 0);
	f = run_command("LC_ALL=C readelf -lW '%s'", path);
	while (fgets(line, sizeof(line), f)) {
		unsigned long long off, vaddr, paddr, filesz, memsz;
		const struct module_segment *s = &info.segments[n];

		if (sscanf(line, " LOAD %llx %llx %llx %llx %llx %7[RWE ]", &off, &vaddr, &paddr,
			   &filesz, &memsz, flags) != 6)
			continue;
		assert_true(n < info.nsegments);
		assert_int_equal(s->offset, off);
		assert_int_equal(s->vaddr, vaddr);
		assert_int_equal(s->file_size, filesz);
		assert_int_equal(s->mem_size, memsz);
		assert_int_equal(s->exec, strchr(flags, 'E') != NULL);
		n++;
	}
	pclose(f);
	assert_int_equal(n, info.nsegments);
	elfsym_info_fini(&info);
	close(file.src.fd);
}

static void read_build_id(const char *path, char hex[static 130])
{
	FILE *f = run_command("LC_ALL=C readelf -nW '%s' 2>/dev/null", path);
	char line[512];

	hex[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "Build ID: ");

		if (at && !hex[0])
			sscanf(at, "Build ID: %129s", hex);
	}
	pclose(f);
}

static void assert_build_id(const char *path)
{
	struct open_file file = open_elf(path);
	char want[130], got[130] = "";
	struct elfsym_info info;
	u32 i;

	assert_int_equal(elfsym_info(&file.src, &info), 0);
	for (i = 0; i < info.id_len; i++)
		snprintf(got + 2 * (size_t)i, 3, "%02x", info.id[i]);
	read_build_id(path, want);
	assert_string_equal(got, want);
	elfsym_info_fini(&info);
	close(file.src.fd);
}

struct known {
	u64 addr, size;
	char name[256];
	char bind;
};

/* Sized functions, as readelf prints them. */
static struct known *read_functions(const char *path, u32 *ret_n)
{
	FILE *f = run_command("LC_ALL=C readelf -sW '%s' 2>/dev/null", path);
	struct known *all = NULL;
	char line[4096];
	u32 n = 0, cap = 0;

	while (fgets(line, sizeof(line), f)) {
		unsigned long long addr;
		char size[32], type[16], bind[16], section[16];
		struct known k;

		if (sscanf(line, " %*d: %llx %31s %15s %15s %*s %15s %255[^@ \n]", &addr, size,
			   type, bind, section, k.name) != 6)
			continue;
		k.addr = addr;
		k.size = strtoull(size, NULL, 0);
		k.bind = bind[0];
		if (strcmp(type, "FUNC") || !k.size || !strcmp(section, "UND") ||
		    !strcmp(section, "ABS"))
			continue;
		assert_int_equal(VEC_RESERVE(all, cap, n + 1, 1u << 20), 0);
		all[n++] = k;
	}
	pclose(f);
	*ret_n = n;
	return all;
}

/* Is name right for addr: of a function that covers it and that no better one hides. */
static bool right_name(const struct known *all, u32 n, u64 addr, const char *name)
{
	u64 latest = 0;
	bool covered = false;
	u32 i;

	for (i = 0; i < n; i++)
		if (addr - all[i].addr < all[i].size) {
			covered = true;
			latest = MAX(latest, all[i].addr);
		}
	if (!covered)
		return !name;
	for (i = 0; name && i < n; i++)
		if (all[i].addr == latest && addr - latest < all[i].size &&
		    !strncmp(all[i].name, name, sizeof(all[i].name) - 1))
			return true;
	return false;
}

/* First, last and the byte behind of each function; at most `step`-th only, for time. */
static void assert_functions(const char *path, bool sizeless)
{
	struct open_file file = open_elf(path);
	struct elfsym_table *t = NULL;
	u32 n = 0, i, wrong = 0, step;
	struct known *all = read_functions(path, &n);

	assert_int_equal(elfsym_table(&file.src, NULL, BUDGET, &t), 0);
	step = n / 1500 + 1;
	for (i = 0; i < n; i += step) {
		u64 end = all[i].addr + all[i].size;

		wrong += !right_name(all, n, all[i].addr, elfsym_lookup(t, all[i].addr));
		wrong += !right_name(all, n, end - 1, elfsym_lookup(t, end - 1));
		if (!sizeless)
			wrong += !right_name(all, n, end, elfsym_lookup(t, end));
	}
	print_message("%s: %u functions, %zu bytes, %u wrong\n", path, n, elfsym_table_bytes(t),
		      wrong);
	assert_true(n > 0);
	assert_int_equal(wrong, 0);
	elfsym_table_free(t);
	free(all);
	close(file.src.fd);
}

/* Path of the libc that this test runs on. */
static const char *libc_path(void)
{
	static char path[4096];
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4400];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "libc.so") || strstr(line, "libc-"))
			sscanf(line, "%*s %*s %*s %*s %*s %4095[^\n]", path);
	if (f)
		fclose(f);
	return path[0] ? path : NULL;
}

static void real_files_agree_with_readelf(void **state __unused)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *libc = libc_path();

	if (!have("readelf"))
		skip();
	assert_true(n > 0);
	self[n] = '\0';
	assert_segments(self);
	assert_build_id(self);
	assert_functions(self, true);
	if (!libc)
		return;
	assert_segments(libc);
	assert_build_id(libc);
	assert_functions(libc, false);
}

/* --- the book -------------------------------------------------------------------------------- */

struct dir {
	char path[64];
};

static struct dir dir_make(void)
{
	struct dir d = { "/tmp/module-XXXXXX" };

	assert_non_null(mkdtemp(d.path));
	return d;
}

static void dir_remove(struct dir *d)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -rf '%s'", d->path);
	assert_int_equal(system(line), 0);
}

static const char *in_dir(const struct dir *d, const char *name)
{
	static char path[4][128];
	static u32 i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", d->path, name);
	return path[i];
}

static void write_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

/* An image with one function and a build id of 20 equal bytes; 0: none. */
static void write_image(const char *path, const char *function, u8 id)
{
	struct image *img = malloc(sizeof(*img));
	u8 bytes[20];

	assert_non_null(img);
	image_init(img);
	put(img, 0, function, TEXT_ADDR + 0x100, 16, INFO(GLOBAL, FUNC), SEC_TEXT);
	memset(bytes, id, sizeof(bytes));
	if (id)
		put_note(img, 0, "GNU", NT_GNU_BUILD_ID, bytes, sizeof(bytes));
	write_file(path, img, sizeof(*img));
	free(img);
}

/* What /proc/PID/maps would say of a file. */
static struct mapped_file mapped(const char *path)
{
	struct mapped_file f = { .path = path };
	struct stat st;

	if (!stat(path, &st)) {
		f.major = major(st.st_dev);
		f.minor = minor(st.st_dev);
		f.ino = st.st_ino;
	}
	return f;
}

static struct mapped_file with_id(struct mapped_file f, u8 id)
{
	memset(f.build_id, id, sizeof(f.build_id));
	f.build_id_len = 20;
	return f;
}

static void settle(struct modules *ms)
{
	assert_true(modules_settle(ms, now_monotonic() + 20 * NSEC_PER_SEC));
}

static struct modules *book(size_t budget)
{
	struct modules *ms = modules_new(budget);

	assert_non_null(ms);
	return ms;
}

static struct module *get(struct modules *ms, struct mapped_file f)
{
	struct module *m = modules_get(ms, &f);

	assert_non_null(m);
	settle(ms);
	return m;
}

static void assert_symbol(struct modules *ms, struct module *m, u64 offset, const char *want)
{
	const char *name = NULL;
	int err = module_symbol(ms, m, offset, &name);

	if (err == -EAGAIN) {
		settle(ms);
		err = module_symbol(ms, m, offset, &name);
	}
	assert_int_equal(err, want ? 0 : -ENOENT);
	if (want)
		assert_string_equal(name, want);
}

#define FUNCTION_OFFSET (TEXT_OFFSET + 0x100)

static void file_is_found_by_device_and_inode(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	const struct module_segment *s;
	struct module *m;

	write_image(path, "function_a", 7);
	m = get(ms, mapped(path));
	assert_int_equal(module_state(m), MODULE_READY);
	assert_string_equal(module_path(m), path);
	assert_string_equal(module_build_id(m), "0707070707070707070707070707070707070707");
	s = module_segment(m, FUNCTION_OFFSET);
	assert_non_null(s);
	assert_true(s->exec);
	assert_int_equal(s->vaddr, TEXT_ADDR);
	assert_null(module_segment(m, TEXT_OFFSET + 0x2000));
	assert_symbol(ms, m, FUNCTION_OFFSET, "function_a");
	assert_symbol(ms, m, FUNCTION_OFFSET + 15, "function_a");
	assert_symbol(ms, m, FUNCTION_OFFSET + 16, NULL);
	assert_symbol(ms, m, 1ull << 40, NULL);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
}

static void replaced_file_is_changed(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	u64 counted = stat_get(STAT_module_changed);
	struct mapped_file old;
	struct module *m;

	write_image(path, "old", 0);
	old = mapped(path);
	write_image(in_dir(&d, "b"), "new", 0);
	assert_int_equal(rename(in_dir(&d, "b"), path), 0);
	m = get(ms, old);
	assert_int_equal(module_state(m), MODULE_CHANGED);
	assert_symbol(ms, m, FUNCTION_OFFSET, NULL);
	assert_int_equal(stat_get(STAT_module_changed), counted + 1);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
}

static void unproven_file_is_not_believed(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	struct module *m;

	write_image(path, "f", 0);
	m = get(ms, (struct mapped_file){ .path = path });
	assert_int_equal(module_state(m), MODULE_CHANGED);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
}

static void build_id_decides_when_the_mapping_gave_one(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	struct module *right, *wrong, *garbage;

	write_image(path, "f", 3);
	/* Another inode, as on an overlay file system. */
	right = get(ms, with_id((struct mapped_file){ .path = path, .ino = 1, .major = 9 }, 3));
	wrong = get(ms, with_id(mapped(path), 4));
	write_file(in_dir(&d, "text"), "#!/bin/sh\n", 10);
	garbage = get(ms, with_id(mapped(in_dir(&d, "text")), 3));
	assert_int_equal(module_state(right), MODULE_READY);
	assert_symbol(ms, right, FUNCTION_OFFSET, "f");
	assert_int_equal(module_state(wrong), MODULE_CHANGED);
	/* What the mapping said still identifies the frames. */
	assert_string_equal(module_build_id(wrong), "0404040404040404040404040404040404040404");
	assert_int_equal(module_state(garbage), MODULE_CHANGED);
	module_put(right);
	module_put(wrong);
	module_put(garbage);
	modules_free(ms);
	dir_remove(&d);
}

static void unsound_file_is_refused(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "text");
	u64 counted = stat_get(STAT_module_refused);
	struct module *m;

	write_file(path, "#!/bin/sh\n", 10);
	m = get(ms, mapped(path));
	assert_int_equal(module_state(m), MODULE_REFUSED);
	assert_string_equal(module_build_id(m), "");
	assert_null(module_segment(m, 0));
	assert_symbol(ms, m, 0, NULL);
	assert_int_equal(stat_get(STAT_module_refused), counted + 1);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
}

static void missing_file_is_unreadable(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	u64 counted = stat_get(STAT_module_unreadable);
	struct module *m = get(ms, with_id((struct mapped_file){ .path = "/nonexistent/x" }, 1));

	assert_int_equal(module_state(m), MODULE_UNREADABLE);
	assert_int_equal(stat_get(STAT_module_unreadable), counted + 1);
	module_put(m);
	modules_free(ms);
}

static void row20_fifo_directory_or_device_does_not_block(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *fifo = in_dir(&d, "fifo");
	const char *paths[] = { fifo, d.path, "/dev/zero", "/dev/tty" };
	u64 start = now_monotonic();
	u32 i;

	assert_int_equal(mkfifo(fifo, 0600), 0);
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		struct module *m = get(ms, mapped(paths[i]));

		assert_int_not_equal(module_state(m), MODULE_READY);
		assert_int_not_equal(module_state(m), MODULE_LOADING);
		module_put(m);
	}
	assert_true(now_monotonic() - start < NSEC_PER_SEC);
	modules_free(ms);
	dir_remove(&d);
}

static void row3_sparse_file_of_64_GiB_with_a_huge_section(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "sparse");
	u64 start = now_monotonic();
	struct module *m;
	struct image *img = malloc(sizeof(*img));

	assert_non_null(img);
	image_init(img);
	img->sh[SEC_SYMTAB].sh_size = 1ull << 35;
	img->sh[SEC_STRTAB].sh_size = 1ull << 40;
	img->sh[SEC_DYNSTR].sh_size = (1ull << 36) - 65536;
	write_file(path, img, sizeof(*img));
	if (truncate(path, 1ll << 36)) {
		free(img);
		modules_free(ms);
		dir_remove(&d);
		skip();
	}
	m = get(ms, mapped(path));
	assert_int_equal(module_state(m), MODULE_READY);
	assert_symbol(ms, m, FUNCTION_OFFSET, NULL);
	assert_true(now_monotonic() - start < NSEC_PER_SEC);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
	free(img);
}

static void row18_same_build_id_of_another_inode_is_another_module(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *a = in_dir(&d, "a"), *b = in_dir(&d, "b");
	struct module *ma, *mb, *again;

	write_image(a, "from_a", 5);
	write_image(b, "from_b", 5);
	ma = get(ms, with_id(mapped(a), 5));
	mb = get(ms, with_id(mapped(b), 5));
	again = get(ms, with_id(mapped(a), 5));
	assert_ptr_not_equal(ma, mb);
	assert_ptr_equal(ma, again);
	assert_int_equal(modules_count(ms), 2);
	assert_symbol(ms, ma, FUNCTION_OFFSET, "from_a");
	assert_symbol(ms, mb, FUNCTION_OFFSET, "from_b");
	module_put(ma);
	module_put(mb);
	module_put(again);
	modules_free(ms);
	dir_remove(&d);
}

/* A mapping of our own, for map_files. */
static struct mapped_file map_self(const char *path, void **ret_map)
{
	struct mapped_file f = mapped(path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);

	assert_true(fd >= 0);
	assert_true(p != MAP_FAILED);
	close(fd);
	f.pid = (u32)getpid();
	f.lo = (u64)p;
	f.hi = f.lo + 8192;
	*ret_map = p;
	return f;
}

static bool map_files_work(const struct mapped_file *f)
{
	char name[96];
	int fd;

	snprintf(name, sizeof(name), "/proc/self/map_files/%llx-%llx", (unsigned long long)f->lo,
		 (unsigned long long)f->hi);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void row28_deleted_file_is_read_through_map_files(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	struct mapped_file f;
	bool can;
	void *map;

	write_image(path, "deleted", 0);
	f = map_self(path, &map);
	unlink(path);
	can = map_files_work(&f);
	if (can) {
		struct module *m = get(ms, f), *other;

		assert_int_equal(module_state(m), MODULE_READY);
		assert_symbol(ms, m, FUNCTION_OFFSET, "deleted");
		/* Another device number, as btrfs has it: the link's text decides. */
		f.major++;
		other = get(ms, f);
		assert_int_equal(module_state(other), MODULE_READY);
		module_put(m);
		module_put(other);
		/* Another path as well: the pid may be another program's by now. */
		f.path = "/elsewhere/a";
		m = get(ms, f);
		assert_int_equal(module_state(m), MODULE_CHANGED);
		module_put(m);
	}
	munmap(map, 8192);
	modules_free(ms);
	dir_remove(&d);
	if (!can)
		skip();
}

static void row26_other_file_at_the_path_does_not_hide_the_mapped_one(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	struct mapped_file f;
	struct module *m;
	void *map;

	write_image(path, "mapped", 0);
	f = map_self(path, &map);
	write_image(in_dir(&d, "b"), "impostor", 0);
	assert_int_equal(rename(in_dir(&d, "b"), path), 0);
	m = get(ms, f);
	if (map_files_work(&f))
		assert_symbol(ms, m, FUNCTION_OFFSET, "mapped");
	else
		assert_int_equal(module_state(m), MODULE_CHANGED);
	module_put(m);
	munmap(map, 8192);
	modules_free(ms);
	dir_remove(&d);
}

static void evicted_table_is_read_again(void **state __unused)
{
	struct dir d = dir_make();
	struct module *m[3];
	struct modules *ms = book(BUDGET);
	size_t one;
	char name[2] = "a";
	u32 i, round;

	write_image(in_dir(&d, "a"), "a", 0);
	module_put(get(ms, mapped(in_dir(&d, "a"))));
	one = modules_symbol_bytes(ms);
	assert_true(one > 0);
	modules_free(ms);
	/* Room for two of three. */
	ms = book(2 * one);
	for (i = 0; i < 3; i++) {
		name[0] = (char)('a' + i);
		write_image(in_dir(&d, name), name, 0);
		m[i] = get(ms, mapped(in_dir(&d, name)));
	}
	for (round = 0; round < 2; round++)
		for (i = 0; i < 3; i++) {
			name[0] = (char)('a' + i);
			assert_symbol(ms, m[i], FUNCTION_OFFSET, name);
			assert_true(modules_symbol_bytes(ms) <= 2 * one);
		}
	assert_int_equal(modules_symbol_bytes(ms), 2 * one);
	/* a is out. Its file changes: better no name than a wrong one. */
	write_image(in_dir(&d, "a"), "x", 0);
	assert_symbol(ms, m[0], FUNCTION_OFFSET, NULL);
	assert_int_equal(module_state(m[0]), MODULE_READY);
	/* b is out next, and its file is gone. */
	unlink(in_dir(&d, "b"));
	assert_symbol(ms, m[2], FUNCTION_OFFSET, "c");
	for (i = 0; i < 3; i++)
		module_put(m[i]);
	modules_free(ms);
	dir_remove(&d);
}

static void table_over_the_budget_is_left_out(void **state __unused)
{
	struct modules *ms = book(16);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "a");
	u64 counted = stat_get(STAT_module_refused);
	struct module *m;

	write_image(path, "f", 0);
	m = get(ms, mapped(path));
	assert_int_equal(module_state(m), MODULE_READY);
	assert_symbol(ms, m, FUNCTION_OFFSET, NULL);
	assert_int_equal(modules_symbol_bytes(ms), 0);
	assert_int_equal(stat_get(STAT_module_refused), counted + 1);
	module_put(m);
	modules_free(ms);
	dir_remove(&d);
}

static size_t own_vdso_size(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long long lo, hi;
	char line[4400];
	size_t size = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "[vdso]") && sscanf(line, "%llx-%llx", &lo, &hi) == 2)
			size = hi - lo;
	if (f)
		fclose(f);
	return size;
}

static void vdso_has_its_functions(void **state __unused)
{
	const u8 *vdso = (const u8 *)getauxval(AT_SYSINFO_EHDR);
	struct modules *ms = book(BUDGET);
	struct module *m, *compat;
	struct dir d = dir_make();
	struct known *all;
	u32 n = 0, i;

	if (!vdso || !have("readelf")) {
		modules_free(ms);
		dir_remove(&d);
		skip();
	}
	/* readelf needs a file. */
	write_file(in_dir(&d, "vdso"), vdso, own_vdso_size());
	all = read_functions(in_dir(&d, "vdso"), &n);
	assert_true(n > 0);
	m = get(ms, (struct mapped_file){ .path = MODULE_VDSO,
					  .pid = 1,
					  .lo = 1ull << 46,
					  .hi = (1ull << 46) + 8192 });
	assert_int_equal(module_state(m), MODULE_READY);
	for (i = 0; i < n; i++) {
		const char *name = NULL;

		assert_int_equal(module_symbol(ms, m, all[i].addr, &name), 0);
		assert_true(right_name(all, n, all[i].addr, name));
	}
	print_message("vdso: %u functions\n", n);
	compat = get(ms, (struct mapped_file){
				 .path = MODULE_VDSO, .lo = 0xf7fc0000, .hi = 0xf7fc2000 });
	assert_int_equal(module_state(compat), MODULE_REFUSED);
	module_put(m);
	module_put(compat);
	free(all);
	modules_free(ms);
	dir_remove(&d);
}

static void another_process_gives_an_unreadable_file_another_chance(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	const char *path = in_dir(&d, "late");
	struct mapped_file f = with_id((struct mapped_file){ .path = path, .pid = 1u << 30 }, 6);
	struct module *m = get(ms, f), *again;

	assert_int_equal(module_state(m), MODULE_UNREADABLE);
	write_image(path, "late", 6);
	usleep(1050000);
	/* The same process again is no news. */
	again = get(ms, f);
	assert_int_equal(module_state(again), MODULE_UNREADABLE);
	module_put(again);
	f.pid++;
	again = get(ms, f);
	assert_ptr_equal(m, again);
	assert_int_equal(module_state(m), MODULE_READY);
	assert_symbol(ms, m, FUNCTION_OFFSET, "late");
	module_put(m);
	module_put(again);
	modules_free(ms);
	dir_remove(&d);
}

static void row17_number_of_modules_is_bounded(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	struct module *held = get(ms, with_id((struct mapped_file){ .path = "held" }, 1));
	u32 i;

	for (i = 0; i < MODULES_MAX + 1000; i++) {
		struct mapped_file f =
			with_id((struct mapped_file){ .path = "x", .ino = i + 1 }, 1);
		struct module *m = modules_get(ms, &f);

		/* A full queue has no idle module to give room for; the worker catches up. */
		if (!m) {
			settle(ms);
			m = modules_get(ms, &f);
		}
		assert_non_null(m);
		module_put(m);
	}
	settle(ms);
	assert_int_equal(modules_count(ms), MODULES_MAX);
	assert_ptr_equal(get(ms, with_id((struct mapped_file){ .path = "held" }, 1)), held);
	module_put(held);
	modules_trim(ms, 3600 * NSEC_PER_SEC);
	assert_int_equal(modules_count(ms), MODULES_MAX);
	modules_trim(ms, 0);
	/* One reference is left. */
	assert_int_equal(modules_count(ms), 1);
	assert_string_equal(module_path(held), "held");
	module_put(held);
	modules_trim(ms, 0);
	assert_int_equal(modules_count(ms), 0);
	modules_free(ms);
}

static void free_with_work_left_leaks_nothing(void **state __unused)
{
	struct modules *ms = book(BUDGET);
	u32 i;

	for (i = 0; i < 1000; i++) {
		struct mapped_file f = { .path = "/proc/self/exe", .ino = i };

		module_put(modules_get(ms, &f));
	}
	modules_free(ms);
	modules_free(NULL);
	module_put(NULL);
}

/* --- odd program headers --------------------------------------------------------------------- */

static const char source_text[] = "int marker_function(int a) { return a + 1; }\n"
				  "int main(void) { return marker_function(2) - 3; }\n";

/* File offset of an address by section headers, which the book does not use for it. */
static u64 offset_by_sections(const char *path, u64 addr)
{
	FILE *f = run_command("LC_ALL=C readelf -SW '%s'", path);
	unsigned long long at, off, size;
	char line[512];
	u64 found = 0;

	while (fgets(line, sizeof(line), f)) {
		const char *close = strchr(line, ']');

		if (close &&
		    sscanf(close + 1, " %*s PROGBITS %llx %llx %llx", &at, &off, &size) == 3 &&
		    addr - at < size)
			found = addr - at + off;
	}
	pclose(f);
	return found;
}

static void addresses_follow_the_program_headers(void **state __unused)
{
	static const char *const flags[] = {
		"-pie",
		"-no-pie -static",
		"-no-pie -static -Wl,-Ttext-segment=0x10000000",
		"-no-pie -static -Wl,-Ttext=0x7654000",
		"-pie -Wl,-z,noseparate-code",
		"-pie -Wl,-z,separate-code",
		"-pie -Wl,-z,max-page-size=0x200000",
		"-shared",
	};
	struct modules *ms = book(BUDGET);
	struct dir d = dir_make();
	u32 i, j, built = 0;

	write_file(in_dir(&d, "x.c"), source_text, sizeof(source_text) - 1);
	pclose(run_command("cd '%s' && gcc -O1 -fno-inline -fPIC -c x.c 2>/dev/null", d.path));
	for (i = 0; i < ARRAY_SIZE(flags) && have("gcc") && have("readelf"); i++) {
		const char *out = in_dir(&d, "x");
		char line[512];
		struct known *all;
		struct module *m;
		u32 n = 0;

		snprintf(line, sizeof(line),
			 "gcc %s -nostdlib -Wl,-e,main -o %s.%u %s.o 2>/dev/null", flags[i], out, i,
			 out);
		if (system(line))
			continue;
		snprintf(line, sizeof(line), "%s.%u", out, i);
		m = get(ms, mapped(line));
		assert_int_equal(module_state(m), MODULE_READY);
		all = read_functions(line, &n);
		for (j = 0; j < n; j++) {
			u64 off;

			if (strcmp(all[j].name, "marker_function"))
				continue;
			off = offset_by_sections(line, all[j].addr);
			assert_symbol(ms, m, off, "marker_function");
			assert_symbol(ms, m, off + all[j].size - 1, "marker_function");
			built++;
			break;
		}
		free(all);
		module_put(m);
	}
	print_message("%u link layouts\n", built);
	modules_free(ms);
	dir_remove(&d);
	if (!built)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sized_symbol_never_reaches_past_its_size),
		cmocka_unit_test(sizeless_symbol_reaches_to_the_next_of_its_section),
		cmocka_unit_test(label_inside_a_sized_function_is_not_its_name),
		cmocka_unit_test(alias_global_before_weak_before_local),
		cmocka_unit_test(nested_symbol_names_its_own_range_only),
		cmocka_unit_test(no_ifunc_mapping_or_foreign_symbols),
		cmocka_unit_test(dynsym_is_merged_and_symtab_preferred),
		cmocka_unit_test(version_suffix_is_cut_and_names_are_utf8),
		cmocka_unit_test(table_over_its_budget_is_E2BIG),
		cmocka_unit_test(row1_truncated_headers_are_refused),
		cmocka_unit_test(row1_truncated_sections_cost_only_the_symbols),
		cmocka_unit_test(row2_counts_and_offsets_are_checked_in_64_bits),
		cmocka_unit_test(row13_no_section_headers_is_a_sound_file),
		cmocka_unit_test(other_classes_and_machines_are_refused),
		cmocka_unit_test(row14_first_valid_build_id_counts),
		cmocka_unit_test(build_id_of_a_note_section_without_segment),
		cmocka_unit_test(notes_aligned_to_8_bytes),
		cmocka_unit_test(mutated_files_never_crash),
		cmocka_unit_test(many_aliases_of_long_names_take_bounded_time),
		cmocka_unit_test(real_files_agree_with_readelf),
		cmocka_unit_test(file_is_found_by_device_and_inode),
		cmocka_unit_test(replaced_file_is_changed),
		cmocka_unit_test(unproven_file_is_not_believed),
		cmocka_unit_test(build_id_decides_when_the_mapping_gave_one),
		cmocka_unit_test(unsound_file_is_refused),
		cmocka_unit_test(missing_file_is_unreadable),
		cmocka_unit_test(row20_fifo_directory_or_device_does_not_block),
		cmocka_unit_test(row3_sparse_file_of_64_GiB_with_a_huge_section),
		cmocka_unit_test(row18_same_build_id_of_another_inode_is_another_module),
		cmocka_unit_test(row28_deleted_file_is_read_through_map_files),
		cmocka_unit_test(row26_other_file_at_the_path_does_not_hide_the_mapped_one),
		cmocka_unit_test(evicted_table_is_read_again),
		cmocka_unit_test(table_over_the_budget_is_left_out),
		cmocka_unit_test(vdso_has_its_functions),
		cmocka_unit_test(another_process_gives_an_unreadable_file_another_chance),
		cmocka_unit_test(row17_number_of_modules_is_bounded),
		cmocka_unit_test(free_with_work_left_leaks_nothing),
		cmocka_unit_test(addresses_follow_the_program_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
