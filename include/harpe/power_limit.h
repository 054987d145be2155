/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer: finds, while a job trains, the one GPU power limit that suits its
 * user, and holds it. Driven by four callbacks; see spec of the state machine in
 * docs/power-limit.md. Not thread-safe: call it from the training thread. It never fails a training
 * loop after construction: what goes wrong later is logged, limits are put back, and calls do
 * nothing more. */
#ifndef HARPE_POWER_LIMIT_H
#define HARPE_POWER_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/monitor.h>
#include <harpe/status.h>
#include <harpe/training.h>

HARPE_BEGIN_DECLS

/* What one power limit took: energy summed, time maximised over all GPUs and ranks. */
typedef struct harpe_power_limit_measurement {
    int power_limit_w;
    double energy_j;
    double time_s;
} harpe_power_limit_measurement;

/* Chooses among measurements, highest limit first; returns an index, or a negative number for 'no
 * answer' (the highest limit is then held). */
typedef struct harpe_power_limit_selector {
    int (*select)(void *user, const harpe_power_limit_measurement *measurements, size_t count);
    void *user;
} harpe_power_limit_selector;

/* Built-in selectors; ties go to the higher limit. The returned value refers to `parameters`, which
 * the caller keeps alive. */
typedef struct harpe_selector_parameters {
    double eta;              /* zeus-cost: 0 (time) .. 1 (energy) */
    int world_size;          /* zeus-cost: GPUs in the job */
    double maximum_slowdown; /* max-slowdown: >= 1 */
} harpe_selector_parameters;
HARPE_API harpe_power_limit_selector harpe_selector_energy(void);
HARPE_API harpe_power_limit_selector harpe_selector_time(void);
HARPE_API harpe_status harpe_selector_zeus_cost(harpe_selector_parameters *parameters,
                                                harpe_power_limit_selector *out,
                                                harpe_error *error);
HARPE_API harpe_status harpe_selector_max_slowdown(harpe_selector_parameters *parameters,
                                                   harpe_power_limit_selector *out,
                                                   harpe_error *error);
/* The cost that zeus-cost compares, in J: eta * energy + (1 - eta) * highest_w * world_size * time.
 * `highest_w` is the highest measured limit. */
HARPE_API double harpe_zeus_cost_j(const harpe_selector_parameters *parameters, int highest_w,
                                   const harpe_power_limit_measurement *one);

/* Where limits are set and windows measured: real GPUs, or a replay of a recorded log. */
typedef struct harpe_power_limit_device {
    void *user;
    int gpu_count;
    int minimum_w, maximum_w;                                               /* range of all GPUs */
    harpe_status (*set_limit)(void *user, int limit_w, harpe_error *error); /* all GPUs, in order */
    harpe_status (*begin_window)(void *user, const char *name, harpe_error *error);
    harpe_status (*end_window)(void *user, const char *name, bool cancel, double *energy_j,
                               double *time_s, harpe_error *error);
    harpe_status (*restore)(void *user, harpe_error *error);
    /* At each step of an open window; fails when its energy can no longer be known. May be NULL. */
    harpe_status (*check_window)(void *user, harpe_error *error);
} harpe_power_limit_device;

/* Zero-initialise, then set what matters; -1 in a step count means its default. */
typedef struct harpe_power_limit_options {
    int wait_steps;                      /* >= 0; default 1 */
    int warmup_steps;                    /* >= 0; default 10 */
    int profile_steps;                   /* >= 1; default 40 */
    int step_w;                          /* > 0; 0: 25 */
    harpe_power_limit_selector selector; /* select == NULL: zeus-cost, eta 0.5 */
    const char *profile_path;            /* NULL: none; loaded when it exists, written when done */
    const char *device_model; /* recorded in the profile and checked on loading; may be NULL */
    /* Distributed jobs: combines a value over all ranks (sum of energies and flags, maximum of
     * times). Every rank calls it in the same order. NULL: one process. */
    harpe_status (*all_reduce)(void *user, double *values, size_t count, bool maximum,
                               harpe_error *error);
    void *all_reduce_user;
    int world_size; /* GPUs in the job; 0: the sum of all ranks' devices */
    harpe_log log;
} harpe_power_limit_options;

typedef struct harpe_power_limit_optimizer harpe_power_limit_optimizer;

/* Sets the highest limit (or, when a profile was loaded, its optimum). `device` and everything it
 * refers to must outlive the optimizer. */
HARPE_API harpe_status harpe_power_limit_optimizer_new(const harpe_power_limit_device *device,
                                                       const harpe_power_limit_options *options,
                                                       harpe_power_limit_optimizer **out,
                                                       harpe_error *error);
/* Puts back what was found, then frees. */
HARPE_API void harpe_power_limit_optimizer_free(harpe_power_limit_optimizer *optimizer);

HARPE_API void harpe_power_limit_on_epoch_begin(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_epoch_end(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_step_begin(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_step_end(harpe_power_limit_optimizer *optimizer);
/* The four on_ functions as a table for a callback set. */
HARPE_API harpe_training_callback
harpe_power_limit_callback(harpe_power_limit_optimizer *optimizer);

/* True once the optimum is held. */
HARPE_API bool harpe_power_limit_is_done(const harpe_power_limit_optimizer *optimizer);
/* True once something went wrong (the log has it): limits are put back and nothing more is done. */
HARPE_API bool harpe_power_limit_has_failed(const harpe_power_limit_optimizer *optimizer);
/* The limit that the optimizer has set; 0 after a failure. */
HARPE_API int harpe_power_limit_current_w(const harpe_power_limit_optimizer *optimizer);
HARPE_API int
harpe_power_limit_optimum_w(const harpe_power_limit_optimizer *optimizer); /* 0: not yet */
HARPE_API const harpe_power_limit_measurement *
harpe_power_limit_measurements(const harpe_power_limit_optimizer *optimizer, size_t *count);

/* For a program that runs under `harpe power-limit run` and has no optimizer of its own: marks that
 * a step begins, or that an epoch has ended. The mark is counted in memory that the runner shares
 * through HARPE_STEP_MEMORY. A mark never waits, even if the runner is stopped, slow or dead. It
 * raises no signal, does not change errno, and writes to no descriptor. It does nothing in other
 * programs, or if a launcher has closed the memory's descriptor before the first mark. Any thread
 * may mark; marks of children of fork count too. */
HARPE_API void harpe_power_limit_mark_step(void);
HARPE_API void harpe_power_limit_mark_epoch(void);

/* The device of real (or emulated) GPUs: all visible GPUs, one model. `with_guard` starts a small
 * process that outlives the trainer and puts the limits back within a second however the trainer
 * ends (also SIGKILL). Free with harpe_power_limit_gpus_free, which restores. */
typedef struct harpe_power_limit_gpus harpe_power_limit_gpus;
HARPE_API harpe_status harpe_power_limit_gpus_new(harpe_gpus *gpus, bool with_guard,
                                                  harpe_power_limit_gpus **out, harpe_error *error);
HARPE_API const harpe_power_limit_device *
harpe_power_limit_gpus_device(harpe_power_limit_gpus *gpus);
HARPE_API void harpe_power_limit_gpus_free(harpe_power_limit_gpus *gpus);

HARPE_END_DECLS

#endif
