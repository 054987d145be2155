/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between a server and `harpe store` on the Unix socket beside an SQLite store. One
 * byte asks for a backup. The answer is one message: "ok" with a descriptor of the copy, or the
 * reason why there is no copy. */
#ifndef HARPE_SERVER_STORE_CONTROL_H
#define HARPE_SERVER_STORE_CONTROL_H

#include <harpe/status.h>

/* Listens on a socket with the name `path` and mode 0600. The path may have any length, but its
 * file name can have at most 80 bytes. */
harpe_status harpe_store_control_listen(const char *path, int waiting, int *listener,
                                        harpe_error *error);
/* Answers a client. Never blocks for long. `file` is the descriptor of the copy, or -1 if there is
 * none. */
void harpe_store_control_answer(int client, int file, const char *text);
/* Connects to a server without a request. Returns HARPE_NOT_FOUND if no server listens. Calls on
 * `*connection` wait for at most `wait_s`. The caller closes it. */
harpe_status harpe_store_control_connect(const char *path, int wait_s, int *connection,
                                         harpe_error *error);
/* Asks the server for a backup and waits for at most `wait_s`. Returns HARPE_NOT_FOUND if no server
 * listens. The caller closes `*file`. */
harpe_status harpe_store_control_ask(const char *path, int wait_s, int *file, harpe_error *error);

#endif
