// SPDX-License-Identifier: Apache-2.0
/*
 * /metrics, read by Prometheus' own client library (tests/metrics.py): each counter has a value of
 * its own here, which must come out at exactly one place.
 */
#include "core/cost.h"
#include "core/metrics.h"
#include "core/sending.h"
#include "core/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define VALUE(i) (1000003u + 7u * (i))

static char dir[] = "/tmp/test_metrics.XXXXXX";

static int setup(void **state __unused)
{
	u32 i;

	for (i = 0; i < STAT_MAX; i++)
		stat_add(i, VALUE(i));
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state __unused)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* What the parser says of the text, lines; fails when it refuses it. Owned. */
static char *judge(const struct metrics *m, const char *args)
{
	char path[64], *cmd, *ret = NULL;
	size_t len;
	FILE *f, *to;
	int status, c;

	snprintf(path, sizeof(path), "%s/metrics", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	metrics_write(m, f);
	assert_int_equal(fclose(f), 0);
	assert_true(asprintf(&cmd, "/usr/bin/python3 tests/metrics.py %s < %s", args, path) > 0);
	f = popen(cmd, "r");
	assert_non_null(f);
	to = open_memstream(&ret, &len);
	while ((c = getc(f)) != EOF)
		putc(c, to);
	fclose(to);
	status = pclose(f);
	if (status)
		print_error("%s\n%s\n", cmd, ret);
	assert_int_equal(status, 0);
	free(cmd);
	return ret;
}

static const struct cost cost = {
	.end_ns = 1796043300ull * NSEC_PER_SEC,
	.total = 0.25,
	.budget = 2,
	.hz = 9,
	.configured_hz = 19,
	.rss = 30000001,
	.maps = 20000002,
	.tables = 10000003,
	.table_files = 96,
};

static void every_counter_is_there_once(void **state __unused)
{
	const struct metrics m = { .on = true, .window_s = 60, .cost = &cost };
	char *args, *got;
	size_t len;
	FILE *f = open_memstream(&args, &len);
	u32 i, lines = 0;

	for (i = 0; i < STAT_MAX; i++)
		fprintf(f, "%s=%u ", stat_name(i), VALUE(i));
	fclose(f);
	got = judge(&m, args);
	for (i = 0; got[i]; i++)
		lines += got[i] == '\n';
	assert_int_equal(lines, STAT_MAX);
	/* Names that dashboards go by. */
	assert_non_null(strstr(got, "samples_kept ebpfprofiler_samples_total{type=cpu}\n"));
	assert_non_null(strstr(got, "waits_due ebpfprofiler_samples_due_total{type=offcpu}\n"));
	assert_non_null(strstr(got, "lost_busy ebpfprofiler_samples_lost_total{reason=busy,"
				    "type=cpu}\n"));
	assert_non_null(strstr(got, "wait_lost_ring_full ebpfprofiler_samples_lost_total{"
				    "reason=ring_full,type=offcpu}\n"));
	assert_non_null(strstr(got, "stack_cut ebpfprofiler_unwind_failures_total{reason=cut,"
				    "unwinder=native}\n"));
	assert_non_null(strstr(got, "runtime_torn ebpfprofiler_unwind_failures_total{reason=torn,"
				    "unwinder=runtime}\n"));
	assert_non_null(strstr(got, "no_memory ebpfprofiler_no_memory_total\n"));
	free(got);
	free(args);
}

static void expect(const struct metrics *m, const char *name, const char *want)
{
	char args[128], *got;

	snprintf(args, sizeof(args), "--get '%s'", name);
	got = judge(m, args);
	got[strcspn(got, "\n")] = '\0';
	if (strcmp(got, want))
		print_error("%s\n", name);
	assert_string_equal(got, want);
	free(got);
}

static void the_last_window_is_there_in_base_units(void **state __unused)
{
	const struct metrics m = { .on = true, .window_s = 60, .cost = &cost };

	expect(&m, "ebpfprofiler_overhead_ratio", "0.0025");
	expect(&m, "ebpfprofiler_overhead_budget_ratio", "0.02");
	expect(&m, "ebpfprofiler_rate_hertz", "9");
	expect(&m, "ebpfprofiler_configured_rate_hertz", "19");
	expect(&m, "ebpfprofiler_resident_memory_bytes", "30000001");
	expect(&m, "ebpfprofiler_bpf_map_bytes", "20000002");
	expect(&m, "ebpfprofiler_unwind_table_bytes", "10000003");
	expect(&m, "ebpfprofiler_window_end_timestamp_seconds", "1796043300");
	expect(&m, "ebpfprofiler_window_seconds", "60");
	expect(&m, "ebpfprofiler_profiling", "1");
	expect(&m, "ebpfprofiler_build_info", "1");
}

/* Each count of each server at one place of its own, and in no family of the totals. */
static void each_server_is_there_by_its_name(void **state __unused)
{
	static const char *const series[] = {
		"spool_bytes{server=N}",
		"profiles_due_total{from=spool,server=N}",
		"profiles_due_total{from=run,server=N}",
		"profiles_due_total{from=split,server=N}",
		"profiles_sent_total{server=N}",
		"profiles_dropped_total{reason=refused,server=N}",
		"profiles_dropped_total{reason=too_large,server=N}",
		"profiles_dropped_total{reason=no_room,server=N}",
		"profiles_dropped_total{reason=expired,server=N}",
		"profiles_dropped_total{reason=damaged,server=N}",
		"profiles_waiting{server=N}",
		"attempts_failed_total{server=N}",
		"profiles_rejected_total{server=N}",
	};
	static const char *const names[] = { "", "eu_west" };
	struct sending_server servers[2];
	const struct metrics m = { .cost = &cost, .servers = servers, .nservers = 2 };
	char *args = NULL, *got, want[128];
	size_t len;
	FILE *f = open_memstream(&args, &len);
	u32 i, k;

	for (k = 0; k < 2; k++) {
		u64 v = 5000001 + 100 * k;

		servers[k] = (struct sending_server){
			.name = names[k],
			.counts = { .spool_bytes = v,
				    .found = v + 1,
				    .due = v + 2,
				    .parts = v + 3,
				    .sent = v + 4,
				    .refused = v + 5,
				    .too_large = v + 6,
				    .dropped = v + 7,
				    .expired = v + 8,
				    .damaged = v + 9,
				    .waiting = v + 10,
				    .retried = v + 11,
				    .rejected = v + 12 },
		};
		for (i = 0; i < ARRAY_SIZE(series); i++)
			fprintf(f, "%u.%u=%u ", k, i, (u32)v + i);
	}
	fclose(f);
	got = judge(&m, args);
	for (k = 0; k < 2; k++)
		for (i = 0; i < ARRAY_SIZE(series); i++) {
			int n = (int)strcspn(series[i], "N");

			snprintf(want, sizeof(want), "%u.%u ebpfprofiler_server_%.*s%s}\n", k, i, n,
				 series[i], names[k]);
			if (!strstr(got, want))
				print_error("no %s in\n%s\n", want, got);
			assert_non_null(strstr(got, want));
		}
	free(got);
	free(args);
}

static void before_the_first_window_nothing_is_made_up(void **state __unused)
{
	const struct cost none = { .hz = 19 };
	const struct metrics m = { .window_s = 10, .cost = &none };
	char *s = NULL;
	size_t len;
	FILE *f = open_memstream(&s, &len);

	metrics_write(&m, f);
	fclose(f);
	assert_null(strstr(s, "overhead_ratio"));
	assert_null(strstr(s, "rate_hertz"));
	free(s);
	expect(&m, "ebpfprofiler_profiling", "0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_counter_is_there_once),
		cmocka_unit_test(the_last_window_is_there_in_base_units),
		cmocka_unit_test(each_server_is_there_by_its_name),
		cmocka_unit_test(before_the_first_window_nothing_is_made_up),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
