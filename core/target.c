// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See target.h. What all targets share: no unwinder's question goes further than its
 * bounds allow, and a page that one walk reads often is read once.
 */
#include "target.h"

#include <errno.h>
#include <string.h>

#define PAGE      4096ull
#define PAGES_MAX 512u /* of one walk; when they are full all are forgotten */
#define SLOTS     1024u
#define LARGE     (2 * PAGE)

/*
 * Kernels with larger pages give the same bytes. Slots lead from an address to a page, by linear
 * probing: index + 1, 0 is empty.
 */
struct target_pages {
	u32 n, cap;
	u16 slot[SLOTS];
	struct page {
		u64 addr;
		bool readable;
		u8 data[PAGE];
	} * page;
};

void target_begin(struct target *t)
{
	t->reads = 0;
	t->asks = 0;
	if (t->pages && t->pages->n) {
		t->pages->n = 0;
		memset(t->pages->slot, 0, sizeof(t->pages->slot));
	}
	if (t->ops->begin)
		t->ops->begin(t);
}

static void pages_free(struct target *t)
{
	if (t->pages)
		free(t->pages->page);
	free(t->pages);
	t->pages = NULL;
}

void target_rest(struct target *t)
{
	pages_free(t);
	if (t->ops->rest)
		t->ops->rest(t);
}

void target_free(struct target *t)
{
	if (!t)
		return;
	pages_free(t);
	t->ops->free(t);
}

enum target_arch target_arch(const struct target *t)
{
	return t->arch;
}

/* --- pages ----------------------------------------------------------------------------------- */

static u32 slot_of(u64 addr)
{
	return (u32)((addr / PAGE * 0x9e3779b97f4a7c15ull) >> 32) % SLOTS;
}

static struct page *page_find(struct target_pages *ps, u64 addr)
{
	u32 s;

	/* At most half of the slots are taken, so an empty one ends it. */
	for (s = slot_of(addr); ps->slot[s]; s = (s + 1) % SLOTS)
		if (ps->page[ps->slot[s] - 1].addr == addr)
			return &ps->page[ps->slot[s] - 1];
	return NULL;
}

/* Room for a page that is not there. */
static struct page *page_add(struct target_pages *ps, u64 addr)
{
	u32 s;

	if (ps->n == PAGES_MAX) {
		ps->n = 0;
		memset(ps->slot, 0, sizeof(ps->slot));
	}
	if (VEC_RESERVE(ps->page, ps->cap, ps->n + 1, PAGES_MAX))
		return NULL;
	for (s = slot_of(addr); ps->slot[s]; s = (s + 1) % SLOTS)
		;
	ps->slot[s] = (u16)++ps->n;
	ps->page[ps->n - 1].addr = addr;
	return &ps->page[ps->n - 1];
}

static const struct page *page_get(struct target *t, u64 addr)
{
	struct page *p;

	if (!t->pages)
		t->pages = calloc(1, sizeof(*t->pages));
	if (!t->pages)
		return NULL;
	p = page_find(t->pages, addr);
	if (p)
		return p;
	p = page_add(t->pages, addr);
	if (p)
		p->readable = !t->hung && !t->ops->read(t, addr, p->data, PAGE);
	return p;
}

/* Bytes of one page; -EFAULT. */
static int read_in_page(struct target *t, u64 addr, void *dst, size_t len)
{
	const struct page *p = page_get(t, addr & ~(PAGE - 1));

	if (!p || !p->readable)
		return -EFAULT;
	memcpy(dst, p->data + addr % PAGE, len);
	return 0;
}

static int read_pages(struct target *t, u64 addr, u8 *dst, size_t len)
{
	/* TARGET_READ_MAX / PAGE + 1 turns at most. */
	while (len) {
		size_t n = MIN(len, PAGE - addr % PAGE);
		int err = read_in_page(t, addr, dst, n);

		if (err)
			return err;
		addr += n;
		dst += n;
		len -= n;
	}
	return 0;
}

/* --- reading --------------------------------------------------------------------------------- */

static bool may_read(struct target *t)
{
	if (t->reads >= TARGET_READS_MAX)
		return false;
	t->reads++;
	return !t->hung;
}

int target_read_for(struct target *t, uint64_t addr, void *dst, size_t len, const char *func,
		    const char *field)
{
	t->func = func;
	t->field = field;
	if (!may_read(t) || len > TARGET_READ_MAX || addr + len < addr)
		return -EFAULT;
	if (t->ops->direct)
		return t->ops->read(t, addr, dst, len) ? -EFAULT : 0;
	/* Large ones would only drive the rest out of the cache. */
	if (len > LARGE)
		return t->ops->read(t, addr, dst, len) ? -EFAULT : 0;
	return read_pages(t, addr, dst, len);
}

/* What lies before an unreadable page counts only when it has the NUL. */
static int string_in_pages(struct target *t, u64 addr, size_t len, char *dst)
{
	size_t done = 0;

	while (done < len) {
		size_t n = MIN(len - done, PAGE - (addr + done) % PAGE), used;

		if (read_in_page(t, addr + done, dst + done, n))
			return -EFAULT;
		used = strnlen(dst + done, n);
		done += used;
		if (used < n)
			break;
	}
	dst[done] = '\0';
	return (int)done;
}

int target_string_for(struct target *t, uint64_t addr, size_t len, char *dst, size_t size,
		      const char *func, const char *field)
{
	int n;

	t->func = func;
	t->field = field;
	if (!size)
		return -EFAULT;
	dst[0] = '\0';
	len = MIN(MIN(len, size - 1), TARGET_READ_MAX);
	if (!may_read(t) || addr + len < addr)
		return -EFAULT;
	n = t->ops->direct ? t->ops->string(t, addr, len, dst, size)
			   : string_in_pages(t, addr, len, dst);
	if (n >= 0)
		return n;
	dst[0] = '\0';
	return -EFAULT;
}

/* --- all else -------------------------------------------------------------------------------- */

static bool may_ask(struct target *t)
{
	if (t->asks >= TARGET_ASKS_MAX)
		return false;
	t->asks++;
	return true;
}

bool target_module(struct target *t, uint32_t i, struct target_module *ret)
{
	return i < TARGET_MODULES_MAX && may_ask(t) && t->ops->module(t, i, ret);
}

static bool may_ask_name(struct target *t, u32 i, const char *name)
{
	return i < TARGET_MODULES_MAX && *name &&
	       strnlen(name, TARGET_NAME_MAX) < TARGET_NAME_MAX && may_ask(t);
}

uint64_t target_symbol(struct target *t, uint32_t i, const char *name, uint64_t *size)
{
	u64 unused;

	if (!size)
		size = &unused;
	*size = 0;
	return may_ask_name(t, i, name) ? t->ops->symbol(t, i, name, size) : 0;
}

uint64_t target_section(struct target *t, uint32_t i, const char *name, uint64_t *size)
{
	u64 unused;

	if (!size)
		size = &unused;
	*size = 0;
	return may_ask_name(t, i, name) ? t->ops->section(t, i, name, size) : 0;
}

bool target_function(struct target *t, uint32_t i, uint64_t addr, uint64_t *lo, uint64_t *hi)
{
	return i < TARGET_MODULES_MAX && may_ask(t) && t->ops->function(t, i, addr, lo, hi);
}

bool target_thread(struct target *t, uint32_t i, struct target_thread *ret)
{
	return i < TARGET_THREADS_MAX && t->ops->thread(t, i, ret);
}

enum target_memory target_memory(struct target *t, uint64_t addr)
{
	return may_ask(t) ? t->ops->memory(t, addr) : TARGET_NOTHING;
}

/* --- small change ----------------------------------------------------------------------------- */

bool version_parse(const char *s, struct version *ret)
{
	u16 *const parts[] = { &ret->major, &ret->minor, &ret->patch };
	u32 i, digits, n;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		for (n = digits = 0; *s >= '0' && *s <= '9' && digits < 4; s++, digits++)
			n = n * 10 + (u32)(*s - '0');
		if (!digits || (i < 2 && *s++ != '.'))
			return false;
		*parts[i] = (u16)n;
	}
	return true;
}

void text_append(char *dst, size_t size, const char *s)
{
	size_t n = strlen(dst), len = MIN(strlen(s), size - 1 - n);

	memcpy(dst + n, s, len);
	dst[n + len] = '\0';
}
