/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a harpe server, with the reason in words if one fails. A harpe server gives the
 * reason as {"detail": "a line"}, or as a list of wrong fields. */
#ifndef HARPE_HTTP_CLIENT_EXCHANGE_H
#define HARPE_HTTP_CLIENT_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "http/client/connection.h"

/* Writes the reason to `text`. Returns false if the answer does not have the form of a harpe
 * server's answers: a proxy or another program has answered. */
bool harpe_answer_detail(const harpe_answer *answer, char *text, size_t size);

typedef enum harpe_exchange_result {
    HARPE_EXCHANGE_ACCEPTED,    /* answered with 200 */
    HARPE_EXCHANGE_REFUSED,     /* answered by a harpe server with another HTTP status */
    HARPE_EXCHANGE_NONSENSE,    /* answered by something else */
    HARPE_EXCHANGE_UNANSWERED,  /* no complete answer */
    HARPE_EXCHANGE_INTERRUPTED, /* as HARPE_INTERRUPTED of harpe_connection_call */
} harpe_exchange_result;

enum { HARPE_REASON_SIZE = 640 };

/* Makes a request. `*answer` is set if there is one: ACCEPTED, REFUSED or NONSENSE. Writes the
 * reason to `reason` if the result is not ACCEPTED. */
harpe_exchange_result harpe_exchange(harpe_connection *connection, const harpe_request *request,
                                     harpe_answer *answer, char reason[HARPE_REASON_SIZE]);
/* Writes the reason for an answer that no harpe server gives. */
void harpe_tell_nonsense(long http_status, char reason[HARPE_REASON_SIZE]);

#endif
