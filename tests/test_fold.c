// SPDX-License-Identifier: Apache-2.0
/*
 * The fold room: what is kept once, what is kept apart, and what happens at the limits. Windows
 * are made by hand from samples; modules are real ones of this program's own file.
 */
#include "core/fold.h"
#include "core/module.h"
#include "core/stat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct frame FRAMES[] = {
	{ .kind = FRAME_KERNEL,
	  .address = 0xffffffff81000010,
	  .mapping = "[kernel.kallsyms]",
	  .func = "schedule",
	  .file = "vmlinux" },
	{ .kind = FRAME_ANON, .address = 0x7f0000001000, .mapping = "//anon" },
	{ .kind = FRAME_UNKNOWN, .address = 0x1234 },
};

static struct sample sample_of(const struct frame *frames, u32 n)
{
	return (struct sample){ .type = &sample_cpu,
				.service = "svc",
				.exe = "svc",
				.thread = "main",
				.pid = 42,
				.end = STACK_END_COMPLETE,
				.frames = frames,
				.nframes = n };
}

static struct sample sample_new(void)
{
	return sample_of(FRAMES, ARRAY_SIZE(FRAMES));
}

static struct fold_ref add(struct window *w, const struct sample *s)
{
	struct fold_ref ref = { UINT32_MAX, UINT32_MAX };

	assert_int_equal(fold_add(w, s, &ref), 0);
	return ref;
}

static void windowp(struct window **w)
{
	window_free(*w);
}

#define WINDOW(w) _cleanup_(windowp) struct window *w = window_new(1)

static void an_empty_window_has_nothing_and_frees(void **state)
{
	struct window *w = window_new(77);

	(void)state;
	assert_int_equal(w->start_ns, 77);
	assert_int_equal(w->nprofiles + w->nlocations + w->nstacks + w->nlabels + w->nframes, 0);
	window_free(w);
	window_free(NULL);
}

static void equal_samples_share_one_place(void **state)
{
	struct sample s = sample_new();
	struct fold_ref a, b;
	WINDOW(w);

	(void)state;
	a = add(w, &s);
	b = add(w, &s);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(w->nprofiles, 1);
	assert_int_equal(w->profiles[0].nsamples, 1);
	assert_int_equal(w->nstacks, 1);
	assert_int_equal(w->nlocations, 3);
	assert_int_equal(w->nframes, 3);
	assert_int_equal(w->profiles[0].samples[0].count, 0);
}

static void stacks_keep_the_order_of_frames(void **state)
{
	struct sample s = sample_new();
	const struct stack *st;
	WINDOW(w);
	u32 i;

	(void)state;
	add(w, &s);
	st = &w->stacks[w->profiles[0].samples[0].stack];
	assert_int_equal(st->n, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(w->locations[w->frames[st->first + i]].address, FRAMES[i].address);
}

static void text_is_copied(void **state)
{
	char service[] = "before", func[] = "f", thread[] = "t";
	struct frame f = { .kind = FRAME_KERNEL, .mapping = "m", .func = func };
	struct sample s = sample_of(&f, 1);
	WINDOW(w);

	(void)state;
	s.service = service;
	s.thread = thread;
	add(w, &s);
	service[0] = func[0] = thread[0] = '?';
	assert_string_equal(w->profiles[0].service, "before");
	assert_string_equal(w->locations[0].func, "f");
	assert_string_equal(w->labels[0].thread, "t");
	assert_ptr_equal(window_string(w, "before"), w->profiles[0].service);
}

/* Each of these differs from the first in exactly one field. */
static void a_location_is_distinct_by_each_field(void **state)
{
	static const struct frame f[] = {
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "m", .func = "f", .file = "k" },
		{ .kind = FRAME_ANON, .address = 1, .mapping = "m", .func = "f", .file = "k" },
		{ .kind = FRAME_KERNEL, .address = 2, .mapping = "m", .func = "f", .file = "k" },
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "n", .func = "f", .file = "k" },
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "m", .func = "g", .file = "k" },
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "m", .func = "f", .file = "l" },
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "m", .func = NULL, .file = "k" },
		{ .kind = FRAME_KERNEL, .address = 1, .mapping = "m", .func = "", .file = "k" },
	};
	struct sample s = sample_of(f, ARRAY_SIZE(f));
	WINDOW(w);

	(void)state;
	add(w, &s);
	add(w, &s);
	assert_int_equal(w->nlocations, ARRAY_SIZE(f));
}

/* Each span is another label set, up to a number of them; then stacks go without, and count. */
static void contexts_are_bounded(void **state __unused)
{
	u64 before = stat_get(STAT_contexts_dropped);
	struct sample s = sample_new();
	struct fold_ref ref, without;
	char span[32];
	WINDOW(w);
	u32 i;

	s.labels[s.nlabels++] = (struct sample_label){ "wait", "sleep" };
	without = add(w, &s);
	for (i = 0; i < WINDOW_MAX_CONTEXTS + 10; i++) {
		snprintf(span, sizeof(span), "%016x", i + 1);
		s.context[0] = (struct sample_label){ "span_id", span };
		s.ncontext = 1;
		ref = add(w, &s);
		if (i >= WINDOW_MAX_CONTEXTS)
			assert_int_equal(ref.sample, without.sample);
	}
	assert_int_equal(w->nlabels, WINDOW_MAX_CONTEXTS + 1);
	assert_int_equal(w->labels[1].nlabels, 2);
	assert_string_equal(w->labels[1].labels[0].value, "sleep");
	assert_string_equal(w->labels[1].labels[1].value, "0000000000000001");
	assert_int_equal(stat_get(STAT_contexts_dropped) - before, 10);
}

static void a_label_set_is_distinct_by_each_field(void **state)
{
	struct sample s[6];
	WINDOW(w);
	u32 i;

	(void)state;
	for (i = 0; i < 6; i++)
		s[i] = sample_new();
	s[1].exe = "other";
	s[2].cmdline = "svc --x";
	s[3].thread = "worker";
	s[4].pid = 43;
	s[5].cmdline = "";
	for (i = 0; i < 12; i++)
		add(w, &s[i % 6]);
	assert_int_equal(w->nlabels, 6);
	assert_int_equal(w->nstacks, 1);
	assert_int_equal(w->profiles[0].nsamples, 6);
	assert_null(w->labels[0].cmdline);
	assert_string_equal(w->labels[2].cmdline, "svc --x");
}

static void a_profile_is_a_service(void **state)
{
	struct sample a = sample_new(), b = sample_new();
	WINDOW(w);

	(void)state;
	b.service = "other";
	assert_int_equal(add(w, &a).profile, 0);
	assert_int_equal(add(w, &b).profile, 1);
	assert_int_equal(add(w, &a).profile, 0);
	assert_int_equal(w->nprofiles, 2);
	assert_int_equal(w->nstacks, 1);
}

static void a_profile_knows_its_container_unless_it_has_several(void **state)
{
	const char *one[IDENTITY_MAX] = { [IDENTITY_CONTAINER] = "0123" };
	const char *two[IDENTITY_MAX] = { [IDENTITY_CONTAINER] = "4567" };
	struct sample a = sample_new();
	WINDOW(w);

	(void)state;
	add(w, &a);
	assert_string_equal(w->profiles[0].container, "");
	a.service = "other";
	a.who = one;
	add(w, &a);
	a.thread = "b";
	add(w, &a);
	assert_string_equal(w->profiles[1].container, "0123");
	a.who = two;
	add(w, &a);
	assert_string_equal(w->profiles[1].container, "");
	a.who = one;
	add(w, &a);
	assert_string_equal(w->profiles[1].container, "");
	/* Same stack and thread in another container: another sample, of the same profile. */
	assert_int_equal(w->profiles[1].nsamples, 3);
	assert_int_equal(w->nidentities, 3);
}

static void equal_frames_with_another_end_are_another_stack(void **state)
{
	struct sample s = sample_new();
	WINDOW(w);

	(void)state;
	add(w, &s);
	s.end = STACK_END_CUT;
	add(w, &s);
	assert_int_equal(w->nstacks, 2);
	assert_int_equal(w->stacks[1].end, STACK_END_CUT);
	assert_int_equal(w->nlocations, 3);
}

static void a_prefix_is_another_stack(void **state)
{
	struct sample s = sample_new();
	WINDOW(w);

	(void)state;
	add(w, &s);
	s.nframes = 2;
	add(w, &s);
	assert_int_equal(w->nstacks, 2);
}

static void a_stack_without_frames_is_kept(void **state)
{
	struct sample s = sample_of(NULL, 0);
	struct fold_ref a, b;
	WINDOW(w);

	(void)state;
	a = add(w, &s);
	b = add(w, &s);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(w->stacks[0].n, 0);
}

static void counts_add_up_per_place_and_per_end(void **state)
{
	struct sample s = sample_new(), cut = sample_new();
	struct fold_ref a, b;
	WINDOW(w);

	(void)state;
	cut.end = STACK_END_CUT;
	a = add(w, &s);
	b = add(w, &cut);
	fold_count(w, a, 3, 300);
	fold_count(w, b, 5, 500);
	fold_count(w, a, 4, 400);
	assert_int_equal(w->profiles[0].samples[a.sample].count, 7);
	assert_int_equal(w->profiles[0].samples[a.sample].value_ns, 700);
	assert_int_equal(w->ends[STACK_END_COMPLETE], 7);
	assert_int_equal(w->ends[STACK_END_CUT], 5);
}

static void counts_saturate(void **state)
{
	struct sample s = sample_new();
	struct fold_ref a;
	WINDOW(w);

	(void)state;
	a = add(w, &s);
	fold_count(w, a, UINT64_MAX, UINT64_MAX - 1);
	fold_count(w, a, 2, 3);
	assert_true(w->profiles[0].samples[0].count == UINT64_MAX);
	assert_true(w->profiles[0].samples[0].value_ns == UINT64_MAX);
	assert_true(w->ends[STACK_END_COMPLETE] == UINT64_MAX);
}

/* 20 services of 500 stacks of 6 frames, as a busy host has them. */
static void places_stay_valid_while_the_window_grows(void **state)
{
	static struct fold_ref refs[10000];
	struct frame f[6] = { 0 };
	char service[16];
	WINDOW(w);
	u32 i, k;

	(void)state;
	for (i = 0; i < 10000; i++) {
		struct sample s = sample_of(f, ARRAY_SIZE(f));

		for (k = 0; k < ARRAY_SIZE(f); k++)
			f[k] = (struct frame){ .kind = FRAME_UNKNOWN, .address = i * 6 + k };
		snprintf(service, sizeof(service), "s%u", i % 20);
		s.service = service;
		refs[i] = add(w, &s);
		fold_count(w, refs[i], 1, 1);
	}
	assert_int_equal(w->nlocations, 60000);
	for (i = 0; i < 10000; i++)
		fold_count(w, refs[i], i, 0);
	for (i = 0; i < 10000; i++) {
		const struct profile_sample *s =
			&w->profiles[refs[i].profile].samples[refs[i].sample];
		const struct stack *st = &w->stacks[s->stack];

		assert_int_equal(s->count, i + 1);
		for (k = 0; k < 6; k++)
			assert_int_equal(w->locations[w->frames[st->first + k]].address, i * 6 + k);
	}
}

static void fill_text(struct window *w)
{
	size_t len = 1u << 20, i;
	_cleanup_free_ char *s = malloc(len);

	assert_non_null(s);
	memset(s, 'x', len);
	s[len - 1] = '\0';
	for (i = 0; i < 64; i++) {
		s[0] = (char)('A' + i);
		if (!window_string(w, s))
			return;
	}
}

static void full_of_text_is_e2big_and_shows_no_profile(void **state)
{
	struct sample s = sample_new();
	struct fold_ref ref = { 7, 7 };
	WINDOW(w);

	(void)state;
	fill_text(w);
	assert_null(window_string(w, "one more"));
	assert_int_equal(fold_add(w, &s, &ref), -E2BIG);
	assert_int_equal(w->nprofiles, 0);
	assert_int_equal(w->nstacks, 0);
	assert_int_equal(w->nframes, 0);
	assert_int_equal(ref.profile, 7);
}

static void full_of_profiles_is_e2big_and_known_places_still_work(void **state)
{
	struct sample s = sample_of(NULL, 0);
	struct fold_ref first, ref;
	char service[16];
	WINDOW(w);
	u32 i;

	(void)state;
	s.service = service;
	for (i = 0; i < WINDOW_MAX_PROFILES; i++) {
		snprintf(service, sizeof(service), "%u", i);
		ref = add(w, &s);
		if (!i)
			first = ref;
	}
	snprintf(service, sizeof(service), "more");
	assert_int_equal(fold_add(w, &s, &ref), -E2BIG);
	assert_int_equal(w->nprofiles, WINDOW_MAX_PROFILES);
	snprintf(service, sizeof(service), "0");
	ref = add(w, &s);
	assert_memory_equal(&ref, &first, sizeof(ref));
}

/* The frames behind the first one are never looked at. */
static void a_stack_over_the_pool_is_e2big(void **state)
{
	struct sample s = sample_of(FRAMES, WINDOW_MAX_FRAMES);
	struct fold_ref ref;
	WINDOW(w);

	(void)state;
	assert_int_equal(fold_add(w, &s, &ref), -E2BIG);
	assert_int_equal(w->nprofiles, 0);
	s.nframes = UINT32_MAX;
	assert_int_equal(fold_add(w, &s, &ref), -E2BIG);
}

/* Few stacks, shared by many label sets, are small here but not in a file. */
static void samples_stacks_are_bounded_even_when_shared(void **state)
{
	const u32 n = WINDOW_MAX_FRAMES / 8;
	_cleanup_free_ struct frame *f = calloc(n, sizeof(*f));
	struct sample s = sample_of(f, n);
	struct fold_ref ref;
	WINDOW(w);
	u32 i;

	(void)state;
	assert_non_null(f);
	/* One location: what is tested is the sum, not the pool. */
	for (i = 0; i < n; i++)
		f[i].kind = FRAME_UNKNOWN;
	for (s.pid = 0; s.pid < 8; s.pid++)
		add(w, &s);
	assert_int_equal(w->nstacks, 1);
	s.service = "new";
	assert_int_equal(fold_add(w, &s, &ref), -E2BIG);
	assert_int_equal(w->nprofiles, 1);
	assert_int_equal(w->profiles[0].nsamples, 8);
	s = sample_of(NULL, 0);
	s.service = "new";
	assert_int_equal(add(w, &s).profile, 1);
}

static struct module *own_module(struct modules *ms, const char *path)
{
	struct mapped_file file = { .path = path, .pid = (u32)getpid() };

	return modules_get(ms, &file);
}

static void the_window_keeps_modules_until_it_is_freed(void **state)
{
	struct modules *ms = modules_new(1 << 20);
	struct frame f = { .kind = FRAME_NATIVE, .address = 64 };
	struct sample s = sample_of(&f, 1);
	struct window *w = window_new(1);

	(void)state;
	f.module = own_module(ms, "/nowhere/file");
	assert_non_null(f.module);
	add(w, &s);
	add(w, &s);
	module_put(f.module);
	modules_settle(ms, now_monotonic() + NSEC_PER_SEC);
	modules_trim(ms, 0);
	assert_int_equal(modules_count(ms), 1);
	assert_ptr_equal(w->locations[0].module, f.module);
	window_free(w);
	modules_trim(ms, 0);
	assert_int_equal(modules_count(ms), 0);
	modules_free(ms);
}

static void equal_offsets_in_two_modules_are_two_locations(void **state)
{
	struct modules *ms = modules_new(1 << 20);
	struct frame f[2] = { { .kind = FRAME_NATIVE, .address = 64 },
			      { .kind = FRAME_NATIVE, .address = 64 } };
	struct sample s = sample_of(f, 2);
	struct window *w = window_new(1);

	(void)state;
	f[0].module = own_module(ms, "/nowhere/a");
	f[1].module = own_module(ms, "/nowhere/b");
	add(w, &s);
	module_put(f[0].module);
	module_put(f[1].module);
	assert_int_equal(w->nlocations, 2);
	window_free(w);
	modules_free(ms);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_window_has_nothing_and_frees),
		cmocka_unit_test(equal_samples_share_one_place),
		cmocka_unit_test(stacks_keep_the_order_of_frames),
		cmocka_unit_test(text_is_copied),
		cmocka_unit_test(a_location_is_distinct_by_each_field),
		cmocka_unit_test(contexts_are_bounded),
		cmocka_unit_test(a_label_set_is_distinct_by_each_field),
		cmocka_unit_test(a_profile_is_a_service),
		cmocka_unit_test(a_profile_knows_its_container_unless_it_has_several),
		cmocka_unit_test(equal_frames_with_another_end_are_another_stack),
		cmocka_unit_test(a_prefix_is_another_stack),
		cmocka_unit_test(a_stack_without_frames_is_kept),
		cmocka_unit_test(counts_add_up_per_place_and_per_end),
		cmocka_unit_test(counts_saturate),
		cmocka_unit_test(places_stay_valid_while_the_window_grows),
		cmocka_unit_test(full_of_text_is_e2big_and_shows_no_profile),
		cmocka_unit_test(full_of_profiles_is_e2big_and_known_places_still_work),
		cmocka_unit_test(a_stack_over_the_pool_is_e2big),
		cmocka_unit_test(samples_stacks_are_bounded_even_when_shared),
		cmocka_unit_test(the_window_keeps_modules_until_it_is_freed),
		cmocka_unit_test(equal_offsets_in_two_modules_are_two_locations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
