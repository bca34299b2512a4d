// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes as an ELF image in memory at BASE, and as a file that is asked for names: opening, symbols,
 * sections, functions. Everything is bounded in reads.
 */
#include "core/elfmem.h"
#include "core/elfname.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

#define BASE      0x10000ull
#define READS_MAX 10000

static const char *const names[] = { "", "a", "second", "_DYNAMIC", ".text", ".dynsym", "main" };

struct memory {
	const u8 *data;
	size_t size;
	u32 reads;
};

static int read_memory(void *arg, u64 addr, void *dst, size_t len)
{
	struct memory *m = arg;

	assert(++m->reads < READS_MAX);
	/* Its last page reads as zeros. */
	if (addr < BASE || addr - BASE > m->size || len > m->size - (addr - BASE) + ELFMEM_PAGE)
		return -EFAULT;
	memset(dst, 0, len);
	memcpy(dst, m->data + (addr - BASE), MIN(len, m->size - (addr - BASE)));
	return 0;
}

static void as_memory(const u8 *data, size_t size)
{
	struct memory mem = { data, size, 0 };
	const struct elfmem_source src = { read_memory, &mem };
	struct elfmem_symbol symbol;
	struct elfmem m;
	u64 lo, hi, addr;
	size_t i;

	if (elfmem_open(&src, BASE, &m))
		return;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		mem.reads = 0;
		elfmem_symbol(&src, &m, names[i], &symbol);
	}
	/* Addresses that the input itself names. */
	for (i = 0; i + 8 <= size && i < 512; i += 8) {
		memcpy(&addr, data + i, sizeof(addr));
		mem.reads = 0;
		if (!elfmem_function(&src, &m, BASE + addr, &lo, &hi))
			assert(lo <= BASE + addr && BASE + addr < hi);
	}
	elfmem_fini(&m);
}

static void as_file(const u8 *data, size_t size)
{
	const struct elfsym_source src = { .fd = -1, .mem = data, .size = size };
	struct elfname_symbol symbol;
	struct elfname *e;
	u64 addr, len;
	size_t i;

	if (elfname_open(&src, &e))
		return;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		elfname_section(e, names[i], &addr, &len);
		elfname_symbol(e, &src, names[i], &symbol);
	}
	elfname_free(e);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	as_memory(data, size);
	as_file(data, size);
	return 0;
}
