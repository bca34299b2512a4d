// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that wait in known functions and measure themselves for how long: wall time less CPU time
 * around each call. usage: waits WHAT SECONDS [FILE]. Prints one line of JSON: nanoseconds waited,
 * by function. System calls are made right in the function, so that it is the innermost user frame
 * whichever way the stack is walked.
 *
 * all: sleep, futex, pipe, socket, disk (reads of FILE around the page cache), each in a thread of
 *	its own that another one keeps moving between CPUs, and threads that live for one wait, with
 *	the tid of the one before.
 * short: eight threads that sleep for 2 ms again and again, one that sleeps for 50 ms.
 * brief: sleeps of 0.3 ms only.
 * spin: computes on CPU 0 together with another such thread.
 * long: one wait of 2.5 s, one that lasts to the end.
 * forever: as long as it is let, after saying so.
 * lock: two threads, one mutex, held for 10 ms by either.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define SEC      1000000000ll
#define MS       1000000ll

static long long end_ns;
static atomic_int moves, reused, running;

static inline long call4(long n, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
#else
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
#endif
}

static long long clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * SEC + t.tv_nsec;
}

struct span {
	long long wall, cpu;
};

static struct span begin(void)
{
	return (struct span){ clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID) };
}

static long long waited(struct span s)
{
	long long cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	return clock_ns(CLOCK_MONOTONIC) - s.wall - (cpu - s.cpu);
}

/* --- the functions that wait ------------------------------------------------------------------ */

static volatile long sink;

/* With it a function that calls none has a frame pointer, too, built with frame pointers or not. */
#ifdef FRAMES
#define FRAME() __asm__ volatile("" ::"r"(__builtin_frame_address(0)))
#else
#define FRAME() (void)0
#endif

/* Each leaves something of its own behind, so that no two are the same code and made one. */
#define WAIT_FUNCTION(name, n, a, b, c, d)                                \
	static volatile long sink_##name;                                 \
	NOINLINE static long wait_##name(long w, long x, long y, long z)  \
	{                                                                 \
		long r;                                                   \
                                                                          \
		FRAME();                                                  \
		r = call4(n, a, b, c, d);                                 \
                                                                          \
		sink_##name += r;                                         \
		return r;                                                 \
	}                                                                 \
	NOINLINE static long outer_##name(long w, long x, long y, long z) \
	{                                                                 \
		long r = wait_##name(w, x, y, z);                         \
                                                                          \
		sink_##name += r; /* it stays on the stack meanwhile */   \
		return r;                                                 \
	}

WAIT_FUNCTION(sleep, SYS_nanosleep, w, 0 * x, 0 * y, 0 * z)
WAIT_FUNCTION(futex, SYS_futex, w, FUTEX_WAIT_PRIVATE, x, 0 * y + 0 * z)
WAIT_FUNCTION(pipe, SYS_read, w, x, y, 0 * z)
WAIT_FUNCTION(socket, SYS_recvfrom, w, x, y, z)
WAIT_FUNCTION(disk, SYS_pread64, w, x, y, z)
WAIT_FUNCTION(churn, SYS_nanosleep, w, 0 * x, 0 * y, 0 * z)
WAIT_FUNCTION(short, SYS_nanosleep, w, 0 * x, 0 * y, 0 * z)
WAIT_FUNCTION(long, SYS_nanosleep, w, 0 * x, 0 * y, 0 * z)
WAIT_FUNCTION(open, SYS_read, w, x, y, 0 * z)
WAIT_FUNCTION(brief, SYS_nanosleep, w, 0 * x, 0 * y, 0 * z)

static void rest(long long ns)
{
	struct timespec t = { ns / SEC, ns % SEC };

	nanosleep(&t, NULL);
}

/* Comes back at once when it is due: what it waits for is then its call, not a CPU. */
static void be_urgent(void)
{
	struct sched_param p = { .sched_priority = 10 };

	prctl(PR_SET_TIMERSLACK, 1);
	sched_setscheduler(0, SCHED_FIFO, &p);
}

struct job {
	const char *name;
	void (*run)(struct job *j);
	pthread_t thread;
	_Atomic pid_t tid;
	long long sum;
	long long asked; /* of sleeps: at least this long */
	int fd[2];       /* pipe or socket pair: read from the first */
	atomic_int word;
	int cpu;
	const char *file;
};

static void count_move(struct job *j)
{
	int cpu = sched_getcpu();

	if (cpu != j->cpu)
		moves++;
	j->cpu = cpu;
}

static int more(void)
{
	return clock_ns(CLOCK_MONOTONIC) < end_ns;
}

static void run_sleep(struct job *j)
{
	struct timespec t = { 0, 17 * MS };
	struct span s;

	while (more()) {
		s = begin();
		outer_sleep((long)&t, 0, 0, 0);
		j->sum += waited(s);
		j->asked += t.tv_nsec;
		count_move(j);
	}
}

static void run_futex(struct job *j)
{
	struct span s;

	while (more()) {
		s = begin();
		outer_futex((long)&j->word, atomic_load(&j->word), 0, 0);
		j->sum += waited(s);
		count_move(j);
	}
}

static void run_pipe(struct job *j)
{
	struct span s;
	char c;

	while (more()) {
		s = begin();
		outer_pipe(j->fd[0], (long)&c, 1, 0);
		j->sum += waited(s);
		count_move(j);
	}
}

static void run_socket(struct job *j)
{
	struct span s;
	char c;

	while (more()) {
		s = begin();
		outer_socket(j->fd[0], (long)&c, 1, 0);
		j->sum += waited(s);
		count_move(j);
	}
}

static void run_disk(struct job *j)
{
	enum { PIECE = 8 << 20 }; /* long enough that waking up does not count */
	int fd = open(j->file, O_RDONLY | O_DIRECT);
	long long size, at = 0;
	struct span s;
	void *buf;

	if (fd < 0 || posix_memalign(&buf, 4096, PIECE)) {
		perror(j->file);
		exit(1);
	}
	size = lseek(fd, 0, SEEK_END) & ~(long long)(PIECE - 1);
	while (more()) {
		s = begin();
		outer_disk(fd, (long)buf, PIECE, at);
		j->sum += waited(s);
		count_move(j);
		at = (at + PIECE) % size;
		rest(30 * MS);
	}
	free(buf);
	close(fd);
}

static void *wait_once(void *arg)
{
	struct timespec t = { 0, 3 * MS };
	struct job *j = arg;
	struct span s;

	be_urgent();
	if (j->tid == syscall(SYS_gettid))
		reused++;
	j->tid = (pid_t)syscall(SYS_gettid);
	s = begin();
	outer_churn((long)&t, 0, 0, 0);
	j->sum += waited(s);
	j->asked += t.tv_nsec;
	return NULL;
}

/* The next thread gets this number, if nobody else is faster. */
static void want_tid(pid_t tid)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", tid - 1);

	if (fd < 0 || write(fd, text, n) != n)
		sink++;
	if (fd >= 0)
		close(fd);
}

static void run_churn(struct job *j)
{
	struct job one = { 0 };
	pthread_t t;

	while (more()) {
		if (one.tid)
			want_tid(one.tid);
		if (pthread_create(&t, NULL, wait_once, &one))
			continue;
		pthread_join(t, NULL);
	}
	j->sum = one.sum;
	j->asked = one.asked;
}

/* Wakes the others up, and moves them from CPU to CPU while they wait. */
static struct job *helped[5];

static void help(int n)
{
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), turn, i, k;
	char c = 0;

	/* On past the end: each has to be woken up once more to see it. */
	for (turn = 0; running; turn++) {
		rest(13 * MS);
		for (i = 0; i < n; i++) {
			struct job *j = helped[i];
			cpu_set_t set;

			CPU_ZERO(&set);
			CPU_SET((turn + i) % cpus, &set);
			sched_setaffinity(j->tid, sizeof(set), &set);
			j->word++;
			syscall(SYS_futex, &j->word, FUTEX_WAKE_PRIVATE, 1, NULL);
			for (k = 0; k < 2; k++)
				if (j->fd[k] && k == 1 && write(j->fd[1], &c, 1) < 0)
					sink++;
		}
	}
}

static void *thread_main(void *arg)
{
	struct job *j = arg;

	j->tid = (pid_t)syscall(SYS_gettid);
	prctl(PR_SET_NAME, j->name);
	be_urgent();
	j->cpu = sched_getcpu();
	j->run(j);
	running--;
	return NULL;
}

static void start(struct job *j, const char *name, void (*run)(struct job *j))
{
	j->name = name;
	j->run = run;
	running++;
	if (pthread_create(&j->thread, NULL, thread_main, j))
		exit(1);
	while (!j->tid)
		rest(MS);
}

static void all(const char *file)
{
	static struct job sleeper, futex, pipes, sockets, disk, churn;

	if (pipe(pipes.fd) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.fd))
		exit(1);
	disk.file = file;
	start(&sleeper, "sleep", run_sleep);
	start(&futex, "futex", run_futex);
	start(&pipes, "pipe", run_pipe);
	start(&sockets, "socket", run_socket);
	start(&churn, "churn", run_churn);
	if (file)
		start(&disk, "disk", run_disk);
	helped[0] = &sleeper;
	helped[1] = &futex;
	helped[2] = &pipes;
	helped[3] = &sockets;
	helped[4] = &disk;
	help(file ? 5 : 4);
	pthread_join(sleeper.thread, NULL);
	pthread_join(futex.thread, NULL);
	pthread_join(pipes.thread, NULL);
	pthread_join(sockets.thread, NULL);
	pthread_join(churn.thread, NULL);
	if (file)
		pthread_join(disk.thread, NULL);
	printf("{\"sleep\": %lld, \"futex\": %lld, \"pipe\": %lld, \"socket\": %lld, "
	       "\"churn\": %lld, \"disk\": %lld, \"sleep asked\": %lld, \"churn asked\": %lld, "
	       "\"moves\": %d, \"reused\": %d}\n",
	       sleeper.sum, futex.sum, pipes.sum, sockets.sum, churn.sum, disk.sum, sleeper.asked,
	       churn.asked, moves, reused);
}

/* --- other programs --------------------------------------------------------------------------- */

static void run_short(struct job *j)
{
	struct timespec t = { 0, 2 * MS };
	struct span s;

	while (more()) {
		s = begin();
		outer_short((long)&t, 0, 0, 0);
		j->sum += waited(s);
	}
}

static void run_long(struct job *j)
{
	struct timespec t = { 0, 50 * MS };
	struct span s;

	while (more()) {
		s = begin();
		outer_long((long)&t, 0, 0, 0);
		j->sum += waited(s);
	}
}

static void shorts(void)
{
	static struct job v[8], longs;
	long long sum = 0;
	int i;

	for (i = 0; i < 8; i++)
		start(&v[i], "short", run_short);
	start(&longs, "long", run_long);
	for (i = 0; i < 8; i++) {
		pthread_join(v[i].thread, NULL);
		sum += v[i].sum;
	}
	pthread_join(longs.thread, NULL);
	printf("{\"short\": %lld, \"long\": %lld}\n", sum, longs.sum);
}

static void briefs(void)
{
	struct timespec t = { 0, 300000 };
	long n = 0;

	be_urgent();
	while (more()) {
		outer_brief((long)&t, 0, 0, 0);
		n++;
	}
	printf("{\"brief\": %ld}\n", n);
}

NOINLINE static unsigned spin(void)
{
	unsigned x = 1;

	while (more())
		for (int i = 0; i < 20000; i++)
			x = x * 1664525 + 1013904223;
	return x;
}

static void *spin_thread(void *arg)
{
	cpu_set_t set;

	(void)arg;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	sink += spin();
	return NULL;
}

static long involuntary(void)
{
	FILE *f = fopen("/proc/thread-self/status", "r");
	char line[256];
	long n = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

static void spins(void)
{
	pthread_t other;

	pthread_create(&other, NULL, spin_thread, NULL);
	spin_thread(NULL);
	printf("{\"preempted\": %ld}\n", involuntary());
	pthread_join(other, NULL);
}

static void run_until_end(struct job *j)
{
	struct span s = begin();
	char c;

	outer_open(j->fd[0], (long)&c, 1, 0);
	j->sum = waited(s);
}

static void run_one_long(struct job *j)
{
	struct timespec t = { 2, 500 * MS };
	struct span s = begin();

	outer_long((long)&t, 0, 0, 0);
	j->sum = waited(s);
}

static void longs(int forever)
{
	static struct job open_wait, one;
	char c = 0;

	if (pipe(open_wait.fd))
		exit(1);
	start(&open_wait, "open", run_until_end);
	if (forever) {
		printf("waiting\n");
		fflush(stdout);
		pthread_join(open_wait.thread, NULL);
	}
	rest(300 * MS);
	start(&one, "long", run_one_long);
	pthread_join(one.thread, NULL);
	while (more())
		rest(10 * MS);
	if (write(open_wait.fd[1], &c, 1) < 0)
		exit(1);
	pthread_join(open_wait.thread, NULL);
	printf("{\"open\": %lld, \"long\": %lld}\n", open_wait.sum, one.sum);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

NOINLINE static void hold(long long *sum)
{
	struct span s = begin();

	pthread_mutex_lock(&mutex);
	*sum += waited(s);
	rest(10 * MS);
	pthread_mutex_unlock(&mutex);
	sched_yield();
}

static void run_lock(struct job *j)
{
	while (more()) {
		hold(&j->sum);
		rest(MS);
	}
}

static void locks(void)
{
	static struct job a, b;

	start(&a, "lock-a", run_lock);
	start(&b, "lock-b", run_lock);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	printf("{\"lock\": %lld, \"address\": \"%#lx\"}\n", a.sum + b.sum, (long)&mutex);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (argc < 3)
		return 2;
	end_ns = clock_ns(CLOCK_MONOTONIC) + (long long)(atof(argv[2]) * SEC);
	if (!strcmp(what, "all"))
		all(argc > 3 ? argv[3] : NULL);
	else if (!strcmp(what, "short"))
		shorts();
	else if (!strcmp(what, "brief"))
		briefs();
	else if (!strcmp(what, "spin"))
		spins();
	else if (!strcmp(what, "long") || !strcmp(what, "forever"))
		longs(!strcmp(what, "forever"));
	else if (!strcmp(what, "lock"))
		locks();
	else
		return 2;
	return 0;
}
