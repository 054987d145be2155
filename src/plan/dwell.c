/* SPDX-License-Identifier: Apache-2.0 */
/* The search for plans with one clock for each group; see dwell.h. For several divisions into
 * groups and several starts, a local search changes the clocks of groups, and the best plan is
 * kept. */
#include "plan/dwell.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/dwell_groups.h"
#include "plan/dwell_ranks.h"
#include "plan/network.h"

/* Ends of instructions that the greedy search, and each local search after a start, may compute for
 * one plan. All of them together take about 50 ms at most. */
#define GREEDY_VISITS UINT64_C(6000000)
#define LOCAL_VISITS UINT64_C(500000)
/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-7
/* Largest number of clocks by which one trial changes a group. */
#define LARGEST_STEP 3

typedef struct dwell_search {
    harpe_groups groups;
    double *saving_w; /* [group]: of the next slower clock; -1: none */
    int32_t *kept;    /* [group]: clocks of the best plan of the greedy search */
    uint64_t limit;   /* of the visits of the present search */
    double best_j;    /* energy of the best plan; INFINITY: none keeps the times and the deadline */
    int *frequency_mhz; /* of the best plan */
} dwell_search;

static bool may_go_on(const dwell_search *s) { return s->groups.visits < s->limit; }

/* ---- Starts ---------------------------------------------------------------------------------- */

/* Sets each group to the clock with this number, or to its slowest. */
static void set_all(harpe_groups *groups, int32_t clock) {
    for (int32_t k = 0; k < groups->count; k++) {
        harpe_group *g = &groups->items[k];
        harpe_groups_set(groups, g, clock < g->clock_count ? clock : g->clock_count - 1);
    }
}

/* Begins at the fastest clocks. Returns false if even they miss the deadline. */
static bool start_at_fastest(dwell_search *s) {
    set_all(&s->groups, 0);
    return isfinite(harpe_groups_length_s(&s->groups));
}

/* Begins with clocks of the same number for all groups, those of the best plan of this kind. */
static bool start_with_same_clocks(dwell_search *s) {
    harpe_groups *groups = &s->groups;
    double best_j = INFINITY;
    int32_t best = 0, most = 0;
    for (int32_t k = 0; k < groups->count; k++)
        if (groups->items[k].clock_count > most) most = groups->items[k].clock_count;
    for (int32_t clock = 0; clock < most; clock++) {
        set_all(groups, clock);
        double length_s = harpe_groups_length_s(groups);
        if (!isfinite(length_s) || harpe_groups_energy_j(groups, length_s) >= best_j) continue;
        best_j = harpe_groups_energy_j(groups, length_s);
        best = clock;
    }
    set_all(groups, best);
    return isfinite(harpe_groups_length_s(groups));
}

/* ---- Greedy search --------------------------------------------------------------------------- */

static void keep_clocks(dwell_search *s) {
    for (int32_t k = 0; k < s->groups.count; k++)
        s->kept[k] = s->groups.items[k].clock;
}

static void restore_clocks(dwell_search *s) {
    for (int32_t k = 0; k < s->groups.count; k++)
        if (s->groups.items[k].clock != s->kept[k])
            harpe_groups_set(&s->groups, &s->groups.items[k], s->kept[k]);
}

/* Returns the energy that the step from the present clock to the next slower one saves for each
 * second that it costs, or -1 if there is no slower clock. */
static double saving_w(const harpe_groups *groups, const harpe_group *g) {
    if (g->clock + 1 >= g->clock_count) return -1;
    const harpe_group_clock *now = harpe_group_chosen(groups, g), *next = now + 1;
    return (now->energy_j - next->energy_j) / fmax(next->time_s - now->time_s, 1e-15);
}

/* Makes groups slower, those that save the most for each second first, until none can be. Leaves
 * the best plan on this way. From the fastest clocks this is the greedy search. */
static void slow_all(dwell_search *s) {
    harpe_groups *groups = &s->groups;
    double best_j = INFINITY, length_s = harpe_groups_length_s(groups);
    for (int32_t k = 0; k < groups->count; k++)
        s->saving_w[k] = saving_w(groups, &groups->items[k]);
    s->limit = groups->visits + GREEDY_VISITS;
    while (may_go_on(s)) {
        double now_j = isfinite(length_s) ? harpe_groups_energy_j(groups, length_s) : INFINITY;
        if (now_j < best_j) keep_clocks(s);
        best_j = fmin(best_j, now_j);
        int32_t best = 0;
        for (int32_t k = 1; k < groups->count; k++)
            if (s->saving_w[k] > s->saving_w[best]) best = k;
        if (s->saving_w[best] <= 0) break;
        harpe_group *g = &groups->items[best];
        harpe_groups_set(groups, g, g->clock + 1);
        length_s = harpe_groups_length_s(groups);
        s->saving_w[best] = saving_w(groups, g);
        if (isfinite(length_s)) continue;
        harpe_groups_set(groups, g, g->clock - 1);
        s->saving_w[best] = -1;
    }
    restore_clocks(s);
}

/* ---- Local search ---------------------------------------------------------------------------- */

/* Keeps the present plan if it is in time, its clocks hold, and it needs less than `*best_j`. */
static bool keep_if_better(dwell_search *s, double *best_j) {
    harpe_groups *groups = &s->groups;
    double length_s = harpe_groups_length_s(groups);
    if (!isfinite(length_s)) return false;
    double now_j = harpe_groups_energy_j(groups, length_s);
    if (now_j >= *best_j - SMALLEST_SAVING_J) return false;
    if (groups->may_be_short && !harpe_groups_hold(groups)) return false;
    *best_j = now_j;
    return true;
}

/* Makes group `faster` faster by `step`, and another one slower as far as the deadline allows, for
 * each other group. Returns whether a plan was kept. */
static bool exchange(dwell_search *s, int32_t faster, int32_t step, double *best_j) {
    harpe_groups *groups = &s->groups;
    harpe_group *one = &groups->items[faster];
    int32_t before = one->clock;
    if (before < step) return false;
    harpe_groups_set(groups, one, before - step);
    double most_j = harpe_group_clock_at(groups, one, before)->energy_j -
                    harpe_group_chosen(groups, one)->energy_j + 2 * groups->change_j;
    for (int32_t k = 0; k < groups->count && may_go_on(s); k++) {
        harpe_group *other = &groups->items[k];
        int32_t slower = other->clock;
        if (k == faster) continue;
        for (int32_t by = LARGEST_STEP; by >= 1; by--) {
            if (slower + by >= other->clock_count) continue;
            if (harpe_group_clock_at(groups, other, slower + by)->energy_j -
                    harpe_group_clock_at(groups, other, slower)->energy_j >=
                most_j)
                continue;
            harpe_groups_set(groups, other, slower + by);
            if (keep_if_better(s, best_j)) return true;
            harpe_groups_set(groups, other, slower);
        }
    }
    harpe_groups_set(groups, one, before);
    return false;
}

/* Tries clocks of a group near the present one. */
static bool try_clocks(dwell_search *s, int32_t number, double *best_j) {
    harpe_groups *groups = &s->groups;
    harpe_group *g = &groups->items[number];
    int32_t before = g->clock;
    for (int32_t step = LARGEST_STEP; step >= -LARGEST_STEP; step--) {
        if (step == 0 || before + step < 0 || before + step >= g->clock_count) continue;
        harpe_groups_set(groups, g, before + step);
        if (keep_if_better(s, best_j)) return true;
    }
    harpe_groups_set(groups, g, before);
    return false;
}

static bool try_exchanges(dwell_search *s, int32_t faster, double *best_j) {
    bool improved = false;
    for (int32_t step = 1; step <= LARGEST_STEP && may_go_on(s); step++)
        improved |= exchange(s, faster, step, best_j);
    return improved;
}

/* Improves the present plan, which needs `best_j`, until no single change and no exchange of two
 * groups saves energy, or the work is used up. Returns its energy. */
static double improve(dwell_search *s, double best_j) {
    bool improved = true;
    s->limit = s->groups.visits + LOCAL_VISITS;
    while (improved && may_go_on(s)) {
        improved = false;
        for (int32_t g = 0; g < s->groups.count && may_go_on(s); g++) {
            improved |= try_clocks(s, g, &best_j);
            improved |= try_exchanges(s, g, &best_j);
        }
    }
    return best_j;
}

/* ---- Divisions ------------------------------------------------------------------------------- */

/* Keeps the present plan as the result if it is the best and its clocks hold. */
static void keep_result(dwell_search *s, double found_j) {
    if (found_j >= s->best_j - SMALLEST_SAVING_J) return;
    if (s->groups.may_be_short && !harpe_groups_hold(&s->groups)) return;
    s->best_j = found_j;
    harpe_groups_frequencies(&s->groups, s->frequency_mhz);
}

typedef bool dwell_start(dwell_search *search);

/* Searches from one start. */
static void search_from(dwell_search *s, dwell_start *start) {
    if (!start(s)) return;
    slow_all(s);
    double found_j = harpe_groups_energy_j(&s->groups, harpe_groups_length_s(&s->groups));
    keep_result(s, found_j);
    keep_result(s, improve(s, found_j));
}

/* Searches from all starts, and then near the best of the plans found. */
static void search_few(dwell_search *s, harpe_rank_search *ranks) {
    dwell_start *const starts[] = {start_at_fastest, start_with_same_clocks};
    double best_j = INFINITY;
    int32_t best[HARPE_DWELL_MOST_RANKS] = {0};
    for (int k = 0; k < 2; k++) {
        if (!starts[k](s)) continue;
        if (starts[k] == start_at_fastest) slow_all(s);
        double found_j = harpe_groups_energy_j(&s->groups, harpe_groups_length_s(&s->groups));
        found_j = harpe_rank_search_improve(ranks, found_j);
        if (found_j >= best_j) continue;
        best_j = found_j;
        for (int32_t g = 0; g < s->groups.count; g++)
            best[g] = s->groups.items[g].clock;
    }
    if (!isfinite(best_j)) return;
    for (int32_t g = 0; g < s->groups.count; g++)
        harpe_groups_set(&s->groups, &s->groups.items[g], best[g]);
    bool is_complete;
    best_j = harpe_rank_search_all(ranks, best_j, &is_complete);
    if (!is_complete) best_j = harpe_rank_search_repeat(ranks, best_j);
    keep_result(s, best_j);
}

/* Searches plans with one clock for each rank, or as few as possible. */
static harpe_status try_ranks(dwell_search *s, harpe_error *error) {
    harpe_rank_search ranks;
    harpe_status status = harpe_groups_divide(&s->groups, INFINITY, 0, error);
    if (status != HARPE_OK) return status;
    if (s->groups.count > HARPE_DWELL_MOST_RANKS) {
        search_from(s, start_at_fastest);
        search_from(s, start_with_same_clocks);
        return HARPE_OK;
    }
    status = harpe_rank_search_init(&ranks, &s->groups, error);
    if (status == HARPE_OK) search_few(s, &ranks);
    harpe_rank_search_clear(&ranks);
    return status;
}

/* Improves the best plan with its runs of equal clocks as groups. */
static harpe_status try_own_division(dwell_search *s, harpe_error *error) {
    harpe_status status = harpe_groups_divide_like(&s->groups, s->frequency_mhz, error);
    if (status != HARPE_OK) return status;
    double length_s = harpe_groups_length_s(&s->groups);
    if (isfinite(length_s)) keep_result(s, improve(s, s->best_j));
    return HARPE_OK;
}

/* ---- Interface ------------------------------------------------------------------------------- */

/* Takes the given plan as the first result if its clocks hold. Its time may be above the deadline
 * by a rounding error. */
static harpe_status begin_search(dwell_search *s, harpe_error *error) {
    double deadline_s = s->groups.deadline_s;
    harpe_status status = harpe_groups_divide_like(&s->groups, s->frequency_mhz, error);
    if (status != HARPE_OK) return status;
    s->groups.deadline_s = INFINITY;
    keep_result(s, harpe_groups_energy_j(&s->groups, harpe_groups_length_s(&s->groups)));
    s->groups.deadline_s = deadline_s;
    return HARPE_OK;
}

/* Keeps the present plan if its clocks hold and it is faster than all before. */
static void keep_if_faster(dwell_search *s, double *least_s) {
    double length_s = harpe_groups_length_s(&s->groups);
    if (length_s >= *least_s || !harpe_groups_hold(&s->groups)) return;
    *least_s = length_s;
    harpe_groups_frequencies(&s->groups, s->frequency_mhz);
}

/* Makes the fastest plan whose clocks hold, among that of the highest clocks and those of the
 * fastest clocks of groups. Groups that are as long as possible always hold. */
static harpe_status hold_without_deadline(dwell_search *s, harpe_error *error) {
    double least_s = INFINITY, given_s = s->groups.deadline_s;
    s->groups.deadline_s = INFINITY;
    harpe_status status = harpe_groups_divide(&s->groups, s->groups.needed_s, 0, error);
    if (status == HARPE_OK) keep_if_faster(s, &least_s);
    if (status == HARPE_OK) status = harpe_groups_divide(&s->groups, INFINITY, 0, error);
    if (status == HARPE_OK) keep_if_faster(s, &least_s);
    if (status == HARPE_OK)
        status =
            harpe_groups_divide_like(&s->groups, s->groups.problem->maximum_frequency_mhz, error);
    if (status == HARPE_OK) keep_if_faster(s, &least_s);
    s->groups.deadline_s = fmax(given_s, least_s);
    return status;
}

static harpe_status search_within(dwell_search *s, harpe_error *error) {
    harpe_status status = begin_search(s, error);
    if (status == HARPE_OK && isfinite(s->best_j)) status = try_own_division(s, error);
    if (status == HARPE_OK) status = try_ranks(s, error);
    for (int32_t offset = 0; offset <= 1 && status == HARPE_OK; offset++) {
        status = harpe_groups_divide(&s->groups, s->groups.needed_s, offset, error);
        if (status == HARPE_OK) search_from(s, start_at_fastest);
    }
    return status == HARPE_OK && isfinite(s->best_j) ? try_own_division(s, error) : status;
}

/* Where no plan meets the deadline, the time of the fastest plan found takes its place. */
static harpe_status search(dwell_search *s, harpe_error *error) {
    harpe_status status = search_within(s, error);
    if (status != HARPE_OK || isfinite(s->best_j)) return status;
    status = hold_without_deadline(s, error);
    return status == HARPE_OK ? search_within(s, error) : status;
}

harpe_status harpe_dwell_improve(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 int64_t deadline_ps, int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    dwell_search s = {.best_j = INFINITY, .frequency_mhz = frequency_mhz};
    harpe_status status =
        harpe_groups_init(&s.groups, problem, cost, (double)deadline_ps / HARPE_PS_PER_S, error);
    s.saving_w = harpe_calloc(count, sizeof *s.saving_w);
    s.kept = harpe_calloc(count, sizeof *s.kept);
    if (status == HARPE_OK && (!s.saving_w || !s.kept)) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = search(&s, error);
    harpe_groups_clear(&s.groups);
    free(s.saving_w);
    free(s.kept);
    return status;
}
