// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See threads.h. A run: its question goes into a slot of the programs' global data,
 * an iterator is opened on the link of the process, and read to its end. Links are kept, the least
 * recently used one gives way. A run that hangs keeps its slot and its link's iterator; all that
 * its thread touches belongs to struct run or struct shared.
 */
#include "threads.h"

#include "features.h"
#include "log.h"
#include "pidns.h"
#include "reader.h"
#include "sampler.h"
#include "threads.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define LINKS_MAX 64
/* The kernel fills 8 pages, then wants to be read: at least so much is asked for at a time. */
#define CHUNK_PAGES 8
#define BYTES_MAX   (8u << 20)

/* What outlives struct threads while runs hang. */
struct shared {
	atomic_uint refs;
	_Atomic u32 busy[THREADS_RUNS]; /* tgid that the slot's run reads; 0: free */
};

struct run {
	struct shared *shared;
	u32 slot;
	int fd; /* of the iterator */
	size_t chunk;
	u8 *data;
	size_t len, cap;
	u64 cpu_ns; /* of the thread that reads */
	bool cut;   /* at BYTES_MAX */
};

enum { COUNTS, LISTS, NKINDS };

/* A process. */
struct link {
	u32 tgid;
	int fd[NKINDS];   /* -1 until used */
	u32 from[NKINDS]; /* thread to begin with */
	u32 held;         /* what was told since this number was given is held */
	bool quiet;       /* no list was read in the last run */
	u64 used;
};

struct threads {
	struct threads_bpf *skel;
	struct reader *reader;
	struct shared *shared;
	struct run *spare;
	struct link links[LINKS_MAX];
	u32 nlinks;
	u32 last_held;
	u64 uses;
	u64 cpu_ns;    /* of the reader's thread */
	bool filtered; /* an iterator can be for one process */
	bool walks;
};

static void shared_put(struct shared *s)
{
	if (s && atomic_fetch_sub(&s->refs, 1) == 1)
		free(s);
}

static void run_free(struct run *run)
{
	if (!run)
		return;
	closep(&run->fd);
	free(run->data);
	free(run);
}

/* --- loading ----------------------------------------------------------------------------------- */

static bool has_walk(const struct features *f)
{
	return f->iter_task_sleeps && f->iter_task_filtered && f->copy_from_user_task &&
	       f->task_storage && f->task_pt_regs && f->loop && f->find_vma;
}

static int load(struct threads *t, bool walks, int heads_fd)
{
	struct pidns ns;
	int err = pidns_own(&ns);

	if (err)
		return err;
	t->skel = threads_bpf__open();
	if (!t->skel)
		return -ENOMEM;
	t->skel->rodata->ns_level = ns.level;
	t->skel->rodata->ns_at = ns.at;
	bpf_program__set_autoload(t->skel->progs.thread_lists, walks);
	if (!walks) {
		bpf_map__set_autocreate(t->skel->maps.held, false);
		bpf_map__set_autocreate(t->skel->maps.heads, false);
		bpf_map__set_autocreate(t->skel->maps.turns, false);
	} else if (heads_fd >= 0) {
		err = bpf_map__reuse_fd(t->skel->maps.heads, heads_fd);
		if (err)
			return err;
	} else {
		bpf_map__set_max_entries(t->skel->maps.heads, 1);
	}
	err = threads_bpf__load(t->skel);
	if (err) {
		threads_bpf__destroy(t->skel);
		t->skel = NULL;
	}
	return err;
}

int threads_new(const struct features *f, struct reader *reader, int heads_fd, struct threads **ret)
{
	struct threads *t;
	int err;

	if (!f->iter_task)
		return -EOPNOTSUPP;
	t = calloc(1, sizeof(*t));
	if (t)
		t->shared = calloc(1, sizeof(*t->shared));
	if (!t || !t->shared) {
		free(t);
		return log_err(-ENOMEM, "cannot look at threads: out of memory");
	}
	atomic_init(&t->shared->refs, 1);
	sampler_take_log();
	t->reader = reader;
	t->filtered = f->iter_task_filtered;
	t->walks = has_walk(f);
	err = load(t, t->walks, heads_fd);
	if (err == -EPERM || err == -EACCES) {
		log_info("not permitted to load BPF programs (CAP_BPF, CAP_PERFMON): threads are "
			 "looked at through /proc");
		threads_free(t);
		return err;
	}
	if (err && t->walks) {
		log_debug("the iterator that reads lists does not load: %s", strerror(-err));
		t->walks = false;
		err = load(t, false, heads_fd);
	}
	if (err) {
		log_err(err, "cannot load the BPF programs that look at threads: %s",
			strerror(-err));
		threads_free(t);
		return err;
	}
	*ret = t;
	return 0;
}

static void link_close(struct link *l)
{
	closep(&l->fd[COUNTS]);
	closep(&l->fd[LISTS]);
}

void threads_free(struct threads *t)
{
	if (!t)
		return;
	while (t->nlinks)
		link_close(&t->links[--t->nlinks]);
	run_free(t->spare);
	shared_put(t->shared);
	threads_bpf__destroy(t->skel);
	free(t);
}

bool threads_can_walk(const struct threads *t)
{
	return t->walks;
}

/* --- links ------------------------------------------------------------------------------------- */

static struct link *link_find(struct threads *t, u32 tgid)
{
	u32 i;

	for (i = 0; i < t->nlinks; i++)
		if (t->links[i].tgid == tgid)
			return &t->links[i];
	return NULL;
}

static struct link *link_of(struct threads *t, u32 tgid)
{
	struct link *l = link_find(t, tgid);
	u32 i;

	if (!l && t->nlinks < LINKS_MAX) {
		l = &t->links[t->nlinks++];
	} else if (!l) {
		for (l = t->links, i = 1; i < LINKS_MAX; i++)
			if (t->links[i].used < l->used)
				l = &t->links[i];
		link_close(l);
	}
	if (l->tgid != tgid || !l->used)
		*l = (struct link){ .tgid = tgid, .fd = { -1, -1 }, .held = ++t->last_held };
	l->used = ++t->uses;
	return l;
}

void threads_forget(struct threads *t, u32 tgid)
{
	struct link *l = link_find(t, tgid);

	if (l)
		l->held = ++t->last_held;
}

static int link_open(struct threads *t, struct link *l, int kind)
{
	union bpf_iter_link_info info = { .task = { .pid = l->tgid } };
	LIBBPF_OPTS(bpf_link_create_opts, opts, .iter_info = t->filtered ? &info : NULL,
		    .iter_info_len = t->filtered ? sizeof(info) : 0);
	struct bpf_program *prog = kind == LISTS ? t->skel->progs.thread_lists
						 : t->skel->progs.thread_counts;

	if (l->fd[kind] >= 0)
		return 0;
	l->fd[kind] = bpf_link_create(bpf_program__fd(prog), 0, BPF_TRACE_ITER, &opts);
	return l->fd[kind] < 0 ? -errno : 0;
}

/* --- runs -------------------------------------------------------------------------------------- */

/* In the reader's thread, if the run may hang. Ends at the iterator's end or at BYTES_MAX. */
static int read_all(struct run *run)
{
	ssize_t n;
	u8 *data;

	run->len = 0;
	run->cut = false;
	for (;;) {
		if (run->cap - run->len < run->chunk) {
			if (run->cap >= BYTES_MAX) {
				run->cut = true;
				return 0;
			}
			data = realloc(run->data, run->cap * 2 + run->chunk);
			if (!data)
				return -ENOMEM;
			run->data = data;
			run->cap = run->cap * 2 + run->chunk;
		}
		n = read(run->fd, run->data + run->len, run->cap - run->len);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		run->len += (size_t)n;
	}
}

static u64 cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static int run_read(void *arg)
{
	struct run *run = arg;
	u64 start = cpu_time();
	int err = read_all(run);

	run->cpu_ns = cpu_time() - start;
	return err;
}

static void run_drop(void *arg)
{
	struct run *run = arg;

	atomic_store(&run->shared->busy[run->slot], 0);
	shared_put(run->shared);
	run_free(run);
}

static bool hangs(const struct threads *t, u32 tgid)
{
	u32 i;

	for (i = 0; i < THREADS_RUNS; i++)
		if (atomic_load(&t->shared->busy[i]) == tgid)
			return true;
	return false;
}

/* A run with a slot and an open iterator; freed by run_done() or, left behind, by run_drop(). */
static int run_begin(struct threads *t, struct link *l, int kind, struct run **ret)
{
	struct run *run = t->spare ? take_ptr(t->spare) : calloc(1, sizeof(*run));
	u32 slot;
	int err;

	if (!run)
		return -ENOMEM;
	run->shared = t->shared;
	run->chunk = CHUNK_PAGES * (size_t)sysconf(_SC_PAGESIZE);
	run->fd = -1;
	for (slot = 0; slot < THREADS_RUNS; slot++)
		if (!atomic_load(&t->shared->busy[slot]))
			break;
	err = slot < THREADS_RUNS ? link_open(t, l, kind) : -ENOSPC;
	if (!err) {
		run->fd = bpf_iter_create(l->fd[kind]);
		err = run->fd < 0 ? -errno : 0;
	}
	if (err) {
		run_free(run);
		return err;
	}
	run->slot = slot;
	atomic_store(&t->shared->busy[slot], l->tgid);
	atomic_fetch_add(&t->shared->refs, 1);
	*ret = run;
	return 0;
}

static void run_done(struct threads *t, struct run *run)
{
	closep(&run->fd);
	run->fd = -1;
	atomic_store(&run->shared->busy[run->slot], 0);
	shared_put(run->shared);
	if (t->spare || run->cap > BYTES_MAX / 8)
		run_free(run);
	else
		t->spare = run;
}

/* What is told is data from the kernel, but a record is only used when it is whole. */
static u32 tell(const struct run *run, threads_fn *fn, void *arg)
{
	size_t at = 0, len;
	u32 n = 0;

	while (run->len - at >= THREAD_SAME_SIZE) {
		/* Records are multiples of 8 bytes in malloc()ed memory. */
		const struct thread_event *ev = (const void *)(run->data + at);

		len = THREAD_SAME_SIZE;
		if (ev->kind != THREAD_SAME) {
			if (run->len - at < sizeof(*ev))
				break;
			len = sizeof(*ev) + (size_t)ev->nlist * ev->list_width * sizeof(u64);
			if (run->len - at < len)
				break;
		}
		fn(arg, ev, (const u64 *)(ev + 1));
		at += len;
		n++;
	}
	return n;
}

/* Poses the question in the run's slot. */
static const struct threads_run *pose(struct threads *t, const struct run *run,
				      const struct threads_run *question)
{
	t->skel->bss->runs[run->slot] = *question;
	t->skel->bss->run = run->slot;
	return &t->skel->bss->runs[run->slot];
}

/* What came of a run that has ended, to the caller; the run is given back. */
static void finish(struct threads *t, struct link *l, int kind, struct run *run,
		   const struct threads_run *answer, int err, threads_fn *fn, void *arg,
		   struct threads_told *ret)
{
	u32 n = err ? 0 : tell(run, fn, arg);

	/* Told to us, but lost: the kernel must not think that it is held. */
	if (err || run->cut || n != answer->told)
		l->held = ++t->last_held;
	ret->told = n;
	ret->same = MIN(answer->same, n);
	ret->more = answer->more || run->cut;
	l->from[kind] = answer->more ? answer->next : run->cut ? l->from[kind] + n : 0;
	l->quiet = !answer->walks && !ret->more;
	run_done(t, run);
}

/*
 * Where nothing has changed no memory of the process is read, and nothing can hang: such a run needs
 * no thread of its own. It ends before the first list that would have to be read, and is then as if
 * it had not been. False: it was none.
 */
static bool ask_quickly(struct threads *t, struct link *l, const struct threads_run *question,
			threads_fn *fn, void *arg, struct threads_told *ret)
{
	struct threads_run quick = *question;
	const struct threads_run *answer;
	struct run *run;

	if (!l->quiet || l->from[LISTS] || run_begin(t, l, LISTS, &run))
		return false;
	quick.max_walks = 0;
	answer = pose(t, run, &quick);
	if (!read_all(run) && !run->cut && !answer->more) {
		finish(t, l, LISTS, run, answer, 0, fn, arg, ret);
		return true;
	}
	l->quiet = false;
	run_done(t, run);
	return false;
}

static int ask(struct threads *t, u32 tgid, const struct recipe_entry *entry, int kind,
	       threads_fn *fn, void *arg, struct threads_told *ret)
{
	struct link *l = link_of(t, tgid);
	const struct threads_run question = {
		.entry = entry ? *entry : (struct recipe_entry){},
		.tgid = tgid,
		.held = l->held,
		.from = l->from[kind],
		.max = THREADS_MAX,
		.max_walks = THREADS_WALKS_MAX,
	};
	const struct threads_run *answer;
	struct run *run;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (kind == LISTS && ask_quickly(t, l, &question, fn, arg, ret))
		return 0;
	err = run_begin(t, l, kind, &run);
	if (err)
		return err == -ESRCH ? 0 : err;
	answer = pose(t, run, &question);
	if (kind == COUNTS) {
		err = read_all(run);
	} else {
		err = reader_call(t->reader, run_read, run, run_drop, THREADS_WAIT_NS);
		if (err == -ETIMEDOUT) {
			l->held = ++t->last_held;
			return err;
		}
		t->cpu_ns += run->cpu_ns;
	}
	finish(t, l, kind, run, answer, err, fn, arg, ret);
	return err;
}

/* --- calls ------------------------------------------------------------------------------------- */

int threads_counts(struct threads *t, u32 tgid, threads_fn *fn, void *arg, struct threads_told *ret)
{
	return ask(t, tgid, NULL, COUNTS, fn, arg, ret);
}

int threads_walk(struct threads *t, u32 tgid, const struct recipe_entry *entry, threads_fn *fn,
		 void *arg, struct threads_told *ret)
{
	if (!t->walks)
		return -EOPNOTSUPP;
	/* Two runs over one process would tell each other's threads. */
	if (hangs(t, tgid))
		return -EBUSY;
	return ask(t, tgid, entry, LISTS, fn, arg, ret);
}

struct listing {
	void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread);
	void *arg;
};

static void list_one(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	const struct listing *l = arg;
	struct target_thread thread = { .tid = ev->ns_tid, .tp = ev->tp };

	l->fn(l->arg, ev->tid, &thread);
}

int threads_list(void *threads, u32 tgid,
		 void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
		 void *fn_arg)
{
	struct listing l = { .fn = fn, .arg = fn_arg };
	struct threads_told told;

	return threads_counts(threads, tgid, list_one, &l, &told);
}

u64 threads_cpu_ns(const struct threads *t)
{
	return t->cpu_ns;
}

u32 threads_programs(const struct threads *t, struct program_time *ret, u32 max)
{
	struct bpf_program *p;
	u32 n = 0;

	bpf_object__for_each_program(p, t->skel->obj) if (n < max && bpf_program__fd(p) >= 0 &&
							  program_time(bpf_program__fd(p), &ret[n]))
		n++;
	return n;
}

u64 threads_map_bytes(const struct threads *t)
{
	struct bpf_map *map;
	u64 sum = 0;

	bpf_object__for_each_map(map, t->skel->obj)
	{
		/* heads is the sampler's. */
		if (map != t->skel->maps.heads && bpf_map__fd(map) >= 0)
			sum += fd_memlock(bpf_map__fd(map));
	}
	return sum;
}
