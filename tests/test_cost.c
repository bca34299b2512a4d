// SPDX-License-Identifier: Apache-2.0
/*
 * What profiling costs, as it is handed on: the file between the daemon and `doctor`, JSON (judged
 * by Python's parser), the text for people, comment lines and the period of a window in which the
 * rate changed.
 */
#include "core/cost.h"
#include "core/fold.h"
#include "core/report.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
/* after those */
#include <cmocka.h>

static char dir[] = "/tmp/test_cost.XXXXXX";
static char path[64];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/" COST_FILE, dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

/* Start of a process as /proc tells; the shell does the counting of fields. */
static u64 start_of(pid_t pid)
{
	char cmd[80];
	u64 start = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "sed 's/.*) //' /proc/%d/stat | cut -d' ' -f20", pid);
	f = popen(cmd, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%" SCNu64, &start), 1);
	pclose(f);
	return start;
}

static struct cost example(void)
{
	struct cost c = {
		.pid = (u64)getpid(),
		.pid_start = start_of(getpid()),
		.end_ns = 1700000000123456789ull,
		.seconds = 60.25,
		.cpus = 8,
		.user = 0.125,
		.system = 0.0625,
		.cpu_programs = 0.03125,
		.wait_programs = 0.25,
		.switches = 0.1875,
		.callbacks = 0.015625,
		.callback_runs = 12.5,
		.sides = { 0.25, 0.5, 0.125 },
		.total = 0.875,
		.budget = 1,
		.measured = 1000000007,
		.rss = 32100000,
		.maps = 14300000,
		.tables = 2000000,
		.table_files = 96,
		.table_processes = 20,
		.samples_due = 2280,
		.samples_kept = 2277,
		.samples_lost = "ring_full 3",
		.waits_due = 5000,
		.waits_kept = 4000,
		.waits_sampled_out = 1000,
		.hz = 9,
		.configured_hz = 19,
		.sample_ns = 4000000,
		.share = 50,
		.clock = "software cpu-clock",
		.mode = "task work after the switch",
		.nprograms = 2,
		.programs = { { .name = "sample_cpu", .runs = 38.5, .ns = 4356 },
			      { .name = "on_switch", .waits = 1, .runs = 120000, .ns = 100.5 } },
	};

	return c;
}

static void assert_same(const struct cost *a, const struct cost *b)
{
	u32 i;

	assert_int_equal(a->pid, b->pid);
	assert_int_equal(a->end_ns, b->end_ns);
	assert_true(a->seconds == b->seconds);
	assert_true(a->user == b->user && a->system == b->system);
	assert_true(a->sides[0] == b->sides[0] && a->sides[1] == b->sides[1] &&
		    a->sides[2] == b->sides[2]);
	assert_int_equal(a->rss, b->rss);
	assert_int_equal(a->samples_due, b->samples_due);
	assert_string_equal(a->samples_lost, b->samples_lost);
	assert_string_equal(a->waits_lost, b->waits_lost);
	assert_string_equal(a->mode, b->mode);
	assert_string_equal(a->clock, b->clock);
	assert_int_equal(a->sample_ns, b->sample_ns);
	assert_int_equal(a->share, b->share);
	assert_int_equal(a->nprograms, b->nprograms);
	for (i = 0; i < a->nprograms; i++) {
		assert_string_equal(a->programs[i].name, b->programs[i].name);
		assert_int_equal(a->programs[i].waits, b->programs[i].waits);
		assert_true(a->programs[i].runs == b->programs[i].runs);
		assert_true(a->programs[i].ns == b->programs[i].ns);
	}
}

static void what_the_daemon_saves_is_what_doctor_reads(void **state)
{
	struct cost c = example(), back;
	struct stat st;

	(void)state;
	assert_int_equal(cost_save(&c, path), 0);
	assert_int_equal(cost_load(path, &back), 0);
	assert_same(&c, &back);
	/* For everyone to read, for nobody else to write. */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	/* And once more over the first. */
	c.hz = 19;
	assert_int_equal(cost_save(&c, path), 0);
	assert_int_equal(cost_load(path, &back), 0);
	assert_int_equal(back.hz, 19);
}

static void figures_of_a_daemon_that_is_gone_are_not_shown(void **state)
{
	struct cost c = example(), back;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		pause();
		_exit(0);
	}
	c.pid = (u64)pid;
	c.pid_start = start_of(pid);
	assert_int_equal(cost_save(&c, path), 0);
	assert_int_equal(cost_load(path, &back), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(cost_load(path, &back), -ESRCH);
	/* Nor those of another process with its number. */
	c = example();
	c.pid_start++;
	assert_int_equal(cost_save(&c, path), 0);
	assert_int_equal(cost_load(path, &back), -ESRCH);
	unlink(path);
	assert_int_equal(cost_load(path, &back), -ENOENT);
}

static char *saved_text(void)
{
	struct cost c = example();
	char *text;

	assert_int_equal(cost_save(&c, path), 0);
	assert_int_equal(read_file(path, 1 << 16, &text, NULL), 0);
	return text;
}

static void a_text_cut_anywhere_is_refused(void **state)
{
	_cleanup_free_ char *text = saved_text();
	size_t len = strlen(text), i;
	struct cost c;

	(void)state;
	assert_int_equal(cost_parse(text, &c), 0);
	/* The last line needs no newline. */
	for (i = 0; i < len - 1; i++) {
		_cleanup_free_ char *cut = strndup(text, i);

		assert_int_equal(cost_parse(cut, &c), -EINVAL);
	}
}

static void nonsense_is_refused(void **state)
{
	static const char *const wrong[] = {
		"",
		"\n",
		".\n",
		"ebpfprofiler-cost 2\n.\n",
		"ebpfprofiler-cost 1\n",
		"ebpfprofiler-cost 1\n\n.\n",
		"ebpfprofiler-cost 1\nhz\n.\n",
		"ebpfprofiler-cost 1\nhz x\n.\n",
		"ebpfprofiler-cost 1\nhz -1\n.\n",
		"ebpfprofiler-cost 1\nhz 99999999999999999999\n.\n",
		"ebpfprofiler-cost 1\nseconds nan\n.\n",
		"ebpfprofiler-cost 1\nseconds inf\n.\n",
		"ebpfprofiler-cost 1\nseconds 1e999\n.\n",
		"ebpfprofiler-cost 1\nseconds -5\n.\n",
		"ebpfprofiler-cost 1\nprogram\n.\n",
		"ebpfprofiler-cost 1\nprogram 0 1 2\n.\n",
		"ebpfprofiler-cost 1\nprogram 0 1 x name\n.\n",
	};
	char text[4096] = "ebpfprofiler-cost 1\n";
	struct cost c;
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(cost_parse(wrong[i], &c), -EINVAL);
	for (i = 0; i <= COST_PROGRAMS_MAX; i++)
		strcat(text, "program 0 1 1 p\n");
	strcat(text, ".\n");
	assert_int_equal(cost_parse(text, &c), -EINVAL);
}

static void texts_are_cut_cleaned_and_unknown_fields_passed_over(void **state)
{
	char text[1024];
	struct cost c;

	(void)state;
	snprintf(
		text, sizeof(text),
		"ebpfprofiler-cost 1\nfrom_the_future 7 x\nclock \x1b[31m\xff\noffcpu_mode %0300d\n"
		"program 1 2 3 a name that is too long for its place\n.\n",
		0);
	assert_int_equal(cost_parse(text, &c), 0);
	assert_string_equal(c.clock, "?[31m\xef\xbf\xbd");
	assert_int_equal(strlen(c.mode), sizeof(c.mode) - 1);
	assert_string_equal(c.programs[0].name, "a name that is ");
}

static void json_is_json(void **state)
{
	struct cost c = example();
	FILE *f;

	(void)state;
	snprintf(c.clock, sizeof(c.clock), "a \"quoted\" \\ word");
	f = popen(
		"python3 -c '\n"
		"import json, sys\n"
		"d = json.load(sys.stdin)\n"
		"assert d[\"hz\"] == 9 and d[\"user_percent\"] == 0.125\n"
		"assert d[\"clock\"] == \"a \\\"quoted\\\" \\\\ word\"\n"
		"assert d[\"samples_lost\"] == \"ring_full 3\"\n"
		"p = d[\"programs\"]\n"
		"assert len(p) == 2 and p[1][\"name\"] == \"on_switch\" and p[1][\"waits\"] is True\n"
		"assert p[1][\"runs_per_s\"] == 120000 and p[1][\"ns_per_run\"] == 100.5\n"
		"'",
		"w");
	assert_non_null(f);
	cost_print_json(&c, f);
	assert_int_equal(pclose(f), 0);
}

static void the_table_for_people_has_each_figure(void **state)
{
	/* 120,000 runs of 100.5 ns a second are 1.206 % of a CPU. */
	static const char *const want[] = {
		"own threads, user",
		"0.125",
		"  on_switch                       1.206     120000.0        100\n",
		"total                             0.875\n",
		"cpu_budget                        1.000\n",
		"samples: 2280 due, 2277 kept, lost: ring_full 3\n",
		"waits: 5000 due, 4000 kept, 1000 sampled out, lost: none\n",
		"on CPU: 9 Hz per CPU of 19 configured, by software cpu-clock\n",
		"off CPU: task work after the switch; waits shorter than 4 ms are sampled\n",
		"runtimes: 50 % of their stacks are walked\n",
	};
	_cleanup_free_ char *text = NULL;
	struct cost c = example();
	size_t len, i;
	FILE *f = open_memstream(&text, &len);

	(void)state;
	assert_non_null(f);
	cost_print(&c, f);
	fclose(f);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		if (!strstr(text, want[i]))
			fail_msg("not in the table: %s\n%s", want[i], text);
}

/* --- the window's report ---------------------------------------------------------------------- */

static void add(struct window *w, const struct sample_type *type, u64 n, u64 ns)
{
	struct sample s = { .type = type,
			    .service = "svc",
			    .exe = "svc",
			    .thread = "t",
			    .end = STACK_END_COMPLETE };
	struct fold_ref ref;

	assert_int_equal(fold_add(w, &s, &ref), 0);
	fold_count(w, ref, n, ns);
}

static void period_is_the_mean_when_the_rate_changed(void **state)
{
	struct window *w = window_new(1);

	(void)state;
	assert_int_equal(report_period(w, 19), NSEC_PER_SEC / 19);
	assert_int_equal(report_period(w, 0), 1);
	/* 100 samples at 100 Hz, then 50 at 50 Hz: two seconds of 150 samples. */
	add(w, &sample_cpu, 100, 100 * 10000000ull);
	add(w, &sample_cpu, 50, 50 * 20000000ull);
	/* Of waits it is none of its business. */
	add(w, &sample_offcpu, 1000, 1);
	assert_int_equal(report_period(w, 50), 2 * NSEC_PER_SEC / 150);
	window_free(w);
}

static const char *find_line(const struct report *r, const char *begin)
{
	u32 i;

	for (i = 0; i < r->nlines; i++)
		if (!strncmp(r->lines[i], begin, strlen(begin)))
			return r->lines[i];
	return "";
}

static void comments_say_rate_losses_mode_levers_and_cost(void **state)
{
	struct cost c = example();
	struct window *w = window_new(1);
	char text[1024];
	struct report r;

	(void)state;
	add(w, &sample_cpu, 90, 90 * NSEC_PER_SEC / 9);
	report_begin(&r);
	r.sidecar = false; /* wherever this test runs */
	/* Three of them, and a wait, of processes that are left out: nobody has a claim on them. */
	stat_add(STAT_samples_due, 98);
	stat_add(STAT_samples_left_out, 3);
	stat_add(STAT_waits_due, 1);
	stat_add(STAT_waits_left_out, 1);
	stat_add(STAT_samples_kept, 90);
	stat_add(STAT_lost_ring_full, 5);
	stat_add(STAT_waits_due, 7);
	stat_add(STAT_waits_kept, 4);
	stat_add(STAT_waits_sampled_out, 3);
	report_end(&r, &c, w, 1000000);
	assert_true(r.nlines <= REPORT_LINES);
	assert_non_null(strstr(r.lines[0], "ebpfprofiler "));
	assert_string_equal(find_line(&r, "9 Hz"),
			    "9 Hz per CPU by software cpu-clock, 19 configured");
	assert_string_equal(find_line(&r, "samples"),
			    "samples of the host: 95 due, 90 kept, lost: ring_full 5");
	assert_string_equal(find_line(&r, "waits"),
			    "waits of the host: 7 due, 4 kept, 3 sampled out, lost: none");
	assert_string_equal(find_line(&r, "off CPU"),
			    "off CPU: task work after the switch; waits of 1 ms and more; those "
			    "shorter than T = 4 ms sampled: each is kept with its length / T, and "
			    "stands for T");
	assert_string_equal(find_line(&r, "cost"),
			    "cost 0.88 % of a CPU (user 0.12, kernel 0.06, BPF 0.30): on CPU 0.25, "
			    "off CPU 0.50, runtimes 0.12; 32.1 MB, BPF maps 14.3 MB");
	report_line(&r, w, text, sizeof(text));
	assert_string_equal(
		text,
		"window of 60.2 s: 95 samples (90 kept, lost: ring_full 5); 7 waits; 1 profiles, "
		"1 stacks; user stacks 100.0 % complete, 0.0 % guessed in part, 0.0 % not; cost "
		"0.88 % of a CPU (user 0.12, kernel 0.06, BPF 0.30); 32.1 MB, BPF maps 14.3 MB, "
		"tables of 96 files; 9 Hz of 19; waits under 4 ms sampled");
	window_free(w);
}

static void a_sidecar_tells_what_it_stands_for(void **state)
{
	struct cost c = example();
	struct window *w = window_new(1);
	char text[1024];
	struct report r;

	(void)state;
	add(w, &sample_cpu, 9, 9 * NSEC_PER_SEC / 9);
	report_begin(&r);
	r.sidecar = true;
	stat_add(STAT_samples_due, 10);
	stat_add(STAT_samples_kept, 9);
	stat_add(STAT_lost_busy, 1);
	stat_add(STAT_samples_outside, 400);
	report_end(&r, &c, w, 1000000);
	assert_true(r.nlines <= REPORT_LINES);
	assert_string_equal(find_line(&r, "samples of"),
			    "samples of our pid namespace: 10 due, 9 kept, lost: busy 1");
	assert_string_equal(find_line(&r, "samples outside"),
			    "samples outside our pid namespace: 400, not taken");
	assert_string_equal(find_line(&r, "waits of"),
			    "waits of our pid namespace: 0 due, 0 kept, 0 sampled out, lost: none");
	assert_string_equal(find_line(&r, "user stacks of"),
			    "user stacks of our pid namespace: complete 100.0 %");
	report_line(&r, w, text, sizeof(text));
	assert_non_null(strstr(text, ": 10 samples (9 kept, lost: busy 1); 400 outside our pid "
				     "namespace; "));
	report_changes(&r, text, sizeof(text));
	assert_non_null(strstr(text, "samples_outside 400"));
	/* Where nothing else runs, nothing is said of it. */
	report_begin(&r);
	report_end(&r, &c, w, 1000000);
	assert_string_equal(find_line(&r, "samples outside"), "");
	window_free(w);
}

static void a_rate_that_changed_within_the_window_is_told(void **state)
{
	struct cost c = example();
	struct window *w = window_new(1);
	struct report r;

	(void)state;
	c.hz = c.configured_hz = 50;
	add(w, &sample_cpu, 100, 100 * 10000000ull);
	add(w, &sample_cpu, 50, 50 * 20000000ull);
	report_begin(&r);
	report_end(&r, &c, w, 0);
	assert_string_equal(find_line(&r, "50 Hz"),
			    "50 Hz per CPU by software cpu-clock; really 75.0 in this window");
	window_free(w);
}

static void a_pause_and_a_refusal_are_told(void **state)
{
	struct cost c = example();
	struct window *w = window_new(1);
	struct report r;

	(void)state;
	c.paused = 1;
	report_begin(&r);
	report_end(&r, &c, w, 0);
	assert_string_equal(find_line(&r, "off CPU"), "off CPU: paused to stay under cpu_budget");
	c.paused = 0;
	*c.mode = '\0';
	report_end(&r, &c, w, 0);
	assert_string_equal(find_line(&r, "off CPU"), "");
	strcpy(c.refused, "the kernel has no hook");
	report_end(&r, &c, w, 0);
	assert_string_equal(find_line(&r, "off CPU"), "off CPU: the kernel has no hook");
	window_free(w);
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_the_daemon_saves_is_what_doctor_reads),
		T(figures_of_a_daemon_that_is_gone_are_not_shown),
		T(a_text_cut_anywhere_is_refused),
		T(nonsense_is_refused),
		T(texts_are_cut_cleaned_and_unknown_fields_passed_over),
		T(json_is_json),
		T(the_table_for_people_has_each_figure),
		T(period_is_the_mean_when_the_rate_changed),
		T(comments_say_rate_losses_mode_levers_and_cost),
		T(a_sidecar_tells_what_it_stands_for),
		T(a_rate_that_changed_within_the_window_is_told),
		T(a_pause_and_a_refusal_are_told),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
