// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See metrics.h. */
#include "metrics.h"

#include "cost.h"
#include "sending.h"
#include "stat.h"
#include "version.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define PREFIX "ebpfprofiler_"

/* Families of several counters. */
enum family { SAMPLES, SAMPLES_DUE, SAMPLES_LOST, UNWIND_FAILURES, FAMILIES };

static const struct {
	const char *name, *help;
} families[] = {
	[SAMPLES] = { "samples_total", "Samples that went into a profile." },
	[SAMPLES_DUE] = { "samples_due_total",
			  "Samples that should be: those in profiles and each loss." },
	[SAMPLES_LOST] = { "samples_lost_total", "Samples lost, by what took them." },
	[UNWIND_FAILURES] = { "unwind_failures_total",
			      "Stacks cut, refused or kept apart, by who walked them and why." },
};

/* Which counters are of which family: by their name, or by how it begins. */
static const struct rule {
	const char *name;
	enum family family;
	const char *label, *value;
	const char *rest; /* label that has the rest of the name; NULL: name is all of it */
} rules[] = {
	{ "samples_kept", SAMPLES, "type", "cpu", NULL },
	{ "waits_kept", SAMPLES, "type", "offcpu", NULL },
	{ "samples_due", SAMPLES_DUE, "type", "cpu", NULL },
	{ "waits_due", SAMPLES_DUE, "type", "offcpu", NULL },
	{ "lost_", SAMPLES_LOST, "type", "cpu", "reason" },
	{ "wait_lost_", SAMPLES_LOST, "type", "offcpu", "reason" },
	{ "stack_", UNWIND_FAILURES, "unwinder", "native", "reason" },
	{ "runtime_", UNWIND_FAILURES, "unwinder", "runtime", "reason" },
};

static const struct rule *rule_of(enum stat_id id)
{
	const char *name = stat_name(id);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].rest ? !strncmp(name, rules[i].name, strlen(rules[i].name))
				  : !strcmp(name, rules[i].name))
			return &rules[i];
	return NULL;
}

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

static void put_member(FILE *out, const struct rule *r, enum stat_id id)
{
	fprintf(out, "# %s\n" PREFIX "%s{%s=\"%s\"", stat_help(id), families[r->family].name,
		r->label, r->value);
	if (r->rest)
		fprintf(out, ",%s=\"%s\"", r->rest, stat_name(id) + strlen(r->name));
	fprintf(out, "} %" PRIu64 "\n", stat_get(id));
}

static void put_counters(FILE *out)
{
	char name[128];
	u32 f, i;

	for (f = 0; f < FAMILIES; f++) {
		put_head(out, families[f].name, "counter", families[f].help);
		for (i = 0; i < STAT_MAX; i++) {
			const struct rule *r = rule_of(i);

			if (r && r->family == f)
				put_member(out, r, i);
		}
	}
	for (i = 0; i < STAT_MAX; i++) {
		if (rule_of(i))
			continue;
		snprintf(name, sizeof(name), "%s_total", stat_name(i));
		put_head(out, name, "counter", stat_help(i));
		fprintf(out, PREFIX "%s %" PRIu64 "\n", name, stat_get(i));
	}
}

/* --- servers, each by the name of its section ------------------------------------------------- */

#define COUNT(member) offsetof(struct upload_counts, member)

/* What is due but for what was sent or dropped waits. */
static const struct server_row {
	const char *family, *type, *help; /* NULL: one more of the family before */
	const char *label, *value;        /* may be NULL */
	size_t offset;                    /* u64 in struct upload_counts */
} server_rows[] = {
	{ "server_profiles_due_total", "counter",
	  "Profiles that a server should get, by where they came from.", "from", "run",
	  COUNT(due) },
	{ NULL, NULL, NULL, "from", "spool", COUNT(found) },
	{ NULL, NULL, NULL, "from", "split", COUNT(parts) },
	{ "server_profiles_sent_total", "counter", "Profiles that a server accepted.", NULL, NULL,
	  COUNT(sent) },
	{ "server_profiles_dropped_total", "counter", "Profiles that a server never gets, by why.",
	  "reason", "refused", COUNT(refused) },
	{ NULL, NULL, NULL, "reason", "too_large", COUNT(too_large) },
	{ NULL, NULL, NULL, "reason", "no_room", COUNT(dropped) },
	{ NULL, NULL, NULL, "reason", "expired", COUNT(expired) },
	{ NULL, NULL, NULL, "reason", "damaged", COUNT(damaged) },
	{ "server_profiles_rejected_total", "counter",
	  "Of those sent: what a server said it did not keep.", NULL, NULL, COUNT(rejected) },
	{ "server_attempts_failed_total", "counter",
	  "Attempts to send that failed and will be tried again.", NULL, NULL, COUNT(retried) },
	{ "server_profiles_waiting", "gauge", "Profiles in memory and spool.", NULL, NULL,
	  COUNT(waiting) },
	{ "server_spool_bytes", "gauge", "Size of the spool.", NULL, NULL, COUNT(spool_bytes) },
};

static void put_server(FILE *out, const char *family, const struct server_row *r,
		       const struct sending_server *s)
{
	u64 value;

	memcpy(&value, (const u8 *)&s->counts + r->offset, sizeof(value));
	/* The configuration takes no name that would have to be escaped here. */
	fprintf(out, PREFIX "%s{server=\"%s\"", family, s->name);
	if (r->label)
		fprintf(out, ",%s=\"%s\"", r->label, r->value);
	fprintf(out, "} %" PRIu64 "\n", value);
}

static void put_servers(FILE *out, const struct metrics *m)
{
	const char *family = NULL;
	u32 i, k;

	for (i = 0; m->nservers && i < ARRAY_SIZE(server_rows); i++) {
		const struct server_row *r = &server_rows[i];

		if (r->family) {
			family = r->family;
			put_head(out, family, r->type, r->help);
		}
		for (k = 0; k < m->nservers; k++)
			put_server(out, family, r, &m->servers[k]);
	}
}

static void put_gauge(FILE *out, const char *name, const char *help, double value)
{
	put_head(out, name, "gauge", help);
	fprintf(out, PREFIX "%s %.12g\n", name, value);
}

static void put_cost(FILE *out, const struct cost *c)
{
	put_gauge(
		out, "overhead_ratio",
		"What profiling cost in the last window, BPF time included, as a share of one CPU.",
		c->total / 100);
	put_gauge(out, "overhead_budget_ratio", "cpu_budget, as a share of one CPU.",
		  c->budget / 100);
	put_gauge(out, "rate_hertz", "Samples a second on each CPU in the last window.",
		  (double)c->hz);
	put_gauge(out, "configured_rate_hertz", "sample_hz.", (double)c->configured_hz);
	put_gauge(out, "resident_memory_bytes", "Memory of the daemon.", (double)c->rss);
	put_gauge(out, "bpf_map_bytes", "Kernel memory of BPF maps.", (double)c->maps);
	put_gauge(out, "unwind_table_bytes", "Of it, unwind tables.", (double)c->tables);
	put_gauge(out, "unwind_table_files", "Mapped files whose unwind tables are held.",
		  (double)c->table_files);
	put_gauge(out, "window_end_timestamp_seconds", "When the last window ended.",
		  (double)c->end_ns / 1e9);
}

void metrics_write(const struct metrics *m, FILE *out)
{
	put_head(out, "build_info", "gauge", "Which version this is.");
	fprintf(out, PREFIX "build_info{version=\"" VERSION "\"} 1\n");
	put_gauge(out, "profiling", "1 while this host is being profiled.", m->on);
	put_gauge(out, "window_seconds", "upload_interval_s that is in force.",
		  (double)m->window_s);
	if (m->cost->end_ns)
		put_cost(out, m->cost);
	put_counters(out);
	put_servers(out, m);
}
