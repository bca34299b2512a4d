// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See web_api.h. Each question has one function; all of them read, none changes. */
#include "web_api.h"

#include "catalog.h"
#include "json.h"
#include "metrics.h"
#include "sending.h"
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>

#define STRIP_PIECES 240
#define REFRESH_NS   (NSEC_PER_SEC / 5)
#define DEFAULT_MS   (15 * 60 * 1000ull)
#define LABEL_VALUES 200 /* of one key */
#define SERVICES_MAX 2000
#define JSON_TYPE    "application/json"
#define MS_MAX       (1ull << 52)
#define SIDE_SUFFIX  "2"
#define SVG_WIDTH    1400

struct web_api {
	struct catalog *catalog;
	struct sending *sending;
	pthread_mutex_t lock; /* of status */
	struct web_status status;
	bool told;
};

struct web_api *web_api_new(struct catalog *c, struct sending *sending)
{
	struct web_api *api = calloc(1, sizeof(*api));

	if (!api)
		return NULL;
	api->catalog = c;
	api->sending = sending;
	pthread_mutex_init(&api->lock, NULL);
	return api;
}

void web_api_free(struct web_api *api)
{
	if (!api)
		return;
	pthread_mutex_destroy(&api->lock);
	free(api);
}

void web_api_status(struct web_api *api, const struct web_status *s)
{
	pthread_mutex_lock(&api->lock);
	api->status = *s;
	api->told = true;
	pthread_mutex_unlock(&api->lock);
}

static int answer_metrics(struct web_api *api, const struct web_question *q __unused,
			  struct web_answer *a)
{
	_cleanup_free_ struct web_status *s = malloc(sizeof(*s));
	struct sending_server servers[CONFIG_MAX_UPLOADS];
	struct metrics m;
	FILE *f = s ? open_memstream((char **)&a->data, &a->len) : NULL;

	if (!f)
		return -ENOMEM;
	pthread_mutex_lock(&api->lock);
	*s = api->status;
	pthread_mutex_unlock(&api->lock);
	m = (struct metrics){
		.on = s->on,
		.window_s = s->window_s,
		.cost = &s->cost,
		.servers = servers,
		.nservers = sending_servers(api->sending, servers),
	};
	metrics_write(&m, f);
	a->status = 200;
	a->type = METRICS_TYPE;
	return fclose(f) ? -ENOMEM : 0;
}

/* --- parameters ------------------------------------------------------------------------------- */

const char *web_param(const struct web_question *q, const char *key)
{
	u32 i;

	for (i = 0; i < q->nparams; i++)
		if (!strcmp(q->params[i].key, key))
			return *q->params[i].value ? q->params[i].value : NULL;
	return NULL;
}

bool web_param_number(const struct web_question *q, const char *key, u64 max, u64 *ret)
{
	const char *s = web_param(q, key);
	char *end;
	u64 n;

	if (!s)
		return true;
	if (*s < '0' || *s > '9')
		return false;
	n = strtoull(s, &end, 10);
	if (*end || n > max)
		return false;
	*ret = n;
	return true;
}

/* from, to and service, or those of the second side where they are given. */
static bool param_range(const struct web_question *q, bool second, struct catalog_range *ret)
{
	u64 now = now_realtime() / 1000000;

	ret->to_ms = now;
	if (!web_param_number(q, "to", MS_MAX, &ret->to_ms))
		return false;
	ret->from_ms = ret->to_ms - MIN(ret->to_ms, DEFAULT_MS);
	if (!web_param_number(q, "from", MS_MAX, &ret->from_ms))
		return false;
	ret->service = web_param(q, "service");
	ret->type = web_param(q, "type");
	if (!ret->type)
		ret->type = "cpu";
	if (second) {
		if (!web_param_number(q, "from" SIDE_SUFFIX, MS_MAX, &ret->from_ms) ||
		    !web_param_number(q, "to" SIDE_SUFFIX, MS_MAX, &ret->to_ms))
			return false;
		if (web_param(q, "service" SIDE_SUFFIX))
			ret->service = web_param(q, "service" SIDE_SUFFIX);
	}
	return ret->from_ms < ret->to_ms;
}

static bool is_compared(const struct web_question *q)
{
	return web_param(q, "from" SIDE_SUFFIX) || web_param(q, "to" SIDE_SUFFIX) ||
	       web_param(q, "service" SIDE_SUFFIX);
}

static bool param_view(const struct web_question *q, struct view_options *o)
{
	const char *kernel = web_param(q, "kernel"), *service = web_param(q, "service"),
		   *type = web_param(q, "type");
	u32 i;

	*o = (struct view_options){ .type = type ? type : "cpu" };
	o->no_kernel = kernel && !strcmp(kernel, "0");
	if (!service || !strcmp(service, "*"))
		o->root_key = "process.executable";
	for (i = 0; i < q->nparams; i++) {
		if (strncmp(q->params[i].key, "l.", 2) || !*q->params[i].value)
			continue;
		if (o->nfilters == VIEW_FILTERS_MAX)
			return false;
		o->filters[o->nfilters++] =
			(struct view_filter){ q->params[i].key + 2, q->params[i].value };
	}
	return true;
}

/* --- answers ---------------------------------------------------------------------------------- */

void web_api_refuse(struct web_answer *a, u32 status, const char *why)
{
	struct json j;

	free(a->data);
	*a = (struct web_answer){ .status = status, .type = JSON_TYPE };
	if (json_init(&j))
		return;
	json_open(&j, '{');
	json_key(&j, "error");
	json_text(&j, why);
	json_close(&j, '{');
	if (json_finish(&j)) {
		json_fini(&j);
		return;
	}
	a->data = (u8 *)j.data;
	a->len = j.len;
}

static void refuse_error(struct web_answer *a, int err)
{
	if (err == -EINVAL)
		web_api_refuse(a, 400, "a parameter has no sense: see docs/api.md");
	else if (err == -ENOENT)
		web_api_refuse(a, 404, "nothing is stored there");
	else
		web_api_refuse(a, 503, err == -ENOMEM ? "out of memory" : strerror(-err));
}

static int done(struct json *j, struct web_answer *a)
{
	int err = json_finish(j);

	if (err)
		return err;
	a->status = 200;
	a->type = JSON_TYPE;
	a->len = j->len;
	a->data = (u8 *)take_ptr(j->data);
	return 0;
}

static void pair_text(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_text(j, value);
}

static void pair_number(struct json *j, const char *key, u64 value)
{
	json_key(j, key);
	json_number(j, value);
}

static void pair_real(struct json *j, const char *key, double value)
{
	json_key(j, key);
	json_real(j, value);
}

/* --- status ----------------------------------------------------------------------------------- */

static void put_cost(struct json *j, const struct cost *c)
{
	pair_number(j, "hz", c->hz);
	pair_number(j, "configured_hz", c->configured_hz);
	pair_text(j, "clock", c->clock);
	pair_real(j, "cost_percent", c->total);
	pair_real(j, "cost_budget", c->budget);
	pair_real(j, "cost_on_cpu", c->sides[GUARD_CPU]);
	pair_real(j, "cost_off_cpu", c->sides[GUARD_OFFCPU]);
	pair_real(j, "cost_runtimes", c->sides[GUARD_RUNTIMES]);
	pair_number(j, "rss_bytes", c->rss);
	pair_number(j, "map_bytes", c->maps);
	pair_number(j, "samples_due", c->samples_due);
	pair_number(j, "samples_kept", c->samples_kept);
	pair_text(j, "samples_lost", c->samples_lost);
	pair_number(j, "waits_due", c->waits_due);
	pair_number(j, "waits_kept", c->waits_kept);
	pair_text(j, "waits_lost", c->waits_lost);
	pair_text(j, "offcpu",
		  c->paused  ? "paused to stay under cpu_budget"
		  : *c->mode ? c->mode
			     : c->refused);
	pair_number(j, "cpus", c->cpus);
}

static int answer_status(struct web_api *api, const struct web_question *q __unused,
			 struct web_answer *a)
{
	_cleanup_free_ struct web_status *s = malloc(sizeof(*s));
	_cleanup_(json_fini) struct json j = { 0 };
	bool told;
	u32 i;
	int err = s ? json_init(&j) : -ENOMEM;

	if (err)
		return err;
	pthread_mutex_lock(&api->lock);
	*s = api->status;
	told = api->told;
	pthread_mutex_unlock(&api->lock);
	json_open(&j, '{');
	pair_text(&j, "host", s->host);
	pair_number(&j, "window_s", s->window_s);
	pair_number(&j, "now", now_realtime() / 1000000);
	json_key(&j, "measured");
	json_bool(&j, told && s->cost.end_ns);
	put_cost(&j, &s->cost);
	pair_text(&j, "quality", s->quality);
	json_key(&j, "runtimes");
	json_open(&j, '[');
	for (i = 0; i < s->nruntimes; i++) {
		json_open(&j, '{');
		pair_number(&j, "pid", s->runtimes[i].pid);
		pair_text(&j, "exe", s->runtimes[i].exe);
		json_key(&j, "ok");
		json_bool(&j, s->runtimes[i].ok);
		pair_text(&j, "text", s->runtimes[i].text);
		json_close(&j, '{');
	}
	json_close(&j, '[');
	json_close(&j, '{');
	return done(&j, a);
}

/* --- services --------------------------------------------------------------------------------- */

static void put_service(struct json *j, const struct catalog_summary *s,
			const struct catalog_service *service)
{
	u32 i;

	json_open(j, '{');
	pair_text(j, "key", service->key);
	pair_text(j, "name", service->service);
	pair_text(j, "container", service->container);
	pair_text(j, "exe", service->exe);
	json_key(j, "values");
	json_open(j, '{');
	for (i = 0; i < s->ntypes; i++)
		if (service->value[i])
			pair_number(j, s->types[i], service->value[i]);
	json_close(j, '{');
	pair_number(j, "stacks", service->stacks);
	pair_number(j, "whole", service->whole);
	json_close(j, '{');
}

static void put_strip(struct web_api *api, struct json *j, const struct catalog_range *r)
{
	u64 strip[STRIP_PIECES];
	u32 i;

	catalog_strip(api->catalog, r, strip, STRIP_PIECES);
	json_open(j, '{');
	pair_number(j, "from", r->from_ms);
	pair_number(j, "to", r->to_ms);
	json_key(j, "values");
	json_open(j, '[');
	for (i = 0; i < STRIP_PIECES; i++)
		json_number(j, strip[i]);
	json_close(j, '[');
	json_close(j, '{');
}

static int heaviest(const void *a, const void *b)
{
	const struct catalog_service *x = a, *y = b;
	u64 wx = 0, wy = 0;
	u32 i;

	for (i = 0; i < CATALOG_TYPES_MAX; i++) {
		wx += x->value[i];
		wy += y->value[i];
	}
	if (wx != wy)
		return wx > wy ? -1 : 1;
	return strcmp(x->key, y->key);
}

static int answer_services(struct web_api *api, const struct web_question *q, struct web_answer *a)
{
	_cleanup_(json_fini) struct json j = { 0 };
	_cleanup_(catalog_summary_fini) struct catalog_summary s = { 0 };
	struct catalog_range r, strip;
	u32 i, left;
	int err;

	if (!param_range(q, false, &r))
		return -EINVAL;
	left = catalog_refresh(api->catalog, now_monotonic() + REFRESH_NS);
	err = catalog_summary(api->catalog, r.from_ms, r.to_ms, &s);
	if (!err)
		err = json_init(&j);
	if (err)
		return err;
	if (s.nservices)
		qsort(s.services, s.nservices, sizeof(s.services[0]), heaviest);
	json_open(&j, '{');
	pair_number(&j, "from", r.from_ms);
	pair_number(&j, "to", r.to_ms);
	pair_number(&j, "covered_ms", s.covered_ms);
	pair_number(&j, "first", s.first_ms);
	pair_number(&j, "last", s.last_ms);
	pair_number(&j, "unread", left);
	json_key(&j, "services");
	json_open(&j, '[');
	for (i = 0; i < s.nservices && i < SERVICES_MAX; i++)
		put_service(&j, &s, &s.services[i]);
	json_close(&j, '[');
	pair_number(&j, "left_out", s.nservices - i);
	/* The strip has a range of its own: all that one may drag over. */
	strip = r;
	if (!web_param_number(q, "strip_from", MS_MAX, &strip.from_ms) ||
	    !web_param_number(q, "strip_to", MS_MAX, &strip.to_ms) || strip.from_ms >= strip.to_ms)
		return -EINVAL;
	json_key(&j, "strip");
	put_strip(api, &j, &strip);
	json_close(&j, '{');
	return done(&j, a);
}

/* --- flame graph, table ----------------------------------------------------------------------- */

struct asked {
	struct view *v;
	struct catalog_range range[VIEW_SIDES];
	u32 sides;
	u32 left; /* files that were not read */
};

/* Reads what a question is about; v is the caller's. */
static int ask(struct web_api *api, const struct web_question *q, struct asked *ret)
{
	_cleanup_(view_freep) struct view *v = NULL;
	u64 until = now_monotonic() + WEB_QUERY_NS;
	struct view_options o;
	u32 i, left;
	int err = 0;

	if (!param_view(q, &o))
		return -EINVAL;
	*ret = (struct asked){ .sides = is_compared(q) ? 2 : 1 };
	for (i = 0; i < ret->sides; i++)
		if (!param_range(q, i, &ret->range[i]))
			return -EINVAL;
	v = view_new(&o);
	if (!v)
		return -ENOMEM;
	for (i = 0; i < ret->sides && !err; i++) {
		err = catalog_add(api->catalog, &ret->range[i], v, i, until, &left);
		ret->left += left;
	}
	if (!err)
		err = view_finish(v);
	if (!err)
		ret->v = take_ptr(v);
	return err;
}

/* Symbols as they are used, numbered in order of first use. */
struct symbols {
	u32 *place; /* by symbol; 0: not used yet */
	u32 *used;
	u32 n;
};

static u32 use_symbol(struct symbols *s, u32 symbol)
{
	if (!s->place[symbol]) {
		s->used[s->n++] = symbol;
		s->place[symbol] = s->n;
	}
	return s->place[symbol] - 1;
}

/* Depth first: symbol, depth, then total and self of each side, one after the other. */
static int put_tree(struct json *j, const struct view_tree *t, u32 sides, u32 max,
		    struct symbols *s)
{
	u32 at, depth = 0, n = 0, k;
	u64 least;
	int err = view_threshold(t, max, &least);

	if (err)
		return err;
	json_open(j, '[');
	for (at = t->nodes[0].first; at != VIEW_NONE;) {
		const struct view_node *node = &t->nodes[at];
		bool shown = view_weight(node) >= least && n < max;
		u32 next = shown ? node->first : VIEW_NONE;

		if (shown) {
			json_number(j, use_symbol(s, node->symbol));
			json_number(j, depth);
			for (k = 0; k < sides; k++) {
				json_number(j, node->total[k]);
				json_number(j, node->self[k]);
			}
			n++;
		}
		depth += next != VIEW_NONE;
		while (next == VIEW_NONE && at) {
			next = t->nodes[at].next;
			if (next == VIEW_NONE) {
				at = t->nodes[at].parent;
				depth -= at != 0;
			}
		}
		at = next;
	}
	json_close(j, '[');
	return 0;
}

static int put_table(struct json *j, const struct view *v, u32 sides, struct symbols *s)
{
	_cleanup_free_ struct view_row *rows = NULL;
	u32 n, i, k;
	int err = view_table(v, &rows, &n);

	if (err)
		return err;
	pair_number(j, "functions", n);
	json_key(j, "table");
	json_open(j, '[');
	for (i = 0; i < n && i < WEB_ROWS_MAX; i++) {
		json_number(j, use_symbol(s, rows[i].symbol));
		for (k = 0; k < sides; k++) {
			json_number(j, rows[i].total[k]);
			json_number(j, rows[i].self[k]);
		}
	}
	json_close(j, '[');
	return 0;
}

static void put_symbols(struct json *j, const struct view *v, const struct symbols *s)
{
	static const char *const kinds[] = { "native", "kernel",  "runtime",
					     "code",   "unknown", "label" };
	u32 i;

	json_key(j, "symbols");
	json_open(j, '[');
	for (i = 0; i < s->n; i++) {
		const struct view_symbol *symbol = &v->symbols[s->used[i]];

		json_open(j, '[');
		json_text(j, symbol->name);
		json_text(j, symbol->group);
		json_text(j, kinds[symbol->kind]);
		json_text(j, symbol->file);
		json_number(j, symbol->line);
		json_close(j, '[');
	}
	json_close(j, '[');
}

static void put_labels(struct json *j, const struct view *v)
{
	const char *key = NULL;
	u32 i, n = 0;

	json_key(j, "labels");
	json_open(j, '{');
	for (i = 0; i < v->nlabels; i++) {
		const struct view_label *l = &v->labels[i];

		if (!key || strcmp(key, l->key)) {
			if (key)
				json_close(j, '[');
			key = l->key;
			json_key(j, key);
			json_open(j, '[');
			n = 0;
		}
		if (n++ >= LABEL_VALUES)
			continue;
		json_open(j, '[');
		json_text(j, l->value);
		json_number(j, l->sum[0] + l->sum[1]);
		json_close(j, '[');
	}
	if (key)
		json_close(j, '[');
	json_close(j, '{');
}

static void put_head(struct json *j, const struct asked *k)
{
	const struct view *v = k->v;
	u32 i;

	pair_text(j, "type", v->type);
	pair_text(j, "unit", v->unit);
	pair_number(j, "period", v->period);
	pair_number(j, "sides", k->sides);
	pair_number(j, "left_out", k->left);
	json_key(j, "cut");
	json_bool(j, v->cut);
	json_key(j, "totals");
	json_open(j, '[');
	for (i = 0; i < k->sides; i++)
		json_number(j, v->tree.nodes[0].total[i]);
	json_close(j, '[');
	json_key(j, "files");
	json_open(j, '[');
	for (i = 0; i < k->sides; i++)
		json_number(j, v->files[i]);
	json_close(j, '[');
	json_key(j, "notes");
	json_open(j, '[');
	for (i = 0; i < v->nnotes; i++)
		json_text(j, v->notes[i]);
	json_close(j, '[');
}

static int symbols_init(struct symbols *s, const struct view *v)
{
	s->n = 0;
	s->place = calloc(v->nsymbols, sizeof(*s->place));
	s->used = calloc(v->nsymbols, sizeof(*s->used));
	return s->place && s->used ? 0 : -ENOMEM;
}

static void symbols_fini(struct symbols *s)
{
	free(s->place);
	free(s->used);
}

static int answer_flame(struct web_api *api, const struct web_question *q, struct web_answer *a)
{
	_cleanup_(symbols_fini) struct symbols s = { 0 };
	_cleanup_(json_fini) struct json j = { 0 };
	_cleanup_(view_freep) struct view *v = NULL;
	u64 max = WEB_NODES;
	struct asked k;
	int err;

	if (!web_param_number(q, "max", WEB_NODES_MAX, &max))
		return -EINVAL;
	err = ask(api, q, &k);
	if (err)
		return err;
	v = k.v;
	err = symbols_init(&s, v);
	if (!err)
		err = json_init(&j);
	if (err)
		return err;
	json_open(&j, '{');
	put_head(&j, &k);
	pair_number(&j, "nodes_in_all", v->tree.n - 1);
	json_key(&j, "nodes");
	err = put_tree(&j, &v->tree, k.sides, (u32)max, &s);
	if (!err)
		err = put_table(&j, v, k.sides, &s);
	put_symbols(&j, v, &s);
	put_labels(&j, v);
	json_close(&j, '{');
	return err ? err : done(&j, a);
}

/* Callers and callees of one function. */
static int answer_function(struct web_api *api, const struct web_question *q, struct web_answer *a)
{
	_cleanup_(view_tree_fini) struct view_tree callers = { 0 }, callees = { 0 };
	_cleanup_(symbols_fini) struct symbols s = { 0 };
	_cleanup_(json_fini) struct json j = { 0 };
	_cleanup_(view_freep) struct view *v = NULL;
	const char *name = web_param(q, "name");
	struct asked k;
	int err;

	if (!name)
		return -EINVAL;
	err = ask(api, q, &k);
	if (err)
		return err;
	v = k.v;
	err = view_callers(v, name, &callers);
	if (!err)
		err = view_callees(v, name, &callees);
	if (!err)
		err = symbols_init(&s, v);
	if (!err)
		err = json_init(&j);
	if (err)
		return err;
	json_open(&j, '{');
	put_head(&j, &k);
	pair_text(&j, "name", name);
	json_key(&j, "callers");
	err = put_tree(&j, &callers, k.sides, WEB_NODES, &s);
	json_key(&j, "callees");
	if (!err)
		err = put_tree(&j, &callees, k.sides, WEB_NODES, &s);
	put_symbols(&j, v, &s);
	json_close(&j, '{');
	return err ? err : done(&j, a);
}

/* --- downloads -------------------------------------------------------------------------------- */

static void file_name(struct web_answer *a, const struct asked *k, const char *suffix)
{
	const char *service = k->range[0].service;
	char *c;

	snprintf(a->file, sizeof(a->file), "%.60s-%.40s.%s",
		 service && strcmp(service, "*") ? service : "host", k->range[0].type, suffix);
	for (c = a->file; *c; c++)
		if (!(*c >= '0' && *c <= '9') && !(*c >= 'a' && *c <= 'z') &&
		    !(*c >= 'A' && *c <= 'Z') && *c != '.' && *c != '_' && *c != '-')
			*c = '_';
}

/* A window that is asked for whole and alone goes out as it was written: with labels, addresses. */
static bool whole_file(struct web_api *api, const struct asked *k, struct web_answer *a)
{
	const struct view_options *o = &k->v->o;
	char name[256];

	if (o->nfilters || o->no_kernel || k->sides > 1)
		return false;
	return !catalog_only(api->catalog, &k->range[0], name, sizeof(name)) &&
	       !catalog_read(api->catalog, name, &a->data, &a->len);
}

static int write_format(const struct view *v, const char *format, FILE *f)
{
	static const struct view_text_options text = { .min_share = 0.5,
						       .max_lines = 1000,
						       .max_depth = 200 };

	if (!strcmp(format, "folded"))
		return view_write_folded(v, 0, f);
	if (!strcmp(format, "svg"))
		return view_write_svg(v, SVG_WIDTH, f);
	return view_write_text(v, &text, f);
}

static int answer_download(struct web_api *api, const struct web_question *q, struct web_answer *a)
{
	static const struct {
		const char *format, *suffix, *type;
	} formats[] = {
		{ "pprof", "pb.gz", "application/octet-stream" },
		{ "folded", "folded", "text/plain; charset=utf-8" },
		{ "svg", "svg", "image/svg+xml" },
		{ "tree", "txt", "text/plain; charset=utf-8" },
	};
	_cleanup_(view_freep) struct view *v = NULL;
	const char *format = web_param(q, "format");
	struct asked k;
	FILE *f;
	u32 i;
	int err;

	for (i = 0; format && i < ARRAY_SIZE(formats) && strcmp(formats[i].format, format); i++)
		;
	if (!format || i == ARRAY_SIZE(formats))
		return -EINVAL;
	err = ask(api, q, &k);
	if (err)
		return err;
	v = k.v;
	if (!v->files[0])
		return -ENOENT;
	file_name(a, &k, formats[i].suffix);
	a->type = formats[i].type;
	a->status = 200;
	if (!i)
		return whole_file(api, &k, a) ? 0 : view_write_pprof(v, 0, &a->data, &a->len);
	f = open_memstream((char **)&a->data, &a->len);
	if (!f)
		return -ENOMEM;
	err = write_format(v, format, f);
	return fclose(f) ? -ENOMEM : err;
}

/* ---------------------------------------------------------------------------------------------- */

void web_api_answer(struct web_api *api, const struct web_question *q, struct web_answer *ret)
{
	static const struct {
		const char *path;
		int (*answer)(struct web_api *api, const struct web_question *q,
			      struct web_answer *a);
	} paths[] = {
		{ "/api/status", answer_status },     { "/api/services", answer_services },
		{ "/api/flame", answer_flame },       { "/api/function", answer_function },
		{ "/api/download", answer_download }, { "/metrics", answer_metrics },
	};
	u32 i;
	int err;

	*ret = (struct web_answer){ 0 };
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		if (strcmp(paths[i].path, q->path))
			continue;
		err = paths[i].answer(api, q, ret);
		if (err)
			refuse_error(ret, err);
		/* A view may have been large; the daemon is to stay small. */
		malloc_trim(0);
		return;
	}
	web_api_refuse(ret, 404, "there is no such path: see docs/api.md");
}
