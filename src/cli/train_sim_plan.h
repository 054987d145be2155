/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated job runs, and what the planner says of it: the profile, each pipeline rank's
 * instructions with the messages between them, and predictions to hold the measurements against. */
#ifndef HARPE_CLI_TRAIN_SIM_PLAN_H
#define HARPE_CLI_TRAIN_SIM_PLAN_H

#include "cli/train_sim.h"

typedef struct harpe_sim_message {
    size_t index; /* among those of one pipeline */
    int peer;     /* pipeline rank at the other end */
} harpe_sim_message;

typedef struct harpe_sim_instruction {
    const char *name;
    int stage;
    int wait_count, send_count;
    harpe_sim_message waits[2], sends[2];
} harpe_sim_instruction;

/* Of the whole job: all of its pipelines. */
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
        slowed; /* slowed: by the straggler, if there is one */
} harpe_sim_plan;

/* `directory` receives profile.csv, and plan.py with --offline. */
harpe_status harpe_sim_plan_load(const harpe_sim_options *options, const char *directory,
                                 harpe_sim_plan *out, harpe_error *error);
/* The part that a rank needs. */
harpe_status harpe_sim_plan_load_program(const harpe_sim_options *options, const char *profile_path,
                                         harpe_sim_plan *out, harpe_error *error);
void harpe_sim_plan_free(harpe_sim_plan *plan);

#endif
