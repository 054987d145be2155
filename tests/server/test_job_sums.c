/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a job's results over restarts of the server: each result counts exactly once,
 * whatever round the server stopped in, and no wrong sum is shown before the stored results are
 * counted. */
#include "test.h"

#include <sqlite3.h>

#include "engine.h"

enum { RANKS = 3 };
#define RESULT_J 2.5 /* the energy of a result of ask_result */

static const harpe_figures *figures_of(engine *e, const char *id) {
    const harpe_job *job = harpe_job_table_find(&e->jobs->table, id);
    assert_non_null(job);
    return &job->figures;
}

/* Runs the loop until the sums are known. */
static const harpe_figures *known_figures(engine *e, const char *id) {
    engine_settle(e);
    const harpe_figures *figures = figures_of(e, id);
    assert_true(figures->is_known);
    return figures;
}

/* Checks the sums over `results` results, and the power in the last round that is over. */
static void assert_sums(engine *e, const char *id, int results, int iterations, double power_w) {
    const harpe_figures *figures = known_figures(e, id);
    bool is_right = fabs(figures->used_energy_j - results * RESULT_J) < 1e-9 &&
                    figures->iterations == iterations && fabs(figures->power_w - power_w) < 1e-9;
    if (!is_right)
        fail_msg("%d results: %g J in %lld iterations, %g W in the last round", results,
                 figures->used_energy_j, (long long)figures->iterations, figures->power_w);
}

static void stop_in_each_place_of_a_round(engine *e, const char *metadata) {
    engine_start(e);
    const char *job = job_of(e, RANKS, metadata);
    assert_sums(e, job, 0, 0, 0);
    engine_restart(e);
    assert_sums(e, job, 0, 0, 0);
    (void)whole_round(e, job, RANKS, 0, 10);
    double first_w = RANKS * RESULT_J / 12, second_w = RANKS * RESULT_J / 22;
    assert_sums(e, job, RANKS, 1, first_w);
    engine_restart(e);
    assert_sums(e, job, RANKS, 1, first_w);
    (void)whole_round(e, job, RANKS, 1, -1);
    engine_restart(e);
    assert_sums(e, job, RANKS, 1, first_w);
    for (int r = 0; r < RANKS; r++) {
        expect(ask_result(e, job, r, 1, 20 + r), 200, "null");
        engine_restart(e);
        bool is_over = r == RANKS - 1;
        if (!is_over) (void)known_figures(e, job);
        if (is_over) assert_sums(e, job, 2 * RANKS, 2, second_w);
    }
    (void)whole_round(e, job, RANKS, 2, 30);
    assert_sums(e, job, 3 * RANKS, 3, RANKS * RESULT_J / 32);
}

ENGINE_TEST(every_result_counts_once) { stop_in_each_place_of_a_round(e, NULL); }

ENGINE_TEST(every_result_of_a_finished_scheduler_counts_once) {
    stop_in_each_place_of_a_round(e, "finished");
}

ENGINE_TEST(every_result_of_a_replayed_scheduler_counts_once) {
    e->kind.class = &learner_with_history;
    stop_in_each_place_of_a_round(e, NULL);
}

STARTED_TEST(failed_job_keeps_its_sums) {
    const char *job = job_of(e, RANKS, "fail observe");
    (void)whole_round(e, job, RANKS, 0, 10);
    engine_settle(e);
    engine_restart(e);
    assert_sums(e, job, RANKS, 1, RANKS * RESULT_J / 12);
}

static char *show(engine *e, const char *job) {
    asked *a = ask(e, HARPE_CALL_SHOW, job, 0, -1, NULL);
    assert_true(a->is_answered);
    char *body = a->body;
    a->body = NULL;
    asked_free(a);
    return body;
}

/* Before the loop runs, nothing is counted. */
STARTED_TEST(sums_are_not_shown_before_they_are_known) {
    const char *job = job_of(e, RANKS, NULL);
    (void)whole_round(e, job, RANKS, 0, 10);
    engine_restart(e);
    assert_false(figures_of(e, job)->is_known);
    char *body = show(e, job);
    assert_non_null(strstr(body, "\"figures\":{\"energy\":null,\"time\":null,\"power\":null,"));
    free(body);
    (void)known_figures(e, job);
    body = show(e, job);
    assert_non_null(strstr(body, "\"figures\":{\"energy\":7.5,"));
    free(body);
}

/* Such a store has no sums. They begin with the round that ran, once the scheduler is made, which
 * may know more. */
STARTED_TEST(store_of_an_older_version_has_no_sums) {
    const char *job = job_of(e, RANKS, NULL);
    for (int round = 0; round < 3; round++)
        (void)whole_round(e, job, RANKS, round, 10);
    engine_settle(e);
    engine_stop(e);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(e->where + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM job_sums", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    engine_start(e);
    assert_false(figures_of(e, job)->is_known);
    assert_sums(e, job, RANKS, 1, RANKS * RESULT_J / 12);
}
