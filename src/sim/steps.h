/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a simulated run, summed over its ranks. */
#ifndef HARPE_SIM_STEPS_H
#define HARPE_SIM_STEPS_H

#include <jansson.h>

#include "sim/board.h"

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

#endif
