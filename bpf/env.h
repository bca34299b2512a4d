/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What lets one source be both a BPF program and host code: on the host the two helpers are
 * ordinary functions that a test provides over recorded or live memory.
 */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <linux/types.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define __noinline __attribute__((noinline))

long bpf_probe_read_user(void *dst, u32 size, const void *unsafe_ptr);
#endif
