/* SPDX-License-Identifier: Apache-2.0 */
/* The frequency controller, tested in one process: which clock requests reach the emulated GPU,
 * which do not, and how they are counted. test_controller_start.c tests its start,
 * test_controller.py its end. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <harpe/frequency_controller.h>

#include "base/clock.h"
#include "base/scratch.h"
#include "client/controller.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define LIMIT_S 120.0 /* of every wait: far more than a loaded machine needs */

static harpe_gpus *gpus;
static harpe_frequency_controller *controller;

/* ---- The machine ----------------------------------------------------------------------------- */

static void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-controller-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

static int start_machine(void **state) {
    (void)state;
    char name[64];
    remove_cluster();
    snprintf(name, sizeof name, "test-controller-%d", (int)getpid());
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "2xA40", 1);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_PROGRAM", HARPE_BINARY_DIR "/harpe", 1);
    unsetenv("HARPE_EMULATOR_TIME_SCALE");
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("ZEUSD_SOCK_PATH");
    controller = NULL;
    return harpe_gpus_open(NULL, &gpus, NULL) == HARPE_OK ? 0 : -1;
}

static int stop_machine(void **state) {
    (void)state;
    harpe_frequency_controller_stop(controller);
    harpe_gpus_close(gpus);
    remove_cluster();
    return 0;
}

static void start(harpe_frequency_controller_options options) {
    harpe_error error = {0};
    options.gpus = gpus;
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

static void pause_s(double seconds) {
    struct timespec pause = {.tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* An idle GPU runs at its lowest clock, or at the clock of its lock. */
static uint32_t clock_mhz(int gpu) {
    uint32_t mhz = 0;
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &mhz, NULL, NULL), HARPE_OK);
    return mhz;
}

static void wait_for_clock(int gpu, uint32_t mhz) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (clock_mhz(gpu) != mhz && harpe_clock_s() < give_up_at)
        pause_s(0.001);
    assert_int_equal(clock_mhz(gpu), mhz);
}

/* Returns the counts after every clock request has been handled. */
static harpe_frequency_controller_counts settled(void) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    harpe_frequency_controller_counts counts;
    do {
        pause_s(0.001);
        counts = harpe_frequency_controller_count(controller);
    } while (counts.clock_requests !=
                 counts.written + counts.skipped + counts.superseded + counts.failed &&
             harpe_clock_s() < give_up_at);
    assert_int_equal(counts.clock_requests,
                     counts.written + counts.skipped + counts.superseded + counts.failed);
    return counts;
}

static void wait_until_parked(void) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (!atomic_load(&controller->slot->is_parked) && harpe_clock_s() < give_up_at)
        pause_s(0.001);
    assert_true(atomic_load(&controller->slot->is_parked));
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void a_request_is_one_word_of_time_and_frequency(void **state) {
    (void)state;
    int64_t now_ns = INT64_C(0x123456789ABCDEF0);
    uint64_t request = harpe_clock_request_make(now_ns, 1410);
    assert_int_equal(harpe_clock_request_mhz(request), 1410);
    assert_int_equal(harpe_clock_request_age_ns(request, now_ns), 0);
    assert_int_equal(harpe_clock_request_age_ns(request, now_ns + 12345), 12345);
    /* The 48 bits of the time may have wrapped round. */
    int64_t edge_ns = (INT64_C(1) << 48) - 100;
    assert_int_equal(
        harpe_clock_request_age_ns(harpe_clock_request_make(edge_ns, 1), edge_ns + 250), 250);
    assert_int_equal(harpe_clock_request_mhz(harpe_clock_request_make(now_ns, -5)), 0);
    assert_int_equal(harpe_clock_request_mhz(harpe_clock_request_make(now_ns, 1000000)), 0xFFFF);
}

static void starts_at_the_highest_clocks_of_its_own_gpu_only(void **state) {
    (void)state;
    uint32_t memory_mhz = 0;
    start((harpe_frequency_controller_options){.gpu = 1});
    assert_int_equal(clock_mhz(1), 1740);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 1, NULL, &memory_mhz, NULL), HARPE_OK);
    assert_int_equal(memory_mhz, 7251);
    assert_int_equal(clock_mhz(0), 210);
    harpe_frequency_controller_set(controller, 900);
    wait_for_clock(1, 900);
    assert_int_equal(clock_mhz(0), 210);
}

static void the_same_frequency_is_set_once_and_0_leaves_it_alone(void **state) {
    (void)state;
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    const int requests[] = {1740, 1200, 1200, 0, 1200, 600, 0};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        harpe_frequency_controller_set(controller, requests[i]);
        (void)settled();
    }
    harpe_frequency_controller_counts counts = settled();
    assert_int_equal(counts.clock_requests, 7);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    assert_int_equal(counts.wishes, 7); /* the old name */
#pragma GCC diagnostic pop
    assert_int_equal(counts.written, 2);
    assert_int_equal(counts.skipped, 5);
    assert_int_equal(counts.superseded, 0);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(clock_mhz(0), 600);
    assert_true(counts.latency_median_s > 0);
    assert_true(counts.latency_median_s <= counts.latency_maximum_s);
}

static void writes_keep_their_distance_and_the_latest_request_wins(void **state) {
    (void)state;
    start((harpe_frequency_controller_options){.minimum_dwell_s = 0.1});
    double start_s = harpe_clock_s();
    double give_up_at = start_s + LIMIT_S;
    for (int i = 0; harpe_clock_s() < give_up_at; i++) {
        harpe_frequency_controller_set(controller, 300 + 15 * (i % 50));
        pause_s(0.001);
        harpe_frequency_controller_counts seen = harpe_frequency_controller_count(controller);
        if (seen.written >= 2 && seen.superseded > 0) break;
    }
    harpe_frequency_controller_set(controller, 1500);
    wait_for_clock(0, 1500);
    harpe_frequency_controller_counts counts = settled();
    double took_s = harpe_clock_s() - start_s;
    assert_true(counts.written >= 2);
    assert_true((double)counts.written <= took_s / 0.1 + 2);
    assert_true(counts.superseded > 0);
}

static void dwell_time_is_gpu_time(void **state) {
    (void)state;
    harpe_gpus_close(gpus);
    remove_cluster();
    setenv("HARPE_EMULATOR_TIME_SCALE", "1000", 1);
    assert_int_equal(harpe_gpus_open(NULL, &gpus, NULL), HARPE_OK);
    start((harpe_frequency_controller_options){.minimum_dwell_s = 100});
    double start_s = harpe_clock_s(); /* before the write from which the dwell time counts */
    harpe_frequency_controller_set(controller, 600);
    wait_for_clock(0, 600);
    harpe_frequency_controller_set(controller, 900);
    wait_for_clock(0, 900);
    double took_s = harpe_clock_s() - start_s;
    assert_true(took_s > 0.05); /* a tenth of a second */
    assert_true(took_s < 90);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static uint64_t wakes(void) { return atomic_load(&controller->slot->wakes); }

/* Sends many requests to a parked controller. Returns the number of wakes, or 0 if the machine was
 * so slow that the controller may have parked in between. */
static uint64_t wakes_of_a_burst(void) {
    wait_until_parked();
    uint64_t before = wakes();
    double start_s = harpe_clock_s();
    harpe_frequency_controller_set(controller, 600);
    wait_for_clock(0, 600);
    for (int i = 0; i < 200; i++)
        harpe_frequency_controller_set(controller, i % 2 ? 600 : 900);
    uint64_t more = wakes() - before;
    assert_true(more >= 1);
    return harpe_clock_s() - start_s < 0.5 ? more : 0;
}

static void an_idle_controller_sleeps_and_one_request_wakes_it(void **state) {
    (void)state;
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    uint64_t more = 0;
    for (int tries = 0; tries < 50 && more == 0; tries++)
        more = wakes_of_a_burst();
    assert_int_equal(more, 1);
    uint64_t before = wakes();
    wait_until_parked(); /* a second later */
    harpe_frequency_controller_set(controller, 1200);
    wait_for_clock(0, 1200);
    assert_int_equal(wakes(), before + 1);
}

static void a_controller_that_is_not_to_poll_is_woken_each_time(void **state) {
    (void)state;
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1, .poll_interval_s = -1});
    for (int i = 0; i < 50; i++) {
        wait_until_parked();
        harpe_frequency_controller_set(controller, 300 + 15 * i);
        wait_for_clock(0, (uint32_t)(300 + 15 * i));
    }
    assert_int_equal(atomic_load(&controller->slot->wakes), 50);
    assert_int_equal(settled().written, 50);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void *set_all_the_time(void *argument) {
    _Atomic bool *is_over = argument;
    for (int i = 0; !atomic_load(is_over); i++)
        harpe_frequency_controller_set(controller, 300 + 15 * (i % 50));
    return NULL;
}

static void the_controller_may_die_and_come_back_while_requests_go_on(void **state) {
    (void)state;
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    harpe_error error = {0};
    assert_int_equal(harpe_frequency_controller_restart(controller, &error), HARPE_ALREADY_EXISTS);
    pthread_t trainer;
    _Atomic bool is_over = false;
    assert_int_equal(pthread_create(&trainer, NULL, set_all_the_time, &is_over), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(harpe_frequency_controller_check(controller, &error), HARPE_OK);
        kill(atomic_load(&controller->process), SIGKILL);
        double give_up_at = harpe_clock_s() + LIMIT_S;
        while (harpe_frequency_controller_check(controller, &error) == HARPE_OK &&
               harpe_clock_s() < give_up_at)
            pause_s(0.001);
        assert_int_equal(error.status, HARPE_UNAVAILABLE);
        uint64_t written = harpe_frequency_controller_count(controller).written;
        harpe_status status = harpe_frequency_controller_restart(controller, &error);
        if (status != HARPE_OK) fail_msg("%s", error.message);
        while (harpe_frequency_controller_count(controller).written <= written &&
               harpe_clock_s() < give_up_at)
            pause_s(0.001);
        assert_true(harpe_frequency_controller_count(controller).written > written);
    }
    atomic_store(&is_over, true);
    pthread_join(trainer, NULL);
    harpe_frequency_controller_set(controller, 1500);
    wait_for_clock(0, 1500);
    harpe_frequency_controller_stop(controller);
    controller = NULL;
    wait_for_clock(0, 210); /* on a busy machine the controller continues alone after 3 s */
}

static void *give_up(void *argument) {
    pause_s(0.3);
    atomic_store((atomic_bool *)argument, true);
    return NULL;
}

/* A driver needs `slow_s` before the effect of a call, and as long after it. Returns false if the
 * machine was so slow that nothing is proved. */
static bool ends_before_a_driver_that_needs(double slow_s) {
    scratch *files = NULL;
    assert_int_equal(scratch_make((void **)&files), 0);
    setenv("HARPE_EMULATOR_FAULTS_FILE", scratch_path(files, "faults"), 1);
    atomic_bool gives_up = false;
    pthread_t thread;
    harpe_error error = {.message = ""};
    harpe_frequency_controller_options options = {.gpus = gpus};
    assert_int_equal(
        harpe_frequency_controller_start_unless(&options, &gives_up, &controller, &error),
        HARPE_OK);
    assert_true(controller->stop_s == 3);
    controller->stop_s = slow_s / 3;
    kill(atomic_load(&controller->process), SIGKILL);
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (!harpe_frequency_controller_has_died(controller) && harpe_clock_s() < give_up_at)
        pause_s(0.001);
    assert_true(harpe_frequency_controller_has_died(controller));
    char fault[64];
    snprintf(fault, sizeof fault, "slow_set=%.0f\n", slow_s * 2000);
    put_file(files->path, fault);
    double start_s = harpe_clock_s();
    assert_int_equal(pthread_create(&thread, NULL, give_up, &gives_up), 0);
    assert_int_equal(harpe_frequency_controller_restart(controller, &error), HARPE_INTERRUPTED);
    pthread_join(thread, NULL);
    harpe_frequency_controller_stop(controller);
    controller = NULL;
    uint32_t mhz = clock_mhz(0); /* still the highest: nothing has waited for the driver */
    bool is_in_time = harpe_clock_s() - start_s < 0.9 * slow_s;
    if (is_in_time) assert_int_equal(mhz, 1740);
    put_file(files->path, "\n");
    wait_for_clock(0, 210);
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    scratch_remove((void **)&files);
    return is_in_time;
}

static void the_end_does_not_wait_for_a_driver_that_is_slow(void **state) {
    (void)state;
    for (double slow_s = 1.2; !ends_before_a_driver_that_needs(slow_s); slow_s *= 2.5)
        assert_true(slow_s < 20);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    harpe_error error;
    harpe_frequency_controller *untouched = NULL;
    harpe_frequency_controller_options options = {0};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &error),
                     HARPE_INVALID_ARGUMENT);
    options = (harpe_frequency_controller_options){.gpus = gpus, .gpu = 2};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &error),
                     HARPE_INVALID_ARGUMENT);
    options = (harpe_frequency_controller_options){.gpus = gpus, .minimum_dwell_s = 1e300};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &error),
                     HARPE_INVALID_ARGUMENT);
    setenv("HARPE_PROGRAM", "/nowhere/harpe", 1);
    options = (harpe_frequency_controller_options){.gpus = gpus};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &error),
                     HARPE_NOT_FOUND);
    assert_null(untouched);
    harpe_frequency_controller_set(NULL, 900);
    harpe_frequency_controller_stop(NULL);
    assert_int_equal(harpe_frequency_controller_check(NULL, &error), HARPE_OK);
    assert_int_equal(harpe_frequency_controller_count(NULL).clock_requests, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_machine, stop_machine)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_one_word_of_time_and_frequency),
        TEST(starts_at_the_highest_clocks_of_its_own_gpu_only),
        TEST(the_same_frequency_is_set_once_and_0_leaves_it_alone),
        TEST(writes_keep_their_distance_and_the_latest_request_wins),
        TEST(dwell_time_is_gpu_time),
        TEST(an_idle_controller_sleeps_and_one_request_wakes_it),
        TEST(a_controller_that_is_not_to_poll_is_woken_each_time),
        TEST(the_controller_may_die_and_come_back_while_requests_go_on),
        TEST(the_end_does_not_wait_for_a_driver_that_is_slow),
        TEST(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
