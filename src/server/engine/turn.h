/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: a job does one thing at a time with its scheduler. */
#ifndef HARPE_SERVER_ENGINE_TURN_H
#define HARPE_SERVER_ENGINE_TURN_H

#include "server/engine/job_state.h"

/* Begins a turn: a structure of kind->size bytes that begins with a harpe_turn. The other bytes are
 * 0. Returns NULL if memory runs out. */
void *harpe_turn_new(harpe_job *job, const harpe_turn_kind *kind);
/* Frees the turn and marks its job. */
void harpe_turn_end(harpe_turn *turn);
/* Runs `work` on a worker of the pool and then `done` on the loop. */
void harpe_turn_run_in(harpe_turn *turn, int pool, void (*work)(void *user),
                       void (*done)(void *user));
/* Does the same in the pool of the job's scheduler. */
void harpe_turn_run(harpe_turn *turn, void (*work)(void *user), void (*done)(void *user));
/* Call this first in `done`. If the job was evicted meanwhile, ends the turn and returns false. */
bool harpe_turn_is_back(harpe_turn *turn);
/* Ends the turn, stores `error`, and then makes the job fail. `error` may be the turn's own
 * error. */
void harpe_turn_fail_job(harpe_turn *turn, const harpe_error *error);

#endif
