/* SPDX-License-Identifier: Apache-2.0 */
/* A file with one line of JSON for each step of a simulated run. It grows while the run goes on, so
 * that another program can follow the power of the emulated GPUs. */
#ifndef HARPE_SIM_STEP_LOG_H
#define HARPE_SIM_STEP_LOG_H

#include <stdio.h>

#include "sim/board.h"

typedef struct harpe_sim_step_log {
    const char *path;
    FILE *file; /* NULL: none is wanted */
    int written;
} harpe_sim_step_log;

/* Opens the file that the options name, if they name one. Empties it. */
harpe_status harpe_sim_step_log_open(const harpe_sim_options *options, harpe_sim_step_log *out,
                                     harpe_error *error);
/* Writes the steps that were not written before, up to the step before `count`. */
harpe_status harpe_sim_step_log_write(harpe_sim_step_log *log, const harpe_sim_board *board,
                                      int count, harpe_error *error);
void harpe_sim_step_log_close(harpe_sim_step_log *log);

#endif
