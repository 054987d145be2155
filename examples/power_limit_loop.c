/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop under the power limit optimizer, with the public API only. It shows what a real
 * loop adds: one object, and a call at each step and epoch. The "training" is emulated work where
 * the driver is Harpe's emulator, and some arithmetic on the CPU elsewhere.
 *
 *   harpe emulate --gpus 1xV100 -- example_power_limit_loop [EPOCHS [STEPS [SECONDS_PER_STEP]]]
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <harpe/power_limit.h>

/* ---- The training, which is not the point ---------------------------------------------------- */

typedef int (*emulated_work)(unsigned int gpu, double full_speed_s, double compute_share,
                             double *elapsed_s);

/* The emulator exports a call that keeps a GPU busy; a real driver library does not have it. */
static emulated_work find_emulated_work(void) {
    const char *path = getenv("HARPE_NVML_LIBRARY");
    void *library = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW);
    emulated_work work = NULL;
    if (library) {
        *(void **)&work = dlsym(library, "harpe_emulator_work");
    }
    return work;
}

static void train_one_step(emulated_work work, double seconds) {
    if (work) {
        (void)work(0, seconds, 0.7, NULL); /* 70 % of it scales with the clock */
        return;
    }
    volatile double sum = 0;
    for (int i = 0; i < 1000000; i++) {
        sum = sum + sqrt(i);
    }
}

/* ---- The optimizer ----------------------------------------------------------------------------
 */

static void print_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_WARNING) {
        fprintf(stderr, "%s\n", line);
    }
}

static void print_outcome(const harpe_power_limit_optimizer *optimizer) {
    size_t count = 0;
    const harpe_power_limit_measurement *measured =
        harpe_power_limit_measurements(optimizer, &count);
    for (size_t i = 0; i < count; i++) {
        printf("%4d W  %9.3f s  %10.1f J%s\n", measured[i].power_limit_w, measured[i].time_s,
               measured[i].energy_j,
               measured[i].power_limit_w == harpe_power_limit_optimum_w(optimizer) ? "  <- held"
                                                                                   : "");
    }
}

static void train(harpe_power_limit_optimizer *optimizer, int epochs, int steps, double seconds) {
    emulated_work work = find_emulated_work();
    puts("training");
    fflush(stdout);
    for (int epoch = 0; epoch < epochs; epoch++) {
        harpe_power_limit_on_epoch_begin(optimizer);
        for (int step = 0; step < steps; step++) {
            harpe_power_limit_on_step_begin(optimizer);
            train_one_step(work, seconds);
            harpe_power_limit_on_step_end(optimizer);
        }
        harpe_power_limit_on_epoch_end(optimizer);
    }
}

int main(int argc, char **argv) {
    int epochs = argc > 1 ? atoi(argv[1]) : 2;
    int steps = argc > 2 ? atoi(argv[2]) : 500;
    double seconds = argc > 3 ? atof(argv[3]) : 0.05;
    harpe_gpus *gpus = NULL;
    harpe_power_limit_gpus *device = NULL;
    harpe_power_limit_optimizer *optimizer = NULL;
    harpe_error error;
    int code = EXIT_FAILURE;

    /* 1. The GPUs that this process may use. */
    if (harpe_gpus_open(NULL, &gpus, &error) != HARPE_OK) goto failed;
    /* 2. As a place to set limits and measure. The guard puts the limits back if we are killed. */
    if (harpe_power_limit_gpus_new(gpus, true, &device, &error) != HARPE_OK) goto failed;
    /* 3. The optimizer. -1 means the default; no selector means zeus-cost with eta 0.5. */
    harpe_power_limit_options options = {
        .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1, .log = {.write = print_log}};
    if (harpe_power_limit_optimizer_new(harpe_power_limit_gpus_device(device), &options, &optimizer,
                                        &error) != HARPE_OK) {
        goto failed;
    }
    train(optimizer, epochs, steps, seconds);
    print_outcome(optimizer);
    code = EXIT_SUCCESS;
    goto done;
failed:
    fprintf(stderr, "power_limit_loop: %s\n", error.message);
done:
    /* 4. Puts back what was found. */
    harpe_power_limit_optimizer_free(optimizer);
    harpe_power_limit_gpus_free(device);
    harpe_gpus_close(gpus);
    return code;
}
