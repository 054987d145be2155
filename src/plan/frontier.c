/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier for the public API: every vertex of the relaxation's exact time-energy curve, and
 * the lower bound at any time. walk.c and frontier_solver.c compute it. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/graph_deadline.h"
#include "plan/walk.h"

harpe_status harpe_frontier_new(const harpe_problem *problem, const harpe_progress *progress,
                                harpe_frontier **out, harpe_error *error) {
    if (harpe_problem_has_deadlines(problem))
        return harpe_deadline_frontier(problem, progress, out, error);
    harpe_walk walk;
    harpe_status status = harpe_walk_begin(&walk, problem, progress, error);
    if (status != HARPE_OK) return status;
    status = harpe_walk_finish(&walk, out, error);
    harpe_walk_clear(&walk);
    return status;
}

void harpe_frontier_free(harpe_frontier *frontier) {
    if (!frontier) return;
    free(frontier->vertices);
    free(frontier);
}

const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                     size_t *count) {
    *count = frontier->count;
    return frontier->vertices;
}

double harpe_frontier_bound_at(const harpe_frontier *frontier, double time_s) {
    const harpe_frontier_vertex *vertices = frontier->vertices;
    size_t last = frontier->count - 1;
    if (time_s < vertices[0].time_s - harpe_time_slack_s(vertices[0].time_s)) return INFINITY;
    if (time_s <= vertices[0].time_s) return vertices[0].lower_bound_j;
    /* A plan that takes longer than T* may need less compute energy, but waiting costs more than it
     * saves. */
    if (time_s >= vertices[last].time_s) return vertices[last].lower_bound_j;
    size_t low = 0, high = last; /* vertices[low].time_s < time_s <= vertices[high].time_s */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (vertices[middle].time_s < time_s)
            low = middle;
        else
            high = middle;
    }
    double share = (time_s - vertices[low].time_s) / (vertices[high].time_s - vertices[low].time_s);
    return vertices[low].lower_bound_j +
           share * (vertices[high].lower_bound_j - vertices[low].lower_bound_j);
}

harpe_work harpe_frontier_work(const harpe_frontier *frontier) { return frontier->work; }
