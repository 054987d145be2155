/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an online scheduler. These files share it: perseus.c (rounds and job requests),
 * perseus_plan.c (makes plans after a sweep), perseus_watch.c (compares measurements with the
 * plan), perseus_savings.c (computes savings), perseus_report.c (reports savings), perseus_state.c
 * (save, load, frontier) and perseus_args.c. instruction_profiler.c uses a part of it. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_H

#include <harpe/scheduler.h>

#include "server/scheduler/perseus/online_plans.h"
#include "server/scheduler/perseus/savings.h"
#include "server/scheduler/perseus/sweep.h"
#include "server/scheduler/scheduler_file.h"

/* ---- Arguments ------------------------------------------------------------------------------- */

typedef struct harpe_perseus_args {
    json_t *json;                        /* owns the texts below */
    const char *schedule, *schedule_csv; /* at most one is set; both NULL: 1f1b */
    const char *profile_path;            /* NULL: in the job's directory */
    int num_microbatches;                /* 0: they are counted */
    int frequency_stride, rises_to_stop, plans, rounds_to_drift;
    double blocking_power_w; /* per GPU; negative: it is measured */
    double slowdown, drift_tolerance;
} harpe_perseus_args;

/* Reads arguments. If `plans` is true, also accepts the arguments for planning, which
 * InstructionProfiler does not have. Free with harpe_perseus_args_free. */
harpe_status harpe_perseus_args_read(const char *scheduler, bool plans, const char *args_json,
                                     harpe_perseus_args *out, harpe_error *error);
void harpe_perseus_args_free(harpe_perseus_args *args);
/* The function check_args of a harpe_scheduler_class. */
harpe_status harpe_perseus_args_check(const char *scheduler, bool plans, const char *args_json,
                                      harpe_error *error);

/* ---- State ----------------------------------------------------------------------------------- */

typedef enum harpe_perseus_phase {
    HARPE_PERSEUS_COUNT = 0, /* the first round, to count microbatches */
    HARPE_PERSEUS_SWEEP = 1,
    HARPE_PERSEUS_PLAN = 2, /* runs a plan and watches it */
    HARPE_PERSEUS_HOLD = 3, /* highest frequencies until the job ends */
} harpe_perseus_phase;

enum { HARPE_PERSEUS_HISTORY = 200 };

typedef struct harpe_perseus_measured {
    int64_t round;
    double time_s, energy_j; /* of an iteration, all ranks; 0: not reported */
    /* The values that the iteration would have at the highest frequencies with the same straggler;
     * 0: no plan ran, or there is no baseline. */
    double baseline_s, baseline_j;
    int64_t iterations;
    /* As in harpe_savings_terms. */
    double systematic_s, systematic_j, weight_s, weight_j;
} harpe_perseus_measured;

/* The usual deviation of rounds from their plans, in s or J. Only the rounds that are closest to
 * their plans count. */
typedef struct harpe_perseus_usual {
    double deviation, rounds;
} harpe_perseus_usual;

/* The present shift of the baseline, and the first of the consecutive rounds that have it; -1:
 * there is no shift. */
typedef struct harpe_perseus_scaled {
    double factor[HARPE_QUANTITIES];
    int64_t since_round;
} harpe_perseus_scaled;

/* The highest level. If a sweep or correction is repeated soon, the level rises by 1, and the wait
 * before the next one doubles. */
enum { HARPE_PERSEUS_LEVEL_MAX = 6 };
typedef struct harpe_perseus_backoff {
    int level;
    int64_t since; /* the round in which the level last changed */
} harpe_perseus_backoff;

/* Measurements of the last round that ran a plan, for people. They are not saved. */
typedef struct harpe_perseus_seen {
    harpe_online_mean *entries; /* one per entry; NULL: no round ran these plans */
    int64_t round;
    size_t plan;
} harpe_perseus_seen;

typedef struct harpe_perseus {
    const harpe_scheduler_job *job;
    const char *name; /* name of the scheduler */
    bool makes_plans; /* false: InstructionProfiler */
    harpe_perseus_args args;
    harpe_perseus_phase phase;
    char hold_reason[HARPE_ERROR_MESSAGE_SIZE]; /* "": no failure */
    int count_misses; /* rounds in a row in which microbatches could not be counted */
    harpe_online_pipeline *pipeline; /* NULL while counting; the sweep too */
    harpe_sweep *sweep;        /* the sweep that the plans use; without plans: the current sweep */
    harpe_sweep *sweep_again;  /* the current sweep if there are already plans; NULL: none */
    bool is_profile_made;      /* the profile was made and handed over */
    harpe_scheduler_file file; /* the profile, until it is taken */
    int mismatches;            /* rounds in a row without the measurements that they should have */
    bool mismatch_was_told;    /* the mismatch was logged */

    harpe_online_plans *plans; /* NULL until the first sweep is over */
    bool is_plan_new;          /* the current round runs none of the plans */
    double blocking_power_w;   /* per GPU */
    /* Measured minus predicted time and energy of an iteration: `outside` has the difference in the
     * sweep's first round, and `shift` has its change since then. Job requests do not use `shift`,
     * because a straggler may have caused this change. */
    double outside_time_s, outside_energy_j;
    double shift_time_s, shift_energy_j;
    harpe_online_requests requests;
    size_t running;   /* the plan that was handed out last */
    int drift_rounds; /* in a row */
    harpe_perseus_backoff corrections, sweeps;

    harpe_perseus_seen seen;
    harpe_savings savings, savings_again; /* for `sweep`, and for `sweep_again` */
    harpe_perseus_usual usual[HARPE_QUANTITIES];
    harpe_perseus_scaled scaled;
    int64_t round; /* number of observed rounds */
    harpe_perseus_measured
        history[HARPE_PERSEUS_HISTORY]; /* round r is at index r modulo the size */
} harpe_perseus;

/* Returns the time and energy outside of the pipeline, for the handling of job requests. Both are 0
 * or more. */
harpe_online_outside harpe_perseus_outside(const harpe_perseus *self);
int harpe_perseus_gpus_per_stage(const harpe_perseus *self);

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Makes the pipeline and the first sweep for this number of microbatches. */
harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error);
harpe_status harpe_perseus_new_sweep(const harpe_perseus *self, harpe_sweep **out,
                                     harpe_error *error);
harpe_sweep *harpe_perseus_sweep_under_way(const harpe_perseus *self);

/* Makes plans with the measurements of `self->sweep`. If this fails, keeps the old plans.
 * `undisturbed_s` has the same meaning as for harpe_online_plans_new. In perseus_plan.c. */
harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error);
/* Makes plans and chooses one to run. Call it after the round at the highest frequency that follows
 * the sweep. */
void harpe_perseus_plan_swept(harpe_perseus *self);
size_t harpe_perseus_chosen(const harpe_perseus *self);
void harpe_perseus_hold(harpe_perseus *self, const char *reason);
/* Returns to the existing plans. */
void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason);
/* Makes the profile as CSV for harpe_scheduler_take_file, if the profile must be written. Logs a
 * failure. */
void harpe_perseus_hand_over_profile(harpe_perseus *self);

/* Compares a round that ran a plan with the plan. If there is drift, corrects the profile and the
 * plans. */
harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* Restores the profile of the sweep and makes plans with it. Call it when a straggler may have
 * caused the changes since the sweep. */
void harpe_perseus_forget_drift(harpe_perseus *self);
/* Returns true if another sweep may begin. Each sweep delays the next one. */
bool harpe_perseus_may_sweep(const harpe_perseus *self);
void harpe_perseus_put_sweep_off(harpe_perseus *self);

/* Counts the savings of a round that ran a plan, and fills in `measured`. In perseus_savings.c. */
harpe_status harpe_perseus_count_planned(harpe_perseus *self, const harpe_online_round *round,
                                         const harpe_profiling_result *results, size_t count,
                                         harpe_perseus_measured *measured, harpe_error *error);
/* Counts a round of the sweep before the sweep uses it, or the round after the sweep. */
void harpe_perseus_count_sweep(harpe_perseus *self, const harpe_online_round *round,
                               int64_t number);
harpe_savings_round harpe_perseus_savings_round(const harpe_online_round *round, int64_t number);
/* Uses the measurements of the last sweep as the new baseline. */
void harpe_perseus_renew_baseline(harpe_perseus *self);
/* Ends the present sweep without making plans. The time and energy of the sweep are counted. */
void harpe_perseus_drop_baseline(harpe_perseus *self);
/* Returns the uncertainty of a GPU's blocking power: half the width of its 95 % confidence
 * interval. */
double harpe_perseus_blocking_uncertainty_w(const harpe_perseus *self);

/* These functions return members of the frontier in JSON, or null if there is no baseline. In
 * perseus_report.c. */
json_t *harpe_perseus_show_baseline(const harpe_perseus *self);
json_t *harpe_perseus_show_saved(const harpe_perseus *self);
json_t *harpe_perseus_show_round(const harpe_perseus *self, const harpe_perseus_measured *measured);
/* Return how much more time and energy the latest sweep took than the same iterations would have
 * taken at the baseline. */
double harpe_perseus_sweep_extra_time_s(const harpe_perseus *self);
double harpe_perseus_sweep_extra_energy_j(const harpe_perseus *self);

/* These functions keep the measurements of a round that ran a plan for perseus_pipeline.c, and drop
 * them. */
void harpe_perseus_see(harpe_perseus *self, const harpe_online_round *round);
void harpe_perseus_forget_seen(harpe_perseus *self);

/* ---- As functions of a harpe_scheduler_class ------------------------------------------------- */

harpe_status harpe_perseus_create(const harpe_scheduler_job *job, const char *name,
                                  bool makes_plans, void **state, harpe_error *error);
harpe_status harpe_perseus_next(void *state, harpe_schedule_writer *writer, harpe_error *error);
harpe_status harpe_perseus_observe(void *state, const harpe_profiling_result *results, size_t count,
                                   harpe_error *error);
harpe_status harpe_perseus_save(const void *state, char **text, size_t *length, harpe_error *error);
harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error);
harpe_status harpe_perseus_frontier(const void *state, char **text, harpe_error *error);
harpe_status harpe_perseus_pipeline(const void *state, int64_t number, char **json,
                                    harpe_error *error);
void harpe_perseus_destroy(void *state);

#endif
