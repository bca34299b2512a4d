/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. /metrics: all counters of stat.h and what the last window cost, as Prometheus reads
 * it (text exposition format 0.0.4). Counters of a kind are one family with labels, any other is
 * its own: a new counter appears without a word here. What became of each server's profiles has
 * families of its own beside the totals, so that no sum counts twice. No label holds what a process
 * can choose.
 */
#pragma once

#include "util.h"

struct cost;
struct sending_server;

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
	bool on;                 /* this host is being profiled */
	u64 window_s;            /* as long as windows are now */
	const struct cost *cost; /* of the last window; its end_ns is 0 when there was none yet */
	const struct sending_server *servers;
	u32 nservers;
};

void metrics_write(const struct metrics *m, FILE *out);
