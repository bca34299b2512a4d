// SPDX-License-Identifier: Apache-2.0
/*
 * Test guest: off-CPU profiles in the way that this kernel has. In: tests/live/waits.c, whose threads
 * say how long they waited in which function. Out: verdicts, by frame pointers and by tables. See
 * guest.h.
 */
#include "guest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define OFF_PERCENT 5 /* an emulated machine is slow to wake up */

static const char record_log[] = "/tmp/waits.log";
static const char profile_path[] = "/tmp/waits.pb.gz";

static const char *const names[] = { "sleep", "futex", "pipe", "socket", "churn" };

/* What the program told of a function; 0: nothing. */
static u64 told(const char *name, const char *what)
{
	_cleanup_fclose_ FILE *f = fopen(record_log, "re");
	char line[4096], key[32];
	const char *at = NULL;

	snprintf(key, sizeof(key), "\"%s%s\": ", name, what);
	while (f && !at && fgets(line, sizeof(line), f))
		at = strstr(line, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Nanoseconds with wait_NAME() as the innermost user frame. */
static u64 seen(const struct profile *p, const char *name)
{
	char function[32];
	struct stack s;
	u64 sum = 0;
	u32 i, k;

	snprintf(function, sizeof(function), "wait_%s", name);
	for (i = 0; i < profile_samples(p); i++) {
		const Pprof__Sample *m = p->msg->sample[i];

		profile_sample(p, i, &s);
		for (k = 0; k < s.n && s.kernel[k]; k++)
			;
		if (k < s.n && !strcmp(s.names[k], function) && m->n_value)
			sum += (u64)m->value[m->n_value - 1];
	}
	return sum;
}

/*
 * A thread reads its clocks when it runs again. Between the switch to it and that lie interrupts,
 * which some kernels do not count as its CPU time and which take long on an emulated machine: they
 * are a wait to the thread. A sleep has a lower bound of its own, what was asked for.
 */
static void judge(const struct profile *p, const char *how)
{
	char name[64];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		u64 most = told(names[i], ""), asked = told(names[i], " asked");
		u64 least = asked ? MIN(asked, most) : most, have = seen(p, names[i]);

		snprintf(name, sizeof(name), "waits-in-%s-by-%s", names[i], how);
		verdict(most > 100000000 && have * 100 >= least * (100 - OFF_PERCENT) &&
				have * 100 <= most * (100 + OFF_PERCENT),
			name, "%" PRIu64 " us, the thread says %" PRIu64 " us, asked for %" PRIu64,
			have / 1000, most / 1000, asked / 1000);
	}
}

static void record(bool tables)
{
	char *argv[] = { "/t/ebpfprofiler",
			 "record",
			 "-e",
			 "offcpu",
			 "--offcpu-min-ms",
			 "0",
			 "--offcpu-dwarf",
			 "-o",
			 (char *)profile_path,
			 "--",
			 "/t/waits",
			 "all",
			 "2",
			 NULL };
	const struct child c = { .verifier = true, .log = record_log };
	const char *how = tables ? "tables" : "frame-pointers";
	struct profile p = { 0 };
	int status, err;

	if (!tables)
		memmove(&argv[6], &argv[7], sizeof(argv) - 7 * sizeof(argv[0]));
	status = child_run(&c, argv);
	err = status ? -EINVAL : profile_read(profile_path, &p);
	verdict(!err, "record-waits", "by %s: status %d, profile: %s", how, status,
		err ? strerror(-err) : "decoded");
	log_show(record_log, err != 0);
	if (!err)
		judge(&p, how);
	profile_fini(&p);
}

int case_waits_by_frame_pointers(void)
{
	record(false);
	return guest_failed();
}

int case_waits_by_tables(void)
{
	record(true);
	return guest_failed();
}
