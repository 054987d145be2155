/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_replica_plans. replicas.c makes this object; the other files read it.
 * This header is private to src/plan. */
#ifndef HARPE_PLAN_REPLICA_PLANS_H
#define HARPE_PLAN_REPLICA_PLANS_H

#include <stdint.h>

#include <harpe/replicas.h>

#include "base/array.h"
#include "plan/power_limits.h"
#include "plan/replica_problem.h"
#include "plan/replica_search.h"

/* Time and energy of a replica's iteration at some clocks, without waiting for other replicas. */
typedef struct harpe_replica_run {
    double time_s, energy_j;
} harpe_replica_run;

enum { HARPE_REPLICA_RUNS = HARPE_REPLICA_ALL_MAXIMUM + 1 };

/* Replicas with the same profiles. */
typedef struct harpe_replica_group {
    int first_replica;
    int *frequency_mhz; /* [peer][instruction] */
    int *numbers;       /* [instruction]: combinations, if there are limits on power; else NULL */
    harpe_frontier *frontier; /* from the shortest time of the job on */
    double fastest_s;
    double end_power_w; /* while the replica waits for the others */
    /* The runs of each replica of the group, by harpe_replica_clocks. From HARPE_REPLICA_RUNS on,
     * the runs with one clock for all GPUs. Such a run takes INFINITY if a GPU was not measured at
     * the clock. */
    harpe_replica_run *runs;
} harpe_replica_group;

struct harpe_replica_plans {
    harpe_arena arena; /* of the names */
    harpe_replica_job job;
    harpe_replica_plan *plans; /* [replica] */
    size_t *group_of;          /* [replica] */
    size_t group_count;
    harpe_replica_group *groups;
    size_t instruction_count;
    size_t *rank_offset; /* [rank_count + 1] */
    const char **names;  /* [instruction] */
    int *one_plan_mhz;   /* [instruction]; NULL: there is no such plan */
    int *clock_mhz;      /* [clock]: those that all GPUs may have */
    size_t clock_count;
};

/* Evaluates clocks of one replica. `frequency_mhz` has a list for each peer, or a single list for
 * all peers if `is_shared` is true. NULL: every instruction at its highest clock. */
harpe_status harpe_replica_run_clocks(const harpe_replica_problem *replica,
                                      const int *frequency_mhz, bool is_shared,
                                      harpe_replica_run *out, double *end_power_w,
                                      harpe_error *error);

/* Returns a run that begins later by `start_s`, with the energy of the wait before. */
static inline harpe_replica_run harpe_replica_run_later(harpe_replica_run run, double waiting_w,
                                                        double start_s) {
    return (harpe_replica_run){run.time_s + start_s, run.energy_j + waiting_w * start_s};
}

/* Changes the plans of all replicas so that the power of the job keeps the limits. Each replica
 * must be a group of its own. A replica may begin its iteration later (harpe_replica_plan.start_s)
 * if it still ends within `time_s`. Changes nothing if the plans keep the limits already. Fails
 * with HARPE_INFEASIBLE if no such plans are found. */
harpe_status
harpe_replica_limits_keep(harpe_replica_plans *plans, const harpe_replica_profiles *profiles,
                          const harpe_schedule *schedule, const harpe_problem_options *options,
                          const harpe_power_limits *limits, double time_s, harpe_error *error);

#endif
