/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a simulated job and the planner's predictions: the profile, each pipeline rank's
 * instructions with the messages between them, and predictions to compare with the measurements. */
#ifndef HARPE_SIM_PLAN_H
#define HARPE_SIM_PLAN_H

#include <harpe/plan.h>

#include "sim/options.h"

typedef struct harpe_sim_message {
    size_t index; /* among the messages of one pipeline */
    int peer;     /* pipeline rank at the other end */
} harpe_sim_message;

typedef struct harpe_sim_instruction {
    const char *name;
    int stage;
    int wait_count, send_count;
    harpe_sim_message waits[2], sends[2];
} harpe_sim_instruction;

/* A prediction for the whole job, with all of its pipelines. */
typedef struct harpe_sim_prediction {
    double time_s, energy_j;
} harpe_sim_prediction;

typedef struct harpe_sim_plan {
    harpe_profile *profile;
    harpe_schedule *schedule;
    harpe_problem *problem;
    double blocking_power_w;
    harpe_sim_instruction *instructions; /* rank by rank */
    size_t *rank_start;                  /* [pp + 1] */
    size_t message_count;                /* of one pipeline */
    harpe_sim_prediction all_maximum, fastest,
        slowed;                /* predictions with the straggler, if there is one */
    harpe_plan_set *one_clock; /* the plans with one clock for all GPUs, of one pipeline */
} harpe_sim_plan;

/* Predicts the job if all GPUs run at one clock. Of the clocks at which an iteration takes at most
 * `slowdown` (1 or more) times as long as at the highest clocks, this is the one that needs the
 * least energy. `clock_mhz` receives it; 0: no clock is better than the highest clocks. */
harpe_sim_prediction harpe_sim_predict_one_clock(const harpe_sim_options *options,
                                                 const harpe_sim_plan *plan, double slowdown,
                                                 int *clock_mhz);

/* Makes the plan. `directory` receives profile.csv, and plan.py with --offline. */
harpe_status harpe_sim_plan_load(const harpe_sim_options *options, const char *directory,
                                 harpe_sim_plan *out, harpe_error *error);
/* Makes only the part that a rank needs. */
harpe_status harpe_sim_plan_load_program(const harpe_sim_options *options, const char *profile_path,
                                         harpe_sim_plan *out, harpe_error *error);
void harpe_sim_plan_free(harpe_sim_plan *plan);

/* ---- Given plan ------------------------------------------------------------------------------ */

/* Predicts what a simulated job does with a plan file that the user gives: one list of instructions
 * for each stage, or one for each GPU. */

#endif
