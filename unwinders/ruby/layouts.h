/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where Ruby's structures have what the walk needs, by version. From offsetof() over vm_core.h,
 * iseq.h, method.h and internal/class.h of 3.0.0, 3.1.0, 3.3.5 and 3.4.0 with the public headers of
 * Debian's packages, from the same files of 2.7.0, 3.2.0 and 4.0.0 by hand. Both architectures have
 * the same numbers. What has never differed is in object.c and iseq.c. A negative number: the
 * version has no such thing.
 */
#pragma once

#include <stdint.h>

#define LAYOUT_FIELDS(X)                                                                 \
	X(thread_vm) /* rb_thread_t */                                                   \
	X(thread_ec)                                                                     \
	X(thread_local_ec) /* the thread's own variable holds the context itself */      \
	X(ec_thread)       /* rb_execution_context_t */                                  \
	X(frame_size)      /* rb_control_frame_t */                                      \
	X(body_firstline)  /* rb_iseq_constant_body: location.first_lineno */            \
	X(firstline_value) /* which is a VALUE, no int */                                \
	X(body_insns)      /* insns_info: entries, positions, size, index */             \
	X(body_parent)                                                                   \
	X(body_local)                                                                    \
	X(body_attrs)      /* builtin_attrs */                                           \
	X(insn_size)       /* struct iseq_insn_info_entry */                             \
	X(string_len)      /* strings always have their length beside them */            \
	X(class_path)      /* rb_classext_t, from the class on: classpath */             \
	X(class_permanent) /* byte with the bit that it is one for good */               \
	X(class_attached)  /* of a singleton class: whose it is */                       \
	X(class_ivars)     /* class -> ext; ext -> table of ivars with the name */       \
	X(singleton_flag)  /* bit of RBasic.flags */                                     \
	X(hides_clauses)   /* backtraces show a rescue or ensure clause as its method */ \
	X(hides_internal)  /* and show methods of Ruby's own files as those in C */

struct layout {
#define X(name) int32_t name;
	LAYOUT_FIELDS(X)
#undef X
};

#define ROW_OLD                                                                            \
	.body_firstline = 88, .firstline_value = 1, .body_insns = 120, .body_parent = 168, \
	.body_local = 176, .body_attrs = -1, .class_path = -1, .class_permanent = -1,      \
	.class_attached = -1, .class_ivars = 8, .singleton_flag = 12

#define ROW_NEW                                                                    \
	.thread_vm = 32, .thread_ec = 48, .thread_local_ec = 1, .ec_thread = 48,   \
	.body_firstline = 88, .body_insns = 112, .insn_size = 12, .string_len = 1, \
	.class_ivars = -1

static const struct {
	uint16_t major, minor;
	struct layout layout;
} layout_rows[] = {
	{ 2,
	  7,
	  { ROW_OLD, .ec_thread = 56, .frame_size = 56, .thread_vm = 24, .thread_ec = 32,
	    .insn_size = 8 } },
	{ 3,
	  0,
	  { ROW_OLD, .ec_thread = 56, .frame_size = 56, .thread_vm = 32, .thread_ec = 40,
	    .thread_local_ec = 1, .insn_size = 8 } },
	{ 3,
	  1,
	  { ROW_OLD, .ec_thread = 48, .frame_size = 64, .thread_vm = 32, .thread_ec = 40,
	    .thread_local_ec = 1, .insn_size = 12 } },
	{ 3,
	  2,
	  { ROW_NEW, .frame_size = 64, .body_parent = 160, .body_local = 168, .body_attrs = -1,
	    .class_path = -1, .class_permanent = -1, .class_attached = -1, .singleton_flag = 12 } },
	{ 3,
	  3,
	  { ROW_NEW, .frame_size = 56, .body_parent = 160, .body_local = 168, .body_attrs = -1,
	    .class_path = 152, .class_permanent = 149, .class_attached = 128,
	    .singleton_flag = 12 } },
	{ 3,
	  4,
	  { ROW_NEW, .frame_size = 56, .body_parent = 160, .body_local = 168, .body_attrs = 260,
	    .class_path = 152, .class_permanent = 149, .class_attached = 128, .singleton_flag = 13,
	    .hides_clauses = 1 } },
	{ 4,
	  0,
	  { ROW_NEW, .frame_size = 56, .body_parent = 168, .body_local = 176, .body_attrs = 268,
	    .class_path = 152, .class_permanent = 149, .class_attached = 136, .singleton_flag = 13,
	    .hides_clauses = 1, .hides_internal = 1 } },
};
