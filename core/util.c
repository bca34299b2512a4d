// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See util.h. */
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

int vec_reserve(void **array, u32 *cap, u32 need, u32 max, size_t elem_size)
{
	u32 n = *cap ? *cap : 8;
	void *p;

	if (need <= *cap)
		return 0;
	if (need > max)
		return -E2BIG;
	while (n < need)
		n = n > max / 2 ? max : n * 2;
	p = reallocarray(*array, n, elem_size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*cap = n;
	return 0;
}

static u64 now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

u64 now_monotonic(void)
{
	return now(CLOCK_MONOTONIC);
}

u64 now_boottime(void)
{
	return now(CLOCK_BOOTTIME);
}

u64 now_realtime(void)
{
	return now(CLOCK_REALTIME);
}

void host_name(char *dst, size_t size)
{
	const char *given = getenv("EBPFPROFILER_HOST");

	if (given && *given) {
		utf8_clean(dst, size, given, strlen(given));
		return;
	}
	snprintf(dst, size, "localhost");
	if (gethostname(dst, size - 1))
		return;
	dst[size - 1] = '\0';
}

void hex_encode(char *dst, const u8 *src, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < n; i++) {
		dst[2 * i] = digits[src[i] >> 4];
		dst[2 * i + 1] = digits[src[i] & 15];
	}
	dst[2 * n] = '\0';
}

bool hex_decode(u8 *dst, const char *src, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int high = hex_digit(src[2 * i]), low = high < 0 ? -1 : hex_digit(src[2 * i + 1]);

		if (low < 0)
			return false;
		dst[i] = (u8)(high << 4 | low);
	}
	return true;
}

const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Length of the valid UTF-8 sequence at s, 0 when there is none (RFC 3629: no surrogates). */
static size_t utf8_sequence(const u8 *s, size_t len)
{
	size_t n, i;
	u32 c;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (n > len)
		return 0;
	c = s[0] & (0x7f >> n);
	for (i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff)) ||
	    (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return n;
}

/*
 * Marks that turn the direction of writing make a text look like another one: U+061C, 200E, 200F,
 * 202A to 202E, 2066 to 2069; 2028 and 2029 end lines. The code, 0: it is none.
 */
static u32 direction_mark(const u8 *s, size_t n)
{
	u32 code = n == 2   ? (s[0] & 0x1fu) << 6 | (s[1] & 0x3f)
		   : n == 3 ? (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3f)
			    : 0;

	return code == 0x61c || code == 0x200e || code == 0x200f ||
			       (code >= 0x2028 && code <= 0x202e) ||
			       (code >= 0x2066 && code <= 0x2069)
		       ? code
		       : 0;
}

size_t utf8_clean(char *dst, size_t dst_size, const char *src, size_t len)
{
	size_t in = 0, out = 0;

	if (!dst_size)
		return 0;
	len = strnlen(src, len);
	while (in < len) {
		const char *piece = src + in;
		size_t n = utf8_sequence((const u8 *)piece, len - in), piece_len = n;
		u32 mark = direction_mark((const u8 *)piece, n);
		char text[8];

		if (!n) {
			piece = "\xef\xbf\xbd";
			piece_len = 3;
			n = 1;
		} else if (n == 1 && ((u8)*piece < 0x20 || *piece == 0x7f)) {
			piece = "?";
		} else if (mark) {
			piece_len = (size_t)snprintf(text, sizeof(text), "\\u%04x", mark);
			piece = text;
		}
		if (out + piece_len >= dst_size)
			break;
		memcpy(dst + out, piece, piece_len);
		out += piece_len;
		in += n;
	}
	dst[out] = '\0';
	return out;
}

int read_file(const char *path, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *buf = NULL;
	size_t len = 0, cap = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n;

		if (len + 1 >= cap) {
			size_t bigger = cap ? cap * 2 : 4096;
			char *p = realloc(buf, bigger);

			if (!p)
				return -ENOMEM;
			buf = p;
			cap = bigger;
		}
		n = read(fd, buf + len, cap - len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
		if (len > max)
			return -E2BIG;
	}
	buf[len] = '\0';
	if (ret_len)
		*ret_len = len;
	*ret = take_ptr(buf);
	return 0;
}

int write_all(int fd, const u8 *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

u64 fd_memlock(int fd)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	const char *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (read_file(path, 4096, &text, NULL))
		return 0;
	line = strstr(text, "memlock:");
	return line ? strtoull(line + 8, NULL, 10) : 0;
}

u64 random_below(u64 n)
{
	u64 v;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
		v = now_monotonic();
	return n ? v % n : 0;
}

int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	err = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (err)
		return -err;
	err = pthread_create(ret, attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}
