/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler on an emulated GPU that follows a measured profile: its measurements
 * equal the profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <harpe/instruction_profiler.h>
#include <harpe/profile.h>

#include "base/clock.h"
#include "base/scratch.h"
#include "client/profiler_internal.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"

static const char truth[] = "stage,instruction,frequency,time,energy\n"
                            "0,forward,1410,0.21,63\n"
                            "0,forward,1005,0.27,54\n"
                            "0,backward,1410,0.4,140\n"
                            "0,backward,1005,0.52,119.6\n";

static const double idle_w = 62; /* an A100 */

enum { STEPS = 12, TRIES = 2000, TIME_SCALE = 5 };

/* Longest delay between the end of the work and the wake-up of its caller: 1 ms of real time. */
#define LATE_S (1e-3 * TIME_SCALE)

typedef int (*run_instruction)(unsigned int gpu, int stage, const char *instruction,
                               double *elapsed_s);

static void log_line(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level;
    print_message("log: %s\n", line);
}

/* Returns false if the machine has delayed the wake-up of the caller. */
static bool run(harpe_instruction_profiler *profiler, run_instruction work, const char *name,
                int frequency_mhz) {
    double took_s = 0, begin_s = harpe_clock_s();
    harpe_instruction_profiler_begin(profiler, name, frequency_mhz);
    assert_int_equal(work(0, 0, name, &took_s), 0);
    harpe_instruction_profiler_end(profiler);
    return (harpe_clock_s() - begin_s) * TIME_SCALE - took_s < LATE_S;
}

static void train(harpe_instruction_profiler *profiler, run_instruction work, int64_t series,
                  int frequency_mhz) {
    static const struct timespec waiting = {.tv_nsec = 6000000};
    int steps = 0, tries = 0;
    for (; steps < STEPS && tries < TRIES; tries++) {
        harpe_instruction_profiler_begin_step(profiler, series);
        bool is_in_time = run(profiler, work, "forward", frequency_mhz);
        is_in_time = run(profiler, work, "forward", frequency_mhz) && is_in_time;
        nanosleep(&waiting, NULL);
        is_in_time = run(profiler, work, "backward", frequency_mhz) && is_in_time;
        is_in_time = run(profiler, work, "backward", frequency_mhz) && is_in_time;
        if (is_in_time) {
            harpe_instruction_profiler_end_step(profiler);
            steps++;
        } else {
            harpe_instruction_profiler_cancel_step(profiler);
        }
    }
    print_message("%d of %d steps were in time\n", steps, tries);
    assert_int_equal(steps, STEPS);
}

static void wait_for(harpe_instruction_profiler *profiler, int64_t series) {
    static const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 120000; i++) {
        if (harpe_instruction_profiler_step_count(profiler, series) >= STEPS) return;
        nanosleep(&moment, NULL);
    }
    fail_msg("series %d was not measured within two minutes", (int)series);
}

static void compare(const char *path, const char *truth_path) {
    harpe_profile *got = NULL, *expected = NULL;
    assert_int_equal(harpe_profile_read_csv(path, &got, NULL), HARPE_OK);
    assert_int_equal(harpe_profile_read_csv(truth_path, &expected, NULL), HARPE_OK);
    for (size_t i = 0; i < harpe_profile_entry_count(expected); i++) {
        const harpe_profile_entry *wanted = harpe_profile_entry_at(expected, i);
        const harpe_profile_entry *entry = harpe_profile_find(got, 0, wanted->instruction);
        assert_non_null(entry);
        assert_int_equal(entry->point_count, wanted->point_count);
        for (size_t k = 0; k < entry->point_count; k++) {
            const harpe_profile_point *a = &entry->points[k], *b = &wanted->points[k];
            double late_s = a->time_s - b->time_s; /* at most LATE_S */
            double time_off = late_s / b->time_s;
            double energy_off = (a->energy_j - late_s * idle_w) / b->energy_j - 1;
            print_message("%s at %d MHz: time %+.2f %%, energy %+.2f %%\n", wanted->instruction,
                          b->frequency_mhz, time_off * 100, energy_off * 100);
            assert_int_equal(a->frequency_mhz, b->frequency_mhz);
            assert_true(time_off > -0.02 && time_off < 0.1);
            assert_true(fabs(energy_off) < 0.02);
        }
    }
    harpe_profile_free(got);
    harpe_profile_free(expected);
}

/* Trains until the counter was compared with the power, and checks their ratio. A busy machine
 * disturbs the samples of power. */
static void check_counter(harpe_instruction_profiler *profiler, run_instruction work,
                          double factor) {
    harpe_energy_comparison got = {0};
    for (int tries = 0; tries < TRIES && !(got.power_j > 0); tries++) {
        double took_s;
        assert_int_equal(work(0, 0, "forward", &took_s), 0);
        got = harpe_profiler_conduct_of(profiler).energy;
    }
    assert_true(got.power_j > 0 && got.uncertainty_j > 0);
    double ratio = got.counter_j / got.power_j, within = got.uncertainty_j / got.power_j;
    print_message("counter %.3f +- %.3f times the power\n", ratio, within);
    assert_true(fabs(ratio / factor - 1) < 0.1 + 2 * within);
    if (factor > 1.3 && within < 0.1) assert_true(got.counter_j - got.power_j > got.uncertainty_j);
}

/* A counter that shows twice the energy is found. */
static void check_wrong_counter(harpe_gpus *gpus, run_instruction work, const char *faults_path) {
    FILE *file = fopen(faults_path, "w");
    assert_non_null(file);
    fputs("counter_factor=2\n", file);
    fclose(file);
    harpe_instruction_profiler_options options = {.gpus = gpus, .log = {log_line, NULL}};
    harpe_instruction_profiler *profiler = NULL;
    assert_int_equal(harpe_instruction_profiler_new(&options, &profiler, NULL), HARPE_OK);
    check_counter(profiler, work, 2);
    harpe_instruction_profiler_free(profiler);
}

static void energies_are_those_of_the_profile(void **state) {
    char truth_path[512], path[512], faults_path[512], cluster[64];
    snprintf(faults_path, sizeof faults_path, "%s", scratch_path(*state, "faults"));
    snprintf(truth_path, sizeof truth_path, "%s", scratch_path(*state, "truth.csv"));
    snprintf(path, sizeof path, "%s", scratch_path(*state, "got.csv"));
    snprintf(cluster, sizeof cluster, "profiler-test-%d", (int)getpid());
    FILE *file = fopen(truth_path, "w");
    assert_non_null(file);
    fputs(truth, file);
    fclose(file);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_EMULATOR_CLUSTER", cluster, 1);
    setenv("HARPE_EMULATOR_TIME_SCALE", "5", 1);
    setenv("HARPE_EMULATOR_PROFILE", truth_path, 1);
    setenv("HARPE_EMULATOR_FAULTS_FILE", faults_path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    void *library = dlopen(EMULATOR, RTLD_NOW);
    assert_non_null(library);
    void *address = dlsym(library, "harpe_emulator_instruction");
    run_instruction work = NULL;
    memcpy(&work, &address, sizeof work);
    assert_non_null(address);

    harpe_gpus *gpus = NULL;
    harpe_error error = {0};
    if (harpe_gpus_open(NULL, &gpus, &error) != HARPE_OK) fail_msg("%s", error.message);
    harpe_instruction_profiler_options options = {.gpus = gpus, .log = {log_line, NULL}};
    harpe_instruction_profiler *profiler = NULL;
    if (harpe_instruction_profiler_new(&options, &profiler, &error)) fail_msg("%s", error.message);
    static const struct timespec moment = {.tv_nsec = 30000000};
    nanosleep(&moment, NULL); /* the counter's first move */
    for (int series = 0; series < 2; series++) {
        uint32_t frequency_mhz = series == 0 ? 1410 : 1005;
        assert_int_equal(
            harpe_gpu_lock_graphics_clocks(gpus, 0, frequency_mhz, frequency_mhz, NULL), HARPE_OK);
        train(profiler, work, series, (int)frequency_mhz);
        wait_for(profiler, series);
    }
    if (harpe_instruction_profiler_write_csv(profiler, 0, -1, path, &error))
        fail_msg("%s", error.message);
    double waiting_w = harpe_instruction_profiler_waiting_power_w(profiler);
    print_message("waiting %.1f W\n", waiting_w);
    check_counter(profiler, work, 1);
    harpe_instruction_profiler_free(profiler);
    check_wrong_counter(gpus, work, faults_path);
    harpe_gpus_close(gpus);
    dlclose(library);
    char memory[128];
    snprintf(memory, sizeof memory, "/dev/shm/harpe-emulator-%d-%s", (int)getuid(), cluster);
    unlink(memory);
    compare(path, truth_path);
    assert_true(waiting_w > 50 && waiting_w < 80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(energies_are_those_of_the_profile, scratch_make,
                                        scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
