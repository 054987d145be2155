/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_replica_plans. replicas.c makes this object; the other files read it.
 * This header is private to src/plan. */
#ifndef HARPE_PLAN_REPLICA_PLANS_H
#define HARPE_PLAN_REPLICA_PLANS_H

#include <stdint.h>

#include <harpe/replicas.h>

#include "base/array.h"
#include "plan/power_limits.h"
#include "plan/replica_classes.h"
#include "plan/replica_problem.h"
#include "plan/time_plan.h"

enum { HARPE_REPLICA_RUNS = HARPE_REPLICA_ALL_MAXIMUM + 1 };

/* The plan of a class of replicas. */
typedef struct harpe_replica_group {
    int *frequency_mhz;       /* [peer][instruction] */
    int *numbers;             /* [instruction]: combinations, if there are limits on power */
    harpe_frontier *frontier; /* from the shortest time of the job on */
    double fastest_s;
} harpe_replica_group;

struct harpe_replica_plans {
    harpe_arena arena; /* of the names */
    harpe_replica_job job;
    harpe_replica_plan *plans;     /* [replica] */
    harpe_replica_classes classes; /* of replicas with the same profiles */
    harpe_replica_group *groups;   /* [class] */
    /* The runs of all classes: [harpe_replica_clocks][class]. From HARPE_REPLICA_RUNS on, the runs
     * with one clock for all GPUs. Such a run takes INFINITY if a GPU was not measured at the
     * clock. */
    harpe_replica_run *runs;
    size_t instruction_count;
    size_t *rank_offset; /* [rank_count + 1] */
    const char **names;  /* [instruction] */
    int *one_plan_mhz;   /* [instruction]; NULL: there is no such plan */
    int *clock_mhz;      /* [clock]: those that all GPUs may have */
    size_t clock_count;
};

static inline harpe_replica_run *harpe_replica_runs_of(const harpe_replica_plans *plans,
                                                       size_t clocks) {
    return plans->runs + clocks * (size_t)plans->classes.count;
}

/* Evaluates a replica at one of the choices of its clocks. */
harpe_status harpe_replica_run_plan(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                                    const harpe_replica_problem *replica, int number,
                                    harpe_replica_run *out, harpe_error *error);

/* Changes the plans of all replicas so that the power of the job keeps the limits. Each replica
 * must be a class of its own. A replica may begin its iteration later (harpe_replica_plan.start_s)
 * if it still ends within `time_s`. Changes nothing if the plans keep the limits already. Fails
 * with HARPE_INFEASIBLE if no such plans are found. */
harpe_status harpe_replica_limits_keep(harpe_replica_plans *plans,
                                       const harpe_replica_source *source,
                                       const harpe_power_limits *limits, double time_s,
                                       harpe_error *error);

#endif
