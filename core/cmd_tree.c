// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: edge. `tree` and `folded`: stored profiles as text. In: files, or a service's files of the
 * last minutes in the daemon's store. Out: an indented call tree, or folded lines, on stdout.
 */
#include "cmd.h"

#include "catalog.h"
#include "config.h"
#include "log.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>

struct tree_options {
	const char *config, *service;
	double last_s;
	struct view_options view;
	struct view_text_options text;
};

static const char tree_usage[] =
	"usage: ebpfprofiler tree [OPTIONS] FILE...\n"
	"       ebpfprofiler tree [OPTIONS] -s SERVICE [-c FILE] [-l SECONDS]\n"
	"  -s, --service NAME     from the daemon's store; \"*\" for all services\n"
	"  -c, --config FILE      the daemon's configuration, which says where the store is\n"
	"  -l, --last SECONDS     of the store, the last so many seconds (default 300)\n"
	"  -e, --type TYPE        sample type, such as cpu or offcpu (default: the file's own)\n"
	"  -f, --filter KEY=VALUE only samples with this label; may be given more than once\n"
	"  --no-kernel            without frames of the kernel\n"
	"  -m, --min PERCENT      of all that a line needs (tree; default 1)\n"
	"  -n, --lines N          at most so many lines (tree; default 200)\n";

static int add_filter(struct view_options *o, char *arg)
{
	char *eq = strchr(arg, '=');

	if (!eq || eq == arg)
		return log_err(-EINVAL, "-f %s: expected KEY=VALUE", arg);
	if (o->nfilters == VIEW_FILTERS_MAX)
		return log_err(-EINVAL, "-f: at most %d labels", VIEW_FILTERS_MAX);
	*eq = '\0';
	o->filters[o->nfilters++] = (struct view_filter){ arg, eq + 1 };
	return 0;
}

static int parse_one(int c, struct tree_options *o)
{
	double n = 0;
	int err = 0;

	switch (c) {
	case 's':
		o->service = optarg;
		break;
	case 'c':
		o->config = optarg;
		break;
	case 'l':
		err = cmd_option(optarg, "seconds", 1, 1e9, &o->last_s);
		break;
	case 'e':
		o->view.type = optarg;
		break;
	case 'f':
		err = add_filter(&o->view, optarg);
		break;
	case 'K':
		o->view.no_kernel = true;
		break;
	case 'm':
		err = cmd_option(optarg, "percent", 0, 100, &o->text.min_share);
		break;
	case 'n':
		err = cmd_option(optarg, "a number of lines", 1, 1e6, &n);
		o->text.max_lines = (u32)n;
		break;
	case 'h':
		fputs(tree_usage, stdout);
		return 1;
	default:
		fputs(tree_usage, stderr);
		err = -EINVAL;
	}
	return err;
}

static int parse(int argc, char **argv, struct tree_options *o)
{
	static const struct option longs[] = {
		{ "service", required_argument, NULL, 's' },
		{ "config", required_argument, NULL, 'c' },
		{ "last", required_argument, NULL, 'l' },
		{ "type", required_argument, NULL, 'e' },
		{ "filter", required_argument, NULL, 'f' },
		{ "no-kernel", no_argument, NULL, 'K' },
		{ "min", required_argument, NULL, 'm' },
		{ "lines", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, err;

	while ((c = getopt_long(argc, argv, "s:c:l:e:f:m:n:h", longs, NULL)) != -1) {
		err = parse_one(c, o);
		if (err)
			return err;
	}
	if ((optind < argc) == !!o->service)
		return log_err(-EINVAL,
			       "give either files or a service of the store (-s); see --help");
	return 0;
}

static int add_files(struct view *v, char **paths)
{
	int err;

	for (; *paths; paths++) {
		err = view_add_file(v, 0, AT_FDCWD, *paths);
		if (err)
			return log_err(err, "cannot read '%s': %s", *paths,
				       err == -EBADMSG ? "no pprof file, or a damaged one"
						       : strerror(-err));
	}
	return 0;
}

static int add_store(struct view *v, const struct tree_options *o)
{
	struct catalog_range range = { .service = o->service,
				       .type = o->view.type ? o->view.type : "cpu" };
	char why[1024];
	struct config c;
	int err = config_init(&c);

	if (err)
		return err;
	err = config_read(&c, o->config, why, sizeof(why));
	if (err) {
		config_fini(&c);
		return log_err(err, "%s", why);
	}
	range.to_ms = now_realtime() / 1000000;
	range.from_ms = range.to_ms - MIN(range.to_ms, (u64)(o->last_s * 1e3));
	err = catalog_add_dir(c.store_path, &range, v, 0);
	if (err)
		log_err(err, "cannot read the store in '%s': %s", c.store_path, strerror(-err));
	else if (!v->files[0])
		err = log_err(-ENOENT,
			      "'%s' has no profile of type %s of service '%s' of the last %.0f s",
			      c.store_path, range.type, o->service, o->last_s);
	config_fini(&c);
	return err;
}

static int check_type(const struct view *v)
{
	char types[VIEW_TYPES_MAX * 64] = "";
	u32 i;

	if (!v->o.type || *v->type)
		return 0;
	for (i = 0; i < v->ntypes; i++)
		snprintf(types + strlen(types), sizeof(types) - strlen(types), "%s%.60s",
			 i ? ", " : "", v->types[i]);
	return log_err(-EINVAL, "no file has the type '%s', but: %s", v->o.type, types);
}

static int run(struct tree_options *o, char **paths, bool folded)
{
	_cleanup_(view_freep) struct view *v = NULL;
	int err;

	if (folded || (o->service && !strcmp(o->service, "*")))
		o->view.root_key = "process.executable";
	v = view_new(&o->view);
	if (!v)
		return log_err(-ENOMEM, "out of memory");
	err = o->service ? add_store(v, o) : add_files(v, paths);
	if (!err)
		err = check_type(v);
	if (err)
		return err;
	err = view_finish(v);
	if (!err)
		err = folded ? view_write_folded(v, 0, stdout)
			     : view_write_text(v, &o->text, stdout);
	return err ? log_err(err, "cannot write: %s", strerror(-err)) : 0;
}

static int command(int argc, char **argv, bool folded)
{
	struct tree_options o = { .config = CONFIG_DEFAULT_PATH,
				  .last_s = 300,
				  .text = { .min_share = 1, .max_lines = 200, .max_depth = 200 } };
	int err = parse(argc, argv, &o);

	if (err)
		return err > 0 ? EXIT_DONE : EXIT_USAGE;
	return run(&o, argv + optind, folded) ? EXIT_FAILED : EXIT_DONE;
}

int cmd_tree(int argc, char **argv)
{
	return command(argc, argv, false);
}

int cmd_folded(int argc, char **argv)
{
	return command(argc, argv, true);
}
