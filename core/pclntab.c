// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See pclntab.h. A table that begins with its header: where functions are listed,
 * sorted, with the place of each one's record, which has the place of its name.
 */
#include "pclntab.h"

#include <errno.h>
#include <string.h>

#define MAGIC_2  0xfffffffbu
#define MAGIC_16 0xfffffffau
#define MAGIC_18 0xfffffff0u
#define MAGIC_20 0xfffffff1u

#define FUNCTIONS_MAX (2u << 20)
#define FUNCTION_MAX  (16u << 20) /* bytes of code; larger is no function */
#define NAME_MAX_LEN  4096u
#define SPWRITE       2u

/* What the layouts differ in. */
struct pclntab {
	const u8 *table;
	size_t len;
	u64 n;       /* functions */
	u64 list;    /* where they are listed: pairs {address, record}, then the end's address */
	u64 records; /* what the record's place counts from */
	u64 names;   /* what a name's place counts from */
	u64 base;    /* what addresses count from */
	u32 width;   /* of each number in the list: 4 or 8 */
	u32 flags;   /* where in a record; 0: it has none */
};

static u32 get32(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static u64 get64(const u8 *p)
{
	u64 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Whether [off, off + n * size) lies in the table. */
static bool in_table(const struct pclntab *t, u64 off, u64 n, u64 size)
{
	return off <= t->len && n <= (t->len - off) / size;
}

/* The i-th number of the list. */
static u64 number(const struct pclntab *t, u64 i)
{
	const u8 *p = t->table + t->list + i * t->width;

	return t->width == 4 ? get32(p) : get64(p);
}

static u64 address(const struct pclntab *t, u64 i)
{
	return t->base + number(t, 2 * i);
}

/* Name of the i-th function; NULL: damaged. */
static const char *name_of(const struct pclntab *t, u64 i)
{
	u64 record = number(t, 2 * i + 1), at;

	if (record > t->len || !in_table(t, t->records + record, 1, t->width + 4))
		return NULL;
	/* A record begins with the function's address, then its name's place. */
	at = t->names + get32(t->table + t->records + record + t->width);
	if (at >= t->len || !memchr(t->table + at, '\0', MIN(t->len - at, NAME_MAX_LEN)))
		return NULL;
	return (const char *)t->table + at;
}

static int read_header(struct pclntab *t, u64 *ret_text)
{
	/* Where the header has its numbers, all 8 bytes wide. */
	static const struct {
		u32 magic, width, text, names, records, flags;
	} layouts[] = {
		{ MAGIC_16, 8, 0, 24, 56, 41 }, /* padding, so 0, in Go 1.16 */
		{ MAGIC_18, 4, 24, 32, 64, 37 },
		{ MAGIC_20, 4, 24, 32, 64, 41 },
	};
	u32 magic, i;

	if (t->len < 16)
		return -ENOEXEC;
	magic = get32(t->table);
	/* Two zeroes, bytes per instruction step, bytes per pointer. */
	if (t->table[4] || t->table[5] || t->table[7] != 8 ||
	    (t->table[6] != 1 && t->table[6] != 4))
		return -ENOEXEC;
	t->n = get64(t->table + 8);
	*ret_text = UINT64_MAX;
	if (magic == MAGIC_2) {
		t->width = 8;
		t->list = 16;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(layouts) && layouts[i].magic != magic; i++)
		;
	if (i == ARRAY_SIZE(layouts) || t->len < 72)
		return -ENOEXEC;
	t->width = layouts[i].width;
	t->flags = layouts[i].flags;
	t->names = get64(t->table + layouts[i].names);
	t->records = t->list = get64(t->table + layouts[i].records);
	if (layouts[i].text)
		*ret_text = get64(t->table + layouts[i].text);
	return 0;
}

/*
 * Newer programs leave out where their code begins. Then .text must be it, which the program's own
 * entry proves: it is a function that Go's runtime has for that.
 */
static bool base_from_text(struct pclntab *t, const struct pclntab_text *text)
{
	u64 lo = 0, hi = t->n;
	const char *name;

	t->base = text->start;
	if (!text->start || text->entry < text->start)
		return false;
	/* Halves each turn. */
	while (lo < hi) {
		u64 mid = lo + (hi - lo) / 2;

		if (address(t, mid) <= text->entry)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || address(t, lo - 1) != text->entry)
		return false;
	name = name_of(t, lo - 1);
	return name && !strncmp(name, "_rt0_", 5);
}

int pclntab_read(const struct elfsym_source *src, const struct elfsym_sections *s, size_t max,
		 u8 **ret, size_t *ret_len, struct pclntab_text *ret_text)
{
	const Elf64_Shdr *sh = elfsym_section(s, ".gopclntab"), *text = elfsym_section(s, ".text");

	if (!sh)
		sh = elfsym_section(s, ".data.rel.ro.gopclntab");
	if (!sh || sh->sh_size > max || sh->sh_flags & SHF_COMPRESSED)
		return -ENOENT;
	*ret_text = (struct pclntab_text){ text ? text->sh_addr : 0, s->entry };
	*ret_len = (size_t)sh->sh_size;
	return elfsym_read_array(src, sh->sh_offset, sh->sh_size, 1, (void **)ret);
}

static int open_table(struct pclntab *t, const struct pclntab_text *text)
{
	u64 base;
	int err = read_header(t, &base);

	if (err)
		return err;
	if (!t->n || t->n > FUNCTIONS_MAX || !in_table(t, t->list, 2 * t->n + 1, t->width))
		return -ENOEXEC;
	if (base && base != UINT64_MAX)
		t->base = base;
	else if (!base && !base_from_text(t, text))
		return -ENOEXEC;
	return 0;
}

int pclntab_switchers(const u8 *table, size_t len, const struct pclntab_text *text, u64 **ret,
		      u32 *ret_n)
{
	struct pclntab t = { .table = table, .len = len };
	_cleanup_free_ u64 *starts = NULL;
	u32 n = 0, cap = 0;
	u64 i;
	int err = open_table(&t, text);

	*ret = NULL;
	*ret_n = 0;
	for (i = 0; !err && t.flags && i < t.n; i++) {
		u64 record = number(&t, 2 * i + 1);

		if (record > t.len || !in_table(&t, t.records + record, 1, t.flags + 1))
			return -ENOEXEC;
		if (!(table[t.records + record + t.flags] & SPWRITE))
			continue;
		if (n && address(&t, i) <= starts[n - 1])
			return -ENOEXEC;
		err = VEC_RESERVE(starts, cap, n + 1, PCLNTAB_SWITCHERS_MAX);
		if (!err)
			starts[n++] = address(&t, i);
	}
	if (err)
		return err == -E2BIG ? -ENOEXEC : err;
	*ret_n = n;
	*ret = n ? take_ptr(starts) : NULL;
	return 0;
}

int pclntab_names(const u8 *table, size_t len, const struct pclntab_text *text,
		  struct elfsym_names *ret)
{
	struct pclntab t = { .table = table, .len = len };
	u64 i, bad = 0;
	int err = open_table(&t, text);

	if (err)
		return err;
	for (i = 0; !err && i < t.n; i++) {
		u64 lo = address(&t, i), hi = address(&t, i + 1);
		const char *name = lo < hi && hi - lo <= FUNCTION_MAX ? name_of(&t, i) : NULL;

		/* Empty functions are no damage. */
		if (name && *name)
			err = elfsym_names_add(ret, lo, (u32)(hi - lo), name, "");
		else if (lo != hi && ++bad > t.n / 2)
			err = -ENOEXEC;
	}
	return err;
}
