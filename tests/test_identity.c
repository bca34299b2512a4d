// SPDX-License-Identifier: Apache-2.0
/*
 * Who a process is: control groups as container engines, LXC, nspawn and the kubelet lay them out;
 * files on the host; OpenTelemetry's words; rules and patterns; real children of the test. Layouts
 * and names are those of the engines' documentation; protobuf messages are protoc's.
 */
#include "core/cgroup.h"
#include "core/container.h"
#include "core/identity.h"
#include "core/match.h"
#include "core/module.h"
#include "core/otel.h"
#include "core/process.h"
#include "core/reader.h"
#include "core/service.h"
#include "tests/fixtures/otel_context.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2  "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define UID  "6ee16f3a-1b5c-4f2e-9e4b-0a1b2c3d4e5f"
#define UID_ "6ee16f3a_1b5c_4f2e_9e4b_0a1b2c3d4e5f"

/* --- control groups --------------------------------------------------------------------------- */

struct layout {
	const char *text, *container, *pod, *unit;
};

static void check_layouts(const struct layout *l, size_t n)
{
	struct cgroup c;
	size_t i;

	for (i = 0; i < n; i++) {
		cgroup_parse(l[i].text, &c);
		if (strcmp(c.container, l[i].container) || strcmp(c.pod_uid, l[i].pod) ||
		    strcmp(c.unit, l[i].unit))
			fail_msg("%s: container '%s', pod '%s', unit '%s'", l[i].text, c.container,
				 c.pod_uid, c.unit);
		assert_int_equal(c.has_id, strlen(c.container) == CGROUP_ID_LEN);
	}
}

static void containers_by_id(void **state __unused)
{
	static const struct layout v[] = {
		/* Docker: systemd driver, cgroupfs driver on version 1, rootless */
		{ "0::/system.slice/docker-" ID ".scope\n", ID, "", "" },
		{ "12:cpu:/docker/" ID "\n11:memory:/docker/" ID "\n0::/\n", ID, "", "" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID
		  ".scope\n",
		  ID, "", "" },
		/* containerd by CRI: systemd driver, cgroupfs driver, its odd form on version 1 */
		{ "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		  ".slice/cri-containerd-" ID ".scope\n",
		  ID, UID, "" },
		{ "5:pids:/kubepods/besteffort/pod" UID "/" ID "\n0::/\n", ID, UID, "" },
		{ "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod" UID_
		  ".slice:cri-containerd:" ID "\n",
		  ID, UID, "" },
		/* A static pod has a hash for a uid. */
		{ "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" ID "\n", ID,
		  "0123456789abcdef0123456789abcdef", "" },
		/* cri-o, with systemd inside */
		{ "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID
		  ".scope/system.slice/nginx.service\n",
		  ID, UID, "" },
		/* Podman: root, rootless, a unit of its own */
		{ "0::/machine.slice/libpod-" ID ".scope/container\n", ID, "", "" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		  ".scope/container\n",
		  ID, "", "" },
		{ "0::/system.slice/web.service/libpod-payload-" ID "\n", ID, "", "" },
		/* ECS */
		{ "9:cpu:/ecs/0123456789abcdef0123456789abcdef/"
		  "0123456789abcdef0123456789abcdef-2834567890\n",
		  "0123456789abcdef0123456789abcdef-2834567890", "", "" },
		/* nested: the innermost; a node in a container */
		{ "0::/docker/" ID2 "/docker/" ID "\n", ID, "", "" },
		{ "0::/docker/" ID2 "/kubelet.slice/kubelet-kubepods.slice/"
		  "kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" UID_
		  ".slice/cri-containerd-" ID ".scope\n",
		  ID, UID, "" },
		/* seen from a control group namespace of another container */
		{ "0::/../../kubepods-besteffort-pod" UID_ ".slice/cri-containerd-" ID ".scope\n",
		  ID, UID, "" },
		/* the directory is gone */
		{ "0::/system.slice/docker-" ID ".scope (deleted)\n", ID, "", "" },
		/* the last line without an end */
		{ "0::/docker/" ID, ID, "", "" },
	};

	check_layouts(v, ARRAY_SIZE(v));
}

static void containers_by_name(void **state __unused)
{
	static const struct layout v[] = {
		{ "0::/lxc.payload.web/init.scope\n", "web", "", "" },
		{ "4:memory:/lxc/web\n1:name=systemd:/lxc/web/system.slice/a.service\n", "web", "",
		  "" },
		{ "0::/lxc.payload/web\n", "web", "", "" },
		{ "0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/a.service\n",
		  "web", "", "" },
		{ "0::/machine.slice/machine-web\\x2d1.scope\n", "web-1", "", "" },
		{ "0::/machine.slice/machine-lxc\\x2d4242\\x2dweb.scope/libvirt\n", "web", "", "" },
		{ "0::/machine.slice/systemd-nspawn@web.service/payload/docker/" ID "\n", ID, "",
		  "" },
	};

	check_layouts(v, ARRAY_SIZE(v));
}

static void no_containers(void **state __unused)
{
	static const struct layout v[] = {
		{ "", "", "", "" },
		{ "0::/\n", "", "", "" },
		{ "0::/system.slice/nginx.service\n", "", "", "nginx.service" },
		{ "0::/system.slice/system-getty.slice/getty@tty1.service\n", "", "",
		  "getty@tty1.service" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-a.scope\n", "",
		  "", "app-a.scope" },
		{ "2:cpu:/\n1:name=systemd:/system.slice/cron.service\n0::/\n", "", "",
		  "cron.service" },
		/* what watches over a container, and a virtual machine, are none */
		{ "0::/machine.slice/libpod-conmon-" ID ".scope\n", "", "",
		  "libpod-conmon-" ID ".scope" },
		{ "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope\n", "",
		  UID, "crio-conmon-" ID ".scope" },
		{ "0::/lxc.monitor.web\n", "", "", "" },
		{ "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope\n", "", "",
		  "machine-qemu-1-vm.scope" },
		{ "0::/docker/0123456789abcdef\n", "", "", "" },
		{ "0::/" ID "0\n", "", "", "" },
		{ "0::/x" ID "\n", "", "", "" },
		{ "0::/docker/" ID ".scope.d\n", "", "", "" },
		{ "0::/a/podx\n", "", "", "" },
		{ "no line at all\n:\n::\n5:\n", "", "", "" },
	};

	check_layouts(v, ARRAY_SIZE(v));
}

static void row38_hostile_cgroup_is_only_text(void **state __unused)
{
	char *text = malloc(8192);
	struct cgroup c;

	memset(text, 'a', 8191);
	memcpy(text, "0::/", 4);
	memcpy(text + 8000, ".service", 8);
	text[8191] = '\0';
	cgroup_parse(text, &c);
	assert_string_equal(c.container, "");
	assert_string_equal(c.unit, "");
	assert_int_equal(strlen(c.path), CGROUP_PATH_MAX);
	free(text);
	cgroup_parse("0::/\ndocker-../../" ID "etc\n0::/lxc.payload.../../a\"b,\xff\x1b[31m\n", &c);
	assert_string_equal(c.container, "..");
	assert_false(c.has_id); /* so it is in no path */
	cgroup_parse("0::/lxc/\xff\x1b[31m\n", &c);
	assert_string_equal(c.container, "\xef\xbf\xbd?[31m");
	/* Anybody with a control group of his own can claim to be a container: text, no more. */
	cgroup_parse("0::/user.slice/docker-" ID ".scope\n", &c);
	assert_string_equal(c.container, ID);
	assert_int_equal(c.owner, 0);
	cgroup_parse("0::/user.slice/user-1000.slice/user@1000.service/libpod-" ID ".scope\n", &c);
	assert_int_equal(c.owner, 1000);
	cgroup_parse("0::/user-99999999999999999999999.slice/user-x.slice/user-.slice\n", &c);
	assert_int_equal(c.owner, 0);
}

/* --- files on the host ------------------------------------------------------------------------ */

static void put(const char *root, const char *path, const char *text)
{
	char full[1024], *slash;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int new_root(char dir[64])
{
	int fd;

	strcpy(dir, "/tmp/test_identity.XXXXXX");
	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void remove_root(const char *dir, int fd)
{
	char command[128];

	close(fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static struct cgroup group(const char *id, const char *pod)
{
	struct cgroup c = { .has_id = strlen(id) == CGROUP_ID_LEN };

	strcpy(c.container, id);
	strcpy(c.pod_uid, pod);
	return c;
}

static void names_from_kubernetes_logs(void **state __unused)
{
	struct cgroup c = group(ID, UID), pause = group(ID2, UID);
	struct container_names n;
	char dir[64];
	int root = new_root(dir);

	assert_false(container_look(root, &c, &n));
	put(dir, "/var/log/containers/web-7d4f-x2x_shop_front-" ID ".log", "");
	put(dir, "/var/log/containers/other_shop_side-" ID2 "x.log", "");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.pod, "web-7d4f-x2x");
	assert_string_equal(n.pod_namespace, "shop");
	assert_string_equal(n.pod_container, "front");
	/* The pod's first container writes no log: the directory of the pod's logs names it. */
	assert_false(container_look(root, &pause, &n));
	put(dir, "/var/log/pods/shop_web-7d4f-x2x_" UID "/front/0.log", "");
	assert_true(container_look(root, &pause, &n));
	assert_string_equal(n.pod, "web-7d4f-x2x");
	assert_string_equal(n.pod_namespace, "shop");
	assert_string_equal(n.pod_container, "");
	remove_root(dir, root);
}

static void names_from_the_kubelets_directories(void **state __unused)
{
	struct cgroup c = group(ID, UID);
	struct container_names n;
	char dir[64];
	int root = new_root(dir);

	put(dir, "/var/lib/kubelet/pods/" UID "/etc-hosts",
	    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.244.0.5\tweb-7d4f-x2x\n");
	put(dir, "/var/lib/kubelet/pods/" UID "/containers/front/0a1b2c3d", "");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.pod, "web-7d4f-x2x");
	assert_string_equal(n.pod_container, "front");
	/* With two of them nobody can tell which one it is. */
	put(dir, "/var/lib/kubelet/pods/" UID "/containers/side/0a1b2c3d", "");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.pod_container, "");
	remove_root(dir, root);
}

static void names_from_container_engines(void **state __unused)
{
	struct cgroup c = group(ID, "");
	struct container_names n;
	char dir[64];
	int root = new_root(dir);

	put(dir, "/var/lib/containers/storage/overlay-containers/containers.json",
	    "[{\"id\":\"" ID2 "\",\"names\":[\"not-this\"]},{\"id\":\"" ID
	    "\",\"names\":[\"pod-man\",\"alias\"],\"layer\":\"x\"}]");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.name, "pod-man");
	/* A user's own, whose home the password file has. */
	c = group(ID2, "");
	c.owner = 1000;
	put(dir, "/etc/passwd",
	    "root:x:0:0::/root:/bin/sh\nbad\n\nann:x:1000:1000:Ann:/srv/ann:/bin/sh");
	put(dir, "/srv/ann/.local/share/containers/storage/overlay-containers/containers.json",
	    "[{\"id\":\"" ID2 "\",\"names\":[\"rootless\"]}]");
	put(dir, "/var/lib/containers/storage/overlay-containers/containers.json", "[]");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.name, "rootless");
	c.owner = 1001;
	assert_false(container_look(root, &c, &n));
	c = group(ID, "");
	put(dir, "/run/containers/storage/overlay-containers/" ID "/userdata/config.json",
	    "{\"annotations\":{\"io.kubernetes.pod.name\":\"p1\",\"io.kubernetes.pod.namespace\":"
	    "\"n1\",\"io.kubernetes.container.name\":\"c1\"}}");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.pod, "p1");
	put(dir, "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json",
	    "{\"ociVersion\":\"1.1.0\",\"annotations\":{\"io.kubernetes.cri.container-name\":"
	    "\"c2\",\"io.kubernetes.cri.sandbox-name\":\"p2\","
	    "\"io.kubernetes.cri.sandbox-namespace\":\"n2\"}}");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.pod, "p2");
	assert_string_equal(n.pod_namespace, "n2");
	assert_string_equal(n.pod_container, "c2");
	put(dir, "/var/lib/docker/containers/" ID "/config.v2.json",
	    "{\"ID\":\"" ID "\",\"Name\":\"/shop-web-1\",\"Config\":{\"Labels\":{}}}");
	assert_true(container_look(root, &c, &n));
	assert_string_equal(n.name, "shop-web-1");
	assert_string_equal(n.pod, "");
	remove_root(dir, root);
}

static void hostile_files_give_no_names(void **state __unused)
{
	static const char *const bad[] = {
		"",
		"{",
		"[]",
		"7",
		"{\"Name\":7,\"Config\":[1]}",
		"{\"Name\":\"\"}",
		"{\"Config\":{\"Labels\":{\"io.kubernetes.pod.name\":{}}}}",
		"{\"Name\":\"/x\""
	};
	struct cgroup c = group(ID, "");
	struct container_names n;
	char dir[64], path[256], deep[20001], long_name[600];
	int root = new_root(dir), fifo;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		put(dir, "/var/lib/docker/containers/" ID "/config.v2.json", bad[i]);
		assert_false(container_look(root, &c, &n));
	}
	memset(deep, '[', 20000);
	deep[20000] = '\0';
	put(dir, "/var/lib/docker/containers/" ID "/config.v2.json", deep);
	assert_false(container_look(root, &c, &n));
	/* Text that would steer a terminal, and more of it than a label takes. */
	snprintf(long_name, sizeof(long_name), "{\"Name\":\"/\\u001b[31m%0500d\"}", 1);
	put(dir, "/var/lib/docker/containers/" ID "/config.v2.json", long_name);
	assert_true(container_look(root, &c, &n));
	assert_int_equal(strlen(n.name), CONTAINER_NAME_MAX);
	assert_memory_equal(n.name, "?[31m", 5);
	/* A pipe in the place of the file is not waited for; a link leads nowhere outside. */
	snprintf(path, sizeof(path), "%s/var/lib/docker/containers/" ID "/config.v2.json", dir);
	unlink(path);
	fifo = mkfifo(path, 0600);
	assert_int_equal(fifo, 0);
	assert_false(container_look(root, &c, &n));
	unlink(path);
	assert_int_equal(symlink("/../../../etc/hostname", path), 0);
	assert_false(container_look(root, &c, &n));
	/* What Kubernetes would not let anybody be called. */
	assert_false(container_log_name("a b_c_d-" ID ".log", ID, &n));
	assert_false(container_log_name("a_c-" ID ".log", ID, &n));
	assert_false(container_log_name("a_\xff_d-" ID ".log", ID, &n));
	assert_false(container_log_name("-" ID ".log", ID, &n));
	remove_root(dir, root);
}

/* --- OpenTelemetry ---------------------------------------------------------------------------- */

#define ENVIRON(s) otel_environ(s, sizeof(s) - 1, &w)

static void words_of_the_environment(void **state __unused)
{
	struct otel_words w;

	ENVIRON("PATH=/bin\0OTEL_SERVICE_NAME=checkout\0OTEL_RESOURCE_ATTRIBUTES="
		"service.name=other,service.version=1.2%2C3, service.instance.id = i-7 ,x=y\0");
	assert_string_equal(w.service, "checkout");
	assert_string_equal(w.version, "1.2,3");
	assert_string_equal(w.instance, "i-7");
	assert_false(w.opted_out);
	ENVIRON("OTEL_RESOURCE_ATTRIBUTES=service.name=shop\0" OTEL_OWN_SERVICE "=mine\0");
	assert_string_equal(w.service, "shop");
	assert_string_equal(w.own_service, "mine");
	/* What SDKs make up is no name. */
	ENVIRON("OTEL_SERVICE_NAME=unknown_service:java\0");
	assert_string_equal(w.service, "");
	ENVIRON("OTEL_RESOURCE_ATTRIBUTES=,,=,service.name,service.version=\0");
	assert_string_equal(w.service, "");
	ENVIRON("XOTEL_SERVICE_NAME=a\0OTEL_SERVICE_NAMEX=b\0OTEL_SERVICE_NAME\0");
	assert_string_equal(w.service, "");
	/* Cut off in the middle: not half a name. */
	ENVIRON("OTEL_SERVICE_NAME=check");
	assert_string_equal(w.service, "");
	ENVIRON("");
	assert_string_equal(w.service, "");
}

static void a_process_opts_out(void **state __unused)
{
	struct otel_words w;

	ENVIRON(OTEL_OWN_SWITCH "=off\0");
	assert_true(w.opted_out);
	ENVIRON(OTEL_OWN_SWITCH "=0\0");
	assert_true(w.opted_out);
	ENVIRON(OTEL_OWN_SWITCH "=on\0");
	assert_false(w.opted_out);
	ENVIRON(OTEL_OWN_SWITCH "=\0");
	assert_false(w.opted_out);
}

static void words_are_bounded_text(void **state __unused)
{
	char text[2000] = "OTEL_SERVICE_NAME=";
	struct otel_words w;

	memset(text + 18, 'x', sizeof(text) - 19);
	otel_environ(text, sizeof(text), &w);
	assert_int_equal(strlen(w.service), OTEL_TEXT_MAX);
	ENVIRON("OTEL_SERVICE_NAME=\xff\x1b[31m<b>\0");
	assert_string_equal(w.service, "\xef\xbf\xbd?[31m<b>");
}

static void lines_of_published_contexts(void **state __unused)
{
	static const char *const yes[] = {
		"7f0000000000-7f0000001000 rw-p 00000000 00:01 7   /memfd:OTEL_CTX (deleted)",
		"7f0000000000-7f0000001000 r--p 00000000 00:00 0 [anon:OTEL_CTX]",
		"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 [anon_shmem:OTEL_CTX]",
	};
	static const char *const no[] = {
		"7f0000000000-7f0000001000 r--p 00000000 00:00 0 ",
		"7f0000000000-7f0000001000 r--p 00000000 00:00 0 /tmp/[anon:OTEL_CTX]",
		"7f0000000000-7f0000001000 r--p 00000000 08:01 5 /x /memfd:OTEL_CTX",
		"OTEL_CTX",
		"",
		"zz-1 r--p 0 0:0 0 /memfd:OTEL_CTX",
	};
	u64 addr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(yes); i++) {
		assert_true(otel_maps_line(yes[i], strlen(yes[i]), &addr));
		assert_int_equal(addr, 0x7f0000000000);
	}
	for (i = 0; i < ARRAY_SIZE(no); i++)
		assert_false(otel_maps_line(no[i], strlen(no[i]), &addr));
}

static void words_of_the_process_context(void **state __unused)
{
	static const u8 *const v[] = { otel_context, otel_resource };
	static const size_t n[] = { sizeof(otel_context), sizeof(otel_resource) };
	struct otel_words w;
	size_t i, k;

	for (i = 0; i < 2; i++) {
		assert_int_equal(otel_payload(v[i], n[i], &w), 0);
		assert_string_equal(w.service, "pay");
		assert_string_equal(w.version, "2");
		assert_string_equal(w.instance, "i1");
		/* What its threads say; a resource alone does not tell. */
		assert_int_equal(w.threads, !i);
		assert_int_equal(w.has_route, !i);
		assert_int_equal(w.route, 0);
		/* Cut anywhere it says less, and nothing false. */
		for (k = 0; k < n[i]; k++) {
			_cleanup_free_ u8 *cut = malloc(k + 1);

			memcpy(cut, v[i], k);
			if (otel_payload(cut, k, &w))
				assert_string_equal(w.service, "");
			else
				assert_true(!*w.service || !strcmp(w.service, "pay"));
		}
	}
}

/* Each field is a message within another one, as deep as a payload has room for. */
static void contexts_are_decoded_within_bounds(void **state __unused)
{
	static const u8 fields[][2] = { { 0x0a, 0x0a }, { 0x12, 0x2a }, { 0x2a, 0x0a } };
	_cleanup_free_ u8 *data = malloc(OTEL_PAYLOAD_MAX);
	struct otel_words w;
	size_t i, at, len;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		/* From the innermost, empty one outward; a length of 1 to 3 bytes. */
		for (at = OTEL_PAYLOAD_MAX, len = 0; at >= 4; len = OTEL_PAYLOAD_MAX - at) {
			if (len >= 1 << 14)
				data[--at] = (u8)(len >> 14);
			if (len >= 1 << 7)
				data[--at] = (u8)(len >> 7 & 0x7f) | (len >= 1 << 14 ? 0x80 : 0);
			data[--at] = (u8)(len & 0x7f) | (len >= 1 << 7 ? 0x80 : 0);
			data[--at] = len ? fields[i][len / 2 % 2] : 0x0a;
		}
		otel_payload(data + at, OTEL_PAYLOAD_MAX - at, &w);
		assert_string_equal(w.service, "");
	}
	/* Many that belong into one: their number costs, not its square; the last one counts. */
	for (at = 0; at + 4 <= OTEL_PAYLOAD_MAX - sizeof(otel_context); at += 4)
		memcpy(data + at, "\x0a\x02\x0a\x00", 4);
	memcpy(data + at, otel_context, sizeof(otel_context));
	assert_int_equal(otel_payload(data, at + sizeof(otel_context), &w), 0);
	assert_string_equal(w.service, ""); /* behind the first 1,024 attributes */
	memcpy(data + 4096 - 4 * 200, otel_context, sizeof(otel_context));
	assert_int_equal(otel_payload(data, 4096 - 4 * 200 + sizeof(otel_context), &w), 0);
	assert_string_equal(w.service, "pay");
}

static void headers_of_other_versions_are_none(void **state __unused)
{
	u8 h[OTEL_HEADER] = "OTEL_CTX";
	struct otel_header ret;
	u32 version = 2, size = 10;
	u64 time = 5, payload = 0x1000;

	memcpy(h + 8, &version, 4);
	memcpy(h + 12, &size, 4);
	memcpy(h + 16, &time, 8);
	memcpy(h + 24, &payload, 8);
	assert_int_equal(otel_header(h, &ret), 0);
	assert_int_equal(ret.size, 10);
	assert_int_equal(ret.published_ns, 5);
	assert_int_equal(ret.payload, 0x1000);
	size = OTEL_PAYLOAD_MAX + 1;
	memcpy(h + 12, &size, 4);
	assert_int_equal(otel_header(h, &ret), -E2BIG);
	version = 3;
	memcpy(h + 8, &version, 4);
	assert_int_equal(otel_header(h, &ret), -EINVAL);
	h[0] = 0;
	assert_int_equal(otel_header(h, &ret), -EINVAL);
}

/* --- patterns and rules ----------------------------------------------------------------------- */

static void globs(void **state __unused)
{
	char text[4096], glob[] = "*a*a*a*a*a*a*a*a*a*a*a*a*b";

	assert_true(match_glob("", ""));
	assert_true(match_glob("*", ""));
	assert_true(match_glob("post*", "postgres"));
	assert_true(match_glob("*gre?", "postgres"));
	assert_true(match_glob("a*b*c", "aXbYbZc"));
	assert_true(match_glob("*.service", "a.service.service"));
	assert_false(match_glob("post", "postgres"));
	assert_false(match_glob("postgres?", "postgres"));
	assert_false(match_glob("a*b*c", "aXbYbZ"));
	assert_false(match_glob("", "a"));
	/* No pattern is slow, whatever a process calls itself. */
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(match_glob(glob, text));
}

static void filters_include_and_exclude(void **state __unused)
{
	struct match_filter *f = calloc(1, sizeof(*f));
	struct match_facts p = { .text = { [MATCH_exe] = "postgres",
					   [MATCH_unit] = "pg.service",
					   [MATCH_user] = "0",
					   [MATCH_container] = "db-1" },
				 .container_id = ID };
	const char *why;

	assert_true(match_wanted(f, &p));
	assert_int_equal(match_parse_list("exe:nginx, exe:post*", &f->include, &why), 0);
	assert_true(match_wanted(f, &p));
	assert_int_equal(match_parse_list("unit:pg.*", &f->exclude, &why), 0);
	assert_false(match_wanted(f, &p));
	p.text[MATCH_unit] = NULL;
	assert_true(match_wanted(f, &p));
	assert_int_equal(match_parse_list("container:0123*", &f->exclude, &why), 0);
	assert_false(match_wanted(f, &p));
	assert_int_equal(match_parse_list("container:db-*", &f->exclude, &why), 0);
	assert_false(match_wanted(f, &p));
	assert_int_equal(match_parse_list("user:root", &f->exclude, &why), 0);
	assert_false(match_wanted(f, &p));
	p.text[MATCH_exe] = "bash";
	f->exclude.n = 0;
	assert_false(match_wanted(f, &p));
	assert_int_equal(match_parse_list("nonsense:a", &f->include, &why), -EINVAL);
	assert_int_equal(match_parse_list("exe:", &f->include, &why), -EINVAL);
	assert_int_equal(match_parse_list("exe", &f->include, &why), -EINVAL);
	assert_int_equal(match_parse_list("user:no-such-user-here", &f->include, &why), -EINVAL);
	assert_string_equal(why, "no such user on this host");
	free(f);
}

static void rules_name_services(void **state __unused)
{
	static const char text[] = "# the shop\n"
				   "exe:postgres unit:pg@*.service = database\r\n"
				   "\n"
				   "namespace:prod = {namespace}/{container}\n"
				   "exe:a=b = with equals\n"
				   "exe:* = {unit}";
	struct match_facts p = { .text = { [MATCH_exe] = "postgres" } };
	struct service_rules *r;
	char err[256], name[SERVICE_NAME_MAX + 1];

	assert_int_equal(service_parse("R", text, sizeof(text) - 1, &r, err, sizeof(err)), 0);
	assert_false(service_name(r, &p, name)); /* no unit to put in */
	p.text[MATCH_unit] = "pg@14.service";
	assert_true(service_name(r, &p, name));
	assert_string_equal(name, "database");
	p.text[MATCH_unit] = "x.service";
	assert_true(service_name(r, &p, name));
	assert_string_equal(name, "x.service");
	p.text[MATCH_namespace] = "prod";
	assert_true(service_name(r, &p, name));
	assert_string_equal(name, "x.service");
	p.text[MATCH_container] = "front";
	assert_true(service_name(r, &p, name));
	assert_string_equal(name, "prod/front");
	p.text[MATCH_namespace] = NULL;
	p.text[MATCH_exe] = "a=b";
	assert_true(service_name(r, &p, name));
	assert_string_equal(name, "with equals");
	assert_false(service_uses(r, MATCH_user));
	assert_true(service_uses(r, MATCH_namespace));
	service_free(r);
	assert_false(service_name(NULL, &p, name));
}

static void bad_rules_are_told_by_line(void **state __unused)
{
	static const char *const v[][2] = {
		{ "exe:a = b\nexe:a b\n", "R:2: expected KIND:PATTERN = NAME" },
		{ "= b\n", "R:1: expected KIND:PATTERN = NAME" },
		{ " # x\n\t\nexe:a =\n",
		  "R:3: expected a name behind =, with a known {KIND} in braces if any" },
		{ "exe:a = {nothing}",
		  "R:1: expected a name behind =, with a known {KIND} in braces if any" },
		{ "exe:a = {exe",
		  "R:1: expected a name behind =, with a known {KIND} in braces if any" },
		{ "exe: = b", "R:1: expected a pattern behind the colon" },
		{ "exe:1 exe:2 exe:3 exe:4 exe:5 exe:6 exe:7 exe:8 exe:9 = b",
		  "R:1: too many patterns in one rule" },
	};
	struct service_rules *r;
	char err[256];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(v); i++) {
		assert_true(service_parse("R", v[i][0], strlen(v[i][0]), &r, err, sizeof(err)) < 0);
		assert_string_equal(err, v[i][1]);
	}
	assert_int_equal(service_parse("R", "exe:a\0 = b", 10, &r, err, sizeof(err)), -EINVAL);
}

static void rules_that_others_may_write_are_refused(void **state __unused)
{
	struct service_rules *r;
	char dir[64], path[128], err[256];
	int root = new_root(dir);

	put(dir, "/rules", "exe:a = b\n");
	snprintf(path, sizeof(path), "%s/rules", dir);
	chmod(path, 0644);
	assert_int_equal(service_read(path, &r, err, sizeof(err)), 0);
	service_free(r);
	chmod(path, 0666);
	assert_int_equal(service_read(path, &r, err, sizeof(err)), -EPERM);
	assert_non_null(strstr(err, "others than root may write it"));
	remove_root(dir, root);
	assert_int_equal(service_read(path, &r, err, sizeof(err)), -ENOENT);
}

/* --- real processes --------------------------------------------------------------------------- */

struct world {
	struct modules *modules;
	struct processes *ps;
	struct reader *reader;
	struct identities *ids;
	struct match_filter filter;
	u32 told, told_pid;
	bool told_out;
};

static void on_verdict(void *arg, u32 tgid, u64 start_ns, u32 exec_id, bool out)
{
	struct world *w = arg;

	assert_true(start_ns > 0);
	assert_int_equal(exec_id, 3);
	w->told++;
	w->told_pid = tgid;
	w->told_out = out;
}

static struct world *new_world(const struct service_rules *rules, const char *exclude)
{
	struct world *w = calloc(1, sizeof(*w));
	struct identity_options o = { .proc = "/proc",
				      .root = "/nonexistent",
				      .rules = rules,
				      .filter = exclude ? &w->filter : NULL,
				      .verdict = on_verdict,
				      .arg = w };
	const char *why;

	if (exclude)
		assert_int_equal(match_parse_list(exclude, &w->filter.exclude, &why), 0);
	w->modules = modules_new(1 << 20);
	w->ps = processes_new(w->modules, "/proc", false);
	w->reader = reader_new();
	w->ids = identities_new(w->ps, w->reader, &o);
	assert_non_null(w->ids);
	return w;
}

static void free_world(struct world *w)
{
	identities_free(w->ids);
	processes_free(w->ps);
	modules_free(w->modules);
	reader_free(w->reader);
	free(w);
}

/* A child that has these variables, and publishes a context when it is told to. */
static pid_t child(char *const env[], int *to)
{
	int up[2], down[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	pid = fork();
	if (!pid) {
		char in[16], out[16];

		snprintf(in, sizeof(in), "%d", down[0]);
		snprintf(out, sizeof(out), "%d", up[1]);
		execve("/proc/self/exe", (char *[]){ "publisher", in, out, NULL }, env);
		_exit(1);
	}
	close(down[0]);
	close(up[1]);
	assert_int_equal(read(up[0], &byte, 1), 1);
	close(up[0]);
	*to = down[1];
	return pid;
}

/* What that child does: as a publisher of opentelemetry-specification 4719 would. */
static int publisher(int in, int out)
{
	struct {
		char signature[8];
		u32 version, size;
		u64 time;
		const u8 *payload;
	} * h;
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	char byte = 0;

	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		return 0;
	if (ftruncate(fd, 4096))
		return 1;
	h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	h->version = 2;
	h->size = sizeof(otel_context);
	h->time = 1;
	h->payload = otel_context;
	memcpy(h->signature, "OTEL_CTX", 8);
	/* Until the test ends. */
	while (read(in, &byte, 1) == 1)
		;
	return 0;
}

static struct process *find(struct world *w, pid_t pid)
{
	struct process *p;

	assert_int_equal(processes_snapshot(w->ps), 0);
	p = processes_pid(w->ps, (u32)pid);
	assert_non_null(p);
	p->start_ns = p->start_ticks * (NSEC_PER_SEC / (u64)sysconf(_SC_CLK_TCK));
	p->exec_id = 3;
	p->id_known = true;
	return p;
}

static void end(pid_t pid, int to)
{
	close(to);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void the_processs_own_word(void **state __unused)
{
	char *env[] = { "OTEL_SERVICE_NAME=env-name", "OTEL_RESOURCE_ATTRIBUTES=service.version=9",
			NULL };
	struct world *w = new_world(NULL, NULL);
	const struct identity *id;
	struct process *p;
	int to;
	pid_t pid = child(env, &to);
	u32 i;

	p = find(w, pid);
	id = identities_of(w->ids, p);
	assert_string_equal(id->service, "env-name");
	assert_string_equal(id->label[IDENTITY_VERSION], "9");
	assert_null(id->label[IDENTITY_INSTANCE]);
	assert_false(id->left_out);
	/* It publishes late: seen at the next look. */
	assert_int_equal(write(to, "", 1), 1);
	for (i = 0; i < 100 && strcmp(identities_of(w->ids, p)->service, "pay"); i++) {
		usleep(20000);
		identities_round(w->ids, now_monotonic() + (u64)i * 1000 * NSEC_PER_SEC);
	}
	id = identities_of(w->ids, p);
	assert_string_equal(id->service, "pay");
	assert_string_equal(id->label[IDENTITY_VERSION], "2");
	assert_string_equal(id->label[IDENTITY_INSTANCE], "i1");
	end(pid, to);
	free_world(w);
}

/* Each by a thread whose stack has what the one before left there. */
static void contexts_of_several_processes(void **state __unused)
{
	char *env[] = { NULL };
	struct world *w = new_world(NULL, NULL);
	pid_t pid[3];
	int to[3];
	u32 i, k;

	for (i = 0; i < 3; i++) {
		pid[i] = child(env, &to[i]);
		assert_int_equal(write(to[i], "", 1), 1);
	}
	for (i = 0; i < 3; i++) {
		const struct identity *id = NULL;

		find(w, pid[i]);
		for (k = 0; k < 100 && (!id || !id->service); k++) {
			identities_round(w->ids, now_monotonic() + (u64)k * 1000 * NSEC_PER_SEC);
			id = identities_of(w->ids, processes_pid(w->ps, (u32)pid[i]));
			usleep(10000);
		}
		assert_string_equal(id->service, "pay");
	}
	for (i = 0; i < 3; i++)
		end(pid[i], to[i]);
	free_world(w);
}

static void rules_win_over_the_processs_word(void **state __unused)
{
	char *env[] = { "OTEL_SERVICE_NAME=otel", OTEL_OWN_SERVICE "=own", NULL };
	static const char text[] = "service:otel exe:test_identity = by-rule/{exe}\n";
	struct service_rules *r;
	struct world *w;
	char err[256];
	int to;
	pid_t pid = child(env, &to);

	w = new_world(NULL, NULL);
	assert_string_equal(identities_of(w->ids, find(w, pid))->service, "own");
	free_world(w);
	assert_int_equal(service_parse("R", text, strlen(text), &r, err, sizeof(err)), 0);
	w = new_world(r, NULL);
	assert_string_equal(identities_of(w->ids, find(w, pid))->service, "by-rule/test_identity");
	free_world(w);
	service_free(r);
	end(pid, to);
}

static void who_is_left_out_is_told_once(void **state __unused)
{
	char *out[] = { OTEL_OWN_SWITCH "=off", NULL }, *none[] = { NULL };
	char user[32];
	struct world *w = new_world(NULL, NULL);
	struct process *p;
	int to, to2;
	pid_t pid = child(out, &to), other = child(none, &to2);

	p = find(w, pid);
	assert_true(identities_of(w->ids, p)->left_out);
	assert_true(identities_of(w->ids, p)->left_out);
	assert_int_equal(w->told, 1);
	assert_int_equal(w->told_pid, pid);
	assert_true(w->told_out);
	assert_false(identities_of(w->ids, find(w, other))->left_out);
	assert_int_equal(w->told, 1);
	free_world(w);
	snprintf(user, sizeof(user), "user:%u", (unsigned int)geteuid());
	w = new_world(NULL, user);
	assert_true(identities_of(w->ids, find(w, other))->left_out);
	assert_int_equal(w->told_pid, other);
	free_world(w);
	end(pid, to);
	end(other, to2);
}

static void the_dead_are_where_their_parents_are(void **state __unused)
{
	char *env[] = { "OTEL_SERVICE_NAME=parent", NULL };
	struct world *w = new_world(NULL, NULL);
	struct task_event fork_event = { .type = TASK_FORK, .time_ns = now_monotonic() };
	struct process *p;
	int to;
	pid_t pid = child(env, &to);

	find(w, pid);
	/* A child of it that nobody has read by the time it was gone. */
	fork_event.pid = 4000001;
	fork_event.ppid = (u32)pid;
	fork_event.time_ns = now_monotonic();
	processes_event(w->ps, &fork_event);
	p = processes_pid(w->ps, 4000001);
	assert_non_null(p);
	p->exited = true;
	assert_string_equal(identities_of(w->ids, p)->service, "parent");
	end(pid, to);
	free_world(w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(containers_by_id),
		cmocka_unit_test(containers_by_name),
		cmocka_unit_test(no_containers),
		cmocka_unit_test(row38_hostile_cgroup_is_only_text),
		cmocka_unit_test(names_from_kubernetes_logs),
		cmocka_unit_test(names_from_the_kubelets_directories),
		cmocka_unit_test(names_from_container_engines),
		cmocka_unit_test(hostile_files_give_no_names),
		cmocka_unit_test(words_of_the_environment),
		cmocka_unit_test(a_process_opts_out),
		cmocka_unit_test(words_are_bounded_text),
		cmocka_unit_test(lines_of_published_contexts),
		cmocka_unit_test(words_of_the_process_context),
		cmocka_unit_test(contexts_are_decoded_within_bounds),
		cmocka_unit_test(headers_of_other_versions_are_none),
		cmocka_unit_test(globs),
		cmocka_unit_test(filters_include_and_exclude),
		cmocka_unit_test(rules_name_services),
		cmocka_unit_test(bad_rules_are_told_by_line),
		cmocka_unit_test(rules_that_others_may_write_are_refused),
		cmocka_unit_test(the_processs_own_word),
		cmocka_unit_test(contexts_of_several_processes),
		cmocka_unit_test(rules_win_over_the_processs_word),
		cmocka_unit_test(who_is_left_out_is_told_once),
		cmocka_unit_test(the_dead_are_where_their_parents_are),
	};

	if (argc == 3)
		return publisher(atoi(argv[1]), atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
