// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See target_files.h. A file is known by device, inode and what its first page in
 * memory holds (program headers, mostly the build id); the file that is opened must begin with the
 * same bytes. Jobs for the reader own all they touch; only the main thread changes the book.
 */
#include "target_files.h"

#include "elfname.h"
#include "htab.h"
#include "reader.h"
#include "rootfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX   1024u /* in the book; all are forgotten when it is full */
#define ANSWERS_MAX 32u   /* symbols kept a file; the oldest goes */
#define HEAD_MAX    4096u
#define PATH_MAX_   4096u
#define RETRY_NS    (60 * NSEC_PER_SEC) /* of a file that could not be read */

struct answer {
	char name[TARGET_NAME_MAX];
	bool found;
	struct target_file_symbol symbol;
};

struct entry {
	u32 major, minor;
	u64 ino, head_hash;
	struct elfname *names; /* NULL: could not be had */
	u64 failed_ns;         /* when, 0: never */
	struct answer *answers;
	u32 nanswers, next_answer;
};

struct target_files {
	struct entry *entries;
	u32 n, cap;
	struct htab by_key;
};

struct target_files *target_files_new(void)
{
	return calloc(1, sizeof(struct target_files));
}

static void forget_all(struct target_files *files)
{
	u32 i;

	for (i = 0; i < files->n; i++) {
		elfname_free(files->entries[i].names);
		free(files->entries[i].answers);
	}
	files->n = 0;
	htab_clear(&files->by_key);
}

void target_files_free(struct target_files *files)
{
	if (!files)
		return;
	forget_all(files);
	htab_fini(&files->by_key);
	free(files->entries);
	free(files);
}

/* --- jobs: all that follows up to the book runs in the reader -------------------------------- */

struct job {
	struct target_file file;
	char path[PATH_MAX_];
	/* Result of an opening; for a search it is borrowed in, and stays alive with the job. */
	struct elfname *names;
	char name[TARGET_NAME_MAX];
	struct elfname_symbol symbol;
};

static void job_drop(void *arg)
{
	struct job *j = arg;

	elfname_free(j->names);
	free(j);
}

/* O_PATH: without side effects whatever it is. */
static int open_mapped(const struct job *j)
{
	char name[96];

	snprintf(name, sizeof(name), "/proc/%u/map_files/%llx-%llx", j->file.pid,
		 (unsigned long long)j->file.lo, (unsigned long long)j->file.hi);
	return open(name, O_PATH | O_CLOEXEC);
}

/* Does the open file begin as the memory does? Nothing but a regular file is ever read. */
static bool is_file(const struct job *j, int fd, const struct stat *st)
{
	u8 head[HEAD_MAX];

	if (!S_ISREG(st->st_mode) || j->file.head_len > HEAD_MAX ||
	    pread(fd, head, j->file.head_len, 0) != (ssize_t)j->file.head_len)
		return false;
	return hash_bytes(head, j->file.head_len) == j->file.head_hash;
}

/* The mapping's own file, whatever its path says now; else what the path leads the process to. */
static int open_file(const struct job *j, u64 *size)
{
	struct stat st;
	int way;

	for (way = 0; way < 2; way++) {
		_cleanup_close_ int path_fd = !way ? open_mapped(j)
					      : j->path[0] == '/'
						      ? rootfile_of(j->file.pid, j->path)
						      : -1;
		_cleanup_close_ int fd = rootfile_open(path_fd, &st);

		if (fd >= 0 && is_file(j, fd, &st)) {
			*size = (u64)st.st_size;
			return take_fd(&fd);
		}
	}
	return -1;
}

static int run_open(void *arg)
{
	struct job *j = arg;
	struct elfsym_source src;
	_cleanup_close_ int fd = open_file(j, &src.size);

	if (fd < 0)
		return -ENOENT;
	src.fd = fd;
	src.mem = NULL;
	return elfname_open(&src, &j->names);
}

static int run_search(void *arg)
{
	struct job *j = arg;
	struct elfsym_source src;
	_cleanup_close_ int fd = open_file(j, &src.size);

	if (fd < 0)
		return -EIO;
	src.fd = fd;
	src.mem = NULL;
	return elfname_symbol(j->names, &src, j->name, &j->symbol);
}

/* --- the book -------------------------------------------------------------------------------- */

static struct job *job_new(const struct target_file *file)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->file = *file;
	j->file.path = NULL;
	snprintf(j->path, sizeof(j->path), "%s", file->path);
	return j;
}

static u64 key_hash(const struct target_file *f)
{
	u64 key[4] = { f->major, f->minor, f->ino, f->head_hash };

	return hash_bytes(key, sizeof(key));
}

static struct entry *entry_find(struct target_files *files, const struct target_file *f, u64 hash)
{
	u32 pos, i;

	for (pos = htab_start(&files->by_key, hash); htab_next(&files->by_key, hash, &pos, &i);) {
		struct entry *e = &files->entries[i];

		if (e->ino == f->ino && e->head_hash == f->head_hash && e->major == f->major &&
		    e->minor == f->minor)
			return e;
	}
	return NULL;
}

static struct entry *entry_add(struct target_files *files, const struct target_file *f, u64 hash)
{
	struct entry *e;

	if (files->n == FILES_MAX)
		forget_all(files);
	if (VEC_RESERVE(files->entries, files->cap, files->n + 1, FILES_MAX) ||
	    htab_insert(&files->by_key, hash, files->n))
		return NULL;
	e = &files->entries[files->n++];
	*e = (struct entry){
		.major = f->major, .minor = f->minor, .ino = f->ino, .head_hash = f->head_hash
	};
	return e;
}

static int entry_open(struct entry *e, struct reader *reader, const struct target_file *f)
{
	struct job *j = job_new(f);
	int err;

	if (!j)
		return -ENOENT;
	err = reader_call(reader, run_open, j, job_drop, READER_WAIT_NS);
	/* Not found: perhaps this process is gone, and the next one has it. */
	if (err && err != -ENOENT)
		e->failed_ns = now_monotonic();
	if (err == -ETIMEDOUT)
		return err;
	if (!err)
		e->names = take_ptr(j->names);
	job_drop(j);
	return err ? -ENOENT : 0;
}

/* The file's entry, opened; 0, -ENOENT, -ETIMEDOUT. */
static int entry_get(struct target_files *files, struct reader *reader, const struct target_file *f,
		     struct entry **ret)
{
	u64 hash = key_hash(f);
	struct entry *e = entry_find(files, f, hash);
	int err;

	if (!e)
		e = entry_add(files, f, hash);
	if (!e)
		return -ENOENT;
	if (!e->names) {
		if (e->failed_ns && now_monotonic() - e->failed_ns < RETRY_NS)
			return -ENOENT;
		err = entry_open(e, reader, f);
		if (err)
			return err;
	}
	*ret = e;
	return 0;
}

int target_files_section(struct target_files *files, struct reader *reader,
			 const struct target_file *file, const char *name, u64 *addr, u64 *size)
{
	struct entry *e;
	int err = entry_get(files, reader, file, &e);

	if (err)
		return err;
	return elfname_section(e->names, name, addr, size) ? 0 : -ENOENT;
}

static struct answer *answer_find(struct entry *e, const char *name)
{
	u32 i;

	for (i = 0; i < e->nanswers; i++)
		if (!strcmp(e->answers[i].name, name))
			return &e->answers[i];
	return NULL;
}

static struct answer *answer_add(struct entry *e, const char *name)
{
	struct answer *a;

	if (!e->answers)
		e->answers = calloc(ANSWERS_MAX, sizeof(e->answers[0]));
	if (!e->answers)
		return NULL;
	a = &e->answers[e->next_answer];
	e->next_answer = (e->next_answer + 1) % ANSWERS_MAX;
	e->nanswers = MAX(e->nanswers, (u32)(a - e->answers) + 1);
	*a = (struct answer){ 0 };
	snprintf(a->name, sizeof(a->name), "%s", name);
	return a;
}

/* A search in the reader. The names go with the job, so that no thread left behind reads freed ones. */
static int search(struct entry *e, struct reader *reader, const struct target_file *file,
		  const char *name, struct elfname_symbol *ret)
{
	struct job *j = job_new(file);
	int err;

	if (!j)
		return -ENOMEM;
	snprintf(j->name, sizeof(j->name), "%s", name);
	j->names = take_ptr(e->names);
	err = reader_call(reader, run_search, j, job_drop, READER_WAIT_NS);
	if (err == -ETIMEDOUT) {
		e->failed_ns = now_monotonic();
		return err;
	}
	e->names = take_ptr(j->names);
	*ret = j->symbol;
	job_drop(j);
	return err;
}

int target_files_symbol(struct target_files *files, struct reader *reader,
			const struct target_file *file, const char *name, u64 *budget,
			struct target_file_symbol *ret)
{
	struct elfname_symbol symbol;
	struct answer *a;
	struct entry *e;
	u64 cost;
	int err = entry_get(files, reader, file, &e);

	if (err)
		return err;
	cost = elfname_symbol_cost(e->names);
	if (!cost)
		return -ENOENT;
	a = answer_find(e, name);
	if (!a) {
		if (cost > *budget)
			return -ENOENT;
		*budget -= cost;
		err = search(e, reader, file, name, &symbol);
		if (err && err != -ENOENT)
			return err == -ETIMEDOUT ? err : -ENOENT;
		a = answer_add(e, name);
		if (!a)
			return -ENOENT;
		a->found = !err;
		if (!err)
			a->symbol = (struct target_file_symbol){ symbol.value, symbol.size,
								 symbol.tls, symbol.absolute };
	}
	*ret = a->symbol;
	return a->found ? 0 : -ENOENT;
}
