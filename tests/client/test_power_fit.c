/* SPDX-License-Identifier: Apache-2.0 */
/* Fits powers to the values of an energy counter during training runs with known powers. */
#include "test.h"

#include <math.h>

#include "synthetic_training.h"

OWNER(synthetic_run)

#define assert_within(value, expected, share) \
    do { \
        double got_value = (value), wanted = (expected); \
        if (!(fabs(got_value - wanted) <= (share)*fabs(wanted))) \
            fail_msg("%s is %.9g, expected %.9g within %g", #value, got_value, wanted, \
                     (double)(share)); \
    } while (0)

enum { KEYS = 8 };

typedef struct fitted {
    double power_w[HARPE_COLUMN_FIRST_KEY + KEYS];
    double step_j[SYNTHETIC_STEPS_MAX];
    bool knows_waiting;
} fitted;

static fitted fit(const synthetic_run *run) {
    fitted out = {0};
    AT_END(harpe_power_model_clear) harpe_power_model model = {0};
    assert_true(harpe_power_model_add(&model, run->steps, run->step_count, &run->curve, KEYS));
    owned_array double *power_w = harpe_power_model_solve(&model, KEYS);
    assert_non_null(power_w);
    for (size_t i = 0; i < HARPE_COLUMN_FIRST_KEY + KEYS; i++) {
        assert_true(isfinite(power_w[i]) && power_w[i] >= 0);
        out.power_w[i] = power_w[i];
    }
    out.knows_waiting = harpe_power_fit_knows(&model.fit, HARPE_COLUMN_WAITING);
    assert_true(
        harpe_step_energies(run->steps, run->step_count, &run->curve, power_w, KEYS, out.step_j));
    return out;
}

static double key_power(const fitted *got, size_t key) {
    return got->power_w[HARPE_COLUMN_FIRST_KEY + key];
}

/* ---- Truth is found -------------------------------------------------------------------------- */

static const synthetic_instruction mixed[] = {
    {0, 0.028, 310, 0.004}, {0, 0.028, 310, 0},     {1, 0.061, 345, 0.012},
    {2, 0.003, 240, 0},     {0, 0.028, 310, 0.007}, {1, 0.061, 345, 0},
    {3, 0.080, 290, 0.021}, {2, 0.003, 240, 0.002}, {1, 0.061, 345, 0.009},
};
enum { MIXED = sizeof mixed / sizeof mixed[0] };

static void check_mixed(double counter_s, double late_s, double short_share) {
    synthetic_training training = {.instructions = mixed,
                                   .count = MIXED,
                                   .steps = 30,
                                   .waiting_w = 84,
                                   .between_s = 0.003,
                                   .between_w = 70,
                                   .jitter = 0.03,
                                   .counter_s = counter_s,
                                   .late_s = late_s};
    OWNED(synthetic_run) run = synthetic_run_new(&training);
    fitted got = fit(run);
    print_message("counter %g ms: %.2f %.2f %.2f %.2f W, waiting %.2f W\n", counter_s * 1e3,
                  key_power(&got, 0), key_power(&got, 1), key_power(&got, 2), key_power(&got, 3),
                  got.power_w[HARPE_COLUMN_WAITING]);
    assert_within(key_power(&got, 0), 310, 0.01);
    assert_within(key_power(&got, 1), 345, 0.01);
    /* Moves by 3 ms at a time, and by 6 ms in one step of 374. */
    assert_within(key_power(&got, 2), 240, short_share);
    assert_within(key_power(&got, 3), 290, 0.01);
    assert_within(got.power_w[HARPE_COLUMN_WAITING], 84, 0.10);
    double truth_j = 0, shown_j = 0;
    for (size_t i = 0; i < run->step_count; i++) {
        assert_within(got.step_j[i], run->step_j[i], 0.01);
        truth_j += run->step_j[i];
        shown_j += got.step_j[i];
    }
    assert_within(shown_j, truth_j, 0.001);
}

TEST(powers_are_found_within_a_percent_after_thirty_steps) {
    check_mixed(0.010, 5e-5, 0.1);
    check_mixed(0.020, 5e-5, 0.1);
    check_mixed(0.050, 5e-5, 0.1);
    check_mixed(0.100, 5e-5, 0.1);
}

TEST(late_wake_ups_do_not_spoil_the_fit) {
    check_mixed(0.050, 1e-3, 0.2);
    check_mixed(0.100, 2e-3, 0.2);
}

TEST(what_runs_between_steps_is_kept_apart) {
    synthetic_training training = {.instructions = mixed,
                                   .count = MIXED,
                                   .steps = 40,
                                   .waiting_w = 84,
                                   .between_s = 0.150, /* evaluation */
                                   .between_w = 390,
                                   .jitter = 0.03,
                                   .counter_s = 0.1,
                                   .late_s = 5e-5};
    OWNED(synthetic_run) run = synthetic_run_new(&training);
    fitted got = fit(run);
    assert_within(key_power(&got, 0), 310, 0.015);
    assert_within(key_power(&got, 1), 345, 0.015);
    assert_within(key_power(&got, 3), 290, 0.015);
}

/* ---- Little to go by ------------------------------------------------------------------------- */

TEST(one_instruction_without_waiting_is_the_mean_power) {
    static const synthetic_instruction only[] = {{0, 0.040, 300, 0}};
    synthetic_training training = {
        .instructions = only, .count = 1, .steps = 100, .counter_s = 0.05, .late_s = 5e-5};
    OWNED(synthetic_run) run = synthetic_run_new(&training);
    fitted got = fit(run);
    assert_within(key_power(&got, 0), 300, 0.01);
    assert_false(got.knows_waiting);
}

TEST(two_of_equal_length_in_step_with_the_counter_share_the_energy) {
    /* Every period between two moves contains as much of one as of the other. */
    static const synthetic_instruction both[] = {{0, 0.025, 380, 0}, {1, 0.025, 220, 0}};
    synthetic_training training = {
        .instructions = both, .count = 2, .steps = 100, .counter_s = 0.05, .late_s = 5e-5};
    OWNED(synthetic_run) run = synthetic_run_new(&training);
    fitted got = fit(run);
    assert_within(key_power(&got, 0) + key_power(&got, 1), 600, 0.01);
    assert_true(key_power(&got, 0) >= 0 && key_power(&got, 0) <= 400);
    for (size_t i = 1; i < run->step_count; i++)
        assert_within(got.step_j[i], 15, 0.35);
}

TEST(one_step_gives_sane_numbers) {
    synthetic_training training = {.instructions = mixed,
                                   .count = MIXED,
                                   .steps = 1,
                                   .waiting_w = 84,
                                   .counter_s = 0.1,
                                   .late_s = 5e-5};
    OWNED(synthetic_run) run = synthetic_run_new(&training);
    fitted got = fit(run);
    for (size_t key = 0; key < 4; key++)
        assert_true(key_power(&got, key) < 1500);
    assert_within(got.step_j[0], run->step_j[0], 0.1);
}

TEST(no_rows_give_zeros_and_never_nan) {
    AT_END(harpe_power_fit_clear) harpe_power_fit empty = {0};
    double power_w[3] = {NAN, NAN, NAN};
    assert_true(harpe_power_fit_solve(&empty, 3, power_w));
    for (int i = 0; i < 3; i++)
        assert_true(power_w[i] == 0);
    assert_false(harpe_power_fit_knows(&empty, 0));
}

TEST(power_is_never_negative) {
    static const size_t both[] = {0, 1}, first[] = {0};
    static const double times_s[] = {0.1, 0.1};
    AT_END(harpe_power_fit_clear) harpe_power_fit fit = {0};
    for (int i = 0; i < 10; i++) {
        assert_true(harpe_power_fit_add(&fit, both, 2, times_s, 20, 1e-3));
        assert_true(harpe_power_fit_add(&fit, first, 1, times_s, 30, 1e-3));
    }
    double power_w[2];
    assert_true(harpe_power_fit_solve(&fit, 2, power_w));
    assert_true(power_w[1] == 0);
    assert_within(power_w[0], 300, 0.01);
}

TEST(a_copy_solves_the_same_and_grows_by_itself) {
    harpe_power_fit fit = {0}, copy = {0};
    double times_s[40] = {0}, power_w[40];
    for (size_t i = 0; i < 20; i++) {
        times_s[i] = 0.05;
        assert_true(harpe_power_fit_add(&fit, &i, 1, times_s, 5 + (double)i, 1e-4));
    }
    assert_true(harpe_power_fit_copy(&fit, &copy));
    size_t last = 39;
    times_s[last] = 0.05;
    assert_true(harpe_power_fit_add(&copy, &last, 1, times_s, 8, 1e-4));
    assert_true(harpe_power_fit_solve(&copy, 40, power_w));
    for (size_t i = 0; i < 20; i++)
        assert_within(power_w[i], 100 + 20 * (double)i, 0.001);
    assert_within(power_w[39], 160, 0.001);
    assert_int_equal(fit.count, 20);
    harpe_power_fit_clear(&fit);
    harpe_power_fit_clear(&copy);
}
