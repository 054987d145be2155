/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: what changes among jobs, told to whoever looks, as it happens. A stream is a
 * response that does not end; behind it one call after another waits for the next change, here or
 * at the server that leads. Nobody who trains is held up by it: streams are few, and are the first
 * to give way. */
#ifndef HARPE_SERVER_EVENTS_H
#define HARPE_SERVER_EVENTS_H

#include "server/http.h"
#include "server/peers.h"

typedef struct harpe_events harpe_events;

harpe_events *harpe_events_new(harpe_loop *loop, harpe_peers *peers); /* NULL: out of memory */
/* When HTTP is gone, and with it every stream. */
void harpe_events_free(harpe_events *events);
/* As harpe_routes_leave_peers. */
void harpe_events_leave_peers(harpe_events *events);

/* Of one job, or of all (`job_id` NULL; else it is copied). Answers `request` at once where it
 * cannot. The request's data is the stream's from then on. */
void harpe_events_open(harpe_events *events, harpe_http_request *request, const char *job_id);
/* Is this data of a request that of a stream? */
bool harpe_events_owns(const void *data);
/* As of a harpe_http_handler. */
void harpe_events_sent(void *data);
void harpe_events_gone(void *data);

#endif
