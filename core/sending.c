// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See sending.h. */
#include "sending.h"

#include "fold.h"
#include "log.h"
#include "pprof.h"
#include "stat.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define RETRY_MIN_NS NSEC_PER_SEC
#define RETRY_MAX_NS (300 * NSEC_PER_SEC)
#define TIMEOUT_NS   (30 * NSEC_PER_SEC)
#define QUEUES_BYTES (16u << 20) /* of all servers' profiles in memory */

/* What one server's profiles are like, as a number below KINDS. */
enum { KIND_NAMES = 1, KIND_TIME_IS_END = 2, KIND_SERVICE_LABEL = 4, KINDS = 8 };

struct sending {
	const struct config *config;
	const char **labels; /* the config's, and room for one more */
	struct {
		struct upload *upload;
		const char *name;
		u32 kind;
	} to[CONFIG_MAX_UPLOADS];
	u32 n;
};

static u32 kind_of(const struct config_upload *c, enum protocol protocol)
{
	return (!strcmp(c->symbolize, "host") ? KIND_NAMES : 0) |
	       (envelope_time_is_end(protocol) ? KIND_TIME_IS_END : 0) |
	       (envelope_wants_service_label(protocol) ? KIND_SERVICE_LABEL : 0);
}

static int open_one(struct sending *s, const struct config_upload *c, const char *host,
		    u64 queue_bytes)
{
	char spool[PATH_MAX];
	struct upload_options o = {
		.http = {
			.url = c->url,
			.token_file = c->token_file,
			.user = c->user,
			.password_file = c->password_file,
			.headers = c->headers,
			.headers_file = c->headers_file,
			.ca_file = c->ca_file,
			.cert_file = c->cert_file,
			.key_file = c->key_file,
			.proxy = c->proxy,
			.timeout_ns = TIMEOUT_NS,
		},
		.host = host,
		.spool_path = spool,
		.spool_bytes = (u64)c->spool_mb << 20,
		.spool_age_ns = c->spool_hours * 3600 * NSEC_PER_SEC,
		.queue_bytes = queue_bytes,
		.retry_min_ns = RETRY_MIN_NS,
		.retry_max_ns = RETRY_MAX_NS,
	};
	int err;

	if (!envelope_protocol(c->protocol, &o.protocol))
		return -EINVAL;
	if ((size_t)snprintf(spool, sizeof(spool), "%s/spool%s%s", s->config->store_path,
			     *c->name ? "." : "", c->name) >= sizeof(spool))
		return log_err(-ENAMETOOLONG, "upload: the store's path is too long");
	err = upload_new(&o, &s->to[s->n].upload);
	if (err)
		return err;
	s->to[s->n].name = c->name;
	s->to[s->n++].kind = kind_of(c, o.protocol);
	log_info("profiles go to %s as %s", c->url, c->protocol);
	return 0;
}

int sending_open(const struct config *c, const char *host, struct sending **ret)
{
	u32 wanted = 0, i;
	struct sending *s;
	int err = 0;

	*ret = NULL;
	for (i = 0; i < c->nuploads; i++)
		wanted += *c->uploads[i].url != '\0';
	if (!wanted)
		return 0;
	s = calloc(1, sizeof(*s));
	if (s)
		s->labels = calloc(c->nlabels + 1, sizeof(*s->labels));
	if (!s || !s->labels) {
		free(s);
		return log_err(-ENOMEM, "upload: out of memory");
	}
	s->config = c;
	for (i = 0; i < c->nlabels; i++)
		s->labels[i] = c->labels[i];
	for (i = 0; i < c->nuploads && !err; i++)
		if (*c->uploads[i].url)
			err = open_one(s, &c->uploads[i], host, QUEUES_BYTES / wanted);
	if (err) {
		sending_close(s, 0);
		return err;
	}
	*ret = s;
	return 0;
}

void sending_close(struct sending *s, u64 deadline_ns)
{
	u32 i;

	if (!s)
		return;
	/* All at the same time. */
	for (i = 0; i < s->n; i++)
		upload_stop(s->to[i].upload, deadline_ns);
	for (i = 0; i < s->n; i++)
		upload_free(s->to[i].upload, deadline_ns);
	free(s->labels);
	free(s);
}

u32 sending_servers(struct sending *s, struct sending_server *ret)
{
	u32 n = s ? s->n : 0, i;

	for (i = 0; i < n; i++) {
		ret[i].name = s->to[i].name;
		upload_counts(s->to[i].upload, &ret[i].counts);
	}
	return n;
}

static int encode(struct sending *s, u32 kind, const struct window *w, const struct profile *p,
		  const struct sending_source *from, u8 **ret, size_t *ret_len)
{
	char service[sizeof("service.name=") + 256];
	struct pprof_options o = {
		.names = kind & KIND_NAMES,
		.time_is_end = kind & KIND_TIME_IS_END,
		.period_ns = from->period_ns,
		.host = from->host,
		.plain_pid = s->config->plain_pid,
		.strip_homes = !s->config->home_paths,
		.pid_key = from->pid_key,
		.labels = s->labels,
		.nlabels = s->config->nlabels,
		.comments = from->comments,
		.ncomments = from->ncomments,
	};

	if (kind & KIND_SERVICE_LABEL) {
		snprintf(service, sizeof(service), "service.name=%s", p->service);
		s->labels[o.nlabels++] = service;
	}
	return pprof_encode(w, p, &o, ret, ret_len);
}

/* One encoding, to all that want it. */
static void put_kind(struct sending *s, u32 kind, const struct window *w, const struct profile *p,
		     const struct sending_source *from)
{
	u8 *data = NULL;
	size_t len = 0;
	u32 i, left = 0;

	for (i = 0; i < s->n; i++)
		left += s->to[i].kind == kind;
	if (!left)
		return;
	if (encode(s, kind, w, p, from, &data, &len)) {
		stat_inc(STAT_no_memory);
		return;
	}
	for (i = 0; i < s->n; i++) {
		u8 *copy = data;

		if (s->to[i].kind != kind)
			continue;
		/* The last one takes the buffer itself. */
		if (--left) {
			copy = malloc(len);
			if (copy)
				memcpy(copy, data, len);
		}
		if (copy)
			upload_submit(s->to[i].upload, p->service, p->container, p->type->name,
				      w->start_ns, copy, len);
		else
			stat_inc(STAT_no_memory);
	}
}

void sending_put(struct sending *s, const struct window *w, const struct profile *p,
		 const struct sending_source *from)
{
	u32 kind;

	for (kind = 0; s && kind < KINDS; kind++)
		put_kind(s, kind, w, p, from);
}
