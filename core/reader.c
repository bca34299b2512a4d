// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: base. See reader.h.
 *
 * One worker waits for calls. Caller and worker hand over by one word, each sleeping in a futex on
 * it. A call's end is decided by who changes that word first: the worker (CALL to DONE) or the
 * caller whose time is up (CALL to LEFT). A worker that was left frees itself, whenever that is.
 */
#include "reader.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#define STACK_BYTES (512u << 10)
#define MEMORY_MIN  4096
#define BUSY_NS     NSEC_PER_SEC         /* that a call may take while it gets ahead */
#define PAUSE_NS    (NSEC_PER_SEC / 100) /* between looks at whether it does */

enum { IDLE, CALL, DONE, LEFT, QUIT };

/* What outlives the reader while threads hang. */
struct shared {
	atomic_uint refs; /* the reader, and each thread */
	atomic_uint left; /* threads that hang */
};

struct worker {
	struct shared *shared;
	_Atomic u32 tid; /* 0: it has not run yet */
	_Atomic u32 word;
	int (*fn)(void *arg);
	void *arg;
	void (*drop)(void *arg);
	int result;
};

struct reader {
	struct shared *shared;
	struct worker *worker; /* NULL: to be started by the next call */
	struct memory_call *memory;
};

static void shared_put(struct shared *s)
{
	if (atomic_fetch_sub(&s->refs, 1) == 1)
		free(s);
}

/* Until the word is not `value` any more, or CLOCK_MONOTONIC deadline_ns (0: none) is over. */
static u32 wait_change(_Atomic u32 *word, u32 value, u64 deadline_ns)
{
	struct timespec at = { .tv_sec = (time_t)(deadline_ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(deadline_ns % NSEC_PER_SEC) };

	/* Each turn sleeps until somebody changes the word, a signal or the deadline. */
	for (;;) {
		u32 now = atomic_load(word);

		if (now != value)
			return now;
		if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
			    deadline_ns ? &at : NULL, NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
		    errno == ETIMEDOUT)
			return atomic_load(word);
	}
}

static void change(_Atomic u32 *word, u32 value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* The caller did not wait: the argument is ours, and the worker nobody's any more. */
static void let_go(struct worker *w)
{
	if (w->drop)
		w->drop(w->arg);
	atomic_fetch_sub(&w->shared->left, 1);
}

/* False: the caller did not wait. */
static bool run(struct worker *w)
{
	u32 expected = CALL;

	w->result = w->fn(w->arg);
	if (!atomic_compare_exchange_strong(&w->word, &expected, DONE))
		return false;
	syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return true;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	u32 word = IDLE;

	atomic_store(&w->tid, (u32)syscall(SYS_gettid));
	/* A turn for each call, until the reader ends or a caller has left. */
	for (;;) {
		word = wait_change(&w->word, word, 0);
		if (word == CALL)
			word = run(w) ? DONE : LEFT;
		/* LEFT also before the call was begun: the machine was busy. */
		if (word == LEFT)
			let_go(w);
		if (word == LEFT || word == QUIT)
			break;
	}
	shared_put(w->shared);
	free(w);
	return NULL;
}

static struct worker *start(struct shared *shared)
{
	_cleanup_free_ struct worker *w = calloc(1, sizeof(*w));
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!w || pthread_attr_init(&attr))
		return NULL;
	w->shared = shared;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	atomic_fetch_add(&shared->refs, 1);
	err = thread_start(&thread, &attr, work, w);
	pthread_attr_destroy(&attr);
	if (err) {
		atomic_fetch_sub(&shared->refs, 1);
		return NULL;
	}
	return take_ptr(w);
}

/* --- the caller ------------------------------------------------------------------------------ */

struct reader *reader_new(void)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	_cleanup_free_ struct shared *shared = calloc(1, sizeof(*shared));

	if (!r || !shared)
		return NULL;
	atomic_init(&shared->refs, 1);
	r->worker = start(shared);
	if (!r->worker)
		return NULL;
	r->shared = take_ptr(shared);
	return take_ptr(r);
}

void reader_free(struct reader *r)
{
	if (!r)
		return;
	if (r->worker)
		change(&r->worker->word, QUIT);
	shared_put(r->shared);
	free(r->memory);
	free(r);
}

u32 reader_abandoned(const struct reader *r)
{
	return atomic_load(&r->shared->left);
}

/* A worker that waits for work; NULL: too many hang, or no threads. */
static struct worker *ready_worker(struct reader *r)
{
	if (reader_abandoned(r) >= READER_ABANDON_MAX)
		return NULL;
	if (!r->worker)
		r->worker = start(r->shared);
	return r->worker;
}

/* Is the worker only waiting for a CPU, or at work on one? */
static bool is_running(const struct worker *w)
{
	_cleanup_free_ char *text = NULL;
	u32 tid = atomic_load(&w->tid);
	const char *state;
	char path[64];

	if (!tid)
		return true;
	snprintf(path, sizeof(path), "/proc/self/task/%u/stat", tid);
	if (read_file(path, 4096, &text, NULL))
		return false;
	state = strrchr(text, ')');
	return state && !strncmp(state, ") R", 3);
}

/* Until it is done or its time is up; a busy machine is no reason to call it hung. */
static u32 wait_done(struct worker *w, u64 wait_ns)
{
	u64 start = now_monotonic(), deadline = start + wait_ns;
	u32 word;

	/* BUSY_NS / PAUSE_NS + 1 turns at most. */
	while ((word = wait_change(&w->word, CALL, deadline)) == CALL) {
		u64 now = now_monotonic();

		if (now - start >= MAX(wait_ns, BUSY_NS) || !is_running(w))
			break;
		deadline = now + MAX(wait_ns, PAUSE_NS);
	}
	return word;
}

/* False: it was done in the very last moment after all. */
static bool leave(struct reader *r, struct worker *w)
{
	u32 expected = CALL;

	atomic_fetch_add(&r->shared->left, 1);
	if (!atomic_compare_exchange_strong(&w->word, &expected, LEFT)) {
		atomic_fetch_sub(&r->shared->left, 1);
		return false;
	}
	r->worker = NULL;
	return true;
}

int reader_call(struct reader *r, int (*fn)(void *arg), void *arg, void (*drop)(void *arg),
		u64 wait_ns)
{
	struct worker *w = ready_worker(r);

	if (!w) {
		if (drop)
			drop(arg);
		return -ETIMEDOUT;
	}
	w->fn = fn;
	w->arg = arg;
	w->drop = drop;
	change(&w->word, CALL);
	if (wait_done(w, wait_ns) == CALL && leave(r, w))
		return -ETIMEDOUT;
	return w->result;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Kept for the next call; its own memory, since a thread that hangs may still write to it. */
struct memory_call {
	u32 pid;
	u64 addr;
	size_t len, room;
	u8 data[];
};

static int read_memory(void *arg)
{
	struct memory_call *c = arg;
	struct iovec local = { c->data, c->len };
	struct iovec remote = { (void *)(uintptr_t)c->addr, c->len };
	ssize_t n = process_vm_readv((pid_t)c->pid, &local, 1, &remote, 1, 0);

	if (n == (ssize_t)c->len)
		return 0;
	return n < 0 && (errno == ESRCH || errno == EPERM) ? -errno : -EFAULT;
}

static struct memory_call *memory_call(struct reader *r, size_t len)
{
	size_t room = MAX(len, MEMORY_MIN);

	if (r->memory && r->memory->room >= len)
		return r->memory;
	free(r->memory);
	r->memory = malloc(sizeof(*r->memory) + room);
	if (r->memory)
		r->memory->room = room;
	return r->memory;
}

int reader_memory(struct reader *r, u32 pid, u64 addr, void *dst, size_t len)
{
	struct memory_call *c;
	int err;

	if (len > READER_MEMORY_MAX)
		return -EFAULT;
	c = memory_call(r, len);
	if (!c)
		return -ENOMEM;
	c->pid = pid;
	c->addr = addr;
	c->len = len;
	err = reader_call(r, read_memory, c, free, READER_WAIT_NS);
	if (err == -ETIMEDOUT)
		r->memory = NULL;
	else if (!err)
		memcpy(dst, c->data, len);
	return err;
}
