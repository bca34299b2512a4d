// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See runtime.h. Work is done in rounds: a sample only puts its image into a queue.
 * Files in which no unwinder found anything are remembered, so that most processes cost a look at
 * their mappings and no read at all.
 */
#include "runtime.h"

#include "htab.h"
#include "log.h"
#include "process.h"
#include "reader.h"
#include "stat.h"
#include "target.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define ROUND_NS        (NSEC_PER_SEC / 50) /* of detecting; at least one process a round */
#define LOOK_PAUSE_NS   NSEC_PER_SEC        /* between two looks at changed mappings */
#define HEADS_PAUSE_NS  NSEC_PER_SEC
#define TARGET_IDLE_NS  (60 * NSEC_PER_SEC)
#define IN_USE_NS       (60 * NSEC_PER_SEC) /* a recipe gives way when no sample asked so long */
#define NAMES_PAUSE_NS  (60 * NSEC_PER_SEC)
#define ALONE_MIN_NS    (10 * NSEC_PER_SEC)
#define ALONE_MAX_NS    (600 * NSEC_PER_SEC)
#define CLEAN_PAUSE_NS  (600 * NSEC_PER_SEC)
#define CLEAN_MAX       65536
#define LOGGED_MAX      4096
#define FILES_LOOKED_AT 8192 /* mappings of one process */
#define HEADS_MAX       4096 /* of one process */
#define VERDICT_WINDOW  128  /* lists after which a process is judged */
#define FAULT_TRIES     3

#define LIST_NS 50000 /* that naming one list takes at most: with all names known, */
#define READ_NS 50000 /* and for each read that one was not */

/* Reads that names may cost: of one image, of all; at once, and per second. */
#define IMAGE_READS   20000
#define IMAGE_READS_S 1000
#define ALL_READS     100000
#define ALL_READS_S   5000

struct bucket {
	u64 left, ns;
};

/* What user space told the kernel for a thread (RECIPE_TID). */
struct head_of {
	u32 tid, ns_tid;
	u64 head;
};

struct runtime {
	struct runtimes *book;
	struct process *process;
	struct runtime_found found;
	struct target *target; /* kept while it is used */
	struct frame_names *names;
	struct runtime *next; /* in the queue */
	u32 slot, gen, tries;
	bool queued, armed;
	u64 retry_ns; /* when a refused one may be asked again; UINT64_MAX: never */
	u64 used_ns, target_ns, names_ns, heads_ns;
	u64 alone_ns, alone_pause; /* left alone until then */
	u32 good, bad;             /* lists since the last judgement */
	struct bucket reads;
	struct head_of *heads; /* sorted by ns_tid */
	u32 nheads;
	u64 lists[UNWIND_VERDICT_MAX];
};

struct runtimes {
	struct processes *procs;
	struct reader *reader;
	struct target_files *files;
	struct runtimes_kernel kernel;
	struct runtime_choice choice;
	struct runtime **v;
	u32 n, cap;
	struct htab by_pid;
	struct runtime *first, *last; /* the queue */
	u32 nqueued, gen;
	u64 *clean; /* files without a runtime */
	u32 nclean, clean_cap;
	struct htab by_file;
	u64 clean_ns, house_ns;
	struct htab logged;
	struct frame_names_total total;
	struct bucket reads;
	struct runtimes_figures figures;
};

/* --- the book --------------------------------------------------------------------------------- */

static u64 clock_now(const struct runtimes *rs)
{
	return rs->kernel.now ? rs->kernel.now(rs->kernel.arg) : now_monotonic();
}

static u64 pid_hash(u32 pid)
{
	return hash_mix(0x72756e74, pid);
}

/* Names of the image that was used least recently make room for others'. */
static void evict_names(void *arg, const struct frame_names *keep)
{
	struct runtimes *rs = arg;
	u32 turns;

	/* Each turn empties one image's names. */
	for (turns = 0; turns < rs->n && rs->total.bytes > rs->total.max / 8 * 7; turns++) {
		struct runtime *oldest = NULL;
		u32 i;

		for (i = 0; i < rs->n; i++) {
			struct runtime *r = rs->v[i];

			if (r->names && r->names != keep && frame_names_bytes(r->names) &&
			    (!oldest || r->used_ns < oldest->used_ns))
				oldest = r;
		}
		if (!oldest)
			return;
		frame_names_clear(oldest->names);
	}
}

static void on_drop(void *arg, struct process *p);

struct runtimes *runtimes_new(struct processes *procs, struct reader *reader,
			      const struct runtimes_kernel *kernel,
			      const struct runtime_choice *choice)
{
	struct runtimes *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	rs->procs = procs;
	rs->reader = reader;
	rs->kernel = *kernel;
	if (choice)
		rs->choice = *choice;
	rs->total = (struct frame_names_total){
		.max = FRAME_NAMES_BYTES,
		.evict = evict_names,
		.arg = rs,
	};
	rs->files = target_files_new();
	if (!rs->files) {
		free(rs);
		return NULL;
	}
	processes_on_drop(procs, on_drop, rs);
	return rs;
}

static void close_target(struct runtime *r)
{
	target_free(r->target);
	r->target = NULL;
}

static void forget_heads(struct runtimes *rs, struct runtime *r)
{
	u32 i;

	for (i = 0; i < r->nheads; i++)
		if (r->heads[i].tid)
			rs->kernel.head(rs->kernel.arg, r->heads[i].tid, 0);
	free(r->heads);
	r->heads = NULL;
	r->nheads = 0;
}

static struct runtime *armed_image(struct runtimes *rs, u32 pid, const struct runtime *but)
{
	u32 pos = htab_start(&rs->by_pid, pid_hash(pid)), i;

	while (htab_next(&rs->by_pid, pid_hash(pid), &pos, &i))
		if (rs->v[i]->process->pid == pid && rs->v[i]->armed && rs->v[i] != but)
			return rs->v[i];
	return NULL;
}

static void disarm(struct runtimes *rs, struct runtime *r)
{
	u32 pid = r->process->pid;

	if (!r->armed)
		return;
	/* A younger image of the pid may have taken the place over. */
	if (!armed_image(rs, pid, r))
		rs->kernel.disarm(rs->kernel.arg, pid);
	r->armed = false;
	forget_heads(rs, r);
}

static void unqueue(struct runtimes *rs, struct runtime *r)
{
	struct runtime **at = &rs->first, *before = NULL;

	if (!r->queued)
		return;
	/* Ends: r is in the queue. */
	while (*at != r) {
		before = *at;
		at = &before->next;
	}
	*at = r->next;
	if (rs->last == r)
		rs->last = before;
	r->queued = false;
	rs->nqueued--;
}

static void runtime_drop(struct runtimes *rs, struct runtime *r)
{
	struct runtime *last;

	disarm(rs, r);
	unqueue(rs, r);
	htab_remove(&rs->by_pid, pid_hash(r->process->pid), r->slot);
	last = rs->v[--rs->n];
	if (last != r) {
		htab_remove(&rs->by_pid, pid_hash(last->process->pid), rs->n);
		last->slot = r->slot;
		rs->v[last->slot] = last;
		/* Removed above: there is room. */
		htab_insert(&rs->by_pid, pid_hash(last->process->pid), last->slot);
	}
	r->process->runtime = NULL;
	close_target(r);
	frame_names_free(r->names);
	runtime_found_fini(&r->found);
	free(r);
}

static void on_drop(void *arg, struct process *p)
{
	if (p->runtime)
		runtime_drop(arg, p->runtime);
}

void runtimes_free(struct runtimes *rs)
{
	if (!rs)
		return;
	processes_off_drop(rs->procs, rs);
	while (rs->n)
		runtime_drop(rs, rs->v[rs->n - 1]);
	target_files_free(rs->files);
	htab_fini(&rs->by_pid);
	htab_fini(&rs->by_file);
	htab_fini(&rs->logged);
	free(rs->v);
	free(rs->clean);
	free(rs);
}

static void enqueue(struct runtimes *rs, struct runtime *r)
{
	if (r->queued)
		return;
	r->queued = true;
	r->next = NULL;
	if (rs->last)
		rs->last->next = r;
	else
		rs->first = r;
	rs->last = r;
	rs->nqueued++;
}

static struct runtime *runtime_new(struct runtimes *rs, struct process *p)
{
	struct runtime *r;

	if (VEC_RESERVE(rs->v, rs->cap, rs->n + 1, PROCESSES_MAX))
		return NULL;
	r = calloc(1, sizeof(*r));
	if (!r || htab_insert(&rs->by_pid, pid_hash(p->pid), rs->n)) {
		stat_inc(STAT_no_memory);
		free(r);
		return NULL;
	}
	r->book = rs;
	r->process = p;
	r->slot = rs->n;
	p->runtime = r;
	rs->v[rs->n++] = r;
	return r;
}

/* --- files without a runtime ------------------------------------------------------------------ */

static bool is_clean(const struct runtimes *rs, u64 file)
{
	u32 pos, i;

	for (pos = htab_start(&rs->by_file, file); htab_next(&rs->by_file, file, &pos, &i);)
		if (rs->clean[i] == file)
			return true;
	return false;
}

/* A runtime lies in some file; files that were looked at in vain need no second look. */
static bool all_clean(const struct runtimes *rs, const struct process *p)
{
	u64 file;
	u32 i;

	for (i = 0; i < FILES_LOOKED_AT && processes_file(p, i, &file); i++)
		if (file && !is_clean(rs, file))
			return false;
	return true;
}

static void mark_clean(struct runtimes *rs, const struct process *p, u64 now)
{
	u64 file;
	u32 i;

	/* What a file held may change with its content under the same name. */
	if (now - rs->clean_ns > CLEAN_PAUSE_NS || rs->nclean > CLEAN_MAX) {
		rs->clean_ns = now;
		rs->nclean = 0;
		htab_clear(&rs->by_file);
	}
	for (i = 0; i < FILES_LOOKED_AT && processes_file(p, i, &file); i++) {
		if (!file || is_clean(rs, file) ||
		    VEC_RESERVE(rs->clean, rs->clean_cap, rs->nclean + 1,
				CLEAN_MAX + FILES_LOOKED_AT) ||
		    htab_insert(&rs->by_file, file, rs->nclean))
			continue;
		rs->clean[rs->nclean++] = file;
	}
}

/* --- wanting ---------------------------------------------------------------------------------- */

static void want_again(struct runtimes *rs, struct runtime *r, u64 now)
{
	r->used_ns = now;
	if (r->found.verdict == UNWIND_OK && r->found.unwinder) {
		if (!r->armed && r->found.recipe.head != RECIPE_NO_HEAD && r->process->id_known &&
		    now >= r->alone_ns && now >= r->retry_ns)
			enqueue(rs, r);
	} else if (now >= r->retry_ns) {
		enqueue(rs, r);
	}
}

void runtimes_want(struct runtimes *rs, struct process *p)
{
	u64 now = clock_now(rs);
	struct runtime *r = p->runtime;

	if (r) {
		want_again(rs, r, now);
		return;
	}
	if (!p->maps || p->runtime_seen == p->maps_version + 1 ||
	    (p->runtime_ns && now - p->runtime_ns < LOOK_PAUSE_NS))
		return;
	if (all_clean(rs, p)) {
		p->runtime_seen = p->maps_version + 1;
		p->runtime_ns = now;
		return;
	}
	r = runtime_new(rs, p);
	if (!r)
		return;
	r->used_ns = now;
	enqueue(rs, r);
}

u32 runtimes_queued(const struct runtimes *rs)
{
	return rs->nqueued;
}

struct runtime *runtime_of(const struct process *p)
{
	struct runtime *r = p->runtime;

	return r && r->found.unwinder ? r : NULL;
}

struct runtime *runtimes_next(struct runtimes *rs, struct runtime *after)
{
	u32 i;

	for (i = after ? after->slot + 1 : 0; i < rs->n; i++)
		if (rs->v[i]->found.unwinder)
			return rs->v[i];
	return NULL;
}

void runtime_info(const struct runtime *r, struct runtime_info *ret)
{
	*ret = (struct runtime_info){
		.process = r->process,
		.found = &r->found,
		.armed = r->armed,
		.left_alone = r->alone_ns > clock_now(r->book),
		.gen = r->gen,
	};
	memcpy(ret->lists, r->lists, sizeof(ret->lists));
}

/* --- the process's memory --------------------------------------------------------------------- */

struct thread_relay {
	struct runtimes *rs;
	target_thread_fn *fn;
	void *arg;
};

static void relay_thread(void *arg, u32 tid __unused, const struct target_thread *thread)
{
	struct thread_relay *relay = arg;

	relay->fn(relay->arg, thread);
}

static int target_threads(void *arg, u32 tgid, target_thread_fn *fn, void *fn_arg)
{
	struct thread_relay relay = { arg, fn, fn_arg };
	const struct runtimes_kernel *k = &relay.rs->kernel;

	return k->threads(k->arg, tgid, relay_thread, &relay);
}

static int open_target(struct runtimes *rs, struct runtime *r)
{
	const struct runtimes_kernel *k = &rs->kernel;
	u32 pid = r->process->pid;

	if (r->target)
		return 0;
	if (r->process->replaced)
		return -ESRCH;
	if (k->target)
		return k->target(k->arg, pid, &r->target);
	return target_live_new(pid, rs->reader, rs->files, k->threads ? target_threads : NULL, rs,
			       &r->target);
}

struct target *runtime_target(struct runtimes *rs, struct runtime *r)
{
	u64 now = clock_now(rs);

	if (now < r->alone_ns || open_target(rs, r))
		return NULL;
	r->target_ns = now;
	return r->target;
}

/* Nothing can be read of it any more: known names are still names. */
static int no_read(struct target *t __unused, u64 addr __unused, void *dst __unused,
		   size_t len __unused)
{
	return -EFAULT;
}

static bool no_module(struct target *t __unused, u32 i __unused, struct target_module *m __unused)
{
	return false;
}

static u64 no_symbol(struct target *t __unused, u32 i __unused, const char *name __unused,
		     u64 *size __unused)
{
	return 0;
}

static bool no_function(struct target *t __unused, u32 i __unused, u64 addr __unused,
			u64 *lo __unused, u64 *hi __unused)
{
	return false;
}

static bool no_thread(struct target *t __unused, u32 i __unused,
		      struct target_thread *thread __unused)
{
	return false;
}

static enum target_memory no_memory(struct target *t __unused, u64 addr __unused)
{
	return TARGET_NOTHING;
}

static int no_string(struct target *t __unused, u64 addr __unused, size_t len __unused,
		     char *dst __unused, size_t size __unused)
{
	return -EFAULT;
}

static const struct target_ops gone_ops = {
	.read = no_read,
	.string = no_string,
	.module = no_module,
	.symbol = no_symbol,
	.section = no_symbol,
	.function = no_function,
	.thread = no_thread,
	.memory = no_memory,
	.direct = true,
};

static enum target_arch host_arch(void)
{
#ifdef __aarch64__
	return TARGET_ARM64;
#else
	return TARGET_X86_64;
#endif
}

/* --- back-off --------------------------------------------------------------------------------- */

static void leave_alone(struct runtimes *rs, struct runtime *r, u64 now)
{
	r->alone_pause = r->alone_pause ? MIN(r->alone_pause * 2, ALONE_MAX_NS) : ALONE_MIN_NS;
	r->alone_ns = now + r->alone_pause;
	r->good = r->bad = 0;
	disarm(rs, r);
	close_target(r);
	stat_inc(STAT_runtime_left_alone);
	log_debug("process %u: %s; left alone for %u s", r->process->pid,
		  r->found.unwinder ? r->found.unwinder->title : "no runtime known",
		  (u32)(r->alone_pause / NSEC_PER_SEC));
}

/* When a refused process may be asked again. */
static void set_retry(struct runtime *r, enum verdict v, u64 now)
{
	static const u64 ready[] = { NSEC_PER_SEC / 10, NSEC_PER_SEC, 10 * NSEC_PER_SEC };
	u32 n = r->tries++;
	u64 pause;

	switch (v) {
	case UNWIND_OK:
		r->tries = 0;
		r->retry_ns = 0;
		return;
	case UNWIND_OFF:
	case UNWIND_VERSION:
	case UNWIND_NO_SYMBOL:
		r->retry_ns = UINT64_MAX;
		return;
	case UNWIND_NOT_READY:
		/* Loaded, and perhaps never used: ever more seldom. */
		pause = n < ARRAY_SIZE(ready) ? ready[n]
					      : MIN(ready[2] << MIN(n - 2, 8u), ALONE_MAX_NS);
		break;
	case UNWIND_FAULT:
		pause = MIN(NSEC_PER_SEC << MIN(n, 16u), ALONE_MAX_NS);
		break;
	default:
		/* It runs while it is looked at; what is still wrong after three times is wrong. */
		pause = NSEC_PER_SEC * (n ? 10 : 1);
		if (n >= FAULT_TRIES) {
			r->retry_ns = UINT64_MAX;
			return;
		}
	}
	r->retry_ns = now + pause;
}

/* --- detecting -------------------------------------------------------------------------------- */

/* Once per program, version and reason. */
static bool logged_before(struct runtimes *rs, const struct runtime *r)
{
	const char *exe = r->process->exe ? r->process->exe : r->process->comm;
	u64 hash = hash_bytes(exe, strlen(exe));
	u32 pos, i;

	hash = hash_mix(hash, (uintptr_t)r->found.unwinder);
	hash = hash_mix(hash, hash_bytes(&r->found.version, sizeof(r->found.version)));
	hash = hash_mix(hash, r->found.verdict);
	pos = htab_start(&rs->logged, hash);
	if (htab_next(&rs->logged, hash, &pos, &i))
		return true;
	if (rs->logged.n >= LOGGED_MAX)
		htab_clear(&rs->logged);
	return htab_insert(&rs->logged, hash, 0) != 0;
}

static void log_found(struct runtimes *rs, const struct runtime *r)
{
	const struct process *p = r->process;
	enum verdict v = r->found.verdict;
	char text[256];

	/* Those that may mend themselves get their time. */
	if ((v == UNWIND_NOT_READY || v == UNWIND_BAD_LAYOUT || v == UNWIND_FAULT) &&
	    r->tries < FAULT_TRIES)
		return;
	if (v == UNWIND_OFF || logged_before(rs, r))
		return;
	runtime_found_text(&r->found, text, sizeof(text));
	if (v == UNWIND_OK)
		log_debug("process %u (%s): %s", p->pid, p->exe ? p->exe : p->comm, text);
	else
		log_info("process %u (%s): %s; its stacks stay native", p->pid,
			 p->exe ? p->exe : p->comm, text);
}

/* Recipes that no sample asked for of late make room. */
static bool make_room(struct runtimes *rs, const struct runtime *but, u64 now)
{
	struct runtime *oldest = NULL;
	u32 i;

	for (i = 0; i < rs->n; i++)
		if (rs->v[i]->armed && rs->v[i] != but &&
		    (!oldest || rs->v[i]->used_ns < oldest->used_ns))
			oldest = rs->v[i];
	if (!oldest || now - oldest->used_ns < IN_USE_NS)
		return false;
	disarm(rs, oldest);
	return true;
}

static void arm(struct runtimes *rs, struct runtime *r, u64 now)
{
	const struct process *p = r->process;
	struct recipe_entry e = {
		.start_ns = p->start_ns,
		.exec_id = p->exec_id,
		.recipe = r->found.recipe,
	};
	int err;

	if (r->found.recipe.head == RECIPE_NO_HEAD || p->replaced)
		return;
	if (!r->gen)
		r->gen = ++rs->gen;
	/* A sample has to tell which image it is; until then walks from outside must do. */
	if (!p->id_known)
		return;
	e.gen = r->gen;
	err = rs->kernel.arm(rs->kernel.arg, p->pid, &e);
	if (err && make_room(rs, r, now))
		err = rs->kernel.arm(rs->kernel.arg, p->pid, &e);
	if (err) {
		stat_inc(STAT_runtime_no_room);
		r->retry_ns = now + ALONE_MIN_NS;
		return;
	}
	r->armed = true;
	r->heads_ns = 0;
}

/* A child that has not executed anything has its parent's addresses: the proof is made again. */
static bool adopt(struct runtimes *rs, struct runtime *r)
{
	u32 ppid = r->process->ppid, pos = htab_start(&rs->by_pid, pid_hash(ppid)), i;

	while (htab_next(&rs->by_pid, pid_hash(ppid), &pos, &i)) {
		const struct runtime_found *from = &rs->v[i]->found;
		void *state;

		if (rs->v[i]->process->pid != ppid || from->verdict != UNWIND_OK || !from->state)
			continue;
		state = malloc(from->unwinder->state_size);
		if (!state)
			return false;
		memcpy(state, from->state, from->unwinder->state_size);
		target_begin(r->target);
		if (from->unwinder->self_check(r->target, state) != UNWIND_OK) {
			free(state);
			continue;
		}
		r->found = *from;
		r->found.state = state;
		if (runtime_prepare(&r->found) == UNWIND_OK)
			return true;
		runtime_found_fini(&r->found);
	}
	return false;
}

static void count_found(struct runtimes *rs, const struct runtime *r)
{
	rs->figures.found[unwinder_index(r->found.unwinder)][r->found.verdict]++;
	if (r->found.verdict != UNWIND_OK && r->found.verdict != UNWIND_OFF &&
	    r->found.verdict != UNWIND_NOT_READY && r->tries == 1)
		stat_inc(STAT_runtime_refused);
}

/* Nothing of a runtime: only what is mapped later can change that. */
static void look_ended_empty(struct runtimes *rs, struct runtime *r, u64 seen, u64 now)
{
	struct process *p = r->process;

	if (seen == p->maps_version)
		mark_clean(rs, p, now);
	p->runtime_seen = seen + 1;
	p->runtime_ns = now;
	runtime_drop(rs, r);
}

static void look(struct runtimes *rs, struct runtime *r, u64 now)
{
	u64 seen = r->process->maps_version;
	bool checked = false;
	int err;

	if (r->process->replaced)
		return;
	err = open_target(rs, r);
	if (err) {
		/* Gone, or it hangs: asked again when a sample says that it lives. */
		set_retry(r, UNWIND_FAULT, now);
		return;
	}
	/* Found before, and disarmed since: the same proof again. */
	if (r->found.unwinder && r->found.verdict == UNWIND_OK) {
		target_begin(r->target);
		checked = r->found.unwinder->self_check(r->target, r->found.state) == UNWIND_OK;
	}
	if (!checked) {
		runtime_found_fini(&r->found);
		r->gen = 0;
		if (!r->process->forked || !adopt(rs, r))
			runtime_detect(r->target, &rs->choice, &r->found);
	}
	r->target_ns = now;
	if (r->target->hung) {
		set_retry(r, UNWIND_FAULT, now);
		leave_alone(rs, r, now);
		return;
	}
	if (!r->found.unwinder) {
		look_ended_empty(rs, r, seen, now);
		return;
	}
	set_retry(r, r->found.verdict, now);
	count_found(rs, r);
	log_found(rs, r);
	if (r->found.verdict == UNWIND_OK)
		arm(rs, r, now);
	else
		close_target(r);
}

/* --- heads that user space tells -------------------------------------------------------------- */

struct head_list {
	struct head_of *v;
	u32 n, cap;
};

static void collect_head(void *arg, u32 ns_tid, u64 head)
{
	struct head_list *l = arg;

	if (!VEC_RESERVE(l->v, l->cap, l->n + 1, HEADS_MAX))
		l->v[l->n++] = (struct head_of){ .ns_tid = ns_tid, .head = head };
}

static int by_ns_tid(const void *a, const void *b)
{
	const struct head_of *x = a, *y = b;

	return x->ns_tid < y->ns_tid ? -1 : x->ns_tid > y->ns_tid;
}

static void collect_tid(void *arg, u32 tid, const struct target_thread *thread)
{
	struct head_of key = { .ns_tid = thread->tid }, *found;
	struct head_list *l = arg;

	found = bsearch(&key, l->v, l->n, sizeof(key), by_ns_tid);
	if (found)
		found->tid = tid;
}

/* What is new or other goes to the kernel, what is no more goes. Both are sorted. */
static void tell_heads(struct runtimes *rs, const struct head_of *old, u32 nold,
		       const struct head_of *now, u32 nnow)
{
	const struct runtimes_kernel *k = &rs->kernel;
	u32 i = 0, j = 0;

	while (i < nold || j < nnow) {
		if (j == nnow || (i < nold && old[i].ns_tid < now[j].ns_tid)) {
			if (old[i].tid)
				k->head(k->arg, old[i].tid, 0);
			i++;
		} else if (i == nold || now[j].ns_tid < old[i].ns_tid) {
			if (now[j].tid)
				k->head(k->arg, now[j].tid, now[j].head);
			j++;
		} else {
			if (old[i].tid && old[i].tid != now[j].tid)
				k->head(k->arg, old[i].tid, 0);
			if (now[j].tid && (old[i].tid != now[j].tid || old[i].head != now[j].head))
				k->head(k->arg, now[j].tid, now[j].head);
			i++;
			j++;
		}
	}
}

static void refresh_heads(struct runtimes *rs, struct runtime *r)
{
	const struct runtimes_kernel *k = &rs->kernel;
	struct target *t = runtime_target(rs, r);
	struct head_list l = { 0 };
	u32 i;

	if (!t || !k->head)
		return;
	if (runtime_heads(t, &r->found, collect_head, &l) != UNWIND_OK) {
		free(l.v);
		return;
	}
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_ns_tid);
	if (k->threads)
		k->threads(k->arg, r->process->pid, collect_tid, &l);
	else
		for (i = 0; i < l.n; i++)
			l.v[i].tid = l.v[i].ns_tid;
	tell_heads(rs, r->heads, r->nheads, l.v, l.n);
	free(r->heads);
	r->heads = l.v;
	r->nheads = l.n;
}

u64 runtime_head(const struct runtime *r, u32 tid)
{
	u32 i;

	/* At most HEADS_MAX; only where the kernel cannot do the walk. */
	for (i = 0; i < r->nheads; i++)
		if (r->heads[i].tid == tid)
			return r->heads[i].head;
	return 0;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static void house_keeping(struct runtimes *rs, u64 now)
{
	u32 i;

	for (i = 0; i < rs->n; i++) {
		struct runtime *r = rs->v[i];

		if (r->target && now - r->target_ns > TARGET_IDLE_NS)
			close_target(r);
		if (r->armed && r->found.recipe.head == RECIPE_TID &&
		    now - r->heads_ns >= HEADS_PAUSE_NS) {
			r->heads_ns = now;
			refresh_heads(rs, r);
		}
	}
}

static u64 cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

void runtimes_round(struct runtimes *rs, u64 now_ns)
{
	u64 start = now_monotonic(), cpu;

	if (!rs->first && now_ns - rs->house_ns < HEADS_PAUSE_NS)
		return;
	cpu = cpu_time();
	/* Ends: whoever is taken out is not put in again here. */
	while (rs->first) {
		struct runtime *r = rs->first;

		unqueue(rs, r);
		look(rs, r, now_ns);
		if (now_monotonic() - start > ROUND_NS)
			break;
	}
	if (now_ns - rs->house_ns >= HEADS_PAUSE_NS) {
		rs->house_ns = now_ns;
		house_keeping(rs, now_ns);
	}
	rs->figures.cpu_ns += cpu_time() - cpu;
}

/* --- lists to frames -------------------------------------------------------------------------- */

/* Fills up with time, empties with use. */
static void refill(struct bucket *b, u64 max, u64 per_s, u64 now)
{
	u64 more;

	if (!b->ns) {
		b->left = max;
		b->ns = now;
	}
	more = (now - b->ns) * per_s / NSEC_PER_SEC;
	if (more) {
		b->left = MIN(b->left + more, max);
		b->ns = now;
	}
}

static void spend(struct bucket *b, u64 n)
{
	b->left -= MIN(n, b->left);
}

/* Lists that say nothing do not judge. */
static void judge(struct runtimes *rs, struct runtime *r, enum verdict v, u64 now)
{
	if (v == UNWIND_IDLE)
		return;
	if (v == UNWIND_OK)
		r->good++;
	else
		r->bad++;
	if (r->good + r->bad < VERDICT_WINDOW)
		return;
	if (r->bad > r->good * 9) {
		leave_alone(rs, r, now);
		return;
	}
	r->alone_pause = 0;
	r->good = r->bad = 0;
}

static void count_list(struct runtimes *rs, struct runtime *r, enum verdict v)
{
	r->lists[v]++;
	rs->figures.lists[unwinder_index(r->found.unwinder)][v]++;
	if (v != UNWIND_OK && v != UNWIND_IDLE)
		stat_inc(STAT_runtime_torn);
}

static bool prepare_names(struct runtimes *rs, struct runtime *r, u64 now)
{
	if (!r->names) {
		r->names = frame_names_new(&rs->total);
		r->names_ns = now;
	} else if (frame_names_full(r->names) && now - r->names_ns > NAMES_PAUSE_NS) {
		frame_names_clear(r->names);
		r->names_ns = now;
	}
	return r->names != NULL;
}

/*
 * CPU time of naming one list. The clock that counts CPU time costs more than a list whose names are
 * known, so it is the time that has passed, without what was too long for it: others ran then. A
 * read is this thread's and the reader's time together.
 */
static u64 naming_ns(u64 passed_ns, u32 reads)
{
	return MIN(passed_ns, LIST_NS + reads * READ_NS);
}

/* What all that names a frame or a list has in common. */
static enum verdict with_frames(struct runtimes *rs, struct runtime *r, const struct list *l,
				u64 ip, struct runtime_frames *ret)
{
	const struct unwinder *u = r->found.unwinder;
	struct target gone = { .ops = &gone_ops, .arch = host_arch() }, *t;
	u64 now = clock_now(rs), start = now_monotonic();
	struct frames f;
	enum verdict v;

	ret->n = ret->nsegments = ret->nlabels = 0;
	if (!prepare_names(rs, r, now))
		return UNWIND_FAULT;
	frames_begin(&f, r->names, ret);
	f.labels_wanted = rs->choice.labels && rs->choice.labels(rs->choice.arg, u);
	refill(&r->reads, IMAGE_READS, IMAGE_READS_S, now);
	refill(&rs->reads, ALL_READS, ALL_READS_S, now);
	f.no_reads = !r->reads.left || !rs->reads.left;
	r->used_ns = now;
	t = runtime_target(rs, r);
	if (!t)
		t = &gone;
	if (l) {
		v = runtime_list(t, &r->found, l, &f);
	} else {
		target_begin(t);
		v = u->resolve(t, r->found.state, ip, &f);
		frames_end(&f);
	}
	spend(&r->reads, t->reads);
	spend(&rs->reads, t->reads);
	if (f.refused)
		stat_add(STAT_names_refused, f.refused);
	if (t->hung)
		leave_alone(rs, r, now);
	rs->figures.cpu_ns += naming_ns(now_monotonic() - start, t->reads);
	return v;
}

enum verdict runtime_frames(struct runtimes *rs, struct runtime *r, u32 gen, const struct list *l,
			    struct runtime_frames *ret)
{
	enum verdict v;

	if (!r->found.unwinder || r->found.verdict != UNWIND_OK || gen != r->gen) {
		ret->n = ret->nsegments = ret->nlabels = 0;
		stat_inc(STAT_runtime_stale);
		return UNWIND_TORN;
	}
	v = with_frames(rs, r, l, 0, ret);
	count_list(rs, r, v);
	judge(rs, r, v, clock_now(rs));
	return v;
}

enum verdict runtime_resolve(struct runtimes *rs, struct runtime *r, u64 ip,
			     struct runtime_frames *ret)
{
	if (!r->found.unwinder || r->found.verdict != UNWIND_OK || !r->found.unwinder->resolve) {
		ret->n = 0;
		return UNWIND_NOT_MINE;
	}
	return with_frames(rs, r, NULL, ip, ret);
}

u64 runtimes_cpu_ns(const struct runtimes *rs)
{
	return rs->figures.cpu_ns;
}

void runtimes_figures(const struct runtimes *rs, struct runtimes_figures *ret)
{
	u32 i;

	*ret = rs->figures;
	ret->armed = 0;
	for (i = 0; i < rs->n; i++)
		ret->armed += rs->v[i]->armed;
	ret->name_bytes = rs->total.bytes;
}
