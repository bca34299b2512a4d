// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See kallsyms.h. Lines "ADDRESS TYPE NAME [MODULE]" in, a sorted array and two
 * blobs of text out. What is no code is not kept by name, but the first of it behind code is
 * kept as an end (name 0), so that no function reaches into data.
 */
#include "kallsyms.h"

#include "htab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SYMBOLS_MAX      (4u << 20)
#define NAMES_MAX        (256u << 20)
#define MODULES_MAX      4096
#define CHANGES_MAX      4096 /* kept at a time; more than that, and the file is read again */
#define MODULES_FILE_MAX (1u << 20)
#define LINE_LENGTH      1024 /* KSYM_NAME_LEN is 512 and MODULE_NAME_LEN under 64, Linux 6.x */
#define REACH_MAX        (1u << 20) /* no function is longer; what follows may be unmapped */

/* Among names of one address the lower rank wins, then the earlier line. */
enum rank { RANK_GLOBAL, RANK_WEAK, RANK_LOCAL, RANK_OTHER_ABI, RANK_MARK, RANK_END };

struct entry {
	u64 addr;
	u32 name; /* offset in names; 0: an end */
	u16 module;
	u16 rank;
};

/* What has happened to [lo, hi) since the file was read. */
struct change {
	u64 lo, hi;
	u32 name; /* 0: nothing is there now */
	u16 module;
};

struct kallsyms {
	char *path, *modules_path;
	struct entry *entries;
	u32 n, cap;
	char *names; /* offset 0 is not used */
	u32 names_len, names_cap;
	char **modules; /* [0] is vmlinux */
	u32 nmodules, modules_cap;
	bool any_address;
	struct change *changes; /* by lo, none overlaps another */
	u32 nchanges, changes_cap, changed;
	bool stale; /* more has changed than is known */
	u64 loaded; /* digest of the modules that were loaded when the file was read */
};

/* Where the reading of a line stands. */
struct cursor {
	const char *p, *end;
};

static bool take_hex(struct cursor *c, u64 *ret)
{
	const char *start = c->p;
	u64 v = 0;

	for (; c->p < c->end; c->p++) {
		u32 digit;

		if (*c->p >= '0' && *c->p <= '9')
			digit = (u32)(*c->p - '0');
		else if (*c->p >= 'a' && *c->p <= 'f')
			digit = (u32)(*c->p - 'a') + 10;
		else
			break;
		if (v >> 60)
			return false;
		v = v << 4 | digit;
	}
	*ret = v;
	return c->p > start;
}

/* Skips blanks, gives the word behind them; empty at the end of the line. */
static size_t take_word(struct cursor *c, const char **ret)
{
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\t'))
		c->p++;
	*ret = c->p;
	while (c->p < c->end && *c->p != ' ' && *c->p != '\t')
		c->p++;
	return (size_t)(c->p - *ret);
}

static bool has_prefix(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

static bool has_suffix(const char *s, const char *suffix)
{
	size_t len = strlen(s), n = strlen(suffix);

	return len > n && !strcmp(s + len - n, suffix);
}

/*
 * Linker scripts put marks around parts of the text (include/asm-generic/vmlinux.lds.h): where a
 * part ends, code may end; where it starts, the function that starts there has the better name.
 */
static enum rank rank_of(char type, const char *name)
{
	if (!strcmp(name, "_etext") || !strcmp(name, "_einittext"))
		return RANK_END;
	if (!strcmp(name, "_text") || !strcmp(name, "_stext") || !strcmp(name, "_sinittext") ||
	    has_suffix(name, "_text_start") || has_suffix(name, "_text_end"))
		return RANK_MARK;
	/* A system call's entry has one name per ABI, often at one address. */
	if (has_prefix(name, "__ia32_") || has_prefix(name, "__pi_"))
		return RANK_OTHER_ABI;
	switch (type) {
	case 'T':
		return RANK_GLOBAL;
	case 'W':
	case 'w':
		return RANK_WEAK;
	default:
		return RANK_LOCAL;
	}
}

/* name is NUL-terminated at len, which a line bounds. */
static int add_name(struct kallsyms *k, const char *name, size_t len, u32 *ret)
{
	int err = VEC_RESERVE(k->names, k->names_cap, k->names_len + (u32)len + 1, NAMES_MAX);

	if (err)
		return err;
	memcpy(k->names + k->names_len, name, len + 1);
	*ret = k->names_len;
	k->names_len += (u32)len + 1;
	return 0;
}

/* Lines of a module stand together, so the last one is nearly always right. */
static int find_module(struct kallsyms *k, const char *name, u16 *ret)
{
	char *copy;
	u32 i;
	int err;

	for (i = k->nmodules; i-- > 0;)
		if (!strcmp(k->modules[i], name)) {
			*ret = (u16)i;
			return 0;
		}
	err = VEC_RESERVE(k->modules, k->modules_cap, k->nmodules + 1, MODULES_MAX);
	if (err)
		return err;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	*ret = (u16)k->nmodules;
	k->modules[k->nmodules++] = copy;
	return 0;
}

static int add_entry(struct kallsyms *k, const struct entry *e)
{
	int err = VEC_RESERVE(k->entries, k->cap, k->n + 1, SYMBOLS_MAX);

	if (!err)
		k->entries[k->n++] = *e;
	return err;
}

/* "[ext4]" without its brackets; anything else is vmlinux. Cuts the text in place. */
static int take_module(struct kallsyms *k, char *word, size_t len, u16 *ret)
{
	*ret = 0;
	if (len < 3 || word[0] != '[' || word[len - 1] != ']')
		return 0;
	word[len - 1] = '\0';
	return find_module(k, word + 1, ret);
}

/* line is NUL-terminated at len and may be cut up. What is no symbol is skipped. */
static int add_line(struct kallsyms *k, char *line, size_t len)
{
	struct cursor c = { .p = line, .end = line + len };
	const char *type, *name, *module;
	size_t name_len, module_len;
	struct entry e = { .rank = RANK_END };
	int err;

	if (!take_hex(&c, &e.addr) || take_word(&c, &type) != 1)
		return 0;
	name_len = take_word(&c, &name);
	module_len = take_word(&c, &module);
	if (!name_len)
		return 0;
	k->any_address |= e.addr != 0;
	if (!strchr("tTwW", *type))
		return add_entry(k, &e);
	line[name + name_len - line] = '\0';
	e.rank = rank_of(*type, name);
	if (e.rank == RANK_END)
		return add_entry(k, &e);
	err = take_module(k, line + (module - line), module_len, &e.module);
	if (!err)
		err = add_name(k, name, name_len, &e.name);
	return err ? err : add_entry(k, &e);
}

/* One read() of /proc/kallsyms gives few lines; a buffer of this size keeps copies rare. */
struct reader {
	int fd;
	size_t len;
	bool skipping; /* inside a line that is too long */
	char buf[64 << 10];
};

/* Adds the whole lines in the buffer and keeps the rest. */
static int add_lines(struct kallsyms *k, struct reader *r, bool last)
{
	char *start = r->buf, *end = r->buf + r->len;
	int err = 0;

	while (!err && start < end) {
		char *nl = memchr(start, '\n', (size_t)(end - start));
		char *stop = nl ? nl : end;

		if (!nl && !last && end - start <= LINE_LENGTH)
			break;
		*stop = '\0';
		if (!r->skipping && stop - start <= LINE_LENGTH)
			err = add_line(k, start, (size_t)(stop - start));
		r->skipping = !nl;
		start = nl ? nl + 1 : end;
	}
	r->len = (size_t)(end - start);
	memmove(r->buf, start, r->len);
	return err;
}

static int read_lines(struct kallsyms *k, struct reader *r)
{
	/* Ends with the file, or when the book is full. */
	for (;;) {
		ssize_t n = read(r->fd, r->buf + r->len, sizeof(r->buf) - 1 - r->len);
		int err;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		r->len += (size_t)n;
		err = add_lines(k, r, !n);
		if (err || !n)
			return err;
	}
}

static int read_symbols(struct kallsyms *k, const char *path)
{
	_cleanup_free_ struct reader *r = malloc(sizeof(*r));
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (!r)
		return -ENOMEM;
	if (fd < 0)
		return -errno;
	r->fd = fd;
	r->len = 0;
	r->skipping = false;
	return read_lines(k, r);
}

/* By address; of one address the best first. Names are numbered in the order of lines. */
static int compare(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return (a->name > b->name) - (a->name < b->name);
}

/* Keeps the best entry of each address, and of a run of ends the first. */
static void compact(struct kallsyms *k)
{
	u32 i, n = 0;

	qsort(k->entries, k->n, sizeof(k->entries[0]), compare);
	for (i = 0; i < k->n; i++) {
		const struct entry *e = &k->entries[i];

		if (n && k->entries[n - 1].addr == e->addr)
			continue;
		if (!e->name && (!n || !k->entries[n - 1].name))
			continue;
		k->entries[n++] = *e;
	}
	k->n = n;
}

/* What doubling left over. */
static void shrink(struct kallsyms *k)
{
	void *p;

	p = k->n ? reallocarray(k->entries, k->n, sizeof(k->entries[0])) : NULL;
	if (p) {
		k->entries = p;
		k->cap = k->n;
	}
	p = realloc(k->names, k->names_len);
	if (p) {
		k->names = p;
		k->names_cap = k->names_len;
	}
}

static int init(struct kallsyms *k)
{
	u32 name;
	u16 module;
	int err;

	err = find_module(k, "vmlinux", &module);
	return err ? err : add_name(k, "", 0, &name);
}

/* Which modules are loaded where: "NAME SIZE USERS BY STATE ADDRESS" a line, without the users. */
static u64 loaded_modules(const struct kallsyms *k)
{
	_cleanup_free_ char *text = NULL;
	char *line, *save = NULL;
	u64 h = 0;
	char name[64], addr[24];

	if (read_file(k->modules_path, MODULES_FILE_MAX, &text, NULL))
		return 0; /* a kernel without modules */
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, "%63s %*s %*s %*s %*s %23s", name, addr) == 2)
			h = hash_mix(hash_mix(h, hash_bytes(name, strlen(name))),
				     hash_bytes(addr, strlen(addr)));
	return h;
}

static void contents_fini(struct kallsyms *k)
{
	u32 i;

	for (i = 0; i < k->nmodules; i++)
		free(k->modules[i]);
	free(k->modules);
	free(k->names);
	free(k->entries);
	free(k->changes);
}

/* Fills an empty book; k->path and k->modules_path are set. */
static int read_all(struct kallsyms *k)
{
	int err = init(k);

	/* Before the symbols: what is loaded in between is seen the next time. */
	k->loaded = loaded_modules(k);
	if (!err)
		err = read_symbols(k, k->path);
	if (err)
		return err;
	if (!k->n)
		return -ENODATA;
	if (!k->any_address)
		return -EACCES;
	compact(k);
	shrink(k);
	return 0;
}

static void kallsyms_freep(struct kallsyms **k)
{
	kallsyms_free(*k);
}

/* The list of modules that goes with a list of symbols: beside it, as in /proc. */
static int set_paths(struct kallsyms *k, const char *path)
{
	const char *slash = strrchr(path, '/');

	k->path = strdup(path);
	if (asprintf(&k->modules_path, "%.*smodules", slash ? (int)(slash + 1 - path) : 0, path) <
	    0)
		k->modules_path = NULL;
	return k->path && k->modules_path ? 0 : -ENOMEM;
}

int kallsyms_new(const char *path, struct kallsyms **ret)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k = calloc(1, sizeof(*k));
	int err;

	if (!k)
		return -ENOMEM;
	err = set_paths(k, path ? path : "/proc/kallsyms");
	if (!err)
		err = read_all(k);
	if (err)
		return err;
	*ret = take_ptr(k);
	return 0;
}

void kallsyms_free(struct kallsyms *k)
{
	if (!k)
		return;
	contents_fini(k);
	free(k->path);
	free(k->modules_path);
	free(k);
}

/* --- changes --------------------------------------------------------------------------------- */

/* First change that ends behind addr; halves each turn. */
static u32 change_at(const struct kallsyms *k, u64 addr)
{
	u32 lo = 0, hi = k->nchanges;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (k->changes[mid].hi <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Makes [lo, hi) free of changes, with room for one more; its place. What juts out is cut. */
static int make_place(struct kallsyms *k, u64 lo, u64 hi, u32 *ret)
{
	struct change *c;
	u32 at, end;

	if (VEC_RESERVE(k->changes, k->changes_cap, k->nchanges + 2, CHANGES_MAX))
		return -E2BIG;
	at = change_at(k, lo);
	c = &k->changes[at];
	if (at < k->nchanges && c->lo < lo && c->hi > hi) {
		memmove(c + 1, c, (k->nchanges - at) * sizeof(*c));
		k->nchanges++;
		c[1].lo = hi;
		c->hi = lo;
		at++;
	} else if (at < k->nchanges && c->lo < lo) {
		c->hi = lo;
		at++;
	}
	for (end = at; end < k->nchanges && k->changes[end].hi <= hi; end++)
		;
	if (end < k->nchanges && k->changes[end].lo < hi)
		k->changes[end].lo = hi;
	memmove(k->changes + at + 1, k->changes + end, (k->nchanges - end) * sizeof(*c));
	k->nchanges = at + 1 + k->nchanges - end;
	*ret = at;
	return 0;
}

void kallsyms_change(struct kallsyms *k, u64 addr, u64 len, const char *name, const char *module)
{
	struct change c = { .lo = addr, .hi = addr + len };
	u32 at;

	if (c.hi <= c.lo)
		return;
	/* Names of what is gone stay in memory until the file is read again. */
	if (++k->changed >= 4 * CHANGES_MAX)
		k->stale = true;
	if (name && *name && strlen(name) < LINE_LENGTH && !k->stale &&
	    (add_name(k, name, strlen(name), &c.name) ||
	     (*module && find_module(k, module, &c.module)))) {
		k->stale = true;
		c.name = 0;
	}
	if (make_place(k, c.lo, c.hi, &at))
		k->stale = true;
	else
		k->changes[at] = c;
}

void kallsyms_follow(struct kallsyms *k, bool lost)
{
	struct kallsyms fresh = { .path = k->path, .modules_path = k->modules_path };

	k->stale |= lost;
	if (!k->stale && loaded_modules(k) == k->loaded)
		return;
	k->stale = false;
	if (read_all(&fresh)) {
		k->loaded = fresh.loaded; /* not each second anew */
		contents_fini(&fresh);
		return;
	}
	contents_fini(k);
	*k = fresh;
}

/* --- lookup ---------------------------------------------------------------------------------- */

const char *kallsyms_lookup(const struct kallsyms *k, u64 addr, const char **ret_module)
{
	u32 lo = 0, hi = k->n, at = change_at(k, addr);
	const struct entry *e;

	if (at < k->nchanges && k->changes[at].lo <= addr) {
		const struct change *c = &k->changes[at];

		if (ret_module)
			*ret_module = k->modules[c->module];
		return c->name ? k->names + c->name : NULL;
	}
	/* First entry behind addr; halves each turn. */
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (k->entries[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	e = &k->entries[lo - 1];
	if (!e->name || addr - e->addr >= REACH_MAX)
		return NULL;
	if (ret_module)
		*ret_module = k->modules[e->module];
	return k->names + e->name;
}
