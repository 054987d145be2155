/* SPDX-License-Identifier: Apache-2.0 */
/* Tens of thousands of calls of one job that are answered together, on a stack that is too small
 * for one level of recursion per call. */
#include "test.h"

#include <sys/resource.h>

#include "engine.h"

enum { MANY = 40000, STACK_BYTES = 512 << 10 };

/* The main thread's stack grows up to the current limit. */
static int limit_stack(void **state) {
    (void)state;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit)) return -1;
    limit.rlim_cur = STACK_BYTES;
    return setrlimit(RLIMIT_STACK, &limit);
}

typedef asked *(*asking)(engine *e, const char *job, int number);

static asked **ask_many(engine *e, const char *job, asking one) {
    asked **all = calloc(MANY, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < MANY; i++)
        all[i] = one(e, job, i);
    return all;
}

static void expect_many(asked **all, int status, const char *contained) {
    for (int i = 0; i < MANY; i++)
        expect(all[i], status, contained);
    free(all);
}

/* ---- The queue of a job ---------------------------------------------------------------------- */

static asked *ask_plan(engine *e, const char *job, int number) {
    (void)number;
    return ask(e, HARPE_CALL_PLAN, job, 0, -1, "{\"time\":3}");
}

static asked *ask_plan_or_frontier(engine *e, const char *job, int number) {
    return number % 2 == 1 ? ask(e, HARPE_CALL_FRONTIER, job, 0, -1, NULL)
                           : ask_plan(e, job, number);
}

ENGINE_TEST(queued_job_requests_that_nobody_takes_are_refused) {
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 2, "slow");
    expect_many(ask_many(e, job, ask_plan), 409, "serves one plan");
    (void)whole_round(e, job, 2, 0, 1);
}

STARTED_TEST(queued_calls_end_with_the_job_that_fails) {
    const char *job = job_of(e, 2, "fail create");
    expect_many(ask_many(e, job, ask_plan_or_frontier), 500, "plan.py has 4 lists");
}

STARTED_TEST(queued_calls_end_with_the_job_that_is_evicted) {
    const char *job = job_of(e, 2, "slow");
    asked **queued = ask_many(e, job, ask_plan_or_frontier);
    asked *eviction = ask(e, HARPE_CALL_EVICT, job, 0, -1, NULL);
    asked **later = ask_many(e, job, ask_plan);
    expect(eviction, 200, "null");
    expect_many(queued, 410, "was evicted");
    expect_many(later, 410, "was evicted");
}

/* ---- Calls that wait for another one --------------------------------------------------------- */

static asked *ask_first_rank(engine *e, const char *job, int number) {
    (void)number;
    return ask_register_rank(e, job, 0, 0);
}

static asked *ask_same_key(engine *e, const char *job, int number) {
    (void)job;
    (void)number;
    return ask_with_key(e, "one", 2);
}

STARTED_TEST(registrations_of_one_rank_are_all_answered) {
    const char *job = register_job(e, 2, NULL);
    expect_many(ask_many(e, job, ask_first_rank), 200, "null");
    assert_int_equal(harpe_jobs_count(e->jobs).ranks, 1);
}

STARTED_TEST(registrations_of_one_key_are_all_answered) {
    expect_many(ask_many(e, NULL, ask_same_key), 200, NULL);
    assert_int_equal(harpe_jobs_count(e->jobs).jobs, 1);
}

int main(void) { return run_listed_tests_within(limit_stack, NULL); }
