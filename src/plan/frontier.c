/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier for the public API: every vertex of the relaxation's exact time-energy curve, and
 * the lower bound at any time. walk.c and frontier_solver.c compute it. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/evaluate.h"
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
    free(frontier->lines);
    free(frontier);
}

const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                     size_t *count) {
    *count = frontier->count;
    return frontier->vertices;
}

double harpe_frontier_relaxed_at(const harpe_frontier *frontier, double time_s) {
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

/* Returns the bound of plans whose clocks hold, with the energy of their changes. */
static double held_bound_j(const harpe_frontier *frontier, double time_s) {
    double bound_j = -INFINITY;
    for (size_t k = 0; k < frontier->line_count; k++) {
        const harpe_bound_line *line = &frontier->lines[k];
        if (time_s <= line->longest_s)
            bound_j = fmax(bound_j, line->at_0_j + line->slope_w * time_s);
    }
    return bound_j;
}

double harpe_frontier_bound_at(const harpe_frontier *frontier, double time_s) {
    return fmax(harpe_frontier_relaxed_at(frontier, time_s), held_bound_j(frontier, time_s));
}

double harpe_frontier_bound_of(const harpe_frontier *frontier, const harpe_problem *problem,
                               const harpe_plan *plan) {
    double bound_j = harpe_frontier_relaxed_at(frontier, plan->time_s), changes_j = 0;
    if (frontier->line_count == 0) return bound_j;
    if (frontier->change_j > 0)
        changes_j =
            frontier->change_j * (double)harpe_evaluate_changes(problem, plan->frequency_mhz);
    return fmax(bound_j, held_bound_j(frontier, plan->time_s) - changes_j);
}

harpe_work harpe_frontier_work(const harpe_frontier *frontier) { return frontier->work; }
