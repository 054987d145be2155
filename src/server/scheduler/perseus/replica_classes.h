/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of replicas that differ: one class for all replicas that are as usual, and one for each
 * replica that differs. A class has the profile of its members: the longest times, and the mean
 * energies. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_REPLICA_CLASSES_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_REPLICA_CLASSES_H

#include "server/scheduler/perseus/online_plans.h"
#include "server/scheduler/perseus/replica_curves.h"
#include "server/scheduler/perseus/switch_latencies.h"

typedef struct harpe_replica_class {
    harpe_online_plans *plans;
    size_t chosen;
    int member_count;
    double margin; /* the uncertainty of its time, a share */
} harpe_replica_class;

typedef struct harpe_replica_classes {
    harpe_replica_class *list;
    int count, replica_count;
    int *class_of;    /* [replica_count] */
    double fastest_s; /* the shortest time of the slowest class */
    double waiting_w; /* of all GPUs of a replica while they wait */
} harpe_replica_classes;

typedef struct harpe_replica_classes_request {
    const harpe_sweep *sweep;
    const double *blocking_power_w;          /* of a GPU of each pipeline rank */
    const harpe_online_latencies *latencies; /* NULL: all changes of the clock are immediate */
    int gpus_per_stage;                      /* of one replica */
    int plan_count;
} harpe_replica_classes_request;

/* Makes the classes and their plans. Free with harpe_replica_classes_free. */
harpe_status harpe_replica_classes_new(const harpe_replica_curves *curves,
                                       const harpe_replica_classes_request *request,
                                       harpe_replica_classes **out, harpe_error *error);
void harpe_replica_classes_free(harpe_replica_classes *self);

/* Chooses the slowest plan of each class that ends within `allowed_s`. A class that is faster keeps
 * the uncertainty of its time as a reserve. */
void harpe_replica_classes_choose(harpe_replica_classes *self, double allowed_s);

/* Computes time and energy of the job's iteration minus those with `shared_mhz` on all replicas. */
harpe_status harpe_replica_classes_gain(const harpe_replica_classes *self, const int *shared_mhz,
                                        harpe_online_mean *out, harpe_error *error);
const int *harpe_replica_classes_clocks(const harpe_replica_classes *self, int replica);

#endif
