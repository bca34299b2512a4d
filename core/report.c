// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See report.h. */
#include "report.h"

#include "fold.h"
#include "pidns.h"
#include "version.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#define SAMPLES_LOST "lost_"
#define WAITS_LOST   "wait_lost_"

void report_begin(struct report *r)
{
	u32 i;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < STAT_MAX; i++)
		r->stats[i] = stat_get(i);
	r->sidecar = !pidns_is_first();
}

static void append(char *dst, size_t size, const char *fmt, ...) __printf(3, 4);
static void append(char *dst, size_t size, const char *fmt, ...)
{
	size_t n = strlen(dst);
	va_list args;

	va_start(args, fmt);
	vsnprintf(dst + n, size - n, fmt, args);
	va_end(args);
}

static u64 growth(const struct report *r, enum stat_id stat)
{
	return stat_get(stat) - r->stats[stat];
}

void report_changes(const struct report *r, char *dst, size_t size)
{
	u32 i;

	*dst = '\0';
	for (i = 0; i < STAT_MAX; i++)
		if (growth(r, i) && i != STAT_samples_due && i != STAT_samples_kept)
			append(dst, size, "%s%s %" PRIu64, *dst ? ", " : "", stat_name(i),
			       growth(r, i));
	if (!*dst)
		append(dst, size, "none");
}

/* Counters of one kind of loss, by the name behind the prefix; "" when nothing was lost. */
static u64 losses(const struct report *r, const char *prefix, char *dst, size_t size)
{
	u64 sum = 0;
	u32 i;

	*dst = '\0';
	for (i = 0; i < STAT_MAX; i++) {
		if (!growth(r, i) || strncmp(stat_name(i), prefix, strlen(prefix)))
			continue;
		append(dst, size, "%s%s %" PRIu64, *dst ? ", " : "", stat_name(i) + strlen(prefix),
		       growth(r, i));
		sum += growth(r, i);
	}
	return sum;
}

static void put_ends(const u64 *ends, char *dst, size_t size)
{
	u64 sum = 0;
	u32 i;

	*dst = '\0';
	for (i = 0; i < STACK_END_MAX; i++)
		sum += ends[i];
	for (i = 0; i < STACK_END_MAX; i++)
		if (ends[i])
			append(dst, size, "%s%s %.1f %%", *dst ? ", " : "", stack_end_text(i),
			       100.0 * (double)ends[i] / (double)sum);
}

/* "merged 99.2 %, ...": what became of interpreters' stacks, of samples that have one. */
void report_lists(const struct window *w, const struct profile *p, char *dst, size_t size)
{
	u64 own[SAMPLE_LIST_MAX] = { 0 }, sum = 0;
	const u64 *lists = p ? own : w->lists;
	u32 i;

	*dst = '\0';
	for (i = 0; p && i < p->nsamples; i++)
		own[w->stacks[p->samples[i].stack].list] += p->samples[i].count;
	for (i = SAMPLE_LIST_NONE + 1; i < SAMPLE_LIST_MAX; i++)
		sum += lists[i];
	for (i = SAMPLE_LIST_NONE + 1; i < SAMPLE_LIST_MAX; i++)
		if (lists[i])
			append(dst, size, "%s%s %.1f %%", *dst ? ", " : "", sample_list_text(i),
			       100.0 * (double)lists[i] / (double)sum);
}

void report_ends(const struct window *w, const struct profile *p, char *dst, size_t size)
{
	u64 own[STACK_END_MAX] = { 0 };
	u32 i;

	for (i = 0; p && i < p->nsamples; i++)
		own[w->stacks[p->samples[i].stack].end] += p->samples[i].count;
	put_ends(p ? own : w->ends, dst, size);
	if (!*dst)
		append(dst, size, "no samples");
}

void report_profile(struct report *r, const struct window *w, const struct profile *p)
{
	char *last = r->text[r->nlines - 1], text[REPORT_TEXT - 64];

	report_ends(w, p, text, sizeof(text));
	snprintf(last, sizeof(r->text[0]), "user stacks of this profile: %s", text);
	report_lists(w, p, text, sizeof(text));
	if (*text)
		append(last, sizeof(r->text[0]), "; interpreters' stacks: %s", text);
}

u64 report_period(const struct window *w, u32 hz)
{
	u64 ns = 0, n = 0;
	u32 i, k;

	for (i = 0; i < w->nprofiles; i++) {
		const struct profile *p = &w->profiles[i];

		for (k = 0; p->type == &sample_cpu && k < p->nsamples; k++) {
			ns += p->samples[k].value_ns;
			n += p->samples[k].count;
		}
	}
	if (n)
		return ns / n;
	return hz ? NSEC_PER_SEC / hz : 1;
}

static char *line(struct report *r)
{
	r->lines[r->nlines] = r->text[r->nlines];
	return r->text[r->nlines++];
}

static void line_kernel(struct report *r)
{
	struct utsname u;

	uname(&u);
	snprintf(line(r), sizeof(r->text[0]), "ebpfprofiler " VERSION ", Linux %.64s %.32s",
		 u.release, u.machine);
}

static void line_rate(struct report *r, const struct window *w)
{
	const struct cost *c = &r->cost;
	char *dst = line(r);
	double mean;

	if (!c->configured_hz) {
		snprintf(dst, sizeof(r->text[0]), "nothing is sampled on CPU");
		return;
	}
	snprintf(dst, sizeof(r->text[0]), "%" PRIu64 " Hz per CPU by %s", c->hz, c->clock);
	if (c->hz != c->configured_hz)
		append(dst, sizeof(r->text[0]), ", %" PRIu64 " configured", c->configured_hz);
	mean = 1e9 / (double)report_period(w, (u32)c->hz);
	if (mean > 1.01 * (double)c->hz || mean < 0.99 * (double)c->hz)
		append(dst, sizeof(r->text[0]), "; really %.1f in this window", mean);
}

static void line_offcpu(struct report *r, u64 min_ns)
{
	const struct cost *c = &r->cost;
	char *dst;

	if (!*c->mode && !*c->refused)
		return;
	dst = line(r);
	if (!*c->mode || c->paused) {
		snprintf(dst, sizeof(r->text[0]), "off CPU: %s",
			 c->paused ? "paused to stay under cpu_budget" : c->refused);
		return;
	}
	snprintf(dst, sizeof(r->text[0]), "off CPU: %s; waits of %.6g ms and more", c->mode,
		 (double)min_ns / 1e6);
	if (c->sample_ns)
		append(dst, sizeof(r->text[0]),
		       "; those shorter than T = %.6g ms sampled: each is kept with its length / "
		       "T, and stands for T",
		       (double)c->sample_ns / 1e6);
}

static const char *or_none(const char *s)
{
	return *s ? s : "none";
}

/* What all figures but a profile's own are of. */
static const char *of_what(const struct report *r)
{
	return r->sidecar ? "our pid namespace" : "the host";
}

static void line_counts(struct report *r)
{
	const struct cost *c = &r->cost;

	snprintf(line(r), sizeof(r->text[0]),
		 "samples of %s: %" PRIu64 " due, %" PRIu64 " kept, lost: %s", of_what(r),
		 c->samples_due, c->samples_kept, or_none(c->samples_lost));
	if (r->outside)
		snprintf(line(r), sizeof(r->text[0]),
			 "samples outside our pid namespace: %" PRIu64 ", not taken", r->outside);
	if (*c->mode)
		snprintf(line(r), sizeof(r->text[0]),
			 "waits of %s: %" PRIu64 " due, %" PRIu64 " kept, %" PRIu64
			 " sampled out, lost: %s",
			 of_what(r), c->waits_due, c->waits_kept, c->waits_sampled_out,
			 or_none(c->waits_lost));
}

static void line_cost(struct report *r)
{
	const struct cost *c = &r->cost;
	char text[96];

	cost_summary(c, text, sizeof(text));
	snprintf(line(r), sizeof(r->text[0]),
		 "%s: on CPU %.2f, off CPU %.2f, runtimes %.2f; %.1f MB, BPF maps %.1f MB", text,
		 c->sides[GUARD_CPU], c->sides[GUARD_OFFCPU], c->sides[GUARD_RUNTIMES],
		 (double)c->rss / 1e6, (double)c->maps / 1e6);
}

static void take_counts(struct report *r)
{
	struct cost *c = &r->cost;

	/* Of those that are wanted: that some were not came out too late. */
	c->samples_due = growth(r, STAT_samples_due);
	c->samples_due -= MIN(c->samples_due, growth(r, STAT_samples_left_out));
	r->due = c->samples_due;
	r->outside = growth(r, STAT_samples_outside);
	r->kept = c->samples_kept = growth(r, STAT_samples_kept);
	losses(r, SAMPLES_LOST, c->samples_lost, sizeof(c->samples_lost));
	c->waits_due = growth(r, STAT_waits_due);
	c->waits_due -= MIN(c->waits_due, growth(r, STAT_waits_left_out));
	c->waits_kept = growth(r, STAT_waits_kept);
	c->waits_sampled_out = growth(r, STAT_waits_sampled_out);
	losses(r, WAITS_LOST, c->waits_lost, sizeof(c->waits_lost));
}

void report_end(struct report *r, const struct cost *c, const struct window *w, u64 offcpu_min_ns)
{
	char text[REPORT_TEXT - 64];

	r->cost = *c;
	r->nlines = 0;
	take_counts(r);
	line_kernel(r);
	line_rate(r, w);
	line_counts(r);
	report_ends(w, NULL, text, sizeof(text));
	snprintf(line(r), sizeof(r->text[0]), "user stacks of %s: %s", of_what(r), text);
	report_lists(w, NULL, text, sizeof(text));
	if (*text)
		snprintf(line(r), sizeof(r->text[0]), "interpreters' stacks of %s: %s", of_what(r),
			 text);
	line_offcpu(r, offcpu_min_ns);
	line_cost(r);
	*line(r) = '\0'; /* report_profile() */
}

void report_moved(struct report *r)
{
	u32 i;

	for (i = 0; i < r->nlines; i++)
		r->lines[i] = r->text[i];
}

/*
 * "2280 samples", and what became of them if not all were kept. A few that are counted at the very
 * moment at which a window ends are due in one and kept in the next.
 */
static void put_counts(char *dst, size_t size, const char *what, u64 due, u64 kept,
		       const char *lost)
{
	append(dst, size, "%" PRIu64 " %s", due, what);
	if (*lost)
		append(dst, size, " (%" PRIu64 " kept, lost: %s)", kept, lost);
	append(dst, size, "; ");
}

/* All that there is to know about ends is in the comments; here only whether all is well. */
static void put_quality(const struct window *w, char *dst, size_t size)
{
	u64 whole = w->ends[STACK_END_COMPLETE], guessed = w->ends[STACK_END_GUESSED], cut = 0;
	double sum;
	u32 i;

	for (i = 0; i < STACK_END_MAX; i++)
		if (i != STACK_END_COMPLETE && i != STACK_END_GUESSED && i != STACK_END_NO_USER)
			cut += w->ends[i];
	sum = (double)(whole + guessed + cut);
	if (sum > 0)
		append(dst, size,
		       "user stacks %.1f %% complete, %.1f %% guessed in part, %.1f %% "
		       "not; ",
		       100 * (double)whole / sum, 100 * (double)guessed / sum,
		       100 * (double)cut / sum);
}

void report_line(const struct report *r, const struct window *w, char *dst, size_t size)
{
	const struct cost *c = &r->cost;
	char text[96];

	*dst = '\0';
	append(dst, size, "window of %.1f s: ", c->seconds);
	put_counts(dst, size, "samples", c->samples_due, c->samples_kept, c->samples_lost);
	if (r->outside)
		append(dst, size, "%" PRIu64 " outside our pid namespace; ", r->outside);
	if (*c->mode)
		put_counts(dst, size, "waits", c->waits_due, c->waits_kept, c->waits_lost);
	append(dst, size, "%u profiles, %u stacks; ", w->nprofiles, w->nstacks);
	put_quality(w, dst, size);
	cost_summary(c, text, sizeof(text));
	append(dst, size, "%s; %.1f MB, BPF maps %.1f MB, tables of %" PRIu64 " files", text,
	       (double)c->rss / 1e6, (double)c->maps / 1e6, c->table_files);
	if (c->configured_hz && c->hz != c->configured_hz)
		append(dst, size, "; %" PRIu64 " Hz of %" PRIu64, c->hz, c->configured_hz);
	if (c->paused)
		append(dst, size, "; off CPU paused");
	else if (*c->mode && c->sample_ns)
		append(dst, size, "; waits under %.3g ms sampled", (double)c->sample_ns / 1e6);
}
