/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: each stream sends the changes among jobs to its client as they happen. A
 * stream is a response that does not end. It makes one call after another, and each call waits for
 * the next change, here or at the leader. Streams do not delay training, because there are few of
 * them and HTTP closes them when connections run out. */
#ifndef HARPE_SERVER_API_EVENTS_H
#define HARPE_SERVER_API_EVENTS_H

#include "http/http.h"
#include "server/lead/lead.h"

typedef struct harpe_events harpe_events;

harpe_events *harpe_events_new(harpe_loop *loop, harpe_lead *lead); /* NULL: out of memory */
/* Frees the streams. Call it after harpe_http_free, which closes every stream. */
void harpe_events_free(harpe_events *events);
/* Does the same as harpe_routes_leave_engine, for streams. */
void harpe_events_leave_engine(harpe_events *events);

/* Opens a stream of one job, or of all jobs if `job_id` is NULL. Copies `job_id`. If no stream can
 * be opened, answers `request` at once. Otherwise the request's data belongs to the stream from
 * then on. */
void harpe_events_open(harpe_events *events, harpe_http_request *request, const char *job_id,
                       const char *scope);
/* Returns true if `data`, the data of a request, belongs to a stream. */
/* Ends the streams for which `may_go_on` returns false. It gets the stream's request and scope. */
void harpe_events_check(harpe_events *events,
                        bool (*may_go_on)(void *user, const harpe_http_request *request,
                                          const char *scope),
                        void *user);
bool harpe_events_owns(const void *data);
/* The function `sent` of a harpe_http_handler. */
void harpe_events_sent(void *data);
void harpe_events_gone(void *data);

#endif
