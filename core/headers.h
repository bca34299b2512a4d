/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. HTTP headers that a person wrote: "NAME: VALUE", several of them in a text. Those
 * that say how a request is framed and what it carries are ours to write, and refused.
 */
#pragma once

#include "util.h"

#define HEADERS_MAX 16 /* in one text */

/*
 * Calls add(arg, "NAME: VALUE") for each header of the text, in order, and ends with the first
 * result that is not 0. `separator` stands between them: ',' or '\n'; empty ones are skipped.
 * Returns 0, add's result, -ENOMEM, or -EINVAL, which *ret_want explains: what was expected
 * instead, a static string. add may be NULL.
 */
int headers_each(const char *text, char separator, int (*add)(void *arg, const char *header),
		 void *arg, const char **ret_want);
