// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See fixture.h. */
#include "fixture.h"

#include "listwalk.h"
#include "target.h"

#include <errno.h>
#include <string.h>

struct walk {
	struct target *t;
	FILE *out;
	struct runtime_found found;
	struct recipe recipe_by_tid;
	bool by_tid;
	struct frame_names_total total;
	struct frame_names *names;
	struct runtime_frames frames;
	struct target_thread thread[FIXTURE_THREADS_MAX];
	u64 head[FIXTURE_THREADS_MAX]; /* RECIPE_TID: of the thread with the same index */
	u32 nthreads;
	u32 first_tid;
	u64 words[LIST_WORDS_MAX];
	struct fixture_result *result;
};

static void walk_free(struct walk *w)
{
	runtime_found_fini(&w->found);
	frame_names_free(w->names);
	free(w);
}

static void walk_freep(struct walk **w)
{
	if (*w)
		walk_free(*w);
}

static bool is_runtime(void *arg, const struct unwinder *u, const char *word __unused)
{
	return !arg || !strcmp(u->name, arg);
}

static int by_tid(const void *pa, const void *pb)
{
	const struct target_thread *a = pa, *b = pb;

	return (a->tid > b->tid) - (a->tid < b->tid);
}

static void list_threads(struct walk *w)
{
	target_begin(w->t);
	while (w->nthreads < FIXTURE_THREADS_MAX &&
	       target_thread(w->t, w->nthreads, &w->thread[w->nthreads]))
		w->nthreads++;
	w->first_tid = w->nthreads ? w->thread[0].tid : 0;
	qsort(w->thread, w->nthreads, sizeof(w->thread[0]), by_tid);
}

static void take_head(void *arg, u32 tid, u64 head)
{
	struct walk *w = arg;
	u32 i;

	for (i = 0; i < w->nthreads; i++)
		if (w->thread[i].tid == tid)
			w->head[i] = head;
}

/* For threads whose thread pointer nobody knows, too. */
static void find_heads(struct walk *w)
{
	u32 i;

	w->by_tid = runtime_recipe_by_tid(&w->found.recipe, &w->recipe_by_tid);
	for (i = 0; i < w->nthreads && w->found.recipe.head == RECIPE_TP; i++)
		if (!w->thread[i].tp)
			break;
	if (!w->by_tid || (w->found.recipe.head == RECIPE_TP && i == w->nthreads))
		return;
	target_begin(w->t);
	runtime_heads(w->t, &w->found, take_head, w);
}

static void note_reads(struct walk *w)
{
	w->result->reads_max = MAX(w->result->reads_max, w->t->reads);
}

static void print_frames(struct walk *w, u32 tid)
{
	const struct runtime_frames *f = &w->frames;
	u32 i;

	if (!w->out)
		return;
	fprintf(w->out, "thread %u%s\n", tid, f->cut ? " (cut)" : "");
	for (i = 0; i < f->n; i++) {
		const struct runtime_frame *at = &f->frames[i];

		fprintf(w->out, "\t%s", at->func);
		if (at->file)
			fprintf(w->out, " (%s:%u)", at->file, at->line);
		fprintf(w->out, "\n");
	}
}

static void walk_thread(struct walk *w, u32 i)
{
	const struct target_thread *thread = &w->thread[i];
	const struct recipe *recipe = &w->found.recipe;
	struct frames frames = { 0 };
	struct list list;
	enum verdict v;

	if (recipe->head == RECIPE_TP && !thread->tp && w->by_tid)
		recipe = &w->recipe_by_tid;
	recipe = list_recipe_for(recipe, thread->tid == w->first_tid);
	target_begin(w->t);
	list_walk(w->t, recipe, thread->tp, w->head[i], w->words, &list);
	note_reads(w);
	frames_begin(&frames, w->names, &w->frames);
	v = runtime_list(w->t, &w->found, &list, &frames);
	note_reads(w);
	if (v == UNWIND_IDLE)
		return;
	if (v != UNWIND_OK) {
		w->result->refused++;
		if (w->out)
			fprintf(w->out, "thread %u: refused: %s\n", thread->tid, verdict_text(v));
		return;
	}
	w->result->stacks++;
	print_frames(w, thread->tid);
}

static void detect(struct walk *w, const char *runtime)
{
	const struct runtime_choice choice = { .enabled = is_runtime, .arg = (void *)runtime };
	struct fixture_result *ret = w->result;

	runtime_detect(w->t, &choice, &w->found);
	note_reads(w);
	ret->unwinder = w->found.unwinder;
	ret->version = w->found.version;
	ret->verdict = w->found.unwinder ? w->found.verdict : UNWIND_NOT_MINE;
	runtime_found_text(&w->found, ret->text, sizeof(ret->text));
	if (!w->found.unwinder)
		snprintf(ret->text, sizeof(ret->text), "no runtime that is known");
	if (ret->verdict != UNWIND_OK && w->out)
		fprintf(w->out, "refused: %s\n", ret->text);
}

int fixture_walk(struct target *t, const char *runtime, FILE *out, struct fixture_result *ret)
{
	_cleanup_(walk_freep) struct walk *w = calloc(1, sizeof(*w));
	u32 i;

	if (!w)
		return -ENOMEM;
	*ret = (struct fixture_result){ 0 };
	w->t = t;
	w->out = out;
	w->result = ret;
	w->total.max = FRAME_NAMES_BYTES;
	w->names = frame_names_new(&w->total);
	if (!w->names)
		return -ENOMEM;
	detect(w, runtime);
	if (ret->verdict != UNWIND_OK)
		return 0;
	list_threads(w);
	find_heads(w);
	for (i = 0; i < w->nthreads; i++)
		walk_thread(w, i);
	ret->threads = w->nthreads;
	return 0;
}
