// SPDX-License-Identifier: Apache-2.0
/*
 * The oracle of whole stacks: a real process is single-stepped, and at each stop its stack is
 * unwound by the host build of bpf/unwind.h and by libunwind, pc by pc. Where the two differ, two
 * more witnesses are heard: libdw, and the calls and returns that the tracer saw itself. What is
 * left is explained one by one in explained[] and tests/oracle/README.md. Without arguments a
 * quick run over a child of its own; tests/live_oracle.sh drives the rest:
 *
 *	test_oracle [--name N] [--max STOPS] [--every N] [--start] [--frames N] [-v] PROGRAM ARG...
 */
#include "tests/unwind_host.c"
#include "core/cfi.h"
#include "core/tablefile.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libunwind-ptrace.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#ifdef __x86_64__

#define MAPS_BYTES   (4u << 20)
#define FILES_MAX    128
#define PHDRS_MAX    32
#define STEPS_MAX    2000000
#define DIFFS_MAX    4096
#define CALLS_MAX    2048
#define MEM_PAGES    64
#define SEEN_BITS    16
#define ASK_DW_TIMES 4 /* of one kind of difference at one place */

/* --- the other unwinders ---------------------------------------------------------------------- */

#define STR_(x) #x
#define STR(x)  STR_(x)

static struct {
	unw_addr_space_t (*create)(unw_accessors_t *, int);
	int (*init)(unw_cursor_t *, unw_addr_space_t, void *);
	int (*step)(unw_cursor_t *);
	int (*get_reg)(unw_cursor_t *, unw_regnum_t, unw_word_t *);
	int (*caching)(unw_addr_space_t, unw_caching_policy_t);
	void (*destroy)(unw_addr_space_t);
	void (*flush)(unw_addr_space_t, unw_word_t, unw_word_t);
	void *(*upt_create)(pid_t);
	void (*upt_destroy)(void *);
	unw_accessors_t acc;
} lu;

static struct {
	Dwfl *(*begin)(const Dwfl_Callbacks *);
	void (*end)(Dwfl *);
	int (*report)(Dwfl *, pid_t);
	int (*report_end)(Dwfl *, int (*)(Dwfl_Module *, void *, const char *, Dwarf_Addr, void *),
			  void *);
	int (*attach)(Dwfl *, pid_t, bool);
	int (*frames)(Dwfl *, pid_t, int (*)(Dwfl_Frame *, void *), void *);
	bool (*pc)(Dwfl_Frame *, Dwarf_Addr *, bool *);
	Dwfl_Module *(*module)(Dwfl *, Dwarf_Addr);
	const char *(*symbol)(Dwfl_Module *, GElf_Addr, GElf_Off *, GElf_Sym *, GElf_Word *, Elf **,
			      Dwarf_Addr *);
	void *find_elf;
} dw;

struct symbol_of {
	const char *name;
	void *to;
};

static bool load(void *lib, const struct symbol_of *s, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		*(void **)s[i].to = lib ? dlsym(lib, s[i].name) : NULL;
		if (!*(void **)s[i].to)
			return false;
	}
	return true;
}

/* Both by dlopen(), as no other test links them. NULL, or what is missing. */
static const char *load_witnesses(void)
{
	unw_accessors_t *acc;
	const struct symbol_of unw[] = {
		{ STR(unw_create_addr_space), &lu.create },
		{ STR(unw_destroy_addr_space), &lu.destroy },
		{ STR(unw_init_remote), &lu.init },
		{ STR(unw_step), &lu.step },
		{ STR(unw_get_reg), &lu.get_reg },
		{ STR(unw_set_caching_policy), &lu.caching },
		{ STR(unw_flush_cache), &lu.flush },
	};
	const struct symbol_of upt[] = {
		{ "_UPT_create", &lu.upt_create },
		{ "_UPT_destroy", &lu.upt_destroy },
		{ "_UPT_accessors", &acc },
	};
	const struct symbol_of dwfl[] = {
		{ "dwfl_begin", &dw.begin },
		{ "dwfl_end", &dw.end },
		{ "dwfl_linux_proc_report", &dw.report },
		{ "dwfl_report_end", &dw.report_end },
		{ "dwfl_linux_proc_attach", &dw.attach },
		{ "dwfl_getthread_frames", &dw.frames },
		{ "dwfl_frame_pc", &dw.pc },
		{ "dwfl_addrmodule", &dw.module },
		{ "dwfl_module_addrinfo", &dw.symbol },
		{ "dwfl_linux_proc_find_elf", &dw.find_elf },
	};

	if (!load(dlopen("libunwind-x86_64.so.8", RTLD_NOW | RTLD_GLOBAL), unw, ARRAY_SIZE(unw)) ||
	    !load(dlopen("libunwind-ptrace.so.0", RTLD_NOW | RTLD_GLOBAL), upt, ARRAY_SIZE(upt)))
		return "libunwind";
	if (!load(dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL), dwfl, ARRAY_SIZE(dwfl)))
		return "libdw";
	lu.acc = *acc;
	return NULL;
}

/* --- the traced process ----------------------------------------------------------------------- */

/* One file (or the vdso) with its table in place; lo, hi and bias are each mapping's own. */
struct file {
	char *path;
	u64 inode;
	struct map_entry entry;
	u64 base;
	struct cfi *cfi; /* owned; what the table was packed from, NULL without a table */
	bool no_index;   /* no PT_GNU_EH_FRAME, or rows that come from .debug_frame */
	bool unaligned;  /* an executable segment that does not start on a page of the file */
	struct {
		u64 offset, vaddr, size;
	} load[PHDRS_MAX];
	u32 nloads;
};

struct call {
	u64 slot; /* where the return address lies */
	u64 ra;
};

/* What the tracer saw: calls since the first mark, over the callers that there were then. */
struct calls {
	struct call c[CALLS_MAX];
	u32 n;
	u64 base[MAX_USER_FRAMES];
	u32 nbase;
	u64 base_sp;
	bool lost; /* the stack was switched, or these first callers were left */
};

struct tracee {
	pid_t pid, tid; /* process, and the thread or vfork child that is stepped */
	pid_t vfork_parent;
	int status; /* of the last wait */
	struct user_regs_struct regs;
	struct unwind_host *host;
	struct stack_key key;
	u64 stack_top;
	char *maps;
	bool maps_stale;
	struct file file[FILES_MAX];
	u32 nfiles;
	struct map_entry entry[MAP_ENTRIES_MAX];
	const struct file *entry_file[MAP_ENTRIES_MAX]; /* NULL: memory that is no file */
	u32 nentries;
	unw_addr_space_t as;
	void *upt;
	pid_t upt_tid;
	Dwfl *dwfl;
	struct calls calls;
	struct {
		u64 addr;
		u8 bytes[4096];
	} page[MEM_PAGES]; /* memory at this stop */
	u8 seen[1 << SEEN_BITS];
};

static struct tracee *tracing; /* libunwind's memory accessor has no room for it */

static int read_tracee(void *arg, void *dst, size_t size, u64 addr)
{
	struct tracee *t = arg;
	size_t done, n;

	for (done = 0; done < size; done += n) {
		u64 at = addr + done, page = at & ~4095ull;
		u32 slot = (u32)(at >> 12) % MEM_PAGES;

		n = MIN(size - done, 4096 - (size_t)(at - page));
		if (t->page[slot].addr != page) {
			t->page[slot].addr = 1;
			if (unwind_host_read_pid(&t->tid, t->page[slot].bytes, 4096, page))
				return -EFAULT;
			t->page[slot].addr = page;
		}
		memcpy((u8 *)dst + done, t->page[slot].bytes + (at - page), n);
	}
	return 0;
}

static void forget_memory(struct tracee *t)
{
	u32 i;

	for (i = 0; i < MEM_PAGES; i++)
		t->page[i].addr = 1;
}

static int lu_access_mem(unw_addr_space_t as __unused, unw_word_t addr, unw_word_t *val, int write,
			 void *arg __unused)
{
	if (write || read_tracee(tracing, val, sizeof(*val), addr))
		return -UNW_EINVAL;
	return 0;
}

static int lu_access_reg(unw_addr_space_t as __unused, unw_regnum_t reg, unw_word_t *val, int write,
			 void *arg __unused)
{
	static const u8 place[] = { 10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16 };

	if (write || reg < 0 || (size_t)reg >= ARRAY_SIZE(place))
		return -UNW_EBADREG;
	*val = ((const unw_word_t *)&tracing->regs)[place[reg]];
	return 0;
}

/* --- mappings and tables ---------------------------------------------------------------------- */

static void file_loads(struct file *f, const u8 *head, size_t n)
{
	const Elf64_Ehdr *eh = (const void *)head;
	const Elf64_Phdr *ph;
	u32 i;

	if (n < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG))
		return;
	f->no_index = true;
	for (i = 0; i < eh->e_phnum && f->nloads < PHDRS_MAX; i++) {
		ph = (const void *)(head + eh->e_phoff + i * sizeof(*ph));
		if (eh->e_phoff + (i + 1) * sizeof(*ph) > n)
			return;
		if (ph->p_type == PT_GNU_EH_FRAME)
			f->no_index = false;
		if (ph->p_type != PT_LOAD)
			continue;
		if (ph->p_flags & PF_X && ph->p_offset & 4095)
			f->unaligned = true;
		f->load[f->nloads].offset = ph->p_offset;
		f->load[f->nloads].vaddr = ph->p_vaddr;
		f->load[f->nloads++].size = ph->p_filesz;
	}
}

/* The table as the daemon makes it, and the rows behind it. */
static int compile(int fd, const u8 *image, size_t len, struct file *f, struct table *table)
{
	struct tablefile_info info = { 0 };
	struct cfi *cfi;
	int err;

	err = tablefile_compile(fd, image, len, "", NULL, table, &info);
	if (err)
		return err;
	f->no_index |= info.debug_frame;
	cfi = calloc(1, sizeof(*cfi));
	assert_non_null(cfi);
	assert_int_equal(tablefile_cfi(fd, image, len, cfi, NULL), 0);
	f->cfi = cfi;
	return 0;
}

static void file_compile(struct tracee *t, struct file *f, u64 lo, u64 hi)
{
	_cleanup_free_ u8 *image = NULL;
	_cleanup_close_ int fd = -1;
	struct table table = { 0 };
	u8 head[4096];
	ssize_t n;
	int err;

	if (!strcmp(f->path, "[vdso]")) {
		image = malloc(hi - lo);
		assert_non_null(image);
		if (read_tracee(t, image, hi - lo, lo))
			return;
		file_loads(f, image, hi - lo);
		err = compile(-1, image, hi - lo, f, &table);
	} else {
		fd = open(f->path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return;
		n = pread(fd, head, sizeof(head), 0);
		file_loads(f, head, n > 0 ? (size_t)n : 0);
		err = compile(fd, NULL, 0, f, &table);
	}
	if (err) {
		f->entry.kind = err == -ENOENT ? MAP_FP : MAP_PENDING;
		printf("# %s: no table: %s\n", f->path, strerror(-err));
		return;
	}
	f->base = table.base;
	assert_int_equal(unwind_host_place(t->host, &table, &f->entry), 0);
	table_fini(&table);
}

/* The file of a mapping, compiled when it is seen first; NULL: memory that is no file. */
static struct file *file_of(struct tracee *t, const char *path, u64 inode, u64 lo, u64 hi)
{
	struct file *f;
	u32 i;

	if (path[0] != '/' && strcmp(path, "[vdso]") != 0)
		return NULL;
	for (i = 0; i < t->nfiles; i++)
		if (t->file[i].inode == inode && !strcmp(t->file[i].path, path))
			return &t->file[i];
	if (t->nfiles == FILES_MAX)
		return NULL;
	f = &t->file[t->nfiles++];
	f->path = strdup(path);
	assert_non_null(f->path);
	f->inode = inode;
	f->entry.kind = MAP_PENDING;
	file_compile(t, f, lo, hi);
	return f;
}

static void add_mapping(struct tracee *t, const char *line)
{
	struct map_entry *e = &t->entry[t->nentries];
	u64 lo, hi, offset, inode;
	struct file *f;
	char perm[8];
	int at = 0;
	u32 i;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %" SCNu64 " %n", &lo, &hi,
		   perm, &offset, &inode, &at) != 5 ||
	    perm[2] != 'x' || t->nentries == MAP_ENTRIES_MAX)
		return;
	f = file_of(t, line + at, inode, lo, hi);
	memset(e, 0, sizeof(*e));
	e->kind = MAP_JIT;
	t->entry_file[t->nentries] = f;
	if (f) {
		*e = f->entry;
		for (i = 0; i < f->nloads; i++)
			if (offset >= (f->load[i].offset & ~4095ull) &&
			    offset < f->load[i].offset + f->load[i].size)
				e->bias = lo - offset + f->load[i].offset - f->load[i].vaddr +
					  f->base;
	}
	e->lo = lo;
	e->hi = hi;
	t->nentries++;
}

/* Reads the mappings again and publishes them, when they may have changed and did. */
static void refresh_maps(struct tracee *t)
{
	_cleanup_free_ char *text = NULL, *copy = NULL;
	char path[64], *line, *save;

	if (!t->maps_stale)
		return;
	t->maps_stale = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", t->tid);
	if (read_file(path, MAPS_BYTES, &text, NULL) || (t->maps && !strcmp(t->maps, text)))
		return;
	free(t->maps);
	t->maps = take_ptr(text);
	copy = strdup(t->maps);
	assert_non_null(copy);
	t->nentries = 0;
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		add_mapping(t, line);
	assert_int_equal(unwind_host_publish(t->host, &t->key, t->entry, t->nentries), 0);
	lu.flush(t->as, 0, 0);
	if (t->dwfl)
		dw.end(t->dwfl);
	t->dwfl = NULL;
}

static const struct map_entry *mapping_of(const struct tracee *t, u64 pc, const struct file **file)
{
	u32 i;

	for (i = 0; i < t->nentries; i++) {
		if (pc >= t->entry[i].lo && pc < t->entry[i].hi) {
			*file = t->entry_file[i];
			return &t->entry[i];
		}
	}
	*file = NULL;
	return NULL;
}

/* Does a function entry of the file cover the address? The table alone may reach a little further. */
static bool is_covered(const struct tracee *t, u64 pc)
{
	const struct file *f;
	const struct map_entry *e = mapping_of(t, pc, &f);

	return f && f->cfi && cfi_find(f->cfi, pc - e->bias + f->base)->cfa != CFI_CFA_NONE;
}

/* --- one stack, four ways --------------------------------------------------------------------- */

struct trace {
	u64 ip[HOST_FRAMES];
	u32 n;
	bool ended; /* the first frame was reached, neither an error nor a limit */
};

static void unwind_ours(struct tracee *t, u32 max, struct unwind_host_walk *ret)
{
	static struct unwind_host_walk again;
	struct unwind_host_ask ask = { .key = t->key,
				       .stack_top = t->stack_top,
				       .max_frames = max };

	ask.stack_size = 8 << 20;
	memcpy(ask.regs, &t->regs, sizeof(t->regs));
	unwind_host_run(t->host, &ask, ret);
	unwind_host_trace(t->host, &ask, &again);
	/* The second time mostly from the row cache. */
	assert_int_equal(again.n, ret->n);
	assert_int_equal(again.end, ret->end);
	assert_memory_equal(again.ip, ret->ip, ret->n * sizeof(ret->ip[0]));
	*ret = again;
}

static void unwind_lu(struct tracee *t, u32 max, struct trace *ret)
{
	unw_cursor_t cursor;
	unw_word_t ip;
	int err;

	if (t->upt_tid != t->tid) {
		if (t->upt)
			lu.upt_destroy(t->upt);
		t->upt = lu.upt_create(t->tid);
		t->upt_tid = t->tid;
		assert_non_null(t->upt);
	}
	ret->n = 0;
	ret->ended = false;
	err = lu.init(&cursor, t->as, t->upt) ? -1 : 1;
	while (err > 0 && ret->n < max && !lu.get_reg(&cursor, UNW_REG_IP, &ip)) {
		ret->ip[ret->n++] = ip;
		err = lu.step(&cursor);
		ret->ended = !err;
	}
}

struct dw_arg {
	struct trace *to;
	u32 max;
};

static int dw_frame(Dwfl_Frame *frame, void *arg)
{
	struct dw_arg *a = arg;
	Dwarf_Addr pc;

	if (!dw.pc(frame, &pc, NULL) || a->to->n >= a->max)
		return DWARF_CB_ABORT;
	a->to->ip[a->to->n++] = pc;
	return DWARF_CB_OK;
}

/* Separate debug files are not searched for, neither here nor by the network. */
static int no_debuginfo(Dwfl_Module *m __unused, void **user __unused, const char *name __unused,
			Dwarf_Addr base __unused, const char *file __unused,
			const char *link __unused, GElf_Word crc __unused, char **ret __unused)
{
	return -1;
}

static bool dw_ready(struct tracee *t)
{
	static Dwfl_Callbacks callbacks = { .find_debuginfo = no_debuginfo };

	if (t->dwfl)
		return true;
	callbacks.find_elf = (int (*)(Dwfl_Module *, void **, const char *, Dwarf_Addr, char **,
				      Elf **))dw.find_elf;
	t->dwfl = dw.begin(&callbacks);
	if (!t->dwfl)
		return false;
	if (!dw.report(t->dwfl, t->tid) && !dw.report_end(t->dwfl, NULL, NULL) &&
	    !dw.attach(t->dwfl, t->tid, true))
		return true;
	dw.end(t->dwfl);
	t->dwfl = NULL;
	return false;
}

static void unwind_dw(struct tracee *t, u32 max, struct trace *ret)
{
	struct dw_arg arg = { .to = ret, .max = max };

	ret->n = 0;
	ret->ended = dw_ready(t) && !dw.frames(t->dwfl, t->tid, dw_frame, &arg);
}

/* What the calls say; false: they cannot. */
static bool unwind_calls(const struct tracee *t, u32 max, struct trace *ret)
{
	const struct calls *c = &t->calls;
	u32 i;

	if (c->lost)
		return false;
	ret->n = 0;
	ret->ended = true;
	ret->ip[ret->n++] = t->regs.rip;
	for (i = c->n; i > 0 && ret->n < max; i--)
		ret->ip[ret->n++] = c->c[i - 1].ra;
	for (i = 0; i < c->nbase && ret->n < max; i++)
		ret->ip[ret->n++] = c->base[i];
	return true;
}

/* --- what the tracer sees --------------------------------------------------------------------- */

static void calls_start(struct tracee *t)
{
	static struct trace now;

	unwind_dw(t, MAX_USER_FRAMES, &now);
	t->calls.n = 0;
	t->calls.nbase = now.n ? now.n - 1 : 0;
	memcpy(t->calls.base, now.ip + 1, t->calls.nbase * sizeof(now.ip[0]));
	t->calls.base_sp = t->regs.rsp;
	t->calls.lost = !now.n || !now.ended;
}

static void calls_push(struct calls *c, u64 slot, u64 ra)
{
	if (c->n == CALLS_MAX) {
		c->lost = true;
		return;
	}
	c->c[c->n].slot = slot;
	c->c[c->n++].ra = ra;
}

static bool is_call(const u8 *insn)
{
	u32 i = 0;

	/* Prefixes that a call may carry: notrack, bnd, padding of a TLS call, REX. */
	while (i < 4 && (insn[i] == 0x3e || insn[i] == 0xf2 || insn[i] == 0x66 || insn[i] == 0x67 ||
			 (insn[i] & 0xf0) == 0x40))
		i++;
	return insn[i] == 0xe8 || (insn[i] == 0xff && (insn[i + 1] >> 3 & 7) == 2);
}

/* After one step from `before`, whose instruction was insn; sig: a signal was delivered instead. */
static void calls_step(struct tracee *t, const struct user_regs_struct *before, const u8 *insn,
		       bool sig)
{
	struct calls *c = &t->calls;
	u64 sp = t->regs.rsp, top = 0;

	if (c->lost)
		return;
	if (sig && t->regs.rip != before->rip) {
		/* A handler, entered as if the trampoline had called it, on the same stack or not. */
		if (sp > before->rsp || before->rsp - sp > 1 << 14 ||
		    read_tracee(t, &top, sizeof(top), sp)) {
			c->lost = true;
			return;
		}
		calls_push(c, before->rsp - 1, before->rip);
		calls_push(c, sp, top);
		return;
	}
	if (sp > before->rsp + (1 << 20) || sp + (1 << 20) < before->rsp ||
	    sp > c->base_sp + 4096) {
		c->lost = true;
		return;
	}
	while (c->n && c->c[c->n - 1].slot < sp)
		c->n--;
	if (sp > c->base_sp)
		c->lost = true;
	if (sp == before->rsp - 8 && is_call(insn) && !read_tracee(t, &top, sizeof(top), sp) &&
	    top > before->rip && top <= before->rip + 15)
		calls_push(c, sp, top);
}

/* --- differences and their reasons ------------------------------------------------------------ */

/* Right: libdw or the calls give the same caller of the frame. */
enum verdict { V_OURS_RIGHT, V_OURS_WRONG, V_UNDECIDED };

static const char *const verdict_text[] = { "ours is right", "ours is wrong", "undecided" };

/* tests/oracle/README.md has each with its evidence. */
enum effect { FAILS, OURS, THEIRS, UNCOVERED };

#define EXPLANATION_LIST(X)                                                                      \
	X(NONE, "unexplained", FAILS)                                                            \
	X(NO_TABLE, "no-table", UNCOVERED)     /* no function entry here, or in a frame below */ \
	X(NO_RULE, "no-rule", OURS)            /* a rule that ends the walk, and says so */      \
	X(BRIDGED, "bridged-gap", UNCOVERED)   /* a few bytes of padding have the rule before */ \
	X(NO_CALL, "no-call", UNCOVERED)       /* the address was put there, no call left it */  \
	X(VDSO, "libunwind-vdso", THEIRS)      /* misreads the vdso, or the frames above it */   \
	X(NO_INDEX, "libunwind-index", THEIRS) /* needs .eh_frame_hdr, reads no .debug_frame */  \
	X(SEGMENT, "libunwind-segment",                                                          \
	  THEIRS)                           /* text that does not start on a page of its file */ \
	X(TWICE, "libunwind-twice", THEIRS) /* one address, interrupted and returned to */

enum explanation {
#define X(name, text, effect) E_##name,
	EXPLANATION_LIST(X)
#undef X
		E_MAX,
};

static const struct {
	const char *name;
	bool ours; /* counts against the share that has to agree */
	bool libunwind;
	bool uncovered;
} explained[] = {
#define X(name, text, effect) \
	{ text, effect == OURS || effect == FAILS, effect == THEIRS, effect == UNCOVERED },
	EXPLANATION_LIST(X)
#undef X
};

struct diff {
	u64 addr; /* of the frame, in its file */
	char file[48];
	char symbol[48];
	u8 cfa, verdict, why;
	bool tainted, bridged, no_call, vdso, no_index, unaligned, twice;
	u32 end;     /* ours, when we ended there */
	u64 next[4]; /* caller: ours, libunwind, libdw, calls; 0: end, 1: error or not asked */
	u32 count, asked;
};

struct result {
	u64 steps, stops, frames, equal, differ[E_MAX];
	u64 longest;
	u64 by_rule[UNWIND_CFA_FP +
		    1]; /* equal frames, by the kind of rule that they were left by */
	u32 killed;     /* by this signal, which no scenario wants */
	struct diff diff[DIFFS_MAX];
	u32 ndiffs;
};

#define NEXT_END   0ull
#define NEXT_ERROR 1ull

static u64 next_of(const u64 *ip, u32 n, bool ended, u32 i)
{
	if (i < n)
		return ip[i];
	return ended && i == n ? NEXT_END : NEXT_ERROR;
}

static bool same_up_to(const struct trace *a, const u64 *ip, u32 n)
{
	return a->n >= n && !memcmp(a->ip, ip, n * sizeof(ip[0]));
}

static enum explanation explain(const struct diff *d)
{
	if (d->cfa == UNWIND_CFA_FP || d->tainted)
		return E_NO_TABLE;
	if (d->cfa == UNWIND_CFA_UNSUPPORTED)
		return E_NO_RULE;
	if (d->verdict == V_OURS_RIGHT) {
		if (d->vdso)
			return E_VDSO;
		if (d->no_index)
			return E_NO_INDEX;
		if (d->unaligned)
			return E_SEGMENT;
		if (d->twice)
			return E_TWICE;
	}
	if (d->bridged)
		return E_BRIDGED;
	if (d->no_call)
		return E_NO_CALL;
	return E_NONE;
}

/* Is it an address that a call could return to? */
static bool follows_call(struct tracee *t, u64 pc)
{
	u8 b[8];

	if (read_tracee(t, b, sizeof(b), pc - sizeof(b)))
		return false;
	return b[3] == 0xe8 || (b[6] == 0xff && (b[7] >> 3 & 7) == 2) ||
	       (b[5] == 0xff && (b[6] >> 3 & 7) == 2) || (b[4] == 0xff && (b[5] >> 3 & 7) == 2) ||
	       (b[2] == 0xff && (b[3] >> 3 & 7) == 2) || (b[1] == 0xff && (b[2] >> 3 & 7) == 2);
}

/* What is special about frame i, and those below it. */
static void examine(struct tracee *t, const struct unwind_host_walk *w, u32 i, struct diff *d)
{
	const struct file *f;
	bool exact = true;
	u32 k;

	for (k = 0; k <= i; k++) {
		u64 pc = exact ? w->ip[k] : w->ip[k] - 1;

		exact = w->rule[k].cfa == UNWIND_CFA_SIGNAL;
		d->twice |= k < i && w->ip[k] == w->ip[i];
		mapping_of(t, pc, &f);
		d->vdso |= f && !strcmp(f->path, "[vdso]");
		if (k < i)
			d->tainted |= w->rule[k].cfa == UNWIND_CFA_FP;
		else
			d->bridged = w->rule[k].cfa != UNWIND_CFA_FP && !is_covered(t, pc);
	}
	d->no_index = f && f->no_index;
	d->unaligned = f && f->unaligned;
	d->no_call = i && w->rule[i - 1].cfa != UNWIND_CFA_SIGNAL && !follows_call(t, w->ip[i]);
}

static void name_place(struct tracee *t, u64 pc, struct diff *d)
{
	Dwfl_Module *m = dw_ready(t) ? dw.module(t->dwfl, pc) : NULL;
	GElf_Off off = 0;
	const char *s;
	GElf_Sym sym;

	s = m ? dw.symbol(m, pc, &off, &sym, NULL, NULL, NULL) : NULL;
	if (s)
		snprintf(d->symbol, sizeof(d->symbol), "%.36s+%#" PRIx64, s, (u64)off);
}

static void judge(struct tracee *t, const struct unwind_host_walk *w, u32 i, u32 max,
		  struct diff *d)
{
	static struct trace other;

	d->asked++;
	d->next[2] = NEXT_ERROR;
	d->next[3] = NEXT_ERROR;
	unwind_dw(t, max, &other);
	if (same_up_to(&other, w->ip, i))
		d->next[2] = next_of(other.ip, other.n, other.ended, i);
	if (unwind_calls(t, max, &other) && same_up_to(&other, w->ip, i))
		d->next[3] = next_of(other.ip, other.n, other.ended, i);
	if (d->next[0] != NEXT_ERROR && (d->next[2] == d->next[0] || d->next[3] == d->next[0]))
		d->verdict = V_OURS_RIGHT;
	else if (d->next[3] != NEXT_ERROR || (d->next[2] == d->next[1] && d->next[2] != NEXT_ERROR))
		d->verdict = V_OURS_WRONG;
	else
		d->verdict = V_UNDECIDED;
	d->why = explain(d);
}

static enum explanation differ(struct tracee *t, struct result *r, const struct unwind_host_walk *w,
			       const struct trace *b, u32 i, u32 max)
{
	const struct map_entry *e;
	const struct file *f;
	struct diff d = { .cfa = w->rule[i - 1].cfa, .count = 1, .end = w->end }, *found = NULL;
	u32 k;

	e = mapping_of(t, w->ip[i - 1], &f);
	snprintf(d.file, sizeof(d.file), "%.40s", f ? base_name(f->path) : "anonymous");
	d.addr = e ? w->ip[i - 1] - e->bias : w->ip[i - 1];
	d.next[0] = next_of(w->ip, w->n,
			    w->end == STACK_END_COMPLETE || w->end == STACK_END_GUESSED, i);
	d.next[1] = next_of(b->ip, b->n, b->ended, i);
	for (k = 0; k < r->ndiffs && !found; k++)
		if (r->diff[k].addr == d.addr && !strcmp(r->diff[k].file, d.file) &&
		    r->diff[k].cfa == d.cfa && r->diff[k].next[0] == d.next[0] &&
		    r->diff[k].next[1] == d.next[1])
			found = &r->diff[k];
	if (found) {
		found->count++;
	} else {
		found = r->ndiffs < DIFFS_MAX ? &r->diff[r->ndiffs++] : &d;
		*found = d;
		examine(t, w, i - 1, found);
	}
	if (found->asked < ASK_DW_TIMES) {
		judge(t, w, i, max, found);
		name_place(t, w->ip[i - 1], found);
	}
	r->differ[found->why]++;
	return found->why;
}

/*
 * Compares from frame *at on; *at becomes the first frame whose caller differs. False: none does, or
 * both were cut.
 */
static bool next_difference(struct result *r, const struct unwind_host_walk *w,
			    const struct trace *b, u32 max, u32 *at)
{
	bool ended = w->end == STACK_END_COMPLETE || w->end == STACK_END_GUESSED;

	for (; *at <= w->n && *at < max; ++*at) {
		r->frames++;
		if (next_of(w->ip, w->n, ended, *at) != next_of(b->ip, b->n, b->ended, *at))
			return true;
		r->equal++;
		r->by_rule[MIN(w->rule[*at - 1].cfa, UNWIND_CFA_FP)]++;
	}
	return false;
}

static void compare(struct tracee *t, struct result *r, u32 max)
{
	static struct unwind_host_walk w;
	static struct trace b;
	u32 at = 1;

	refresh_maps(t);
	unwind_ours(t, max, &w);
	unwind_lu(t, max, &b);
	if (w.n != b.n || memcmp(w.ip, b.ip, w.n * sizeof(w.ip[0])) != 0) {
		/* It keeps rows by address alone, exact or a caller's; and the last file it read. */
		lu.flush(t->as, 0, 0);
		t->upt_tid = 0;
		unwind_lu(t, max, &b);
	}
	r->stops++;
	r->longest = MAX(r->longest, w.n);
	if (!next_difference(r, &w, &b, max, &at))
		return;
	/* Where libunwind is known to fail, libdw is asked about the rest of the stack. */
	if (!explained[differ(t, r, &w, &b, at, max)].libunwind)
		return;
	unwind_dw(t, max, &b);
	at++;
	if (same_up_to(&b, w.ip, at) && next_difference(r, &w, &b, max, &at))
		differ(t, r, &w, &b, at, max);
}

/* --- stepping --------------------------------------------------------------------------------- */

enum event { EV_STEP, EV_MARK, EV_SIGNAL, EV_CHILD, EV_GONE };

struct opts {
	const char *name;
	u32 max_stops, every, max_frames;
	bool from_start, verbose;
};

static enum event classify(pid_t tid, int status, int *sig, pid_t *child)
{
	unsigned long msg = 0;
	siginfo_t info = { 0 };

	*sig = 0;
	if (!WIFSTOPPED(status))
		return EV_GONE;
	if (status >> 16 == PTRACE_EVENT_VFORK || status >> 16 == PTRACE_EVENT_FORK) {
		ptrace(PTRACE_GETEVENTMSG, tid, NULL, &msg);
		*child = (pid_t)msg;
		return EV_CHILD;
	}
	if (status >> 16 || WSTOPSIG(status) == SIGSTOP)
		return EV_STEP;
	ptrace(PTRACE_GETSIGINFO, tid, NULL, &info);
	if (WSTOPSIG(status) == SIGTRAP)
		return info.si_code == SI_KERNEL ? EV_MARK : EV_STEP;
	*sig = WSTOPSIG(status);
	return EV_SIGNAL;
}

/* Waits for the stepped thread; the others run on. */
static enum event wait_for(struct tracee *t, bool any_mark, int *sig, pid_t *child)
{
	enum event ev;
	int status;
	pid_t tid;

	for (;;) {
		tid = waitpid(-1, &status, __WALL);
		if (tid < 0)
			return EV_GONE;
		ev = classify(tid, status, sig, child);
		t->status = status;
		if (ev == EV_MARK && any_mark)
			t->tid = tid;
		if (tid == t->tid && !any_mark)
			return ev;
		if (ev == EV_MARK || (ev == EV_GONE && tid == t->pid))
			return ev;
		if (ev != EV_GONE)
			ptrace(PTRACE_CONT, tid, NULL, *sig);
	}
}

static bool get_regs(struct tracee *t)
{
	forget_memory(t);
	return !ptrace(PTRACE_GETREGS, t->tid, NULL, &t->regs);
}

/* Field 28 of /proc/PID/stat: where the main thread's stack begins. */
static u64 start_stack(pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	char path[64], *p;
	int i;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_file(path, 4096, &text, NULL))
		return 0;
	p = strrchr(text, ')');
	for (i = 2; p && i < 28; i++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, 10) : 0;
}

static bool worth_a_stop(struct tracee *t, const struct opts *o, const struct file *main_file)
{
	u8 *seen = &t->seen[(t->regs.rip * 0x9e3779b97f4a7c15ull) >> (64 - SEEN_BITS)];
	const struct file *f;

	mapping_of(t, t->regs.rip, &f);
	if (!*seen || f == main_file) {
		*seen = 1;
		return true;
	}
	*seen = (u8)(*seen % o->every + 1);
	return *seen == 1;
}

/* A vfork child runs on its parent's stack, and is stepped in its place until it is gone. */
static void follow_child(struct tracee *t, pid_t child)
{
	int status;

	if (waitpid(child, &status, __WALL) != child)
		return;
	t->vfork_parent = t->tid;
	t->tid = child;
	t->calls.lost = true;
}

static bool back_to_parent(struct tracee *t)
{
	if (!t->vfork_parent)
		return false;
	t->tid = t->vfork_parent;
	t->vfork_parent = 0;
	return true;
}

static void step_through(struct tracee *t, const struct opts *o, struct result *r)
{
	const struct file *main_file = t->nfiles ? &t->file[0] : NULL;
	struct user_regs_struct before;
	enum event ev;
	u8 insn[16];
	pid_t child;
	int sig = 0;

	while (r->stops < o->max_stops && r->steps < STEPS_MAX) {
		int deliver = sig;

		before = t->regs;
		memset(insn, 0, sizeof(insn));
		if (read_tracee(t, insn, sizeof(insn), before.rip))
			read_tracee(t, insn, 2, before.rip);
		if (insn[0] == 0x0f && insn[1] == 0x05)
			t->maps_stale = true;
		if (ptrace(PTRACE_SINGLESTEP, t->tid, NULL, sig))
			return;
		ev = wait_for(t, false, &sig, &child);
		if (ev == EV_MARK)
			return;
		if (ev == EV_GONE) {
			r->killed = WIFSIGNALED(t->status) ? (u32)WTERMSIG(t->status) : 0;
			if (!back_to_parent(t))
				return;
		}
		if (ev == EV_CHILD)
			follow_child(t, child);
		if (!get_regs(t))
			return;
		r->steps++;
		calls_step(t, &before, insn, deliver != 0);
		if (ev == EV_STEP && worth_a_stop(t, o, main_file))
			compare(t, r, o->max_frames);
	}
}

/* A stopped child: argv[0] right after exec, or a function of this program. -1: cannot be traced. */
static pid_t spawn(char **argv, void (*fn)(void))
{
	static char *envp[] = { "LC_ALL=C", "GODEBUG=asyncpreemptoff=1", NULL };
	pid_t pid = fork();
	int status;

	if (!pid) {
		personality(ADDR_NO_RANDOMIZE);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(126);
		if (argv) {
			execve(argv[0], argv, envp);
			_exit(127);
		}
		raise(SIGSTOP);
		fn();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return -1;
	return pid;
}

static struct tracee *tracee_new(pid_t pid)
{
	struct tracee *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->pid = pid;
	t->tid = pid;
	t->key.tgid = (u32)pid;
	t->maps_stale = true;
	t->host = unwind_host_new(read_tracee, t);
	assert_non_null(t->host);
	tracing = t;
	lu.acc.access_mem = lu_access_mem;
	lu.acc.access_reg = lu_access_reg;
	t->as = lu.create(&lu.acc, 0);
	assert_non_null(t->as);
	lu.caching(t->as, UNW_CACHE_GLOBAL);
	forget_memory(t);
	return t;
}

static void tracee_free(struct tracee *t)
{
	u32 i;

	if (t->dwfl)
		dw.end(t->dwfl);
	if (t->upt)
		lu.upt_destroy(t->upt);
	lu.destroy(t->as);
	for (i = 0; i < t->nfiles; i++) {
		free(t->file[i].path);
		if (t->file[i].cfi)
			cfi_fini(t->file[i].cfi);
		free(t->file[i].cfi);
	}
	free(t->maps);
	unwind_host_free(t->host);
	free(t);
}

static void trace_pid(pid_t pid, const struct opts *o, struct result *r)
{
	struct tracee *t = tracee_new(pid);
	int sig, status;
	pid_t child;

	ptrace(PTRACE_SETOPTIONS, pid, NULL,
	       PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK);
	t->stack_top = start_stack(pid);
	if (!o->from_start) {
		ptrace(PTRACE_CONT, pid, NULL, 0);
		if (wait_for(t, true, &sig, &child) != EV_MARK)
			goto out;
	}
	if (get_regs(t)) {
		refresh_maps(t);
		calls_start(t);
		step_through(t, o, r);
	}
out:
	kill(pid, SIGKILL);
	while (waitpid(-1, &status, __WALL) > 0)
		;
	tracee_free(t);
}

/* --- report ----------------------------------------------------------------------------------- */

static void show_next(const char *who, u64 next)
{
	if (next == NEXT_ERROR)
		printf(" %s -", who);
	else if (next == NEXT_END)
		printf(" %s end", who);
	else
		printf(" %s %" PRIx64, who, next);
}

static void show_diff(const struct diff *d)
{
	printf("# %s: %u x %s+%#" PRIx64 " %s rule %u end %u, %s:", explained[d->why].name,
	       d->count, d->file, d->addr, d->symbol, d->cfa, d->end, verdict_text[d->verdict]);
	show_next("ours", d->next[0]);
	show_next("libunwind", d->next[1]);
	show_next("libdw", d->next[2]);
	show_next("calls", d->next[3]);
	printf("\n");
}

/*
 * Of the frames that a table covers, how many have the caller that libunwind gives, or that the
 * other witnesses give where it is known to be wrong.
 */
static void report_share(const struct result *r)
{
	u64 covered = r->frames - r->by_rule[UNWIND_CFA_FP], bad = 0;
	u32 i;

	for (i = 0; i < E_MAX; i++) {
		covered -= explained[i].uncovered ? r->differ[i] : 0;
		bad += explained[i].ours ? r->differ[i] : 0;
	}
	printf(", covered %" PRIu64 " agreed %" PRIu64 " (%.3f %%)", covered, covered - bad,
	       covered ? 100.0 * (double)(covered - bad) / (double)covered : 100.0);
}

static const char *const rule_name[] = {
	[UNWIND_CFA_NONE] = "none",
	[UNWIND_CFA_END] = "end",
	[UNWIND_CFA_UNSUPPORTED] = "unsupported",
	[UNWIND_CFA_SIGNAL] = "signal",
	[UNWIND_CFA_REG] = "register",
	[UNWIND_CFA_DEREF] = "deref",
	[UNWIND_CFA_SCALED] = "scaled",
	[UNWIND_CFA_PLT] = "plt",
	[UNWIND_CFA_FP] = "frame-pointer",
};

static int report(const struct opts *o, const struct result *r)
{
	bool ok = r->stops && !r->differ[E_NONE] && !r->killed;
	u32 i;

	for (i = 0; i < r->ndiffs; i++)
		if (r->diff[i].why == E_NONE || o->verbose)
			show_diff(&r->diff[i]);
	if (r->killed)
		printf("# ended by signal %u\n", r->killed);
	printf("%s %s # steps %" PRIu64 " stops %" PRIu64 " frames %" PRIu64 " equal %" PRIu64
	       " (%.3f %%)",
	       ok ? "ok" : "not ok", o->name, r->steps, r->stops, r->frames, r->equal,
	       r->frames ? 100.0 * (double)r->equal / (double)r->frames : 0);
	report_share(r);
	printf(", deepest %" PRIu64 ", rules", r->longest);
	for (i = 0; i <= UNWIND_CFA_FP; i++)
		if (r->by_rule[i])
			printf(" %s %" PRIu64, rule_name[i], r->by_rule[i]);
	for (i = 0; i < E_MAX; i++)
		if (r->differ[i])
			printf(", %s %" PRIu64, explained[i].name, r->differ[i]);
	printf("\n");
	return !ok;
}

static int run(char **argv, const struct opts *o)
{
	_cleanup_free_ struct result *r = calloc(1, sizeof(*r));
	const char *missing = load_witnesses();
	pid_t pid;

	if (missing || !r) {
		printf("skip %s: no %s\n", o->name, missing ? missing : "memory");
		return 0;
	}
	pid = spawn(argv, NULL);
	if (pid < 0) {
		printf("skip %s: cannot be traced\n", o->name);
		return 0;
	}
	trace_pid(pid, o, r);
	return report(o, r);
}

/* --- without arguments ------------------------------------------------------------------------ */

static int compare_ints(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void sort_between_marks(void)
{
	int v[] = { 7, 3, 9, 1, 4 };

	__asm__ volatile("int3");
	qsort(v, ARRAY_SIZE(v), sizeof(v[0]), compare_ints);
	__asm__ volatile("int3");
}

static void a_stopped_child_unwinds_like_libunwind(void **state __unused)
{
	const struct opts o = { .max_stops = 400, .every = 7, .max_frames = 64 };
	_cleanup_free_ struct result *r = calloc(1, sizeof(*r));
	const char *missing = load_witnesses();
	pid_t pid;
	u32 i;

	assert_non_null(r);
	if (missing)
		skip();
	pid = spawn(NULL, sort_between_marks);
	if (pid < 0)
		skip();
	trace_pid(pid, &o, r);
	for (i = 0; i < r->ndiffs; i++)
		show_diff(&r->diff[i]);
	assert_in_range(r->stops, 100, o.max_stops);
	assert_true(r->frames >= 5 * r->stops);
	assert_int_equal(r->equal, r->frames);
}

static void each_explanation_is_in_the_readme(void **state __unused)
{
	_cleanup_free_ char *text = NULL;
	char name[64];
	u32 i;

	assert_int_equal(read_file("tests/oracle/README.md", 1 << 20, &text, NULL), 0);
	for (i = 1; i < E_MAX; i++) {
		snprintf(name, sizeof(name), "| %s |", explained[i].name);
		if (!strstr(text, name))
			fail_msg("%s is not there", explained[i].name);
	}
}

static int quick(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_child_unwinds_like_libunwind),
		cmocka_unit_test(each_explanation_is_in_the_readme),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	struct opts o = { .name = NULL, .max_stops = 3000, .every = 7, .max_frames = 256 };
	static const struct option longs[] = {
		{ "name", required_argument, NULL, 'n' },   { "max", required_argument, NULL, 'm' },
		{ "every", required_argument, NULL, 'e' },  { "start", no_argument, NULL, 's' },
		{ "frames", required_argument, NULL, 'f' }, { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "+v", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o.name = optarg;
			break;
		case 'm':
			o.max_stops = (u32)strtoul(optarg, NULL, 0);
			break;
		case 'e':
			o.every = MAX(MIN((u32)strtoul(optarg, NULL, 0), 250), 1);
			break;
		case 's':
			o.from_start = true;
			break;
		case 'f':
			o.max_frames = MIN((u32)strtoul(optarg, NULL, 0), MAX_USER_FRAMES);
			break;
		case 'v':
			o.verbose = true;
			break;
		default:
			return 2;
		}
	}
	alarm(300);
	if (optind == argc)
		return quick();
	if (!o.name)
		o.name = base_name(argv[optind]);
	return run(argv + optind, &o);
}

#else /* registers and instructions are x86-64's */

static void needs_x86_64(void **state __unused)
{
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(needs_x86_64) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
