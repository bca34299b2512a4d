// SPDX-License-Identifier: Apache-2.0
/* Go's table as a file has it; the first 16 bytes say where .text and the entry are. */
#include "core/pclntab.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct elfsym_names n = { 0 };
	struct pclntab_text text;
	u32 i;

	if (size < sizeof(text))
		return 0;
	memcpy(&text, data, sizeof(text));
	pclntab_names(data + sizeof(text), size - sizeof(text), &text, &n);
	for (i = 0; i < n.n; i++)
		assert(n.v[i].size && n.v[i].name < n.len && n.text[n.len - 1] == '\0');
	elfsym_names_fini(&n);
	return 0;
}
