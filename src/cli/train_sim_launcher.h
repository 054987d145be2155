/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of a simulated job: what torchrun, a cluster monitor and an observer with a meter do
 * for a real one. */
#ifndef HARPE_CLI_TRAIN_SIM_LAUNCHER_H
#define HARPE_CLI_TRAIN_SIM_LAUNCHER_H

#include <jansson.h>

#include "cli/train_sim_board.h"
#include "cli/train_sim_plan.h"
#include "cli/train_sim_server.h"

/* What happened when; steps are the board's (baseline included), -1: never. */
typedef struct harpe_sim_story {
    int64_t planned_round; /* the first round after learning */
    int steady_step;       /* the first step of all ranks with it */
    int straggler_step;    /* the server was told */
    int answered_step;     /* first step of all ranks with the answer's round */
    int64_t straggler_round;
    int kill_step, restart_step;
    double gpu_back_s;    /* real time from the kill until the GPU's clocks were free */
    double downtime_s;    /* real time until the ranks trained again */
    double server_gone_s; /* real time until the server answered again */
    int step_count;       /* that all ranks finished */
    json_t *frontier;     /* the server's last word; NULL: it has none. Owned */
} harpe_sim_story;

typedef struct harpe_sim_run {
    const harpe_sim_options *options;
    const harpe_sim_plan *plan;
    harpe_sim_board *board;
    harpe_sim_server *server;
    int path_fd; /* under mpirun: where the board's path is told */
    harpe_sim_story story;
} harpe_sim_run;

/* Starts the ranks (unless MPI does), has everything happen, and returns when all ranks are gone.
 */
harpe_status harpe_sim_launch(harpe_sim_run *run, harpe_error *error);

#endif
