/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Sends finished profiles to one server. One thread; the window that hands over a
 * profile never waits for a server. What cannot be sent is spooled on disk, bounded in bytes and
 * age, and sent later, oldest first. At least once: a profile whose answer was lost on the way is
 * sent again. A profile that the server finds too large is sent in halves.
 */
#pragma once

#include "http.h"
#include "util.h"

struct upload;

struct upload_options {
	enum protocol protocol;
	struct http_options http;       /* its http2 follows from the protocol */
	const char *host;               /* host.name */
	const char *spool_path;         /* directory, ours alone; NULL or "": nothing is spooled */
	u64 spool_bytes;                /* 0: nothing is spooled */
	u64 spool_age_ns;               /* 0: any */
	u64 queue_bytes;                /* of profiles in memory; 0: 16 MiB */
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
/* The end is near: begins what upload_free() does, so that several can end at the same time. */
void upload_stop(struct upload *u, u64 deadline_ns);
/*
 * Tries to send all that waits until deadline (CLOCK_MONOTONIC; that of upload_stop() if it was
 * called), spools the rest, ends. NULL ok.
 */
void upload_free(struct upload *u, u64 deadline_ns);
/* Profiles waiting (queue and spool). */
u32 upload_pending(struct upload *u);

/*
 * found + due + parts = sent + refused + too_large + dropped + expired + damaged + waiting, when
 * nothing moves. Since the start of this one.
 */
struct upload_counts {
	u64 found;     /* in the spool at the start */
	u64 due;       /* handed over */
	u64 parts;     /* splits: each makes one more of a profile, or of a part */
	u64 sent;      /* accepted */
	u64 refused;   /* for good */
	u64 too_large; /* one sample alone, or a server that finds everything too large */
	u64 dropped;   /* no room, in spool or memory */
	u64 expired;   /* older than spool_age_ns */
	u64 damaged;   /* spool files set aside */
	u64 waiting;
	u64 spool_bytes;
	u64 retried;  /* attempts that failed */
	u64 rejected; /* of what was sent: that the server did not keep after all */
};
void upload_counts(struct upload *u, struct upload_counts *ret);
