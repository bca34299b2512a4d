// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See context.h. Sources of the layouts: "ELF Handling For Thread-Local Storage"
 * (Drepper), its x86-64 and AArch64 supplements; glibc 2.41: nptl/descr.h, sysdeps/x86_64/nptl/
 * tls.h, sysdeps/aarch64/nptl/tls.h, sysdeps/generic/dl-dtv.h, elf/dl-tlsdesc.h; musl 1.2.5:
 * src/internal/pthread_impl.h, ldso/dynlink.c.
 */
#include "context.h"

#include "elfmem.h"
#include "identity.h"
#include "log.h"
#include "maps.h"
#include "process.h"
#include "reader.h"
#include "stat.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define MAPS_MAX    (4u << 20)
#define IMAGES_MAX  2048 /* of a process that are looked at */
#define RELOCS_READ 512  /* at a time */
#define RELOCS_MAX  (1u << 20)
#define MODULES_TLS 4096      /* number of a module with thread-local memory */
#define STATIC_MAX  (1 << 20) /* bytes of blocks that lie at fixed distances: arm64 descriptors */
#define OFFSET_MAX  (1 << 28)
#define ROUND_MAX   4
#define HASTE_NS    (10 * NSEC_PER_SEC)

/* When to look again, in seconds; the last from then on. */
static const u32 pauses[] = { 2, 10, 60, 300 };

static const char no_symbol[] = "no file of it exports " CONTEXT_SYMBOL;

/* --- the chain -------------------------------------------------------------------------------- */

enum libc { LIBC_UNKNOWN, LIBC_GLIBC, LIBC_MUSL };

struct finder {
	const struct elfmem_source *src;
	const struct elfmem *m;
	struct elfmem_symbol sym;
	enum libc libc;
	struct context_entry *ret;
};

static int read_words(const struct finder *f, u64 addr, u64 *dst, size_t n)
{
	return f->src->read(f->src->arg, addr, dst, n * sizeof(*dst)) ? -EFAULT : 0;
}

/* At a fixed distance from the thread pointer: below it on x86-64, above it on arm64. */
static bool put_static(const struct finder *f, s64 off)
{
	bool below = f->m->machine == EM_X86_64;

	if (below ? off >= 0 || off < -OFFSET_MAX : off <= 0 || off > OFFSET_MAX)
		return false;
	f->ret->hop[0] = (s32)off;
	f->ret->nhops = 1;
	return true;
}

/*
 * In the block of a module, which the thread's vector leads to. In front of the vector's entries
 * glibc has how many there are, musl in the first one.
 */
static bool put_dynamic(const struct finder *f, u64 module)
{
	static const struct {
		s32 vector_x86, vector_arm64, check;
		u32 entry;
	} layouts[] = {
		[LIBC_GLIBC] = { 8, 0, -16, 16 },
		[LIBC_MUSL] = { 8, -8, 0, 8 },
	};

	if (!module || module > MODULES_TLS || f->libc == LIBC_UNKNOWN || f->sym.value > OFFSET_MAX)
		return false;
	f->ret->hop[0] = f->m->machine == EM_X86_64 ? layouts[f->libc].vector_x86
						    : layouts[f->libc].vector_arm64;
	f->ret->hop[1] = (s32)(module * layouts[f->libc].entry);
	f->ret->hop[2] = (s32)f->sym.value;
	f->ret->check = layouts[f->libc].check;
	f->ret->module = (u32)module;
	f->ret->nhops = 3;
	return true;
}

/* A descriptor's argument: a distance, or where module and offset are. */
static bool put_descriptor(const struct finder *f, u64 arg)
{
	bool is_distance = f->m->machine == EM_X86_64 ? (s64)arg < 0 : arg < STATIC_MAX;
	u64 pair[2];

	if (is_distance)
		return put_static(f, (s64)arg);
	return !read_words(f, arg, pair, 2) && pair[1] == f->sym.value && put_dynamic(f, pair[0]);
}

/* What the loader wrote there; false: it is none of the symbol's, or says nothing usable. */
static bool take_reloc(const struct finder *f, const Elf64_Rela *r)
{
	bool x86 = f->m->machine == EM_X86_64, named = ELF64_R_SYM(r->r_info) == f->sym.index;
	u32 type = (u32)ELF64_R_TYPE(r->r_info);
	u64 v[2];

	/* One without a symbol is of the file's own block; then the addend says where in it. */
	if (!named && ELF64_R_SYM(r->r_info))
		return false;
	if (type == (x86 ? R_X86_64_DTPMOD64 : R_AARCH64_TLS_DTPMOD))
		return !read_words(f, f->m->bias + r->r_offset, v, 2) &&
		       (!named || v[1] == f->sym.value) && put_dynamic(f, v[0]);
	if (!named && r->r_addend != (s64)f->sym.value)
		return false;
	if (type == (x86 ? R_X86_64_TPOFF64 : R_AARCH64_TLS_TPREL))
		return !read_words(f, f->m->bias + r->r_offset, v, 1) && put_static(f, (s64)v[0]);
	if (type == (x86 ? R_X86_64_TLSDESC : R_AARCH64_TLSDESC))
		return !read_words(f, f->m->bias + r->r_offset, v, 2) && v[0] &&
		       put_descriptor(f, v[1]);
	return false;
}

static bool by_relocs(const struct finder *f)
{
	Elf64_Rela r[RELOCS_READ];
	u64 total, done, n, i;
	u32 t;

	for (t = 0; t < ARRAY_SIZE(f->m->relocs); t++) {
		total = f->m->relocs[t] ? f->m->relocs_size[t] / sizeof(r[0]) : 0;
		total = MIN(total, (u64)RELOCS_MAX);
		for (done = 0; done < total; done += n) {
			n = MIN(total - done, (u64)RELOCS_READ);
			if (f->src->read(f->src->arg, f->m->relocs[t] + done * sizeof(r[0]), r,
					 n * sizeof(r[0])))
				break;
			for (i = 0; i < n; i++)
				if (take_reloc(f, &r[i]))
					return true;
		}
	}
	return false;
}

/* The program's own block is the first one: the ABI says where it is. */
static bool by_abi(const struct finder *f)
{
	u64 align = MAX(f->m->tls_align, (u64)1), value = f->sym.value;

	if (!f->m->executable || align & (align - 1) || align > OFFSET_MAX ||
	    f->m->tls_size > OFFSET_MAX || value > f->m->tls_size)
		return false;
	if (f->m->machine == EM_X86_64)
		return put_static(f, (s64)(value - ((f->m->tls_size + align - 1) & ~(align - 1))));
	return put_static(f, (s64)(((16 + align - 1) & ~(align - 1)) + value));
}

/* NULL: found; no_symbol, or why not. */
static const char *look_in_image(struct finder *f)
{
	struct context_entry chain;
	bool told;

	if (elfmem_symbol(f->src, f->m, CONTEXT_SYMBOL, &f->sym))
		return no_symbol;
	if (!f->sym.tls || f->sym.size != sizeof(u64))
		return CONTEXT_SYMBOL " is no thread-local pointer";
	told = by_relocs(f);
	chain = *f->ret;
	if (!by_abi(f))
		return told                      ? NULL
		       : f->libc == LIBC_UNKNOWN ? "its C library is not known, and " CONTEXT_SYMBOL
						   " not in the program"
						 : "where " CONTEXT_SYMBOL
						   " is for a thread is not written anywhere";
	/* Two ways to know are a proof, if they agree. */
	if (told && chain.nhops == 1 && chain.hop[0] != f->ret->hop[0])
		return CONTEXT_SYMBOL " is not where the ABI has it";
	if (told)
		*f->ret = chain;
	return NULL;
}

/* Does an ELF file's beginning lie there? Not what is no file, such as the vdso. */
static bool begins_image(const char *line, size_t len, u64 *ret)
{
	struct maps_line m;

	if (!maps_parse(line, len, &m))
		return false;
	*ret = m.lo;
	return !m.offset && m.ino && m.readable;
}

static bool has(const char *line, size_t len, const char *what)
{
	return memmem(line, len, what, strlen(what)) != NULL;
}

/* Musl's programs have its loader only; glibc's may have a file of any name beside libc. */
static enum libc find_libc(const char *maps, size_t len)
{
	if (has(maps, len, "/ld-musl-"))
		return LIBC_MUSL;
	return has(maps, len, "/libc.so.6") || has(maps, len, "/libc-2.") ? LIBC_GLIBC
									  : LIBC_UNKNOWN;
}

const char *context_locate(const struct elfmem_source *src, const char *maps, size_t len,
			   struct context_entry *ret)
{
	enum libc libc = find_libc(maps, len);
	const char *line, *end, *why = no_symbol;
	u32 images = 0;
	u64 base;

	for (line = maps; line < maps + len && images < IMAGES_MAX; line = end + 1) {
		struct context_entry chain = { 0 };
		struct elfmem m;
		const char *said;

		end = memchr(line, '\n', (size_t)(maps + len - line));
		if (!end)
			break;
		if (!begins_image(line, (size_t)(end - line), &base))
			continue;
		images++;
		if (elfmem_open(src, base, &m))
			continue;
		said = look_in_image(
			&(struct finder){ .src = src, .m = &m, .libc = libc, .ret = &chain });
		elfmem_fini(&m);
		if (!said) {
			*ret = chain;
			return NULL;
		}
		if (said != no_symbol)
			why = said;
	}
	return why;
}

/* --- the book --------------------------------------------------------------------------------- */

/* Of a process that says that its threads do: struct process's `context`. */
struct context {
	u64 due_ns, looked_ns;
	u64 maps_version;
	u32 looks;
	bool armed, has_route;
	u8 route;
	const char *told; /* why not; static */
};

struct contexts {
	struct processes *ps;
	struct reader *reader;
	struct contexts_kernel kernel;
	u32 next; /* process that the next round begins with */
};

struct job {
	u32 pid;
	struct context_entry entry;
	const char *why;
};

static int read_process(void *arg, u64 addr, void *dst, size_t len)
{
	const struct job *j = arg;
	struct iovec local = { dst, len }, remote = { (void *)(uintptr_t)addr, len };

	return process_vm_readv((pid_t)j->pid, &local, 1, &remote, 1, 0) == (ssize_t)len ? 0
											 : -EFAULT;
}

/* In the reader's thread. */
static int locate(void *arg)
{
	struct job *j = arg;
	const struct elfmem_source src = { read_process, j };
	_cleanup_free_ char *maps = NULL;
	char path[64];
	size_t len;
	int err;

	snprintf(path, sizeof(path), "/proc/%u/maps", j->pid);
	err = read_file(path, MAPS_MAX, &maps, &len);
	if (err)
		return err;
	j->why = context_locate(&src, maps, len, &j->entry);
	return 0;
}

static void disarm(struct contexts *cs, const struct process *p, struct context *c)
{
	if (!c->armed)
		return;
	c->armed = false;
	/* A younger image of the pid has the place, if there is one. */
	if (!p->replaced)
		cs->kernel.disarm(cs->kernel.arg, p->pid);
}

static const char *arm(struct contexts *cs, const struct process *p, struct context *c,
		       struct context_entry *entry)
{
	entry->start_ns = p->start_ns;
	entry->exec_id = p->exec_id;
	entry->has_route = c->has_route;
	entry->route = c->route;
	if (cs->kernel.arm(cs->kernel.arg, p->pid, entry))
		return "too many such processes";
	c->armed = true;
	return NULL;
}

static void look(struct contexts *cs, const struct process *p, struct context *c, u64 now)
{
	struct job *j = calloc(1, sizeof(*j));
	const char *why = "its memory cannot be read";
	int err;

	c->looked_ns = now;
	c->due_ns = now + pauses[MIN(c->looks, (u32)ARRAY_SIZE(pauses) - 1)] * NSEC_PER_SEC;
	c->looks++;
	c->maps_version = p->maps_version;
	if (!j)
		return stat_inc(STAT_no_memory);
	j->pid = p->pid;
	err = reader_call(cs->reader, locate, j, free, READER_WAIT_NS);
	if (!err)
		why = j->why ? j->why : arm(cs, p, c, &j->entry);
	if (err != -ETIMEDOUT)
		free(j);
	if (why)
		disarm(cs, p, c);
	/* One that is about to load a file with it is looked at again soon. */
	if (why && why != c->told && (why != no_symbol || c->looks > 2))
		log_info("process %u (%.*s): what its threads work on is not read: %s", p->pid,
			 COMM_LEN, p->comm, why);
	c->told = why;
}

static bool is_due(const struct process *p, const struct context *c, u64 now)
{
	return now >= c->due_ns ||
	       (p->maps_version != c->maps_version && now - c->looked_ns > HASTE_NS);
}

/* True when it was looked at. */
static bool visit(struct contexts *cs, struct process *p, u64 now)
{
	struct context *c = p->context;
	bool has_route;
	u8 route;

	if (!p->id_known || p->exited || p->replaced)
		return false;
	if (!identities_threads(p, &has_route, &route)) {
		if (c)
			disarm(cs, p, c);
		return false;
	}
	if (!c)
		c = p->context = calloc(1, sizeof(*c));
	if (!c)
		return false;
	if (c->has_route == has_route && c->route == route && !is_due(p, c, now))
		return false;
	c->has_route = has_route;
	c->route = route;
	look(cs, p, c, now);
	return true;
}

void contexts_round(struct contexts *cs, u64 now_ns)
{
	u32 n = processes_count(cs->ps), i, looked = 0;

	for (i = 0; i < n && looked < ROUND_MAX; i++)
		looked += visit(cs, processes_at(cs->ps, (cs->next + i) % n), now_ns);
	cs->next = n ? (cs->next + i) % n : 0;
}

static void on_drop(void *arg, struct process *p)
{
	struct context *c = p->context;

	if (!c)
		return;
	disarm(arg, p, c);
	free(c);
	p->context = NULL;
}

struct contexts *contexts_new(struct processes *ps, struct reader *r,
			      const struct contexts_kernel *kernel)
{
	struct contexts *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return NULL;
	cs->ps = ps;
	cs->reader = r;
	cs->kernel = *kernel;
	processes_on_drop(ps, on_drop, cs);
	return cs;
}

void contexts_free(struct contexts *cs)
{
	u32 i;

	if (!cs)
		return;
	for (i = 0; i < processes_count(cs->ps); i++)
		on_drop(cs, processes_at(cs->ps, i));
	processes_off_drop(cs->ps, cs);
	free(cs);
}
