// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See walker.h. Per thread there is little: when it was last looked at and which held
 * stack it stands on. A held stack is one for all threads of a process that have the same name and
 * the same words; time is added up on it and told when the window ends.
 */
#include "walker.h"

#include "htab.h"
#include "listwalk.h"
#include "process.h"
#include "runtime.h"
#include "stat.h"
#include "target.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define STANDARD_HZ   19
#define SYNC_NS       (NSEC_PER_SEC / 4)   /* new processes are looked for so often */
#define TICK_NS       (NSEC_PER_SEC / 200) /* of work a tick may do, at full share */
#define TICK_WALKS    1024                 /* lists a tick may take, at full share */
#define OUTSIDE_WALKS 128                  /* of one process, read from outside */
#define PAUSE_MIN_NS  NSEC_PER_SEC
#define PAUSE_MAX_NS  (600 * NSEC_PER_SEC)
#define NONE          UINT32_MAX

struct held {
	struct process *process;
	u32 gen, refs, slot;
	u64 hash;
	u64 ns;      /* to be told */
	bool silent; /* telling it leads to nothing */
	bool ready;  /* its threads wait for nothing but a CPU */
	char comm[COMM_LEN];
	struct list list; /* words point behind this struct */
	u64 words[];
};

struct thread {
	u32 tid;
	u32 owner; /* place in procs */
	u32 next;  /* of the same process; or of the free list */
	u32 turn;
	u64 start_ns;
	u64 switches, cpu_ns;
	u64 last_ns;       /* looked at until then */
	s64 owed;          /* waited, but not charged yet; below 0: what the kernel counts late */
	struct held *held; /* NULL: no frame of the runtime, or not known */
	bool known;        /* what it stands on, even if that is nothing */
};

struct proc {
	struct process *process; /* NULL: free place */
	u32 gen, first;          /* thread */
	u32 turn, nthreads;
	u64 period_ns, due_ns, pause_ns;
	u64 last_ns; /* all threads were looked at; 0: not yet */
};

/* Thread to be walked from outside, and what came of it. */
struct outside {
	struct thread_event ev;
	struct list list;
	u64 *words;
	bool stood_still;
};

struct walker {
	struct processes *processes;
	struct runtimes *runtimes;
	struct walker_kernel kernel;
	struct walker_options o;
	struct proc *procs;
	u32 nprocs, procs_cap, at; /* at: who goes first */
	struct thread *threads;
	u32 nthreads, threads_cap, spare, live;
	struct htab by_tid;
	struct held **held;
	u32 nheld, held_cap;
	size_t held_bytes;
	struct htab by_words;
	u64 now, sync_ns, due_ns;
	u32 share, walks; /* walks: of this tick */
	struct outside *outside;
	u32 noutside, outside_cap;
	struct walker_figures figures;
};

static void on_drop(void *arg, struct process *p);

struct walker *walker_new(struct processes *procs, struct runtimes *runtimes,
			  const struct walker_kernel *kernel, const struct walker_options *o)
{
	struct walker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->processes = procs;
	w->runtimes = runtimes;
	w->kernel = *kernel;
	w->o = *o;
	w->share = 100;
	w->spare = NONE;
	processes_on_drop(procs, on_drop, w);
	return w;
}

/* --- held stacks ------------------------------------------------------------------------------ */

static size_t held_size(const struct held *h)
{
	return sizeof(*h) + (size_t)h->list.n * h->list.width * sizeof(u64);
}

static void tell(struct walker *w, struct held *h)
{
	u64 ns = h->ns;

	h->ns = 0;
	if (!h->silent &&
	    w->o.waited(w->o.arg, h->process, h->gen, &h->list, h->comm, h->ready, ns) != UNWIND_OK)
		h->silent = true;
}

static void held_put(struct walker *w, struct held *h, bool told)
{
	struct held *last;

	if (!h || --h->refs)
		return;
	if (told && h->ns)
		tell(w, h);
	htab_remove(&w->by_words, h->hash, h->slot);
	last = w->held[--w->nheld];
	if (last != h) {
		htab_remove(&w->by_words, last->hash, last->slot);
		last->slot = h->slot;
		w->held[last->slot] = last;
		/* Removed above: there is room. */
		htab_insert(&w->by_words, last->hash, last->slot);
	}
	w->held_bytes -= held_size(h);
	free(h);
}

static u64 words_hash(const struct proc *p, const struct list *l, const char comm[COMM_LEN],
		      bool ready)
{
	u64 h = hash_bytes(l->words, (size_t)l->n * l->width * sizeof(u64));

	h = hash_mix(h, hash_bytes(comm, COMM_LEN));
	h = hash_mix(h, (u64)l->end << 48 | (u64)l->width << 32 | p->gen);
	return hash_mix(h, l->reg << 2 | l->flag << 1 | ready);
}

static bool same_words(const struct held *h, const struct proc *p, const struct list *l,
		       const char comm[COMM_LEN], bool ready)
{
	return h->process == p->process && h->gen == p->gen && h->ready == ready &&
	       h->list.n == l->n && h->list.width == l->width && h->list.end == l->end &&
	       h->list.reg == l->reg && h->list.flag == l->flag &&
	       !memcmp(h->comm, comm, COMM_LEN) &&
	       !memcmp(h->words, l->words, (size_t)l->n * l->width * sizeof(u64));
}

static struct held *held_new(struct walker *w, const struct proc *p, const struct list *l,
			     const char comm[COMM_LEN], u64 hash)
{
	size_t bytes = (size_t)l->n * l->width * sizeof(u64);
	struct held *h;

	if (w->held_bytes + sizeof(*h) + bytes > WALKER_HELD_BYTES ||
	    VEC_RESERVE(w->held, w->held_cap, w->nheld + 1, WALKER_THREADS_MAX))
		return NULL;
	h = malloc(sizeof(*h) + bytes);
	if (!h || htab_insert(&w->by_words, hash, w->nheld)) {
		free(h);
		return NULL;
	}
	*h = (struct held){
		.process = p->process,
		.gen = p->gen,
		.slot = w->nheld,
		.hash = hash,
		.list = *l,
	};
	memcpy(h->comm, comm, COMM_LEN);
	memcpy(h->words, l->words, bytes);
	h->list.words = h->words;
	w->held_bytes += sizeof(*h) + bytes;
	w->held[w->nheld++] = h;
	return h;
}

/* A new reference; NULL when there is no room. */
static struct held *held_get(struct walker *w, const struct proc *p, const struct list *l,
			     const char comm[COMM_LEN], bool ready)
{
	u64 hash = words_hash(p, l, comm, ready);
	struct held *h = NULL;
	u32 pos, i;

	for (pos = htab_start(&w->by_words, hash); htab_next(&w->by_words, hash, &pos, &i);)
		if (same_words(w->held[i], p, l, comm, ready))
			h = w->held[i];
	if (!h)
		h = held_new(w, p, l, comm, hash);
	if (h) {
		h->ready = ready;
		h->refs++;
	}
	return h;
}

/* --- threads ---------------------------------------------------------------------------------- */

static u64 tid_hash(u32 owner, u32 tid)
{
	return hash_mix(hash_mix(0x7468, owner), tid);
}

static struct thread *thread_find(struct walker *w, u32 owner, u32 tid)
{
	u64 hash = tid_hash(owner, tid);
	u32 pos, i;

	for (pos = htab_start(&w->by_tid, hash); htab_next(&w->by_tid, hash, &pos, &i);)
		if (w->threads[i].tid == tid && w->threads[i].owner == owner)
			return &w->threads[i];
	return NULL;
}

static struct thread *thread_new(struct walker *w, struct proc *p, u32 owner, u32 tid)
{
	u32 i = w->spare;

	if (i == NONE) {
		if (VEC_RESERVE(w->threads, w->threads_cap, w->nthreads + 1, WALKER_THREADS_MAX))
			return NULL;
		i = w->nthreads;
	}
	if (htab_insert(&w->by_tid, tid_hash(owner, tid), i))
		return NULL;
	if (i == w->spare)
		w->spare = w->threads[i].next;
	else
		w->nthreads++;
	w->threads[i] = (struct thread){ .tid = tid, .owner = owner, .next = p->first };
	p->first = i;
	p->nthreads++;
	w->live++;
	return &w->threads[i];
}

/* Takes a thread that is in no list any more. */
static void thread_free(struct walker *w, u32 i, bool told)
{
	struct thread *t = &w->threads[i];

	held_put(w, t->held, told);
	htab_remove(&w->by_tid, tid_hash(t->owner, t->tid), i);
	*t = (struct thread){ .next = w->spare, .owner = NONE };
	w->spare = i;
	w->live--;
}

/* Those that were not told in this turn are gone; at the end of all of them. */
static void sweep(struct walker *w, struct proc *p, bool all, bool told)
{
	u32 *at = &p->first;

	/* Ends: each turn drops a thread or goes on to the next. */
	while (*at != NONE) {
		struct thread *t = &w->threads[*at];
		u32 i = *at;

		if (!all && t->turn == p->turn) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		p->nthreads--;
		thread_free(w, i, told);
	}
}

/* --- charging --------------------------------------------------------------------------------- */

/*
 * Time since the last look that was not spent on a CPU: it is owed until it is known where. What
 * was spent on a CPU is the sampler's. A thread that was seen for the first time owes what the
 * process has been looked at.
 */
static void owe(struct walker *w, struct thread *t, u64 cpu_ns)
{
	t->owed += (s64)(w->now - MIN(t->last_ns, w->now)) - (s64)(cpu_ns - t->cpu_ns);
	t->last_ns = w->now;
	t->cpu_ns = cpu_ns;
}

static void charge(struct thread *t)
{
	if (t->held && t->owed > 0)
		t->held->ns += (u64)t->owed;
	if (!t->held || t->owed > 0)
		t->owed = 0;
}

static void stand_on(struct walker *w, struct thread *t, struct held *h)
{
	struct held *old = t->held;

	t->held = h;
	t->known = true;
	held_put(w, old, true);
}

/* A thread that nobody knows yet, in a process that has been looked at before: it is young. */
static void begin(struct walker *w, const struct proc *p, struct thread *t,
		  const struct thread_event *ev)
{
	u64 span = w->now - p->last_ns;
	bool young = p->last_ns && ev->cpu_ns < span;

	t->last_ns = young ? p->last_ns : w->now;
	t->cpu_ns = young ? 0 : ev->cpu_ns;
	t->owed = 0;
	t->start_ns = ev->start_ns;
}

/* The thread of a record, its time counted; NULL: too many. */
static struct thread *thread_of(struct walker *w, struct proc *p, const struct thread_event *ev)
{
	u32 owner = (u32)(p - w->procs);
	struct thread *t = thread_find(w, owner, ev->tid);

	if (!t) {
		t = thread_new(w, p, owner, ev->tid);
		if (!t)
			return NULL;
		begin(w, p, t, ev);
	} else if (t->start_ns != ev->start_ns) {
		/* Another thread by now, under the same number. */
		stand_on(w, t, NULL);
		begin(w, p, t, ev);
	}
	owe(w, t, ev->cpu_ns);
	t->turn = p->turn;
	return t;
}

/* A list that is certain. Told at once when it is new: what names it has can be read now. */
static void take_list(struct walker *w, struct proc *p, struct thread *t, const struct list *l,
		      const struct thread_event *ev)
{
	bool ready = ev->state == 'R';
	struct held *h = l->n ? held_get(w, p, l, ev->comm, ready) : NULL;

	stand_on(w, t, h);
	w->figures.walked++;
	if (l->n && !h) {
		/* No room to hold it: told now, and asked for again. */
		if (t->owed > 0)
			w->o.waited(w->o.arg, p->process, p->gen, l, ev->comm, ready, (u64)t->owed);
		t->known = false;
		stat_inc(STAT_wall_no_room);
		w->kernel.forget(w->kernel.arg, p->process->pid);
	}
	charge(t);
	if (h && h->refs == 1)
		tell(w, h);
}

/* Where it waited, if it did, is found the next time. */
static void take_moved(struct walker *w, struct thread *t, bool on_cpu)
{
	stand_on(w, t, NULL);
	t->known = false;
	if (!on_cpu)
		w->figures.moved++;
}

static struct list list_of(const struct thread_event *ev, const u64 *words)
{
	return (struct list){
		.words = words,
		.n = ev->nlist,
		.width = ev->list_width,
		.end = ev->list_end,
		.head = ev->list_head,
		.flag = ev->list_flag,
		.ip = ev->ip,
		.ip_image = true,
	};
}

struct look {
	struct walker *w;
	struct proc *proc;
	bool lost; /* a record said "as before", but there is no before */
};

static void take_same(struct look *k, u32 tid)
{
	struct walker *w = k->w;
	struct thread *t = thread_find(w, (u32)(k->proc - w->procs), tid);

	if (!t || !t->known) {
		k->lost = true;
		return;
	}
	t->turn = k->proc->turn;
	w->figures.same++;
	owe(w, t, t->cpu_ns);
	charge(t);
}

static void on_record(void *arg, const struct thread_event *ev, const u64 *words)
{
	struct look *k = arg;
	struct walker *w = k->w;
	struct thread *t;
	struct list l;

	if (ev->kind == THREAD_SAME) {
		take_same(k, ev->tid);
		return;
	}
	t = thread_of(w, k->proc, ev);
	if (!t) {
		stat_inc(STAT_wall_no_room);
		return;
	}
	t->switches = ev->switches;
	if (ev->kind != THREAD_LIST || ev->list_end == LIST_END_MOVED) {
		take_moved(w, t, ev->on_cpu & THREAD_ON_CPU);
		return;
	}
	l = list_of(ev, words);
	w->walks++;
	take_list(w, k->proc, t, &l, ev);
}

/* --- from outside: kernels that read no lists -------------------------------------------------- */

static void on_count(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct look *k = arg;
	struct walker *w = k->w;
	struct thread *t = thread_of(w, k->proc, ev);

	if (!t)
		return;
	if (ev->on_cpu) {
		take_moved(w, t, true);
		t->switches = ev->switches;
		return;
	}
	if (t->known && t->switches == ev->switches) {
		w->figures.same++;
		charge(t);
		return;
	}
	if (VEC_RESERVE(w->outside, w->outside_cap, w->noutside + 1, OUTSIDE_WALKS)) {
		take_moved(w, t, false);
		return;
	}
	w->outside[w->noutside++] = (struct outside){ .ev = *ev };
}

static int by_tid(const void *a, const void *b)
{
	const struct outside *x = a, *y = b;

	return x->ev.tid < y->ev.tid ? -1 : x->ev.tid > y->ev.tid;
}

static void on_second_count(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct outside key = { .ev = { .tid = ev->tid } }, *x;
	struct look *k = arg;
	struct walker *w = k->w;

	x = w->noutside ? bsearch(&key, w->outside, w->noutside, sizeof(key), by_tid) : NULL;
	if (x && !ev->on_cpu && ev->switches == x->ev.switches && ev->start_ns == x->ev.start_ns)
		x->stood_still = true;
}

/* One thread's list; its words are copied, since the next thread's come to the same place. */
static void walk_outside(const struct runtime *r, struct target *t, struct outside *x)
{
	const struct recipe *recipe;
	struct runtime_info info;
	u64 words[LIST_WORDS_MAX];
	size_t bytes;

	runtime_info(r, &info);
	recipe = list_recipe_for(&info.found->recipe, x->ev.tid == info.process->pid);
	target_begin(t);
	list_walk(t, recipe, x->ev.tp, runtime_head(r, x->ev.tid), words, &x->list);
	bytes = (size_t)x->list.n * x->list.width * sizeof(u64);
	x->words = malloc(MAX(bytes, sizeof(u64)));
	if (x->words)
		memcpy(x->words, words, bytes);
	x->list.words = x->words;
	x->list.ip_image = true;
}

/*
 * Threads that ran since the last look are read between two counts: those that stood still and off
 * the CPUs in both have the list that was read.
 */
static int look_outside(struct walker *w, struct proc *p, struct look *k, struct threads_told *told)
{
	struct runtime *r = runtime_of(p->process);
	struct target *t = r ? runtime_target(w->runtimes, r) : NULL;
	struct threads_told second;
	u32 i;
	int err;

	if (!t)
		return -EIO;
	w->noutside = 0;
	err = w->kernel.counts(w->kernel.arg, p->process->pid, on_count, k, told);
	if (err || !w->noutside)
		return err;
	qsort(w->outside, w->noutside, sizeof(*w->outside), by_tid);
	for (i = 0; i < w->noutside; i++)
		walk_outside(r, t, &w->outside[i]);
	err = w->kernel.counts(w->kernel.arg, p->process->pid, on_second_count, k, &second);
	for (i = 0; i < w->noutside; i++) {
		struct outside *x = &w->outside[i];
		struct thread *thread = thread_find(w, (u32)(p - w->procs), x->ev.tid);

		w->walks++;
		if (thread && x->words && x->stood_still && !err) {
			thread->switches = x->ev.switches;
			take_list(w, p, thread, &x->list, &x->ev);
		} else if (thread) {
			take_moved(w, thread, false);
		}
		free(x->words);
	}
	return t->hung ? -ETIMEDOUT : err;
}

/* --- processes -------------------------------------------------------------------------------- */

static void proc_drop(struct walker *w, struct proc *p, bool told)
{
	sweep(w, p, true, told);
	*p = (struct proc){ .first = NONE };
	w->figures.processes--;
}

static void on_drop(void *arg, struct process *process)
{
	struct walker *w = arg;
	u32 i;

	/* Its names are gone with the image: what was not told is lost with them. */
	for (i = 0; i < w->nprocs; i++)
		if (w->procs[i].process == process)
			proc_drop(w, &w->procs[i], false);
}

void walker_free(struct walker *w)
{
	u32 i;

	if (!w)
		return;
	processes_off_drop(w->processes, w);
	for (i = 0; i < w->nprocs; i++)
		if (w->procs[i].process)
			proc_drop(w, &w->procs[i], false);
	htab_fini(&w->by_tid);
	htab_fini(&w->by_words);
	free(w->procs);
	free(w->threads);
	free(w->held);
	free(w->outside);
	free(w);
}

static struct proc *proc_find(struct walker *w, const struct process *process)
{
	u32 i;

	for (i = 0; i < w->nprocs; i++)
		if (w->procs[i].process == process)
			return &w->procs[i];
	return NULL;
}

static struct proc *proc_new(struct walker *w)
{
	u32 i;

	for (i = 0; i < w->nprocs; i++)
		if (!w->procs[i].process)
			return &w->procs[i];
	if (VEC_RESERVE(w->procs, w->procs_cap, w->nprocs + 1, RECIPE_ENTRIES_MAX))
		return NULL;
	return &w->procs[w->nprocs++];
}

static bool is_walked(const struct runtime_info *info)
{
	const struct unwinder *u = info->found->unwinder;
	u8 head = info->found->recipe.head;

	/* The head of a walk through code made at run time is known in a sample only. */
	return info->found->verdict == UNWIND_OK && info->gen && !info->left_alone &&
	       !u->running_only && head != RECIPE_NO_HEAD && head != RECIPE_JIT_FP &&
	       !info->process->replaced;
}

static void proc_begin(struct walker *w, const struct runtime_info *info)
{
	struct proc *p = proc_new(w);
	u32 hz = w->o.hz ? w->o.hz(w->o.hz_arg, info->found->unwinder) : STANDARD_HZ;

	if (!p)
		return;
	*p = (struct proc){
		.process = info->process,
		.gen = info->gen,
		.first = NONE,
		.period_ns = NSEC_PER_SEC / MAX(hz, 1u),
		.due_ns = w->now,
	};
	w->kernel.forget(w->kernel.arg, info->process->pid);
	w->figures.processes++;
}

/* Who came, who went, who has another recipe. */
static void sync_procs(struct walker *w)
{
	struct runtime_info info;
	struct runtime *r;
	u32 i;

	for (i = 0; i < w->nprocs; i++) {
		struct proc *p = &w->procs[i];

		if (!p->process)
			continue;
		info.gen = 0;
		r = runtime_of(p->process);
		if (r)
			runtime_info(r, &info);
		if (info.gen != p->gen || !is_walked(&info))
			proc_drop(w, p, info.gen == p->gen);
	}
	for (r = runtimes_next(w->runtimes, NULL); r; r = runtimes_next(w->runtimes, r)) {
		runtime_info(r, &info);
		if (is_walked(&info) && !proc_find(w, info.process))
			proc_begin(w, &info);
	}
}

static int ask_kernel(struct walker *w, struct proc *p, struct look *k, struct threads_told *told)
{
	const struct process *process = p->process;
	const struct runtime *r = runtime_of(process);
	struct recipe_entry e = { .gen = p->gen };
	struct runtime_info info;

	if (!r)
		return -ESRCH;
	if (!w->kernel.walk)
		return look_outside(w, p, k, told);
	if (process->id_known) {
		e.start_ns = process->start_ns;
		e.exec_id = process->exec_id;
	}
	runtime_info(r, &info);
	e.recipe = info.found->recipe;
	return w->kernel.walk(w->kernel.arg, process->pid, &e, on_record, k, told);
}

static void look(struct walker *w, struct proc *p)
{
	struct look k = { .w = w, .proc = p };
	struct threads_told told = { 0 };
	int err = ask_kernel(w, p, &k, &told);

	w->figures.ticks++;
	if (err) {
		/* Its memory hangs, or the kernel is busy with it still: ever more seldom. */
		w->figures.failed++;
		p->pause_ns = p->pause_ns ? MIN(p->pause_ns * 2, PAUSE_MAX_NS) : PAUSE_MIN_NS;
		p->due_ns = w->now + p->pause_ns;
		sweep(w, p, true, true);
		p->last_ns = 0;
		return;
	}
	p->pause_ns = 0;
	if (k.lost)
		w->kernel.forget(w->kernel.arg, p->process->pid);
	/* All were told: who was not is gone. Else the next look goes on with the rest. */
	if (!told.more) {
		sweep(w, p, false, true);
		p->turn++;
		p->last_ns = w->now;
	}
	p->due_ns += p->period_ns;
	if (p->due_ns <= w->now)
		p->due_ns = w->now + p->period_ns;
}

static u64 cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void look_at_all(struct walker *w, u64 start)
{
	u64 allowed = TICK_NS * w->share / 100;
	u32 walks = MAX(TICK_WALKS * w->share / 100, 1u), n, first = w->at;
	bool looked = false;

	w->walks = 0;
	for (n = 0; n < w->nprocs; n++) {
		struct proc *p = &w->procs[(first + n) % w->nprocs];

		if (!p->process || p->due_ns > w->now)
			continue;
		if (looked && (w->walks >= walks || now_monotonic() - start > allowed)) {
			w->figures.late++;
			continue;
		}
		look(w, p);
		looked = true;
		w->at = (first + n + 1) % w->nprocs;
	}
}

/* Since cpu, which naming (counted by the book of runtimes) has taken `naming` of. */
static u64 own_time(const struct walker *w, u64 cpu, u64 naming)
{
	u64 all = cpu_time() - cpu, names = runtimes_cpu_ns(w->runtimes) - naming;

	return all - MIN(all, names);
}

void walker_tick(struct walker *w, u64 now_ns)
{
	u64 cpu = cpu_time(), start = now_monotonic(), naming = runtimes_cpu_ns(w->runtimes);
	u32 i;

	w->now = now_ns;
	if (now_ns - w->sync_ns >= SYNC_NS) {
		w->sync_ns = now_ns;
		sync_procs(w);
	}
	look_at_all(w, start);
	w->due_ns = w->sync_ns + SYNC_NS;
	for (i = 0; i < w->nprocs; i++)
		if (w->procs[i].process)
			w->due_ns = MIN(w->due_ns, w->procs[i].due_ns);
	/* Work that was put off comes next, but not without a breath. */
	w->due_ns = MAX(w->due_ns, now_ns + NSEC_PER_SEC / 200);
	w->figures.cpu_ns += own_time(w, cpu, naming);
}

u64 walker_due(const struct walker *w)
{
	return w->due_ns;
}

void walker_flush(struct walker *w)
{
	u64 cpu = cpu_time(), naming = runtimes_cpu_ns(w->runtimes);
	u32 i;

	for (i = 0; i < w->nheld; i++)
		if (w->held[i]->ns)
			tell(w, w->held[i]);
	w->figures.cpu_ns += own_time(w, cpu, naming);
}

void walker_set_share(struct walker *w, u32 percent)
{
	w->share = MAX(MIN(percent, 100u), 1u);
}

void walker_figures(const struct walker *w, struct walker_figures *ret)
{
	*ret = w->figures;
	ret->threads = w->live;
	ret->held_bytes = w->held_bytes;
}
