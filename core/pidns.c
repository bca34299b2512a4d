// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See pidns.h. */
#include "pidns.h"

#include "bpf/abi.h"
#include "pidns.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FIRST_INODE 0xeffffffcu /* fixed in the kernel: include/linux/proc_ns.h */

bool pidns_is_first(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) || st.st_ino == FIRST_INODE;
}

static int read_own(struct bpf_program *prog, struct own_ns *ret)
{
	_cleanup_close_ int link = -1, iter = -1;
	ssize_t n;

	link = bpf_link_create(bpf_program__fd(prog), 0, BPF_TRACE_ITER, NULL);
	if (link < 0)
		return -errno;
	iter = bpf_iter_create(link);
	if (iter < 0)
		return -errno;
	do
		n = read(iter, ret, sizeof(*ret));
	while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < 0)
		return -errno;
	/* The number is the one thing of it that can be told from here, too. */
	return n == sizeof(*ret) && ret->level && ret->at && ret->nr == (u32)syscall(SYS_gettid)
		       ? 0
		       : -EINVAL;
}

static int find(struct pidns *ret)
{
	struct pidns_bpf *skel;
	struct own_ns own;
	int err;

	*ret = (struct pidns){ 0 };
	if (pidns_is_first())
		return 0;
	skel = pidns_bpf__open_and_load();
	if (!skel)
		return errno ? -errno : -ENOMEM;
	err = read_own(skel->progs.own_pidns, &own);
	pidns_bpf__destroy(skel);
	if (!err)
		*ret = (struct pidns){ .level = own.level, .at = own.at };
	return err;
}

int pidns_own(struct pidns *ret)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct pidns own;
	static bool known;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!known)
		err = find(&own);
	known |= !err;
	*ret = own;
	pthread_mutex_unlock(&lock);
	return err;
}
