/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of instructions with one clock; see dwell_groups.h. The ends of instructions are computed
 * again only from the first instruction that has changed, and only until the plan is known to be
 * too slow. */
#include "plan/dwell_groups.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/switching.h"

static bool has_clocks(const harpe_groups *s, int32_t instruction) {
    return harpe_choice_has_clocks(harpe_problem_choice(s->problem, instruction));
}

/* ---- The present plan ------------------------------------------------------------------------ */

const harpe_profile_point *harpe_groups_point(const harpe_groups *s, const harpe_group *g,
                                              int32_t clock, int32_t instruction) {
    return s->points[harpe_group_clock_at(s, g, clock)->first_point + instruction - g->first];
}

void harpe_groups_set(harpe_groups *s, harpe_group *g, int32_t clock) {
    g->clock = clock;
    for (int32_t i = g->first; i < g->end; i++) {
        s->time_s[i] = harpe_groups_point(s, g, clock, i)->time_s;
        if (s->place[i] < s->valid) s->valid = s->place[i];
    }
}

double harpe_groups_length_s(harpe_groups *s) {
    const harpe_dag *dag = &s->problem->dag;
    double most_s = s->deadline_s * (1 + HARPE_DWELL_ROUNDING);
    double longest_s = s->valid > 0 ? s->longest_s[s->valid - 1] : 0;
    int32_t k = s->valid;
    for (; k < dag->node_count && longest_s <= most_s; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            start_s = fmax(start_s, s->end_s[dag->arc_from[a]]);
        s->end_s[i] = start_s + s->time_s[i];
        longest_s = fmax(longest_s, s->end_s[i] + s->tail_s[i]);
        s->longest_s[k] = longest_s;
    }
    s->visits += (uint64_t)(k - s->valid) + 1;
    s->valid = k;
    return longest_s <= most_s ? longest_s : INFINITY;
}

/* Returns whether two groups have different clocks. */
static bool changes_between(const harpe_groups *s, int32_t one, int32_t other) {
    return harpe_group_chosen(s, &s->items[one])->frequency_mhz !=
           harpe_group_chosen(s, &s->items[other])->frequency_mhz;
}

static int rank_of(const harpe_groups *s, int32_t number) {
    return harpe_problem_choice(s->problem, s->items[number].first)->list.rank;
}

/* Returns whether a group is the last one of its rank. */
static bool is_last(const harpe_groups *s, int32_t number) {
    return number + 1 == s->count || rank_of(s, number + 1) != rank_of(s, number);
}

double harpe_groups_energy_j(const harpe_groups *s, double length_s) {
    double sum_j = harpe_problem_iteration_power_w(s->problem) * length_s;
    int32_t rank_begin = 0;
    for (int32_t g = 0; g < s->count; g++) {
        sum_j += harpe_group_chosen(s, &s->items[g])->energy_j;
        if (s->change_j <= 0) continue;
        bool ends = is_last(s, g);
        if (changes_between(s, g, ends ? rank_begin : g + 1)) sum_j += s->change_j;
        if (ends) rank_begin = g + 1;
    }
    return sum_j;
}

static double start_s(const harpe_groups *s, int32_t group) {
    int32_t first = s->items[group].first;
    return s->end_s[first] - s->time_s[first];
}

/* Returns whether the clock changes at the start of a group of a rank, which has the groups first
 * .. end - 1. Before its first group is the last one of the iteration before. */
static bool changes_at(const harpe_groups *s, int32_t first, int32_t end, int32_t group) {
    return changes_between(s, group, group == first ? end - 1 : group - 1);
}

/* Returns whether every clock of a rank holds until the next change, which may be in the next
 * iteration, as in harpe_plan_switching. */
static bool rank_holds(const harpe_groups *s, int32_t first, int32_t end) {
    int32_t last = end - 1;
    int rank = rank_of(s, first);
    while (last >= first && !changes_at(s, first, end, last))
        last--;
    if (last < first) return true;
    double began_s = start_s(s, last) - s->longest_s[s->problem->dag.node_count - 1];
    for (int32_t g = first; g < end; g++) {
        if (!changes_at(s, first, end, g)) continue;
        int mhz = harpe_group_chosen(s, &s->items[g])->frequency_mhz;
        double hold_s = harpe_clock_switch_hold_s(s->problem, &s->cost, rank, mhz);
        if (start_s(s, g) - began_s < hold_s * (1 - HARPE_DWELL_ROUNDING)) return false;
        began_s = start_s(s, g);
    }
    return true;
}

/* Returns the end of the groups of the rank that group `first` begins. */
static int32_t rank_end(const harpe_groups *s, int32_t first) {
    int32_t end = first;
    while (!is_last(s, end))
        end++;
    return end + 1;
}

bool harpe_groups_hold(const harpe_groups *s) {
    for (int32_t g = 0, end; g < s->count; g = end) {
        end = rank_end(s, g);
        if (!s->is_exempt[rank_of(s, g)] && !rank_holds(s, g, end)) return false;
    }
    return true;
}

void harpe_groups_frequencies(const harpe_groups *s, int *frequency_mhz) {
    for (int32_t i = 0; i < (int32_t)harpe_problem_instruction_count(s->problem); i++)
        frequency_mhz[i] = 0;
    for (int32_t g = 0; g < s->count; g++)
        for (int32_t i = s->items[g].first; i < s->items[g].end; i++)
            if (has_clocks(s, i))
                frequency_mhz[i] = harpe_group_chosen(s, &s->items[g])->frequency_mhz;
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Adds the clock to the group if all of its instructions were measured at it. */
static harpe_status add_clock(harpe_groups *s, harpe_group *g, int frequency_mhz,
                              harpe_error *error) {
    size_t length = (size_t)(g->end - g->first);
    harpe_group_clock added = {.frequency_mhz = frequency_mhz,
                               .first_point = (int32_t)s->point_count};
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
    const harpe_group_clock *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return (x->energy_j > y->energy_j) - (x->energy_j < y->energy_j);
}

/* Lists the clocks of a group, the fastest first: those of its first instruction that all others
 * were measured at. `only_useful`: without those that are slower than another one and need no less
 * energy. */
static harpe_status list_clocks(harpe_groups *s, harpe_group *g, bool only_useful,
                                harpe_error *error) {
    const harpe_choice *choice = harpe_problem_choice(s->problem, g->first);
    g->first_clock = (int32_t)s->clock_count;
    g->clock_count = 0;
    g->clock = 0;
    for (size_t p = 0; p < choice->point_count; p++) {
        if (choice->points[p].frequency_mhz == 0) continue;
        harpe_status status = add_clock(s, g, choice->points[p].frequency_mhz, error);
        if (status != HARPE_OK) return status;
    }
    harpe_group_clock *clocks = &s->clocks[g->first_clock];
    qsort(clocks, (size_t)g->clock_count, sizeof *clocks, compare_clocks);
    int32_t kept = 1;
    for (int32_t c = 1; c < g->clock_count; c++)
        if (!only_useful || clocks[c].energy_j < clocks[kept - 1].energy_j)
            clocks[kept++] = clocks[c];
    g->clock_count = kept;
    s->clock_count = (size_t)g->first_clock + (size_t)kept;
    return HARPE_OK;
}

/* Lists the clocks of all groups, and chooses the fastest. */
static harpe_status list_all(harpe_groups *s, bool only_useful, harpe_error *error) {
    harpe_status status = HARPE_OK;
    s->clock_count = s->point_count = 0;
    for (int32_t g = 0; status == HARPE_OK && g < s->count; g++)
        status = list_clocks(s, &s->items[g], only_useful, error);
    for (int32_t g = 0; status == HARPE_OK && g < s->count; g++)
        harpe_groups_set(s, &s->items[g], 0);
    return status;
}

/* ---- Divisions ------------------------------------------------------------------------------- */

double harpe_groups_shortest_s(const harpe_groups *s, int32_t instruction) {
    return harpe_problem_choice(s->problem, instruction)->list.options[0].time_s;
}

double harpe_groups_shortest_path_s(const harpe_groups *s) {
    double longest_s = 0;
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        longest_s = fmax(longest_s, s->tail_s[i] + harpe_groups_shortest_s(s, i));
    return longest_s;
}

/* Keeps those of the common clocks that an instruction was measured at. Returns their number. */
static size_t keep_common(harpe_groups *s, size_t count, int32_t instruction) {
    const harpe_choice *choice = harpe_problem_choice(s->problem, instruction);
    size_t kept = 0;
    for (size_t k = 0; k < count; k++)
        if (harpe_choice_point(choice, s->common_mhz[k])) s->common_mhz[kept++] = s->common_mhz[k];
    return kept;
}

/* Begins the common clocks with those of one instruction. Returns their number. */
static size_t begin_common(harpe_groups *s, int32_t instruction) {
    const harpe_choice *choice = harpe_problem_choice(s->problem, instruction);
    size_t count = 0;
    for (size_t k = 0; k < choice->point_count; k++)
        if (choice->points[k].frequency_mhz != 0)
            s->common_mhz[count++] = choice->points[k].frequency_mhz;
    return count;
}

static bool has_common_clock(harpe_groups *s, int32_t first, int32_t end) {
    size_t count = begin_common(s, first);
    for (int32_t i = first + 1; i < end && count > 0; i++)
        count = keep_common(s, count, i);
    return count > 0;
}

static void divide_rank(harpe_groups *s, int rank, double wanted_s, int32_t offset) {
    int32_t begin = (int32_t)s->problem->rank_offset[rank], first_group = s->count;
    int32_t end = (int32_t)s->problem->rank_offset[rank + 1];
    double length_s = 0;
    size_t common = 0;
    for (int32_t i = begin; i < end; i++) {
        bool is_first = s->count == first_group;
        if (is_first && !has_clocks(s, i)) continue;
        bool is_long = length_s >= wanted_s && has_clocks(s, i) &&
                       (s->count > first_group + 1 || i >= begin + offset);
        if (!is_first && !is_long) common = keep_common(s, common, i);
        if (is_first || is_long || common == 0) {
            s->may_be_short |= !is_first && !is_long;
            s->items[s->count++] = (harpe_group){.first = i};
            common = begin_common(s, i);
            length_s = 0;
        }
        s->items[s->count - 1].end = i + 1;
        length_s += harpe_groups_shortest_s(s, i);
    }
    if (s->count <= first_group + 1 || length_s >= wanted_s) return;
    if (has_common_clock(s, s->items[s->count - 2].first, end)) {
        s->count--;
        s->items[s->count - 1].end = end;
    } else {
        s->may_be_short = true;
    }
}

harpe_status harpe_groups_divide(harpe_groups *s, double wanted_s, int32_t offset,
                                 harpe_error *error) {
    s->count = 0;
    s->may_be_short = wanted_s < s->needed_s;
    for (int rank = 0; rank < s->problem->rank_count; rank++)
        divide_rank(s, rank, s->is_exempt[rank] ? INFINITY : wanted_s, offset);
    return list_all(s, true, error);
}

static void choose_frequency(harpe_groups *s, harpe_group *g, int frequency_mhz) {
    for (int32_t c = 0; c < g->clock_count; c++)
        if (harpe_group_clock_at(s, g, c)->frequency_mhz == frequency_mhz)
            harpe_groups_set(s, g, c);
}

harpe_status harpe_groups_divide_like(harpe_groups *s, const int *frequency_mhz,
                                      harpe_error *error) {
    s->count = 0;
    s->may_be_short = true;
    for (int rank = 0; rank < s->problem->rank_count; rank++) {
        size_t begin = s->problem->rank_offset[rank], end = s->problem->rank_offset[rank + 1];
        int clock_mhz = 0;
        for (size_t i = begin; i < end; i++) {
            if (frequency_mhz[i] != 0 && frequency_mhz[i] != clock_mhz) {
                s->items[s->count++] = (harpe_group){.first = (int32_t)i};
                clock_mhz = frequency_mhz[i];
            }
            if (clock_mhz != 0) s->items[s->count - 1].end = (int32_t)i + 1;
        }
    }
    harpe_status status = list_all(s, false, error);
    for (int32_t g = 0; status == HARPE_OK && g < s->count; g++)
        choose_frequency(s, &s->items[g], frequency_mhz[s->items[g].first]);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Computes the least time from the end of each instruction to the end of the iteration. */
static void find_tails(harpe_groups *s) {
    const harpe_dag *dag = &s->problem->dag;
    for (int32_t k = dag->node_count - 1; k >= 0; k--) {
        int32_t i = dag->topological_order[k];
        s->place[i] = k;
        double own_s = s->tail_s[i] + harpe_groups_shortest_s(s, i);
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            s->tail_s[dag->arc_from[a]] = fmax(s->tail_s[dag->arc_from[a]], own_s);
    }
}

/* Finds the ranks whose clocks do not hold even in groups that are as long as possible. */
static harpe_status find_exempt(harpe_groups *s, harpe_error *error) {
    double deadline_s = s->deadline_s;
    harpe_status status = harpe_groups_divide(s, INFINITY, 0, error);
    if (status != HARPE_OK || !s->may_be_short) return status;
    s->deadline_s = INFINITY;
    (void)harpe_groups_length_s(s);
    for (int32_t g = 0, end; g < s->count; g = end) {
        end = rank_end(s, g);
        s->is_exempt[rank_of(s, g)] = !rank_holds(s, g, end);
    }
    s->deadline_s = deadline_s;
    return HARPE_OK;
}

harpe_status harpe_groups_init(harpe_groups *s, const harpe_problem *problem,
                               const harpe_clock_switch *cost, double deadline_s,
                               harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, most_points = 0;
    *s = (harpe_groups){
        .problem = problem,
        .cost = *cost,
        .change_j = cost->energy_j,
        .needed_s = fmax(cost->minimum_dwell_s, harpe_clock_switch_longest_s(problem, cost)),
        .deadline_s = deadline_s};
    for (size_t k = 0; k < problem->choice_count; k++)
        if (problem->choices[k].point_count > most_points)
            most_points = problem->choices[k].point_count;
    s->items = harpe_calloc(count, sizeof *s->items);
    s->time_s = harpe_calloc(count, sizeof *s->time_s);
    s->end_s = harpe_calloc(count, sizeof *s->end_s);
    s->longest_s = harpe_calloc(count, sizeof *s->longest_s);
    s->tail_s = harpe_calloc(count, sizeof *s->tail_s);
    s->place = harpe_calloc(count, sizeof *s->place);
    s->is_exempt = harpe_calloc((size_t)problem->rank_count, sizeof *s->is_exempt);
    s->common_mhz = harpe_calloc(most_points, sizeof *s->common_mhz);
    if (!s->items || !s->time_s || !s->end_s || !s->longest_s || !s->tail_s || !s->place ||
        !s->is_exempt || !s->common_mhz)
        return harpe_fail_memory(error);
    for (int32_t i = 0; i < problem->instruction_count; i++)
        s->time_s[i] = harpe_groups_shortest_s(s, i); /* that of a delay never changes */
    find_tails(s);
    return find_exempt(s, error);
}

void harpe_groups_clear(harpe_groups *s) {
    free(s->items);
    free(s->clocks);
    free((void *)s->points);
    free(s->time_s);
    free(s->end_s);
    free(s->longest_s);
    free(s->tail_s);
    free(s->place);
    free(s->is_exempt);
    free(s->common_mhz);
}
