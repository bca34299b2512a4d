// SPDX-License-Identifier: Apache-2.0
/*
 * The store and its ways to write files, on a real file system: each promise of store.h, and what
 * a full, read-only or hostile disk does. Needs no root; the small tmpfs needs user namespaces.
 */
#include "core/store.h"
#include "core/log.h"
#include "core/stat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* 2026-11-30 12:55:00 UTC, by date(1) */
#define START_S   UINT64_C(1796043300)
#define START     (START_S * NSEC_PER_SEC)
#define UNLIMITED (UINT64_C(1) << 40)

static char base[64]; /* a fresh directory per test */

static const char *in_base(const char *name)
{
	static char path[4][PATH_MAX];
	static int i;
	char *p = path[i++ % 4];

	snprintf(p, PATH_MAX, "%s/%s", base, name);
	return p;
}

static int setup(void **state __unused)
{
	strcpy(base, "/tmp/test_store.XXXXXX");
	return mkdtemp(base) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st __unused, int type __unused,
		      struct FTW *ftw __unused)
{
	return remove(path);
}

static int teardown(void **state __unused)
{
	return nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct store *open_store(u64 max_bytes)
{
	struct store *s = NULL;

	assert_int_equal(store_open(base, max_bytes, &s), 0);
	return s;
}

static u64 put_sized(struct store *s, u64 start_ns, const char *service, size_t len)
{
	char *data = calloc(1, len + 1);
	int r = store_put(s, start_ns, "cpu", service, data, len);

	free(data);
	return (u64)(s64)r;
}

static bool exists(const char *name)
{
	return !access(in_base(name), F_OK);
}

static void make_file(const char *name, size_t len)
{
	int fd = open(in_base(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

/* Entries whose name has `part`, and their bytes. */
static u32 count(const char *dir, const char *part, u64 *bytes)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;
	u32 n = 0;

	assert_non_null(d);
	if (bytes)
		*bytes = 0;
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strstr(e->d_name, part))
			continue;
		n++;
		if (bytes && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			*bytes += (u64)st.st_size;
	}
	closedir(d);
	return n;
}

static u32 count_all(void)
{
	return count(in_base("profiles"), "", NULL);
}

static void assert_content(const char *path, const char *want, size_t len)
{
	_cleanup_free_ char *text = NULL;
	size_t n;

	assert_int_equal(read_file(path, 1 << 20, &text, &n), 0);
	assert_int_equal(n, len);
	assert_memory_equal(text, want, len);
}

static int mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return (int)(st.st_mode & 07777);
}

/* --- the store -------------------------------------------------------------------------------- */

static void name_is_start_type_service(void **state __unused)
{
	struct store *s = open_store(UNLIMITED);

	assert_int_equal(store_put(s, START + 123999999, "cpu", "nginx", "body\0x", 6), 0);
	assert_content(in_base("profiles/20261130T125500Z.123-cpu-nginx.pb.gz"), "body\0x", 6);
	assert_string_equal(store_path(s), in_base("profiles"));
	assert_int_equal(store_bytes(s), 6);
	/* Year 2554 is as far as 64 bits of nanoseconds go: date -u -d @18446744073 */
	assert_int_equal(store_put(s, UINT64_MAX, "cpu", "x", "", 0), 0);
	assert_true(exists("profiles/25540721T233433Z.709-cpu-x.pb.gz"));
	assert_int_equal(store_put(s, 0, "cpu", "x", "", 0), 0);
	assert_true(exists("profiles/19700101T000000Z.000-cpu-x.pb.gz"));
	store_free(s);
}

static void directory_is_0700_and_files_0600_with_missing_parents(void **state __unused)
{
	mode_t old = umask(0);
	struct store *s;

	assert_int_equal(store_open(in_base("a/b//c/"), UNLIMITED, &s), 0);
	assert_int_equal(store_put(s, START, "cpu", "x", "1", 1), 0);
	umask(old);
	assert_int_equal(mode_of(in_base("a/b/c/profiles")), 0700);
	assert_int_equal(mode_of(in_base("a/b")), 0755);
	assert_int_equal(mode_of(in_base("a/b/c/profiles/20261130T125500Z.000-cpu-x.pb.gz")), 0600);
	store_free(s);
}

static void service_names_never_become_paths(void **state __unused)
{
	static const struct {
		const char *service, *file;
	} rows[] = {
		{ "../../etc/passwd", "_._.._etc_passwd" },
		{ ".hidden", "_hidden" },
		{ "..", "_." },
		{ "/", "_" },
		{ "", "_" },
		{ "a b\n\x1b[31m%s", "a_b___31m_s" },
		{ "na\xc3\xafve", "na__ve" },
		{ "a-b.c_D9", "a-b.c_D9" },
	};
	struct store *s = open_store(UNLIMITED);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[256];

		assert_int_equal(put_sized(s, START + i * 1000000, rows[i].service, 1), 0);
		snprintf(name, sizeof(name), "profiles/20261130T125500Z.%03u-cpu-%s.pb.gz", i,
			 rows[i].file);
		assert_true(exists(name));
	}
	assert_int_equal(count(base, "", NULL), 1);
	assert_int_equal(count_all(), ARRAY_SIZE(rows));
	/* The type cannot break the name apart either. */
	assert_int_equal(store_put(s, START, "../a-b", "x", "", 0), 0);
	assert_true(exists("profiles/20261130T125500Z.000-_._a_b-x.pb.gz"));
	store_free(s);
}

static void long_service_is_cut_at_80_bytes(void **state __unused)
{
	char service[5001], name[256], cut[81];
	struct store *s = open_store(UNLIMITED);

	memset(service, 'x', 5000);
	service[5000] = '\0';
	memset(cut, 'x', 80);
	cut[80] = '\0';
	assert_int_equal(put_sized(s, START, service, 1), 0);
	snprintf(name, sizeof(name), "profiles/20261130T125500Z.000-cpu-%s.pb.gz", cut);
	assert_true(exists(name));
	/* Both at their longest must still be recognised as ours: counted after a restart. */
	assert_int_equal(store_put(s, START, service, service, "1", 1), 0);
	assert_int_equal(store_put(s, START, service, service, "1", 1), 0);
	store_free(s);
	s = open_store(UNLIMITED);
	assert_int_equal(store_bytes(s), 3);
	store_free(s);
}

static void equal_names_get_numbers(void **state __unused)
{
	struct store *s = open_store(UNLIMITED);

	assert_int_equal(store_put(s, START, "cpu", "a/b", "first", 5), 0);
	assert_int_equal(store_put(s, START, "cpu", "a_b", "second", 6), 0);
	assert_int_equal(store_put(s, START, "cpu", "a?b", "third", 5), 0);
	assert_content(in_base("profiles/20261130T125500Z.000-cpu-a_b.pb.gz"), "first", 5);
	assert_content(in_base("profiles/20261130T125500Z.000-cpu-a_b-2.pb.gz"), "second", 6);
	assert_content(in_base("profiles/20261130T125500Z.000-cpu-a_b-3.pb.gz"), "third", 5);
	store_free(s);
}

static void link_in_the_way_is_neither_followed_nor_replaced(void **state __unused)
{
	struct store *s = open_store(UNLIMITED);
	const char *link = in_base("profiles/20261130T125500Z.000-cpu-x.pb.gz");

	make_file("precious", 7);
	assert_int_equal(symlink(in_base("precious"), link), 0);
	assert_int_equal(store_put(s, START, "cpu", "x", "new", 3), 0);
	assert_content(in_base("precious"), "\0\0\0\0\0\0\0", 7);
	assert_content(in_base("profiles/20261130T125500Z.000-cpu-x-2.pb.gz"), "new", 3);
	store_free(s);
}

static void oldest_go_first_and_the_sum_is_what_the_disk_says(void **state __unused)
{
	struct store *s = open_store(1000);
	u64 removed = stat_get(STAT_profiles_removed), bytes;
	u32 i;

	for (i = 0; i < 20; i++) {
		assert_int_equal(put_sized(s, START + i * NSEC_PER_SEC, "x", 300), 0);
		assert_int_equal(count(store_path(s), ".pb.gz", &bytes), MIN(i + 1, 3u));
		assert_int_equal(store_bytes(s), bytes);
	}
	assert_int_equal(stat_get(STAT_profiles_removed) - removed, 17);
	assert_true(exists("profiles/20261130T125517Z.000-cpu-x.pb.gz"));
	assert_true(exists("profiles/20261130T125519Z.000-cpu-x.pb.gz"));
	/* One large profile takes the place of several. */
	assert_int_equal(put_sized(s, START + 60 * NSEC_PER_SEC, "x", 1000), 0);
	assert_int_equal(count_all(), 1);
	store_free(s);
}

/* More files than the store remembers names of, written in no order. */
static void order_holds_over_many_files_and_a_clock_that_goes_back(void **state __unused)
{
	struct store *s = open_store(600);
	u32 i;

	for (i = 0; i < 600; i++)
		assert_int_equal(put_sized(s, START + i * 7 % 600 * NSEC_PER_SEC, "x", 1), 0);
	store_free(s);
	s = open_store(600);
	assert_int_equal(store_bytes(s), 600);
	/* 290 newer ones: 13:05:00 and on; the first 290 seconds, up to 12:59:49, are gone. */
	for (i = 600; i < 890; i++)
		assert_int_equal(put_sized(s, START + i * NSEC_PER_SEC, "x", 1), 0);
	assert_int_equal(count_all(), 600);
	assert_false(exists("profiles/20261130T125949Z.000-cpu-x.pb.gz"));
	assert_true(exists("profiles/20261130T125950Z.000-cpu-x.pb.gz"));
	/* A day back: by name it is the oldest, and the next to go. */
	assert_int_equal(put_sized(s, START - 86400 * NSEC_PER_SEC, "x", 1), 0);
	assert_true(exists("profiles/20261129T125500Z.000-cpu-x.pb.gz"));
	assert_int_equal(put_sized(s, START + 900 * NSEC_PER_SEC, "x", 1), 0);
	assert_false(exists("profiles/20261129T125500Z.000-cpu-x.pb.gz"));
	assert_int_equal(count_all(), 600);
	store_free(s);
}

static void foreign_files_are_neither_counted_nor_removed(void **state __unused)
{
	static const char *const foreign[] = {
		"profiles/notes.txt",
		"profiles/20261130T125500Z.000-cpu-x.pb.gz.bak",
		"profiles/20261130T125500Z.00-cpu-x.pb.gz",
		"profiles/00000000T000000Z.000.pb.gz",
		"profiles/aaaaaaaaTaaaaaaZ.aaa-cpu-x.pb.gz",
		"profiles/20261130T125500Z.000-cpu-a b.pb.gz",
	};
	struct store *s;
	u32 i;

	assert_int_equal(mkdir(in_base("profiles"), 0700), 0);
	for (i = 0; i < ARRAY_SIZE(foreign); i++)
		make_file(foreign[i], 5000);
	assert_int_equal(mkdir(in_base("profiles/19990101T000000Z.000-cpu-x.pb.gz"), 0700), 0);
	s = open_store(100);
	assert_int_equal(store_bytes(s), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(put_sized(s, START + i * NSEC_PER_SEC, "own", 60), 0);
	for (i = 0; i < ARRAY_SIZE(foreign); i++)
		assert_true(exists(foreign[i]));
	assert_true(exists("profiles/19990101T000000Z.000-cpu-x.pb.gz"));
	assert_int_equal(store_bytes(s), 60);
	store_free(s);
}

static void profile_over_the_maximum_is_refused_and_costs_no_other(void **state __unused)
{
	struct store *s = open_store(100);
	u64 failed = stat_get(STAT_profiles_failed), written = stat_get(STAT_profiles_written);

	assert_int_equal(put_sized(s, START, "x", 50), 0);
	assert_int_equal((int)put_sized(s, START, "x", 101), -EFBIG);
	assert_int_equal(stat_get(STAT_profiles_failed) - failed, 1);
	assert_int_equal(stat_get(STAT_profiles_written) - written, 1);
	assert_int_equal(count_all(), 1);
	assert_int_equal(put_sized(s, START, "x", 100), 0);
	store_free(s);
}

static void lowered_maximum_is_kept_from_the_start(void **state __unused)
{
	struct store *s = open_store(1000);
	u32 i;

	for (i = 0; i < 10; i++)
		put_sized(s, START + i * NSEC_PER_SEC, "x", 100);
	store_free(s);
	s = open_store(250);
	assert_int_equal(store_bytes(s), 200);
	assert_int_equal(count_all(), 2);
	assert_true(exists("profiles/20261130T125509Z.000-cpu-x.pb.gz"));
	store_free(s);
}

static void files_removed_by_hand_are_noticed(void **state __unused)
{
	struct store *s = open_store(1000);
	u64 bytes;
	u32 i;

	for (i = 0; i < 10; i++)
		put_sized(s, START + i * NSEC_PER_SEC, "x", 100);
	assert_int_equal(unlink(in_base("profiles/20261130T125500Z.000-cpu-x.pb.gz")), 0);
	assert_int_equal(unlink(in_base("profiles/20261130T125504Z.000-cpu-x.pb.gz")), 0);
	assert_int_equal(put_sized(s, START + 60 * NSEC_PER_SEC, "x", 150), 0);
	/* 800 + 150 fit: nothing had to go. */
	assert_int_equal(count(store_path(s), ".pb.gz", &bytes), 9);
	assert_int_equal(store_bytes(s), bytes);
	store_free(s);
}

static void leftovers_of_a_crash_are_removed_at_open(void **state __unused)
{
	struct store *s;

	assert_int_equal(mkdir(in_base("profiles"), 0700), 0);
	make_file("profiles/.ebpfprofiler-0123456789abcdef.tmp", 10);
	make_file("profiles/.ebpfprofiler-0123456789abcdeg.tmp", 10);
	make_file("profiles/.other.tmp", 10);
	s = open_store(UNLIMITED);
	assert_false(exists("profiles/.ebpfprofiler-0123456789abcdef.tmp"));
	assert_true(exists("profiles/.ebpfprofiler-0123456789abcdeg.tmp"));
	assert_true(exists("profiles/.other.tmp"));
	store_free(s);
}

static void killed_writer_leaves_only_whole_files(void **state __unused)
{
	static char data[256 << 10];
	char file[PATH_MAX];
	struct dirent *e;
	struct store *s;
	struct stat st;
	pid_t pid;
	DIR *d;
	u32 i;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		s = open_store(64 << 20);
		for (i = 0;; i++)
			store_put(s, START + i * NSEC_PER_SEC, "cpu", "x", data, sizeof(data));
	}
	/* A reader looks at each name as it appears, all the while. */
	for (i = 0; i < 200; i++) {
		d = opendir(in_base("profiles"));
		while (d && (e = readdir(d))) {
			snprintf(file, sizeof(file), "%s/%s", in_base("profiles"), e->d_name);
			if (e->d_name[0] != '.' && !stat(file, &st))
				assert_int_equal(st.st_size, sizeof(data));
		}
		if (d)
			closedir(d);
		usleep(500);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	s = open_store(64 << 20);
	assert_int_equal(count_all(), count(store_path(s), ".pb.gz", NULL));
	assert_true(count_all() > 0);
	store_free(s);
}

static void linked_directory_is_refused(void **state __unused)
{
	struct store *s = NULL;

	assert_int_equal(mkdir(in_base("elsewhere"), 0700), 0);
	assert_int_equal(symlink("elsewhere", in_base("profiles")), 0);
	assert_int_equal(store_open(base, UNLIMITED, &s), -ELOOP);
	assert_null(s);
	assert_int_equal(symlink("nowhere", in_base("dangling")), 0);
	assert_int_equal(store_open(in_base("dangling"), UNLIMITED, &s), -ENOENT);
}

static void directory_writable_by_others_is_closed_to_them(void **state __unused)
{
	struct store *s;

	assert_int_equal(mkdir(in_base("profiles"), 0700), 0);
	assert_int_equal(chmod(in_base("profiles"), 0777), 0);
	s = open_store(UNLIMITED);
	assert_int_equal(mode_of(in_base("profiles")), 0755);
	store_free(s);
}

static void somebody_elses_directory_is_refused(void **state __unused)
{
	struct store *s = NULL;

	if (geteuid())
		skip();
	assert_int_equal(mkdir(in_base("profiles"), 0700), 0);
	assert_int_equal(chown(in_base("profiles"), 65534, 65534), 0);
	assert_int_equal(store_open(base, UNLIMITED, &s), -EPERM);
}

static void second_daemon_on_one_store_is_refused(void **state __unused)
{
	struct store *s = open_store(UNLIMITED), *other = NULL;

	assert_int_equal(store_open(base, UNLIMITED, &other), -EBUSY);
	store_free(s);
	s = open_store(UNLIMITED);
	store_free(s);
	store_free(NULL);
}

static void path_that_cannot_be_made_is_refused(void **state __unused)
{
	char longest[PATH_MAX + 100];
	struct store *s = NULL;

	make_file("file", 1);
	assert_int_equal(store_open(in_base("file"), UNLIMITED, &s), -ENOTDIR);
	assert_int_equal(store_open(in_base("file/deeper"), UNLIMITED, &s), -ENOTDIR);
	make_file("profiles", 1);
	assert_int_equal(store_open(base, UNLIMITED, &s), -ENOTDIR);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(store_open(longest, UNLIMITED, &s), -ENAMETOOLONG);
}

static void directory_that_vanished_is_an_error_not_a_crash(void **state __unused)
{
	struct store *s = open_store(UNLIMITED);
	u64 failed = stat_get(STAT_profiles_failed);

	assert_int_equal(rmdir(in_base("profiles")), 0);
	assert_int_equal(store_put(s, START, "cpu", "x", "1", 1), -ENOENT);
	assert_int_equal(stat_get(STAT_profiles_failed) - failed, 1);
	store_free(s);
}

/* --- row 60: full and read-only disks; row 66: no descriptors ---------------------------------- */

/* The kernel cuts a write in the middle and fails the next one, as a disk that fills up does. */
static void limit_file_size(rlim_t bytes)
{
	struct rlimit l;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &l), 0);
	l.rlim_cur = MIN(bytes, l.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static void row_60_write_that_fails_half_way_leaves_nothing(void **state __unused)
{
	struct store *s = open_store(20000);
	u64 failed = stat_get(STAT_profiles_failed), bytes;
	int r;

	assert_int_equal(put_sized(s, START, "x", 15000), 0);
	limit_file_size(8192);
	r = (int)put_sized(s, START + NSEC_PER_SEC, "x", 15000);
	limit_file_size(RLIM_INFINITY);
	assert_int_equal(r, -EFBIG);
	assert_int_equal(stat_get(STAT_profiles_failed) - failed, 1);
	/* The older one did not have to make room for what never came. */
	assert_int_equal(count(store_path(s), "", &bytes), 1);
	assert_int_equal(bytes, 15000);
	assert_int_equal(put_sized(s, START + 2 * NSEC_PER_SEC, "x", 15000), 0);
	store_free(s);
}

static int write_proc(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) > 0 ? 0 : -1;
}

/* A mount name space of our own, by root's right or as root of a user name space. */
static int own_mounts(void)
{
	char uid[32], gid[32];

	if (!unshare(CLONE_NEWNS))
		return 0;
	snprintf(uid, sizeof(uid), "0 %u 1", (unsigned int)geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", (unsigned int)getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || write_proc("/proc/self/setgroups", "deny"))
		return -1;
	return write_proc("/proc/self/uid_map", uid) || write_proc("/proc/self/gid_map", gid) ? -1
											      : 0;
}

static int on_small_disk(void)
{
	static char data[60000];
	struct store *s;
	u32 n = 0;
	int r = 0;

	if (own_mounts())
		return 77;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", base, "tmpfs", 0, "size=256k,mode=0700"))
		return 77;
	if (store_open(base, UNLIMITED, &s))
		return 1;
	for (; n < 10 && !r; n++)
		r = store_put(s, START + n * NSEC_PER_SEC, "cpu", "x", data, sizeof(data));
	if (r != -ENOSPC || n < 4 || count(store_path(s), "", NULL) != n - 1)
		return 2;
	if (write_file_atomic(in_base("profiles/spooled"), data, sizeof(data), 0600) != -ENOSPC ||
	    count(store_path(s), "", NULL) != n - 1)
		return 3;
	if (mount(NULL, base, NULL, MS_REMOUNT | MS_RDONLY, NULL))
		return 77;
	if (store_put(s, START, "cpu", "y", data, 10) != -EROFS ||
	    write_file_atomic(in_base("profiles/spooled"), data, 10, 0600) != -EROFS)
		return 4;
	store_free(s);
	return store_open(base, UNLIMITED, &s) == -EROFS ? 0 : 5;
}

static void row_60_full_then_read_only_file_system(void **state __unused)
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(on_small_disk());
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void row_66_no_descriptors_left_skips_the_profile(void **state __unused)
{
	struct store *s = open_store(UNLIMITED);
	struct rlimit old, none;
	int r;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = store_put(s, START, "cpu", "x", "1", 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(r, -EMFILE);
	assert_int_equal(store_put(s, START, "cpu", "x", "1", 1), 0);
	store_free(s);
}

/* --- write_file_atomic() ---------------------------------------------------------------------- */

static void file_is_written_whole_with_its_mode(void **state __unused)
{
	const char *path = in_base("out");
	mode_t old = umask(0);

	assert_int_equal(write_file_atomic(path, "one", 3, 0600), 0);
	assert_content(path, "one", 3);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(write_file_atomic(path, "longer", 6, 0640), 0);
	assert_content(path, "longer", 6);
	assert_int_equal(mode_of(path), 0640);
	assert_int_equal(write_file_atomic(path, "", 0, 0600), 0);
	assert_content(path, "", 0);
	umask(old);
	assert_int_equal(count(base, "", NULL), 1);
}

static void file_name_without_directory_means_here(void **state __unused)
{
	char here[PATH_MAX];
	int r;

	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(base), 0);
	r = write_file_atomic("plain", "x", 1, 0600);
	assert_int_equal(chdir(here), 0);
	assert_int_equal(r, 0);
	assert_content(in_base("plain"), "x", 1);
}

static void row_60_linked_target_is_refused_and_untouched(void **state __unused)
{
	make_file("precious", 4);
	assert_int_equal(symlink("precious", in_base("out")), 0);
	assert_int_equal(write_file_atomic(in_base("out"), "evil", 4, 0600), -ELOOP);
	assert_content(in_base("precious"), "\0\0\0\0", 4);
	assert_int_equal(symlink("not-there", in_base("dangling")), 0);
	assert_int_equal(write_file_atomic(in_base("dangling"), "evil", 4, 0600), -ELOOP);
	assert_false(exists("not-there"));
	assert_int_equal(count(base, ".tmp", NULL), 0);
}

static void only_regular_files_are_replaced(void **state __unused)
{
	struct stat st;

	assert_int_equal(mkdir(in_base("dir"), 0700), 0);
	assert_int_equal(mkfifo(in_base("fifo"), 0600), 0);
	make_file("file", 1);
	assert_int_equal(write_file_atomic(in_base("dir"), "x", 1, 0600), -EISDIR);
	assert_int_equal(write_file_atomic(in_base("dir/"), "x", 1, 0600), -EISDIR);
	assert_int_equal(write_file_atomic(in_base("fifo"), "x", 1, 0600), -EEXIST);
	assert_int_equal(lstat(in_base("fifo"), &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(write_file_atomic(in_base("file/x"), "x", 1, 0600), -ENOTDIR);
	assert_int_equal(write_file_atomic(in_base("none/x"), "x", 1, 0600), -ENOENT);
	assert_int_equal(write_file_atomic("", "x", 1, 0600), -ENOENT);
	assert_int_equal(count(base, ".tmp", NULL), 0);
}

static void row_60_failed_write_keeps_the_old_file(void **state __unused)
{
	static char data[20000];
	int r;

	assert_int_equal(write_file_atomic(in_base("out"), "old", 3, 0600), 0);
	limit_file_size(8192);
	r = write_file_atomic(in_base("out"), data, sizeof(data), 0600);
	limit_file_size(RLIM_INFINITY);
	assert_int_equal(r, -EFBIG);
	assert_content(in_base("out"), "old", 3);
	assert_int_equal(count(base, "", NULL), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(name_is_start_type_service),
		TEST(directory_is_0700_and_files_0600_with_missing_parents),
		TEST(service_names_never_become_paths),
		TEST(long_service_is_cut_at_80_bytes),
		TEST(equal_names_get_numbers),
		TEST(link_in_the_way_is_neither_followed_nor_replaced),
		TEST(oldest_go_first_and_the_sum_is_what_the_disk_says),
		TEST(order_holds_over_many_files_and_a_clock_that_goes_back),
		TEST(foreign_files_are_neither_counted_nor_removed),
		TEST(profile_over_the_maximum_is_refused_and_costs_no_other),
		TEST(lowered_maximum_is_kept_from_the_start),
		TEST(files_removed_by_hand_are_noticed),
		TEST(leftovers_of_a_crash_are_removed_at_open),
		TEST(killed_writer_leaves_only_whole_files),
		TEST(linked_directory_is_refused),
		TEST(directory_writable_by_others_is_closed_to_them),
		TEST(somebody_elses_directory_is_refused),
		TEST(second_daemon_on_one_store_is_refused),
		TEST(path_that_cannot_be_made_is_refused),
		TEST(directory_that_vanished_is_an_error_not_a_crash),
		TEST(row_60_write_that_fails_half_way_leaves_nothing),
		TEST(row_60_full_then_read_only_file_system),
		TEST(row_66_no_descriptors_left_skips_the_profile),
		TEST(file_is_written_whole_with_its_mode),
		TEST(file_name_without_directory_means_here),
		TEST(row_60_linked_target_is_refused_and_untouched),
		TEST(only_regular_files_are_replaced),
		TEST(row_60_failed_write_keeps_the_old_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
