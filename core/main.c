// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. The table of contents: one line per command. */
#include "cmd.h"
#include "config.h"
#include "htab.h"
#include "log.h"
#include "version.h"

#include <signal.h>
#include <string.h>

static int cmd_check_config(int argc, char **argv)
{
	struct config c;
	char why[1024];
	int err;

	static const char usage[] = "usage: ebpfprofiler check-config FILE\n";
	bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));

	if (help || argc != 2) {
		fputs(usage, help ? stdout : stderr);
		return help ? EXIT_DONE : EXIT_USAGE;
	}
	if (config_init(&c))
		return EXIT_FAILED;
	err = config_read(&c, argv[1], why, sizeof(why));
	config_fini(&c);
	if (err) {
		log_err(0, "%s", why);
		return EXIT_USAGE;
	}
	printf("%s: ok\n", argv[1]);
	return EXIT_DONE;
}

static int cmd_version(int argc __unused, char **argv __unused)
{
	puts("ebpfprofiler " VERSION);
	return EXIT_DONE;
}

static int cmd_help(int argc, char **argv);

static const struct {
	const char *name, *help;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", "profile this host until stopped, as the configuration says", cmd_run },
	{ "record", "record a command, processes or the host into one file", cmd_record },
	{ "dump", "the stacks of all threads of a process now", cmd_dump },
	{ "symbolize", "names, lines and inlined functions for a stored profile", cmd_symbolize },
	{ "doctor", "what this host offers, what is missing and how to mend it", cmd_doctor },
	{ "top", "what runs now, by service and function, on a terminal", cmd_top },
	{ "tree", "a stored profile, or a service of the store, as a call tree in text", cmd_tree },
	{ "folded", "the same as folded lines, for flame graph tools", cmd_folded },
	{ "tables", "the unwind table of an ELF file: figures, or its rows", cmd_tables },
	{ "fixture", "record an interpreter's stacks for tests, or replay them", cmd_fixture },
	{ "check-config", "parse a configuration file", cmd_check_config },
	{ "version", "print the version", cmd_version },
	{ "help", "print this", cmd_help },
};

static void print_commands(FILE *f)
{
	size_t i;

	fputs("usage: ebpfprofiler COMMAND [OPTIONS]; COMMAND --help tells its options\n", f);
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-14s%s\n", commands[i].name, commands[i].help);
}

static int cmd_help(int argc __unused, char **argv __unused)
{
	print_commands(stdout);
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "run";
	size_t i;

	log_init(LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN);
	hash_bytes("", 0); /* seeds it before any thread */
	/* `ebpfprofiler -c FILE` is `run`. */
	if (argc > 1 && *name == '-') {
		if (!strcmp(name, "--help") || !strcmp(name, "-h"))
			return cmd_help(argc, argv);
		if (!strcmp(name, "--version"))
			return cmd_version(argc, argv);
		return cmd_run(argc, argv);
	}
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(name, commands[i].name))
			return argc > 1 ? commands[i].run(argc - 1, argv + 1)
					: commands[i].run(argc, argv);
	log_err(0, "unknown command '%s'", name);
	print_commands(stderr);
	return EXIT_USAGE;
}
