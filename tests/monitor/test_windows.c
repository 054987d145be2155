/* SPDX-License-Identifier: Apache-2.0 */
/* Energy windows with scripted counters: names, order of the reads, overlap, and faults during a
 * window. */
#include "test.h"

#include <math.h>
#include <pthread.h>

#include "monitor/monitor.h"
#include "monitor/monitor_state.h"
#include "scripted_source.h"

typedef struct warnings {
    int count;
    harpe_log_level level;
    char last[512];
} warnings;

static void remember_warning(void *user, harpe_log_level level, const char *line) {
    warnings *told = user;
    told->count++;
    told->level = level;
    snprintf(told->last, sizeof told->last, "%s", line);
}

static harpe_monitor *monitor_with(scripted *script, const harpe_monitor_options *options) {
    harpe_monitor *monitor = NULL;
    harpe_error error = {0};
    harpe_energy_source source = scripted_source(script);
    if (harpe_monitor_new_on(options, &source, &monitor, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    script->order[0] = '\0';
    return monitor;
}

static harpe_monitor *plain_monitor(scripted *script) {
    harpe_monitor_options options = {0};
    return monitor_with(script, &options);
}

static void begin(harpe_monitor *monitor, const char *name) {
    assert_int_equal(harpe_monitor_begin(monitor, name, false, NULL), HARPE_OK);
}

static harpe_window_measurement end(harpe_monitor *monitor, const char *name) {
    harpe_window_measurement measurement = {0};
    assert_int_equal(harpe_monitor_end(monitor, name, false, &measurement, NULL), HARPE_OK);
    return measurement;
}

/* Ends a window, whose energy is that of GPU 0. */
static void assert_energy(harpe_monitor *monitor, const char *name, double energy_j) {
    owned_measurement got = end(monitor, name);
    assert_close(got.gpu_energy_j[0], energy_j, 1e-9);
}

static void assert_fails(harpe_monitor *monitor, const char *name) {
    assert_int_equal(harpe_monitor_end(monitor, name, false, NULL, NULL), HARPE_DRIVER_ERROR);
}

/* A test with a monitor of one GPU. */
#define WINDOW_TEST(name) \
    static void name##_on(scripted *script, harpe_monitor *monitor); \
    TEST(name) { \
        scripted script = {.count = 1}; \
        owned_monitor monitor = plain_monitor(&script); \
        name##_on(&script, monitor); \
    } \
    static void name##_on(scripted *script __attribute__((unused)), harpe_monitor *monitor)

TEST(window_has_time_and_energy_per_gpu) {
    scripted script = {.count = 2, .now_ns = 1000000000, .energy_mj = {5000, 100}};
    owned_monitor monitor = plain_monitor(&script);
    begin(monitor, "step");
    script.now_ns += 2500000000;
    script.energy_mj[0] += 750000;
    script.energy_mj[1] += 1;
    harpe_window_measurement got = end(monitor, "step");
    assert_close(got.time_s, 2.5, 1e-12);
    assert_int_equal(got.gpu_count, 2);
    assert_int_equal(got.gpu_index[1], 1);
    assert_close(got.gpu_energy_j[0], 750, 1e-9);
    assert_close(got.gpu_energy_j[1], 0.001, 1e-12);
    assert_close(got.total_gpu_energy_j, 750.001, 1e-9);
    assert_int_equal(got.cpu_count, 0);
    harpe_window_measurement_clear(&got);
    assert_null(got.gpu_energy_j);
    harpe_window_measurement_clear(&got);
}

static void note_synchronize(void *user, const int *gpu_indices, size_t gpu_count) {
    assert_int_equal(gpu_count, 2);
    assert_int_equal(gpu_indices[0], 1);
    scripted_note(user, 'S', -1);
}

TEST(end_reads_in_the_reverse_order_of_begin) {
    int chosen[] = {1, 0};
    scripted script = {.count = 3};
    harpe_monitor_options options = {.gpu_indices = chosen,
                                     .gpu_count = 2,
                                     .synchronize = note_synchronize,
                                     .synchronize_user = &script};
    owned_monitor monitor = monitor_with(&script, &options);
    begin(monitor, "a");
    assert_string_equal(script.order, "SCE1E0C");
    script.order[0] = '\0';
    script.energy_mj[0] = 2000;
    owned_measurement got = end(monitor, "a");
    assert_string_equal(script.order, "SCE0E1C");
    assert_int_equal(got.gpu_index[0], 1);
    assert_close(got.gpu_energy_j[1], 2, 1e-12);
}

WINDOW_TEST(windows_overlap_and_nest) {
    const char *steps[] = {"+epoch", "+step", "+copy", "-step", "-copy", "-epoch"};
    double energy_j[6] = {0};
    for (int i = 0; i < 6; i++) {
        if (steps[i][0] == '+') {
            begin(monitor, steps[i] + 1);
        } else {
            owned_measurement got = end(monitor, steps[i] + 1);
            energy_j[i] = got.gpu_energy_j[0];
        }
        script->energy_mj[0] += 1000;
    }
    assert_close(energy_j[3], 2, 1e-12);
    assert_close(energy_j[4], 2, 1e-12);
    assert_close(energy_j[5], 5, 1e-12);
}

WINDOW_TEST(name_is_open_once) {
    harpe_error error;
    harpe_window_measurement untouched = {.time_s = 7};
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &untouched, &error), HARPE_NOT_FOUND);
    assert_non_null(strstr(error.message, "'a' is not open"));
    begin(monitor, "a");
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, &error), HARPE_ALREADY_EXISTS);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &untouched, &error), HARPE_NOT_FOUND);
    assert_int_equal(harpe_monitor_end(monitor, "a", true, NULL, NULL), HARPE_NOT_FOUND);
    assert_close(untouched.time_s, 7, 0);
}

WINDOW_TEST(restart_discards_the_first) {
    begin(monitor, "a");
    script->energy_mj[0] = 9000;
    assert_int_equal(harpe_monitor_begin(monitor, "a", true, NULL), HARPE_OK);
    script->energy_mj[0] = 10000;
    assert_energy(monitor, "a", 1);
    assert_int_equal(harpe_monitor_begin(monitor, "new", true, NULL), HARPE_OK);
}

WINDOW_TEST(cancel_reads_nothing) {
    begin(monitor, "a");
    script->order[0] = '\0';
    assert_int_equal(harpe_monitor_end(monitor, "a", true, NULL, NULL), HARPE_OK);
    assert_string_equal(script->order, "");
    begin(monitor, "a");
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
}

WINDOW_TEST(peek_leaves_the_window_open) {
    begin(monitor, "a");
    for (int i = 1; i <= 3; i++) {
        script->energy_mj[0] += 1000;
        owned_measurement got = {0};
        assert_int_equal(harpe_monitor_peek(monitor, "a", &got, NULL), HARPE_OK);
        assert_close(got.gpu_energy_j[0], i, 1e-12);
    }
    assert_energy(monitor, "a", 3);
}

TEST(backward_counter_is_an_error_and_never_a_number) {
    scripted script = {.count = 2, .energy_mj = {5000, 5000}};
    owned_monitor monitor = plain_monitor(&script);
    harpe_window_measurement untouched = {.time_s = 7};
    harpe_error error;
    begin(monitor, "a");
    script.energy_mj[1] = 4000;
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &untouched, &error),
                     HARPE_DRIVER_ERROR);
    assert_non_null(strstr(error.message, "window 'a': GPU 1"));
    assert_non_null(strstr(error.message, "ran backwards"));
    assert_close(untouched.time_s, 7, 0);
    begin(monitor, "a"); /* the failed end has closed the window */
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
}

/* The counter restarts inside the epoch, and at the epoch's end it is again above the epoch's
 * start. Only the steps inside have seen the restart. */
WINDOW_TEST(restart_seen_by_a_short_window_fails_the_long_one) {
    script->energy_mj[0] = 1000;
    harpe_error error;
    begin(monitor, "epoch");
    script->energy_mj[0] = 9000;
    begin(monitor, "step");
    script->energy_mj[0] = 500;
    assert_fails(monitor, "step");
    begin(monitor, "step");
    script->energy_mj[0] = 8000;
    assert_energy(monitor, "step", 7.5);
    assert_int_equal(harpe_monitor_end(monitor, "epoch", false, NULL, &error), HARPE_DRIVER_ERROR);
    assert_non_null(
        strstr(error.message, "window 'epoch': GPU 0: its energy counter ran backwards"));
}

TEST(restart_between_windows_leaves_the_next_one_sound) {
    scripted script = {.count = 2, .energy_mj = {1000, 1000}};
    owned_monitor monitor = plain_monitor(&script);
    for (int i = 0; i < 3; i++) {
        begin(monitor, "a");
        script.energy_mj[0] += 8000;
        script.energy_mj[1] += 500;
        harpe_window_measurement got = end(monitor, "a");
        assert_close(got.gpu_energy_j[0], 8, 1e-12);
        assert_close(got.gpu_energy_j[1], 0.5, 1e-12);
        harpe_window_measurement_clear(&got);
        script.energy_mj[i % 2] = 3; /* while no window is open */
    }
}

/* A window whose begin sees the restart is valid. A window that was open before is not. */
WINDOW_TEST(restart_seen_at_a_begin_fails_only_what_was_open) {
    script->energy_mj[0] = 1000;
    begin(monitor, "epoch");
    script->energy_mj[0] = 9000;
    begin(monitor, "sees 9000");
    script->energy_mj[0] = 500;
    begin(monitor, "step");
    script->energy_mj[0] = 10500;
    assert_energy(monitor, "step", 10);
    assert_fails(monitor, "sees 9000");
    assert_fails(monitor, "epoch");
}

/* ---- Energy that cannot be ------------------------------------------------------------------- */

static double highest_400_w(void *user, int gpu) {
    (void)user;
    (void)gpu;
    return 800;
}

static harpe_monitor *monitor_of_400_w(scripted *script) {
    harpe_monitor *monitor = NULL;
    harpe_energy_source source = scripted_source(script);
    harpe_monitor_options options = {0};
    source.highest_w = highest_400_w;
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

static void assert_has_no_energy(harpe_monitor *monitor, const char *name) {
    harpe_error error;
    harpe_window_measurement untouched = {.time_s = 7};
    assert_int_equal(harpe_monitor_end(monitor, name, false, &untouched, &error),
                     HARPE_DRIVER_ERROR);
    assert_non_null(strstr(error.message, name));
    assert_non_null(strstr(error.message, "the energy is not known"));
    assert_close(untouched.time_s, 7, 0);
}

static void pass(scripted *script, double time_s, double power_w) {
    script->now_ns += (int64_t)(time_s * 1e9);
    script->energy_mj[0] += (uint64_t)(time_s * power_w * 1e3);
}

/* The counter jumps by 4 kJ, 1 kWh or 2^63 mJ. Windows that are open during the jump have no
 * energy. The next window is right. */
TEST(jump_of_a_counter_is_never_a_number) {
    const uint64_t jumps_mj[] = {4000000, 3600000000, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof jumps_mj / sizeof *jumps_mj; i++) {
        scripted script = {.count = 1, .energy_mj = {7777}};
        owned_monitor monitor = monitor_of_400_w(&script);
        begin(monitor, "epoch");
        pass(&script, 2, 300);
        begin(monitor, "step");
        pass(&script, 1, 300);
        script.energy_mj[0] += jumps_mj[i];
        assert_has_no_energy(monitor, "step");
        begin(monitor, "next");
        pass(&script, 3600, 300); /* long enough to hide the smaller jumps in the mean power */
        assert_energy(monitor, "next", 300 * 3600);
        assert_has_no_energy(monitor, "epoch");
    }
}

/* Answers with a wrong value once, and with the right value afterwards. */
static harpe_status one_wrong_energy(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    scripted *script = user;
    harpe_status status = scripted_energy(user, gpu, energy_mj, error);
    if (script->energy_mj[1] != 0) *energy_mj = script->energy_mj[1];
    script->energy_mj[1] = 0;
    return status;
}

TEST(single_wrong_value_is_read_again) {
    const uint64_t wrong_mj[] = {UINT64_MAX, 3, 7000000000};
    for (size_t i = 0; i < sizeof wrong_mj / sizeof *wrong_mj; i++) {
        scripted script = {.count = 1, .energy_mj = {7777}};
        owned_monitor monitor = NULL;
        harpe_energy_source source = scripted_source(&script);
        harpe_monitor_options options = {0};
        source.energy_mj = one_wrong_energy;
        assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
        begin(monitor, "a");
        pass(&script, 2, 250);
        script.energy_mj[1] = wrong_mj[i];
        assert_energy(monitor, "a", 500);
    }
}

/* A counter that shows ten times the energy in steps of 100 ms, read every 10 ms: no reading alone
 * shows that. */
TEST(counter_that_runs_too_fast_is_never_a_number) {
    scripted script = {.count = 1};
    owned_monitor monitor = monitor_of_400_w(&script);
    int known = 0;
    begin(monitor, "long");
    for (int step = 0; step < 500; step++) {
        begin(monitor, "short");
        script.now_ns += 10000000;
        if (step % 10 == 9) script.energy_mj[0] += 300000;
        owned_measurement got = {0};
        known += harpe_monitor_end(monitor, "short", false, &got, NULL) == HARPE_OK &&
                 got.gpu_energy_j[0] > 0;
    }
    assert_in_range(known, 0, 26); /* of 50 steps of the counter */
    assert_has_no_energy(monitor, "long");
}

/* A counter moves in steps, and power has peaks: a short window may contain a whole step. */
TEST(step_of_a_counter_and_a_peak_are_no_jumps) {
    scripted script = {.count = 1};
    owned_monitor monitor = monitor_of_400_w(&script);
    for (int step = 0; step < 1000; step++) {
        begin(monitor, "short");
        script.now_ns += 1000000;
        if (step % 100 == 99) script.energy_mj[0] += 46000; /* 460 W for 100 ms */
        assert_energy(monitor, "short", step % 100 == 99 ? 46 : 0);
    }
    begin(monitor, "slow driver");
    script.read_ns = 3000000000; /* the reading itself takes 3 s, during which the GPU works */
    script.energy_mj[0] += 1200000;
    assert_energy(monitor, "slow driver", 1200);
}

/* ---- Two readers ----------------------------------------------------------------------------- */

/* A counter that restarts while two windows read it, as in two threads: the outer read is in
 * progress while the inner read runs from its beginning to its end. */
typedef struct restarting {
    uint64_t inner_mj, outer_mj; /* the results of the two reads */
    harpe_monitor *monitor;
    const char *begins; /* the window that the inner read begins; NULL: no read is interrupted */
    uint64_t now_mj;
} restarting;

static int one_gpu(void *user) {
    (void)user;
    return 1;
}

static int64_t passing_time(void *user) {
    (void)user;
    static int64_t now_ns;
    return now_ns += 1000000;
}

static harpe_status interrupted_energy(void *user, int gpu, uint64_t *energy_mj,
                                       harpe_error *error) {
    (void)gpu;
    (void)error;
    restarting *counter = user;
    const char *name = counter->begins;
    counter->begins = NULL;
    if (name) {
        counter->now_mj = counter->inner_mj;
        begin(counter->monitor, name);
        counter->now_mj = counter->outer_mj;
    }
    *energy_mj = counter->now_mj;
    return HARPE_OK;
}

static harpe_status no_power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    (void)user;
    (void)gpu;
    (void)power_mw;
    return harpe_fail(error, HARPE_NOT_SUPPORTED, "no power");
}

TEST(restart_seen_by_two_reads_at_once_is_one_restart) {
    restarting counter = {.now_mj = 9000, .inner_mj = 100, .outer_mj = 110};
    harpe_energy_source source = {&counter,           one_gpu,  passing_time,
                                  interrupted_energy, no_power, NULL};
    harpe_monitor_options options = {0};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &counter.monitor, NULL), HARPE_OK);
    begin(counter.monitor, "before");
    counter.begins = "inner";
    begin(counter.monitor, "outer");
    counter.now_mj = 1110;
    assert_energy(counter.monitor, "outer", 1);
    assert_energy(counter.monitor, "inner", 1.01);
    counter.now_mj = 20000;
    assert_int_equal(harpe_monitor_end(counter.monitor, "before", false, NULL, NULL),
                     HARPE_DRIVER_ERROR);
    harpe_monitor_free(counter.monitor);
}

/* The outer read found the counter before the restart, and returns late. */
TEST(late_answer_of_before_a_restart_is_no_second_restart) {
    restarting counter = {.now_mj = 9000, .inner_mj = 100, .outer_mj = 9500};
    harpe_energy_source source = {&counter,           one_gpu,  passing_time,
                                  interrupted_energy, no_power, NULL};
    harpe_monitor_options options = {0};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &counter.monitor, NULL), HARPE_OK);
    begin(counter.monitor, "before");
    counter.begins = "inner";
    assert_energy(counter.monitor, "before", 0.5); /* ended before the restart */
    counter.now_mj = 150;
    begin(counter.monitor, "next");
    counter.now_mj = 250;
    assert_energy(counter.monitor, "next", 0.1);
    assert_energy(counter.monitor, "inner", 0.15);
    harpe_monitor_free(counter.monitor);
}

TEST(slow_driver_is_told_once) {
    warnings told = {0};
    scripted script = {.count = 1, .read_ns = 200000000};
    harpe_monitor_options options = {.log = {remember_warning, &told}};
    owned_monitor monitor = monitor_with(&script, &options);
    for (int i = 0; i < 3; i++) {
        begin(monitor, "a");
        script.now_ns += 600000000;
        script.energy_mj[0] += 1000;
        owned_measurement got = end(monitor, "a");
        assert_close(got.time_s, 1.0, 1e-12);
    }
    assert_int_equal(told.count, 1);
    assert_non_null(strstr(told.last, "took 0.400 of its 1.000 s"));
}

TEST(gpu_lost_in_mid_window_is_told_and_closes_it) {
    scripted script = {.count = 2};
    harpe_monitor *monitor = plain_monitor(&script);
    harpe_error error;
    begin(monitor, "a");
    script.fails[1] = HARPE_GPU_LOST;
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, &error), HARPE_GPU_LOST);
    assert_int_equal(error.vendor_code, 15);
    assert_string_equal(error.message, "window 'a': GPU 1 is lost");
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_NOT_FOUND);
    assert_int_equal(harpe_monitor_begin(monitor, "b", false, &error), HARPE_GPU_LOST);
    assert_int_equal(harpe_monitor_end(monitor, "b", true, NULL, NULL), HARPE_NOT_FOUND);
    script.fails[1] = HARPE_OK;
    begin(monitor, "b");
    harpe_monitor_free(monitor); /* with a window open */
}

TEST(zero_energy_warns_once_per_name) {
    warnings told = {0};
    scripted script = {.count = 1};
    harpe_monitor_options options = {.log = {remember_warning, &told}};
    owned_monitor monitor = monitor_with(&script, &options);
    for (int i = 0; i < 3; i++) {
        begin(monitor, "short");
        assert_energy(monitor, "short", 0);
    }
    assert_int_equal(told.count, 1);
    assert_int_equal(told.level, HARPE_LOG_WARNING);
    assert_non_null(strstr(told.last, "'short'"));
    begin(monitor, "other");
    assert_int_equal(harpe_monitor_end(monitor, "other", false, NULL, NULL), HARPE_OK);
    assert_int_equal(told.count, 2);
    begin(monitor, "long");
    script.now_ns += 60000000000;
    assert_int_equal(harpe_monitor_end(monitor, "long", false, NULL, NULL), HARPE_OK);
    assert_non_null(strstr(told.last, "it does not move"));
}

TEST(zero_energy_becomes_power_times_time) {
    warnings told = {0};
    scripted script = {.count = 2, .power_mw = {250000, 100000}};
    harpe_monitor_options options = {.approximate_instant_energy = true,
                                     .log = {remember_warning, &told}};
    owned_monitor monitor = monitor_with(&script, &options);
    begin(monitor, "short");
    script.now_ns += 4000000;
    script.energy_mj[1] += 3000;
    owned_measurement got = end(monitor, "short");
    assert_close(got.gpu_energy_j[0], 1, 1e-12);
    assert_close(got.gpu_energy_j[1], 3, 1e-12);
    assert_close(got.total_gpu_energy_j, 4, 1e-12);
    assert_int_equal(told.count, 0);
}

WINDOW_TEST(names_without_end_do_not_grow_the_monitor) {
    begin(monitor, "held");
    for (int i = 0; i < 2000; i++) {
        char name[32];
        snprintf(name, sizeof name, "step %d", i);
        begin(monitor, name);
        script->energy_mj[0] += 1000;
        script->now_ns += 10000000;
        assert_energy(monitor, name, 1);
    }
    assert_in_range(monitor->window_count, 1, 256);
    assert_energy(monitor, "held", 2000);
}

WINDOW_TEST(too_many_open_windows_are_refused) {
    char name[32];
    for (int i = 0; i < 4096; i++) {
        snprintf(name, sizeof name, "w%d", i);
        begin(monitor, name);
    }
    assert_int_equal(harpe_monitor_begin(monitor, "one more", false, NULL), HARPE_LIMIT_EXCEEDED);
    assert_int_equal(harpe_monitor_end(monitor, "w17", true, NULL, NULL), HARPE_OK);
    begin(monitor, "one more");
}

TEST(bad_options_are_refused) {
    scripted script = {.count = 2};
    harpe_energy_source source = scripted_source(&script);
    int twice[] = {1, 1}, beyond[] = {2}, negative[] = {-1};
    const harpe_monitor_options bad[] = {
        {.gpu_indices = twice, .gpu_count = 2},
        {.gpu_indices = beyond, .gpu_count = 1},
        {.gpu_indices = negative, .gpu_count = 1},
        {.gpu_count = 1},
        {.sample_period_s = -1},
        {.sample_period_s = 1e-9},
        {.sample_period_s = (double)NAN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        harpe_monitor *monitor = NULL;
        harpe_error error = {0};
        assert_int_equal(harpe_monitor_new_on(&bad[i], &source, &monitor, &error),
                         HARPE_INVALID_ARGUMENT);
        assert_null(monitor);
        assert_int_not_equal(error.message[0], '\0');
    }
    script.fails[1] = HARPE_GPU_LOST;
    harpe_monitor *monitor = NULL;
    harpe_monitor_options options = {0};
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_GPU_LOST);
    assert_null(monitor);
    harpe_monitor_free(NULL);
    harpe_window_measurement_clear(NULL);
    assert_int_equal(harpe_monitor_begin(NULL, "a", false, NULL), HARPE_INVALID_ARGUMENT);
}

TEST(odd_names) {
    scripted script = {.count = 0};
    owned_monitor monitor = plain_monitor(&script);
    char name[2000];
    memset(name, 'x', sizeof name);
    name[1999] = '\0';
    assert_int_equal(harpe_monitor_begin(monitor, name, false, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_monitor_begin(monitor, NULL, false, NULL), HARPE_INVALID_ARGUMENT);
    name[1024] = '\0';
    begin(monitor, name);
    begin(monitor, "");
    owned_measurement got = end(monitor, "");
    assert_int_equal(got.gpu_count, 0);
    assert_close(got.total_gpu_energy_j, 0, 0);
}

static char failed_mark;

static void *use_windows(void *user) {
    harpe_monitor *monitor = *(harpe_monitor **)user;
    char name[32];
    snprintf(name, sizeof name, "thread %p", (void *)&name);
    for (int i = 0; i < 2000; i++) {
        harpe_window_measurement got = {0};
        if (harpe_monitor_begin(monitor, name, false, NULL) != HARPE_OK) return &failed_mark;
        (void)harpe_monitor_begin(monitor, "shared", true, NULL);
        if (harpe_monitor_end(monitor, name, false, &got, NULL) != HARPE_OK) return &failed_mark;
        harpe_window_measurement_clear(&got);
        (void)harpe_monitor_end(monitor, "shared", false, NULL, NULL);
    }
    return NULL;
}

TEST(any_thread_may_use_a_monitor) {
    owned_monitor monitor = NULL;
    harpe_monitor_options options = {0};
    assert_int_equal(harpe_monitor_new(&options, &monitor, NULL), HARPE_OK);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_windows, &monitor), 0);
    for (int i = 0; i < 3; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}
