// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See report.h. */
#include "report.h"

#include "fold.h"
#include "version.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

void report_begin(struct report *r, struct agent *a)
{
	u32 i;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < STAT_MAX; i++)
		r->stats[i] = stat_get(i);
	agent_cost(a, &r->cost);
	r->mono_ns = now_monotonic();
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

void report_changes(const struct report *r, bool only_losses, char *dst, size_t size)
{
	u32 i;

	*dst = '\0';
	for (i = 0; i < STAT_MAX; i++) {
		u64 n = stat_get(i) - r->stats[i];
		bool loss = !strncmp(stat_name(i), "lost_", 5);

		if (!n || i == STAT_samples_due || i == STAT_samples_kept || (only_losses && !loss))
			continue;
		append(dst, size, "%s%s %" PRIu64, *dst ? ", " : "", stat_name(i) + (loss ? 5 : 0),
		       n);
	}
	if (!*dst)
		append(dst, size, "none");
}

void report_ends(const struct window *w, const struct profile *p, char *dst, size_t size)
{
	u64 sum = 0, own[STACK_END_MAX] = { 0 };
	const u64 *ends = p ? own : w->ends;
	u32 i;

	*dst = '\0';
	for (i = 0; p && i < p->nsamples; i++)
		own[w->stacks[p->samples[i].stack].end] += p->samples[i].count;
	for (i = 0; i < STACK_END_MAX; i++)
		sum += ends[i];
	for (i = 0; i < STACK_END_MAX; i++)
		if (ends[i])
			append(dst, size, "%s%s %.1f %%", *dst ? ", " : "", stack_end_text(i),
			       100.0 * (double)ends[i] / (double)sum);
	if (!*dst)
		append(dst, size, "no samples");
}

void report_profile(struct report *r, const struct window *w, const struct profile *p)
{
	char *last = r->text[r->nlines - 1], text[200];

	report_ends(w, p, text, sizeof(text));
	snprintf(last, sizeof(r->text[0]), "user stacks of this profile: %s", text);
}

static char *line(struct report *r)
{
	r->lines[r->nlines] = r->text[r->nlines];
	return r->text[r->nlines++];
}

void report_end(struct report *r, struct agent *a, const struct window *w, u32 hz)
{
	char text[200];
	struct agent_cost now;
	struct utsname u;

	agent_cost(a, &now);
	r->seconds = (double)(now_monotonic() - r->mono_ns) / 1e9;
	r->user_percent = 100.0 * (now.user_s - r->cost.user_s) / r->seconds;
	r->bpf_percent = 100.0 * (now.bpf_s - r->cost.bpf_s) / r->seconds;
	r->cost = now;
	r->due = stat_get(STAT_samples_due) - r->stats[STAT_samples_due];
	r->kept = stat_get(STAT_samples_kept) - r->stats[STAT_samples_kept];

	uname(&u);
	snprintf(line(r), sizeof(r->text[0]), "ebpfprofiler " VERSION ", Linux %.64s %.32s",
		 u.release, u.machine);
	snprintf(line(r), sizeof(r->text[0]), "%u Hz per CPU by %s", hz, agent_clock(a));
	report_changes(r, true, text, sizeof(text));
	snprintf(line(r), sizeof(r->text[0]),
		 "samples of the host: %" PRIu64 " due, %" PRIu64 " kept, lost: %s", r->due,
		 r->kept, text);
	report_ends(w, NULL, text, sizeof(text));
	snprintf(line(r), sizeof(r->text[0]), "user stacks of the host: %s", text);
	snprintf(line(r), sizeof(r->text[0]),
		 "cost: %.2f %% of a CPU in user space, %.2f %% in BPF", r->user_percent,
		 r->bpf_percent);
	*line(r) = '\0'; /* report_profile() */
}
