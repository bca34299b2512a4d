// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. Profiles (gzip bytes and three texts) come in from the window's thread; one HTTP
 * POST each goes out from a thread of its own, oldest first. A server that fails gets one probe,
 * the oldest profile, per back-off step; meanwhile new profiles go to the spool, and all of it
 * follows once a probe is accepted. What is too large for a server goes in halves.
 */
#include "upload.h"
#include "http.h"
#include "log.h"
#include "spool.h"
#include "stat.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Profiles in memory; what comes on top is written to the spool by who hands it over. */
#define QUEUE_MAX       64
#define QUEUE_BYTES_MAX (16u << 20)

/* Halvings of one profile, and answers "too large" in a row until the rest of it is given up. */
#define SPLITS_MAX    1024
#define TOO_LARGE_MAX 64

struct upload {
	enum protocol protocol;
	char *host;
	struct http *http;
	u64 retry_min_ns, retry_max_ns, queue_bytes_max;
	struct spool *spool;
	pthread_t thread;
	bool running;

	pthread_mutex_t lock; /* down to `counts` */
	struct profile *head, **tail;
	u32 queued;
	u64 queued_bytes;
	u64 next_seq;
	bool stopping;
	u64 send_until_ns; /* when stopping */
	u32 sending;       /* so many more, in neither queue nor spool, are on their way */
	struct upload_counts counts;

	/* The thread's own. */
	u32 failures; /* in a row */
	u64 next_try_ns;
	bool told_to_wait; /* by Retry-After */
	struct log_limit retry_limit, refused_limit, rejected_limit;

	struct log_limit lost_limit; /* under the lock again: both threads lose */
};

/* One of the counts of this server, and of all. */
#define TALLY(u, name, id, n)                     \
	do {                                      \
		pthread_mutex_lock(&(u)->lock);   \
		(u)->counts.name += (n);          \
		pthread_mutex_unlock(&(u)->lock); \
		stat_add(STAT_##id, (n));         \
	} while (0)

/* --- queue; the caller holds the lock --------------------------------------------------------- */

static void push_back(struct upload *u, struct profile *p)
{
	p->next = NULL;
	*u->tail = p;
	u->tail = &p->next;
	u->queued++;
	u->queued_bytes += p->len;
}

static void push_front(struct upload *u, struct profile *p)
{
	p->next = u->head;
	u->head = p;
	if (!p->next)
		u->tail = &p->next;
	u->queued++;
	u->queued_bytes += p->len;
}

static struct profile *pop_front(struct upload *u)
{
	struct profile *p = u->head;

	if (!p)
		return NULL;
	u->head = p->next;
	if (!u->head)
		u->tail = &u->head;
	p->next = NULL;
	u->queued--;
	u->queued_bytes -= p->len;
	return p;
}

static bool has_room(const struct upload *u, size_t len)
{
	return u->queued < QUEUE_MAX && len <= u->queue_bytes_max &&
	       u->queued_bytes <= u->queue_bytes_max - len;
}

/* --- neither sent nor spooled ----------------------------------------------------------------- */

static void lose(struct upload *u, struct profile *p, int err)
{
	bool say;

	profile_free(p);
	TALLY(u, dropped, spool_dropped, 1);
	pthread_mutex_lock(&u->lock);
	say = log_limit(&u->lost_limit, NULL);
	pthread_mutex_unlock(&u->lock);
	if (say)
		log_warn("upload: a profile for %s was dropped: it could be neither sent nor "
			 "spooled: %s; check spool_mb and the disk",
			 http_shown(u->http), strerror(-err));
}

/* The spool would not have it: memory takes it in place of the oldest there. */
static void queue_or_lose(struct upload *u, struct profile *p, int err)
{
	u32 i;

	if (p->len > u->queue_bytes_max) {
		lose(u, p, err);
		return;
	}
	pthread_mutex_lock(&u->lock);
	for (i = 0; i <= QUEUE_MAX && !has_room(u, p->len); i++) {
		struct profile *oldest = pop_front(u);

		pthread_mutex_unlock(&u->lock);
		if (oldest)
			lose(u, oldest, err);
		pthread_mutex_lock(&u->lock);
	}
	push_back(u, p);
	pthread_mutex_unlock(&u->lock);
}

/* False when the spool does not take them now; they stay in memory. */
static bool spool_queue(struct upload *u)
{
	u32 i;

	/* Bounded: while a server is down, profiles arrive far slower than they are written. */
	for (i = 0; i < 2 * QUEUE_MAX; i++) {
		struct profile *p;
		int r;

		pthread_mutex_lock(&u->lock);
		p = pop_front(u);
		u->sending = p != NULL;
		pthread_mutex_unlock(&u->lock);
		if (!p)
			return true;
		r = spool_put(u->spool, p);
		pthread_mutex_lock(&u->lock);
		u->sending = 0;
		if (r)
			push_front(u, p);
		pthread_mutex_unlock(&u->lock);
		if (r)
			return false;
		profile_free(p);
	}
	return true;
}

/* --- one attempt ------------------------------------------------------------------------------ */

static bool read_stop(struct upload *u, u64 *ret_send_until_ns)
{
	bool stopping;

	pthread_mutex_lock(&u->lock);
	stopping = u->stopping;
	*ret_send_until_ns = u->send_until_ns;
	pthread_mutex_unlock(&u->lock);
	return stopping;
}

static u64 end_of_attempt(void *arg)
{
	u64 until;

	return read_stop(arg, &until) ? until : UINT64_MAX;
}

/* What became of one attempt. */
struct outcome {
	struct judgement judgement;
	u64 retry_after_ns;
	bool abandoned; /* the daemon ends */
};

static void attempt(struct upload *u, const struct profile *p, struct outcome *ret)
{
	struct judgement *j = &ret->judgement;
	struct http_reply reply;
	struct envelope e;
	int r;

	*ret = (struct outcome){ .judgement.verdict = ENVELOPE_RETRY };
	r = envelope_make(u->protocol, p, u->host, &e);
	if (!r) {
		http_post(u->http, &e, end_of_attempt, u, &reply);
		envelope_judge(u->protocol, &reply.answer, j);
		if (!reply.answer.status)
			snprintf(j->why, sizeof(j->why), "%s", reply.error);
		ret->retry_after_ns = reply.retry_after_ns;
		ret->abandoned = reply.abandoned;
	} else {
		if (r == -E2BIG)
			j->verdict = ENVELOPE_TOO_LARGE;
		else if (r == -EBADMSG)
			j->verdict = ENVELOPE_REFUSED;
		snprintf(j->why, sizeof(j->why), "not sent: %s",
			 r == -EBADMSG ? "it is no profile that can be read" : strerror(-r));
	}
	envelope_fini(&e);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* min, 2 min, 4 min ... each plus up to as much again, so that a fleet does not return as one. */
static u64 back_off(const struct upload *u)
{
	u64 step = u->retry_min_ns;
	u32 i;

	for (i = 0; i < u->failures && step < u->retry_max_ns / 2; i++)
		step *= 2;
	step = MIN(step, MAX(u->retry_max_ns / 2, u->retry_min_ns));
	return MIN(step + random_below(step + 1), u->retry_max_ns);
}

static void retry_later(struct upload *u, const struct outcome *o)
{
	u64 delay = back_off(u);

	u->told_to_wait = o->retry_after_ns > delay;
	delay = MAX(delay, o->retry_after_ns);
	u->next_try_ns = now_monotonic() + delay;
	if (u->failures < UINT32_MAX)
		u->failures++;
	TALLY(u, retried, upload_retried, 1);
	if (log_limit(&u->retry_limit, NULL))
		log_warn("upload: %s: %s; %u profiles wait, next attempt in %.1f s",
			 http_shown(u->http), o->judgement.why, upload_pending(u),
			 (double)delay / (double)NSEC_PER_SEC);
}

static void reached(struct upload *u)
{
	if (u->failures)
		log_info("upload: %s answers again; %u profiles wait", http_shown(u->http),
			 upload_pending(u));
	u->failures = 0;
	u->next_try_ns = 0;
	u->told_to_wait = false;
}

/* A profile, or a part of one, that will never be taken. */
static void give_up(struct upload *u, const struct profile *p, const struct judgement *j)
{
	u64 before;

	if (j->verdict == ENVELOPE_TOO_LARGE)
		TALLY(u, too_large, upload_too_large, 1);
	else
		TALLY(u, refused, upload_refused, 1);
	if (log_limit(&u->refused_limit, &before))
		log_warn("upload: %s refused the %s profile of %s for good: %s; dropped (%" PRIu64
			 " others since the last message)",
			 http_shown(u->http), p->type, p->service, j->why, before);
}

static void accepted(struct upload *u, const struct judgement *j)
{
	TALLY(u, sent, upload_sent, 1);
	if (!j->rejected)
		return;
	TALLY(u, rejected, upload_rejected, j->rejected);
	if (log_limit(&u->rejected_limit, NULL))
		log_warn("upload: %s took a request but not all of it: %" PRIu64
			 " profiles rejected: %s",
			 http_shown(u->http), j->rejected, j->why);
}

/* Puts two halves in the place of the first of a list. Returns 0 or -errno, as envelope_split(). */
static int split_first(struct upload *u, struct profile **list, bool original)
{
	struct profile *p = *list, *half[2];
	int r = envelope_split(p, half);

	if (r)
		return r;
	pthread_mutex_lock(&u->lock);
	half[0]->seq = u->next_seq++;
	half[1]->seq = u->next_seq++;
	pthread_mutex_unlock(&u->lock);
	half[0]->next = half[1];
	half[1]->next = p->next;
	*list = half[0];
	if (!original)
		profile_free(p);
	TALLY(u, parts, upload_parts, 1);
	return 0;
}

static void set_sending(struct upload *u, const struct profile *list, bool spooled)
{
	u32 n = 0;

	for (; list; list = list->next)
		n++;
	pthread_mutex_lock(&u->lock);
	/* One of them is that in the spool. */
	u->sending = spooled && n ? n - 1 : n;
	pthread_mutex_unlock(&u->lock);
}

/*
 * Sends a profile, in parts when need be. What is left, because the server is to be asked later,
 * stays in *list: the profile itself, or parts; it is then the caller's, like the original. True
 * when the server had a word on all of it.
 */
static bool send_parts(struct upload *u, struct profile *original, bool spooled,
		       struct profile **list, struct outcome *o)
{
	u32 splits = 0, too_large = 0;

	/* Each turn takes a part out, or splits one, of which there are at most SPLITS_MAX. */
	while (*list) {
		struct profile *p = *list;
		enum envelope_verdict verdict;
		int r = -ENOENT;

		set_sending(u, *list, spooled);
		attempt(u, p, o);
		verdict = o->judgement.verdict;
		if (verdict == ENVELOPE_TOO_LARGE && too_large++ < TOO_LARGE_MAX &&
		    splits++ < SPLITS_MAX)
			r = split_first(u, list, p == original);
		if (verdict == ENVELOPE_RETRY || (verdict == ENVELOPE_TOO_LARGE && r == -ENOMEM))
			return false;
		if (verdict == ENVELOPE_TOO_LARGE && !r)
			continue;
		if (verdict == ENVELOPE_ACCEPTED) {
			too_large = 0;
			accepted(u, &o->judgement);
		} else {
			give_up(u, p, &o->judgement);
		}
		*list = p->next;
		if (p != original)
			profile_free(p);
	}
	return true;
}

/* The oldest of queue and spool. Returns 0, -ENOENT when nothing waits, or -errno. */
static int take_oldest(struct upload *u, struct profile **ret, bool *ret_spooled)
{
	struct profile *p = NULL;
	u64 start, seq;
	bool spooled;
	int r;

	spooled = spool_oldest(u->spool, &start, &seq);
	pthread_mutex_lock(&u->lock);
	if (u->head && (!spooled || u->head->start_ns < start ||
			(u->head->start_ns == start && u->head->seq < seq))) {
		p = pop_front(u);
		u->sending = 1;
	}
	pthread_mutex_unlock(&u->lock);
	if (p) {
		*ret = p;
		*ret_spooled = false;
		return 0;
	}
	if (!spooled)
		return -ENOENT;
	r = spool_load(u->spool, ret);
	*ret_spooled = true;
	/* All there was is damaged: look again, the queue may have more. */
	return r == -ENOENT ? -EAGAIN : r;
}

/* A profile that is in memory only and was not taken: to the spool, or back to memory. */
static void put_back(struct upload *u, struct profile *p)
{
	int r = spool_put(u->spool, p);

	if (!r) {
		profile_free(p);
		return;
	}
	pthread_mutex_lock(&u->lock);
	push_front(u, p);
	pthread_mutex_unlock(&u->lock);
}

static void settle(struct upload *u, struct profile *original, bool spooled, struct profile *left)
{
	bool whole = left == original;
	u32 i;

	/* First out of the spool, so that its parts find the room. */
	if (spooled)
		spool_done(u->spool, !whole);
	if (spooled || !whole)
		profile_free(original);
	if (spooled && whole)
		left = NULL;
	/* A part for each split, and one. */
	for (i = 0; left && i <= SPLITS_MAX + 1; i++) {
		struct profile *p = left;

		left = p->next;
		p->next = NULL;
		put_back(u, p);
	}
	set_sending(u, NULL, false);
}

/* False when nothing waits. */
static bool send_one(struct upload *u)
{
	struct outcome o = { .judgement.verdict = ENVELOPE_RETRY };
	struct profile *p, *left;
	bool spooled, done;
	int r;

	r = take_oldest(u, &p, &spooled);
	if (r == -ENOENT)
		return false;
	if (r == -EAGAIN)
		return true;
	if (r) {
		/* Out of memory or descriptors: as good a reason to pause as a dead server. */
		snprintf(o.judgement.why, sizeof(o.judgement.why), "spool: %s", strerror(-r));
		retry_later(u, &o);
		return true;
	}
	left = p;
	done = send_parts(u, p, spooled, &left, &o);
	settle(u, p, spooled, left);
	if (done)
		reached(u);
	else if (!o.abandoned)
		retry_later(u, &o);
	return true;
}

/* What is still in memory at the end. */
static void spool_rest(struct upload *u)
{
	struct profile *p;

	for (;;) {
		int r;

		pthread_mutex_lock(&u->lock);
		p = pop_front(u);
		pthread_mutex_unlock(&u->lock);
		if (!p)
			break;
		r = spool_put(u->spool, p);
		if (r)
			lose(u, p, r);
		else
			profile_free(p);
	}
}

static void *run(void *arg)
{
	struct upload *u = arg;
	bool stop_seen = false;

	for (;;) {
		u64 send_until_ns;
		bool stopping = read_stop(u, &send_until_ns);
		u64 now = now_monotonic();

		if (stopping && now >= send_until_ns)
			break;
		/* One last probe, unless the server asked for peace. */
		if (stopping && !stop_seen && !u->told_to_wait)
			u->next_try_ns = 0;
		stop_seen = stopping;
		if (now < u->next_try_ns) {
			if (stopping)
				break;
			spool_queue(u);
			http_wait(u->http, u->next_try_ns);
			continue;
		}
		if (send_one(u))
			continue;
		if (stopping)
			break;
		http_wait(u->http, UINT64_MAX);
	}
	spool_rest(u);
	return NULL;
}

/* --- outside ---------------------------------------------------------------------------------- */

static int copy_options(struct upload *u, const struct upload_options *o)
{
	char host[256];

	utf8_clean(host, sizeof(host), o->host ? o->host : "", sizeof(host));
	u->host = strdup(host);
	u->protocol = o->protocol;
	u->queue_bytes_max = o->queue_bytes ? o->queue_bytes : QUEUE_BYTES_MAX;
	u->retry_min_ns = o->retry_min_ns ? MIN(o->retry_min_ns, 3600 * NSEC_PER_SEC)
					  : NSEC_PER_SEC;
	u->retry_max_ns = MIN(MAX(o->retry_max_ns, u->retry_min_ns), 24 * 3600 * NSEC_PER_SEC);
	return u->host ? 0 : -ENOMEM;
}

static void upload_freep(struct upload **u)
{
	upload_free(*u, 0);
}

int upload_new(const struct upload_options *o, struct upload **ret)
{
	_cleanup_(upload_freep) struct upload *u = calloc(1, sizeof(*u));
	struct http_options http = o->http;
	struct spool_counts s;
	int r;

	if (!u)
		return log_err(-ENOMEM, "upload: out of memory");
	u->tail = &u->head;
	pthread_mutex_init(&u->lock, NULL);
	if (copy_options(u, o))
		return log_err(-ENOMEM, "upload: out of memory");
	http.http2 = o->protocol == PROTOCOL_OTLP_GRPC;
	http.what = "upload";
	r = http_new(&http, &u->http);
	if (r)
		return r;
	r = spool_open(o->spool_path, o->spool_bytes, o->spool_age_ns, &u->spool);
	if (r)
		return r;
	spool_counts(u->spool, &s);
	u->counts.found = s.waiting + s.dropped + s.expired + s.damaged;
	u->next_seq = spool_next_seq(u->spool);
	r = thread_start(&u->thread, NULL, run, u);
	u->running = !r;
	if (r)
		return log_err(r, "upload: cannot start a thread: %s", strerror(-r));
	*ret = take_ptr(u);
	return 0;
}

void upload_stop(struct upload *u, u64 deadline_ns)
{
	u64 now = now_monotonic();
	u64 left = deadline_ns > now ? deadline_ns - now : 0;

	/* The last part of the time is for writing the rest to the spool. */
	pthread_mutex_lock(&u->lock);
	u->stopping = true;
	u->send_until_ns = now + left - MIN(left / 4, NSEC_PER_SEC / 2);
	pthread_mutex_unlock(&u->lock);
	http_wake(u->http);
}

/* So that who asks later where a profile is finds it. */
static void tell_counts(struct upload *u)
{
	struct upload_counts c;

	upload_counts(u, &c);
	if (c.found + c.due)
		log_info("upload: %s: %" PRIu64 " profiles of earlier runs, %" PRIu64
			 " due, %" PRIu64 " more parts = %" PRIu64 " sent, %" PRIu64
			 " refused, %" PRIu64 " too large, %" PRIu64 " dropped, %" PRIu64
			 " too old, %" PRIu64 " damaged, %" PRIu64 " in the spool",
			 http_shown(u->http), c.found, c.due, c.parts, c.sent, c.refused,
			 c.too_large, c.dropped, c.expired, c.damaged, c.waiting);
}

void upload_free(struct upload *u, u64 deadline_ns)
{
	if (!u)
		return;
	if (u->running) {
		if (!u->stopping)
			upload_stop(u, deadline_ns);
		pthread_join(u->thread, NULL);
		tell_counts(u);
	}
	http_free(u->http);
	spool_free(u->spool);
	pthread_mutex_destroy(&u->lock);
	free(u->host);
	free(u);
}

/* Owned; body is the new profile's, or freed. */
static struct profile *new_profile(const char *service, const char *container, const char *type,
				   u64 start_ns, u8 *body, size_t len)
{
	struct profile *p = calloc(1, sizeof(*p));

	if (!p) {
		free(body);
		return NULL;
	}
	utf8_clean(p->service, sizeof(p->service), service, strlen(service));
	utf8_clean(p->type, sizeof(p->type), type, strlen(type));
	if (container)
		utf8_clean(p->container, sizeof(p->container), container, strlen(container));
	p->start_ns = start_ns;
	p->memory = body;
	p->body = body ? body : (const u8 *)"";
	p->len = len;
	return p;
}

int upload_submit(struct upload *u, const char *service, const char *container, const char *type,
		  u64 start_ns, u8 *body, size_t len)
{
	struct profile *p = new_profile(service, container, type, start_ns, body, len);
	bool queued;
	int r;

	if (!p) {
		stat_inc(STAT_no_memory);
		return -ENOMEM;
	}
	TALLY(u, due, upload_due, 1);
	if (len > SPOOL_BODY_MAX) {
		lose(u, p, -EFBIG);
		return -EFBIG;
	}
	pthread_mutex_lock(&u->lock);
	p->seq = u->next_seq++;
	queued = has_room(u, len);
	if (queued)
		push_back(u, p);
	pthread_mutex_unlock(&u->lock);
	if (!queued) {
		r = spool_put(u->spool, p);
		if (r)
			queue_or_lose(u, p, r);
		else
			profile_free(p);
	}
	http_wake(u->http);
	return 0;
}

u32 upload_pending(struct upload *u)
{
	u32 n = spool_count(u->spool);

	pthread_mutex_lock(&u->lock);
	n += u->queued + u->sending;
	pthread_mutex_unlock(&u->lock);
	return n;
}

void upload_counts(struct upload *u, struct upload_counts *ret)
{
	struct spool_counts s;

	/* In this order, a profile on its way from one to the other is counted twice, never missed. */
	pthread_mutex_lock(&u->lock);
	*ret = u->counts;
	ret->waiting = u->queued + u->sending;
	pthread_mutex_unlock(&u->lock);
	spool_counts(u->spool, &s);
	ret->waiting += s.waiting;
	ret->spool_bytes = s.bytes;
	ret->dropped += s.dropped;
	ret->expired = s.expired;
	ret->damaged = s.damaged;
}
