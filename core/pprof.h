/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. One profile of a window as gzip pprof. Schema: core/profile.proto (field numbers
 * of github.com/google/pprof proto/profile.proto), by protobuf-c and zlib.
 */
#pragma once

#include "util.h"

struct Pprof__Profile;
struct window;
struct profile;

struct pprof_options {
	bool names; /* write functions of native frames; false: bare, for symbolizing servers */
	bool time_is_end; /* Coroot reads time_nanos as the window's end; all others as its start */
	u64 period_ns;    /* of one cpu sample */
	bool strip_homes; /* of files below home directories only names are written */
	const char *host;
	bool plain_pid;
	const u8 *pid_key; /* 32 bytes, for the keyed hash of pids unless plain_pid */
	/* NAME=VALUE pairs that are added to every sample as string labels; may be NULL. */
	const char *const *labels;
	u32 nlabels;
	/* Lines for people, e.g. version, kernel, rate, losses; may be NULL. */
	const char *const *comments;
	u32 ncomments;
};

/*
 * Encodes window.profiles[i]. *ret is an owned buffer of *ret_len bytes. Returns 0, -ENOMEM, or
 * -E2BIG when it would be over 1 GiB before compression.
 * Samples whose count is 0 are left out; a profile without samples is still a valid file.
 */
int pprof_encode(const struct window *w, const struct profile *p, const struct pprof_options *o,
		 u8 **ret, size_t *ret_len);
/*
 * Several profiles of one window, of different types, as one: each sample has a value for every
 * type, 0 for those of the others. The first one names the default type and the main binary. n is
 * 1..PPROF_PROFILES_MAX.
 */
#define PPROF_PROFILES_MAX 8
int pprof_encode_all(const struct window *w, const struct profile *const *p, u32 n,
		     const struct pprof_options *o, u8 **ret, size_t *ret_len);
/*
 * Root-first folded lines of one profile, to f: "a;b;c N", where N is what flame graphs draw: the
 * number of samples, or, of a type that counts waits, nanoseconds. Returns 0 or -errno.
 */
int pprof_write_folded(const struct window *w, const struct profile *p, FILE *f);
/* Whether profiles carry a label of that name with a meaning of ours. */
bool pprof_own_label(const char *name);
/* A message as gzip, for who knows the schema. Returns 0, -ENOMEM, or -E2BIG as pprof_encode(). */
int pprof_pack(const struct Pprof__Profile *pb, u8 **ret, size_t *ret_len);
