// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. A running process as a target, see target.h. Memory and /proc files come through the
 * reader. Mappings and ELF images are taken in one go, the picture, when something is first asked
 * about them, and again when it has become old. Symbols come from the process's memory, then from
 * the mapped files.
 */
#include "maps.h"
#include "target.h"

#include "elfmem.h"
#include "htab.h"
#include "reader.h"
#include "target_files.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define PICTURE_AGE_NS (10 * NSEC_PER_SEC)
#define MAPS_BYTES_MAX (16u << 20) /* about 150,000 mappings */
#define MAPPINGS_MAX   (1u << 18)
#define JOBS_MAX       2048u /* calls of the reader for images and files since target_begin() */
#define FILE_BYTES_MAX (128ull << 20) /* of symbol tables searched since target_begin() */
#define GROUP_GAP_MAX  64             /* mappings between the first and the last one of an image */
#define STATUS_MAX     4096 /* threads whose status is read for their number in a namespace */

/* --- the picture ----------------------------------------------------------------------------- */

struct range {
	u64 lo, hi;
};

struct image {
	struct elfmem mem;
	struct range map; /* the mapping of its beginning */
	u32 major, minor;
	u64 ino;
	char *path; /* owned */
};

struct picture {
	struct range *mapped; /* all memory, neighbours joined, sorted */
	u32 nmapped, mapped_cap;
	struct image *images; /* by address */
	u32 nimages, images_cap;
};

static void image_fini(struct image *im)
{
	elfmem_fini(&im->mem);
	free(im->path);
}

static void picture_free(struct picture *p)
{
	u32 i;

	if (!p)
		return;
	for (i = 0; i < p->nimages; i++)
		image_fini(&p->images[i]);
	free(p->images);
	free(p->mapped);
	free(p);
}

static int add_mapped(struct picture *p, const struct range *r)
{
	int err;

	if (p->nmapped && p->mapped[p->nmapped - 1].hi == r->lo) {
		p->mapped[p->nmapped - 1].hi = r->hi;
		return 0;
	}
	err = VEC_RESERVE(p->mapped, p->mapped_cap, p->nmapped + 1, MAPPINGS_MAX);
	if (!err)
		p->mapped[p->nmapped++] = *r;
	return err;
}

/* What may be an image: mappings of one file from its offset 0 on, code among them. */
struct group {
	struct maps_line first;
	u32 n;   /* mappings since the first */
	u64 end; /* of the last */
	bool exec;
};

struct picture_job {
	u32 pid;
	struct picture *picture;
	struct group group;
};

static int read_memory(void *arg, u64 addr, void *dst, size_t len)
{
	const u32 *pid = arg;
	struct iovec local = { dst, len }, remote = { (void *)(uintptr_t)addr, len };

	return process_vm_readv((pid_t)*pid, &local, 1, &remote, 1, 0) == (ssize_t)len ? 0
										       : -EFAULT;
}

static char *image_path(const struct maps_line *m)
{
	static const char deleted[] = " (deleted)";
	size_t len = m->path_len, d = sizeof(deleted) - 1;

	if (len > d && !memcmp(m->path + len - d, deleted, d))
		len -= d;
	return strndup(m->path, MIN(len, 4095));
}

/* When there are too many, those in the middle go: the program comes first, its libraries last. */
static int make_room(struct picture *p)
{
	if (p->nimages < TARGET_MODULES_MAX)
		return VEC_RESERVE(p->images, p->images_cap, p->nimages + 1, TARGET_MODULES_MAX);
	image_fini(&p->images[TARGET_MODULES_MAX / 2]);
	memmove(&p->images[TARGET_MODULES_MAX / 2], &p->images[TARGET_MODULES_MAX / 2 + 1],
		(TARGET_MODULES_MAX / 2 - 1) * sizeof(p->images[0]));
	p->nimages--;
	return 0;
}

/* The group is complete: an image if its memory says so. */
static int end_group(struct picture_job *j)
{
	const struct elfmem_source src = { read_memory, &j->pid };
	struct group g = j->group;
	struct image im = { 0 };
	int err;

	j->group = (struct group){ 0 };
	if (!g.n || !g.exec)
		return 0;
	err = elfmem_open(&src, g.first.lo, &im.mem);
	if (err)
		return err == -ENOMEM ? err : 0;
	im.map = (struct range){ g.first.lo, g.first.hi };
	im.major = g.first.major;
	im.minor = g.first.minor;
	im.ino = g.first.ino;
	im.path = image_path(&g.first);
	err = im.path ? make_room(j->picture) : -ENOMEM;
	if (err) {
		image_fini(&im);
		return err;
	}
	j->picture->images[j->picture->nimages++] = im;
	return 0;
}

static bool is_vdso(const struct maps_line *m)
{
	return m->path_len == 6 && !memcmp(m->path, "[vdso]", 6);
}

/*
 * Does the mapping go on with the group? Memory without a file does when it follows at once: .bss,
 * or text that was copied to other pages.
 */
static bool in_group(const struct group *g, const struct maps_line *m)
{
	if (!g->n || g->n >= GROUP_GAP_MAX)
		return false;
	if (!m->ino)
		return m->lo == g->end && !m->path_len;
	return m->offset && m->ino == g->first.ino && m->major == g->first.major &&
	       m->minor == g->first.minor;
}

static int add_line(struct picture_job *j, const struct maps_line *m)
{
	struct group *g = &j->group;
	int err = add_mapped(j->picture, &(struct range){ m->lo, m->hi });

	if (!err && !in_group(g, m)) {
		err = end_group(j);
		if ((m->ino && !m->offset && m->readable) || is_vdso(m))
			g->first = *m;
		else
			return err;
	}
	g->n++;
	g->end = m->hi;
	g->exec |= m->exec;
	return err;
}

static int parse_maps(struct picture_job *j, const char *text, size_t len)
{
	const char *end = text + len, *next;
	int err = 0;

	for (; !err && text < end; text = next + 1) {
		struct maps_line m;

		next = memchr(text, '\n', (size_t)(end - text));
		if (!next)
			next = end;
		if (maps_parse(text, (size_t)(next - text), &m))
			err = add_line(j, &m);
	}
	return err ? err : end_group(j);
}

static int run_picture(void *arg)
{
	struct picture_job *j = arg;
	_cleanup_free_ char *text = NULL;
	char path[64];
	size_t len;
	int err;

	snprintf(path, sizeof(path), "/proc/%u/maps", j->pid);
	err = read_file(path, MAPS_BYTES_MAX, &text, &len);
	return err ? err : parse_maps(j, text, len);
}

static void picture_drop(void *arg)
{
	struct picture_job *j = arg;

	picture_free(j->picture);
	free(j);
}

static int picture_take(u32 pid, struct reader *reader, struct picture **ret)
{
	struct picture_job *j = calloc(1, sizeof(*j));
	int err;

	if (!j)
		return -ENOMEM;
	j->pid = pid;
	j->picture = calloc(1, sizeof(*j->picture));
	if (!j->picture) {
		free(j);
		return -ENOMEM;
	}
	err = reader_call(reader, run_picture, j, picture_drop, READER_WAIT_NS);
	if (err == -ETIMEDOUT)
		return err;
	if (!err)
		*ret = take_ptr(j->picture);
	picture_drop(j);
	return err;
}

/* --- the target ------------------------------------------------------------------------------ */

struct live {
	struct target t;
	u32 pid;
	struct reader *reader;
	struct target_files *files;
	bool own_files;
	target_threads_fn *threads_fn;
	void *threads_arg;
	u64 identity;       /* of start and address space; 0: not known */
	bool gone, checked; /* checked: the identity, in this walk */
	struct picture *picture;
	u64 picture_ns;
	u32 jobs;
	u64 file_bytes;
	struct target_thread *threads; /* of this walk */
	u32 nthreads, threads_cap;
	bool have_threads;
};

static struct live *live_of(struct target *t)
{
	return (struct live *)t;
}

/*
 * Start time, start of code and of stack: another process under the pid, and another program in the
 * same process, have others. 0: gone.
 */
static u64 identity_of(u32 pid)
{
	_cleanup_free_ char *text = NULL;
	char path[64], *p;
	u64 v[3] = { 0 };
	int field;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (read_file(path, 4096, &text, NULL))
		return 0;
	/* The name may hold anything; field 3 begins behind the last ')'. */
	p = strrchr(text, ')');
	for (field = 2; p && field <= 28; field++) {
		if (field == 22)
			v[0] = strtoull(p, NULL, 10);
		if (field == 26)
			v[1] = strtoull(p, NULL, 10);
		if (field == 28)
			v[2] = strtoull(p, NULL, 10);
		p = strchr(p + 1, ' ');
	}
	return p ? hash_bytes(v, sizeof(v)) | 1 : 0;
}

/*
 * Asked before the process is, once a walk: a walk that finds all its names known asks nothing, and
 * what the picture says is of the image that it was taken of.
 */
static bool is_gone(struct live *l)
{
	if (!l->checked) {
		l->checked = true;
		l->gone = l->gone || identity_of(l->pid) != l->identity;
	}
	return l->gone;
}

static void live_begin(struct target *t)
{
	struct live *l = live_of(t);

	l->jobs = 0;
	l->file_bytes = FILE_BYTES_MAX;
	l->nthreads = 0;
	l->have_threads = false;
	l->checked = false;
	if (l->picture && now_monotonic() - l->picture_ns > PICTURE_AGE_NS) {
		picture_free(l->picture);
		l->picture = NULL;
	}
}

static void live_rest(struct target *t)
{
	struct live *l = live_of(t);

	picture_free(l->picture);
	l->picture = NULL;
	free(l->threads);
	l->threads = NULL;
	l->nthreads = l->threads_cap = 0;
	l->have_threads = false;
}

static void live_free(struct target *t)
{
	struct live *l = live_of(t);

	live_rest(t);
	if (l->own_files)
		target_files_free(l->files);
	free(l);
}

static int live_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct live *l = live_of(t);
	int err;

	if (is_gone(l))
		return -ESRCH;
	err = reader_memory(l->reader, l->pid, addr, dst, len);
	if (err == -ETIMEDOUT)
		t->hung = true;
	return err;
}

/* May the reader be asked once more for this walk? */
static bool may_call(struct live *l)
{
	if (l->t.hung || l->jobs >= JOBS_MAX || is_gone(l))
		return false;
	l->jobs++;
	return true;
}

static struct picture *picture_of(struct live *l)
{
	int err;

	if (l->picture || !may_call(l))
		return l->picture;
	err = picture_take(l->pid, l->reader, &l->picture);
	if (err == -ETIMEDOUT)
		l->t.hung = true;
	l->picture_ns = now_monotonic();
	return l->picture;
}

static struct image *image_of(struct live *l, u32 i)
{
	struct picture *p = picture_of(l);

	return p && i < p->nimages ? &p->images[i] : NULL;
}

static bool live_module(struct target *t, u32 i, struct target_module *ret)
{
	const struct image *im = image_of(live_of(t), i);

	if (!im)
		return false;
	*ret = (struct target_module){
		.path = im->path, .bias = im->mem.bias, .lo = im->mem.lo, .hi = im->mem.hi
	};
	return true;
}

/* --- images in memory ------------------------------------------------------------------------ */

/* One look-up in the reader; its own copy of the image, but for the filter. */
struct image_job {
	u32 pid;
	struct elfmem mem;
	char name[TARGET_NAME_MAX];
	u64 addr;
	struct elfmem_symbol symbol;
	u64 lo, hi;
};

static int run_symbol(void *arg)
{
	struct image_job *j = arg;
	const struct elfmem_source src = { read_memory, &j->pid };

	return elfmem_symbol(&src, &j->mem, j->name, &j->symbol);
}

static int run_function(void *arg)
{
	struct image_job *j = arg;
	const struct elfmem_source src = { read_memory, &j->pid };

	return elfmem_function(&src, &j->mem, j->addr, &j->lo, &j->hi);
}

static struct image_job *image_job_new(const struct live *l, const struct image *im)
{
	struct image_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->pid = l->pid;
	j->mem = im->mem;
	j->mem.filter = NULL;
	return j;
}

/* Runs it; the job is the caller's only when the result is 0. */
static int image_job_run(struct live *l, struct image_job *j, int (*fn)(void *arg))
{
	int err = reader_call(l->reader, fn, j, free, READER_WAIT_NS);

	if (err == -ETIMEDOUT)
		l->t.hung = true;
	else if (err)
		free(j);
	return err;
}

static u64 symbol_address(const struct image *im, u64 value, bool tls, bool absolute)
{
	return tls || absolute ? value : im->mem.bias + value;
}

/* From .dynsym as it lies in memory; false: no such symbol. */
static bool memory_symbol(struct live *l, const struct image *im, const char *name, u64 *addr,
			  u64 *size)
{
	_cleanup_free_ struct image_job *j = NULL;

	if (!elfmem_may_have(&im->mem, name) || !may_call(l))
		return false;
	j = image_job_new(l, im);
	if (!j)
		return false;
	snprintf(j->name, sizeof(j->name), "%s", name);
	if (image_job_run(l, j, run_symbol)) {
		j = NULL;
		return false;
	}
	*addr = symbol_address(im, j->symbol.value, j->symbol.tls, j->symbol.absolute);
	*size = j->symbol.size;
	return true;
}

static bool live_function(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi)
{
	_cleanup_free_ struct image_job *j = NULL;
	struct live *l = live_of(t);
	const struct image *im = image_of(l, i);

	if (!im || addr < im->mem.lo || addr >= im->mem.hi || !may_call(l))
		return false;
	j = image_job_new(l, im);
	if (!j)
		return false;
	j->addr = addr;
	if (image_job_run(l, j, run_function)) {
		j = NULL;
		return false;
	}
	*lo = j->lo;
	*hi = j->hi;
	return true;
}

/* --- files ----------------------------------------------------------------------------------- */

static struct target_file file_of(const struct live *l, const struct image *im)
{
	return (struct target_file){
		.pid = l->pid,
		.lo = im->map.lo,
		.hi = im->map.hi,
		.major = im->major,
		.minor = im->minor,
		.ino = im->ino,
		.head_hash = im->mem.head_hash,
		.head_len = im->mem.head_len,
		.path = im->path,
	};
}

/* After a file's answer: one that hangs ends the walk. */
static bool file_told(struct live *l, int err)
{
	if (err == -ETIMEDOUT)
		l->t.hung = true;
	return !err;
}

static u64 live_symbol(struct target *t, u32 i, const char *name, u64 *size)
{
	struct live *l = live_of(t);
	struct image *im = image_of(l, i);
	struct target_file_symbol symbol;
	struct target_file file;
	u64 addr;

	if (!im)
		return 0;
	if (memory_symbol(l, im, name, &addr, size))
		return addr;
	if (!im->ino || !may_call(l))
		return 0;
	file = file_of(l, im);
	if (!file_told(l, target_files_symbol(l->files, l->reader, &file, name, &l->file_bytes,
					      &symbol)))
		return 0;
	*size = symbol.size;
	return symbol_address(im, symbol.value, symbol.tls, symbol.absolute);
}

static u64 live_section(struct target *t, u32 i, const char *name, u64 *size)
{
	struct live *l = live_of(t);
	struct image *im = image_of(l, i);
	struct target_file file;
	u64 addr;

	if (!im || !im->ino || !may_call(l))
		return 0;
	file = file_of(l, im);
	if (!file_told(l, target_files_section(l->files, l->reader, &file, name, &addr, size)))
		return 0;
	return im->mem.bias + addr;
}

/* --- threads --------------------------------------------------------------------------------- */

static void add_thread(void *arg, const struct target_thread *thread)
{
	struct live *l = arg;

	if (!VEC_RESERVE(l->threads, l->threads_cap, l->nthreads + 1, TARGET_THREADS_MAX))
		l->threads[l->nthreads++] = *thread;
}

/* The last number of NSpid in a status file: the thread's in its own namespace; 0: not known. */
static u32 inner_tid(u32 pid, u32 tid)
{
	_cleanup_free_ char *text = NULL;
	char path[64], *line, *end;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/status", pid, tid);
	if (read_file(path, 65536, &text, NULL))
		return 0;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return tid;
	end = strchr(line + 1, '\n');
	if (end)
		*end = '\0';
	line = strrchr(line + 1, '\t');
	return line ? (u32)strtoul(line, NULL, 10) : tid;
}

static void threads_from_proc(struct live *l)
{
	/* In the host's namespace all numbers are the same; else each thread's has to be read. */
	bool same = inner_tid(l->pid, l->pid) == l->pid;
	struct dirent *d;
	char path[64];
	DIR *dir;
	u32 n = 0;

	snprintf(path, sizeof(path), "/proc/%u/task", l->pid);
	dir = opendir(path);
	if (!dir)
		return;
	while (n < TARGET_THREADS_MAX && (d = readdir(dir))) {
		struct target_thread thread = { .tid = (u32)strtoul(d->d_name, NULL, 10) };

		if (!thread.tid || (!same && ++n > STATUS_MAX))
			continue;
		if (!same)
			thread.tid = inner_tid(l->pid, thread.tid);
		if (thread.tid)
			add_thread(l, &thread);
	}
	closedir(dir);
}

static bool live_thread(struct target *t, u32 i, struct target_thread *ret)
{
	struct live *l = live_of(t);

	if (!l->have_threads && !is_gone(l)) {
		l->have_threads = true;
		if (!l->threads_fn || l->threads_fn(l->threads_arg, l->pid, add_thread, l)) {
			l->nthreads = 0;
			threads_from_proc(l);
		}
	}
	if (i >= l->nthreads)
		return false;
	*ret = l->threads[i];
	return true;
}

/* --- addresses ------------------------------------------------------------------------------- */

static bool is_mapped(const struct picture *p, u64 addr)
{
	u32 lo = 0, hi = p->nmapped;

	/* First range that ends behind addr; halves each turn. */
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (p->mapped[mid].hi <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->nmapped && addr >= p->mapped[lo].lo;
}

/* The last image that begins at or before addr is the only one that may hold it. */
static bool in_image(const struct picture *p, u64 addr)
{
	const struct image *im;
	u32 lo = 0, hi = p->nimages, i;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (p->images[mid].map.lo <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return false;
	im = &p->images[lo - 1];
	for (i = 0; i < im->mem.nsegments; i++)
		if (addr >= im->mem.segment[i].lo && addr < im->mem.segment[i].hi)
			return true;
	return false;
}

static enum target_memory live_memory(struct target *t, u64 addr)
{
	const struct picture *p = picture_of(live_of(t));

	if (!p || !is_mapped(p, addr))
		return TARGET_NOTHING;
	return in_image(p, addr) ? TARGET_IMAGE : TARGET_OTHER;
}

/* --- making ---------------------------------------------------------------------------------- */

static const struct target_ops live_ops = {
	.read = live_read,
	.module = live_module,
	.symbol = live_symbol,
	.section = live_section,
	.function = live_function,
	.thread = live_thread,
	.memory = live_memory,
	.begin = live_begin,
	.rest = live_rest,
	.free = live_free,
};

/* An image in the process tells what it is built for; one without images runs what we run. */
static enum target_arch arch_of(const struct picture *p)
{
	if (p->nimages)
		return p->images[0].mem.machine == EM_AARCH64 ? TARGET_ARM64 : TARGET_X86_64;
#ifdef __aarch64__
	return TARGET_ARM64;
#else
	return TARGET_X86_64;
#endif
}

int target_live_new(u32 pid, struct reader *reader, struct target_files *files,
		    target_threads_fn *threads, void *arg, struct target **ret)
{
	_cleanup_free_ struct live *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	*l = (struct live){
		.t = { .ops = &live_ops },
		.pid = pid,
		.reader = reader,
		.files = files,
		.threads_fn = threads,
		.threads_arg = arg,
		.identity = identity_of(pid),
		.file_bytes = FILE_BYTES_MAX,
	};
	if (!l->identity)
		return -ESRCH;
	err = picture_take(pid, reader, &l->picture);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	l->picture_ns = now_monotonic();
	l->t.arch = arch_of(l->picture);
	if (!files) {
		l->own_files = true;
		l->files = target_files_new();
		if (!l->files) {
			picture_free(l->picture);
			return -ENOMEM;
		}
	}
	*ret = &take_ptr(l)->t;
	return 0;
}
