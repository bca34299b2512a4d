/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The page's questions and their answers: docs/api.md. Knows no sockets. In: a path
 * and parameters as a browser sent them. Out: JSON, or a file to download. Status and notes come
 * from the daemon's thread; questions are answered in another one.
 */
#pragma once

#include "util.h"
#include "cost.h"

#define WEB_PARAMS_MAX 32
#define WEB_NODES      8192 /* of a tree that is sent unless the page asks for another number */
#define WEB_NODES_MAX  65536
#define WEB_ROWS_MAX   1000                /* of a table */
#define WEB_QUERY_NS   (20 * NSEC_PER_SEC) /* then what was read so far is shown */

struct catalog;
struct sending;
struct web_api;

struct web_param {
	const char *key, *value;
};

struct web_question {
	const char *path;
	struct web_param params[WEB_PARAMS_MAX];
	u32 nparams;
};

struct web_answer {
	u32 status;       /* of HTTP */
	const char *type; /* static */
	char file[128];   /* to be saved under this name; "": shown */
	u8 *data;         /* owned */
	size_t len;
};

/* What the daemon knows of one process with a runtime. */
struct web_runtime {
	u32 pid;
	bool ok;
	char exe[64], text[160];
};

#define WEB_RUNTIMES_MAX 64

struct web_status {
	bool on; /* this host is being profiled */
	struct cost cost;
	u64 window_s;
	char host[256], quality[512];
	struct web_runtime runtimes[WEB_RUNTIMES_MAX];
	u32 nruntimes;
};

/* Both are borrowed; sending may be NULL. Owned; NULL: no memory. */
struct web_api *web_api_new(struct catalog *c, struct sending *sending);
void web_api_free(struct web_api *api);
/* Any thread. Copied. */
void web_api_status(struct web_api *api, const struct web_status *s);
/* A parameter of a question; NULL: not there, or empty. */
const char *web_param(const struct web_question *q, const char *key);
/* *ret stays as it is when there is none; false: it is no number of 0 to max. */
bool web_param_number(const struct web_question *q, const char *key, u64 max, u64 *ret);
/* An answer with what is wrong, for people; what it had is freed. */
void web_api_refuse(struct web_answer *a, u32 status, const char *why);
/* Always gives an answer; its data may be NULL. */
void web_api_answer(struct web_api *api, const struct web_question *q, struct web_answer *ret);
