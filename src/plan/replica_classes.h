/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of data parallel replicas. The replicas of a class are alike, so they run one plan. The
 * iteration of the job ends when the slowest class ends, and the others wait for it. The offline
 * planner of replicas and the scheduler Perseus both use these classes. Not public. */
#ifndef HARPE_PLAN_REPLICA_CLASSES_H
#define HARPE_PLAN_REPLICA_CLASSES_H

#include <harpe/replicas.h>

typedef struct harpe_replica_classes {
    int replica_count, count;
    int *class_of;     /* [replica_count] */
    int *first_of;     /* [count]: the first replica of a class */
    int *member_count; /* [count] */
} harpe_replica_classes;

/* Makes a class of all replicas with the same number in `like`. This number is the index of the
 * first replica of the class. The classes are in the order of their first replicas. Free with
 * harpe_replica_classes_clear; after a failure there is nothing to free. */
harpe_status harpe_replica_classes_init(harpe_replica_classes *classes, const int *like,
                                        int replica_count, harpe_error *error);
void harpe_replica_classes_clear(harpe_replica_classes *classes);

/* An iteration of a replica at some clocks, without waiting for other replicas. */
typedef struct harpe_replica_run {
    double time_s, energy_j;
    double end_power_w; /* power of the replica while it waits for the others */
} harpe_replica_run;

/* Returns the run as it is if it begins `start_s` later. Its energy then includes the wait. */
static inline harpe_replica_run harpe_replica_run_later(harpe_replica_run run, double start_s) {
    return (harpe_replica_run){run.time_s + start_s, run.energy_j + run.end_power_w * start_s,
                               run.end_power_w};
}

/* Returns the energy of a run that waits until `end_s`. */
static inline double harpe_replica_run_until_j(harpe_replica_run run, double end_s) {
    return run.energy_j + run.end_power_w * (end_s - run.time_s);
}

/* Returns time and energy of the job if each replica has the run of its class. If `class_of` is
 * NULL, each replica is a class of its own. */
harpe_replica_total harpe_replica_runs_total(const harpe_replica_run *runs, const int *class_of,
                                             int replica_count);

#endif
