// SPDX-License-Identifier: Apache-2.0
/*
 * Processes as targets. This program and its children are looked at from outside; what the dynamic
 * linker, the compiler and the kernel say of them is what is expected. ELF images that lie are built
 * by hand.
 */
#include "core/elfmem.h"
#include "core/elfname.h"
#include "core/reader.h"
#include "core/target.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#define PAGE 4096ull

static struct reader *reader;

static int start_reader(void **state __unused)
{
	reader = reader_new();
	return reader ? 0 : -1;
}

static int end_reader(void **state __unused)
{
	reader_free(reader);
	return 0;
}

static struct target *target_of(pid_t pid)
{
	struct target *t;

	assert_int_equal(target_live_new((u32)pid, reader, NULL, NULL, NULL, &t), 0);
	target_begin(t);
	return t;
}

static u64 address(const void *p)
{
	return (u64)(uintptr_t)p;
}

static u8 *map_pages(u32 n)
{
	u8 *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* A child that stands still with a copy of our memory. */
static pid_t start_child(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		for (;;)
			pause();
	}
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- reading --------------------------------------------------------------------------------- */

static void memory_is_read_as_the_process_has_it(void **state __unused)
{
	static const u64 value = 0x1122334455667788;
	u64 got = 0;
	u32 half = 0;
	struct target *t = target_of(getpid());

	assert_int_equal(target_u64(t, address(&value), &got), 0);
	assert_int_equal(got, value);
	assert_int_equal(target_u32(t, address(&value) + 4, &half), 0);
	assert_int_equal(half, 0x11223344);
	target_free(t);
}

static void pointers_to_unmapped_kernel_and_impossible_memory_are_faults(void **state __unused)
{
	static const u64 bad[] = { 0,
				   8,
				   1,
				   0x0000800000000000,
				   1ull << 63,
				   0xffff888000000000,
				   UINT64_MAX,
				   UINT64_MAX - 7,
				   0xdead0000000000ff };
	struct target *t = target_of(getpid());
	u8 *pages = map_pages(3);
	char text[32];
	u64 got;
	u32 i;

	mprotect(pages + PAGE, PAGE, PROT_NONE);
	munmap(pages + 2 * PAGE, PAGE);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(target_u64(t, bad[i], &got), -EFAULT);
		assert_int_equal(target_string(t, bad[i], 16, text, sizeof(text)), -EFAULT);
		assert_string_equal(text, "");
	}
	assert_int_equal(target_u64(t, address(pages) + PAGE, &got), -EFAULT);
	assert_int_equal(target_u64(t, address(pages) + PAGE - 4, &got), -EFAULT);
	assert_int_equal(target_u64(t, address(pages) + PAGE - 8, &got), 0);
	assert_int_equal(target_u64(t, address(pages) + 1, &got), 0); /* misaligned is fine */
	assert_int_equal(target_read(t, address(pages), text, TARGET_READ_MAX + 1), -EFAULT);
	munmap(pages, 2 * PAGE);
	target_free(t);
}

static void large_reads_and_page_borders_give_all_bytes(void **state __unused)
{
	struct target *t = target_of(getpid());
	u8 *pages = map_pages(16), *got = malloc(16 * PAGE);
	size_t i, len;

	for (i = 0; i < 16 * PAGE; i++)
		pages[i] = (u8)(i * 2654435761u >> 13);
	for (len = 1; len <= 15 * PAGE; len = len * 3 + 1) {
		assert_int_equal(target_read(t, address(pages) + 1000, got, len), 0);
		assert_memory_equal(got, pages + 1000, len);
	}
	free(got);
	munmap(pages, 16 * PAGE);
	target_free(t);
}

static void strings_end_at_nul_at_their_length_or_at_the_room(void **state __unused)
{
	struct target *t = target_of(getpid());
	u8 *pages = map_pages(3);
	u64 at = address(pages) + PAGE - 4;
	char text[64];

	memset(pages, 'x', 2 * PAGE);
	memcpy(pages + PAGE - 4, "func", 4);
	memcpy(pages + PAGE, "tion\0rest", 9);
	assert_int_equal(target_string(t, at, 60, text, sizeof(text)), 8);
	assert_string_equal(text, "function");
	assert_int_equal(target_string(t, at, 3, text, sizeof(text)), 3);
	assert_string_equal(text, "fun");
	assert_int_equal(target_string(t, at, 60, text, 6), 5);
	assert_string_equal(text, "funct");
	assert_int_equal(target_string(t, at, 0, text, 6), 0);
	assert_int_equal(target_string(t, at, 60, text, 0), -EFAULT);
	/* Not terminated: up to the room; or into memory that is none. */
	munmap(pages + 2 * PAGE, PAGE);
	assert_int_equal(target_string(t, address(pages), SIZE_MAX, text, sizeof(text)), 63);
	memset(pages + PAGE, 'x', PAGE);
	target_begin(t);
	assert_int_equal(target_string(t, address(pages) + 2 * PAGE - 4, 60, text, sizeof(text)),
			 -EFAULT);
	assert_string_equal(text, "");
	assert_int_equal(target_string(t, address(pages) + 2 * PAGE - 4, 4, text, sizeof(text)), 4);
	munmap(pages, 2 * PAGE);
	target_free(t);
}

static void a_walk_sees_one_picture_of_a_page_and_the_next_walk_a_new_one(void **state __unused)
{
	struct target *t = target_of(getpid());
	u8 *page = map_pages(1);
	u64 got;

	*(u64 *)page = 1;
	assert_int_equal(target_u64(t, address(page), &got), 0);
	*(u64 *)page = 2;
	*(u64 *)(page + 8) = 2;
	assert_int_equal(target_u64(t, address(page) + 8, &got), 0);
	assert_int_equal(got, 0);
	target_begin(t);
	assert_int_equal(target_u64(t, address(page), &got), 0);
	assert_int_equal(got, 2);
	*(u64 *)page = 3;
	target_rest(t);
	assert_int_equal(target_u64(t, address(page), &got), 0);
	assert_int_equal(got, 3);
	munmap(page, PAGE);
	target_free(t);
}

static void reads_and_questions_of_one_walk_are_bounded(void **state __unused)
{
	static const u64 value = 7;
	struct target *t = target_of(getpid());
	struct target_module m;
	u64 got;
	u32 i;

	for (i = 0; i < TARGET_READS_MAX; i++)
		assert_int_equal(target_u64(t, address(&value), &got), 0);
	assert_int_equal(target_u64(t, address(&value), &got), -EFAULT);
	for (i = 0; i < TARGET_ASKS_MAX; i++)
		assert_true(target_module(t, 0, &m));
	assert_false(target_module(t, 0, &m));
	assert_int_equal(target_symbol(t, 0, "main", NULL), 0);
	target_begin(t);
	assert_int_equal(target_u64(t, address(&value), &got), 0);
	assert_true(target_module(t, 0, &m));
	target_free(t);
}

static void more_pages_than_the_cache_holds_are_all_read_right(void **state __unused)
{
	struct target *t = target_of(getpid());
	const u32 n = 1500;
	u8 *pages = map_pages(n);
	u64 got;
	u32 i, turn;

	for (i = 0; i < n; i++)
		*(u64 *)(pages + i * PAGE) = i;
	for (turn = 0; turn < 2; turn++)
		for (i = 0; i < n; i++) {
			assert_int_equal(target_u64(t, address(pages) + i * PAGE, &got), 0);
			assert_int_equal(got, i);
		}
	munmap(pages, n * PAGE);
	target_free(t);
}

/* --- modules, symbols, sections, functions --------------------------------------------------- */

/* In a section and under names that only this file has. */
__attribute__((section("target_test"), used)) static u64 target_test_words[5] = { 1 };
extern u64 __start_target_test[], __stop_target_test[];
__thread u64 target_test_tls[3];

__attribute__((noinline, used)) static int target_test_function(int n)
{
	u32 i;

	for (i = 0; i < 10; i++)
		n = n * 3 + (int)i;
	__asm__ volatile("" : "+r"(n));
	return n;
}

/* The module that has an address of code; UINT32_MAX: none. */
static u32 module_at(struct target *t, u64 addr, struct target_module *ret)
{
	u32 i;

	for (i = 0; target_module(t, i, ret); i++)
		if (addr >= ret->lo && addr < ret->hi)
			return i;
	return UINT32_MAX;
}

struct listed {
	struct target *t;
	u32 n;
};

static int check_listed(struct dl_phdr_info *info, size_t size __unused, void *arg)
{
	struct listed *l = arg;
	struct target_module m;
	u64 lo = 0, hi = 0;
	u32 i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X))
			continue;
		lo = lo ? lo : info->dlpi_addr + ph->p_vaddr;
		hi = info->dlpi_addr + ph->p_vaddr + ph->p_memsz;
	}
	assert_int_not_equal(module_at(l->t, lo, &m), UINT32_MAX);
	assert_int_equal(m.bias, info->dlpi_addr);
	assert_int_equal(m.lo, lo);
	assert_int_equal(m.hi, hi);
	l->n++;
	return 0;
}

static void modules_are_those_that_the_dynamic_linker_lists(void **state __unused)
{
	struct listed l = { .t = target_of(getpid()) };
	struct target_module m, before = { 0 };
	u32 i;

	dl_iterate_phdr(check_listed, &l);
	assert_true(l.n >= 3);
	for (i = 0; target_module(l.t, i, &m); i++) {
		assert_true(m.lo > before.lo);
		before = m;
	}
	assert_int_equal(i, l.n);
	target_free(l.t);
}

static void exported_symbols_are_found_in_memory(void **state __unused)
{
	static const char *const names[] = { "malloc", "pthread_create", "getenv", "environ",
					     "_IO_2_1_stdout_" };
	void *lib = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	struct target *t = target_of(getpid());
	struct target_module m;
	u32 libc = module_at(t, address(dlsym(lib, "getenv")), &m), i;
	u64 size;

	assert_int_not_equal(libc, UINT32_MAX);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(target_symbol(t, libc, names[i], &size),
				 address(dlsym(lib, names[i])));
		assert_true(size > 0);
	}
	assert_int_equal(target_symbol(t, libc, "no_such_name_in_libc", &size), 0);
	assert_int_equal(size, 0);
	assert_int_equal(target_symbol(t, libc, "", &size), 0);
	assert_int_equal(target_symbol(t, TARGET_MODULES_MAX, "malloc", &size), 0);
	target_free(t);
	dlclose(lib);
}

static void local_symbols_come_from_the_file(void **state __unused)
{
	struct target *t = target_of(getpid());
	struct target_module m;
	u32 self = module_at(t, address((void *)target_test_function), &m);
	u64 size, lo, hi;

	assert_int_not_equal(self, UINT32_MAX);
	assert_int_equal(target_symbol(t, self, "target_test_function", &size),
			 address((void *)target_test_function));
	/* The compiler's unwind table has the same range. */
	assert_true(target_function(t, self, address((void *)target_test_function) + 5, &lo, &hi));
	assert_int_equal(lo, address((void *)target_test_function));
	assert_int_equal(hi, lo + size);
	assert_int_equal(target_symbol(t, self, "target_test_words", &size),
			 address(target_test_words));
	assert_int_equal(size, sizeof(target_test_words));
	/* A part of a name is no name, nor is a longer one. */
	assert_int_equal(target_symbol(t, self, "target_test_word", NULL), 0);
	assert_int_equal(target_symbol(t, self, "target_test_wordsx", NULL), 0);
	assert_int_equal(target_symbol(t, self, "test_words", NULL), 0);
	target_free(t);
}

static void thread_local_symbols_give_their_offset_in_the_block(void **state __unused)
{
	struct target *t = target_of(getpid());
	struct target_module m;
	u32 self = module_at(t, address((void *)target_test_function), &m);
	u64 size, offset;

	target_test_tls[0] = 1;
	offset = target_symbol(t, self, "target_test_tls", &size);
	assert_int_equal(size, sizeof(target_test_tls));
	assert_true(offset < 65536);
	target_free(t);
}

static void sections_come_from_the_file(void **state __unused)
{
	struct target *t = target_of(getpid());
	struct target_module m;
	u32 self = module_at(t, address((void *)target_test_function), &m);
	u64 size;

	assert_int_equal(target_section(t, self, "target_test", &size),
			 address(__start_target_test));
	assert_int_equal(size, address(__stop_target_test) - address(__start_target_test));
	assert_int_equal(target_section(t, self, ".no_such_section", &size), 0);
	assert_int_equal(size, 0);
	/* It is in the file, but not in memory. */
	assert_int_equal(target_section(t, self, ".symtab", &size), 0);
	target_free(t);
}

static void functions_are_found_by_any_address_in_them(void **state __unused)
{
	struct target *t = target_of(getpid());
	struct target_module m;
	u64 start = address(dlsym(RTLD_DEFAULT, "getenv")), size, lo, hi, addr;
	u32 libc = module_at(t, start, &m);

	start = target_symbol(t, libc, "getenv", &size);
	for (addr = start; addr < start + size; addr += 7) {
		assert_true(target_function(t, libc, addr, &lo, &hi));
		assert_int_equal(lo, start);
		assert_int_equal(hi, start + size);
	}
	assert_false(target_function(t, libc, m.lo - 1, &lo, &hi));
	assert_false(target_function(t, libc, 0, &lo, &hi));
	assert_false(target_function(t, libc, UINT64_MAX, &lo, &hi));
	target_free(t);
}

static void addresses_are_told_by_what_lies_there(void **state __unused)
{
	struct target *t = target_of(getpid());
	u8 *page = map_pages(1);
	static u64 bss[2000];

	target_rest(t); /* the page is new */
	assert_int_equal(target_memory(t, address((void *)target_test_function)), TARGET_IMAGE);
	assert_int_equal(target_memory(t, address(bss)), TARGET_IMAGE);
	assert_int_equal(target_memory(t, address(dlsym(RTLD_DEFAULT, "getenv"))), TARGET_IMAGE);
	assert_int_equal(target_memory(t, address(page)), TARGET_OTHER);
	assert_int_equal(target_memory(t, address(&page)), TARGET_OTHER);
	assert_int_equal(target_memory(t, 0), TARGET_NOTHING);
	assert_int_equal(target_memory(t, UINT64_MAX), TARGET_NOTHING);
	munmap(page, PAGE);
	target_free(t);
}

/* A file that is replaced, or removed, after it was mapped. */
static void a_removed_file_is_read_through_its_mapping(void **state __unused)
{
	char path[] = "/tmp/test_target_XXXXXX", command[512];
	int fd = mkstemp(path);
	struct target_module m;
	struct target *t;
	void *lib;
	u64 size;
	u32 i;

	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command),
		 "echo 'static int local_in_lib(int a) { return a * 7; } int in_lib(int a);"
		 " int in_lib(int a) { return local_in_lib(a) + local_in_lib(a + 1); }'"
		 " | ${CC:-cc} -O0 -x c -shared -fPIC -o %s -",
		 path);
	if (system(command))
		skip();
	lib = dlopen(path, RTLD_NOW);
	assert_non_null(lib);
	unlink(path);
	t = target_of(getpid());
	i = module_at(t, address(dlsym(lib, "in_lib")), &m);
	assert_string_equal(m.path, path);
	assert_int_equal(target_symbol(t, i, "in_lib", &size), address(dlsym(lib, "in_lib")));
	/* map_files is for root alone; for others there is no file left. */
	if (!geteuid())
		assert_true(target_symbol(t, i, "local_in_lib", &size) >= m.lo);
	else
		assert_int_equal(target_symbol(t, i, "local_in_lib", &size), 0);
	target_free(t);
	dlclose(lib);
}

/* --- threads, life --------------------------------------------------------------------------- */

static struct {
	int ends[2];
	_Atomic pid_t tid;
} other;

static void *wait_for_end(void *arg __unused)
{
	char c;

	other.tid = (pid_t)syscall(SYS_gettid);
	return (void *)read(other.ends[0], &c, 1);
}

static void threads_are_those_of_the_process(void **state __unused)
{
	struct target *t = target_of(getpid());
	bool main_seen = false, other_seen = false;
	struct target_thread th;
	struct stat st;
	pthread_t thread;
	u32 i;

	assert_int_equal(pipe(other.ends), 0);
	pthread_create(&thread, NULL, wait_for_end, NULL);
	while (!other.tid)
		usleep(1000);
	for (i = 0; target_thread(t, i, &th); i++) {
		main_seen |= (pid_t)th.tid == getpid();
		other_seen |= (pid_t)th.tid == other.tid;
	}
	assert_true(main_seen && other_seen);
	/* A folder has two links, and one more for each folder in it. */
	assert_int_equal(stat("/proc/self/task", &st), 0);
	assert_int_equal(i, st.st_nlink - 2);
	close(other.ends[1]);
	pthread_join(thread, NULL);
	close(other.ends[0]);
	target_free(t);
}

static int tell_two(void *arg, u32 tgid, target_thread_fn *fn, void *fn_arg)
{
	*(u32 *)arg = tgid;
	fn(fn_arg, &(struct target_thread){ .tid = 5, .tp = 0x5000 });
	fn(fn_arg, &(struct target_thread){ .tid = 6, .tp = 0x6000 });
	return 0;
}

static int tell_none(void *arg __unused, u32 tgid __unused, target_thread_fn *fn, void *fn_arg)
{
	fn(fn_arg, &(struct target_thread){ .tid = 5, .tp = 0x5000 });
	return -ENOENT;
}

static void threads_are_what_the_kernels_side_tells_if_it_can(void **state __unused)
{
	struct target_thread th;
	struct target *t;
	u32 tgid = 0;

	assert_int_equal(target_live_new((u32)getpid(), reader, NULL, tell_two, &tgid, &t), 0);
	target_begin(t);
	assert_true(target_thread(t, 1, &th));
	assert_int_equal(th.tid, 6);
	assert_int_equal(th.tp, 0x6000);
	assert_false(target_thread(t, 2, &th));
	assert_int_equal(tgid, getpid());
	target_free(t);
	assert_int_equal(target_live_new((u32)getpid(), reader, NULL, tell_none, NULL, &t), 0);
	target_begin(t);
	assert_true(target_thread(t, 0, &th));
	assert_int_equal(th.tid, getpid());
	target_free(t);
}

static void a_process_that_is_gone_is_a_fault_and_cannot_be_opened(void **state __unused)
{
	pid_t pid = start_child();
	struct target *t = target_of(pid);
	u64 got;

	assert_int_equal(target_u64(t, address(&reader), &got), 0);
	end_child(pid);
	target_begin(t);
	assert_int_equal(target_u64(t, address(&reader), &got), -EFAULT);
	assert_false(t->hung);
	target_free(t);
	assert_int_equal(target_live_new((u32)pid, reader, NULL, NULL, NULL, &t), -ESRCH);
}

static void after_an_exec_nothing_more_is_read(void **state __unused)
{
	int go[2];
	struct target_module m;
	struct target *t;
	char path[64];
	pid_t pid;
	u64 got;
	u32 i;

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		char c;

		if (read(go[0], &c, 1) == 1)
			execl("/bin/sleep", "sleep", "100", (char *)NULL);
		_exit(1);
	}
	t = target_of(pid);
	assert_int_equal(target_u64(t, address(&reader), &got), 0);
	assert_int_equal(write(go[1], "x", 1), 1);
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	for (i = 0; i < 5000; i++) {
		char exe[256] = "";

		if (readlink(path, exe, sizeof(exe) - 1) > 0 && !strstr(exe, "test_target"))
			break;
		usleep(1000);
	}
	target_begin(t);
	assert_int_equal(target_u64(t, address(&reader), &got), -EFAULT);
	target_rest(t);
	assert_false(target_module(t, 0, &m));
	target_free(t);
	end_child(pid);
	close(go[0]);
	close(go[1]);
}

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void tens_of_thousands_of_mappings_cost_bounded_time(void **state __unused)
{
	const u32 n = 30000;
	u8 *pages = mmap(NULL, 2 * n * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct target_module m;
	struct target *t;
	double start;
	u32 i;

	for (i = 0; i < n; i++)
		munmap(pages + (2 * i + 1) * PAGE, PAGE);
	start = cpu_ms();
	t = target_of(getpid());
	assert_int_not_equal(module_at(t, address((void *)target_test_function), &m), UINT32_MAX);
	assert_int_equal(target_memory(t, address(pages) + 20000 * PAGE), TARGET_OTHER);
	assert_int_equal(target_memory(t, address(pages) + 20001 * PAGE), TARGET_NOTHING);
	print_message("%u mappings: %.1f ms of CPU time\n", n, cpu_ms() - start);
	assert_true(cpu_ms() - start < 1000);
	target_free(t);
	munmap(pages, 2 * n * PAGE);
}

/* --- images that lie ------------------------------------------------------------------------- */

#define IMAGE_BASE 0x10000ull
#define IMAGE_SIZE (8 * PAGE)

/* A small shared object as it lies in memory, to be spoiled. */
struct image {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[4];
	Elf64_Dyn dyn[8];
	struct {
		u32 nbuckets, first, words, shift;
		u64 filter[1];
		u32 bucket[1], chain[3];
	} gnu;
	struct {
		u32 nbuckets, nchain, bucket[1], chain[4];
	} sysv;
	Elf64_Sym sym[4];
	char str[64];
	struct {
		u8 version, pointer, count, table;
		u32 frame, n;
		s32 entry[2][2];
	} hdr;
	struct {
		u32 len, id;
		u8 rest[16];
	} cie;
	struct {
		u32 len, cie;
		s32 start;
		u32 size;
		u8 rest[8];
	} fde[2];
};

struct memory {
	struct image image;
	u32 reads;
};

static int read_image(void *arg, u64 addr, void *dst, size_t len)
{
	struct memory *m = arg;

	m->reads++;
	/* The rest of its pages reads as zeros. */
	if (addr < IMAGE_BASE || addr > IMAGE_BASE + IMAGE_SIZE ||
	    len > IMAGE_BASE + IMAGE_SIZE - addr)
		return -EFAULT;
	memset(dst, 0, len);
	if (addr - IMAGE_BASE < sizeof(m->image))
		memcpy(dst, (u8 *)&m->image + (addr - IMAGE_BASE),
		       MIN(len, sizeof(m->image) - (addr - IMAGE_BASE)));
	return 0;
}

static u32 gnu_hash_of(const char *name)
{
	u32 h = 5381;

	for (; *name; name++)
		h = h * 33 + (u8)*name;
	return h;
}

#define AT(field) offsetof(struct image, field)

static void image_symbols(struct image *m)
{
	static const char *const names[] = { "first", "second", "third" };
	u32 i, at = 1;

	for (i = 0; i < 3; i++) {
		strcpy(m->str + at, names[i]);
		m->sym[i + 1] = (Elf64_Sym){ .st_name = at,
					     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
					     .st_shndx = 1,
					     .st_value = 0x100 * (i + 1),
					     .st_size = i + 1 };
		at += (u32)strlen(names[i]) + 1;
		m->gnu.chain[i] = gnu_hash_of(names[i]) & ~1u;
		m->sysv.chain[i + 1] = i;
	}
	m->gnu.chain[2] |= 1;
	m->gnu.nbuckets = m->gnu.words = 1;
	m->gnu.first = m->gnu.bucket[0] = 1;
	m->gnu.filter[0] = UINT64_MAX;
	m->sysv.nbuckets = 1;
	m->sysv.nchain = 4;
	m->sysv.bucket[0] = 3;
}

static void image_functions(struct image *m)
{
	u32 i;

	m->hdr.version = 1;
	m->hdr.pointer = 0x1b;
	m->hdr.count = 3;
	m->hdr.table = 0x3b;
	m->hdr.n = 2;
	m->cie.len = sizeof(m->cie) - 4;
	memcpy(m->cie.rest, "\1zR\0\1\x78\x10\1\x1b", 9);
	for (i = 0; i < 2; i++) {
		m->hdr.entry[i][0] = (s32)(0x1000 + 0x100 * i) - (s32)AT(hdr);
		m->hdr.entry[i][1] = (s32)(AT(fde) + i * sizeof(m->fde[0])) - (s32)AT(hdr);
		m->fde[i].len = sizeof(m->fde[0]) - 4;
		m->fde[i].cie = (u32)(AT(fde) + i * sizeof(m->fde[0]) + 4 - AT(cie));
		m->fde[i].size = 0x80;
	}
}

static void image_init(struct memory *mem, bool gnu)
{
	struct image *m = &mem->image;
	const Elf64_Dyn dyn[] = {
		{ DT_SYMTAB, { AT(sym) } },
		{ DT_STRTAB, { AT(str) } },
		{ DT_STRSZ, { sizeof(m->str) } },
		{ gnu ? DT_GNU_HASH : DT_HASH, { gnu ? AT(gnu) : AT(sysv) } },
	};

	memset(mem, 0, sizeof(*mem));
	memcpy(m->eh.e_ident, ELFMAG, SELFMAG);
	m->eh.e_ident[EI_CLASS] = ELFCLASS64;
	m->eh.e_ident[EI_DATA] = ELFDATA2LSB;
	m->eh.e_type = ET_DYN;
	m->eh.e_machine = EM_X86_64;
	m->eh.e_phoff = AT(ph);
	m->eh.e_phentsize = sizeof(m->ph[0]);
	m->eh.e_phnum = 4;
	m->ph[0] = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x1000, .p_memsz = 0x1000
	};
	m->ph[1] = (Elf64_Phdr){ .p_type = PT_LOAD,
				 .p_flags = PF_R | PF_X,
				 .p_offset = 0x1000,
				 .p_vaddr = 0x1000,
				 .p_filesz = 0x2000,
				 .p_memsz = 0x2000 };
	m->ph[2] =
		(Elf64_Phdr){ .p_type = PT_DYNAMIC, .p_vaddr = AT(dyn), .p_memsz = sizeof(m->dyn) };
	m->ph[3] = (Elf64_Phdr){ .p_type = PT_GNU_EH_FRAME,
				 .p_vaddr = AT(hdr),
				 .p_memsz = sizeof(m->hdr) };
	memcpy(m->dyn, dyn, sizeof(dyn));
	image_symbols(m);
	image_functions(m);
}

#define SOURCE(mem) (&(const struct elfmem_source){ read_image, (mem) })

static void an_image_in_memory_tells_its_symbols_and_functions(void **state __unused)
{
	struct elfmem_symbol sym;
	struct memory mem;
	struct elfmem m;
	u64 lo, hi;
	int gnu;

	for (gnu = 0; gnu < 2; gnu++) {
		image_init(&mem, gnu);
		assert_int_equal(elfmem_open(SOURCE(&mem), IMAGE_BASE, &m), 0);
		assert_int_equal(m.bias, IMAGE_BASE);
		assert_int_equal(m.lo, IMAGE_BASE + 0x1000);
		assert_int_equal(m.hi, IMAGE_BASE + 0x3000);
		assert_int_equal(elfmem_symbol(SOURCE(&mem), &m, "second", &sym), 0);
		assert_int_equal(sym.value, 0x200);
		assert_int_equal(sym.size, 2);
		assert_int_equal(elfmem_symbol(SOURCE(&mem), &m, "third", &sym), 0);
		assert_int_equal(elfmem_symbol(SOURCE(&mem), &m, "fourth", &sym), -ENOENT);
		assert_int_equal(elfmem_function(SOURCE(&mem), &m, IMAGE_BASE + 0x1110, &lo, &hi),
				 0);
		assert_int_equal(lo, IMAGE_BASE + 0x1100);
		assert_int_equal(hi, IMAGE_BASE + 0x1180);
		/* Between functions. */
		assert_int_equal(elfmem_function(SOURCE(&mem), &m, IMAGE_BASE + 0x1080, &lo, &hi),
				 -ENOENT);
		elfmem_fini(&m);
	}
}

static void a_hash_chain_without_an_end_ends(void **state __unused)
{
	struct elfmem_symbol sym;
	struct memory mem;
	struct elfmem m;

	/* Into zeros to the end of memory, and in a circle. */
	image_init(&mem, true);
	mem.image.gnu.chain[2] &= ~1u;
	assert_int_equal(elfmem_open(SOURCE(&mem), IMAGE_BASE, &m), 0);
	mem.reads = 0;
	assert_true(elfmem_symbol(SOURCE(&mem), &m, "fourth", &sym) < 0);
	assert_true(mem.reads < 1000);
	elfmem_fini(&m);
	image_init(&mem, false);
	mem.image.sysv.chain[1] = 3;
	assert_int_equal(elfmem_open(SOURCE(&mem), IMAGE_BASE, &m), 0);
	mem.reads = 0;
	assert_true(elfmem_symbol(SOURCE(&mem), &m, "fourth", &sym) < 0);
	assert_true(mem.reads < 1000);
	elfmem_fini(&m);
}

/* The filter of a GNU hash table is asked with the hash shifted by what the table says. */
static void a_filter_that_shifts_the_whole_hash_away_is_no_table(void **state __unused)
{
	struct elfmem_symbol sym;
	struct memory mem;
	struct elfmem m;

	image_init(&mem, true);
	mem.image.gnu.shift = 32;
	assert_int_equal(elfmem_open(SOURCE(&mem), IMAGE_BASE, &m), 0);
	assert_false(elfmem_may_have(&m, "second"));
	assert_true(elfmem_symbol(SOURCE(&mem), &m, "second", &sym) < 0);
	elfmem_fini(&m);
}

static void images_that_lie_are_refused_or_find_nothing(void **state __unused)
{
	static const u64 lies[] = { 0,          1,          7,          0x7fffffff, 0xffffffff,
				    1ull << 32, 1ull << 47, 1ull << 63, UINT64_MAX, UINT64_MAX - 7,
				    IMAGE_BASE };
	struct elfmem_symbol sym;
	struct memory mem;
	struct elfmem m;
	u64 lo, hi;
	u32 gnu, i;
	size_t at;

	/* Each word of all tables is each lie once. */
	for (gnu = 0; gnu < 2; gnu++)
		for (at = 0; at + 8 <= sizeof(mem.image); at += 4)
			for (i = 0; i < ARRAY_SIZE(lies); i++) {
				image_init(&mem, gnu);
				memcpy((u8 *)&mem.image + at, &lies[i], 8);
				if (elfmem_open(SOURCE(&mem), IMAGE_BASE, &m))
					continue;
				elfmem_symbol(SOURCE(&mem), &m, "second", &sym);
				elfmem_symbol(SOURCE(&mem), &m, "fourth", &sym);
				elfmem_function(SOURCE(&mem), &m, IMAGE_BASE + 0x1110, &lo, &hi);
				assert_true(mem.reads < 1000);
				elfmem_fini(&m);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_read_as_the_process_has_it),
		cmocka_unit_test(pointers_to_unmapped_kernel_and_impossible_memory_are_faults),
		cmocka_unit_test(large_reads_and_page_borders_give_all_bytes),
		cmocka_unit_test(strings_end_at_nul_at_their_length_or_at_the_room),
		cmocka_unit_test(a_walk_sees_one_picture_of_a_page_and_the_next_walk_a_new_one),
		cmocka_unit_test(reads_and_questions_of_one_walk_are_bounded),
		cmocka_unit_test(more_pages_than_the_cache_holds_are_all_read_right),
		cmocka_unit_test(modules_are_those_that_the_dynamic_linker_lists),
		cmocka_unit_test(exported_symbols_are_found_in_memory),
		cmocka_unit_test(local_symbols_come_from_the_file),
		cmocka_unit_test(thread_local_symbols_give_their_offset_in_the_block),
		cmocka_unit_test(sections_come_from_the_file),
		cmocka_unit_test(functions_are_found_by_any_address_in_them),
		cmocka_unit_test(addresses_are_told_by_what_lies_there),
		cmocka_unit_test(a_removed_file_is_read_through_its_mapping),
		cmocka_unit_test(threads_are_those_of_the_process),
		cmocka_unit_test(threads_are_what_the_kernels_side_tells_if_it_can),
		cmocka_unit_test(a_process_that_is_gone_is_a_fault_and_cannot_be_opened),
		cmocka_unit_test(after_an_exec_nothing_more_is_read),
		cmocka_unit_test(tens_of_thousands_of_mappings_cost_bounded_time),
		cmocka_unit_test(an_image_in_memory_tells_its_symbols_and_functions),
		cmocka_unit_test(a_hash_chain_without_an_end_ends),
		cmocka_unit_test(a_filter_that_shifts_the_whole_hash_away_is_no_table),
		cmocka_unit_test(images_that_lie_are_refused_or_find_nothing),
	};

	return cmocka_run_group_tests(tests, start_reader, end_reader);
}
