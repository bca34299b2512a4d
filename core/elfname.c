// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See elfname.h. A symbol is looked for in the string table first: linkers store a
 * text once, and a name that ends another one shares its bytes. Mostly the text is not there, and
 * the larger table is never read.
 */
#include "elfname.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define SECTIONS_MAX 4096u /* relocatable files have more, what is mapped has not */
#define NAMES_MAX    (256u << 10)
#define PIECE        (256u << 10)
#define PLACES_MAX   16u /* of one text in the string table */
#define NAME_MAX_LEN 256u

struct section {
	u64 addr, size;
	u32 name; /* offset in names */
};

struct elfname {
	char *names; /* ends with a NUL */
	u32 n;
	u64 symbols_at, symbols_size, strings_at, strings_size; /* size 0: none */
	struct section section[];
};

static int read_at(const struct elfsym_source *src, u64 off, void *buf, size_t len)
{
	size_t done = 0;

	if (off > src->size || len > src->size - off)
		return -ENOEXEC;
	if (src->fd < 0) {
		if (len)
			memcpy(buf, (const char *)src->mem + off, len);
		return 0;
	}
	/* Each turn reads something or is the last. */
	while (done < len) {
		ssize_t n = pread(src->fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -EIO : -ENOEXEC; /* the file shrank */
		done += (size_t)n;
	}
	return 0;
}

/* --- sections -------------------------------------------------------------------------------- */

static int read_header(const struct elfsym_source *src, Elf64_Ehdr *ret)
{
	int err = read_at(src, 0, ret, sizeof(*ret));

	if (err)
		return err;
	if (memcmp(ret->e_ident, ELFMAG, SELFMAG) || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
	    ret->e_ident[EI_DATA] != ELFDATA2LSB ||
	    (ret->e_type != ET_EXEC && ret->e_type != ET_DYN) || !ret->e_shoff || !ret->e_shnum ||
	    ret->e_shentsize != sizeof(Elf64_Shdr) || ret->e_shstrndx >= ret->e_shnum)
		return -ENOEXEC;
	return ret->e_shnum > SECTIONS_MAX ? -E2BIG : 0;
}

static bool in_file(const struct elfsym_source *src, const Elf64_Shdr *s)
{
	return s->sh_offset <= src->size && s->sh_size <= src->size - s->sh_offset;
}

/* Where .symtab and its strings lie, if they are sound and not too large. */
static void place_symbols(const struct elfsym_source *src, const Elf64_Shdr *sections, u32 n,
			  struct elfname *e)
{
	u32 i;

	for (i = 0; i < n; i++) {
		const Elf64_Shdr *s = &sections[i], *str;

		if (s->sh_type != SHT_SYMTAB || s->sh_entsize != sizeof(Elf64_Sym) ||
		    s->sh_link >= n)
			continue;
		str = &sections[s->sh_link];
		if (str->sh_type != SHT_STRTAB || !in_file(src, s) || !in_file(src, str) ||
		    s->sh_size > ELFNAME_TABLE_MAX || str->sh_size > ELFNAME_TABLE_MAX)
			continue;
		e->symbols_at = s->sh_offset;
		e->symbols_size = s->sh_size / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
		e->strings_at = str->sh_offset;
		e->strings_size = str->sh_size;
		return;
	}
}

static int read_names(const struct elfsym_source *src, const Elf64_Shdr *s, struct elfname *e)
{
	if (!in_file(src, s))
		return -ENOEXEC;
	if (s->sh_size > NAMES_MAX)
		return -E2BIG;
	e->names = calloc(1, s->sh_size + 1);
	return e->names ? read_at(src, s->sh_offset, e->names, s->sh_size) : -ENOMEM;
}

static int fill(const struct elfsym_source *src, const Elf64_Ehdr *eh, const Elf64_Shdr *sections,
		struct elfname *e)
{
	const Elf64_Shdr *names = &sections[eh->e_shstrndx];
	int err = read_names(src, names, e);
	u32 i;

	for (i = 0; !err && i < eh->e_shnum; i++) {
		const Elf64_Shdr *s = &sections[i];

		if (s->sh_flags & SHF_ALLOC && s->sh_name < names->sh_size)
			e->section[e->n++] = (struct section){ s->sh_addr, s->sh_size, s->sh_name };
	}
	if (!err)
		place_symbols(src, sections, eh->e_shnum, e);
	return err;
}

int elfname_open(const struct elfsym_source *src, struct elfname **ret)
{
	_cleanup_free_ Elf64_Shdr *sections = NULL;
	struct elfname *e;
	Elf64_Ehdr eh;
	int err;

	err = read_header(src, &eh);
	if (err)
		return err;
	sections = calloc(eh.e_shnum, sizeof(sections[0]));
	if (!sections)
		return -ENOMEM;
	err = read_at(src, eh.e_shoff, sections, eh.e_shnum * sizeof(sections[0]));
	if (err)
		return err;
	e = calloc(1, sizeof(*e) + eh.e_shnum * sizeof(e->section[0]));
	if (!e)
		return -ENOMEM;
	err = fill(src, &eh, sections, e);
	if (err) {
		elfname_free(e);
		return err;
	}
	*ret = e;
	return 0;
}

void elfname_free(struct elfname *e)
{
	if (e)
		free(e->names);
	free(e);
}

bool elfname_section(const struct elfname *e, const char *name, u64 *addr, u64 *size)
{
	u32 i;

	for (i = 0; i < e->n; i++)
		if (!strcmp(e->names + e->section[i].name, name)) {
			*addr = e->section[i].addr;
			*size = e->section[i].size;
			return true;
		}
	return false;
}

/* --- symbols --------------------------------------------------------------------------------- */

u64 elfname_symbol_cost(const struct elfname *e)
{
	return e->strings_size ? e->strings_size + e->symbols_size : 0;
}

struct search {
	const struct elfname *e;
	const struct elfsym_source *src;
	const char *name;
	size_t len; /* with the NUL */
	u32 place[PLACES_MAX], nplaces;
	u8 *piece;
	struct elfname_symbol *ret;
};

/* Where in the string table the name stands; each piece begins with the end of the one before. */
static int find_places(struct search *s)
{
	u64 pos, size = s->e->strings_size;

	for (pos = 0; pos + s->len <= size; pos += PIECE - s->len + 1) {
		size_t n = (size_t)MIN(PIECE, size - pos);
		const u8 *p = s->piece, *end = p + n;
		int err = read_at(s->src, s->e->strings_at + pos, s->piece, n);

		if (err)
			return err;
		while ((p = memmem(p, (size_t)(end - p), s->name, s->len))) {
			if (s->nplaces == PLACES_MAX)
				return 0;
			s->place[s->nplaces++] = (u32)(pos + (u64)(p - s->piece));
			p++;
		}
	}
	return 0;
}

static bool is_place(const struct search *s, u32 name)
{
	u32 i;

	for (i = 0; i < s->nplaces; i++)
		if (s->place[i] == name)
			return true;
	return false;
}

/* True: no better one can come. */
static bool take(struct search *s, const Elf64_Sym *sym, bool *found)
{
	u32 type = ELF64_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF || type == STT_FILE || type == STT_SECTION ||
	    !is_place(s, sym->st_name))
		return false;
	if (!*found || ELF64_ST_BIND(sym->st_info) != STB_LOCAL)
		*s->ret = (struct elfname_symbol){
			.value = sym->st_value,
			.size = sym->st_size,
			.tls = type == STT_TLS,
			.absolute = sym->st_shndx == SHN_ABS,
		};
	*found = true;
	return ELF64_ST_BIND(sym->st_info) != STB_LOCAL;
}

static int find_symbol(struct search *s)
{
	const u64 step = PIECE / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
	bool found = false;
	u64 pos;

	for (pos = 0; pos < s->e->symbols_size; pos += step) {
		size_t n = (size_t)MIN(step, s->e->symbols_size - pos), i;
		int err = read_at(s->src, s->e->symbols_at + pos, s->piece, n);

		if (err)
			return err;
		for (i = 0; i < n; i += sizeof(Elf64_Sym)) {
			Elf64_Sym sym;

			memcpy(&sym, s->piece + i, sizeof(sym));
			if (take(s, &sym, &found))
				return 0;
		}
	}
	return found ? 0 : -ENOENT;
}

int elfname_symbol(const struct elfname *e, const struct elfsym_source *src, const char *name,
		   struct elfname_symbol *ret)
{
	_cleanup_free_ u8 *piece = NULL;
	struct elfname_symbol symbol;
	struct search s = {
		.e = e, .src = src, .name = name, .len = strlen(name) + 1, .ret = &symbol
	};
	int err;

	if (!e->strings_size || s.len < 2 || s.len > NAME_MAX_LEN)
		return -ENOENT;
	piece = malloc(PIECE);
	if (!piece)
		return -ENOMEM;
	s.piece = piece;
	err = find_places(&s);
	if (!err)
		err = s.nplaces ? find_symbol(&s) : -ENOENT;
	if (!err)
		*ret = symbol;
	return err;
}
