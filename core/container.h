/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. Names of containers, from what lies on the host: no API server and no daemon is
 * asked. In order: the links that the kubelet keeps for logs, /var/log/containers/
 * POD_NAMESPACE_CONTAINER-ID.log; Docker's config.v2.json; the bundle's config.json (OCI runtime
 * specification) with the annotations of containerd's and cri-o's CRI; the list of
 * containers/storage (Podman); for a pod that none of them knows the kubelet's own directories.
 * Everything in them is foreign: read with bounds, from below a root directory, shown as text.
 */
#pragma once

#include "util.h"
#include "cgroup.h"

#define CONTAINER_FILE_MAX    (1u << 20) /* larger ones are not read: parsed they take 25 times that */
#define CONTAINER_ENTRIES_MAX 65536      /* of one directory */
#define CONTAINER_NAME_MAX    255

/* Valid UTF-8; "" when not known. */
struct container_names {
	char name[CONTAINER_NAME_MAX + 1]; /* as `docker ps` and the like show it */
	char pod[CONTAINER_NAME_MAX + 1], pod_namespace[CONTAINER_NAME_MAX + 1];
	char pod_container[CONTAINER_NAME_MAX + 1];
};

/*
 * Looks everywhere; fills in all of *ret. root: a directory's descriptor, below which /var and /run
 * of the host are. May block as files do: call it in a reader's thread. True when anything was
 * found.
 */
bool container_look(int root, const struct cgroup *c, struct container_names *ret);

/* Pieces, for tests and fuzzing. A name in /var/log/containers, with the id in it. */
bool container_log_name(const char *name, const char *id, struct container_names *ret);
/* Docker's config.v2.json, an OCI config.json, the array of containers/storage: what they say of id. */
bool container_docker(const char *json, size_t len, struct container_names *ret);
bool container_bundle(const char *json, size_t len, struct container_names *ret);
bool container_storage(const char *json, size_t len, const char *id, struct container_names *ret);
