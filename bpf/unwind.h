/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk of a user stack, for BPF and for the host from this one source. In: registers and the
 * stack's bounds in struct walk. Out: addresses, leaf first, and how the walk ended.
 *
 * A frame-pointer step is taken only when the frame record lies inside the stack, above the last
 * one, and its return address is a user address. Whether that address is executable is checked
 * when the stack is joined with its process's mappings (core/stack.c).
 */
#pragma once

#include "bpf/abi.h"
#include "bpf/env.h"

#define WALK_MASK 1023 /* ip[] is a power of two, so that an index can be bounded by a mask */

_Static_assert(MAX_KERNEL_FRAMES + MAX_USER_FRAMES <= WALK_MASK, "ip[] holds a whole stack");

struct walk {
	u64 ip, sp, fp;
	u64 lo, hi;     /* the next frame record lies in [lo, hi) */
	u64 addr_mask;  /* bits of a return address that count (arm64: without the signature) */
	u32 max_frames; /* user frames to keep */
	u32 n;          /* entries of ip[] in use, kernel frames included */
	u32 nuser;
	u32 end; /* enum stack_end */
};

/* Lowest and highest+1 address that can be user code: page 0 is never mapped; 56 bits with LA57. */
#define USER_IP_MIN 4096ull
#define USER_IP_MAX (1ull << 56)

/*
 * One frame-pointer step from *w. Returns 0 and a new ip/fp, or 1 with w->end set.
 * Frame record (both ABIs): {caller's frame pointer, return address} at the frame pointer.
 */
static inline int unwind_fp_step(struct walk *w)
{
	u64 record[2], fp = w->fp, ra;

	if (!fp) {
		w->end = STACK_END_COMPLETE;
		return 1;
	}
	if (fp & 7 || fp < w->lo || fp >= w->hi || w->hi - fp < sizeof(record)) {
		w->end = STACK_END_BAD_FP;
		return 1;
	}
	if (bpf_probe_read_user(record, sizeof(record), (const void *)fp)) {
		w->end = STACK_END_UNREADABLE;
		return 1;
	}
	ra = record[1] & w->addr_mask;
	if (!ra) {
		w->end = STACK_END_COMPLETE;
		return 1;
	}
	if (ra < USER_IP_MIN || ra >= USER_IP_MAX) {
		w->end = STACK_END_NOT_EXEC;
		return 1;
	}
	w->ip = ra;
	w->sp = fp + sizeof(record);
	w->fp = record[0];
	w->lo = w->sp;
	return 0;
}
