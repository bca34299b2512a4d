// SPDX-License-Identifier: Apache-2.0
/* See unwind_host.h. */
#include "tests/unwind_host.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Global so that the verifier takes each once; on the host nobody else calls them. */
#undef __always_inline /* the C library has one of its own */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "bpf/unwind.h"
#pragma GCC diagnostic pop

/* The walk tells maps apart by address only; an inner map is one slab. */
struct unwind_map {
	u8 *slab;
};

struct unwind_map scratch, slabs, procs, row_cache;

struct unwind_host {
	unwind_host_read_fn *read;
	void *arg;
	struct scratch s;
	struct unwind_map slab[HOST_SLABS];
	u32 nslabs, used; /* bytes in the last slab */
	struct {
		u32 tgid;
		u32 cap; /* entries that fit at p.maps */
		struct proc_entry p;
	} proc[HOST_PROCS];
	u32 nprocs, gen;
	bool cache;
	struct row_cache_entry row[ROW_CACHE_SIZE];
};

static struct unwind_host *in_use;

long bpf_probe_read_user(void *dst, u32 size, const void *unsafe_ptr)
{
	int err = in_use->read(in_use->arg, dst, size, (u64)(uintptr_t)unsafe_ptr);

	if (err)
		memset(dst, 0, size); /* as the helper does */
	return err;
}

static void *lookup_proc(u32 tgid)
{
	u32 i;

	for (i = 0; i < in_use->nprocs; i++)
		if (in_use->proc[i].tgid == tgid)
			return &in_use->proc[i].p;
	return NULL;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	u32 k = *(const u32 *)key;

	if (map == &scratch)
		return k == 0 ? &in_use->s : NULL;
	if (map == &slabs)
		return k < in_use->nslabs ? &in_use->slab[k] : NULL;
	if (map == &procs)
		return lookup_proc(k);
	if (map == &row_cache)
		return in_use->cache && k < ROW_CACHE_SIZE ? &in_use->row[k] : NULL;
	return k == 0 ? ((struct unwind_map *)map)->slab : NULL;
}

struct unwind_host *unwind_host_new(unwind_host_read_fn *read, void *arg)
{
	struct unwind_host *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->read = read;
	h->arg = arg;
	h->cache = true;
	return h;
}

void unwind_host_free(struct unwind_host *h)
{
	u32 i;

	if (!h)
		return;
	for (i = 0; i < h->nslabs; i++)
		free(h->slab[i].slab);
	free(h);
}

u8 *unwind_host_alloc(struct unwind_host *h, size_t size, u32 *ref)
{
	u8 *p;

	if (size > SLAB_BYTES - SLAB_GRAIN)
		return NULL;
	size = (size + SLAB_GRAIN - 1) & ~(size_t)(SLAB_GRAIN - 1);
	if (!h->nslabs || h->used + size > SLAB_BYTES) {
		if (h->nslabs == HOST_SLABS)
			return NULL;
		p = calloc(1, SLAB_BYTES);
		if (!p)
			return NULL;
		h->slab[h->nslabs++].slab = p;
		h->used = SLAB_GRAIN; /* ref 0 means none */
	}
	*ref = SLAB_REF(h->nslabs - 1, h->used);
	p = h->slab[h->nslabs - 1].slab + h->used;
	h->used += (u32)size;
	return p;
}

int unwind_host_place(struct unwind_host *h, const struct table *t, struct map_entry *e)
{
	u32 index_ref = 0, rules_ref = 0, ref, page;
	u32 *index = (u32 *)unwind_host_alloc(h, t->npages * sizeof(*index), &index_ref);
	u8 *rules = unwind_host_alloc(h, t->nslots * sizeof(*t->rules), &rules_ref), *leaf;

	if (!index || !rules)
		return -ENOSPC;
	memcpy(rules, t->rules, t->nslots * sizeof(*t->rules));
	for (page = 0; page < t->npages; page++) {
		if (t->leaf_at[page] == UINT32_MAX)
			continue;
		leaf = unwind_host_alloc(h, t->leaf_len[page], &ref);
		if (!leaf)
			return -ENOSPC;
		memcpy(leaf, t->leaves + t->leaf_at[page], t->leaf_len[page]);
		index[page] = ref;
	}
	e->index = index_ref;
	e->rules = rules_ref;
	e->npages = t->npages;
	e->shift = (u8)t->shift;
	e->kind = MAP_TABLE;
	return 0;
}

int unwind_host_publish(struct unwind_host *h, const struct stack_key *key,
			const struct map_entry *maps, u32 n)
{
	u32 i, ref;
	u8 *to;

	if (n > MAP_ENTRIES_MAX)
		return -E2BIG;
	for (i = 0; i < h->nprocs; i++)
		if (h->proc[i].tgid == key->tgid)
			break;
	if (i == HOST_PROCS)
		return -ENOSPC;
	if (i == h->nprocs)
		memset(&h->proc[h->nprocs++], 0, sizeof(h->proc[0]));
	if (!h->proc[i].p.maps || n > h->proc[i].cap) {
		h->proc[i].cap = MIN(MAX(2 * n, 64), MAP_ENTRIES_MAX);
		if (!unwind_host_alloc(h, h->proc[i].cap * sizeof(*maps), &ref))
			return -ENOSPC;
		h->proc[i].p.maps = ref;
	}
	ref = h->proc[i].p.maps;
	to = h->slab[REF_SLAB(ref)].slab + REF_OFF(ref);
	if (n)
		memcpy(to, maps, n * sizeof(*maps));
	h->proc[i].tgid = key->tgid;
	h->proc[i].p.start_ns = key->start_ns;
	h->proc[i].p.exec_id = key->exec_id;
	h->proc[i].p.nmaps = n;
	h->proc[i].p.gen = ++h->gen;
	return 0;
}

void unwind_host_forget(struct unwind_host *h, u32 tgid)
{
	u32 i;

	for (i = 0; i < h->nprocs; i++) {
		if (h->proc[i].tgid == tgid) {
			h->proc[i] = h->proc[--h->nprocs];
			return;
		}
	}
}

void unwind_host_cache(struct unwind_host *h, bool on)
{
	memset(h->row, 0, sizeof(h->row));
	h->cache = on;
}

static void begin(struct unwind_host *h, const struct unwind_host_ask *ask, u32 max_frames)
{
	struct walk *w = &h->s.walk;

	_Static_assert(HOST_REGS <= WALK_REGS, "registers fit");
	in_use = h;
	memset(w, 0xa5, sizeof(*w)); /* as in BPF: something is left of the last walk */
	memset(h->s.regs, 0, sizeof(h->s.regs));
	memcpy(h->s.regs, ask->regs, sizeof(ask->regs));
	/* Places in struct user_regs: bpf/kernel.h. */
	w->ip = ask->regs[UNWIND_ARM64 ? 32 : 16];
	w->sp = ask->regs[UNWIND_ARM64 ? 31 : 19];
	w->fp = ask->regs[UNWIND_ARM64 ? 29 : 4];
	w->n = 0;
	w->nuser = 0;
	w->addr_mask = UNWIND_ARM64 ? (1ull << 48) - 1 : ~0ull; /* sampler.c has the same */
	w->max_frames = max_frames;
	w->stack_top = ask->stack_top;
	w->stack_size = ask->stack_size;
	walk_stack(&h->s, 0, &ask->key, 0);
}

static void finish(const struct unwind_host *h, struct unwind_host_walk *ret)
{
	ret->n = MIN(h->s.walk.nuser, (u32)HOST_FRAMES);
	memcpy(ret->ip, h->s.ip, ret->n * sizeof(ret->ip[0]));
	ret->end = h->s.walk.end;
}

void unwind_host_run(struct unwind_host *h, const struct unwind_host_ask *ask,
		     struct unwind_host_walk *ret)
{
	begin(h, ask, MIN(ask->max_frames, (u32)MAX_USER_FRAMES));
	finish(h, ret);
}

void unwind_host_trace(struct unwind_host *h, const struct unwind_host_ask *ask,
		       struct unwind_host_walk *ret)
{
	struct walk *w = &h->s.walk;
	u32 i;

	begin(h, ask, 0); /* cut before the first frame */
	w->max_frames = MIN(ask->max_frames, (u32)MAX_USER_FRAMES);
	for (i = 0; i < MAX_USER_FRAMES; i++) {
		ret->sp[i] = w->sp;
		if (walk_frame(0))
			break;
		ret->rule[i] = w->rule;
	}
	ret->rule[i] = w->rule;
	if (w->guessed && w->end == STACK_END_COMPLETE)
		w->end = STACK_END_GUESSED;
	finish(h, ret);
}

int unwind_host_read_pid(void *arg, void *dst, size_t size, u64 addr)
{
	struct iovec local = { .iov_base = dst, .iov_len = size };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = size };

	return process_vm_readv(*(pid_t *)arg, &local, 1, &remote, 1, 0) == (ssize_t)size ? 0
											  : -EFAULT;
}
