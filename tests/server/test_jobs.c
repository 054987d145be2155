/* SPDX-License-Identifier: Apache-2.0 */
/* How the engine handles jobs, ranks and results: what is accepted, a retry, a conflict, or
 * refused, with which message; and that nothing is accepted before it is stored. */
#include "test.h"

#include <inttypes.h>
#include <malloc.h>

#include "base/text.h"
#include "engine.h"
#include "server/engine/engine_internal.h"

STARTED_TEST(unknown_job_is_named) {
    expect(ask_schedule(e, "no-such-job", 0, -1), 404, "no-such-job");
    expect(ask_schedule(e, "bad\xff\"job", 0, -1), 404, "bad?\\\"job");
    expect(ask(e, HARPE_CALL_SHOW, "", 0, -1, NULL), 404, "detail");
    expect(ask(e, HARPE_CALL_EVICT, "../../etc", 0, -1, NULL), 404, "../../etc");
}

STARTED_TEST(job_bodies_are_checked) {
    expect(ask(e, HARPE_CALL_REGISTER_JOB, NULL, 0, -1, "{\"pp_degree\":0}"), 422,
           "value_error.number.not_ge");
    expect(ask(e, HARPE_CALL_REGISTER_JOB, NULL, 0, -1, "{"), 422, "value_error.jsondecode");
    expect(ask(e, HARPE_CALL_REGISTER_JOB, NULL, 0, -1, NULL), 422, "value_error.missing");
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
}

ENGINE_TEST(ids_of_one_second_differ_also_from_stored_ones) {
    engine_clock_s = 1.7e9;
    engine_start(e);
    const char *first = register_job(e, 2, "x");
    const char *second = register_job(e, 2, "x");
    assert_null(strstr(first, ".2+"));
    assert_non_null(strstr(second, ".2+"));
    expect(ask(e, HARPE_CALL_EVICT, first, 0, -1, NULL), 200, "null");
    engine_restart(e);
    const char *third = register_job(e, 2, "x");
    assert_non_null(strstr(third, ".3+"));
}

ENGINE_TEST(limits_are_told) {
    e->settings.max_jobs = 2;
    e->settings.max_ranks_per_job = 8;
    engine_start(e);
    (void)register_job(e, 2, NULL);
    const char *job = register_job(e, 8, NULL);
    static const char more[] = "{\"job_id\":\"\",\"pp_degree\":3,\"dp_degree\":3,\"tp_degree\":1,"
                               "\"world_size\":9}";
    expect(ask(e, HARPE_CALL_REGISTER_JOB, NULL, 0, -1, more), 422, "\"limit_value\":8");
    expect(ask_register_job(e, 1, NULL, NULL), 429, "at most 2 jobs (max_jobs)");
    expect(ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL), 200, "null");
    (void)register_job(e, 8, NULL);
}

STARTED_TEST(rank_registered_again_is_a_retry_or_a_conflict) {
    const char *job = register_job(e, 4, NULL);
    expect(ask_register_rank(e, job, 1, 1), 200, "null");
    expect(ask_register_rank(e, job, 1, 1), 200, "null");
    expect(ask_register_rank(e, job, 1, 2), 409, "rank 1 is registered with other data");
    expect(ask_register_rank(e, job, 2, 1), 409, "taken by rank 1");
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    expect(ask_register_rank(e, job, 2, 0), 409, "taken by rank 0");
    expect(ask_register_rank(e, job, 4, 0), 422, "assertion_error");
    expect(ask_register_rank(e, job, 0, 4), 422, "assertion_error");
    expect(ask_register_rank(e, job, -1, 0), 422, "value_error.number.not_ge");
    assert_int_equal(harpe_jobs_count(e->jobs).ranks, 2);
}

/* The first registration is not stored yet when the others arrive. */
STARTED_TEST(registrations_at_the_same_moment_are_ordered) {
    const char *job = register_job(e, 4, NULL);
    asked *first = ask_register_rank(e, job, 1, 1);
    asked *same = ask_register_rank(e, job, 1, 1);
    asked *other_data = ask_register_rank(e, job, 1, 2);
    asked *same_place = ask_register_rank(e, job, 3, 1);
    asked *gone = ask_register_rank(e, job, 1, 3);
    leave(gone);
    expect(first, 200, "null");
    expect(same, 200, "null");
    expect(other_data, 409, "other data");
    expect(same_place, 409, "taken by rank 1");
}

STARTED_TEST(client_that_goes_away_is_registered_nevertheless) {
    const char *job = register_job(e, 2, NULL);
    asked *gone = ask_register_rank(e, job, 0, 0);
    leave(gone);
    engine_settle(e);
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    assert_int_equal(harpe_jobs_count(e->jobs).registered_ranks, 1);
}

STARTED_TEST(results_are_counted_once) {
    const char *job = job_of(e, 2, NULL);
    expect(ask_result(e, job, 0, -1, 5), 409, "no schedule");
    (void)whole_round(e, job, 2, 0, -1);
    expect(ask_result(e, job, 7, -1, 5), 422, "rank 7 is not in a job of 2 ranks");
    expect(ask(e, HARPE_CALL_RESULT, job, 0, -1, "{\"rank\":0}"), 422, "iter_time");
    expect(ask_result(e, job, 0, 1, 5), 409, "handed out");
    asked *first = ask_result(e, job, 0, 0, 5);
    asked *same = ask_result(e, job, 0, -1, 5);
    asked *other = ask_result(e, job, 0, 0, 6);
    await(first);
    assert_int_equal(first->round, 0);
    expect(first, 200, "null");
    expect(same, 200, "null");
    expect(other, 409, "another result in round 0");
    /* Equal as a model, not as text. */
    expect(ask(e, HARPE_CALL_RESULT, job, 0, -1,
               "{\"time_breakdown\": {\"forward\": [[1, 2]]}, \"iter_energy\": [2.50],"
               " \"iter_time\": [\"5\"], \"rank\": 0, \"extra\": 1}"),
           200, "null");
    assert_int_equal(harpe_jobs_count(e->jobs).results, 1);
    expect(ask_result(e, job, 1, -1, 6), 200, "null");
    /* The round has ended; this result still belongs to it. */
    expect(ask_result(e, job, 1, -1, 6), 200, "null");
    expect(ask_result(e, job, 1, -1, 7), 409, "round 0");
    (void)whole_round(e, job, 2, 1, -1);
    expect(ask_result(e, job, 1, 0, 6), 200, "null");
    expect(ask_result(e, job, 1, 0, 7), 409, "round 0");
}

/* Larger than results that the loop itself decodes. */
STARTED_TEST(large_result_is_taken) {
    const char *job = job_of(e, 1, NULL);
    (void)whole_round(e, job, 1, 0, -1);
    harpe_text body = {0};
    harpe_text_printf(&body, "{\"rank\":0,\"iter_time\":[");
    for (int i = 0; i < 5000; i++)
        harpe_text_printf(&body, "%s%d.5", i ? "," : "", i);
    harpe_text_printf(&body, "],\"iter_energy\":[]}");
    asked *gone = ask(e, HARPE_CALL_RESULT, job, 0, -1, body.data);
    leave(gone);
    expect(ask(e, HARPE_CALL_RESULT, job, 0, -1, body.data), 200, "null");
    expect(ask(e, HARPE_CALL_RESULT, job, 0, 0, body.data), 200, "null");
    harpe_text_free(&body);
}

STARTED_TEST(nothing_is_taken_that_cannot_be_stored) {
    const char *job = job_of(e, 2, NULL);
    const char *other = register_job(e, 2, NULL);
    asked *held = ask_schedule(e, job, 0, -1);
    engine_settle(e);
    struct rlimit before = engine_limit_files(0);
    asked *refused[] = {ask_register_rank(e, other, 0, 0), ask_register_job(e, 1, NULL, NULL),
                        ask_schedule(e, job, 1, -1), held,
                        ask(e, HARPE_CALL_EVICT, other, 0, -1, NULL)};
    for (int i = 0; i < 5; i++)
        await(refused[i]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 5; i++)
        expect(refused[i], 503, "could not be stored");
    harpe_jobs_counts counts = harpe_jobs_count(e->jobs);
    assert_int_equal(counts.jobs, 2);
    assert_int_equal(counts.ranks, 2);
    assert_int_equal(counts.rounds, 0);
    expect(ask_register_rank(e, other, 1, 0), 200, "null");
    (void)whole_round(e, job, 2, 0, 5);
}

/* ---- Eviction -------------------------------------------------------------------------------- */

STARTED_TEST(evicted_job_is_gone_for_all) {
    const char *job = job_of(e, 2, NULL);
    asked *held = ask_schedule(e, job, 0, -1);
    engine_settle(e);
    asked *eviction = ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL);
    asked *meanwhile = ask_schedule(e, job, 1, -1);
    asked *second = ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL);
    expect(eviction, 200, "null");
    expect(held, 410, "evicted");
    expect(meanwhile, 410, "evicted");
    expect(second, 410, "evicted");
    harpe_jobs_delivered(e->jobs, job, 0, 0, false);
    engine_restart(e);
    expect(ask_schedule(e, job, 0, -1), 410, job);
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 410, job);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
}

/* Registers `count` jobs, trains and evicts each, and returns the bytes that the last half of them
 * has left in use. */
static size_t bytes_of_evicted(engine *e, int count) {
    size_t half = 0;
    for (int i = 0; i < count; i++) {
        if (i == count / 2) half = mallinfo2().uordblks;
        const char *job = job_of(e, 2, NULL);
        (void)whole_round(e, job, 2, 0, 1);
        expect(ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL), 200, "null");
        engine_settle(e);
        engine_free_ids(e);
    }
    size_t now = mallinfo2().uordblks;
    return now > half ? now - half : 0;
}

ENGINE_TEST(evicted_job_leaves_little_behind) {
    enum { JOBS = 1000, KEPT_BYTES = 600 };
    e->settings.max_finished_jobs = 10;
    (void)snprintf(e->where, sizeof e->where, "memory");
    engine_start(e);
    size_t bytes = bytes_of_evicted(e, JOBS);
    /* The store keeps their ids too. A sanitizer's allocator counts nothing here. */
    if (bytes >= KEPT_BYTES * JOBS / 2)
        fail_msg("%zu bytes for each evicted job", bytes / (JOBS / 2));
    const char *last = job_of(e, 2, NULL);
    expect(ask(e, HARPE_CALL_EVICT, last, 0, -1, NULL), 200, "null");
    engine_settle(e);
    assert_null(e->jobs->table.leaving->ranks);
    assert_int_equal(e->jobs->table.count - e->jobs->table.evicted_count, 1);
    assert_int_equal(e->jobs->table.evicted_count, JOBS);
    expect(ask_schedule(e, last, 0, -1), 410, last);
}

static harpe_job *add_job_to(harpe_job_table *table, int number) {
    char id[16];
    (void)snprintf(id, sizeof id, "job%d", number);
    harpe_job *job = harpe_job_new(NULL, strdup(id), NULL);
    assert_true(harpe_job_table_add(table, job));
    return job;
}

static void evict_from(harpe_job_table *table, harpe_job *job) {
    harpe_job_table_retire(table, job);
    job->is_evicted = true;
}

TEST(only_the_latest_evicted_jobs_are_known) {
    harpe_job_table table = {0};
    harpe_job *first = add_job_to(&table, 0);
    first->operations = 1; /* a worker is still running for it */
    evict_from(&table, first);
    for (int i = 1; i < HARPE_EVICTED_KEPT + 10; i++)
        evict_from(&table, add_job_to(&table, i));
    /* The last one is freed by the next eviction. */
    assert_ptr_equal(harpe_job_table_find(&table, "job0"), first);
    assert_int_equal(table.count - table.evicted_count, 2);
    assert_int_equal(table.evicted_count, HARPE_EVICTED_KEPT);
    first->operations = 0;
    evict_from(&table, add_job_to(&table, HARPE_EVICTED_KEPT + 10));
    assert_int_equal(table.count - table.evicted_count, 1);
    assert_int_equal(table.evicted_count, HARPE_EVICTED_KEPT);
    assert_null(harpe_job_table_find(&table, "job0"));
    assert_true(harpe_job_table_has_evicted(&table, "job0"));
    assert_false(harpe_job_table_has_evicted(&table, "job9"));
    assert_true(harpe_job_table_has_evicted(&table, "job12"));
    assert_true(harpe_job_table_has_evicted(&table, "job100009"));
    assert_non_null(harpe_job_table_find(&table, "job100010"));
    harpe_job_table_free(&table);
}

static asked *ask_with_metadata(engine *e, size_t length) {
    char *text = calloc(length + 1, 1);
    memset(text, 'm', length);
    asked *a = ask_register_job(e, 1, "job_metadata", text);
    free(text);
    return a;
}

STARTED_TEST(metadata_has_a_limit) {
    expect(ask_with_metadata(e, 65536), 200, NULL);
    expect(ask_with_metadata(e, 65537), 422, "\"limit_value\":65536");
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
}

/* Advances both clocks, and the server checks for idle jobs. */
static void pass(engine *e, double seconds) {
    engine_clock_s += seconds;
    engine_steady_s += seconds;
    if (e->jobs) harpe_jobs_check_idle(e->jobs);
    if (e->jobs) engine_settle(e);
}

static void start_with_clocks(engine *e, int64_t idle_s) {
    e->settings.max_job_idle_time_s = idle_s;
    engine_clock_s = 1.7e9;
    engine_steady_s = 5000;
    engine_start(e);
}

ENGINE_TEST(idle_job_is_evicted_and_a_busy_one_stays) {
    start_with_clocks(e, 100);
    const char *idle = job_of(e, 2, "idle");
    const char *busy = job_of(e, 2, "busy");
    asked *held = ask_schedule(e, idle, 0, -1);
    pass(e, 99);
    expect_held(e, held);
    expect(ask_register_rank(e, busy, 0, 0), 200, "null");
    /* Reading a job does not count as a request of the job. */
    expect(ask(e, HARPE_CALL_SHOW, idle, 0, -1, NULL), 200, "gathering");
    pass(e, 1);
    expect(held, 410, "evicted");
    expect(ask_schedule(e, idle, 0, -1), 410, "evicted");
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    /* The time of the last request is stored. Time without a server does not count as idle. */
    engine_settle(e);
    engine_stop(e);
    pass(e, 1000);
    engine_start(e);
    asked *shown = ask(e, HARPE_CALL_SHOW, busy, 0, -1, NULL);
    expect(shown, 200, "\"last_seen\":1700000099");
    pass(e, 0);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    pass(e, 100);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
}

ENGINE_TEST(clock_that_is_set_evicts_nobody) {
    start_with_clocks(e, 100);
    const char *job = job_of(e, 2, NULL);
    char registered[64];
    (void)snprintf(registered, sizeof registered, "\"registered_at\":%" PRId64 ",",
                   harpe_job_table_find(&e->jobs->table, job)->registered_s);
    asked *held = ask_schedule(e, job, 0, -1);
    for (int jump = 0; jump < 3; jump++) {
        static const double to_s[] = {1.7e9 + 8 * 86400, 3, 4.0e9};
        engine_clock_s = to_s[jump];
        pass(e, 10);
        expect_held(e, held);
        expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, registered);
    }
    /* The last request was 30 s ago, by the present clock. */
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, "\"last_seen\":3999999980,");
    engine_clock_s = 1.6e9;
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, "\"last_seen\":1599999970,");
    expect(ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL), 200, registered);
    pass(e, 69);
    expect_held(e, held);
    pass(e, 1);
    expect(held, 410, "evicted");
}

/* The time between two runs does not count, whatever the clocks show. */
ENGINE_TEST(idle_time_of_several_runs_is_added) {
    start_with_clocks(e, 10000);
    (void)job_of(e, 2, NULL);
    pass(e, 4000);
    for (int run = 0; run < 2; run++) {
        engine_stop(e);
        engine_clock_s = run == 0 ? 4.0e9 : 1.0e9;
        engine_steady_s = 17; /* the machine was booted in between */
        engine_start(e);
        pass(e, run == 0 ? 3000 : 2000);
        assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    }
    /* The job is idle for 9000 s at the start. Clients then have an hour for a request. */
    engine_restart(e);
    pass(e, 3599);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    pass(e, 1);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
}

ENGINE_TEST(job_that_sends_requests_after_a_restart_is_young) {
    start_with_clocks(e, 10000);
    const char *job = job_of(e, 2, NULL);
    pass(e, 9990);
    engine_restart(e);
    expect(ask_register_rank(e, job, 0, 0), 200, "null");
    pass(e, 9999);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
    engine_restart(e);
    pass(e, 3600);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 0);
}

/* Uses the system's clocks and the timer of the loop, without an explicit check. */
ENGINE_TEST(timer_evicts_a_job_that_idles) {
    e->settings.max_job_idle_time_s = 60; /* the job does not idle before it is complete */
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    asked *held = ask_schedule(e, job, 0, -1);
    e->settings.max_job_idle_time_s = 1;
    expect(held, 410, "evicted");
    expect(ask_schedule(e, job, 0, -1), 410, "evicted");
}

/* ---- Final reports --------------------------------------------------------------------------- */

static void evict(engine *e, const char *job) {
    expect(ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL), 200, "null");
    engine_settle(e);
}

static const char *finished_job(engine *e, const char *metadata) {
    const char *job = job_of(e, 2, metadata);
    (void)whole_round(e, job, 2, 0, 5);
    evict(e, job);
    return job;
}

STARTED_TEST(final_report_of_an_evicted_job_survives_restarts) {
    expect(ask(e, HARPE_CALL_FINISHED, NULL, 0, -1, NULL), 200,
           "{\"jobs\":[],\"count\":0,\"sums\":{\"jobs\":0,");
    const char *first = finished_job(e, "first");
    const char *second = finished_job(e, "second");
    const char *idle = job_of(e, 2, "had no round");
    evict(e, idle);
    for (int run = 0; run < 3; run++) {
        asked *list = ask(e, HARPE_CALL_FINISHED, NULL, 0, -1, NULL);
        expect(list, 200, "\"count\":2,");
        expect(ask(e, HARPE_CALL_FINISHED, NULL, 1, 1, NULL), 200, "\"job_metadata\":\"first\"");
        expect(ask(e, HARPE_CALL_FINISHED, NULL, 0, 1, NULL), 200, "\"job_metadata\":\"second\"");
        expect(ask(e, HARPE_CALL_FINISHED, first, 0, -1, NULL), 200, "\"iterations\":");
        expect(ask(e, HARPE_CALL_FINISHED, second, 0, -1, NULL), 200, "\"report\":{");
        expect(ask(e, HARPE_CALL_FINISHED, idle, 0, -1, NULL), 404, "max_finished_jobs");
        expect(ask(e, HARPE_CALL_SHOW, first, 0, -1, NULL), 410, first);
        engine_restart(e);
    }
}

ENGINE_TEST(only_the_newest_final_reports_are_kept) {
    const char *jobs[5];
    e->settings.max_finished_jobs = 3;
    engine_start(e);
    for (int i = 0; i < 5; i++)
        jobs[i] = finished_job(e, "one of many");
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < 5; i++)
            expect(ask(e, HARPE_CALL_FINISHED, jobs[i], 0, -1, NULL), i < 2 ? 404 : 200, jobs[i]);
        if (run == 1) e->settings.max_finished_jobs = 10; /* the others have been deleted */
        engine_restart(e);
    }
    e->settings.max_finished_jobs = 0;
    engine_restart(e);
    expect(ask(e, HARPE_CALL_FINISHED, NULL, 0, -1, NULL), 200, "\"count\":0,");
}

ENGINE_TEST(old_final_reports_are_forgotten) {
    e->settings.max_finished_job_time_s = 500;
    start_with_clocks(e, 10000);
    const char *old = finished_job(e, "old");
    pass(e, 300);
    const char *young = finished_job(e, "young");
    engine_restart(e);
    engine_clock_s = 4.0e9; /* a wrong wall clock deletes no report */
    pass(e, 200);
    expect(ask(e, HARPE_CALL_FINISHED, old, 0, -1, NULL), 200, "old");
    pass(e, 2);
    expect(ask(e, HARPE_CALL_FINISHED, old, 0, -1, NULL), 404, "500 s");
    expect(ask(e, HARPE_CALL_FINISHED, young, 0, -1, NULL), 200, "young");
    engine_restart(e);
    expect(ask(e, HARPE_CALL_FINISHED, NULL, 0, -1, NULL), 200, "\"count\":1,");
    pass(e, 301);
    expect(ask(e, HARPE_CALL_FINISHED, NULL, 0, -1, NULL), 200, "\"count\":0,");
}

ENGINE_TEST(eviction_does_not_wait_for_a_slow_scheduler) {
    free(e->settings.dump_dir);
    e->settings.dump_dir = strdup(e->directory);
    e->settings.dump_data = true;
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 2, "slow");
    asked *held = ask_schedule(e, job, 0, -1);
    expect(ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL), 200, "null");
    expect(held, 410, "evicted");
    engine_settle(e);
}

/* ---- Looking at it --------------------------------------------------------------------------- */

ENGINE_TEST(list_and_show_tell_the_state) {
    engine_clock_s = 1.7e9;
    engine_start(e);
    const char *first = job_of(e, 2, "first");
    engine_clock_s += 1;
    const char *second = register_job(e, 3, "second");
    expect(ask_register_rank(e, second, 2, 2), 200, "null");
    (void)whole_round(e, first, 2, 0, -1);
    expect(ask_result(e, first, 1, -1, 4), 200, "null");
    asked *list = ask(e, HARPE_CALL_LIST, NULL, 0, 100, NULL);
    assert_true(strstr(list->body, second) < strstr(list->body, first));
    expect(list, 200, "\"state\":\"registering\"");
    list = ask(e, HARPE_CALL_LIST, NULL, 1, 1, NULL);
    assert_null(strstr(list->body, second));
    expect(list, 200, "\"ranks_reported\":1");
    expect(ask(e, HARPE_CALL_SHOW, first, 0, -1, NULL), 200,
           "{\"rank\":1,\"state\":\"reported\",\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0}");
    expect(ask(e, HARPE_CALL_SHOW, first, 0, -1, NULL), 200, "\"state\":\"running\"");
    expect(ask(e, HARPE_CALL_SHOW, second, 0, -1, NULL), 200, "{\"rank\":0,\"state\":\"unknown\"}");
}

STARTED_TEST(stopping_engine_answers_all) {
    const char *job = job_of(e, 2, NULL);
    asked *held = ask_schedule(e, job, 0, -1);
    asked *storing = ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL);
    harpe_jobs_stop(e->jobs);
    expect(held, 503, "stopping");
    expect(ask_schedule(e, job, 1, -1), 503, "stopping");
    await(storing);
    asked_free(storing);
    engine_settle(e);
}

int main(void) { return run_listed_tests(); }
