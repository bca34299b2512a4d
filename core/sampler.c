// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See sampler.h. Two hash maps take turns (epochs): the program picks one by a
 * global, user space moves the global on and then writes a map-in-map slot, which the kernel
 * answers only after every running program has ended (kernel/bpf/syscall.c,
 * maybe_wait_bpf_programs): so no increment can hit an entry that is being removed.
 */
#include "sampler.h"

#include "cpus.h"
#include "log.h"
#include "sample.skel.h"

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
	int counts_fd[2];
	u32 capacity;
	u32 hz;
	bool hardware, running;
	u8 **slabs;
	u32 nslabs, slabs_cap;
	sampler_stack_fn *fn; /* of the read under way */
	void *arg;
};

static int libbpf_log(enum libbpf_print_level level __unused, const char *fmt, va_list args)
{
	char line[512];

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return 0;
	vsnprintf(line, sizeof(line), fmt, args);
	line[strcspn(line, "\n")] = '\0';
	log_debug("libbpf: %s", line);
	return 0;
}

static int on_ring(void *ctx, void *data, size_t len)
{
	struct sampler *s = ctx;

	if (len >= sizeof(struct stack_event))
		s->fn(s->arg, data, len);
	return 0;
}

static int make_count_map(struct sampler *s, u32 i)
{
	closep(&s->counts_fd[i]);
	s->counts_fd[i] = bpf_map_create(BPF_MAP_TYPE_HASH, i ? "counts_odd" : "counts_even",
					 sizeof(struct stack_key), sizeof(struct stack_count),
					 s->capacity, NULL);
	if (s->counts_fd[i] < 0)
		return -errno;
	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.counts), &i, &s->counts_fd[i], 0)
		       ? -errno
		       : 0;
}

static int make_counts(struct sampler *s)
{
	int err = make_count_map(s, 0);

	/* Kernels before 5.10 take inner maps of the declared size only. */
	if (err == -EINVAL && s->capacity != COUNTS_DECLARED) {
		s->capacity = COUNTS_DECLARED;
		err = make_count_map(s, 0);
	}
	return err ? err : make_count_map(s, 1);
}

/* Bits of a return address that count; arm64 signs the bits above the user address size. */
static u64 address_mask(void)
{
#ifdef __aarch64__
	return (1ull << 48) - 1;
#else
	return ~0ull;
#endif
}

static int load(struct sampler *s, const struct sampler_options *o)
{
	struct sample_bpf *skel = s->skel;
	u64 seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = now_monotonic();
	skel->rodata->kernel_frames = o->kernel_frames;
	skel->rodata->filter_on = o->only_pids;
	skel->rodata->max_frames = MIN(o->max_frames, (u32)MAX_USER_FRAMES);
	skel->rodata->hash_seed = seed;
	skel->rodata->addr_mask = address_mask();
	skel->rodata->thread_size = MAX(16384u, (u32)sysconf(_SC_PAGESIZE));
	skel->rodata->news_pause = o->news_pause_ns;
	skel->rodata->ring_wake = bpf_map__max_entries(skel->maps.stacks) / 2;
	bpf_program__set_autoload(skel->progs.follow_fork, o->only_pids);
	bpf_program__set_autoload(skel->progs.forget_process, o->only_pids);
	return sample_bpf__load(skel);
}

static u32 default_capacity(u32 hz)
{
	/* Room for 10 s in which every sample is another stack; the line drains at half of it. */
	u64 n = (u64)libbpf_num_possible_cpus() * hz * 10, cap = COUNTS_DECLARED;

	while (cap < n && cap < 262144)
		cap *= 2;
	return (u32)cap;
}

int sampler_new(const struct sampler_options *o, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));
	int err = -ENOMEM, ncpus;

	if (!s)
		return log_err(-ENOMEM, "cannot load the BPF programs: out of memory");
	s->counts_fd[0] = s->counts_fd[1] = -1;
	s->hz = o->hz;
	s->capacity = o->counts ? o->counts : default_capacity(o->hz);
	libbpf_set_print(libbpf_log);
	ncpus = libbpf_num_possible_cpus();
	if (ncpus <= 0 || ncpus > CPUS_MAX) {
		err = log_err(
			-ERANGE,
			"cannot tell the number of CPUs from /sys/devices/system/cpu/possible");
		goto fail;
	}
	s->nlinks = (u32)ncpus;
	s->links = calloc(s->nlinks, sizeof(*s->links));
	s->skel = sample_bpf__open();
	if (!s->links || !s->skel) {
		log_err(err, "cannot load the BPF programs: out of memory");
		goto fail;
	}
	err = load(s, o);
	if (err) {
		log_err(err,
			"cannot load the BPF programs: %s; `ebpfprofiler doctor` names what is missing, "
			"--verbose shows the kernel's own words",
			strerror(-err));
		goto fail;
	}
	err = make_counts(s);
	if (err) {
		log_err(err, "cannot make the map of counts (%u entries): %s", s->capacity,
			strerror(-err));
		goto fail;
	}
	s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.stacks), on_ring, s, NULL);
	if (!s->ring) {
		err = log_err(-errno, "cannot map the ring buffer: %s", strerror(errno));
		goto fail;
	}
	err = sample_bpf__attach(s->skel);
	if (err) {
		log_err(err, "cannot attach the fork and exit programs: %s", strerror(-err));
		goto fail;
	}
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
	closep(&s->counts_fd[0]);
	closep(&s->counts_fd[1]);
	sample_bpf__destroy(s->skel);
	while (s->nslabs)
		munmap(s->slabs[--s->nslabs], SLAB_BYTES);
	free(s->slabs);
	free(s->links);
	free(s);
}

int sampler_add_pid(struct sampler *s, u32 pid)
{
	u8 one = 1;

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.filter), &pid, &one, 0) ? -errno : 0;
}

static int open_event(u32 cpu, bool hardware, u32 hz)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.exclude_idle = 1,
		.disabled = 0,
	};

	if (hardware) {
		attr.type = PERF_TYPE_HARDWARE;
		attr.config = PERF_COUNT_HW_CPU_CYCLES;
		attr.freq = 1;
		attr.sample_freq = hz;
	} else {
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
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
	int err = cpus_online(&set), probe;

	if (err)
		return log_err(err, "cannot read which CPUs are online: %s", strerror(-err));
	for (cpu = 0; cpu < s->nlinks && !set.online[cpu]; cpu++)
		;
	probe = open_event(cpu, true, s->hz);
	s->hardware = probe >= 0;
	closep(&probe);
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
	return s->skel->bss->epoch;
}

int sampler_flip(struct sampler *s)
{
	u64 next = s->skel->bss->epoch + 1;
	u32 slot = next & 1;

	__atomic_store_n(&s->skel->bss->epoch, next, __ATOMIC_SEQ_CST);
	/* Changes nothing, but returns only after all programs that may have read the old epoch. */
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.counts), &slot, &s->counts_fd[slot], 0))
		return -errno;
	return 0;
}

int sampler_read_counts(struct sampler *s, sampler_count_fn *fn, void *arg)
{
	enum { BATCH = 1024 };
	_cleanup_free_ struct stack_key *keys = malloc(BATCH * sizeof(*keys));
	_cleanup_free_ struct stack_count *values = malloc(BATCH * sizeof(*values));
	int fd = s->counts_fd[(sampler_epoch(s) + 1) & 1], err;
	u32 out = 0, in, n, i, total = 0, want = BATCH;
	bool first = true;

	if (!keys || !values)
		return -ENOMEM;
	/* Ends: each round removes what it returns; never more rounds than entries. */
	while (total <= s->capacity) {
		n = want;
		in = out;
		err = bpf_map_lookup_and_delete_batch(fd, first ? NULL : &in, &out, keys, values,
						      &n, NULL)
			      ? -errno
			      : 0;
		if (err == -ENOSPC && want < (1u << 20)) {
			/* One bucket holds more than fits: a larger buffer. */
			struct stack_key *k = reallocarray(keys, want * 2, sizeof(*keys));
			struct stack_count *v;

			if (!k)
				return -ENOMEM;
			keys = k;
			v = reallocarray(values, want * 2, sizeof(*values));
			if (!v)
				return -ENOMEM;
			values = v;
			want *= 2;
			out = in;
			continue;
		}
		if (err && err != -ENOENT)
			return err;
		for (i = 0; i < n; i++)
			fn(arg, &keys[i], &values[i]);
		total += n;
		if (err == -ENOENT)
			return 0;
		first = false;
	}
	return 0;
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
	u32 slot = s->skel->bss->epoch & 1;

	/* As in sampler_flip(): writing a map-in-map slot waits for all running programs. */
	bpf_map_update_elem(bpf_map__fd(s->skel->maps.counts), &slot, &s->counts_fd[slot], 0);
}

u32 sampler_capacity(const struct sampler *s)
{
	return s->capacity;
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

/* "memlock:" of a map's fdinfo: what the kernel charges for it. */
static u64 map_bytes(int fd)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	const char *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (read_file(path, 4096, &text, NULL))
		return 0;
	line = strstr(text, "memlock:");
	return line ? strtoull(line + 8, NULL, 10) : 0;
}

u64 sampler_map_bytes(const struct sampler *s)
{
	u64 sum = map_bytes(s->counts_fd[0]) + map_bytes(s->counts_fd[1]) +
		  (u64)s->nslabs * SLAB_BYTES;
	struct bpf_map *map;

	bpf_object__for_each_map(map, s->skel->obj) sum += map_bytes(bpf_map__fd(map));
	return sum;
}
