// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See local.h. */
#include "local.h"

#include "agent.h"
#include "catalog.h"
#include "config.h"
#include "fold.h"
#include "log.h"
#include "process.h"
#include "recording.h"
#include "report.h"
#include "runtime.h"
#include "web.h"
#include "web_api.h"

#include <errno.h>
#include <string.h>

struct local {
	struct catalog *catalog;
	struct web_api *api;
	struct web *web;
	struct recording *recording;
	struct web_status status;
};

int local_open(const struct config *c, struct sending *sending, struct local **ret)
{
	struct web_options o = {
		.listen = c->web_listen,
		.token_file = c->web_token_file,
		.hosts = c->web_hosts,
	};
	struct local *l;
	int err;

	*ret = NULL;
	if (!*c->web_listen)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return 0;
	err = catalog_open(c->store_path, &l->catalog);
	if (!err)
		l->api = web_api_new(l->catalog, sending);
	l->recording = recording_new();
	o.api = l->api;
	if (l->api && l->recording) {
		o.recorder = recording_recorder(l->recording);
		err = web_open(&o, &l->web);
	}
	if (err || !l->web) {
		local_free(l);
		return err == -EPERM || err == -EINVAL ? err : 0;
	}
	l->status.window_s = c->upload_interval_s;
	l->status.cost.budget = c->cpu_budget;
	l->status.cost.configured_hz = c->sample_hz;
	host_name(l->status.host, sizeof(l->status.host));
	web_api_status(l->api, &l->status);
	log_info("page: %s%s", web_address(l->web),
		 *c->web_token_file ? " (needs the token: open /?token=...)" : "");
	*ret = l;
	return 0;
}

void local_free(struct local *l)
{
	if (!l)
		return;
	/* An answer that is being worked on ends with what it has read. */
	if (l->catalog)
		catalog_stop(l->catalog);
	web_free(l->web);
	recording_free(l->recording);
	web_api_free(l->api);
	catalog_free(l->catalog);
	free(l);
}

int local_watch(const struct local *l, int epoll_fd)
{
	return l ? web_watch(l->web, epoll_fd) : 0;
}

u64 local_next(const struct local *l)
{
	return l ? web_next(l->web) : UINT64_MAX;
}

void local_work(struct local *l)
{
	if (l)
		web_work(l->web);
}

void local_cpu_seconds(struct local *l, double *user, double *system)
{
	*user = *system = 0;
	if (l)
		web_cpu_seconds(l->web, user, system);
}

static bool is_whole(enum stack_end end)
{
	return end == STACK_END_COMPLETE || end == STACK_END_GUESSED || end == STACK_END_NO_USER;
}

void local_stored(struct local *l, const struct window *w, const struct profile *p,
		  const char *name)
{
	struct catalog_profile c = {
		.name = name,
		.service = p->service,
		.container = p->container,
		.duration_ms = w->end_ns > w->start_ns ? (w->end_ns - w->start_ns) / 1000000 : 0,
	};
	u64 most = 0;
	u32 i;

	if (!l)
		return;
	for (i = 0; i < p->nsamples; i++) {
		const struct profile_sample *s = &p->samples[i];

		if (!s->count)
			continue;
		c.value += s->value_ns;
		c.stacks += s->count;
		c.whole += is_whole(w->stacks[s->stack].end) ? s->count : 0;
		/* A container runs several programs: the heaviest stack's is shown. */
		if (s->value_ns >= most) {
			most = s->value_ns;
			c.exe = w->labels[s->labels].exe;
		}
	}
	catalog_note(l->catalog, &c);
}

static void list_runtimes(struct web_status *s, struct runtimes *rs)
{
	struct runtime *r = NULL;
	struct runtime_info info;

	s->nruntimes = 0;
	while (rs && s->nruntimes < WEB_RUNTIMES_MAX && (r = runtimes_next(rs, r))) {
		struct web_runtime *to = &s->runtimes[s->nruntimes];

		runtime_info(r, &info);
		if (!info.process || !info.found || !info.found->unwinder)
			continue;
		to->pid = info.process->pid;
		to->ok = info.found->verdict == UNWIND_OK && !info.left_alone;
		utf8_clean(to->exe, sizeof(to->exe),
			   info.process->exe ? base_name(info.process->exe) : info.process->comm,
			   sizeof(to->exe));
		runtime_found_text(info.found, to->text, sizeof(to->text));
		s->nruntimes++;
	}
}

void local_status(struct local *l, const struct report *r, const struct window *w, struct agent *a)
{
	if (!l)
		return;
	l->status.cost = r->cost;
	l->status.cost.end_ns = w->end_ns;
	report_ends(w, NULL, l->status.quality, sizeof(l->status.quality));
	list_runtimes(&l->status, agent_runtimes(a));
	web_api_status(l->api, &l->status);
}

void local_agent(struct local *l, struct agent *a, const struct config *c)
{
	if (!l)
		return;
	web_end_recording(l->web);
	recording_agent(l->recording, a, config_offcpu_min_ns(c));
}

void local_set(struct local *l, bool on, u32 window_s)
{
	if (!l)
		return;
	l->status.on = on;
	l->status.window_s = window_s;
	web_api_status(l->api, &l->status);
}
