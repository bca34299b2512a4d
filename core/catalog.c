// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See catalog.h. Entries are sorted by start. The text file has a line per profile:
 * name, value, milliseconds, stacks, whole ones, service, container, executable, with tabs
 * between; it is appended to, and written anew when most of it tells of files that are gone.
 */
#include "catalog.h"

#include "htab.h"
#include "log.h"
#include "store.h"
#include "strtab.h"
#include "view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define START_LEN   20 /* "20261130T125500Z.123" */
#define SUFFIX      ".pb.gz"
#define NAME_SIZE   192
#define JOURNAL     "catalog"
#define JOURNAL_MAX (512u << 20)
#define LINE_SIZE   2048
#define SCAN_MAX    (2 * CATALOG_ENTRIES_MAX)
#define WINDOW_MAX  (3600 * 1000ull) /* ms, with room: the longest that is configured */
#define TEXT_MAX    (64u << 20)

#define SERVICES_MARK (CATALOG_SERVICES_MAX / 4 * 3)
#define TEXTS_MARK    ((size_t)TEXT_MAX / 4 * 3)

struct entry {
	u64 start_ms, value;
	u32 duration_ms, service;
	u32 stacks, whole;
	u16 type;
	bool known; /* its sums are */
};

struct service {
	const char *key, *service, *container, *exe;
};

struct catalog {
	pthread_mutex_t lock;
	int store_fd, dir_fd, journal_fd;
	u32 lines; /* of the journal */
	struct entry *entries;
	u32 first, n, cap; /* entries[first] .. entries[n - 1] */
	u32 unknown;
	struct strtab texts;
	struct service *services;
	u32 nservices, services_cap;
	struct htab services_by_key;
	char types[CATALOG_TYPES_MAX][48];
	u32 ntypes;
	u32 services_mark; /* so many call for make_room() */
	size_t texts_mark;
	_Atomic bool stop;
};

static void unlock(pthread_mutex_t **m)
{
	pthread_mutex_unlock(*m);
}

#define LOCKED(c)         \
	_cleanup_(unlock) \
		__unused pthread_mutex_t *locked = (pthread_mutex_lock(&(c)->lock), &(c)->lock)

/* --- names ------------------------------------------------------------------------------------ */

bool catalog_parse_name(const char *name, u64 *ret_start_ms, char type[static 48],
			char key[static CATALOG_KEY])
{
	size_t len = strlen(name), tail = strlen(SUFFIX), n;
	struct tm tm = { 0 };
	const char *dash;
	u32 ms;

	if (len < START_LEN + 4 + tail || name[START_LEN] != '-' ||
	    strcmp(name + len - tail, SUFFIX))
		return false;
	if (sscanf(name, "%4d%2d%2dT%2d%2d%2dZ.%3u-", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
		   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms) != 7)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	dash = strchr(name + START_LEN + 1, '-');
	n = dash ? (size_t)(dash - name - START_LEN - 1) : 0;
	if (!n || n >= 48 || tm.tm_year < 70)
		return false;
	memcpy(type, name + START_LEN + 1, n);
	type[n] = '\0';
	n = len - tail - (size_t)(dash + 1 - name);
	if (!n || n >= CATALOG_KEY)
		return false;
	memcpy(key, dash + 1, n);
	key[n] = '\0';
	*ret_start_ms = (u64)timegm(&tm) * 1000 + ms;
	return true;
}

static void put_name(char *dst, size_t size, u64 start_ms, const char *type, const char *key)
{
	time_t seconds = (time_t)(start_ms / 1000);
	char start[START_LEN + 1];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(start, sizeof(start), "%Y%m%dT%H%M%SZ", &tm);
	snprintf(dst, size, "%s.%03u-%s-%s" SUFFIX, start, (u32)(start_ms % 1000), type, key);
}

static void entry_name(const struct catalog *c, const struct entry *e, char *dst, size_t size)
{
	put_name(dst, size, e->start_ms, c->types[e->type], c->services[e->service].key);
}

static const char *text(struct catalog *c, const char *s)
{
	u32 i;

	return strtab_add(&c->texts, s, strlen(s), &i) ? "" : c->texts.entries[i].s;
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Returns the number, or UINT32_MAX: no room. */
static u32 service_get(struct catalog *c, const char *key)
{
	u64 hash = hash_bytes(key, strlen(key));
	u32 pos, i;

	for (pos = htab_start(&c->services_by_key, hash);
	     htab_next(&c->services_by_key, hash, &pos, &i);)
		if (!strcmp(c->services[i].key, key))
			return i;
	if (VEC_RESERVE(c->services, c->services_cap, c->nservices + 1, CATALOG_SERVICES_MAX))
		return UINT32_MAX;
	c->services[c->nservices].key = text(c, key);
	c->services[c->nservices].service = c->services[c->nservices].key;
	c->services[c->nservices].container = c->services[c->nservices].exe = text(c, "");
	if (!*c->services[c->nservices].key || htab_insert(&c->services_by_key, hash, c->nservices))
		return UINT32_MAX;
	return c->nservices++;
}

static u32 type_get(struct catalog *c, const char *type)
{
	u32 i;

	for (i = 0; i < c->ntypes; i++)
		if (!strcmp(c->types[i], type))
			return i;
	if (c->ntypes == CATALOG_TYPES_MAX)
		return UINT32_MAX;
	snprintf(c->types[c->ntypes], sizeof(c->types[0]), "%s", type);
	return c->ntypes++;
}

/* First entry that starts at or after. */
static u32 lower_bound(const struct catalog *c, u64 start_ms)
{
	u32 low = c->first, high = c->n;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (c->entries[middle].start_ms < start_ms)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool same_file(const struct entry *a, const struct entry *b)
{
	return a->start_ms == b->start_ms && a->service == b->service && a->type == b->type;
}

/* NULL: it is not there. */
static struct entry *find(struct catalog *c, const struct entry *e)
{
	u32 i;

	for (i = lower_bound(c, e->start_ms); i < c->n && c->entries[i].start_ms == e->start_ms;
	     i++)
		if (same_file(&c->entries[i], e))
			return &c->entries[i];
	return NULL;
}

/* Unsorted: for loading, when all are sorted later. */
static int append(struct catalog *c, const struct entry *e)
{
	int err;

	/* What was left in front is reused. */
	if (c->n == c->cap && c->first > c->cap / 2) {
		memmove(c->entries, c->entries + c->first,
			(c->n - c->first) * sizeof(c->entries[0]));
		c->n -= c->first;
		c->first = 0;
	}
	err = VEC_RESERVE(c->entries, c->cap, c->n + 1, 2 * CATALOG_ENTRIES_MAX);
	if (err)
		return err;
	c->entries[c->n++] = *e;
	c->unknown += !e->known;
	return 0;
}

static void drop_first(struct catalog *c)
{
	c->unknown -= !c->entries[c->first].known;
	c->first++;
}

static void insert(struct catalog *c, const struct entry *e)
{
	u32 at;

	if (append(c, e))
		return;
	/* Nearly always the last; not after the clock was set back. */
	for (at = c->n - 1; at > c->first && c->entries[at - 1].start_ms > e->start_ms; at--)
		c->entries[at] = c->entries[at - 1];
	c->entries[at] = *e;
	if (c->n - c->first > CATALOG_ENTRIES_MAX)
		drop_first(c);
}

static int by_start(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->start_ms != y->start_ms)
		return x->start_ms < y->start_ms ? -1 : 1;
	if (x->service != y->service)
		return x->service < y->service ? -1 : 1;
	return x->type < y->type ? -1 : x->type > y->type;
}

/* --- the journal ------------------------------------------------------------------------------ */

static bool parse_number(char **at, u64 max, u64 *ret)
{
	char *field = strsep(at, "\t"), *end;

	if (!field || *field < '0' || *field > '9')
		return false;
	*ret = strtoull(field, &end, 10);
	return !*end && *ret <= max;
}

/* Fills an entry, its service and type from a line, which is taken apart. */
static bool parse_line(struct catalog *c, char *line, struct entry *ret)
{
	char *name = strsep(&line, "\t"), type[48], key[CATALOG_KEY], *texts[3];
	u64 value, duration, stacks, whole, start;
	struct service *s;
	u32 service, t, i;

	if (!line || !catalog_parse_name(name, &start, type, key) ||
	    !parse_number(&line, UINT64_MAX, &value) ||
	    !parse_number(&line, UINT32_MAX, &duration) ||
	    !parse_number(&line, UINT32_MAX, &stacks) || !parse_number(&line, stacks, &whole))
		return false;
	for (i = 0; i < 3; i++) {
		texts[i] = strsep(&line, "\t");
		if (!texts[i])
			return false;
	}
	service = service_get(c, key);
	t = type_get(c, type);
	if (service == UINT32_MAX || t == UINT32_MAX)
		return false;
	s = &c->services[service];
	s->service = text(c, texts[0]);
	s->container = text(c, texts[1]);
	s->exe = text(c, texts[2]);
	*ret = (struct entry){
		.start_ms = start,
		.value = value,
		.duration_ms = (u32)duration,
		.service = service,
		.stacks = (u32)stacks,
		.whole = (u32)whole,
		.type = (u16)t,
		.known = true,
	};
	return true;
}

static int put_line(char *dst, size_t size, const struct catalog_profile *p)
{
	char texts[3][256];
	const char *from[] = { p->service, p->container, p->exe };
	u32 i;

	/* Tabs and newlines become '?'. */
	for (i = 0; i < 3; i++)
		utf8_clean(texts[i], sizeof(texts[i]), from[i] ? from[i] : "", sizeof(texts[i]));
	return snprintf(dst, size,
			"%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\n",
			p->name, p->value, MIN(p->duration_ms, (u64)UINT32_MAX),
			MIN(p->stacks, (u64)UINT32_MAX), MIN(p->whole, p->stacks), texts[0],
			texts[1], texts[2]);
}

/* A line at the journal's end. */
static void journal_line(struct catalog *c, const char *line, size_t len)
{
	int err = c->journal_fd < 0 ? 0 : write_all(c->journal_fd, (const u8 *)line, len);

	if (err)
		log_debug("cannot write the store's catalog: %s", strerror(-err));
	c->lines++;
}

/* Every line that tells of a file in the directory; damaged ones are passed over. */
static void read_journal(struct catalog *c, char *data)
{
	struct entry e;
	char *line;

	while ((line = strsep(&data, "\n"))) {
		if (!*line)
			continue;
		c->lines++;
		if (c->n < CATALOG_ENTRIES_MAX && parse_line(c, line, &e))
			append(c, &e);
	}
}

/* Writes the line of an entry; its length, as snprintf() has it. */
static int put_entry(const struct catalog *c, const struct entry *e, char *dst, size_t size)
{
	const struct service *s = &c->services[e->service];
	char name[NAME_SIZE];
	struct catalog_profile p = {
		.name = name,
		.service = s->service,
		.container = s->container,
		.exe = s->exe,
		.value = e->value,
		.duration_ms = e->duration_ms,
		.stacks = e->stacks,
		.whole = e->whole,
	};

	entry_name(c, e, name, sizeof(name));
	return put_line(dst, size, &p);
}

static void write_journal(struct catalog *c)
{
	_cleanup_free_ char *data = NULL;
	char line[LINE_SIZE], path[64];
	FILE *f;
	size_t len;
	u32 i, n = 0;
	int err;

	f = open_memstream(&data, &len);
	if (!f)
		return;
	for (i = c->first; i < c->n; i++) {
		const struct entry *e = &c->entries[i];

		if (!e->known)
			continue;
		put_entry(c, e, line, sizeof(line));
		fputs(line, f);
		n++;
	}
	if (fclose(f))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/" JOURNAL, c->store_fd);
	err = write_file_unsynced(path, data, len, 0600);
	if (err) {
		log_debug("cannot write the store's catalog: %s", strerror(-err));
		return;
	}
	closep(&c->journal_fd);
	c->journal_fd = openat(c->store_fd, JOURNAL, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	c->lines = n;
}

/* --- loading ---------------------------------------------------------------------------------- */

static DIR *open_dir(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		closep(&fd);
	return d;
}

/* Files that the journal does not tell of, unsorted at the end; marks those that it does. */
static int read_dir(struct catalog *c, bool *there, u32 njournal)
{
	_cleanup_closedir_ DIR *d = open_dir(c->dir_fd);
	char type[48], key[CATALOG_KEY];
	struct dirent *de;
	u32 i;

	if (!d)
		return -errno;
	for (i = 0; i < SCAN_MAX && (de = readdir(d)); i++) {
		struct entry e = { 0 }, *known;
		u32 service, t, n = c->n;

		if (!catalog_parse_name(de->d_name, &e.start_ms, type, key))
			continue;
		service = service_get(c, key);
		t = type_get(c, type);
		if (service == UINT32_MAX || t == UINT32_MAX)
			continue;
		e.service = service;
		e.type = (u16)t;
		c->n = njournal; /* only that part is sorted */
		known = find(c, &e);
		c->n = n;
		if (known)
			there[known - c->entries] = true;
		else
			append(c, &e);
	}
	return 0;
}

static int load(struct catalog *c)
{
	_cleanup_free_ char *data = NULL;
	_cleanup_free_ bool *there = NULL;
	char path[64];
	u32 i, n = 0, njournal;
	int err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/" JOURNAL, c->store_fd);
	if (!read_file(path, JOURNAL_MAX, &data, NULL))
		read_journal(c, data);
	if (c->n)
		qsort(c->entries, c->n, sizeof(c->entries[0]), by_start);
	njournal = c->n;
	there = calloc((size_t)njournal + 1, 1);
	if (!there)
		return -ENOMEM;
	err = read_dir(c, there, njournal);
	if (err)
		return err;
	c->unknown = 0;
	for (i = 0; i < c->n; i++) {
		/* The same file twice: the journal was written by a crashing daemon. */
		if (i < njournal &&
		    (!there[i] || (i && same_file(&c->entries[i], &c->entries[i - 1]))))
			continue;
		c->entries[n++] = c->entries[i];
		c->unknown += !c->entries[i].known;
	}
	c->n = n;
	if (c->n)
		qsort(c->entries, c->n, sizeof(c->entries[0]), by_start);
	while (c->n - c->first > CATALOG_ENTRIES_MAX)
		drop_first(c);
	return 0;
}

static void forget_all(struct catalog *c)
{
	free(c->entries);
	free(c->services);
	htab_fini(&c->services_by_key);
	strtab_fini(&c->texts);
	c->texts = (struct strtab){ .max_bytes = TEXT_MAX };
	c->entries = NULL;
	c->services = NULL;
	c->first = c->n = c->cap = c->nservices = c->services_cap = c->ntypes = 0;
	c->unknown = c->lines = 0;
}

/*
 * Services that come and go leave their names behind: what is on disk is read again without them.
 * When that frees little, not again before half of what is then left has been used, too.
 */
static void make_room(struct catalog *c)
{
	int err;

	if (c->nservices < c->services_mark && c->texts.bytes < c->texts_mark)
		return;
	write_journal(c);
	forget_all(c);
	err = load(c);
	if (err)
		log_warn("cannot list the store anew: %s", strerror(-err));
	c->services_mark = MAX(SERVICES_MARK, c->nservices / 2 + CATALOG_SERVICES_MAX / 2);
	c->texts_mark = MAX(TEXTS_MARK, c->texts.bytes / 2 + TEXT_MAX / 2);
}

int catalog_open(const char *store_path, struct catalog **ret)
{
	struct catalog *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return log_err(-ENOMEM, "cannot list the store: out of memory");
	pthread_mutex_init(&c->lock, NULL);
	c->dir_fd = c->journal_fd = -1;
	c->texts.max_bytes = TEXT_MAX;
	c->services_mark = SERVICES_MARK;
	c->texts_mark = TEXTS_MARK;
	c->store_fd = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->store_fd >= 0)
		c->dir_fd = openat(c->store_fd, "profiles", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	err = c->dir_fd < 0 ? -errno : load(c);
	if (err) {
		catalog_free(c);
		return log_err(err, "cannot list the store in '%s': %s", store_path,
			       strerror(-err));
	}
	write_journal(c);
	*ret = c;
	return 0;
}

void catalog_free(struct catalog *c)
{
	if (!c)
		return;
	closep(&c->store_fd);
	closep(&c->dir_fd);
	closep(&c->journal_fd);
	forget_all(c);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void catalog_stop(struct catalog *c)
{
	c->stop = true;
}

static bool is_there(const struct catalog *c, const struct entry *e)
{
	char name[NAME_SIZE];

	entry_name(c, e, name, sizeof(name));
	return !faccessat(c->dir_fd, name, F_OK, 0);
}

/* The store removes the oldest first. */
static void forget_gone(struct catalog *c)
{
	while (c->first < c->n && !is_there(c, &c->entries[c->first]))
		drop_first(c);
	if (c->first == c->n) {
		c->first = c->n = 0;
		c->unknown = 0;
	}
}

void catalog_note(struct catalog *c, const struct catalog_profile *p)
{
	char line[LINE_SIZE];
	int len = put_line(line, sizeof(line), p);
	struct entry e;

	LOCKED(c);
	if (len <= 0 || (size_t)len >= sizeof(line))
		return;
	forget_gone(c);
	make_room(c);
	journal_line(c, line, (size_t)len);
	line[len - 1] = '\0';
	if (parse_line(c, line, &e))
		insert(c, &e);
	/* Most of it is history: so it stays in proportion to what is stored. */
	if (c->lines > 2 * (c->n - c->first) + 10000)
		write_journal(c);
}

/* --- what is gone, what is new ---------------------------------------------------------------- */

/* The youngest file whose sums are not known. */
static bool next_unknown(struct catalog *c, struct entry *e, char *name, size_t size)
{
	u32 i;

	LOCKED(c);
	for (i = c->n; c->unknown && i-- > c->first;)
		if (!c->entries[i].known) {
			*e = c->entries[i];
			entry_name(c, e, name, size);
			return true;
		}
	return false;
}

/* Most of a profile's time is spent in this program. */
static const char *label_of(const struct view *v, const char *key)
{
	u32 i;

	/* Sorted by weight within a key. */
	for (i = 0; i < v->nlabels; i++)
		if (!strcmp(v->labels[i].key, key))
			return v->labels[i].value;
	return "";
}

static void read_unknown(struct catalog *c, const struct entry *of, const char *name)
{
	struct view_options o = { 0 };
	struct view *v = view_new(&o);
	char line[LINE_SIZE];
	struct entry *e;
	int len;
	bool ok = v && !view_add_file(v, 0, c->dir_fd, name) && !view_finish(v);

	LOCKED(c);
	e = find(c, of);
	if (e && !e->known) {
		struct service *s = &c->services[e->service];

		/* One that cannot be read counts nothing, and is not tried again. */
		e->known = true;
		c->unknown--;
		if (ok) {
			e->value = v->tree.nodes[0].total[0];
			e->duration_ms = (u32)MIN((v->end_ns[0] - v->start_ns[0]) / 1000000,
						  (s64)UINT32_MAX);
			s->exe = text(c, label_of(v, "process.executable"));
			s->container = text(c, label_of(v, "container"));
		}
		len = put_entry(c, e, line, sizeof(line));
		if (len > 0 && (size_t)len < sizeof(line))
			journal_line(c, line, (size_t)len);
	}
	view_free(v);
}

u32 catalog_refresh(struct catalog *c, u64 until_ns)
{
	char name[NAME_SIZE];
	struct entry e;
	u32 left;

	pthread_mutex_lock(&c->lock);
	forget_gone(c);
	pthread_mutex_unlock(&c->lock);
	while (!c->stop && now_monotonic() < until_ns && next_unknown(c, &e, name, sizeof(name)))
		read_unknown(c, &e, name);
	pthread_mutex_lock(&c->lock);
	left = c->unknown;
	pthread_mutex_unlock(&c->lock);
	return left;
}

/* --- questions -------------------------------------------------------------------------------- */

static bool overlaps(const struct entry *e, u64 from_ms, u64 to_ms)
{
	return e->start_ms < to_ms && e->start_ms + MAX(e->duration_ms, 1u) > from_ms;
}

/* The first entry that may reach into a range. */
static u32 first_of(const struct catalog *c, u64 from_ms)
{
	return lower_bound(c, from_ms > WINDOW_MAX ? from_ms - WINDOW_MAX : 0);
}

static int summary_services(struct catalog *c, struct catalog_summary *s, const u32 *place)
{
	u32 i;

	s->services = calloc((size_t)s->nservices + 1, sizeof(*s->services));
	if (!s->services)
		return -ENOMEM;
	for (i = 0; i < c->nservices; i++) {
		const struct service *from = &c->services[i];
		struct catalog_service *to = &s->services[place[i]];

		if (place[i] == UINT32_MAX)
			continue;
		snprintf(to->key, sizeof(to->key), "%s", from->key);
		utf8_clean(to->service, sizeof(to->service), from->service, 255);
		utf8_clean(to->container, sizeof(to->container), from->container, 255);
		utf8_clean(to->exe, sizeof(to->exe), from->exe, 255);
	}
	return 0;
}

static void summary_add(struct catalog_summary *s, struct catalog_service *to,
			const struct entry *e)
{
	to->value[e->type] += e->value;
	s->values[e->type] += e->value;
	to->stacks += e->stacks;
	to->whole += e->whole;
	to->profiles++;
}

int catalog_summary(struct catalog *c, u64 from_ms, u64 to_ms, struct catalog_summary *ret)
{
	struct catalog_summary s = { 0 };
	_cleanup_free_ u32 *place = NULL;
	u64 covered_to = from_ms;
	u32 i;

	LOCKED(c);
	place = malloc(((size_t)c->nservices + 1) * sizeof(*place));
	if (!place)
		return -ENOMEM;
	memset(place, 0xff, ((size_t)c->nservices + 1) * sizeof(*place));
	for (i = first_of(c, from_ms); i < c->n && c->entries[i].start_ms < to_ms; i++)
		if (overlaps(&c->entries[i], from_ms, to_ms) &&
		    place[c->entries[i].service] == UINT32_MAX)
			place[c->entries[i].service] = s.nservices++;
	if (summary_services(c, &s, place))
		return -ENOMEM;
	for (i = first_of(c, from_ms); i < c->n && c->entries[i].start_ms < to_ms; i++) {
		const struct entry *e = &c->entries[i];
		u64 end = e->start_ms + e->duration_ms;

		if (!overlaps(e, from_ms, to_ms))
			continue;
		summary_add(&s, &s.services[place[e->service]], e);
		/* Whole windows count, also those that reach over an end of the range. */
		if (end > covered_to || covered_to == from_ms) {
			s.covered_ms +=
				end - MAX(e->start_ms, covered_to == from_ms ? 0 : covered_to);
			covered_to = MAX(end, from_ms + 1);
		}
	}
	memcpy(s.types, c->types, sizeof(s.types));
	s.ntypes = c->ntypes;
	if (c->first < c->n) {
		s.first_ms = c->entries[c->first].start_ms;
		s.last_ms = c->entries[c->n - 1].start_ms + c->entries[c->n - 1].duration_ms;
	}
	*ret = s;
	return 0;
}

void catalog_summary_fini(struct catalog_summary *s)
{
	free(s->services);
}

static bool matches(const struct catalog *c, const struct catalog_range *r, const struct entry *e)
{
	if (!overlaps(e, r->from_ms, r->to_ms))
		return false;
	if (r->type && strcmp(c->types[e->type], r->type))
		return false;
	return !r->service || !strcmp(r->service, "*") ||
	       !strcmp(c->services[e->service].key, r->service);
}

void catalog_strip(struct catalog *c, const struct catalog_range *r, u64 *ret, u32 n)
{
	double step = (double)(r->to_ms - r->from_ms) / n;
	u32 i;

	memset(ret, 0, n * sizeof(*ret));
	if (r->to_ms <= r->from_ms)
		return;
	LOCKED(c);
	for (i = first_of(c, r->from_ms); i < c->n && c->entries[i].start_ms < r->to_ms; i++) {
		const struct entry *e = &c->entries[i];
		double a, b, all = MAX(e->duration_ms, 1u);
		u32 k;

		if (!matches(c, r, e))
			continue;
		a = MAX((double)e->start_ms - (double)r->from_ms, 0.0);
		b = MIN((double)e->start_ms + all - (double)r->from_ms, step * n);
		/* Spread over the pieces that the window covers. */
		for (k = (u32)(a / step); k < n && k * step < b; k++) {
			double from = MAX(a, k * step), to = MIN(b, (k + 1) * step);

			if (to > from)
				ret[k] += (u64)((double)e->value * (to - from) / all);
		}
	}
}

/* Names of a range's files, youngest first; owned. */
static char (*range_names(struct catalog *c, const struct catalog_range *r, u32 *ret_n,
			  u32 *ret_left))[NAME_SIZE]
{
	char(*names)[NAME_SIZE] = NULL;
	u32 cap = 0, n = 0, left = 0, i;

	LOCKED(c);
	for (i = lower_bound(c, r->to_ms); i-- > c->first;) {
		const struct entry *e = &c->entries[i];

		if (e->start_ms + WINDOW_MAX < r->from_ms)
			break;
		if (!matches(c, r, e))
			continue;
		if (n == CATALOG_FILES_MAX || VEC_RESERVE(names, cap, n + 1, CATALOG_FILES_MAX)) {
			left++;
			continue;
		}
		entry_name(c, e, names[n++], NAME_SIZE);
	}
	*ret_n = n;
	*ret_left = left;
	return names;
}

int catalog_add(struct catalog *c, const struct catalog_range *r, struct view *v, u32 side,
		u64 until_ns, u32 *ret_left)
{
	u32 n, left, i;
	char(*names)[NAME_SIZE] = range_names(c, r, &n, &left);
	int err = 0;

	for (i = 0; i < n && err != -ENOMEM; i++) {
		if (c->stop || now_monotonic() > until_ns) {
			left += n - i;
			break;
		}
		/* Removed meanwhile, cut by a power failure: the others still count. */
		err = view_add_file(v, side, c->dir_fd, names[i]);
	}
	free(names);
	*ret_left = left;
	return err == -ENOMEM ? err : 0;
}

int catalog_only(struct catalog *c, const struct catalog_range *r, char *name, size_t size)
{
	u32 n, left;
	char(*names)[NAME_SIZE] = range_names(c, r, &n, &left);
	int err = n == 1 ? 0 : n ? -EEXIST : -ENOENT;

	if (!err)
		snprintf(name, size, "%s", names[0]);
	free(names);
	return err;
}

int catalog_read(struct catalog *c, const char *name, u8 **ret, size_t *ret_len)
{
	char path[NAME_SIZE + 64], type[48], key[CATALOG_KEY];
	u64 start;

	if (!catalog_parse_name(name, &start, type, key) || strchr(name, '/'))
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", c->dir_fd, name);
	return read_file(path, VIEW_FILE_MAX, (char **)ret, ret_len);
}

/* --- without a daemon ------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
	return strcmp(b, a);
}

int catalog_add_dir(const char *store_path, const struct catalog_range *r, struct view *v, u32 side)
{
	_cleanup_close_ int fd = -1;
	_cleanup_closedir_ DIR *d = NULL;
	char(*names)[NAME_SIZE] = NULL, path[PATH_MAX], type[48], key[CATALOG_KEY];
	bool all = !r->service || !strcmp(r->service, "*");
	u32 n = 0, cap = 0, i;
	struct dirent *de;
	u64 start;
	int err = 0;

	snprintf(path, sizeof(path), "%s/profiles", store_path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : open_dir(fd);
	if (!d)
		return -errno;
	for (i = 0; i < SCAN_MAX && (de = readdir(d)); i++) {
		if (!catalog_parse_name(de->d_name, &start, type, key) || start < r->from_ms ||
		    start >= r->to_ms || strlen(de->d_name) >= NAME_SIZE ||
		    (r->type && strcmp(r->type, type)) || (!all && strcmp(r->service, key)))
			continue;
		if (VEC_RESERVE(names, cap, n + 1, CATALOG_ENTRIES_MAX))
			break;
		strcpy(names[n++], de->d_name);
	}
	if (n)
		qsort(names, n, sizeof(names[0]), descending);
	for (i = 0; i < n && i < CATALOG_FILES_MAX && err != -ENOMEM; i++)
		err = view_add_file(v, side, fd, names[i]);
	free(names);
	return err == -ENOMEM ? err : 0;
}
