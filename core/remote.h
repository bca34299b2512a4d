/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. What a server may say of this daemon: whether it profiles, and how long its windows
 * are. Nothing else is ever taken from it. One thread asks, now and then, with the ETag of the
 * last answer; a server that is dead, slow, hostile or wrong changes nothing.
 *
 *	GET URL  ->  200 {"enabled": false, "upload_interval_s": 30}, or 304
 *
 * A key that is missing leaves the matter to the file. An answer with a value of the wrong type or
 * out of range, or that is no JSON object, is refused whole. Other keys are ignored and counted.
 */
#pragma once

#include "util.h"

#define REMOTE_INTERVAL_MIN 10 /* seconds that a server may ask for */
#define REMOTE_INTERVAL_MAX 3600
#define REMOTE_TIMEOUT_NS   (10 * NSEC_PER_SEC)
#define REMOTE_IGNORED_TEXT 128

struct remote_settings {
	bool has_enabled, enabled;
	u32 interval_s; /* 0: not said */
};

struct remote_options {
	const char *url;
	const char *token_file; /* bearer token, read again each time; "": none */
	const char *ca_file;    /* "": the system's */
	u64 poll_ns;    /* between two questions, more or less; the first is asked at once */
	u64 timeout_ns; /* of one; 0: REMOTE_TIMEOUT_NS */
};

struct remote;

/* Strings are copied. Logs its own errors. Owned. */
int remote_new(const struct remote_options *o, struct remote **ret);
/* Ends at once, also in the middle of an answer. NULL ok. */
void remote_free(struct remote *r);
/* A descriptor that is readable while there is something to take. */
int remote_fd(const struct remote *r);
/* The last accepted answer, if it came since the last call. */
bool remote_take(struct remote *r, struct remote_settings *ret);

/*
 * Reads an answer. Returns 0; *ret_ignored is then the number of keys that mean nothing here, and
 * `text` names some of them. -EINVAL: refused, and `text` says why. Both are clean text.
 */
int remote_parse(const char *json, size_t len, struct remote_settings *ret, u32 *ret_ignored,
		 char *text, size_t size);
