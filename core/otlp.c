// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. In: a whole pprof message. Out: the bytes of an ExportProfilesServiceRequest.
 * Both have tables that others point into. Since pprof counts ids from 1 and the signal's tables
 * have a zero value in front, an id is the place there. Texts are numbered as they are needed.
 * Stacks and attributes have tables of their own, where equal ones are one.
 */
#include "otlp.h"

#include "envelope.pb-c.h"
#include "htab.h"
#include "profile.pb-c.h"
#include "version.h"

#include <errno.h>
#include <string.h>

#define KERNEL "[kernel"

/* Texts besides the pprof's own. */
enum {
	TEXT_SAMPLES,
	TEXT_COUNT,
	TEXT_OFF_CPU,
	TEXT_BUILD_ID,
	TEXT_FRAME_TYPE,
	TEXT_COMMENT,
	TEXT_EXECUTABLE,
	TEXTS,
};

static const char *const texts[TEXTS] = {
	[TEXT_SAMPLES] = "samples",
	[TEXT_COUNT] = "count",
	[TEXT_OFF_CPU] = "off_cpu",
	[TEXT_BUILD_ID] = "process.executable.build_id.gnu",
	[TEXT_FRAME_TYPE] = "profile.frame.type",
	[TEXT_COMMENT] = "pprof.profile.comment",
	[TEXT_EXECUTABLE] = "process.executable.name",
};

struct attribute {
	s32 key;
	Envelope__AnyValue value;
};

/* A span, by the numbers of its ids' texts in the pprof. */
struct link {
	s64 trace, span;
};

struct builder {
	struct pprof_in *in;
	const Pprof__Profile *pb;
	int err; /* the first failure */
	Envelope__Dictionary dict;
	s32 *text_of; /* by number of a text of the pprof: its number here; 0: not needed yet */
	s32 own[TEXTS];
	struct htab stacks_by_ids, attributes_by_value, links_by_ids;
	const Pprof__Sample **stack_of; /* by stack: a sample that has it */
	struct attribute *attributes;
	struct link *links;
	u32 nstacks, stacks_cap, nattributes, attributes_cap, nlinks, links_cap;
	Envelope__ArrayValue comments;
};

static void builder_fini(struct builder *b)
{
	htab_fini(&b->stacks_by_ids);
	htab_fini(&b->attributes_by_value);
	htab_fini(&b->links_by_ids);
	free(b->links);
	free(b->stack_of);
	free(b->attributes);
}

static void *alloc(struct builder *b, size_t n, size_t size)
{
	void *p = NULL;

	if (!b->err && !__builtin_mul_overflow(MAX(n, (size_t)1), size, &size))
		p = pprof_in_alloc(b->in, size);
	if (!p && !b->err)
		b->err = -ENOMEM;
	return p;
}

/* A list of n messages of a type, made in one piece, each in its initial state. */
#define LIST(b, n, type, init)                                         \
	({                                                             \
		size_t __n = (n), __i;                                 \
		type **__list = alloc((b), __n, sizeof(*__list));      \
		type *__items = alloc((b), __n, sizeof(*__items));     \
                                                                       \
		for (__i = 0; __list && __items && __i < __n; __i++) { \
			init(&__items[__i]);                           \
			__list[__i] = &__items[__i];                   \
		}                                                      \
		__items ? __list : NULL;                               \
	})

/* --- texts ------------------------------------------------------------------------------------ */

static void init_texts(struct builder *b)
{
	size_t n = b->pb->n_string_table;

	b->dict.string_table = alloc(b, n + TEXTS, sizeof(*b->dict.string_table));
	b->text_of = alloc(b, n, sizeof(*b->text_of));
	if (b->err)
		return;
	memset(b->text_of, 0, n * sizeof(*b->text_of));
	b->dict.string_table[0] = b->pb->string_table[0];
	b->dict.n_string_table = 1;
}

/* The number here of a text of the pprof. */
static s32 text(struct builder *b, s64 i)
{
	if (!i || b->err)
		return 0;
	if (!b->text_of[i]) {
		b->text_of[i] = (s32)b->dict.n_string_table;
		b->dict.string_table[b->dict.n_string_table++] = b->pb->string_table[i];
	}
	return b->text_of[i];
}

static s32 own_text(struct builder *b, u32 which)
{
	size_t i;

	if (b->own[which] || b->err)
		return b->own[which];
	/* The table has no text twice. */
	for (i = 1; i < b->pb->n_string_table; i++)
		if (!strcmp(b->pb->string_table[i], texts[which]))
			break;
	if (i < b->pb->n_string_table) {
		b->own[which] = text(b, (s64)i);
	} else {
		b->own[which] = (s32)b->dict.n_string_table;
		b->dict.string_table[b->dict.n_string_table++] = (char *)texts[which];
	}
	return b->own[which];
}

/* --- attributes ------------------------------------------------------------------------------- */

static bool same_value(const Envelope__AnyValue *a, const Envelope__AnyValue *b)
{
	if (a->value_case != b->value_case)
		return false;
	switch (a->value_case) {
	case ENVELOPE__ANY_VALUE__VALUE_STRING_VALUE:
		return !strcmp(a->string_value, b->string_value);
	case ENVELOPE__ANY_VALUE__VALUE_INT_VALUE:
		return a->int_value == b->int_value;
	default:
		return a->array_value == b->array_value;
	}
}

static u64 attribute_hash(s32 key, const Envelope__AnyValue *v)
{
	u64 hash = (u64)v->value_case;

	if (v->value_case == ENVELOPE__ANY_VALUE__VALUE_STRING_VALUE)
		hash = hash_bytes(v->string_value, strlen(v->string_value));
	else if (v->value_case == ENVELOPE__ANY_VALUE__VALUE_INT_VALUE)
		hash = hash_bytes(&v->int_value, sizeof(v->int_value));
	return hash_mix(hash, (u64)key);
}

/* Its place in the table; 0, which is "none", after a failure. */
static s32 attribute(struct builder *b, s32 key, const Envelope__AnyValue *v)
{
	u64 hash = attribute_hash(key, v);
	u32 pos, i;

	for (pos = htab_start(&b->attributes_by_value, hash);
	     htab_next(&b->attributes_by_value, hash, &pos, &i);)
		if (b->attributes[i].key == key && same_value(&b->attributes[i].value, v))
			return (s32)i + 1;
	if (!b->err)
		b->err = VEC_RESERVE(b->attributes, b->attributes_cap, b->nattributes + 1,
				     INT32_MAX - 1);
	if (!b->err)
		b->err = htab_insert(&b->attributes_by_value, hash, b->nattributes);
	if (b->err)
		return 0;
	b->attributes[b->nattributes++] = (struct attribute){ key, *v };
	return (s32)b->nattributes;
}

static Envelope__AnyValue text_value(const char *s)
{
	Envelope__AnyValue v = ENVELOPE__ANY_VALUE__INIT;

	v.value_case = ENVELOPE__ANY_VALUE__VALUE_STRING_VALUE;
	v.string_value = (char *)s;
	return v;
}

static s32 text_attribute(struct builder *b, s32 key, const char *s)
{
	Envelope__AnyValue v = text_value(s);

	return attribute(b, key, &v);
}

static s32 number_attribute(struct builder *b, s32 key, s64 n)
{
	Envelope__AnyValue v = ENVELOPE__ANY_VALUE__INIT;

	v.value_case = ENVELOPE__ANY_VALUE__VALUE_INT_VALUE;
	v.int_value = n;
	return attribute(b, key, &v);
}

static void one_attribute(struct builder *b, u32 key, const char *s, size_t *n, int32_t **list)
{
	int32_t *one = alloc(b, 1, sizeof(*one));

	if (!one)
		return;
	*one = text_attribute(b, own_text(b, key), s);
	*list = one;
	*n = 1;
}

static void put_attributes(struct builder *b)
{
	Envelope__Attribute **list =
		LIST(b, b->nattributes + 1, Envelope__Attribute, envelope__attribute__init);
	u32 i;

	for (i = 0; list && i < b->nattributes; i++) {
		list[i + 1]->key_strindex = b->attributes[i].key;
		list[i + 1]->value = &b->attributes[i].value;
	}
	b->dict.attribute_table = list;
	b->dict.n_attribute_table = b->nattributes + 1;
}

/* --- the tables ------------------------------------------------------------------------------- */

static void put_mappings(struct builder *b)
{
	size_t n = b->pb->n_mapping, i;
	Envelope__Mapping **list = LIST(b, n + 1, Envelope__Mapping, envelope__mapping__init);

	for (i = 0; list && i < n; i++) {
		const Pprof__Mapping *m = b->pb->mapping[i];
		Envelope__Mapping *to = list[i + 1];

		to->memory_start = m->memory_start;
		to->memory_limit = m->memory_limit;
		to->file_offset = m->file_offset;
		to->filename_strindex = text(b, m->filename);
		if (m->build_id)
			one_attribute(b, TEXT_BUILD_ID, b->pb->string_table[m->build_id],
				      &to->n_attribute_indices, &to->attribute_indices);
	}
	b->dict.mapping_table = list;
	b->dict.n_mapping_table = n + 1;
}

static void put_functions(struct builder *b)
{
	size_t n = b->pb->n_function, i;
	Envelope__Function **list = LIST(b, n + 1, Envelope__Function, envelope__function__init);

	for (i = 0; list && i < n; i++) {
		const Pprof__Function *f = b->pb->function[i];

		list[i + 1]->name_strindex = text(b, f->name);
		list[i + 1]->system_name_strindex = text(b, f->system_name);
		list[i + 1]->filename_strindex = text(b, f->filename);
		list[i + 1]->start_line = f->start_line;
	}
	b->dict.function_table = list;
	b->dict.n_function_table = n + 1;
}

/* NULL when the profile does not tell, as for frames of interpreters, which have no mapping. */
static const char *frame_type(const struct builder *b, const Pprof__Location *l)
{
	const char *path;

	if (!l->mapping_id)
		return NULL;
	path = b->pb->string_table[b->pb->mapping[l->mapping_id - 1]->filename];
	if (!strncmp(path, KERNEL, strlen(KERNEL)))
		return "kernel";
	return *path == '/' && path[1] != '/' ? "native" : NULL;
}

static void put_lines(struct builder *b, const Pprof__Location *l, Envelope__Location *to)
{
	size_t i;

	to->lines = LIST(b, l->n_line, Envelope__Line, envelope__line__init);
	for (i = 0; to->lines && i < l->n_line; i++) {
		to->lines[i]->function_index = (s32)l->line[i]->function_id;
		to->lines[i]->line = l->line[i]->line;
		to->lines[i]->column = l->line[i]->column;
		to->n_lines++;
	}
}

static void put_locations(struct builder *b)
{
	size_t n = b->pb->n_location, i;
	Envelope__Location **list = LIST(b, n + 1, Envelope__Location, envelope__location__init);

	for (i = 0; list && i < n; i++) {
		const Pprof__Location *l = b->pb->location[i];
		const char *type = frame_type(b, l);

		list[i + 1]->mapping_index = (s32)l->mapping_id;
		list[i + 1]->address = l->address;
		put_lines(b, l, list[i + 1]);
		if (type)
			one_attribute(b, TEXT_FRAME_TYPE, type, &list[i + 1]->n_attribute_indices,
				      &list[i + 1]->attribute_indices);
	}
	b->dict.location_table = list;
	b->dict.n_location_table = n + 1;
}

/* --- stacks and samples ----------------------------------------------------------------------- */

static bool same_stack(const Pprof__Sample *a, const Pprof__Sample *b)
{
	return a->n_location_id == b->n_location_id &&
	       (!a->n_location_id || !memcmp(a->location_id, b->location_id,
					     a->n_location_id * sizeof(a->location_id[0])));
}

/* The place of a sample's stack in the table; 0, the empty one, after a failure. */
static s32 stack(struct builder *b, const Pprof__Sample *s)
{
	u64 hash = hash_bytes(s->location_id, s->n_location_id * sizeof(s->location_id[0]));
	u32 pos, i;

	if (!s->n_location_id)
		return 0;
	for (pos = htab_start(&b->stacks_by_ids, hash);
	     htab_next(&b->stacks_by_ids, hash, &pos, &i);)
		if (same_stack(b->stack_of[i], s))
			return (s32)i + 1;
	if (!b->err)
		b->err = VEC_RESERVE(b->stack_of, b->stacks_cap, b->nstacks + 1, INT32_MAX - 1);
	if (!b->err)
		b->err = htab_insert(&b->stacks_by_ids, hash, b->nstacks);
	if (b->err)
		return 0;
	b->stack_of[b->nstacks++] = s;
	return (s32)b->nstacks;
}

static void put_stacks(struct builder *b)
{
	Envelope__Stack **list = LIST(b, b->nstacks + 1, Envelope__Stack, envelope__stack__init);
	u32 i;

	for (i = 0; list && i < b->nstacks; i++) {
		const Pprof__Sample *s = b->stack_of[i];
		int32_t *ids = alloc(b, s->n_location_id, sizeof(*ids));
		size_t k;

		if (!ids)
			return;
		for (k = 0; k < s->n_location_id; k++)
			ids[k] = (s32)s->location_id[k];
		list[i + 1]->location_indices = ids;
		list[i + 1]->n_location_indices = s->n_location_id;
	}
	b->dict.stack_table = list;
	b->dict.n_stack_table = b->nstacks + 1;
}

/* The resource has the host and the container. */
static bool is_resource(const char *key)
{
	return !strcmp(key, "host") || !strcmp(key, "container");
}

/* --- links ------------------------------------------------------------------------------------ */

#define TRACE_ID 16
#define SPAN_ID  8

/* Bytes of an id of so many; false: the text is none. */
static bool parse_id(const char *s, u8 *dst, size_t len)
{
	return strlen(s) == 2 * len && hex_decode(dst, s, len);
}

/* The span that a sample names by two labels; false: none. */
static bool find_link(const struct builder *b, const Pprof__Sample *s, struct link *ret)
{
	u8 id[TRACE_ID];
	size_t i;

	*ret = (struct link){ 0 };
	for (i = 0; i < s->n_label; i++) {
		const Pprof__Label *l = s->label[i];
		const char *key = b->pb->string_table[l->key];

		if (!strcmp(key, "trace_id") && parse_id(b->pb->string_table[l->str], id, TRACE_ID))
			ret->trace = l->str;
		if (!strcmp(key, "span_id") && parse_id(b->pb->string_table[l->str], id, SPAN_ID))
			ret->span = l->str;
	}
	return ret->trace && ret->span;
}

static bool is_linked(const struct builder *b, const Pprof__Label *l)
{
	const char *key = b->pb->string_table[l->key];

	return !strcmp(key, "trace_id") || !strcmp(key, "span_id");
}

/* Its place in the table; 0, which is "none", after a failure. */
static s32 link_index(struct builder *b, const struct link *link)
{
	u64 hash = hash_mix((u64)link->trace, (u64)link->span);
	u32 pos, i;

	for (pos = htab_start(&b->links_by_ids, hash); htab_next(&b->links_by_ids, hash, &pos, &i);)
		if (b->links[i].trace == link->trace && b->links[i].span == link->span)
			return (s32)i + 1;
	if (!b->err)
		b->err = VEC_RESERVE(b->links, b->links_cap, b->nlinks + 1, INT32_MAX - 1);
	if (!b->err)
		b->err = htab_insert(&b->links_by_ids, hash, b->nlinks);
	if (b->err)
		return 0;
	b->links[b->nlinks++] = *link;
	return (s32)b->nlinks;
}

static void put_links(struct builder *b)
{
	Envelope__Link **list = LIST(b, b->nlinks + 1, Envelope__Link, envelope__link__init);
	u8 *ids = alloc(b, b->nlinks, TRACE_ID + SPAN_ID);
	u32 i;

	for (i = 0; list && ids && i < b->nlinks; i++, ids += TRACE_ID + SPAN_ID) {
		parse_id(b->pb->string_table[b->links[i].trace], ids, TRACE_ID);
		parse_id(b->pb->string_table[b->links[i].span], ids + TRACE_ID, SPAN_ID);
		list[i + 1]->trace_id = (ProtobufCBinaryData){ TRACE_ID, ids };
		list[i + 1]->span_id = (ProtobufCBinaryData){ SPAN_ID, ids + TRACE_ID };
	}
	b->dict.link_table = list;
	b->dict.n_link_table = b->nlinks + 1;
}

static void put_labels(struct builder *b, const Pprof__Sample *s, Envelope__Sample *to)
{
	struct link link;
	bool linked = find_link(b, s, &link);
	size_t i;

	to->attribute_indices = alloc(b, s->n_label, sizeof(*to->attribute_indices));
	if (linked)
		to->link_index = link_index(b, &link);
	if (!to->attribute_indices)
		return;
	for (i = 0; i < s->n_label; i++) {
		const Pprof__Label *l = s->label[i];
		const char *name = b->pb->string_table[l->key];
		s32 key;

		if (is_resource(name) || (linked && is_linked(b, l)))
			continue;
		key = strcmp(name, "process.executable") ? text(b, l->key)
							 : own_text(b, TEXT_EXECUTABLE);
		to->attribute_indices[to->n_attribute_indices++] =
			l->str ? text_attribute(b, key, b->pb->string_table[l->str])
			       : number_attribute(b, key, l->num);
	}
}

/*
 * What the signal's readers know: on-CPU time is a number of samples and the period of one, waiting
 * time is off_cpu without a period. Everything else goes as it is.
 */
static bool is_type(const struct builder *b, const Pprof__ValueType *t, const char *name)
{
	return !strcmp(b->pb->string_table[t->type], name) &&
	       !strcmp(b->pb->string_table[t->unit], "nanoseconds");
}

static s64 samples_of(s64 ns, s64 period)
{
	s64 n = ns / period + (ns % period >= period - ns % period);

	/* None of them may vanish. */
	return ns > 0 ? MAX(n, 1) : n;
}

static Envelope__ValueType *value_type(struct builder *b, s32 type, s32 unit)
{
	Envelope__ValueType *v = alloc(b, 1, sizeof(*v));

	if (!v)
		return NULL;
	envelope__value_type__init(v);
	v->type_strindex = type;
	v->unit_strindex = unit;
	return v;
}

static bool put_types(struct builder *b, u32 which, Envelope__Profile *to)
{
	const Pprof__ValueType *t = b->pb->sample_type[which], *period = b->pb->period_type;
	bool counts = is_type(b, t, "cpu") && period && is_type(b, period, "cpu") &&
		      b->pb->period > 0;

	if (counts)
		to->sample_type = value_type(b, own_text(b, TEXT_SAMPLES), own_text(b, TEXT_COUNT));
	else if (is_type(b, t, "offcpu"))
		to->sample_type = value_type(b, own_text(b, TEXT_OFF_CPU), text(b, t->unit));
	else
		to->sample_type = value_type(b, text(b, t->type), text(b, t->unit));
	if (period && !is_type(b, t, "offcpu")) {
		to->period_type = value_type(b, text(b, period->type), text(b, period->unit));
		to->period = b->pb->period;
	}
	return counts;
}

static void put_samples(struct builder *b, u32 which, bool counts, Envelope__Profile *to)
{
	const Pprof__Profile *pb = b->pb;
	Envelope__Sample **list = LIST(b, pb->n_sample, Envelope__Sample, envelope__sample__init);
	int64_t *values = alloc(b, pb->n_sample, sizeof(*values));
	size_t i;

	for (i = 0; list && values && i < pb->n_sample && !b->err; i++) {
		const Pprof__Sample *s = pb->sample[i];
		s64 value = s->value[which];

		if (value <= 0)
			continue;
		values[i] = counts ? samples_of(value, pb->period) : value;
		list[to->n_samples] = list[i];
		list[to->n_samples]->stack_index = stack(b, s);
		list[to->n_samples]->values = &values[i];
		list[to->n_samples]->n_values = 1;
		put_labels(b, s, list[to->n_samples++]);
	}
	to->samples = list;
}

/* One list of texts, the same for each profile of the request. */
static void init_comments(struct builder *b)
{
	size_t n = b->pb->n_comment, i;
	Envelope__AnyValue **list = LIST(b, n, Envelope__AnyValue, envelope__any_value__init);

	envelope__array_value__init(&b->comments);
	for (i = 0; list && i < n; i++)
		*list[i] = text_value(b->pb->string_table[b->pb->comment[i]]);
	b->comments.values = list;
	b->comments.n_values = list ? n : 0;
}

static void put_comments(struct builder *b, Envelope__Profile *to)
{
	Envelope__AnyValue v = ENVELOPE__ANY_VALUE__INIT;
	int32_t *one = alloc(b, 1, sizeof(*one));

	if (!one || !b->comments.n_values)
		return;
	v.value_case = ENVELOPE__ANY_VALUE__VALUE_ARRAY_VALUE;
	v.array_value = &b->comments;
	*one = attribute(b, own_text(b, TEXT_COMMENT), &v);
	to->attribute_indices = one;
	to->n_attribute_indices = 1;
}

static void put_profile(struct builder *b, const struct otlp_source *from, u32 which,
			Envelope__Profile *to)
{
	u8 *id = alloc(b, 1, OTLP_ID);

	if (!id)
		return;
	memcpy(id, from->id, OTLP_ID);
	id[OTLP_ID - 1] = (u8)(id[OTLP_ID - 1] + which);
	to->profile_id = (ProtobufCBinaryData){ OTLP_ID, id };
	to->time_unix_nano = (u64)b->pb->time_nanos;
	to->duration_nano = (u64)b->pb->duration_nanos;
	put_samples(b, which, put_types(b, which, to), to);
	put_comments(b, to);
}

/* --- the request ------------------------------------------------------------------------------ */

static void put_resource(struct builder *b, const struct otlp_source *from,
			 Envelope__ResourceProfiles *to)
{
	const char *const pairs[][2] = { { "service.name", from->service },
					 { "container.id", from->container },
					 { "host.name", from->host } };
	size_t n = ARRAY_SIZE(pairs), i;
	Envelope__KeyValue **list = LIST(b, n, Envelope__KeyValue, envelope__key_value__init);
	Envelope__AnyValue **values = LIST(b, n, Envelope__AnyValue, envelope__any_value__init);

	to->resource = alloc(b, 1, sizeof(*to->resource));
	if (!list || !values || !to->resource)
		return;
	envelope__resource__init(to->resource);
	to->resource->attributes = list;
	for (i = 0; i < n; i++) {
		Envelope__KeyValue *kv = list[to->resource->n_attributes];

		if (!*pairs[i][1])
			continue;
		kv->key = (char *)pairs[i][0];
		kv->value = values[i];
		kv->value->value_case = ENVELOPE__ANY_VALUE__VALUE_STRING_VALUE;
		kv->value->string_value = (char *)pairs[i][1];
		to->resource->n_attributes++;
	}
}

static void put_tables(struct builder *b)
{
	put_mappings(b);
	put_functions(b);
	put_locations(b);
}

static int pack(const Envelope__ExportRequest *request, size_t max, u8 **ret, size_t *ret_len)
{
	_cleanup_free_ u8 *out = NULL;

	*ret_len = envelope__export_request__get_packed_size(request);
	if (*ret_len > max)
		return -E2BIG;
	out = malloc(MAX(*ret_len, (size_t)1));
	if (!out)
		return -ENOMEM;
	envelope__export_request__pack(request, out);
	*ret = take_ptr(out);
	return 0;
}

int otlp_pack(struct pprof_in *in, const struct otlp_source *from, size_t max, u8 **ret,
	      size_t *ret_len)
{
	_cleanup_(builder_fini) struct builder b = { .in = in, .pb = in->pb };
	Envelope__ExportRequest request = ENVELOPE__EXPORT_REQUEST__INIT;
	Envelope__ResourceProfiles rp = ENVELOPE__RESOURCE_PROFILES__INIT, *rps[] = { &rp };
	Envelope__ScopeProfiles sp = ENVELOPE__SCOPE_PROFILES__INIT, *sps[] = { &sp };
	Envelope__Scope scope = ENVELOPE__SCOPE__INIT;
	u32 i;

	envelope__dictionary__init(&b.dict);
	init_texts(&b);
	init_comments(&b);
	put_tables(&b);
	put_resource(&b, from, &rp);
	scope.name = (char *)"ebpfprofiler";
	scope.version = (char *)VERSION;
	sp.scope = &scope;
	sp.profiles = LIST(&b, b.pb->n_sample_type, Envelope__Profile, envelope__profile__init);
	for (i = 0; sp.profiles && i < b.pb->n_sample_type && !b.err; i++)
		put_profile(&b, from, i, sp.profiles[sp.n_profiles++]);
	put_stacks(&b);
	put_links(&b);
	put_attributes(&b);
	if (b.err)
		return b.err;
	rp.scope_profiles = sps;
	rp.n_scope_profiles = 1;
	request.resource_profiles = rps;
	request.n_resource_profiles = 1;
	request.dictionary = &b.dict;
	return pack(&request, max, ret, ret_len);
}
