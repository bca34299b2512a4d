/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. Profiles that wait on disk for a server: one file each, oldest first, bounded in
 * bytes and age; the oldest go when it is full. Survives restarts and damage. Any thread may call; one thread loads.
 */
#pragma once

#include "util.h"

/* One finished profile on its way out. */
struct profile {
	struct profile *next;
	u64 start_ns, seq;                           /* age: start, then order of hand-over */
	char service[256], container[256], type[64]; /* valid UTF-8; container may be "" */
	const u8 *body;
	size_t len;
	u8 *memory; /* owned; body points into it */
};

struct spool;

/* Largest body that the spool takes. */
#define SPOOL_BODY_MAX (64u << 20)

void profile_free(struct profile *p);

/*
 * Opens the directory (see store_open_dir()) and takes over the files of earlier runs. An empty
 * path or max_bytes of 0 gives a spool that takes nothing. Profiles whose start is longer ago than
 * max_age_ns (0: any) are dropped when they are met. Logs its own errors. Owned.
 */
int spool_open(const char *path, u64 max_bytes, u64 max_age_ns, struct spool **ret);
void spool_free(struct spool *s);
/* Writes a copy. Oldest files go until it fits (counted, logged). Returns 0 or -errno. */
int spool_put(struct spool *s, const struct profile *p);
/* Drops what is too old. False when empty; else the age of the oldest. */
bool spool_oldest(struct spool *s, u64 *ret_start_ns, u64 *ret_seq);
/*
 * Reads the oldest; the file stays and is not dropped until spool_done(). Damaged files are set
 * aside as *.bad (counted) on the way. Returns 0, -ENOENT when nothing is left, or -errno when
 * reading may work later. *ret is owned.
 */
int spool_load(struct spool *s, struct profile **ret);
/* The loaded profile was dealt with (its file goes) or not (it stays, and may be dropped). */
void spool_done(struct spool *s, bool remove);
u32 spool_count(struct spool *s);

struct spool_counts {
	u32 waiting;
	u64 bytes; /* of those */
	u64 dropped, expired, damaged;
};
void spool_counts(struct spool *s, struct spool_counts *ret);
/* First order number above all that wait. */
u64 spool_next_seq(struct spool *s);

/*
 * Percent-encodes all but RFC 3986's unreserved characters; always terminates dst, whole triplets
 * only. Returns the length written.
 */
size_t spool_escape(char *dst, size_t size, const char *src);
