/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs with a key: ranks with the same key join the same job, in any order and with any number of
 * requests. A rank whose process was restarted finds its place in the round again. */
#include "test.h"

#include "engine.h"

STARTED_TEST(ranks_with_the_same_key_meet_in_one_job) {
    asked *at_once[3]; /* the first registration is not stored yet when the others arrive */
    for (int r = 0; r < 3; r++)
        at_once[r] = ask_with_key(e, "slurm-17", 3);
    const char *first = registered_id(at_once[0]);
    for (int r = 1; r < 3; r++) {
        const char *other = registered_id(at_once[r]);
        assert_string_equal(first, other);
    }
    const char *second_job = registered_id(ask_with_key(e, "slurm-18", 3));
    assert_string_not_equal(first, second_job);
    engine_restart(e);
    const char *after_restart = registered_id(ask_with_key(e, "slurm-17", 3));
    assert_string_equal(first, after_restart);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 2);
}

STARTED_TEST(key_of_another_shape_or_length_is_refused) {
    char long_key[258] = "";
    memset(long_key, 'k', 257);
    (void)registered_id(ask_with_key(e, "k", 2));
    expect(ask_with_key(e, "k", 4), 409, "has other degrees");
    expect(ask_with_key(e, "", 2), 422, "job_key must have 1 to 256 bytes");
    expect(ask_with_key(e, long_key, 2), 422, "job_key must have 1 to 256 bytes");
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
}

STARTED_TEST(key_is_free_again_once_its_job_is_evicted) {
    const char *first = registered_id(ask_with_key(e, "k", 1));
    asked *eviction = ask(e, HARPE_CALL_EVICT, first, 0, -1, NULL);
    asked *meanwhile = ask_with_key(e, "k", 1);
    expect(eviction, 200, "null");
    const char *second = registered_id(meanwhile);
    assert_string_not_equal(first, second);
}

/* The newest job of a key is used, even if the clock was set back before it was created. */
ENGINE_TEST(newest_job_of_a_key_is_found_whatever_the_clock_says) {
    engine_clock_s = 1.7e9;
    engine_start(e);
    const char *first = registered_id(ask_with_key(e, "nightly", 1));
    expect(ask_register_rank(e, first, 0, 0), 200, "null");
    expect(ask(e, HARPE_CALL_END, first, 0, -1, "{\"rank\":0}"), 200, "null");
    engine_clock_s = 1.6e9;
    const char *second = registered_id(ask_with_key(e, "nightly", 2));
    for (int restart = 0; restart < 2; restart++) {
        const char *same = registered_id(ask_with_key(e, "nightly", 2));
        assert_string_equal(same, second);
        engine_restart(e);
    }
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 2);
}

/* The requests that wait for it try again themselves. */
STARTED_TEST(job_that_cannot_be_stored_keeps_no_key) {
    struct rlimit before = engine_limit_files(0);
    asked *first = ask_with_key(e, "k", 1);
    asked *waiting = ask_with_key(e, "k", 1);
    await(first);
    await(waiting);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    expect(first, 503, "could not be stored");
    expect(waiting, 503, "could not be stored");
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
    (void)registered_id(ask_with_key(e, "k", 1));
}

/* Rank 1 has reported and waits for round 1. Rank 0's process dies after it has received round 0.
 */
STARTED_TEST(restarted_rank_gets_the_round_that_it_lost) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, -1);
    expect(ask_result(e, job, 1, 0, 5), 200, "null");
    asked *patient = ask_schedule(e, job, 1, -1);
    expect_held(e, patient);
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    asked *again = ask_schedule(e, job, 0, -1);
    await(again);
    assert_int_equal(again->status, 200);
    assert_int_equal(again->round, 0);
    asked_free(again);
    expect(ask_result(e, job, 0, -1, 5), 200, "null");
    asked *next = ask_schedule(e, job, 0, -1);
    expect(next, 200, "forward");
    await(patient);
    assert_int_equal(patient->round, 1);
    asked_free(patient);
}

/* Its result is stored, so it waits for the next round like the other ranks. */
STARTED_TEST(restarted_rank_that_has_reported_waits_for_the_next_round) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, -1);
    expect(ask_result(e, job, 0, 0, 5), 200, "null");
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    asked *held = ask_schedule(e, job, 0, -1);
    expect_held(e, held);
    expect(ask_result(e, job, 1, 0, 5), 200, "null");
    expect(ask_schedule(e, job, 1, -1), 200, "forward");
    await(held);
    assert_int_equal(held->round, 1);
    asked_free(held);
}

int main(void) { return run_listed_tests(); }
