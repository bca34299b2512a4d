/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole world of a runtime's author. A runtime is a folder beside this file; it registers
 * itself and nothing else needs an edit. It says whether a process is its own (detect), proves its
 * offsets in this very process (self_check), gives the walk of its stack as data (recipe), and
 * turns what the walk kept into frames (frames), or names code made at run time (resolve).
 *
 * An unwinder never allocates, logs, opens files, makes system calls or knows a pid: its state is a
 * zeroed block of state_size bytes without pointers, the process is read through struct target.
 * So all of it runs over recordings as well. Everything read is hostile: check, bound, refuse.
 */
#pragma once

#include "bpf/recipe_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What came of asking an unwinder: name, and the sentence that people read. */
#define VERDICT_LIST(X)                                                                     \
	X(OK, "ok")                                                                         \
	X(IDLE, "no frame of the runtime on this stack")                                    \
	X(NOT_MINE, "another runtime")                                                      \
	X(OFF, "switched off in the configuration")                                         \
	X(VERSION, "this version is not supported")                                         \
	X(NO_SYMBOL, "a symbol that is needed has been stripped")                           \
	X(BAD_LAYOUT, "the runtime's structures are not where this version has them")       \
	X(NOT_READY, "the runtime has not finished starting")                               \
	X(FAULT, "memory could not be read")                                                \
	X(TORN, "the list does not end in the runtime's first frame; it was being changed") \
	X(BAD_FRAME, "a frame leads to something that is no code")

enum verdict {
#define X(name, text) UNWIND_##name,
	VERDICT_LIST(X)
#undef X
		UNWIND_VERDICT_MAX,
};

struct version {
	uint16_t major, minor, patch;
};

/* --- the process, live or recorded ---------------------------------------------------------- */

struct target;

enum target_arch { TARGET_X86_64, TARGET_ARM64 };

enum target_arch target_arch(const struct target *t);
/*
 * All len bytes (at most 64 KiB) or -EFAULT; any address is fine. These are macros so that a
 * recording that lacks a read can name it: by the function and the expression that gives the
 * address, so let that say which field it is (tstate + l->tstate_frame).
 */
#define target_read(t, addr, dst, len) target_read_for((t), (addr), (dst), (len), __func__, #addr)
#define target_u64(t, addr, ret)       target_u64_for((t), (addr), (ret), __func__, #addr)
#define target_u32(t, addr, ret)       target_u32_for((t), (addr), (ret), __func__, #addr)
/*
 * Bytes at addr, at most size - 1, up to a NUL or len of them; always terminated. For text: what
 * is no text is replaced when it is shown. Returns the length or -EFAULT.
 */
#define target_string(t, addr, len, dst, size) \
	target_string_for((t), (addr), (len), (dst), (size), __func__, #addr)

int target_read_for(struct target *t, uint64_t addr, void *dst, size_t len, const char *func,
		    const char *field);
int target_string_for(struct target *t, uint64_t addr, size_t len, char *dst, size_t size,
		      const char *func, const char *field);

static inline int target_u64_for(struct target *t, uint64_t addr, uint64_t *ret, const char *func,
				 const char *field)
{
	return target_read_for(t, addr, ret, sizeof(*ret), func, field);
}

static inline int target_u32_for(struct target *t, uint64_t addr, uint32_t *ret, const char *func,
				 const char *field)
{
	return target_read_for(t, addr, ret, sizeof(*ret), func, field);
}

/* A mapped ELF image; i counts from 0 in address order, 0 need not be the executable. */
struct target_module {
	const char *path; /* as mapped; for people and last resorts, never for decisions alone */
	uint64_t bias;    /* address - ELF virtual address */
	uint64_t lo, hi;  /* of its executable mappings */
};

bool target_module(struct target *t, uint32_t i, struct target_module *ret);
/*
 * Address of a symbol of module i (.dynsym, then .symtab), 0 when there is none. size may be NULL.
 * A thread-local symbol's "address" is its offset in the module's block, and *size tells.
 */
uint64_t target_symbol(struct target *t, uint32_t i, const char *name, uint64_t *size);
/* The i-th symbol's neighbours are not for sale, but a section is: 0 when there is none. */
uint64_t target_section(struct target *t, uint32_t i, const char *name, uint64_t *size);
/*
 * Address range of the function (unwind table entry) that covers addr in module i, for functions
 * that no symbol names; false when there is none.
 */
bool target_function(struct target *t, uint32_t i, uint64_t addr, uint64_t *lo, uint64_t *hi);

struct target_thread {
	uint32_t tid; /* as the process's own pid namespace has it, innermost */
	uint64_t tp;  /* thread pointer: fs base, tpidr_el0; 0: not known */
};

/* i counts from 0; at most 65536. */
bool target_thread(struct target *t, uint32_t i, struct target_thread *ret);
/* What lies at an address: an ELF image, other mapped memory, nothing. */
enum target_memory { TARGET_NOTHING, TARGET_IMAGE, TARGET_OTHER };
enum target_memory target_memory(struct target *t, uint64_t addr);
/*
 * Copies the layout of a version, one number for each of unwinder.layout_fields in their order;
 * false: there is none. rows: an array of struct { uint16_t major, minor; struct layout layout; },
 * the latter of nothing but int32_t. A row of the extra layout file that the configuration names
 * for this runtime wins over these.
 */
#define target_layout(t, v, rows, ret)                                                             \
	({                                                                                         \
		_Static_assert(sizeof((rows)->major) == 2 && sizeof((rows)->minor) == 2 &&         \
				       sizeof(*(rows)) == 4 + sizeof(*(ret)),                      \
			       "a row is as target_layout_of() takes it");                         \
		target_layout_of((t), (v), (rows), sizeof(rows) / sizeof(*(rows)), sizeof(*(ret)), \
				 (ret));                                                           \
	})
bool target_layout_of(struct target *t, const struct version *v, const void *rows, size_t nrows,
		      size_t size, void *ret);

/* "8.2.36-1+deb12u1": the three numbers that a text begins with. */
bool version_parse(const char *s, struct version *ret);
/* Appends as much as fits. */
void text_append(char *dst, size_t size, const char *s);

/* --- what a walk kept, and the frames made of it -------------------------------------------- */

struct list {
	const uint64_t *words; /* n nodes of width words: the kept words, then the peeked ones */
	uint32_t n, width;
	enum list_end end;
	uint64_t head;
	uint64_t reg;  /* recipe.reg_kept, 0 unless the register held the innermost position */
	uint64_t ip;   /* innermost user address of the thread, 0 when not known */
	bool flag;     /* recipe.flag was set, by this thread */
	bool running;  /* taken on a CPU, in whatever state the runtime's own code was */
	bool ip_image; /* ip lies in an ELF image, not in code made at run time */
};

struct frames;

/*
 * What a frame is: object is the code's address; check are words of it as they were when the
 * stack was taken (so that another object at the same address is noticed); pos is the place in it.
 */
struct frame_key {
	uint64_t object, check[2], pos;
};

#define FRAME_C      1 /* a function in C, as the runtime knows it */
#define FRAME_UNSURE 2 /* may be one call behind */

/*
 * Adds a frame, leaf first. True: core knows its name already. False: give it, by frames_name() or
 * frames_gone(), before the next push.
 */
bool frames_push(struct frames *f, const struct frame_key *key, unsigned flags);
/* func is the qualified name; file may be NULL; line 0: unknown. Copied. */
void frames_name(struct frames *f, const char *func, const char *file, uint32_t line);
/* The object is not what it was: the frame stays, marked as gone. */
void frames_gone(struct frames *f);
/* A frame with a fixed name ("(garbage collection)"). */
void frames_mark(struct frames *f, const char *name);
/*
 * Between here and the next frame lies native code: the frames since the last boundary are one run
 * of the runtime's loop. Also for a run without frames.
 */
void frames_boundary(struct frames *f);
/*
 * The native stack ends here (a fiber's), the list goes on to whoever resumed it: the frames that
 * follow have no native ones beside them. A boundary as well.
 */
void frames_switch(struct frames *f);
/*
 * Adds a label to the sample ("request.script", "..."), at most two; key is static. Only worth
 * reading when frames_labels_wanted() says so: labels are off unless the configuration asks.
 */
bool frames_labels_wanted(const struct frames *f);
void frames_label(struct frames *f, const char *key, const char *value);

/* --- an unwinder ---------------------------------------------------------------------------- */

/*
 * Versions that one word of the configuration switches on. core compares what detect() told with
 * these: outside of all it is refused as VERSION, unless an extra layout file has that version (it
 * then belongs to the last range's word). detect() may refuse with VERSION as well.
 */
struct unwinder_range {
	const char *word;           /* "python": python_stacks; else a word of runtime_stacks */
	struct version first, last; /* closed; patch of last is not compared */
};

#define UNWINDER_RANGES 4
#define UNWINDER_LOOPS  8
#define UNWINDER_FIELDS 64

struct code_range {
	uint64_t lo, hi;
};

struct heads;
void heads_add(struct heads *h, uint32_t tid, uint64_t head);

struct unwinder {
	const char *name;        /* its folder; also [runtime.NAME] and its counters' label */
	const char *title;       /* "CPython" */
	const char *sample_type; /* "python_wall"; NULL: it only names code */
	struct unwinder_range ranges[UNWINDER_RANGES];
	size_t state_size;
	/* Names of the numbers that make up a layout, for files that add a version; may be NULL. */
	const char *const *layout_fields;
	uint32_t nlayout_fields; /* at most UNWINDER_FIELDS */
	/* sample_type counts time on a CPU only ("node_cpu"): nobody walks waiting threads. */
	bool running_only;
	/*
	 * Neighbouring native frames in loops(), or in memory that is no file, are one segment
	 * (compiled code and stubs that call each other); false: each frame in loops() is one.
	 */
	bool loop_runs;
	/*
	 * Is it mine; which version; where are the roots. NOT_MINE is the only silent refusal.
	 * With OK, VERSION, NO_SYMBOL and the like *ret is the version, as far as it is known.
	 */
	enum verdict (*detect)(struct target *t, void *state, struct version *ret);
	/* Follows this process's roots and proves each offset by something known. */
	enum verdict (*self_check)(struct target *t, void *state);
	/* Fills in the recipe (zeroed) from the state; reads nothing. head RECIPE_NO_HEAD: none. */
	void (*recipe)(const void *state, struct recipe *ret);
	/* RECIPE_TID: all threads' heads; called again, once a second. NULL otherwise. */
	enum verdict (*heads)(struct target *t, const void *state, struct heads *ret);
	/*
	 * Frames of one list, leaf first. OK, IDLE, or the reason why it is refused (what was
	 * pushed is then dropped). Called for lists of at least one node, however they ended but
	 * for MOVED. One that ended in LIMIT or UNREADABLE is a cut stack: its frames are kept
	 * and core marks it; whether another end is the runtime's root is for frames() to say.
	 */
	enum verdict (*frames)(struct target *t, const void *state, const struct list *l,
			       struct frames *ret);
	/*
	 * Address ranges of the native function(s) that run one segment of the list each, at most
	 * UNWINDER_LOOPS: they are replaced by the frames. NULL: never merged.
	 */
	uint32_t (*loops)(const void *state, struct code_range ret[UNWINDER_LOOPS]);
	/*
	 * Names one address of code made at run time: one frame, or several when functions were
	 * inlined there, leaf first. After the fact. NULL: cannot.
	 */
	enum verdict (*resolve)(struct target *t, const void *state, uint64_t ip,
				struct frames *ret);
};

/*
 * retain: without it a link with --gc-sections came out empty; and inside a static archive the
 * object is dropped, so objects are linked directly.
 */
#if defined(__has_attribute) && __has_attribute(retain)
#define UNWINDER_RETAIN , retain
#else
#define UNWINDER_RETAIN
#endif
#define UNWINDER_REGISTER(u)                          \
	static const struct unwinder *const u##_entry \
		__attribute__((used UNWINDER_RETAIN, section("unwinders"))) = &(u)
