/* SPDX-License-Identifier: Apache-2.0 */
/* The search for plans with one clock for each group; see dwell.h. For several divisions into
 * groups and several starts, a local search changes the clocks of groups, and the best plan is
 * kept. */
#include "plan/dwell.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/network.h"

/* Instructions whose start the search may recompute for one plan, about 50 ms. */
#define VISIT_BUDGET UINT64_C(8000000)
/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-7
/* Largest number of clocks by which one trial changes a group. */
#define LARGEST_STEP 3
/* Plans with one clock per rank are enumerated for at most so many ranks, with so much work. */
#define MOST_ENUMERATED 16
#define ENUMERATION_VISITS UINT64_C(400000)
/* Halvings of the interval in which the factor of the prices is searched. */
#define PRICE_STEPS 24
/* Relative tolerance for times that are sums of doubles. */
#define TIME_ROUNDING 1e-12

/* Instructions first .. end - 1 of a rank, which run at one clock. */
typedef struct group {
    int32_t first, end;
    int32_t clock_count; /* clocks that all of its instructions were measured at */
    int32_t first_clock; /* their place in `clocks`: the fastest first */
    int32_t clock;       /* chosen, 0 .. clock_count - 1 */
} group;

/* One clock of a group. */
typedef struct group_clock {
    int frequency_mhz;
    double time_s, energy_j; /* sums over the group; energy is effective */
    int32_t first_point;     /* place in `points` of the first instruction's point */
} group_clock;

typedef struct dwell_search {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    const harpe_relaxed *relaxed;
    double needed_s, deadline_s;
    group *groups;
    int32_t group_count;
    group_clock *clocks;
    size_t clock_count, clock_capacity;
    const harpe_profile_point **points;
    size_t point_count, point_capacity;
    double *time_s, *end_s; /* [instruction]: of the present plan */
    int32_t *place;         /* [instruction]: index in the topological order */
    int *frequency_mhz;     /* [instruction]: scratch */
    uint64_t visits, limit;
} dwell_search;

/* ---- The present plan ------------------------------------------------------------------------ */

static const harpe_profile_point *point_of(const dwell_search *s, const group *g, int32_t clock,
                                           int32_t instruction) {
    const group_clock *c = &s->clocks[g->first_clock + clock];
    return s->points[c->first_point + instruction - g->first];
}

/* Recomputes the ends of all instructions from one place of the topological order on. Returns the
 * length of the iteration. */
static double run_from(dwell_search *s, int32_t place) {
    const harpe_dag *dag = &s->problem->dag;
    double length_s = 0;
    for (int32_t k = place; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            start_s = fmax(start_s, s->end_s[dag->arc_from[a]]);
        s->end_s[i] = start_s + s->time_s[i];
    }
    for (int32_t i = 0; i < dag->node_count; i++)
        length_s = fmax(length_s, s->end_s[i]);
    s->visits += (uint64_t)(dag->node_count - place) + (uint64_t)dag->node_count / 8;
    return length_s;
}

/* Writes the times of a group's instructions at a clock. Returns the first place in the topological
 * order that has changed. */
static int32_t set_clock(dwell_search *s, group *g, int32_t clock) {
    int32_t place = s->problem->dag.node_count;
    g->clock = clock;
    for (int32_t i = g->first; i < g->end; i++) {
        s->time_s[i] = point_of(s, g, clock, i)->time_s;
        if (s->place[i] < place) place = s->place[i];
    }
    return place;
}

static bool meets_deadline(const dwell_search *s, double length_s) {
    return length_s <= s->deadline_s * (1 + TIME_ROUNDING);
}

static const group_clock *clock_of(const dwell_search *s, const group *g) {
    return &s->clocks[g->first_clock + g->clock];
}

/* Returns whether two neighbouring groups of a rank, the last and the first included, have
 * different clocks. `one` and `other` are numbers of groups. */
static bool changes_between(const dwell_search *s, int32_t one, int32_t other) {
    return clock_of(s, &s->groups[one])->frequency_mhz !=
           clock_of(s, &s->groups[other])->frequency_mhz;
}

/* Returns the energy of the present plan, which takes `length_s`, with its changes of clock. */
static double energy_j(const dwell_search *s, double length_s) {
    double sum_j = harpe_problem_iteration_power_w(s->problem) * length_s;
    int32_t rank_begin = 0;
    for (int32_t g = 0; g < s->group_count; g++) {
        const group *one = &s->groups[g];
        sum_j += clock_of(s, one)->energy_j;
        bool is_last = g + 1 == s->group_count ||
                       harpe_problem_choice(s->problem, s->groups[g + 1].first)->list.rank !=
                           harpe_problem_choice(s->problem, one->first)->list.rank;
        int32_t next = is_last ? rank_begin : g + 1;
        if (changes_between(s, g, next)) sum_j += s->cost->energy_j;
        if (is_last) rank_begin = g + 1;
    }
    return sum_j;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Adds the clock to the group if all of its instructions were measured at it. */
static harpe_status add_clock(dwell_search *s, group *g, int frequency_mhz, harpe_error *error) {
    size_t length = (size_t)(g->end - g->first);
    group_clock added = {.frequency_mhz = frequency_mhz, .first_point = (int32_t)s->point_count};
    if (!HARPE_ARRAY_RESERVE(s->points, s->point_capacity, s->point_count + length) ||
        !HARPE_ARRAY_RESERVE(s->clocks, s->clock_capacity, s->clock_count + 1))
        return harpe_fail_memory(error);
    for (int32_t i = g->first; i < g->end; i++) {
        const harpe_choice *choice = harpe_problem_choice(s->problem, i);
        const harpe_profile_point *point = harpe_choice_point(choice, frequency_mhz);
        if (!point) return HARPE_OK;
        s->points[s->point_count + (size_t)(i - g->first)] = point;
        added.time_s += point->time_s;
        added.energy_j += point->energy_j - choice->blocking_power_w * point->time_s;
    }
    s->point_count += length;
    s->clocks[s->clock_count++] = added;
    g->clock_count++;
    return HARPE_OK;
}

static int compare_clocks(const void *a, const void *b) {
    const group_clock *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return (x->energy_j > y->energy_j) - (x->energy_j < y->energy_j);
}

/* Lists the clocks of a group, the fastest first, without those that are slower than another one
 * and need no less energy. Instructions that were measured once run at the clock of the others, so
 * the clocks are those of the instruction with the most points. */
static harpe_status list_clocks(dwell_search *s, group *g, harpe_error *error) {
    const harpe_choice *richest = harpe_problem_choice(s->problem, g->first);
    for (int32_t i = g->first; i < g->end; i++) {
        const harpe_choice *choice = harpe_problem_choice(s->problem, i);
        if (choice->point_count > richest->point_count) richest = choice;
    }
    g->first_clock = (int32_t)s->clock_count;
    g->clock_count = 0;
    for (size_t p = 0; p < richest->point_count; p++) {
        harpe_status status = add_clock(s, g, richest->points[p].frequency_mhz, error);
        if (status != HARPE_OK) return status;
    }
    if (g->clock_count == 0) return HARPE_OK;
    group_clock *clocks = &s->clocks[g->first_clock];
    qsort(clocks, (size_t)g->clock_count, sizeof *clocks, compare_clocks);
    int32_t kept = 1;
    for (int32_t c = 1; c < g->clock_count; c++)
        if (clocks[c].energy_j < clocks[kept - 1].energy_j) clocks[kept++] = clocks[c];
    g->clock_count = kept;
    s->clock_count = (size_t)g->first_clock + (size_t)kept;
    return HARPE_OK;
}

/* Returns the shortest time that an instruction was measured to take. */
static double shortest_s(const dwell_search *s, int32_t instruction) {
    return harpe_problem_choice(s->problem, instruction)->list.options[0].time_s;
}

/* Divides the list of each rank into groups that hold for at least `wanted_s` even at their
 * fastest, beginning `offset` instructions after the start of the list. The rest joins the last
 * group. If a group has no clock in common, `*fits` is false. */
static harpe_status divide(dwell_search *s, double wanted_s, int32_t offset, bool *fits,
                           harpe_error *error) {
    s->group_count = 0;
    s->clock_count = s->point_count = 0;
    for (int rank = 0; rank < s->problem->rank_count; rank++) {
        int32_t begin = (int32_t)s->problem->rank_offset[rank];
        int32_t end = (int32_t)s->problem->rank_offset[rank + 1], first_group = s->group_count;
        double length_s = 0;
        for (int32_t i = begin; i < end; i++) {
            if (s->group_count == first_group ||
                (length_s >= wanted_s &&
                 (s->group_count > first_group + 1 || i >= begin + offset))) {
                s->groups[s->group_count++] = (group){.first = i};
                length_s = 0;
            }
            s->groups[s->group_count - 1].end = i + 1;
            length_s += shortest_s(s, i);
        }
        if (s->group_count > first_group + 1 && length_s < wanted_s) {
            s->group_count--;
            s->groups[s->group_count - 1].end = end;
        }
    }
    *fits = true;
    for (int32_t g = 0; g < s->group_count && *fits; g++) {
        harpe_status status = list_clocks(s, &s->groups[g], error);
        if (status != HARPE_OK) return status;
        *fits = s->groups[g].clock_count > 0;
    }
    return HARPE_OK;
}

/* ---- Starts ---------------------------------------------------------------------------------- */

static double run_all(dwell_search *s) {
    for (int32_t g = 0; g < s->group_count; g++)
        (void)set_clock(s, &s->groups[g], s->groups[g].clock);
    return run_from(s, 0);
}

/* Chooses for each group the clock whose energy plus time is cheapest, if a second of an
 * instruction costs its price in the relaxation times `factor`. Returns the length of the
 * iteration. */
static double choose_by_price(dwell_search *s, double factor) {
    for (int32_t n = 0; n < s->group_count; n++) {
        group *g = &s->groups[n];
        double best_j = INFINITY;
        int32_t best = 0;
        for (int32_t c = 0; c < g->clock_count; c++) {
            double cost_j = s->clocks[g->first_clock + c].energy_j;
            for (int32_t i = g->first; i < g->end; i++) {
                double price_w = (double)s->relaxed->price_uw[i] * 1e-6 + 1e-3;
                cost_j += factor * price_w * point_of(s, g, c, i)->time_s;
            }
            if (cost_j >= best_j) continue;
            best_j = cost_j;
            best = c;
        }
        g->clock = best;
    }
    s->visits += (uint64_t)s->problem->instruction_count * 8;
    return run_all(s);
}

/* Finds about the smallest factor of the prices with which the plan meets the deadline. Returns
 * false if there is none. */
static bool start_by_price(dwell_search *s) {
    double low = 0, high = 1;
    while (!meets_deadline(s, choose_by_price(s, high))) {
        low = high;
        high *= 4;
        if (high > 1e9) return false;
    }
    for (int k = 0; k < PRICE_STEPS; k++) {
        double middle = (low + high) / 2;
        if (meets_deadline(s, choose_by_price(s, middle)))
            high = middle;
        else
            low = middle;
    }
    return meets_deadline(s, choose_by_price(s, high));
}

/* Begins at the fastest clocks. Returns false if even they miss the deadline. */
static bool start_at_fastest(dwell_search *s) {
    for (int32_t g = 0; g < s->group_count; g++)
        s->groups[g].clock = 0;
    return meets_deadline(s, run_all(s));
}

/* ---- Local search ---------------------------------------------------------------------------- */

/* Returns the energy that the step from the present clock to the next slower one saves for each
 * second that it costs, or -1 if there is no slower clock. */
static double saving_w(const dwell_search *s, const group *g) {
    if (g->clock + 1 >= g->clock_count) return -1;
    const group_clock *now = clock_of(s, g), *next = now + 1;
    return (now->energy_j - next->energy_j) / fmax(next->time_s - now->time_s, 1e-15);
}

/* Makes groups slower, those that save the most for each second first, until none can be. This is
 * the greedy search from the fastest clocks. */
static void slow_all(dwell_search *s) {
    bool *is_stuck = harpe_calloc((size_t)s->group_count + 1, sizeof *is_stuck);
    while (is_stuck && s->visits < s->limit) {
        int32_t best = -1;
        for (int32_t g = 0; g < s->group_count; g++) {
            if (is_stuck[g] || saving_w(s, &s->groups[g]) <= 0) continue;
            if (best < 0 || saving_w(s, &s->groups[g]) > saving_w(s, &s->groups[best])) best = g;
        }
        if (best < 0) break;
        group *g = &s->groups[best];
        int32_t before = g->clock;
        if (meets_deadline(s, run_from(s, set_clock(s, g, before + 1)))) continue;
        (void)run_from(s, set_clock(s, g, before));
        is_stuck[best] = true;
    }
    free(is_stuck);
}

/* Keeps the present plan if it meets the deadline and needs less than `*best_j`. */
static bool keep_if_better(dwell_search *s, double length_s, double *best_j) {
    if (!meets_deadline(s, length_s)) return false;
    double now_j = energy_j(s, length_s);
    if (now_j >= *best_j - SMALLEST_SAVING_J) return false;
    *best_j = now_j;
    return true;
}

/* Makes group `faster` faster by `step`, and another one slower as far as the deadline allows, for
 * each other group. Returns whether a plan was kept. */
static bool exchange(dwell_search *s, int32_t faster, int32_t step, double *best_j) {
    group *one = &s->groups[faster];
    int32_t before = one->clock;
    if (before < step) return false;
    (void)run_from(s, set_clock(s, one, before - step));
    for (int32_t k = 0; k < s->group_count && s->visits < s->limit; k++) {
        group *other = &s->groups[k];
        int32_t slower = other->clock;
        if (k == faster) continue;
        for (int32_t by = LARGEST_STEP; by >= 1; by--) {
            if (slower + by >= other->clock_count) continue;
            if (clock_of(s, one)->energy_j + s->clocks[other->first_clock + slower + by].energy_j >=
                s->clocks[one->first_clock + before].energy_j + clock_of(s, other)->energy_j +
                    2 * s->cost->energy_j)
                continue;
            if (keep_if_better(s, run_from(s, set_clock(s, other, slower + by)), best_j))
                return true;
            (void)run_from(s, set_clock(s, other, slower));
        }
    }
    (void)run_from(s, set_clock(s, one, before));
    return false;
}

static bool try_slower(dwell_search *s, int32_t number, double *best_j) {
    group *g = &s->groups[number];
    int32_t before = g->clock;
    for (int32_t step = LARGEST_STEP; step >= -LARGEST_STEP; step--) {
        if (step == 0 || before + step < 0 || before + step >= g->clock_count) continue;
        if (keep_if_better(s, run_from(s, set_clock(s, g, before + step)), best_j)) return true;
        (void)set_clock(s, g, before);
    }
    (void)run_from(s, set_clock(s, g, before));
    return false;
}

/* Improves the present plan until no single change and no exchange of two groups saves energy, or
 * the work is used up. Returns its energy. */
static double improve(dwell_search *s) {
    slow_all(s);
    double best_j = energy_j(s, run_from(s, s->problem->dag.node_count));
    bool improved = true;
    while (improved && s->visits < s->limit) {
        improved = false;
        for (int32_t g = 0; g < s->group_count && s->visits < s->limit; g++) {
            improved |= try_slower(s, g, &best_j);
            for (int32_t step = 1; step <= LARGEST_STEP && s->visits < s->limit; step++)
                improved |= exchange(s, g, step, &best_j);
        }
    }
    return best_j;
}

/* ---- Interface ------------------------------------------------------------------------------- */

/* Computes the energy of a plan by frequencies, comparable with energy_j: INFINITY if a clock holds
 * for less than the needed time. */
static harpe_status measure_plan(const dwell_search *s, const int *frequency_mhz, double *plan_j,
                                 harpe_error *error) {
    harpe_switching changes = {0};
    harpe_status status = harpe_plan_switching(s->problem, frequency_mhz, NULL, &changes, error);
    bool holds =
        changes.clock_writes == 0 || changes.shortest_dwell_s >= s->needed_s * (1 - TIME_ROUNDING);
    *plan_j =
        holds ? changes.energy_j + s->cost->energy_j * (double)changes.clock_writes : INFINITY;
    return status;
}

static void keep_frequencies(const dwell_search *s, int *frequency_mhz) {
    for (int32_t g = 0; g < s->group_count; g++)
        for (int32_t i = s->groups[g].first; i < s->groups[g].end; i++)
            frequency_mhz[i] = clock_of(s, &s->groups[g])->frequency_mhz;
}

/* Returns the length of an iteration in which every instruction takes its shortest time. */
static double shortest_path_s(dwell_search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->time_s[i] = shortest_s(s, i);
    return run_from(s, 0);
}

/* Tries all clocks of the groups from `number` on that meet the deadline and may be better than the
 * best plan. Groups after the present one run at their fastest clock. `chosen_j` is the energy of
 * the groups before, and `cheapest_j[g]` the least energy of group g, of all after it, and of
 * waiting. Leaves the best plan in `best`. */
static void try_all(dwell_search *s, int32_t number, double chosen_j, const double *cheapest_j,
                    double *best_j, int32_t *best) {
    group *g = &s->groups[number];
    bool is_last = number + 1 == s->group_count;
    for (int32_t c = g->clock_count - 1; c >= 0 && s->visits < s->limit; c--) {
        double now_j = chosen_j + s->clocks[g->first_clock + c].energy_j;
        if (now_j + cheapest_j[number + 1] >= *best_j - SMALLEST_SAVING_J) continue;
        double length_s = run_from(s, set_clock(s, g, c));
        if (!meets_deadline(s, length_s)) continue;
        if (!is_last)
            try_all(s, number + 1, now_j, cheapest_j, best_j, best);
        else if (keep_if_better(s, length_s, best_j))
            for (int32_t k = 0; k < s->group_count; k++)
                best[k] = s->groups[k].clock;
    }
    (void)run_from(s, set_clock(s, g, 0));
}

/* Tries all plans with one clock for each group, as far as the work allows. The present plan needs
 * `best_j`. Leaves the best plan as the present one, and returns its energy. */
static double try_all_plans(dwell_search *s, double best_j) {
    double cheapest_j[MOST_ENUMERATED + 1];
    int32_t best[MOST_ENUMERATED] = {0};
    if (s->group_count > MOST_ENUMERATED) return best_j;
    cheapest_j[s->group_count] = harpe_problem_iteration_power_w(s->problem) * shortest_path_s(s);
    for (int32_t k = s->group_count - 1; k >= 0; k--) {
        group *g = &s->groups[k];
        best[k] = g->clock;
        /* The slowest clock of a group needs the least energy. */
        cheapest_j[k] = cheapest_j[k + 1] + s->clocks[g->first_clock + g->clock_count - 1].energy_j;
        g->clock = 0;
    }
    (void)run_all(s);
    s->limit = s->visits + ENUMERATION_VISITS;
    try_all(s, 0, 0, cheapest_j, &best_j, best);
    for (int32_t k = 0; k < s->group_count; k++)
        s->groups[k].clock = best[k];
    return best_j;
}

static harpe_status try_division(dwell_search *s, double wanted_s, int32_t offset, double *best_j,
                                 int *frequency_mhz, harpe_error *error) {
    bool fits;
    harpe_status status = divide(s, wanted_s, offset, &fits, error);
    for (int start = 0; status == HARPE_OK && fits && start < 2; start++) {
        if (start == 0 && !s->relaxed) continue;
        if (!(start == 0 ? start_by_price(s) : start_at_fastest(s))) continue;
        double found_j = improve(s);
        if (start == 1 && isinf(wanted_s)) found_j = try_all_plans(s, found_j);
        if (found_j >= *best_j - SMALLEST_SAVING_J) continue;
        *best_j = found_j;
        keep_frequencies(s, frequency_mhz);
    }
    return status;
}

/* Writes the energy that a result must be below. If the plan does not keep the times, which is
 * possible if a higher clock is not always faster, it becomes the plan with the highest clocks. If
 * this one is too slow, any result is better. */
static harpe_status begin_search(const dwell_search *s, int *frequency_mhz, double *best_j,
                                 harpe_error *error) {
    harpe_plan highest;
    double highest_j = INFINITY;
    harpe_status status = measure_plan(s, frequency_mhz, best_j, error);
    if (status != HARPE_OK || isfinite(*best_j)) return status;
    status = harpe_plan_all_maximum(s->problem, &highest, error);
    if (status == HARPE_OK) status = measure_plan(s, highest.frequency_mhz, &highest_j, error);
    if (status != HARPE_OK || !isfinite(highest_j)) return status;
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        frequency_mhz[i] = highest.frequency_mhz[i];
    if (meets_deadline(s, highest.time_s)) *best_j = highest_j;
    return HARPE_OK;
}

static harpe_status search(dwell_search *s, int *frequency_mhz, harpe_error *error) {
    /* Divisions: one group for each rank, then groups of the needed time with several offsets, and
     * longer ones. */
    const struct {
        double factor;
        int32_t offset;
    } divisions[] = {{INFINITY, 0}, {1, 0}, {1, 1}, {1, 3}, {2, 0}};
    const size_t count = sizeof divisions / sizeof divisions[0];
    double best_j;
    harpe_status status = begin_search(s, frequency_mhz, &best_j, error);
    for (size_t d = 0; status == HARPE_OK && d < count; d++) {
        s->limit = s->visits + VISIT_BUDGET / count;
        status = try_division(s, divisions[d].factor * fmax(s->needed_s, 1e-15),
                              divisions[d].offset, &best_j, frequency_mhz, error);
    }
    return status;
}

harpe_status harpe_dwell_improve(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 const harpe_relaxed *relaxed, int64_t deadline_ps,
                                 int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    dwell_search s = {.problem = problem,
                      .cost = cost,
                      .relaxed = relaxed,
                      .needed_s = fmax(cost->minimum_dwell_s, cost->latency_s),
                      .deadline_s = (double)deadline_ps / HARPE_PS_PER_S};
    s.groups = harpe_calloc(count, sizeof *s.groups);
    s.time_s = harpe_calloc(count, sizeof *s.time_s);
    s.end_s = harpe_calloc(count, sizeof *s.end_s);
    s.place = harpe_calloc(count, sizeof *s.place);
    harpe_status status =
        s.groups && s.time_s && s.end_s && s.place ? HARPE_OK : harpe_fail_memory(error);
    for (int32_t k = 0; status == HARPE_OK && k < problem->instruction_count; k++)
        s.place[problem->dag.topological_order[k]] = k;
    for (int32_t i = 0; status == HARPE_OK && i < problem->instruction_count; i++)
        s.time_s[i] = shortest_s(&s, i); /* that of a delay never changes */
    if (status == HARPE_OK) status = search(&s, frequency_mhz, error);
    free(s.groups);
    free(s.clocks);
    free((void *)s.points);
    free(s.time_s);
    free(s.end_s);
    free(s.place);
    return status;
}
