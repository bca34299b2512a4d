// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `dump PID`: the stacks of all threads of a process now, for people or as JSON. In:
 * arguments, struct dump. Out: text on stdout.
 */
#include "cmd.h"

#include "dump.h"
#include "fold.h"
#include "json.h"
#include "log.h"
#include "module.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

static const char usage[] =
	"usage: ebpfprofiler dump PID [--native] [--internals] [--json]\n"
	"  The stacks of all threads of a process, innermost frame first. The process is not stopped.\n"
	"  -n, --native     functions of native code as well, at their places\n"
	"  --internals      with --native: the interpreter's own loop, too\n"
	"  --json           one JSON document\n";

struct arguments {
	u32 pid;
	bool json;
	struct dump_options o;
};

static int parse(int argc, char **argv, struct arguments *a)
{
	static const struct option longs[] = {
		{ "native", no_argument, NULL, 'n' },  { "internals", no_argument, NULL, 'i' },
		{ "json", no_argument, NULL, 'j' },    { "help", no_argument, NULL, 'h' },
		{ "verbose", no_argument, NULL, 'v' }, { NULL, 0, NULL, 0 },
	};
	unsigned long pid;
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "nhv", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			a->o.native = true;
			break;
		case 'i':
			a->o.native = a->o.internals = true;
			break;
		case 'j':
			a->json = true;
			break;
		case 'v':
			log_init(LOG_LEVEL_DEBUG);
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (optind + 1 != argc) {
		fputs(usage, stderr);
		return -EINVAL;
	}
	pid = strtoul(argv[optind], &end, 10);
	if (*end || end == argv[optind] || !pid || pid > INT_MAX)
		return log_err(-EINVAL, "dump %s: expected a process id", argv[optind]);
	a->pid = (u32)pid;
	return 0;
}

/* --- a frame ------------------------------------------------------------------------------------- */

static const char *kind_text(enum frame_kind kind)
{
	switch (kind) {
	case FRAME_RUNTIME:
		return "runtime";
	case FRAME_NATIVE:
		return "native";
	case FRAME_KERNEL:
		return "kernel";
	default:
		return "unknown";
	}
}

/* Where the code comes from: a source file, a mapped file, a name for memory; NULL: unknown. */
static const char *file_of(const struct location *l)
{
	if (l->kind == FRAME_NATIVE)
		return module_path(l->module);
	return l->kind == FRAME_RUNTIME ? l->file : l->mapping;
}

/* --- for people ---------------------------------------------------------------------------------- */

/* What a process or a file chose goes to a terminal: clean UTF-8, no control characters. */
static void print_clean(const char *s)
{
	char clean[4096];

	utf8_clean(clean, sizeof(clean), s, strlen(s));
	fputs(clean, stdout);
}

static void print_frame(const struct location *l)
{
	const char *file = file_of(l);

	fputs("    ", stdout);
	if (l->func)
		print_clean(l->func);
	else
		printf("0x%" PRIx64, l->address);
	if (file) {
		fputs(" (", stdout);
		print_clean(l->kind == FRAME_NATIVE ? base_name(file) : file);
		if (l->line)
			printf(":%u", l->line);
		else if (l->kind == FRAME_NATIVE && !l->func)
			printf("+0x%" PRIx64, l->address);
		putchar(')');
	}
	putchar('\n');
}

static const char *state_text(const struct dump_thread *t)
{
	if (t->running)
		return "running";
	switch (t->state) {
	case 'R':
		return "ready to run";
	case 'D':
		return "waiting, not to be disturbed";
	case 'T':
	case 't':
		return "stopped";
	case 'Z':
	case 'X':
		return "ended";
	default:
		return "waiting";
	}
}

static void print_thread(const struct dump *d, const struct dump_thread *t)
{
	const struct window *w = d->window;
	const struct stack *s;
	u32 i;

	printf("\nthread %u", t->tid);
	if (t->ns_tid && t->ns_tid != t->tid)
		printf(" (%u)", t->ns_tid);
	printf(" \"%s\" %s\n", t->name, state_text(t));
	if (t->stack == NO_STACK) {
		printf("    (%s)\n", t->why);
		return;
	}
	s = &w->stacks[t->stack];
	for (i = 0; i < s->n; i++)
		print_frame(&w->locations[w->frames[s->first + i]]);
	if (t->cut)
		puts("    (the stack goes on: it was cut here)");
	else if (!t->interpreted && s->end != STACK_END_COMPLETE && s->end != STACK_END_GUESSED)
		printf("    (%s)\n", stack_end_text(s->end));
}

static void print_text(const struct dump *d)
{
	u32 i;

	printf("process %u: ", d->pid);
	print_clean(d->cmdline && *d->cmdline ? d->cmdline : d->exe ? d->exe : "?");
	putchar('\n');
	if (d->verdict == UNWIND_OK)
		printf("%s %u.%u.%u, %u threads\n", d->unwinder->title, d->version.major,
		       d->version.minor, d->version.patch, d->nthreads);
	else if (*d->runtime)
		printf("%s; these are its native stacks\n", d->runtime);
	else
		printf("no interpreter that is known here, %u threads\n", d->nthreads);
	for (i = 0; i < d->nthreads; i++)
		print_thread(d, &d->threads[i]);
	if (d->more)
		printf("\n(more than %d threads: the rest is left out)\n", DUMP_THREADS_MAX);
}

/* --- for programs -------------------------------------------------------------------------------- */

static void json_frame(const struct location *l)
{
	const char *file = file_of(l);

	printf("{\"kind\":\"%s\",\"func\":", kind_text(l->kind));
	if (l->func)
		json_put(l->func, stdout);
	else
		fputs("null", stdout);
	fputs(",\"file\":", stdout);
	if (file)
		json_put(file, stdout);
	else
		fputs("null", stdout);
	if (l->kind == FRAME_RUNTIME)
		printf(",\"line\":%u}", l->line);
	else
		printf(",\"address\":\"0x%" PRIx64 "\"}", l->address);
}

static void json_thread(const struct dump *d, const struct dump_thread *t)
{
	const struct window *w = d->window;
	const struct stack *s = t->stack == NO_STACK ? NULL : &w->stacks[t->stack];
	u32 i;

	printf("{\"tid\":%u,\"ns_tid\":%u,\"name\":", t->tid, t->ns_tid);
	json_put(t->name, stdout);
	printf(",\"state\":\"%s\",\"running\":%s,\"cut\":%s,\"refused\":", state_text(t),
	       t->running ? "true" : "false", t->cut ? "true" : "false");
	if (s)
		fputs("null", stdout);
	else
		json_put(t->why, stdout);
	fputs(",\"frames\":[", stdout);
	for (i = 0; s && i < s->n; i++) {
		fputs(i ? "," : "", stdout);
		json_frame(&w->locations[w->frames[s->first + i]]);
	}
	fputs("]}", stdout);
}

static void print_json(const struct dump *d)
{
	u32 i;

	printf("{\"pid\":%u,\"executable\":", d->pid);
	json_put(d->exe ? d->exe : "", stdout);
	fputs(",\"runtime\":", stdout);
	if (d->unwinder) {
		printf("{\"name\":\"%s\",\"title\":\"%s\",\"version\":\"%u.%u.%u\",\"ok\":%s,"
		       "\"text\":",
		       d->unwinder->name, d->unwinder->title, d->version.major, d->version.minor,
		       d->version.patch, d->verdict == UNWIND_OK ? "true" : "false");
		json_put(d->runtime, stdout);
		putchar('}');
	} else {
		fputs("null", stdout);
	}
	printf(",\"more\":%s,\"threads\":[", d->more ? "true" : "false");
	for (i = 0; i < d->nthreads; i++) {
		fputs(i ? ",\n" : "\n", stdout);
		json_thread(d, &d->threads[i]);
	}
	puts("\n]}");
}

int cmd_dump(int argc, char **argv)
{
	struct arguments a = { 0 };
	struct dump *d = NULL;
	int err = parse(argc, argv, &a);

	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	err = dump_new(a.pid, &a.o, &d);
	if (err == -ESRCH)
		log_err(0, "dump %u: there is no such process", a.pid);
	else if (err == -EPERM || err == -EACCES)
		log_err(0, "dump %u: not permitted; needs root, or CAP_SYS_PTRACE and CAP_BPF",
			a.pid);
	else if (err)
		log_err(0, "dump %u: %s", a.pid, strerror(-err));
	if (err)
		return EXIT_FAILED;
	if (a.json)
		print_json(d);
	else
		print_text(d);
	dump_free(d);
	return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
}
