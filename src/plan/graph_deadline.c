/* SPDX-License-Identifier: Apache-2.0 */
/* Solves graphs with deadlines, one iteration time after the other. The energy over time is convex
 * and piecewise linear, and the flow at a time gives the slope there. The vertices between two
 * times are therefore found by intersecting the lines at both times (the method of Eisner and
 * Severance, 1976). */
#include "plan/graph_deadline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/plan_set_contents.h"
#include "plan/walk.h"

#define SAME_ENERGY \
    1e-12 /* relative difference of two energies that are equal but for rounding \
           */
#define ROUNDING_PS 3
#define DEFAULT_PLANS 100
/* Plans made besides those for the times that were asked for. */
#define BESIDE_ASKED 8
#define MOST_PLANS 10000000

/* The energy near a time: at most the energy of any plan, at every time. */
typedef struct line {
    int64_t time_ps;
    double energy_j; /* at time_ps, blocking included */
    double slope_w;  /* dE/dT */
} line;

/* The problem at one iteration time. The variant shares everything with the problem except for the
 * delays that stand for deadlines. */
typedef struct solver {
    const harpe_problem *problem;
    const harpe_progress *progress;
    harpe_problem variant;
    harpe_graph_layout layout;
    harpe_choice *choices;
    double *delay_s; /* [deadline_count] */
    harpe_profile_point *points;
    harpe_option *options;
    double no_energy_j;
    int64_t fastest_ps, slowest_ps; /* T_min; the time with everything at its slowest */
    int64_t minimum_energy_ps;      /* T* */
    line *lines;                    /* of the frontier, fastest first */
    size_t line_count, line_capacity;
    harpe_work work;
} solver;

static harpe_status report(const solver *s, const char *phase, double fraction,
                           harpe_error *error) {
    const harpe_progress *progress = s->progress;
    if (!progress || !progress->report || progress->report(progress->user, phase, fraction))
        return HARPE_OK;
    return harpe_fail(error, HARPE_INTERRUPTED, "stopped while %s", phase);
}

/* ---- The problem at one time ----------------------------------------------------------------- */

static void set_time(solver *s, int64_t time_ps) {
    const harpe_graph_layout *layout = s->problem->graph;
    for (size_t d = 0; d < layout->deadline_count; d++) {
        int64_t left_ps = time_ps - harpe_round_down(layout->deadline_s[d] * HARPE_PS_PER_S);
        double delay_s = left_ps > 0 ? (double)left_ps / HARPE_PS_PER_S : 0;
        s->delay_s[d] = s->points[d].time_s = s->options[d].time_s = delay_s;
    }
}

static harpe_status solver_init(solver *s, const harpe_problem *problem,
                                const harpe_progress *progress, harpe_error *error) {
    const harpe_graph_layout *layout = problem->graph;
    size_t deadlines = layout->deadline_count;
    *s = (solver){.problem = problem, .progress = progress, .variant = *problem, .layout = *layout};
    s->choices = harpe_calloc(problem->choice_count, sizeof *s->choices);
    s->delay_s = harpe_calloc(deadlines, sizeof *s->delay_s);
    s->points = harpe_calloc(deadlines, sizeof *s->points);
    s->options = harpe_calloc(deadlines, sizeof *s->options);
    if (!s->choices || !s->delay_s || !s->points || !s->options) return harpe_fail_memory(error);
    memcpy(s->choices, problem->choices, problem->choice_count * sizeof *s->choices);
    for (size_t d = 0; d < deadlines; d++) {
        harpe_choice *choice = &s->choices[problem->choice_of[layout->deadline_instruction[d]]];
        s->points[d] = choice->points[0];
        s->options[d] = choice->list.options[0];
        choice->points = &s->points[d];
        choice->list.options = &s->options[d];
        choice->list.curve_time_s = &s->delay_s[d];
        choice->list.curve_effective_energy_j = &s->no_energy_j;
    }
    s->layout.deadline_count = 0;
    s->variant.graph = &s->layout;
    s->variant.choices = s->choices;
    harpe_walk walk;
    set_time(s, 0);
    harpe_status status = harpe_walk_begin(&walk, &s->variant, NULL, error);
    if (status != HARPE_OK) return status;
    s->fastest_ps = walk.fastest_ps;
    s->slowest_ps = walk.slowest_ps;
    harpe_walk_clear(&walk);
    return HARPE_OK;
}

static void solver_clear(solver *s) {
    free(s->choices);
    free(s->delay_s);
    free(s->points);
    free(s->options);
    free(s->lines);
}

/* Finds the line at a time. `*is_beyond` is set if a longer iteration than that of least energy was
 * given; there is then no line. */
static harpe_status solve_at(solver *s, int64_t time_ps, line *out, bool *is_beyond,
                             harpe_error *error) {
    harpe_status status = report(s, "solving", 0, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    set_time(s, time_ps);
    status = harpe_walk_begin(&walk, &s->variant, NULL, error);
    if (status != HARPE_OK) return status;
    *is_beyond = time_ps > walk.minimum_energy_ps;
    if (!*is_beyond) status = harpe_walk_to(&walk, time_ps, error);
    if (status == HARPE_OK && !*is_beyond) {
        int64_t flow_uw = walk.solver.flow_uw;
        const harpe_graph_layout *layout = s->problem->graph;
        for (size_t d = 0; d < layout->deadline_count; d++)
            if (s->delay_s[d] > 0) /* otherwise the end of the iteration is the earlier limit */
                flow_uw -= walk.solver.edges[layout->deadline_instruction[d]].flow;
        double iteration_w = harpe_problem_iteration_power_w(s->problem);
        *out = (line){
            .time_ps = time_ps,
            .energy_j = harpe_frontier_solver_energy_j(&walk.solver) +
                        iteration_w * ((double)time_ps / HARPE_PS_PER_S),
            .slope_w = iteration_w - (double)flow_uw / HARPE_UW_PER_W,
        };
    }
    s->work.pivots += walk.solver.work.pivots;
    s->work.degenerate_pivots += walk.solver.work.degenerate_pivots;
    s->work.nodes_moved += walk.solver.work.nodes_moved;
    s->work.path_steps += walk.solver.work.path_steps;
    s->work.memory_bytes = walk.solver.work.memory_bytes + walk.network.arena.total_bytes;
    harpe_walk_clear(&walk);
    return status;
}

/* ---- The frontier ---------------------------------------------------------------------------- */

static double energy_at(const line *l, int64_t time_ps) {
    return l->energy_j + l->slope_w * ((double)(time_ps - l->time_ps) / HARPE_PS_PER_S);
}

/* Adds a line that is on the frontier to the right of all lines so far. */
static harpe_status add_line(solver *s, const line *l, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(s->lines, s->line_capacity, s->line_count + 1))
        return harpe_fail_memory(error);
    s->lines[s->line_count++] = *l;
    return HARPE_OK;
}

/* Returns the time at which two lines meet, between their times. */
static int64_t meeting_ps(const line *a, const line *b) {
    double apart_j = energy_at(a, b->time_ps) - b->energy_j; /* <= 0: a lies below at b's time */
    double closing_w = b->slope_w - a->slope_w;
    double before_s = closing_w > 0 ? -apart_j / closing_w : 0;
    double length_ps = (double)(b->time_ps - a->time_ps);
    return b->time_ps - (int64_t)fmin(fmax(before_s * HARPE_PS_PER_S, 0), length_ps);
}

/* Finds all lines between `left`, which is already in the list, and `right`, and adds them and
 * `right`. Keeps a stack of right ends, because a frontier may have many vertices. */
static harpe_status find_lines(solver *s, line left, line right, harpe_error *error) {
    line *stack = NULL;
    size_t count = 0, capacity = 0;
    harpe_status status = HARPE_OK;
    if (!HARPE_ARRAY_RESERVE(stack, capacity, 1)) return harpe_fail_memory(error);
    stack[count++] = right;
    while (count > 0 && status == HARPE_OK) {
        line top = stack[count - 1], middle = {0};
        bool is_beyond = false, is_vertex = true;
        int64_t time_ps = meeting_ps(&left, &top);
        if (time_ps > left.time_ps + 1 && time_ps < top.time_ps - 1) {
            status = solve_at(s, time_ps, &middle, &is_beyond, error);
            double known_j = energy_at(&left, time_ps);
            double waiting_j =
                harpe_problem_iteration_power_w(s->problem) * (double)time_ps / HARPE_PS_PER_S;
            double rounding_j = SAME_ENERGY * (fabs(known_j) + waiting_j);
            is_vertex = is_beyond || middle.energy_j <= known_j + rounding_j;
        }
        if (status != HARPE_OK) break;
        if (!is_vertex && !HARPE_ARRAY_RESERVE(stack, capacity, count + 1)) {
            status = harpe_fail_memory(error);
        } else if (!is_vertex) {
            stack[count++] = middle;
        } else {
            if (top.slope_w > left.slope_w) status = add_line(s, &top, error);
            left = top;
            count--;
        }
    }
    free(stack);
    return status;
}

/* Finds the longest time before which a longer iteration saves energy: T*. */
static harpe_status find_minimum_energy(solver *s, line *at, harpe_error *error) {
    int64_t low_ps = s->fastest_ps, high_ps = s->slowest_ps;
    s->minimum_energy_ps = low_ps;
    bool is_beyond;
    while (low_ps <= high_ps) {
        int64_t middle_ps = low_ps + (high_ps - low_ps) / 2;
        line found = {0};
        harpe_status status = solve_at(s, middle_ps, &found, &is_beyond, error);
        if (status != HARPE_OK) return status;
        if (!is_beyond && found.slope_w < 0) {
            *at = found;
            s->minimum_energy_ps = middle_ps;
            low_ps = middle_ps + 1;
        } else {
            high_ps = middle_ps - 1;
        }
    }
    return HARPE_OK;
}

static harpe_frontier_vertex vertex_of(const solver *s, const line *below, int64_t time_ps) {
    return (harpe_frontier_vertex){
        .time_s = (double)time_ps / HARPE_PS_PER_S,
        .lower_bound_j = energy_at(below, time_ps),
        .marginal_w = harpe_problem_iteration_power_w(s->problem) - below->slope_w,
    };
}

static harpe_status make_frontier(solver *s, harpe_frontier **out, harpe_error *error) {
    harpe_frontier *frontier = harpe_calloc(1, sizeof *frontier);
    if (!frontier) return harpe_fail_memory(error);
    frontier->vertices = harpe_calloc(s->line_count + 1, sizeof *frontier->vertices);
    if (!frontier->vertices) {
        free(frontier);
        return harpe_fail_memory(error);
    }
    frontier->capacity = s->line_count + 1;
    frontier->iteration_power_w = harpe_problem_iteration_power_w(s->problem);
    frontier->work = s->work;
    harpe_frontier_vertex *vertices = frontier->vertices;
    vertices[frontier->count++] = vertex_of(s, &s->lines[0], s->fastest_ps);
    int64_t last_ps = s->fastest_ps;
    for (size_t i = 0; i < s->line_count; i++) {
        int64_t end_ps = i + 1 < s->line_count ? meeting_ps(&s->lines[i], &s->lines[i + 1])
                                               : s->minimum_energy_ps;
        harpe_frontier_vertex vertex = vertex_of(s, &s->lines[i], end_ps);
        /* A line of a few picoseconds is a rounding error. */
        if (end_ps <= last_ps + ROUNDING_PS ||
            vertex.lower_bound_j >= vertices[frontier->count - 1].lower_bound_j)
            continue;
        if (frontier->count == 1) vertices[0] = vertex_of(s, &s->lines[i], s->fastest_ps);
        vertices[frontier->count++] = vertex;
        last_ps = end_ps;
    }
    *out = frontier;
    return HARPE_OK;
}

static harpe_status solve_frontier(solver *s, harpe_frontier **out, harpe_error *error) {
    double began_s = harpe_clock_s();
    line fastest = {0}, slowest = {0};
    bool is_beyond = false;
    harpe_status status = find_minimum_energy(s, &slowest, error);
    if (status == HARPE_OK) status = solve_at(s, s->fastest_ps, &fastest, &is_beyond, error);
    if (status != HARPE_OK) return status;
    if (is_beyond) /* an iteration of T_min is longer than that of least energy */
        return harpe_fail(error, HARPE_INTERNAL, "no line at T_min");
    status = add_line(s, &fastest, error);
    if (status == HARPE_OK && s->minimum_energy_ps > s->fastest_ps)
        status = find_lines(s, fastest, slowest, error);
    s->work.solve_s = harpe_clock_s() - began_s;
    if (status == HARPE_OK) status = make_frontier(s, out, error);
    return status;
}

harpe_status harpe_deadline_frontier(const harpe_problem *problem, const harpe_progress *progress,
                                     harpe_frontier **out, harpe_error *error) {
    solver s;
    harpe_frontier *frontier = NULL;
    harpe_status status = solver_init(&s, problem, progress, error);
    if (status == HARPE_OK) status = solve_frontier(&s, &frontier, error);
    if (status == HARPE_OK) status = report(&s, "solving", 1, error);
    solver_clear(&s);
    if (status != HARPE_OK) {
        harpe_frontier_free(frontier);
        return status;
    }
    *out = frontier;
    return HARPE_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Makes the plan of least energy that was found for an iteration of at most `time_ps`. */
static harpe_status make_plan(solver *s, int64_t time_ps, harpe_plan *out, harpe_error *error) {
    double time_s = (double)time_ps / HARPE_PS_PER_S;
    harpe_plan_request request = {
        .choice = HARPE_PLANS_AT, .count = 1, .times_s = &time_s, .time_count = 1};
    harpe_plan_set *set = NULL;
    set_time(s, time_ps);
    harpe_status status = harpe_plan_set_new(&s->variant, &request, NULL, NULL, &set, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)s->problem->instruction_count;
    int *frequency_mhz = harpe_calloc(count, sizeof *frequency_mhz);
    if (frequency_mhz) {
        memcpy(frequency_mhz, set->plans[0].frequency_mhz, count * sizeof *frequency_mhz);
        status = harpe_plan_evaluate(s->problem, frequency_mhz, out, NULL, error);
    } else {
        status = harpe_fail_memory(error);
    }
    harpe_plan_set_free(set);
    if (status != HARPE_OK) free(frequency_mhz);
    return status;
}

/* Returns the i-th time for which a plan is made: those that were asked for, then some that are
 * spread from the fastest time to the longest of them. */
static double asked_s(const harpe_plan_request *request, double fastest_s, size_t i) {
    if (i < request->time_count) return request->times_s[i];
    double longest_s = fastest_s;
    for (size_t k = 0; k < request->time_count; k++)
        longest_s = fmax(longest_s, request->times_s[k]);
    double share = (double)(i - request->time_count) / BESIDE_ASKED;
    return fastest_s + share * (longest_s - fastest_s);
}

/* Lists the times of plans, in ps. */
static harpe_status list_times(const solver *s, const harpe_plan_request *request,
                               const harpe_frontier *frontier, int64_t **times_ps, size_t *count,
                               harpe_error *error) {
    size_t spread = request->count > 0 ? (size_t)request->count : DEFAULT_PLANS;
    *count = request->choice == HARPE_PLANS_AT    ? request->time_count + BESIDE_ASKED
             : request->choice == HARPE_PLANS_ALL ? frontier->count
                                                  : spread;
    *times_ps = harpe_calloc(*count, sizeof **times_ps);
    if (!*times_ps) return harpe_fail_memory(error);
    double fastest_s = (double)s->fastest_ps / HARPE_PS_PER_S;
    double length_ps = (double)(s->minimum_energy_ps - s->fastest_ps);
    for (size_t i = 0; i < *count; i++) {
        double share = *count > 1 ? (double)i / (double)(*count - 1) : 1;
        double time_s = request->choice == HARPE_PLANS_AT    ? asked_s(request, fastest_s, i)
                        : request->choice == HARPE_PLANS_ALL ? frontier->vertices[i].time_s
                                                             : fastest_s;
        if (!(time_s >= fastest_s - harpe_time_slack_s(fastest_s))) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %s s: the fastest takes %s s",
                              HARPE_DIGITS(time_s, 9), HARPE_DIGITS(fastest_s, 9));
        }
        double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)s->minimum_energy_ps);
        int64_t time_ps = harpe_round_down(most_ps);
        if (request->choice == HARPE_PLANS_SPREAD)
            time_ps = s->fastest_ps + (int64_t)(share * length_ps);
        (*times_ps)[i] = time_ps > s->fastest_ps ? time_ps : s->fastest_ps;
    }
    return HARPE_OK;
}

static int compare_plans(const void *left, const void *right) {
    const harpe_plan *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    return (a->energy_j > b->energy_j) - (a->energy_j < b->energy_j);
}

/* Keeps the plans that need less energy than all faster plans. */
static void drop_dominated(harpe_plan_set *set) {
    size_t kept = 0;
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
    for (size_t i = 0; i < set->count; i++) {
        const harpe_plan *last = kept > 0 ? &set->plans[kept - 1] : NULL;
        double least_j = last ? last->energy_j - 1e-12 * fabs(last->energy_j) : INFINITY;
        if (set->plans[i].energy_j < least_j)
            set->plans[kept++] = set->plans[i];
        else
            free((void *)set->plans[i].frequency_mhz);
    }
    set->count = kept;
}

/* Gives each time that was asked for the plan of least energy that is not slower: another one than
 * its own may need less, because its own was made for an iteration of the whole time. */
static harpe_status pick_asked(const harpe_problem *problem, const harpe_plan_request *request,
                               harpe_plan_set *set, harpe_error *error) {
    harpe_plan *picked = harpe_calloc(request->time_count, sizeof *picked);
    if (!picked) return harpe_fail_memory(error);
    size_t size = (size_t)problem->instruction_count * sizeof(int), count = 0;
    for (; count < request->time_count; count++) {
        const harpe_plan *best = &set->plans[count];
        double longest_s = request->times_s[count];
        longest_s += harpe_time_slack_s(longest_s);
        for (size_t i = 0; i < set->count; i++)
            if (set->plans[i].time_s <= longest_s && set->plans[i].energy_j < best->energy_j)
                best = &set->plans[i];
        int *frequency_mhz = harpe_calloc((size_t)problem->instruction_count, sizeof(int));
        if (!frequency_mhz) break;
        memcpy(frequency_mhz, best->frequency_mhz, size);
        picked[count] = *best;
        picked[count].frequency_mhz = frequency_mhz;
    }
    for (size_t i = 0; i < set->count; i++)
        free((void *)set->plans[i].frequency_mhz);
    free(set->plans);
    set->plans = picked;
    set->count = count;
    return count == request->time_count ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status make_plans(solver *s, const harpe_plan_request *request,
                               const harpe_frontier *frontier, harpe_plan_set *set,
                               harpe_error *error) {
    int64_t *times_ps = NULL;
    size_t count = 0;
    harpe_status status = list_times(s, request, frontier, &times_ps, &count, error);
    if (status == HARPE_OK) {
        set->plans = harpe_calloc(count, sizeof *set->plans);
        if (!set->plans) status = harpe_fail_memory(error);
    }
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        status = report(s, "planning", (double)i / (double)count, error);
        if (status == HARPE_OK) status = make_plan(s, times_ps[i], &set->plans[i], error);
        if (status == HARPE_OK) set->count++;
    }
    free(times_ps);
    if (status != HARPE_OK) return status;
    if (request->choice != HARPE_PLANS_AT)
        drop_dominated(set);
    else
        status = pick_asked(s->problem, request, set, error);
    if (status != HARPE_OK) return status;
    for (size_t i = 0; i < set->count; i++)
        set->plans[i].lower_bound_j = harpe_frontier_bound_at(frontier, set->plans[i].time_s);
    return HARPE_OK;
}

harpe_status harpe_deadline_plans(const harpe_problem *problem, const harpe_plan_request *request,
                                  const harpe_progress *progress, harpe_frontier **frontier,
                                  harpe_plan_set **out, harpe_error *error) {
    const harpe_clock_switch *change = &request->clock_switch;
    if (change->latency_s > 0 || change->energy_j > 0 || change->minimum_dwell_s > 0)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "changes of clock have no cost in a graph");
    solver s;
    harpe_frontier *solved = NULL;
    harpe_plan_set *set = harpe_calloc(1, sizeof *set);
    harpe_status status = solver_init(&s, problem, progress, error);
    if (status == HARPE_OK && !set) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = solve_frontier(&s, &solved, error);
    double began_s = harpe_clock_s();
    if (status == HARPE_OK) status = make_plans(&s, request, solved, set, error);
    if (status == HARPE_OK) status = report(&s, "planning", 1, error);
    solver_clear(&s);
    if (status != HARPE_OK || !frontier) {
        if (status != HARPE_OK) harpe_plan_set_free(set);
        harpe_frontier_free(solved);
    } else {
        solved->work.assign_s = harpe_clock_s() - began_s;
        *frontier = solved;
    }
    if (status == HARPE_OK) *out = set;
    return status;
}

/* ---- Verification ---------------------------------------------------------------------------- */

static harpe_status verify_at(solver *s, const harpe_frontier *frontier, double time_s,
                              double rounding_j, harpe_error *error) {
    harpe_frontier *found = NULL;
    set_time(s, harpe_round_down(time_s * HARPE_PS_PER_S));
    harpe_status status = harpe_frontier_new(&s->variant, NULL, &found, error);
    if (status == HARPE_OK) status = harpe_frontier_verify(&s->variant, found, 3, error);
    if (status == HARPE_OK && time_s <= found->vertices[found->count - 1].time_s) {
        double proven_j = harpe_frontier_bound_at(found, time_s);
        double claimed_j = harpe_frontier_bound_at(frontier, time_s);
        double allowed_j = rounding_j + 1e-9 * fabs(proven_j);
        if (isfinite(proven_j) && !(fabs(proven_j - claimed_j) <= allowed_j)) {
            status = harpe_fail(error, HARPE_INTERNAL,
                                "at %.9f s the deadlines allow %.9f J and the frontier says %.9f J",
                                time_s, proven_j, claimed_j);
        }
    }
    harpe_frontier_free(found);
    return status;
}

harpe_status harpe_deadline_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                                   size_t samples, double rounding_j, harpe_error *error) {
    solver s;
    size_t count = frontier->count;
    size_t step = samples == 0 || samples >= count ? 1 : count / samples;
    harpe_status status = solver_init(&s, problem, NULL, error);
    for (size_t i = 0; i < count && status == HARPE_OK; i += step) {
        double time_s = frontier->vertices[i].time_s;
        status = verify_at(&s, frontier, time_s, rounding_j, error);
        if (status == HARPE_OK && i + 1 < count) {
            double middle_s = (time_s + frontier->vertices[i + 1].time_s) / 2;
            status = verify_at(&s, frontier, middle_s, rounding_j, error);
        }
    }
    solver_clear(&s);
    return status;
}
