/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller tells the trainer of its requests to the driver: failed ones, those after a
 * restart, and whether anybody learns how long changes take. With emulated GPUs. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <harpe/frequency_controller.h>

#include "base/clock.h"
#include "base/scratch.h"
#include "client/clock_asks.h"
#include "client/controller_obedience.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define LIMIT_S 120.0
enum { HIGHEST_MHZ = 1410 };

static harpe_gpus *gpus;
static harpe_frequency_controller *controller;

static void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-asks-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

static int start_machine(void **state) {
    char name[64];
    if (scratch_make(state) != 0) return -1;
    remove_cluster();
    snprintf(name, sizeof name, "test-asks-%d", (int)getpid());
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "1xA100", 1);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_PROGRAM", HARPE_BINARY_DIR "/harpe", 1);
    setenv("HARPE_EMULATOR_FAULTS_FILE", scratch_path(*state, "faults"), 1);
    setenv("HARPE_EMULATOR_TIME_SCALE", "20", 1);
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("HARPE_EMULATOR_PHYSICS");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("ZEUSD_SOCK_PATH");
    controller = NULL;
    return harpe_gpus_open(NULL, &gpus, NULL) == HARPE_OK ? 0 : -1;
}

static int stop_machine(void **state) {
    harpe_frequency_controller_stop(controller);
    harpe_gpus_close(gpus);
    remove_cluster();
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    return scratch_remove(state);
}

static void start(void) {
    harpe_error error = {.message = ""};
    harpe_frequency_controller_options options = {.gpus = gpus, .minimum_dwell_s = -1};
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

/* Waits until the last noted request has a clock. Returns the number of requests. */
static size_t wait_for_ask(harpe_clock_ask *asks, uint32_t mhz) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    for (;;) {
        bool has_lost;
        size_t count = harpe_clock_asks_copy(controller->slot, asks, &has_lost);
        if (count > 0 && asks[count - 1].mhz == mhz) return count;
        assert_true(harpe_clock_s() < give_up_at);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Waits until the process has carried out a request and will not begin it again. */
static void wait_until_taken(void) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (atomic_load(&controller->slot->taken) == 0) {
        assert_true(harpe_clock_s() < give_up_at);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void a_request_that_failed_is_followed_by_no_clock(void **state) {
    const scratch *files = *state;
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    start();
    harpe_frequency_controller_set(controller, 1200);
    assert_int_equal(wait_for_ask(asks, 1200), 1);
    wait_until_taken(); /* or it fails, too */
    put_file(files->path, "no_permission\n");
    harpe_frequency_controller_set(controller, 900);
    assert_int_equal(wait_for_ask(asks, 0), 3);
    assert_int_equal(asks[1].mhz, 900);
    assert_int_equal(asks[2].asked_us, asks[1].asked_us);
    put_file(files->path, "\n");
    harpe_frequency_controller_set(controller, 600);
    assert_true(wait_for_ask(asks, 600) >= 4);
}

static void a_new_process_sets_the_highest_clock(void **state) {
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    harpe_error error = {.message = ""};
    (void)state;
    start();
    assert_int_equal(atomic_load(&controller->slot->ask_count), 0);
    harpe_frequency_controller_set(controller, 1200);
    assert_int_equal(wait_for_ask(asks, 1200), 1);
    wait_until_taken(); /* or the new process carries it out after the highest clock */
    kill(atomic_load(&controller->process), SIGKILL);
    double give_up_at = harpe_clock_s() + LIMIT_S;
    while (!harpe_frequency_controller_has_died(controller)) {
        assert_true(harpe_clock_s() < give_up_at);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (harpe_frequency_controller_restart(controller, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    assert_true(wait_for_ask(asks, HIGHEST_MHZ) >= 2);
    assert_true(atomic_load(&controller->slot->learns_switches) != 0);
}

/* Starts the thread while no descriptor is left, so that it cannot start. */
static void start_without_descriptors(harpe_obedience *obedience, harpe_controller_slot *slot,
                                      const harpe_controller_gpu *gpu) {
    struct rlimit usual, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = usual;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    harpe_obedience_start(obedience, slot, gpu);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

static void requests_are_noted_without_the_thread_that_learns(void **state) {
    static harpe_controller_slot slot;
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    harpe_controller_gpu gpu = {.gpus = gpus};
    harpe_obedience obedience = {.slot = NULL};
    bool has_lost;
    (void)state;
    harpe_obedience_start(&obedience, &slot, &gpu);
    assert_true(atomic_load(&slot.learns_switches) != 0);
    assert_true(harpe_obedience_stop(&obedience));
    harpe_obedience other = {.slot = NULL};
    start_without_descriptors(&other, &slot, &gpu);
    assert_int_equal(atomic_load(&slot.learns_switches), 0);
    harpe_obedience_ask(&other, 1200);
    assert_int_equal(harpe_clock_asks_copy(&slot, asks, &has_lost), 1);
    assert_int_equal(asks[0].mhz, 1200);
    assert_true(harpe_obedience_stop(&other));
}

/* The GPU has the clock already, so a watch could only learn something wrong. */
static void the_clock_at_the_start_is_not_watched(void **state) {
    static harpe_controller_slot slot;
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    harpe_controller_gpu gpu = {.gpus = gpus};
    bool has_lost;
    (void)state;
    for (size_t earlier = 0; earlier < 2; earlier++) {
        harpe_obedience obedience = {.slot = NULL};
        harpe_obedience_start(&obedience, &slot, &gpu);
        harpe_obedience_begin(&obedience, HIGHEST_MHZ);
        size_t count = harpe_clock_asks_copy(&slot, asks, &has_lost);
        assert_int_equal(count, earlier > 0 ? 2 : 0);
        if (earlier > 0) assert_int_equal(asks[1].mhz, HIGHEST_MHZ);
        assert_int_equal(obedience.watched, 0);
        assert_int_equal(atomic_load(&obedience.calling_mhz), 0);
        assert_int_equal(atomic_load(&obedience.count), 1);
        assert_int_equal(atomic_load(&obedience.ask_count), 1);
        harpe_obedience_ask(&obedience, 900);
        assert_int_equal(obedience.watched, 1);
        assert_true(harpe_obedience_stop(&obedience));
        slot = (harpe_controller_slot){0};
        harpe_clock_asks_add(&slot, 1, 900);
    }
}

/* Lets the GPU of this machine work, because a GPU without work is not compared. */
static void let_gpu_work(void) {
    void *library = dlopen(EMULATOR, RTLD_NOW);
    assert_non_null(library);
    int (*wait)(unsigned int gpu, int is_waiting);
    *(void **)&wait = dlsym(library, "harpe_emulator_wait");
    assert_non_null(wait);
    assert_int_equal(wait(0, 1), 0);
    dlclose(library);
}

/* Waits until the thread has compared the clock often enough to have found a difference. Returns
 * how many of these looks found one. */
static uint64_t differences_of(const harpe_controller_slot *slot) {
    double give_up_at = harpe_clock_s() + LIMIT_S;
    uint64_t looks = atomic_load(&slot->looks), disobeyed = atomic_load(&slot->disobeyed);
    while (atomic_load(&slot->looks) < looks + 10) {
        assert_true(harpe_clock_s() < give_up_at);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return atomic_load(&slot->disobeyed) - disobeyed;
}

/* On a busy machine, a GPU may have its new clock long before the driver call that sets it returns.
 */
static void a_gpu_obeys_a_call_that_has_not_returned(void **state) {
    static harpe_controller_slot slot;
    harpe_controller_gpu gpu = {.gpus = gpus};
    harpe_obedience obedience = {.slot = NULL};
    (void)state;
    let_gpu_work();
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, HIGHEST_MHZ, HIGHEST_MHZ, NULL),
                     HARPE_OK);
    harpe_obedience_start(&obedience, &slot, &gpu);
    harpe_obedience_begin(&obedience, HIGHEST_MHZ);
    assert_int_equal(differences_of(&slot), 0);
    harpe_obedience_ask(&obedience, 900);
    assert_int_equal(differences_of(&slot), 0);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 900, 900, NULL), HARPE_OK);
    assert_int_equal(differences_of(&slot), 0);
    harpe_obedience_fail(&obedience); /* then it is another program that has set 900 MHz */
    assert_true(differences_of(&slot) >= 9);
    harpe_obedience_ask(&obedience, 900);
    harpe_obedience_note(&obedience, 900);
    (void)differences_of(&slot);
    assert_int_equal(differences_of(&slot), 0);
    assert_true(harpe_obedience_stop(&obedience));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_machine, stop_machine)
    const struct CMUnitTest tests[] = {
        TEST(a_request_that_failed_is_followed_by_no_clock),
        TEST(a_new_process_sets_the_highest_clock),
        TEST(requests_are_noted_without_the_thread_that_learns),
        TEST(the_clock_at_the_start_is_not_watched),
        TEST(a_gpu_obeys_a_call_that_has_not_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
