/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. The INI file, by inih, through one table: section, key, type, range, default, help.
 * The sample INI and the man page are checked against that table by a test.
 */
#pragma once

#include "util.h"

#define CONFIG_DEFAULT_PATH "/etc/ebpfprofiler/ebpfprofiler.ini"
#define CONFIG_MAX_FILE     (1u << 20)
#define CONFIG_MAX_LINE     198 /* bytes, comment lines apart: inih's usual buffer is 200 */
#define CONFIG_MAX_LABELS   32
#define CONFIG_MAX_LABEL    200 /* bytes of a label's value */
#define CONFIG_MAX_RUNTIMES 32  /* names in runtime_stacks, and sections [runtime.NAME] */
#define CONFIG_MAX_UPLOADS  8   /* sections [upload] and [upload.NAME] */
#define CONFIG_MAX_WORD     31  /* bytes of such a name */

/* [runtime.NAME] */
struct config_runtime {
	char name[CONFIG_MAX_WORD + 1];
	char *enabled; /* true, false, or "": as the list of names says */
	u32 hz;        /* 0: as runtime_hz says */
	char *layout;  /* "" when none */
	bool labels;
};

/* [upload], whose name is "", or [upload.NAME]; strings are never NULL. */
struct config_upload {
	char name[CONFIG_MAX_WORD + 1];
	char *url; /* "": nothing is sent */
	char *protocol;
	char *token_file, *user, *password_file, *headers, *headers_file;
	char *ca_file, *cert_file, *key_file, *proxy;
	char *symbolize; /* none | host */
	u32 spool_mb, spool_hours;
};

struct config {
	/* [ebpf_profiler] */
	bool defined; /* the section is there at all */
	bool enabled;
	u32 sample_hz;
	u32 upload_interval_s;
	bool kernel_frames;
	u32 max_frames;
	bool dwarf_unwind;
	u32 table_memory_mb;
	double cpu_budget;
	bool offcpu, offcpu_dwarf, lock;
	bool thread_context;
	double offcpu_min_ms;
	bool python_stacks;
	char *runtime_stacks; /* names separated by commas or blanks */
	u32 runtime_hz;
	bool runtime_internals;
	bool strip_process_args;
	bool plain_pid;
	bool home_paths;
	/* [web] */
	char *web_listen, *web_token_file, *web_hosts;
	/* [remote] */
	char *remote_url, *remote_token_file, *remote_ca_file;
	u32 remote_poll_s;
	/* [service], [filter]: patterns as match.h has them */
	char *service_rules;
	char *filter_include, *filter_exclude;
	u32 filter_min_age_s;
	/* [store] */
	char *store_path;
	u32 store_max_mb;
	/* [labels]: NAME=VALUE strings in file order */
	char **labels;
	u32 nlabels;
	struct config_runtime *runtimes; /* sections that are there; config_runtime() knows all */
	u32 nruntimes;
	struct config_upload *uploads; /* sections that are there */
	u32 nuploads;
	/* Of all that the file sets besides what config_set_live() takes over; in any order. */
	u64 rest;
};

/* All defaults; strings owned by the config, never NULL. Returns 0 or -ENOMEM. */
int config_init(struct config *c);
void config_fini(struct config *c);
/*
 * Reads a file over the defaults that config_init() set. Every error is one line in err (file,
 * line, key, value, what was expected): unknown section or key, bad value, duplicate key, line
 * too long, NUL byte, and a file that others than its owner may write while we are root. The file
 * of rules that it names must be sound, too.
 * Returns 0, -EINVAL for what the file says, -errno when it cannot be read, -EPERM when it is
 * not trusted. After a failure the config is half changed: only good for config_fini().
 */
int config_read(struct config *c, const char *path, char *err, size_t err_size);
/* The same for text that was read elsewhere; `name` stands for the file in errors. */
int config_parse(struct config *c, const char *name, const char *text, size_t len, char *err,
		 size_t err_size);

/*
 * Takes over from `fresh` the keys that a running daemon changes in place: enabled, sample_hz,
 * upload_interval_s, cpu_budget, plain_pid. False, and nothing is taken, when the two differ in
 * more: what was made from c has to be made anew then.
 */
bool config_set_live(struct config *c, const struct config *fresh);

/*
 * Are the stacks of a runtime wanted? `word` is what switches it on: "python" stands for
 * python_stacks, any other is looked for in runtime_stacks. What [runtime.NAME] says wins.
 */
bool config_runtime_enabled(const struct config *c, const char *name, const char *word);
/* The section of a runtime, or defaults; hz is never 0. Its strings are the config's. */
struct config_runtime config_runtime(const struct config *c, const char *name);

/* Waits shorter than this are dropped. */
u64 config_offcpu_min_ns(const struct config *c);
/* Kernel memory for unwind tables; 0 when nobody walks by tables. */
u64 config_table_bytes(const struct config *c);

/* The table, for the test and for `help`. */
struct config_key {
	const char *section, *key;
	const char *expected; /* "true or false", "number 1..1000", ... */
	const char *standard; /* default as text */
	const char *help;
};
/*
 * Row i, or NULL past the end; the rows of [upload], which are those of each [upload.NAME], and of
 * [runtime.NAME] are the last.
 */
const struct config_key *config_table(u32 i);
