/* SPDX-License-Identifier: Apache-2.0 */
/* Plans whose power keeps the limits of a request. Private to src/plan. */
#ifndef HARPE_PLAN_POWER_LIMITS_H
#define HARPE_PLAN_POWER_LIMITS_H

#include "base/array.h"
#include "plan/evaluate.h"

/* The most harmonics that are examined. It is reached if an iteration takes 1000 s. */
#define HARPE_HARMONICS_MAX 20000
/* Moments that differ by less than this share of the iteration are the same moment. */
#define HARPE_POWER_SLACK 1e-11
/* A swing below this share of the peak is a rounding error. */
#define HARPE_SWING_ROUNDING 1e-9

/* A change of the power at a moment of the iteration. */
typedef struct harpe_power_step {
    double time_s;
    double change_w;
} harpe_power_step;

typedef struct harpe_power_steps {
    harpe_power_step *items; /* earliest first */
    size_t count;
    double (*turn)[2]; /* scratch of power_steps_harmonics */
    double waiting_w;  /* power if all ranks wait */
    double iteration_s;
} harpe_power_steps;

/* A time in which the power is above a limit. */
typedef struct harpe_hot_time {
    double from_s, until_s;
    double excess_w;           /* above the limit */
    double before_s, before_j; /* all earlier hot times, and their energy above the limit */
} harpe_hot_time;

/* A component of the power: swing_w / 2 * cos(2 pi frequency_hz t - phase). */
typedef struct harpe_harmonic {
    double frequency_hz, swing_w, phase;
} harpe_harmonic;

/* Receives a component stronger than `least_w`. Returns the swing that others must exceed. */
typedef double harpe_harmonic_visit(void *user, const harpe_harmonic *found, double least_w);

typedef struct harpe_power_limits {
    double peak_w;      /* INFINITY: none */
    double swing_w;     /* INFINITY: none */
    double swing_share; /* of the plan's mean power; INFINITY: none */
} harpe_power_limits;

/* A move that delays a part of the problem: the delay `node` is before all instructions from
 * `first` to `end`. */
typedef struct harpe_power_shift {
    int32_t node, first, end;
} harpe_power_shift;

/* The working memory of repairs of one problem, and the present plan. */
typedef struct harpe_power_repair {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_clock_switch *cost; /* of changes of clock */
    harpe_power_limits limits;
    const harpe_power_shift *shifts; /* NULL: nothing can be delayed */
    size_t shift_count;
    double deadline_s;
    /* The present plan. */
    const harpe_profile_point **points; /* [instruction] */
    harpe_plan plan;                    /* energy_j with that of the changes */
    harpe_power_shape shape;
    double excess_j; /* above the limits; 0 if they are kept */
    /* The smallest numbers of all plans that were tried and are in time. */
    harpe_power_shape least;
    /* Scratch. */
    const harpe_profile_point **before;
    double *start_s, *latest_s; /* latest start of each instruction that meets the deadline */
    int *frequency_mhz;
    double *dwell_s, *needed_s; /* [rank] */
    bool has_cost;
    harpe_power_steps steps;
    harpe_hot_time *hot;
    size_t hot_count;
    harpe_harmonic *strong; /* above the limit */
    size_t strong_count;
    double swing_limit_w;             /* of the present plan */
    double step_peak_w, step_swing_w; /* limits of the present step, if they are above the others */
    struct harpe_power_move *moves;
    size_t move_count, move_capacity;
    size_t tried;
} harpe_power_repair;

harpe_status harpe_power_repair_init(harpe_power_repair *repair, const harpe_problem *problem,
                                     const harpe_clock_switch *cost,
                                     const harpe_power_limits *limits, harpe_error *error);
void harpe_power_repair_clear(harpe_power_repair *repair);

/* Makes clocks the present plan. It may take longer than the deadline. */
harpe_status harpe_power_repair_begin(harpe_power_repair *repair, const int *frequency_mhz,
                                      double deadline_s, harpe_error *error);

/* Computes the numbers of the present plan from its points. */
void harpe_power_repair_evaluate(harpe_power_repair *repair);

/* Returns whether the present plan is in time and keeps the limits. */
bool harpe_power_repair_obeys(const harpe_power_repair *repair);

/* Changes the present plan, which is in time, until it keeps the limits or no move helps, and then
 * until no move saves energy within the limits. Each clock holds for as long as `cost` demands, or
 * as long as it did. Returns whether the plan keeps the limits. The work is limited. */
harpe_status harpe_power_repair_run(harpe_power_repair *repair, bool *obeys, harpe_error *error);

/* Writes the clocks of the present plan. */
void harpe_power_repair_frequencies(const harpe_power_repair *repair, int *frequency_mhz);

/* Fails with HARPE_INVALID_ARGUMENT if a limit is below 0 or no number. */
harpe_status harpe_power_limits_check(double peak_w, double swing_w, double swing_share,
                                      harpe_error *error);

/* Returns limits with INFINITY in place of 0, and whether there is any. */
harpe_power_limits harpe_power_limits_of(double peak_w, double swing_w, double swing_share);
bool harpe_power_limits_any(const harpe_power_limits *limits);

/* Returns whether a request has limits. */
bool harpe_power_limits_are_wanted(const harpe_plan_request *request);

/* Writes to `error` that no plans within a time (0: any) were found. */
harpe_status harpe_power_limits_fail(const harpe_power_repair *repair, double time_s,
                                     harpe_error *error);

/* Receives the part of the work that is done, 0 to 1, and returns false to stop. NULL: none. */
typedef struct harpe_power_reporter {
    bool (*report)(void *user, double done);
    void *user;
} harpe_power_reporter;

/* Replaces the plans of a set that break the limits by plans that keep them and take no longer. If
 * the slowest plan breaks them, makes slower plans too. The set contains no dominated plans,
 * fastest first; the result may, in any order. Returns at once if all plans keep the limits. Fails
 * with HARPE_INFEASIBLE if no plan is left, or none for one of the times that were asked for. */
harpe_status harpe_power_limits_keep(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     const harpe_power_reporter *reporter, harpe_plan_set *set,
                                     harpe_error *error);

#endif
