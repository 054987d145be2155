/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that may be long: the list of all jobs, and a job with all of its ranks. A call to the
 * engine makes one piece. Each piece is made after the client has taken the piece before it. So the
 * server never holds a whole long answer, and most of the loop's time is left for clients that
 * train. */
#ifndef HARPE_SERVER_API_LONG_ANSWERS_H
#define HARPE_SERVER_API_LONG_ANSWERS_H

#include "http/http.h"
#include "server/api/latencies.h"
#include "server/lead/lead.h"

typedef struct harpe_long_answers harpe_long_answers;

/* NULL: out of memory. */
harpe_long_answers *harpe_long_answers_new(harpe_loop *loop, harpe_lead *lead,
                                           harpe_latencies *latencies);
/* Frees the answers. Call it after harpe_http_free, which ends every answer. */
void harpe_long_answers_free(harpe_long_answers *answers);
/* Does the same as harpe_routes_leave_engine, for long answers. */
void harpe_long_answers_leave_engine(harpe_long_answers *answers);

/* Answers `request` with the data that `call` asks for: HARPE_CALL_LIST with a limit in `round`, or
 * HARPE_CALL_SHOW. Uses only the kind, job_id, scope (both taken over), rank and round of `call`.
 * The request's data belongs to the answer from then on. */
void harpe_long_answers_begin(harpe_long_answers *answers, harpe_http_request *request,
                              const harpe_route *route, const harpe_call *call);
/* Returns true if `data`, the data of a request, belongs to a long answer. */
bool harpe_long_answers_own(const void *data);
/* The function `sent` of a harpe_http_handler. */
void harpe_long_answers_sent(void *data);
void harpe_long_answers_gone(void *data);

#endif
