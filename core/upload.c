// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. Profiles (gzip bytes and three query values) come in from the window's thread; one
 * HTTP POST each goes out from a thread of its own, oldest first. A server that fails gets one
 * probe, the oldest profile, per back-off step; meanwhile new profiles go to the spool, and all
 * of it follows once a probe is accepted. Nothing that a server says makes this thread wait longer
 * than the attempt's timeout, keep more than 128 KiB, or go anywhere but to the configured URL.
 */
#include "upload.h"
#include "log.h"
#include "spool.h"
#include "stat.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Profiles in memory; what comes on top is written to the spool by who hands it over. */
#define QUEUE_MAX       64
#define QUEUE_BYTES_MAX (16u << 20)

#define URL_MAX         8192
#define TOKEN_MAX       4096
#define REPLY_MAX       (64u << 10)
#define HEADERS_MAX     (64u << 10)
#define REPLY_SHOWN     200
#define CONNECT_NS_MAX  (10 * NSEC_PER_SEC)
#define RETRY_AFTER_MAX (3600 * NSEC_PER_SEC)
#define POLL_MS_MAX     60000
#define NSEC_PER_MSEC   1000000ull

enum outcome {
	ACCEPTED,
	REFUSED, /* for good: this profile will never be taken */
	RETRY,
	ABANDONED, /* the daemon ends */
};

/* What came back, for the verdict and for the message. */
struct reply {
	long status; /* 0: none */
	u64 retry_after_ns;
	size_t header_bytes, body_bytes;
	char start[REPLY_SHOWN];
	size_t start_len;
	char error[CURL_ERROR_SIZE];
};

struct upload {
	char *endpoint; /* URL/v1/profiles */
	char *shown;    /* the same without user and password, for messages */
	char *token_file, *ca_file, *proxy, *host;
	u64 timeout_ns, retry_min_ns, retry_max_ns;
	struct spool *spool;
	CURLM *multi;
	CURL *easy;
	pthread_t thread;
	bool running;

	pthread_mutex_t lock; /* down to `sending` */
	struct profile *head, **tail;
	u32 queued;
	u64 queued_bytes;
	u64 next_seq;
	bool stopping;
	u64 send_until_ns; /* when stopping */
	bool sending;      /* one more profile, taken off the queue, is on its way */

	/* The thread's own. */
	u32 failures; /* in a row */
	u64 next_try_ns;
	bool told_to_wait; /* by Retry-After */
	struct log_limit retry_limit, refused_limit;

	struct log_limit lost_limit; /* under the lock again: both threads lose */
};

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
	return u->queued < QUEUE_MAX && len <= QUEUE_BYTES_MAX &&
	       u->queued_bytes <= QUEUE_BYTES_MAX - len;
}

/* --- neither sent nor spooled ----------------------------------------------------------------- */

static void lose(struct upload *u, struct profile *p, int err)
{
	bool say;

	profile_free(p);
	stat_inc(STAT_spool_dropped);
	pthread_mutex_lock(&u->lock);
	say = log_limit(&u->lost_limit, NULL);
	pthread_mutex_unlock(&u->lock);
	if (say)
		log_warn("upload: a profile for %s was dropped: it could be neither sent nor "
			 "spooled: %s; check [upload] spool_mb and the disk",
			 u->shown, strerror(-err));
}

/* The spool would not have it: memory takes it in place of the oldest there. */
static void queue_or_lose(struct upload *u, struct profile *p, int err)
{
	u32 i;

	if (p->len > QUEUE_BYTES_MAX) {
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
		u->sending = p;
		pthread_mutex_unlock(&u->lock);
		if (!p)
			return true;
		r = spool_put(u->spool, p);
		pthread_mutex_lock(&u->lock);
		u->sending = false;
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

static size_t on_header(char *data __unused, size_t size, size_t n, void *arg)
{
	struct reply *reply = arg;

	/* libcurl keeps every header line; an endless head must not fill the memory. */
	reply->header_bytes += size * n;
	return reply->header_bytes > HEADERS_MAX ? 0 : size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct reply *reply = arg;
	size_t len = size * n, part = MIN(len, sizeof(reply->start) - reply->start_len);

	memcpy(reply->start + reply->start_len, data, part);
	reply->start_len += part;
	reply->body_bytes += len;
	return reply->body_bytes > REPLY_MAX ? 0 : len;
}

/*
 * "Authorization: Bearer TOKEN". Read again for each attempt, since tokens are rotated. A control
 * character would let the file write headers of its own.
 */
static int token_header(const char *path, char **ret, char error[CURL_ERROR_SIZE])
{
	_cleanup_free_ char *text = NULL;
	char *start, *end, *c;
	size_t len;
	int r;

	r = read_file(path, TOKEN_MAX, &text, &len);
	if (r) {
		snprintf(error, CURL_ERROR_SIZE, "token file %s: %s", path,
			 r == -E2BIG ? "over 4 KiB" : strerror(-r));
		return r;
	}
	start = text + strspn(text, " \t\r\n");
	end = text + len;
	while (end > start && strchr(" \t\r\n", end[-1]))
		end--;
	*end = '\0';
	for (c = start; c<end && * c> 0x20 && *c < 0x7f; c++)
		;
	if (start == end || c < end) {
		snprintf(error, CURL_ERROR_SIZE, "token file %s: %s", path,
			 start == end ? "empty" : "not one word of printable ASCII");
		r = -EINVAL;
	} else if (asprintf(ret, "Authorization: Bearer %s", start) < 0) {
		r = -ENOMEM;
	}
	explicit_bzero(text, len);
	return r;
}

static void slist_freep(struct curl_slist **l)
{
	struct curl_slist *i;

	/* One of the lines is the token. */
	for (i = *l; i; i = i->next)
		explicit_bzero(i->data, strlen(i->data));
	curl_slist_free_all(*l);
}

static int append(struct curl_slist **list, const char *line)
{
	struct curl_slist *l = curl_slist_append(*list, line);

	if (!l)
		return -ENOMEM;
	*list = l;
	return 0;
}

static int make_headers(const struct upload *u, struct curl_slist **list,
			char error[CURL_ERROR_SIZE])
{
	char *token = NULL;
	int r;

	/*
	 * No Content-Encoding: gzip belongs to the pprof format, as in a .pb.gz file. Coroot's own
	 * agent sends it so (coroot-node-agent 1.35.6, profiling/profiling.go); a receiver that
	 * undid the encoding would find bytes that it does not expect.
	 */
	r = append(list, "Content-Type: application/octet-stream");
	/* Without this, libcurl waits a second for "100 Continue" before a large body. */
	if (!r)
		r = append(list, "Expect:");
	if (r || !u->token_file)
		return r;
	r = token_header(u->token_file, &token, error);
	if (r)
		return r;
	r = append(list, token);
	explicit_bzero(token, strlen(token));
	free(token);
	return r;
}

/* Owned. */
static char *make_url(const struct upload *u, const struct profile *p)
{
	char service[3 * sizeof(p->service)], container[3 * sizeof(p->container)];
	char type[3 * sizeof(p->type)], host[3 * 256];
	char *url;
	int n;

	spool_escape(service, sizeof(service), p->service);
	spool_escape(container, sizeof(container), p->container);
	spool_escape(type, sizeof(type), p->type);
	spool_escape(host, sizeof(host), u->host);
	n = asprintf(&url, "%s?service.name=%s%s%s&host.name=%s&source=ebpf&type=%s", u->endpoint,
		     service, *container ? "&container.id=" : "", container, host, type);
	return n < 0 ? NULL : url;
}

#define SET(option, value)                                            \
	do {                                                          \
		if (!r)                                               \
			r = curl_easy_setopt(u->easy, option, value); \
	} while (0)

static CURLcode set_protocols(struct upload *u)
{
	CURLcode r = CURLE_OK;

#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that hangs: leave the resolver's thread behind instead of joining it. */
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	/* No signals: this is a thread. SIGPIPE is blocked in it. */
	SET(CURLOPT_NOSIGNAL, 1L);
	if (u->ca_file)
		SET(CURLOPT_CAINFO, u->ca_file);
	/* Unset, libcurl goes by https_proxy, http_proxy and no_proxy. */
	if (u->proxy)
		SET(CURLOPT_PROXY, u->proxy);
	return r;
}

static CURLcode set_request(struct upload *u, const struct profile *p, const char *url,
			    struct curl_slist *headers, struct reply *reply)
{
	long timeout_ms = (long)MIN(MAX(u->timeout_ns / NSEC_PER_MSEC, 1ull), (u64)INT32_MAX);
	CURLcode r;

	curl_easy_reset(u->easy);
	r = set_protocols(u);
	SET(CURLOPT_URL, url);
	SET(CURLOPT_USERAGENT, "ebpfprofiler");
	SET(CURLOPT_HTTPHEADER, headers);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDS, p->body);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->len);
	SET(CURLOPT_TIMEOUT_MS, timeout_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, MIN(timeout_ms, (long)(CONNECT_NS_MAX / NSEC_PER_MSEC)));
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, reply);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, reply);
	SET(CURLOPT_ERRORBUFFER, reply->error);
	return r;
}

/* Milliseconds until then, at least 1 (0 would spin), at most `most`. */
static int ms_until(u64 then, u64 now, u64 most)
{
	u64 ms = then > now ? (then - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 1;

	return (int)MIN(ms, most);
}

/* Until something happens, somebody wakes us, or `then`. */
static void wait_until(struct upload *u, u64 then)
{
	static const struct timespec pause = { .tv_nsec = 10 * (long)NSEC_PER_MSEC };

	if (curl_multi_poll(u->multi, NULL, 0, ms_until(then, now_monotonic(), POLL_MS_MAX), NULL))
		nanosleep(&pause, NULL);
}

static bool read_stop(struct upload *u, u64 *ret_send_until_ns)
{
	bool stopping;

	pthread_mutex_lock(&u->lock);
	stopping = u->stopping;
	*ret_send_until_ns = u->send_until_ns;
	pthread_mutex_unlock(&u->lock);
	return stopping;
}

/* Drives the transfer that was added. Returns 0, or -ECANCELED when the daemon ends first. */
static int transfer(struct upload *u)
{
	/* libcurl keeps the timeout itself; this is the written bound in case it does not. */
	u64 end = now_monotonic() + u->timeout_ns + NSEC_PER_SEC;

	for (;;) {
		u64 now, until = end;
		int active = 0;

		if (curl_multi_perform(u->multi, &active) || !active)
			return 0;
		now = now_monotonic();
		if (now >= end)
			return 0;
		if (read_stop(u, &until)) {
			if (now >= until)
				return -ECANCELED;
		} else {
			until = end;
		}
		wait_until(u, MIN(until, end));
	}
}

static CURLcode transfer_result(struct upload *u)
{
	CURLcode result = CURLE_OPERATION_TIMEDOUT;
	CURLMsg *m;
	int left, i;

	/* One transfer gives one message. */
	for (i = 0; i < 4 && (m = curl_multi_info_read(u->multi, &left)); i++) {
		if (m->msg == CURLMSG_DONE)
			result = m->data.result;
	}
	return result;
}

static int perform(struct upload *u, struct reply *reply)
{
	curl_off_t after = 0;
	CURLcode result;
	int r;

	if (curl_multi_add_handle(u->multi, u->easy)) {
		snprintf(reply->error, sizeof(reply->error), "libcurl takes no transfer");
		return -EIO;
	}
	r = transfer(u);
	result = transfer_result(u);
	curl_easy_getinfo(u->easy, CURLINFO_RESPONSE_CODE, &reply->status);
	curl_easy_getinfo(u->easy, CURLINFO_RETRY_AFTER, &after);
	curl_multi_remove_handle(u->multi, u->easy);
	/* A date in the past comes out negative. */
	if (after > 0)
		reply->retry_after_ns =
			(u64)MIN(after, (curl_off_t)(RETRY_AFTER_MAX / NSEC_PER_SEC)) *
			NSEC_PER_SEC;
	if (!reply->error[0])
		snprintf(reply->error, sizeof(reply->error), "%s", curl_easy_strerror(result));
	return r;
}

/*
 * The status line decides, even when the rest of the reply was cut off or too long: by then the
 * server has the profile and has said what it thinks of it.
 */
static enum outcome judge(long status)
{
	if (status >= 200 && status <= 299)
		return ACCEPTED;
	/* 413 is among the refused: it will not get smaller. */
	if (status >= 400 && status <= 499 && status != 408 && status != 429)
		return REFUSED;
	/* A redirect is not followed and says nothing against the profile. */
	return RETRY;
}

static enum outcome attempt(struct upload *u, const struct profile *p, struct reply *reply)
{
	_cleanup_(slist_freep) struct curl_slist *headers = NULL;
	_cleanup_free_ char *url = make_url(u, p);
	CURLcode rc;
	int r;

	r = url ? make_headers(u, &headers, reply->error) : -ENOMEM;
	if (r) {
		if (!reply->error[0])
			snprintf(reply->error, sizeof(reply->error), "%s", strerror(-r));
		return RETRY;
	}
	rc = set_request(u, p, url, headers, reply);
	if (rc) {
		snprintf(reply->error, sizeof(reply->error), "%s", curl_easy_strerror(rc));
		r = -EIO;
	} else {
		r = perform(u, reply);
	}
	/* The handle must not keep pointers into what goes away with this function. */
	curl_easy_reset(u->easy);
	if (r == -ECANCELED && !reply->status)
		return ABANDONED;
	return judge(reply->status);
}

/* --- the thread ------------------------------------------------------------------------------- */

static u64 random_below(u64 n)
{
	u64 v;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
		v = now_monotonic();
	return n ? v % n : 0;
}

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

static void describe(const struct reply *reply, char *text, size_t size)
{
	char start[3 * REPLY_SHOWN + 1];

	if (!reply->status) {
		snprintf(text, size, "%s", reply->error);
		return;
	}
	utf8_clean(start, sizeof(start), reply->start, reply->start_len);
	if (reply->status >= 300 && reply->status <= 399)
		snprintf(text, size, "HTTP %ld, a redirect, which is not followed", reply->status);
	else
		snprintf(text, size, "HTTP %ld%s%s", reply->status, *start ? ": " : "", start);
}

static void retry_later(struct upload *u, const struct reply *reply)
{
	u64 delay = back_off(u);
	char why[1024];

	u->told_to_wait = reply->retry_after_ns > delay;
	delay = MAX(delay, reply->retry_after_ns);
	u->next_try_ns = now_monotonic() + delay;
	if (u->failures < UINT32_MAX)
		u->failures++;
	stat_inc(STAT_upload_retried);
	if (!log_limit(&u->retry_limit, NULL))
		return;
	describe(reply, why, sizeof(why));
	log_warn("upload: %s: %s; %u profiles wait, next attempt in %.1f s", u->shown, why,
		 upload_pending(u), (double)delay / (double)NSEC_PER_SEC);
}

static void reached(struct upload *u)
{
	if (u->failures)
		log_info("upload: %s answers again; %u profiles wait", u->shown, upload_pending(u));
	u->failures = 0;
	u->next_try_ns = 0;
	u->told_to_wait = false;
}

static void refused(struct upload *u, const struct profile *p, const struct reply *reply)
{
	char why[1024];
	u64 before;

	stat_inc(STAT_upload_refused);
	if (!log_limit(&u->refused_limit, &before))
		return;
	describe(reply, why, sizeof(why));
	log_warn("upload: %s refused the %s profile of %s for good: %s; dropped (%" PRIu64
		 " others since the last message)",
		 u->shown, p->type, p->service, why, before);
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
		u->sending = true;
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

/* A profile from memory that was not taken: to the spool, or back to memory. */
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

static void settle(struct upload *u, struct profile *p, bool spooled, enum outcome outcome)
{
	bool done = outcome == ACCEPTED || outcome == REFUSED;

	if (spooled)
		spool_done(u->spool, done);
	if (spooled || done)
		profile_free(p);
	else
		put_back(u, p);
	pthread_mutex_lock(&u->lock);
	u->sending = false;
	pthread_mutex_unlock(&u->lock);
}

/* False when nothing waits. */
static bool send_one(struct upload *u)
{
	struct reply reply = { 0 };
	enum outcome outcome;
	struct profile *p;
	bool spooled;
	int r;

	r = take_oldest(u, &p, &spooled);
	if (r == -ENOENT)
		return false;
	if (r == -EAGAIN)
		return true;
	if (r) {
		/* Out of memory or descriptors: as good a reason to pause as a dead server. */
		snprintf(reply.error, sizeof(reply.error), "spool: %s", strerror(-r));
		retry_later(u, &reply);
		return true;
	}
	outcome = attempt(u, p, &reply);
	if (outcome == ACCEPTED)
		stat_inc(STAT_upload_sent);
	if (outcome == REFUSED)
		refused(u, p, &reply);
	settle(u, p, spooled, outcome);
	if (outcome == RETRY)
		retry_later(u, &reply);
	else if (outcome != ABANDONED)
		reached(u);
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
			wait_until(u, u->next_try_ns);
			continue;
		}
		if (send_one(u))
			continue;
		if (stopping)
			break;
		wait_until(u, UINT64_MAX);
	}
	spool_rest(u);
	return NULL;
}

/* --- outside ---------------------------------------------------------------------------------- */

static void url_freep(CURLU **h)
{
	curl_url_cleanup(*h);
}

/* NULL and "" mean unset; -ENOMEM or 0. */
static int copy_string(const char *s, char **ret)
{
	if (!s || !*s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

/* libcurl reads "http:///x" as a host named x, and a base of "http:" would come to that. */
static bool is_base_url(CURLU *h, const char *url)
{
	const char *host = url ? strstr(url, "://") : NULL;
	char *scheme = NULL, *query = NULL, *fragment = NULL;
	bool good;

	if (!host || !host[3] || strchr("/?#", host[3]) || strlen(url) > URL_MAX)
		return false;
	good = !curl_url_set(h, CURLUPART_URL, url, 0) &&
	       !curl_url_get(h, CURLUPART_SCHEME, &scheme, 0) &&
	       (!strcmp(scheme, "http") || !strcmp(scheme, "https")) &&
	       curl_url_get(h, CURLUPART_QUERY, &query, 0) &&
	       curl_url_get(h, CURLUPART_FRAGMENT, &fragment, 0);
	curl_free(scheme);
	curl_free(query);
	curl_free(fragment);
	return good;
}

/* Makes the address to send to, and one form of it for people, without user and password. */
static int make_endpoint(struct upload *u, const char *url)
{
	_cleanup_(url_freep) CURLU *h = curl_url();
	char *shown = NULL;
	size_t len;

	if (!h)
		return -ENOMEM;
	if (!is_base_url(h, url))
		return log_err(-EINVAL, "upload: [upload] url is not of the form "
					"http[s]://HOST[:PORT][/PATH]");
	len = strlen(url);
	while (len && url[len - 1] == '/')
		len--;
	if (asprintf(&u->endpoint, "%.*s/v1/profiles", (int)len, url) < 0) {
		u->endpoint = NULL;
		return -ENOMEM;
	}
	if (!curl_url_set(h, CURLUPART_URL, u->endpoint, 0) &&
	    !curl_url_set(h, CURLUPART_USER, NULL, 0) &&
	    !curl_url_set(h, CURLUPART_PASSWORD, NULL, 0) &&
	    !curl_url_get(h, CURLUPART_URL, &shown, 0))
		u->shown = strdup(shown);
	curl_free(shown);
	return u->shown ? 0 : -ENOMEM;
}

static int copy_options(struct upload *u, const struct upload_options *o)
{
	char host[256];
	int r;

	utf8_clean(host, sizeof(host), o->host ? o->host : "", sizeof(host));
	u->host = strdup(host);
	r = u->host ? copy_string(o->token_file, &u->token_file) : -ENOMEM;
	if (!r)
		r = copy_string(o->ca_file, &u->ca_file);
	if (!r)
		r = copy_string(o->proxy, &u->proxy);
	u->timeout_ns = o->timeout_ns ? MIN(o->timeout_ns, 3600 * NSEC_PER_SEC) : 30 * NSEC_PER_SEC;
	u->retry_min_ns = o->retry_min_ns ? MIN(o->retry_min_ns, 3600 * NSEC_PER_SEC)
					  : NSEC_PER_SEC;
	u->retry_max_ns = MIN(MAX(o->retry_max_ns, u->retry_min_ns), 24 * 3600 * NSEC_PER_SEC);
	return r;
}

/* All signals are for the main thread; SIGPIPE of a closed connection is for nobody. */
static int start_thread(struct upload *u)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	r = pthread_sigmask(SIG_SETMASK, &all, &old);
	if (r)
		return -r;
	r = pthread_create(&u->thread, NULL, run, u);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	u->running = !r;
	return -r;
}

static void upload_freep(struct upload **u)
{
	upload_free(*u, 0);
}

int upload_new(const struct upload_options *o, struct upload **ret)
{
	_cleanup_(upload_freep) struct upload *u = NULL;
	int r;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return log_err(-EIO, "upload: libcurl does not start");
	u = calloc(1, sizeof(*u));
	if (!u) {
		curl_global_cleanup();
		return log_err(-ENOMEM, "upload: out of memory");
	}
	u->tail = &u->head;
	pthread_mutex_init(&u->lock, NULL);
	r = copy_options(u, o);
	if (!r)
		r = make_endpoint(u, o->url);
	if (r == -EINVAL)
		return r;
	u->multi = curl_multi_init();
	u->easy = curl_easy_init();
	if (r || !u->multi || !u->easy)
		return log_err(-ENOMEM, "upload: out of memory");
	if (u->token_file && !strncasecmp(u->endpoint, "http:", 5))
		log_warn("upload: the token goes to %s unencrypted; use https", u->shown);
	r = spool_open(o->spool_path, o->spool_bytes, &u->spool);
	if (r)
		return r;
	u->next_seq = spool_next_seq(u->spool);
	r = start_thread(u);
	if (r)
		return log_err(r, "upload: cannot start a thread: %s", strerror(-r));
	*ret = take_ptr(u);
	return 0;
}

static void stop_thread(struct upload *u, u64 deadline_ns)
{
	u64 now = now_monotonic();
	u64 left = deadline_ns > now ? deadline_ns - now : 0;

	/* The last part of the time is for writing the rest to the spool. */
	pthread_mutex_lock(&u->lock);
	u->stopping = true;
	u->send_until_ns = now + left - MIN(left / 4, NSEC_PER_SEC / 2);
	pthread_mutex_unlock(&u->lock);
	curl_multi_wakeup(u->multi);
	pthread_join(u->thread, NULL);
}

void upload_free(struct upload *u, u64 deadline_ns)
{
	if (!u)
		return;
	if (u->running)
		stop_thread(u, deadline_ns);
	curl_easy_cleanup(u->easy);
	curl_multi_cleanup(u->multi);
	spool_free(u->spool);
	pthread_mutex_destroy(&u->lock);
	free(u->endpoint);
	free(u->shown);
	free(u->token_file);
	free(u->ca_file);
	free(u->proxy);
	free(u->host);
	free(u);
	curl_global_cleanup();
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
	curl_multi_wakeup(u->multi);
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
