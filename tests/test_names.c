// SPDX-License-Identifier: Apache-2.0
/*
 * Names of a window's frames, in steps: what is there at once, what comes while files are read,
 * what never comes. Expected names are those of this very program, and of a map written here.
 */
#include "core/fold.h"
#include "core/module.h"
#include "core/names.h"
#include "core/perfmap.h"
#include "core/stat.h"
#include "core/process.h"
#include "core/reader.h"

#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

__attribute__((noinline, used)) int _ZN5outer5innerEv(int x);
__attribute__((noinline, used)) int _ZN5outer5innerEv(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

struct world {
	struct modules *ms;
	struct reader *reader;
	struct perfmaps *pm;
	struct window *w;
	char dir[64];
	u64 id; /* of a process with a map */
};

static int own_offset(struct dl_phdr_info *info, size_t size, void *arg)
{
	u64 address = (uintptr_t)_ZN5outer5innerEv - info->dlpi_addr, *ret = arg;
	u32 i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - p->p_vaddr < p->p_filesz)
			*ret = address - p->p_vaddr + p->p_offset;
	}
	return 1;
}

static void add(struct world *t, const struct frame *f)
{
	struct sample s = { .type = &sample_cpu,
			    .service = "s",
			    .exe = "e",
			    .thread = "t",
			    .frames = f,
			    .nframes = 1 };
	struct fold_ref ref;

	assert_int_equal(fold_add(t->w, &s, &ref), 0);
	fold_count(t->w, ref, 1, 1);
}

/* One frame of this program, and one of code made at run time. */
static int setup(void **state)
{
	struct mapped_file self = { .path = "/proc/self/exe" };
	struct world *t = calloc(1, sizeof(*t));
	struct process p = { .pid = 7, .exec_id = 1 };
	char path[256], exe[4096] = { 0 };
	struct frame f = { .kind = FRAME_NATIVE };
	struct stat st;
	FILE *file;

	*state = t;
	strcpy(t->dir, "/tmp/names.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	snprintf(path, sizeof(path), "mkdir -p %s/7/root/tmp", t->dir);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s/7/status", t->dir);
	file = fopen(path, "w");
	fprintf(file, "Name:\tx\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t7\n", getuid(), getuid(), getuid(),
		getuid());
	fclose(file);
	t->ms = modules_new(64u << 20);
	t->reader = reader_new();
	t->pm = perfmaps_new(t->reader, t->dir);
	t->w = window_new(1);
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_int_equal(stat(exe, &st), 0);
	self.path = exe;
	self.ino = st.st_ino;
	self.major = (u32)(st.st_dev >> 8 & 0xfff);
	self.minor = (u32)(st.st_dev & 0xff);
	f.module = modules_get_unwind(t->ms, &self);
	assert_non_null(f.module);
	dl_iterate_phdr(own_offset, &f.address);
	add(t, &f);
	module_put(f.module);
	perfmaps_lookup(t->pm, &p, 0x1000, &t->id);
	f = (struct frame){
		.kind = FRAME_ANON, .address = 0x1008, .mapping = "//anon", .map = t->id
	};
	add(t, &f);
	return 0;
}

static int teardown(void **state)
{
	struct world *t = *state;
	char cmd[128];

	window_free(t->w);
	modules_free(t->ms);
	perfmaps_free(t->pm);
	reader_free(t->reader);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", t->dir);
	assert_int_equal(system(cmd), 0);
	free(t);
	return 0;
}

static void write_map(const struct world *t, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/7/root/tmp/perf-7.map", t->dir);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	chmod(path, 0644);
}

static void names_come_step_by_step_and_no_step_waits(void **state)
{
	struct world *t = *state;
	u64 end = now_monotonic() + 10 * NSEC_PER_SEC, cpu_free = 0;
	struct naming *n;
	u32 steps = 0;

	write_map(t, "1000 10 made_at_run_time\n");
	n = naming_new(t->w, t->ms, t->pm, end);
	assert_non_null(n);
	for (;;) {
		bool done = naming_step(n, now_monotonic());

		steps++;
		if (done)
			break;
		/* Others have their turn here. */
		usleep(1000);
		cpu_free += 1000;
	}
	assert_true(now_monotonic() < end);
	naming_free(n);
	print_message("%u steps, %llu us in between\n", steps, (unsigned long long)cpu_free);
	assert_string_equal(t->w->locations[0].func, "outer::inner");
	assert_string_equal(t->w->locations[0].linked, "_ZN5outer5innerEv");
	assert_string_equal(t->w->locations[1].func, "made_at_run_time");
	assert_null(t->w->locations[1].linked);
}

static void what_nobody_knows_is_not_waited_for(void **state)
{
	struct world *t = *state;
	u64 start = now_monotonic();

	/* No map, and an address that it does not have. */
	names_resolve(t->w, t->ms, t->pm, 60 * NSEC_PER_SEC);
	assert_null(t->w->locations[1].func);
	write_map(t, "2000 10 other\n");
	names_resolve(t->w, t->ms, t->pm, 60 * NSEC_PER_SEC);
	assert_null(t->w->locations[1].func);
	assert_true(now_monotonic() - start < 30 * NSEC_PER_SEC);
	assert_string_equal(t->w->locations[0].func, "outer::inner");
}

static void without_time_it_takes_what_is_there(void **state)
{
	struct world *t = *state;
	u64 late = stat_get(STAT_names_late);

	modules_settle(t->ms, now_monotonic() + 10 * NSEC_PER_SEC);
	names_resolve(t->w, t->ms, NULL, 0);
	assert_int_equal(stat_get(STAT_names_late), late + !t->w->locations[0].func);
	modules_settle(t->ms, now_monotonic() + 10 * NSEC_PER_SEC);
	names_resolve(t->w, t->ms, NULL, 0);
	assert_string_equal(t->w->locations[0].func, "outer::inner");
	assert_null(t->w->locations[1].func);
}

/* Text of all windows is bounded; what finds no room stays bare. */
static void a_window_full_of_text_keeps_its_frames_bare(void **state)
{
	struct world *t = *state;
	_cleanup_free_ char *big = malloc(1u << 20);
	u32 i;

	memset(big, 'x', (1u << 20) - 1);
	big[(1u << 20) - 1] = '\0';
	for (i = 0; i < WINDOW_MAX_TEXT >> 19; i++) {
		big[i % 1000] = (char)('a' + i % 26);
		window_string(t->w, big);
	}
	for (i = 0; i < 30000; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%u", i);
		window_string(t->w, text);
		if (!window_string(t->w, big + (1u << 20) - 100 - i))
			break;
	}
	names_resolve(t->w, t->ms, t->pm, 10 * NSEC_PER_SEC);
	assert_true(t->w->nlocations == 2);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(names_come_step_by_step_and_no_step_waits),
		TEST(what_nobody_knows_is_not_waited_for),
		TEST(without_time_it_takes_what_is_there),
		TEST(a_window_full_of_text_keeps_its_frames_bare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
