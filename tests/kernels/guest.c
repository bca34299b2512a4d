// SPDX-License-Identifier: Apache-2.0
/*
 * What a test guest checks: the real profiler, in /t, on this kernel. Records a program whose
 * chain of calls is known, one whose children live for milliseconds and one in a signal handler,
 * reads the profiles with generated code and judges them. Out: "@@ ok NAME" and "@@ not ok NAME: why", and figures as
 * "@@ insns PROGRAM N" (verifier.c), "@@ samples N", "@@ whole PERCENT". Status 0 when all is well.
 */
#include "core/util.h"
#include "profile.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <zlib.h>

#define PROFILE_MAX (64u << 20)
#define DEPTH       40
#define CHILDREN    20
#define PIDS_MAX    1024
#define FRAMES_MAX  1024

struct profile {
	Pprof__Profile *msg;
	Pprof__Location **locations; /* by id */
	Pprof__Function **functions;
	Pprof__Mapping **mappings;
};

/* One stack, leaf first; names are "" where there is none. */
struct stack {
	const char *names[FRAMES_MAX];
	bool kernel[FRAMES_MAX];
	u32 n;
	u64 count;
	const char *executable;
	s64 pid;
};

static bool failed;

static void verdict(bool good, const char *name, const char *fmt, ...) __printf(3, 4);
static void verdict(bool good, const char *name, const char *fmt, ...)
{
	va_list args;

	printf("@@ %s %s: ", good ? "ok" : "not ok", name);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	failed |= !good;
}

/* --- the profile ------------------------------------------------------------------------------ */

static int gunzip(const char *path, u8 **ret, size_t *ret_len)
{
	_cleanup_free_ u8 *data = malloc(PROFILE_MAX);
	gzFile f = gzopen(path, "rb");
	int n = -1;

	if (f && data)
		n = gzread(f, data, PROFILE_MAX);
	if (f)
		gzclose(f);
	if (n <= 0 || (u32)n >= PROFILE_MAX)
		return -EINVAL;
	*ret_len = (size_t)n;
	*ret = take_ptr(data);
	return 0;
}

/* Ids run from 1 to n in any order; each once. */
#define BY_ID(p, what)                                                 \
	({                                                             \
		size_t __n = (p)->msg->n_##what, __i, __good = 0;      \
		(p)->what##s = calloc(__n + 1, sizeof(*(p)->what##s)); \
		for (__i = 0; (p)->what##s && __i < __n; __i++) {      \
			u64 __id = (p)->msg->what[__i]->id;            \
			if (!__id || __id > __n || (p)->what##s[__id]) \
				break;                                 \
			(p)->what##s[__id] = (p)->msg->what[__i];      \
			__good++;                                      \
		}                                                      \
		__good == __n && (p)->what##s;                         \
	})

static void profile_fini(struct profile *p)
{
	free(p->locations);
	free(p->functions);
	free(p->mappings);
	if (p->msg)
		pprof__profile__free_unpacked(p->msg, NULL);
}

static int profile_read(const char *path, struct profile *p)
{
	_cleanup_free_ u8 *data = NULL;
	size_t len;
	int err = gunzip(path, &data, &len);

	if (err)
		return err;
	p->msg = pprof__profile__unpack(NULL, len, data);
	if (!p->msg || p->msg->period <= 0)
		return -EBADMSG;
	return BY_ID(p, location) && BY_ID(p, function) && BY_ID(p, mapping) ? 0 : -EBADMSG;
}

static const char *text(const struct profile *p, s64 index)
{
	return index >= 0 && (u64)index < p->msg->n_string_table ? p->msg->string_table[index] : "";
}

static void read_frame(const struct profile *p, u64 id, struct stack *s)
{
	const Pprof__Location *l = id <= p->msg->n_location ? p->locations[id] : NULL;
	const char *name = "", *file = "";
	u64 function;

	if (!l || s->n == FRAMES_MAX)
		return;
	if (l->n_line) {
		function = l->line[0]->function_id;
		if (function && function <= p->msg->n_function)
			name = text(p, p->functions[function]->name);
	}
	if (l->mapping_id && l->mapping_id <= p->msg->n_mapping)
		file = text(p, p->mappings[l->mapping_id]->filename);
	s->names[s->n] = name;
	s->kernel[s->n++] = !strcmp(file, "[kernel.kallsyms]");
}

static void read_sample(const struct profile *p, const Pprof__Sample *m, struct stack *s)
{
	size_t i;

	memset(s, 0, sizeof(*s));
	s->executable = "";
	if (m->n_value)
		s->count = ((u64)m->value[0] + (u64)p->msg->period / 2) / (u64)p->msg->period;
	for (i = 0; i < m->n_location_id; i++)
		read_frame(p, m->location_id[i], s);
	for (i = 0; i < m->n_label; i++) {
		const char *key = text(p, m->label[i]->key);

		if (!strcmp(key, "pid"))
			s->pid = m->label[i]->str ? atoll(text(p, m->label[i]->str))
						  : m->label[i]->num;
		else if (!strcmp(key, "process.executable"))
			s->executable = text(p, m->label[i]->str);
	}
}

/* --- running the profiler --------------------------------------------------------------------- */

/* Shows what the verifier said; all of it when the run failed. */
static void show(const char *path, bool everything)
{
	char line[4096];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (everything || !strncmp(line, "@@ ", 3))
			fputs(line, stdout);
	if (f)
		fclose(f);
}

static int record(bool watch_verifier, char *const *argv)
{
	static const char log[] = "/tmp/record.log";
	int status = 0, fd;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
			_exit(126);
		if (watch_verifier)
			setenv("LD_PRELOAD", "/t/verifier.so", 1);
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (watch_verifier || status)
		show(log, status != 0);
	return status;
}

/* --- what is checked -------------------------------------------------------------------------- */

/* Leaf to root from busy(): the levels as deep.c nests them, main(). */
static bool chain_is_whole(const struct stack *s, u32 busy)
{
	char want[16];
	u32 i;

	if (s->n < busy + DEPTH + 2)
		return false;
	for (i = 1; i <= DEPTH; i++) {
		snprintf(want, sizeof(want), "level%u", (DEPTH - i) * 7 % 16);
		if (strcmp(s->names[busy + i], want))
			return false;
	}
	return !strcmp(s->names[busy + i], "main");
}

static bool in_busy(const struct stack *s, u32 *at)
{
	for (*at = 0; *at < s->n; (*at)++)
		if (!strcmp(s->names[*at], "busy"))
			return true;
	return false;
}

static void print_stack(const struct stack *s)
{
	u32 i;

	printf("broken, %" PRIu64 " times:", s->count);
	for (i = 0; i < s->n; i++)
		printf(" %s%s", s->kernel[i] ? "k:" : "", *s->names[i] ? s->names[i] : "?");
	putchar('\n');
}

/* The later of the two processes: the younger pid, in a guest that has just started. */
static s64 second_process(const struct profile *p)
{
	struct stack s;
	s64 pid = 0;
	size_t i;
	u32 at;

	for (i = 0; i < p->msg->n_sample; i++) {
		read_sample(p, p->msg->sample[i], &s);
		if (in_busy(&s, &at))
			pid = MAX(pid, s.pid);
	}
	return pid;
}

static void check_chain(const struct profile *p)
{
	u64 busy = 0, chain = 0, whole = 0, shown = 0;
	s64 pid = second_process(p);
	double percent;
	struct stack s;
	size_t i;
	u32 at;

	for (i = 0; i < p->msg->n_sample; i++) {
		read_sample(p, p->msg->sample[i], &s);
		if (s.pid != pid || !in_busy(&s, &at))
			continue;
		busy += s.count;
		if (chain_is_whole(&s, at)) {
			chain += s.count;
			/* Through the C library, which is mapped later than the program. */
			if (!strcmp(s.names[s.n - 1], "_start"))
				whole += s.count;
		}
		if (strcmp(s.names[s.n - 1], "_start") && shown++ < 3)
			print_stack(&s);
	}
	percent = busy ? 100.0 / (double)busy : 0;
	printf("@@ samples %" PRIu64 "\n@@ whole %.1f\n", busy, percent * (double)whole);
	verdict(busy >= 100 && percent * (double)chain >= 95, "chain-of-40-frames",
		"%" PRIu64 " of %" PRIu64, chain, busy);
	verdict(percent * (double)whole >= 80, "chain-to-the-start-of-the-program",
		"%" PRIu64 " of %" PRIu64, whole, busy);
}

/* "samples of the host: 590 due, 589 kept, lost: busy 1, counts_full 0". */
static void check_sums(const struct profile *p, const char *name)
{
	u64 due = 0, kept = 0, lost = 0, in_file = 0;
	const char *line = "", *s;
	struct stack stack;
	size_t i;

	for (i = 0; i < p->msg->n_comment; i++) {
		s = text(p, p->msg->comment[i]);
		if (sscanf(s, "samples of the host: %" SCNu64 " due, %" SCNu64 " kept", &due,
			   &kept) == 2)
			line = s;
	}
	s = strstr(line, "lost:");
	while (s && (s = strchr(s, ' '))) {
		s++;
		lost += strtoull(s, NULL, 10);
	}
	for (i = 0; i < p->msg->n_sample; i++) {
		read_sample(p, p->msg->sample[i], &stack);
		in_file += stack.count;
	}
	verdict(due && due == kept + lost && in_file == kept, name,
		"%" PRIu64 " due, %" PRIu64 " kept, %" PRIu64 " lost, %" PRIu64 " in the file", due,
		kept, lost, in_file);
}

static void check_kernel_names(const struct profile *p)
{
	u64 frames = 0, named = 0, entries = 0;
	struct stack s;
	size_t i;
	u32 k;

	for (i = 0; i < p->msg->n_sample; i++) {
		read_sample(p, p->msg->sample[i], &s);
		for (k = 0; k < s.n; k++) {
			frames += s.kernel[k];
			named += s.kernel[k] && *s.names[k];
			entries += s.kernel[k] && strstr(s.names[k], "execve");
		}
	}
	verdict(frames > 100 && named * 100 >= frames * 99 && entries > 0, "kernel-names",
		"%" PRIu64 " of %" PRIu64 " frames named, %" PRIu64 " in execve", named, frames,
		entries);
}

/* Children that were born and dead within the recording, each a process with names of its own. */
static void check_children(const struct profile *p)
{
	s64 pids[PIDS_MAX];
	struct stack s;
	size_t i;
	u32 k, n = 0, known;

	for (i = 0; i < p->msg->n_sample && n < PIDS_MAX; i++) {
		read_sample(p, p->msg->sample[i], &s);
		for (k = 0; k < s.n && strncmp(s.names[k], "burn", 4); k++)
			;
		if (k == s.n || strcmp(s.executable, "flash"))
			continue;
		for (known = 0; known < n && pids[known] != s.pid; known++)
			;
		if (known == n)
			pids[n++] = s.pid;
	}
	/* Each is in burn() for about as long as there is between two samples. */
	verdict(n >= CHILDREN / 4 && n <= CHILDREN, "short-lived-children",
		"%u of %d processes in burn()", n, CHILDREN);
}

/* From a signal handler on a stack of its own back to what was interrupted on another. */
static void check_signal(const struct profile *p)
{
	static const char *const chain[] = { "work", "handler", "interrupted", "outer", "main" };
	u64 work = 0, whole = 0;
	struct stack s;
	size_t i;
	u32 k, found;

	for (i = 0; i < p->msg->n_sample; i++) {
		read_sample(p, p->msg->sample[i], &s);
		for (k = 0, found = 0; k < s.n && found < ARRAY_SIZE(chain); k++)
			found += !strcmp(s.names[k], chain[found]);
		work += found ? s.count : 0;
		whole += found == ARRAY_SIZE(chain) ? s.count : 0;
	}
	/* The first second may pass without tables, see run_twice(). */
	verdict(work >= 100 && whole * 2 >= work, "signal-on-another-stack",
		"%" PRIu64 " of %" PRIu64, whole, work);
}

static void judge(const char *path, const char *what, int status,
		  void (*const *checks)(const struct profile *))
{
	struct profile p = { 0 };
	int err = status ? -EINVAL : profile_read(path, &p);

	verdict(!err, what, "status %d, profile: %s", status, err ? strerror(-err) : "decoded");
	for (; !err && *checks; checks++)
		(*checks)(&p);
	profile_fini(&p);
}

static void check_deep_sums(const struct profile *p)
{
	check_sums(p, "due-is-kept-plus-lost");
}

static void check_flash_sums(const struct profile *p)
{
	check_sums(p, "due-is-kept-plus-lost-in-many-processes");
}

/*
 * The program whose chain is known, twice: on an emulated machine making its tables takes a good
 * part of a second, which is the first one's time. The second one finds them made.
 */
static int run_twice(void)
{
	static const char *const seconds[] = { "3", "4" };
	int status;
	pid_t pid;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(seconds); i++) {
		pid = fork();
		if (!pid) {
			execl("/t/deep", "deep", "40", "0", seconds[i], NULL);
			_exit(127);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	char *deep[] = { "/t/ebpfprofiler", "record", "-d",       "30",    "-F", "199", "-o",
			 "/tmp/deep.pb.gz", "--",     "/t/guest", "twice", NULL };
	char *flash[] = { "/t/ebpfprofiler",  "record", "-d",       "30", "-F", "499", "-o",
			  "/tmp/flash.pb.gz", "--",     "/t/flash", "20", "20", NULL };
	char *other[] = { "/t/ebpfprofiler",   "record", "-d",        "30",       "-F", "199", "-o",
			  "/tmp/switch.pb.gz", "--",     "/t/switch", "altstack", NULL };
	static void (*const signal_checks[])(const struct profile *) = { check_signal, NULL };
	static void (*const deep_checks[])(const struct profile *) = { check_chain, check_deep_sums,
								       NULL };
	static void (*const flash_checks[])(const struct profile *) = { check_children,
									check_kernel_names,
									check_flash_sums, NULL };

	if (argc > 1 && !strcmp(argv[1], "twice"))
		return run_twice();
	judge("/tmp/deep.pb.gz", "record-deep", record(true, deep), deep_checks);
	judge("/tmp/flash.pb.gz", "record-flash", record(false, flash), flash_checks);
	judge("/tmp/switch.pb.gz", "record-switch", record(false, other), signal_checks);
	return failed;
}
