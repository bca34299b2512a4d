// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where the reader's own pid namespace stands, which no file tells from within: an iterator runs in
 * the thread that reads it. Out: one struct own_ns.
 */
#include "bpf/abi.h"
#include "bpf/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("iter/task")
int own_pidns(struct bpf_iter__task *ctx)
{
	struct task_struct *me = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(me, thread_pid);
	struct own_ns own = {};
	struct upid *at;

	if (ctx->meta->seq_num)
		return 0;
	own.level = BPF_CORE_READ(pid, level);
	at = (void *)pid + bpf_core_field_offset(pid->numbers) +
	     own.level * bpf_core_type_size(struct upid);
	own.at = (u64)BPF_CORE_READ(at, ns);
	own.nr = BPF_CORE_READ(at, nr);
	bpf_seq_write(ctx->meta->seq, &own, sizeof(own));
	return 0;
}
