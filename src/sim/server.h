/* SPDX-License-Identifier: Apache-2.0 */
/* The coordination server of a simulated job, and the launcher's requests to the server. The server
 * is `harpe serve` in a separate process on a free port, or an existing server. */
#ifndef HARPE_SIM_SERVER_H
#define HARPE_SIM_SERVER_H

#include <jansson.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "sim/options.h"

typedef struct harpe_sim_server {
    bool is_in_world;
    int ranks;
    pid_t pid;                    /* 0: not started here, or not running */
    struct harpe_server *running; /* in a world, with the next */
    struct harpe_disk *disk;      /* of the store; owned */
    harpe_log log;
    int port;
    char url[HARPE_SIM_TEXT_MAX];
    char store[HARPE_SIM_TEXT_MAX];
    const char *scheduler;
    char *scheduler_args; /* owned */
    bool is_published;    /* the server of Zeus, which returns its first plan and has no pages */
} harpe_sim_server;

/* Starts a server with its store in `directory` (or only stores the address of --server), and
 * waits until it answers. */
harpe_status harpe_sim_server_start(const harpe_sim_options *options, double blocking_power_w,
                                    const char *directory, harpe_sim_server *server,
                                    harpe_error *error);
/* Kills the server and starts it again with the same store and port. */
harpe_status harpe_sim_server_restart(harpe_sim_server *server, harpe_error *error);
void harpe_sim_server_stop(harpe_sim_server *server);

/* Makes one request, which takes a few seconds at most. `body` NULL: GET, otherwise POST. The
 * caller releases `*answer`, which may be NULL. Returns the HTTP status, or 0 without an answer;
 * then `*error` says why. */
long harpe_sim_server_ask(const harpe_sim_server *server, const char *path, const char *body,
                          json_t **answer, harpe_error *error);

#endif
