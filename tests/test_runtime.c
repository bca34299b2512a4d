// SPDX-License-Identifier: Apache-2.0
/*
 * The book of runtimes, with an unwinder of our own over processes of our own (fake_runtime.h).
 */
#include "fake_runtime.h"

#include "core/stat.h"

/* --- detection ---------------------------------------------------------------------------------- */

static void a_runtime_is_found_and_armed(void **state __unused)
{
	struct runtime_info info;
	struct process *p;
	char text[128];
	WORLD(w);

	new_interpreter(10, 2, 3);
	p = start(&w, 10, "/bin/lang", NULL);
	assert_null(runtime_of(p));
	info = info_of(look(&w, p));
	assert_ptr_equal(info.found->unwinder, &lang);
	assert_int_equal(info.found->verdict, UNWIND_OK);
	assert_int_equal(info.found->version.minor, 3);
	assert_string_equal(info.found->word, "testlang");
	assert_int_equal(info.found->nloops, 1);
	assert_true(info.armed);
	assert_non_null(armed(&w, 10));
	assert_int_equal(armed(&w, 10)->start_ns, 5010);
	assert_int_equal(armed(&w, 10)->exec_id, 1);
	assert_int_equal(armed(&w, 10)->gen, info.gen);
	assert_int_not_equal(info.gen, 0);
	assert_int_equal(armed(&w, 10)->recipe.addr, MEMORY_AT);
	runtime_found_text(info.found, text, sizeof(text));
	assert_string_equal(text, "Testlang 2.3.0: stacks can be taken");
	world_fini(&w);
}

static void files_without_a_runtime_are_looked_at_once(void **state __unused)
{
	struct memory *a, *b, *c;
	WORLD(w);

	a = new_memory(10);
	b = new_memory(11);
	c = new_memory(12);
	assert_null(look(&w, start(&w, 10, "/bin/sh", "/lib/libc.so")));
	assert_int_equal(a->opened, 1);
	assert_null(look(&w, start(&w, 11, "/bin/sh", "/lib/libc.so")));
	assert_int_equal(b->opened, 0);
	/* One file that is new. */
	assert_null(look(&w, start(&w, 12, "/bin/sh", "/lib/other.so")));
	assert_int_equal(c->opened, 1);
	world_fini(&w);
}

static void a_library_that_comes_later_is_seen(void **state __unused)
{
	struct process *p;
	struct memory *m;
	WORLD(w);

	m = new_memory(10);
	p = start(&w, 10, "/bin/app", NULL);
	assert_null(look(&w, p));
	m->words[W_MAGIC] = MAGIC;
	m->words[W_VERSION] = 2 << 16;
	m->words[W_READY] = 1;
	m->words[W_PROOF] = PROOF;
	assert_null(look(&w, p)); /* nothing has changed that could be seen */
	event(&w, TASK_MMAP, 10, 0, "/lib/liblang.so");
	assert_null(look(&w, p)); /* at most once a second */
	pass(&w, 1.1);
	assert_non_null(look(&w, p));
	world_fini(&w);
}

static void a_version_outside_is_refused_for_good(void **state __unused)
{
	u64 before = stat_get(STAT_runtime_refused);
	struct runtime_info info;
	struct process *p;
	char text[128];
	WORLD(w);

	new_interpreter(10, 2, 6);
	p = start(&w, 10, "/bin/lang", NULL);
	info = info_of(look(&w, p));
	assert_int_equal(info.found->verdict, UNWIND_VERSION);
	assert_null(armed(&w, 10));
	runtime_found_text(info.found, text, sizeof(text));
	assert_string_equal(text, "Testlang 2.6.0: this version is not supported");
	pass(&w, 100000);
	look(&w, p);
	assert_int_equal(detections, 1);
	assert_int_equal(stat_get(STAT_runtime_refused) - before, 1);
	world_fini(&w);
}

static void a_layout_file_adds_a_version(void **state __unused)
{
	char text[] = "[2.6]\nstart = 0x40\n", err[256];
	struct runtime_info info;
	WORLD(w);

	assert_int_equal(layouts_parse("t", text, &lang, &w.layouts, err, sizeof(err)), 0);
	new_interpreter(10, 2, 6);
	info = info_of(look(&w, start(&w, 10, "/bin/lang", NULL)));
	assert_int_equal(info.found->verdict, UNWIND_OK);
	assert_string_equal(info.found->word, "testlang");
	assert_int_equal(armed(&w, 10)->recipe.addr, MEMORY_AT + 0x40);
	world_fini(&w);
}

static void words_of_the_configuration_switch_versions(void **state __unused)
{
	char text[128];
	WORLD(w);

	w.off = "testlang_old";
	new_interpreter(10, 1, 4);
	new_interpreter(11, 2, 0);
	assert_int_equal(info_of(look(&w, start(&w, 10, "/bin/lang1", NULL))).found->verdict,
			 UNWIND_OFF);
	runtime_found_text(info_of(runtime_of(image(&w, 10, 1))).found, text, sizeof(text));
	assert_string_equal(
		text, "Testlang 1.4.0: switched off in the configuration, word 'testlang_old'");
	assert_int_equal(info_of(look(&w, start(&w, 11, "/bin/lang2", NULL))).found->verdict,
			 UNWIND_OK);
	world_fini(&w);
}

static void who_is_not_ready_is_asked_again_ever_later(void **state __unused)
{
	struct process *p;
	struct memory *m;
	WORLD(w);

	m = new_interpreter(10, 2, 0);
	m->words[W_READY] = 0;
	p = start(&w, 10, "/bin/lang", NULL);
	look(&w, p);
	assert_int_equal(detections, 1);
	look(&w, p);
	assert_int_equal(detections, 1);
	pass(&w, 0.11);
	look(&w, p);
	assert_int_equal(detections, 2);
	pass(&w, 0.5);
	look(&w, p);
	assert_int_equal(detections, 2);
	pass(&w, 0.6);
	look(&w, p);
	assert_int_equal(detections, 3);
	m->words[W_READY] = 1;
	pass(&w, 9);
	look(&w, p);
	assert_int_equal(detections, 3);
	assert_null(armed(&w, 10));
	pass(&w, 1.1);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	world_fini(&w);
}

static void a_failed_proof_refuses(void **state __unused)
{
	struct process *p;
	struct memory *m;
	u32 i;
	WORLD(w);

	m = new_interpreter(10, 2, 0);
	m->words[W_PROOF] = 1;
	p = start(&w, 10, "/bin/lang", NULL);
	assert_int_equal(info_of(look(&w, p)).found->verdict, UNWIND_BAD_LAYOUT);
	assert_null(armed(&w, 10));
	/* It runs while it is looked at: a few more times, then it is believed. */
	for (i = 0; i < 20; i++) {
		pass(&w, 100);
		look(&w, p);
	}
	assert_true(detections > 1 && detections < 6);
	world_fini(&w);
}

static void a_recipe_that_makes_no_sense_refuses(void **state __unused)
{
	WORLD(w);

	lang_head = RECIPE_JIT_FP + 1;
	new_interpreter(10, 2, 0);
	assert_int_equal(info_of(look(&w, start(&w, 10, "/bin/lang", NULL))).found->verdict,
			 UNWIND_BAD_LAYOUT);
	world_fini(&w);
}

static void a_process_that_is_gone_is_no_runtime(void **state __unused)
{
	WORLD(w);

	assert_null(look(&w, start(&w, 10, "/bin/lang", NULL)));
	world_fini(&w);
}

/* --- life of a process -------------------------------------------------------------------------- */

static void a_forked_child_is_proven_not_detected(void **state __unused)
{
	struct process *child;
	WORLD(w);

	new_interpreter(10, 2, 0);
	look(&w, start(&w, 10, "/bin/lang", NULL));
	assert_int_equal(detections, 1);
	new_interpreter(11, 2, 0);
	event(&w, TASK_FORK, 11, 10, NULL);
	child = image(&w, 11, 0);
	assert_int_equal(info_of(look(&w, child)).found->verdict, UNWIND_OK);
	assert_int_equal(detections, 1);
	assert_non_null(armed(&w, 11));
	assert_int_not_equal(armed(&w, 11)->gen, armed(&w, 10)->gen);
	world_fini(&w);
}

static void a_child_that_fails_its_parents_proof_is_detected(void **state __unused)
{
	struct memory *m;
	WORLD(w);

	new_interpreter(10, 2, 0);
	look(&w, start(&w, 10, "/bin/lang", NULL));
	m = new_interpreter(11, 2, 1);
	m->words[W_PROOF] = 0;
	event(&w, TASK_FORK, 11, 10, NULL);
	look(&w, image(&w, 11, 0));
	assert_int_equal(detections, 2);
	assert_null(armed(&w, 11));
	world_fini(&w);
}

static void an_exec_begins_anew(void **state __unused)
{
	struct process *old, *young;
	u32 gen;
	WORLD(w);

	new_interpreter(10, 2, 0);
	old = start(&w, 10, "/bin/lang", NULL);
	look(&w, old);
	gen = armed(&w, 10)->gen;
	event(&w, TASK_EXEC, 10, 0, NULL);
	event(&w, TASK_MMAP, 10, 0, "/bin/lang");
	young = image(&w, 10, 2);
	assert_ptr_not_equal(young, old);
	assert_null(runtime_of(young));
	look(&w, young);
	assert_int_equal(armed(&w, 10)->exec_id, 2);
	assert_true(armed(&w, 10)->gen > gen);
	/* The old image goes; what stands under the pid is the young one's. */
	processes_trim(w.procs, 20 * NSEC_PER_SEC);
	world_fini(&w);
}

static void recipes_that_nobody_asks_for_make_room(void **state __unused)
{
	struct process *a, *b, *c;
	WORLD(w);

	w.room = 2;
	new_interpreter(10, 2, 0);
	new_interpreter(11, 2, 0);
	new_interpreter(12, 2, 0);
	a = start(&w, 10, "/bin/lang", NULL);
	b = start(&w, 11, "/bin/lang", NULL);
	c = start(&w, 12, "/bin/lang", NULL);
	look(&w, a);
	pass(&w, 1);
	look(&w, b);
	look(&w, c);
	assert_null(armed(&w, 12)); /* both others are in use */
	pass(&w, 61);
	runtimes_want(w.rs, b);
	look(&w, c);
	assert_non_null(armed(&w, 12));
	assert_null(armed(&w, 10));
	assert_non_null(armed(&w, 11));
	world_fini(&w);
}

static void heads_are_told_by_thread_and_taken_back(void **state __unused)
{
	struct process *p;
	struct memory *m;
	WORLD(w);

	lang_head = RECIPE_TID;
	m = new_interpreter(10, 2, 0);
	m->words[W_HEADS] = 0xb; /* 100, 101, 103 */
	p = start(&w, 10, "/bin/lang", NULL);
	look(&w, p);
	assert_int_equal(w.heads[0], 0x5000);
	assert_int_equal(w.heads[1], 0x5001);
	assert_int_equal(w.heads[3], 0); /* no such thread */
	assert_int_equal(runtime_head(runtime_of(p), 1001), 0x5001);
	m->words[W_HEADS] = 0x6; /* 101, 102 */
	pass(&w, 0.5);
	runtimes_round(w.rs, w.now);
	assert_int_equal(w.heads[2], 0);
	pass(&w, 0.6);
	runtimes_round(w.rs, w.now);
	assert_int_equal(w.heads[0], 0);
	assert_int_equal(w.heads[1], 0x5001);
	assert_int_equal(w.heads[2], 0x5002);
	world_fini(&w);
	assert_int_equal(w.heads[1], 0);
	assert_int_equal(w.heads[2], 0);
}

/* --- names -------------------------------------------------------------------------------------- */

static struct runtime *interpreter(struct world *w, struct memory **m)
{
	*m = new_interpreter(10, 2, 0);
	put_object(*m, 0, "outer");
	put_object(*m, 1, "inner");
	return look(w, start(w, 10, "/bin/lang", NULL));
}

static void names_are_read_once(void **state __unused)
{
	const u64 words[] = { word_at(W_OBJECT + 1), word_at(W_TEXT + 4), 2, 0,
			      word_at(W_OBJECT),     word_at(W_TEXT) };
	struct runtime *r;
	struct memory *m;
	u32 i;
	WORLD(w);

	r = interpreter(&w, &m);
	for (i = 0; i < 3; i++) {
		assert_int_equal(frames_of(&w, r, words, 3, LIST_END_NULL), UNWIND_OK);
		assert_int_equal(out.n, 2);
		assert_string_equal(out.frames[0].func, "inner");
		assert_string_equal(out.frames[1].func, "outer");
		assert_string_equal(out.frames[1].file, "file.lang");
		assert_int_equal(out.frames[1].line, (u32)word_at(W_OBJECT));
		assert_int_equal(out.nsegments, 1);
		assert_int_equal(out.segment[0], 1);
		assert_false(out.cut);
		m->reads_left = 1; /* one more is a surprise; then it would hang */
	}
	assert_int_equal(m->reads_left, 1);
	assert_int_equal(info_of(r).lists[UNWIND_OK], 3);
	world_fini(&w);
}

static void known_names_outlive_the_process(void **state __unused)
{
	const u64 words[] = { word_at(W_OBJECT), word_at(W_TEXT), word_at(W_OBJECT + 1),
			      word_at(W_TEXT + 4) };
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_NULL), UNWIND_OK);
	pass(&w, 100); /* the memory is closed meanwhile, and cannot be opened again */
	runtimes_round(w.rs, w.now);
	m->pid = 99;
	assert_int_equal(frames_of(&w, r, words, 2, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "outer");
	assert_int_equal(out.n, 2);
	assert_true(out.frames[1].flags & FRAME_GONE);
	world_fini(&w);
}

static void another_object_at_the_same_address_is_noticed(void **state __unused)
{
	const u64 before[] = { word_at(W_OBJECT), word_at(W_TEXT) };
	const u64 after[] = { word_at(W_OBJECT), word_at(W_TEXT + 4) };
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	assert_int_equal(frames_of(&w, r, before, 1, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "outer");
	/* A list of another object that lived there, and is gone again. */
	assert_int_equal(frames_of(&w, r, after, 1, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "[gone]");
	assert_true(out.frames[0].flags & FRAME_GONE);
	m->words[W_OBJECT] = word_at(W_TEXT + 4);
	assert_int_equal(frames_of(&w, r, after, 1, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "inner");
	world_fini(&w);
}

static void text_comes_out_clean_and_bounded(void **state __unused)
{
	const u64 words[] = { word_at(W_OBJECT), word_at(W_TEXT) };
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	strcpy((char *)&m->words[W_TEXT], "a\x1b[31m\xff"
					  "b");
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "a?[31m\xef\xbf\xbd"
						"b");
	world_fini(&w);
}

static void cut_lists_are_kept_and_marked(void **state __unused)
{
	const u64 words[] = { word_at(W_OBJECT), word_at(W_TEXT) };
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_LIMIT), UNWIND_OK);
	assert_true(out.cut);
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_UNREADABLE), UNWIND_OK);
	assert_true(out.cut);
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_END), UNWIND_OK);
	assert_false(out.cut);
	world_fini(&w);
}

static void refused_lists_have_no_frames_and_are_counted(void **state __unused)
{
	const u64 torn[] = { word_at(W_OBJECT), word_at(W_TEXT), 0, 0 };
	u64 before = stat_get(STAT_runtime_torn), stale = stat_get(STAT_runtime_stale);
	struct list other = { .words = torn, .n = 2, .width = 2 };
	struct runtimes_figures figures;
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	assert_int_equal(frames_of(&w, r, torn, 2, LIST_END_NULL), UNWIND_TORN);
	assert_int_equal(out.n, 0);
	assert_int_equal(frames_of(&w, r, torn, 1, LIST_END_MOVED), UNWIND_TORN);
	assert_int_equal(frames_of(&w, r, torn, 0, LIST_END_UNREADABLE), UNWIND_FAULT);
	assert_int_equal(frames_of(&w, r, torn, 0, LIST_END_EMPTY), UNWIND_IDLE);
	assert_int_equal(frames_of(&w, r, torn, 0, LIST_END_NO_HEAD), UNWIND_IDLE);
	/* Another recipe's list, by number or by width. */
	assert_int_equal(runtime_frames(w.rs, r, info_of(r).gen + 1, &other, &out), UNWIND_TORN);
	other.width = 3;
	assert_int_equal(runtime_frames(w.rs, r, info_of(r).gen, &other, &out), UNWIND_TORN);
	assert_int_equal(info_of(r).lists[UNWIND_TORN], 3);
	assert_int_equal(info_of(r).lists[UNWIND_IDLE], 2);
	assert_int_equal(stat_get(STAT_runtime_torn) - before, 4);
	assert_int_equal(stat_get(STAT_runtime_stale) - stale, 1);
	runtimes_figures(w.rs, &figures);
	assert_int_equal(figures.lists[unwinder_index(&lang)][UNWIND_TORN], 3);
	world_fini(&w);
}

static void addresses_made_at_run_time_are_named(void **state __unused)
{
	struct runtime *r;
	struct memory *m;
	WORLD(w);

	r = interpreter(&w, &m);
	assert_int_equal(runtime_resolve(w.rs, r, 0x7000, &out), UNWIND_OK);
	assert_int_equal(out.n, 1);
	assert_string_equal(out.frames[0].func, "jitted");
	world_fini(&w);
}

/* --- bounds ------------------------------------------------------------------------------------- */

struct evicted {
	struct frame_names *other;
	u32 calls;
};

static void evict_other(void *arg, const struct frame_names *keep)
{
	struct evicted *e = arg;

	assert_ptr_not_equal(keep, e->other);
	e->calls++;
	frame_names_clear(e->other);
}

static u32 push_named(struct frame_names *names, u64 first, u32 n)
{
	struct frames f;
	u32 i, known = 0;

	frames_begin(&f, names, &out);
	for (i = 0; i < n; i++) {
		struct frame_key key = { .object = first + i };
		char name[64];

		snprintf(name, sizeof(name), "generated_function_%llu",
			 (unsigned long long)first + i);
		if (frames_push(&f, &key, 0))
			known++;
		else
			frames_name(&f, name, "f", 1);
	}
	frames_end(&f);
	return known;
}

static void names_are_bounded_over_all_images(void **state __unused)
{
	struct frame_names_total total = { .max = 100000 };
	struct frame_names *a = frame_names_new(&total), *b = frame_names_new(&total);
	struct evicted e = { .other = a };
	u32 i;

	for (i = 0; !frame_names_full(a); i++)
		push_named(a, i * 100, 100);
	assert_true(total.bytes <= total.max);
	assert_true(i > 3);
	assert_string_equal(out.frames[99].func, "[too many names]");
	assert_int_equal(push_named(b, 0, 1), 0);
	assert_string_equal(out.frames[0].func, "[too many names]");
	/* Least recently used ones give way; what was known stays known to others. */
	total.evict = evict_other;
	total.arg = &e;
	frame_names_clear(b);
	push_named(b, 0, 100);
	assert_int_equal(e.calls, 1);
	assert_int_equal(frame_names_bytes(a), 0);
	assert_string_equal(out.frames[99].func, "generated_function_99");
	assert_int_equal(push_named(b, 0, 100), 100);
	frame_names_free(a);
	frame_names_free(b);
	assert_int_equal(total.bytes, 0);
}

static void a_million_names_end_in_a_mark(void **state __unused)
{
	struct frame_names_total total = { .max = FRAME_NAMES_BYTES };
	struct frame_names *names = frame_names_new(&total);
	u32 i;

	for (i = 0; i < 1000000; i += 250)
		push_named(names, i, 250);
	assert_int_equal(frame_names_count(names), FRAME_KEYS_MAX);
	assert_true(frame_names_bytes(names) <= FRAME_NAMES_BYTES);
	assert_string_equal(out.frames[0].func, "[too many names]");
	assert_int_equal(out.n, 250);
	/* Those that came first are still known. */
	assert_int_equal(push_named(names, 0, 250), 250);
	frame_names_free(names);
}

static void more_frames_than_fit_are_cut(void **state __unused)
{
	struct frame_names_total total = { .max = FRAME_NAMES_BYTES };
	struct frame_names *names = frame_names_new(&total);

	push_named(names, 0, RUNTIME_FRAMES_MAX);
	assert_false(out.cut);
	push_named(names, 0, RUNTIME_FRAMES_MAX + 1);
	assert_true(out.cut);
	assert_int_equal(out.n, RUNTIME_FRAMES_MAX);
	frame_names_free(names);
}

static void a_frame_without_a_name_is_still_a_frame(void **state __unused)
{
	struct frame_names_total total = { .max = FRAME_NAMES_BYTES };
	struct frame_names *names = frame_names_new(&total);
	struct frame_key key = { .object = 1 };
	struct frames f;

	frames_begin(&f, names, &out);
	assert_false(frames_push(&f, &key, FRAME_C));
	key.object = 2;
	assert_false(frames_push(&f, &key, 0));
	frames_name(&f, "", NULL, 0);
	frames_name(&f, "not asked for", NULL, 0);
	frames_boundary(&f);
	frames_mark(&f, "(collecting)");
	frames_switch(&f);
	key.object = 3;
	assert_false(frames_push(&f, &key, 0));
	frames_end(&f);
	assert_int_equal(out.n, 4);
	assert_string_equal(out.frames[0].func, "[unknown]");
	assert_int_equal(out.frames[0].flags, FRAME_C);
	assert_string_equal(out.frames[1].func, "[unknown]");
	assert_string_equal(out.frames[2].func, "(collecting)");
	assert_string_equal(out.frames[3].func, "[unknown]");
	assert_int_equal(out.nsegments, 2);
	assert_int_equal(out.segment[0], 2);
	assert_int_equal(out.segment[1], 3);
	assert_int_equal(out.switched, 2);
	frame_names_free(names);
}

static void reads_for_names_are_rationed(void **state __unused)
{
	struct runtime *r;
	struct memory *m;
	u64 words[2];
	u32 i, named = 0;
	WORLD(w);

	r = interpreter(&w, &m);
	/* Each list has a new object: the process makes them faster than anyone can use them. */
	for (i = 0; i < 60000; i++) {
		words[0] = word_at(W_OBJECT);
		words[1] = word_at(W_TEXT) + i % 8 + (u64)i * 0x10000;
		frames_of(&w, r, words, 1, LIST_END_NULL);
		named += strcmp(out.frames[0].func, "[too many names]") != 0;
	}
	assert_true(named >= 15000 && named < 25000);
	pass(&w, 10);
	words[1] = word_at(W_TEXT);
	assert_int_equal(frames_of(&w, r, words, 1, LIST_END_NULL), UNWIND_OK);
	assert_string_equal(out.frames[0].func, "outer");
	world_fini(&w);
}

static void fail_often(struct world *w, struct runtime *r)
{
	const u64 torn[] = { 0, 0 };
	u32 i;

	for (i = 0; i < 128; i++)
		frames_of(w, r, torn, 1, LIST_END_NULL);
}

static void who_keeps_failing_is_left_alone_ever_longer(void **state __unused)
{
	const u64 good[] = { word_at(W_OBJECT), word_at(W_TEXT) };
	struct process *p;
	struct runtime *r;
	struct memory *m;
	u32 i;
	WORLD(w);

	r = interpreter(&w, &m);
	p = image(&w, 10, 1);
	assert_non_null(armed(&w, 10));
	fail_often(&w, r);
	assert_null(armed(&w, 10));
	assert_true(info_of(r).left_alone);
	assert_null(runtime_target(w.rs, r));
	look(&w, p);
	assert_null(armed(&w, 10));
	pass(&w, 11);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	fail_often(&w, r);
	pass(&w, 11); /* twice as long now */
	look(&w, p);
	assert_null(armed(&w, 10));
	pass(&w, 10);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	/* Good ones in between make it forget. */
	for (i = 0; i < 128; i++)
		frames_of(&w, r, good, 1, LIST_END_NULL);
	fail_often(&w, r);
	pass(&w, 11);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	world_fini(&w);
}

static void some_torn_lists_are_no_reason_to_stop(void **state __unused)
{
	const u64 good[] = { word_at(W_OBJECT), word_at(W_TEXT) }, torn[] = { 0, 0 };
	struct runtime *r;
	struct memory *m;
	u32 i;
	WORLD(w);

	r = interpreter(&w, &m);
	for (i = 0; i < 2000; i++)
		frames_of(&w, r, i % 4 ? torn : good, 1, LIST_END_NULL);
	assert_non_null(armed(&w, 10));
	world_fini(&w);
}

static void a_read_that_hangs_costs_one_wait(void **state __unused)
{
	const u64 words[] = { word_at(W_OBJECT), word_at(W_TEXT) };
	struct process *p;
	struct runtime *r;
	struct memory *m;
	u32 opened;
	WORLD(w);

	r = interpreter(&w, &m);
	p = image(&w, 10, 1);
	m->reads_left = 0;
	frames_of(&w, r, words, 1, LIST_END_NULL);
	assert_true(info_of(r).left_alone);
	assert_null(armed(&w, 10));
	opened = m->opened;
	frames_of(&w, r, words, 1, LIST_END_NULL);
	look(&w, p);
	assert_int_equal(m->opened, opened);
	/* It still hangs when it is looked at again: longer now. */
	pass(&w, 11);
	look(&w, p);
	assert_int_equal(m->opened, opened + 1);
	assert_null(armed(&w, 10));
	m->reads_left = UINT32_MAX;
	pass(&w, 30);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	world_fini(&w);
}

static void a_process_that_hangs_while_detected_is_left_alone(void **state __unused)
{
	struct process *p;
	struct memory *m;
	WORLD(w);

	m = new_interpreter(10, 2, 0);
	m->reads_left = 1; /* detect reads once, the proof hangs */
	p = start(&w, 10, "/bin/lang", NULL);
	look(&w, p);
	assert_int_equal(m->opened, 1);
	look(&w, p);
	pass(&w, 0.5);
	look(&w, p);
	assert_int_equal(m->opened, 1);
	m->reads_left = UINT32_MAX;
	pass(&w, 20);
	look(&w, p);
	assert_non_null(armed(&w, 10));
	world_fini(&w);
}

/* --- layout files ------------------------------------------------------------------------------- */

static void layout_error(const char *text, const char *want)
{
	_cleanup_free_ char *copy = strdup(text);
	struct layouts *ls = NULL;
	char err[256] = "";

	assert_int_equal(layouts_parse("f", copy, &lang, &ls, err, sizeof(err)), -EINVAL);
	assert_null(ls);
	assert_string_equal(err, want);
}

static void layout_files_say_where_they_are_wrong(void **state __unused)
{
	layout_error("start = 1\n", "f:1: expected a section before the first field");
	layout_error("[2]\n", "f:1: '2' is no version: expected MAJOR.MINOR[.PATCH]");
	layout_error("[2.1.0.1]\n", "f:1: '2.1.0.1' is no version: expected MAJOR.MINOR[.PATCH]");
	layout_error("[2.1\n", "f:1: expected [MAJOR.MINOR] or [MAJOR.MINOR.PATCH]");
	layout_error("\n[2.1] ; a comment\n", "f:2: this section lacks the field 'start'");
	layout_error("[2.1]\nstop = 1\n", "f:2: unknown field 'stop'");
	layout_error("[2.1]\nstart\n", "f:2: expected FIELD = NUMBER");
	layout_error("[2.1]\nstart = 1x\n", "f:2: start = 1x: expected a number");
	layout_error("[2.1]\nstart = 99999999999\n", "f:2: start = 99999999999: expected a number");
	layout_error("[2.1]\nstart = 1\nstart = 2\n", "f:3: a second 'start' in this section");
	layout_error("[2.1]\nstart = 1\n[2.1]\nstart = 1\n", "f:3: a second section for 2.1");
	layout_error("[2.1]\nlike = 2.0\n",
		     "f:2: like = 2.0: there is no such section before this one");
	layout_error("[2.1]\nstart = 1\n[2.2]\nstart = 1\nlike = 2.1\n",
		     "f:5: like has to be the first line of its section");
}

static void layouts_are_found_by_patch_then_by_minor(void **state __unused)
{
	char text[] = "# rows\n[2.6]\nstart = -8\n[2.6.3]\nlike = 2.6\nstart = 0x10 # other\n"
		      "[2.7]\nlike = 2.6.3\n";
	struct layouts *ls = NULL;
	char err[256];

	assert_int_equal(layouts_parse("f", text, &lang, &ls, err, sizeof(err)), 0);
	assert_int_equal(layouts_find(ls, &(struct version){ 2, 6, 0 })[0], -8);
	assert_int_equal(layouts_find(ls, &(struct version){ 2, 6, 3 })[0], 16);
	assert_int_equal(layouts_find(ls, &(struct version){ 2, 7, 9 })[0], 16);
	assert_null(layouts_find(ls, &(struct version){ 2, 8, 0 }));
	layouts_free(ls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_runtime_is_found_and_armed),
		cmocka_unit_test(files_without_a_runtime_are_looked_at_once),
		cmocka_unit_test(a_library_that_comes_later_is_seen),
		cmocka_unit_test(a_version_outside_is_refused_for_good),
		cmocka_unit_test(a_layout_file_adds_a_version),
		cmocka_unit_test(words_of_the_configuration_switch_versions),
		cmocka_unit_test(who_is_not_ready_is_asked_again_ever_later),
		cmocka_unit_test(a_failed_proof_refuses),
		cmocka_unit_test(a_recipe_that_makes_no_sense_refuses),
		cmocka_unit_test(a_process_that_is_gone_is_no_runtime),
		cmocka_unit_test(a_forked_child_is_proven_not_detected),
		cmocka_unit_test(a_child_that_fails_its_parents_proof_is_detected),
		cmocka_unit_test(an_exec_begins_anew),
		cmocka_unit_test(recipes_that_nobody_asks_for_make_room),
		cmocka_unit_test(heads_are_told_by_thread_and_taken_back),
		cmocka_unit_test(names_are_read_once),
		cmocka_unit_test(known_names_outlive_the_process),
		cmocka_unit_test(another_object_at_the_same_address_is_noticed),
		cmocka_unit_test(text_comes_out_clean_and_bounded),
		cmocka_unit_test(cut_lists_are_kept_and_marked),
		cmocka_unit_test(refused_lists_have_no_frames_and_are_counted),
		cmocka_unit_test(addresses_made_at_run_time_are_named),
		cmocka_unit_test(names_are_bounded_over_all_images),
		cmocka_unit_test(a_million_names_end_in_a_mark),
		cmocka_unit_test(more_frames_than_fit_are_cut),
		cmocka_unit_test(a_frame_without_a_name_is_still_a_frame),
		cmocka_unit_test(reads_for_names_are_rationed),
		cmocka_unit_test(who_keeps_failing_is_left_alone_ever_longer),
		cmocka_unit_test(some_torn_lists_are_no_reason_to_stop),
		cmocka_unit_test(a_read_that_hangs_costs_one_wait),
		cmocka_unit_test(a_process_that_hangs_while_detected_is_left_alone),
		cmocka_unit_test(layout_files_say_where_they_are_wrong),
		cmocka_unit_test(layouts_are_found_by_patch_then_by_minor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
