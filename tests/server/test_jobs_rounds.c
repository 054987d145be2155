/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds: which requests are held and until when, the answer to a retry, the effect of a lost
 * client, and the effect of job requests and failures. */
#include "test.h"

#include <sys/stat.h>

#include "engine.h"

/* ---- Held requests --------------------------------------------------------------------------- */

STARTED_TEST(schedules_are_handed_out_when_all_ask) {
    const char *job = register_job(e, 2, NULL);
    expect(ask_schedule(e, job, 2, -1), 422, "rank 2 is not in a job of 2 ranks");
    expect(ask_schedule(e, job, -1, -1), 422, "value_error.number.not_ge");
    expect(ask_schedule(e, job, 0, 1), 409, "the next one is 0");
    asked *before = ask_schedule(e, job, 0, -1);
    for (int r = 0; r < 2; r++)
        expect(ask_register_rank(e, job, r, r), 200, "null");
    expect_held(e, before);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 1);
    asked *last = ask_schedule(e, job, 1, 0);
    await(before);
    assert_string_equal(before->body, "{\"rank\":0,\"frequencies\":[[\"forward\",1000]]}");
    assert_int_equal(before->round, 0);
    asked_free(before);
    await(last);
    assert_string_equal(last->body, "{\"rank\":1,\"frequencies\":[[\"forward\",1000]]}");
    asked_free(last);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 0);
}

STARTED_TEST(engine_goes_on_from_the_loop_and_not_inside_a_call) {
    const char *job = job_of(e, 2, NULL);
    asked *first = ask_schedule(e, job, 0, -1);
    expect_held(e, first);
    assert_int_equal(harpe_store_count(e->store).queued, 0);
    asked *last = ask_schedule(e, job, 1, -1);
    assert_int_equal(harpe_store_count(e->store).queued, 0);
    assert_false(harpe_jobs_are_idle(e->jobs));
    expect(last, 200, "\"rank\":1");
    expect(first, 200, "\"rank\":0");
}

STARTED_TEST(retry_replaces_the_earlier_request) {
    const char *job = job_of(e, 2, NULL);
    asked *older = ask_schedule(e, job, 0, -1);
    asked *newer = ask_schedule(e, job, 0, -1);
    expect(older, 409, "rank 0 asked again");
    expect_held(e, newer);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 1);
    expect(ask_schedule(e, job, 1, -1), 200, "\"rank\":1");
    expect(newer, 200, "\"rank\":0");
}

/* The oldest of them is dropped, which is the request that is replaced. */
ENGINE_TEST(oldest_request_of_an_unregistered_rank_is_replaced) {
    e->settings.max_connections = 16; /* two requests for unregistered ranks are held */
    engine_start(e);
    const char *job = register_job(e, 4, NULL);
    asked *first = ask_schedule(e, job, 0, -1);
    asked *second = ask_schedule(e, job, 1, -1);
    asked *again = ask_schedule(e, job, 0, -1);
    expect(first, 409, "rank 0 asked again");
    expect_held(e, second);
    expect_held(e, again);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 2);
    asked *third = ask_schedule(e, job, 2, -1);
    expect(second, 503, "rank 1 is not registered");
    expect_held(e, again);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 2);
    expect(ask_register_rank(e, job, 2, 2), 200, "null"); /* its request is no longer counted */
    asked *fourth = ask_schedule(e, job, 3, -1);
    expect_held(e, again);
    expect_held(e, third);
    leave(again);
    leave(third);
    leave(fourth);
    assert_int_equal(harpe_jobs_count(e->jobs).ranks_waiting, 0);
}

STARTED_TEST(client_that_goes_away_no_longer_asks) {
    const char *job = job_of(e, 2, NULL);
    leave(ask_schedule(e, job, 0, -1));
    asked *other = ask_schedule(e, job, 1, -1);
    expect_held(e, other);
    expect(ask_schedule(e, job, 0, -1), 200, "\"rank\":0");
    expect(other, 200, "\"rank\":1");
}

STARTED_TEST(client_lost_while_the_round_is_stored_gets_it_later) {
    const char *job = job_of(e, 2, NULL);
    asked *lost = ask_schedule(e, job, 0, -1);
    engine_settle(e);
    asked *other = ask_schedule(e, job, 1, -1);
    engine_run_ms(e, 0); /* begins to store the round */
    assert_int_equal(harpe_store_count(e->store).queued, 1);
    leave(lost);
    expect(other, 200, "\"rank\":1");
    asked *again = ask_schedule(e, job, 0, -1);
    await(again);
    assert_int_equal(again->round, 0);
    expect(again, 200, "\"rank\":0");
    /* Answered once: now it waits for the next round. */
    asked *next = ask_schedule(e, job, 0, -1);
    expect_held(e, next);
    leave(next);
}

STARTED_TEST(rank_gets_its_round_again_when_it_says_so) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, -1);
    expect(ask_schedule(e, job, 0, 0), 200, "1000");
    expect(ask_schedule(e, job, 0, 0), 200, "1000");
    asked *next = ask_schedule(e, job, 0, 1);
    expect_held(e, next);
    expect(ask_schedule(e, job, 0, 2), 409, "the next one is 1");
    report_all(e, job, 2, 7);
    expect(ask_schedule(e, job, 1, -1), 200, "\"rank\":1");
    await(next);
    assert_int_equal(next->round, 1);
    asked_free(next);
    expect(ask_schedule(e, job, 0, 0), 409, "the next one is 2");
}

STARTED_TEST(answer_that_did_not_arrive_is_given_again) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, -1);
    harpe_jobs_delivered(e->jobs, job, 0, 0, true);
    harpe_jobs_delivered(e->jobs, job, 1, 0, false);
    harpe_jobs_delivered(e->jobs, job, 5, 0, false);
    harpe_jobs_delivered(e->jobs, "unknown", 1, 0, false);
    expect(ask_schedule(e, job, 1, -1), 200, "\"rank\":1");
    /* The server notices the loss only after the client has come back. */
    asked *back = ask_schedule(e, job, 0, -1);
    expect_held(e, back);
    harpe_jobs_delivered(e->jobs, job, 0, 0, false);
    expect(back, 200, "\"rank\":0");
}

/* ---- Learning -------------------------------------------------------------------------------- */

ENGINE_TEST(scheduler_learns_from_all_results_in_rank_order) {
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    assert_int_equal(whole_round(e, job, 2, 0, 10), 1000);
    assert_int_equal(whole_round(e, job, 2, 1, 20), 1000 + 10 * 31 + 11);
    int learnt = ((10 * 31 + 11) * 31 + 20) * 31 + 21;
    assert_int_equal(whole_round(e, job, 2, 2, -1), 1000 + learnt % 10000);
}

STARTED_TEST(finished_scheduler_serves_its_last_schedule_for_ever) {
    const char *job = job_of(e, 2, "finished");
    for (int k = 0; k < 4; k++)
        assert_int_equal(whole_round(e, job, 2, k, k), 1000);
    expect(ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL), 200, "{\"observed\":0}");
    /* Old results are removed; those of the last two rounds are kept. */
    expect(ask_result(e, job, 0, 0, 0), 409, "no longer kept");
    expect(ask_result(e, job, 0, 2, 2), 200, "null");
}

ENGINE_TEST(failing_scheduler_tells_everyone) {
    static const char *const ways[][2] = {{"fail create", "plan.py has 4 lists and the job 2"},
                                          {"fail next", "no plan fits"},
                                          {"fail observe", "this makes no sense"}};
    engine_start(e);
    for (int i = 0; i < 3; i++) {
        const char *job = job_of(e, 2, ways[i][0]);
        if (i == 2) (void)whole_round(e, job, 2, 0, 1);
        asked *held = ask_schedule(e, job, 0, -1);
        expect(held, 500, ways[i][1]);
        expect(ask_schedule(e, job, 1, -1), 500, ways[i][1]);
        expect(ask_result(e, job, 1, -1, 1), 500, ways[i][1]);
        expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":1}"), 500, ways[i][1]);
        engine_restart(e);
        expect(ask_schedule(e, job, 1, -1), 500, ways[i][1]);
        expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, "\"state\":\"failed\"");
    }
    assert_int_equal(harpe_jobs_count(e->jobs).failed, 3);
}

/* ---- Job requests ---------------------------------------------------------------------------- */

STARTED_TEST(job_request_bodies_are_checked) {
    const char *job = job_of(e, 2, NULL);
    static const struct {
        harpe_call_kind kind;
        const char *body, *answer;
    } bad[] = {
        {HARPE_CALL_STRAGGLER, "{}", "value_error.missing"},
        {HARPE_CALL_STRAGGLER, NULL, "value_error.missing"},
        {HARPE_CALL_STRAGGLER, "{\"slowdown\":0.5}", "value_error.number.not_ge"},
        {HARPE_CALL_STRAGGLER, "{\"slowdown\":\"fast\"}", "type_error.float"},
        {HARPE_CALL_STRAGGLER, "{\"slowdown\":1,\"iteration_time\":2}", "not both"},
        {HARPE_CALL_STRAGGLER, "{\"iteration_time\":0}", "value_error.number.not_gt"},
        {HARPE_CALL_POWER_CAP, "{\"watts\":-1}", "value_error.number.not_ge"},
        {HARPE_CALL_POWER_CAP, "{\"watts\":1e300}", "value_error.number.not_le"},
        {HARPE_CALL_PLAN, "{\"time\":", "value_error.jsondecode"},
        {HARPE_CALL_PLAN, "[]", "type_error.dict"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect(ask(e, bad[i].kind, job, 0, -1, bad[i].body), 422, bad[i].answer);
}

STARTED_TEST(job_request_changes_the_next_round) {
    const char *job = register_job(e, 2, NULL);
    expect(ask(e, HARPE_CALL_STRAGGLER, job, 0, -1, "{\"slowdown\":2}"), 409, "0 of 2 ranks");
    job = job_of(e, 2, NULL);
    /* Before the first round, also while the scheduler is being created. */
    expect(ask(e, HARPE_CALL_STRAGGLER, job, 0, -1, "{\"slowdown\":2}"), 200, "null");
    assert_int_equal(whole_round(e, job, 2, 0, -1), 201000);
    /* While a round runs. */
    expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}"), 200, "null");
    expect(ask_schedule(e, job, 0, 0), 200, "201000");
    for (int r = 0; r < 2; r++)
        expect(ask_result(e, job, r, -1, 0), 200, "null");
    assert_int_equal(whole_round(e, job, 2, 1, 0), 301000);
    /* Between rounds, while one rank is already asking. */
    asked *held = ask_schedule(e, job, 0, -1);
    expect_held(e, held);
    expect(ask(e, HARPE_CALL_POWER_CAP, job, 0, -1, "{\"watts\":4}"), 200, "null");
    expect(ask_schedule(e, job, 1, -1), 200, "401001");
    expect(held, 200, "401001");
    expect(ask(e, HARPE_CALL_POWER_CAP, job, 0, -1, "{\"watts\":5000}"), 422, "too much");
}

STARTED_TEST(job_request_moves_a_finished_scheduler) {
    const char *job = job_of(e, 2, "finished");
    (void)whole_round(e, job, 2, 0, 1);
    expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}"), 200, "null");
    /* The host serves the last schedules of a finished scheduler. */
    (void)whole_round(e, job, 2, 1, 1);
    engine_restart(e);
    (void)whole_round(e, job, 2, 2, 1);
}

ENGINE_TEST(scheduler_that_takes_no_job_requests_refuses_them) {
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    expect(ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}"), 409, "serves one plan");
    expect(ask(e, HARPE_CALL_POWER_CAP, job, 0, -1, "{\"watts\":3}"), 409, "serves one plan");
    expect(ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL), 409, "no frontier");
    (void)whole_round(e, job, 2, 0, 1);
}

STARTED_TEST(forgotten_job_request_harms_nobody) {
    const char *job = job_of(e, 2, "slow");
    asked *first = ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}");
    asked *second = ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL);
    asked *third = ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":4}");
    leave(second);
    leave(first);
    expect(third, 200, "null");
}

STARTED_TEST(round_is_handed_out_before_more_is_looked_at) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, 1);
    asked *looks[4], *asks[2];
    for (int i = 0; i < 4; i++)
        looks[i] = ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL);
    for (int r = 0; r < 2; r++)
        asks[r] = ask_schedule(e, job, r, 1);
    for (int r = 0; r < 2; r++)
        await(asks[r]);
    assert_false(looks[1]->is_answered);
    for (int r = 0; r < 2; r++)
        expect(asks[r], 200, "forward");
    for (int i = 0; i < 4; i++)
        expect(looks[i], 200, "observed");
}

STARTED_TEST(job_request_behind_a_frontier_request_counts_in_the_next_round) {
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, 1);
    asked *first = ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL);
    asked *second = ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL);
    asked *request = ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}");
    asked *asks[2];
    for (int r = 0; r < 2; r++)
        asks[r] = ask_schedule(e, job, r, 1);
    await(asks[1]);
    assert_true(request->is_answered);
    for (int r = 0; r < 2; r++)
        expect(asks[r], 200, "forward");
    expect(first, 200, "observed");
    expect(second, 200, "observed");
    expect(request, 200, "null");
}

/* ---- Many ------------------------------------------------------------------------------------ */

enum { MANY = 2048 };

STARTED_TEST(thousands_of_ranks_pass_in_a_moment) {
    const char *job = register_job(e, MANY, NULL);
    asked **all = calloc(MANY, sizeof *all);
    for (int r = 0; r < MANY; r++)
        all[r] = ask_register_rank(e, job, r, r);
    for (int r = 0; r < MANY; r++)
        expect(all[r], 200, "null");
    for (int r = 0; r < MANY; r++)
        all[r] = ask_schedule(e, job, r, -1);
    for (int r = 0; r < MANY; r++) {
        char own[32];
        (void)snprintf(own, sizeof own, "{\"rank\":%d,", r);
        expect(all[r], 200, own);
    }
    assert_true(harpe_store_count(e->store).batches < MANY / 4);
    free(all);
}

int main(void) { return run_listed_tests(); }
