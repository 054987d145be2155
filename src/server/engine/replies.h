/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a call. If `call` is NULL, its client is gone, and these functions do nothing. After the
 * answer the call no longer belongs to the engine. */
#ifndef HARPE_SERVER_ENGINE_REPLIES_H
#define HARPE_SERVER_ENGINE_REPLIES_H

#include <stddef.h>
#include <stdint.h>

#include "pfo/models.h"
#include "server/engine/call.h"

/* Takes over `body`, which may be NULL. */
void harpe_reply(harpe_call *call, int http_status, char *body, size_t length, int64_t round);
void harpe_reply_null(harpe_call *call, int64_t round);
void harpe_reply_detail(harpe_call *call, int http_status, const char *format, ...)
    HARPE_PRINTF(3, 4);
/* Answers 422, or 503 if there was no memory to collect the problems. */
void harpe_reply_problems(harpe_call *call, const harpe_problems *problems);
void harpe_reply_out_of_memory(harpe_call *call);
void harpe_reply_stopping(harpe_call *call);
void harpe_reply_evicted(harpe_call *call, const char *job_id);
void harpe_reply_not_stored(harpe_call *call, const harpe_error *error);
/* Returns the HTTP status for a scheduler's error. */
int harpe_http_status_of(harpe_status status);

#endif
