// SPDX-License-Identifier: Apache-2.0
/*
 * Tests: native code between two parts of a Python program. An extension module, ours: call(f) calls
 * f by way of two functions of its own, spin(n) computes here for n ms. And each(f), for ctypes,
 * which calls a C function pointer by the same way. Interpreter's headers are not needed: of its
 * stable ABI (PEP 384) what is used is written down here.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct object;

struct method {
	const char *name;
	struct object *(*fn)(struct object *self, struct object *argument);
	int flags;
	const char *doc;
};

#define METH_O 8 /* one argument */

struct module_def {
	intptr_t refs;
	void *type;
	void *init;
	intptr_t index;
	struct object *copy;
	const char *name, *doc;
	intptr_t size;
	struct method *methods;
	void *slots, *traverse, *clear, *free;
};

extern struct object *PyModule_Create2(struct module_def *def, int api);
extern struct object *PyObject_CallObject(struct object *f, struct object *arguments);
extern long PyLong_AsLong(struct object *o);
extern struct object *PyLong_FromLong(long v);

__attribute__((noinline)) static long ours_compute(long ms)
{
	struct timespec a, b;
	volatile long sum = 0;
	int i;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		for (i = 0; i < 20000; i++)
			sum += i;
		clock_gettime(CLOCK_MONOTONIC, &b);
	} while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
	return sum;
}

__attribute__((noinline)) static struct object *ours_inner(struct object *f)
{
	struct object *r = PyObject_CallObject(f, NULL);

	__asm__ volatile("" ::: "memory"); /* no tail call */
	return r;
}

__attribute__((noinline)) static struct object *ours_outer(struct object *f)
{
	struct object *r = ours_inner(f);

	__asm__ volatile("" ::: "memory");
	return r;
}

static struct object *call(struct object *self, struct object *f)
{
	struct object *r = ours_outer(f);

	(void)self;
	__asm__ volatile("" ::: "memory");
	return r;
}

static struct object *spin(struct object *self, struct object *ms)
{
	(void)self;
	return PyLong_FromLong(ours_compute(PyLong_AsLong(ms)));
}

__attribute__((noinline)) static int each_inner(int (*f)(int n), int n)
{
	int r = f(n);

	__asm__ volatile("" ::: "memory");
	return r;
}

int each(int (*f)(int n), int n)
{
	int r = each_inner(f, n);

	__asm__ volatile("" ::: "memory");
	return r;
}

static struct method methods[] = {
	{ "call", call, METH_O, NULL },
	{ "spin", spin, METH_O, NULL },
	{ NULL, NULL, 0, NULL },
};

static struct module_def def = { .refs = 1, .name = "ours", .size = -1, .methods = methods };

struct object *PyInit_ours(void);
struct object *PyInit_ours(void)
{
	return PyModule_Create2(&def, 3);
}
