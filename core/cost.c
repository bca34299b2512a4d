// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See cost.h. */
#include "cost.h"

#include "cpus.h"
#include "htab.h"
#include "store.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define SLICE_MAX_NS NSEC_PER_SEC
#define SLICE_PART   4                   /* of a period, at most */
#define SLICE_MIN_NS (NSEC_PER_SEC / 50) /* what is shorter tells nothing */
#define FILE_MAX     16384
#define FILE_HEAD    "ebpfprofiler-cost 1"
#define FILE_END     "." /* begins no field */

/* --- measuring ------------------------------------------------------------------------------- */

/*
 * With the statistics on, every run of every BPF program on the host reads the clock twice, which
 * costs a load that does nothing but switch several percent; and switching them rewrites the
 * kernel's code, which takes milliseconds. So they are on for one slice of each period, at a random
 * place, so that no rhythm of the load hides from it.
 */
static void plan_slice(struct cost_meter *m)
{
	u64 now = now_monotonic(), room = m->period_ns - m->slice_ns;

	m->next_ns = UINT64_MAX;
	if (m->slice_ns)
		m->next_ns = m->period_start_ns + hash_bytes(&now, sizeof(now)) % (room + 1);
}

static void begin_window(struct cost_meter *m, u64 now)
{
	m->window_ns = now;
	m->stale = true;
	m->cpus = agent_cpus(m->agent);
}

void cost_meter_init(struct cost_meter *m, struct agent *a, u64 period_ns)
{
	*m = (struct cost_meter){ .agent = a, .fd = -1, .period_ns = period_ns };
	m->slice_ns = MIN(m->period_ns / SLICE_PART, SLICE_MAX_NS);
	agent_cost(a, &m->cost);
	agent_waits(a, &m->waits);
	m->period_start_ns = now_monotonic();
	begin_window(m, m->period_start_ns);
	plan_slice(m);
}

void cost_meter_fini(struct cost_meter *m)
{
	closep(&m->fd);
	m->fd = -1;
}

u64 cost_meter_next(const struct cost_meter *m)
{
	return m->next_ns;
}

static void begin_slice(struct cost_meter *m, u64 now)
{
	m->fd = sampler_enable_run_time();
	if (m->fd < 0) {
		m->next_ns = UINT64_MAX; /* not allowed to */
		return;
	}
	m->nslice = agent_programs(m->agent, m->slice, COST_PROGRAMS_MAX);
	m->slice_start_ns = now_monotonic();
	m->next_ns = now + m->slice_ns;
}

static struct agent_program *find_program(struct agent_program *list, u32 n, const char *name)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (!strcmp(list[i].time.name, name))
			return &list[i];
	return NULL;
}

/* What a program did since the slice began goes to its sum; one loaded since then has no past. */
static void add_program(struct cost_meter *m, const struct agent_program *now)
{
	struct agent_program *then = find_program(m->slice, m->nslice, now->time.name);
	struct agent_program *sum = find_program(m->sum, m->nsum, now->time.name);

	if (!sum) {
		if (m->nsum == COST_PROGRAMS_MAX)
			return;
		sum = &m->sum[m->nsum++];
		*sum = *now;
		sum->time.ns = sum->time.runs = 0;
	}
	if (then && then->time.ns <= now->time.ns && then->time.runs <= now->time.runs) {
		sum->time.ns += now->time.ns - then->time.ns;
		sum->time.runs += now->time.runs - then->time.runs;
	}
}

static void end_slice(struct cost_meter *m)
{
	struct agent_program now[COST_PROGRAMS_MAX];
	u64 ns = now_monotonic() - m->slice_start_ns;
	u32 n, i;

	n = agent_programs(m->agent, now, COST_PROGRAMS_MAX);
	close(m->fd);
	m->fd = -1;
	if (ns < SLICE_MIN_NS)
		return;
	if (m->stale) {
		m->nsum = 0;
		m->measured_ns = 0;
		m->stale = false;
	}
	m->measured_ns += ns;
	for (i = 0; i < n; i++)
		add_program(m, &now[i]);
}

void cost_meter_tick(struct cost_meter *m, u64 now)
{
	if (now < m->next_ns)
		return;
	if (m->fd < 0) {
		begin_slice(m, now);
		return;
	}
	end_slice(m);
	/* A process that was stopped for long catches up on nothing. */
	m->period_start_ns = MAX(m->period_start_ns + m->period_ns, now);
	plan_slice(m);
}

static double percent(double seconds, const struct cost *c)
{
	return c->seconds > 0 ? 100 * MAX(seconds, 0.0) / c->seconds : 0;
}

static void set_programs(struct cost *c, const struct cost_meter *m)
{
	double seconds = (double)m->measured_ns / 1e9;
	u32 i;

	c->measured = m->measured_ns;
	for (i = 0; i < m->nsum; i++) {
		const struct program_time *t = &m->sum[i].time;
		struct cost_program *p = &c->programs[c->nprograms++];

		memcpy(p->name, t->name, sizeof(p->name));
		p->waits = m->sum[i].waits;
		p->runs = (double)t->runs / seconds;
		p->ns = t->runs ? (double)t->ns / (double)t->runs : 0;
	}
}

/*
 * Whose is the time of own threads? What was told apart, and the rest by the number of distinct
 * stacks that came from either side, which is what most of the work follows.
 */
static void set_sides(struct cost *c, double own, double walks, double runtimes, u64 stacks,
		      u64 wait_stacks)
{
	double rest = MAX(own - walks - runtimes, 0.0), share = 0;

	if (stacks + wait_stacks)
		share = (double)wait_stacks / (double)(stacks + wait_stacks);
	c->sides[GUARD_CPU] = rest * (1 - share) + c->cpu_programs;
	c->sides[GUARD_OFFCPU] = rest * share + walks + c->wait_programs + c->callbacks;
	c->sides[GUARD_RUNTIMES] = runtimes;
	c->total = c->sides[GUARD_CPU] + c->sides[GUARD_OFFCPU] + c->sides[GUARD_RUNTIMES];
}

static void set_levers(struct cost *c, const struct cost_meter *m, const struct agent_waits *w)
{
	c->hz = agent_hz(m->agent);
	c->sample_ns = w->sample_ns;
	c->paused = w->paused;
	snprintf(c->clock, sizeof(c->clock), "%s", agent_clock(m->agent));
	snprintf(c->mode, sizeof(c->mode), "%s", w->mode ? w->mode : "");
	snprintf(c->refused, sizeof(c->refused), "%s", w->refused ? w->refused : "");
}

static u64 process_start(u64 pid);

void cost_meter_end(struct cost_meter *m, struct cost *c)
{
	u64 now = now_monotonic();
	struct tables_figures tables;
	struct agent_cost cost;
	struct agent_waits waits;
	double kept, own;

	agent_cost(m->agent, &cost);
	agent_waits(m->agent, &waits);
	agent_tables(m->agent, &tables);
	*c = (struct cost){
		.pid = (u64)getpid(),
		.pid_start = process_start((u64)getpid()),
		.end_ns = now_realtime(),
		.seconds = (double)(now - m->window_ns) / 1e9,
		.cpus = m->cpus, /* of its start: at the very end nothing is sampled */
		.rss = cost.rss_bytes,
		.maps = cost.map_bytes,
		.tables = tables.table_bytes,
		.table_files = tables.files,
		.table_processes = tables.processes,
		.share = 100,
	};
	/* An answer under way is set aside as a whole, but it is not known yet as whose. */
	own = cost.user_s + cost.system_s - m->cost.user_s - m->cost.system_s;
	c->user = percent(MIN(cost.user_s - m->cost.user_s, own), c);
	c->system = MAX(percent(own, c) - c->user, 0.0);
	c->cpu_programs = percent(cost.bpf_s - m->cost.bpf_s, c);
	c->callbacks = percent(waits.callback_s - m->waits.callback_s, c);
	c->callback_runs =
		c->seconds > 0 ? (double)(waits.callbacks - m->waits.callbacks) / c->seconds : 0;
	kept = percent(waits.kept_s - m->waits.kept_s, c);
	c->wait_programs = percent(waits.switch_s - m->waits.switch_s, c);
	c->switches = MAX(c->wait_programs - kept, 0.0);
	c->wait_programs += percent(waits.stack_s - m->waits.stack_s, c);
	set_programs(c, m);
	set_sides(c, c->user + c->system, percent(waits.own_s - m->waits.own_s, c),
		  percent(cost.runtime_s - m->cost.runtime_s, c), cost.stacks - m->cost.stacks,
		  cost.wait_stacks - m->cost.wait_stacks);
	set_levers(c, m, &waits);
	m->cost = cost;
	m->waits = waits;
	begin_window(m, now);
}

/* --- for people and scripts ------------------------------------------------------------------ */

void cost_summary(const struct cost *c, char *dst, size_t size)
{
	snprintf(dst, size, "cost %.2f %% of a CPU (user %.2f, kernel %.2f, BPF %.2f)", c->total,
		 c->user, c->system, c->cpu_programs + c->wait_programs + c->callbacks);
}

static void put_row(FILE *out, const char *what, double share)
{
	fprintf(out, "%-28s %10.3f\n", what, share);
}

static void put_program(FILE *out, const char *what, double runs, double ns)
{
	fprintf(out, "  %-26s %10.3f %12.1f %10.0f\n", what, runs * ns / 1e7, runs, ns);
}

static void print_programs(const struct cost *c, FILE *out)
{
	u32 i;

	put_row(out, "BPF, on CPU", c->cpu_programs);
	for (i = 0; i < c->nprograms; i++)
		if (!c->programs[i].waits)
			put_program(out, c->programs[i].name, c->programs[i].runs,
				    c->programs[i].ns);
	put_row(out, "BPF, off CPU", c->wait_programs + c->callbacks);
	for (i = 0; i < c->nprograms; i++)
		if (c->programs[i].waits)
			put_program(out, c->programs[i].name, c->programs[i].runs,
				    c->programs[i].ns);
	if (c->callback_runs > 0)
		put_program(out, "callbacks", c->callback_runs,
			    c->callbacks * 1e7 / c->callback_runs);
}

static void print_levers(const struct cost *c, FILE *out)
{
	if (c->configured_hz)
		fprintf(out, "on CPU: %" PRIu64 " Hz per CPU of %" PRIu64 " configured, by %s\n",
			c->hz, c->configured_hz, c->clock);
	if (c->paused)
		fprintf(out, "off CPU: paused, the context switches alone are over the budget\n");
	else if (*c->mode && c->sample_ns)
		fprintf(out, "off CPU: %s; waits shorter than %.3g ms are sampled\n", c->mode,
			(double)c->sample_ns / 1e6);
	else if (*c->mode)
		fprintf(out, "off CPU: %s\n", c->mode);
	else if (*c->refused)
		fprintf(out, "off CPU: %s\n", c->refused);
	if (c->share < 100)
		fprintf(out, "runtimes: %" PRIu64 " %% of their stacks are walked\n", c->share);
}

static const char *none_if_empty(const char *s)
{
	return *s ? s : "none";
}

void cost_print(const struct cost *c, FILE *out)
{
	fprintf(out, "%-28s %10s %12s %10s\n", "", "% of a CPU", "runs/s", "ns/run");
	put_row(out, "own threads, user", c->user);
	put_row(out, "own threads, kernel", c->system);
	print_programs(c, out);
	put_row(out, "total", c->total);
	fprintf(out, "%-28s %10.3f\n", "cpu_budget", c->budget);
	fprintf(out, "by side: on CPU %.3f, off CPU %.3f, runtimes %.3f\n", c->sides[GUARD_CPU],
		c->sides[GUARD_OFFCPU], c->sides[GUARD_RUNTIMES]);
	if (!c->measured)
		fprintf(out, "runs of each program: not measured; the kernel's statistics need "
			     "CAP_SYS_ADMIN\n");
	fprintf(out,
		"memory: %.1f MB resident, %.1f MB in BPF maps, of which %.1f MB are unwind tables "
		"of %" PRIu64 " files for %" PRIu64 " processes\n",
		(double)c->rss / 1e6, (double)c->maps / 1e6, (double)c->tables / 1e6,
		c->table_files, c->table_processes);
	fprintf(out, "samples: %" PRIu64 " due, %" PRIu64 " kept, lost: %s\n", c->samples_due,
		c->samples_kept, none_if_empty(c->samples_lost));
	if (*c->mode)
		fprintf(out,
			"waits: %" PRIu64 " due, %" PRIu64 " kept, %" PRIu64
			" sampled out, lost: %s\n",
			c->waits_due, c->waits_kept, c->waits_sampled_out,
			none_if_empty(c->waits_lost));
	print_levers(c, out);
}

/* --- the file, and JSON: one table ------------------------------------------------------------ */

enum field_type { FIELD_COUNT, FIELD_REAL, FIELD_TEXT };

static const struct field {
	const char *name;
	enum field_type type;
	size_t offset, size;
} fields[] = {
#define FIELD(type, name, member)                                                             \
	{                                                                                     \
		name, type, offsetof(struct cost, member), sizeof(((struct cost *)0)->member) \
	}
	FIELD(FIELD_COUNT, "pid", pid),
	FIELD(FIELD_COUNT, "pid_start", pid_start),
	FIELD(FIELD_COUNT, "end_ns", end_ns),
	FIELD(FIELD_REAL, "seconds", seconds),
	FIELD(FIELD_COUNT, "cpus", cpus),
	FIELD(FIELD_REAL, "user_percent", user),
	FIELD(FIELD_REAL, "system_percent", system),
	FIELD(FIELD_REAL, "cpu_programs_percent", cpu_programs),
	FIELD(FIELD_REAL, "wait_programs_percent", wait_programs),
	FIELD(FIELD_REAL, "switches_percent", switches),
	FIELD(FIELD_REAL, "callbacks_percent", callbacks),
	FIELD(FIELD_REAL, "callbacks_per_s", callback_runs),
	FIELD(FIELD_REAL, "side_cpu_percent", sides[GUARD_CPU]),
	FIELD(FIELD_REAL, "side_offcpu_percent", sides[GUARD_OFFCPU]),
	FIELD(FIELD_REAL, "side_runtimes_percent", sides[GUARD_RUNTIMES]),
	FIELD(FIELD_REAL, "total_percent", total),
	FIELD(FIELD_REAL, "budget_percent", budget),
	FIELD(FIELD_COUNT, "measured_ns", measured),
	FIELD(FIELD_COUNT, "rss_bytes", rss),
	FIELD(FIELD_COUNT, "map_bytes", maps),
	FIELD(FIELD_COUNT, "table_bytes", tables),
	FIELD(FIELD_COUNT, "table_files", table_files),
	FIELD(FIELD_COUNT, "table_processes", table_processes),
	FIELD(FIELD_COUNT, "samples_due", samples_due),
	FIELD(FIELD_COUNT, "samples_kept", samples_kept),
	FIELD(FIELD_TEXT, "samples_lost", samples_lost),
	FIELD(FIELD_COUNT, "waits_due", waits_due),
	FIELD(FIELD_COUNT, "waits_kept", waits_kept),
	FIELD(FIELD_COUNT, "waits_sampled_out", waits_sampled_out),
	FIELD(FIELD_TEXT, "waits_lost", waits_lost),
	FIELD(FIELD_COUNT, "hz", hz),
	FIELD(FIELD_COUNT, "configured_hz", configured_hz),
	FIELD(FIELD_TEXT, "clock", clock),
	FIELD(FIELD_TEXT, "offcpu_mode", mode),
	FIELD(FIELD_TEXT, "offcpu_refused", refused),
	FIELD(FIELD_COUNT, "offcpu_sample_ns", sample_ns),
	FIELD(FIELD_COUNT, "offcpu_paused", paused),
	FIELD(FIELD_COUNT, "runtime_share_percent", share),
#undef FIELD
};

static void *member(const struct cost *c, const struct field *f)
{
	return (char *)c + f->offset;
}

static void put_value(FILE *out, const struct cost *c, const struct field *f)
{
	if (f->type == FIELD_COUNT)
		fprintf(out, "%" PRIu64, *(u64 *)member(c, f));
	else if (f->type == FIELD_REAL)
		fprintf(out, "%.6g", *(double *)member(c, f));
	else
		fputs(member(c, f), out);
}

static void put_json_text(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

void cost_print_json(const struct cost *c, FILE *out)
{
	size_t i;

	fputs("{", out);
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		fprintf(out, "\"%s\":", fields[i].name);
		if (fields[i].type == FIELD_TEXT)
			put_json_text(out, member(c, &fields[i]));
		else
			put_value(out, c, &fields[i]);
		fputs(",\n", out);
	}
	fputs("\"programs\":[", out);
	for (i = 0; i < c->nprograms; i++) {
		const struct cost_program *p = &c->programs[i];

		fprintf(out, "%s{\"name\":", i ? ",\n" : "");
		put_json_text(out, p->name);
		fprintf(out, ",\"waits\":%s,\"runs_per_s\":%.6g,\"ns_per_run\":%.6g}",
			p->waits ? "true" : "false", p->runs, p->ns);
	}
	fputs("]}\n", out);
}

int cost_save(const struct cost *c, const char *path)
{
	_cleanup_free_ char *text = NULL;
	size_t len, i;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return -errno;
	fputs(FILE_HEAD "\n", f);
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		fprintf(f, "%s ", fields[i].name);
		put_value(f, c, &fields[i]);
		fputc('\n', f);
	}
	for (i = 0; i < c->nprograms; i++)
		fprintf(f, "program %" PRIu64 " %.6g %.6g %s\n", c->programs[i].waits,
			c->programs[i].runs, c->programs[i].ns, c->programs[i].name);
	fputs(FILE_END "\n", f);
	if (fclose(f))
		return -errno;
	return write_file_unsynced(path, text, len, 0644);
}

static int parse_real(const char *s, double *ret)
{
	char *end;

	errno = 0;
	*ret = strtod(s, &end);
	return errno || end == s || *end || !isfinite(*ret) || *ret < 0 ? -EINVAL : 0;
}

static int parse_count(const char *s, u64 *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(s, &end, 10);
	return errno || !isdigit((unsigned char)*s) || *end ? -EINVAL : 0;
}

/* "WAITS RUNS NS NAME" */
static int parse_program(char *s, struct cost *c)
{
	struct cost_program *p = &c->programs[c->nprograms];
	char *waits = strsep(&s, " "), *runs = strsep(&s, " "), *ns = strsep(&s, " ");

	if (!s || c->nprograms == COST_PROGRAMS_MAX || parse_count(waits, &p->waits) ||
	    parse_real(runs, &p->runs) || parse_real(ns, &p->ns))
		return -EINVAL;
	utf8_clean(p->name, sizeof(p->name), s, strlen(s));
	c->nprograms++;
	return 0;
}

static int parse_field(const char *name, char *value, struct cost *c)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		const struct field *f = &fields[i];

		if (strcmp(f->name, name))
			continue;
		if (f->type == FIELD_COUNT)
			return parse_count(value, member(c, f));
		if (f->type == FIELD_REAL)
			return parse_real(value, member(c, f));
		utf8_clean(member(c, f), f->size, value, strlen(value));
		return 0;
	}
	/* Another version of the daemon may say more. */
	return 0;
}

int cost_parse(const char *text, struct cost *ret)
{
	_cleanup_free_ char *copy = strdup(text);
	struct cost c = { .share = 100 };
	char *rest = copy, *line, *name;

	if (!copy)
		return -ENOMEM;
	line = strsep(&rest, "\n");
	if (strcmp(line, FILE_HEAD))
		return -EINVAL;
	while ((line = strsep(&rest, "\n"))) {
		if (!strcmp(line, FILE_END)) {
			*ret = c;
			return 0;
		}
		name = strsep(&line, " ");
		if (!line || (strcmp(name, "program") ? parse_field(name, line, &c)
						      : parse_program(line, &c)))
			return -EINVAL;
	}
	return -EINVAL;
}

/* Field 22 of /proc/PID/stat, in clock ticks since boot; 0 when there is no such process. */
static u64 process_start(u64 pid)
{
	_cleanup_free_ char *text = NULL;
	char path[48];
	char *s;
	int i;

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
	if (read_file(path, 4096, &text, NULL))
		return 0;
	s = strrchr(text, ')'); /* a name may hold anything */
	for (i = 2; s && i < 22; i++) {
		s = strchr(s, ' ');
		s = s ? s + 1 : NULL;
	}
	return s ? strtoull(s, NULL, 10) : 0;
}

int cost_load(const char *path, struct cost *ret)
{
	_cleanup_free_ char *text = NULL;
	struct cost c;
	int err = read_file(path, FILE_MAX, &text, NULL);

	if (!err)
		err = cost_parse(text, &c);
	if (err)
		return err;
	if (!c.pid_start || process_start(c.pid) != c.pid_start)
		return -ESRCH;
	*ret = c;
	return 0;
}
