/* SPDX-License-Identifier: Apache-2.0 */
/* A training under the power limit optimizer, on emulated GPUs: a process of a world with a guard
 * of its own, as examples/power_limit_loop.c. The test reads what it has measured and said. */
#ifndef HARPE_TESTS_POWERLIMIT_EMULATED_TRAINING_H
#define HARPE_TESTS_POWERLIMIT_EMULATED_TRAINING_H

#include "world/in_world.h"

#include <stdio.h>
#include <string.h>

#include <harpe/power_limit.h>

#include "gpu/saved_settings.h"

enum { GPUS_MAX = 3, ROWS_MAX = 16, FOUND_MW = 231000, STEPS = 400, BACK_S = 5 };
#define STEP_S 0.05

/* A fault that begins before a step with a limit. */
typedef struct planned_fault {
    const char *list; /* NULL: none */
    int limit_w, step;
} planned_fault;

static struct training {
    int epochs;
    planned_fault fault;
    pid_t process;
    bool is_training;
    harpe_power_limit_measurement rows[ROWS_MAX];
    size_t row_count;
    int optimum_w;
    int line_count;
    char line[2048]; /* the last warning or error */
    double took_s;
} training;

static harpe_gpus *gpus; /* of the test */

typedef struct gpu_setting {
    uint32_t limit_mw;
    bool persistence;
} gpu_setting;
static gpu_setting found[GPUS_MAX];

/* ---- The training ---------------------------------------------------------------------------- */

static inline void keep_warning(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level < HARPE_LOG_WARNING) return;
    training.line_count++;
    snprintf(training.line, sizeof training.line, "%s", line);
}

static inline void run_steps(harpe_power_limit_optimizer *optimizer) {
    int (*work)(unsigned gpu, double full_speed_s, double compute_share, double *elapsed_s);
    int at_limit = 0, steps = training.epochs * STEPS;
    *(void **)&work = dlsym(world_test_now->library, "harpe_emulator_work");
    for (int step = 0; step < steps; step++) {
        if (step % STEPS == 0) harpe_power_limit_on_epoch_begin(optimizer);
        harpe_power_limit_on_step_begin(optimizer);
        at_limit += harpe_power_limit_get_state(optimizer).power_limit_w == training.fault.limit_w;
        if (training.fault.list && at_limit == training.fault.step) {
            use_faults(training.fault.list);
            training.fault.list = NULL;
        }
        (void)work(0, STEP_S, 0.7, NULL);
        harpe_power_limit_on_step_end(optimizer);
        if (step % STEPS == STEPS - 1) harpe_power_limit_on_epoch_end(optimizer);
    }
}

static inline int run_training(void *user) {
    (void)user;
    harpe_gpus *own = NULL;
    harpe_power_limit_gpus *device = NULL;
    harpe_power_limit_optimizer *optimizer = NULL;
    harpe_error error = {.message = ""};
    harpe_selector_parameters parameters = {.eta = 0.5};
    harpe_power_limit_options options = {.wait_steps = -1,
                                         .warmup_steps = -1,
                                         .profile_steps = -1,
                                         .profile_path =
                                             scratch_path(world_test_now->files, "profile.json"),
                                         .log = {keep_warning, NULL}};
    double begin_s = harpe_clock_s();
    harpe_status status = harpe_gpus_open(NULL, &own, &error);
    parameters.world_size = harpe_gpus_count(own);
    if (status == HARPE_OK) status = harpe_power_limit_gpus_new(own, true, &device, &error);
    if (status == HARPE_OK)
        status = harpe_selector_zeus_cost(&parameters, &options.selector, &error);
    if (status == HARPE_OK) {
        options.device_model = harpe_gpu_info_at(own, 0)->name;
        status = harpe_power_limit_optimizer_new(harpe_power_limit_gpus_device(device), &options,
                                                 &optimizer, &error);
    }
    if (status != HARPE_OK) keep_warning(NULL, HARPE_LOG_ERROR, error.message);
    training.is_training = true;
    run_steps(optimizer);
    const harpe_power_limit_measurement *rows =
        harpe_power_limit_measurements(optimizer, &training.row_count);
    assert_true(training.row_count <= ROWS_MAX);
    if (rows) memcpy(training.rows, rows, training.row_count * sizeof *rows);
    training.optimum_w = harpe_power_limit_optimum_w(optimizer);
    harpe_power_limit_optimizer_free(optimizer);
    harpe_power_limit_gpus_free(device);
    harpe_gpus_close(own);
    training.took_s = harpe_clock_s() - begin_s;
    return 0;
}

static inline void start_training(int epochs, planned_fault fault) {
    training = (struct training){.epochs = epochs, .fault = fault};
    (void)unlink(scratch_path(world_test_now->files, "profile.json"));
    training.process = harpe_world_start("trainer", run_training, NULL);
}

/* ---- The GPUs -------------------------------------------------------------------------------- */

static inline bool is_back(int gpu) {
    gpu_setting now;
    assert_int_equal(harpe_gpu_power_limit(gpus, gpu, &now.limit_mw, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_persistence_mode(gpus, gpu, &now.persistence, NULL), HARPE_OK);
    return now.limit_mw == found[gpu].limit_mw && now.persistence == found[gpu].persistence;
}

static inline bool are_all_back(void) {
    for (int i = 0; i < harpe_gpus_count(gpus); i++)
        if (!is_back(i)) return false;
    return true;
}

static inline pid_t find_guard(void) { return harpe_world_pick("power-limit"); }

static inline bool has_record_of(int gpu) {
    harpe_saved_settings record;
    return harpe_saved_settings_find(gpus, gpu, HARPE_SAVED_POWER, &record, NULL);
}

static inline bool has_record(void) {
    for (int i = 0; i < harpe_gpus_count(gpus); i++)
        if (has_record_of(i)) return true;
    return false;
}

/* Nothing is changed any more, and nothing is left. */
static inline void assert_restored(void) {
    double until_s = harpe_clock_s() + BACK_S;
    while (!are_all_back() && harpe_clock_s() < until_s)
        pause_s(0.01);
    assert_true(are_all_back());
    WAIT_FOR(find_guard() < 0);
    assert_true(are_all_back());
    assert_false(has_record());
}

/* One GPU does not have its default limit. */
static inline void begin_gpus(void) {
    use_faults("");
    assert_int_equal(harpe_gpus_open(NULL, &gpus, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, FOUND_MW, NULL), HARPE_OK);
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        assert_int_equal(harpe_gpu_power_limit(gpus, i, &found[i].limit_mw, NULL), HARPE_OK);
        assert_int_equal(harpe_gpu_persistence_mode(gpus, i, &found[i].persistence, NULL),
                         HARPE_OK);
    }
}

static inline void end_gpus(void) { harpe_gpus_close(gpus); }

static const world_machine one_v100 = {.gpus = "1xV100", .begin = begin_gpus, .end = end_gpus};
static const world_machine machine = {.gpus = "2xV100", .begin = begin_gpus, .end = end_gpus};
static const world_machine three_v100 = {.gpus = "3xV100", .begin = begin_gpus, .end = end_gpus};

#endif
