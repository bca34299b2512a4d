/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The daemon's local view: catalog, answers and page, as one. In: profiles as they are
 * stored, and what each window was like. All calls take NULL, which is a daemon without a page.
 */
#pragma once

#include "util.h"

struct agent;
struct config;
struct local;
struct profile;
struct report;
struct sending;
struct window;

/*
 * *ret is NULL when no page is configured, or when there can be none now, which is no reason not
 * to profile (logged). -EPERM, -EINVAL: the configuration asks for something unsafe or senseless
 * (logged). Owned. The store's directory exists.
 */
int local_open(const struct config *c, struct sending *sending, struct local **ret);
void local_free(struct local *l);
/* Adds to an epoll set what makes local_work() due, as it also is at local_next(). 0 or -errno. */
int local_watch(const struct local *l, int epoll_fd);
u64 local_next(const struct local *l);
void local_work(struct local *l);
/* A profile was stored under this name. */
void local_stored(struct local *l, const struct window *w, const struct profile *p,
		  const char *name);
/* The window's figures, for the page's header. */
void local_status(struct local *l, const struct report *r, const struct window *w, struct agent *a);
/* Whether this host is being profiled from now on, and how long windows are. */
void local_set(struct local *l, bool on, u32 window_s);
/*
 * Who records time lines for the page from now on, borrowed. NULL: nobody; what is under way ends,
 * which is to be said before the agent goes.
 */
void local_agent(struct local *l, struct agent *a, const struct config *c);
/* Seconds of a CPU that people's questions took so far: no cost of profiling. */
void local_cpu_seconds(struct local *l, double *user, double *system);
