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
	u64 *starts = NULL;
	u32 i, nstarts;

	if (size < sizeof(text))
		return 0;
	memcpy(&text, data, sizeof(text));
	pclntab_names(data + sizeof(text), size - sizeof(text), &text, &n);
	for (i = 0; i < n.n; i++)
		assert(n.v[i].size && n.v[i].name < n.len && n.text[n.len - 1] == '\0');
	elfsym_names_fini(&n);
	if (!pclntab_switchers(data + sizeof(text), size - sizeof(text), &text, &starts, &nstarts))
		for (i = 1; i < nstarts; i++)
			assert(starts[i] > starts[i - 1]);
	free(starts);
	return 0;
}
