/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about time and power of one (stage, instruction) over the clock. A curve keeps
 * weighted means of observations, and computes an estimate of every clock with bounds of its time.
 * Two rules of physics help: at a lower clock an instruction never takes less time, and its time
 * grows at most by the ratio of the clocks. Real GPUs break these rules a little. So an observed
 * time counts more than the rules. A curve does not depend on plans or schedules. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_CLOCK_CURVE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_CLOCK_CURVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The observations at one clock. */
typedef struct harpe_clock_point {
    double weight;           /* number of runs; 0: not observed */
    double time_s, energy_j; /* means of one run */
} harpe_clock_point;

typedef struct harpe_clock_curve {
    const int *mhz; /* the highest clock first; owned by the caller */
    size_t count;
    harpe_clock_point *points; /* one per clock */
} harpe_clock_curve;

/* A part of the time of a run, and the clock in this part. The shares of a run add up to 1. */
typedef struct harpe_clock_share {
    size_t clock; /* index */
    double share;
} harpe_clock_share;

/* A clock that was not observed is expected to take at most this share longer than the rules
 * permit. In measured profiles it is 1 %; steps of clocks that a GPU cannot run make it more. */
#define HARPE_CLOCK_BREAK_SHARE 0.1

/* The estimate of one clock, for one run. */
typedef struct harpe_clock_estimate {
    double time_s, energy_j;
    /* Bounds of the time. Without noise the true time of an observed clock is within them, and that
     * of another clock as well if it keeps the rules. */
    double lower_s, upper_s;
    double error; /* relative standard error of an observed time; INFINITY: not observed */
} harpe_clock_estimate;

/* Makes an empty curve. Returns false if memory runs out. Free with harpe_clock_curve_free. */
bool harpe_clock_curve_init(harpe_clock_curve *curve, const int *mhz, size_t count);
void harpe_clock_curve_free(harpe_clock_curve *curve);
/* Returns the index of a clock, or curve->count if the curve does not have it. */
size_t harpe_clock_curve_find(const harpe_clock_curve *curve, int mhz);
/* Forgets all observations. */
void harpe_clock_curve_forget(harpe_clock_curve *curve);

/* Adds the observed mean time and energy of runs at the clocks of `shares`. If a run had several
 * clocks, the observation belongs to the clock with the largest share, and the parts at other
 * clocks are removed with their estimates. Such an observation has less weight, and none if no
 * share is at least half. `noise` is the relative standard deviation of a run's time. */
void harpe_clock_curve_observe(harpe_clock_curve *curve, const harpe_clock_share *shares,
                               size_t share_count, double time_s, double energy_j, double weight,
                               double noise);

/* Estimates all clocks. `out` has curve->count elements. `waiting_w` is the power of the same GPUs
 * while they wait: the power falls to it at low clocks. Returns false if the highest clock was not
 * observed. O(count). */
bool harpe_clock_curve_estimate(const harpe_clock_curve *curve, double noise, double waiting_w,
                                harpe_clock_estimate *out);

/* How far observed clocks are from what their neighbours let expect of them: sums of the squares of
 * the relative differences, less what noise explains, over `count` clocks. */
typedef struct harpe_clock_misfit {
    double time, energy;
    size_t count;
} harpe_clock_misfit;

/* Compares each observed clock between two others with the curve through these, and adds the
 * results to `*sum`. */
void harpe_clock_curve_add_misfit(const harpe_clock_curve *curve, double noise,
                                  harpe_clock_misfit *sum);

/* These functions save and load the observations. `save` returns NULL if memory runs out. `load`
 * returns false if `save` did not write the JSON for the same clocks; the curve may then have some
 * of the observations. */
json_t *harpe_clock_curve_save(const harpe_clock_curve *curve);
bool harpe_clock_curve_load(harpe_clock_curve *curve, const json_t *saved);

#endif
