/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. Wires the kernel's two sources, samples and process events, into the line, in time
 * order. One thread; waits in epoll, wakes four times a second or when a buffer fills.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "tables.h"

struct agent;
struct modules;
struct window;

struct agent_options {
	u32 hz;
	bool kernel_frames;
	u32 max_frames;
	bool only_pids; /* agent_add_pid() says which */
	bool with_cmdline;
	const char *service;   /* one profile for all; NULL: one per service */
	u64 table_bytes;       /* budget for unwind tables; 0: frame pointers only */
	const char *cache_dir; /* of unwind tables; may be NULL */
};

/* Loads everything, opens the side band, reads /proc. Nothing is sampled yet. Logs. Owned. */
int agent_new(const struct agent_options *o, struct agent **ret);
void agent_free(struct agent *a);
int agent_add_pid(struct agent *a, u32 pid);
int agent_start(struct agent *a);

/* Works until CLOCK_MONOTONIC until_ns or until wake_fd (or -1) is readable: then returns 1. */
int agent_work(struct agent *a, u64 until_ns, int wake_fd);
/*
 * Ends the window: sampling goes on in a new one. finish: sampling ends first. *ret is owned by
 * the caller. Returns 0 or -errno (logged).
 */
int agent_close_window(struct agent *a, bool finish, struct window **ret);
/* Another rate, from the next window on. */
void agent_set_hz(struct agent *a, u32 hz);
u32 agent_hz(const struct agent *a);

struct modules *agent_modules(struct agent *a);
/* Seconds of a CPU used since agent_start(): own user and system time, and BPF programs' time. */
struct agent_cost {
	double user_s, bpf_s;
	u64 bpf_samples;
	u64 map_bytes, rss_bytes;
};
void agent_cost(struct agent *a, struct agent_cost *ret);
void agent_tables(const struct agent *a, struct tables_figures *ret);
const char *agent_clock(const struct agent *a);
