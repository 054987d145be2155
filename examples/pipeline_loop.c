/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a pipeline-parallel training job with both of Harpe's optimizers. It uses only the
 * public API. The pipeline frequency optimizer sets a clock for each forward and backward. On
 * request, the power limit optimizer finds the best power limit. The functions `start`, `train` and
 * `stop` show the calls that a real loop adds. If the driver is Harpe's emulator, the "training" is
 * emulated work; otherwise it does nothing.
 *
 *   harpe serve --scheduler-args '{"solution_path": "plan.py"}' &
 *   harpe emulate --gpus 2xA100 -- sh -c '
 *       example_pipeline_loop --rank 0 --ranks 2 --key job & example_pipeline_loop --rank 1 --ranks
 * 2 --key job; wait'
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/pipeline_frequency.h>
#include <harpe/power_limit.h>
#include <harpe/training.h>

typedef struct settings {
    const char *server, *key;
    int rank, ranks, microbatches, steps;
    int with_power_limit;
} settings;

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

static void compute(emulated_work work, int gpu, const char *instruction) {
    double seconds = strcmp(instruction, "forward") == 0 ? 0.02 : 0.04;
    if (work) (void)work((unsigned)gpu, seconds, 0.8, NULL);
}

/* 1F1B: first as many forwards as there are later stages, then a forward and a backward in turn. */
static const char *next_instruction(const settings *job, int forwards, int backwards) {
    int ahead = job->ranks - job->rank;
    return forwards < job->microbatches && forwards - backwards < ahead ? "forward" : "backward";
}

static void train(const harpe_callback_set *callbacks, const settings *job) {
    emulated_work work = find_emulated_work();
    harpe_on_train_begin(callbacks);
    harpe_on_epoch_begin(callbacks);
    for (int step = 0; step < job->steps; step++) {
        int forwards = 0, backwards = 0;
        harpe_on_step_begin(callbacks);
        while (backwards < job->microbatches) {
            const char *instruction = next_instruction(job, forwards, backwards);
            int is_forward = strcmp(instruction, "forward") == 0;
            harpe_on_instruction_begin(callbacks, instruction);
            compute(work, job->rank, instruction);
            harpe_on_instruction_end(callbacks, instruction);
            forwards += is_forward;
            backwards += !is_forward;
        }
        harpe_on_step_end(callbacks);
    }
    harpe_on_epoch_end(callbacks);
    harpe_on_train_end(callbacks);
}

/* ---- The optimizers -------------------------------------------------------------------------- */

typedef struct session {
    harpe_gpus *gpus;
    harpe_pipeline_frequency_optimizer *frequency;
    harpe_power_limit_gpus *device;
    harpe_power_limit_optimizer *power_limit;
    harpe_callback_set *callbacks;
} session;

static void print_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_INFO) fprintf(stderr, "pipeline_loop: %s\n", line);
}

static harpe_status start_frequency(session *all, const settings *job, harpe_error *error) {
    harpe_pipeline_frequency_options options = {.rank = job->rank,
                                                .pp_rank = job->rank,
                                                .pp_degree = job->ranks,
                                                .dp_degree = 1,
                                                .tp_degree = 1,
                                                .world_size = job->ranks,
                                                .device_id = job->rank,
                                                .server_url = job->server,
                                                .job_key = job->key, /* or a broadcast */
                                                .gpus = all->gpus,
                                                .log = {.write = print_log}};
    harpe_status status = harpe_pipeline_frequency_new(&options, &all->frequency, error);
    if (status != HARPE_OK) return status;
    harpe_training_callback callback = harpe_pipeline_frequency_callback(all->frequency);
    return harpe_callback_set_add(all->callbacks, &callback, error);
}

/* For all GPUs of this process; -1 means the default. */
static harpe_status start_power_limit(session *all, harpe_error *error) {
    harpe_power_limit_options options = {.wait_steps = -1,
                                         .warmup_steps = 2,
                                         .profile_steps = 5,
                                         .step_w = 100,
                                         .log = {.write = print_log}};
    harpe_status status = harpe_power_limit_gpus_new(all->gpus, true, &all->device, error);
    if (status != HARPE_OK) return status;
    status = harpe_power_limit_optimizer_new(harpe_power_limit_gpus_device(all->device), &options,
                                             &all->power_limit, error);
    if (status != HARPE_OK) return status;
    harpe_training_callback callback = harpe_power_limit_callback(all->power_limit);
    return harpe_callback_set_add(all->callbacks, &callback, error);
}

static harpe_status start(session *all, const settings *job, harpe_error *error) {
    harpe_status status = harpe_callback_set_new(NULL, 0, &all->callbacks, error);
    if (status == HARPE_OK) status = harpe_gpus_open(NULL, &all->gpus, error);
    if (status == HARPE_OK) status = start_frequency(all, job, error);
    if (status == HARPE_OK && job->with_power_limit) status = start_power_limit(all, error);
    return status;
}

/* Restores the original settings. */
static void stop(session *all) {
    harpe_callback_set_free(all->callbacks);
    harpe_pipeline_frequency_free(all->frequency);
    harpe_power_limit_optimizer_free(all->power_limit);
    harpe_power_limit_gpus_free(all->device);
    harpe_gpus_close(all->gpus);
}

/* ---- The program ----------------------------------------------------------------------------- */

static void print_outcome(session *all, const settings *job) {
    harpe_pipeline_frequency_status seen = harpe_pipeline_frequency_get_status(all->frequency);
    printf("rank %d: job %s, round %lld, %llu steps of which %llu did not fit, clock set %llu "
           "times",
           job->rank, *seen.job_id ? seen.job_id : "(none)", (long long)seen.round,
           (unsigned long long)seen.steps, (unsigned long long)seen.misfits,
           (unsigned long long)seen.controller.written);
    if (all->power_limit)
        printf(", power limit %d W", harpe_power_limit_current_w(all->power_limit));
    puts("");
}

static void set(settings *job, const char *name, const char *value) {
    if (strcmp(name, "--server") == 0) job->server = value;
    if (strcmp(name, "--key") == 0) job->key = value;
    if (strcmp(name, "--rank") == 0) job->rank = atoi(value);
    if (strcmp(name, "--ranks") == 0) job->ranks = atoi(value);
    if (strcmp(name, "--microbatches") == 0) job->microbatches = atoi(value);
    if (strcmp(name, "--steps") == 0) job->steps = atoi(value);
    if (strcmp(name, "--power-limit") == 0) job->with_power_limit = atoi(value);
}

int main(int argc, char **argv) {
    settings job = {.server = "http://127.0.0.1:7787", .ranks = 1, .microbatches = 4, .steps = 50};
    for (int i = 1; i + 1 < argc; i += 2)
        set(&job, argv[i], argv[i + 1]);
    session all = {0};
    harpe_error error;
    if (start(&all, &job, &error) != HARPE_OK) {
        /* The training goes on. An optimizer that could not be started is not in the set. */
        fprintf(stderr, "pipeline_loop: not all optimizers run: %s\n", error.message);
    }
    train(all.callbacks, &job);
    print_outcome(&all, &job);
    stop(&all);
    return EXIT_SUCCESS;
}
