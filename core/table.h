/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. An unwind table ready for the BPF side: leaves, page index and rule dictionary in
 * the layout of bpf/abi.h, made from compiled CFI. Position-free: core/slabs.c gives it a place.
 */
#pragma once

#include "util.h"
#include "bpf/abi.h"

struct cfi;

/* Raised when packing, layout or struct unwind_rule change: old cache files then do not count. */
#define TABLE_VERSION 5

/* The page index has to fit a slab. */
#define TABLE_PAGES_MAX (SLAB_BYTES / sizeof(u32))
#define TABLE_SLOTS_MAX 65535
#define TABLE_SHIFT_MIN 8 /* with a row at each byte such a page still fits a leaf */
#define TABLE_SHIFT_MAX 16

/* Alignment padding between functions, up to this many bytes, gets the rule before it. */
#define TABLE_BRIDGE_MAX 15
/* Bytes without any entry from which on frame pointers are the rule, not a guess. */
#define TABLE_WITHOUT_CFI_MIN 65536

struct table {
	u64 base;   /* ELF virtual address of the first page; a multiple of the page size */
	u32 shift;  /* page size as a power of two */
	u32 npages; /* 0: no rows at all */
	/* Per page: offset of its leaf in `leaves`, a multiple of SLAB_GRAIN; UINT32_MAX: none. */
	u32 *leaf_at;
	u32 *leaf_len; /* bytes; 0: none */
	u8 *leaves;
	u32 leaves_len;
	struct unwind_rule *rules; /* slots; a wide rule takes two; slot 0 is UNWIND_CFA_NONE */
	u32 nslots;
	/* For people. */
	u32 nrules;      /* distinct, NONE among them */
	u32 nrows;       /* stored: with one more for each page that starts inside a row */
	u32 nmerged;     /* rows after merging and bridging */
	u64 unsupported; /* of nmerged: rule is UNWIND_CFA_UNSUPPORTED */
};

/* Packs a compiled file. Returns 0, -ENOMEM, -E2BIG when it cannot be expressed (never seen). */
int table_pack(const struct cfi *cfi, struct table *ret);
void table_fini(struct table *t);
/* Bytes it takes in the slabs: leaves, index, dictionary. */
u64 table_bytes(const struct table *t);
/*
 * The rule at an ELF address as the BPF side will find it (own search, for tests and `tables`).
 * wide may be NULL; it is zeros when the rule has none. False: no row covers the address; *rule is
 * then UNWIND_CFA_NONE.
 */
bool table_find(const struct table *t, u64 addr, struct unwind_rule *rule,
		struct unwind_wide *wide);

/*
 * The table as bytes for the disk cache and back; *ret is owned. Reading checks magic, version,
 * checksum (CRC-32 at byte TABLE_CRC_AT, taken with zeros there) and every offset and count inside,
 * so that a damaged or hostile cache file gives -EINVAL, never a bad table. Both may give -ENOMEM.
 */
#define TABLE_CRC_AT 12
int table_save(const struct table *t, u8 **ret, size_t *ret_len);
int table_load(const u8 *data, size_t len, struct table *ret);
