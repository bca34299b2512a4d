// SPDX-License-Identifier: Apache-2.0
/* The process book: /proc texts as they can be, images, mappings. */
#include "core/module.h"
#include "core/process.h"
#include "core/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
/* after those */
#include <cmocka.h>

static int parse(const char *line, struct mapped_file *f, u64 *offset, char buf[PATH_MAX])
{
	return process_parse_maps_line(line, strlen(line), f, offset, buf, PATH_MAX);
}

static void maps_line_of_a_library(void **state __unused)
{
	struct mapped_file f;
	char buf[PATH_MAX];
	u64 offset;

	assert_int_equal(parse("7f0000001000-7f0000003000 r-xp 00002000 fe:01 4711   /usr/lib/x.so",
			       &f, &offset, buf),
			 0);
	assert_int_equal(f.lo, 0x7f0000001000);
	assert_int_equal(f.hi, 0x7f0000003000);
	assert_int_equal(offset, 0x2000);
	assert_int_equal(f.major, 0xfe);
	assert_int_equal(f.minor, 1);
	assert_int_equal(f.ino, 4711);
	assert_string_equal(f.path, "/usr/lib/x.so");
}

static void row19_maps_line_escapes_and_spaces(void **state __unused)
{
	struct mapped_file f;
	char buf[PATH_MAX];
	u64 offset;

	assert_int_equal(
		parse("1000-2000 r-xp 0 00:00 1 /a\\012b c\\134d (deleted)", &f, &offset, buf), 0);
	assert_string_equal(f.path, "/a\nb c\\d");
	assert_int_equal(parse("1000-2000 r-xp 0 00:00 1 /x (deleted) (deleted)", &f, &offset, buf),
			 0);
	assert_string_equal(f.path, "/x (deleted)");
	assert_int_equal(parse("1000-2000 r-xp 0 00:00 1 /esc\033[31m\\0", &f, &offset, buf), 0);
	assert_string_equal(f.path, "/esc\033[31m\\0");
	assert_int_equal(parse("1000-2000 rwxp 0 00:00 0", &f, &offset, buf), 0);
	assert_string_equal(f.path, "//anon");
	assert_int_equal(parse("1000-2000 rw-p 0 00:00 0", &f, &offset, buf), -ENOENT);
}

static void row19_maps_line_over_path_max(void **state __unused)
{
	struct mapped_file f;
	char buf[PATH_MAX], *line = malloc(5 * PATH_MAX);
	u64 offset;
	int i, n = sprintf(line, "1000-2000 r-xp 0 00:00 1 /");

	/* Longest real name, each byte escaped: fits. One more byte does not, and is refused whole. */
	for (i = 0; i < PATH_MAX - 2; i++)
		n += sprintf(line + n, "\\012");
	assert_int_equal(parse(line, &f, &offset, buf), 0);
	assert_int_equal(strlen(f.path), PATH_MAX - 1);
	strcat(line, "a");
	assert_int_equal(parse(line, &f, &offset, buf), -EINVAL);
	free(line);
}

static void malformed_maps_lines(void **state __unused)
{
	static const char *const lines[] = { "",
					     "x",
					     "1000-",
					     "2000-1000 r-xp 0 00:00 0",
					     "1000-2000",
					     "1000-1000 r-xp 0 00:00 0 /x",
					     "1000-2000 r-x 0 00:00 0 /x",
					     "1000-2000 r-xp 0 00:00" };
	struct mapped_file f;
	char buf[PATH_MAX];
	u64 offset;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lines); i++)
		assert_int_equal(parse(lines[i], &f, &offset, buf), -EINVAL);
}

static struct processes *book(struct modules **ms)
{
	*ms = modules_new(1 << 20);
	return processes_new(*ms, "/proc", false);
}

static void event(struct processes *ps, enum task_event_type type, u64 time, u32 pid, u32 ppid,
		  const char *comm)
{
	struct task_event ev = {
		.type = type, .time_ns = time, .pid = pid, .ppid = ppid, .comm = comm
	};

	processes_event(ps, &ev);
}

static void map(struct processes *ps, u64 time, u32 pid, u64 lo, u64 hi, const char *path)
{
	struct task_event ev = { .type = TASK_MMAP,
				 .time_ns = time,
				 .pid = pid,
				 .file = { .path = path, .lo = lo, .hi = hi, .ino = 1 } };

	processes_event(ps, &ev);
}

#define FAR (1u << 30) /* no such process here */

static void snapshot_knows_this_very_process(void **state __unused)
{
	struct process_place place;
	char exe[PATH_MAX];
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = (u32)getpid() };
	struct process *p;
	_cleanup_free_ char *text = NULL;
	unsigned long long ticks;
	const char *f;
	int i;

	assert_int_equal(processes_snapshot(ps), 0);
	/* Its start, as the kernel has it: field 22, counted behind the name. */
	assert_int_equal(read_file("/proc/self/stat", 4096, &text, NULL), 0);
	f = strrchr(text, ')') + 1;
	for (i = 0; i < 19; i++)
		f = strchr(f + 1, ' ');
	ticks = strtoull(f, NULL, 10);
	key.start_ns = ticks * (NSEC_PER_SEC / (u64)sysconf(_SC_CLK_TCK)) + 1;
	p = processes_find(ps, &key, now_monotonic(), false);
	assert_non_null(p);
	assert_int_equal(p->ppid, getppid());
	exe[readlink("/proc/self/exe", exe, sizeof(exe) - 1)] = '\0';
	assert_string_equal(p->exe, exe);
	assert_int_equal(processes_locate(ps, p, (u64)(uintptr_t)&read_file, &place), 0);
	assert_string_equal(place.mapping, exe);
	assert_non_null(place.module);
	assert_int_equal(processes_locate(ps, p, (u64)(uintptr_t)&place, &place),
			 -ENOENT); /* stack */
	/* Another start time is another process, which is not there. */
	key.start_ns += NSEC_PER_SEC;
	assert_null(processes_find(ps, &key, now_monotonic(), false));
	processes_free(ps);
	modules_free(ms);
}

static void row30_process_gone_before_it_was_seen(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5, .comm = "flash" };
	u64 before = stat_get(STAT_process_unknown);
	struct process *p = processes_find(ps, &key, 1, true);

	assert_non_null(p);
	assert_string_equal(p->comm, "flash");
	assert_null(p->exe);
	assert_int_equal(stat_get(STAT_process_unknown) - before, 1);
	assert_ptr_equal(processes_find(ps, &key, 2, true), p);
	processes_trim(ps, NSEC_PER_SEC);
	assert_int_equal(processes_count(ps), 0);
	processes_free(ps);
	modules_free(ms);
}

static void row31_reused_pid_never_takes_the_other_ones_identity(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	/* Our own pid, but a start that is not ours: as if the pid had been reused since. */
	struct stack_key key = { .tgid = (u32)getpid(), .start_ns = 5, .comm = "old" };
	struct process *p = processes_find(ps, &key, 1, true);

	assert_non_null(p);
	assert_null(p->exe);
	assert_null(p->maps);
	assert_string_equal(p->comm, "old");
	processes_free(ps);
	modules_free(ms);
}

static void row32_exec_makes_a_new_image(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5, .exec_id = 1 };
	struct process_place place;
	struct process *a, *b;

	event(ps, TASK_EXEC, 10, FAR, 0, "one");
	map(ps, 11, FAR, 0x1000, 0x2000, "/bin/one");
	a = processes_find(ps, &key, 20, false);
	event(ps, TASK_EXEC, 30, FAR, 0, "two");
	map(ps, 31, FAR, 0x1000, 0x2000, "/bin/two");
	key.exec_id = 2;
	b = processes_find(ps, &key, 29, false); /* a hair before its announcement */
	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	assert_string_equal(a->exe, "/bin/one");
	assert_string_equal(b->exe, "/bin/two");
	assert_int_equal(processes_locate(ps, b, 0x1800, &place), 0);
	assert_string_equal(place.mapping, "/bin/two");
	processes_free(ps);
	modules_free(ms);
}

/* Within an exec the number of execs is the old image's for a while: nothing follows from it. */
static void sample_within_an_exec_names_no_image(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5, .exec_id = 1 };
	struct process *p, *now;

	event(ps, TASK_FORK, 10, FAR, 1, NULL);
	event(ps, TASK_EXEC, 30, FAR, 0, "two");
	map(ps, 31, FAR, 0x1000, 0x2000, "/bin/two");
	now = processes_current(ps, &key); /* sampled in the kernel, still counted as the first */
	assert_string_equal(now->exe, "/bin/two");
	key.exec_id = 2;
	p = processes_find(ps, &key, 40, false);
	assert_ptr_equal(p, now);
	assert_int_equal(p->exec_id, 2);
	assert_false(p->replaced);
	key.start_ns = 6; /* another process */
	assert_null(processes_current(ps, &key));
	processes_free(ps);
	modules_free(ms);
}

static void *wait_for_pipe(void *fd)
{
	char c;

	if (read(*(int *)fd, &c, 1) < 0)
		return fd;
	return NULL;
}

static void row33_main_thread_gone_others_run(void **state __unused)
{
	int fd[2], ready[2];
	struct modules *ms;
	struct processes *ps = book(&ms);
	char c;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		pthread_t t;

		pthread_create(&t, NULL, wait_for_pipe, &fd[0]);
		if (write(ready[1], "x", 1) == 1)
			pthread_exit(NULL); /* leaves a zombie leader with a living thread */
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	event(ps, TASK_FORK, 10, (u32)pid, 0, NULL);
	event(ps, TASK_EXIT, UINT64_MAX, (u32)pid, 0, NULL);
	processes_trim(ps, 2 * NSEC_PER_SEC);
	assert_int_equal(processes_count(ps), 1);
	close(fd[1]);
	close(fd[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	processes_trim(ps, 13 * NSEC_PER_SEC);
	assert_int_equal(processes_count(ps), 0);
	close(ready[0]);
	close(ready[1]);
	processes_free(ps);
	modules_free(ms);
}

static void row34_thirty_thousand_processes(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	u32 i;

	event(ps, TASK_EXEC, 1, FAR, 0, "parent");
	for (i = 1; i <= 30000; i++) {
		event(ps, TASK_FORK, 1 + i, FAR + i, FAR, NULL);
		if (i % 2)
			event(ps, TASK_EXIT, 2 + i, FAR + i, 0, NULL);
	}
	assert_int_equal(processes_count(ps), 30001);
	/* Those that ended go at once; the others are missed in /proc at the next full look. */
	processes_trim(ps, NSEC_PER_SEC);
	assert_int_equal(processes_count(ps), 15001);
	processes_trim(ps, 11 * NSEC_PER_SEC);
	assert_int_equal(processes_count(ps), 0);
	processes_free(ps);
	modules_free(ms);
}

static void row34_more_than_the_limit_is_refused_and_counted(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	u64 before = stat_get(STAT_process_refused);
	u32 i;

	for (i = 0; i < PROCESSES_MAX + 10; i++)
		event(ps, TASK_EXEC, 1, FAR + i, 0, "x");
	assert_int_equal(processes_count(ps), PROCESSES_MAX);
	assert_int_equal(stat_get(STAT_process_refused) - before, 10);
	processes_free(ps);
	modules_free(ms);
}

static void row36_mapping_churn_stays_bounded_and_right(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5 };
	u64 before = stat_get(STAT_mapping_refused), i;
	struct process_place place;
	struct process *p;

	event(ps, TASK_EXEC, 1, FAR, 0, "jit");
	for (i = 0; i < 130000; i++)
		map(ps, 2 + i, FAR, 0x100000 + i * 0x2000, 0x101000 + i * 0x2000, "//anon");
	assert_int_equal(stat_get(STAT_mapping_refused) - before, 130000 - PROCESS_MAPPINGS_MAX);
	p = processes_find(ps, &key, 1000000, false);
	assert_non_null(p);
	for (i = 0; i < PROCESS_MAPPINGS_MAX; i += 997) {
		assert_int_equal(processes_locate(ps, p, 0x100800 + i * 0x2000, &place), 0);
		assert_int_equal(processes_locate(ps, p, 0x101800 + i * 0x2000, &place), -ENOENT);
	}
	processes_free(ps);
	modules_free(ms);
}

/* Against a plain array of bytes: which file covers which address after random maps. */
static void overlapping_maps_show_the_newest(void **state __unused)
{
	enum { SPACE = 512 };
	static const char *const names[] = { "/a", "/b", "/c", "/d" };
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5 };
	const char *model[SPACE] = { 0 };
	struct process_place place;
	struct process *p;
	u32 seed = 42, i, k;

	event(ps, TASK_EXEC, 1, FAR, 0, "x");
	p = processes_find(ps, &key, 1, false);
	for (i = 0; i < 3000; i++) {
		u32 lo, n;

		seed = seed * 1664525 + 1013904223;
		lo = (seed >> 8) % (SPACE - 32);
		n = 1 + (seed >> 20) % 31;
		map(ps, 2 + i, FAR, (lo + 1) * 4096ull, (lo + n + 1) * 4096ull, names[seed >> 30]);
		for (k = lo; k < lo + n; k++)
			model[k] = names[seed >> 30];
		if (i % 7 && i % 500 < 400)
			continue; /* sometimes many wait, sometimes few */
		for (k = 0; k < SPACE; k++) {
			int err = processes_locate(ps, p, (k + 1) * 4096ull + 7, &place);

			assert_int_equal(err, model[k] ? 0 : -ENOENT);
			if (!err)
				assert_string_equal(place.mapping, model[k]);
		}
	}
	processes_free(ps);
	modules_free(ms);
}

/* As "huge text" does it: the middle of a file's text is anonymous memory with the same bytes. */
static void text_moved_to_anonymous_memory_is_still_the_files(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key key = { .tgid = FAR, .start_ns = 5 };
	struct process_place place, whole;
	struct mapped_file f;
	struct process *p;
	char exe[PATH_MAX], buf[PATH_MAX], *text, *line, *save;
	u64 offset, lo, hi;
	size_t n;

	/* Our own text, from the kernel. */
	n = (size_t)readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	exe[n] = '\0';
	assert_int_equal(read_file("/proc/self/maps", 1 << 20, &text, NULL), 0);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!parse(line, &f, &offset, buf) && !strcmp(f.path, exe))
			break;
	assert_non_null(line);
	lo = f.lo;
	hi = f.hi;
	assert_true(hi - lo >= 0x3000);

	event(ps, TASK_EXEC, 1, FAR, 0, "x");
	struct task_event ev = {
		.type = TASK_MMAP, .time_ns = 2, .pid = FAR, .file = f, .offset = offset
	};

	ev.file.pid = (u32)getpid(); /* so that the file can be opened */
	processes_event(ps, &ev);
	p = processes_find(ps, &key, 9, false);
	assert_int_equal(processes_locate(ps, p, lo + 0x1234, &whole), 0);
	modules_settle(ms, now_monotonic() + 5 * NSEC_PER_SEC);
	assert_int_equal(module_state(whole.module), MODULE_READY);
	map(ps, 3, FAR, lo + 0x1000, lo + 0x2000, "//anon");
	assert_int_equal(processes_locate(ps, p, lo + 0x1234, &place), 0);
	assert_ptr_equal(place.module, whole.module);
	assert_int_equal(place.offset, whole.offset);
	/* Memory beside the file's text, but not where text belongs, is just memory. */
	map(ps, 4, FAR, hi, hi + 0x100000, "//anon");
	assert_int_equal(processes_locate(ps, p, hi + 0x50000, &place), 0);
	assert_null(place.module);
	free(text);
	processes_free(ps);
	modules_free(ms);
}

static void child_keeps_its_parents_mappings(void **state __unused)
{
	struct modules *ms;
	struct processes *ps = book(&ms);
	struct stack_key parent = { .tgid = FAR, .start_ns = 5 },
			 child = { .tgid = FAR + 1, .start_ns = 6 };
	struct process_place place;
	struct process *p, *c;

	event(ps, TASK_EXEC, 1, FAR, 0, "x");
	map(ps, 2, FAR, 0x1000, 0x2000, "/bin/x");
	event(ps, TASK_FORK, 3, FAR + 1, FAR, NULL);
	map(ps, 4, FAR + 1, 0x5000, 0x6000, "/lib/plugin");
	p = processes_find(ps, &parent, 9, false);
	c = processes_find(ps, &child, 9, false);
	assert_string_equal(c->exe, "/bin/x");
	assert_int_equal(processes_locate(ps, c, 0x1000, &place), 0);
	assert_int_equal(processes_locate(ps, c, 0x5fff, &place), 0);
	assert_int_equal(processes_locate(ps, p, 0x5000, &place), -ENOENT);
	processes_free(ps);
	modules_free(ms);
}

static void row37_unreadable_processes_are_counted(void **state __unused)
{
	u64 before = stat_get(STAT_no_access);
	char dir[] = "/tmp/procXXXXXX", path[PATH_MAX];
	struct modules *ms = modules_new(1 << 20);
	struct processes *ps;
	int fd;

	if (!geteuid()) {
		/* Root reads everything: ask as somebody else. */
		pid_t pid = fork();

		if (!pid) {
			if (setgid(65534) || setuid(65534))
				_exit(2);
			ps = processes_new(ms, "/proc", false);
			processes_snapshot(ps);
			_exit(stat_get(STAT_no_access) > before ? 0 : 1);
		}
		int status;

		waitpid(pid, &status, 0);
		modules_free(ms);
		assert_int_equal(status, 0);
		return;
	}
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/7", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/7/stat", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(dprintf(fd, "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0") > 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/7/maps", dir);
	close(open(path, O_CREAT | O_WRONLY, 0));
	ps = processes_new(ms, dir, false);
	assert_int_equal(processes_snapshot(ps), 0);
	assert_true(stat_get(STAT_no_access) > before);
	processes_free(ps);
	modules_free(ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_line_of_a_library),
		cmocka_unit_test(row19_maps_line_escapes_and_spaces),
		cmocka_unit_test(row19_maps_line_over_path_max),
		cmocka_unit_test(malformed_maps_lines),
		cmocka_unit_test(snapshot_knows_this_very_process),
		cmocka_unit_test(row30_process_gone_before_it_was_seen),
		cmocka_unit_test(row31_reused_pid_never_takes_the_other_ones_identity),
		cmocka_unit_test(row32_exec_makes_a_new_image),
		cmocka_unit_test(sample_within_an_exec_names_no_image),
		cmocka_unit_test(row33_main_thread_gone_others_run),
		cmocka_unit_test(row34_thirty_thousand_processes),
		cmocka_unit_test(row34_more_than_the_limit_is_refused_and_counted),
		cmocka_unit_test(row36_mapping_churn_stays_bounded_and_right),
		cmocka_unit_test(overlapping_maps_show_the_newest),
		cmocka_unit_test(text_moved_to_anonymous_memory_is_still_the_files),
		cmocka_unit_test(child_keeps_its_parents_mappings),
		cmocka_unit_test(row37_unreadable_processes_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
