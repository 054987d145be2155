/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a whole simulated job, from its temporary directory to the report. */
#ifndef HARPE_SIM_RUN_H
#define HARPE_SIM_RUN_H

#include "sim/launcher.h"

/* Reports a run. Everything that the run used still exists during the call. */
typedef harpe_status harpe_sim_report(const harpe_sim_run *run, harpe_error *error);

/* Runs the job, calls `report` if the job succeeded, and removes everything that the run has made,
 * even if this process is killed. `path_fd` is the descriptor to which the board's path is written
 * under mpirun; -1: none. The caller records signals (base/terminal_progress.h), which end the
 * run. */
harpe_status harpe_sim_run_job(const harpe_sim_options *options, int path_fd,
                               harpe_sim_report *report, harpe_error *error);

#endif
