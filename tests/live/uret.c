// SPDX-License-Identifier: Apache-2.0
/* Puts a return probe on a function: FILE OFFSET PID SECONDS. Prints "attached" when it is there. */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct perf_event_attr attr = { .size = sizeof(attr) };
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	int fd;

	if (argc < 5 || !f || fscanf(f, "%u", &attr.type) != 1)
		return 1;
	attr.config = 1; /* bit 0: retprobe */
	attr.config1 = (uint64_t)(uintptr_t)argv[1];
	attr.config2 = strtoull(argv[2], NULL, 16);
	fd = (int)syscall(SYS_perf_event_open, &attr, atoi(argv[3]), -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		return 1;
	}
	puts("attached");
	fflush(stdout);
	sleep((unsigned)atoi(argv[4]));
	return 0;
}
