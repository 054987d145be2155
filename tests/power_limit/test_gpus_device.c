/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of GPUs, end to end: training under the optimizer always runs to its end. One line reports
 * the fault, no wrong number is shown or saved, and the limits are restored. */
#include "power_limit/emulated_training.h"

#include <math.h>

enum { LIMITS = 7, HIGHEST_W = 300, LOWEST_W = 150, LIMIT_STEP_W = 25, WINDOW_STEPS = 40 };

static void train_with(const char *faults, planned_fault fault) {
    use_faults(faults);
    start_training(1, fault);
    assert_true(harpe_world_await(training.process, INT64_MAX));
}

static void assert_rows(const int *limits_w, size_t count) {
    double windows_s = 0;
    assert_int_equal(training.row_count, count);
    for (size_t i = 0; i < count; i++) {
        const harpe_power_limit_measurement *row = &training.rows[i];
        assert_int_equal(row->power_limit_w, limits_w[i]);
        /* 40 steps of 0.05 s, between idle power and twice the limit */
        assert_true(row->time_s > WINDOW_STEPS * STEP_S - 0.001);
        assert_true(row->energy_j > 40 * row->time_s);
        assert_true(row->energy_j < 2 * row->power_limit_w * row->time_s);
        windows_s += row->time_s;
    }
    assert_true(windows_s < training.took_s);
}

/* The highest `count` limits were measured. */
static void assert_measured(size_t count) {
    int limits_w[LIMITS];
    for (int i = 0; i < LIMITS; i++)
        limits_w[i] = HIGHEST_W - LIMIT_STEP_W * i;
    assert_rows(limits_w, count);
}

static void assert_said(const char *text) {
    if (!strstr(training.line, text)) fail_msg("expected '%s' in '%s'", text, training.line);
}

/* The training ran to its end, with one line that contains all texts, and saved nothing. */
static void assert_stopped(const char *text, const char *other) {
    if (training.line_count != 1) fail_msg("%d lines: %s", training.line_count, training.line);
    assert_said(text);
    assert_said(other);
    assert_int_equal(training.optimum_w, 0);
    assert_false(path_exists(scratch_path(world_test_now->files, "profile.json")));
}

static void assert_done(void) {
    if (training.line_count) fail_msg("%s", training.line);
    assert_measured(LIMITS);
    assert_in_range(training.optimum_w, LOWEST_W, HIGHEST_W);
    assert_true(path_exists(scratch_path(world_test_now->files, "profile.json")));
    assert_restored();
}

static const world_machine mixed = {.gpus = "1xV100,1xA40", .begin = begin_gpus, .end = end_gpus};

/* ---- Faults from the start ------------------------------------------------------------------- */

WORLD_TEST(without_faults_everything_is_measured) {
    train_with("", (planned_fault){0});
    assert_done();
}

WORLD_TEST(what_the_driver_never_permits_is_told) {
    train_with("no_permission", (planned_fault){0});
    assert_stopped("GPU 0 (Tesla V100", "run as root");
    assert_said("NVML_ERROR_NO_PERMISSION");
    assert_measured(0);
    assert_restored();
    train_with("not_supported=power_limit", (planned_fault){0});
    assert_stopped("NVML_ERROR_NOT_SUPPORTED", "cannot do it");
    assert_measured(0);
    use_faults("");
    assert_restored();
}

WORLD_TEST(persistence_mode_that_is_not_supported_does_not_matter) {
    train_with("not_supported=persistence", (planned_fault){0});
    use_faults("");
    assert_done();
}

WORLD_TEST_OF(different_models_are_refused, mixed) {
    train_with("", (planned_fault){0});
    assert_stopped("not all one model", "CUDA_VISIBLE_DEVICES");
    assert_said("Tesla V100");
    assert_measured(0);
    assert_restored();
}

WORLD_TEST(limits_above_the_enforced_limit_are_one) {
    static const int limits_w[] = {210, 200, 175, 150};
    train_with("enforced_limit=210", (planned_fault){0});
    assert_int_equal(training.line_count, 1);
    assert_said("GPU 0 is limited to 210 W");
    assert_rows(limits_w, 4);
    assert_in_range(training.optimum_w, LOWEST_W, 210);
    assert_restored();
}

WORLD_TEST_OF(limits_without_effect_are_told, one_v100) {
    static const struct {
        const char *faults, *accepted, *is;
        uint32_t limit_mw;
        size_t measured;
    } cases[] = {
        {"limit_floor=230", "accepted a power limit of 225 W", "the limit is 230 W", 230000, 3},
        {"limit_floor=1000", "accepted a power limit of 275 W", "the limit is 300 W", 300000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use_faults("");
        found[0].limit_mw = cases[i].limit_mw;
        assert_works(harpe_gpu_set_power_limit(gpus, 0, found[0].limit_mw, &failure));
        train_with(cases[i].faults, (planned_fault){0});
        assert_stopped(cases[i].accepted, cases[i].is);
        assert_measured(cases[i].measured);
        assert_restored();
    }
}

/* ---- Faults in the middle -------------------------------------------------------------------- */

/* At the second limit: one step sets it, 10 let it settle, and a window is open during 40. */
static planned_fault in_mid_window(const char *list) { return (planned_fault){list, 275, 20}; }

WORLD_TEST(a_limit_that_comes_down_in_mid_window_is_told) {
    train_with("", in_mid_window("enforced_limit=260"));
    assert_stopped("GPU 0: its power limit was set to 275 W", "only 260 W are in force");
    assert_measured(1);
    assert_restored();
}

WORLD_TEST_OF(permission_may_be_taken_away_and_given_back, one_v100) {
    train_with("", in_mid_window("no_permission"));
    assert_stopped("NVML_ERROR_NO_PERMISSION", "not all limits could be restored yet");
    assert_measured(2);
    assert_false(are_all_back());
    use_faults(""); /* the guard has not given up */
    assert_restored();
}

WORLD_TEST(an_energy_counter_that_restarts_spoils_its_window) {
    static const int steps[] = {14, 30, 49};
    /* Early in the window, the counter soon passes its first value again: the difference looks
     * right but is wrong. */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        train_with("", (planned_fault){"counter_restart_after=0", 275, steps[i]});
        assert_stopped("energy counter ran backwards", "measure again");
        assert_measured(1);
        assert_restored();
    }
}

WORLD_TEST_OF(a_lost_gpu_holds_up_no_other, three_v100) {
    train_with("", in_mid_window("lost_after=25@2"));
    assert_stopped("GPU 2 (Tesla V100", "NVML_ERROR_GPU_IS_LOST");
    WAIT_FOR(find_guard() < 0); /* it does not wait for the lost GPU */
    assert_true(is_back(0) && is_back(1));
}

WORLD_TEST(set_calls_of_200_ms_are_in_no_measurement) {
    harpe_power_limit_measurement quick[LIMITS];
    train_with("", (planned_fault){0});
    assert_done();
    memcpy(quick, training.rows, sizeof quick);
    train_with("slow_set=200", (planned_fault){0});
    assert_done();
    for (int i = 0; i < LIMITS; i++)
        assert_true(fabs(training.rows[i].time_s - quick[i].time_s) < 0.001);
}
