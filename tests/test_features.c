// SPDX-License-Identifier: Apache-2.0
/*
 * What is read out of BTF: blobs made here by libbpf's own writer, each with one fact, and this
 * host's own against what bpftool says of it. Hostile blobs give an error, never a feature.
 */
#include "core/features.h"

#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define VMLINUX "/sys/kernel/btf/vmlinux"

static struct features features;

static struct btf *fresh(void)
{
	struct btf *btf = btf__new_empty();

	assert_non_null(btf);
	return btf;
}

/* Ends the blob; what it says is in `features`. */
static void read_out(struct btf *btf)
{
	const void *data;
	u32 size;

	data = btf__raw_data(btf, &size);
	assert_non_null(data);
	assert_int_equal(features_from_btf(data, size, &features), 0);
	btf__free(btf);
}

static int good(int id)
{
	assert_true(id >= 0);
	return id;
}

static void add_constant(struct btf *btf, const char *kind, const char *name)
{
	good(btf__add_enum(btf, kind, 4));
	good(btf__add_enum_value(btf, "BPF_FUNC_unspec", 0));
	good(btf__add_enum_value(btf, name, 7));
}

/* A function of `args` integers; returns the id of its prototype. */
static int add_proto(struct btf *btf, u32 args)
{
	int number = good(btf__add_int(btf, "int", 4, BTF_INT_SIGNED));
	int proto = good(btf__add_func_proto(btf, number));
	u32 i;

	for (i = 0; i < args; i++)
		good(btf__add_func_param(btf, "x", number));
	return proto;
}

static void add_function(struct btf *btf, const char *name, u32 args)
{
	good(btf__add_func(btf, name, BTF_FUNC_STATIC, add_proto(btf, args)));
}

static void add_record(struct btf *btf, const char *name, const char *member)
{
	int number = good(btf__add_int(btf, "int", 4, BTF_INT_SIGNED));

	good(btf__add_struct(btf, name, 4));
	good(btf__add_field(btf, member, number, 0, 0));
}

/* --- tests ----------------------------------------------------------------------------------- */

static void kernel_without_anything_has_no_feature(void **state)
{
	struct features none = { .btf = true };
	struct btf *btf = fresh();

	(void)state;
	add_constant(btf, "bpf_func_id", "BPF_FUNC_trace_printk");
	add_function(btf, "schedule", 0);
	read_out(btf);
	assert_memory_equal(&features, &none, sizeof(none));
}

static void helpers_are_known_by_the_constants_that_name_them(void **state)
{
	static const struct {
		const char *name;
		const bool *seen;
	} rows[] = {
		{ "BPF_MAP_TYPE_RINGBUF", &features.ring_buffer },
		{ "BPF_MAP_TYPE_ARENA", &features.arena },
		{ "BPF_FUNC_task_pt_regs", &features.task_pt_regs },
		{ "BPF_FUNC_get_attach_cookie", &features.attach_cookie },
		{ "BPF_FUNC_loop", &features.loop },
		{ "BPF_FUNC_find_vma", &features.find_vma },
		{ "BPF_FUNC_copy_from_user", &features.copy_from_user },
		{ "BPF_FUNC_copy_from_user_task", &features.copy_from_user_task },
		{ "BPF_FUNC_timer_init", &features.timer },
		{ "BPF_LINK_TYPE_PERF_EVENT", &features.perf_link },
	};
	size_t i, k;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct btf *btf = fresh();

		add_constant(btf, "whatever", rows[i].name);
		read_out(btf);
		for (k = 0; k < ARRAY_SIZE(rows); k++)
			assert_int_equal(*rows[k].seen, k == i);
	}
}

static void members_count_only_in_their_own_record(void **state)
{
	struct btf *btf = fresh();

	(void)state;
	add_record(btf, "task_struct", "stack");
	add_record(btf, "another", "bpf_storage");
	read_out(btf);
	assert_false(features.task_storage);
	btf = fresh();
	add_record(btf, "task_struct", "bpf_storage");
	add_record(btf, "bpf_map_memory", "pages");
	add_record(btf, "bpf_prog_info", "verified_insns");
	add_record(btf, "bpf_iter_link_info", "task");
	read_out(btf);
	assert_true(features.task_storage && features.memlock && features.verified_insns &&
		    features.iter_task_filtered);
}

/* The 5-argument form stays in kernels that have the other, under the old name. */
static void task_work_goes_by_name_and_arguments(void **state)
{
	static const struct {
		u32 plain, impl; /* arguments; 0: not there */
		enum features_task_work want;
	} rows[] = {
		{ 0, 0, TASK_WORK_NONE },  { 0, 5, TASK_WORK_IMPL },  { 4, 0, TASK_WORK_PLAIN },
		{ 4, 5, TASK_WORK_PLAIN }, { 5, 0, TASK_WORK_NONE },  { 0, 4, TASK_WORK_NONE },
		{ 3, 5, TASK_WORK_IMPL },  { 0, 33, TASK_WORK_NONE },
	};
	size_t i, first;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		/* In either order. */
		for (first = 0; first < 2; first++) {
			struct btf *btf = fresh();

			if (rows[i].impl && !first)
				add_function(btf, "bpf_task_work_schedule_resume_impl",
					     rows[i].impl);
			if (rows[i].plain)
				add_function(btf, "bpf_task_work_schedule_resume", rows[i].plain);
			if (rows[i].impl && first)
				add_function(btf, "bpf_task_work_schedule_resume_impl",
					     rows[i].impl);
			read_out(btf);
			assert_int_equal(features.task_work, rows[i].want);
		}
	}
}

static void sched_switch_arguments_are_counted_without_the_context(void **state)
{
	u32 args;

	(void)state;
	for (args = 0; args <= 5; args++) {
		struct btf *btf = fresh();
		int proto = add_proto(btf, args);

		good(btf__add_typedef(btf, "btf_trace_sched_switch",
				      good(btf__add_ptr(btf, proto))));
		read_out(btf);
		assert_int_equal(features.sched_switch_args, args > 1 ? args - 1 : 0);
	}
}

static void sleeping_iterator_needs_both_halves(void **state)
{
	struct btf *btf = fresh();

	(void)state;
	add_constant(btf, "bpf_func_id", "BPF_FUNC_copy_from_user_task");
	read_out(btf);
	assert_false(features.iter_task_sleeps);
	btf = fresh();
	add_function(btf, "bpf_iter_task", 1);
	read_out(btf);
	assert_true(features.iter_task);
	assert_false(features.iter_task_sleeps);
	btf = fresh();
	add_constant(btf, "bpf_func_id", "BPF_FUNC_copy_from_user_task");
	add_function(btf, "bpf_iter_task", 1);
	read_out(btf);
	assert_true(features.iter_task_sleeps);
}

/* Cut anywhere, or no BTF at all: an error, and no feature is claimed. */
static void cut_blobs_give_an_error_and_no_feature(void **state)
{
	struct features none = { 0 };
	struct btf *btf = fresh();
	_cleanup_free_ char *copy = NULL;
	const void *data;
	u32 size, cut;

	(void)state;
	add_constant(btf, "bpf_func_id", "BPF_FUNC_loop");
	add_function(btf, "bpf_iter_task", 1);
	data = btf__raw_data(btf, &size);
	for (cut = 0; cut < size; cut++) {
		copy = malloc(cut + 1);
		assert_non_null(copy);
		memcpy(copy, data, cut);
		memset(&features, 0xff, sizeof(features));
		assert_true(features_from_btf(copy, cut, &features) < 0);
		assert_memory_equal(&features, &none, sizeof(none));
		freep(&copy);
		copy = NULL;
	}
	btf__free(btf);
	assert_true(features_from_btf("\x7f"
				      "ELF, not BTF, and long enough to be a header",
				      45, &features) < 0);
}

/* --- this host -------------------------------------------------------------------------------- */

static bool shell(const char *cmd)
{
	return !system(cmd);
}

static bool in_kernel(const char *pattern)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd),
		 "PATH=$PATH:/usr/sbin; bpftool btf dump file " VMLINUX
		 " format raw | grep -qE -- \"%s\"",
		 pattern);
	return shell(cmd);
}

static void this_host_is_read_as_bpftool_reads_it(void **state)
{
	const struct features *f;
	int args;

	(void)state;
	if (access(VMLINUX, R_OK) || !shell("PATH=$PATH:/usr/sbin; command -v bpftool >/dev/null"))
		skip();
	f = features_host();
	assert_true(f->btf);
	assert_ptr_equal(f, features_host());
	assert_int_equal(f->loop, in_kernel("'BPF_FUNC_loop'"));
	assert_int_equal(f->task_pt_regs, in_kernel("'BPF_FUNC_task_pt_regs'"));
	assert_int_equal(f->arena, in_kernel("'BPF_MAP_TYPE_ARENA'"));
	assert_int_equal(f->iter_num, in_kernel("FUNC 'bpf_iter_num_new'"));
	assert_int_equal(f->memlock, in_kernel("STRUCT 'bpf_map_memory'"));
	assert_int_equal(f->task_storage, in_kernel("'bpf_storage' type_id"));
	args = features_kfunc_args("bpf_task_work_schedule_resume");
	assert_int_equal(f->task_work == TASK_WORK_PLAIN, args == 4);
	assert_int_equal(features_kfunc_args("no such function"), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_without_anything_has_no_feature),
		cmocka_unit_test(helpers_are_known_by_the_constants_that_name_them),
		cmocka_unit_test(members_count_only_in_their_own_record),
		cmocka_unit_test(task_work_goes_by_name_and_arguments),
		cmocka_unit_test(sched_switch_arguments_are_counted_without_the_context),
		cmocka_unit_test(sleeping_iterator_needs_both_halves),
		cmocka_unit_test(cut_blobs_give_an_error_and_no_feature),
		cmocka_unit_test(this_host_is_read_as_bpftool_reads_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
