/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Numbers of tasks as the profiler's pid namespace has them, of namespaces within it, too. In the
 * first namespace they are the kernel's own, and nothing of this is left in the programs. Else what
 * is not in the namespace has number 0, and so has what its parent has waited for.
 */
#pragma once

#include "bpf/env.h"

const volatile u32 ns_level = 0; /* of our pid namespace; 0: the first */
const volatile u64 ns_at = 0;    /* where the kernel has it */

static __always_inline u32 number_in_ns(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid *at;

	if (!pid || BPF_CORE_READ(pid, level) < ns_level)
		return 0;
	at = (void *)pid + bpf_core_field_offset(pid->numbers) +
	     ns_level * bpf_core_type_size(struct upid);
	return (u64)BPF_CORE_READ(at, ns) == ns_at ? (u32)BPF_CORE_READ(at, nr) : 0;
}

/* The kernel's own number is given, and costs nothing where it is the answer. */
static __always_inline u32 tid_of(struct task_struct *task, u32 pid)
{
	return ns_level ? number_in_ns(task) : pid;
}

static __always_inline u32 tgid_of(struct task_struct *task, u32 tgid)
{
	return ns_level ? number_in_ns(BPF_CORE_READ(task, group_leader)) : tgid;
}
