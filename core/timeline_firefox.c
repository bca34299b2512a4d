// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See timeline.h. A processed profile of the Firefox Profiler, version 60 (which its
 * viewer reads and brings up to date): tables of strings, libraries, functions, frames and stacks
 * that all threads share, and for each thread its samples and, for its waits, markers. A sample
 * weighs what it stands for in milliseconds, a wait the time waited; its CPU time is 0 then, and its
 * category says so. Layout: docs-developer/CHANGELOG-formats.md and src/types/profile.ts of
 * github.com/firefox-devtools/profiler.
 */
#include "timeline.h"

#include "fold.h"
#include "htab.h"
#include "json.h"
#include "module.h"
#include "strtab.h"

#include <errno.h>
#include <string.h>

#define GECKO_VERSION     31
#define PROCESSED_VERSION 60
#define RESOURCE_LIBRARY  1
#define PHASE_INTERVAL    1
#define NONE              UINT32_MAX

enum category { OTHER, USER, KERNEL, INTERPRETER, GENERATED, WAITING };

static const struct {
	const char *name, *color;
} categories[] = {
	[OTHER] = { "Other", "grey" },
	[USER] = { "User", "yellow" },
	[KERNEL] = { "Kernel", "orange" },
	[INTERPRETER] = { "Interpreter", "green" },
	[GENERATED] = { "Generated code", "blue" },
	[WAITING] = { "Waiting", "lightblue" },
};

struct function {
	u32 name, lib, source; /* source: or NONE */
};

struct node {
	u32 frame, prefix; /* NONE: a root */
};

/* Frames are numbered twice: of samples as the window's locations, of waits behind them. */
struct writer {
	const struct timeline *t;
	struct json j;
	struct strtab strings, libs, sources;
	u32 *lib_name, *source_name; /* strings, by library and by source */
	u32 *func_of;                /* by location */
	struct function *functions;
	u32 nfunctions, functions_cap;
	struct htab by_function;
	struct node *nodes;
	u32 nnodes, nodes_cap;
	struct htab by_node;
	u32 *node_of; /* by stack; those of waits behind those of samples */
};

static u32 string(struct writer *w, const char *s, int *err)
{
	u32 i = 0;
	int e = strtab_add(&w->strings, s, strlen(s), &i);

	if (e && !*err)
		*err = e;
	return i;
}

/* --- tables ----------------------------------------------------------------------------------- */

/* The place of an item in a table of distinct ones, which is at most max long; item may be *ret's. */
static int distinct(struct htab *by_value, void **items, u32 *n, u32 *cap, u32 max,
		    const void *item, size_t size, u32 *ret)
{
	u64 hash = hash_bytes(item, size);
	u32 pos, i;
	int err;

	for (pos = htab_start(by_value, hash); htab_next(by_value, hash, &pos, &i);)
		if (!memcmp((char *)*items + i * size, item, size)) {
			*ret = i;
			return 0;
		}
	err = vec_reserve(items, cap, *n + 1, max, size);
	if (!err)
		err = htab_insert(by_value, hash, *n);
	if (err)
		return err;
	memcpy((char *)*items + *n * size, item, size);
	*ret = (*n)++;
	return 0;
}

static int add_function(struct writer *w, const struct function *f, u32 *ret)
{
	return distinct(&w->by_function, (void **)&w->functions, &w->nfunctions, &w->functions_cap,
			WINDOW_MAX_LOCATIONS, f, sizeof(*f), ret);
}

static int add_node(struct writer *w, const struct node *n, u32 *ret)
{
	return distinct(&w->by_node, (void **)&w->nodes, &w->nnodes, &w->nodes_cap,
			2 * WINDOW_MAX_FRAMES, n, sizeof(*n), ret);
}

static int add_location(struct writer *w, u32 i)
{
	const struct window *win = w->t->w;
	const struct location *l = &win->locations[i];
	const char *file = timeline_mapping(win, i);
	char buf[TIMELINE_NAME];
	struct function f = { .source = NONE };
	int err;

	err = strtab_add(&w->libs, file, strlen(file), &f.lib);
	if (!err)
		w->lib_name[f.lib] = string(w, base_name(file), &err);
	f.name = string(w, timeline_name(win, i, buf), &err);
	if (!err && l->kind == FRAME_RUNTIME && l->file) {
		err = strtab_add(&w->sources, l->file, strlen(l->file), &f.source);
		if (!err)
			w->source_name[f.source] = string(w, l->file, &err);
	}
	return err ? err : add_function(w, &f, &w->func_of[i]);
}

static int add_stack(struct writer *w, u32 stack, bool waited)
{
	const struct window *win = w->t->w;
	const struct stack *s = &win->stacks[stack];
	struct node n = { .prefix = NONE };
	u32 i;
	int err = 0;

	for (i = s->n; i > 0 && !err; i--) {
		n.frame = win->frames[s->first + i - 1] + (waited ? win->nlocations : 0);
		err = add_node(w, &n, &n.prefix);
	}
	w->node_of[stack + (waited ? win->nstacks : 0)] = n.prefix;
	return err;
}

static int add_all(struct writer *w)
{
	const struct window *win = w->t->w;
	u32 i;
	int err = 0;

	for (i = 0; i < win->nlocations && !err; i++)
		err = add_location(w, i);
	memset(w->node_of, 0xff, 2 * (size_t)win->nstacks * sizeof(*w->node_of));
	for (i = 0; i < win->nevents && !err; i++) {
		bool waited = timeline_waited(win, &win->events[i]);
		u32 stack = timeline_stack(win, &win->events[i]);

		if (w->node_of[stack + (waited ? win->nstacks : 0)] == NONE)
			err = add_stack(w, stack, waited);
	}
	return err;
}

static enum category category(const struct writer *w, u32 frame)
{
	u32 n = w->t->w->nlocations;

	if (frame >= n)
		return WAITING;
	switch (w->t->w->locations[frame].kind) {
	case FRAME_KERNEL:
		return KERNEL;
	case FRAME_NATIVE:
		return USER;
	case FRAME_ANON:
		return GENERATED;
	case FRAME_RUNTIME:
		return INTERPRETER;
	default:
		return OTHER;
	}
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void key_number(struct json *j, const char *key, u64 n)
{
	json_key(j, key);
	json_number(j, n);
}

static void key_text(struct json *j, const char *key, const char *s)
{
	json_key(j, key);
	json_text(j, s);
}

static void key_bool(struct json *j, const char *key, bool b)
{
	json_key(j, key);
	json_bool(j, b);
}

static void index_or_null(struct json *j, u32 i)
{
	if (i == NONE)
		json_null(j);
	else
		json_number(j, i);
}

/* A column of n equal values. */
static void same(struct json *j, const char *key, u32 n, void (*put)(struct json *j))
{
	u32 i;

	json_key(j, key);
	json_open(j, '[');
	for (i = 0; i < n; i++)
		put(j);
	json_close(j, '[');
}

static void put_zero(struct json *j)
{
	json_number(j, 0);
}

static void put_false(struct json *j)
{
	json_bool(j, false);
}

/* A column, a value for each i below n. */
#define COLUMN(j, key, n, i, put)           \
	do {                                \
		u32 i;                      \
		json_key(j, key);           \
		json_open(j, '[');          \
		for (i = 0; i < (n); i++) { \
			put;                \
		}                           \
		json_close(j, '[');         \
	} while (0)

static void put_meta(struct writer *w)
{
	const struct timeline_options *o = w->t->o;
	struct json *j = &w->j;
	u32 i;

	json_key(j, "meta");
	json_open(j, '{');
	key_number(j, "version", GECKO_VERSION);
	key_number(j, "preprocessedProfileVersion", PROCESSED_VERSION);
	key_text(j, "product", "ebpfprofiler");
	key_text(j, "importedFrom", "ebpfprofiler");
	key_text(j, "platform", o->host);
	json_key(j, "interval");
	json_millis(j, NSEC_PER_SEC / MAX(o->hz, 1u));
	json_key(j, "startTime");
	json_millis(j, w->t->w->start_ns);
	key_number(j, "processType", 0);
	key_number(j, "stackwalk", 1);
	key_bool(j, "symbolicated", true);
	key_bool(j, "usesOnlyOneStackType", false);
	json_key(j, "sampleUnits");
	json_open(j, '{');
	key_text(j, "time", "ms");
	key_text(j, "eventDelay", "ms");
	key_text(j, "threadCPUDelta", "ns");
	json_close(j, '{');
	json_key(j, "categories");
	json_open(j, '[');
	for (i = 0; i < ARRAY_SIZE(categories); i++) {
		json_open(j, '{');
		key_text(j, "name", categories[i].name);
		key_text(j, "color", categories[i].color);
		json_key(j, "subcategories");
		json_open(j, '[');
		json_text(j, "Other");
		json_close(j, '[');
		json_close(j, '{');
	}
	json_close(j, '[');
	json_key(j, "markerSchema");
	json_open(j, '[');
	json_open(j, '{');
	key_text(j, "name", "Wait");
	key_text(j, "tableLabel", "{marker.data.what}");
	key_text(j, "chartLabel", "{marker.data.what}");
	json_key(j, "display");
	json_open(j, '[');
	json_text(j, "marker-chart");
	json_text(j, "marker-table");
	json_close(j, '[');
	json_key(j, "fields");
	json_open(j, '[');
	for (i = 0; i < 2; i++) {
		json_open(j, '{');
		key_text(j, "key", i ? "state" : "what");
		key_text(j, "label", i ? "Thread's state" : "Waited for");
		key_text(j, "format", "string");
		json_close(j, '{');
	}
	json_close(j, '[');
	json_close(j, '{');
	json_close(j, '[');
	json_key(j, "extra");
	json_open(j, '[');
	json_open(j, '{');
	key_text(j, "label", "Recording");
	json_key(j, "entries");
	json_open(j, '[');
	for (i = 0; i < o->ncomments; i++) {
		json_open(j, '{');
		key_text(j, "label", i ? "" : "ebpfprofiler");
		key_text(j, "format", "string");
		key_text(j, "value", o->comments[i]);
		json_close(j, '{');
	}
	json_close(j, '[');
	json_close(j, '{');
	json_close(j, '[');
	json_close(j, '{');
}

static void put_libs(struct writer *w)
{
	struct json *j = &w->j;
	u32 i;

	json_key(j, "libs");
	json_open(j, '[');
	for (i = 0; i < w->libs.n; i++) {
		const char *path = w->libs.entries[i].s;

		json_open(j, '{');
		key_text(j, "name", base_name(path));
		key_text(j, "path", path);
		key_text(j, "debugName", base_name(path));
		key_text(j, "debugPath", path);
		key_text(j, "breakpadId", "");
		json_key(j, "codeId");
		json_null(j);
		key_text(j, "arch", "");
		json_close(j, '{');
	}
	json_close(j, '[');
}

static void put_tables(struct writer *w)
{
	struct json *j = &w->j;
	u32 nframes = 2 * w->t->w->nlocations, n = w->t->w->nlocations;

	json_key(j, "shared");
	json_open(j, '{');
	COLUMN(j, "stringArray", w->strings.n, i, json_text(j, w->strings.entries[i].s));

	json_key(j, "sources");
	json_open(j, '{');
	key_number(j, "length", w->sources.n);
	same(j, "uuid", w->sources.n, json_null);
	COLUMN(j, "filename", w->sources.n, i, json_number(j, w->source_name[i]));
	json_close(j, '{');

	json_key(j, "resourceTable");
	json_open(j, '{');
	key_number(j, "length", w->libs.n);
	COLUMN(j, "lib", w->libs.n, i, json_number(j, i));
	COLUMN(j, "name", w->libs.n, i, json_number(j, w->lib_name[i]));
	same(j, "host", w->libs.n, json_null);
	COLUMN(j, "type", w->libs.n, i, json_number(j, RESOURCE_LIBRARY));
	json_close(j, '{');

	json_key(j, "funcTable");
	json_open(j, '{');
	key_number(j, "length", w->nfunctions);
	COLUMN(j, "name", w->nfunctions, i, json_number(j, w->functions[i].name));
	same(j, "isJS", w->nfunctions, put_false);
	same(j, "relevantForJS", w->nfunctions, put_false);
	COLUMN(j, "resource", w->nfunctions, i, json_number(j, w->functions[i].lib));
	COLUMN(j, "source", w->nfunctions, i, index_or_null(j, w->functions[i].source));
	same(j, "lineNumber", w->nfunctions, json_null);
	same(j, "columnNumber", w->nfunctions, json_null);
	json_close(j, '{');

	json_key(j, "nativeSymbols");
	json_open(j, '{');
	key_number(j, "length", 0);
	same(j, "libIndex", 0, json_null);
	same(j, "address", 0, json_null);
	same(j, "name", 0, json_null);
	same(j, "functionSize", 0, json_null);
	json_close(j, '{');

	json_key(j, "frameTable");
	json_open(j, '{');
	key_number(j, "length", nframes);
	COLUMN(j, "address", nframes, i, json_real(j, -1));
	same(j, "inlineDepth", nframes, put_zero);
	COLUMN(j, "category", nframes, i, json_number(j, category(w, i)));
	same(j, "subcategory", nframes, put_zero);
	COLUMN(j, "func", nframes, i, json_number(j, w->func_of[i % n]));
	same(j, "nativeSymbol", nframes, json_null);
	same(j, "innerWindowID", nframes, json_null);
	COLUMN(j, "line", nframes, i, index_or_null(j, w->t->w->locations[i % n].line ?: NONE));
	same(j, "column", nframes, json_null);
	json_close(j, '{');

	json_key(j, "stackTable");
	json_open(j, '{');
	key_number(j, "length", w->nnodes);
	COLUMN(j, "frame", w->nnodes, i, json_number(j, w->nodes[i].frame));
	COLUMN(j, "prefix", w->nnodes, i, index_or_null(j, w->nodes[i].prefix));
	json_close(j, '{');
	json_close(j, '{');
}

static void put_samples(struct writer *w, const struct timeline_thread *th)
{
	const struct window_event **ev = w->t->events + th->first;
	const struct window *win = w->t->w;
	struct json *j = &w->j;

	json_key(j, "samples");
	json_open(j, '{');
	key_number(j, "length", th->n);
	key_text(j, "weightType", "tracing-ms");
	COLUMN(j, "stack", th->n, i,
	       index_or_null(j, w->node_of[timeline_stack(win, ev[i]) +
					   (timeline_waited(win, ev[i]) ? win->nstacks : 0)]));
	COLUMN(j, "time", th->n, i,
	       json_millis(j, MAX(ev[i]->time_ns, win->start_ns) - win->start_ns));
	COLUMN(j, "weight", th->n, i, json_millis(j, ev[i]->ns));
	COLUMN(j, "threadCPUDelta", th->n, i,
	       json_number(j, timeline_waited(win, ev[i]) ? 0 : ev[i]->ns));
	json_close(j, '{');
}

static void put_wait(struct writer *w, const struct timeline_thread *th,
		     const struct window_event *ev)
{
	const struct label_set *l = timeline_labels(w->t->w, ev);
	struct json *j = &w->j;

	json_open(j, '{');
	key_text(j, "type", "Wait");
	key_text(j, "what", timeline_label(l, "wait") ?: "");
	key_text(j, "state", timeline_label(l, "thread.state") ?: "");
	json_key(j, "cause");
	json_open(j, '{');
	key_number(j, "tid", th->tid);
	json_key(j, "time");
	json_millis(j, timeline_begin(w->t->w, ev) - w->t->w->start_ns);
	json_key(j, "stack");
	index_or_null(j, w->node_of[timeline_stack(w->t->w, ev) + w->t->w->nstacks]);
	json_close(j, '{');
	json_close(j, '{');
}

static int put_markers(struct writer *w, const struct timeline_thread *th, u32 name)
{
	_cleanup_free_ const struct window_event **ev = calloc(th->n + 1, sizeof(*ev));
	const struct window *win = w->t->w;
	struct json *j = &w->j;
	u32 i, n = 0;

	if (!ev)
		return -ENOMEM;
	for (i = 0; i < th->n; i++)
		if (timeline_waited(win, w->t->events[th->first + i]))
			ev[n++] = w->t->events[th->first + i];
	json_key(j, "markers");
	json_open(j, '{');
	key_number(j, "length", n);
	COLUMN(j, "name", n, k, json_number(j, name));
	COLUMN(j, "startTime", n, k, json_millis(j, timeline_begin(win, ev[k]) - win->start_ns));
	COLUMN(j, "endTime", n, k,
	       json_millis(j, MAX(ev[k]->time_ns, win->start_ns) - win->start_ns));
	COLUMN(j, "phase", n, k, json_number(j, PHASE_INTERVAL));
	COLUMN(j, "category", n, k, json_number(j, WAITING));
	COLUMN(j, "data", n, k, put_wait(w, th, ev[k]));
	json_close(j, '{');
	return 0;
}

static int put_thread(struct writer *w, const struct timeline_thread *th, u32 wait_name)
{
	struct json *j = &w->j;
	char pid[16];
	int err;

	snprintf(pid, sizeof(pid), "%u", th->pid);
	json_open(j, '{');
	key_text(j, "name", th->labels->thread);
	key_text(j, "processName", th->labels->exe);
	key_text(j, "processType", "default");
	key_text(j, "pid", pid);
	key_number(j, "tid", th->tid);
	key_bool(j, "isMainThread", th->pid == th->tid);
	key_number(j, "processStartupTime", 0);
	json_key(j, "processShutdownTime");
	json_null(j);
	key_number(j, "registerTime", 0);
	json_key(j, "unregisterTime");
	json_null(j);
	same(j, "pausedRanges", 0, json_null);
	put_samples(w, th);
	err = put_markers(w, th, wait_name);
	json_close(j, '{');
	return err;
}

static int put_profile(struct writer *w)
{
	struct json *j = &w->j;
	u32 i, wait_name;
	int err = 0;

	wait_name = string(w, "Wait", &err);
	json_open(j, '{');
	put_meta(w);
	put_libs(w);
	put_tables(w);
	json_key(j, "threads");
	json_open(j, '[');
	for (i = 0; i < w->t->nthreads && !err; i++)
		err = put_thread(w, &w->t->threads[i], wait_name);
	json_close(j, '[');
	json_close(j, '{');
	return err;
}

int timeline_write_firefox(const struct timeline *t)
{
	struct writer w = { .t = t };
	u32 n = t->w->nlocations + 1;
	int err;

	w.lib_name = calloc(n, sizeof(u32));
	w.source_name = calloc(n, sizeof(u32));
	w.func_of = calloc(n, sizeof(u32));
	w.node_of = calloc(2 * (size_t)t->w->nstacks + 1, sizeof(u32));
	err = w.lib_name && w.source_name && w.func_of && w.node_of ? add_all(&w) : -ENOMEM;
	if (!err)
		err = json_init(&w.j);
	if (!err) {
		err = put_profile(&w);
		if (!err)
			err = json_finish(&w.j);
		if (!err)
			fwrite(w.j.data, 1, w.j.len, t->out);
		json_fini(&w.j);
	}
	free(w.lib_name);
	free(w.source_name);
	free(w.func_of);
	free(w.node_of);
	free(w.functions);
	free(w.nodes);
	htab_fini(&w.by_function);
	htab_fini(&w.by_node);
	strtab_fini(&w.strings);
	strtab_fini(&w.libs);
	strtab_fini(&w.sources);
	return err;
}
