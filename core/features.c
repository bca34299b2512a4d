// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See features.h. In: /sys/kernel/btf/vmlinux, read once and gone over once, and a
 * few system calls. Each question about BTF is a row of a table: what kind of type, its name, the
 * member it has to have, the answer's place in the struct.
 */
#include "features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#define BTF_PATH "/sys/kernel/btf/vmlinux"
#ifdef __aarch64__
#define OWN_INTERRUPT "btf_trace_ipi_entry"
#else
#define OWN_INTERRUPT "btf_trace_irq_work_entry"
#endif
#define BTF_MAX  (64u << 20) /* five to ten times what kernels have */
#define ARGS_MAX 32          /* of a function that is looked at */

/* --- what BTF tells -------------------------------------------------------------------------- */

#define AT(field) offsetof(struct features, field)

/* A constant of any enumeration. */
static const struct {
	const char *name;
	size_t at;
} constants[] = {
	{ "BPF_MAP_TYPE_RINGBUF", AT(ring_buffer) },
	{ "BPF_MAP_TYPE_ARENA", AT(arena) },
	{ "BPF_FUNC_task_pt_regs", AT(task_pt_regs) },
	{ "BPF_FUNC_get_attach_cookie", AT(attach_cookie) },
	{ "BPF_FUNC_loop", AT(loop) },
	{ "BPF_FUNC_find_vma", AT(find_vma) },
	{ "BPF_FUNC_copy_from_user", AT(copy_from_user) },
	{ "BPF_FUNC_copy_from_user_task", AT(copy_from_user_task) },
	{ "BPF_FUNC_timer_init", AT(timer) },
	{ "BPF_LINK_TYPE_PERF_EVENT", AT(perf_link) },
};

/* A structure or union, with a member if one is named. */
static const struct {
	const char *name, *member;
	size_t at;
} records[] = {
	/* Where task storage moved to when it was opened to programs other than the LSM's. */
	{ "task_struct", "bpf_storage", AT(task_storage) },
	{ "bpf_iter_link_info", "task", AT(iter_task_filtered) },
	{ "bpf_prog_info", "verified_insns", AT(verified_insns) },
	/* The constants that name them are there even where the kernel is built without. */
	{ "bpf_kprobe_multi_link", NULL, AT(kprobe_multi) },
	{ "bpf_uprobe_multi_link", NULL, AT(uprobe_multi) },
	/* What maps were charged by until memory cgroups took over. */
	{ "bpf_map_memory", NULL, AT(memlock) },
};

static const struct {
	const char *name;
	size_t at;
} functions[] = {
	{ "bpf_iter_num_new", AT(iter_num) },
	{ "bpf_iter_task", AT(iter_task) },
	{ "bpf_iter_task_vma", AT(iter_task_vma) },
};

static void set_true(struct features *f, size_t at)
{
	*(bool *)((char *)f + at) = true;
}

static const char *name_at(const struct btf *btf, u32 offset)
{
	const char *name = btf__name_by_offset(btf, offset);

	return name ? name : "";
}

static void see_constants(const struct btf *btf, const struct btf_type *t, struct features *f)
{
	const struct btf_enum *e = btf_enum(t);
	u32 i, n = btf_vlen(t);
	size_t k;

	for (i = 0; i < n; i++) {
		const char *name = name_at(btf, e[i].name_off);

		if (strncmp(name, "BPF_", 4))
			continue;
		for (k = 0; k < ARRAY_SIZE(constants); k++)
			if (!strcmp(name, constants[k].name))
				set_true(f, constants[k].at);
	}
}

static bool has_member(const struct btf *btf, const struct btf_type *t, const char *member)
{
	const struct btf_member *m = btf_members(t);
	u32 i, n = btf_vlen(t);

	for (i = 0; i < n; i++)
		if (!strcmp(name_at(btf, m[i].name_off), member))
			return true;
	return false;
}

static void see_record(const struct btf *btf, const struct btf_type *t, struct features *f)
{
	const char *name = name_at(btf, t->name_off);
	size_t k;

	for (k = 0; k < ARRAY_SIZE(records); k++)
		if (!strcmp(name, records[k].name) &&
		    (!records[k].member || has_member(btf, t, records[k].member)))
			set_true(f, records[k].at);
}

/* Number of arguments of what the type refers to; -ENOENT when that is no function. */
static int args_of(const struct btf *btf, u32 id)
{
	const struct btf_type *t = btf__type_by_id(btf, id);

	if (t && btf_is_ptr(t))
		t = btf__type_by_id(btf, t->type);
	if (!t || !btf_is_func_proto(t) || btf_vlen(t) > ARGS_MAX)
		return -ENOENT;
	return btf_vlen(t);
}

/* The name alone says little: 7.0 has both names, with other arguments than 6.18. */
static void see_task_work(const struct btf *btf, const struct btf_type *t, const char *name,
			  struct features *f)
{
	int args = args_of(btf, t->type);

	if (!strcmp(name, "bpf_task_work_schedule_resume") && args == 4)
		f->task_work = TASK_WORK_PLAIN;
	else if (!strcmp(name, "bpf_task_work_schedule_resume_impl") && args == 5 &&
		 f->task_work == TASK_WORK_NONE)
		f->task_work = TASK_WORK_IMPL;
}

static void see_function(const struct btf *btf, const struct btf_type *t, struct features *f)
{
	const char *name = name_at(btf, t->name_off);
	size_t k;

	if (strncmp(name, "bpf_", 4))
		return;
	for (k = 0; k < ARRAY_SIZE(functions); k++)
		if (!strcmp(name, functions[k].name))
			set_true(f, functions[k].at);
	see_task_work(btf, t, name, f);
}

/* A raw tracepoint's type takes one argument before the tracepoint's own. */
static void see_typedef(const struct btf *btf, const struct btf_type *t, struct features *f)
{
	const char *name = name_at(btf, t->name_off);
	int args;

	/* x86: arch/x86/include/asm/trace/irq_vectors.h; arm64: include/trace/events/ipi.h */
	if (!strcmp(name, OWN_INTERRUPT))
		f->own_interrupt = true;
	if (strcmp(name, "btf_trace_sched_switch"))
		return;
	args = args_of(btf, t->type);
	if (args > 1)
		f->sched_switch_args = (u32)args - 1;
}

static void see_all(const struct btf *btf, struct features *f)
{
	u32 i, n = btf__type_cnt(btf);

	for (i = 1; i < n; i++) {
		const struct btf_type *t = btf__type_by_id(btf, i);

		if (btf_is_enum(t))
			see_constants(btf, t, f);
		else if (btf_is_composite(t))
			see_record(btf, t, f);
		else if (btf_is_func(t))
			see_function(btf, t, f);
		else if (btf_is_typedef(t))
			see_typedef(btf, t, f);
	}
	f->btf = true;
	/* Both came with one series. */
	f->iter_task_sleeps = f->iter_task && f->copy_from_user_task;
}

static int open_btf(const void *data, size_t size, struct btf **ret)
{
	struct btf *btf = NULL;

	if (!size || size > BTF_MAX)
		return -EINVAL;
	btf = btf__new(data, (u32)size);
	if (!btf)
		return errno ? -errno : -EINVAL;
	*ret = btf;
	return 0;
}

int features_from_btf(const void *data, size_t size, struct features *ret)
{
	struct btf *btf = NULL;
	int err = open_btf(data, size, &btf);

	memset(ret, 0, sizeof(*ret));
	if (err)
		return err;
	see_all(btf, ret);
	btf__free(btf);
	return 0;
}

int features_kfunc_args(const char *name)
{
	_cleanup_free_ char *data = NULL;
	const struct btf_type *t;
	struct btf *btf = NULL;
	size_t size;
	int err = read_file(BTF_PATH, BTF_MAX, &data, &size), id;

	if (!err)
		err = open_btf(data, size, &btf);
	if (err)
		return err;
	id = btf__find_by_name_kind(btf, name, BTF_KIND_FUNC);
	t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;
	err = t ? args_of(btf, t->type) : -ENOENT;
	btf__free(btf);
	return err;
}

/* --- what system calls tell ------------------------------------------------------------------ */

static int open_event(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	_cleanup_close_ int fd = -1;

	attr->size = sizeof(*attr);
	attr->disabled = 1;
	fd = (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

/* As the sampler opens it: every process of a CPU. */
static int try_cycles(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.freq = 1,
		.sample_freq = 1,
	};
	int cpu = sched_getcpu();

	return open_event(&attr, -1, MAX(cpu, 0));
}

static int try_build_id(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = 1,
		.exclude_kernel = 1,
	};

	return open_event(&attr, 0, -1);
}

static int try_batch(void)
{
	_cleanup_close_ int fd = bpf_map_create(BPF_MAP_TYPE_HASH, "probe", 4, 4, 1, NULL);
	u32 keys[2], values[2], out, n = ARRAY_SIZE(keys);
	int err;

	if (fd < 0)
		return fd;
	err = bpf_map_lookup_and_delete_batch(fd, NULL, &out, keys, values, &n, NULL);
	/* What an empty map answers. */
	return err == -ENOENT ? 0 : err;
}

static bool has_event_source(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", name);
	return !access(path, R_OK);
}

static bool jit_is_on(void)
{
	_cleanup_free_ char *text = NULL;

	/* Kernels that always compile may hide the switch. */
	return read_file("/proc/sys/net/core/bpf_jit_enable", 64, &text, NULL) || *text != '0';
}

int features_probe(struct features *ret)
{
	_cleanup_free_ char *data = NULL;
	size_t size;
	int err;

	memset(ret, 0, sizeof(*ret));
	err = read_file(BTF_PATH, BTF_MAX, &data, &size);
	if (!err)
		err = features_from_btf(data, size, ret);
	ret->kprobe = has_event_source("kprobe");
	ret->uprobe = has_event_source("uprobe");
	ret->batch_error = try_batch();
	ret->build_id_error = try_build_id();
	ret->cycles_error = try_cycles();
	ret->jit = jit_is_on();
	return err;
}

static struct features host;

static void probe_host(void)
{
	features_probe(&host);
}

const struct features *features_host(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, probe_host);
	return &host;
}
