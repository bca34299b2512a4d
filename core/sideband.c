// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See sideband.h. Record layouts: include/uapi/linux/perf_event.h. Each record ends
 * with a sample id {pid, tid, time, cpu}, since sample_id_all is set.
 */
#include "sideband.h"

#include "cpus.h"
#include "log.h"
#include "stat.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define RECORD_MAX  65536       /* perf_event_header.size is 16 bits */
#define BACKLOG_MAX (64u << 20) /* bytes of records held for the next round */

#ifndef PERF_RECORD_MISC_MMAP_BUILD_ID
#define PERF_RECORD_MISC_MMAP_BUILD_ID (1 << 14)
#endif

struct ring {
	int fd;
	struct perf_event_mmap_page *page;
};

/* A record copied out of a ring; text lies in sideband.bytes. */
struct pending {
	u64 time_ns;
	u32 offset, len;
	u32 order; /* of reading: keeps records of one time in their order */
};

struct sideband {
	struct ring rings[CPUS_MAX];
	u32 nrings;
	u32 data_bytes;
	int epoll_fd;
	u8 *bytes;
	u32 nbytes, bytes_cap;
	struct pending *pending;
	u32 npending, pending_cap, next;
	u64 until_ns;
	u32 order;
	struct task_event event;
	u64 record[RECORD_MAX / 8]; /* the record behind `event`, aligned */
};

struct sample_id {
	u32 pid, tid;
	u64 time;
	u32 cpu, res;
};

/*
 * Not with attr.build_id (5.12): such a record has the build id in place of the inode, and a build
 * id can be forged by whoever makes the file. Build ids are read from the files instead.
 */
static void fill_attr(struct perf_event_attr *attr, u32 wake)
{
	*attr = (struct perf_event_attr){
		.size = sizeof(*attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.ksymbol = 1,
		.exclude_kernel = 1,
		.watermark = 1,
		.wakeup_watermark = wake,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
}

static int open_ring(struct sideband *s, u32 cpu)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE) + s->data_bytes;
	struct epoll_event ev = { .events = EPOLLIN };
	_cleanup_close_ int fd = -1;
	struct perf_event_attr attr;
	void *page;

	fill_attr(&attr, s->data_bytes / 4);
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		int err = -errno;

		munmap(page, size);
		return err;
	}
	s->rings[cpu] = (struct ring){ .fd = take_fd(&fd), .page = page };
	return 0;
}

static void close_ring(struct sideband *s, u32 cpu)
{
	struct ring *r = &s->rings[cpu];

	if (!r->page)
		return;
	munmap(r->page, (size_t)sysconf(_SC_PAGESIZE) + s->data_bytes);
	close(r->fd);
	*r = (struct ring){ .fd = -1 };
}

int sideband_new(u32 ring_bytes, struct sideband **ret)
{
	struct sideband *s = calloc(1, sizeof(*s));
	u32 cpu, opened = 0;
	int err = 0;

	if (!s)
		return log_err(-ENOMEM, "cannot follow processes: out of memory");
	s->data_bytes = ring_bytes;
	s->nrings = (u32)MIN(sysconf(_SC_NPROCESSORS_CONF), (long)CPUS_MAX);
	for (cpu = 0; cpu < s->nrings; cpu++)
		s->rings[cpu].fd = -1;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	for (cpu = 0; cpu < s->nrings && s->epoll_fd >= 0; cpu++) {
		err = open_ring(s, cpu);
		if (err && err != -ENODEV && err != -ENXIO)
			break;
		opened += !err;
	}
	if (!opened) {
		err = err ? err : -ENODEV;
		sideband_free(s);
		return log_err(err,
			       "cannot follow processes: perf events for exec and mmap: %s; "
			       "see `ebpfprofiler doctor`",
			       strerror(-err));
	}
	*ret = s;
	return 0;
}

void sideband_free(struct sideband *s)
{
	u32 cpu;

	if (!s)
		return;
	for (cpu = 0; cpu < s->nrings; cpu++)
		close_ring(s, cpu);
	closep(&s->epoll_fd);
	free(s->bytes);
	free(s->pending);
	free(s);
}

int sideband_fd(const struct sideband *s)
{
	return s->epoll_fd;
}

/* Time of a record: second field of the trailing sample id. */
static u64 record_time(const struct perf_event_header *h)
{
	struct sample_id id;

	if (h->size < sizeof(*h) + sizeof(id))
		return 0;
	memcpy(&id, (const u8 *)h + h->size - sizeof(id), sizeof(id));
	return id.time;
}

static int keep(struct sideband *s, const void *record, u32 len)
{
	struct pending p = { .offset = s->nbytes, .len = len, .order = s->order++ };
	int err = VEC_RESERVE(s->bytes, s->bytes_cap, s->nbytes + len, BACKLOG_MAX);

	if (!err)
		err = VEC_RESERVE(s->pending, s->pending_cap, s->npending + 1, BACKLOG_MAX / 32);
	if (err)
		return err;
	p.time_ns = record_time(record);
	memcpy(s->bytes + s->nbytes, record, len);
	s->nbytes += len;
	s->pending[s->npending++] = p;
	return 0;
}

static void read_ring(struct sideband *s, struct ring *r)
{
	u64 head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
	u64 tail = r->page->data_tail;
	const u8 *data = (const u8 *)r->page + r->page->data_offset;
	u32 mask = s->data_bytes - 1;

	while (tail < head) {
		u32 at = (u32)tail & mask, first;
		struct perf_event_header h;

		/* Headers are 8 bytes, records multiples of 8: a header never wraps. */
		memcpy(&h, data + at, sizeof(h));
		if (h.size < sizeof(h) || h.size > head - tail) {
			stat_inc(STAT_sideband_bad);
			tail = head;
			break;
		}
		first = MIN((u32)h.size, s->data_bytes - at);
		memcpy(s->record, data + at, first);
		memcpy((u8 *)s->record + first, data, h.size - first);
		if (keep(s, s->record, h.size))
			stat_inc(STAT_sideband_lost);
		tail += h.size;
	}
	__atomic_store_n(&r->page->data_tail, tail, __ATOMIC_RELEASE);
}

bool sideband_follow_cpus(struct sideband *s)
{
	struct cpu_set_bits set;
	bool changed = false;
	u32 cpu;

	if (cpus_online(&set))
		return false;
	for (cpu = 0; cpu < s->nrings; cpu++) {
		if (!set.online[cpu] && s->rings[cpu].page) {
			/* The event stays off even when its CPU comes back. */
			read_ring(s, &s->rings[cpu]);
			close_ring(s, cpu);
			changed = true;
		} else if (set.online[cpu] && !s->rings[cpu].page) {
			changed |= !open_ring(s, cpu);
		}
	}
	return changed;
}

static int by_time(const void *a, const void *b)
{
	const struct pending *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* What was handed out is dropped; what waits moves to the front. */
static void compact(struct sideband *s)
{
	u8 *bytes = NULL;
	u32 i, nbytes = 0, cap = 0, n = s->npending - s->next;

	for (i = s->next; i < s->npending; i++)
		nbytes += s->pending[i].len;
	if (nbytes && vec_reserve((void **)&bytes, &cap, nbytes, BACKLOG_MAX, 1))
		return; /* no memory for it now: keep the old block for one more round */
	nbytes = 0;
	for (i = 0; i < n; i++) {
		struct pending p = s->pending[s->next + i];

		memcpy(bytes + nbytes, s->bytes + p.offset, p.len);
		p.offset = nbytes;
		nbytes += p.len;
		s->pending[i] = p;
	}
	if (nbytes) {
		free(s->bytes);
		s->bytes = bytes;
		s->bytes_cap = cap;
	}
	s->nbytes = nbytes;
	s->npending = n;
	s->next = 0;
}

int sideband_read(struct sideband *s, u64 until_ns)
{
	u32 cpu;

	compact(s);
	for (cpu = 0; cpu < s->nrings; cpu++)
		if (s->rings[cpu].page)
			read_ring(s, &s->rings[cpu]);
	qsort(s->pending, s->npending, sizeof(s->pending[0]), by_time);
	s->until_ns = until_ns;
	return 0;
}

/* A NUL-terminated string of a record's tail; the sample id behind it is not part of it. */
static const char *record_string(const u8 *start, const u8 *end)
{
	return start < end && memchr(start, 0, (size_t)(end - start)) ? (const char *)start : NULL;
}

static int parse_mmap2(const struct perf_event_header *h, const u8 *end, struct task_event *ret)
{
	struct {
		struct perf_event_header header;
		u32 pid, tid;
		u64 addr, len, pgoff;
		union {
			struct {
				u32 major, minor;
				u64 ino, generation;
			};
			struct {
				u8 build_id_size, reserved1;
				u16 reserved2;
				u8 build_id[20];
			};
		};
		u32 prot, flags;
	} m;
	const u8 *path = (const u8 *)h + sizeof(m);

	if (path >= end)
		return -EINVAL;
	memcpy(&m, h, sizeof(m));
	ret->type = TASK_MMAP;
	ret->pid = m.pid;
	ret->offset = m.pgoff;
	ret->file = (struct mapped_file){ .pid = m.pid, .lo = m.addr, .hi = m.addr + m.len };
	if (ret->file.hi <= ret->file.lo)
		return -EINVAL;
	if (h->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		if (m.build_id_size > BUILD_ID_MAX)
			return -EINVAL;
		ret->file.build_id_len = m.build_id_size;
		memcpy(ret->file.build_id, m.build_id, m.build_id_size);
	} else {
		ret->file.major = m.major;
		ret->file.minor = m.minor;
		ret->file.ino = m.ino;
	}
	ret->file.path = record_string(path, end);
	return ret->file.path ? 0 : -EINVAL;
}

static int parse_comm(const struct perf_event_header *h, const u8 *end, struct task_event *ret)
{
	u32 ids[2]; /* pid, tid */
	const u8 *comm = (const u8 *)h + sizeof(*h) + sizeof(ids);

	if (comm >= end)
		return -EINVAL;
	memcpy(ids, (const u8 *)h + sizeof(*h), sizeof(ids));
	if (!(h->misc & PERF_RECORD_MISC_COMM_EXEC) && ids[0] != ids[1])
		return -ENOENT; /* a thread's own name comes with its samples */
	ret->type = h->misc & PERF_RECORD_MISC_COMM_EXEC ? TASK_EXEC : TASK_COMM;
	ret->pid = ids[0];
	ret->comm = record_string(comm, end);
	return ret->comm ? 0 : -EINVAL;
}

static int parse_task(const struct perf_event_header *h, const u8 *end, struct task_event *ret)
{
	u32 ids[4]; /* pid, ppid, tid, ptid */

	if ((const u8 *)h + sizeof(*h) + sizeof(ids) > end)
		return -EINVAL;
	memcpy(ids, (const u8 *)h + sizeof(*h), sizeof(ids));
	ret->pid = ids[0];
	if (h->type == PERF_RECORD_FORK) {
		if (ids[0] == ids[1])
			return -ENOENT; /* a thread */
		ret->type = TASK_FORK;
		ret->ppid = ids[1];
		return 0;
	}
	if (ids[0] != ids[2])
		return -ENOENT;
	ret->type = TASK_EXIT;
	return 0;
}

/* BPF programs and trampolines have a name for their module in kallsyms, the rest is vmlinux's. */
static int parse_ksymbol(const struct perf_event_header *h, const u8 *end, struct task_event *ret)
{
	struct {
		struct perf_event_header header;
		u64 addr;
		u32 len;
		u16 type, flags;
	} m;
	const u8 *name = (const u8 *)h + sizeof(m);

	if (name >= end)
		return -EINVAL;
	memcpy(&m, h, sizeof(m));
	ret->type = TASK_CODE;
	ret->code = m.addr;
	ret->code_len = m.len;
	ret->symbol = record_string(name, end);
	ret->module = m.type == PERF_RECORD_KSYMBOL_TYPE_BPF ? "bpf" : "";
	if (!ret->symbol)
		return -EINVAL;
	if (m.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER)
		ret->symbol = NULL;
	return 0;
}

int sideband_parse(const void *record, size_t len, struct task_event *ret)
{
	const struct perf_event_header *h = record;
	struct task_event ev = { 0 };
	const u8 *end;
	int err;

	if (len < sizeof(*h) + sizeof(struct sample_id) || h->size != len)
		return -EINVAL;
	end = (const u8 *)record + len - sizeof(struct sample_id);
	ev.time_ns = record_time(h);
	switch (h->type) {
	case PERF_RECORD_MMAP2:
		err = parse_mmap2(h, end, &ev);
		break;
	case PERF_RECORD_COMM:
		err = parse_comm(h, end, &ev);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		err = parse_task(h, end, &ev);
		break;
	case PERF_RECORD_KSYMBOL:
		err = parse_ksymbol(h, end, &ev);
		break;
	case PERF_RECORD_LOST:
		if ((const u8 *)h + sizeof(*h) + 16 > end)
			return -EINVAL;
		ev.type = TASK_LOST;
		memcpy(&ev.n, (const u8 *)h + sizeof(*h) + 8, 8); /* {id, lost} */
		err = 0;
		break;
	default:
		err = -ENOENT;
	}
	/* A process outside our pid namespace has no number here, or the kernel's "none" (-1). */
	if (!err && ev.type != TASK_CODE && ev.type != TASK_LOST && (!ev.pid || ev.pid == ~0u))
		err = -ENOENT;
	if (!err)
		*ret = ev;
	return err;
}

const struct task_event *sideband_next(struct sideband *s, u64 before_ns)
{
	while (s->next < s->npending) {
		struct pending *p = &s->pending[s->next];
		int err;

		if (p->time_ns >= MIN(before_ns, s->until_ns))
			return NULL;
		s->next++;
		memcpy(s->record, s->bytes + p->offset, p->len);
		err = sideband_parse(s->record, p->len, &s->event);
		if (!err)
			return &s->event;
		if (err != -ENOENT)
			stat_inc(STAT_sideband_bad);
	}
	return NULL;
}
