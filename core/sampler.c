// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See sampler.h. Two hash maps take turns (epochs): the program picks one by a
 * global, user space moves the global on and then writes a map-in-map slot, which the kernel
 * answers only after every running program has ended (kernel/bpf/syscall.c,
 * maybe_wait_bpf_programs): so no increment can hit an entry that is being removed.
 */
#include "sampler.h"

#include "counts.h"
#include "cpus.h"
#include "features.h"
#include "log.h"
#include "pending.h"
#include "pidns.h"
#include "sample.skel.h"
#include "sample_tw4.skel.h"
#include "sample_tw5.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

struct sampler {
	struct sample_bpf *skel;
	struct ring_buffer *ring;
	struct bpf_link **links; /* per CPU; NULL while offline */
	u32 nlinks;
	struct counts counts;
	struct pending_pool pool;
	u32 hz;
	bool hardware, running;
	bool follows; /* forks and deaths are */
	u8 **slabs;
	u32 nslabs, slabs_cap;
	sampler_mark_fn *mark_fn;
	sampler_stack_fn *fn; /* of the read under way */
	void *arg;
};

static int libbpf_log(enum libbpf_print_level level __unused, const char *fmt, va_list args)
{
	_cleanup_free_ char *text = NULL;
	char *line, *rest;

	/* The verifier's words come as one message of many lines. */
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return 0;
	if (vasprintf(&text, fmt, args) < 0) {
		text = NULL;
		return 0;
	}
	for (rest = text; (line = strsep(&rest, "\n"));)
		if (*line)
			log_debug("libbpf: %s", line);
	return 0;
}

static int on_ring(void *ctx, void *data, size_t len)
{
	struct sampler *s = ctx;

	if (len >= sizeof(struct stack_event))
		s->fn(s->arg, data, len);
	else if (len == sizeof(struct sample_mark) && s->mark_fn)
		s->mark_fn(s->arg, data);
	return 0;
}

void sampler_take_marks(struct sampler *s, sampler_mark_fn *fn)
{
	s->mark_fn = fn;
}

void sampler_mark_process(struct sampler *s, u32 tgid)
{
	__atomic_store_n(&s->skel->data_shared->marks_of, tgid, __ATOMIC_RELAXED);
}

u64 sampler_thread_size(void)
{
	return MAX(16384u, (u32)sysconf(_SC_PAGESIZE));
}

/* arm64 signs the bits above the user address size. */
u64 sampler_address_mask(void)
{
#ifdef __aarch64__
	return (1ull << 48) - 1;
#else
	return ~0ull;
#endif
}

u64 sampler_ring_wake(const struct sampler *s)
{
	return bpf_map__max_entries(s->skel->maps.stacks) / 2;
}

static int load(struct sampler *s, const struct sampler_options *o)
{
	struct sample_bpf *skel = s->skel;
	struct pidns ns;
	u64 seed;
	int err = pidns_own(&ns);

	if (err)
		return log_err(err, "cannot tell our pid namespace: %s", strerror(-err));

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = now_monotonic();
	skel->rodata->kernel_frames = o->kernel_frames;
	skel->rodata->marks = o->marks;
	skel->rodata->thread_context = o->thread_context;
	skel->rodata->filter_on = o->only_pids;
	skel->rodata->min_age_ns = o->min_age_ns;
	skel->rodata->max_frames = MIN(o->max_frames, (u32)MAX_USER_FRAMES);
	skel->rodata->hash_seed = seed;
	skel->rodata->addr_mask = sampler_address_mask();
	skel->rodata->thread_size = sampler_thread_size();
	skel->rodata->news_pause = o->news_pause_ns;
	skel->rodata->ring_wake = sampler_ring_wake(s);
	skel->rodata->ns_level = ns.level;
	skel->rodata->ns_at = ns.at;
	if (!o->thread_context)
		err = bpf_map__set_max_entries(skel->maps.contexts, 1);
	/* Whose entries have to go with them, and where that cannot be seen, age. */
	if (!err && ns.level)
		err = bpf_map__set_type(skel->maps.filter, BPF_MAP_TYPE_LRU_HASH);
	if (!err)
		err = bpf_program__set_autoload(
			ns.level ? skel->progs.forget_process : skel->progs.bind_process, false);
	return err ? err : sample_bpf__load(skel);
}

/* The object as it was built for this kernel; all builds have the same maps first. */
static int open_build(struct sampler *s, enum features_task_work how)
{
	struct sample_bpf *skel = calloc(1, sizeof(*skel));
	int err = skel ? sample_bpf__create_skeleton(skel) : -ENOMEM;

	if (!err && how == TASK_WORK_IMPL)
		skel->skeleton->data = (void *)sample_tw5_bpf__elf_bytes(&skel->skeleton->data_sz);
	else if (!err && how == TASK_WORK_PLAIN)
		skel->skeleton->data = (void *)sample_tw4_bpf__elf_bytes(&skel->skeleton->data_sz);
	if (!err)
		err = bpf_object__open_skeleton(skel->skeleton, NULL);
	if (err) {
		sample_bpf__destroy(skel);
		return err;
	}
	s->skel = skel;
	return 0;
}

_Static_assert(sizeof(struct sample_bpf__rodata) == sizeof(struct sample_tw5_bpf__rodata) &&
		       sizeof(struct sample_bpf__rodata) == sizeof(struct sample_tw4_bpf__rodata),
	       "builds of one object differ");

static int load_build(struct sampler *s, const struct sampler_options *o,
		      enum features_task_work how)
{
	int err = open_build(s, how);

	if (!err && how != TASK_WORK_NONE) {
		err = pending_size(&s->pool, s->skel->obj);
		s->skel->rodata->pending_mask = s->pool.entries - PENDING_WAYS;
		s->skel->rodata->scratch_cpus = s->pool.cpus;
		s->skel->rodata->scratch_pool = s->pool.scratches;
	}
	if (!err)
		err = load(s, o);
	if (err) {
		sample_bpf__destroy(s->skel);
		s->skel = NULL;
	}
	return err;
}

/* With task work where the kernel has it; what goes wrong with that must not cost the samples. */
static int load_best(struct sampler *s, const struct sampler_options *o)
{
	enum features_task_work how = features_host()->task_work;
	int err = load_build(s, o, how);

	if (!err || how == TASK_WORK_NONE)
		return err;
	log_debug("sampling without task work: %s", strerror(-err));
	return load_build(s, o, TASK_WORK_NONE);
}

static u32 default_capacity(u32 hz)
{
	/* Room for 10 s in which every sample is another stack; the line drains at half of it. */
	u64 n = (u64)libbpf_num_possible_cpus() * hz * 10, cap = COUNTS_DECLARED;

	while (cap < n && cap < 262144)
		cap *= 2;
	return (u32)cap;
}

void sampler_take_log(void)
{
	libbpf_set_print(libbpf_log);
}

/* From now on the filter follows forks and deaths; before anybody is in it nothing need to. */
static int follow(struct sampler *s)
{
	int err = s->follows ? 0 : sample_bpf__attach(s->skel);

	s->follows |= !err;
	return err ? log_err(err, "cannot attach the fork and exit programs: %s", strerror(-err))
		   : 0;
}

int sampler_new(const struct sampler_options *o, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));
	int err = -ENOMEM, ncpus;
	u32 capacity;

	if (!s)
		return log_err(-ENOMEM, "cannot load the BPF programs: out of memory");
	s->hz = o->hz;
	capacity = o->counts ? o->counts : default_capacity(o->hz);
	sampler_take_log();
	ncpus = libbpf_num_possible_cpus();
	if (ncpus <= 0 || ncpus > CPUS_MAX) {
		err = log_err(
			-ERANGE,
			"cannot tell the number of CPUs from /sys/devices/system/cpu/possible");
		goto fail;
	}
	s->nlinks = (u32)ncpus;
	s->links = calloc(s->nlinks, sizeof(*s->links));
	if (!s->links) {
		log_err(err, "cannot load the BPF programs: out of memory");
		goto fail;
	}
	err = load_best(s, o);
	if (err) {
		log_err(err,
			"cannot load the BPF programs: %s; `ebpfprofiler doctor` names what is missing, "
			"--verbose shows the kernel's own words",
			strerror(-err));
		goto fail;
	}
	err = counts_init(&s->counts, bpf_map__fd(s->skel->maps.counts), capacity);
	if (err) {
		log_err(err, "cannot make the map of counts (%u entries): %s", capacity,
			strerror(-err));
		goto fail;
	}
	s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.stacks), on_ring, s, NULL);
	if (!s->ring) {
		err = log_err(-errno, "cannot map the ring buffer: %s", strerror(errno));
		goto fail;
	}
	err = o->only_pids ? follow(s) : 0;
	if (err)
		goto fail;
	*ret = s;
	return 0;
fail:
	sampler_free(s);
	return err;
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	sampler_stop(s);
	ring_buffer__free(s->ring);
	counts_fini(&s->counts);
	sample_bpf__destroy(s->skel);
	while (s->nslabs)
		munmap(s->slabs[--s->nslabs], SLAB_BYTES);
	free(s->slabs);
	free(s->links);
	free(s);
}

int sampler_add_pid(struct sampler *s, u32 pid)
{
	const struct filter_entry any = { 0 };

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.filter), &pid, &any, 0) ? -errno : 0;
}

int sampler_leave_out(struct sampler *s, u32 tgid, u64 start_ns, u32 exec_id, bool out)
{
	const struct filter_entry entry = { .start_ns = start_ns, .exec_id = exec_id };
	int fd = bpf_map__fd(s->skel->maps.filter), err;

	if (!out)
		return bpf_map_delete_elem(fd, &tgid) && errno != ENOENT ? -errno : 0;
	err = follow(s);
	if (!err && bpf_map_update_elem(fd, &tgid, &entry, 0))
		err = -errno;
	if (!err)
		__atomic_store_n(&s->skel->data_shared->leaves_out, 1, __ATOMIC_RELAXED);
	return err;
}

static int open_event(u32 cpu, bool hardware, u32 hz)
{
	struct perf_event_attr attr = { .size = sizeof(attr) };

	/*
	 * Counters do not know what is idle, and arm64's driver says so: it refuses exclude_idle
	 * (drivers/perf/arm_pmuv3.c). The program drops what they catch there.
	 */
	if (hardware) {
		attr.type = PERF_TYPE_HARDWARE;
		attr.config = PERF_COUNT_HW_CPU_CYCLES;
		attr.freq = 1;
		attr.sample_freq = hz;
	} else {
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.exclude_idle = 1;
		attr.sample_period = NSEC_PER_SEC / hz;
	}
	return (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int attach_cpu(struct sampler *s, u32 cpu)
{
	_cleanup_close_ int fd = open_event(cpu, s->hardware, s->hz);

	if (fd < 0)
		return -errno;
	s->links[cpu] = bpf_program__attach_perf_event(s->skel->progs.sample_cpu, fd);
	if (!s->links[cpu])
		return -errno;
	take_fd(&fd); /* the link closes it */
	return 0;
}

int sampler_start(struct sampler *s)
{
	struct cpu_set_bits set;
	u32 cpu, opened = 0;
	int err = cpus_online(&set);

	if (err)
		return log_err(err, "cannot read which CPUs are online: %s", strerror(-err));
	s->hardware = !features_host()->cycles_error;
	for (cpu = 0; cpu < s->nlinks; cpu++) {
		if (!set.online[cpu])
			continue;
		err = attach_cpu(s, cpu);
		if (err == -ENODEV || err == -ENXIO)
			continue; /* went offline meanwhile; sampler_follow_cpus() looks again */
		if (err) {
			sampler_stop(s);
			return log_err(
				err,
				"cannot open a perf event on CPU %u: %s; needs CAP_PERFMON and CAP_BPF, "
				"see `ebpfprofiler doctor`",
				cpu, strerror(-err));
		}
		opened++;
	}
	if (!opened)
		return log_err(-ENODEV, "cannot open a perf event on any CPU");
	s->running = true;
	return 0;
}

void sampler_stop(struct sampler *s)
{
	u32 cpu;

	s->running = false;
	for (cpu = 0; cpu < s->nlinks; cpu++) {
		if (s->links[cpu])
			bpf_link__destroy(s->links[cpu]);
		s->links[cpu] = NULL;
	}
}

void sampler_set_hz(struct sampler *s, u32 hz)
{
	s->hz = hz;
}

bool sampler_follow_cpus(struct sampler *s)
{
	struct cpu_set_bits set;
	bool changed = false;
	u32 cpu;

	if (!s->running || cpus_online(&set))
		return false;
	for (cpu = 0; cpu < s->nlinks; cpu++) {
		if (!set.online[cpu] && s->links[cpu]) {
			/* The kernel never wakes an event up whose CPU went and came back. */
			bpf_link__destroy(s->links[cpu]);
			s->links[cpu] = NULL;
			changed = true;
		} else if (set.online[cpu] && !s->links[cpu]) {
			changed |= !attach_cpu(s, cpu);
		}
	}
	return changed;
}

const char *sampler_clock(const struct sampler *s)
{
	return s->hardware ? "hardware cycles" : "software cpu-clock";
}

u32 sampler_ncpus(const struct sampler *s)
{
	u32 cpu, n = 0;

	for (cpu = 0; cpu < s->nlinks; cpu++)
		n += s->links[cpu] != NULL;
	return n;
}

int sampler_fd(const struct sampler *s)
{
	return ring_buffer__epoll_fd(s->ring);
}

int sampler_read_stacks(struct sampler *s, sampler_stack_fn *fn, void *arg)
{
	int n;

	s->fn = fn;
	s->arg = arg;
	n = ring_buffer__consume(s->ring);
	return n < 0 ? n : 0;
}

u64 sampler_epoch(const struct sampler *s)
{
	return s->skel->data_shared->epoch;
}

int sampler_flip(struct sampler *s)
{
	u64 next = s->skel->data_shared->epoch + 1;

	__atomic_store_n(&s->skel->data_shared->epoch, next, __ATOMIC_SEQ_CST);
	/* Returns only after all programs that may have read the old epoch. */
	return counts_wait(&s->counts, next);
}

int sampler_read_counts(struct sampler *s, counts_fn *fn, void *arg)
{
	return counts_take(&s->counts, sampler_epoch(s) + 1, fn, arg);
}

void *sampler_grow(void *sampler, u32 slab)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	struct sampler *s = sampler;
	_cleanup_close_ int fd = -1;
	void *mem;

	if (slab != s->nslabs || VEC_RESERVE(s->slabs, s->slabs_cap, s->nslabs + 1, SLABS_MAX))
		return NULL;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "slab", sizeof(u32), SLAB_BYTES, 1, &opts);
	if (fd < 0)
		return NULL;
	mem = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		return NULL;
	/* The outer map and the mapping keep it alive. */
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.slabs), &slab, &fd, 0)) {
		munmap(mem, SLAB_BYTES);
		return NULL;
	}
	s->slabs[s->nslabs++] = mem;
	return mem;
}

int sampler_publish(void *sampler, u32 tgid, const struct proc_entry *entry)
{
	struct sampler *s = sampler;

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.procs), &tgid, entry, 0) ? -errno : 0;
}

void sampler_unpublish(void *sampler, u32 tgid)
{
	struct sampler *s = sampler;

	bpf_map_delete_elem(bpf_map__fd(s->skel->maps.procs), &tgid);
}

void sampler_sync(void *sampler)
{
	struct sampler *s = sampler;

	counts_wait(&s->counts, sampler_epoch(s));
}

u32 sampler_capacity(const struct sampler *s)
{
	return s->counts.capacity;
}

int sampler_arm(void *sampler, u32 tgid, const struct recipe_entry *entry)
{
	struct sampler *s = sampler;

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.recipes), &tgid, entry, 0) ? -errno
											: 0;
}

void sampler_disarm(void *sampler, u32 tgid)
{
	struct sampler *s = sampler;

	bpf_map_delete_elem(bpf_map__fd(s->skel->maps.recipes), &tgid);
}

int sampler_context_arm(void *sampler, u32 tgid, const struct context_entry *entry)
{
	struct sampler *s = sampler;

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.contexts), &tgid, entry, 0) ? -errno
											 : 0;
}

void sampler_context_disarm(void *sampler, u32 tgid)
{
	struct sampler *s = sampler;

	bpf_map_delete_elem(bpf_map__fd(s->skel->maps.contexts), &tgid);
}

int sampler_heads_fd(const struct sampler *s)
{
	return bpf_map__fd(s->skel->maps.heads);
}

int sampler_head(void *sampler, u32 tid, u64 head)
{
	int fd = sampler_heads_fd(sampler);

	if (!head)
		return bpf_map_delete_elem(fd, &tid) && errno != ENOENT ? -errno : 0;
	return bpf_map_update_elem(fd, &tid, &head, 0) ? -errno : 0;
}

u64 sampler_stat(const struct sampler *s, enum bpf_stat stat)
{
	u64 values[CPUS_MAX], sum = 0;
	u32 key = stat, cpu;

	if (bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.stats), &key, values))
		return 0;
	for (cpu = 0; cpu < s->nlinks; cpu++)
		sum += values[cpu];
	return sum;
}

static int prog_info(const struct sampler *s, struct bpf_prog_info *info)
{
	u32 len = sizeof(*info);

	memset(info, 0, sizeof(*info));
	return bpf_obj_get_info_by_fd(bpf_program__fd(s->skel->progs.sample_cpu), info, &len)
		       ? -errno
		       : 0;
}

int sampler_run_time(const struct sampler *s, u64 *ret_ns, u64 *ret_count)
{
	struct bpf_prog_info info;
	int err = prog_info(s, &info);

	if (err)
		return err;
	*ret_ns = info.run_time_ns;
	*ret_count = info.run_cnt;
	return 0;
}

bool program_time(int fd, struct program_time *ret)
{
	struct bpf_prog_info info;
	u32 len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (bpf_obj_get_info_by_fd(fd, &info, &len))
		return false;
	memcpy(ret->name, info.name, sizeof(ret->name));
	ret->name[sizeof(ret->name) - 1] = '\0';
	ret->ns = info.run_time_ns;
	ret->runs = info.run_cnt;
	return true;
}

u32 sampler_programs(const struct sampler *s, struct program_time *ret, u32 max)
{
	struct bpf_program *p;
	u32 n = 0;

	bpf_object__for_each_program(p, s->skel->obj) if (n < max && bpf_program__fd(p) >= 0 &&
							  program_time(bpf_program__fd(p), &ret[n]))
		n++;
	return n;
}

int sampler_enable_run_time(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}

u32 sampler_verified(const struct sampler *s)
{
	struct bpf_prog_info info;

	return prog_info(s, &info) ? 0 : info.verified_insns;
}

u64 sampler_map_bytes(const struct sampler *s)
{
	u64 sum = counts_bytes(&s->counts) + (u64)s->nslabs * SLAB_BYTES;
	struct bpf_map *map;

	bpf_object__for_each_map(map, s->skel->obj) sum += fd_memlock(bpf_map__fd(map));
	return sum;
}

int sampler_map(const struct sampler *s, const char *name)
{
	struct bpf_map *map = bpf_object__find_map_by_name(s->skel->obj, name);

	return map ? bpf_map__fd(map) : -ENOENT;
}

const u8 *sampler_slab(const void *sampler, u32 slab)
{
	const struct sampler *s = sampler;

	return slab < s->nslabs ? s->slabs[slab] : NULL;
}

u64 sampler_work_ns(const struct sampler *s)
{
	return pending_work_ns(sampler_stat(s, BPF_STAT_WORK_NS),
			       sampler_stat(s, BPF_STAT_WORK_TIMED),
			       sampler_stat(s, BPF_STAT_WORK_RUNS));
}

u64 sampler_pending(const struct sampler *s)
{
	return pending_left(&s->pool, sampler_map(s, "pending"));
}
