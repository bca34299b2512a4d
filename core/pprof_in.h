/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: line. A pprof file, ours or anybody's, as the message that it is: unpacked into one bounded
 * arena, so that a small file cannot ask for much memory. In: its bytes, gzip or not. Out: a
 * message whose indices and ids its reader still has to check, and may change as it likes.
 */
#pragma once

#include "arena.h"

struct Pprof__Profile;

/* All zero is one that was not opened. */
struct pprof_in {
	struct Pprof__Profile *pb;
	struct arena arena;
	size_t left;  /* of max_memory */
	bool refused; /* something found no room */
};

/*
 * Opens a file of at most max_bytes, packed and unpacked. Returns 0, -EBADMSG when it is no profile
 * with sample types, -E2BIG over max_bytes or max_memory, -ENOMEM. To be ended in any case.
 */
int pprof_in_open(struct pprof_in *in, const void *data, size_t len, size_t max_bytes,
		  size_t max_memory);
void pprof_in_fini(struct pprof_in *in);
/* Memory beside it, under the same bound; NULL: there is no more. Lives as long. Not zeroed. */
void *pprof_in_alloc(struct pprof_in *in, size_t size);
