/* SPDX-License-Identifier: Apache-2.0 */
/* Perseus on a simulated pipeline that changes: which changes count as drift, how long Perseus
 * waits, and failures that must not end a job with a plan. */
#include "test.h"

#include "server/simulated_pipeline.h"

/* ---- Drift ----------------------------------------------------------------------------------- */

PLANNED_TEST(drift_is_noticed_and_planned_with, "{\"plans\": 8}") {
    double before_s = plan_number(s, 0, "time");
    s->noise = 0.002;
    s->time_factor = 1.1;
    one_round(s);
    assert_null(strstr(s->log, "drift")); /* a single round may be an accident */
    one_round(s);
    assert_logged(s, "drift: iterations take");
    assert_logged(s, "planned again");
    assert_true(is_in_phase(s, "plan"));
    assert_close(plan_number(s, 0, "time"), 1.1 * before_s, 0.005);
    char *end = s->log + strlen(s->log);
    some_rounds(s, 10);
    assert_null(strstr(end, "drift"));
}

PLANNED_TEST(one_strange_round_is_no_drift, "{\"plans\": 8}") {
    for (int i = 0; i < 6; i++) {
        s->time_factor = i % 2 ? 1.5 : 1;
        one_round(s);
    }
    assert_null(strstr(s->log, "drift"));
}

PLANNED_TEST(drift_of_energy_alone_counts_too, "{\"plans\": 8}") {
    s->energy_factor = 1.12;
    some_rounds(s, 2);
    assert_logged(s, "planned again");
}

PLANNED_TEST(large_drift_is_swept_again, "{\"plans\": 8, \"rounds_to_drift\": 3}") {
    s->time_factor = 1.4;
    for (int i = 0; i < 3; i++) {
        assert_true(is_in_phase(s, "plan"));
        one_round(s);
    }
    assert_true(is_in_phase(s, "sweep"));
    assert_logged(s, "measures again");
    rounds_until(s, "plan");
    assert_runs_offline_plan(s, 0.03);
}

PLANNED_TEST(drift_outside_of_the_instructions_is_explained_once, "{\"plans\": 8}") {
    double before_j = run_next(s)->energy_j;
    s->outside_time_s = 0.1 * s->ran.time_s;
    s->outside_energy_j = 0.1 * s->ran.energy_j;
    some_rounds(s, 10);
    const char *first = strstr(s->log, "drift: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "drift: "));
    assert_close(run_next(s)->energy_j, before_j, 1e-3);
}

/* ---- Back-off -------------------------------------------------------------------------------- */

static int times_logged(const simulated_pipeline *s, const char *part) {
    int times = 0;
    for (const char *at = s->log; (at = strstr(at, part)); at++)
        times++;
    return times;
}

PLANNED_TEST(a_gpu_that_is_slow_now_and_then_is_not_swept_for_ever,
             "{\"plans\": 8, \"frequency_stride\": 6}") {
    int swept = 0, rounds = all_trials() ? 480 : 100;
    for (int round = 0; round < rounds; round++) {
        s->time_factor = round % 24 < 12 ? 1.4 : 1;
        swept += is_in_phase(s, "sweep");
        one_round(s);
        if (round == 99) assert_true(swept <= 33);
    }
    printf("%d of %d rounds swept, %d sweeps, %d corrections\n", swept, rounds,
           times_logged(s, "measures again"), times_logged(s, "planned again"));
    assert_true(swept <= 60);
    assert_true(times_logged(s, "drift") <= 12);
}

PLANNED_TEST(noise_is_planned_with_less_and_less, "{\"plans\": 8, \"frequency_stride\": 4}") {
    s->noise = 0.08;
    some_rounds(s, 60);
    int early = times_logged(s, "drift: iterations");
    some_rounds(s, 240);
    int all = times_logged(s, "drift: iterations");
    printf("noise of 8 %%: %d corrections in 60 rounds, %d in 300\n", early, all);
    assert_true(early <= 5 && all <= early + 6);
}

PLANNED_TEST(back_off_decreases_again, "{\"plans\": 8}") {
    s->time_factor = 1.1;
    some_rounds(s, 2);
    assert_int_equal(times_logged(s, "planned again"), 1);
    s->time_factor = 1; /* takes twice as long */
    some_rounds(s, 3);
    assert_int_equal(times_logged(s, "planned again"), 1);
    one_round(s);
    assert_int_equal(times_logged(s, "planned again"), 2);
    for (int i = 0; i < 16 * 8 + 16 * 4; i++)
        one_round(s);
    s->time_factor = 1.1;
    some_rounds(s, 2);
    assert_int_equal(times_logged(s, "planned again"), 3);
}

/* ---- Failures that must not end a job -------------------------------------------------------- */

TEST(a_plan_that_cannot_be_made_leaves_the_old_one) {
    static const double nearly_too_much[] = {9e8, 9.2e8, 9.4e8, 9.6e8, 9.8e8, 9.9e8};
    simulated_pipeline *s = simulate(2, 1, 1, 4, profile_of(nearly_too_much, nearly_too_much, 6));
    start(s, "Perseus", "{\"num_microbatches\": 4}");
    rounds_until(s, "plan");
    double fastest_s = run_next(s)->time_s;
    s->time_factor = s->energy_factor = 1.08; /* the last energies are larger than accepted */
    some_rounds(s, 40);
    assert_logged(s, "continues with its present plan");
    assert_true(times_logged(s, "continues with its present plan") > 1); /* tried again */
    assert_true(times_logged(s, "continues with its present plan") < 6);
    assert_true(is_in_phase(s, "plan"));
    s->energy_factor = 0.93; /* now it can */
    some_rounds(s, 70);
    assert_logged(s, "planned again");
    assert_close(run_next(s)->time_s, fastest_s, 1e-9);
    simulated_free(s);
}

PLANNED_TEST(a_later_sweep_that_measures_nothing_leaves_the_old_plan,
             "{\"plans\": 8, \"num_microbatches\": 8}") {
    double fastest_s = plan_number(s, 0, "time");
    s->time_factor = 1.4;
    some_rounds(s, 2);
    assert_true(is_in_phase(s, "sweep"));
    for (int i = 0; i < 3; i++) {
        next(s);
        assert_true(s->schedules[0].is_trial);
        simulated_run(s);
        s->results[1] = (harpe_profiling_result){.rank = 1};
        must(s, observe(s));
    }
    assert_true(is_in_phase(s, "plan"));
    assert_logged(s, "continues with its present plan: rank 1 reported no time");
    assert_close(plan_number(s, 0, "time"), fastest_s, 1e-9);
}

/* ---- Steps of another size ------------------------------------------------------------------- */

PLANNED_TEST(steps_of_another_size_are_counted_anew, "{\"plans\": 8}") {
    for (int sweep = 0; sweep < 2; sweep++) { /* while a plan runs; in the middle of a sweep */
        if (sweep == 1) one_round(s);
        simulated_microbatches(s, sweep == 0 ? 12 : 16);
        some_rounds(s, 3);
        assert_true(is_in_phase(s, "sweep"));
        if (sweep == 0) {
            assert_logged(s, "counted 12 microbatches instead of 8");
            rounds_until(s, "plan");
            assert_runs_offline_plan(s, 0.01);
            for (int i = 0; i < 400; i++) /* until the next sweep is allowed */
                one_round(s);
        }
    }
    assert_logged(s, "counted 16 microbatches instead of 12");
}

SIMULATED_TEST(an_exploration_counts_anew_before_it_has_measured_anything, 2, 1, 1, 8) {
    start(s, "Perseus", "{\"learning\": \"explore\"}");
    one_round(s);
    simulated_microbatches(s, 12);
    some_rounds(s, 3);
    assert_logged(s, "counted 12 microbatches instead of 8");
}

PLANNED_TEST(steps_that_do_not_fit_the_number_that_was_given_are_told_once,
             "{\"plans\": 8, \"num_microbatches\": 8}") {
    simulated_microbatches(s, 12);
    some_rounds(s, 10);
    assert_int_equal(times_logged(s, "the plan does not fit what the ranks run: rank 0 ran "
                                     "'forward' 12 times in an iteration, but the schedule has it "
                                     "8 times (check num_microbatches and schedule)"),
                     1);
    assert_true(is_in_phase(s, "plan"));
}

int main(void) { return run_listed_tests(); }
