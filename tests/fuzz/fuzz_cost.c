// SPDX-License-Identifier: Apache-2.0
/* Any text as what a daemon says that it costs: refused, or shown in full and clean. */
#include "core/cost.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char *text = strndup((const char *)data, size), *shown = NULL;
	struct cost c;
	size_t len;
	FILE *f;

	assert(text);
	if (!cost_parse(text, &c)) {
		assert(c.nprograms <= COST_PROGRAMS_MAX);
		f = open_memstream(&shown, &len);
		assert(f);
		cost_print(&c, f);
		cost_print_json(&c, f);
		fclose(f);
		assert(!strchr(shown, '\x1b'));
		free(shown);
	}
	free(text);
	return 0;
}
