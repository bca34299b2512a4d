// SPDX-License-Identifier: Apache-2.0
/*
 * Recordings of real processes, spoiled (tests/mutate.h): byte 0 chooses the recording, byte 1 the
 * threads, the rest is the program. Runs where tests/fixtures is.
 */
#include "tests/mutate.h"

#include <glob.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

#define TAPES_MAX 256

static struct target *tapes[TAPES_MAX];
static u32 ntapes;

int LLVMFuzzerInitialize(int *argc __unused, char ***argv __unused)
{
	glob_t found;
	size_t i;

	if (glob("tests/fixtures/*/*.tape", 0, NULL, &found))
		abort();
	for (i = 0; i < found.gl_pathc && ntapes < TAPES_MAX; i++)
		if (target_tape_open(found.gl_pathv[i], &tapes[ntapes++]))
			abort();
	globfree(&found);
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct target *tape;
	struct mutant *mu;

	if (size < 2)
		return 0;
	tape = tapes[data[0] % ntapes];
	mu = mutant_new(tape);
	if (!mu)
		return 0;
	mu->first_thread = data[1] % 64;
	mutant_program(mu, data + 2, size - 2);
	mutate_run(mu, target_tape_noted(tape, "runtime"), NULL);
	target_free(&mu->t);
	return 0;
}
