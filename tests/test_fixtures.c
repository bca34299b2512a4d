// SPDX-License-Identifier: Apache-2.0
/*
 * Recordings of real processes (tests/fixtures), walked without them: each gives what the runtime
 * itself said of its threads (the .frames file beside it); none lacks anything; and whatever is
 * changed in one, a walk ends in a verdict with bounded reads. Needs no privilege, runs anywhere.
 * With MUTATIONS=N in the environment, N mutations of each recording.
 */
#include "mutate.h"

#include "core/frames.h"
#include "core/listwalk.h"
#include "core/runtime.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#define FIXTURES  "tests/fixtures/*/*.tape"
#define MUTATIONS 150
#define CUTS      40

static glob_t fixtures;

static int find_fixtures(void **state __unused)
{
	return glob(FIXTURES, 0, NULL, &fixtures);
}

static int forget_fixtures(void **state __unused)
{
	globfree(&fixtures);
	return 0;
}

static struct target *open_fixture(const char *path)
{
	struct target *t = NULL;
	int err = target_tape_open(path, &t);

	if (err)
		fail_msg("%s: %s", path, strerror(-err));
	return t;
}

/* What the walk of a recording prints; owned. */
static char *walk(struct target *t, struct fixture_result *result)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(fixture_walk(t, target_tape_noted(t, "runtime"), out, result), 0);
	fclose(out);
	return text;
}

/* FILE.tape's FILE.frames; owned. */
static char *expected_of(const char *path)
{
	char name[512], *text;

	snprintf(name, sizeof(name), "%.*s.frames", (int)(strlen(path) - strlen(".tape")), path);
	if (read_file(name, 16 << 20, &text, NULL))
		fail_msg("%s cannot be read", name);
	return text;
}

/* The first line that differs, for people. */
static void compare(const char *path, const char *expected, const char *got)
{
	u32 line = 1;
	size_t from = 0, i;

	for (i = 0; expected[i] && expected[i] == got[i]; i++)
		if (expected[i] == '\n') {
			line++;
			from = i + 1;
		}
	if (expected[i] || got[i])
		fail_msg("%s, line %u: expected \"%.*s\", got \"%.*s\"", path, line,
			 (int)strcspn(expected + from, "\n"), expected + from,
			 (int)strcspn(got + from, "\n"), got + from);
}

static void each_recording_gives_what_the_runtime_said(void **state __unused)
{
	size_t i;

	assert_true(fixtures.gl_pathc > 0);
	for (i = 0; i < fixtures.gl_pathc; i++) {
		_cleanup_free_ char *expected = expected_of(fixtures.gl_pathv[i]), *got = NULL;
		struct target *t = open_fixture(fixtures.gl_pathv[i]);
		struct fixture_result result;
		char missing[512];

		got = walk(t, &result);
		if (target_tape_missing(t, missing, sizeof(missing)))
			fail_msg("%s: %s", fixtures.gl_pathv[i], missing);
		compare(fixtures.gl_pathv[i], expected, got);
		target_free(t);
	}
}

static void a_recording_says_what_it_is(void **state __unused)
{
	static const char *const keys[] = {
		"runtime", "version", "verdict", "date", "by", "started"
	};
	size_t i, k;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *t = open_fixture(fixtures.gl_pathv[i]);

		for (k = 0; k < ARRAY_SIZE(keys); k++)
			if (!target_tape_noted(t, keys[k]))
				fail_msg("%s has no note \"%s\"", fixtures.gl_pathv[i], keys[k]);
		target_free(t);
	}
}

/* Without a range of bytes the walk says where it was, and which field of what was read there. */
static void a_recording_that_lacks_bytes_names_address_and_field(void **state __unused)
{
	size_t i;
	u32 k;

	for (i = 0; i < fixtures.gl_pathc; i++)
		for (k = 0; k < CUTS; k++) {
			_cleanup_free_ char *text = NULL;
			struct target *t = open_fixture(fixtures.gl_pathv[i]);
			struct fixture_result result;
			unsigned long long at;
			char missing[512], *where;
			size_t asked, len;
			u64 addr;

			if (!target_tape_cut(t, k * 23, &addr, &len)) {
				target_free(t);
				break;
			}
			text = walk(t, &result);
			if (!target_tape_missing(t, missing, sizeof(missing)))
				fail_msg("%s: nobody misses %zu bytes at 0x%llx",
					 fixtures.gl_pathv[i], len, (unsigned long long)addr);
			assert_int_equal(sscanf(missing, "no %zu bytes at 0x%llx", &asked, &at), 2);
			assert_true(at < addr + len && at + asked > addr);
			where = strstr(missing, "read by ");
			assert_non_null(where);
			assert_null(strchr(where, '?'));
			target_free(t);
		}
}

/* --- lies -------------------------------------------------------------------------------------- */

static u64 random_next(u64 *h)
{
	*h = *h * 6364136223846793005ull + 1442695040888963407ull;
	return *h >> 33;
}

/* How many answers the walk of a mutant takes when nothing is changed. */
static u32 count_reads(struct target *tape, u32 first_thread, const char *field)
{
	struct mutant *mu = mutant_new(tape);
	u32 n;

	mu->first_thread = first_thread;
	mu->field = field;
	mutate_run(mu, target_tape_noted(tape, "runtime"), NULL);
	n = mu->reads;
	target_free(&mu->t);
	return n;
}

static u32 mutations_wanted(void)
{
	const char *n = getenv("MUTATIONS");

	return n ? (u32)atoi(n) : MUTATIONS;
}

/*
 * Every kind of lie, spread over all answers of the walk, some alone and some in company. The order
 * is the same in every run.
 */
static void no_lie_crashes_or_holds_up_a_walk(void **state __unused)
{
	u32 wanted = mutations_wanted(), k, c;
	size_t i;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *tape = open_fixture(fixtures.gl_pathv[i]);
		u64 h = i;
		u32 n = count_reads(tape, 0, NULL);

		for (k = 0; k < wanted; k++) {
			struct mutant *mu = mutant_new(tape);
			u32 company = k % 4 ? 1 : 1 + (u32)random_next(&h) % 8;

			mu->first_thread = k % 8 * 3;
			for (c = 0; c < company; c++)
				mutant_add(mu,
					   c ? (u32)random_next(&h) % MAX(n, 1)
					     : (u32)((u64)k * n / wanted),
					   (enum mutate)(1 + (k + c) % (MUTATE_KINDS - 1)), k & 1,
					   (u8)random_next(&h), (u32)random_next(&h));
			mutate_run(mu, target_tape_noted(tape, "runtime"), NULL);
			target_free(&mu->t);
		}
		target_free(tape);
	}
}

/*
 * Is the frame there, as it is or with less known of it: without its line or its place, as "?" or
 * as "[gone]"?
 */
static bool has_frame(const char *all, const char *line, size_t len)
{
	char wanted[4096];

	if (len == 7 && !memcmp(line, "\t[gone]", len))
		return true;
	snprintf(wanted, sizeof(wanted), "%.*s\n", (int)len, line);
	if (strstr(all, wanted)) /* a function in C has no place */
		return true;
	if (len > 3 && !memcmp(line + len - 3, ":0)", 3))
		wanted[len - 2] = '\0';
	else if (wanted[len - 1] != ')')
		strcpy(wanted + len, " (");
	return strstr(all, wanted + (wanted[1] == '?' ? 2 : 0));
}

/* A walk's text has no frame that another one has not. */
static void each_frame_is_one_of(const char *all, const char *text)
{
	const char *line, *end;

	for (line = text; *line; line = end + 1) {
		end = strchr(line, '\n');
		if (*line == '\t' && !has_frame(all, line, (size_t)(end - line)))
			fail_msg("a frame that was never there: %.*s", (int)(end - line), line);
	}
}

/*
 * One kind of lie, in as many as `most` of the answers that have `field` in their text (NULL: in any).
 * only_true_frames: what is still told of the process is nothing that it never had.
 */
static void lie(enum mutate kind, const char *field, u32 most, bool only_true_frames)
{
	size_t i;
	u32 k;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *tape = open_fixture(fixtures.gl_pathv[i]);
		_cleanup_free_ char *all = expected_of(fixtures.gl_pathv[i]);
		u32 n = count_reads(tape, 0, field), step = MAX(n / most, 1);

		for (k = 0; k < n; k += step) {
			_cleanup_free_ char *text = NULL;
			struct mutant *mu = mutant_new(tape);

			mu->field = field;
			mutant_add(mu, k, kind, true, (u8)k, k * 7);
			mutate_run(mu, target_tape_noted(tape, "runtime"), &text);
			if (only_true_frames)
				each_frame_is_one_of(all, text);
			target_free(&mu->t);
		}
		target_free(tape);
	}
}

static void a_list_that_leads_back_to_itself_ends(void **state __unused)
{
	lie(MUTATE_SELF, NULL, 40, false);
	lie(MUTATE_BACK, NULL, 40, false);
}

static void lengths_that_no_string_has_are_survived(void **state __unused)
{
	lie(MUTATE_ONES, NULL, 40, false);
	lie(MUTATE_NUMBER, NULL, 60, false);
}

static void text_that_is_no_utf8_and_has_no_end_is_shown_clean_and_short(void **state __unused)
{
	lie(MUTATE_TEXT, NULL, 60, false);
}

static void pointers_to_nothing_and_skew_ones_end_in_a_verdict(void **state __unused)
{
	lie(MUTATE_POINTER, NULL, 60, false);
	lie(MUTATE_SKEW, NULL, 40, false);
}

static void memory_that_cannot_be_read_makes_no_frames_that_never_were(void **state __unused)
{
	lie(MUTATE_FAIL, NULL, 60, true);
	lie(MUTATE_ZERO, NULL, 40, false);
}

/* Frames that a thread's heading is followed by. */
static u32 count_frames(const char *heading)
{
	const char *line = strchr(heading, '\n');
	u32 n;

	for (n = 0; line && line[1] == '\t'; n++)
		line = strchr(line + 1, '\n');
	return n;
}

/* Each thread that is told as whole has as many frames as the runtime said that it has. */
static void each_stack_is_whole_or_says_so(const char *all, const char *text)
{
	const char *line, *end;

	for (line = text; *line; line = end + 1) {
		char heading[64];
		const char *told;

		end = strchr(line, '\n');
		snprintf(heading, sizeof(heading), "%.*s\n", (int)(end - line), line);
		if (*line == '\t' || strchr(heading, '(') || strchr(heading, ':'))
			continue;
		told = strstr(all, heading);
		assert_non_null(told);
		if (count_frames(told) != count_frames(line))
			fail_msg("%s has %u frames, but is told with %u", heading,
				 count_frames(told), count_frames(line));
	}
}

/* Nodes that are not filled in yet, or are no more: their list is refused, cut or gone. */
static void a_list_that_is_being_changed_is_never_told_as_whole(void **state __unused)
{
	static const enum mutate kinds[] = { MUTATE_ZERO, MUTATE_FAIL };
	size_t i;
	u32 k;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *tape = open_fixture(fixtures.gl_pathv[i]);
		_cleanup_free_ char *all = expected_of(fixtures.gl_pathv[i]);
		/* On the way to a thread's next list a zero is an end like any other. */
		size_t longer = strstr(fixtures.gl_pathv[i], "interpreter") ? sizeof(u64) : 0;
		u32 n = count_reads(tape, 0, "w->need");

		for (k = 0; k < n; k += MAX(n / 40, 1)) {
			_cleanup_free_ char *text = NULL;
			struct mutant *mu = mutant_new(tape);

			mu->field = "w->need";
			mu->longer_than = longer;
			mutant_add(mu, k, kinds[k & 1], true, 0, 0);
			mutate_run(mu, target_tape_noted(tape, "runtime"), &text);
			each_stack_is_whole_or_says_so(all, text);
			target_free(&mu->t);
		}
		target_free(tape);
	}
}

/* Exchanges a thread's first two lists, each with the seam behind it. False: it has not so many. */
static bool swap_lists(struct list *l, u64 *words)
{
	size_t row = l->width, first = 0, second = 0;
	u64 swapped[LIST_WORDS_MAX];
	u32 i;

	for (i = 0; i < l->n && !second; i++)
		if (words[i * row] == RECIPE_SEAM)
			*(first ? &second : &first) = (i + 1) * row;
	if (!second)
		return false;
	memcpy(swapped, words + first, (second - first) * sizeof(*words));
	memcpy(swapped + second - first, words, first * sizeof(*words));
	memcpy(words, swapped, second * sizeof(*words));
	return true;
}

/* A recording of a process that is not refused, to walk it by hand. */
struct by_hand {
	struct target *t;
	struct runtime_found found;
	struct frame_names_total total;
	struct frame_names *names;
	struct runtime_frames out;
};

static struct by_hand *by_hand_new(const char *path)
{
	const struct runtime_choice every = { 0 };
	struct by_hand *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	h->t = open_fixture(path);
	h->total.max = 1 << 20;
	h->names = frame_names_new(&h->total);
	assert_non_null(h->names);
	runtime_detect(h->t, &every, &h->found);
	assert_int_equal(h->found.verdict, UNWIND_OK);
	return h;
}

static void by_hand_free(struct by_hand *h)
{
	runtime_found_fini(&h->found);
	frame_names_free(h->names);
	target_free(h->t);
	free(h);
}

static enum verdict verdict_of(struct by_hand *h, const struct list *l)
{
	struct frames frames = { 0 };

	frames_begin(&frames, h->names, &h->out);
	return runtime_list(h->t, &h->found, l, &frames);
}

/* How many threads' lists are refused as torn when two of them change places; all others are not. */
static u32 count_torn_by_order(const char *path)
{
	struct by_hand *h = by_hand_new(path);
	struct target_thread thread;
	u64 words[LIST_WORDS_MAX];
	struct list l;
	u32 i, torn = 0;

	for (i = 0; target_thread(h->t, i, &thread); i++) {
		target_begin(h->t);
		if (list_walk(h->t, &h->found.recipe, thread.tp, 0, words, &l) != LIST_END_NULL)
			continue;
		assert_int_equal(verdict_of(h, &l), UNWIND_OK);
		if (!swap_lists(&l, words))
			continue;
		assert_int_equal(verdict_of(h, &l), UNWIND_TORN);
		torn++;
	}
	by_hand_free(h);
	return torn;
}

/* The places on the C stack of a thread's lists tell in which order they were entered. */
static void lists_that_are_not_in_the_order_of_the_stack_are_refused(void **state __unused)
{
	glob_t tapes;
	size_t i;

	assert_int_equal(
		glob("tests/fixtures/cpython/3.1[2-9]*interpreters*.tape", 0, NULL, &tapes), 0);
	for (i = 0; i < tapes.gl_pathc; i++) {
		/* Two threads of these are in another interpreter, or in two. */
		assert_int_equal(count_torn_by_order(tapes.gl_pathv[i]), 2);
	}
	globfree(&tapes);
}

/*
 * Where Debian's libpython3.11 (3.11.2) has a frame that is not filled in yet, read off its code by
 * objdump: places within _PyEval_EvalFrameDefault behind the store that makes a frame the innermost
 * one (tstate->cframe; cframe.current_frame), and at the last of the stores that belong before it.
 */
static void a_list_is_refused_where_the_loop_has_it_half_made(void **state __unused)
{
	static const struct {
		u32 publish, behind, last, next;
	} half[] = {
		{ 0x42, 0x46, 0x63, 0x6b },         { 0x4b9b, 0x4ba3, 0x4bca, 0x4bce },
		{ 0x4e66, 0x4e6e, 0x4e8d, 0x4e91 }, { 0x5e54, 0x5e5c, 0x5e74, 0x5e78 },
		{ 0x94f1, 0x94f9, 0x9518, 0x951c },
	};
	struct by_hand *h = by_hand_new("tests/fixtures/cpython/3.11-embed-x86_64-park.tape");
	u64 loop = h->found.loops[0].lo, words[LIST_WORDS_MAX];
	struct target_thread thread;
	struct list l;
	size_t i;

	assert_true(target_thread(h->t, 0, &thread));
	target_begin(h->t);
	assert_int_equal(list_walk(h->t, &h->found.recipe, thread.tp, 0, words, &l), LIST_END_NULL);
	for (i = 0; i < ARRAY_SIZE(half); i++) {
		l.ip = loop + half[i].publish;
		assert_int_equal(verdict_of(h, &l), UNWIND_OK);
		l.ip = loop + half[i].behind;
		assert_int_equal(verdict_of(h, &l), UNWIND_TORN);
		l.ip = loop + half[i].last;
		assert_int_equal(verdict_of(h, &l), UNWIND_TORN);
		l.ip = loop + half[i].next;
		assert_int_equal(verdict_of(h, &l), UNWIND_OK);
	}
	by_hand_free(h);
}

/* A recording in which the byte of the recipe's flag is another one, and so is who has set it. */
struct flagged {
	struct target t;
	struct by_hand *h;
	u64 holder_at, holder;
	u8 value;
};

static int flagged_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct flagged *f = (struct flagged *)t;
	int err = target_read(f->h->t, addr, dst, len);

	if (!err && f->h->found.recipe.flag - addr < len)
		((u8 *)dst)[f->h->found.recipe.flag - addr] = f->value;
	if (!err && addr == f->holder_at && f->holder)
		memcpy(dst, &f->holder, sizeof(f->holder));
	return err;
}

static const struct target_ops flagged_ops = { .read = flagged_read, .direct = true };

/* 0: it is null, or was not read. */
static u64 word_at(struct target *t, u64 addr)
{
	u64 v;

	return target_u64(t, addr, &v) ? 0 : v;
}

/* What a thread's first hops lead to: what is compared with who has set the flag. */
static u64 owner_of(struct by_hand *h, const struct target_thread *thread)
{
	const struct recipe *r = &h->found.recipe;
	u64 p = thread->tp;
	u32 i;

	target_begin(h->t);
	for (i = 0; p && i < r->thread_hops; i++)
		p = word_at(h->t, p + (u64)(s64)r->hop[i]);
	return p;
}

/* How many threads with a list have the flag, each with a frame of that name; *ret: the last one's number. */
static u32 count_flagged(struct flagged *f, u32 *ret)
{
	struct by_hand *h = f->h;
	struct target_thread thread;
	u64 words[LIST_WORDS_MAX];
	struct list l;
	u32 i, n = 0;

	for (i = 0; target_thread(h->t, i, &thread); i++) {
		target_begin(h->t);
		target_begin(&f->t);
		list_walk(&f->t, &h->found.recipe, thread.tp, 0, words, &l);
		if (!l.flag)
			continue;
		n++;
		*ret = i;
		assert_int_equal(verdict_of(h, &l), UNWIND_OK);
		assert_string_equal(h->out.frames[0].func, "(garbage collection)");
	}
	return n;
}

/*
 * gc.c of all releases: flags.during_gc follows two bits of mode, immediate_sweep, dont_gc and
 * dont_incremental. The thread of these programs that ran last has ended.
 */
static void collecting_garbage_is_told_of_the_thread_that_does_it(void **state __unused)
{
	glob_t tapes;
	size_t i;

	assert_int_equal(glob("tests/fixtures/ruby/*.tape", 0, NULL, &tapes), 0);
	for (i = 0; i < tapes.gl_pathc; i++) {
		struct by_hand *h = by_hand_new(tapes.gl_pathv[i]);
		const struct recipe *r = &h->found.recipe;
		struct flagged f = { .t.ops = &flagged_ops, .h = h, .value = (u8) ~(1 << 5) };
		struct target_thread thread;
		u32 k, who = 0, n = 0;

		if (r->flag_mask != 1 << 5)
			fail_msg("%s: flag %x", tapes.gl_pathv[i], r->flag_mask);
		assert_int_equal(count_flagged(&f, &who), 0);
		f.value = 1 << 5;
		assert_int_equal(count_flagged(&f, &who), 0);
		f.holder_at = word_at(h->t, r->flag_owner[0]) + (u64)(s64)r->flag_hop;
		for (k = 0; n < 8 && target_thread(h->t, k, &thread); k++) {
			f.holder = owner_of(h, &thread);
			if (!f.holder)
				continue;
			n++;
			assert_int_equal(count_flagged(&f, &who), 1);
			assert_int_equal(who, k);
		}
		assert_int_equal(n, 8);
		by_hand_free(h);
	}
	globfree(&tapes);
}

static void after_a_read_that_hangs_nothing_more_is_read(void **state __unused)
{
	size_t i;
	u32 k;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *tape = open_fixture(fixtures.gl_pathv[i]);
		u32 n = count_reads(tape, 0, NULL);

		for (k = 0; k < n; k += MAX(n / 10, 1)) {
			struct mutant *mu = mutant_new(tape);

			mutant_add(mu, k, MUTATE_HANG, false, 0, 0);
			mutate_run(mu, target_tape_noted(tape, "runtime"), NULL);
			/* The mutant would abort at the next read. */
			assert_int_equal(mu->t.hung, mu->m[0].hit);
			target_free(&mu->t);
		}
		target_free(tape);
	}
}

/* Notes which reasons a walk told, of the process or of its threads. */
static void note_reasons(const struct fixture_result *result, const char *text, bool *told)
{
	u32 v;

	told[result->verdict] = true;
	for (v = 0; v < UNWIND_VERDICT_MAX; v++) {
		char line[256];

		snprintf(line, sizeof(line), ": refused: %s\n", verdict_text((enum verdict)v));
		told[v] |= strstr(text, line) != NULL;
	}
}

/* A real process for each reason that one can have, a spoiled recording for the others. */
struct reasons {
	const char *runtime;
	bool real[UNWIND_VERDICT_MAX]; /* that some process had */
	bool told[UNWIND_VERDICT_MAX]; /* that some spoiled recording gave */
};

/* Verdicts of a runtime's recordings, and of what becomes of them when single reads lie. */
static void find_reasons(struct reasons *r)
{
	size_t i;
	u32 k, n;

	for (i = 0; i < fixtures.gl_pathc; i++) {
		struct target *tape = open_fixture(fixtures.gl_pathv[i]);
		_cleanup_free_ char *text = NULL;
		struct fixture_result result;

		if (strcmp(target_tape_noted(tape, "runtime"), r->runtime) != 0) {
			target_free(tape);
			continue;
		}
		text = walk(tape, &result);
		note_reasons(&result, text, r->real);
		n = result.verdict == UNWIND_OK ? count_reads(tape, 0, NULL) : 0;
		for (k = 0; k < n; k += MAX(n / 40, 1)) {
			_cleanup_free_ char *lied = NULL;
			struct mutant *mu = mutant_new(tape);

			mutant_add(mu, k, k & 1 ? MUTATE_ZERO : MUTATE_ONES, true, (u8)k, k);
			result = mutate_run(mu, target_tape_noted(tape, "runtime"), &lied);
			note_reasons(&result, lied, r->told);
			target_free(&mu->t);
		}
		target_free(tape);
	}
}

static void each_reason_to_refuse_is_told_by_some_recording(void **state __unused)
{
	static const enum verdict processes[] = { UNWIND_VERSION, UNWIND_NO_SYMBOL,
						  UNWIND_BAD_LAYOUT, UNWIND_NOT_READY };
	static const enum verdict lists[] = { UNWIND_TORN, UNWIND_BAD_FRAME };
	struct reasons of[] = { { .runtime = "cpython" },
				{ .runtime = "ruby" },
				{ .runtime = "php" } };
	bool fault = false, told[ARRAY_SIZE(lists)] = { false };
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		find_reasons(&of[i]);
		for (k = 0; k < ARRAY_SIZE(processes); k++)
			if (!of[i].real[processes[k]])
				fail_msg("no process of %s is refused because: %s", of[i].runtime,
					 verdict_text(processes[k]));
		for (k = 0; k < ARRAY_SIZE(lists); k++)
			told[k] |= of[i].told[lists[k]];
		fault |= of[i].real[UNWIND_FAULT];
	}
	for (k = 0; k < ARRAY_SIZE(lists); k++)
		if (!told[k])
			fail_msg("no list is refused because: %s", verdict_text(lists[k]));
	assert_true(fault);
}

/* Another root may hold any file under any name; only what is in it counts. */
static void a_file_name_alone_makes_no_runtime(void **state __unused)
{
	static const char text[] = "ebpfprofiler tape 1\narch: x86-64\n\n"
				   "module 0 400000 401000 500000 /usr/bin/python3.13\n"
				   "module 1 7f0000000000 7f0000001000 7f0000500000 "
				   "/usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0\n"
				   "module 2 -\n";
	struct fixture_result result;
	struct target *t;

	assert_int_equal(target_tape_parse((const u8 *)text, sizeof(text) - 1, true, &t), 0);
	free(walk(t, &result));
	assert_null(result.unwinder);
	assert_int_equal(result.verdict, UNWIND_NOT_MINE);
	target_free(t);
}

static void a_process_that_lies_about_its_version_is_refused(void **state __unused)
{
	struct target *t = open_fixture("tests/fixtures/refused/bad-layout-x86_64.tape");
	struct fixture_result result;

	free(walk(t, &result));
	assert_int_equal(result.verdict, UNWIND_BAD_LAYOUT);
	assert_int_equal(result.stacks, 0);
	target_free(t);
}

static void files_that_are_no_recordings_are_refused(void **state __unused)
{
	static const char *const bad[] = {
		"",
		"ebpfprofiler tape 2\n\n",
		"ebpfprofiler tape 1\n",
		"ebpfprofiler tape 1\nnokey\n\n",
		"ebpfprofiler tape 1\n\nbytes 10 0\n",
		"ebpfprofiler tape 1\n\nbytes 10 0g\n",
		"ebpfprofiler tape 1\n\nbytes ffffffffffffffff 0000\n",
		"ebpfprofiler tape 1\n\nunreadable 11\n",
		"ebpfprofiler tape 1\n\nthread 0 12\n",
		"ebpfprofiler tape 1\n\nmemory 10 elsewhere\n",
		"ebpfprofiler tape 1\n\nsomething 1\n",
		"ebpfprofiler tape 1\n\nthread 0 1 2", /* no end of line */
	};
	struct target *t;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(target_tape_parse((const u8 *)bad[i], strlen(bad[i]), true, &t),
				 -EINVAL);
	/* Not compressed, or cut short. */
	assert_int_equal(target_tape_parse((const u8 *)bad[1], 21, false, &t), -EINVAL);
}

/* With an argument: the tests of that name only; an emulated machine has no time for all. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_recording_gives_what_the_runtime_said),
		cmocka_unit_test(a_recording_says_what_it_is),
		cmocka_unit_test(a_recording_that_lacks_bytes_names_address_and_field),
		cmocka_unit_test(no_lie_crashes_or_holds_up_a_walk),
		cmocka_unit_test(a_list_that_leads_back_to_itself_ends),
		cmocka_unit_test(lengths_that_no_string_has_are_survived),
		cmocka_unit_test(text_that_is_no_utf8_and_has_no_end_is_shown_clean_and_short),
		cmocka_unit_test(pointers_to_nothing_and_skew_ones_end_in_a_verdict),
		cmocka_unit_test(memory_that_cannot_be_read_makes_no_frames_that_never_were),
		cmocka_unit_test(a_list_that_is_being_changed_is_never_told_as_whole),
		cmocka_unit_test(lists_that_are_not_in_the_order_of_the_stack_are_refused),
		cmocka_unit_test(a_list_is_refused_where_the_loop_has_it_half_made),
		cmocka_unit_test(collecting_garbage_is_told_of_the_thread_that_does_it),
		cmocka_unit_test(after_a_read_that_hangs_nothing_more_is_read),
		cmocka_unit_test(each_reason_to_refuse_is_told_by_some_recording),
		cmocka_unit_test(a_file_name_alone_makes_no_runtime),
		cmocka_unit_test(a_process_that_lies_about_its_version_is_refused),
		cmocka_unit_test(files_that_are_no_recordings_are_refused),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, find_fixtures, forget_fixtures);
}
