/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. Wires the kernel's two sources, samples and process events, into the line, in time
 * order. One thread; waits in epoll, wakes four times a second or when a buffer fills.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"
#include "runtime.h"
#include "sampler.h"
#include "tables.h"

struct agent;
struct match_filter;
struct modules;
struct service_rules;
struct window;

/* Interpreters' stacks. */
struct agent_runtimes {
	struct runtime_choice choice;
	u32 (*hz)(void *arg, const struct unwinder *u); /* arg: choice.arg */
	bool internals;
	bool no_wall; /* nobody wants their own sample types: waiting threads are let be */
};

/* Names of services, and whom to leave out. All borrowed for the agent's life. */
struct agent_identity {
	const struct service_rules *rules; /* NULL: none */
	const struct match_filter *filter; /* NULL: all are wanted */
	u64 min_age_ns;
};

struct agent_options {
	u32 hz;
	bool kernel_frames;
	u32 max_frames;
	bool only_pids; /* agent_add_pid() says which */
	bool with_cmdline;
	bool no_cpu;           /* nothing is sampled on CPU, only what follows is recorded */
	bool marks;            /* windows hold each event with its time */
	bool thread_context;   /* samples carry what their threads say that they work on */
	bool offcpu, lock;     /* sample types to record besides */
	bool offcpu_tables;    /* user stacks of waits by tables; else by frame pointers */
	u64 offcpu_min_ns;     /* shorter waits are dropped; 0: none is */
	const char *service;   /* one profile for all; NULL: one per service */
	u64 table_bytes;       /* budget for unwind tables; 0: frame pointers only */
	const char *cache_dir; /* of unwind tables; may be NULL */
	struct agent_identity identity;
	const struct agent_runtimes *runtimes; /* borrowed, like all behind it; NULL: native only */
};

/* Loads everything, opens the side band, reads /proc. Nothing is sampled yet. Logs. Owned. */
int agent_new(const struct agent_options *o, struct agent **ret);
void agent_free(struct agent *a);
int agent_add_pid(struct agent *a, u32 pid);
int agent_start(struct agent *a);

/*
 * Works until CLOCK_MONOTONIC until_ns, until agent_named() has something, or until wake_fd (or -1)
 * is readable: then returns 1.
 */
int agent_work(struct agent *a, u64 until_ns, int wake_fd);
/*
 * Ends the window: sampling goes on in a new one. finish: sampling ends first. *ret is owned by
 * the caller. Returns 0 or -errno (logged).
 */
int agent_close_window(struct agent *a, bool finish, struct window **ret);
/*
 * Has a closed window's frames named while work goes on, within NAMING_MAX_NS; takes it over. At
 * most NAMINGS_MAX are under way: with one more the oldest is done with what it has. In between,
 * agent_named() is asked.
 */
#define NAMINGS_MAX   4
#define NAMING_MAX_NS (5 * NSEC_PER_SEC)
void agent_name(struct agent *a, struct window *w);
/*
 * The oldest window given to agent_name(), when its names are there; owned by the caller. wait_ns:
 * how long to wait for them. NULL: none is ready.
 */
struct window *agent_named(struct agent *a, u64 wait_ns);
/* Names of a window at once, in at most wait_ns. */
void agent_names_resolve(struct agent *a, struct window *w, u64 wait_ns);

/*
 * A time line of one process, out of what is profiled anyway, at the rate in force: from now on its
 * samples and waits are kept with their times as well, at most AGENT_TIMELINE_EVENTS of them. Of
 * one process at a time, and not with agent_options.marks. Returns 0; -EBUSY; -ESRCH; -EACCES for a
 * process that is left out; -ENOMEM; -errno.
 */
#define AGENT_TIMELINE_EVENTS (1u << 17)
int agent_timeline_begin(struct agent *a, u32 pid);
bool agent_timeline_alive(struct agent *a); /* the process is there, as far as is known */
/* Ends it: waits that go on are in it up to now. Its frames get their names within NAMING_MAX_NS. */
void agent_timeline_end(struct agent *a);
/*
 * The window of one that was ended, once its names are there: the caller's, who frees it before the
 * agent. *ret_lost: events that are not in it. NULL: not yet.
 */
struct window *agent_timeline_take(struct agent *a, u64 *ret_lost);
/* Whatever is under way is forgotten. */
void agent_timeline_drop(struct agent *a);

/* Another rate, at once: a window may hold samples of several, each with its own period. */
void agent_set_hz(struct agent *a, u32 hz);
u32 agent_hz(const struct agent *a);

/*
 * Percent of the usual walks of waiting threads: less when profiling costs too much. What is
 * charged is still all of their time, from fewer looks.
 */
void agent_set_runtime_share(struct agent *a, u32 percent);
/* Interpreters' stacks since the start, and the book of them (NULL: native only). */
struct runtimes *agent_runtimes(struct agent *a);

/* What was used since agent_start(), in seconds of a CPU. */
struct agent_cost {
	double user_s, system_s; /* own threads */
	double bpf_s;            /* sampling program, as it times itself */
	double runtime_s;        /* walks of runtimes' stacks: part of own threads' time */
	u64 bpf_samples;
	u64 map_bytes, rss_bytes;
	u64 stacks, wait_stacks; /* distinct stacks that own threads worked on */
};
void agent_cost(struct agent *a, struct agent_cost *ret);
/* CPU time of own threads, in seconds since the start, that is no cost of profiling. */
void agent_cost_aside(struct agent *a, double user_s, double system_s);

/* Off-CPU profiling since agent_start(); mode NULL: there is none. */
struct agent_waits {
	const char *mode;    /* how waits are seen, for people; static */
	const char *refused; /* mode NULL: why, if it was asked for; static */
	u64 sample_ns;       /* T: shorter waits are sampled; 0: all are kept */
	double probability;  /* of a wait to be looked at at all */
	double switch_s;     /* of the program that looks at each switch, as it times itself */
	double kept_s;       /* part of it: for waits that were kept */
	double stack_s;      /* of programs that take stacks in interrupts */
	double callback_s;   /* task work in the threads that waited; kernel statistics miss it */
	double own_s;        /* part of own threads' time: stacks of threads that still wait */
	u64 callbacks, switches;
	bool paused;
};
void agent_waits(struct agent *a, struct agent_waits *ret);
/* T from now on, and whether waits are looked at. */
void agent_sample_waits(struct agent *a, u64 sample_ns);
void agent_pause_waits(struct agent *a, bool paused);

/* A loaded BPF program and what the kernel's statistics say of it, if they are on. */
struct agent_program {
	struct program_time time;
	bool waits; /* belongs to off-CPU profiling */
};
#define AGENT_PROGRAMS_MAX 24
u32 agent_programs(struct agent *a, struct agent_program *ret, u32 max);
void agent_tables(const struct agent *a, struct tables_figures *ret);
const char *agent_clock(const struct agent *a);
u32 agent_cpus(const struct agent *a); /* that are sampled now */
