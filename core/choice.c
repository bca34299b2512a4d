// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See choice.h. */
#include "choice.h"

#include "config.h"
#include "layout.h"
#include "log.h"

#include <errno.h>
#include <string.h>

struct choice {
	const struct config *config;
	struct layouts *layouts[UNWINDERS_MAX];
};

static bool on(void *arg, const struct unwinder *u, const char *word)
{
	const struct choice *ch = arg;

	return config_runtime_enabled(ch->config, u->name, word);
}

static const struct layouts *layouts_of(void *arg, const struct unwinder *u)
{
	const struct choice *ch = arg;

	return ch->layouts[unwinder_index(u)];
}

static bool labels_of(void *arg, const struct unwinder *u)
{
	const struct choice *ch = arg;

	return config_runtime(ch->config, u->name).labels;
}

static u32 hz_of(void *arg, const struct unwinder *u)
{
	const struct choice *ch = arg;

	return config_runtime(ch->config, u->name).hz;
}

static int read_layouts(struct choice *ch)
{
	const struct unwinder *u;
	char why[512];
	u32 i;
	int err;

	for (i = 0; (u = unwinder_at(i)); i++) {
		const char *path = config_runtime(ch->config, u->name).layout;

		if (!*path)
			continue;
		err = layouts_read(path, u, &ch->layouts[i], why, sizeof(why));
		if (err)
			return log_err(err, "layouts of %s: %s", u->title, why);
	}
	return 0;
}

static bool is_known(const char *name, size_t len, bool is_word)
{
	const struct unwinder *u;
	u32 i, k;

	for (i = 0; (u = unwinder_at(i)); i++) {
		if (!is_word && strlen(u->name) == len && !memcmp(u->name, name, len))
			return true;
		for (k = 0; is_word && k < UNWINDER_RANGES && u->ranges[k].word; k++)
			if (strlen(u->ranges[k].word) == len &&
			    !memcmp(u->ranges[k].word, name, len))
				return true;
	}
	return false;
}

/* A name that nothing here answers to does no harm, but somebody waits for its stacks. */
static void name_unknown(const struct config *c)
{
	const char *s = c->runtime_stacks;
	size_t n;
	u32 i;

	for (s += strspn(s, ", \t"); *s; s += strspn(s, ", \t")) {
		n = strcspn(s, ", \t");
		if (!is_known(s, n, true))
			log_warn("runtime_stacks: nothing here answers to '%.*s'", (int)n, s);
		s += n;
	}
	for (i = 0; i < c->nruntimes; i++)
		if (!is_known(c->runtimes[i].name, strlen(c->runtimes[i].name), false))
			log_warn("[runtime.%s]: there is no runtime of that name",
				 c->runtimes[i].name);
}

int choice_new(const struct config *c, struct choice **ret)
{
	struct choice *ch = calloc(1, sizeof(*ch));
	int err;

	if (!ch)
		return log_err(-ENOMEM, "cannot start: out of memory");
	ch->config = c;
	name_unknown(c);
	err = read_layouts(ch);
	if (err) {
		choice_free(ch);
		return err;
	}
	*ret = ch;
	return 0;
}

void choice_free(struct choice *ch)
{
	u32 i;

	if (!ch)
		return;
	for (i = 0; i < UNWINDERS_MAX; i++)
		layouts_free(ch->layouts[i]);
	free(ch);
}

struct agent_runtimes choice_runtimes(const struct choice *ch)
{
	return (struct agent_runtimes){
		.choice = { .enabled = on,
			    .layouts = layouts_of,
			    .labels = labels_of,
			    .arg = (void *)ch },
		.hz = hz_of,
		.internals = ch->config->runtime_internals,
	};
}
