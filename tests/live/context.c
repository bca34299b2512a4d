// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that publish what they work on, as opentelemetry-specification 4947 tells publishers to:
 * thread K runs the function f_I under span K * 256 + I of trace K and nowhere else, sleeping a
 * little in it; where its record is being changed it runs changing(), with ids that are no one's in
 * it. The last thread publishes nothing. Even threads keep one record and its valid byte, odd ones
 * swap pointers.
 *
 * Built as the program alone (-DPROGRAM -DVARIABLE), which has the variable; or as a library with
 * the variable (-DVARIABLE) and the program without (-DPROGRAM), which takes it from the library
 * that its argument names, or that it is linked with. usage: context SECONDS [LIBRARY].
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct record {
	uint8_t trace[16], span[8], valid, flags;
	uint16_t size;
	uint8_t attributes[100];
};

#ifdef VARIABLE
__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;

__attribute__((visibility("default"), noinline)) void set_record(struct record *r);
void set_record(struct record *r)
{
	atomic_signal_fence(memory_order_seq_cst);
	*(struct record *volatile *)&otel_thread_ctx_v1 = r;
	atomic_signal_fence(memory_order_seq_cst);
}
#else
__attribute__((weak)) void set_record(struct record *r);
#endif

#ifdef PROGRAM
#include "publish.h"

#define THREADS 4

static void (*set)(struct record *r);
static double end;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static __attribute__((noinline)) void spin(double seconds)
{
	double until = now() + seconds;

	while (now() < until)
		;
	atomic_signal_fence(memory_order_seq_cst);
}

#define F(i)                                              \
	static __attribute__((noinline)) void f_##i(void) \
	{                                                 \
		spin(0.003);                              \
		usleep(2000);                             \
		atomic_signal_fence(memory_order_seq_cst); \
	}
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)

static __attribute__((noinline)) void changing(void)
{
	spin(0.001);
	usleep(1500);
	atomic_signal_fence(memory_order_seq_cst);
}

static __attribute__((noinline)) void f_none(void)
{
	spin(0.002);
	usleep(3000);
	atomic_signal_fence(memory_order_seq_cst);
}

static void fill(struct record *r, int thread, int i)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "/f/%d", i);

	memset(r->trace, thread, sizeof(r->trace));
	memset(r->span, 0, sizeof(r->span));
	r->span[6] = (uint8_t)thread;
	r->span[7] = (uint8_t)i;
	/* Another key; the route as it was before; the route: the last one counts. */
	r->size = (uint16_t)snprintf((char *)r->attributes, sizeof(r->attributes),
				     "%c%cbob%c%cold%c%c%s", 7, 3, 1, 3, 1, n, text);
}

static void *work(void *arg)
{
	static void (*const fs[])(void) = { f_0, f_1, f_2, f_3, f_4, f_5, f_6, f_7 };
	struct record *r = aligned_alloc(64, 2 * sizeof(*r) + 64), *at = r;
	int thread = (int)(intptr_t)arg, i;
	char name[16];

	snprintf(name, sizeof(name), "t%d", thread);
	pthread_setname_np(pthread_self(), name);
	memset(r, 0, 2 * sizeof(*r));
	if (thread < THREADS)
		set(thread % 2 ? NULL : r);
	for (i = 0; now() < end; i = (i + 1) % 8) {
		if (thread == THREADS) {
			f_none();
			continue;
		}
		at = thread % 2 ? &r[i % 2] : r;
		memset(at, 0xee, 24);
		changing();
		fill(at, thread, i);
		atomic_signal_fence(memory_order_seq_cst);
		*(volatile uint8_t *)&at->valid = 1;
		if (thread % 2)
			set(at);
		fs[i]();
		if (thread % 2)
			set(NULL);
		atomic_signal_fence(memory_order_seq_cst);
		*(volatile uint8_t *)&at->valid = 0;
		atomic_signal_fence(memory_order_seq_cst);
	}
	return NULL;
}

/* An attribute of the context: a text, or a list of them. */
static size_t put_attribute(char *dst, const char *key, const char *const *texts, int n)
{
	char values[128], value[128], pair[200], one[64];
	size_t len = 0, size;
	int i;

	for (i = 0; i < n; i++) {
		size = put(one, 1, texts[i], strlen(texts[i]));
		len += put(values + len, 1, one, size);
	}
	size = n == 1 ? put(value, 1, texts[0], strlen(texts[0])) : put(value, 5, values, len);
	len = put(pair, 1, key, strlen(key));
	len += put(pair + len, 2, value, size);
	return put(dst, 2, pair, len);
}

int main(int argc, char **argv)
{
	static const char *const schema[] = { "tls_v1" }, *const keys[] = { "user", "http.route" };
	static char payload[512];
	pthread_t threads[THREADS];
	void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
	size_t n;
	int i;

	if (argc < 2)
		return 2;
	set = library ? (void (*)(struct record *))dlsym(library, "set_record") : set_record;
	if (!set)
		return 3;
	end = now() + atof(argv[1]);
	n = put_attribute(payload, "threadlocal.schema_version", schema, 1);
	n += put_attribute(payload + n, "threadlocal.attribute_key_map", keys, 2);
	publish(payload, n);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(i + 1));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
#endif
