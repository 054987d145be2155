/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer measures several GPU power limits while a job trains. It then holds the
 * limit that the user's selector prefers. Four callbacks drive it; docs/power-limit.md describes
 * the state machine. The optimizer is not thread-safe: call it from the training thread. After
 * construction it never makes a training loop fail: it logs a failure, restores the limits, and
 * ignores further calls. */
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

/* The measurement of one power limit: the sum of energies and the maximum of times over all GPUs
 * and ranks. */
typedef struct harpe_power_limit_measurement {
    int power_limit_w;
    double energy_j;
    double time_s;
} harpe_power_limit_measurement;

/* Chooses among measurements, which are sorted by falling limit. Returns an index. If it returns a
 * negative number, the optimizer holds the highest limit. */
typedef struct harpe_power_limit_selector {
    int (*select)(void *user, const harpe_power_limit_measurement *measurements, size_t count);
    void *user;
} harpe_power_limit_selector;

/* Make the built-in selectors. If two limits are equally good, the higher limit is chosen. The
 * returned value refers to `parameters`, which the caller keeps alive. */
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
/* Returns the cost that zeus-cost compares, in J: eta * energy + (1 - eta) * highest_w *
 * world_size * time. `highest_w` is the highest measured limit. */
HARPE_API double harpe_zeus_cost_j(const harpe_selector_parameters *parameters, int highest_w,
                                   const harpe_power_limit_measurement *one);

/* The device that sets limits and measures windows: real GPUs, or a replay of a recorded log. */
typedef struct harpe_power_limit_device {
    void *user;
    int gpu_count;
    int minimum_w, maximum_w; /* range common to all GPUs */
    harpe_status (*set_limit)(void *user, int limit_w,
                              harpe_error *error); /* sets all GPUs, in order */
    harpe_status (*begin_window)(void *user, const char *name, harpe_error *error);
    harpe_status (*end_window)(void *user, const char *name, bool cancel, double *energy_j,
                               double *time_s, harpe_error *error);
    harpe_status (*restore)(void *user, harpe_error *error);
    /* Called at each step of an open window. Fails if the window's energy can no longer be
     * measured. May be NULL. */
    harpe_status (*check_window)(void *user, harpe_error *error);
    /* Writes the mean power of all GPUs since the last call, in W; 0 at the first call, or if it is
     * not known. The library calls it only for a member of a fleet. In a job of one process, it
     * calls it on a thread of its own; in a job of several ranks, on the training thread. The other
     * functions may run at the same time. May be NULL; the member then reports no power. */
    harpe_status (*mean_power)(void *user, double *power_w, harpe_error *error);
    /* Writes the lowest limit that is in force on a GPU, in W, and the number of this GPU. The
     * limit is lower than the limit that was set if something else limits the GPU, such as a
     * controller of its board. Fails if another program has raised the limit. Called on the
     * training thread; may be NULL. */
    harpe_status (*limit_in_force)(void *user, int *limit_w, int *gpu, harpe_error *error);
} harpe_power_limit_device;

/* Makes the job a member of the fleet of a server (docs/fleet.md). The job declares its plans when
 * all limits are measured, and then runs the power limit that the server asks for, but never a
 * higher limit than its selector has chosen. A thread of the library talks to the server, and the
 * training thread never waits for it. In a job of several ranks, give all ranks the same; one of
 * them talks to the server. Initialise with zeros, then set the members that you need. */
typedef struct harpe_power_limit_fleet {
    const char *server_url; /* "http://HOST:PORT" or "https://HOST:PORT"; NULL or "": the job is no
                             * member */
    const char *member;     /* the job's name, 1 to 255 bytes, which no other member has; NULL: made
                             * from host, job and a random number */
    const char *group;      /* NULL: none */
    double weight;          /* value of the job's time, above 0, at most 1e12; 0: 1 */
    double max_slowdown;    /* 1 to 1e9, against the fastest plan; 0: any slowdown is accepted */
    /* If the server gives no limit for so many seconds, the job runs the limit that its selector
     * has chosen. 0: 3600; INFINITY: the job keeps the last limit that the server has asked for. */
    double hold_s;
    const char *token;   /* the server's bearer token; NULL: $HARPE_TOKEN, or the token of the
                          * machine's service */
    const char *ca_file; /* certificate authorities (PEM) to trust; NULL: those in $HARPE_CA_FILE
                          * or $SSL_CERT_FILE, or the system's */
} harpe_power_limit_fleet;

/* Initialise with zeros, then set the members that you need. -1 as a number of steps means the
 * default. */
typedef struct harpe_power_limit_options {
    int wait_steps;                      /* >= 0; default 1 */
    int warmup_steps;                    /* >= 0; default 10 */
    int profile_steps;                   /* >= 1; default 40 */
    int step_w;                          /* > 0; 0: 25 */
    harpe_power_limit_selector selector; /* select == NULL: zeus-cost with eta 0.5 */
    const char *profile_path;            /* NULL: none; loaded if it exists, written at the end
                                          * of the measurements */
    const char *device_model; /* recorded in the profile and checked when it is loaded; may be
                               * NULL */
    /* For distributed jobs: combines values over all ranks (the sum of energies and flags, the
     * maximum of times). Every rank makes these calls in the same order. NULL: one process. */
    harpe_status (*all_reduce)(void *user, double *values, size_t count, bool maximum,
                               harpe_error *error);
    void *all_reduce_user;
    int world_size; /* GPUs in the job; 0: the sum of the devices of all ranks */
    harpe_log log;  /* with `fleet`, also called on a thread of the library */
    const harpe_power_limit_fleet *fleet; /* NULL: the job is no member of a fleet; copied */
} harpe_power_limit_options;

typedef struct harpe_power_limit_optimizer harpe_power_limit_optimizer;

/* Creates the optimizer and sets the highest limit, or the best limit if a profile was loaded.
 * `device` and everything it refers to must outlive the optimizer. */
HARPE_API harpe_status harpe_power_limit_optimizer_new(const harpe_power_limit_device *device,
                                                       const harpe_power_limit_options *options,
                                                       harpe_power_limit_optimizer **out,
                                                       harpe_error *error);
/* Restores the limits and frees the optimizer. A member of a fleet then leaves the fleet; if the
 * server does not answer, this takes at most 5 s. */
HARPE_API void harpe_power_limit_optimizer_free(harpe_power_limit_optimizer *optimizer);

HARPE_API void harpe_power_limit_on_epoch_begin(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_epoch_end(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_step_begin(harpe_power_limit_optimizer *optimizer);
HARPE_API void harpe_power_limit_on_step_end(harpe_power_limit_optimizer *optimizer);
/* Returns the four on_ functions as a table for a callback set. */
HARPE_API harpe_training_callback
harpe_power_limit_callback(harpe_power_limit_optimizer *optimizer);

typedef enum harpe_power_limit_phase {
    HARPE_POWER_LIMIT_READY,     /* at the highest limit, before the next limit is tried */
    HARPE_POWER_LIMIT_WARMUP,    /* at the limit that is tried, before its measurement */
    HARPE_POWER_LIMIT_PROFILING, /* at the limit that is tried, with an open window */
    HARPE_POWER_LIMIT_DONE,      /* holds the best limit */
    HARPE_POWER_LIMIT_FAILED,    /* the limits are restored; the optimizer does nothing more */
} harpe_power_limit_phase;

typedef struct harpe_power_limit_state {
    harpe_power_limit_phase phase;
    int power_limit_w; /* READY: the next limit; WARMUP, PROFILING: the limit that is tried; DONE:
                        * the best limit; FAILED: 0 */
    int steps; /* calls of harpe_power_limit_on_step_begin until the phase ends; DONE, FAILED:
                * 0 */
} harpe_power_limit_state;
HARPE_API harpe_power_limit_state
harpe_power_limit_get_state(const harpe_power_limit_optimizer *optimizer);
/* Returns true if the optimizer holds the best limit. */
HARPE_API bool harpe_power_limit_is_done(const harpe_power_limit_optimizer *optimizer);
/* Returns true if the optimizer has failed (see the log). The limits are then restored, and
 * calls do nothing. */
HARPE_API bool harpe_power_limit_has_failed(const harpe_power_limit_optimizer *optimizer);
/* Returns the limit that the optimizer has set; 0 after a failure. */
HARPE_API int harpe_power_limit_current_w(const harpe_power_limit_optimizer *optimizer);
HARPE_API int
harpe_power_limit_optimum_w(const harpe_power_limit_optimizer *optimizer); /* 0: not yet */
HARPE_API const harpe_power_limit_measurement *
harpe_power_limit_measurements(const harpe_power_limit_optimizer *optimizer, size_t *count);

/* Marks that a step begins, or that an epoch has ended. Call it in a program that runs under `harpe
 * power-limit run` and has no optimizer of its own. The mark is counted in memory that the runner
 * shares through HARPE_STEP_MEMORY. A mark never waits, even if the runner is stopped, slow or
 * dead. It raises no signal, does not change errno, and writes to no descriptor. It does nothing in
 * other programs. If a launcher has closed the memory's descriptor before the first mark, the
 * memory is opened through /proc, as the user of the runner in its PID namespace. Any thread may
 * mark, and marks of forked children count too. */
HARPE_API void harpe_power_limit_mark_step(void);
HARPE_API void harpe_power_limit_mark_epoch(void);

/* The sources of units of work, from the least reliable to the best. Frameworks show the first
 * three without the help of the program; marks come from the program itself. */
typedef enum harpe_step_source {
    HARPE_STEP_FORWARDS = 1, /* calls of the outermost module */
    HARPE_STEP_BATCHES,      /* batches of data */
    HARPE_STEP_UPDATES,      /* steps of an optimizer of weights */
    HARPE_STEP_MARKS,        /* harpe_power_limit_mark_step */
} harpe_step_source;
/* harpe_power_limit_count_step counts a unit of work of a source, in the same memory and in the
 * same way as a mark. All processes of the program together count only one source. A better source
 * replaces the present source, and units of a less reliable source are not counted.
 * harpe_power_limit_end_source says that no more units of this source are expected, so that a less
 * reliable source can follow. */
HARPE_API void harpe_power_limit_count_step(harpe_step_source source);
HARPE_API void harpe_power_limit_end_source(harpe_step_source source);

/* The device of real or emulated GPUs: all visible GPUs, which must be one model. `with_guard`
 * starts a small process that outlives the trainer. The process restores the limits within a second
 * after the trainer ends for any reason, also SIGKILL. Free with harpe_power_limit_gpus_free, which
 * restores the limits. */
typedef struct harpe_power_limit_gpus harpe_power_limit_gpus;
HARPE_API harpe_status harpe_power_limit_gpus_new(harpe_gpus *gpus, bool with_guard,
                                                  harpe_power_limit_gpus **out, harpe_error *error);
HARPE_API const harpe_power_limit_device *
harpe_power_limit_gpus_device(harpe_power_limit_gpus *gpus);
HARPE_API void harpe_power_limit_gpus_free(harpe_power_limit_gpus *gpus);

HARPE_END_DECLS

#endif
