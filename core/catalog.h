/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. What the store holds, without opening its files: per profile its start, type,
 * service and sums, so that a day of windows is listed at once. Kept in memory and as lines of a
 * text file beside the profiles, which a restart reads; files that it does not know are read one
 * by one when somebody asks. Any thread may call; calls are short but for those that read files.
 */
#pragma once

#include "util.h"

#define CATALOG_ENTRIES_MAX  (1u << 20) /* older ones are not shown */
#define CATALOG_SERVICES_MAX (1u << 16)
#define CATALOG_TYPES_MAX    32
#define CATALOG_FILES_MAX    8192 /* read for one view; the youngest are */
#define CATALOG_KEY          128  /* bytes of a service's key, with NUL */

struct catalog;
struct view;

/* What is known of a profile when it is written. Texts without control characters. */
struct catalog_profile {
	const char *name; /* of its file */
	const char *service, *container, *exe;
	u64 value; /* sum of its type */
	u64 duration_ms;
	u64 stacks, whole; /* how many, and how many of them are complete */
};

struct catalog_range {
	const char *service; /* key (part of file names), or NULL or "*": all */
	const char *type;    /* NULL: all */
	u64 from_ms, to_ms;  /* CLOCK_REALTIME */
};

/* Opens the profiles of a store's directory, which exists. Logs its own errors. Owned. */
int catalog_open(const char *store_path, struct catalog **ret);
void catalog_free(struct catalog *c);
/* Whoever reads files ends soon; for the end of the daemon. */
void catalog_stop(struct catalog *c);
/* A profile was stored. What cannot be noted is found again at the next start. */
void catalog_note(struct catalog *c, const struct catalog_profile *p);
/*
 * Forgets files that are gone, and reads some that were not known until `until_ns`
 * (CLOCK_MONOTONIC). Returns how many are left to read.
 */
u32 catalog_refresh(struct catalog *c, u64 until_ns);

struct catalog_service {
	char key[CATALOG_KEY];
	char service[256], container[256], exe[256];
	u64 value[CATALOG_TYPES_MAX]; /* by type */
	u64 stacks, whole;
	u32 profiles;
};

struct catalog_summary {
	char types[CATALOG_TYPES_MAX][48];
	u32 ntypes;
	struct catalog_service *services; /* owned */
	u32 nservices;
	u64 covered_ms;        /* of the range, by windows */
	u64 first_ms, last_ms; /* of all that there is; 0: nothing */
	u64 values[CATALOG_TYPES_MAX];
};
int catalog_summary(struct catalog *c, u64 from_ms, u64 to_ms, struct catalog_summary *ret);
void catalog_summary_fini(struct catalog_summary *s);
/* Sums of a range in n equal pieces. */
void catalog_strip(struct catalog *c, const struct catalog_range *r, u64 *ret, u32 n);

/*
 * Adds the profiles of a range to a side of a view, youngest first, until CATALOG_FILES_MAX or
 * until_ns. *ret_left: how many found no place. Damaged files are passed over. 0 or -errno.
 */
int catalog_add(struct catalog *c, const struct catalog_range *r, struct view *v, u32 side,
		u64 until_ns, u32 *ret_left);
/* The only file of a range, or -ENOENT, or -EEXIST when there are more. */
int catalog_only(struct catalog *c, const struct catalog_range *r, char *name, size_t size);
/* Reads a profile's file as it is; owned. */
int catalog_read(struct catalog *c, const char *name, u8 **ret, size_t *ret_len);

/* The same from the directory alone, for a process that is not the daemon. */
int catalog_add_dir(const char *store_path, const struct catalog_range *r, struct view *v,
		    u32 side);
/* Takes a file's name apart; key gets the service's. False: it is none of ours. */
bool catalog_parse_name(const char *name, u64 *ret_start_ms, char type[static 48],
			char key[static CATALOG_KEY]);
