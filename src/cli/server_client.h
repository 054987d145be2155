/* SPDX-License-Identifier: Apache-2.0 */
/* A client of one coordination server, for the subcommands that talk to one: answers as JSON. */
#ifndef HARPE_CLI_SERVER_CLIENT_H
#define HARPE_CLI_SERVER_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/status.h>

#include "base/text.h"
#include "http/client/connection.h"

typedef struct harpe_server_client harpe_server_client;

typedef struct harpe_server_client_options {
    const char *server;     /* http://HOST:PORT */
    const char *token_file; /* NULL: $HARPE_TOKEN, or the token of the machine's service */
    const char *ca_file;    /* NULL: $HARPE_CA_FILE, or the system's authorities */
    bool wants_finished;    /* true: ask for final reports of evicted jobs; false: for jobs */
} harpe_server_client_options;

harpe_status harpe_server_client_open(const harpe_server_client_options *options,
                                      harpe_server_client **out, harpe_error *error);
void harpe_server_client_close(harpe_server_client *client); /* NULL is allowed */

/* The address of the server if the user names none. */
#define HARPE_DEFAULT_SERVER "http://127.0.0.1:7787"

/* Sends any request. Fails with one line from the server's answer unless the answer is 200; the
 * error's vendor_code is then the HTTP status. The caller releases `*answer` with json_decref. */
harpe_status harpe_server_client_request(harpe_server_client *client, const harpe_request *request,
                                         json_t **answer, harpe_error *error);

/* Sends a request to /jobs/ID or /finished/ID. Returns HARPE_NOT_FOUND if the server does not have
 * the job, or no longer has it. Returns HARPE_UNAVAILABLE if no answer came or the server has
 * failed; the caller may then try again. The caller releases `*answer` with json_decref. */
harpe_status harpe_server_client_call(harpe_server_client *client, const char *method,
                                      const char *job_id, json_t **answer, harpe_error *error);

/* Asks for at most `limit` jobs, newest first. The list begins after the place `after`. If `after`
 * is NULL, the list leaves out the first `offset` jobs. If `query` is not NULL, it is a part of the
 * URL's query that sorts and searches the list. */
harpe_status harpe_server_client_list(harpe_server_client *client, const char *query,
                                      const char *after, size_t offset, size_t limit,
                                      json_t **answer, harpe_error *error);

/* Returns the command that lists the jobs or final reports that this client asks for, such as
 * "harpe jobs". Messages name this command. */
const char *harpe_server_client_lister(const harpe_server_client *client);

/* Appends the address of the dashboard, for a browser, to `link`. The address ends in
 * "#token=TOKEN" if the client has a token. Browsers do not send the part after "#". */
harpe_status harpe_server_client_link(harpe_server_client *client, harpe_text *link,
                                      harpe_error *error);

#endif
