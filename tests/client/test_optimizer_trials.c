/* SPDX-License-Identifier: Apache-2.0 */
/* Trial schedules of a server, and requests that it holds for too long: a stand-in server that the
 * test controls, and an optimizer with short time limits. */
#include "client/told_server.h"

#define LEFT "only tried its clocks, back to the highest ones"
#define TRIAL_MHZ 900

/* ---- Trials ---------------------------------------------------------------------------------- */

/* Returns a rank that runs a trial. */
static training *start_in_trial(told_server *one, const harpe_pipeline_timeouts *timeouts) {
    *one = (told_server){.schedule_status = 200};
    training *rank = start_at(one, timeouts);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    return rank;
}

WORLD_TEST(a_trial_ends_without_a_server_and_begins_again_with_one) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    stop_told(&one);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(count_lines(rank, LEFT), 1);
    assert_trains_on(rank);
    assert_int_equal(clock_mhz(0), HIGHEST_MHZ);
    start_told(&one);
    WAIT_UNTIL(rank, clock_mhz(0) == TRIAL_MHZ);
    WAIT_UNTIL(rank, one.results > 2);
    assert_int_equal(count_lines(rank, LEFT), 1);
    /* log lines: the server is away, the trial has ended */
    assert_int_equal(count_warnings(rank), 2);
    end_at(&one, rank);
}

WORLD_TEST(a_trial_ends_when_the_server_fails_or_refuses) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    static const int statuses[] = {500, 422, 401};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        told_server one;
        training *rank = start_in_trial(&one, &timeouts);
        one.schedule_status = statuses[i];
        WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
        WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
        end_at(&one, rank);
    }
}

WORLD_TEST(a_trial_ends_when_no_other_round_comes) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = 0.5;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    one.schedule_status = 0;
    WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    end_at(&one, rank);
}

/* Instructions that never end give no measurements, but they fit the schedule. */
static void run_unmeasurable_step(training *one) {
    harpe_pipeline_frequency_on_step_begin(one->optimizer);
    for (int i = 0; i < 4; i++)
        harpe_pipeline_frequency_on_instruction_begin(one->optimizer, step_of_4[i]);
    harpe_pipeline_frequency_on_step_end(one->optimizer);
}

WORLD_TEST(a_trial_that_cannot_be_measured_ends_with_an_empty_result) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = 0.5;
    told_server one = {.schedule_status = 200};
    training *rank = construct_at(&one, &timeouts);
    assert_reaches_round(rank, 0);
    one.schedule_status = 0;
    WAIT_UNTIL(rank, (run_unmeasurable_step(rank), one.results == 1));
    assert_int_equal(count_lines(rank, LEFT), 1);
    harpe_profiling_result result = {0};
    assert_works(harpe_profiling_result_parse(one.result, strlen(one.result), &result, &failure));
    assert_int_equal(result.iteration_time_count, 0);
    assert_int_equal(result.time_breakdown_count, 0);
    harpe_profiling_result_free(&result);
    end_at(&one, rank);
}

WORLD_TEST(steps_that_are_measured_slowly_keep_a_trial) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_stagnant_s = 0.8;
    told_server one = {.schedule_status = 200};
    training *rank = construct_at(&one, &timeouts);
    assert_reaches_round(rank, 0);
    for (int i = 0; i < 2; i++) {
        run_step(rank, step_of_4, 4);
        pause_s(0.55 * 0.8); /* too short once, and too long twice */
    }
    assert_int_equal(count_lines(rank, LEFT), 0);
    end_at(&one, rank);
}

/* ---- Held ------------------------------------------------------------------------------------ */

WORLD_TEST(a_request_that_is_held_for_too_long_is_asked_again) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.held_s = 0.3;
    told_server one = {.schedule_status = 0};
    training *rank = start_at(&one, &timeouts);
    WAIT_UNTIL(rank, one.schedules >= 3);
    assert_int_equal(look(rank).state, HARPE_PFO_WAITING);
    one.schedule_status = 200;
    assert_reaches_round(rank, 3);
    assert_int_equal(look(rank).reconnects, 0);
    assert_int_equal(count_warnings(rank), 0);
    end_at(&one, rank);
}

/* ---- Requests that contradict what the server knows ------------------------------------------ */

#define REPLACED "the server does not accept the request for a schedule"

/* Two processes that are the same rank of the same job replace each other's requests without end.
 * After a lost connection, a request may also be replaced by the next request of the same process.
 */
WORLD_TEST(requests_that_are_refused_again_and_again_are_told_once) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    for (int conflicts = 1; conflicts <= 7; conflicts++) {
        told_server one = {.schedule_status = 200, .conflicts = conflicts};
        training *rank = start_at(&one, &timeouts);
        assert_reaches_round(rank, 0);
        int told = conflicts >= 3;
        assert_int_equal(count_lines(rank, REPLACED), told);
        assert_int_equal(count_lines(rank, "rank 0 asked again"), told);
        assert_int_equal(count_warnings(rank), told);
        assert_trains_on(rank);
        one.conflicts = 2; /* not repeatedly: a schedule arrived in between */
        int64_t round = look(rank).round;
        WAIT_UNTIL(rank, one.conflicts == 0);
        assert_reaches_round(rank, round + 2);
        assert_int_equal(count_warnings(rank), told);
        end_at(&one, rank);
    }
}

/* ---- No memory ------------------------------------------------------------------------------- */

harpe_followed_schedule *__real_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);
harpe_followed_schedule *__wrap_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);

static atomic_bool has_no_memory;
static atomic_int tries;

harpe_followed_schedule *__wrap_harpe_followed_schedule_new(harpe_frequency_schedule *frequencies) {
    if (!atomic_load(&has_no_memory)) return __real_harpe_followed_schedule_new(frequencies);
    atomic_fetch_add(&tries, 1);
    return NULL;
}

WORLD_TEST(a_trial_that_cannot_be_left_for_want_of_memory_is_told_once) {
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.trial_alone_s = 0.1;
    told_server one;
    training *rank = start_in_trial(&one, &timeouts);
    atomic_store(&tries, 0);
    atomic_store(&has_no_memory, true);
    one.schedule_status = 422;
    WAIT_UNTIL(rank, atomic_load(&tries) >= 5);
    assert_int_equal(count_lines(rank, "no memory to leave"), 1);
    assert_int_equal(count_lines(rank, LEFT), 0);
    assert_trains_on(rank);
    atomic_store(&has_no_memory, false);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    WAIT_UNTIL(rank, count_lines(rank, LEFT) == 1);
    assert_int_equal(count_lines(rank, "no memory to leave"), 1);
    end_at(&one, rank);
}

/* ---- The end --------------------------------------------------------------------------------- */

static double end_with(told_server *one, int end_status, double end_notice_s) {
    *one = (told_server){.schedule_status = 200, .end_status = end_status};
    harpe_pipeline_timeouts timeouts = long_timeouts();
    timeouts.end_notice_s = end_notice_s;
    training *rank = start_at(one, &timeouts);
    assert_reaches_round(rank, 1);
    one->schedule_status = 0; /* and the next request is held */
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_WAITING);
    stop_steps(rank);
    assert_int_equal(count_warnings(rank), 0);
    double begin_s = harpe_clock_s();
    harpe_pipeline_frequency_free(rank->optimizer);
    double took_s = harpe_clock_s() - begin_s;
    free(rank);
    stop_told(one);
    return took_s;
}

WORLD_TEST(the_server_is_told_of_the_end) {
    told_server one;
    static const int statuses[] = {0, 404, 405, 500};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        (void)end_with(&one, statuses[i], 60);
        assert_int_equal(one.ends, 1);
        assert_string_equal(one.result, "{\"rank\":0}");
    }
}

WORLD_TEST(a_server_that_does_not_answer_the_end_delays_nobody) {
    told_server one;
    assert_true(end_with(&one, -1, 0.25) < 0.5); /* the request itself ends after 30 s */
    assert_int_equal(one.ends, 1);
}
