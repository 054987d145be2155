/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser of `harpe tune` on programs in virtual time, whose laws and thus best settings are
 * known. */
#include "test.h"

#include "simulated_program.h"
#include "tune/chooser.h"

static const int clocks[] = {1410, 1320, 1230, 1140, 1050, 960, 870, 780, 690, 600, 510};
static const int limits[] = {300, 275, 250, 225, 200, 175, 150, 125, 100};
enum { CLOCKS = sizeof clocks / sizeof *clocks, LIMITS = sizeof limits / sizeof *limits };

static harpe_chooser_options clock_options(void) {
    return (harpe_chooser_options){
        .range[HARPE_TUNE_CLOCK] = {clocks, CLOCKS},
        .max_slowdown = 0.02,
    };
}

static harpe_chooser *new_chooser(harpe_chooser_options options) {
    harpe_chooser *chooser = NULL;
    harpe_error error;
    if (harpe_chooser_new(&options, &chooser, &error) != HARPE_OK) fail_msg("%s", error.message);
    return chooser;
}

/* Runs until `end_s`. The program continues where it was. */
static harpe_tuning_report run_until(program *of, harpe_chooser *chooser, double end_s) {
    int current_mhz = clocks[0];
    if (of->steps == 0) draw_step(of);
    while (of->now_s < end_s)
        run_slice(of, chooser, &current_mhz, clocks[0]);
    harpe_tuning_report report = {.phase = HARPE_TUNING_WAITING};
    harpe_chooser_report(chooser, &report);
    return report;
}

static harpe_tuning_report tune(program *of, harpe_chooser_options options, double run_s) {
    harpe_chooser *chooser = new_chooser(options);
    harpe_tuning_report report = run_until(of, chooser, run_s);
    harpe_chooser_free(chooser);
    return report;
}

/* A program whose time rises below a clock, the knee, by a share of its work. */
static program steady_program(double knee_mhz, double share) {
    return (program){
        .random = 1,
        .phases = 1,
        .laws = {{.step_s = 0.1,
                  .power_w = 250,
                  .knee = knee_mhz / 1410,
                  .share = share,
                  .fixed = 0.4,
                  .exponent = 2,
                  .throttled = 1}},
        .noise = 0.01,
        .settle_s = 0.02,
        .tick_s = 0.1,
    };
}

static int chosen_clock(const harpe_tuning_report *report) { return report->clock_mhz; }

/* ---- One knob -------------------------------------------------------------------------------- */

TEST(program_that_computes_keeps_the_highest_clock) {
    program of = steady_program(1410, 1);
    harpe_tuning_report report = tune(&of, clock_options(), 1200);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_int_equal(chosen_clock(&report), 1410);
    assert_true(report.is_noise);
    assert_true(of.worst_minute <= 0.025);
}

TEST(program_that_waits_gets_its_best_clock) {
    for (int mhz = 600; mhz < 1400; mhz += 100) {
        program of = steady_program(mhz, 0.8);
        harpe_tuning_report report = tune(&of, clock_options(), 1200);
        const law *truth = &of.laws[0];
        int best_mhz = best_clock(truth, clocks, CLOCKS, 0.02);
        double saved = 1 - energy_ratio(truth, chosen_clock(&report), 1410);
        double slowdown = law_time(truth, chosen_clock(&report), 1410) - 1;
        assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
        assert_true(slowdown <= 0.02);
        if (saved < 1 - energy_ratio(truth, best_mhz, 1410) - 0.01)
            fail_msg("knee %d MHz: %d, best %d MHz", mhz, chosen_clock(&report), best_mhz);
        assert_true(report.trials <= 5);
        assert_true(of.worst_minute <= 0.025);
        /* The report says what is true, within its errors (twice 95 %). */
        /* What a counter of energy shows late is counted in the next slice. */
        assert_true(fabs(report.saved - saved) <= 2 * report.saved_error + 0.015);
        assert_true(fabs(report.slowdown - slowdown) <= 2 * report.slowdown_error);
        assert_true(fabs(of.energy_j / of.highest_total_j - report.used_j / report.highest_j) <
                    0.03);
    }
}

TEST(knob_without_a_choice_is_refused) {
    static const int rising[] = {510, 600};
    harpe_chooser *chooser = NULL;
    harpe_error error;
    harpe_chooser_options options = {.max_slowdown = 0.02};
    assert_int_equal(harpe_chooser_new(&options, &chooser, &error), HARPE_INVALID_ARGUMENT);
    options.range[HARPE_TUNE_CLOCK] = (harpe_tune_range){rising, 2};
    assert_int_equal(harpe_chooser_new(&options, &chooser, &error), HARPE_INVALID_ARGUMENT);
    options = clock_options();
    options.max_slowdown = 0;
    assert_int_equal(harpe_chooser_new(&options, &chooser, &error), HARPE_INVALID_ARGUMENT);
    options = clock_options();
    options.aim = HARPE_TUNING_COST;
    options.eta = 2;
    assert_int_equal(harpe_chooser_new(&options, &chooser, &error), HARPE_INVALID_ARGUMENT);
    assert_null(chooser);
}

TEST(two_clocks_are_enough) {
    static const int two[] = {1410, 1005};
    program of = steady_program(900, 0.8);
    harpe_chooser_options options = clock_options();
    options.range[HARPE_TUNE_CLOCK] = (harpe_tune_range){two, 2};
    harpe_tuning_report report = tune(&of, options, 600);
    assert_int_equal(chosen_clock(&report), 1005);
    assert_int_equal(report.trials, 1);
}

TEST(aim_decides_the_choice) {
    harpe_chooser_options options = clock_options();
    options.max_slowdown = INFINITY;
    options.aim = HARPE_TUNING_COST;
    options.highest_w = 300;
    program of = steady_program(1410, 0.7);
    options.eta = 0;
    harpe_tuning_report report = tune(&of, options, 3600);
    assert_int_equal(chosen_clock(&report), 1410);
    of = steady_program(1410, 0.7);
    options.eta = 1;
    report = tune(&of, options, 3600);
    int best_mhz = best_clock(&of.laws[0], clocks, CLOCKS, INFINITY);
    assert_true(chosen_clock(&report) < 1410);
    assert_true(energy_ratio(&of.laws[0], chosen_clock(&report), 1410) <=
                energy_ratio(&of.laws[0], best_mhz, 1410) + 0.01);
    options.aim = HARPE_TUNING_TIME;
    of = steady_program(1410, 0.7);
    report = tune(&of, options, 3600);
    assert_int_equal(chosen_clock(&report), 1410);
}

/* ---- Two knobs ------------------------------------------------------------------------------- */

TEST(limit_is_searched_below_the_power_that_is_drawn) {
    program of = steady_program(900, 0.8);
    harpe_chooser_options options = {
        .range[HARPE_TUNE_LIMIT] = {limits, LIMITS},
        .max_slowdown = 0.02,
    };
    harpe_tuning_report report = tune(&of, options, 3600);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_int_equal(chosen_clock(&report), 0); /* stays as it was found */
    int limit_w = report.limit_w;
    int mhz = limited_clock(&of.laws[0], 1410, 1410, limit_w);
    assert_true(limit_w < 250 && law_time(&of.laws[0], mhz, 1410) <= 1.02);
    assert_true(report.saved > 0.2);
}

TEST(two_knobs_take_at_most_8_trials) {
    program of = steady_program(1000, 0.8);
    harpe_chooser_options options = clock_options();
    options.range[HARPE_TUNE_LIMIT] = (harpe_tune_range){limits, LIMITS};
    harpe_tuning_report report = tune(&of, options, 3600);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_true(report.trials <= 8);
    assert_true(chosen_clock(&report) < 1410);
    assert_true(report.slowdown <= 0.02);
}

/* ---- A saved choice -------------------------------------------------------------------------- */

TEST(saved_choice_is_checked_and_not_searched) {
    program of = steady_program(900, 0.8);
    harpe_chooser_options options = clock_options();
    harpe_chooser *chooser = new_chooser(options);
    assert_true(harpe_chooser_save(chooser).time_ratio == 0);
    harpe_tuning_report first = run_until(&of, chooser, 1200);
    options.saved = harpe_chooser_save(chooser);
    harpe_chooser_free(chooser);
    of = steady_program(900, 0.8);
    harpe_tuning_report second = tune(&of, options, 300);
    assert_int_equal(second.phase, HARPE_TUNING_SETTLED);
    assert_int_equal(second.trials, 1);
    assert_int_equal(chosen_clock(&second), chosen_clock(&first));
}

TEST(saved_choice_that_is_wrong_leads_to_a_search) {
    harpe_chooser_options options = clock_options();
    options.saved = (harpe_tune_saved){{{510}}, 1.0, 0.5};
    program of = steady_program(1100, 0.8);
    harpe_tuning_report report = tune(&of, options, 1200);
    assert_true(report.trials > 1);
    assert_true(law_time(&of.laws[0], chosen_clock(&report), 1410) <= 1.02);
    assert_true(of.worst_minute <= 0.025);
    options.saved.setting.value[HARPE_TUNE_CLOCK] = 1000; /* not in the range */
    of = steady_program(1100, 0.8);
    report = tune(&of, options, 1200);
    assert_true(report.trials > 1 && chosen_clock(&report) < 1410);
    options.saved = (harpe_tune_saved){{{1410}}, 1, 1}; /* the highest: there is nothing to check */
    of = steady_program(1100, 0.8);
    report = tune(&of, options, 1200);
    assert_true(report.trials > 0 && chosen_clock(&report) < 1410);
}

TEST(saved_value_of_a_knob_that_is_not_tuned_is_left_out) {
    harpe_chooser_options options = {
        .range[HARPE_TUNE_LIMIT] = {limits, LIMITS},
        .max_slowdown = 0.02,
        .saved = {{{900, 200}}, 1.0, 0.644},
    };
    program of = steady_program(900, 0.8);
    harpe_tuning_report report = tune(&of, options, 1200);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_int_equal(chosen_clock(&report), 0);
    assert_true(report.slowest_minute >= 0 && of.worst_minute <= report.slowest_minute + 0.002);
}

/* One step at the saved clock could lose more than a minute may lose. */
TEST(saved_choice_that_is_never_allowed_is_given_up) {
    harpe_chooser_options options = clock_options();
    options.saved = (harpe_tune_saved){{{870}}, 1.0, 0.79}; /* as the first clock that is tried */
    program of = steady_program(900, 0.8);
    of.laws[0].step_s = 4;
    harpe_tuning_report report = tune(&of, options, 7200);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_true(report.trials > 1 && chosen_clock(&report) < 1140);
    assert_true(of.worst_minute <= 0.025);
}

/* ---- GPUs and programs that do not do what is expected --------------------------------------- */

TEST(gpu_that_ignores_clocks_keeps_the_highest) {
    program of = steady_program(600, 0.8);
    of.ignores = true;
    harpe_tuning_report report = tune(&of, clock_options(), 1200);
    assert_true(chosen_clock(&report) == 1410 || fabs(report.saved) < 0.01);
}

static bool is_as_found(const harpe_tune_order *order) {
    return order->setting.value[HARPE_TUNE_CLOCK] == 0 &&
           order->setting.value[HARPE_TUNE_LIMIT] == 0;
}

TEST(work_that_cannot_be_counted_changes_nothing) {
    harpe_chooser *chooser = new_chooser(clock_options());
    for (int i = 0; i < 100; i++) {
        harpe_tune_order order = harpe_chooser_next(chooser);
        assert_true(is_as_found(&order) || order.setting.value[HARPE_TUNE_CLOCK] == 1410);
        harpe_chooser_drop(chooser, "a reason");
    }
    harpe_tuning_report report;
    harpe_chooser_report(chooser, &report);
    harpe_tune_order order = harpe_chooser_next(chooser);
    assert_int_equal(report.phase, HARPE_TUNING_UNMEASURABLE);
    assert_string_equal(report.reason, "a reason");
    assert_true(is_as_found(&order));
    harpe_chooser_free(chooser);
}

TEST(rate_without_a_mean_changes_nothing) {
    program random = {.random = 5};
    harpe_chooser *chooser = new_chooser(clock_options());
    for (int i = 0; i < 400; i++) {
        harpe_tune_order order = harpe_chooser_next(chooser);
        assert_true(is_as_found(&order) || order.setting.value[HARPE_TUNE_CLOCK] == 1410);
        double work = 1e6 * order.time_s * exp(2 * random_normal(&random));
        harpe_tune_slice slice = {
            .work = work, .time_s = order.time_s, .energy_j = 200, .grain = 1};
        harpe_chooser_take(chooser, &slice);
    }
    harpe_tuning_report report;
    harpe_chooser_report(chooser, &report);
    assert_int_equal(report.phase, HARPE_TUNING_UNMEASURABLE);
    harpe_chooser_free(chooser);
}

TEST(pauses_end_no_search) {
    program of = steady_program(900, 0.8);
    harpe_chooser *chooser = new_chooser(clock_options());
    run_until(&of, chooser, 10);
    for (int i = 0; i < 1000; i++)
        harpe_chooser_drop(chooser, "a reason");
    harpe_tuning_report report = run_until(&of, chooser, 1200);
    assert_int_equal(report.phase, HARPE_TUNING_SETTLED);
    assert_true(chosen_clock(&report) <= 960);
    harpe_chooser_free(chooser);
}

TEST(stalls_and_slow_drift_are_no_phases) {
    program stalled = steady_program(900, 0.8), drifting = stalled;
    stalled.stall_share = 1.0 / 300;
    stalled.stall_s = 3;
    drifting.drift = 0.15;
    drifting.drift_s = 1800;
    harpe_tuning_report reports[] = {tune(&stalled, clock_options(), 3600),
                                     tune(&drifting, clock_options(), 5400)};
    for (int i = 0; i < 2; i++) {
        assert_true(chosen_clock(&reports[i]) <= 960);
        assert_int_equal(reports[i].program_phases, 1);
    }
}

/* Some steps take three times as long, so that one slice of a trial is much slower. */
TEST(rare_slow_steps_hide_no_saving) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        program of = steady_program(900, 0.8);
        of.random = seed;
        of.stall_share = 1.0 / 100;
        of.stall_s = 0.3;
        tune(&of, clock_options(), 2400);
        assert_true(of.energy_j < 0.85 * of.highest_total_j);
        assert_true(of.worst_minute <= 0.025);
    }
}

/* A page of metrics is read three times a second, and near the end of a slice more often. Steps end
 * between the polls, which must not look like a slow setting. */
TEST(steps_that_polls_see_late_hide_no_saving) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        program of = steady_program(1410, 0.2);
        of.random = seed;
        of.laws[0].step_s = 0.2;
        of.noise = 0;
        of.poll_s = 0.3;
        of.close_s = 0.02;
        harpe_tuning_report report = tune(&of, clock_options(), 1200);
        if (chosen_clock(&report) != 1320)
            fail_msg("seed %d: %d MHz", (int)seed, chosen_clock(&report));
        assert_true(of.worst_minute <= 0.025);
    }
}

/* ---- Phases ---------------------------------------------------------------------------------- */

TEST(each_phase_gets_its_clock) {
    program of = steady_program(1410, 1);
    of.phases = 2;
    of.phase_s = 60;
    of.laws[1] = of.laws[0];
    of.laws[1].knee = 900.0 / 1410;
    of.laws[1].step_s = 0.07;
    of.laws[1].power_w = 180;
    harpe_chooser *chooser = new_chooser(clock_options());
    harpe_tuning_report second = run_until(&of, chooser, 7200 - 5);
    harpe_tuning_report first = run_until(&of, chooser, 7260 - 5);
    assert_int_equal(first.program_phases, 2);
    assert_int_equal(chosen_clock(&first), 1410);
    assert_true(chosen_clock(&second) <= 960);
    assert_true(of.worst_minute <= 0.025);
    harpe_chooser_free(chooser);
}

/* At the change to the other phase, the clock of this one loses time before it is noticed. */
TEST(short_phases_do_not_slow_minutes_down) {
    program of = steady_program(1410, 1);
    of.phases = 2;
    of.phase_s = 15;
    of.laws[1] = of.laws[0];
    of.laws[1].knee = 550.0 / 1410;
    of.laws[1].step_s = 0.06;
    tune(&of, clock_options(), 3600);
    assert_true(of.worst_minute <= 0.03);
}

TEST(program_that_gets_slower_at_its_clock_is_searched_again) {
    program of = steady_program(900, 0.8);
    harpe_chooser *chooser = new_chooser(clock_options());
    harpe_tuning_report report = run_until(&of, chooser, 1200);
    assert_true(chosen_clock(&report) <= 960);
    of.laws[0].knee = 1;
    of.laws[0].share = 1;
    report = run_until(&of, chooser, 1230);
    assert_true(report.phase != HARPE_TUNING_SETTLED || chosen_clock(&report) > 1300);
    report = run_until(&of, chooser, 3600);
    assert_true(law_time(&of.laws[0], chosen_clock(&report), 1410) <= 1.02);
    harpe_chooser_free(chooser);
}

/* ---- Random programs ------------------------------------------------------------------------- */

TEST(random_programs_are_not_slowed_down) {
    int trials = few_trials(100), slow_choices = 0, slow_minutes = 0, untold_minutes = 0;
    for (int i = 0; i < trials; i++) {
        program of = random_program((uint64_t)i + 1, 0);
        if (of.phases > 1) of.phases = 1;
        harpe_tuning_report report =
            tune(&of, clock_options(), fmax(1200, 300 * of.laws[0].step_s));
        assert_true(report.trials <= 5);
        slow_choices += law_time(&of.laws[0], chosen_clock(&report), 1410) > 1.02;
        slow_minutes += of.worst_minute > 0.025;
        untold_minutes += of.worst_minute > report.slowest_minute + 0.002;
    }
    assert_true(untold_minutes * 50 <= trials);
    assert_true(slow_choices * 100 <= trials);
    assert_true(slow_minutes * 50 <= trials);
}

TEST(same_slices_give_the_same_choice) {
    program first = random_program(3, 0), second = random_program(3, 0);
    harpe_tuning_report a = tune(&first, clock_options(), 900),
                        b = tune(&second, clock_options(), 900);
    assert_memory_equal(&a, &b, offsetof(harpe_tuning_report, guess_low));
    assert_true(first.energy_j == second.energy_j);
}

TEST(guess_depends_on_the_power) {
    harpe_tune_guess limited = harpe_tune_guess_saving(0.97);
    harpe_tune_guess waiting = harpe_tune_guess_saving(0.5);
    assert_true(limited.saved < 0.03 && waiting.saved > 0.2);
    assert_true(limited.low <= limited.saved && limited.saved <= limited.high);
    assert_true(waiting.low <= waiting.saved && waiting.saved <= waiting.high);
}
