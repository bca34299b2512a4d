// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See notify.h. */
#include "notify.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* "/run/systemd/notify", or "@name" of the abstract kind, which begins with a NUL byte. */
static int open_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	int fd, err;

	if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof(a.sun_path))
		return -EINVAL;
	memcpy(a.sun_path, path, len);
	if (*path == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 &&
	    !connect(fd, (struct sockaddr *)&a,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'))))
		return fd;
	err = errno;
	closep(&fd);
	return -err;
}

/* A number of the environment; 0 when it is not there or no number. */
static u64 env_number(const char *name)
{
	const char *s = getenv(name);
	char *end;
	u64 n;

	if (!s || *s < '0' || *s > '9')
		return 0;
	errno = 0;
	n = strtoull(s, &end, 10);
	return *end || errno ? 0 : n;
}

void notify_init(struct notify *n)
{
	const char *path = getenv("NOTIFY_SOCKET");
	u64 usec = env_number("WATCHDOG_USEC"), pid = env_number("WATCHDOG_PID");

	*n = (struct notify){ .fd = -1 };
	if (path && *path) {
		n->fd = open_socket(path);
		if (n->fd < 0)
			log_warn(
				"cannot tell the service manager how we are: NOTIFY_SOCKET '%s': %s",
				path, strerror(-n->fd));
	}
	/* Twice in the time given, as sd_watchdog_enabled(3) wants it. */
	if (n->fd >= 0 && usec && usec < UINT64_MAX / 1000 && (!pid || pid == (u64)getpid()))
		n->interval_ns = MAX(usec / 2, 1u) * 1000;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

void notify_fini(struct notify *n)
{
	closep(&n->fd);
	n->fd = -1;
}

/* Lines, each with its newline. Nobody waits for us when the manager does not read. */
static void tell(struct notify *n, const char *fmt, ...) __printf(2, 3);
static void tell(struct notify *n, const char *fmt, ...)
{
	char text[NOTIFY_TEXT + 128];
	va_list args;
	int len;

	if (n->fd < 0)
		return;
	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (send(n->fd, text, MIN((size_t)len, sizeof(text) - 1), MSG_NOSIGNAL) < 0)
		log_debug("the service manager does not hear: %s", strerror(errno));
}

/* With a state before it, or alone. A newline would begin a message of its own. */
static void tell_status(struct notify *n, const char *state, const char *status)
{
	char clean[NOTIFY_TEXT];

	utf8_clean(clean, sizeof(clean), status, strlen(status));
	tell(n, "%sSTATUS=%s\n", state, clean);
}

void notify_ready(struct notify *n, const char *status)
{
	tell_status(n, "READY=1\n", status);
	n->next_ns = now_monotonic() + n->interval_ns;
}

void notify_reloading(struct notify *n)
{
	tell(n, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\n", now_monotonic() / 1000);
}

void notify_stopping(struct notify *n, const char *status)
{
	tell_status(n, "STOPPING=1\n", status);
}

void notify_status(struct notify *n, const char *status)
{
	tell_status(n, "", status);
}

u64 notify_next(const struct notify *n)
{
	return n->interval_ns ? n->next_ns : UINT64_MAX;
}

void notify_alive(struct notify *n, u64 now_ns)
{
	if (!n->interval_ns || now_ns < n->next_ns)
		return;
	n->next_ns = now_ns + n->interval_ns;
	tell(n, "WATCHDOG=1\n");
}
