/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one round's results for the online schedulers: time and energy of a run of each (stage,
 * instruction), time and energy of an iteration, and time and energy while GPUs waited. Results
 * come from clients and can be wrong. Missing or invalid values are left out and reported in
 * `problem`. They are never an error. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_ROUND_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_ROUND_H

#include "server/scheduler/perseus/chosen_runs.h"

typedef struct harpe_online_round {
    harpe_online_mean *entries; /* one per entry; time: the slowest rank's; energy: the sum */
    size_t iterations;          /* the largest number that a rank reported */
    double iteration_time_s;    /* of the slowest rank; 0: not all ranks reported it */
    double iteration_energy_j;  /* of all ranks; 0: not all ranks reported it */
    /* For whole iterations (time: of the slowest rank; energy: sum of the ranks): the standard
     * deviation over the round's iterations, the number of iterations from which it is computed (0
     * or 1: the deviation is not known), and the sum over the iterations. */
    double time_spread_s, energy_spread_j;
    size_t spread_iterations;
    double total_time_s, total_energy_j;
    /* Time and energy of an iteration that are in no breakdown: for each pipeline rank, summed over
     * its GPUs. All are 0 if not all ranks report them. */
    harpe_online_mean *waiting;
    bool tells_waiting;
    bool ran_other_steps; /* an instruction ran more or less often than the schedule says */
    bool has_probe;       /* set by the caller: lower clocks ran to measure latencies */
    char problem[256];    /* why an entry was not measured, for people; "": all were measured */
} harpe_online_round;

/* Reads `results`, one per rank in the order of `ranks`. Each value is the median over iterations,
 * or the mean if there are fewer than three. Free with harpe_online_round_free. */
harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_rank_info *ranks,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_online_round *out, harpe_error *error);
void harpe_online_round_free(harpe_online_round *round);

#endif
