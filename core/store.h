/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. The local store: a directory of ordinary .pb.gz files, oldest removed first.
 * Name: START-TYPE-SERVICE.pb.gz with START as 20261130T125500Z.123 (sorts by age).
 * Also the two ways in which the daemon writes to disk at all: a private directory, a whole file.
 */
#pragma once

#include "util.h"

struct store;

/*
 * Opens PATH/profiles, creating it (0700) with missing parents; removes what an earlier run left
 * half-written, and the oldest profiles when they are over max_bytes. Logs its own errors. Owned.
 * One thread at a time may use a store.
 */
int store_open(const char *path, u64 max_bytes, struct store **ret);
void store_free(struct store *s);
/*
 * Writes one profile under a temporary name and renames it: a reader never sees half a file.
 * Oldest profiles go until it fits; one that never fits is refused with -EFBIG. An equal name is
 * never replaced, the newcomer gets a number. Returns 0 or -errno (counted, not logged).
 */
int store_put(struct store *s, u64 start_ns, const char *type, const char *service,
	      const void *data, size_t len);
/* Name of the file that store_put() wrote last; borrowed until the next. */
const char *store_last(const struct store *s);
/* Directory that holds the profiles; borrowed. Bytes now in it. */
const char *store_path(const struct store *s);
u64 store_bytes(const struct store *s);

/*
 * Opens a directory for files of ours alone: made 0700 with missing parents, write permission of
 * others taken away, temporary files of a crashed run removed. Refused: a symbolic link (-ELOOP),
 * somebody else's directory (-EPERM), one that another process holds (-EBUSY; held until the
 * descriptor is closed). Logs its own errors. *ret is owned.
 */
int store_open_dir(const char *path, int *ret);

/*
 * Writes a whole file: O_EXCL temporary beside it, O_NOFOLLOW, mode, fsync, rename. Nothing is
 * left behind on failure. Only a regular file is ever replaced: a symbolic link gives -ELOOP, a
 * directory -EISDIR, anything else -EEXIST. Returns 0 or -errno.
 */
int write_file_atomic(const char *path, const void *data, size_t len, int mode);
/* The same without fsync: whole for every reader, but not after a power cut. Waits for no disk. */
int write_file_unsynced(const char *path, const void *data, size_t len, int mode);
