/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a server that has a Python inside, as uwsgi does: not called python, libpython loaded at
 * run time, the interpreter's pthread key far up. In: the library, how many keys come first, the
 * arguments of python.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int (*run)(int argc, char **argv);
	pthread_key_t key;
	void *library;
	int i;

	if (argc < 4)
		return 2;
	for (i = atoi(argv[2]); i > 0; i--)
		pthread_key_create(&key, NULL);
	library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	run = library ? (int (*)(int, char **))dlsym(library, "Py_BytesMain") : NULL;
	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return run(argc - 2, argv + 2);
}
