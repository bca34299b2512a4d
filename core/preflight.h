/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. Every privilege and kernel feature that profiling needs, one line each: there or
 * missing, what that costs, how to mend it. Probed; only the list of kernels that a profiler can
 * bring down goes by version.
 */
#pragma once

#include "util.h"

struct perf_event_attr;
struct features;

/* What the checks look at; a test puts a directory and its own probes here. */
struct preflight_host {
	const char *root; /* put before /proc and /sys */
	/* Opens an event or a ring buffer, returns its descriptor or -errno. */
	int (*perf_open)(struct perf_event_attr *attr, pid_t pid, int cpu);
	int (*ring_open)(void);
	/* Loads the sampling programs and lets them go again: 0 or -errno. */
	int (*load)(void);
	const struct features *features; /* NULL: features_host() */
	/* What else the report says, before its last line; json: members of its object. NULL: no. */
	void (*more)(FILE *out, bool json);
};

/* `doctor`: the whole report, as lines or as JSON. Returns 0 when profiling can run, else 1. */
int preflight_run(FILE *out, bool json);
int preflight_run_on(const struct preflight_host *h, FILE *out, bool json);

/*
 * Before `run` and `record`: 0, or 3 (the exit code) and the first reason with its remedy as one
 * sentence in `why`. The forced form lets kernels of the known-bad list pass, nothing else.
 */
int preflight_check(char *why, size_t size);
int preflight_check_forced(char *why, size_t size);
int preflight_check_on(const struct preflight_host *h, bool force, char *why, size_t size);
