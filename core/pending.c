// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See pending.h. */
#include "pending.h"

#include "bpf/abi.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#define PENDING_A_CPU 64
#define PENDING_MIN   256
#define PENDING_MAX   4096
#define SCRATCHES_MIN 8
#define SCRATCHES_MAX 256

int pending_size(struct pending_pool *pool, struct bpf_object *obj)
{
	struct bpf_map *pending = bpf_object__find_map_by_name(obj, "pending");
	struct bpf_map *scratch = bpf_object__find_map_by_name(obj, "scratch");
	int ncpus = libbpf_num_possible_cpus(), err;
	u32 want;

	if (!pending || !scratch)
		return -ENOENT;
	if (ncpus <= 0)
		return -ERANGE;
	pool->cpus = (u32)ncpus;
	pool->scratches = MIN(MAX(2 * pool->cpus, (u32)SCRATCHES_MIN), (u32)SCRATCHES_MAX);
	want = MIN(pool->cpus * PENDING_A_CPU, (u32)PENDING_MAX);
	for (pool->entries = PENDING_MIN; pool->entries < want;)
		pool->entries *= 2;
	err = bpf_map__set_max_entries(pending, pool->entries);
	return err ? err : bpf_map__set_max_entries(scratch, pool->cpus + pool->scratches);
}

u64 pending_left(const struct pending_pool *pool, int pending_fd)
{
	struct pending_head head;
	_cleanup_free_ u8 *value = NULL;
	struct bpf_map_info info = { 0 };
	u32 len = sizeof(info), i;
	u64 sum = 0;

	if (pending_fd < 0 || bpf_obj_get_info_by_fd(pending_fd, &info, &len) ||
	    info.value_size < sizeof(head))
		return 0;
	value = malloc(info.value_size);
	for (i = 0; value && i < pool->entries; i++) {
		if (bpf_map_lookup_elem(pending_fd, &i, value))
			continue;
		__builtin_memcpy(&head, value, sizeof(head));
		if (head.task)
			sum += head.count;
	}
	return sum;
}

u64 pending_work_ns(u64 ns, u64 timed, u64 runs)
{
	return timed ? (u64)((double)ns * (double)runs / (double)timed) : 0;
}
