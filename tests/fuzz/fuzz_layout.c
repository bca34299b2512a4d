// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as a layout file: no crash, no leak, and what the rest relies on: one line of clean text
 * after failure; after success a row that is found gives every number that its section has.
 */
#include "core/layout.h"

#include "core/runtime.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void check_error(const char *err)
{
	assert(*err && !strchr(err, '\n'));
	assert(!strncmp(err, "fuzz", 4));
}

/* Numbers of versions near those that may be in the text; a found row is whole. */
static void check_rows(const struct layouts *ls, u32 nfields)
{
	s32 sum = 0;
	u32 i, k;

	for (i = 0; i < 64; i++) {
		struct version v = { (u16)(i % 8), (u16)(i / 8), (u16)(i % 3) };
		const s32 *row = layouts_find(ls, &v);

		for (k = 0; row && k < nfields; k++)
			sum ^= row[k];
	}
	/* Read, or a checker of memory sees nothing. */
	__asm__ volatile("" : : "r"(sum));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static const char *const few[] = { "start", "next", "name" };
	const struct unwinder own = { .title = "Own", .layout_fields = few, .nlayout_fields = 3 };
	struct layouts *ls = NULL;
	const struct unwinder *u;
	char err[512], *text;
	u32 i;

	/* A tiny one, so that whole sections are met at random, then each real one. */
	for (i = 0, u = &own; u; u = unwinder_at(i++)) {
		int rc;

		text = strndup((const char *)data, size);
		if (!text)
			return 0;
		rc = layouts_parse("fuzz", text, u, &ls, err, sizeof(err));
		if (rc)
			check_error(err);
		else
			check_rows(ls, u->nlayout_fields);
		if (!rc)
			layouts_free(ls);
		free(text);
	}
	return 0;
}
