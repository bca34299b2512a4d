// SPDX-License-Identifier: Apache-2.0
/* Shelf: line. See envelope.h. */
#include "envelope.h"

#include "envelope.pb-c.h"
#include "gzip.h"
#include "json.h"
#include "otlp.h"
#include "pprof.h"
#include "pprof_cut.h"
#include "profile.pb-c.h"
#include "spool.h"

#include <errno.h>
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

/*
 * What a profile may be unpacked. Those that are larger go to servers that take them as they are.
 * One at a time, since each server has a thread of its own.
 */
#define PLAIN_MAX  (128u << 20)
#define MEMORY_MAX (384u << 20)
static pthread_mutex_t unpacking = PTHREAD_MUTEX_INITIALIZER;

/* What servers take by default. pyroscope: pkg/validation/limits.go; gRPC: 4 MiB a message. */
#define PYROSCOPE_BYTES   (4u << 20)
#define PYROSCOPE_SAMPLES 16000
#define PARCA_BYTES       (4u << 20)  /* of JSON, which becomes a gRPC message in the gateway */
#define OTLP_BYTES        (16u << 20) /* the collector's HTTP server takes 20 MiB */
#define GRPC_BYTES        (4u << 20)
#define GRPC_FRAME        5 /* flag, and length in network order */

#define JSON_TYPE "Content-Type: application/json"

static const char *const names[PROTOCOL_MAX] = { "pprof", "otel-pprof", "pyroscope",
						 "parca", "otlp",       "otlp-grpc" };

bool envelope_protocol(const char *name, enum protocol *ret)
{
	u32 i;

	for (i = 0; i < PROTOCOL_MAX; i++)
		if (!strcmp(names[i], name)) {
			*ret = i;
			return true;
		}
	return false;
}

bool envelope_time_is_end(enum protocol p)
{
	return p == PROTOCOL_PPROF;
}

bool envelope_wants_service_label(enum protocol p)
{
	return p == PROTOCOL_OTEL_PPROF;
}

/* --- pprof as it is --------------------------------------------------------------------------- */

static int make_coroot(const struct profile *p, const char *host, struct envelope *e)
{
	char service[3 * sizeof(p->service)], container[3 * sizeof(p->container)];
	char type[3 * sizeof(p->type)], where[3 * 256];

	spool_escape(service, sizeof(service), p->service);
	spool_escape(container, sizeof(container), p->container);
	spool_escape(type, sizeof(type), p->type);
	spool_escape(where, sizeof(where), host);
	if (asprintf(&e->path, "/v1/profiles?service.name=%s%s%s&host.name=%s&source=ebpf&type=%s",
		     service, *container ? "&container.id=" : "", container, where, type) < 0) {
		e->path = NULL;
		return -ENOMEM;
	}
	/*
	 * No Content-Encoding: gzip belongs to the pprof format, as in a .pb.gz file. Coroot's own
	 * agent sends it so (coroot-node-agent 1.35.6, profiling/profiling.go); a receiver that
	 * undid the encoding would find bytes that it does not expect.
	 */
	e->headers[0] = "Content-Type: application/octet-stream";
	e->body = p->body;
	e->len = p->len;
	return 0;
}

static int make_otel_pprof(const struct profile *p, struct envelope *e)
{
	e->path = strdup("/v1/pprof");
	e->headers[0] = "Content-Type: application/octet-stream";
	e->body = p->body;
	e->len = p->len;
	return e->path ? 0 : -ENOMEM;
}

/* --- what is unpacked ------------------------------------------------------------------------- */

static int open_whole(struct pprof_in *in, const struct profile *p)
{
	int r = pprof_in_open(in, p->body, p->len, PLAIN_MAX, MEMORY_MAX);

	/* Over what is unpacked here; cutting it would not help. */
	if (r == -E2BIG)
		return -EBADMSG;
	if (r)
		return r;
	return pprof_is_whole(in->pb) ? 0 : -EBADMSG;
}

/* Bytes of a profile that make two deliveries of it, and nothing else, equal. */
static void identify(const struct profile *p, const char *host, u8 id[OTLP_ID])
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(host) + 1, (const u8 *)host);
	sha256_update(&ctx, strlen(p->service) + 1, (const u8 *)p->service);
	sha256_update(&ctx, strlen(p->container) + 1, (const u8 *)p->container);
	sha256_update(&ctx, p->len, p->body);
	sha256_digest(&ctx, OTLP_ID, id);
}

/* As a UUID of version 8, which is for such hashes (RFC 9562). */
static void uuid_text(u8 id[OTLP_ID], char text[37])
{
	u32 i, n = 0;

	id[6] = (u8)((id[6] & 0x0f) | 0x80);
	id[8] = (u8)((id[8] & 0x3f) | 0x80);
	for (i = 0; i < OTLP_ID; i++)
		n += (u32)snprintf(text + n, 37 - n, "%02x%s", id[i],
				   i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
}

/* The name of a series; letters, digits and _. What programs use for on-CPU time is process_cpu. */
static void series_name(const struct profile *p, char name[sizeof(p->type)])
{
	char *c;

	snprintf(name, sizeof(p->type), "%s", strcmp(p->type, "cpu") ? p->type : "process_cpu");
	for (c = name; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", *c))
			*c = '_';
}

/* A service without a name is refused by those who ask for one. */
static const char *service_name(const struct profile *p)
{
	return *p->service ? p->service : "unknown";
}

/* --- pyroscope -------------------------------------------------------------------------------- */

/*
 * Each distinct set of labels is a series there, of which a tenant may have some thousands; but
 * span_id, which it keeps beside them (pkg/pprof, SpanIDLabelName).
 */
static const char *const many_valued[] = { "thread.name",  "thread.state", "wait",
					   "lock.address", "lock.holder",  "process.command_line",
					   "trace_id",     "http.route",   NULL };

static int pack_push(const struct profile *p, const char *host, u8 *raw, size_t len,
		     struct envelope *e)
{
	char name[sizeof(p->type)], id_text[37];
	Envelope__LabelPair labels[] = { ENVELOPE__LABEL_PAIR__INIT, ENVELOPE__LABEL_PAIR__INIT,
					 ENVELOPE__LABEL_PAIR__INIT };
	Envelope__LabelPair *pairs[] = { &labels[0], &labels[1], &labels[2] };
	Envelope__RawSample sample = ENVELOPE__RAW_SAMPLE__INIT, *samples[] = { &sample };
	Envelope__RawProfileSeries series = ENVELOPE__RAW_PROFILE_SERIES__INIT;
	Envelope__RawProfileSeries *all[] = { &series };
	Envelope__PushRequest request = ENVELOPE__PUSH_REQUEST__INIT;
	u8 id[OTLP_ID];

	series_name(p, name);
	identify(p, host, id);
	uuid_text(id, id_text);
	labels[0].name = (char *)"__name__";
	labels[0].value = name;
	labels[1].name = (char *)"service_name";
	labels[1].value = (char *)service_name(p);
	/* Each profile is one window's, not a sum since the start of a process. */
	labels[2].name = (char *)"__delta__";
	labels[2].value = (char *)"false";
	sample.raw_profile = (ProtobufCBinaryData){ len, raw };
	sample.id = id_text;
	series.labels = pairs;
	series.n_labels = ARRAY_SIZE(pairs);
	series.samples = samples;
	series.n_samples = 1;
	request.series = all;
	request.n_series = 1;
	e->len = envelope__push_request__get_packed_size(&request);
	e->memory = malloc(e->len);
	if (!e->memory)
		return -ENOMEM;
	envelope__push_request__pack(&request, e->memory);
	return 0;
}

static int make_pyroscope(struct pprof_in *in, const struct profile *p, const char *host,
			  struct envelope *e)
{
	_cleanup_free_ u8 *raw = NULL;
	size_t len;
	int r;

	if (in->pb->n_sample > PYROSCOPE_SAMPLES)
		return -E2BIG;
	r = pprof_cut(in, 0, in->pb->n_sample, many_valued);
	if (r)
		return r;
	if (pprof__profile__get_packed_size(in->pb) > PYROSCOPE_BYTES)
		return -E2BIG;
	r = pprof_pack(in->pb, &raw, &len);
	if (!r)
		r = pack_push(p, host, raw, len, e);
	if (r)
		return r;
	e->path = strdup("/push.v1.PusherService/Push");
	e->headers[0] = "Content-Type: application/proto";
	e->headers[1] = "Connect-Protocol-Version: 1";
	return e->path ? 0 : -ENOMEM;
}

/* --- parca ------------------------------------------------------------------------------------ */

static void json_label(struct json *j, const char *name, const char *value)
{
	json_open(j, '{');
	json_key(j, "name");
	json_text(j, name);
	json_key(j, "value");
	json_text(j, value);
	json_close(j, '{');
}

/* Names of the fields as protobuf's JSON mapping has them. */
static int make_parca(const struct profile *p, struct envelope *e)
{
	char name[sizeof(p->type)];
	struct json j = { 0 };

	if (BASE64_ENCODE_RAW_LENGTH(p->len) > PARCA_BYTES)
		return -E2BIG;
	if (json_init(&j))
		return -ENOMEM;
	series_name(p, name);
	json_open(&j, '{');
	json_key(&j, "series");
	json_open(&j, '[');
	json_open(&j, '{');
	json_key(&j, "labels");
	json_open(&j, '{');
	json_key(&j, "labels");
	json_open(&j, '[');
	json_label(&j, "__name__", name);
	json_label(&j, "service_name", service_name(p));
	json_close(&j, '[');
	json_close(&j, '{');
	json_key(&j, "samples");
	json_open(&j, '[');
	json_open(&j, '{');
	json_key(&j, "rawProfile");
	json_base64(&j, p->body, p->len);
	json_close(&j, '{');
	json_close(&j, '[');
	json_close(&j, '{');
	json_close(&j, '[');
	/* Addresses are the file's own, not the process's. */
	json_key(&j, "normalized");
	json_bool(&j, true);
	json_close(&j, '{');
	if (json_finish(&j)) {
		json_fini(&j);
		return -ENOMEM;
	}
	e->len = j.len;
	e->memory = (u8 *)take_ptr(j.data);
	json_fini(&j);
	e->path = strdup("/api/profiles/writeraw");
	e->headers[0] = JSON_TYPE;
	return e->path ? 0 : -ENOMEM;
}

/* --- OpenTelemetry ---------------------------------------------------------------------------- */

static int make_otlp(struct pprof_in *in, const struct profile *p, const char *host, bool grpc,
		     struct envelope *e)
{
	struct otlp_source from = { service_name(p), p->container, host, { 0 } };
	_cleanup_free_ u8 *plain = NULL, *packed = NULL;
	size_t len, frame = grpc ? GRPC_FRAME : 0;
	int r;

	identify(p, host, from.id);
	r = otlp_pack(in, &from, grpc ? GRPC_BYTES : OTLP_BYTES, &plain, &len);
	if (!r)
		r = gzip_pack(plain, len, &packed, &len);
	if (r)
		return r;
	e->memory = malloc(frame + len);
	e->len = frame + len;
	e->path = strdup(grpc ? "/opentelemetry.proto.collector.profiles.v1development"
				".ProfilesService/Export"
			      : "/v1development/profiles");
	if (!e->memory || !e->path)
		return -ENOMEM;
	memcpy(e->memory + frame, packed, len);
	if (grpc) {
		e->memory[0] = 1; /* compressed */
		e->memory[1] = (u8)(len >> 24);
		e->memory[2] = (u8)(len >> 16);
		e->memory[3] = (u8)(len >> 8);
		e->memory[4] = (u8)len;
		e->headers[0] = "Content-Type: application/grpc";
		e->headers[1] = "TE: trailers";
		e->headers[2] = "grpc-encoding: gzip";
	} else {
		e->headers[0] = "Content-Type: application/x-protobuf";
		e->headers[1] = "Content-Encoding: gzip";
	}
	return 0;
}

/* --- all -------------------------------------------------------------------------------------- */

static int make_unpacked(enum protocol protocol, const struct profile *p, const char *host,
			 struct envelope *e)
{
	struct pprof_in in;
	int r;

	pthread_mutex_lock(&unpacking);
	r = open_whole(&in, p);
	if (!r && protocol == PROTOCOL_PYROSCOPE)
		r = make_pyroscope(&in, p, host, e);
	else if (!r)
		r = make_otlp(&in, p, host, protocol == PROTOCOL_OTLP_GRPC, e);
	pprof_in_fini(&in);
	pthread_mutex_unlock(&unpacking);
	return r;
}

int envelope_make(enum protocol protocol, const struct profile *p, const char *host,
		  struct envelope *ret)
{
	int r;

	*ret = (struct envelope){ 0 };
	switch (protocol) {
	case PROTOCOL_PPROF:
		return make_coroot(p, host, ret);
	case PROTOCOL_OTEL_PPROF:
		return make_otel_pprof(p, ret);
	case PROTOCOL_PARCA:
		r = make_parca(p, ret);
		break;
	default:
		r = make_unpacked(protocol, p, host, ret);
	}
	ret->body = ret->memory;
	return r;
}

void envelope_fini(struct envelope *e)
{
	free(e->path);
	free(e->memory);
	*e = (struct envelope){ 0 };
}

/* --- halves ----------------------------------------------------------------------------------- */

static void profile_freep(struct profile **p)
{
	profile_free(*p);
}

/* Half 0 or 1. Unpacked for each: cutting changes the message. */
static int split_half(const struct profile *p, u32 which, struct profile **ret)
{
	_cleanup_(profile_freep) struct profile *half = calloc(1, sizeof(*half));
	struct pprof_in in;
	size_t n;
	int r;

	if (!half)
		return -ENOMEM;
	r = open_whole(&in, p);
	if (!r && in.pb->n_sample < 2)
		r = -ENOENT;
	if (!r) {
		n = in.pb->n_sample;
		r = which ? pprof_cut(&in, n / 2, n - n / 2, NULL) : pprof_cut(&in, 0, n / 2, NULL);
	}
	if (!r)
		r = pprof_pack(in.pb, &half->memory, &half->len);
	pprof_in_fini(&in);
	if (r)
		return r;
	memcpy(half->service, p->service, sizeof(half->service));
	memcpy(half->container, p->container, sizeof(half->container));
	memcpy(half->type, p->type, sizeof(half->type));
	half->start_ns = p->start_ns;
	half->body = half->memory;
	*ret = take_ptr(half);
	return 0;
}

int envelope_split(const struct profile *p, struct profile *ret[2])
{
	int r;

	pthread_mutex_lock(&unpacking);
	r = split_half(p, 0, &ret[0]);
	if (!r) {
		r = split_half(p, 1, &ret[1]);
		if (r)
			profile_free(ret[0]);
	}
	pthread_mutex_unlock(&unpacking);
	return r;
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool says(const struct answer *a, const char *text)
{
	return memmem(a->body, a->body_len, text, strlen(text)) != NULL;
}

/* Codes: grpc/statuscodes.md. Which of them pass: the OTLP specification, "Failures". */
static enum envelope_verdict judge_grpc(const struct answer *a)
{
	switch (a->grpc_status) {
	case 0:
		return ENVELOPE_ACCEPTED;
	case 8: /* RESOURCE_EXHAUSTED: of the server, or this message is over its limit */
		return strstr(a->grpc_message, "larger than max") ? ENVELOPE_TOO_LARGE
								  : ENVELOPE_RETRY;
	case -1: /* none: the answer ended early */
	case 1:  /* CANCELLED */
	case 4:  /* DEADLINE_EXCEEDED */
	case 10: /* ABORTED */
	case 11: /* OUT_OF_RANGE */
	case 14: /* UNAVAILABLE */
	case 15: /* DATA_LOSS */
		return ENVELOPE_RETRY;
	default:
		return ENVELOPE_REFUSED;
	}
}

/*
 * The status line decides, even when the rest of the answer was cut off or too long: by then the
 * server has the profile and has said what it thinks of it.
 */
static enum envelope_verdict judge_http(enum protocol protocol, const struct answer *a)
{
	/* A page for people: a proxy's log-in, or the wrong port. Nobody took the profile. */
	if (a->status >= 200 && a->status <= 299)
		return strncasecmp(a->type, "text/html", 9) ? ENVELOPE_ACCEPTED : ENVELOPE_RETRY;
	if (a->status == 413)
		return ENVELOPE_TOO_LARGE;
	/* Pyroscope's limits may be lower than they are by default; it says so with 400. */
	if (protocol == PROTOCOL_PYROSCOPE && a->status == 400 &&
	    (says(a, "exceeds the size limit") || says(a, "exceeds the samples count limit")))
		return ENVELOPE_TOO_LARGE;
	if (a->status >= 400 && a->status <= 499 && a->status != 408 && a->status != 429)
		return ENVELOPE_REFUSED;
	/* A redirect is not followed and says nothing against the profile. */
	return ENVELOPE_RETRY;
}

/* What an ExportProfilesServiceResponse says against profiles of a request that was taken. */
static void read_partial(const u8 *data, size_t len, struct judgement *j)
{
	Envelope__ExportResponse *r = envelope__export_response__unpack(NULL, len, data);

	if (!r)
		return;
	if (r->partial_success && r->partial_success->rejected_profiles > 0) {
		j->rejected = (u64)r->partial_success->rejected_profiles;
		utf8_clean(j->why, sizeof(j->why), r->partial_success->error_message,
			   strlen(r->partial_success->error_message));
	}
	envelope__export_response__free_unpacked(r, NULL);
}

static void explain(const struct answer *a, bool grpc, struct judgement *j)
{
	char said[256];

	utf8_clean(said, sizeof(said), (const char *)a->body, MIN(a->body_len, sizeof(said) / 3));
	if (a->status >= 300 && a->status <= 399)
		snprintf(j->why, sizeof(j->why), "HTTP %ld, a redirect, which is not followed",
			 a->status);
	else if (!strncasecmp(a->type, "text/html", 9) && j->verdict == ENVELOPE_RETRY)
		snprintf(j->why, sizeof(j->why),
			 "HTTP %ld with a page for people: is it the right "
			 "address?",
			 a->status);
	else if (grpc && a->status == 200 && a->grpc_status < 0)
		snprintf(j->why, sizeof(j->why), "HTTP 200 without a gRPC status");
	else if (grpc && a->status == 200)
		snprintf(j->why, sizeof(j->why), "gRPC status %ld: %s", a->grpc_status,
			 a->grpc_message);
	else
		snprintf(j->why, sizeof(j->why), "HTTP %ld%s%s", a->status, *said ? ": " : "",
			 said);
}

#define DETAILS_MAX  8192
#define RETRY_INFO   "type.googleapis.com/google.rpc.RetryInfo"
#define DURATION_MAX 315576000000 /* seconds: that of google.protobuf.Duration */

static u64 read_delay(const Envelope__RpcDetail *d)
{
	Envelope__RpcRetryInfo *info;
	const Envelope__RpcDuration *t;
	u64 ns = 0;

	if (strcmp(d->type_url, RETRY_INFO))
		return 0;
	info = envelope__rpc_retry_info__unpack(NULL, d->value.len, d->value.data);
	t = info ? info->retry_delay : NULL;
	/* Of a value that is none nothing is believed. */
	if (t && t->seconds >= 0 && t->seconds <= DURATION_MAX && t->nanos >= 0 &&
	    t->nanos < (s32)NSEC_PER_SEC)
		ns = MIN((u64)t->seconds, UINT64_MAX / NSEC_PER_SEC - 1) * NSEC_PER_SEC +
		     (u64)t->nanos;
	if (info)
		envelope__rpc_retry_info__free_unpacked(info, NULL);
	return ns;
}

u64 envelope_retry_delay(const char *details, size_t len)
{
	u8 raw[BASE64_DECODE_LENGTH(DETAILS_MAX)];
	size_t n = sizeof(raw), i;
	struct base64_decode_ctx ctx;
	Envelope__RpcStatus *status;
	u64 ns = 0;

	if (len > DETAILS_MAX)
		return 0;
	/* Its end is not asked for: gRPC leaves the padding out. */
	base64_decode_init(&ctx);
	if (!base64_decode_update(&ctx, &n, raw, len, details))
		return 0;
	status = envelope__rpc_status__unpack(NULL, n, raw);
	for (i = 0; status && i < status->n_details; i++)
		ns = MAX(ns, read_delay(status->details[i]));
	if (status)
		envelope__rpc_status__free_unpacked(status, NULL);
	return ns;
}

void envelope_judge(enum protocol protocol, const struct answer *a, struct judgement *ret)
{
	bool grpc = protocol == PROTOCOL_OTLP_GRPC;
	size_t frame = grpc ? GRPC_FRAME : 0;

	*ret = (struct judgement){ .verdict = ENVELOPE_RETRY };
	if (!a->status)
		return;
	ret->verdict = judge_http(protocol, a);
	if (grpc && a->status == 200 && ret->verdict == ENVELOPE_ACCEPTED)
		ret->verdict = judge_grpc(a);
	if (ret->verdict != ENVELOPE_ACCEPTED) {
		explain(a, grpc, ret);
		return;
	}
	/* A compressed message would have flag 1; nobody compresses these few bytes. */
	if ((grpc || protocol == PROTOCOL_OTLP) && a->body_len > frame && (!grpc || !a->body[0]))
		read_partial(a->body + frame, a->body_len - frame, ret);
}
