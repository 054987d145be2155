/* SPDX-License-Identifier: Apache-2.0 */
/* Every clock of a plan holds for the minimum dwell time, also if a higher clock is not always
 * faster: a GPU at its power limit takes about the same time at its highest clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "instances.h"

#define RANKS 3
#define MICROBATCHES 6
#define CLOCKS 4

static const int clocks_mhz[CLOCKS] = {1400, 1350, 1300, 1000};

/* The times at the three highest clocks differ by noise only. */
static harpe_problem *limited_by_power(test_random *random) {
    test_rows rows = {0};
    for (int stage = 0; stage < RANKS; stage++) {
        for (int c = 0; c < CLOCKS; c++) {
            double slower = c == CLOCKS - 1 ? 1.3 : 1;
            for (int backward = 0; backward < 2; backward++) {
                double time_s = (1 + backward) * slower * random_between(random, 0.97, 1.03);
                double power_w = 400 / (slower * slower) * random_between(random, 0.97, 1.03);
                add_row(&rows, stage, backward ? "backward" : "forward", clocks_mhz[c], time_s,
                        power_w * time_s);
            }
        }
    }
    harpe_problem *problem = problem_from_rows(
        &rows, &(harpe_schedule_options){.ranks = RANKS, .microbatches = MICROBATCHES}, 60);
    free(rows.rows);
    return problem;
}

/* Returns the least energy of all plans with one clock per rank that take at most a time. */
static double least_with_one_clock_j(const harpe_problem *problem, double most_s) {
    double least_j = INFINITY;
    for (int which = 0; which < CLOCKS * CLOCKS * CLOCKS; which++) {
        const int of_rank[RANKS] = {which % CLOCKS, which / CLOCKS % CLOCKS,
                                    which / CLOCKS / CLOCKS};
        int mhz[RANKS * MICROBATCHES * 2];
        for (int i = 0; i < RANKS * MICROBATCHES * 2; i++)
            mhz[i] = clocks_mhz[of_rank[i / (MICROBATCHES * 2)]];
        harpe_plan plan;
        harpe_error error = {.message = ""};
        assert_ok(harpe_plan_evaluate(problem, mhz, &plan, NULL, &error), error);
        if (plan.time_s <= most_s) least_j = fmin(least_j, plan.energy_j);
    }
    return least_j;
}

static void check_plan(const harpe_problem *problem, const harpe_plan *plan, double most_s,
                       double dwell_s) {
    harpe_switching found;
    harpe_error error = {.message = ""};
    assert_ok(harpe_plan_switching(problem, plan->frequency_mhz, NULL, &found, &error), error);
    if (found.clock_writes > 0 && found.shortest_dwell_s < dwell_s * (1 - 1e-9))
        fail_msg("a clock holds for %g s, not for %g s, at %g s", found.shortest_dwell_s, dwell_s,
                 most_s);
    assert_true(plan->time_s <= most_s);
    double other_j = least_with_one_clock_j(problem, most_s);
    if (plan->energy_j > other_j * (1 + 1e-9))
        fail_msg("the plan needs %.9g J, one clock per rank %.9g J", plan->energy_j, other_j);
}

static void clocks_hold_where_times_are_noise(void **state) {
    (void)state;
    test_random random = {.state = 1};
    for (int trial = 0; trial < test_trials(40); trial++) {
        harpe_problem *problem = limited_by_power(&random);
        harpe_plan maximum;
        harpe_error error = {.message = ""};
        assert_ok(harpe_plan_all_maximum(problem, &maximum, &error), error);
        double times_s[] = {maximum.time_s + 1e-9, maximum.time_s * 1.05, maximum.time_s * 1.2};
        double dwell_s = trial % 2 ? 5 : 1e6;
        harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                      .times_s = times_s,
                                      .time_count = 3,
                                      .clock_switch = {.minimum_dwell_s = dwell_s}};
        harpe_plan_set *plans = NULL;
        assert_ok(harpe_plan_set_new(problem, &request, NULL, NULL, &plans, &error), error);
        for (size_t i = 0; i < 3; i++)
            check_plan(problem, harpe_plan_set_at(plans, i), times_s[i], dwell_s);
        harpe_plan_set_free(plans);
        harpe_problem_free(problem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_hold_where_times_are_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
