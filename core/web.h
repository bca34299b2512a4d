/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The local page: libmicrohttpd inside the daemon's loop, by its epoll descriptor.
 * Who may ask is judged here; what is asked, in web_api.c, in one thread of its own, so that
 * reading profiles never holds up sampling. Connections, header sizes and times are bounded.
 */
#pragma once

#include "util.h"

#define WEB_CONNECTIONS 16
#define WEB_MEMORY      (16u << 10) /* of one connection: its header is smaller */
#define WEB_HEADER_NS   (5 * NSEC_PER_SEC)
#define WEB_IDLE_NS     (10 * NSEC_PER_SEC)
#define WEB_SEND_NS     (60 * NSEC_PER_SEC)
#define WEB_TOKEN_MIN   16
#define WEB_TOKEN_MAX   256

struct web;
struct web_answer;
struct web_api;
struct web_question;

/*
 * A question whose answer has to be recorded first, /api/timeline: its connection is parked and
 * asked for no more than one at a time. All but answer() are called in web_work() or web_open()'s
 * thread; each begin() that returned 0 is followed by one end().
 */
struct web_recorder {
	/* 0; or -errno, with the refusal in *ret. */
	int (*begin)(void *arg, const struct web_question *q, struct web_answer *ret);
	/* When to ask ready() at the latest, CLOCK_MONOTONIC. */
	u64 (*next)(void *arg);
	bool (*ready)(void *arg);
	/* In the worker's thread, after ready(). */
	void (*answer)(void *arg, struct web_answer *ret);
	void (*end)(void *arg);
	void *arg;
};

struct web_options {
	const char *listen;     /* ADDRESS:PORT, numbers; port 0: any */
	const char *token_file; /* "": no token, which only a loopback address may do without */
	const char *hosts;      /* more names of this host, separated by commas or blanks */
	struct web_api *api;    /* borrowed */
	struct web_recorder recorder; /* begin NULL: there is none */
};

/*
 * Listens. -EPERM: the address needs a token; -EINVAL: it is no address; -errno. Logs its own
 * errors. Owned.
 */
int web_open(const struct web_options *o, struct web **ret);
void web_free(struct web *w);
/*
 * Adds what web_work() waits for to an epoll set, which is then readable when it has something to
 * do, as it also has at web_next(). 0 or -errno.
 */
int web_watch(const struct web *w, int epoll_fd);
u64 web_next(const struct web *w); /* CLOCK_MONOTONIC; UINT64_MAX: never */
void web_work(struct web *w);
/* What is being recorded ends now, without an answer; waits for one that is being written. */
void web_end_recording(struct web *w);
/* "http://127.0.0.1:7077/"; borrowed. */
const char *web_address(const struct web *w);
/* Seconds of a CPU that answers took so far; the kernel's part of one that goes on is its end's. */
void web_cpu_seconds(struct web *w, double *user, double *system);

/* --- for tests -------------------------------------------------------------------------------- */

/*
 * Is this Host header one of ours? Addresses are: a page of somebody else's that was rebound to
 * this host comes by a name.
 */
bool web_host_allowed(const char *host, const char *hosts);
