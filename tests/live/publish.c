// SPDX-License-Identifier: Apache-2.0
/*
 * A process, busy a fifth of its time, that publishes an OpenTelemetry process context after DELAY
 * milliseconds, as opentelemetry-specification 4719 tells publishers to. usage: publish NAME DELAY.
 * Ends after ten minutes.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

struct header {
	char signature[8];
	uint32_t version, size;
	uint64_t published_ns;
	const char *payload;
};

static char payload[512];

/* A field with a length that fits seven bits. */
static size_t put(char *dst, int field, const char *data, size_t len)
{
	dst[0] = (char)(field << 3 | 2);
	dst[1] = (char)len;
	memcpy(dst + 2, data, len);
	return len + 2;
}

/* ProcessContext { resource { attributes { key: "service.name" value { string_value: NAME } } } } */
static size_t make_payload(const char *name)
{
	char value[256], pair[256], resource[256];
	size_t n;

	n = put(value, 1, name, strlen(name));
	n = put(pair + 14, 2, value, n) + put(pair, 1, "service.name", 12);
	n = put(resource, 1, pair, n);
	return put(payload, 1, resource, n);
}

static void publish(const char *name)
{
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	struct header *h;

	if (fd < 0 || ftruncate(fd, 4096))
		exit(1);
	h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	if (h == MAP_FAILED)
		exit(1);
	madvise(h, 4096, MADV_DONTFORK);
	h->version = 2;
	h->size = (uint32_t)make_payload(name);
	h->payload = payload;
	h->published_ns = 1;
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(h->signature, "OTEL_CTX", 8);
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, h, 4096, "OTEL_CTX");
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double start = now(), delay = argc > 2 ? atof(argv[2]) / 1e3 : 0;
	volatile unsigned long n = 0;
	int done = 0;

	if (argc < 3 || strlen(argv[1]) > 60)
		return 2;
	while (now() - start < 600) {
		double until = now() + 0.005;

		while (now() < until)
			n++;
		usleep(20000);
		if (!done && now() - start >= delay) {
			publish(argv[1]);
			done = 1;
		}
	}
	return 0;
}
