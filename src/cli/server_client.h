/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a coordination server, for `harpe jobs` and `harpe fleet`. Answers are JSON. */
#ifndef HARPE_CLI_SERVER_CLIENT_H
#define HARPE_CLI_SERVER_CLIENT_H

#include <jansson.h>

#include <harpe/status.h>

#include "cli/command.h"
#include "http/client/connection.h"

typedef struct harpe_server_client_options {
    const char *server;     /* http://HOST:PORT */
    const char *token_file; /* NULL: $HARPE_TOKEN, or the token of the machine's service */
    const char *ca_file;    /* NULL: $HARPE_CA_FILE, or the system's authorities */
} harpe_server_client_options;

/* The flags --server, --token-file and --ca-file of a harpe_server_client_options. */
extern const harpe_flag harpe_server_client_flags[];

typedef struct harpe_server_client {
    harpe_connection *connection;
    const char *server; /* address of the server, without a slash at the end */
    char *token;        /* the token given by the user; NULL: none */
} harpe_server_client;

/* Initialise `out` with zeros, and close it also after a failure. */
harpe_status harpe_server_client_open(const harpe_server_client_options *options,
                                      harpe_server_client *out, harpe_error *error);
void harpe_server_client_close(harpe_server_client *client);

/* The address of the server if neither the user nor $HARPE_SERVER names one. */
#define HARPE_DEFAULT_SERVER "http://127.0.0.1:7787"
const char *harpe_server_client_default(void);

/* Sends any request. Fails with one line from the server's answer unless the answer is 200; the
 * error's vendor_code is then the HTTP status. The caller releases `*answer` with json_decref. */
harpe_status harpe_server_client_request(harpe_server_client *client, const harpe_request *request,
                                         json_t **answer, harpe_error *error);

#endif
