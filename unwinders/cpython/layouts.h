/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython's structures as numbers, one row per release. From 3.13 on the interpreter carries a
 * table of its own offsets (struct _Py_DebugOffsets at _PyRuntime, which every patch release and
 * build fills in for itself), so those rows say where in that table each offset stands; rows of
 * older releases are the offsets. README.md says which header or build each number comes from.
 */
#pragma once

#include <stdint.h>

/*
 * In the order of the rows. PLACED numbers are positions in the interpreter's table (in 8-byte
 * words from its start) when `table` is 1; FIXED ones are what they say. -1: there is none.
 */
#define LAYOUT_FIXED(X)                                                                    \
	X(table)          /* 1: PLACED numbers are positions in the interpreter's table */ \
	X(frames)         /* enum frames_kind */                                           \
	X(positions)      /* enum positions_kind */                                        \
	X(cframe_frame)   /* thread_frame leads to a struct that has the frame here */     \
	X(runtime_key)    /* _PyRuntime's {initialised, pthread key} of thread states */   \
	X(text_wide)      /* bytes between an ASCII string's header and a wide one's */    \
	X(text_kind)      /* bit of `kind` in a string's state word */                     \
	X(text_kind_free) /* the same in free-threaded builds */                           \
	X(interp_sys)     /* sys.__dict__, where the exact version is looked up; -1: it is known */

#define LAYOUT_PLACED(X)                                                  \
	X(runtime_interps)                                                \
	X(interp_next)                                                    \
	X(interp_threads)                                                 \
	X(thread_next)                                                    \
	X(thread_interp)                                                  \
	X(thread_frame)                                                   \
	X(thread_ident)                                                   \
	X(thread_native)                                                  \
	X(frame_code)                                                     \
	X(frame_previous)                                                 \
	X(frame_instr)                                                    \
	X(frame_owner)                                                    \
	X(frame_copy) /* free-threaded: which copy of the code it runs */ \
	X(code_file)                                                      \
	X(code_name)                                                      \
	X(code_qualname)                                                  \
	X(code_lines)                                                     \
	X(code_firstline)                                                 \
	X(code_bytes)                                                     \
	X(code_copies)                                                    \
	X(object_type)                                                    \
	X(type_name)                                                      \
	X(bytes_size) /* of every object of variable size */              \
	X(bytes_data)                                                     \
	X(text_state)                                                     \
	X(text_length)                                                    \
	X(text_ascii) /* size of an ASCII string's header */

#define LAYOUT_FIELDS(X) LAYOUT_FIXED(X) LAYOUT_PLACED(X)

/* How a frame tells where a run of the eval loop begins. */
enum frames_kind {
	FRAMES_OBJECTS, /* PyFrameObject: a run each */
	FRAMES_ENTRY,   /* frame_owner: the byte before it is is_entry */
	FRAMES_SHIM,    /* a frame of its own, owned by the C stack */
	FRAMES_BASE,    /* the same, and the list ends in one more that belongs to no run */
};

/* Where in its code a frame is, and how that becomes a line. */
enum positions_kind {
	POSITIONS_BYTES, /* int f_lasti, bytes; co_lnotab */
	POSITIONS_UNITS, /* int f_lasti, instructions; co_linetable of 3.10 */
	POSITIONS_TABLE, /* a pointer; co_linetable of 3.11 and later */
};

struct layout {
#define X(name) int32_t name;
	LAYOUT_FIELDS(X)
#undef X
};

struct layout_row {
	uint16_t major, minor;
	struct layout layout;
};

/*
 * Include/pystate.h, frameobject.h, code.h, unicodeobject.h; from 3.7 on
 * Include/internal/pystate.h, pycore_pystate.h, pycore_interp.h, pycore_runtime.h,
 * pycore_frame.h, pycore_debug_offsets.h of the release.
 */
#define ROW_OBJECTS                                                                               \
	.frames = FRAMES_OBJECTS, .cframe_frame = -1, .text_wide = 24, .text_kind = 2,            \
	.text_kind_free = -1, .interp_next = 0, .interp_threads = 8, .thread_next = 8,            \
	.thread_interp = 16, .thread_frame = 24, .thread_native = -1, .frame_code = 32,           \
	.frame_previous = 24, .frame_owner = -1, .frame_copy = -1, .code_qualname = -1,           \
	.code_bytes = -1, .code_copies = -1, .object_type = 8, .type_name = 24, .bytes_size = 16, \
	.bytes_data = 32, .text_state = 32, .text_length = 16, .text_ascii = 48

#define ROW_FRAMES                                                                                \
	.positions = POSITIONS_TABLE, .text_kind = 2, .text_kind_free = -1, .interp_sys = -1,     \
	.interp_next = 0, .thread_next = 8, .thread_interp = 16, .frame_copy = -1,                \
	.code_copies = -1, .object_type = 8, .type_name = 24, .bytes_size = 16, .bytes_data = 32, \
	.text_state = 32, .text_length = 16

/* The part of the table that 3.13, 3.14 and 3.15 share by order. */
#define ROW_TABLE                                                                      \
	.table = 1, .positions = POSITIONS_TABLE, .cframe_frame = -1, .text_wide = 16, \
	.text_kind = 2, .interp_sys = -1, .runtime_interps = 5, .interp_next = 8,      \
	.interp_threads = 9

static const struct layout_row layout_rows[] = {
	{ 3,
	  6,
	  { ROW_OBJECTS, .positions = POSITIONS_BYTES, .runtime_key = -1, .interp_sys = 32,
	    .runtime_interps = 0, .thread_ident = 152, .frame_instr = 120, .code_file = 96,
	    .code_name = 104, .code_lines = 112, .code_firstline = 36 } },
	{ 3,
	  7,
	  { ROW_OBJECTS, .positions = POSITIONS_BYTES, .runtime_key = 1504, .interp_sys = 56,
	    .runtime_interps = 24, .thread_ident = 176, .frame_instr = 104, .code_file = 96,
	    .code_name = 104, .code_lines = 112, .code_firstline = 36 } },
	{ 3,
	  8,
	  { ROW_OBJECTS, .positions = POSITIONS_BYTES, .runtime_key = 1392, .interp_sys = 72,
	    .runtime_interps = 32, .thread_ident = 176, .frame_instr = 104, .code_file = 104,
	    .code_name = 112, .code_lines = 120, .code_firstline = 40 } },
	{ 3,
	  9,
	  { ROW_OBJECTS, .positions = POSITIONS_BYTES, .runtime_key = 584, .interp_sys = 872,
	    .runtime_interps = 32, .thread_ident = 176, .frame_instr = 104, .code_file = 104,
	    .code_name = 112, .code_lines = 120, .code_firstline = 40 } },
	{ 3,
	  10,
	  { ROW_OBJECTS, .positions = POSITIONS_UNITS, .runtime_key = 584, .interp_sys = 872,
	    .runtime_interps = 32, .thread_ident = 176, .frame_instr = 96, .code_file = 104,
	    .code_name = 112, .code_lines = 120, .code_firstline = 40 } },
	{ 3, 11, { ROW_FRAMES,           .frames = FRAMES_ENTRY, .cframe_frame = 8,
		   .runtime_key = 592,   .text_wide = 24,        .runtime_interps = 40,
		   .interp_threads = 16, .thread_frame = 56,     .thread_ident = 152,
		   .thread_native = 160, .frame_code = 32,       .frame_previous = 48,
		   .frame_instr = 56,    .frame_owner = 69,      .code_file = 112,
		   .code_name = 120,     .code_qualname = 128,   .code_lines = 136,
		   .code_firstline = 72, .code_bytes = 184,      .text_ascii = 48 } },
	{ 3, 12, { ROW_FRAMES,           .frames = FRAMES_SHIM, .cframe_frame = 0,
		   .runtime_key = 1544,  .text_wide = 16,       .runtime_interps = 40,
		   .interp_threads = 72, .thread_frame = 56,    .thread_ident = 136,
		   .thread_native = 144, .frame_code = 0,       .frame_previous = 8,
		   .frame_instr = 56,    .frame_owner = 70,     .code_file = 112,
		   .code_name = 120,     .code_qualname = 128,  .code_lines = 136,
		   .code_firstline = 68, .code_bytes = 192,     .text_ascii = 40 } },
	{ 3,
	  13,
	  { ROW_TABLE,           .frames = FRAMES_SHIM, .runtime_key = 2160,  .text_kind_free = 2,
	    .thread_next = 21,   .thread_interp = 22,   .thread_frame = 23,   .thread_ident = 24,
	    .thread_native = 25, .frame_previous = 29,  .frame_code = 30,     .frame_instr = 31,
	    .frame_owner = 33,   .frame_copy = -1,      .code_file = 35,      .code_name = 36,
	    .code_qualname = 37, .code_lines = 38,      .code_firstline = 39, .code_bytes = 43,
	    .code_copies = -1,   .object_type = 45,     .type_name = 47,      .bytes_size = 65,
	    .bytes_data = 66,    .text_state = 68,      .text_length = 69,    .text_ascii = 70 } },
	{ 3,
	  14,
	  { ROW_TABLE,           .frames = FRAMES_SHIM, .runtime_key = 2336,  .text_kind_free = 8,
	    .thread_next = 24,   .thread_interp = 25,   .thread_frame = 26,   .thread_ident = 27,
	    .thread_native = 28, .frame_previous = 32,  .frame_code = 33,     .frame_instr = 34,
	    .frame_owner = 36,   .frame_copy = 38,      .code_file = 40,      .code_name = 41,
	    .code_qualname = 42, .code_lines = 43,      .code_firstline = 44, .code_bytes = 48,
	    .code_copies = 49,   .object_type = 51,     .type_name = 53,      .bytes_size = 75,
	    .bytes_data = 76,    .text_state = 78,      .text_length = 79,    .text_ascii = 80 } },
	{ 3,
	  15,
	  { ROW_TABLE,           .frames = FRAMES_BASE, .runtime_key = -1,    .text_kind_free = 8,
	    .thread_next = 24,   .thread_interp = 25,   .thread_frame = 26,   .thread_ident = 30,
	    .thread_native = 31, .frame_previous = 40,  .frame_code = 41,     .frame_instr = 42,
	    .frame_owner = 44,   .frame_copy = 46,      .code_file = 48,      .code_name = 49,
	    .code_qualname = 50, .code_lines = 51,      .code_firstline = 52, .code_bytes = 56,
	    .code_copies = 57,   .object_type = 59,     .type_name = 61,      .bytes_size = 87,
	    .bytes_data = 88,    .text_state = 90,      .text_length = 91,    .text_ascii = 92 } },
};
