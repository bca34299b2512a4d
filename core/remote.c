// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See remote.h. JSON by jansson. */
#include "remote.h"

#include "http.h"
#include "log.h"
#include "stat.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>

struct remote {
	struct http *http;
	u64 poll_ns;
	int fd; /* an eventfd: an answer was accepted */
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* of the next three */
	bool stop, fresh;
	struct remote_settings settings;
	/* The thread's own. */
	char etag[HTTP_ETAG_MAX + 1]; /* of the last accepted answer; "": none */
	bool failed, told_ignored;
	struct log_limit limit;
};

/* --- what it says ----------------------------------------------------------------------------- */

static int refuse(char *text, size_t size, const char *fmt, ...) __printf(3, 4);
static int refuse(char *text, size_t size, const char *fmt, ...)
{
	char raw[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(raw, sizeof(raw), fmt, args);
	va_end(args);
	utf8_clean(text, size, raw, sizeof(raw));
	return -EINVAL;
}

static void jsonp(json_t **j)
{
	json_decref(*j);
}

static int take_key(const char *key, json_t *v, struct remote_settings *ret, char *text,
		    size_t size)
{
	json_int_t n;

	if (!strcmp(key, "enabled")) {
		if (!json_is_boolean(v))
			return refuse(text, size, "enabled: expected true or false");
		ret->has_enabled = true;
		ret->enabled = json_is_true(v);
		return 0;
	}
	if (strcmp(key, "upload_interval_s"))
		return -ENOENT;
	n = json_is_integer(v) ? json_integer_value(v) : 0;
	if (n < REMOTE_INTERVAL_MIN || n > REMOTE_INTERVAL_MAX)
		return refuse(text, size, "upload_interval_s: expected a whole number %d..%d",
			      REMOTE_INTERVAL_MIN, REMOTE_INTERVAL_MAX);
	ret->interval_s = (u32)n;
	return 0;
}

int remote_parse(const char *text, size_t len, struct remote_settings *ret, u32 *ret_ignored,
		 char *why, size_t size)
{
	_cleanup_(jsonp) json_t *root = NULL;
	struct remote_settings s = { 0 };
	char names[REMOTE_IGNORED_TEXT] = "";
	json_error_t error;
	const char *key;
	u32 ignored = 0;
	json_t *v;
	int rc;

	if (len > HTTP_BODY_MAX)
		return refuse(why, size, "over %u bytes", HTTP_BODY_MAX);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return refuse(why, size, "no JSON: %s", error.text);
	if (!json_is_object(root))
		return refuse(why, size, "expected a JSON object");
	json_object_foreach(root, key, v)
	{
		size_t used = strlen(names);

		rc = take_key(key, v, &s, why, size);
		if (rc == -EINVAL)
			return rc;
		if (rc == -ENOENT && !ignored++)
			snprintf(names, sizeof(names), "%s", key);
		else if (rc == -ENOENT)
			snprintf(names + used, sizeof(names) - used, ", %s", key);
	}
	utf8_clean(why, size, names, sizeof(names));
	*ret_ignored = ignored;
	*ret = s;
	return 0;
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool stopping(struct remote *r)
{
	bool stop;

	pthread_mutex_lock(&r->lock);
	stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

static void failed(struct remote *r, const char *fmt, ...) __printf(2, 3);
static void failed(struct remote *r, const char *fmt, ...)
{
	char raw[1024], why[1024];
	va_list args;

	stat_inc(STAT_remote_failed);
	r->failed = true;
	if (!log_limit(&r->limit, NULL))
		return;
	va_start(args, fmt);
	vsnprintf(raw, sizeof(raw), fmt, args);
	va_end(args);
	utf8_clean(why, sizeof(why), raw, sizeof(raw));
	log_warn("remote configuration: %s; what is in force stays", why);
}

static bool accept_answer(struct remote *r, const char *body, const struct http_reply *reply)
{
	struct remote_settings s;
	char text[256];
	u32 ignored;

	if (remote_parse(body, reply->body_len, &s, &ignored, text, sizeof(text))) {
		failed(r, "the answer is refused: %s", text);
		return false;
	}
	strcpy(r->etag, reply->etag);
	stat_add(STAT_remote_ignored, ignored);
	if (ignored && !r->told_ignored)
		log_warn("remote configuration: keys that a server may not set, or that there are "
			 "not, are ignored: %s",
			 text);
	r->told_ignored |= ignored > 0;
	pthread_mutex_lock(&r->lock);
	r->settings = s;
	r->fresh = true;
	pthread_mutex_unlock(&r->lock);
	eventfd_write(r->fd, 1);
	return true;
}

/* Given up at once when we are to end. */
static u64 end_of_question(void *arg)
{
	return stopping(arg) ? 0 : UINT64_MAX;
}

static void poll_once(struct remote *r)
{
	_cleanup_free_ char *body = malloc(HTTP_BODY_MAX);
	_cleanup_free_ struct http_reply *reply = malloc(sizeof(*reply));
	long status;

	if (!body || !reply) {
		stat_inc(STAT_no_memory);
		return;
	}
	http_get(r->http, r->etag, body, end_of_question, r, reply);
	status = reply->answer.status;
	if (!reply->whole) {
		if (!stopping(r))
			failed(r, "%s", reply->error);
		return;
	}
	if (status != 200 && (status != 304 || !*r->etag)) {
		failed(r, "HTTP %ld, expected 200 or 304%s", status,
		       status / 100 == 3 ? "; redirects are not followed" : "");
		return;
	}
	if (status == 200 && !accept_answer(r, body, reply))
		return;
	if (r->failed)
		log_info("remote configuration: the server answers well again");
	r->failed = false;
}

/* A tenth sooner or later, so that a fleet does not come as one. */
static u64 next_poll(const struct remote *r)
{
	u64 span = r->poll_ns / 5;

	return now_monotonic() + r->poll_ns - span / 2 + random_below(span);
}

static void *work(void *arg)
{
	struct remote *r = arg;
	u64 next = 0;

	while (!stopping(r)) {
		if (now_monotonic() < next) {
			http_wait(r->http, next);
			continue;
		}
		poll_once(r);
		next = next_poll(r);
	}
	return NULL;
}

/* --- outside ---------------------------------------------------------------------------------- */

int remote_new(const struct remote_options *o, struct remote **ret)
{
	const struct http_options http = {
		.what = "remote configuration",
		.url = o->url,
		.token_file = o->token_file,
		.ca_file = o->ca_file,
		/* Plain HTTP is for this host only, and so for no proxy. */
		.direct = !strncasecmp(o->url, "http:", 5),
		.timeout_ns = o->timeout_ns ? o->timeout_ns : REMOTE_TIMEOUT_NS,
	};
	struct remote *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return log_err(-ENOMEM, "remote configuration: out of memory");
	pthread_mutex_init(&r->lock, NULL);
	r->poll_ns = o->poll_ns;
	r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = r->fd < 0 ? -errno : http_new(&http, &r->http);
	if (!err)
		err = thread_start(&r->thread, NULL, work, r);
	r->running = !err;
	if (err) {
		remote_free(r);
		return log_err(err, "remote configuration: cannot start: %s", strerror(-err));
	}
	*ret = r;
	return 0;
}

void remote_free(struct remote *r)
{
	if (!r)
		return;
	if (r->running) {
		pthread_mutex_lock(&r->lock);
		r->stop = true;
		pthread_mutex_unlock(&r->lock);
		http_wake(r->http);
		pthread_join(r->thread, NULL);
	}
	http_free(r->http);
	closep(&r->fd);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

int remote_fd(const struct remote *r)
{
	return r->fd;
}

bool remote_take(struct remote *r, struct remote_settings *ret)
{
	eventfd_t n;
	bool fresh;

	eventfd_read(r->fd, &n);
	pthread_mutex_lock(&r->lock);
	fresh = r->fresh;
	r->fresh = false;
	*ret = r->settings;
	pthread_mutex_unlock(&r->lock);
	return fresh;
}
