// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See dwarfnames.h. Units are found by their ranges, since not every compiler writes
 * .debug_aranges; the functions of a unit are listed once for all addresses in it, since libdw's own
 * search walks the whole unit for each.
 */
#include "dwarfnames.h"

#include "demangle.h"
#include "strtab.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <string.h>

#define RANGES_MAX   (8u << 20) /* of units; of functions in a unit */
#define NESTING_MAX  64 /* of namespaces and types around functions, and of blocks in them */
#define DIES_MAX     (64u << 20) /* looked at in one unit: siblings may form a ring */
#define OVERLAP_MAX  16          /* functions that begin before an address and may hold it */
#define NAME_MAX_LEN 4096
#define TEXT_MAX     (256u << 20)
#define UNITS_MAX    (4u << 20)

struct range {
	u64 lo, hi;
	Dwarf_Die die;
};

struct ranges {
	struct range *v;
	u32 n, cap;
};

struct dwarfnames {
	Dwarf *dwarf;
	struct ranges units;
	struct ranges functions; /* of `unit` */
	void *unit;              /* die.addr of the unit that was listed */
	u32 dies;                /* looked at in it */
	struct strtab text;
};

static int by_start(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	/* The outer one first. */
	return x->hi > y->hi ? -1 : x->hi < y->hi;
}

/* All code that an entry says is its. */
static int add_ranges(struct ranges *r, Dwarf_Die *die)
{
	Dwarf_Addr base, lo, hi;
	ptrdiff_t off = 0;
	u32 before = r->n;

	while ((off = dwarf_ranges(die, off, &base, &lo, &hi)) > 0) {
		int err;

		if (lo >= hi)
			continue;
		err = VEC_RESERVE(r->v, r->cap, r->n + 1, RANGES_MAX);
		if (err)
			return err;
		r->v[r->n++] = (struct range){ lo, hi, *die };
		if (r->n - before > RANGES_MAX / 8)
			break;
	}
	return 0;
}

/* The innermost range that holds an address; NULL: none. */
static struct range *find(const struct ranges *r, u64 addr)
{
	u32 lo = 0, hi = r->n, i;

	/* Halves each turn. */
	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (r->v[mid].lo <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (i = 0; i < OVERLAP_MAX && lo > i; i++)
		if (addr < r->v[lo - 1 - i].hi)
			return &r->v[lo - 1 - i];
	return NULL;
}

static int list_units(struct dwarfnames *d)
{
	Dwarf_CU *cu = NULL, *next;
	Dwarf_Die die, split;
	u8 type;
	u32 n = 0;

	while (!dwarf_get_units(d->dwarf, cu, &next, NULL, &type, &die, &split)) {
		int err;

		cu = next;
		if (++n > UNITS_MAX)
			break;
		if (dwarf_tag(&die) != DW_TAG_compile_unit &&
		    dwarf_tag(&die) != DW_TAG_skeleton_unit)
			continue;
		err = add_ranges(&d->units, &die);
		if (err == -ENOMEM)
			return err;
	}
	if (d->units.n)
		qsort(d->units.v, d->units.n, sizeof(*d->units.v), by_start);
	return d->units.n ? 0 : -ENOENT;
}

int dwarfnames_new(int fd, struct dwarfnames **ret)
{
	struct dwarfnames *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	d->text.max_bytes = TEXT_MAX;
	d->dwarf = dwarf_begin(fd, DWARF_C_READ);
	err = d->dwarf ? list_units(d) : -ENOENT;
	if (err) {
		dwarfnames_free(d);
		return err;
	}
	*ret = d;
	return 0;
}

void dwarfnames_free(struct dwarfnames *d)
{
	if (!d)
		return;
	if (d->dwarf)
		dwarf_end(d->dwarf);
	free(d->units.v);
	free(d->functions.v);
	strtab_fini(&d->text);
	free(d);
}

/* --- functions of a unit --------------------------------------------------------------------- */

static bool holds_functions(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
	       tag == DW_TAG_class_type || tag == DW_TAG_union_type ||
	       tag == DW_TAG_enumeration_type || tag == DW_TAG_imported_unit;
}

/* DWARF's tree, as deep as NESTING_MAX and as wide as DIES_MAX allows. */
static int list_functions(struct dwarfnames *d, Dwarf_Die *parent, u32 depth)
{
	Dwarf_Die die;
	int err = 0;

	if (depth == NESTING_MAX || dwarf_child(parent, &die))
		return 0;
	do {
		int tag = dwarf_tag(&die);

		if (++d->dies > DIES_MAX)
			return 0;
		if (tag == DW_TAG_subprogram)
			err = add_ranges(&d->functions, &die);
		else if (holds_functions(tag))
			err = list_functions(d, &die, depth + 1);
	} while (err != -ENOMEM && !dwarf_siblingof(&die, &die));
	return err;
}

static void list_unit(struct dwarfnames *d, Dwarf_Die *unit)
{
	Dwarf_Die die, split, *body = unit;
	u8 type = 0;

	if (d->unit == unit->addr)
		return;
	d->unit = unit->addr;
	d->functions.n = 0;
	d->dies = 0;
	/* Its content may lie in a file of its own. */
	if (!dwarf_cu_info(unit->cu, NULL, &type, &die, &split, NULL, NULL, NULL) &&
	    type == DW_UT_skeleton && dwarf_tag(&split) == DW_TAG_compile_unit)
		body = &split;
	list_functions(d, body, 0);
	if (d->functions.n)
		qsort(d->functions.v, d->functions.n, sizeof(*d->functions.v), by_start);
}

/* --- frames ---------------------------------------------------------------------------------- */

static const char *keep(struct dwarfnames *d, const char *s)
{
	char clean[NAME_MAX_LEN + 1];
	size_t len;
	u32 i;

	if (!s)
		return NULL;
	len = utf8_clean(clean, sizeof(clean), s, strnlen(s, NAME_MAX_LEN));
	if (!len || strtab_add(&d->text, clean, len, &i))
		return NULL;
	return d->text.entries[i].s;
}

/* A source file; compilers write what is below the directory they ran in without it. */
static const char *keep_file(struct dwarfnames *d, Dwarf_Die *unit, const char *file)
{
	char path[NAME_MAX_LEN + 1];
	Dwarf_Attribute attr;
	const char *dir;

	if (!file || *file == '/')
		return keep(d, file);
	dir = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attr));
	if (!dir || *dir != '/')
		return keep(d, file);
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return keep(d, path);
}

static const char *text_of(Dwarf_Die *die, u32 attribute)
{
	Dwarf_Attribute attr;

	return dwarf_formstring(dwarf_attr_integrate(die, attribute, &attr));
}

static u32 number_of(Dwarf_Die *die, u32 attribute)
{
	Dwarf_Attribute attr;
	Dwarf_Word v;

	if (dwarf_formudata(dwarf_attr_integrate(die, attribute, &attr), &v) || v > INT32_MAX)
		return 0;
	return (u32)v;
}

static void set_function(struct dwarfnames *d, Dwarf_Die *die, struct dwarf_frame *f)
{
	char readable[DEMANGLE_OUT_MAX + 1];
	const char *linked = text_of(die, DW_AT_linkage_name);

	if (!linked)
		linked = text_of(die, DW_AT_MIPS_linkage_name);
	if (!linked)
		linked = text_of(die, DW_AT_name);
	f->linked = f->func = keep(d, linked);
	if (linked && demangle(linked, readable, sizeof(readable)))
		f->func = keep(d, readable);
	f->start_line = number_of(die, DW_AT_decl_line);
}

/* Where an inlined function is called from: that is where its caller is. */
static void set_call(struct dwarfnames *d, Dwarf_Die *unit, Dwarf_Die *inlined,
		     struct dwarf_frame *caller)
{
	u32 file = number_of(inlined, DW_AT_call_file);
	Dwarf_Files *files;
	size_t n;

	caller->line = number_of(inlined, DW_AT_call_line);
	if (!dwarf_getsrcfiles(unit, &files, &n) && file < n)
		caller->file = keep_file(d, unit, dwarf_filesrc(files, file, NULL, NULL));
}

static void set_line(struct dwarfnames *d, Dwarf_Die *unit, u64 addr, struct dwarf_frame *f)
{
	Dwarf_Line *line = dwarf_getsrc_die(unit, addr);
	int n;

	if (!line)
		return;
	f->file = keep_file(d, unit, dwarf_linesrc(line, NULL, NULL));
	if (!dwarf_lineno(line, &n) && n > 0)
		f->line = (u32)n;
}

/* The block or inlined function directly in `die` that holds an address. */
static bool step_in(struct dwarfnames *d, Dwarf_Die *die, u64 addr, Dwarf_Die *ret)
{
	Dwarf_Die child;

	if (dwarf_child(die, &child))
		return false;
	do {
		int tag = dwarf_tag(&child);

		if (++d->dies > DIES_MAX)
			return false;
		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block &&
		    tag != DW_TAG_try_block && tag != DW_TAG_catch_block)
			continue;
		if (dwarf_haspc(&child, addr) > 0) {
			*ret = child;
			return true;
		}
	} while (!dwarf_siblingof(&child, &child));
	return false;
}

/* The function and what is inlined there, outermost first; returns how many. */
static u32 chain_of(struct dwarfnames *d, const Dwarf_Die *function, u64 addr, Dwarf_Die *chain)
{
	Dwarf_Die at = *function, inner;
	u32 n = 1, depth = 0;

	chain[0] = at;
	d->dies = 0;
	for (; depth < DWARFNAMES_DEPTH + NESTING_MAX && step_in(d, &at, addr, &inner); depth++) {
		at = inner;
		if (dwarf_tag(&at) != DW_TAG_inlined_subroutine)
			continue;
		if (n == DWARFNAMES_DEPTH) /* the outermost goes */
			memmove(chain, chain + 1, --n * sizeof(*chain));
		chain[n++] = at;
	}
	return n;
}

u32 dwarfnames_find(struct dwarfnames *d, u64 vaddr, struct dwarf_frame *ret)
{
	struct range *unit = find(&d->units, vaddr), *function;
	Dwarf_Die chain[DWARFNAMES_DEPTH];
	u32 n, i;

	if (!unit)
		return 0;
	list_unit(d, &unit->die);
	function = find(&d->functions, vaddr);
	n = function ? chain_of(d, &function->die, vaddr, chain) : 0;
	memset(ret, 0, MAX(n, 1u) * sizeof(*ret));
	set_line(d, &unit->die, vaddr, &ret[0]);
	for (i = 0; i < n; i++) {
		set_function(d, &chain[n - 1 - i], &ret[i]);
		if (i + 1 < n)
			set_call(d, &unit->die, &chain[n - 1 - i], &ret[i + 1]);
	}
	if (n)
		return n;
	return ret[0].line ? 1 : 0;
}
