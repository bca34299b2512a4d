// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See stack.h: addresses of one event become frames of one sample. */
#include "stack.h"

#include "frames.h"
#include "identity.h"
#include "kallsyms.h"
#include "merge.h"
#include "module.h"
#include "perfmap.h"
#include "process.h"
#include "runtime.h"
#include "stat.h"
#include "tables.h"
#include "wait.h"

#include <errno.h>
#include <string.h>

#define KERNEL_EXE   "[kernel]"
#define TEXT_MAX     65536 /* cleaned text of one sample */
#define SERVICE_MAX  256
#define MAPPING_MAX  256
#define CMDLINE_TEXT 1024

const struct sample_type sample_cpu = { .name = "cpu" };
const struct sample_type sample_offcpu = { .name = "offcpu", .counted = true };
const struct sample_type sample_lock = { .name = "lock", .counted = true };

struct stack_joiner {
	struct processes *procs;
	struct stack_options o;
	struct frame frames[MAX_KERNEL_FRAMES + MERGE_FRAMES_MAX];
	struct frame native[MAX_USER_FRAMES]; /* user part, before it is merged */
	struct runtime_frames list;           /* of the last event */
	struct frame list_frames[RUNTIME_FRAMES_MAX];
	struct sample wall; /* of the last event; no type: it has none */
	struct sample lock; /* likewise */
	char text[TEXT_MAX];
	size_t text_used;
};

struct stack_joiner *stack_joiner_new(struct processes *procs, const struct stack_options *o)
{
	struct stack_joiner *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->procs = procs;
	j->o = *o;
	return j;
}

void stack_joiner_free(struct stack_joiner *j)
{
	free(j);
}

const char *stack_end_text(enum stack_end end)
{
	static const char *const texts[] = {
#define X(name, text) text,
		STACK_END_LIST(X)
#undef X
	};

	return end < STACK_END_MAX ? texts[end] : "unknown";
}

const char *sample_list_text(enum sample_list list)
{
	static const char *const texts[] = {
#define X(name, text) text,
		SAMPLE_LIST_LIST(X)
#undef X
	};

	return list < SAMPLE_LIST_MAX ? texts[list] : "unknown";
}

const struct sample_type *stack_runtime_type(const struct unwinder *u)
{
	static struct sample_type types[UNWINDERS_MAX];
	struct sample_type *type = &types[unwinder_index(u)];

	type->name = u->sample_type;
	type->looked = true;
	return type;
}

/* Valid UTF-8 of at most max bytes, until the next event. */
static const char *clean(struct stack_joiner *j, const char *s, size_t max)
{
	char *dst = j->text + j->text_used;
	size_t room = sizeof(j->text) - j->text_used;

	if (room < max + 1)
		return "?";
	j->text_used += utf8_clean(dst, max + 1, s, strlen(s)) + 1;
	return dst;
}

static void kernel_frames(struct stack_joiner *j, const u64 *ip, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		struct frame *f = &j->frames[i];

		*f = (struct frame){
			.kind = FRAME_KERNEL,
			.address = i ? ip[i] - 1 : ip[i],
			.mapping = "[kernel.kallsyms]",
		};
		if (j->o.kallsyms)
			f->func = kallsyms_lookup(j->o.kallsyms, f->address, &f->file);
	}
}

/* Code made at run time, also in files that are no ELF files: its name depends on the process. */
static void anon_frame(struct stack_joiner *j, const struct process *p, u64 addr,
		       const char *mapping, struct frame *f)
{
	f->kind = FRAME_ANON;
	f->mapping = clean(j, mapping, MAPPING_MAX);
	if (j->o.perfmaps)
		f->func = perfmaps_lookup(j->o.perfmaps, p, addr, &f->map);
	if (f->func)
		f->map = 0;
}

/* Returns how many of the n addresses became frames. */
static u32 user_frames(struct stack_joiner *j, struct process *p, const u64 *ip, u32 n,
		       struct frame *out, enum stack_end *end)
{
	u32 i;

	for (i = 0; i < n; i++) {
		u64 addr = i ? ip[i] - 1 : ip[i];
		struct process_place place;

		out[i] = (struct frame){ .kind = FRAME_UNKNOWN, .address = addr };
		if (!p || !p->maps)
			continue;
		if (processes_locate(j->procs, p, addr, &place)) {
			if (!i)
				continue; /* where it was interrupted is true whatever we know */
			*end = STACK_END_NOT_EXEC;
			return i;
		}
		if (place.module && !module_is_no_elf(place.module)) {
			out[i].kind = FRAME_NATIVE;
			out[i].module = place.module;
			out[i].address = place.offset;
		} else {
			anon_frame(j, p, addr,
				   place.module ? module_path(place.module) : place.mapping,
				   &out[i]);
		}
	}
	return n;
}

static bool is_sound(const struct stack_event *ev, size_t len)
{
	return len >= sizeof(*ev) && ev->nkernel <= MAX_KERNEL_FRAMES &&
	       ev->nuser <= MAX_USER_FRAMES && ev->end < STACK_END_MAX &&
	       ev->nlist <= RECIPE_NODES_MAX && ev->list_width <= RECIPE_WIDTH_MAX &&
	       ev->list_end < LIST_END_MAX && ev->ncontext <= CONTEXT_WORDS &&
	       len - sizeof(*ev) >= ((size_t)ev->nkernel + ev->nuser +
				     (size_t)ev->nlist * ev->list_width + ev->ncontext) *
					    sizeof(u64);
}

/* Who the sample is of; false when that one is left out. p NULL: nobody that is known. */
static bool set_identity(struct stack_joiner *j, struct process *p, const struct stack_key *key,
			 struct sample *s)
{
	const struct identity *who = NULL;
	const char *exe = s->thread;

	if (s->end == STACK_END_NO_USER) {
		exe = KERNEL_EXE;
		if (j->o.identities && key && identities_kernel(j->o.identities, key))
			return false;
	} else if (p) {
		who = j->o.identities ? identities_of(j->o.identities, p) : NULL;
		if (who && who->left_out)
			return false;
		exe = clean(j, p->exe ? base_name(p->exe) : p->comm, SERVICE_MAX);
		if (j->o.with_cmdline) {
			processes_read_cmdline(j->procs, p);
			s->cmdline = p->cmdline ? clean(j, p->cmdline, CMDLINE_TEXT) : NULL;
		}
	}
	s->exe = *exe ? exe : "?";
	s->service = who && who->service ? who->service : s->exe;
	s->who = who ? who->label : NULL;
	return true;
}

static void add_label(struct sample *s, const char *key, const char *value)
{
	if (s->nlabels < SAMPLE_LABELS_MAX)
		s->labels[s->nlabels++] = (struct sample_label){ key, value };
}

/* An id as hex digits, or nothing when it is all zeros. */
static void add_id(struct stack_joiner *j, struct sample *s, const char *key, const u8 *id,
		   size_t len)
{
	static const u8 none[16];
	char text[2 * sizeof(none) + 1];

	hex_encode(text, id, len);
	if (memcmp(id, none, len))
		s->context[s->ncontext++] =
			(struct sample_label){ key, clean(j, text, sizeof(text)) };
}

/* What the thread worked on, in its own words. */
static void context_labels(struct stack_joiner *j, const struct stack_event *ev, struct sample *s)
{
	const u64 *words = (const u64 *)(ev + 1) + ev->nkernel + ev->nuser +
			   (size_t)ev->nlist * ev->list_width;
	char route[CONTEXT_ROUTE_MAX + 1] = "";

	s->ncontext = 0;
	if (ev->ncontext < CONTEXT_ID_WORDS)
		return;
	add_id(j, s, "trace_id", (const u8 *)words, 16);
	add_id(j, s, "span_id", (const u8 *)(words + 2), 8);
	memcpy(route, words + CONTEXT_ID_WORDS, (ev->ncontext - CONTEXT_ID_WORDS) * sizeof(u64));
	if (*route)
		s->context[s->ncontext++] =
			(struct sample_label){ "http.route", clean(j, route, CONTEXT_ROUTE_MAX) };
}

/* How and for what the thread waited; the kernel frames are named. */
static void wait_labels(struct stack_joiner *j, const struct stack_event *ev, struct sample *s)
{
	const char *names[MAX_KERNEL_FRAMES];
	char state[2] = { (char)ev->key.state };
	u32 i;

	for (i = 0; i < ev->nkernel; i++)
		names[i] = j->frames[i].func;
	add_label(s, "thread.state", clean(j, state, sizeof(state)));
	add_label(s, "wait",
		  wait_text(wait_reason((char)ev->key.state, ev->key.call, names, ev->nkernel)));
}

/* The sample once more, with what it waited for and, if it still lives, the thread that had it. */
static void make_lock(struct stack_joiner *j, struct process *p, const struct stack_event *ev,
		      const struct sample *s, struct sample *ret)
{
	char text[32], comm[COMM_LEN];

	*ret = *s;
	ret->type = &sample_lock;
	snprintf(text, sizeof(text), "%#llx", (unsigned long long)ev->key.object);
	add_label(ret, "lock.address", clean(j, text, sizeof(text)));
	if (p && ev->key.holder && ev->key.holder != ev->tid &&
	    !processes_thread(j->procs, p, ev->key.holder, comm))
		add_label(ret, "lock.holder", clean(j, comm, COMM_LEN * 3));
}

static void list_labels(const struct runtime_frames *list, struct sample *s)
{
	u32 i;

	for (i = 0; i < list->nlabels; i++)
		add_label(s, list->labels[i].key, list->labels[i].value);
	if (list->n && list->frames[0].flags & FRAME_UNSURE)
		add_label(s, "runtime.leaf", "unsure");
}

static bool is_whole(enum stack_end end)
{
	return end == STACK_END_COMPLETE || end == STACK_END_GUESSED;
}

/* The sample as one of the runtime's own type: who it is stays, what it stands on changes. */
static void make_wall(struct stack_joiner *j, const struct sample *s, const struct unwinder *u,
		      const char *state, struct sample *ret)
{
	*ret = *s;
	ret->type = stack_runtime_type(u);
	ret->end = STACK_END_COMPLETE;
	ret->list = j->list.cut ? SAMPLE_LIST_CUT : SAMPLE_LIST_MERGED;
	ret->frames = j->list_frames;
	ret->nframes = merge_list_only(&j->list, j->list_frames);
	ret->nlabels = 0;
	add_label(ret, "thread.state", state);
	list_labels(&j->list, ret);
}

/* The interpreter's frames of this very sample; SAMPLE_LIST_MERGED: they are in j->list. */
static enum sample_list take_list(struct stack_joiner *j, struct runtime *r,
				  const struct stack_event *ev, bool ip_image)
{
	const u64 *ip = (const u64 *)(ev + 1) + ev->nkernel;
	struct list l = {
		.words = ip + ev->nuser,
		.n = ev->nlist,
		.width = ev->list_width,
		.end = ev->list_end,
		.head = ev->list_head,
		.reg = ev->list_reg,
		.flag = ev->list_flag,
		.ip = ev->nuser ? ip[0] : 0,
		.running = ev->key.kind == STACK_ON_CPU,
		.ip_image = ip_image,
	};

	switch (runtime_frames(j->o.runtimes, r, ev->recipe_gen, &l, &j->list)) {
	case UNWIND_OK:
		return SAMPLE_LIST_MERGED;
	case UNWIND_IDLE:
		return SAMPLE_LIST_IDLE;
	default:
		return SAMPLE_LIST_REFUSED;
	}
}

/*
 * User frames of a process with a runtime, from j->native to out. Without a list of the same
 * moment the native ones are all there is.
 */
static u32 runtime_part(struct stack_joiner *j, struct process *p, const struct stack_event *ev,
			u32 nnative, struct frame *out, struct sample *s)
{
	struct runtime *r = j->o.runtimes && ev->recipe_gen && p ? runtime_of(p) : NULL;
	struct merge_native native = {
		.frames = j->native,
		.ip = (const u64 *)(ev + 1) + ev->nkernel,
		.n = nnative,
		.whole = is_whole(s->end),
	};
	struct runtime_info info;
	struct merge_options o;
	u32 n = 0;

	s->list = r ? take_list(j, r, ev, nnative && j->native[0].kind == FRAME_NATIVE)
		    : SAMPLE_LIST_NONE;
	if (s->list == SAMPLE_LIST_NONE || s->list == SAMPLE_LIST_REFUSED) {
		memcpy(out, j->native, nnative * sizeof(*out));
		return nnative;
	}
	runtime_info(r, &info);
	o = (struct merge_options){
		.loops = info.found->loops,
		.nloops = info.found->nloops,
		.runs = info.found->unwinder->loop_runs,
		.internals = j->o.internals,
	};
	if (ev->key.kind == STACK_ON_CPU && s->list == SAMPLE_LIST_MERGED)
		make_wall(j, s, info.found->unwinder, "running", &j->wall);
	list_labels(&j->list, s);
	s->list = merge_frames(&native, &j->list, &o, out, &n);
	if (s->list == SAMPLE_LIST_APART)
		stat_inc(STAT_runtime_apart);
	if (s->list == SAMPLE_LIST_MERGED && j->list.cut)
		s->list = SAMPLE_LIST_CUT;
	return n;
}

static void want_books(struct stack_joiner *j, struct process *p, enum stack_kind kind)
{
	if (j->o.tables && (kind == STACK_ON_CPU || j->o.wait_tables))
		tables_want(j->o.tables, p);
	if (j->o.runtimes)
		runtimes_want(j->o.runtimes, p);
}

static void count_end(enum stack_end end)
{
	if (end == STACK_END_CUT)
		stat_inc(STAT_stack_cut);
	else if (!is_whole(end) && end != STACK_END_NO_USER)
		stat_inc(STAT_stack_stopped);
}

int stack_join(struct stack_joiner *j, const struct stack_event *ev, size_t len, bool last_try,
	       struct sample *ret)
{
	const u64 *ip = (const u64 *)(ev + 1);
	struct process *p = NULL;
	struct sample s = { .type = &sample_cpu };
	bool off = len >= sizeof(*ev) && ev->key.kind == STACK_OFF_CPU;
	char comm[COMM_LEN + 1];
	u32 n;

	j->wall.type = NULL;
	j->lock.type = NULL;
	if (!is_sound(ev, len))
		return -EINVAL;
	j->text_used = 0;
	s.pid = ev->key.tgid;
	s.end = ev->end;
	memcpy(comm, ev->key.comm, COMM_LEN);
	comm[COMM_LEN] = '\0';
	s.thread = clean(j, comm, COMM_LEN * 3);
	if (s.end != STACK_END_NO_USER) {
		p = ev->in_exec ? processes_current(j->procs, &ev->key)
				: processes_find(j->procs, &ev->key, ev->time_ns, last_try);
		if (!p && !last_try && !ev->in_exec)
			return -EAGAIN;
	}
	if (!set_identity(j, p, &ev->key, &s))
		return -ECANCELED;
	if (p && !ev->in_exec)
		want_books(j, p, ev->key.kind);
	kernel_frames(j, ip, ev->nkernel);
	if (off) {
		s.type = &sample_offcpu;
		wait_labels(j, ev, &s);
	}
	context_labels(j, ev, &s);
	n = user_frames(j, p, ip + ev->nkernel, ev->nuser, j->native, &s.end);
	s.frames = j->frames;
	s.nframes = ev->nkernel + runtime_part(j, p, ev, n, j->frames + ev->nkernel, &s);
	count_end(s.end);
	if (off && ev->key.object)
		make_lock(j, p, ev, &s, &j->lock);
	*ret = s;
	return 0;
}

bool stack_lock(struct stack_joiner *j, struct sample *ret)
{
	if (!j->lock.type)
		return false;
	*ret = j->lock;
	return true;
}

bool stack_wall(struct stack_joiner *j, struct sample *ret)
{
	if (!j->wall.type)
		return false;
	*ret = j->wall;
	return true;
}

enum verdict stack_join_list(struct stack_joiner *j, struct process *p, u32 gen,
			     const struct list *l, const char comm[COMM_LEN], const char *state,
			     struct sample *ret)
{
	struct runtime *r = j->o.runtimes ? runtime_of(p) : NULL;
	struct sample s = { .pid = p->pid };
	char text[COMM_LEN + 1];
	struct runtime_info info;
	enum verdict v;

	if (!r)
		return UNWIND_NOT_MINE;
	j->wall.type = NULL;
	j->text_used = 0;
	v = runtime_frames(j->o.runtimes, r, gen, l, &j->list);
	if (v != UNWIND_OK)
		return v;
	memcpy(text, comm, COMM_LEN);
	text[COMM_LEN] = '\0';
	s.thread = clean(j, text, COMM_LEN * 3);
	if (!set_identity(j, p, NULL, &s))
		return UNWIND_NOT_MINE;
	runtime_info(r, &info);
	make_wall(j, &s, info.found->unwinder, state, ret);
	return UNWIND_OK;
}
