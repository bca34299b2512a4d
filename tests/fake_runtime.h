/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime that exists in tests only: an unwinder, processes of some words of memory at 0x1000 that
 * the test writes, a kernel that remembers what it was told, and a clock that the test moves.
 * Processes come by the events that the kernel would send.
 */
#pragma once

#include "core/layout.h"
#include "core/module.h"
#include "core/process.h"
#include "core/runtime.h"
#include "core/target.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

#pragma GCC diagnostic ignored "-Wunused-function"

#define MEMORY_AT 0x1000ull
#define WORDS     256
#define MAGIC     0x474e414c54534554ull

/* Words of a process's memory, by index. */
enum { W_MAGIC, W_VERSION, W_READY, W_PROOF, W_HEADS, W_OBJECT = 32, W_TEXT = 128 };

#define PROOF 0x77

struct memory {
	struct target target;
	u32 pid;
	u64 words[WORDS];
	u32 opened, reads_left; /* reads_left: then it hangs; UINT32_MAX: never */
};

static struct memory *memories[8];
static u32 detections;

/* --- a process ---------------------------------------------------------------------------------- */

static int fake_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct memory *m = (struct memory *)t;

	if (!m->reads_left) {
		t->hung = true;
		return -ETIMEDOUT;
	}
	if (m->reads_left != UINT32_MAX)
		m->reads_left--;
	if (addr < MEMORY_AT || addr + len > MEMORY_AT + sizeof(m->words) || addr + len < addr)
		return -EFAULT;
	memcpy(dst, (u8 *)m->words + (addr - MEMORY_AT), len);
	return 0;
}

static int fake_string(struct target *t, u64 addr, size_t len, char *dst, size_t size)
{
	size_t n = MIN(len, size - 1);

	if (addr < MEMORY_AT || addr >= MEMORY_AT + WORDS * 8)
		return -EFAULT;
	n = MIN(n, MEMORY_AT + WORDS * 8 - addr);
	if (fake_read(t, addr, dst, n))
		return -EFAULT;
	dst[n] = '\0';
	return (int)strlen(dst);
}

static bool fake_module(struct target *t __unused, u32 i __unused, struct target_module *m __unused)
{
	return false;
}

static u64 fake_symbol(struct target *t __unused, u32 i __unused, const char *name __unused,
		       u64 *size __unused)
{
	return 0;
}

static bool fake_function(struct target *t __unused, u32 i __unused, u64 addr __unused,
			  u64 *lo __unused, u64 *hi __unused)
{
	return false;
}

static bool fake_thread(struct target *t __unused, u32 i __unused,
			struct target_thread *ret __unused)
{
	return false;
}

static enum target_memory fake_memory(struct target *t __unused, u64 addr __unused)
{
	return TARGET_NOTHING;
}

static void fake_free(struct target *t)
{
	t->hung = false;
}

static const struct target_ops fake_ops = {
	.read = fake_read,
	.string = fake_string,
	.module = fake_module,
	.symbol = fake_symbol,
	.section = fake_symbol,
	.function = fake_function,
	.thread = fake_thread,
	.memory = fake_memory,
	.free = fake_free,
	.direct = true,
};

static struct memory *memory_of(u32 pid)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(memories); i++)
		if (memories[i] && memories[i]->pid == pid)
			return memories[i];
	return NULL;
}

static struct memory *new_memory(u32 pid)
{
	struct memory *m = calloc(1, sizeof(*m));
	u32 i;

	m->target.ops = &fake_ops;
	m->pid = pid;
	m->reads_left = UINT32_MAX;
	for (i = 0; memories[i]; i++)
		;
	memories[i] = m;
	return m;
}

/* One that runs our language, version MAJOR.MINOR.0. */
static struct memory *new_interpreter(u32 pid, u32 major, u32 minor)
{
	struct memory *m = new_memory(pid);

	m->words[W_MAGIC] = MAGIC;
	m->words[W_VERSION] = (u64)major << 16 | minor;
	m->words[W_READY] = 1;
	m->words[W_PROOF] = PROOF;
	return m;
}

/* --- the unwinder ------------------------------------------------------------------------------- */

struct lang {
	u64 proof_at;
	s32 layout;
};

static u64 word_at(u32 i)
{
	return MEMORY_AT + i * 8;
}

static enum verdict lang_detect(struct target *t, void *state, struct version *ret)
{
	struct lang *s = state;
	u64 w[3];

	if (target_read(t, MEMORY_AT, w, sizeof(w)) || w[W_MAGIC] != MAGIC)
		return UNWIND_NOT_MINE;
	detections++;
	*ret = (struct version){ (uint16_t)(w[W_VERSION] >> 16), (uint16_t)w[W_VERSION], 0 };
	s->proof_at = word_at(W_PROOF);
	target_layout_of(t, ret, NULL, 0, sizeof(s->layout), &s->layout);
	return w[W_READY] ? UNWIND_OK : UNWIND_NOT_READY;
}

static enum verdict lang_self_check(struct target *t, void *state)
{
	const struct lang *s = state;
	u64 w;

	if (target_u64(t, s->proof_at, &w))
		return UNWIND_FAULT;
	return w == PROOF ? UNWIND_OK : UNWIND_BAD_LAYOUT;
}

static u8 lang_head = RECIPE_ADDR;

static void lang_recipe(const void *state, struct recipe *ret)
{
	const struct lang *s = state;

	ret->head = lang_head;
	ret->addr = MEMORY_AT + (u64)s->layout;
	ret->len = 24;
	ret->word[0] = 0;
	ret->word[1] = 1;
	ret->next_word = 2;
	ret->nwords = 2;
}

static enum verdict lang_heads(struct target *t, const void *state __unused, struct heads *ret)
{
	u64 w;
	u32 i;

	if (target_u64(t, word_at(W_HEADS), &w))
		return UNWIND_FAULT;
	for (i = 0; i < 16; i++)
		if (w & 1u << i)
			heads_add(ret, 100 + i, 0x5000 + i);
	return UNWIND_OK;
}

/*
 * Node: object, address of its name. The object itself holds that address. Object 0 is torn, 1 is
 * "nothing of mine", 2 a boundary.
 */
static enum verdict lang_frames(struct target *t, const void *state __unused, const struct list *l,
				struct frames *ret)
{
	u32 i;

	if (l->flag)
		frames_mark(ret, "(housekeeping)");
	for (i = 0; i < l->n; i++) {
		const u64 *w = l->words + i * l->width;
		struct frame_key key = { .object = w[0], .check = { w[1] } };
		char name[2048];
		u64 now;

		if (w[0] < 2)
			return w[0] ? UNWIND_IDLE : UNWIND_TORN;
		if (w[0] == 2) {
			frames_boundary(ret);
			continue;
		}
		if (frames_push(ret, &key, 0))
			continue;
		if (target_u64(t, w[0], &now) || now != w[1])
			frames_gone(ret);
		else if (target_string(t, now, 900, name, sizeof(name)) >= 0)
			frames_name(ret, name, "file.lang", (u32)w[0]);
	}
	return UNWIND_OK;
}

static u32 lang_loops(const void *state __unused, struct code_range ret[UNWINDER_LOOPS])
{
	ret[0] = (struct code_range){ 0x400000, 0x401000 };
	return 1;
}

static enum verdict lang_resolve(struct target *t __unused, const void *state __unused, uint64_t ip,
				 struct frames *ret)
{
	frames_mark(ret, ip == 0x7000 ? "jitted" : "other");
	return UNWIND_OK;
}

static const char *const lang_fields[] = { "start" };

static const struct unwinder lang = {
	.name = "testlang",
	.title = "Testlang",
	.sample_type = "testlang_wall",
	.ranges = { { "testlang_old", { 1, 0, 0 }, { 1, 9, 0 } },
		    { "testlang", { 2, 0, 0 }, { 2, 5, 0 } } },
	.state_size = sizeof(struct lang),
	.layout_fields = lang_fields,
	.nlayout_fields = 1,
	.detect = lang_detect,
	.self_check = lang_self_check,
	.recipe = lang_recipe,
	.heads = lang_heads,
	.frames = lang_frames,
	.loops = lang_loops,
	.resolve = lang_resolve,
};
UNWINDER_REGISTER(lang);

/* --- the world ---------------------------------------------------------------------------------- */

struct world {
	struct modules *modules;
	struct processes *procs;
	struct runtimes *rs;
	struct runtime_choice choice;
	const char *off; /* word that is switched off */
	struct layouts *layouts;
	u64 now;
	/* What the kernel was told. */
	struct recipe_entry armed[8];
	u32 armed_tgid[8];
	u32 room; /* recipes that it takes */
	u64 heads[200];
	u32 disarms;
};

static int k_arm(void *arg, u32 tgid, const struct recipe_entry *e)
{
	struct world *w = arg;
	u32 i, used = 0;

	for (i = 0; i < 8; i++)
		used += w->armed_tgid[i] != 0;
	for (i = 0; i < 8 && w->armed_tgid[i] != tgid; i++)
		;
	if (i == 8) {
		if (used >= w->room)
			return -E2BIG;
		for (i = 0; w->armed_tgid[i]; i++)
			;
	}
	w->armed_tgid[i] = tgid;
	w->armed[i] = *e;
	return 0;
}

static const struct recipe_entry *armed(const struct world *w, u32 tgid)
{
	u32 i;

	for (i = 0; i < 8; i++)
		if (w->armed_tgid[i] == tgid)
			return &w->armed[i];
	return NULL;
}

static void k_disarm(void *arg, u32 tgid)
{
	struct world *w = arg;
	u32 i;

	w->disarms++;
	for (i = 0; i < 8; i++)
		if (w->armed_tgid[i] == tgid)
			w->armed_tgid[i] = 0;
}

static int k_head(void *arg, u32 tid, u64 head)
{
	struct world *w = arg;

	assert_true(tid >= 1000 && tid < 1200);
	w->heads[tid - 1000] = head;
	return 0;
}

/* Tids of the process's own namespace begin at 100, ours at 1000; 103 is not known. */
static int k_threads(void *arg __unused, u32 tgid __unused,
		     void (*fn)(void *fn_arg, u32 tid, const struct target_thread *thread),
		     void *fn_arg)
{
	u32 i;

	for (i = 0; i < 16; i++)
		if (i != 3)
			fn(fn_arg, 1000 + i, &(struct target_thread){ .tid = 100 + i });
	return 0;
}

static int k_target(void *arg __unused, u32 tgid, struct target **ret)
{
	struct memory *m = memory_of(tgid);

	if (!m)
		return -ESRCH;
	m->opened++;
	*ret = &m->target;
	return 0;
}

static u64 k_now(void *arg)
{
	return ((struct world *)arg)->now;
}

static bool is_on(void *arg, const struct unwinder *u, const char *word)
{
	struct world *w = arg;

	return u == &lang && (!w->off || strcmp(w->off, word));
}

static const struct layouts *extra_layouts(void *arg, const struct unwinder *u __unused)
{
	return ((struct world *)arg)->layouts;
}

static void world_init(struct world *w)
{
	struct runtimes_kernel k = {
		.arg = w,
		.arm = k_arm,
		.disarm = k_disarm,
		.head = k_head,
		.threads = k_threads,
		.target = k_target,
		.now = k_now,
	};

	*w = (struct world){ .now = 1000 * NSEC_PER_SEC, .room = 8 };
	detections = 0;
	lang_head = RECIPE_ADDR;
	w->choice = (struct runtime_choice){ .enabled = is_on, .layouts = extra_layouts, .arg = w };
	w->modules = modules_new(1 << 20);
	w->procs = processes_new(w->modules, "/nonexistent", false);
	w->rs = runtimes_new(w->procs, NULL, &k, &w->choice);
	assert_non_null(w->rs);
}

static void world_fini(struct world *w)
{
	u32 i;

	runtimes_free(w->rs);
	processes_free(w->procs);
	modules_free(w->modules);
	layouts_free(w->layouts);
	for (i = 0; i < ARRAY_SIZE(memories); i++) {
		free(memories[i]);
		memories[i] = NULL;
	}
	/* Nothing stays in the kernel. */
	for (i = 0; i < 8; i++)
		assert_int_equal(w->armed_tgid[i], 0);
}

#define WORLD(w)        \
	struct world w; \
	world_init(&w)

static void event(struct world *w, enum task_event_type type, u32 pid, u32 ppid, const char *path)
{
	static u64 last = 1000;
	u64 time = ++last;
	struct task_event ev = {
		.type = type,
		.time_ns = time,
		.pid = pid,
		.ppid = ppid,
		.comm = "comm",
		.file = { .path = path ? path : "", .lo = 0x400000 + time * 0x10000, .ino = 7 },
	};

	ev.file.hi = ev.file.lo + 0x1000;
	processes_event(w->procs, &ev);
}

static struct process *image(struct world *w, u32 pid, u32 exec_id)
{
	struct stack_key key = { .tgid = pid, .start_ns = 5000 + pid, .exec_id = exec_id };
	struct process *p = processes_find(w->procs, &key, UINT64_MAX / 2, false);

	assert_non_null(p);
	return p;
}

/* A process that executed a program, which maps these files. */
static struct process *start(struct world *w, u32 pid, const char *a, const char *b)
{
	event(w, TASK_FORK, pid, 1, NULL);
	event(w, TASK_EXEC, pid, 0, NULL);
	if (a)
		event(w, TASK_MMAP, pid, 0, a);
	if (b)
		event(w, TASK_MMAP, pid, 0, b);
	return image(w, pid, 1);
}

static struct runtime *look(struct world *w, struct process *p)
{
	runtimes_want(w->rs, p);
	runtimes_round(w->rs, w->now);
	return runtime_of(p);
}

static struct runtime_info info_of(const struct runtime *r)
{
	struct runtime_info info;

	assert_non_null(r);
	runtime_info(r, &info);
	return info;
}

static void pass(struct world *w, double seconds)
{
	w->now += (u64)(seconds * 1e9);
}

static struct runtime_frames out;

static enum verdict frames_of(struct world *w, struct runtime *r, const u64 *words, u32 n,
			      enum list_end end)
{
	struct list l = { .words = words, .n = n, .width = 2, .end = end };

	return runtime_frames(w->rs, r, info_of(r).gen, &l, &out);
}

/* An object and its name in a process's memory. */
static void put_object(struct memory *m, u32 i, const char *name)
{
	m->words[W_OBJECT + i] = word_at(W_TEXT + i * 4);
	strncpy((char *)&m->words[W_TEXT + i * 4], name, 32);
}
