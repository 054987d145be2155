/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler in the time of a manual clock, on a GPU whose power the test sets: which
 * steps count, the content of a result, and the behaviour with a full ring or an unknown energy. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <harpe/profile.h>

#include "base/error.h"
#include "base/manual_clock.h"
#include "base/scratch.h"
#include "client/profiler_internal.h"

OWNER(harpe_instruction_profiler)
OWNER(harpe_profile)

/* ---- A GPU ----------------------------------------------------------------------------------- */

typedef struct test_gpu {
    _Atomic int failure; /* harpe_status of each reading */
    _Atomic bool has_restarted;
    bool has_no_counter;
    bool is_counter_still, has_no_power, fails_power;
    int64_t time_scale; /* GPU time; 0: 1 */
    int64_t start_ns, counter_ns;
    int64_t reading_ns; /* duration of a reading of the counter */
    int readings;
    int warnings;
    char last[256];
} test_gpu;

static int one(void *user) {
    (void)user;
    return 1;
}

static int none(void *user) {
    (void)user;
    return 0;
}

static int64_t now(void *user) {
    const test_gpu *self = user;
    return harpe_clock_ns() * (self->time_scale ? self->time_scale : 1);
}

/* 100 W at all times. */
static harpe_status energy(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    test_gpu *self = user;
    if (self->has_no_counter) return harpe_fail(error, HARPE_NOT_SUPPORTED, "no counter");
    self->readings++;
    if (self->reading_ns) manual_clock_pass(self->reading_ns);
    if (self->failure) return harpe_fail(error, (harpe_status)self->failure, "GPU %d is lost", gpu);
    if (self->is_counter_still) {
        *energy_mj = 77;
        return HARPE_OK;
    }
    int64_t since_ns = (harpe_clock_ns() - self->start_ns) / self->counter_ns * self->counter_ns;
    *energy_mj = (uint64_t)since_ns / 10000 + (self->has_restarted ? 0 : 1000000000);
    return HARPE_OK;
}

static harpe_status power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    test_gpu *self = user;
    if (self->has_no_power) return harpe_fail(error, HARPE_NOT_SUPPORTED, "no power");
    if (self->fails_power) return harpe_fail(error, HARPE_DRIVER_ERROR, "no power now");
    if (self->failure) return harpe_fail(error, (harpe_status)self->failure, "GPU %d is lost", gpu);
    *power_mw = 100000;
    return HARPE_OK;
}

static void remember(void *user, harpe_log_level level, const char *line) {
    test_gpu *self = user;
    self->warnings += level >= HARPE_LOG_WARNING;
    snprintf(self->last, sizeof self->last, "%s", line);
}

static harpe_instruction_profiler *new_on(test_gpu *gpu, size_t capacity, bool has_thread) {
    gpu->start_ns = harpe_clock_ns();
    gpu->counter_ns = 2000000;
    harpe_energy_source source = {gpu, one, now, energy, power, NULL};
    harpe_instruction_profiler_options options = {
        .sample_period_s = 0.001, .event_capacity = capacity, .log = {remember, gpu}};
    harpe_instruction_profiler *profiler = NULL;
    assert_works(harpe_profiler_new_on(&options, &source, has_thread, &profiler, &failure));
    return profiler;
}

/* Lets time pass, and lets the profiler read the counter. */
static void pass(harpe_instruction_profiler *profiler, int64_t ns) {
    for (int64_t end_ns = harpe_clock_ns() + ns; harpe_clock_ns() < end_ns;) {
        (void)harpe_profiler_tick(profiler);
        manual_clock_pass(300000);
    }
    (void)harpe_profiler_tick(profiler);
}

static void instruction(harpe_instruction_profiler *profiler, const char *name, int frequency_mhz) {
    harpe_instruction_profiler_begin(profiler, name, frequency_mhz);
    pass(profiler, 1500000);
    harpe_instruction_profiler_end(profiler);
}

static void step(harpe_instruction_profiler *profiler, int64_t series) {
    harpe_instruction_profiler_begin_step(profiler, series);
    instruction(profiler, "forward", 1410);
    instruction(profiler, "forward", 1410);
    instruction(profiler, "backward", 1200);
    harpe_instruction_profiler_end_step(profiler);
}

/* The result is known after the counter has moved on. */
static void settle(harpe_instruction_profiler *profiler) { pass(profiler, 6000000); }

static harpe_profiling_result take(harpe_instruction_profiler *profiler, int64_t series,
                                   size_t steps) {
    harpe_profiling_result result = {0};
    settle(profiler);
    assert_works(harpe_instruction_profiler_take(profiler, series, steps, 0, &result, &failure));
    return result;
}

/* Requires this number of steps of a series whose energy is known. */
static void assert_steps(harpe_instruction_profiler *profiler, int64_t series, size_t count) {
    settle(profiler);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, series), count);
}

/* A test with a profiler that knows the GPU's counter. */
#define PROFILER_TEST(name) \
    static void name##_on(test_gpu *gpu, harpe_instruction_profiler *profiler); \
    TEST(name) { \
        test_gpu gpu = {0}; \
        harpe_instruction_profiler *profiler = new_on(&gpu, 0, false); \
        settle(profiler); \
        name##_on(&gpu, profiler); \
        harpe_instruction_profiler_free(profiler); \
    } \
    static void name##_on(test_gpu *gpu __attribute__((unused)), \
                          harpe_instruction_profiler *profiler)

/* The counter changes every 100 ms, and a reading takes 3 ms, as on an H100 (docs/gpu.md). */
TEST(a_slow_counter_is_seldom_read) {
    enum { MS = 1000000, CHANGES = 300 };
    test_gpu gpu = {0};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 0, false);
    profiler->period_ns = 10 * MS;
    gpu.counter_ns = 100 * MS;
    gpu.reading_ns = 3 * MS;
    harpe_instruction_profiler_begin_step(profiler, 0); /* keeps the points of the curve */
    for (int64_t end_ns = harpe_clock_ns() + CHANGES * gpu.counter_ns; harpe_clock_ns() < end_ns;)
        manual_clock_pass(harpe_profiler_tick(profiler));
    assert_in_range(profiler->curve.count, CHANGES / 4, CHANGES / 2);
    assert_in_range(gpu.readings, CHANGES / 3, CHANGES * gpu.counter_ns / gpu.reading_ns * 7 / 100);
    assert_in_range((int)profiler->check.samples, CHANGES * 8 / 10, CHANGES * 12 / 10);
}

/* Otherwise the profiler would try again at once, and for ever. */
TEST(power_that_cannot_be_read_is_not_asked_for_in_a_hurry) {
    test_gpu gpu = {0};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 0, false);
    profiler->period_ns = 10000000;
    gpu.counter_ns = 100000000;
    for (int i = 0; i < 100; i++)
        manual_clock_pass(harpe_profiler_tick(profiler));
    gpu.fails_power = true;
    int ticks = 0;
    for (int64_t end_ns = harpe_clock_ns() + 5000000000; harpe_clock_ns() < end_ns; ticks++)
        manual_clock_pass(harpe_profiler_tick(profiler));
    assert_in_range(ticks, 100, 2000);
}

/* ---- Results --------------------------------------------------------------------------------- */

PROFILER_TEST(a_result_has_each_instruction_of_each_step) {
    for (int i = 0; i < 5; i++)
        step(profiler, 7);
    assert_steps(profiler, 7, 5);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 8), 0);
    harpe_profiling_result result = {0};
    assert_int_equal(harpe_instruction_profiler_take(profiler, 7, 4, 3, &result, &failure), 0);
    assert_int_equal(result.rank, 3);
    assert_int_equal(result.iteration_time_count, 4);
    assert_int_equal(result.iteration_energy_count, 4);
    assert_int_equal(result.time_breakdown_count, 2);
    assert_string_equal(result.time_breakdown[0].instruction, "forward");
    assert_string_equal(result.energy_breakdown[1].instruction, "backward");
    const harpe_breakdown *time = &result.time_breakdown[0], *joule = &result.energy_breakdown[0];
    assert_int_equal(time->iteration_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(time->counts[i], 2);
        double first_s = time->values[time->offsets[i]];
        assert_true(first_s >= 0.0015 && first_s < result.iteration_time_s[i]);
        double power_w = joule->values[joule->offsets[i]] / first_s;
        assert_true(power_w > 80 && power_w < 120);
        power_w = result.iteration_energy_j[i] / result.iteration_time_s[i];
        assert_true(power_w > 20 && power_w < 300); /* a loaded machine reads late */
    }
    harpe_profiling_result_free(&result);
    /* The profiler forgets all steps of the series. */
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 7), 0);
    assert_refuses(harpe_instruction_profiler_take(profiler, 7, 1, 3, &result, &failure),
                   HARPE_NOT_FOUND, "0 of 1 steps");
    assert_int_equal(gpu->warnings, 0);
}

/* The spans are those of the next result: the first steps of the series whose energy is known. */
PROFILER_TEST(the_spans_of_a_series_are_those_of_its_next_result) {
    enum { STEPS = 3, RUNS = 3 };
    static const int asked_mhz[RUNS] = {1410, 1410, 1200};
    step(profiler, 6);
    for (int i = 0; i < STEPS + 1; i++)
        step(profiler, 7);
    settle(profiler);
    AT_END(harpe_profiler_spans_free) harpe_profiler_spans spans;
    assert_false(harpe_profiler_copy_spans(profiler, 7, STEPS + 2, &spans));
    assert_true(spans.run_count == 0 && !spans.us && !spans.asked_mhz);
    assert_false(harpe_profiler_copy_spans(profiler, 8, 1, &spans));
    assert_true(harpe_profiler_copy_spans(profiler, 7, STEPS, &spans));
    assert_int_equal(spans.step_count, STEPS);
    assert_int_equal(spans.run_count, RUNS);
    for (int k = 0; k < RUNS; k++)
        assert_int_equal(spans.asked_mhz[k], asked_mhz[k]);
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = take(profiler, 7, STEPS);
    for (size_t i = 0; i < STEPS * RUNS; i++) {
        size_t s = i / RUNS, k = i % RUNS;
        const harpe_breakdown *time = &result.time_breakdown[k == 2]; /* forward, backward */
        double span_s = (double)(spans.us[2 * i + 1] - spans.us[2 * i]) * 1e-6;
        assert_true(fabs(span_s - time->values[time->offsets[s] + (k == 1)]) < 2e-6);
        if (i > 0) assert_true(spans.us[2 * i] >= spans.us[2 * i - 1]);
    }
}

PROFILER_TEST(steps_of_different_lengths_have_no_spans) {
    step(profiler, 7);
    harpe_instruction_profiler_begin_step(profiler, 7);
    instruction(profiler, "forward", 1410);
    harpe_instruction_profiler_end_step(profiler);
    settle(profiler);
    AT_END(harpe_profiler_spans_free) harpe_profiler_spans spans;
    assert_false(harpe_profiler_copy_spans(profiler, 7, 2, &spans));
    assert_true(harpe_profiler_copy_spans(profiler, 7, 1, &spans));
    assert_int_equal(spans.run_count, 3);
}

PROFILER_TEST(taking_a_series_forgets_older_ones_only) {
    step(profiler, 1);
    step(profiler, 2);
    step(profiler, 2);
    step(profiler, 3);
    harpe_profiling_result result = take(profiler, 2, 2);
    harpe_profiling_result_free(&result);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 1), 0);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 3), 1);
}

PROFILER_TEST(cancelled_and_spoiled_steps_do_not_count) {
    harpe_instruction_profiler_begin(profiler, "forward", 0); /* outside of a step */
    harpe_instruction_profiler_end(profiler);
    harpe_instruction_profiler_begin_step(profiler, 1);
    instruction(profiler, "forward", 0);
    harpe_instruction_profiler_cancel_step(profiler);
    step(profiler, 1);
    settle(profiler);
    assert_int_equal(gpu->warnings, 0);
    harpe_instruction_profiler_begin_step(profiler, 1);
    harpe_instruction_profiler_begin(profiler, "forward", 0);
    harpe_instruction_profiler_end_step(profiler); /* inside of an instruction */
    harpe_instruction_profiler_begin_step(profiler, 1);
    harpe_instruction_profiler_end(profiler);
    harpe_instruction_profiler_end_step(profiler);
    assert_steps(profiler, 1, 1);
    assert_int_equal(gpu->warnings, 1);
}

TEST(without_a_gpu_times_are_known_at_once) {
    test_gpu gpu = {0};
    harpe_energy_source source = {.user = &gpu, .count = none, .clock_ns = now};
    harpe_instruction_profiler_options options = {0};
    OWNED(harpe_instruction_profiler) profiler = NULL;
    assert_works(harpe_profiler_new_on(&options, &source, false, &profiler, &failure));
    step(profiler, 1);
    (void)harpe_profiler_tick(profiler);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 1), 1);
    harpe_profiling_result result = take(profiler, 1, 1);
    assert_true(result.iteration_time_s[0] >= 0.0045);
    assert_true(result.iteration_energy_j[0] == 0);
    assert_true(result.energy_breakdown[0].values[0] == 0);
    harpe_profiling_result_free(&result);
    assert_true(isnan(harpe_instruction_profiler_waiting_power_w(profiler)));
    assert_int_equal(harpe_instruction_profiler_write_csv(profiler, 0, 0, "never.csv", NULL),
                     HARPE_NOT_SUPPORTED);
}

TEST(power_stands_in_for_a_missing_counter) {
    test_gpu gpu = {.has_no_counter = true};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 0, false);
    settle(profiler);
    step(profiler, 1);
    step(profiler, 1);
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = take(profiler, 1, 2);
    double power_w = result.iteration_energy_j[0] / result.iteration_time_s[0];
    assert_true(power_w > 98 && power_w < 102);
}

/* Steps wait for the counter's next move; 50 s of GPU time pass in a second. */
static harpe_instruction_profiler *wait_for_a_still_counter(test_gpu *gpu) {
    gpu->is_counter_still = true;
    gpu->time_scale = 50;
    harpe_instruction_profiler *profiler = new_on(gpu, 0, false);
    step(profiler, 1);
    for (int i = 0; i < 10000 && gpu->warnings == 0; i++) {
        (void)harpe_profiler_tick(profiler);
        manual_clock_pass(1000000);
    }
    assert_int_equal(gpu->warnings, 1);
    assert_non_null(strstr(gpu->last, "the energy counter does not move"));
    return profiler;
}

TEST(power_stands_in_for_a_counter_that_stands_still) {
    test_gpu gpu = {0};
    OWNED(harpe_instruction_profiler) profiler = wait_for_a_still_counter(&gpu);
    assert_steps(profiler, 1, 0);
    step(profiler, 1);
    harpe_profiling_result result = take(profiler, 1, 1);
    double power_w = result.iteration_energy_j[0] / result.iteration_time_s[0];
    assert_true(power_w > 98 && power_w < 102);
    harpe_profiling_result_free(&result);
    assert_int_equal(gpu.warnings, 1);
}

TEST(without_power_too_times_are_measured) {
    test_gpu gpu = {.has_no_power = true};
    OWNED(harpe_instruction_profiler) profiler = wait_for_a_still_counter(&gpu);
    settle(profiler);
    assert_non_null(strstr(gpu.last, "reports no power either"));
    step(profiler, 2);
    harpe_profiling_result result = take(profiler, 2, 1);
    assert_true(result.iteration_time_s[0] > 0);
    assert_true(result.iteration_energy_j[0] == 0);
    harpe_profiling_result_free(&result);
    assert_int_equal(harpe_instruction_profiler_write_csv(profiler, 0, 0, "never.csv", NULL),
                     HARPE_NOT_SUPPORTED);
    assert_int_equal(gpu.warnings, 2);
}

TEST(a_counter_may_stand_still_while_no_step_waits) {
    test_gpu gpu = {.is_counter_still = true, .time_scale = 50};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 0, false);
    pass(profiler, 300000000);
    assert_int_equal(gpu.warnings, 0);
}

PROFILER_TEST(an_instruction_without_a_name_gets_one) {
    harpe_instruction_profiler_begin_step(profiler, 1);
    instruction(profiler, NULL, 0);
    harpe_instruction_profiler_end_step(profiler);
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = take(profiler, 1, 1);
    assert_string_equal(result.time_breakdown[0].instruction, "unnamed");
}

/* ---- The profile ----------------------------------------------------------------------------- */

SCRATCH_TEST(the_profile_has_all_that_was_seen) {
    const char *path = scratch_path(s, "profile.csv");
    test_gpu gpu = {0};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 0, false);
    assert_int_equal(harpe_instruction_profiler_write_csv(profiler, 2, 5, path, NULL),
                     HARPE_NOT_FOUND);
    settle(profiler);
    step(profiler, 1);
    step(profiler, 1);
    harpe_profiling_result result = take(profiler, 1, 2);
    harpe_profiling_result_free(&result);
    harpe_instruction_profiler_begin_step(profiler, 2);
    instruction(profiler, "forward", 1005);
    pass(profiler, 3000000);
    harpe_instruction_profiler_end_step(profiler);
    settle(profiler);
    double waiting_w = harpe_instruction_profiler_waiting_power_w(profiler);
    assert_true(waiting_w > 50 && waiting_w < 150);
    assert_works(harpe_instruction_profiler_write_csv(profiler, 0, 5, path, &failure));
    OWNED(harpe_profile) profile = NULL;
    assert_works(harpe_profile_read_csv(path, &profile, &failure));
    const harpe_profile_entry *forward = harpe_profile_find(profile, 0, "forward");
    assert_int_equal(forward->point_count, 2);
    assert_int_equal(forward->points[0].frequency_mhz, 1410);
    assert_int_equal(forward->points[1].frequency_mhz, 1005);
    assert_true(forward->points[0].time_s >= 0.0015);
    assert_int_equal(harpe_profile_find(profile, 0, "backward")->points[0].frequency_mhz, 1200);
}

PROFILER_TEST(a_name_that_no_profile_can_have_is_refused) {
    harpe_instruction_profiler_begin_step(profiler, 1);
    instruction(profiler, "forward, backward", 0);
    harpe_instruction_profiler_end_step(profiler);
    settle(profiler);
    assert_refuses(harpe_instruction_profiler_write_csv(profiler, 0, -1, "never.csv", &failure),
                   HARPE_INVALID_ARGUMENT, "'forward, backward'");
}

/* ---- Faults ---------------------------------------------------------------------------------- */

TEST(a_full_ring_drops_whole_steps_and_tells_once) {
    test_gpu gpu = {0};
    OWNED(harpe_instruction_profiler) profiler = new_on(&gpu, 16, false);
    settle(profiler);
    for (int i = 0; i < 5; i++) { /* no read happens meanwhile; there is room for two steps of 6 */
        harpe_instruction_profiler_begin_step(profiler, i);
        harpe_instruction_profiler_begin(profiler, "forward", 0);
        harpe_instruction_profiler_end(profiler);
        harpe_instruction_profiler_begin(profiler, "backward", 0);
        harpe_instruction_profiler_end(profiler);
        harpe_instruction_profiler_end_step(profiler);
    }
    assert_steps(profiler, 0, 1);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 1), 1);
    for (int i = 2; i < 5; i++)
        assert_int_equal(harpe_instruction_profiler_step_count(profiler, i), 0);
    assert_int_equal(gpu.warnings, 1);
    step(profiler, 9);
    assert_steps(profiler, 9, 1);
    assert_int_equal(gpu.warnings, 1);
}

PROFILER_TEST(names_beyond_the_table_drop_their_step) {
    for (int i = 0; i < HARPE_RECORDER_NAMES + 1; i++) {
        char name[16];
        snprintf(name, sizeof name, "i%d", i);
        harpe_instruction_profiler_begin_step(profiler, i);
        harpe_instruction_profiler_begin(profiler, name, 0);
        harpe_instruction_profiler_end(profiler);
        harpe_instruction_profiler_end_step(profiler);
    }
    assert_steps(profiler, HARPE_RECORDER_NAMES - 1, 1);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, HARPE_RECORDER_NAMES), 0);
}

PROFILER_TEST(steps_without_known_energy_are_dropped) {
    step(profiler, 1);
    settle(profiler);
    gpu->failure = HARPE_GPU_LOST;
    step(profiler, 1);
    settle(profiler);
    assert_int_equal(gpu->warnings, 1);
    assert_non_null(strstr(gpu->last, "GPU 0 is lost"));
    gpu->failure = HARPE_OK;
    step(profiler, 1); /* begins before the energy is known again */
    settle(profiler);
    step(profiler, 1);
    assert_steps(profiler, 1, 2);
    assert_int_equal(gpu->warnings, 1);
    assert_non_null(strstr(gpu->last, "again"));
    harpe_instruction_profiler_begin_step(profiler, 2);
    pass(profiler, 4000000);
    gpu->has_restarted = true;
    pass(profiler, 4000000);
    harpe_instruction_profiler_end_step(profiler);
    assert_steps(profiler, 2, 0);
    assert_int_equal(gpu->warnings, 2);
    assert_non_null(strstr(gpu->last, "ran backwards"));
    step(profiler, 2);
    assert_steps(profiler, 2, 1);
    harpe_instruction_profiler_begin_step(profiler, 3);
    pass(profiler, 4000000);
    gpu->has_restarted = false; /* the counter jumps by 1 MJ */
    pass(profiler, 4000000);
    harpe_instruction_profiler_end_step(profiler);
    assert_steps(profiler, 3, 0);
    step(profiler, 3);
    assert_steps(profiler, 3, 1);
}

TEST(bad_options_are_refused) {
    test_gpu gpu = {0};
    harpe_energy_source source = {&gpu, one, now, energy, power, NULL};
    harpe_instruction_profiler *profiler = NULL;
    harpe_instruction_profiler_options options = {.gpu = 1};
    assert_refuses(harpe_profiler_new_on(&options, &source, false, &profiler, &failure),
                   HARPE_INVALID_ARGUMENT, "no GPU 1");
    options = (harpe_instruction_profiler_options){.sample_period_s = 5};
    assert_int_equal(harpe_profiler_new_on(&options, &source, false, &profiler, &failure),
                     HARPE_INVALID_ARGUMENT);
    gpu.failure = HARPE_GPU_LOST;
    options = (harpe_instruction_profiler_options){0};
    assert_int_equal(harpe_profiler_new_on(&options, &source, false, &profiler, &failure),
                     HARPE_GPU_LOST);
    assert_int_equal(harpe_instruction_profiler_new(NULL, &profiler, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_null(profiler);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static int status_of(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(a_forked_child_takes_nothing_and_can_free) {
    test_gpu gpu = {0};
    harpe_instruction_profiler *profiler = new_on(&gpu, 0, true);
    pid_t child = fork();
    if (child == 0) {
        harpe_profiling_result result;
        bool is_right = harpe_instruction_profiler_step_count(profiler, 0) == 0;
        is_right = is_right && harpe_instruction_profiler_take(profiler, 0, 1, 0, &result, NULL) ==
                                   HARPE_NOT_SUPPORTED;
        is_right = is_right && isnan(harpe_instruction_profiler_waiting_power_w(profiler));
        harpe_instruction_profiler_free(profiler);
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(status_of(child), 0);
    harpe_instruction_profiler_free(profiler);
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { THREAD_STEPS = 200 };

static void *train(void *user) {
    harpe_instruction_profiler *profiler = user;
    for (int i = 0; i < THREAD_STEPS; i++) {
        char name[16];
        snprintf(name, sizeof name, "i%d", i % 40);
        harpe_instruction_profiler_begin_step(profiler, i / 100);
        for (int k = 0; k < 4; k++) {
            harpe_instruction_profiler_begin(profiler, k % 2 ? "forward" : name, 100 * k);
            manual_clock_pass(100000);
            harpe_instruction_profiler_end(profiler);
        }
        harpe_instruction_profiler_end_step(profiler);
    }
    return NULL;
}

TEST(training_profiling_and_asking_may_be_three_threads) {
    test_gpu gpu = {0};
    atomic_store(&manual_clock_is_real, true);
    harpe_instruction_profiler *profiler = new_on(&gpu, 0, true);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, train, profiler), 0);
    size_t taken = 0;
    harpe_profiling_result result = {0};
    int64_t end_ns = harpe_clock_ns() + 300000000000;
    while (taken < 10 && harpe_clock_ns() < end_ns) {
        (void)harpe_instruction_profiler_waiting_power_w(profiler);
        if (harpe_instruction_profiler_take(profiler, 0, 10, 0, &result, NULL) == HARPE_OK) {
            taken = result.iteration_time_count;
            harpe_profiling_result_free(&result);
        }
        manual_clock_pass(1000000);
    }
    assert_int_equal(taken, 10);
    pthread_join(thread, NULL);
    while (harpe_instruction_profiler_step_count(profiler, 1) < THREAD_STEPS / 2 &&
           harpe_clock_ns() < end_ns)
        manual_clock_pass(1000000);
    assert_int_equal(harpe_instruction_profiler_step_count(profiler, 1), THREAD_STEPS / 2);
    harpe_instruction_profiler_free(profiler);
    assert_int_equal(gpu.warnings, 0);
}
