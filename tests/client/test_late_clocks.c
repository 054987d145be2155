/* SPDX-License-Identifier: Apache-2.0 */
/* The controller on emulated GPUs whose clocks change late, with its real process: it learns how
 * long changes take, asks for clocks before their instructions begin, and takes a wrong request
 * back. */
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
#include "client/anticipation.h"
#include "client/controller_slot.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define LIMIT_S 120.0
#define CALL_S 0.002
#define LATENCY_S 0.03

static harpe_gpus *gpus;
static harpe_frequency_controller *controller;

/* ---- The machine ----------------------------------------------------------------------------- */

static void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-late-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

static int start_machine_with(void **state, const char *physics) {
    char name[64], path[512];
    if (scratch_make(state) != 0) return -1;
    const scratch *files = *state;
    remove_cluster();
    snprintf(name, sizeof name, "test-late-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/physics.json", files->root);
    FILE *file = fopen(path, "w");
    if (!file) return -1;
    fputs(physics, file);
    fclose(file);
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "1xA100", 1);
    setenv("HARPE_EMULATOR_PHYSICS", path, 1);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_PROGRAM", HARPE_BINARY_DIR "/harpe", 1);
    unsetenv("HARPE_EMULATOR_TIME_SCALE");
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("ZEUSD_SOCK_PATH");
    controller = NULL;
    return harpe_gpus_open(NULL, &gpus, NULL) == HARPE_OK ? 0 : -1;
}

static int start_late(void **state) {
    return start_machine_with(state, "{\"switch_call_s\": 0.002, \"switch_latency_s\": 0.03}");
}

static int start_ideal(void **state) { return start_machine_with(state, "{}"); }

static int stop_machine(void **state) {
    harpe_frequency_controller_stop(controller);
    harpe_gpus_close(gpus);
    remove_cluster();
    return scratch_remove(state);
}

static void start(bool may_anticipate) {
    harpe_error error = {0};
    harpe_frequency_controller_options options = {
        .gpus = gpus, .may_anticipate = may_anticipate, .minimum_dwell_s = -1};
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

static void pause_s(double seconds) {
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static int clock_mhz(void) {
    uint32_t mhz = 0;
    assert_int_equal(harpe_gpu_current_clocks(gpus, 0, &mhz, NULL, NULL), HARPE_OK);
    return (int)mhz;
}

/* ---- The training ---------------------------------------------------------------------------- */

typedef struct planned {
    int mhz;
    double busy_s, wait_s;
} planned;

static const planned with_waits[] = {{1410, 0.05, 0.05}, {705, 0.05, 0.05}, {1095, 0.05, 0.05}};
static const planned without_waits[] = {{1410, 0.06, 0}, {705, 0.06, 0}};

/* Runs a step. Returns the number of instructions that had their clock from their begin on. */
static int run_step(const planned *plan, uint32_t count, int64_t series) {
    int at_clock = 0;
    for (uint32_t i = 0; i < count; i++) {
        harpe_controller_begin_instruction(controller, plan[i].mhz, series, i);
        at_clock += clock_mhz() == plan[i].mhz;
        pause_s(plan[i].busy_s);
        harpe_controller_end_instruction(controller);
        if (plan[i].wait_s > 0) pause_s(plan[i].wait_s);
    }
    return at_clock;
}

/* Runs steps until one has all of its clocks in time. A busy machine may need many steps. */
static void run_until_in_time(const planned *plan, uint32_t count, int64_t series) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (run_step(plan, count, series) < (int)count)
        assert_true(harpe_clock_s() < give_up_at);
}

static harpe_frequency_controller_anticipation early(void) {
    return harpe_frequency_controller_anticipates(controller);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void clocks_are_there_when_their_instructions_begin(void **state) {
    (void)state;
    start(true);
    assert_false(early().is_active);
    run_until_in_time(with_waits, 3, 1);
    assert_true(early().is_active);
    assert_true(early().anticipated >= 3);
    harpe_switch_latency latencies[8];
    size_t count = harpe_frequency_controller_switch_latencies(controller, latencies, 8);
    assert_true(count >= 2 && count <= 3);
    for (size_t i = 0; i < count; i++) {
        assert_true(latencies[i].samples >= 1);
        assert_true(latencies[i].latency_s >= 0.85 * (CALL_S + LATENCY_S));
        assert_true(latencies[i].latency_p95_s >= latencies[i].latency_s);
    }
    assert_int_equal(harpe_frequency_controller_switch_latencies(controller, NULL, 0), count);
    harpe_frequency_controller_counts counts = harpe_frequency_controller_count(controller);
    assert_int_equal(counts.failed, 0);
}

static void without_anticipation_no_clock_is_early(void **state) {
    (void)state;
    start(false);
    (void)run_step(with_waits, 3, 1); /* the controller has set the first clock at its start */
    /* A busy machine may stop this process between a request and the look at the clock. */
    int steps = 1;
    while (run_step(with_waits, 3, 1) != 0)
        assert_true(steps++ < 100);
    assert_false(early().is_active);
    assert_int_equal(early().anticipated, 0);
}

/* Runs steps with a new controller. Returns true if it has anticipated nothing. */
static bool anticipates_nothing(void) {
    harpe_frequency_controller_stop(controller);
    start(true);
    for (int step = 0; step < 5; step++)
        (void)run_step(with_waits, 3, 1);
    return !early().is_active && early().anticipated + early().returned == 0;
}

/* On a busy machine the controller may take its samples of the clock late. It then learns that the
 * changes are late. */
static void a_gpu_that_obeys_at_once_is_not_anticipated(void **state) {
    (void)state;
    int tries = 0;
    while (!anticipates_nothing())
        assert_true(++tries < 20);
}

static void a_stall_takes_an_early_request_back(void **state) {
    (void)state;
    start(true);
    double give_up_at = harpe_clock_s() + LIMIT_S;
    run_until_in_time(with_waits, 3, 1); /* it knows the latencies now */
    while (early().returned == 0) {
        for (int step = 0; step < 4; step++)
            (void)run_step(without_waits, 2, 2);
        uint64_t returned = early().returned;
        harpe_controller_begin_instruction(controller, 1410, 2, 0);
        for (int i = 0; i < 200 && early().returned == returned; i++)
            pause_s(0.005);
        double until_s = harpe_clock_s() + LIMIT_S;
        while (early().returned > returned && clock_mhz() != 1410)
            assert_true(harpe_clock_s() < until_s);
        harpe_controller_end_instruction(controller);
        assert_true(harpe_clock_s() < give_up_at);
    }
}

static void an_evaluation_runs_at_the_clocks_that_are_requested(void **state) {
    (void)state;
    start(true);
    run_until_in_time(with_waits, 3, 1);
    for (int i = 0; i < 3; i++) {
        int mhz = i == 1 ? 900 : 1410;
        double give_up_at = harpe_clock_s() + LIMIT_S;
        harpe_controller_begin_instruction(controller, mhz, 1, HARPE_POSITION_LOST);
        while (clock_mhz() != mhz)
            assert_true(harpe_clock_s() < give_up_at);
        uint64_t anticipated = early().anticipated;
        pause_s(0.1);
        assert_int_equal(early().anticipated, anticipated);
        harpe_controller_end_instruction(controller);
    }
    run_until_in_time(with_waits, 3, 1);
}

static void a_killed_controller_is_replaced_and_learns_again(void **state) {
    (void)state;
    harpe_error error = {0};
    start(true);
    run_until_in_time(with_waits, 3, 1);
    assert_int_equal(kill(atomic_load(&controller->process), SIGKILL), 0);
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (!harpe_frequency_controller_has_died(controller))
        assert_true(harpe_clock_s() < give_up_at);
    (void)run_step(with_waits, 3, 1);
    assert_int_equal(harpe_frequency_controller_restart(controller, &error), HARPE_OK);
    run_until_in_time(with_waits, 3, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clocks_are_there_when_their_instructions_begin, start_late,
                                        stop_machine),
        cmocka_unit_test_setup_teardown(without_anticipation_no_clock_is_early, start_late,
                                        stop_machine),
        cmocka_unit_test_setup_teardown(a_gpu_that_obeys_at_once_is_not_anticipated, start_ideal,
                                        stop_machine),
        cmocka_unit_test_setup_teardown(a_stall_takes_an_early_request_back, start_late,
                                        stop_machine),
        cmocka_unit_test_setup_teardown(an_evaluation_runs_at_the_clocks_that_are_requested,
                                        start_late, stop_machine),
        cmocka_unit_test_setup_teardown(a_killed_controller_is_replaced_and_learns_again,
                                        start_late, stop_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
