// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See perfmap.h. Entries lie in the order of the file; for look-ups they are
 * flattened into ranges that do not overlap, by a sweep over their bounds with the newest entry
 * that is open on top of a heap.
 */
#include "perfmap.h"

#include "demangle.h"
#include "htab.h"
#include "process.h"
#include "reader.h"
#include "rootfile.h"
#include "stat.h"
#include "strtab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_BYTES      (1u << 20) /* read at a time */
#define ROUND_CHUNKS     4
#define REREAD_NS        NSEC_PER_SEC
#define OLDER_NS         (2 * NSEC_PER_SEC) /* clocks step, and file systems round */
#define FORGET_NS        (120 * NSEC_PER_SEC)
#define PAUSE_MAX_NS     (64 * NSEC_PER_SEC)
#define PROCESSES_CAP    4096
#define ENTRIES_A_SECOND 20000 /* a map of so many is read a second less often */

struct entry {
	u64 lo, hi;
	u32 name;
};

struct range {
	u64 lo, hi;
	u32 name;
};

struct perfmap {
	struct strtab names;
	struct entry *entries;
	u32 nentries, entries_cap;
	struct range *ranges;
	u32 nranges, ranges_cap;
	u32 flattened; /* entries that the ranges know */
	u64 bad;
	char line[PERFMAP_LINE_MAX];
	u32 line_len;
	bool skip; /* the line under way is too long */
};

struct perfmap *perfmap_new(size_t max_text)
{
	struct perfmap *m = calloc(1, sizeof(*m));

	if (m)
		m->names.max_bytes = max_text;
	return m;
}

void perfmap_free(struct perfmap *m)
{
	if (!m)
		return;
	strtab_fini(&m->names);
	free(m->entries);
	free(m->ranges);
	free(m);
}

/* A hex number at *s, up to `end`; false when there is none or it does not fit 64 bits. */
static bool parse_hex(const char **s, const char *end, u64 *ret)
{
	const char *p = *s;
	u32 digits = 0;
	u64 v = 0;

	if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
		p += 2;
	for (; p < end; p++, digits++) {
		u32 c = (u8)*p, d;

		if (c >= '0' && c <= '9')
			d = c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			d = (c | 0x20) - 'a' + 10;
		else
			break;
		if (v >> 60)
			return false;
		v = v << 4 | d;
	}
	*s = p;
	*ret = v;
	return digits > 0;
}

static int take_line(struct perfmap *m, const char *s, size_t len)
{
	const char *end = s + len;
	char name[PERFMAP_NAME_MAX + 1];
	struct entry e;
	u64 size;
	int err;

	while (len && (end[-1] == '\r' || end[-1] == ' '))
		end--, len--;
	if (!len)
		return 0;
	if (!parse_hex(&s, end, &e.lo) || s >= end || *s++ != ' ' || !parse_hex(&s, end, &size) ||
	    s >= end || *s++ != ' ' || s >= end || !size ||
	    __builtin_add_overflow(e.lo, size, &e.hi)) {
		m->bad++;
		return 0;
	}
	utf8_clean(name, sizeof(name), s, (size_t)(end - s));
	demangle_hidden(name);
	err = VEC_RESERVE(m->entries, m->entries_cap, m->nentries + 1, PERFMAP_ENTRIES_MAX);
	if (!err)
		err = strtab_add(&m->names, name, strlen(name), &e.name);
	if (err)
		return err;
	m->entries[m->nentries++] = e;
	return 0;
}

int perfmap_feed(struct perfmap *m, const char *data, size_t len)
{
	const char *end = data + len;
	int err;

	while (data < end) {
		const char *nl = memchr(data, '\n', (size_t)(end - data));
		size_t n = (size_t)((nl ? nl : end) - data);

		if (!m->skip && m->line_len + n > sizeof(m->line)) {
			m->skip = true;
			m->bad++;
		}
		if (!m->skip) {
			memcpy(m->line + m->line_len, data, n);
			m->line_len += (u32)n;
		}
		if (!nl)
			return 0;
		if (!m->skip) {
			err = take_line(m, m->line, m->line_len);
			if (err)
				return err;
		}
		m->line_len = 0;
		m->skip = false;
		data = nl + 1;
	}
	return 0;
}

/* --- flattening ----------------------------------------------------------------------------- */

struct heap {
	u32 *index; /* entries; the newest, that is the largest number, on top */
	u32 n;
};

static void heap_push(struct heap *h, u32 v)
{
	u32 i = h->n++;

	while (i && h->index[(i - 1) / 2] < v) {
		h->index[i] = h->index[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->index[i] = v;
}

static void heap_pop(struct heap *h)
{
	u32 v = h->index[--h->n], i = 0, child;

	while ((child = 2 * i + 1) < h->n) {
		if (child + 1 < h->n && h->index[child + 1] > h->index[child])
			child++;
		if (h->index[child] <= v)
			break;
		h->index[i] = h->index[child];
		i = child;
	}
	h->index[i] = v;
}

static int by_start(const void *a, const void *b, void *arg)
{
	const struct entry *e = arg, *x = &e[*(const u32 *)a], *y = &e[*(const u32 *)b];

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static int add_range(struct perfmap *m, u64 lo, u64 hi, u32 name)
{
	struct range *last = m->nranges ? &m->ranges[m->nranges - 1] : NULL;

	if (lo >= hi)
		return 0;
	if (last && last->hi == lo && last->name == name) {
		last->hi = hi;
		return 0;
	}
	/* Each entry begins at most one range and ends at most one other. */
	if (VEC_RESERVE(m->ranges, m->ranges_cap, m->nranges + 1, 2 * PERFMAP_ENTRIES_MAX))
		return -ENOMEM;
	m->ranges[m->nranges++] = (struct range){ lo, hi, name };
	return 0;
}

static int sweep(struct perfmap *m, const u32 *order, struct heap *h)
{
	u32 i = 0;
	u64 at = 0;
	int err;

	while (i < m->nentries || h->n) {
		const struct entry *top = h->n ? &m->entries[h->index[0]] : NULL;
		u64 next = i < m->nentries ? m->entries[order[i]].lo : UINT64_MAX;

		if (top && top->hi <= at) { /* ended below a newer one */
			heap_pop(h);
		} else if (top && top->hi <= next) {
			err = add_range(m, at, top->hi, top->name);
			if (err)
				return err;
			at = top->hi;
			heap_pop(h);
		} else {
			err = top ? add_range(m, at, next, top->name) : 0;
			if (err)
				return err;
			at = next;
			heap_push(h, order[i++]);
		}
	}
	return 0;
}

static int flatten(struct perfmap *m)
{
	_cleanup_free_ u32 *order = malloc(((size_t)m->nentries + 1) * sizeof(*order));
	_cleanup_free_ u32 *heap = malloc(((size_t)m->nentries + 1) * sizeof(*heap));
	struct heap h = { heap, 0 };
	u32 i;

	if (!order || !heap)
		return -ENOMEM;
	for (i = 0; i < m->nentries; i++)
		order[i] = i;
	qsort_r(order, m->nentries, sizeof(*order), by_start, m->entries);
	m->nranges = 0;
	if (sweep(m, order, &h)) {
		m->nranges = 0;
		return -ENOMEM;
	}
	m->flattened = m->nentries;
	return 0;
}

const char *perfmap_lookup(struct perfmap *m, u64 addr)
{
	u32 lo = 0, hi;

	if (m->flattened != m->nentries && flatten(m)) {
		stat_inc(STAT_no_memory);
		return NULL;
	}
	hi = m->nranges;
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (m->ranges[mid].hi <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == m->nranges || addr < m->ranges[lo].lo)
		return NULL;
	return m->names.entries[m->ranges[lo].name].s;
}

size_t perfmap_bytes(const struct perfmap *m)
{
	return sizeof(*m) + m->names.bytes + (size_t)m->entries_cap * sizeof(*m->entries) +
	       (size_t)m->ranges_cap * sizeof(*m->ranges);
}

u32 perfmap_entries(const struct perfmap *m)
{
	return m->nentries;
}

u64 perfmap_bad_lines(const struct perfmap *m)
{
	return m->bad;
}

/* --- opening -------------------------------------------------------------------------------- */

/* Uids (real, effective, saved, file system) and the innermost pid, from /proc/PID/status. */
static int read_status(const char *proc_root, u32 pid, uid_t uids[4], u32 *ret_nspid)
{
	_cleanup_free_ char *text = NULL;
	char path[4096];
	const char *s;
	u32 v;
	int err, n;

	snprintf(path, sizeof(path), "%s/%u/status", proc_root, pid);
	err = read_file(path, 65536, &text, NULL);
	if (err)
		return err;
	s = strstr(text, "\nUid:");
	if (!s || sscanf(s + 5, "%u %u %u %u", &uids[0], &uids[1], &uids[2], &uids[3]) != 4)
		return -EINVAL;
	*ret_nspid = pid;
	s = strstr(text, "\nNSpid:");
	for (s = s ? s + 7 : ""; sscanf(s, " %u%n", &v, &n) == 1 && *s != '\n'; s += n)
		*ret_nspid = v;
	return 0;
}

static int trusted(const struct stat *st, const uid_t uids[4])
{
	u32 i;

	if (!S_ISREG(st->st_mode) || st->st_nlink != 1 || st->st_mode & (S_IWGRP | S_IWOTH))
		return -EPERM;
	if (!st->st_uid)
		return 0;
	for (i = 0; i < 4; i++)
		if (st->st_uid == uids[i])
			return 0;
	return -EPERM;
}

int perfmap_open(const char *proc_root, u32 pid)
{
	_cleanup_close_ int root = -1, at = -1;
	char path[4096], name[64];
	uid_t uids[4];
	struct stat st;
	u32 nspid;
	int err = read_status(proc_root, pid, uids, &nspid);

	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/%u/root", proc_root, pid);
	root = open(path, O_PATH | O_CLOEXEC);
	if (root < 0)
		return -errno;
	snprintf(name, sizeof(name), "tmp/perf-%u.map", nspid);
	at = rootfile_at(root, name, false);
	if (at < 0)
		return at;
	if (fstat(at, &st))
		return -errno;
	err = trusted(&st, uids);
	return err ? err : rootfile_open(at, &st);
}

/* --- of all processes ----------------------------------------------------------------------- */

/* What is known of a process. Slots stay where they are: their number is in the id. */
struct one {
	u64 start_ns;
	u32 pid, exec_id;
	u32 turn; /* of the slot: in the id, too, so that an old id finds nobody */
	bool used;
	struct perfmap *map;
	u64 offset;
	u64 asked_ns, next_ns; /* last asked about; not read again before */
	u64 pause_ns;          /* 0, or how long to wait for a map that is not there */
	bool wanted;           /* an address without a name was asked for since the last read */
	bool refused;          /* never looked at again */
};

struct perfmaps {
	struct reader *reader;
	const char *proc_root;
	struct one *all;
	u32 n, cap, next, held;
	struct htab by_process;
	u64 now_ns;
};

struct perfmaps *perfmaps_new(struct reader *reader, const char *proc_root)
{
	struct perfmaps *pm = calloc(1, sizeof(*pm));

	if (!pm)
		return NULL;
	pm->reader = reader;
	pm->proc_root = proc_root;
	pm->now_ns = now_monotonic();
	return pm;
}

void perfmaps_free(struct perfmaps *pm)
{
	u32 i;

	if (!pm)
		return;
	for (i = 0; i < pm->n; i++)
		perfmap_free(pm->all[i].map);
	htab_fini(&pm->by_process);
	free(pm->all);
	free(pm);
}

static u64 one_hash(u32 pid, u32 exec_id, u64 start_ns)
{
	return hash_mix(hash_mix(0x706d6170, (u64)pid << 32 | exec_id), start_ns);
}

/* A slot that nobody uses; NULL: all are used, or no memory. */
static struct one *free_slot(struct perfmaps *pm)
{
	u32 i;

	/* Rare: once per process. */
	for (i = 0; i < pm->n && pm->held < pm->n; i++)
		if (!pm->all[i].used)
			return &pm->all[i];
	if (VEC_RESERVE(pm->all, pm->cap, pm->n + 1, PROCESSES_CAP))
		return NULL;
	pm->all[pm->n] = (struct one){ 0 };
	return &pm->all[pm->n++];
}

static struct one *find(struct perfmaps *pm, const struct process *p)
{
	u64 hash = one_hash(p->pid, p->exec_id, p->start_ns);
	struct one *o;
	u32 pos, i;

	for (pos = htab_start(&pm->by_process, hash); htab_next(&pm->by_process, hash, &pos, &i);) {
		o = &pm->all[i];
		if (o->pid == p->pid && o->start_ns == p->start_ns && o->exec_id == p->exec_id)
			return o;
	}
	o = free_slot(pm);
	if (!o || htab_insert(&pm->by_process, hash, (u32)(o - pm->all)))
		return NULL;
	*o = (struct one){ .start_ns = p->start_ns,
			   .pid = p->pid,
			   .exec_id = p->exec_id,
			   .turn = o->turn + 1,
			   .used = true };
	pm->held++;
	return o;
}

static void forget(struct perfmaps *pm, struct one *o)
{
	htab_remove(&pm->by_process, one_hash(o->pid, o->exec_id, o->start_ns), (u32)(o - pm->all));
	perfmap_free(o->map);
	o->map = NULL;
	o->used = false;
	pm->held--;
}

static struct one *by_id(const struct perfmaps *pm, u64 id)
{
	u32 i = (u32)id;
	struct one *o = i < pm->n ? &pm->all[i] : NULL;

	return o && o->used && o->turn == id >> 32 ? o : NULL;
}

static const char *look_up(struct perfmaps *pm, struct one *o, u64 addr)
{
	const char *name;

	o->asked_ns = pm->now_ns;
	name = o->map ? perfmap_lookup(o->map, addr) : NULL;
	o->wanted |= !name;
	return name;
}

const char *perfmaps_lookup(struct perfmaps *pm, const struct process *p, u64 addr, u64 *ret_id)
{
	struct one *o = find(pm, p);

	*ret_id = o ? (u64)o->turn << 32 | (u32)(o - pm->all) : 0;
	return o ? look_up(pm, o, addr) : NULL;
}

const char *perfmaps_find(struct perfmaps *pm, u64 id, u64 addr)
{
	struct one *o = by_id(pm, id);

	return o ? look_up(pm, o, addr) : NULL;
}

void perfmaps_hurry(struct perfmaps *pm, u64 id)
{
	struct one *o = by_id(pm, id);

	/* One that was not there is not looked for again by every window. */
	if (o && !o->pause_ns)
		o->next_ns = 0;
}

static bool is_due(const struct perfmaps *pm, const struct one *o)
{
	return o->used && o->wanted && !o->refused && pm->now_ns >= o->next_ns;
}

bool perfmaps_behind(const struct perfmaps *pm, u64 id)
{
	const struct one *o = by_id(pm, id);

	return o && is_due(pm, o);
}

/* What the reader's thread works on; lives on alone when it hangs. */
struct job {
	char *proc_root;
	u32 pid;
	u64 start_ns; /* of the process, CLOCK_BOOTTIME */
	u64 offset;
	ssize_t got;
	char data[CHUNK_BYTES];
};

/* Left behind by another process that had this pid. */
static bool is_older(const struct stat *st, u64 start_ns)
{
	u64 age = now_boottime() - start_ns, start = now_realtime() - age;
	u64 written = (u64)st->st_mtim.tv_sec * NSEC_PER_SEC + (u64)st->st_mtim.tv_nsec;

	return start_ns && written + OLDER_NS < start;
}

static int job_run(void *arg)
{
	struct job *j = arg;
	_cleanup_close_ int fd = perfmap_open(j->proc_root, j->pid);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		return -errno;
	/* Truncated and begun anew: its names are of another life. */
	if ((u64)st.st_size < j->offset)
		return -ESTALE;
	if (is_older(&st, j->start_ns))
		return -ENOENT;
	j->got = pread(fd, j->data, sizeof(j->data), (off_t)j->offset);
	return j->got < 0 ? -errno : 0;
}

static void job_drop(void *arg)
{
	struct job *j = arg;

	free(j->proc_root);
	free(j);
}

u32 perfmaps_count(const struct perfmaps *pm)
{
	return pm->held;
}

size_t perfmaps_bytes(const struct perfmaps *pm)
{
	size_t used = 0;
	u32 i;

	for (i = 0; i < pm->n; i++)
		used += pm->all[i].map ? perfmap_bytes(pm->all[i].map) : 0;
	return used;
}

/* Names of whoever was not asked about for longest make room. False: there is no other. */
static bool make_room(struct perfmaps *pm, const struct one *but)
{
	struct one *oldest = NULL;
	u32 i;

	for (i = 0; i < pm->n; i++) {
		struct one *o = &pm->all[i];

		if (o != but && o->map && (!oldest || o->asked_ns < oldest->asked_ns))
			oldest = o;
	}
	if (oldest)
		forget(pm, oldest);
	return oldest != NULL;
}

/* Takes what was read. 0, -ENOMEM, -E2BIG: it has as much as it may have. */
static int feed(struct perfmaps *pm, struct one *o, const struct job *j)
{
	int err;

	if (!o->map)
		o->map = perfmap_new(PERFMAPS_TEXT_MAX);
	if (!o->map)
		return -ENOMEM;
	o->offset += (u64)j->got;
	err = perfmap_feed(o->map, j->data, (size_t)j->got);
	/* As many turns as processes are held. */
	while (perfmaps_bytes(pm) > PERFMAPS_BYTES_MAX)
		if (!make_room(pm, o))
			return -E2BIG;
	return err;
}

static void set_next(struct perfmaps *pm, struct one *o, int err)
{
	o->wanted = false;
	switch (err) {
	case 0:
		/* Sorting it in again costs as much as it is large. */
		o->pause_ns = 0;
		o->next_ns =
			pm->now_ns + REREAD_NS +
			(o->map ? perfmap_entries(o->map) / ENTRIES_A_SECOND : 0) * NSEC_PER_SEC;
		return;
	case -ESTALE:
		perfmap_free(o->map);
		o->map = NULL;
		o->offset = 0;
		o->wanted = true;
		return;
	case -ENOMEM:
		stat_inc(STAT_no_memory);
		return;
	case -ENOENT:
	case -ESRCH:
		o->pause_ns = MIN(MAX(o->pause_ns * 2, REREAD_NS), PAUSE_MAX_NS);
		o->next_ns = pm->now_ns + o->pause_ns;
		return;
	default:
		stat_inc(STAT_perfmap_refused);
		o->refused = true;
	}
}

/* The next piece of one file. True when there may be more of it. */
static bool read_piece(struct perfmaps *pm, struct one *o)
{
	struct job *j = malloc(sizeof(*j));
	int err = -ENOMEM;
	bool more = false;

	if (j)
		j->proc_root = strdup(pm->proc_root);
	if (j && j->proc_root) {
		j->pid = o->pid;
		j->start_ns = o->start_ns;
		j->offset = o->offset;
		err = reader_call(pm->reader, job_run, j, job_drop, READER_WAIT_NS);
		if (err == -ETIMEDOUT)
			j = NULL; /* the reader's now */
	}
	if (!err) {
		err = feed(pm, o, j);
		more = !err && j->got == (ssize_t)sizeof(j->data) && o->offset < PERFMAP_BYTES_MAX;
	}
	if (j)
		job_drop(j);
	if (!more)
		set_next(pm, o, err);
	return more;
}

void perfmaps_round(struct perfmaps *pm, u64 now_ns)
{
	u32 i, chunks = ROUND_CHUNKS;

	pm->now_ns = now_ns;
	for (i = 0; i < pm->n; i++)
		if (pm->all[i].used && now_ns - pm->all[i].asked_ns > FORGET_NS)
			forget(pm, &pm->all[i]);
	for (i = 0; i < pm->n && chunks; i++) {
		struct one *o = &pm->all[(pm->next + i) % pm->n];

		while (chunks && is_due(pm, o)) {
			chunks--;
			read_piece(pm, o);
		}
	}
	if (pm->n)
		pm->next = (pm->next + 1) % pm->n;
}
