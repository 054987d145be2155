/* SPDX-License-Identifier: Apache-2.0 */
/* A client of one coordination server: requests without a body, answers as JSON. */
#ifndef HARPE_CLI_JOBS_CLIENT_H
#define HARPE_CLI_JOBS_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/status.h>

#include "base/text.h"

typedef struct harpe_jobs_client harpe_jobs_client;

typedef struct harpe_jobs_client_options {
    const char *server;     /* http://HOST:PORT */
    const char *token_file; /* NULL: $HARPE_TOKEN, or that of the machine's service */
    const char *ca_file;    /* NULL: the system's certificate authorities */
} harpe_jobs_client_options;

harpe_status harpe_jobs_client_open(const harpe_jobs_client_options *options,
                                    harpe_jobs_client **out, harpe_error *error);
void harpe_jobs_client_close(harpe_jobs_client *client); /* NULL is allowed */

/* One request to /jobs/ID. HARPE_NOT_FOUND says that the server has no such job (any more),
 * HARPE_UNAVAILABLE that no answer came; it may be worth trying again. `*answer` is to be released
 * with json_decref. */
harpe_status harpe_jobs_client_call(harpe_jobs_client *client, const char *method,
                                    const char *job_id, json_t **answer, harpe_error *error);

/* Asks for at most 1000 jobs: those after the place `after`, or, if it is NULL, all but the newest
 * `offset`. */
harpe_status harpe_jobs_client_list(harpe_jobs_client *client, const char *after, size_t offset,
                                    json_t **answer, harpe_error *error);

/* The address of the dashboard, for a browser. It ends in "#token=TOKEN" if the client has a token:
 * browsers do not send that part. Appended to `link`. */
harpe_status harpe_jobs_client_link(harpe_jobs_client *client, harpe_text *link,
                                    harpe_error *error);

#endif
