// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See identity.h. What the kernel itself tells of a process is read here; its memory
 * (environment, published context), which may hang, and files of the host in the reader's thread.
 */
#include "identity.h"

#include "cgroup.h"
#include "container.h"
#include "htab.h"
#include "otel.h"
#include "process.h"
#include "reader.h"
#include "service.h"
#include "stat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define ENVIRON_MAX    (256u << 10) /* what is behind is not read */
#define MAPS_MAX       (4u << 20)   /* a longer list is not searched */
#define STATUS_MAX     16384
#define STAT_MAX_BYTES 4096
#define READ_TRIES     3 /* of a context that is being written */
#define ROUND_MAX      16
#define PARENTS_MAX    8
#define CONTAINERS_MAX 4096
#define KERNEL_EXE     "[kernel]"

/* When to look again, in seconds; the last from then on. */
static const u32 pauses[] = { 2, 10, 60, 300 };

/* What is known of one process image: struct process's `identity`. */
struct entry {
	struct identity id; /* its text is behind it */
	u64 due_ns;
	u32 looks;
	u64 context; /* where it publishes; 0: nowhere that we know */
	bool told;   /* that it is left out */
	bool read;   /* its environment is known */
	bool hung;   /* reading its memory did: that is not done again */
	/* What they say, NULL: nothing; owned. */
	struct otel_words *environ, *words;
	char *text; /* of id; owned */
};

struct known_container {
	char key[CGROUP_NAME_MAX + CGROUP_UID_LEN + 2];
	struct container_names names;
	u64 due_ns;
	u32 looks;
};

struct identities {
	struct processes *ps;
	struct reader *reader;
	struct identity_options o;
	char *proc, *root;
	u64 tick_ns;
	bool with_user;
	struct known_container *containers;
	struct htab by_container;
	u32 ncontainers, containers_cap;
	u32 next; /* process that the next round begins with */
};

static const struct identity nobody;

const char *identity_label_name(enum identity_label label)
{
	static const char *const names[] = {
#define X(name, text) text,
		IDENTITY_LIST(X)
#undef X
	};

	return names[label];
}

/* --- reading ---------------------------------------------------------------------------------- */

/* What the kernel tells. */
struct sight {
	struct cgroup cgroup;
	char user[16];
};

/* What stands in its memory. A job of its own all through, since the thread may be left behind. */
struct job {
	char proc[256];
	u32 pid;
	bool with_environ, with_maps;
	u64 context; /* in: where it was; out: where it is */
	struct otel_words environ, words;
};

struct names_job {
	char root[256];
	struct cgroup cgroup;
	struct container_names names;
};

/* The beginning of a file, at most max bytes; owned. Returns 0 or -errno. */
static int read_head(const char *path, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	u32 cap = 0;

	if (fd < 0)
		return -errno;
	while (len < max) {
		ssize_t n;

		if (VEC_RESERVE(text, cap, (u32)MIN(len + 4096, max), (u32)max))
			return -ENOMEM;
		n = read(fd, text + len, cap - len);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n)
			break;
		len += n > 0 ? (size_t)n : 0;
	}
	*ret_len = len;
	*ret = take_ptr(text);
	return 0;
}

#define PROC_PATH 300

static void proc_path(const char *proc, u32 pid, const char *name, char path[PROC_PATH])
{
	snprintf(path, PROC_PATH, "%.250s/%u/%s", proc, pid, name);
}

static int read_cgroup(const struct identities *ids, u32 pid, struct cgroup *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[PROC_PATH];
	int err;

	proc_path(ids->proc, pid, "cgroup", path);
	err = read_file(path, CGROUP_TEXT_MAX, &text, NULL);
	if (!err)
		cgroup_parse(text, ret);
	return err;
}

static void read_environ(struct job *j)
{
	_cleanup_free_ char *text = NULL;
	char path[PROC_PATH];
	size_t len = 0;

	proc_path(j->proc, j->pid, "environ", path);
	if (!read_head(path, ENVIRON_MAX, &text, &len))
		otel_environ(text, len, &j->environ);
}

/* The directory's owner is root's for who may not be traced: the status has the user. */
static void read_user(const struct identities *ids, u32 pid, char *dst, size_t size)
{
	_cleanup_free_ char *text = NULL;
	unsigned int uid;
	const char *line;
	char path[PROC_PATH];

	proc_path(ids->proc, pid, "status", path);
	if (read_file(path, STATUS_MAX, &text, NULL))
		return;
	line = strstr(text, "\nUid:");
	if (line && sscanf(line, "\nUid: %*u %u", &uid) == 1)
		snprintf(dst, size, "%u", uid);
}

static void find_context(struct job *j)
{
	_cleanup_free_ char *text = NULL;
	const char *line, *end;
	char path[PROC_PATH];
	size_t len;

	proc_path(j->proc, j->pid, "maps", path);
	if (read_file(path, MAPS_MAX, &text, &len))
		return;
	for (line = text; line < text + len; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + len - line));
		if (!end)
			break;
		if (otel_maps_line(line, (size_t)(end - line), &j->context))
			return;
	}
}

static bool read_at(u32 pid, u64 addr, void *dst, size_t len)
{
	struct iovec local = { dst, len }, remote = { (void *)(uintptr_t)addr, len };

	return process_vm_readv((pid_t)pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/* Header, payload, header again: the same word before and after. */
static bool read_context_once(struct job *j)
{
	_cleanup_free_ u8 *payload = NULL;
	u8 before[OTEL_HEADER], after[OTEL_HEADER];
	struct otel_header h;

	if (!read_at(j->pid, j->context, before, sizeof(before)) || otel_header(before, &h) ||
	    !h.published_ns)
		return false;
	payload = malloc(h.size + 1);
	if (!payload || (h.size && !read_at(j->pid, h.payload, payload, h.size)) ||
	    !read_at(j->pid, j->context, after, sizeof(after)) ||
	    memcmp(before, after, sizeof(before)))
		return false;
	return !otel_payload(payload, h.size, &j->words);
}

static void read_context(struct job *j)
{
	u32 i;

	if (!j->context && j->with_maps)
		find_context(j);
	for (i = 0; i < READ_TRIES && j->context; i++)
		if (read_context_once(j))
			return;
	/* Not there any more, or not to be had: looked for anew the next time. */
	j->context = 0;
}

/* Is it still the process that was meant? Then all that was read is its own. */
static bool is_same(const struct identities *ids, const struct process *p)
{
	u64 want = p->start_ns ? p->start_ns / ids->tick_ns : p->start_ticks;
	_cleanup_free_ char *text = NULL;
	unsigned long long start;
	const char *at;
	char path[PROC_PATH];
	u32 field;

	proc_path(ids->proc, p->pid, "stat", path);
	if (read_file(path, STAT_MAX_BYTES, &text, NULL))
		return false;
	at = strrchr(text, ')');
	for (field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, " %llu", &start) == 1 && (!want || want == start);
}

static int read_job(void *arg)
{
	struct job *j = arg;

	if (j->with_environ)
		read_environ(j);
	read_context(j);
	return 0;
}

static int read_names(void *arg)
{
	struct names_job *j = arg;
	_cleanup_close_ int root = open(j->root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return -errno;
	return container_look(root, &j->cgroup, &j->names) ? 0 : -ENOENT;
}

/* --- containers ------------------------------------------------------------------------------- */

static u64 pause_ns(u32 looks)
{
	return pauses[MIN(looks, (u32)ARRAY_SIZE(pauses) - 1)] * NSEC_PER_SEC;
}

static void look_up(struct identities *ids, const struct cgroup *c, struct container_names *names)
{
	struct names_job *j;
	int err;

	/* As for a process: some files are users' own. */
	if (reader_abandoned(ids->reader) >= READER_ABANDON_MAX / 2)
		return;
	j = calloc(1, sizeof(*j));
	if (!j)
		return;
	snprintf(j->root, sizeof(j->root), "%s", ids->root);
	j->cgroup = *c;
	err = reader_call(ids->reader, read_names, j, free, READER_WAIT_NS);
	if (err == -ETIMEDOUT)
		return;
	/* What was known stays: the files of a container go before its last process. */
	if (!err)
		*names = j->names;
	free(j);
}

/* Names of the container, looked up when they are due; all empty when out of memory. */
static void container_names(struct identities *ids, const struct cgroup *c, u64 now,
			    struct container_names *ret)
{
	struct known_container *k = NULL;
	char key[sizeof(k->key)];
	u32 pos, i;
	u64 hash;

	*ret = (struct container_names){ 0 };
	if (!*c->container && !*c->pod_uid)
		return;
	snprintf(key, sizeof(key), "%s/%s", c->container, c->pod_uid);
	hash = hash_bytes(key, strlen(key));
	for (pos = htab_start(&ids->by_container, hash);
	     !k && htab_next(&ids->by_container, hash, &pos, &i);)
		if (!strcmp(ids->containers[i].key, key))
			k = &ids->containers[i];
	if (!k) {
		/* All of them are to be had again. */
		if (ids->ncontainers == CONTAINERS_MAX) {
			htab_clear(&ids->by_container);
			ids->ncontainers = 0;
		}
		if (VEC_RESERVE(ids->containers, ids->containers_cap, ids->ncontainers + 1,
				CONTAINERS_MAX) ||
		    htab_insert(&ids->by_container, hash, ids->ncontainers))
			return;
		k = &ids->containers[ids->ncontainers++];
		*k = (struct known_container){ 0 };
		strcpy(k->key, key);
	}
	if (now >= k->due_ns) {
		look_up(ids, c, &k->names);
		k->due_ns = now + pause_ns(k->looks++);
	}
	*ret = k->names;
}

/* --- identities ------------------------------------------------------------------------------- */

static const char *known(const char *s)
{
	return *s ? s : NULL;
}

/* What goes into an identity, before it is copied. */
struct draft {
	const char *service;
	const char *label[IDENTITY_MAX];
	bool left_out;
};

/* One allocation for all texts; false when out of memory: the entry is as before. */
static bool set_identity(struct entry *e, const struct draft *d)
{
	size_t size = d->service ? strlen(d->service) + 1 : 0, n;
	char *text, *at;
	u32 i;

	for (i = 0; i < IDENTITY_MAX; i++)
		size += d->label[i] ? strlen(d->label[i]) + 1 : 0;
	text = at = malloc(size + 1);
	if (!text)
		return false;
	e->id = (struct identity){ .left_out = d->left_out };
	for (i = 0; i <= IDENTITY_MAX; i++) {
		const char *s = i < IDENTITY_MAX ? d->label[i] : d->service;

		if (!s)
			continue;
		n = strlen(s) + 1;
		memcpy(at, s, n);
		if (i < IDENTITY_MAX)
			e->id.label[i] = at;
		else
			e->id.service = at;
		at += n;
	}
	free(e->text);
	e->text = text;
	return true;
}

static const struct otel_words silence;

static const struct otel_words *said(const struct otel_words *w)
{
	return w ? w : &silence;
}

/* Keeps what was said, which is nothing for most. */
static void keep(struct otel_words **at, const struct otel_words *w)
{
	bool silent = !*w->service && !*w->version && !*w->instance && !*w->own_service &&
		      !w->opted_out && !w->threads;

	if (silent) {
		free(*at);
		*at = NULL;
		return;
	}
	if (!*at)
		*at = malloc(sizeof(**at));
	if (*at)
		**at = *w;
}

/* The name that is known first. */
static const char *choose_service(const struct entry *e, const struct cgroup *c,
				  const struct container_names *n)
{
	const struct otel_words *env = said(e->environ);
	const char *const names[] = { env->own_service, said(e->words)->service,
				      env->service,     n->pod_container,
				      n->name,          c->container };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (*names[i])
			return names[i];
	return NULL;
}

static void tell_verdict(struct identities *ids, const struct process *p, struct entry *e)
{
	if (e->id.left_out == e->told || !p->id_known)
		return;
	e->told = e->id.left_out;
	if (ids->o.verdict)
		ids->o.verdict(ids->o.arg, p->pid, p->start_ns, p->exec_id, e->told);
}

/* From what was read to who it is. */
static void conclude(struct identities *ids, const struct process *p, const struct sight *seen,
		     struct entry *e, u64 now)
{
	char exe[SERVICE_NAME_MAX + 1], name[SERVICE_NAME_MAX + 1];
	const struct otel_words *env = said(e->environ), *w = said(e->words);
	const struct cgroup *c = &seen->cgroup;
	struct container_names n;
	struct match_facts f = {
		.text = {
			[MATCH_exe] = exe,
			[MATCH_path] = p->exe,
			[MATCH_comm] = p->comm,
			[MATCH_user] = known(seen->user),
			[MATCH_cgroup] = known(c->path),
			[MATCH_unit] = known(c->unit),
			[MATCH_service] = known(w->service) ? w->service : known(env->service),
		},
		.container_id = known(c->container),
	};
	struct draft d = { 0 };

	container_names(ids, c, now, &n);
	snprintf(exe, sizeof(exe), "%.*s", SERVICE_NAME_MAX, p->exe ? base_name(p->exe) : p->comm);
	f.text[MATCH_container] = known(n.name) ? n.name : f.container_id;
	f.text[MATCH_pod] = known(n.pod);
	f.text[MATCH_namespace] = known(n.pod_namespace);
	d.service = service_name(ids->o.rules, &f, name) ? name : choose_service(e, c, &n);
	d.label[IDENTITY_CONTAINER] = f.container_id;
	d.label[IDENTITY_CONTAINER_NAME] = known(n.name);
	d.label[IDENTITY_K8S_POD] = f.text[MATCH_pod];
	d.label[IDENTITY_K8S_NAMESPACE] = f.text[MATCH_namespace];
	d.label[IDENTITY_K8S_CONTAINER] = known(n.pod_container);
	d.label[IDENTITY_UNIT] = f.text[MATCH_unit];
	d.label[IDENTITY_VERSION] = *w->version ? w->version : known(env->version);
	d.label[IDENTITY_INSTANCE] = *w->instance ? w->instance : known(env->instance);
	d.left_out = (env->opted_out && !ids->o.all) ||
		     (ids->o.filter && !match_wanted(ids->o.filter, &f));
	if (!set_identity(e, &d))
		stat_inc(STAT_no_memory);
}

static struct entry *entry_of(struct identities *ids, struct process *p, u32 depth);

/* A child lives where its parent does, with its words, unless someone moved it. */
static void inherit(struct identities *ids, const struct process *p, struct entry *e, u32 depth)
{
	struct process *parent = processes_pid(ids->ps, p->ppid);
	const struct entry *from;
	struct draft d = { 0 };

	if (!parent || parent == p || depth >= PARENTS_MAX)
		return;
	from = entry_of(ids, parent, depth + 1);
	if (!from)
		return;
	d.service = from->id.service;
	memcpy(d.label, from->id.label, sizeof(d.label));
	d.left_out = from->id.left_out;
	set_identity(e, &d);
}

/* What it says in its memory, if that is to be had. */
static void listen(struct identities *ids, const struct process *p, struct entry *e)
{
	struct job *j;

	/* Each that hangs keeps a thread, and others have a use for those, too. */
	if (e->hung || reader_abandoned(ids->reader) >= READER_ABANDON_MAX / 2)
		return;
	j = calloc(1, sizeof(*j));
	if (!j)
		return;
	snprintf(j->proc, sizeof(j->proc), "%s", ids->proc);
	j->pid = p->pid;
	j->with_environ = !e->read;
	/*
	 * Programs that live for a moment publish nothing; who was there before us has done so. The
	 * list may be long.
	 */
	j->with_maps = e->looks || !p->born_ns;
	j->context = e->context;
	if (reader_call(ids->reader, read_job, j, free, READER_WAIT_NS) == -ETIMEDOUT) {
		e->hung = true;
		stat_inc(STAT_identity_hung);
		return;
	}
	/* All that was read is its own, or none of it. */
	if (is_same(ids, p)) {
		if (j->with_environ)
			keep(&e->environ, &j->environ);
		e->read = true;
		/* What it once published holds until it publishes something else. */
		if (j->context)
			keep(&e->words, &j->words);
		e->context = j->context;
	}
	free(j);
}

static void look(struct identities *ids, struct process *p, struct entry *e, u64 now, u32 depth)
{
	struct sight seen = { 0 };
	int err = p->exited || p->replaced ? -ESRCH : read_cgroup(ids, p->pid, &seen.cgroup);

	e->due_ns = now + pause_ns(e->looks);
	if (!err && ids->with_user)
		read_user(ids, p->pid, seen.user, sizeof(seen.user));
	if (!err && !is_same(ids, p))
		err = -ESRCH;
	if (!err) {
		listen(ids, p, e);
		conclude(ids, p, &seen, e, now);
		tell_verdict(ids, p, e);
	} else if (!e->looks) {
		inherit(ids, p, e, depth);
	}
	e->looks++;
}

/* NULL: out of memory. */
static struct entry *entry_of(struct identities *ids, struct process *p, u32 depth)
{
	if (p->identity)
		return p->identity;
	p->identity = calloc(1, sizeof(struct entry));
	if (p->identity)
		look(ids, p, p->identity, now_monotonic(), depth);
	else
		stat_inc(STAT_no_memory);
	return p->identity;
}

const struct identity *identities_of(struct identities *ids, struct process *p)
{
	struct entry *e = entry_of(ids, p, 0);

	if (!e)
		return &nobody;
	if (e->id.left_out && !e->told)
		tell_verdict(ids, p, e); /* its start was not known then */
	return &e->id;
}

bool identities_threads(const struct process *p, bool *ret_has_route, u8 *ret_route)
{
	const struct entry *e = p->identity;
	const struct otel_words *w = said(e && !e->id.left_out ? e->words : NULL);

	*ret_has_route = w->has_route;
	*ret_route = w->route;
	return w->threads;
}

bool identities_kernel(struct identities *ids, const struct stack_key *key)
{
	char comm[COMM_LEN + 1];
	const struct match_facts f = { .text = { [MATCH_exe] = KERNEL_EXE,
						 [MATCH_path] = KERNEL_EXE,
						 [MATCH_comm] = comm,
						 [MATCH_user] = "0" } };

	memcpy(comm, key->comm, COMM_LEN);
	comm[COMM_LEN] = '\0';
	if (!ids->o.filter || match_wanted(ids->o.filter, &f))
		return false;
	if (ids->o.verdict)
		ids->o.verdict(ids->o.arg, key->tgid, key->start_ns, key->exec_id, true);
	return true;
}

void identities_round(struct identities *ids, u64 now_ns)
{
	u32 n = processes_count(ids->ps), i, looked = 0;

	for (i = 0; i < n && looked < ROUND_MAX; i++) {
		struct process *p = processes_at(ids->ps, (ids->next + i) % n);
		struct entry *e = p->identity;

		if (!e || now_ns < e->due_ns || p->exited)
			continue;
		look(ids, p, e, now_ns, 0);
		looked++;
	}
	ids->next = n ? (ids->next + i) % n : 0;
}

/* Of what the kernel was told it forgets at an exec or the death. */
static void on_drop(void *arg __unused, struct process *p)
{
	struct entry *e = p->identity;

	if (!e)
		return;
	free(e->environ);
	free(e->words);
	free(e->text);
	free(e);
	p->identity = NULL;
}

struct identities *identities_new(struct processes *ps, struct reader *r,
				  const struct identity_options *o)
{
	struct identities *ids = calloc(1, sizeof(*ids));

	if (!ids)
		return NULL;
	ids->ps = ps;
	ids->reader = r;
	ids->o = *o;
	ids->proc = strdup(o->proc);
	ids->root = strdup(o->root);
	ids->tick_ns = NSEC_PER_SEC / (u64)sysconf(_SC_CLK_TCK);
	ids->with_user = service_uses(o->rules, MATCH_user) ||
			 (o->filter && match_uses(o->filter, MATCH_user));
	if (!ids->proc || !ids->root) {
		free(ids->proc);
		free(ids->root);
		free(ids);
		return NULL;
	}
	processes_on_drop(ps, on_drop, ids);
	return ids;
}

void identities_free(struct identities *ids)
{
	u32 i;

	if (!ids)
		return;
	for (i = 0; i < processes_count(ids->ps); i++)
		on_drop(ids, processes_at(ids->ps, i));
	processes_off_drop(ids->ps, ids);
	htab_fini(&ids->by_container);
	free(ids->containers);
	free(ids->proc);
	free(ids->root);
	free(ids);
}
