// SPDX-License-Identifier: Apache-2.0
/*
 * The registry of unwinders: a folder under unwinders/ is a registered runtime of that name, and
 * the other way round. What they promise in unwinders/unwinder.h is looked at here, too.
 */
#include "core/runtime.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
/* after those */
#include <cmocka.h>

#define DIR_OF_THEM "unwinders"

static const struct unwinder *find(const char *name)
{
	const struct unwinder *u;
	u32 i;

	for (i = 0; (u = unwinder_at(i)); i++)
		if (!strcmp(u->name, name))
			return u;
	return NULL;
}

static bool is_folder(const char *name)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), DIR_OF_THEM "/%s", name);
	return *name != '.' && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static void every_folder_is_registered(void **state __unused)
{
	DIR *dir = opendir(DIR_OF_THEM);
	struct dirent *d;
	u32 n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		if (!is_folder(d->d_name))
			continue;
		n++;
		if (!find(d->d_name))
			fail_msg("unwinders/%s registers nothing of that name", d->d_name);
	}
	closedir(dir);
	assert_true(n > 0);
}

static void every_registered_one_has_its_folder(void **state __unused)
{
	const struct unwinder *u;
	char path[512];
	struct stat st;
	u32 i;

	for (i = 0; (u = unwinder_at(i)); i++) {
		if (!is_folder(u->name))
			fail_msg("'%s' has no folder", u->name);
		snprintf(path, sizeof(path), DIR_OF_THEM "/%s/README.md", u->name);
		if (stat(path, &st))
			fail_msg("%s is missing", path);
	}
}

static void the_order_is_by_name(void **state __unused)
{
	u32 i;

	for (i = 1; unwinder_at(i); i++)
		assert_true(strcmp(unwinder_at(i - 1)->name, unwinder_at(i)->name) < 0);
	assert_null(unwinder_at(i + 100));
}

static void types_of_samples_have_names_of_their_own(void **state __unused)
{
	const struct unwinder *a, *b;
	u32 i, k;

	for (i = 0; (a = unwinder_at(i)); i++) {
		if (!a->sample_type)
			continue;
		/* A file name is made of it, and '-' separates there. */
		assert_null(strpbrk(a->sample_type, "-/ "));
		for (k = i + 1; (b = unwinder_at(k)); k++)
			if (b->sample_type)
				assert_string_not_equal(a->sample_type, b->sample_type);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_folder_is_registered),
		cmocka_unit_test(every_registered_one_has_its_folder),
		cmocka_unit_test(the_order_is_by_name),
		cmocka_unit_test(types_of_samples_have_names_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
