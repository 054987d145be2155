/* SPDX-License-Identifier: Apache-2.0 */
/* Perseus on a simulated pipeline: from the first round to the offline plan, and the effect of job
 * requests. */
#include "test.h"

#include "server/simulated_pipeline.h"

/* ---- From the first round to a plan ---------------------------------------------------------- */

/* `data` and `tensor`: its ranks of each stage. A pipeline of one stage never waits. */
TEST(converges_to_the_offline_plan) {
    const struct {
        int stages, data, tensor;
        double noise;
        const char *args;
    } jobs[] = {{all_trials() ? 8 : 3, 1, 1, 0, "{\"plans\": 8}"},
                {all_trials() ? 8 : 4, 1, 1, 0.005, "{\"plans\": 8}"},
                {4, 2, 2, 0.005, "{}"},
                {4, 1, 1, 0, "{\"frequency_stride\": 2, \"blocking_power\": 84}"},
                {1, 1, 1, 0.005, "{}"}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        simulated_pipeline *s =
            simulate(jobs[i].stages, jobs[i].data, jobs[i].tensor, all_trials() ? 12 : 4, NULL);
        s->noise = jobs[i].noise;
        start(s, "Perseus", jobs[i].args);
        int rounds = rounds_until(s, "plan");
        const harpe_plan *ran = run_next(s);
        harpe_plan offline = offline_plan(s);
        printf("job %zu: %d rounds; time %+.3f %%, energy %+.3f %% of the offline plan\n%s", i,
               rounds, 100 * (ran->time_s / offline.time_s - 1),
               100 * (ran->energy_j / offline.energy_j - 1), s->log);
        assert_close(ran->time_s, offline.time_s, 0.01);
        assert_close(ran->energy_j, offline.energy_j, 0.01);
        assert_logged(s, "sweep finished");
        assert_logged(s, "planned: iterations of");
        /* The job stays at this plan. */
        some_rounds(s, 20);
        assert_true(is_in_phase(s, "plan"));
        assert_null(strstr(s->log, "drift"));
        simulated_free(s);
    }
}

SIMULATED_TEST(microbatches_are_counted_in_a_first_round_without_schedule, 4, 1, 1, 10) {
    start(s, "Perseus", "{}");
    next(s);
    for (int r = 0; r < 4; r++)
        assert_int_equal(s->schedules[r].instruction_count, 0);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.1); /* requested again before the first results */
    one_round(s);
    next(s);
    for (int r = 0; r < 4; r++)
        assert_int_equal(s->schedules[r].instruction_count, 20);
    assert_logged(s, "counted 10 microbatches");
}

SIMULATED_TEST(what_lies_outside_of_the_pipeline_is_no_drift, 4, 1, 1, 8) {
    harpe_plan all = simulated_highest(s, s->problem);
    s->outside_time_s = 0.2 * all.time_s;
    s->outside_energy_j = 0.1 * all.energy_j;
    start(s, "Perseus", "{\"num_microbatches\": 8, \"blocking_power\": 84, \"plans\": 40}");
    rounds_until(s, "plan");
    some_rounds(s, 10);
    assert_null(strstr(s->log, "drift"));
    assert_runs_offline_plan(s, 0.01);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.05); /* of the whole iteration */
    double allowed_s = 1.05 * (plan_number(s, 0, "time") + s->outside_time_s) - s->outside_time_s;
    double time_s = run_next(s)->time_s;
    assert_close(time_s, slowest_within(s, allowed_s), 1e-6);
    assert_true(time_s > slowest_within(s, 1.05 * plan_number(s, 0, "time")));
}

/* Returns the least energy of one clock for all GPUs within a time, by evaluating each clock. */
static double least_with_one_clock_j(const simulated_pipeline *s, double most_s) {
    size_t count = harpe_problem_instruction_count(s->problem);
    int *clocks = calloc(count, sizeof *clocks);
    double least_j = INFINITY;
    for (int mhz = 1; mhz <= 3000; mhz++) {
        harpe_plan plan;
        for (size_t i = 0; i < count; i++)
            clocks[i] = mhz;
        if (harpe_plan_evaluate(s->problem, clocks, &plan, NULL, NULL) == HARPE_OK &&
            plan.time_s <= most_s)
            least_j = fmin(least_j, plan.energy_j);
    }
    free(clocks);
    return least_j;
}

SIMULATED_TEST(a_plan_is_shown_beside_the_best_single_clock, 4, 1, 1, 8) {
    start(s, "Perseus",
          "{\"num_microbatches\": 8, \"blocking_power\": 84, \"plans\": 8, \"slowdown\": 1.2}");
    rounds_until(s, "plan");
    run_next(s);
    must(s, observe(s));
    harpe_figures figures;
    assert_true(harpe_scheduler_figures(s->scheduler, &figures));
    harpe_plan all = simulated_highest(s, s->problem);
    assert_close(figures.highest_energy_j, all.energy_j, 1e-6);
    assert_true(figures.plan_time_s > 1.1 * all.time_s);
    assert_true(figures.one_clock_time_s <= figures.plan_time_s);
    assert_true(figures.one_clock_mhz > 0);
    assert_close(figures.one_clock_energy_j, least_with_one_clock_j(s, figures.plan_time_s), 1e-6);
    json_t *json = frontier(s);
    const json_t *list = json_object_get(json, "one_clock");
    double least_j = INFINITY;
    for (size_t i = 0; i < json_array_size(list); i++)
        least_j =
            fmin(least_j, json_number_value(json_object_get(json_array_get(list, i), "energy")));
    assert_close(least_j, least_with_one_clock_j(s, INFINITY), 1e-6);
    json_decref(json);
}

/* ---- The sweep ------------------------------------------------------------------------------- */

static const double RISES_EARLY[] = {900, 800, 700, 750, 760, 770, 780, 790, 800, 810, 820, 830};
static const double FALLS_IN_BETWEEN[] = {900, 800, 810, 820, 830, 840,
                                          835, 845, 855, 865, 875, 885};

static int frequency_of(const simulated_pipeline *s, int rank, const char *instruction) {
    for (size_t i = 0; i < s->schedules[rank].instruction_count; i++) {
        const harpe_scheduled_instruction *entry = &s->schedules[rank].instructions[i];
        if (strcmp(entry->instruction, instruction) == 0) return entry->frequency_mhz;
    }
    return -1;
}

TEST(the_sweep_stops_after_five_rises_in_a_row) {
    simulated_pipeline *s = simulate(2, 1, 1, 4, profile_of(RISES_EARLY, FALLS_IN_BETWEEN, 12));
    start(s, "Perseus", "{\"num_microbatches\": 4, \"schedule\": \"1f1b\"}");
    /* forward: lowest at the third frequency, five more; backward: four rises, a fall, five. */
    for (int round = 0; round < 12; round++) {
        one_round(s);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(frequency_of(s, rank, "forward"),
                             round < 8 ? 1500 - 100 * round : 1500);
            assert_int_equal(frequency_of(s, rank, "backward"), 1500 - 100 * round);
            assert_true(s->schedules[rank].is_trial);
        }
    }
    run_next(s); /* all instructions at their highest clock during planning */
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(frequency_of(s, rank, "forward"), 1500);
        assert_int_equal(frequency_of(s, rank, "backward"), 1500);
    }
    must(s, observe(s));
    assert_true(is_in_phase(s, "plan"));
    next(s);
    assert_false(s->schedules[0].is_trial || s->schedules[1].is_trial);
    harpe_profile *written = written_profile(s);
    for (int stage = 0; stage < 2; stage++) {
        assert_int_equal(harpe_profile_find(written, stage, "forward")->point_count, 8);
        assert_int_equal(harpe_profile_find(written, stage, "backward")->point_count, 12);
    }
    harpe_profile_free(written);
    simulated_free(s);
}

TEST(the_sweep_ends_when_all_have_stopped) {
    simulated_pipeline *s = simulate(2, 1, 1, 4, profile_of(RISES_EARLY, RISES_EARLY, 12));
    start(s, "Perseus", "{\"num_microbatches\": 4, \"rises_to_stop\": 2}");
    assert_int_equal(rounds_until(s, "plan"), 5 + 1);
    simulated_free(s);
}

TEST(the_sweep_reports_its_cost) {
    simulated_pipeline *s = simulate(2, 1, 1, 4, profile_of(RISES_EARLY, FALLS_IN_BETWEEN, 12));
    double first_s = 0, first_j = 0, time_s = 0, energy_j = 0;
    start(s, "Perseus", "{\"num_microbatches\": 4}");
    for (int round = 0; round < 12; round++) {
        one_round(s);
        if (round == 0) {
            first_s = s->ran.time_s;
            first_j = s->ran.energy_j;
        }
        time_s += SIMULATED_ITERATIONS * (s->ran.time_s - first_s);
        energy_j += SIMULATED_ITERATIONS * (s->ran.energy_j - first_j);
    }
    one_round(s);
    json_t *json = frontier(s);
    const json_t *sweep = json_object_get(json, "sweep");
    assert_int_equal(json_integer_value(json_object_get(sweep, "rounds")), 12);
    assert_int_equal(json_integer_value(json_object_get(sweep, "iterations")),
                     12 * SIMULATED_ITERATIONS);
    assert_close(json_number_value(json_object_get(sweep, "extra_time")), time_s, 1e-9);
    assert_close(json_number_value(json_object_get(sweep, "extra_energy")), energy_j, 1e-9);
    assert_close(json_number_value(json_object_get(json, "blocking_power")), 80, 1e-6);
    json_decref(json);
    simulated_free(s);
}

/* ---- Job requests ---------------------------------------------------------------------------- */

PLANNED_TEST(the_very_next_schedule_answers_a_straggler, "{\"plans\": 8}") {
    double fastest_s = plan_number(s, 0, "time"), slowest_s = plan_number(s, -1, "time");
    simulated_run(s);
    assert_close(s->ran.time_s, fastest_s, 1e-9);
    for (double slowdown = 1.02; slowdown < 1.5; slowdown += 0.06) {
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, slowdown); /* while the round runs */
        s->straggler_time_s = slowdown * fastest_s;
        must(s, observe(s));
        run_next(s);
        assert_close(s->ran.time_s, slowest_within(s, fmin(slowest_s, slowdown * fastest_s)), 1e-9);
        some_rounds(s, 5); /* its waiting is not drift */
    }
    assert_null(strstr(s->log, "drift"));
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.2); /* and 1.0 ends it, between two rounds */
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.0);
    s->straggler_time_s = 0;
    assert_close(run_next(s)->time_s, fastest_s, 1e-9);
}

/* The job's own stage is slow: Perseus detects drift and corrects it before anyone reports it. */
PLANNED_TEST(a_straggler_that_was_corrected_before_it_was_told_is_answered_as_well,
             "{\"plans\": 8}") {
    double fastest_s = plan_number(s, 0, "time");
    int slowest = 0;
    for (int stage = 1; stage < 4; stage++)
        if (simulated_point(s, stage, "forward", 0)->time_s >
            simulated_point(s, slowest, "forward", 0)->time_s)
            slowest = stage;
    simulated_throttle(s, slowest, 1.15);
    some_rounds(s, 4);
    assert_logged(s, "planned again");
    assert_true(plan_number(s, 0, "time") > 1.05 * fastest_s);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.15);
    for (int i = 0; i < 12; i++) {
        one_round(s);
        assert_true(s->ran.time_s < 1.16 * fastest_s);
    }
    next(s);
    simulated_run(s);
    simulated_throttle(s, slowest, 1);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN,
            1); /* while a round runs that uses none of the new plans */
    must(s, observe(s));
    const char *end = s->log + strlen(s->log);
    for (int i = 0; i < 12; i++) {
        one_round(s);
        assert_close(s->ran.time_s, fastest_s, 1e-9);
    }
    assert_null(strstr(end, "drift"));
}

/* The stage is so slow that it is swept again, with the straggler. */
PLANNED_TEST(a_straggler_that_was_swept_before_it_was_told_is_answered_as_well, "{\"plans\": 8}") {
    double fastest_s = plan_number(s, 0, "time");
    for (int stage = 0; stage < 4; stage++)
        simulated_throttle(s, stage, 1.3);
    some_rounds(s, 2);
    assert_true(is_in_phase(s, "sweep"));
    rounds_until(s, "plan");
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.3);
    assert_close(run_next(s)->time_s, 1.3 * fastest_s, 0.01);
}

PLANNED_TEST(a_straggler_that_was_there_before_it_was_told_is_answered_as_well, "{\"plans\": 8}") {
    double fastest_s = plan_number(s, 0, "time");
    s->straggler_time_s = 1.1 * fastest_s;
    some_rounds(s, 4);
    assert_logged(s, "drift");
    const char *end = s->log + strlen(s->log);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.1);
    assert_close(run_next(s)->time_s, slowest_within(s, 1.1 * fastest_s), 1e-9);
    some_rounds(s, 6);
    assert_null(strstr(end, "drift"));
}

PLANNED_TEST(a_straggler_can_be_told_in_seconds, "{\"plans\": 8}") {
    double fastest_s = plan_number(s, 0, "time");
    ask_for(s, HARPE_JOB_REQUEST_ITERATION_TIME, 1.07 * fastest_s);
    assert_close(run_next(s)->time_s, slowest_within(s, 1.07 * fastest_s), 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_ITERATION_TIME, 0.5 * fastest_s);
    assert_close(run_next(s)->time_s, fastest_s, 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.03); /* the last request counts */
    assert_close(run_next(s)->time_s, slowest_within(s, 1.03 * fastest_s), 1e-9);
}

PLANNED_TEST(a_power_cap_gets_the_fastest_plan_within, "{\"plans\": 8}") {
    double fastest_w = plan_number(s, 0, "energy") / plan_number(s, 0, "time");
    double slowest_w = plan_number(s, -1, "energy") / plan_number(s, -1, "time");
    double cap_w = 0.6 * fastest_w + 0.4 * slowest_w;
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, cap_w);
    double time_s = run_next(s)->time_s;
    assert_true(s->ran.energy_j / s->ran.time_s <= cap_w);
    double faster_s = slowest_within(s, time_s * (1 - 1e-6));
    for (int i = 0; plan_number(s, i, "time") <= faster_s; i++)
        assert_true(plan_number(s, i, "energy") / plan_number(s, i, "time") > cap_w);
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP,
            1); /* no plan satisfies it: the plan with the least power */
    assert_close(run_next(s)->time_s, plan_number(s, -1, "time"), 1e-9);
    assert_logged(s, "no plan's average power is within");
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 0);
    assert_close(run_next(s)->time_s, plan_number(s, 0, "time"), 1e-9);
}

SIMULATED_TEST(a_power_cap_counts_what_lies_outside_of_the_pipeline, 4, 1, 1, 8) {
    s->outside_time_s = 0.5;
    s->outside_energy_j = 3000;
    start(s, "Perseus", "{\"plans\": 8, \"blocking_power\": 84}");
    rounds_until(s, "plan");
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 1);
    char says[128];
    json_t *json = frontier(s);
    const json_t *outside = json_object_get(json, "outside");
    (void)snprintf(
        says, sizeof says, "within the cap of 1 W: the chosen plan needs %.4g W",
        (plan_number(s, -1, "energy") + json_number_value(json_array_get(outside, 1))) /
            (plan_number(s, -1, "time") + json_number_value(json_array_get(outside, 0))));
    json_decref(json);
    assert_logged(s, says);
}

PLANNED_TEST(a_plan_can_be_asked_for_by_its_time, "{\"plans\": 8, \"slowdown\": 1.05}") {
    double fastest_s = plan_number(s, 0, "time");
    assert_close(run_next(s)->time_s, slowest_within(s, 1.05 * fastest_s), 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_PLAN_TIME, 1.02 * fastest_s);
    assert_close(run_next(s)->time_s, slowest_within(s, 1.02 * fastest_s), 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.08); /* the later of the two */
    assert_close(run_next(s)->time_s, slowest_within(s, 1.08 * fastest_s), 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1);
    ask_for(s, HARPE_JOB_REQUEST_PLAN_TIME, 0.01);
    assert_close(run_next(s)->time_s, fastest_s, 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_PLAN_TIME, 0); /* as if it had never been requested */
    assert_close(run_next(s)->time_s, slowest_within(s, 1.05 * fastest_s), 1e-9);
}

SIMULATED_TEST(job_requests_during_the_sweep_are_remembered, 4, 1, 1, 8) {
    start(s, "Perseus", "{\"num_microbatches\": 8, \"plans\": 8}");
    one_round(s);
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.06);
    rounds_until(s, "plan");
    run_next(s);
    assert_close(s->ran.time_s, slowest_within(s, 1.06 * plan_number(s, 0, "time")), 1e-9);
}

PLANNED_TEST(job_requests_that_make_no_sense_are_refused, "{\"plans\": 8}") {
    double before_s = run_next(s)->time_s;
    const double bad[] = {0.99, 0, -1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_request(s, HARPE_JOB_REQUEST_SLOWDOWN, bad[i], HARPE_INVALID_ARGUMENT);
    assert_request(s, HARPE_JOB_REQUEST_POWER_CAP, -1, HARPE_INVALID_ARGUMENT);
    assert_close(run_next(s)->time_s, before_s, 1e-12);
}

int main(void) { return run_listed_tests(); }
