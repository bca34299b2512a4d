// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See http.h. */
#include "http.h"

#include "headers.h"
#include "log.h"

#include <curl/curl.h>
#include <errno.h>
#include <nettle/base64.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define URL_MAX         8192
#define SECRET_MAX      4096 /* bytes of a file that holds one */
#define REPLY_HEAD_MAX  (64u << 10)
#define CONNECT_NS_MAX  (10 * NSEC_PER_SEC)
#define RETRY_AFTER_MAX (3600 * NSEC_PER_SEC)
#define POLL_MS_MAX     60000
#define NSEC_PER_MSEC   1000000ull

struct http {
	char *url;   /* without / at its end */
	char *shown; /* the same without user and password, for messages */
	char *token_file, *user, *password_file, *headers, *headers_file;
	char *ca_file, *cert_file, *key_file, *proxy;
	const char *what;
	bool direct, http2, tls;
	u64 timeout_ns;
	CURLM *multi;
	CURL *easy;
};

/* What is asked. */
struct request {
	const char *path;           /* behind the URL */
	const char *const *headers; /* more of them, up to a NULL */
	const u8 *body;             /* NULL: a GET */
	size_t len;
	char *keep; /* for the whole body of the answer; NULL: what the reply has room for is enough */
};

/* A request under way. */
struct transfer {
	const struct request *request;
	struct http_reply *reply;
	size_t header_bytes, body_bytes;
	const char *too_long; /* NULL: it is not */
	char error[CURL_ERROR_SIZE];
};

/* --- what comes back -------------------------------------------------------------------------- */

/* The value of a header line when it is `name`'s, without blanks around it. */
static bool is_header(const char *line, size_t len, const char *name, const char **ret,
		      size_t *ret_len)
{
	size_t n = strlen(name);

	if (len <= n || strncasecmp(line, name, n) || line[n] != ':')
		return false;
	for (n++; n < len && strchr(" \t", line[n]); n++)
		;
	while (len > n && strchr(" \t\r\n", line[len - 1]))
		len--;
	*ret = line + n;
	*ret_len = len - n;
	return true;
}

/* Goes back into a header of ours. */
static void take_etag(struct http_reply *r, const char *s, size_t len)
{
	size_t i;

	*r->etag = '\0';
	if (len < 2 || len > HTTP_ETAG_MAX || s[len - 1] != '"')
		return;
	for (i = 0; i < len; i++)
		if ((u8)s[i] <= ' ' || (u8)s[i] >= 0x7f)
			return;
	memcpy(r->etag, s, len);
	r->etag[len] = '\0';
}

void http_message(const char *s, size_t len, char *dst, size_t size)
{
	char raw[1024];
	size_t i, n = 0;

	for (i = 0; i < len && n < sizeof(raw); i++) {
		u8 byte;
		bool escape = s[i] == '%' && i + 2 < len && hex_decode(&byte, s + i + 1, 1) && byte;

		raw[n++] = escape ? (char)byte : s[i];
		i += escape ? 2 : 0;
	}
	utf8_clean(dst, size, raw, n);
}

/* Of trailers, too. */
static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct answer *a = &t->reply->answer;
	size_t len = size * n, value_len;
	const char *value;

	if (is_header(data, len, "content-type", &value, &value_len)) {
		utf8_clean(a->type, sizeof(a->type), value, value_len);
	} else if (is_header(data, len, "etag", &value, &value_len)) {
		take_etag(t->reply, value, value_len);
	} else if (is_header(data, len, "grpc-status", &value, &value_len)) {
		/* One or two digits; anything else is UNKNOWN. */
		a->grpc_status = 2;
		if (value_len == 1 && value[0] >= '0' && value[0] <= '9')
			a->grpc_status = value[0] - '0';
		else if (value_len == 2 && value[0] == '1' && value[1] >= '0' && value[1] <= '6')
			a->grpc_status = 10 + value[1] - '0';
	} else if (is_header(data, len, "grpc-message", &value, &value_len)) {
		http_message(value, value_len, a->grpc_message, sizeof(a->grpc_message));
	} else if (is_header(data, len, "grpc-status-details-bin", &value, &value_len)) {
		t->reply->retry_after_ns =
			MIN(envelope_retry_delay(value, value_len), RETRY_AFTER_MAX);
	}
	/* libcurl keeps every header line; an endless head must not fill the memory. */
	t->header_bytes += len;
	if (t->header_bytes <= REPLY_HEAD_MAX)
		return len;
	t->too_long = "the answer has too long a head";
	return 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct answer *a = &t->reply->answer;
	size_t len = size * n, part = MIN(len, sizeof(a->body) - a->body_len);

	memcpy(a->body + a->body_len, data, part);
	a->body_len += part;
	if (len > HTTP_BODY_MAX - t->body_bytes) {
		t->too_long = "the answer is too long";
		return 0;
	}
	if (t->request->keep)
		memcpy(t->request->keep + t->body_bytes, data, len);
	t->body_bytes += len;
	return len;
}

/* --- what goes out ---------------------------------------------------------------------------- */

static void slist_freep(struct curl_slist **l)
{
	struct curl_slist *i;

	/* Some of the lines are secrets. */
	for (i = *l; i; i = i->next)
		explicit_bzero(i->data, strlen(i->data));
	curl_slist_free_all(*l);
}

static int append(void *list, const char *line)
{
	struct curl_slist **l = list, *longer = curl_slist_append(*l, line);

	if (!longer)
		return -ENOMEM;
	*l = longer;
	return 0;
}

/* A text that may hold a secret. */
static void wipe(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void wipep(char **s)
{
	wipe(*s);
}

static int append_owned(struct curl_slist **list, char *line)
{
	int r = line ? append(list, line) : -ENOMEM;

	wipe(line);
	return r;
}

/* The file's text without blanks around it; owned. `error` says what is wrong. */
static int read_secret(const char *what, const char *path, char **ret, char *error, size_t size)
{
	size_t len, start;
	char *text;
	int r = read_file(path, SECRET_MAX, &text, &len);

	if (r) {
		snprintf(error, size, "%s %s: %s", what, path,
			 r == -E2BIG ? "over 4 KiB" : strerror(-r));
		return r;
	}
	while (len && strchr(" \t\r\n", text[len - 1]))
		text[--len] = '\0';
	start = strspn(text, " \t\r\n");
	memmove(text, text + start, strlen(text + start) + 1);
	/* Text behind a NUL would be left behind unwiped, and unread. */
	if (strlen(text) == len - start && *text) {
		*ret = text;
		return 0;
	}
	snprintf(error, size, "%s %s: %s", what, path, *text ? "has a NUL byte" : "empty");
	explicit_bzero(text, len);
	free(text);
	return -EINVAL;
}

/* A control character would let the file write headers of its own. */
static bool printable(const char *s, bool blanks)
{
	for (; *s; s++)
		if ((u8)*s < 0x20 || *s == 0x7f || (!blanks && (*s == ' ' || (u8)*s > 0x7f)))
			return false;
	return true;
}

static int append_token(const struct http *h, struct curl_slist **list, char *error, size_t size)
{
	_cleanup_(wipep) char *token = NULL;
	char *line;
	int r = read_secret("token file", h->token_file, &token, error, size);

	if (r)
		return r;
	if (!printable(token, false)) {
		snprintf(error, size, "token file %s: not one word of printable ASCII",
			 h->token_file);
		return -EINVAL;
	}
	if (asprintf(&line, "Authorization: Bearer %s", token) < 0)
		line = NULL;
	return append_owned(list, line);
}

static int append_basic(const struct http *h, struct curl_slist **list, char *error, size_t size)
{
	_cleanup_(wipep) char *password = NULL, *pair = NULL;
	static const char start[] = "Authorization: Basic ";
	size_t len, text_len;
	char *line;
	int r = read_secret("password file", h->password_file, &password, error, size);

	if (r)
		return r;
	if (!printable(password, true)) {
		snprintf(error, size, "password file %s: not one line of text", h->password_file);
		return -EINVAL;
	}
	if (asprintf(&pair, "%s:%s", h->user, password) < 0) {
		pair = NULL;
		return -ENOMEM;
	}
	len = strlen(pair);
	text_len = BASE64_ENCODE_RAW_LENGTH(len);
	line = malloc(sizeof(start) + text_len);
	if (line) {
		memcpy(line, start, sizeof(start) - 1);
		base64_encode_raw(line + sizeof(start) - 1, len, (const u8 *)pair);
		line[sizeof(start) - 1 + text_len] = '\0';
	}
	return append_owned(list, line);
}

static int append_file(const struct http *h, struct curl_slist **list, char *error, size_t size)
{
	_cleanup_(wipep) char *text = NULL;
	const char *want;
	int r = read_secret("headers file", h->headers_file, &text, error, size);

	if (r)
		return r;
	r = headers_each(text, '\n', append, list, &want);
	if (r == -EINVAL)
		snprintf(error, size, "headers file %s: expected %s", h->headers_file, want);
	return r;
}

static int make_headers(const struct http *h, const struct request *q, struct curl_slist **list,
			char *error, size_t size)
{
	const char *want;
	u32 i;
	/* Without this, libcurl waits a second for "100 Continue" before a large body. */
	int r = append(list, "Expect:");

	for (i = 0; q->headers[i] && !r; i++)
		r = append(list, q->headers[i]);
	if (!r && h->headers)
		r = headers_each(h->headers, ',', append, list, &want);
	if (!r && h->headers_file)
		r = append_file(h, list, error, size);
	if (!r && h->token_file)
		r = append_token(h, list, error, size);
	if (!r && h->user)
		r = append_basic(h, list, error, size);
	return r;
}

#define SET(option, value)                                            \
	do {                                                          \
		if (!r)                                               \
			r = curl_easy_setopt(h->easy, option, value); \
	} while (0)

static CURLcode set_protocols(struct http *h)
{
	CURLcode r = CURLE_OK;
	long version = !h->http2 ? CURL_HTTP_VERSION_1_1
		       : h->tls  ? CURL_HTTP_VERSION_2TLS
				 : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;

#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that hangs: leave the resolver's thread behind instead of joining it. */
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(CURLOPT_HTTP_VERSION, version);
	/* libcurl 7.88 fails to use such a connection again (CURLE_HTTP2); with TLS it can. */
	SET(CURLOPT_FORBID_REUSE, version == CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE ? 1L : 0L);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	/* No signals: this is a thread. SIGPIPE is blocked in it. */
	SET(CURLOPT_NOSIGNAL, 1L);
	if (h->ca_file)
		SET(CURLOPT_CAINFO, h->ca_file);
	if (h->cert_file)
		SET(CURLOPT_SSLCERT, h->cert_file);
	if (h->key_file)
		SET(CURLOPT_SSLKEY, h->key_file);
	/* Unset, libcurl goes by https_proxy, http_proxy and no_proxy. */
	if (h->proxy || h->direct)
		SET(CURLOPT_PROXY, h->direct ? "" : h->proxy);
	return r;
}

static CURLcode set_request(struct http *h, const char *url, struct curl_slist *headers,
			    struct transfer *t)
{
	const struct request *q = t->request;
	long timeout_ms = (long)MIN(MAX(h->timeout_ns / NSEC_PER_MSEC, 1ull), (u64)INT32_MAX);
	CURLcode r;

	curl_easy_reset(h->easy);
	r = set_protocols(h);
	SET(CURLOPT_URL, url);
	SET(CURLOPT_USERAGENT, "ebpfprofiler");
	SET(CURLOPT_HTTPHEADER, headers);
	if (q->body) {
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDS, q->body);
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->len);
	}
	SET(CURLOPT_TIMEOUT_MS, timeout_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, MIN(timeout_ms, (long)(CONNECT_NS_MAX / NSEC_PER_MSEC)));
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_ERRORBUFFER, t->error);
	return r;
}

/* --- one request ------------------------------------------------------------------------------ */

/* Milliseconds until then, at least 1 (0 would spin), at most `most`. */
static int ms_until(u64 then, u64 now, u64 most)
{
	u64 ms = then > now ? (then - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 1;

	return (int)MIN(ms, most);
}

void http_wait(struct http *h, u64 then)
{
	static const struct timespec pause = { .tv_nsec = 10 * (long)NSEC_PER_MSEC };

	if (curl_multi_poll(h->multi, NULL, 0, ms_until(then, now_monotonic(), POLL_MS_MAX), NULL))
		nanosleep(&pause, NULL);
}

void http_wake(struct http *h)
{
	curl_multi_wakeup(h->multi);
}

/* Drives the transfer that was added. False when the caller gives it up. */
static bool run(struct http *h, u64 (*end_ns)(void *arg), void *arg)
{
	/* libcurl keeps the timeout itself; this is the written bound in case it does not. */
	u64 end = now_monotonic() + h->timeout_ns + NSEC_PER_SEC;

	for (;;) {
		u64 now, until;
		int active = 0;

		if (curl_multi_perform(h->multi, &active) || !active)
			return true;
		now = now_monotonic();
		if (now >= end)
			return true;
		until = end_ns(arg);
		if (now >= until)
			return false;
		http_wait(h, MIN(until, end));
	}
}

static CURLcode result(struct http *h)
{
	CURLcode r = CURLE_OPERATION_TIMEDOUT;
	CURLMsg *m;
	int left, i;

	/* One transfer gives one message. */
	for (i = 0; i < 4 && (m = curl_multi_info_read(h->multi, &left)); i++) {
		if (m->msg == CURLMSG_DONE)
			r = m->data.result;
	}
	return r;
}

static void perform(struct http *h, struct transfer *t, u64 (*end_ns)(void *arg), void *arg)
{
	struct http_reply *reply = t->reply;
	curl_off_t after = 0;
	CURLcode r;

	if (curl_multi_add_handle(h->multi, h->easy)) {
		snprintf(reply->error, sizeof(reply->error), "libcurl takes no transfer");
		return;
	}
	reply->abandoned = !run(h, end_ns, arg);
	r = result(h);
	curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &reply->answer.status);
	curl_easy_getinfo(h->easy, CURLINFO_RETRY_AFTER, &after);
	curl_multi_remove_handle(h->multi, h->easy);
	reply->whole = r == CURLE_OK;
	/* A status is an answer, however the rest of it went. */
	if (reply->answer.status)
		reply->abandoned = false;
	/* A date in the past comes out negative. */
	if (after > 0)
		reply->retry_after_ns =
			MAX(reply->retry_after_ns,
			    (u64)MIN(after, (curl_off_t)(RETRY_AFTER_MAX / NSEC_PER_SEC)) *
				    NSEC_PER_SEC);
	snprintf(reply->error, sizeof(reply->error), "%s",
		 t->too_long   ? t->too_long
		 : t->error[0] ? t->error
			       : curl_easy_strerror(r));
}

static void request(struct http *h, const struct request *q, u64 (*end_ns)(void *arg), void *arg,
		    struct http_reply *ret)
{
	_cleanup_(slist_freep) struct curl_slist *headers = NULL;
	struct transfer t = { .request = q, .reply = ret };
	_cleanup_free_ char *url = NULL;
	CURLcode rc;
	int r;

	*ret = (struct http_reply){ .answer.grpc_status = -1 };
	if (asprintf(&url, "%s%s", h->url, q->path) < 0)
		url = NULL;
	r = url ? make_headers(h, q, &headers, ret->error, sizeof(ret->error)) : -ENOMEM;
	if (r) {
		if (!ret->error[0])
			snprintf(ret->error, sizeof(ret->error), "%s", strerror(-r));
		return;
	}
	rc = set_request(h, url, headers, &t);
	if (rc)
		snprintf(ret->error, sizeof(ret->error), "%s", curl_easy_strerror(rc));
	else
		perform(h, &t, end_ns, arg);
	ret->body_len = t.body_bytes;
	/* The handle must not keep pointers into what goes away with this function. */
	curl_easy_reset(h->easy);
}

void http_post(struct http *h, const struct envelope *e, u64 (*end_ns)(void *arg), void *arg,
	       struct http_reply *ret)
{
	const char *headers[ENVELOPE_HEADERS + 1] = { NULL };
	const struct request q = {
		.path = e->path, .headers = headers, .body = e->body, .len = e->len
	};

	memcpy(headers, e->headers, sizeof(e->headers));
	request(h, &q, end_ns, arg, ret);
}

void http_get(struct http *h, const char *etag, char body[HTTP_BODY_MAX], u64 (*end_ns)(void *arg),
	      void *arg, struct http_reply *ret)
{
	char known[HTTP_ETAG_MAX + sizeof("If-None-Match: ")];
	const char *headers[] = { "Accept: application/json", *etag ? known : NULL, NULL };
	const struct request q = { .path = "", .headers = headers, .keep = body };

	snprintf(known, sizeof(known), "If-None-Match: %s", etag);
	request(h, &q, end_ns, arg, ret);
}

/* --- outside ---------------------------------------------------------------------------------- */

static void url_freep(CURLU **u)
{
	curl_url_cleanup(*u);
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

/* The address to send to, and one form of it for people, without user and password. */
static int set_url(struct http *h, const char *url)
{
	_cleanup_(url_freep) CURLU *u = curl_url();
	char *shown = NULL;
	size_t len;

	if (!u)
		return -ENOMEM;
	if (!is_base_url(u, url))
		return log_err(-EINVAL, "%s: url is not of the form http[s]://HOST[:PORT][/PATH]",
			       h->what);
	len = strlen(url);
	while (len && url[len - 1] == '/')
		len--;
	h->url = strndup(url, len);
	h->tls = !strncasecmp(url, "https:", 6);
	if (h->url && !curl_url_set(u, CURLUPART_URL, h->url, 0) &&
	    !curl_url_set(u, CURLUPART_USER, NULL, 0) &&
	    !curl_url_set(u, CURLUPART_PASSWORD, NULL, 0) &&
	    !curl_url_get(u, CURLUPART_URL, &shown, 0))
		h->shown = strdup(shown);
	curl_free(shown);
	return h->shown ? 0 : -ENOMEM;
}

/* NULL and "" mean unset; -ENOMEM or 0. */
static int copy(const char *s, char **ret)
{
	if (!s || !*s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int copy_options(struct http *h, const struct http_options *o)
{
	const struct {
		const char *from;
		char **to;
	} texts[] = {
		{ o->token_file, &h->token_file },
		{ o->user, &h->user },
		{ o->password_file, &h->password_file },
		{ o->headers, &h->headers },
		{ o->headers_file, &h->headers_file },
		{ o->ca_file, &h->ca_file },
		{ o->cert_file, &h->cert_file },
		{ o->key_file, &h->key_file },
		{ o->proxy, &h->proxy },
	};
	size_t i;
	int r = 0;

	for (i = 0; i < ARRAY_SIZE(texts) && !r; i++)
		r = copy(texts[i].from, texts[i].to);
	h->what = o->what;
	h->direct = o->direct;
	h->http2 = o->http2;
	h->timeout_ns = o->timeout_ns ? MIN(o->timeout_ns, 3600 * NSEC_PER_SEC) : 30 * NSEC_PER_SEC;
	return r;
}

static void http_freep(struct http **h)
{
	http_free(*h);
}

int http_new(const struct http_options *o, struct http **ret)
{
	_cleanup_(http_freep) struct http *h = NULL;
	int r;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return log_err(-EIO, "%s: libcurl does not start", o->what);
	h = calloc(1, sizeof(*h));
	if (!h) {
		curl_global_cleanup();
		return log_err(-ENOMEM, "%s: out of memory", o->what);
	}
	r = copy_options(h, o);
	if (!r)
		r = set_url(h, o->url);
	if (r == -EINVAL)
		return r;
	h->multi = curl_multi_init();
	h->easy = curl_easy_init();
	if (r || !h->multi || !h->easy)
		return log_err(-ENOMEM, "%s: out of memory", o->what);
	if (!h->tls && !h->direct && (h->token_file || h->user || h->headers_file))
		log_warn("%s: secrets go to %s unencrypted; use https", h->what, h->shown);
	*ret = take_ptr(h);
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->easy);
	curl_multi_cleanup(h->multi);
	free(h->url);
	free(h->shown);
	free(h->token_file);
	free(h->user);
	free(h->password_file);
	free(h->headers);
	free(h->headers_file);
	free(h->ca_file);
	free(h->cert_file);
	free(h->key_file);
	free(h->proxy);
	free(h);
	curl_global_cleanup();
}

const char *http_shown(const struct http *h)
{
	return h->shown;
}
