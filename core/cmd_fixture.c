// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `fixture record PID`: a running process goes in, a recording of all that its stacks
 * took comes out. `fixture replay FILE...`: the stacks of a recording, on any architecture, without
 * privilege. Both print what tests compare with the runtime's own words.
 */
#include "cmd.h"

#include "features.h"
#include "fixture.h"
#include "log.h"
#include "reader.h"
#include "target.h"
#include "threads.h"
#include "version.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <time.h>

static const char usage[] =
	"usage: ebpfprofiler fixture record PID -o FILE [--note KEY=VALUE]...\n"
	"       ebpfprofiler fixture replay FILE...\n"
	"  record  takes the stacks of all threads of an interpreter once and keeps each answer of\n"
	"          the process in FILE: the bytes that were read, and no others. Its threads should\n"
	"          wait meanwhile. Prints the stacks\n"
	"  replay  takes the same stacks from recordings\n"
	"  -o, --output FILE   where to write; replaced if it is there\n"
	"  --note KEY=VALUE    a line for people in the head of FILE, e.g. how the process was started\n";

#define NOTES_MAX 16

struct record {
	u32 pid;
	const char *path;
	char *note[NOTES_MAX]; /* KEY=VALUE, the '=' replaced by a NUL */
	u32 nnotes;
};

static void target_freep(struct target **t)
{
	target_free(*t);
}

static void reader_freep(struct reader **r)
{
	reader_free(*r);
}

static void threads_freep(struct threads **t)
{
	threads_free(*t);
}

/* --- replay ---------------------------------------------------------------------------------- */

static int replay_to(const char *path, FILE *out)
{
	_cleanup_(target_freep) struct target *t = NULL;
	struct fixture_result result;
	char missing[512];
	int err;

	err = target_tape_open(path, &t);
	if (err)
		return log_err(err, "cannot replay %s: %s", path,
			       err == -EINVAL ? "it is no recording" : strerror(-err));
	err = fixture_walk(t, target_tape_noted(t, "runtime"), out, &result);
	if (err)
		return log_err(err, "cannot replay %s: %s", path, strerror(-err));
	if (target_tape_missing(t, missing, sizeof(missing)))
		return log_err(-ENODATA, "%s lacks what was asked for: %s", path, missing);
	return 0;
}

static int replay(int argc, char **argv)
{
	int i, err = 0;

	if (argc < 2) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	for (i = 1; i < argc; i++) {
		if (argc > 2)
			printf("%s\n", argv[i]);
		err |= replay_to(argv[i], stdout);
	}
	return err ? EXIT_FAILED : EXIT_DONE;
}

/* --- record ---------------------------------------------------------------------------------- */

static int parse_note(struct record *r, char *arg)
{
	char *eq = strchr(arg, '=');

	if (!eq || eq == arg || strcspn(arg, ": \n") < (size_t)(eq - arg) || r->nnotes == NOTES_MAX)
		return -EINVAL;
	*eq = '\0';
	r->note[r->nnotes++] = arg;
	return 0;
}

/* 1: help was asked for. */
static int parse_record(int argc, char **argv, struct record *r)
{
	static const struct option longs[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "note", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "o:h", longs, NULL)) != -1) {
		if (c == 'o')
			r->path = optarg;
		else if (c == 'h')
			return 1;
		else if (c != 'n' || parse_note(r, optarg))
			return -EINVAL;
	}
	if (optind + 1 != argc || !r->path)
		return -EINVAL;
	r->pid = (u32)strtoul(argv[optind], &end, 10);
	return r->pid && !*end ? 0 : -EINVAL;
}

static int note_all(struct target *tape, const struct record *r, const struct fixture_result *found)
{
	char version[48], date[32];
	time_t now = time(NULL);
	struct tm tm;
	int err;
	u32 i;

	snprintf(version, sizeof(version), "%u.%u.%u", found->version.major, found->version.minor,
		 found->version.patch);
	strftime(date, sizeof(date), "%Y-%m-%d", gmtime_r(&now, &tm));
	err = target_tape_note(tape, "runtime", found->unwinder->name);
	err = err ? err : target_tape_note(tape, "version", version);
	err = err ? err : target_tape_note(tape, "verdict", found->text);
	err = err ? err : target_tape_note(tape, "date", date);
	err = err ? err : target_tape_note(tape, "by", "ebpfprofiler " VERSION);
	for (i = 0; !err && i < r->nnotes; i++)
		err = target_tape_note(tape, r->note[i], r->note[i] + strlen(r->note[i]) + 1);
	return err;
}

/* The process once for itself, to know whose it is, and once more while its answers are kept. */
static int record_to(const struct record *r, struct target *live, struct target **tape, FILE *out)
{
	struct fixture_result found, result;
	int err;

	err = fixture_walk(live, NULL, NULL, &found);
	if (!err && !found.unwinder) {
		target_free(live);
		return log_err(-ENOENT, "process %u is none of a runtime that is known", r->pid);
	}
	err = err ? err : target_tape_record(live, tape);
	if (err) {
		target_free(live);
		return log_err(err, "cannot record process %u: %s", r->pid, strerror(-err));
	}
	err = note_all(*tape, r, &found);
	err = err ? err : fixture_walk(*tape, found.unwinder->name, out, &result);
	if (!err && (*tape)->hung)
		err = -ETIMEDOUT;
	if (err)
		return log_err(err, "cannot record process %u: %s", r->pid, strerror(-err));
	return 0;
}

/* What was written has to give the same stacks as the process did. */
static int verify(const char *path, const char *text)
{
	_cleanup_free_ char *again = NULL;
	size_t len;
	FILE *out = open_memstream(&again, &len);
	int err;

	if (!out)
		return -ENOMEM;
	err = replay_to(path, out);
	fclose(out);
	if (err)
		return err;
	return strcmp(text, again) ? log_err(-EAGAIN,
					     "%s gives other stacks than the process did; "
					     "it ran meanwhile: record it again",
					     path)
				   : 0;
}

struct relay {
	target_thread_fn *fn;
	void *arg;
};

static void relay_thread(void *arg, u32 tid __unused, const struct target_thread *thread)
{
	struct relay *relay = arg;

	relay->fn(relay->arg, thread);
}

static int list_threads(void *threads, u32 tgid, target_thread_fn *fn, void *fn_arg)
{
	struct relay relay = { fn, fn_arg };

	return threads_list(threads, tgid, relay_thread, &relay);
}

static int record_process(const struct record *r, struct reader *reader)
{
	/* Thread pointers come from the kernel; without it some runtimes' threads are not found. */
	_cleanup_(threads_freep) struct threads *threads = NULL;
	_cleanup_(target_freep) struct target *tape = NULL;
	_cleanup_free_ char *text = NULL;
	struct target *live;
	size_t len;
	FILE *out;
	int err;

	if (threads_new(features_host(), reader, -1, &threads))
		log_warn("thread pointers cannot be had; threads may be missing");
	err = target_live_new(r->pid, reader, NULL, threads ? list_threads : NULL, threads, &live);
	if (err)
		return log_err(err, "cannot look at process %u: %s", r->pid, strerror(-err));
	out = open_memstream(&text, &len);
	if (!out) {
		target_free(live);
		return -ENOMEM;
	}
	err = record_to(r, live, &tape, out);
	fclose(out);
	if (err)
		return err;
	err = target_tape_save(tape, r->path);
	if (err)
		return log_err(err, "cannot write %s: %s", r->path, strerror(-err));
	if (target_tape_changed(tape))
		log_warn("%llu bytes changed while they were recorded; the process ran",
			 (unsigned long long)target_tape_changed(tape));
	fputs(text, stdout);
	return verify(r->path, text);
}

static int record(int argc, char **argv)
{
	_cleanup_(reader_freep) struct reader *reader = NULL;
	struct record r = { 0 };
	int err = parse_record(argc, argv, &r);

	if (err) {
		fputs(usage, err > 0 ? stdout : stderr);
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	}
	reader = reader_new();
	if (!reader)
		return log_err(EXIT_FAILED, "cannot record: out of memory or threads");
	return record_process(&r, reader) ? EXIT_FAILED : EXIT_DONE;
}

int cmd_fixture(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "record"))
		return record(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "replay"))
		return replay(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage, stdout);
		return EXIT_DONE;
	}
	fputs(usage, stderr);
	return EXIT_USAGE;
}
