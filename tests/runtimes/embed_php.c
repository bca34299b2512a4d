/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, runtimes: a program that has its PHP in libphp.so, as applications that embed it do, also
 * where libphp is built for threads. In: -r CODE, or a file and its arguments; further options are
 * passed over. No header of PHP is used, so that one source serves all releases.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int php_embed_init(int argc, char **argv);
void php_embed_shutdown(void);
int zend_eval_string(const char *code, void *ret, const char *name);

int main(int argc, char **argv)
{
	char code[4096];
	int i = 1, rc;

	while (i < argc && argv[i][0] == '-' && strcmp(argv[i], "-r"))
		i += strcmp(argv[i], "-d") ? 1 : 2;
	if (i >= argc) {
		fprintf(stderr, "usage: php-embed FILE [ARG...]\n");
		return 2;
	}
	if (!strcmp(argv[i], "-r"))
		snprintf(code, sizeof(code), "%s", argv[i + 1] ?: "");
	else
		snprintf(code, sizeof(code), "include '%s';", argv[i]);
	rc = php_embed_init(argc - i, argv + i);
	if (rc)
		return 1;
	rc = zend_eval_string(code, NULL, "php-embed");
	php_embed_shutdown();
	return rc ? 1 : 0;
}
