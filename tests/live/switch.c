// SPDX-License-Identifier: Apache-2.0
/* Stacks that are not one straight line: argv[1] says which. Busy for 3 s in work(). */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

volatile uint64_t sink;
static ucontext_t main_context, other_context;
static jmp_buf jump;
static int clock_heavy;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

__attribute__((noinline)) void work(void)
{
	double end = now() + 3;

	while (now() < end)
		for (int i = 0; i < (clock_heavy ? 10 : 1000000); i++)
			sink += (uint64_t)i;
}

__attribute__((noinline)) static void handler(int sig)
{
	work();
	sink += (uint64_t)sig;
}

__attribute__((noinline)) static void interrupted(void)
{
	/* Interrupted right here, in a function without a frame of its own. */
	raise(SIGUSR1);
	sink++;
}

__attribute__((noinline)) static void outer(void)
{
	interrupted();
	sink++;
}

__attribute__((noinline)) static void inner(void)
{
	work();
	sink++;
}

static void coroutine(void)
{
	inner();
	sink++;
}

static void *thread_main(void *arg)
{
	inner();
	sink++;
	return arg;
}

__attribute__((noinline)) static void jump_back(int depth)
{
	volatile char room[100];

	room[0] = (char)depth;
	if (!depth)
		longjmp(jump, 1);
	jump_back(depth - 1);
	sink += (uint64_t)room[0];
}

__attribute__((noinline)) static void after_jump(void)
{
	work();
	sink += 2; /* not the same code as inner(), which would be merged with it */
}

static void install(int flags)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = flags };

	sigaction(SIGUSR1, &sa, NULL);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "signal";
	stack_t alt = { .ss_size = 65536 };
	pthread_t thread;

	if (!strcmp(mode, "signal")) {
		install(0);
		outer();
	} else if (!strcmp(mode, "altstack")) {
		alt.ss_sp = malloc(alt.ss_size);
		sigaltstack(&alt, NULL);
		install(SA_ONSTACK);
		outer();
	} else if (!strcmp(mode, "coroutine")) {
		getcontext(&other_context);
		other_context.uc_stack.ss_sp = malloc(65536);
		other_context.uc_stack.ss_size = 65536;
		other_context.uc_link = &main_context;
		makecontext(&other_context, coroutine, 0);
		swapcontext(&main_context, &other_context);
	} else if (!strcmp(mode, "longjmp")) {
		if (!setjmp(jump))
			jump_back(20);
		after_jump();
	} else if (!strcmp(mode, "thread")) {
		pthread_create(&thread, NULL, thread_main, NULL);
		pthread_join(thread, NULL);
	} else {
		clock_heavy = 1;
		work();
	}
	sink++;
	return 0;
}
