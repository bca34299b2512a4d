/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk of a user stack, for BPF and for the host from this one source. In: registers, the
 * stack's bounds and the process's published mappings, in struct walk. Out: addresses, leaf
 * first, and how the walk ended.
 *
 * Each frame: mapping of the address (binary search), leaf of its page, row, rule; or, where
 * there is no table, a frame pointer step. A small cache from {image, address} to rule stands in
 * front. Each part is a global function with a scalar argument and its state in a per-CPU map:
 * every verifier walks it once (5.10 to 7.3).
 *
 * A step is taken only up the stack, over readable memory, to a user address. Whether that address
 * is executable is checked once more when the stack is joined with its mappings (core/stack.c).
 */
#pragma once

#include "bpf/abi.h"
#include "bpf/env.h"
#include "bpf/recipe.h"

#define WALK_MASK  2047 /* ip[] is a power of two, so that an index can be bounded by a mask */
#define WALK_REGS  64   /* more than any architecture has, and a power of two */
#define FRAME_MAX  (1ull << 30)
#define WALK_ROUND 32 /* frames of one walk_frames() */
#define HASH_ROUND 16 /* words of one hash_round() */

_Static_assert(STACK_WORDS_MAX + HASH_ROUND <= WALK_MASK, "ip[] holds all that a stack may have");

/* What is known of the frame's registers, besides sp. */
#define KNOW_FP  1
#define KNOW_BX  2
#define KNOW_ALL 4 /* regs[]: innermost frame, or one that a signal interrupted */
#define NOT_SP   8 /* sp is only where the frame cannot be below */

struct walk {
	u64 ip, sp, fp, bx;
	u64 stack_top;  /* of the main thread's stack */
	u64 stack_size; /* how far above sp a frame record may lie */
	u64 addr_mask;  /* bits of a return address that count (arm64: without the signature) */
	u32 know;
	u32 exact; /* ip is an interrupted instruction, not a return address */
	u32 guessed;
	u32 unmapped;   /* an address in no published mapping was met */
	u32 max_frames; /* user frames to keep */
	u32 n;          /* entries of ip[] in use, kernel frames included */
	u32 nuser;
	u32 end; /* enum stack_end */
	u32 gen; /* of the image's mappings; 0: not published, or not wanted */
	u32 maps, nmaps;
	u64 fault; /* STACK_END_UNREADABLE: fault_len bytes there could not be read */
	u32 fault_len;
	u64 jit_fp;    /* of the first frame in memory that is no file; 0: none met, or not known */
	u64 uretprobe; /* next entry of the task's list of replaced return addresses; 1: none */
	u32 have_map;  /* map holds ip */
	u32 how;       /* WALK_* */
	struct map_entry map;
	u32 block; /* between walk_find_leaf() and walk_find_row() */
	u32 leaf;
	u32 low; /* address within the leaf's page */
	/*
	 * Bounds of a binary search: kept in memory, whose values verifiers do not follow. In
	 * registers every path would be taken (6.12, 6.18: ten times the instructions).
	 */
	volatile u32 lo, hi;
	struct unwind_rule rule;
	struct unwind_wide wide;
};

/* Between the steps of reading a thread's context (bpf/context.h). */
struct context_walk {
	u64 at, end; /* attributes that are not looked at yet */
	u64 value;
	u32 value_len;
	u32 key;
	u64 words[CONTEXT_WORDS];
};

/*
 * State of one walk. Where nothing else says so, the map has one per CPU, slot 0. Programs that can
 * be preempted take theirs from an array (WALK_SCRATCH_ARRAY): first one slot per CPU for those
 * that cannot, then a pool, in which a walk claims a slot by `busy`.
 */
struct scratch {
	u32 busy;
	u32 pad;
	struct walk walk;
	u64 regs[WALK_REGS]; /* in the order of the architecture's user registers */
	struct recipe_walk list;
	u64 list_reg, list_kept; /* registers that the recipe asks for */
	u64 hash;
	struct context_walk context;
	struct stack_event ev;
	u64 ip[WALK_MASK + 1]; /* directly behind ev: what is sent is one run of bytes */
};

struct row_cache_entry {
	u64 pc;
	u32 gen;
	u32 pad;
	struct unwind_rule rule;
};

#ifdef __bpf__
struct {
#ifdef WALK_SCRATCH_ARRAY
	__uint(type, BPF_MAP_TYPE_ARRAY);
#else
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
#endif
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* Made one by one by user space as tables need room. */
struct slab_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, SLAB_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SLABS_MAX);
	__type(key, u32);
	__array(values, struct slab_inner);
} slabs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROC_ENTRIES_MAX);
	__type(key, u32);
	__type(value, struct proc_entry);
} procs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROW_CACHE_SIZE);
	__type(key, u32);
	__type(value, struct row_cache_entry);
} row_cache SEC(".maps");
#else
#ifndef UNWIND_MAPS /* static: then struct unwind_map is known by now */
#define UNWIND_MAPS extern
#endif
UNWIND_MAPS struct unwind_map scratch, slabs, procs, row_cache;
#endif

/* Lowest and highest+1 address that can be user code: page 0 is never mapped; 56 bits with LA57. */
#define USER_IP_MIN 4096ull
#define USER_IP_MAX (1ull << 56)

static __always_inline struct scratch *walk_scratch(u32 slot)
{
	return bpf_map_lookup_elem(&scratch, &slot);
}

static __always_inline u8 *walk_slab(u32 ref)
{
	u32 i = REF_SLAB(ref), zero = 0;
	void *inner = bpf_map_lookup_elem(&slabs, &i);

	return inner ? bpf_map_lookup_elem(inner, &zero) : 0;
}

/* The address that is looked up: a return address may be the first byte of the next function. */
static __always_inline u64 walk_pc(const struct walk *w)
{
	return w->exact ? w->ip : w->ip - 1;
}

/* Finds the mapping of the frame's address into w->map; nonzero: none is published. */
__noinline int walk_find_map(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct map_entry *e;
	u32 lo, i, off;
	struct walk *w;
	u8 *slab;
	u64 pc;

	if (!s)
		return 1;
	w = &s->walk;
	pc = walk_pc(w);
	if (w->have_map && pc >= w->map.lo && pc < w->map.hi)
		return 0;
	w->have_map = 0;
	slab = walk_slab(w->maps);
	if (!slab)
		return 1;
	w->lo = 0;
	w->hi = w->nmaps;
	for (i = 0; i < 15; i++) { /* 2^14 entries */
		u32 mid = (w->lo + w->hi) / 2;

		if (w->lo >= w->hi)
			break;
		off = REF_OFF(w->maps) + mid * (u32)sizeof(*e);
		if (off > SLAB_BYTES - sizeof(*e))
			return 1;
		e = (struct map_entry *)(slab + off);
		if (pc < e->lo)
			w->hi = mid;
		else
			w->lo = mid + 1;
	}
	lo = w->lo;
	if (!lo)
		return 1;
	off = REF_OFF(w->maps) + (lo - 1) * (u32)sizeof(*e);
	if (off > SLAB_BYTES - sizeof(*e))
		return 1;
	e = (struct map_entry *)(slab + off);
	if (pc >= e->hi)
		return 1;
	w->map = *e;
	w->have_map = 1;
	return 0;
}

/* From w->map to the leaf of the address's page and the block within; nonzero: no row there. */
__noinline int walk_find_leaf(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u32 off, i;
	struct leaf_head *head;
	struct leaf_block *b;
	struct walk *w;
	u64 rel, page;
	u8 *slab;

	if (!s)
		return 1;
	w = &s->walk;
	rel = walk_pc(w) - w->map.bias;
	page = rel >> (w->map.shift & 31);
	if (page >= w->map.npages || !w->map.index)
		return 1;
	slab = walk_slab(w->map.index);
	if (!slab)
		return 1;
	off = REF_OFF(w->map.index) + (u32)page * 4;
	if (off > SLAB_BYTES - 4)
		return 1;
	w->leaf = *(u32 *)(slab + off);
	if (!w->leaf)
		return 1;
	w->low = (u32)(rel & ((1ull << (w->map.shift & 31)) - 1));
	slab = walk_slab(w->leaf);
	if (!slab)
		return 1;
	off = REF_OFF(w->leaf);
	if (off > SLAB_BYTES - sizeof(*head))
		return 1;
	head = (struct leaf_head *)(slab + off);
	w->lo = 0;
	w->hi = head->nblocks;
	for (i = 0; i < 17; i++) { /* 2^16 blocks */
		u32 mid = (w->lo + w->hi) / 2, at;

		if (w->lo >= w->hi)
			break;
		at = off + (u32)sizeof(*head) + mid * (u32)sizeof(*b);
		if (at > SLAB_BYTES - sizeof(*b))
			return 1;
		b = (struct leaf_block *)(slab + at);
		if (w->low < b->pc)
			w->hi = mid;
		else
			w->lo = mid + 1;
	}
	if (!w->lo)
		return 1;
	w->block = w->lo - 1;
	return 0;
}

/* Eight bytes at any address: one load in BPF, where a copy of unknown alignment becomes eight. */
static __always_inline u64 load8(const u8 *p)
{
#ifdef __bpf__
	return *(const u64 *)p;
#else
	u64 v;

	__builtin_memcpy(&v, p, sizeof(v));
	return v;
#endif
}

/* Sum of the eight bytes of a word. */
static __always_inline u32 byte_sum(u64 v)
{
	v = (v & 0x00ff00ff00ff00ffull) + (v >> 8 & 0x00ff00ff00ff00ffull);
	return (u32)(v * 0x0001000100010001ull >> 48);
}

/* Prefix sums of four bytes, in 16-bit lanes. */
static __always_inline u64 prefix_sums(u32 bytes)
{
	u64 v = bytes;

	v = (v | v << 16) & 0x0000ffff0000ffffull;
	v = (v | v << 8) & 0x00ff00ff00ff00ffull;
	return v * 0x0001000100010001ull;
}

/* How many 16-bit lanes are at most max; lanes and max are below 2^15. */
static __always_inline u32 lanes_within(u64 lanes, u32 max)
{
	const u64 ones = 0x0001000100010001ull, tops = 0x8000800080008000ull;

	/* The top bit of a lane survives the subtraction when the lane is not over max. */
	return (u32)((((((max * ones) | tops) - lanes) & tops) >> 15) * ones >> 48);
}

/*
 * The last row of a block at or before `target` bytes from its start: adds up gaps, eight at a
 * time while all eight fit. Returns the row's number.
 */
__noinline u32 walk_find_row(u32 leaf, u32 gap_off, u32 rows, u32 target)
{
	u32 first = rows & 0xffff, left = rows >> 16, at = 0, i;
	u8 *slab = walk_slab(leaf);

	if (!slab)
		return first;
	for (i = 0; i < LEAF_BLOCK_ROWS / 8; i++) {
		u32 off = gap_off + first + 1 + i * 8, rest = left - i * 8, sum;
		u64 gaps, sums;

		/* Checked and used from one register: the verifier knows no other to be equal. */
		asm volatile("" : "+r"(off));
		if (left <= i * 8 || off > SLAB_BYTES - 8)
			break;
		gaps = load8(slab + off);
		if (rest < 8)
			gaps &= ~0ull >> ((64 - rest * 8) & 63);
		sum = byte_sum(gaps);
		if (at + sum <= target) {
			at += sum;
			continue;
		}
		/* Within this word: its prefix sums say how far. */
		sums = prefix_sums((u32)gaps);
		left = i * 8 + lanes_within(sums, target - at);
		at += (u32)(sums >> 48);
		if (at <= target)
			left += lanes_within(prefix_sums((u32)(gaps >> 32)), target - at);
		break;
	}
	return first + left;
}

/* From w->leaf and w->block to w->rule and w->wide; nonzero: nothing sound is there. */
__noinline int walk_read_rule(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u32 off, at, row, next, left, rule_off;
	struct leaf_head *head;
	struct leaf_block *b;
	struct walk *w;
	u8 *slab;

	if (!s)
		return 1;
	w = &s->walk;
	slab = walk_slab(w->leaf);
	off = REF_OFF(w->leaf);
	if (!slab || off > SLAB_BYTES - sizeof(*head))
		return 1;
	head = (struct leaf_head *)(slab + off);
	at = off + (u32)sizeof(*head) + w->block * (u32)sizeof(*b);
	if (at > SLAB_BYTES - 2 * sizeof(*b))
		return 1;
	b = (struct leaf_block *)(slab + at);
	next = w->block + 1 < head->nblocks ? b[1].first : head->nrows;
	left = next - b->first - 1;
	row = b->first;
	if (left && left < LEAF_BLOCK_ROWS)
		row = walk_find_row(w->leaf, off + head->gap_at * 8u, left << 16 | b->first,
				    w->low - b->pc);
	/* Page-local list, then its index per row. */
	rule_off = off + (u32)sizeof(*head) + head->nblocks * (u32)sizeof(*b);
	at = rule_off + head->nrules * 2u + row;
	if (at > SLAB_BYTES - 1)
		return 1;
	at = rule_off + slab[at] * 2u;
	if (at > SLAB_BYTES - 2)
		return 1;
	at = *(u16 *)(slab + at);
	slab = walk_slab(w->map.rules);
	at = REF_OFF(w->map.rules) + at * (u32)sizeof(w->rule);
	if (!slab || at > SLAB_BYTES - sizeof(w->rule))
		return 1;
	w->rule = *(struct unwind_rule *)(slab + at);
	if (w->rule.flags & UNWIND_WIDE) {
		at += (u32)sizeof(w->rule);
		if (at > SLAB_BYTES - sizeof(w->wide))
			return 1;
		w->wide = *(struct unwind_wide *)(slab + at);
	}
	return 0;
}

/*
 * The row of w->map's table for the frame's address; nonzero: none. A return address may be the
 * first byte of the function that a thread or coroutine begins with, which nothing has called and
 * nothing lies before: then that function's own first row tells.
 */
__noinline int walk_find_table_rule(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct walk *w;
	int none;

	if (!s)
		return 1;
	w = &s->walk;
	none = walk_find_leaf(slot) || walk_read_rule(slot) || w->rule.cfa == UNWIND_CFA_NONE;
	if (!none || w->exact)
		return none;
	w->exact = 1;
	none = walk_find_leaf(slot) || walk_read_rule(slot) || w->rule.cfa != UNWIND_CFA_END;
	w->exact = 0;
	return none;
}

/*
 * A signal's return trampoline whose entry says nothing of it, or that has none (Go, musl, the
 * kernel's own on arm64): known by its code, the system call rt_sigreturn. Handlers return to its
 * first byte, which on x86-64 is aligned, so that few other addresses are looked at; on arm64 it
 * follows a nop (arch/arm64/kernel/vdso/sigreturn.S).
 */
__noinline int walk_is_sigreturn(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u64 code;

	if (!s || s->walk.exact || s->walk.ip & (UNWIND_ARM64 ? 3 : 15))
		return 0;
	if (bpf_probe_read_user(&code, sizeof(code), (const void *)s->walk.ip))
		return 0;
#if UNWIND_ARM64
	return code == 0xd4000001d2801168ull; /* mov x8, #139; svc #0 */
#else
	return code == 0x0f0000000fc0c748ull; /* mov $15, %rax; the first byte of syscall */
#endif
}

static __always_inline void walk_set_rule(struct walk *w, u8 cfa, u8 flags)
{
	struct unwind_rule rule = { .cfa = cfa, .flags = flags };

	w->rule = rule;
}

/* 0 when the address is the first byte of the return probes' page, which no call lies before. */
static __always_inline int walk_is_trampoline(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	u32 exact;

	if (!s)
		return 1;
	exact = s->walk.exact;
	s->walk.exact = 1;
	if (!walk_find_map(slot) && s->walk.map.kind == MAP_URETPROBE)
		return 0;
	s->walk.exact = exact;
	s->walk.have_map = 0;
	return 1;
}

/* The rule of the frame's address, from the cache or the tables, into w->rule. */
__noinline int walk_find_rule(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct row_cache_entry *c;
	struct walk *w;
	u32 hash;
	u64 pc;

	if (!s)
		return 1;
	w = &s->walk;
	if (!w->gen) {
		walk_set_rule(w, UNWIND_CFA_FP, UNWIND_GUESSED);
		return 0;
	}
	pc = walk_pc(w);
	hash = (u32)((pc * 0x9e3779b97f4a7c15ull) >> 40 ^ w->gen) & (ROW_CACHE_SIZE - 1);
	c = w->how & WALK_UNCACHED ? 0 : bpf_map_lookup_elem(&row_cache, &hash);
	if (c && c->gen == w->gen && c->pc == pc) {
		w->rule = c->rule;
		return 0;
	}
	if (walk_find_map(slot) && walk_is_trampoline(slot)) {
		w->unmapped = 1;
		walk_set_rule(w, UNWIND_CFA_FP, UNWIND_GUESSED);
		return 0; /* not kept: the mapping may be published any moment */
	}
	switch (w->map.kind) {
	case MAP_TABLE:
		if (walk_find_table_rule(slot))
			walk_set_rule(w, UNWIND_CFA_FP, UNWIND_GUESSED);
		break;
	case MAP_FP:
		walk_set_rule(w, UNWIND_CFA_FP, 0);
		break;
	case MAP_JIT:
		walk_set_rule(w, UNWIND_CFA_FP, UNWIND_JIT);
		break;
	case MAP_URETPROBE:
		walk_set_rule(w, UNWIND_CFA_URETPROBE, 0);
		break;
	default:
		walk_set_rule(w, UNWIND_CFA_FP, UNWIND_GUESSED);
	}
	if (w->map.kind != MAP_JIT && w->rule.cfa != UNWIND_CFA_SIGNAL && walk_is_sigreturn(slot))
		walk_set_rule(w, UNWIND_CFA_SIGNAL, UNWIND_SIGNAL_FRAME);
	if (c && !(w->rule.flags & UNWIND_WIDE)) {
		c->gen = 0;
		c->pc = pc;
		c->rule = w->rule;
		c->gen = w->gen;
	}
	return 0;
}

static __always_inline int walk_stop(struct walk *w, u32 end)
{
	w->end = end;
	return 1;
}

static __always_inline int walk_unreadable(struct walk *w, u64 addr, u32 len)
{
	w->fault = addr;
	w->fault_len = len;
	return walk_stop(w, STACK_END_UNREADABLE);
}

/* Moves to the caller. ra 0 is how a thread's first frame looks to whoever returns from it. */
static __always_inline int walk_up(struct walk *w, u64 ra, u64 sp, u64 fp, u32 know, u32 exact)
{
	ra &= w->addr_mask;
	if (!ra)
		return walk_stop(w, STACK_END_COMPLETE);
	if (ra < USER_IP_MIN || ra >= USER_IP_MAX)
		return walk_stop(w, STACK_END_NOT_EXEC);
	w->ip = ra;
	w->sp = sp;
	w->fp = fp;
	w->know = know;
	w->exact = exact;
	return 0;
}

/*
 * A function without CFI that is the innermost may be a leaf that makes no frame record (arm64, all
 * of its vdso): its return address is in x30 then. It shows where x30 leads out of the mapping: a
 * function that has called another one finds itself in there. 1: stepped.
 */
static __always_inline int walk_leaf_step(struct scratch *s, u64 in_record)
{
	struct walk *w = &s->walk;
	u64 lr = s->regs[30] & w->addr_mask;

	if (!UNWIND_ARM64 || !(w->know & KNOW_ALL) || !w->have_map ||
	    lr == (in_record & w->addr_mask) || lr < USER_IP_MIN || lr >= USER_IP_MAX ||
	    (lr >= w->map.lo && lr < w->map.hi))
		return 0;
	walk_up(w, lr, w->sp, w->fp, KNOW_FP | NOT_SP, 0);
	return 1;
}

/*
 * One frame-pointer step. Frame record (both ABIs): {caller's frame pointer, return address} at
 * the frame pointer. On x86-64 the caller's stack begins right behind it; on arm64 it lies anywhere
 * in its frame, so that the next frame's sp is not known.
 */
static __always_inline int walk_fp_step(struct scratch *s)
{
	struct walk *w = &s->walk;
	u64 record[2], fp = w->fp, hi = w->sp + w->stack_size;

	if (w->rule.flags & UNWIND_GUESSED)
		w->guessed = 1;
	if (!(w->know & KNOW_FP))
		return walk_stop(w, STACK_END_NO_REGISTER);
	if (!fp)
		return walk_stop(w, STACK_END_COMPLETE);
	if (w->sp < w->stack_top && hi > w->stack_top)
		hi = w->stack_top;
	if (fp & 7 || fp < w->sp || fp >= hi || hi - fp < sizeof(record))
		return walk_stop(w, w->rule.flags & UNWIND_JIT ? STACK_END_JIT : STACK_END_BAD_FP);
	if (bpf_probe_read_user(record, sizeof(record), (const void *)fp))
		return walk_unreadable(w, fp, sizeof(record));
	if (walk_leaf_step(s, record[1]))
		return 0;
	return walk_up(w, record[1], fp + sizeof(record), record[0],
		       UNWIND_ARM64 ? KNOW_FP | NOT_SP : KNOW_FP, 0);
}

#if UNWIND_ARM64
#define DWARF_SP 31
#define DWARF_FP 29
#define DWARF_BX 255
/* Registers as in struct user_pt_regs: x0..x30, sp, pc, pstate. */
static __always_inline u32 walk_reg_index(u32 reg)
{
	return reg & 31;
}
#else
#define DWARF_SP 7
#define DWARF_FP 6
#define DWARF_BX 3
/*
 * DWARF number (System V ABI, figure 3.36) to the place in struct user_regs, a digit each: rax,
 * rdx, rcx, rbx, rsi, rdi, rbp, (rsp, kept elsewhere,) r8..r15 from the low end up. A switch would
 * be compiled to `17 - reg` behind a range check, whose bound verifiers before 7.0 do not see, and
 * would cost them nine paths instead of one.
 */
static __always_inline u32 walk_reg_index(u32 reg)
{
	return 0x0123678904ed5bcaull >> ((reg & 15) * 4) & 15;
}
#endif

/* Value of a register in this frame; nonzero: not known. */
static __always_inline int walk_reg(struct scratch *s, u32 reg, u64 *ret)
{
	struct walk *w = &s->walk;

	if (reg == DWARF_SP) {
		*ret = w->sp;
		return w->know & NOT_SP;
	}
	if (reg == DWARF_FP) {
		*ret = w->fp;
		return !(w->know & KNOW_FP);
	}
	if (reg == DWARF_BX && w->know & KNOW_BX) {
		*ret = w->bx;
		return 0;
	}
	*ret = s->regs[walk_reg_index(reg) & (WALK_REGS - 1)];
	return !(w->know & KNOW_ALL);
}

/*
 * The frame that the kernel builds for a signal handler, from the return trampoline: all
 * registers of what was interrupted. x86-64: sp is at struct ucontext (arch/x86/include/uapi/asm/
 * sigcontext.h); arm64: at struct rt_sigframe {siginfo, ucontext} (arch/arm64/kernel/signal.c).
 */
__noinline int walk_signal_frame(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct walk *w;

	if (!s)
		return 1;
	w = &s->walk;
#if UNWIND_ARM64
	/* 128 siginfo + 176 to uc_mcontext + 8 fault_address */
	if (bpf_probe_read_user(s->regs, 33 * sizeof(u64), (const void *)(w->sp + 312)))
		return walk_unreadable(w, w->sp + 312, 33 * sizeof(u64));
	w->fp = s->regs[29];
	w->sp = s->regs[31];
	w->ip = s->regs[32];
#else
	{
		u64 c[17]; /* r8..r15 di si bp bx dx ax cx sp ip, behind flags, link and stack */

		if (bpf_probe_read_user(c, sizeof(c), (const void *)(w->sp + 40)))
			return walk_unreadable(w, w->sp + 40, sizeof(c));
		s->regs[9] = c[0];
		s->regs[8] = c[1];
		s->regs[7] = c[2];
		s->regs[6] = c[3];
		s->regs[3] = c[4];
		s->regs[2] = c[5];
		s->regs[1] = c[6];
		s->regs[0] = c[7];
		s->regs[14] = c[8];
		s->regs[13] = c[9];
		s->regs[4] = c[10];
		s->regs[5] = c[11];
		s->regs[12] = c[12];
		s->regs[10] = c[13];
		s->regs[11] = c[14];
		w->fp = c[10];
		w->bx = c[11];
		w->sp = c[15];
		w->ip = c[16];
	}
#endif
	if (w->ip < USER_IP_MIN || w->ip >= USER_IP_MAX)
		return walk_stop(w, STACK_END_NOT_EXEC);
	w->know = KNOW_FP | KNOW_BX | KNOW_ALL;
	w->exact = 1;
	return 0;
}

static __always_inline int walk_read(u64 addr, u64 *ret)
{
	return (int)bpf_probe_read_user(ret, sizeof(*ret), (const void *)addr);
}

/*
 * The register that a frame's address counts from, and the distance. Where sp is not known, the
 * frame pointer leads to this function's record, and the rule says how far that is from there.
 */
static __always_inline int walk_base(struct scratch *s, u64 *ret)
{
	struct walk *w = &s->walk;

	if (UNWIND_ARM64 && w->know & NOT_SP && w->rule.cfa == UNWIND_CFA_REG &&
	    w->rule.cfa_reg == DWARF_SP) {
		*ret = w->fp - (s64)w->rule.fp_off;
		return !(w->know & KNOW_FP) || w->rule.fp != UNWIND_FROM_CFA ||
		       w->rule.ra != UNWIND_FROM_CFA || w->rule.ra_off != w->rule.fp_off + 8;
	}
	if (walk_reg(s, w->rule.cfa_reg, ret))
		return 1;
	*ret += (s64)w->rule.cfa_off;
	return 0;
}

/* The frame address by w->rule; nonzero ends the walk. */
static __always_inline int walk_cfa(struct scratch *s, u64 *ret)
{
	struct walk *w = &s->walk;
	u64 cfa, index, addr;

	if (walk_base(s, &cfa))
		return walk_stop(w, STACK_END_NO_REGISTER);
	switch (w->rule.cfa) {
	case UNWIND_CFA_REG:
		break;
	case UNWIND_CFA_PLT:
		/* Upper half of a lazy stub has pushed its index. */
		if ((w->ip & 15) >= (u64)(s64)w->wide.cfa_add)
			cfa += 8;
		break;
	case UNWIND_CFA_SCALED:
		if (walk_reg(s, w->wide.cfa_index, &index))
			return walk_stop(w, STACK_END_NO_REGISTER);
		cfa += index * w->wide.cfa_scale;
		/* fall through */
	case UNWIND_CFA_DEREF:
		addr = cfa;
		if (walk_read(addr, &cfa))
			return walk_unreadable(w, addr, sizeof(addr));
		if (w->rule.flags & UNWIND_WIDE)
			cfa += (s64)w->wide.cfa_add;
		break;
	default:
		return walk_stop(w, STACK_END_NO_RULE);
	}
	/* Up the stack; a leaf that has pushed nothing (arm64) stays where it is. */
	if (cfa < w->sp || (cfa == w->sp && !(w->know & KNOW_ALL)) || cfa - w->sp > FRAME_MAX ||
	    cfa & 7)
		return walk_stop(w, STACK_END_BAD_CFA);
	*ret = cfa;
	return 0;
}

/* A step by w->rule, which has a frame address. */
static __always_inline int walk_table_step(struct scratch *s)
{
	struct walk *w = &s->walk;
	u32 know = w->know & (KNOW_FP | KNOW_BX), exact;
	u64 cfa, ra, fp = w->fp, addr;

	if (walk_cfa(s, &cfa))
		return 1;
	switch (w->rule.ra) {
	case UNWIND_FROM_CFA:
		addr = cfa + (s64)w->rule.ra_off;
		if (walk_read(addr, &ra))
			return walk_unreadable(w, addr, sizeof(addr));
		break;
	case UNWIND_FROM_REG:
		if (walk_reg(s, w->rule.ra_reg, &ra))
			return walk_stop(w, STACK_END_NO_REGISTER);
		break;
	default: /* UNWIND_FROM_DEREF */
		if (walk_reg(s, w->rule.ra_reg, &addr))
			return walk_stop(w, STACK_END_NO_REGISTER);
		addr += (s64)w->rule.ra_off;
		if (walk_read(addr, &ra))
			return walk_unreadable(w, addr, sizeof(addr));
	}
	switch (w->rule.fp) {
	case UNWIND_FROM_SAME:
		break;
	case UNWIND_FROM_CFA:
		addr = cfa + (s64)w->rule.fp_off;
		know = walk_read(addr, &fp) ? know & ~KNOW_FP : know | KNOW_FP;
		break;
	case UNWIND_FROM_REG:
		know = walk_reg(s, w->rule.fp_reg, &fp) ? know & ~KNOW_FP : know | KNOW_FP;
		break;
	case UNWIND_FROM_DEREF:
		if (walk_reg(s, w->rule.fp_reg, &addr) ||
		    walk_read(addr + (s64)w->rule.fp_off, &fp))
			know &= ~KNOW_FP;
		else
			know |= KNOW_FP;
		break;
	default:
		know &= ~KNOW_FP;
	}
	if (w->rule.bx == UNWIND_FROM_CFA && w->rule.flags & UNWIND_WIDE) {
		know = walk_read(cfa + (s64)w->wide.bx_off, &w->bx) ? know & ~KNOW_BX
								    : know | KNOW_BX;
	} else if (w->rule.bx != UNWIND_FROM_SAME) {
		know &= ~KNOW_BX;
	}
	exact = w->rule.flags & UNWIND_SIGNAL_FRAME;
	return walk_up(w, ra, cfa, fp, know, exact);
}

/*
 * The frame's address is the trampoline that a return probe put in place of the real one: takes
 * that from the task's list (kernel/events/uprobes.c), innermost first.
 */
__noinline int walk_uretprobe(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct walk *w;

	if (!s)
		return 1;
	w = &s->walk;
#ifdef __bpf__
	struct task_struct *task = (void *)bpf_get_current_task();
	struct return_instance *ri = (void *)w->uretprobe;
	int i;

	if (!ri)
		ri = BPF_CORE_READ(task, utask, return_instances);
	if (!ri || w->uretprobe == 1)
		return walk_stop(w, STACK_END_NO_RULE);
	w->ip = BPF_CORE_READ(ri, orig_ret_vaddr);
	/* Several probes on one function: all hold the real address, and go together. */
	for (i = 0; i < 8 && BPF_CORE_READ(ri, chained); i++)
		ri = BPF_CORE_READ(ri, next);
	ri = BPF_CORE_READ(ri, next);
	w->uretprobe = ri ? (u64)ri : 1;
	w->exact = 0;
	w->have_map = 0;
	if (w->ip < USER_IP_MIN || w->ip >= USER_IP_MAX)
		return walk_stop(w, STACK_END_NOT_EXEC);
	/* The trampoline is no frame: its place is the real one's. */
	w->n--;
	w->nuser--;
	return 0;
#else
	return walk_stop(w, STACK_END_NO_RULE);
#endif
}

/* One frame; nonzero ends the walk. */
__noinline int walk_frame(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct walk *w;

	if (!s)
		return 1;
	w = &s->walk;
	if (w->nuser >= w->max_frames)
		return walk_stop(w, STACK_END_CUT);
	s->ip[w->n & WALK_MASK] = w->ip;
	w->n++;
	w->nuser++;
	if (walk_find_rule(slot))
		return walk_stop(w, STACK_END_NO_RULE);
	if (w->rule.flags & UNWIND_JIT && !w->jit_fp && w->know & KNOW_FP)
		w->jit_fp = w->fp;
	switch (w->rule.cfa) {
	case UNWIND_CFA_FP:
		return walk_fp_step(s);
	case UNWIND_CFA_END:
		return walk_stop(w, STACK_END_COMPLETE);
	case UNWIND_CFA_UNSUPPORTED:
		return walk_stop(w, STACK_END_NO_RULE);
	case UNWIND_CFA_SIGNAL:
		return walk_signal_frame(slot);
	case UNWIND_CFA_URETPROBE:
		return walk_uretprobe(slot);
	default:
		return walk_table_step(s);
	}
}

/* Some frames. A loop of such loops: verifiers see few rounds of either. Nonzero: the end. */
__noinline int walk_frames(u32 slot)
{
	u32 i;

	for (i = 0; i < WALK_ROUND; i++)
		if (walk_frame(slot))
			return 1;
	return 0;
}

/* Whose mappings count: again when the caller may have slept, after which others may lie there. */
static __always_inline void walk_use_maps(struct walk *w, const struct stack_key *key)
{
	struct proc_entry *p;
	u32 tgid = key->tgid;

	w->gen = 0;
	w->have_map = 0;
	if (w->how & WALK_FP_ONLY)
		return;
	p = bpf_map_lookup_elem(&procs, &tgid);
	if (p && p->start_ns == key->start_ns && p->exec_id == key->exec_id) {
		w->gen = p->gen;
		w->maps = p->maps;
		w->nmaps = p->nmaps;
	}
}

/* Frames until one ends the walk. */
static __always_inline void walk_go_on(struct walk *w, u32 slot)
{
	u32 i;

	w->end = STACK_END_CUT;
	for (i = 0; i < MAX_USER_FRAMES / WALK_ROUND + 1; i++)
		if (walk_frames(slot))
			break;
	if (w->guessed && w->end == STACK_END_COMPLETE)
		w->end = STACK_END_GUESSED;
}

/* After STACK_END_UNREADABLE: walk_go_on() takes the frame again that could not be left. */
static __always_inline void walk_retry(struct walk *w)
{
	w->n--;
	w->nuser--;
}

/*
 * A whole walk from regs[] and w->{ip, sp, fp}. The caller has set stack_*, addr_mask, max_frames
 * and n; key says whose mappings count. how: WALK_*.
 */
static __always_inline void walk_stack(struct scratch *s, u32 slot, const struct stack_key *key,
				       u32 how)
{
	struct walk *w = &s->walk;

	w->how = how;
	w->uretprobe = 0;
	w->jit_fp = 0;
	w->unmapped = 0;
	w->guessed = 0;
	w->exact = 1;
	w->fault = 0;
	w->know = KNOW_FP | KNOW_BX | KNOW_ALL;
	w->bx = s->regs[walk_reg_index(DWARF_BX) & (WALK_REGS - 1)];
	walk_use_maps(w, key);
	walk_go_on(w, slot);
}
