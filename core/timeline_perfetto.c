// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See timeline.h. A trace as Perfetto reads it: one sequence of packets. What packets
 * share (names, frames, call stacks) is written once, in front; samples are PerfSamples, waits are
 * slices on their thread's track. Time is CLOCK_REALTIME, tied to CLOCK_BOOTTIME, the viewer's own,
 * by a snapshot of both. Schema: core/perfetto.proto.
 */
#include "timeline.h"

#include "fold.h"
#include "module.h"
#include "perfetto.pb-c.h"
#include "strtab.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define CLOCK_ID_REALTIME 1
#define CLOCK_ID_BOOTTIME 6
#define COUNTER_CPU_CLOCK 1
#define FLAGS_CLEARED     1
#define FLAGS_NEEDS       2
#define MODE_KERNEL       1
#define MODE_USER         2
#define SLICE_BEGIN       1
#define SLICE_END         2
#define PACKET_TAG        0x0a /* Trace.packet */

struct writer {
	const struct timeline *t;
	u8 *buf;
	u32 cap;
	/* Numbers of what was written so far; a mapping's text is its path and build id. */
	struct strtab names, files, sources, ids, mappings;
	int err;
};

static void put_packet(struct writer *w, Perfetto__TracePacket *p)
{
	size_t size, n;

	p->has_trusted_packet_sequence_id = true;
	p->trusted_packet_sequence_id = 1;
	p->has_sequence_flags = true;
	p->sequence_flags |= FLAGS_NEEDS;
	size = perfetto__trace_packet__get_packed_size(p);
	if (w->err || size > UINT32_MAX)
		return;
	w->err = VEC_RESERVE(w->buf, w->cap, (u32)size, UINT32_MAX);
	if (w->err)
		return;
	perfetto__trace_packet__pack(p, w->buf);
	fputc(PACKET_TAG, w->t->out);
	for (n = size; n > 127; n >>= 7)
		fputc((int)(n & 127) | 128, w->t->out);
	fputc((int)n, w->t->out);
	fwrite(w->buf, 1, size, w->t->out);
}

static void put_clocks(struct writer *w)
{
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__ClockSnapshot snapshot = PERFETTO__CLOCK_SNAPSHOT__INIT;
	Perfetto__TracePacketDefaults defaults = PERFETTO__TRACE_PACKET_DEFAULTS__INIT;
	Perfetto__PerfSampleDefaults sample = PERFETTO__PERF_SAMPLE_DEFAULTS__INIT;
	Perfetto__Timebase timebase = PERFETTO__TIMEBASE__INIT;
	Perfetto__Clock real = PERFETTO__CLOCK__INIT, boot = PERFETTO__CLOCK__INIT;
	Perfetto__Clock *clocks[] = { &real, &boot };
	u64 ago = now_realtime() - w->t->w->start_ns;

	/* The window's begin, as near as both clocks tell now. */
	real.has_clock_id = boot.has_clock_id = true;
	real.clock_id = CLOCK_ID_REALTIME;
	boot.clock_id = CLOCK_ID_BOOTTIME;
	real.has_timestamp = boot.has_timestamp = true;
	real.timestamp = w->t->w->start_ns;
	boot.timestamp = now_boottime() - MIN(ago, now_boottime());
	snapshot.n_clocks = ARRAY_SIZE(clocks);
	snapshot.clocks = clocks;
	timebase.has_frequency = true;
	timebase.frequency = w->t->o->hz;
	timebase.has_counter = true;
	timebase.counter = COUNTER_CPU_CLOCK;
	sample.timebase = &timebase;
	defaults.has_timestamp_clock_id = true;
	defaults.timestamp_clock_id = CLOCK_ID_REALTIME;
	defaults.perf_sample_defaults = &sample;
	p.clock_snapshot = &snapshot;
	p.trace_packet_defaults = &defaults;
	p.sequence_flags = FLAGS_CLEARED;
	put_packet(w, &p);
}

/* --- what packets share ----------------------------------------------------------------------- */

/* Texts of a kind that one packet brings: none or one. */
struct fresh {
	Perfetto__InternedString s, *list[1];
	size_t n;
};

/* Number of a text, from 1 on; what is new goes into the packet. */
static u64 intern(struct writer *w, struct strtab *t, const char *text, struct fresh *fresh)
{
	u32 before = t->n, i = 0;
	int err = strtab_add(t, text, strlen(text), &i);

	if (err && !w->err)
		w->err = err;
	fresh->n = t->n > before;
	if (fresh->n) {
		perfetto__interned_string__init(&fresh->s);
		fresh->s.has_iid = true;
		fresh->s.iid = i + 1;
		fresh->s.has_str = true;
		fresh->s.str = (ProtobufCBinaryData){ .len = t->entries[i].len,
						      .data = (u8 *)t->entries[i].s };
		fresh->list[0] = &fresh->s;
	}
	return i + 1;
}

static size_t from_hex(const char *hex, u8 bytes[BUILD_ID_MAX])
{
	size_t n = MIN(strlen(hex) / 2, (size_t)BUILD_ID_MAX);

	return hex_decode(bytes, hex, n) ? n : 0;
}

/* The file that a frame lies in; two files of one path differ by their build ids. */
static u64 put_mapping(struct writer *w, u32 location)
{
	const struct location *l = &w->t->w->locations[location];
	const char *id = l->kind == FRAME_NATIVE ? module_build_id(l->module) : "";
	const char *path = timeline_mapping(w->t->w, location);
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__InternedData data = PERFETTO__INTERNED_DATA__INIT;
	Perfetto__Mapping m = PERFETTO__MAPPING__INIT, *list[] = { &m };
	char key[PATH_MAX + 2 * BUILD_ID_MAX + 2];
	u8 bytes[BUILD_ID_MAX];
	struct fresh whole, file, build;
	u64 file_iid;

	snprintf(key, sizeof(key), "%s %.*s", id, PATH_MAX - 1, path);
	m.iid = intern(w, &w->mappings, key, &whole);
	if (!whole.n)
		return m.iid;
	m.has_iid = true;
	file_iid = intern(w, &w->files, path, &file);
	m.n_path_string_ids = 1;
	m.path_string_ids = &file_iid;
	data.n_mapping_paths = file.n;
	data.mapping_paths = file.list;
	if (*id) {
		m.has_build_id = true;
		m.build_id = intern(w, &w->ids, id, &build);
		build.s.str = (ProtobufCBinaryData){ .len = from_hex(id, bytes), .data = bytes };
		data.n_build_ids = build.n;
		data.build_ids = build.list;
	}
	data.n_mappings = 1;
	data.mappings = list;
	p.interned_data = &data;
	put_packet(w, &p);
	return m.iid;
}

static void put_frame(struct writer *w, u32 location)
{
	const struct location *l = &w->t->w->locations[location];
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__InternedData data = PERFETTO__INTERNED_DATA__INIT;
	Perfetto__Frame f = PERFETTO__FRAME__INIT, *list[] = { &f };
	struct fresh name, source;
	char buf[TIMELINE_NAME];

	f.has_iid = f.has_function_name_id = f.has_mapping_id = f.has_rel_pc = true;
	f.iid = (u64)location + 1;
	f.mapping_id = put_mapping(w, location);
	/* An interpreter's frames have no address: its function and line tell them apart. */
	f.rel_pc = l->kind == FRAME_RUNTIME ? f.iid : l->address;
	f.function_name_id = intern(w, &w->names, timeline_name(w->t->w, location, buf), &name);
	data.n_function_names = name.n;
	data.function_names = name.list;
	if (l->kind == FRAME_RUNTIME && l->file) {
		f.has_source_path_iid = true;
		f.source_path_iid = intern(w, &w->sources, l->file, &source);
		data.n_source_paths = source.n;
		data.source_paths = source.list;
		f.has_line_number = l->line != 0;
		f.line_number = l->line;
	}
	data.n_frames = 1;
	data.frames = list;
	p.interned_data = &data;
	put_packet(w, &p);
}

static void put_stack(struct writer *w, u32 stack)
{
	const struct stack *s = &w->t->w->stacks[stack];
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__InternedData data = PERFETTO__INTERNED_DATA__INIT;
	Perfetto__Callstack c = PERFETTO__CALLSTACK__INIT, *list[] = { &c };
	_cleanup_free_ u64 *ids = calloc(s->n + 1, sizeof(*ids));
	u32 i;

	if (!ids) {
		w->err = -ENOMEM;
		return;
	}
	for (i = 0; i < s->n; i++)
		ids[s->n - 1 - i] = (u64)w->t->w->frames[s->first + i] + 1;
	c.has_iid = true;
	c.iid = (u64)stack + 1;
	c.n_frame_ids = s->n;
	c.frame_ids = ids;
	data.n_callstacks = 1;
	data.callstacks = list;
	p.interned_data = &data;
	put_packet(w, &p);
}

/* --- threads and what they did ---------------------------------------------------------------- */

static u64 track(const struct timeline_thread *th)
{
	return (u64)th->pid << 32 | th->tid;
}

/* The process first: its track is the parent of its threads'. */
static void put_thread(struct writer *w, const struct timeline_thread *th, bool first)
{
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackDescriptor d = PERFETTO__TRACK_DESCRIPTOR__INIT;
	Perfetto__ProcessDescriptor process = PERFETTO__PROCESS_DESCRIPTOR__INIT;
	Perfetto__ThreadDescriptor thread = PERFETTO__THREAD_DESCRIPTOR__INIT;

	d.has_uuid = true;
	p.track_descriptor = &d;
	if (first) {
		process.has_pid = true;
		process.pid = (s32)th->pid;
		process.process_name = (char *)th->labels->exe;
		d.uuid = (u64)th->pid << 32;
		d.process = &process;
		put_packet(w, &p);
		d.process = NULL;
	}
	d.has_parent_uuid = true;
	d.parent_uuid = (u64)th->pid << 32;
	d.uuid = track(th);
	thread.has_pid = thread.has_tid = true;
	thread.pid = (s32)th->pid;
	thread.tid = (s32)th->tid;
	thread.thread_name = (char *)th->labels->thread;
	d.thread = &thread;
	put_packet(w, &p);
}

static void put_sample(struct writer *w, const struct timeline_thread *th,
		       const struct window_event *ev)
{
	const struct window *win = w->t->w;
	const struct stack *s = &win->stacks[timeline_stack(win, ev)];
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__PerfSample ps = PERFETTO__PERF_SAMPLE__INIT;
	u32 i;

	p.has_timestamp = true;
	p.timestamp = ev->time_ns;
	ps.has_pid = ps.has_tid = ps.has_callstack_iid = ps.has_cpu_mode = true;
	ps.pid = th->pid;
	ps.tid = th->tid;
	ps.callstack_iid = (u64)timeline_stack(win, ev) + 1;
	ps.cpu_mode = s->n && win->locations[win->frames[s->first]].kind == FRAME_KERNEL
			      ? MODE_KERNEL
			      : MODE_USER;
	p.perf_sample = &ps;
	/* One that stands for several, for its thread did not run in between to tell them apart. */
	for (i = 0; i < ev->n && !w->err; i++)
		put_packet(w, &p);
}

static void put_wait(struct writer *w, const struct timeline_thread *th,
		     const struct window_event *ev)
{
	const struct label_set *l = timeline_labels(w->t->w, ev);
	const char *what = timeline_label(l, "wait"), *state = timeline_label(l, "thread.state");
	Perfetto__TracePacket p = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackEvent e = PERFETTO__TRACK_EVENT__INIT;
	Perfetto__DebugAnnotation in = PERFETTO__DEBUG_ANNOTATION__INIT;
	Perfetto__DebugAnnotation weight = PERFETTO__DEBUG_ANNOTATION__INIT;
	Perfetto__DebugAnnotation *notes[2] = { &in, &weight };
	char *category = (char *)"wait";

	e.has_type = e.has_track_uuid = e.has_callstack_iid = true;
	e.type = SLICE_BEGIN;
	e.track_uuid = track(th);
	e.callstack_iid = (u64)timeline_stack(w->t->w, ev) + 1;
	e.n_categories = 1;
	e.categories = &category;
	e.name = (char *)(what && *what ? what : "waits");
	in.name = (char *)"thread.state";
	in.string_value = (char *)(state ? state : "");
	weight.name = (char *)"stands for";
	weight.has_uint_value = true;
	weight.uint_value = ev->n;
	e.n_debug_annotations = ev->n > 1 ? 2 : 1;
	e.debug_annotations = notes;
	p.has_timestamp = true;
	p.timestamp = timeline_begin(w->t->w, ev);
	p.track_event = &e;
	put_packet(w, &p);
	perfetto__track_event__init(&e);
	e.has_type = e.has_track_uuid = true;
	e.type = SLICE_END;
	e.track_uuid = track(th);
	p.timestamp = MAX(ev->time_ns, p.timestamp);
	put_packet(w, &p);
}

static void put_events(struct writer *w, const struct timeline_thread *th)
{
	u32 i;

	for (i = 0; i < th->n && !w->err; i++) {
		const struct window_event *ev = w->t->events[th->first + i];

		if (timeline_waited(w->t->w, ev))
			put_wait(w, th, ev);
		else
			put_sample(w, th, ev);
	}
}

int timeline_write_perfetto(const struct timeline *t)
{
	struct writer w = { .t = t };
	u32 i;

	put_clocks(&w);
	for (i = 0; i < t->w->nlocations && !w.err; i++)
		put_frame(&w, i);
	for (i = 0; i < t->w->nstacks && !w.err; i++)
		put_stack(&w, i);
	for (i = 0; i < t->nthreads && !w.err; i++) {
		put_thread(&w, &t->threads[i], !i || t->threads[i].pid != t->threads[i - 1].pid);
		put_events(&w, &t->threads[i]);
	}
	free(w.buf);
	strtab_fini(&w.names);
	strtab_fini(&w.files);
	strtab_fini(&w.sources);
	strtab_fini(&w.ids);
	strtab_fini(&w.mappings);
	return w.err;
}
