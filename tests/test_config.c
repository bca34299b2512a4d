// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration: values and ranges as the specification gives them, one test for each kind of
 * error with the whole line that a person gets to see, and the sample INI and the man page against
 * the table. Runs in the top directory of the sources.
 */
#include "core/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ERR_SIZE 512

static char dir[] = "/tmp/test_config.XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char cmd[64];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* --- helpers --------------------------------------------------------------------------------- */

static int parse_len(struct config *c, const char *text, size_t len, char *err)
{
	assert_int_equal(config_init(c), 0);
	err[0] = '\0';
	return config_parse(c, "F", text, len, err, ERR_SIZE);
}

static void good(struct config *c, const char *text)
{
	char err[ERR_SIZE];
	int rc = parse_len(c, text, strlen(text), err);

	assert_string_equal(err, "");
	assert_int_equal(rc, 0);
}

static void bad_len(const char *text, size_t len, const char *expect)
{
	char err[ERR_SIZE];
	struct config c;

	assert_int_equal(parse_len(&c, text, len, err), -EINVAL);
	assert_string_equal(err, expect);
	config_fini(&c);
}

static void bad(const char *text, const char *expect)
{
	bad_len(text, strlen(text), expect);
}

/* A file in the test's directory; its path is valid until the next call. */
static const char *put_file(const char *name, const char *text, mode_t mode)
{
	static char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	return path;
}

static int read_config(const char *path, char *err)
{
	struct config c;
	int rc;

	assert_int_equal(config_init(&c), 0);
	err[0] = '\0';
	rc = config_read(&c, path, err, ERR_SIZE);
	config_fini(&c);
	return rc;
}

static void bad_file(const char *path, int rc, const char *expect_end)
{
	char err[ERR_SIZE], expect[ERR_SIZE];

	assert_int_equal(read_config(path, err), rc);
	snprintf(expect, sizeof(expect), "%s: %s", path, expect_end);
	assert_string_equal(err, expect);
}

/* --- values ---------------------------------------------------------------------------------- */

static void defaults_are_those_of_the_specification(void **state)
{
	struct config c;

	(void)state;
	good(&c, "");
	assert_false(c.defined);
	assert_false(c.enabled);
	assert_int_equal(c.sample_hz, 19);
	assert_int_equal(c.upload_interval_s, 60);
	assert_true(c.kernel_frames);
	assert_int_equal(c.max_frames, 64);
	assert_true(c.dwarf_unwind);
	assert_int_equal(c.table_memory_mb, 64);
	assert_true(c.cpu_budget == 1.0);
	assert_true(c.offcpu);
	assert_true(c.offcpu_min_ms == 1.0);
	assert_false(c.offcpu_dwarf);
	assert_false(c.lock);
	assert_false(c.thread_context);
	assert_true(c.python_stacks);
	assert_string_equal(c.runtime_stacks, "");
	assert_int_equal(c.runtime_hz, 19);
	assert_false(c.runtime_internals);
	assert_int_equal(c.nruntimes, 0);
	assert_true(c.strip_process_args);
	assert_false(c.plain_pid);
	assert_false(c.home_paths);
	assert_string_equal(c.service_rules, "");
	assert_string_equal(c.filter_include, "");
	assert_string_equal(c.filter_exclude, "");
	assert_int_equal(c.filter_min_age_s, 0);
	assert_string_equal(c.remote_url, "");
	assert_string_equal(c.remote_token_file, "");
	assert_string_equal(c.remote_ca_file, "");
	assert_int_equal(c.remote_poll_s, 60);
	assert_int_equal(c.nuploads, 0);
	assert_string_equal(c.web_listen, "127.0.0.1:7077");
	assert_string_equal(c.web_token_file, "");
	assert_string_equal(c.web_hosts, "");
	assert_string_equal(c.store_path, "/var/lib/ebpfprofiler");
	assert_int_equal(c.store_max_mb, 512);
	assert_int_equal(c.nlabels, 0);
	config_fini(&c);
}

static void every_key_reaches_its_member(void **state)
{
	struct config c;

	(void)state;
	good(&c,
	     "[ebpf_profiler]\nenabled = true\nsample_hz = 97\nupload_interval_s = 10\n"
	     "kernel_frames = false\nmax_frames = 128\ncpu_budget = 2.5\n"
	     "strip_process_args = false\nplain_pid = true\n"
	     "home_paths = true\n"
	     "offcpu = false\noffcpu_min_ms = 0.25\noffcpu_dwarf = true\nlock = true\n"
	     "thread_context = true\npython_stacks = false\nruntime_stacks = one, two\nruntime_hz = 5\n"
	     "runtime_internals = true\n"
	     "[upload]\nurl = https://example.org:8443/in\ntoken_file = /etc/t\n"
	     "ca_file = /etc/ca.pem\nproxy = http://p:3128\nsymbolize = host\nspool_mb = 7\n"
	     "[remote]\nurl = https://c.example/host\ntoken_file = /etc/r\n"
	     "ca_file = /etc/s.pem\npoll_s = 30\n"
	     "[web]\nlisten = [::1]:80\ntoken_file = /etc/w\nhosts = a.example,b\n"
	     "[service]\nrules = /etc/r\n"
	     "[filter]\ninclude = exe:a*, user:0\nexclude = unit:b.service\nmin_age_s = 3\n"
	     "[store]\npath = /srv/p\nmax_mb = 9\n[labels]\ncluster = east-1\nteam = a b\n");
	assert_true(c.defined);
	assert_true(c.enabled);
	assert_int_equal(c.sample_hz, 97);
	assert_int_equal(c.upload_interval_s, 10);
	assert_false(c.kernel_frames);
	assert_int_equal(c.max_frames, 128);
	assert_true(c.cpu_budget == 2.5);
	assert_false(c.offcpu);
	assert_true(c.offcpu_min_ms == 0.25);
	assert_true(c.offcpu_dwarf);
	assert_true(c.lock);
	assert_true(c.thread_context);
	assert_false(c.python_stacks);
	assert_string_equal(c.runtime_stacks, "one, two");
	assert_int_equal(c.runtime_hz, 5);
	assert_true(c.runtime_internals);
	assert_false(c.strip_process_args);
	assert_true(c.plain_pid);
	assert_true(c.home_paths);
	assert_string_equal(c.service_rules, "/etc/r");
	assert_string_equal(c.filter_include, "exe:a*, user:0");
	assert_string_equal(c.filter_exclude, "unit:b.service");
	assert_int_equal(c.filter_min_age_s, 3);
	assert_string_equal(c.remote_url, "https://c.example/host");
	assert_string_equal(c.remote_token_file, "/etc/r");
	assert_string_equal(c.remote_ca_file, "/etc/s.pem");
	assert_int_equal(c.remote_poll_s, 30);
	assert_string_equal(c.uploads[0].url, "https://example.org:8443/in");
	assert_string_equal(c.uploads[0].token_file, "/etc/t");
	assert_string_equal(c.uploads[0].ca_file, "/etc/ca.pem");
	assert_string_equal(c.uploads[0].proxy, "http://p:3128");
	assert_string_equal(c.uploads[0].symbolize, "host");
	assert_int_equal(c.uploads[0].spool_mb, 7);
	assert_string_equal(c.web_listen, "[::1]:80");
	assert_string_equal(c.web_token_file, "/etc/w");
	assert_string_equal(c.web_hosts, "a.example,b");
	assert_string_equal(c.store_path, "/srv/p");
	assert_int_equal(c.store_max_mb, 9);
	assert_int_equal(c.nlabels, 2);
	assert_string_equal(c.labels[0], "cluster=east-1");
	assert_string_equal(c.labels[1], "team=a b");
	config_fini(&c);
}

static bool of_runtime(const struct config_key *k)
{
	return !strcmp(k->section, "runtime.NAME");
}

static int try_value(const struct config_key *k, const char *value)
{
	char text[256], err[ERR_SIZE];
	struct config c;
	int rc;

	snprintf(text, sizeof(text), "[%s]\n%s = %s\n", of_runtime(k) ? "runtime.name" : k->section,
		 k->key, value);
	rc = parse_len(&c, text, strlen(text), err);
	config_fini(&c);
	return rc;
}

/* The edges that the table's own text promises hold, and nothing outside them. */
static void number_ranges_hold_at_both_edges(void **state)
{
	const struct config_key *k;
	char value[32];
	u32 i, n = 0;

	(void)state;
	for (i = 0; (k = config_table(i)); i++) {
		const char *dots = strstr(k->expected, "..");
		double lo, hi, step;

		if (strncmp(k->expected, "number ", 7) || !dots)
			continue;
		snprintf(value, sizeof(value), "%.*s", (int)(dots - k->expected - 7),
			 k->expected + 7);
		lo = strtod(value, NULL);
		hi = strtod(dots + 2, NULL);
		step = lo < 1 ? 0.001 : 1;
		n++;
		snprintf(value, sizeof(value), "%.10g", lo);
		assert_int_equal(try_value(k, value), 0);
		snprintf(value, sizeof(value), "%.10g", hi);
		assert_int_equal(try_value(k, value), 0);
		snprintf(value, sizeof(value), "%.10g", lo - step);
		assert_int_equal(try_value(k, value), -EINVAL);
		snprintf(value, sizeof(value), "%.10g", hi + step);
		assert_int_equal(try_value(k, value), -EINVAL);
	}
	/*
	 * sample_hz, upload_interval_s, max_frames, table_memory_mb, cpu_budget, offcpu_min_ms,
	 * runtime_hz, min_age_s, max_mb, poll_s, spool_mb, spool_hours, hz of a runtime
	 */
	assert_int_equal(n, 13);
}

static void numbers_are_plain_digits(void **state)
{
	static const char *const wrong[] = { "",
					     "0x13",
					     "1e1",
					     "+19",
					     "-1",
					     "19 20",
					     "19s",
					     "1,000",
					     "4294967315",
					     "nan",
					     "99999999999999999999999",
					     "19.0" };
	static const char *const wrong_decimal[] = { "",    ".",   "1..0", "1.0.0", "inf",
						     "nan", "1e0", "1,5",  "-1",    "0x1p0" };
	struct config_key hz = { .section = "ebpf_profiler", .key = "sample_hz" };
	struct config_key budget = { .section = "ebpf_profiler", .key = "cpu_budget" };
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(try_value(&hz, wrong[i]), -EINVAL);
	for (i = 0; i < ARRAY_SIZE(wrong_decimal); i++)
		assert_int_equal(try_value(&budget, wrong_decimal[i]), -EINVAL);
	assert_int_equal(try_value(&hz, "019"), 0);
	assert_int_equal(try_value(&budget, "0.5"), 0);
}

static void upload_url_is_http_or_https_or_empty(void **state)
{
	static const char *const right[] = { "", "http://h", "https://h/", "HTTPS://h:1/p",
					     "http://[::1]:8080" };
	static const char *const wrong[] = { "ftp://h",    "h:8080",       "http://",
					     "https:///p", "http://:80",   "http://h/p?q=1",
					     "http://h#f", "http://h/a b", "//h" };
	struct config_key url = { .section = "upload", .key = "url" };
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(right); i++)
		assert_int_equal(try_value(&url, right[i]), 0);
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(try_value(&url, wrong[i]), -EINVAL);
}

/* Row 58: an answer that anybody on the way can forge is none. */
static void row_58_remote_url_is_encrypted_or_of_this_host(void **state)
{
	static const char *const right[] = {
		"",
		"https://a.example/x",
		"https://u:p@a.example",
		"http://localhost:1/x",
		"http://127.0.0.1/x",
		"HTTP://127.200.3.4:80",
		"http://[::1]:80/x",
	};
	static const char *const wrong[] = {
		"http://a.example",
		"http://127.0.0.1.a.example/",
		"http://127.0.0.1:80@a.example/",
		"http://127.0.0.1\\@a.example/",
		"http://localhost@a.example/",
		"http://localhost.a.example/",
		"http://10.0.0.1/",
		"http://0.0.0.0/",
		"http://127.1/",
		"http://[::2]/",
		"http://[::1].a.example/",
		"http://2130706433/",
		"https://a.example/?x",
		"file:///etc/passwd",
		"ftp://127.0.0.1/",
		"127.0.0.1",
	};
	struct config_key url = { .section = "remote", .key = "url" };
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(right); i++)
		assert_int_equal(try_value(&url, right[i]), 0);
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		if (try_value(&url, wrong[i]) != -EINVAL)
			fail_msg("accepted: %s", wrong[i]);
}

static void runtime_stacks_are_names_separated_by_commas_or_blanks(void **state)
{
	static const char *const right[] = { "", "a", "a,b", "a, b", "a b", "x_1", ",a,,b," };
	static const char *const wrong[] = { "A",
					     "a;b",
					     "a-b",
					     "a/b",
					     "\xc3\xbc",
					     "abcdefghijklmnopqrstuvwxyz_01234" /* 32 bytes */ };
	struct config_key key = { .section = "ebpf_profiler", .key = "runtime_stacks" };
	char many[CONFIG_MAX_LINE] = "";
	struct config c;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(right); i++)
		assert_int_equal(try_value(&key, right[i]), 0);
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(try_value(&key, wrong[i]), -EINVAL);
	for (i = 0; i < CONFIG_MAX_RUNTIMES; i++)
		strcat(many, "a ");
	assert_int_equal(try_value(&key, many), 0);
	strcat(many, "a");
	assert_int_equal(try_value(&key, many), -EINVAL);
	good(&c, "[ebpf_profiler]\nruntime_stacks = one,  two,three_legacy\n");
	assert_true(config_runtime_enabled(&c, "x", "one"));
	assert_true(config_runtime_enabled(&c, "x", "two"));
	assert_true(config_runtime_enabled(&c, "x", "three_legacy"));
	assert_false(config_runtime_enabled(&c, "x", "three"));
	assert_false(config_runtime_enabled(&c, "x", "tw"));
	assert_false(config_runtime_enabled(&c, "x", ""));
	config_fini(&c);
}

static void runtime_without_a_section_has_defaults(void **state)
{
	struct config_runtime r;
	struct config c;

	(void)state;
	good(&c, "[ebpf_profiler]\nruntime_hz = 7\n");
	r = config_runtime(&c, "one");
	assert_string_equal(r.name, "one");
	assert_int_equal(r.hz, 7);
	assert_string_equal(r.layout, "");
	assert_false(r.labels);
	config_fini(&c);
}

static void each_runtime_section_is_its_own(void **state)
{
	struct config_runtime r;
	struct config c;

	(void)state;
	good(&c, "[runtime.one]\nenabled = false\nhz = 3\nlayout = /l/one\n"
		 "[runtime.two]\nlayout = /l/two\nlabels = true\n"
		 "[ebpf_profiler]\nruntime_hz = 50\n[runtime.three]\n");
	assert_int_equal(c.nruntimes, 3);
	r = config_runtime(&c, "one");
	assert_int_equal(r.hz, 3);
	assert_string_equal(r.layout, "/l/one");
	assert_false(r.labels);
	r = config_runtime(&c, "two");
	assert_int_equal(r.hz, 50);
	assert_string_equal(r.layout, "/l/two");
	assert_true(r.labels);
	r = config_runtime(&c, "three");
	assert_int_equal(r.hz, 50);
	config_fini(&c);
}

/* The runtime's own section, then python_stacks or the list. */
static void runtime_is_enabled_by_its_section_else_by_its_word(void **state)
{
	struct config c;

	(void)state;
	good(&c, "");
	assert_true(config_runtime_enabled(&c, "one", "python"));
	assert_false(config_runtime_enabled(&c, "one", "one"));
	config_fini(&c);
	good(&c, "[ebpf_profiler]\npython_stacks = false\nruntime_stacks = one two\n"
		 "[runtime.one]\nenabled = false\n[runtime.three]\nenabled = true\n"
		 "[runtime.two]\nenabled =\n");
	assert_false(config_runtime_enabled(&c, "zero", "python"));
	assert_false(config_runtime_enabled(&c, "one", "one"));
	assert_true(config_runtime_enabled(&c, "two", "two"));
	assert_true(config_runtime_enabled(&c, "three", "three"));
	assert_true(config_runtime_enabled(&c, "three", "python"));
	config_fini(&c);
}

/* --- grammar --------------------------------------------------------------------------------- */

static void comments_stand_alone_or_follow_a_blank(void **state)
{
	struct config c;

	(void)state;
	good(&c, "; one\n# two\n[ebpf_profiler] ; three\nsample_hz = 20   ; per CPU, 1..1000\n"
		 "max_frames = 65\t; four\n[upload] # five\nurl =    ; empty\n"
		 "[labels]\nx = a;b\ny = c#d # e\n");
	assert_int_equal(c.sample_hz, 20);
	assert_int_equal(c.max_frames, 65);
	assert_string_equal(c.uploads[0].url, "");
	assert_string_equal(c.labels[0], "x=a;b");
	assert_string_equal(c.labels[1], "y=c#d # e");
	config_fini(&c);
}

static void byte_order_mark_and_crlf_are_accepted(void **state)
{
	struct config c;

	(void)state;
	good(&c, "\xef\xbb\xbf[ebpf_profiler]\r\nsample_hz = 20\r\n\r\nmax_frames = 65");
	assert_true(c.defined);
	assert_int_equal(c.sample_hz, 20);
	assert_int_equal(c.max_frames, 65);
	config_fini(&c);
}

static void indented_keys_are_keys_of_their_own(void **state)
{
	struct config c;

	(void)state;
	good(&c, "[ebpf_profiler]\n  sample_hz = 20\n\tmax_frames = 65\n");
	assert_int_equal(c.sample_hz, 20);
	assert_int_equal(c.max_frames, 65);
	config_fini(&c);
}

static void empty_section_defines_the_profiler_but_leaves_it_off(void **state)
{
	struct config c;

	(void)state;
	good(&c, "[ebpf_profiler]\n");
	assert_true(c.defined);
	assert_false(c.enabled);
	config_fini(&c);
	good(&c, "# [ebpf_profiler]\n[upload]\n");
	assert_false(c.defined);
	config_fini(&c);
}

static void section_may_be_opened_again(void **state)
{
	struct config c;

	(void)state;
	good(&c, "[store]\nmax_mb = 5\n[upload]\n[store]\npath = /x\n");
	assert_int_equal(c.store_max_mb, 5);
	assert_string_equal(c.store_path, "/x");
	config_fini(&c);
}

static void lines_up_to_the_limit_and_long_comments_are_accepted(void **state)
{
	char text[1000], value[CONFIG_MAX_LINE];
	struct config c;

	(void)state;
	/* "url = " and the value make 198 bytes; the comment is longer than inih's buffer. */
	memset(value, 'p', sizeof(value));
	memcpy(value, "http://", 7);
	value[192] = '\0';
	snprintf(text, sizeof(text), "# %0400d = 1\n[upload]\nurl = %s\n", 0, value);
	good(&c, text);
	assert_int_equal(strlen(c.uploads[0].url), 192);
	config_fini(&c);
}

static void labels_may_be_utf8_and_thirty_two(void **state)
{
	char text[1024] = "[labels]\nplace = Z\xc3\xbcrich \xe2\x9c\x93\n";
	struct config c;
	int i;

	(void)state;
	for (i = 1; i < CONFIG_MAX_LABELS; i++)
		sprintf(text + strlen(text), "_l.%d = v\n", i);
	good(&c, text);
	assert_int_equal(c.nlabels, 32);
	assert_string_equal(c.labels[0], "place=Z\xc3\xbcrich \xe2\x9c\x93");
	assert_string_equal(c.labels[31], "_l.31=v");
	config_fini(&c);
}

/* --- errors of the text ---------------------------------------------------------------------- */

static void error_bad_value_names_file_line_key_value_and_range(void **state)
{
	(void)state;
	bad("\n; c\n[ebpf_profiler]\nsample_hz = 1001\n",
	    "F:4: [ebpf_profiler] sample_hz = 1001: expected number 1..1000");
	bad("[ebpf_profiler]\nenabled = yes\n",
	    "F:2: [ebpf_profiler] enabled = yes: expected true or false");
	bad("[upload]\nsymbolize = hos\n", "F:2: [upload] symbolize = hos: expected none or host");
	bad("[store]\npath = data\n", "F:2: [store] path = data: expected absolute path");
	bad("[store]\npath =\n", "F:2: [store] path = : expected absolute path");
	bad("[upload]\ntoken_file = t\n",
	    "F:2: [upload] token_file = t: expected absolute path, or nothing");
	bad("[upload]\nproxy = a b\n",
	    "F:2: [upload] proxy = a b: expected [SCHEME://]HOST[:PORT], or nothing");
	bad("[upload]\nurl = ftp://h\n", "F:2: [upload] url = ftp://h: expected http:// or "
					 "https:// URL without query, or nothing");
}

static void error_comment_needs_a_blank_before_it(void **state)
{
	(void)state;
	bad("[ebpf_profiler]\nsample_hz = 19;per CPU\n",
	    "F:2: [ebpf_profiler] sample_hz = 19;per CPU: expected number 1..1000");
}

static void error_unknown_key_hints_at_the_nearest(void **state)
{
	(void)state;
	bad("[ebpf_profiler]\nsampel_hz = 19\n",
	    "F:2: [ebpf_profiler] sampel_hz: unknown key, did you mean sample_hz?");
	bad("[ebpf_profiler]\nSample_HZ = 19\n",
	    "F:2: [ebpf_profiler] Sample_HZ: unknown key, did you mean sample_hz?");
	bad("[ebpf_profiler]\ncolour = red\n", "F:2: [ebpf_profiler] colour: unknown key");
	bad("[store]\nspool_mb = 3\n",
	    "F:2: [store] spool_mb: unknown key here, it belongs to [upload]");
}

static void error_unknown_section_is_found_even_when_empty(void **state)
{
	(void)state;
	bad("[ebpf-profiler]\nenabled = true\n",
	    "F:1: [ebpf-profiler]: unknown section, did you mean [ebpf_profiler]?");
	bad("[label]\n", "F:1: [label]: unknown section, did you mean [labels]?");
	bad("[ upload ]\n", "F:1: [ upload ]: unknown section, did you mean [upload]?");
	bad("[metrics]\n", "F:1: [metrics]: unknown section");
	bad("[]\n", "F:1: []: unknown section");
}

static void each_upload_section_is_its_own(void **state)
{
	struct config c;

	(void)state;
	good(&c, "[upload.two]\nurl = https://two\nprotocol = otlp-grpc\nuser = u\n"
		 "password_file = /p\nspool_hours = 1\n[upload]\nurl = http://one\n"
		 "headers = X-Scope-OrgID: a b, X-Key: c\ncert_file = /c\nkey_file = /k\n");
	assert_int_equal(c.nuploads, 2);
	assert_string_equal(c.uploads[0].name, "two");
	assert_string_equal(c.uploads[0].url, "https://two");
	assert_string_equal(c.uploads[0].protocol, "otlp-grpc");
	assert_string_equal(c.uploads[0].user, "u");
	assert_string_equal(c.uploads[0].password_file, "/p");
	assert_int_equal(c.uploads[0].spool_hours, 1);
	assert_string_equal(c.uploads[0].headers, "");
	assert_string_equal(c.uploads[1].name, "");
	assert_string_equal(c.uploads[1].url, "http://one");
	assert_string_equal(c.uploads[1].protocol, "pprof");
	assert_string_equal(c.uploads[1].headers, "X-Scope-OrgID: a b, X-Key: c");
	assert_string_equal(c.uploads[1].key_file, "/k");
	assert_int_equal(c.uploads[1].spool_hours, 24);
	config_fini(&c);
}

static void error_upload_section(void **state)
{
	char text[1024] = "";
	int i;

	(void)state;
	bad("[upload.]\n",
	    "F:1: [upload.]: expected a name of 1..31 letters a-z, digits and _ after the point");
	bad("[upload.a]\nurl = http://a\n[upload]\n[upload.a]\nurl = http://b\n",
	    "F:5: [upload.a] url: already set on line 2");
	bad("[upload]\nprotocol = otel\n",
	    "F:2: [upload] protocol = otel: expected pprof, otel-pprof, pyroscope, parca, otlp or "
	    "otlp-grpc");
	bad("[upload.a]\ntoken_file = /t\nuser = u\npassword_file = /p\n",
	    "F:3: [upload.a] user: expected either user or token_file");
	bad("[upload]\n\nuser = u\n",
	    "F:3: [upload] user: expected user and password_file together");
	bad("[upload]\npassword_file = /p\n",
	    "F:2: [upload] password_file: expected user and password_file together");
	bad("[upload]\nkey_file = /k\n", "F:2: [upload] key_file: expected cert_file beside it");
	bad("[upload]\nheaders = X-A: 1, nonsense\n",
	    "F:2: [upload] headers: expected NAME: VALUE");
	bad("[upload]\nuser = a:b\n",
	    "F:2: [upload] user = a:b: expected text without :, or nothing");
	for (i = 0; i < 9; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "[upload.s%d]\n", i);
	bad(text, "F:9: [upload.s8]: expected at most 8 of these sections");
}

static void error_runtime_section(void **state)
{
	static const char end[] =
		": expected a name of 1..31 letters a-z, digits and _ after the point";
	char text[1024] = "", expect[ERR_SIZE];
	int i;

	(void)state;
	snprintf(expect, sizeof(expect), "F:1: [runtime.]%s", end);
	bad("[runtime.]\n", expect);
	snprintf(expect, sizeof(expect), "F:1: [runtime.NAME]%s", end);
	bad("[runtime.NAME]\n", expect);
	/* As long as inih's own buffer for a section. */
	snprintf(text, sizeof(text), "[runtime.%050d]\n", 0);
	snprintf(expect, sizeof(expect), "F:1: [runtime.%050d]%s", 0, end);
	bad(text, expect);
	bad("[runtime]\n", "F:1: [runtime]: unknown section");
	bad("[runtime.a]\nhz = 5\n[runtime.b]\nhz = 6\n[runtime.a]\nhz = 7\n",
	    "F:6: [runtime.a] hz: already set on line 2");
	bad("[runtime.a]\nhz = 1001\n", "F:2: [runtime.a] hz = 1001: expected number 0..1000");
	bad("[runtime.a]\nhzz = 1\n", "F:2: [runtime.a] hzz: unknown key, did you mean hz?");
	bad("[runtime.a]\nmax_mb = 1\n",
	    "F:2: [runtime.a] max_mb: unknown key here, it belongs to [store]");
	bad("[store]\nlayout = /x\n",
	    "F:2: [store] layout: unknown key here, it belongs to [runtime.NAME]");
	*text = '\0';
	for (i = 0; i < 33; i++)
		sprintf(text + strlen(text), "[runtime.r%d]\n", i);
	bad(text, "F:33: [runtime.r32]: expected at most 32 of these sections");
}

static void error_broken_section_line(void **state)
{
	(void)state;
	bad("[upload\nurl =\n", "F:1: [upload: expected ] at the end of the section's name");
	bad("[upload] url = http://h\n", "F:1: [upload] url = http://h: expected nothing after ]");
}

static void error_duplicate_key_names_the_first_line(void **state)
{
	(void)state;
	bad("[store]\nmax_mb = 5\n[upload]\n[store]\nmax_mb = 6\n",
	    "F:5: [store] max_mb: already set on line 2");
	bad("[labels]\na = 1\nb = 1\na = 2\n", "F:4: [labels] a: already set on line 2");
}

static void error_key_before_any_section(void **state)
{
	(void)state;
	bad("sample_hz = 19\n[ebpf_profiler]\n",
	    "F:1: sample_hz: expected a [section] before the first key");
}

static void error_key_without_name(void **state)
{
	(void)state;
	bad("[upload]\n= x\n", "F:2: [upload]: expected a key before = x");
}

static void error_line_that_is_nothing(void **state)
{
	(void)state;
	bad("[upload]\nurl\n", "F:2: expected [section], key = value, or a comment");
	bad("[upload]\nurl ; = http://h\n", "F:2: expected [section], key = value, or a comment");
	/* Also as the last line, and before another error. */
	bad("[upload]\nurl", "F:2: expected [section], key = value, or a comment");
	bad("[upload]\nurl\nspool_mb = 0\n", "F:2: expected [section], key = value, or a comment");
}

static void error_line_too_long(void **state)
{
	char text[400], expect[200];
	size_t i;

	(void)state;
	/* One byte over; far over; at the end of the text without newline. */
	for (i = 199; i < 300; i += 50) {
		snprintf(text, sizeof(text), "[labels]\nx = %0*d\ny = 1", (int)i - 4, 0);
		snprintf(expect, sizeof(expect),
			 "F:2: line too long: %zu bytes, expected at most 198", i);
		bad(text, expect);
	}
	snprintf(text, sizeof(text), "[labels]\nx = %0300d", 0);
	bad(text, "F:2: line too long: 304 bytes, expected at most 198");
}

static void error_nul_byte(void **state)
{
	static const char text[] = "[upload]\nurl = http://h\0evil\n";
	static const char comment[] = "[upload]\n\n; a\0b\n";

	(void)state;
	bad_len(text, sizeof(text) - 1, "F:2: NUL byte, expected text");
	bad_len(comment, sizeof(comment) - 1, "F:3: NUL byte, expected text");
}

static void error_control_character(void **state)
{
	(void)state;
	bad("[upload]\nurl = http://h\x1b[31m\n", "F:2: control character 0x1b, expected text");
	bad("[upload]\rurl = http://h\n", "F:1: control character 0x0d, expected text");
}

static void error_label_name(void **state)
{
	static const char end[] = ": expected a name of letters, digits, _ and . that does not "
				  "begin with a digit or .";
	static const char *const wrong[] = { "1a", ".a", "a-b", "a b", "\xc3\xbc" };
	char text[64], expect[200];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		snprintf(text, sizeof(text), "[labels]\n%s = v\n", wrong[i]);
		snprintf(expect, sizeof(expect), "F:2: [labels] %s%s", wrong[i], end);
		bad(text, expect);
	}
}

static void error_label_that_the_profiler_sets_itself(void **state)
{
	static const char *const own[] = {
		"host",
		"container",
		"container.name",
		"k8s.pod",
		"k8s.namespace",
		"k8s.container",
		"systemd.unit",
		"service.version",
		"service.instance.id",
		"process.executable",
		"process.command_line",
		"pid",
		"thread.name",
		"thread.state",
		"wait",
		"lock.address",
		"lock.holder",
	};
	char text[64], expect[200];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(own); i++) {
		snprintf(text, sizeof(text), "[labels]\n%s = v\n", own[i]);
		snprintf(expect, sizeof(expect),
			 "F:2: [labels] %s: the profiler sets this label itself, expected another "
			 "name",
			 own[i]);
		bad(text, expect);
	}
}

static void error_label_value(void **state)
{
	(void)state;
	bad("[labels]\na =\n", "F:2: [labels] a = : expected 1..200 bytes of UTF-8 text");
	/* Latin-1, a surrogate, an overlong slash: replaced in the message as well. */
	bad("[labels]\na = Z\xfcrich\n",
	    "F:2: [labels] a = Z\xef\xbf\xbdrich: expected 1..200 bytes of UTF-8 text");
	bad("[labels]\na = \xed\xa0\x80\n",
	    "F:2: [labels] a = \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd: expected 1..200 bytes of "
	    "UTF-8 text");
	bad("[labels]\na = \xc0\xaf\n",
	    "F:2: [labels] a = \xef\xbf\xbd\xef\xbf\xbd: expected 1..200 bytes of UTF-8 text");
}

static void error_too_many_labels(void **state)
{
	char text[1024] = "[labels]\n";
	int i;

	(void)state;
	for (i = 0; i < 33; i++)
		sprintf(text + strlen(text), "l%d = v\n", i);
	bad(text, "F:34: [labels] l32: expected at most 32 labels");
}

static void error_is_the_first_one_and_fits_any_buffer(void **state)
{
	static const char text[] = "[store]\nmax_mb = 0\npath = x\nwhat\n";
	char err[16];
	struct config c;
	size_t size;

	(void)state;
	bad(text, "F:2: [store] max_mb = 0: expected number 1..1048576");
	for (size = 0; size < sizeof(err); size++) {
		memset(err, 'x', sizeof(err));
		assert_int_equal(config_init(&c), 0);
		assert_int_equal(config_parse(&c, "F", text, strlen(text), err, size), -EINVAL);
		config_fini(&c);
		assert_int_equal(err[size], 'x');
		if (size)
			assert_int_equal(strlen(err), size - 1);
	}
}

/* --- errors of the file ---------------------------------------------------------------------- */

static void error_file_is_missing(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/none", dir);
	bad_file(path, -ENOENT, "cannot be read: No such file or directory");
}

static void error_directory_and_fifo_are_refused_without_waiting(void **state)
{
	char path[128];

	(void)state;
	bad_file(dir, -EISDIR, "not a regular file");
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	bad_file(path, -EINVAL, "not a regular file");
	bad_file("/dev/zero", -EINVAL, "not a regular file");
}

static void error_file_is_too_large(void **state)
{
	const char *path = put_file("huge", "[labels]\nx = ", 0600);

	(void)state;
	/* One line of a gigabyte. */
	assert_int_equal(truncate(path, 1l << 30), 0);
	bad_file(path, -E2BIG, "larger than 1048576 bytes");
}

static void file_of_a_mebibyte_is_read(void **state)
{
	const char *path = put_file("large", "", 0600);
	char err[ERR_SIZE];
	FILE *f = fopen(path, "w");
	long i;

	(void)state;
	assert_non_null(f);
	for (i = 0; i < (1 << 20) - 16; i++)
		fputc(i % 64 ? ';' : '\n', f);
	fputs("[ebpf_profiler]\n", f);
	fclose(f);
	assert_int_equal(read_config(path, err), 0);
	assert_string_equal(err, "");
}

static void empty_file_and_symlink_are_read(void **state)
{
	char err[ERR_SIZE], link[128];
	const char *path = put_file("empty", "", 0600);

	(void)state;
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(read_config(path, err), 0);
	assert_int_equal(read_config(link, err), 0);
}

/* A reload must not take over a configuration with which nothing can start. */
static void rules_that_the_file_names_are_read_with_it(void **state)
{
	char err[ERR_SIZE], text[256], rules[128], path[128], want[256];

	(void)state;
	snprintf(rules, sizeof(rules), "%s", put_file("rules", "exe:a = b\n", 0600));
	snprintf(text, sizeof(text), "[service]\nrules = %s\n", rules);
	snprintf(path, sizeof(path), "%s", put_file("with_rules", text, 0600));
	assert_int_equal(read_config(path, err), 0);
	put_file("rules", "exe:a = b\nnonsense\n", 0600);
	assert_int_equal(read_config(path, err), -EINVAL);
	snprintf(want, sizeof(want), "%s:2: expected KIND:PATTERN = NAME", rules);
	assert_string_equal(err, want);
	unlink(rules);
	assert_int_equal(read_config(path, err), -ENOENT);
	assert_non_null(strstr(err, rules));
}

static void error_file_that_others_may_write_is_refused_as_root(void **state)
{
	static const mode_t modes[] = { 0666, 0602, 0660 };
	char end[256], link[128];
	const char *path;
	size_t i;

	(void)state;
	if (geteuid())
		skip();
	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		path = put_file("open", "", modes[i]);
		snprintf(end, sizeof(end),
			 "writable by group or others (mode %04o), refused as root; run: "
			 "chmod go-w '%s'",
			 modes[i], path);
		bad_file(path, -EPERM, end);
	}
	/* A link does not hide it. */
	snprintf(link, sizeof(link), "%s/open_link", dir);
	assert_int_equal(symlink(put_file("open", "", 0666), link), 0);
	snprintf(end, sizeof(end),
		 "writable by group or others (mode 0666), refused as root; run: chmod go-w '%s'",
		 link);
	bad_file(link, -EPERM, end);
}

static void error_file_of_another_user_is_refused_as_root(void **state)
{
	const char *path;
	char end[256];

	(void)state;
	if (geteuid())
		skip();
	path = put_file("foreign", "", 0644);
	if (chown(path, 12345, 0))
		skip();
	snprintf(end, sizeof(end), "owned by uid 12345, refused as root; run: chown root '%s'",
		 path);
	bad_file(path, -EPERM, end);
}

static void error_quotes_no_terminal_control_of_the_path(void **state)
{
	char err[ERR_SIZE];

	(void)state;
	assert_int_equal(read_config("/nowhere/\x1b[31m\xff", err), -ENOENT);
	assert_string_equal(err, "/nowhere/?[31m\xef\xbf\xbd: cannot be read: No such file or "
				 "directory");
}

/* --- documents ------------------------------------------------------------------------------- */

static char *load(const char *path)
{
	char *text;

	assert_int_equal(read_file(path, 1 << 20, &text, NULL), 0);
	return text;
}

/* Comment signs, line breaks and case aside, so that text may be wrapped. */
static char *flatten(const char *text)
{
	char *flat = malloc(strlen(text) + 1), *out = flat;

	assert_non_null(flat);
	for (; *text; text++) {
		if (!strncmp(text, "\n# ", 3)) {
			*out++ = ' ';
			text += 2;
			continue;
		}
		*out++ = (char)tolower((u8)*text);
	}
	*out = '\0';
	return flat;
}

/* --- a running daemon's --- */

static bool changes_in_place(const char *before, const char *after, struct config *c)
{
	struct config fresh;
	bool ok;

	good(c, before);
	good(&fresh, after);
	ok = config_set_live(c, &fresh);
	config_fini(&fresh);
	return ok;
}

static void a_running_daemon_takes_rate_window_budget_and_switch(void **state)
{
	struct config c;

	(void)state;
	assert_true(changes_in_place("[ebpf_profiler]\nenabled = true\nmax_frames = 9\n",
				     "[ebpf_profiler]\nmax_frames=9\nsample_hz = 97\n"
				     "upload_interval_s = 7\ncpu_budget = 0.5\nplain_pid = true\n",
				     &c));
	assert_true(c.defined && !c.enabled && c.plain_pid);
	assert_int_equal(c.sample_hz, 97);
	assert_int_equal(c.upload_interval_s, 7);
	assert_true(c.cpu_budget > 0.49 && c.cpu_budget < 0.51);
	assert_int_equal(c.max_frames, 9);
	config_fini(&c);
	assert_true(changes_in_place("[ebpf_profiler]\nenabled = true\n", "", &c));
	assert_true(!c.defined && !c.enabled);
	config_fini(&c);
}

static void all_else_is_made_anew(void **state)
{
	static const char *const other[] = {
		"[ebpf_profiler]\nmax_frames = 10\n",
		"[labels]\na = b\n",
		"[labels]\na = c\n[ebpf_profiler]\nmax_frames = 9\n",
		"[runtime.one]\nhz = 3\n[labels]\na = b\n[ebpf_profiler]\nmax_frames = 9\n",
		"[ebpf_profiler]\nmax_frames = 9\n[labels]\na = b\n[web]\nlisten =\n",
		"",
	};
	static const char first[] = "[ebpf_profiler]\nmax_frames = 9\n[labels]\na = b\n";
	struct config c;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(other); i++) {
		assert_false(changes_in_place(first, other[i], &c));
		assert_int_equal(c.max_frames, 9);
		config_fini(&c);
	}
	/* Order and notes are no difference. */
	assert_true(changes_in_place(
		first, "; a note\n[labels]\na = b\n[ebpf_profiler]\nmax_frames = 9\n", &c));
	config_fini(&c);
}

static void sample_ini_parses_and_enables_the_profiler(void **state)
{
	_cleanup_free_ char *text = load("dist/ebpfprofiler.ini");
	struct config c;

	(void)state;
	good(&c, text);
	assert_true(c.defined);
	assert_true(c.enabled);
	assert_int_equal(c.nlabels, 0);
	config_fini(&c);
}

static void sample_ini_has_every_key_with_default_and_help(void **state)
{
	_cleanup_free_ char *text = load("dist/ebpfprofiler.ini");
	_cleanup_free_ char *flat = flatten(text);
	const struct config_key *k;
	char want[512];
	u32 i;

	(void)state;
	for (i = 0; (k = config_table(i)); i++) {
		_cleanup_free_ char *lower = NULL;
		const char *standard = strcmp(k->key, "enabled") ? k->standard : "true";

		if (of_runtime(k)) /* a section that is only shown */
			snprintf(want, sizeof(want), "%s. %s.\n# %s =%s%s", k->help, k->expected,
				 k->key, *k->standard ? " " : "", k->standard);
		else
			snprintf(want, sizeof(want), "%s. %s%s.\n%s =%s%s\n", k->help, k->expected,
				 strcmp(k->key, "enabled") ? "" : ", default false", k->key,
				 *standard ? " " : "", standard);
		lower = flatten(want);
		if (!strstr(flat, lower))
			fail_msg("the sample lacks: %s", lower);
		snprintf(want, sizeof(want), "[%s]\n", k->section);
		assert_non_null(strstr(text, want));
	}
	assert_true(i > 0);
	assert_non_null(strstr(text, "\n[labels]\n"));
}

static void man_page_has_every_key_with_default_and_help(void **state)
{
	_cleanup_free_ char *text = load("dist/ebpfprofiler.ini.5");
	const struct config_key *k;
	char want[512];
	u32 i;

	(void)state;
	for (i = 0; (k = config_table(i)); i++) {
		snprintf(want, sizeof(want), ".It Va %s\n.Pq %s; default %s\n%c%s.\n", k->key,
			 k->expected, *k->standard ? k->standard : "nothing",
			 toupper((u8)k->help[0]), k->help + 1);
		if (!strstr(text, want))
			fail_msg("the man page lacks: %s", want);
		snprintf(want, sizeof(want), ".Ss [%s]\n", k->section);
		assert_non_null(strstr(text, want));
	}
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(defaults_are_those_of_the_specification),
		T(every_key_reaches_its_member),
		T(number_ranges_hold_at_both_edges),
		T(numbers_are_plain_digits),
		T(upload_url_is_http_or_https_or_empty),
		T(row_58_remote_url_is_encrypted_or_of_this_host),
		T(runtime_stacks_are_names_separated_by_commas_or_blanks),
		T(runtime_without_a_section_has_defaults),
		T(each_runtime_section_is_its_own),
		T(runtime_is_enabled_by_its_section_else_by_its_word),
		T(comments_stand_alone_or_follow_a_blank),
		T(byte_order_mark_and_crlf_are_accepted),
		T(indented_keys_are_keys_of_their_own),
		T(empty_section_defines_the_profiler_but_leaves_it_off),
		T(section_may_be_opened_again),
		T(lines_up_to_the_limit_and_long_comments_are_accepted),
		T(labels_may_be_utf8_and_thirty_two),
		T(error_bad_value_names_file_line_key_value_and_range),
		T(error_comment_needs_a_blank_before_it),
		T(error_unknown_key_hints_at_the_nearest),
		T(error_unknown_section_is_found_even_when_empty),
		T(each_upload_section_is_its_own),
		T(error_upload_section),
		T(error_runtime_section),
		T(error_broken_section_line),
		T(error_duplicate_key_names_the_first_line),
		T(error_key_before_any_section),
		T(error_key_without_name),
		T(error_line_that_is_nothing),
		T(error_line_too_long),
		T(error_nul_byte),
		T(error_control_character),
		T(error_label_name),
		T(error_label_that_the_profiler_sets_itself),
		T(error_label_value),
		T(error_too_many_labels),
		T(error_is_the_first_one_and_fits_any_buffer),
		T(a_running_daemon_takes_rate_window_budget_and_switch),
		T(all_else_is_made_anew),
		T(error_file_is_missing),
		T(error_directory_and_fifo_are_refused_without_waiting),
		T(error_file_is_too_large),
		T(file_of_a_mebibyte_is_read),
		T(empty_file_and_symlink_are_read),
		T(rules_that_the_file_names_are_read_with_it),
		T(error_file_that_others_may_write_is_refused_as_root),
		T(error_file_of_another_user_is_refused_as_root),
		T(error_quotes_no_terminal_control_of_the_path),
		T(sample_ini_parses_and_enables_the_profiler),
		T(sample_ini_has_every_key_with_default_and_help),
		T(man_page_has_every_key_with_default_and_help),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
