// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that may never return. A function that waits for us stands for a dead file system; pages
 * under userfaultfd that nobody serves are the real thing, where the host allows them. With
 * HANG_FILE and HANG_PID in the environment (tests/live_target.sh), so is a FUSE server that falls
 * silent.
 */
#include "core/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#define SHORT_NS (NSEC_PER_SEC / 50)
#define LONG_NS  (20 * NSEC_PER_SEC)
/* What a deadline may take when the machine is busy. */
#define SLACK_NS (NSEC_PER_SEC / 2)

/* A call that ends when told. */
struct gate {
	int fd[2];
	atomic_uint dropped, done;
};

static int wait_at_gate(void *arg)
{
	struct gate *g = *(struct gate **)arg;
	char c;

	while (read(g->fd[0], &c, 1) < 0 && errno == EINTR)
		;
	atomic_fetch_add(&g->done, 1);
	return 7;
}

static void drop_gate(void *arg)
{
	atomic_fetch_add(&(*(struct gate **)arg)->dropped, 1);
	free(arg);
}

static struct gate **at_gate(struct gate *g)
{
	struct gate **arg = malloc(sizeof(*arg));

	assert_non_null(arg);
	*arg = g;
	return arg;
}

static void gate_init(struct gate *g)
{
	*g = (struct gate){ 0 };
	assert_int_equal(pipe2(g->fd, O_CLOEXEC), 0);
}

/* Everybody at the gate goes on. */
static void gate_open(struct gate *g)
{
	close(g->fd[1]);
}

static void wait_until(atomic_uint *value, u32 wanted)
{
	u32 i;

	for (i = 0; i < 5000 && atomic_load(value) != wanted; i++)
		usleep(1000);
	assert_int_equal(atomic_load(value), wanted);
}

static int add_one(void *arg)
{
	return ++*(int *)arg;
}

static int thread_id(void *arg)
{
	*(pid_t *)arg = (pid_t)syscall(SYS_gettid);
	return 0;
}

static void a_call_gives_the_functions_result(void **state __unused)
{
	struct reader *r = reader_new();
	int n = 0, i;

	assert_non_null(r);
	for (i = 1; i <= 1000; i++)
		assert_int_equal(reader_call(r, add_one, &n, NULL, LONG_NS), i);
	assert_int_equal(reader_abandoned(r), 0);
	reader_free(r);
}

static void calls_run_in_another_thread(void **state __unused)
{
	struct reader *r = reader_new();
	pid_t a = 0, b = 0;

	reader_call(r, thread_id, &a, NULL, LONG_NS);
	reader_call(r, thread_id, &b, NULL, LONG_NS);
	assert_true(a && a != (pid_t)syscall(SYS_gettid));
	assert_int_equal(a, b);
	reader_free(r);
}

static void a_call_that_hangs_costs_its_deadline_and_the_next_one_works(void **state __unused)
{
	struct reader *r = reader_new();
	struct gate g;
	u64 start;
	int n = 0;

	gate_init(&g);
	start = now_monotonic();
	assert_int_equal(reader_call(r, wait_at_gate, at_gate(&g), drop_gate, SHORT_NS),
			 -ETIMEDOUT);
	assert_true(now_monotonic() - start >= SHORT_NS);
	assert_true(now_monotonic() - start < SHORT_NS + SLACK_NS);
	assert_int_equal(reader_abandoned(r), 1);
	assert_int_equal(reader_call(r, add_one, &n, NULL, LONG_NS), 1);
	assert_int_equal(atomic_load(&g.dropped), 0);
	gate_open(&g);
	wait_until(&g.dropped, 1);
	wait_until(&g.done, 1);
	for (n = 0; n < 5000 && reader_abandoned(r); n++)
		usleep(1000);
	assert_int_equal(reader_abandoned(r), 0);
	reader_free(r);
	close(g.fd[0]);
}

static void too_many_hanging_calls_make_the_next_ones_fail_at_once(void **state __unused)
{
	struct reader *r = reader_new();
	struct gate g;
	u64 start;
	u32 i;
	int n = 0;

	gate_init(&g);
	for (i = 0; i < READER_ABANDON_MAX; i++)
		assert_int_equal(reader_call(r, wait_at_gate, at_gate(&g), drop_gate,
					     SHORT_NS / 10),
				 -ETIMEDOUT);
	assert_int_equal(reader_abandoned(r), READER_ABANDON_MAX);
	start = now_monotonic();
	assert_int_equal(reader_call(r, wait_at_gate, at_gate(&g), drop_gate, NSEC_PER_SEC * 5),
			 -ETIMEDOUT);
	assert_true(now_monotonic() - start < NSEC_PER_SEC);
	/* Its argument is gone already, the others' when they return. */
	assert_int_equal(atomic_load(&g.dropped), 1);
	gate_open(&g);
	wait_until(&g.dropped, READER_ABANDON_MAX + 1);
	for (n = 0; n < 5000 && reader_abandoned(r); n++)
		usleep(1000);
	n = 0;
	assert_int_equal(reader_call(r, add_one, &n, NULL, LONG_NS), 1);
	reader_free(r);
	close(g.fd[0]);
}

static int burn(void *arg)
{
	u64 start = now_monotonic();

	while (now_monotonic() - start < 10 * SHORT_NS)
		;
	return add_one(arg);
}

static void a_call_that_is_at_work_is_not_called_hung(void **state __unused)
{
	struct reader *r = reader_new();
	static int n;

	assert_int_equal(reader_call(r, burn, &n, NULL, SHORT_NS), 1);
	assert_int_equal(reader_abandoned(r), 0);
	reader_free(r);
}

static void a_reader_may_be_freed_while_calls_hang(void **state __unused)
{
	struct reader *r = reader_new();
	struct gate g;

	gate_init(&g);
	assert_int_equal(reader_call(r, wait_at_gate, at_gate(&g), drop_gate, SHORT_NS),
			 -ETIMEDOUT);
	reader_free(r);
	gate_open(&g);
	wait_until(&g.dropped, 1);
	close(g.fd[0]);
}

/* --- memory ---------------------------------------------------------------------------------- */

#define PAGE 4096

/* A child that stands still, with memory of ours. */
static pid_t start_child(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		for (;;)
			pause();
	}
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void memory_of_another_process_is_read(void **state __unused)
{
	struct reader *r = reader_new();
	u8 *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 at = (u64)(uintptr_t)page;
	u8 got[16] = { 0 };
	pid_t pid;

	memcpy(page + PAGE - 8, "0123456789abcdef", 16);
	mprotect(page + PAGE, PAGE, PROT_NONE);
	pid = start_child();
	memset(page, 0, PAGE); /* ours, not the child's */
	assert_int_equal(reader_memory(r, (u32)pid, at + PAGE - 8, got, 8), 0);
	assert_memory_equal(got, "01234567", 8);
	/* Not one byte of what cannot be had whole. */
	assert_int_equal(reader_memory(r, (u32)pid, at + PAGE - 8, got, 16), -EFAULT);
	assert_int_equal(reader_memory(r, (u32)pid, at + PAGE, got, 1), -EFAULT);
	assert_int_equal(reader_memory(r, (u32)pid, 0, got, 1), -EFAULT);
	assert_int_equal(reader_memory(r, (u32)pid, UINT64_MAX - 4, got, 16), -EFAULT);
	assert_int_equal(reader_memory(r, (u32)pid, 1ull << 63, got, 16), -EFAULT);
	assert_int_equal(reader_memory(r, (u32)pid, at, got, READER_MEMORY_MAX + 1), -EFAULT);
	end_child(pid);
	assert_int_equal(reader_memory(r, (u32)pid, at, got, 8), -ESRCH);
	reader_free(r);
	munmap(page, 2 * PAGE);
}

/* Pages of ours that nobody serves; -1: not allowed here. */
static int unserved(u8 *page, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { (u64)(uintptr_t)page, len },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void a_page_that_nobody_serves_costs_one_deadline(void **state __unused)
{
	struct reader *r = reader_new();
	u8 *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 at = (u64)(uintptr_t)page, start = now_monotonic();
	int fd, i;
	u8 got[8];

	page[PAGE] = 1;
	fd = unserved(page, PAGE);
	if (fd < 0) {
		reader_free(r);
		skip();
	}
	assert_int_equal(reader_memory(r, (u32)getpid(), at, got, 8), -ETIMEDOUT);
	assert_true(now_monotonic() - start < READER_WAIT_NS + SLACK_NS);
	assert_int_equal(reader_abandoned(r), 1);
	assert_int_equal(reader_memory(r, (u32)getpid(), at + PAGE, got, 8), 0);
	assert_int_equal(got[0], 1);
	/* The end of the userfaultfd lets the page be filled, and the thread go. */
	close(fd);
	for (i = 0; i < 5000 && reader_abandoned(r); i++)
		usleep(1000);
	assert_int_equal(reader_abandoned(r), 0);
	reader_free(r);
	munmap(page, 2 * PAGE);
}

static void a_page_of_a_file_system_that_is_silent_costs_one_deadline(void **state __unused)
{
	const char *path = getenv("HANG_FILE"), *server = getenv("HANG_PID");
	struct reader *r;
	u64 start;
	u8 got[8], *page;
	int fd, i;

	if (!path || !server)
		skip();
	r = reader_new();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(page != MAP_FAILED);
	kill((pid_t)atoi(server), SIGUSR2);
	usleep(100000);
	start = now_monotonic();
	assert_int_equal(reader_memory(r, (u32)getpid(), (u64)(uintptr_t)page, got, 8), -ETIMEDOUT);
	assert_true(now_monotonic() - start < READER_WAIT_NS + SLACK_NS);
	assert_int_equal(reader_memory(r, (u32)getpid(), (u64)(uintptr_t)&start, got, 8), 0);
	/* No signal ends such a wait, not even ours when we exit. */
	kill((pid_t)atoi(server), SIGKILL);
	for (i = 0; i < 5000 && reader_abandoned(r); i++)
		usleep(1000);
	assert_int_equal(reader_abandoned(r), 0);
	reader_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_gives_the_functions_result),
		cmocka_unit_test(calls_run_in_another_thread),
		cmocka_unit_test(a_call_that_hangs_costs_its_deadline_and_the_next_one_works),
		cmocka_unit_test(too_many_hanging_calls_make_the_next_ones_fail_at_once),
		cmocka_unit_test(a_call_that_is_at_work_is_not_called_hung),
		cmocka_unit_test(a_reader_may_be_freed_while_calls_hang),
		cmocka_unit_test(memory_of_another_process_is_read),
		cmocka_unit_test(a_page_that_nobody_serves_costs_one_deadline),
		cmocka_unit_test(a_page_of_a_file_system_that_is_silent_costs_one_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
