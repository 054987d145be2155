/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a plan whose clocks change some time after they are requested. Goes through the
 * instructions in topological order with the clock and the pending request of each rank, iteration
 * after iteration, until an iteration begins as the one before began. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/switching.h"

#define MOST_ITERATIONS 64
#define MEAN_ITERATIONS 32  /* the last of them */
#define TIME_ROUNDING 1e-12 /* relative: times are sums of doubles */

/* The clock of a rank. */
typedef struct rank_clock {
    int clock_mhz;  /* that the GPU has */
    int wanted_mhz; /* that was requested last */
    double at_s;    /* when wanted_mhz takes effect, or took effect; -INFINITY: long ago */
} rank_clock;

typedef struct late_run {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double lead_s;
    const int *frequency_mhz;
    rank_clock *clocks, *before; /* [rank]: now, and at the start of the iteration */
    harpe_profile_point *late;   /* [instruction] */
    const harpe_profile_point **points;
    harpe_late_instruction *parts; /* [instruction] */
    double *start_s;
    size_t request_count, late_count;
} late_run;

/* Returns the point at a clock, or at the nearest clock that was measured. */
static const harpe_profile_point *nearest_point(const harpe_choice *choice, int mhz) {
    const harpe_profile_point *found = harpe_choice_point(choice, mhz);
    if (found) return found;
    found = &choice->points[0];
    for (size_t p = 1; p < choice->point_count; p++)
        if (abs(choice->points[p].frequency_mhz - mhz) < abs(found->frequency_mhz - mhz))
            found = &choice->points[p];
    return found;
}

/* Takes the pending request into effect if its time has come. */
static void follow_request(rank_clock *clock, double now_s) {
    if (clock->at_s <= now_s + TIME_ROUNDING * fabs(now_s)) clock->clock_mhz = clock->wanted_mhz;
}

/* Requests the clock of an instruction that begins at `start_s`, as much earlier as the controller
 * may. The time of the request does not matter, only when it takes effect. */
static void request(late_run *r, int rank, int mhz, double start_s) {
    rank_clock *clock = &r->clocks[rank];
    double latency_s = harpe_clock_switch_latency_s(r->problem, r->cost, rank, mhz);
    double lead_s = fmin(r->lead_s, latency_s);
    double asked_s = fmax(start_s - lead_s, fmin(clock->at_s, start_s));
    double late_s = asked_s > start_s - lead_s ? asked_s - (start_s - lead_s) : 0;
    clock->wanted_mhz = mhz;
    clock->at_s = start_s + (latency_s - lead_s) + late_s;
    r->request_count++;
}

/* Runs an instruction that begins at `start_s`, and returns its end. */
static double run_instruction(late_run *r, int32_t i, double start_s) {
    const harpe_choice *choice = harpe_problem_choice(r->problem, i);
    int rank = choice->list.rank, mhz = r->frequency_mhz[i];
    rank_clock *clock = &r->clocks[rank];
    follow_request(clock, start_s);
    if (mhz != 0 && mhz != clock->wanted_mhz) request(r, rank, mhz, start_s);
    follow_request(clock, start_s);
    const harpe_profile_point *old = nearest_point(choice, clock->clock_mhz), *now = old;
    harpe_late_instruction *part = &r->parts[i];
    *part = (harpe_late_instruction){
        .start_s = start_s, .first_mhz = clock->clock_mhz, .first_share = 1};
    double old_s = clock->at_s - start_s; /* until the change */
    if (clock->clock_mhz != clock->wanted_mhz && old_s < old->time_s * (1 - TIME_ROUNDING)) {
        part->first_share = old_s / old->time_s;
        clock->clock_mhz = clock->wanted_mhz;
        now = nearest_point(choice, clock->clock_mhz);
    }
    double share = part->first_share;
    part->last_mhz = clock->clock_mhz;
    part->time_s = share * old->time_s + (1 - share) * now->time_s;
    part->energy_j = share * old->energy_j + (1 - share) * now->energy_j;
    if (mhz != 0 && (part->first_mhz != mhz || part->last_mhz != mhz)) r->late_count++;
    r->late[i] = (harpe_profile_point){mhz, part->time_s, part->energy_j};
    return start_s + part->time_s;
}

/* Runs one iteration from the present clocks. Returns its length, and leaves the clocks as the next
 * iteration finds them. */
static double run_iteration(late_run *r) {
    const harpe_dag *dag = &r->problem->dag;
    double length_s = 0;
    r->request_count = r->late_count = 0;
    for (int32_t k = 0; k < r->problem->instruction_count; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
            int32_t from = dag->arc_from[a];
            start_s = fmax(start_s, r->start_s[from] + r->points[from]->time_s);
        }
        r->start_s[i] = start_s;
        double end_s = start_s + r->points[i]->time_s;
        if (!harpe_problem_is_delay(r->problem, i)) end_s = run_instruction(r, i, start_s);
        length_s = fmax(length_s, end_s);
    }
    for (int rank = 0; rank < r->problem->rank_count; rank++) {
        rank_clock *clock = &r->clocks[rank];
        follow_request(clock, length_s);
        clock->at_s -= length_s;
    }
    return length_s;
}

/* Returns whether this iteration begins as the one before. A change that took effect before the
 * iteration matters only through the time at which the next may be requested. */
static bool repeats(const late_run *r, double length_s) {
    for (int rank = 0; rank < r->problem->rank_count; rank++) {
        const rank_clock *now = &r->clocks[rank], *then = &r->before[rank];
        if (now->clock_mhz != then->clock_mhz || now->wanted_mhz != then->wanted_mhz) return false;
        double difference_s = now->at_s - then->at_s;
        if (isinf(now->at_s) && isinf(then->at_s)) continue;
        if (!(fabs(difference_s) <= 1e-9 * length_s)) return false;
    }
    return true;
}

/* Begins with the last clock of each rank's list, or the highest of its first instruction. */
static void begin_clocks(late_run *r) {
    for (int rank = 0; rank < r->problem->rank_count; rank++) {
        int mhz = harpe_evaluate_last_clock_mhz(r->problem, rank, r->frequency_mhz);
        if (mhz == 0 && r->problem->rank_offset[rank] < r->problem->rank_offset[rank + 1]) {
            int32_t first = (int32_t)r->problem->rank_offset[rank];
            mhz = harpe_problem_choice(r->problem, first)->points[0].frequency_mhz;
        }
        r->clocks[rank] = (rank_clock){mhz, mhz, -INFINITY};
    }
}

static void run_until_steady(late_run *r, harpe_late_plan *out) {
    size_t ranks = (size_t)r->problem->rank_count;
    harpe_late_plan sum = {0};
    begin_clocks(r);
    for (int k = 1; k <= MOST_ITERATIONS; k++) {
        memcpy(r->before, r->clocks, ranks * sizeof *r->before);
        double length_s = run_iteration(r);
        harpe_plan plan = harpe_evaluate_points(r->problem, r->points, r->start_s);
        double energy_j = plan.energy_j + r->cost->energy_j * (double)r->request_count;
        *out = (harpe_late_plan){plan.time_s, energy_j, r->request_count, r->late_count, true};
        if (repeats(r, length_s)) return;
        if (k <= MOST_ITERATIONS - MEAN_ITERATIONS) continue;
        sum.time_s += plan.time_s;
        sum.energy_j += energy_j;
    }
    out->time_s = sum.time_s / MEAN_ITERATIONS;
    out->energy_j = sum.energy_j / MEAN_ITERATIONS;
    out->is_steady = false;
}

static harpe_status evaluate(late_run *r, harpe_late_plan *out,
                             harpe_late_instruction *instructions, harpe_error *error) {
    size_t count = (size_t)r->problem->instruction_count, ranks = (size_t)r->problem->rank_count;
    r->clocks = harpe_arena_alloc(&r->arena, 2 * ranks, sizeof *r->clocks);
    r->late = harpe_arena_alloc(&r->arena, count, sizeof *r->late);
    r->points = harpe_arena_alloc(&r->arena, count, sizeof *r->points);
    r->parts = harpe_arena_alloc(&r->arena, count, sizeof *r->parts);
    r->start_s = harpe_arena_alloc(&r->arena, count, sizeof *r->start_s);
    if (r->arena.has_failed) return harpe_fail_memory(error);
    r->before = r->clocks + ranks;
    harpe_status status =
        harpe_evaluate_find_points(r->problem, r->frequency_mhz, r->points, error);
    if (status != HARPE_OK) return status;
    size_t own = harpe_problem_instruction_count(r->problem);
    for (size_t i = 0; i < own; i++)
        r->points[i] = &r->late[i];
    run_until_steady(r, out);
    if (instructions) memcpy(instructions, r->parts, own * sizeof *instructions);
    return HARPE_OK;
}

harpe_status harpe_plan_evaluate_late(const harpe_problem *problem, const int *frequency_mhz,
                                      const harpe_clock_switch *cost, double lead_s,
                                      harpe_late_plan *out, harpe_late_instruction *instructions,
                                      harpe_error *error) {
    static const harpe_clock_switch nothing = {0};
    if (!cost) cost = &nothing;
    harpe_status status = harpe_clock_switch_check(problem, cost, error);
    if (status != HARPE_OK) return status;
    if (problem->graph)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "the clocks of a graph do not change late");
    if (!(lead_s >= 0))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the lead must be 0 or more");
    late_run r = {
        .problem = problem, .cost = cost, .lead_s = lead_s, .frequency_mhz = frequency_mhz};
    status = evaluate(&r, out, instructions, error);
    harpe_arena_free(&r.arena);
    return status;
}
