// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. The local store: finished profiles (gzip bytes, start, type, service) come in,
 * files in one directory come out. Only files of our own name pattern are ever counted or removed.
 * Memory does not grow with the directory: the store knows the sum of sizes and the names of the
 * few oldest files, and reads the directory again when it has used those up.
 */
#include "store.h"
#include "htab.h"
#include "log.h"
#include "stat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

/* Directory entries looked at in one reading. */
#define SCAN_MAX 1000000
/* Oldest names that one reading of the directory remembers. */
#define OLDEST_MAX 256
/* "20261130T125500Z.123" */
#define START_LEN   20
#define TYPE_MAX    40
#define SERVICE_MAX 80
#define SUFFIX      ".pb.gz"
/* Any name of ours, with its NUL: START-TYPE-SERVICE-NNNN.pb.gz */
#define PROFILE_NAME 176
/* Profiles of one start, type and service. */
#define COLLISIONS_MAX 1000

#define TEMP_PREFIX ".ebpfprofiler-"
#define TEMP_SUFFIX ".tmp"
#define TEMP_DIGITS 16
#define TEMP_NAME   (sizeof(TEMP_PREFIX TEMP_SUFFIX) + TEMP_DIGITS)
#define TEMP_TRIES  8

struct store {
	char *path;
	int dir_fd;
	u64 max_bytes;
	u64 bytes;
	/* Oldest files of the last reading, by age: order[next] .. order[n - 1]. */
	char *order[OLDEST_MAX];
	u32 next, n;
	char names[OLDEST_MAX][PROFILE_NAME];
	char last[PROFILE_NAME];
};

/* --- files ------------------------------------------------------------------------------------ */

static bool is_temp_name(const char *name)
{
	const char *digits = name + strlen(TEMP_PREFIX);

	if (strlen(name) + 1 != TEMP_NAME || strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)))
		return false;
	return strspn(digits, "0123456789abcdef") == TEMP_DIGITS &&
	       !strcmp(digits + TEMP_DIGITS, TEMP_SUFFIX);
}

/* The name is random so that nobody can put a file or a link in its way for long. */
static int open_temp(int dir_fd, int mode, char name[static TEMP_NAME])
{
	int i, fd;
	u64 id;

	for (i = 0; i < TEMP_TRIES; i++) {
		if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
			id = hash_mix(now_monotonic(), (u64)getpid() + (u64)i);
		snprintf(name, TEMP_NAME, TEMP_PREFIX "%016llx" TEMP_SUFFIX,
			 (unsigned long long)id);
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    (mode_t)mode);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

/* A complete file under a temporary name, or nothing at all. */
static int write_temp(int dir_fd, const void *data, size_t len, int mode, bool sync,
		      char name[static TEMP_NAME])
{
	int fd = open_temp(dir_fd, mode, name);
	int r;

	if (fd < 0)
		return fd;
	r = write_all(fd, data, len);
	if (!r && sync && fsync(fd))
		r = -errno;
	/* Network file systems report a full disk no earlier than here. */
	if (close(fd) && !r)
		r = -errno;
	if (r)
		unlinkat(dir_fd, name, 0);
	return r;
}

/* rename() never follows a link at the target, but it would put a file in place of a device. */
static int may_replace(int dir_fd, const char *name)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		return 0;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	return S_ISDIR(st.st_mode) ? -EISDIR : -EEXIST;
}

static int open_parent(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int fd;

	if (!*path)
		return -ENOENT;
	if (slash && !slash[1])
		return -EISDIR;
	if (!slash)
		strcpy(dir, ".");
	else if ((size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path) + 1, path) >=
		 sizeof(dir))
		return -ENAMETOOLONG;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_name = slash ? slash + 1 : path;
	return fd;
}

static int write_file(const char *path, const void *data, size_t len, int mode, bool sync)
{
	_cleanup_close_ int dir_fd = -1;
	char temp[TEMP_NAME];
	const char *name;
	int r;

	dir_fd = open_parent(path, &name);
	if (dir_fd < 0)
		return dir_fd;
	r = may_replace(dir_fd, name);
	if (r)
		return r;
	r = write_temp(dir_fd, data, len, mode, sync, temp);
	if (r)
		return r;
	if (renameat(dir_fd, temp, dir_fd, name)) {
		r = -errno;
		unlinkat(dir_fd, temp, 0);
		return r;
	}
	/* Without it a power cut may undo the rename; the file is whole either way. */
	if (sync)
		fsync(dir_fd);
	return 0;
}

int write_file_atomic(const char *path, const void *data, size_t len, int mode)
{
	return write_file(path, data, len, mode, true);
}

int write_file_unsynced(const char *path, const void *data, size_t len, int mode)
{
	return write_file(path, data, len, mode, false);
}

/* --- directory -------------------------------------------------------------------------------- */

/* The descriptor itself is not read: its position would be shared by later readings. */
static DIR *read_dir(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d;

	if (fd < 0)
		return NULL;
	d = fdopendir(fd);
	if (!d)
		close(fd);
	return d;
}

static void remove_temps(int dir_fd)
{
	_cleanup_closedir_ DIR *d = read_dir(dir_fd);
	struct dirent *e;
	u32 i;

	if (!d)
		return;
	for (i = 0; i < SCAN_MAX; i++) {
		e = readdir(d);
		if (!e)
			break;
		if (is_temp_name(e->d_name))
			unlinkat(dir_fd, e->d_name, 0);
	}
}

/* Parents are for everyone to pass through, as /var/lib is; only the last one is private. */
static int make_dirs(char *path)
{
	char *p;

	for (p = path + 1; *p; p++) {
		int r;

		if (*p != '/')
			continue;
		*p = '\0';
		r = mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
		*p = '/';
		if (r)
			return r;
	}
	return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

static int check_dir(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return log_err(-errno, "cannot examine directory %s: %s", path, strerror(errno));
	if (st.st_uid != geteuid() && st.st_uid)
		return log_err(-EPERM,
			       "directory %s belongs to user %u, who could swap files under us; "
			       "change its owner or use another",
			       path, (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH) && fchmod(fd, st.st_mode & 07755))
		return log_err(
			-errno,
			"directory %s is writable by others and cannot be closed to them: %s", path,
			strerror(errno));
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS))
		return log_err(-errno, "directory %s is not writable: %s; use another", path,
			       strerror(errno));
	/* A file system without locks leaves us without this check, no more. */
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return log_err(-EBUSY,
			       "directory %s is in use by another ebpfprofiler; stop that one or "
			       "use another directory",
			       path);
	return 0;
}

int store_open_dir(const char *path, int *ret)
{
	_cleanup_free_ char *copy = strdup(path);
	_cleanup_close_ int fd = -1;
	size_t len = strlen(path);
	int r;

	if (!copy)
		return log_err(-ENOMEM, "cannot open directory %s: out of memory", path);
	/* A trailing slash would make O_NOFOLLOW follow. */
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	if (!len)
		return log_err(-ENOENT, "cannot open a directory without a name");
	r = make_dirs(copy);
	if (r)
		return log_err(r, "cannot make directory %s: %s; use another", copy, strerror(-r));
	fd = open(copy, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		struct stat st;

		r = -errno;
		/* With O_DIRECTORY the kernel says ENOTDIR of a link, which helps nobody. */
		if (!lstat(copy, &st) && S_ISLNK(st.st_mode))
			return log_err(-ELOOP, "directory %s is a symbolic link; name its target",
				       copy);
		return log_err(r, "cannot open directory %s: %s", copy, strerror(-r));
	}
	r = check_dir(fd, copy);
	if (r)
		return r;
	remove_temps(fd);
	*ret = take_fd(&fd);
	return 0;
}

/* --- the store -------------------------------------------------------------------------------- */

static bool is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

static bool is_start(const char *s)
{
	static const char shape[] = "00000000T000000Z.000";
	int i;

	for (i = 0; i < START_LEN; i++) {
		if (shape[i] == '0' ? s[i] < '0' || s[i] > '9' : s[i] != shape[i])
			return false;
	}
	return true;
}

static bool is_profile_name(const char *name)
{
	size_t len = strnlen(name, PROFILE_NAME), i;
	size_t tail = strlen(SUFFIX);

	if (len >= PROFILE_NAME || len < START_LEN + 1 + tail + 1)
		return false;
	if (!is_start(name) || name[START_LEN] != '-' || strcmp(name + len - tail, SUFFIX))
		return false;
	for (i = START_LEN; i < len; i++) {
		if (!is_plain(name[i]))
			return false;
	}
	return true;
}

/* What a process chose becomes a piece of a file name: never a path, never hidden, never empty. */
static void plain_name(char *dst, size_t max, const char *src, char dash)
{
	size_t i;

	for (i = 0; i < max && src[i]; i++) {
		dst[i] = is_plain(src[i]) ? src[i] : '_';
		if (dst[i] == '-')
			dst[i] = dash;
	}
	if (!i)
		dst[i++] = '_';
	if (dst[0] == '.')
		dst[0] = '_';
	dst[i] = '\0';
}

/* All before number and suffix. A type has no '-', so that names can be taken apart. */
static void name_stem(char *dst, size_t size, u64 start_ns, const char *type, const char *service)
{
	time_t seconds = (time_t)(start_ns / NSEC_PER_SEC);
	u32 ms = (u32)(start_ns % NSEC_PER_SEC / 1000000);
	char t[TYPE_MAX + 1], s[SERVICE_MAX + 1], start[START_LEN + 1];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(start, sizeof(start), "%Y%m%dT%H%M%SZ", &tm);
	plain_name(t, TYPE_MAX, type, '_');
	plain_name(s, SERVICE_MAX, service, '-');
	snprintf(dst, size, "%s.%03u-%s-%s", start, ms, t, s);
}

/* Keeps the OLDEST_MAX smallest names, sorted. */
static void keep_oldest(struct store *s, const char *name)
{
	u32 low = 0, high = s->n;
	char *slot;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (strcmp(s->order[middle], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == OLDEST_MAX)
		return;
	/* When full, the youngest gives up its place. */
	slot = s->n == OLDEST_MAX ? s->order[--s->n] : s->names[s->n];
	memmove(&s->order[low + 1], &s->order[low], (s->n - low) * sizeof(s->order[0]));
	s->order[low] = slot;
	s->n++;
	snprintf(slot, PROFILE_NAME, "%s", name);
}

/* Sizes are the user's to falsify (a sparse file of 2^62 bytes); the sum must not wrap. */
static u64 add_size(u64 sum, off_t size)
{
	u64 n = size > 0 ? (u64)size : 0;

	return n > (u64)INT64_MAX - sum ? (u64)INT64_MAX : sum + n;
}

static int scan(struct store *s)
{
	_cleanup_closedir_ DIR *d = read_dir(s->dir_fd);
	struct dirent *e;
	struct stat st;
	u64 bytes = 0;
	u32 i;

	if (!d)
		return -errno;
	s->n = s->next = 0;
	for (i = 0; i < SCAN_MAX; i++) {
		errno = 0;
		e = readdir(d);
		if (!e)
			break;
		if (!is_profile_name(e->d_name) ||
		    fstatat(s->dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		bytes = add_size(bytes, st.st_size);
		keep_oldest(s, e->d_name);
	}
	if (i < SCAN_MAX && errno)
		return -errno;
	s->bytes = bytes;
	return 0;
}

/* 0 when something changed, -errno when the file stays. */
static int remove_oldest(struct store *s)
{
	const char *name = s->order[s->next++];
	struct stat st;

	if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) || unlinkat(s->dir_fd, name, 0)) {
		if (errno != ENOENT)
			return -errno;
		/* Somebody tidied up; the sum is stale as well. */
		s->next = s->n;
		return 0;
	}
	s->bytes -= MIN(s->bytes, (u64)st.st_size);
	stat_inc(STAT_profiles_removed);
	return 0;
}

/* len is at most max_bytes. Each reading of the directory is followed by a removal or the end. */
static int make_room(struct store *s, u64 len)
{
	bool changed = true;
	int err = -ENOSPC;

	while (s->bytes > s->max_bytes - len) {
		int r;

		if (s->next == s->n) {
			if (!changed)
				return err;
			changed = false;
			r = scan(s);
			if (r)
				return r;
			continue;
		}
		r = remove_oldest(s);
		if (r)
			err = r;
		else
			changed = true;
	}
	return 0;
}

static void store_freep(struct store **s)
{
	store_free(*s);
}

int store_open(const char *path, u64 max_bytes, struct store **ret)
{
	_cleanup_(store_freep) struct store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return log_err(-ENOMEM, "store: out of memory");
	s->dir_fd = -1;
	s->max_bytes = max_bytes;
	if (asprintf(&s->path, "%s/profiles", path) < 0) {
		s->path = NULL;
		return log_err(-ENOMEM, "store: out of memory");
	}
	r = store_open_dir(s->path, &s->dir_fd);
	if (r)
		return r;
	r = scan(s);
	if (!r)
		r = make_room(s, 0);
	if (r)
		return log_err(r, "store: cannot tidy up %s: %s", s->path, strerror(-r));
	*ret = take_ptr(s);
	return 0;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	if (s->dir_fd >= 0)
		close(s->dir_fd);
	free(s->path);
	free(s);
}

/* Old file systems know no RENAME_NOREPLACE; the lock on the directory makes us its only writer. */
static int rename_new(int dir_fd, const char *from, const char *to)
{
	struct stat st;

	if (!renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (!fstatat(dir_fd, to, &st, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	return renameat(dir_fd, from, dir_fd, to) ? -errno : 0;
}

static int publish(struct store *s, const char *temp, const char *stem, char name[PROFILE_NAME])
{
	int i, r = -EEXIST;

	for (i = 1; i <= COLLISIONS_MAX && r == -EEXIST; i++) {
		if (i == 1)
			snprintf(name, PROFILE_NAME, "%s" SUFFIX, stem);
		else
			snprintf(name, PROFILE_NAME, "%s-%d" SUFFIX, stem, i);
		r = rename_new(s->dir_fd, temp, name);
	}
	return r;
}

static int put(struct store *s, const char *stem, const void *data, size_t len)
{
	char temp[TEMP_NAME], name[PROFILE_NAME];
	int r;

	if (len > s->max_bytes)
		return -EFBIG;
	/*
	 * No fsync: it may take seconds on a busy disk, and the window waits. What a power cut may
	 * cost is the last profiles, whose files are then empty or short.
	 */
	r = write_temp(s->dir_fd, data, len, 0600, false, temp);
	if (r)
		return r;
	/* Only now, so that a profile that cannot be written costs no other. */
	r = make_room(s, len);
	if (!r)
		r = publish(s, temp, stem, name);
	if (r) {
		unlinkat(s->dir_fd, temp, 0);
		return r;
	}
	s->bytes += len;
	strcpy(s->last, name);
	/* The clock went back: this one is older than files that we know as the oldest. */
	if (s->next < s->n && strcmp(name, s->order[s->n - 1]) < 0)
		s->next = s->n;
	return 0;
}

int store_put(struct store *s, u64 start_ns, const char *type, const char *service,
	      const void *data, size_t len)
{
	char stem[PROFILE_NAME - 16];
	int r;

	name_stem(stem, sizeof(stem), start_ns, type, service);
	r = put(s, stem, data, len);
	stat_inc(r ? STAT_profiles_failed : STAT_profiles_written);
	return r;
}

const char *store_last(const struct store *s)
{
	return s->last;
}

const char *store_path(const struct store *s)
{
	return s->path;
}

u64 store_bytes(const struct store *s)
{
	return s->bytes;
}
