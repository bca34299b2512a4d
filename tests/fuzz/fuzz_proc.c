// SPDX-License-Identifier: Apache-2.0
/* Lines of /proc/PID/maps, texts of /proc/PID/cgroup, perf side-band records, CPU lists. */
#include "core/cgroup.h"
#include "core/cpus.h"
#include "core/process.h"
#include "core/sideband.h"

#include <limits.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	_cleanup_free_ char *text = NULL;
	char buf[PATH_MAX];
	struct cgroup cgroup;
	struct cpu_set_bits *cpus;
	struct mapped_file file;
	struct task_event ev;
	u64 offset;

	if (size < 1 || size > 65536)
		return 0;
	/* Exactly as long as the input, so that a read past its end is seen. */
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 4) {
	case 0:
		process_parse_maps_line(text, size - 1, &file, &offset, buf, sizeof(buf));
		break;
	case 1:
		cgroup_parse(text, &cgroup);
		break;
	case 2:
		/* Records are aligned. */
		if (!sideband_parse(text, size - 1, &ev) && ev.type == TASK_MMAP)
			(void)strlen(ev.file.path);
		break;
	default:
		cpus = malloc(sizeof(*cpus));
		cpus_parse(text, cpus);
		free(cpus);
	}
	return 0;
}
