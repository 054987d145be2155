/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a simulated training job, which is a process. */
#ifndef HARPE_SIM_RANK_H
#define HARPE_SIM_RANK_H

#include "sim/board.h"
#include "sim/plan.h"

typedef struct harpe_sim_rank_job {
    harpe_sim_board *board;
    const harpe_sim_options *options;
    const harpe_sim_plan *plan; /* its program */
    int rank;
    harpe_sim_transport transport;
} harpe_sim_rank_job;

/* Trains until the board requests a stop: first without the optimizer, unless an earlier start has
 * done this part, then with the optimizer. From one rank to the next, the tensor parallel index
 * changes first, then the data parallel index, then the stage. */
harpe_status harpe_sim_rank_run(const harpe_sim_rank_job *job, harpe_error *error);

#endif
