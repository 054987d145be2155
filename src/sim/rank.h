/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a simulated job, and its steps. */
#ifndef HARPE_SIM_RANK_H
#define HARPE_SIM_RANK_H

#include <jansson.h>
#include <stdio.h>

#include "sim/board.h"
#include "sim/plan.h"

/* One step of all ranks together. */
typedef struct harpe_sim_step_sum {
    bool is_whole;   /* all ranks have finished it */
    int64_t round;   /* the earliest round that a rank ran; -1: none */
    double time_s;   /* of the emulated GPUs */
    double energy_j; /* of all GPUs */
    uint64_t clock_writes;
    double host_late_s; /* the longest delay with which this machine woke a rank, as GPU time */
    double ended_at_s;  /* real time at its end, seconds since 1970 */
} harpe_sim_step_sum;

/* `ranks` is a row of the board. */
harpe_sim_step_sum harpe_sim_sum_step(const harpe_sim_board *board, const harpe_sim_step *ranks);
/* Returns a step as a JSON object, a new reference; NULL if memory runs out. */
json_t *harpe_sim_show_step(const harpe_sim_board *board, const harpe_sim_step *ranks);

/* ---- The log of steps ------------------------------------------------------------------------ */

/* A file with one line of JSON for each step of a simulated run. It grows while the run goes on, so
 * that another program can follow the power of the emulated GPUs. */

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

/* ---- The rank -------------------------------------------------------------------------------- */

/* One rank of a simulated training job, which is a process. */

typedef struct harpe_sim_rank_job {
    harpe_sim_board *board;
    const harpe_sim_options *options;
    const harpe_sim_plan *plan; /* its program */
    int rank;
} harpe_sim_rank_job;

/* Trains until the board requests a stop: first without the optimizer, unless an earlier start has
 * done this part, then with the optimizer. From one rank to the next, the tensor parallel index
 * changes first, then the data parallel index, then the stage. */
harpe_status harpe_sim_rank_run(const harpe_sim_rank_job *job, harpe_error *error);

#endif
