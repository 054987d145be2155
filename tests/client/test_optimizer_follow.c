/* SPDX-License-Identifier: Apache-2.0 */
/* Following a schedule, and passing schedules between threads, without a server or a GPU. */
#include "test.h"

#include <pthread.h>

#include "client/optimizer_internal.h"

enum { HIGHEST_MHZ = 1410 };

static harpe_mismatch mismatch; /* the last one */

static harpe_followed_schedule *make_schedule(const harpe_scheduled_instruction *instructions,
                                              size_t count, int64_t series) {
    harpe_frequency_schedule given = {.instructions = instructions, .instruction_count = count};
    harpe_frequency_schedule copy = {0};
    assert_works(harpe_frequency_schedule_copy(&given, &copy, &failure));
    harpe_followed_schedule *schedule = harpe_followed_schedule_new(&copy);
    assert_non_null(schedule);
    assert_null(copy.instructions);
    schedule->highest_mhz = HIGHEST_MHZ;
    schedule->series = schedule->round = series;
    return schedule;
}

static const harpe_scheduled_instruction three[] = {
    {"forward", 1200}, {"backward", 1305}, {"forward", 0}};

static void end(harpe_follower *follower, harpe_schedule_exchange *exchange) {
    harpe_schedule_exchange_clear(exchange);
    harpe_followed_schedule_free(follower->schedule);
}

static int next(harpe_follower *follower, const char *name) {
    int frequency_mhz = -1;
    assert_true(harpe_follower_next(follower, name, &frequency_mhz, &mismatch));
    return frequency_mhz;
}

/* A test with a follower without a schedule. */
#define FOLLOW_TEST(name) \
    static void name##_on(harpe_follower *follower, harpe_schedule_exchange *exchange); \
    TEST(name) { \
        harpe_schedule_exchange exchange = {NULL, NULL}; \
        harpe_follower follower = {0}; \
        name##_on(&follower, &exchange); \
        end(&follower, &exchange); \
    } \
    static void name##_on(harpe_follower *follower, harpe_schedule_exchange *exchange)

FOLLOW_TEST(instruction_k_gets_entry_k) {
    harpe_schedule_post(exchange, make_schedule(three, 3, 0));
    for (int step = 0; step < 3; step++) {
        /* Names are compared by their text, so callers may store them anywhere. */
        char name[] = "forward";
        harpe_follower_begin_step(follower, exchange);
        assert_int_equal(next(follower, name), 1200);
        memcpy(name, "backward", sizeof name - 1);
        assert_int_equal(next(follower, "backward"), 1305);
        assert_int_equal(next(follower, "forward"), 0);
        assert_true(harpe_follower_end_step(follower, &mismatch));
    }
    assert_int_equal(follower->fitting_steps, 3);
}

FOLLOW_TEST(without_schedule_clocks_are_left_alone) {
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, "anything"), 0);
    assert_true(harpe_follower_end_step(follower, &mismatch));
}

FOLLOW_TEST(an_empty_schedule_means_the_highest_clock_and_fits_everything) {
    harpe_schedule_post(exchange, make_schedule(NULL, 0, 0));
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, "anything"), HIGHEST_MHZ);
    assert_int_equal(next(follower, "else"), HIGHEST_MHZ);
    assert_true(harpe_follower_end_step(follower, &mismatch));
    assert_int_equal(follower->fitting_steps, 1);
}

FOLLOW_TEST(what_does_not_fit_runs_at_the_highest_clock_to_the_end_of_the_step) {
    int frequency_mhz;
    char line[512];
    harpe_schedule_post(exchange, make_schedule(three, 3, 7));
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, "forward"), 1200);
    assert_false(harpe_follower_next(follower, "forward", &frequency_mhz, &mismatch));
    assert_int_equal(frequency_mhz, HIGHEST_MHZ);
    assert_int_equal(next(follower, "backward"), HIGHEST_MHZ);
    assert_true(harpe_follower_end_step(follower, &mismatch)); /* already reported */
    harpe_mismatch_describe(&mismatch, line, sizeof line);
    assert_string_equal(line, "a step does not fit its schedule of 3 instructions (round 7): "
                              "instruction 1 is 'forward' where 'backward' is scheduled");
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, "forward"), 1200);
    assert_int_equal(follower->fitting_steps, 0);
}

FOLLOW_TEST(outside_of_steps_the_clock_is_the_highest) {
    harpe_schedule_post(exchange, make_schedule(three, 1, 0));
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, "forward"), 1200);
    assert_true(harpe_follower_end_step(follower, &mismatch));
    assert_int_equal(next(follower, "forward"), HIGHEST_MHZ);
}

FOLLOW_TEST(long_names_are_cut_in_messages_only) {
    char name[200], line[512];
    harpe_scheduled_instruction one[] = {{name, 900}};
    int frequency_mhz;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    harpe_schedule_post(exchange, make_schedule(one, 1, 0));
    harpe_follower_begin_step(follower, exchange);
    assert_int_equal(next(follower, name), 900);
    harpe_follower_begin_step(follower, exchange);
    name[150] = 'y';
    assert_false(harpe_follower_next(follower, name, &frequency_mhz, &mismatch));
    harpe_mismatch_describe(&mismatch, line, sizeof line);
    assert_int_equal(strlen(mismatch.found), HARPE_INSTRUCTION_SIZE - 1);
}

FOLLOW_TEST(an_instruction_without_a_name_does_not_fit) {
    int frequency_mhz = -1;
    char line[512];
    harpe_follower_begin_step(follower, exchange);
    assert_true(harpe_follower_next(follower, NULL, &frequency_mhz, &mismatch)); /* no schedule */
    for (size_t count = 0; count <= 3; count += 3) {
        harpe_schedule_post(exchange, make_schedule(three, count, 4));
        harpe_follower_begin_step(follower, exchange);
        assert_false(harpe_follower_next(follower, NULL, &frequency_mhz, &mismatch));
        assert_int_equal(frequency_mhz, HIGHEST_MHZ);
        harpe_mismatch_describe(&mismatch, line, sizeof line);
        assert_non_null(strstr(line, "an instruction has no name"));
        assert_true(harpe_follower_end_step(follower, &mismatch));
        harpe_schedule_exchange_clear(exchange);
    }
}

/* ---- Evaluation, or not ---------------------------------------------------------------------- */

static void run_fitting(harpe_follower *follower, harpe_schedule_exchange *exchange) {
    harpe_follower_begin_step(follower, exchange);
    for (size_t i = 0; i < 3; i++)
        (void)next(follower, three[i].instruction);
    assert_true(harpe_follower_end_step(follower, &mismatch));
}

static void run_mismatches(harpe_follower *follower, harpe_schedule_exchange *exchange, int count) {
    for (int i = 0; i < count; i++) {
        harpe_follower_begin_step(follower, exchange);
        (void)next(follower, "forward");
        assert_false(harpe_follower_end_step(follower, &mismatch));
    }
}

FOLLOW_TEST(training_that_never_fitted_is_lost_after_three_steps) {
    harpe_schedule_post(exchange, make_schedule(three, 3, 0));
    run_mismatches(follower, exchange, 2);
    assert_false(harpe_follower_is_lost(follower));
    run_mismatches(follower, exchange, 1);
    assert_true(harpe_follower_is_lost(follower));
    harpe_schedule_post(exchange, make_schedule(three, 3, 1)); /* it may fit */
    run_mismatches(follower, exchange, 2);
    assert_false(harpe_follower_is_lost(follower));
    run_mismatches(follower, exchange, 1);
    run_fitting(follower, exchange);
    assert_false(harpe_follower_is_lost(follower));
}

FOLLOW_TEST(training_that_has_fitted_may_evaluate_for_long) {
    harpe_schedule_post(exchange, make_schedule(three, 3, 0));
    run_fitting(follower, exchange);
    run_mismatches(follower, exchange, 500);
    /* it arrives during an evaluation */
    harpe_schedule_post(exchange, make_schedule(three, 3, 1));
    run_mismatches(follower, exchange, 500);
    assert_false(harpe_follower_is_lost(follower));
    run_mismatches(follower, exchange, 500); /* the number of microbatches has changed */
    assert_true(harpe_follower_is_lost(follower));
}

/* An interrupted training thread returns a schedule after the other thread has checked. */
FOLLOW_TEST(two_that_are_given_back_before_anybody_looks_are_both_kept) {
    for (int64_t series = 1; series <= 3; series++) {
        atomic_store(&exchange->next, make_schedule(three, 3, series));
        harpe_follower_begin_step(follower, exchange);
        assert_int_equal(follower->schedule->series, series);
    }
    const harpe_followed_schedule *used = atomic_load(&exchange->used);
    assert_int_equal(used->series, 2);
    assert_non_null(used->given_back_before);
    assert_int_equal(used->given_back_before->series, 1);
    assert_null(used->given_back_before->given_back_before);
    harpe_schedule_exchange_clear(exchange); /* AddressSanitizer checks that both are freed */
    assert_null(atomic_load(&exchange->used));
}

/* ---- Two threads ----------------------------------------------------------------------------- */

enum { POSTS = 20000 };

typedef struct hand_over {
    harpe_schedule_exchange exchange;
    atomic_bool is_over;
    int64_t last_series;
    bool is_in_order;
} hand_over;

static void *follow(void *user) {
    hand_over *shared = user;
    harpe_follower follower = {0};
    bool is_over = false;
    while (!is_over) {
        is_over = atomic_load(&shared->is_over);
        harpe_follower_begin_step(&follower, &shared->exchange);
        if (!follower.schedule) continue;
        if (next(&follower, "forward") != 1200 || follower.schedule->series < shared->last_series)
            shared->is_in_order = false;
        shared->last_series = follower.schedule->series;
        (void)harpe_follower_end_step(&follower, &mismatch);
    }
    harpe_followed_schedule_free(follower.schedule);
    return NULL;
}

/* Under AddressSanitizer this also proves that each is freed once, and not while it is in use. */
TEST(schedules_arrive_in_order_and_the_last_one_stays) {
    hand_over shared = {.is_in_order = true};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, follow, &shared), 0);
    for (int64_t series = 1; series <= POSTS; series++)
        harpe_schedule_post(&shared.exchange, make_schedule(three, 3, series));
    atomic_store(&shared.is_over, true);
    pthread_join(thread, NULL);
    harpe_schedule_exchange_clear(&shared.exchange);
    assert_true(shared.is_in_order);
    assert_int_equal(shared.last_series, POSTS);
}
