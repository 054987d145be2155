/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a plan so that its power keeps limits. Private to src/plan. */
#ifndef HARPE_PLAN_POWER_REPAIR_H
#define HARPE_PLAN_POWER_REPAIR_H

#include "base/array.h"
#include "plan/power_shape.h"

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

#endif
