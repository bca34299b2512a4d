// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `tables FILE`: what the unwind table of an ELF file holds and costs. A file comes
 * in, text, JSON or the rows themselves go out. Needs no privilege and no cache.
 */
#include "cmd.h"

#include "cfi.h"
#include "json.h"
#include "log.h"
#include "table.h"
#include "tablefile.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char usage[] =
	"usage: ebpfprofiler tables FILE [--rows] [--json]\n"
	"  --rows   every row: address, frame address (CFA), caller's frame pointer, return address,\n"
	"           as `readelf -wF` writes them; what that calls exp is spelled out\n";

/* Kinds of rows for the census. */
#define KIND_LIST(X)                                            \
	X(none, "no rule (gap)")                                \
	X(end, "end of stack")                                  \
	X(unsupported, "unsupported")                           \
	X(signal, "signal frame")                               \
	X(without_cfi, "frame pointers (code without CFI)")     \
	X(sp, "CFA stack pointer + n")                          \
	X(fp, "CFA frame pointer + n")                          \
	X(reg, "CFA other register + n")                        \
	X(deref, "CFA *(register + n) + m")                     \
	X(scaled, "CFA *(register + register * scale + n) + m") \
	X(plt, "CFA of a PLT stub")                             \
	X(fp_same, "frame pointer unchanged")                   \
	X(fp_cfa, "frame pointer at CFA + n")                   \
	X(fp_other, "frame pointer in or at another register")  \
	X(fp_lost, "frame pointer lost")                        \
	X(ra_cfa, "return address at CFA + n")                  \
	X(ra_other, "return address in or at a register")

enum kind {
#define X(name, text) KIND_##name,
	KIND_LIST(X)
#undef X
		KIND_MAX,
};

static const struct {
	const char *name, *text;
} kinds[] = {
#define X(name, text) { #name, text },
	KIND_LIST(X)
#undef X
};

struct tables {
	const char *path;
	bool rows, json;
	struct cfi cfi;
	struct table table;
	struct tablefile_info info;
	double cpu_s;
	u32 empty_pages;
	u64 count[KIND_MAX];
};

static void tables_fini(struct tables *t)
{
	cfi_fini(&t->cfi);
	table_fini(&t->table);
}

/* --- rows --------------------------------------------------------------------------------- */

struct row {
	u64 addr;
	struct unwind_rule rule;
	struct unwind_wide wide;
};

/* The stored rows again, asked from the table: cfi only says where to ask. *i starts at 0. */
static bool next_row(const struct tables *t, u32 *i, struct row *row)
{
	bool first = *i == 0;

	while (*i < t->cfi.nrows) {
		struct row r = { .addr = t->cfi.base + t->cfi.rows[(*i)++].pc };

		table_find(&t->table, r.addr, &r.rule, &r.wide);
		if (!first && !memcmp(&r.rule, &row->rule, sizeof(r.rule)) &&
		    !memcmp(&r.wide, &row->wide, sizeof(r.wide)))
			continue;
		*row = r;
		return true;
	}
	return false;
}

static const char *reg_name(enum cfi_arch arch, u8 reg)
{
	static const char *const x86[] = { "rax", "rdx", "rcx", "rbx", "rsi", "rdi",
					   "rbp", "rsp", "r8",  "r9",  "r10", "r11",
					   "r12", "r13", "r14", "r15", "rip" };
	static const char *const arm[] = { "x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",
					   "x8",  "x9",  "x10", "x11", "x12", "x13", "x14", "x15",
					   "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23",
					   "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp" };

	if (arch == CFI_X86_64)
		return reg < ARRAY_SIZE(x86) ? x86[reg] : "?";
	return reg < ARRAY_SIZE(arm) ? arm[reg] : "?";
}

static void cfa_text(char *to, size_t size, enum cfi_arch arch, const struct row *row)
{
	const struct unwind_rule *r = &row->rule;
	const struct unwind_wide *w = &row->wide;
	const char *reg = reg_name(arch, r->cfa_reg);

	switch (r->cfa) {
	case UNWIND_CFA_REG:
		snprintf(to, size, "%s%+d", reg, r->cfa_off);
		break;
	case UNWIND_CFA_DEREF:
		snprintf(to, size, "*(%s%+d)%+d", reg, r->cfa_off, w->cfa_add);
		break;
	case UNWIND_CFA_SCALED:
		snprintf(to, size, "*(%s+%s*%u%+d)%+d", reg, reg_name(arch, w->cfa_index),
			 w->cfa_scale, r->cfa_off, w->cfa_add);
		break;
	case UNWIND_CFA_PLT:
		snprintf(to, size, "plt:%s%+d,%d", reg, r->cfa_off, w->cfa_add);
		break;
	case UNWIND_CFA_FP:
		snprintf(to, size, "%s", kinds[KIND_without_cfi].name);
		break;
	default:
		snprintf(to, size, "%s", kinds[r->cfa].name);
	}
}

static void from_text(char *to, size_t size, enum cfi_arch arch, u8 from, u8 reg, int off)
{
	switch (from) {
	case UNWIND_FROM_SAME:
		snprintf(to, size, "u");
		break;
	case UNWIND_FROM_CFA:
		snprintf(to, size, "c%+d", off);
		break;
	case UNWIND_FROM_REG:
		snprintf(to, size, "%s", reg_name(arch, reg));
		break;
	case UNWIND_FROM_DEREF:
		snprintf(to, size, "*(%s%+d)", reg_name(arch, reg), off);
		break;
	default:
		snprintf(to, size, "lost");
	}
}

static void print_row(const struct tables *t, const struct row *row)
{
	const struct unwind_rule *r = &row->rule;
	char cfa[80], fp[40] = "-", ra[40] = "-";

	cfa_text(cfa, sizeof(cfa), t->cfi.arch, row);
	if (r->cfa >= UNWIND_CFA_REG) {
		from_text(fp, sizeof(fp), t->cfi.arch, r->fp, r->fp_reg, r->fp_off);
		from_text(ra, sizeof(ra), t->cfi.arch, r->ra, r->ra_reg, r->ra_off);
	}
	printf("%016" PRIx64 " %s %s %s\n", row->addr, cfa, fp, ra);
}

static void print_rows(const struct tables *t)
{
	struct row row = { 0 };
	u32 i = 0;

	while (next_row(t, &i, &row))
		print_row(t, &row);
}

/* --- figures ------------------------------------------------------------------------------ */

static enum kind cfa_kind(const struct unwind_rule *r, enum cfi_arch arch)
{
	u8 sp = arch == CFI_ARM64 ? 31 : 7, fp = arch == CFI_ARM64 ? 29 : 6;

	switch (r->cfa) {
	case UNWIND_CFA_REG:
		return r->cfa_reg == sp ? KIND_sp : r->cfa_reg == fp ? KIND_fp : KIND_reg;
	case UNWIND_CFA_DEREF:
		return KIND_deref;
	case UNWIND_CFA_SCALED:
		return KIND_scaled;
	case UNWIND_CFA_PLT:
		return KIND_plt;
	case UNWIND_CFA_FP:
		return KIND_without_cfi;
	default: /* the first kinds are those without operands, number by number */
		return (enum kind)r->cfa;
	}
}

_Static_assert((int)KIND_none == (int)UNWIND_CFA_NONE && (int)KIND_end == (int)UNWIND_CFA_END &&
		       (int)KIND_unsupported == (int)UNWIND_CFA_UNSUPPORTED &&
		       (int)KIND_signal == (int)UNWIND_CFA_SIGNAL,
	       "kinds without operands have the same numbers");

static void count_row(struct tables *t, const struct unwind_rule *r)
{
	t->count[cfa_kind(r, t->cfi.arch)]++;
	if (r->cfa < UNWIND_CFA_REG || r->cfa == UNWIND_CFA_FP)
		return;
	t->count[r->fp == UNWIND_FROM_SAME   ? KIND_fp_same
		 : r->fp == UNWIND_FROM_CFA  ? KIND_fp_cfa
		 : r->fp == UNWIND_FROM_LOST ? KIND_fp_lost
					     : KIND_fp_other]++;
	t->count[r->ra == UNWIND_FROM_CFA ? KIND_ra_cfa : KIND_ra_other]++;
}

static void count_all(struct tables *t)
{
	struct row row = { 0 };
	u32 i = 0;

	while (next_row(t, &i, &row))
		count_row(t, &row.rule);
	for (i = 0; i < t->table.npages; i++)
		t->empty_pages += !t->table.leaf_len[i];
}

static double per_row(const struct tables *t, double v)
{
	return t->table.nmerged ? v / t->table.nmerged : 0;
}

static long peak_kib(void)
{
	struct rusage ru;

	return getrusage(RUSAGE_SELF, &ru) ? 0 : ru.ru_maxrss;
}

static void print_sections(const struct tablefile_info *i)
{
	if (i->eh_frame)
		printf("  .eh_frame     %" PRIu64 " bytes%s\n", i->eh_frame_size,
		       i->eh_frame_unsized ? " at most, found by .eh_frame_hdr" : "");
	if (i->debug_frame)
		printf("  .debug_frame  %" PRIu64 " bytes\n", i->debug_frame_size);
	if (i->sframe)
		printf("  .sframe       version %u, %u functions; not used\n", i->sframe_version,
		       i->sframe_fdes);
	printf("  text          %" PRIu64 " bytes\n", i->text_size);
}

static void print_notes(const struct tables *t)
{
	u32 i;

	for (i = CFI_NOTE_none + 1; i < CFI_NOTE_MAX; i++)
		if (t->cfi.note[i])
			printf("  note %s: %" PRIu64 " (%s)\n", cfi_note_name(i), t->cfi.note[i],
			       cfi_note_text(i));
}

static void print_text(const struct tables *t)
{
	const struct table *table = &t->table;
	char path[1024];
	u32 i;

	utf8_clean(path, sizeof(path), t->path, strlen(t->path));
	printf("%s%s\n", path, tablefile_over_limit(&t->cfi) ? ": over a limit, not used" : "");
	print_sections(&t->info);
	printf("  functions     %" PRIu64 "\n", t->cfi.nfdes);
	printf("  rows          %" PRIu64 " raw, %u with gaps, %u merged and bridged, %u stored\n",
	       t->cfi.raw_rows, t->cfi.nrows, table->nmerged, table->nrows);
	printf("  rules         %u distinct in %u slots\n", table->nrules, table->nslots);
	printf("  pages         %u of %u bytes, %u of them empty\n", table->npages,
	       1u << table->shift, t->empty_pages);
	printf("  table         %" PRIu64 " bytes, %.3f per row\n", table_bytes(table),
	       per_row(t, (double)table_bytes(table)));
	printf("  CPU           %.4f s, %.3f us per row\n", t->cpu_s, per_row(t, t->cpu_s * 1e6));
	printf("  peak memory   %ld KiB, the program's own included\n", peak_kib());
	for (i = 0; i < KIND_MAX; i++)
		if (t->count[i])
			printf("  %7.3f %%     %" PRIu64 " rows: %s\n",
			       per_row(t, (double)t->count[i] * 100), t->count[i], kinds[i].text);
	print_notes(t);
}

static void json_sections(const struct tablefile_info *i)
{
	printf(",\"eh_frame\":%s,\"eh_frame_bytes\":%" PRIu64 ",\"eh_frame_unsized\":%s",
	       i->eh_frame ? "true" : "false", i->eh_frame_size,
	       i->eh_frame_unsized ? "true" : "false");
	printf(",\"debug_frame\":%s,\"debug_frame_bytes\":%" PRIu64,
	       i->debug_frame ? "true" : "false", i->debug_frame_size);
	printf(",\"sframe\":%s,\"sframe_version\":%u,\"sframe_fdes\":%u,\"text_bytes\":%" PRIu64,
	       i->sframe ? "true" : "false", i->sframe_version, i->sframe_fdes, i->text_size);
}

static void print_json(const struct tables *t)
{
	const struct table *table = &t->table;
	const char *comma = "";
	u32 i;

	printf("{\"file\":");
	json_put(t->path, stdout);
	printf(",\"over_limit\":%s", tablefile_over_limit(&t->cfi) ? "true" : "false");
	json_sections(&t->info);
	printf(",\"functions\":%" PRIu64 ",\"rows_raw\":%" PRIu64 ",\"rows_with_gaps\":%u",
	       t->cfi.nfdes, t->cfi.raw_rows, t->cfi.nrows);
	printf(",\"rows\":%u,\"rows_stored\":%u,\"rules\":%u,\"slots\":%u", table->nmerged,
	       table->nrows, table->nrules, table->nslots);
	printf(",\"pages\":%u,\"page_bytes\":%u,\"pages_empty\":%u", table->npages,
	       1u << table->shift, t->empty_pages);
	printf(",\"bytes\":%" PRIu64 ",\"bytes_per_row\":%.4f,\"cpu_s\":%.6f,\"peak_kib\":%ld",
	       table_bytes(table), per_row(t, (double)table_bytes(table)), t->cpu_s, peak_kib());
	printf(",\"kinds\":{");
	for (i = 0; i < KIND_MAX; i++, comma = ",")
		printf("%s\"%s\":%" PRIu64, comma, kinds[i].name, t->count[i]);
	printf("},\"notes\":{");
	for (comma = "", i = CFI_NOTE_none + 1; i < CFI_NOTE_MAX; i++) {
		if (!t->cfi.note[i])
			continue;
		printf("%s\"%s\":%" PRIu64, comma, cfi_note_name(i), t->cfi.note[i]);
		comma = ",";
	}
	printf("}}\n");
}

/* Rows as lines, or one array of them. */
static void print_rows_json(const struct tables *t)
{
	struct row row = { 0 };
	char cfa[80], fp[40], ra[40];
	u32 i = 0;

	putchar('[');
	while (next_row(t, &i, &row)) {
		const struct unwind_rule *r = &row.rule;

		cfa_text(cfa, sizeof(cfa), t->cfi.arch, &row);
		from_text(fp, sizeof(fp), t->cfi.arch, r->fp, r->fp_reg, r->fp_off);
		from_text(ra, sizeof(ra), t->cfi.arch, r->ra, r->ra_reg, r->ra_off);
		printf("%s{\"address\":\"%#" PRIx64 "\",\"cfa\":\"%s\"", i > 1 ? ",\n" : "",
		       row.addr, cfa);
		if (r->cfa >= UNWIND_CFA_REG)
			printf(",\"fp\":\"%s\",\"ra\":\"%s\"", fp, ra);
		putchar('}');
	}
	puts("]");
}

/* --- command ------------------------------------------------------------------------------ */

static int parse(int argc, char **argv, struct tables *t)
{
	static const struct option longs[] = {
		{ "rows", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'r')
			t->rows = true;
		else if (c == 'j')
			t->json = true;
		else
			return c == 'h' ? 1 : -EINVAL;
	}
	if (optind + 1 != argc)
		return -EINVAL;
	t->path = argv[optind];
	return 0;
}

static const char *why(int err)
{
	switch (err) {
	case -ENOENT:
		return "it has no unwind information (.eh_frame, .debug_frame)";
	case -EINVAL:
		return "it is no sound 64-bit ELF file for x86-64 or arm64";
	case -E2BIG:
		return "it is over a limit";
	default:
		return strerror(-err);
	}
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int make(struct tables *t)
{
	_cleanup_close_ int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	double start = cpu_seconds();
	int err;

	if (fd < 0)
		return log_err(-errno, "cannot open %s: %s", t->path, strerror(errno));
	err = tablefile_cfi(fd, NULL, 0, &t->cfi, &t->info);
	if (!err)
		err = table_pack(&t->cfi, &t->table);
	if (err)
		return log_err(err, "no table from %s: %s", t->path, why(err));
	t->cpu_s = cpu_seconds() - start;
	return 0;
}

int cmd_tables(int argc, char **argv)
{
	_cleanup_(tables_fini) struct tables t = { 0 };
	int err = parse(argc, argv, &t);

	if (err) {
		fputs(usage, err > 0 ? stdout : stderr);
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	}
	if (make(&t))
		return EXIT_FAILED;
	if (t.rows) {
		if (t.json)
			print_rows_json(&t);
		else
			print_rows(&t);
		return EXIT_DONE;
	}
	count_all(&t);
	if (t.json)
		print_json(&t);
	else
		print_text(&t);
	return EXIT_DONE;
}
