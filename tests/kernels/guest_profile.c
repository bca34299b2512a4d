// SPDX-License-Identifier: Apache-2.0
/*
 * Test guest: reads profiles with code generated from the published schema and answers questions
 * about their stacks. In: a gzip file of the profiler. Out: see guest.h.
 */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#define PROFILE_MAX  (64u << 20)
#define BROKEN_SHOWN 5

static int gunzip(const char *path, u8 **ret, size_t *ret_len)
{
	_cleanup_free_ u8 *data = malloc(PROFILE_MAX);
	gzFile f = gzopen(path, "rb");
	int n = -1;

	if (f && data)
		n = gzread(f, data, PROFILE_MAX);
	if (f)
		gzclose(f);
	if (n <= 0 || (u32)n >= PROFILE_MAX)
		return -EINVAL;
	*ret_len = (size_t)n;
	*ret = take_ptr(data);
	return 0;
}

/* Ids run from 1 to n in any order; each once. */
#define BY_ID(p, what)                                                 \
	({                                                             \
		size_t __n = (p)->msg->n_##what, __i, __good = 0;      \
		(p)->what##s = calloc(__n + 1, sizeof(*(p)->what##s)); \
		for (__i = 0; (p)->what##s && __i < __n; __i++) {      \
			u64 __id = (p)->msg->what[__i]->id;            \
			if (!__id || __id > __n || (p)->what##s[__id]) \
				break;                                 \
			(p)->what##s[__id] = (p)->msg->what[__i];      \
			__good++;                                      \
		}                                                      \
		__good == __n && (p)->what##s;                         \
	})

void profile_fini(struct profile *p)
{
	free(p->locations);
	free(p->functions);
	free(p->mappings);
	if (p->msg)
		pprof__profile__free_unpacked(p->msg, NULL);
}

int profile_read(const char *path, struct profile *p)
{
	_cleanup_free_ u8 *data = NULL;
	size_t len;
	int err = gunzip(path, &data, &len);

	if (err)
		return err;
	p->msg = pprof__profile__unpack(NULL, len, data);
	if (!p->msg || p->msg->period <= 0)
		return -EBADMSG;
	return BY_ID(p, location) && BY_ID(p, function) && BY_ID(p, mapping) ? 0 : -EBADMSG;
}

static const char *text(const struct profile *p, s64 index)
{
	return index >= 0 && (u64)index < p->msg->n_string_table ? p->msg->string_table[index] : "";
}

static void read_frame(const struct profile *p, u64 id, struct stack *s)
{
	const Pprof__Location *l = id <= p->msg->n_location ? p->locations[id] : NULL;
	const char *name = "", *file = "";
	u64 function;

	if (!l || s->n == FRAMES_MAX)
		return;
	if (l->n_line) {
		function = l->line[0]->function_id;
		if (function && function <= p->msg->n_function)
			name = text(p, p->functions[function]->name);
	}
	if (l->mapping_id && l->mapping_id <= p->msg->n_mapping)
		file = text(p, p->mappings[l->mapping_id]->filename);
	s->names[s->n] = name;
	s->kernel[s->n++] = !strcmp(file, "[kernel.kallsyms]");
}

u32 profile_samples(const struct profile *p)
{
	return (u32)p->msg->n_sample;
}

void profile_sample(const struct profile *p, u32 index, struct stack *s)
{
	const Pprof__Sample *m = p->msg->sample[index];
	size_t i;

	memset(s, 0, sizeof(*s));
	s->executable = "";
	if (m->n_value)
		s->count = ((u64)m->value[0] + (u64)p->msg->period / 2) / (u64)p->msg->period;
	for (i = 0; i < m->n_location_id; i++)
		read_frame(p, m->location_id[i], s);
	for (i = 0; i < m->n_label; i++) {
		const char *key = text(p, m->label[i]->key);

		if (!strcmp(key, "pid"))
			s->pid = m->label[i]->str ? atoll(text(p, m->label[i]->str))
						  : m->label[i]->num;
		else if (!strcmp(key, "process.executable"))
			s->executable = text(p, m->label[i]->str);
	}
}

/* Leaf to root from busy(): the levels as deep.c nests them, main(). */
static bool chain_is_whole(const struct stack *s, u32 busy)
{
	char want[16];
	u32 i;

	if (s->n < busy + DEPTH + 2)
		return false;
	for (i = 1; i <= DEPTH; i++) {
		snprintf(want, sizeof(want), "level%u", (DEPTH - i) * 7 % 16);
		if (strcmp(s->names[busy + i], want))
			return false;
	}
	return !strcmp(s->names[busy + i], "main");
}

static bool in_busy(const struct stack *s, u32 *at)
{
	for (*at = 0; *at < s->n; (*at)++)
		if (!strcmp(s->names[*at], "busy"))
			return true;
	return false;
}

void profile_print_stack(const char *what, const struct stack *s)
{
	u32 i;

	printf("%s, %" PRIu64 " times:", what, s->count);
	for (i = 0; i < s->n; i++)
		printf(" %s%s", s->kernel[i] ? "k:" : "", *s->names[i] ? s->names[i] : "?");
	putchar('\n');
}

bool profile_says(const struct profile *p, const char *comment_part)
{
	size_t i;

	for (i = 0; i < p->msg->n_comment; i++)
		if (strstr(text(p, p->msg->comment[i]), comment_part))
			return true;
	return false;
}

s64 profile_last_busy(const struct profile *p)
{
	struct stack s;
	s64 pid = 0;
	u32 i, at;

	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		if (in_busy(&s, &at))
			pid = MAX(pid, s.pid);
	}
	return pid;
}

static bool is_of(const struct stack *s, const char *executable, s64 pid)
{
	return (!pid || s->pid == pid) && (!executable || !strcmp(s->executable, executable));
}

void profile_chain(const struct profile *p, const char *executable, s64 pid, struct chain *ret)
{
	struct stack s;
	u32 i, at;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < profile_samples(p); i++) {
		profile_sample(p, i, &s);
		if (!is_of(&s, executable, pid))
			continue;
		ret->samples += s.count;
		if (!in_busy(&s, &at))
			continue;
		ret->busy += s.count;
		if (!chain_is_whole(&s, at))
			continue;
		ret->chain += s.count;
		if (!strcmp(s.names[s.n - 1], "_start"))
			ret->whole += s.count;
	}
}

void profile_show_broken(const struct profile *p, const char *executable, s64 pid)
{
	struct stack s;
	u32 i, at, shown = 0;

	for (i = 0; i < profile_samples(p) && shown < BROKEN_SHOWN; i++) {
		profile_sample(p, i, &s);
		if (is_of(&s, executable, pid) && in_busy(&s, &at) &&
		    strcmp(s.names[s.n - 1], "_start")) {
			profile_print_stack("broken", &s);
			shown++;
		}
	}
}

/* --- sums ------------------------------------------------------------------------------------- */

/* Samples of the host as a profile's comments tell them; lost: all kinds together. */
struct told {
	u64 due, kept, lost;
};

/* "samples of the host: 590 due, 589 kept, lost: busy 1, counts_full 0". */
static bool read_told(const struct profile *p, struct told *ret)
{
	const char *line = NULL, *s;
	size_t i;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < p->msg->n_comment; i++) {
		s = text(p, p->msg->comment[i]);
		if (sscanf(s, "samples of the host: %" SCNu64 " due, %" SCNu64 " kept", &ret->due,
			   &ret->kept) == 2)
			line = s;
	}
	s = line ? strstr(line, "lost:") : NULL;
	while (s && (s = strchr(s, ' '))) {
		s++;
		ret->lost += strtoull(s, NULL, 10);
	}
	return line;
}

/* One by one they may be of different rates, of which the period is the mean. */
static u64 nanoseconds(const struct profile *p)
{
	u64 ns = 0;
	size_t i;

	for (i = 0; i < p->msg->n_sample; i++)
		ns += p->msg->sample[i]->n_value ? (u64)p->msg->sample[i]->value[0] : 0;
	return ns;
}

static void judge_sums(const char *name, const struct told *t, u64 in_files)
{
	verdict(t->due && t->due == t->kept + t->lost && in_files == t->kept, name,
		"%" PRIu64 " due, %" PRIu64 " kept, %" PRIu64 " lost, %" PRIu64 " in the file",
		t->due, t->kept, t->lost, in_files);
}

void check_sums(const struct profile *p, const char *name)
{
	struct told t;

	read_told(p, &t);
	judge_sums(name, &t, nanoseconds(p) / (u64)p->msg->period);
}

/* --- the daemon's store ----------------------------------------------------------------------- */

#define STORE "/tmp/store/profiles"

int store_find(const char *part, char *ret, size_t size)
{
	struct dirent *e;
	DIR *d = opendir(STORE);
	int err = -ENOENT;

	while (d && (e = readdir(d)))
		if (*e->d_name != '.' && strstr(e->d_name, part)) {
			snprintf(ret, size, STORE "/%s", e->d_name);
			err = 0;
		}
	if (d)
		closedir(d);
	return err;
}

void check_store_sums(void)
{
	struct profile p = { 0 };
	u64 ns = 0, period = 1, files = 0;
	struct told t = { 0 };
	struct dirent *e;
	char path[512];
	DIR *d = opendir(STORE);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), STORE "/%s", e->d_name);
		if (!strstr(e->d_name, "-cpu-") || profile_read(path, &p))
			continue;
		files += read_told(&p, &t);
		ns += nanoseconds(&p);
		period = (u64)p.msg->period;
		profile_fini(&p);
		memset(&p, 0, sizeof(p));
	}
	if (d)
		closedir(d);
	judge_sums("due-is-kept-plus-lost", &t, ns / period);
	verdict(files >= 3, "store", "%" PRIu64 " profiles of time on CPU", files);
}
