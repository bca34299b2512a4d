// SPDX-License-Identifier: Apache-2.0
/*
 * The walk of bpf/unwind.h on hand-made stacks and tables: what each rule means, how corrupt stacks
 * end, and that searches and caches give what a plain look gives. Expectations are drawn by hand
 * from the System V ABI and the C library's ucontext_t; tests/test_oracle.c has real stacks.
 */
#include "tests/unwind_host.c"
#include "core/cfi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <ucontext.h>

#include <cmocka.h>

#ifdef __x86_64__

#define LOAD  0x400000ull /* where the file is mapped; its text begins at TEXT */
#define TEXT  0x1000ull
#define STACK 0x7ff000000000ull
#define WORDS 4096
#define DATA  0x10000000ull /* memory that is not executable */
#define RULES 32

/* Places in struct user_regs. */
enum { R_R10 = 7, R_R11 = 6, R_R9 = 8, R_BP = 4, R_BX = 5, R_CX = 11, R_IP = 16, R_SP = 19 };

/* A rule per function; function i covers 0x80 bytes from AT(i) - 0x10. */
enum fn {
	F_NONE,
	F_LEAF,  /* rsp + 8 */
	F_PUSH,  /* rsp + 16 */
	F_RBP,   /* rbp + 16, rbp pushed */
	F_SAVES, /* rsp + 24, rbp at the frame's bottom */
	F_END,
	F_SIGNAL,
	F_DEREF,  /* *(rsp + 8) + 8 */
	F_DEREF0, /* *(rsp + 8) */
	F_SCALED, /* *(rsp + rcx * 8 + 16) + 8 */
	F_PLT,    /* rsp + 8, 8 more from the 11th byte on */
	F_RA_REG, /* rsp + 0, return address in r11 */
	F_FP_REG, /* rsp + 8, rbp in r9 */
	F_FP_AT,  /* rsp + 8, rbp at *(rsp - 16) */
	F_UNSUPPORTED,
	F_R10,      /* r10 */
	F_HUGE,     /* a frame of over 1 GiB */
	F_DOWN,     /* rsp - 8 */
	F_STAY,     /* rsp */
	F_ODD,      /* rsp + 12 */
	F_FP_LOST,  /* rsp + 8, rbp unknown */
	F_BX,       /* rbx + 8 */
	F_BX_SAVED, /* rsp + 16, rbx pushed */
	F_BX_LOST,  /* rsp + 8, rbx unknown */
	F_EXACT,    /* rsp + 8, and what is above was interrupted */
	F_MAX,
};

#define START(fn) (LOAD + TEXT + (u64)(fn)*0x100)
#define AT(fn)    (START(fn) + 0x10)

#define REG_RULE(r, o, ...)                                                             \
	{                                                                               \
		.cfa = CFI_CFA_REG, .cfa_reg = (r), .cfa_off = (o), .ra = CFI_FROM_CFA, \
		.ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME, __VA_ARGS__     \
	}

/* clang-format off */
static const struct cfi_rule fn_rule[F_MAX] = {
	[F_LEAF] = REG_RULE(7, 8),
	[F_PUSH] = REG_RULE(7, 16),
	[F_RBP] = { .cfa = CFI_CFA_REG, .cfa_reg = 6, .cfa_off = 16, .ra = CFI_FROM_CFA, .ra_off = -8,
		    .fp = CFI_FROM_CFA, .fp_off = -16, .bx = CFI_FROM_SAME },
	[F_SAVES] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 24, .ra = CFI_FROM_CFA,
		      .ra_off = -8, .fp = CFI_FROM_CFA, .fp_off = -24, .bx = CFI_FROM_SAME },
	[F_END] = { .cfa = CFI_CFA_END },
	[F_SIGNAL] = { .cfa = CFI_CFA_SIGNAL, .flags = CFI_RULE_SIGNAL_FRAME },
	[F_DEREF] = { .cfa = CFI_CFA_DEREF, .cfa_reg = 7, .cfa_off = 8, .cfa_add = 8,
		      .ra = CFI_FROM_CFA, .ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME },
	[F_DEREF0] = { .cfa = CFI_CFA_DEREF, .cfa_reg = 7, .cfa_off = 8, .ra = CFI_FROM_CFA,
		       .ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME },
	[F_SCALED] = { .cfa = CFI_CFA_SCALED, .cfa_reg = 7, .cfa_off = 16, .cfa_index = 2,
		       .cfa_scale = 8, .cfa_add = 8, .ra = CFI_FROM_CFA, .ra_off = -8,
		       .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME },
	[F_PLT] = { .cfa = CFI_CFA_PLT, .cfa_reg = 7, .cfa_off = 8, .cfa_add = 11,
		    .ra = CFI_FROM_CFA, .ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME },
	[F_RA_REG] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .ra = CFI_FROM_REG, .ra_reg = 11,
		       .fp = CFI_FROM_SAME, .bx = CFI_FROM_SAME },
	[F_FP_REG] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 8, .ra = CFI_FROM_CFA,
		       .ra_off = -8, .fp = CFI_FROM_REG, .fp_reg = 9, .bx = CFI_FROM_SAME },
	[F_FP_AT] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 8, .ra = CFI_FROM_CFA,
		      .ra_off = -8, .fp = CFI_FROM_DEREF, .fp_reg = 7, .fp_off = -16,
		      .bx = CFI_FROM_SAME },
	[F_UNSUPPORTED] = { .cfa = CFI_CFA_UNSUPPORTED, .reason = CFI_NOTE_row_cfa },
	[F_R10] = REG_RULE(10, 0),
	[F_HUGE] = REG_RULE(7, 0x40000008),
	[F_DOWN] = REG_RULE(7, -8),
	[F_STAY] = REG_RULE(7, 0),
	[F_ODD] = REG_RULE(7, 12),
	[F_FP_LOST] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 8, .ra = CFI_FROM_CFA,
			.ra_off = -8, .fp = CFI_FROM_LOST, .bx = CFI_FROM_SAME },
	[F_BX] = REG_RULE(3, 8),
	[F_BX_SAVED] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 16, .ra = CFI_FROM_CFA,
			 .ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_CFA, .bx_off = -16 },
	[F_BX_LOST] = { .cfa = CFI_CFA_REG, .cfa_reg = 7, .cfa_off = 8, .ra = CFI_FROM_CFA,
			.ra_off = -8, .fp = CFI_FROM_SAME, .bx = CFI_FROM_LOST },
	[F_EXACT] = REG_RULE(7, 8, .flags = CFI_RULE_SIGNAL_FRAME),
};
/* clang-format on */

/* --- a process to walk in --------------------------------------------------------------------- */

struct rig {
	struct unwind_host *host;
	struct unwind_host_ask ask;
	struct unwind_host_walk walk;
	struct map_entry entry; /* the text of all functions */
	u64 stack[WORDS];       /* from STACK on */
	u64 hole;               /* one address that cannot be read, if not 0 */
};

static int rig_read(void *arg, void *dst, size_t size, u64 addr)
{
	struct rig *r = arg;

	if (addr < STACK || addr > STACK + sizeof(r->stack) ||
	    size > STACK + sizeof(r->stack) - addr || (r->hole >= addr && r->hole < addr + size))
		return -EFAULT;
	memcpy(dst, (u8 *)r->stack + (addr - STACK), size);
	return 0;
}

static void pack(const struct cfi_row *rows, u32 nrows, const struct cfi_rule *rules, u32 nrules,
		 struct table *ret)
{
	const struct cfi c = {
		.base = TEXT,
		.rows = (struct cfi_row *)rows,
		.rules = (struct cfi_rule *)rules,
		.nrows = nrows,
		.nrules = nrules,
		.arch = CFI_X86_64,
		.follows_bx = true,
	};

	assert_int_equal(table_pack(&c, ret), 0);
}

static void place(struct rig *r, const struct cfi_row *rows, u32 nrows,
		  const struct cfi_rule *rules, u32 nrules, u64 load, struct map_entry *e)
{
	struct table t = { 0 };

	pack(rows, nrows, rules, nrules, &t);
	assert_int_equal(unwind_host_place(r->host, &t, e), 0);
	e->bias = load + t.base;
	table_fini(&t);
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct cfi_row rows[2 * F_MAX];
	u32 n = 0, i;

	if (!r)
		return -1;
	r->host = unwind_host_new(rig_read, r);
	if (!r->host)
		return -1;
	for (i = 1; i < F_MAX; i++) {
		rows[n].pc = i * 0x100;
		rows[n++].rule = i;
		rows[n].pc = i * 0x100 + 0x80;
		rows[n++].rule = 0;
	}
	place(r, rows, n, fn_rule, F_MAX, LOAD, &r->entry);
	r->entry.lo = LOAD + TEXT;
	r->entry.hi = LOAD + TEXT + 0x10000;
	r->ask.key.tgid = 77;
	r->ask.key.start_ns = 12345;
	r->ask.key.exec_id = 1;
	r->ask.stack_size = 8 << 20;
	r->ask.stack_top = STACK + sizeof(r->stack);
	r->ask.max_frames = 64;
	assert_int_equal(unwind_host_publish(r->host, &r->ask.key, &r->entry, 1), 0);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	unwind_host_free(r->host);
	free(r);
	return 0;
}

/* Registers at the start of a walk: sp at the stack's first word. */
static void begin_at(struct rig *r, u64 ip, u64 fp)
{
	memset(r->ask.regs, 0x5c, sizeof(r->ask.regs));
	r->ask.regs[R_IP] = ip;
	r->ask.regs[R_SP] = STACK;
	r->ask.regs[R_BP] = fp;
	r->hole = 0;
}

/* Walks with and without the row cache, twice with it: always the same. */
static void walk(struct rig *r)
{
	static struct unwind_host_walk again;
	int i;

	unwind_host_cache(r->host, false);
	unwind_host_run(r->host, &r->ask, &r->walk);
	unwind_host_cache(r->host, true);
	for (i = 0; i < 2; i++) {
		unwind_host_run(r->host, &r->ask, &again);
		assert_int_equal(again.n, r->walk.n);
		assert_int_equal(again.end, r->walk.end);
		assert_memory_equal(again.ip, r->walk.ip, again.n * sizeof(again.ip[0]));
	}
}

#define EXPECT(r, how, ...)                                            \
	do {                                                           \
		const u64 want[] = { __VA_ARGS__ };                    \
                                                                       \
		walk(r);                                               \
		assert_int_equal((r)->walk.end, STACK_END_##how);      \
		assert_int_equal((r)->walk.n, ARRAY_SIZE(want));       \
		assert_memory_equal((r)->walk.ip, want, sizeof(want)); \
	} while (0)

/* Address of a word of the stack. */
#define WORD(i) (STACK + (u64)(i)*8)

/* --- rules ------------------------------------------------------------------------------------ */

static void frames_of_the_usual_kinds(void **state)
{
	struct rig *r = *state;

	/* leaf <- push <- rbp <- saves <- end */
	begin_at(r, AT(F_LEAF), WORD(5));
	r->stack[0] = AT(F_PUSH);
	r->stack[2] = AT(F_RBP);
	r->stack[5] = WORD(999); /* caller's rbp, then return address */
	r->stack[6] = AT(F_SAVES);
	r->stack[7] = WORD(20); /* saves its caller's rbp, which is F_RBP again */
	r->stack[9] = AT(F_RBP);
	r->stack[20] = 0;
	r->stack[21] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_LEAF), AT(F_PUSH), AT(F_RBP), AT(F_SAVES), AT(F_RBP), AT(F_END));
}

static void return_address_zero_ends_a_stack(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_PUSH), 1);
	r->stack[1] = 0;
	EXPECT(r, COMPLETE, AT(F_PUSH));
}

static void frame_address_in_memory(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_DEREF), 1);
	r->stack[1] = WORD(30); /* the caller's return address lies there */
	r->stack[30] = AT(F_DEREF0);
	r->stack[32] = WORD(41); /* 31 + 1: its frame address itself */
	r->stack[40] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_DEREF), AT(F_DEREF0), AT(F_END));
}

static void frame_address_behind_an_index(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_SCALED), 1);
	r->ask.regs[R_CX] = 5;
	r->stack[7] = WORD(50);
	r->stack[50] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_SCALED), AT(F_END));
	/* The index is a register that no caller has. */
	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_SCALED);
	EXPECT(r, NO_REGISTER, AT(F_LEAF), AT(F_SCALED));
}

static void lazy_stub_before_and_after_its_push(void **state)
{
	struct rig *r = *state;
	u64 stub = START(F_PLT) + 0x20, at;

	for (at = 0; at < 16; at++) {
		begin_at(r, stub + at, 1);
		r->stack[0] = at < 11 ? AT(F_END) : 3;
		r->stack[1] = at < 11 ? 3 : AT(F_END);
		EXPECT(r, COMPLETE, stub + at, AT(F_END));
	}
}

static void return_address_in_a_register(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_RA_REG), 1);
	r->ask.regs[R_R11] = AT(F_LEAF);
	r->stack[0] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_RA_REG), AT(F_LEAF), AT(F_END));
	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_RA_REG);
	r->stack[1] = AT(F_END);
	walk(r);
	assert_true(r->walk.end == STACK_END_NO_REGISTER || r->walk.end == STACK_END_BAD_CFA);
	assert_int_equal(r->walk.n, 2);
}

static void frame_pointer_from_where_its_rule_says(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_FP_REG), 1);
	r->ask.regs[R_R9] = WORD(8);
	r->stack[0] = AT(F_RBP);
	r->stack[9] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_FP_REG), AT(F_RBP), AT(F_END));

	begin_at(r, AT(F_FP_AT), 1);
	r->ask.regs[R_SP] = WORD(4);
	r->stack[2] = WORD(12);
	r->stack[4] = AT(F_RBP);
	r->stack[13] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_FP_AT), AT(F_RBP), AT(F_END));

	/* In a caller r9 is not known: fine until the frame pointer is needed. */
	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_FP_REG);
	r->stack[1] = AT(F_LEAF);
	r->stack[2] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_LEAF), AT(F_FP_REG), AT(F_LEAF), AT(F_END));
	r->stack[2] = AT(F_RBP);
	EXPECT(r, NO_REGISTER, AT(F_LEAF), AT(F_FP_REG), AT(F_LEAF), AT(F_RBP));
}

static void rbx_of_the_lazy_binder(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_BX), 1);
	r->ask.regs[R_BX] = WORD(10);
	r->stack[10] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_BX), AT(F_END));
	/* A callee that leaves it alone, one that saved it, and one of a file that does not say. */
	begin_at(r, AT(F_LEAF), 1);
	r->ask.regs[R_BX] = WORD(10);
	r->stack[0] = AT(F_BX);
	r->stack[10] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_LEAF), AT(F_BX), AT(F_END));
	begin_at(r, AT(F_BX_SAVED), 1);
	r->stack[0] = WORD(11);
	r->stack[1] = AT(F_BX);
	r->stack[11] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_BX_SAVED), AT(F_BX), AT(F_END));
	begin_at(r, AT(F_BX_LOST), 1);
	r->stack[0] = AT(F_BX);
	EXPECT(r, NO_REGISTER, AT(F_BX_LOST), AT(F_BX));
}

static void register_that_only_the_innermost_frame_knows(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_R10), 1);
	r->ask.regs[R_R10] = WORD(3);
	r->stack[2] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_R10), AT(F_END));
	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_R10);
	EXPECT(r, NO_REGISTER, AT(F_LEAF), AT(F_R10));
}

static void rule_that_cannot_be_expressed_ends_the_walk(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_UNSUPPORTED);
	EXPECT(r, NO_RULE, AT(F_LEAF), AT(F_UNSUPPORTED));
}

static void caller_is_looked_up_before_its_return_address(void **state)
{
	struct rig *r = *state;
	u64 behind = START(F_LEAF) + 0x80; /* first byte that F_LEAF does not cover */

	/* As a return address: the call was F_LEAF's last instruction. */
	begin_at(r, AT(F_LEAF), 0);
	r->stack[0] = behind;
	r->stack[1] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_LEAF), behind, AT(F_END));
	/* As the sampled instruction it is covered by nothing. */
	begin_at(r, behind, 0);
	EXPECT(r, GUESSED, behind);
}

/* --- signals ---------------------------------------------------------------------------------- */

static void put_context(struct rig *r, u32 word, u64 ip, u64 sp, u64 fp)
{
	ucontext_t uc;

	memset(&uc, 0x11, sizeof(uc));
	uc.uc_mcontext.gregs[REG_RIP] = (greg_t)ip;
	uc.uc_mcontext.gregs[REG_RSP] = (greg_t)sp;
	uc.uc_mcontext.gregs[REG_RBP] = (greg_t)fp;
	uc.uc_mcontext.gregs[REG_RBX] = (greg_t)WORD(210);
	uc.uc_mcontext.gregs[REG_R10] = (greg_t)WORD(211);
	uc.uc_mcontext.gregs[REG_R11] = (greg_t)AT(F_END);
	uc.uc_mcontext.gregs[REG_RCX] = 5;
	uc.uc_mcontext.gregs[REG_R9] = (greg_t)WORD(220);
	memcpy(&r->stack[word], &uc, sizeof(uc));
}

static void signal_frame_restores_every_register(void **state)
{
	struct rig *r = *state;
	/* Interrupted at the first byte: one before it nothing is covered, so it must be exact. */
	static const struct {
		enum fn fn;
		u32 word; /* where the return address is to be found */
	} by[] = { { F_LEAF, 200 }, { F_R10, 210 },  { F_RBP, 221 },   { F_BX, 210 },
		   { F_PUSH, 201 }, { F_RA_REG, 0 }, { F_SCALED, 208 } };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(by); i++) {
		memset(r->stack, 0, sizeof(r->stack));
		begin_at(r, AT(F_LEAF), 1);
		r->stack[0] = START(F_SIGNAL);
		put_context(r, 1, START(by[i].fn), WORD(200), WORD(220));
		if (by[i].fn == F_SCALED)
			r->stack[207] = WORD(208);
		if (by[i].word)
			r->stack[by[i].word] = AT(F_END);
		/* The trampoline's address is one that nothing called: looked up as it is or before. */
		r->stack[0] = AT(F_SIGNAL);
		EXPECT(r, COMPLETE, AT(F_LEAF), AT(F_SIGNAL), START(by[i].fn), AT(F_END));
	}
}

static void frame_above_an_interrupted_one_is_looked_up_as_it_is(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_EXACT), 1);
	r->stack[0] = START(F_PUSH);
	r->stack[2] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_EXACT), START(F_PUSH), AT(F_END));
}

static void signal_frame_switches_from_any_stack(void **state)
{
	struct rig *r = *state;

	/* The handler ran on an alternate stack above the interrupted one. */
	begin_at(r, AT(F_LEAF), 1);
	r->ask.regs[R_SP] = WORD(3000);
	r->stack[3000] = AT(F_SIGNAL);
	put_context(r, 3001, AT(F_PUSH), WORD(10), 1);
	r->stack[11] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_LEAF), AT(F_SIGNAL), AT(F_PUSH), AT(F_END));
}

static void signal_frame_of_garbage(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_SIGNAL);
	put_context(r, 1, 0, WORD(10), 1);
	EXPECT(r, NOT_EXEC, AT(F_LEAF), AT(F_SIGNAL));
	put_context(r, 1, ~0ull, WORD(10), 1);
	EXPECT(r, NOT_EXEC, AT(F_LEAF), AT(F_SIGNAL));
	r->hole = WORD(10);
	EXPECT(r, UNREADABLE, AT(F_LEAF), AT(F_SIGNAL));
}

static void signal_frames_in_a_circle_are_cut(void **state)
{
	struct rig *r = *state;
	u32 i;

	begin_at(r, AT(F_SIGNAL), 1);
	put_context(r, 0, AT(F_SIGNAL), STACK, 1);
	walk(r);
	assert_int_equal(r->walk.end, STACK_END_CUT);
	assert_int_equal(r->walk.n, r->ask.max_frames);
	for (i = 0; i < r->walk.n; i++)
		assert_int_equal(r->walk.ip[i], AT(F_SIGNAL));
}

/* --- corrupt stacks --------------------------------------------------------------------------- */

static void frame_address_that_does_not_grow(void **state)
{
	struct rig *r = *state;
	static const enum fn bad[] = { F_DOWN, F_STAY, F_ODD, F_HUGE };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		begin_at(r, AT(F_LEAF), 1);
		r->stack[0] = AT(bad[i]);
		r->stack[1] = AT(F_END);
		EXPECT(r, BAD_CFA, AT(F_LEAF), AT(bad[i]));
	}
	/* From memory: down the stack, to itself, far up, nowhere. */
	begin_at(r, AT(F_DEREF0), 1);
	r->stack[1] = STACK - 8;
	EXPECT(r, BAD_CFA, AT(F_DEREF0));
	r->stack[1] = STACK + (1ull << 30) + 8;
	EXPECT(r, BAD_CFA, AT(F_DEREF0));
	r->stack[1] = ~7ull;
	EXPECT(r, BAD_CFA, AT(F_DEREF0));
	r->stack[1] = STACK + 1;
	EXPECT(r, BAD_CFA, AT(F_DEREF0));
	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = AT(F_DEREF0);
	r->stack[2] = WORD(1);
	EXPECT(r, BAD_CFA, AT(F_LEAF), AT(F_DEREF0));
}

static void return_address_that_is_no_address(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_LEAF), 1);
	r->stack[0] = 4095;
	EXPECT(r, NOT_EXEC, AT(F_LEAF));
	r->stack[0] = 1ull << 56;
	EXPECT(r, NOT_EXEC, AT(F_LEAF));
	r->stack[0] = 0xffffffff81000000ull;
	EXPECT(r, NOT_EXEC, AT(F_LEAF));
	/* In data: one frame that the join with the mappings drops, and no more. */
	r->stack[0] = DATA;
	EXPECT(r, BAD_FP, AT(F_LEAF), DATA);
}

static void memory_that_cannot_be_read(void **state)
{
	struct rig *r = *state;

	begin_at(r, AT(F_LEAF), 1);
	r->hole = WORD(0);
	EXPECT(r, UNREADABLE, AT(F_LEAF));
	begin_at(r, AT(F_DEREF), 1);
	r->hole = WORD(1);
	EXPECT(r, UNREADABLE, AT(F_DEREF));
	begin_at(r, AT(F_PUSH), 1);
	r->ask.regs[R_SP] = WORD(WORDS) - 8; /* the stack ends before the return address */
	EXPECT(r, UNREADABLE, AT(F_PUSH));
	/* Only the saved frame pointer: lost, and missed when it is needed. */
	begin_at(r, AT(F_SAVES), WORD(9));
	r->hole = WORD(0);
	r->stack[2] = AT(F_LEAF);
	r->stack[3] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_SAVES), AT(F_LEAF), AT(F_END));
	r->stack[3] = AT(F_RBP);
	EXPECT(r, NO_REGISTER, AT(F_SAVES), AT(F_LEAF), AT(F_RBP));
}

static void frame_pointer_that_leads_nowhere(void **state)
{
	struct rig *r = *state;
	const u64 bad[] = { WORD(4) + 1, STACK - 8, WORD(WORDS) - 8, WORD(WORDS), 8, ~7ull };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		begin_at(r, AT(F_NONE), bad[i]);
		EXPECT(r, BAD_FP, AT(F_NONE));
	}
	/* A record that points to itself, and two that point to each other. */
	begin_at(r, AT(F_NONE), WORD(4));
	r->stack[4] = WORD(4);
	r->stack[5] = AT(F_NONE) + 4;
	EXPECT(r, BAD_FP, AT(F_NONE), AT(F_NONE) + 4);
	r->stack[4] = WORD(8);
	r->stack[8] = WORD(4);
	r->stack[9] = AT(F_NONE) + 8;
	EXPECT(r, BAD_FP, AT(F_NONE), AT(F_NONE) + 4, AT(F_NONE) + 8);
	r->hole = WORD(9);
	EXPECT(r, UNREADABLE, AT(F_NONE), AT(F_NONE) + 4);
	/* Not known any more. */
	begin_at(r, AT(F_FP_LOST), WORD(4));
	r->stack[0] = AT(F_NONE);
	EXPECT(r, NO_REGISTER, AT(F_FP_LOST), AT(F_NONE));
}

static void other_stacks_have_other_bounds(void **state)
{
	struct rig *r = *state;

	/* Above the main thread's stack top: as far as a new thread's stack reaches. */
	begin_at(r, AT(F_NONE), WORD(600));
	r->ask.stack_top = STACK - 4096;
	r->ask.stack_size = 601 * 8;
	r->stack[600] = 0;
	r->stack[601] = AT(F_NONE) + 2;
	EXPECT(r, BAD_FP, AT(F_NONE));
	r->ask.stack_size = 602 * 8;
	EXPECT(r, GUESSED, AT(F_NONE), AT(F_NONE) + 2);
}

static void deep_recursion_is_cut_at_the_limit(void **state)
{
	struct rig *r = *state;
	u32 i, limits[] = { 1, 2, 64, MAX_USER_FRAMES }, k;

	begin_at(r, AT(F_PUSH), 1);
	for (i = 0; i < 600; i++)
		r->stack[2 * i + 1] = AT(F_PUSH) + i % 16;
	r->stack[2 * 600 + 1] = AT(F_END);
	for (k = 0; k < ARRAY_SIZE(limits); k++) {
		r->ask.max_frames = limits[k];
		walk(r);
		assert_int_equal(r->walk.end, STACK_END_CUT);
		assert_int_equal(r->walk.n, limits[k]);
		for (i = 1; i < r->walk.n; i++)
			assert_int_equal(r->walk.ip[i], AT(F_PUSH) + (i - 1) % 16);
	}
}

/* Whatever lies on the stack: ends, within the limit, with a reason. */
static void any_stack_ends(void **state)
{
	struct rig *r = *state;
	u64 x = 88172645463325252ull;
	u32 round, i;

	for (round = 0; round < 3000; round++) {
		for (i = 0; i < 64; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			switch (x % 4) {
			case 0:
				r->stack[i] = WORD(x >> 8 & 63);
				break;
			case 1:
				r->stack[i] = x;
				break;
			default:
				r->stack[i] = AT((x >> 8) % F_MAX) + (x >> 20 & 15);
			}
		}
		begin_at(r, AT((x >> 30) % F_MAX), WORD(x >> 40 & 63));
		r->ask.regs[R_CX] = x >> 50 & 7;
		r->ask.regs[R_BX] = WORD(x >> 33 & 63);
		if (x & 1ull << 62)
			r->hole = WORD(x >> 24 & 63);
		walk(r);
		assert_in_range(r->walk.n, 1, r->ask.max_frames);
		assert_true(r->walk.end < STACK_END_MAX && r->walk.end != STACK_END_NO_USER);
		assert_true(r->walk.end != STACK_END_CUT || r->walk.n == r->ask.max_frames);
	}
}

/* --- mappings --------------------------------------------------------------------------------- */

static void publish(struct rig *r, const struct map_entry *maps, u32 n)
{
	assert_int_equal(unwind_host_publish(r->host, &r->ask.key, maps, n), 0);
}

static void frame_pointers_where_there_is_no_table(void **state)
{
	struct rig *r = *state;
	struct map_entry e = { .lo = DATA, .hi = DATA + 4096 };
	static const struct {
		enum map_kind kind;
		u32 end;
	} by[] = { { MAP_FP, STACK_END_COMPLETE },
		   { MAP_PENDING, STACK_END_GUESSED },
		   { MAP_JIT, STACK_END_COMPLETE },
		   { MAP_TABLE, STACK_END_GUESSED } };
	u32 i;

	begin_at(r, DATA + 8, WORD(4));
	r->stack[4] = WORD(8);
	r->stack[5] = DATA + 16;
	r->stack[8] = 0;
	r->stack[9] = DATA + 24;
	for (i = 0; i < ARRAY_SIZE(by); i++) {
		e.kind = (u8)by[i].kind;
		publish(r, &e, 1);
		walk(r);
		assert_int_equal(r->walk.end, by[i].end);
		assert_int_equal(r->walk.n, 3);
		assert_int_equal(r->walk.ip[2], DATA + 24);
	}
	e.kind = MAP_JIT;
	publish(r, &e, 1);
	r->ask.regs[R_BP] = 1;
	EXPECT(r, JIT, DATA + 8);
	/* No mapping, no image, another image under the same number. */
	begin_at(r, AT(F_PUSH), 0);
	publish(r, NULL, 0);
	EXPECT(r, GUESSED, AT(F_PUSH));
	unwind_host_forget(r->host, r->ask.key.tgid);
	EXPECT(r, GUESSED, AT(F_PUSH));
	publish(r, &r->entry, 1);
	r->stack[1] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_PUSH), AT(F_END));
	r->ask.key.exec_id++;
	EXPECT(r, GUESSED, AT(F_PUSH));
	r->ask.key.exec_id--;
	r->ask.key.start_ns++;
	EXPECT(r, GUESSED, AT(F_PUSH));
}

/* Each address of interest in n mappings with a hole behind each; only the right one has a row. */
static void search_mappings(struct rig *r, u32 n)
{
	const struct cfi_rule rules[] = { { 0 }, { .cfa = CFI_CFA_END } };
	const struct cfi_row rows[] = { { 0, 1 }, { 0x1000, 0 } };
	struct map_entry *maps = calloc(n, sizeof(*maps)), one = { 0 };
	u64 probe[4], step = 0x3000;
	u32 i, k;

	assert_non_null(maps);
	place(r, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules), 0, &one);
	for (i = 0; i < n; i++) {
		maps[i] = one;
		maps[i].lo = DATA + i * step;
		maps[i].hi = maps[i].lo + 0x800; /* the table reaches further */
		maps[i].bias = maps[i].lo - TEXT + one.bias;
	}
	publish(r, maps, n);
	for (i = 0; i<n; i += n> 2000 ? 37 : 1) {
		probe[0] = maps[i].lo;
		probe[1] = maps[i].hi - 1;
		probe[2] = maps[i].lo - 1;
		probe[3] = maps[i].hi;
		for (k = 0; k < 4; k++) {
			begin_at(r, probe[k], 0);
			unwind_host_run(r->host, &r->ask, &r->walk);
			assert_int_equal(r->walk.end,
					 k < 2 ? STACK_END_COMPLETE : STACK_END_GUESSED);
		}
	}
	free(maps);
}

static void mapping_is_found_among_any_number(void **state)
{
	static const u32 counts[] = { 1, 2, 3, 1000, MAP_ENTRIES_MAX };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(counts); i++)
		search_mappings(*state, counts[i]);
}

/* --- tables ----------------------------------------------------------------------------------- */

/*
 * A file of n rows at the distances that next() gives, each with one of `kinds` rules: the first and
 * last byte of each row, and one between, have its rule.
 */
static void find_rows(struct rig *r, u32 n, u32 kinds, u32 (*next)(u32 i, u32 noise))
{
	struct cfi_rule *rules = calloc(kinds, sizeof(*rules));
	struct cfi_row *rows = calloc(n, sizeof(*rows));
	struct map_entry e = { .lo = LOAD };
	u32 i, k, pc = 0, seed = 3;

	assert_non_null(rules);
	assert_non_null(rows);
	for (i = 1; i < kinds; i++) {
		rules[i] = fn_rule[F_LEAF];
		rules[i].cfa_off = (s32)(8 * i);
	}
	for (i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		rows[i].pc = pc;
		/* Neighbours differ, as in compiled files. */
		rows[i].rule = i + 1 == n ? 0 : 1 + (seed >> 8) % ((kinds - 1) / 2) * 2 + i % 2;
		pc += next(i, seed >> 24);
	}
	place(r, rows, n, rules, kinds, LOAD, &e);
	e.hi = e.lo + TEXT + pc + 4096;
	publish(r, &e, 1);
	r->ask.max_frames = 1;
	for (i = 0; i + 1 < n; i++) {
		const u32 probe[] = { rows[i].pc, rows[i + 1].pc - 1,
				      (rows[i].pc + rows[i + 1].pc) / 2 };

		for (k = 0; k < ARRAY_SIZE(probe); k++) {
			begin_at(r, LOAD + TEXT + probe[k], 0);
			unwind_host_trace(r->host, &r->ask, &r->walk);
			assert_int_equal(r->walk.rule[0].cfa, UNWIND_CFA_REG);
			assert_int_equal(r->walk.rule[0].cfa_off, rules[rows[i].rule].cfa_off);
		}
	}
	free(rows);
	free(rules);
}

static u32 next_mixed(u32 i, u32 noise)
{
	u32 gap = 1 + noise % (i % 500 < 100 ? 2 : i % 7 ? 40 : 700);

	return i % 1000 == 999 ? gap + 200000 : gap;
}

/* Far apart, with places where each byte has a row: pages are large, and some are full. */
static u32 next_crowded(u32 i, u32 noise)
{
	return i % 3000 >= 2000 && i % 3000 < 2900 ? 1 : 100 + noise;
}

static void every_row_of_a_table_is_found(void **state)
{
	find_rows(*state, 6000, 700, next_mixed);
	find_rows(*state, 6000, 20, next_crowded);
}

static void stack_through_several_mappings(void **state)
{
	const struct cfi_rule rules[] = { { 0 }, REG_RULE(7, 24) };
	const struct cfi_row rows[] = { { 0, 1 }, { 0x10000, 0 } };
	struct rig *r = *state;
	struct map_entry maps[3];

	/* Below and above the text, where it would have other rules for the same places. */
	maps[1] = r->entry;
	place(r, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules), LOAD - 0x100000, &maps[0]);
	maps[2] = maps[0];
	maps[0].lo = r->entry.lo - 0x100000;
	maps[0].hi = maps[0].lo + 0x10000;
	maps[2].lo = r->entry.lo + 0x100000;
	maps[2].hi = maps[2].lo + 0x10000;
	maps[2].bias += 0x200000;
	publish(r, maps, 3);
	begin_at(r, AT(F_PUSH), 1);
	r->stack[1] = AT(F_PUSH) - 0x100000;
	r->stack[4] = AT(F_PUSH);
	r->stack[6] = AT(F_PUSH) + 0x100000;
	r->stack[9] = AT(F_PUSH) - 0x100000;
	r->stack[12] = AT(F_END);
	EXPECT(r, COMPLETE, AT(F_PUSH), AT(F_PUSH) - 0x100000, AT(F_PUSH), AT(F_PUSH) + 0x100000,
	       AT(F_PUSH) - 0x100000, AT(F_END));
}

/* The same addresses under new mappings: nothing of the old ones is remembered. */
static void new_mappings_empty_the_row_cache(void **state)
{
	const struct cfi_rule rules[] = { { 0 }, REG_RULE(7, 24) };
	const struct cfi_row rows[] = { { 0, 1 }, { 0x10000, 0 } };
	struct rig *r = *state;
	struct map_entry other = { .lo = LOAD + TEXT, .hi = LOAD + TEXT + 0x10000 };
	u32 i, k;

	place(r, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules), LOAD, &other);
	begin_at(r, AT(F_PUSH), 1);
	r->stack[1] = AT(F_END);
	r->stack[2] = 0;
	unwind_host_cache(r->host, true);
	for (i = 0; i < 3; i++) {
		publish(r, &r->entry, 1);
		unwind_host_run(r->host, &r->ask, &r->walk);
		assert_int_equal(r->walk.n, 2);
		/* The number of the mappings comes round to the same place of the cache. */
		for (k = 0; k < (i < 2 ? 1 : 4096); k++)
			publish(r, &other, 1);
		unwind_host_run(r->host, &r->ask, &r->walk);
		assert_int_equal(r->walk.n, 1);
	}
}

/* Two processes of one program at the same addresses share rows of neither. */
static void processes_do_not_share_rows(void **state)
{
	struct rig *r = *state;
	struct map_entry fp = { .lo = r->entry.lo, .hi = r->entry.hi, .kind = MAP_FP };
	struct stack_key mine = r->ask.key, theirs = { .tgid = 78, .start_ns = 9, .exec_id = 2 };
	u32 i;

	assert_int_equal(unwind_host_publish(r->host, &theirs, &fp, 1), 0);
	begin_at(r, AT(F_PUSH), 0);
	r->stack[1] = AT(F_END);
	unwind_host_cache(r->host, true);
	for (i = 0; i < 4; i++) {
		r->ask.key = i % 2 ? theirs : mine;
		unwind_host_run(r->host, &r->ask, &r->walk);
		assert_int_equal(r->walk.n, i % 2 ? 1 : 2);
	}
}

/* Slabs and references of garbage: read inside their slab, and the walk ends. */
static void damaged_slabs_stay_harmless(void **state)
{
	struct rig *r = *state;
	u32 round, i, ref, seed = 11;
	struct map_entry e;
	u32 *noise;

	noise = (u32 *)unwind_host_alloc(r->host, SLAB_BYTES - SLAB_GRAIN, &ref);
	assert_non_null(noise);
	for (i = 0; i < (SLAB_BYTES - SLAB_GRAIN) / 4; i++) {
		seed = seed * 1664525 + 1013904223;
		/* Many refs into this very slab, so that the search gets far. */
		noise[i] = i % 3 ? seed : SLAB_REF(REF_SLAB(ref), 0) | (seed >> 12 & 0xffff);
	}
	for (round = 0; round < 4000; round++) {
		seed = seed * 1664525 + 1013904223;
		memset(&e, 0, sizeof(e));
		e.lo = LOAD;
		e.hi = LOAD + (1ull << 32);
		e.bias = LOAD - (seed & 0xffff);
		e.index = SLAB_REF(REF_SLAB(ref), 0) | (seed >> 8 & 0xffff);
		e.rules = seed % 5 ? SLAB_REF(REF_SLAB(ref), 0) | (seed >> 4 & 0xffff) : seed;
		e.npages = UINT32_MAX;
		e.shift = (u8)(seed >> 16);
		e.kind = MAP_TABLE;
		publish(r, &e, 1);
		begin_at(r, LOAD + (seed >> 3), WORD(4));
		unwind_host_run(r->host, &r->ask, &r->walk);
		assert_in_range(r->walk.n, 1, r->ask.max_frames);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(frames_of_the_usual_kinds),
		T(return_address_zero_ends_a_stack),
		T(frame_address_in_memory),
		T(frame_address_behind_an_index),
		T(lazy_stub_before_and_after_its_push),
		T(return_address_in_a_register),
		T(frame_pointer_from_where_its_rule_says),
		T(rbx_of_the_lazy_binder),
		T(register_that_only_the_innermost_frame_knows),
		T(rule_that_cannot_be_expressed_ends_the_walk),
		T(caller_is_looked_up_before_its_return_address),
		T(signal_frame_restores_every_register),
		T(frame_above_an_interrupted_one_is_looked_up_as_it_is),
		T(signal_frame_switches_from_any_stack),
		T(signal_frame_of_garbage),
		T(signal_frames_in_a_circle_are_cut),
		T(frame_address_that_does_not_grow),
		T(return_address_that_is_no_address),
		T(memory_that_cannot_be_read),
		T(frame_pointer_that_leads_nowhere),
		T(other_stacks_have_other_bounds),
		T(deep_recursion_is_cut_at_the_limit),
		T(any_stack_ends),
		T(frame_pointers_where_there_is_no_table),
		T(mapping_is_found_among_any_number),
		T(every_row_of_a_table_is_found),
		T(stack_through_several_mappings),
		T(new_mappings_empty_the_row_cache),
		T(processes_do_not_share_rows),
		T(damaged_slabs_stay_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else /* registers and rules are x86-64's */

static void needs_x86_64(void **state __unused)
{
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(needs_x86_64) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
