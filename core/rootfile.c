// SPDX-License-Identifier: Apache-2.0
/* Shelf: base. See rootfile.h. */
#include "rootfile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NAME 64 /* "/proc/self/fd/N" and the like */

int rootfile_at(int root, const char *path, bool links)
{
	/* O_PATH does not wait for a FIFO's writer either. */
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS |
			   (links ? 0 : (u64)RESOLVE_NO_SYMLINKS),
	};
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int rootfile_of(u32 pid, const char *path)
{
	_cleanup_close_ int root = -1;
	char name[NAME];

	snprintf(name, sizeof(name), "/proc/%u/root", pid);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? -errno : rootfile_at(root, path, true);
}

int rootfile_open(int path_fd, struct stat *ret_stat)
{
	char name[NAME];
	int fd;

	if (path_fd < 0)
		return -ENOENT;
	if (fstat(path_fd, ret_stat))
		return -errno;
	if (!S_ISREG(ret_stat->st_mode))
		return -ENOENT;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", path_fd);
	fd = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
