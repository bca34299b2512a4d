// SPDX-License-Identifier: Apache-2.0
/*
 * Row 47: maps that are far too small for a busy host. Every sample that is due is counted or lost
 * under a name; nothing else happens. Linked with the daemon's objects.
 */
#include "core/line.h"
#include "core/log.h"
#include "core/module.h"
#include "core/process.h"
#include "core/sampler.h"
#include "core/stat.h"

#include <inttypes.h>

struct sink {
	struct sampler *sampler;
	struct line *line;
	u64 epoch, counted;
	bool deaf; /* as if the ring buffer had had no room */
};

static void on_stack(void *arg, const struct stack_event *ev, size_t len)
{
	struct sink *s = arg;

	if (!s->deaf || ev->key.stack_hash % 2)
		line_stack(s->line, ev, len, true);
}

static void on_count(void *arg, const struct stack_key *key, const struct stack_count *count)
{
	struct sink *s = arg;

	s->counted += count->count;
	line_count(s->line, s->epoch, key, count);
}

int main(void)
{
	struct sampler_options so = {
		.hz = 999, .kernel_frames = true, .max_frames = 64, .counts = 16
	};
	struct line_options lo = { .period_ns = 1 };
	struct modules *ms = modules_new(1 << 20);
	struct processes *ps = processes_new(ms, "/proc", false);
	struct sink s = { .line = line_new(ps, NULL, NULL, &lo), .deaf = true };
	u64 due, full, busy, nested, kept, ring;

	log_init(LOG_LEVEL_WARN);
	if (sampler_new(&so, &s.sampler) || line_open_epoch(s.line, 0, true, 1) ||
	    sampler_start(s.sampler))
		return 1;
	sleep(3);
	sampler_stop(s.sampler);
	if (line_open_epoch(s.line, 1, true, 1) || sampler_flip(s.sampler))
		return 1;
	sampler_read_stacks(s.sampler, on_stack, &s);
	sampler_read_counts(s.sampler, on_count, &s);
	due = sampler_stat(s.sampler, BPF_STAT_DUE);
	full = sampler_stat(s.sampler, BPF_STAT_LOST_COUNTS_FULL);
	busy = sampler_stat(s.sampler, BPF_STAT_LOST_BUSY);
	nested = sampler_stat(s.sampler, BPF_STAT_LOST_SCRATCH_BUSY);
	kept = stat_get(STAT_samples_kept);
	ring = stat_get(STAT_lost_ring_full);
	printf("due %" PRIu64 " = kept %" PRIu64 " + counts_full %" PRIu64 " + ring_full %" PRIu64
	       " + busy %" PRIu64 " + scratch_busy %" PRIu64 "\n",
	       due, kept, full, ring, busy, nested);
	window_free(line_close_epoch(s.line, 0, 2));
	window_free(line_close_epoch(s.line, 1, 2));
	sampler_free(s.sampler);
	line_free(s.line);
	processes_free(ps);
	modules_free(ms);
	return due == kept + full + ring + busy + nested && full && ring && s.counted == kept + ring
		       ? 0
		       : 1;
}
