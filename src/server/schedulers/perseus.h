/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an online scheduler, shared by its files: perseus.c (rounds and wishes),
 * perseus_watch.c (is what is measured what was planned?), perseus_state.c (save, load, frontier),
 * perseus_args.c, and by instruction_profiler.c, which is its first half. */
#ifndef HARPE_SERVER_SCHEDULERS_PERSEUS_H
#define HARPE_SERVER_SCHEDULERS_PERSEUS_H

#include <harpe/scheduler.h>

#include "server/schedulers/online_plans.h"
#include "server/schedulers/sweep.h"

/* ---- Arguments ------------------------------------------------------------------------------- */

typedef struct harpe_perseus_args {
    json_t *json;                        /* owns the texts below */
    const char *schedule, *schedule_csv; /* at most one; neither: 1f1b */
    const char *profile_path;            /* NULL: in the job's directory */
    int num_microbatches;                /* 0: to be counted */
    int frequency_stride, rises_to_stop, plans, rounds_to_drift;
    double blocking_power_w; /* per GPU; negative: to be measured */
    double slowdown, drift_tolerance;
} harpe_perseus_args;

/* `plans`: also the arguments of planning, which InstructionProfiler refuses. Free with
 * harpe_perseus_args_free. */
harpe_status harpe_perseus_args_read(const char *scheduler, bool plans, const char *args_json,
                                     harpe_perseus_args *out, harpe_error *error);
void harpe_perseus_args_free(harpe_perseus_args *args);
/* As check_args of a harpe_scheduler_class. */
harpe_status harpe_perseus_args_check(const char *scheduler, bool plans, const char *args_json,
                                      harpe_error *error);

/* ---- State ----------------------------------------------------------------------------------- */

typedef enum harpe_perseus_phase {
    HARPE_PERSEUS_COUNT = 0, /* the first round, to count microbatches */
    HARPE_PERSEUS_SWEEP = 1,
    HARPE_PERSEUS_PLAN = 2, /* runs a plan and watches it */
    HARPE_PERSEUS_HOLD = 3, /* highest frequencies, for good */
} harpe_perseus_phase;

enum { HARPE_PERSEUS_HISTORY = 200 };

typedef struct harpe_perseus_measured {
    int64_t round;
    double time_s, energy_j; /* of an iteration, all ranks; 0: not reported */
} harpe_perseus_measured;

typedef struct harpe_perseus {
    const harpe_scheduler_job *job;
    const char *name; /* of the scheduler */
    bool makes_plans; /* else InstructionProfiler */
    harpe_perseus_args args;
    harpe_perseus_phase phase;
    char hold_reason[HARPE_ERROR_MESSAGE_SIZE]; /* "": as it should be */
    int count_misses;                /* rounds in which microbatches could not be counted */
    harpe_online_pipeline *pipeline; /* NULL while counting; the sweep too */
    harpe_sweep *sweep;
    bool is_profile_written;

    harpe_online_plans *plans; /* in HARPE_PERSEUS_PLAN */
    double blocking_power_w;   /* per GPU */
    /* Measured iterations less what was predicted: in the sweep's first round, and what came to
     * that since, which wishes do not count with: it may be a straggler's doing. */
    double outside_time_s, outside_energy_j;
    double shift_time_s, shift_energy_j;
    harpe_online_wishes wishes;
    size_t running;   /* the plan that was said last */
    int drift_rounds; /* in a row */

    int64_t round;                                         /* observed so far */
    harpe_perseus_measured history[HARPE_PERSEUS_HISTORY]; /* round r at r % its size */
} harpe_perseus;

/* What wishes count with: never below 0. */
harpe_online_outside harpe_perseus_outside(const harpe_perseus *self);
int harpe_perseus_gpus_per_stage(const harpe_perseus *self);

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Pipeline and sweep for that many microbatches. */
harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error);
/* Plans with what was measured; keeps the old plans when it fails. */
harpe_status harpe_perseus_make_plans(harpe_perseus *self, harpe_error *error);
void harpe_perseus_hold(harpe_perseus *self, const char *reason);
/* The profile as CSV, where it is wanted; a failure is logged. */
void harpe_perseus_write_profile(harpe_perseus *self);

/* A round that ran a plan: compares, and corrects profile and plans on drift. */
harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);

/* ---- As functions of a harpe_scheduler_class ------------------------------------------------- */

harpe_status harpe_perseus_create(const harpe_scheduler_job *job, const char *name,
                                  bool makes_plans, void **state, harpe_error *error);
harpe_status harpe_perseus_next(void *state, harpe_schedule_writer *writer, harpe_error *error);
harpe_status harpe_perseus_observe(void *state, const harpe_profiling_result *results, size_t count,
                                   harpe_error *error);
harpe_status harpe_perseus_save(const void *state, char **text, size_t *length, harpe_error *error);
harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error);
harpe_status harpe_perseus_frontier(const void *state, char **text, harpe_error *error);
void harpe_perseus_destroy(void *state);

#endif
