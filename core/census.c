// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See census.h. */
#include "census.h"

#include "choice.h"
#include "config.h"
#include "features.h"
#include "json.h"
#include "log.h"
#include "module.h"
#include "process.h"
#include "reader.h"
#include "runtime.h"
#include "threads.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#define LOOK_NS   (20 * NSEC_PER_SEC) /* for all processes together */
#define PIDS_MAX  8                   /* named in a line */
#define LINES_MAX 4096

/* Processes of one program that had the same answer. */
struct line {
	const struct runtime_found *found;
	const char *exe;
	u32 pids[PIDS_MAX];
	u32 n;
};

struct census {
	struct modules *modules;
	struct processes *procs;
	struct reader *reader;
	struct threads *threads;
	struct runtimes *runtimes;
	struct choice *choice;
	struct line *lines;
	u32 nlines, cap;
	bool late; /* not all could be looked at in time */
};

static void census_fini(struct census *c)
{
	free(c->lines);
	runtimes_free(c->runtimes);
	choice_free(c->choice);
	threads_free(c->threads);
	processes_free(c->procs);
	modules_free(c->modules);
	reader_free(c->reader);
}

/* Nothing is sampled: a process only counts as one that could be. */
static int arm_nothing(void *arg __unused, u32 tgid __unused,
		       const struct recipe_entry *entry __unused)
{
	return 0;
}

static void disarm_nothing(void *arg __unused, u32 tgid __unused)
{
}

static int tell_no_head(void *arg __unused, u32 tid __unused, u64 head __unused)
{
	return 0;
}

static int make_books(struct census *c, const struct config *config)
{
	struct runtimes_kernel kernel = {
		.arm = arm_nothing,
		.disarm = disarm_nothing,
		.head = tell_no_head,
	};
	struct agent_runtimes o = { .internals = false };
	int err = config ? choice_new(config, &c->choice) : 0;

	if (err)
		return err;
	if (c->choice)
		o = choice_runtimes(c->choice);
	c->reader = reader_new();
	c->modules = modules_new(1 << 20);
	c->procs = c->modules ? processes_new(c->modules, "/proc", false) : NULL;
	if (!c->reader || !c->procs)
		return log_err(-ENOMEM, "cannot look at processes: out of memory");
	if (!threads_new(features_host(), c->reader, -1, &c->threads)) {
		kernel.threads = threads_list;
		kernel.arg = c->threads;
	}
	c->runtimes = runtimes_new(c->procs, c->reader, &kernel, &o.choice);
	if (!c->runtimes)
		return log_err(-ENOMEM, "cannot look at processes: out of memory");
	err = processes_snapshot(c->procs);
	return err ? log_err(err, "cannot read /proc: %s", strerror(-err)) : 0;
}

static void look_at_all(struct census *c)
{
	u64 end = now_monotonic() + LOOK_NS;
	struct process *p;
	u32 i;

	for (i = 0; (p = processes_at(c->procs, i)); i++) {
		runtimes_want(c->runtimes, p);
		while (runtimes_queued(c->runtimes) && now_monotonic() < end)
			runtimes_round(c->runtimes, now_monotonic());
	}
	c->late = runtimes_queued(c->runtimes) > 0;
}

static bool same(const struct line *l, const struct runtime_found *found, const char *exe)
{
	return l->found->unwinder == found->unwinder && l->found->verdict == found->verdict &&
	       !memcmp(&l->found->version, &found->version, sizeof(found->version)) &&
	       !strcmp(l->exe, exe);
}

static void add(struct census *c, const struct process *p, const struct runtime_found *found)
{
	const char *exe = p->exe ? p->exe : p->comm;
	struct line *l;
	u32 i;

	for (i = 0; i < c->nlines && !same(&c->lines[i], found, exe); i++)
		;
	if (i == c->nlines) {
		if (VEC_RESERVE(c->lines, c->cap, c->nlines + 1, LINES_MAX))
			return;
		c->lines[c->nlines++] = (struct line){ .found = found, .exe = exe };
	}
	l = &c->lines[i];
	if (l->n < PIDS_MAX)
		l->pids[l->n] = p->pid;
	l->n++;
}

static void print_line(const struct line *l, FILE *out)
{
	char text[256], exe[512];
	u32 i;

	runtime_found_text(l->found, text, sizeof(text));
	utf8_clean(exe, sizeof(exe), l->exe, strlen(l->exe));
	fprintf(out, "%s: %s", exe, text);
	fprintf(out, l->n == 1 ? " (process " : " (%u processes: ", l->n);
	for (i = 0; i < MIN(l->n, (u32)PIDS_MAX); i++)
		fprintf(out, "%s%u", i ? ", " : "", l->pids[i]);
	fprintf(out, "%s)\n", l->n > PIDS_MAX ? ", ..." : "");
}

static void print_json(const struct line *l, FILE *out)
{
	const struct version *v = &l->found->version;
	char text[256];
	u32 i;

	runtime_found_text(l->found, text, sizeof(text));
	fputs("{\"executable\":", out);
	json_put(l->exe, out);
	fprintf(out, ",\"runtime\":\"%s\",\"version\":\"%u.%u.%u\",\"ok\":%s,\"text\":",
		l->found->unwinder->name, v->major, v->minor, v->patch,
		l->found->verdict == UNWIND_OK ? "true" : "false");
	json_put(text, out);
	fprintf(out, ",\"processes\":%u,\"pids\":[", l->n);
	for (i = 0; i < MIN(l->n, (u32)PIDS_MAX); i++)
		fprintf(out, "%s%u", i ? "," : "", l->pids[i]);
	fputs("]}", out);
}

static void print_all(const struct census *c, FILE *out, bool json)
{
	u32 i;

	if (json)
		fputs(",\"runtimes\":[", out);
	else if (!c->nlines)
		fputs("interpreters: none of a known kind runs here\n", out);
	for (i = 0; i < c->nlines; i++) {
		if (json) {
			fputs(i ? ",\n" : "\n", out);
			print_json(&c->lines[i], out);
		} else {
			print_line(&c->lines[i], out);
		}
	}
	if (json)
		fputs("]", out);
	else if (c->late)
		fputs("interpreters: there was no time to look at all processes\n", out);
}

int census_print(const struct config *config, FILE *out, bool json)
{
	_cleanup_(census_fini) struct census c = { 0 };
	struct runtime_info info;
	struct runtime *r;
	int err = make_books(&c, config);

	if (err)
		return err;
	look_at_all(&c);
	for (r = runtimes_next(c.runtimes, NULL); r; r = runtimes_next(c.runtimes, r)) {
		runtime_info(r, &info);
		add(&c, info.process, info.found);
	}
	print_all(&c, out, json);
	return 0;
}

/* Into processes of others. */
static bool may_look(void)
{
	_cleanup_free_ char *text = NULL;
	const char *caps = NULL;

	if (!read_file("/proc/self/status", 64 << 10, &text, NULL))
		caps = strstr(text, "\nCapEff:");
	return caps && strtoull(caps + strlen("\nCapEff:"), NULL, 16) & 1ull << CAP_SYS_PTRACE;
}

void census_report(FILE *out, bool json)
{
	char why[1024];
	struct config c;

	if (!may_look()) {
		if (!json)
			fputs("interpreters: not looked for without CAP_SYS_PTRACE\n", out);
		return;
	}
	if (config_init(&c))
		return;
	/* What is wrong with the file is told by those that need it. */
	if (config_read(&c, CONFIG_DEFAULT_PATH, why, sizeof(why))) {
		config_fini(&c);
		if (config_init(&c))
			return;
	}
	census_print(&c, out, json);
	config_fini(&c);
}
