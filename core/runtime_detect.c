// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See runtime.h. What needs no book: the registry of unwinders, and asking them about
 * one process, live or recorded. In: struct target. Out: struct runtime_found; frames of one list.
 */
#include "runtime.h"

#include "layout.h"
#include "target.h"

#include <assert.h>
#include <string.h>

/* --- the registry ---------------------------------------------------------------------------- */

extern const struct unwinder *const __start_unwinders[] __attribute__((weak));
extern const struct unwinder *const __stop_unwinders[] __attribute__((weak));

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct unwinder *const *)a)->name,
		      (*(const struct unwinder *const *)b)->name);
}

/* What every caller relies on. A runtime that breaks it is our own bug, and seen at once. */
static void check(const struct unwinder *u)
{
	u32 i;

	assert(u->name && *u->name && u->title && u->detect && u->self_check && u->state_size);
	assert(u->ranges[0].word && (u->recipe || u->resolve));
	assert(!u->recipe || (u->frames && u->sample_type));
	assert(u->nlayout_fields <= UNWINDER_FIELDS);
	for (i = 0; i < UNWINDER_RANGES && u->ranges[i].word; i++)
		assert(u->ranges[i].first.major <= u->ranges[i].last.major);
}

const struct unwinder *unwinder_at(u32 i)
{
	static const struct unwinder *sorted[UNWINDERS_MAX];
	static u32 n;
	static bool ready;
	const struct unwinder *const *p;
	u32 k;

	if (!ready) {
		for (p = __start_unwinders; p && p < __stop_unwinders; p++) {
			assert(n < UNWINDERS_MAX);
			check(*p);
			sorted[n++] = *p;
		}
		qsort(sorted, n, sizeof(sorted[0]), by_name);
		for (k = 1; k < n; k++)
			assert(strcmp(sorted[k - 1]->name, sorted[k]->name));
		ready = true;
	}
	return i < n ? sorted[i] : NULL;
}

u32 unwinder_index(const struct unwinder *u)
{
	const struct unwinder *at;
	u32 i;

	for (i = 0; (at = unwinder_at(i)); i++)
		if (at == u)
			return i;
	return 0;
}

const char *verdict_text(enum verdict v)
{
	static const char *const texts[] = {
#define X(name, text) text,
		VERDICT_LIST(X)
#undef X
	};

	return v < UNWIND_VERDICT_MAX ? texts[v] : "unknown";
}

const char *list_end_text(enum list_end e)
{
	static const char *const texts[] = {
#define X(name, text) text,
		LIST_END_LIST(X)
#undef X
	};

	return e < LIST_END_MAX ? texts[e] : "unknown";
}

/* --- one process ------------------------------------------------------------------------------ */

static bool word_is_on(const struct runtime_choice *c, const struct unwinder *u, const char *word)
{
	return !c || !c->enabled || c->enabled(c->arg, u, word);
}

static bool is_on(const struct runtime_choice *c, const struct unwinder *u)
{
	u32 i;

	for (i = 0; i < UNWINDER_RANGES && u->ranges[i].word; i++)
		if (word_is_on(c, u, u->ranges[i].word))
			return true;
	return false;
}

static int compare(const struct version *a, const struct version *b, bool with_patch)
{
	if (a->major != b->major)
		return a->major < b->major ? -1 : 1;
	if (a->minor != b->minor)
		return a->minor < b->minor ? -1 : 1;
	if (with_patch && a->patch != b->patch)
		return a->patch < b->patch ? -1 : 1;
	return 0;
}

/* The word that the version hangs on; NULL: outside of all ranges. */
static const char *word_of(const struct unwinder *u, const struct version *v,
			   const struct layouts *extra)
{
	const char *last = NULL;
	u32 i;

	for (i = 0; i < UNWINDER_RANGES && u->ranges[i].word; i++) {
		last = u->ranges[i].word;
		if (compare(v, &u->ranges[i].first, true) >= 0 &&
		    compare(v, &u->ranges[i].last, false) <= 0)
			return last;
	}
	return extra && layouts_find(extra, v) ? last : NULL;
}

/* Whatever a layout file says: the programs mask each field, but a walk has to make sense. */
static bool is_sound(const struct recipe *r)
{
	u32 i;

	if (r->head == RECIPE_NO_HEAD)
		return true;
	if (r->head > RECIPE_JIT_FP || r->nhops > RECIPE_HOPS || r->nwords > RECIPE_WORDS ||
	    r->npeeks > RECIPE_PEEKS || !r->nwords || !r->len || r->len > RECIPE_NODE_MAX ||
	    r->limit > RECIPE_NODES_MAX || r->end_shift > 63)
		return false;
	for (i = 0; i < r->nwords; i++)
		if ((r->word[i] + 1u) * 8 > r->len)
			return false;
	for (i = 0; i < r->npeeks; i++)
		if (r->peek_word[i] >= r->nwords)
			return false;
	return r->stride || (r->next_word + 1u) * 8 <= r->len;
}

/* From a state that passed its self-check: what the kernel and the line need. */
enum verdict runtime_prepare(struct runtime_found *found)
{
	const struct unwinder *u = found->unwinder;

	memset(&found->recipe, 0, sizeof(found->recipe));
	if (u->recipe)
		u->recipe(found->state, &found->recipe);
	found->nloops = u->loops ? MIN(u->loops(found->state, found->loops), (u32)UNWINDER_LOOPS)
				 : 0;
	return is_sound(&found->recipe) ? UNWIND_OK : UNWIND_BAD_LAYOUT;
}

static void ask(struct target *t, const struct runtime_choice *c, const struct unwinder *u,
		struct runtime_found *found)
{
	*found = (struct runtime_found){ .unwinder = u, .verdict = UNWIND_NOT_MINE };
	found->state = calloc(1, u->state_size);
	if (!found->state)
		return;
	t->layouts = c && c->layouts ? c->layouts(c->arg, u) : NULL;
	found->verdict = u->detect(t, found->state, &found->version);
	if (found->verdict == UNWIND_NOT_MINE)
		return;
	found->word = word_of(u, &found->version, t->layouts);
	if (found->verdict == UNWIND_OK && !found->word)
		found->verdict = UNWIND_VERSION;
	if (found->verdict == UNWIND_OK && !word_is_on(c, u, found->word))
		found->verdict = UNWIND_OFF;
	if (found->verdict == UNWIND_OK)
		found->verdict = u->self_check(t, found->state);
	if (found->verdict == UNWIND_OK)
		found->verdict = runtime_prepare(found);
	if (found->verdict >= UNWIND_VERDICT_MAX)
		found->verdict = UNWIND_BAD_LAYOUT;
	/* No memory of a process is no trait of the runtime's. */
	if (found->verdict != UNWIND_OK && t->hung)
		found->verdict = UNWIND_FAULT;
}

void runtime_detect(struct target *t, const struct runtime_choice *choice,
		    struct runtime_found *ret)
{
	const struct unwinder *u;
	u32 i;

	*ret = (struct runtime_found){ 0 };
	/* One page cache and one budget of reads for all of them. */
	target_begin(t);
	for (i = 0; (u = unwinder_at(i)) && !t->hung; i++) {
		struct runtime_found found;

		if (!is_on(choice, u))
			continue;
		ask(t, choice, u, &found);
		if (found.verdict == UNWIND_NOT_MINE ||
		    (ret->unwinder && found.verdict != UNWIND_OK)) {
			runtime_found_fini(&found);
			continue;
		}
		runtime_found_fini(ret);
		*ret = found;
		if (found.verdict == UNWIND_OK)
			break;
	}
	t->layouts = NULL;
}

void runtime_found_fini(struct runtime_found *found)
{
	free(found->state);
	*found = (struct runtime_found){ 0 };
}

enum verdict runtime_list(struct target *t, const struct runtime_found *found, const struct list *l,
			  struct frames *f)
{
	const struct unwinder *u = found->unwinder;
	struct runtime_frames *out = f->out;
	enum verdict v;

	if (l->end == LIST_END_MOVED)
		return UNWIND_TORN;
	if (!l->n || l->end == LIST_END_EMPTY || l->end == LIST_END_NO_HEAD)
		return l->end == LIST_END_UNREADABLE ? UNWIND_FAULT : UNWIND_IDLE;
	/* A recipe that has changed its width meanwhile: nothing of ours. */
	if (!u || !u->frames || l->width != found->recipe.nwords + (u32)found->recipe.npeeks)
		return UNWIND_TORN;
	target_begin(t);
	v = u->frames(t, found->state, l, f);
	frames_end(f);
	if (v != UNWIND_OK) {
		out->n = out->nsegments = out->nlabels = 0;
		return v < UNWIND_VERDICT_MAX ? v : UNWIND_BAD_FRAME;
	}
	out->cut |= l->end == LIST_END_LIMIT || l->end == LIST_END_UNREADABLE;
	return v;
}

void heads_add(struct heads *h, uint32_t tid, uint64_t head)
{
	h->fn(h->arg, tid, head);
}

enum verdict runtime_heads(struct target *t, const struct runtime_found *found,
			   void (*fn)(void *arg, u32 tid, u64 head), void *arg)
{
	struct heads heads = { .fn = fn, .arg = arg };

	if (!found->unwinder || found->verdict != UNWIND_OK || !found->unwinder->heads)
		return UNWIND_NOT_MINE;
	target_begin(t);
	return found->unwinder->heads(t, found->state, &heads);
}

bool runtime_recipe_by_tid(const struct recipe *r, struct recipe *ret)
{
	u32 n = r->thread_hops, i;

	if (r->head == RECIPE_TID) {
		*ret = *r;
		return true;
	}
	if (r->head != RECIPE_TP || !n || n > r->nhops || (r->stride && r->end_hop < n))
		return false;
	*ret = *r;
	ret->head = RECIPE_TID;
	ret->nhops = (u8)(r->nhops - n);
	ret->thread_hops = 0;
	ret->end_hop = (u8)(r->end_hop - MIN(n, r->end_hop));
	for (i = 0; i < RECIPE_HOPS; i++)
		ret->hop[i] = i < ret->nhops ? r->hop[i + n] : 0;
	return true;
}

static void version_text(const struct version *v, char *dst, size_t size)
{
	*dst = '\0';
	if (v->major || v->minor)
		snprintf(dst, size, " %u.%u.%u", v->major, v->minor, v->patch);
}

void runtime_found_text(const struct runtime_found *found, char *dst, size_t size)
{
	char version[32];

	*dst = '\0';
	if (!found->unwinder)
		return;
	version_text(&found->version, version, sizeof(version));
	if (found->verdict == UNWIND_OFF)
		snprintf(dst, size, "%s%s: switched off in the configuration, word '%s'",
			 found->unwinder->title, version, found->word);
	else
		snprintf(dst, size, "%s%s: %s", found->unwinder->title, version,
			 found->verdict == UNWIND_OK ? "stacks can be taken"
						     : verdict_text(found->verdict));
}
