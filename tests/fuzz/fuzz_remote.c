// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as an answer to the question for a remote configuration: what is accepted is within
 * its limits, what is said of it is clean text.
 */
#include "core/remote.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct remote_settings s;
	char text[100], clean[300];
	u32 ignored = 0;
	int err = remote_parse((const char *)data, size, &s, &ignored, text, sizeof(text));

	utf8_clean(clean, sizeof(clean), text, sizeof(text));
	assert(!strcmp(clean, text));
	if (err) {
		assert(*text);
		return 0;
	}
	assert(!s.interval_s ||
	       (s.interval_s >= REMOTE_INTERVAL_MIN && s.interval_s <= REMOTE_INTERVAL_MAX));
	assert(s.has_enabled || !s.enabled);
	return 0;
}
