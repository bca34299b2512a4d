/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Two hash maps that take turns under one map-in-map: a program counts into the one
 * that the epoch names, user space empties the other. For sampler.c and offcpu.c, which have a
 * pair each: a program in an NMI must never find a map locked by one that it interrupted (kernels
 * before 5.11 would wait for ever).
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct counts {
	int outer_fd; /* borrowed */
	int fd[2];
	u32 capacity;
};

/* c is all zeros. capacity: distinct stacks of an epoch; may become less. Returns 0 or -errno. */
int counts_init(struct counts *c, int outer_fd, u32 capacity);
/* Of all zeros: nothing happens. */
void counts_fini(struct counts *c);
/* Changes nothing, and returns only when every program that runs now has ended: 0 or -errno. */
int counts_wait(const struct counts *c, u64 epoch);

typedef void counts_fn(void *arg, const struct stack_key *key, const struct stack_count *count);
/* Empties the map of an epoch that is over. Returns 0 or -errno. */
int counts_take(const struct counts *c, u64 epoch, counts_fn *fn, void *arg);
/* Bytes that the kernel holds for both. */
u64 counts_bytes(const struct counts *c);
