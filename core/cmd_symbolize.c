// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. `symbolize IN OUT`: names, lines and inlined functions for a stored profile. */
#include "cmd.h"

#include "log.h"
#include "store.h"
#include "symbolize.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static const char usage[] =
	"usage: ebpfprofiler symbolize [--debuginfod] [--root DIR] IN.pb.gz OUT.pb.gz\n";

static int parse(int argc, char **argv, struct symbolize_options *o)
{
	static const struct option longs[] = {
		{ "debuginfod", no_argument, NULL, 'D' },
		{ "root", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ "verbose", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "hv", longs, NULL)) != -1) {
		switch (c) {
		case 'D':
			o->debuginfod = true;
			break;
		case 'r':
			o->root = optarg;
			break;
		case 'v':
			log_init(LOG_LEVEL_DEBUG);
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (argc - optind != 2) {
		fputs(usage, stderr);
		return -EINVAL;
	}
	return 0;
}

static const char *why(int err)
{
	switch (err) {
	case -EBADMSG:
		return "it is no pprof profile, or damaged";
	case -E2BIG:
		return "it is over 256 MiB, or names more than 2 GiB of memory hold";
	default:
		return strerror(-err);
	}
}

int cmd_symbolize(int argc, char **argv)
{
	struct symbolize_options o = { .root = "/" };
	struct symbolize_figures f;
	_cleanup_free_ char *in = NULL;
	_cleanup_free_ u8 *out = NULL;
	const char *from, *to;
	size_t len, out_len;
	int err = parse(argc, argv, &o);

	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	if (o.debuginfod && !getenv("DEBUGINFOD_URLS")) {
		log_err(0,
			"--debuginfod: DEBUGINFOD_URLS says which servers to ask, and is not set");
		return EXIT_USAGE;
	}
	from = argv[optind];
	to = argv[optind + 1];
	err = read_file(from, SYMBOLIZE_FILE_MAX, &in, &len);
	if (!err)
		err = symbolize((const u8 *)in, len, &o, &out, &out_len, &f);
	if (err) {
		log_err(err, "cannot read '%s': %s", from, why(err));
		return EXIT_FAILED;
	}
	if (!strcmp(to, "-"))
		err = fwrite(out, 1, out_len, stdout) != out_len || fflush(stdout) ? -EIO : 0;
	else
		err = write_file_atomic(to, out, out_len, 0644);
	if (err) {
		log_err(err, "cannot write '%s': %s", to, strerror(-err));
		return EXIT_FAILED;
	}
	fprintf(stderr,
		"%u of %u native frames have names, %u lines, %u inlined functions; %u of %u files "
		"were found, %u with debug information\n",
		f.named, f.locations, f.lines, f.inlined, f.files_found, f.files, f.files_lines);
	return EXIT_DONE;
}
