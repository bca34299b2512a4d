// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. What commands share; see cmd.h. */
#include "cmd.h"

#include "log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

int cmd_signals(bool with_child)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (with_child)
		sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? log_err(-errno, "cannot wait for signals: %s", strerror(errno)) : fd;
}

int cmd_next_signal(int fd)
{
	struct signalfd_siginfo info;

	return read(fd, &info, sizeof(info)) == sizeof(info) ? (int)info.ssi_signo : 0;
}

bool cmd_number(const char *s, double min, double max, double *ret)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !(v >= min && v <= max))
		return false;
	*ret = v;
	return true;
}

int cmd_option(const char *arg, const char *what, double min, double max, double *ret)
{
	if (cmd_number(arg, min, max, ret))
		return 0;
	return log_err(-EINVAL, "%s: expected %s, %g to %g", arg, what, min, max);
}
