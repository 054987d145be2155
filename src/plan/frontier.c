/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier for the public API: every vertex of the relaxation's exact time-energy curve, the
 * bounds of plans whose clocks hold, and its work. walk.c, frontier_solver.c and clock_bound.c
 * compute it. */
#include <stdlib.h>

#include "base/error.h"
#include "plan/clocks_internal.h"
#include "plan/search_internal.h"
#include "plan/switching.h"

/* Adds the bounds of plans whose clocks hold, for times that are spread as those of plans. */
static harpe_status add_bounds(harpe_walk *walk, const harpe_clock_switch *cost,
                               harpe_error *error) {
    const harpe_plan_request request = {.clock_switch = *cost};
    harpe_clock_bound bound;
    harpe_wanted_times times = {0};
    double slowest_s = (double)walk->slowest_ps / HARPE_PS_PER_S;
    harpe_status status =
        harpe_clock_bound_init(&bound, walk->problem, cost, &walk->network, error);
    if (status == HARPE_OK) status = harpe_clock_bound_add(&bound, walk, slowest_s, error);
    if (status == HARPE_OK) status = harpe_plan_times(walk, &request, &times, error);
    for (size_t i = 0; i < times.count && status == HARPE_OK; i++) {
        double longest_s = (double)times.items[i].longest_ps / HARPE_PS_PER_S;
        status = harpe_walk_to(walk, times.items[i].time_ps, error);
        if (status == HARPE_OK) status = harpe_clock_bound_add(&bound, walk, longest_s, error);
    }
    free(times.items);
    harpe_clock_bound_clear(&bound);
    return status;
}

harpe_status harpe_frontier_new_for(const harpe_problem *problem, const harpe_clock_switch *cost,
                                    const harpe_progress *progress, harpe_frontier **out,
                                    harpe_error *error) {
    harpe_status status = harpe_clock_switch_check(problem, cost, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    status = harpe_walk_begin(&walk, problem, progress, error);
    if (status != HARPE_OK) return status;
    if (harpe_clock_switch_has_cost(problem, cost)) status = add_bounds(&walk, cost, error);
    if (status == HARPE_OK) status = harpe_walk_finish(&walk, out, error);
    harpe_walk_clear(&walk);
    return status;
}

harpe_status harpe_frontier_new(const harpe_problem *problem, const harpe_progress *progress,
                                harpe_frontier **out, harpe_error *error) {
    static const harpe_clock_switch no_cost = {0};
    return harpe_frontier_new_for(problem, &no_cost, progress, out, error);
}

void harpe_frontier_free(harpe_frontier *frontier) {
    if (!frontier) return;
    free(frontier->vertices);
    free(frontier->lines);
    free(frontier->bound);
    free(frontier);
}

const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                     size_t *count) {
    *count = frontier->bound ? frontier->bound_count : frontier->count;
    return frontier->bound ? frontier->bound : frontier->vertices;
}

harpe_work harpe_frontier_work(const harpe_frontier *frontier) { return frontier->work; }
