// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See remote.h. JSON by jansson, HTTP by libcurl. */
#include "remote.h"

#include "log.h"
#include "stat.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#define TOKEN_MAX     4096
#define ETAG_MAX      200
#define HEADERS_MAX   (64u << 10)
#define CONNECT_MS    5000
#define POLL_MS_MAX   60000
#define NSEC_PER_MSEC 1000000ull

struct remote {
	char *url, *token_file, *ca_file;
	u64 poll_ns, timeout_ns;
	CURLM *multi;
	CURL *easy;
	int fd; /* an eventfd: an answer was accepted */
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* of the next three */
	bool stop, fresh;
	struct remote_settings settings;
	/* The thread's own. */
	char etag[ETAG_MAX + 1]; /* of the last accepted answer; "": none */
	bool failed, told_ignored;
	struct log_limit limit;
};

/* What comes back. */
struct answer {
	long status; /* 0: none */
	char body[REMOTE_ANSWER_MAX];
	size_t len, header_bytes;
	bool too_long;
	char etag[ETAG_MAX + 1];
	char error[CURL_ERROR_SIZE];
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

	if (len > REMOTE_ANSWER_MAX)
		return refuse(why, size, "over %u bytes", REMOTE_ANSWER_MAX);
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

/* --- one question ----------------------------------------------------------------------------- */

/* Goes back into a header of ours: a quoted word of visible ASCII (RFC 9110, 8.8.3), or none. */
static void take_etag(struct answer *a, const char *s, size_t len)
{
	size_t i;

	while (len && (*s == ' ' || *s == '\t'))
		s++, len--;
	while (len && (u8)s[len - 1] <= ' ')
		len--;
	a->etag[0] = '\0';
	if (len < 2 || len > ETAG_MAX || s[len - 1] != '"')
		return;
	for (i = 0; i < len; i++)
		if ((u8)s[i] <= ' ' || (u8)s[i] >= 0x7f)
			return;
	memcpy(a->etag, s, len);
	a->etag[len] = '\0';
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;
	size_t len = size * n;

	if (len > 5 && !strncasecmp(data, "etag:", 5))
		take_etag(a, data + 5, len - 5);
	a->header_bytes += len;
	return a->header_bytes > HEADERS_MAX ? 0 : len;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;
	size_t len = size * n;

	if (len > sizeof(a->body) - a->len) {
		a->too_long = true;
		return 0;
	}
	memcpy(a->body + a->len, data, len);
	a->len += len;
	return len;
}

static void slist_freep(struct curl_slist **l)
{
	struct curl_slist *i;

	/* One of the lines is the token. */
	for (i = *l; i; i = i->next)
		explicit_bzero(i->data, strlen(i->data));
	curl_slist_free_all(*l);
}

static int append(struct curl_slist **list, const char *name, const char *value)
{
	struct curl_slist *l;
	char *line;

	if (asprintf(&line, "%s: %s", name, value) < 0)
		return -ENOMEM;
	l = curl_slist_append(*list, line);
	explicit_bzero(line, strlen(line));
	free(line);
	if (!l)
		return -ENOMEM;
	*list = l;
	return 0;
}

/* A control character would let the file write headers of its own. */
static int append_token(const struct remote *r, struct curl_slist **list, struct answer *a)
{
	_cleanup_free_ char *text = NULL, *bearer = NULL;
	size_t len, i, skip;
	int err = read_file(r->token_file, TOKEN_MAX, &text, &len);

	if (err) {
		snprintf(a->error, sizeof(a->error), "token file %s: %s", r->token_file,
			 err == -E2BIG ? "over 4 KiB" : strerror(-err));
		return err;
	}
	while (len && (u8)text[len - 1] <= ' ')
		text[--len] = '\0';
	skip = strspn(text, " \t\r\n");
	for (i = skip; i < len && text[i] > ' ' && text[i] < 0x7f; i++)
		;
	if (i < len || skip >= len) {
		snprintf(a->error, sizeof(a->error),
			 "token file %s: expected one word of printable ASCII", r->token_file);
		err = -EINVAL;
	} else if (asprintf(&bearer, "Bearer %s", text + skip) < 0) {
		bearer = NULL;
		err = -ENOMEM;
	} else {
		err = append(list, "Authorization", bearer);
		explicit_bzero(bearer, strlen(bearer));
	}
	explicit_bzero(text, len);
	return err;
}

#define SET(option, value)                                      \
	do {                                                    \
		if (!c)                                         \
			c = curl_easy_setopt(e, option, value); \
	} while (0)

static CURLcode set_request(struct remote *r, struct curl_slist *headers, struct answer *a)
{
	long timeout_ms = (long)MAX(r->timeout_ns / NSEC_PER_MSEC, 1ull);
	CURL *e = r->easy;
	CURLcode c = CURLE_OK;

	curl_easy_reset(e);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that hangs: leave the resolver's thread behind instead of joining it. */
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(CURLOPT_URL, r->url);
	/* Plain HTTP is for this host only, and so for no proxy. */
	if (!strncasecmp(r->url, "http:", 5))
		SET(CURLOPT_PROXY, "");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_NOSIGNAL, 1L);
	if (r->ca_file)
		SET(CURLOPT_CAINFO, r->ca_file);
	SET(CURLOPT_USERAGENT, "ebpfprofiler");
	SET(CURLOPT_HTTPHEADER, headers);
	SET(CURLOPT_TIMEOUT_MS, timeout_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, MIN(timeout_ms, (long)CONNECT_MS));
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, a);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, a);
	SET(CURLOPT_ERRORBUFFER, a->error);
	return c;
}

static bool stopping(struct remote *r)
{
	bool stop;

	pthread_mutex_lock(&r->lock);
	stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

/* Until something happens, somebody wakes us, or `then`. */
static void wait_until(struct remote *r, u64 then)
{
	static const struct timespec pause = { .tv_nsec = 10 * (long)NSEC_PER_MSEC };
	u64 now = now_monotonic(), ms = then > now ? (then - now) / NSEC_PER_MSEC + 1 : 1;

	if (curl_multi_poll(r->multi, NULL, 0, (int)MIN(ms, (u64)POLL_MS_MAX), NULL))
		nanosleep(&pause, NULL);
}

static CURLcode transfer(struct remote *r)
{
	/* libcurl keeps the timeout itself; this is the written bound in case it does not. */
	u64 end = now_monotonic() + r->timeout_ns + NSEC_PER_SEC;
	CURLcode result = CURLE_OPERATION_TIMEDOUT;
	CURLMsg *m;
	int active = 1, left, i;

	while (!stopping(r) && now_monotonic() < end) {
		if (curl_multi_perform(r->multi, &active) || !active)
			break;
		wait_until(r, end);
	}
	/* One transfer gives one message. */
	for (i = 0; i < 4 && (m = curl_multi_info_read(r->multi, &left)); i++)
		if (m->msg == CURLMSG_DONE)
			result = m->data.result;
	return result;
}

/* 0, or -EIO and a->error: no whole answer came. */
static int ask(struct remote *r, struct answer *a)
{
	_cleanup_(slist_freep) struct curl_slist *headers = NULL;
	CURLcode c = CURLE_OUT_OF_MEMORY;
	int err = append(&headers, "Accept", "application/json");

	if (!err && *r->etag)
		err = append(&headers, "If-None-Match", r->etag);
	if (!err && r->token_file)
		err = append_token(r, &headers, a);
	if (!err)
		c = set_request(r, headers, a);
	if (!err && !c && !curl_multi_add_handle(r->multi, r->easy)) {
		c = transfer(r);
		curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &a->status);
		curl_multi_remove_handle(r->multi, r->easy);
	}
	/* The handle must not keep pointers into what goes away with this function. */
	curl_easy_reset(r->easy);
	if (!c && !err)
		return 0;
	if (a->too_long)
		snprintf(a->error, sizeof(a->error), "the answer is over %u bytes",
			 REMOTE_ANSWER_MAX);
	else if (!a->error[0])
		snprintf(a->error, sizeof(a->error), "%s", curl_easy_strerror(c));
	return -EIO;
}

/* --- the thread ------------------------------------------------------------------------------- */

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

static bool accept_answer(struct remote *r, const struct answer *a)
{
	struct remote_settings s;
	char text[256];
	u32 ignored;

	if (remote_parse(a->body, a->len, &s, &ignored, text, sizeof(text))) {
		failed(r, "the answer is refused: %s", text);
		return false;
	}
	strcpy(r->etag, a->etag);
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

static void poll_once(struct remote *r)
{
	_cleanup_free_ struct answer *a = calloc(1, sizeof(*a));

	if (!a) {
		stat_inc(STAT_no_memory);
		return;
	}
	if (ask(r, a)) {
		if (!stopping(r))
			failed(r, "%s", a->error);
		return;
	}
	if (a->status != 200 && (a->status != 304 || !*r->etag)) {
		failed(r, "HTTP %ld, expected 200 or 304%s", a->status,
		       a->status / 100 == 3 ? "; redirects are not followed" : "");
		return;
	}
	if (a->status == 200 && !accept_answer(r, a))
		return;
	if (r->failed)
		log_info("remote configuration: the server answers well again");
	r->failed = false;
}

/* A tenth sooner or later, so that a fleet does not come as one. */
static u64 next_poll(const struct remote *r)
{
	u64 v, span = r->poll_ns / 5;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
		v = now_monotonic();
	return now_monotonic() + r->poll_ns - span / 2 + (span ? v % span : 0);
}

static void *work(void *arg)
{
	struct remote *r = arg;
	u64 next = 0;

	while (!stopping(r)) {
		if (now_monotonic() < next) {
			wait_until(r, next);
			continue;
		}
		poll_once(r);
		next = next_poll(r);
	}
	return NULL;
}

/* --- outside ---------------------------------------------------------------------------------- */

static int copy(const char *s, char **ret)
{
	if (!s || !*s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

/* All signals are for the main thread; SIGPIPE of a closed connection is for nobody. */
static int start_thread(struct remote *r)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&r->thread, NULL, work, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->running = !err;
	return -err;
}

int remote_new(const struct remote_options *o, struct remote **ret)
{
	struct remote *r;
	int err;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return log_err(-EIO, "remote configuration: libcurl does not start");
	r = calloc(1, sizeof(*r));
	if (!r) {
		curl_global_cleanup();
		return log_err(-ENOMEM, "remote configuration: out of memory");
	}
	pthread_mutex_init(&r->lock, NULL);
	r->poll_ns = o->poll_ns;
	r->timeout_ns = o->timeout_ns ? o->timeout_ns : REMOTE_TIMEOUT_NS;
	r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = r->fd < 0 ? -errno : copy(o->url, &r->url);
	if (!err)
		err = copy(o->token_file, &r->token_file);
	if (!err)
		err = copy(o->ca_file, &r->ca_file);
	r->multi = curl_multi_init();
	r->easy = curl_easy_init();
	if (!err && (!r->multi || !r->easy || !r->url))
		err = -ENOMEM;
	if (!err)
		err = start_thread(r);
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
		curl_multi_wakeup(r->multi);
		pthread_join(r->thread, NULL);
	}
	curl_easy_cleanup(r->easy);
	curl_multi_cleanup(r->multi);
	closep(&r->fd);
	pthread_mutex_destroy(&r->lock);
	free(r->url);
	free(r->token_file);
	free(r->ca_file);
	free(r);
	curl_global_cleanup();
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
