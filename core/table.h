/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. An unwind table ready for the BPF side: leaves, page index and rule dictionary in
 * the layout of bpf/abi.h, made from compiled CFI. Position-free: core/slabs.c gives it a place.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct cfi;

struct table {
	u64 base;   /* ELF virtual address of the first page; a multiple of the page size */
	u32 shift;  /* page size as a power of two */
	u32 npages;
	u32 *leaf_at;  /* per page: offset of its leaf in `leaves`, a multiple of SLAB_GRAIN; UINT32_MAX: none */
	u32 *leaf_len; /* bytes */
	u8 *leaves;
	u32 leaves_len;
	struct unwind_rule *rules; /* slots; a wide rule takes two */
	u32 nslots;
	/* For people. */
	u32 nrows;     /* stored, block starts included */
	u64 unsupported; /* rows whose rule is UNWIND_CFA_UNSUPPORTED */
};

/* Packs a compiled file. Returns 0, -ENOMEM, -E2BIG when it cannot be expressed (never seen). */
int table_pack(const struct cfi *cfi, struct table *ret);
void table_fini(struct table *t);
/* Bytes it takes in the slabs: leaves, index, dictionary. */
u64 table_bytes(const struct table *t);
/*
 * The rule at an ELF address as the BPF side will find it (own search, for tests and `tables`).
 * *wide may be NULL. False: no row covers it.
 */
bool table_find(const struct table *t, u64 addr, struct unwind_rule *rule, struct unwind_wide *wide);

/*
 * The table as bytes for the disk cache and back. Reading checks magic, version, checksum and every
 * offset and count inside, so that a damaged or hostile cache file gives -EINVAL, never a bad table.
 */
int table_save(const struct table *t, u8 **ret, size_t *ret_len);
int table_load(const u8 *data, size_t len, struct table *ret);
