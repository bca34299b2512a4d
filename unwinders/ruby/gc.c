// SPDX-License-Identifier: Apache-2.0
/*
 * How to see that a thread collects garbage: the bit that rb_during_gc() returns, which the collector
 * sets from the moment it begins a step until the step's end, whatever the step is (marking, sweeping,
 * lazily or not, compacting); and who of the threads it is: the one that holds Ruby's lock meanwhile.
 * In: the process, with its VM and the way to contexts known. Out: addresses, as a recipe wants them.
 */
#include "ruby.h"

#define RACTOR_WORDS 160 /* of rb_ractor_t, among which the running context is looked for */
#define VM_WORDS     80

/* What rb_during_gc() says: *(*(vm + heap) + flags) & mask. */
struct flag {
	uint32_t heap, flags;
	uint8_t mask;
};

static uint32_t u32_at(const uint8_t *p)
{
	return (uint32_t)s32_at(p);
}

/* --- code: three instructions, each of which needs the one before it ---------------------------------- */

/* modrm: a register plus a displacement of one byte (mod 1) or four (mod 2). */
static bool based(uint8_t modrm, unsigned mod)
{
	return modrm >> 6 == mod && (modrm & 7) != 4;
}

static bool during_x86(const uint8_t *c, struct flag *ret)
{
	for (uint32_t i = 0; i + 17 <= CODE_READ; i++, c++) {
		if ((c[0] & 0xfb) != 0x48 || c[1] != 0x8b || !based(c[2], 2))
			continue;
		ret->heap = u32_at(c + 3);
		/* movzbl, shr, and */
		if (c[7] != 0x0f || c[8] != 0xb6 || !based(c[9], 1) ||
		    (c[11] != 0xc0 && c[11] != 0xc1) || (c[12] & 0xf8) != 0xe8 || c[13] > 7 ||
		    c[14] != 0x83 || (c[15] & 0xf8) != 0xe0 || c[16] != 1)
			return false;
		ret->flags = c[10];
		ret->mask = (uint8_t)(1u << c[13]);
		return true;
	}
	return false;
}

static bool during_arm64(const uint8_t *c, struct flag *ret)
{
	for (uint32_t i = 0; i + 12 <= CODE_READ; i += 4, c += 4) {
		uint32_t load = u32_at(c), flags = u32_at(c + 4), bit = u32_at(c + 8);
		uint32_t imm = flags >> 10 & 0xfff, shift = bit >> 16 & 63;

		/* ubfx of one bit, of 32 or of 64 */
		if (load >> 22 != 0xf9400000u >> 22 || shift != (bit >> 10 & 63) ||
		    ((bit & 0xffc00000) != 0x53000000 && (bit & 0xffc00000) != 0xd3400000))
			continue;
		ret->heap = (load >> 10 & 0xfff) * 8;
		if (flags >> 22 == 0xf9400000u >> 22)
			ret->flags = imm * 8;
		else if (flags >> 22 == 0xb9400000u >> 22)
			ret->flags = imm * 4;
		else if (flags >> 22 == 0x39400000u >> 22)
			ret->flags = imm;
		else
			return false;
		ret->flags += shift / 8;
		ret->mask = (uint8_t)(1u << shift % 8);
		return true;
	}
	return false;
}

/*
 * rb_gc_enable() clears dont_gc, which lies two bits below during_gc in the same byte (gc.c): from that
 * both are known to be what they are taken for.
 */
static bool enable_x86(const uint8_t *c, const struct flag *f)
{
	bool cleared = false;

	for (uint32_t i = 0; i + 3 <= CODE_READ && c[i] != 0xc3; i++) {
		if (c[i] == 0x83 && (c[i + 1] & 0xf8) == 0xe0 &&
		    c[i + 2] == (uint8_t) ~(f->mask >> 2))
			cleared = true;
		if (cleared && c[i] == 0x88 && based(c[i + 1], 1) && c[i + 2] == f->flags)
			return true;
	}
	return false;
}

static bool enable_arm64(const uint8_t *c, const struct flag *f)
{
	bool cleared = false;

	for (uint32_t i = 0; i + 4 <= CODE_READ; i += 4) {
		uint32_t insn = u32_at(c + i), imm = insn >> 10 & 0xfff;

		/* and, with all bits but one: 31 of them, turned right until the gap is there */
		if ((insn & 0xffc0fc00) == 0x12007800 &&
		    1u << (31 - (insn >> 16 & 31)) == f->mask >> 2)
			cleared = true;
		if (cleared && ((insn >> 22 == 0x39000000u >> 22 && imm == f->flags) ||
				(insn >> 22 == 0x79000000u >> 22 && imm * 2 == f->flags) ||
				(insn >> 22 == 0xb9000000u >> 22 && imm * 4 == f->flags)))
			return true;
	}
	return false;
}

static void find_flag(struct target *t, struct ruby *s)
{
	uint64_t during = target_symbol(t, s->module, "rb_during_gc", NULL), heap;
	uint64_t enable = target_symbol(t, s->module, "rb_gc_enable", NULL);
	bool arm = target_arch(t) == TARGET_ARM64;
	uint8_t code[CODE_READ];
	struct flag f;

	if (!find_code(t, during, code) || !(arm ? during_arm64 : during_x86)(code, &f) ||
	    f.mask < 4 || !find_code(t, enable, code) ||
	    !(arm ? enable_arm64 : enable_x86)(code, &f))
		return;
	if (f.heap > 1u << 16 || target_u64(t, s->vm + f.heap, &heap) ||
	    target_memory(t, heap) != TARGET_OTHER)
		return;
	s->gc_flag = heap + f.flags;
	s->gc_mask = f.mask;
}

/* --- whose it is ------------------------------------------------------------------------------------- */

static bool is_context(struct target *t, const struct ruby *s, uint64_t ec)
{
	uint64_t th, vm;

	return ec >= 4096 && !(ec & 7) && !target_u64(t, ec + (uint64_t)s->l.ec_thread, &th) &&
	       th >= 4096 && !target_u64(t, th + (uint64_t)s->l.thread_vm, &vm) && vm == s->vm;
}

/* 2.7: one lock for all threads, and a variable with the context of the one that has it, or had it last. */
static bool find_current(struct target *t, struct ruby *s)
{
	uint64_t at = target_symbol(t, s->module, "ruby_current_execution_context_ptr", NULL), ec;

	if (!at || target_u64(t, at, &ec) || !is_context(t, s, ec))
		return false;
	s->gc_owner[0] = at;
	s->gc_hop = (int16_t)s->l.ec_thread;
	/* A thread's first hop leads to the thread, which has its context. */
	s->gc_hops = 1;
	return true;
}

/* rb_ractor_t.threads ends with the context that runs, and the ractor's first thread. */
static bool find_running(struct target *t, struct ruby *s, uint64_t ractor, uint64_t first)
{
	uint64_t word, before = 0;

	for (uint32_t i = 0; i < RACTOR_WORDS && !target_u64(t, ractor + i * 8ull, &word); i++) {
		if (i && word == first && is_context(t, s, before)) {
			s->gc_hop = (int16_t)((i - 1) * 8);
			return true;
		}
		before = word;
	}
	return false;
}

/* The variable that has the first ractor while there is no other: every rb_ractor_std*() asks for it. */
static uint64_t single_ractor(struct target *t, const struct ruby *s, uint64_t ractor)
{
	struct places p = { .n = 0 };
	uint64_t v, w;

	find_places(t, target_symbol(t, s->module, "rb_ractor_stdin", NULL), &p);
	for (uint32_t i = 0; i < p.n; i++) {
		if (target_u64(t, p.v[i], &v))
			continue;
		if (v == ractor)
			return p.v[i];
		if (v >= 4096 && !(v & 7) && !target_u64(t, v, &w) && w == ractor)
			return v;
	}
	return 0;
}

/*
 * A ractor's threads have a lock in common, and a ractor that is not alone holds the VM's while it
 * collects. In rb_vm_t: first ractor, its thread, the lock, which ractor holds it.
 */
static bool find_ractors(struct target *t, struct ruby *s)
{
	uint64_t mutex = target_arch(t) == TARGET_ARM64 ? 48 : 40, ractor, first, single;
	uint64_t thread = find_thread(t, s, s->vm);

	for (uint32_t i = 1; thread && i < VM_WORDS; i++) {
		uint64_t at = s->vm + i * 8ull;

		if (target_u64(t, at, &first))
			return false;
		if (first != thread)
			continue;
		if (target_u64(t, at - 8, &ractor) || !find_running(t, s, ractor, first))
			return false;
		single = single_ractor(t, s, ractor);
		s->gc_owner[0] = single ? single : at + 8 + mutex;
		s->gc_owner[1] = single ? at + 8 + mutex : 0;
		s->gc_hops = s->nhops;
		return true;
	}
	return false;
}

void gc_find(struct target *t, struct ruby *s)
{
	if ((s->l.thread_local_ec ? find_ractors : find_current)(t, s))
		find_flag(t, s);
}
