// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See module.h.
 *
 * A worker sees a job, the constant part of its module (what the mapping said) and nothing else; it
 * publishes struct content by one release store and hands the job back with the symbol table. All
 * the rest belongs to the main thread, which takes finished jobs at its next call. A module with a
 * job under way (`queued`) is never freed. One worker is the rule; when it hangs in a file system
 * that does not answer, it is left there and another one takes over.
 *
 * What is opened is named by another process, so each candidate must prove that it is the file of
 * the mapping, by build id or by device and inode, and is first opened by O_PATH: a FIFO or device
 * in its place is never touched.
 */
#include "module.h"

#include "debugfile.h"
#include "elfsym.h"
#include "htab.h"
#include "log.h"
#include "rootfile.h"
#include "stat.h"
#include "table.h"
#include "tablefile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define RETRY_NS  NSEC_PER_SEC        /* between attempts at a file that could not be read */
#define REREAD_NS (2 * NSEC_PER_SEC)  /* see is_outdated() */
#define HUNG_NS   NSEC_PER_SEC        /* a worker that used no CPU time for so long */
#define LOOK_NS   (NSEC_PER_SEC / 10) /* between looks at workers while waiting for them */
#define JOIN_NS   NSEC_PER_SEC        /* that modules_free() waits for workers */
/* All but one may hang at a time, each for another process; threads that wait cost little. */
#define WORKERS_MAX 16
#define VDSO_MAX    (1u << 20)
#define TRIM_BYTES  (1u << 20) /* a table of this size was worth giving memory back */
#define PROC_NAME   64         /* "/proc/PID/map_files/LO-HI" and the like */

/* Cyclic doubly linked; a link that is in no list points to itself. */
struct link {
	struct link *prev, *next;
};

static void link_init(struct link *l)
{
	l->prev = l->next = l;
}

static void link_del(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}

static void link_add_tail(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}

#define LINK_ENTRY(l, type, member) ((type *)(void *)((char *)(l)-offsetof(type, member)))

/* What was found. Const once published. */
struct content {
	enum module_state state;
	struct elfsym_info info;
	char id_hex[2 * ELFSYM_ID_MAX + 1];
	bool no_elf; /* MODULE_REFUSED: not even in part */
	/* The file that was read; all zero for the vdso. */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct module {
	/* Constant, and all that the worker may read. */
	u8 id[BUILD_ID_MAX];
	u32 id_len, major, minor;
	u64 ino;
	char id_hex[2 * BUILD_ID_MAX + 1];
	bool compat_vdso;
	/* Worker to main thread. */
	_Atomic(struct content *) content;
	/* Main thread. */
	struct modules *ms;
	u32 pid; /* of the last process that asked */
	u64 lo, hi;
	u64 hash;
	u32 slot, refs;
	u64 used_ns, asked_ns; /* last use; last job */
	bool queued;
	bool no_table;   /* the file has no usable symbols */
	bool table_lost; /* evicted, and could not be read again through any process so far */
	struct elfsym_table *table;
	enum module_unwind unwind_state;
	struct table *unwind; /* MODULE_UNWIND_READY: until somebody takes it */
	struct link idle;     /* unreferenced, oldest first */
	struct link tables;   /* holds a table, least recently used first */
	char path[];
};

struct job {
	struct job *next;
	struct module *module;
	u32 pid;
	u64 lo, hi;
	size_t max_bytes;
	bool want_symbols, want_unwind;
	const char *cache_dir;
	const struct content *known; /* only tables are wanted, of this very content */
	struct content *content; /* zeroed room for the result; published, or freed with the job */
	/* Result. */
	struct elfsym_table *table;
	bool no_table;
	struct table *unwind;
	enum module_unwind unwind_state;
};

struct worker {
	struct modules *ms;
	pthread_t thread;
	/* Under lock. */
	bool busy;
	u32 pid;               /* of the job */
	u64 cpu_ns, moving_ns; /* CPU time when last looked at; when that had last changed */
};

struct modules {
	pthread_mutex_t lock;
	pthread_cond_t work, settled;
	/* Under lock. */
	struct worker workers[WORKERS_MAX];
	u32 nworkers, running;          /* started; not ended */
	struct job *queue, **queue_end; /* at most one job per module */
	struct job *done;
	bool stop;
	int event_fd; /* written when the queue runs empty; never read: it is watched for edges */
	/* A hint, so that the main thread takes the lock only when there is something. */
	atomic_bool have_done;
	/* Main thread. */
	struct module **slots;
	u32 n, cap;
	struct htab by_key;
	struct link idle, tables;
	size_t table_bytes, max_bytes;
	char *cache_dir; /* of unwind tables; constant once the first job is queued; may be NULL */
};

static void content_free(struct content *c)
{
	if (!c)
		return;
	elfsym_info_fini(&c->info);
	free(c);
}

static void unwind_free(struct table *t)
{
	if (!t)
		return;
	table_fini(t);
	free(t);
}

static void job_free(struct job *j)
{
	content_free(j->content);
	elfsym_table_free(j->table);
	unwind_free(j->unwind);
	free(j);
}

/* --- worker: finding the file ---------------------------------------------------------------- */

enum way { BY_MAP_FILES, BY_ROOT, BY_PATH, WAYS };

/* O_PATH: without side effects whatever it is, and without waiting for a FIFO's writer. */
static int open_way(const struct job *j, enum way way)
{
	const char *path = j->module->path;
	char name[PROC_NAME];

	if (way == BY_MAP_FILES && j->pid && j->lo < j->hi) {
		snprintf(name, sizeof(name), "/proc/%u/map_files/%llx-%llx", j->pid,
			 (unsigned long long)j->lo, (unsigned long long)j->hi);
		return open(name, O_PATH | O_CLOEXEC);
	}
	if (way == BY_ROOT && j->pid && path[0] == '/')
		return rootfile_of(j->pid, path);
	if (way == BY_PATH && path[0] == '/')
		return open(path, O_PATH | O_CLOEXEC);
	return -1;
}

static bool link_names(int fd, const char *path)
{
	char name[PROC_NAME], text[4096 + 16];
	size_t len = strlen(path);
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, text, sizeof(text) - 1);
	if (n < 0)
		return false;
	text[n] = '\0';
	return !strncmp(text, path, len) && (!text[len] || !strcmp(text + len, " (deleted)"));
}

/*
 * Is an open file the one that was mapped? overlayfs and btrfs show another device in maps than
 * stat() does; there map_files is believed when its link names the path, since it leads to the
 * mapping's own file unless the pid was given to another program since.
 */
static bool is_mapped_file(const struct module *m, enum way way, int fd, const struct stat *st,
			   const struct elfsym_info *info)
{
	if (m->id_len)
		return info->id_len == m->id_len && !memcmp(info->id, m->id, m->id_len);
	if (m->ino && st->st_ino == m->ino && st->st_dev == makedev(m->major, m->minor))
		return true;
	return way == BY_MAP_FILES && link_names(fd, m->path);
}

static enum module_state info_state(int err)
{
	if (err == -ENOMEM)
		stat_inc(STAT_no_memory);
	return err == -ENOMEM || err == -EIO ? MODULE_UNREADABLE : MODULE_REFUSED;
}

/* Fills c from one candidate; *ret_fd stays open for the symbols when it is ready. */
static enum module_state try_way(const struct job *j, enum way way, struct content *c, int *ret_fd)
{
	_cleanup_close_ int path_fd = open_way(j, way), fd = -1;
	struct elfsym_info info = { 0 };
	struct elfsym_source src;
	struct stat st;
	int err;

	if (path_fd < 0 || fstat(path_fd, &st))
		return MODULE_UNREADABLE;
	if (!S_ISREG(st.st_mode))
		return is_mapped_file(j->module, way, path_fd, &st, &info) ? MODULE_REFUSED
									   : MODULE_CHANGED;
	fd = rootfile_open(path_fd, &st);
	if (fd < 0)
		return MODULE_UNREADABLE;
	src = (struct elfsym_source){ .fd = fd, .size = (u64)st.st_size };
	err = elfsym_info(&src, &info);
	if (!is_mapped_file(j->module, way, fd, &st, &info)) {
		elfsym_info_fini(&info);
		return err == -ENOMEM || err == -EIO ? info_state(err) : MODULE_CHANGED;
	}
	if (err) {
		c->no_elf = err == -ENOEXEC && !elfsym_is_elf(&src);
		return info_state(err);
	}
	c->info = info;
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	c->size = st.st_size;
	c->mtime = st.st_mtim;
	*ret_fd = take_fd(&fd);
	return MODULE_READY;
}

/* Ready and refused are answers; else the next way may do better, and "changed" says most. */
static enum module_state find_file(const struct job *j, struct content *c, int *ret_fd)
{
	enum module_state best = MODULE_UNREADABLE;
	int way;

	for (way = 0; way < WAYS; way++) {
		enum module_state state = try_way(j, way, c, ret_fd);

		if (state == MODULE_READY || state == MODULE_REFUSED)
			return state;
		if (state == MODULE_CHANGED)
			best = state;
	}
	return best;
}

/* --- worker: reading it ---------------------------------------------------------------------- */

/* A file without usable symbols is still a sound module. -ENOMEM and -EIO may pass. */
static void read_table(struct job *j, const struct content *c, const struct elfsym_source *src)
{
	struct debugfile_question q = {
		.src = src,
		.info = &c->info,
		.path = j->module->path,
		.pid = j->pid,
		.host_root = "/",
	};
	struct elfsym_source debug;
	_cleanup_close_ int fd = -1;
	int err;

	if (src->fd >= 0 && !elfsym_has_symtab(src))
		fd = debugfile_open(&q, &debug.size, NULL);
	debug.fd = fd;
	err = elfsym_table(src, fd >= 0 ? &debug : NULL, j->max_bytes, &j->table);
	if (err == -ENOMEM)
		stat_inc(STAT_no_memory);
	if (err == -ENOEXEC || err == -E2BIG) {
		log_debug("%s: symbols left out: %s", j->module->path,
			  err == -E2BIG ? "over a limit" : "damaged");
		stat_inc(STAT_module_refused);
	}
	j->no_table = !j->table && err != -ENOMEM && err != -EIO;
}

/* The file's unwind table, from the cache or compiled; bounded by tablefile.c. */
static void read_unwind(struct job *j, const struct content *c, int fd, const void *image,
			size_t len)
{
	char id[sizeof(c->id_hex)];
	int err;

	hex_encode(id, c->info.id, c->info.id_len);
	j->unwind_state = MODULE_UNWIND_FAILED;
	j->unwind = calloc(1, sizeof(*j->unwind));
	err = j->unwind ? tablefile_compile(fd, image, len, id, j->cache_dir, j->unwind, NULL)
			: -ENOMEM;
	if (!err) {
		j->unwind_state = MODULE_UNWIND_READY;
		return;
	}
	free(j->unwind); /* untouched by the failed call */
	j->unwind = NULL;
	if (err == -ENOENT) {
		j->unwind_state = MODULE_UNWIND_NONE;
		return;
	}
	stat_inc(err == -ENOMEM ? STAT_no_memory : STAT_unwind_refused);
	log_debug("%s: no unwind table: %s", j->module->path, strerror(-err));
}

static bool unchanged(const struct content *c, int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_size == c->size && st.st_mtim.tv_sec == c->mtime.tv_sec &&
	       st.st_mtim.tv_nsec == c->mtime.tv_nsec;
}

static enum module_state load_file(struct job *j, struct content *c)
{
	_cleanup_close_ int fd = -1;
	enum module_state state = find_file(j, c, &fd);

	if (state != MODULE_READY)
		return state;
	if (j->want_symbols)
		read_table(j, c, &(struct elfsym_source){ .fd = fd, .size = (u64)c->size });
	if (j->want_unwind)
		read_unwind(j, c, fd, NULL, 0);
	return unchanged(c, fd) ? MODULE_READY : MODULE_CHANGED;
}

/* Size of the mapping at our vdso; 0 when it is not found. */
static u64 vdso_size(u64 start)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "re");
	unsigned long long lo, hi;
	char line[512];

	/* Own maps: as many turns as this daemon has mappings. */
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx-%llx", &lo, &hi) == 2 && lo == start)
			return MIN(hi - lo, VDSO_MAX);
	return 0;
}

/* The kernel gives the same vdso to all 64-bit processes, so ours will do. */
static enum module_state load_vdso(struct job *j, struct content *c)
{
	u64 start = getauxval(AT_SYSINFO_EHDR);
	struct elfsym_source src = { .fd = -1, .mem = (const void *)start };
	int err;

	if (j->module->compat_vdso)
		return MODULE_REFUSED;
	if (start)
		src.size = vdso_size(start);
	if (!src.size)
		return MODULE_UNREADABLE;
	err = elfsym_info(&src, &c->info);
	if (err)
		return info_state(err);
	if (j->want_symbols)
		read_table(j, c, &src);
	if (j->want_unwind)
		read_unwind(j, c, -1, src.mem, src.size);
	return MODULE_READY;
}

static bool same_segments(const struct elfsym_info *a, const struct elfsym_info *b)
{
	u32 i;

	if (a->nsegments != b->nsegments)
		return false;
	for (i = 0; i < a->nsegments; i++)
		if (a->segments[i].offset != b->segments[i].offset ||
		    a->segments[i].file_size != b->segments[i].file_size ||
		    a->segments[i].vaddr != b->segments[i].vaddr)
			return false;
	return true;
}

/*
 * A table that is read anew must be of the file that was read at first. With a build id another
 * copy will do (the first container may be gone), if all that we know of it is equal.
 */
static bool same_content(const struct content *a, const struct content *b)
{
	if (strcmp(a->id_hex, b->id_hex) || a->size != b->size ||
	    a->mtime.tv_sec != b->mtime.tv_sec || a->mtime.tv_nsec != b->mtime.tv_nsec ||
	    !same_segments(&a->info, &b->info))
		return false;
	return *a->id_hex || (a->dev == b->dev && a->ino == b->ino);
}

static void count(const struct job *j, enum module_state state)
{
	static const char *const why[] = {
		[MODULE_UNREADABLE] = "could not be opened",
		[MODULE_REFUSED] = "refused: not a sound ELF file, or over a limit",
		[MODULE_CHANGED] = "is not the file that was mapped",
	};
	static const int counter[] = {
		[MODULE_UNREADABLE] = STAT_module_unreadable,
		[MODULE_REFUSED] = STAT_module_refused,
		[MODULE_CHANGED] = STAT_module_changed,
	};

	if (state == MODULE_READY)
		return;
	stat_inc(counter[state]);
	log_debug("%s of process %u %s", j->module->path, j->pid, why[state]);
}

static void drop_table(struct job *j)
{
	elfsym_table_free(j->table);
	j->table = NULL;
	j->no_table = false;
	unwind_free(j->unwind);
	j->unwind = NULL;
	j->unwind_state = MODULE_UNWIND_FAILED;
}

static bool is_vdso(const char *path)
{
	return !strcmp(path, MODULE_VDSO);
}

static void run(struct job *j, struct content *c)
{
	c->state = is_vdso(j->module->path) ? load_vdso(j, c) : load_file(j, c);
	hex_encode(c->id_hex, c->info.id, c->info.id_len);
	if (c->state == MODULE_READY && j->known && !same_content(c, j->known))
		c->state = MODULE_CHANGED;
	if (c->state != MODULE_READY) {
		drop_table(j);
		elfsym_info_fini(&c->info);
		c->id_hex[0] = '\0';
	}
	count(j, c->state);
}

/* Parsing took many times the table's size for a while; the allocator would keep that. */
static void give_back(size_t table_bytes)
{
	if (table_bytes >= TRIM_BYTES)
		malloc_trim(0);
}

static void run_job(struct job *j)
{
	run(j, j->content);
	give_back(elfsym_table_bytes(j->table));
	if (!j->known)
		atomic_store_explicit(&j->module->content, take_ptr(j->content),
				      memory_order_release);
}

/* Waits for a file operation: no CPU time was used since long. */
static bool is_hung(const struct worker *w, u64 now)
{
	return w->busy && now - w->moving_ns > HUNG_NS;
}

static bool hangs_for(const struct modules *ms, u32 pid, u64 now)
{
	u32 i;

	for (i = 0; i < ms->nworkers; i++)
		if (ms->workers[i].pid == pid && is_hung(&ms->workers[i], now))
			return true;
	return false;
}

/* The oldest job, but none of a process that has one hanging: it would cost the next worker. */
static struct job **next_job(struct modules *ms, u64 now)
{
	struct job **at;

	/* At most one job per module. */
	for (at = &ms->queue; *at; at = &(*at)->next)
		if (!hangs_for(ms, (*at)->pid, now))
			return at;
	return NULL;
}

static struct job *take_job(struct modules *ms)
{
	struct job *j, **at;

	while (!ms->stop && !(at = next_job(ms, now_monotonic())))
		pthread_cond_wait(&ms->work, &ms->lock);
	if (ms->stop)
		return NULL;
	j = *at;
	*at = j->next;
	if (!*at)
		ms->queue_end = at;
	return j;
}

static u64 cpu_time(pthread_t thread)
{
	struct timespec ts = { 0 };
	clockid_t clock;

	if (!pthread_getcpuclockid(thread, &clock))
		clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct modules *ms = w->ms;
	struct job *j;

	pthread_mutex_lock(&ms->lock);
	while ((j = take_job(ms))) {
		w->busy = true;
		w->pid = j->pid;
		w->cpu_ns = cpu_time(pthread_self());
		w->moving_ns = now_monotonic();
		pthread_mutex_unlock(&ms->lock);
		run_job(j);
		pthread_mutex_lock(&ms->lock);
		w->busy = false;
		j->next = ms->done;
		ms->done = j;
		atomic_store_explicit(&ms->have_done, true, memory_order_release);
		if (!next_job(ms, now_monotonic())) {
			pthread_cond_signal(&ms->settled);
			eventfd_write(ms->event_fd, 1);
		}
	}
	ms->running--;
	pthread_cond_signal(&ms->settled);
	pthread_mutex_unlock(&ms->lock);
	return NULL;
}

/* --- main thread: workers -------------------------------------------------------------------- */

/* Under lock, once the thread of the slot can be named. */
static int start_worker(struct modules *ms)
{
	struct worker *w = &ms->workers[ms->nworkers];
	int err;

	*w = (struct worker){ .ms = ms };
	err = thread_start(&w->thread, NULL, work, w);
	if (err)
		return err;
	pthread_setname_np(w->thread, "modules");
	ms->nworkers++;
	ms->running++;
	return 0;
}

/*
 * Under lock. Looks which workers hang, and starts another when all do and there is work. Returns
 * whether anything is still to come without somebody's file system having to answer first.
 */
static bool look_at_workers(struct modules *ms)
{
	u64 now = now_monotonic();
	bool have_work, moving = false, all_busy = true;
	u32 i;

	for (i = 0; i < ms->nworkers; i++) {
		struct worker *w = &ms->workers[i];
		u64 cpu_ns;

		if (!w->busy) {
			all_busy = false;
			continue;
		}
		cpu_ns = cpu_time(w->thread);
		if (cpu_ns != w->cpu_ns)
			w->moving_ns = now;
		w->cpu_ns = cpu_ns;
		moving |= !is_hung(w, now);
	}
	have_work = next_job(ms, now) != NULL;
	if (have_work && all_busy && !moving && ms->nworkers < WORKERS_MAX) {
		stat_inc(STAT_module_hung);
		return !start_worker(ms);
	}
	/* One that waits for work may not know that a process no longer hangs. */
	if (have_work && !all_busy)
		pthread_cond_signal(&ms->work);
	return moving || (have_work && !all_busy);
}

/* --- main thread: symbol tables -------------------------------------------------------------- */

static struct content *content_of(const struct module *m)
{
	return atomic_load_explicit(&m->content, memory_order_acquire);
}

static void table_drop(struct modules *ms, struct module *m)
{
	if (!m->table)
		return;
	ms->table_bytes -= elfsym_table_bytes(m->table);
	link_del(&m->tables);
	elfsym_table_free(m->table);
	m->table = NULL;
}

static void table_use(struct modules *ms, struct module *m)
{
	link_del(&m->tables);
	link_add_tail(&ms->tables, &m->tables);
}

/* The new one stays: elfsym_table() made none over the budget. */
static void table_add(struct modules *ms, struct module *m, struct elfsym_table *t)
{
	m->table = t;
	ms->table_bytes += elfsym_table_bytes(t);
	table_use(ms, m);
	while (ms->table_bytes > ms->max_bytes && ms->tables.next != &m->tables)
		table_drop(ms, LINK_ENTRY(ms->tables.next, struct module, tables));
}

static void finish_job(struct modules *ms, struct job *j)
{
	struct module *m = j->module;

	m->queued = false;
	if (j->want_symbols) {
		m->no_table = j->no_table;
		m->table_lost = !j->table && !j->no_table;
	}
	if (j->table)
		table_add(ms, m, take_ptr(j->table));
	if (j->want_unwind) {
		unwind_free(m->unwind);
		m->unwind = take_ptr(j->unwind);
		m->unwind_state = j->unwind_state;
	}
	job_free(j);
}

static void take_done(struct modules *ms)
{
	struct job *done;

	if (!atomic_load_explicit(&ms->have_done, memory_order_acquire))
		return;
	pthread_mutex_lock(&ms->lock);
	done = take_ptr(ms->done);
	atomic_store_explicit(&ms->have_done, false, memory_order_relaxed);
	pthread_mutex_unlock(&ms->lock);
	while (done) {
		struct job *j = done;

		done = j->next;
		finish_job(ms, j);
	}
}

/* known: see struct job. */
static struct job *job_new(const struct modules *ms, struct module *m, const struct content *known)
{
	struct job *j = calloc(1, sizeof(*j));

	if (j)
		j->content = calloc(1, sizeof(*j->content));
	if (!j || !j->content) {
		free(j);
		return NULL;
	}
	j->module = m;
	j->pid = m->pid;
	j->lo = m->lo;
	j->hi = m->hi;
	j->max_bytes = ms->max_bytes;
	j->cache_dir = ms->cache_dir;
	j->known = known;
	return j;
}

/* Never blocks: the worker holds the lock only to move pointers. */
static void enqueue(struct modules *ms, struct job *j)
{
	j->module->queued = true;
	j->module->asked_ns = now_monotonic();
	pthread_mutex_lock(&ms->lock);
	*ms->queue_end = j;
	ms->queue_end = &j->next;
	pthread_cond_signal(&ms->work);
	pthread_mutex_unlock(&ms->lock);
}

/* --- main thread: the book ------------------------------------------------------------------- */

static void module_free(struct module *m)
{
	content_free(content_of(m));
	elfsym_table_free(m->table);
	unwind_free(m->unwind);
	free(m);
}

/* Not queued, not referenced. The last slot moves into the hole. */
static void drop(struct modules *ms, struct module *m)
{
	struct module *last = ms->slots[--ms->n];

	table_drop(ms, m);
	link_del(&m->idle);
	htab_remove(&ms->by_key, m->hash, m->slot);
	if (last != m) {
		htab_remove(&ms->by_key, last->hash, last->slot);
		last->slot = m->slot;
		ms->slots[last->slot] = last;
		/* Cannot fail: two were removed, so there is room. */
		htab_insert(&ms->by_key, last->hash, last->slot);
	}
	module_free(m);
}

/* Drops unreferenced modules last used before a time, oldest first, at most max. */
static void drop_idle(struct modules *ms, u64 before_ns, u32 max)
{
	struct link *l, *next;

	/* As many turns as modules are held. */
	for (l = ms->idle.next; max && l != &ms->idle; l = next) {
		struct module *m = LINK_ENTRY(l, struct module, idle);

		next = l->next;
		if (m->queued || m->used_ns > before_ns)
			continue;
		drop(ms, m);
		max--;
	}
}

/* A 32-bit process has another vdso than ours, always below 4 GiB; a 64-bit one never there. */
static bool is_compat_vdso(const struct mapped_file *f)
{
	return is_vdso(f->path) && f->hi && f->hi <= 1ull << 32;
}

static u64 key_hash(const struct mapped_file *f)
{
	u64 h = hash_bytes(f->path, strlen(f->path));

	/* A file whose inode is known has the same hash whether its build id is known or not. */
	if (f->ino)
		h = hash_mix(h, (u64)f->major << 32 | f->minor);
	else
		h = hash_mix(h, hash_bytes(f->build_id, f->build_id_len));
	return hash_mix(h, f->ino + is_compat_vdso(f));
}

/*
 * Of two mappings of one inode the one that /proc told has no build id, the other one has: the same
 * file, if the build id is what was read from it.
 */
static bool same_id(const struct module *m, const struct mapped_file *f)
{
	char id[2 * BUILD_ID_MAX + 1];

	if (m->id_len == f->build_id_len)
		return !memcmp(m->id, f->build_id, f->build_id_len);
	if (!f->ino || (m->id_len && f->build_id_len))
		return false;
	if (m->id_len)
		return true;
	hex_encode(id, f->build_id, f->build_id_len);
	return module_state(m) == MODULE_READY && !strcmp(module_build_id(m), id);
}

static bool key_equal(const struct module *m, const struct mapped_file *f)
{
	return m->ino == f->ino && m->major == f->major && m->minor == f->minor &&
	       m->compat_vdso == is_compat_vdso(f) && same_id(m, f) && !strcmp(m->path, f->path);
}

static struct module *find(const struct modules *ms, const struct mapped_file *f, u64 hash)
{
	u32 pos, slot;

	for (pos = htab_start(&ms->by_key, hash); htab_next(&ms->by_key, hash, &pos, &slot);)
		if (key_equal(ms->slots[slot], f))
			return ms->slots[slot];
	return NULL;
}

static struct module *module_new(struct modules *ms, const struct mapped_file *f, u64 hash)
{
	size_t path_size = strlen(f->path) + 1;
	struct module *m = calloc(1, sizeof(*m) + path_size);

	if (!m)
		return NULL;
	memcpy(m->path, f->path, path_size);
	memcpy(m->id, f->build_id, f->build_id_len);
	m->ms = ms;
	m->id_len = f->build_id_len;
	hex_encode(m->id_hex, m->id, m->id_len);
	m->major = f->major;
	m->minor = f->minor;
	m->ino = f->ino;
	m->compat_vdso = is_compat_vdso(f);
	m->pid = f->pid;
	m->lo = f->lo;
	m->hi = f->hi;
	m->hash = hash;
	link_init(&m->idle);
	link_init(&m->tables);
	return m;
}

/* Puts a new module in and asks for its file: with symbols, or with its unwind table. */
static struct module *add(struct modules *ms, const struct mapped_file *f, u64 hash, bool symbols)
{
	struct module *m = module_new(ms, f, hash);
	struct job *j = m ? job_new(ms, m, NULL) : NULL;

	if (!j)
		goto no_memory;
	if (ms->n == MODULES_MAX)
		drop_idle(ms, UINT64_MAX, 1);
	if (VEC_RESERVE(ms->slots, ms->cap, ms->n + 1, MODULES_MAX) ||
	    htab_insert(&ms->by_key, m->hash, ms->n))
		goto no_memory;
	m->slot = ms->n;
	ms->slots[ms->n++] = m;
	link_add_tail(&ms->idle, &m->idle);
	j->want_symbols = symbols;
	j->want_unwind = !symbols;
	enqueue(ms, j);
	return m;

no_memory:
	stat_inc(STAT_no_memory);
	if (j)
		job_free(j);
	free(m);
	return NULL;
}

/*
 * Without a build id a file is known by its inode number, which a file system gives to another
 * file once nobody holds the first. So what nobody references is read anew, after a while.
 */
static bool is_outdated(const struct module *m, u64 now)
{
	return !m->refs && !m->queued && !m->id_len && !is_vdso(m->path) &&
	       now - m->asked_ns > REREAD_NS;
}

/* Another process may show a file that the first one, perhaps gone, did not. */
static void ask_again(struct modules *ms, struct module *m, const struct mapped_file *f, u64 now)
{
	enum module_state state = module_state(m);
	bool other = m->pid != f->pid;
	struct job *j;

	m->pid = f->pid;
	m->lo = f->lo;
	m->hi = f->hi;
	if (!other || m->queued || now - m->asked_ns < RETRY_NS)
		return;
	m->table_lost = false; /* module_symbol() asks, if it needs to */
	if (state != MODULE_UNREADABLE && state != MODULE_CHANGED)
		return;
	j = job_new(ms, m, NULL);
	if (!j) {
		stat_inc(STAT_no_memory);
		return;
	}
	j->want_symbols = true;
	m->unwind_state = MODULE_UNWIND_UNKNOWN;
	/* Nothing of a failed attempt is ever borrowed. */
	content_free(content_of(m));
	atomic_store_explicit(&m->content, NULL, memory_order_relaxed);
	enqueue(ms, j);
}

static struct module *get(struct modules *ms, const struct mapped_file *file, bool symbols)
{
	u64 hash = key_hash(file), now = now_monotonic();
	struct module *m;

	assert(file->build_id_len <= BUILD_ID_MAX);
	take_done(ms);
	m = find(ms, file, hash);
	if (m && is_outdated(m, now)) {
		drop(ms, m);
		m = NULL;
	}
	if (m)
		ask_again(ms, m, file, now);
	else
		m = add(ms, file, hash, symbols);
	if (!m)
		return NULL;
	m->used_ns = now;
	return module_ref(m);
}

struct module *modules_get(struct modules *ms, const struct mapped_file *file)
{
	return get(ms, file, true);
}

struct module *modules_get_unwind(struct modules *ms, const struct mapped_file *file)
{
	return get(ms, file, false);
}

struct module *module_ref(struct module *m)
{
	if (!m->refs++)
		link_del(&m->idle);
	return m;
}

void module_put(struct module *m)
{
	if (!m)
		return;
	assert(m->refs);
	if (--m->refs)
		return;
	m->used_ns = now_monotonic();
	link_add_tail(&m->ms->idle, &m->idle);
}

static bool is_any_busy(const struct modules *ms)
{
	u32 i;

	for (i = 0; i < ms->nworkers; i++)
		if (ms->workers[i].busy)
			return true;
	return false;
}

bool modules_settle(struct modules *ms, u64 deadline_ns)
{
	bool settled;

	pthread_mutex_lock(&ms->lock);
	/* Woken up by a worker, or to look at them, until the deadline. */
	while (look_at_workers(ms)) {
		u64 now = now_monotonic(), until_ns = MIN(deadline_ns, now + LOOK_NS);
		struct timespec until = {
			.tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
			.tv_nsec = (long)(until_ns % NSEC_PER_SEC),
		};

		if (now >= deadline_ns)
			break;
		pthread_cond_timedwait(&ms->settled, &ms->lock, &until);
	}
	settled = !ms->queue && !is_any_busy(ms);
	pthread_mutex_unlock(&ms->lock);
	take_done(ms);
	return settled;
}

bool modules_working(struct modules *ms)
{
	bool working;

	pthread_mutex_lock(&ms->lock);
	working = look_at_workers(ms);
	pthread_mutex_unlock(&ms->lock);
	return working;
}

int modules_fd(const struct modules *ms)
{
	return ms->event_fd;
}

u32 modules_count(const struct modules *ms)
{
	return ms->n;
}

size_t modules_symbol_bytes(const struct modules *ms)
{
	return ms->table_bytes;
}

void modules_trim(struct modules *ms, u64 max_age_ns)
{
	u64 now = now_monotonic();

	pthread_mutex_lock(&ms->lock);
	look_at_workers(ms);
	pthread_mutex_unlock(&ms->lock);
	take_done(ms);
	if (max_age_ns < now)
		drop_idle(ms, now - max_age_ns, UINT32_MAX);
}

/* --- main thread: what a module says --------------------------------------------------------- */

enum module_state module_state(const struct module *m)
{
	const struct content *c = content_of(m);

	return c ? c->state : MODULE_LOADING;
}

bool module_is_no_elf(const struct module *m)
{
	const struct content *c = content_of(m);

	return c && c->state == MODULE_REFUSED && c->no_elf;
}

const char *module_path(const struct module *m)
{
	return m->path;
}

const char *module_build_id(const struct module *m)
{
	const struct content *c = content_of(m);

	/* What the mapping said holds, whatever became of the file. */
	return m->id_len || !c ? m->id_hex : c->id_hex;
}

const struct module_segment *module_segment(const struct module *m, u64 file_offset)
{
	const struct content *c = content_of(m);
	const struct module_segment *found = NULL;
	u32 i;

	for (i = 0; c && i < c->info.nsegments; i++) {
		const struct module_segment *s = &c->info.segments[i];

		if (file_offset < s->offset || file_offset - s->offset >= s->file_size)
			continue;
		if (s->exec)
			return s;
		if (!found)
			found = s;
	}
	return found;
}

/* The table was evicted: asks for it again. */
static int ask_for_table(struct modules *ms, struct module *m)
{
	struct job *j;

	if (m->no_table || m->table_lost)
		return -ENOENT;
	if (m->queued)
		return -EAGAIN;
	j = job_new(ms, m, content_of(m));
	if (!j) {
		stat_inc(STAT_no_memory);
		return -ENOENT;
	}
	j->want_symbols = true;
	enqueue(ms, j);
	return -EAGAIN;
}

enum module_unwind module_unwind(struct modules *ms, struct module *m)
{
	struct job *j;

	take_done(ms);
	m->used_ns = now_monotonic();
	if (m->queued)
		return MODULE_UNWIND_UNKNOWN;
	if (module_state(m) != MODULE_READY)
		return MODULE_UNWIND_FAILED;
	if (m->unwind_state != MODULE_UNWIND_UNKNOWN)
		return m->unwind_state;
	j = job_new(ms, m, content_of(m));
	if (!j) {
		stat_inc(STAT_no_memory);
		return MODULE_UNWIND_FAILED;
	}
	j->want_unwind = true;
	enqueue(ms, j);
	return MODULE_UNWIND_UNKNOWN;
}

struct table *module_take_unwind(struct module *m)
{
	m->unwind_state = MODULE_UNWIND_UNKNOWN;
	return take_ptr(m->unwind);
}

const struct module_segment *module_exec_segment(const struct module *m, u64 lo, u64 hi)
{
	const struct content *c = content_of(m);
	u32 i;

	for (i = 0; c && i < c->info.nsegments; i++) {
		const struct module_segment *s = &c->info.segments[i];

		if (s->exec && s->offset < hi && lo < s->offset + s->file_size)
			return s;
	}
	return NULL;
}

int module_symbol(struct modules *ms, struct module *m, u64 file_offset, const char **ret_name)
{
	const struct module_segment *s;
	const char *name;

	take_done(ms);
	m->used_ns = now_monotonic();
	if (module_state(m) == MODULE_LOADING)
		return -EAGAIN;
	s = module_segment(m, file_offset);
	if (!s)
		return -ENOENT;
	if (!m->table)
		return ask_for_table(ms, m);
	table_use(ms, m);
	name = elfsym_lookup(m->table, s->vaddr + (file_offset - s->offset));
	if (!name)
		return -ENOENT;
	*ret_name = name;
	return 0;
}

/* --- life ------------------------------------------------------------------------------------ */

static void init_conditions(struct modules *ms)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&ms->lock, NULL);
	pthread_cond_init(&ms->work, NULL);
	pthread_cond_init(&ms->settled, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static void destroy(struct modules *ms)
{
	pthread_cond_destroy(&ms->settled);
	pthread_cond_destroy(&ms->work);
	pthread_mutex_destroy(&ms->lock);
	closep(&ms->event_fd);
	free(ms);
}

int modules_set_cache(struct modules *ms, const char *dir)
{
	ms->cache_dir = strdup(dir);
	return ms->cache_dir ? 0 : -ENOMEM;
}

struct modules *modules_new(size_t symbol_bytes)
{
	struct modules *ms = calloc(1, sizeof(*ms));
	int err;

	if (!ms)
		return NULL;
	ms->max_bytes = symbol_bytes;
	ms->queue_end = &ms->queue;
	link_init(&ms->idle);
	link_init(&ms->tables);
	init_conditions(ms);
	ms->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_lock(&ms->lock);
	err = ms->event_fd < 0 ? -EMFILE : start_worker(ms);
	pthread_mutex_unlock(&ms->lock);
	if (err) {
		destroy(ms);
		return NULL;
	}
	return ms;
}

static void jobs_free(struct job *j)
{
	while (j) {
		struct job *next = j->next;

		job_free(j);
		j = next;
	}
}

/* Ends the workers; false when one still hangs. */
static bool stop_workers(struct modules *ms)
{
	u64 deadline = now_monotonic() + JOIN_NS;
	struct timespec until = {
		.tv_sec = (time_t)(deadline / NSEC_PER_SEC),
		.tv_nsec = (long)(deadline % NSEC_PER_SEC),
	};
	u32 i, running;

	pthread_mutex_lock(&ms->lock);
	ms->stop = true;
	pthread_cond_broadcast(&ms->work);
	/* Woken up by each worker's end, until the deadline. */
	while (ms->running)
		if (pthread_cond_timedwait(&ms->settled, &ms->lock, &until))
			break;
	running = ms->running;
	pthread_mutex_unlock(&ms->lock);
	for (i = 0; !running && i < ms->nworkers; i++)
		pthread_join(ms->workers[i].thread, NULL);
	return !running;
}

void modules_free(struct modules *ms)
{
	u32 i;

	if (!ms)
		return;
	/* A file on a dead mount may hold a worker for ever; then nothing of it is ours any more. */
	if (!stop_workers(ms)) {
		log_warn(
			"a mapped file cannot be read to its end: its file system does not answer");
		return;
	}
	jobs_free(ms->queue);
	jobs_free(ms->done);
	for (i = 0; i < ms->n; i++)
		module_free(ms->slots[i]);
	free(ms->slots);
	free(ms->cache_dir);
	htab_fini(&ms->by_key);
	destroy(ms);
}
