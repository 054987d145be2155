/* SPDX-License-Identifier: Apache-2.0 */
/* The coordination server of a simulated job: `harpe serve` as a process of its own on a free port,
 * or somebody else's, and the questions that the launcher has for it. */
#ifndef HARPE_CLI_TRAIN_SIM_SERVER_H
#define HARPE_CLI_TRAIN_SIM_SERVER_H

#include <jansson.h>
#include <sys/types.h>

#include "cli/train_sim.h"

typedef struct harpe_sim_server {
    pid_t pid; /* 0: not ours, or not running */
    int port;
    char url[HARPE_SIM_TEXT_MAX];
    char store[HARPE_SIM_TEXT_MAX];
    const char *scheduler;
    char *scheduler_args; /* owned */
    bool is_quiet;
    bool is_published; /* that of Zeus: it hands out its first plan, and has no pages */
} harpe_sim_server;

/* Starts one with its store in `directory` (or only notes --server's address) and waits until it
 * answers. */
harpe_status harpe_sim_server_start(const harpe_sim_options *options, double blocking_power_w,
                                    const char *directory, harpe_sim_server *out,
                                    harpe_error *error);
/* Kills it and starts it again on the same store and port. */
harpe_status harpe_sim_server_restart(harpe_sim_server *server, harpe_error *error);
void harpe_sim_server_stop(harpe_sim_server *server);

/* One request of at most a few seconds. `body` NULL: GET, else POST. `*answer` (may be NULL
 * afterwards) is to be released. Returns the HTTP status, 0 when none came. */
long harpe_sim_server_ask(const harpe_sim_server *server, const char *path, const char *body,
                          json_t **answer);

#endif
