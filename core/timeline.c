// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See timeline.h. Sorts events by thread and time; the writers know their formats. */
#include "timeline.h"

#include "fold.h"
#include "gzip.h"
#include "module.h"

#include <errno.h>
#include <string.h>

const struct label_set *timeline_labels(const struct window *w, const struct window_event *ev)
{
	return &w->labels[w->profiles[ev->profile].samples[ev->sample].labels];
}

u32 timeline_stack(const struct window *w, const struct window_event *ev)
{
	return w->profiles[ev->profile].samples[ev->sample].stack;
}

bool timeline_waited(const struct window *w, const struct window_event *ev)
{
	return w->profiles[ev->profile].type->counted;
}

u64 timeline_begin(const struct window *w, const struct window_event *ev)
{
	/* One that stands for several lasted as long as each of them. */
	u64 ns = timeline_waited(w, ev) ? ev->ns / MAX(ev->n, 1u) : 0;
	u64 begin = ev->time_ns - MIN(ns, ev->time_ns);

	return MAX(begin, w->start_ns);
}

const char *timeline_label(const struct label_set *l, const char *key)
{
	u32 i;

	for (i = 0; i < l->nlabels; i++)
		if (!strcmp(l->labels[i].key, key))
			return l->labels[i].value;
	return NULL;
}

const char *timeline_mapping(const struct window *w, u32 location)
{
	const struct location *l = &w->locations[location];

	if (l->kind == FRAME_NATIVE)
		return module_path(l->module);
	if (l->kind == FRAME_RUNTIME)
		return "[interpreter]";
	return l->mapping ? l->mapping : "[unknown]";
}

const char *timeline_name(const struct window *w, u32 location, char buf[TIMELINE_NAME])
{
	const struct location *l = &w->locations[location];
	const char *file = timeline_mapping(w, location);

	if (l->func)
		return l->func;
	if (l->kind == FRAME_NATIVE)
		file = base_name(file);
	snprintf(buf, TIMELINE_NAME, "%.400s+%#llx", file, (unsigned long long)l->address);
	return buf;
}

static int by_thread(const void *x, const void *y, void *arg)
{
	const struct window_event *a = *(const struct window_event *const *)x;
	const struct window_event *b = *(const struct window_event *const *)y;
	u32 pa = timeline_labels(arg, a)->pid, pb = timeline_labels(arg, b)->pid;

	if (pa != pb)
		return pa < pb ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a < b ? -1 : a > b;
}

static void find_threads(struct timeline *t)
{
	struct timeline_thread *last = NULL;
	u32 i;

	for (i = 0; i < t->w->nevents; i++) {
		const struct label_set *labels = timeline_labels(t->w, t->events[i]);

		if (!last || last->pid != labels->pid || last->tid != t->events[i]->tid) {
			last = &t->threads[t->nthreads++];
			*last = (struct timeline_thread){
				.pid = labels->pid,
				.tid = t->events[i]->tid,
				.first = i,
			};
		}
		last->labels = labels;
		last->n++;
	}
}

static int pack(u8 **ret, size_t *ret_len)
{
	u8 *packed;
	int err = gzip_pack(*ret, *ret_len, &packed, ret_len);

	if (err)
		return err;
	free(*ret);
	*ret = packed;
	return 0;
}

int timeline_encode(const struct window *w, const struct timeline_options *o, u8 **ret,
		    size_t *ret_len)
{
	_cleanup_free_ const struct window_event **events = calloc(w->nevents + 1, sizeof(*events));
	_cleanup_free_ struct timeline_thread *threads = calloc(w->nevents + 1, sizeof(*threads));
	struct timeline t = { .w = w, .o = o, .events = events, .threads = threads };
	u32 i;
	int err;

	*ret = NULL;
	if (!events || !threads)
		return -ENOMEM;
	for (i = 0; i < w->nevents; i++)
		events[i] = &w->events[i];
	qsort_r(events, w->nevents, sizeof(*events), by_thread, (void *)w);
	find_threads(&t);
	t.out = open_memstream((char **)ret, ret_len);
	if (!t.out)
		return -ENOMEM;
	err = o->format == TIMELINE_FIREFOX ? timeline_write_firefox(&t)
					    : timeline_write_perfetto(&t);
	if (ferror(t.out))
		err = -ENOMEM;
	if (fclose(t.out) && !err)
		err = -ENOMEM;
	if (!err && o->gzip)
		err = pack(ret, ret_len);
	if (err) {
		free(*ret);
		*ret = NULL;
	}
	return err;
}
