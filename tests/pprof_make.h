/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pprof files of any size for tests of what is done with them, by protobuf-c. Sample i has the frames
 * {leaf: unnamed in /bin/app, function "f<i>..." in /lib/l.so, do_idle in the kernel}.
 */
#pragma once

#include "core/arena.h"
#include "core/pprof.h"
#include "core/strtab.h"
#include "profile.pb-c.h"

#include <assert.h>
#include <string.h>

#define MAKE_PERIOD UINT64_C(10000000)
#define MAKE_START  UINT64_C(1796043300000000000)

struct make {
	u32 samples;
	u32 name_len; /* of each function, padded with letters; 0: as it is */
	bool counted; /* off CPU: waits and nanoseconds */
	bool spans;   /* of one trace; every other one is the same */
};

struct making {
	struct strtab texts;
	Pprof__Profile pb;
};

static inline void *make_alloc(struct making *m, size_t n, size_t size)
{
	void *p = arena_alloc(&m->texts.arena, MAX(n, (size_t)1) * size, 16);

	assert(p);
	return memset(p, 0, n * size);
}

static inline u32 make_text(struct making *m, const char *s)
{
	u32 i = 0;

	if (strtab_add(&m->texts, s, strlen(s), &i))
		abort();
	return i;
}

static inline Pprof__ValueType *make_type(struct making *m, const char *type, const char *unit)
{
	Pprof__ValueType *v = make_alloc(m, 1, sizeof(*v));

	pprof__value_type__init(v);
	v->type = make_text(m, type);
	v->unit = make_text(m, unit);
	return v;
}

static inline void make_mapping(struct making *m, u64 start, u64 limit, const char *path,
				const char *build_id, bool named)
{
	Pprof__Mapping *p = make_alloc(m, 1, sizeof(*p));

	pprof__mapping__init(p);
	p->memory_start = start;
	p->memory_limit = limit;
	p->filename = make_text(m, path);
	p->build_id = make_text(m, build_id);
	p->has_functions = named;
	m->pb.mapping[m->pb.n_mapping] = p;
	p->id = ++m->pb.n_mapping;
}

/* name NULL: a frame without one. */
static inline u64 make_location(struct making *m, u64 mapping, u64 address, const char *name)
{
	Pprof__Location *l = make_alloc(m, 1, sizeof(*l));

	pprof__location__init(l);
	l->mapping_id = mapping;
	l->address = address;
	if (name) {
		Pprof__Function *f = make_alloc(m, 1, sizeof(*f));

		pprof__function__init(f);
		f->name = f->system_name = make_text(m, name);
		m->pb.function[m->pb.n_function] = f;
		f->id = ++m->pb.n_function;
		l->line = make_alloc(m, 1, sizeof(*l->line));
		l->line[0] = make_alloc(m, 1, sizeof(**l->line));
		pprof__line__init(l->line[0]);
		l->line[0]->function_id = f->id;
		l->n_line = 1;
	}
	m->pb.location[m->pb.n_location] = l;
	return l->id = ++m->pb.n_location;
}

static inline void make_label(struct making *m, Pprof__Sample *s, const char *key, const char *text,
			      s64 number)
{
	Pprof__Label *l = make_alloc(m, 1, sizeof(*l));

	pprof__label__init(l);
	l->key = make_text(m, key);
	l->str = text ? make_text(m, text) : 0;
	l->num = number;
	s->label[s->n_label++] = l;
}

static inline void make_sample(struct making *m, const struct make *o, u32 i, u64 kernel)
{
	Pprof__Sample *s = make_alloc(m, 1, sizeof(*s));
	char *name = make_alloc(m, MAX(o->name_len, 16u) + 1, 1), thread[16];

	pprof__sample__init(s);
	snprintf(name, 16, "f%u", i);
	if (o->name_len > strlen(name))
		memset(name + strlen(name), 'x', o->name_len - strlen(name));
	snprintf(thread, sizeof(thread), "worker-%u", i % 3);
	s->location_id = make_alloc(m, 3, sizeof(*s->location_id));
	s->location_id[s->n_location_id++] = make_location(m, 1, 0x1000 + i, NULL);
	s->location_id[s->n_location_id++] = make_location(m, 2, 0x2000 + i, name);
	s->location_id[s->n_location_id++] = kernel;
	s->value = make_alloc(m, 2, sizeof(*s->value));
	if (o->counted)
		s->value[s->n_value++] = i + 1;
	s->value[s->n_value++] = (s64)((i + 1) * MAKE_PERIOD);
	s->label = make_alloc(m, 7, sizeof(*s->label));
	make_label(m, s, "host", "host1", 0);
	make_label(m, s, "process.executable", "app", 0);
	make_label(m, s, "thread.name", thread, 0);
	make_label(m, s, "pid", NULL, 7 + i % 2);
	if (o->spans) {
		make_label(m, s, "trace_id", "0af7651916cd43dd8448eb211c80319c", 0);
		make_label(m, s, "span_id", i % 2 ? "b7ad6b7169203331" : "00f067aa0ba902b7", 0);
		make_label(m, s, "http.route", "/cart/{id}", 0);
	}
	m->pb.sample[m->pb.n_sample++] = s;
}

static inline void make_head(struct making *m, const struct make *o)
{
	const char *type = o->counted ? "offcpu" : "cpu";

	make_text(m, "");
	m->pb.sample_type = make_alloc(m, 2, sizeof(*m->pb.sample_type));
	if (o->counted)
		m->pb.sample_type[m->pb.n_sample_type++] = make_type(m, "waits", "count");
	m->pb.sample_type[m->pb.n_sample_type++] = make_type(m, type, "nanoseconds");
	m->pb.default_sample_type = make_text(m, type);
	m->pb.period_type = make_type(m, type, "nanoseconds");
	m->pb.period = o->counted ? 1 : (s64)MAKE_PERIOD;
	m->pb.time_nanos = (s64)MAKE_START;
	m->pb.duration_nanos = 60000000000;
	m->pb.comment = make_alloc(m, 2, sizeof(*m->pb.comment));
	m->pb.comment[m->pb.n_comment++] = make_text(m, "first line");
	m->pb.comment[m->pb.n_comment++] = make_text(m, "second line");
}

/* gzip; owned. */
static inline u8 *make_pprof(const struct make *o, size_t *ret_len)
{
	struct making m = { 0 };
	u8 *data = NULL;
	char **texts;
	u64 kernel = 0;
	u32 i;

	pprof__profile__init(&m.pb);
	make_head(&m, o);
	m.pb.mapping = make_alloc(&m, 3, sizeof(*m.pb.mapping));
	m.pb.location = make_alloc(&m, 2 * (size_t)o->samples + 1, sizeof(*m.pb.location));
	m.pb.function = make_alloc(&m, (size_t)o->samples + 1, sizeof(*m.pb.function));
	m.pb.sample = make_alloc(&m, o->samples, sizeof(*m.pb.sample));
	if (o->samples) {
		make_mapping(&m, 0x1000, 0x1000000, "/bin/app", "a1b2", false);
		make_mapping(&m, 0x2000, 0x2000000, "/lib/l.so", "", true);
		make_mapping(&m, 1ull << 63, UINT64_MAX, "[kernel.kallsyms]", "", true);
		kernel = make_location(&m, 3, 0xffffffff81000000, "do_idle");
	}
	for (i = 0; i < o->samples; i++)
		make_sample(&m, o, i, kernel);
	texts = make_alloc(&m, m.texts.n, sizeof(*texts));
	for (i = 0; i < m.texts.n; i++)
		texts[i] = m.texts.entries[i].s;
	m.pb.string_table = texts;
	m.pb.n_string_table = m.texts.n;
	if (pprof_pack(&m.pb, &data, ret_len))
		abort();
	strtab_fini(&m.texts);
	return data;
}
