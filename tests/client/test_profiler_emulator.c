/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler on an emulated GPU that follows a measured profile: its measurements
 * equal the profile. */
#include "world/in_world.h"

#include <math.h>
#include <stdio.h>

#include <harpe/instruction_profiler.h>
#include <harpe/profile.h>

#include "client/profiler_internal.h"

OWNER(harpe_instruction_profiler)

static const char truth[] = "stage,instruction,frequency,time,energy\n"
                            "0,forward,1410,0.21,63\n"
                            "0,forward,1005,0.27,54\n"
                            "0,backward,1410,0.4,140\n"
                            "0,backward,1005,0.52,119.6\n";

enum { STEPS = 12, TRIES = 2000 };

static const world_machine machine = {.gpus = "1xA100", .time_scale = "5", .profile = truth};

typedef int (*run_instruction)(unsigned int gpu, int stage, const char *instruction,
                               double *elapsed_s);

static void log_line(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level;
    print_message("log: %s\n", line);
}

static void run(harpe_instruction_profiler *profiler, run_instruction work, const char *name,
                int frequency_mhz) {
    double took_s = 0;
    harpe_instruction_profiler_begin(profiler, name, frequency_mhz);
    assert_int_equal(work(0, 0, name, &took_s), 0);
    harpe_instruction_profiler_end(profiler);
}

static void train(harpe_instruction_profiler *profiler, run_instruction work, int64_t series,
                  int frequency_mhz) {
    for (int step = 0; step < STEPS; step++) {
        harpe_instruction_profiler_begin_step(profiler, series);
        run(profiler, work, "forward", frequency_mhz);
        run(profiler, work, "forward", frequency_mhz);
        pause_s(0.006);
        run(profiler, work, "backward", frequency_mhz);
        run(profiler, work, "backward", frequency_mhz);
        harpe_instruction_profiler_end_step(profiler);
    }
}

static void compare(const char *path, const char *truth_path) {
    harpe_profile *got = NULL, *expected = NULL;
    assert_works(harpe_profile_read_csv(path, &got, &failure));
    assert_works(harpe_profile_read_csv(truth_path, &expected, &failure));
    for (size_t i = 0; i < harpe_profile_entry_count(expected); i++) {
        const harpe_profile_entry *wanted = harpe_profile_entry_at(expected, i);
        const harpe_profile_entry *entry = harpe_profile_find(got, 0, wanted->instruction);
        assert_non_null(entry);
        assert_int_equal(entry->point_count, wanted->point_count);
        for (size_t k = 0; k < entry->point_count; k++) {
            const harpe_profile_point *a = &entry->points[k], *b = &wanted->points[k];
            double time_off = a->time_s / b->time_s - 1;
            double energy_off = a->energy_j / b->energy_j - 1;
            print_message("%s at %d MHz: time %+.2f %%, energy %+.2f %%\n", wanted->instruction,
                          b->frequency_mhz, time_off * 100, energy_off * 100);
            assert_int_equal(a->frequency_mhz, b->frequency_mhz);
            assert_true(fabs(time_off) < 0.001);
            assert_true(fabs(energy_off) < 0.005);
        }
    }
    harpe_profile_free(got);
    harpe_profile_free(expected);
}

/* Trains until the counter was compared with the power, and checks their ratio. */
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
static void check_wrong_counter(harpe_gpus *gpus, run_instruction work) {
    use_faults("counter_factor=2");
    harpe_instruction_profiler_options options = {.gpus = gpus, .log = {log_line, NULL}};
    OWNED(harpe_instruction_profiler) profiler = NULL;
    assert_works(harpe_instruction_profiler_new(&options, &profiler, &failure));
    check_counter(profiler, work, 2);
}

WORLD_TEST(energies_are_those_of_the_profile) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(files, "got.csv"));
    run_instruction work;
    *(void **)&work = dlsym(world_test_now->library, "harpe_emulator_instruction");
    assert_non_null(work);
    harpe_gpus *gpus = NULL;
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    harpe_instruction_profiler_options options = {.gpus = gpus, .log = {log_line, NULL}};
    harpe_instruction_profiler *profiler = NULL;
    assert_works(harpe_instruction_profiler_new(&options, &profiler, &failure));
    pause_s(0.03); /* the counter's first move */
    for (int series = 0; series < 2; series++) {
        uint32_t frequency_mhz = series == 0 ? 1410 : 1005;
        assert_works(
            harpe_gpu_lock_graphics_clocks(gpus, 0, frequency_mhz, frequency_mhz, &failure));
        train(profiler, work, series, (int)frequency_mhz);
        WAIT_FOR(harpe_instruction_profiler_step_count(profiler, series) >= STEPS);
    }
    assert_works(harpe_instruction_profiler_write_csv(profiler, 0, -1, path, &failure));
    double waiting_w = harpe_instruction_profiler_waiting_power_w(profiler);
    print_message("waiting %.1f W\n", waiting_w);
    check_counter(profiler, work, 1);
    harpe_instruction_profiler_free(profiler);
    check_wrong_counter(gpus, work);
    harpe_gpus_close(gpus);
    compare(path, scratch_path(files, "HARPE_EMULATOR_PROFILE"));
    assert_true(waiting_w > 50 && waiting_w < 80);
}
