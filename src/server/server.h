/* SPDX-License-Identifier: Apache-2.0 */
/* The whole server: loop, workers, store, scheduler, engine and HTTP put together from settings,
 * run until a signal. The only header of src/server that the program needs. */
#ifndef HARPE_SERVER_SERVER_H
#define HARPE_SERVER_SERVER_H

#include <stddef.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "pfo/settings.h"

typedef struct harpe_server harpe_server;

/* Opens and loads everything and begins to listen; nothing is left behind on failure. `leave` must
 * end the process at once. It is called, on any thread, if the process got SIGTERM or SIGINT and
 * something does not end: a scheduler, a file, the store, or this function itself. Everything that
 * clients were told is then on disk, and the programs of schedulers are killed. If `leave` is NULL,
 * harpe_server_free waits. */
harpe_status harpe_server_new(const harpe_settings *settings, harpe_log log, void (*leave)(void),
                              harpe_server **out, harpe_error *error);
/* One line for the log: who may use a server with these settings. */
void harpe_server_whom(const harpe_settings *settings, char *line, size_t size);
int harpe_server_port(const harpe_server *server);
/* Serves until SIGTERM or SIGINT (or harpe_server_stop): then stops accepting, answers what can be
 * answered, flushes, returns. A second signal returns at once. From the signal to the end of
 * harpe_server_free (or the call of `leave`) less than 10 s go by. */
harpe_status harpe_server_run(harpe_server *server, harpe_error *error);
void harpe_server_stop(harpe_server *server); /* any thread */
void harpe_server_free(harpe_server *server);

#endif
