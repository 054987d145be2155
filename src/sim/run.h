/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a whole simulated job, from its temporary directory to the report. */
#ifndef HARPE_SIM_RUN_H
#define HARPE_SIM_RUN_H

#include "sim/launcher.h"
#include "world/transport.h"
#include "world/world.h"

/* Reports a run. Everything that the run used still exists during the call. */
typedef harpe_status harpe_sim_report(const harpe_sim_run *run, harpe_error *error);

/* How a run is staged. Zeros: as `harpe train-sim` does. */
typedef struct harpe_sim_staging {
    /* Runs the ranks and returns when all are gone. NULL: harpe_sim_launch. */
    harpe_status (*launch)(harpe_sim_run *run, harpe_error *error);
    harpe_sim_report *report; /* called if the job succeeded; NULL: none */
    /* In a world. Its programs and its time are set here; NULL: in order, with the job's seed. */
    const harpe_world_options *world;
    const harpe_transport_options *messages; /* NULL: without faults */
} harpe_sim_staging;

/* Runs the job, and removes everything that the run has made, even if this process is killed. The
 * caller records signals (base/terminal_progress.h), which end the run. */
harpe_status harpe_sim_run_job(const harpe_sim_options *options, const harpe_sim_staging *staging,
                               harpe_error *error);

/* ---- Groups of steps ------------------------------------------------------------------------- */

/* The times and energies of the steps of a simulated run, grouped by the plan that ran in them. */

typedef enum harpe_sim_kind {
    HARPE_SIM_HIGHEST_CLOCKS, /* the baseline, in turns with the plan */
    HARPE_SIM_NO_SCHEDULE,    /* before the server's first schedule */
    HARPE_SIM_LEARNING,
    HARPE_SIM_PLANNED,
    HARPE_SIM_UNANSWERED, /* with a straggler, but with the plan from before */
    HARPE_SIM_ANSWERED,   /* with a straggler and the server's plan for it */
    HARPE_SIM_KINDS,
} harpe_sim_kind;

/* Steps of one group. All times are those of the emulated GPUs, and all energies those of all GPUs
 * together. The typical step is the median, so that a delay of this machine has little
 * influence. */
typedef struct harpe_sim_stretch {
    const char *name; /* for people */
    int steps;
    int64_t first_round, last_round;       /* -1: none */
    double total_s, total_j, clock_writes; /* sums */
    double time_s, energy_j;               /* medians */
    double deviation_j;                    /* standard deviation, from the deviations' median */
    double *times_s;                       /* of each step, sorted */
    double *energies_j;                    /* only while they are summed up */
} harpe_sim_stretch;

/* The steps, compared with the typical step at the highest clocks. Steps with a straggler do not
 * count. */
typedef struct harpe_sim_slow {
    int steps;        /* steps that were compared */
    int slowest;      /* number of the slowest step; -1: none */
    double slowest_s; /* its time */
    double late_s;    /* how late this machine woke a rank in it */
    int slow_steps;   /* steps that were slower by more than HARPE_SIM_SLOW_SHARE */
    int late_steps;   /* of them, steps in which a rank woke up late by more than that share */
} harpe_sim_slow;

#define HARPE_SIM_SLOW_SHARE 0.01

typedef struct harpe_sim_summary {
    harpe_sim_stretch kinds[HARPE_SIM_KINDS];
    harpe_sim_slow slow;
} harpe_sim_summary;

/* Sums up the steps that all ranks have finished. Two kinds of steps are a warm-up and do not
 * count: those before the optimizer starts, and those of the plan before the first step of the
 * baseline. */
harpe_status harpe_sim_summary_make(const harpe_sim_run *run, harpe_sim_summary *out,
                                    harpe_error *error);
/* Returns the half-width of the 95 % interval of the energy that these steps save, in percent of
 * the energy of the baseline. The interval covers the noise of both. INFINITY: too few steps. */
double harpe_sim_summary_uncertainty(const harpe_sim_summary *summary, harpe_sim_kind kind);
void harpe_sim_summary_free(harpe_sim_summary *summary);

#endif
