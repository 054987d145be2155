/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the server's answers by the action that they require. The HTTP status alone is not enough,
 * because a proxy or another program at the address answers 404 and 500 too, but without a
 * `detail`. */
#include "client/optimizer_internal.h"

#include <jansson.h>
#include <string.h>

#include "http/client/connection.h"

/* ---- Outcomes -------------------------------------------------------------------------------- */

static harpe_reply_outcome outcome_of(long http_status) {
    switch (http_status) {
    case 401:
    case 403:
    case 500: return HARPE_REPLY_FAILED;
    case 404:
    case 410: return HARPE_REPLY_GONE;
    case 409: return HARPE_REPLY_CONFLICT;
    case 400:
    case 413:
    case 422: return HARPE_REPLY_REFUSED;
    default: return HARPE_REPLY_AWAY;
    }
}

static void set_nonsense(harpe_reply *reply, long http_status) {
    reply->outcome = HARPE_REPLY_AWAY;
    harpe_tell_nonsense(http_status, reply->reason);
}

/* Sends a request and fills in `reply`. `*answer` is valid if the outcome is ANSWERED. */
static void exchange(harpe_connection *connection, const harpe_request *request,
                     harpe_answer *answer, harpe_reply *reply) {
    *reply = (harpe_reply){.outcome = HARPE_REPLY_AWAY};
    *answer = (harpe_answer){.round = -1};
    switch (harpe_exchange(connection, request, answer, reply->reason)) {
    case HARPE_EXCHANGE_ACCEPTED: reply->outcome = HARPE_REPLY_ANSWERED; break;
    case HARPE_EXCHANGE_REFUSED: reply->outcome = outcome_of(answer->http_status); break;
    case HARPE_EXCHANGE_INTERRUPTED: reply->outcome = HARPE_REPLY_INTERRUPTED; break;
    case HARPE_EXCHANGE_NONSENSE:
    case HARPE_EXCHANGE_UNANSWERED: break;
    }
    reply->round = answer->round;
}

void harpe_reply_to(harpe_connection *connection, const harpe_request *request,
                    harpe_reply *reply) {
    harpe_answer answer;
    exchange(connection, request, &answer, reply);
    if (reply->outcome == HARPE_REPLY_ANSWERED && strncmp(answer.body, "null", 4) != 0)
        set_nonsense(reply, answer.http_status);
}

void harpe_reply_to_registration(harpe_connection *connection, const char *job_body, char *job_id,
                                 size_t size, harpe_reply *reply) {
    harpe_request request = {.path = "/register_job", .segment = "", .query = "", .body = job_body};
    harpe_answer answer;
    exchange(connection, &request, &answer, reply);
    /* A registration names no job, so the answer cannot mean that a job is gone. A conflict with a
     * job of the same key and other degrees may end, because the server may evict that job. */
    if (reply->outcome == HARPE_REPLY_GONE) reply->outcome = HARPE_REPLY_AWAY;
    if (reply->outcome == HARPE_REPLY_CONFLICT) reply->outcome = HARPE_REPLY_FAILED;
    if (reply->outcome != HARPE_REPLY_ANSWERED) return;
    json_t *id = json_loadb(answer.body, answer.length, JSON_DECODE_ANY, NULL);
    size_t length = json_string_length(id);
    if (length == 0 || length >= size)
        set_nonsense(reply, answer.http_status);
    else
        memcpy(job_id, json_string_value(id), length + 1);
    json_decref(id);
}

bool harpe_reply_is_published(harpe_connection *connection) {
    harpe_request request = {.path = "/info", .segment = "", .query = ""};
    harpe_answer answer;
    harpe_reply reply;
    exchange(connection, &request, &answer, &reply);
    return reply.outcome == HARPE_REPLY_GONE;
}

void harpe_reply_with_schedule(harpe_connection *connection, const harpe_request *request, int rank,
                               harpe_frequency_schedule *schedule, harpe_reply *reply) {
    harpe_answer answer;
    exchange(connection, request, &answer, reply);
    if (reply->outcome != HARPE_REPLY_ANSWERED) return;
    harpe_frequency_schedule found = {0};
    harpe_status status = harpe_frequency_schedule_parse(answer.body, answer.length, &found, NULL);
    if (status != HARPE_OK || found.rank != rank) {
        harpe_frequency_schedule_free(&found);
        set_nonsense(reply, answer.http_status);
        return;
    }
    *schedule = found;
}
