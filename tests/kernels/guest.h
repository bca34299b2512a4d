/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test guest is made of: verdicts on the serial line, the profiler as a child with chosen
 * rights, and its profiles decoded by generated code (guest_profile.c), not by ours.
 */
#pragma once

#include "core/util.h"
#include "profile.pb-c.h"

#include <sys/types.h>

#define FRAMES_MAX 1024
#define DEPTH      40 /* of the program whose chain is known: tests/live/deep.c */
#define DEPTH_ARG  "40"

/* --- verdicts ------------------------------------------------------------------------------- */

/* "@@ ok NAME: ..." or "@@ not ok NAME: ...". */
void verdict(bool good, const char *name, const char *fmt, ...) __printf(3, 4);
/* Whether one was bad. */
bool guest_failed(void);

/* --- the profiler, and other children ------------------------------------------------------- */

struct child {
	uid_t uid;       /* 0: root, with all capabilities */
	u64 caps;        /* of another user: those that it keeps */
	int cpu;         /* pinned to, counted from 1; 0: anywhere */
	bool idle;       /* runs when nobody else wants to */
	bool verifier;   /* tells what the kernel's verifier says of each program */
	const char *log; /* stdout and stderr go there; NULL: where ours go */
};

/* Starts argv[0]; 0 when it cannot. */
pid_t child_start(const struct child *c, char *const *argv);
/* Its status, as a shell would say it. */
int child_wait(pid_t pid);
/* Ends it by SIGKILL and reaps it. */
void child_kill(pid_t pid);
int child_run(const struct child *c, char *const *argv);

/* Shows the lines of a log that begin with "@@ ", or all of them. */
void log_show(const char *path, bool everything);
bool log_has(const char *path, const char *text);

/* Writes text to a file of the system; false (and a bad verdict) when that fails. */
bool put_file(const char *path, const char *text);
bool copy_file(const char *from, const char *to, mode_t mode);
void pause_ms(u32 ms);

/* --- profiles ------------------------------------------------------------------------------- */

struct profile {
	Pprof__Profile *msg;
	Pprof__Location **locations; /* by id */
	Pprof__Function **functions;
	Pprof__Mapping **mappings;
};

/* One stack, leaf first; names are "" where there is none. */
struct stack {
	const char *names[FRAMES_MAX];
	bool kernel[FRAMES_MAX];
	u32 n;
	u64 count;
	const char *executable;
	s64 pid;
};

int profile_read(const char *path, struct profile *p);
void profile_fini(struct profile *p);
u32 profile_samples(const struct profile *p);
void profile_sample(const struct profile *p, u32 i, struct stack *s);
bool profile_says(const struct profile *p, const char *comment_part);

/* Samples of one program, and which have the known chain of tests/live/deep.c. */
struct chain {
	u64 samples;
	u64 busy;  /* of those: in busy() */
	u64 chain; /* whole from there to main() */
	u64 whole; /* to _start, which is reached through the C library */
};
/* Of processes of this executable (NULL: any) and pid (0: any). */
void profile_chain(const struct profile *p, const char *executable, s64 pid, struct chain *ret);
/* One line, leaf first; kernel frames as k:NAME, ? has no name. */
void profile_print_stack(const char *what, const struct stack *s);
/* Some of those that do not reach _start, for people. */
void profile_show_broken(const struct profile *p, const char *executable, s64 pid);
/* The highest pid that was seen in busy(). */
s64 profile_last_busy(const struct profile *p);

/* Samples due are samples kept and lost, and those kept are in the file. */
void check_sums(const struct profile *p, const char *name);
/* The same of the store's only window, over its files. */
void check_store_sums(void);
/* The path of the store's file with this in its name: 0 or -ENOENT. */
int store_find(const char *part, char *ret, size_t size);

/* --- cases: one command each, 0 when all is well --------------------------------------------- */

int case_waits_by_frame_pointers(void);
int case_waits_by_tables(void);
int case_sysctls(void);
int case_lockdown(void);
int case_rights(void);
int case_hotplug(void);
int case_hotplug_work(void);
int case_known_bad(void);
