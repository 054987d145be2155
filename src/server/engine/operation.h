/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: calls that are decoded, stored and answered. */
#ifndef HARPE_SERVER_ENGINE_OPERATION_H
#define HARPE_SERVER_ENGINE_OPERATION_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"
#include "server/store/change.h"

/* Makes an operation, and takes over `call` and its body. `call` NULL: the engine itself makes the
 * operation. If there is no memory, answers the call and returns NULL. */
harpe_operation *harpe_operation_new(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Makes an operation of a kind that has its own data: a structure of `size` bytes that begins with
 * a harpe_operation. The other bytes are 0. `free_own` frees the data of the kind. */
void *harpe_operation_new_kind(harpe_jobs *jobs, harpe_job *job, harpe_call *call, size_t size,
                               void (*free_own)(harpe_operation *operation));
/* Runs `work` on a worker, and then `done` on the loop. If the body is short, runs both on the loop
 * before it returns. */
void harpe_operation_decode(harpe_operation *operation, void (*work)(void *user),
                            void (*done)(void *user));
/* Runs `work`, which reads from the store, on a worker, and then `done` on the loop. */
void harpe_operation_read(harpe_operation *operation, void (*work)(void *user),
                          void (*done)(void *user));
/* Stores the operation's change, and then calls `done`. */
void harpe_operation_store(harpe_operation *operation, harpe_change_kind kind,
                           void (*done)(void *user, harpe_status status, const harpe_error *error));
/* Returns true if the operation must not continue: its client is gone, its job is evicted, or the
 * server stops. In this case, answers the call and frees the operation. */
bool harpe_operation_is_void(harpe_operation *operation);
/* Frees `operation`. Its call is handled again when `other` has ended. */
void harpe_operation_wait_for(harpe_operation *operation, harpe_operation *other);
void harpe_call_wait_for(harpe_call *call, harpe_operation *other);
/* Returns the call, which the caller answers. NULL: its client is gone. */
harpe_call *harpe_operation_take_call(harpe_operation *operation);
/* Frees the operation. The calls that waited for it are handled again. */
void harpe_operation_end(harpe_operation *operation);

#endif
