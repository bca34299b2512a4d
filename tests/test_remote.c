// SPDX-License-Identifier: Apache-2.0
/*
 * Remote configuration (rows 57, 58): what an answer may say, and what comes of servers that are
 * broken, hostile, huge or slow. The server is a socket of this test that sends chosen bytes.
 */
#include "core/http.h"
#include "core/remote.h"
#include "core/stat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MS 1000000ull

/* --- what it says ----------------------------------------------------------------------------- */

static void accepted(const char *json, bool has_enabled, bool enabled, u32 interval_s, u32 ignored)
{
	struct remote_settings s;
	char text[128];
	u32 n = 99;

	if (remote_parse(json, strlen(json), &s, &n, text, sizeof(text)))
		fail_msg("%s: %s", json, text);
	assert_int_equal(s.has_enabled, has_enabled);
	assert_int_equal(s.enabled, enabled);
	assert_int_equal(s.interval_s, interval_s);
	assert_int_equal(n, ignored);
}

static void the_two_keys_are_taken(void **state __unused)
{
	accepted("{}", false, false, 0, 0);
	accepted("{\"enabled\": true}", true, true, 0, 0);
	accepted("{\"enabled\": false}", true, false, 0, 0);
	accepted(" {\"upload_interval_s\":10}\n", false, false, 10, 0);
	accepted("{\"upload_interval_s\": 3600, \"enabled\": true}", true, true, 3600, 0);
}

static void all_else_is_ignored_and_counted(void **state __unused)
{
	accepted("{\"sample_hz\": 1000, \"enabled\": true, \"upload\": {\"url\": \"http://x\"},"
		 "\"strip_process_args\": false}",
		 true, true, 0, 3);
	accepted("{\"ENABLED\": true, \"enabled \": true, \"\": [[[[]]]]}", false, false, 0, 3);
}

static void messages_of_grpc_servers(void **state __unused)
{
	static const char *const texts[][2] = {
		{ "a%20b%C3%A9%2f", "a b\303\251/" }, { "100%", "100%" },   { "%4", "%4" },
		{ "%zz%+5% 5%0x", "%zz%+5% 5%0x" },   { "%00%41", "%00A" },
	};
	char text[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		http_message(texts[i][0], strlen(texts[i][0]), text, sizeof(text));
		assert_string_equal(text, texts[i][1]);
	}
}

static void names_that_are_ignored_come_out_clean(void **state __unused)
{
	static const char json[] = "{\"\\u001b[31m\": 1, \"a\\nb\": 2, \"\\u202e\": 3}";
	struct remote_settings s;
	char text[128], *c;
	u32 n;

	assert_int_equal(remote_parse(json, strlen(json), &s, &n, text, sizeof(text)), 0);
	assert_int_equal(n, 3);
	for (c = text; *c; c++)
		assert_true((u8)*c >= 0x20 && (u8)*c < 0x7f);
}

static void row_57_wrong_answers_are_refused_whole(void **state __unused)
{
	static const char *const wrong[] = {
		"",
		"{",
		"null",
		"true",
		"[]",
		"\"enabled\"",
		"[{\"enabled\": true}]",
		"{\"enabled\": true} {}",
		"{\"enabled\": 1}",
		"{\"enabled\": \"true\"}",
		"{\"enabled\": null}",
		"{\"enabled\": true, \"enabled\": false}",
		"{\"upload_interval_s\": 0}",
		"{\"upload_interval_s\": -1}",
		"{\"upload_interval_s\": 9}",
		"{\"upload_interval_s\": 3601}",
		"{\"upload_interval_s\": 4294967306}",
		"{\"upload_interval_s\": 18446744073709551626}",
		"{\"upload_interval_s\": 1e300}",
		"{\"upload_interval_s\": 1e1}",
		"{\"upload_interval_s\": 30.5}",
		"{\"upload_interval_s\": NaN}",
		"{\"upload_interval_s\": Infinity}",
		"{\"upload_interval_s\": \"30\"}",
		"{\"upload_interval_s\": [30]}",
		"{\"upload_interval_s\": {}}",
		/* One good value does not save the other. */
		"{\"enabled\": false, \"upload_interval_s\": 0}",
		"{\"\xff\": 1}",
		"{\"a\": \"\xc3\"}",
		"enabled = true",
	};
	struct remote_settings s = { .interval_s = 77 };
	_cleanup_free_ char *deep = malloc(HTTP_BODY_MAX + 1);
	char text[128];
	u32 i, n = 99;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		if (remote_parse(wrong[i], strlen(wrong[i]), &s, &n, text, sizeof(text)) != -EINVAL)
			fail_msg("accepted: %s", wrong[i]);
		assert_true(*text);
	}
	memset(deep, '[', HTTP_BODY_MAX + 1);
	assert_int_equal(remote_parse(deep, HTTP_BODY_MAX, &s, &n, text, sizeof(text)), -EINVAL);
	assert_int_equal(remote_parse(deep, HTTP_BODY_MAX + 1, &s, &n, text, sizeof(text)),
			 -EINVAL);
	assert_int_equal(s.interval_s, 77);
	assert_int_equal(n, 99);
}

/* --- the server ------------------------------------------------------------------------------- */

static struct server {
	int fd;
	u16 port;
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	const char *answer;   /* what is sent; NULL: nothing, and the connection stays open */
	size_t endless;       /* then so many bytes more, or until the client goes */
	u32 drip_ms;          /* between two bytes */
	u32 asked;
	char request[4096];
	bool stop;
} server;

static char token_path[] = "/tmp/test_remote.XXXXXX";

static void reply(int fd, const struct server *s)
{
	static const char filler[4096] = { [0 ... 4095] = ' ' };
	const char *c;
	size_t sent;

	if (!s->answer) {
		struct pollfd p = { .fd = fd, .events = POLLRDHUP };

		poll(&p, 1, 20000);
		return;
	}
	if (!s->drip_ms && write(fd, s->answer, strlen(s->answer)) < 0)
		return;
	for (c = s->answer; s->drip_ms && *c && send(fd, c, 1, MSG_NOSIGNAL) == 1; c++)
		usleep(s->drip_ms * 1000);
	for (sent = 0; sent < s->endless; sent += sizeof(filler))
		if (send(fd, filler, sizeof(filler), MSG_NOSIGNAL) < 0)
			return;
}

static void *serve(void *arg __unused)
{
	for (;;) {
		int fd = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
		struct server copy;
		size_t len = 0;
		ssize_t n;

		if (fd < 0)
			return NULL;
		do {
			n = read(fd, copy.request + len, sizeof(copy.request) - 1 - len);
			len += (size_t)MAX(n, 0);
			copy.request[len] = '\0';
		} while (n > 0 && !strstr(copy.request, "\r\n\r\n"));
		pthread_mutex_lock(&server.lock);
		memcpy(server.request, copy.request, sizeof(copy.request));
		server.asked++;
		copy = server;
		pthread_mutex_unlock(&server.lock);
		if (!copy.stop)
			reply(fd, &copy);
		close(fd);
		if (copy.stop)
			return NULL;
	}
}

static int setup(void **state __unused)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = mkstemp(token_path);

	if (fd < 0 || write(fd, " secret-42\n", 11) != 11)
		return -1;
	close(fd);
	pthread_mutex_init(&server.lock, NULL);
	server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(server.fd, (struct sockaddr *)&a, sizeof(a)) || listen(server.fd, 64) ||
	    getsockname(server.fd, (struct sockaddr *)&a, &len))
		return -1;
	server.port = ntohs(a.sin_port);
	return pthread_create(&server.thread, NULL, serve, NULL);
}

static int teardown(void **state __unused)
{
	server.stop = true;
	shutdown(server.fd, SHUT_RDWR);
	pthread_join(server.thread, NULL);
	close(server.fd);
	return unlink(token_path);
}

static void answer_with(const char *answer, size_t endless, u32 drip_ms)
{
	pthread_mutex_lock(&server.lock);
	server.answer = answer;
	server.endless = endless;
	server.drip_ms = drip_ms;
	server.asked = 0;
	pthread_mutex_unlock(&server.lock);
}

static u32 asked(char *request, size_t size)
{
	u32 n;

	pthread_mutex_lock(&server.lock);
	n = server.asked;
	if (request)
		snprintf(request, size, "%s", server.request);
	pthread_mutex_unlock(&server.lock);
	return n;
}

static struct remote *start(const char *token_file, u64 poll_ns, u64 timeout_ns)
{
	char url[64];
	struct remote_options o = {
		.url = url, .token_file = token_file, .poll_ns = poll_ns, .timeout_ns = timeout_ns
	};
	struct remote *r = NULL;

	snprintf(url, sizeof(url), "http://127.0.0.1:%u/host", server.port);
	assert_int_equal(remote_new(&o, &r), 0);
	return r;
}

#define wait_for(condition)                                             \
	do {                                                            \
		u64 end = now_monotonic() + 10 * NSEC_PER_SEC;          \
		bool there;                                             \
		while (!(there = (condition)) && now_monotonic() < end) \
			usleep(2000);                                   \
		assert_true(there);                                     \
	} while (0)

#define OK       "HTTP/1.1 200 OK\r\nConnection: close\r\n"
#define ENABLED  "{\"enabled\": true, \"upload_interval_s\": 30}"
#define DISABLED "{\"enabled\": false}"

static bool readable(struct remote *r)
{
	struct pollfd p = { .fd = remote_fd(r), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void an_answer_is_told_once(void **state __unused)
{
	struct remote_settings s;
	struct remote *r;
	char request[4096];

	answer_with(OK "ETag: \"v1\"\r\n\r\n" ENABLED, 0, 0);
	r = start("", 50 * MS, 0);
	wait_for(readable(r));
	assert_true(remote_take(r, &s));
	assert_true(s.has_enabled && s.enabled && s.interval_s == 30);
	/* From then on with the ETag, and an answer that is the same is none. */
	answer_with("HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n", 0, 0);
	wait_for(asked(NULL, 0) >= 3);
	asked(request, sizeof(request));
	assert_non_null(strstr(request, "GET /host HTTP/1.1\r\n"));
	assert_non_null(strstr(request, "\r\nIf-None-Match: \"v1\"\r\n"));
	assert_null(strstr(request, "Authorization"));
	assert_false(readable(r) && remote_take(r, &s));
	answer_with(OK "\r\n" DISABLED, 0, 0);
	wait_for(remote_take(r, &s));
	assert_true(s.has_enabled && !s.enabled && !s.interval_s);
	remote_free(r);
}

static void the_token_goes_along(void **state __unused)
{
	char request[4096];
	struct remote *r;
	u64 before = stat_get(STAT_remote_failed);

	answer_with(OK "\r\n{}", 0, 0);
	r = start(token_path, NSEC_PER_SEC, 0);
	wait_for(asked(request, sizeof(request)));
	assert_non_null(strstr(request, "\r\nAuthorization: Bearer secret-42\r\n"));
	remote_free(r);
	/* Without its file nothing is asked. */
	answer_with(OK "\r\n{}", 0, 0);
	r = start("/nowhere/token", NSEC_PER_SEC, 0);
	wait_for(stat_get(STAT_remote_failed) > before);
	assert_int_equal(asked(NULL, 0), 0);
	remote_free(r);
}

static void an_etag_that_is_none_is_not_sent_back(void **state __unused)
{
	static const char *const answers[] = {
		OK "ETag: no-quotes\r\n\r\n{}", OK "ETag: \"a b\"\r\n\r\n{}",
		OK "ETag: \"\x01\"\r\n\r\n{}",  OK "ETag: \"\xc3\xa4\"\r\n\r\n{}",
		OK "ETag: \"\r\n\r\n{}",        OK "ETag:\r\n\r\n{}",
	};
	char request[4096];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		struct remote *r;

		answer_with(answers[i], 0, 0);
		r = start("", 10 * MS, 0);
		wait_for(asked(request, sizeof(request)) >= 3);
		assert_null(strstr(request, "If-None-Match"));
		remote_free(r);
	}
}

/* Row 57: whatever comes, what was said before stays, and the counter knows. */
static void row_57_a_bad_server_changes_nothing(void **state __unused)
{
	static const struct {
		const char *answer;
		size_t endless;
		u32 drip_ms;
	} bad[] = {
		{ "", 0, 0 },
		{ "garbage\r\n\r\n", 0, 0 },
		{ "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n" DISABLED, 0, 0 },
		{ "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n" DISABLED, 0, 0 },
		{ "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", 0, 0 },
		/* Nobody asked with an ETag. */
		{ "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n", 0, 0 },
		{ "HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\nConnection: close\r\n\r\n",
		  0, 0 },
		{ OK "\r\n{\"enabled\": fal", 0, 0 },
		{ OK "\r\n", 0, 0 },
		/* Cut short. */
		{ "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" DISABLED, 0, 0 },
		/* Right, but for a body without end. */
		{ OK "\r\n" DISABLED, 1u << 30, 0 },
		{ OK "X: ", 1u << 30, 0 },
		/* Right, but byte by byte over the timeout. */
		{ OK "\r\n" DISABLED, 0, 30 },
		{ NULL, 0, 0 },
		{ OK "Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08", 0, 0 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		u64 before = stat_get(STAT_remote_failed);
		struct remote_settings s;
		struct remote *r;

		answer_with(bad[i].answer, bad[i].endless, bad[i].drip_ms);
		r = start("", NSEC_PER_SEC, 300 * MS);
		wait_for(stat_get(STAT_remote_failed) > before);
		assert_false(remote_take(r, &s));
		remote_free(r);
	}
}

static void the_end_waits_for_no_server(void **state __unused)
{
	struct remote *r;
	u64 before;

	answer_with(NULL, 0, 0);
	r = start("", NSEC_PER_SEC, 0);
	wait_for(asked(NULL, 0));
	before = now_monotonic();
	remote_free(r);
	assert_true(now_monotonic() - before < NSEC_PER_SEC);
}

static void ignored_keys_are_counted(void **state __unused)
{
	u64 before = stat_get(STAT_remote_ignored);
	struct remote_settings s;
	struct remote *r;

	answer_with(OK "\r\n{\"sample_hz\": 1000, \"plain_pid\": true}", 0, 0);
	r = start("", NSEC_PER_SEC, 0);
	wait_for(remote_take(r, &s));
	assert_true(!s.has_enabled && !s.interval_s);
	assert_int_equal(stat_get(STAT_remote_ignored) - before, 2);
	remote_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_two_keys_are_taken),
		cmocka_unit_test(all_else_is_ignored_and_counted),
		cmocka_unit_test(messages_of_grpc_servers),
		cmocka_unit_test(names_that_are_ignored_come_out_clean),
		cmocka_unit_test(row_57_wrong_answers_are_refused_whole),
		cmocka_unit_test(an_answer_is_told_once),
		cmocka_unit_test(the_token_goes_along),
		cmocka_unit_test(an_etag_that_is_none_is_not_sent_back),
		cmocka_unit_test(row_57_a_bad_server_changes_nothing),
		cmocka_unit_test(the_end_waits_for_no_server),
		cmocka_unit_test(ignored_keys_are_counted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
