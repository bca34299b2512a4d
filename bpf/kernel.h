/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel fields that the programs touch, relocated at load time (CO-RE). No BTF and no
 * vmlinux.h is needed to build. Register layouts are user ABI and need no relocation.
 */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s64 s64;
typedef _Bool bool;

#define true 1
#define false 0

/* include/linux/sched.h: ends soon; never run user code. USER_WORKER is 6.4 and newer, 0x4000 unused before. */
#define PF_EXITING     0x00000004
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD     0x00200000

#define RLIMIT_STACK 3 /* include/uapi/asm-generic/resource.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rlimit {
	unsigned long rlim_cur;
};

struct signal_struct {
	struct rlimit rlim[16];
};

struct mm_struct {
	unsigned long start_stack;
};

/* include/linux/uprobes.h: a function whose return address the kernel replaced. */
struct return_instance {
	unsigned long orig_ret_vaddr;
	bool chained; /* replaced once more by the one before */
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

/* The thread pointer as it was set, or read when the thread left the CPU. */
struct thread_struct {
#if defined(__TARGET_ARCH_arm64)
	struct {
		unsigned long tp_value;
	} uw;
#else
	unsigned long fsbase;
#endif
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct super_block {
	unsigned long s_magic;
	void *s_bdev;
};

struct inode {
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
};

struct vm_userfaultfd_ctx {
	void *ctx;
};

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
	struct vm_userfaultfd_ctx vm_userfaultfd_ctx; /* empty without userfaultfd */
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	unsigned int flags;
	unsigned int __state; /* 5.14 and newer; state before */
	int exit_state;
	unsigned int on_cpu; /* 8 bits wide since 7.0, which only unsigned loads follow */
	int pid;
	int tgid;
	void *stack;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct uprobe_task *utask;
	u64 start_boottime; /* 5.5 and newer; real_start_time before */
	u64 self_exec_id;   /* 64 bits wide since 5.7 */
	unsigned in_execve : 1;
	unsigned long nvcsw, nivcsw;
	struct sched_entity se;
	struct pid *thread_pid;
	char comm[16];
	struct thread_struct thread;
};

struct task_struct___before_5_14 {
	long state;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Only its size is taken, relocated. */
struct pt_regs {
	unsigned long unused;
} __attribute__((preserve_access_index));

#if defined(__TARGET_ARCH_x86)

/* arch/x86/include/uapi/asm/ptrace.h; the same in the kernel. */
struct user_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	u64 ip, cs, flags, sp, ss;
};

#define REGS_IP(r) ((r)->ip)
#define REGS_SP(r) ((r)->sp)
#define REGS_FP(r) ((r)->bp)
/* Privilege level 3; only the low 16 bits are the selector (FRED keeps more above). */
#define REGS_USER(r) (((r)->cs & 3) == 3)
/* __USER32_CS */
#define REGS_COMPAT(r) (((r)->cs & 0xffff) == 0x23)

#elif defined(__TARGET_ARCH_arm64)

/* arch/arm64/include/uapi/asm/ptrace.h, struct user_pt_regs: first in the kernel's pt_regs. */
struct user_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};

#define REGS_IP(r)     ((r)->pc)
#define REGS_SP(r)     ((r)->sp)
#define REGS_FP(r)     ((r)->regs[29])
#define REGS_USER(r)   (((r)->pstate & 0xf) == 0)
#define REGS_COMPAT(r) (((r)->pstate & 0x10) != 0)

#else
#error "unknown __TARGET_ARCH"
#endif

/* include/uapi/linux/bpf_perf_event.h; context accesses are fixed by the kernel, 8 bytes each. */
struct bpf_perf_event_data {
	struct user_regs regs;
	u64 sample_period, addr;
};
