/* SPDX-License-Identifier: Apache-2.0 */
/* Overhead power: the energy of whole machines, T* and plans computed by hand, and the checker.
 * test_problem.c has the values that are refused, test_frontier.c compares the bound with an LP
 * solver, and test_wait_power.c with all plans, also with overhead power. */
#include "test.h"

#include "base/text.h"
#include "plan/plan_file.h"

#include "instances.h"

static const harpe_schedule_options one_by_one = {.ranks = 1, .microbatches = 1};

/* A forward of 1, 2 or 4 s, which saves 100 W from 1 to 2 s and 20 W from 2 to 4 s, and a backward
 * of 1 s and 100 J. */
static harpe_problem *forward_of_three_speeds(double blocking_w, double overhead_w) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "forward", 1200, 2, 200);
    add_row(&rows, 0, "forward", 1000, 4, 160);
    add_row(&rows, 0, "backward", 1400, 1, 100);
    return problem_with_overhead(&rows, &one_by_one, blocking_w, overhead_w);
}

static harpe_plan_set *all_plans(const harpe_problem *problem, harpe_frontier **frontier) {
    harpe_plan_request request = {.choice = HARPE_PLANS_ALL};
    return plan_set_of(problem, &request, frontier);
}

TEST(overhead_moves_the_minimum_to_shorter_times) {
    static const struct {
        double overhead_w, slowest_s, least_j;
    } cases[] = {
        {0, 5, 260},           {19, 5, 260 + 19 * 5},   {21, 3, 300 + 21 * 3},
        {99, 3, 300 + 99 * 3}, {101, 2, 400 + 101 * 2}, {1e9, 2, 400 + 2e9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        owned_problem problem = forward_of_three_speeds(0, cases[i].overhead_w);
        owned_frontier frontier = NULL;
        owned_plan_set plans = all_plans(problem, &frontier);
        size_t count = 0;
        const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
        assert_near(vertices[0].time_s, 2, 1e-12);
        assert_near(vertices[count - 1].time_s, cases[i].slowest_s, 1e-12);
        assert_near(vertices[count - 1].lower_bound_j, cases[i].least_j, 1e-12);
        const harpe_plan *slowest = harpe_plan_set_at(plans, harpe_plan_set_count(plans) - 1);
        assert_near(slowest->time_s, cases[i].slowest_s, 1e-12);
        assert_near(slowest->energy_j, cases[i].least_j, 1e-12);
    }
}

TEST(energies_are_told_apart) {
    owned_problem problem = forward_of_three_speeds(10, 1000);
    const int frequency_mhz[2] = {1200, 1400};
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, &failure));
    assert_near(plan.time_s, 3, 1e-12);
    assert_near(plan.compute_energy_j, 300, 1e-12);
    assert_true(plan.blocking_energy_j == 0);
    assert_near(plan.overhead_energy_j, 3000, 1e-12);
    assert_near(plan.energy_j, 3300, 1e-12);
    assert_near(plan.average_power_w, 100, 1e-12); /* of the GPU alone */
}

/* The lines that other servers also write contain the energy of the GPUs alone. */
TEST(a_plan_file_has_both_energies) {
    static const double overheads_w[] = {0, 1000};
    for (int i = 0; i < 2; i++) {
        owned_problem problem = forward_of_three_speeds(10, overheads_w[i]);
        harpe_plan plan = maximum_of(problem);
        owned_text text = {0};
        harpe_plan_file_format(&text, problem, &plan, 7, 0);
        assert_non_null(strstr(text.data, "# Iteration 7 total cost: 380.0\n"));
        assert_non_null(strstr(text.data, "# Iteration 7 total cost with P2P: 400.0\n"));
        const char *line = "# Iteration 7 total cost with P2P and overhead: 2400.0\n";
        assert_true((strstr(text.data, line) != NULL) == (i == 1));
        owned_plan_file file = NULL;
        assert_works(harpe_plan_file_parse(text.data, text.length, "plan", &file, &failure));
    }
}

TEST(the_checker_finds_a_wrong_overhead_energy) {
    owned_problem problem = forward_of_three_speeds(10, 50);
    owned_frontier frontier = NULL;
    owned_plan_set plans = all_plans(problem, &frontier);
    harpe_plan plan = *harpe_plan_set_at(plans, 0);
    assert_works(harpe_plan_verify(problem, frontier, &plan, &failure));
    plan.overhead_energy_j += 1;
    assert_refuses(harpe_plan_verify(problem, frontier, &plan, &failure), HARPE_INTERNAL,
                   "overhead energy");
    plan.overhead_energy_j = 0;
    plan.energy_j = plan.compute_energy_j + plan.blocking_energy_j;
    assert_int_equal(harpe_plan_verify(problem, frontier, &plan, &failure), HARPE_INTERNAL);
}
