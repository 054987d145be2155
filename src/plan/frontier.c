/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier for the public API: every vertex of the relaxation's exact time-energy curve, and
 * its work. walk.c and frontier_solver.c compute it. */
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
    free(frontier->lines);
    free(frontier);
}

const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                     size_t *count) {
    *count = frontier->count;
    return frontier->vertices;
}

harpe_work harpe_frontier_work(const harpe_frontier *frontier) { return frontier->work; }
