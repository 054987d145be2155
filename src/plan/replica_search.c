/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plan of one replica; see replica_search.h. The time of the iteration is given, so the
 * energy of waiting all along is too, and the plan with the least sum of effective energies is the
 * best one. This is also so for times beyond T*, where a replica that could end its iterations
 * alone would stop waiting. The steps are those of plan_set.c for a single time. */
#include "plan/replica_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/assignment.h"
#include "plan/dive.h"
#include "plan/walk.h"

/* As in search.c. */
#define ROUNDING_VISITS UINT64_C(600000)
#define DIVE_VISITS UINT64_C(300000)
#define MOST_DIVED 2000
/* A relative gap below this is a rounding error. */
#define CLOSED_GAP 1e-10

/* The state of a search. */
typedef struct searcher {
    const harpe_problem *problem;
    harpe_walk walk;
    harpe_assignment assignment;
    harpe_relaxation_curves curves;
    harpe_diver diver;
    harpe_relaxed relaxed;
    int32_t *best, *ordered; /* [position]: options */
    double best_energy_j;    /* effective */
    int width;               /* of the dive */
    bool is_walking;
} searcher;

/* ---- Making ---------------------------------------------------------------------------------- */

static harpe_status searcher_init(searcher *s, const harpe_problem *problem, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *s = (searcher){.problem = problem, .best_energy_j = INFINITY};
    s->relaxed.duration_ps = harpe_calloc(count, sizeof *s->relaxed.duration_ps);
    s->relaxed.price_uw = harpe_calloc(count, sizeof *s->relaxed.price_uw);
    s->best = harpe_calloc(count, sizeof *s->best);
    s->ordered = harpe_calloc(count, sizeof *s->ordered);
    if (!s->relaxed.duration_ps || !s->relaxed.price_uw || !s->best || !s->ordered)
        return harpe_fail_memory(error);
    harpe_status status = harpe_walk_begin_slowest(&s->walk, problem, error);
    s->is_walking = status == HARPE_OK;
    if (status == HARPE_OK) status = harpe_assignment_init(&s->assignment, problem, error);
    return status;
}

static void searcher_clear(searcher *s) {
    if (s->is_walking) harpe_walk_clear(&s->walk);
    harpe_assignment_clear(&s->assignment);
    harpe_relaxation_curves_clear(&s->curves);
    harpe_diver_clear(&s->diver);
    free(s->relaxed.duration_ps);
    free(s->relaxed.price_uw);
    free(s->best);
    free(s->ordered);
}

/* ---- Searching ------------------------------------------------------------------------------- */

static void keep_better(searcher *s) {
    if (!(s->assignment.energy_j < s->best_energy_j)) return;
    s->best_energy_j = s->assignment.energy_j;
    memcpy(s->best, s->assignment.option, (size_t)s->assignment.count * sizeof *s->best);
}

static harpe_status round_relaxed(searcher *s, harpe_error *error) {
    harpe_walk_read(&s->walk, &s->relaxed);
    harpe_status status = harpe_assignment_round(&s->assignment, &s->relaxed, error);
    if (status == HARPE_OK)
        status = harpe_assignment_improve(&s->assignment, ROUNDING_VISITS, error);
    if (status == HARPE_OK) keep_better(s);
    return status;
}

/* Returns true if the best plan reaches its bound. */
static bool is_closed(const searcher *s) {
    double power_w = harpe_problem_iteration_power_w(s->problem);
    double waiting_j = power_w * ((double)s->walk.solver.time_ps / HARPE_PS_PER_S);
    double bound_j = harpe_frontier_solver_energy_j(&s->walk.solver) + waiting_j;
    return s->best_energy_j + waiting_j - bound_j <= CLOSED_GAP * fabs(bound_j);
}

static harpe_status dive(searcher *s, harpe_error *error) {
    if (s->problem->instruction_count > MOST_DIVED || is_closed(s)) return HARPE_OK;
    harpe_status status =
        harpe_relaxation_curves_init(&s->curves, s->problem, &s->walk.network, error);
    if (status != HARPE_OK) return status;
    s->diver = harpe_diver_make(s->problem, &s->walk.network, &s->curves);
    harpe_assignment *a = &s->assignment;
    bool found = false;
    status = harpe_diver_dive(&s->diver, &s->walk.solver, s->width, &found, error);
    if (status != HARPE_OK || !found) return status;
    for (int32_t i = 0; i < a->count; i++)
        s->ordered[i] = s->diver.option[a->instruction_at[i]];
    harpe_assignment_restore(a, s->ordered, s->walk.solver.time_ps);
    status = harpe_assignment_settle(a, a->deadline_ps, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, DIVE_VISITS, error);
    if (status == HARPE_OK) keep_better(s);
    return status;
}

/* ---- The curve ------------------------------------------------------------------------------- */

static harpe_status take_curve(searcher *s, harpe_replica_curve *curve, harpe_error *error) {
    harpe_walk *walk = &s->walk;
    size_t count = walk->frontier.count;
    curve->vertices = harpe_calloc(count + 1, sizeof *curve->vertices);
    if (!curve->vertices) return harpe_fail_memory(error);
    curve->count = count;
    curve->fastest_s = (double)walk->fastest_ps / HARPE_PS_PER_S;
    curve->iteration_power_w = harpe_problem_iteration_power_w(s->problem);
    if (count > 0)
        memcpy(curve->vertices, walk->frontier.vertices, count * sizeof *curve->vertices);
    if (count == 0) {
        /* The walk has not left the slowest time. No shorter one is asked for. */
        double slowest_s = (double)walk->solver.time_ps / HARPE_PS_PER_S;
        curve->vertices[curve->count++] = (harpe_frontier_vertex){
            .time_s = slowest_s, .lower_bound_j = harpe_walk_bound_j(walk, slowest_s)};
    }
    return HARPE_OK;
}

/* Returns the vertex whose segment contains a time that is not above the slowest vertex. */
static const harpe_frontier_vertex *vertex_above(const harpe_replica_curve *curve, double time_s) {
    size_t low = 0, high = curve->count; /* vertices[low].time_s >= time_s */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (curve->vertices[middle].time_s >= time_s)
            low = middle;
        else
            high = middle;
    }
    return &curve->vertices[low];
}

double harpe_replica_curve_at(const harpe_replica_curve *curve, double time_s) {
    double slack_s = harpe_time_slack_s(curve->fastest_s);
    if (time_s < curve->fastest_s - slack_s) return INFINITY;
    time_s = fmax(time_s, curve->fastest_s);
    const harpe_frontier_vertex *slowest = &curve->vertices[0];
    if (time_s >= slowest->time_s)
        return slowest->lower_bound_j + curve->iteration_power_w * (time_s - slowest->time_s);
    const harpe_frontier_vertex *above = vertex_above(curve, time_s);
    return above->lower_bound_j +
           (above->marginal_w - curve->iteration_power_w) * (above->time_s - time_s);
}

double harpe_replica_curve_marginal_w(const harpe_replica_curve *curve, double time_s) {
    if (time_s > curve->vertices[0].time_s) return 0;
    return vertex_above(curve, fmax(time_s, curve->fastest_s))->marginal_w;
}

void harpe_replica_curve_clear(harpe_replica_curve *curve) {
    free(curve->vertices);
    memset(curve, 0, sizeof *curve);
}

/* ---- Together -------------------------------------------------------------------------------- */

static harpe_status search(searcher *s, double time_s, double least_s, int *numbers,
                           harpe_replica_curve *curve, harpe_error *error) {
    harpe_walk *walk = &s->walk;
    double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)walk->slowest_ps);
    int64_t time_ps = harpe_round_down(most_ps),
            least_ps = harpe_round_down(fmin(least_s * HARPE_PS_PER_S, most_ps));
    if (time_ps < walk->fastest_ps) time_ps = walk->fastest_ps;
    if (least_ps < walk->fastest_ps) least_ps = walk->fastest_ps;
    harpe_status status = harpe_walk_to(walk, time_ps, error);
    if (status == HARPE_OK) status = round_relaxed(s, error);
    if (status == HARPE_OK) status = dive(s, error);
    if (status != HARPE_OK) return status;
    harpe_assignment_restore(&s->assignment, s->best, time_ps);
    harpe_assignment_frequencies(&s->assignment, numbers);
    status = harpe_walk_to(walk, least_ps, error);
    return status == HARPE_OK ? take_curve(s, curve, error) : status;
}

harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_replica_curve *curve,
                                  harpe_error *error) {
    searcher s;
    harpe_status status = searcher_init(&s, problem, error);
    s.width = width;
    if (status == HARPE_OK) status = search(&s, time_s, least_s, numbers, curve, error);
    searcher_clear(&s);
    return status;
}
