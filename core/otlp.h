/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. A pprof message as an export request of OpenTelemetry's profiles signal, in the
 * dictionary form of proto 1.11. The signal is alpha: what changes with its next release, changes
 * here and in envelope.proto.
 */
#pragma once

#include "pprof_in.h"

#define OTLP_ID 16

/* What describes where a profile comes from; texts are valid UTF-8, "" is left out. */
struct otlp_source {
	const char *service, *container, *host;
	u8 id[OTLP_ID]; /* of the profile; with each further type of it the last byte is one more */
};

/*
 * The message must be whole (pprof_cut.h). One profile per sample type, since the signal has one
 * type in each. *ret is an owned buffer. Returns 0, -ENOMEM (also for what finds no room in the
 * bound of pprof_in), or -E2BIG when it is over max bytes; *ret_len is its length then, too.
 */
int otlp_pack(struct pprof_in *in, const struct otlp_source *from, size_t max, u8 **ret,
	      size_t *ret_len);
