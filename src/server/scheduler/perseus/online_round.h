/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one round's results for the online schedulers: time and energy of a run of each (stage,
 * instruction), also at each of its clocks, time and energy of an iteration, and time and energy
 * while GPUs waited. Says at which clocks the instructions really ran. Results come from clients
 * and can be wrong. Missing or invalid values are left out and reported in `problem`. They are
 * never an error. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_ROUND_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_ROUND_H

#include <stdbool.h>
#include <stddef.h>

#include "server/scheduler/perseus/online_pipeline.h"
#include "server/scheduler/perseus/switch_latencies.h"

typedef struct harpe_online_mean {
    double time_s, energy_j; /* of one run; both are 0 if it was not measured */
} harpe_online_mean;

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

/* Reads the results. Each value is the median over iterations, or the mean if there are fewer than
 * three. An iteration in which a rank ran an instruction more or less often than its schedule says
 * (an evaluation step, a list that was cut short) does not count for that instruction. Free with
 * harpe_online_round_free. */
harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_online_reports *reports, harpe_online_round *out,
                                     harpe_error *error);
void harpe_online_round_free(harpe_online_round *round);

/* ---- Runs at clocks -------------------------------------------------------------------------- */

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
 * -1 for the first one, whose run is read by itself. The caller frees `*out` with free().
 * O(instructions * (clocks + iterations)). */
harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_online_reports *reports,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error);

/* ---- The clocks that runs had ---------------------------------------------------------------- */

/* An error in the shares of a run can make a clock look fast, so a run teaches something about its
 * main clock only if this has at least this share. */
#define HARPE_MAIN_SHARE_MIN 0.9

/* Finds at which clocks the instructions of a round really ran, one value per instruction of the
 * pipeline, from the clocks `asked_mhz` that the schedule asks for. Writes 0 for a run whose clocks
 * are not known, and a negative value for a run at several clocks: a GPU may change its clock late.
 * A rank that reports no clocks ran as its schedule asks. The clocks of a run are not known if the
 * ranks of its stage differ by more than a few percent of its time, or if it was at no clock for at
 * least `share_min` of its time. */
void harpe_find_real_clocks(const harpe_online_pipeline *pipeline,
                            const harpe_online_reports *reports, const int *asked_mhz,
                            double share_min, int *ran_mhz);

/* Returns the clocks of the instruction that a negative value of ran_mhz stands for, or NULL if the
 * value is not negative. They are those of the rank of the stage that had the lowest clocks. */
const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_online_reports *reports, int ran_mhz);

#endif
