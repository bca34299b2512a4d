// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See pprof_cut.h. */
#include "pprof_cut.h"

#include "profile.pb-c.h"

#include <errno.h>
#include <string.h>

/* --- whole? ----------------------------------------------------------------------------------- */

static bool text_ok(const Pprof__Profile *pb, s64 i)
{
	return i >= 0 && (u64)i < pb->n_string_table;
}

static bool type_ok(const Pprof__Profile *pb, const Pprof__ValueType *t)
{
	return text_ok(pb, t->type) && text_ok(pb, t->unit);
}

static bool head_ok(const Pprof__Profile *pb)
{
	size_t i;

	/* Numbers of all tables shall fit into 31 bits. */
	if (!pb->n_string_table || *pb->string_table[0] || pb->n_string_table > INT32_MAX ||
	    pb->n_location > INT32_MAX || pb->n_sample > INT32_MAX || !pb->n_sample_type)
		return false;
	for (i = 0; i < pb->n_sample_type; i++)
		if (!type_ok(pb, pb->sample_type[i]))
			return false;
	for (i = 0; i < pb->n_comment; i++)
		if (!text_ok(pb, pb->comment[i]))
			return false;
	return (!pb->period_type || type_ok(pb, pb->period_type)) &&
	       text_ok(pb, pb->default_sample_type) && text_ok(pb, pb->drop_frames) &&
	       text_ok(pb, pb->keep_frames) && text_ok(pb, pb->doc_url);
}

static bool location_ok(const Pprof__Profile *pb, const Pprof__Location *l)
{
	size_t i;

	for (i = 0; i < l->n_line; i++)
		if (l->line[i]->function_id > pb->n_function)
			return false;
	return l->mapping_id <= pb->n_mapping;
}

static bool sample_ok(const Pprof__Profile *pb, const Pprof__Sample *s)
{
	size_t i;

	for (i = 0; i < s->n_location_id; i++)
		if (!s->location_id[i] || s->location_id[i] > pb->n_location)
			return false;
	for (i = 0; i < s->n_label; i++)
		if (!s->label[i]->key || !text_ok(pb, s->label[i]->key) ||
		    !text_ok(pb, s->label[i]->str) || !text_ok(pb, s->label[i]->num_unit))
			return false;
	return s->n_value == pb->n_sample_type;
}

bool pprof_is_whole(const Pprof__Profile *pb)
{
	size_t i;

	if (!head_ok(pb))
		return false;
	for (i = 0; i < pb->n_mapping; i++)
		if (pb->mapping[i]->id != i + 1 || !text_ok(pb, pb->mapping[i]->filename) ||
		    !text_ok(pb, pb->mapping[i]->build_id))
			return false;
	for (i = 0; i < pb->n_function; i++)
		if (pb->function[i]->id != i + 1 || !text_ok(pb, pb->function[i]->name) ||
		    !text_ok(pb, pb->function[i]->system_name) ||
		    !text_ok(pb, pb->function[i]->filename))
			return false;
	for (i = 0; i < pb->n_location; i++)
		if (pb->location[i]->id != i + 1 || !location_ok(pb, pb->location[i]))
			return false;
	for (i = 0; i < pb->n_sample; i++)
		if (!sample_ok(pb, pb->sample[i]))
			return false;
	return true;
}

/* --- cut -------------------------------------------------------------------------------------- */

/* By old number: 0, or that it is used; then the new number. Entry 0 is that of "none". */
struct cut {
	Pprof__Profile *pb;
	u32 *text, *mapping, *function, *location;
};

static u32 *marks(struct pprof_in *in, size_t n)
{
	u32 *m = pprof_in_alloc(in, (n + 1) * sizeof(*m));

	if (m)
		memset(m, 0, (n + 1) * sizeof(*m));
	return m;
}

/* Gives those that are marked their new numbers, in the old order, and returns how many. */
static size_t number(u32 *marked, size_t n)
{
	u32 next = 0;
	size_t i;

	for (i = 1; i <= n; i++)
		if (marked[i])
			marked[i] = ++next;
	return next;
}

static void drop_labels(const Pprof__Profile *pb, const char *const *without)
{
	size_t i, k;
	u32 w;

	for (i = 0; i < pb->n_sample; i++) {
		Pprof__Sample *s = pb->sample[i];
		size_t n = 0;

		for (k = 0; k < s->n_label; k++) {
			for (w = 0; without[w]; w++)
				if (!strcmp(pb->string_table[s->label[k]->key], without[w]))
					break;
			if (!without[w])
				s->label[n++] = s->label[k];
		}
		s->n_label = n;
	}
}

/* Which entries of the tables the samples use, and these each other. */
static void mark(struct cut *c)
{
	Pprof__Profile *pb = c->pb;
	size_t i, k;

	for (i = 0; i < pb->n_sample; i++)
		for (k = 0; k < pb->sample[i]->n_location_id; k++)
			c->location[pb->sample[i]->location_id[k]] = 1;
	for (i = 0; i < pb->n_location; i++) {
		const Pprof__Location *l = pb->location[i];

		if (!c->location[i + 1])
			continue;
		c->mapping[l->mapping_id] = 1;
		for (k = 0; k < l->n_line; k++)
			c->function[l->line[k]->function_id] = 1;
	}
	if (pb->n_mapping)
		c->mapping[1] = 1;
}

/* Takes what is not marked out of the tables, and changes the references between them. */
static void compact(struct cut *c)
{
	Pprof__Profile *pb = c->pb;
	size_t i, k;

#define COMPACT(table)                                                         \
	do {                                                                   \
		size_t left = number(c->table, pb->n_##table);                 \
                                                                               \
		for (i = 0; i < pb->n_##table; i++)                            \
			if (c->table[i + 1]) {                                 \
				pb->table[i]->id = c->table[i + 1];            \
				pb->table[c->table[i + 1] - 1] = pb->table[i]; \
			}                                                      \
		pb->n_##table = left;                                          \
	} while (0)
	COMPACT(mapping);
	COMPACT(function);
	COMPACT(location);
#undef COMPACT
	c->mapping[0] = c->function[0] = 0;
	for (i = 0; i < pb->n_location; i++) {
		Pprof__Location *l = pb->location[i];

		l->mapping_id = c->mapping[l->mapping_id];
		for (k = 0; k < l->n_line; k++)
			l->line[k]->function_id = c->function[l->line[k]->function_id];
	}
	for (i = 0; i < pb->n_sample; i++)
		for (k = 0; k < pb->sample[i]->n_location_id; k++)
			pb->sample[i]->location_id[k] = c->location[pb->sample[i]->location_id[k]];
}

/* Every number of a text in the message. */
static void each_text(struct cut *c, void (*f)(struct cut *c, int64_t *text))
{
	Pprof__Profile *pb = c->pb;
	size_t i, k;

	for (i = 0; i < pb->n_sample_type; i++) {
		f(c, &pb->sample_type[i]->type);
		f(c, &pb->sample_type[i]->unit);
	}
	if (pb->period_type) {
		f(c, &pb->period_type->type);
		f(c, &pb->period_type->unit);
	}
	f(c, &pb->default_sample_type);
	f(c, &pb->drop_frames);
	f(c, &pb->keep_frames);
	f(c, &pb->doc_url);
	for (i = 0; i < pb->n_comment; i++)
		f(c, &pb->comment[i]);
	for (i = 0; i < pb->n_mapping; i++) {
		f(c, &pb->mapping[i]->filename);
		f(c, &pb->mapping[i]->build_id);
	}
	for (i = 0; i < pb->n_function; i++) {
		f(c, &pb->function[i]->name);
		f(c, &pb->function[i]->system_name);
		f(c, &pb->function[i]->filename);
	}
	for (i = 0; i < pb->n_sample; i++)
		for (k = 0; k < pb->sample[i]->n_label; k++) {
			f(c, &pb->sample[i]->label[k]->key);
			f(c, &pb->sample[i]->label[k]->str);
			f(c, &pb->sample[i]->label[k]->num_unit);
		}
}

static void mark_text(struct cut *c, int64_t *text)
{
	c->text[*text] = 1;
}

static void renumber_text(struct cut *c, int64_t *text)
{
	*text = c->text[*text];
}

static void cut_texts(struct cut *c)
{
	Pprof__Profile *pb = c->pb;
	size_t i, left = pb->n_string_table - 1;

	each_text(c, mark_text);
	/* Text 0 is "" and keeps its number. */
	left = number(c->text, left);
	c->text[0] = 0;
	for (i = 1; i < pb->n_string_table; i++)
		if (c->text[i])
			pb->string_table[c->text[i]] = pb->string_table[i];
	pb->n_string_table = left + 1;
	each_text(c, renumber_text);
}

int pprof_cut(struct pprof_in *in, size_t first, size_t n, const char *const *without)
{
	Pprof__Profile *pb = in->pb;
	struct cut c = { .pb = pb };

	c.text = marks(in, pb->n_string_table);
	c.mapping = marks(in, pb->n_mapping);
	c.function = marks(in, pb->n_function);
	c.location = marks(in, pb->n_location);
	if (!c.text || !c.mapping || !c.function || !c.location)
		return -ENOMEM;
	first = MIN(first, pb->n_sample);
	n = MIN(n, pb->n_sample - first);
	pb->sample += first;
	pb->n_sample = n;
	if (without)
		drop_labels(pb, without);
	mark(&c);
	compact(&c);
	cut_texts(&c);
	return 0;
}
