// SPDX-License-Identifier: Apache-2.0
/*
 * Waits that are open when a window ends, without a kernel side: slots are plain memory, the thread
 * that waits is one of this process, blocked in a pipe under a chain of functions that note their
 * own return addresses. Expected stacks are those notes.
 */
#include "core/openwaits.h"
#include "core/reader.h"
#include "core/stat.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define NSLOTS 64
#define SLOT   5
#define TASK   0x1234560
#define START  1000000000ull

/* Where the thread is. */
static struct {
	pthread_t thread;
	u32 tid;
	int fd[2];
	u64 ip, sp, fp;
	u64 chain[3]; /* return addresses, innermost first */
	pthread_barrier_t there;
} waiter;

/* --- the thread ------------------------------------------------------------------------------- */

#define NOINLINE __attribute__((noinline))

NOINLINE static void inner(void)
{
	char c;

	waiter.chain[0] = (u64)(uintptr_t)__builtin_return_address(0);
	waiter.fp = (u64)(uintptr_t)__builtin_frame_address(0);
	waiter.sp = waiter.fp - 8;
	waiter.ip = (u64)(uintptr_t)inner;
	pthread_barrier_wait(&waiter.there);
	if (read(waiter.fd[0], &c, 1) < 0)
		abort();
}

NOINLINE static void middle(void)
{
	waiter.chain[1] = (u64)(uintptr_t)__builtin_return_address(0);
	inner();
	__asm__ volatile("" ::: "memory"); /* no tail call */
}

NOINLINE static void *outer(void *arg __unused)
{
	waiter.tid = (u32)syscall(SYS_gettid);
	middle();
	__asm__ volatile("" ::: "memory");
	return NULL;
}

static int setup(void **state __unused)
{
	if (pipe(waiter.fd) || pthread_barrier_init(&waiter.there, NULL, 2) ||
	    pthread_create(&waiter.thread, NULL, outer, NULL))
		return -1;
	pthread_barrier_wait(&waiter.there);
	return 0;
}

static int teardown(void **state __unused)
{
	char c = 0;

	if (write(waiter.fd[1], &c, 1) != 1)
		return -1;
	pthread_join(waiter.thread, NULL);
	return 0;
}

/* --- what is under test ------------------------------------------------------------------------ */

struct world {
	struct wait_slot slots[NSLOTS];
	struct openwaits *open;
	struct reader *reader;
	u32 calls;
	u64 ns; /* of all calls */
	/* Of the last one. */
	u64 words[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
	u32 nkernel, nuser, end;
	u64 epoch, time_ns, hash;
	/* Tables mode: each look at a slab takes so long. */
	u32 slow_ms;
	u32 slow_tgid;
};

static const u8 *slow_slab(const void *arg, u32 slab __unused)
{
	const struct world *w = arg;

	usleep(w->slow_ms * 1000);
	return NULL;
}

static int image_of(void *arg, u32 tgid, struct proc_entry *ret)
{
	const struct world *w = arg;

	if (!w->slow_tgid || tgid != w->slow_tgid)
		return -ENOENT;
	*ret = (struct proc_entry){ .start_ns = 77, .exec_id = 3, .gen = 1, .maps = 1, .nmaps = 1 };
	return 0;
}

static void world_init(struct world *w, bool tables)
{
	struct openwaits_options o = {
		.slots = w->slots,
		.nslots = NSLOTS,
		.max_frames = 64,
		.addr_mask = ~0ull,
		.tables = tables,
		.slab = slow_slab,
		.slab_arg = w,
		.image = image_of,
		.arg = w,
	};

	memset(w, 0, sizeof(*w));
	w->reader = reader_new();
	assert_non_null(w->reader);
	o.reader = w->reader;
	w->open = openwaits_new(&o);
	assert_non_null(w->open);
}

static void world_fini(struct world *w)
{
	openwaits_free(w->open);
	reader_free(w->reader);
}

static void on_charge(void *arg, const struct stack_event *ev, size_t len,
		      const struct stack_count *count)
{
	struct world *w = arg;

	assert_int_equal(len, sizeof(*ev) + (ev->nkernel + ev->nuser) * sizeof(u64));
	assert_int_equal(count->count, 1);
	w->calls++;
	w->ns += count->ns;
	w->nkernel = ev->nkernel;
	w->nuser = ev->nuser;
	w->end = ev->end;
	w->epoch = ev->epoch;
	w->time_ns = ev->time_ns;
	w->hash = ev->key.stack_hash;
	memcpy(w->words, ev + 1, (ev->nkernel + ev->nuser) * sizeof(u64));
}

static void charge(struct world *w, u64 until)
{
	openwaits_charge(w->open, 0, until, 9, on_charge, w);
}

/* As the program leaves it when a thread begins to wait. */
static void open_slot(struct world *w, u32 slot, u64 task, u64 start)
{
	w->slots[slot].task = task;
	w->slots[slot].from = start;
	w->slots[slot].start = start;
}

struct record {
	struct open_wait o;
	u64 kernel[MAX_KERNEL_FRAMES];
};

static void make_record(struct record *r, u32 slot, u64 task, u64 start)
{
	memset(r, 0, sizeof(*r));
	r->o.key.tgid = (u32)getpid();
	r->o.key.start_ns = 77;
	r->o.key.exec_id = 3;
	r->o.key.kind = STACK_OFF_CPU;
	r->o.key.state = 'S';
	r->o.task = task;
	r->o.start = start;
	r->o.slot = slot;
	r->o.tid = waiter.tid;
	r->o.end = STACK_END_MAX;
	r->o.stack_size = 8 << 20;
	r->o.nkernel = 2;
	r->kernel[0] = 0xffffffff81000010;
	r->kernel[1] = 0xffffffff81000020;
#ifdef __x86_64__
	r->o.regs[16] = waiter.ip;
	r->o.regs[19] = waiter.sp;
	r->o.regs[4] = waiter.fp;
#else
	r->o.regs[32] = waiter.ip;
	r->o.regs[31] = waiter.sp;
	r->o.regs[29] = waiter.fp;
#endif
}

static size_t size_of(const struct record *r)
{
	return sizeof(r->o) + r->o.nkernel * sizeof(u64);
}

static int add(struct world *w, u32 slot, u64 task, u64 start)
{
	struct record r;

	make_record(&r, slot, task, start);
	return openwaits_add(w->open, &r.o, size_of(&r));
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_an_open_wait_has_the_stack_that_its_thread_stands_on(void **state __unused)
{
	struct world w;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	assert_int_equal(add(&w, SLOT, TASK, START), 0);
	charge(&w, START + 250);
	assert_int_equal(w.calls, 1);
	assert_int_equal(w.ns, 250);
	assert_int_equal(w.nkernel, 2);
	assert_true(w.words[0] == 0xffffffff81000010 && w.words[1] == 0xffffffff81000020);
	assert_true(w.nuser >= 4);
	assert_true(w.words[2] == waiter.ip);
	assert_true(w.words[3] == waiter.chain[0]);
	assert_true(w.words[4] == waiter.chain[1]);
	assert_int_equal(w.epoch, 9);
	assert_int_equal(w.time_ns, START + 250);
	world_fini(&w);
}

static void test_a_wait_is_charged_window_by_window_and_never_twice(void **state __unused)
{
	struct world w;
	u64 hash;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	charge(&w, START + 1000);
	hash = w.hash;
	charge(&w, START + 1000);
	assert_int_equal(w.calls, 1);
	charge(&w, START + 1700);
	assert_int_equal(w.calls, 2);
	assert_int_equal(w.ns, 1700);
	assert_true(w.hash == hash);
	/* The program that ends the wait finds up to where it was charged. */
	assert_int_equal(w.slots[SLOT].from, START + 1700);
	/* It is known by now: the iterator need not tell it again. */
	assert_int_equal(w.slots[SLOT].told, START);
	assert_int_equal(openwaits_known(w.open), 1);
	world_fini(&w);
}

static void test_waits_of_one_process_are_charged_without_those_of_others(void **state __unused)
{
	struct record r;
	struct world w;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	make_record(&r, SLOT + 1, TASK + 64, START);
	open_slot(&w, SLOT + 1, TASK + 64, START);
	r.o.key.tgid++;
	r.o.end = STACK_END_NO_USER;
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), 0);
	charge(&w, START + 100);
	assert_int_equal(w.calls, 2);
	openwaits_charge(w.open, (u32)getpid(), START + 300, 9, on_charge, &w);
	assert_int_equal(w.calls, 3);
	assert_int_equal(w.slots[SLOT].from, START + 300);
	assert_int_equal(w.slots[SLOT + 1].from, START + 100);
	/* And nothing of theirs is lost by it. */
	charge(&w, START + 400);
	assert_int_equal(w.calls, 5);
	assert_int_equal(w.ns, 800);
	world_fini(&w);
}

static void test_a_wait_that_has_ended_is_left_to_who_ended_it(void **state __unused)
{
	struct world w;

	world_init(&w, false);
	/* Before its stack was read. */
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	w.slots[SLOT].start = 0;
	charge(&w, START + 1000);
	assert_int_equal(w.calls, 0);
	/* After it was charged once: another wait of the same thread is open now. */
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	charge(&w, START + 1000);
	open_slot(&w, SLOT, TASK, START + 5000);
	charge(&w, START + 9000);
	assert_int_equal(w.calls, 1);
	assert_int_equal(w.ns, 1000);
	assert_int_equal(w.slots[SLOT].from, START + 5000);
	assert_int_equal(openwaits_known(w.open), 0);
	/* The slot has gone to another thread. */
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	w.slots[SLOT].task = TASK + 64;
	charge(&w, START + 20000);
	assert_int_equal(w.calls, 1);
	world_fini(&w);
}

static void test_a_wait_that_is_just_being_ended_is_not_charged(void **state __unused)
{
	struct world w;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	w.slots[SLOT].from = 0; /* taken, start not yet cleared for us to see */
	charge(&w, START + 1000);
	assert_int_equal(w.ns, 0);
	assert_int_equal(w.slots[SLOT].from, 0);
	world_fini(&w);
}

static void test_a_wait_from_after_the_windows_end_waits_for_the_next(void **state __unused)
{
	struct world w;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	add(&w, SLOT, TASK, START);
	charge(&w, START);
	assert_int_equal(w.calls, 0);
	charge(&w, START + 10);
	assert_int_equal(w.ns, 10);
	world_fini(&w);
}

static void test_records_that_cannot_be_are_refused(void **state __unused)
{
	struct record r;
	struct world w;

	world_init(&w, false);
	make_record(&r, SLOT, TASK, START);
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r) - 1), -EINVAL);
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r) + 8), -EINVAL);
	assert_int_equal(openwaits_add(w.open, &r.o, 10), -EINVAL);
	r.o.nkernel = MAX_KERNEL_FRAMES + 1;
	assert_int_equal(openwaits_record_len(&r.o), 0);
	assert_int_equal(openwaits_add(w.open, &r.o, sizeof(r)), -EINVAL);
	make_record(&r, NSLOTS, TASK, START);
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), -EINVAL);
	make_record(&r, SLOT, TASK, START);
	r.o.end = STACK_END_MAX + 1;
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), -EINVAL);
	world_fini(&w);
}

static void test_more_waits_than_a_window_takes_are_charged_later(void **state __unused)
{
	u64 later = stat_get(STAT_open_waits_later);
	struct record r;
	struct world w;
	u32 i;

	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	make_record(&r, SLOT, TASK, START);
	r.o.end = STACK_END_COMPLETE; /* no user part: quick */
	for (i = 0; i < OPENWAITS_A_WINDOW; i++)
		assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), 0);
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), -E2BIG);
	assert_int_equal(stat_get(STAT_open_waits_later), later + 1);
	charge(&w, START + 100);
	/* However often it was told: once. */
	assert_int_equal(w.ns, 100);
	assert_int_equal(w.nuser, 0);
	assert_int_equal(w.end, STACK_END_COMPLETE);
	world_fini(&w);
}

static bool is_resident(void *page)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/pagemap", "re");
	u64 entry = 0;

	assert_non_null(f);
	assert_int_equal(fseek(f, (long)((u64)(uintptr_t)page / (u64)getpagesize() * 8), SEEK_SET),
			 0);
	assert_int_equal(fread(&entry, sizeof(entry), 1, f), 1);
	return entry >> 63;
}

static void test_a_page_that_is_not_there_is_not_brought_in(void **state __unused)
{
	size_t size = 64 * (size_t)getpagesize();
	u8 *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 *record = (u64 *)(mem + 256);
	struct record r;
	struct world w;

	assert_true(mem != MAP_FAILED);
	/* One frame record on the first page, leading to one on a page that nobody has touched. */
	record[0] = (u64)(uintptr_t)(mem + 32 * getpagesize());
	record[1] = (u64)(uintptr_t)is_resident;
	world_init(&w, false);
	open_slot(&w, SLOT, TASK, START);
	make_record(&r, SLOT, TASK, START);
#ifdef __x86_64__
	r.o.regs[19] = (u64)(uintptr_t)mem;
	r.o.regs[4] = (u64)(uintptr_t)record;
#else
	r.o.regs[31] = (u64)(uintptr_t)mem;
	r.o.regs[29] = (u64)(uintptr_t)record;
#endif
	assert_int_equal(openwaits_add(w.open, &r.o, size_of(&r)), 0);
	charge(&w, START + 100);
	assert_int_equal(w.ns, 100);
	assert_int_equal(w.nuser, 2);
	assert_true(w.words[3] == (u64)(uintptr_t)is_resident);
	assert_int_equal(w.end, STACK_END_NOT_RESIDENT);
	assert_true(is_resident(mem));
	assert_false(is_resident(mem + 32 * getpagesize()));
	munmap(mem, size);
	world_fini(&w);
}

static void test_a_process_whose_memory_hangs_is_left_alone_and_no_other(void **state __unused)
{
	u64 hung = stat_get(STAT_open_waits_hung), began;
	struct record r;
	struct world w;

	world_init(&w, true);
	w.slow_ms = 400;
	w.slow_tgid = (u32)getpid();
	open_slot(&w, SLOT, TASK, START);
	open_slot(&w, SLOT + 1, TASK + 64, START);
	add(&w, SLOT, TASK, START);
	/* Another process, of which nothing is published. */
	make_record(&r, SLOT + 1, TASK + 64, START);
	r.o.key.tgid = 1;
	openwaits_add(w.open, &r.o, size_of(&r));
	began = now_monotonic();
	charge(&w, START + 100);
	assert_true(now_monotonic() - began < NSEC_PER_SEC);
	assert_int_equal(stat_get(STAT_open_waits_hung), hung + 1);
	/* Its time is not lost. */
	assert_int_equal(w.calls, 2);
	assert_int_equal(w.ns, 200);
	/* The next one is not even tried. */
	open_slot(&w, SLOT + 2, TASK + 128, START);
	add(&w, SLOT + 2, TASK + 128, START);
	began = now_monotonic();
	openwaits_charge(w.open, 0, START + 100, 9, on_charge, &w);
	assert_true(now_monotonic() - began < READER_WAIT_NS);
	assert_int_equal(w.end, STACK_END_NOT_TAKEN);
	assert_int_equal(w.nuser, 0);
	assert_int_equal(stat_get(STAT_open_waits_hung), hung + 1);
	usleep(w.slow_ms * 2000); /* its thread still looks at w */
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_open_wait_has_the_stack_that_its_thread_stands_on),
		cmocka_unit_test(test_a_wait_is_charged_window_by_window_and_never_twice),
		cmocka_unit_test(test_waits_of_one_process_are_charged_without_those_of_others),
		cmocka_unit_test(test_a_wait_that_has_ended_is_left_to_who_ended_it),
		cmocka_unit_test(test_a_wait_that_is_just_being_ended_is_not_charged),
		cmocka_unit_test(test_a_wait_from_after_the_windows_end_waits_for_the_next),
		cmocka_unit_test(test_records_that_cannot_be_are_refused),
		cmocka_unit_test(test_more_waits_than_a_window_takes_are_charged_later),
		cmocka_unit_test(test_a_page_that_is_not_there_is_not_brought_in),
		cmocka_unit_test(test_a_process_whose_memory_hangs_is_left_alone_and_no_other),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
