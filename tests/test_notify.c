// SPDX-License-Identifier: Apache-2.0
/*
 * Messages to the service manager over a real socket, as sd_notify(3) documents them: what comes
 * out of the socket is compared with the words of that page.
 */
#include "core/notify.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

static char dir[] = "/tmp/test_notify.XXXXXX";
static char path[64];
static int fd;

static int listen_at(const char *name, bool abstract)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
	int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(a.sun_path, name);
	if (abstract)
		a.sun_path[0] = '\0';
	else
		len++;
	assert_true(s >= 0);
	assert_int_equal(bind(s, (struct sockaddr *)&a, len), 0);
	return s;
}

static int setup(void **state __unused)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/notify", dir);
	fd = listen_at(path, false);
	return 0;
}

static int teardown(void **state __unused)
{
	close(fd);
	unlink(path);
	return rmdir(dir);
}

/* The next message, "" when there is none. */
static const char *heard_by(int s)
{
	static char text[4096];
	ssize_t n = recv(s, text, sizeof(text) - 1, 0);

	text[MAX(n, 0)] = '\0';
	return text;
}

static const char *heard(void)
{
	return heard_by(fd);
}

static void begin(struct notify *n, const char *where, const char *usec, const char *pid)
{
	setenv("NOTIFY_SOCKET", where, 1);
	if (usec)
		setenv("WATCHDOG_USEC", usec, 1);
	if (pid)
		setenv("WATCHDOG_PID", pid, 1);
	notify_init(n);
}

static void each_state_is_told_with_its_line(void **state __unused)
{
	struct notify n;
	u64 before = now_monotonic() / 1000, at = 0;
	int end = 0;

	begin(&n, path, NULL, NULL);
	notify_ready(&n, "sampling");
	assert_string_equal(heard(), "READY=1\nSTATUS=sampling\n");
	notify_reloading(&n);
	assert_int_equal(sscanf(heard(), "RELOADING=1\nMONOTONIC_USEC=%lu\n%n", &at, &end), 1);
	assert_true(end && at >= before && at <= now_monotonic() / 1000);
	notify_status(&n, "one\nWATCHDOG=1");
	assert_string_equal(heard(), "STATUS=one?WATCHDOG=1\n");
	notify_stopping(&n, "ends");
	assert_string_equal(heard(), "STOPPING=1\nSTATUS=ends\n");
	assert_string_equal(heard(), "");
	notify_fini(&n);
}

static void a_long_status_is_cut_and_ends_its_line(void **state __unused)
{
	char text[2000];
	struct notify n;
	const char *s;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	begin(&n, path, NULL, NULL);
	notify_ready(&n, text);
	s = heard();
	assert_true(strlen(s) < NOTIFY_TEXT + 32);
	assert_int_equal(s[strlen(s) - 1], '\n');
	notify_fini(&n);
}

static void abstract_sockets_begin_with_an_at(void **state __unused)
{
	char name[64];
	struct notify n;
	int s;

	snprintf(name, sizeof(name), "@test_notify.%d", getpid());
	s = listen_at(name, true);
	begin(&n, name, NULL, NULL);
	notify_ready(&n, "on");
	assert_string_equal(heard_by(s), "READY=1\nSTATUS=on\n");
	notify_fini(&n);
	close(s);
}

static void children_do_not_inherit_it(void **state __unused)
{
	struct notify n;

	begin(&n, path, "1000000", "1");
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_USEC"));
	assert_null(getenv("WATCHDOG_PID"));
	notify_fini(&n);
}

static void without_a_socket_nothing_happens(void **state __unused)
{
	static const char *const bad[] = {
		"", "/", "@", "relative", "/nowhere/at/all", "vsock:2:1"
	};
	char text[300];
	struct notify n;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(&n, bad[i], "1000000", NULL);
		notify_ready(&n, "on");
		notify_alive(&n, UINT64_MAX - 1);
		assert_true(notify_next(&n) == UINT64_MAX);
		notify_fini(&n);
	}
	memset(text, '/', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	begin(&n, text, NULL, NULL);
	notify_ready(&n, "on");
	notify_fini(&n);
	notify_init(&n);
	notify_ready(&n, "on");
	notify_fini(&n);
	assert_string_equal(heard(), "");
}

/* Half the time that is given, and only when it is asked for. */
static void signs_of_life_come_when_they_are_due(void **state __unused)
{
	struct notify n;
	u64 t;

	begin(&n, path, "2000000", NULL);
	notify_ready(&n, "on");
	heard();
	t = notify_next(&n);
	assert_true(t > now_monotonic() && t <= now_monotonic() + NSEC_PER_SEC);
	notify_alive(&n, t - 1);
	assert_string_equal(heard(), "");
	notify_alive(&n, t);
	assert_string_equal(heard(), "WATCHDOG=1\n");
	notify_alive(&n, t + 1);
	assert_string_equal(heard(), "");
	assert_true(notify_next(&n) == t + NSEC_PER_SEC);
	notify_fini(&n);
}

static void the_watchdog_of_another_process_is_not_ours(void **state __unused)
{
	char pid[16];
	struct notify n;

	begin(&n, path, "2000000", "1");
	assert_true(notify_next(&n) == UINT64_MAX);
	notify_fini(&n);
	snprintf(pid, sizeof(pid), "%d", getpid());
	begin(&n, path, "2000000", pid);
	assert_true(notify_next(&n) != UINT64_MAX);
	notify_fini(&n);
	begin(&n, path, "99999999999999999999999", pid);
	assert_true(notify_next(&n) == UINT64_MAX);
	notify_fini(&n);
	begin(&n, path, "-5", pid);
	assert_true(notify_next(&n) == UINT64_MAX);
	notify_fini(&n);
}

/* A manager that does not read must not hold us up. */
static void a_deaf_manager_does_not_block(void **state __unused)
{
	struct notify n;
	u64 start = now_monotonic();
	u32 i;

	begin(&n, path, NULL, NULL);
	for (i = 0; i < 5000; i++)
		notify_status(&n, "again");
	assert_true(now_monotonic() - start < 2 * NSEC_PER_SEC);
	for (i = 0; i < 5000 && *heard(); i++)
		;
	notify_fini(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_is_told_with_its_line),
		cmocka_unit_test(a_long_status_is_cut_and_ends_its_line),
		cmocka_unit_test(abstract_sockets_begin_with_an_at),
		cmocka_unit_test(children_do_not_inherit_it),
		cmocka_unit_test(without_a_socket_nothing_happens),
		cmocka_unit_test(signs_of_life_come_when_they_are_due),
		cmocka_unit_test(the_watchdog_of_another_process_is_not_ours),
		cmocka_unit_test(a_deaf_manager_does_not_block),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
