/* SPDX-License-Identifier: Apache-2.0 */
/* Shelf: edge. Commands: each takes its own argv and returns the exit code. */
#pragma once

#include "util.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CANNOT_RUN = 3 };

int cmd_run(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_tables(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_symbolize(int argc, char **argv);
int cmd_fixture(int argc, char **argv);
int cmd_tree(int argc, char **argv);
int cmd_folded(int argc, char **argv);
int cmd_top(int argc, char **argv);

/* A signalfd for SIGINT, SIGTERM, SIGHUP (and SIGCHLD), which are blocked; -errno (logged). */
int cmd_signals(bool with_child);
/* Number of a signal that waits, 0 when none does. */
int cmd_next_signal(int fd);
/* A number from min to max and nothing else. */
bool cmd_number(const char *s, double min, double max, double *ret);
/* The same; `what` it is to be, for the message. 0 or -EINVAL (logged). */
int cmd_option(const char *arg, const char *what, double min, double max, double *ret);
