// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See table.h. In come the rows of a compiled file, out go leaves, page index and
 * rule dictionary. One pass over the rows per page size that is tried; nearly always the first one
 * does, since a page of 64 KiB has 56 distinct rules on average.
 *
 * Most of the saving is in what is left out: equal neighbours, and the gaps that alignment leaves
 * between functions, where no pc ever is.
 */
#include "table.h"

#include "cfi.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

/* Registers and operands are copied kind by kind; the number of a CFA kind is copied as it is. */
_Static_assert((int)CFI_CFA_NONE == (int)UNWIND_CFA_NONE, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_END == (int)UNWIND_CFA_END, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_UNSUPPORTED == (int)UNWIND_CFA_UNSUPPORTED, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_SIGNAL == (int)UNWIND_CFA_SIGNAL, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_REG == (int)UNWIND_CFA_REG, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_DEREF == (int)UNWIND_CFA_DEREF, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_SCALED == (int)UNWIND_CFA_SCALED, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_PLT == (int)UNWIND_CFA_PLT, "cfi.h and abi.h agree");
_Static_assert((int)CFI_CFA_MAX == (int)UNWIND_CFA_URETPROBE, "cfi.h and abi.h agree");
_Static_assert((int)CFI_RULE_SIGNAL_FRAME == (int)UNWIND_SIGNAL_FRAME, "cfi.h and abi.h agree");
_Static_assert((int)CFI_RULE_RA_SIGNED == (int)UNWIND_RA_SIGNED, "cfi.h and abi.h agree");

#define RULE_FLAGS (UNWIND_SIGNAL_FRAME | UNWIND_RA_SIGNED)

/* A page's limits: 16 bits count its rows; a block starts after 64 rows or 255 bytes. */
#define PAGE_ROWS_MAX   UINT16_MAX
#define PAGE_BLOCKS_MAX (1 + 65536 / LEAF_BLOCK_ROWS + 65536 / 256)
#define READ_AHEAD      8 /* bytes that may be read from any place in gap[] */

/* Where the parts of a leaf lie. */
struct leaf {
	u32 nblocks, nrules, nrows;
	u32 rules_at, rows_at, gap_at, len;
};

static u32 align_up(u32 v, u32 align)
{
	return (v + align - 1) & ~(align - 1);
}

static void leaf_lay_out(struct leaf *l)
{
	l->rules_at = (u32)(sizeof(struct leaf_head) + l->nblocks * sizeof(struct leaf_block));
	l->rows_at = l->rules_at + l->nrules * (u32)sizeof(u16);
	l->gap_at = align_up(l->rows_at + l->nrows, 8);
	l->len = l->gap_at + l->nrows + READ_AHEAD - 1;
}

static u16 get_u16(const u8 *p)
{
	u16 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static struct leaf_block block_at(const u8 *leaf, u32 i)
{
	struct leaf_block b;

	memcpy(&b, leaf + sizeof(struct leaf_head) + i * sizeof(b), sizeof(b));
	return b;
}

/* --- rules -------------------------------------------------------------------------------- */

/* A dictionary entry while it is built. */
struct entry {
	struct unwind_rule rule;
	struct unwind_wide wide;
};

static u8 from_kind(u8 cfi_from)
{
	static const u8 kinds[CFI_FROM_MAX] = {
		[CFI_FROM_LOST] = UNWIND_FROM_LOST,   [CFI_FROM_SAME] = UNWIND_FROM_SAME,
		[CFI_FROM_CFA] = UNWIND_FROM_CFA,     [CFI_FROM_REG] = UNWIND_FROM_REG,
		[CFI_FROM_DEREF] = UNWIND_FROM_DEREF,
	};

	return kinds[cfi_from];
}

static bool fits_s16(s32 v)
{
	return v >= INT16_MIN && v <= INT16_MAX;
}

/*
 * What is kept at the bottom of a large frame (arm64 keeps fp and lr there) is too far from the
 * frame address for 16 bits, but near the register that the frame address is counted from.
 */
static void count_from_register(const struct cfi_rule *c, u8 *from, u8 *reg, s32 *off)
{
	s64 near = (s64)c->cfa_off + *off;

	if (*from != CFI_FROM_CFA || fits_s16(*off) || c->cfa != CFI_CFA_REG || near < INT16_MIN ||
	    near > INT16_MAX)
		return;
	*from = CFI_FROM_DEREF;
	*reg = c->cfa_reg;
	*off = (s32)near;
}

/* Equal rules become equal bytes; `reason`, which is for people, is left behind. */
static void convert(const struct cfi_rule *rule, struct entry *e)
{
	struct cfi_rule copy = *rule, *c = &copy;

	count_from_register(rule, &copy.fp, &copy.fp_reg, &copy.fp_off);
	count_from_register(rule, &copy.ra, &copy.ra_reg, &copy.ra_off);
	*e = (struct entry){ .rule = { .cfa = c->cfa, .flags = c->flags & RULE_FLAGS } };
	if (c->cfa < CFI_CFA_REG)
		return;
	if (!fits_s16(c->fp_off) || !fits_s16(c->ra_off)) {
		e->rule = (struct unwind_rule){ .cfa = UNWIND_CFA_UNSUPPORTED };
		return;
	}
	e->rule.cfa_reg = c->cfa_reg;
	e->rule.cfa_off = c->cfa_off;
	e->rule.fp = from_kind(c->fp);
	e->rule.fp_reg = c->fp_reg;
	e->rule.fp_off = (s16)c->fp_off;
	e->rule.ra = from_kind(c->ra);
	e->rule.ra_reg = c->ra_reg;
	e->rule.ra_off = (s16)c->ra_off;
	e->rule.bx = from_kind(c->bx);
	if (!c->cfa_add && !c->bx_off && !c->cfa_index && !c->cfa_scale)
		return;
	e->rule.flags |= UNWIND_WIDE;
	e->wide.cfa_add = c->cfa_add;
	e->wide.bx_off = c->bx_off;
	e->wide.cfa_index = c->cfa_index;
	e->wide.cfa_scale = c->cfa_scale;
}

static void entry_get(const struct unwind_rule *rules, u32 slot, struct entry *e)
{
	*e = (struct entry){ .rule = rules[slot] };
	if (e->rule.flags & UNWIND_WIDE)
		memcpy(&e->wide, &rules[slot + 1], sizeof(e->wide));
}

struct dictionary {
	struct unwind_rule *slots;
	u32 n, cap, nrules;
	struct htab by_rule;
	u16 *slot_of; /* by rule of the cfi; UNSEEN: no row has it */
	u16 fp_slot;  /* of UNWIND_CFA_FP; 0: no row has it */
};

#define UNSEEN UINT16_MAX

static void dictionary_fini(struct dictionary *d)
{
	free(d->slots);
	htab_fini(&d->by_rule);
	free(d->slot_of);
}

/* Returns the slot, or -errno. */
static int intern(struct dictionary *d, const struct entry *e)
{
	u64 hash = hash_bytes(e, sizeof(*e));
	u32 pos, slot, need = e->rule.flags & UNWIND_WIDE ? 2 : 1;
	int err;

	for (pos = htab_start(&d->by_rule, hash); htab_next(&d->by_rule, hash, &pos, &slot);) {
		struct entry old;

		entry_get(d->slots, slot, &old);
		if (!memcmp(&old, e, sizeof(old)))
			return (int)slot;
	}
	err = VEC_RESERVE(d->slots, d->cap, d->n + need, TABLE_SLOTS_MAX);
	if (!err)
		err = htab_insert(&d->by_rule, hash, d->n);
	if (err)
		return err;
	slot = d->n;
	d->slots[slot] = e->rule;
	if (need == 2)
		memcpy(&d->slots[slot + 1], &e->wide, sizeof(e->wide));
	d->n += need;
	d->nrules++;
	return (int)slot;
}

/*
 * A stretch of text without any entry that is too long to be a hole in a table: code that does
 * without CFI and keeps frame pointers, such as the builtins of a JavaScript engine.
 */
static bool is_without_cfi(const struct cfi *cfi, u32 i)
{
	return cfi->rules[cfi->rows[i].rule].cfa == CFI_CFA_NONE && i + 1 < cfi->nrows &&
	       cfi->rows[i + 1].pc - cfi->rows[i].pc >= TABLE_WITHOUT_CFI_MIN;
}

/* Slots for the rules that rows have; NONE first, so that it gets slot 0. */
static int dictionary_init(struct dictionary *d, const struct cfi *cfi)
{
	struct entry e = { 0 };
	u32 i;
	int slot;

	d->slot_of = malloc(MAX(cfi->nrules, 1u) * sizeof(d->slot_of[0]));
	if (!d->slot_of)
		return -ENOMEM;
	memset(d->slot_of, 0xff, cfi->nrules * sizeof(d->slot_of[0]));
	slot = intern(d, &e);
	if (slot < 0)
		return slot;
	for (i = 0; i < cfi->nrows && !d->fp_slot; i++) {
		if (!is_without_cfi(cfi, i))
			continue;
		e.rule.cfa = UNWIND_CFA_FP;
		slot = intern(d, &e);
		if (slot < 0)
			return slot;
		d->fp_slot = (u16)slot;
	}
	for (i = 0; i < cfi->nrows; i++) {
		u32 rule = cfi->rows[i].rule;

		if (d->slot_of[rule] != UNSEEN)
			continue;
		convert(&cfi->rules[rule], &e);
		slot = intern(d, &e);
		if (slot < 0)
			return slot;
		d->slot_of[rule] = (u16)slot;
	}
	return 0;
}

/* --- rows, merged and bridged ------------------------------------------------------------- */

struct rows {
	const struct cfi *cfi;
	const u16 *slot_of;
	u16 fp_slot;
	u32 next; /* row of cfi */
	u32 pc;   /* current row, from cfi->base */
	u16 slot;
};

/* Padding between functions. The last row closes the file and stays. */
static bool is_padding(const struct cfi *cfi, u32 i)
{
	if (i + 1 >= cfi->nrows || cfi->rows[i + 1].pc - cfi->rows[i].pc > TABLE_BRIDGE_MAX)
		return false;
	/* A function that ends stacks is returned to at its first byte: see bpf/unwind.h. */
	return cfi->rules[cfi->rows[i + 1].rule].cfa != CFI_CFA_END;
}

/* Before the first row NONE is in force. */
static bool rows_next(struct rows *r)
{
	while (r->next < r->cfi->nrows) {
		u32 i = r->next++;
		u16 slot = r->slot_of[r->cfi->rows[i].rule];

		if (!slot && is_without_cfi(r->cfi, i))
			slot = r->fp_slot;
		if (slot == r->slot || (!slot && is_padding(r->cfi, i)))
			continue;
		r->slot = slot;
		r->pc = r->cfi->rows[i].pc;
		return true;
	}
	return false;
}

/* --- pages -------------------------------------------------------------------------------- */

/* The page being filled. */
struct page {
	u32 number;
	u32 last; /* offset in the page of its last row */
	struct leaf leaf;
	struct leaf_block blocks[PAGE_BLOCKS_MAX];
	u16 rules[LEAF_RULES_MAX];
	u8 row[PAGE_ROWS_MAX], gap[PAGE_ROWS_MAX];
	/* Per slot: its place in rules[], good while seen_in is this page's turn. */
	u8 local[TABLE_SLOTS_MAX];
	u32 seen_in[TABLE_SLOTS_MAX];
	u32 turn;
};

struct packer {
	struct table *t;
	struct dictionary dict;
	struct page *page;
	u32 leaves_cap;
};

/* Place of a slot in the page's list; -E2BIG when the list is full. */
static int page_rule(struct page *p, u16 slot)
{
	if (p->seen_in[slot] == p->turn)
		return p->local[slot];
	if (p->leaf.nrules == LEAF_RULES_MAX)
		return -E2BIG;
	p->seen_in[slot] = p->turn;
	p->local[slot] = (u8)p->leaf.nrules;
	p->rules[p->leaf.nrules++] = slot;
	return p->local[slot];
}

/* A row behind the last one, or the first. -E2BIG: the page is full. */
static int page_add(struct page *p, u32 off, u16 slot)
{
	struct leaf *l = &p->leaf;
	u32 in_block = l->nblocks ? l->nrows - p->blocks[l->nblocks - 1].first : 0;
	bool starts = !l->nblocks || in_block == LEAF_BLOCK_ROWS || off - p->last > UINT8_MAX;
	int rule;

	if (l->nrows == PAGE_ROWS_MAX)
		return -E2BIG;
	rule = page_rule(p, slot);
	if (rule < 0)
		return rule;
	if (starts)
		p->blocks[l->nblocks++] = (struct leaf_block){ (u16)off, (u16)l->nrows };
	p->row[l->nrows] = (u8)rule;
	p->gap[l->nrows] = starts ? 0 : (u8)(off - p->last);
	l->nrows++;
	p->last = off;
	return 0;
}

static int page_open(struct page *p, u32 number, u16 slot)
{
	p->number = number;
	p->leaf = (struct leaf){ 0 };
	p->last = 0;
	p->turn++;
	return page_add(p, 0, slot);
}

/* Grows by a quarter: leaves are nearly all of a table. */
static int leaves_reserve(struct packer *p, u32 need)
{
	u64 cap = MAX(need, p->leaves_cap + (u64)p->leaves_cap / 4);
	u8 *leaves;

	if (need <= p->leaves_cap)
		return 0;
	cap = MIN(cap, UINT32_MAX);
	leaves = realloc(p->t->leaves, cap);
	if (!leaves)
		return -ENOMEM;
	p->t->leaves = leaves;
	p->leaves_cap = (u32)cap;
	return 0;
}

/* Writes the page's leaf, unless there is no rule in all of it. */
static int page_close(struct packer *p)
{
	struct page *page = p->page;
	struct leaf *l = &page->leaf;
	struct table *t = p->t;
	struct leaf_head head;
	u32 end;
	u8 *to;
	int err;

	if (l->nrows == 1 && page->rules[0] == 0)
		return 0;
	leaf_lay_out(l);
	/* Rows are at most 4 M and pages TABLE_PAGES_MAX: far below 32 bits. */
	end = t->leaves_len + align_up(l->len, SLAB_GRAIN);
	err = leaves_reserve(p, end);
	if (err)
		return err;
	to = t->leaves + t->leaves_len;
	memset(to, 0, end - t->leaves_len);
	head = (struct leaf_head){ (u16)l->nblocks, (u16)l->nrules, (u16)l->nrows,
				   (u16)(l->gap_at / 8) };
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), page->blocks, l->nblocks * sizeof(page->blocks[0]));
	memcpy(to + l->rules_at, page->rules, l->nrules * sizeof(page->rules[0]));
	memcpy(to + l->rows_at, page->row, l->nrows);
	memcpy(to + l->gap_at, page->gap, l->nrows);
	t->leaf_at[page->number] = t->leaves_len;
	t->leaf_len[page->number] = l->len;
	t->leaves_len = end;
	t->nrows += l->nrows;
	return 0;
}

/* Closes the page and all up to `number`, which is then open; `carry` is in force between them. */
static int page_turn(struct packer *p, u32 number, u16 carry, u16 first)
{
	int err = page_close(p);

	while (!err && carry && p->page->number + 1 < number) {
		err = page_open(p->page, p->page->number + 1, carry);
		if (!err)
			err = page_close(p);
	}
	return err ? err : page_open(p->page, number, first);
}

/* --- packing ------------------------------------------------------------------------------ */

/* Index for pages of that size, all without a leaf. */
static int pages_init(struct packer *p, const struct cfi *cfi, u32 first_pc, u32 shift)
{
	struct table *t = p->t;
	u64 end = cfi->base + cfi->rows[cfi->nrows - 1].pc, npages;

	t->shift = shift;
	t->base = (cfi->base + first_pc) >> shift << shift;
	npages = ((end - t->base - 1) >> shift) + 1;
	if (npages > TABLE_PAGES_MAX)
		return -E2BIG;
	free(t->leaf_at);
	free(t->leaf_len);
	t->npages = (u32)npages;
	t->leaf_at = malloc(npages * sizeof(t->leaf_at[0]));
	t->leaf_len = calloc(npages, sizeof(t->leaf_len[0]));
	if (!t->leaf_at || !t->leaf_len)
		return -ENOMEM;
	memset(t->leaf_at, 0xff, npages * sizeof(t->leaf_at[0]));
	t->leaves_len = t->nrows = t->nmerged = 0;
	t->unsupported = 0;
	return 0;
}

static int add_row(struct packer *p, u64 off, u16 carry, u16 slot)
{
	u32 number = (u32)(off >> p->t->shift);
	u32 in_page = (u32)(off & ((1u << p->t->shift) - 1));

	p->t->nmerged++;
	p->t->unsupported += p->dict.slots[slot].cfa == UNWIND_CFA_UNSUPPORTED;
	if (number != p->page->number) {
		int err = page_turn(p, number, carry, in_page ? carry : slot);

		if (err || !in_page)
			return err;
	}
	return page_add(p->page, in_page, slot);
}

/* -ERANGE: a page needs more than a leaf can hold. */
static int pack_pages(struct packer *p, const struct cfi *cfi, u32 shift)
{
	struct rows rows = {
		.cfi = cfi,
		.slot_of = p->dict.slot_of,
		.fp_slot = p->dict.fp_slot,
	};
	u16 carry = 0;
	u64 skew;
	int err;

	if (!rows_next(&rows))
		return 0;
	err = pages_init(p, cfi, rows.pc, shift);
	if (err)
		return err;
	skew = cfi->base - p->t->base;
	/* No row lies there, so that the first one opens its page. */
	p->page->number = UINT32_MAX;
	p->page->leaf = (struct leaf){ .nrows = 1 };
	p->page->rules[0] = 0;
	do {
		err = add_row(p, rows.pc + skew, carry, rows.slot);
		if (err)
			return err == -E2BIG ? -ERANGE : err;
		carry = rows.slot;
	} while (rows_next(&rows));
	return page_close(p);
}

static void shrink(struct packer *p)
{
	struct table *t = p->t;
	u8 *leaves = realloc(t->leaves, MAX(t->leaves_len, 1u));
	struct unwind_rule *rules = realloc(t->rules, t->nslots * sizeof(t->rules[0]));

	if (leaves)
		t->leaves = leaves;
	if (rules)
		t->rules = rules;
}

static void packer_fini(struct packer *p)
{
	dictionary_fini(&p->dict);
	free(p->page);
}

int table_pack(const struct cfi *cfi, struct table *ret)
{
	_cleanup_(table_fini) struct table t = { .shift = TABLE_SHIFT_MAX };
	_cleanup_(packer_fini) struct packer p = { .t = &t };
	u32 shift;
	int err;

	p.page = calloc(1, sizeof(*p.page));
	if (!p.page)
		return -ENOMEM;
	err = dictionary_init(&p.dict, cfi);
	if (err)
		return err;
	err = -ERANGE;
	for (shift = TABLE_SHIFT_MAX; err == -ERANGE && shift >= TABLE_SHIFT_MIN; shift--)
		err = pack_pages(&p, cfi, shift);
	if (err)
		return err == -ERANGE ? -E2BIG : err;
	t.nslots = p.dict.n;
	t.nrules = p.dict.nrules;
	t.rules = take_ptr(p.dict.slots);
	shrink(&p);
	*ret = t;
	t = (struct table){ 0 };
	return 0;
}

void table_fini(struct table *t)
{
	free(t->leaf_at);
	free(t->leaf_len);
	free(t->leaves);
	free(t->rules);
	*t = (struct table){ 0 };
}

u64 table_bytes(const struct table *t)
{
	return (u64)t->leaves_len + (u64)align_up(t->npages * (u32)sizeof(u32), SLAB_GRAIN) +
	       (u64)t->nslots * sizeof(struct unwind_rule);
}

/* --- search ------------------------------------------------------------------------------- */

/* Number of the row in force at an offset of the page: one by one, nothing clever. */
static u32 row_at(const u8 *leaf, const struct leaf *l, u32 off)
{
	u32 i = 0, end, row, pc;

	while (i + 1 < l->nblocks && block_at(leaf, i + 1).pc <= off)
		i++;
	end = i + 1 < l->nblocks ? block_at(leaf, i + 1).first : l->nrows;
	row = block_at(leaf, i).first;
	pc = block_at(leaf, i).pc;
	while (row + 1 < end && pc + leaf[l->gap_at + row + 1] <= off)
		pc += leaf[l->gap_at + ++row];
	return row;
}

static void leaf_read(const u8 *leaf, struct leaf *l)
{
	struct leaf_head head;

	memcpy(&head, leaf, sizeof(head));
	*l = (struct leaf){ .nblocks = head.nblocks, .nrules = head.nrules, .nrows = head.nrows };
	leaf_lay_out(l);
}

bool table_find(const struct table *t, u64 addr, struct unwind_rule *rule, struct unwind_wide *wide)
{
	u64 off = addr - t->base;
	struct entry e = { 0 };

	/* Below the base the offset wraps and is far behind the last page. */
	if (off >> t->shift < t->npages && t->leaf_at[off >> t->shift] != UINT32_MAX) {
		const u8 *leaf = t->leaves + t->leaf_at[off >> t->shift];
		struct leaf l;
		u32 row;

		leaf_read(leaf, &l);
		row = row_at(leaf, &l, (u32)(off & ((1u << t->shift) - 1)));
		entry_get(t->rules, get_u16(leaf + l.rules_at + 2 * leaf[l.rows_at + row]), &e);
	}
	*rule = e.rule;
	if (wide)
		*wide = e.wide;
	return e.rule.cfa != UNWIND_CFA_NONE;
}

/* --- bytes for the disk ------------------------------------------------------------------- */

/* Followed by rules[nslots], leaf_at[npages], leaf_len[npages], leaves. Little endian. */
struct saved {
	char magic[8];
	u32 version;
	u32 crc;
	u64 len; /* of all */
	u64 base;
	u64 unsupported;
	u32 shift, npages, nslots, leaves_len;
	u32 nrules, nrows, nmerged;
	u32 pad;
};

_Static_assert(offsetof(struct saved, crc) == TABLE_CRC_AT, "the checksum has its place");
_Static_assert(sizeof(struct saved) == 72, "no hole in the header");

static const char magic[8] = "ebpf.tbl";

static u64 saved_len(const struct saved *s)
{
	return sizeof(*s) + (u64)s->nslots * sizeof(struct unwind_rule) +
	       2ull * s->npages * sizeof(u32) + s->leaves_len;
}

/* Of the whole, with zeros where the checksum lies. */
static u32 checksum(const u8 *data, size_t len)
{
	static const u8 zeros[sizeof(u32)];
	size_t rest = TABLE_CRC_AT + sizeof(zeros);
	uLong crc = crc32_z(0, data, TABLE_CRC_AT);

	crc = crc32_z(crc, zeros, sizeof(zeros));
	return (u32)crc32_z(crc, data + rest, len - rest);
}

static u8 *append(u8 *to, const void *from, size_t len)
{
	if (len)
		memcpy(to, from, len);
	return to + len;
}

int table_save(const struct table *t, u8 **ret, size_t *ret_len)
{
	struct saved s = {
		.version = TABLE_VERSION,
		.base = t->base,
		.unsupported = t->unsupported,
		.shift = t->shift,
		.npages = t->npages,
		.nslots = t->nslots,
		.leaves_len = t->leaves_len,
		.nrules = t->nrules,
		.nrows = t->nrows,
		.nmerged = t->nmerged,
	};
	u8 *data, *to;

	memcpy(s.magic, magic, sizeof(magic));
	s.len = saved_len(&s);
	data = malloc(s.len);
	if (!data)
		return -ENOMEM;
	to = append(data, &s, sizeof(s));
	to = append(to, t->rules, t->nslots * sizeof(t->rules[0]));
	to = append(to, t->leaf_at, t->npages * sizeof(t->leaf_at[0]));
	to = append(to, t->leaf_len, t->npages * sizeof(t->leaf_len[0]));
	append(to, t->leaves, t->leaves_len);
	s.crc = checksum(data, s.len);
	memcpy(data + TABLE_CRC_AT, &s.crc, sizeof(s.crc));
	*ret = data;
	*ret_len = s.len;
	return 0;
}

static bool header_sound(const struct saved *s, size_t len)
{
	u64 span = (u64)s->npages << s->shift % 64;

	return !memcmp(s->magic, magic, sizeof(magic)) && s->version == TABLE_VERSION &&
	       s->len == len && saved_len(s) == len && s->shift >= TABLE_SHIFT_MIN &&
	       s->shift <= TABLE_SHIFT_MAX && s->npages <= TABLE_PAGES_MAX && s->nslots >= 1 &&
	       s->nslots <= TABLE_SLOTS_MAX && s->base % (1ull << s->shift) == 0 &&
	       (!span || s->base + (span - 1) >= s->base) && s->nrules <= s->nslots &&
	       s->unsupported <= s->nmerged && !s->pad;
}

/* DWARF numbers of both machines are below 32. */
static bool rule_sound(const struct unwind_rule *r, const struct unwind_wide *w)
{
	return r->cfa <= UNWIND_CFA_FP && r->cfa != UNWIND_CFA_URETPROBE &&
	       r->fp <= UNWIND_FROM_LOST && r->ra <= UNWIND_FROM_LOST &&
	       r->bx <= UNWIND_FROM_LOST && r->cfa_reg < 32 && r->fp_reg < 32 && r->ra_reg < 32 &&
	       !(r->flags & ~(RULE_FLAGS | UNWIND_WIDE)) && w->cfa_index < 32;
}

/* Marks the slots where a rule begins. */
static bool rules_sound(const struct table *t, u8 *begins)
{
	static const struct unwind_rule none;
	u32 slot, nrules = 0;
	struct entry e;

	if (memcmp(&t->rules[0], &none, sizeof(none)) != 0)
		return false;
	for (slot = 0; slot < t->nslots; slot++) {
		bool wide = t->rules[slot].flags & UNWIND_WIDE;

		if (wide && slot + 1 == t->nslots)
			return false;
		entry_get(t->rules, slot, &e);
		if (!rule_sound(&e.rule, &e.wide))
			return false;
		begins[slot] = true;
		nrules++;
		slot += wide;
	}
	return nrules == t->nrules;
}

/* Rows of one block: gaps of 1..255, all before the next block or the page's end. */
static bool block_sound(const u8 *leaf, const struct leaf *l, u32 i, u32 page_size)
{
	struct leaf_block b = block_at(leaf, i);
	bool last = i + 1 == l->nblocks;
	u32 end = last ? l->nrows : block_at(leaf, i + 1).first;
	u32 limit = last ? page_size : block_at(leaf, i + 1).pc;
	u32 pc = b.pc, row;

	if (b.first >= end || end > l->nrows || end - b.first > LEAF_BLOCK_ROWS ||
	    leaf[l->gap_at + b.first] != 0)
		return false;
	for (row = b.first + 1u; row < end; row++) {
		if (!leaf[l->gap_at + row])
			return false;
		pc += leaf[l->gap_at + row];
	}
	return pc < limit;
}

static bool leaf_sound(const struct table *t, const u8 *leaf, u32 len, const u8 *begins)
{
	struct leaf_head head;
	struct leaf_block first;
	struct leaf l;
	u32 i;

	if (len < sizeof(head))
		return false;
	memcpy(&head, leaf, sizeof(head));
	leaf_read(leaf, &l);
	if (!l.nblocks || !l.nrules || !l.nrows || l.nrules > LEAF_RULES_MAX || l.len != len ||
	    head.gap_at != l.gap_at / 8)
		return false;
	first = block_at(leaf, 0);
	if (first.pc || first.first)
		return false;
	for (i = 0; i < l.nblocks; i++)
		if (!block_sound(leaf, &l, i, 1u << t->shift))
			return false;
	for (i = 0; i < l.nrules; i++) {
		u16 slot = get_u16(leaf + l.rules_at + 2 * i);

		if (slot >= t->nslots || !begins[slot])
			return false;
	}
	for (i = 0; i < l.nrows; i++)
		if (leaf[l.rows_at + i] >= l.nrules)
			return false;
	return true;
}

/* Leaves lie one behind the other in the order of their pages, as they were packed. */
static bool pages_sound(const struct table *t, const u8 *begins)
{
	u64 at = 0, nrows = 0;
	u32 i;

	for (i = 0; i < t->npages; i++) {
		struct leaf l;

		if (t->leaf_at[i] == UINT32_MAX && !t->leaf_len[i])
			continue;
		if (t->leaf_at[i] != at || t->leaf_len[i] > t->leaves_len - at ||
		    !leaf_sound(t, t->leaves + at, t->leaf_len[i], begins))
			return false;
		leaf_read(t->leaves + at, &l);
		nrows += l.nrows;
		at += align_up(l.len, SLAB_GRAIN);
		if (at > t->leaves_len)
			return false;
	}
	return at == t->leaves_len && nrows == t->nrows;
}

/* A copy of the next len bytes. */
static void *cut(const u8 **from, size_t len)
{
	void *p = malloc(MAX(len, (size_t)1));

	if (p)
		memcpy(p, *from, len);
	*from += len;
	return p;
}

int table_load(const u8 *data, size_t len, struct table *ret)
{
	_cleanup_(table_fini) struct table t = { 0 };
	_cleanup_free_ u8 *begins = NULL;
	struct saved s;

	if (len < sizeof(s))
		return -EINVAL;
	memcpy(&s, data, sizeof(s));
	if (!header_sound(&s, len) || checksum(data, len) != s.crc)
		return -EINVAL;
	data += sizeof(s);
	t = (struct table){ .base = s.base,
			    .shift = s.shift,
			    .npages = s.npages,
			    .leaves_len = s.leaves_len,
			    .nslots = s.nslots,
			    .nrules = s.nrules,
			    .nrows = s.nrows,
			    .nmerged = s.nmerged,
			    .unsupported = s.unsupported };
	t.rules = cut(&data, s.nslots * sizeof(t.rules[0]));
	t.leaf_at = cut(&data, s.npages * sizeof(t.leaf_at[0]));
	t.leaf_len = cut(&data, s.npages * sizeof(t.leaf_len[0]));
	t.leaves = cut(&data, s.leaves_len);
	begins = calloc(s.nslots, 1);
	if (!t.rules || !t.leaf_at || !t.leaf_len || !t.leaves || !begins)
		return -ENOMEM;
	if (!rules_sound(&t, begins) || !pages_sound(&t, begins))
		return -EINVAL;
	*ret = t;
	t = (struct table){ 0 };
	return 0;
}
