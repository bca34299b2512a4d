// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See recording.h. */
#include "recording.h"

#include "agent.h"
#include "fold.h"
#include "log.h"
#include "web_api.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <string.h>

#define SECONDS  10
#define POLL_NS  (NSEC_PER_SEC / 4)  /* whether its process still lives, and who asked is there */
#define NAMES_NS (NSEC_PER_SEC / 50) /* between steps of looking for names */
#define NOTES    4
#define NOTE     256

struct recording {
	struct agent *agent; /* NULL: profiling is off */
	u64 offcpu_min_ns;
	struct recording_question q;
	u64 begin_ns, until_ns;
	bool ended;
	/* Of the one that has ended; the worker's, while it answers. */
	struct window *window;
	u32 hz;
	char host[256], notes[NOTES][NOTE];
	u32 nnotes;
};

static const struct {
	const char *name, *suffix;
} formats[] = {
	[TIMELINE_FIREFOX] = { "firefox", "firefox.json.gz" },
	[TIMELINE_PERFETTO] = { "perfetto", "perfetto-trace.gz" },
};

struct recording *recording_new(void)
{
	struct recording *r = calloc(1, sizeof(*r));

	if (r)
		host_name(r->host, sizeof(r->host));
	return r;
}

void recording_free(struct recording *r)
{
	free(r);
}

void recording_agent(struct recording *r, struct agent *a, u64 offcpu_min_ns)
{
	r->agent = a;
	r->offcpu_min_ns = offcpu_min_ns;
}

int recording_parse(const struct web_question *q, struct recording_question *ret)
{
	const char *format = web_param(q, "format");
	u64 pid = 0, seconds = SECONDS;
	u32 i;

	if (!web_param_number(q, "pid", INT_MAX, &pid) || !pid ||
	    !web_param_number(q, "seconds", RECORDING_SECONDS_MAX, &seconds) || !seconds)
		return -EINVAL;
	*ret = (struct recording_question){ (u32)pid, (u32)seconds, TIMELINE_FIREFOX };
	if (!format)
		return 0;
	for (i = 0; i < ARRAY_SIZE(formats); i++)
		if (!strcmp(formats[i].name, format)) {
			ret->format = i;
			return 0;
		}
	return -EINVAL;
}

static void refuse(struct web_answer *a, int err)
{
	switch (err) {
	case -EINVAL:
		return web_api_refuse(a, 400, "a parameter has no sense: see docs/api.md");
	case -ESRCH:
		return web_api_refuse(a, 404, "there is no such process");
	case -EACCES:
		return web_api_refuse(a, 403, "this process is left out of profiles");
	case -ENODEV:
		return web_api_refuse(a, 503, "profiling is off");
	default:
		return web_api_refuse(a, 503, strerror(-err));
	}
}

static int begin(void *arg, const struct web_question *q, struct web_answer *ret)
{
	struct recording *r = arg;
	int err = recording_parse(q, &r->q);

	if (!err)
		err = r->agent ? agent_timeline_begin(r->agent, r->q.pid) : -ENODEV;
	if (err) {
		refuse(ret, err);
		return err;
	}
	r->begin_ns = now_monotonic();
	r->until_ns = r->begin_ns + r->q.seconds * NSEC_PER_SEC;
	r->ended = false;
	log_info("recording a time line of process %u for %u s, for the page", r->q.pid,
		 r->q.seconds);
	return 0;
}

static u64 next(void *arg)
{
	const struct recording *r = arg;
	u64 now = now_monotonic();

	return r->ended ? now + NAMES_NS : MIN(r->until_ns, now + POLL_NS);
}

__attribute__((format(printf, 2, 3))) static void note(struct recording *r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->notes[r->nnotes++], NOTE, fmt, args);
	va_end(args);
}

/* What who looks at it has to know. */
static void take_notes(struct recording *r, double seconds, u64 lost)
{
	struct agent_waits waits;

	r->nnotes = 0;
	r->hz = agent_hz(r->agent);
	agent_waits(r->agent, &waits);
	note(r, "time line of process %u: %.1f s of %u s", r->q.pid, seconds, r->q.seconds);
	note(r, "samples at %u Hz per CPU, the rate in force", r->hz);
	if (!waits.mode || waits.paused)
		note(r, "waits: %s",
		     waits.paused    ? "paused to stay under cpu_budget"
		     : waits.refused ? waits.refused
				     : "off");
	else if (waits.sample_ns)
		note(r, "waits of %.6g ms and more; of those under %.6g ms a part stands for all",
		     (double)r->offcpu_min_ns / 1e6, (double)waits.sample_ns / 1e6);
	else
		note(r, "waits of %.6g ms and more", (double)r->offcpu_min_ns / 1e6);
	if (lost)
		note(r, "%llu events are not in it, for want of room", (unsigned long long)lost);
}

static bool ready(void *arg)
{
	struct recording *r = arg;
	u64 now = now_monotonic(), lost;

	if (!r->ended) {
		if (now < r->until_ns && agent_timeline_alive(r->agent))
			return false;
		agent_timeline_end(r->agent);
		r->until_ns = now;
		r->ended = true;
	}
	r->window = agent_timeline_take(r->agent, &lost);
	if (!r->window)
		return false;
	take_notes(r, (double)(r->until_ns - r->begin_ns) / 1e9, lost);
	return true;
}

/* The program's name, as far as a file's name has room and letters for it. */
static void file_name(const struct recording *r, char *dst, size_t size)
{
	const struct window *w = r->window;
	const char *exe = w->nlabels ? w->labels[0].exe : "process";
	char *c;

	snprintf(dst, size, "%.60s-pid%u-%us.%s", exe, r->q.pid, r->q.seconds,
		 formats[r->q.format].suffix);
	for (c = dst; *c; c++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.",
			    *c))
			*c = '_';
}

static void answer(void *arg, struct web_answer *ret)
{
	const struct recording *r = arg;
	const char *lines[NOTES];
	const struct timeline_options o = {
		.format = r->q.format,
		.hz = r->hz,
		.host = r->host,
		.gzip = true,
		.comments = lines,
		.ncomments = r->nnotes,
	};
	u32 i;
	int err;

	for (i = 0; i < r->nnotes; i++)
		lines[i] = r->notes[i];
	*ret = (struct web_answer){ .status = 200, .type = "application/gzip" };
	file_name(r, ret->file, sizeof(ret->file));
	err = timeline_encode(r->window, &o, &ret->data, &ret->len);
	if (err)
		refuse(ret, err);
}

static void end(void *arg)
{
	struct recording *r = arg;

	if (r->window)
		window_free(take_ptr(r->window));
	else
		agent_timeline_drop(r->agent);
	/* It may have been large; the daemon is to stay small. */
	malloc_trim(0);
}

struct web_recorder recording_recorder(struct recording *r)
{
	return (struct web_recorder){
		.begin = begin,
		.next = next,
		.ready = ready,
		.answer = answer,
		.end = end,
		.arg = r,
	};
}
