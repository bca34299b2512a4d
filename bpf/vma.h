/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who serves a page of a process: the kernel itself, or somebody who may never answer. In: a
 * mapping, from bpf_find_vma(). Out: a bool. For programs that may sleep.
 */
#pragma once

#include "bpf/kernel.h"

#define FUSE_MAGIC  0x65735546 /* include/uapi/linux/magic.h */
#define TMPFS_MAGIC 0x01021994

/* May the page be fetched: by the kernel alone, from memory, swap or a local disk? */
static long judge_vma(struct task_struct *task, struct vm_area_struct *vma, void *arg)
{
	struct super_block *sb;
	struct file *file;
	bool *ours = arg;

	if (bpf_core_field_exists(vma->vm_userfaultfd_ctx.ctx) &&
	    BPF_CORE_READ(vma, vm_userfaultfd_ctx.ctx))
		return 0;
	file = BPF_CORE_READ(vma, vm_file);
	if (!file) {
		*ours = true;
		return 0;
	}
	sb = BPF_CORE_READ(file, f_inode, i_sb);
	switch (BPF_CORE_READ(sb, s_magic)) {
	case FUSE_MAGIC: /* on a block device, too */
		break;
	case TMPFS_MAGIC:
		*ours = true;
		break;
	default: /* no disk below: a network may be */
		*ours = BPF_CORE_READ(sb, s_bdev) != 0;
	}
	return 0;
}
