/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: edge. What the configuration says of interpreters, as the agent asks for it: which are on,
 * how often their threads are walked, which extra layouts there are. Layout files are read once.
 */
#pragma once

#include "util.h"
#include "agent.h"

struct choice;
struct config;

/* The config is borrowed. Logs: a bad layout file is an error, an unknown name a warning. Owned. */
int choice_new(const struct config *c, struct choice **ret);
void choice_free(struct choice *ch);
/* As long as the choice lives. */
struct agent_runtimes choice_runtimes(const struct choice *ch);
