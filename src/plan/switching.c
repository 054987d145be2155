/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the changes of clock in a plan, and computes their cost. The list of each rank is divided
 * into runs of neighbours with one frequency. */
#include "plan/switching.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"

/* Instructions first .. end-1 of a rank, all at one frequency. */
typedef struct run {
    size_t first, end;
    int frequency_mhz;
} run;

typedef struct switches {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    const harpe_profile_point **points;
    double *start_s;
    run *runs; /* of the present rank */
    size_t run_count;
    double end_s; /* of the iteration */
} switches;

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

double harpe_clock_switch_latency_s(const harpe_problem *problem, const harpe_clock_switch *cost,
                                    int rank, int frequency_mhz) {
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
    double latency_s = harpe_clock_switch_latency_s(problem, cost, rank, frequency_mhz);
    return fmax(cost->minimum_dwell_s, latency_s);
}

bool harpe_clock_switch_has_cost(const harpe_problem *problem, const harpe_clock_switch *cost) {
    return harpe_clock_switch_longest_s(problem, cost) > 0 || cost->energy_j > 0 ||
           cost->minimum_dwell_s > 0;
}

static harpe_status begin(switches *s, const harpe_problem *problem, const harpe_clock_switch *cost,
                          harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *s = (switches){.problem = problem, .cost = cost};
    if (problem->graph) return refuse_graph(error);
    s->points = harpe_calloc(count, sizeof *s->points);
    s->start_s = harpe_calloc(count, sizeof *s->start_s);
    s->runs = harpe_calloc(count, sizeof *s->runs);
    return s->points && s->start_s && s->runs ? HARPE_OK : harpe_fail_memory(error);
}

static void end(switches *s) {
    free(s->points);
    free(s->start_s);
    free(s->runs);
}

/* Splits a rank's list into runs. An instruction at 0 MHz keeps the clock of the instruction before
 * it. Those before the first clock keep the last one, and belong to no run. */
static void find_runs(switches *s, int rank, const int *frequency_mhz) {
    s->run_count = 0;
    for (size_t i = s->problem->rank_offset[rank]; i < s->problem->rank_offset[rank + 1]; i++) {
        run *last = s->run_count > 0 ? &s->runs[s->run_count - 1] : NULL;
        if (last && (frequency_mhz[i] == 0 || frequency_mhz[i] == last->frequency_mhz))
            last->end = i + 1;
        else if (frequency_mhz[i] != 0)
            s->runs[s->run_count++] = (run){i, i + 1, frequency_mhz[i]};
    }
}

static double run_start_s(const switches *s, size_t r) { return s->start_s[s->runs[r].first]; }

/* Returns whether the clock changes between the last run and the first of the next iteration. */
static bool changes_at_the_end(const switches *s) {
    return s->runs[0].frequency_mhz != s->runs[s->run_count - 1].frequency_mhz;
}

/* Returns how long the clock of a run holds: until the next change of the rank, which may be in the
 * next iteration, from the change before, which may be in the iteration before. There are at least
 * two runs. */
static double dwell_s(const switches *s, size_t r) {
    bool is_first = r == 0, is_last = r + 1 == s->run_count, goes_on = !changes_at_the_end(s);
    double from_s = run_start_s(s, r), until_s;
    if (is_first && goes_on) from_s = run_start_s(s, s->run_count - 1) - s->end_s;
    if (is_last)
        until_s = run_start_s(s, goes_on ? 1 : 0) + s->end_s;
    else
        until_s = run_start_s(s, r + 1);
    return until_s - from_s;
}

/* ---- Counting -------------------------------------------------------------------------------- */

/* Runs an iteration at these frequencies. */
static harpe_status run_iteration(switches *s, const int *frequency_mhz, harpe_error *error) {
    harpe_status status = harpe_evaluate_find_points(s->problem, frequency_mhz, s->points, error);
    if (status == HARPE_OK)
        s->end_s = harpe_evaluate_points(s->problem, s->points, s->start_s).time_s;
    return status;
}

/* Returns the shortest time for which a clock of the present rank holds; INFINITY: no change. */
static double rank_dwell_s(const switches *s) {
    double shortest_s = INFINITY;
    for (size_t r = 0; s->run_count > 1 && r < s->run_count; r++)
        shortest_s = fmin(shortest_s, dwell_s(s, r));
    return shortest_s;
}

static harpe_status count_all(switches *s, const int *frequency_mhz, harpe_switching *out,
                              harpe_error *error) {
    harpe_switching all = {0};
    double shortest_s = INFINITY;
    harpe_status status = run_iteration(s, frequency_mhz, error);
    if (status != HARPE_OK) return status;
    for (int rank = 0; rank < s->problem->rank_count; rank++) {
        find_runs(s, rank, frequency_mhz);
        if (s->run_count < 2) continue;
        all.clock_writes += s->run_count - 1 + (changes_at_the_end(s) ? 1 : 0);
        shortest_s = fmin(shortest_s, rank_dwell_s(s));
    }
    if (all.clock_writes > 0) all.shortest_dwell_s = shortest_s;
    harpe_late_plan late = {0};
    status = harpe_plan_evaluate_late(s->problem, frequency_mhz, s->cost, 0, &late, NULL, error);
    if (status != HARPE_OK) return status;
    all.time_s = late.time_s;
    all.energy_j = late.energy_j;
    *out = all;
    return HARPE_OK;
}

harpe_status harpe_plan_switching(const harpe_problem *problem, const int *frequency_mhz,
                                  const harpe_clock_switch *cost, harpe_switching *out,
                                  harpe_error *error) {
    static const harpe_clock_switch nothing = {0};
    if (!cost) cost = &nothing;
    harpe_status status = harpe_clock_switch_check(problem, cost, error);
    if (status != HARPE_OK) return status;
    switches s;
    status = begin(&s, problem, cost, error);
    if (status == HARPE_OK) status = count_all(&s, frequency_mhz, out, error);
    end(&s);
    return status;
}

harpe_status harpe_switching_dwells(const harpe_problem *problem, const int *frequency_mhz,
                                    double *shortest_s, harpe_error *error) {
    static const harpe_clock_switch nothing = {0};
    switches s;
    harpe_status status = begin(&s, problem, &nothing, error);
    if (status == HARPE_OK) status = run_iteration(&s, frequency_mhz, error);
    for (int rank = 0; status == HARPE_OK && rank < problem->rank_count; rank++) {
        find_runs(&s, rank, frequency_mhz);
        shortest_s[rank] = rank_dwell_s(&s);
    }
    end(&s);
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
    const harpe_profile_point *to = harpe_choice_point(choice, to_mhz);
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
