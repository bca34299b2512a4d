// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: books. See tables.h. A unit is one file's table in the slabs; units are found by module,
 * and by content, since one file can be two modules (known once by build id, once by inode).
 * Nothing in a slab is changed in place: a process's mappings are written anew and switched by one
 * map update; what was there before is freed a round later, after a grace period.
 */
#include "tables.h"

#include "htab.h"
#include "log.h"
#include "module.h"
#include "process.h"
#include "slabs.h"
#include "stat.h"
#include "table.h"

#include <errno.h>
#include <string.h>

#define PIECE_BYTES    (64u << 10) /* leaves are copied in runs of about this */
#define CHURN_PAUSE_NS NSEC_PER_SEC
#define FEW_MAPPINGS   256
#define NO_ROOM_NS     (60 * NSEC_PER_SEC)

struct run {
	u32 ref, bytes;
};

struct unit {
	u64 hash; /* of the content */
	u32 slot;
	u64 base;
	u32 shift, npages, index, rules;
	struct run *runs;
	u32 nruns, runs_cap;
	u64 rows, bytes;
	u32 users;   /* published processes */
	u64 idle_ns; /* since when users is 0 */
};

/* What became of a module's table. */
struct known {
	struct module *module; /* a reference */
	struct unit *unit;     /* NULL: no room, until retry_ns */
	u64 retry_ns;
};

struct published {
	struct process *process;
	u32 slot;
	bool live; /* the kernel has it */
	bool pending;
	u64 version;
	u64 wanted_ns, published_ns;
	u32 gen;
	struct run maps;
	u32 nmaps;
	struct unit **units;
	u32 nunits;
};

struct tables {
	struct processes *procs;
	struct modules *modules;
	struct tables_kernel kernel;
	struct slabs *slabs;
	u32 gen;
	struct published **pubs;
	u32 npubs, pubs_cap;
	struct unit **units;
	u32 nunits, units_cap;
	struct htab by_content;
	struct known *known;
	u32 nknown, known_cap;
	struct htab by_module;
	struct run *graves; /* nothing leads here any more, but a program may still be reading */
	u32 ngraves, graves_cap;
	u64 map_bytes;
	/* Of the process being built. */
	struct map_entry *entries;
	u32 nentries, entries_cap;
	struct unit **used;
	u32 nused, used_cap;
	struct log_limit room_log;
};

static void on_drop(void *arg, struct process *p);

struct tables *tables_new(struct processes *procs, struct modules *modules,
			  const struct tables_kernel *kernel, u64 max_bytes)
{
	struct tables *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->procs = procs;
	t->modules = modules;
	t->kernel = *kernel;
	t->slabs = slabs_new(kernel->grow, kernel->arg, max_bytes);
	if (!t->slabs) {
		free(t);
		return NULL;
	}
	processes_on_drop(procs, on_drop, t);
	return t;
}

/* --- freeing ---------------------------------------------------------------------------------- */

static void bury(struct tables *t, struct run run)
{
	if (!run.bytes)
		return;
	/* Without memory for the list the run stays taken: a leak of room, never a wrong table. */
	if (VEC_RESERVE(t->graves, t->graves_cap, t->ngraves + 1, UINT32_MAX / 16)) {
		stat_inc(STAT_no_memory);
		return;
	}
	t->graves[t->ngraves++] = run;
}

static void clear_graves(struct tables *t)
{
	u32 i;

	if (!t->ngraves)
		return;
	t->kernel.sync(t->kernel.arg);
	for (i = 0; i < t->ngraves; i++)
		slabs_release(t->slabs, t->graves[i].ref, t->graves[i].bytes);
	t->ngraves = 0;
}

static void forget_module(struct tables *t, u32 i);

static void unit_free(struct tables *t, struct unit *u)
{
	struct unit *last = t->units[--t->nunits];
	u32 i;

	for (i = 0; i < t->nknown;)
		if (t->known[i].unit == u)
			forget_module(t, i);
		else
			i++;
	htab_remove(&t->by_content, u->hash, u->slot);
	if (last != u) {
		htab_remove(&t->by_content, last->hash, last->slot);
		last->slot = u->slot;
		t->units[u->slot] = last;
		htab_insert(&t->by_content, last->hash, last->slot); /* there is room */
	}
	for (i = 0; i < u->nruns; i++)
		bury(t, u->runs[i]);
	free(u->runs);
	free(u);
}

static u64 module_hash(const struct module *m)
{
	return hash_mix(0x6d6f64, (u64)(uintptr_t)m);
}

static void forget_module(struct tables *t, u32 i)
{
	struct known *last = &t->known[--t->nknown];

	htab_remove(&t->by_module, module_hash(t->known[i].module), i);
	module_put(t->known[i].module);
	if (i != t->nknown) {
		htab_remove(&t->by_module, module_hash(last->module), t->nknown);
		t->known[i] = *last;
		htab_insert(&t->by_module, module_hash(last->module), i);
	}
}

static void release_units(struct published *pub)
{
	u64 now = now_monotonic();
	u32 i;

	for (i = 0; i < pub->nunits; i++)
		if (!--pub->units[i]->users)
			pub->units[i]->idle_ns = now;
	free(pub->units);
	pub->units = NULL;
	pub->nunits = 0;
}

static void unpublish(struct tables *t, struct published *pub)
{
	if (pub->live)
		t->kernel.unpublish(t->kernel.arg, pub->process->pid);
	pub->live = false;
	t->map_bytes -= pub->maps.bytes;
	bury(t, pub->maps);
	pub->maps = (struct run){ 0 };
	pub->version = UINT64_MAX;
	release_units(pub);
}

static void pub_drop(struct tables *t, struct published *pub)
{
	struct published *last = t->pubs[--t->npubs];

	unpublish(t, pub);
	last->slot = pub->slot;
	t->pubs[last->slot] = last;
	pub->process->published = NULL;
	free(pub);
}

static void on_drop(void *arg, struct process *p)
{
	if (p->published)
		pub_drop(arg, p->published);
}

void tables_free(struct tables *t)
{
	if (!t)
		return;
	processes_off_drop(t->procs, t);
	while (t->npubs)
		pub_drop(t, t->pubs[t->npubs - 1]);
	while (t->nunits)
		unit_free(t, t->units[t->nunits - 1]);
	while (t->nknown)
		forget_module(t, t->nknown - 1);
	htab_fini(&t->by_content);
	htab_fini(&t->by_module);
	slabs_free(t->slabs);
	free(t->pubs);
	free(t->units);
	free(t->known);
	free(t->graves);
	free(t->entries);
	free(t->used);
	free(t);
}

/* --- room ------------------------------------------------------------------------------------- */

static struct unit *oldest_idle_unit(struct tables *t)
{
	struct unit *best = NULL;
	u32 i;

	for (i = 0; i < t->nunits; i++)
		if (!t->units[i]->users && (!best || t->units[i]->idle_ns < best->idle_ns))
			best = t->units[i];
	return best;
}

static struct published *oldest_pub(struct tables *t, const struct published *except)
{
	struct published *best = NULL;
	u32 i;

	for (i = 0; i < t->npubs; i++)
		if (t->pubs[i] != except && t->pubs[i]->maps.bytes &&
		    (!best || t->pubs[i]->wanted_ns < best->wanted_ns))
			best = t->pubs[i];
	return best;
}

/* Makes some room; false when there is nothing left that `pub` does not need itself. */
static bool evict(struct tables *t, const struct published *pub)
{
	struct unit *u = oldest_idle_unit(t);
	struct published *old;

	if (u) {
		unit_free(t, u);
		stat_inc(STAT_unwind_evicted);
	} else {
		old = oldest_pub(t, pub);
		/* Only who was not sampled for a while gives way; else two would evict each other. */
		if (!old || old->wanted_ns + CHURN_PAUSE_NS > pub->wanted_ns)
			return false;
		unpublish(t, old);
	}
	clear_graves(t);
	return true;
}

static int room(struct tables *t, const struct published *pub, u32 bytes, struct run *ret)
{
	u32 ref;
	int err;

	/* Each turn gives something up. */
	while ((err = slabs_alloc(t->slabs, bytes, &ref)) == -ENOSPC && evict(t, pub))
		;
	if (!err)
		*ret = (struct run){ ref, bytes };
	return err;
}

/* --- files ------------------------------------------------------------------------------------ */

static u64 table_hash(const struct table *t)
{
	u64 h = hash_bytes(t->leaves, t->leaves_len);

	h = hash_mix(h, hash_bytes(t->rules, t->nslots * sizeof(*t->rules)));
	h = hash_mix(h, hash_bytes(t->leaf_at, t->npages * sizeof(*t->leaf_at)));
	return hash_mix(hash_mix(h, t->base), (u64)t->shift << 32 | t->npages);
}

static int unit_run(struct tables *t, struct unit *u, const struct published *pub, u32 bytes,
		    u32 *ret_ref)
{
	struct run run;
	int err = VEC_RESERVE(u->runs, u->runs_cap, u->nruns + 1, 1u << 20);

	if (!err)
		err = room(t, pub, bytes, &run);
	if (err)
		return err;
	u->runs[u->nruns++] = run;
	u->bytes += bytes;
	*ret_ref = run.ref;
	return 0;
}

/* Leaves i.. that fit a piece go into one run; returns the page behind them, or -errno. */
static s64 place_leaves(struct tables *t, struct unit *u, const struct published *pub,
			const struct table *table, u32 page, u32 *refs)
{
	u32 start = table->leaf_at[page], end = start, i, ref;
	int err;

	for (i = page; i < table->npages; i++) {
		u32 at = table->leaf_at[i];

		if (at == UINT32_MAX)
			continue;
		if (at + table->leaf_len[i] - start > PIECE_BYTES && end > start)
			break;
		end = at + table->leaf_len[i];
	}
	err = unit_run(t, u, pub, end - start, &ref);
	if (err)
		return err;
	memcpy(slabs_at(t->slabs, ref), table->leaves + start, end - start);
	for (; page < i; page++)
		if (table->leaf_at[page] != UINT32_MAX)
			refs[page] = ref + (table->leaf_at[page] - start) / SLAB_GRAIN;
	return i;
}

static int unit_fill(struct tables *t, struct unit *u, const struct published *pub,
		     const struct table *table)
{
	_cleanup_free_ u32 *refs = calloc(table->npages, sizeof(*refs));
	u32 page = 0;
	int err;

	if (!refs)
		return -ENOMEM;
	while (page < table->npages) {
		s64 next;

		if (table->leaf_at[page] == UINT32_MAX) {
			page++;
			continue;
		}
		next = place_leaves(t, u, pub, table, page, refs);
		if (next < 0)
			return (int)next;
		page = (u32)next;
	}
	err = unit_run(t, u, pub, table->npages * (u32)sizeof(*refs), &u->index);
	if (!err)
		err = unit_run(t, u, pub, table->nslots * (u32)sizeof(*table->rules), &u->rules);
	if (err)
		return err;
	memcpy(slabs_at(t->slabs, u->index), refs, table->npages * sizeof(*refs));
	memcpy(slabs_at(t->slabs, u->rules), table->rules, table->nslots * sizeof(*table->rules));
	return 0;
}

/* Puts a table into the slabs, or finds the one that is equal. NULL: no room. */
static struct unit *unit_get(struct tables *t, const struct published *pub,
			     const struct table *table)
{
	u64 hash = table_hash(table);
	struct unit *u;
	u32 pos, i;
	int err;

	for (pos = htab_start(&t->by_content, hash); htab_next(&t->by_content, hash, &pos, &i);)
		return t->units[i]; /* the hash is seeded: nobody can make two tables meet */
	err = VEC_RESERVE(t->units, t->units_cap, t->nunits + 1, 1u << 20);
	u = err ? NULL : calloc(1, sizeof(*u));
	if (!u || htab_insert(&t->by_content, hash, t->nunits)) {
		free(u);
		stat_inc(STAT_no_memory);
		return NULL;
	}
	u->hash = hash;
	u->slot = t->nunits;
	u->base = table->base;
	u->shift = table->shift;
	u->npages = table->npages;
	u->rows = table->nrows;
	u->users = 1; /* not to be evicted while it is being filled */
	t->units[t->nunits++] = u;
	err = unit_fill(t, u, pub, table);
	u->users = 0;
	u->idle_ns = now_monotonic();
	if (!err)
		return u;
	unit_free(t, u);
	return NULL;
}

static struct known *find_known(struct tables *t, const struct module *m)
{
	u64 hash = module_hash(m);
	u32 pos, i;

	for (pos = htab_start(&t->by_module, hash); htab_next(&t->by_module, hash, &pos, &i);)
		if (t->known[i].module == m)
			return &t->known[i];
	return NULL;
}

static void remember(struct tables *t, struct module *m, struct unit *u, u64 now)
{
	u64 hash = module_hash(m);

	if (VEC_RESERVE(t->known, t->known_cap, t->nknown + 1, 1u << 20) ||
	    htab_insert(&t->by_module, hash, t->nknown)) {
		stat_inc(STAT_no_memory);
		return;
	}
	t->known[t->nknown++] = (struct known){
		.module = module_ref(m),
		.unit = u,
		.retry_ns = now + NO_ROOM_NS,
	};
}

/* The table of a file that has one ready, put into the slabs now. */
static struct unit *bring_in(struct tables *t, const struct published *pub, struct module *m,
			     u64 now)
{
	struct table *table = module_take_unwind(m);
	struct unit *u;

	if (!table)
		return NULL;
	u = unit_get(t, pub, table);
	if (!u) {
		stat_inc(STAT_unwind_no_room);
		if (log_limit(&t->room_log, NULL))
			log_warn(
				"no room for the unwind table of %s (%.1f MB, %.1f MB are in use): its "
				"stacks follow frame pointers; raise table_memory_mb",
				module_path(m), (double)table_bytes(table) / 1e6,
				(double)slabs_used(t->slabs) / 1e6);
	}
	remember(t, m, u, now);
	table_fini(table);
	free(table);
	return u;
}

/* --- processes -------------------------------------------------------------------------------- */

static int add_entry(struct tables *t, const struct map_entry *e)
{
	struct map_entry *last = t->nentries ? &t->entries[t->nentries - 1] : NULL;
	int err;

	/* Runs of executable memory that is no file are one. */
	if (last && last->kind == MAP_JIT && e->kind == MAP_JIT && last->hi == e->lo) {
		last->hi = e->hi;
		return 0;
	}
	err = VEC_RESERVE(t->entries, t->entries_cap, t->nentries + 1, MAP_ENTRIES_MAX);
	if (!err)
		t->entries[t->nentries++] = *e;
	return err;
}

static int use_unit(struct tables *t, struct unit *u)
{
	u32 i;
	int err;

	for (i = 0; i < t->nused; i++)
		if (t->used[i] == u)
			return 0;
	err = VEC_RESERVE(t->used, t->used_cap, t->nused + 1, MAP_ENTRIES_MAX);
	if (!err) {
		t->used[t->nused++] = u;
		u->users++;
	}
	return err;
}

/* Where a mapping's addresses lie in its file's table. */
static bool set_table(struct map_entry *e, const struct process_mapping *map, const struct unit *u)
{
	const struct module_segment *seg =
		module_exec_segment(map->module, map->offset, map->offset + (map->hi - map->lo));

	if (!seg)
		return false;
	/* address -> file offset -> ELF address -> offset from the table's base */
	e->bias = map->lo - map->offset + seg->offset - seg->vaddr + u->base;
	e->index = u->index;
	e->rules = u->rules;
	e->npages = u->npages;
	e->shift = (u8)u->shift;
	e->kind = MAP_TABLE;
	return true;
}

static int add_mapping(struct tables *t, struct published *pub, const struct process_mapping *map,
		       u64 now)
{
	struct map_entry e = { .lo = map->lo, .hi = map->hi, .kind = MAP_JIT };
	struct known *known;
	struct unit *u = NULL;

	if (!strcmp(map->path, "[uprobes]"))
		e.kind = MAP_URETPROBE;
	if (!map->image)
		return add_entry(t, &e);
	e.kind = MAP_PENDING;
	if (!map->module)
		return add_entry(t, &e);
	known = find_known(t, map->module);
	if (known && !known->unit && now > known->retry_ns) {
		forget_module(t, (u32)(known - t->known));
		known = NULL;
	}
	if (known) {
		u = known->unit;
	} else {
		switch (module_unwind(t->modules, map->module)) {
		case MODULE_UNWIND_UNKNOWN:
			pub->pending = true;
			break;
		case MODULE_UNWIND_READY:
			u = bring_in(t, pub, map->module, now);
			break;
		case MODULE_UNWIND_NONE:
			e.kind = MAP_FP;
			break;
		case MODULE_UNWIND_FAILED:
			break;
		}
	}
	if (u && set_table(&e, map, u)) {
		int err = use_unit(t, u);

		if (err)
			return err;
	}
	return add_entry(t, &e);
}

static int build(struct tables *t, struct published *pub, u64 now)
{
	struct process_mapping map;
	int err = 0;
	u32 i;

	t->nentries = 0;
	t->nused = 0;
	pub->pending = false;
	for (i = 0; !err && processes_mapping(t->procs, pub->process, i, &map); i++)
		err = add_mapping(t, pub, &map, now);
	/* More than fits: the lowest ones are there, the others follow frame pointers. */
	return err == -E2BIG ? 0 : err;
}

/* Makes the built entries what the kernel has of the process. */
static int switch_over(struct tables *t, struct published *pub, u64 now)
{
	struct process *p = pub->process;
	struct proc_entry entry = {
		.start_ns = p->start_ns,
		.exec_id = p->exec_id,
		.nmaps = t->nentries,
	};
	u32 bytes = t->nentries * (u32)sizeof(*t->entries);
	_cleanup_free_ struct unit **units = NULL;
	struct run maps;
	int err;

	if (!bytes)
		return 0;
	units = malloc(MAX(t->nused, 1u) * sizeof(*units));
	err = units ? room(t, pub, bytes, &maps) : -ENOMEM;
	if (err)
		return err;
	memcpy(slabs_at(t->slabs, maps.ref), t->entries, bytes);
	if (!++t->gen)
		t->gen = 1;
	entry.gen = t->gen;
	entry.maps = maps.ref;
	err = t->kernel.publish(t->kernel.arg, p->pid, &entry);
	if (err) {
		bury(t, maps);
		return err;
	}
	t->map_bytes += maps.bytes;
	t->map_bytes -= pub->maps.bytes;
	bury(t, pub->maps);
	release_units(pub);
	if (t->nused)
		memcpy(units, t->used, t->nused * sizeof(*units));
	pub->units = take_ptr(units);
	pub->nunits = t->nused;
	t->nused = 0; /* the users counted by use_unit() are the process's now */
	pub->maps = maps;
	pub->nmaps = entry.nmaps;
	pub->gen = entry.gen;
	pub->live = true;
	pub->published_ns = now;
	return 0;
}

/* An older image of the pid, exec'ed over, is not what the kernel has from now on. */
static void supersede(struct tables *t, const struct published *pub)
{
	u32 i;

	for (i = 0; i < t->npubs; i++)
		if (t->pubs[i] != pub && t->pubs[i]->process->pid == pub->process->pid)
			t->pubs[i]->live = false;
}

static void republish(struct tables *t, struct published *pub, u64 now)
{
	u64 version = pub->process->maps_version;
	int err = build(t, pub, now);
	u32 i;

	if (!err)
		err = switch_over(t, pub, now);
	for (i = 0; i < t->nused; i++) /* not taken over */
		if (!--t->used[i]->users)
			t->used[i]->idle_ns = now;
	t->nused = 0;
	/* Failed or not: the next try is due when something changes. */
	pub->version = version;
	if (err) {
		stat_inc(STAT_publish_failed);
		log_debug("process %u: mappings not published: %s", pub->process->pid,
			  strerror(-err));
	} else if (pub->live) {
		supersede(t, pub);
	}
}

void tables_want(struct tables *t, struct process *p)
{
	struct published *pub = p->published;
	u64 now = now_monotonic();

	if (pub) {
		pub->wanted_ns = now;
		/* Pushed out by a publication that this sample proves wrong: say it again. */
		if (!pub->live && pub->maps.bytes && !p->replaced)
			pub->version = UINT64_MAX;
		return;
	}
	if (p->exited || p->replaced || !p->id_known || !p->maps)
		return;
	if (t->npubs == PROC_ENTRIES_MAX) {
		pub = oldest_pub(t, NULL);
		if (pub)
			pub_drop(t, pub);
	}
	pub = NULL;
	if (!VEC_RESERVE(t->pubs, t->pubs_cap, t->npubs + 1, PROC_ENTRIES_MAX))
		pub = calloc(1, sizeof(*pub));
	if (!pub) {
		stat_inc(STAT_publish_failed);
		return;
	}
	pub->process = p;
	pub->slot = t->npubs;
	pub->version = UINT64_MAX;
	pub->wanted_ns = now;
	t->pubs[t->npubs++] = pub;
	p->published = pub;
}

static bool is_due(const struct published *pub, u64 now)
{
	if (pub->process->replaced)
		return false; /* what the pid runs now must not be pushed out */
	if (pub->version == pub->process->maps_version && !pub->pending)
		return false;
	/* Unpublished for room: only a new sample brings it back. */
	if (pub->version == UINT64_MAX && pub->published_ns && pub->wanted_ns < pub->published_ns)
		return false;
	return pub->nmaps < FEW_MAPPINGS || now - pub->published_ns > CHURN_PAUSE_NS;
}

void tables_round(struct tables *t, u64 now_ns)
{
	u32 i;

	for (i = 0; i < t->npubs; i++)
		if (is_due(t->pubs[i], now_ns))
			republish(t, t->pubs[i], now_ns);
	clear_graves(t);
}

void tables_figures(const struct tables *t, struct tables_figures *ret)
{
	u32 i;

	*ret = (struct tables_figures){
		.files = t->nunits,
		.map_bytes = t->map_bytes,
		.slab_bytes = slabs_bytes(t->slabs),
	};
	for (i = 0; i < t->npubs; i++)
		ret->processes += t->pubs[i]->live;
	for (i = 0; i < t->nunits; i++) {
		ret->rows += t->units[i]->rows;
		ret->table_bytes += t->units[i]->bytes;
	}
}
