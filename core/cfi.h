/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. The CFI compiler: bytes of .eh_frame and .debug_frame in, rows "from this address
 * on, this rule" out, for x86-64 and arm64. No I/O; memory and time are bounded by struct
 * cfi_limits whatever the bytes say. Registers are DWARF numbers.
 */
#pragma once

#include "htab.h"

enum cfi_arch { CFI_X86_64, CFI_ARM64 };

/* What was skipped, and what a row could not express: counter, and what it tells a person. */
#define CFI_NOTE_LIST(X)                                                                    \
	X(none, "")                                                                         \
	X(section_cut, "entry runs past its section; the rest of the section was not read") \
	X(section_size, "section over 2 GiB; the rest was not read")                        \
	X(cie_missing, "function points to something that is not a CIE")                    \
	X(cie_version, "CIE version or address size unknown")                               \
	X(cie_augmentation, "CIE augmentation unknown")                                     \
	X(cie_encoding, "pointer encoding that cannot be resolved")                         \
	X(cie_register, "return address column is not a possible register")                 \
	X(cie_factor, "CIE with code alignment 0")                                          \
	X(cie_broken, "CIE cut short, or with instructions that make no sense")             \
	X(fde_broken, "function entry or instruction cut short")                            \
	X(fde_range, "function with a negative or wrapping range")                          \
	X(fde_empty, "function of length 0")                                                \
	X(fde_outside, "function outside executable segments")                              \
	X(fde_left_out, "function that moves the stack pointer to another stack")           \
	X(fde_duplicate, "second entry for one function start")                             \
	X(op_unknown, "unknown instruction")                                                \
	X(op_advance, "instruction moves the location backwards or wraps it")               \
	X(op_stack, "remember_state deeper than 16, or restore_state without it")           \
	X(op_number, "number over 64 bits")                                                 \
	X(limit_fdes, "functions over the limit")                                           \
	X(limit_rows, "functions over the limit of rows")                                   \
	X(limit_rules, "rows over the limit of distinct rules")                             \
	X(limit_ops, "instructions over the limit; the rest of the file was not read")      \
	X(row_cfa, "rows: frame address not expressible")                                   \
	X(row_sp, "rows: stack pointer kept apart from the frame address")                  \
	X(row_ra, "rows: return address not expressible")                                   \
	X(row_fp, "rows: frame pointer not expressible, the rest of the row is kept")       \
	X(row_offset, "rows: offset over 32 bits")

enum cfi_note {
#define X(name, text) CFI_NOTE_##name,
	CFI_NOTE_LIST(X)
#undef X
		CFI_NOTE_MAX,
};

/* Where the frame address (CFA: the caller's stack pointer) comes from. */
enum cfi_cfa {
	CFI_CFA_NONE,        /* no entry covers this address: try frame pointers */
	CFI_CFA_END,         /* return address undefined: outermost frame */
	CFI_CFA_UNSUPPORTED, /* reason says why; the walk ends here */
	CFI_CFA_SIGNAL,      /* kernel's signal frame at sp: x86-64 ucontext, arm64 rt_sigframe */
	CFI_CFA_REG,         /* reg + off */
	CFI_CFA_DEREF,       /* *(reg + off) + add */
	CFI_CFA_SCALED,      /* *(reg + index * scale + off) + add */
	CFI_CFA_PLT,         /* x86-64: reg + off + ((pc & 15) >= add ? 8 : 0) */
	CFI_CFA_MAX,
};

/* Where the caller's frame pointer (rbp, x29), rbx or the return address comes from. */
enum cfi_from {
	CFI_FROM_LOST,  /* unknown; fine until a rule needs it. Never the return address */
	CFI_FROM_SAME,  /* still in its register. Never the return address */
	CFI_FROM_CFA,   /* *(CFA + off) */
	CFI_FROM_REG,   /* in reg, which only the innermost frame and signal frames know */
	CFI_FROM_DEREF, /* *(reg + off) */
	CFI_FROM_MAX,
};

#define CFI_RULE_SIGNAL_FRAME (1 << 0) /* pc is that of an interrupted instruction, not a call */
#define CFI_RULE_RA_SIGNED    (1 << 1) /* arm64: return address carries a signature */

/* Fields that a kind does not name are 0, so that equal rules are equal bytes. */
struct cfi_rule {
	u8 cfa; /* enum cfi_cfa; below CFI_CFA_REG only `reason` and `flags` follow */
	u8 cfa_reg;
	u8 cfa_index;
	u8 cfa_scale;
	u8 fp; /* enum cfi_from */
	u8 fp_reg;
	u8 ra; /* enum cfi_from */
	u8 ra_reg;
	u8 flags;
	u8 reason; /* enum cfi_note of what is lost or unsupported */
	u8 bx;     /* x86-64, if cfi.follows_bx: enum cfi_from LOST, SAME or CFA */
	u8 pad;
	s32 cfa_off;
	s32 cfa_add;
	s32 fp_off;
	s32 ra_off;
	s32 bx_off;
};

/* The rule holds from base + pc up to the next row. The last row is always of kind NONE. */
struct cfi_row {
	u32 pc;
	u32 rule; /* index into rules; 0 is CFI_CFA_NONE */
};

struct cfi_limits {
	u32 fdes;
	u32 rows;
	u32 rules; /* NONE counts */
	u64 ops;   /* instructions, expression operators and entries, over all sections */
};

/* A packed row has 16 bits for its rule; 4 M rows are 32 MiB. */
#define CFI_LIMITS_DEFAULT                                                             \
	{                                                                              \
		.fdes = 1 << 20, .rows = 4 << 20, .rules = UINT16_MAX, .ops = 64 << 20 \
	}

struct cfi_section {
	const u8 *data; /* borrowed until cfi_run() has returned */
	size_t size;
	u64 vaddr;
	bool debug_frame; /* else .eh_frame */
	bool unsized;     /* size is only an upper bound: stop at the first zero length */
};

#define CFI_SECTIONS_MAX 2

struct cfi_fde;

struct cfi {
	/* Results; owned, sorted by pc, neighbours differ. */
	u64 base; /* text_lo */
	struct cfi_row *rows;
	struct cfi_rule *rules;
	u32 nrows, nrules;
	u64 note[CFI_NOTE_MAX];
	u64 nfdes;    /* entries found, good or bad */
	u64 raw_rows; /* before equal neighbours were merged */
	/*
	 * Some frame address is based on rbx, so all rows say where the caller's is. So far only
	 * ld.so does that (lazy binding), and what it calls meanwhile lies in ld.so too; other
	 * files save the rows.
	 */
	bool follows_bx;
	/* Work in progress. */
	enum cfi_arch arch;
	struct cfi_limits limits;
	u64 ops;
	u32 text_size;
	u32 nsections;
	struct cfi_section section[CFI_SECTIONS_MAX];
	const u64 *left_out;
	u32 nleft_out;
	struct cfi_fde *fdes;
	u32 fdes_n, fdes_cap;
	u32 rows_cap, rules_cap;
	struct htab by_rule;
};

/*
 * [text_lo, text_hi) encloses the executable segments, as ELF virtual addresses; functions outside
 * are skipped, and so is what lies over 4 GiB above text_lo.
 */
void cfi_init(struct cfi *c, enum cfi_arch arch, u64 text_lo, u64 text_hi,
	      const struct cfi_limits *limits);
void cfi_fini(struct cfi *c);
/*
 * Lists the functions of a section; at most CFI_SECTIONS_MAX, before cfi_run(). For a function in
 * two sections the one added first counts. Returns 0, -ENOMEM or -E2BIG (too many sections); bad
 * content is no error, see note[].
 */
int cfi_add(struct cfi *c, const struct cfi_section *section);
/*
 * Functions that begin at one of n addresses, in rising order, are gaps whatever their entries say;
 * borrowed until cfi_run() has returned.
 */
void cfi_leave_out(struct cfi *c, const u64 *starts, u32 n);
/*
 * Compiles what was added, once. Functions are taken by start address; each ends at its end or at
 * the next one's start, whichever comes first, as a search of .eh_frame_hdr sees it; of those with
 * one start the first sound one counts. An unsound function leaves a gap. Returns 0 or -ENOMEM.
 */
int cfi_run(struct cfi *c);
/* The rule at an address, never NULL; borrowed until cfi_fini(). */
const struct cfi_rule *cfi_find(const struct cfi *c, u64 pc);
/* The note's name and its sentence; static strings. */
const char *cfi_note_name(enum cfi_note note);
const char *cfi_note_text(enum cfi_note note);
