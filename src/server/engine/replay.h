/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a new scheduler to the state that matches the stored rounds of the job. */
#ifndef HARPE_SERVER_ENGINE_REPLAY_H
#define HARPE_SERVER_ENGINE_REPLAY_H

#include "server/engine/turn_steps.h"

/* The last state of the job's scheduler, from the store or from its last turn. */
typedef struct harpe_saved_state {
    const char *text; /* NULL: there is none */
    size_t length;
    int64_t round; /* the replay begins with this round */
} harpe_saved_state;
harpe_saved_state harpe_job_saved_state(const harpe_job *job);

/* Loads the saved state, if any, replays the stored rounds after it, and fills in `outcome`. May
 * free *scheduler and set it to NULL. If this fails, the caller frees *scheduler. Call this on a
 * worker. */
harpe_status harpe_turn_replay(harpe_turn *turn, harpe_turn_outcome *outcome,
                               harpe_scheduler **scheduler);

#endif
