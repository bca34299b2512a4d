// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See view.h. pprof files in and out: gives the view what it asks for of a message. Files may come from anywhere: each index and id in
 * them is checked.
 */
#include "view.h"

#include "arena.h"
#include "pprof.h"
#include "pprof_in.h"
#include "profile.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define KERNEL_START  (1ull << 63) /* mappings that reach further are the kernel's */
#define LINES_MAX     64           /* inlined functions of one location */
#define LABELS_OF_ONE 32           /* labels looked at of one sample */

/* --- one file --------------------------------------------------------------------------------- */

/* From ids to places in the message: ours count from 1, others do as they like. */
struct ids {
	struct htab by_id;
	const u64 *ids; /* NULL: id i stands at i - 1 */
};

struct reading {
	struct view *v;
	u32 side;
	const Pprof__Profile *pb;
	struct pprof_in *in;
	struct ids locations, functions, mappings;
	const char **texts; /* of the view, made when first asked for */
	u32 *first;         /* location -> place in symbols; VIEW_NONE: not yet */
	u32 *symbols;       /* of locations, each list ended by VIEW_NONE */
	u32 nsymbols, symbols_cap;
	u32 value; /* index of the wanted sample type */
	u32 root_key, filter_key[VIEW_FILTERS_MAX];
};

static void ids_fini(struct ids *ids)
{
	htab_fini(&ids->by_id);
}

static void reading_fini(struct reading *r)
{
	ids_fini(&r->locations);
	ids_fini(&r->functions);
	ids_fini(&r->mappings);
	free(r->symbols);
}

/* `list` is an array of pointers to messages; at: offset of the id in them. */
static int ids_init(struct reading *r, struct ids *ids, void *const *list, size_t n, size_t at)
{
	u64 *all;
	size_t i;
	bool plain = true;

	for (i = 0; i < n && plain; i++)
		plain = *(const u64 *)((const char *)list[i] + at) == i + 1;
	if (plain)
		return 0;
	all = pprof_in_alloc(r->in, n * sizeof(*all));
	if (!all)
		return -E2BIG;
	for (i = 0; i < n; i++) {
		all[i] = *(const u64 *)((const char *)list[i] + at);
		if (htab_insert(&ids->by_id, hash_bytes(&all[i], sizeof(*all)), (u32)i))
			return -ENOMEM;
	}
	ids->ids = all;
	return 0;
}

/* VIEW_NONE: there is none. */
static u32 ids_find(const struct ids *ids, u64 id, size_t n)
{
	u64 hash;
	u32 pos, i;

	if (!ids->ids)
		return id && id <= n ? (u32)(id - 1) : VIEW_NONE;
	hash = hash_bytes(&id, sizeof(id));
	for (pos = htab_start(&ids->by_id, hash); htab_next(&ids->by_id, hash, &pos, &i);)
		if (ids->ids[i] == id)
			return i;
	return VIEW_NONE;
}

static const char *raw_text(const struct reading *r, s64 index)
{
	return index >= 0 && (u64)index < r->pb->n_string_table ? r->pb->string_table[index] : "";
}

/* The view's own; NULL: no room there. */
static const char *text(struct reading *r, s64 index)
{
	if (index < 0 || (u64)index >= r->pb->n_string_table)
		index = 0;
	if (!r->pb->n_string_table)
		return view_text(r->v, "", 0);
	if (!r->texts[index])
		r->texts[index] = view_text(r->v, r->pb->string_table[index], VIEW_NAME_MAX);
	return r->texts[index];
}

/* Number of a key in the file's string table; VIEW_NONE: no sample has it. */
static u32 key_index(const struct reading *r, const char *key)
{
	size_t i;

	for (i = 1; key && i < r->pb->n_string_table; i++)
		if (!strcmp(r->pb->string_table[i], key))
			return (u32)i;
	return VIEW_NONE;
}

/* --- frames ----------------------------------------------------------------------------------- */

static bool is_kernel(const struct reading *r, const Pprof__Mapping *m)
{
	return m &&
	       (m->memory_limit > KERNEL_START || !strncmp(raw_text(r, m->filename), "[kernel", 7));
}

/* Executable memory that is no file: "//anon", "[vdso]" is one. */
static bool is_file(const char *path)
{
	return *path && *path != '[' && strncmp(path, "//", 2);
}

static void describe(struct reading *r, const Pprof__Mapping *m, struct view_symbol *s)
{
	const char *path = m ? raw_text(r, m->filename) : "", *base;

	if (is_kernel(r, m)) {
		s->kind = VIEW_KERNEL;
		s->group = view_text(r->v, "[kernel]", 8);
		return;
	}
	s->kind = !m ? VIEW_UNKNOWN : is_file(path) ? VIEW_NATIVE : VIEW_CODE;
	base = *path ? base_name(path) : "[unknown]";
	s->group = view_text(r->v, base, VIEW_NAME_MAX);
}

static int push_symbol(struct reading *r, u32 symbol)
{
	if (VEC_RESERVE(r->symbols, r->symbols_cap, r->nsymbols + 1, VIEW_MEMORY_MAX / 4))
		return -ENOMEM;
	r->symbols[r->nsymbols++] = symbol;
	return 0;
}

static int push_new(struct reading *r, const struct view_symbol *s)
{
	u32 i = view_symbol(r->v, s);

	return i == VIEW_NONE ? -ENOMEM : push_symbol(r, i);
}

static int push_unnamed(struct reading *r, const Pprof__Location *l, const Pprof__Mapping *m)
{
	struct view_symbol s = { 0 };
	char name[VIEW_NAME_MAX];
	u64 at = l->address;

	describe(r, m, &s);
	/* As the file has it; anonymous memory and the kernel have nothing but addresses. */
	if (m && s.kind == VIEW_NATIVE && at >= m->memory_start)
		at = at - m->memory_start + m->file_offset;
	snprintf(name, sizeof(name), "%.*s+0x%llx", (int)sizeof(name) - 32, s.group ? s.group : "",
		 (unsigned long long)at);
	s.name = view_text(r->v, name, strlen(name));
	s.file = view_text(r->v, "", 0);
	return push_new(r, &s);
}

static int push_line(struct reading *r, const Pprof__Line *line, const Pprof__Mapping *m)
{
	u32 f = ids_find(&r->functions, line->function_id, r->pb->n_function);
	struct view_symbol s = { .line = (u32)MIN(MAX(line->line, 0), INT32_MAX) };
	const char *file;

	if (f == VIEW_NONE)
		return 0;
	s.name = text(r, r->pb->function[f]->name);
	if (s.name && !*s.name)
		s.name = text(r, r->pb->function[f]->system_name);
	s.file = text(r, r->pb->function[f]->filename);
	describe(r, m, &s);
	/* An interpreter's function lies in a source file, and in no mapping. */
	if (!m && s.file && *s.file) {
		s.kind = VIEW_RUNTIME;
		file = base_name(s.file);
		s.group = view_text(r->v, file, strlen(file));
	}
	return push_new(r, &s);
}

/* The location's symbols, root first, at r->first[index]. */
static int location(struct reading *r, u32 index)
{
	const Pprof__Location *l = r->pb->location[index];
	u32 m = ids_find(&r->mappings, l->mapping_id, r->pb->n_mapping), n;
	const Pprof__Mapping *mapping = m == VIEW_NONE ? NULL : r->pb->mapping[m];
	int err = 0;
	size_t i;

	r->first[index] = n = r->nsymbols;
	for (i = MIN(l->n_line, (size_t)LINES_MAX); i-- && !err;)
		err = push_line(r, l->line[i], mapping);
	if (!err && r->nsymbols == n)
		err = push_unnamed(r, l, mapping);
	return err ? err : push_symbol(r, VIEW_NONE);
}

/* --- samples ---------------------------------------------------------------------------------- */

static const char *label_value(const struct reading *r, const Pprof__Label *l, char *num,
			       size_t size)
{
	if (l->str)
		return raw_text(r, l->str);
	snprintf(num, size, "%lld", (long long)l->num);
	return num;
}

static const Pprof__Label *find_label(const Pprof__Sample *s, u32 key)
{
	size_t i;

	for (i = 0; i < s->n_label && i < LABELS_OF_ONE; i++)
		if (s->label[i]->key == (s64)key)
			return s->label[i];
	return NULL;
}

static bool wanted(const struct reading *r, const Pprof__Sample *s)
{
	const struct view_options *o = &r->v->o;
	char num[32];
	u32 i;

	for (i = 0; i < o->nfilters; i++) {
		const Pprof__Label *l =
			r->filter_key[i] == VIEW_NONE ? NULL : find_label(s, r->filter_key[i]);

		if (!l || strcmp(label_value(r, l, num, sizeof(num)), o->filters[i].value))
			return false;
	}
	return true;
}

static int count_labels(struct reading *r, const Pprof__Sample *s, u64 weight)
{
	char num[32];
	size_t i;
	int err = 0;

	for (i = 0; i < s->n_label && i < LABELS_OF_ONE && !err; i++) {
		const Pprof__Label *l = s->label[i];
		const char *key = text(r, l->key), *value;

		value = l->str ? text(r, l->str)
			       : view_text(r->v, label_value(r, l, num, sizeof(num)), sizeof(num));
		if (key && value)
			err = view_count_label(r->v, r->side, key, value, weight);
		else
			r->v->cut = true;
	}
	return err;
}

static int root_symbol(struct reading *r, const Pprof__Sample *s, u32 *ret)
{
	const Pprof__Label *l = r->root_key == VIEW_NONE ? NULL : find_label(s, r->root_key);
	struct view_symbol root = { .kind = VIEW_LABEL };
	const char *empty = view_text(r->v, "", 0);
	char num[32];

	root.name = l ? label_value(r, l, num, sizeof(num)) : "[unknown]";
	root.name = view_text(r->v, root.name, VIEW_NAME_MAX);
	root.file = root.group = empty;
	*ret = view_symbol(r->v, &root);
	return *ret == VIEW_NONE ? -ENOMEM : 0;
}

static int sample(struct reading *r, const Pprof__Sample *s)
{
	u32 stack[VIEW_DEPTH_MAX], n = 0;
	s64 value = r->value < s->n_value ? s->value[r->value] : 0;
	size_t i;
	int err;

	if (value <= 0 || !wanted(r, s))
		return 0;
	err = count_labels(r, s, (u64)value);
	if (!err && r->v->o.root_key)
		err = root_symbol(r, s, &stack[n++]);
	for (i = s->n_location_id; i-- && n < VIEW_DEPTH_MAX && !err;) {
		u32 l = ids_find(&r->locations, s->location_id[i], r->pb->n_location), k;

		if (l == VIEW_NONE)
			continue;
		if (r->first[l] == VIEW_NONE)
			err = location(r, l);
		for (k = r->first[l]; !err && r->symbols[k] != VIEW_NONE && n < VIEW_DEPTH_MAX; k++)
			if (!r->v->o.no_kernel || r->v->symbols[r->symbols[k]].kind != VIEW_KERNEL)
				stack[n++] = r->symbols[k];
	}
	return err ? err : view_stack(r->v, r->side, stack, n, (u64)value);
}

/* --- the file as a whole ---------------------------------------------------------------------- */

static bool known_type(const struct view *v, const char *type)
{
	u32 i;

	for (i = 0; i < v->ntypes; i++)
		if (v->types[i] == type)
			return true;
	return false;
}

/* Which value of each sample is wanted; false: the file has no such type. */
static bool choose_type(struct reading *r)
{
	const Pprof__Profile *pb = r->pb;
	const char *want = r->v->o.type;
	bool found = false;
	size_t i;

	if (!want)
		want = pb->default_sample_type ? raw_text(r, pb->default_sample_type) : NULL;
	for (i = 0; i < pb->n_sample_type && i < VIEW_TYPES_MAX; i++) {
		const char *type = text(r, pb->sample_type[i]->type);

		if (!type)
			continue;
		if (!known_type(r->v, type) && r->v->ntypes < VIEW_TYPES_MAX)
			r->v->types[r->v->ntypes++] = type;
		/* Readers of pprof take the last one when none is named. */
		if (!want || !strcmp(want, type)) {
			const char *unit = text(r, pb->sample_type[i]->unit);

			r->value = (u32)i;
			r->v->type = type;
			r->v->unit = unit ? unit : "";
			found = true;
		}
	}
	return found;
}

static void take_notes(struct reading *r)
{
	const Pprof__Profile *pb = r->pb;
	struct view *v = r->v;
	size_t i;

	if (v->nnotes && pb->time_nanos < v->notes_ns)
		return;
	v->notes_ns = pb->time_nanos;
	v->period = pb->period > 0 ? (u64)pb->period : 0;
	v->nnotes = 0;
	for (i = 0; i < pb->n_comment && v->nnotes < VIEW_NOTES_MAX; i++) {
		const char *s = text(r, pb->comment[i]);

		if (s && *s)
			v->notes[v->nnotes++] = s;
	}
}

static void take_times(struct reading *r)
{
	s64 start = r->pb->time_nanos, end = start, *s = &r->v->start_ns[r->side],
	    *e = &r->v->end_ns[r->side];

	if (start <= 0 || __builtin_add_overflow(start, MAX(r->pb->duration_nanos, 0), &end))
		return;
	*s = !*s || start < *s ? start : *s;
	*e = MAX(*e, end);
}

static int prepare(struct reading *r)
{
	const Pprof__Profile *pb = r->pb;
	size_t ntexts = pb->n_string_table, i;
	int err;

	r->texts = pprof_in_alloc(r->in, (ntexts + 1) * sizeof(*r->texts));
	r->first = pprof_in_alloc(r->in, (pb->n_location + 1) * sizeof(*r->first));
	if (!r->texts || !r->first)
		return -E2BIG;
	memset(r->texts, 0, (ntexts + 1) * sizeof(*r->texts));
	memset(r->first, 0xff, (pb->n_location + 1) * sizeof(*r->first));
	r->root_key = key_index(r, r->v->o.root_key);
	for (i = 0; i < r->v->o.nfilters; i++)
		r->filter_key[i] = key_index(r, r->v->o.filters[i].key);
	err = ids_init(r, &r->locations, (void *const *)pb->location, pb->n_location,
		       offsetof(Pprof__Location, id));
	if (!err)
		err = ids_init(r, &r->functions, (void *const *)pb->function, pb->n_function,
			       offsetof(Pprof__Function, id));
	if (!err)
		err = ids_init(r, &r->mappings, (void *const *)pb->mapping, pb->n_mapping,
			       offsetof(Pprof__Mapping, id));
	return err;
}

int view_add(struct view *v, u32 side, const void *data, size_t len)
{
	_cleanup_(pprof_in_fini) struct pprof_in in = { 0 };
	_cleanup_(reading_fini) struct reading r = { .v = v, .side = side, .in = &in };
	size_t i;
	int err = pprof_in_open(&in, data, len, VIEW_FILE_MAX, VIEW_MEMORY_MAX);

	if (err)
		return err;
	r.pb = in.pb;
	err = prepare(&r);
	if (err)
		return err;
	v->files[side]++;
	take_times(&r);
	if (!choose_type(&r))
		return 0;
	take_notes(&r);
	for (i = 0; i < r.pb->n_sample && !err; i++)
		err = sample(&r, r.pb->sample[i]);
	return err;
}

int view_add_file(struct view *v, u32 side, int dir_fd, const char *path)
{
	_cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_free_ u8 *data = NULL;
	struct stat st;
	size_t len = 0;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (S_ISREG(st.st_mode) && st.st_size > VIEW_FILE_MAX)
		return -E2BIG;
	data = malloc(S_ISREG(st.st_mode) ? (size_t)st.st_size + 1 : VIEW_FILE_MAX + 1);
	if (!data)
		return -ENOMEM;
	for (;;) {
		size_t room = S_ISREG(st.st_mode) ? (size_t)st.st_size + 1 : VIEW_FILE_MAX + 1;
		ssize_t n = read(fd, data + len, room - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
		if (!n)
			break;
		/* It grows while it is read. */
		if (len == room)
			return -E2BIG;
	}
	return view_add(v, side, data, len);
}

/* --- out -------------------------------------------------------------------------------------- */

struct writing {
	const struct view *v;
	struct arena arena;
	struct strtab strings;
	Pprof__Location **locations;
	Pprof__Function **functions;
	Pprof__Mapping **mappings;
	u32 nlocations, nmappings, mappings_cap;
	u32 *location_of; /* symbol -> id, 0: none yet */
	struct htab mapping_of;
};

static void writing_fini(struct writing *w)
{
	arena_fini(&w->arena);
	strtab_fini(&w->strings);
	htab_fini(&w->mapping_of);
	free(w->locations);
	free(w->functions);
	free(w->mappings);
	free(w->location_of);
}

static u32 out_text(struct writing *w, const char *s)
{
	u32 i = 0;

	return strtab_add(&w->strings, s, strlen(s), &i) ? 0 : i;
}

/* 0: none, as interpreters' functions have it. */
static int out_mapping(struct writing *w, const struct view_symbol *s, u64 *ret)
{
	u64 hash = hash_mix(s->kind, (uintptr_t)s->group);
	u32 name = out_text(w, s->kind == VIEW_KERNEL ? "[kernel.kallsyms]" : s->group), pos, i;
	Pprof__Mapping *m;

	*ret = 0;
	if (s->kind == VIEW_RUNTIME || s->kind == VIEW_LABEL || s->kind == VIEW_UNKNOWN)
		return 0;
	for (pos = htab_start(&w->mapping_of, hash); htab_next(&w->mapping_of, hash, &pos, &i);)
		if (w->mappings[i]->filename == name) {
			*ret = i + 1;
			return 0;
		}
	m = arena_alloc(&w->arena, sizeof(*m), 16);
	if (!m || VEC_RESERVE(w->mappings, w->mappings_cap, w->nmappings + 1, VIEW_SYMBOLS_MAX) ||
	    htab_insert(&w->mapping_of, hash, w->nmappings))
		return -ENOMEM;
	pprof__mapping__init(m);
	m->id = ++w->nmappings;
	m->filename = name;
	m->has_functions = true;
	w->mappings[w->nmappings - 1] = m;
	*ret = m->id;
	return 0;
}

struct out_location {
	Pprof__Location location;
	Pprof__Function function;
	Pprof__Line line, *lines[1];
};

/* Id of a symbol's location; 0: no memory. */
static u64 out_location(struct writing *w, u32 symbol)
{
	const struct view_symbol *s = &w->v->symbols[symbol];
	struct out_location *l;

	if (w->location_of[symbol])
		return w->location_of[symbol];
	l = arena_alloc(&w->arena, sizeof(*l), 16);
	if (!l)
		return 0;
	pprof__location__init(&l->location);
	pprof__function__init(&l->function);
	pprof__line__init(&l->line);
	l->location.id = l->function.id = l->line.function_id = w->nlocations + 1;
	if (out_mapping(w, s, &l->location.mapping_id))
		return 0;
	l->function.name = l->function.system_name = out_text(w, s->name);
	l->function.filename = out_text(w, s->file);
	l->line.line = s->line;
	l->lines[0] = &l->line;
	l->location.line = l->lines;
	l->location.n_line = 1;
	w->locations[w->nlocations] = &l->location;
	w->functions[w->nlocations++] = &l->function;
	return w->location_of[symbol] = w->nlocations;
}

struct out_sample {
	Pprof__Sample sample;
	int64_t value;
	uint64_t ids[];
};

static Pprof__Sample *out_sample(struct writing *w, u32 node, u64 value)
{
	const struct view_node *nodes = w->v->tree.nodes;
	struct out_sample *s;
	u32 n = 0, at;

	for (at = node; at; at = nodes[at].parent)
		n++;
	s = arena_alloc(&w->arena, sizeof(*s) + n * sizeof(s->ids[0]), 16);
	if (!s)
		return NULL;
	pprof__sample__init(&s->sample);
	for (n = 0, at = node; at; at = nodes[at].parent) {
		s->ids[n] = out_location(w, nodes[at].symbol);
		if (!s->ids[n++])
			return NULL;
	}
	s->value = (s64)MIN(value, (u64)INT64_MAX);
	s->sample.location_id = s->ids;
	s->sample.n_location_id = n;
	s->sample.value = &s->value;
	s->sample.n_value = 1;
	return &s->sample;
}

static int out_pack(struct writing *w, u32 side, Pprof__Sample **samples, size_t nsamples, u8 **ret,
		    size_t *ret_len)
{
	const struct view *v = w->v;
	Pprof__Profile pb = PPROF__PROFILE__INIT;
	Pprof__ValueType type = PPROF__VALUE_TYPE__INIT, *types[1] = { &type };
	_cleanup_free_ char **texts = NULL;
	u32 i;

	type.type = out_text(w, v->type);
	type.unit = out_text(w, v->unit);
	pb.sample_type = types;
	pb.n_sample_type = 1;
	pb.default_sample_type = type.type;
	pb.period_type = &type;
	pb.period = (s64)MIN(v->period, (u64)INT64_MAX);
	pb.time_nanos = v->start_ns[side];
	pb.duration_nanos = v->end_ns[side] - v->start_ns[side];
	pb.sample = samples;
	pb.n_sample = nsamples;
	pb.location = w->locations;
	pb.function = w->functions;
	pb.n_location = pb.n_function = w->nlocations;
	pb.mapping = w->mappings;
	pb.n_mapping = w->nmappings;
	texts = calloc(w->strings.n, sizeof(*texts));
	if (!texts)
		return -ENOMEM;
	for (i = 0; i < w->strings.n; i++)
		texts[i] = w->strings.entries[i].s;
	pb.string_table = texts;
	pb.n_string_table = w->strings.n;
	return pprof_pack(&pb, ret, ret_len);
}

int view_write_pprof(const struct view *v, u32 side, u8 **ret, size_t *ret_len)
{
	_cleanup_(writing_fini) struct writing w = { .v = v };
	_cleanup_free_ Pprof__Sample **samples = calloc(v->tree.n, sizeof(*samples));
	size_t n = 0;
	u32 i;

	w.locations = calloc(v->nsymbols, sizeof(*w.locations));
	w.functions = calloc(v->nsymbols, sizeof(*w.functions));
	w.location_of = calloc(v->nsymbols, sizeof(*w.location_of));
	if (!samples || !w.locations || !w.functions || !w.location_of)
		return -ENOMEM;
	out_text(&w, ""); /* entry 0 */
	for (i = 0; i < v->tree.n; i++) {
		if (!v->tree.nodes[i].self[side])
			continue;
		samples[n] = out_sample(&w, i, v->tree.nodes[i].self[side]);
		if (!samples[n++])
			return -ENOMEM;
	}
	return out_pack(&w, side, samples, n, ret, ret_len);
}
