// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See counts.h. The kernel answers a write to a map-in-map slot only after all running
 * programs have ended (kernel/bpf/syscall.c, maybe_wait_bpf_programs: synchronize_rcu()). Programs
 * that may sleep are not waited for, so they read the epoch and count within bpf_rcu_read_lock().
 */
#include "counts.h"

#include <bpf/bpf.h>
#include <errno.h>

static int make(struct counts *c, u32 i)
{
	closep(&c->fd[i]);
	c->fd[i] = bpf_map_create(BPF_MAP_TYPE_HASH, i ? "counts_odd" : "counts_even",
				  sizeof(struct stack_key), sizeof(struct stack_count), c->capacity,
				  NULL);
	if (c->fd[i] < 0)
		return -errno;
	return bpf_map_update_elem(c->outer_fd, &i, &c->fd[i], 0) ? -errno : 0;
}

int counts_init(struct counts *c, int outer_fd, u32 capacity)
{
	int err;

	c->outer_fd = outer_fd;
	c->capacity = capacity;
	c->fd[0] = c->fd[1] = -1;
	err = make(c, 0);
	/* Kernels before 5.10 take inner maps of the declared size only. */
	if (err == -EINVAL && capacity != COUNTS_DECLARED) {
		c->capacity = COUNTS_DECLARED;
		err = make(c, 0);
	}
	return err ? err : make(c, 1);
}

void counts_fini(struct counts *c)
{
	if (!c->capacity)
		return;
	closep(&c->fd[0]);
	closep(&c->fd[1]);
	c->capacity = 0;
}

int counts_wait(const struct counts *c, u64 epoch)
{
	u32 slot = epoch & 1;

	return bpf_map_update_elem(c->outer_fd, &slot, &c->fd[slot], 0) ? -errno : 0;
}

int counts_take(const struct counts *c, u64 epoch, counts_fn *fn, void *arg)
{
	enum { BATCH = 1024 };
	_cleanup_free_ struct stack_key *keys = malloc(BATCH * sizeof(*keys));
	_cleanup_free_ struct stack_count *values = malloc(BATCH * sizeof(*values));
	u32 out = 0, in, n, i, total = 0, want = BATCH;
	int fd = c->fd[epoch & 1], err;
	bool first = true;

	if (!keys || !values)
		return -ENOMEM;
	/* Ends: each round removes what it returns; never more rounds than entries. */
	while (total <= c->capacity) {
		n = want;
		in = out;
		err = bpf_map_lookup_and_delete_batch(fd, first ? NULL : &in, &out, keys, values,
						      &n, NULL)
			      ? -errno
			      : 0;
		if (err == -ENOSPC && want < (1u << 20)) {
			/* One bucket holds more than fits: a larger buffer. */
			struct stack_key *k = reallocarray(keys, want * 2, sizeof(*keys));
			struct stack_count *v;

			if (!k)
				return -ENOMEM;
			keys = k;
			v = reallocarray(values, want * 2, sizeof(*values));
			if (!v)
				return -ENOMEM;
			values = v;
			want *= 2;
			out = in;
			continue;
		}
		if (err && err != -ENOENT)
			return err;
		for (i = 0; i < n; i++)
			fn(arg, &keys[i], &values[i]);
		total += n;
		if (err == -ENOENT)
			return 0;
		first = false;
	}
	return 0;
}

u64 counts_bytes(const struct counts *c)
{
	return c->capacity ? fd_memlock(c->fd[0]) + fd_memlock(c->fd[1]) : 0;
}
