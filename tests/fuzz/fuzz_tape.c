// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes of a recording through its parser, as a file and as one whose body is plain text; what it
 * accepts is walked.
 */
#include "tests/mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void walk(struct target *t)
{
	struct fixture_result result;
	char *text = NULL, missing[512];
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	if (fixture_walk(t, target_tape_noted(t, "runtime"), out, &result))
		abort();
	fclose(out);
	assert(result.reads_max <= TARGET_READS_MAX && mutate_is_clean(text, len));
	free(text);
	target_tape_missing(t, missing, sizeof(missing));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct target *t;
	int plain;

	for (plain = 0; plain < 2; plain++) {
		size_t len;
		u64 addr;

		if (target_tape_parse(data, size, plain, &t))
			continue;
		walk(t);
		target_tape_cut(t, 0, &addr, &len);
		target_free(t);
	}
	return 0;
}
