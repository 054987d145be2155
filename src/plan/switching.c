/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the changes of clock in a plan, computes their cost, and evaluates plans whose clocks
 * change late. */
#include "plan/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

static harpe_status refuse_graph(harpe_error *error) {
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "changes of clock have no cost in a graph: leave dwell time, latency and "
                      "energy of a change out");
}

harpe_status harpe_clock_switch_check(const harpe_problem *problem, const harpe_clock_switch *cost,
                                      harpe_error *error) {
    if (!(cost->latency_s >= 0 && cost->energy_j >= 0 && cost->minimum_dwell_s >= 0 &&
          isfinite(cost->latency_s + cost->energy_j + cost->minimum_dwell_s)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "latency, energy and dwell of a change of clock must be 0 or more");
    if (problem->graph && harpe_clock_switch_has_cost(problem, cost)) return refuse_graph(error);
    if (!cost->takes_profile) return HARPE_OK;
    if (cost->latency_s > 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the latency of a change of clock is given twice: by the profile and as "
                          "a number");
    if (harpe_problem_has_switch_latency(problem)) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the profile has no switching latency: add the column switch_latency, or "
                      "give the latency as a number or as a table");
}

/* Returns the latency of a rank's change to a frequency. */
static double latency_to_s(const harpe_problem *problem, const harpe_clock_switch *cost, int rank,
                           int frequency_mhz) {
    if (!cost->takes_profile) return cost->latency_s;
    return harpe_problem_switch_latency_s(problem, rank, frequency_mhz);
}

double harpe_clock_switch_longest_s(const harpe_problem *problem, const harpe_clock_switch *cost) {
    double longest_s = cost->latency_s;
    for (size_t k = 0; cost->takes_profile && k < harpe_problem_option_list_count(problem); k++) {
        const harpe_choice *choice = &problem->choices[k];
        for (size_t p = 0; p < choice->point_count; p++)
            longest_s =
                fmax(longest_s, harpe_problem_switch_latency_s(problem, choice->list.rank,
                                                               choice->points[p].frequency_mhz));
    }
    return longest_s;
}

double harpe_clock_switch_hold_s(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 int rank, int frequency_mhz) {
    double latency_s = latency_to_s(problem, cost, rank, frequency_mhz);
    return fmax(cost->minimum_dwell_s, latency_s);
}

bool harpe_clock_switch_has_cost(const harpe_problem *problem, const harpe_clock_switch *cost) {
    return harpe_clock_switch_longest_s(problem, cost) > 0 || cost->energy_j > 0 ||
           cost->minimum_dwell_s > 0;
}

/* Returns the shortest time between two changes of a rank, which may be in iterations that follow
 * each other; INFINITY: no change. Instructions at 0 MHz keep the clock before them. */
static double rank_dwell_s(const harpe_problem *problem, const harpe_iteration *run, int rank,
                           const int *frequency_mhz) {
    const size_t *offset = problem->rank_offset;
    int now_mhz = harpe_evaluate_last_clock_mhz(problem, rank, frequency_mhz);
    double shortest_s = INFINITY, changed_s = -INFINITY;
    for (int iteration = 0; iteration < 2; iteration++) {
        for (size_t i = offset[rank]; i < offset[rank + 1]; i++) {
            if (frequency_mhz[i] == 0 || frequency_mhz[i] == now_mhz) continue;
            double at_s = run->start_s[i] + iteration * run->plan.time_s;
            shortest_s = fmin(shortest_s, at_s - changed_s);
            now_mhz = frequency_mhz[i];
            changed_s = at_s;
        }
    }
    return shortest_s;
}

harpe_status harpe_switching_dwells(const harpe_problem *problem, const int *frequency_mhz,
                                    double *shortest_s, harpe_error *error) {
    harpe_iteration run;
    if (problem->graph) return refuse_graph(error);
    harpe_status status = harpe_iteration_run(&run, problem, frequency_mhz, error);
    for (int rank = 0; status == HARPE_OK && rank < problem->rank_count; rank++)
        shortest_s[rank] = rank_dwell_s(problem, &run, rank, frequency_mhz);
    harpe_iteration_clear(&run);
    return status;
}

harpe_status harpe_plan_switching(const harpe_problem *problem, const int *frequency_mhz,
                                  const harpe_clock_switch *cost, harpe_switching *out,
                                  harpe_error *error) {
    static const harpe_clock_switch nothing = {0};
    if (!cost) cost = &nothing;
    harpe_late_plan late = {0};
    double shortest_s = INFINITY;
    harpe_status status = harpe_clock_switch_check(problem, cost, error);
    if (status != HARPE_OK) return status;
    double *dwell_s = harpe_calloc((size_t)problem->rank_count, sizeof *dwell_s);
    status = dwell_s ? harpe_switching_dwells(problem, frequency_mhz, dwell_s, error)
                     : harpe_fail_memory(error);
    for (int rank = 0; status == HARPE_OK && rank < problem->rank_count; rank++)
        shortest_s = fmin(shortest_s, dwell_s[rank]);
    free(dwell_s);
    if (status == HARPE_OK)
        status = harpe_plan_evaluate_late(problem, frequency_mhz, cost, 0, &late, NULL, error);
    if (status == HARPE_OK)
        *out = (harpe_switching){.clock_writes = harpe_evaluate_changes(problem, frequency_mhz),
                                 .shortest_dwell_s = isfinite(shortest_s) ? shortest_s : 0,
                                 .time_s = late.time_s,
                                 .energy_j = late.energy_j};
    return status;
}

/* ---- Instructions of almost no time ---------------------------------------------------------- */

#define BRIEF_S 1e-4     /* a change of clock takes milliseconds */
#define BRIEF_SHARE 0.01 /* of the longest instruction of the rank */

static double shortest_s(const harpe_problem *problem, size_t i) {
    return harpe_problem_choice(problem, (int32_t)i)->points[0].time_s;
}

static bool is_brief(const harpe_problem *problem, size_t i, double longest_s) {
    double time_s = shortest_s(problem, i);
    return time_s <= BRIEF_S && time_s <= BRIEF_SHARE * longest_s;
}

/* Returns whether a brief instruction may run at `to_mhz`. Profiles may contain instructions that
 * are brief only at some clocks. */
static bool may_follow(const harpe_problem *problem, size_t i, int from_mhz, int to_mhz,
                       bool never_worse) {
    const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
    const harpe_profile_point *from = harpe_choice_point(choice, from_mhz);
    const harpe_profile_point *to = harpe_choice_reached(choice, to_mhz);
    if (!from || !to || fmax(from->time_s, to->time_s) > BRIEF_S) return false;
    if (!never_worse) return true;
    double added_s = to->time_s - from->time_s;
    return added_s <= 0 && to->energy_j - from->energy_j - choice->blocking_power_w * added_s <= 0;
}

void harpe_switching_follow(const harpe_problem *problem, bool never_worse, int *frequency_mhz) {
    if (problem->graph) return; /* its frequencies stand for options */
    for (int rank = 0; rank < problem->rank_count; rank++) {
        size_t first = problem->rank_offset[rank], end = problem->rank_offset[rank + 1];
        double longest_s = 0;
        for (size_t i = first; i < end; i++)
            longest_s = fmax(longest_s, shortest_s(problem, i));
        int clock_mhz =
            0; /* of the instructions before; at the beginning, of the first longer one */
        for (size_t i = end; i-- > first;)
            if (!is_brief(problem, i, longest_s) && frequency_mhz[i] != 0)
                clock_mhz = frequency_mhz[i];
        for (size_t i = first; i < end; i++) {
            if (frequency_mhz[i] == 0) continue;
            if (clock_mhz != 0 && is_brief(problem, i, longest_s) &&
                may_follow(problem, i, frequency_mhz[i], clock_mhz, never_worse))
                frequency_mhz[i] = clock_mhz;
            else
                clock_mhz = frequency_mhz[i];
        }
    }
}

/* ---- Clocks that change late ----------------------------------------------------------------- */

/* Evaluates a plan whose clocks change some time after they are requested. Goes through the
 * instructions in topological order with the clock and the pending request of each rank, iteration
 * after iteration, until an iteration begins as the one before began. */

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
    double latency_s = latency_to_s(r->problem, r->cost, rank, mhz);
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
