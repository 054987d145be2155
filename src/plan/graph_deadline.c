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
#include "plan/deadline_variant.h"
#include "plan/walk.h"

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
    harpe_deadline_variant variant;
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

static harpe_status solver_init(solver *s, const harpe_problem *problem,
                                const harpe_progress *progress, harpe_error *error) {
    *s = (solver){.problem = problem, .progress = progress};
    harpe_status status = harpe_deadline_variant_init(&s->variant, problem, error);
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
    harpe_deadline_variant_clear(&s->variant);
    free(s->lines);
}

/* Finds the line at a time. `*is_beyond` is set if a longer iteration than that of least energy was
 * given; there is then no line. */
static harpe_status solve_at(solver *s, int64_t time_ps, line *out, bool *is_beyond,
                             harpe_error *error) {
    harpe_status status = report(s, "solving", 0, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    harpe_deadline_variant_set_time(&s->variant, time_ps);
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
    if (status == HARPE_OK) status = report(&s, "solving", 1, error);
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
    harpe_deadline_variant_set_time(&s->variant, harpe_round_down(time_s * HARPE_PS_PER_S));
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
