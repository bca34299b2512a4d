/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Messages for people, on stderr: journal priorities ("<4>...") when stderr is the
 * journal, plain text on a terminal, time stamps otherwise. Control bytes are shown as \x1b.
 * Form of a message: what failed, on what, why, what to do.
 */
#pragma once

#include "util.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Looks at stderr and JOURNAL_STREAM once; messages above `max` are not written. */
void log_init(enum log_level max);
bool log_enabled(enum log_level level);

/* Returns its first argument, so that the function that knows the noun logs and returns in one. */
int log_err(int err, const char *fmt, ...) __printf(2, 3);
void log_warn(const char *fmt, ...) __printf(1, 2);
void log_info(const char *fmt, ...) __printf(1, 2);
void log_debug(const char *fmt, ...) __printf(1, 2);

/*
 * True at most once a minute for one call site; *suppressed (may be NULL) gets how many calls
 * said nothing since. `state` is the site's own, zero at first.
 */
struct log_limit {
	u64 last_ns;
	u64 suppressed;
};
bool log_limit(struct log_limit *state, u64 *suppressed);
