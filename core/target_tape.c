// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. Recordings of a target and their replay, see target.h; both in one file, so that
 * the two ends of the format stay together.
 *
 * A file is text: "ebpfprofiler tape 1", notes ("key: value"), an empty line; then, compressed by
 * gzip, a line for each thing that was asked:
 *
 *	module I BIAS LO HI PATH	symbol I ADDRESS SIZE NAME	section I ADDRESS SIZE NAME
 *	function I ADDRESS LO HI	thread I TID TP			memory ADDRESS KIND
 *	bytes ADDRESS HEX		unreadable PAGE
 *
 * with "-" in place of an answer that was "no". Numbers are hexadecimal, but for I and TID.
 */
#include "target.h"

#include "gzip.h"
#include "htab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>

#define MAGIC       "ebpfprofiler tape 1"
#define FILE_MAX    (16u << 20)
#define TEXT_MAX    (64u << 20) /* inflated */
#define NOTES_MAX   256u
#define KEY_MAX     32u
#define VALUE_MAX   1024u
#define ANSWERS_MAX (1u << 18)
#define PAGES_MAX   8192u
#define TEXT_LEN    4096u /* of a path */
#define PAGE        4096ull

enum kind { MODULE, SYMBOL, SECTION, FUNCTION, THREAD, MEMORY, KINDS };

static const char *const kind_names[KINDS] = { "module",   "symbol", "section",
					       "function", "thread", "memory" };
static const char *const memory_names[] = {
	[TARGET_NOTHING] = "nothing", [TARGET_IMAGE] = "image", [TARGET_OTHER] = "other"
};

/* What was asked, and what was said. */
struct answer {
	enum kind kind;
	bool found;
	u32 i;
	u64 addr;   /* asked for, by FUNCTION and MEMORY */
	u64 v[3];   /* in the order of the line */
	char *text; /* asked for by SYMBOL and SECTION; MODULE: the path. Owned, may be NULL */
};

struct tape_page {
	u64 addr;
	bool unreadable;
	u8 known[PAGE / 8]; /* a bit for each byte that was asked for */
	u8 data[PAGE];
};

struct note {
	char key[KEY_MAX];
	char *value;
};

struct tape {
	struct target t;
	struct target *inner; /* NULL: a replay */
	struct note *notes;
	u32 nnotes, notes_cap;
	struct answer *answers;
	u32 nanswers, answers_cap;
	struct htab by_question;
	struct tape_page **pages;
	u32 npages, pages_cap;
	struct htab by_page;
	u64 changed;
	int err; /* the recording is not whole */
	char missing[512];
};

static struct tape *tape_of(struct target *t)
{
	return (struct tape *)t;
}

static void tape_free(struct target *t)
{
	struct tape *tape = tape_of(t);
	u32 i;

	target_free(tape->inner);
	for (i = 0; i < tape->nnotes; i++)
		free(tape->notes[i].value);
	for (i = 0; i < tape->nanswers; i++)
		free(tape->answers[i].text);
	for (i = 0; i < tape->npages; i++)
		free(tape->pages[i]);
	free(tape->notes);
	free(tape->answers);
	free(tape->pages);
	htab_fini(&tape->by_question);
	htab_fini(&tape->by_page);
	free(tape);
}

/* --- notes ----------------------------------------------------------------------------------- */

int target_tape_note(struct target *t, const char *key, const char *value)
{
	struct tape *tape = tape_of(t);
	char clean[VALUE_MAX];
	int err;

	err = VEC_RESERVE(tape->notes, tape->notes_cap, tape->nnotes + 1, NOTES_MAX);
	if (err)
		return err;
	utf8_clean(clean, sizeof(clean), value, strlen(value));
	snprintf(tape->notes[tape->nnotes].key, KEY_MAX, "%s", key);
	tape->notes[tape->nnotes].value = strdup(clean);
	if (!tape->notes[tape->nnotes].value)
		return -ENOMEM;
	tape->nnotes++;
	return 0;
}

const char *target_tape_noted(const struct target *t, const char *key)
{
	const struct tape *tape = (const struct tape *)t;
	u32 i;

	for (i = 0; i < tape->nnotes; i++)
		if (!strcmp(tape->notes[i].key, key))
			return tape->notes[i].value;
	return NULL;
}

/* --- answers --------------------------------------------------------------------------------- */

/* The part of an answer that is the question. */
static u64 question_hash(const struct answer *a)
{
	u64 key[3] = { a->kind, a->i, a->addr }, h = hash_bytes(key, sizeof(key));

	if (a->kind == SYMBOL || a->kind == SECTION)
		h = hash_mix(h, hash_bytes(a->text, strlen(a->text)));
	return h;
}

static bool same_question(const struct answer *a, const struct answer *b)
{
	if (a->kind != b->kind || a->i != b->i || a->addr != b->addr)
		return false;
	return (a->kind != SYMBOL && a->kind != SECTION) || !strcmp(a->text, b->text);
}

static struct answer *answer_find(struct tape *tape, const struct answer *question)
{
	u64 hash = question_hash(question);
	u32 pos, i;

	for (pos = htab_start(&tape->by_question, hash);
	     htab_next(&tape->by_question, hash, &pos, &i);)
		if (same_question(&tape->answers[i], question))
			return &tape->answers[i];
	return NULL;
}

/* Keeps an answer, the newest one of a question. Its text is copied. */
static int answer_put(struct tape *tape, const struct answer *a)
{
	struct answer *old = answer_find(tape, a), fresh = *a;
	int err;

	if (a->text) {
		fresh.text = strdup(a->text);
		if (!fresh.text)
			return -ENOMEM;
	}
	if (old) {
		free(old->text);
		*old = fresh;
		return 0;
	}
	err = VEC_RESERVE(tape->answers, tape->answers_cap, tape->nanswers + 1, ANSWERS_MAX);
	if (!err)
		err = htab_insert(&tape->by_question, question_hash(&fresh), tape->nanswers);
	if (err)
		free(fresh.text);
	else
		tape->answers[tape->nanswers++] = fresh;
	return err;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static bool is_known(const struct tape_page *p, u64 at)
{
	return p->known[at / 8] & 1u << at % 8;
}

static struct tape_page *page_find(struct tape *tape, u64 addr)
{
	u64 hash = hash_mix(0, addr);
	u32 pos, i;

	for (pos = htab_start(&tape->by_page, hash); htab_next(&tape->by_page, hash, &pos, &i);)
		if (tape->pages[i]->addr == addr)
			return tape->pages[i];
	return NULL;
}

static int page_get(struct tape *tape, u64 addr, struct tape_page **ret)
{
	struct tape_page *p = page_find(tape, addr);
	int err;

	if (!p) {
		err = VEC_RESERVE(tape->pages, tape->pages_cap, tape->npages + 1, PAGES_MAX);
		if (err)
			return err;
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->addr = addr;
		err = htab_insert(&tape->by_page, hash_mix(0, addr), tape->npages);
		if (err) {
			free(p);
			return err;
		}
		tape->pages[tape->npages++] = p;
	}
	*ret = p;
	return 0;
}

/* addr + len does not wrap: target.c and the parser see to it. */
static int bytes_put(struct tape *tape, u64 addr, const u8 *data, size_t len)
{
	struct tape_page *p = NULL;
	size_t i;

	for (i = 0; i < len; i++) {
		u64 at = (addr + i) % PAGE;

		if (!i || !at) {
			int err = page_get(tape, addr + i - at, &p);

			if (err)
				return err;
		}
		if (is_known(p, at) && p->data[at] != data[i])
			tape->changed++;
		p->known[at / 8] |= (u8)(1u << at % 8);
		p->data[at] = data[i];
	}
	return 0;
}

/* --- recording ------------------------------------------------------------------------------- */

static void keep(struct tape *tape, const struct answer *a)
{
	int err = answer_put(tape, a);

	if (err)
		tape->err = err;
}

/* Which pages of a read that failed are to blame. */
static void keep_unreadable(struct tape *tape, u64 addr, size_t len)
{
	u64 at = addr & ~(PAGE - 1), end = addr + len;

	for (; at < end && at >= (addr & ~(PAGE - 1)); at += PAGE) {
		struct tape_page *p;
		u8 byte;
		int err = 0;

		tape->inner->reads = 0;
		if (target_read(tape->inner, MAX(at, addr), &byte, 1)) {
			if (tape->inner->hung)
				return;
			err = page_get(tape, at, &p);
			if (!err)
				p->unreadable = true;
		}
		if (err)
			tape->err = err;
	}
}

static int record_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct tape *tape = tape_of(t);
	int err;

	/* The outer target counts. */
	tape->inner->reads = 0;
	err = target_read_for(tape->inner, addr, dst, len, t->func, t->field);
	t->hung = tape->inner->hung;
	if (err) {
		keep_unreadable(tape, addr, len);
		return err;
	}
	err = bytes_put(tape, addr, dst, len);
	if (err)
		tape->err = err;
	return 0;
}

static int record_string(struct target *t, u64 addr, size_t len, char *dst, size_t size)
{
	struct tape *tape = tape_of(t);
	int n, err;

	tape->inner->reads = 0;
	n = target_string_for(tape->inner, addr, len, dst, size, t->func, t->field);
	t->hung = tape->inner->hung;
	if (n < 0) {
		keep_unreadable(tape, addr, len);
		return n;
	}
	/* With the NUL that ended it, if one did. */
	err = bytes_put(tape, addr, (const u8 *)dst, (size_t)n + ((size_t)n < len));
	if (err)
		tape->err = err;
	return n;
}

static bool record_module(struct target *t, u32 i, struct target_module *ret)
{
	struct tape *tape = tape_of(t);
	struct answer a = { .kind = MODULE, .i = i };
	char path[TEXT_LEN];

	a.found = target_module(tape->inner, i, ret);
	if (a.found) {
		utf8_clean(path, sizeof(path), ret->path, strlen(ret->path));
		a.text = path;
		a.v[0] = ret->bias;
		a.v[1] = ret->lo;
		a.v[2] = ret->hi;
	}
	keep(tape, &a);
	return a.found;
}

static u64 record_name(struct tape *tape, enum kind kind, u32 i, const char *name, u64 *size)
{
	struct answer a = { .kind = kind, .i = i, .text = (char *)name };

	a.v[0] = kind == SYMBOL ? target_symbol(tape->inner, i, name, size)
				: target_section(tape->inner, i, name, size);
	a.v[1] = *size;
	a.found = a.v[0] || a.v[1];
	keep(tape, &a);
	return a.v[0];
}

static u64 record_symbol(struct target *t, u32 i, const char *name, u64 *size)
{
	return record_name(tape_of(t), SYMBOL, i, name, size);
}

static u64 record_section(struct target *t, u32 i, const char *name, u64 *size)
{
	return record_name(tape_of(t), SECTION, i, name, size);
}

static bool record_function(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi)
{
	struct tape *tape = tape_of(t);
	struct answer a = { .kind = FUNCTION, .i = i, .addr = addr };

	a.found = target_function(tape->inner, i, addr, lo, hi);
	if (a.found) {
		a.v[0] = *lo;
		a.v[1] = *hi;
	}
	keep(tape, &a);
	return a.found;
}

static bool record_thread(struct target *t, u32 i, struct target_thread *ret)
{
	struct tape *tape = tape_of(t);
	struct answer a = { .kind = THREAD, .i = i };

	a.found = target_thread(tape->inner, i, ret);
	if (a.found) {
		a.v[0] = ret->tid;
		a.v[1] = ret->tp;
	}
	keep(tape, &a);
	return a.found;
}

static enum target_memory record_memory(struct target *t, u64 addr)
{
	struct tape *tape = tape_of(t);
	struct answer a = { .kind = MEMORY, .found = true, .addr = addr };

	a.v[0] = target_memory(tape->inner, addr);
	keep(tape, &a);
	return (enum target_memory)a.v[0];
}

static void record_begin(struct target *t)
{
	target_begin(tape_of(t)->inner);
}

static const struct target_ops record_ops = {
	.read = record_read,
	.string = record_string,
	.module = record_module,
	.symbol = record_symbol,
	.section = record_section,
	.function = record_function,
	.thread = record_thread,
	.memory = record_memory,
	.begin = record_begin,
	.free = tape_free,
	.direct = true,
};

int target_tape_record(struct target *inner, struct target **ret)
{
	struct tape *tape = calloc(1, sizeof(*tape));

	if (!tape)
		return -ENOMEM;
	tape->t = (struct target){ .ops = &record_ops, .arch = inner->arch };
	tape->inner = inner;
	*ret = &tape->t;
	return 0;
}

u64 target_tape_changed(const struct target *t)
{
	return ((const struct tape *)t)->changed;
}

/* --- replay ---------------------------------------------------------------------------------- */

static __printf(2, 3) void miss(struct tape *tape, const char *fmt, ...)
{
	va_list ap;

	if (tape->missing[0])
		return;
	va_start(ap, fmt);
	vsnprintf(tape->missing, sizeof(tape->missing), fmt, ap);
	va_end(ap);
}

bool target_tape_missing(const struct target *t, char *dst, size_t size)
{
	const struct tape *tape = (const struct tape *)t;

	snprintf(dst, size, "%s", tape->missing);
	return tape->missing[0];
}

static void miss_bytes(struct tape *tape, u64 addr, size_t len)
{
	miss(tape, "no %zu bytes at 0x%llx, read by %s() as %s", len, (unsigned long long)addr,
	     tape->t.func ? tape->t.func : "?", tape->t.field ? tape->t.field : "?");
}

static bool any_unreadable(struct tape *tape, u64 addr, size_t len)
{
	u64 at = addr & ~(PAGE - 1), i;

	/* At most TARGET_READ_MAX / PAGE + 1 turns. */
	for (i = 0; i <= (addr + len - 1 - at) / PAGE; i++) {
		const struct tape_page *p = page_find(tape, at + i * PAGE);

		if (p && p->unreadable)
			return true;
	}
	return false;
}

/* Copies up to the first byte that is not known; returns how many. With `text`, to a NUL. */
static size_t replay_bytes(struct tape *tape, u64 addr, u8 *dst, size_t len, bool text)
{
	const struct tape_page *p = NULL;
	size_t i;

	for (i = 0; i < len; i++) {
		u64 at = (addr + i) % PAGE;

		if (!i || !at)
			p = page_find(tape, addr + i - at);
		if (!p || !is_known(p, at))
			break;
		dst[i] = p->data[at];
		if (text && !dst[i])
			break;
	}
	return i;
}

static int replay_read(struct target *t, u64 addr, void *dst, size_t len)
{
	struct tape *tape = tape_of(t);

	if (replay_bytes(tape, addr, dst, len, false) == len)
		return 0;
	if (!any_unreadable(tape, addr, len))
		miss_bytes(tape, addr, len);
	return -EFAULT;
}

static int replay_string(struct target *t, u64 addr, size_t len, char *dst, size_t size __unused)
{
	struct tape *tape = tape_of(t);
	size_t n = replay_bytes(tape, addr, (u8 *)dst, len, true);

	dst[n] = '\0';
	if (n == len || (page_find(tape, (addr + n) & ~(PAGE - 1)) &&
			 is_known(page_find(tape, (addr + n) & ~(PAGE - 1)), (addr + n) % PAGE)))
		return (int)n;
	if (!any_unreadable(tape, addr, len))
		miss_bytes(tape, addr, len);
	return -EFAULT;
}

static bool name_was_asked(const struct tape *tape, const struct answer *question)
{
	u32 i;

	for (i = 0; i < tape->nanswers; i++)
		if (tape->answers[i].kind == question->kind &&
		    !strcmp(tape->answers[i].text, question->text))
			return true;
	return false;
}

/*
 * The answer; NULL when the recording has none. A name that it never heard of is one that an
 * unwinder asks for which was not there yet: the process had it not.
 */
static const struct answer *ask(struct tape *tape, const struct answer *question)
{
	const struct answer *a = answer_find(tape, question);
	bool named = question->kind == SYMBOL || question->kind == SECTION;

	if (!a && (!named || name_was_asked(tape, question)))
		miss(tape, "no answer to %s %u%s%s, 0x%llx", kind_names[question->kind],
		     question->i, named ? " " : "", named ? question->text : "",
		     (unsigned long long)question->addr);
	return a && a->found ? a : NULL;
}

static bool replay_module(struct target *t, u32 i, struct target_module *ret)
{
	const struct answer *a = ask(tape_of(t), &(struct answer){ .kind = MODULE, .i = i });

	if (a)
		*ret = (struct target_module){
			.path = a->text, .bias = a->v[0], .lo = a->v[1], .hi = a->v[2]
		};
	return a;
}

static u64 replay_name(struct target *t, enum kind kind, u32 i, const char *name, u64 *size)
{
	const struct answer *a =
		ask(tape_of(t), &(struct answer){ .kind = kind, .i = i, .text = (char *)name });

	if (!a)
		return 0;
	*size = a->v[1];
	return a->v[0];
}

static u64 replay_symbol(struct target *t, u32 i, const char *name, u64 *size)
{
	return replay_name(t, SYMBOL, i, name, size);
}

static u64 replay_section(struct target *t, u32 i, const char *name, u64 *size)
{
	return replay_name(t, SECTION, i, name, size);
}

static bool replay_function(struct target *t, u32 i, u64 addr, u64 *lo, u64 *hi)
{
	const struct answer *a =
		ask(tape_of(t), &(struct answer){ .kind = FUNCTION, .i = i, .addr = addr });

	if (a) {
		*lo = a->v[0];
		*hi = a->v[1];
	}
	return a;
}

static bool replay_thread(struct target *t, u32 i, struct target_thread *ret)
{
	const struct answer *a = ask(tape_of(t), &(struct answer){ .kind = THREAD, .i = i });

	if (a)
		*ret = (struct target_thread){ .tid = (u32)a->v[0], .tp = a->v[1] };
	return a;
}

static enum target_memory replay_memory(struct target *t, u64 addr)
{
	const struct answer *a = ask(tape_of(t), &(struct answer){ .kind = MEMORY, .addr = addr });

	return a ? (enum target_memory)a->v[0] : TARGET_NOTHING;
}

static const struct target_ops replay_ops = {
	.read = replay_read,
	.string = replay_string,
	.module = replay_module,
	.symbol = replay_symbol,
	.section = replay_section,
	.function = replay_function,
	.thread = replay_thread,
	.memory = replay_memory,
	.free = tape_free,
	.direct = true,
};

/* --- writing --------------------------------------------------------------------------------- */

static void print_answer(gzFile f, const struct answer *a)
{
	bool named = a->kind == SYMBOL || a->kind == SECTION;
	u32 i, n = a->kind == MODULE ? 3 : 2;

	gzprintf(f, "%s", kind_names[a->kind]);
	if (a->kind != MEMORY)
		gzprintf(f, " %u", a->i);
	if (a->kind == MEMORY || a->kind == FUNCTION)
		gzprintf(f, " %llx", (unsigned long long)a->addr);
	if (a->kind == MEMORY)
		gzprintf(f, " %s", memory_names[a->v[0]]);
	else if (!a->found)
		gzprintf(f, " -");
	else if (a->kind == THREAD)
		gzprintf(f, " %u %llx", (u32)a->v[0], (unsigned long long)a->v[1]);
	else
		for (i = 0; i < n; i++)
			gzprintf(f, " %llx", (unsigned long long)a->v[i]);
	/* gzprintf() is limited to 8 KiB, a path to half of it. */
	if (named || (a->kind == MODULE && a->found))
		gzprintf(f, " %s", a->text);
	gzputc(f, '\n');
}

static void print_run(gzFile f, const struct tape_page *p, u64 from, u64 to)
{
	char text[2 * PAGE + 1];

	hex_encode(text, p->data + from, to - from);
	gzprintf(f, "bytes %llx ", (unsigned long long)(p->addr + from));
	gzputs(f, text);
	gzputc(f, '\n');
}

static void print_page(gzFile f, const struct tape_page *p)
{
	u64 from, to;

	if (p->unreadable)
		gzprintf(f, "unreadable %llx\n", (unsigned long long)p->addr);
	for (from = 0; from < PAGE; from = to + 1) {
		for (to = from; to < PAGE && is_known(p, to); to++)
			;
		if (to > from)
			print_run(f, p, from, to);
	}
}

static int by_addr(const void *pa, const void *pb)
{
	const struct tape_page *a = *(struct tape_page *const *)pa,
			       *b = *(struct tape_page *const *)pb;

	return (a->addr > b->addr) - (a->addr < b->addr);
}

/* Pages in the order of their addresses; the book of them is not needed any more. */
static int write_body(struct tape *tape, int fd)
{
	gzFile f = gzdopen(fd, "wb9");
	u32 i;

	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	for (i = 0; i < tape->nanswers; i++)
		print_answer(f, &tape->answers[i]);
	if (tape->npages)
		qsort(tape->pages, tape->npages, sizeof(tape->pages[0]), by_addr);
	htab_clear(&tape->by_page);
	for (i = 0; i < tape->npages; i++)
		print_page(f, tape->pages[i]);
	return gzclose(f) == Z_OK ? 0 : -EIO;
}

static int write_notes(const struct tape *tape, int fd)
{
	u32 i;
	int err = dprintf(fd, MAGIC "\narch: %s\n",
			  tape->t.arch == TARGET_ARM64 ? "arm64" : "x86-64");

	for (i = 0; err > 0 && i < tape->nnotes; i++)
		err = dprintf(fd, "%s: %s\n", tape->notes[i].key, tape->notes[i].value);
	if (err > 0)
		err = dprintf(fd, "\n");
	return err < 0 ? -errno : 0;
}

int target_tape_save(struct target *t, const char *path)
{
	struct tape *tape = tape_of(t);
	_cleanup_close_ int fd = -1;
	int err;

	if (tape->err)
		return tape->err;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	err = write_notes(tape, fd);
	return err ? err : write_body(tape, take_fd(&fd));
}

/* --- reading --------------------------------------------------------------------------------- */

/* A line that is being taken apart; not terminated. */
struct cursor {
	const char *p, *end;
};

/* The next word; words are parted by one space. Empty at the end. */
static struct cursor word(struct cursor *c)
{
	struct cursor w = { c->p, c->end };
	const char *space = memchr(c->p, ' ', (size_t)(c->end - c->p));

	if (space)
		w.end = space;
	c->p = space ? space + 1 : c->end;
	return w;
}

static bool is_word(struct cursor w, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(w.end - w.p) == len && !memcmp(w.p, text, len);
}

static bool number(struct cursor *c, u32 base, u64 *ret)
{
	struct cursor w = word(c);
	u64 v = 0;

	if (w.p == w.end || w.end - w.p > 16)
		return false;
	for (; w.p < w.end; w.p++) {
		int digit = hex_digit(*w.p);

		if (digit < 0 || (u32)digit >= base)
			return false;
		v = v * base + (u32)digit;
	}
	*ret = v;
	return true;
}

static int parse_bytes(struct tape *tape, struct cursor c)
{
	u8 data[PAGE];
	u64 addr;
	size_t n;

	if (!number(&c, 16, &addr))
		return -EINVAL;
	n = (size_t)(c.end - c.p) / 2;
	if (n > PAGE || (c.end - c.p) % 2 || addr + n < addr || !hex_decode(data, c.p, n))
		return -EINVAL;
	return bytes_put(tape, addr, data, n);
}

static int parse_unreadable(struct tape *tape, struct cursor c)
{
	struct tape_page *p;
	u64 addr;
	int err;

	if (!number(&c, 16, &addr) || addr % PAGE)
		return -EINVAL;
	err = page_get(tape, addr, &p);
	if (!err)
		p->unreadable = true;
	return err;
}

static bool parse_memory(struct cursor *c, struct answer *a)
{
	struct cursor w = word(c);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(memory_names); i++)
		if (is_word(w, memory_names[i])) {
			a->v[0] = i;
			a->found = true;
			return true;
		}
	return false;
}

/* The values, or "-". */
static bool parse_values(struct cursor *c, struct answer *a)
{
	u32 n = a->kind == MODULE ? 3 : 2, i;

	if (c->p < c->end && *c->p == '-') {
		word(c);
		return true;
	}
	for (i = 0; i < n; i++)
		if (!number(c, a->kind == THREAD && !i ? 10 : 16, &a->v[i]))
			return false;
	a->found = true;
	return true;
}

static int parse_answer(struct tape *tape, enum kind kind, struct cursor c)
{
	bool named = kind == SYMBOL || kind == SECTION || kind == MODULE;
	struct answer a = { .kind = kind };
	char text[TEXT_LEN];
	u64 i = 0;

	if ((kind != MEMORY && (!number(&c, 10, &i) || i > UINT32_MAX)) ||
	    ((kind == MEMORY || kind == FUNCTION) && !number(&c, 16, &a.addr)))
		return -EINVAL;
	a.i = (u32)i;
	if (kind == MEMORY ? !parse_memory(&c, &a) : !parse_values(&c, &a))
		return -EINVAL;
	if (c.end - c.p >= (ptrdiff_t)sizeof(text) || (!named && c.p != c.end))
		return -EINVAL;
	memcpy(text, c.p, (size_t)(c.end - c.p));
	text[c.end - c.p] = '\0';
	if (named)
		a.text = text;
	return answer_put(tape, &a);
}

static int parse_line(struct tape *tape, struct cursor c)
{
	struct cursor w = word(&c);
	u32 kind;

	if (is_word(w, "bytes"))
		return parse_bytes(tape, c);
	if (is_word(w, "unreadable"))
		return parse_unreadable(tape, c);
	for (kind = 0; kind < KINDS; kind++)
		if (is_word(w, kind_names[kind]))
			return parse_answer(tape, (enum kind)kind, c);
	return -EINVAL;
}

static int parse_body(struct tape *tape, const char *text, size_t len)
{
	const char *end = text + len, *next;
	int err = 0;

	for (; !err && text < end; text = next + 1) {
		next = memchr(text, '\n', (size_t)(end - text));
		if (!next)
			return -EINVAL;
		err = parse_line(tape, (struct cursor){ text, next });
	}
	return err;
}

static int parse_note(struct tape *tape, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	char key[KEY_MAX], value[VALUE_MAX];
	size_t n = colon ? (size_t)(colon - line) : 0;

	if (!n || n >= sizeof(key) || len < n + 2 || colon[1] != ' ' ||
	    len - n - 2 >= sizeof(value))
		return -EINVAL;
	memcpy(key, line, n);
	key[n] = '\0';
	memcpy(value, colon + 2, len - n - 2);
	value[len - n - 2] = '\0';
	if (strcmp(key, "arch"))
		return target_tape_note(&tape->t, key, value);
	tape->t.arch = strcmp(value, "arm64") ? TARGET_X86_64 : TARGET_ARM64;
	return 0;
}

/* *body: what follows the empty line. */
static int parse_head(struct tape *tape, const u8 *data, size_t len, const u8 **body)
{
	const char *p = (const char *)data, *end = p + len, *next;
	u32 lines;

	for (lines = 0; lines < NOTES_MAX + 3; lines++, p = next + 1) {
		next = memchr(p, '\n', (size_t)(end - p));
		if (!next)
			return -EINVAL;
		if (lines && next == p) {
			*body = (const u8 *)next + 1;
			return 0;
		}
		if (lines ? parse_note(tape, p, (size_t)(next - p))
			  : !is_word((struct cursor){ p, next }, MAGIC))
			return -EINVAL;
	}
	return -EINVAL;
}

static int parse_tape(struct tape *tape, const u8 *data, size_t len, bool plain)
{
	_cleanup_free_ u8 *text = NULL;
	const u8 *body;
	size_t text_len;
	int err = parse_head(tape, data, len, &body);

	if (err)
		return err;
	len -= (size_t)(body - data);
	if (plain)
		return parse_body(tape, (const char *)body, len);
	err = gzip_unpack(body, len, TEXT_MAX, &text, &text_len);
	if (!err)
		err = parse_body(tape, (const char *)text, text_len);
	return err == -EBADMSG ? -EINVAL : err;
}

int target_tape_parse(const u8 *data, size_t len, bool plain, struct target **ret)
{
	struct tape *tape = calloc(1, sizeof(*tape));
	int err;

	if (!tape)
		return -ENOMEM;
	tape->t.ops = &replay_ops;
	err = parse_tape(tape, data, len, plain);
	if (err) {
		tape_free(&tape->t);
		return err;
	}
	*ret = &tape->t;
	return 0;
}

int target_tape_open(const char *path, struct target **ret)
{
	_cleanup_free_ char *data = NULL;
	size_t len;
	int err = read_file(path, FILE_MAX, &data, &len);

	return err ? err : target_tape_parse((const u8 *)data, len, false, ret);
}

/* --- for tests ------------------------------------------------------------------------------- */

bool target_tape_cut(struct target *t, u32 i, u64 *addr, size_t *len)
{
	struct tape *tape = tape_of(t);
	u64 from, to;
	u32 k;

	for (k = 0; k < tape->npages; k++) {
		struct tape_page *p = tape->pages[k];

		for (from = 0; from < PAGE; from = to + 1) {
			for (to = from; to < PAGE && is_known(p, to); to++)
				;
			if (to == from || i--)
				continue;
			*addr = p->addr + from;
			*len = to - from;
			for (; from < to; from++)
				p->known[from / 8] &= (u8) ~(1u << from % 8);
			return true;
		}
	}
	return false;
}
