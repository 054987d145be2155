/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a whole simulated job, from its temporary directory to the report. */
#ifndef HARPE_SIM_RUN_H
#define HARPE_SIM_RUN_H

#include "sim/launcher.h"
#include "world/transport.h"
#include "world/world.h"

/* Reports a run. Everything that the run used still exists during the call. */
typedef harpe_status harpe_sim_report(const harpe_sim_run *run, harpe_error *error);

/* How a run is staged. Zeros, with path_fd -1: as `harpe train-sim` does. */
typedef struct harpe_sim_staging {
    /* Runs the ranks and returns when all are gone. NULL: harpe_sim_launch. */
    harpe_status (*launch)(harpe_sim_run *run, harpe_error *error);
    harpe_sim_report *report; /* called if the job succeeded; NULL: none */
    int path_fd; /* the descriptor to which the board's path is written under mpirun; -1: none */
    /* In a world. Its programs and its time are set here; NULL: in order, with the job's seed. */
    const harpe_world_options *world;
    const harpe_transport_options *messages; /* NULL: without faults */
} harpe_sim_staging;

/* Runs the job, and removes everything that the run has made, even if this process is killed. The
 * caller records signals (base/terminal_progress.h), which end the run. */
harpe_status harpe_sim_run_job(const harpe_sim_options *options, const harpe_sim_staging *staging,
                               harpe_error *error);

#endif
