/* SPDX-License-Identifier: Apache-2.0 */
/* One round's results, read for the online schedulers: what a run of each (stage, instruction) took
 * in time and energy, what an iteration took, and what the GPUs drew while they waited. Results
 * come from outside: whatever is missing or makes no sense is left out and said, never fatal. */
#ifndef HARPE_SERVER_SCHEDULERS_ONLINE_ROUND_H
#define HARPE_SERVER_SCHEDULERS_ONLINE_ROUND_H

#include "server/schedulers/online_pipeline.h"

typedef struct harpe_online_mean {
    double time_s, energy_j; /* of one run; both 0: not measured */
} harpe_online_mean;

typedef struct harpe_online_round {
    harpe_online_mean *entries; /* one per entry: the stage's ranks together (time: the slowest;
                                   energy: their sum) */
    size_t iterations;          /* the most that a rank reported */
    double iteration_time_s;    /* of the slowest rank; 0: not all reported it */
    double iteration_energy_j;  /* of all ranks; 0: not all reported it */
    /* For iterations of all ranks together (time: that of the slowest rank; energy: the sum): the
     * standard deviation of the round's iterations, the number of iterations that it is based on (0
     * or 1: not known), and the sum over the iterations. */
    double time_spread_s, energy_spread_j;
    size_t spread_iterations;
    double total_time_s, total_energy_j;
    /* Iterations less all that the ranks have in their breakdowns: summed over ranks, of one
     * iteration; both 0 when not all ranks tell. */
    double waiting_time_s, waiting_energy_j;
    bool ran_other_steps; /* an instruction more or less often than the schedule has it */
    char problem[256];    /* why an entry was not measured, for people; "": all were */
} harpe_online_round;

/* `results` has one per rank, in the order of `ranks`. Over iterations the median is taken, or the
 * mean of fewer than three. Free with harpe_online_round_free. */
harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_rank_info *ranks,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_online_round *out, harpe_error *error);
/* Time and energy of the runs under the conditions of a baseline: the run and the instruction
 * before it on the same rank were at `highest_mhz`, so no change of clocks affects the run.
 * `frequency_mhz` has one value per instruction of the pipeline. The result is in `entries`, one
 * per entry; both values are 0 if there is no such run. */
harpe_status harpe_online_round_read_highest(const harpe_online_pipeline *pipeline,
                                             const harpe_rank_info *ranks,
                                             const harpe_profiling_result *results, size_t count,
                                             const int *frequency_mhz, int highest_mhz,
                                             harpe_online_mean *entries, harpe_error *error);
void harpe_online_round_free(harpe_online_round *round);

#endif
