// SPDX-License-Identifier: Apache-2.0
/*
 * What a process may write where its JIT's names are looked for, and names that want to be
 * demangled. The input's first byte says how the rest is cut into pieces.
 */
#include "core/demangle.h"
#include "core/perfmap.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char text[DEMANGLE_IN_MAX + 2], out[256];
	size_t piece, i, n;
	struct perfmap *m;

	if (size < 2)
		return 0;
	m = perfmap_new(1u << 16);
	if (!m)
		return 0;
	piece = data[0] ? data[0] : size;
	for (i = 1; i < size; i += n) {
		n = MIN(piece, size - i);
		if (perfmap_feed(m, (const char *)data + i, n))
			break;
		perfmap_lookup(m, data[i]);
	}
	perfmap_lookup(m, 0x1000);
	perfmap_free(m);
	n = MIN(size - 1, sizeof(text) - 1);
	memcpy(text, data + 1, n);
	text[n] = '\0';
	demangle(text, out, sizeof(out));
	demangle_hidden(text);
	return 0;
}
