// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. See web.h. A request's life: judge() by its headers, then either an asset at once,
 * or a job for the worker, while its connection is suspended.
 */
#include "web.h"

#include "log.h"
#include "web_api.h"
#include "web_assets.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define COOKIE      "ebpfprofiler"
#define WORKER_NICE 10
#define LIMIT_TICK  NSEC_PER_SEC
#define ROUNDS_MAX  16
#define RECORDING   "/api/timeline"
#define PARAM_MAX   2048 /* bytes of all parameters of a question; MHD's memory is the bound */

/* A connection, from accept to close. */
struct slot {
	int fd; /* borrowed; -1: free */
	u64 deadline_ns;
};

enum request_state { REQUEST_NEW, REQUEST_RECORDING, REQUEST_ASKED, REQUEST_ANSWERED };

struct request {
	struct request *next; /* in the queue */
	struct web *web;
	struct MHD_Connection *connection;
	enum request_state state;
	struct web_question question;
	struct web_answer answer;
	char texts[PARAM_MAX];
	size_t ntexts;
	bool too_long;
	bool recorded; /* the recorder answers */
};

struct web {
	struct MHD_Daemon *mhd;
	struct web_api *api;
	struct web_recorder recorder;
	struct request *recording; /* from begin() to end() */
	int listen_fd, epoll_fd;   /* the latter is the library's */
	int done_fd;               /* an eventfd: something was answered */
	char address[96], hosts[256], token[WEB_TOKEN_MAX + 1];
	struct slot slots[WEB_CONNECTIONS];
	u32 open;
	/* The worker and its queue. */
	pthread_t worker;
	bool working;
	pthread_mutex_t lock;
	pthread_cond_t more, answered;
	struct request *first, **last, *done;
	double system_s; /* of the worker's CPU time */
	bool stop;
};

/* --- who may ask ------------------------------------------------------------------------------ */

static bool is_address(const char *s)
{
	struct in6_addr six;
	struct in_addr four;

	return inet_pton(AF_INET, s, &four) == 1 || inet_pton(AF_INET6, s, &six) == 1;
}

static bool in_list(const char *name, const char *list)
{
	size_t len = strlen(name), n;

	for (; *list; list += n) {
		list += strspn(list, ", \t");
		n = strcspn(list, ", \t");
		if (n == len && n && !strncasecmp(list, name, n))
			return true;
	}
	return false;
}

bool web_host_allowed(const char *host, const char *hosts)
{
	char name[256], *colon;
	size_t len = strlen(host);

	if (len >= sizeof(name))
		return false;
	strcpy(name, host);
	if (*name == '[') {
		char *end = strchr(name, ']');

		if (!end || (end[1] && end[1] != ':'))
			return false;
		*end = '\0';
		return is_address(name + 1);
	}
	colon = strchr(name, ':');
	if (colon)
		*colon = '\0';
	return !strcasecmp(name, "localhost") || is_address(name) || in_list(name, hosts);
}

static const char *header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* As long for a wrong token as for the right one. */
static bool same_token(const struct web *w, const char *given)
{
	size_t len = strlen(w->token), i;
	u8 differ = strlen(given) != len;

	for (i = 0; i < len && given[i]; i++)
		differ |= (u8)(given[i] ^ w->token[i]);
	return !differ && i == len;
}

static bool has_token(const struct web *w, struct MHD_Connection *c)
{
	const char *bearer = header(c, "Authorization"),
		   *cookie = MHD_lookup_connection_value(c, MHD_COOKIE_KIND, COOKIE);

	if (!*w->token)
		return true;
	if (bearer && !strncasecmp(bearer, "Bearer ", 7) && same_token(w, bearer + 7))
		return true;
	return cookie && same_token(w, cookie);
}

/* Other sites' pages may link to ours, and nothing else. */
static bool from_elsewhere(struct MHD_Connection *c, const char *path)
{
	const char *origin = header(c, "Origin"), *site = header(c, "Sec-Fetch-Site"),
		   *mode = header(c, "Sec-Fetch-Mode"), *host = header(c, "Host");

	if (origin && (strncmp(origin, "http://", 7) || !host || strcasecmp(origin + 7, host)))
		return true;
	if (!site || !strcmp(site, "same-origin") || !strcmp(site, "none"))
		return false;
	return strcmp(path, "/") || !mode || strcmp(mode, "navigate");
}

/* Why a request is refused; NULL: it is not. */
static const char *judge(const struct web *w, struct MHD_Connection *c, const char *path,
			 const char *method, u32 *status)
{
	const char *host = header(c, "Host");

	*status = 403;
	if (!host || !web_host_allowed(host, w->hosts))
		return "this host name is not known here: use the address, or add it to hosts in "
		       "[web]\n";
	if (from_elsewhere(c, path))
		return "requests from other sites are refused\n";
	*status = 405;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return "only GET\n";
	*status = 401;
	if (!has_token(w, c))
		return "a token is needed: open /?token=..., or send it as a bearer token\n";
	return NULL;
}

/* --- responses -------------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *r, const char *type, const char *cache)
{
	static const char *const always[][2] = {
		{ "Content-Security-Policy",
		  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
		  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
		{ "X-Content-Type-Options", "nosniff" },
		{ "X-Frame-Options", "DENY" },
		{ "Referrer-Policy", "no-referrer" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
		{ "Cross-Origin-Opener-Policy", "same-origin" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(always); i++)
		MHD_add_response_header(r, always[i][0], always[i][1]);
	MHD_add_response_header(r, "Content-Type", type);
	MHD_add_response_header(r, "Cache-Control", cache);
}

static enum MHD_Result send_text(struct MHD_Connection *c, u32 status, const char *text)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	add_headers(r, "text/plain; charset=utf-8", "no-store");
	if (status == 405)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	ok = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result send_asset(struct MHD_Connection *c, const struct web_asset *a)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(a->len, (void *)a->data, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	add_headers(r, a->type, "no-cache");
	ok = MHD_queue_response(c, 200, r);
	MHD_destroy_response(r);
	return ok;
}

/* The token moves from the address into a cookie that scripts and other sites never see. */
static enum MHD_Result send_cookie(const struct web *w, struct MHD_Connection *c)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
	char cookie[WEB_TOKEN_MAX + 64];
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	add_headers(r, "text/plain", "no-store");
	snprintf(cookie, sizeof(cookie), COOKIE "=%s; HttpOnly; SameSite=Strict; Path=/", w->token);
	MHD_add_response_header(r, "Set-Cookie", cookie);
	MHD_add_response_header(r, "Location", "/");
	ok = MHD_queue_response(c, 303, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result send_answer(struct MHD_Connection *c, struct web_answer *a)
{
	struct MHD_Response *r;
	enum MHD_Result ok;
	char file[192];

	if (!a->data)
		return send_text(c, 503, "out of memory\n");
	r = MHD_create_response_from_buffer(a->len, a->data, MHD_RESPMEM_MUST_FREE);
	if (!r)
		return MHD_NO;
	a->data = NULL;
	add_headers(r, a->type, "no-store");
	if (*a->file) {
		snprintf(file, sizeof(file), "attachment; filename=\"%s\"", a->file);
		MHD_add_response_header(r, "Content-Disposition", file);
	}
	ok = MHD_queue_response(c, a->status, r);
	MHD_destroy_response(r);
	return ok;
}

/* --- the worker ------------------------------------------------------------------------------- */

static void *work(void *arg)
{
	struct web *w = arg;
	struct rusage ru;

	/* People wait more patiently than samples do. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WORKER_NICE);
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct request *r;

		while (!w->first && !w->stop)
			pthread_cond_wait(&w->more, &w->lock);
		r = w->first;
		if (!r)
			break;
		w->first = r->next;
		if (!w->first)
			w->last = &w->first;
		pthread_mutex_unlock(&w->lock);
		if (r->recorded)
			w->recorder.answer(w->recorder.arg, &r->answer);
		else
			web_api_answer(w->api, &r->question, &r->answer);
		getrusage(RUSAGE_THREAD, &ru);
		pthread_mutex_lock(&w->lock);
		w->system_s = (double)ru.ru_stime.tv_sec + (double)ru.ru_stime.tv_usec / 1e6;
		r->next = w->done;
		w->done = r;
		pthread_cond_signal(&w->answered);
		eventfd_write(w->done_fd, 1);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Its connection is suspended by now: the worker may be faster than we are. */
static void enqueue(struct web *w, struct request *r)
{
	r->state = REQUEST_ASKED;
	pthread_mutex_lock(&w->lock);
	r->next = NULL;
	*w->last = r;
	w->last = &r->next;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

void web_cpu_seconds(struct web *w, double *user, double *system)
{
	struct timespec ts = { 0 };
	clockid_t clock;

	*user = *system = 0;
	if (!w->working || pthread_getcpuclockid(w->worker, &clock) || clock_gettime(clock, &ts))
		return;
	pthread_mutex_lock(&w->lock);
	*system = w->system_s;
	pthread_mutex_unlock(&w->lock);
	*user = MAX((double)ts.tv_sec + (double)ts.tv_nsec / 1e9 - *system, 0.0);
}

/* --- requests --------------------------------------------------------------------------------- */

static const char *keep_text(struct request *r, const char *s)
{
	size_t len = strlen(s) + 1;
	char *to = r->texts + r->ntexts;

	if (len > sizeof(r->texts) - r->ntexts) {
		r->too_long = true;
		return "";
	}
	memcpy(to, s, len);
	r->ntexts += len;
	return to;
}

static enum MHD_Result take_param(void *arg, enum MHD_ValueKind kind __unused, const char *key,
				  const char *value)
{
	struct request *r = arg;
	struct web_question *q = &r->question;

	if (q->nparams == WEB_PARAMS_MAX) {
		r->too_long = true;
		return MHD_NO;
	}
	q->params[q->nparams].key = keep_text(r, key);
	q->params[q->nparams++].value = keep_text(r, value ? value : "");
	return MHD_YES;
}

static struct slot *slot_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i ? i->socket_context : NULL;
}

static void set_deadline(struct MHD_Connection *c, u64 ns)
{
	struct slot *s = slot_of(c);

	if (s)
		s->deadline_ns = ns == UINT64_MAX ? ns : now_monotonic() + ns;
}

static enum MHD_Result start_recording(struct web *w, struct request *r, const char *method)
{
	if (strcmp(method, "GET"))
		return send_text(r->connection, 405, "only GET\n");
	if (w->recording) {
		web_api_refuse(&r->answer, 409,
			       "another time line is being recorded: try again when it is done");
		return send_answer(r->connection, &r->answer);
	}
	if (w->recorder.begin(w->recorder.arg, &r->question, &r->answer))
		return send_answer(r->connection, &r->answer);
	w->recording = r;
	r->recorded = true;
	r->state = REQUEST_RECORDING;
	set_deadline(r->connection, UINT64_MAX);
	MHD_suspend_connection(r->connection);
	return MHD_YES;
}

static enum MHD_Result start(struct web *w, struct request *r, const char *path, const char *method)
{
	const struct web_asset *asset;
	const char *token, *why;
	u32 status;

	set_deadline(r->connection, WEB_SEND_NS);
	token = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, "token");
	why = judge(w, r->connection, path, method, &status);
	if (why && status == 401 && token && !strcmp(path, "/") && same_token(w, token))
		return send_cookie(w, r->connection);
	if (why)
		return send_text(r->connection, status, why);
	asset = web_asset(path);
	if (asset)
		return send_asset(r->connection, asset);
	if (strncmp(path, "/api/", 5) && strcmp(path, "/metrics"))
		return send_text(r->connection, 404, "there is no such path\n");
	r->question.path = keep_text(r, path);
	MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, take_param, r);
	if (r->too_long)
		return send_text(r->connection, 414, "too many or too long parameters\n");
	if (w->recorder.begin && !strcmp(path, RECORDING))
		return start_recording(w, r, method);
	set_deadline(r->connection, UINT64_MAX);
	MHD_suspend_connection(r->connection);
	enqueue(w, r);
	return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path,
				  const char *method, const char *version __unused,
				  const char *upload __unused, size_t *upload_size, void **state)
{
	struct web *w = arg;
	struct request *r = *state;

	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return MHD_NO;
		r->web = w;
		r->connection = c;
		*state = r;
		return MHD_YES;
	}
	/* Nobody sends anything to us; what comes is not kept. */
	if (*upload_size) {
		*upload_size = 0;
		return MHD_YES;
	}
	if (r->state == REQUEST_NEW)
		return start(w, r, path, method);
	if (r->state != REQUEST_ANSWERED)
		return MHD_NO;
	set_deadline(c, WEB_SEND_NS);
	return send_answer(c, &r->answer);
}

static void on_completed(void *arg __unused, struct MHD_Connection *c, void **state,
			 enum MHD_RequestTerminationCode how __unused)
{
	struct request *r = *state;

	set_deadline(c, WEB_IDLE_NS);
	if (!r)
		return;
	free(r->answer.data);
	free(r);
	*state = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode how)
{
	struct web *w = arg;
	struct slot *s = *context;
	u32 i;

	if (how == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (s) {
			s->fd = -1;
			w->open--;
		}
		return;
	}
	for (i = 0; i < WEB_CONNECTIONS && w->slots[i].fd >= 0; i++)
		;
	if (i == WEB_CONNECTIONS)
		return;
	s = &w->slots[i];
	s->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	s->deadline_ns = now_monotonic() + WEB_HEADER_NS;
	w->open++;
	*context = s;
}

/* A request that comes byte by byte keeps its place no longer than others do. */
static void close_late(struct web *w)
{
	u64 now = now_monotonic();
	u32 i;

	for (i = 0; i < WEB_CONNECTIONS; i++)
		if (w->slots[i].fd >= 0 && now > w->slots[i].deadline_ns)
			shutdown(w->slots[i].fd, SHUT_RDWR);
}

int web_watch(const struct web *w, int epoll_fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, w->epoll_fd, &ev) ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, w->done_fd, &ev))
		return -errno;
	return 0;
}

static void resume(struct web *w, struct request *r)
{
	if (r->recorded) {
		w->recorder.end(w->recorder.arg);
		w->recording = NULL;
	}
	r->state = REQUEST_ANSWERED;
	MHD_resume_connection(r->connection);
}

/* Connections whose answers are there go on: here, since the library wakes nobody for it. */
static void resume_done(struct web *w)
{
	struct request *r, *next;
	eventfd_t n;

	eventfd_read(w->done_fd, &n);
	pthread_mutex_lock(&w->lock);
	r = w->done;
	w->done = NULL;
	pthread_mutex_unlock(&w->lock);
	for (; r; r = next) {
		next = r->next;
		resume(w, r);
	}
}

/* The library does not look at a connection that is suspended. */
static bool has_gone(const struct request *r)
{
	const struct slot *s = slot_of(r->connection);
	struct pollfd p = { .fd = s ? s->fd : -1, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

static void record_on(struct web *w)
{
	struct request *r = w->recording;

	if (!r || r->state != REQUEST_RECORDING)
		return;
	if (has_gone(r))
		resume(w, r); /* it notices, then */
	else if (w->recorder.ready(w->recorder.arg))
		enqueue(w, r);
}

static bool is_done(const struct web *w, const struct request *r)
{
	const struct request *d;

	for (d = w->done; d && d != r; d = d->next)
		;
	return d;
}

void web_end_recording(struct web *w)
{
	struct request *r = w->recording, **at;

	if (!r)
		return;
	if (r->state == REQUEST_ASKED) {
		pthread_mutex_lock(&w->lock);
		for (at = &w->first; *at && *at != r; at = &(*at)->next)
			;
		if (*at) {
			*at = r->next;
			if (!r->next)
				w->last = at;
			pthread_mutex_unlock(&w->lock);
		} else {
			while (!is_done(w, r))
				pthread_cond_wait(&w->answered, &w->lock);
			pthread_mutex_unlock(&w->lock);
			resume_done(w);
			return;
		}
	}
	web_api_refuse(&r->answer, 503, "profiling has ended");
	resume(w, r);
}

u64 web_next(const struct web *w)
{
	MHD_UNSIGNED_LONG_LONG ms;
	u64 next = now_monotonic() + LIMIT_TICK;

	if (!w->open)
		return UINT64_MAX;
	if (MHD_get_timeout(w->mhd, &ms) == MHD_YES && !ms)
		return 0;
	if (w->recording && w->recording->state == REQUEST_RECORDING)
		next = MIN(next, w->recorder.next(w->recorder.arg));
	return next;
}

void web_work(struct web *w)
{
	MHD_UNSIGNED_LONG_LONG ms;
	u32 i;

	close_late(w);
	resume_done(w);
	record_on(w);
	/* What was resumed, or has more to send, may be ready at once: epoll does not tell. */
	for (i = 0; i < ROUNDS_MAX; i++) {
		MHD_run(w->mhd);
		if (MHD_get_timeout(w->mhd, &ms) != MHD_YES || ms)
			break;
	}
}

const char *web_address(const struct web *w)
{
	return w->address;
}

/* --- opening ---------------------------------------------------------------------------------- */

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* "127.0.0.1:7077", "[::1]:7077". */
static int parse_address(const char *s, union address *ret, bool *loopback)
{
	const char *colon = strrchr(s, ':');
	char host[64], *end;
	unsigned long port;
	size_t len;

	if (!colon || colon == s || (size_t)(colon - s) >= sizeof(host))
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (!isdigit((u8)colon[1]) || *end || port > 65535)
		return -EINVAL;
	len = (size_t)(colon - s);
	memcpy(host, s, len);
	host[len] = '\0';
	memset(ret, 0, sizeof(*ret));
	if (*host == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		ret->six.sin6_family = AF_INET6;
		ret->six.sin6_port = htons((u16)port);
		*loopback = true;
		if (inet_pton(AF_INET6, host + 1, &ret->six.sin6_addr) != 1)
			return -EINVAL;
		*loopback = IN6_IS_ADDR_LOOPBACK(&ret->six.sin6_addr);
		return 0;
	}
	ret->four.sin_family = AF_INET;
	ret->four.sin_port = htons((u16)port);
	if (inet_pton(AF_INET, host, &ret->four.sin_addr) != 1)
		return -EINVAL;
	*loopback = ntohl(ret->four.sin_addr.s_addr) >> 24 == 127;
	return 0;
}

static int read_token(struct web *w, const char *path)
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len;
	int err;

	if (!path || !*path)
		return 0;
	err = read_file(path, 4096, &text, &len);
	if (err || stat(path, &st))
		return log_err(err ? err : -errno, "cannot read the page's token from '%s': %s",
			       path, strerror(err ? -err : errno));
	if (st.st_mode & 077)
		return log_err(-EPERM,
			       "the page's token in '%s' is readable by others: chmod 600 it",
			       path);
	while (len && isspace((u8)text[len - 1]))
		text[--len] = '\0';
	if (len < WEB_TOKEN_MIN || len > WEB_TOKEN_MAX ||
	    strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") !=
		    len)
		return log_err(-EINVAL,
			       "the page's token in '%s' needs %d to %d letters, digits, '-', '_', "
			       "'.'",
			       path, WEB_TOKEN_MIN, WEB_TOKEN_MAX);
	strcpy(w->token, text);
	return 0;
}

static int open_socket(struct web *w, const union address *a)
{
	socklen_t len = a->any.sa_family == AF_INET6 ? sizeof(a->six) : sizeof(a->four);
	char text[INET6_ADDRSTRLEN];
	union address bound = *a;
	int one = 1;

	w->listen_fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->listen_fd < 0 ||
	    setsockopt(w->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(w->listen_fd, &a->any, len) || listen(w->listen_fd, WEB_CONNECTIONS) ||
	    getsockname(w->listen_fd, &bound.any, &len))
		return -errno;
	if (bound.any.sa_family == AF_INET6)
		snprintf(w->address, sizeof(w->address), "http://[%s]:%u/",
			 inet_ntop(AF_INET6, &bound.six.sin6_addr, text, sizeof(text)),
			 ntohs(bound.six.sin6_port));
	else
		snprintf(w->address, sizeof(w->address), "http://%s:%u/",
			 inet_ntop(AF_INET, &bound.four.sin_addr, text, sizeof(text)),
			 ntohs(bound.four.sin_port));
	return 0;
}

/* What libmicrohttpd has to say is about clients, not about us. */
static void on_log(void *arg __unused, const char *fmt, va_list args)
{
	char text[256];

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	vsnprintf(text, sizeof(text), fmt, args);
	log_debug("page: %s", text);
}

/* What is escaped must not end a text early: "%00" is no letter of any path of ours. */
static size_t unescape(void *arg __unused, struct MHD_Connection *c __unused, char *s)
{
	size_t len = MHD_http_unescape(s), i;

	for (i = 0; i < len; i++)
		if (!s[i])
			s[i] = '?';
	return len;
}

static int start_mhd(struct web *w)
{
	const union MHD_DaemonInfo *info;

	w->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_request, w, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
		w->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)WEB_CONNECTIONS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)WEB_MEMORY,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)(WEB_SEND_NS / NSEC_PER_SEC),
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, w, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, w, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	if (!w->mhd)
		return -EIO;
	w->listen_fd = -1; /* it is the library's now */
	info = MHD_get_daemon_info(w->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return -EIO;
	w->epoll_fd = info->epoll_fd;
	return 0;
}

int web_open(const struct web_options *o, struct web **ret)
{
	struct web *w = calloc(1, sizeof(*w));
	bool loopback = false;
	union address a;
	int err = w ? 0 : -ENOMEM;
	u32 i;

	if (err)
		return log_err(err, "no page: out of memory");
	w->api = o->api;
	w->recorder = o->recorder;
	w->listen_fd = w->epoll_fd = w->done_fd = -1;
	w->last = &w->first;
	for (i = 0; i < WEB_CONNECTIONS; i++)
		w->slots[i].fd = -1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->answered, NULL);
	snprintf(w->hosts, sizeof(w->hosts), "%s", o->hosts ? o->hosts : "");
	err = parse_address(o->listen, &a, &loopback);
	if (err)
		log_err(err, "no page: '%s' is no ADDRESS:PORT, such as 127.0.0.1:7077", o->listen);
	if (!err)
		err = read_token(w, o->token_file);
	if (!err && !loopback && !*w->token)
		err = log_err(
			-EPERM,
			"no page: '%s' is reachable from elsewhere and there is no token: set "
			"token_file in [web], or listen on 127.0.0.1",
			o->listen);
	if (!err) {
		err = open_socket(w, &a);
		w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (!err && w->done_fd < 0)
			err = -errno;
		if (!err)
			err = start_mhd(w);
		if (!err)
			err = thread_start(&w->worker, NULL, work, w);
		w->working = !err;
		if (err)
			log_err(err,
				"no page: cannot listen on %s: %s; give another address in listen "
				"of [web], or an empty one for no page",
				o->listen, strerror(-err));
	}
	if (err)
		web_free(w);
	else
		*ret = w;
	return err;
}

void web_free(struct web *w)
{
	if (!w)
		return;
	web_end_recording(w);
	if (w->working) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->more);
		pthread_mutex_unlock(&w->lock);
		/* It answers all that was asked: no connection may stay suspended. */
		pthread_join(w->worker, NULL);
		resume_done(w);
	}
	if (w->mhd)
		MHD_stop_daemon(w->mhd);
	closep(&w->listen_fd);
	closep(&w->done_fd);
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->answered);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
