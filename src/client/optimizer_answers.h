/* SPDX-License-Identifier: Apache-2.0 */
/* What the server's answers mean to an optimizer: one of few outcomes, with a reason in words.
 * Everything that a harpe server does not say is taken as "there is no server". */
#ifndef HARPE_CLIENT_OPTIMIZER_ANSWERS_H
#define HARPE_CLIENT_OPTIMIZER_ANSWERS_H

#include <harpe/pfo.h>

#include "client/connection.h"

typedef enum harpe_reply_outcome {
    HARPE_REPLY_ANSWERED,    /* as hoped for */
    HARPE_REPLY_INTERRUPTED, /* by the connection's `go_on` */
    HARPE_REPLY_AWAY,        /* nobody there, or not a harpe server */
    HARPE_REPLY_GONE,        /* it does not know the job */
    HARPE_REPLY_CONFLICT,    /* it has something else at this place already */
    HARPE_REPLY_REFUSED,     /* it will never take this */
    HARPE_REPLY_FAILED,      /* the job has failed there, or it wants another token */
} harpe_reply_outcome;

typedef struct harpe_reply {
    harpe_reply_outcome outcome;
    int64_t round;    /* Harpe-Round; -1: none */
    char reason[512]; /* of anything but ANSWERED */
} harpe_reply;

/* A request whose answer has no content. */
void harpe_reply_to(harpe_connection *connection, const harpe_request *request, harpe_reply *reply);
/* POST /register_job. */
void harpe_reply_to_registration(harpe_connection *connection, const char *job_body, char *job_id,
                                 size_t size, harpe_reply *reply);
/* True if the answer to GET /info is that of the published server, which has no such page. That
 * server gives every rank that registers a job of its own. */
bool harpe_reply_is_published(harpe_connection *connection);
/* GET /schedule; `*schedule` is the caller's to free where the outcome is ANSWERED. */
void harpe_reply_with_schedule(harpe_connection *connection, const harpe_request *request, int rank,
                               harpe_frequency_schedule *schedule, harpe_reply *reply);

#endif
