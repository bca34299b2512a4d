// SPDX-License-Identifier: Apache-2.0
/*
 * Room in the slabs, and what is published of a process: of this very one, whose mappings the
 * kernel tells, into plain memory.
 */
#include "core/cfi.h"
#include "core/module.h"
#include "core/process.h"
#include "core/slabs.h"
#include "core/stat.h"
#include "core/table.h"
#include "core/tablefile.h"
#include "core/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
/* after those */
#include <cmocka.h>

#define FAKE_SLABS 64

struct fake_kernel {
	u8 *slabs[FAKE_SLABS];
	u32 nslabs, limit;
	struct proc_entry entry;
	u32 tgid; /* published; 0: none */
	u32 publishes, unpublishes, syncs;
	bool fail_publish;
};

static void *grow(void *arg, u32 slab)
{
	struct fake_kernel *k = arg;

	assert_int_equal(slab, k->nslabs);
	if (k->nslabs == k->limit)
		return NULL;
	k->slabs[slab] = calloc(1, SLAB_BYTES);
	return k->slabs[k->nslabs++];
}

static int publish(void *arg, u32 tgid, const struct proc_entry *entry)
{
	struct fake_kernel *k = arg;

	if (k->fail_publish)
		return -E2BIG;
	k->tgid = tgid;
	k->entry = *entry;
	k->publishes++;
	return 0;
}

static void unpublish(void *arg, u32 tgid)
{
	struct fake_kernel *k = arg;

	assert_int_equal(tgid, k->tgid);
	k->tgid = 0;
	k->unpublishes++;
}

static void grace(void *arg)
{
	((struct fake_kernel *)arg)->syncs++;
}

static void fake_fini(struct fake_kernel *k)
{
	while (k->nslabs)
		free(k->slabs[--k->nslabs]);
}

static void *at(struct fake_kernel *k, u32 ref)
{
	assert_true(ref && REF_SLAB(ref) < k->nslabs);
	return k->slabs[REF_SLAB(ref)] + REF_OFF(ref);
}

static void runs_never_overlap_and_all_come_back(void **state __unused)
{
	struct fake_kernel k = { .limit = 4 };
	struct slabs *s = slabs_new(grow, &k, 4 << 20);
	struct {
		u32 ref, bytes;
		u8 mark;
	} runs[512] = { 0 };
	u32 seed = 3, i, b;

	for (i = 0; i < 20000; i++) {
		u32 slot;

		seed = seed * 1664525 + 1013904223;
		slot = (seed >> 10) % ARRAY_SIZE(runs);
		if (runs[slot].bytes) {
			u8 *p = slabs_at(s, runs[slot].ref);

			for (b = 0; b < runs[slot].bytes; b += 97)
				assert_int_equal(p[b], runs[slot].mark);
			slabs_release(s, runs[slot].ref, runs[slot].bytes);
			runs[slot].bytes = 0;
			continue;
		}
		b = 1 + (seed >> 20) * 7 % 20000;
		if (slabs_alloc(s, b, &runs[slot].ref))
			continue; /* full: somebody gives back later */
		assert_int_not_equal(runs[slot].ref, 0);
		runs[slot].bytes = b;
		runs[slot].mark = (u8)i;
		memset(slabs_at(s, runs[slot].ref), (u8)i, b);
	}
	for (i = 0; i < ARRAY_SIZE(runs); i++)
		if (runs[i].bytes)
			slabs_release(s, runs[i].ref, runs[i].bytes);
	assert_int_equal(slabs_used(s), 0);
	assert_true(slabs_bytes(s) > 1 << 20 && slabs_bytes(s) <= 4 << 20);
	slabs_free(s);
	fake_fini(&k);
}

static void slabs_keep_their_limit(void **state __unused)
{
	struct fake_kernel k = { .limit = FAKE_SLABS };
	struct slabs *s = slabs_new(grow, &k, 2 << 20);
	u32 ref, whole;

	assert_int_equal(slabs_alloc(s, SLAB_BYTES + 1, &ref), -EINVAL);
	/* The first slab keeps one block back: ref 0 means nothing. */
	assert_int_equal(slabs_alloc(s, SLAB_BYTES, &whole), 0);
	assert_int_equal(REF_SLAB(whole), 1);
	assert_int_equal(slabs_alloc(s, SLAB_BYTES, &ref), -ENOSPC);
	assert_int_equal(slabs_alloc(s, SLAB_BYTES - SLAB_BLOCK, &ref), 0);
	assert_int_equal(slabs_alloc(s, 1, &ref), -ENOSPC);
	slabs_release(s, whole, SLAB_BYTES);
	assert_int_equal(slabs_alloc(s, 1, &ref), 0);
	slabs_free(s);
	fake_fini(&k);
}

struct world {
	struct fake_kernel kernel;
	struct modules *modules;
	struct processes *procs;
	struct tables *tables;
	struct process *self;
};

static u64 own_start_ns(void)
{
	_cleanup_free_ char *text = NULL;
	const char *f;
	int i;

	assert_int_equal(read_file("/proc/self/stat", 4096, &text, NULL), 0);
	f = strrchr(text, ')') + 1;
	for (i = 0; i < 19; i++)
		f = strchr(f + 1, ' ');
	return strtoull(f, NULL, 10) * (NSEC_PER_SEC / (u64)sysconf(_SC_CLK_TCK));
}

static void world_init(struct world *w, u64 budget)
{
	struct tables_kernel tk = {
		.arg = &w->kernel,
		.grow = grow,
		.publish = publish,
		.unpublish = unpublish,
		.sync = grace,
	};
	struct stack_key key = { .tgid = (u32)getpid(), .start_ns = own_start_ns(), .exec_id = 7 };

	memset(w, 0, sizeof(*w));
	w->kernel.limit = FAKE_SLABS;
	w->modules = modules_new(1 << 20);
	w->procs = processes_new(w->modules, "/proc", false);
	w->tables = tables_new(w->procs, w->modules, &tk, budget);
	w->self = processes_find(w->procs, &key, now_monotonic(), true);
	assert_non_null(w->self);
	assert_non_null(w->self->exe);
}

static void world_fini(struct world *w)
{
	tables_free(w->tables);
	processes_free(w->procs);
	modules_free(w->modules);
	fake_fini(&w->kernel);
}

static void settle(struct world *w)
{
	int i;

	for (i = 0; i < 50; i++) {
		tables_round(w->tables, now_monotonic());
		modules_settle(w->modules, now_monotonic() + NSEC_PER_SEC);
	}
}

static const struct map_entry *entry_of(struct world *w, u64 addr)
{
	const struct map_entry *e = at(&w->kernel, w->kernel.entry.maps);
	u32 i;

	for (i = 0; i < w->kernel.entry.nmaps; i++)
		if (addr >= e[i].lo && addr < e[i].hi)
			return &e[i];
	return NULL;
}

/* The rule at an address by what was published, read the slow way: row after row. */
static bool published_rule(struct world *w, u64 addr, struct unwind_rule *ret)
{
	const struct map_entry *e = entry_of(w, addr);
	const struct leaf_head *head;
	const struct leaf_block *block;
	const u16 *list;
	const u8 *row, *gap;
	u64 rel, page, low;
	u32 leaf, b, i, pc, found = UINT32_MAX;

	assert_non_null(e);
	if (e->kind != MAP_TABLE)
		return false;
	rel = addr - e->bias;
	page = rel >> e->shift;
	low = rel & ((1ull << e->shift) - 1);
	if (page >= e->npages)
		return false;
	leaf = ((u32 *)at(&w->kernel, e->index))[page];
	if (!leaf)
		return false;
	head = at(&w->kernel, leaf);
	block = (const void *)(head + 1);
	list = (const void *)(block + head->nblocks);
	row = (const void *)(list + head->nrules);
	gap = (const u8 *)head + head->gap_at * 8;
	for (b = 0; b < head->nblocks; b++) {
		u32 end = b + 1u < head->nblocks ? block[b + 1].first : head->nrows;

		for (i = block[b].first, pc = block[b].pc; i < end; i++) {
			pc += i > block[b].first ? gap[i] : 0;
			if (pc <= low)
				found = i;
		}
	}
	assert_int_not_equal(found, UINT32_MAX);
	*ret = ((struct unwind_rule *)at(&w->kernel, e->rules))[list[row[found]]];
	return ret->cfa != UNWIND_CFA_NONE;
}

/* Compiled straight from the file, past everything that publishes. */
static void direct_rule(const char *path, u64 vaddr, struct unwind_rule *ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct table t;

	assert_int_equal(tablefile_compile(fd, NULL, 0, "", NULL, &t, NULL), 0);
	assert_true(table_find(&t, vaddr, ret, NULL));
	table_fini(&t);
}

static void own_process_is_published(void **state __unused)
{
	struct unwind_rule rule, want;
	struct world w;

	world_init(&w, 64 << 20);
	tables_want(w.tables, w.self);
	settle(&w);
	assert_int_equal(w.kernel.tgid, getpid());
	assert_int_equal(w.kernel.entry.exec_id, 7);
	assert_int_equal(w.kernel.entry.start_ns, own_start_ns());
	assert_int_not_equal(w.kernel.entry.gen, 0);
	assert_null(entry_of(&w, (u64)(uintptr_t)&w));
	/* The symbol's address in this file, by the linker's own base. */
	extern const char __ehdr_start[];

	assert_true(published_rule(&w, (u64)(uintptr_t)&own_start_ns + 1, &rule));
	direct_rule("/proc/self/exe", (u64)((uintptr_t)&own_start_ns - (uintptr_t)__ehdr_start) + 1,
		    &want);
	assert_memory_equal(&rule, &want, sizeof(rule));
	assert_true(published_rule(&w, (u64)(uintptr_t)&qsort + 1, &rule)); /* the C library */
	world_fini(&w);
	assert_int_equal(w.kernel.unpublishes, 1);
}

static void unchanged_process_is_published_once(void **state __unused)
{
	struct world w;
	u32 n;

	world_init(&w, 64 << 20);
	tables_want(w.tables, w.self);
	settle(&w);
	n = w.kernel.publishes;
	settle(&w);
	assert_int_equal(w.kernel.publishes, n);
	world_fini(&w);
}

static void new_mapping_is_published_and_the_old_list_freed_after_a_grace(void **state __unused)
{
	void *jit = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 lo = (u64)(uintptr_t)jit;
	struct task_event ev = {
		.type = TASK_MMAP,
		.time_ns = UINT64_MAX,
		.pid = (u32)getpid(),
		.file = { .path = "//anon", .lo = 0x7f0000000000, .hi = 0x7f0000004000 }
	};
	struct tables_figures before, after;
	u32 gen, syncs;
	struct world w;

	world_init(&w, 64 << 20);
	tables_want(w.tables, w.self);
	settle(&w);
	assert_int_equal(entry_of(&w, lo + 5)->kind, MAP_JIT);
	gen = w.kernel.entry.gen;
	syncs = w.kernel.syncs;
	tables_figures(w.tables, &before);
	processes_event(w.procs, &ev);
	settle(&w);
	assert_int_not_equal(w.kernel.entry.gen, gen);
	assert_non_null(entry_of(&w, 0x7f0000000000));
	assert_true(w.kernel.syncs > syncs);
	tables_figures(w.tables, &after);
	assert_int_equal(after.map_bytes - before.map_bytes, sizeof(struct map_entry));
	assert_int_equal(after.files, before.files);
	munmap(jit, 8192);
	world_fini(&w);
}

static void failed_publish_is_counted_and_leaves_the_old(void **state __unused)
{
	u64 before = stat_get(STAT_publish_failed);
	struct world w;

	world_init(&w, 64 << 20);
	w.kernel.fail_publish = true;
	tables_want(w.tables, w.self);
	settle(&w);
	assert_true(stat_get(STAT_publish_failed) > before);
	assert_int_equal(w.kernel.tgid, 0);
	world_fini(&w);
}

static void no_room_at_all_is_counted(void **state __unused)
{
	u64 before = stat_get(STAT_unwind_no_room);
	struct world w;

	world_init(&w, 64 << 20);
	w.kernel.limit = 0; /* the kernel gives no memory */
	tables_want(w.tables, w.self);
	settle(&w);
	assert_true(stat_get(STAT_unwind_no_room) > before);
	assert_int_equal(w.kernel.tgid, 0);
	world_fini(&w);
}

/* An image that still waits for a file when its pid executes another program. */
static void replaced_image_never_pushes_out_the_one_that_runs(void **state __unused)
{
	struct task_event ev = {
		.type = TASK_EXEC, .time_ns = UINT64_MAX, .pid = (u32)getpid(), .comm = "other"
	};
	struct world w;
	u32 n;

	world_init(&w, 64 << 20);
	tables_want(w.tables, w.self);
	processes_event(w.procs, &ev); /* before its first publication */
	settle(&w);
	assert_int_equal(w.kernel.publishes, 0);
	n = w.kernel.publishes;
	tables_want(w.tables, w.self); /* a late sample of it changes nothing */
	settle(&w);
	assert_int_equal(w.kernel.publishes, n);
	world_fini(&w);
}

static void dropped_image_is_unpublished(void **state __unused)
{
	struct world w;

	world_init(&w, 64 << 20);
	tables_want(w.tables, w.self);
	settle(&w);
	/* As after an exec: the image goes at the next look round. */
	struct task_event ev = {
		.type = TASK_EXEC, .time_ns = UINT64_MAX, .pid = (u32)getpid(), .comm = "other"
	};

	processes_event(w.procs, &ev);
	processes_trim(w.procs, NSEC_PER_SEC);
	assert_int_equal(w.kernel.tgid, 0);
	assert_int_equal(w.kernel.unpublishes, 1);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_never_overlap_and_all_come_back),
		cmocka_unit_test(slabs_keep_their_limit),
		cmocka_unit_test(own_process_is_published),
		cmocka_unit_test(unchanged_process_is_published_once),
		cmocka_unit_test(new_mapping_is_published_and_the_old_list_freed_after_a_grace),
		cmocka_unit_test(failed_publish_is_counted_and_leaves_the_old),
		cmocka_unit_test(no_room_at_all_is_counted),
		cmocka_unit_test(replaced_image_never_pushes_out_the_one_that_runs),
		cmocka_unit_test(dropped_image_is_unpublished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
