// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps lists as interpreters do, and changes them at full speed by a rule that anybody who reads
 * one can check. lister MODE RUNNING WAITING DEPTH SLOW: prints its recipe in hex, then has so many
 * threads that change their list without a pause, and so many that change it and then wait for SLOW
 * times some milliseconds; the end is a signal. With DEPTH lists stay so deep and waits have no end.
 *
 * list:  linked nodes, head in a thread-local variable. Each node's value is made from that of the
 *        node before it, so nodes of different moments do not fit together. While a thread runs,
 *        one register holds the head, and another something made from its value.
 * array: frames of 64 bytes that grow down from the end of a block, whose head, start and size
 *        stand in a block that a thread-local variable leads to.
 * cold:  such a list, of one node a page of a file, which does not change; but a page or two is not
 *        resident at most times.
 * hang:  the list begins in a page that never comes: of a userfaultfd that nobody serves, or of the
 *        file LISTER_FILE, whose server, the process LISTER_SERVER, is told by SIGUSR2 to be mute.
 * jit:   frame pointers of code made at run time; each frame holds its depth from the leaf and the
 *        depth of all.
 *
 * Needs -fno-omit-frame-pointer, and two registers of its own: -ffixed-r14 -ffixed-r15, on arm64
 * -ffixed-x27 -ffixed-x28.
 */
#include "bpf/recipe_abi.h"
#include "tests/live/lister.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 100

#define barrier() asm volatile("" ::: "memory")

struct object {
	uint64_t pad, check;
};

struct node {
	uint64_t value, depth, stamp;
	struct object *object;
	struct node *prev;
};

struct frame {
	uint64_t value, depth, stamp, pad[5];
};

struct machine {
	struct frame *top;
	struct frame *start;
	uint64_t words; /* of the block */
};

static __thread struct node *volatile head;
static __thread struct machine *volatile machine;

static uint64_t self_pointer(void)
{
#ifdef __aarch64__
	uint64_t tp;

	asm("mrs %0, tpidr_el0" : "=r"(tp));
	return tp;
#else
	uint64_t tp;

	asm("mov %%fs:0, %0" : "=r"(tp));
	return tp;
#endif
}

static void set_registers(uint64_t first, uint64_t second)
{
	/* In this order: while they do not belong together, the first is no head. */
#ifdef __aarch64__
	asm volatile("mov x27, xzr\n\tmov x28, %1\n\tmov x27, %0" ::"r"(first), "r"(second)
		     : "memory");
#else
	asm volatile("xor %%r14d, %%r14d\n\tmov %1, %%r15\n\tmov %0, %%r14" ::"r"(first),
		     "r"(second)
		     : "memory");
#endif
}

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* --- list ---------------------------------------------------------------------------------------- */

struct stack {
	struct node nodes[DEPTH_MAX + 1];
	struct object objects[DEPTH_MAX + 1];
	uint64_t stamp;
};

static void show(struct node *n)
{
	/* The registers leave the old head first, and come to the new one when it is in place. */
	set_registers(0, 0);
	head = n;
	barrier();
	set_registers((uint64_t)n, lister_register(n->value));
}

static void push(struct stack *s)
{
	struct node *prev = head;
	uint64_t depth = prev->depth + 1;
	struct node *n = &s->nodes[depth];

	n->depth = depth;
	n->stamp = ++s->stamp;
	n->value = lister_value(prev->value, n->depth, n->stamp);
	n->object = &s->objects[depth];
	n->object->check = lister_check(n->value);
	n->prev = prev;
	barrier();
	show(n);
}

static void pop(struct stack *s)
{
	struct node *n = head;

	show(n->prev);
	barrier();
	/* What is left behind is overwritten at once, as a later call would do. */
	n->prev = (struct node *)0x5a5a5a5a5a5a5a5aull;
	n->value = s->stamp;
	n->object = NULL;
}

static void list_begin(struct stack *s)
{
	struct node *root = &s->nodes[0];

	root->value = lister_root((uint64_t)syscall(SYS_gettid));
	root->object = &s->objects[0];
	root->object->check = lister_check(root->value);
	show(root);
}

static void list_to(struct stack *s, uint64_t depth)
{
	while (head->depth < depth)
		push(s);
	while (head->depth > depth)
		pop(s);
}

/* --- cold ---------------------------------------------------------------------------------------- */

#define COLD_PAGES 8

static char *cold;

static void *drop_pages(void *arg)
{
	struct timespec t = { .tv_nsec = 20000000 };
	long page = sysconf(_SC_PAGESIZE);
	int i;

	(void)arg;
	for (i = 0;; i = (i + 1) % COLD_PAGES) {
		madvise(cold + i * page, (size_t)page, MADV_DONTNEED);
		nanosleep(&t, NULL);
	}
	return NULL;
}

static void cold_begin(void)
{
	char path[] = "/tmp/lister.XXXXXX";
	long page = sysconf(_SC_PAGESIZE);
	int fd = mkstemp(path), i;
	pthread_t t;

	if (fd < 0 || ftruncate(fd, COLD_PAGES * page))
		exit(1);
	unlink(path);
	cold = mmap(NULL, (size_t)(COLD_PAGES * page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (cold == MAP_FAILED)
		exit(1);
	for (i = 0; i < COLD_PAGES; i++) {
		struct node *n = (struct node *)(cold + i * page), *prev = head;

		n->depth = (uint64_t)i;
		n->stamp = 1;
		n->value = prev ? lister_value(prev->value, n->depth, 1)
				: lister_root((uint64_t)syscall(SYS_gettid));
		n->object = (struct object *)(n + 1);
		n->object->check = lister_check(n->value);
		n->prev = prev;
		show(n);
	}
	pthread_create(&t, NULL, drop_pages, NULL);
}

static void *faulting_page(long page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, 0);
	void *mem = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	reg.range.start = (uint64_t)mem;
	reg.range.len = (uint64_t)page;
	if (fd < 0 || mem == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &reg))
		exit(1);
	return mem;
}

static void *served_page(long page, const char *path)
{
	int fd = open(path, O_RDONLY);
	void *mem = mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE, fd, 0);

	if (fd < 0 || mem == MAP_FAILED || kill(atoi(getenv("LISTER_SERVER")), SIGUSR2))
		exit(1);
	return mem;
}

static void hang_begin(void)
{
	const char *path = getenv("LISTER_FILE");
	long page = sysconf(_SC_PAGESIZE);

	head = path ? served_page(page, path) : faulting_page(page);
}

static struct recipe list_recipe(void)
{
	return (struct recipe){
		.head = RECIPE_TP,
		.nhops = 1,
		.hop = { (int32_t)((uint64_t)&head - self_pointer()) },
		.len = sizeof(struct node),
		.nwords = 4,
		.word = { 0, 1, 2, 3 },
		.npeeks = 1,
		.peek_word = { 3 },
		.peek_off = { 8 },
		.next_word = 4,
#ifdef __aarch64__
		.reg_is_head = 27,
		.reg_kept = 28,
#else
		.reg_is_head = 1, /* r14, r15: bpf/kernel.h */
		.reg_kept = 0,
#endif
	};
}

/* --- array --------------------------------------------------------------------------------------- */

struct block {
	struct frame frames[DEPTH_MAX + 2]; /* the last one is no frame of anybody's */
	struct machine machine;
	uint64_t stamp, root;
};

static void array_begin(struct block *b)
{
	b->machine.start = b->frames;
	b->machine.words = sizeof(b->frames) / 8;
	b->machine.top = &b->frames[DEPTH_MAX + 1];
	b->root = lister_root((uint64_t)syscall(SYS_gettid));
	machine = &b->machine;
}

static void array_push(struct block *b)
{
	struct frame *above = b->machine.top, *f = above - 1;
	uint64_t depth = (uint64_t)(&b->frames[DEPTH_MAX + 1] - f);

	f->depth = depth;
	f->stamp = ++b->stamp;
	f->value = lister_value(depth == 1 ? b->root : above->value, depth, f->stamp);
	barrier();
	b->machine.top = f;
	barrier();
}

static void array_pop(struct block *b)
{
	struct frame *f = b->machine.top;

	b->machine.top = f + 1;
	barrier();
	f->value = b->stamp;
}

static void array_to(struct block *b, uint64_t depth)
{
	struct frame *top = &b->frames[DEPTH_MAX + 1] - depth;

	while (b->machine.top > top)
		array_push(b);
	while (b->machine.top < top)
		array_pop(b);
}

static struct recipe array_recipe(void)
{
	return (struct recipe){
		.head = RECIPE_TP,
		.nhops = 2,
		.hop = { (int32_t)((uint64_t)&machine - self_pointer()),
			 offsetof(struct machine, top) },
		.end_hop = 1,
		.end_a = offsetof(struct machine, start),
		.end_b = offsetof(struct machine, words),
		.end_shift = 3,
		.end_add = -64,
		.stride = 64,
		.len = 24,
		.nwords = 3,
		.word = { 0, 1, 2 },
	};
}

/* --- jit ----------------------------------------------------------------------------------------- */

/*
 * f(depth, all): a frame that holds both before anybody can see it; calls itself down to depth 1,
 * there it spins.
 */
#ifdef __aarch64__
static const uint32_t code[] = {
	0xa9bd7bfd, /* stp x29, x30, [sp, #-48]! */
	0xa90107e0, /* stp x0, x1, [sp, #16] */
	0x910003fd, /* mov x29, sp */
	0xf1000400, /* subs x0, x0, #1 */
	0x54000040, /* b.eq 1f */
	0x97fffffb, /* bl f */
	0xd2800642, /* 1: mov x2, #50 */
	0xf1000442, /* 2: subs x2, x2, #1 */
	0x54ffffe1, /* b.ne 2b */
	0xa8c37bfd, /* ldp x29, x30, [sp], #48 */
	0xd65f03c0, /* ret */
};
#define SLOT_DEPTH 16
#else
static const uint8_t code[] = {
	0x55,                         /* push %rbp */
	0x57,                         /* push %rdi */
	0x56,                         /* push %rsi */
	0x48, 0x8d, 0x6c, 0x24, 0x10, /* lea 16(%rsp), %rbp */
	0x48, 0xff, 0xcf,             /* dec %rdi */
	0x74, 0x05,                   /* jz 1f */
	0xe8, 0xee, 0xff, 0xff, 0xff, /* call f */
	0xb9, 0x32, 0x00, 0x00, 0x00, /* 1: mov $50, %ecx */
	0xff, 0xc9,                   /* 2: dec %ecx */
	0x75, 0xfc,                   /* jnz 2b */
	0xc9,                         /* leave */
	0xc3,                         /* ret */
};
#define SLOT_DEPTH (-8)
#endif

static void (*jit_call)(uint64_t depth, uint64_t all);

static void jit_make(void)
{
	void *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		exit(1);
	memcpy(mem, code, sizeof(code));
	if (mprotect(mem, 4096, PROT_READ | PROT_EXEC))
		exit(1);
	__builtin___clear_cache(mem, (char *)mem + sizeof(code));
	jit_call = (void (*)(uint64_t, uint64_t))mem;
}

static struct recipe jit_recipe(void)
{
	/* From 16 below the frame pointer (x86-64) to 24 above it (arm64). */
	return (struct recipe){
		.head = RECIPE_JIT_FP,
		.lo = -16,
		.len = 48,
		.nwords = 2,
		.word = { (SLOT_DEPTH + 16) / 8,
			  SLOT_DEPTH < 0 ? (SLOT_DEPTH + 8) / 8 : (SLOT_DEPTH + 24) / 8 },
		.next_word = 2,
		.up = 1,
	};
}

/* --- threads ------------------------------------------------------------------------------------- */

static enum { LIST, ARRAY, JIT, COLD, HANG } mode;
static uint64_t fixed, slow;

static void wait_some(uint64_t random)
{
	uint64_t ns = fixed ? 1ull << 50 : slow * (3000000 + random % 20000000);
	struct timespec t = { .tv_sec = (long)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	nanosleep(&t, NULL);
}

/* Both kinds of thread; the choice of depths is theirs alone. */
static void change(bool waits)
{
	uint64_t seed = 0x9e3779b97f4a7c15ull ^ (uint64_t)syscall(SYS_gettid), depth;
	struct stack *s = calloc(1, sizeof(*s));
	struct block *b = calloc(1, sizeof(*b));

	if (!s || !b)
		exit(1);
	if (mode == LIST)
		list_begin(s);
	else if (mode == ARRAY)
		array_begin(b);
	else if (mode == COLD)
		cold_begin();
	for (;;) {
		depth = fixed ? fixed : next_random(&seed) % DEPTH_MAX + 1;
		if (mode == LIST)
			list_to(s, depth);
		else if (mode == ARRAY)
			array_to(b, depth);
		else if (mode == JIT)
			jit_call(depth, depth);
		if (waits) {
			/* Another stamp at least, whatever the depth. */
			if (mode == LIST)
				list_to(s, depth - 1), list_to(s, depth);
			else if (mode == ARRAY)
				array_to(b, depth - 1), array_to(b, depth);
			wait_some(next_random(&seed));
		}
	}
}

static void *thread(void *arg)
{
	change(arg != NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "list", "array", "jit", "cold", "hang" };
	struct recipe r;
	pthread_attr_t attr;
	pthread_t t;
	int i;

	if (argc != 6)
		return 2;
	fixed = strtoull(argv[4], NULL, 10) % (DEPTH_MAX + 1);
	slow = strtoull(argv[5], NULL, 10);
	while (mode < HANG && strcmp(argv[1], names[mode]))
		mode++;
	if (mode == JIT)
		jit_make();
	if (mode == HANG)
		hang_begin();
	if (mode == JIT)
		r = jit_recipe();
	else if (mode == ARRAY)
		r = array_recipe();
	else
		r = list_recipe();
	for (i = 0; i < (int)sizeof(r); i++)
		printf("%02x", ((uint8_t *)&r)[i]);
	puts("");
	fflush(stdout);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	for (i = 1; i < atoi(argv[2]); i++)
		pthread_create(&t, &attr, thread, NULL);
	for (i = 0; i < atoi(argv[3]); i++)
		pthread_create(&t, &attr, thread, (void *)1);
	if (atoi(argv[2]))
		change(false);
	for (;;)
		pause();
}
