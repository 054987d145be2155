/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop under the power limit optimizer. It uses only the public API. A real loop adds
 * the same parts: one object, and a call at each step and epoch. If the driver is Harpe's emulator,
 * the "training" is emulated work; otherwise it is some arithmetic on the CPU.
 *
 *   harpe emulate --gpus 1xV100 -- \
 *       example_power_limit_loop [EPOCHS [STEPS [SECONDS_PER_STEP [PROFILE.json]]]]
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <harpe/power_limit.h>

/* ---- The training (a stand-in) --------------------------------------------------------------- */

typedef int (*emulated_work)(unsigned int gpu, double full_speed_s, double compute_share,
                             double *elapsed_s);

/* The emulator exports a call that keeps a GPU busy. A real driver library does not have it. */
static emulated_work find_emulated_work(void) {
    const char *path = getenv("HARPE_NVML_LIBRARY");
    void *library = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW);
    emulated_work work = NULL;
    if (library) *(void **)&work = dlsym(library, "harpe_emulator_work");
    return work;
}

static void train_one_step(emulated_work work, double seconds) {
    if (work) {
        (void)work(0, seconds, 0.7, NULL); /* 70 % of it scales with the clock */
        return;
    }
    volatile double sum = 0;
    for (int i = 0; i < 1000000; i++)
        sum = sum + sqrt(i);
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

/* ---- The optimizer --------------------------------------------------------------------------- */

typedef struct session {
    harpe_gpus *gpus;
    harpe_power_limit_gpus *device;
    harpe_selector_parameters parameters;
    harpe_power_limit_optimizer *optimizer;
} session;

static void print_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_WARNING) fprintf(stderr, "power_limit_loop: %s\n", line);
}

static harpe_status start(session *all, const char *profile_path, harpe_error *error) {
    /* 1. Open the GPUs that this process may use. */
    harpe_status status = harpe_gpus_open(NULL, &all->gpus, error);
    if (status != HARPE_OK) return status;
    /* 2. Prepare these GPUs for setting limits and for measuring. The guard restores the limits if
     *   this process is killed. */
    status = harpe_power_limit_gpus_new(all->gpus, true, &all->device, error);
    if (status != HARPE_OK) return status;
    /* 3. Choose the criterion: energy and time have the same weight. */
    harpe_power_limit_selector selector;
    all->parameters.eta = 0.5;
    all->parameters.world_size = harpe_gpus_count(all->gpus);
    status = harpe_selector_zeus_cost(&all->parameters, &selector, error);
    if (status != HARPE_OK) return status;
    /* 4. Create the optimizer; -1 means the default. */
    harpe_power_limit_options options = {.wait_steps = -1,
                                         .warmup_steps = -1,
                                         .profile_steps = -1,
                                         .selector = selector,
                                         .profile_path = profile_path,
                                         .device_model = harpe_gpu_info_at(all->gpus, 0)->name,
                                         .log = {.write = print_log}};
    return harpe_power_limit_optimizer_new(harpe_power_limit_gpus_device(all->device), &options,
                                           &all->optimizer, error);
}

/* Restores the original limits. */
static void stop(session *all) {
    harpe_power_limit_optimizer_free(all->optimizer);
    harpe_power_limit_gpus_free(all->device);
    harpe_gpus_close(all->gpus);
}

/* ---- Results --------------------------------------------------------------------------------- */

static void print_change(double before, double after, const char *of_what) {
    double percent = (after - before) / before * 100;
    printf("%.1f %% %s %s", fabs(percent), percent <= 0 ? "less" : "more", of_what);
}

static void print_outcome(const session *all) {
    size_t count = 0;
    const harpe_power_limit_measurement *measured =
        harpe_power_limit_measurements(all->optimizer, &count);
    const harpe_power_limit_measurement *chosen = NULL;
    if (count == 0) return;
    int highest_w = measured[0].power_limit_w; /* sorted by falling limit */
    int optimum_w = harpe_power_limit_optimum_w(all->optimizer);
    printf("  %11s %12s %14s %14s\n", "limit (W)", "time (s)", "energy (J)", "cost (J)");
    for (size_t i = 0; i < count; i++) {
        int is_chosen = measured[i].power_limit_w == optimum_w;
        printf("  %c %9d %12.3f %14.1f %14.1f%s\n", is_chosen ? '*' : ' ',
               measured[i].power_limit_w, measured[i].time_s, measured[i].energy_j,
               harpe_zeus_cost_j(&all->parameters, highest_w, &measured[i]),
               is_chosen ? "  chosen" : "");
        chosen = is_chosen ? &measured[i] : chosen;
    }
    if (!chosen) return; /* training ended or failed before all limits were tried */
    printf("Against the highest limit, %d W: ", highest_w);
    if (chosen == measured) {
        puts("the same, it is the best itself");
        return;
    }
    print_change(measured[0].energy_j, chosen->energy_j, "energy, ");
    print_change(measured[0].time_s, chosen->time_s, "time\n");
}

int main(int argc, char **argv) {
    int epochs = argc > 1 ? atoi(argv[1]) : 2;
    int steps = argc > 2 ? atoi(argv[2]) : 500;
    double seconds = argc > 3 ? atof(argv[3]) : 0.05;
    session all = {0};
    harpe_error error;
    if (start(&all, argc > 4 ? argv[4] : NULL, &error) != HARPE_OK) {
        /* The training goes on without an optimizer; the calls then do nothing. */
        fprintf(stderr, "power_limit_loop: training without power limit optimization: %s\n",
                error.message);
    }
    train(all.optimizer, epochs, steps, seconds);
    print_outcome(&all);
    stop(&all);
    return EXIT_SUCCESS;
}
