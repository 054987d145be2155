/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which every clock holds for a minimum time. On small problems each plan is compared with
 * the enumeration of all plans, and with the best plan of one clock per rank. On pipelines it is
 * compared with a greedy search that has one clock per group of instructions. test_simple_plans.c
 * checks that the clocks of all plans of a set hold. */
#include "test.h"

#include "search_parts.h"

#define MOST_INSTRUCTIONS 256
#define ROUNDING 1e-9

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct outcome {
    double time_s, energy_j; /* changes of clock cost their energy */
    bool holds;              /* no clock holds for less than the minimum */
} outcome;

static outcome outcome_of(const harpe_problem *problem, const int *frequency_mhz,
                          const harpe_clock_switch *cost) {
    harpe_plan plan;
    harpe_switching changes;
    assert_works(harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, &failure));
    assert_works(harpe_plan_switching(problem, frequency_mhz, NULL, &changes, &failure));
    double needed_s = fmax(cost->minimum_dwell_s, cost->latency_s);
    return (outcome){plan.time_s, plan.energy_j + cost->energy_j * (double)changes.clock_writes,
                     changes.clock_writes == 0 ||
                         changes.shortest_dwell_s >= needed_s * (1 - 1e-9)};
}

/* Returns the outcome of the plan for one time. */
static outcome best_at(const harpe_problem *problem, const harpe_clock_switch *cost,
                       double deadline_s) {
    const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                        .times_s = &deadline_s,
                                        .time_count = 1,
                                        .count = 1,
                                        .clock_switch = *cost};
    owned_plan_set plans = plan_set_of(problem, &request, NULL);
    return outcome_of(problem, harpe_plan_set_at(plans, 0)->frequency_mhz, cost);
}

static int clock_at(const harpe_problem *problem, int32_t i, int number) {
    return harpe_problem_choice(problem, i)->points[number].frequency_mhz;
}

/* ---- All plans ------------------------------------------------------------------------------- */

/* Measured clocks that all instructions share, like those of a GPU. With noise, a lower clock may
 * be faster than a higher one, except the highest. */
static harpe_problem *problem_with_clocks(test_random *random, int ranks, int microbatches,
                                          int clocks, bool has_noise) {
    owned_rows rows = {0};
    for (int s = 0; s < ranks; s++) {
        for (int b = 0; b < 2; b++) {
            double base_s = random_between(random, 0.03, 0.07) * (1 + b);
            double base_w = random_between(random, 200, 320);
            double slope = random_between(random, 0.05, 0.12);
            for (int k = 0; k < clocks; k++) {
                double noise = has_noise ? random_between(random, 0.6, 1.4) : 1;
                double stretch = 1 + slope * noise * k;
                double energy_j = base_w * base_s * (0.6 + 0.4 / (stretch * stretch * stretch));
                add_row(&rows, s, b ? "backward" : "forward", 1410 - 60 * k, base_s * stretch,
                        energy_j);
            }
        }
    }
    const harpe_schedule_options options = {.ranks = ranks, .microbatches = microbatches};
    return problem_from_rows(&rows, &options, random_between(random, 0, 90));
}

/* Returns the least energy of all plans, or of those with one clock per rank, that meet a deadline.
 */
static double enumerate_j(const harpe_problem *problem, const harpe_clock_switch *cost,
                          double deadline_s, int clocks, bool one_per_rank) {
    int number[64] = {0}, mhz[MOST_INSTRUCTIONS];
    int32_t n = problem->instruction_count, units = one_per_rank ? problem->rank_count : n, u = 0;
    double least_j = INFINITY;
    while (u < units) {
        for (int32_t i = 0; i < n; i++) {
            int32_t unit = one_per_rank ? list_at(problem, i)->rank : i;
            mhz[i] = clock_at(problem, i, number[unit]);
        }
        outcome o = outcome_of(problem, mhz, cost);
        if (o.holds && o.time_s <= deadline_s * (1 + 1e-12)) least_j = fmin(least_j, o.energy_j);
        for (u = 0; u < units; u++) {
            if (++number[u] < clocks) break;
            number[u] = 0;
        }
    }
    return least_j;
}

TEST(small_problems_against_all_plans) {
    test_random random = {71};
    int at_optimum = 0, trials = few_trials(40);
    for (int trial = 0; trial < trials; trial++) {
        static const int shapes[][3] = {{1, 4, 3}, {2, 2, 3}, {2, 3, 2},
                                        {1, 3, 4}, {3, 2, 2}, {2, 1, 4}};
        const int *shape = shapes[trial % 6];
        owned_parts p;
        parts_init(&p, problem_with_clocks(&random, shape[0], shape[1], shape[2], trial % 2));
        parts_walk_to(&p, time_at(&p, random_between(&random, 0, 1)));
        double deadline_s = (double)p.walk.solver.time_ps / HARPE_PS_PER_S;
        const harpe_clock_switch cost = {.minimum_dwell_s = random_between(&random, 0, 0.3),
                                         .latency_s = random_int(&random, 0, 3) == 0 ? 0.1 : 0,
                                         .energy_j = random_int(&random, 0, 1) *
                                                     random_between(&random, 0, 0.5)};
        outcome o = best_at(p.problem, &cost, deadline_s);
        assert_true(o.holds);
        assert_true(o.time_s <= deadline_s * (1 + 1e-11));
        double found_j = o.energy_j;
        double least_j = enumerate_j(p.problem, &cost, deadline_s, shape[2], false);
        double ranks_j = enumerate_j(p.problem, &cost, deadline_s, shape[2], true);
        assert_true(found_j >= least_j * (1 - ROUNDING));
        assert_true(found_j <= ranks_j + 1e-6);
        at_optimum += found_j <= least_j + 1e-6;
    }
    printf("optimum of all plans reached in %d of %d problems\n", at_optimum, trials);
    assert_true(at_optimum >= trials / 2);
}

/* ---- Greedy ---------------------------------------------------------------------------------- */

/* One clock per group: the list of each rank is cut as soon as the fastest times of a group add up
 * to the dwell time. All groups begin at the fastest clock. Again and again, the group becomes
 * slower that saves the most energy per second, as long as the deadline holds. */
typedef struct greedy {
    const harpe_problem *problem;
    double deadline_s;
    int clocks, group_count;
    int group_of[MOST_INSTRUCTIONS], clock[MOST_INSTRUCTIONS];
    bool stuck[MOST_INSTRUCTIONS];
    int mhz[MOST_INSTRUCTIONS];
} greedy;

static void make_groups(greedy *g, double dwell_s) {
    for (int rank = 0; rank < g->problem->rank_count; rank++) {
        size_t begin = g->problem->rank_offset[rank], end = g->problem->rank_offset[rank + 1];
        double held_s = INFINITY;
        int first = g->group_count;
        for (size_t i = begin; i < end; i++) {
            if (held_s >= dwell_s) {
                g->group_count++;
                held_s = 0;
            }
            g->group_of[i] = g->group_count - 1;
            held_s += harpe_problem_choice(g->problem, (int32_t)i)->points[0].time_s;
        }
        if (held_s >= dwell_s || g->group_count - 1 == first) continue;
        g->group_count--; /* the rest belongs to the last whole group */
        for (size_t i = begin; i < end; i++)
            if (g->group_of[i] == g->group_count) g->group_of[i]--;
    }
}

static void set_clocks(greedy *g) {
    for (int32_t i = 0; i < g->problem->instruction_count; i++)
        g->mhz[i] = clock_at(g->problem, i, g->clock[g->group_of[i]]);
}

/* Returns the energy saved per second if a group becomes slower by one clock. */
static double saving_w(const greedy *g, int group) {
    double saved_j = 0, added_s = 0;
    if (g->stuck[group] || g->clock[group] + 1 >= g->clocks) return -1;
    for (int32_t i = 0; i < g->problem->instruction_count; i++) {
        if (g->group_of[i] != group) continue;
        const harpe_choice *choice = harpe_problem_choice(g->problem, i);
        const harpe_profile_point *now = &choice->points[g->clock[group]], *next = now + 1;
        double longer_s = next->time_s - now->time_s;
        saved_j += now->energy_j - next->energy_j + choice->blocking_power_w * longer_s;
        added_s += longer_s;
    }
    return saved_j / added_s;
}

static void run_greedy(greedy *g, const harpe_clock_switch *cost) {
    for (;;) {
        int best = -1;
        for (int k = 0; k < g->group_count; k++)
            if (saving_w(g, k) > 0 && (best < 0 || saving_w(g, k) > saving_w(g, best))) best = k;
        if (best < 0) break;
        g->clock[best]++;
        set_clocks(g);
        if (outcome_of(g->problem, g->mhz, cost).time_s <= g->deadline_s) continue;
        g->clock[best]--;
        g->stuck[best] = true;
    }
    set_clocks(g);
}

/* At each asked time, the plan of a set is not worse than the greedy's, nor than the best with one
 * clock per rank, and it keeps the dwell time. */
TEST(sets_against_the_greedy) {
    test_random random = {72};
    int better = 0, compared = 0;
    for (int trial = 0; trial < few_trials(6); trial++) {
        int ranks = random_int(&random, 2, 4), clocks = 6;
        owned_problem problem =
            problem_with_clocks(&random, ranks, random_int(&random, 3, 8), clocks, false);
        harpe_plan fastest = maximum_of(problem);
        double times_s[4];
        for (int k = 0; k < 4; k++)
            times_s[k] = fastest.time_s * (1 + 0.04 * k) * (1 + 1e-9);
        const harpe_clock_switch cost = {.minimum_dwell_s = random_between(&random, 0.05, 0.6)};
        const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                            .times_s = times_s,
                                            .time_count = 4,
                                            .count = 10,
                                            .clock_switch = cost};
        owned_plan_set plans = plan_set_of(problem, &request, NULL);
        for (size_t k = 0; k < 4; k++) {
            outcome o = outcome_of(problem, harpe_plan_set_at(plans, k)->frequency_mhz, &cost);
            assert_true(o.holds && o.time_s <= times_s[k] * (1 + 1e-9));
            static greedy g;
            memset(&g, 0, sizeof g);
            g.problem = problem;
            g.deadline_s = times_s[k];
            g.clocks = clocks;
            make_groups(&g, cost.minimum_dwell_s);
            run_greedy(&g, &cost);
            outcome by_greedy = outcome_of(problem, g.mhz, &cost);
            assert_true(by_greedy.holds && by_greedy.time_s <= times_s[k]);
            double found_j = o.energy_j, greedy_j = by_greedy.energy_j;
            double ranks_j = enumerate_j(problem, &cost, times_s[k], clocks, true);
            if (found_j > fmin(greedy_j, ranks_j) + 1e-6)
                fail_msg("trial %d, %.4f s: %.9g J, greedy %.9g J, one clock per rank %.9g J",
                         trial, times_s[k], found_j, greedy_j, ranks_j);
            better += found_j < fmin(greedy_j, ranks_j) * (1 - 1e-6);
            compared++;
        }
    }
    printf("better than both in %d of %d\n", better, compared);
    assert_true(better >= compared / 3);
}

/* ---- One clock per rank ---------------------------------------------------------------------- */

/* Changes the clocks of single ranks and of pairs until that saves nothing, from the clocks in
 * `number`. Returns the energy. */
static double search_ranks_j(const harpe_problem *problem, const harpe_clock_switch *cost,
                             double deadline_s, int clocks, int *number) {
    double best_j = INFINITY;
    bool improved = true;
    while (improved) {
        improved = false;
        for (int a = 0; a < problem->rank_count; a++) {
            for (int b = a; b < problem->rank_count; b++) {
                int at[2] = {number[a], number[b]}, best[2] = {at[0], at[1]};
                for (int x = at[0] - 2; x <= at[0] + 2; x++) {
                    for (int y = at[1] - 2; y <= at[1] + 2; y++) {
                        if (x < 0 || y < 0 || x >= clocks || y >= clocks) continue;
                        int mhz[MOST_INSTRUCTIONS];
                        number[a] = x;
                        number[b] = y;
                        for (int32_t i = 0; i < problem->instruction_count; i++)
                            mhz[i] = clock_at(problem, i, number[list_at(problem, i)->rank]);
                        outcome o = outcome_of(problem, mhz, cost);
                        if (o.time_s > deadline_s || o.energy_j >= best_j - 1e-9) continue;
                        best_j = o.energy_j;
                        best[0] = number[a];
                        best[1] = number[b];
                        improved = true;
                    }
                }
                number[a] = best[0];
                number[b] = best[1];
            }
        }
    }
    return best_j;
}

/* With more ranks and clocks than can be enumerated, and clocks that must hold for ever, no plan
 * is worse than those of a simple search over pairs of ranks. */
TEST(many_ranks_against_a_search_over_pairs) {
    test_random random = {74};
    int better = 0, compared = 0;
    for (int trial = 0; trial < few_trials(4); trial++) {
        enum { CLOCKS = 14, RANKS = 6 };
        owned_problem problem = problem_with_clocks(&random, RANKS, 8, CLOCKS, false);
        harpe_plan fastest = maximum_of(problem);
        const harpe_clock_switch cost = {.minimum_dwell_s = 1e6};
        for (int k = 0; k < 4; k++) {
            double deadline_s = fastest.time_s * (1 + 0.03 * k) * (1 + 1e-9);
            int number[RANKS] = {0};
            outcome o = best_at(problem, &cost, deadline_s);
            double pairs_j = search_ranks_j(problem, &cost, deadline_s, CLOCKS, number);
            assert_true(o.holds && o.time_s <= deadline_s * (1 + 1e-9));
            if (o.energy_j > pairs_j + 1e-6)
                fail_msg("trial %d, %.4f s: %.9g J, a search over pairs %.9g J", trial, deadline_s,
                         o.energy_j, pairs_j);
            better += o.energy_j < pairs_j * (1 - 1e-6);
            compared++;
        }
    }
    printf("better than the search over pairs in %d of %d\n", better, compared);
}
