// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See log.h. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum style { STYLE_PLAIN, STYLE_STAMPED, STYLE_JOURNAL };

static enum log_level max_level = LOG_LEVEL_INFO;
static enum style style = STYLE_PLAIN;

void log_init(enum log_level max)
{
	const char *journal = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	max_level = max;
	style = isatty(STDERR_FILENO) ? STYLE_PLAIN : STYLE_STAMPED;
	if (journal && sscanf(journal, "%llu:%llu", &dev, &ino) == 2 &&
	    !fstat(STDERR_FILENO, &st) && st.st_dev == dev && st.st_ino == ino)
		style = STYLE_JOURNAL;
}

bool log_enabled(enum log_level level)
{
	return level <= max_level;
}

static void put(enum log_level level, const char *fmt, va_list args)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	static const int priorities[] = { 3, 4, 6, 7 };
	char text[1024], line[2048];
	size_t n = 0, i;

	if (!log_enabled(level))
		return;
	vsnprintf(text, sizeof(text), fmt, args);
	if (style == STYLE_JOURNAL) {
		n = (size_t)snprintf(line, sizeof(line), "<%d>", priorities[level]);
	} else if (style == STYLE_STAMPED) {
		time_t t = time(NULL);
		struct tm tm;

		gmtime_r(&t, &tm);
		n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%SZ ", &tm);
	}
	if (style != STYLE_JOURNAL)
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      "ebpfprofiler: %s: ", names[level]);
	/* One escaped byte is four characters; keep room for it and the newline. */
	for (i = 0; text[i] && n + 6 < sizeof(line); i++) {
		u8 c = (u8)text[i];

		if (c < 0x20 || c == 0x7f)
			n += (size_t)snprintf(line + n, sizeof(line) - n, "\\x%02x", c);
		else
			line[n++] = (char)c;
	}
	line[n++] = '\n';
	/* One write per message; nothing can be done when stderr is gone. */
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}

#define PUT(level)                     \
	do {                           \
		va_list args;          \
		va_start(args, fmt);   \
		put(level, fmt, args); \
		va_end(args);          \
	} while (0)

int log_err(int err, const char *fmt, ...)
{
	PUT(LOG_LEVEL_ERROR);
	return err;
}

void log_warn(const char *fmt, ...)
{
	PUT(LOG_LEVEL_WARN);
}

void log_info(const char *fmt, ...)
{
	PUT(LOG_LEVEL_INFO);
}

void log_debug(const char *fmt, ...)
{
	PUT(LOG_LEVEL_DEBUG);
}

bool log_limit(struct log_limit *state, u64 *suppressed)
{
	u64 t = now_monotonic();

	if (state->last_ns && t - state->last_ns < 60 * NSEC_PER_SEC) {
		state->suppressed++;
		return false;
	}
	if (suppressed)
		*suppressed = state->suppressed;
	state->suppressed = 0;
	state->last_ns = t;
	return true;
}
