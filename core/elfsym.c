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

#include "pclntab.h"
#include "plt.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <lzma.h>
#include <string.h>

#define PHDRS_MAX     256
#define SECTIONS_MAX  0xfeff /* below SHN_LORESERVE: no extended numbering */
#define NOTES_MAX     (1u << 20)
#define NAMES_MAX     (1u << 20) /* of sections */
#define TABLES_MAX    (128u << 20)
#define TABLES_MIN    (1u << 20) /* see tables_limit() */
#define SYMBOLS_MAX   (4u << 20)
#define NAME_MAX_LEN  4096u       /* longer names are cut */
#define UNPACK_MEMORY (96u << 20) /* for the decoder itself */
#define UNPACK_FIRST  (256u << 10)

/* Sections of an image. */
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

int elfsym_read(const struct elfsym_source *src, u64 off, void *buf, size_t len)
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
int elfsym_read_array(const struct elfsym_source *src, u64 off, u64 n, size_t size, void **ret)
{
	_cleanup_free_ void *p = NULL;
	int err;

	if (n > src->size / size || off > src->size || n * size > src->size - off)
		return -ENOEXEC;
	p = malloc(MAX(n, 1) * size);
	if (!p)
		return -ENOMEM;
	err = elfsym_read(src, off, p, n * size);
	if (err)
		return err;
	*ret = take_ptr(p);
	return 0;
}

static int read_header(const struct elfsym_source *src, Elf64_Ehdr *ret)
{
	int err = elfsym_read(src, 0, ret, sizeof(*ret));

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

	return !elfsym_read(src, 0, magic, sizeof(magic)) && !memcmp(magic, ELFMAG, SELFMAG);
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
	err = elfsym_read_array(src, off, len, 1, &buf);
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
	return elfsym_read_array(src, eh->e_shoff, eh->e_shnum, sizeof(Elf64_Shdr), (void **)ret);
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
	err = elfsym_read_array(src, eh.e_phoff, eh.e_phnum, sizeof(Elf64_Phdr), (void **)&phdrs);
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

/* --- sections by name ----------------------------------------------------------------------- */

int elfsym_sections(const struct elfsym_source *src, struct elfsym_sections *ret)
{
	struct elfsym_sections s = { 0 };
	const Elf64_Shdr *names;
	Elf64_Ehdr eh;
	int err;

	err = read_header(src, &eh);
	if (!err)
		err = read_sections(src, &eh, &s.v);
	if (err)
		return err;
	s.n = eh.e_shnum;
	s.machine = eh.e_machine;
	s.entry = eh.e_entry;
	names = eh.e_shstrndx < s.n ? &s.v[eh.e_shstrndx] : NULL;
	/* Without names there are still symbols. */
	if (names && names->sh_type == SHT_STRTAB && names->sh_size &&
	    names->sh_size <= NAMES_MAX &&
	    !elfsym_read_array(src, names->sh_offset, names->sh_size, 1, (void **)&s.names)) {
		s.names_len = (size_t)names->sh_size;
		s.names[s.names_len - 1] = '\0';
	}
	*ret = s;
	return 0;
}

void elfsym_sections_fini(struct elfsym_sections *s)
{
	free(s->v);
	free(s->names);
	*s = (struct elfsym_sections){ 0 };
}

const Elf64_Shdr *elfsym_section(const struct elfsym_sections *s, const char *name)
{
	u32 i;

	for (i = 0; i < s->n; i++)
		if (s->v[i].sh_type != SHT_NULL && s->v[i].sh_type != SHT_NOBITS &&
		    s->v[i].sh_size && s->v[i].sh_name < s->names_len &&
		    !strcmp(s->names + s->v[i].sh_name, name))
			return &s->v[i];
	return NULL;
}

bool elfsym_has_symtab(const struct elfsym_source *src)
{
	_cleanup_(elfsym_sections_fini) struct elfsym_sections s = { 0 };
	u32 i;

	if (elfsym_sections(src, &s))
		return false;
	for (i = 0; i < s.n; i++)
		if (s.v[i].sh_type == SHT_SYMTAB && s.v[i].sh_size > sizeof(Elf64_Sym))
			return true;
	return false;
}

bool elfsym_debuglink(const struct elfsym_source *src, struct elfsym_link *ret)
{
	_cleanup_(elfsym_sections_fini) struct elfsym_sections s = { 0 };
	_cleanup_free_ char *data = NULL;
	const Elf64_Shdr *sh;
	size_t len, crc;

	if (elfsym_sections(src, &s))
		return false;
	sh = elfsym_section(&s, ".gnu_debuglink");
	if (!sh || sh->sh_size > sizeof(ret->name) + 8 ||
	    elfsym_read_array(src, sh->sh_offset, sh->sh_size, 1, (void **)&data))
		return false;
	/* The name, its NUL, up to three more, the checksum. */
	len = strnlen(data, (size_t)sh->sh_size);
	crc = align_up(len + 1, 4);
	if (!len || len >= sizeof(ret->name) || crc + 4 > sh->sh_size)
		return false;
	if (memchr(data, '/', len) || !strcmp(data, ".") || !strcmp(data, ".."))
		return false;
	memcpy(ret->name, data, len + 1);
	memcpy(&ret->crc, data + crc, sizeof(ret->crc));
	return true;
}

/* --- names from elsewhere -------------------------------------------------------------------- */

void elfsym_names_fini(struct elfsym_names *n)
{
	free(n->v);
	free(n->text);
	*n = (struct elfsym_names){ 0 };
}

int elfsym_names_add(struct elfsym_names *n, u64 addr, u32 size, const char *name,
		     const char *suffix)
{
	u32 len = (u32)strnlen(name, NAME_MAX_LEN - 64), more = (u32)strlen(suffix);
	int err = VEC_RESERVE(n->v, n->cap, n->n + 1, SYMBOLS_MAX);

	if (!err)
		err = VEC_RESERVE(n->text, n->text_cap, n->len + len + more + 1, TABLES_MAX);
	if (err)
		return err;
	n->v[n->n++] = (struct elfsym_name){ addr, size, n->len };
	memcpy(n->text + n->len, name, len);
	memcpy(n->text + n->len + len, suffix, more);
	n->len += len + more;
	n->text[n->len++] = '\0';
	return 0;
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
static int image_build(const struct elfsym_source *src, const struct elfsym_sections *s,
		       size_t limit, struct image *ret)
{
	_cleanup_(image_fini) struct image img = { 0 };
	Elf64_Shdr sh[IMG_SECTIONS] = { 0 };
	u64 from[IMG_SECTIONS];
	bool symtab, dynsym;
	Elf64_Ehdr eh;
	u32 i;
	int err = read_header(src, &eh);

	if (err)
		return err;
	symtab = find_symbols(src, s->v, s->n, SHT_SYMTAB, &sh[IMG_SYMTAB], &sh[IMG_STRTAB]);
	dynsym = find_symbols(src, s->v, s->n, SHT_DYNSYM, &sh[IMG_DYNSYM], &sh[IMG_DYNSTR]);
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

		err = elfsym_read(src, from[i], to, (size_t)sh[i].sh_size);
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

/* Where names come from, likewise. */
enum origin { FROM_SYMTAB, FROM_DEBUG, FROM_DYNSYM, FROM_PLT, FROM_GO, ORIGINS };

struct symbol {
	u64 addr;
	u32 size; /* 0: reaches to the next symbol of its section */
	u32 name; /* offset in its string table */
	u16 section;
	u8 binding;
	u8 origin;
	u8 underscores; /* leading ones */
	bool counted, copied;
};

/* A file whose symbol tables are read. */
struct tables {
	struct elfsym_sections sections;
	struct image image;
	Elf *elf;
};

struct candidates {
	struct symbol *symbols;
	u32 n, cap;
	struct tables file, debug;
	struct elfsym_names plt, go;
	const char *strings[ORIGINS]; /* each ends with a NUL */
};

/* libelf lets go before the image goes. */
static void tables_fini(struct tables *t)
{
	if (t->elf)
		elf_end(t->elf);
	image_fini(&t->image);
	elfsym_sections_fini(&t->sections);
}

static void candidates_fini(struct candidates *c)
{
	free(c->symbols);
	tables_fini(&c->file);
	tables_fini(&c->debug);
	elfsym_names_fini(&c->plt);
	elfsym_names_fini(&c->go);
}

/* The sections that a symbol's number means. */
static const struct elfsym_sections *sections_of(const struct candidates *c, enum origin from)
{
	return from == FROM_DEBUG ? &c->debug.sections : &c->file.sections;
}

static const char *symbol_name(const struct candidates *c, const struct symbol *s)
{
	return c->strings[s->origin] + s->name;
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

static bool in_exec_section(const struct elfsym_sections *s, const GElf_Sym *sym)
{
	return sym->st_shndx < s->n && s->v[sym->st_shndx].sh_flags & SHF_EXECINSTR;
}

/* Functions, and in .symtab also labels of executable sections (hand-written assembly). */
static bool is_function(const struct candidates *c, const GElf_Sym *sym, enum origin from)
{
	u32 type = GELF_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF || sym->st_shndx == SHN_ABS || sym->st_shndx == SHN_COMMON)
		return false;
	if (type != STT_FUNC && type != STT_NOTYPE)
		return false; /* STT_GNU_IFUNC among them: its code is the resolver's */
	if (type == STT_FUNC && sym->st_size)
		return true;
	return from != FROM_DYNSYM && in_exec_section(sections_of(c, from), sym);
}

static u8 underscores(const char *name)
{
	u8 n;

	for (n = 0; n < UINT8_MAX && name[n] == '_'; n++)
		;
	return n;
}

static int collect_symbol(struct candidates *c, Elf *elf, u32 strings, const GElf_Sym *sym,
			  enum origin from)
{
	static const u8 bindings[] = {
		[STB_LOCAL] = BIND_LOCAL, [STB_GLOBAL] = BIND_GLOBAL, [STB_WEAK] = BIND_WEAK
	};
	u32 bind = GELF_ST_BIND(sym->st_info);
	const char *name;
	int err;

	if (!is_function(c, sym, from))
		return 0;
	name = elf_strptr(elf, strings, sym->st_name);
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
		.origin = from,
		.underscores = underscores(name),
	};
	return 0;
}

/* One symbol table of an image: `table` and the strings behind it. */
static int collect_table(struct candidates *c, Elf *elf, u32 table, enum origin from)
{
	Elf_Scn *scn = elf_getscn(elf, table), *strings = elf_getscn(elf, table + 1);
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
	c->strings[from] = str->d_buf;
	n = data->d_size / sizeof(Elf64_Sym);
	if (n > SYMBOLS_MAX)
		return -E2BIG;
	/* Index 0 is the undefined symbol. */
	for (i = 1; !err && i < n; i++) {
		GElf_Sym sym;

		if (gelf_getsym(data, (int)i, &sym))
			err = collect_symbol(c, elf, table + 1, &sym, from);
	}
	return err;
}

static int collect_names(struct candidates *c, const struct elfsym_names *names, enum origin from)
{
	u32 i;
	int err = 0;

	c->strings[from] = names->text;
	for (i = 0; !err && i < names->n; i++) {
		err = VEC_RESERVE(c->symbols, c->cap, c->n + 1, SYMBOLS_MAX);
		if (!err)
			c->symbols[c->n++] = (struct symbol){ .addr = names->v[i].addr,
							      .size = names->v[i].size,
							      .name = names->v[i].name,
							      .binding = BIND_LOCAL,
							      .origin = from };
	}
	return err;
}

/*
 * By address. At one address: sized before sizeless, then worse before better, because what comes
 * later lies on top of what came before. Which is better, elfsym.h says.
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
	if (a->origin != b->origin)
		return a->origin > b->origin ? -1 : 1;
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
	/* "@plt" is ours, and Go has no versions. */
	const char *at = s->origin < FROM_PLT ? memchr(name, '@', len) : NULL;

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
	const Elf64_Shdr *section = &sections_of(c, s->origin)->v[s->section];

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

static int open_tables(const struct elfsym_source *src, size_t limit, struct tables *t)
{
	int err;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOEXEC;
	err = elfsym_sections(src, &t->sections);
	if (!err)
		err = image_build(src, &t->sections, limit, &t->image);
	if (err)
		return err;
	t->elf = elf_memory((char *)t->image.bytes, t->image.size);
	return t->elf ? 0 : -ENOEXEC;
}

/* What only costs the names it would have given. */
static int tolerate(int err)
{
	return err == -ENOMEM || err == -EIO ? err : 0;
}

/*
 * The section that distributions leave in stripped files: an ELF file with symbols alone, as xz
 * has it. *ret: owned memory. -ENOENT when there is none.
 */
static int unpack(const struct elfsym_source *src, const struct elfsym_sections *s, size_t limit,
		  struct elfsym_source *ret)
{
	const Elf64_Shdr *sh = elfsym_section(s, ".gnu_debugdata");
	lzma_stream z = LZMA_STREAM_INIT;
	_cleanup_free_ u8 *packed = NULL, *out = NULL;
	u32 cap = 0;
	lzma_ret rc = LZMA_OK;
	int err;

	if (!sh)
		return -ENOENT;
	if (sh->sh_size > limit)
		return -E2BIG;
	err = elfsym_read_array(src, sh->sh_offset, sh->sh_size, 1, (void **)&packed);
	if (err)
		return err;
	if (lzma_stream_decoder(&z, UNPACK_MEMORY, 0) != LZMA_OK)
		return -ENOMEM;
	z.next_in = packed;
	z.avail_in = (size_t)sh->sh_size;
	/* Each turn doubles the room, up to the limit. */
	do {
		err = VEC_RESERVE(out, cap, MAX((u32)z.total_out + 1, UNPACK_FIRST), (u32)limit);
		if (err)
			break;
		z.next_out = out + z.total_out;
		z.avail_out = cap - (size_t)z.total_out;
		rc = lzma_code(&z, LZMA_FINISH);
	} while (rc == LZMA_OK);
	lzma_end(&z);
	if (err)
		return err;
	if (rc != LZMA_STREAM_END)
		return rc == LZMA_MEM_ERROR ? -ENOMEM : -ENOEXEC;
	*ret = (struct elfsym_source){ .fd = -1, .mem = take_ptr(out), .size = z.total_out };
	return 0;
}

/* Symbols that were taken out of the file: from its debug file, or what is left of them in it. */
static int collect_debug(struct candidates *c, const struct elfsym_source *src,
			 const struct elfsym_source *debug, size_t limit)
{
	struct elfsym_source mini = { .fd = -1 };
	int err = debug ? open_tables(debug, limit, &c->debug) : -ENOENT;

	if (tolerate(err))
		return err;
	if (err) {
		tables_fini(&c->debug);
		c->debug = (struct tables){ 0 };
		err = unpack(src, &c->file.sections, limit, &mini);
		if (!err)
			err = open_tables(&mini, limit, &c->debug);
		free((void *)mini.mem);
	}
	return err ? tolerate(err) : collect_table(c, c->debug.elf, IMG_SYMTAB, FROM_DEBUG);
}

/* Go's own table, which names all that its compiler made. */
static int collect_go(struct candidates *c, const struct elfsym_source *src, size_t limit)
{
	const struct elfsym_sections *s = &c->file.sections;
	_cleanup_free_ u8 *table = NULL;
	struct pclntab_text text;
	size_t len;
	int err = pclntab_read(src, s, limit, &table, &len, &text);

	if (err == -ENOENT)
		return 0;
	if (!err)
		err = pclntab_names(table, len, &text, &c->go);
	return err ? tolerate(err) : collect_names(c, &c->go, FROM_GO);
}

static int collect(struct candidates *c, const struct elfsym_source *src,
		   const struct elfsym_source *debug, size_t limit)
{
	int err = open_tables(src, limit, &c->file);

	if (err && err != -ENOENT)
		return err;
	if (!err)
		err = collect_table(c, c->file.elf, IMG_SYMTAB, FROM_SYMTAB);
	else
		err = 0;
	/* A .symtab has all that the others could tell. */
	if (!err && !c->n)
		err = collect_debug(c, src, debug, limit);
	if (!err && !c->n)
		err = collect_go(c, src, limit);
	if (!err && c->file.elf)
		err = collect_table(c, c->file.elf, IMG_DYNSYM, FROM_DYNSYM);
	if (!err)
		err = plt_names(src, &c->file.sections, &c->plt);
	return err ? err : collect_names(c, &c->plt, FROM_PLT);
}

int elfsym_table(const struct elfsym_source *src, const struct elfsym_source *debug,
		 size_t max_bytes, struct elfsym_table **ret)
{
	_cleanup_(candidates_fini) struct candidates c = { 0 };
	struct elfsym_table *t = NULL;
	int err;

	err = collect(&c, src, debug, tables_limit(max_bytes));
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
