/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs without an energy counter. Compares the integrated power with a known energy in scripted
 * time. Tests the background thread: it runs only if needed, ends when freed, and is refused after
 * a fork. */
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "monitor/monitor_state.h"
#include "real_time.h"
#include "scripted_source.h"

static const int64_t ms = 1000000;

static double curve_energy(const harpe_power_curve *curve, int64_t time_ns) {
    harpe_power_point point = {.energy_j = NAN};
    assert_true(harpe_power_curve_at(curve, time_ns, &point));
    assert_int_equal(point.time_ns, time_ns);
    return point.energy_j;
}

static void add(harpe_power_curve *curve, int64_t time_ns, double power_w) {
    harpe_power_curve_add(curve, time_ns, power_w, 100 * ms, 1000 * ms);
}

TEST(curve_interpolates_between_points) {
    harpe_power_curve curve = {0};
    harpe_power_point untouched = {.energy_j = 7};
    assert_false(harpe_power_curve_at(&curve, 0, &untouched));
    add(&curve, 1000 * ms, 100);
    add(&curve, 3000 * ms, 300);
    assert_close(curve_energy(&curve, 1000 * ms), 0, 0);
    assert_close(curve_energy(&curve, 3000 * ms), 400, 1e-9);
    assert_close(curve_energy(&curve, 2000 * ms), 150, 1e-9); /* 100 to 200 W for 1 s */
    assert_close(curve_energy(&curve, 3500 * ms), 550, 1e-9); /* 300 W is held */
    assert_false(harpe_power_curve_at(&curve, 999 * ms, &untouched));
    assert_close(untouched.energy_j, 7, 0);
}

TEST(curve_counts_the_time_that_it_bridges) {
    harpe_power_curve curve = {0};
    harpe_power_point point = {0};
    add(&curve, 0, 100);
    add(&curve, 100 * ms, 100);  /* in time */
    add(&curve, 600 * ms, 100);  /* sparse */
    add(&curve, 2600 * ms, 100); /* unknown */
    add(&curve, 2700 * ms, 100);
    const struct {
        int64_t time_ms;
        double sparse_s, unknown_s;
    } at[] = {{100, 0, 0}, {350, 0.25, 0}, {600, 0.5, 0}, {1600, 1.5, 1}, {9000, 2.5, 2}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        assert_true(harpe_power_curve_at(&curve, at[i].time_ms * ms, &point));
        assert_close(point.sparse_s, at[i].sparse_s, 1e-9);
        assert_close(point.unknown_s, at[i].unknown_s, 1e-9);
    }
}

TEST(curve_ignores_points_that_come_late) {
    harpe_power_curve curve = {0};
    add(&curve, 2 * ms, 100);
    add(&curve, 2 * ms, 900);
    add(&curve, 1 * ms, 900);
    assert_int_equal(curve.count, 1);
    assert_close(curve_energy(&curve, 1002 * ms), 100, 1e-9);
}

TEST(curve_is_bounded_and_keeps_its_sum) {
    harpe_power_curve *curve = calloc(1, sizeof *curve);
    assert_non_null(curve);
    for (int i = 0; i <= 100000; i++)
        add(curve, i * 10 * ms, 200);
    harpe_power_point point = {0};
    assert_int_equal(curve->count, HARPE_POWER_CURVE_POINTS);
    assert_close(curve_energy(curve, 1000000 * ms), 200000, 1e-3);
    assert_close(curve_energy(curve, 999995 * ms), 199999, 1e-3);
    assert_false(harpe_power_curve_at(curve, 5 * ms, &point));
    free(curve);
}

/* Takes samples every 20 ms while power follows `power_mw_at`. Windows do not end on a sample. */
static double integrate(uint32_t (*power_mw_at)(int64_t time_ns), int64_t length_ns) {
    scripted script = {.count = 1, .now_ns = 7 * ms};
    harpe_energy_source source = scripted_source(&script);
    harpe_sampler *sampler = NULL;
    int gpu = 0;
    double energy_j = NAN;
    harpe_power_point start = {0};
    harpe_power_point end = {0};
    script.power_mw[0] = power_mw_at(0);
    assert_int_equal(harpe_sampler_new(&source, &gpu, 1, 0, &sampler, NULL), HARPE_OK);
    for (int64_t now_ns = 7 * ms; now_ns <= 7 * ms + length_ns; now_ns += 20 * ms) {
        script.now_ns = now_ns;
        script.power_mw[0] = power_mw_at(now_ns - 13 * ms);
        assert_int_equal(harpe_sampler_sample(sampler, 0, NULL), HARPE_OK);
        if (now_ns == 27 * ms)
            assert_int_equal(harpe_sampler_at(sampler, 0, 13 * ms, &start, NULL), HARPE_OK);
    }
    int64_t end_ns = 13 * ms + length_ns;
    assert_int_equal(harpe_sampler_at(sampler, 0, end_ns, &end, NULL), HARPE_OK);
    assert_int_equal(harpe_sampler_energy(sampler, 0, &start, &end, &energy_j, NULL), HARPE_OK);
    harpe_sampler_free(sampler);
    return energy_j;
}

static uint32_t constant_power(int64_t time_ns) {
    (void)time_ns;
    return 300000;
}

static uint32_t step_power(int64_t time_ns) { return time_ns < 9000 * ms ? 100000 : 500000; }

TEST(constant_power_is_integrated_within_a_percent) {
    double energy_j = integrate(constant_power, 5000 * ms);
    assert_close(energy_j, 1500, 1e-6);
}

TEST(power_step_is_integrated_within_a_percent) {
    double energy_j = integrate(step_power, 10000 * ms);
    assert_close(energy_j, 1400, 14);
}

static int thread_count(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* A thread that has ended may still be listed for a moment, so the number must be constant for 0.2
 * s. */
static int settled_thread_count(void) {
    int count = thread_count();
    for (int same = 0; same < 20; same++) {
        usleep(10000);
        int next = thread_count();
        if (next != count) same = 0;
        count = next;
    }
    return count;
}

static harpe_monitor *new_monitor(scripted *script) {
    harpe_monitor *monitor = NULL;
    harpe_energy_source source = scripted_source(script);
    harpe_monitor_options options = {.sample_period_s = 10};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

TEST(no_thread_when_every_gpu_has_a_counter) {
    scripted script = {.count = 2};
    int before = thread_count();
    owned_monitor monitor = new_monitor(&script);
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    assert_int_equal(thread_count(), before);
    assert_false(harpe_monitor_is_sampled(monitor));
}

/* The real thread with a real clock and constant power: its sums must be exact, however it is
 * scheduled. */
static harpe_status constant_300_w(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    (void)user, (void)gpu, (void)error;
    *power_mw = 300000;
    return HARPE_OK;
}

static harpe_status only_gpu_0_has_energy(void *user, int gpu, uint64_t *energy_mj,
                                          harpe_error *error) {
    (void)user;
    if (gpu != 0) return harpe_fail(error, HARPE_NOT_SUPPORTED, "no counter");
    *energy_mj = 1000;
    return HARPE_OK;
}

static int three(void *user) {
    (void)user;
    return 3;
}

static harpe_monitor *new_sampled_monitor(void) {
    harpe_monitor *monitor = NULL;
    harpe_energy_source source = {NULL,           three, real_clock, only_gpu_0_has_energy,
                                  constant_300_w, NULL};
    harpe_monitor_options options = {.sample_period_s = 0.002};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

static harpe_status measure_30_ms(harpe_monitor *monitor, harpe_window_measurement *got,
                                  harpe_error *error) {
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    usleep(30000);
    return harpe_monitor_end(monitor, "a", false, got, error);
}

TEST(thread_runs_only_while_the_monitor_lives) {
    /* the first thread also starts a sanitizer's own thread */
    harpe_monitor_free(new_sampled_monitor());
    int before = settled_thread_count();
    harpe_monitor *monitor = new_sampled_monitor();
    assert_int_equal(thread_count(), before + 1);
    assert_true(harpe_monitor_is_sampled(monitor));
    harpe_window_measurement got = {0};
    harpe_error error;
    harpe_status status = measure_30_ms(monitor, &got, &error);
    for (int i = 1; i < MEASURE_TIMES && was_held_up(status, &error); i++)
        status = measure_30_ms(monitor, &got, &error);
    assert_int_equal(status, HARPE_OK);
    assert_close(got.gpu_energy_j[0], 0, 0);
    assert_close(got.gpu_energy_j[1], 300 * got.time_s, 1e-6);
    assert_close(got.gpu_energy_j[2], 300 * got.time_s, 1e-6);
    harpe_window_measurement_clear(&got);
    harpe_monitor_free(monitor);
    for (int i = 0; i < 12000 && thread_count() > before; i++)
        usleep(10000); /* a thread that has ended may still be listed for a moment */
    assert_int_equal(thread_count(), before);
}

TEST(forked_child_is_refused_and_can_free) {
    harpe_monitor *monitor = new_sampled_monitor();
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        bool is_refused = harpe_monitor_begin(monitor, "b", false, NULL) == HARPE_NOT_SUPPORTED &&
                          harpe_monitor_end(monitor, "a", false, NULL, NULL) == HARPE_NOT_SUPPORTED;
        harpe_monitor_free(monitor);
        _exit(is_refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
    harpe_monitor_free(monitor);
}

TEST(sampled_gpu_lost_in_mid_window) {
    scripted script = {.count = 1, .power_mw = {100000}};
    harpe_energy_source source = scripted_source(&script);
    harpe_sampler *sampler = NULL;
    int gpu = 0;
    assert_int_equal(harpe_sampler_new(&source, &gpu, 1, 0, &sampler, NULL), HARPE_OK);
    script.fails[0] = HARPE_GPU_LOST;
    assert_int_equal(harpe_sampler_sample(sampler, 0, NULL), HARPE_GPU_LOST);
    harpe_sampler_free(sampler);
    sampler = NULL;
    assert_int_equal(harpe_sampler_new(&source, &gpu, 1, 0.02, &sampler, NULL), HARPE_GPU_LOST);
    assert_null(sampler);
    harpe_sampler_free(NULL);
}
