/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the changes of clock in a plan, and computes their cost. */
#include "plan/switching.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"

/* One iteration at some frequencies. */
typedef struct switches {
    const harpe_problem *problem;
    const harpe_profile_point **points;
    double *start_s;
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

static void end(switches *s) {
    free((void *)s->points);
    free(s->start_s);
}

/* Runs an iteration. Free with `end` in any case. */
static harpe_status begin(switches *s, const harpe_problem *problem, const int *frequency_mhz,
                          harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *s = (switches){.problem = problem};
    if (problem->graph) return refuse_graph(error);
    s->points = harpe_calloc(count, sizeof *s->points);
    s->start_s = harpe_calloc(count, sizeof *s->start_s);
    if (!s->points || !s->start_s) return harpe_fail_memory(error);
    harpe_status status = harpe_evaluate_find_points(problem, frequency_mhz, s->points, error);
    if (status == HARPE_OK) s->end_s = harpe_evaluate_points(problem, s->points, s->start_s).time_s;
    return status;
}

/* Returns the shortest time between two changes of a rank, which may be in iterations that follow
 * each other; INFINITY: no change. Instructions at 0 MHz keep the clock before them. */
static double rank_dwell_s(const switches *s, int rank, const int *frequency_mhz) {
    const size_t *offset = s->problem->rank_offset;
    int now_mhz = harpe_evaluate_last_clock_mhz(s->problem, rank, frequency_mhz);
    double shortest_s = INFINITY, changed_s = -INFINITY;
    for (int iteration = 0; iteration < 2; iteration++) {
        for (size_t i = offset[rank]; i < offset[rank + 1]; i++) {
            if (frequency_mhz[i] == 0 || frequency_mhz[i] == now_mhz) continue;
            double at_s = s->start_s[i] + iteration * s->end_s;
            shortest_s = fmin(shortest_s, at_s - changed_s);
            now_mhz = frequency_mhz[i];
            changed_s = at_s;
        }
    }
    return shortest_s;
}

harpe_status harpe_plan_switching(const harpe_problem *problem, const int *frequency_mhz,
                                  const harpe_clock_switch *cost, harpe_switching *out,
                                  harpe_error *error) {
    static const harpe_clock_switch nothing = {0};
    if (!cost) cost = &nothing;
    harpe_late_plan late = {0};
    switches s = {0};
    double shortest_s = INFINITY;
    harpe_status status = harpe_clock_switch_check(problem, cost, error);
    if (status == HARPE_OK) status = begin(&s, problem, frequency_mhz, error);
    for (int rank = 0; status == HARPE_OK && rank < problem->rank_count; rank++)
        shortest_s = fmin(shortest_s, rank_dwell_s(&s, rank, frequency_mhz));
    if (status == HARPE_OK)
        status = harpe_plan_evaluate_late(problem, frequency_mhz, cost, 0, &late, NULL, error);
    if (status == HARPE_OK)
        *out = (harpe_switching){.clock_writes = harpe_evaluate_changes(problem, frequency_mhz),
                                 .shortest_dwell_s = isfinite(shortest_s) ? shortest_s : 0,
                                 .time_s = late.time_s,
                                 .energy_j = late.energy_j};
    end(&s);
    return status;
}

harpe_status harpe_switching_dwells(const harpe_problem *problem, const int *frequency_mhz,
                                    double *shortest_s, harpe_error *error) {
    switches s;
    harpe_status status = begin(&s, problem, frequency_mhz, error);
    for (int rank = 0; status == HARPE_OK && rank < problem->rank_count; rank++)
        shortest_s[rank] = rank_dwell_s(&s, rank, frequency_mhz);
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
