// SPDX-License-Identifier: Apache-2.0
/* Perf side-band records as bytes: what each means, and that malformed ones are refused. */
#include "core/sideband.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after those */
#include <cmocka.h>

struct record {
	u8 bytes[512];
	u32 len;
};

static void begin(struct record *r, u32 type, u16 misc)
{
	struct perf_event_header h = { .type = type, .misc = misc };

	memset(r, 0, sizeof(*r));
	memcpy(r->bytes, &h, sizeof(h));
	r->len = sizeof(h);
}

static void put(struct record *r, const void *data, u32 len)
{
	memcpy(r->bytes + r->len, data, len);
	r->len += len;
}

static void put32(struct record *r, u32 v)
{
	put(r, &v, 4);
}

static void put64(struct record *r, u64 v)
{
	put(r, &v, 8);
}

/* NUL-terminated and padded to 8, as the kernel does. */
static void put_string(struct record *r, const char *s)
{
	u32 n = (u32)strlen(s) + 1;

	put(r, s, n);
	r->len += (8 - n % 8) % 8;
}

/* {pid, tid} {time} {cpu, res}, and the size in the header. */
static void finish(struct record *r, u32 pid, u64 time)
{
	u16 size;

	put32(r, pid);
	put32(r, pid);
	put64(r, time);
	put64(r, 0);
	size = (u16)r->len;
	memcpy(r->bytes + offsetof(struct perf_event_header, size), &size, 2);
}

static void put_mmap2(struct record *r, u16 misc, const void *id, u32 id_len, const char *path)
{
	begin(r, PERF_RECORD_MMAP2, misc);
	put32(r, 70);
	put32(r, 71);
	put64(r, 0x400000);
	put64(r, 0x2000);
	put64(r, 0x1000);
	put(r, id, id_len); /* 24 bytes: {maj, min, ino, generation} or {size, .., build id} */
	put32(r, 5);
	put32(r, 2);
	put_string(r, path);
	finish(r, 70, 1234);
}

static void mmap2_with_inode(void **state __unused)
{
	struct {
		u32 major, minor;
		u64 ino, generation;
	} id = { 8, 1, 4711, 1 };
	struct task_event ev;
	struct record r;

	put_mmap2(&r, PERF_RECORD_MISC_USER, &id, sizeof(id), "/usr/bin/x");
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
	assert_int_equal(ev.type, TASK_MMAP);
	assert_int_equal(ev.pid, 70);
	assert_int_equal(ev.time_ns, 1234);
	assert_int_equal(ev.file.lo, 0x400000);
	assert_int_equal(ev.file.hi, 0x402000);
	assert_int_equal(ev.offset, 0x1000);
	assert_int_equal(ev.file.major, 8);
	assert_int_equal(ev.file.minor, 1);
	assert_int_equal(ev.file.ino, 4711);
	assert_int_equal(ev.file.build_id_len, 0);
	assert_string_equal(ev.file.path, "/usr/bin/x");
}

static void mmap2_with_build_id(void **state __unused)
{
	u8 id[24] = { 20, 0, 0, 0, 0xde, 0xad };
	struct task_event ev;
	struct record r;

	put_mmap2(&r, PERF_RECORD_MISC_USER | (1 << 14), id, sizeof(id), "/usr/bin/x");
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
	assert_int_equal(ev.file.build_id_len, 20);
	assert_int_equal(ev.file.build_id[0], 0xde);
	assert_int_equal(ev.file.ino, 0);
	id[0] = 21; /* longer than there is room */
	put_mmap2(&r, PERF_RECORD_MISC_USER | (1 << 14), id, sizeof(id), "/usr/bin/x");
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -EINVAL);
}

static void tasks(void **state __unused)
{
	struct task_event ev;
	struct record r;

	begin(&r, PERF_RECORD_FORK, 0); /* pid, ppid, tid, ptid, time */
	put32(&r, 70);
	put32(&r, 1);
	put32(&r, 70);
	put32(&r, 1);
	put64(&r, 5);
	finish(&r, 1, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
	assert_int_equal(ev.type, TASK_FORK);
	assert_int_equal(ev.pid, 70);
	assert_int_equal(ev.ppid, 1);

	begin(&r, PERF_RECORD_FORK, 0); /* a thread: same process */
	put32(&r, 70);
	put32(&r, 70);
	put32(&r, 72);
	put32(&r, 70);
	put64(&r, 5);
	finish(&r, 1, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -ENOENT);

	begin(&r, PERF_RECORD_EXIT, 0);
	put32(&r, 70);
	put32(&r, 1);
	put32(&r, 72); /* another thread of it */
	put32(&r, 1);
	put64(&r, 5);
	finish(&r, 70, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -ENOENT);

	begin(&r, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
	put32(&r, 70);
	put32(&r, 70);
	put_string(&r, "new");
	finish(&r, 70, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
	assert_int_equal(ev.type, TASK_EXEC);
	assert_string_equal(ev.comm, "new");

	begin(&r, PERF_RECORD_COMM, 0);
	put32(&r, 70);
	put32(&r, 71); /* a thread names itself */
	put_string(&r, "worker");
	finish(&r, 70, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -ENOENT);

	begin(&r, PERF_RECORD_LOST, 0);
	put64(&r, 1);
	put64(&r, 33);
	finish(&r, 0, 9);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
	assert_int_equal(ev.type, TASK_LOST);
	assert_int_equal(ev.n, 33);
}

/* include/uapi/linux/perf_event.h: u64 addr; u32 len; u16 type, flags; char name[]. */
static void the_kernels_own_code_comes_and_goes(void **state __unused)
{
	struct task_event ev;
	struct record r;
	u32 gone;

	for (gone = 0; gone < 2; gone++) {
		begin(&r, PERF_RECORD_KSYMBOL, 0);
		put64(&r, 0xffffffffc0001000);
		put32(&r, 0x80);
		put32(&r, PERF_RECORD_KSYMBOL_TYPE_BPF |
				  (gone ? PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER << 16 : 0));
		put_string(&r, "bpf_prog_1234_x");
		finish(&r, 0, 9);
		assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
		assert_int_equal(ev.type, TASK_CODE);
		assert_int_equal(ev.code, 0xffffffffc0001000);
		assert_int_equal(ev.code_len, 0x80);
		assert_string_equal(ev.module, "bpf");
		if (gone)
			assert_null(ev.symbol);
		else
			assert_string_equal(ev.symbol, "bpf_prog_1234_x");
	}
}

static void processes_without_a_number_here_are_nobody(void **state __unused)
{
	static const u32 numbers[] = { 0, ~0u };
	struct task_event ev;
	struct record r;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		begin(&r, PERF_RECORD_EXIT, 0); /* pid, ppid, tid, ptid, time */
		put32(&r, numbers[i]);
		put32(&r, numbers[i]);
		put32(&r, numbers[i]);
		put32(&r, numbers[i]);
		put64(&r, 5);
		finish(&r, numbers[i], 9);
		assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -ENOENT);
		begin(&r, PERF_RECORD_COMM, 1 << 13 /* exec */); /* pid, tid, comm */
		put32(&r, numbers[i]);
		put32(&r, numbers[i]);
		put_string(&r, "x");
		finish(&r, numbers[i], 9);
		assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -ENOENT);
		/* What is of the kernel has no process, and counts. */
		begin(&r, PERF_RECORD_LOST, 0); /* id, lost */
		put64(&r, 1);
		put64(&r, 3);
		finish(&r, numbers[i], 9);
		assert_int_equal(sideband_parse(r.bytes, r.len, &ev), 0);
		assert_int_equal(ev.type, TASK_LOST);
	}
}

static void every_truncation_is_refused(void **state __unused)
{
	u8 id[24] = { 0 };
	struct task_event ev;
	struct record r;
	u32 n;

	put_mmap2(&r, 0, id, sizeof(id), "/x");
	for (n = 0; n < r.len; n++)
		assert_int_equal(sideband_parse(r.bytes, n, &ev), -EINVAL);
	/* A path without its end, also when the size claims it is whole. */
	put_mmap2(&r, 0, id, sizeof(id), "/1234567/1234567");
	memset(r.bytes + sizeof(struct perf_event_header) + 64, 'a', 24);
	assert_int_equal(sideband_parse(r.bytes, r.len, &ev), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mmap2_with_inode),
		cmocka_unit_test(mmap2_with_build_id),
		cmocka_unit_test(tasks),
		cmocka_unit_test(the_kernels_own_code_comes_and_goes),
		cmocka_unit_test(processes_without_a_number_here_are_nobody),
		cmocka_unit_test(every_truncation_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
