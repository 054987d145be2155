/* SPDX-License-Identifier: Apache-2.0 */
/* Plan sets with an effort and on several threads: no plan becomes worse, the work ends when it is
 * told to or when nothing is left, and without an effort the plans do not depend on the number of
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <sched.h>

#include "base/clock.h"
#include "search_parts.h"

static harpe_problem *usual_problem(uint64_t seed, int ranks, int microbatches, int most_options) {
    test_random random = {seed};
    harpe_schedule_options options = {.ranks = ranks, .microbatches = microbatches};
    harpe_schedule *schedule = schedule_of(&options);
    test_profile_shape shape = {.character = CHARACTER_MEASURED,
                                .fewest_options = most_options > 1 ? 6 : 1,
                                .most_options = most_options};
    test_rows rows = make_rows(schedule, &shape, &random);
    harpe_problem *problem = problem_from_rows(&rows, &options, 80);
    harpe_schedule_free(schedule);
    free(rows.rows);
    return problem;
}

static harpe_plan_set *plans_of(const harpe_problem *problem, const harpe_plan_request *request) {
    harpe_plan_set *plans = NULL;
    harpe_error error = {.message = ""};
    assert_ok(harpe_plan_set_new(problem, request, NULL, NULL, &plans, &error), error);
    return plans;
}

/* ---- Effort ---------------------------------------------------------------------------------- */

/* Checks the plans for five times. Returns how many became better. */
static int check_not_worse(const harpe_plan_set *before, const harpe_plan_set *after,
                           const double *times_s) {
    int better = 0;
    assert_int_equal(harpe_plan_set_count(after), 5);
    for (size_t k = 0; k < 5; k++) {
        const harpe_plan *was = harpe_plan_set_at(before, k);
        const harpe_plan *is = harpe_plan_set_at(after, k);
        assert_true(is->time_s <= times_s[k] * (1 + 1e-9) + 1e-10);
        assert_true(is->energy_j <= was->energy_j + 1e-9 * fabs(was->energy_j));
        better += is->energy_j < was->energy_j * (1 - 1e-7);
    }
    return better;
}

static void effort_never_makes_a_plan_worse(void **state) {
    (void)state;
    test_random random = {81};
    int better = 0;
    for (int trial = 0; trial < few_trials(9); trial++) {
        harpe_problem *problem = trial % 9 == 0 ? usual_problem(random_bits(&random), 5, 14, 12)
                                                : any_problem(&random, 3 * trial, 4, 5);
        harpe_frontier *frontier = NULL;
        harpe_error error = {.message = ""};
        assert_ok(harpe_frontier_new(problem, NULL, &frontier, &error), error);
        size_t count = 0;
        const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
        double times_s[5], range_s = v[count - 1].time_s - v[0].time_s;
        for (int k = 0; k < 5; k++)
            times_s[k] = v[0].time_s + range_s * k / 4;
        times_s[4] = 2 * v[count - 1].time_s;
        harpe_plan_request request = {
            .choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 5, .count = 4};
        harpe_plan_set *before = plans_of(problem, &request);
        /* A busy machine may need a longer effort for the first better plan. */
        bool must_improve = trial % 9 == 0;
        request.effort_s = must_improve ? 0.15 : 0.05;
        do {
            harpe_plan_set *after = plans_of(problem, &request);
            better += check_not_worse(before, after, times_s);
            assert_ok(harpe_plan_set_verify(problem, frontier, after, &error), error);
            harpe_plan_set_free(after);
            request.effort_s *= 2;
        } while (must_improve && better == 0 && request.effort_s < 60);
        harpe_plan_set_free(before);
        harpe_frontier_free(frontier);
        harpe_problem_free(problem);
    }
    printf("%d plans became better\n", better);
    assert_true(better > 0);
}

/* With a single option each plan is its bound, so there is nothing to improve. */
static void effort_ends_when_nothing_is_left(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        harpe_problem *problem = usual_problem(82, 3, 4, 1);
        double began_s = harpe_clock_s();
        harpe_plan_set *plans =
            plans_of(problem, &(harpe_plan_request){.effort_s = 1000, .threads = threads});
        assert_true(harpe_clock_s() - began_s < 100);
        assert_int_equal(harpe_plan_set_count(plans), 1);
        harpe_plan_set_free(plans);
        harpe_problem_free(problem);
    }
}

static void bad_efforts_and_threads_are_refused(void **state) {
    (void)state;
    harpe_problem *problem = usual_problem(83, 2, 2, 6);
    const harpe_plan_request bad[] = {{.effort_s = -1},
                                      {.effort_s = NAN},
                                      {.effort_s = 1.1e6},
                                      {.effort_s = INFINITY},
                                      {.threads = -1}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        harpe_plan_set *plans = NULL;
        harpe_error error = {.message = ""};
        assert_int_equal(harpe_plan_set_new(problem, &bad[k], NULL, NULL, &plans, &error),
                         HARPE_INVALID_ARGUMENT);
        assert_null(plans);
        assert_non_null(strstr(error.message, bad[k].threads < 0 ? "threads" : "effort"));
    }
    harpe_problem_free(problem);
}

/* ---- Asked times ----------------------------------------------------------------------------- */

/* Stores the mean gap of the first report that has one. */
static bool take_gap(void *user, const char *phase, double fraction) {
    double *percent = user;
    const char *at = strstr(phase, "mean gap ");
    (void)fraction;
    if (at && isnan(*percent)) *percent = strtod(at + strlen("mean gap "), NULL);
    return true;
}

/* Plans of other times are made to join them, but an effort works on those that were asked for. */
static void effort_works_on_the_asked_plans(void **state) {
    (void)state;
    harpe_problem *problem = usual_problem(85, 3, 6, 9);
    harpe_plan_request request = {.count = 3, .threads = 1};
    harpe_plan_set *plans = plans_of(problem, &request);
    double time_s = harpe_plan_set_at(plans, 1)->time_s, percent = NAN;
    harpe_plan_set_free(plans);
    request = (harpe_plan_request){
        .choice = HARPE_PLANS_AT, .times_s = &time_s, .time_count = 1, .threads = 1};
    plans = plans_of(problem, &request);
    const harpe_plan *before = harpe_plan_set_at(plans, 0);
    double gap_percent = 100 * (before->energy_j / before->lower_bound_j - 1);
    harpe_plan_set_free(plans);
    const harpe_progress progress = {take_gap, &percent};
    harpe_error error = {.message = ""};
    request.effort_s = 0.1;
    assert_ok(harpe_plan_set_new(problem, &request, &progress, NULL, &plans, &error), error);
    assert_true(gap_percent > 0.001 && fabs(percent - gap_percent) < 0.0002);
    harpe_plan_set_free(plans);
    harpe_problem_free(problem);
}

/* Counts the threads of this process that make plans, except for the first one. */
static int count_helpers(void) {
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    int count = 0;
    for (struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        char path[300], name[32] = "";
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue; /* it has ended, or "." */
        if (fgets(name, sizeof name, file)) count += strncmp(name, "harpe-plan", 10) == 0;
        (void)fclose(file);
    }
    (void)closedir(tasks);
    return count;
}

/* Stops the effort once, when the wanted number of threads was seen. */
static bool watch_threads(void *user, const char *phase, double fraction) {
    int *wanted = user;
    (void)fraction;
    if (*wanted == 0 || strncmp(phase, "improving", 9) != 0 || count_helpers() < *wanted)
        return true;
    *wanted = 0;
    return false;
}

/* All threads work on a single plan. */
static void a_single_plan_occupies_all_threads(void **state) {
    (void)state;
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    int threads = CPU_COUNT(&cores) < 4 ? CPU_COUNT(&cores) : 4, wanted = threads - 1;
    if (threads < 2) skip_because("hardware: a second core");
    harpe_problem *problem = usual_problem(86, 6, 12, 12);
    harpe_frontier *frontier = NULL;
    harpe_plan_set *plans = NULL;
    harpe_error error = {.message = ""};
    assert_ok(harpe_frontier_new(problem, NULL, &frontier, &error), error);
    size_t count = 0;
    const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
    double middle_s = (v[0].time_s + v[count - 1].time_s) / 2;
    harpe_frontier_free(frontier);
    const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                        .times_s = &middle_s,
                                        .time_count = 1,
                                        .count = 3,
                                        .threads = threads,
                                        .effort_s = 120};
    const harpe_progress progress = {watch_threads, &wanted};
    assert_ok(harpe_plan_set_new(problem, &request, &progress, &frontier, &plans, &error), error);
    assert_int_equal(wanted, 0);
    assert_ok(harpe_plan_set_verify(problem, frontier, plans, &error), error);
    harpe_plan_set_free(plans);
    harpe_frontier_free(frontier);
    harpe_problem_free(problem);
}

/* Above 2,000 instructions there are dives only with an effort. */
static void an_effort_improves_a_large_problem(void **state) {
    (void)state;
    harpe_problem *problem = usual_problem(87, 6, 180, 12);
    assert_true(problem->instruction_count > 2000);
    harpe_plan_request request = {.count = 3};
    harpe_frontier *frontier = NULL;
    harpe_plan_set *before = plans_of(problem, &request), *after = NULL;
    harpe_error error = {.message = ""};
    double was_j = harpe_plan_set_at(before, 1)->energy_j, is_j = was_j;
    double time_s = harpe_plan_set_at(before, 1)->time_s;
    request = (harpe_plan_request){
        .choice = HARPE_PLANS_AT, .times_s = &time_s, .time_count = 1, .count = 3, .effort_s = 2};
    for (; is_j >= was_j * (1 - 1e-7) && request.effort_s < 200; request.effort_s *= 4) {
        assert_ok(harpe_plan_set_new(problem, &request, NULL, &frontier, &after, &error), error);
        assert_ok(harpe_plan_set_verify(problem, frontier, after, &error), error);
        is_j = harpe_plan_set_at(after, 0)->energy_j;
        assert_true(harpe_plan_set_at(after, 0)->time_s <= time_s * (1 + 1e-9));
        harpe_plan_set_free(after);
        harpe_frontier_free(frontier);
    }
    assert_true(is_j < was_j * (1 - 1e-7));
    harpe_plan_set_free(before);
    harpe_problem_free(problem);
}

/* ---- Stopping -------------------------------------------------------------------------------- */

typedef struct listener {
    const char *stop_at; /* phase; NULL: never */
    bool has_stopped;
    int improving;
    double fraction;
} listener;

static bool listen(void *user, const char *phase, double fraction) {
    listener *l = user;
    assert_false(l->has_stopped && strncmp(phase, "improving", 9) == 0);
    assert_true(fraction >= l->fraction && fraction <= 1);
    l->fraction = fraction;
    if (strncmp(phase, "improving", 9) == 0) {
        l->improving++;
        assert_non_null(strstr(phase, "mean gap"));
    }
    if (!l->stop_at || l->has_stopped || strncmp(phase, l->stop_at, strlen(l->stop_at)) != 0)
        return true;
    l->has_stopped = true;
    return false;
}

static void reports_can_stop_each_phase(void **state) {
    (void)state;
    static const char *const phases[] = {"solving", "planning", "improving", NULL};
    for (int threads = 1; threads <= 4; threads += 3) {
        for (int k = 0; k < 4; k++) {
            harpe_problem *problem = usual_problem(84, 3, 4, 9);
            listener l = {.stop_at = phases[k]};
            const harpe_progress progress = {listen, &l};
            const harpe_plan_request request = {
                .count = 6, .effort_s = k == 2 ? 1000 : 0.05, .threads = threads};
            harpe_plan_set *plans = NULL;
            harpe_frontier *frontier = NULL;
            harpe_error error = {.message = ""};
            harpe_status status =
                harpe_plan_set_new(problem, &request, &progress, &frontier, &plans, &error);
            if (k < 2) {
                assert_int_equal(status, HARPE_INTERRUPTED);
                assert_null(plans);
                assert_null(frontier);
                assert_int_equal(l.improving, 0);
            } else {
                assert_ok(status, error);
                assert_true(harpe_plan_set_count(plans) > 1 && l.improving > 0);
                assert_true(l.fraction == 1);
                assert_ok(harpe_plan_set_verify(problem, frontier, plans, &error), error);
            }
            harpe_plan_set_free(plans);
            harpe_frontier_free(frontier);
            harpe_problem_free(problem);
        }
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void sets_do_not_depend_on_threads(void **state) {
    (void)state;
    test_random random = {85};
    for (int trial = 0; trial < few_trials(12); trial++) {
        harpe_problem *problem = any_problem(&random, trial, 4, 5);
        const double times_s[] = {1e4, 1e3};
        harpe_plan_request request = {.choice = (harpe_plan_choice)(trial % 3),
                                      .count = 7,
                                      .times_s = times_s,
                                      .time_count = 2,
                                      .threads = 1};
        if (trial % 2 && !problem->graph) request.clock_switch.minimum_dwell_s = 0.1;
        harpe_plan_set *one = plans_of(problem, &request);
        for (int threads = 4; threads >= 0; threads -= 4) {
            request.threads = threads;
            harpe_plan_set *many = plans_of(problem, &request);
            assert_int_equal(harpe_plan_set_count(one), harpe_plan_set_count(many));
            for (size_t k = 0; k < harpe_plan_set_count(one); k++) {
                const harpe_plan *a = harpe_plan_set_at(one, k), *b = harpe_plan_set_at(many, k);
                assert_true(a->time_s == b->time_s && a->energy_j == b->energy_j);
                assert_memory_equal(a->frequency_mhz, b->frequency_mhz,
                                    (size_t)problem->instruction_count * sizeof(int));
            }
            harpe_plan_set_free(many);
        }
        harpe_plan_set_free(one);
        harpe_problem_free(problem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effort_never_makes_a_plan_worse),
        cmocka_unit_test(effort_ends_when_nothing_is_left),
        cmocka_unit_test(bad_efforts_and_threads_are_refused),
        cmocka_unit_test(effort_works_on_the_asked_plans),
        cmocka_unit_test(a_single_plan_occupies_all_threads),
        cmocka_unit_test(reports_can_stop_each_phase),
        cmocka_unit_test(sets_do_not_depend_on_threads),
        cmocka_unit_test(an_effort_improves_a_large_problem), /* the last one takes long */
    };
    size_t count = sizeof tests / sizeof tests[0] - !all_trials();
    return _cmocka_run_group_tests("search", tests, count, NULL, NULL);
}
