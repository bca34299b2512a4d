// SPDX-License-Identifier: Apache-2.0
/*
 * Row 66: memory runs out at the n-th call, for each n of a whole small window: process events,
 * stacks, fold, names, pprof. Nothing crashes, nothing hangs, what could not be done is reported.
 */
#include "core/line.h"
#include "core/log.h"
#include "core/module.h"
#include "core/names.h"
#include "core/pprof.h"
#include "core/process.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

/* Sanitizers bring their own allocator; there is no way in between. */
#if defined(__SANITIZE_ADDRESS__)
#define OWN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_ALLOCATOR 1
#endif
#endif

#ifndef OWN_ALLOCATOR
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);

static _Thread_local long countdown = -1; /* calls of this thread that still succeed; -1: all */
static long calls;

static bool refuse(void)
{
	calls++;
	if (countdown < 0)
		return false;
	if (countdown > 0) {
		countdown--;
		return false;
	}
	errno = ENOMEM;
	return true; /* from here on every call fails */
}

void *malloc(size_t n)
{
	return refuse() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return refuse() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return refuse() ? NULL : __libc_realloc(p, n);
}

static void event(struct processes *ps, enum task_event_type type, u32 pid, u32 ppid, u64 lo,
		  const char *text)
{
	struct task_event ev = {
		.type = type,
		.time_ns = 10,
		.pid = pid,
		.ppid = ppid,
		.comm = text,
		.file = { .path = text ? text : "", .lo = lo, .hi = lo + 0x1000, .ino = 3 },
	};

	processes_event(ps, &ev);
}

static void stacks(struct line *l)
{
	struct {
		struct stack_event ev;
		u64 ip[8];
	} s = { .ev = { .time_ns = 20, .nuser = 8, .end = STACK_END_COMPLETE } };
	u32 i, k;

	for (i = 0; i < 100; i++) {
		s.ev.key =
			(struct stack_key){ .tgid = 100 + i % 5, .start_ns = 7, .stack_hash = i };
		snprintf(s.ev.key.comm, sizeof(s.ev.key.comm), "t%u", i % 3);
		for (k = 0; k < 8; k++)
			s.ip[k] = 0x10000 + i * 8 + k;
		line_stack(l, &s.ev, sizeof(s), true);
		line_count(l, 0, &s.ev.key, &(struct stack_count){ .count = 1 + i });
	}
}

/* Everything once; every step may fail, none may crash. */
static void window_once(void)
{
	struct line_options lo = { .period_ns = 1000 };
	struct pprof_options po = {
		.names = true, .period_ns = 1000, .host = "h", .plain_pid = true
	};
	struct modules *ms = modules_new(1 << 20);
	struct processes *ps = ms ? processes_new(ms, "/nonexistent", false) : NULL;
	struct line *l = ps ? line_new(ps, NULL, NULL, &lo) : NULL;
	struct window *w = NULL;
	u32 i;

	if (l && !line_open_epoch(l, 0, true, 1)) {
		for (i = 0; i < 5; i++) {
			event(ps, TASK_FORK, 100 + i, 1, 0, NULL);
			event(ps, TASK_EXEC, 100 + i, 0, 0, "prog");
			event(ps, TASK_MMAP, 100 + i, 0, 0x10000, "/opt/prog");
			event(ps, TASK_FORK, 200 + i, 100 + i, 0, NULL);
			event(ps, TASK_MMAP, 200 + i, 0, 0x20000, "//anon");
		}
		stacks(l);
		w = line_close_epoch(l, 0, 2);
	}
	if (w) {
		names_resolve(w, ms, NULL, 0);
		for (i = 0; i < w->nprofiles; i++) {
			u8 *data = NULL;
			size_t len;

			if (!pprof_encode(w, &w->profiles[i], &po, &data, &len))
				free(data);
		}
	}
	window_free(w);
	line_free(l);
	processes_free(ps);
	modules_free(ms);
}

static void row66_memory_fails_at_each_call(void **state __unused)
{
	long n, total;

	log_init(LOG_LEVEL_ERROR);
	calls = 0;
	window_once();
	total = calls;
	assert_true(total > 100);
	for (n = 0; n < total; n++) {
		countdown = n;
		window_once();
		countdown = -1;
	}
	print_message("%ld calls, each failed once\n", total);
}
#else
static void row66_memory_fails_at_each_call(void **state __unused)
{
	skip(); /* runs in the build without sanitizers */
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(row66_memory_fails_at_each_call) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
