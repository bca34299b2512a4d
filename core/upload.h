/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Sends finished profiles: knows a URL, query values and bytes. One thread; the
 * window that hands over a profile never waits for a server. What cannot be sent is spooled on
 * disk, bounded, and sent later, oldest first. At least once: a profile whose answer was lost on
 * the way is sent again.
 */
#pragma once

#include "util.h"

struct upload;

struct upload_options {
	const char *url;                /* profiles go to URL/v1/profiles */
	const char *token_file;         /* bearer token; may be NULL or "" */
	const char *ca_file;            /* may be NULL or "" */
	const char *proxy;              /* may be NULL or "" */
	const char *host;               /* host.name */
	const char *spool_path;         /* directory, ours alone; NULL or "": nothing is spooled */
	u64 spool_bytes;                /* 0: nothing is spooled */
	u64 timeout_ns;                 /* whole of one attempt */
	u64 retry_min_ns, retry_max_ns; /* back-off doubles between them, with jitter */
};

/* Makes the spool directory, takes over what an earlier run left in it. Strings are copied. Logs. */
int upload_new(const struct upload_options *o, struct upload **ret);
/*
 * Hands over a profile; body is owned by upload from here on, also on failure. Never blocks on
 * the network; writes a file when too much waits in memory. start_ns orders the spool. Returns 0,
 * -ENOMEM, or -EFBIG (over 64 MiB; counted as dropped).
 */
int upload_submit(struct upload *u, const char *service, const char *container, const char *type,
		  u64 start_ns, u8 *body, size_t len);
/* Tries to send all that waits until deadline (CLOCK_MONOTONIC), spools the rest, ends. NULL ok. */
void upload_free(struct upload *u, u64 deadline_ns);
/* Profiles waiting (queue and spool). */
u32 upload_pending(struct upload *u);
