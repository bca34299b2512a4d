/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. What profiling costs, measured while it runs. In: the agent's running totals, in
 * which BPF programs time themselves, and, for the figures of each program, the kernel's run-time
 * statistics, which cost time themselves and are therefore on for a slice of a minute only. Out: struct cost of a window, for the guard, the log, profile
 * comments and `doctor --cost`, to which the daemon's last window goes by a small file.
 */
#pragma once

#include "util.h"
#include "agent.h"
#include "guard.h"

#define COST_PROGRAMS_MAX AGENT_PROGRAMS_MAX
#define COST_FILE         "cost" /* in the store's directory */

struct cost_program {
	char name[16];
	u64 waits;   /* belongs to off-CPU profiling */
	double runs; /* per second */
	double ns;   /* per run */
};

/* Times are percent of one CPU, sizes bytes, counts those of the window. */
struct cost {
	u64 pid, pid_start; /* who measured; start as in /proc/PID/stat */
	u64 end_ns;         /* of the window, CLOCK_REALTIME */
	double seconds;
	u64 cpus;
	double user, system; /* own threads */
	double cpu_programs; /* sampling, as the program times itself */
	double wait_programs;
	double switches; /* of wait_programs: what is spent whether waits are kept or not */
	double callbacks;
	double sides[GUARD_SIDES];
	double total;
	u64 measured; /* ns that the programs' figures come from; 0: not allowed, or not yet */
	u64 rss, maps, tables, table_files, table_processes;
	u64 samples_due, samples_kept, waits_due, waits_kept, waits_sampled_out;
	char samples_lost[160], waits_lost[160]; /* "ring_full 3, busy 1" */
	double callback_runs;                    /* per second */
	/* In force in the window. */
	u64 hz, configured_hz, sample_ns, paused, share;
	double budget;
	char clock[32], mode[96], refused[160];
	u64 nprograms;
	struct cost_program programs[COST_PROGRAMS_MAX];
};

/* Measures window after window of one agent. */
struct cost_meter {
	struct agent *agent;
	u64 window_ns; /* start of the window, CLOCK_MONOTONIC */
	u32 cpus;
	struct agent_cost cost; /* then */
	struct agent_waits waits;
	/* Slices with the kernel's statistics. */
	u64 period_ns, slice_ns; /* one slice in each period; 0: none at all */
	u64 period_start_ns, slice_start_ns, next_ns;
	int fd;     /* the statistics are on while it is open; -1 */
	bool stale; /* what follows comes from before this window */
	u64 measured_ns;
	u32 nslice, nsum;
	struct agent_program slice[COST_PROGRAMS_MAX]; /* when the slice began */
	struct agent_program sum[COST_PROGRAMS_MAX];
};

#define COST_PERIOD_NS (60 * NSEC_PER_SEC)

/* Begins the first window. period_ns: as above. */
void cost_meter_init(struct cost_meter *m, struct agent *a, u64 period_ns);
void cost_meter_fini(struct cost_meter *m);
/* When cost_meter_tick() wants to be called next, CLOCK_MONOTONIC; UINT64_MAX: never. */
u64 cost_meter_next(const struct cost_meter *m);
void cost_meter_tick(struct cost_meter *m, u64 now_ns);
/* Ends a window and begins the next. Fills in what the agent knows; counts are the caller's. */
void cost_meter_end(struct cost_meter *m, struct cost *ret);

/* "cost 0.24 % of a CPU (user 0.12, kernel 0.05, BPF 0.07)" */
void cost_summary(const struct cost *c, char *dst, size_t size);
/* For people: a table. For scripts: one JSON object. */
void cost_print(const struct cost *c, FILE *out);
void cost_print_json(const struct cost *c, FILE *out);

/* Replaces the file; never waits for a disk. Returns 0 or -errno. */
int cost_save(const struct cost *c, const char *path);
/* Text of a file that cost_save() wrote. Returns 0, or -EINVAL: not such a text. */
int cost_parse(const char *text, struct cost *ret);
/* Reads the file. 0, -ENOENT, -EINVAL, -ESRCH when the process that wrote it is gone, -errno. */
int cost_load(const char *path, struct cost *ret);
