// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See stack.h: addresses of one event become frames of one sample. */
#include "stack.h"

#include "kallsyms.h"
#include "process.h"
#include "stat.h"
#include "tables.h"

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
	struct tables *tables;
	const struct kallsyms *kallsyms;
	bool with_cmdline;
	struct frame frames[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
	char text[TEXT_MAX];
	size_t text_used;
};

struct stack_joiner *stack_joiner_new(struct processes *procs, struct tables *tables,
				      const struct kallsyms *kallsyms, bool with_cmdline)
{
	struct stack_joiner *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->procs = procs;
	j->tables = tables;
	j->kallsyms = kallsyms;
	j->with_cmdline = with_cmdline;
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
		if (j->kallsyms)
			f->func = kallsyms_lookup(j->kallsyms, f->address, &f->file);
	}
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
		if (place.module) {
			out[i].kind = FRAME_NATIVE;
			out[i].module = place.module;
			out[i].address = place.offset;
		} else {
			out[i].kind = FRAME_ANON;
			out[i].mapping = clean(j, place.mapping, MAPPING_MAX);
		}
	}
	return n;
}

static bool is_sound(const struct stack_event *ev, size_t len)
{
	return len >= sizeof(*ev) && ev->nkernel <= MAX_KERNEL_FRAMES &&
	       ev->nuser <= MAX_USER_FRAMES && ev->end < STACK_END_MAX &&
	       len - sizeof(*ev) >= ((size_t)ev->nkernel + ev->nuser) * sizeof(u64);
}

static void set_identity(struct stack_joiner *j, struct process *p, struct sample *s)
{
	const char *exe = s->thread;

	if (s->end == STACK_END_NO_USER) {
		exe = KERNEL_EXE;
	} else if (p) {
		processes_identify(j->procs, p);
		exe = clean(j, p->exe ? base_name(p->exe) : p->comm, SERVICE_MAX);
		s->container = p->container;
		if (j->with_cmdline && p->cmdline)
			s->cmdline = clean(j, p->cmdline, CMDLINE_TEXT);
	}
	s->exe = *exe ? exe : "?";
	s->service = *s->container ? s->container : s->exe;
}

int stack_join(struct stack_joiner *j, const struct stack_event *ev, size_t len, bool last_try,
	       struct sample *ret)
{
	const u64 *ip = (const u64 *)(ev + 1);
	struct process *p = NULL;
	struct sample s = { .type = &sample_cpu, .container = "" };
	char comm[COMM_LEN + 1];

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
		if (p && j->tables && !ev->in_exec)
			tables_want(j->tables, p);
	}
	set_identity(j, p, &s);
	kernel_frames(j, ip, ev->nkernel);
	s.frames = j->frames;
	s.nframes = ev->nkernel +
		    user_frames(j, p, ip + ev->nkernel, ev->nuser, j->frames + ev->nkernel, &s.end);
	if (s.end == STACK_END_CUT)
		stat_inc(STAT_stack_cut);
	else if (s.end != STACK_END_COMPLETE && s.end != STACK_END_GUESSED &&
		 s.end != STACK_END_NO_USER)
		stat_inc(STAT_stack_stopped);
	*ret = s;
	return 0;
}
