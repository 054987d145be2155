/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the server's answers into a few outcomes, with a reason in words. An answer that cannot
 * come from a harpe server counts as "there is no server". */
#ifndef HARPE_CLIENT_OPTIMIZER_ANSWERS_H
#define HARPE_CLIENT_OPTIMIZER_ANSWERS_H

#include <harpe/pfo.h>

#include "http/client/connection.h"

typedef enum harpe_reply_outcome {
    HARPE_REPLY_ANSWERED,    /* the request succeeded */
    HARPE_REPLY_INTERRUPTED, /* the connection's `go_on` returned false */
    HARPE_REPLY_AWAY,        /* no server, or not a harpe server */
    HARPE_REPLY_GONE,        /* the server does not know the job */
    HARPE_REPLY_CONFLICT,    /* the server has other data in this place */
    HARPE_REPLY_REFUSED,     /* the server will never accept this request */
    HARPE_REPLY_FAILED,      /* the job has failed on the server, or the token is wrong */
} harpe_reply_outcome;

typedef struct harpe_reply {
    harpe_reply_outcome outcome;
    int64_t round;                  /* from the header Harpe-Round; -1: none */
    char reason[HARPE_REASON_SIZE]; /* set if the outcome is not ANSWERED */
} harpe_reply;

/* Sends a request whose answer has no content. */
void harpe_reply_to(harpe_connection *connection, const harpe_request *request, harpe_reply *reply);
/* Sends POST /register_job. */
void harpe_reply_to_registration(harpe_connection *connection, const char *job_body, char *job_id,
                                 size_t size, harpe_reply *reply);
/* Returns true if the answer to GET /info is that of the published server, which has no such page.
 * That server makes a separate job for each rank that registers. */
bool harpe_reply_is_published(harpe_connection *connection);
/* Sends GET /schedule. If the outcome is ANSWERED, the caller frees `*schedule`. */
void harpe_reply_with_schedule(harpe_connection *connection, const harpe_request *request, int rank,
                               harpe_frequency_schedule *schedule, harpe_reply *reply);

#endif
