// SPDX-License-Identifier: Apache-2.0
/*
 * A process, busy a fifth of its time, that publishes an OpenTelemetry process context after DELAY
 * milliseconds, as opentelemetry-specification 4719 tells publishers to. usage: publish NAME DELAY.
 * Ends after ten minutes.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "publish.h"

static char payload[512];

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
			publish(payload, make_payload(argv[1]));
			done = 1;
		}
	}
	return 0;
}
