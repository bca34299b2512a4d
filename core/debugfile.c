// SPDX-License-Identifier: Apache-2.0
/* Shelf: books. See debugfile.h. Where to look: what gdb and elfutils look for, no more. */
#include "debugfile.h"

#include "rootfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define DEBUG_DIR "/usr/lib/debug"

static bool same_crc(const struct elfsym_source *src, u32 want)
{
	_cleanup_free_ u8 *buf = malloc(1u << 16);
	uLong crc = crc32(0, NULL, 0);
	u64 at;

	if (!buf || src->size > DEBUGFILE_CRC_MAX)
		return false;
	for (at = 0; at < src->size; at += 1u << 16) {
		size_t n = (size_t)MIN(src->size - at, 1ull << 16);

		if (elfsym_read(src, at, buf, n))
			return false;
		crc = crc32(crc, buf, (uInt)n);
	}
	return crc == want;
}

/* Is it what the stripped file was stripped of? link: NULL when it was looked for by build id. */
static bool is_its(const struct debugfile_question *q, const struct elfsym_link *link,
		   const struct elfsym_source *src)
{
	struct elfsym_info info;
	bool same;

	if (elfsym_info(src, &info))
		return false;
	same = info.id_len == q->info->id_len && !memcmp(info.id, q->info->id, info.id_len);
	if (!q->info->id_len)
		same = link && same_crc(src, link->crc);
	elfsym_info_fini(&info);
	return same && elfsym_has_symtab(src);
}

struct search {
	const struct debugfile_question *q;
	const struct elfsym_link *link;
	int root;
	char path[PATH_MAX];
	u64 size;
};

static int try_path(struct search *s, const struct elfsym_link *link)
{
	_cleanup_close_ int at = -1, fd = -1;
	struct elfsym_source src;
	struct stat st;

	at = rootfile_at(s->root, s->path, true);
	fd = rootfile_open(at, &st);
	if (fd < 0)
		return -ENOENT;
	src = (struct elfsym_source){ .fd = fd, .size = (u64)st.st_size };
	if (!is_its(s->q, link, &src))
		return -ENOENT;
	s->size = src.size;
	return take_fd(&fd);
}

static int try_id(struct search *s)
{
	const struct elfsym_info *info = s->q->info;
	char hex[2 * ELFSYM_ID_MAX + 1];

	if (info->id_len < 2)
		return -ENOENT;
	hex_encode(hex, info->id, info->id_len);
	snprintf(s->path, sizeof(s->path), DEBUG_DIR "/.build-id/%.2s/%s.debug", hex, hex + 2);
	return try_path(s, NULL);
}

static int try_link(struct search *s)
{
	static const char *const forms[] = { "%s%.*s/%s", "%s%.*s/.debug/%s" };
	const char *path = s->q->path, *slash = strrchr(path, '/');
	int dir = slash ? (int)(slash - path) : 0, n, fd = -ENOENT;
	u32 i;

	if (!s->link || !slash)
		return -ENOENT;
	for (i = 0; i < 3 && fd < 0; i++) {
		n = snprintf(s->path, sizeof(s->path), i == 1 ? forms[1] : forms[0],
			     i == 2 ? DEBUG_DIR : "", dir, path, s->link->name);
		if (n > 0 && (size_t)n < sizeof(s->path))
			fd = try_path(s, s->link);
	}
	return fd;
}

static int search(struct search *s)
{
	int fd = try_id(s);

	return fd >= 0 ? fd : try_link(s);
}

int debugfile_open(const struct debugfile_question *q, u64 *ret_size, char *ret_path)
{
	struct elfsym_link link;
	struct search s = { .q = q };
	char roots[2][PATH_MAX];
	int fd = -ENOENT, i;

	if (elfsym_debuglink(q->src, &link))
		s.link = &link;
	if (!s.link && !q->info->id_len)
		return -ENOENT;
	snprintf(roots[0], PATH_MAX, "/proc/%u/root", q->pid);
	snprintf(roots[1], PATH_MAX, "%s", q->host_root);
	for (i = q->pid ? 0 : 1; i < 2 && fd < 0; i++) {
		_cleanup_close_ int root = open(roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (root < 0)
			continue;
		s.root = root;
		fd = search(&s);
	}
	if (fd < 0)
		return -ENOENT;
	*ret_size = s.size;
	if (ret_path)
		memcpy(ret_path, s.path, PATH_MAX);
	return fd;
}
