// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as a configuration: no crash, no leak, and the promises that the rest relies on: values
 * within their ranges after success, one line of clean text after failure.
 */
#include "core/config.h"
#include "core/envelope.h"
#include "core/headers.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void check_error(const char *err)
{
	char clean[512];

	assert(*err && !strchr(err, '\n'));
	utf8_clean(clean, sizeof(clean), err, strlen(err));
	assert(!strcmp(clean, err));
}

static void check_values(const struct config *c)
{
	u32 i;

	assert(c->sample_hz >= 1 && c->sample_hz <= 1000);
	assert(c->upload_interval_s >= 1 && c->upload_interval_s <= 3600);
	assert(c->max_frames >= 1 && c->max_frames <= 512);
	assert(c->cpu_budget >= 0.01 && c->cpu_budget <= 100);
	assert(c->store_max_mb >= 1 && c->store_max_mb <= 1048576);
	assert(c->store_path[0] == '/');
	assert(c->nuploads <= CONFIG_MAX_UPLOADS);
	for (i = 0; i < c->nuploads; i++) {
		const struct config_upload *u = &c->uploads[i];
		enum protocol protocol;
		const char *want;

		assert(!*u->url || !strncasecmp(u->url, "http", 4));
		assert(envelope_protocol(u->protocol, &protocol));
		assert(!strcmp(u->symbolize, "none") || !strcmp(u->symbolize, "host"));
		assert(u->spool_mb >= 1 && u->spool_mb <= 65536);
		assert(!headers_each(u->headers, ',', NULL, NULL, &want));
		assert(!*u->user == !*u->password_file);
	}
	assert(c->defined || !c->enabled);
	assert(c->offcpu_min_ms >= 0 && c->offcpu_min_ms <= 10000);
	assert(c->runtime_hz >= 1 && c->runtime_hz <= 1000);
	assert(c->nruntimes <= CONFIG_MAX_RUNTIMES);
	for (i = 0; i < c->nruntimes; i++) {
		struct config_runtime r = config_runtime(c, c->runtimes[i].name);

		assert(*r.name && strlen(r.name) <= CONFIG_MAX_WORD);
		assert(r.hz >= 1 && r.hz <= 1000);
		assert(!*r.layout || *r.layout == '/');
		config_runtime_enabled(c, r.name, r.name);
	}
	assert(c->nlabels <= CONFIG_MAX_LABELS);
	for (i = 0; i < c->nlabels; i++)
		assert(strchr(c->labels[i], '=') > c->labels[i]);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	char err[512] = "";
	struct config c;
	int rc;

	if (config_init(&c))
		return 0;
	rc = config_parse(&c, "F", (const char *)data, size, err, sizeof(err));
	assert(rc == 0 || rc == -EINVAL || rc == -E2BIG || rc == -ENOMEM);
	if (rc)
		check_error(err);
	else
		check_values(&c);
	config_fini(&c);
	return 0;
}
