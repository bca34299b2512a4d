/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Cleanup attributes and the few macros that every room uses.
 * An owning local carries a cleanup attribute; ownership leaves through take_ptr() / take_fd().
 */
#pragma once

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))
#define NSEC_PER_SEC  1000000000ull

#define __printf(fmt, args) __attribute__((format(printf, fmt, args)))
#define __unused            __attribute__((unused))

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _cleanup_(f)       __attribute__((cleanup(f)))
#define _cleanup_free_     _cleanup_(freep)
#define _cleanup_close_    _cleanup_(closep)
#define _cleanup_fclose_   _cleanup_(fclosep)
#define _cleanup_closedir_ _cleanup_(closedirp)

/* Ownership leaves the local; its cleanup then does nothing. */
#define take_ptr(p)                         \
	({                                  \
		__typeof__(p) *__pp = &(p); \
		__typeof__(p) __v = *__pp;  \
		*__pp = NULL;               \
		__v;                        \
	})

static inline int take_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

/*
 * Room for one more element in a growing array. The array doubles, never over max elements.
 * Returns 0, -ENOMEM, or -E2BIG when max is reached; the array is unchanged on failure.
 */
int vec_reserve(void **array, u32 *cap, u32 need, u32 max, size_t elem_size);
#define VEC_RESERVE(array, cap, need, max) \
	vec_reserve((void **)&(array), &(cap), (need), (max), sizeof((array)[0]))

/* Nanoseconds of CLOCK_MONOTONIC (what BPF's ktime counts), of CLOCK_BOOTTIME, of CLOCK_REALTIME. */
u64 now_monotonic(void);
u64 now_boottime(void);
u64 now_realtime(void);

/* Below n, and 0 for 0: for pauses that a fleet must not make as one. No use for what is secret. */
u64 random_below(u64 n);

/*
 * A thread of ours: all signals are the main thread's, and SIGPIPE of a closed connection nobody's.
 * attr may be NULL. Returns 0 or -errno.
 */
int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);

/* Of a hex digit, of either case; -1: it is none. */
static inline int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/*
 * n bytes as 2 * n digits of lower case and a NUL; and back, without a look at what follows them:
 * false, and dst is undefined, where not all of them are digits.
 */
void hex_encode(char *dst, const u8 *src, size_t n);
bool hex_decode(u8 *dst, const char *src, size_t n);

/* Last component of a path, never empty for a non-empty path without trailing slash; borrowed. */
const char *base_name(const char *path);

/* This host's name: EBPFPROFILER_HOST, which a pod sets to its node's, or what the kernel has. */
void host_name(char *dst, size_t size);

/*
 * Copies src (at most len bytes, or up to its NUL) to dst as valid UTF-8 that fits dst_size with
 * its NUL: bad bytes become U+FFFD, control characters '?', marks that turn the direction of writing
 * "\\u202e". For whatever a process or a file chose: comm, paths, symbol names. Returns the length
 * written.
 */
size_t utf8_clean(char *dst, size_t dst_size, const char *src, size_t len);

/*
 * Whole contents of a file, at most max bytes, NUL-terminated; owned. *ret_len may be NULL.
 * Works for /proc files that have no size. Returns 0, -errno, or -E2BIG when there is more.
 */
int read_file(const char *path, size_t max, char **ret, size_t *ret_len);
/* All of data, over short writes and EINTR. Returns 0 or -errno; -EIO when a write makes no way. */
int write_all(int fd, const u8 *data, size_t len);
/* Bytes that the kernel charges for a BPF map ("memlock:" of its fdinfo); 0 when it does not tell. */
u64 fd_memlock(int fd);
