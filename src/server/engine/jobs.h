/* SPDX-License-Identifier: Apache-2.0 */
/* The engine keeps jobs, their ranks and their rounds as explicit states. It takes calls (requests
 * without HTTP) and answers each call exactly once, at once or later. It stores a change durably
 * before it answers the call. All functions run on the loop's thread.
 *
 * A job:    registering -> preparing -> gathering -> running -> observing -> gathering -> ...
 *           (ranks         (a worker     (ranks ask)  (results    (a worker shows
 *           register)      makes the                  come)       the results to
 *                          scheduler)                             the scheduler)
 *
 * A job in any state can become ended (all ranks have reported their end; the job continues if one
 * registers again), failed or evicted.
 *
 * A rank:   unknown -> registered -> asking (its call is held) -> served -> reported -> asking ...
 *
 * When every rank asks, the schedules of round k are stored and then handed out. A rank that has
 * the schedule of round k may ask again without saying which round it has. Its call is then held
 * for the next round. There is an exception: if the answer may not have arrived (the connection
 * broke, or the server was restarted after the answer), the rank gets the schedule of round k
 * again, once. */
#ifndef HARPE_SERVER_ENGINE_JOBS_H
#define HARPE_SERVER_ENGINE_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "rights/tokens.h"
#include "server/engine/call.h"
#include "server/engine/jobs_options.h"

/* ---- The engine ------------------------------------------------------------------------------ */

typedef struct harpe_jobs harpe_jobs;

/* Makes an engine and loads all jobs of the store. Each job continues in its stored state. Blocks.
 * Pointers in `options` must stay valid until harpe_jobs_free. */
harpe_status harpe_jobs_new(const harpe_jobs_options *options, harpe_jobs **out,
                            harpe_error *error);
/* Answers all remaining calls with 503 and frees the engine. At the end of the program, call
 * harpe_jobs_stop, harpe_workers_free, harpe_store_close (which completes the pending changes) and
 * then this function. */
void harpe_jobs_free(harpe_jobs *jobs);

void harpe_jobs_handle(harpe_jobs *jobs, harpe_call *call);
/* Call this when the client of a call disconnects before the answer. The caller may free the call
 * afterwards. */
void harpe_jobs_forget(harpe_jobs *jobs, harpe_call *call);
/* Call this after an answer with a schedule was sent. `has_arrived` is false if the answer may not
 * have arrived. */
void harpe_jobs_delivered(harpe_jobs *jobs, const char *job_id, int rank, int64_t round,
                          bool has_arrived);

/* Says which group is inside of which other one (rights/group_tree.h). `tree` must stay valid until
 * the engine is freed or gets NULL, and the caller calls harpe_jobs_regroup after each change of
 * it.
 */
void harpe_jobs_use_groups(harpe_jobs *jobs, const harpe_group_tree *tree);
void harpe_jobs_regroup(harpe_jobs *jobs);

/* Stops the engine like harpe_jobs_stop, but the workers and the program continue. Returns the held
 * calls for schedules without answering them, as a list linked by `next`. Another engine can handle
 * them. */
harpe_call *harpe_jobs_retire(harpe_jobs *jobs);
/* Answers every held call with 503 (the server is stopping, so the client tries again). Changes
 * that are being stored are still completed. Later calls get 503. */
void harpe_jobs_stop(harpe_jobs *jobs);
/* Returns true if nothing is in flight. */
bool harpe_jobs_are_idle(const harpe_jobs *jobs);

/* ---- Looking at it --------------------------------------------------------------------------- */

harpe_jobs_counts harpe_jobs_count(const harpe_jobs *jobs);

#endif
