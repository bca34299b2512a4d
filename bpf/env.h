/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What lets one source be both a BPF program and host code: on the host the two helpers are
 * ordinary functions, and the maps opaque objects, that a test provides over live memory and
 * plain arrays.
 */
#pragma once

#ifdef __bpf__
#include "bpf/kernel.h"
#else
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int64_t s64;

#ifndef __noinline /* who includes it may want the functions for itself */
#define __noinline __attribute__((noinline))
#endif
#ifndef __always_inline /* the C library has it, too */
#define __always_inline inline __attribute__((always_inline))
#endif

struct unwind_map;

long bpf_probe_read_user(void *dst, u32 size, const void *unsafe_ptr);
void *bpf_map_lookup_elem(void *map, const void *key);
#endif

#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
#define UNWIND_ARM64 1
#else
#define UNWIND_ARM64 0
#endif
