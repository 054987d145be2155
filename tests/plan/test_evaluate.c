/* SPDX-License-Identifier: Apache-2.0 */
/* Time and energy of any assignment of frequencies: results computed by hand, every number of
 * a plan, and frequencies that were never measured. test_wait_power.c compares random plans with a
 * simulation. */
#include "test.h"

#include "instances.h"

/* Forward 1 s / 2 s, backward 2 s / 3 s, and a point that is slower and needs more energy. */
static harpe_problem *two_ranks(int microbatches, double blocking_w) {
    owned_rows rows = {0};
    for (int s = 0; s < 2; s++) {
        add_row(&rows, s, "forward", 1400, 1, 300);
        add_row(&rows, s, "forward", 1000, 2, 400);
        add_row(&rows, s, "backward", 1400, 2, 600);
        add_row(&rows, s, "backward", 1000, 3, 500);
        add_row(&rows, s, "backward", 600, 4, 900);
    }
    return problem_1f1b(&rows, 2, microbatches, blocking_w);
}

static harpe_plan evaluate(const harpe_problem *problem, const int *frequency_mhz,
                           double *start_s) {
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(problem, frequency_mhz, &plan, start_s, &failure));
    return plan;
}

/* Rank 0: F0 F1 B0 B1, rank 1: F0 B0 F1 B1. */
TEST(one_iteration_by_hand) {
    owned_problem problem = two_ranks(2, 50);
    double start_s[8];
    const int frequency_mhz[8] = {1400, 1400, 1000, 1400, 1400, 1400, 1400, 1400};
    const double expected_s[8] = {0, 1, 4, 7, 1, 2, 4, 5};
    harpe_plan plan = evaluate(problem, frequency_mhz, start_s);
    for (int i = 0; i < 8; i++)
        assert_near(start_s[i], expected_s[i], 1e-12);
    assert_near(plan.time_s, 9, 1e-12);
    assert_near(plan.compute_energy_j, 3500, 1e-12); /* 4 * 300 + 3 * 600 + 500 */
    assert_near(plan.blocking_energy_j, 50 * ((9 - 7) + (9 - 6)), 1e-12);
    assert_near(plan.energy_j, 3750, 1e-12);
    assert_near(plan.average_power_w, 3750. / 18, 1e-12);
    assert_true(plan.lower_bound_j == 0);
    assert_ptr_equal(plan.frequency_mhz, frequency_mhz);
}

TEST(frequencies_that_are_not_worth_having_are_evaluated_too) {
    owned_problem problem = two_ranks(1, 0);
    const int frequency_mhz[4] = {1000, 600, 1400, 600};
    harpe_plan plan = evaluate(problem, frequency_mhz, NULL);
    assert_near(plan.time_s, 2 + 1 + 4 + 4, 1e-12);
    assert_near(plan.energy_j, 400 + 300 + 900 + 900, 1e-12);
    assert_true(plan.blocking_energy_j == 0);
}

TEST(zero_stands_for_the_highest_frequency) {
    owned_problem problem = two_ranks(1, 20);
    const int zero[4] = {0, 0, 0, 0}, highest[4] = {1400, 1400, 1400, 1400};
    harpe_plan a = evaluate(problem, zero, NULL), b = evaluate(problem, highest, NULL);
    harpe_plan c = maximum_of(problem);
    assert_true(a.time_s == b.time_s && a.energy_j == b.energy_j);
    assert_true(c.time_s == b.time_s && c.energy_j == b.energy_j);
    for (int i = 0; i < 4; i++)
        assert_int_equal(c.frequency_mhz[i], 1400);
}

/* At 0 MHz an instruction has the clock that the one before leaves, perhaps in the iteration
 * before. */
TEST(zero_leaves_the_clock_as_it_is) {
    owned_problem problem = two_ranks(1, 20);
    harpe_plan plan = evaluate(problem, (int[]){1000, 0, 0, 1000}, NULL);
    assert_near(plan.time_s, 2 + 2 + 3 + 3, 1e-12);
    assert_near(plan.energy_j, 2 * (400 + 500) + 20 * (2 * 10 - 10), 1e-12);
    plan = evaluate(problem, (int[]){0, 1000, 1400, 0}, NULL);
    assert_near(plan.time_s, 2 + 1 + 2 + 3, 1e-12);
    /* No forward was measured at 600 MHz. */
    assert_refuses(harpe_plan_evaluate(problem, (int[]){0, 600, 0, 0}, &plan, NULL, &failure),
                   HARPE_INVALID_INPUT, "no 600 MHz for 'forward' of stage 0");
}

/* A clock that is left alone is profiled as 0 MHz. Beside other clocks, 0 means that row. */
TEST(zero_is_a_row_of_its_own_where_it_was_measured) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 0, 5, 10);
    add_row(&rows, 0, "forward", 1000, 1, 20);
    add_row(&rows, 0, "backward", 1000, 1, 20);
    owned_problem problem = problem_1f1b(&rows, 1, 1, 0);
    const int frequency_mhz[2] = {0, 0};
    harpe_plan plan = evaluate(problem, frequency_mhz, NULL);
    assert_near(plan.time_s, 6, 1e-12);
}

TEST(unknown_frequencies_are_named_and_nothing_is_written) {
    owned_problem problem = two_ranks(1, 0);
    static const int wrong[] = {1399, 1, 99999, -5, 1401, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const int frequency_mhz[4] = {1400, 1400, 1000, wrong[i]};
        double start_s[4] = {-1, -1, -1, -1};
        harpe_plan plan = {.time_s = -1};
        assert_refuses(harpe_plan_evaluate(problem, frequency_mhz, &plan, start_s, &failure),
                       HARPE_INVALID_INPUT, "rank 1, instruction 1");
        assert_says(&failure, "'backward' of stage 1");
        assert_true(plan.time_s == -1 && start_s[0] == -1);
        assert_int_equal(harpe_plan_evaluate(problem, frequency_mhz, &plan, start_s, NULL),
                         HARPE_INVALID_INPUT);
    }
}
