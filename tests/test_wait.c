// SPDX-License-Identifier: Apache-2.0
/*
 * Why a thread waits. Expected values are what the kernel's sources do in the named functions, and
 * what man 2 says of the system calls.
 */
#include "core/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

static enum wait_reason reason(char state, int call, const char *const *names)
{
	u32 n = 0;

	while (names[n])
		n++;
	return wait_reason(state, call, names, n);
}

#define STACK(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_kernel_stacks_tell_what_is_waited_for(void **state __unused)
{
	/* Taken from kernels of 5.10, 6.12 and 6.18, where a program did just that. */
	assert_int_equal(reason('S', SYS_futex,
				STACK("futex_wait_queue", "__futex_wait", "futex_wait", "do_futex",
				      "__x64_sys_futex", "do_syscall_64")),
			 WAIT_FUTEX);
	assert_int_equal(reason('S', SYS_clock_nanosleep,
				STACK("hrtimer_nanosleep", "common_nsleep",
				      "__x64_sys_clock_nanosleep", "do_syscall_64")),
			 WAIT_SLEEP);
	assert_int_equal(reason('S', SYS_read, STACK("anon_pipe_read", "vfs_read", "ksys_read")),
			 WAIT_PIPE);
	assert_int_equal(reason('S', SYS_read, STACK("pipe_read", "vfs_read", "ksys_read")),
			 WAIT_PIPE);
	assert_int_equal(reason('D', SYS_pread64,
				STACK("__iomap_dio_rw", "iomap_dio_rw", "ext4_file_read_iter",
				      "vfs_read", "__x64_sys_pread64")),
			 WAIT_DISK);
	assert_int_equal(reason('S', SYS_recvfrom,
				STACK("unix_stream_read_generic", "unix_stream_recvmsg",
				      "sock_recvmsg", "__sys_recvfrom")),
			 WAIT_NETWORK);
	assert_int_equal(reason('S', SYS_epoll_pwait, STACK("do_epoll_wait", "do_syscall_64")),
			 WAIT_POLL);
	assert_int_equal(reason('S', SYS_wait4, STACK("do_wait", "kernel_wait4")), WAIT_CHILD);
	assert_int_equal(reason('S', SYS_read, STACK("n_tty_read", "tty_read", "vfs_read")),
			 WAIT_TTY);
}

static void test_what_happens_to_a_thread_outdoes_what_it_asked_for(void **state __unused)
{
	/* A page of the file that read() copies to has to be read in first. */
	assert_int_equal(reason('D', SYS_read,
				STACK("io_schedule", "folio_wait_bit_common", "filemap_fault",
				      "__do_fault", "handle_mm_fault", "exc_page_fault",
				      "asm_exc_page_fault", "pipe_read", "vfs_read")),
			 WAIT_PAGE_FAULT);
	assert_int_equal(
		reason('D', -1,
		       STACK("io_schedule", "do_swap_page", "handle_mm_fault", "exc_page_fault")),
		WAIT_SWAP);
	assert_int_equal(reason('S', SYS_read, STACK("do_freezer_trap", "get_signal")),
			 WAIT_FROZEN);
	/* Where the compiler has put the one into the other. */
	assert_int_equal(reason('S', SYS_futex,
				STACK("get_signal", "arch_do_signal_or_restart",
				      "irqentry_exit_to_user_mode")),
			 WAIT_FROZEN);
	assert_int_equal(reason('D', -1, STACK("do_coredump", "get_signal")), WAIT_EXIT);
	assert_int_equal(reason('D', SYS_read,
				STACK("mutex_lock", "try_to_free_pages", "handle_mm_fault",
				      "exc_page_fault")),
			 WAIT_MEMORY);
	assert_int_equal(
		reason('S', SYS_read,
		       STACK("request_wait_answer", "fuse_file_read_iter", "sock_recvmsg")),
		WAIT_FUSE);
}

static void test_stopped_and_traced_threads_are_known_by_their_state(void **state __unused)
{
	assert_int_equal(reason('T', SYS_futex, STACK("futex_wait")), WAIT_STOPPED);
	assert_int_equal(reason('t', SYS_futex, STACK("futex_wait")), WAIT_TRACED);
}

static void test_calls_tell_where_no_function_does(void **state __unused)
{
	assert_int_equal(reason('S', SYS_futex, STACK("no_such_function")), WAIT_FUTEX);
	assert_int_equal(reason('S', SYS_ppoll, (const char *const[]){ NULL }), WAIT_POLL);
	assert_int_equal(wait_of_call(SYS_nanosleep), WAIT_SLEEP);
	assert_int_equal(wait_of_call(SYS_fsync), WAIT_DISK);
	assert_int_equal(wait_of_call(SYS_accept4), WAIT_NETWORK);
	assert_int_equal(wait_of_call(SYS_waitid), WAIT_CHILD);
	assert_int_equal(wait_of_call(SYS_rt_sigtimedwait), WAIT_SIGNAL);
	assert_int_equal(wait_of_call(SYS_flock), WAIT_FILE_LOCK);
	assert_int_equal(wait_of_call(SYS_getpid), WAIT_OTHER);
	assert_int_equal(wait_of_call(-1), WAIT_OTHER);
	assert_int_equal(wait_of_call(32767), WAIT_OTHER);
}

static void test_a_lock_within_the_kernel_says_less_than_the_call(void **state __unused)
{
	assert_int_equal(reason('D', SYS_fsync, STACK("__mutex_lock", "do_fsync")), WAIT_DISK);
	assert_int_equal(reason('D', SYS_getpid, STACK("__mutex_lock", "some_function")),
			 WAIT_KERNEL_LOCK);
}

static void test_the_compilers_suffixes_do_not_matter(void **state __unused)
{
	assert_int_equal(wait_of_function("futex_wait_queue.isra.0"), WAIT_FUTEX);
	assert_int_equal(wait_of_function("do_wait.constprop.0.cold"), WAIT_CHILD);
	assert_int_equal(wait_of_function("do_wait_"), WAIT_OTHER);
	assert_int_equal(wait_of_function(""), WAIT_OTHER);
	assert_int_equal(wait_of_function(".isra.0"), WAIT_OTHER);
}

static void test_hostile_names_are_only_names(void **state __unused)
{
	char longest[5000];

	memset(longest, 'f', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(wait_of_function(longest), WAIT_OTHER);
	assert_int_equal(wait_of_function("\xff\xfe\x01"), WAIT_OTHER);
	assert_int_equal(wait_reason('\0', 12345678, NULL, 0), WAIT_OTHER);
}

/* A table that is searched by halves must be sorted; this one is written by hand. */
static void test_every_name_of_the_table_is_found(void **state __unused)
{
	_cleanup_fclose_ FILE *f = fopen("core/wait.c", "re");
	char line[256], name[128], before[128] = "";
	u32 n = 0;

	if (!f)
		skip();
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, " { \"%127[^\"]\", WAIT_", name) != 1)
			continue;
		assert_true(strcmp(before, name) < 0);
		assert_int_not_equal(wait_of_function(name), WAIT_OTHER);
		strcpy(before, name);
		n++;
	}
	assert_true(n > 100);
}

static void test_every_reason_has_a_word_of_its_own(void **state __unused)
{
	int i, k;

	for (i = 0; i < WAIT_MAX; i++)
		for (k = 0; k < i; k++)
			assert_string_not_equal(wait_text((enum wait_reason)i),
						wait_text((enum wait_reason)k));
	assert_string_equal(wait_text(WAIT_MAX), "other");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_stacks_tell_what_is_waited_for),
		cmocka_unit_test(test_what_happens_to_a_thread_outdoes_what_it_asked_for),
		cmocka_unit_test(test_stopped_and_traced_threads_are_known_by_their_state),
		cmocka_unit_test(test_calls_tell_where_no_function_does),
		cmocka_unit_test(test_a_lock_within_the_kernel_says_less_than_the_call),
		cmocka_unit_test(test_the_compilers_suffixes_do_not_matter),
		cmocka_unit_test(test_hostile_names_are_only_names),
		cmocka_unit_test(test_every_name_of_the_table_is_found),
		cmocka_unit_test(test_every_reason_has_a_word_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
