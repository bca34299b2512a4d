/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What a process says of itself, as OpenTelemetry has it: OTEL_SERVICE_NAME and
 * OTEL_RESOURCE_ATTRIBUTES of its environment, and the process context that its SDK publishes in
 * memory (opentelemetry-specification, oteps/profiles/4719-process-ctx.md; payload:
 * opentelemetry-proto, processcontext/v1development). And two variables of our own. Pure: bytes
 * come in, checked text of bounded length comes out.
 */
#pragma once

#include "util.h"

#define OTEL_TEXT_MAX    255
#define OTEL_HEADER      32
#define OTEL_PAYLOAD_MAX 65536 /* larger ones are not read */

/* Ours: the service's name; and, set to "off", "false", "no" or "0", no wish to be profiled. */
#define OTEL_OWN_SERVICE "EBPFPROFILER_SERVICE"
#define OTEL_OWN_SWITCH  "EBPFPROFILER"

/* Valid UTF-8 without control characters; "" when not said. */
struct otel_words {
	char service[OTEL_TEXT_MAX + 1];
	char version[OTEL_TEXT_MAX + 1];
	char instance[OTEL_TEXT_MAX + 1];
	char own_service[OTEL_TEXT_MAX + 1]; /* of our own variable; from the environment only */
	bool opted_out;                      /* likewise */
	/* Of the process context only: threads tell what they work on, and the route's key. */
	bool threads, has_route;
	u8 route;
};

/*
 * The bytes of /proc/PID/environ, which may be cut. A name that an SDK made up for want of one
 * ("unknown_service...") is none. Fills in all of *ret.
 */
void otel_environ(const char *data, size_t len, struct otel_words *ret);

/* Is this the line of /proc/PID/maps of a published context? Where it begins. */
bool otel_maps_line(const char *line, size_t len, u64 *ret_addr);

struct otel_header {
	u64 published_ns; /* 0: it is being written */
	u64 payload;      /* address */
	u32 size;
};

/* Returns 0; -EINVAL for what is no header of a version that we know, -E2BIG. */
int otel_header(const u8 data[OTEL_HEADER], struct otel_header *ret);
/* The payload. Returns 0, or -EINVAL when it is malformed: *ret is then all empty. */
int otel_payload(const u8 *data, size_t len, struct otel_words *ret);
