/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier: the public functions, the walk that records it, and the times for which plans are
 * made. frontier_solver.c and clock_bound.c compute vertices and bounds; see solver.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/clocks_internal.h"
#include "plan/plans.h"
#include "plan/search_internal.h"
#include "plan/solver.h"

/* ---- Public functions ------------------------------------------------------------------------ */

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
    if (status == HARPE_OK) status = harpe_walk_finish(&walk, walk.fastest_ps, out, error);
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

/* ---- Walk ------------------------------------------------------------------------------------ */

/* The walk along the frontier. It adds blocking and overhead energy to the solver's compute energy,
 * so that all later steps use whole iterations. */

/* Segments between two reports of progress. */
#define REPORT_INTERVAL 64

/* Returns the tolerance for comparing a time with an iteration time. A time of the frontier is a
 * whole number of picoseconds. The time of a plan is a sum of doubles, and may have been printed
 * and read again. The tolerance is 1 ns, but at most 1e-3 and at least 1e-12 of the iteration
 * time. */
double harpe_time_slack_s(double iteration_s) {
    return fmax(fmin(1e-9, 1e-3 * iteration_s), 1e-12 * iteration_s);
}

/* Computes the shortest iteration time: each instruction takes its shortest time, and the longest
 * path of the network is the iteration. */
static harpe_status find_fastest(harpe_walk *walk, harpe_error *error) {
    const harpe_network *network = &walk->network;
    int64_t *arrival = harpe_calloc((size_t)network->node_count, sizeof *arrival);
    if (!arrival) return harpe_fail_memory(error);
    for (int32_t i = 0; i < network->node_count; i++) {
        int32_t v = network->topological_order[i];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, w = network->head[e];
            if (network->tail[e] != v || harpe_network_is_deadline(network, e)) continue;
            int64_t time = arrival[v] + network->curves[network->curve_of[e]].time_ps[0];
            if (time > arrival[w]) arrival[w] = time;
        }
    }
    walk->fastest_ps = arrival[network->sink];
    free(arrival);
    return HARPE_OK;
}

/* Reports progress. Returns false to stop. */
static bool report_fraction(const harpe_walk *walk, double fraction) {
    if (!walk->progress || !walk->progress->report) return true;
    return walk->progress->report(walk->progress->user, "solving", fraction);
}

static harpe_status fail_interrupted(harpe_error *error) {
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while solving the frontier");
}

static harpe_status report(harpe_walk *walk, harpe_error *error) {
    if (walk->steps++ % REPORT_INTERVAL != 0) return HARPE_OK;
    int64_t range = walk->slowest_ps - walk->fastest_ps;
    double fraction =
        range > 0 ? (double)(walk->slowest_ps - walk->solver.time_ps) / (double)range : 1;
    return report_fraction(walk, fraction) ? HARPE_OK : fail_interrupted(error);
}

/* Returns the total energy at the solver's time. */
static double energy_j(const harpe_walk *walk) {
    return harpe_frontier_solver_energy_j(&walk->solver) +
           walk->frontier.iteration_power_w * ((double)walk->solver.time_ps / HARPE_PS_PER_S);
}

static harpe_status add_vertex(harpe_walk *walk, harpe_error *error) {
    harpe_frontier *frontier = &walk->frontier;
    double flow_w = (double)walk->solver.flow_uw / HARPE_UW_PER_W;
    if (frontier->count > 0 && frontier->vertices[frontier->count - 1].marginal_w == flow_w &&
        !walk->solver.at_end)
        return HARPE_OK; /* the segment before has the same slope */
    if (!HARPE_ARRAY_RESERVE(frontier->vertices, frontier->capacity, frontier->count + 1))
        return harpe_fail_memory(error);
    frontier->vertices[frontier->count++] = (harpe_frontier_vertex){
        .time_s = (double)walk->solver.time_ps / HARPE_PS_PER_S,
        .lower_bound_j = energy_j(walk),
        .marginal_w = flow_w,
    };
    return HARPE_OK;
}

/* Moves the solver to the next segment, and records the vertex at its start. `*moved` is false at
 * T_min. */
static harpe_status enter_segment(harpe_walk *walk, bool *moved, harpe_error *error) {
    *moved = true;
    if (walk->in_segment) return HARPE_OK;
    if (walk->solver.time_ps <= walk->fastest_ps) {
        /* The solver would continue to raise the flow, but the iteration cannot become shorter. */
        *moved = false;
        return HARPE_OK;
    }
    harpe_status status = report(walk, error);
    if (status != HARPE_OK) return status;
    harpe_frontier_segment segment;
    *moved = harpe_frontier_solver_next(&walk->solver, &segment);
    walk->in_segment = *moved;
    if (!*moved) return HARPE_OK;
    return add_vertex(walk, error);
}

/* Walks to T*, starting with all instructions at their slowest. The walk continues while a shorter
 * iteration costs no more additional compute energy than it saves in blocking and overhead energy.
 * Vertices on the way are not needed. */
static harpe_status walk_to_minimum_energy(harpe_walk *walk, harpe_error *error) {
    harpe_frontier_solver *solver = &walk->solver;
    harpe_frontier_segment segment;
    while (harpe_frontier_solver_next(solver, &segment)) {
        if (segment.flow_uw > walk->network.iteration_power_uw) {
            walk->in_segment = true;
            break;
        }
        harpe_frontier_solver_advance(solver, harpe_frontier_solver_segment_end_ps(solver));
        harpe_status status = report(walk, error);
        if (status != HARPE_OK) return status;
    }
    walk->minimum_energy_ps = solver->time_ps;
    return walk->in_segment ? add_vertex(walk, error) : HARPE_OK;
}

harpe_status harpe_walk_begin_slowest(harpe_walk *walk, const harpe_problem *problem,
                                      harpe_error *error) {
    double began = harpe_clock_s();
    memset(walk, 0, sizeof *walk);
    walk->problem = problem;
    walk->frontier.iteration_power_w = harpe_problem_iteration_power_w(problem);
    harpe_status status = harpe_network_build(problem, &walk->network, error);
    if (status == HARPE_OK) status = find_fastest(walk, error);
    if (status == HARPE_OK)
        status = harpe_frontier_solver_init(&walk->solver, &walk->network, error);
    if (status != HARPE_OK) {
        harpe_walk_clear(walk);
        return status;
    }
    walk->slowest_ps = walk->minimum_energy_ps = walk->solver.time_ps;
    walk->frontier.work.build_s = harpe_clock_s() - began;
    return HARPE_OK;
}

harpe_status harpe_walk_begin(harpe_walk *walk, const harpe_problem *problem,
                              const harpe_progress *progress, harpe_error *error) {
    harpe_status status = harpe_walk_begin_slowest(walk, problem, error);
    if (status != HARPE_OK) return status;
    double began = harpe_clock_s();
    walk->progress = progress;
    status = walk_to_minimum_energy(walk, error);
    walk->frontier.work.solve_s = harpe_clock_s() - began;
    if (status != HARPE_OK) harpe_walk_clear(walk);
    return status;
}

harpe_status harpe_walk_to(harpe_walk *walk, int64_t time_ps, harpe_error *error) {
    double began = harpe_clock_s();
    harpe_frontier_solver *solver = &walk->solver;
    harpe_status status = HARPE_OK;
    while (solver->time_ps > time_ps) {
        bool moved;
        status = enter_segment(walk, &moved, error);
        if (status != HARPE_OK || !moved) break;
        int64_t end_ps = harpe_frontier_solver_segment_end_ps(solver);
        if (time_ps > end_ps) {
            harpe_frontier_solver_advance(solver, time_ps);
        } else {
            harpe_frontier_solver_advance(solver, end_ps);
            walk->in_segment = false;
        }
    }
    walk->frontier.work.solve_s += harpe_clock_s() - began;
    return status;
}

harpe_status harpe_walk_to_next_vertex(harpe_walk *walk, harpe_error *error) {
    size_t known = walk->frontier.count;
    while (walk->frontier.count == known) {
        bool moved;
        harpe_status status = enter_segment(walk, &moved, error);
        if (status != HARPE_OK || !moved) return status;
        if (walk->frontier.count > known) break;
        status = harpe_walk_to(walk, harpe_frontier_solver_segment_end_ps(&walk->solver), error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

void harpe_walk_read(const harpe_walk *walk, harpe_relaxed *relaxed) {
    const harpe_network *network = &walk->network;
    relaxed->time_ps = walk->solver.time_ps;
    for (int32_t i = 0; i < network->instruction_count; i++) {
        relaxed->duration_ps[i] = harpe_frontier_solver_event_ps(&walk->solver, network->head[i]) -
                                  harpe_frontier_solver_event_ps(&walk->solver, network->tail[i]);
        relaxed->price_uw[i] = walk->solver.edges[i].flow;
    }
}

double harpe_walk_bound_j(const harpe_walk *walk, double time_s) {
    const harpe_frontier *frontier = &walk->frontier;
    size_t low = 0, high = frontier->count; /* vertices before `high` are not faster than time_s */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frontier->vertices[middle].time_s >= time_s)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return energy_j(walk);
    const harpe_frontier_vertex *above = &frontier->vertices[low - 1];
    return above->lower_bound_j +
           (above->marginal_w - frontier->iteration_power_w) * (above->time_s - time_s);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Interpolates between corners. If two corners have the same time, the first one gives the bound at
 * this time. */
static double bound_between(const harpe_frontier_vertex *vertices, size_t count, double time_s) {
    size_t last = count - 1;
    if (time_s < vertices[0].time_s - harpe_time_slack_s(vertices[0].time_s)) return INFINITY;
    if (time_s <= vertices[0].time_s) return vertices[0].lower_bound_j;
    /* A plan that takes longer than T* may need less compute energy, but waiting costs more than it
     * saves. */
    if (time_s > vertices[last].time_s) return vertices[last].lower_bound_j;
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

double harpe_frontier_relaxed_at(const harpe_frontier *frontier, double time_s) {
    return bound_between(frontier->vertices, frontier->count, time_s);
}

double harpe_frontier_bound_at(const harpe_frontier *frontier, double time_s) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    return bound_between(vertices, count, time_s);
}

double harpe_frontier_bound_of(const harpe_frontier *frontier, const harpe_problem *problem,
                               const harpe_plan *plan) {
    double bound_j = harpe_frontier_bound_at(frontier, plan->time_s), changes_j = 0;
    if (!frontier->bound) return bound_j;
    if (frontier->change_j > 0)
        changes_j =
            frontier->change_j * (double)harpe_evaluate_changes(problem, plan->frequency_mhz);
    return fmax(harpe_frontier_relaxed_at(frontier, plan->time_s), bound_j - changes_j);
}

/* Returns the line that is highest at a time, of those that hold until `until_s`, or NULL if the
 * relaxation is higher. Writes the height. */
static const harpe_bound_line *highest_line(const harpe_frontier *frontier, double time_s,
                                            double until_s, double *bound_j) {
    const harpe_bound_line *best = NULL;
    *bound_j = harpe_frontier_relaxed_at(frontier, time_s);
    for (size_t k = 0; k < frontier->line_count; k++) {
        const harpe_bound_line *line = &frontier->lines[k];
        double line_j = line->at_0_j + line->slope_w * time_s;
        if (line->longest_s < until_s || line_j <= *bound_j) continue;
        best = line;
        *bound_j = line_j;
    }
    return best;
}

/* Returns the height of a line, or of the relaxation (NULL), at a time. */
static double height_j(const harpe_frontier *frontier, const harpe_bound_line *line,
                       double time_s) {
    if (!line) return harpe_frontier_relaxed_at(frontier, time_s);
    return line->at_0_j + line->slope_w * time_s;
}

static void add_corner(harpe_frontier *frontier, double time_s, double bound_j) {
    harpe_frontier_vertex *corner = &frontier->bound[frontier->bound_count];
    const harpe_frontier_vertex *before = corner - 1;
    if (frontier->bound_count > 0 && before->time_s == time_s && before->lower_bound_j == bound_j)
        return;
    *corner = (harpe_frontier_vertex){.time_s = time_s, .lower_bound_j = bound_j};
    if (frontier->bound_count > 0 && time_s > before->time_s)
        corner->marginal_w = frontier->iteration_power_w +
                             (before->lower_bound_j - bound_j) / (time_s - before->time_s);
    else if (frontier->bound_count > 0)
        corner->marginal_w = before->marginal_w;
    frontier->bound_count++;
}

/* Adds the corners of the bound from one time to a later one, between which the relaxation is
 * straight. If the same line is highest at both times, it is the bound. Otherwise the bound follows
 * the first of the two lines until they meet, and then the second. It is nowhere above the highest
 * line. */
static void add_corners(harpe_frontier *frontier, double from_s, double to_s) {
    double from_j, to_j;
    const harpe_bound_line *first = highest_line(frontier, from_s, to_s, &from_j);
    const harpe_bound_line *last = highest_line(frontier, to_s, to_s, &to_j);
    add_corner(frontier, from_s, from_j);
    if (first != last) {
        double above_j = from_j - height_j(frontier, last, from_s);
        double below_j = to_j - height_j(frontier, first, to_s);
        double share = above_j + below_j > 0 ? above_j / (above_j + below_j) : 0;
        double meet_s = from_s + share * (to_s - from_s);
        if (meet_s > from_s && meet_s < to_s)
            add_corner(frontier, meet_s, height_j(frontier, last, meet_s));
    }
    add_corner(frontier, to_s, to_j);
}

/* Joins the vertices and the lines to one bound. The bound falls at the end of a line. */
static harpe_status join_lines(harpe_frontier *frontier, harpe_error *error) {
    size_t count = frontier->count + frontier->line_count;
    double *times = harpe_calloc(count, sizeof *times), first_j;
    frontier->bound = harpe_calloc(3 * count + 2, sizeof *frontier->bound);
    if (!times || !frontier->bound) {
        free(times);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++)
        times[i] = i < frontier->count ? frontier->vertices[i].time_s
                                       : frontier->lines[i - frontier->count].longest_s;
    qsort(times, count, sizeof *times, harpe_compare_doubles);
    (void)highest_line(frontier, times[0], times[0], &first_j);
    add_corner(frontier, times[0], first_j);
    for (size_t i = 1; i < count; i++)
        if (times[i] > times[i - 1]) add_corners(frontier, times[i - 1], times[i]);
    add_corner(frontier, times[count - 1], harpe_frontier_relaxed_at(frontier, times[count - 1]));
    free(times);
    return HARPE_OK;
}

/* ---- The end --------------------------------------------------------------------------------- */

harpe_status harpe_walk_finish(harpe_walk *walk, int64_t time_ps, harpe_frontier **out,
                               harpe_error *error) {
    harpe_status status = harpe_walk_to(walk, time_ps, error);
    if (status != HARPE_OK) return status;
    if (walk->solver.time_ps != time_ps) {
        return harpe_fail(error, HARPE_INTERNAL,
                          "the frontier ends at %lld ps, the longest path is %lld ps",
                          (long long)walk->solver.time_ps, (long long)walk->fastest_ps);
    }
    walk->solver.at_end = true;
    status = add_vertex(walk, error);
    if (status != HARPE_OK) return status;
    harpe_frontier *frontier = harpe_calloc(1, sizeof *frontier);
    if (!frontier) return harpe_fail_memory(error);
    harpe_frontier *found = &walk->frontier;
    for (size_t i = 0, j = found->count - 1; i < j; i++, j--) {
        harpe_frontier_vertex swapped = found->vertices[i];
        found->vertices[i] = found->vertices[j];
        found->vertices[j] = swapped;
    }
    if (found->line_count > 0) status = join_lines(found, error);
    if (status != HARPE_OK) return status;
    const harpe_work *solver_work = &walk->solver.work;
    found->work.pivots = solver_work->pivots;
    found->work.degenerate_pivots = solver_work->degenerate_pivots;
    found->work.nodes_moved = solver_work->nodes_moved;
    found->work.path_steps = solver_work->path_steps;
    found->work.memory_bytes = solver_work->memory_bytes + walk->network.arena.total_bytes +
                               found->capacity * sizeof *found->vertices;
    if (!report_fraction(walk, 1)) {
        free(frontier);
        return fail_interrupted(error);
    }
    *frontier = *found;
    memset(found, 0, sizeof *found);
    *out = frontier;
    return HARPE_OK;
}

void harpe_walk_clear(harpe_walk *walk) {
    harpe_frontier_solver_clear(&walk->solver);
    harpe_network_clear(&walk->network);
    free(walk->frontier.vertices);
    free(walk->frontier.lines);
    free(walk->frontier.bound);
    memset(walk, 0, sizeof *walk);
}

/* ---- Times of plans -------------------------------------------------------------------------- */

/* The iteration times of plans. */

#define DEFAULT_COUNT 100

static int compare_slowest_first(const void *a, const void *b) {
    const harpe_wanted_time *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps > y->time_ps ? -1 : 1;
    if (x->longest_ps != y->longest_ps) return x->longest_ps > y->longest_ps ? -1 : 1;
    return y->is_asked - x->is_asked;
}

/* Users choose among plans that take a little longer than the highest clocks. There is a plan for
 * each of these slowdowns, however few plans are asked for. */
static const double near_slowdowns[] = {0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05};
#define NEAR_COUNT (sizeof near_slowdowns / sizeof near_slowdowns[0])

static harpe_wanted_time wanted_at(int64_t time_ps) {
    return (harpe_wanted_time){.time_ps = time_ps, .longest_ps = time_ps};
}

/* Chooses T*, T_min and the times of the slowdowns. Fills up to at least `count` times with times
 * that are spread evenly between T_min and T*. A time above T* is of use only if changes of clock
 * have a cost. */
static harpe_status spread_times(const harpe_walk *walk, size_t count, bool has_cost,
                                 harpe_wanted_times *times, harpe_error *error) {
    int64_t slowest = walk->minimum_energy_ps, fastest = walk->fastest_ps;
    harpe_plan highest;
    harpe_status status = harpe_plan_all_maximum(walk->problem, &highest, error);
    if (status != HARPE_OK) return status;
    times->items[times->count++] = wanted_at(slowest);
    if (slowest == fastest && !has_cost) return HARPE_OK;
    times->items[times->count++] = wanted_at(fastest);
    for (size_t k = 0; k < NEAR_COUNT; k++) {
        double time_ps = highest.time_s * (1 + near_slowdowns[k]) * HARPE_PS_PER_S;
        if (time_ps <= (double)fastest || (time_ps >= (double)slowest && !has_cost)) continue;
        int64_t longest = harpe_round_down(fmin(time_ps, (double)walk->slowest_ps));
        times->items[times->count] = wanted_at(longest < slowest ? longest : slowest);
        times->items[times->count++].longest_ps = longest;
    }
    if (slowest == fastest) return HARPE_OK;
    int64_t rest = (int64_t)(count > NEAR_COUNT ? count - NEAR_COUNT : 0);
    for (int64_t k = 1; k <= rest; k++)
        times->items[times->count++] = wanted_at(fastest + (slowest - fastest) / (rest + 1) * k);
    return HARPE_OK;
}

static harpe_status asked_times(const harpe_walk *walk, const double *times_s, size_t count,
                                harpe_wanted_time *items, harpe_error *error) {
    double fastest_s = (double)walk->fastest_ps / HARPE_PS_PER_S;
    for (size_t i = 0; i < count; i++) {
        double time_s = times_s[i] == 0 ? fastest_s : times_s[i];
        if (!(time_s >= fastest_s - harpe_time_slack_s(fastest_s))) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %s s: the fastest takes %s s",
                              HARPE_DIGITS(time_s, 9), HARPE_DIGITS(fastest_s, 9));
        }
        int64_t slowest_ps = walk->minimum_energy_ps;
        double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)walk->slowest_ps);
        int64_t longest_ps = harpe_round_down(most_ps);
        if (longest_ps < walk->fastest_ps) longest_ps = walk->fastest_ps;
        int64_t time_ps = longest_ps < slowest_ps ? longest_ps : slowest_ps;
        items[i] =
            (harpe_wanted_time){.time_ps = time_ps, .longest_ps = longest_ps, .is_asked = true};
    }
    return HARPE_OK;
}

harpe_status harpe_plan_times(const harpe_walk *walk, const harpe_plan_request *request,
                              harpe_wanted_times *out, harpe_error *error) {
    bool is_asked = request->choice == HARPE_PLANS_AT;
    bool has_cost = harpe_clock_switch_has_cost(walk->problem, &request->clock_switch);
    size_t asked = is_asked ? request->time_count : 0;
    size_t spread = request->count > 0 ? (size_t)request->count : is_asked ? 0 : DEFAULT_COUNT;
    out->items = harpe_calloc(2 + NEAR_COUNT + spread + asked, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    harpe_status status = asked_times(walk, request->times_s, asked, out->items, error);
    out->count = asked;
    /* The fastest plan may be the best for other times too. */
    if (is_asked) out->items[out->count++] = wanted_at(walk->fastest_ps);
    if (status == HARPE_OK && spread > 0) status = spread_times(walk, spread, has_cost, out, error);
    if (status != HARPE_OK) return status;
    qsort(out->items, out->count, sizeof *out->items, compare_slowest_first);
    size_t kept = 0; /* of equal times that were asked for, the first is kept */
    for (size_t i = 0; i < out->count; i++)
        if (!is_asked || kept == 0 || out->items[i].time_ps != out->items[kept - 1].time_ps ||
            out->items[i].longest_ps != out->items[kept - 1].longest_ps)
            out->items[kept++] = out->items[i];
    out->count = kept;
    return HARPE_OK;
}
