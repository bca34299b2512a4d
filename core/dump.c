// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. See dump.h. The rooms of the line are used as they are, for one process: lists and
 * stacks are joined, folded into a window and named there.
 */
#include "dump.h"

#include "features.h"
#include "fold.h"
#include "listwalk.h"
#include "log.h"
#include "module.h"
#include "names.h"
#include "perfmap.h"
#include "offcpu.h"
#include "process.h"
#include "reader.h"
#include "sampler.h"
#include "stack.h"
#include "tables.h"
#include "target.h"
#include "threads.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#define SYMBOL_BYTES  (256u << 20)
#define TABLE_BYTES   (256u << 20)
#define NAMES_WAIT_NS (10 * NSEC_PER_SEC)
#define DETECT_NS     (3 * NSEC_PER_SEC) /* a runtime that is starting may get ready */
#define TABLES_NS     (2 * NSEC_PER_SEC)
#define SAMPLE_NS     (NSEC_PER_SEC / 2) /* until every running thread had a sample */
#define SAMPLE_HZ     997
#define LOOKS         5 /* at threads that move */
#define STATUS_MAX    8192

/* A thread and what is known of it so far. */
struct found_thread {
	struct thread_event ev;
	struct list list;
	u64 *words;                /* owned; of the list */
	bool listed;               /* list is certain, be it empty */
	bool again;                /* seen in the second of two looks, unchanged */
	struct stack_event *stack; /* owned; native stack, or NULL */
	u32 stack_len;
};

struct collector {
	const struct dump_options *o;
	struct dump *dump;
	struct processes *procs;
	struct reader *reader;
	struct perfmaps *perfmaps;
	struct threads *threads;
	struct runtimes *runtimes;
	struct sampler *sampler;
	struct tables *tables;
	struct offcpu *offcpu;
	struct stack_joiner *joiner;
	struct process *process;
	struct runtime *runtime; /* NULL: none, or refused */
	struct found_thread *v;  /* sorted by tid once looked at */
	u32 n, cap;
};

/* --- books ------------------------------------------------------------------------------------- */

static int no_arm(void *arg, u32 tgid, const struct recipe_entry *entry)
{
	struct collector *c = arg;

	return c->sampler ? sampler_arm(c->sampler, tgid, entry) : -ENODEV;
}

static void no_disarm(void *arg, u32 tgid)
{
	struct collector *c = arg;

	if (c->sampler)
		sampler_disarm(c->sampler, tgid);
}

static int set_head(void *arg, u32 tid, u64 head)
{
	struct collector *c = arg;

	return c->sampler ? sampler_head(c->sampler, tid, head) : 0;
}

static int list_threads(void *arg, u32 tgid,
			void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
			void *fn_arg)
{
	struct collector *c = arg;

	return threads_list(c->threads, tgid, fn, fn_arg);
}

static int make_books(struct collector *c, u32 pid)
{
	struct runtimes_kernel kernel = {
		.arg = c,
		.arm = no_arm,
		.disarm = no_disarm,
		.head = set_head,
	};
	struct task_event born = { .type = TASK_FORK, .pid = pid };
	struct stack_key key = { .tgid = pid };

	c->dump->modules = modules_new(SYMBOL_BYTES);
	c->procs = c->dump->modules ? processes_new(c->dump->modules, "/proc", true) : NULL;
	c->reader = reader_new();
	c->perfmaps = c->reader ? perfmaps_new(c->reader, "/proc") : NULL;
	if (!c->procs || !c->perfmaps)
		return log_err(-ENOMEM, "cannot start: out of memory");
	/* Without it, thread pointers come from the interpreter or not at all. */
	if (threads_new(features_host(), c->reader, -1, &c->threads))
		c->threads = NULL;
	else
		kernel.threads = list_threads;
	c->runtimes = runtimes_new(c->procs, c->reader, &kernel, NULL);
	if (!c->runtimes)
		return log_err(-ENOMEM, "cannot start: out of memory");
	/* As if it had just been born: the book then reads its files in /proc, and no other's. */
	processes_event(c->procs, &born);
	c->process = processes_current(c->procs, &key);
	return c->process ? 0 : -ESRCH;
}

static void collector_fini(struct collector *c)
{
	u32 i;

	for (i = 0; i < c->n; i++) {
		free(c->v[i].words);
		free(c->v[i].stack);
	}
	free(c->v);
	stack_joiner_free(c->joiner);
	offcpu_free(c->offcpu);
	tables_free(c->tables);
	runtimes_free(c->runtimes);
	threads_free(c->threads);
	sampler_free(c->sampler);
	perfmaps_free(c->perfmaps);
	processes_free(c->procs);
	reader_free(c->reader);
}

static void find_runtime(struct collector *c)
{
	u64 end = now_monotonic() + DETECT_NS;
	struct runtime_info info;
	struct runtime *r;

	do {
		runtimes_want(c->runtimes, c->process);
		while (runtimes_queued(c->runtimes))
			runtimes_round(c->runtimes, now_monotonic());
		r = runtime_of(c->process);
		if (!r)
			return;
		runtime_info(r, &info);
		if (info.found->verdict != UNWIND_NOT_READY)
			break;
		usleep(50000);
	} while (now_monotonic() < end);
	c->dump->unwinder = info.found->unwinder;
	c->dump->version = info.found->version;
	c->dump->verdict = info.found->verdict;
	runtime_found_text(info.found, c->dump->runtime, sizeof(c->dump->runtime));
	if (info.found->verdict == UNWIND_OK && info.found->recipe.head != RECIPE_NO_HEAD)
		c->runtime = r;
}

/* --- threads ----------------------------------------------------------------------------------- */

static int by_tid(const void *a, const void *b)
{
	const struct found_thread *x = a, *y = b;

	return x->ev.tid < y->ev.tid ? -1 : x->ev.tid > y->ev.tid;
}

static struct found_thread *find_thread(struct collector *c, u32 tid)
{
	struct found_thread key = { .ev = { .tid = tid } };

	return c->n ? bsearch(&key, c->v, c->n, sizeof(key), by_tid) : NULL;
}

static void keep_list(struct found_thread *t, const struct list *l)
{
	size_t bytes = (size_t)l->n * l->width * sizeof(u64);

	free(t->words);
	t->words = malloc(MAX(bytes, sizeof(u64)));
	t->listed = t->words != NULL;
	if (!t->words)
		return;
	memcpy(t->words, l->words, bytes);
	t->list = *l;
	t->list.words = t->words;
}

static void add_thread(struct collector *c, const struct thread_event *ev)
{
	if (VEC_RESERVE(c->v, c->cap, c->n + 1, DUMP_THREADS_MAX)) {
		c->dump->more = true;
		return;
	}
	c->v[c->n++] = (struct found_thread){ .ev = *ev };
}

/* A first look, in which all threads are new. The main thread says which image it is. */
static void on_first(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct collector *c = arg;
	struct stack_key key = {
		.tgid = ev->tid,
		.start_ns = ev->start_ns,
		.exec_id = ev->exec_id,
	};
	struct process *p;

	if (ev->kind == THREAD_SAME)
		return;
	add_thread(c, ev);
	p = ev->tid == c->dump->pid && ev->start_ns
		    ? processes_find(c->procs, &key, now_monotonic(), false)
		    : NULL;
	if (p)
		c->process = p;
}

/* The number behind "NAME:" in a status text; the last of several. */
static u64 status_number(const char *text, const char *name)
{
	const char *s = strstr(text, name), *end;
	u64 n = 0;

	if (!s)
		return 0;
	s += strlen(name);
	end = s + strcspn(s, "\n");
	while (s < end && isspace((u8)*s))
		s++;
	while (s < end && isdigit((u8)*s)) {
		char *next;

		n = strtoull(s, &next, 10);
		for (s = next; s < end && isspace((u8)*s); s++)
			;
	}
	return n;
}

static int read_thread(u32 pid, u32 tid, struct thread_event *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	const char *s;
	int err;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/status", pid, tid);
	err = read_file(path, STATUS_MAX, &text, NULL);
	if (err)
		return err;
	*ret = (struct thread_event){ .tid = tid, .kind = THREAD_COUNTS, .state = '?' };
	ret->ns_tid = (u32)status_number(text, "\nNSpid:");
	ret->switches = status_number(text, "\nvoluntary_ctxt_switches:") +
			status_number(text, "\nnonvoluntary_ctxt_switches:");
	s = strstr(text, "\nState:");
	if (s)
		ret->state = (u8)s[7 + strspn(s + 7, " \t")];
	/* On a CPU or waiting for one: the file does not tell which. */
	ret->on_cpu = ret->state == 'R' ? THREAD_ON_CPU : 0;
	if (!strncmp(text, "Name:", 5)) {
		s = text + 5 + strspn(text + 5, " \t");
		memcpy(ret->comm, s, MIN(strcspn(s, "\n"), (size_t)COMM_LEN - 1));
	}
	return 0;
}

/* Where the kernel's iterator is not to be had. */
static int proc_threads(u32 pid, threads_fn *fn, void *arg)
{
	char path[64];
	struct dirent *d;
	DIR *dir;
	u32 n = 0;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (n < DUMP_THREADS_MAX && (d = readdir(dir))) {
		struct thread_event ev;

		if (!isdigit((u8)d->d_name[0]))
			continue;
		n++;
		if (!read_thread(pid, (u32)atoi(d->d_name), &ev))
			fn(arg, &ev, NULL);
	}
	closedir(dir);
	return 0;
}

/* Counts of all threads. */
static int count_threads(struct collector *c, threads_fn *fn)
{
	struct threads_told told = { .more = true };
	int err = -ENODEV, turns;

	/* A process with more threads than one call tells is told in turns. */
	for (turns = 0; c->threads && turns < DUMP_THREADS_MAX / 1024 && told.more; turns++) {
		err = threads_counts(c->threads, c->dump->pid, fn, c, &told);
		if (err)
			break;
	}
	return err ? proc_threads(c->dump->pid, fn, c) : 0;
}

/* --- lists, by the kernel ------------------------------------------------------------------------ */

static void on_walked(void *arg, const struct thread_event *ev, const u64 *words)
{
	struct collector *c = arg;
	struct found_thread *t = find_thread(c, ev->tid);
	struct list l = {
		.words = words,
		.n = ev->nlist,
		.width = ev->list_width,
		.end = ev->list_end,
		.head = ev->list_head,
		.flag = ev->list_flag,
		.ip = ev->ip,
		.ip_image = true,
	};

	if (!t || ev->kind == THREAD_SAME)
		return;
	t->ev = *ev;
	if (ev->kind == THREAD_LIST && ev->list_end != LIST_END_MOVED)
		keep_list(t, &l);
}

static int walk_by_kernel(struct collector *c)
{
	struct threads_told told = { .more = true };
	struct recipe_entry e = { 0 };
	struct runtime_info info;
	int err = 0, turns;

	runtime_info(c->runtime, &info);
	e.gen = info.gen;
	e.recipe = info.found->recipe;
	for (turns = 0; !err && turns < DUMP_THREADS_MAX / 512 && told.more; turns++)
		err = threads_walk(c->threads, c->dump->pid, &e, on_walked, c, &told);
	return err;
}

/* --- lists, from outside -------------------------------------------------------------------------- */

struct heads_found {
	struct collector *c;
	u64 *heads; /* by index of the thread */
};

static void take_head(void *arg, u32 ns_tid, u64 head)
{
	struct heads_found *h = arg;
	u32 i;

	for (i = 0; i < h->c->n; i++)
		if (h->c->v[i].ev.ns_tid == ns_tid)
			h->heads[i] = head;
}

static void walk_one(struct target *t, struct found_thread *thread, bool first,
		     const struct recipe *by_tp, const struct recipe *by_tid, u64 head)
{
	static u64 words[LIST_WORDS_MAX];
	struct list l;

	thread->again = false;
	if (thread->listed || thread->ev.on_cpu)
		return;
	target_begin(t);
	if (head && by_tid)
		list_walk(t, by_tid, 0, head, words, &l);
	else
		list_walk(t, list_recipe_for(by_tp, first), thread->ev.tp, 0, words, &l);
	l.ip_image = true;
	keep_list(thread, &l);
	/* It counts when the second look finds that it stood still. */
	thread->listed = false;
	thread->again = true;
}

static void on_second(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct collector *c = arg;
	struct found_thread *t = find_thread(c, ev->tid);

	if (!t)
		return;
	if (t->again && !ev->on_cpu && ev->switches == t->ev.switches &&
	    ev->start_ns == t->ev.start_ns)
		t->listed = true;
	if (!t->listed)
		t->ev = *ev;
}

/* Between two counts; only who stood still is believed. */
static int walk_from_outside(struct collector *c)
{
	struct target *t = runtime_target(c->runtimes, c->runtime);
	_cleanup_free_ u64 *heads = calloc(MAX(c->n, 1u), sizeof(*heads));
	struct heads_found h = { c, heads };
	struct runtime_info info;
	struct recipe by_tid;
	bool twin;
	u32 i;

	if (!t || !heads)
		return -ENOMEM;
	runtime_info(c->runtime, &info);
	twin = runtime_recipe_by_tid(&info.found->recipe, &by_tid);
	if (twin && (info.found->recipe.head == RECIPE_TID || !c->threads))
		runtime_heads(t, info.found, take_head, &h);
	for (i = 0; i < c->n; i++)
		walk_one(t, &c->v[i], c->v[i].ev.tid == c->dump->pid, &info.found->recipe,
			 twin ? &by_tid : NULL, heads[i]);
	return count_threads(c, on_second);
}

static bool all_listed(const struct collector *c)
{
	u32 i;

	for (i = 0; i < c->n; i++)
		if (!c->v[i].listed)
			return false;
	return true;
}

/* Where a thread's list begins is only known to the kernel where the thread itself says it. */
static bool kernel_can_walk(const struct collector *c)
{
	struct runtime_info info;

	runtime_info(c->runtime, &info);
	return c->threads && threads_can_walk(c->threads) && info.found->recipe.head != RECIPE_TID;
}

static void walk_waiting(struct collector *c)
{
	int i, err;

	for (i = 0; i < LOOKS && !all_listed(c); i++) {
		if (i)
			usleep(2000);
		err = kernel_can_walk(c) ? walk_by_kernel(c) : walk_from_outside(c);
		if (err == -EOPNOTSUPP)
			err = walk_from_outside(c);
		if (err) {
			log_warn("process %u: its threads could not be read: %s", c->dump->pid,
				 strerror(-err));
			return;
		}
	}
}

/* --- native stacks, and threads that run ---------------------------------------------------------- */

static void keep_stack(struct found_thread *t, const struct stack_event *ev, size_t len)
{
	free(t->stack);
	t->stack = malloc(len);
	if (!t->stack)
		return;
	memcpy(t->stack, ev, len);
	t->stack_len = (u32)len;
}

/* What a sample says is of one moment: it is complete with the list it carries. */
static void on_sample(void *arg, const struct stack_event *ev, size_t len)
{
	struct collector *c = arg;
	struct found_thread *t = find_thread(c, ev->tid);

	if (ev->key.tgid != c->dump->pid)
		return;
	/* The sample says which image it is; then its recipe can be told. */
	c->process = processes_find(c->procs, &ev->key, ev->time_ns, true);
	if (!c->process)
		return;
	runtimes_want(c->runtimes, c->process);
	if (c->tables)
		tables_want(c->tables, c->process);
	if (!t || t->listed || (c->runtime && !ev->recipe_gen))
		return;
	t->ev.on_cpu = THREAD_ON_CPU;
	keep_stack(t, ev, len);
}

static void on_wait(void *arg, const struct stack_event *ev, size_t len,
		    const struct stack_count *count __unused)
{
	struct collector *c = arg;
	struct found_thread *t = find_thread(c, ev->tid);

	if (t && ev->key.tgid == c->dump->pid)
		keep_stack(t, ev, len);
}

static struct tables *make_tables(struct collector *c)
{
	struct tables_kernel kernel = {
		.arg = c->sampler,
		.grow = sampler_grow,
		.publish = sampler_publish,
		.unpublish = sampler_unpublish,
		.sync = sampler_sync,
	};

	return tables_new(c->procs, c->dump->modules, &kernel, TABLE_BYTES);
}

static int load_sampler(struct collector *c)
{
	struct sampler_options so = {
		.hz = SAMPLE_HZ,
		.max_frames = MAX_USER_FRAMES,
		.only_pids = true,
	};
	int err;

	if (c->sampler)
		return 0;
	err = sampler_new(&so, &c->sampler);
	if (!err)
		err = sampler_add_pid(c->sampler, c->dump->pid);
	if (!err) {
		c->tables = make_tables(c);
		err = c->tables ? 0 : -ENOMEM;
	}
	return err;
}

/* Until all files' tables are made and published, as far as they can be had in time. */
static void wait_for_tables(struct collector *c)
{
	u64 end = now_monotonic() + TABLES_NS, rows = UINT64_MAX;
	struct tables_figures f = { 0 };

	tables_want(c->tables, c->process);
	while (now_monotonic() < end && (!f.processes || f.rows != rows)) {
		rows = f.rows;
		tables_round(c->tables, now_monotonic());
		modules_settle(c->dump->modules, end);
		tables_round(c->tables, now_monotonic());
		tables_figures(c->tables, &f);
		usleep(1000);
	}
}

static bool has_running(const struct collector *c)
{
	u32 i;

	for (i = 0; i < c->n; i++)
		if (!c->v[i].listed && !c->v[i].stack)
			return true;
	return false;
}

/* Until each thread that was not read had a sample, or stands still. */
static void sample_running(struct collector *c)
{
	u64 end = now_monotonic() + SAMPLE_NS;

	if (load_sampler(c) || sampler_start(c->sampler))
		return;
	while (has_running(c) && now_monotonic() < end) {
		usleep(10000);
		sampler_read_stacks(c->sampler, on_sample, c);
		runtimes_round(c->runtimes, now_monotonic());
		tables_round(c->tables, now_monotonic());
		/* What was sent once is sent again only in another epoch. */
		sampler_flip(c->sampler);
		if (c->runtime)
			walk_waiting(c);
	}
	sampler_stop(c->sampler);
}

static bool load_waits(struct collector *c)
{
	struct offcpu_options oo = {
		.tables = true,
		.only_pids = true,
		.max_frames = MAX_USER_FRAMES,
		.reader = c->reader,
	};
	const char *why = "";

	if (load_sampler(c))
		return false;
	wait_for_tables(c);
	if (!offcpu_new(c->sampler, &oo, &c->offcpu, &why) && !offcpu_start(c->offcpu))
		return true;
	log_warn("native stacks of waiting threads are not to be had: %s", why);
	return false;
}

/* Whoever ran since its list was read has two halves that do not belong together. */
static void on_check(void *arg, const struct thread_event *ev, const u64 *words __unused)
{
	struct found_thread *t = find_thread(arg, ev->tid);

	if (!t || (!ev->on_cpu && ev->switches == t->ev.switches))
		return;
	t->ev = *ev;
	t->listed = false;
	free(t->stack);
	t->stack = NULL;
}

static bool has_moved(const struct collector *c)
{
	u32 i;

	for (i = 0; i < c->n; i++)
		if (!c->v[i].ev.on_cpu && !c->v[i].stack)
			return true;
	return false;
}

/* Stacks of threads that wait, as the programs for waits see them. */
static void native_waiting(struct collector *c)
{
	int i;

	if (!load_waits(c))
		return;
	for (i = 0; i < LOOKS && (!i || has_moved(c)); i++) {
		if (c->runtime) {
			if (c->threads)
				threads_forget(c->threads, c->dump->pid);
			walk_waiting(c);
		}
		offcpu_open_waits(c->offcpu, 0, now_monotonic(), sampler_epoch(c->sampler), on_wait,
				  c);
		if (c->runtime)
			count_threads(c, on_check);
	}
	offcpu_stop(c->offcpu);
}

/* --- stacks to frames ------------------------------------------------------------------------------ */

/* A native stack of a thread that waits, with the list that was read while it waited. */
static struct stack_event *with_list(struct collector *c, const struct found_thread *t, size_t *len)
{
	size_t bytes = (size_t)t->list.n * t->list.width * sizeof(u64), head;
	struct runtime_info info;
	struct stack_event *ev;

	head = sizeof(*ev) + ((size_t)t->stack->nkernel + t->stack->nuser) * sizeof(u64);
	ev = malloc(head + bytes);
	if (!ev)
		return NULL;
	memcpy(ev, t->stack, head);
	runtime_info(c->runtime, &info);
	ev->recipe_gen = info.gen;
	ev->nlist = (u16)t->list.n;
	ev->list_width = (u8)t->list.width;
	ev->list_end = (u8)t->list.end;
	ev->list_head = t->list.head;
	ev->list_reg = 0;
	ev->list_flag = t->list.flag;
	memcpy((u8 *)ev + head, t->words, bytes);
	*len = head + bytes;
	return ev;
}

static void fold(struct collector *c, struct dump_thread *out, const struct sample *s)
{
	struct window *w = c->dump->window;
	struct fold_ref ref;

	if (!s->nframes || fold_add(w, s, &ref))
		return;
	out->stack = w->profiles[ref.profile].samples[ref.sample].stack;
	out->cut = s->list == SAMPLE_LIST_CUT || s->end == STACK_END_CUT;
}

static void join_native(struct collector *c, const struct found_thread *t, struct dump_thread *out)
{
	_cleanup_free_ struct stack_event *own = NULL;
	const struct stack_event *ev = t->stack;
	size_t len = t->stack_len;
	struct sample s;

	if (c->runtime && t->listed && t->list.n) {
		own = with_list(c, t, &len);
		ev = own;
	}
	if (!ev || stack_join(c->joiner, ev, len, true, &s))
		return;
	fold(c, out, &s);
	out->interpreted = s.list == SAMPLE_LIST_MERGED || s.list == SAMPLE_LIST_CUT ||
			   s.list == SAMPLE_LIST_APART;
}

/* The interpreter's frames alone: of a list, or of the sample's. */
static enum verdict join_list(struct collector *c, const struct found_thread *t,
			      struct dump_thread *out)
{
	struct runtime_info info;
	struct list l = t->list;
	enum verdict v;
	struct sample s;

	runtime_info(c->runtime, &info);
	if (!t->listed) {
		const u64 *ip = (const u64 *)(t->stack + 1) + t->stack->nkernel;

		l = (struct list){
			.words = ip + t->stack->nuser,
			.n = t->stack->nlist,
			.width = t->stack->list_width,
			.end = t->stack->list_end,
			.head = t->stack->list_head,
			.reg = t->stack->list_reg,
			.flag = t->stack->list_flag,
			.ip = t->stack->nuser ? ip[0] : 0,
			.running = true,
			.ip_image = true,
		};
	}
	v = stack_join_list(c->joiner, c->process, info.gen, &l, t->ev.comm, "waiting", &s);
	if (v != UNWIND_OK)
		return v;
	fold(c, out, &s);
	out->interpreted = true;
	return v;
}

static void join_thread(struct collector *c, const struct found_thread *t, struct dump_thread *out)
{
	enum verdict v = UNWIND_NOT_MINE;

	*out = (struct dump_thread){
		.tid = t->ev.tid,
		.ns_tid = t->ev.ns_tid,
		.state = isalpha(t->ev.state) ? (char)t->ev.state : '?',
		.running = t->ev.on_cpu != 0,
		.stack = NO_STACK,
	};
	utf8_clean(out->name, sizeof(out->name), t->ev.comm, COMM_LEN);
	if (c->runtime && !c->o->native && (t->listed || t->stack))
		v = join_list(c, t, out);
	else if (t->stack)
		join_native(c, t, out);
	else if (c->runtime && t->listed)
		v = join_list(c, t, out);
	if (out->stack != NO_STACK)
		return;
	if (v != UNWIND_NOT_MINE && v != UNWIND_OK)
		snprintf(out->why, sizeof(out->why), "%s", verdict_text(v));
	else
		snprintf(out->why, sizeof(out->why), "%s",
			 t->ev.on_cpu ? "it ran all the time, and no sample met it"
				      : "its stack could not be read");
}

static int join_all(struct collector *c)
{
	struct stack_options so = {
		.tables = c->tables,
		.perfmaps = c->perfmaps,
		.runtimes = c->runtimes,
		.internals = c->o->internals,
	};
	struct dump *d = c->dump;
	u32 i;

	c->joiner = stack_joiner_new(c->procs, &so);
	d->window = window_new(1);
	d->threads = calloc(MAX(c->n, 1u), sizeof(*d->threads));
	if (!c->joiner || !d->window || !d->threads)
		return log_err(-ENOMEM, "cannot tell the stacks: out of memory");
	for (i = 0; i < c->n; i++)
		join_thread(c, &c->v[i], &d->threads[i]);
	d->nthreads = c->n;
	names_resolve(d->window, c->dump->modules, c->perfmaps, NAMES_WAIT_NS);
	return 0;
}

/* --- all of it ------------------------------------------------------------------------------------- */

static int collect(struct collector *c)
{
	int err = make_books(c, c->dump->pid);

	if (err)
		return err;
	find_runtime(c);
	processes_read_cmdline(c->procs, c->process);
	if (c->process->exe)
		c->dump->exe = strdup(c->process->exe);
	if (c->process->cmdline)
		c->dump->cmdline = strdup(c->process->cmdline);
	err = count_threads(c, on_first);
	if (err)
		return err;
	if (!c->n)
		return -ESRCH;
	qsort(c->v, c->n, sizeof(*c->v), by_tid);
	if (c->runtime)
		walk_waiting(c);
	if (!c->runtime || c->o->native)
		native_waiting(c);
	if (has_running(c))
		sample_running(c);
	return join_all(c);
}

int dump_new(u32 pid, const struct dump_options *o, struct dump **ret)
{
	struct dump *d = calloc(1, sizeof(*d));
	struct collector c = { .o = o, .dump = d };
	int err;

	if (!d)
		return log_err(-ENOMEM, "cannot start: out of memory");
	d->pid = pid;
	d->verdict = UNWIND_NOT_MINE;
	err = kill((pid_t)pid, 0) && errno == ESRCH ? -ESRCH : collect(&c);
	collector_fini(&c);
	if (err) {
		dump_free(d);
		return err;
	}
	*ret = d;
	return 0;
}

void dump_free(struct dump *d)
{
	if (!d)
		return;
	window_free(d->window);
	modules_free(d->modules);
	free(d->exe);
	free(d->cmdline);
	free(d->threads);
	free(d);
}
