/* SPDX-License-Identifier: Apache-2.0 */
/* Dives on random pipelines and graphs: every result meets its deadline by an independent longest
 * path, its energy is that of harpe_plan_evaluate, and it is not below the relaxation. On small
 * problems the results are compared with the enumeration of all plans. */
#include "test.h"

#include "plan/search_internal.h"
#include "search_parts.h"

#define owned_diver AT_END(harpe_diver_clear) harpe_diver

#define MOST_PLANS 20000

/* Checks the plan of the last dive: real options, its time, its energy, and the bound. */
static void assert_sound(const parts *p, const harpe_diver *diver) {
    int frequency_mhz[4096];
    int32_t n = p->problem->instruction_count;
    for (int32_t i = 0; i < n; i++) {
        const harpe_option_list *list = list_at(p->problem, i);
        assert_in_range(diver->option[i], 0, list->option_count - 1);
        frequency_mhz[i] = list->options[diver->option[i]].frequency_mhz;
    }
    assert_true(plan_ps(p, diver->option) <= p->walk.solver.time_ps);
    double noise_j = 1e-9 * scale_j(p);
    assert_true(fabs(diver->energy_j - plan_j(p, diver->option)) <= noise_j);
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(p->problem, frequency_mhz, &plan, NULL, &failure));
    double iteration_j = harpe_problem_iteration_power_w(p->problem) * plan.time_s;
    assert_true(plan.time_s * HARPE_PS_PER_S <= (double)(p->walk.solver.time_ps + n + 1));
    assert_true(fabs(plan.energy_j - iteration_j - diver->energy_j) <=
                noise_j + 1e-11 * iteration_j);
    assert_true(plan.energy_j >=
                harpe_frontier_bound_at(p->frontier, plan.time_s) - noise_j - 1e-9 * iteration_j);
}

static void dive(parts *p, harpe_diver *diver, int width) {
    bool found = false;
    assert_works(harpe_diver_dive(diver, &p->walk.solver, width, &found, &failure));
    assert_true(found); /* the faster of the options around a duration always fits */
    assert_sound(p, diver);
    assert_true(diver->energy_j >=
                harpe_frontier_solver_energy_j(&p->walk.solver) - 1e-9 * scale_j(p));
}

/* ---- Soundness ------------------------------------------------------------------------------- */

TEST(dives_are_sound) {
    test_random random = {51};
    for (int trial = 0; trial < few_trials(150); trial++) {
        owned_parts p;
        parts_init(&p, any_problem(&random, trial, 4, 6));
        owned_diver diver = harpe_diver_make(p.problem, &p.walk.network, &p.curves);
        for (double share = 1; share >= 0; share -= 0.25) {
            parts_walk_to(&p, time_at(&p, share));
            for (int k = 0; k < 3; k++)
                dive(&p, &diver, random_int(&random, 1, 12));
        }
    }
}

/* ---- All plans ------------------------------------------------------------------------------- */

/* Returns a problem with at most MOST_PLANS plans. */
static harpe_problem *tiny_problem(test_random *random) {
    for (int trial = random_int(random, 0, 1000);; trial++) {
        harpe_problem *problem = random_int(random, 0, 1)
                                     ? random_graph_problem(random, random_int(random, 2, 9), 4)
                                     : any_problem(random, trial, 2, 2);
        double count = plan_count(problem, MOST_PLANS);
        if (count > 8 && count <= MOST_PLANS) return problem;
        harpe_problem_free(problem);
    }
}

TEST(tiny_problems_against_all_plans) {
    test_random random = {52};
    int trials = test_trials(120), at_optimum = 0;
    for (int trial = 0; trial < trials; trial++) {
        owned_parts p;
        parts_init(&p, tiny_problem(&random));
        owned_diver diver = harpe_diver_make(p.problem, &p.walk.network, &p.curves);
        parts_walk_to(&p, time_at(&p, random_between(&random, 0, 1)));
        double noise_j = 1e-9 * scale_j(&p);
        double least_j = least_energy_j(&p, p.walk.solver.time_ps);
        assert_true(least_j >= harpe_frontier_solver_energy_j(&p.walk.solver) - noise_j);
        dive(&p, &diver, 4);
        assert_true(diver.energy_j >= least_j - noise_j);
        at_optimum += diver.energy_j <= least_j + noise_j;
    }
    printf("optimum reached by a dive of width 4 in %d of %d problems\n", at_optimum, trials);
    assert_true(at_optimum >= trials * 8 / 10);
}

/* ---- Width ----------------------------------------------------------------------------------- */

static bool end_after(void *user) {
    int *left = user;
    return --*left < 0;
}

/* Wider dives need less energy, summed over some problems and times. The result does not depend on
 * what the diver did before, a dive that was ended included. */
TEST(wider_dives_find_better_plans) {
    test_random random = {55};
    double least_saved_j = 0, sum_j[3] = {0};
    static const int widths[] = {1, 4, 32};
    for (int trial = 0; trial < test_trials(4); trial++) {
        owned_parts p;
        parts_init(&p, usual_1f1b(&random, 4, 8, 8, 12));
        owned_diver used = harpe_diver_make(p.problem, &p.walk.network, &p.curves);
        for (double share = 0.8; share > 0; share -= 0.3) {
            parts_walk_to(&p, time_at(&p, share));
            for (int k = 0; k < 3; k++) {
                int left = random_int(&random, 0, 60);
                bool found = true;
                used.is_over = end_after;
                used.user = &left;
                assert_works(harpe_diver_dive(&used, &p.walk.solver, 8, &found, &failure));
                assert_false(found);
                used.is_over = NULL;
                dive(&p, &used, widths[k]);
                sum_j[k] += used.energy_j;
            }
            owned_diver fresh = harpe_diver_make(p.problem, &p.walk.network, &p.curves);
            dive(&p, &fresh, widths[2]);
            assert_memory_equal(used.option, fresh.option,
                                (size_t)p.problem->instruction_count * sizeof *used.option);
        }
        least_saved_j += 1e-6 * scale_j(&p);
    }
    assert_true(sum_j[1] < sum_j[0] - least_saved_j);
    assert_true(sum_j[2] < sum_j[1] - least_saved_j);
}
