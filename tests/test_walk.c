// SPDX-License-Identifier: Apache-2.0
/*
 * The walk of bpf/unwind.h on this test's own stacks, with the tables that the daemon makes of this
 * program, its libraries and the vdso. Functions trap at known places; the handler walks from the
 * registers of the trap, or from its own through the signal frame. What has to come out is what
 * the compiler says: each function notes its return address on the way down. On arm64 there are
 * functions in assembly besides, one for each way of keeping a return address, signed ones too.
 */
#include "tests/unwind_host.c"
#include "core/cfi.h"
#include "core/tablefile.h"

#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include <cmocka.h>

#define NOTES_MAX  64
#define DEPTH      24
#define STACK_SIZE (8ull << 20)

#ifdef __aarch64__
#define ADDRESS_MASK ((1ull << 48) - 1)
/* The traps' immediate keeps them apart from a debugger's. */
#define TRAP() __asm__ volatile("brk #0x3e8" ::: "memory")
#else
#define ADDRESS_MASK (~0ull)
#define TRAP()       __asm__ volatile("int3" ::: "memory")
#endif

static struct unwind_host *host;
static pid_t self;
static u64 stack_top;

/* What the functions on the stack know of their callers, innermost last. */
static struct {
	u64 ra[NOTES_MAX];
	u32 n;
	bool signed_ra; /* one of them lies signed in memory */
} notes;

static struct unwind_host_walk walked;
static u64 trapped_at; /* the instruction that trapped, or the one behind it: where pc is */
static bool from_handler;

static volatile u64 sink;

/* --- tables of this process ------------------------------------------------------------------- */

static int compile(const struct dl_phdr_info *info, struct table *ret)
{
	_cleanup_close_ int fd = -1;
	u64 vdso = getauxval(AT_SYSINFO_EHDR);
	size_t i, size = 0;

	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD)
			size = info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
	if (vdso && info->dlpi_addr == vdso) /* its section headers lie within its last page */
		return tablefile_compile(-1, (const u8 *)vdso, (size + 4095) & ~4095ull, "", NULL,
					 ret, NULL);
	fd = open(*info->dlpi_name ? info->dlpi_name : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : tablefile_compile(fd, NULL, 0, "", NULL, ret, NULL);
}

struct maps {
	struct map_entry entry[MAP_ENTRIES_MAX];
	u32 n;
};

static int add_object(struct dl_phdr_info *info, size_t size __unused, void *arg)
{
	struct maps *maps = arg;
	struct table table = { 0 };
	struct map_entry e = { 0 };
	size_t i;
	int err = compile(info, &table);

	/* As tables.c has it: arm64's vdso has no CFI. */
	assert_true(!err || err == -ENOENT);
	e.kind = MAP_FP;
	if (!err) {
		assert_int_equal(unwind_host_place(host, &table, &e), 0);
		e.bias = info->dlpi_addr + table.base;
	}
	table_fini(&table);
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X))
			continue;
		assert_true(maps->n < MAP_ENTRIES_MAX);
		e.lo = info->dlpi_addr + ph->p_vaddr;
		e.hi = e.lo + ph->p_memsz;
		maps->entry[maps->n++] = e;
	}
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct map_entry *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static u64 find_stack_top(void)
{
	_cleanup_free_ char *maps = NULL;
	unsigned long lo, hi;
	char *line;

	assert_int_equal(read_file("/proc/self/maps", 1 << 20, &maps, NULL), 0);
	line = strstr(maps, "[stack]");
	assert_non_null(line);
	while (line > maps && line[-1] != '\n')
		line--;
	assert_int_equal(sscanf(line, "%lx-%lx", &lo, &hi), 2);
	return hi;
}

/* --- walking from a trap ---------------------------------------------------------------------- */

static void regs_of(const ucontext_t *uc, u64 *regs)
{
#ifdef __aarch64__
	memcpy(regs, uc->uc_mcontext.regs, 31 * sizeof(u64));
	regs[31] = uc->uc_mcontext.sp;
	regs[32] = uc->uc_mcontext.pc;
#else
	regs[16] = (u64)uc->uc_mcontext.gregs[REG_RIP];
	regs[19] = (u64)uc->uc_mcontext.gregs[REG_RSP];
	regs[4] = (u64)uc->uc_mcontext.gregs[REG_RBP];
	regs[5] = (u64)uc->uc_mcontext.gregs[REG_RBX];
#endif
}

/* The caller's own registers, here. */
#ifdef __aarch64__
#define REGS_HERE(regs)                                                                            \
	__asm__ volatile("adr x9, .\n\tstr x9, [%0, #256]\n\tmov x9, sp\n\tstr x9, [%0, #248]\n\t" \
			 "str x29, [%0, #232]\n\tstr x30, [%0, #240]" ::"r"(regs)                  \
			 : "x9", "memory")
#else
#define REGS_HERE(regs)                                                                    \
	__asm__ volatile(                                                                  \
		"lea 0(%%rip), %%rax\n\tmov %%rax, 128(%0)\n\t"                            \
		"mov %%rsp, 152(%0)\n\tmov %%rbp, 32(%0)\n\tmov %%rbx, 40(%0)" ::"D"(regs) \
		: "rax", "memory")
#endif

static void on_trap(int sig __unused, siginfo_t *info __unused, void *context)
{
	struct unwind_host_ask ask = {
		.key = { .tgid = 77, .start_ns = 1, .exec_id = 1 },
		.stack_top = stack_top,
		.stack_size = STACK_SIZE,
		.max_frames = 127,
	};
	ucontext_t *uc = context;

	regs_of(uc, ask.regs);
	trapped_at = ask.regs[UNWIND_ARM64 ? 32 : 16];
	if (from_handler)
		REGS_HERE(ask.regs);
	unwind_host_run(host, &ask, &walked);
#ifdef __aarch64__
	uc->uc_mcontext.pc += 4; /* a brk stays where it is, unlike an int3 */
#endif
}

/* --- what has to come out ---------------------------------------------------------------------- */

/* Called by each function first; fp of the caller's frame record is what lies in memory. */
static void note(void *ra)
{
	assert_true(notes.n < NOTES_MAX);
	notes.ra[notes.n++] = (u64)(uintptr_t)ra & ADDRESS_MASK;
}
#define NOTE() note(__builtin_return_address(0))

/* Frames from `from` on: the trap, then the notes from the innermost; whole to the start. */
static void assert_chain(u32 from)
{
	u32 i;

	assert_true(walked.n > from + notes.n);
	assert_int_equal(walked.ip[from], trapped_at);
	for (i = 0; i < notes.n; i++)
		assert_int_equal(walked.ip[from + 1 + i], notes.ra[notes.n - 1 - i]);
	assert_int_equal(walked.end, STACK_END_COMPLETE);
}

static void prepare(bool in_handler)
{
	memset(&notes, 0, sizeof(notes));
	memset(&walked, 0, sizeof(walked));
	from_handler = in_handler;
}

/* --- functions of C ---------------------------------------------------------------------------- */

typedef void leaf_fn(void);

#define NOINLINE __attribute__((noinline))

static void (*const nest[4])(int depth, leaf_fn *leaf);

/* Frames of different sizes; the array keeps the compiler from merging the functions. */
#define LEVEL(n, bytes)                                                    \
	NOINLINE static void nest##n(int depth, leaf_fn *leaf)             \
	{                                                                  \
		volatile char room[bytes];                                 \
                                                                           \
		NOTE();                                                    \
		room[0] = (char)depth;                                     \
		if (depth)                                                 \
			nest[(n + 1) % ARRAY_SIZE(nest)](depth - 1, leaf); \
		else                                                       \
			leaf();                                            \
		sink += (u64)room[0];                                      \
	}
LEVEL(0, 16)
LEVEL(1, 600)
LEVEL(2, 70000)

/* A frame whose size only the running program knows. */
NOINLINE static void nest3(int depth, leaf_fn *leaf)
{
	volatile char *room = __builtin_alloca((size_t)depth * 48 + 16);

	NOTE();
	room[0] = (char)depth;
	if (depth)
		nest[0](depth - 1, leaf);
	else
		leaf();
	sink += (u64)room[0];
}

static void (*const nest[4])(int, leaf_fn *) = { nest0, nest1, nest2, nest3 };

NOINLINE static void leaf_of_c(void)
{
	NOTE();
	TRAP();
	sink++;
}

static void chain_of_functions_is_whole(void **state)
{
	(void)state;
	prepare(false);
	nest[0](DEPTH, leaf_of_c);
	assert_int_equal(notes.n, DEPTH + 2);
	assert_chain(0);
}

/* Its own frames first; the trap's own place must not be taken for a return address. */
static void chain_goes_on_behind_a_signal_frame(void **state)
{
	u32 at;

	(void)state;
	prepare(true);
	nest[0](DEPTH, leaf_of_c);
	for (at = 0; at < walked.n && walked.ip[at] != trapped_at; at++)
		;
	assert_in_range(at, 1, 4);
	assert_chain(at);
}

static void chain_goes_on_from_another_stack(void **state)
{
	stack_t other = { .ss_size = 1 << 16 }, none = { .ss_flags = SS_DISABLE };
	u32 at;

	(void)state;
	other.ss_sp = malloc(other.ss_size);
	assert_non_null(other.ss_sp);
	assert_int_equal(sigaltstack(&other, NULL), 0);
	prepare(true);
	nest[0](DEPTH, leaf_of_c);
	assert_int_equal(sigaltstack(&none, NULL), 0);
	free(other.ss_sp);
	for (at = 0; at < walked.n && walked.ip[at] != trapped_at; at++)
		;
	assert_in_range(at, 1, 4);
	assert_chain(at);
}

#ifdef __aarch64__

/* --- every way of keeping a return address ------------------------------------------------------ */

/*
 * Each traps where its name says and gives back the return address as it lies there in memory or in
 * a register. clang-format is of no use for assembly.
 */
/* clang-format off */
#define LABEL(name) \
	".text\n\t.p2align 4\n\t.globl " #name "\n\t.hidden " #name "\n\t" \
	".type " #name ", %function\n" #name ":\n\t"
#define FUNCTION(name, body) \
	__attribute__((visibility("hidden"))) u64 name(void); \
	__asm__(LABEL(name) ".cfi_startproc\n\t" body "\n\t.cfi_endproc\n\t" \
		".size " #name ", . - " #name "\n\t")

/* No frame at all: only x30 has it. */
FUNCTION(leaf_without_frame, "brk #0x3e8\n\tmov x0, x30\n\tret");
/* The stack pointer has moved, x30 is not yet stored. */
FUNCTION(leaf_in_its_prologue,
	"sub sp, sp, #48\n\t.cfi_def_cfa_offset 48\n\tbrk #0x3e8\n\tmov x0, x30\n\t"
	"add sp, sp, #48\n\t.cfi_def_cfa_offset 0\n\tret");
/* As compilers do it with -fomit-frame-pointer. */
FUNCTION(saved_without_frame_pointer,
	"str x30, [sp, #-48]!\n\t.cfi_def_cfa_offset 48\n\t.cfi_offset 30, -48\n\t"
	"mov x30, xzr\n\tbrk #0x3e8\n\tldr x30, [sp], #48\n\t.cfi_restore 30\n\t"
	".cfi_def_cfa_offset 0\n\tmov x0, x30\n\tret");
/* A frame record, and room below it. */
FUNCTION(saved_in_a_frame_record,
	"stp x29, x30, [sp, #-16]!\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 29, -16\n\t"
	".cfi_offset 30, -8\n\tmov x29, sp\n\t.cfi_def_cfa_register 29\n\tsub sp, sp, #1024\n\t"
	"mov x30, xzr\n\tbrk #0x3e8\n\tmov sp, x29\n\t.cfi_def_cfa_register 31\n\t"
	"ldp x29, x30, [sp], #16\n\t.cfi_restore 29\n\t.cfi_restore 30\n\t.cfi_def_cfa_offset 0\n\t"
	"mov x0, x30\n\tret");
/* A frame of more than a page. */
FUNCTION(saved_far_away,
	"sub sp, sp, #32, lsl #12\n\t.cfi_def_cfa_offset 131072\n\tstr x30, [sp, #8]\n\t"
	".cfi_offset 30, -131064\n\tmov x30, xzr\n\tbrk #0x3e8\n\tldr x30, [sp, #8]\n\t"
	".cfi_restore 30\n\tadd sp, sp, #32, lsl #12\n\t.cfi_def_cfa_offset 0\n\tmov x0, x30\n\tret");
/* Another register has it, as in outlined prologues. */
FUNCTION(kept_in_another_register,
	"mov x15, x30\n\t.cfi_register 30, 15\n\tmov x30, xzr\n\tbrk #0x3e8\n\tmov x30, x15\n\t"
	".cfi_restore 30\n\tmov x0, x30\n\tret");
/* Signed, still in x30. paciasp is a hint: processors without it do nothing. */
FUNCTION(signed_in_the_register,
	"hint #25\n\t.cfi_negate_ra_state\n\tmov x0, x30\n\tbrk #0x3e8\n\thint #29\n\t"
	".cfi_negate_ra_state\n\tret");
FUNCTION(signed_on_the_stack,
	"hint #25\n\t.cfi_negate_ra_state\n\tstp x29, x30, [sp, #-32]!\n\t.cfi_def_cfa_offset 32\n\t"
	".cfi_offset 29, -32\n\t.cfi_offset 30, -24\n\tmov x0, x30\n\tmov x30, xzr\n\tbrk #0x3e8\n\t"
	"ldp x29, x30, [sp], #32\n\t.cfi_restore 29\n\t.cfi_restore 30\n\t.cfi_def_cfa_offset 0\n\t"
	"hint #29\n\t.cfi_negate_ra_state\n\tret");
/* clang-format on */

static u64 (*asm_function)(void);
static u64 ra_in_use; /* as asm_function saw it */

NOINLINE static void leaf_of_asm(void)
{
	NOTE();
	/* The label is where the call returns to. */
	notes.ra[notes.n++] = 0;
	ra_in_use = asm_function();
	sink++;
}

/* ra_in_use, stripped, is what has to follow the trap. */
static void walk_asm(u64 (*fn)(void))
{
	prepare(false);
	asm_function = fn;
	nest[0](5, leaf_of_asm);
	notes.ra[notes.n - 1] = ra_in_use & ADDRESS_MASK;
	assert_chain(0);
}

static void return_address_in_every_usual_place(void **state)
{
	(void)state;
	walk_asm(leaf_without_frame);
	walk_asm(leaf_in_its_prologue);
	walk_asm(saved_without_frame_pointer);
	walk_asm(saved_in_a_frame_record);
	walk_asm(saved_far_away);
	walk_asm(kept_in_another_register);
}

#ifndef HWCAP_PACA
#define HWCAP_PACA (1 << 30)
#endif

/*
 * Where user addresses may have 52 bits, a signature has as few as three: one in eight is zero. So
 * each is asked for at 32 places of the stack, of which none signed would be a wonder.
 */
#define PLACES 32

static void assert_signed_somewhere(u64 (*fn)(void))
{
	u32 i, found = 0;

	for (i = 0; i < PLACES; i++) {
		prepare(false);
		asm_function = fn;
		nest[i % ARRAY_SIZE(nest)]((int)i % 8, leaf_of_asm);
		notes.ra[notes.n - 1] = ra_in_use & ADDRESS_MASK;
		assert_chain(0);
		found += ra_in_use != (ra_in_use & ADDRESS_MASK);
	}
	assert_int_equal(found > 0, (getauxval(AT_HWCAP) & HWCAP_PACA) != 0);
}

static void signed_return_address_is_stripped(void **state)
{
	(void)state;
	assert_signed_somewhere(signed_in_the_register);
	assert_signed_somewhere(signed_on_the_stack);
}

/* Built with -mbranch-protection=standard: what the walks of C went over were such frames. */
NOINLINE static void leaf_that_looks_at_its_frame(void)
{
	const u64 *record = __builtin_frame_address(0);

	NOTE();
	notes.signed_ra = (record[1] & ~ADDRESS_MASK) != 0;
	TRAP();
	sink++;
}

static void compiler_signs_the_frames_that_are_walked(void **state)
{
	u32 i, found = 0;

	(void)state;
	for (i = 0; i < PLACES; i++) {
		prepare(false);
		nest[i % ARRAY_SIZE(nest)]((int)i % 8, leaf_that_looks_at_its_frame);
		assert_chain(0);
		found += notes.signed_ra;
	}
	assert_int_equal(found > 0, (getauxval(AT_HWCAP) & HWCAP_PACA) != 0);
}

/*
 * Without CFI the chain of frame records is all there is; it must not be called whole. The record
 * lies at the bottom of its frame, as compilers have it: where the caller's begins, it does not say.
 */
/* clang-format off */
__attribute__((visibility("hidden"))) u64 without_cfi(void);
__asm__(LABEL(without_cfi)
	"stp x29, x30, [sp, #-32]!\n\tmov x29, sp\n\tmov x0, x30\n\tmov x30, xzr\n\tbrk #0x3e8\n\t"
	"ldp x29, x30, [sp], #32\n\tret\n\t.size without_cfi, . - without_cfi\n\t");
/* clang-format on */

static void function_without_cfi_is_guessed_over(void **state)
{
	u32 i;

	(void)state;
	prepare(false);
	asm_function = without_cfi;
	nest[0](5, leaf_of_asm);
	notes.ra[notes.n - 1] = ra_in_use & ADDRESS_MASK;
	assert_true(walked.n > notes.n);
	assert_int_equal(walked.ip[0], trapped_at);
	for (i = 0; i < notes.n; i++)
		assert_int_equal(walked.ip[1 + i], notes.ra[notes.n - 1 - i]);
	assert_int_equal(walked.end, STACK_END_GUESSED);
}

#endif

/* --- the vdso ----------------------------------------------------------------------------------- */

#define VDSO_WALKS 20

static volatile u32 in_vdso, in_vdso_whole;
static u64 vdso_lo, vdso_hi;

/* Somewhere in the vdso, its own frames first; then the C library's; then what was noted. */
static void on_alarm(int sig __unused, siginfo_t *info __unused, void *context)
{
	struct unwind_host_ask ask = {
		.key = { .tgid = 77, .start_ns = 1, .exec_id = 1 },
		.stack_top = stack_top,
		.stack_size = STACK_SIZE,
		.max_frames = 127,
	};
	u32 at, i;

	regs_of(context, ask.regs);
	if (ask.regs[UNWIND_ARM64 ? 32 : 16] < vdso_lo ||
	    ask.regs[UNWIND_ARM64 ? 32 : 16] >= vdso_hi)
		return;
	unwind_host_run(host, &ask, &walked);
	for (at = 1; at < walked.n && at < 6; at++) {
		for (i = 0; i < notes.n && at + i < walked.n; i++)
			if (walked.ip[at + i] != notes.ra[notes.n - 1 - i])
				break;
		if (i == notes.n)
			break;
	}
	in_vdso_whole += at < 6 && at < walked.n && walked.end == STACK_END_COMPLETE;
	in_vdso++;
}

NOINLINE static void spin_in_the_clock(void)
{
	struct timespec ts;
	u32 i;

	NOTE();
	for (i = 0; in_vdso < VDSO_WALKS && i < 50000000; i++) {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		sink += (u64)ts.tv_nsec;
	}
}

static void clock_in_the_vdso_is_walked_through(void **state)
{
	const struct itimerval on = { { 0, 1000 }, { 0, 1000 } }, off = { 0 };
	const struct sigaction sa = { .sa_sigaction = on_alarm,
				      .sa_flags = SA_SIGINFO | SA_RESTART };

	(void)state;
	vdso_lo = getauxval(AT_SYSINFO_EHDR);
	vdso_hi = vdso_lo + 0x4000;
	in_vdso = in_vdso_whole = 0;
	assert_int_equal(sigaction(SIGALRM, &sa, NULL), 0);
	prepare(false);
	assert_int_equal(setitimer(ITIMER_REAL, &on, NULL), 0);
	nest[0](5, spin_in_the_clock);
	assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
	/* Some machines have a clock that only the kernel can read. */
	if (in_vdso < VDSO_WALKS / 4)
		skip();
	assert_int_equal(in_vdso_whole, in_vdso);
}

/* Registers of any value, tables and memory that are real: a walk ends and stays within bounds. */
static void any_registers_end(void **state)
{
	static struct unwind_host_ask ask;
	static struct unwind_host_walk walk;
	u64 x = 88172645463325252ull;
	u32 round, i;

	(void)state;
	for (round = 0; round < 2000; round++) {
		ask = (struct unwind_host_ask){ .key = { .tgid = 77, .start_ns = 1, .exec_id = 1 },
						.stack_top = stack_top,
						.stack_size = STACK_SIZE,
						.max_frames = 1 + round % 127 };
		for (i = 0; i < HOST_REGS; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			/* Values as they are, places of this stack, places of this text. */
			ask.regs[i] =
				x & 1   ? x
				: x & 2 ? stack_top - (x >> 40 & 0xffff)
					: (u64)(uintptr_t)any_registers_end + (x >> 50 & 0xffc) * 4;
		}
		unwind_host_run(host, &ask, &walk);
		assert_in_range(walk.n, 0, ask.max_frames);
	}
}

/* --- all of it --------------------------------------------------------------------------------- */

static int setup(void **state)
{
	static struct maps maps;
	const struct sigaction sa = { .sa_sigaction = on_trap,
				      .sa_flags = SA_SIGINFO | SA_ONSTACK };
	const struct stack_key key = { .tgid = 77, .start_ns = 1, .exec_id = 1 };

	(void)state;
	self = getpid();
	stack_top = find_stack_top();
	host = unwind_host_new(unwind_host_read_pid, &self);
	if (!host)
		return -1;
	dl_iterate_phdr(add_object, &maps);
	qsort(maps.entry, maps.n, sizeof(maps.entry[0]), by_address);
	assert_int_equal(unwind_host_publish(host, &key, maps.entry, maps.n), 0);
	return sigaction(SIGTRAP, &sa, NULL);
}

static int teardown(void **state)
{
	(void)state;
	unwind_host_free(host);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chain_of_functions_is_whole),
		cmocka_unit_test(chain_goes_on_behind_a_signal_frame),
		cmocka_unit_test(chain_goes_on_from_another_stack),
#ifdef __aarch64__
		cmocka_unit_test(return_address_in_every_usual_place),
		cmocka_unit_test(signed_return_address_is_stripped),
		cmocka_unit_test(compiler_signs_the_frames_that_are_walked),
		cmocka_unit_test(function_without_cfi_is_guessed_over),
#endif
		cmocka_unit_test(clock_in_the_vdso_is_walked_through),
		cmocka_unit_test(any_registers_end),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
