// SPDX-License-Identifier: Apache-2.0
/*
 * Room: live tests. A file system that stops answering.
 *
 *	files_fuse MOUNTPOINT FILE READY
 *
 * Mounts a FUSE file system that holds FILE as "/prog" and serves it. From SIGUSR1 on requests
 * are not even read; from SIGUSR2 on they are read and never answered, which no signal can end on
 * the other side. Nothing is cached by the kernel but file contents, so each look goes through
 * here. Its end, at SIGTERM or after 120 s, aborts the connection and frees all who wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PROG_ID     2
#define BUFFER_SIZE (FUSE_MIN_READ_BUFFER + (128 << 10))

static volatile sig_atomic_t deaf, mute;
static int dev, file;

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		deaf = 1;
	else
		mute = 1;
}

static void reply(const struct fuse_in_header *in, int err, const void *data, size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len),
		.error = -err,
		.unique = in->unique,
	};
	struct iovec iov[2] = { { &out, sizeof(out) }, { (void *)data, len } };

	/* ENOENT: whoever asked was interrupted. */
	if (writev(dev, iov, len ? 2 : 1) < 0 && errno != ENOENT) {
		perror("reply");
		exit(1);
	}
}

static void fill(struct fuse_attr *attr, uint64_t id)
{
	struct stat st;

	memset(attr, 0, sizeof(*attr));
	attr->ino = id;
	attr->blksize = 4096;
	if (id == PROG_ID && !fstat(file, &st)) {
		attr->mode = S_IFREG | 0755;
		attr->nlink = 1;
		attr->size = (uint64_t)st.st_size;
		attr->blocks = attr->size / 512;
	} else {
		attr->mode = S_IFDIR | 0755;
		attr->nlink = 2;
	}
}

static void on_init(const struct fuse_in_header *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = 31,
		.max_readahead = 1 << 20,
		.max_background = 12,
		.congestion_threshold = 9,
		.max_write = 4096,
		.time_gran = 1,
	};

	reply(in, 0, &out, sizeof(out));
}

static void on_lookup(const struct fuse_in_header *in, const char *name)
{
	struct fuse_entry_out out = { .nodeid = PROG_ID };

	if (in->nodeid != FUSE_ROOT_ID || strcmp(name, "prog")) {
		reply(in, ENOENT, NULL, 0);
		return;
	}
	fill(&out.attr, PROG_ID);
	reply(in, 0, &out, sizeof(out));
}

static void on_read(const struct fuse_in_header *in, const struct fuse_read_in *read)
{
	static char data[128 << 10];
	size_t size = read->size < sizeof(data) ? read->size : sizeof(data);
	ssize_t n = pread(file, data, size, (off_t)read->offset);

	reply(in, n < 0 ? EIO : 0, data, n < 0 ? 0 : (size_t)n);
}

static void serve(const struct fuse_in_header *in)
{
	const void *arg = in + 1;
	struct fuse_attr_out attr = { 0 };
	struct fuse_open_out open_out = { .open_flags = FOPEN_KEEP_CACHE };

	switch (in->opcode) {
	case FUSE_INIT:
		on_init(in);
		break;
	case FUSE_LOOKUP:
		on_lookup(in, arg);
		break;
	case FUSE_GETATTR:
		fill(&attr.attr, in->nodeid);
		reply(in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		reply(in, 0, &open_out, sizeof(open_out));
		break;
	case FUSE_READ:
		on_read(in, arg);
		break;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		reply(in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break; /* these want no answer */
	default:
		reply(in, ENOSYS, NULL, 0);
	}
}

static void say_ready(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0644);

	if (fd < 0)
		exit(1);
	close(fd);
}

int main(int argc, char **argv)
{
	static _Alignas(8) char buffer[BUFFER_SIZE];
	/* Without SA_RESTART: a read that waits must notice. */
	struct sigaction act = { .sa_handler = on_signal };
	char options[128];

	alarm(120);
	if (argc != 4)
		return 2;
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGUSR2, &act, NULL);
	file = open(argv[2], O_RDONLY | O_CLOEXEC);
	dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (file < 0 || dev < 0) {
		perror("open");
		return 1;
	}
	snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other",
		 dev);
	if (mount("live-test", argv[1], "fuse", 0, options)) {
		perror("mount");
		return 1;
	}
	say_ready(argv[3]);
	for (;;) {
		ssize_t n;

		while (deaf)
			pause();
		n = read(dev, buffer, sizeof(buffer));
		if (n < 0 && errno == ENODEV)
			return 0; /* unmounted */
		if (n < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN)
			return 1;
		if (n >= (ssize_t)sizeof(struct fuse_in_header) && !mute)
			serve((void *)buffer);
	}
}
