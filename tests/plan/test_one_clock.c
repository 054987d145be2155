/* SPDX-License-Identifier: Apache-2.0 */
/* The plans with one clock for all GPUs, compared with an enumeration of every clock from 0 to 3000
 * MHz by harpe_plan_evaluate, and results by hand. */
#include "test.h"

#include <harpe/graph.h>

#include "instances.h"

static harpe_plan_set *plans_of(const harpe_problem *problem) {
    harpe_plan_set *plans = NULL;
    assert_works(harpe_plan_set_one_clock(problem, &plans, &failure));
    return plans;
}

static bool has_no_clocks(const harpe_problem *problem, size_t i) {
    const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
    return choice->point_count == 1 && choice->points[0].frequency_mhz == 0;
}

/* The least energy, and the number of plans, with one clock within a time. */
typedef struct enumerated {
    double energy_j;
    size_t plan_count;
} enumerated;

/* Evaluates each clock that could exist, and the highest clocks. */
static enumerated enumerate(const harpe_problem *problem, double most_s) {
    size_t count = harpe_problem_instruction_count(problem);
    owned_array int *frequency_mhz = harpe_calloc(count, sizeof *frequency_mhz);
    harpe_plan plan;
    enumerated found = {.energy_j = INFINITY};
    bool highest_is_one_clock = false;
    assert_works(harpe_plan_all_maximum(problem, &plan, &failure));
    const int *highest_mhz = plan.frequency_mhz;
    if (plan.time_s <= most_s) found.energy_j = plan.energy_j;
    for (int mhz = 1; mhz <= 3000; mhz++) {
        bool is_highest = true;
        for (size_t i = 0; i < count; i++) {
            frequency_mhz[i] = has_no_clocks(problem, i) ? 0 : mhz;
            is_highest = is_highest && frequency_mhz[i] == highest_mhz[i];
        }
        if (harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, NULL) != HARPE_OK) continue;
        highest_is_one_clock = highest_is_one_clock || is_highest;
        if (plan.time_s > most_s) continue;
        found.plan_count++;
        found.energy_j = fmin(found.energy_j, plan.energy_j);
    }
    if (!highest_is_one_clock) found.plan_count++;
    return found;
}

static void check_within(const harpe_problem *problem, const harpe_plan_set *plans, double most_s) {
    enumerated expected = enumerate(problem, most_s);
    const harpe_plan *found = harpe_plan_set_within(plans, most_s);
    if (expected.energy_j == INFINITY) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_near(found->energy_j, expected.energy_j, 1e-12);
    assert_true(found->time_s <= most_s);
}

static void check_instance(const harpe_problem *problem) {
    owned_plan_set plans = plans_of(problem);
    size_t count = harpe_plan_set_count(plans);
    assert_int_equal(count, enumerate(problem, INFINITY).plan_count);
    for (size_t p = 0; p < count; p++) {
        const harpe_plan *plan = harpe_plan_set_at(plans, p);
        harpe_plan again;
        assert_works(harpe_plan_evaluate(problem, plan->frequency_mhz, &again, NULL, &failure));
        assert_true(plan->time_s == again.time_s && plan->energy_j == again.energy_j);
        if (p > 0) assert_true(plan->time_s >= harpe_plan_set_at(plans, p - 1)->time_s);
        check_within(problem, plans, plan->time_s);
    }
    check_within(problem, plans, 0.999 * harpe_plan_set_at(plans, 0)->time_s);
    check_within(problem, plans, INFINITY);
}

TEST(least_energy_is_that_of_an_enumeration) {
    test_random random = {.state = 20260};
    int trials = few_trials(40);
    for (int t = 0; t < trials; t++) {
        harpe_schedule_options options = random_1f1b(&random, 3, 4);
        owned_problem problem = random_problem(&options, &random);
        check_instance(problem);
    }
}

static harpe_problem *two_ranks(const test_rows *rows) { return problem_1f1b(rows, 2, 1, 0); }

/* A lower clock may be as fast, because of a power limit, and need less energy. */
TEST(a_lower_clock_may_be_as_fast) {
    owned_rows rows = {0};
    for (int s = 0; s < 2; s++) {
        add_row(&rows, s, "forward", 1400, 1, 300);
        add_row(&rows, s, "forward", 1300, 1, 200);
        add_row(&rows, s, "forward", 1000, 2, 100);
        add_row(&rows, s, "backward", 1400, 1, 300);
        add_row(&rows, s, "backward", 1300, 1, 200);
        add_row(&rows, s, "backward", 1000, 2, 100);
        add_row(&rows, s, "backward", 900, 3, 1); /* not a clock of all */
    }
    owned_problem problem = two_ranks(&rows);
    owned_plan_set plans = plans_of(problem);
    assert_int_equal(harpe_plan_set_count(plans), 3);
    const harpe_plan *plan = harpe_plan_set_within(plans, 4);
    assert_int_equal(harpe_plan_one_clock_mhz(problem, plan->frequency_mhz), 1300);
    assert_near(plan->energy_j, 800, 1e-12);
    plan = harpe_plan_set_within(plans, 8 / (1 + 0.9e-9)); /* a rounding error too fast */
    assert_int_equal(harpe_plan_one_clock_mhz(problem, plan->frequency_mhz), 1000);
    assert_near(harpe_plan_set_within(plans, 7.99)->time_s, 4, 1e-12);
    assert_null(harpe_plan_set_within(plans, 3.99));
}

/* Without a clock in common, only the highest clocks are left. */
TEST(stages_without_a_clock_in_common_have_the_highest_clocks) {
    owned_rows rows = {0};
    for (int s = 0; s < 2; s++) {
        add_row(&rows, s, "forward", 1400 - s, 1, 300);
        add_row(&rows, s, "backward", 1400 - s, 1, 300);
        add_row(&rows, s, "backward", 1000 - s, 2, 100);
    }
    owned_problem problem = two_ranks(&rows);
    owned_plan_set plans = plans_of(problem);
    assert_int_equal(harpe_plan_set_count(plans), 1);
    const harpe_plan *plan = harpe_plan_set_within(plans, INFINITY);
    assert_int_equal(harpe_plan_one_clock_mhz(problem, plan->frequency_mhz), 0);
    assert_near(plan->energy_j, 1200, 1e-12);
}

/* A row at 0 MHz is no clock: alone it stays, and beside clocks it is not taken. */
TEST(zero_is_no_clock) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 0, 5, 1);
    add_row(&rows, 0, "backward", 1000, 1, 20);
    add_row(&rows, 0, "backward", 900, 2, 10);
    add_row(&rows, 0, "backward", 0, 5, 1);
    owned_problem problem = problem_1f1b(&rows, 1, 1, 0);
    check_instance(problem);
    owned_plan_set plans = plans_of(problem);
    assert_int_equal(harpe_plan_set_count(plans), 2);
    const harpe_plan *plan = harpe_plan_set_within(plans, INFINITY);
    assert_int_equal(plan->frequency_mhz[0], 0);
    assert_int_equal(plan->frequency_mhz[1], 900);
    assert_int_equal(harpe_plan_one_clock_mhz(problem, plan->frequency_mhz), 900);
}

TEST(a_graph_has_no_clocks) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1000, 1, 20);
    add_row(&rows, 0, "backward", 1000, 1, 20);
    owned_problem problem = problem_1f1b(&rows, 1, 1, 0);
    owned_graph graph = NULL;
    owned_problem of_graph = NULL;
    assert_works(harpe_graph_of_problem(problem, &graph, &failure));
    assert_works(harpe_problem_of_graph(graph, &(harpe_problem_options){0}, &of_graph, &failure));
    harpe_plan_set *plans = NULL;
    assert_int_equal(harpe_plan_set_one_clock(of_graph, &plans, NULL), HARPE_NOT_SUPPORTED);
    assert_null(plans);
}
