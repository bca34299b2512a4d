/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. An ELF image as it lies in a process's memory: where it was loaded, its exported
 * symbols by name, its functions by address. No file is needed. Memory comes through a callback
 * and may say anything: every look-up makes a bounded number of reads and takes no memory but the
 * filter below.
 */
#pragma once

#include "util.h"

#define ELFMEM_PAGE         4096
#define ELFMEM_SEGMENTS_MAX 16
#define ELFMEM_FILTER_MAX   2048 /* words; 16 KiB */

struct elfmem_source {
	int (*read)(void *arg, u64 addr, void *dst, size_t len); /* 0 or negative */
	void *arg;
};

struct elfmem_segment {
	u64 lo, hi; /* addresses */
	bool exec;
};

struct elfmem {
	u64 bias;   /* address - ELF virtual address */
	u64 lo, hi; /* encloses the executable segments; lo == hi: there are none */
	u16 machine;
	u16 nsegments;
	struct elfmem_segment segment[ELFMEM_SEGMENTS_MAX];
	/* Of the first page: what the file's begins with, too. */
	u64 head_hash;
	u32 head_len;
	/* Addresses; 0: not there. */
	u64 symtab, strtab, gnu_hash, sysv_hash, eh_frame_hdr;
	u64 strtab_size, eh_frame_hdr_size;
	u64 relocs[2], relocs_size[2]; /* Elf64_Rela; the second: those of the PLT */
	u64 tls_size, tls_align;       /* of the thread-local block; size 0: none */
	bool executable;               /* the program itself, no library */
	/* Of the GNU hash table. */
	u32 nbuckets, first_symbol, filter_words, filter_shift;
	u64 *filter; /* owned; NULL: too large to keep, or none */
};

struct elfmem_symbol {
	u64 value; /* ELF virtual address, or the offset in the thread-local block */
	u64 size;
	u32 index; /* in .dynsym */
	bool tls;
	bool absolute; /* not moved by the bias */
};

/*
 * The 64-bit image whose file offset 0 lies at base. Returns 0; -ENOEXEC; -EFAULT; -ENOMEM. What
 * follows the program headers may be missing or broken: then look-ups find nothing. *ret is to be
 * ended with elfmem_fini().
 */
int elfmem_open(const struct elfmem_source *src, u64 base, struct elfmem *ret);
void elfmem_fini(struct elfmem *m);
/* False: .dynsym has no such symbol. Reads nothing. */
bool elfmem_may_have(const struct elfmem *m, const char *name);
/* A defined symbol of .dynsym: 0, -ENOENT, -EFAULT. */
int elfmem_symbol(const struct elfmem_source *src, const struct elfmem *m, const char *name,
		  struct elfmem_symbol *ret);
/* Address range of the entry of .eh_frame that covers addr: 0, -ENOENT, -EFAULT. */
int elfmem_function(const struct elfmem_source *src, const struct elfmem *m, u64 addr, u64 *lo,
		    u64 *hi);
