/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an online scheduler for one job, and the functions that its sources share. Perseus
 * and InstructionProfiler are online schedulers. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_INTERNAL_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/scheduler.h>

#include "server/scheduler/figures.h"
#include "server/scheduler/perseus/explorer_internal.h"
#include "server/scheduler/perseus/online_internal.h"

/* ---- Arguments: perseus.c -------------------------------------------------------------------- */

typedef struct harpe_perseus_args {
    json_t *json;      /* owns the texts below */
    harpe_arena arena; /* owns the lists of the schedule */
    harpe_online_schedule schedule;
    const char *profile_path;    /* NULL: in the job's directory */
    int num_microbatches;        /* 0: the scheduler counts them */
    bool learns_by_sweep;        /* false: by exploration */
    double exploration_slowdown; /* the most additional time of an exploration, as a share */
    int frequency_stride, rises_to_stop, plans, rounds_to_drift;
    /* Per GPU: a number, or a list with one for each pipeline rank; NULL: it is measured. */
    const json_t *blocking_power;
    double slowdown, drift_tolerance;
} harpe_perseus_args;

/* ---- The state ------------------------------------------------------------------------------- */

typedef enum harpe_perseus_phase {
    HARPE_PERSEUS_COUNT = 0, /* the first round, to count microbatches */
    HARPE_PERSEUS_SWEEP = 1,
    HARPE_PERSEUS_PLAN = 2, /* runs a plan and watches it */
    HARPE_PERSEUS_HOLD = 3, /* highest frequencies until the job ends */
    HARPE_PERSEUS_EXPLORE = 4,
} harpe_perseus_phase;

enum { HARPE_PERSEUS_HISTORY = 200 };

typedef struct harpe_perseus_measured {
    int64_t round;
    double value[HARPE_QUANTITIES]; /* of an iteration, all ranks; 0: not reported */
    /* The same values at the highest clocks; 0: no plan ran, or there is no baseline. */
    double baseline[HARPE_QUANTITIES];
    int64_t iterations;
    double systematic[HARPE_QUANTITIES]; /* uncertainty of the baseline without noise */
    bool is_waiting;                     /* the round waits for one at the highest clocks */
    int64_t ended_wall_s; /* when the round ended, in s since 1970; 0: not known. For people */
} harpe_perseus_measured;

/* The usual time and energy of an iteration of the running plan, and the predicted ones. */
typedef struct harpe_perseus_usual {
    double planned_s, planned_j, rounds;
    double value[HARPE_QUANTITIES];
} harpe_perseus_usual;

/* The highest level. If a measurement or correction is repeated soon, the level rises by 1. Each
 * level doubles the wait before the next measurement or correction. */
enum { HARPE_PERSEUS_LEVEL_MAX = 6 };
typedef struct harpe_perseus_backoff {
    int level;
    int64_t since; /* the round in which the level last changed */
} harpe_perseus_backoff;

/* The round and the plan of the measurements in explorer->seen. The store does not keep them. */
typedef struct harpe_perseus_seen {
    bool is_known; /* a round ran these plans; the explorer has its measurements */
    int64_t round;
    size_t plan;
} harpe_perseus_seen;

/* See perseus_replicas.c. */
typedef struct harpe_perseus_replicas harpe_perseus_replicas;

typedef struct harpe_perseus {
    const harpe_scheduler_job *job;
    const char *name;            /* name of the scheduler */
    harpe_conduct_sums *conduct; /* belong to the owner, and are stored with this state */
    bool makes_plans;            /* false: InstructionProfiler */
    harpe_perseus_args args;
    harpe_perseus_phase phase;
    char hold_reason[HARPE_ERROR_MESSAGE_SIZE]; /* "": no failure */
    int count_misses; /* rounds in a row in which microbatches could not be counted */
    harpe_online_pipeline *pipeline; /* NULL while microbatches are counted, like `explorer` */
    harpe_explorer *explorer;
    json_t *before; /* while the job measures again: the saved explorer from which the plans were
                     * made; otherwise NULL */
    bool explores, explores_next; /* with a plan: this round, or the next one, is an exploration */
    harpe_perseus_replicas *replicas; /* NULL: the job has one replica, or too many */
    harpe_online_reports reports;     /* of the round that is observed */
    bool is_profile_made;             /* the profile was made and handed to the server */
    harpe_scheduler_file file;        /* the profile, until it is taken */
    int mismatches;         /* rounds in a row without the measurements that they should have */
    bool mismatch_was_told; /* the mismatch was logged */

    harpe_online_plans *plans; /* NULL until enough was learnt */
    uint64_t plans_number;     /* counts the sets of plans that were made */
    bool is_plan_new;          /* the current round runs none of the plans */
    double *blocking_powers_w; /* per GPU of each pipeline rank */
    double blocking_power_w;   /* their mean */
    /* Measured minus predicted time and energy of an iteration: `outside` has the difference in the
     * first round of learning, and `shift` has its change since then. Job requests do not use
     * `shift`, because a straggler may have caused this change. */
    double outside_time_s, outside_energy_j;
    double shift_time_s, shift_energy_j;
    harpe_online_requests requests;
    size_t running;   /* the plan that was handed out last */
    int drift_rounds; /* in a row */
    harpe_perseus_backoff corrections, measuring;

    harpe_perseus_seen seen;
    harpe_savings savings;
    harpe_perseus_usual usual;
    harpe_online_requests told, baseline_told; /* of this round's schedule, and of the baseline */
    /* This round, or the next one, runs at the highest clocks to measure the savings. */
    bool runs_highest, runs_highest_next;
    harpe_perseus_backoff references; /* of the rounds that measure the savings */
    int64_t round;                    /* number of observed rounds */
    harpe_perseus_measured
        history[HARPE_PERSEUS_HISTORY]; /* round r is at index r modulo the size */
} harpe_perseus;

/* ---- From measurements to plans: perseus_plan.c ---------------------------------------------- */

/* Returns the first round that the history still has. */
static inline int64_t harpe_perseus_first_kept(const harpe_perseus *self) {
    return self->round > HARPE_PERSEUS_HISTORY ? self->round - HARPE_PERSEUS_HISTORY : 0;
}
/* Returns the time and energy outside of the pipeline, for job requests. Both are 0 or more. */
harpe_online_outside harpe_perseus_outside(const harpe_perseus *self);

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Frees the pipeline, the explorer, the plans and the measurements, because they depend on the
 * number of microbatches. */
void harpe_perseus_forget(harpe_perseus *self);
/* Makes the pipeline and its explorer for this number of microbatches, frees the previous ones, and
 * begins to learn. On failure, nothing changes. */
harpe_status harpe_perseus_begin(harpe_perseus *self, int microbatches, harpe_error *error);
void harpe_perseus_begin_learning(harpe_perseus *self);
/* Logs what learning has cost. */
void harpe_perseus_log_learnt(const harpe_perseus *self);
/* Sets the blocking powers to those of the arguments, or else to the measured ones. */
void harpe_perseus_find_blocking_power(harpe_perseus *self);
/* Returns the reports of this round. If changes of clocks are immediate, the reports of clocks are
 * left out. */
harpe_online_reports harpe_perseus_late_reports(const harpe_perseus *self);

/* Makes plans with the measurements. On failure, keeps the old plans. `undisturbed_s` is the
 * argument of harpe_online_plans_new. */
harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error);
/* Makes the first plans after learning. Returns false if no plans can be made. */
bool harpe_perseus_plan_learnt(harpe_perseus *self);
size_t harpe_perseus_chosen(const harpe_perseus *self);
/* Returns the plan of the present round, which may be that of the highest clocks. */
const harpe_plan *harpe_perseus_running_plan(const harpe_perseus *self);
void harpe_perseus_hold(harpe_perseus *self, const char *reason);
/* Returns to the existing plans. */
void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason);
/* Makes the profile as CSV for harpe_scheduler_take_file, if the profile must be written. Logs a
 * failure. */
void harpe_perseus_hand_over_profile(harpe_perseus *self);

static inline bool harpe_perseus_is_learning(const harpe_perseus *self) {
    return self->phase == HARPE_PERSEUS_SWEEP || self->phase == HARPE_PERSEUS_EXPLORE;
}
/* Takes the results of a round of the explorer. */
harpe_status harpe_perseus_learn(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* Makes the next round, or ends the exploration with a plan. Call it after harpe_perseus_learn. */
harpe_status harpe_perseus_explore_on(harpe_perseus *self, harpe_error *error);
/* Adapts the exploration to new job requests, or begins an exploration if the requests need one. */
void harpe_perseus_explore_request(harpe_perseus *self);

/* Compares a round that ran a plan with the plan. If there is drift, corrects the profile and the
 * plans. */
harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* Restores the profile from before all drift, and makes plans with it. Call it when a straggler may
 * have caused what was taken for drift. */
void harpe_perseus_forget_drift(harpe_perseus *self);
/* Returns true if the job may be measured again. After each measurement, the next one must wait
 * longer. */
bool harpe_perseus_may_measure(const harpe_perseus *self);
void harpe_perseus_put_off(harpe_perseus_backoff *backoff, int64_t round);
/* Returns time and energy of an iteration of the running plan. Writes to `*predicted` the time and
 * energy that are predicted for this round. They include the time and energy outside of the
 * pipeline and the wait for a straggler. */
harpe_online_mean harpe_perseus_planned(const harpe_perseus *self, const harpe_online_round *round,
                                        harpe_online_mean *predicted);

/* ---- Savings: savings.c ---------------------------------------------------------------------- */

/* Counts the savings of a round that ran a plan, and fills in `measured`. `frequency_mhz` has the
 * clock of each instruction. Decides whether the next round runs at the highest clocks. */
void harpe_perseus_count_planned(harpe_perseus *self, const int *frequency_mhz,
                                 const harpe_online_round *round, harpe_perseus_measured *measured);
/* Returns true if a round may run at the highest clocks on purpose, because no job request asks for
 * a slower plan. */
bool harpe_perseus_may_run_highest(const harpe_perseus *self);
/* Counts a round of learning before the explorer uses it, or the round after a sweep. */
void harpe_perseus_count_learning(harpe_perseus *self, const harpe_online_round *round,
                                  int64_t number);
harpe_savings_round harpe_perseus_savings_round(const harpe_online_round *round, int64_t number);
/* Begins a new baseline. Call it when the job has changed. */
void harpe_perseus_renew_baseline(harpe_perseus *self);

/* ---- Replicas that differ: perseus_replicas.c ------------------------------------------------ */
void harpe_perseus_replicas_free(harpe_perseus_replicas *own);

/* Chooses the plans of the round that begins. `shared_mhz` has the clocks of the shared plan; NULL:
 * all replicas run the same clocks in this round. */
harpe_status harpe_perseus_replicas_begin_round(harpe_perseus *self, const int *shared_mhz,
                                                harpe_error *error);
/* Returns the clocks of a replica in this round, one for each instruction. Returns NULL if the
 * replica runs the clocks of the shared plan. */
const int *harpe_perseus_replicas_clocks(const harpe_perseus *self, int replica);
/* Returns the lowest clock of each instruction over all replicas in this round. Returns NULL if all
 * replicas run the same clocks. */
const int *harpe_perseus_replicas_lowest(const harpe_perseus *self);
/* Compares the plans of this round with the shared plan. Returns the time (in s) and energy (in J)
 * of an iteration with the plans of this round, minus the time and energy of an iteration with the
 * shared plan on all replicas. */
harpe_online_mean harpe_perseus_replicas_gain(const harpe_perseus *self);

/* Learns from the results of a round. `frequency_mhz` has the clocks of the shared plan. If
 * replicas ran clocks of their own, this function replaces the entries of `round` with the times
 * and energies that are expected at the clocks of the shared plan. */
harpe_status harpe_perseus_replicas_observe(harpe_perseus *self, const int *frequency_mhz,
                                            harpe_online_round *round, harpe_error *error);
/* Makes plans for each replica if the replicas differ and their present plans no longer fit.
 * Removes these plans if the replicas no longer differ. If plans cannot be made, logs the reason
 * once; then all replicas run the shared plan, and the next call tries again. Call this function
 * after each round. */
void harpe_perseus_replicas_plan(harpe_perseus *self);

json_t *harpe_perseus_replicas_save(const harpe_perseus *self);
/* Reads what harpe_perseus_replicas_save wrote. Returns false if the data does not fit the job.
 * After a restart, call it when the shared plans exist again. */
bool harpe_perseus_replicas_load(harpe_perseus *self, const json_t *json);
/* Returns the replicas as a member of the frontier's JSON. */
json_t *harpe_perseus_replicas_show(const harpe_perseus *self);

/* ---- What people see: perseus_report.c ------------------------------------------------------- */

harpe_status harpe_perseus_pipeline(const void *state, int64_t number, char **json,
                                    harpe_error *error);
harpe_status harpe_perseus_frontier(const void *state, char **text, harpe_error *error);

/* ---- The stored state: perseus_state.c ------------------------------------------------------- */

harpe_status harpe_perseus_save(const void *state, char **text, size_t *length, harpe_error *error);
harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error);

#endif
