// SPDX-License-Identifier: Apache-2.0
/*
 * The page's server over real sockets, in a loop as the daemon has it: who may ask, what hostile
 * requests come to, and the catalog behind the answers, which is held against the directory.
 */
#include "core/catalog.h"
#include "core/recording.h"
#include "core/view.h"
#include "core/web.h"
#include "core/web_api.h"
#include "profile.pb-c.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define TOKEN "abcdefghijklmnop0123"
#define NAME  "20260102T030405Z.678-cpu-shop.pb.gz" /* 1767323045678 */
#define START 1767323045678ull

static char dir[] = "/tmp/test_web.XXXXXX";

/* A server, and the thread that works for it. */
struct server {
	struct catalog *catalog;
	struct web_api *api;
	struct web *web;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic bool end_recording; /* asked for; false again: done */
	u16 port;
};

/* Stands for who records. */
static struct {
	_Atomic bool is_ready, ending, busy;
	_Atomic int begun, answered, ended;
} recorder;

static int record_begin(void *arg, const struct web_question *q, struct web_answer *ret)
{
	struct recording_question parsed;
	int err = recording_parse(q, &parsed);

	assert_ptr_equal(arg, &recorder);
	if (err)
		web_api_refuse(ret, 400, "no");
	else
		recorder.begun++;
	return err;
}

static u64 record_next(void *arg)
{
	(void)arg;
	return now_monotonic() + NSEC_PER_SEC / 50;
}

static bool record_ready(void *arg)
{
	(void)arg;
	return recorder.is_ready;
}

static void record_answer(void *arg, struct web_answer *ret)
{
	(void)arg;
	u64 until = now_monotonic() + 300 * 1000000ull;

	recorder.answered++;
	while (recorder.busy && now_monotonic() < until)
		syscall(SYS_getppid);
	while (recorder.ending)
		usleep(1000);
	*ret = (struct web_answer){ .status = 200, .type = "application/gzip", .len = 5 };
	ret->data = (u8 *)strdup("times");
	strcpy(ret->file, "a.gz");
}

static void record_end(void *arg)
{
	(void)arg;
	recorder.ended++;
}

static void *serve(void *arg)
{
	struct server *s = arg;

	_cleanup_close_ int fd = epoll_create1(EPOLL_CLOEXEC);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0 || web_watch(s->web, fd))
		return NULL;
	while (!s->stop) {

		/* Nothing but what it waits for wakes it, or the limits of time. */
		u64 next = web_next(s->web), now = now_monotonic(), ms = 500;

		if (next < now + 500 * 1000000ull)
			ms = next > now ? (next - now) / 1000000 + 1 : 0;
		poll(&p, 1, (int)ms);
		web_work(s->web);
		if (s->end_recording)
			web_end_recording(s->web);
		s->end_recording = false;
	}
	return NULL;
}

static void start(struct server *s, const char *token_file)
{
	struct web_options o = { .listen = "127.0.0.1:0",
				 .token_file = token_file,
				 .hosts = "shop.example",
				 .recorder = { record_begin, record_next, record_ready,
					       record_answer, record_end, &recorder } };

	memset(s, 0, sizeof(*s));
	assert_int_equal(catalog_open(dir, &s->catalog), 0);
	s->api = web_api_new(s->catalog, NULL);
	o.api = s->api;
	assert_int_equal(web_open(&o, &s->web), 0);
	s->port = (u16)atoi(strrchr(web_address(s->web), ':') + 1);
	assert_true(s->port);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
	s->stop = true;
	pthread_join(s->thread, NULL);
	catalog_stop(s->catalog);
	web_free(s->web);
	web_api_free(s->api);
	catalog_free(s->catalog);
}

static int connect_to(const struct server *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(s->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval limit = { .tv_sec = 20 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* All that comes until the server closes. */
static char *answer(int fd)
{
	char *s = NULL, part[4096];
	size_t len;
	FILE *f = open_memstream(&s, &len);
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0)
		fwrite(part, 1, (size_t)n, f);
	fclose(f);
	close(fd);
	return s;
}

/* more: header lines, each with its CRLF. */
static char *ask(const struct server *s, const char *method, const char *path, const char *host,
		 const char *more)
{
	char text[8192];
	int fd = connect_to(s), n;

	n = snprintf(text, sizeof(text),
		     "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", method, path,
		     host, more);
	assert_int_equal(write(fd, text, (size_t)n), n);
	return answer(fd);
}

static void expect(const struct server *s, const char *method, const char *path, const char *host,
		   const char *more, int status)
{
	char *a = ask(s, method, path, host, more);
	int got = 0;

	sscanf(a, "HTTP/1.%*d %d", &got);
	if (got != status)
		print_error("%s %s, Host: %s, %s: %.200s\n", method, path, host, more, a);
	assert_int_equal(got, status);
	free(a);
}

/* --- a store ---------------------------------------------------------------------------------- */

static void put_profile(const char *name, u64 start_ms, const char *function, s64 ns)
{
	Pprof__Profile pb = PPROF__PROFILE__INIT;
	Pprof__ValueType type = PPROF__VALUE_TYPE__INIT, *types[] = { &type };
	Pprof__Function f = PPROF__FUNCTION__INIT, *fs[] = { &f };
	Pprof__Line line = PPROF__LINE__INIT, *lines[] = { &line };
	Pprof__Location l = PPROF__LOCATION__INIT, *ls[] = { &l };
	Pprof__Sample s = PPROF__SAMPLE__INIT, *ss[] = { &s };
	char *texts[] = { "", "cpu", "nanoseconds", (char *)function };
	char path[256];
	u8 data[4096];
	size_t len;
	FILE *file;

	type.type = 1;
	type.unit = 2;
	f.id = line.function_id = l.id = 1;
	f.name = 3;
	l.line = lines;
	l.n_line = 1;
	s.location_id = (uint64_t[]){ 1 };
	s.value = (int64_t[]){ ns };
	s.n_location_id = s.n_value = 1;
	pb.sample_type = types;
	pb.function = fs;
	pb.location = ls;
	pb.sample = ss;
	pb.n_sample_type = pb.n_function = pb.n_location = pb.n_sample = 1;
	pb.string_table = texts;
	pb.n_string_table = 4;
	pb.time_nanos = (s64)(start_ms * 1000000);
	pb.duration_nanos = 10000000000;
	assert_true(pprof__profile__get_packed_size(&pb) < sizeof(data));
	len = pprof__profile__pack(&pb, data);
	snprintf(path, sizeof(path), "%s/profiles/%s", dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, len, file), len);
	fclose(file);
}

static int setup(void **state)
{
	char path[64];

	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/profiles", dir);
	if (mkdir(path, 0700))
		return -1;
	put_profile(NAME, START, "</script><img onerror=x>", 5000);
	return 0;
}

static int teardown(void **state)
{
	char cmd[64];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* --- who may ask ------------------------------------------------------------------------------ */

static void row_61_rebinding_other_origins_and_methods_are_refused(void **state)
{
	struct server s;
	char own[64], host[32];

	(void)state;
	start(&s, "");
	snprintf(host, sizeof(host), "127.0.0.1:%u", s.port);
	expect(&s, "GET", "/api/status", host, "", 200);
	expect(&s, "GET", "/api/status", "localhost", "", 200);
	expect(&s, "GET", "/api/status", "[::1]:99", "", 200);
	expect(&s, "GET", "/api/status", "SHOP.example:1", "", 200);
	expect(&s, "GET", "/api/status", "evil.example", "", 403);
	expect(&s, "GET", "/", "evil.example", "", 403);
	expect(&s, "GET", "/", "127.0.0.1.evil.example", "", 403);
	expect(&s, "GET", "/", "localhost.evil.example", "", 403);
	expect(&s, "GET", "/", "", "", 403);
	/* Another site's script. */
	snprintf(own, sizeof(own), "Origin: http://%s\r\n", host);
	expect(&s, "GET", "/api/status", host, own, 200);
	expect(&s, "GET", "/api/status", host, "Origin: http://evil.example\r\n", 403);
	expect(&s, "GET", "/api/status", host, "Origin: null\r\n", 403);
	expect(&s, "GET", "/api/status", host, "Origin: http://127.0.0.1:1\r\n", 403);
	expect(&s, "GET", "/api/status", host, "Sec-Fetch-Site: cross-site\r\n", 403);
	expect(&s, "GET", "/api/status", host, "Sec-Fetch-Site: same-site\r\n", 403);
	expect(&s, "GET", "/api/download?format=tree", host,
	       "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", 403);
	expect(&s, "GET", "/api/status", host, "Sec-Fetch-Site: same-origin\r\n", 200);
	/* A link to the page itself. */
	expect(&s, "GET", "/", host, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
	       200);
	expect(&s, "GET", "/", host, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
	       403);
	expect(&s, "POST", "/api/status", host, "Content-Length: 0\r\n", 405);
	expect(&s, "DELETE", "/", host, "", 405);
	expect(&s, "OPTIONS", "/", host, "", 405);
	expect(&s, "HEAD", "/", host, "", 200);
	/* Nobody but the page has anything recorded. */
	expect(&s, "GET", "/api/timeline?pid=1", "evil.example", "", 403);
	expect(&s, "GET", "/api/timeline?pid=1", host, "Sec-Fetch-Site: cross-site\r\n", 403);
	expect(&s, "GET", "/api/timeline?pid=1", host, "Origin: http://evil.example\r\n", 403);
	expect(&s, "POST", "/api/timeline?pid=1", host, "Content-Length: 0\r\n", 405);
	expect(&s, "HEAD", "/api/timeline?pid=1", host, "", 405);
	assert_int_equal(recorder.begun, 0);
	stop(&s);
}

static void row_62_answers_are_no_markup(void **state)
{
	struct server s;
	char *a, path[160];

	(void)state;
	start(&s, "");
	a = ask(&s, "GET", "/", "localhost", "");
	assert_non_null(
		strstr(a, "Content-Security-Policy: default-src 'none'; script-src 'self';"));
	assert_non_null(strstr(a, "X-Content-Type-Options: nosniff"));
	assert_null(strstr(a, "Access-Control-Allow"));
	assert_null(strstr(a, "onclick="));
	free(a);
	snprintf(path, sizeof(path), "/api/flame?service=shop&from=%llu&to=%llu", START, START + 1);
	a = ask(&s, "GET", path, "localhost", "");
	assert_non_null(strstr(a, "Content-Type: application/json"));
	assert_non_null(strstr(a, "\\u003c/script\\u003e\\u003cimg onerror=x\\u003e"));
	assert_null(strstr(a, "<"));
	free(a);
	/* What one asks comes back as text, too. */
	a = ask(&s, "GET", "/api/function?name=%3Cb%3E%00%1b%ff", "localhost", "");
	assert_null(strchr(strstr(a, "\r\n\r\n"), '<'));
	assert_null(strchr(a, '\x1b'));
	free(a);
	stop(&s);
}

static void row_63_slow_large_many_and_odd_requests(void **state)
{
	static char big[64 << 10];
	struct server s;
	int fds[WEB_CONNECTIONS + 10], fd;
	u64 began;
	char *a;
	u32 i;

	(void)state;
	start(&s, "");
	expect(&s, "GET", "/../../etc/passwd", "localhost", "", 404);
	expect(&s, "GET", "/%2e%2e/%2e%2e/etc/passwd", "localhost", "", 404);
	expect(&s, "GET", "/page.js%00.html", "localhost", "", 404);
	expect(&s, "GET", "/api/flame?from=x", "localhost", "", 400);
	expect(&s, "GET", "/api/flame?from=9&to=3", "localhost", "", 400);
	expect(&s, "GET", "/api/flame?max=99999999999999999999", "localhost", "", 400);
	expect(&s, "GET", "/api/download?format=exe", "localhost", "", 400);
	memset(big, 'a', sizeof(big) - 1);
	/* More header than there is memory for. */
	fd = connect_to(&s);
	if (write(fd, "GET /", 5) != 5 || write(fd, big, sizeof(big) - 1) < 0)
		print_message("closed early\n");
	a = answer(fd);
	assert_null(strstr(a, "200 OK"));
	free(a);
	/* Two at once on one connection: both are answered. */
	fd = connect_to(&s);
	a = "GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
	    "GET /icon.svg HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	assert_int_equal(write(fd, a, strlen(a)), strlen(a));
	a = answer(fd);
	assert_non_null(strstr(a, "application/json"));
	assert_non_null(strstr(a, "image/svg+xml"));
	free(a);
	/* Connections that say nothing, or a letter now and then, do not keep others out for long. */
	for (i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = connect_to(&s);
		if (write(fds[i], "G", 1) != 1)
			break;
	}
	assert_int_equal(i, ARRAY_SIZE(fds));
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	expect(&s, "GET", "/icon.svg", "localhost", "", 200);
	began = now_monotonic();
	fd = connect_to(&s);
	while (now_monotonic() - began < 3 * WEB_HEADER_NS) {
		char c;

		if (write(fd, "G", 1) != 1 || recv(fd, &c, 1, MSG_DONTWAIT) == 0)
			break;
		usleep(200000);
	}
	assert_true(now_monotonic() - began < 3 * WEB_HEADER_NS);
	close(fd);
	expect(&s, "GET", "/icon.svg", "localhost", "", 200);
	stop(&s);
}

static void put_token(const char *path, mode_t mode)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	assert_int_equal(write(fd, TOKEN "\n", sizeof(TOKEN)), sizeof(TOKEN));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void row_64_with_a_token_nobody_reads_without_it(void **state)
{
	struct web_options o = { .listen = "0.0.0.0:0", .hosts = "" };
	struct web *none = NULL;
	char path[64], *a;
	struct server s;

	(void)state;
	/* What others can reach needs one; what looks like an address is one. */
	assert_int_equal(web_open(&o, &none), -EPERM);
	o.listen = "[::]:0";
	assert_int_equal(web_open(&o, &none), -EPERM);
	o.listen = "localhost:7077";
	assert_int_equal(web_open(&o, &none), -EINVAL);
	o.listen = "127.0.0.1";
	assert_int_equal(web_open(&o, &none), -EINVAL);
	snprintf(path, sizeof(path), "%s/token", dir);
	o.listen = "0.0.0.0:0";
	o.token_file = path;
	put_token(path, 0644);
	assert_int_equal(web_open(&o, &none), -EPERM);
	put_token(path, 0600);
	start(&s, path);
	expect(&s, "GET", "/", "localhost", "", 401);
	expect(&s, "GET", "/page.js", "localhost", "", 401);
	expect(&s, "GET", "/api/status", "localhost", "", 401);
	expect(&s, "GET", "/api/status?token=" TOKEN, "localhost", "", 401);
	expect(&s, "GET", "/api/timeline?pid=1", "localhost", "", 401);
	assert_int_equal(recorder.begun, 0);
	expect(&s, "GET", "/api/status", "localhost", "Authorization: Bearer wrong\r\n", 401);
	expect(&s, "GET", "/api/status", "localhost", "Authorization: Bearer " TOKEN "x\r\n", 401);
	expect(&s, "GET", "/api/status", "localhost", "Authorization: Bearer \r\n", 401);
	expect(&s, "GET", "/api/status", "localhost", "Authorization: Bearer " TOKEN "\r\n", 200);
	expect(&s, "GET", "/api/status", "localhost", "Cookie: ebpfprofiler=" TOKEN "\r\n", 200);
	expect(&s, "GET", "/api/status", "evil.example", "Cookie: ebpfprofiler=" TOKEN "\r\n", 403);
	expect(&s, "GET", "/?token=" TOKEN "y", "localhost", "", 401);
	a = ask(&s, "GET", "/?token=" TOKEN, "localhost", "");
	assert_non_null(strstr(a, "303 See Other"));
	assert_non_null(strstr(a, "Location: /\r\n"));
	assert_non_null(strstr(a, "HttpOnly; SameSite=Strict"));
	free(a);
	stop(&s);
}

static void answers_wait_for_no_tick(void **state)
{
	struct server s;
	u64 began;
	u32 i;

	(void)state;
	start(&s, "");
	began = now_monotonic();
	for (i = 0; i < 10; i++)
		expect(&s, "GET", "/api/status", "localhost", "", 200);
	/* Ten of them, each of which would wait half a second. */
	assert_true(now_monotonic() - began < 3 * NSEC_PER_SEC);
	stop(&s);
}

/* --- recordings --------------------------------------------------------------------------------- */

static void reset_recorder(bool is_ready)
{
	recorder.is_ready = is_ready;
	recorder.ending = false;
	recorder.begun = recorder.answered = recorder.ended = 0;
}

static int send_question(const struct server *s, const char *path)
{
	char text[256];
	int fd = connect_to(s), n;

	n = snprintf(text, sizeof(text),
		     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
	assert_int_equal(write(fd, text, (size_t)n), n);
	return fd;
}

#define SOON(x)                                                     \
	do {                                                        \
		u64 until_ns = now_monotonic() + 10 * NSEC_PER_SEC; \
		while (!(x) && now_monotonic() < until_ns)          \
			usleep(2000);                               \
		assert_true(x);                                     \
	} while (0)

static void one_recording_at_a_time_while_others_are_answered(void **state)
{
	struct server s;
	char *a;
	int fd;

	(void)state;
	reset_recorder(false);
	start(&s, "");
	expect(&s, "GET", "/api/timeline", "localhost", "", 400);
	fd = send_question(&s, "/api/timeline?pid=1");
	SOON(recorder.begun == 1);
	expect(&s, "GET", "/api/timeline?pid=1", "localhost", "", 409);
	expect(&s, "GET", "/api/status", "localhost", "", 200);
	assert_int_equal(recorder.answered, 0);
	recorder.is_ready = true;
	a = answer(fd);
	assert_non_null(strstr(a, "200 OK"));
	assert_non_null(strstr(a, "attachment; filename=\"a.gz\""));
	assert_non_null(strstr(a, "\r\n\r\ntimes"));
	free(a);
	assert_int_equal(recorder.ended, 1);
	expect(&s, "GET", "/api/timeline?pid=1", "localhost", "", 200);
	assert_int_equal(recorder.ended, 2);
	stop(&s);
	assert_int_equal(recorder.begun, 2);
	assert_int_equal(recorder.ended, 2);
}

static void who_goes_away_ends_the_recording(void **state)
{
	struct server s;
	int fd;

	(void)state;
	reset_recorder(false);
	start(&s, "");
	fd = send_question(&s, "/api/timeline?pid=1");
	SOON(recorder.begun == 1);
	close(fd);
	SOON(recorder.ended == 1);
	recorder.is_ready = true;
	expect(&s, "GET", "/api/timeline?pid=1", "localhost", "", 200);
	assert_int_equal(recorder.answered, 1);
	stop(&s);
}

static void a_recording_ends_with_profiling_and_with_the_page(void **state)
{
	struct server s;
	char *a;
	int fd;

	(void)state;
	reset_recorder(false);
	start(&s, "");
	fd = send_question(&s, "/api/timeline?pid=1");
	SOON(recorder.begun == 1);
	s.end_recording = true;
	a = answer(fd);
	assert_non_null(strstr(a, " 503 "));
	assert_non_null(strstr(a, "profiling has ended"));
	free(a);
	assert_int_equal(recorder.ended, 1);
	/* One that is just being written is waited for: its window must not go under it. */
	recorder.is_ready = recorder.ending = true;
	fd = send_question(&s, "/api/timeline?pid=1");
	SOON(recorder.answered == 1);
	s.end_recording = true;
	usleep(50000);
	assert_true(s.end_recording);
	recorder.ending = false;
	a = answer(fd);
	assert_non_null(strstr(a, "200 OK"));
	free(a);
	assert_int_equal(recorder.ended, 2);
	recorder.is_ready = false;
	fd = send_question(&s, "/api/timeline?pid=1");
	SOON(recorder.begun == 3);
	stop(&s);
	assert_int_equal(recorder.ended, 3);
	close(fd);
}

/* Answers are no cost of profiling, whoever did the work for them: the program or the kernel. */
static void time_of_answers_is_told_by_who_took_it(void **state)
{
	double user, system, user2, system2, all;
	struct rusage before, after;
	struct server s;

	(void)state;
	reset_recorder(true);
	start(&s, "");
	web_cpu_seconds(s.web, &user, &system);
	getrusage(RUSAGE_SELF, &before);
	recorder.busy = true;
	expect(&s, "GET", "/api/timeline?pid=1", "localhost", "", 200);
	recorder.busy = false;
	getrusage(RUSAGE_SELF, &after);
	web_cpu_seconds(s.web, &user2, &system2);
	all = (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
	      (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
	print_message("%.3f s of the kernel's %.3f s, user %.3f s\n", system2 - system, all,
		      user2 - user);
	assert_true(all > 0.02);
	assert_true(system2 - system > 0.5 * all);
	assert_true(system2 - system < 1.4 * all + 0.03);
	stop(&s);
}

static void expect_recording(const char *pid, const char *seconds, const char *format, int want)
{
	const struct web_question q = {
		.params = { { "pid", pid }, { "seconds", seconds }, { "format", format } },
		.nparams = 3
	};
	struct recording_question ret;

	assert_int_equal(recording_parse(&q, &ret), want);
}

static void recordings_are_bounded(void **state)
{
	(void)state;
	expect_recording("1", "", "", 0);
	expect_recording("1", "30", "perfetto", 0);
	expect_recording("2147483647", "1", "firefox", 0);
	expect_recording("2147483648", "1", "firefox", -EINVAL);
	expect_recording("0", "1", "firefox", -EINVAL);
	expect_recording("-1", "1", "firefox", -EINVAL);
	expect_recording("", "1", "firefox", -EINVAL);
	expect_recording("1", "31", "firefox", -EINVAL);
	expect_recording("1", "0", "firefox", -EINVAL);
	expect_recording("1", "1.5", "firefox", -EINVAL);
	expect_recording("1", "1", "pprof", -EINVAL);
}

/* --- the catalog ------------------------------------------------------------------------------ */

static u64 sum_of(struct catalog *c, const char *key, u64 from, u64 to)
{
	struct catalog_summary s;
	u64 sum = 0;
	u32 i, t;

	assert_int_equal(catalog_summary(c, from, to, &s), 0);
	for (i = 0; i < s.nservices; i++)
		for (t = 0; t < s.ntypes && !strcmp(s.services[i].key, key); t++)
			sum += s.services[i].value[t];
	catalog_summary_fini(&s);
	return sum;
}

static void names_are_taken_apart(void **state)
{
	char type[48], key[CATALOG_KEY];
	u64 start;

	(void)state;
	assert_true(catalog_parse_name(NAME, &start, type, key));
	assert_int_equal(start, START); /* date -d 2026-01-02T03:04:05.678Z +%s%3N */
	assert_string_equal(type, "cpu");
	assert_string_equal(key, "shop");
	assert_true(catalog_parse_name("20260102T030405Z.678-python_wall-a-b.c-2.pb.gz", &start,
				       type, key));
	assert_string_equal(type, "python_wall");
	assert_string_equal(key, "a-b.c-2");
	assert_false(catalog_parse_name("20260102T030405Z.678-cpu-.pb.gz", &start, type, key));
	assert_false(catalog_parse_name("20260102T030405Z.678-cpu.pb.gz", &start, type, key));
	assert_false(catalog_parse_name(".ebpfprofiler-0011223344556677.tmp", &start, type, key));
	assert_false(catalog_parse_name("readme", &start, type, key));
}

static void the_catalog_survives_a_restart_and_learns_what_it_missed(void **state)
{
	struct catalog_profile p = { .name = "20260102T030505Z.678-cpu-shop.pb.gz",
				     .service = "the\tshop",
				     .container = "",
				     .exe = "shop",
				     .value = 700,
				     .duration_ms = 10000,
				     .stacks = 3,
				     .whole = 2 };
	const char *lost = "20260102T030605Z.678-cpu-shop.pb.gz";
	struct catalog_range r = { .service = "shop", .type = "cpu" };
	u64 strip[2], far = START + 86400000;
	struct catalog *c;
	char path[256];

	(void)state;
	assert_int_equal(catalog_open(dir, &c), 0);
	/* Found in the directory, its sum is not known until it is read. */
	assert_int_equal(sum_of(c, "shop", START, START + 1000), 0);
	assert_int_equal(catalog_refresh(c, UINT64_MAX), 0);
	assert_int_equal(sum_of(c, "shop", START, START + 1000), 5000);
	put_profile(p.name, START + 60000, "f", 700);
	catalog_note(c, &p);
	assert_int_equal(sum_of(c, "shop", 0, far), 5700);
	assert_int_equal(sum_of(c, "shop", START + 60000, far), 700);
	/* The window begins before the range and reaches into it. */
	assert_int_equal(sum_of(c, "shop", START + 69000, far), 700);
	assert_int_equal(sum_of(c, "shop", START + 70000, far), 0);
	r.from_ms = START;
	r.to_ms = START + 120000;
	catalog_strip(c, &r, strip, 2);
	assert_int_equal(strip[0], 5000);
	assert_int_equal(strip[1], 700);
	catalog_free(c);

	/* Written by a daemon that did not note it. */
	put_profile(lost, START + 120000, "g", 11);
	assert_int_equal(catalog_open(dir, &c), 0);
	assert_int_equal(sum_of(c, "shop", START + 60000, far), 700);
	assert_int_equal(catalog_refresh(c, UINT64_MAX), 0);
	assert_int_equal(sum_of(c, "shop", 0, far), 5711);
	/* The store removes the oldest. */
	snprintf(path, sizeof(path), "%s/profiles/%s", dir, NAME);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(catalog_refresh(c, 0), 0);
	assert_int_equal(sum_of(c, "shop", 0, far), 711);
	catalog_free(c);
	assert_int_equal(catalog_open(dir, &c), 0);
	assert_int_equal(sum_of(c, "shop", 0, far), 711);
	catalog_free(c);
	put_profile(NAME, START, "</script><img onerror=x>", 5000);
}

static void services_that_come_and_go_leave_room(void **state)
{
	char name[128], service[32];
	struct catalog_profile p = {
		.name = name, .service = service, .value = 1, .duration_ms = 10000
	};
	struct catalog *c;
	u32 i;

	(void)state;
	assert_int_equal(catalog_open(dir, &c), 0);
	/* More than there is room for; their files are gone soon. */
	for (i = 0; i < CATALOG_SERVICES_MAX + 10; i++) {
		snprintf(service, sizeof(service), "once%u", i);
		snprintf(name, sizeof(name), "20260102T040000Z.000-cpu-%s.pb.gz", service);
		catalog_note(c, &p);
	}
	assert_int_equal(sum_of(c, service, START, START + 86400000), 1);
	assert_int_equal(catalog_refresh(c, UINT64_MAX), 0);
	assert_int_equal(sum_of(c, "shop", START, START + 1000), 5000);
	catalog_free(c);
}

/* Nobody asks for the page, and the store removes what is old: the catalog's file follows. */
static void the_catalog_stays_in_proportion_to_the_store(void **state)
{
	char name[128], path[256];
	struct catalog_profile p = { .name = name, .service = "old", .duration_ms = 10 };
	_cleanup_free_ char *text = NULL;
	struct catalog *c;
	size_t len, lines = 0;
	u32 i;

	(void)state;
	assert_int_equal(catalog_open(dir, &c), 0);
	for (i = 0; i < 30000; i++) {
		snprintf(name, sizeof(name), "20250102T%02u%02u%02uZ.000-cpu-old.pb.gz", i / 3600,
			 i / 60 % 60, i % 60);
		catalog_note(c, &p);
	}
	catalog_free(c);
	snprintf(path, sizeof(path), "%s/catalog", dir);
	assert_int_equal(read_file(path, 64u << 20, &text, &len), 0);
	while (len)
		lines += text[--len] == '\n';
	assert_in_range(lines, 1, 11000);
}

static void a_damaged_catalog_is_made_anew(void **state)
{
	static const char *const damage[] = { "",
					      "\n\n\n",
					      NAME "\n",
					      NAME "\t1\t2\n",
					      NAME "\t-1\t1\t1\t1\ta\tb\tc\n",
					      NAME "\t1\t1\t1\t9\ta\tb\tc\n",
					      "\xff\xfe\t\t\t\t\t\t\t\n" };
	struct catalog *c;
	char path[64];
	FILE *f;
	u32 i;

	(void)state;
	snprintf(path, sizeof(path), "%s/catalog", dir);
	for (i = 0; i < ARRAY_SIZE(damage); i++) {
		f = fopen(path, "w");
		fputs(damage[i], f);
		fclose(f);
		assert_int_equal(catalog_open(dir, &c), 0);
		assert_int_equal(catalog_refresh(c, UINT64_MAX), 0);
		assert_int_equal(sum_of(c, "shop", START, START + 1000), 5000);
		catalog_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(row_61_rebinding_other_origins_and_methods_are_refused),
		cmocka_unit_test(row_62_answers_are_no_markup),
		cmocka_unit_test(row_63_slow_large_many_and_odd_requests),
		cmocka_unit_test(row_64_with_a_token_nobody_reads_without_it),
		cmocka_unit_test(answers_wait_for_no_tick),
		cmocka_unit_test(one_recording_at_a_time_while_others_are_answered),
		cmocka_unit_test(who_goes_away_ends_the_recording),
		cmocka_unit_test(a_recording_ends_with_profiling_and_with_the_page),
		cmocka_unit_test(recordings_are_bounded),
		cmocka_unit_test(time_of_answers_is_told_by_who_took_it),
		cmocka_unit_test(names_are_taken_apart),
		cmocka_unit_test(the_catalog_survives_a_restart_and_learns_what_it_missed),
		cmocka_unit_test(services_that_come_and_go_leave_room),
		cmocka_unit_test(the_catalog_stays_in_proportion_to_the_store),
		cmocka_unit_test(a_damaged_catalog_is_made_anew),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
