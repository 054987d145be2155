/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an online scheduler for one job, and the steps that several of its sources need. The
 * sources perseus*.c share it, and instruction_profiler.c uses a part of it. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_JOB_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_JOB_H

#include <harpe/scheduler.h>

#include "server/scheduler/perseus/explorer.h"
#include "server/scheduler/perseus/online_plans.h"
#include "server/scheduler/perseus/perseus_args.h"
#include "server/scheduler/perseus/savings.h"
#include "server/scheduler/perseus/sweep.h"
#include "server/scheduler/scheduler_file.h"

typedef enum harpe_perseus_phase {
    HARPE_PERSEUS_COUNT = 0, /* the first round, to count microbatches */
    HARPE_PERSEUS_SWEEP = 1,
    HARPE_PERSEUS_PLAN = 2, /* runs a plan and watches it */
    HARPE_PERSEUS_HOLD = 3, /* highest frequencies until the job ends */
    HARPE_PERSEUS_EXPLORE = 4,
} harpe_perseus_phase;

enum { HARPE_PERSEUS_HISTORY = 200 };

typedef struct harpe_perseus_measured {
    int64_t round;
    double time_s, energy_j; /* of an iteration, all ranks; 0: not reported */
    /* The values that the iteration would have at the highest frequencies with the same straggler;
     * 0: no plan ran, or there is no baseline. */
    double baseline_s, baseline_j;
    int64_t iterations;
    /* As in harpe_savings_terms. */
    double systematic_s, systematic_j, weight_s, weight_j;
    int64_t ended_wall_s; /* when the round ended, in s since 1970; 0: not known. For people */
} harpe_perseus_measured;

/* The usual deviation of rounds from their plans, in s or J. Only the rounds that are closest to
 * their plans count. */
typedef struct harpe_perseus_usual {
    double deviation, rounds;
} harpe_perseus_usual;

/* The present shift of the baseline, and the first of the consecutive rounds that have it; -1:
 * there is no shift. */
typedef struct harpe_perseus_scaled {
    double factor[HARPE_QUANTITIES];
    int64_t since_round;
} harpe_perseus_scaled;

/* The highest level. If a sweep or correction is repeated soon, the level rises by 1, and the wait
 * before the next one doubles. */
enum { HARPE_PERSEUS_LEVEL_MAX = 6 };
typedef struct harpe_perseus_backoff {
    int level;
    int64_t since; /* the round in which the level last changed */
} harpe_perseus_backoff;

/* Measurements of the last round that ran a plan, for people. They are not saved. */
typedef struct harpe_perseus_seen {
    harpe_online_mean *entries; /* one per entry; NULL: no round ran these plans */
    int64_t round;
    size_t plan;
} harpe_perseus_seen;

/* See perseus_replicas.h. */
typedef struct harpe_perseus_replicas harpe_perseus_replicas;

typedef struct harpe_perseus {
    const harpe_scheduler_job *job;
    const char *name; /* name of the scheduler */
    bool makes_plans; /* false: InstructionProfiler */
    harpe_perseus_args args;
    harpe_perseus_phase phase;
    char hold_reason[HARPE_ERROR_MESSAGE_SIZE]; /* "": no failure */
    int count_misses; /* rounds in a row in which microbatches could not be counted */
    harpe_online_pipeline *pipeline; /* NULL while counting; the sweep too */
    harpe_sweep *sweep;       /* the sweep that the plans use; without plans: the current sweep */
    harpe_sweep *sweep_again; /* the current sweep if there are already plans; NULL: none */
    harpe_explorer *explorer; /* of the current sweep; NULL: a sweep learns */
    bool explores, explores_next; /* with a plan: this round and the next one are explorations */
    harpe_perseus_replicas *replicas;  /* NULL: the job has one replica, or too many */
    harpe_online_latencies *latencies; /* NULL like the pipeline */
    harpe_online_reports reports;      /* of the round that is observed */
    bool is_profile_made;              /* the profile was made and handed over */
    harpe_scheduler_file file;         /* the profile, until it is taken */
    int mismatches;         /* rounds in a row without the measurements that they should have */
    bool mismatch_was_told; /* the mismatch was logged */

    harpe_online_plans *plans; /* NULL until the first sweep is over */
    uint64_t plans_number;     /* counts the sets of plans that were made */
    bool is_plan_new;          /* the current round runs none of the plans */
    double *blocking_powers_w; /* per GPU of each pipeline rank */
    double blocking_power_w;   /* their mean */
    /* Measured minus predicted time and energy of an iteration: `outside` has the difference in the
     * sweep's first round, and `shift` has its change since then. Job requests do not use `shift`,
     * because a straggler may have caused this change. */
    double outside_time_s, outside_energy_j;
    double shift_time_s, shift_energy_j;
    harpe_online_requests requests;
    size_t running;   /* the plan that was handed out last */
    int drift_rounds; /* in a row */
    harpe_perseus_backoff corrections, sweeps;

    harpe_perseus_seen seen;
    harpe_savings savings, savings_again; /* for `sweep`, and for `sweep_again` */
    harpe_perseus_usual usual[HARPE_QUANTITIES];
    harpe_perseus_scaled scaled;
    int64_t round; /* number of observed rounds */
    harpe_perseus_measured
        history[HARPE_PERSEUS_HISTORY]; /* round r is at index r modulo the size */
} harpe_perseus;

/* Returns the time and energy outside of the pipeline, for the handling of job requests. Both are 0
 * or more. */
harpe_online_outside harpe_perseus_outside(const harpe_perseus *self);
int harpe_perseus_gpus_per_stage(const harpe_perseus *self);

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Makes the pipeline and the first sweep for this number of microbatches. */
harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error);
harpe_status harpe_perseus_new_sweep(const harpe_perseus *self, harpe_sweep **out,
                                     harpe_error *error);
/* Begins to learn with the current sweep. */
harpe_status harpe_perseus_begin_learning(harpe_perseus *self, harpe_error *error);
harpe_sweep *harpe_perseus_sweep_under_way(const harpe_perseus *self);
/* Sets the blocking powers: those of the arguments, or those that the sweep of the plans has
 * measured. */
void harpe_perseus_find_blocking_power(harpe_perseus *self);
/* Returns the reports of this round, without those of clocks if changes of the clocks are
 * immediate. */
harpe_online_reports harpe_perseus_late_reports(const harpe_perseus *self);

#endif
