/* SPDX-License-Identifier: Apache-2.0 */
/* A client of one coordination server: requests without a body, answers as JSON. */
#ifndef HARPE_CLI_JOBS_JOBS_CLIENT_H
#define HARPE_CLI_JOBS_JOBS_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/status.h>

#include "base/text.h"

typedef struct harpe_jobs_client harpe_jobs_client;

typedef struct harpe_jobs_client_options {
    const char *server;     /* http://HOST:PORT */
    const char *token_file; /* NULL: $HARPE_TOKEN, or the token of the machine's service */
    const char *ca_file;    /* NULL: the system's certificate authorities */
    bool wants_finished;    /* asks for final reports of evicted jobs, and not for jobs */
} harpe_jobs_client_options;

harpe_status harpe_jobs_client_open(const harpe_jobs_client_options *options,
                                    harpe_jobs_client **out, harpe_error *error);
void harpe_jobs_client_close(harpe_jobs_client *client); /* NULL is allowed */

/* Sends a request to /jobs/ID or /finished/ID. Returns HARPE_NOT_FOUND if the server does not have
 * the job, or no longer has it. Returns HARPE_UNAVAILABLE if no answer came or the server has
 * failed; the caller may then try again. The caller releases `*answer` with json_decref. */
harpe_status harpe_jobs_client_call(harpe_jobs_client *client, const char *method,
                                    const char *job_id, json_t **answer, harpe_error *error);

/* Asks for at most 1000 jobs, newest first. The list begins after the place `after`. If `after` is
 * NULL, the list leaves out the newest `offset` jobs. */
harpe_status harpe_jobs_client_list(harpe_jobs_client *client, const char *after, size_t offset,
                                    json_t **answer, harpe_error *error);

/* Returns the command that lists what this client asks for. */
const char *harpe_jobs_client_lister(const harpe_jobs_client *client);

/* Appends the address of the dashboard, for a browser, to `link`. The address ends in
 * "#token=TOKEN" if the client has a token. Browsers do not send the part after "#". */
harpe_status harpe_jobs_client_link(harpe_jobs_client *client, harpe_text *link,
                                    harpe_error *error);

#endif
