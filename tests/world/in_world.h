/* SPDX-License-Identifier: Apache-2.0 */
/* Runs tests of cmocka in a world (world/world.h): in virtual time, with emulated GPUs, and with
 * controllers and guards that are processes of the world. A test that fails ends its program,
 * because nothing can leave a world halfway. What a killed process had allocated is lost. */
#ifndef HARPE_TESTS_WORLD_IN_WORLD_H
#define HARPE_TESTS_WORLD_IN_WORLD_H

#include "test.h"

#include <dlfcn.h>

#include "base/clock.h"
#include "base/platform.h"
#include "base/scratch.h"
#include "base/wait.h"
#include "client/control.h"
#include "power_limit/guard.h"
#include "world/transport.h"
#include "world/world.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define WORLD_BEGINS_NS INT64_C(1735689600000000000) /* 2025-01-01 */

/* The GPUs of all tests of a program. */
typedef struct world_machine {
    const char *gpus, *time_scale; /* such as "4xA100" */
    const char *physics;           /* the text of a file; NULL: ideal */
    const char *profile;           /* the text of a file; NULL: none */
    void (*begin)(void);           /* called in the world before each test; NULL: nothing */
    void (*end)(void);             /* after each test */
    harpe_world_program program;   /* one more; a NULL name: none */
} world_machine;

/* A test, which gets a scratch directory (base/scratch.h). Runs once in order, and then with two
 * seeds that draw which thread runs; with HARPE_TEST_SCALE (explorer_internal.h), with 20 and more.
 */
typedef struct world_test {
    void (*run)(void **state);
    const world_machine *machine;
    void *library; /* the emulator */
    scratch *files;
} world_test;

static world_test *world_test_now; /* the running test */

/* Replaces the faults of the driver (docs/emulator.md). "": none. */
static inline void use_faults(const char *list) {
    bool (*use)(const char *list);
    *(void **)&use = dlsym(world_test_now->library, "harpe_emulator_use_faults");
    assert_true(use(list));
}

static inline void pause_s(double seconds) { harpe_sleep_ns((int64_t)(seconds * 1e9)); }

static inline pthread_t start_thread(void *(*run)(void *user), void *user) {
    pthread_t thread;
    assert_int_equal(harpe_thread_start(&thread, "of the test", run, user), 0);
    return thread;
}

/* Waits until the condition is true, which is looked at every millisecond. */
#define WAIT_FOR(condition) \
    do { \
        int64_t wait_end_ns = harpe_clock_ns() + INT64_C(120000000000); \
        while (!(condition) && harpe_clock_ns() < wait_end_ns) \
            harpe_sleep_ns(1000000); \
        assert_true(condition); \
    } while (0)

/* Lets a GPU have work, or no longer. A GPU without work shows no clocks that matter. */
static inline void let_gpu_work(unsigned gpu, bool works) {
    int (*wait)(unsigned gpu, int is_waiting);
    *(void **)&wait = dlsym(world_test_now->library, "harpe_emulator_wait");
    assert_int_equal(wait(gpu, works), 0);
}

/* Returns a running controller's process; -1: there is none. */
static inline pid_t find_controller(void) { return harpe_world_pick(HARPE_CONTROLLER_ARGUMENT); }

static inline void put_or_unset(const char *name, const char *text) {
    if (text) put_file(scratch_path(world_test_now->files, name), text);
    setenv(name, world_test_now->files->path, 1);
    if (!text) unsetenv(name);
}

static inline void set_up_machine(const world_machine *machine) {
    static const char *const foreign[] = {"HARPE_EMULATOR_FAULTS", "HARPE_EMULATOR_FAULTS_FILE",
                                          "HARPE_TOKEN",           "ZEUSD_SOCK_PATH",
                                          "CUDA_VISIBLE_DEVICES",  "HARPE_LOWEST_CLOCK_MHZ"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        unsetenv(foreign[i]);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_EMULATOR_GPUS", machine->gpus, 1);
    setenv("HARPE_EMULATOR_TIME_SCALE", machine->time_scale ? machine->time_scale : "1", 1);
    put_or_unset("HARPE_EMULATOR_PHYSICS", machine->physics);
    put_or_unset("HARPE_EMULATOR_PROFILE", machine->profile);
}

static inline void use_platform(const harpe_platform *platform) {
    void (*use)(const harpe_platform *platform);
    *(void **)&use = dlsym(world_test_now->library, "harpe_emulator_use_platform");
    use(platform);
}

static inline void run_first(void *user) {
    static const harpe_transport_options messages = {.latency_ns = 100000};
    world_test *test = user;
    void *state = test->files;
    use_platform(harpe_platform_in_use);
    assert_int_equal(harpe_transport_begin(&messages, NULL), HARPE_OK);
    if (test->machine->begin) test->machine->begin();
    test->run(&state);
    if (test->machine->end) test->machine->end();
    harpe_transport_end();
    use_platform(NULL);
}

static inline void run_in_world(void **state) {
    world_test_now = *state;
    const harpe_world_program programs[] = {{HARPE_CONTROLLER_ARGUMENT, harpe_controller_main},
                                            {"power-limit", harpe_power_limit_guard_main},
                                            world_test_now->machine->program,
                                            {0}};
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    int seeds = all_trials() ? test_trials(20) : 2;
    for (int seed = 0; seed <= seeds; seed++) {
        assert_int_equal(scratch_make((void **)&world_test_now->files), 0);
        (void)chmod(world_test_now->files->root, 0700); /* records of GPUs are kept there */
        set_up_machine(world_test_now->machine);
        assert_non_null(world_test_now->library = dlopen(EMULATOR, RTLD_NOW | RTLD_LOCAL));
        harpe_world_options options = {.seed = (uint64_t)seed,
                                       .shuffles = seed > 0,
                                       .programs = programs,
                                       .wall_ns = WORLD_BEGINS_NS,
                                       .directory = world_test_now->files->root,
                                       .longest_ns = INT64_C(100000000000000),
                                       .most_turns = 1000000};
        assert_works(harpe_world_run(&options, run_first, world_test_now, &failure));
        dlclose(world_test_now->library);
        assert_int_equal(scratch_remove((void **)&world_test_now->files), 0);
    }
}

/* clang-format off */
#define IN_WORLD_OF(name, of) \
    {#name, run_in_world, NULL, NULL, &(world_test){.run = name, .machine = &(of)}}
/* clang-format on */
/* Uses `machine`, a world_machine of the test program. */
#define IN_WORLD(name) IN_WORLD_OF(name, machine)

/* A test on `of`, a world_machine of the test program, or on its `machine`. */
#define WORLD_TEST_OF(name, of) \
    static void name(void **state); \
    static void name##_with(scratch *files); \
    static world_test name##_in_world = {.run = name, .machine = &(of)}; \
    LISTED_TEST(name, run_in_world, NULL, NULL, &name##_in_world) { name##_with(*state); } \
    static void name##_with(scratch *files __attribute__((unused)))
#define WORLD_TEST(name) WORLD_TEST_OF(name, machine)

#endif
