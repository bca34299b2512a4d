// SPDX-License-Identifier: Apache-2.0
/*
 * A stripped file and the debug file that was found for it, one behind the other: the first four
 * bytes say where the second begins. Also the input as a profile that is to be symbolized.
 */
#include "core/elfsym.h"
#include "core/symbolize.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct symbolize_options o = { .root = "/nonexistent" };
	struct elfsym_source src = { .fd = -1 }, debug = { .fd = -1 };
	struct elfsym_table *t = NULL;
	struct symbolize_figures f;
	struct elfsym_link link;
	u8 *out = NULL;
	size_t len;
	u32 split;

	if (size < 4)
		return 0;
	memcpy(&split, data, sizeof(split));
	split %= (u32)(size - 3);
	src.mem = data + 4;
	src.size = split;
	debug.mem = data + 4 + split;
	debug.size = size - 4 - split;
	if (elfsym_debuglink(&src, &link))
		assert(*link.name && !strchr(link.name, '/'));
	elfsym_has_symtab(&debug);
	if (!elfsym_table(&src, &debug, 1u << 20, &t)) {
		assert(elfsym_table_bytes(t) <= 1u << 20);
		elfsym_table_free(t);
	}
	if (!symbolize(data + 4, size - 4, &o, &out, &len, &f))
		free(out);
	return 0;
}
