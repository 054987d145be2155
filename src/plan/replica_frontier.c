/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier of a job: for each time of an iteration, the sum of the lower bounds of all
 * replicas. */
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/replica_plans.h"

double harpe_replica_plans_bound_at(const harpe_replica_plans *plans, double time_s) {
    double bound_j = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        bound_j += harpe_replica_curve_at(&plans->groups[plans->group_of[r]].curve, time_s);
    return bound_j;
}

/* The bound is convex, and its minimum is at a vertex of a replica or at the shortest time. */
harpe_status harpe_replica_find_minimum(harpe_replica_plans *plans, harpe_error *error) {
    size_t count = 1, most = 1;
    for (size_t k = 0; k < plans->group_count; k++)
        most += plans->groups[k].curve.count;
    double *times = harpe_calloc(most, sizeof *times);
    if (!times) return harpe_fail_memory(error);
    times[0] = plans->job.fastest_s;
    for (size_t k = 0; k < plans->group_count; k++)
        for (size_t v = 0; v < plans->groups[k].curve.count; v++)
            if (plans->groups[k].curve.vertices[v].time_s > times[0])
                times[count++] = plans->groups[k].curve.vertices[v].time_s;
    qsort(times + 1, count - 1, sizeof *times, harpe_compare_doubles);
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (harpe_replica_plans_bound_at(plans, times[middle]) <=
            harpe_replica_plans_bound_at(plans, times[middle + 1]))
            high = middle;
        else
            low = middle + 1;
    }
    plans->job.minimum_energy_s = times[low];
    free(times);
    return HARPE_OK;
}

/* Returns the power that a shorter iteration costs: the sum of the replicas' slopes just below a
 * time. */
static double marginal_w_at(const harpe_replica_plans *plans, double time_s) {
    double sum_w = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        sum_w += harpe_replica_curve_marginal_w(&plans->groups[plans->group_of[r]].curve, time_s);
    return sum_w;
}

harpe_status harpe_replica_plans_frontier(const harpe_replica_plans *plans, size_t count,
                                          harpe_frontier_vertex *points, harpe_error *error) {
    if (!plans || !points || count < 2)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a frontier needs plans and room for at least two points");
    double first_s = plans->job.fastest_s, last_s = plans->job.minimum_energy_s;
    for (size_t k = 0; k < count; k++) {
        double time_s = first_s + (last_s - first_s) * (double)k / (double)(count - 1);
        if (k + 1 == count) time_s = last_s;
        points[k] = (harpe_frontier_vertex){
            .time_s = time_s,
            .lower_bound_j = harpe_replica_plans_bound_at(plans, time_s),
            .marginal_w = marginal_w_at(plans, time_s),
        };
    }
    return HARPE_OK;
}
