// SPDX-License-Identifier: Apache-2.0
/* Bytes of a file through the ELF reader: headers, notes, symbols, look-ups. */
#include "core/elfsym.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct elfsym_source src = { .fd = -1, .mem = data, .size = size };
	struct elfsym_table *t = NULL;
	struct elfsym_info info;
	u32 i;

	if (!elfsym_info(&src, &info)) {
		assert(info.nsegments > 0 && info.id_len <= ELFSYM_ID_MAX);
		elfsym_info_fini(&info);
	}
	if (elfsym_table(&src, NULL, 1u << 20, &t))
		return 0;
	assert(elfsym_table_bytes(t) <= 1u << 20);
	/* Addresses that the input itself names. */
	for (i = 0; i + 8 <= size && i < 8192; i += 8) {
		const char *name;
		u64 addr;

		memcpy(&addr, data + i, sizeof(addr));
		name = elfsym_lookup(t, addr);
		assert(!name || strlen(name) < 3 * 4096);
	}
	elfsym_table_free(t);
	return 0;
}
