/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the time and energy of some runs of an entry from one rank's result. If a rank ran an
 * instruction in an iteration more or less often than its schedule says (an evaluation step, a list
 * that was cut short), the iteration does not count for that instruction. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_CHOSEN_RUNS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_CHOSEN_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#include "server/scheduler/perseus/online_pipeline.h"

/* Bounds of a profile's rows. */
#define HARPE_RUN_MIN_S 1e-9
#define HARPE_RUN_MAX_S 1e6
#define HARPE_RUN_MIN_J 1e-12
#define HARPE_RUN_MAX_J 1e9

typedef struct harpe_online_mean {
    double time_s, energy_j; /* of one run; both are 0 if it was not measured */
} harpe_online_mean;

/* Some runs of an entry. */
typedef struct harpe_chosen_runs {
    const harpe_online_name *name; /* entry_of_run has the entry for these runs alone */
    int entry;
    size_t count;
    size_t first, end; /* the part of the name's runs that has all of them */
} harpe_chosen_runs;

/* Returns the median, or the mean of fewer than three values; 0 if there are none. Sorts the
 * values. */
double harpe_typical_value(double *values, size_t count);

/* Returns the number of iterations of the longest list. The functions below need scratch for so
 * many values. */
size_t harpe_longest_list(const harpe_profiling_result *results, size_t count);

/* Returns the typical time and energy of one of the runs on one rank. Both are 0 if there is no
 * run. */
harpe_online_mean harpe_chosen_runs_read(const harpe_profiling_result *result,
                                         const harpe_chosen_runs *chosen, double *scratch);

/* Writes the mean time of the runs in each iteration that counts. Returns the number of
 * iterations. */
size_t harpe_chosen_runs_times(const harpe_profiling_result *result,
                               const harpe_chosen_runs *chosen, double *times_s);

/* Returns the typical sum of all runs of a name in an iteration, or 0. */
double harpe_typical_total(const harpe_breakdown *breakdown, double *scratch);

/* Adds a rank's value to the mean of an entry: the mean has the longest time and the sum of the
 * energies. The entry is measured only if all ranks of the stage have measured it; this function
 * returns whether this rank and those before have. A negative `energy_j` marks an entry that is not
 * measured. */
bool harpe_online_mean_add(harpe_online_mean *mean, harpe_online_mean own);

#endif
