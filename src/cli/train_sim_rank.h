/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a simulated training job, as a process of its own has it. */
#ifndef HARPE_CLI_TRAIN_SIM_RANK_H
#define HARPE_CLI_TRAIN_SIM_RANK_H

#include "cli/train_sim_board.h"
#include "cli/train_sim_plan.h"

typedef struct harpe_sim_rank_job {
    harpe_sim_board *board;
    const harpe_sim_options *options;
    const harpe_sim_plan *plan; /* its program */
    int rank;
    harpe_sim_transport transport;
} harpe_sim_rank_job;

/* Trains until the board says stop: first without the optimizer, unless that is done already, then
 * with it. Ranks count tensor parallel peers first, then data parallel ones, then stages. */
harpe_status harpe_sim_rank_run(const harpe_sim_rank_job *job, harpe_error *error);

#endif
