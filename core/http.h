/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. One server, by libcurl: requests to it, one at a time, with what it asks for to know
 * us. Nothing that it says makes a request last longer than its timeout, keep more than some
 * kilobytes, or go anywhere but to the configured URL. One thread uses it; any may wake it.
 */
#pragma once

#include "envelope.h"

struct http;

/* Strings may be NULL or "", but for url; they are copied. Files are read again for each request. */
struct http_options {
	const char *what; /* it is for, in messages: "upload"; not copied */
	const char *url;
	const char *token_file;           /* bearer token */
	const char *user, *password_file; /* basic authentication */
	const char *headers;              /* more of them, separated by commas; see headers.h */
	const char *headers_file;         /* one a line */
	const char *ca_file, *cert_file, *key_file;
	const char *proxy;
	bool direct;    /* through no proxy, whatever the environment names */
	bool http2;     /* and nothing else; in plain text without being asked */
	u64 timeout_ns; /* whole of one request */
};

#define HTTP_ETAG_MAX 200
#define HTTP_BODY_MAX (64u << 10) /* of an answer */

/* What came back. */
struct http_reply {
	struct answer answer;         /* status 0: none came */
	bool whole;                   /* the answer came to its end */
	size_t body_len;              /* of all of its body */
	u64 retry_after_ns;           /* 0: not said; at most an hour */
	bool abandoned;               /* the caller wanted no more of it */
	char etag[HTTP_ETAG_MAX + 1]; /* a quoted word of visible ASCII (RFC 9110, 8.8.3), or "" */
	char error[256];              /* when it is not whole */
};

/* Returns 0, -EINVAL for an URL that is none, -ENOMEM, -EIO. Logs. */
int http_new(const struct http_options *o, struct http **ret);
void http_free(struct http *h);
/* The URL for people, without user and password; lives as long as h. */
const char *http_shown(const struct http *h);
/*
 * One request. end_ns(arg) is asked while it lasts: the time (CLOCK_MONOTONIC) at which it is to be
 * given up, UINT64_MAX for none.
 */
void http_post(struct http *h, const struct envelope *e, u64 (*end_ns)(void *arg), void *arg,
	       struct http_reply *ret);
/* The same, a GET of the URL itself; etag "": none is known. body gets the answer's. */
void http_get(struct http *h, const char *etag, char body[HTTP_BODY_MAX], u64 (*end_ns)(void *arg),
	      void *arg, struct http_reply *ret);
/* Until then (CLOCK_MONOTONIC), a wake, or about a minute. */
void http_wait(struct http *h, u64 then);
void http_wake(struct http *h);

/* --- for tests -------------------------------------------------------------------------------- */

/*
 * What a server says in grpc-message, percent-encoded (gRPC over HTTP/2, "Status-Message"), as clean
 * text. What is no escape stays as it is.
 */
void http_message(const char *s, size_t len, char *dst, size_t size);
