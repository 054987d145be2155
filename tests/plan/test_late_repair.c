/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are repaired for late changes keep their time, whatever the latency, and no clock of
 * the plan falls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "instances.h"
#include "plan/late_repair.h"
#include "plan/problem.h"

static harpe_problem *pipeline(void) {
    test_rows rows = {0};
    for (int stage = 0; stage < 3; stage++) {
        double load = stage == 1 ? 1 : 0.8; /* the stages around it have slack */
        for (int mhz = 1400; mhz >= 800; mhz -= 200) {
            double slower = 1400. / mhz;
            add_row(&rows, stage, "forward", mhz, load * slower, 300 * load / slower);
            add_row(&rows, stage, "backward", mhz, 2 * load * slower, 600 * load / slower);
        }
    }
    harpe_problem *problem =
        problem_from_rows(&rows, &(harpe_schedule_options){.ranks = 3, .microbatches = 6}, 50);
    free(rows.rows);
    return problem;
}

static void a_repaired_plan_keeps_its_time(void **state) {
    static const double latencies_s[] = {0, 0.01, 0.1, 0.4, 1, 3, 20};
    harpe_problem *problem = pipeline();
    harpe_error error = {.message = ""};
    harpe_plan highest;
    size_t count = harpe_problem_instruction_count(problem);
    int mhz[64], saving = 0;
    (void)state;
    assert_true(count <= 64);
    assert_ok(harpe_plan_all_maximum(problem, &highest, &error), error);
    for (size_t l = 0; l < sizeof latencies_s / sizeof *latencies_s; l++) {
        double time_s = 1.005 * highest.time_s;
        harpe_plan_request request = {
            .choice = HARPE_PLANS_AT, .times_s = &time_s, .time_count = 1, .threads = 1};
        harpe_plan_set *set;
        assert_ok(harpe_plan_set_new(problem, &request, NULL, NULL, &set, &error), error);
        memcpy(mhz, harpe_plan_set_at(set, 0)->frequency_mhz, count * sizeof *mhz);
        harpe_clock_switch cost = {.latency_s = latencies_s[l]};
        harpe_late_plan late, again;
        assert_ok(harpe_late_repair(problem, &cost, time_s, mhz, &late, &error), error);
        assert_ok(harpe_plan_evaluate_late(problem, mhz, &cost, 0, &again, NULL, &error), error);
        assert_true(late.time_s <= time_s * (1 + 1e-8));
        assert_true(late.energy_j <= highest.energy_j * (1 + 1e-8));
        assert_near(late.time_s, again.time_s, 1e-9);
        for (double share = 0; share < 1; share += 0.05) { /* changes that are faster */
            harpe_clock_switch faster = {.latency_s = share * latencies_s[l]};
            assert_ok(harpe_plan_evaluate_late(problem, mhz, &faster, 0, &again, NULL, &error),
                      error);
            assert_true(again.time_s <= time_s * (1 + 1e-8));
        }
        for (size_t i = 0; i < count; i++)
            assert_true(mhz[i] >= harpe_plan_set_at(set, 0)->frequency_mhz[i]);
        saving += late.energy_j < 0.98 * highest.energy_j;
        if (l == 0) /* changes in time need no repair */
            assert_memory_equal(mhz, harpe_plan_set_at(set, 0)->frequency_mhz, count * sizeof *mhz);
        harpe_plan_set_free(set);
    }
    assert_true(saving >= 3);
    harpe_problem_free(problem);
}

/* A large plan with a change before nearly each instruction: more is raised in each step, and the
 * plan still keeps its time. */
static void a_large_plan_keeps_its_time(void **state) {
    static const double latencies_s[] = {0.1, 0.5, 2, 8};
    test_rows rows = {0};
    harpe_error error = {.message = ""};
    harpe_plan highest, immediate;
    int saving = 0;
    (void)state;
    for (int stage = 0; stage < 16; stage++)
        for (int mhz = 1400; mhz >= 800; mhz -= 100) {
            double load = 1 - 0.04 * (stage * 7 % 5), slower = 1400. / mhz;
            add_row(&rows, stage, "forward", mhz, load * slower, 300 * load / slower);
            add_row(&rows, stage, "backward", mhz, 2 * load * slower, 600 * load / slower);
        }
    harpe_problem *problem =
        problem_from_rows(&rows, &(harpe_schedule_options){.ranks = 16, .microbatches = 160}, 50);
    free(rows.rows);
    size_t count = harpe_problem_instruction_count(problem);
    int *before = calloc(count, sizeof *before), *mhz = calloc(count, sizeof *mhz);
    assert_non_null(before);
    assert_non_null(mhz);
    assert_ok(harpe_plan_all_maximum(problem, &highest, &error), error);
    for (size_t i = 0; i < count; i++) {
        uint32_t draw = (uint32_t)i * 2654435761U >> 16;
        bool has_slack = harpe_problem_choice(problem, (int32_t)i)->list.stage % 5 > 0;
        before[i] = has_slack && draw % 3 > 0 ? 1300 - 100 * (int)(draw % 2) : 1400;
    }
    assert_ok(harpe_plan_evaluate(problem, before, &immediate, NULL, &error), error);
    double highest_j = highest.energy_j, time_s = 1.004 * immediate.time_s;
    for (size_t l = 0; l < sizeof latencies_s / sizeof *latencies_s; l++) {
        harpe_late_plan late;
        memcpy(mhz, before, count * sizeof *mhz);
        harpe_clock_switch cost = {.latency_s = latencies_s[l]};
        assert_ok(harpe_late_repair(problem, &cost, time_s, mhz, &late, &error), error);
        assert_true(late.time_s <= time_s * (1 + 1e-8));
        assert_true(late.energy_j <= highest_j * (1 + 1e-8));
        saving += late.energy_j < 0.999 * highest_j;
        cost.latency_s *= 0.6;
        assert_ok(harpe_plan_evaluate_late(problem, mhz, &cost, 0, &late, NULL, &error), error);
        assert_true(late.time_s <= time_s * (1 + 1e-8));
        for (size_t i = 0; i < count; i++)
            assert_true(mhz[i] >= before[i]);
    }
    assert_true(saving >= 2);
    free(before);
    free(mhz);
    harpe_problem_free(problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_repaired_plan_keeps_its_time),
                                       cmocka_unit_test(a_large_plan_keeps_its_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
