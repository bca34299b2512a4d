// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See hostwalk.h. The only core file that builds bpf/unwind.h; all of it is static
 * here, so that a test can have another. Each thread has its own walk.
 */
#include "hostwalk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

/* The walk tells maps apart by address only; the inner map of a slab is its memory. */
struct unwind_map {
	char unused;
};

#define UNWIND_MAPS         static
#define __noinline          static __attribute__((noinline, unused))
#define bpf_probe_read_user hostwalk_read_user
#define bpf_map_lookup_elem hostwalk_lookup
#undef __always_inline /* the C library has one of its own */
#include "bpf/unwind.h"

#define WINDOWS      2
#define WINDOW_BYTES (64u << 10)
#define WINDOW_PAGES 4
#define PAGE_PRESENT (1ull << 63) /* Documentation/admin-guide/mm/pagemap.rst */

struct window_of {
	u64 base;
	u32 len;
	u8 bytes[WINDOW_BYTES];
};

/* A thread's state: one batch. */
struct run {
	struct hostwalk *h;
	const struct hostwalk_job *job;
	u32 page;
	u32 pagemap_tgid; /* whose the descriptor is */
	int pagemap_fd;
	bool missing; /* a page of this job was not there */
	u32 last;     /* window used last */
	struct window_of windows[WINDOWS];
	struct scratch scratch;
};

static __thread struct run *current;

static bool is_cancelled(const struct hostwalk *h)
{
	return __atomic_load_n(&h->cancelled, __ATOMIC_ACQUIRE);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void use_pagemap_of(struct run *r, u32 tgid, u32 tid)
{
	char path[64];

	if (r->pagemap_tgid == tgid)
		return;
	closep(&r->pagemap_fd);
	/* By the thread: of a process whose main thread has ended there is nothing else. */
	snprintf(path, sizeof(path), "/proc/%u/pagemap", tid);
	r->pagemap_fd = open(path, O_RDONLY | O_CLOEXEC);
	r->pagemap_tgid = tgid;
}

/* How many of `want` pages from addr on are there; -errno. */
static int pages_present(const struct run *r, u64 addr, u32 want)
{
	u64 entries[WINDOW_PAGES];
	ssize_t n;
	u32 i;

	if (r->pagemap_fd < 0)
		return (int)want; /* not told: the read will find out */
	n = pread(r->pagemap_fd, entries, want * sizeof(entries[0]),
		  (off_t)(addr / r->page * sizeof(entries[0])));
	if (n < 0)
		return -errno;
	for (i = 0; i < (u32)n / sizeof(entries[0]) && entries[i] & PAGE_PRESENT; i++)
		;
	return (int)i;
}

/* Fills a window with the pages from the address's own on; NULL: that one is not there. */
static struct window_of *load_window(struct run *r, u64 addr)
{
	u32 want = MIN((u32)WINDOW_PAGES, WINDOW_BYTES / r->page);
	struct window_of *w = &r->windows[!r->last];
	struct iovec local = { .iov_base = w->bytes }, remote;
	ssize_t n;
	int pages;

	w->base = addr & ~(u64)(r->page - 1);
	w->len = 0;
	pages = pages_present(r, w->base, want);
	if (pages <= 0) {
		r->missing |= !pages;
		return NULL;
	}
	local.iov_len = (size_t)pages * r->page;
	remote = (struct iovec){ .iov_base = (void *)(uintptr_t)w->base, .iov_len = local.iov_len };
	n = process_vm_readv((pid_t)r->job->tid, &local, 1, &remote, 1, 0);
	if (n <= 0 || is_cancelled(r->h))
		return NULL;
	w->len = (u32)n;
	r->last = (u32)(w - r->windows);
	return w;
}

static int read_piece(struct run *r, u8 *dst, u32 size, u64 addr, u32 *ret)
{
	struct window_of *w = NULL;
	u32 i;

	for (i = 0; i < WINDOWS && !w; i++)
		if (addr >= r->windows[i].base && addr - r->windows[i].base < r->windows[i].len) {
			w = &r->windows[i];
			r->last = i;
		}
	if (!w)
		w = load_window(r, addr);
	if (!w || addr - w->base >= w->len)
		return -EFAULT;
	*ret = (u32)MIN((u64)size, w->len - (addr - w->base));
	memcpy(dst, w->bytes + (addr - w->base), *ret);
	return 0;
}

long bpf_probe_read_user(void *dst, u32 size, const void *unsafe_ptr)
{
	u64 addr = (u64)(uintptr_t)unsafe_ptr;
	u32 done = 0, n;

	/* Each turn reads something; a read lies on two windows at most. */
	while (done < size) {
		if (addr + done < addr ||
		    read_piece(current, (u8 *)dst + done, size - done, addr + done, &n)) {
			memset(dst, 0, size); /* as the helper does */
			return -EFAULT;
		}
		done += n;
	}
	return 0;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	u32 k = *(const u32 *)key;

	if (map == &scratch)
		return &current->scratch;
	if (map == &slabs)
		return is_cancelled(current->h)
			       ? NULL
			       : (void *)(uintptr_t)current->h->slab(current->h->slab_arg, k);
	if (map == &procs)
		return current->job->image.gen ? (void *)(uintptr_t)&current->job->image : NULL;
	if (map == &row_cache)
		return NULL;
	return map; /* a slab's only element */
}

/* --- jobs ------------------------------------------------------------------------------------- */

/* Places in struct user_regs: bpf/kernel.h. */
u64 hostwalk_ip(const __u64 regs[OPEN_WAIT_REGS])
{
	return regs[UNWIND_ARM64 ? 32 : 16];
}

static void run_job(struct run *r, struct hostwalk_job *j)
{
	struct scratch *s = &r->scratch;
	struct walk *w = &s->walk;
	u32 i;

	r->job = j;
	r->missing = false;
	for (i = 0; i < WINDOWS; i++)
		r->windows[i].len = 0;
	use_pagemap_of(r, j->key.tgid, j->tid);
	_Static_assert(OPEN_WAIT_REGS <= WALK_REGS, "registers fit");
	memcpy(s->regs, j->regs, sizeof(j->regs));
	w->ip = hostwalk_ip(j->regs);
	w->sp = j->regs[UNWIND_ARM64 ? 31 : 19];
	w->fp = j->regs[UNWIND_ARM64 ? 29 : 4];
	w->n = 0;
	w->nuser = 0;
	w->addr_mask = j->addr_mask;
	w->max_frames = MIN(j->max_frames, (u32)MAX_USER_FRAMES);
	w->stack_top = j->stack_top;
	w->stack_size = j->stack_size;
	walk_stack(s, 0, &j->key, WALK_UNCACHED | (j->image.gen ? 0 : WALK_FP_ONLY));
	j->n = MIN(w->nuser, (u32)MAX_USER_FRAMES);
	memcpy(j->ip, s->ip, j->n * sizeof(j->ip[0]));
	j->end = w->end;
	if (j->end == STACK_END_UNREADABLE && r->missing)
		j->end = STACK_END_NOT_RESIDENT;
}

static u64 thread_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.tv_sec * NSEC_PER_SEC + (u64)t.tv_nsec;
}

int hostwalk_run(void *hostwalk)
{
	struct hostwalk *h = hostwalk;
	_cleanup_free_ struct run *r = calloc(1, sizeof(*r));
	u64 start = thread_time();
	u32 i;

	if (!r)
		return -ENOMEM;
	r->h = h;
	r->page = (u32)sysconf(_SC_PAGESIZE);
	r->pagemap_fd = -1;
	current = r;
	for (i = 0; i < h->njobs && !is_cancelled(h); i++) {
		run_job(r, &h->jobs[i]);
		if (!is_cancelled(h))
			__atomic_store_n(&h->at, i + 1, __ATOMIC_RELEASE);
	}
	current = NULL;
	closep(&r->pagemap_fd);
	h->cpu_ns = thread_time() - start;
	return 0;
}

struct hostwalk *hostwalk_new(u32 njobs, hostwalk_slab_fn *slab, const void *slab_arg)
{
	struct hostwalk *h = calloc(1, sizeof(*h) + njobs * sizeof(h->jobs[0]));

	if (!h)
		return NULL;
	h->slab = slab;
	h->slab_arg = slab_arg;
	h->njobs = njobs;
	h->refs = 1;
	return h;
}

struct hostwalk *hostwalk_get(struct hostwalk *h)
{
	__atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
	return h;
}

void hostwalk_put(void *hostwalk)
{
	struct hostwalk *h = hostwalk;

	if (h && !__atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL))
		free(h);
}

u32 hostwalk_done(const struct hostwalk *h)
{
	return __atomic_load_n(&h->at, __ATOMIC_ACQUIRE);
}

void hostwalk_cancel(struct hostwalk *h)
{
	__atomic_store_n(&h->cancelled, 1, __ATOMIC_RELEASE);
}
