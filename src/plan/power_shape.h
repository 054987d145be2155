/* SPDX-License-Identifier: Apache-2.0 */
/* The power of a pipeline as a step function of time. harpe_plan_power_shape describes it, and
 * power_repair.c changes plans by it. Private to src/plan. */
#ifndef HARPE_PLAN_POWER_SHAPE_H
#define HARPE_PLAN_POWER_SHAPE_H

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
    double (*turn)[2]; /* scratch of harpe_power_steps_harmonics */
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

harpe_status harpe_power_steps_init(harpe_power_steps *steps, const harpe_problem *problem,
                                    harpe_error *error);
void harpe_power_steps_clear(harpe_power_steps *steps);

/* Lists the steps of a plan. */
void harpe_power_steps_list(harpe_power_steps *steps, const harpe_problem *problem,
                            const harpe_profile_point *const *points, const double *start_s,
                            double iteration_s);

/* Returns the highest power. If `hot` is not NULL, writes the times above `limit_w`, for which it
 * has room for as many as there are steps, and the energy above the limit in `*excess_j`. To be
 * called before harpe_power_steps_harmonics. */
double harpe_power_steps_peak_w(const harpe_power_steps *steps, double limit_w, harpe_hot_time *hot,
                                size_t *hot_count, double *excess_j);

/* Visits the components between 0.1 and 20 Hz that are stronger than `least_w`. Joins steps. */
void harpe_power_steps_harmonics(harpe_power_steps *steps, double least_w,
                                 harpe_harmonic_visit *visit, void *user);

#endif
