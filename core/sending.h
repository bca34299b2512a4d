/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. All servers of a configuration. In: profiles of closed windows. Each server has its
 * own queue, spool and thread (upload.h), so that none waits for another; a profile is encoded once
 * for all that want it alike.
 */
#pragma once

#include "config.h"
#include "upload.h"

struct profile;
struct sending;
struct window;

/* What the profiles of a window have in common; borrowed. */
struct sending_source {
	const char *host;
	const u8 *pid_key; /* 32 bytes */
	u64 period_ns;     /* of a cpu sample */
	const char *const *comments;
	u32 ncomments;
};

/*
 * NULL in *ret when no section names a URL. Spools are in the store's directory: spool, and
 * spool.NAME of [upload.NAME]. The config must outlive it. Returns 0 or -errno. Logs.
 */
int sending_open(const struct config *c, const char *host, struct sending **ret);
/* Tries to send what waits until deadline (CLOCK_MONOTONIC), spools the rest. NULL ok. */
void sending_close(struct sending *s, u64 deadline_ns);
/* What became of one server's profiles since sending_open(). */
struct sending_server {
	const char *name; /* of [upload.NAME], "" without one; the config's */
	struct upload_counts counts;
};

/* Room for CONFIG_MAX_UPLOADS; returns how many there are. Any thread. NULL ok. */
u32 sending_servers(struct sending *s, struct sending_server *ret);
/* Hands a profile over to each server. Never waits for one. NULL ok. */
void sending_put(struct sending *s, const struct window *w, const struct profile *p,
		 const struct sending_source *from);
