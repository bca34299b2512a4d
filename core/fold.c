// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. In: struct sample, with borrowed text and modules. Out: the window's arrays, in
 * which every text, location, stack and label set is kept once. Texts are interned first, so that
 * all other keys compare as numbers and pointers.
 */
#include "fold.h"

#include "htab.h"
#include "module.h"
#include "stat.h"
#include "strtab.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct fold_index {
	struct strtab text;
	struct htab locations, stacks, labels, identities, profiles, samples;
	struct fold_ref *refs; /* what the entries of `samples` mean */
	u32 nrefs, refs_cap;
	u32 ncontexts;     /* label sets with one */
	u32 sample_frames; /* sum over all refs */
	u32 locations_cap, frames_cap, stacks_cap, labels_cap, identities_cap, profiles_cap;
};

struct window *window_new(u64 start_ns)
{
	struct window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->index = calloc(1, sizeof(*w->index));
	if (!w->index) {
		free(w);
		return NULL;
	}
	w->index->text.max_bytes = WINDOW_MAX_TEXT;
	w->start_ns = start_ns;
	w->end_ns = start_ns;
	return w;
}

static void index_free(struct fold_index *x)
{
	strtab_fini(&x->text);
	htab_fini(&x->locations);
	htab_fini(&x->stacks);
	htab_fini(&x->labels);
	htab_fini(&x->identities);
	htab_fini(&x->profiles);
	htab_fini(&x->samples);
	free(x->refs);
	free(x);
}

void window_free(struct window *w)
{
	u32 i;

	if (!w)
		return;
	for (i = 0; i < w->nlocations; i++)
		module_put(w->locations[i].module);
	for (i = 0; i < w->nprofiles; i++)
		free(w->profiles[i].samples);
	free(w->locations);
	free(w->frames);
	free(w->stacks);
	free(w->labels);
	free(w->identities);
	free(w->events);
	free(w->profiles);
	index_free(w->index);
	free(w);
}

/* NULL stays NULL. */
static int intern(struct window *w, const char *s, const char **ret)
{
	u32 i;
	int err;

	if (!s) {
		*ret = NULL;
		return 0;
	}
	err = strtab_add(&w->index->text, s, strlen(s), &i);
	if (err)
		return err;
	*ret = w->index->text.entries[i].s;
	return 0;
}

const char *window_string(struct window *w, const char *s)
{
	const char *copy;

	return intern(w, s, &copy) ? NULL : copy;
}

static u64 location_hash(const struct location *l)
{
	u64 key[] = { (u64)l->line << 32 | l->kind,
		      l->address,
		      (uintptr_t)l->module,
		      (uintptr_t)l->mapping,
		      (uintptr_t)l->func,
		      (uintptr_t)l->file,
		      l->map };

	return hash_bytes(key, sizeof(key));
}

static bool location_equal(const struct location *a, const struct location *b)
{
	return a->address == b->address && a->module == b->module && a->kind == b->kind &&
	       a->mapping == b->mapping && a->func == b->func && a->file == b->file &&
	       a->line == b->line && a->map == b->map;
}

static int location_get(struct window *w, const struct frame *f, u32 *ret)
{
	struct fold_index *x = w->index;
	struct location l = { .kind = f->kind,
			      .address = f->address,
			      .line = f->line,
			      .map = f->kind == FRAME_ANON ? f->map : 0,
			      .module = f->kind == FRAME_NATIVE ? f->module : NULL };
	u32 pos, i;
	u64 hash;
	int err;

	if ((err = intern(w, f->mapping, &l.mapping)) || (err = intern(w, f->func, &l.func)) ||
	    (err = intern(w, f->file, &l.file)))
		return err;
	hash = location_hash(&l);
	for (pos = htab_start(&x->locations, hash); htab_next(&x->locations, hash, &pos, &i);) {
		if (location_equal(&w->locations[i], &l)) {
			*ret = i;
			return 0;
		}
	}
	err = VEC_RESERVE(w->locations, x->locations_cap, w->nlocations + 1, WINDOW_MAX_LOCATIONS);
	if (!err)
		err = htab_insert(&x->locations, hash, w->nlocations);
	if (err)
		return err;
	if (l.module)
		module_ref(l.module);
	w->locations[w->nlocations] = l;
	*ret = w->nlocations++;
	return 0;
}

/*
 * The stack's frames are written behind the pool's end, where the comparison with known stacks
 * reads them; only a new stack moves the end.
 */
static int stack_get(struct window *w, const struct sample *s, u32 *ret)
{
	struct fold_index *x = w->index;
	u32 *frames, pos, i;
	u64 hash;
	int err;

	if (s->nframes >= WINDOW_MAX_FRAMES - w->nframes)
		return -E2BIG;
	/* One more than needed: even an empty stack then has an address. */
	err = VEC_RESERVE(w->frames, x->frames_cap, w->nframes + s->nframes + 1, WINDOW_MAX_FRAMES);
	if (err)
		return err;
	frames = w->frames + w->nframes;
	for (i = 0; i < s->nframes; i++) {
		err = location_get(w, &s->frames[i], &frames[i]);
		if (err)
			return err;
	}
	hash = hash_mix(hash_bytes(frames, s->nframes * sizeof(frames[0])),
			(u64)s->list << 32 | s->end);
	for (pos = htab_start(&x->stacks, hash); htab_next(&x->stacks, hash, &pos, &i);) {
		const struct stack *have = &w->stacks[i];

		if (have->n == s->nframes && have->end == s->end && have->list == s->list &&
		    !memcmp(w->frames + have->first, frames, have->n * sizeof(frames[0]))) {
			*ret = i;
			return 0;
		}
	}
	err = VEC_RESERVE(w->stacks, x->stacks_cap, w->nstacks + 1, WINDOW_MAX_STACKS);
	if (!err)
		err = htab_insert(&x->stacks, hash, w->nstacks);
	if (err)
		return err;
	w->stacks[w->nstacks] = (struct stack){
		.first = w->nframes, .n = s->nframes, .end = s->end, .list = s->list
	};
	w->nframes += s->nframes;
	*ret = w->nstacks++;
	return 0;
}

static int identity_get(struct window *w, const char *const *who, u64 *ret)
{
	struct fold_index *x = w->index;
	struct identity_set set;
	u32 pos, i;
	u64 hash;
	int err;

	for (i = 0; i < IDENTITY_MAX; i++)
		if ((err = intern(w, who ? who[i] : NULL, &set.label[i])))
			return err;
	hash = hash_bytes(&set, sizeof(set));
	for (pos = htab_start(&x->identities, hash); htab_next(&x->identities, hash, &pos, &i);) {
		if (!memcmp(&w->identities[i], &set, sizeof(set))) {
			*ret = i;
			return 0;
		}
	}
	err = VEC_RESERVE(w->identities, x->identities_cap, w->nidentities + 1, WINDOW_MAX_SAMPLES);
	if (!err)
		err = htab_insert(&x->identities, hash, w->nidentities);
	if (err)
		return err;
	w->identities[w->nidentities] = set;
	*ret = w->nidentities++;
	return 0;
}

static int add_labels(struct window *w, struct label_set *l, const struct sample_label *labels,
		      u32 n)
{
	int err = 0;
	u32 i;

	for (i = 0; i < n && !err; i++) {
		l->labels[l->nlabels].key = labels[i].key;
		err = intern(w, labels[i].value, &l->labels[l->nlabels++].value);
	}
	return err;
}

static int labels_get(struct window *w, const struct sample *s, u32 *ret)
{
	struct fold_index *x = w->index;
	bool full = s->ncontext && x->ncontexts == WINDOW_MAX_CONTEXTS;
	u32 ncontext = full ? 0 : s->ncontext, pos, i;
	struct label_set l = { .pid = s->pid };
	u64 hash;
	int err;

	if ((err = intern(w, s->exe, &l.exe)) || (err = intern(w, s->cmdline, &l.cmdline)) ||
	    (err = intern(w, s->thread, &l.thread)) || (err = identity_get(w, s->who, &l.identity)))
		return err;
	if ((err = add_labels(w, &l, s->labels, s->nlabels)) ||
	    (err = add_labels(w, &l, s->context, ncontext)))
		return err;
	if (full)
		stat_inc(STAT_contexts_dropped);
	/* All texts are interned and nothing is padding: equal sets are equal bytes. */
	hash = hash_bytes(&l, sizeof(l));
	for (pos = htab_start(&x->labels, hash); htab_next(&x->labels, hash, &pos, &i);) {
		if (!memcmp(&w->labels[i], &l, sizeof(l))) {
			*ret = i;
			return 0;
		}
	}
	err = VEC_RESERVE(w->labels, x->labels_cap, w->nlabels + 1, WINDOW_MAX_SAMPLES);
	if (!err)
		err = htab_insert(&x->labels, hash, w->nlabels);
	if (err)
		return err;
	x->ncontexts += ncontext != 0;
	w->labels[w->nlabels] = l;
	*ret = w->nlabels++;
	return 0;
}

static u64 profile_hash(const struct profile *p)
{
	u64 key[] = { (uintptr_t)p->type, (uintptr_t)p->service };

	return hash_bytes(key, sizeof(key));
}

static int profile_get(struct window *w, const struct sample *s, u32 *ret)
{
	struct fold_index *x = w->index;
	struct profile p = { .type = s->type };
	u32 pos, i;
	u64 hash;
	int err;

	if ((err = intern(w, s->service, &p.service)))
		return err;
	hash = profile_hash(&p);
	for (pos = htab_start(&x->profiles, hash); htab_next(&x->profiles, hash, &pos, &i);) {
		const struct profile *have = &w->profiles[i];

		if (have->type == p.type && have->service == p.service) {
			*ret = i;
			return 0;
		}
	}
	err = VEC_RESERVE(w->profiles, x->profiles_cap, w->nprofiles + 1, WINDOW_MAX_PROFILES);
	if (!err)
		err = htab_insert(&x->profiles, hash, w->nprofiles);
	if (err)
		return err;
	p.container = "";
	w->profiles[w->nprofiles] = p;
	*ret = w->nprofiles++;
	return 0;
}

/* After a sample came in: is all of the profile still of one container? */
static void set_container(struct window *w, u32 profile, u32 labels)
{
	const char *c = w->identities[w->labels[labels].identity].label[IDENTITY_CONTAINER];
	struct profile *p = &w->profiles[profile];

	c = c ? c : "";
	if (p->nsamples == 1)
		p->container = c;
	else if (strcmp(p->container, c))
		p->container = "";
}

/* Takes back a profile that profile_get() has just made. */
static void profile_drop_last(struct window *w)
{
	struct profile *p = &w->profiles[w->nprofiles - 1];

	htab_remove(&w->index->profiles, profile_hash(p), w->nprofiles - 1);
	free(p->samples);
	w->nprofiles--;
}

static int sample_new(struct window *w, u64 hash, const struct profile_sample *s,
		      struct fold_ref ref)
{
	struct profile *p = &w->profiles[ref.profile];
	struct fold_index *x = w->index;
	u32 n = w->stacks[s->stack].n;
	int err;

	/* What an encoder has to write down: bounded like the pool, however stacks are shared. */
	if (n > WINDOW_MAX_FRAMES - x->sample_frames)
		return -E2BIG;
	err = VEC_RESERVE(x->refs, x->refs_cap, x->nrefs + 1, WINDOW_MAX_SAMPLES);
	if (!err)
		err = VEC_RESERVE(p->samples, p->cap, p->nsamples + 1, WINDOW_MAX_SAMPLES);
	if (!err)
		err = htab_insert(&x->samples, hash, x->nrefs);
	if (err)
		return err;
	x->sample_frames += n;
	x->refs[x->nrefs++] = ref;
	p->samples[p->nsamples++] = *s;
	return 0;
}

static int sample_get(struct window *w, u32 profile, u32 stack, u32 labels, struct fold_ref *ret)
{
	struct profile_sample fresh = { .stack = stack, .labels = labels };
	u64 hash = hash_bytes((u32[]){ profile, stack, labels, 0 }, 4 * sizeof(u32));
	struct fold_index *x = w->index;
	struct fold_ref ref;
	u32 pos, i;
	int err;

	for (pos = htab_start(&x->samples, hash); htab_next(&x->samples, hash, &pos, &i);) {
		const struct profile_sample *have;

		ref = x->refs[i];
		have = &w->profiles[ref.profile].samples[ref.sample];
		if (ref.profile == profile && have->stack == stack && have->labels == labels) {
			*ret = ref;
			return 0;
		}
	}
	ref = (struct fold_ref){ .profile = profile, .sample = w->profiles[profile].nsamples };
	err = sample_new(w, hash, &fresh, ref);
	if (err)
		return err;
	*ret = ref;
	return 0;
}

/*
 * On failure texts, locations, a stack or a label set may stay behind, but nothing that a profile
 * leads to.
 */
int fold_add(struct window *w, const struct sample *s, struct fold_ref *ret)
{
	u32 stack, labels, profile;
	int err;

	assert(s->type && s->nlabels <= SAMPLE_LABELS_MAX && s->end < STACK_END_MAX &&
	       s->list < SAMPLE_LIST_MAX);
	if ((err = stack_get(w, s, &stack)) || (err = labels_get(w, s, &labels)) ||
	    (err = profile_get(w, s, &profile)))
		return err;
	err = sample_get(w, profile, stack, labels, ret);
	if (!err)
		set_container(w, profile, labels);
	else if (!w->profiles[profile].nsamples)
		profile_drop_last(w);
	return err;
}

static void add_saturated(u64 *sum, u64 n)
{
	if (__builtin_add_overflow(*sum, n, sum))
		*sum = UINT64_MAX;
}

int fold_event(struct window *w, struct fold_ref ref, const struct window_event *ev)
{
	int err = VEC_RESERVE(w->events, w->events_cap, w->nevents + 1, WINDOW_MAX_EVENTS);

	if (err)
		return err;
	w->events[w->nevents] = *ev;
	w->events[w->nevents].profile = ref.profile;
	w->events[w->nevents++].sample = ref.sample;
	return 0;
}

void fold_count(struct window *w, struct fold_ref ref, u64 count, u64 value_ns)
{
	struct profile_sample *s;
	struct profile *p;

	assert(ref.profile < w->nprofiles && ref.sample < w->profiles[ref.profile].nsamples);
	p = &w->profiles[ref.profile];
	s = &p->samples[ref.sample];
	add_saturated(&s->count, count);
	add_saturated(&s->value_ns, value_ns);
	/* A runtime's own type repeats what is told here already. */
	if (p->type->counted) {
		add_saturated(&w->wait_ends[w->stacks[s->stack].end], count);
	} else if (p->type == &sample_cpu) {
		add_saturated(&w->ends[w->stacks[s->stack].end], count);
		add_saturated(&w->lists[w->stacks[s->stack].list], count);
	}
}
