// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. In: an INI file or its text. Out: struct config, or one line that says where the
 * file is wrong and what was expected there. inih splits lines into section, key and value; this
 * file feeds it line by line, which gives every error its line number and lets nothing through
 * that inih would cut, join or skip without a word.
 */
#include "config.h"
#include "envelope.h"
#include "headers.h"

#include "htab.h"
#include "pprof.h"
#include "service.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define LABELS   "labels"
#define RUNTIME  "runtime" /* point, and a name: a section of that runtime */
#define UPLOAD   "upload"  /* alone, or point and a name: a server */
#define HINT_MAX 64        /* longer names get no hint */
#define TEXT_MAX 1024

enum type {
	TYPE_BOOL,
	TYPE_NUMBER,
	TYPE_DECIMAL,
	TYPE_CHOICE,
	TYPE_URL,
	TYPE_SAFE_URL, /* nobody on the way can change what it says */
	TYPE_PATH,
	TYPE_WORD,
	TYPE_TEXT,
	TYPE_NAMES,
	TYPE_MATCH,
};

struct row {
	struct config_key key;
	enum type type;
	size_t offset; /* in struct config, or in struct config_runtime */
	double min, max;
	const char *choices; /* "a|b" */
	const char *without; /* of a text: characters that it may not have */
	bool optional;       /* may be empty */
	bool live;           /* a running daemon can change it in place */
};

/* clang-format off */
#define ROW(kind, section, name, member, expected, standard, help, ...) \
	{ .key = { section, name, expected, standard, help }, .type = kind, \
	  .offset = offsetof(struct config, member), __VA_ARGS__ }
#define BOOL(section, name, member, standard, help, ...) \
	ROW(TYPE_BOOL, section, name, member, "true or false", standard, help, __VA_ARGS__)
#define NUMBER(section, name, member, lo, hi, standard, help, ...) \
	ROW(TYPE_NUMBER, section, name, member, "number " #lo ".." #hi, standard, help, \
	    .min = lo, .max = hi, __VA_ARGS__)
#define DECIMAL(section, name, member, lo, hi, standard, help, ...) \
	ROW(TYPE_DECIMAL, section, name, member, "number " #lo ".." #hi, standard, help, \
	    .min = lo, .max = hi, __VA_ARGS__)
#define CHOICE(section, name, member, list, expected, standard, help) \
	ROW(TYPE_CHOICE, section, name, member, expected, standard, help, .choices = list)
#define STRING(kind, section, name, member, expected, standard, help) \
	ROW(kind, section, name, member, expected, standard, help)
#define OPTIONAL_STRING(kind, section, name, member, expected, standard, help) \
	ROW(kind, section, name, member, expected ", or nothing", standard, help, .optional = true)

static const struct row rows[] = {
	BOOL("ebpf_profiler", "enabled", enabled, "false",
	     "profile this host; without it the daemon does nothing", .live = true),
	NUMBER("ebpf_profiler", "sample_hz", sample_hz, 1, 1000, "19",
	       "samples per second on each CPU", .live = true),
	NUMBER("ebpf_profiler", "upload_interval_s", upload_interval_s, 1, 3600, "60",
	       "length of one window in seconds; each window gives one profile per service", .live = true),
	BOOL("ebpf_profiler", "kernel_frames", kernel_frames, "true",
	     "keep the kernel part of stacks"),
	NUMBER("ebpf_profiler", "max_frames", max_frames, 1, 512, "64",
	       "user frames kept per stack"),
	BOOL("ebpf_profiler", "dwarf_unwind", dwarf_unwind, "true",
	     "walk stacks by tables compiled from each file's .eh_frame; false: frame pointers only"),
	NUMBER("ebpf_profiler", "table_memory_mb", table_memory_mb, 1, 4096, "64",
	       "megabytes of kernel memory that unwind tables may take"),
	DECIMAL("ebpf_profiler", "cpu_budget", cpu_budget, 0.01, 100, "1.0",
		"percent of one CPU that the daemon may use, BPF time included; "
		"above it less is sampled", .live = true),
	BOOL("ebpf_profiler", "offcpu", offcpu, "true",
	     "profile where threads wait, besides where they run"),
	DECIMAL("ebpf_profiler", "offcpu_min_ms", offcpu_min_ms, 0, 10000, "1",
		"milliseconds; shorter waits are dropped"),
	BOOL("ebpf_profiler", "offcpu_dwarf", offcpu_dwarf, "false",
	     "walk the stacks of waits by unwind tables, if dwarf_unwind is on; else by frame pointers"),
	BOOL("ebpf_profiler", "lock", lock, "false",
	     "profile the time spent waiting for locks (futexes) as a type of its own"),
	BOOL("ebpf_profiler", "thread_context", thread_context, "false",
	     "label samples with the trace, span and route that their threads publish"),
	BOOL("ebpf_profiler", "python_stacks", python_stacks, "true",
	     "walk the stacks of Python code, 3.13 and newer"),
	OPTIONAL_STRING(TYPE_NAMES, "ebpf_profiler", "runtime_stacks", runtime_stacks,
	       "names separated by commas", "",
	       "other runtimes whose stacks are walked"),
	NUMBER("ebpf_profiler", "runtime_hz", runtime_hz, 1, 1000, "19",
	       "walks per second of a runtime's stacks"),
	BOOL("ebpf_profiler", "runtime_internals", runtime_internals, "false",
	     "show a runtime's own native frames, too, between those of the program"),
	BOOL("ebpf_profiler", "strip_process_args", strip_process_args, "true",
	     "of a command line only the executable's base name leaves the host"),
	BOOL("ebpf_profiler", "plain_pid", plain_pid, "false",
	     "send pids as they are; false sends a keyed hash", .live = true),
	BOOL("ebpf_profiler", "home_paths", home_paths, "false",
	     "send where below home directories files lie; false sends their names only"),
	OPTIONAL_STRING(TYPE_WORD, "web", "listen", web_listen,
	       "ADDRESS:PORT", "127.0.0.1:7077",
	       "address of the local page, in numbers; empty: no page"),
	OPTIONAL_STRING(TYPE_PATH, "web", "token_file", web_token_file,
	       "absolute path", "",
	       "file with the token that the page asks for; needed when listen is no loopback address"),
	OPTIONAL_STRING(TYPE_WORD, "web", "hosts", web_hosts,
	       "names separated by commas", "",
	       "names of this host under which the page may be opened, besides localhost and addresses"),
	OPTIONAL_STRING(TYPE_SAFE_URL, "remote", "url", remote_url,
	       "https:// URL without query, or http:// and a loopback address", "",
	       "server that may set enabled and upload_interval_s, and nothing else; empty: none"),
	OPTIONAL_STRING(TYPE_PATH, "remote", "token_file", remote_token_file,
	       "absolute path", "",
	       "file that holds the bearer token to ask with"),
	OPTIONAL_STRING(TYPE_PATH, "remote", "ca_file", remote_ca_file,
	       "absolute path", "",
	       "PEM file of the authorities to trust there; empty: the system's"),
	NUMBER("remote", "poll_s", remote_poll_s, 1, 86400, "60",
	       "seconds between two questions to it"),
	OPTIONAL_STRING(TYPE_PATH, "service", "rules", service_rules,
	       "absolute path", "",
	       "file with rules that name services"),
	OPTIONAL_STRING(TYPE_MATCH, "filter", "include", filter_include,
	       "KIND:PATTERN separated by commas", "",
	       "processes to profile; empty: all"),
	OPTIONAL_STRING(TYPE_MATCH, "filter", "exclude", filter_exclude,
	       "KIND:PATTERN separated by commas", "",
	       "processes to leave out"),
	NUMBER("filter", "min_age_s", filter_min_age_s, 0, 86400, "0",
	       "seconds that a process must have lived before it is profiled"),
	STRING(TYPE_PATH, "store", "path", store_path, "absolute path", "/var/lib/ebpfprofiler",
	       "directory of the local store and of the spools"),
	NUMBER("store", "max_mb", store_max_mb, 1, 1048576, "512",
	       "disk space for stored profiles; the oldest go first"),
};

/* Of each section [runtime.NAME]. */
static const struct row runtime_rows[] = {
	{ .key = { RUNTIME ".NAME", "enabled", "true or false, or nothing", "",
		   "walk the stacks of this runtime; empty: if runtime_stacks has its name" },
	  .type = TYPE_CHOICE, .offset = offsetof(struct config_runtime, enabled),
	  .choices = "true|false", .optional = true },
	{ .key = { RUNTIME ".NAME", "hz", "number 0..1000", "0",
		   "walks per second of this runtime's stacks; 0: as runtime_hz says" },
	  .type = TYPE_NUMBER, .offset = offsetof(struct config_runtime, hz), .max = 1000 },
	{ .key = { RUNTIME ".NAME", "layout", "absolute path, or nothing", "",
		   "file with the memory layouts of more versions of this runtime" },
	  .type = TYPE_PATH, .offset = offsetof(struct config_runtime, layout), .optional = true },
	{ .key = { RUNTIME ".NAME", "labels", "true or false", "false",
		   "add the labels that this runtime offers, such as the script of a request" },
	  .type = TYPE_BOOL, .offset = offsetof(struct config_runtime, labels) },
};

/* Of [upload] and each section [upload.NAME]. */
#define UP(kind, name, member, expected, standard, help, ...) \
	{ .key = { UPLOAD, name, expected, standard, help }, .type = kind, \
	  .offset = offsetof(struct config_upload, member), __VA_ARGS__ }
#define UP_PATH(name, member, help) \
	UP(TYPE_PATH, name, member, "absolute path, or nothing", "", help, .optional = true)
static const struct row upload_rows[] = {
	UP(TYPE_URL, "url", url, "http:// or https:// URL without query, or nothing", "",
	   "server to send to; empty: nothing leaves the host", .optional = true),
	UP(TYPE_CHOICE, "protocol", protocol,
	   "pprof, otel-pprof, pyroscope, parca, otlp or otlp-grpc", "pprof",
	   "what the server understands", .choices = ENVELOPE_PROTOCOLS),
	UP_PATH("token_file", token_file, "file that holds the bearer token"),
	UP(TYPE_TEXT, "user", user, "text without :, or nothing", "",
	   "user name for basic authentication", .optional = true, .without = ":"),
	UP_PATH("password_file", password_file, "file that holds the password of user"),
	UP(TYPE_TEXT, "headers", headers, "NAME: VALUE, several separated by commas, or nothing", "",
	   "more HTTP headers, such as X-Scope-OrgID: a-tenant; for what is secret take headers_file",
	   .optional = true),
	UP_PATH("headers_file", headers_file, "file with one NAME: VALUE a line, for headers that are secret"),
	UP_PATH("ca_file", ca_file, "PEM file of the authorities to trust; empty: the system's"),
	UP_PATH("cert_file", cert_file, "PEM file with the certificate that the server asks for"),
	UP_PATH("key_file", key_file, "PEM file with the key of cert_file"),
	UP(TYPE_WORD, "proxy", proxy, "[SCHEME://]HOST[:PORT], or nothing", "",
	   "proxy to send through; empty: what the environment names", .optional = true),
	UP(TYPE_CHOICE, "symbolize", symbolize, "none or host", "none",
	   "where native function names are found: none (by the server) or host (here)",
	   .choices = "none|host"),
	UP(TYPE_NUMBER, "spool_mb", spool_mb, "number 1..65536", "64",
	   "disk space for profiles that wait for the server; the oldest go first",
	   .min = 1, .max = 65536),
	UP(TYPE_NUMBER, "spool_hours", spool_hours, "number 1..720", "24",
	   "profiles that have waited longer are dropped", .min = 1, .max = 720),
};
/* clang-format on */

/* Kinds of sections of which there may be several. */
enum { MANY_RUNTIME, MANY_UPLOAD, MANY };
static const struct many {
	const char *word;
	bool alone; /* [WORD] is one of them, too, and its name is "" */
	const struct row *rows;
	u32 nrows, max;
	size_t size;
} many[MANY] = {
	[MANY_RUNTIME] = { RUNTIME, false, runtime_rows, ARRAY_SIZE(runtime_rows),
			   CONFIG_MAX_RUNTIMES, sizeof(struct config_runtime) },
	[MANY_UPLOAD] = { UPLOAD, true, upload_rows, ARRAY_SIZE(upload_rows), CONFIG_MAX_UPLOADS,
			  sizeof(struct config_upload) },
};
#define MANY_MAX      CONFIG_MAX_RUNTIMES /* the largest max */
#define MANY_ROWS_MAX ARRAY_SIZE(upload_rows)
static_assert(MANY_ROWS_MAX >= ARRAY_SIZE(runtime_rows), "the largest nrows");
static_assert(MANY_MAX >= CONFIG_MAX_UPLOADS, "the largest max");

struct parse {
	struct config *c;
	const char *name;
	const char *pos, *end; /* what is left of the text */
	u32 line;
	bool pair_due;                  /* inih owes us a pair for this line */
	u32 row_line[ARRAY_SIZE(rows)]; /* where a key was set, 0: not yet */
	u32 many_line[MANY][MANY_MAX][MANY_ROWS_MAX];
	u32 label_line[CONFIG_MAX_LABELS];
	char *err;
	size_t err_size;
	int rc;
};

const struct config_key *config_table(u32 i)
{
	if (i < ARRAY_SIZE(rows))
		return &rows[i].key;
	i -= ARRAY_SIZE(rows);
	if (i < ARRAY_SIZE(upload_rows))
		return &upload_rows[i].key;
	i -= ARRAY_SIZE(upload_rows);
	return i < ARRAY_SIZE(runtime_rows) ? &runtime_rows[i].key : NULL;
}

/*
 * Is a section of the file one of many? Then *ret_name is what stands behind the point, "" without
 * one; which may not be a name.
 */
static const struct many *many_of(const char *section, const char **ret_name)
{
	size_t i;

	for (i = 0; i < MANY; i++) {
		size_t len = strlen(many[i].word);

		if (strncmp(section, many[i].word, len) ||
		    (section[len] != '.' && (section[len] || !many[i].alone)))
			continue;
		*ret_name = section + len + (section[len] == '.');
		return &many[i];
	}
	return NULL;
}

/* Does a key of the table belong into this section of the file? */
static bool belongs(const struct config_key *k, const char *section)
{
	const char *name;
	const struct many *m = many_of(section, &name);

	return m ? m->rows[0].key.section == k->section : !strcmp(k->section, section);
}

/* --- errors ---------------------------------------------------------------------------------- */

/* The text may quote the file: what is no UTF-8 or would steer a terminal is replaced. */
static void put_error(char *err, size_t err_size, const char *fmt, ...) __printf(3, 4);
static void put_error(char *err, size_t err_size, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	utf8_clean(err, err_size, text, sizeof(text));
}

/* Only the first error counts: it often causes those that would follow. Returns -errno. */
static int fail(struct parse *p, int rc, const char *fmt, ...) __printf(3, 4);
static int fail(struct parse *p, int rc, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list args;

	if (p->rc)
		return p->rc;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	put_error(p->err, p->err_size, "%s:%u: %s", p->name, p->line, text);
	p->rc = rc;
	return rc;
}

static u32 min3(u32 a, u32 b, u32 c)
{
	return MIN(MIN(a, b), c);
}

/* Edits (insert, delete, replace, swap of neighbours) between two names, case aside. */
static u32 edit_distance(const char *a, const char *b)
{
	u32 d[3][HINT_MAX + 1];
	size_t m = strlen(a), n = strlen(b), i, j;

	if (m > HINT_MAX || n > HINT_MAX)
		return UINT32_MAX;
	for (j = 0; j <= n; j++)
		d[0][j] = (u32)j;
	for (i = 1; i <= m; i++) {
		u32 *now = d[i % 3], *before = d[(i + 2) % 3], *older = d[(i + 1) % 3];

		now[0] = (u32)i;
		for (j = 1; j <= n; j++) {
			int x = tolower((u8)a[i - 1]), y = tolower((u8)b[j - 1]);

			now[j] = min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == tolower((u8)b[j - 2]) &&
			    y == tolower((u8)a[i - 2]))
				now[j] = MIN(now[j], older[j - 2] + 1);
		}
	}
	return d[m % 3][n];
}

/* Near enough to be a slip: a third of the name, at least one edit. */
static bool near_miss(const char *given, const char *name, u32 *best)
{
	u32 d = edit_distance(given, name);

	if (d >= *best || d > MAX(strlen(name) / 3, 1u))
		return false;
	*best = d;
	return true;
}

static int fail_section(struct parse *p, const char *section)
{
	const struct config_key *k;
	const char *hint = NULL, *name;
	u32 best = UINT32_MAX, i;

	if (many_of(section, &name))
		return fail(
			p, -EINVAL,
			"[%s]: expected a name of 1..%u letters a-z, digits and _ after the point",
			section, CONFIG_MAX_WORD);
	for (i = 0; (k = config_table(i)); i++)
		if (near_miss(section, k->section, &best))
			hint = k->section;
	if (near_miss(section, LABELS, &best))
		hint = LABELS;
	if (hint)
		return fail(p, -EINVAL, "[%s]: unknown section, did you mean [%s]?", section, hint);
	return fail(p, -EINVAL, "[%s]: unknown section", section);
}

static int fail_key(struct parse *p, const char *section, const char *key)
{
	const struct config_key *k, *hint = NULL;
	u32 best = UINT32_MAX, i;

	for (i = 0; (k = config_table(i)); i++) {
		if (belongs(k, section) && near_miss(key, k->key, &best))
			hint = k;
		else if (!belongs(k, section) && !strcmp(k->key, key))
			return fail(p, -EINVAL, "[%s] %s: unknown key here, it belongs to [%s]",
				    section, key, k->section);
	}
	if (hint)
		return fail(p, -EINVAL, "[%s] %s: unknown key, did you mean %s?", section, key,
			    hint->key);
	return fail(p, -EINVAL, "[%s] %s: unknown key", section, key);
}

/* --- values ---------------------------------------------------------------------------------- */

/*
 * "12", "0.5", ".5": digits and one point, so that neither the locale nor hex, exponents, inf and
 * nan of strtod() come in. The length is bounded so that nothing overflows.
 */
static bool parse_decimal(const char *s, bool point_allowed, double *ret)
{
	double v = 0, unit = 1;
	bool digits = false, point = false;
	size_t i;

	for (i = 0; s[i]; i++) {
		if (i > 15)
			return false;
		if (s[i] == '.' && point_allowed && !point) {
			point = true;
			continue;
		}
		if (!isdigit((u8)s[i]))
			return false;
		digits = true;
		v = v * 10 + (s[i] - '0');
		if (point)
			unit *= 10;
	}
	*ret = v / unit;
	return digits;
}

static bool in_choices(const char *choices, const char *value)
{
	size_t len = strlen(value);
	const char *c = choices;

	while (c) {
		const char *bar = strchr(c, '|');
		size_t n = bar ? (size_t)(bar - c) : strlen(c);

		if (n == len && !memcmp(c, value, n))
			return true;
		c = bar ? bar + 1 : NULL;
	}
	return false;
}

static bool has_blank(const char *s)
{
	return strpbrk(s, " \t") != NULL;
}

/* A path is appended to it, so it must have a host and neither query nor fragment. */
static bool is_url(const char *s)
{
	const char *host;

	if (!strncasecmp(s, "http://", 7))
		host = s + 7;
	else if (!strncasecmp(s, "https://", 8))
		host = s + 8;
	else
		return false;
	return *host && !strchr("/:@", *host) && !has_blank(s) && !strpbrk(s, "?#");
}

/*
 * Of an URL: encrypted, or to this host. A user name could look like the address; here nobody
 * needs one.
 */
static bool is_safe(const char *url)
{
	const char *host = strstr(url, "://") + 3;
	struct in_addr four;
	char name[64];
	size_t len;

	if (!strncasecmp(url, "https:", 6))
		return true;
	if (strchr(host, '@') || strchr(host, '\\'))
		return false;
	len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
	if (len >= sizeof(name) || len > strlen(host) || (host[len] && !strchr(":/", host[len])))
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	if (!strcasecmp(name, "localhost") || !strcmp(name, "[::1]"))
		return true;
	return inet_pton(AF_INET, name, &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

/* A name as in runtime_stacks and [runtime.NAME]; len bytes. */
static bool name_ok(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (!islower((u8)s[i]) && !isdigit((u8)s[i]) && s[i] != '_')
			return false;
	return len && len <= CONFIG_MAX_WORD;
}

#define SEPARATORS ", \t"

/* The next name of a list, NULL at the end. */
static const char *next_name(const char **list, size_t *ret_len)
{
	const char *s = *list + strspn(*list, SEPARATORS);

	*ret_len = strcspn(s, SEPARATORS);
	*list = s + *ret_len;
	return *ret_len ? s : NULL;
}

static bool names_ok(const char *list)
{
	const char *s;
	size_t len;
	u32 n = 0;

	while ((s = next_name(&list, &len)))
		if (!name_ok(s, len) || ++n > CONFIG_MAX_RUNTIMES)
			return false;
	return true;
}

static bool lists(const char *list, const char *name)
{
	const char *s;
	size_t len;

	while ((s = next_name(&list, &len)))
		if (len == strlen(name) && !memcmp(s, name, len))
			return true;
	return false;
}

static bool match_ok(const char *list)
{
	struct match_list *l = malloc(sizeof(*l));
	const char *why;
	bool ok = l && !match_parse_list(list, l, &why);

	free(l);
	return ok;
}

static bool string_fits(const struct row *row, const char *value)
{
	if (!*value)
		return row->optional;
	switch (row->type) {
	case TYPE_CHOICE:
		return in_choices(row->choices, value);
	case TYPE_URL:
		return is_url(value);
	case TYPE_SAFE_URL:
		return is_url(value) && is_safe(value);
	case TYPE_PATH:
		return *value == '/';
	case TYPE_NAMES:
		return names_ok(value);
	case TYPE_MATCH:
		return match_ok(value);
	case TYPE_TEXT:
		return !row->without || !strpbrk(value, row->without);
	default:
		return !has_blank(value);
	}
}

static bool is_string(enum type type)
{
	return type != TYPE_BOOL && type != TYPE_NUMBER && type != TYPE_DECIMAL;
}

/* Of a member that is no string. */
static size_t value_size(enum type type)
{
	assert(!is_string(type));
	return type == TYPE_BOOL     ? sizeof(bool)
	       : type == TYPE_NUMBER ? sizeof(u32)
				     : sizeof(double);
}

static int set_string(char **member, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*member);
	*member = copy;
	return 0;
}

/*
 * `base` is what the row's offset counts from. Returns 0, -EINVAL when the value is not what the
 * row expects, -ENOMEM.
 */
static int set_value(void *base, const struct row *row, const char *value)
{
	void *member = (char *)base + row->offset;
	double number;

	switch (row->type) {
	case TYPE_BOOL:
		if (strcmp(value, "true") && strcmp(value, "false"))
			return -EINVAL;
		*(bool *)member = *value == 't';
		return 0;
	case TYPE_NUMBER:
	case TYPE_DECIMAL:
		if (!parse_decimal(value, row->type == TYPE_DECIMAL, &number) ||
		    number < row->min || number > row->max)
			return -EINVAL;
		if (row->type == TYPE_DECIMAL)
			*(double *)member = number;
		else
			*(u32 *)member = (u32)number;
		return 0;
	default:
		return string_fits(row, value) ? set_string(member, value) : -EINVAL;
	}
}

/* --- keys ------------------------------------------------------------------------------------ */

static bool label_name_ok(const char *s)
{
	if (!isalpha((u8)*s) && *s != '_')
		return false;
	while (*++s)
		if (!isalnum((u8)*s) && *s != '_' && *s != '.')
			return false;
	return true;
}

/* Valid UTF-8 without control characters is what cleaning leaves alone. */
static bool label_value_ok(const char *value)
{
	char clean[CONFIG_MAX_LABEL + 1];
	size_t len = strlen(value);

	if (!len || len > CONFIG_MAX_LABEL)
		return false;
	utf8_clean(clean, sizeof(clean), value, len);
	return !strcmp(clean, value);
}

static bool label_has_name(const char *label, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(label, name, len) && label[len] == '=';
}

static int check_label(struct parse *p, const char *name, const char *value)
{
	u32 i;

	if (!label_name_ok(name))
		return fail(p, -EINVAL,
			    "[labels] %s: expected a name of letters, digits, _ and . that does "
			    "not begin with a digit or .",
			    name);
	if (pprof_own_label(name))
		return fail(p, -EINVAL,
			    "[labels] %s: the profiler sets this label itself, expected "
			    "another name",
			    name);
	for (i = 0; i < p->c->nlabels; i++)
		if (label_has_name(p->c->labels[i], name))
			return fail(p, -EINVAL, "[labels] %s: already set on line %u", name,
				    p->label_line[i]);
	if (!label_value_ok(value))
		return fail(p, -EINVAL, "[labels] %s = %s: expected 1..%u bytes of UTF-8 text",
			    name, value, CONFIG_MAX_LABEL);
	if (p->c->nlabels == CONFIG_MAX_LABELS)
		return fail(p, -EINVAL, "[labels] %s: expected at most %u labels", name,
			    CONFIG_MAX_LABELS);
	return 0;
}

static int add_label(struct parse *p, const char *name, const char *value)
{
	struct config *c = p->c;
	int rc = check_label(p, name, value);
	char *label;

	if (rc)
		return rc;
	if (!c->labels)
		c->labels = calloc(CONFIG_MAX_LABELS, sizeof(*c->labels));
	if (!c->labels || asprintf(&label, "%s=%s", name, value) < 0)
		return fail(p, -ENOMEM, "out of memory");
	p->label_line[c->nlabels] = p->line;
	c->labels[c->nlabels++] = label;
	return 0;
}

/* --- sections of which there are several ----------------------------------------------------- */

/* Each begins with its name. */
static_assert(!offsetof(struct config_runtime, name) && !offsetof(struct config_upload, name),
	      "the name comes first");

static u32 many_count(const struct config *c, const struct many *m)
{
	return m == &many[MANY_RUNTIME] ? c->nruntimes : c->nuploads;
}

static void *many_item(const struct config *c, const struct many *m, u32 i)
{
	return m == &many[MANY_RUNTIME] ? (void *)&c->runtimes[i] : (void *)&c->uploads[i];
}

static bool many_find(const struct config *c, const struct many *m, const char *name, u32 *ret)
{
	for (*ret = 0; *ret < many_count(c, m); ++*ret)
		if (!strcmp(many_item(c, m, *ret), name))
			return true;
	return false;
}

static void many_fini(const struct many *m, void *item)
{
	u32 i;

	for (i = 0; i < m->nrows; i++)
		if (is_string(m->rows[i].type))
			free(*(char **)((char *)item + m->rows[i].offset));
}

/* Defaults. */
static int many_init(const struct many *m, void *item, const char *name)
{
	u32 i;
	int rc = 0;

	memset(item, 0, m->size);
	snprintf(item, CONFIG_MAX_WORD + 1, "%s", name);
	for (i = 0; i < m->nrows && !rc; i++)
		rc = set_value(item, &m->rows[i], m->rows[i].key.standard);
	if (rc)
		many_fini(m, item);
	return rc;
}

static int many_room(struct config *c)
{
	if (!c->runtimes)
		c->runtimes = calloc(CONFIG_MAX_RUNTIMES, sizeof(*c->runtimes));
	if (!c->uploads)
		c->uploads = calloc(CONFIG_MAX_UPLOADS, sizeof(*c->uploads));
	return c->runtimes && c->uploads ? 0 : -ENOMEM;
}

/* Its place in the config is made with the section's first line. */
static int add_section(struct parse *p, const struct many *m, const char *name)
{
	struct config *c = p->c;
	u32 i;

	if (many_find(c, m, name, &i))
		return 0;
	if (i == m->max)
		return fail(p, -EINVAL, "[%s.%s]: expected at most %u of these sections", m->word,
			    name, m->max);
	if (many_room(c) || many_init(m, many_item(c, m, i), name))
		return fail(p, -ENOMEM, "out of memory");
	if (m == &many[MANY_RUNTIME])
		c->nruntimes++;
	else
		c->nuploads++;
	return 0;
}

static const struct config_runtime *find_runtime(const struct config *c, const char *name)
{
	u32 i;

	return many_find(c, &many[MANY_RUNTIME], name, &i) ? &c->runtimes[i] : NULL;
}

struct config_runtime config_runtime(const struct config *c, const char *name)
{
	const struct config_runtime *r = find_runtime(c, name);
	static char none[] = "";
	struct config_runtime ret = { .enabled = none, .layout = none };

	if (r)
		ret = *r;
	else
		snprintf(ret.name, sizeof(ret.name), "%s", name);
	if (!ret.hz)
		ret.hz = c->runtime_hz;
	return ret;
}

bool config_runtime_enabled(const struct config *c, const char *name, const char *word)
{
	const struct config_runtime *r = find_runtime(c, name);

	if (r && *r->enabled)
		return *r->enabled == 't';
	return strcmp(word, "python") ? lists(c->runtime_stacks, word) : c->python_stacks;
}

/* Where the keys of a section go. */
struct place {
	const struct row *rows;
	size_t nrows;
	void *base; /* of the rows' offsets */
	u32 *line;  /* of each row: where it was set */
};

static struct place find_place(struct parse *p, const char *section)
{
	const char *name;
	const struct many *m = many_of(section, &name);
	u32 i;

	if (!m)
		return (struct place){ rows, ARRAY_SIZE(rows), p->c, p->row_line };
	/* check_section() made it. */
	if (!many_find(p->c, m, name, &i))
		assert(false);
	return (struct place){ m->rows, m->nrows, many_item(p->c, m, i),
			       p->many_line[m - many][i] };
}

/* Equal sums: the same keys with the same values, wherever they stand. */
static void add_rest(struct parse *p, const char *section, const char *key, const char *value)
{
	u64 h = hash_mix(hash_bytes(section, strlen(section)), hash_bytes(key, strlen(key)));

	p->c->rest += hash_mix(h, hash_bytes(value, strlen(value)));
}

static int set_key(struct parse *p, const char *section, const char *key, const char *value)
{
	struct place at = find_place(p, section);
	size_t i;
	int rc;

	for (i = 0; i < at.nrows; i++)
		if (belongs(&at.rows[i].key, section) && !strcmp(at.rows[i].key.key, key))
			break;
	if (i == at.nrows)
		return fail_key(p, section, key);
	if (at.line[i])
		return fail(p, -EINVAL, "[%s] %s: already set on line %u", section, key,
			    at.line[i]);
	at.line[i] = p->line;
	if (!at.rows[i].live)
		add_rest(p, section, key, value);
	rc = set_value(at.base, &at.rows[i], value);
	if (rc == -EINVAL)
		return fail(p, rc, "[%s] %s = %s: expected %s", section, key, value,
			    at.rows[i].key.expected);
	return rc ? fail(p, rc, "out of memory") : 0;
}

/* --- lines ----------------------------------------------------------------------------------- */

/* inih's handler; the line it speaks of is the one that read_line() gave last. 1: go on. */
static int on_pair(void *user, const char *section, const char *key, const char *value)
{
	struct parse *p = user;

	p->pair_due = false;
	if (p->rc)
		return 0;
	if (!*section)
		return !fail(p, -EINVAL, "%s: expected a [section] before the first key", key);
	if (!*key)
		return !fail(p, -EINVAL, "[%s]: expected a key before = %s", section, value);
	if (!strcmp(section, LABELS)) {
		add_rest(p, section, key, value);
		return !add_label(p, key, value);
	}
	return !set_key(p, section, key, value);
}

static bool known_section(const char *name)
{
	const char *part;
	const struct many *m = many_of(name, &part);
	size_t i;

	if (m)
		return !strcmp(name, m->word) || name_ok(part, strlen(part));
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].key.section, name))
			return true;
	return !strcmp(name, LABELS);
}

/*
 * inih tells of a section only with its first key, and ignores what follows the bracket; but an
 * empty section counts, and a key behind the bracket would be lost.
 */
static int check_section(struct parse *p, char *line)
{
	char *end = strchr(line, ']'), *rest;
	const struct many *m;
	const char *name;

	if (!end)
		return fail(p, -EINVAL, "%s: expected ] at the end of the section's name", line);
	*end = '\0';
	if (!known_section(line + 1))
		return fail_section(p, line + 1);
	if (!strcmp(line + 1, "ebpf_profiler"))
		p->c->defined = true;
	m = many_of(line + 1, &name);
	if (m && add_section(p, m, name))
		return p->rc;
	rest = end + 1 + strspn(end + 1, " \t");
	if (*rest && *rest != ';' && *rest != '#')
		return fail(p, -EINVAL, "[%s] %s: expected nothing after ]", line + 1, rest);
	*end = ']';
	return 0;
}

static int check_bytes(struct parse *p, const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (((u8)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
			return fail(p, -EINVAL, "control character 0x%02x, expected text",
				    (u8)s[i]);
	return 0;
}

/* The next line of the text without blanks at its ends; false at the end. */
static bool next_line(struct parse *p, const char **ret, size_t *ret_len)
{
	const char *s = p->pos, *end;

	if (s == p->end)
		return false;
	end = memchr(s, '\n', (size_t)(p->end - s));
	p->pos = end ? end + 1 : p->end;
	if (!end)
		end = p->end;
	p->line++;
	/* Editors on other systems put a byte order mark first. */
	if (p->line == 1 && end - s >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))
		s += 3;
	while (s < end && (*s == ' ' || *s == '\t'))
		s++;
	while (s < end && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	*ret = s;
	*ret_len = (size_t)(end - s);
	return true;
}

/* inih goes on after a line that it cannot split; this one error shall be the first, too. */
static int check_pair(struct parse *p)
{
	if (!p->rc && p->pair_due)
		fail(p, -EINVAL, "expected [section], key = value, or a comment");
	return p->rc;
}

/*
 * inih's reader: one whole line a call, checked, without indentation (inih would join an indented
 * line with the one above) and without comment lines (inih would take the rest of a long one for
 * a key). NULL ends the parse: end of text, or an error.
 */
static char *read_line(char *buf, int size, void *user)
{
	struct parse *p = user;
	const char *s;
	size_t len;

	if (check_pair(p) || size <= 0 || !next_line(p, &s, &len))
		return NULL;
	if (memchr(s, '\0', len)) {
		fail(p, -EINVAL, "NUL byte, expected text");
		return NULL;
	}
	if (len && (*s == ';' || *s == '#'))
		len = 0;
	if (len > CONFIG_MAX_LINE || len >= (size_t)size) {
		fail(p, -EINVAL, "line too long: %zu bytes, expected at most %zu", len,
		     MIN((size_t)CONFIG_MAX_LINE, (size_t)size - 1));
		return NULL;
	}
	if (check_bytes(p, s, len))
		return NULL;
	memcpy(buf, s, len);
	buf[len] = '\0';
	if (*buf == '[')
		return check_section(p, buf) ? NULL : buf;
	p->pair_due = len > 0;
	return buf;
}

/* Where a key was set, for what is wrong about two of them together. */
static int fail_upload(struct parse *p, u32 i, size_t offset, const char *expect)
{
	const struct config_upload *u = &p->c->uploads[i];
	u32 k;

	for (k = 0; k < ARRAY_SIZE(upload_rows) - 1; k++)
		if (upload_rows[k].offset == offset)
			break;
	p->line = p->many_line[MANY_UPLOAD][i][k];
	return fail(p, -EINVAL, "[" UPLOAD "%s%s] %s: expected %s", *u->name ? "." : "", u->name,
		    upload_rows[k].key.key, expect);
}

/* What only all keys of a section together can tell. */
static int check_upload(struct parse *p, u32 i)
{
	const struct config_upload *u = &p->c->uploads[i];
	const char *why;

	if (*u->user && *u->token_file)
		return fail_upload(p, i, offsetof(struct config_upload, user),
				   "either user or token_file");
	if (!*u->user != !*u->password_file)
		return fail_upload(p, i,
				   *u->user ? offsetof(struct config_upload, user)
					    : offsetof(struct config_upload, password_file),
				   "user and password_file together");
	if (!*u->cert_file && *u->key_file)
		return fail_upload(p, i, offsetof(struct config_upload, key_file),
				   "cert_file beside it");
	if (headers_each(u->headers, ',', NULL, NULL, &why))
		return fail_upload(p, i, offsetof(struct config_upload, headers), why);
	return 0;
}

int config_parse(struct config *c, const char *name, const char *text, size_t len, char *err,
		 size_t err_size)
{
	struct parse p = {
		.c = c,
		.name = name,
		.pos = text,
		.end = text + len,
		.err = err,
		.err_size = err_size,
	};
	u32 i;

	if (len > CONFIG_MAX_FILE) {
		put_error(err, err_size, "%s: larger than %u bytes", name, CONFIG_MAX_FILE);
		return -E2BIG;
	}
	if (ini_parse_stream(read_line, &p, on_pair, &p) < 0 && !p.rc)
		fail(&p, -ENOMEM, "out of memory");
	check_pair(&p);
	for (i = 0; i < c->nuploads && !p.rc; i++)
		check_upload(&p, i);
	return p.rc;
}

/* --- the file -------------------------------------------------------------------------------- */

/* Who can write the file decides what root collects and where it goes. */
static int check_trust(const struct stat *st, const char *path, char *err, size_t err_size)
{
	if (!S_ISREG(st->st_mode)) {
		put_error(err, err_size, "%s: not a regular file", path);
		return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
	}
	if (geteuid())
		return 0;
	if (st->st_uid) {
		put_error(err, err_size,
			  "%s: owned by uid %u, refused as root; run: chown root '%s'", path,
			  st->st_uid, path);
		return -EPERM;
	}
	if (st->st_mode & (S_IWGRP | S_IWOTH)) {
		put_error(err, err_size,
			  "%s: writable by group or others (mode %04o), refused as root; "
			  "run: chmod go-w '%s'",
			  path, st->st_mode & 07777, path);
		return -EPERM;
	}
	return 0;
}

/* At most CONFIG_MAX_FILE + 1 bytes, so that one too many is seen. */
static int read_all(int fd, char **ret, size_t *ret_len)
{
	_cleanup_free_ char *buf = NULL;
	size_t len = 0;
	u32 cap = 0;

	while (len <= CONFIG_MAX_FILE) {
		int rc = VEC_RESERVE(buf, cap, (u32)MIN(len + 4096, CONFIG_MAX_FILE + 1u),
				     CONFIG_MAX_FILE + 1u);
		ssize_t n;

		if (rc)
			return rc;
		n = read(fd, buf + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	*ret = take_ptr(buf);
	return 0;
}

static int fail_read(const char *path, int rc, char *err, size_t err_size)
{
	put_error(err, err_size, "%s: cannot be read: %s", path, strerror(-rc));
	return rc;
}

/* The other file that counts: whoever takes a configuration over knows that it is sound. */
static int check_rules(const struct config *c, char *err, size_t err_size)
{
	struct service_rules *r = NULL;
	int rc = *c->service_rules ? service_read(c->service_rules, &r, err, err_size) : 0;

	service_free(r);
	/* Who only checks the configuration may not be let at it. */
	return rc == -EACCES && geteuid() ? 0 : rc;
}

int config_read(struct config *c, const char *path, char *err, size_t err_size)
{
	/* Not blocked by a FIFO, and checked by the descriptor: the name may change under us. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_read(path, -errno, err, err_size);
	rc = check_trust(&st, path, err, err_size);
	if (rc)
		return rc;
	rc = read_all(fd, &text, &len);
	if (rc)
		return fail_read(path, rc, err, err_size);
	rc = config_parse(c, path, text, len, err, err_size);
	return rc ? rc : check_rules(c, err, err_size);
}

/* --- life ------------------------------------------------------------------------------------ */

int config_init(struct config *c)
{
	size_t i;

	*c = (struct config){};
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		int rc = set_value(c, &rows[i], rows[i].key.standard);

		if (rc) {
			config_fini(c);
			return rc;
		}
	}
	return 0;
}

void config_fini(struct config *c)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (is_string(rows[i].type))
			free(*(char **)((char *)c + rows[i].offset));
	for (i = 0; i < c->nlabels; i++)
		free(c->labels[i]);
	free(c->labels);
	for (i = 0; i < c->nruntimes; i++)
		many_fini(&many[MANY_RUNTIME], &c->runtimes[i]);
	for (i = 0; i < c->nuploads; i++)
		many_fini(&many[MANY_UPLOAD], &c->uploads[i]);
	free(c->runtimes);
	free(c->uploads);
	*c = (struct config){};
}

bool config_set_live(struct config *c, const struct config *fresh)
{
	size_t i;

	if (c->rest != fresh->rest)
		return false;
	c->defined = fresh->defined;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		char *to = (char *)c + rows[i].offset;
		const char *from = (const char *)fresh + rows[i].offset;

		if (rows[i].live)
			memcpy(to, from, value_size(rows[i].type));
	}
	return true;
}

u64 config_offcpu_min_ns(const struct config *c)
{
	return (u64)(c->offcpu_min_ms * 1e6 + 0.5);
}

u64 config_table_bytes(const struct config *c)
{
	return c->dwarf_unwind ? (u64)c->table_memory_mb << 20 : 0;
}
