// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See elfmem.h. Sources of the layouts: ELF gABI; the GNU hash table as glibc's
 * elf/dl-lookup.c and elf/dl-setup_hash.c (2.36) read it; .eh_frame_hdr and .eh_frame as LSB 5.0
 * core, 10.6, has them.
 */
#include "elfmem.h"

#include "htab.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define PHDRS_MAX    64
#define DYNAMIC_MAX  256  /* entries */
#define CHAIN_MAX    4096 /* entries of a hash chain that are looked at */
#define CHAIN_READ   16   /* of them at a time */
#define MATCHES_MAX  64   /* symbols whose hash fits */
#define NAME_MAX_LEN 256
#define CIE_READ     64 /* bytes of a CIE that are looked at */
#define LEB_MAX      10

/* DW_EH_PE, LSB 5.0 core 10.5.1 */
enum {
	PE_ABSPTR = 0x00,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_PCREL = 0x10,
	PE_DATAREL = 0x30,
	PE_FORMAT = 0x0f,
	PE_OMIT = 0xff,
};

static int read_at(const struct elfmem_source *src, u64 addr, void *dst, size_t len)
{
	if (addr + len < addr)
		return -EFAULT;
	return src->read(src->arg, addr, dst, len) ? -EFAULT : 0;
}

/* --- headers --------------------------------------------------------------------------------- */

static bool is_elf(const Elf64_Ehdr *eh)
{
	return !memcmp(eh->e_ident, ELFMAG, SELFMAG) && eh->e_ident[EI_CLASS] == ELFCLASS64 &&
	       eh->e_ident[EI_DATA] == ELFDATA2LSB &&
	       (eh->e_type == ET_EXEC || eh->e_type == ET_DYN) &&
	       (eh->e_machine == EM_X86_64 || eh->e_machine == EM_AARCH64) &&
	       eh->e_phentsize == sizeof(Elf64_Phdr) && eh->e_phnum && eh->e_phnum <= PHDRS_MAX;
}

/* The program headers, mostly in the page that was read already. */
static int read_phdrs(const struct elfmem_source *src, u64 base, const u8 *page, Elf64_Phdr *ret)
{
	const Elf64_Ehdr *eh = (const void *)page;
	size_t len = eh->e_phnum * sizeof(Elf64_Phdr);

	if (eh->e_phoff <= ELFMEM_PAGE - len) {
		memcpy(ret, page + eh->e_phoff, len);
		return 0;
	}
	return eh->e_phoff < UINT32_MAX ? read_at(src, base + eh->e_phoff, ret, len) : -ENOEXEC;
}

/* The entry that maps file offset 0, which is what lies at base. */
static const Elf64_Phdr *first_load(const Elf64_Phdr *ph, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_offset < ELFMEM_PAGE)
			return &ph[i];
	return NULL;
}

static void add_segment(struct elfmem *m, const Elf64_Phdr *ph)
{
	u64 lo = m->bias + ph->p_vaddr, hi = lo + ph->p_memsz;
	bool exec = ph->p_flags & PF_X;

	if (lo >= hi || m->nsegments == ELFMEM_SEGMENTS_MAX)
		return;
	m->segment[m->nsegments++] = (struct elfmem_segment){ lo, hi, exec };
	if (!exec)
		return;
	m->lo = m->lo == m->hi ? lo : MIN(m->lo, lo);
	m->hi = MAX(m->hi, hi);
}

/* --- dynamic section ------------------------------------------------------------------------- */

/* glibc and musl differ in whether they add the bias to addresses in the section itself. */
static u64 dynamic_address(const struct elfmem *m, u64 value)
{
	u32 i;

	for (i = 0; i < m->nsegments; i++)
		if (value >= m->segment[i].lo && value < m->segment[i].hi)
			return value;
	return m->bias + value;
}

static void take_dynamic(struct elfmem *m, const Elf64_Dyn *d)
{
	switch (d->d_tag) {
	case DT_SYMTAB:
		m->symtab = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_STRTAB:
		m->strtab = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_STRSZ:
		m->strtab_size = d->d_un.d_val;
		break;
	case DT_GNU_HASH:
		m->gnu_hash = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_HASH:
		m->sysv_hash = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_RELA:
		m->relocs[0] = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_RELASZ:
		m->relocs_size[0] = d->d_un.d_val;
		break;
	case DT_JMPREL:
		m->relocs[1] = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_PLTRELSZ:
		m->relocs_size[1] = d->d_un.d_val;
		break;
	case DT_DEBUG: /* for the loader to fill in, in the program only */
		m->executable = true;
		break;
	case DT_FLAGS_1:
		m->executable |= (d->d_un.d_val & DF_1_PIE) != 0;
		break;
	}
}

static void read_dynamic(const struct elfmem_source *src, struct elfmem *m, const Elf64_Phdr *ph)
{
	Elf64_Dyn d[DYNAMIC_MAX];
	u32 n = (u32)MIN(ph->p_memsz / sizeof(d[0]), DYNAMIC_MAX), i;

	if (read_at(src, m->bias + ph->p_vaddr, d, n * sizeof(d[0])))
		return;
	for (i = 0; i < n && d[i].d_tag != DT_NULL; i++)
		take_dynamic(m, &d[i]);
}

/* Header of the GNU hash table, and its filter, which tells most absent names without a read. */
static int read_gnu_hash(const struct elfmem_source *src, struct elfmem *m)
{
	u32 head[4];

	if (!m->gnu_hash)
		return 0;
	if (read_at(src, m->gnu_hash, head, sizeof(head)) || !head[0] || !head[2] ||
	    head[2] & (head[2] - 1) || head[3] > 31) {
		m->gnu_hash = 0;
		return 0;
	}
	m->nbuckets = head[0];
	m->first_symbol = head[1];
	m->filter_words = head[2];
	m->filter_shift = head[3];
	if (m->filter_words > ELFMEM_FILTER_MAX)
		return 0;
	m->filter = malloc(m->filter_words * sizeof(u64));
	if (!m->filter)
		return -ENOMEM;
	if (read_at(src, m->gnu_hash + sizeof(head), m->filter, m->filter_words * sizeof(u64))) {
		free(m->filter);
		m->filter = NULL;
		m->gnu_hash = 0;
	}
	return 0;
}

/* --- opening --------------------------------------------------------------------------------- */

static int open_phdrs(const struct elfmem_source *src, u64 base, const u8 *page,
		      const Elf64_Phdr *ph, struct elfmem *m)
{
	const Elf64_Ehdr *eh = (const void *)page;
	const Elf64_Phdr *first = first_load(ph, eh->e_phnum);
	u32 i;

	if (!first)
		return -ENOEXEC;
	m->machine = eh->e_machine;
	m->executable = eh->e_type == ET_EXEC;
	m->bias = base - (first->p_vaddr - first->p_offset);
	m->head_len = (u32)MIN(first->p_filesz + first->p_offset, ELFMEM_PAGE);
	m->head_hash = hash_bytes(page, m->head_len);
	for (i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD)
			add_segment(m, &ph[i]);
	for (i = 0; i < eh->e_phnum; i++) {
		if (ph[i].p_type == PT_DYNAMIC)
			read_dynamic(src, m, &ph[i]);
		if (ph[i].p_type == PT_GNU_EH_FRAME) {
			m->eh_frame_hdr = m->bias + ph[i].p_vaddr;
			m->eh_frame_hdr_size = ph[i].p_memsz;
		}
		if (ph[i].p_type == PT_TLS) {
			m->tls_size = ph[i].p_memsz;
			m->tls_align = ph[i].p_align;
		}
	}
	return read_gnu_hash(src, m);
}

int elfmem_open(const struct elfmem_source *src, u64 base, struct elfmem *ret)
{
	_Alignas(Elf64_Ehdr) u8 page[ELFMEM_PAGE];
	struct elfmem m = { 0 };
	Elf64_Phdr ph[PHDRS_MAX];
	int err;

	err = read_at(src, base, page, sizeof(page));
	if (err)
		return err;
	if (!is_elf((const void *)page))
		return -ENOEXEC;
	err = read_phdrs(src, base, page, ph);
	if (!err)
		err = open_phdrs(src, base, page, ph, &m);
	if (err) {
		elfmem_fini(&m);
		return err;
	}
	*ret = m;
	return 0;
}

void elfmem_fini(struct elfmem *m)
{
	free(m->filter);
	m->filter = NULL;
}

/* --- symbols --------------------------------------------------------------------------------- */

static u32 gnu_hash(const char *name)
{
	u32 h = 5381;

	for (; *name; name++)
		h = h * 33 + (u8)*name;
	return h;
}

static u32 sysv_hash(const char *name)
{
	u32 h = 0, g;

	for (; *name; name++) {
		h = (h << 4) + (u8)*name;
		g = h & 0xf0000000;
		h ^= g >> 24;
		h &= ~g;
	}
	return h;
}

static bool filter_passes(const struct elfmem *m, u64 word, u32 h)
{
	u64 bits = 1ull << (h % 64) | 1ull << ((h >> m->filter_shift) % 64);

	return (word & bits) == bits;
}

bool elfmem_may_have(const struct elfmem *m, const char *name)
{
	u32 h;

	if (!m->symtab || !m->strtab || (!m->gnu_hash && !m->sysv_hash))
		return false;
	if (!m->filter)
		return true;
	h = gnu_hash(name);
	return filter_passes(m, m->filter[(h / 64) & (m->filter_words - 1)], h);
}

struct search {
	const struct elfmem_source *src;
	const struct elfmem *m;
	const char *name;
	size_t len; /* of the name, with its NUL */
	u32 matches;
	struct elfmem_symbol *ret;
};

/* 0 when symbol i is the one, -ENOENT, -EFAULT. */
static int try_symbol(struct search *s, u32 i)
{
	char name[NAME_MAX_LEN];
	Elf64_Sym sym;

	if (++s->matches > MATCHES_MAX)
		return -EFAULT;
	if (read_at(s->src, s->m->symtab + (u64)i * sizeof(sym), &sym, sizeof(sym)))
		return -EFAULT;
	if (sym.st_shndx == SHN_UNDEF || sym.st_name >= s->m->strtab_size ||
	    s->len > s->m->strtab_size - sym.st_name)
		return -ENOENT;
	if (read_at(s->src, s->m->strtab + sym.st_name, name, s->len))
		return -EFAULT;
	if (memcmp(name, s->name, s->len))
		return -ENOENT;
	*s->ret = (struct elfmem_symbol){
		.value = sym.st_value,
		.size = sym.st_size,
		.index = i,
		.tls = ELF64_ST_TYPE(sym.st_info) == STT_TLS,
		.absolute = sym.st_shndx == SHN_ABS,
	};
	return 0;
}

/* The chain of a bucket: hashes, the last one with bit 0 set. */
static int search_chain(struct search *s, u64 chain, u32 first, u32 h)
{
	u32 hash[CHAIN_READ], n = CHAIN_READ, i, k;

	for (i = 0; i < CHAIN_MAX; i += n) {
		u64 at = chain + (u64)(first - s->m->first_symbol + i) * sizeof(hash[0]);

		/* The table may end shortly before the segment does. */
		if (read_at(s->src, at, hash, n * sizeof(hash[0]))) {
			n = 1;
			if (read_at(s->src, at, hash, sizeof(hash[0])))
				return -EFAULT;
		}
		for (k = 0; k < n; k++) {
			int err = -ENOENT;

			if ((hash[k] | 1) == (h | 1))
				err = try_symbol(s, first + i + k);
			if (err != -ENOENT)
				return err;
			if (hash[k] & 1)
				return -ENOENT;
		}
	}
	return -EFAULT;
}

static int search_gnu(struct search *s)
{
	const struct elfmem *m = s->m;
	u64 filter = m->gnu_hash + 16, buckets = filter + (u64)m->filter_words * 8, word;
	u32 h = gnu_hash(s->name), first;
	int err;

	err = read_at(s->src, filter + ((h / 64) & (m->filter_words - 1)) * 8ull, &word, 8);
	if (err)
		return err;
	if (!filter_passes(m, word, h))
		return -ENOENT;
	err = read_at(s->src, buckets + (u64)(h % m->nbuckets) * 4, &first, sizeof(first));
	if (err)
		return err;
	if (!first)
		return -ENOENT;
	if (first < m->first_symbol)
		return -EFAULT;
	return search_chain(s, buckets + (u64)m->nbuckets * 4, first, h);
}

static int search_sysv(struct search *s)
{
	u32 head[2], i, steps;
	u64 at = s->m->sysv_hash;

	if (read_at(s->src, at, head, sizeof(head)) || !head[0])
		return -EFAULT;
	if (read_at(s->src, at + 8 + (u64)(sysv_hash(s->name) % head[0]) * 4, &i, sizeof(i)))
		return -EFAULT;
	for (steps = 0; i; steps++) {
		int err;

		if (i >= head[1] || steps == CHAIN_MAX)
			return -EFAULT;
		err = try_symbol(s, i);
		if (err != -ENOENT)
			return err;
		if (read_at(s->src, at + 8 + ((u64)head[0] + i) * 4, &i, sizeof(i)))
			return -EFAULT;
	}
	return -ENOENT;
}

int elfmem_symbol(const struct elfmem_source *src, const struct elfmem *m, const char *name,
		  struct elfmem_symbol *ret)
{
	struct search s = { .src = src, .m = m, .name = name, .len = strlen(name) + 1, .ret = ret };

	if (s.len > NAME_MAX_LEN || !elfmem_may_have(m, name))
		return -ENOENT;
	return m->gnu_hash ? search_gnu(&s) : search_sysv(&s);
}

/* --- functions ------------------------------------------------------------------------------- */

/* Bytes of a CIE, of which nothing is believed. */
struct bytes {
	const u8 *p;
	size_t left;
};

static u8 byte(struct bytes *b)
{
	if (!b->left)
		return 0;
	b->left--;
	return *b->p++;
}

static void skip_leb(struct bytes *b)
{
	u32 i;

	for (i = 0; i < LEB_MAX && byte(b) & 0x80; i++)
		;
}

/* Size of an encoded pointer; 0: not one that we read. */
static size_t pointer_size(u8 encoding)
{
	switch (encoding & PE_FORMAT) {
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return 8;
	case PE_UDATA4:
	case PE_SDATA4:
		return 4;
	}
	return 0;
}

static void skip(struct bytes *b, size_t n)
{
	n = MIN(n, b->left);
	b->p += n;
	b->left -= n;
}

/* How the CIE's functions write their addresses; PE_OMIT: cannot be told. */
static u8 cie_encoding(struct bytes b)
{
	const char *aug;
	u8 version;
	size_t len;

	skip(&b, 8); /* length, id */
	version = byte(&b);
	aug = (const char *)b.p;
	len = strnlen(aug, b.left);
	if ((version != 1 && version != 3) || len == b.left)
		return PE_OMIT;
	skip(&b, len + 1);
	skip_leb(&b); /* code alignment */
	skip_leb(&b); /* data alignment */
	if (version == 1)
		byte(&b);
	else
		skip_leb(&b);
	if (!*aug)
		return PE_ABSPTR;
	if (*aug != 'z')
		return PE_OMIT;
	skip_leb(&b);
	for (aug++; *aug && b.left; aug++) {
		if (*aug == 'R')
			return byte(&b);
		if (*aug == 'L')
			byte(&b);
		else if (*aug == 'P')
			skip(&b, pointer_size(byte(&b)));
		else if (*aug != 'S' && *aug != 'B' && *aug != 'G')
			return PE_OMIT;
	}
	return *aug ? PE_OMIT : PE_ABSPTR;
}

/* Length of the function of an entry. */
static int fde_length(const struct elfmem_source *src, u64 fde, u64 *ret)
{
	u8 cie[CIE_READ], encoding;
	u32 head[2], n;
	u64 at, len = 0;

	if (read_at(src, fde, head, sizeof(head)) || !head[1] || head[0] < 8 ||
	    head[0] >= 0xfffffff0)
		return -EFAULT;
	at = fde + 4 - head[1];
	/* The section may end shortly behind the CIE. */
	for (n = CIE_READ; n >= 16; n /= 2)
		if (!read_at(src, at, cie, n))
			break;
	if (n < 16)
		return -EFAULT;
	encoding = cie_encoding((struct bytes){ cie, n });
	if (encoding == PE_OMIT || !pointer_size(encoding))
		return -ENOENT;
	if (read_at(src, fde + 8 + pointer_size(encoding), &len, pointer_size(encoding)))
		return -EFAULT;
	*ret = len;
	return 0;
}

struct entry {
	s32 start, fde; /* from the section's address */
};

/* The last entry that starts at or before addr, by halves. */
static int find_entry(const struct elfmem_source *src, u64 hdr, u64 table, u32 n, u64 addr,
		      struct entry *ret)
{
	u32 lo = 0, hi = n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;
		struct entry e;

		if (read_at(src, table + (u64)mid * sizeof(e), &e, sizeof(e)))
			return -EFAULT;
		if (hdr + (u64)(s64)e.start <= addr) {
			*ret = e;
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo ? 0 : -ENOENT;
}

/* Only the form that all linkers write: a table of 32-bit offsets from the section's address. */
static int open_table(const struct elfmem_source *src, const struct elfmem *m, u64 *table, u32 *n)
{
	struct {
		u8 version, pointer, count, table;
		u32 frame, n;
	} head;

	_Static_assert(sizeof(head) == 12, "as in memory");
	if (!m->eh_frame_hdr)
		return -ENOENT;
	if (read_at(src, m->eh_frame_hdr, &head, sizeof(head)))
		return -EFAULT;
	if (head.version != 1 || pointer_size(head.pointer) != 4 || head.count != PE_UDATA4 ||
	    head.table != (PE_DATAREL | PE_SDATA4))
		return -ENOENT;
	*table = m->eh_frame_hdr + sizeof(head);
	*n = (u32)MIN(head.n, m->eh_frame_hdr_size / sizeof(struct entry));
	return 0;
}

int elfmem_function(const struct elfmem_source *src, const struct elfmem *m, u64 addr, u64 *lo,
		    u64 *hi)
{
	struct entry e = { 0 };
	u64 table, start, len;
	u32 n;
	int err;

	err = open_table(src, m, &table, &n);
	if (!err)
		err = find_entry(src, m->eh_frame_hdr, table, n, addr, &e);
	if (!err)
		err = fde_length(src, m->eh_frame_hdr + (u64)(s64)e.fde, &len);
	if (err)
		return err;
	start = m->eh_frame_hdr + (u64)(s64)e.start;
	if (start > addr || addr - start >= len || start + len < start)
		return -ENOENT;
	*lo = start;
	*hi = start + len;
	return 0;
}
