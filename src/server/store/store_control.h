/* SPDX-License-Identifier: Apache-2.0 */
/* What a server and harpe store say to each other on the Unix socket beside an SQLite store:
 * one byte asks for a backup, and the answer is one message, "ok" with a descriptor of the copy, or
 * the reason why there is none. */
#ifndef HARPE_SERVER_STORE_CONTROL_H
#define HARPE_SERVER_STORE_CONTROL_H

#include <harpe/status.h>

/* Listens on `path`, with mode 0600; the path may have any length, but the file name at most 80
 * bytes. */
harpe_status harpe_store_control_listen(const char *path, int waiting, int *listener,
                                        harpe_error *error);
/* Never blocks for long. `file` -1: none. */
void harpe_store_control_answer(int client, int file, const char *text);
/* Connects without asking; HARPE_NOT_FOUND: no server listens. `*connection` is the caller's to
 * close. Its calls wait for at most `wait_s`. */
harpe_status harpe_store_control_connect(const char *path, int wait_s, int *connection,
                                         harpe_error *error);
/* Asks the server of the socket, and waits for at most `wait_s`. HARPE_NOT_FOUND: no server
 * listens. `*file` is the caller's to close. */
harpe_status harpe_store_control_ask(const char *path, int wait_s, int *file, harpe_error *error);

#endif
