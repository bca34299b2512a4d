/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Tells the service manager how we are: sd_notify(3)'s protocol, datagrams of lines
 * to the socket that NOTIFY_SOCKET names. Without one every call does nothing. Never blocks.
 */
#pragma once

#include "util.h"

#define NOTIFY_TEXT 256 /* bytes of a status line; longer ones are cut */

struct notify {
	int fd;          /* connected; -1: nobody wants to know */
	u64 interval_ns; /* between two signs of life; 0: nobody waits for them */
	u64 next_ns;
};

/*
 * Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and takes them out of the environment, so
 * that no child speaks for us. A socket that cannot be reached is warned of.
 */
void notify_init(struct notify *n);
void notify_fini(struct notify *n);

/* What is done now. Each comes with a line for people: `systemctl status` shows it. */
void notify_ready(struct notify *n, const char *status);
void notify_reloading(struct notify *n);
void notify_stopping(struct notify *n, const char *status);
void notify_status(struct notify *n, const char *status);

/* When notify_alive() wants to be called next, CLOCK_MONOTONIC; UINT64_MAX: never. */
u64 notify_next(const struct notify *n);
/*
 * A sign of life, when one is due. To be called by the loop that does the work and by nothing else:
 * that it comes is to mean that the loop turns.
 */
void notify_alive(struct notify *n, u64 now_ns);
