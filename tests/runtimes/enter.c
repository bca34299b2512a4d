/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, runtimes: starts a program of an unpacked system in place of itself, so that the caller's
 * pid becomes the program's. In: a folder that holds a root file system, a program of it with its
 * arguments, and RUNTIME_ENTER, which says how a profiler shall see the process:
 *   pivot   (default) a mount namespace whose root is the folder, as a container has one; /tmp,
 *           /home, /proc and whatever else the folder has none of are the host's
 *   chroot  the folder as root directory, in the caller's mount namespace; /proc/PID/exe has the
 *           host's path, and programs must lie in the folder
 *   loader  nothing is changed: the folder's dynamic loader runs the program, and so the loader is
 *           what /proc/PID/exe names
 * Without the right to do the first two it uses a user namespace, and without that the loader.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the host's login would lead the unpacked programs to wrong libraries with. */
static const char *const unwanted[] = {
	"LD_LIBRARY_PATH", "LD_PRELOAD",     "PYTHONHOME", "PYTHONPATH",
	"PYTHONSTARTUP",   "RUBYLIB",        "RUBYOPT",    "GEM_HOME",
	"GEM_PATH",        "BUNDLE_GEMFILE", "PHPRC",      "PHP_INI_SCAN_DIR",
};

/* The folders that a system cannot share with another one. */
static const char *const own[] = { "bin", "sbin", "lib", "lib32", "lib64",      "libx32",
				   "usr", "etc",  "var", "boot",  "lost+found", "opt" };

static int fail(const char *what, const char *on)
{
	fprintf(stderr, "enter: %s %s: %s\n", what, on, strerror(errno));
	return -1;
}

static bool is_own(const char *name)
{
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (!strcmp(own[i], name))
			return true;
	return name[0] == '.';
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc = fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

/* A mount namespace of our own; as an ordinary user within a user namespace. */
static int own_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (!unshare(CLONE_NEWNS))
		return 0;
	if (errno != EPERM || unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (write_file("/proc/self/uid_map", map))
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	return write_file("/proc/self/setgroups", "deny") || write_file("/proc/self/gid_map", map);
}

/* Shows one folder of the host inside the new root. What cannot be shown is missing there. */
static void share(const char *root, const char *name)
{
	char from[NAME_MAX + 2], to[PATH_MAX];
	struct stat st;
	size_t n;
	int flags;

	snprintf(from, sizeof(from), "/%s", name);
	if (snprintf(to, sizeof(to), "%s/%s", root, name) >= (int)sizeof(to))
		return;
	if (lstat(from, &st) || !S_ISDIR(st.st_mode))
		return;
	mkdir(to, 0755);
	/* A folder that holds the new root would hold itself again and again. */
	n = strlen(from);
	flags = !strncmp(root, from, n) && root[n] == '/' ? MS_BIND : MS_BIND | MS_REC;
	if (mount(from, to, NULL, flags, NULL) && errno != EINVAL)
		fail("bind", to);
}

static int share_all(const char *root)
{
	DIR *dir = opendir("/");
	struct dirent *e;

	if (!dir)
		return -1;
	while ((e = readdir(dir)))
		if (!is_own(e->d_name))
			share(root, e->d_name);
	closedir(dir);
	return 0;
}

static int pivot(const char *root)
{
	if (own_namespace())
		return -1;
	if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(root, root, NULL, MS_BIND, NULL) || share_all(root) || chdir(root))
		return fail("mount", root);
	if (!syscall(SYS_pivot_root, ".", "."))
		return umount2(".", MNT_DETACH);
	/* A system that runs from its initial RAM disk cannot pivot; it can cover its root. */
	if (mount(".", "/", NULL, MS_MOVE, NULL) || chroot("."))
		return fail("pivot", root);
	return 0;
}

/* The folder's loader runs the program; ROOT/usr/lib/TRIPLET are the libraries. */
static int by_loader(const char *root, char **argv)
{
	static const char *const loaders[][2] = {
		{ "lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu" },
		{ "lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu" },
	};
	char *ld = NULL, *libs = NULL, *program = NULL;
	char **args;
	size_t n = 0;

	while (argv[n])
		n++;
	args = calloc(n + 4, sizeof(*args));
	if (!args)
		return fail("start", argv[0]);
	for (size_t i = 0; i < sizeof(loaders) / sizeof(*loaders); i++) {
		if (asprintf(&ld, "%s/%s", root, loaders[i][0]) < 0 ||
		    asprintf(&libs, "%s/usr/lib/%s", root, loaders[i][1]) < 0 ||
		    asprintf(&program, "%s%s", root, argv[0]) < 0)
			return fail("start", argv[0]);
		if (!access(ld, X_OK))
			break;
	}
	args[0] = ld;
	args[1] = "--library-path";
	args[2] = libs;
	args[3] = program;
	memcpy(args + 4, argv + 1, (n - 1) * sizeof(*args));
	execv(ld, args);
	return fail("start", ld);
}

int main(int argc, char **argv)
{
	const char *how = getenv("RUNTIME_ENTER") ?: "pivot";
	char root[PATH_MAX], cwd[PATH_MAX];

	if (argc < 3 || argv[2][0] != '/') {
		fprintf(stderr, "usage: enter ROOT /PROGRAM [ARG...]\n");
		return 2;
	}
	if (!realpath(argv[1], root) || !getcwd(cwd, sizeof(cwd)))
		return fail("no", argv[1]), 126;
	for (size_t i = 0; i < sizeof(unwanted) / sizeof(*unwanted); i++)
		unsetenv(unwanted[i]);
	if (!strcmp(how, "chroot")) {
		if (chroot(root))
			return fail("chroot", root), 126;
	} else if (strcmp(how, "loader") && !pivot(root)) {
		how = "pivot";
	} else {
		return by_loader(root, argv + 2), 126;
	}
	if (chdir(cwd) && chdir("/"))
		return fail("no", "/"), 126;
	execv(argv[2], argv + 2);
	return fail("start", argv[2]), 126;
}
