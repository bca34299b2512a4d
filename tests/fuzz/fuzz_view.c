// SPDX-License-Identifier: Apache-2.0
/*
 * Fuzzes view_add(): pprof files of anybody's. Whatever is let in adds up: what is below a node
 * never weighs more than the node, names are clean text, and all that is printed comes to an end.
 */
#include "core/view.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void check_tree(const struct view_tree *t)
{
	u32 i;

	for (i = 1; i < t->n; i++) {
		require(t->nodes[i].parent < i);
		require(t->nodes[i].total[0] <= t->nodes[t->nodes[i].parent].total[0]);
		require(t->nodes[i].self[0] <= t->nodes[i].total[0]);
	}
}

static void check_names(const struct view *v)
{
	const char *c;
	u32 i;

	for (i = 0; i < v->nsymbols; i++)
		for (c = v->symbols[i].name; *c; c++)
			require((u8)*c >= 0x20 && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const struct view_text_options text = { .max_lines = 50, .max_depth = 50 };
	struct view_options o = { .root_key = "pid", .no_kernel = size & 1 };
	struct view *v = view_new(&o);
	struct view_row *rows;
	char *out = NULL;
	size_t len;
	FILE *f;
	u32 n;

	if (!v)
		return 0;
	view_add(v, 0, data, size);
	require(!view_finish(v));
	check_tree(&v->tree);
	check_names(v);
	if (!view_table(v, &rows, &n))
		free(rows);
	f = open_memstream(&out, &len);
	if (f) {
		view_write_text(v, &text, f);
		view_write_folded(v, 0, f);
		view_write_svg(v, 500, f);
		fclose(f);
	}
	free(out);
	view_free(v);
	return 0;
}
