// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. Profiles on disk that wait for a server; struct profile comes in and goes out.
 * A file is one line of text and the body:
 *
 *	ebpfprofiler-spool 1 start=N len=N service=S container=S type=S crc=XXXXXXXX\n
 *
 * with percent-encoded values and a CRC-32 over the line up to "crc=" and the body. The name is
 * START-SEQ.spool, both zero-padded, so that names sort by age. What does not hold to that is
 * renamed to *.bad. The directory is read once; then an index in memory knows what is there.
 */
#include "spool.h"
#include "log.h"
#include "stat.h"
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* Directory entries looked at when an earlier run's files are taken over. */
#define SCAN_MAX 1000000
/* Files that wait at any time, whatever their size. */
#define FILES_MAX 65536
/* Damaged files are kept for a person to look at: so many, none larger. */
#define BAD_FILES_MAX 16
#define BAD_SIZE_MAX  (1u << 20)

#define MAGIC      "ebpfprofiler-spool 1 "
#define HEADER_MAX 4096
#define FILE_MAX   ((u64)SPOOL_BODY_MAX + HEADER_MAX)
#define NAME_FMT   "%020" PRIu64 "-%010" PRIu64
#define SEQ_LIMIT  UINT64_C(10000000000)
#define SUFFIX     ".spool"
#define SUFFIX_BAD ".spool.bad"
#define SPOOL_NAME 64

struct entry {
	u64 start_ns, seq;
	u64 size;
};

struct spool {
	char *path;
	int dir_fd; /* -1: takes nothing */
	u64 max_bytes, max_age_ns;
	pthread_mutex_t lock;  /* all below; never held over a write or read of a file */
	struct entry *entries; /* sorted by age */
	u32 n, cap;
	u64 bytes;
	struct entry loaded;
	bool has_loaded;
	struct entry bad[BAD_FILES_MAX];
	u32 nbad;
	u64 dropped, expired, damaged;
	struct log_limit drop_limit, bad_limit;
};

void profile_free(struct profile *p)
{
	if (!p)
		return;
	free(p->memory);
	free(p);
}

static void profile_freep(struct profile **p)
{
	profile_free(*p);
}

/* --- text ------------------------------------------------------------------------------------- */

size_t spool_escape(char *dst, size_t size, const char *src)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	for (; *src; src++) {
		u8 c = (u8)*src;
		bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			     (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';

		if (n + (plain ? 1 : 3) >= size)
			break;
		if (plain) {
			dst[n++] = (char)c;
			continue;
		}
		dst[n++] = '%';
		dst[n++] = hex[c >> 4];
		dst[n++] = hex[c & 15];
	}
	dst[n] = '\0';
	return n;
}

/* The file may have been written by anyone: the result is made valid text like any foreign name. */
static bool unescape(char *dst, size_t size, const char *src)
{
	char raw[HEADER_MAX];
	size_t n = 0;

	for (; *src; src++) {
		u8 byte;

		if (n + 1 >= sizeof(raw))
			return false;
		if (*src != '%') {
			raw[n++] = *src;
			continue;
		}
		if (!hex_decode(&byte, src + 1, 1) || !byte)
			return false;
		raw[n++] = (char)byte;
		src += 2;
	}
	utf8_clean(dst, size, raw, n);
	return true;
}

/* Decimal digits only, unlike strtoull(). */
static bool parse_u64(const char *s, size_t len, u64 *ret)
{
	u64 v = 0;
	size_t i;

	if (!len || len > 20)
		return false;
	for (i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (u64)(s[i] - '0'), &v))
			return false;
	}
	*ret = v;
	return true;
}

static void entry_name(char name[static SPOOL_NAME], const struct entry *e, const char *suffix)
{
	snprintf(name, SPOOL_NAME, NAME_FMT "%s", e->start_ns, e->seq % SEQ_LIMIT, suffix);
}

static bool parse_name(const char *name, const char *suffix, struct entry *ret)
{
	return strlen(name) == 31 + strlen(suffix) && name[20] == '-' &&
	       parse_u64(name, 20, &ret->start_ns) && parse_u64(name + 21, 10, &ret->seq) &&
	       !strcmp(name + 31, suffix);
}

static bool older(const struct entry *a, const struct entry *b)
{
	return a->start_ns < b->start_ns || (a->start_ns == b->start_ns && a->seq < b->seq);
}

static int compare(const void *a, const void *b)
{
	return older(a, b) ? -1 : older(b, a);
}

static u32 checksum(const void *line, size_t line_len, const void *body, size_t len)
{
	uLong crc = crc32_z(crc32_z(0, NULL, 0), line, line_len);

	return (u32)crc32_z(crc, body, len);
}

/* Line and body in one piece; owned. */
static u8 *encode(const struct profile *p, size_t *ret_len)
{
	char service[3 * sizeof(p->service)], container[3 * sizeof(p->container)];
	char type[3 * sizeof(p->type)], line[HEADER_MAX];
	size_t n;
	u8 *file;

	spool_escape(service, sizeof(service), p->service);
	spool_escape(container, sizeof(container), p->container);
	spool_escape(type, sizeof(type), p->type);
	n = (size_t)snprintf(line, sizeof(line),
			     MAGIC "start=%" PRIu64 " len=%zu service=%s container=%s type=%s crc=",
			     p->start_ns, p->len, service, container, type);
	n += (size_t)snprintf(line + n, sizeof(line) - n, "%08x\n",
			      checksum(line, n, p->body, p->len));
	file = malloc(n + p->len);
	if (!file)
		return NULL;
	memcpy(file, line, n);
	memcpy(file + n, p->body, p->len);
	*ret_len = n + p->len;
	return file;
}

/* Takes "KEY=value" and the blank behind it off the front of *line; NULL when it is not there. */
static char *field(char **line, const char *key)
{
	char *word = strsep(line, " ");
	size_t n = strlen(key);

	if (!word || strncmp(word, key, n) || word[n] != '=')
		return NULL;
	return word + n + 1;
}

static bool decode_line(char *line, struct profile *p, u64 *ret_len, u32 *ret_crc)
{
	const char *start, *len, *service, *container, *type, *crc;
	u32 i;

	if (strncmp(line, MAGIC, strlen(MAGIC)))
		return false;
	line += strlen(MAGIC);
	start = field(&line, "start");
	len = field(&line, "len");
	service = field(&line, "service");
	container = field(&line, "container");
	type = field(&line, "type");
	crc = field(&line, "crc");
	if (!start || !len || !service || !container || !type || !crc || line || strlen(crc) != 8)
		return false;
	*ret_crc = 0;
	for (i = 0; i < 8; i++) {
		int digit = hex_digit(crc[i]);

		if (digit < 0)
			return false;
		*ret_crc = *ret_crc << 4 | (u32)digit;
	}
	return parse_u64(start, strlen(start), &p->start_ns) &&
	       parse_u64(len, strlen(len), ret_len) &&
	       unescape(p->service, sizeof(p->service), service) &&
	       unescape(p->container, sizeof(p->container), container) &&
	       unescape(p->type, sizeof(p->type), type);
}

/* Points p into the file's bytes, which stay the caller's. */
static bool decode(const u8 *file, size_t len, struct profile *p)
{
	const u8 *end = memchr(file, '\n', MIN(len, (size_t)HEADER_MAX - 1));
	size_t line_len;
	char line[HEADER_MAX];
	u64 body_len;
	u32 crc;

	if (!end)
		return false;
	line_len = (size_t)(end - file);
	memcpy(line, file, line_len);
	line[line_len] = '\0';
	/* A NUL in the line would hide what comes behind it. */
	if (strlen(line) != line_len || !decode_line(line, p, &body_len, &crc))
		return false;
	if (body_len != len - line_len - 1)
		return false;
	p->body = end + 1;
	p->len = (size_t)body_len;
	return checksum(file, line_len - 8, p->body, p->len) == crc;
}

/* --- index; the caller holds the lock --------------------------------------------------------- */

/* First entry that is not older than e. */
static u32 position(const struct spool *s, const struct entry *e)
{
	u32 low = 0, high = s->n;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (older(&s->entries[middle], e))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void forget(struct spool *s, const struct entry *e)
{
	u32 i = position(s, e);

	if (i == s->n || compare(&s->entries[i], e))
		return;
	s->bytes -= s->entries[i].size;
	s->n--;
	memmove(&s->entries[i], &s->entries[i + 1], (s->n - i) * sizeof(s->entries[0]));
}

static int insert(struct spool *s, const struct entry *e)
{
	u32 i;
	int r;

	/* The same name was written again, and the file replaced with it. */
	forget(s, e);
	r = VEC_RESERVE(s->entries, s->cap, s->n + 1, FILES_MAX + 1);
	if (r)
		return r;
	i = position(s, e);
	memmove(&s->entries[i + 1], &s->entries[i], (s->n - i) * sizeof(s->entries[0]));
	s->entries[i] = *e;
	s->n++;
	s->bytes += e->size;
	return 0;
}

/*
 * Drops the oldest while the spool is too full or they are older than `before`; never the one that
 * is being sent: it is counted as sent or kept instead. Returns how many; some were too old.
 */
static u32 trim(struct spool *s, u64 before, u32 *ret_expired)
{
	u32 i = 0, kept = 0, dropped = 0;

	*ret_expired = 0;
	for (; i < s->n; i++) {
		char name[SPOOL_NAME];

		if (s->bytes <= s->max_bytes && s->n - dropped <= FILES_MAX &&
		    s->entries[i].start_ns >= before)
			break;
		if (s->has_loaded && !compare(&s->entries[i], &s->loaded)) {
			s->entries[kept++] = s->entries[i];
			continue;
		}
		entry_name(name, &s->entries[i], SUFFIX);
		/* A file that cannot be removed is forgotten all the same: this must end. */
		unlinkat(s->dir_fd, name, 0);
		s->bytes -= s->entries[i].size;
		*ret_expired += s->entries[i].start_ns < before;
		dropped++;
	}
	if (dropped)
		memmove(&s->entries[kept], &s->entries[i], (s->n - i) * sizeof(s->entries[0]));
	s->n -= dropped;
	s->expired += *ret_expired;
	s->dropped += dropped - *ret_expired;
	return dropped;
}

static void add_bad(struct spool *s, const struct entry *e)
{
	char name[SPOOL_NAME];

	if (s->nbad == BAD_FILES_MAX) {
		entry_name(name, &s->bad[0], SUFFIX_BAD);
		unlinkat(s->dir_fd, name, 0);
		s->nbad--;
		memmove(&s->bad[0], &s->bad[1], s->nbad * sizeof(s->bad[0]));
	}
	s->bad[s->nbad++] = *e;
}

/* --- the spool -------------------------------------------------------------------------------- */

static void trim_and_tell(struct spool *s)
{
	u64 now = now_realtime(), before;
	u32 dropped, expired;
	bool say;

	pthread_mutex_lock(&s->lock);
	dropped = trim(s, s->max_age_ns && now > s->max_age_ns ? now - s->max_age_ns : 0, &expired);
	say = dropped && log_limit(&s->drop_limit, &before);
	pthread_mutex_unlock(&s->lock);
	stat_add(STAT_spool_dropped, dropped - expired);
	stat_add(STAT_spool_expired, expired);
	if (say)
		log_warn(
			"spool: %s: %u of the oldest profiles dropped, unsent, since it is full, and "
			"%u that had waited too long (%" PRIu64
			" times before without a message); raise spool_mb or spool_hours, or "
			"repair the server",
			s->path, dropped - expired, expired, before);
}

/* The file is of no use; it is renamed for a person, or removed when that is not possible. */
static void set_aside(struct spool *s, const struct entry *e, int err)
{
	char name[SPOOL_NAME], bad[SPOOL_NAME];
	bool renamed;

	entry_name(name, e, SUFFIX);
	entry_name(bad, e, SUFFIX_BAD);
	renamed = err != -ENOENT && e->size <= BAD_SIZE_MAX &&
		  !renameat(s->dir_fd, name, s->dir_fd, bad);
	if (!renamed)
		unlinkat(s->dir_fd, name, 0);
	pthread_mutex_lock(&s->lock);
	forget(s, e);
	if (renamed)
		add_bad(s, e);
	s->damaged++;
	pthread_mutex_unlock(&s->lock);
	stat_inc(STAT_spool_bad);
	if (log_limit(&s->bad_limit, NULL))
		log_warn("spool: %s/%s cannot be sent: %s; %s", s->path, name,
			 err == -EBADMSG ? "damaged" : strerror(-err),
			 renamed ? "renamed to *.bad" : "removed");
}

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

static int take_over_entry(struct spool *s, const char *name, struct entry *e)
{
	struct stat st;

	if (!parse_name(name, SUFFIX, e) && !parse_name(name, SUFFIX_BAD, e))
		return 0;
	if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) || !is_ours(&st))
		return 0;
	if (parse_name(name, SUFFIX_BAD, e)) {
		add_bad(s, e);
		return 0;
	}
	/* Larger than any that we write. It must not push sound ones out of a full spool. */
	if ((u64)st.st_size > FILE_MAX) {
		e->size = FILE_MAX + 1;
		set_aside(s, e, -EBADMSG);
		return 0;
	}
	e->size = (u64)st.st_size;
	if (VEC_RESERVE(s->entries, s->cap, s->n + 1, SCAN_MAX))
		return -ENOMEM;
	s->entries[s->n++] = *e;
	s->bytes += e->size;
	return 0;
}

static int take_over(struct spool *s)
{
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	struct entry e;
	int r = 0;
	u32 i;

	if (!d) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	for (i = 0; i < SCAN_MAX && !r; i++) {
		errno = 0;
		de = readdir(d);
		if (!de) {
			r = -errno;
			break;
		}
		r = take_over_entry(s, de->d_name, &e);
	}
	closedir(d);
	if (r)
		return r;
	if (s->n)
		qsort(s->entries, s->n, sizeof(s->entries[0]), compare);
	trim_and_tell(s);
	return 0;
}

static void spool_freep(struct spool **s)
{
	spool_free(*s);
}

int spool_open(const char *path, u64 max_bytes, u64 max_age_ns, struct spool **ret)
{
	_cleanup_(spool_freep) struct spool *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return log_err(-ENOMEM, "spool: out of memory");
	s->dir_fd = -1;
	s->max_bytes = max_bytes;
	s->max_age_ns = max_age_ns;
	pthread_mutex_init(&s->lock, NULL);
	if (path && *path && max_bytes) {
		s->path = strdup(path);
		if (!s->path)
			return log_err(-ENOMEM, "spool: out of memory");
		r = store_open_dir(path, &s->dir_fd);
		if (r)
			return r;
		r = take_over(s);
		if (r)
			return log_err(r, "spool: cannot read directory %s: %s", path,
				       strerror(-r));
		if (s->n)
			log_info("spool: %u profiles of an earlier run wait in %s", s->n, path);
	}
	*ret = take_ptr(s);
	return 0;
}

void spool_free(struct spool *s)
{
	if (!s)
		return;
	if (s->dir_fd >= 0)
		close(s->dir_fd);
	pthread_mutex_destroy(&s->lock);
	free(s->entries);
	free(s->path);
	free(s);
}

int spool_put(struct spool *s, const struct profile *p)
{
	struct entry e = { .start_ns = p->start_ns, .seq = p->seq % SEQ_LIMIT };
	_cleanup_free_ u8 *file = NULL;
	char name[SPOOL_NAME], path[PATH_MAX];
	size_t len;
	int r;

	if (s->dir_fd < 0 || p->len > SPOOL_BODY_MAX)
		return s->dir_fd < 0 ? -EOPNOTSUPP : -EFBIG;
	file = encode(p, &len);
	if (!file)
		return -ENOMEM;
	if (len > s->max_bytes)
		return -EFBIG;
	entry_name(name, &e, SUFFIX);
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", s->path, name) >= sizeof(path))
		return -ENAMETOOLONG;
	r = write_file_atomic(path, file, len, 0600);
	if (r)
		return r;
	e.size = len;
	/* After the write, so that one that fails costs no other; over the bound for that moment. */
	pthread_mutex_lock(&s->lock);
	r = insert(s, &e);
	if (r)
		unlinkat(s->dir_fd, name, 0);
	pthread_mutex_unlock(&s->lock);
	if (!r)
		trim_and_tell(s);
	return r;
}

bool spool_oldest(struct spool *s, u64 *ret_start_ns, u64 *ret_seq)
{
	bool any;

	if (s->max_age_ns)
		trim_and_tell(s);
	pthread_mutex_lock(&s->lock);
	any = s->n;
	if (any) {
		*ret_start_ns = s->entries[0].start_ns;
		*ret_seq = s->entries[0].seq;
	}
	pthread_mutex_unlock(&s->lock);
	return any;
}

static int read_exactly(int fd, u8 *buf, size_t len)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = read(fd, buf + have, len - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EBADMSG;
		have += (size_t)n;
	}
	return 0;
}

/* -EBADMSG: not a sound file of ours. */
static int load_file(struct spool *s, const char *name, struct profile *p)
{
	/* O_NONBLOCK: opening a FIFO somebody put there must not wait. */
	_cleanup_close_ int fd =
		openat(s->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		return -errno;
	if (!is_ours(&st) || st.st_size <= 0 || (u64)st.st_size > FILE_MAX)
		return -EBADMSG;
	p->memory = malloc((size_t)st.st_size);
	if (!p->memory)
		return -ENOMEM;
	r = read_exactly(fd, p->memory, (size_t)st.st_size);
	if (r)
		return r;
	return decode(p->memory, (size_t)st.st_size, p) ? 0 : -EBADMSG;
}

static bool may_pass(int err)
{
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE || err == -EINTR ||
	       err == -EAGAIN;
}

int spool_load(struct spool *s, struct profile **ret)
{
	u32 i;

	/* Each turn takes one entry out of the index. */
	for (i = 0; i <= SCAN_MAX; i++) {
		_cleanup_(profile_freep) struct profile *p = calloc(1, sizeof(*p));
		char name[SPOOL_NAME];
		struct entry e;
		int r;

		if (!p)
			return -ENOMEM;
		pthread_mutex_lock(&s->lock);
		s->has_loaded = s->n;
		if (s->n)
			s->loaded = s->entries[0];
		e = s->loaded;
		pthread_mutex_unlock(&s->lock);
		if (!s->has_loaded)
			return -ENOENT;
		entry_name(name, &e, SUFFIX);
		r = load_file(s, name, p);
		if (!r) {
			p->start_ns = e.start_ns;
			p->seq = e.seq;
			*ret = take_ptr(p);
			return 0;
		}
		spool_done(s, false);
		if (may_pass(r))
			return r;
		set_aside(s, &e, r);
	}
	return -ENOENT;
}

void spool_done(struct spool *s, bool remove)
{
	char name[SPOOL_NAME];

	pthread_mutex_lock(&s->lock);
	if (s->has_loaded && remove) {
		entry_name(name, &s->loaded, SUFFIX);
		unlinkat(s->dir_fd, name, 0);
		forget(s, &s->loaded);
	}
	s->has_loaded = false;
	pthread_mutex_unlock(&s->lock);
}

u32 spool_count(struct spool *s)
{
	u32 n;

	pthread_mutex_lock(&s->lock);
	n = s->n;
	pthread_mutex_unlock(&s->lock);
	return n;
}

void spool_counts(struct spool *s, struct spool_counts *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = (struct spool_counts){ s->n, s->bytes, s->dropped, s->expired, s->damaged };
	pthread_mutex_unlock(&s->lock);
}

u64 spool_next_seq(struct spool *s)
{
	u64 next = 0;
	u32 i;

	pthread_mutex_lock(&s->lock);
	for (i = 0; i < s->n; i++)
		next = MAX(next, s->entries[i].seq + 1);
	pthread_mutex_unlock(&s->lock);
	return next;
}
