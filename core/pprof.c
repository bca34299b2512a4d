// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. In: one profile of a closed window. Out: gzip pprof, or folded text. The message is
 * built as protobuf-c structs in one arena, where stacks and label sets that samples share exist
 * once, then packed and compressed in one go.
 */
#include "pprof.h"

#include "fold.h"
#include "gzip.h"
#include "htab.h"
#include "module.h"
#include "profile.pb-c.h"
#include "stack.h"
#include "strtab.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <nettle/hmac.h>
#include <string.h>

#define PAGE_MASK 4095ull
/*
 * Address ranges of mappings that are no file. They are the same in every profile, since viewers
 * merge profiles by {size, offset, name} of the mapping and {address - start}; a limit of 2^63 and
 * more means the kernel to them.
 */
#define USER_SPACE_END     (1ull << 62)
#define KERNEL_SPACE_START (1ull << 63)
/* Readers refuse larger ones anyway; no window comes near (WINDOW_MAX_*). */
#define MESSAGE_MAX (1u << 30)
/* Foreign text outside the window: paths, labels, comments. */
#define FOREIGN_MAX 4096
/* Of one frame in folded lines, which repeat it without end. */
#define FOLDED_NAME_MAX 1024

/* --- a map from a window's index to something built once ---------------------------------- */

struct memo_entry {
	u32 key;
	void *value;
};

struct memo {
	struct htab by_key;
	struct memo_entry *entries;
	u32 n, cap;
};

static void memo_fini(struct memo *m)
{
	htab_fini(&m->by_key);
	free(m->entries);
}

static u64 memo_hash(u32 key)
{
	return hash_bytes(&key, sizeof(key));
}

static void *memo_get(const struct memo *m, u32 key)
{
	u64 hash = memo_hash(key);
	u32 pos, i;

	for (pos = htab_start(&m->by_key, hash); htab_next(&m->by_key, hash, &pos, &i);)
		if (m->entries[i].key == key)
			return m->entries[i].value;
	return NULL;
}

static int memo_put(struct memo *m, u32 key, void *value)
{
	int err = VEC_RESERVE(m->entries, m->cap, m->n + 1, HTAB_EMPTY - 1);

	if (!err)
		err = htab_insert(&m->by_key, memo_hash(key), m->n);
	if (err)
		return err;
	m->entries[m->n++] = (struct memo_entry){ key, value };
	return 0;
}

/* --- the message under construction -------------------------------------------------------- */

struct mapping_key {
	const void *owner; /* module, or the mapping's interned name */
	u64 start, limit, offset;
	bool named;
};

struct mapping {
	Pprof__Mapping pb;
	struct mapping_key key;
	u32 rank, seq; /* order in the file */
};

struct location_entry {
	Pprof__Location pb;
	struct mapping *mapping; /* NULL: none */
	Pprof__Line line, *lines[1];
};

struct sample_entry {
	Pprof__Sample pb;
	int64_t value[]; /* builder.nvalues */
};

/* Labels that come from a label set as texts; equal ones are one struct. */
enum shared_label { LABEL_EXE, LABEL_THREAD, LABEL_CMDLINE, LABEL_SHARED_MAX };

struct label_list {
	Pprof__Label **labels;
	size_t n;
};

struct builder {
	const struct window *w;
	const struct profile *const *profiles;
	u32 nprofiles;
	u32 nvalues; /* of each sample: those of the first profile's type, then the next's, ... */
	const struct pprof_options *o;
	/*
	 * First failure. What was built until then is sound but incomplete, so that only the
	 * outer loop needs to look.
	 */
	int err;
	struct strtab strings; /* its arena holds everything else as well */
	struct memo locations, stacks, label_sets, identities, shared_labels[LABEL_SHARED_MAX];
	struct htab mappings_by_key, functions_by_key;
	struct mapping **mappings;
	Pprof__Location **locs;
	Pprof__Function **functions;
	Pprof__Sample **samples;
	Pprof__Label **common; /* labels of every sample */
	u32 nmappings, nlocs, nfunctions, nsamples, ncommon;
	u32 mappings_cap, locs_cap, functions_cap, samples_cap;
	char **texts;
	struct hmac_sha256_ctx pid_hmac;
	const char *main_exe;
};

static void builder_fini(struct builder *b)
{
	u32 i;

	strtab_fini(&b->strings);
	memo_fini(&b->locations);
	memo_fini(&b->stacks);
	memo_fini(&b->label_sets);
	memo_fini(&b->identities);
	for (i = 0; i < LABEL_SHARED_MAX; i++)
		memo_fini(&b->shared_labels[i]);
	htab_fini(&b->mappings_by_key);
	htab_fini(&b->functions_by_key);
	free(b->mappings);
	free(b->locs);
	free(b->functions);
	free(b->samples);
	free(b->texts);
}

static void fail(struct builder *b, int err)
{
	if (!b->err)
		b->err = err;
}

/* NULL after a failure. */
static void *alloc(struct builder *b, size_t n, size_t size)
{
	void *p = NULL;

	if (!b->err)
		p = arena_alloc(&b->strings.arena, MAX(n, 1u) * size, _Alignof(u64));
	if (!p)
		fail(b, -ENOMEM);
	return p;
}

/* Room for one more pointer in a list of the builder. */
static bool grow(struct builder *b, void *list, u32 n, u32 *cap)
{
	int err = b->err ? b->err : vec_reserve(list, cap, n + 1, HTAB_EMPTY - 1, sizeof(void *));

	if (err)
		fail(b, err);
	return !err;
}
#define GROW(b, list) grow((b), &(b)->list, (b)->n##list, &(b)->list##_cap)

/*
 * Where a path of a home directory begins in a text, NULL: nowhere. "~" of people, not of services,
 * whose homes lie elsewhere.
 */
static const char *home_path(const char *s)
{
	static const char *const homes[] = { "/home/", "/root/", "/var/home/", "/export/home/" };
	const char *first = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(homes); i++) {
		const char *at = s;

		while ((at = strstr(at, homes[i]))) {
			/* "/srv/home/" is none; "file:///home/" is. */
			if (at == s || (!isalnum((u8)at[-1]) && !strchr("._-", at[-1])))
				break;
			at++;
		}
		if (at && (!first || at < first))
			first = at;
	}
	return first;
}

/*
 * Number of a text of the window, which is clean; NULL is "". With strip_homes all that may be a
 * directory goes from it: up to its last '/'.
 */
static u32 text(struct builder *b, const char *s)
{
	const char *home = s && b->o->strip_homes ? home_path(s) : NULL;
	_cleanup_free_ char *without = NULL;
	u32 i = 0;
	int err;

	if (b->err || !s)
		return 0;
	if (home) {
		if (asprintf(&without, "%.*s%s", (int)(home - s), s, strrchr(s, '/') + 1) < 0) {
			fail(b, -ENOMEM);
			return 0;
		}
		s = without;
	}
	err = strtab_add(&b->strings, s, strlen(s), &i);
	if (err)
		fail(b, err);
	return i;
}

/* Number of a text from elsewhere. */
static u32 foreign_text(struct builder *b, const char *s, size_t len)
{
	char clean[FOREIGN_MAX + 1];

	utf8_clean(clean, sizeof(clean), s, MIN(len, (size_t)FOREIGN_MAX));
	return text(b, clean);
}

static Pprof__ValueType *value_type(struct builder *b, const char *type, const char *unit)
{
	Pprof__ValueType *v = alloc(b, 1, sizeof(*v));

	if (!v)
		return NULL;
	pprof__value_type__init(v);
	v->type = text(b, type);
	v->unit = text(b, unit);
	return v;
}

/* --- functions, mappings, locations -------------------------------------------------------- */

static u64 function_hash(u32 name, u32 linked, u32 file)
{
	return hash_bytes((u32[]){ name, linked, file }, 3 * sizeof(u32));
}

/* Returns the function's id, 0 after a failure. */
static u64 function_id(struct builder *b, const struct location *l)
{
	u32 name = text(b, l->func), filename = text(b, l->file), pos, i;
	/* The same text in both tells viewers that the name is as linked, not yet demangled. */
	u32 linked = l->linked ? text(b, l->linked) : name;
	u64 hash = function_hash(name, linked, filename);
	Pprof__Function *f;
	int err;

	for (pos = htab_start(&b->functions_by_key, hash);
	     htab_next(&b->functions_by_key, hash, &pos, &i);)
		if (b->functions[i]->name == name && b->functions[i]->system_name == linked &&
		    b->functions[i]->filename == filename)
			return b->functions[i]->id;
	f = alloc(b, 1, sizeof(*f));
	if (!f || !GROW(b, functions))
		return 0;
	err = htab_insert(&b->functions_by_key, hash, b->nfunctions);
	if (err) {
		fail(b, err);
		return 0;
	}
	pprof__function__init(f);
	f->id = b->nfunctions + 1;
	f->name = name;
	f->system_name = linked;
	f->filename = filename;
	b->functions[b->nfunctions++] = f;
	return f->id;
}

static void add_line(struct builder *b, struct location_entry *e, const struct location *l)
{
	pprof__line__init(&e->line);
	e->line.function_id = function_id(b, l);
	e->line.line = l->line;
	e->lines[0] = &e->line;
	e->pb.line = e->lines;
	e->pb.n_line = 1;
}

static u64 add_capped(u64 a, u64 b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/*
 * The segment's range in the file's own address space, as the loader would map it: whole pages.
 * Returns false when the segment does not fit into the address space.
 */
static bool segment_range(const struct module_segment *seg, struct mapping_key *key)
{
	u64 size = MAX(seg->mem_size, seg->file_size), before = 0;

	if (size > UINT64_MAX - PAGE_MASK - 1 - PAGE_MASK ||
	    seg->vaddr > UINT64_MAX - PAGE_MASK - 1 - PAGE_MASK - size)
		return false;
	/* A loadable segment has vaddr = offset modulo the page size. */
	if ((seg->vaddr & PAGE_MASK) == (seg->offset & PAGE_MASK))
		before = seg->vaddr & PAGE_MASK;
	key->start = seg->vaddr - before;
	key->offset = seg->offset - before;
	key->limit = (seg->vaddr + size + PAGE_MASK) & ~PAGE_MASK;
	return true;
}

static void native_key(const struct location *l, struct mapping_key *key, u64 *ret_address)
{
	const struct module_segment *seg = module_segment(l->module, l->address);

	key->owner = l->module;
	if (seg && l->address >= seg->offset && segment_range(seg, key)) {
		u64 address = l->address - seg->offset + seg->vaddr;

		if (address >= key->start && address < key->limit) {
			*ret_address = address;
			return;
		}
	}
	/*
	 * Segments not known: file offsets stand for addresses, and start = file_offset says so to
	 * whoever has the file. Page by page, since pprof looks only at segments that begin before
	 * file_offset.
	 */
	*key = (struct mapping_key){ .owner = l->module, .start = l->address & ~PAGE_MASK };
	key->offset = key->start;
	key->limit = add_capped(key->start, PAGE_MASK + 1);
	*ret_address = l->address;
}

static const char *mapping_path(const struct location *l)
{
	return l->kind == FRAME_NATIVE ? module_path(l->module) : l->mapping;
}

static u32 mapping_rank(const struct builder *b, const struct location *l)
{
	if (l->kind == FRAME_KERNEL)
		return 2;
	if (l->kind == FRAME_NATIVE && b->main_exe &&
	    !strcmp(base_name(module_path(l->module)), b->main_exe))
		return 0;
	return 1;
}

static struct mapping *mapping_new(struct builder *b, const struct location *l,
				   const struct mapping_key *key)
{
	const char *path = mapping_path(l);
	struct mapping *m = alloc(b, 1, sizeof(*m));

	if (!m)
		return NULL;
	pprof__mapping__init(&m->pb);
	m->key = *key;
	m->rank = mapping_rank(b, l);
	m->seq = b->nmappings;
	m->pb.memory_start = key->start;
	m->pb.memory_limit = key->limit;
	m->pb.file_offset = key->offset;
	m->pb.filename = foreign_text(b, path, strlen(path));
	if (l->kind == FRAME_NATIVE)
		m->pb.build_id = text(b, module_build_id(l->module));
	m->pb.has_functions = key->named;
	return m;
}

static bool mapping_key_equal(const struct mapping_key *a, const struct mapping_key *b)
{
	return a->owner == b->owner && a->start == b->start && a->limit == b->limit &&
	       a->offset == b->offset && a->named == b->named;
}

static struct mapping *mapping_get(struct builder *b, const struct location *l,
				   const struct mapping_key *key)
{
	u64 hash = hash_bytes((u64[]){ (uintptr_t)key->owner, key->start, key->limit, key->offset,
				       key->named },
			      5 * sizeof(u64));
	struct mapping *m;
	u32 pos, i;
	int err;

	for (pos = htab_start(&b->mappings_by_key, hash);
	     htab_next(&b->mappings_by_key, hash, &pos, &i);)
		if (mapping_key_equal(&b->mappings[i]->key, key))
			return b->mappings[i];
	m = mapping_new(b, l, key);
	if (!m || !GROW(b, mappings))
		return NULL;
	err = htab_insert(&b->mappings_by_key, hash, b->nmappings);
	if (err) {
		fail(b, err);
		return NULL;
	}
	b->mappings[b->nmappings++] = m;
	return m;
}

/*
 * Mapping of a location and its address there; NULL for none. Named and unnamed frames never share
 * an entry: has_functions tells a server that nothing is left to name, and one drops the addresses.
 */
static struct mapping *location_mapping(struct builder *b, const struct location *l, bool named,
					u64 *ret_address)
{
	struct mapping_key key = { 0 };

	*ret_address = l->address;
	if (l->kind == FRAME_NATIVE && l->module) {
		native_key(l, &key, ret_address);
		/*
		 * pprof takes entries of equal size, offset and build id for one and keeps the
		 * first one's flags; a page more keeps the two apart there.
		 */
		if (named)
			key.limit = add_capped(key.limit, PAGE_MASK + 1);
	} else if (l->kind == FRAME_KERNEL && l->mapping) {
		key.owner = l->mapping;
		key.start = KERNEL_SPACE_START;
		key.limit = UINT64_MAX;
	} else if (l->kind == FRAME_ANON && l->mapping) {
		key.owner = l->mapping;
		key.limit = named ? USER_SPACE_END + PAGE_MASK + 1 : USER_SPACE_END;
	} else {
		return NULL;
	}
	key.named = named;
	return mapping_get(b, l, &key);
}

/* Returns the location's id, 0 after a failure. */
static u64 location_id(struct builder *b, u32 index)
{
	const struct location *l = &b->w->locations[index];
	bool named = l->func && (l->kind != FRAME_NATIVE || b->o->names);
	struct location_entry *e = memo_get(&b->locations, index);
	int err;

	if (e)
		return e->pb.id;
	e = alloc(b, 1, sizeof(*e));
	if (!e || !GROW(b, locs))
		return 0;
	pprof__location__init(&e->pb);
	e->pb.id = b->nlocs + 1;
	e->mapping = location_mapping(b, l, named, &e->pb.address);
	if (named)
		add_line(b, e, l);
	err = memo_put(&b->locations, index, e);
	if (err) {
		fail(b, err);
		return 0;
	}
	b->locs[b->nlocs++] = &e->pb;
	return e->pb.id;
}

/* --- labels -------------------------------------------------------------------------------- */

static Pprof__Label *label_new(struct builder *b, u32 key)
{
	Pprof__Label *l = alloc(b, 1, sizeof(*l));

	if (!l)
		return NULL;
	pprof__label__init(l);
	l->key = key;
	return l;
}

/* A string label without a value would be read as the number 0: left out. */
static void add_string_label(struct builder *b, struct label_list *list, const char *key, u32 value)
{
	Pprof__Label *l = value ? label_new(b, text(b, key)) : NULL;

	if (!l)
		return;
	l->str = value;
	list->labels[list->n++] = l;
}

static void add_shared_label(struct builder *b, struct label_list *list, enum shared_label which,
			     const char *value)
{
	static const char *const keys[LABEL_SHARED_MAX] = {
		[LABEL_EXE] = "process.executable",
		[LABEL_THREAD] = "thread.name",
		[LABEL_CMDLINE] = "process.command_line",
	};
	u32 id = text(b, value);
	Pprof__Label *l = memo_get(&b->shared_labels[which], id);
	size_t n = list->n;
	int err;

	if (l) {
		list->labels[list->n++] = l;
		return;
	}
	add_string_label(b, list, keys[which], id);
	if (list->n == n)
		return;
	err = memo_put(&b->shared_labels[which], id, list->labels[n]);
	if (err)
		fail(b, err);
}

bool pprof_own_label(const char *name)
{
	static const char *const names[] = { "host",         "process.executable",
					     "thread.name",  "pid",
					     "thread.state", "process.command_line",
					     "wait",         "lock.address",
					     "lock.holder",  "trace_id",
					     "span_id",      "http.route" };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			return true;
	for (i = 0; i < IDENTITY_MAX; i++)
		if (!strcmp(identity_label_name(i), name))
			return true;
	return false;
}

/* One NAME=VALUE pair; ignored without a name, or when the name is taken. */
static void add_extra_label(struct builder *b, struct label_list *list, const char *pair)
{
	const char *eq = strchr(pair, '=');
	char key[FOREIGN_MAX + 1];
	u32 value, i;

	if (!eq || !utf8_clean(key, sizeof(key), pair, MIN((size_t)(eq - pair), FOREIGN_MAX)) ||
	    pprof_own_label(key))
		return;
	for (i = 0; i < list->n; i++)
		if (list->labels[i]->key == text(b, key))
			return;
	value = foreign_text(b, eq + 1, strlen(eq + 1));
	add_string_label(b, list, key, value);
}

static void common_labels(struct builder *b)
{
	const struct pprof_options *o = b->o;
	struct label_list list = { 0 };
	u32 i;

	list.labels = alloc(b, 2 + (size_t)o->nlabels, sizeof(*list.labels));
	if (!list.labels)
		return;
	if (o->host)
		add_string_label(b, &list, "host", foreign_text(b, o->host, strlen(o->host)));
	for (i = 0; i < o->nlabels; i++)
		add_extra_label(b, &list, o->labels[i]);
	b->common = list.labels;
	b->ncommon = (u32)list.n;
}

/*
 * Keyed hash of a pid: the first 6 bytes of HMAC-SHA256 over its 4 bytes, both big-endian. Small
 * enough to be exact in readers that keep numbers as doubles.
 */
static s64 pid_hash(struct builder *b, u32 pid)
{
	u8 in[4] = { (u8)(pid >> 24), (u8)(pid >> 16), (u8)(pid >> 8), (u8)pid }, out[6];
	s64 value = 0;
	u32 i;

	hmac_sha256_update(&b->pid_hmac, sizeof(in), in);
	hmac_sha256_digest(&b->pid_hmac, sizeof(out), out);
	for (i = 0; i < sizeof(out); i++)
		value = value << 8 | out[i];
	return value;
}

static void add_pid_label(struct builder *b, struct label_list *list, u32 pid)
{
	Pprof__Label *l;

	if (!b->o->plain_pid && !b->o->pid_key)
		return;
	l = label_new(b, text(b, "pid"));
	if (!l)
		return;
	l->num = b->o->plain_pid ? (s64)pid : pid_hash(b, pid);
	list->labels[list->n++] = l;
}

/* Labels that tell who it is, shared by all label sets of the same; NULL after a failure. */
static const struct label_list *identity_get(struct builder *b, u32 index)
{
	const struct identity_set *s = &b->w->identities[index];
	struct label_list *list = memo_get(&b->identities, index);
	u32 i;
	int err;

	if (list)
		return list;
	list = alloc(b, 1, sizeof(*list));
	if (!list)
		return NULL;
	list->n = 0;
	list->labels = alloc(b, IDENTITY_MAX, sizeof(*list->labels));
	if (!list->labels)
		return NULL;
	for (i = 0; i < IDENTITY_MAX; i++)
		add_string_label(b, list, identity_label_name(i), text(b, s->label[i]));
	err = memo_put(&b->identities, index, list);
	if (err)
		fail(b, err);
	return list;
}

/* Labels of a label set, the common ones first; NULL after a failure. */
static const struct label_list *label_list_get(struct builder *b, u32 index)
{
	const struct label_set *s = &b->w->labels[index];
	struct label_list *list = memo_get(&b->label_sets, index);
	const struct label_list *who;
	u32 i;
	int err;

	if (list)
		return list;
	who = identity_get(b, (u32)s->identity);
	list = alloc(b, 1, sizeof(*list));
	if (!who || !list)
		return NULL;
	list->n = 0;
	list->labels = alloc(b, b->ncommon + 4 + who->n + s->nlabels, sizeof(*list->labels));
	if (!list->labels)
		return NULL;
	for (; list->n < b->ncommon; list->n++)
		list->labels[list->n] = b->common[list->n];
	add_shared_label(b, list, LABEL_EXE, s->exe);
	add_shared_label(b, list, LABEL_THREAD, s->thread);
	add_shared_label(b, list, LABEL_CMDLINE, s->cmdline);
	add_pid_label(b, list, s->pid);
	for (i = 0; i < who->n; i++)
		list->labels[list->n++] = who->labels[i];
	for (i = 0; i < s->nlabels; i++)
		add_string_label(b, list, s->labels[i].key, text(b, s->labels[i].value));
	err = memo_put(&b->label_sets, index, list);
	if (err)
		fail(b, err);
	return list;
}

/* --- samples ------------------------------------------------------------------------------- */

/* Location ids of a stack, leaf first; shared by all its samples. */
static uint64_t *stack_ids(struct builder *b, u32 index)
{
	const struct stack *st = &b->w->stacks[index];
	uint64_t *ids = memo_get(&b->stacks, index);
	u32 i;
	int err;

	if (ids)
		return ids;
	ids = alloc(b, st->n, sizeof(*ids));
	if (!ids)
		return NULL;
	for (i = 0; i < st->n; i++)
		ids[i] = location_id(b, b->w->frames[st->first + i]);
	err = memo_put(&b->stacks, index, ids);
	if (err)
		fail(b, err);
	return ids;
}

static u32 type_values(const struct sample_type *type)
{
	return type->counted ? 2 : 1;
}

/* first: place of the values of the sample's type. */
static void add_sample(struct builder *b, const struct profile_sample *s, bool counted, u32 first)
{
	const struct label_list *list = label_list_get(b, s->labels);
	struct sample_entry *e = alloc(b, 1, sizeof(*e) + b->nvalues * sizeof(e->value[0]));
	uint64_t *ids = stack_ids(b, s->stack);

	if (!list || !e || !ids || !GROW(b, samples))
		return;
	pprof__sample__init(&e->pb);
	e->pb.location_id = ids;
	e->pb.n_location_id = b->w->stacks[s->stack].n;
	memset(e->value, 0, b->nvalues * sizeof(e->value[0]));
	e->pb.value = e->value;
	e->pb.n_value = b->nvalues;
	if (counted)
		e->value[first++] = (s64)MIN(s->count, (u64)INT64_MAX);
	e->value[first] = (s64)MIN(s->value_ns, (u64)INT64_MAX);
	e->pb.label = list->labels;
	e->pb.n_label = list->n;
	b->samples[b->nsamples++] = &e->pb;
}

static void add_samples(struct builder *b)
{
	u32 first = 0, k, i;

	for (k = 0; k < b->nprofiles; k++) {
		const struct profile *p = b->profiles[k];

		for (i = 0; i < p->nsamples && !b->err; i++)
			if (p->samples[i].count)
				add_sample(b, &p->samples[i], p->type->counted, first);
		first += type_values(p->type);
	}
}

/* A container runs several executables: its heaviest sample's one is shown as the main one. */
static const char *main_exe(const struct window *w, const struct profile *p)
{
	const struct profile_sample *best = NULL;
	u32 i;

	for (i = 0; i < p->nsamples; i++)
		if (p->samples[i].count && (!best || p->samples[i].value_ns > best->value_ns))
			best = &p->samples[i];
	return best ? w->labels[best->labels].exe : NULL;
}

static int mapping_order(const void *a, const void *b)
{
	const struct mapping *x = *(struct mapping *const *)a, *y = *(struct mapping *const *)b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (!x->rank && x->key.start != y->key.start)
		return x->key.start < y->key.start ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Mapping ids follow from their order in the file, which is known only now. */
static Pprof__Mapping **number_mappings(struct builder *b)
{
	Pprof__Mapping **list = alloc(b, b->nmappings, sizeof(*list));
	u32 i;

	if (!list)
		return NULL;
	if (b->nmappings)
		qsort(b->mappings, b->nmappings, sizeof(b->mappings[0]), mapping_order);
	for (i = 0; i < b->nmappings; i++) {
		b->mappings[i]->pb.id = i + 1;
		list[i] = &b->mappings[i]->pb;
	}
	for (i = 0; i < b->nlocs; i++) {
		struct location_entry *e = (struct location_entry *)b->locs[i];

		e->pb.mapping_id = e->mapping ? e->mapping->pb.id : 0;
	}
	return list;
}

static void add_comments(struct builder *b, Pprof__Profile *pb)
{
	u32 i;

	pb->comment = alloc(b, b->o->ncomments, sizeof(*pb->comment));
	if (!pb->comment)
		return;
	for (i = 0; i < b->o->ncomments; i++)
		pb->comment[i] = foreign_text(b, b->o->comments[i], strlen(b->o->comments[i]));
	pb->n_comment = b->o->ncomments;
}

static void add_type(struct builder *b, Pprof__Profile *pb, const struct sample_type *type)
{
	if (type->counted)
		pb->sample_type[pb->n_sample_type++] = value_type(b, "waits", "count");
	pb->sample_type[pb->n_sample_type++] = value_type(b, type->name, "nanoseconds");
}

static void set_header(struct builder *b, Pprof__Profile *pb)
{
	const struct sample_type *type = b->profiles[0]->type;
	const struct window *w = b->w;
	u32 i;

	pb->sample_type = alloc(b, b->nvalues, sizeof(*pb->sample_type));
	if (!pb->sample_type)
		return;
	/* Readers take the last type when none is named. */
	for (i = 0; i < b->nprofiles; i++)
		add_type(b, pb, b->profiles[i]->type);
	pb->default_sample_type = text(b, type->name);
	pb->period_type = value_type(b, type->name, "nanoseconds");
	pb->period = type->counted || type->looked ? 1 : (s64)MIN(b->o->period_ns, (u64)INT64_MAX);
	pb->time_nanos = (s64)(b->o->time_is_end ? w->end_ns : w->start_ns);
	/* The clock may have been set back meanwhile. */
	pb->duration_nanos = w->end_ns > w->start_ns ? (s64)(w->end_ns - w->start_ns) : 0;
	add_comments(b, pb);
}

static void set_strings(struct builder *b, Pprof__Profile *pb)
{
	u32 i;

	b->texts = calloc(b->strings.n, sizeof(*b->texts));
	if (!b->texts) {
		fail(b, -ENOMEM);
		return;
	}
	for (i = 0; i < b->strings.n; i++)
		b->texts[i] = b->strings.entries[i].s;
	pb->string_table = b->texts;
	pb->n_string_table = b->strings.n;
}

static int build(struct builder *b, Pprof__Profile *pb)
{
	u32 i;

	for (i = 0; i < b->nprofiles; i++)
		b->nvalues += type_values(b->profiles[i]->type);
	/* Entry 0 of the string table. */
	text(b, "");
	b->main_exe = main_exe(b->w, b->profiles[0]);
	if (!b->o->plain_pid && b->o->pid_key)
		hmac_sha256_set_key(&b->pid_hmac, SHA256_DIGEST_SIZE, b->o->pid_key);
	set_header(b, pb);
	common_labels(b);
	add_samples(b);
	pb->mapping = number_mappings(b);
	pb->n_mapping = b->nmappings;
	pb->location = b->locs;
	pb->n_location = b->nlocs;
	pb->function = b->functions;
	pb->n_function = b->nfunctions;
	pb->sample = b->samples;
	pb->n_sample = b->nsamples;
	if (!b->err)
		set_strings(b, pb);
	return b->err;
}

/* --- packing ------------------------------------------------------------------------------- */

int pprof_pack(const Pprof__Profile *pb, u8 **ret, size_t *ret_len)
{
	size_t len = pprof__profile__get_packed_size(pb);
	_cleanup_free_ u8 *raw = NULL;

	if (len > MESSAGE_MAX)
		return -E2BIG;
	raw = malloc(len);
	if (!raw)
		return -ENOMEM;
	pprof__profile__pack(pb, raw);
	return gzip_pack(raw, len, ret, ret_len);
}

int pprof_encode_all(const struct window *w, const struct profile *const *p, u32 n,
		     const struct pprof_options *o, u8 **ret, size_t *ret_len)
{
	_cleanup_(builder_fini) struct builder b = { .w = w, .o = o };
	Pprof__Profile pb = PPROF__PROFILE__INIT;
	int err;

	assert(n && n <= PPROF_PROFILES_MAX);
	b.profiles = p;
	b.nprofiles = n;
	err = build(&b, &pb);
	return err ? err : pprof_pack(&pb, ret, ret_len);
}

int pprof_encode(const struct window *w, const struct profile *p, const struct pprof_options *o,
		 u8 **ret, size_t *ret_len)
{
	return pprof_encode_all(w, &p, 1, o, ret, ret_len);
}

/* --- folded lines -------------------------------------------------------------------------- */

struct folded_line {
	u32 first, n; /* in folder.ids: the executable, then frames, root first */
	u64 count;
};

struct folder {
	const struct window *w;
	struct strtab names;
	struct memo locations; /* index -> entry number in names, plus 1 */
	struct htab lines_by_ids;
	struct folded_line *lines;
	u32 *ids;
	u32 nlines, lines_cap, nids, ids_cap;
};

static void folder_fini(struct folder *f)
{
	strtab_fini(&f->names);
	memo_fini(&f->locations);
	htab_fini(&f->lines_by_ids);
	free(f->lines);
	free(f->ids);
}

/* A text as an element of a line. */
static int folded_name(struct folder *f, const char *s, u32 *ret)
{
	char clean[FOLDED_NAME_MAX + 1];
	char *c;

	utf8_clean(clean, sizeof(clean), s, FOLDED_NAME_MAX);
	for (c = clean; *c; c++)
		if (*c == ';')
			*c = ':';
	return strtab_add(&f->names, clean, strlen(clean), ret);
}

static int folded_location_name(struct folder *f, const struct location *l, u32 *ret)
{
	const char *suffix = l->kind == FRAME_KERNEL ? "_[k]" : "";
	char name[FOLDED_NAME_MAX + 64];
	const char *in;

	if (l->func) {
		snprintf(name, sizeof(name), "%.*s%s", FOLDED_NAME_MAX - 8, l->func, suffix);
		return folded_name(f, name, ret);
	}
	if (l->kind == FRAME_NATIVE && l->module)
		in = base_name(module_path(l->module));
	else
		in = l->mapping ? l->mapping : "[unknown]";
	snprintf(name, sizeof(name), "%.*s+0x%llx%s", FOLDED_NAME_MAX - 32, in,
		 (unsigned long long)l->address, suffix);
	return folded_name(f, name, ret);
}

static int folded_location(struct folder *f, u32 index, u32 *ret)
{
	uintptr_t known = (uintptr_t)memo_get(&f->locations, index);
	int err;

	if (known) {
		*ret = (u32)(known - 1);
		return 0;
	}
	err = folded_location_name(f, &f->w->locations[index], ret);
	return err ? err : memo_put(&f->locations, index, (void *)((uintptr_t)*ret + 1));
}

/* Adds to the line whose ids were just written behind the pool's end, n of them. */
static int folded_add(struct folder *f, u32 n, u64 count)
{
	const u32 *ids = f->ids + f->nids;
	u64 hash = hash_bytes(ids, n * sizeof(*ids));
	struct folded_line *line;
	u32 pos, i;
	int err;

	for (pos = htab_start(&f->lines_by_ids, hash);
	     htab_next(&f->lines_by_ids, hash, &pos, &i);) {
		line = &f->lines[i];
		if (line->n == n && !memcmp(f->ids + line->first, ids, n * sizeof(*ids))) {
			line->count = add_capped(line->count, count);
			return 0;
		}
	}
	err = VEC_RESERVE(f->lines, f->lines_cap, f->nlines + 1, WINDOW_MAX_SAMPLES);
	if (!err)
		err = htab_insert(&f->lines_by_ids, hash, f->nlines);
	if (err)
		return err;
	f->lines[f->nlines++] = (struct folded_line){ .first = f->nids, .n = n, .count = count };
	f->nids += n;
	return 0;
}

static int folded_sample(struct folder *f, const struct profile_sample *s, u64 weight)
{
	const struct stack *st = &f->w->stacks[s->stack];
	const char *exe = f->w->labels[s->labels].exe;
	u32 n = st->n + 1, i, *ids;
	int err;

	err = VEC_RESERVE(f->ids, f->ids_cap, f->nids + n, UINT32_MAX);
	if (err)
		return err;
	ids = f->ids + f->nids;
	err = folded_name(f, exe && *exe ? exe : "[unknown]", &ids[0]);
	for (i = 1; i < n && !err; i++)
		err = folded_location(f, f->w->frames[st->first + st->n - i], &ids[i]);
	return err ? err : folded_add(f, n, weight);
}

static int write_lines(const struct folder *f, FILE *out)
{
	u32 i, k;

	for (i = 0; i < f->nlines; i++) {
		const struct folded_line *line = &f->lines[i];

		for (k = 0; k < line->n; k++)
			if (fprintf(out, "%s%s", k ? ";" : "",
				    f->names.entries[f->ids[line->first + k]].s) < 0)
				return errno ? -errno : -EIO;
		if (fprintf(out, " %llu\n", (unsigned long long)line->count) < 0)
			return errno ? -errno : -EIO;
	}
	if (fflush(out))
		return errno ? -errno : -EIO;
	return 0;
}

int pprof_write_folded(const struct window *w, const struct profile *p, FILE *f)
{
	_cleanup_(folder_fini) struct folder folder = { .w = w };
	u32 i;
	int err;

	for (i = 0; i < p->nsamples; i++) {
		const struct profile_sample *s = &p->samples[i];

		if (!s->count)
			continue;
		err = folded_sample(&folder, s,
				    p->type->counted || p->type->looked ? s->value_ns : s->count);
		if (err)
			return err;
	}
	return write_lines(&folder, f);
}
