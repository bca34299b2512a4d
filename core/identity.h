/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Who a process is: container, pod, unit, and under which name its profiles go. Read
 * when a sample first asks; looked at again after 2, 10 and 60 seconds, then every five minutes,
 * since containers get their names, and SDKs publish theirs, after the process has begun. What is
 * read is foreign and may hang: it is read in the reader's thread, with bounds.
 *
 * The service's name, first that is known: the operator's rules, EBPFPROFILER_SERVICE of the
 * process, its OpenTelemetry process context, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, the
 * Kubernetes container, the container's name, its id; else its executable.
 */
#pragma once

#include "util.h"
#include "match.h"

struct identities;
struct process;
struct processes;
struct reader;
struct service_rules;
struct stack_key;

/* Labels, and whether a server learns of them under that name. */
#define IDENTITY_LIST(X)                    \
	X(CONTAINER, "container")           \
	X(CONTAINER_NAME, "container.name") \
	X(K8S_POD, "k8s.pod")               \
	X(K8S_NAMESPACE, "k8s.namespace")   \
	X(K8S_CONTAINER, "k8s.container")   \
	X(UNIT, "systemd.unit")             \
	X(VERSION, "service.version")       \
	X(INSTANCE, "service.instance.id")

enum identity_label {
#define X(name, text) IDENTITY_##name,
	IDENTITY_LIST(X)
#undef X
		IDENTITY_MAX,
};

/* All text is valid UTF-8 of at most 255 bytes. */
struct identity {
	const char *service; /* NULL: nobody named it; then the executable's base name */
	const char *label[IDENTITY_MAX]; /* NULL: not known */
	bool left_out; /* by the filter, or by the process's own wish: nothing of it is kept */
};

struct identity_options {
	const char *proc;                  /* "/proc", or a test's own */
	const char *root;                  /* directory in which the host's /var and /run are */
	const struct service_rules *rules; /* borrowed; may be NULL */
	const struct match_filter *filter; /* borrowed; may be NULL: all are wanted */
	bool all;                          /* a process's wish to be left out is not asked for */
	/* Told of each that is left out, and when it is so no more; may be NULL. */
	void (*verdict)(void *arg, u32 tgid, u64 start_ns, u32 exec_id, bool left_out);
	void *arg;
};

/* Books are borrowed for its life. Owned; NULL when out of memory. */
struct identities *identities_new(struct processes *ps, struct reader *r,
				  const struct identity_options *o);
void identities_free(struct identities *ids);
/* Never NULL. Borrowed until the next call of any function here, or until the process goes. */
const struct identity *identities_of(struct identities *ids, struct process *p);
/* Of a kernel thread, which is no process of the book: is it left out? */
bool identities_kernel(struct identities *ids, const struct stack_key *key);
/* Looks again at those whose time has come; a few per call. */
void identities_round(struct identities *ids, u64 now_ns);
/* Does the process publish what its threads work on? As far as is known by now. */
bool identities_threads(const struct process *p, bool *ret_has_route, u8 *ret_route);
/* The label's name; static. */
const char *identity_label_name(enum identity_label label);
