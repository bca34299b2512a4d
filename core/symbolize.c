// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. See symbolize.h. The message is unpacked as it is, changed in place where locations
 * get lines, and packed again: what this program does not know stays.
 */
#include "symbolize.h"

#include "debugfile.h"
#include "demangle.h"
#include "dwarfnames.h"
#include "elfsym.h"
#include "htab.h"
#include "log.h"
#include "pprof.h"
#include "pprof_in.h"
#include "profile.pb-c.h"
#include "rootfile.h"
#include "strtab.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define SYMBOL_BYTES (256u << 20)
#define NAME_MAX_LEN 4096

/* --- one mapped file --------------------------------------------------------------------------- */

struct binary {
	int fd, debug_fd; /* -1: none */
	struct elfsym_info info;
	bool segments; /* info has the file's own */
	struct elfsym_table *symbols;
	struct dwarfnames *dwarf;
};

static void binary_fini(struct binary *b)
{
	dwarfnames_free(b->dwarf);
	elfsym_table_free(b->symbols);
	elfsym_info_fini(&b->info);
	closep(&b->fd);
	closep(&b->debug_fd);
}

static bool parse_id(const char *hex, struct elfsym_info *info)
{
	size_t n = strlen(hex) / 2;

	if (!n || n > ELFSYM_ID_MAX || hex[2 * n] || !hex_decode(info->id, hex, n))
		return false;
	info->id_len = (u32)n;
	return true;
}

static u64 size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (u64)st.st_size;
}

/* The file at the mapping's path, if it is the one that was mapped. */
static int open_file(const struct symbolize_options *o, const char *path,
		     const struct elfsym_info *want, struct elfsym_info *ret)
{
	_cleanup_close_ int root = open(o->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int at = -1, fd = -1;
	struct elfsym_source src;
	struct stat st;

	if (root < 0 || path[0] != '/')
		return -ENOENT;
	at = rootfile_at(root, path, true);
	fd = rootfile_open(at, &st);
	if (fd < 0)
		return fd;
	src = (struct elfsym_source){ .fd = fd, .size = (u64)st.st_size };
	if (elfsym_info(&src, ret))
		return -ENOENT;
	if (want->id_len &&
	    (ret->id_len != want->id_len || memcmp(ret->id, want->id, want->id_len) != 0)) {
		elfsym_info_fini(ret);
		return -ENOENT;
	}
	return take_fd(&fd);
}

static bool is_build(int fd, const struct elfsym_info *want)
{
	struct elfsym_source src = { .fd = fd, .size = size_of(fd) };
	struct elfsym_info got;
	bool same;

	if (elfsym_info(&src, &got))
		return false;
	same = got.id_len == want->id_len && !memcmp(got.id, want->id, want->id_len);
	elfsym_info_fini(&got);
	return same;
}

/* elfutils' client, loaded only when somebody wants it: it asks servers which binaries run here. */
static int ask_servers(const struct elfsym_info *id, const char *path)
{
	static struct log_limit missing;
	void *lib = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
	void *(*begin)(void) = lib ? (void *(*)(void))dlsym(lib, "debuginfod_begin") : NULL;
	int (*find)(void *client, const unsigned char *id, int len, char **path) =
		lib ? (int (*)(void *, const unsigned char *, int,
			       char **))dlsym(lib, "debuginfod_find_debuginfo")
		    : NULL;
	void (*end)(void *client) = lib ? (void (*)(void *))dlsym(lib, "debuginfod_end") : NULL;
	void *client;
	int fd;

	if (!begin || !find || !end) {
		if (log_limit(&missing, NULL))
			log_warn("no server is asked: libdebuginfod.so.1 is not here; install "
				 "libdebuginfod1");
		return -ENOSYS;
	}
	client = begin();
	fd = client ? find(client, id->id, (int)id->id_len, NULL) : -ENOMEM;
	if (client)
		end(client);
	if (fd < 0 && fd != -ENOENT)
		log_warn("debug information of '%s' was not had from a server: %s", path,
			 strerror(-fd));
	if (fd >= 0 && !is_build(fd, id)) {
		log_warn("a server's debug information of '%s' is of another build: not used",
			 path);
		close(fd);
		return -ENOENT;
	}
	return fd;
}

/* Where the DWARF is: in the file, in a separate one, on a server. */
static void find_debug(struct binary *b, const struct symbolize_options *o, const char *path)
{
	struct elfsym_source src = { .fd = b->fd, .size = b->fd >= 0 ? size_of(b->fd) : 0 };
	struct debugfile_question q = {
		.src = &src, .info = &b->info, .path = path, .host_root = o->root
	};
	u64 size;

	if (b->fd >= 0 && !dwarfnames_new(b->fd, &b->dwarf))
		return;
	b->debug_fd = debugfile_open(&q, &size, NULL);
	if (b->debug_fd < 0 && o->debuginfod && b->info.id_len)
		b->debug_fd = ask_servers(&b->info, path);
	if (b->debug_fd >= 0)
		dwarfnames_new(b->debug_fd, &b->dwarf);
}

static void read_symbols(struct binary *b)
{
	struct elfsym_source debug = { .fd = b->debug_fd }, src = { .fd = b->fd };

	if (b->debug_fd >= 0)
		debug.size = size_of(b->debug_fd);
	src.size = b->fd >= 0 ? size_of(b->fd) : 0;
	if (b->fd >= 0)
		elfsym_table(&src, b->debug_fd >= 0 ? &debug : NULL, SYMBOL_BYTES, &b->symbols);
	else if (b->debug_fd >= 0)
		elfsym_table(&debug, NULL, SYMBOL_BYTES, &b->symbols);
}

/* False: nothing of it is here. */
static bool binary_open(struct binary *b, const struct symbolize_options *o, const char *path,
			const char *id)
{
	struct elfsym_info want = { 0 };

	*b = (struct binary){ .fd = -1, .debug_fd = -1 };
	/* A build id that is none of ours names nothing that could be found. */
	if (*id && !parse_id(id, &want))
		return false;
	b->fd = open_file(o, path, &want, &b->info);
	b->segments = b->fd >= 0;
	if (b->fd < 0)
		b->info = want;
	if (b->fd < 0 && !want.id_len)
		return false;
	find_debug(b, o, path);
	read_symbols(b);
	return b->dwarf || b->symbols;
}

/*
 * ELF address of a location. Its place in the file follows from the mapping, whatever address space
 * that is in; without the file, addresses are the ELF file's own, as this program writes them.
 */
static bool elf_address(const struct binary *b, const Pprof__Mapping *m, u64 address, u64 *ret)
{
	u64 offset = address - m->memory_start + m->file_offset;
	u32 i;

	*ret = address;
	if (!b->segments)
		return true;
	for (i = 0; i < b->info.nsegments; i++) {
		const struct module_segment *s = &b->info.segments[i];

		if (!s->exec || offset < s->offset || offset - s->offset >= s->file_size)
			continue;
		*ret = s->vaddr + (offset - s->offset);
		return true;
	}
	return false;
}

/* --- the profile ------------------------------------------------------------------------------- */

struct job {
	const struct symbolize_options *o;
	struct symbolize_figures *figures;
	Pprof__Profile *p;
	struct strtab text;  /* its numbers follow those of the message's own strings */
	struct htab by_text; /* the message's own */
	struct htab by_function;
	Pprof__Function **functions; /* the message's, then ours */
	u32 nfunctions, functions_cap;
	u64 next_id;
	char **strings;
};

static const char *string_at(const Pprof__Profile *p, s64 i)
{
	return i >= 0 && (u64)i < p->n_string_table && p->string_table[i] ? p->string_table[i] : "";
}

/* Number of a text in the message to be; 0 is "". */
static s64 text(struct job *j, const char *s)
{
	u64 hash;
	u32 pos, i;

	if (!s || !*s)
		return 0;
	hash = hash_bytes(s, strlen(s));
	for (pos = htab_start(&j->by_text, hash); htab_next(&j->by_text, hash, &pos, &i);)
		if (!strcmp(j->p->string_table[i], s))
			return i;
	if (strtab_add(&j->text, s, strlen(s), &i))
		return 0;
	return (s64)(j->p->n_string_table + i);
}

static void *alloc(struct job *j, size_t n, size_t size)
{
	return arena_alloc(&j->text.arena, n * size, _Alignof(u64));
}

static u64 function_hash(const Pprof__Function *f)
{
	return hash_bytes((s64[]){ f->name, f->system_name, f->filename, f->start_line },
			  4 * sizeof(s64));
}

static int add_function(struct job *j, Pprof__Function *f)
{
	int err = VEC_RESERVE(j->functions, j->functions_cap, j->nfunctions + 1, HTAB_EMPTY - 1);

	if (!err)
		err = htab_insert(&j->by_function, function_hash(f), j->nfunctions);
	if (!err)
		j->functions[j->nfunctions++] = f;
	return err;
}

/* Id of a function; 0: no memory. */
static u64 function_id(struct job *j, const struct dwarf_frame *frame)
{
	Pprof__Function want = PPROF__FUNCTION__INIT, *f;
	u64 hash;
	u32 pos, i;

	want.name = text(j, frame->func);
	want.system_name = text(j, frame->linked ? frame->linked : frame->func);
	want.filename = text(j, frame->file);
	want.start_line = frame->start_line;
	hash = function_hash(&want);
	for (pos = htab_start(&j->by_function, hash); htab_next(&j->by_function, hash, &pos, &i);) {
		f = j->functions[i];
		if (f->name == want.name && f->system_name == want.system_name &&
		    f->filename == want.filename && f->start_line == want.start_line)
			return f->id;
	}
	f = alloc(j, 1, sizeof(*f));
	if (!f)
		return 0;
	*f = want;
	f->id = j->next_id++;
	return add_function(j, f) ? 0 : f->id;
}

/* The old lines stay when there is no memory for new ones. */
static void set_lines(struct job *j, Pprof__Location *l, const struct dwarf_frame *frames, u32 n)
{
	Pprof__Line **lines = alloc(j, n, sizeof(*lines));
	u32 i;

	for (i = 0; lines && i < n; i++) {
		lines[i] = alloc(j, 1, sizeof(**lines));
		if (!lines[i])
			return;
		pprof__line__init(lines[i]);
		lines[i]->function_id = function_id(j, &frames[i]);
		lines[i]->line = frames[i].line;
		if (!lines[i]->function_id)
			return;
	}
	if (!lines)
		return;
	l->line = lines;
	l->n_line = n;
}

static const char *symbol_name(const struct binary *b, u64 addr, char *clean, char *readable)
{
	const char *raw = elfsym_lookup(b->symbols, addr);

	if (!raw)
		return NULL;
	utf8_clean(clean, NAME_MAX_LEN + 1, raw, NAME_MAX_LEN);
	return demangle(clean, readable, DEMANGLE_OUT_MAX + 1) ? readable : clean;
}

static void name_location(struct job *j, const struct binary *b, Pprof__Location *l, u64 addr)
{
	struct dwarf_frame frames[DWARFNAMES_DEPTH] = { 0 };
	char clean[NAME_MAX_LEN + 1], readable[DEMANGLE_OUT_MAX + 1];
	u32 n = b->dwarf ? dwarfnames_find(b->dwarf, addr, frames) : 0;

	if (!n || !frames[n - 1].func) {
		n = MAX(n, 1u);
		frames[n - 1].func = symbol_name(b, addr, clean, readable);
		frames[n - 1].linked = clean;
	}
	if (!frames[n - 1].func)
		return; /* a line without a function says nothing to viewers */
	j->figures->inlined += n > 1;
	j->figures->lines += frames[0].line != 0;
	set_lines(j, l, frames, n);
}

/* A location that another program has told all about stays as it is. */
static bool is_open(const Pprof__Location *l)
{
	return !l->n_line || (l->n_line == 1 && !l->line[0]->line);
}

struct place {
	u64 addr;
	Pprof__Location *location;
};

static int by_addr(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* The locations of a mapping in order of their addresses; n of them. Owned. */
static struct place *places_of(struct job *j, const Pprof__Mapping *m, const struct binary *b,
			       u32 *ret_n)
{
	struct place *v = NULL;
	size_t i;
	u32 n = 0, cap = 0;

	for (i = 0; i < j->p->n_location; i++) {
		Pprof__Location *l = j->p->location[i];
		u64 addr;

		if (l->mapping_id != m->id || !is_open(l) || !elf_address(b, m, l->address, &addr))
			continue;
		if (VEC_RESERVE(v, cap, n + 1, HTAB_EMPTY - 1))
			break;
		v[n++] = (struct place){ addr, l };
	}
	if (n)
		qsort(v, n, sizeof(*v), by_addr);
	*ret_n = n;
	return v;
}

static void set_flags(struct job *j, Pprof__Mapping *m)
{
	bool all = true, lines = false, inlined = false;
	size_t i;

	for (i = 0; i < j->p->n_location; i++) {
		const Pprof__Location *l = j->p->location[i];

		if (l->mapping_id != m->id)
			continue;
		j->figures->locations++;
		j->figures->named += l->n_line > 0;
		all &= l->n_line > 0;
		lines |= l->n_line && l->line[0]->line;
		inlined |= l->n_line > 1;
	}
	/* Whoever reads "has functions" looks no further. */
	m->has_functions = all;
	m->has_filenames |= lines;
	m->has_line_numbers |= lines;
	m->has_inline_frames |= inlined;
}

static void name_mapping(struct job *j, Pprof__Mapping *m)
{
	const char *path = string_at(j->p, m->filename);
	_cleanup_(binary_fini) struct binary b = { .fd = -1, .debug_fd = -1 };
	_cleanup_free_ struct place *v = NULL;
	u32 n = 0, i;

	if (path[0] != '/' || path[1] == '/') /* "//anon" */
		return;
	j->figures->files++;
	if (binary_open(&b, j->o, path, string_at(j->p, m->build_id))) {
		j->figures->files_found++;
		j->figures->files_lines += b.dwarf != NULL;
		v = places_of(j, m, &b, &n);
		for (i = 0; i < n; i++)
			name_location(j, &b, v[i].location, v[i].addr);
	}
	set_flags(j, m);
}

static int index_message(struct job *j)
{
	Pprof__Profile *p = j->p;
	size_t i;
	int err = 0;

	if (p->n_string_table > INT32_MAX || p->n_function > INT32_MAX)
		return -E2BIG;
	for (i = 1; !err && i < p->n_string_table; i++)
		err = htab_insert(&j->by_text,
				  hash_bytes(p->string_table[i], strlen(p->string_table[i])),
				  (u32)i);
	j->next_id = 1;
	for (i = 0; !err && i < p->n_function; i++) {
		j->next_id = MAX(j->next_id, p->function[i]->id + 1);
		err = add_function(j, p->function[i]);
	}
	/* An id of 2^64 - 1 leaves none for ours. */
	return err ? err : !j->next_id || j->next_id > UINT64_MAX / 2 ? -EBADMSG : 0;
}

/* The message's own strings, then ours. */
static int join_strings(struct job *j)
{
	size_t own = j->p->n_string_table;
	u32 i;

	j->strings = calloc(own + j->text.n + 1, sizeof(*j->strings));
	if (!j->strings)
		return -ENOMEM;
	memcpy(j->strings, j->p->string_table, own * sizeof(*j->strings));
	for (i = 0; i < j->text.n; i++)
		j->strings[own + i] = j->text.entries[i].s;
	return 0;
}

static void job_fini(struct job *j)
{
	strtab_fini(&j->text);
	htab_fini(&j->by_text);
	htab_fini(&j->by_function);
	free(j->functions);
	free(j->strings);
}

static int name_all(struct job *j, u8 **ret, size_t *ret_len)
{
	Pprof__Profile out = *j->p;
	size_t i;
	int err = index_message(j);

	for (i = 0; !err && i < j->p->n_mapping; i++)
		name_mapping(j, j->p->mapping[i]);
	if (!err)
		err = join_strings(j);
	if (err)
		return err;
	out.string_table = j->strings;
	out.n_string_table = j->p->n_string_table + j->text.n;
	out.function = j->functions;
	out.n_function = j->nfunctions;
	return pprof_pack(&out, ret, ret_len);
}

int symbolize(const u8 *data, size_t len, const struct symbolize_options *o, u8 **ret,
	      size_t *ret_len, struct symbolize_figures *figures)
{
	_cleanup_(pprof_in_fini) struct pprof_in in = { 0 };
	_cleanup_(job_fini) struct job j = { .o = o, .figures = figures };
	int err = pprof_in_open(&in, data, len, SYMBOLIZE_FILE_MAX, SYMBOLIZE_MEMORY_MAX);

	*figures = (struct symbolize_figures){ 0 };
	if (err)
		return err;
	j.p = in.pb;
	return name_all(&j, ret, ret_len);
}
