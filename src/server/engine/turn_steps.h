/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that turns of several kinds share. */
#ifndef HARPE_SERVER_ENGINE_TURN_STEPS_H
#define HARPE_SERVER_ENGINE_TURN_STEPS_H

#include "server/engine/job_state.h"

/* Shows the results of `round` to the scheduler if it observes results. Call this on a worker. */
harpe_status harpe_turn_observe(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                const harpe_round_results *results);
/* The result of a turn with the scheduler. A worker collects it, and the loop applies it. */
typedef struct harpe_turn_outcome {
    harpe_round_text *next; /* NULL: the schedules are as before */
    bool is_finished;
    char *state_text; /* NULL: the state is not kept */
    size_t state_length;
    harpe_figures figures;
    bool has_figures;
    harpe_conduct_sums conduct;
    int64_t tokens_per_step;   /* 0: not known */
    harpe_scheduler_file file; /* a file to write; path NULL: none */
} harpe_turn_outcome;

/* Frees all texts and schedules of the outcome, and then sets its members to 0. */
void harpe_turn_outcome_clear(harpe_turn_outcome *outcome);
/* Collects the scheduler's new state, schedules, figures and file in `outcome`. `schedules` NULL:
 * the schedules have not changed. Call this on a worker. */
harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_turn_outcome *outcome,
                                 harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules);
/* Applies the outcome to the job, and takes over the outcome's data. Call this on the loop. */
void harpe_apply_turn(const harpe_turn *turn, harpe_turn_outcome *outcome);

#endif
