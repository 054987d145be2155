/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for one time; see plans.h. search.c makes the dive. */
#include "plan/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/search_internal.h"

#define ROUNDING_VISITS UINT64_C(600000) /* as in search.c */
#define DIVE_VISITS UINT64_C(300000)
/* A relative gap below this is a rounding error. */
#define CLOSED_GAP 1e-10

/* Rounds the solution at the walk's time. */
static harpe_status round_relaxed(const harpe_walk *walk, harpe_assignment *a, harpe_error *error) {
    int64_t *numbers = harpe_calloc(2 * (size_t)a->count, sizeof *numbers);
    if (!numbers) return harpe_fail_memory(error);
    harpe_relaxed relaxed = {.duration_ps = numbers, .price_uw = numbers + a->count};
    harpe_walk_read(walk, &relaxed);
    harpe_status status = harpe_assignment_round(a, &relaxed, error);
    free(numbers);
    return status;
}

/* Returns a time in whole picoseconds, from T_min to `slowest_ps`. */
static int64_t reachable_ps(const harpe_walk *walk, double time_s, int64_t slowest_ps) {
    int64_t time_ps = harpe_round_down(fmin(time_s * HARPE_PS_PER_S, (double)slowest_ps));
    return time_ps < walk->fastest_ps ? walk->fastest_ps : time_ps;
}

/* ---- Quick plans ----------------------------------------------------------------------------- */

harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error) {
    harpe_walk walk;
    harpe_plan plan;
    harpe_assignment assignment = {0};
    size_t count = (size_t)problem->instruction_count;
    harpe_status status = harpe_walk_begin(&walk, problem, NULL, error);
    if (status != HARPE_OK) return status;
    int64_t time_ps = reachable_ps(&walk, time_s, walk.minimum_energy_ps);
    int *clocks = harpe_calloc(count, sizeof *clocks);
    status = clocks ? harpe_walk_to(&walk, time_ps, error) : harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_assignment_init(&assignment, problem, error);
    if (status == HARPE_OK) status = round_relaxed(&walk, &assignment, error);
    if (status == HARPE_OK) {
        harpe_assignment_frequencies(&assignment, clocks);
        status = harpe_plan_evaluate(problem, clocks, &plan, NULL, error);
    }
    if (status == HARPE_OK) {
        double bound_j = harpe_walk_bound_j(&walk, (double)time_ps / HARPE_PS_PER_S);
        *out = (harpe_quick_plan){plan.time_s, plan.energy_j, bound_j};
        memcpy(frequency_mhz, clocks, count * sizeof *clocks);
    }
    harpe_assignment_clear(&assignment);
    harpe_walk_clear(&walk);
    free(clocks);
    return status;
}

/* ---- Plans of replicas ----------------------------------------------------------------------- */

/* The time of a replica's iteration is given, so the energy of waiting all this time is given too.
 * The best plan therefore has the least sum of effective energies. This also holds beyond T*, where
 * a replica that does not wait for others would end its iteration earlier. */

/* Returns true if a plan of this effective energy reaches its bound. */
static bool is_closed(const harpe_walk *walk, double effective_j) {
    double waiting_j = harpe_problem_iteration_power_w(walk->problem) *
                       ((double)walk->solver.time_ps / HARPE_PS_PER_S);
    double bound_j = harpe_frontier_solver_energy_j(&walk->solver) + waiting_j;
    return effective_j + waiting_j - bound_j <= CLOSED_GAP * fabs(bound_j);
}

/* Makes the plan for the walk's time: by rounding, and by a dive if that is better. */
static harpe_status plan(const harpe_walk *walk, harpe_tools *tools, int width, int *numbers,
                         harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    harpe_status status = round_relaxed(walk, a, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, ROUNDING_VISITS, error);
    bool found = false;
    double rounded_j = a->energy_j;
    bool is_dived = a->count <= HARPE_MOST_DIVED && !is_closed(walk, rounded_j);
    memcpy(tools->option, a->option, (size_t)a->count * sizeof *a->option);
    if (status == HARPE_OK && is_dived)
        status = harpe_search_dive(tools, &walk->solver, width, DIVE_VISITS, &found, error);
    if (status != HARPE_OK) return status;
    if (!found || !(a->energy_j < rounded_j))
        harpe_assignment_restore(a, tools->option, walk->solver.time_ps);
    harpe_assignment_frequencies(a, numbers);
    return HARPE_OK;
}

harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_frontier **frontier,
                                  harpe_error *error) {
    harpe_walk walk;
    harpe_crew crew = {0};
    harpe_status status = harpe_walk_begin_slowest(&walk, problem, error);
    if (status != HARPE_OK) return status;
    status = harpe_crew_init(&crew, problem, &walk.network, 1, error);
    if (status == HARPE_OK)
        status = harpe_walk_to(&walk, reachable_ps(&walk, time_s, walk.slowest_ps), error);
    if (status == HARPE_OK) status = plan(&walk, harpe_crew_tools(&crew), width, numbers, error);
    harpe_crew_clear(&crew);
    if (status == HARPE_OK && frontier)
        status = harpe_walk_finish_at(
            &walk, reachable_ps(&walk, fmin(least_s, time_s), walk.slowest_ps), frontier, error);
    harpe_walk_clear(&walk);
    return status;
}

double harpe_replica_bound_j(const harpe_frontier *frontier, double time_s) {
    double beyond_s = time_s - frontier->vertices[frontier->count - 1].time_s;
    return harpe_frontier_relaxed_at(frontier, time_s) +
           fmax(0, beyond_s) * frontier->iteration_power_w;
}

double harpe_replica_marginal_w(const harpe_frontier *frontier, double time_s) {
    size_t low = 0, high = frontier->count; /* those before `low` are faster than time_s */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frontier->vertices[middle].time_s < time_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low < frontier->count ? frontier->vertices[low].marginal_w : 0;
}
