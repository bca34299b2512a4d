/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Room in the slabs that the BPF programs read (bpf/abi.h): 1 MiB each, made as they
 * are needed, handed out in contiguous runs of blocks. Knows nothing of what lies in them.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

#define SLAB_BLOCK 512

struct slabs;

/*
 * grow(arg, i): makes slab i and returns its SLAB_BYTES of memory, which stay valid and belong to
 * arg; NULL when it cannot. max_bytes: at least one slab. Owned; NULL when out of memory.
 */
struct slabs *slabs_new(void *(*grow)(void *arg, u32 slab), void *arg, u64 max_bytes);
void slabs_free(struct slabs *s);
/*
 * A run of bytes (at most SLAB_BYTES), never ref 0. Returns 0; -ENOSPC when max_bytes or the
 * kernel's limit is reached.
 */
int slabs_alloc(struct slabs *s, u32 bytes, u32 *ret_ref);
void slabs_release(struct slabs *s, u32 ref, u32 bytes);
/* The memory of a run. */
void *slabs_at(const struct slabs *s, u32 ref);
/* Bytes handed out, in whole blocks; bytes of slabs made. */
u64 slabs_used(const struct slabs *s);
u64 slabs_bytes(const struct slabs *s);
