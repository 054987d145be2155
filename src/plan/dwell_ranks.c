/* SPDX-License-Identifier: Apache-2.0 */
/* Search with few groups; see dwell_ranks.h. The clock of a group in `groups` may differ from the
 * clock that the times of its instructions belong to, until the iteration is computed. */
#include "plan/dwell_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"

#define MOST_PATHS 48
/* The work of one local search, of all repetitions and of the enumeration: ends of instructions
 * that are computed, and comparisons with paths. */
#define LOCAL_VISITS UINT64_C(1500000)
#define REPEAT_VISITS UINT64_C(1500000)
#define ALL_VISITS UINT64_C(400000)
/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-7
/* Largest number of clocks by which both clocks of a pair change at once. */
#define PAIR_STEP 3
/* The most groups, and the most clocks of each, that become faster in a repetition. */
#define MOST_FASTER 3
#define FASTEST_STEP 5
/* A repetition whose plan needs at most this share of energy more than the last one goes on from
 * its own plan. */
#define ACCEPTED_SHARE 5e-4

static bool may_go_on(const harpe_rank_search *s) { return s->groups->visits < s->limit; }

/* ---- Paths ----------------------------------------------------------------------------------- */

/* Returns a path: the time that it takes in its groups' instructions at each of their clocks, and
 * after these the time of its delays and of its instructions without clocks. */
static double *path_at(const harpe_rank_search *s, int path) {
    return &s->path_s[(size_t)path * (s->groups->clock_count + 1)];
}

/* Adds the times of an instruction to a path. */
static void add_instruction(const harpe_groups *groups, int32_t instruction, double *path_s) {
    if (!harpe_choice_has_clocks(harpe_problem_choice(groups->problem, instruction))) {
        path_s[groups->clock_count] += groups->time_s[instruction];
        return;
    }
    int32_t number = 0;
    while (groups->items[number].end <= instruction)
        number++;
    const harpe_group *g = &groups->items[number];
    for (int32_t c = 0; c < g->clock_count; c++)
        path_s[g->first_clock + c] += harpe_groups_point(groups, g, c, instruction)->time_s;
}

/* Adds the longest path of the present iteration, whose ends are all known. */
static void add_path(harpe_rank_search *s) {
    const harpe_groups *groups = s->groups;
    const harpe_dag *dag = &groups->problem->dag;
    double *path_s = path_at(s, s->next_path);
    memset(path_s, 0, (groups->clock_count + 1) * sizeof *path_s);
    int32_t i = 0;
    for (int32_t k = 0; k < dag->node_count; k++)
        if (groups->end_s[k] > groups->end_s[i]) i = k;
    while (i >= 0) {
        add_instruction(groups, i, path_s);
        int32_t before = -1;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            if (before < 0 || groups->end_s[dag->arc_from[a]] > groups->end_s[before])
                before = dag->arc_from[a];
        i = before;
    }
    s->hint = s->next_path;
    if (s->path_count < MOST_PATHS) s->path_count++;
    s->next_path = (s->next_path + 1) % MOST_PATHS;
}

static bool is_longer(const harpe_rank_search *s, int path, double most_s) {
    const harpe_groups *groups = s->groups;
    const double *path_s = path_at(s, path);
    double length_s = path_s[groups->clock_count];
    for (int32_t k = 0; k < groups->count; k++)
        length_s += path_s[groups->items[k].first_clock + groups->items[k].clock];
    return length_s > most_s;
}

/* Returns whether a known path makes the present plan take longer than this. */
static bool is_known_longer(harpe_rank_search *s, double most_s) {
    if (s->path_count == 0) return false;
    s->groups->visits++;
    if (is_longer(s, s->hint, most_s)) return true;
    s->groups->visits += (uint64_t)s->path_count / 2;
    for (int k = 0; k < s->path_count; k++) {
        if (!is_longer(s, k, most_s)) continue;
        s->hint = k;
        return true;
    }
    return false;
}

static double length_s(harpe_rank_search *s) {
    harpe_groups *groups = s->groups;
    for (int32_t k = 0; k < groups->count; k++) {
        if (s->applied[k] == groups->items[k].clock) continue;
        s->applied[k] = groups->items[k].clock;
        harpe_groups_set(groups, &groups->items[k], s->applied[k]);
    }
    return harpe_groups_length_s(groups);
}

/* Adds the longest path of the present plan, which may be too slow. */
static void remember_path(harpe_rank_search *s) {
    double deadline_s = s->groups->deadline_s;
    s->groups->deadline_s = INFINITY;
    (void)length_s(s);
    add_path(s);
    s->groups->deadline_s = deadline_s;
}

/* Returns whether the present plan meets the deadline. */
static bool is_in_time(harpe_rank_search *s) {
    if (is_known_longer(s, s->groups->deadline_s * (1 + 2 * HARPE_DWELL_ROUNDING))) return false;
    if (isfinite(length_s(s))) return true;
    remember_path(s);
    return false;
}

/* Keeps the present plan if it is in time, its clocks hold, and it needs less than `*best_j`. */
static bool keep_if_better(harpe_rank_search *s, double *best_j) {
    harpe_groups *groups = s->groups;
    double power_w = harpe_problem_iteration_power_w(groups->problem);
    double most_s = groups->deadline_s, busy_j = harpe_groups_energy_j(groups, 0);
    if (power_w > 0) most_s = fmin(most_s, (*best_j - busy_j) / power_w);
    if (most_s <= 0 || busy_j >= *best_j) return false;
    if (is_known_longer(s, most_s * (1 + 2 * HARPE_DWELL_ROUNDING))) return false;
    double found_s = length_s(s), found_j = busy_j + power_w * found_s;
    bool is_better = isfinite(found_s) && found_j < *best_j - SMALLEST_SAVING_J;
    if (!is_better) {
        remember_path(s);
        return false;
    }
    if (groups->may_be_short && !harpe_groups_hold(groups)) return false;
    *best_j = found_j;
    return true;
}

/* ---- Local search ---------------------------------------------------------------------------- */

/* Tries all clocks of a group, and leaves the best. */
static bool try_clocks(harpe_rank_search *s, harpe_group *g, double *best_j) {
    int32_t best = g->clock;
    bool improved = false;
    for (int32_t c = g->clock_count - 1; c >= 0; c--) {
        g->clock = c;
        if (c == best || !keep_if_better(s, best_j)) continue;
        best = c;
        improved = true;
    }
    g->clock = best;
    return improved;
}

/* Tries small changes of two groups at once. Returns whether a plan was kept. */
static bool try_pair(harpe_rank_search *s, harpe_group *one, harpe_group *other, double *best_j) {
    int32_t a = one->clock, b = other->clock;
    for (int32_t x = a - PAIR_STEP; x <= a + PAIR_STEP; x++) {
        for (int32_t y = b - PAIR_STEP; y <= b + PAIR_STEP; y++) {
            if (x < 0 || y < 0 || x >= one->clock_count || y >= other->clock_count) continue;
            one->clock = x;
            other->clock = y;
            if (keep_if_better(s, best_j)) return true;
        }
    }
    one->clock = a;
    other->clock = b;
    return false;
}

static bool try_pairs(harpe_rank_search *s, double *best_j) {
    harpe_group *items = s->groups->items;
    for (int32_t g = 0; g < s->groups->count; g++)
        for (int32_t k = g + 1; k < s->groups->count && may_go_on(s); k++)
            if (try_pair(s, &items[g], &items[k], best_j)) return true;
    return false;
}

static double improve(harpe_rank_search *s, double best_j) {
    bool improved = true;
    while (improved && may_go_on(s)) {
        improved = false;
        for (int32_t g = 0; g < s->groups->count; g++)
            improved |= try_clocks(s, &s->groups->items[g], &best_j);
        if (!improved) improved = try_pairs(s, &best_j);
    }
    return best_j;
}

/* The plan was changed by others. */
static void begin(harpe_rank_search *s, uint64_t visits) {
    s->limit = s->groups->visits + visits;
    for (int32_t k = 0; k < s->groups->count; k++)
        s->applied[k] = s->groups->items[k].clock;
}

double harpe_rank_search_improve(harpe_rank_search *s, double best_j) {
    begin(s, LOCAL_VISITS);
    best_j = improve(s, best_j);
    (void)length_s(s);
    return best_j;
}

/* ---- Repetitions ----------------------------------------------------------------------------- */

/* Clocks of all groups. */
typedef struct rank_clocks {
    int32_t clock[HARPE_DWELL_MOST_RANKS];
} rank_clocks;

static rank_clocks clocks_of(const harpe_rank_search *s) {
    rank_clocks all = {{0}};
    for (int32_t k = 0; k < s->groups->count; k++)
        all.clock[k] = s->groups->items[k].clock;
    return all;
}

static void set_clocks(harpe_rank_search *s, const rank_clocks *all) {
    for (int32_t k = 0; k < s->groups->count; k++)
        s->groups->items[k].clock = all->clock[k];
}

/* Numbers of a linear congruential generator (Knuth's MMIX), the same for every plan. */
static int32_t next_random(harpe_rank_search *s, int32_t below) {
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((s->random >> 33) % (uint64_t)below);
}

/* Makes some groups faster, and then others slower one after another, as far as the deadline
 * allows. */
static void disturb(harpe_rank_search *s) {
    harpe_groups *groups = s->groups;
    for (int32_t k = 1 + next_random(s, MOST_FASTER); k > 0; k--) {
        harpe_group *g = &groups->items[next_random(s, groups->count)];
        int32_t by = 1 + next_random(s, FASTEST_STEP);
        g->clock = g->clock > by ? g->clock - by : 0;
    }
    for (int32_t k = 4 * groups->count; k > 0; k--) {
        harpe_group *g = &groups->items[next_random(s, groups->count)];
        if (g->clock + 1 >= g->clock_count) continue;
        g->clock++;
        if (!is_in_time(s)) g->clock--;
    }
}

double harpe_rank_search_repeat(harpe_rank_search *s, double best_j) {
    begin(s, REPEAT_VISITS);
    rank_clocks best = clocks_of(s), last = best;
    double last_j = best_j;
    while (may_go_on(s)) {
        disturb(s);
        double found_s = length_s(s);
        if (isfinite(found_s) && (!s->groups->may_be_short || harpe_groups_hold(s->groups))) {
            double found_j = improve(s, harpe_groups_energy_j(s->groups, found_s));
            if (found_j < best_j - SMALLEST_SAVING_J) {
                best_j = found_j;
                best = clocks_of(s);
            }
            if (found_j <= last_j + ACCEPTED_SHARE * fabs(best_j)) {
                last_j = found_j;
                last = clocks_of(s);
            }
        }
        set_clocks(s, &last);
    }
    set_clocks(s, &best);
    (void)length_s(s);
    return best_j;
}

/* ---- All plans ------------------------------------------------------------------------------- */

typedef struct enumeration {
    /* [group]: the least energy of this group, of all after it, and of waiting */
    double cheapest_j[HARPE_DWELL_MOST_RANKS + 1];
    double best_j;
    rank_clocks best;
} enumeration;

/* Tries all clocks of the groups from `number` on that meet the deadline and may be better than the
 * best plan. Groups after the present one run at their fastest clock. `chosen_j` is the energy of
 * the groups before. */
static void try_all(harpe_rank_search *s, enumeration *e, int32_t number, double chosen_j) {
    harpe_groups *groups = s->groups;
    harpe_group *g = &groups->items[number];
    for (int32_t c = g->clock_count - 1; c >= 0 && may_go_on(s); c--) {
        double now_j = chosen_j + harpe_group_clock_at(groups, g, c)->energy_j;
        if (now_j + e->cheapest_j[number + 1] >= e->best_j - SMALLEST_SAVING_J) continue;
        g->clock = c;
        if (number + 1 == groups->count) {
            if (keep_if_better(s, &e->best_j)) e->best = clocks_of(s);
        } else if (is_in_time(s)) {
            try_all(s, e, number + 1, now_j);
        }
    }
    g->clock = 0;
}

double harpe_rank_search_all(harpe_rank_search *s, double best_j, bool *is_complete) {
    harpe_groups *groups = s->groups;
    begin(s, ALL_VISITS);
    enumeration e = {.best_j = best_j, .best = clocks_of(s)};
    e.cheapest_j[groups->count] =
        harpe_problem_iteration_power_w(groups->problem) * harpe_groups_shortest_path_s(groups);
    for (int32_t k = groups->count - 1; k >= 0; k--) {
        harpe_group *g = &groups->items[k];
        /* The slowest clock of a group needs the least energy. */
        e.cheapest_j[k] =
            e.cheapest_j[k + 1] + harpe_group_clock_at(groups, g, g->clock_count - 1)->energy_j;
        g->clock = 0;
    }
    try_all(s, &e, 0, 0);
    *is_complete = may_go_on(s);
    set_clocks(s, &e.best);
    (void)length_s(s);
    return e.best_j;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

harpe_status harpe_rank_search_init(harpe_rank_search *s, harpe_groups *groups,
                                    harpe_error *error) {
    *s = (harpe_rank_search){.groups = groups};
    s->path_s = harpe_calloc(MOST_PATHS * (groups->clock_count + 1), sizeof *s->path_s);
    return s->path_s ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_rank_search_clear(harpe_rank_search *s) { free(s->path_s); }
