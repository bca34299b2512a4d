// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See container.h. */
#include "container.h"

#include "rootfile.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#define LOGS       "/var/log/containers"
#define POD_LOGS   "/var/log/pods"
#define KUBELET    "/var/lib/kubelet/pods"
#define PATH_ROOM  1024
#define HOSTS_MAX  65536
#define JSON_FLAGS JSON_ALLOW_NUL

/* Where containers/storage of the system keeps its list; the second is of newer ones. */
static const char *const storage_lists[] = {
	"/var/lib/containers/storage/overlay-containers/containers.json",
	"/run/containers/storage/overlay-containers/volatile-containers.json",
};

/* The same of a user, below his home, and below /run by his number. */
#define USER_LIST     "/.local/share/containers/storage/overlay-containers/containers.json"
#define USER_RUN_LIST "/run/user/%u/containers/overlay-containers/volatile-containers.json"
#define PASSWD_MAX    (1u << 20)

/* Bundles by id, one directory each. */
static const char *const bundles[] = {
	"/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
	"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
	"/run/containerd/io.containerd.runtime.v2.task/default/%s/config.json",
	"/run/containers/storage/overlay-containers/%s/userdata/config.json",
};

static json_t *parse(const char *json, size_t len)
{
	json_error_t why;

	return json_loadb(json, len, JSON_FLAGS, &why);
}

static void jsonp(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ _cleanup_(jsonp)

static bool set_name(char dst[CONTAINER_NAME_MAX + 1], const char *s, size_t len)
{
	return utf8_clean(dst, CONTAINER_NAME_MAX + 1, s, len) > 0;
}

static bool set_json(char dst[CONTAINER_NAME_MAX + 1], const json_t *text)
{
	return json_is_string(text) &&
	       set_name(dst, json_string_value(text), json_string_length(text));
}

/* Names of Kubernetes' objects: https://kubernetes.io/docs/concepts/overview/working-with-objects/names */
static bool is_dns(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (!islower((u8)s[i]) && !isdigit((u8)s[i]) && s[i] != '-' && s[i] != '.')
			return false;
	return len && len <= CONTAINER_NAME_MAX;
}

/* --- what a text says ------------------------------------------------------------------------- */

bool container_log_name(const char *name, const char *id, struct container_names *ret)
{
	size_t len = strlen(name), tail = 1 + strlen(id) + strlen(".log");
	const char *first, *second;

	if (len <= tail || name[len - tail] != '-' ||
	    memcmp(name + len - tail + 1, id, strlen(id)) || strcmp(name + len - 4, ".log"))
		return false;
	len -= tail;
	first = memchr(name, '_', len);
	second = first ? memchr(first + 1, '_', len - (size_t)(first + 1 - name)) : NULL;
	if (!second || !is_dns(name, (size_t)(first - name)) ||
	    !is_dns(first + 1, (size_t)(second - first - 1)) ||
	    !is_dns(second + 1, (size_t)(name + len - second - 1)))
		return false;
	set_name(ret->pod, name, (size_t)(first - name));
	set_name(ret->pod_namespace, first + 1, (size_t)(second - first - 1));
	return set_name(ret->pod_container, second + 1, (size_t)(name + len - second - 1));
}

/* Kubernetes' names of what a container engine knows by labels; keys: kubelet's and cri-o's, CRI's. */
static bool labels(const json_t *map, struct container_names *ret)
{
	static const char *const pod[] = { "io.kubernetes.pod.name",
					   "io.kubernetes.cri.sandbox-name" };
	static const char *const space[] = { "io.kubernetes.pod.namespace",
					     "io.kubernetes.cri.sandbox-namespace" };
	static const char *const container[] = { "io.kubernetes.container.name",
						 "io.kubernetes.cri.container-name" };
	static const char *const name[] = { "nerdctl/name" };
	bool found = false;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(pod); i++) {
		found |= set_json(ret->pod, json_object_get(map, pod[i]));
		found |= set_json(ret->pod_namespace, json_object_get(map, space[i]));
		found |= set_json(ret->pod_container, json_object_get(map, container[i]));
	}
	return set_json(ret->name, json_object_get(map, name[0])) || found;
}

bool container_docker(const char *json, size_t len, struct container_names *ret)
{
	_cleanup_json_ json_t *top = parse(json, len);
	const json_t *name = json_object_get(top, "Name");
	bool found = labels(json_object_get(json_object_get(top, "Config"), "Labels"), ret);

	if (!json_is_string(name))
		return found;
	/* "/name" */
	return set_name(ret->name, json_string_value(name) + strspn(json_string_value(name), "/"),
			CONTAINER_NAME_MAX) ||
	       found;
}

bool container_bundle(const char *json, size_t len, struct container_names *ret)
{
	_cleanup_json_ json_t *top = parse(json, len);

	return labels(json_object_get(top, "annotations"), ret);
}

bool container_storage(const char *json, size_t len, const char *id, struct container_names *ret)
{
	_cleanup_json_ json_t *top = parse(json, len);
	const json_t *entry;
	size_t i;

	json_array_foreach(top, i, entry)
	{
		const char *theirs = json_string_value(json_object_get(entry, "id"));

		if (theirs && !strcmp(theirs, id))
			return set_json(ret->name,
					json_array_get(json_object_get(entry, "names"), 0));
	}
	return false;
}

/* --- files ------------------------------------------------------------------------------------ */

/* A file below the root, of at most max bytes; owned. NULL: none that is to be read. */
static char *read_below(int root, const char *path, size_t max, size_t *ret_len)
{
	_cleanup_close_ int at = rootfile_at(root, path, true), fd = -1;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;

	fd = rootfile_open(at, &st);
	if (fd < 0 || st.st_size <= 0 || (u64)st.st_size > max)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	/* What it has grown by meanwhile is not read. */
	while (text && len < (size_t)st.st_size) {
		ssize_t n = read(fd, text + len, (size_t)st.st_size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (!text)
		return NULL;
	text[len] = '\0';
	*ret_len = len;
	return take_ptr(text);
}

static DIR *open_below(int root, const char *path)
{
	_cleanup_close_ int at = rootfile_at(root, path, true);
	int fd = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		close(fd);
	return d;
}

/* Calls fn for the names in a directory until it is true. */
static bool any_entry(int root, const char *path, bool (*fn)(void *arg, const char *name),
		      void *arg)
{
	_cleanup_closedir_ DIR *d = open_below(root, path);
	struct dirent *e;
	u32 i;

	for (i = 0; d && i < CONTAINER_ENTRIES_MAX && (e = readdir(d)); i++)
		if (*e->d_name != '.' && fn(arg, e->d_name))
			return true;
	return false;
}

struct look {
	int root;
	const struct cgroup *c;
	struct container_names *ret;
	u32 n;
};

static bool is_log(void *arg, const char *name)
{
	struct look *l = arg;

	return container_log_name(name, l->c->container, l->ret);
}

static bool in_storage(const struct look *l, const char *path)
{
	size_t len;
	_cleanup_free_ char *text = read_below(l->root, path, CONTAINER_FILE_MAX, &len);

	return text && container_storage(text, len, l->c->container, l->ret);
}

/* Where the user's home is, by /etc/passwd alone: asking a name service may take its time. */
static bool user_list(const struct look *l, char *path, size_t size)
{
	size_t len;
	_cleanup_free_ char *text = read_below(l->root, "/etc/passwd", PASSWD_MAX, &len);
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		const char *field[6] = { NULL };
		u32 i;

		/* name:password:uid:gid:comment:home */
		for (i = 0; i < ARRAY_SIZE(field); i++)
			field[i] = strsep(&line, ":");
		if (field[5] && strtoul(field[2], NULL, 10) == l->c->owner)
			return snprintf(path, size, "%s" USER_LIST, field[5]) < (int)size;
	}
	return false;
}

static bool engine(const struct look *l)
{
	const char *id = l->c->container;
	char path[PATH_ROOM];
	size_t len, i;
	bool found = false;

	snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json", id);
	for (i = 0; i <= ARRAY_SIZE(bundles) && !found; i++) {
		_cleanup_free_ char *text = NULL;

		if (i)
			snprintf(path, sizeof(path), bundles[i - 1], id);
		text = read_below(l->root, path, CONTAINER_FILE_MAX, &len);
		if (text)
			found = i ? container_bundle(text, len, l->ret)
				  : container_docker(text, len, l->ret);
	}
	for (i = 0; i < ARRAY_SIZE(storage_lists) && !found; i++)
		found = in_storage(l, storage_lists[i]);
	if (!found && l->c->owner) {
		snprintf(path, sizeof(path), USER_RUN_LIST, l->c->owner);
		found = in_storage(l, path) ||
			(user_list(l, path, sizeof(path)) && in_storage(l, path));
	}
	return found;
}

/* "NAMESPACE_POD_UID" in /var/log/pods */
static bool is_pod_log(void *arg, const char *name)
{
	struct look *l = arg;
	size_t len = strlen(name), uid = strlen(l->c->pod_uid);
	const char *first = strchr(name, '_');

	if (!first || len < uid + 2 || strcmp(name + len - uid, l->c->pod_uid) ||
	    name[len - uid - 1] != '_' || first >= name + len - uid - 1)
		return false;
	len -= uid + 1;
	if (!is_dns(name, (size_t)(first - name)) ||
	    !is_dns(first + 1, (size_t)(name + len - first - 1)))
		return false;
	set_name(l->ret->pod_namespace, name, (size_t)(first - name));
	return set_name(l->ret->pod, first + 1, (size_t)(name + len - first - 1));
}

static bool count_names(void *arg, const char *name)
{
	struct look *l = arg;

	if (!is_dns(name, strlen(name)))
		return false;
	set_name(l->ret->pod_container, name, strlen(name));
	return ++l->n > 1;
}

/* Last word of a file of "ADDRESS NAME" lines: the kubelet puts the pod's own line last. */
static bool hosts_name(struct look *l, const char *path)
{
	_cleanup_free_ char *text = NULL;
	size_t len, end, at;

	text = read_below(l->root, path, HOSTS_MAX, &len);
	if (!text)
		return false;
	for (end = len; end && isspace((u8)text[end - 1]); end--)
		;
	for (at = end; at && !isspace((u8)text[at - 1]); at--)
		;
	return is_dns(text + at, end - at) && set_name(l->ret->pod, text + at, end - at);
}

/* Of a pod, by its uid: the container's name only if the pod has no other. */
static bool pod(struct look *l)
{
	char path[PATH_ROOM];
	bool found = any_entry(l->root, POD_LOGS, is_pod_log, l);

	if (!found) {
		snprintf(path, sizeof(path), KUBELET "/%s/etc-hosts", l->c->pod_uid);
		found = hosts_name(l, path);
	}
	snprintf(path, sizeof(path), KUBELET "/%s/containers", l->c->pod_uid);
	any_entry(l->root, path, count_names, l);
	if (l->n != 1)
		*l->ret->pod_container = '\0';
	return found || l->n == 1;
}

bool container_look(int root, const struct cgroup *c, struct container_names *ret)
{
	struct look l = { .root = root, .c = c, .ret = ret };
	bool found = false;

	*ret = (struct container_names){ 0 };
	/* Only what is an id, by its every byte, becomes a part of a path. */
	if (c->has_id)
		found = any_entry(root, LOGS, is_log, &l) || engine(&l);
	if (*c->pod_uid && !*ret->pod)
		found |= pod(&l);
	return found;
}
