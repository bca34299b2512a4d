// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See elfsym.h.
 *
 * Who parses what: headers and notes by hand, in checked 64-bit arithmetic. Symbols through
 * libelf, but never from the file itself: libelf trusts the section count it reads for its
 * allocations, and the file may change between our check and its read. So the four sections that
 * matter are copied into a small ELF image of our own making, and libelf sees only that.
 */
#include "elfsym.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>

#define PHDRS_MAX    256
#define SECTIONS_MAX 0xfeff /* below SHN_LORESERVE: no extended numbering */
#define NOTES_MAX    (1u << 20)
#define TABLES_MAX   (128u << 20)
#define TABLES_MIN   (1u << 20) /* see tables_limit() */
#define SYMBOLS_MAX  (4u << 20)
#define NAME_MAX_LEN 4096u /* longer names are cut */

/* Sections of the image. */
enum { IMG_NULL, IMG_SYMTAB, IMG_STRTAB, IMG_DYNSYM, IMG_DYNSTR, IMG_SECTIONS };

struct function {
	u64 addr;
	u32 size;
	u32 name; /* offset in names */
};

/* Sorted, without overlaps. */
struct elfsym_table {
	size_t bytes;
	char *names;
	u32 n;
	struct function functions[];
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
	while (done < len) {
		ssize_t n = pread(src->fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -EIO;
		if (!n)
			return -ENOEXEC; /* the file shrank */
		done += (size_t)n;
	}
	return 0;
}

/* Checked before the allocation, so that a size from the file costs nothing when it is a lie. */
static int read_array(const struct elfsym_source *src, u64 off, u64 n, size_t size, void **ret)
{
	_cleanup_free_ void *p = NULL;
	int err;

	if (n > src->size / size || off > src->size || n * size > src->size - off)
		return -ENOEXEC;
	p = malloc(MAX(n, 1) * size);
	if (!p)
		return -ENOMEM;
	err = read_at(src, off, p, n * size);
	if (err)
		return err;
	*ret = take_ptr(p);
	return 0;
}

static int read_header(const struct elfsym_source *src, Elf64_Ehdr *ret)
{
	int err = read_at(src, 0, ret, sizeof(*ret));

	if (err)
		return err;
	if (memcmp(ret->e_ident, ELFMAG, SELFMAG) || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
	    ret->e_ident[EI_DATA] != ELFDATA2LSB || ret->e_ident[EI_VERSION] != EV_CURRENT ||
	    ret->e_version != EV_CURRENT)
		return -ENOEXEC;
	if (ret->e_type != ET_EXEC && ret->e_type != ET_DYN)
		return -ENOEXEC;
	if (ret->e_machine != EM_X86_64 && ret->e_machine != EM_AARCH64)
		return -ENOEXEC;
	return 0;
}

bool elfsym_is_elf(const struct elfsym_source *src)
{
	char magic[SELFMAG];

	return !read_at(src, 0, magic, sizeof(magic)) && !memcmp(magic, ELFMAG, SELFMAG);
}

/* --- segments and build id ------------------------------------------------------------------- */

static int read_segments(const Elf64_Phdr *phdrs, u32 n, struct elfsym_info *info)
{
	u32 i;

	info->segments = calloc(n, sizeof(info->segments[0]));
	if (!info->segments)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		const Elf64_Phdr *p = &phdrs[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (p->p_filesz > p->p_memsz || p->p_offset + p->p_filesz < p->p_offset ||
		    p->p_vaddr + p->p_memsz < p->p_vaddr)
			return -ENOEXEC;
		info->segments[info->nsegments++] = (struct module_segment){
			.offset = p->p_offset,
			.file_size = p->p_filesz,
			.vaddr = p->p_vaddr,
			.mem_size = p->p_memsz,
			.exec = p->p_flags & PF_X,
		};
	}
	return info->nsegments ? 0 : -ENOEXEC;
}

static size_t align_up(size_t v, size_t align)
{
	return (v + align - 1) & ~(align - 1);
}

/* The first GNU build id in a buffer of notes. Each turn moves on by at least a note's header. */
static bool find_id(const u8 *buf, size_t len, size_t align, struct elfsym_info *info)
{
	size_t pos = 0;

	while (pos < len && len - pos >= sizeof(Elf64_Nhdr)) {
		size_t name = pos + sizeof(Elf64_Nhdr), desc;
		Elf64_Nhdr note;

		memcpy(&note, buf + pos, sizeof(note));
		/* 32-bit sizes and a buffer of at most NOTES_MAX: size_t cannot wrap. */
		desc = align_up(name + note.n_namesz, align);
		if (desc > len || note.n_descsz > len - desc)
			return false;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
		    !memcmp(buf + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) && note.n_descsz > 0 &&
		    note.n_descsz <= ELFSYM_ID_MAX) {
			memcpy(info->id, buf + desc, note.n_descsz);
			info->id_len = note.n_descsz;
			return true;
		}
		pos = align_up(desc + note.n_descsz, align);
	}
	return false;
}

/* budget: bytes of notes that this file may still make us read. */
static int read_notes(const struct elfsym_source *src, u64 off, u64 len, u64 align, u64 *budget,
		      struct elfsym_info *info)
{
	_cleanup_free_ void *buf = NULL;
	int err;

	if (len > *budget)
		return 0;
	*budget -= len;
	err = read_array(src, off, len, 1, &buf);
	if (!err)
		find_id(buf, (size_t)len, align == 8 ? 8 : 4, info);
	return err == -ENOEXEC ? 0 : err; /* a damaged note is no note */
}

static int read_sections(const struct elfsym_source *src, const Elf64_Ehdr *eh, Elf64_Shdr **ret)
{
	if (!eh->e_shoff || !eh->e_shnum || eh->e_shentsize != sizeof(Elf64_Shdr))
		return -ENOENT;
	if (eh->e_shnum > SECTIONS_MAX)
		return -E2BIG;
	return read_array(src, eh->e_shoff, eh->e_shnum, sizeof(Elf64_Shdr), (void **)ret);
}

static int read_section_notes(const struct elfsym_source *src, const Elf64_Ehdr *eh, u64 *budget,
			      struct elfsym_info *info)
{
	_cleanup_free_ Elf64_Shdr *sections = NULL;
	u32 i;
	int err;

	err = read_sections(src, eh, &sections);
	if (err)
		return err == -ENOMEM || err == -EIO ? err : 0;
	for (i = 0; i < eh->e_shnum && !info->id_len; i++) {
		if (sections[i].sh_type != SHT_NOTE)
			continue;
		err = read_notes(src, sections[i].sh_offset, sections[i].sh_size,
				 sections[i].sh_addralign, budget, info);
		if (err)
			return err;
	}
	return 0;
}

static int read_info(const struct elfsym_source *src, struct elfsym_info *info)
{
	_cleanup_free_ Elf64_Phdr *phdrs = NULL;
	u64 budget = NOTES_MAX;
	Elf64_Ehdr eh;
	int err;
	u32 i;

	err = read_header(src, &eh);
	if (err)
		return err;
	if (!eh.e_phnum || eh.e_phentsize != sizeof(Elf64_Phdr))
		return -ENOEXEC;
	if (eh.e_phnum > PHDRS_MAX) /* PN_XNUM among them */
		return -E2BIG;
	err = read_array(src, eh.e_phoff, eh.e_phnum, sizeof(Elf64_Phdr), (void **)&phdrs);
	if (!err)
		err = read_segments(phdrs, eh.e_phnum, info);
	for (i = 0; !err && i < eh.e_phnum && !info->id_len; i++)
		if (phdrs[i].p_type == PT_NOTE)
			err = read_notes(src, phdrs[i].p_offset, phdrs[i].p_filesz,
					 phdrs[i].p_align, &budget, info);
	/* Linker scripts may leave notes without a segment. */
	if (!err && !info->id_len)
		err = read_section_notes(src, &eh, &budget, info);
	return err;
}

int elfsym_info(const struct elfsym_source *src, struct elfsym_info *ret)
{
	struct elfsym_info info = { 0 };
	int err;

	err = read_info(src, &info);
	if (err) {
		elfsym_info_fini(&info);
		return err;
	}
	*ret = info;
	return 0;
}

void elfsym_info_fini(struct elfsym_info *info)
{
	free(info->segments);
	*info = (struct elfsym_info){ 0 };
}

/* --- the image that libelf gets -------------------------------------------------------------- */

struct image {
	u8 *bytes;
	size_t size;
};

static void image_fini(struct image *img)
{
	free(img->bytes);
}

/* The symbol table of a type and its strings, sound enough to be copied; false: there is none. */
static bool find_symbols(const struct elfsym_source *src, const Elf64_Shdr *sections, u32 n,
			 u32 type, Elf64_Shdr *symbols, Elf64_Shdr *strings)
{
	u32 i;

	for (i = 0; i < n; i++) {
		const Elf64_Shdr *s = &sections[i], *str;

		if (s->sh_type != type || s->sh_entsize != sizeof(Elf64_Sym) || s->sh_link >= n)
			continue;
		str = &sections[s->sh_link];
		if (str->sh_type != SHT_STRTAB || !str->sh_size || !s->sh_size ||
		    s->sh_offset > src->size || s->sh_size > src->size - s->sh_offset ||
		    str->sh_offset > src->size || str->sh_size > src->size - str->sh_offset)
			continue;
		*symbols = *s;
		*strings = *str;
		return true;
	}
	return false;
}

/* Gives the chosen sections their places in the image; returns its size. */
static u64 lay_out(Elf64_Shdr *sections)
{
	u64 pos = sizeof(Elf64_Ehdr) + IMG_SECTIONS * sizeof(Elf64_Shdr);
	u32 i;

	for (i = IMG_SYMTAB; i < IMG_SECTIONS; i++) {
		bool strings = i == IMG_STRTAB || i == IMG_DYNSTR;
		u64 size = strings ? sections[i].sh_size
				   : sections[i].sh_size / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);

		sections[i] = (Elf64_Shdr){
			.sh_type = !size ? SHT_NULL : sections[i].sh_type,
			.sh_offset = pos,
			.sh_size = size,
			.sh_link = strings ? 0 : i + 1,
			.sh_addralign = strings ? 1 : 8,
			.sh_entsize = strings ? 0 : sizeof(Elf64_Sym),
		};
		pos += (size + 7) & ~7ull;
	}
	return pos;
}

/*
 * Bytes of the file's tables that may be read for a result of max_bytes. The result keeps 16 of a
 * symbol's 24 bytes and most of its name; much more input than that is mostly no functions.
 */
static size_t tables_limit(size_t max_bytes)
{
	return MIN(TABLES_MAX, MAX(TABLES_MIN, MIN(max_bytes, TABLES_MAX) * 4));
}

/* Returns 0, -ENOENT when the file has no symbols, -errno. */
static int image_build(const struct elfsym_source *src, const Elf64_Ehdr *file,
		       const Elf64_Shdr *sections, size_t limit, struct image *ret)
{
	_cleanup_(image_fini) struct image img = { 0 };
	Elf64_Shdr sh[IMG_SECTIONS] = { 0 };
	Elf64_Ehdr eh = *file;
	u64 from[IMG_SECTIONS];
	bool symtab, dynsym;
	u32 i;

	symtab = find_symbols(src, sections, file->e_shnum, SHT_SYMTAB, &sh[IMG_SYMTAB],
			      &sh[IMG_STRTAB]);
	dynsym = find_symbols(src, sections, file->e_shnum, SHT_DYNSYM, &sh[IMG_DYNSYM],
			      &sh[IMG_DYNSTR]);
	if (!symtab && !dynsym)
		return -ENOENT;
	for (i = IMG_SYMTAB; i < IMG_SECTIONS; i++) {
		from[i] = sh[i].sh_offset;
		if (sh[i].sh_size > limit)
			return -E2BIG;
	}
	img.size = lay_out(sh);
	if (img.size > limit)
		return -E2BIG;
	img.bytes = calloc(1, img.size);
	if (!img.bytes)
		return -ENOMEM;
	eh.e_phnum = 0;
	eh.e_phoff = 0;
	eh.e_shoff = sizeof(eh);
	eh.e_shnum = IMG_SECTIONS;
	eh.e_shstrndx = SHN_UNDEF;
	memcpy(img.bytes, &eh, sizeof(eh));
	memcpy(img.bytes + sizeof(eh), sh, sizeof(sh));
	for (i = IMG_SYMTAB; i < IMG_SECTIONS; i++) {
		u8 *to = img.bytes + sh[i].sh_offset;
		int err = read_at(src, from[i], to, (size_t)sh[i].sh_size);

		if (err)
			return err;
		/*
		 * libelf looks for a string's end from the end of the section: without a NUL
		 * there, each name of a hostile table would cost a scan of the whole of it.
		 */
		if ((i == IMG_STRTAB || i == IMG_DYNSTR) && sh[i].sh_size)
			to[sh[i].sh_size - 1] = '\0';
	}
	*ret = img;
	img.bytes = NULL;
	return 0;
}

/* --- choice of names ------------------------------------------------------------------------- */

/* Order matters: the better one of two aliases has the lower value. */
enum binding { BIND_GLOBAL, BIND_WEAK, BIND_LOCAL };

struct symbol {
	u64 addr;
	u32 size; /* 0: reaches to the next symbol of its section */
	u32 name; /* offset in its string table */
	u16 section;
	u8 binding;
	u8 table;       /* IMG_SYMTAB or IMG_DYNSYM: the lower is the better source */
	u8 underscores; /* leading ones */
	bool counted, copied;
};

struct candidates {
	struct symbol *symbols;
	u32 n, cap;
	const Elf64_Shdr *sections; /* of the file */
	u32 nsections;
	Elf *elf;
	const char *strings[IMG_SECTIONS]; /* by symbol table; each ends with a NUL */
};

static void candidates_fini(struct candidates *c)
{
	free(c->symbols);
	if (c->elf)
		elf_end(c->elf);
}

static const char *symbol_name(const struct candidates *c, const struct symbol *s)
{
	return c->strings[s->table] + s->name;
}

/*
 * Marks, not names: $x, $d, $a, $t, alone or with a suffix (ELF for the Arm architecture), and
 * what compilers and their plugins mark with a leading dot (.L1, .annobin_main.c).
 */
static bool is_mark(const char *name, u32 type)
{
	if (type == STT_NOTYPE && name[0] == '.')
		return true;
	return name[0] == '$' && name[1] && strchr("xdat", name[1]) && (!name[2] || name[2] == '.');
}

static bool in_exec_section(const struct candidates *c, const GElf_Sym *sym)
{
	return sym->st_shndx < c->nsections && c->sections[sym->st_shndx].sh_flags & SHF_EXECINSTR;
}

/* Functions, and in .symtab also labels of executable sections (hand-written assembly). */
static bool is_function(const struct candidates *c, const GElf_Sym *sym, u8 table)
{
	u32 type = GELF_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF || sym->st_shndx == SHN_ABS || sym->st_shndx == SHN_COMMON)
		return false;
	if (type != STT_FUNC && type != STT_NOTYPE)
		return false; /* STT_GNU_IFUNC among them: its code is the resolver's */
	if (type == STT_FUNC && sym->st_size)
		return true;
	return table == IMG_SYMTAB && in_exec_section(c, sym);
}

static u8 underscores(const char *name)
{
	u8 n;

	for (n = 0; n < UINT8_MAX && name[n] == '_'; n++)
		;
	return n;
}

static int collect_symbol(struct candidates *c, const GElf_Sym *sym, u8 table)
{
	static const u8 bindings[] = {
		[STB_LOCAL] = BIND_LOCAL, [STB_GLOBAL] = BIND_GLOBAL, [STB_WEAK] = BIND_WEAK
	};
	u32 bind = GELF_ST_BIND(sym->st_info);
	const char *name;
	int err;

	if (!is_function(c, sym, table))
		return 0;
	name = elf_strptr(c->elf, table + 1, sym->st_name);
	if (!name || !*name || is_mark(name, GELF_ST_TYPE(sym->st_info)))
		return 0;
	err = VEC_RESERVE(c->symbols, c->cap, c->n + 1, SYMBOLS_MAX);
	if (err)
		return err;
	c->symbols[c->n++] = (struct symbol){
		.addr = sym->st_value,
		.size = (u32)MIN(sym->st_size, UINT32_MAX),
		.name = (u32)sym->st_name,
		.section = sym->st_shndx,
		/* STB_GNU_UNIQUE and what is unknown: as visible as a global. */
		.binding = bind < ARRAY_SIZE(bindings) ? bindings[bind] : BIND_GLOBAL,
		.table = table,
		.underscores = underscores(name),
	};
	return 0;
}

static int collect_table(struct candidates *c, u8 table)
{
	Elf_Scn *scn = elf_getscn(c->elf, table), *strings = elf_getscn(c->elf, table + 1);
	Elf_Data *data, *str;
	GElf_Shdr sh;
	size_t i, n;
	int err = 0;

	if (!scn || !strings || !gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NULL)
		return 0;
	data = elf_getdata(scn, NULL);
	str = elf_getdata(strings, NULL);
	if (!data || !str || !str->d_buf)
		return 0;
	c->strings[table] = str->d_buf;
	n = data->d_size / sizeof(Elf64_Sym);
	if (n > SYMBOLS_MAX)
		return -E2BIG;
	/* Index 0 is the undefined symbol. */
	for (i = 1; !err && i < n; i++) {
		GElf_Sym sym;

		if (gelf_getsym(data, (int)i, &sym))
			err = collect_symbol(c, &sym, table);
	}
	return err;
}

/*
 * By address. At one address: sized before sizeless, then worse before better, because what comes
 * later lies on top of what came before. Better is: global before weak before local, .symtab
 * before .dynsym, the longer one, fewer leading underscores, then the first in the string table.
 * No name is read here: a hostile table would make that millions of cache misses.
 */
static int compare(const void *pa, const void *pb)
{
	const struct symbol *a = pa, *b = pb;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	if (!a->size != !b->size)
		return a->size ? -1 : 1;
	if (a->binding != b->binding)
		return a->binding > b->binding ? -1 : 1;
	if (a->table != b->table)
		return a->table > b->table ? -1 : 1;
	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	if (a->underscores != b->underscores)
		return a->underscores > b->underscores ? -1 : 1;
	return (a->name < b->name) - (a->name > b->name);
}

/* --- ranges ---------------------------------------------------------------------------------- */

#define NESTING_MAX 64 /* symbols inside symbols; the outermost is forgotten beyond */

/* Ranges that are open at pos. Ends shrink from bottom to top; the top one names the address. */
struct sweep {
	struct {
		u64 end;
		struct symbol *symbol;
	} open[NESTING_MAX];
	u32 depth;
	u64 pos;       /* all before it is done */
	u64 sized_end; /* where the last sized symbol so far ends */
	size_t nranges, names_bytes;
	struct elfsym_table *out; /* NULL: only count, and mark symbols that get a range */
	char name[NAME_MAX_LEN];
};

/* To w->name, as it will be shown: without the version behind '@', clean. Returns its length. */
static size_t show_name(struct sweep *w, const struct candidates *c, const struct symbol *s)
{
	const char *name = symbol_name(c, s);
	size_t len = strnlen(name, NAME_MAX_LEN);
	const char *at = memchr(name, '@', len);

	return utf8_clean(w->name, sizeof(w->name), name,
			  at && at > name ? (size_t)(at - name) : len);
}

/* Counting pass: only symbols that are seen somewhere pay for their names. */
static void count_range(struct sweep *w, const struct candidates *c, struct symbol *s)
{
	w->nranges++;
	if (s->counted)
		return;
	s->counted = true;
	w->names_bytes += show_name(w, c, s) + 1;
}

static void write_range(struct sweep *w, const struct candidates *c, struct symbol *s, u64 to)
{
	if (!s->copied) {
		size_t len = show_name(w, c, s);

		memcpy(w->out->names + w->names_bytes, w->name, len + 1);
		s->name = (u32)w->names_bytes; /* from here on an offset in names */
		s->copied = true;
		w->names_bytes += len + 1;
	}
	w->out->functions[w->out->n++] = (struct function){
		.addr = w->pos,
		.size = (u32)MIN(to - w->pos, UINT32_MAX),
		.name = s->name,
	};
}

/* Closes what ends before `to`. Each turn pops a symbol, or is the last. */
static void advance(struct sweep *w, const struct candidates *c, u64 to)
{
	while (w->depth && w->pos < to) {
		struct symbol *s = w->open[w->depth - 1].symbol;
		u64 end = MIN(w->open[w->depth - 1].end, to);

		if (end > w->pos) {
			if (w->out)
				write_range(w, c, s, end);
			else
				count_range(w, c, s);
			w->pos = end;
		}
		if (w->open[w->depth - 1].end <= w->pos)
			w->depth--;
	}
	w->pos = to;
}

static void open_range(struct sweep *w, struct symbol *s, u64 end)
{
	/* What ends under the new one is never seen again. */
	while (w->depth && w->open[w->depth - 1].end <= end)
		w->depth--;
	if (w->depth == NESTING_MAX) {
		memmove(&w->open[0], &w->open[1], sizeof(w->open) - sizeof(w->open[0]));
		w->depth--;
	}
	w->open[w->depth].end = end;
	w->open[w->depth++].symbol = s;
}

static u64 add_sat(u64 a, u64 b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* A sizeless symbol reaches to the next symbol, but not out of its section. */
static u64 sizeless_end(const struct candidates *c, const struct symbol *s, u64 next)
{
	const Elf64_Shdr *section = &c->sections[s->section];

	return MIN(next, add_sat(section->sh_addr, section->sh_size));
}

/* The symbols of one address, worst first; next: the address after it that has one. */
static void sweep_address(struct sweep *w, const struct candidates *c, u32 from, u32 to, u64 next)
{
	u32 i;

	advance(w, c, c->symbols[from].addr);
	for (i = from; i < to; i++) {
		struct symbol *s = &c->symbols[i];
		u64 end;

		if (s->size) {
			end = add_sat(s->addr, s->size);
			w->sized_end = MAX(w->sized_end, end);
		} else {
			/* A label inside a function, or another name for it. */
			if (s->addr < w->sized_end)
				continue;
			end = sizeless_end(c, s, next);
		}
		if (end > s->addr)
			open_range(w, s, end);
	}
}

/* -E2BIG when the names alone go over max_bytes. */
static int sweep_all(struct sweep *w, const struct candidates *c, size_t max_bytes)
{
	u32 from, to;

	for (from = 0; from < c->n; from = to) {
		u64 addr = c->symbols[from].addr;

		for (to = from + 1; to < c->n && c->symbols[to].addr == addr; to++)
			;
		sweep_address(w, c, from, to, to < c->n ? c->symbols[to].addr : UINT64_MAX);
		if (w->names_bytes > max_bytes)
			return -E2BIG;
	}
	advance(w, c, UINT64_MAX);
	return 0;
}

static int build(const struct candidates *c, size_t max_bytes, struct elfsym_table **ret)
{
	_cleanup_free_ struct sweep *w = calloc(1, sizeof(*w));
	struct elfsym_table *t;
	size_t bytes;
	int err;

	if (!w)
		return -ENOMEM;
	err = sweep_all(w, c, MIN(max_bytes, TABLES_MAX));
	if (err)
		return err;
	bytes = sizeof(*t) + w->nranges * sizeof(t->functions[0]) + w->names_bytes;
	if (bytes > max_bytes)
		return -E2BIG;
	if (!w->nranges) {
		*ret = NULL;
		return 0;
	}
	t = malloc(bytes);
	if (!t)
		return -ENOMEM;
	*t = (struct elfsym_table){ .bytes = bytes };
	t->names = (char *)&t->functions[w->nranges];
	*w = (struct sweep){ .out = t };
	sweep_all(w, c, SIZE_MAX);
	*ret = t;
	return 0;
}

/* --- the table ------------------------------------------------------------------------------- */

static int open_image(const struct image *img, struct candidates *c)
{
	int err;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOEXEC;
	c->elf = elf_memory((char *)img->bytes, img->size);
	if (!c->elf)
		return -ENOEXEC;
	err = collect_table(c, IMG_SYMTAB);
	return err ? err : collect_table(c, IMG_DYNSYM);
}

int elfsym_table(const struct elfsym_source *src, size_t max_bytes, struct elfsym_table **ret)
{
	/* Ends in reverse order: libelf lets go before the image goes. */
	_cleanup_free_ Elf64_Shdr *sections = NULL;
	_cleanup_(image_fini) struct image img = { 0 };
	_cleanup_(candidates_fini) struct candidates c = { 0 };
	struct elfsym_table *t = NULL;
	Elf64_Ehdr eh;
	int err;

	err = read_header(src, &eh);
	if (!err)
		err = read_sections(src, &eh, &sections);
	if (!err)
		err = image_build(src, &eh, sections, tables_limit(max_bytes), &img);
	if (err == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	if (err)
		return err;
	c.sections = sections;
	c.nsections = eh.e_shnum;
	err = open_image(&img, &c);
	if (err)
		return err;
	if (c.n)
		qsort(c.symbols, c.n, sizeof(c.symbols[0]), compare);
	err = build(&c, max_bytes, &t);
	if (err)
		return err;
	*ret = t;
	return 0;
}

void elfsym_table_free(struct elfsym_table *t)
{
	free(t);
}

size_t elfsym_table_bytes(const struct elfsym_table *t)
{
	return t ? t->bytes : 0;
}

const char *elfsym_lookup(const struct elfsym_table *t, u64 vaddr)
{
	const struct function *f;
	u32 lo = 0, hi = t ? t->n : 0;

	/* First function behind vaddr; halves each turn. */
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (t->functions[mid].addr <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	f = &t->functions[lo - 1];
	return vaddr - f->addr < f->size ? t->names + f->name : NULL;
}
