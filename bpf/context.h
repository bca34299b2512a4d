/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the current thread says that it works on: a record that it keeps for readers like us
 * (struct context_record), to which a chain from its thread pointer leads. User space has found
 * the chain and armed the process image with it. The record is read where the stack is taken, while
 * the thread stands still: so both are of one moment, and a record that is being changed says so.
 */
#pragma once

#include "bpf/list.h"

#define CONTEXT_ATTRS 16 /* attributes of a record that are looked at */

const volatile bool thread_context = false; /* is anybody armed at all? */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CONTEXT_ENTRIES_MAX);
	__type(key, u32);
	__type(value, struct context_entry);
} contexts SEC(".maps");

/* Some bytes that lead on; false: they lead nowhere. */
static __always_inline bool context_hop(u64 *p, s64 off)
{
	return !bpf_probe_read_user(p, sizeof(*p), (const void *)(*p + off)) && *p >= 4096 &&
	       *p != ~0ull;
}

/* Where the record of the thread with that pointer is; 0: it has none. */
static __always_inline u64 context_find(const struct context_entry *e, u64 tp)
{
	u64 p = tp, n = 0;
	u32 i;

	/* The ABI of x86-64 has the pointer point to itself; what else uses the register does not. */
	if (!UNWIND_ARM64 && (bpf_probe_read_user(&n, sizeof(n), (const void *)tp) || n != tp))
		return 0;
	for (i = 0; i < CONTEXT_HOPS; i++) {
		if (i >= e->nhops)
			break;
		/* The vector of blocks may be too short to have one for the module. */
		if (i == 1 &&
		    (bpf_probe_read_user(&n, sizeof(n), (const void *)(p + (s64)e->check)) ||
		     n < e->module))
			return 0;
		if (!context_hop(&p, e->hop[i]))
			return 0;
	}
	return p & 1 ? 0 : p;
}

/* Takes the next attribute; nonzero: the last one is behind. Several of a key: the last counts. */
__noinline int context_attribute(u32 slot)
{
	struct scratch *s = walk_scratch(slot);
	struct context_walk *c;
	u8 head[2]; /* key, length */

	if (!s)
		return 1;
	c = &s->context;
	if (c->at + sizeof(head) > c->end ||
	    bpf_probe_read_user(head, sizeof(head), (const void *)c->at) ||
	    c->at + sizeof(head) + head[1] > c->end)
		return 1;
	if (head[0] == c->key) {
		c->value = c->at + sizeof(head);
		c->value_len = head[1];
	}
	c->at += sizeof(head) + head[1];
	return 0;
}

/* The route into the words behind the ids. Returns how many words it takes. */
static __always_inline u32 context_route(struct scratch *s, u32 slot)
{
	struct context_walk *c = &s->context;
	u64 len;
	u32 i;

	c->value_len = 0;
	for (i = 0; i < CONTEXT_ATTRS; i++)
		if (context_attribute(slot))
			break;
	/* One that was not looked at may have been the one that counts. */
	len = i < CONTEXT_ATTRS || c->at + 2 > c->end ? c->value_len : 0;
	if (len > CONTEXT_ROUTE_MAX)
		len = CONTEXT_ROUTE_MAX;
	asm volatile("" : "+r"(len));
	if (len > CONTEXT_ROUTE_MAX || !len ||
	    bpf_probe_read_user(&c->words[CONTEXT_ID_WORDS], len, (const void *)c->value))
		return 0;
	return (u32)(len + 7) / 8;
}

/* The thread's record behind what the scratch has of it. */
__noinline int context_read(u32 slot, u64 tp)
{
	struct scratch *s = walk_scratch(slot);
	struct context_record r;
	struct context_entry *e;
	u32 tgid, i, n, at;
	u64 p;

	if (!s)
		return 0;
	tgid = s->ev.key.tgid;
	e = bpf_map_lookup_elem(&contexts, &tgid);
	if (!e || e->start_ns != s->ev.key.start_ns || e->exec_id != s->ev.key.exec_id)
		return 0;
	p = context_find(e, tp);
	if (!p || bpf_probe_read_user(&r, sizeof(r), (const void *)p) || r.valid != 1 ||
	    r.attributes > CONTEXT_BYTES_MAX)
		return 0;
	for (i = CONTEXT_ID_WORDS; i < CONTEXT_WORDS; i++)
		s->context.words[i] = 0;
	for (i = 0; i < CONTEXT_ID_WORDS; i++)
		s->context.words[i] = r.id[i];
	s->context.at = p + CONTEXT_RECORD_BYTES;
	s->context.end = s->context.at + r.attributes;
	s->context.key = e->route;
	n = e->has_route && r.attributes ? context_route(s, slot) : 0;
	if (!n && !r.id[0] && !r.id[1] && !r.id[2])
		return 0;
	n += CONTEXT_ID_WORDS;
	at = s->walk.n + list_words(s);
	for (i = 0; i < CONTEXT_WORDS; i++)
		s->ip[(at + i) & WALK_MASK] = s->context.words[i];
	s->ev.ncontext = n;
	return 0;
}

/* After the native walk and that of the list, in the thread itself. */
static __always_inline void context_take(struct scratch *s, u32 slot, struct task_struct *task)
{
	if (thread_context)
		context_read(slot, task_tp(task));
}

static __always_inline u32 context_words(const struct scratch *s)
{
	return thread_context ? s->ev.ncontext : 0;
}
