/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Writes JSON into memory. Commas are put by the writer; text is made valid UTF-8, and
 * what means something to HTML is escaped, so that an answer is harmless wherever it ends up.
 */
#pragma once

#include "util.h"

#define JSON_DEPTH 16
#define JSON_TEXT  8192 /* bytes of one text; longer ones are cut */

/* All zero is an empty document. */
struct json {
	FILE *out;
	char *data; /* valid after json_finish(); owned */
	size_t len;
	u32 depth;
	bool more[JSON_DEPTH]; /* something stands at this depth */
	bool keyed;            /* a key was just written */
};

/* A text alone, quoted, for who writes the rest by hand. */
void json_put(const char *s, FILE *out);

int json_init(struct json *j);
/* 0 or -ENOMEM; data and len are then valid. */
int json_finish(struct json *j);
void json_fini(struct json *j);

/* kind: '{' or '['. */
void json_open(struct json *j, char kind);
void json_close(struct json *j, char kind);
void json_key(struct json *j, const char *key);
void json_text(struct json *j, const char *s);
void json_number(struct json *j, u64 n); /* at most 2^53: JSON's readers have doubles */
void json_real(struct json *j, double n);
void json_millis(struct json *j, u64 ns); /* milliseconds, to the nanosecond */
void json_bool(struct json *j, bool b);
void json_null(struct json *j);
