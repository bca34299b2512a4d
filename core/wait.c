// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See wait.h. Names of kernel functions are those of 5.8 to 7.3, whichever of them a
 * kernel has; inlined ones only miss. Numbers of system calls come from the architecture's headers.
 */
#include "wait.h"

#include <string.h>
#include <sys/syscall.h>

#define NAME_MAX_LEN 64

/*
 * Sorted by name. The highest weight on a stack decides, and of several the nearest to the leaf: 1
 * is a way of waiting, that many things use; 2 a thing; 3 happens to a thread whatever it does; 4
 * whatever happens.
 */
static const struct {
	const char *name;
	u8 reason, weight;
} functions[] = {
	{ "__alloc_pages_direct_compact", WAIT_MEMORY, 4 },
	{ "__blockdev_direct_IO", WAIT_DISK, 2 },
	{ "__break_lease", WAIT_FILE_LOCK, 2 },
	{ "__do_page_fault", WAIT_PAGE_FAULT, 3 },
	{ "__do_semtimedop", WAIT_IPC, 2 },
	{ "__do_wait", WAIT_CHILD, 2 },
	{ "__down", WAIT_KERNEL_LOCK, 1 },
	{ "__down_common", WAIT_KERNEL_LOCK, 1 },
	{ "__fuse_simple_request", WAIT_FUSE, 3 },
	{ "__futex_wait", WAIT_FUTEX, 2 },
	{ "__inet_stream_connect", WAIT_NETWORK, 2 },
	{ "__iomap_dio_rw", WAIT_DISK, 2 },
	{ "__mem_cgroup_handle_over_high", WAIT_MEMORY, 4 },
	{ "__mutex_lock", WAIT_KERNEL_LOCK, 1 },
	{ "__mutex_lock_slowpath", WAIT_KERNEL_LOCK, 1 },
	{ "__percpu_down_read", WAIT_KERNEL_LOCK, 1 },
	{ "__refrigerator", WAIT_FROZEN, 4 },
	{ "__rt_mutex_slowlock", WAIT_KERNEL_LOCK, 1 },
	{ "__skb_wait_for_more_packets", WAIT_NETWORK, 2 },
	{ "__sys_accept4", WAIT_NETWORK, 2 },
	{ "__sys_connect", WAIT_NETWORK, 2 },
	{ "__tcp_close", WAIT_NETWORK, 2 },
	{ "__wait_on_buffer", WAIT_DISK, 2 },
	{ "__wait_rcu_gp", WAIT_KERNEL_LOCK, 1 },
	{ "alarm_timer_nsleep", WAIT_SLEEP, 2 },
	{ "anon_pipe_read", WAIT_PIPE, 2 },
	{ "anon_pipe_write", WAIT_PIPE, 2 },
	{ "asm_exc_page_fault", WAIT_PAGE_FAULT, 3 },
	{ "balance_dirty_pages", WAIT_DISK, 2 },
	{ "bio_await_chain", WAIT_DISK, 2 },
	{ "bit_wait_io", WAIT_DISK, 1 },
	{ "blk_execute_rq", WAIT_DISK, 2 },
	{ "blk_mq_get_tag", WAIT_DISK, 2 },
	{ "blk_wait_io", WAIT_DISK, 2 },
	{ "blkdev_direct_IO", WAIT_DISK, 2 },
	{ "blkdev_issue_flush", WAIT_DISK, 2 },
	{ "btrfs_sync_file", WAIT_DISK, 2 },
	{ "btrfs_wait_ordered_range", WAIT_DISK, 2 },
	{ "ceph_mdsc_wait_request", WAIT_NETWORK, 2 },
	{ "cifs_send_recv", WAIT_NETWORK, 2 },
	{ "common_nsleep", WAIT_SLEEP, 2 },
	{ "common_nsleep_timens", WAIT_SLEEP, 2 },
	{ "congestion_wait", WAIT_MEMORY, 4 },
	{ "core_sys_select", WAIT_POLL, 2 },
	{ "coredump_wait", WAIT_EXIT, 2 },
	{ "dma_fence_default_wait", WAIT_GPU, 2 },
	{ "dma_fence_wait_timeout", WAIT_GPU, 2 },
	{ "do_blockdev_direct_IO", WAIT_DISK, 2 },
	{ "do_coredump", WAIT_EXIT, 2 },
	{ "do_epoll_wait", WAIT_POLL, 2 },
	{ "do_exit", WAIT_EXIT, 2 },
	{ "do_freezer_trap", WAIT_FROZEN, 4 },
	{ "do_futex", WAIT_FUTEX, 2 },
	{ "do_group_exit", WAIT_EXIT, 2 },
	{ "do_lock_file_wait", WAIT_FILE_LOCK, 2 },
	{ "do_mem_abort", WAIT_PAGE_FAULT, 3 },
	{ "do_mq_timedreceive", WAIT_IPC, 2 },
	{ "do_mq_timedsend", WAIT_IPC, 2 },
	{ "do_msgrcv", WAIT_IPC, 2 },
	{ "do_msgsnd", WAIT_IPC, 2 },
	{ "do_nanosleep", WAIT_SLEEP, 2 },
	{ "do_page_fault", WAIT_PAGE_FAULT, 3 },
	{ "do_poll", WAIT_POLL, 2 },
	{ "do_select", WAIT_POLL, 2 },
	{ "do_semtimedop", WAIT_IPC, 2 },
	{ "do_signal_stop", WAIT_STOPPED, 3 },
	{ "do_sigtimedwait", WAIT_SIGNAL, 2 },
	{ "do_swap_page", WAIT_SWAP, 3 },
	{ "do_sys_poll", WAIT_POLL, 2 },
	{ "do_user_addr_fault", WAIT_PAGE_FAULT, 3 },
	{ "do_wait", WAIT_CHILD, 2 },
	{ "down", WAIT_KERNEL_LOCK, 1 },
	{ "down_read", WAIT_KERNEL_LOCK, 1 },
	{ "down_write", WAIT_KERNEL_LOCK, 1 },
	{ "drm_syncobj_array_wait_timeout", WAIT_GPU, 2 },
	{ "drm_wait_vblank_ioctl", WAIT_GPU, 2 },
	{ "el0_da", WAIT_PAGE_FAULT, 3 },
	{ "el0_ia", WAIT_PAGE_FAULT, 3 },
	{ "ep_poll", WAIT_POLL, 2 },
	{ "eventfd_read", WAIT_EVENT, 2 },
	{ "eventfd_write", WAIT_EVENT, 2 },
	{ "exc_page_fault", WAIT_PAGE_FAULT, 3 },
	{ "exit_mm", WAIT_EXIT, 2 },
	{ "ext4_sync_file", WAIT_DISK, 2 },
	{ "fanotify_read", WAIT_EVENT, 2 },
	{ "fcntl_setlk", WAIT_FILE_LOCK, 2 },
	{ "fifo_open", WAIT_PIPE, 2 },
	{ "fifo_pipe_read", WAIT_PIPE, 2 },
	{ "fifo_pipe_write", WAIT_PIPE, 2 },
	{ "file_write_and_wait_range", WAIT_DISK, 2 },
	{ "filemap_fault", WAIT_PAGE_FAULT, 3 },
	{ "flock_lock_inode_wait", WAIT_FILE_LOCK, 2 },
	{ "folio_wait_bit", WAIT_DISK, 2 },
	{ "folio_wait_bit_common", WAIT_DISK, 2 },
	{ "folio_wait_writeback", WAIT_DISK, 2 },
	{ "fuse_simple_request", WAIT_FUSE, 3 },
	{ "futex_do_wait", WAIT_FUTEX, 2 },
	{ "futex_lock_pi", WAIT_FUTEX, 2 },
	{ "futex_wait", WAIT_FUTEX, 2 },
	{ "futex_wait_multiple", WAIT_FUTEX, 2 },
	{ "futex_wait_queue", WAIT_FUTEX, 2 },
	{ "futex_wait_queue_me", WAIT_FUTEX, 2 },
	{ "futex_wait_requeue_pi", WAIT_FUTEX, 2 },
	{ "get_signal", WAIT_FROZEN, 2 }, /* what it sleeps in otherwise has a state or name */
	{ "handle_mm_fault", WAIT_PAGE_FAULT, 3 },
	{ "handle_userfault", WAIT_PAGE_FAULT, 3 },
	{ "hrtimer_nanosleep", WAIT_SLEEP, 2 },
	{ "i915_request_wait", WAIT_GPU, 2 },
	{ "inet_csk_accept", WAIT_NETWORK, 2 },
	{ "inet_csk_wait_for_connect", WAIT_NETWORK, 2 },
	{ "inet_wait_for_connect", WAIT_NETWORK, 2 },
	{ "inotify_read", WAIT_EVENT, 2 },
	{ "io_cqring_wait", WAIT_IO_URING, 2 },
	{ "io_schedule", WAIT_DISK, 1 },
	{ "io_schedule_timeout", WAIT_DISK, 1 },
	{ "io_sq_thread", WAIT_IO_URING, 2 },
	{ "io_wq_worker", WAIT_IO_URING, 2 },
	{ "io_wqe_worker", WAIT_IO_URING, 2 },
	{ "iomap_dio_rw", WAIT_DISK, 2 },
	{ "jbd2_complete_transaction", WAIT_DISK, 2 },
	{ "jbd2_journal_stop", WAIT_DISK, 2 },
	{ "jbd2_log_wait_commit", WAIT_DISK, 2 },
	{ "kernel_wait4", WAIT_CHILD, 2 },
	{ "kernel_waitid", WAIT_CHILD, 2 },
	{ "kvm_arch_vcpu_ioctl_run", WAIT_KVM, 2 },
	{ "kvm_vcpu_block", WAIT_KVM, 2 },
	{ "kvm_vcpu_check_block", WAIT_KVM, 2 },
	{ "kvm_vcpu_halt", WAIT_KVM, 2 },
	{ "locks_lock_inode_wait", WAIT_FILE_LOCK, 2 },
	{ "mem_cgroup_handle_over_high", WAIT_MEMORY, 4 },
	{ "mem_cgroup_oom_synchronize", WAIT_MEMORY, 4 },
	{ "mutex_lock", WAIT_KERNEL_LOCK, 1 },
	{ "n_tty_read", WAIT_TTY, 2 },
	{ "n_tty_write", WAIT_TTY, 2 },
	{ "netlink_recvmsg", WAIT_NETWORK, 2 },
	{ "nfs_wait_bit_killable", WAIT_NETWORK, 2 },
	{ "nfs_wait_on_request", WAIT_NETWORK, 2 },
	{ "p9_client_rpc", WAIT_NETWORK, 2 },
	{ "packet_recvmsg", WAIT_NETWORK, 2 },
	{ "percpu_rwsem_wait", WAIT_KERNEL_LOCK, 1 },
	{ "pipe_read", WAIT_PIPE, 2 },
	{ "pipe_wait_readable", WAIT_PIPE, 2 },
	{ "pipe_wait_writable", WAIT_PIPE, 2 },
	{ "pipe_write", WAIT_PIPE, 2 },
	{ "poll_schedule_timeout", WAIT_POLL, 2 },
	{ "posix_lock_inode_wait", WAIT_FILE_LOCK, 2 },
	{ "ptrace_stop", WAIT_TRACED, 3 },
	{ "read_events", WAIT_DISK, 2 },
	{ "reclaim_throttle", WAIT_MEMORY, 4 },
	{ "request_wait_answer", WAIT_FUSE, 3 },
	{ "rpc_wait_bit_killable", WAIT_NETWORK, 2 },
	{ "rq_qos_wait", WAIT_DISK, 2 },
	{ "rt_mutex_slowlock", WAIT_KERNEL_LOCK, 1 },
	{ "rtlock_slowlock_locked", WAIT_KERNEL_LOCK, 1 },
	{ "rwsem_down_read_slowpath", WAIT_KERNEL_LOCK, 1 },
	{ "rwsem_down_write_slowpath", WAIT_KERNEL_LOCK, 1 },
	{ "shmem_swapin_folio", WAIT_SWAP, 3 },
	{ "signalfd_dequeue", WAIT_EVENT, 2 },
	{ "signalfd_read", WAIT_EVENT, 2 },
	{ "signalfd_read_iter", WAIT_EVENT, 2 },
	{ "sigsuspend", WAIT_SIGNAL, 2 },
	{ "sk_stream_wait_connect", WAIT_NETWORK, 2 },
	{ "sk_stream_wait_memory", WAIT_NETWORK, 2 },
	{ "sk_wait_data", WAIT_NETWORK, 2 },
	{ "sk_wait_event", WAIT_NETWORK, 2 },
	{ "skb_recv_udp", WAIT_NETWORK, 2 },
	{ "sock_alloc_send_pskb", WAIT_NETWORK, 2 },
	{ "sock_recvmsg", WAIT_NETWORK, 2 },
	{ "sock_sendmsg", WAIT_NETWORK, 2 },
	{ "sock_wait_for_wmem", WAIT_NETWORK, 2 },
	{ "start_this_handle", WAIT_DISK, 2 },
	{ "submit_bio_wait", WAIT_DISK, 2 },
	{ "swap_cluster_readahead", WAIT_SWAP, 3 },
	{ "swap_read_folio", WAIT_SWAP, 3 },
	{ "swap_readpage", WAIT_SWAP, 3 },
	{ "swapin_readahead", WAIT_SWAP, 3 },
	{ "sync_filesystem", WAIT_DISK, 2 },
	{ "sync_inodes_sb", WAIT_DISK, 2 },
	{ "synchronize_group_exit", WAIT_EXIT, 2 },
	{ "synchronize_rcu", WAIT_KERNEL_LOCK, 1 },
	{ "synchronize_rcu_expedited", WAIT_KERNEL_LOCK, 1 },
	{ "synchronize_srcu", WAIT_KERNEL_LOCK, 1 },
	{ "tcp_close", WAIT_NETWORK, 2 },
	{ "tcp_recvmsg", WAIT_NETWORK, 2 },
	{ "tcp_recvmsg_locked", WAIT_NETWORK, 2 },
	{ "tcp_sendmsg_locked", WAIT_NETWORK, 2 },
	{ "throttle_cfs_rq_work", WAIT_THROTTLED, 3 },
	{ "throttle_direct_reclaim", WAIT_MEMORY, 4 },
	{ "timerfd_read", WAIT_EVENT, 2 },
	{ "timerfd_read_iter", WAIT_EVENT, 2 },
	{ "try_to_free_mem_cgroup_pages", WAIT_MEMORY, 4 },
	{ "try_to_free_pages", WAIT_MEMORY, 4 },
	{ "tty_read", WAIT_TTY, 2 },
	{ "tty_wait_until_sent", WAIT_TTY, 2 },
	{ "tty_write", WAIT_TTY, 2 },
	{ "udp_recvmsg", WAIT_NETWORK, 2 },
	{ "unix_accept", WAIT_NETWORK, 2 },
	{ "unix_stream_data_wait", WAIT_NETWORK, 2 },
	{ "unix_stream_read_generic", WAIT_NETWORK, 2 },
	{ "unix_wait_for_peer", WAIT_NETWORK, 2 },
	{ "userfaultfd_read", WAIT_EVENT, 2 },
	{ "userfaultfd_read_iter", WAIT_EVENT, 2 },
	{ "vfs_coredump", WAIT_EXIT, 2 },
	{ "vfs_fsync_range", WAIT_DISK, 2 },
	{ "vsock_connectible_recvmsg", WAIT_NETWORK, 2 },
	{ "wait_for_completion_io", WAIT_DISK, 1 },
	{ "wait_for_partner", WAIT_PIPE, 2 },
	{ "wait_for_response", WAIT_NETWORK, 2 },
	{ "wait_for_vfork_done", WAIT_VFORK, 2 },
	{ "wait_iff_congested", WAIT_MEMORY, 4 },
	{ "wait_on_buffer", WAIT_DISK, 2 },
	{ "wait_on_page_bit", WAIT_DISK, 2 },
	{ "wait_on_page_bit_common", WAIT_DISK, 2 },
	{ "wait_transaction_locked", WAIT_DISK, 2 },
	{ "wb_wait_for_completion", WAIT_DISK, 2 },
	{ "wbt_wait", WAIT_DISK, 2 },
	{ "wq_sleep", WAIT_IPC, 2 },
	{ "ww_mutex_lock", WAIT_KERNEL_LOCK, 1 },
	{ "xfs_file_fsync", WAIT_DISK, 2 },
	{ "xlog_wait_on_iclog", WAIT_DISK, 2 },
	{ "zap_pid_ns_processes", WAIT_EXIT, 2 },
};

static const struct {
	s16 call;
	u8 reason;
} calls[] = {
#ifdef SYS_futex
	{ SYS_futex, WAIT_FUTEX },
#endif
#ifdef SYS_futex_waitv
	{ SYS_futex_waitv, WAIT_FUTEX },
#endif
#ifdef SYS_futex_wait
	{ SYS_futex_wait, WAIT_FUTEX },
#endif
#ifdef SYS_nanosleep
	{ SYS_nanosleep, WAIT_SLEEP },
#endif
#ifdef SYS_clock_nanosleep
	{ SYS_clock_nanosleep, WAIT_SLEEP },
#endif
#ifdef SYS_poll
	{ SYS_poll, WAIT_POLL },
#endif
#ifdef SYS_ppoll
	{ SYS_ppoll, WAIT_POLL },
#endif
#ifdef SYS_select
	{ SYS_select, WAIT_POLL },
#endif
#ifdef SYS_pselect6
	{ SYS_pselect6, WAIT_POLL },
#endif
#ifdef SYS_epoll_wait
	{ SYS_epoll_wait, WAIT_POLL },
#endif
#ifdef SYS_epoll_pwait
	{ SYS_epoll_pwait, WAIT_POLL },
#endif
#ifdef SYS_epoll_pwait2
	{ SYS_epoll_pwait2, WAIT_POLL },
#endif
#ifdef SYS_wait4
	{ SYS_wait4, WAIT_CHILD },
#endif
#ifdef SYS_waitid
	{ SYS_waitid, WAIT_CHILD },
#endif
#ifdef SYS_vfork
	{ SYS_vfork, WAIT_VFORK },
#endif
#ifdef SYS_pause
	{ SYS_pause, WAIT_SIGNAL },
#endif
#ifdef SYS_rt_sigsuspend
	{ SYS_rt_sigsuspend, WAIT_SIGNAL },
#endif
#ifdef SYS_rt_sigtimedwait
	{ SYS_rt_sigtimedwait, WAIT_SIGNAL },
#endif
#ifdef SYS_accept
	{ SYS_accept, WAIT_NETWORK },
#endif
#ifdef SYS_accept4
	{ SYS_accept4, WAIT_NETWORK },
#endif
#ifdef SYS_connect
	{ SYS_connect, WAIT_NETWORK },
#endif
#ifdef SYS_recvfrom
	{ SYS_recvfrom, WAIT_NETWORK },
#endif
#ifdef SYS_recvmsg
	{ SYS_recvmsg, WAIT_NETWORK },
#endif
#ifdef SYS_recvmmsg
	{ SYS_recvmmsg, WAIT_NETWORK },
#endif
#ifdef SYS_sendto
	{ SYS_sendto, WAIT_NETWORK },
#endif
#ifdef SYS_sendmsg
	{ SYS_sendmsg, WAIT_NETWORK },
#endif
#ifdef SYS_sendmmsg
	{ SYS_sendmmsg, WAIT_NETWORK },
#endif
#ifdef SYS_fsync
	{ SYS_fsync, WAIT_DISK },
#endif
#ifdef SYS_fdatasync
	{ SYS_fdatasync, WAIT_DISK },
#endif
#ifdef SYS_sync
	{ SYS_sync, WAIT_DISK },
#endif
#ifdef SYS_syncfs
	{ SYS_syncfs, WAIT_DISK },
#endif
#ifdef SYS_sync_file_range
	{ SYS_sync_file_range, WAIT_DISK },
#endif
#ifdef SYS_msync
	{ SYS_msync, WAIT_DISK },
#endif
#ifdef SYS_io_getevents
	{ SYS_io_getevents, WAIT_DISK },
#endif
#ifdef SYS_io_pgetevents
	{ SYS_io_pgetevents, WAIT_DISK },
#endif
#ifdef SYS_flock
	{ SYS_flock, WAIT_FILE_LOCK },
#endif
#ifdef SYS_msgrcv
	{ SYS_msgrcv, WAIT_IPC },
#endif
#ifdef SYS_msgsnd
	{ SYS_msgsnd, WAIT_IPC },
#endif
#ifdef SYS_semop
	{ SYS_semop, WAIT_IPC },
#endif
#ifdef SYS_semtimedop
	{ SYS_semtimedop, WAIT_IPC },
#endif
#ifdef SYS_mq_timedreceive
	{ SYS_mq_timedreceive, WAIT_IPC },
#endif
#ifdef SYS_mq_timedsend
	{ SYS_mq_timedsend, WAIT_IPC },
#endif
#ifdef SYS_io_uring_enter
	{ SYS_io_uring_enter, WAIT_IO_URING },
#endif
#ifdef SYS_exit
	{ SYS_exit, WAIT_EXIT },
#endif
#ifdef SYS_exit_group
	{ SYS_exit_group, WAIT_EXIT },
#endif
};

const char *wait_text(enum wait_reason reason)
{
	static const char *const texts[] = {
#define X(name, text) text,
		WAIT_REASONS(X)
#undef X
	};

	return reason < WAIT_MAX ? texts[reason] : texts[WAIT_OTHER];
}

/* Index in functions[], or -1. */
static int find_function(const char *name)
{
	char plain[NAME_MAX_LEN];
	size_t len = strcspn(name, ".");
	int lo = 0, hi = ARRAY_SIZE(functions) - 1;

	if (!len || len >= sizeof(plain))
		return -1;
	memcpy(plain, name, len);
	plain[len] = '\0';
	while (lo <= hi) {
		int mid = (lo + hi) / 2, c = strcmp(plain, functions[mid].name);

		if (!c)
			return mid;
		if (c < 0)
			hi = mid - 1;
		else
			lo = mid + 1;
	}
	return -1;
}

enum wait_reason wait_of_function(const char *name)
{
	int i = find_function(name);

	return i < 0 ? WAIT_OTHER : functions[i].reason;
}

enum wait_reason wait_of_call(int call)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].call == call)
			return calls[i].reason;
	return WAIT_OTHER;
}

enum wait_reason wait_reason(char state, int call, const char *const *names, u32 n)
{
	enum wait_reason best = WAIT_OTHER;
	u32 weight = 0, i;

	if (state == 'T')
		return WAIT_STOPPED;
	if (state == 't')
		return WAIT_TRACED;
	for (i = 0; i < n; i++) {
		int f = names[i] ? find_function(names[i]) : -1;

		if (f >= 0 && functions[f].weight > weight) {
			weight = functions[f].weight;
			best = functions[f].reason;
		}
	}
	/* A way of waiting says less than the call. */
	if (weight < 2 && wait_of_call(call) != WAIT_OTHER)
		return wait_of_call(call);
	return best;
}
