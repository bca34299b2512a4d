// SPDX-License-Identifier: Apache-2.0
/*
 * Room: live tests. The program around which files are moved, covered and removed.
 *
 *	files_app [-n] [-l] [-o] [-r DIR] READY [LIB]
 *
 * Loads LIB, writes READY, and does nothing until SIGUSR1; then spins: in LIB's entry(), or in
 * functions of its own without LIB. -l: LIB is loaded only at a second SIGUSR1, after spinning in
 * own functions. -o: it spins in own functions only. -n: not dumpable. -r DIR: chroot to DIR when all is loaded. Ends after 120 s
 * whatever happens.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int stop;
static volatile uint64_t sink;

#define FRAME(size)               \
	volatile char room[size]; \
	room[0] = 1
#define KEEP (void)room[0]

__attribute__((noinline)) static void app_spin(void)
{
	while (!stop)
		for (uint64_t i = 0; i < 100000; i++)
			sink += i;
}

__attribute__((noinline)) static void app_inner(void)
{
	FRAME(200);
	app_spin();
	KEEP;
}

__attribute__((noinline)) static void app_outer(void)
{
	FRAME(72);
	app_inner();
	KEEP;
}

__attribute__((noinline)) static void app_calls(void (*fn)(const volatile int *))
{
	FRAME(40);
	fn(&stop);
	KEEP;
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void *load(const char *lib)
{
#ifdef STATIC
	(void)lib;
	return NULL;
#else
	void *handle = dlopen(lib, RTLD_NOW), *fn = handle ? dlsym(handle, "entry") : NULL;

	if (!fn) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return fn;
#endif
}

static void say_ready(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || dprintf(fd, "%d\n", getpid()) < 0)
		exit(1);
	close(fd);
}

int main(int argc, char **argv)
{
	void *fn = NULL;
	const char *root = NULL;
	int late = 0, only_own = 0, c, sig;
	sigset_t set;

	alarm(120);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	while ((c = getopt(argc, argv, "nlor:")) != -1) {
		if (c == 'n')
			prctl(PR_SET_DUMPABLE, 0);
		else if (c == 'l')
			late = 1;
		else if (c == 'o')
			only_own = 1;
		else if (c == 'r')
			root = optarg;
		else
			return 2;
	}
	if (optind == argc)
		return 2;
	if (optind + 1 < argc && !late)
		fn = load(argv[optind + 1]);
	/* Pages stay, also when the file system below them no longer answers. */
	mlockall(MCL_CURRENT);
	say_ready(argv[optind]);
	if (root && (chroot(root) || chdir("/")))
		return 1;
	sigwait(&set, &sig);
	if (late) {
		signal(SIGUSR1, on_signal);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		app_outer();
		stop = 0;
		fn = load(argv[optind + 1]);
	}
	if (fn && !only_own)
		app_calls((void (*)(const volatile int *))fn);
	else
		app_outer();
	return 0;
}
