/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a run: the result does not depend on their number, each number is worked on
 * once, failures and stops end the run, and the calling thread reports
 * until the end. The linker wraps sched_getaffinity, so that there are as many cores as a test
 * wants. */
#include "test.h"

#include <stdatomic.h>

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "plan/search_internal.h"
#include "search_parts.h"

static size_t cores = 64;

/* The linker's --wrap gives these names. */
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    (void)pid;
    assert_int_equal(size, sizeof *set);
    CPU_ZERO(set);
    for (size_t k = 0; k < cores; k++)
        CPU_SET(k, set);
    return 0;
}

static void parts_usual(parts *p, uint64_t seed) {
    parts_init(p, usual_1f1b(&(test_random){seed}, 3, 4, 6, 9));
}

static void crew_init(harpe_crew *crew, const parts *p, int threads) {
    assert_works(harpe_crew_init(crew, p->problem, &p->walk.network, threads, &failure));
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = 1000000L * ms}, NULL); }

/* ---- Steps ----------------------------------------------------------------------------------- */

#define NUMBERS 40

typedef struct shared {
    const parts *p;
    int64_t deadline_ps;
    int32_t option[NUMBERS][64]; /* results */
    double energy_j[NUMBERS];
    atomic_int begun, steps[NUMBERS], at_work[NUMBERS];
    size_t failing;                 /* number whose step fails; NUMBERS: none */
    atomic_int reports, stop_after; /* 0: never */
    size_t last_begun;
} shared;

static void shared_init(shared *s, const parts *p) {
    memset(s, 0, sizeof *s);
    s->p = p;
    s->deadline_ps = time_at(p, 0.4);
    s->failing = NUMBERS;
}

/* Improves the fastest plan with the thread's own tools. Each number has its own budget. */
static harpe_status improve(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    shared *s = user;
    harpe_assignment *a = &tools->assignment;
    assert_int_equal(atomic_fetch_add(&s->at_work[number], 1), 0);
    atomic_fetch_add(&s->begun, 1);
    atomic_fetch_add(&s->steps[number], 1);
    memset(tools->ordered, 0, (size_t)a->count * sizeof *tools->ordered);
    harpe_assignment_restore(a, tools->ordered, s->deadline_ps);
    harpe_status status = harpe_assignment_settle(a, s->deadline_ps, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, 100 * number, error);
    memcpy(s->option[number], a->option, (size_t)a->count * sizeof *a->option);
    s->energy_j[number] = a->energy_j;
    atomic_fetch_sub(&s->at_work[number], 1);
    if (number == s->failing) return harpe_fail(error, HARPE_INFEASIBLE, "number %zu", number);
    return status;
}

static bool count_report(void *user, size_t begun) {
    shared *s = user;
    s->last_begun = begun;
    int reports = atomic_fetch_add(&s->reports, 1) + 1;
    return s->stop_after == 0 || reports < s->stop_after;
}

/* ---- Each number once ------------------------------------------------------------------------ */

TEST(results_do_not_depend_on_the_number_of_threads) {
    static const int threads[] = {1, 2, 5, 64, 0};
    owned_parts p;
    parts_usual(&p, 61);
    static shared alone, many;
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        shared *s = k == 0 ? &alone : &many;
        AT_END(harpe_crew_clear) harpe_crew crew;
        shared_init(s, &p);
        crew_init(&crew, &p, threads[k]);
        assert_int_equal(crew.member_count, threads[k] ? threads[k] : 64);
        const harpe_crew_run run = {
            .count = NUMBERS, .step = improve, .report = count_report, .user = s};
        assert_works(harpe_crew_do(&crew, &run, &failure));
        if (k == 0) assert_int_equal(s->reports, NUMBERS);
        for (size_t n = 0; n < NUMBERS; n++)
            assert_int_equal(s->steps[n], 1);
        assert_memory_equal(s->option, alone.option, sizeof alone.option);
        assert_memory_equal(s->energy_j, alone.energy_j, sizeof alone.energy_j);
    }
}

TEST(crews_are_not_larger_than_the_machine) {
    owned_parts p;
    parts_usual(&p, 62);
    static const int expected[][3] = {{1, 0, 1}, {1, 8, 1},    {3, 0, 3},
                                      {3, 2, 2}, {200, 0, 64}, {200, 100, 64}};
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        AT_END(harpe_crew_clear) harpe_crew crew;
        cores = (size_t)expected[k][0];
        crew_init(&crew, &p, expected[k][1]);
        assert_int_equal(crew.member_count, expected[k][2]);
    }
    cores = 64;
}

TEST(nothing_to_do) {
    owned_parts p;
    parts_usual(&p, 63);
    AT_END(harpe_crew_clear) harpe_crew crew;
    crew_init(&crew, &p, 4);
    const harpe_crew_run run = {.step = improve};
    assert_works(harpe_crew_do(&crew, &run, &failure));
}

TEST(failures_and_stops_end_a_run) {
    owned_parts p;
    parts_usual(&p, 64);
    static shared s;
    for (int threads = 1; threads <= 8; threads++) {
        AT_END(harpe_crew_clear) harpe_crew crew;
        crew_init(&crew, &p, threads);
        for (int failing = 0; failing < 2; failing++) {
            shared_init(&s, &p);
            if (failing) s.failing = 5;
            if (!failing) s.stop_after = 3;
            const harpe_crew_run run = {
                .count = NUMBERS, .step = improve, .report = count_report, .user = &s};
            harpe_status status = harpe_crew_do(&crew, &run, &failure);
            if (failing || threads == 1 || status != HARPE_OK)
                assert_int_equal(status, failing ? HARPE_INFEASIBLE : HARPE_INTERRUPTED);
            if (failing) assert_string_equal(failure.message, "number 5");
            if (threads == 1) assert_int_equal(s.begun, failing ? 6 : 3);
        }
        /* The crew can be used again. */
        shared_init(&s, &p);
        const harpe_crew_run run = {.count = NUMBERS, .step = improve, .user = &s};
        assert_works(harpe_crew_do(&crew, &run, &failure));
        assert_int_equal(s.begun, NUMBERS);
    }
}

/* ---- Long steps ------------------------------------------------------------------------------ */

typedef struct long_step {
    pthread_t caller;
    atomic_int begun, reports;
    atomic_bool is_told, has_waited_too_long;
    bool stops;
} long_step;

/* The caller's step ends when another thread has begun the last step, which goes on until it was
 * reported five times. */
static harpe_status fail_together(void *user, harpe_tools *tools, size_t number,
                                  harpe_error *error) {
    (void)tools;
    atomic_size_t *begun = user;
    for (atomic_fetch_add(begun, 1); atomic_load(begun) < 4;)
        pause_ms(1);
    return harpe_fail(error, HARPE_INFEASIBLE, "number %zu", number);
}

/* A crew without a problem has no tools. */
TEST(of_several_failures_that_with_the_lowest_number_is_returned) {
    for (int trial = 0; trial < 5; trial++) {
        AT_END(harpe_crew_clear) harpe_crew crew;
        atomic_size_t begun = 0;
        assert_works(harpe_crew_init(&crew, NULL, NULL, 4, &failure));
        const harpe_crew_run run = {.count = 9, .step = fail_together, .user = &begun};
        assert_int_equal(harpe_crew_do(&crew, &run, &failure), HARPE_INFEASIBLE);
        assert_string_equal(failure.message, "number 0");
    }
}

static harpe_status outlast_the_caller(void *user, harpe_tools *tools, size_t number,
                                       harpe_error *error) {
    long_step *s = user;
    (void)tools;
    (void)number;
    (void)error;
    double limit_s = harpe_clock_s() + 20;
    atomic_fetch_add(&s->begun, 1);
    bool is_caller = pthread_equal(pthread_self(), s->caller) != 0;
    while (is_caller ? s->begun < 2 : s->reports < 5) {
        if (harpe_clock_s() > limit_s) s->has_waited_too_long = true;
        if (s->has_waited_too_long) break;
        pause_ms(1);
    }
    return HARPE_OK;
}

static bool report_of_the_caller(void *user, size_t begun) {
    long_step *s = user;
    (void)begun;
    assert_true(pthread_equal(pthread_self(), s->caller));
    return atomic_fetch_add(&s->reports, 1) + 1 < 5 || !s->stops;
}

/* The calling thread has no number left, and the last step of another one is long. */
TEST(the_caller_reports_while_others_work) {
    owned_parts p;
    parts_usual(&p, 66);
    AT_END(harpe_crew_clear) harpe_crew crew;
    crew_init(&crew, &p, 2);
    for (int stops = 0; stops < 2; stops++) {
        long_step s = {.caller = pthread_self(), .stops = stops == 1};
        const harpe_crew_run run = {
            .count = 2, .step = outlast_the_caller, .report = report_of_the_caller, .user = &s};
        assert_int_equal(harpe_crew_do(&crew, &run, NULL), s.stops ? HARPE_INTERRUPTED : HARPE_OK);
        assert_false(s.has_waited_too_long);
        assert_true(s.reports >= 5);
    }
}
