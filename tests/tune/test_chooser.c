/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser of `harpe tune` on programs in virtual time, whose laws and thus best settings are
 * known. */
#include "test.h"

#include "simulated_program.h"

static const int clocks[] = {1410, 1320, 1230, 1140, 1050, 960, 870, 780, 690, 600, 510};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static harpe_chooser *new_chooser(const harpe_chooser_options *options) {
    harpe_chooser *chooser = NULL;
    harpe_error error;
    if (harpe_chooser_new(options, &chooser, &error) != HARPE_OK) fail_msg("%s", error.message);
    return chooser;
}

static harpe_tune_report tune(program *of, double run_s) {
    harpe_chooser_options options = {
        .range[HARPE_TUNE_CLOCK] = {clocks, CLOCKS},
        .max_slowdown = 0.02,
    };
    harpe_chooser *chooser = new_chooser(&options);
    int current_mhz = clocks[0];
    draw_step(of);
    while (of->now_s < run_s)
        run_slice(of, chooser, &current_mhz, clocks[0]);
    harpe_tune_report report = harpe_chooser_report(chooser);
    harpe_chooser_free(chooser);
    return report;
}

static program steady_program(double knee, double share) {
    return (program){
        .random = 1,
        .phases = 1,
        .laws = {{.step_s = 0.1,
                  .power_w = 250,
                  .knee = knee,
                  .share = share,
                  .fixed = 0.4,
                  .exponent = 2,
                  .throttled = 1}},
        .noise = 0.01,
        .settle_s = 0.02,
        .tick_s = 0.1,
    };
}

static void program_that_computes_keeps_the_highest_clock(void **state) {
    (void)state;
    program of = steady_program(1, 1);
    harpe_tune_report report = tune(&of, 1200);
    assert_int_equal(report.phase, HARPE_TUNE_SETTLED);
    assert_int_equal(report.chosen.value[HARPE_TUNE_CLOCK], 1410);
    assert_true(report.is_noise);
    assert_true(of.worst_minute <= 0.025);
}

static void program_that_waits_gets_its_best_clock(void **state) {
    (void)state;
    for (int mhz = 600; mhz < 1400; mhz += 100) {
        program of = steady_program(mhz / 1410.0, 0.8);
        harpe_tune_report report = tune(&of, 1200);
        int chosen_mhz = report.chosen.value[HARPE_TUNE_CLOCK];
        int best_mhz = best_clock(&of.laws[0], clocks, CLOCKS, 0.02);
        assert_int_equal(report.phase, HARPE_TUNE_SETTLED);
        assert_true(law_time(&of.laws[0], chosen_mhz, 1410) <= 1.02);
        double regret =
            energy_ratio(&of.laws[0], chosen_mhz, 1410) - energy_ratio(&of.laws[0], best_mhz, 1410);
        if (regret > 0.01) fail_msg("knee %d MHz: %d, best %d MHz", mhz, chosen_mhz, best_mhz);
        assert_true(report.trials <= 5);
        assert_true(of.worst_minute <= 0.025);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_that_computes_keeps_the_highest_clock),
        cmocka_unit_test(program_that_waits_gets_its_best_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
