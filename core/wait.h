/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Why a thread waits, in one word, from the kernel functions in which it does and the
 * system call that it made. Two tables of names and numbers; nothing else is known here.
 */
#pragma once

#include "util.h"

/* What a wait is for; the order says nothing. */
#define WAIT_REASONS(X)                      \
	X(OTHER, "other")                    \
	X(DISK, "disk")                      \
	X(NETWORK, "network")                \
	X(PIPE, "pipe")                      \
	X(TTY, "terminal")                   \
	X(FUTEX, "futex")                    \
	X(SLEEP, "sleep")                    \
	X(POLL, "poll")                      \
	X(CHILD, "child")                    \
	X(VFORK, "vfork")                    \
	X(SIGNAL, "signal")                  \
	X(STOPPED, "stopped")                \
	X(TRACED, "traced")                  \
	X(FROZEN, "frozen")                  \
	X(THROTTLED, "throttled")            \
	X(PAGE_FAULT, "page fault")          \
	X(SWAP, "swap")                      \
	X(MEMORY, "memory")                  \
	X(FILE_LOCK, "file lock")            \
	X(KERNEL_LOCK, "kernel lock")        \
	X(IPC, "message queue or semaphore") \
	X(EVENT, "event")                    \
	X(IO_URING, "io_uring")              \
	X(FUSE, "fuse")                      \
	X(GPU, "gpu")                        \
	X(KVM, "virtual machine")            \
	X(EXIT, "exit")

enum wait_reason {
#define X(name, text) WAIT_##name,
	WAIT_REASONS(X)
#undef X
		WAIT_MAX,
};

/* For people and labels; static. */
const char *wait_text(enum wait_reason reason);
/*
 * What a kernel function on a stack means; WAIT_OTHER: nothing. Suffixes of the compiler
 * (".isra.0") are passed over.
 */
enum wait_reason wait_of_function(const char *name);
/* What a system call of this architecture waits for as a rule; WAIT_OTHER: anything. */
enum wait_reason wait_of_call(int call);
/*
 * All together. functions: names of the kernel frames, leaf first, NULL where unknown; state: a
 * letter as in man 5 proc; call: -1 for none.
 */
enum wait_reason wait_reason(char state, int call, const char *const *functions, u32 n);
