/* SPDX-License-Identifier: Apache-2.0 */
/* The whole server: makes loop, workers, store, scheduler, engine and HTTP from settings, and runs
 * until a signal. The program needs no other header of src/server. */
#ifndef HARPE_SERVER_SERVER_H
#define HARPE_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "pfo/settings.h"

typedef struct harpe_server harpe_server;

/* Opens and loads everything and begins to listen. On failure nothing is left behind. `leave` must
 * end the process at once. It is called, on any thread, if the process got SIGTERM or SIGINT and
 * something does not end, such as a scheduler, a file, the store, or this function itself. At that
 * time the disk has everything that was reported to clients, and the programs of schedulers are
 * killed. If `leave` is NULL, harpe_server_free waits. */
harpe_status harpe_server_new(const harpe_settings *settings, harpe_log log, void (*leave)(void),
                              harpe_server **out, harpe_error *error);
/* Makes an enclosed server, for a simulated world. It does not listen, takes no signals, starts no
 * processes, and does not warn about directories. The number of its threads depends on the machine
 * unless the setting worker_threads is given. harpe_server_free waits for its work. */
harpe_status harpe_server_new_enclosed(const harpe_settings *settings, harpe_log log,
                                       harpe_server **out, harpe_error *error);
/* Gives a connected stream socket to the server, as a connection of its own user. Returns false if
 * memory runs out; then the socket stays the caller's. The server must not be freed meanwhile. Any
 * thread. */
bool harpe_server_adopt(harpe_server *server, int socket);
/* Begins to stop as SIGTERM does. Call it once. Any thread. */
void harpe_server_end(harpe_server *server);
/* Writes one line for the log that says who may use a server with these settings. */
void harpe_server_whom(const harpe_settings *settings, char *line, size_t size);
int harpe_server_port(const harpe_server *server);
/* Lets standard error append to the setting log_file; does nothing without it. */
harpe_status harpe_server_open_log(const harpe_settings *settings, harpe_error *error);
/* After SIGHUP it opens log_file again, and reads token_file, tls_cert and tls_key again. If they
 * cannot be used, those from before stay in use. Serves until SIGTERM or SIGINT. Then it stops
 * accepting, answers the requests that can be answered, writes everything to the store, and
 * returns. After a second signal it returns at once. The time from the signal to the end of
 * harpe_server_free (or to the call of `leave`) is less than 10 s. */
harpe_status harpe_server_run(harpe_server *server, harpe_error *error);
void harpe_server_free(harpe_server *server);

/* The main function of the server's file processes, see base/file_processes.h. */
int harpe_server_file_process_main(int argc, char **argv);

#endif
