/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. Which interpreters run on this host, and whether their stacks can be taken: all
 * processes are looked at once, as the daemon does when a sample hits them. For `doctor`.
 */
#pragma once

#include "util.h"

struct config;

/*
 * One line per program, version and verdict; or ",\"runtimes\":[...]" for the inside of a JSON
 * object. config: which are switched on; NULL: all. Returns 0 or -errno (logged).
 */
int census_print(const struct config *config, FILE *out, bool json);
/* The same by the usual configuration file, or its defaults; without the rights for it, says so. */
void census_report(FILE *out, bool json);
