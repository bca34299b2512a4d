/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. What the control groups of a process say of it: the container it is in, the
 * Kubernetes pod of that, or else the systemd unit. Pure. Whoever may make control groups may give
 * them any name: what comes out is a claim, and text that is safe to show.
 *
 * Layouts, as the runtimes document them: 64 hex digits, alone or with the runtime's prefix and
 * ".scope" (docker, containerd, cri-o, podman); 32 hex digits, '-' and a number (ECS); "lxc/NAME",
 * "lxc.payload.NAME" (LXC); "systemd-nspawn@NAME.service", "machine.slice/machine-NAME.scope"
 * (systemd-nspawn, libvirt); "podUID", "...-podUID.slice" (kubelet).
 */
#pragma once

#include "util.h"

#define CGROUP_TEXT_MAX 65536 /* of /proc/PID/cgroup */
#define CGROUP_NAME_MAX 255
#define CGROUP_PATH_MAX 1023 /* longer ones are cut */
#define CGROUP_UID_LEN  36
#define CGROUP_ID_LEN   64

struct cgroup {
	char container[CGROUP_NAME_MAX + 1]; /* id, or name of what has no id; "": in none */
	bool has_id;                         /* container is CGROUP_ID_LEN hex digits */
	char pod_uid[CGROUP_UID_LEN + 1];    /* with '-'; "": in no pod */
	char unit[CGROUP_NAME_MAX + 1];      /* innermost unit of what is in no container; or "" */
	u32 owner;                           /* user whose slice it is in; 0: none's */
	char path[CGROUP_PATH_MAX + 1]; /* in the unified hierarchy, or systemd's, or the first */
};

/*
 * The text of /proc/PID/cgroup, of version 1, 2, or both. Of nested containers the innermost. Always
 * fills in all of *ret; a line that is none is passed over.
 */
void cgroup_parse(const char *text, struct cgroup *ret);
