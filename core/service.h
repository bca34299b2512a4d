/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: books. The operator's word on names: a file of rules, one a line,
 *
 *	KIND:PATTERN [KIND:PATTERN ...] = NAME
 *
 * with the kinds of match.h. The first line all of whose patterns fit gives the service its name.
 * In NAME {KIND} stands for what is known of the process; a line that needs what is not known is
 * passed over. '#' and ';' begin comments.
 */
#pragma once

#include "util.h"
#include "match.h"

#define SERVICE_NAME_MAX     255
#define SERVICE_RULES_MAX    1024
#define SERVICE_PATTERNS_MAX 8 /* of one rule */
#define SERVICE_FILE_MAX     (1u << 20)

struct service_rules;

/*
 * Owned. 0; -EINVAL with one line in err that says where and what was expected; -ENOMEM, -E2BIG
 * (also with a line).
 */
int service_parse(const char *name, const char *text, size_t len, struct service_rules **ret,
		  char *err, size_t err_size);
/* The same of a file, which nobody but root and ourselves may write; -errno as it is read. */
int service_read(const char *path, struct service_rules **ret, char *err, size_t err_size);
void service_free(struct service_rules *r);
/* The name that the rules give, as valid UTF-8; false when none fits. NULL rules give none. */
bool service_name(const struct service_rules *r, const struct match_facts *f,
		  char ret[SERVICE_NAME_MAX + 1]);
/* Has a rule to do with it? */
bool service_uses(const struct service_rules *r, enum match_kind kind);
