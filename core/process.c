// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See process.h. Images of one pid are told apart by what samples carry; mappings
 * are shared between a process and its children until one of them changes (copy on write).
 */
#include "process.h"

#include "htab.h"
#include "log.h"
#include "maps.h"
#include "stat.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define SNAPSHOT_PAUSE_NS (5 * NSEC_PER_SEC)
#define REREAD_PAUSE_NS   (3 * NSEC_PER_SEC) /* the longest list takes 0.1 s to read */
#define MAPS_FILE_MAX     (64u << 20)
#define CMDLINE_MAX       4096
#define FILES_MAX         (1u << 20)
#define INSERT_ONE_BY_ONE 64
#define OVERLAP_REBUILD   4096

/* A file as mappings name it; one per distinct name, shared by all processes. */
struct file {
	u32 refs;
	u64 hash;
	u32 slot;
	char *path;
	u8 build_id[BUILD_ID_MAX];
	u8 build_id_len;
	u32 major, minor;
	u64 ino;
	struct module *module; /* a reference, taken when a frame first lies in the file */
	bool image;            /* false: memory that is no file (anonymous, memfd, ...) */
};

struct mapping {
	u64 lo, hi, offset;
	struct file *file;
};

/* Sorted by address and free of overlaps up to nsorted; newer ones wait behind it. */
struct process_maps {
	u32 refs;
	u32 n, nsorted, cap;
	struct mapping *v;
};

struct processes {
	struct modules *modules;
	char *root;
	bool with_cmdline;
	u64 tick_ns;
	struct process **v;
	u32 n, cap;
	struct htab by_pid;
	struct file **files;
	u32 nfiles, files_cap;
	struct htab by_file;
	struct {
		void (*fn)(void *arg, struct process *p);
		void *arg;
	} on_drop[PROCESS_DROP_MAX];
	bool snapshot_wanted;
	u64 snapshot_ns;
	u64 trimmed_ns;
};

static u64 pid_hash(u32 pid)
{
	return hash_mix(0x70726f63, pid);
}

/* --- files ------------------------------------------------------------------------------------ */

static bool is_image(const char *path)
{
	static const char *const memory[] = { "//anon", "[heap]",     "[stack",
					      "[anon",  "/memfd:",    "/dev/",
					      "/SYSV",  "[vsyscall]", "anon_inode:" };
	size_t i;

	if (!*path)
		return false;
	for (i = 0; i < ARRAY_SIZE(memory); i++)
		if (!strncmp(path, memory[i], strlen(memory[i])))
			return false;
	return *path == '/' || !strcmp(path, MODULE_VDSO);
}

static bool is_memfd(const char *path)
{
	return !strncmp(path, "/memfd:", 7);
}

static u64 file_hash(const struct mapped_file *f)
{
	u64 h = hash_bytes(f->path, strlen(f->path));

	h = hash_mix(h, f->ino);
	h = hash_mix(h, (u64)f->major << 32 | f->minor);
	return hash_mix(h, hash_bytes(f->build_id, f->build_id_len));
}

static bool file_equal(const struct file *a, const struct mapped_file *b)
{
	return a->ino == b->ino && a->major == b->major && a->minor == b->minor &&
	       a->build_id_len == b->build_id_len &&
	       !memcmp(a->build_id, b->build_id, b->build_id_len) && !strcmp(a->path, b->path);
}

static void file_free(struct file *f)
{
	module_put(f->module);
	free(f->path);
	free(f);
}

static void file_put(struct processes *ps, struct file *f)
{
	struct file *last;

	if (--f->refs)
		return;
	htab_remove(&ps->by_file, f->hash, f->slot);
	last = ps->files[--ps->nfiles];
	if (last != f) {
		htab_remove(&ps->by_file, last->hash, last->slot);
		last->slot = f->slot;
		ps->files[last->slot] = last;
		/* Removed above, so there is room. */
		htab_insert(&ps->by_file, last->hash, last->slot);
	}
	file_free(f);
}

/* A new reference to the file of this name; NULL when out of memory or over FILES_MAX. */
static struct file *file_get(struct processes *ps, const struct mapped_file *name)
{
	u64 hash = file_hash(name);
	struct file *f;
	u32 pos, i;

	for (pos = htab_start(&ps->by_file, hash); htab_next(&ps->by_file, hash, &pos, &i);) {
		if (file_equal(ps->files[i], name)) {
			ps->files[i]->refs++;
			return ps->files[i];
		}
	}
	if (VEC_RESERVE(ps->files, ps->files_cap, ps->nfiles + 1, FILES_MAX))
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->path = strdup(name->path);
	f->refs = 1;
	f->hash = hash;
	f->slot = ps->nfiles;
	memcpy(f->build_id, name->build_id, name->build_id_len);
	f->build_id_len = name->build_id_len;
	f->major = name->major;
	f->minor = name->minor;
	f->ino = name->ino;
	f->image = is_image(name->path);
	if (!f->path || htab_insert(&ps->by_file, hash, f->slot)) {
		file_free(f);
		return NULL;
	}
	ps->files[ps->nfiles++] = f;
	return f;
}

/* --- mappings --------------------------------------------------------------------------------- */

static void maps_put(struct processes *ps, struct process_maps *m)
{
	u32 i;

	if (!m || --m->refs)
		return;
	for (i = 0; i < m->n; i++)
		file_put(ps, m->v[i].file);
	free(m->v);
	free(m);
}

static struct process_maps *maps_new(void)
{
	struct process_maps *m = calloc(1, sizeof(*m));

	if (m)
		m->refs = 1;
	return m;
}

/* The process's own mappings, not shared; NULL when out of memory. */
static struct process_maps *maps_own(struct processes *ps, struct process *p)
{
	struct process_maps *old = p->maps, *m;
	u32 i;

	if (old && old->refs == 1)
		return old;
	m = maps_new();
	if (!m)
		return NULL;
	if (old && old->n) {
		m->v = malloc(old->n * sizeof(*m->v));
		if (!m->v) {
			free(m);
			return NULL;
		}
		memcpy(m->v, old->v, old->n * sizeof(*m->v));
		m->n = m->cap = old->n;
		m->nsorted = old->nsorted;
		for (i = 0; i < m->n; i++)
			m->v[i].file->refs++;
	}
	maps_put(ps, old);
	p->maps = m;
	return m;
}

/* First sorted mapping whose end lies above addr. */
static u32 maps_above(const struct process_maps *m, u64 addr)
{
	u32 lo = 0, hi = m->nsorted;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (m->v[mid].hi > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/*
 * Puts the mapping behind the sorted ones at its place. What it covers goes: the kernel would not
 * have placed it there otherwise. A mapping that it splits keeps both its ends.
 */
static int maps_place(struct processes *ps, struct process_maps *m, struct mapping new)
{
	u32 at = maps_above(m, new.lo), i, end = at;
	struct mapping left = { 0 }, right = { 0 }, put[3];
	u32 nput = 0, gone;

	for (; end < m->nsorted && m->v[end].lo < new.hi; end++) {
		struct mapping *old = &m->v[end];

		if (old->lo < new.lo) {
			left = *old;
			left.hi = new.lo;
		}
		if (old->hi > new.hi) {
			right = *old;
			right.lo = new.hi;
			right.offset += new.hi - old->lo;
		}
	}
	gone = end - at;
	if (left.file) {
		left.file->refs++;
		put[nput++] = left;
	}
	put[nput++] = new;
	if (right.file) {
		right.file->refs++;
		put[nput++] = right;
	}
	if (VEC_RESERVE(m->v, m->cap, m->n + 2, PROCESS_MAPPINGS_MAX * 2)) {
		for (i = 0; i < nput; i++)
			file_put(ps, put[i].file);
		return -ENOMEM;
	}
	for (i = at; i < end; i++)
		file_put(ps, m->v[i].file);
	memmove(&m->v[at + nput], &m->v[end], (m->n - end) * sizeof(*m->v));
	memcpy(&m->v[at], put, nput * sizeof(*put));
	m->n += nput - gone;
	m->nsorted += nput - gone;
	return 0;
}

static int by_lo(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static bool maps_overlap(const struct process_maps *m)
{
	u32 i;

	for (i = 1; i < m->n; i++)
		if (m->v[i].lo < m->v[i - 1].hi)
			return true;
	return false;
}

/* Each in turn from the tail; what finds no memory is dropped and counted. */
static void maps_place_tail(struct processes *ps, struct process_maps *m)
{
	u32 left = m->n - m->nsorted;

	while (left--) {
		struct mapping new = m->v[m->nsorted];

		memmove(&m->v[m->nsorted], &m->v[m->nsorted + 1],
			(m->n - m->nsorted - 1) * sizeof(*m->v));
		m->n--;
		if (maps_place(ps, m, new))
			stat_inc(STAT_mapping_refused);
	}
}

/* Makes all mappings findable. Many new ones at once are sorted rather than placed one by one. */
static void maps_settle(struct processes *ps, struct process_maps *m)
{
	_cleanup_free_ struct mapping *saved = NULL;
	u32 fresh = m->n - m->nsorted;

	if (!fresh)
		return;
	if (fresh > INSERT_ONE_BY_ONE) {
		saved = malloc(m->n * sizeof(*saved));
		if (saved) {
			memcpy(saved, m->v, m->n * sizeof(*saved));
			qsort(m->v, m->n, sizeof(*m->v), by_lo);
			if (!maps_overlap(m)) {
				m->nsorted = m->n;
				return;
			}
			memcpy(m->v, saved, m->n * sizeof(*saved));
			if (fresh > OVERLAP_REBUILD) {
				/* A churn that no sample can follow: the newest view is what counts. */
				u32 drop = fresh - OVERLAP_REBUILD, i;

				for (i = 0; i < drop; i++)
					file_put(ps, m->v[m->nsorted + i].file);
				memmove(&m->v[m->nsorted], &m->v[m->nsorted + drop],
					(fresh - drop) * sizeof(*m->v));
				m->n -= drop;
				stat_add(STAT_mapping_refused, drop);
			}
		}
	}
	maps_place_tail(ps, m);
}

static void maps_add(struct processes *ps, struct process *p, const struct mapped_file *name,
		     u64 offset)
{
	struct process_maps *m = maps_own(ps, p);
	struct mapping new = { .lo = name->lo, .hi = name->hi, .offset = offset };

	if (m && m->n >= PROCESS_MAPPINGS_MAX)
		maps_settle(ps, m);
	if (!m || m->n >= PROCESS_MAPPINGS_MAX ||
	    VEC_RESERVE(m->v, m->cap, m->n + 1, PROCESS_MAPPINGS_MAX * 2)) {
		stat_inc(STAT_mapping_refused);
		return;
	}
	new.file = file_get(ps, name);
	/* A memfd that was executed is a program; others hold code made at run time. */
	if (new.file && p->exe &&is_memfd(name->path) && !strcmp(name->path, p->exe))
		new.file->image = true;
	if (!new.file) {
		stat_inc(STAT_no_memory);
		return;
	}
	m->v[m->n++] = new;
	p->maps_version++;
}

/* --- /proc ------------------------------------------------------------------------------------ */

/* seq_file escapes newline (and, in mangled paths, others) as \ooo. */
static size_t unescape(char *dst, size_t dst_size, const char *src, size_t len)
{
	size_t in = 0, out = 0;

	while (in < len && out + 1 < dst_size) {
		if (src[in] == '\\' && in + 3 < len && src[in + 1] >= '0' && src[in + 1] <= '3' &&
		    src[in + 2] >= '0' && src[in + 2] <= '7' && src[in + 3] >= '0' &&
		    src[in + 3] <= '7') {
			dst[out++] = (char)((src[in + 1] - '0') << 6 | (src[in + 2] - '0') << 3 |
					    (src[in + 3] - '0'));
			in += 4;
		} else {
			dst[out++] = src[in++];
		}
	}
	dst[out] = '\0';
	return in == len ? out : SIZE_MAX;
}

static void strip_deleted(char *path, size_t len)
{
	static const char deleted[] = " (deleted)";
	size_t n = sizeof(deleted) - 1;

	if (len > n && !memcmp(path + len - n, deleted, n))
		path[len - n] = '\0';
}

int process_parse_maps_line(const char *line, size_t len, struct mapped_file *ret, u64 *ret_offset,
			    char *buf, size_t buf_size)
{
	struct maps_line m;
	size_t n;

	if (!maps_parse(line, len, &m))
		return -EINVAL;
	if (!m.exec)
		return -ENOENT;
	n = unescape(buf, buf_size, m.path, m.path_len);
	if (n == SIZE_MAX)
		return -EINVAL;
	strip_deleted(buf, n);
	*ret = (struct mapped_file){
		.path = *buf ? buf : "//anon",
		.major = m.major,
		.minor = m.minor,
		.ino = m.ino,
		.lo = m.lo,
		.hi = m.hi,
	};
	*ret_offset = m.offset;
	return 0;
}

static int proc_read(struct processes *ps, u32 pid, const char *name, size_t max, char **ret,
		     size_t *ret_len)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%u/%s", ps->root, pid, name);
	return read_file(path, max, ret, ret_len);
}

static void count_access(int err)
{
	if (err == -EACCES || err == -EPERM)
		stat_inc(STAT_no_access);
}

static int read_maps(struct processes *ps, struct process *p)
{
	_cleanup_free_ char *text = NULL;
	struct process_maps *fresh;
	char buf[PATH_MAX + 16];
	const char *line, *end;
	u64 before = now_monotonic();
	size_t len;
	int err = proc_read(ps, p->pid, "maps", MAPS_FILE_MAX, &text, &len);

	if (err) {
		count_access(err);
		return err;
	}
	fresh = maps_new();
	if (!fresh)
		return -ENOMEM;
	maps_put(ps, p->maps);
	p->maps = fresh;
	p->maps_read_ns = before;
	p->maps_version++;
	for (line = text; line < text + len; line = end + 1) {
		struct mapped_file file;
		u64 offset;

		end = memchr(line, '\n', (size_t)(text + len - line));
		if (!end)
			end = text + len;
		err = process_parse_maps_line(line, (size_t)(end - line), &file, &offset, buf,
					      sizeof(buf));
		if (err == -EINVAL)
			stat_inc(STAT_maps_line_bad);
		if (!err)
			maps_add(ps, p, &file, offset);
	}
	return 0;
}

/* comm may hold anything, also ')': fields begin behind the last one. Field 22 is the start. */
static int read_stat(struct processes *ps, u32 pid, char comm[COMM_LEN], u32 *ppid, u64 *start)
{
	_cleanup_free_ char *text = NULL;
	const char *open, *close, *p;
	unsigned long long value;
	int err = proc_read(ps, pid, "stat", 4096, &text, NULL), field;
	size_t n;

	if (err)
		return err;
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open)
		return -EINVAL;
	n = MIN((size_t)(close - open - 1), (size_t)COMM_LEN - 1);
	memcpy(comm, open + 1, n);
	comm[n] = '\0';
	p = close + 1;
	if (sscanf(p, " %*c %u", ppid) != 1)
		return -EINVAL;
	for (field = 3; field < 22 && p; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %llu", &value) != 1)
		return -EINVAL;
	*start = value;
	return 0;
}

static char *read_exe(struct processes *ps, u32 pid)
{
	char path[PATH_MAX], target[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%u/exe", ps->root, pid);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0) {
		count_access(-errno);
		return NULL;
	}
	target[n] = '\0';
	strip_deleted(target, (size_t)n);
	return strdup(target);
}

/* Fills an image from /proc. -ENOENT / -ESRCH when it is gone. */
static int read_process(struct processes *ps, struct process *p)
{
	u64 before = now_monotonic();
	int err = read_stat(ps, p->pid, p->comm, &p->ppid, &p->start_ticks);

	if (err)
		return err;
	p->read_ns = before;
	free(p->exe);
	p->exe = read_exe(ps, p->pid);
	read_maps(ps, p); /* kernel threads have none; no access is counted there */
	return 0;
}

/* --- images ----------------------------------------------------------------------------------- */

static void image_free(struct processes *ps, struct process *p)
{
	u32 i;

	for (i = 0; i < PROCESS_DROP_MAX; i++)
		if (ps->on_drop[i].fn)
			ps->on_drop[i].fn(ps->on_drop[i].arg, p);
	maps_put(ps, p->maps);
	free(p->exe);
	free(p->cmdline);
	free(p);
}

/* Images of a pid, newest last in no particular order of the walk. */
static bool next_image(struct processes *ps, u32 pid, u32 *pos, struct process **ret)
{
	u32 i;

	while (htab_next(&ps->by_pid, pid_hash(pid), pos, &i)) {
		if (ps->v[i]->pid == pid) {
			*ret = ps->v[i];
			return true;
		}
	}
	return false;
}

/* The image that runs under a pid now: the youngest. */
static struct process *current_image(struct processes *ps, u32 pid)
{
	u32 pos = htab_start(&ps->by_pid, pid_hash(pid));
	struct process *p, *best = NULL;

	while (next_image(ps, pid, &pos, &p))
		if (!best || MAX(p->born_ns, p->read_ns) > MAX(best->born_ns, best->read_ns))
			best = p;
	return best;
}

static struct process *image_new(struct processes *ps, u32 pid)
{
	struct process *p;

	if (VEC_RESERVE(ps->v, ps->cap, ps->n + 1, PROCESSES_MAX)) {
		stat_inc(STAT_process_refused);
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p || htab_insert(&ps->by_pid, pid_hash(pid), ps->n)) {
		free(p);
		stat_inc(STAT_no_memory);
		return NULL;
	}
	p->pid = pid;
	ps->v[ps->n++] = p;
	return p;
}

static void image_drop(struct processes *ps, u32 i)
{
	struct process *p = ps->v[i], *last = ps->v[--ps->n];

	htab_remove(&ps->by_pid, pid_hash(p->pid), i);
	if (last != p) {
		htab_remove(&ps->by_pid, pid_hash(last->pid), ps->n);
		ps->v[i] = last;
		htab_insert(&ps->by_pid, pid_hash(last->pid), i); /* removed above: there is room */
	}
	image_free(ps, p);
}

struct processes *processes_new(struct modules *modules, const char *proc_root, bool with_cmdline)
{
	struct processes *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return NULL;
	ps->modules = modules;
	ps->with_cmdline = with_cmdline;
	ps->tick_ns = NSEC_PER_SEC / (u64)sysconf(_SC_CLK_TCK);
	ps->root = strdup(proc_root);
	if (!ps->root) {
		free(ps);
		return NULL;
	}
	return ps;
}

void processes_free(struct processes *ps)
{
	if (!ps)
		return;
	memset(ps->on_drop, 0, sizeof(ps->on_drop));
	while (ps->n)
		image_drop(ps, ps->n - 1);
	htab_fini(&ps->by_pid);
	htab_fini(&ps->by_file);
	free(ps->v);
	free(ps->files);
	free(ps->root);
	free(ps);
}

u32 processes_count(const struct processes *ps)
{
	return ps->n;
}

struct process *processes_at(const struct processes *ps, u32 i)
{
	return i < ps->n ? ps->v[i] : NULL;
}

static void snapshot_one(struct processes *ps, u32 pid)
{
	struct process *p = current_image(ps, pid);
	struct process fresh = { .pid = pid };

	if (p && !p->exited) {
		/* After a loss: the same process, perhaps with other mappings or a new image. */
		if (read_stat(ps, pid, fresh.comm, &fresh.ppid, &fresh.start_ticks))
			return;
		if (!p->start_ticks || p->start_ticks == fresh.start_ticks) {
			read_process(ps, p);
			return;
		}
	}
	p = image_new(ps, pid);
	if (p && read_process(ps, p))
		image_drop(ps, ps->n - 1);
}

int processes_snapshot(struct processes *ps)
{
	struct dirent *d;
	DIR *dir = opendir(ps->root);

	if (!dir)
		return -errno;
	ps->snapshot_wanted = false;
	ps->snapshot_ns = now_monotonic();
	while ((d = readdir(dir))) {
		char *end;
		unsigned long pid = strtoul(d->d_name, &end, 10);

		if (isdigit((u8)d->d_name[0]) && !*end && pid && pid <= INT_MAX)
			snapshot_one(ps, (u32)pid);
	}
	closedir(dir);
	return 0;
}

static char *dup_or_null(const char *s)
{
	return s ? strdup(s) : NULL;
}

static void on_fork(struct processes *ps, const struct task_event *ev)
{
	struct process *parent = current_image(ps, ev->ppid), *p = current_image(ps, ev->pid);

	if (p && p->read_ns > ev->time_ns)
		return; /* /proc was read after it was born */
	p = image_new(ps, ev->pid);
	if (!p)
		return;
	p->ppid = ev->ppid;
	p->born_ns = ev->time_ns;
	if (!parent) {
		if (read_process(ps, p))
			snprintf(p->comm, sizeof(p->comm), "?");
		return;
	}
	memcpy(p->comm, parent->comm, sizeof(p->comm));
	p->exe = dup_or_null(parent->exe);
	p->cmdline = dup_or_null(parent->cmdline);
	p->forked = true;
	p->maps = parent->maps;
	if (p->maps)
		p->maps->refs++;
}

static void set_comm(struct process *p, const char *comm)
{
	snprintf(p->comm, sizeof(p->comm), "%s", comm);
}

static void on_exec(struct processes *ps, const struct task_event *ev)
{
	struct process *old = current_image(ps, ev->pid), *p;

	if (old && old->read_ns > ev->time_ns)
		return;
	p = image_new(ps, ev->pid);
	if (!p)
		return;
	p->born_ns = ev->time_ns;
	set_comm(p, ev->comm);
	if (!old)
		return;
	p->ppid = old->ppid;
	p->start_ticks = old->start_ticks;
	if (old->id_known) {
		p->start_ns = old->start_ns;
		p->exec_id = old->exec_id + 1;
		p->id_known = true;
	}
	/* The old image stays until its samples are in; then processes_trim() finds it replaced. */
	old->exited = true;
	old->replaced = true;
}

static void on_mmap(struct processes *ps, const struct task_event *ev)
{
	struct process *p = current_image(ps, ev->pid);
	struct mapped_file file = ev->file;
	char path[PATH_MAX + 16];

	if (!p) {
		/* No fork seen (lost, or older than us and unreadable): start with what we know. */
		p = image_new(ps, ev->pid);
		if (!p || !read_process(ps, p))
			return;
		p->born_ns = ev->time_ns;
	}
	/* The list was read after it. Also bounds the readings below: those cost up to 0.1 s. */
	if (p->read_ns > ev->time_ns || p->maps_read_ns > ev->time_ns)
		return;
	snprintf(path, sizeof(path), "%s", file.path);
	strip_deleted(path, strlen(path));
	file.path = path;
	/* The kernel maps the executable itself first, then its interpreter (fs/binfmt_elf.c). */
	if (!p->exe && *path == '/' && (is_image(path) || is_memfd(path)))
		p->exe = strdup(path);
	if (p->maps && p->maps->n >= PROCESS_MAPPINGS_MAX &&
	    ev->time_ns - p->maps_read_ns > REREAD_PAUSE_NS)
		read_maps(ps, p); /* unmapped ones are not announced; look again, after a while */
	else
		maps_add(ps, p, &file, ev->offset);
}

void processes_event(struct processes *ps, const struct task_event *ev)
{
	struct process *p;

	switch (ev->type) {
	case TASK_FORK:
		on_fork(ps, ev);
		break;
	case TASK_EXEC:
		on_exec(ps, ev);
		break;
	case TASK_COMM:
		p = current_image(ps, ev->pid);
		if (p && p->read_ns <= ev->time_ns)
			set_comm(p, ev->comm);
		break;
	case TASK_MMAP:
		on_mmap(ps, ev);
		break;
	case TASK_EXIT:
		p = current_image(ps, ev->pid);
		if (p && p->read_ns <= ev->time_ns)
			p->exited = true;
		break;
	case TASK_LOST:
		stat_add(STAT_sideband_lost, ev->n);
		ps->snapshot_wanted = true;
		break;
	case TASK_CODE:
		break; /* no process's */
	}
}

static bool may_be(const struct processes *ps, const struct process *p, const struct stack_key *key)
{
	if (p->id_known)
		return false; /* not equal, or it would have been found */
	if (p->start_ns && p->start_ns != key->start_ns)
		return false;
	return !p->start_ticks || p->start_ticks == key->start_ns / ps->tick_ns;
}

/* Nobody announced it: read it now, or keep what the sample says. */
static struct process *unannounced(struct processes *ps, const struct stack_key *key)
{
	struct process *old = current_image(ps, key->tgid), *p = image_new(ps, key->tgid);

	if (!p)
		return NULL;
	if (old)
		old->exited = old->replaced = true;
	if (read_process(ps, p) || p->start_ticks != key->start_ns / ps->tick_ns) {
		/* Gone, or the pid belongs to another by now: nothing of that may be taken. */
		stat_inc(STAT_process_unknown);
		maps_put(ps, p->maps);
		free(p->exe);
		free(p->cmdline);
		*p = (struct process){ .pid = key->tgid, .exited = true };
		snprintf(p->comm, sizeof(p->comm), "%.*s", COMM_LEN - 1, key->comm);
	}
	return p;
}

struct process *processes_find(struct processes *ps, const struct stack_key *key, u64 time_ns,
			       bool read_proc)
{
	u32 pos = htab_start(&ps->by_pid, pid_hash(key->tgid));
	struct process *p, *best = NULL;

	while (next_image(ps, key->tgid, &pos, &p)) {
		if (p->id_known && p->start_ns == key->start_ns && p->exec_id == key->exec_id)
			return p;
		if (!may_be(ps, p, key))
			continue;
		/* The latest that was born by then; else the earliest. */
		if (!best ||
		    (p->born_ns <= time_ns ? best->born_ns > time_ns || p->born_ns > best->born_ns
					   : best->born_ns > time_ns && p->born_ns < best->born_ns))
			best = p;
	}
	if (best && best->born_ns > time_ns && !read_proc)
		return NULL; /* its exec may still be announced in this round */
	if (!best && read_proc)
		best = unannounced(ps, key);
	if (best) {
		best->start_ns = key->start_ns;
		best->exec_id = key->exec_id;
		best->id_known = true;
	}
	return best;
}

struct process *processes_current(struct processes *ps, const struct stack_key *key)
{
	struct process *p = current_image(ps, key->tgid);

	return p && (!p->start_ns || p->start_ns == key->start_ns) ? p : NULL;
}

/* --- command line, threads --------------------------------------------------------------------- */

void processes_read_cmdline(struct processes *ps, struct process *p)
{
	_cleanup_free_ char *text = NULL;
	size_t len, i;

	if (!ps->with_cmdline || p->cmdline_read)
		return;
	p->cmdline_read = true;
	if (p->exited || proc_read(ps, p->pid, "cmdline", CMDLINE_MAX, &text, &len))
		return;
	while (len && !text[len - 1])
		len--;
	for (i = 0; i < len; i++)
		if (!text[i])
			text[i] = ' ';
	free(p->cmdline);
	p->cmdline = take_ptr(text);
}

struct process *processes_pid(struct processes *ps, u32 pid)
{
	return current_image(ps, pid);
}

int processes_thread(struct processes *ps, const struct process *p, u32 tid, char ret[COMM_LEN])
{
	_cleanup_free_ char *text = NULL;
	char path[PATH_MAX];
	struct stat ours, theirs;
	size_t len;
	int err;

	/* Numbers mean the same only in the same namespace. */
	snprintf(path, sizeof(path), "%s/%u/ns/pid", ps->root, p->pid);
	if (stat(path, &theirs))
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/self/ns/pid", ps->root);
	if (stat(path, &ours) || ours.st_ino != theirs.st_ino)
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/%u/task/%u/comm", ps->root, p->pid, tid);
	err = read_file(path, 64, &text, &len);
	if (err || !len)
		return -ENOENT;
	len = strcspn(text, "\n");
	memset(ret, 0, COMM_LEN);
	memcpy(ret, text, MIN(len, (size_t)COMM_LEN - 1));
	return 0;
}

/* The module of a mapping's file, asked for at the first time. */
static struct module *mapping_module(struct processes *ps, const struct process *p,
				     const struct mapping *map, bool symbols)
{
	struct file *f = map->file;
	struct mapped_file name = {
		.path = f->path,
		.build_id_len = f->build_id_len,
		.major = f->major,
		.minor = f->minor,
		.ino = f->ino,
		.pid = p->pid,
		.lo = map->lo,
		.hi = map->hi,
	};

	if (f->module || !f->image)
		return f->module;
	memcpy(name.build_id, f->build_id, f->build_id_len);
	f->module = symbols ? modules_get(ps->modules, &name)
			    : modules_get_unwind(ps->modules, &name);
	return f->module;
}

/*
 * Text that its program has moved to anonymous memory, for huge pages mostly: what lies within the
 * executable segment of the file that is mapped right before or behind it is still that file's.
 * Finds the mapping as if it had never been moved; false when it is just memory.
 */
static bool moved_text(struct processes *ps, const struct process *p, const struct process_maps *m,
		       u32 i, bool symbols, struct mapping *ret)
{
	const u64 page = (u64)sysconf(_SC_PAGESIZE);
	const struct mapping *map = &m->v[i];
	u64 size = map->hi - map->lo;
	u32 k;

	for (k = 0; k < 2; k++) {
		const struct mapping *near = k ? map + 1 : map - 1;
		const struct module_segment *seg;
		struct module *module;
		u64 offset;

		if ((k ? i + 1 == m->n : !i) || !near->file->image)
			continue;
		module = mapping_module(ps, p, near, symbols);
		offset = near->offset + (map->lo - near->lo);
		seg = module ? module_exec_segment(module, offset, offset + size) : NULL;
		if (!seg || offset + page <= seg->offset ||
		    offset + size >= seg->offset + seg->file_size + page)
			continue;
		*ret = (struct mapping){ map->lo, map->hi, offset, near->file };
		return true;
	}
	return false;
}

bool processes_mapping(struct processes *ps, struct process *p, u32 i, struct process_mapping *ret)
{
	struct process_maps *m = p->maps;
	struct mapping map;

	if (m)
		maps_settle(ps, m);
	if (!m || i >= m->n)
		return false;
	map = m->v[i];
	if (!map.file->image)
		moved_text(ps, p, m, i, false, &map);
	*ret = (struct process_mapping){
		.lo = map.lo,
		.hi = map.hi,
		.offset = map.offset,
		.image = map.file->image,
		.path = map.file->path,
		.module = mapping_module(ps, p, &map, false),
	};
	return true;
}

void processes_on_drop(struct processes *ps, void (*fn)(void *arg, struct process *p), void *arg)
{
	u32 i;

	for (i = 0; i < PROCESS_DROP_MAX && ps->on_drop[i].fn; i++)
		;
	assert(i < PROCESS_DROP_MAX);
	ps->on_drop[i].fn = fn;
	ps->on_drop[i].arg = arg;
}

void processes_off_drop(struct processes *ps, void *arg)
{
	u32 i;

	for (i = 0; i < PROCESS_DROP_MAX; i++)
		if (ps->on_drop[i].arg == arg)
			ps->on_drop[i].fn = NULL;
}

bool processes_file(const struct process *p, u32 i, u64 *ret)
{
	struct process_maps *m = p->maps;

	if (!m || i >= m->n)
		return false;
	*ret = m->v[i].file->image ? m->v[i].file->hash | 1 : 0;
	return true;
}

int processes_locate(struct processes *ps, struct process *p, u64 addr, struct process_place *ret)
{
	struct process_maps *m = p->maps;
	struct mapping map;
	u32 i;

	if (!m)
		return -ENOENT;
	maps_settle(ps, m);
	i = maps_above(m, addr);
	if (i == m->n || m->v[i].lo > addr)
		return -ENOENT;
	map = m->v[i];
	if (!map.file->image)
		moved_text(ps, p, m, i, true, &map);
	*ret = (struct process_place){
		.module = mapping_module(ps, p, &map, true),
		.mapping = map.file->path,
		.offset = addr - map.lo + map.offset,
	};
	return 0;
}

static bool is_gone(struct processes *ps, const struct process *p)
{
	char comm[COMM_LEN];
	u64 start;
	u32 ppid;

	if (current_image(ps, p->pid) != p)
		return true; /* another exec, or another process */
	/* One cheap call settles most of a storm of short lives. */
	if (kill((pid_t)p->pid, 0) && errno == ESRCH)
		return true;
	if (read_stat(ps, p->pid, comm, &ppid, &start))
		return true;
	return p->id_known && start != p->start_ns / ps->tick_ns;
}

void processes_trim(struct processes *ps, u64 now_ns)
{
	bool all = now_ns - ps->trimmed_ns > 10 * NSEC_PER_SEC;
	u32 i;

	if (ps->snapshot_wanted && now_ns - ps->snapshot_ns > SNAPSHOT_PAUSE_NS)
		processes_snapshot(ps);
	/* Exits are announced; those that were lost are found every 10 s. */
	if (all)
		ps->trimmed_ns = now_ns;
	for (i = 0; i < ps->n;) {
		struct process *p = ps->v[i];

		if ((all || p->exited) && is_gone(ps, p)) {
			image_drop(ps, i);
			continue;
		}
		p->exited = false; /* other threads go on */
		i++;
	}
}
