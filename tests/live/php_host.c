/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, live: a server that loads PHP when it is long up, and runs it in a thread of its own while
 * its first thread waits: php_host LIBPHP FILE [ARG...]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char **args;
static int nargs;

static void *run(void *arg)
{
	void *lib = dlopen(args[0], RTLD_NOW | RTLD_GLOBAL);
	int (*init)(int argc, char **argv) = NULL;
	int (*eval)(const char *code, void *ret, const char *name) = NULL;
	char *globals = NULL, code[4096];
	sigjmp_buf bailout;

	if (lib) {
		init = (int (*)(int, char **))dlsym(lib, "php_embed_init");
		eval = (int (*)(const char *, void *, const char *))dlsym(lib, "zend_eval_string");
		globals = dlsym(lib, "executor_globals");
	}
	if (!init || !eval || init(nargs - 1, args + 1)) {
		fprintf(stderr, "php_host: %s\n", lib ? "no PHP" : dlerror());
		return arg;
	}
	/* As zend_first_try does it. */
	if (globals) {
		sigjmp_buf *jump = &bailout;

		if (sigsetjmp(bailout, 0))
			return arg;
		memcpy(globals + 416, &jump, sizeof(jump));
	}
	snprintf(code, sizeof(code), "include '%s';", args[1]);
	eval(code, NULL, "php_host");
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t id;

	if (argc < 3)
		return 2;
	args = argv + 1;
	nargs = argc - 1;
	if (pthread_create(&id, NULL, run, NULL))
		return 1;
	pthread_join(id, NULL);
	return 1;
}
