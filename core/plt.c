// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See plt.h. Encodings: Intel SDM (jmp [rip+disp32], push imm32, endbr64), Arm ARM
 * (adrp, ldr, bti); what linkers emit: binutils bfd/elfxx-x86.c, elfnn-aarch64.c.
 */
#include "plt.h"

#include <errno.h>
#include <string.h>

/* A slot that the dynamic linker fills with a function's address. */
struct slot {
	u64 addr;
	u32 symbol;
};

struct slots {
	struct slot *v;
	u32 n, cap;
	u32 jump_first, jump_n; /* those of .rela.plt, in its order: lazy entries say their index */
};

struct plt {
	const struct elfsym_source *src;
	const struct elfsym_sections *s;
	struct slots in_order, sorted;
	Elf64_Sym *symbols;
	u32 nsymbols;
	char *strings; /* ends with a NUL */
	size_t strings_len;
	struct elfsym_names *out;
};

static void plt_fini(struct plt *p)
{
	free(p->in_order.v);
	free(p->sorted.v);
	free(p->symbols);
	free(p->strings);
}

static int by_addr(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool is_slot(u16 machine, u32 type, bool *ret_jump)
{
	*ret_jump = machine == EM_X86_64 ? type == R_X86_64_JUMP_SLOT : type == R_AARCH64_JUMP_SLOT;
	return *ret_jump ||
	       (machine == EM_X86_64 ? type == R_X86_64_GLOB_DAT : type == R_AARCH64_GLOB_DAT);
}

static bool is_small(const Elf64_Shdr *sh)
{
	return sh->sh_size && sh->sh_size <= PLT_BYTES_MAX;
}

/* The slots of one table of relocations. */
static int add_relocations(struct plt *p, const Elf64_Shdr *sh)
{
	u64 n = sh->sh_size / sizeof(Elf64_Rela), i;
	struct slots *o = &p->in_order;
	_cleanup_free_ Elf64_Rela *rela = NULL;
	bool jump;
	int err;

	err = elfsym_read_array(p->src, sh->sh_offset, n, sizeof(*rela), (void **)&rela);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		if (!is_slot(p->s->machine, (u32)ELF64_R_TYPE(rela[i].r_info), &jump))
			continue;
		err = VEC_RESERVE(o->v, o->cap, o->n + 1, PLT_BYTES_MAX / sizeof(*rela));
		if (err)
			return err == -E2BIG ? 0 : err;
		if (jump && !o->jump_n)
			o->jump_first = o->n;
		o->jump_n += jump;
		o->v[o->n++] = (struct slot){ rela[i].r_offset, (u32)ELF64_R_SYM(rela[i].r_info) };
	}
	return 0;
}

static int read_slots(struct plt *p, u32 dynsym)
{
	u32 i;
	int err;

	for (i = 0; i < p->s->n; i++) {
		const Elf64_Shdr *sh = &p->s->v[i];

		if (sh->sh_type != SHT_RELA || sh->sh_link != dynsym || !is_small(sh))
			continue;
		err = add_relocations(p, sh);
		if (err && err != -ENOEXEC)
			return err;
	}
	if (!p->in_order.n)
		return 0;
	p->sorted.v = malloc(p->in_order.n * sizeof(*p->sorted.v));
	if (!p->sorted.v)
		return -ENOMEM;
	p->sorted.n = p->in_order.n;
	memcpy(p->sorted.v, p->in_order.v, p->in_order.n * sizeof(*p->sorted.v));
	qsort(p->sorted.v, p->sorted.n, sizeof(*p->sorted.v), by_addr);
	return 0;
}

static int read_symbols(struct plt *p, const Elf64_Shdr *sym)
{
	const Elf64_Shdr *str;
	int err;

	if (sym->sh_link >= p->s->n || !is_small(sym) || !is_small(&p->s->v[sym->sh_link]))
		return -ENOEXEC;
	str = &p->s->v[sym->sh_link];
	p->nsymbols = (u32)(sym->sh_size / sizeof(Elf64_Sym));
	err = elfsym_read_array(p->src, sym->sh_offset, p->nsymbols, sizeof(Elf64_Sym),
				(void **)&p->symbols);
	if (!err)
		err = elfsym_read_array(p->src, str->sh_offset, str->sh_size, 1,
					(void **)&p->strings);
	if (err)
		return err;
	p->strings_len = (size_t)str->sh_size;
	p->strings[p->strings_len - 1] = '\0';
	return 0;
}

static int add_entry(struct plt *p, u64 addr, u32 size, u32 symbol)
{
	const Elf64_Sym *s = symbol < p->nsymbols ? &p->symbols[symbol] : NULL;

	if (!s || s->st_name >= p->strings_len || !p->strings[s->st_name])
		return 0;
	return elfsym_names_add(p->out, addr, size, p->strings + s->st_name, "@plt");
}

static int add_by_slot(struct plt *p, u64 addr, u32 size, u64 slot)
{
	const struct slot key = { .addr = slot }, *s;

	s = bsearch(&key, p->sorted.v, p->sorted.n, sizeof(key), by_addr);
	return s ? add_entry(p, addr, size, s->symbol) : 0;
}

/* One entry of x86-64, `size` bytes. */
static int x86_entry(struct plt *p, const u8 *code, u64 addr, u32 size)
{
	static const u8 endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	s32 v;
	u32 k = 0;

	if (!memcmp(code, endbr64, sizeof(endbr64)))
		k = sizeof(endbr64);
	if (size > k && code[k] == 0xf2) /* bnd */
		k++;
	if (size >= k + 6 && code[k] == 0xff && code[k + 1] == 0x25) {
		memcpy(&v, code + k + 2, sizeof(v));
		return add_by_slot(p, addr, size, addr + k + 6 + (u64)(s64)v);
	}
	if (size >= k + 5 && code[k] == 0x68) {
		memcpy(&v, code + k + 1, sizeof(v));
		if ((u32)v < p->in_order.jump_n && p->in_order.jump_first + (u32)v < p->in_order.n)
			return add_entry(p, addr, size,
					 p->in_order.v[p->in_order.jump_first + (u32)v].symbol);
	}
	return 0;
}

static int x86_table(struct plt *p, const Elf64_Shdr *sh, const u8 *code)
{
	u32 size = sh->sh_entsize == 8 ? 8 : 16;
	u64 at;
	int err = 0;

	for (at = 0; !err && at + size <= sh->sh_size; at += size)
		err = x86_entry(p, code + at, sh->sh_addr + at, size);
	return err;
}

/* Where an entry of arm64 reads its slot: adrp x16, page; ldr x17, [x16, #offset]. */
static bool arm64_slot(const u8 *code, u64 addr, u64 *ret)
{
	u32 adrp, ldr;
	s64 pages;

	memcpy(&adrp, code, sizeof(adrp));
	memcpy(&ldr, code + 4, sizeof(ldr));
	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return false;
	pages = (s64)((u64)((adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3)) << 43) >> 43;
	*ret = (addr & ~4095ull) + (u64)pages * 4096 + (u64)(ldr >> 10 & 0xfff) * 8;
	return true;
}

static int arm64_table(struct plt *p, const Elf64_Shdr *sh, const u8 *code)
{
	static const u8 bti_c[] = { 0x5f, 0x24, 0x03, 0xd5 };
	u64 at, slot;
	int err = 0;

	/* adrp, ldr, add, br; with a landing pad before it. */
	for (at = 0; !err && at + 16 <= sh->sh_size; at += 4) {
		u32 pad = at >= 4 && !memcmp(code + at - 4, bti_c, sizeof(bti_c)) ? 4 : 0;

		if (arm64_slot(code + at, sh->sh_addr + at, &slot))
			err = add_by_slot(p, sh->sh_addr + at - pad, 16 + pad, slot);
	}
	return err;
}

static int add_table(struct plt *p, const Elf64_Shdr *sh)
{
	_cleanup_free_ u8 *code = NULL;
	int err;

	if (sh->sh_type != SHT_PROGBITS || !is_small(sh) ||
	    sh->sh_addr > UINT64_MAX - PLT_BYTES_MAX)
		return 0;
	err = elfsym_read_array(p->src, sh->sh_offset, sh->sh_size, 1, (void **)&code);
	if (err)
		return err == -ENOEXEC ? 0 : err;
	return p->s->machine == EM_X86_64 ? x86_table(p, sh, code) : arm64_table(p, sh, code);
}

int plt_names(const struct elfsym_source *src, const struct elfsym_sections *s,
	      struct elfsym_names *ret)
{
	static const char *const names[] = { ".plt", ".plt.sec", ".plt.got", ".plt.bnd" };
	_cleanup_(plt_fini) struct plt p = { .src = src, .s = s, .out = ret };
	u32 dynsym, i;
	int err;

	for (dynsym = 0; dynsym < s->n && s->v[dynsym].sh_type != SHT_DYNSYM; dynsym++)
		;
	if (dynsym == s->n)
		return 0;
	err = read_slots(&p, dynsym);
	if (!err && !p.in_order.n)
		return 0;
	if (!err)
		err = read_symbols(&p, &s->v[dynsym]);
	for (i = 0; !err && i < ARRAY_SIZE(names); i++) {
		const Elf64_Shdr *sh = elfsym_section(s, names[i]);

		if (sh)
			err = add_table(&p, sh);
	}
	return err == -ENOEXEC ? 0 : err;
}
