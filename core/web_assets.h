/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: edge. Files of the page, page/, as they are. */
#pragma once

#include "util.h"

struct web_asset {
	const char *path, *type;
	const u8 *data;
	size_t len;
};

/* NULL: there is none of this path. Static. */
const struct web_asset *web_asset(const char *path);
