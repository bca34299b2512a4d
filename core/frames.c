// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See frames.h. A key leads to its texts; texts are interned per image, since many
 * places of one function share them. Nothing is freed one by one: an image's names go all at once.
 */
#include "frames.h"

#include "htab.h"
#include "strtab.h"

#include <string.h>

/* Of a key: entry and its two slots of the hash, which is two thirds full at most. */
#define ENTRY_BYTES (sizeof(struct name) + 18)

#define TOO_MANY "[too many names]"
#define UNKNOWN  "[unknown]"
#define GONE     "[gone]"

struct name {
	struct frame_key key;
	u32 func, file; /* of the texts; NO_FILE: none */
	u32 line;
	u32 pad;
};

#define NO_FILE UINT32_MAX

struct frame_names {
	struct frame_names_total *total;
	struct strtab texts;
	struct htab by_key;
	struct name *v;
	u32 n, cap;
	size_t bytes; /* as counted in total */
	bool full;
};

struct frame_names *frame_names_new(struct frame_names_total *total)
{
	struct frame_names *names = calloc(1, sizeof(*names));

	if (names)
		names->total = total;
	return names;
}

void frame_names_clear(struct frame_names *names)
{
	strtab_fini(&names->texts);
	names->texts = (struct strtab){ 0 };
	htab_fini(&names->by_key);
	free(names->v);
	names->v = NULL;
	names->n = names->cap = 0;
	names->total->bytes -= names->bytes;
	names->bytes = 0;
	names->full = false;
}

void frame_names_free(struct frame_names *names)
{
	if (!names)
		return;
	frame_names_clear(names);
	free(names);
}

size_t frame_names_bytes(const struct frame_names *names)
{
	return names->bytes;
}

u32 frame_names_count(const struct frame_names *names)
{
	return names->n;
}

bool frame_names_full(const struct frame_names *names)
{
	return names->full;
}

static u64 key_hash(const struct frame_key *key)
{
	return hash_bytes(key, sizeof(*key));
}

static const struct name *find(const struct frame_names *names, const struct frame_key *key)
{
	u64 hash = key_hash(key);
	u32 pos, i;

	for (pos = htab_start(&names->by_key, hash); htab_next(&names->by_key, hash, &pos, &i);)
		if (!memcmp(&names->v[i].key, key, sizeof(*key)))
			return &names->v[i];
	return NULL;
}

/* Accounts for what is about to be added; false: there is no room for it. */
static bool take_room(struct frame_names *names, size_t n)
{
	struct frame_names_total *total = names->total;

	if (total->bytes + n > total->max && total->evict)
		total->evict(total->arg, names);
	if (names->n >= FRAME_KEYS_MAX || total->bytes + n > total->max) {
		names->full = true;
		return false;
	}
	return true;
}

static void charge(struct frame_names *names, size_t before)
{
	size_t now = names->texts.bytes + names->texts.n * sizeof(struct strtab_entry) +
		     names->n * ENTRY_BYTES;

	names->bytes += now - before;
	names->total->bytes += now - before;
}

static bool add_text(struct frame_names *names, const char *s, size_t max, u32 *ret)
{
	char clean[FRAME_FILE_MAX + 1];
	size_t n = utf8_clean(clean, max + 1, s, strnlen(s, max));

	return !strtab_add(&names->texts, clean, n, ret);
}

static bool add(struct frame_names *names, const struct frame_key *key, const char *func,
		const char *file, u32 line)
{
	struct name entry = { .key = *key, .file = NO_FILE, .line = line };
	size_t before = names->bytes;
	bool good;

	if (!take_room(names, FRAME_FUNC_MAX + FRAME_FILE_MAX + ENTRY_BYTES))
		return false;
	before = names->bytes;
	good = add_text(names, func, FRAME_FUNC_MAX, &entry.func) &&
	       (!file || !*file || add_text(names, file, FRAME_FILE_MAX, &entry.file)) &&
	       !VEC_RESERVE(names->v, names->cap, names->n + 1, FRAME_KEYS_MAX) &&
	       !htab_insert(&names->by_key, key_hash(key), names->n);
	if (good)
		names->v[names->n++] = entry;
	charge(names, before);
	return good;
}

/* --- a walk ----------------------------------------------------------------------------------- */

void frames_begin(struct frames *f, struct frame_names *names, struct runtime_frames *out)
{
	*f = (struct frames){ .names = names, .out = out };
	out->n = 0;
	out->nsegments = 0;
	out->switched = UINT32_MAX;
	out->cut = false;
	out->nlabels = 0;
}

static void put(struct frames *f, const struct runtime_frame *frame)
{
	struct runtime_frames *out = f->out;

	if (out->n == RUNTIME_FRAMES_MAX) {
		out->cut = true;
		return;
	}
	out->frames[out->n++] = *frame;
}

/* A frame whose name was never told is still a frame. */
static void settle(struct frames *f, const char *func)
{
	if (f->waits)
		put(f, &(struct runtime_frame){ .func = func, .flags = f->flags });
	f->waits = false;
}

void frames_end(struct frames *f)
{
	settle(f, UNKNOWN);
}

static void put_known(struct frames *f, const struct name *name, u8 flags)
{
	const struct strtab *texts = &f->names->texts;

	put(f, &(struct runtime_frame){
		       .func = texts->entries[name->func].s,
		       .file = name->file == NO_FILE ? NULL : texts->entries[name->file].s,
		       .line = name->line,
		       .flags = flags,
	       });
}

bool frames_push(struct frames *f, const struct frame_key *key, unsigned flags)
{
	const struct name *known;

	settle(f, UNKNOWN);
	f->flags = (u8)(flags & (FRAME_C | FRAME_UNSURE));
	known = find(f->names, key);
	if (known) {
		put_known(f, known, f->flags);
		return true;
	}
	f->key = *key;
	f->waits = true;
	/* Asked for nothing when nothing could be kept, or a hostile process would keep us reading. */
	if (f->no_reads || f->names->full || f->out->n == RUNTIME_FRAMES_MAX) {
		f->refused++;
		settle(f, TOO_MANY);
		return true;
	}
	return false;
}

void frames_name(struct frames *f, const char *func, const char *file, uint32_t line)
{
	if (!f->waits)
		return;
	if (!func || !*func)
		func = UNKNOWN;
	if (!add(f->names, &f->key, func, file, line)) {
		f->refused++;
		settle(f, TOO_MANY);
		return;
	}
	f->waits = false;
	put_known(f, &f->names->v[f->names->n - 1], f->flags);
}

void frames_gone(struct frames *f)
{
	f->flags |= FRAME_GONE;
	settle(f, GONE);
}

void frames_mark(struct frames *f, const char *name)
{
	settle(f, UNKNOWN);
	put(f, &(struct runtime_frame){ .func = name });
}

void frames_boundary(struct frames *f)
{
	struct runtime_frames *out = f->out;

	settle(f, UNKNOWN);
	if (out->nsegments < RUNTIME_FRAMES_MAX)
		out->segment[out->nsegments++] = out->n;
}

void frames_switch(struct frames *f)
{
	frames_boundary(f);
	if (f->out->switched == UINT32_MAX)
		f->out->switched = f->out->nsegments;
}

bool frames_labels_wanted(const struct frames *f)
{
	return f->labels_wanted;
}

void frames_label(struct frames *f, const char *key, const char *value)
{
	struct runtime_frames *out = f->out;

	if (!f->labels_wanted || out->nlabels == RUNTIME_LABELS_MAX || !value)
		return;
	out->labels[out->nlabels].key = key;
	utf8_clean(out->labels[out->nlabels].value, FRAME_LABEL_MAX, value,
		   strnlen(value, FRAME_LABEL_MAX));
	out->nlabels++;
}
