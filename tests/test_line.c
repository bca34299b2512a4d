// SPDX-License-Identifier: Apache-2.0
/*
 * The straight line without a kernel: recorded events in, profile text out. A recording is
 * tests/fixtures/line/NAME.events, its expected profiles NAME.folded, derived by hand from what
 * the events say happened.
 */
#include "core/identity.h"
#include "core/kallsyms.h"
#include "core/line.h"
#include "core/match.h"
#include "core/module.h"
#include "core/names.h"
#include "core/pprof.h"
#include "core/process.h"
#include "core/stat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
/* after those */
#include <cmocka.h>

#define DIR "tests/fixtures/line/"

struct player {
	struct modules *modules;
	struct processes *procs;
	struct kallsyms *kallsyms;
	struct identities *identities; /* NULL: everybody is wanted */
	struct match_filter filter;
	struct line *line;
	FILE *out;
};

static enum stack_end end_by_name(const char *name)
{
	static const char *const names[] = {
#define X(name, text) #name,
		STACK_END_LIST(X)
#undef X
	};
	u32 i;

	for (i = 0; i < STACK_END_MAX; i++)
		if (!strcmp(names[i], name))
			return i;
	fail_msg("no such end: %s", name);
	return 0;
}

/* "ffff,fff0" or "-" */
static u32 addresses(char *list, u64 *out)
{
	char *save, *s;
	u32 n = 0;

	if (!strcmp(list, "-"))
		return 0;
	for (s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save))
		out[n++] = strtoull(s, NULL, 16);
	return n;
}

static void set_key(struct stack_key *key, char **w)
{
	memset(key, 0, sizeof(*key));
	key->tgid = (u32)atoi(w[0]);
	key->start_ns = strtoull(w[1], NULL, 10);
	key->exec_id = (u32)atoi(w[2]);
	memcpy(key->comm, w[3], MIN(strlen(w[3]), sizeof(key->comm) - 1));
	key->stack_hash = strtoull(w[4], NULL, 16);
}

/* stack EPOCH TIME PID START EXEC COMM HASH END KERNEL USER */
static void play_stack(struct player *p, char **w)
{
	struct {
		struct stack_event ev;
		u64 ip[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
	} s = { 0 };
	int err;

	s.ev.epoch = (u64)atoll(w[0]);
	s.ev.time_ns = (u64)atoll(w[1]);
	set_key(&s.ev.key, w + 2);
	s.ev.end = end_by_name(w[7]);
	s.ev.nkernel = (u16)addresses(w[8], s.ip);
	s.ev.nuser = (u16)addresses(w[9], s.ip + s.ev.nkernel);
	err = line_stack(p->line, &s.ev, sizeof(s), false);
	if (err == -EAGAIN)
		err = line_stack(p->line, &s.ev, sizeof(s), true);
	assert_int_equal(err, 0);
}

static void print_window(struct player *p, struct window *w)
{
	u32 i;

	if (!w) {
		fprintf(p->out, "(window goes on)\n");
		return;
	}
	names_resolve(w, p->modules, NULL, NSEC_PER_SEC);
	for (i = 0; i < w->nprofiles; i++) {
		fprintf(p->out, "== %s %s\n", w->profiles[i].type->name, w->profiles[i].service);
		assert_int_equal(pprof_write_folded(w, &w->profiles[i], p->out), 0);
	}
	for (i = 0; i < STACK_END_MAX; i++)
		if (w->ends[i])
			fprintf(p->out, "end: %s %d\n", stack_end_text(i), (int)w->ends[i]);
	window_free(w);
}

static void play(struct player *p, char *text)
{
	struct task_event ev = { 0 };
	char *w[16] = { 0 }, *save, *s;
	struct stack_key key;
	u32 n = 0;

	for (s = strtok_r(text, " \n", &save); s && n < 16; s = strtok_r(NULL, " \n", &save))
		w[n++] = s;
	if (!n || *w[0] == '#')
		return;
	if (!strcmp(w[0], "epoch")) {
		assert_int_equal(
			line_open_epoch(p->line, (u64)atoll(w[1]), !strcmp(w[2], "new"), 1), 0);
	} else if (!strcmp(w[0], "close")) {
		print_window(p, line_close_epoch(p->line, (u64)atoll(w[1]), 2));
	} else if (!strcmp(w[0], "stack")) {
		play_stack(p, w + 1);
	} else if (!strcmp(w[0], "count")) { /* EPOCH PID START EXEC COMM HASH N */
		set_key(&key, w + 2);
		line_count(p->line, (u64)atoll(w[1]), &key,
			   &(struct stack_count){ .count = (u64)atoll(w[7]) });
	} else { /* task events: TIME PID ... */
		ev.time_ns = (u64)atoll(w[1]);
		ev.pid = (u32)atoi(w[2]);
		if (!strcmp(w[0], "fork")) {
			ev.type = TASK_FORK;
			ev.ppid = (u32)atoi(w[3]);
		} else if (!strcmp(w[0], "exec") || !strcmp(w[0], "comm")) {
			ev.type = *w[0] == 'e' ? TASK_EXEC : TASK_COMM;
			ev.comm = w[3];
		} else if (!strcmp(w[0], "mmap")) { /* LO HI OFFSET PATH */
			ev.type = TASK_MMAP;
			ev.file = (struct mapped_file){ .path = w[6],
							.lo = strtoull(w[3], NULL, 16),
							.hi = strtoull(w[4], NULL, 16),
							.ino = 7 };
			ev.offset = strtoull(w[5], NULL, 16);
		} else if (!strcmp(w[0], "exit")) {
			ev.type = TASK_EXIT;
		} else {
			fail_msg("unknown event '%s'", w[0]);
		}
		processes_event(p->procs, &ev);
	}
}

static void player_init_without(struct player *p, FILE *out, const char *service,
				const char *exclude)
{
	struct line_options o = { .period_ns = 10000000, .service = service };
	struct identity_options io = { .proc = "/nonexistent",
				       .root = "/nonexistent",
				       .filter = &p->filter };
	const char *why;

	*p = (struct player){ .out = out };
	p->modules = modules_new(1 << 20);
	p->procs = processes_new(p->modules, "/nonexistent", false);
	if (exclude) {
		assert_int_equal(match_parse_list(exclude, &p->filter.exclude, &why), 0);
		/* Nobody's files are there to be read. */
		p->identities = identities_new(p->procs, NULL, &io);
		assert_non_null(p->identities);
		o.identities = p->identities;
	}
	assert_int_equal(kallsyms_new(DIR "kallsyms", &p->kallsyms), 0);
	p->line = line_new(p->procs, NULL, p->kallsyms, &o);
	assert_non_null(p->line);
}

static void player_init(struct player *p, FILE *out, const char *service)
{
	player_init_without(p, out, service, NULL);
}

static void player_fini(struct player *p)
{
	line_free(p->line);
	identities_free(p->identities);
	processes_free(p->procs);
	modules_free(p->modules);
	kallsyms_free(p->kallsyms);
}

static char *play_file(const char *name)
{
	_cleanup_free_ char *events = NULL;
	char path[256], *text = NULL, *s, *save;
	struct player p;
	size_t size;
	FILE *out;

	snprintf(path, sizeof(path), DIR "%s.events", name);
	assert_int_equal(read_file(path, 1 << 20, &events, NULL), 0);
	out = open_memstream(&text, &size);
	player_init(&p, out, NULL);
	for (s = strtok_r(events, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
		play(&p, s);
	player_fini(&p);
	fclose(out);
	return text;
}

static void expect(const char *name)
{
	_cleanup_free_ char *text = play_file(name), *want = NULL;
	char path[256];

	snprintf(path, sizeof(path), DIR "%s.folded", name);
	assert_int_equal(read_file(path, 1 << 20, &want, NULL), 0);
	assert_string_equal(text, want);
}

static void one_program(void **state __unused)
{
	expect("program");
}

static void exec_and_fork_keep_images_apart(void **state __unused)
{
	expect("exec");
}

static void reused_pid_is_another_process(void **state __unused)
{
	expect("pid-reuse");
}

static void early_drain_goes_into_the_same_window(void **state __unused)
{
	expect("epochs");
}

static void return_address_outside_code_ends_the_stack(void **state __unused)
{
	expect("not-exec");
}

static void remapped_library_is_seen_as_of_the_sample(void **state __unused)
{
	expect("remap");
}

static void count_without_its_stack_is_a_named_loss(void **state __unused)
{
	u64 before = stat_get(STAT_lost_ring_full), kept = stat_get(STAT_samples_kept);

	expect("lost");
	assert_int_equal(stat_get(STAT_lost_ring_full) - before, 5);
	assert_int_equal(stat_get(STAT_samples_kept) - kept, 2);
}

static void malformed_events_are_refused(void **state __unused)
{
	struct {
		struct stack_event ev;
		u64 ip[4];
	} s = { .ev = { .nuser = 4, .end = STACK_END_COMPLETE } };
	struct player p;

	player_init(&p, stderr, NULL);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s.ev) - 1, true), -EINVAL);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s) - 8, true), -EINVAL);
	s.ev.nuser = MAX_USER_FRAMES + 1;
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), -EINVAL);
	s.ev.nuser = 1;
	s.ev.end = STACK_END_MAX;
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), -EINVAL);
	s.ev.end = STACK_END_COMPLETE;
	s.ev.ncontext = 4;
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), -EINVAL);
	s.ev.ncontext = CONTEXT_WORDS + 1;
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), -EINVAL);
	s.ev.ncontext = 0;
	s.ev.epoch = 9; /* not open */
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), -EINVAL);
	window_free(line_close_epoch(p.line, 0, 2));
	player_fini(&p);
}

/* One stack of a wait of process 8, as the programs send it; two kernel frames. */
struct wait_stack {
	struct stack_event ev;
	u64 ip[3];
};

static void make_wait(struct wait_stack *s, u64 object, u64 hash)
{
	*s = (struct wait_stack){
		.ev = {
			.key = {
				.start_ns = 1,
				.stack_hash = hash,
				.object = object,
				.tgid = 8,
				.exec_id = 1,
				.kind = STACK_OFF_CPU,
				.state = 'S',
				.call = SYS_futex,
				.comm = "a",
			},
			.time_ns = 20,
			.tid = 9,
			.nkernel = 1,
			.nuser = 1,
			.end = STACK_END_COMPLETE,
		},
		.ip = { 0xffffffff00000001, 0x10008 },
	};
}

static void play_process(struct player *p);

/* What stands behind the stack's addresses, byte for byte, and a route that is no text. */
static void contexts_become_labels(void **state __unused)
{
	static const u8 context[] =
		"\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c"
		"\xb7\xad\x6b\x71\x69\x20\x33\x31"
		"/a\x1b\xff/{id}";
	struct {
		struct wait_stack s;
		u64 more[8];
	} e = { 0 };
	const struct label_set *l;
	struct player p;
	struct window *w;

	player_init(&p, stderr, NULL);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	play_process(&p);
	make_wait(&e.s, 0, 1);
	memcpy((u8 *)&e + offsetof(struct wait_stack, ip[2]), context, sizeof(context));
	e.s.ev.ncontext = 5;
	assert_int_equal(line_stack(p.line, &e.s.ev, sizeof(e), true), 0);
	w = line_close_epoch(p.line, 0, 2);
	assert_non_null(w);
	l = &w->labels[0];
	assert_int_equal(l->nlabels, 5);
	assert_string_equal(l->labels[2].key, "trace_id");
	assert_string_equal(l->labels[2].value, "0af7651916cd43dd8448eb211c80319c");
	assert_string_equal(l->labels[3].key, "span_id");
	assert_string_equal(l->labels[3].value, "b7ad6b7169203331");
	assert_string_equal(l->labels[4].key, "http.route");
	assert_string_equal(l->labels[4].value, "/a?\xef\xbf\xbd/{id}");
	window_free(w);
	player_fini(&p);
}

static void play_process(struct player *p)
{
	char exec[] = "exec 10 8 a", map[] = "mmap 11 8 10000 20000 0 /bin/a";

	play(p, exec);
	play(p, map);
}

static const char *label(const struct window *w, const struct profile_sample *s, const char *key)
{
	const struct label_set *l = &w->labels[s->labels];
	u32 i;

	for (i = 0; i < l->nlabels; i++)
		if (!strcmp(l->labels[i].key, key))
			return l->labels[i].value;
	return NULL;
}

static const struct profile *profile_of(const struct window *w, const char *type)
{
	u32 i;

	for (i = 0; i < w->nprofiles; i++)
		if (!strcmp(w->profiles[i].type->name, type))
			return &w->profiles[i];
	return NULL;
}

static void waits_go_by_their_time_into_a_profile_of_their_own(void **state __unused)
{
	u64 kept = stat_get(STAT_waits_kept), cpu = stat_get(STAT_samples_kept);
	const struct stack_count count = { .count = 3, .ns = 123456789 };
	const struct profile *offcpu;
	struct wait_stack s;
	struct window *w;
	struct player p;

	player_init(&p, stderr, NULL);
	play_process(&p);
	make_wait(&s, 0, 77);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	line_count(p.line, 0, &s.ev.key, &count);
	w = line_close_epoch(p.line, 0, 2);
	assert_int_equal(w->nprofiles, 1);
	offcpu = profile_of(w, "offcpu");
	assert_non_null(offcpu);
	assert_int_equal(offcpu->nsamples, 1);
	assert_int_equal(offcpu->samples[0].count, 3);
	assert_int_equal(offcpu->samples[0].value_ns, 123456789);
	assert_string_equal(label(w, &offcpu->samples[0], "thread.state"), "S");
	assert_string_equal(label(w, &offcpu->samples[0], "wait"), "futex");
	assert_null(label(w, &offcpu->samples[0], "lock.address"));
	assert_int_equal(stat_get(STAT_waits_kept) - kept, 3);
	assert_int_equal(stat_get(STAT_samples_kept), cpu);
	window_free(w);
	player_fini(&p);
}

static void waits_for_locks_are_in_the_profile_of_locks_too(void **state __unused)
{
	const struct stack_count count = { .count = 2, .ns = 1000 };
	const struct profile *lock, *offcpu;
	struct wait_stack s;
	struct window *w;
	struct player p;
	u64 object;

	player_init(&p, stderr, NULL);
	play_process(&p);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	for (object = 0x7000; object <= 0x8000; object += 0x1000) {
		make_wait(&s, object, 77);
		assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
		line_count(p.line, 0, &s.ev.key, &count);
	}
	w = line_close_epoch(p.line, 0, 2);
	offcpu = profile_of(w, "offcpu");
	lock = profile_of(w, "lock");
	assert_true(offcpu && lock);
	/* Two locks at one place: one wait place, two lock places. */
	assert_int_equal(offcpu->nsamples, 1);
	assert_int_equal(offcpu->samples[0].value_ns, 2000);
	assert_int_equal(lock->nsamples, 2);
	assert_int_equal(lock->samples[0].value_ns, 1000);
	assert_string_equal(label(w, &lock->samples[0], "lock.address"), "0x7000");
	assert_string_equal(label(w, &lock->samples[1], "lock.address"), "0x8000");
	window_free(w);
	player_fini(&p);
}

static void lost_waits_are_told_apart_from_lost_samples(void **state __unused)
{
	u64 waits = stat_get(STAT_wait_lost_ring_full), samples = stat_get(STAT_lost_ring_full);
	const struct stack_count count = { .count = 5, .ns = 1000 };
	struct wait_stack s;
	struct player p;

	player_init(&p, stderr, NULL);
	make_wait(&s, 0, 77);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	line_count(p.line, 0, &s.ev.key, &count);
	assert_int_equal(stat_get(STAT_wait_lost_ring_full) - waits, 5);
	assert_int_equal(stat_get(STAT_lost_ring_full), samples);
	window_free(line_close_epoch(p.line, 0, 2));
	player_fini(&p);
}

static void events_have_their_stack_and_time_or_are_a_named_loss(void **state __unused)
{
	u64 lost = stat_get(STAT_marks_lost);
	struct sample_mark mark = { .epoch = 0, .time_ns = 5, .ns = 700, .n = 2, .tid = 12 };
	struct wait_stack s;
	struct window *w;
	struct player p;

	player_init(&p, stderr, NULL);
	play_process(&p);
	make_wait(&s, 0, 77);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	mark.key = s.ev.key;
	line_mark(p.line, &mark, 1000); /* its stack found no room in the ring buffer */
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 2);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	line_mark(p.line, &mark, 1000);
	mark.epoch = 3;
	line_mark(p.line, &mark, 1000);
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 4);
	w = line_close_epoch(p.line, 0, 2);
	assert_int_equal(w->nevents, 1);
	assert_int_equal(w->events[0].time_ns, 1000);
	assert_int_equal(w->events[0].ns, 700);
	assert_int_equal(w->events[0].n, 2);
	assert_int_equal(w->events[0].tid, 12);
	assert_ptr_equal(w->profiles[w->events[0].profile].type, &sample_offcpu);
	window_free(w);
	player_fini(&p);
}

static void events_of_who_is_left_out_are_not_kept(void **state __unused)
{
	u64 lost = stat_get(STAT_marks_lost), left_out = stat_get(STAT_waits_left_out);
	const struct stack_count count = { .count = 3, .ns = 700 };
	struct sample_mark mark = { .epoch = 0, .time_ns = 5, .ns = 700, .n = 3, .tid = 12 };
	struct wait_stack s;
	struct window *w;
	struct player p;

	player_init_without(&p, stderr, NULL, "exe:[kernel]");
	play_process(&p);
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	make_wait(&s, 0, 77);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	make_wait(&s, 0, 78);
	s.ev.end = STACK_END_NO_USER;
	s.ev.nkernel = 2;
	s.ev.nuser = 0;
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	mark.key = s.ev.key;
	line_mark(p.line, &mark, 1000);
	line_count(p.line, 0, &s.ev.key, &count);
	assert_int_equal(stat_get(STAT_marks_lost), lost);
	assert_int_equal(stat_get(STAT_waits_left_out) - left_out, 3);
	w = line_close_epoch(p.line, 0, 2);
	assert_int_equal(w->nevents, 0);
	assert_int_equal(w->nprofiles, 1);
	window_free(w);
	player_fini(&p);
}

/* Its own window, over all windows and epochs of the others. */
static void events_of_who_is_watched_are_kept_in_a_window_of_their_own(void **state __unused)
{
	u64 lost = stat_get(STAT_marks_lost);
	struct sample_mark mark = { .time_ns = 5, .ns = 700, .n = 2, .tid = 12 }, other;
	struct window *own = window_new(1), *w;
	struct wait_stack s, of_other;
	struct player p;

	player_init(&p, stderr, NULL);
	play_process(&p);
	make_wait(&s, 0, 77);
	mark.key = s.ev.key;
	make_wait(&of_other, 0, 78);
	of_other.ev.key.tgid = 9;
	other = mark;
	other.key = of_other.ev.key;
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	/* A stack from before is not in it until it comes again. */
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	line_watch(p.line, own, 8, 0, 3);
	line_mark(p.line, &mark, 1000);
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 2);
	for (u64 epoch = 1; epoch < 4; epoch++) {
		assert_int_equal(line_open_epoch(p.line, epoch, true, 1), 0);
		window_free(line_close_epoch(p.line, epoch - 1, 2));
		s.ev.epoch = of_other.ev.epoch = mark.epoch = other.epoch = epoch;
		assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
		assert_int_equal(line_stack(p.line, &of_other.ev, sizeof(s), true), 0);
		line_mark(p.line, &mark, 1000 * epoch);
		line_mark(p.line, &other, 1000 * epoch);
	}
	/* Another process under the same pid, and one too many. */
	other.key = mark.key;
	other.key.start_ns++;
	line_mark(p.line, &other, 4000);
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 2);
	line_mark(p.line, &mark, 4000);
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 4);
	line_watch(p.line, NULL, 0, 0, 0);
	w = line_close_epoch(p.line, 3, 2);
	assert_int_equal(w->nevents, 0);
	assert_int_equal(w->nlabels, 2);
	assert_int_equal(own->nevents, 3);
	assert_int_equal(own->nlabels, 1);
	assert_int_equal(own->events[2].time_ns, 3000);
	assert_int_equal(own->events[2].tid, 12);
	assert_int_equal(own->profiles[own->events[2].profile].nsamples, 1);
	window_free(w);
	window_free(own);
	player_fini(&p);
}

/* What the last watch knew of an epoch's stacks is no place in the next one's window. */
static void a_watch_knows_nothing_of_the_one_before(void **state __unused)
{
	u64 lost = stat_get(STAT_marks_lost);
	struct sample_mark mark = { .time_ns = 5, .ns = 700, .n = 2, .tid = 12 };
	struct window *first = window_new(1), *second = window_new(1);
	struct wait_stack s;
	struct player p;

	player_init(&p, stderr, NULL);
	play_process(&p);
	make_wait(&s, 0, 77);
	mark.key = s.ev.key;
	assert_int_equal(line_open_epoch(p.line, 0, true, 1), 0);
	line_watch(p.line, first, 8, 1, 9);
	assert_int_equal(line_stack(p.line, &s.ev, sizeof(s), true), 0);
	line_watch(p.line, NULL, 0, 0, 0);
	line_watch(p.line, second, 8, 1, 9);
	line_mark(p.line, &mark, 1000);
	assert_int_equal(second->nevents, 0);
	assert_int_equal(stat_get(STAT_marks_lost) - lost, 2);
	window_free(first);
	window_free(second);
	player_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_program),
		cmocka_unit_test(exec_and_fork_keep_images_apart),
		cmocka_unit_test(reused_pid_is_another_process),
		cmocka_unit_test(early_drain_goes_into_the_same_window),
		cmocka_unit_test(return_address_outside_code_ends_the_stack),
		cmocka_unit_test(remapped_library_is_seen_as_of_the_sample),
		cmocka_unit_test(count_without_its_stack_is_a_named_loss),
		cmocka_unit_test(malformed_events_are_refused),
		cmocka_unit_test(contexts_become_labels),
		cmocka_unit_test(waits_go_by_their_time_into_a_profile_of_their_own),
		cmocka_unit_test(waits_for_locks_are_in_the_profile_of_locks_too),
		cmocka_unit_test(lost_waits_are_told_apart_from_lost_samples),
		cmocka_unit_test(events_have_their_stack_and_time_or_are_a_named_loss),
		cmocka_unit_test(events_of_who_is_left_out_are_not_kept),
		cmocka_unit_test(events_of_who_is_watched_are_kept_in_a_window_of_their_own),
		cmocka_unit_test(a_watch_knows_nothing_of_the_one_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
