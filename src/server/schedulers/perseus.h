/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an online scheduler, shared by its files: perseus.c (rounds and wishes),
 * perseus_plan.c (from a finished sweep to plans), perseus_watch.c (is what is measured what was
 * planned?), perseus_savings.c (what is saved), perseus_report.c (how that is told),
 * perseus_state.c (save, load, frontier), perseus_args.c, and by instruction_profiler.c, which is
 * its first half. */
#ifndef HARPE_SERVER_SCHEDULERS_PERSEUS_H
#define HARPE_SERVER_SCHEDULERS_PERSEUS_H

#include <harpe/scheduler.h>

#include "server/schedulers/online_plans.h"
#include "server/schedulers/savings.h"
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
    /* The values at the highest frequencies with the same straggler; 0: no plan ran, or no baseline
     * is measured. */
    double baseline_s, baseline_j;
    int64_t iterations;
    /* Of the baseline, as in harpe_savings_terms. */
    double doubt_s, doubt_j, weight_s, weight_j;
} harpe_perseus_measured;

/* How far rounds are from their plans, in s or J, for the rounds that are closest to them. */
typedef struct harpe_perseus_usual {
    double deviation, rounds;
} harpe_perseus_usual;

/* The present shift of the baseline, and the round since which it has existed without a break; -1:
 * none. */
typedef struct harpe_perseus_scaled {
    double factor[HARPE_QUANTITIES];
    int64_t since_round;
} harpe_perseus_scaled;

/* What happens again soon after it happened has to wait twice as long, up to a level. */
enum { HARPE_PERSEUS_LEVEL_MAX = 6 };
typedef struct harpe_perseus_patience {
    int level;
    int64_t since; /* the round in which the level last changed */
} harpe_perseus_patience;

/* What the last round that ran a plan took, for people to look at. Not saved. */
typedef struct harpe_perseus_seen {
    harpe_online_mean *entries; /* of the pipeline's entries; NULL: none ran since the plans are */
    int64_t round;
    size_t plan;
} harpe_perseus_seen;

typedef struct harpe_perseus {
    const harpe_scheduler_job *job;
    const char *name; /* of the scheduler */
    bool makes_plans; /* else InstructionProfiler */
    harpe_perseus_args args;
    harpe_perseus_phase phase;
    char hold_reason[HARPE_ERROR_MESSAGE_SIZE]; /* "": as it should be */
    int count_misses;                /* rounds in which microbatches could not be counted */
    harpe_online_pipeline *pipeline; /* NULL while counting; the sweep too */
    harpe_sweep *sweep;              /* what the plans rest on; without plans: the one under way */
    harpe_sweep *sweep_again;        /* one under way while there are plans; NULL: none */
    bool is_profile_written;
    int misfits;          /* rounds in a row that did not measure what they should */
    bool misfit_was_told; /* in the log */

    harpe_online_plans *plans; /* NULL until the first sweep is over */
    bool is_plan_new;          /* the round under way runs none of them */
    double blocking_power_w;   /* per GPU */
    /* Measured iterations less what was predicted: in the sweep's first round, and what came to
     * that since, which wishes do not count with: it may be a straggler's doing. */
    double outside_time_s, outside_energy_j;
    double shift_time_s, shift_energy_j;
    harpe_online_wishes wishes;
    size_t running;   /* the plan that was said last */
    int drift_rounds; /* in a row */
    harpe_perseus_patience corrections, sweeps;

    harpe_perseus_seen seen;
    harpe_savings savings, savings_again; /* against sweep's and sweep_again's baseline */
    harpe_perseus_usual usual[HARPE_QUANTITIES];
    harpe_perseus_scaled scaled;
    int64_t round;                                         /* observed so far */
    harpe_perseus_measured history[HARPE_PERSEUS_HISTORY]; /* round r at r % its size */
} harpe_perseus;

/* What wishes count with: never below 0. */
harpe_online_outside harpe_perseus_outside(const harpe_perseus *self);
int harpe_perseus_gpus_per_stage(const harpe_perseus *self);

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Pipeline and first sweep for that many microbatches. */
harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error);
harpe_status harpe_perseus_new_sweep(const harpe_perseus *self, harpe_sweep **out,
                                     harpe_error *error);
harpe_sweep *harpe_perseus_sweep_under_way(const harpe_perseus *self);

/* perseus_plan.c: plans with what `self->sweep` has measured; keeps the old plans when it fails.
 * `undisturbed_s` as for harpe_online_plans_new. */
harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error);
/* The sweep is over, and the round at the highest frequency behind it: plans, and runs a plan. */
void harpe_perseus_plan_swept(harpe_perseus *self);
size_t harpe_perseus_chosen(const harpe_perseus *self);
void harpe_perseus_hold(harpe_perseus *self, const char *reason);
/* Back to the plans that there are. */
void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason);
/* The profile as CSV, where it is wanted; a failure is logged. */
void harpe_perseus_write_profile(harpe_perseus *self);

/* A round that ran a plan: compares, and corrects profile and plans on drift. */
harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* The profile as it was swept, and plans with it: what has changed since was a straggler's doing.
 */
void harpe_perseus_forget_drift(harpe_perseus *self);
/* Is it time for another sweep? Each one puts the next one off. */
bool harpe_perseus_may_sweep(const harpe_perseus *self);
void harpe_perseus_put_sweep_off(harpe_perseus *self);

/* perseus_savings.c: a round that ran a plan, into `measured` too. */
harpe_status harpe_perseus_count_planned(harpe_perseus *self, const harpe_online_round *round,
                                         const harpe_profiling_result *results, size_t count,
                                         harpe_perseus_measured *measured, harpe_error *error);
/* Takes a round of the sweep, before the sweep uses it, or the round after the sweep. */
void harpe_perseus_count_sweep(harpe_perseus *self, const harpe_online_round *round,
                               int64_t number);
harpe_savings_round harpe_perseus_savings_round(const harpe_online_round *round, int64_t number);
/* From now on, the measurements of the last sweep are the baseline. */
void harpe_perseus_renew_baseline(harpe_perseus *self);
/* The present sweep does not end with plans. Its time and energy are counted. */
void harpe_perseus_drop_baseline(harpe_perseus *self);
/* Half-width at 95 % of the blocking power of a GPU. */
double harpe_perseus_blocking_doubt_w(const harpe_perseus *self);

/* perseus_report.c: members of the frontier; null where there is no baseline. */
json_t *harpe_perseus_show_baseline(const harpe_perseus *self);
json_t *harpe_perseus_show_saved(const harpe_perseus *self);
json_t *harpe_perseus_show_round(const harpe_perseus *self, const harpe_perseus_measured *measured);
/* What the latest sweep took beyond the baseline. */
double harpe_perseus_sweep_extra_time_s(const harpe_perseus *self);
double harpe_perseus_sweep_extra_energy_j(const harpe_perseus *self);

/* Remembers, for perseus_pipeline.c, a round that ran a plan; and forgets it. */
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
