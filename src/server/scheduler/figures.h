/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler has for people. The figures of a job are the energy that it used, its savings,
 * and the plan that it runs. Plain data. A worker computes it together with the scheduler's state,
 * and the loop shows it (figures.c, metrics.c). */
#ifndef HARPE_SERVER_SCHEDULER_FIGURES_H
#define HARPE_SERVER_SCHEDULER_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/scheduler/conduct_sums.h"

/* The measured baseline. Uncertainties are half-widths of 95 % confidence intervals; INFINITY: not
 * known. */
typedef struct harpe_figures_baseline {
    double time_s, time_uncertainty_s; /* of an iteration */
    double energy_j, energy_uncertainty_j;
    int64_t iterations, rounds;        /* on which it is based */
    int64_t first_round, last_round;   /* the first and the last of these rounds */
    int64_t first_wall_s, last_wall_s; /* when they ended, in s since 1970 */
} harpe_figures_baseline;

typedef struct harpe_figures {
    /* Sums over all reported iterations; 0: none were reported. After a restart they are not known
     * until the stored results are in them; the engine sets `is_known`. */
    bool is_known;
    int64_t iterations;
    double used_energy_j, used_time_s;
    double power_w; /* of all ranks, in the last reported round; 0: not known */

    /* Savings relative to the baseline. They are set only if a baseline was measured. Uncertainties
     * are half-widths of 95 % confidence intervals; INFINITY: not known. */
    bool has_savings;
    double saved_energy_j, saved_energy_uncertainty_j, energy_baseline_j;
    double lost_time_s, lost_time_uncertainty_s, time_baseline_s;
    harpe_figures_baseline baseline;

    harpe_conduct_sums conduct;
    int64_t tokens_per_step; /* of the whole job; 0: not known */

    const char *phase; /* static; NULL: the scheduler has no phases */
    int64_t plan;      /* number of the running plan, from 0, of `plan_count`; -1: none */
    int64_t plan_count;
    double plan_time_s, plan_energy_j; /* predicted for an iteration of this plan */
    /* Predicted for an iteration at the highest clocks, and with the one clock for all GPUs that
     * needs the least energy of those that are as fast as the plan, or as the highest clocks if
     * these are slower. A clock of 0: none is better than the highest clocks. */
    double highest_time_s, highest_energy_j;
    int one_clock_mhz;
    double one_clock_time_s, one_clock_energy_j;
} harpe_figures;

/* A file that a scheduler has made for people. The scheduler does not write the file itself,
 * because ranks wait while it runs; the engine does. Initialise it with zeros. If path is NULL,
 * there is no file. Free it with harpe_scheduler_file_free. */
typedef struct harpe_scheduler_file {
    char *path, *text;
    size_t length;
    char *directory;  /* directory to create first; NULL: `path` may be anywhere, and other programs
                         may write it */
    bool is_repeated; /* the scheduler made it before a restart too, so the file may exist */
} harpe_scheduler_file;

void harpe_scheduler_file_free(harpe_scheduler_file *file); /* leaves it empty */

#endif
