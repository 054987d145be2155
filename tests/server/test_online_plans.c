/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of an online job on GPUs whose clocks change late: all values of a plan belong to its
 * clocks and its time, and plans keep the times of those for immediate changes. */
#include "test.h"

#include <math.h>

#include "server/scheduler/perseus/online_internal.h"

enum { STAGES = 3, CLOCKS = 6, MICROBATCHES = 4, PLANS = 4 };

static harpe_profile *make_profile(double latency_s) {
    static const char *const names[] = {"forward", "backward"};
    harpe_measurement rows[2 * STAGES * CLOCKS];
    harpe_profile *profile;
    harpe_error error;
    size_t count = 0;
    for (int stage = 0; stage < STAGES; stage++) {
        for (int c = 0; c < CLOCKS; c++) {
            for (int k = 0; k < 2; k++) {
                double slower = 1 / (1 - 0.08 * c), load = stage == 1 ? 1 : 0.8;
                rows[count++] = (harpe_measurement){.stage = stage,
                                                    .rank = -1,
                                                    .instruction = names[k],
                                                    .frequency_mhz = 1400 - 100 * c,
                                                    .time_s = 0.1 * (1 + k) * load * slower,
                                                    .energy_j = 30 * (1 + k) * load / slower,
                                                    .gpu_count = 1,
                                                    .switch_latency_s = latency_s};
            }
        }
    }
    assert_int_equal(harpe_profile_new(rows, count, &profile, &error), HARPE_OK);
    return profile;
}

static void check_plan(const harpe_online_plans *plans, const harpe_plan *plan) {
    harpe_plan again;
    harpe_error error;
    assert_int_equal(harpe_online_plans_evaluate(plans, plan->frequency_mhz, &again, &error),
                     HARPE_OK);
    assert_true(fabs(again.time_s - plan->time_s) <= 1e-9 * again.time_s);
    assert_true(fabs(again.energy_j - plan->energy_j) <= 1e-9 * again.energy_j);
    double gpus_j = plan->compute_energy_j + plan->blocking_energy_j;
    assert_true(plan->compute_energy_j > 0 && plan->blocking_energy_j >= 0);
    assert_true(fabs(gpus_j + plan->overhead_energy_j - plan->energy_j) <= 1e-9 * gpus_j);
    assert_true(fabs(plan->average_power_w - gpus_j / (plan->time_s * STAGES)) <=
                1e-9 * plan->average_power_w);
    assert_true(plan->lower_bound_j <= plan->energy_j * (1 + 1e-9));
    double bound_j = harpe_frontier_bound_at(plans->frontier, plan->time_s * (1 + 1e-9));
    assert_true(fabs(plan->lower_bound_j - bound_j) <= 1e-6 * bound_j);
}

TEST(all_values_of_a_plan_belong_together) {
    static const double latencies_s[] = {0, 0.01, 0.05, 0.3};
    const double blocking_w[STAGES] = {60, 60, 60};
    harpe_online_schedule schedule = {.name = "1f1b"};
    harpe_online_pipeline *pipeline;
    harpe_error error;
    assert_int_equal(harpe_online_pipeline_new(&schedule, STAGES, MICROBATCHES, &pipeline, &error),
                     HARPE_OK);
    for (size_t l = 0; l < sizeof latencies_s / sizeof *latencies_s; l++) {
        harpe_profile *profile = make_profile(latencies_s[l]);
        harpe_online_plans *plans;
        assert_int_equal(
            harpe_online_plans_new(pipeline, profile, blocking_w, PLANS, 0, &plans, &error),
            HARPE_OK);
        for (size_t k = 0; k < harpe_plan_set_count(plans->set); k++)
            check_plan(plans, harpe_plan_set_at(plans->set, k));
        harpe_online_plans_free(plans);
        harpe_profile_free(profile);
    }
    harpe_online_pipeline_free(pipeline);
}

/* Returns the energy of the slowest plan as a share of that of the highest clocks. */
static double check_times(harpe_online_pipeline *pipeline, double latency_s,
                          const harpe_online_plans *immediate) {
    const double blocking_w[STAGES] = {60, 60, 60};
    harpe_profile *profile = make_profile(latency_s);
    harpe_online_plans *late;
    harpe_error error;
    assert_int_equal(harpe_online_plans_new(pipeline, profile, blocking_w, PLANS, 0, &late, &error),
                     HARPE_OK);
    assert_int_equal(harpe_plan_set_count(late->set), harpe_plan_set_count(immediate->set));
    const harpe_plan *plan = NULL;
    for (size_t k = 0; k < harpe_plan_set_count(late->set); k++) {
        double most_s = 1.004 * harpe_plan_set_at(immediate->set, k)->time_s * (1 + 1e-9);
        plan = harpe_plan_set_at(late->set, k);
        assert_true(plan->time_s <= most_s);
        assert_true(plan->energy_j <= late->all_maximum.energy_j);
        assert_true(k == 0 || plan->energy_j <= harpe_plan_set_at(late->set, k - 1)->energy_j);
        for (double share = 0; share <= 1; share += 0.125) { /* changes that are faster */
            const harpe_clock_switch faster = {.latency_s = share * latency_s};
            harpe_late_plan made;
            assert_int_equal(harpe_plan_evaluate_late(late->problem, plan->frequency_mhz, &faster,
                                                      0, &made, NULL, &error),
                             HARPE_OK);
            assert_true(made.time_s <= most_s);
        }
    }
    double share = plan->energy_j / late->all_maximum.energy_j;
    harpe_online_plans_free(late);
    harpe_profile_free(profile);
    return share;
}

TEST(plans_keep_their_times) {
    static const double latencies_s[] = {0.0001, 0.01, 0.05, 0.1, 0.3, 1, 10};
    const double blocking_w[STAGES] = {60, 60, 60};
    harpe_online_schedule schedule = {.name = "1f1b"};
    harpe_online_pipeline *pipeline;
    harpe_online_plans *immediate;
    harpe_error error;
    assert_int_equal(harpe_online_pipeline_new(&schedule, STAGES, MICROBATCHES, &pipeline, &error),
                     HARPE_OK);
    harpe_profile *profile = make_profile(0);
    assert_int_equal(
        harpe_online_plans_new(pipeline, profile, blocking_w, PLANS, 0, &immediate, &error),
        HARPE_OK);
    for (size_t l = 0; l < sizeof latencies_s / sizeof *latencies_s; l++)
        assert_true(check_times(pipeline, latencies_s[l], immediate) < 0.9);
    harpe_online_plans_free(immediate);
    harpe_profile_free(profile);
    harpe_online_pipeline_free(pipeline);
}
