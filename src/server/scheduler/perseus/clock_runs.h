/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the time and energy of each entry at each clock, or only at the highest clock, from the
 * results of a round. The runs of an entry can have different clocks in the same round. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_CLOCK_RUNS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_CLOCK_RUNS_H

#include "server/scheduler/perseus/chosen_runs.h"

/* Reads the time and energy of runs that can be compared with a baseline. Such a run was at the
 * highest clock, and so was the instruction before it on the same rank, so no change of the clock
 * affects the run. `frequency_mhz` has the clocks that the runs really had, one per
 * instruction of the pipeline; 0 and negative: not at one clock. `highest_mhz` has one value per
 * pipeline rank. The result is in `entries`, one per entry; both values are 0
 * if there is no such run. */
harpe_status harpe_online_round_read_highest(const harpe_online_pipeline *pipeline,
                                             const harpe_rank_info *ranks,
                                             const harpe_profiling_result *results, size_t count,
                                             const int *frequency_mhz, const int *highest_mhz,
                                             harpe_online_mean *entries, harpe_error *error);

/* The runs of one entry at one clock. */
typedef struct harpe_online_clock_runs {
    int entry, frequency_mhz;
    size_t run_count;       /* in an iteration */
    size_t iteration_count; /* the smallest number of a rank */
    harpe_online_mean mean; /* of one run; both values are 0 if they were not measured */
    double spread;          /* relative standard deviation of the time of one run; 0: not known */
} harpe_online_clock_runs;

/* Reads time and energy of each entry at each of its clocks. `frequency_mhz` has one value per
 * instruction of the pipeline; runs at 0 do not count. A negative clock stands for one instruction,
 * -1 for the first one, whose run is read by itself. An iteration that did not fit the schedule
 * does not count. The caller frees `*out` with free(). O(instructions * (clocks + iterations)). */
harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_rank_info *ranks,
                                            const harpe_profiling_result *results, size_t count,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error);

#endif
