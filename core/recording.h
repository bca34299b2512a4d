/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. /api/timeline: a time line of one process, recorded by the daemon that profiles
 * anyway, for the page. In: a question, the agent. Out: a file to download. The loop records and
 * looks for names, web.c's worker writes the file.
 */
#pragma once

#include "util.h"
#include "timeline.h"
#include "web.h"

#define RECORDING_SECONDS_MAX 30

struct agent;
struct recording;

/* Owned; NULL: no memory. */
struct recording *recording_new(void);
void recording_free(struct recording *r); /* after the web that it records for */
/*
 * Whom to ask from now on, borrowed; NULL: nobody, and nothing is being recorded by then
 * (web_end_recording()). offcpu_min_ns: as it is configured.
 */
void recording_agent(struct recording *r, struct agent *a, u64 offcpu_min_ns);
struct web_recorder recording_recorder(struct recording *r);

/* --- for tests -------------------------------------------------------------------------------- */

struct recording_question {
	u32 pid, seconds;
	enum timeline_format format;
};

/* 0 or -EINVAL. */
int recording_parse(const struct web_question *q, struct recording_question *ret);
