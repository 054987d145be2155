/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that may be long: the list of all jobs and a job with all of its ranks. They are made in
 * pieces, each when the client has taken the one before, by calls to the engine here or at the
 * server that leads. So no client makes the server hold a long answer, and most of the loop's time
 * is left for clients that train. */
#ifndef HARPE_SERVER_LONG_ANSWERS_H
#define HARPE_SERVER_LONG_ANSWERS_H

#include "server/http.h"
#include "server/latencies.h"
#include "server/peers.h"

typedef struct harpe_long_answers harpe_long_answers;

/* NULL: out of memory. */
harpe_long_answers *harpe_long_answers_new(harpe_loop *loop, harpe_peers *peers,
                                           harpe_latencies *latencies);
/* Call it when HTTP, and with it every answer, is gone. */
void harpe_long_answers_free(harpe_long_answers *answers);
/* As harpe_routes_leave_peers. */
void harpe_long_answers_leave_peers(harpe_long_answers *answers);

/* Answers `request` with what `call` asks for: HARPE_CALL_LIST with a limit in `round`, or
 * HARPE_CALL_SHOW. Only its kind, job_id (taken over), rank and round count. The request's data is
 * the answer's from then on. */
void harpe_long_answers_begin(harpe_long_answers *answers, harpe_http_request *request,
                              const harpe_route *route, const harpe_call *call);
/* Does this data of a request belong to a long answer? */
bool harpe_long_answers_own(const void *data);
/* As of a harpe_http_handler. */
void harpe_long_answers_sent(void *data);
void harpe_long_answers_gone(void *data);

#endif
