// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See tablefile.h. In comes an open ELF file, out goes its table: headers, sections,
 * inflating, the compiler (cfi), the packer (table), and the disk cache.
 *
 * Everything is read by pread() into own buffers: a file that shrinks under mmap() would be a
 * SIGBUS. What a file can cost: 65279 section headers, 1 MiB of section names, EH_FRAME_MAX bytes
 * of .eh_frame, DEBUG_FRAME_MAX bytes of .debug_frame, PCLNTAB_MAX of .gopclntab, and what struct
 * cfi_limits allows.
 *
 * A cache file is named after the build id, but a build id can be forged. So it begins with a
 * digest of all that the compiler sees of the file, and only counts when that is the same.
 */
#include "tablefile.h"

#include "cfi.h"
#include "elfsym.h"
#include "pclntab.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#define PHDRS_MAX         256
#define EH_FRAME_MAX      (128u << 20)
#define UNSIZED_MAX       (64u << 20) /* of a .eh_frame whose end nobody tells */
#define DEBUG_FRAME_MAX   (256u << 20)
#define PCLNTAB_MAX       (128u << 20)
#define INFLATE_RATIO_MAX 1000 /* zlib itself does not go over 1032 */
#define SFRAME_MAGIC      0xdee2
#define SHT_SFRAME        0x6ffffff4

/* Where CFI lies in the file. */
struct place {
	u64 offset, size, vaddr;
	bool unsized;
	bool inflate;   /* offset and size are those of a zlib stream ... */
	u64 plain_size; /* ... that claims to hold as much */
	int err;        /* -ENOENT: there is none; -E2BIG, -EINVAL: unusable */
};

/* CFI in memory. */
struct frame {
	u8 *data; /* owned; NULL: there is none */
	u64 size, vaddr;
	bool unsized;
};

struct elf {
	struct elfsym_source src;
	enum cfi_arch arch;
	u64 text_lo, text_hi;
	struct frame eh, debug;
	u64 *left_out; /* functions whose CFI is not so; owned */
	u32 nleft_out;
	struct tablefile_info info;
};

static void elf_fini(struct elf *e)
{
	free(e->eh.data);
	free(e->debug.data);
	e->eh.data = e->debug.data = NULL;
	free(e->left_out);
	e->left_out = NULL;
	e->nleft_out = 0;
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- reading ------------------------------------------------------------------------------ */

static bool in_file(const struct elfsym_source *src, u64 off, u64 len)
{
	return off <= src->size && len <= src->size - off;
}

/* -EINVAL when the file has less, also when it shrank meanwhile. */
static int read_at(const struct elfsym_source *src, u64 off, void *buf, size_t len)
{
	size_t done = 0;

	if (!in_file(src, off, len))
		return -EINVAL;
	if (src->fd < 0) {
		if (len)
			memcpy(buf, (const u8 *)src->mem + off, len);
		return 0;
	}
	while (done < len) {
		ssize_t n = pread(src->fd, (u8 *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EINVAL;
		done += (size_t)n;
	}
	return 0;
}

/* Owned. Sizes are checked against the file before memory is taken for them. */
static int read_new(const struct elfsym_source *src, u64 off, u64 len, void *ret)
{
	_cleanup_free_ void *buf = NULL;
	int err;

	if (!in_file(src, off, len))
		return -EINVAL;
	buf = malloc(MAX(len, 1u));
	if (!buf)
		return -ENOMEM;
	err = read_at(src, off, buf, len);
	if (err)
		return err;
	*(void **)ret = take_ptr(buf);
	return 0;
}

/* --- where it lies ------------------------------------------------------------------------ */

static void check_place(const struct elfsym_source *src, u64 max, struct place *p)
{
	u64 plain = p->inflate ? p->plain_size : p->size;

	if (!plain || !in_file(src, p->offset, p->size) || p->vaddr + p->size < p->vaddr)
		p->err = -EINVAL;
	else
		p->err = plain > max || plain / INFLATE_RATIO_MAX > p->size ? -E2BIG : 0;
}

static void place_eh_frame(const struct elfsym_source *src, const Elf64_Shdr *h, struct place *p)
{
	*p = (struct place){ .offset = h->sh_offset, .size = h->sh_size, .vaddr = h->sh_addr };
	check_place(src, EH_FRAME_MAX, p);
	if (h->sh_flags & SHF_COMPRESSED) /* not of what is loaded (ELF gABI) */
		p->err = -EINVAL;
}

static void place_debug_frame(const struct elfsym_source *src, const Elf64_Shdr *h, struct place *p)
{
	Elf64_Chdr c;

	*p = (struct place){ .offset = h->sh_offset, .size = h->sh_size, .vaddr = h->sh_addr };
	if (h->sh_flags & SHF_COMPRESSED) {
		p->err = -EINVAL;
		if (p->size < sizeof(c) || read_at(src, p->offset, &c, sizeof(c)) ||
		    c.ch_type != ELFCOMPRESS_ZLIB)
			return;
		p->offset += sizeof(c);
		p->size -= sizeof(c);
		p->inflate = true;
		p->plain_size = c.ch_size;
	}
	check_place(src, DEBUG_FRAME_MAX, p);
}

/* What SHF_COMPRESSED replaced: "ZLIB", then the size in big-endian order. */
static void place_zdebug_frame(const struct elfsym_source *src, const Elf64_Shdr *h,
			       struct place *p)
{
	u8 head[12];

	*p = (struct place){ .offset = h->sh_offset, .size = h->sh_size, .err = -EINVAL };
	if (p->size < sizeof(head) || read_at(src, p->offset, head, sizeof(head)) ||
	    memcmp(head, "ZLIB", 4) != 0)
		return;
	memcpy(&p->plain_size, head + 4, sizeof(p->plain_size));
	p->plain_size = __builtin_bswap64(p->plain_size);
	p->offset += sizeof(head);
	p->size -= sizeof(head);
	p->inflate = true;
	check_place(src, DEBUG_FRAME_MAX, p);
}

/* Only noticed: its rows say the same as .eh_frame, which all compilers still write. */
static void note_sframe(const struct elfsym_source *src, const struct elfsym_sections *s,
			struct tablefile_info *info)
{
	const Elf64_Shdr *h = elfsym_section(s, ".sframe");
	u16 magic;
	u8 head[12]; /* magic, version, flags, four bytes of offsets, number of functions */
	u32 i;

	for (i = 0; !h && i < s->n; i++)
		if (s->v[i].sh_type == SHT_SFRAME)
			h = &s->v[i];
	if (!h || h->sh_size < sizeof(head) || read_at(src, h->sh_offset, head, sizeof(head)))
		return;
	memcpy(&magic, head, sizeof(magic));
	if (magic != SFRAME_MAGIC)
		return;
	info->sframe = true;
	info->sframe_version = head[2];
	memcpy(&info->sframe_fdes, head + 8, sizeof(info->sframe_fdes));
}

/* --- without section headers -------------------------------------------------------------- */

/* LSB 5.0: version, three encodings, then the address of .eh_frame. */
static bool eh_frame_pointer(const struct elfsym_source *src, const Elf64_Phdr *hdr, u64 *ret)
{
	u8 head[12] = { 0 };
	u64 v = 0;
	u8 format, base;
	size_t len;

	len = MIN(hdr->p_filesz, sizeof(head));
	if (len < 8 || read_at(src, hdr->p_offset, head, len) || head[0] != 1)
		return false;
	format = head[1] & 0x0f;
	base = head[1] & 0xf0;
	switch (format) {
	case 0x03: /* udata4 */
		memcpy(&v, head + 4, 4);
		break;
	case 0x0b: /* sdata4 */
		memcpy(&v, head + 4, 4);
		v = (u64)(s64)(s32)v;
		break;
	case 0x00: /* absptr */
	case 0x04: /* udata8 */
	case 0x0c: /* sdata8 */
		if (len < 12)
			return false;
		memcpy(&v, head + 4, 8);
		break;
	default:
		return false;
	}
	if (base == 0x10) /* from the field */
		v += hdr->p_vaddr + 4;
	else if (base == 0x30) /* from the table */
		v += hdr->p_vaddr;
	else if (base)
		return false;
	*ret = v;
	return true;
}

/* From there on to the end of its segment: the real end is the first zero length. */
static void place_by_header(const struct elfsym_source *src, const struct elfsym_info *headers,
			    const Elf64_Phdr *hdr, struct place *p)
{
	u64 vaddr;
	u32 i;

	if (!eh_frame_pointer(src, hdr, &vaddr)) {
		p->err = -EINVAL;
		return;
	}
	for (i = 0; i < headers->nsegments; i++) {
		const struct module_segment *s = &headers->segments[i];
		u64 skip = vaddr - s->vaddr;

		if (vaddr < s->vaddr || skip >= s->file_size)
			continue;
		*p = (struct place){ .offset = s->offset + skip,
				     .size = MIN(s->file_size - skip, UNSIZED_MAX),
				     .vaddr = vaddr,
				     .unsized = true };
		check_place(src, EH_FRAME_MAX, p);
		return;
	}
	p->err = -EINVAL;
}

static int find_by_header(const struct elfsym_source *src, const Elf64_Ehdr *eh,
			  const struct elfsym_info *headers, struct place *p)
{
	_cleanup_free_ Elf64_Phdr *phdrs = NULL;
	u32 i;
	int err;

	/* Checked by elfsym_info() as well, but the file may have changed since. */
	if (!eh->e_phnum || eh->e_phnum > PHDRS_MAX || eh->e_phentsize != sizeof(phdrs[0]))
		return -EINVAL;
	err = read_new(src, eh->e_phoff, eh->e_phnum * sizeof(phdrs[0]), &phdrs);
	for (i = 0; !err && i < eh->e_phnum; i++) {
		if (phdrs[i].p_type == PT_GNU_EH_FRAME) {
			place_by_header(src, headers, &phdrs[i], p);
			break;
		}
	}
	return err;
}

/* --- loading ------------------------------------------------------------------------------ */

/* The next piece of the stream; *off and *left move on. */
static int inflate_input(const struct elfsym_source *src, z_stream *z, u8 *buf, size_t size,
			 u64 *off, u64 *left)
{
	size_t n = MIN(*left, size);
	int err = read_at(src, *off, buf, n);

	if (err)
		return err;
	*off += n;
	*left -= n;
	z->next_in = buf;
	z->avail_in = (uInt)n;
	return 0;
}

/* Fills exactly the claimed size; a stream that holds more or less is unsound. */
static int inflate_place(const struct elfsym_source *src, const struct place *p, u8 *to)
{
	z_stream z = { .next_out = to, .avail_out = (uInt)p->plain_size };
	u64 off = p->offset, left = p->size;
	u8 in[16384];
	int rc = Z_OK, err = 0;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	/* Each turn takes input away; there is at most p->size of it. */
	while (!err && rc == Z_OK && (z.avail_in || left)) {
		if (!z.avail_in)
			err = inflate_input(src, &z, in, sizeof(in), &off, &left);
		if (!err)
			rc = inflate(&z, Z_NO_FLUSH);
	}
	inflateEnd(&z);
	if (err)
		return err;
	return rc == Z_STREAM_END && !z.avail_out ? 0 : rc == Z_MEM_ERROR ? -ENOMEM : -EINVAL;
}

static int frame_load(const struct elfsym_source *src, const struct place *p, struct frame *ret)
{
	struct frame f = { .size = p->size, .vaddr = p->vaddr, .unsized = p->unsized };
	int err;

	if (p->err)
		return p->err;
	if (!p->inflate) {
		err = read_new(src, p->offset, p->size, &f.data);
	} else {
		f.size = p->plain_size;
		/* Pages that no byte is written to cost nothing: the claim may be a lie. */
		f.data = malloc(f.size);
		err = f.data ? inflate_place(src, p, f.data) : -ENOMEM;
	}
	if (err) {
		free(f.data);
		return err;
	}
	*ret = f;
	return 0;
}

/*
 * Go's assembler writes CFI for functions that leave their stack as if they did not. A table that is
 * damaged tells nothing, as if it were not there.
 */
static int find_switchers(struct elf *e, const struct elfsym_sections *s)
{
	_cleanup_free_ u8 *table = NULL;
	struct pclntab_text text;
	size_t len;
	int err = pclntab_read(&e->src, s, PCLNTAB_MAX, &table, &len, &text);

	if (!err)
		err = pclntab_switchers(table, len, &text, &e->left_out, &e->nleft_out);
	return err == -ENOMEM ? err : 0;
}

static int find_places(struct elf *e, const Elf64_Ehdr *eh, const struct elfsym_info *headers,
		       struct place *eh_frame, struct place *debug_frame)
{
	_cleanup_(elfsym_sections_fini) struct elfsym_sections s = { 0 };
	const Elf64_Shdr *h;
	int err = elfsym_sections(&e->src, &s);

	/* Without them, or when they are damaged, the program headers lead to what is loaded. */
	if (err == -ENOMEM)
		return err;
	note_sframe(&e->src, &s, &e->info);
	if ((h = elfsym_section(&s, ".debug_frame")))
		place_debug_frame(&e->src, h, debug_frame);
	else if ((h = elfsym_section(&s, ".zdebug_frame")))
		place_zdebug_frame(&e->src, h, debug_frame);
	if ((h = elfsym_section(&s, ".eh_frame")))
		place_eh_frame(&e->src, h, eh_frame);
	else
		err = find_by_header(&e->src, eh, headers, eh_frame);
	return err ? err : find_switchers(e, &s);
}

/*
 * One of the two is enough: a broken .debug_frame does not take .eh_frame away, nor the other way
 * round. Without either, what is wrong with the first one that exists.
 */
static int load_frames(struct elf *e, const Elf64_Ehdr *eh, const struct elfsym_info *headers)
{
	struct place eh_frame = { .err = -ENOENT }, debug_frame = { .err = -ENOENT };
	int err = find_places(e, eh, headers, &eh_frame, &debug_frame), err2;

	if (err)
		return err;
	err = frame_load(&e->src, &eh_frame, &e->eh);
	if (err == -ENOMEM)
		return err;
	err2 = frame_load(&e->src, &debug_frame, &e->debug);
	if (err2 == -ENOMEM)
		return err2;
	e->info.eh_frame = !err;
	e->info.eh_frame_size = e->eh.size;
	e->info.eh_frame_unsized = e->eh.unsized;
	e->info.debug_frame = !err2;
	e->info.debug_frame_size = e->debug.size;
	if (!err || !err2)
		return 0;
	return err != -ENOENT ? err : err2;
}

static void text_range(struct elf *e, const struct elfsym_info *headers)
{
	u32 i;

	e->text_lo = UINT64_MAX;
	for (i = 0; i < headers->nsegments; i++) {
		const struct module_segment *s = &headers->segments[i];

		if (!s->exec || !s->mem_size)
			continue;
		e->text_lo = MIN(e->text_lo, s->vaddr);
		e->text_hi = MAX(e->text_hi, s->vaddr + s->mem_size);
		if (__builtin_add_overflow(e->info.text_size, s->mem_size, &e->info.text_size))
			e->info.text_size = UINT64_MAX;
	}
}

static int source_init(int fd, const u8 *image, size_t image_len, struct elfsym_source *src)
{
	struct stat st;

	*src = (struct elfsym_source){ .fd = fd, .mem = image, .size = image_len };
	if (fd < 0)
		return image ? 0 : -EINVAL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 0)
		return -EINVAL;
	src->size = (u64)st.st_size;
	return 0;
}

static int elf_load(int fd, const u8 *image, size_t image_len, struct elf *e)
{
	_cleanup_(elfsym_info_fini) struct elfsym_info headers = { 0 };
	Elf64_Ehdr eh;
	int err;

	err = source_init(fd, image, image_len, &e->src);
	if (!err)
		err = elfsym_info(&e->src, &headers);
	if (!err)
		err = read_at(&e->src, 0, &eh, sizeof(eh));
	if (err)
		return err == -ENOEXEC || err == -EIO ? -EINVAL : err;
	e->arch = eh.e_machine == EM_AARCH64 ? CFI_ARM64 : CFI_X86_64;
	text_range(e, &headers);
	return e->text_lo < e->text_hi ? load_frames(e, &eh, &headers) : -ENOENT;
}

/* --- compiling ---------------------------------------------------------------------------- */

static int add_frame(struct cfi *c, const struct frame *f, bool debug_frame)
{
	struct cfi_section s = { .data = f->data,
				 .size = f->size,
				 .vaddr = f->vaddr,
				 .debug_frame = debug_frame,
				 .unsized = f->unsized };

	return f->data ? cfi_add(c, &s) : 0;
}

static int compile(const struct elf *e, struct cfi *ret)
{
	struct cfi_limits limits = CFI_LIMITS_DEFAULT;
	struct cfi c;
	int err;

	cfi_init(&c, e->arch, e->text_lo, e->text_hi, &limits);
	err = add_frame(&c, &e->eh, false);
	if (!err)
		err = add_frame(&c, &e->debug, true);
	cfi_leave_out(&c, e->left_out, e->nleft_out);
	if (!err)
		err = cfi_run(&c);
	if (err)
		cfi_fini(&c);
	else
		*ret = c;
	return err;
}

/* A table that knows half of a file would make the other half look like code without frames. */
bool tablefile_over_limit(const struct cfi *c)
{
	return c->note[CFI_NOTE_section_size] || c->note[CFI_NOTE_limit_fdes] ||
	       c->note[CFI_NOTE_limit_rows] || c->note[CFI_NOTE_limit_rules] ||
	       c->note[CFI_NOTE_limit_ops];
}

int tablefile_cfi(int fd, const u8 *image, size_t image_len, struct cfi *ret,
		  struct tablefile_info *info)
{
	_cleanup_(elf_fini) struct elf e = { 0 };
	double start = cpu_seconds();
	int err;

	err = elf_load(fd, image, image_len, &e);
	if (!err)
		err = compile(&e, ret);
	e.info.compile_s = cpu_seconds() - start;
	if (info)
		*info = e.info;
	return err;
}

/* The sections are let go before packing begins. */
static int compile_table(struct elf *e, struct table *ret)
{
	_cleanup_(cfi_fini) struct cfi c = { 0 };
	int err = compile(e, &c);

	elf_fini(e);
	if (err)
		return err;
	if (tablefile_over_limit(&c))
		return -E2BIG;
	return c.nrows ? table_pack(&c, ret) : -ENOENT;
}

/* --- cache -------------------------------------------------------------------------------- */

#define CACHE_NAME_MAX (2 * ELFSYM_ID_MAX + 32)
#define CACHE_FILE_MAX (64u << 20)
#define CACHE_LISTED   16384 /* names looked at when making room */
#define TEMP_PREFIX    ".tbl-"
#define TEMP_AGE_S     3600 /* of a run that was killed */
#define DIGEST_LEN     SHA256_DIGEST_SIZE

struct cache {
	int dir_fd; /* -1: not cached */
	char name[CACHE_NAME_MAX];
	u8 digest[DIGEST_LEN];
};

static void cache_fini(struct cache *c)
{
	closep(&c->dir_fd);
}

static void digest_frame(struct sha256_ctx *sha, const struct frame *f)
{
	u64 head[] = { f->size, f->vaddr, f->unsized };

	sha256_update(sha, sizeof(head), (const u8 *)head);
	if (f->data)
		sha256_update(sha, f->size, f->data);
}

/* Of all that compile() reads: equal digest, equal table. */
static void digest(const struct elf *e, u8 *ret)
{
	u64 head[] = { TABLE_VERSION, e->arch, e->text_lo, e->text_hi };
	struct sha256_ctx sha;

	sha256_init(&sha);
	sha256_update(&sha, sizeof(head), (const u8 *)head);
	digest_frame(&sha, &e->eh);
	digest_frame(&sha, &e->debug);
	sha256_update(&sha, e->nleft_out * sizeof(*e->left_out), (const u8 *)e->left_out);
	sha256_digest(&sha, DIGEST_LEN, ret);
}

/* It becomes part of a path. */
static bool is_hex(const char *s)
{
	size_t len = strlen(s);

	return len && len <= 2 * ELFSYM_ID_MAX && strspn(s, "0123456789abcdef") == len;
}

/* Nobody else may write there, or tables would be anybody's. */
static int open_cache_dir(const char *path)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -1;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
		return -1;
	return take_fd(&fd);
}

static void cache_init(struct cache *c, const struct elf *e, const char *build_id,
		       const char *cache_dir)
{
	c->dir_fd = -1;
	if (!cache_dir || !build_id || !is_hex(build_id) ||
	    e->eh.size + e->debug.size < TABLEFILE_CACHE_MIN)
		return;
	c->dir_fd = open_cache_dir(cache_dir);
	if (c->dir_fd < 0)
		return;
	snprintf(c->name, sizeof(c->name), "%s-%d.tbl", build_id, TABLE_VERSION);
	digest(e, c->digest);
}

/* Whole contents of the cache file; owned. */
static int cache_read(int fd, u8 **ret, size_t *ret_len)
{
	struct elfsym_source src;
	int err = source_init(fd, NULL, 0, &src);

	if (err)
		return err;
	if (src.size > CACHE_FILE_MAX)
		return -EINVAL;
	*ret_len = src.size;
	return read_new(&src, 0, src.size, ret);
}

/* False: not there, of another file, or damaged; damaged ones are removed. */
static bool cache_get(const struct cache *c, struct table *ret)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ u8 *data = NULL;
	size_t len = 0;
	int err;

	if (c->dir_fd < 0)
		return false;
	fd = openat(c->dir_fd, c->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	err = cache_read(fd, &data, &len);
	if (!err && len >= DIGEST_LEN && memcmp(data, c->digest, DIGEST_LEN) != 0)
		return false;
	if (!err)
		err = len > DIGEST_LEN ? table_load(data + DIGEST_LEN, len - DIGEST_LEN, ret)
				       : -EINVAL;
	if (err == -EINVAL)
		unlinkat(c->dir_fd, c->name, 0);
	if (err)
		return false;
	/* Used now: making room goes by this time. */
	futimens(fd, NULL);
	return true;
}

/* Not synced: what a power cut leaves behind fails its checksum and is made again. */
static int write_renamed(const struct cache *c, const u8 *data, size_t len)
{
	_cleanup_close_ int fd = -1;
	char temp[64];
	int err;

	snprintf(temp, sizeof(temp), TEMP_PREFIX "%d-%llx", gettid(),
		 (unsigned long long)now_monotonic());
	fd = openat(c->dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	err = write_all(fd, c->digest, DIGEST_LEN);
	if (!err)
		err = write_all(fd, data, len);
	if (!err && renameat(c->dir_fd, temp, c->dir_fd, c->name))
		err = -errno;
	if (err)
		unlinkat(c->dir_fd, temp, 0);
	return err;
}

struct listed {
	char name[CACHE_NAME_MAX];
	struct timespec used;
	u64 size;
};

struct listing {
	struct listed *files;
	u32 n, cap;
	u64 bytes;
};

static void listing_fini(struct listing *l)
{
	free(l->files);
}

static bool is_ours(const char *name)
{
	size_t len = strlen(name);

	return len < CACHE_NAME_MAX && ((len > 4 && !strcmp(name + len - 4, ".tbl")) ||
					!strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)));
}

static void list_file(struct listing *l, int dir_fd, const char *name, time_t now)
{
	struct stat st;

	if (!is_ours(name) || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(st.st_mode))
		return;
	if (name[0] == '.') {
		if (st.st_mtim.tv_sec < now - TEMP_AGE_S)
			unlinkat(dir_fd, name, 0);
		return;
	}
	if (VEC_RESERVE(l->files, l->cap, l->n + 1, CACHE_LISTED))
		return;
	l->files[l->n] = (struct listed){ .used = st.st_mtim, .size = (u64)st.st_size };
	snprintf(l->files[l->n].name, sizeof(l->files[l->n].name), "%s", name);
	l->bytes += l->files[l->n++].size;
}

static int by_use(const void *pa, const void *pb)
{
	const struct listed *a = pa, *b = pb;

	if (a->used.tv_sec != b->used.tv_sec)
		return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
	return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

/* Removes what was not used for longest, until the directory is within its bounds. */
static void make_room(int dir_fd)
{
	_cleanup_(listing_fini) struct listing l = { 0 };
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	time_t now = time(NULL);
	struct dirent *d;
	u32 i, seen = 0;

	if (!dir) {
		closep(&fd);
		return;
	}
	while (seen++ < CACHE_LISTED && (d = readdir(dir)))
		list_file(&l, dir_fd, d->d_name, now);
	closedir(dir);
	if (l.n <= TABLEFILE_CACHE_FILES && l.bytes <= TABLEFILE_CACHE_BYTES)
		return;
	qsort(l.files, l.n, sizeof(l.files[0]), by_use);
	for (i = 0; i < l.n; i++) {
		if (l.n - i <= TABLEFILE_CACHE_FILES && l.bytes <= TABLEFILE_CACHE_BYTES)
			break;
		unlinkat(dir_fd, l.files[i].name, 0);
		l.bytes -= l.files[i].size;
	}
}

/* A cache that cannot be written is no cache; the table is there all the same. */
static void cache_put(const struct cache *c, const struct table *t)
{
	_cleanup_free_ u8 *data = NULL;
	size_t len;

	if (c->dir_fd < 0 || table_save(t, &data, &len))
		return;
	if (len <= CACHE_FILE_MAX - DIGEST_LEN && !write_renamed(c, data, len))
		make_room(c->dir_fd);
}

int tablefile_compile(int fd, const u8 *image, size_t image_len, const char *build_id,
		      const char *cache_dir, struct table *ret, struct tablefile_info *info)
{
	_cleanup_(cache_fini) struct cache cache = { .dir_fd = -1 };
	_cleanup_(elf_fini) struct elf e = { 0 };
	double start = cpu_seconds();
	struct table t = { 0 };
	int err;

	err = elf_load(fd, image, image_len, &e);
	if (!err) {
		cache_init(&cache, &e, build_id, cache_dir);
		e.info.cached = cache_get(&cache, &t);
		if (!e.info.cached)
			err = compile_table(&e, &t);
	}
	if (!err && !e.info.cached)
		cache_put(&cache, &t);
	e.info.compile_s = cpu_seconds() - start;
	if (info)
		*info = e.info;
	if (!err)
		*ret = t;
	return err;
}
