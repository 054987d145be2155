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
#include "plan/graph.h"
#include "plan/network.h"
#include "plan/plan_set_contents.h"
#include "plan/plan_times.h"
#include "plan/power_limits.h"
#include "plan/problem.h"
#include "plan/walk.h"

/* The variant shares everything with the problem except for the delays. It must stay in its
 * place. */
typedef struct deadline_variant {
    harpe_arena arena;
    harpe_problem problem; /* without deadlines */
    int64_t time_ps;
    harpe_graph_layout layout;
    harpe_choice *choices;
    size_t deadline_count;
    double *delay_s; /* [deadline_count] */
    harpe_profile_point *points;
    harpe_option *options;
    double no_energy_j;
} deadline_variant;

/* ---- The problem at one time ----------------------------------------------------------------- */

/* The problem of a graph with deadlines at one iteration time T has, in place of each deadline D, a
 * fixed delay of T - D between the end of the activity and the end of the iteration. */

static void deadline_variant_set_time(deadline_variant *variant, int64_t time_ps) {
    deadline_variant *v = variant;
    const harpe_graph_layout *layout = &v->layout;
    v->time_ps = time_ps;
    for (size_t d = 0; d < v->deadline_count; d++) {
        int64_t left_ps = time_ps - harpe_round_down(layout->deadline_s[d] * HARPE_PS_PER_S);
        double delay_s = left_ps > 0 ? (double)left_ps / HARPE_PS_PER_S : 0;
        v->delay_s[d] = v->points[d].time_s = v->options[d].time_s = delay_s;
    }
}

/* Makes the variant for the time 0, which has no limits. Clear it also after a failure. */
static harpe_status deadline_variant_init(deadline_variant *variant, const harpe_problem *problem,
                                          harpe_error *error) {
    deadline_variant *v = variant;
    const harpe_graph_layout *layout = problem->graph;
    size_t deadlines = layout->deadline_count;
    *v = (deadline_variant){.problem = *problem, .layout = *layout, .deadline_count = deadlines};
    v->choices = harpe_arena_alloc(&v->arena, problem->choice_count, sizeof *v->choices);
    v->delay_s = harpe_arena_alloc(&v->arena, deadlines, sizeof *v->delay_s);
    v->points = harpe_arena_alloc(&v->arena, deadlines, sizeof *v->points);
    v->options = harpe_arena_alloc(&v->arena, deadlines, sizeof *v->options);
    if (v->arena.has_failed) return harpe_fail_memory(error);
    memcpy(v->choices, problem->choices, problem->choice_count * sizeof *v->choices);
    for (size_t d = 0; d < deadlines; d++) {
        harpe_choice *choice = &v->choices[problem->choice_of[layout->deadline_instruction[d]]];
        v->points[d] = choice->points[0];
        v->options[d] = choice->list.options[0];
        choice->points = &v->points[d];
        choice->list.options = &v->options[d];
        choice->list.curve_time_s = &v->delay_s[d];
        choice->list.curve_effective_energy_j = &v->no_energy_j;
    }
    v->layout.deadline_count = 0;
    v->problem.graph = &v->layout;
    v->problem.choices = v->choices;
    deadline_variant_set_time(v, 0);
    return HARPE_OK;
}

static void deadline_variant_clear(deadline_variant *variant) {
    harpe_arena_free(&variant->arena);
    memset(variant, 0, sizeof *variant);
}

/* ---- The frontier ---------------------------------------------------------------------------- */

#define SAME_ENERGY \
    1e-12 /* relative difference of two energies that are equal but for rounding \
           */
#define ROUNDING_PS 3

/* The energy near a time: at most the energy of any plan, at every time. */
typedef struct line {
    int64_t time_ps;
    double energy_j; /* at time_ps, blocking included */
    double slope_w;  /* dE/dT */
} line;

typedef struct solver {
    const harpe_problem *problem;
    const harpe_progress *progress;
    deadline_variant variant;
    int64_t fastest_ps, slowest_ps; /* T_min; the time with everything at its slowest */
    int64_t minimum_energy_ps;      /* T* */
    line *lines;                    /* of the frontier, fastest first */
    size_t line_count, line_capacity;
    harpe_work work;
} solver;

static harpe_status report_solving(const solver *s, const char *phase, double fraction,
                                   harpe_error *error) {
    const harpe_progress *progress = s->progress;
    if (!progress || !progress->report || progress->report(progress->user, phase, fraction))
        return HARPE_OK;
    return harpe_fail(error, HARPE_INTERRUPTED, "stopped while %s", phase);
}

/* ---- The problem at one time ----------------------------------------------------------------- */

static harpe_status solver_init(solver *s, const harpe_problem *problem,
                                const harpe_progress *progress, harpe_error *error) {
    *s = (solver){.problem = problem, .progress = progress};
    harpe_status status = deadline_variant_init(&s->variant, problem, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    status = harpe_walk_begin(&walk, &s->variant.problem, NULL, error);
    if (status != HARPE_OK) return status;
    s->fastest_ps = walk.fastest_ps;
    s->slowest_ps = walk.slowest_ps;
    harpe_walk_clear(&walk);
    return HARPE_OK;
}

static void solver_clear(solver *s) {
    deadline_variant_clear(&s->variant);
    free(s->lines);
}

/* Finds the line at a time. `*is_beyond` is set if a longer iteration than that of least energy was
 * given; there is then no line. */
static harpe_status solve_at(solver *s, int64_t time_ps, line *out, bool *is_beyond,
                             harpe_error *error) {
    harpe_status status = report_solving(s, "solving", 0, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    deadline_variant_set_time(&s->variant, time_ps);
    status = harpe_walk_begin(&walk, &s->variant.problem, NULL, error);
    if (status != HARPE_OK) return status;
    *is_beyond = time_ps > walk.minimum_energy_ps;
    if (!*is_beyond) status = harpe_walk_to(&walk, time_ps, error);
    if (status == HARPE_OK && !*is_beyond) {
        int64_t flow_uw = walk.solver.flow_uw;
        const harpe_graph_layout *layout = s->problem->graph;
        for (size_t d = 0; d < layout->deadline_count; d++)
            if (s->variant.delay_s[d] >
                0) /* otherwise the end of the iteration is the earlier limit */
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
    if (status == HARPE_OK) status = report_solving(&s, "solving", 1, error);
    solver_clear(&s);
    if (status != HARPE_OK) {
        harpe_frontier_free(frontier);
        return status;
    }
    *out = frontier;
    return HARPE_OK;
}

/* ---- Verification ---------------------------------------------------------------------------- */

static harpe_status verify_at(solver *s, const harpe_frontier *frontier, double time_s,
                              double rounding_j, harpe_error *error) {
    harpe_frontier *found = NULL;
    deadline_variant_set_time(&s->variant, harpe_round_down(time_s * HARPE_PS_PER_S));
    harpe_status status = harpe_frontier_new(&s->variant.problem, NULL, &found, error);
    if (status == HARPE_OK) status = harpe_frontier_verify(&s->variant.problem, found, 3, error);
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

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Makes the plans. A plan for a time is made with the problem's variant at
 * this time, which has no deadlines. */

/* Plans made besides those for the times that were asked for. */
#define BESIDE_ASKED 8
/* The part of the reported progress that is for the frontier. The plans have the rest. */
#define SOLVING_SHARE 0.05

typedef struct maker {
    const harpe_problem *problem;
    const harpe_plan_request *request;
    const harpe_progress *progress;
    const harpe_frontier *frontier;
    harpe_time_span span;
    deadline_variant variant;
    harpe_plan_set *plans;
    double fraction; /* progress reported last; never falls */
} maker;

/* ---- Progress -------------------------------------------------------------------------------- */

static bool report(maker *m, const char *phase, double fraction) {
    m->fraction = fmin(1, fmax(m->fraction, fraction));
    if (!m->progress || !m->progress->report) return true;
    return m->progress->report(m->progress->user, phase, m->fraction);
}

static harpe_status report_planning(maker *m, double done, harpe_error *error) {
    if (report(m, "planning", SOLVING_SHARE + (1 - SOLVING_SHARE) * done)) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
}

static bool report_search(void *user, const char *phase, double fraction) {
    return report(user, phase, SOLVING_SHARE * fraction);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Adds the plan of least energy that was found for an iteration of at most `time_ps`. */
static harpe_status make_plan(maker *m, int64_t time_ps, harpe_error *error) {
    double time_s = (double)time_ps / HARPE_PS_PER_S;
    harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                  .times_s = &time_s,
                                  .time_count = 1,
                                  .threads = m->request->threads};
    harpe_plan_set *set = NULL;
    deadline_variant_set_time(&m->variant, time_ps);
    harpe_status status =
        harpe_plan_set_new(&m->variant.problem, &request, NULL, NULL, &set, error);
    if (status != HARPE_OK) return status;
    status = harpe_plan_set_add(m->plans, m->problem, set->plans[0].frequency_mhz, error);
    harpe_plan_set_free(set);
    return status;
}

/* Lists the times of all vertices. */
static harpe_status list_vertices(const maker *m, harpe_wanted_times *out, harpe_error *error) {
    out->items = harpe_calloc(m->frontier->count, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    for (; out->count < m->frontier->count; out->count++) {
        double time_ps = m->frontier->vertices[out->count].time_s * HARPE_PS_PER_S;
        int64_t time = harpe_round_down(fmin(time_ps, (double)m->span.minimum_energy_ps));
        out->items[out->count].time_ps = time > m->span.fastest_ps ? time : m->span.fastest_ps;
    }
    return HARPE_OK;
}

static harpe_status make_plans(maker *m, harpe_error *error) {
    harpe_plan_request request = *m->request;
    harpe_wanted_times times = {0};
    if (request.choice == HARPE_PLANS_AT) request.count = BESIDE_ASKED;
    harpe_status status = request.choice == HARPE_PLANS_ALL
                              ? list_vertices(m, &times, error)
                              : harpe_plan_times(&m->span, &request, &times, error);
    for (size_t i = 0; i < times.count && status == HARPE_OK; i++) {
        status = report_planning(m, (double)i / (double)times.count, error);
        if (status == HARPE_OK) status = make_plan(m, times.items[i].time_ps, error);
    }
    free(times.items);
    return status;
}

/* Chooses the plans, and writes their bounds. */
static harpe_status fill_set(const maker *m, harpe_error *error) {
    const harpe_plan_request *request = m->request;
    harpe_status status = HARPE_OK;
    harpe_plan_set_drop_dominated(m->plans, m->problem, 0);
    if (request->choice == HARPE_PLANS_AT)
        status =
            harpe_plan_set_pick(m->plans, m->problem, request->times_s, request->time_count, error);
    for (size_t i = 0; i < m->plans->count; i++) {
        harpe_plan *plan = &m->plans->plans[i];
        plan->lower_bound_j = harpe_frontier_bound_at(m->frontier, plan->time_s);
    }
    return status;
}

static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_plan_request *request, const harpe_progress *progress,
                               harpe_frontier **frontier, harpe_error *error) {
    *m = (maker){.problem = problem, .request = request, .progress = progress};
    m->plans = harpe_calloc(1, sizeof *m->plans);
    if (!m->plans) return harpe_fail_memory(error);
    harpe_status status = deadline_variant_init(&m->variant, problem, error);
    const harpe_progress solving = {.report = report_search, .user = m};
    if (status == HARPE_OK) status = harpe_deadline_frontier(problem, &solving, frontier, error);
    if (status != HARPE_OK) return status;
    const harpe_frontier *solved = m->frontier = *frontier;
    int64_t slowest_ps = llround(solved->vertices[solved->count - 1].time_s * HARPE_PS_PER_S);
    m->span = (harpe_time_span){problem, llround(solved->vertices[0].time_s * HARPE_PS_PER_S),
                                slowest_ps, slowest_ps};
    return HARPE_OK;
}

harpe_status harpe_deadline_plans(const harpe_problem *problem, const harpe_plan_request *request,
                                  const harpe_progress *progress, harpe_frontier **frontier,
                                  harpe_plan_set **out, harpe_error *error) {
    const harpe_clock_switch *change = &request->clock_switch;
    if (change->latency_s > 0 || change->energy_j > 0 || change->minimum_dwell_s > 0)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "changes of clock have no cost in a graph");
    if (harpe_power_limits_are_wanted(request))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph with deadlines has no limits on power");
    maker m;
    harpe_frontier *solved = NULL;
    harpe_status status = maker_init(&m, problem, request, progress, &solved, error);
    double began_s = harpe_clock_s();
    if (status == HARPE_OK) status = make_plans(&m, error);
    if (status == HARPE_OK) status = fill_set(&m, error);
    if (status == HARPE_OK && !report(&m, "planning", 1))
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    deadline_variant_clear(&m.variant);
    if (status != HARPE_OK) {
        harpe_plan_set_free(m.plans);
        harpe_frontier_free(solved);
        return status;
    }
    *out = m.plans;
    solved->work.assign_s = harpe_clock_s() - began_s;
    if (frontier)
        *frontier = solved;
    else
        harpe_frontier_free(solved);
    return HARPE_OK;
}
