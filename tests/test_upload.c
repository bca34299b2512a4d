// SPDX-License-Identifier: Apache-2.0
/*
 * Uploads against tests/server.py, a real HTTP server on the loopback interface that misbehaves on
 * request (row 55), and against no server at all. What arrived is compared byte for byte with
 * what this file made; order and times come from the server's own record.
 */
#include "core/upload.h"
#include "core/log.h"
#include "core/stat.h"
#include "core/pprof_in.h"
#include "pprof_make.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define MS       1000000ull
#define START    (UINT64_C(1796043300) * NSEC_PER_SEC)
#define PATIENCE (10 * NSEC_PER_SEC) /* before a test gives up; never waited for in a good run */

struct server {
	pid_t pid;
	int life; /* its stdin; it ends when this is closed */
	int port;
	char dir[128];
};

static char base[64];        /* a fresh directory per test */
static struct server shared; /* serves nearly all tests */
static struct server server; /* the one of this test */
static u32 accepted_before;
static u64 stats_before[STAT_MAX];

/* --- small things ----------------------------------------------------------------------------- */

static const char *path_of(const char *fmt, ...) __printf(1, 2);
static const char *path_of(const char *fmt, ...)
{
	static char path[4][PATH_MAX];
	static int i;
	char *p = path[i++ % 4];
	va_list args;

	va_start(args, fmt);
	vsnprintf(p, PATH_MAX, fmt, args);
	va_end(args);
	return p;
}

static void write_text(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
}

static u32 count(const char *dir, const char *end)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	u32 n = 0;

	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name), tail = strlen(end);

		n += len >= tail && !strcmp(e->d_name + len - tail, end);
	}
	if (d)
		closedir(d);
	return n;
}

static u64 grown(enum stat_id id)
{
	return stat_get(id) - stats_before[id];
}

static u32 arrived(void)
{
	return count(server.dir, ".body") - accepted_before;
}

static u32 spooled(void)
{
	return count(path_of("%s/spool", base), ".spool");
}

#define wait_for(condition)                                   \
	do {                                                  \
		u64 end = now_monotonic() + PATIENCE;         \
		while (!(condition) && now_monotonic() < end) \
			usleep(2000);                         \
		assert_true(condition);                       \
	} while (0)

/* --- the server ------------------------------------------------------------------------------- */

static void set_mode(const char *mode)
{
	const char *part = path_of("%s/mode.part", server.dir);

	write_text(part, mode, strlen(mode));
	assert_int_equal(rename(part, path_of("%s/mode", server.dir)), 0);
}

static bool grpc; /* of the servers that are started */

static void exec_server(const char *dir, int port, const char *tls, int in, int out)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", port);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	/* Debian's, which has the grpc library. */
	if (grpc && tls)
		execl("/usr/bin/python3", "python3", "-B", "tests/server.py", dir, "--grpc",
		      "--cert", path_of("%s/cert.pem", tls), "--key", path_of("%s/key.pem", tls),
		      NULL);
	if (grpc)
		execl("/usr/bin/python3", "python3", "-B", "tests/server.py", dir, "--grpc", NULL);
	/* With a ca.pem, clients need a certificate. */
	if (tls)
		execlp("python3", "python3", "-SEI", "tests/server.py", dir, "--port", number,
		       "--cert", path_of("%s/cert.pem", tls), "--key", path_of("%s/key.pem", tls),
		       access(path_of("%s/ca.pem", tls), R_OK) ? NULL : "--ca",
		       path_of("%s/ca.pem", tls), NULL);
	else
		execlp("python3", "python3", "-SEI", "tests/server.py", dir, "--port", number,
		       NULL);
	_exit(127);
}

/* Port 0: any. */
static void start_server(struct server *s, int port, const char *tls)
{
	int in[2], out[2];
	char line[64];
	ssize_t n;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (!s->pid)
		exec_server(s->dir, port, tls, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	s->life = in[1];
	n = read(out[0], line, sizeof(line) - 1);
	close(out[0]);
	assert_true(n > 0);
	line[n] = '\0';
	assert_int_equal(sscanf(line, "port %d", &s->port), 1);
}

static void stop_server(struct server *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	close(s->life);
}

struct attempt {
	double at;
	char what[32];
	u64 reply_bytes;
	char query[512];
};

/* What the server saw since the test began. */
static u32 attempts(struct attempt *ret, u32 max)
{
	FILE *f = fopen(path_of("%s/attempts", server.dir), "re");
	u32 n = 0;

	while (f && n < max &&
	       fscanf(f, "%lf %31s %" SCNu64 " %511s", &ret[n].at, ret[n].what, &ret[n].reply_bytes,
		      ret[n].query) == 4)
		n++;
	if (f)
		fclose(f);
	return n;
}

static u32 attempt_count(const char *what)
{
	static struct attempt a[1000];
	u32 n = attempts(a, ARRAY_SIZE(a)), i, found = 0;

	for (i = 0; i < n; i++)
		found += !strcmp(a[i].what, what);
	return found;
}

static char *received(u32 i, const char *end, size_t *ret_len)
{
	char *text;

	assert_int_equal(read_file(path_of("%s/%06u.%s", server.dir, accepted_before + i, end),
				   64 << 20, &text, ret_len),
			 0);
	return text;
}

/* --- profiles --------------------------------------------------------------------------------- */

/* Bytes that depend on every position and on which profile it is; NULs, newlines and all. */
static u8 *make_body(u32 which, size_t len)
{
	u32 x = which * 2654435761u + 12345;
	u8 *body = malloc(len + 1);
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		body[i] = (u8)(x >> 24);
	}
	return body;
}

static size_t body_len(u32 which)
{
	return 1000 + which % 7 * 100;
}

/* Profile `which` of this test, one second after the one before. */
static void submit(struct upload *u, u32 which)
{
	char service[32];

	snprintf(service, sizeof(service), "service%u", which);
	assert_int_equal(upload_submit(u, service, NULL, "cpu", START + which * NSEC_PER_SEC,
				       make_body(which, body_len(which)), body_len(which)),
			 0);
}

/* The i-th that arrived is profile `which`: query and every byte. */
static void assert_arrived(u32 i, u32 which)
{
	_cleanup_free_ char *query = received(i, "query", NULL);
	_cleanup_free_ u8 *want = make_body(which, body_len(which));
	_cleanup_free_ char *body = NULL;
	char service[64];
	size_t len;

	snprintf(service, sizeof(service), "service.name=service%u&", which);
	assert_int_equal(strncmp(query, service, strlen(service)), 0);
	body = received(i, "body", &len);
	assert_int_equal(len, body_len(which));
	assert_memory_equal(body, want, len);
}

static struct upload_options standard(void)
{
	static char url[64], spool[128];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", server.port);
	snprintf(spool, sizeof(spool), "%s/spool", base);
	return (struct upload_options){
		.http = { .url = url, .timeout_ns = 5 * NSEC_PER_SEC },
		.host = "host1",
		.spool_path = spool,
		.spool_bytes = 64 << 20,
		.retry_min_ns = 5 * MS,
		.retry_max_ns = 20 * MS,
	};
}

static struct upload *open_upload(const struct upload_options *o)
{
	struct upload *u = NULL;

	assert_int_equal(upload_new(o, &u), 0);
	return u;
}

static struct upload *open_standard(void)
{
	struct upload_options o = standard();

	return open_upload(&o);
}

static void close_upload(struct upload *u)
{
	upload_free(u, now_monotonic() + 2 * NSEC_PER_SEC);
}

/* A port of this machine where nobody listens. */
static const char *nowhere(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
	socklen_t len = sizeof(a);
	static char url[64];
	static int fd = -1;

	/* Kept bound, so that it stays free of others. */
	if (fd < 0) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	}
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(a.sin_port));
	return url;
}

/* Three profiles that an earlier run, with no server, left in the spool. */
static void leave_spooled(u32 first, u32 n)
{
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	o.http.url = nowhere();
	u = open_upload(&o);
	for (i = 0; i < n; i++)
		submit(u, first + i);
	close_upload(u);
}

/* --- per test and group ----------------------------------------------------------------------- */

/* In memory where there is such a place: hundreds of fsyncs are not what is tested. */
static void make_dir(char *path, size_t size)
{
	const char *parent = access("/dev/shm", R_OK | W_OK | X_OK) ? "/tmp" : "/dev/shm";

	snprintf(path, size, "%s/test_upload.XXXXXX", parent);
	assert_non_null(mkdtemp(path));
}

static int setup(void **state __unused)
{
	u32 i;

	make_dir(base, sizeof(base));
	server = shared;
	set_mode("200");
	unlink(path_of("%s/attempts", server.dir));
	accepted_before = count(server.dir, ".body");
	for (i = 0; i < STAT_MAX; i++)
		stats_before[i] = stat_get(i);
	return 0;
}

static int remove_one(const char *path, const struct stat *st __unused, int type __unused,
		      struct FTW *ftw __unused)
{
	return remove(path);
}

static int teardown(void **state __unused)
{
	return nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int start_group(void **state __unused)
{
	static const char *const proxies[] = { "http_proxy", "https_proxy", "all_proxy",
					       "HTTPS_PROXY", "ALL_PROXY" };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(proxies); i++)
		unsetenv(proxies[i]);
	make_dir(shared.dir, sizeof(shared.dir));
	start_server(&shared, 0, NULL);
	return 0;
}

static int end_group(void **state __unused)
{
	stop_server(&shared);
	return nftw(shared.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- the request ------------------------------------------------------------------------------ */

static void request_has_documented_query_and_headers(void **state __unused)
{
	_cleanup_free_ char *query = NULL, *headers = NULL, *bare = NULL;
	struct upload_options o = standard();
	struct upload *u;

	write_text(path_of("%s/token", base), " \n s3cr3t.tok-en== \r\n", 20);
	o.http.token_file = path_of("%s/token", base);
	o.http.url = path_of("%s//", o.http.url);
	u = open_upload(&o);
	assert_int_equal(upload_submit(u, "a b&c=/?#%\xc3\xbc", "0123abc", "offcpu", START,
				       make_body(1, 10), 10),
			 0);
	assert_int_equal(upload_submit(u, "bad\xff\n", "", "cpu", START + 1, make_body(1, 10), 10),
			 0);
	wait_for(arrived() == 2);
	wait_for(!upload_pending(u));
	close_upload(u);
	query = received(0, "query", NULL);
	assert_string_equal(query, "service.name=a%20b%26c%3D%2F%3F%23%25%C3%BC"
				   "&container.id=0123abc&host.name=host1&source=ebpf&type=offcpu");
	bare = received(1, "query", NULL);
	assert_string_equal(bare,
			    "service.name=bad%EF%BF%BD%3F&host.name=host1&source=ebpf&type=cpu");
	headers = received(0, "headers", NULL);
	assert_non_null(strstr(headers, "Content-Type: application/octet-stream\n"));
	assert_non_null(strstr(headers, "User-Agent: ebpfprofiler\n"));
	assert_non_null(strstr(headers, "Authorization: Bearer s3cr3t.tok-en==\n"));
	assert_non_null(strstr(headers, "Content-Length: 10\n"));
	assert_null(strstr(headers, "Content-Encoding"));
	assert_null(strstr(headers, "Expect"));
	assert_int_equal(grown(STAT_upload_sent), 2);
	assert_int_equal(spooled(), 0);
}

static void empty_and_large_bodies_arrive_whole(void **state __unused)
{
	size_t large = 3 << 19, len;
	_cleanup_free_ char *got = NULL;
	_cleanup_free_ u8 *want = make_body(9, large);
	struct upload *u = open_standard();

	assert_int_equal(upload_submit(u, "x", NULL, "cpu", START, NULL, 0), 0);
	assert_int_equal(upload_submit(u, "x", NULL, "cpu", START + 1, make_body(9, large), large),
			 0);
	wait_for(arrived() == 2);
	close_upload(u);
	free(received(0, "body", &len));
	assert_int_equal(len, 0);
	got = received(1, "body", &len);
	assert_int_equal(len, large);
	assert_memory_equal(got, want, large);
}

static void url_that_is_no_http_url_is_refused_at_start(void **state __unused)
{
	static const char *const urls[] = {
		"",
		"ftp://h",
		"file:///etc/passwd",
		"h:80",
		"http://",
		"http://h/?q=1",
		"http://h/#f",
		"http://h h",
		"gopher://h/",
		"http://h:99999",
		"http://h\n/x",
		"http:///x",
		"http:/",
		"//h",
	};
	struct upload_options o = standard();
	struct upload *u = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(urls); i++) {
		o.http.url = urls[i];
		assert_int_equal(upload_new(&o, &u), -EINVAL);
	}
	o.http.url = NULL;
	assert_int_equal(upload_new(&o, &u), -EINVAL);
	assert_null(u);
	upload_free(NULL, 0);
}

static void token_file_is_read_for_each_attempt_and_checked(void **state __unused)
{
	static const char two_lines[] = "good\r\nX-Evil: 1";
	_cleanup_free_ char *headers = NULL;
	struct upload_options o = standard();
	char big[5000];
	struct upload *u;
	u64 before;

	o.http.token_file = path_of("%s/token", base);
	u = open_upload(&o);
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) >= 1);
	write_text(o.http.token_file, two_lines, strlen(two_lines));
	before = grown(STAT_upload_retried);
	wait_for(grown(STAT_upload_retried) >= before + 3);
	memset(big, 'x', sizeof(big));
	write_text(o.http.token_file, big, sizeof(big));
	before = grown(STAT_upload_retried);
	wait_for(grown(STAT_upload_retried) >= before + 3);
	assert_int_equal(attempt_count("200"), 0);
	write_text(path_of("%s/new", base), "rotated", 7);
	assert_int_equal(rename(path_of("%s/new", base), path_of("%s/token", base)), 0);
	wait_for(arrived() == 1);
	close_upload(u);
	headers = received(0, "headers", NULL);
	assert_non_null(strstr(headers, "Authorization: Bearer rotated\n"));
	assert_arrived(0, 0);
}

/* --- row 55: what servers do ------------------------------------------------------------------ */

static void server_down_for_three_windows_loses_nothing(void **state __unused)
{
	struct server other = { 0 };
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	/* A second server, so that it can really go away and come back on its port. */
	snprintf(other.dir, sizeof(other.dir), "%s/server", base);
	assert_int_equal(mkdir(other.dir, 0700), 0);
	start_server(&other, 0, NULL);
	server = other;
	accepted_before = 0;
	o = standard();
	u = open_upload(&o);
	submit(u, 0);
	/* Until the answer is here as well; else it would be sent a second time. */
	wait_for(grown(STAT_upload_sent) == 1);
	stop_server(&server);
	for (i = 1; i <= 6; i++) {
		submit(u, i);
		/* Two profiles a window; each window sees failed attempts. */
		if (i % 2 == 0) {
			u64 failed = grown(STAT_upload_retried);

			wait_for(grown(STAT_upload_retried) > failed);
		}
	}
	wait_for(spooled() == 6);
	assert_int_equal(upload_pending(u), 6);
	start_server(&server, other.port, NULL);
	wait_for(arrived() == 7);
	wait_for(!upload_pending(u));
	for (i = 0; i <= 6; i++)
		assert_arrived(i, i);
	assert_int_equal(spooled(), 0);
	assert_int_equal(grown(STAT_upload_sent), 7);
	assert_int_equal(grown(STAT_spool_dropped), 0);
	close_upload(u);
	stop_server(&server);
}

static void passing_errors_are_retried(void **state __unused)
{
	static const char *const modes[] = { "500", "503",  "408",   "429", "599",
					     "302", "drop", "reset", "half" };
	struct upload *u = open_standard();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		u64 failed = grown(STAT_upload_retried);

		set_mode(modes[i]);
		submit(u, i);
		wait_for(grown(STAT_upload_retried) >= failed + 2);
		assert_int_equal(arrived(), i);
		assert_int_equal(upload_pending(u), 1);
		set_mode("204");
		wait_for(arrived() == i + 1);
		assert_arrived(i, i);
	}
	close_upload(u);
	assert_int_equal(grown(STAT_upload_sent), ARRAY_SIZE(modes));
	assert_int_equal(grown(STAT_upload_refused), 0);
}

static void refused_profiles_are_dropped_and_counted(void **state __unused)
{
	static const char *const modes[] = { "400", "401", "415", "404" };
	struct upload *u = open_standard();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		set_mode(modes[i]);
		submit(u, i);
		wait_for(grown(STAT_upload_refused) == i + 1);
	}
	set_mode("202");
	submit(u, 7);
	wait_for(arrived() == 1);
	close_upload(u);
	assert_arrived(0, 7);
	assert_int_equal(grown(STAT_upload_refused), ARRAY_SIZE(modes));
	assert_int_equal(grown(STAT_upload_retried), 0);
	assert_int_equal(spooled(), 0);
}

static void refused_from_the_spool_does_not_block_the_rest(void **state __unused)
{
	struct upload *u;

	leave_spooled(0, 3);
	set_mode("once 400");
	u = open_standard();
	wait_for(arrived() == 2);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_arrived(0, 1);
	assert_arrived(1, 2);
	assert_int_equal(spooled(), 0);
	assert_int_equal(grown(STAT_upload_refused), 1);
}

static void retry_after_seconds_is_honoured(void **state __unused)
{
	struct attempt a[4];
	struct upload *u;

	set_mode("once 429 retry_after=1");
	u = open_standard();
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) == 1);
	/* A new profile is no reason to ask earlier. */
	submit(u, 1);
	wait_for(arrived() == 2);
	close_upload(u);
	assert_int_equal(attempts(a, 4), 3);
	assert_true(a[1].at - a[0].at >= 0.99 && a[1].at - a[0].at < 3);
	assert_arrived(0, 0);
	assert_arrived(1, 1);
}

/* A date far away; and SIGTERM does not make us ask again, the profile stays in the spool. */
static void retry_after_date_is_honoured_even_at_the_end(void **state __unused)
{
	struct upload *u;

	set_mode("503 retry_after=Fri,_01_Jan_2100_00:00:00_GMT");
	u = open_standard();
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) == 1);
	usleep(80000);
	close_upload(u);
	assert_int_equal(attempt_count("503"), 1);
	assert_int_equal(spooled(), 1);
}

static void odd_retry_after_falls_back_to_back_off(void **state __unused)
{
	static const char *const values[] = { "soon", "-5", "0", "Thu,_01_Jan_1970_00:00:00_GMT" };
	struct upload *u = open_standard();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		set_mode(path_of("once 503 retry_after=%s", values[i]));
		submit(u, i);
		wait_for(arrived() == i + 1);
		assert_arrived(i, i);
	}
	close_upload(u);
}

static void server_that_hangs_is_given_up_after_the_timeout(void **state __unused)
{
	static const char *const modes[] = { "hang", "silent", "drip" };
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	o.http.timeout_ns = 80 * MS;
	u = open_upload(&o);
	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		set_mode(path_of("once %s", modes[i]));
		submit(u, i);
		wait_for(arrived() == i + 1);
		assert_arrived(i, i);
	}
	close_upload(u);
	assert_true(grown(STAT_upload_retried) >= 2);
}

static void redirects_are_not_followed(void **state __unused)
{
	static const char *const targets[] = { "file:///etc/passwd", "/fetched",
					       "ftp://127.0.0.1/" };
	struct upload *u = open_standard();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		u64 failed = grown(STAT_upload_retried);

		set_mode(path_of("redirect %s", targets[i]));
		submit(u, i);
		wait_for(grown(STAT_upload_retried) >= failed + 2);
		assert_int_equal(attempt_count("fetched"), 0);
		set_mode("200");
		wait_for(arrived() == i + 1);
	}
	close_upload(u);
}

/* The status line was a yes: taken once, however the rest of the reply misbehaves. */
static void misbehaving_replies_to_a_taken_profile_are_cut(void **state __unused)
{
	static const char *const modes[] = { "huge", "headers", "cut", "slow" };
	static struct attempt a[20];
	struct upload_options o = standard();
	struct upload *u;
	u64 start;
	u32 i, n;

	o.http.timeout_ns = 150 * MS;
	u = open_upload(&o);
	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		set_mode(modes[i]);
		start = now_monotonic();
		submit(u, i);
		wait_for(grown(STAT_upload_sent) == i + 1);
		assert_true(now_monotonic() - start < 1500 * MS);
	}
	set_mode("200");
	close_upload(u);
	assert_int_equal(arrived(), ARRAY_SIZE(modes));
	assert_int_equal(grown(STAT_upload_retried), 0);
	wait_for(attempt_count("huge-end") == 1 && attempt_count("headers-end") == 1);
	n = attempts(a, ARRAY_SIZE(a));
	for (i = 0; i < n; i++) {
		/* What the sockets' buffers hold besides; of 1 GB. */
		if (strstr(a[i].what, "-end"))
			assert_true(a[i].reply_bytes < 16 << 20);
	}
}

static void server_that_is_down_gets_one_probe_per_step(void **state __unused)
{
	struct upload_options o = standard();
	static struct attempt a[100];
	struct upload *u;
	u32 i, n;

	o.retry_min_ns = 20 * MS;
	o.retry_max_ns = 10 * NSEC_PER_SEC;
	set_mode("503");
	u = open_upload(&o);
	for (i = 0; i < 30; i++)
		submit(u, i);
	wait_for((n = attempts(a, ARRAY_SIZE(a))) >= 4);
	for (i = 0; i < n; i++)
		assert_non_null(strstr(a[i].query, "service.name=service0&"));
	/* Steps of at least 20, 40, 80 ms; the server may note the earlier one late. */
	for (i = 1; i < 4; i++)
		assert_true(a[i].at - a[i - 1].at >= 0.015 * (1 << (i - 1)));
	wait_for(spooled() == 30);
	assert_int_equal(upload_pending(u), 30);
	set_mode("200");
	/* The last probe, when told to end, finds the server well: everything follows. */
	close_upload(u);
	assert_int_equal(arrived(), 30);
	for (i = 0; i < 30; i++)
		assert_arrived(i, i);
}

/* --- TLS -------------------------------------------------------------------------------------- */

static void make_certificate(void)
{
	assert_int_equal(system(path_of("cd %s && openssl req -x509 -newkey ec -pkeyopt "
					"ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out "
					"cert.pem -days 2 -subj /CN=127.0.0.1 -addext "
					"subjectAltName=IP:127.0.0.1 >/dev/null 2>&1",
					base)),
			 0);
}

/* A second one, which becomes `server` for the rest of the test. */
static void use_own_server(const char *tls)
{
	struct server s = { 0 };

	snprintf(s.dir, sizeof(s.dir), "%s/server", base);
	assert_int_equal(mkdir(s.dir, 0700), 0);
	start_server(&s, 0, tls);
	server = s;
	accepted_before = 0;
}

static void tls_needs_a_known_certificate(void **state __unused)
{
	struct upload_options o;
	struct upload *u;

	make_certificate();
	use_own_server(base);
	o = standard();
	o.http.url = path_of("https://127.0.0.1:%d", server.port);
	u = open_upload(&o);
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) >= 2);
	close_upload(u);
	assert_int_equal(arrived(), 0);
	assert_int_equal(spooled(), 1);
	o.http.ca_file = path_of("%s/cert.pem", base);
	u = open_upload(&o);
	wait_for(arrived() == 1);
	close_upload(u);
	assert_arrived(0, 0);
	stop_server(&server);
}

static void tls_with_a_certificate_of_ours(void **state __unused)
{
	struct upload_options o;
	struct upload *u;

	make_certificate();
	assert_int_equal(link(path_of("%s/cert.pem", base), path_of("%s/ca.pem", base)), 0);
	use_own_server(base);
	o = standard();
	o.http.url = path_of("https://127.0.0.1:%d", server.port);
	o.http.ca_file = path_of("%s/cert.pem", base);
	u = open_upload(&o);
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) >= 2);
	close_upload(u);
	assert_int_equal(arrived(), 0);
	o.http.cert_file = path_of("%s/cert.pem", base);
	o.http.key_file = path_of("%s/key.pem", base);
	u = open_upload(&o);
	wait_for(arrived() == 1);
	close_upload(u);
	assert_arrived(0, 0);
	stop_server(&server);
}

/* --- what tells a server who we are ----------------------------------------------------------- */

static void basic_authentication_and_headers_are_sent(void **state __unused)
{
	_cleanup_free_ char *headers = NULL;
	struct upload_options o = standard();
	struct upload *u;

	write_text(path_of("%s/password", base), "s3 cr3t\xc3\xbc\n", 10);
	write_text(path_of("%s/headers", base), "X-Api-Key: k1\r\n\nX-Other:two, three\n", 35);
	o.http.user = "Aladdin";
	o.http.password_file = path_of("%s/password", base);
	o.http.headers = "X-Scope-OrgID: a-tenant, X-More: 1";
	o.http.headers_file = path_of("%s/headers", base);
	u = open_upload(&o);
	submit(u, 0);
	wait_for(arrived() == 1);
	close_upload(u);
	headers = received(0, "headers", NULL);
	/* By base64(1). */
	assert_non_null(strstr(headers, "Authorization: Basic QWxhZGRpbjpzMyBjcjN0w7w=\n"));
	assert_non_null(strstr(headers, "X-Scope-OrgID: a-tenant\n"));
	assert_non_null(strstr(headers, "X-More: 1\n"));
	assert_non_null(strstr(headers, "X-Api-Key: k1\n"));
	assert_non_null(strstr(headers, "X-Other: two, three\n"));
}

/* Until they are good, nothing goes out; then it does without a restart. */
static void secrets_that_cannot_be_read_keep_profiles(void **state __unused)
{
	static const char *const bad[] = { "X-A: a\nHost: evil\n", "no header", "", "X: a\033b" };
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	o.http.headers_file = path_of("%s/headers", base);
	u = open_upload(&o);
	submit(u, 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		u64 failed = grown(STAT_upload_retried);

		wait_for(grown(STAT_upload_retried) >= failed + 2);
		write_text(path_of("%s/headers", base), bad[i], strlen(bad[i]));
	}
	assert_int_equal(arrived(), 0);
	write_text(path_of("%s/headers", base), "X-A: a\n", 7);
	wait_for(arrived() == 1);
	close_upload(u);
}

static void proxy_is_used(void **state __unused)
{
	_cleanup_free_ char *headers = NULL;
	struct upload_options o = standard();
	struct upload *u;

	o.http.proxy = path_of("127.0.0.1:%d", server.port);
	o.http.url = "http://fleet.invalid";
	u = open_upload(&o);
	submit(u, 0);
	wait_for(arrived() == 1);
	close_upload(u);
	headers = received(0, "headers", NULL);
	assert_non_null(strstr(headers, "Host: fleet.invalid\n"));
}

/* --- protocols -------------------------------------------------------------------------------- */

/* A pprof file that is one. */
static void submit_pprof(struct upload *u, u32 samples, u32 name_len)
{
	struct make m = { .samples = samples, .name_len = name_len };
	size_t len;
	u8 *body = make_pprof(&m, &len);

	assert_int_equal(upload_submit(u, "shop", "c1", "cpu", START, body, len), 0);
}

/* Nothing is gone without a name: what was handed over, and what became of it. */
static void assert_accounted(u32 left)
{
	assert_int_equal(grown(STAT_upload_due) + grown(STAT_upload_parts),
			 grown(STAT_upload_sent) + grown(STAT_upload_refused) +
				 grown(STAT_upload_too_large) + grown(STAT_spool_dropped) +
				 grown(STAT_spool_expired) + grown(STAT_spool_bad) + left);
	assert_int_equal(spooled(), left);
}

static void each_protocol_has_its_address(void **state __unused)
{
	static const struct {
		enum protocol protocol;
		const char *path, *header;
	} rows[] = {
		{ PROTOCOL_PPROF, "/v1/profiles", "Content-Type: application/octet-stream\n" },
		{ PROTOCOL_OTEL_PPROF, "/v1/pprof", "Content-Type: application/octet-stream\n" },
		{ PROTOCOL_PYROSCOPE, "/push.v1.PusherService/Push",
		  "Content-Type: application/proto\n" },
		{ PROTOCOL_PARCA, "/api/profiles/writeraw", "Content-Type: application/json\n" },
		{ PROTOCOL_OTLP, "/v1development/profiles",
		  "Content-Type: application/x-protobuf\nContent-Encoding: gzip\n" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *path = NULL, *headers = NULL;
		struct upload_options o = standard();
		struct upload *u;

		o.protocol = rows[i].protocol;
		u = open_upload(&o);
		submit_pprof(u, 3, 0);
		wait_for(grown(STAT_upload_sent) == i + 1);
		close_upload(u);
		path = received(i, "path", NULL);
		assert_string_equal(path, rows[i].path);
		headers = received(i, "headers", NULL);
		assert_non_null(strstr(headers, rows[i].header));
	}
	assert_accounted(0);
}

static void rejected_part_of_an_accepted_request_is_counted(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;

	/* partial_success { rejected_profiles: 2 error_message: "x" } */
	set_mode("200 reply=0a050802120178");
	o.protocol = PROTOCOL_OTLP;
	u = open_upload(&o);
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_rejected) == 2);
	close_upload(u);
	assert_int_equal(grown(STAT_upload_sent), 1);
	assert_int_equal(grown(STAT_upload_retried), 0);
}

static void page_for_people_takes_no_profile(void **state __unused)
{
	struct upload *u = open_standard();

	set_mode("200 type=text/html;charset=utf-8 reply=3c68746d6c3e");
	submit(u, 0);
	wait_for(grown(STAT_upload_retried) >= 2);
	set_mode("200");
	wait_for(arrived() == 1);
	close_upload(u);
	assert_arrived(0, 0);
}

/* --- too large -------------------------------------------------------------------------------- */

/* Names of functions "f<i>xxx" in the bodies that arrived, each once. */
static void assert_samples_arrived(u32 samples)
{
	u32 *seen = calloc(samples, sizeof(*seen)), i, n = arrived();

	for (i = 0; i < n; i++) {
		size_t len, k;
		_cleanup_free_ char *body = received(i, "body", &len);
		struct pprof_in in;

		assert_int_equal(pprof_in_open(&in, body, len, 1 << 28, 1 << 28), 0);
		for (k = 0; k < in.pb->n_function; k++) {
			const char *name = in.pb->string_table[in.pb->function[k]->name];

			if (name[0] == 'f')
				seen[strtoul(name + 1, NULL, 10)]++;
		}
		pprof_in_fini(&in);
	}
	for (i = 0; i < samples; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
}

static void too_large_a_profile_goes_in_halves(void **state __unused)
{
	struct upload *u;

	set_mode("413 over=2000");
	u = open_standard();
	submit_pprof(u, 500, 0);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_true(arrived() > 4);
	assert_samples_arrived(500);
	assert_int_equal(grown(STAT_upload_parts), arrived() - 1);
	assert_int_equal(grown(STAT_upload_too_large), 0);
	assert_accounted(0);
}

/* No answer of the server is needed where its limits are known. */
static void pyroscopes_limit_is_kept(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;

	o.protocol = PROTOCOL_PYROSCOPE;
	u = open_upload(&o);
	submit_pprof(u, 33000, 0);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(arrived(), 4);
	assert_int_equal(grown(STAT_upload_parts), 3);
	assert_int_equal(grown(STAT_upload_retried), 0);
	assert_accounted(0);
}

static void sample_that_is_too_large_alone_is_dropped(void **state __unused)
{
	struct upload *u;

	set_mode("413 over=10");
	u = open_standard();
	submit_pprof(u, 5, 0);
	submit_pprof(u, 1, 0);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(arrived(), 0);
	assert_int_equal(grown(STAT_upload_parts), 4);
	assert_int_equal(grown(STAT_upload_too_large), 6);
	assert_accounted(0);
}

/* It is not asked about each of 20000 samples. */
static void server_that_finds_all_too_large_is_left_alone(void **state __unused)
{
	struct upload *u;

	set_mode("413");
	u = open_standard();
	submit_pprof(u, 20000, 0);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_true(attempt_count("413") < 160);
	assert_true(grown(STAT_upload_too_large) > 0);
	assert_accounted(0);
}

/* Parts that are left when a server goes away wait in the spool, and are sent by the next run. */
static void parts_survive_a_restart(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u64 failed;

	o.http.url = nowhere();
	u = open_upload(&o);
	submit_pprof(u, 300, 0);
	close_upload(u);
	assert_int_equal(spooled(), 1);
	/* The whole is too large, one half is taken, then the server has a problem. */
	set_mode("413 over=2500 then=503");
	o = standard();
	o.retry_min_ns = o.retry_max_ns = 60 * NSEC_PER_SEC;
	failed = grown(STAT_upload_retried);
	u = open_upload(&o);
	wait_for(grown(STAT_upload_retried) > failed);
	upload_free(u, now_monotonic());
	assert_true(arrived() >= 1);
	assert_true(spooled() >= 1);
	set_mode("200");
	u = open_standard();
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_samples_arrived(300);
	assert_accounted(0);
}

/* --- gRPC ------------------------------------------------------------------------------------- */

static struct upload *open_grpc(u64 timeout_ns, bool tls)
{
	struct upload_options o;

	grpc = true;
	use_own_server(tls ? base : NULL);
	grpc = false;
	o = standard();
	if (tls) {
		o.http.url = path_of("https://127.0.0.1:%d", server.port);
		o.http.ca_file = path_of("%s/cert.pem", base);
	}
	o.protocol = PROTOCOL_OTLP_GRPC;
	o.http.timeout_ns = timeout_ns;
	return open_upload(&o);
}

static void grpc_server_takes_what_we_send(void **state __unused)
{
	struct upload *u = open_grpc(5 * NSEC_PER_SEC, false);
	static const char *const passing[] = { "grpc 14 later", "grpc 8 full", "grpc 4 late" };
	static const char *const lasting[] = { "grpc 3 wrong", "grpc 12 unknown%20method" };
	u32 i;

	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_sent) == 1);
	for (i = 0; i < ARRAY_SIZE(passing); i++) {
		u64 failed = grown(STAT_upload_retried);

		set_mode(passing[i]);
		submit_pprof(u, 3, 0);
		wait_for(grown(STAT_upload_retried) >= failed + 2);
		set_mode("200");
		wait_for(grown(STAT_upload_sent) == i + 2);
	}
	for (i = 0; i < ARRAY_SIZE(lasting); i++) {
		set_mode(lasting[i]);
		submit_pprof(u, 3, 0);
		wait_for(grown(STAT_upload_refused) == i + 1);
	}
	/* partial_success { rejected_profiles: 2 error_message: "x" } */
	set_mode("200 reply=0a050802120178");
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_rejected) == 2);
	close_upload(u);
	stop_server(&server);
	assert_accounted(0);
}

static void grpc_server_that_asks_for_peace_gets_it(void **state __unused)
{
	struct upload *u = open_grpc(5 * NSEC_PER_SEC, false);
	struct attempt a[4];

	set_mode("once grpc 14 retry=1.5 later");
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_retried) == 1);
	/* A new profile is no reason to ask earlier. */
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_sent) == 2);
	/* The end is none, either. */
	set_mode("grpc 8 retry=600 full");
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_retried) == 2);
	close_upload(u);
	stop_server(&server);
	assert_int_equal(attempts(a, 4), 4);
	assert_true(a[1].at - a[0].at >= 1.49 && a[1].at - a[0].at < 4);
	assert_int_equal(attempt_count("grpc8"), 1);
	assert_int_equal(spooled(), 1);
	assert_accounted(1);
}

/* Over the library's own 4 MiB; and over less, as a server says it. */
static void grpc_message_limit_is_kept(void **state __unused)
{
	struct upload *u = open_grpc(5 * NSEC_PER_SEC, false);

	submit_pprof(u, 150, 40000);
	wait_for(!upload_pending(u));
	assert_int_equal(arrived(), 2);
	assert_int_equal(attempt_count("200"), 2);
	set_mode("grpc over=5000 8 grpc: received message larger than max (6000 vs. 5000)");
	submit_pprof(u, 100, 0);
	wait_for(!upload_pending(u));
	close_upload(u);
	stop_server(&server);
	assert_true(arrived() > 3);
	assert_true(attempt_count("grpc8") > 0);
	assert_accounted(0);
}

static void grpc_goes_over_tls(void **state __unused)
{
	struct upload *u;
	u32 i;

	make_certificate();
	u = open_grpc(5 * NSEC_PER_SEC, true);
	for (i = 0; i < 5; i++)
		submit_pprof(u, 3, 0);
	wait_for(arrived() == 5);
	close_upload(u);
	stop_server(&server);
	assert_int_equal(grown(STAT_upload_retried), 0);
	assert_accounted(0);
}

static void grpc_server_that_hangs_is_given_up(void **state __unused)
{
	struct upload *u = open_grpc(300 * MS, false);

	set_mode("once hang");
	submit_pprof(u, 3, 0);
	wait_for(grown(STAT_upload_sent) == 1);
	assert_true(grown(STAT_upload_retried) >= 1);
	close_upload(u);
	stop_server(&server);
}

/* --- the spool -------------------------------------------------------------------------------- */

static void restart_sends_what_was_spooled_first(void **state __unused)
{
	struct upload *u;
	u32 i;

	leave_spooled(0, 3);
	assert_int_equal(spooled(), 3);
	assert_int_equal(arrived(), 0);
	set_mode("once 503");
	u = open_standard();
	submit(u, 3);
	wait_for(arrived() == 4);
	wait_for(!upload_pending(u));
	close_upload(u);
	for (i = 0; i < 4; i++)
		assert_arrived(i, i);
	assert_int_equal(spooled(), 0);
}

/* Labels come through the file unharmed; equal starts keep the order of hand-over. */
static void spool_keeps_labels_and_order(void **state __unused)
{
	_cleanup_free_ char *a = NULL, *b = NULL;
	struct upload_options o = standard();
	struct upload *u;

	o.http.url = nowhere();
	u = open_upload(&o);
	upload_submit(u, "x y%z\xc3\xbc", "c1", "cpu", START, make_body(0, 5), 5);
	upload_submit(u, "", "", "offcpu", START, make_body(0, 5), 5);
	close_upload(u);
	u = open_standard();
	wait_for(arrived() == 2);
	close_upload(u);
	a = received(0, "query", NULL);
	assert_string_equal(a, "service.name=x%20y%25z%C3%BC&container.id=c1&host.name=host1"
			       "&source=ebpf&type=cpu");
	b = received(1, "query", NULL);
	assert_string_equal(b, "service.name=&host.name=host1&source=ebpf&type=offcpu");
}

static void spool_is_private(void **state __unused)
{
	struct dirent *e;
	struct stat st;
	DIR *d;

	leave_spooled(0, 1);
	d = opendir(path_of("%s/spool", base));
	assert_non_null(d);
	assert_int_equal(fstat(dirfd(d), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
	}
	closedir(d);
}

static void killed_daemon_leaves_a_spool_that_the_next_one_sends(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	pid_t pid;
	u32 i;

	o.http.url = nowhere();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		u = open_upload(&o);
		for (i = 0; i < 5; i++)
			submit(u, i);
		for (;;)
			pause();
	}
	wait_for(spooled() == 5);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	u = open_standard();
	wait_for(arrived() == 5);
	close_upload(u);
	for (i = 0; i < 5; i++)
		assert_arrived(i, i);
}

static const char *spool_file(u32 which)
{
	u64 start_ns = START + which * NSEC_PER_SEC;

	return path_of("%s/spool/%020" PRIu64 "-%010u.spool", base, start_ns, which);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	u8 byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void damaged_spool_files_are_set_aside(void **state __unused)
{
	struct upload *u;
	off_t at, size;
	u32 i;

	leave_spooled(0, 10);
	flip(spool_file(1), size_of(spool_file(1)) - 1);
	assert_int_equal(truncate(spool_file(2), size_of(spool_file(2)) - 1), 0);
	assert_int_equal(truncate(spool_file(3), 0), 0);
	write_text(spool_file(4), "no spool file at all\n\n\n", 23);
	/* A letter of the service's name: the line is under the checksum too. */
	flip(spool_file(5), 70);
	flip(spool_file(6), 19); /* version */
	assert_int_equal(truncate(spool_file(7), 1 << 20), 0);
	assert_int_equal(truncate(spool_file(8), (off_t)1 << 40), 0);
	u = open_standard();
	wait_for(!upload_pending(u));
	assert_arrived(0, 0);
	assert_arrived(1, 9);
	assert_int_equal(arrived(), 2);
	assert_int_equal(grown(STAT_spool_bad), 8);
	assert_int_equal(spooled(), 0);
	/* The one of a terabyte is not worth keeping. */
	assert_int_equal(count(path_of("%s/spool", base), ".spool.bad"), 7);
	close_upload(u);

	/* Any single byte of a file, and any truncation. */
	leave_spooled(0, 1);
	size = size_of(spool_file(0));
	for (i = 0, at = 0; at < size; i++, at += at < 140 ? 11 : 211) {
		if (i)
			leave_spooled(0, 1);
		if (i % 2)
			flip(spool_file(0), at);
		else
			assert_int_equal(truncate(spool_file(0), at), 0);
		u = open_standard();
		wait_for(!upload_pending(u));
		close_upload(u);
	}
	assert_int_equal(arrived(), 2);
	assert_int_equal(grown(STAT_spool_bad), 8 + i);
	/* All of one name, beside the seven. */
	assert_int_equal(count(path_of("%s/spool", base), ".spool.bad"), 8);
}

static void at_most_16_damaged_files_are_kept(void **state __unused)
{
	struct upload *u;
	u32 i;

	assert_int_equal(mkdir(path_of("%s/spool", base), 0700), 0);
	for (i = 0; i < 20; i++)
		write_text(spool_file(i), "bad", 3);
	u = open_standard();
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(grown(STAT_spool_bad), 20);
	assert_int_equal(count(path_of("%s/spool", base), ".spool.bad"), 16);
	for (i = 20; i < 25; i++)
		write_text(spool_file(i), "bad", 3);
	u = open_standard();
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(count(path_of("%s/spool", base), ".spool.bad"), 16);
}

static void links_and_foreign_files_in_the_spool_are_left_alone(void **state __unused)
{
	struct upload *u;

	leave_spooled(0, 2);
	assert_int_equal(rename(spool_file(0), path_of("%s/elsewhere", base)), 0);
	assert_int_equal(symlink(path_of("%s/elsewhere", base), spool_file(0)), 0);
	assert_int_equal(mkfifo(spool_file(2), 0600), 0);
	assert_int_equal(mkdir(spool_file(3), 0700), 0);
	write_text(path_of("%s/spool/readme", base), "hello", 5);
	u = open_standard();
	wait_for(arrived() == 1);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_arrived(0, 1);
	assert_int_equal(access(spool_file(0), F_OK), 0);
	assert_int_equal(access(spool_file(2), F_OK), 0);
	assert_int_equal(access(path_of("%s/spool/readme", base), F_OK), 0);
	assert_int_equal(grown(STAT_spool_bad), 0);
}

static void file_turned_into_a_link_later_is_not_followed(void **state __unused)
{
	struct upload *u;

	set_mode("503");
	u = open_standard();
	submit(u, 0);
	wait_for(spooled() == 1);
	assert_int_equal(rename(spool_file(0), path_of("%s/elsewhere", base)), 0);
	assert_int_equal(symlink(path_of("%s/elsewhere", base), spool_file(0)), 0);
	set_mode("200");
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(arrived(), 0);
	assert_int_equal(grown(STAT_spool_bad), 1);
	assert_int_equal(access(path_of("%s/elsewhere", base), F_OK), 0);
}

static void full_spool_drops_the_oldest_and_counts(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	/* Bodies of 1000 to 1600 bytes and a line of some 120 each: three fit, four never do. */
	o.spool_bytes = 4400;
	o.http.url = nowhere();
	u = open_upload(&o);
	for (i = 0; i < 3; i++)
		submit(u, i);
	wait_for(spooled() == 3);
	assert_int_equal(grown(STAT_spool_dropped), 0);
	for (i = 7; i < 10; i++)
		submit(u, i);
	wait_for(grown(STAT_spool_dropped) == 3);
	assert_int_equal(upload_pending(u), 3);
	close_upload(u);
	assert_int_equal(spooled(), 3);
	o = standard();
	u = open_upload(&o);
	wait_for(arrived() == 3);
	close_upload(u);
	for (i = 0; i < 3; i++)
		assert_arrived(i, i + 7);
	assert_int_equal(grown(STAT_spool_dropped), 3);
}

static void smaller_spool_after_restart_keeps_the_newest(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;

	leave_spooled(0, 7);
	o.spool_bytes = 1900; /* one of 1600 bytes */
	u = open_upload(&o);
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_int_equal(arrived(), 1);
	assert_arrived(0, 6);
	assert_int_equal(grown(STAT_spool_dropped), 6);
}

static void without_a_spool_memory_is_bounded_and_keeps_the_newest(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	o.spool_path = "";
	set_mode("503");
	u = open_upload(&o);
	for (i = 0; i < 100; i++)
		submit(u, i);
	wait_for(grown(STAT_spool_dropped) >= 100 - 65);
	assert_true(upload_pending(u) <= 65);
	set_mode("200");
	wait_for(!upload_pending(u));
	close_upload(u);
	assert_true(arrived() >= 64);
	assert_arrived(arrived() - 1, 99);
	assert_int_equal(arrived() + grown(STAT_spool_dropped), 100);
}

static void spool_that_vanished_leaves_profiles_in_memory(void **state __unused)
{
	struct upload *u;
	u32 i;

	set_mode("503");
	u = open_standard();
	assert_int_equal(rmdir(path_of("%s/spool", base)), 0);
	for (i = 0; i < 5; i++)
		submit(u, i);
	wait_for(grown(STAT_upload_retried) >= 3);
	assert_int_equal(upload_pending(u), 5);
	set_mode("200");
	wait_for(arrived() == 5);
	close_upload(u);
	for (i = 0; i < 5; i++)
		assert_arrived(i, i);
	assert_int_equal(grown(STAT_spool_dropped), 0);
}

static void too_large_a_profile_is_refused_and_counted(void **state __unused)
{
	size_t len = (64 << 20) + 1;
	struct upload *u = open_standard();

	assert_int_equal(upload_submit(u, "x", NULL, "cpu", START, calloc(1, len), len), -EFBIG);
	assert_int_equal(grown(STAT_spool_dropped), 1);
	assert_int_equal(upload_pending(u), 0);
	close_upload(u);
}

static u64 now_less(u64 ns)
{
	return now_realtime() - ns;
}

static void spool_drops_what_has_waited_too_long(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u32 i;

	o.http.url = nowhere();
	o.spool_age_ns = 3600 * NSEC_PER_SEC;
	u = open_upload(&o);
	for (i = 0; i < 4; i++)
		upload_submit(u, "old", NULL, "cpu",
			      now_less((u64)(i < 2 ? 3700 : 3500) * NSEC_PER_SEC), make_body(i, 5),
			      5);
	wait_for(grown(STAT_spool_expired) == 2 && spooled() == 2);
	close_upload(u);
	/* While the daemon does not run, time goes on. */
	o = standard();
	o.spool_age_ns = 1800 * NSEC_PER_SEC;
	u = open_upload(&o);
	close_upload(u);
	assert_int_equal(arrived(), 0);
	assert_int_equal(grown(STAT_spool_expired), 4);
	assert_int_equal(grown(STAT_spool_dropped), 0);
	assert_accounted(0);
}

static void second_daemon_on_one_spool_is_refused(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u = open_upload(&o), *other = NULL;

	assert_int_equal(upload_new(&o, &other), -EBUSY);
	close_upload(u);
}

static void spool_that_cannot_be_made_is_an_error(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u = NULL;

	write_text(path_of("%s/spool", base), "", 0);
	assert_int_equal(upload_new(&o, &u), -ENOTDIR);
	assert_null(u);
}

/* --- never in the way ------------------------------------------------------------------------- */

static void submit_never_waits_for_a_server(void **state __unused)
{
	u64 start, longest = 0;
	struct upload *u;
	u32 i;

	set_mode("once hang");
	u = open_standard();
	submit(u, 0);
	wait_for(attempt_count("hang") == 1);
	for (i = 1; i <= 70; i++) {
		start = now_monotonic();
		submit(u, i);
		longest = MAX(longest, now_monotonic() - start);
	}
	/* A local file with its fsync, not the five seconds of the hanging attempt. */
	assert_true(longest < NSEC_PER_SEC);
	assert_int_equal(upload_pending(u), 71);
	/* 64 in memory, the others on disk. */
	assert_int_equal(spooled(), 6);
	upload_free(u, now_monotonic());
	assert_int_equal(spooled(), 71);
	u = open_standard();
	wait_for(arrived() == 71);
	close_upload(u);
	for (i = 0; i <= 70; i++)
		assert_arrived(i, i);
}

static void row_67_end_while_the_server_hangs_keeps_its_deadline(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u64 start;

	o.http.timeout_ns = 30 * NSEC_PER_SEC;
	set_mode("hang");
	u = open_upload(&o);
	submit(u, 0);
	wait_for(attempt_count("hang") == 1);
	submit(u, 1);
	start = now_monotonic();
	upload_free(u, start + 200 * MS);
	assert_true(now_monotonic() - start < 1000 * MS);
	assert_int_equal(spooled(), 2);
}

static void row_67_end_sends_the_last_profile(void **state __unused)
{
	struct upload *u = open_standard();

	submit(u, 0);
	close_upload(u);
	assert_arrived(0, 0);
	assert_int_equal(spooled(), 0);
}

/* Stands in for the C library's, so that a name server can hang without one. */
int getaddrinfo(const char *node, const char *service __unused,
		const struct addrinfo *hints __unused, struct addrinfo **ret __unused)
{
	if (node && !strcmp(node, "hangs.invalid"))
		sleep(3600);
	return EAI_NONAME;
}

static void row_56_name_server_that_hangs_delays_nobody(void **state __unused)
{
	struct upload_options o = standard();
	struct upload *u;
	u64 start;

	o.http.url = "http://hangs.invalid";
	o.http.timeout_ns = 60 * MS;
	u = open_upload(&o);
	start = now_monotonic();
	submit(u, 0);
	assert_true(now_monotonic() - start < 500 * MS);
	wait_for(grown(STAT_upload_retried) >= 2);
	start = now_monotonic();
	upload_free(u, start + 80 * MS);
	assert_true(now_monotonic() - start < 1000 * MS);
	assert_int_equal(spooled(), 1);

	/* In the middle of the very first look-up, too. */
	o.http.timeout_ns = 30 * NSEC_PER_SEC;
	u = open_upload(&o);
	usleep(20000);
	start = now_monotonic();
	upload_free(u, start + 50 * MS);
	assert_true(now_monotonic() - start < 1000 * MS);
	assert_int_equal(spooled(), 1);
}

static void row_67_signals_stay_with_the_main_thread(void **state __unused)
{
	struct upload *u = open_standard();
	sigset_t set, pending;

	/* Blocked here and in the upload's thread: it must stay pending, not kill the process. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGTERM);
	submit(u, 0);
	wait_for(arrived() == 1);
	sigpending(&pending);
	assert_true(sigismember(&pending, SIGTERM));
	sigwaitinfo(&set, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	close_upload(u);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(request_has_documented_query_and_headers),
		TEST(empty_and_large_bodies_arrive_whole),
		TEST(url_that_is_no_http_url_is_refused_at_start),
		TEST(token_file_is_read_for_each_attempt_and_checked),
		TEST(server_down_for_three_windows_loses_nothing),
		TEST(passing_errors_are_retried),
		TEST(refused_profiles_are_dropped_and_counted),
		TEST(refused_from_the_spool_does_not_block_the_rest),
		TEST(retry_after_seconds_is_honoured),
		TEST(retry_after_date_is_honoured_even_at_the_end),
		TEST(odd_retry_after_falls_back_to_back_off),
		TEST(server_that_hangs_is_given_up_after_the_timeout),
		TEST(redirects_are_not_followed),
		TEST(misbehaving_replies_to_a_taken_profile_are_cut),
		TEST(server_that_is_down_gets_one_probe_per_step),
		TEST(tls_needs_a_known_certificate),
		TEST(tls_with_a_certificate_of_ours),
		TEST(basic_authentication_and_headers_are_sent),
		TEST(secrets_that_cannot_be_read_keep_profiles),
		TEST(proxy_is_used),
		TEST(each_protocol_has_its_address),
		TEST(rejected_part_of_an_accepted_request_is_counted),
		TEST(page_for_people_takes_no_profile),
		TEST(too_large_a_profile_goes_in_halves),
		TEST(pyroscopes_limit_is_kept),
		TEST(sample_that_is_too_large_alone_is_dropped),
		TEST(server_that_finds_all_too_large_is_left_alone),
		TEST(parts_survive_a_restart),
		TEST(grpc_server_takes_what_we_send),
		TEST(grpc_server_that_asks_for_peace_gets_it),
		TEST(grpc_message_limit_is_kept),
		TEST(grpc_goes_over_tls),
		TEST(grpc_server_that_hangs_is_given_up),
		TEST(restart_sends_what_was_spooled_first),
		TEST(spool_keeps_labels_and_order),
		TEST(spool_is_private),
		TEST(killed_daemon_leaves_a_spool_that_the_next_one_sends),
		TEST(damaged_spool_files_are_set_aside),
		TEST(at_most_16_damaged_files_are_kept),
		TEST(links_and_foreign_files_in_the_spool_are_left_alone),
		TEST(file_turned_into_a_link_later_is_not_followed),
		TEST(full_spool_drops_the_oldest_and_counts),
		TEST(smaller_spool_after_restart_keeps_the_newest),
		TEST(without_a_spool_memory_is_bounded_and_keeps_the_newest),
		TEST(spool_that_vanished_leaves_profiles_in_memory),
		TEST(too_large_a_profile_is_refused_and_counted),
		TEST(spool_drops_what_has_waited_too_long),
		TEST(second_daemon_on_one_spool_is_refused),
		TEST(spool_that_cannot_be_made_is_an_error),
		TEST(submit_never_waits_for_a_server),
		TEST(row_67_end_while_the_server_hangs_keeps_its_deadline),
		TEST(row_67_end_sends_the_last_profile),
		TEST(row_56_name_server_that_hangs_delays_nobody),
		TEST(row_67_signals_stay_with_the_main_thread),
	};

	return cmocka_run_group_tests(tests, start_group, end_group);
}
