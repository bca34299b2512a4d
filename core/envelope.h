/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. What each kind of server wants around a profile, and what its answers mean. In: a
 * profile (gzip pprof and where it comes from), an answer. Out: path, headers and body of one HTTP
 * POST; a verdict. No network here.
 *
 *	pprof       URL/v1/profiles?service.name=...   Coroot's
 *	otel-pprof  URL/v1/pprof                       OpenTelemetry collector, pprofreceiver
 *	pyroscope   URL/push.v1.PusherService/Push     Grafana Pyroscope, Connect unary
 *	parca       URL/api/profiles/writeraw          Parca, JSON gateway
 *	otlp        URL/v1development/profiles         OpenTelemetry, HTTP
 *	otlp-grpc   URL/opentelemetry....Export        OpenTelemetry, gRPC unary
 */
#pragma once

#include "util.h"

struct profile; /* spool.h */

enum protocol {
	PROTOCOL_PPROF,
	PROTOCOL_OTEL_PPROF,
	PROTOCOL_PYROSCOPE,
	PROTOCOL_PARCA,
	PROTOCOL_OTLP,
	PROTOCOL_OTLP_GRPC,
	PROTOCOL_MAX,
};

#define ENVELOPE_PROTOCOLS "pprof|otel-pprof|pyroscope|parca|otlp|otlp-grpc" /* in that order */

/* By name, one of ENVELOPE_PROTOCOLS; false for any other. */
bool envelope_protocol(const char *name, enum protocol *ret);
/* Does the server read a profile's time as the window's end? All others: its start. */
bool envelope_time_is_end(enum protocol p);
/* Does only the profile itself tell the server which service it is of (label service.name)? */
bool envelope_wants_service_label(enum protocol p);

#define ENVELOPE_HEADERS 4

struct envelope {
	char *path;                            /* path and query, behind the server's URL; owned */
	const char *headers[ENVELOPE_HEADERS]; /* "NAME: VALUE", NULL where there are no more */
	const u8 *body;                        /* memory, or the profile's own */
	size_t len;
	u8 *memory; /* owned */
};

/*
 * host: name of this one. To be ended in any case. Returns 0, -ENOMEM, -EBADMSG when the profile is
 * none that can be packed so, or -E2BIG when it is more than such a server takes at once.
 */
int envelope_make(enum protocol protocol, const struct profile *p, const char *host,
		  struct envelope *ret);
void envelope_fini(struct envelope *e);

/*
 * Two profiles of the samples of one, half of them each; service, container, type and start are
 * the same, seq is 0. Returns 0, -ENOENT when it has one sample or none, -EBADMSG, -ENOMEM.
 */
int envelope_split(const struct profile *p, struct profile *ret[2]);

enum envelope_verdict {
	ENVELOPE_ACCEPTED,
	ENVELOPE_REFUSED,   /* for good: this profile will never be taken */
	ENVELOPE_TOO_LARGE, /* in parts it may be */
	ENVELOPE_RETRY,
};

#define ANSWER_BODY 4096

/* As much as is kept of an answer. */
struct answer {
	long status; /* 0: none */
	char type[64];
	u8 body[ANSWER_BODY];
	size_t body_len;
	long grpc_status; /* -1: none */
	char grpc_message[256];
};

struct judgement {
	enum envelope_verdict verdict;
	u64 rejected;  /* profiles that were not taken of an accepted request */
	char why[512]; /* for people: clean text, "" when there is nothing to say */
};

/*
 * How long a gRPC server wants to be left alone, from the header grpc-status-details-bin (base64,
 * padded or not); 0: it does not say. Not bounded: it may be centuries.
 */
u64 envelope_retry_delay(const char *details, size_t len);
void envelope_judge(enum protocol protocol, const struct answer *a, struct judgement *ret);
