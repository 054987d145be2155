/* SPDX-License-Identifier: Apache-2.0 */
/* Periods in which a GPU without an energy counter could not be read: a window inside such a period
 * gets no number, and late samples are reported. Uses scripted time, and the whole monitor with its
 * thread in a world, on a driver that fails and is slow. */
#include "world/in_world.h"

#include "monitor/monitor.h"
#include "monitor/monitor_state.h"
#include "scripted_source.h"

static const int64_t ms = 1000000;
static const world_machine machine = {.gpus = "1xA100"};

/* Takes samples every 20 ms for 10 s. Between two times, the samples are late, or their reads fail.
 */
static harpe_sampler *sampler_with_gap(scripted *script, int64_t from_ms, int64_t to_ms,
                                       bool reads_fail) {
    harpe_energy_source source = scripted_source(script);
    harpe_sampler *sampler = NULL;
    int gpu = 0;
    assert_int_equal(harpe_sampler_new(&source, &gpu, 1, 0, &sampler, NULL), HARPE_OK);
    for (int64_t time_ms = 20; time_ms <= 10000; time_ms += 20) {
        bool is_gap = time_ms > from_ms && time_ms < to_ms;
        script->now_ns = time_ms * ms;
        if (is_gap && !reads_fail) continue;
        script->fails[0] = is_gap ? HARPE_GPU_LOST : HARPE_OK;
        assert_int_equal(harpe_sampler_sample(sampler, 0, NULL), script->fails[0]);
    }
    return sampler;
}

static harpe_status energy_between(harpe_sampler *sampler, int64_t start_ms, int64_t end_ms,
                                   double *energy_j, harpe_error *error) {
    harpe_power_point start = {0};
    harpe_power_point end = {0};
    assert_int_equal(harpe_sampler_at(sampler, 0, start_ms * ms, &start, NULL), HARPE_OK);
    assert_int_equal(harpe_sampler_at(sampler, 0, end_ms * ms, &end, NULL), HARPE_OK);
    return harpe_sampler_energy(sampler, 0, &start, &end, energy_j, error);
}

TEST(failed_reads_in_a_window_give_no_number) {
    scripted script = {.count = 1, .power_mw = {100000}};
    harpe_sampler *sampler = sampler_with_gap(&script, 5000, 5400, true);
    harpe_error error;
    double energy_j = 7;
    assert_int_equal(energy_between(sampler, 4000, 6000, &energy_j, &error), HARPE_DRIVER_ERROR);
    assert_close(energy_j, 7, 0);
    assert_non_null(strstr(error.message, "could not be read for 0.400 s of 2.000 s"));
    assert_non_null(strstr(error.message, "the last failure: GPU 0 is lost"));
    assert_int_equal(energy_between(sampler, 5100, 5350, &energy_j, NULL), HARPE_DRIVER_ERROR);
    /* Before the gap, after it, and from its exact end. */
    assert_int_equal(energy_between(sampler, 1000, 5000, &energy_j, NULL), HARPE_OK);
    assert_close(energy_j, 400, 1e-6);
    assert_int_equal(energy_between(sampler, 5400, 9000, &energy_j, NULL), HARPE_OK);
    assert_int_equal(energy_between(sampler, 5390, 9000, &energy_j, NULL), HARPE_OK);
    assert_close(energy_j, 361, 1e-6);
    harpe_sampler_free(sampler);
}

TEST(gap_of_a_few_periods_is_interpolated) {
    scripted script = {.count = 1, .power_mw = {100000}};
    harpe_sampler *sampler = sampler_with_gap(&script, 5000, 5080, true);
    double energy_j = 0;
    assert_int_equal(energy_between(sampler, 4900, 5180, &energy_j, NULL), HARPE_OK);
    assert_close(energy_j, 28, 1e-6);
    harpe_sampler_free(sampler);
}

TEST(late_samples_are_borne_for_a_second_and_told) {
    scripted script = {.count = 1, .power_mw = {100000}};
    harpe_sampler *sampler = sampler_with_gap(&script, 5000, 5400, false);
    harpe_power_point start = {0};
    harpe_power_point end = {0};
    double energy_j = 0;
    assert_int_equal(energy_between(sampler, 4000, 6000, &energy_j, NULL), HARPE_OK);
    assert_close(energy_j, 200, 1e-6);
    assert_int_equal(harpe_sampler_at(sampler, 0, 4000 * ms, &start, NULL), HARPE_OK);
    assert_int_equal(harpe_sampler_at(sampler, 0, 6000 * ms, &end, NULL), HARPE_OK);
    assert_close(end.sparse_s - start.sparse_s, 0.4, 1e-9);
    harpe_sampler_free(sampler);

    script = (scripted){.count = 1, .power_mw = {100000}};
    sampler = sampler_with_gap(&script, 5000, 6500, false); /* a process that was stopped */
    harpe_error error;
    assert_int_equal(energy_between(sampler, 4000, 9000, &energy_j, &error), HARPE_DRIVER_ERROR);
    assert_null(strstr(error.message, "the last failure"));
    harpe_sampler_free(sampler);
}

/* A driver whose reads fail while `reads_fail` is true: the whole monitor with its thread. */
typedef struct faulty_driver {
    bool reads_fail;
    double delay_s;
} faulty_driver;

static int one_gpu(void *user) {
    (void)user;
    return 1;
}

static int64_t virtual_clock(void *user) {
    (void)user;
    return harpe_clock_ns();
}

static harpe_status no_counter(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    (void)user, (void)gpu, (void)energy_mj;
    return harpe_fail(error, HARPE_NOT_SUPPORTED, "no counter");
}

static harpe_status faulty_power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    const faulty_driver *driver = user;
    pause_s(driver->delay_s);
    if (driver->reads_fail)
        return harpe_fail(error, HARPE_GPU_LOST, "GPU %d fell off the bus", gpu);
    *power_mw = 300000;
    return HARPE_OK;
}

static void count_warning(void *user, harpe_log_level level, const char *line) {
    if (level != HARPE_LOG_WARNING) return;
    bool *told = user;
    told[strstr(line, "is interpolated there") ? 0 : 1] = true;
}

static harpe_monitor *faulty_monitor(faulty_driver *driver, bool *told) {
    harpe_monitor *monitor = NULL;
    harpe_energy_source source = {driver, one_gpu, virtual_clock, no_counter, faulty_power, NULL};
    harpe_monitor_options options = {.log = {count_warning, told}};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

WORLD_TEST(window_over_failed_reads_fails_and_the_next_one_is_sound) {
    harpe_error error;
    faulty_driver driver = {0};
    bool told[2] = {false, false};
    owned_monitor monitor = faulty_monitor(&driver, told);
    owned_measurement got = {.time_s = 7};
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    pause_s(0.05);
    driver.reads_fail = true;
    pause_s(0.4);
    driver.reads_fail = false;
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &got, &error), HARPE_DRIVER_ERROR);
    assert_non_null(strstr(error.message, "window 'a': GPU 0: its power could not be read for"));
    assert_non_null(strstr(error.message, "GPU 0 fell off the bus"));
    assert_close(got.time_s, 7, 0);
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    pause_s(0.05);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &got, &error), HARPE_OK);
    assert_close(got.gpu_energy_j[0], 300 * got.time_s, 1e-6);
}

WORLD_TEST(slow_driver_is_told_and_the_number_good) {
    faulty_driver driver = {.delay_s = 0.2};
    bool told[2] = {false, false};
    owned_monitor monitor = faulty_monitor(&driver, told);
    owned_measurement got = {0};
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    pause_s(0.3);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &got, NULL), HARPE_OK);
    assert_close(got.gpu_energy_j[0], 300 * got.time_s, 1e-6);
    assert_true(got.time_s >= 0.5);
    assert_true(told[0]); /* sparse samples */
    assert_true(told[1]); /* slow reading */
}
