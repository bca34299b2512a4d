// SPDX-License-Identifier: Apache-2.0
/*
 * Target of the unwinding oracle: target SCENARIO. Each scenario starts and ends with int3; the
 * tracer steps through what lies between and unwinds at every stop. Built without frame pointers,
 * at several levels, by several compilers, so nothing here may be inlined or folded away.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __clang__
#define FAR __attribute__((noinline, used))
#else
#define FAR __attribute__((noipa, used))
#endif
#define MARK()  __asm__ volatile("int3" ::: "memory")
#define KEEP(x) __asm__ volatile("" ::"r"(&(x)) : "memory")

static volatile int sink;

/* --- prologues and epilogues ------------------------------------------------------------------ */

struct big {
	long v[12];
};

FAR int leaf(int a)
{
	return a * 3 + sink;
}

FAR int saves_all(int a, int b, int c, int d, int e, int f, int g, int h)
{
	int x = leaf(a), y = leaf(b), z = leaf(c), u = leaf(d), v = leaf(e), w = leaf(f);

	return leaf(x + y) + leaf(z + u) + leaf(v + w) + g + h;
}

FAR int large_frame(int n)
{
	char b[70000]; /* over a page: the compiler may probe it page by page */

	memset(b, n, 64);
	KEEP(b);
	return leaf(b[5]) + b[6];
}

FAR int by_value(struct big s, ...)
{
	va_list ap;
	int n;

	va_start(ap, s);
	n = va_arg(ap, int) + (int)va_arg(ap, double);
	va_end(ap);
	return n + leaf((int)s.v[3]);
}

FAR int early_exit(int n)
{
	/* Shrink-wrapped: the common path has no frame. */
	if (n < 3)
		return n;
	sink += leaf(n) + leaf(n + 1);
	if (n > 8)
		return leaf(n - 1);
	return sink + n;
}

FAR int nested(int n)
{
	struct big s = { { n, n + 1, n + 2, n + 3 } };

	sink = early_exit(n) + early_exit(n + 5) + early_exit(n + 9);
	return saves_all(n, 2, 3, 4, 5, 6, 7, 8) + large_frame(n) + by_value(s, n, 2.5);
}

/* --- lazy binding ----------------------------------------------------------------------------- */

FAR double resolves(const char *s)
{
	return labs(atol(s)) + strtod(s, NULL) + strtoul(s, NULL, 0) + (double)strlen(s);
}

/* --- signals ---------------------------------------------------------------------------------- */

/* Their first instruction faults: the frame above the handler has the very address of a symbol. */
int faults_first(int n);
int faults_pushed(int n);
__asm__(".text\n"
	".globl faults_first\n"
	".type faults_first, @function\n"
	"faults_first:\n"
	".cfi_startproc\n"
	"ud2\n"
	"lea 1(%rdi), %eax\n"
	"ret\n"
	".cfi_endproc\n"
	".size faults_first, . - faults_first\n"
	".globl faults_pushed\n"
	".type faults_pushed, @function\n"
	"faults_pushed:\n"
	".cfi_startproc\n"
	"push %rbx\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_offset %rbx, -16\n"
	"sub $24, %rsp\n"
	".cfi_adjust_cfa_offset 24\n"
	"ud2\n"
	"add $24, %rsp\n"
	".cfi_adjust_cfa_offset -24\n"
	"pop %rbx\n"
	".cfi_adjust_cfa_offset -8\n"
	"lea 1(%rdi), %eax\n"
	"ret\n"
	".cfi_endproc\n"
	".size faults_pushed, . - faults_pushed\n");

static void handler(int sig, siginfo_t *info, void *uc)
{
	ucontext_t *c = uc;

	(void)info;
	sink += nested(sig);
	if (sig == SIGILL)
		c->uc_mcontext.gregs[REG_RIP] += 2;
}

FAR int signalled(int n)
{
	raise(SIGUSR1);
	return leaf(n) + faults_first(n) + faults_pushed(n);
}

FAR void handle(int flags)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
}

FAR void on_altstack(void)
{
	static char stack[1 << 18];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };

	sigaltstack(&ss, NULL);
	handle(SA_ONSTACK);
}

/* --- vdso, stack games ------------------------------------------------------------------------ */

FAR long asks_time(void)
{
	struct timespec ts;
	struct timeval tv;
	unsigned cpu, node;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	gettimeofday(&tv, NULL);
	getcpu(&cpu, &node);
	return ts.tv_nsec + tv.tv_usec + time(NULL) + cpu;
}

FAR int allocates(int n)
{
	char vla[n * 8 + 1];
	int i, sum = 0;

	vla[n] = 1;
	KEEP(vla);
	for (i = 1; i < 5; i++) {
		char *p = alloca(i * n);

		memset(p, i, i);
		KEEP(*p);
		sum += leaf(p[0]);
	}
	return sum + vla[n];
}

FAR int aligned(int n)
{
	_Alignas(64) char b[128];

	memset(b, n, sizeof(b));
	KEEP(b);
	return leaf(b[7]);
}

/* A realigned frame of variable size: the frame address lies in memory or in a register. */
FAR int aligned_variable(int n, int a, int b, int c, int d, int e, int f, int on_stack)
{
	_Alignas(128) char fixed[256];
	char *p = alloca(n * 16);

	memset(p, on_stack, 16);
	memset(fixed, a + b + c + d + e + f, sizeof(fixed));
	KEEP(fixed);
	KEEP(*p);
	return leaf(fixed[9]) + leaf(p[3]) + on_stack;
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noipa, force_align_arg_pointer))
#else
__attribute__((noinline, force_align_arg_pointer))
#endif
int realigns(int n)
{
	return leaf(n) + aligned(n) + aligned_variable(n, 1, 2, 3, 4, 5, 6, 7);
}

/* --- tail calls and recursion ----------------------------------------------------------------- */

static int (*volatile through)(int) = leaf;

FAR int tail_pointer(int n)
{
	return through(n + 1);
}

FAR int tail_saved(int n)
{
	int x = leaf(n), y = leaf(n + 1);

	return tail_pointer(x * y);
}

FAR int tail_odd(int n);

FAR int tail_even(int n)
{
	return n ? tail_odd(n - 1) : 0;
}

FAR int tail_odd(int n)
{
	return n ? tail_even(n - 1) : 1;
}

FAR int recurses(int n)
{
	int below = n ? recurses(n - 1) : leaf(n);

	return leaf(below) + n;
}

FAR int marks_below(int n)
{
	if (n)
		return marks_below(n - 1) + sink;
	MARK();
	sink = nested(n);
	MARK();
	return n;
}

/* --- control that leaves the call tree -------------------------------------------------------- */

FAR void forks(void)
{
	pid_t pid = vfork();
	int status;

	if (!pid) {
		sink = leaf(3) + early_exit(9) + early_exit(5);
		_exit(0);
	}
	waitpid(pid, &status, 0);
}

static jmp_buf env;
static sigjmp_buf sigenv;

FAR __attribute__((noreturn)) void jumps(int n)
{
	sink = leaf(n);
	if (n > 1)
		siglongjmp(sigenv, n);
	longjmp(env, n);
}

/* The call of a function that does not return may be the last instruction. */
FAR void ends_in_call(int n)
{
	sink = leaf(n);
	jumps(n);
}

FAR int set_jump(int n)
{
	if (!setjmp(env))
		ends_in_call(1);
	if (!sigsetjmp(sigenv, 1))
		ends_in_call(n);
	return leaf(n);
}

static ucontext_t main_context, co_context;

static void coroutine(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		sink += leaf(i) + early_exit(i + 4);
		swapcontext(&co_context, &main_context);
	}
}

FAR void switches(void)
{
	static char stack[65536];
	int i;

	getcontext(&co_context);
	co_context.uc_stack.ss_sp = stack;
	co_context.uc_stack.ss_size = sizeof(stack);
	co_context.uc_link = &main_context;
	makecontext(&co_context, coroutine, 0);
	for (i = 0; i < 4; i++)
		swapcontext(&main_context, &co_context);
}

/* --- callbacks, threads, libraries ------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	return leaf(*(const int *)a) - leaf(*(const int *)b);
}

FAR int sorts(void)
{
	int v[] = { 5, 3, 9, 1, 7, 2, 8 }, key = 9;

	qsort(v, 7, sizeof(v[0]), compare);
	return bsearch(&key, v, 7, sizeof(v[0]), compare) != NULL;
}

static void *thread(void *arg)
{
	MARK();
	sink += nested((int)(intptr_t)arg) + sorts();
	return arg; /* no second mark: start_thread's way out counts too */
}

static void cleanup(void *arg)
{
	sink += leaf((int)(intptr_t)arg);
}

static void *exits(void *arg)
{
	pthread_cleanup_push(cleanup, arg);
	MARK();
	pthread_exit(arg); /* unwinds this thread */
	pthread_cleanup_pop(0);
}

FAR void runs_thread(void *(*start)(void *))
{
	pthread_t t;

	if (!pthread_create(&t, NULL, start, (void *)4))
		pthread_join(t, NULL);
}

FAR int prints(double x)
{
	char b[256], *p = malloc(100000);
	int n = snprintf(b, sizeof(b), "%d %s %.17g %Lf %p", 42, "text", x, (long double)x, p);

	memmove(b + 3, b, 100);
	free(p);
	return n + (int)strtod("1.2345678901234567e-200", NULL) + atoi(b);
}

FAR double opens(void)
{
	void *lib = dlopen("libm.so.6", RTLD_LAZY);
	double (*power)(double, double) = lib ? (double (*)(double, double))dlsym(lib, "pow")
					      : NULL;
	double x = power ? power(1.5, sink + 2.5) : 0;

	if (lib)
		dlclose(lib);
	return x;
}

static void at_exit(void)
{
	sink += early_exit(9);
}

/* ---------------------------------------------------------------------------------------------- */

static void run(const char *name)
{
	static const struct {
		const char *name;
		int n;
	} plain[] = { { "nested", 0 },  { "plt", 1 },       { "vdso", 2 },    { "alloca", 3 },
		      { "aligned", 4 }, { "tail", 5 },      { "recurse", 6 }, { "vfork", 7 },
		      { "jump", 8 },    { "coroutine", 9 }, { "sort", 10 },   { "libc", 11 },
		      { "dlopen", 12 } };
	size_t i;

	for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (strcmp(name, plain[i].name))
			continue;
		MARK();
		switch (plain[i].n) {
		case 0:
			sink = nested(3);
			break;
		case 1:
			sink = (int)resolves("-1234");
			break;
		case 2:
			sink = (int)asks_time();
			break;
		case 3:
			sink = allocates(7) + allocates(40);
			break;
		case 4:
			sink = realigns(5) + aligned_variable(3, 1, 1, 1, 1, 1, 1, 1);
			break;
		case 5:
			sink = tail_saved(2) + tail_even(7) + tail_pointer(1);
			break;
		case 6:
			sink = recurses(20);
			break;
		case 7:
			forks();
			break;
		case 8:
			sink = set_jump(2);
			break;
		case 9:
			switches();
			break;
		case 10:
			sink = sorts();
			break;
		case 11:
			sink = prints(1.0 / 3);
			break;
		case 12:
			sink = (int)opens();
			break;
		}
		MARK();
		return;
	}
	if (!strcmp(name, "deep")) {
		marks_below(600);
	} else if (!strcmp(name, "signal") || !strcmp(name, "altstack")) {
		if (name[0] == 's')
			handle(0);
		else
			on_altstack();
		MARK();
		sink = signalled(2);
		MARK();
	} else if (!strcmp(name, "thread")) {
		runs_thread(thread);
	} else if (!strcmp(name, "pthread_exit")) {
		runs_thread(exits);
	} else if (!strcmp(name, "exit")) {
		atexit(at_exit);
		MARK();
		exit(0);
	} else {
		fprintf(stderr, "no scenario %s\n", name);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2)
		run(argv[1]);
	return 0;
}
