// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See offcpu.h. One skeleton for three builds of one object: without task work, and
 * with it as kernels declare it; all have the same maps first.
 */
#include "offcpu.h"

#include "features.h"
#include "log.h"
#include "offcpu.skel.h"
#include "offcpu_tw4.skel.h"
#include "offcpu_tw5.skel.h"
#include "pending.h"
#include "pidns.h"
#include "stat.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#define SLOTS_MIN 32768u
#define SLOTS_MAX (1u << 20)
#define LINGER_NS (NSEC_PER_SEC / 50)

struct offcpu {
	struct sampler *sampler;
	struct offcpu_options o;
	enum offcpu_mode mode;
	struct bpf_object *obj;
	struct bpf_link *switches, *after, *iter;
	struct offcpu_bpf__bss *bss; /* shared with the programs */
	size_t bss_size;
	struct counts counts;
	struct pending_pool pool;
	struct wait_slot *slots; /* likewise */
	u32 nslots;
	struct openwaits *open;
	u32 only; /* whose open waits are read; 0: all */
	/* OFFCPU_INTERRUPT: rings that nobody reads. */
	struct kick_ring {
		int fd;
		u64 *consumer, *producer;
	} * kicks;
	u32 nkicks;
	u64 sampling_ns;
	u64 own_ns;
};

static const char *const shared_maps[] = {
	"stats",   "stacks", "filter",   "slabs",        "procs",
	"recipes", "heads",  "contexts", ".data.shared",
};

_Static_assert(sizeof(struct offcpu_bpf__rodata) == sizeof(struct offcpu_tw5_bpf__rodata) &&
		       sizeof(struct offcpu_bpf__rodata) == sizeof(struct offcpu_tw4_bpf__rodata) &&
		       sizeof(struct offcpu_bpf__bss) == sizeof(struct offcpu_tw5_bpf__bss) &&
		       sizeof(struct offcpu_bpf__bss) == sizeof(struct offcpu_tw4_bpf__bss),
	       "builds of one object differ");

static struct bpf_map *map_of(const struct offcpu *o, const char *name)
{
	return bpf_object__find_map_by_name(o->obj, name);
}

static int map_fd(const struct offcpu *o, const char *name)
{
	struct bpf_map *map = map_of(o, name);

	return map ? bpf_map__fd(map) : -ENOENT;
}

static struct bpf_program *program(const struct offcpu *o, const char *name)
{
	return bpf_object__find_program_by_name(o->obj, name);
}

/* --- loading ---------------------------------------------------------------------------------- */

static const void *build_for(enum offcpu_mode mode, size_t *ret_size)
{
	if (mode != OFFCPU_TASK_WORK)
		return offcpu_bpf__elf_bytes(ret_size);
	switch (features_host()->task_work) {
	case TASK_WORK_IMPL:
		return offcpu_tw5_bpf__elf_bytes(ret_size);
	case TASK_WORK_PLAIN:
		return offcpu_tw4_bpf__elf_bytes(ret_size);
	default:
		return NULL;
	}
}

static int open_object(struct offcpu *o)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "offcpu");
	const void *bytes;
	size_t size;

	bytes = build_for(o->mode, &size);
	if (!bytes)
		return -EOPNOTSUPP;
	o->obj = bpf_object__open_mem(bytes, size, &opts);
	return o->obj ? 0 : -errno;
}

static int share_maps(struct offcpu *o)
{
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(shared_maps); i++) {
		struct bpf_map *map = map_of(o, shared_maps[i]);
		int fd = sampler_map(o->sampler, shared_maps[i]);

		if (!map || fd < 0)
			return -ENOENT;
		err = bpf_map__reuse_fd(map, fd);
		if (err)
			return err;
	}
	return 0;
}

/* Eight times as many as there are threads now; four times where those are very many. */
static u32 slots_wanted(void)
{
	_cleanup_free_ char *text = NULL;
	u64 threads = 0, want;
	const char *slash;
	u32 n = SLOTS_MIN;

	if (!read_file("/proc/loadavg", 256, &text, NULL) && (slash = strchr(text, '/')))
		threads = strtoull(slash + 1, NULL, 10);
	want = threads > SLOTS_MIN ? threads * 4 : threads * 8;
	while (n < want && n < SLOTS_MAX)
		n *= 2;
	return n;
}

static int set_sizes(struct offcpu *o)
{
	bool early = o->mode == OFFCPU_SWITCH_OUT;
	struct bpf_map *kicks;
	int err;

	o->nslots = slots_wanted();
	err = bpf_map__set_max_entries(map_of(o, "wait_slots"), o->nslots);
	if (!err)
		err = bpf_map__set_max_entries(
			map_of(o, "row_cache"),
			o->o.tables && o->mode != OFFCPU_TASK_WORK ? ROW_CACHE_SIZE : 1);
	if (err || o->mode == OFFCPU_TASK_WORK)
		return err ? err : pending_size(&o->pool, o->obj);
	kicks = map_of(o, "kicks");
	o->nkicks = early ? 0 : (u32)libbpf_num_possible_cpus();
	err = bpf_map__set_max_entries(kicks, MAX(o->nkicks, 1u));
	return err ? err : bpf_map__set_max_entries(map_of(o, "held"), early ? EARLY_ENTRIES : 1);
}

static int set_constants(struct offcpu *o)
{
	struct bpf_map *map = map_of(o, ".rodata");
	_cleanup_free_ struct offcpu_bpf__rodata *ro = NULL;
	const void *initial;
	struct pidns ns;
	size_t size;
	u64 seed;
	int err = pidns_own(&ns);

	initial = bpf_map__initial_value(map, &size);
	if (err)
		return err;
	/* A structure is padded at its end, a section is not. */
	if (!initial || size < offsetof(struct offcpu_bpf__rodata, have_prev_state))
		return -EINVAL;
	ro = calloc(1, MAX(size, sizeof(*ro)));
	if (!ro)
		return -ENOMEM;
	memcpy(ro, initial, size);
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = now_monotonic();
	ro->ns_level = ns.level;
	ro->ns_at = ns.at;
	ro->kernel_frames = o->o.kernel_frames;
	ro->marks = o->o.marks;
	ro->thread_context = o->o.thread_context;
	ro->filter_on = o->o.only_pids;
	ro->min_age_ns = o->o.min_age_ns;
	ro->max_frames = MIN(o->o.max_frames, (u32)MAX_USER_FRAMES);
	ro->hash_seed = seed;
	ro->addr_mask = sampler_address_mask();
	ro->thread_size = sampler_thread_size();
	ro->ring_wake = sampler_ring_wake(o->sampler);
	ro->news_pause = o->o.tables ? o->o.news_pause_ns : 0;
	ro->min_ns = o->o.min_ns;
	ro->slot_mask = o->nslots - WAIT_WAYS;
	ro->walk_how = o->o.tables ? 0 : WALK_FP_ONLY;
	ro->lock_profile = o->o.lock;
	ro->lock_only = o->o.lock && o->o.lock_only;
	ro->walk_early = o->mode == OFFCPU_SWITCH_OUT;
	ro->have_prev_state = features_host()->sched_switch_args > 3;
	if (o->mode == OFFCPU_TASK_WORK) {
		ro->pending_mask = o->pool.entries - PENDING_WAYS;
		ro->scratch_cpus = o->pool.cpus;
		ro->scratch_pool = o->pool.scratches;
	}
	return bpf_map__set_initial_value(map, ro, size);
}

/* A ring per CPU, whose reader is said to have read all whenever offcpu_round() comes by. */
static int make_kicks(struct offcpu *o)
{
	u32 page = (u32)sysconf(_SC_PAGESIZE), i;
	int outer = map_fd(o, "kicks");
	void *mem;

	o->kicks = calloc(MAX(o->nkicks, 1u), sizeof(*o->kicks));
	if (!o->kicks)
		return -ENOMEM;
	for (i = 0; i < o->nkicks; i++)
		o->kicks[i].fd = -1;
	for (i = 0; i < o->nkicks; i++) {
		struct kick_ring *k = &o->kicks[i];

		k->fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "kick", 0, 0,
				       MAX((u32)KICK_BYTES, page), NULL);
		if (k->fd < 0 || bpf_map_update_elem(outer, &i, &k->fd, 0))
			return -errno;
		mem = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd, 0);
		if (mem == MAP_FAILED)
			return -errno;
		k->consumer = mem;
		mem = mmap(NULL, page, PROT_READ, MAP_SHARED, k->fd, page);
		if (mem == MAP_FAILED)
			return -errno;
		k->producer = mem;
	}
	return 0;
}

/* What programs and we both write to. */
static int map_memory(struct offcpu *o)
{
	struct bpf_map *bss = map_of(o, ".bss");
	void *mem;

	o->bss_size = (sizeof(*o->bss) + (size_t)sysconf(_SC_PAGESIZE) - 1) &
		      ~((size_t)sysconf(_SC_PAGESIZE) - 1);
	mem = mmap(NULL, o->bss_size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(bss), 0);
	if (mem == MAP_FAILED)
		return -errno;
	o->bss = mem;
	mem = mmap(NULL, o->nslots * sizeof(*o->slots), PROT_READ | PROT_WRITE, MAP_SHARED,
		   map_fd(o, "wait_slots"), 0);
	if (mem == MAP_FAILED)
		return -errno;
	o->slots = mem;
	return 0;
}

static void unload(struct offcpu *o)
{
	u32 page = (u32)sysconf(_SC_PAGESIZE), i;

	counts_fini(&o->counts);
	for (i = 0; o->kicks && i < o->nkicks; i++) {
		if (o->kicks[i].consumer)
			munmap(o->kicks[i].consumer, page);
		if (o->kicks[i].producer)
			munmap(o->kicks[i].producer, page);
		closep(&o->kicks[i].fd);
	}
	free(o->kicks);
	o->kicks = NULL;
	if (o->bss)
		munmap(o->bss, o->bss_size);
	if (o->slots)
		munmap(o->slots, o->nslots * sizeof(*o->slots));
	o->bss = NULL;
	o->slots = NULL;
	bpf_object__close(o->obj);
	o->obj = NULL;
}

static int load(struct offcpu *o, enum offcpu_mode mode)
{
	int err;

	o->mode = mode;
	err = open_object(o);
	if (!err)
		err = set_sizes(o);
	if (!err)
		err = set_constants(o);
	if (!err)
		err = share_maps(o);
	if (!err && mode == OFFCPU_SWITCH_OUT)
		err = bpf_program__set_autoload(program(o, "after_switch"), false);
	if (!err)
		err = bpf_object__load(o->obj);
	if (!err)
		err = map_memory(o);
	if (!err && mode == OFFCPU_INTERRUPT)
		err = make_kicks(o);
	if (!err)
		err = counts_init(&o->counts, map_fd(o, "counts"), COUNTS_DECLARED);
	if (err) {
		log_debug("off-CPU profiling, %s: %s", offcpu_mode_text(mode), strerror(-err));
		unload(o);
	}
	return err;
}

/* "MODE", "MODE,T" or ",T": what a test wants. */
static void read_wish(int *mode, u64 *threshold_ns)
{
	const char *wish = getenv("EBPFPROFILER_OFFCPU"), *comma;

	*mode = -1;
	*threshold_ns = 0;
	if (!wish)
		return;
	if (*wish && *wish != ',')
		*mode = (int)strtol(wish, NULL, 10);
	comma = strchr(wish, ',');
	if (comma)
		*threshold_ns = strtoull(comma + 1, NULL, 10);
}

static int load_best(struct offcpu *o, int wish)
{
	int err = -EOPNOTSUPP, mode;

	for (mode = 0; mode < OFFCPU_MODES; mode++) {
		if (wish >= 0 && wish != mode)
			continue;
		err = load(o, (enum offcpu_mode)mode);
		if (!err)
			return 0;
	}
	return err;
}

static int image_of(void *arg, u32 tgid, struct proc_entry *ret)
{
	struct offcpu *o = arg;

	return bpf_map_lookup_elem(map_fd(o, "procs"), &tgid, ret) ? -errno : 0;
}

static struct openwaits *make_openwaits(struct offcpu *o)
{
	struct openwaits_options ow = {
		.reader = o->o.reader,
		.slots = o->slots,
		.nslots = o->nslots,
		.max_frames = o->o.max_frames,
		.addr_mask = sampler_address_mask(),
		.tables = o->o.tables,
		.slab = sampler_slab,
		.slab_arg = o->sampler,
		.image = image_of,
		.arg = o,
	};

	return openwaits_new(&ow);
}

int offcpu_new(struct sampler *s, const struct offcpu_options *options, struct offcpu **ret,
	       const char **why)
{
	struct offcpu *o = calloc(1, sizeof(*o));
	u64 threshold_ns;
	int err, mode;

	*why = "out of memory";
	if (!o)
		return -ENOMEM;
	o->sampler = s;
	o->o = *options;
	read_wish(&mode, &threshold_ns);
	err = load_best(o, mode);
	if (err) {
		*why = "the kernel does not load its programs";
		free(o);
		return err;
	}
	o->open = make_openwaits(o);
	if (!o->open) {
		offcpu_free(o);
		return -ENOMEM;
	}
	if (threshold_ns)
		offcpu_set_sampling(o, threshold_ns);
	*ret = o;
	return 0;
}

void offcpu_free(struct offcpu *o)
{
	if (!o)
		return;
	bpf_link__destroy(o->switches);
	bpf_link__destroy(o->after);
	bpf_link__destroy(o->iter);
	openwaits_free(o->open);
	unload(o);
	free(o);
}

/* --- running ---------------------------------------------------------------------------------- */

static int attach(struct offcpu *o, const char *name, struct bpf_link **ret)
{
	struct bpf_link *link = bpf_program__attach(program(o, name));

	if (!link)
		return -errno;
	*ret = link;
	return 0;
}

/* What the iterator writes, in pieces; 0 or -errno. fn gets all bytes that wait, returns what it took. */
typedef size_t iter_fn(struct offcpu *o, const u8 *data, size_t len);

static int run_iterator(struct offcpu *o, iter_fn *fn)
{
	enum { BUFFER = 256 << 10 };
	_cleanup_free_ u8 *buf = malloc(BUFFER);
	_cleanup_close_ int fd = -1;
	size_t used = 0, took;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	if (!o->iter) {
		o->iter = bpf_program__attach_iter(program(o, "open_waits"), NULL);
		if (!o->iter)
			return -errno;
	}
	fd = bpf_iter_create(bpf_link__fd(o->iter));
	if (fd < 0)
		return -errno;
	/* Ends with the threads of the host. */
	for (;;) {
		n = read(fd, buf + used, BUFFER - used);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		used += (size_t)n;
		took = fn(o, buf, used);
		used -= took;
		memmove(buf, buf + took, used);
	}
}

static size_t take_nothing(struct offcpu *o __unused, const u8 *data __unused, size_t len)
{
	return len;
}

static size_t take_records(struct offcpu *o, const u8 *data, size_t len)
{
	size_t at = 0, n;

	while (len - at >= sizeof(struct open_wait)) {
		const struct open_wait *w = (const void *)(data + at);

		n = openwaits_record_len(w);
		if (!n)
			return len; /* not ours: no way to find the next */
		if (n > len - at)
			break;
		if (!o->only || o->only == w->key.tgid)
			openwaits_add(o->open, w, n);
		at += n;
	}
	return at;
}

static int seed(struct offcpu *o)
{
	int err;

	o->bss->until = now_monotonic();
	o->bss->seeding = true;
	err = run_iterator(o, take_nothing);
	o->bss->seeding = false;
	return err;
}

int offcpu_start(struct offcpu *o)
{
	int err = 0;

	/* What was open when we looked last has ended unseen, and so have threads. */
	if (!o->switches)
		memset(o->slots, 0, o->nslots * sizeof(*o->slots));
	if (o->mode == OFFCPU_INTERRUPT && !o->after)
		err = attach(o, "after_switch", &o->after);
	if (!err && !o->switches)
		err = attach(o, "switch_threads", &o->switches);
	/* Threads that wait already; first of all, so that nothing falls in between. */
	if (!err && seed(o))
		log_debug("threads that wait since before the start are not seen");
	return err;
}

void offcpu_stop(struct offcpu *o)
{
	struct timespec t = { .tv_nsec = LINGER_NS };

	bpf_link__destroy(o->switches);
	o->switches = NULL;
	/* Those that came back last are on their way to user space. */
	if (o->mode != OFFCPU_SWITCH_OUT)
		nanosleep(&t, NULL);
	bpf_link__destroy(o->after);
	o->after = NULL;
}

enum offcpu_mode offcpu_mode(const struct offcpu *o)
{
	return o->mode;
}

const char *offcpu_mode_text(enum offcpu_mode mode)
{
	static const char *const texts[] = {
		[OFFCPU_TASK_WORK] =
			"stacks taken by the threads themselves when their wait is over",
		[OFFCPU_INTERRUPT] = "stacks taken in an interrupt when the wait is over",
		[OFFCPU_SWITCH_OUT] = "stacks taken when the wait begins",
	};

	return mode < OFFCPU_MODES ? texts[mode] : "unknown";
}

void offcpu_set_sampling(struct offcpu *o, u64 threshold_ns)
{
	u64 t = MIN(threshold_ns, OFFCPU_SAMPLING_MAX_NS), least = MAX(o->o.min_ns, 1000u);

	o->sampling_ns = t > o->o.min_ns ? t : 0;
	if (o->mode != OFFCPU_SWITCH_OUT)
		o->bss->threshold = o->sampling_ns;
	else
		o->bss->early_weight = o->sampling_ns ? (t + least - 1) / least : 1;
}

u64 offcpu_sampling(const struct offcpu *o)
{
	return o->sampling_ns;
}

double offcpu_probability(const struct offcpu *o)
{
	return o->mode == OFFCPU_SWITCH_OUT ? 1.0 / (double)MAX(o->bss->early_weight, 1ull) : 1;
}

void offcpu_round(struct offcpu *o)
{
	u32 i;

	for (i = 0; i < o->nkicks; i++)
		__atomic_store_n(o->kicks[i].consumer,
				 __atomic_load_n(o->kicks[i].producer, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}

/* --- what was recorded ------------------------------------------------------------------------ */

int offcpu_read_counts(struct offcpu *o, counts_fn *fn, void *arg)
{
	return counts_take(&o->counts, sampler_epoch(o->sampler) + 1, fn, arg);
}

u32 offcpu_capacity(const struct offcpu *o)
{
	return o->counts.capacity;
}

static u64 thread_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.tv_sec * NSEC_PER_SEC + (u64)t.tv_nsec;
}

int offcpu_open_waits(struct offcpu *o, u32 tgid, u64 until_ns, u64 epoch, openwaits_fn *fn,
		      void *arg)
{
	u64 start = thread_time();
	int err;

	o->bss->until = until_ns;
	o->bss->longest = MAX(MAX(o->o.min_ns, o->sampling_ns), 1ull);
	o->only = tgid;
	err = run_iterator(o, take_records);
	/* Even if it failed: those that are known go on. */
	openwaits_charge(o->open, tgid, until_ns, epoch, fn, arg);
	o->own_ns += thread_time() - start;
	return err;
}

u64 offcpu_pending(const struct offcpu *o)
{
	return o->mode == OFFCPU_TASK_WORK ? pending_left(&o->pool, map_fd(o, "pending")) : 0;
}

/* --- what it costs ---------------------------------------------------------------------------- */

void offcpu_cost(const struct offcpu *o, struct offcpu_cost *ret)
{
	struct sampler *s = o->sampler;

	*ret = (struct offcpu_cost){
		.switch_ns = sampler_stat(s, BPF_STAT_SWITCH_NS),
		.kept_ns = sampler_stat(s, BPF_STAT_WAIT_KEPT_NS),
		.stack_ns = sampler_stat(s, BPF_STAT_WAIT_NS),
		.work_ns = pending_work_ns(sampler_stat(s, BPF_STAT_WAIT_WORK_NS),
					   sampler_stat(s, BPF_STAT_WAIT_WORK_TIMED),
					   sampler_stat(s, BPF_STAT_WAIT_WORK_RUNS)),
		.own_ns = o->own_ns + openwaits_cpu_ns(o->open),
		.work_runs = sampler_stat(s, BPF_STAT_WAIT_WORK_RUNS),
		.switches = sampler_stat(s, BPF_STAT_SWITCHES),
	};
}

u32 offcpu_programs(const struct offcpu *o, struct program_time *ret, u32 max)
{
	struct bpf_program *p;
	u32 n = 0;

	bpf_object__for_each_program(p, o->obj) if (n < max && bpf_program__fd(p) >= 0 &&
						    program_time(bpf_program__fd(p), &ret[n])) n++;
	return n;
}

/* A shared map is the sampler's. */
static bool is_shared(const struct bpf_map *map)
{
	const char *name = bpf_map__name(map);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(shared_maps); i++)
		if (!strcmp(name, shared_maps[i]) ||
		    (*shared_maps[i] == '.' && strstr(name, shared_maps[i])))
			return true;
	return false;
}

u64 offcpu_map_bytes(const struct offcpu *o)
{
	u64 sum = counts_bytes(&o->counts) + (u64)o->nkicks * KICK_BYTES;
	struct bpf_map *map;

	bpf_object__for_each_map(map, o->obj) if (!is_shared(map))
		sum += fd_memlock(bpf_map__fd(map));
	return sum;
}
