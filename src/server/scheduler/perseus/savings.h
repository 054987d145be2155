/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the sums from which savings are computed: a baseline that was measured at the highest
 * clocks, the differences between other rounds and the baseline, and the uncertainty of both.
 * docs/online.md has the formulas. The structures contain plain numbers and can be copied. This
 * code does not depend on plans or instructions. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_SAVINGS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_SAVINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The variance of a median, divided by that of a mean, is at most pi / 2. */
#define HARPE_MEDIAN_VARIANCE 1.5707963267948966
/* A deviation that is estimated from a median absolute deviation has fewer degrees of freedom than
 * a standard deviation of the same values. This is the ratio. */
#define HARPE_ROBUST_EFFICIENCY 0.37

/* Times are in s and energies in J, of all ranks together. */
enum { HARPE_TIME = 0, HARPE_ENERGY = 1, HARPE_QUANTITIES = 2 };

/* The measured values of one round. */
typedef struct harpe_savings_round {
    int64_t number, wall_s; /* wall_s: the time of its end, in s since 1970 */
    double iterations;
    double value[HARPE_QUANTITIES];   /* of a typical iteration; 0: not reported */
    double total[HARPE_QUANTITIES];   /* of all its iterations */
    double spread[HARPE_QUANTITIES];  /* standard deviation of one iteration */
    double freedom[HARPE_QUANTITIES]; /* of the spread: iterations - 1; 0: not known */
} harpe_savings_round;

/* The mean over rounds. The weight of a round is its number of iterations. */
typedef struct harpe_savings_mean {
    double rounds, iterations;
    double mean;
    double squares; /* sum of iterations * (round's value - mean)^2 */
} harpe_savings_mean;

/* Rounds in which every instruction ran at its highest clock. */
typedef struct harpe_baseline {
    harpe_savings_mean mean[HARPE_QUANTITIES];
    int64_t first_round, last_round;   /* valid if there is a round */
    int64_t first_wall_s, last_wall_s; /* the times at which these rounds ended */
} harpe_baseline;

/* The relative noise of iterations within a round, pooled over all rounds in which it can be
 * measured. */
typedef struct harpe_savings_noise {
    double squares, freedom;
} harpe_savings_noise;

/* Sums over the iterations of all rounds that are compared with the baseline. */
typedef struct harpe_savings_sum {
    double iterations;
    double measured;   /* sum of the measured values */
    double squares;    /* sum of iterations * value^2 */
    double systematic; /* systematic uncertainty: half-width of changes without a known cause */
} harpe_savings_sum;

/* The sums of rounds that were compared with earlier baselines. */
typedef struct harpe_savings_closed {
    double saved, baseline;
    double squares; /* of the half-widths at 95 % */
    double systematic;
} harpe_savings_closed;

typedef struct harpe_savings {
    int64_t iterations; /* of the baseline, and of the rounds compared with it */
    double used[HARPE_QUANTITIES];
    harpe_baseline baseline;
    harpe_savings_noise noise[HARPE_QUANTITIES];
    harpe_savings_sum sum[HARPE_QUANTITIES];     /* rounds with lower clocks */
    harpe_savings_sum waiting[HARPE_QUANTITIES]; /* those that wait for a new baseline */
    bool is_waiting;                             /* the job has changed since the baseline */
    harpe_savings_closed closed[HARPE_QUANTITIES];
    /* Values of the previous round with lower clocks. Rounds with one iteration are compared with
     * it. */
    int64_t last_number;
    double last_value[HARPE_QUANTITIES];
} harpe_savings;

/* A value with the half-width of its 95 % confidence interval; INFINITY: not known. */
typedef struct harpe_estimate {
    double value, uncertainty;
} harpe_estimate;

/* Returns true if the first round at the highest clocks was a warm-up: its value `before` is much
 * larger than `value` of the second one. */
bool harpe_savings_is_warm_up(double before, double value);
/* Returns true if the baseline has only one round, and this round was a warm-up compared with
 * `round`. */
bool harpe_savings_had_warm_up(const harpe_savings *savings, const harpe_savings_round *round);
/* Adds a round at the highest clocks to the baseline. */
void harpe_savings_add_baseline(harpe_savings *savings, const harpe_savings_round *round);
/* Adds a round that is compared with the baseline. `systematic` has the uncertainty of the baseline
 * in this round, for each quantity; the uncertainty does not include noise. */
void harpe_savings_add(harpe_savings *savings, const harpe_savings_round *round,
                       const double *systematic);
void harpe_savings_sum_add(harpe_savings_sum *to, const harpe_savings_sum *from);
/* Counts the time and energy of a round that is not compared with the baseline. */
void harpe_savings_use(harpe_savings *savings, const harpe_savings_round *round);
/* Ends the baseline, because the job has changed. The next round at the highest clocks begins a new
 * baseline. Rounds that are added before it wait for this baseline: they have no savings yet, and
 * are then compared with it. */
void harpe_savings_expect_baseline(harpe_savings *savings);

bool harpe_savings_has_baseline(const harpe_savings *savings, int quantity);
/* Returns the relative standard deviation of one iteration, or INFINITY if it is not known. */
double harpe_savings_noise_of(const harpe_savings *savings, int quantity);
/* Returns the value of an iteration at the highest clocks. */
harpe_estimate harpe_savings_baseline(const harpe_savings *savings, int quantity);
/* Returns the difference between the baseline and the measured values, for one sum. */
harpe_estimate harpe_savings_of_sum(const harpe_savings *savings, const harpe_savings_sum *sum,
                                    int quantity);
/* Returns the difference between the baseline and the measured values, for all sums together. Sets
 * `*baseline` to the value of all these iterations at the highest clocks. */
harpe_estimate harpe_savings_total(const harpe_savings *savings, int quantity, double *baseline);
/* Returns true if the interval does not contain 0. */
bool harpe_estimate_is_significant(harpe_estimate estimate);

/* These functions save and load the sums for a restart of the server. `save` returns NULL if there
 * is no memory. `load` returns false if the JSON is not valid. */
json_t *harpe_savings_save(const harpe_savings *savings);
bool harpe_savings_load(harpe_savings *savings, const json_t *json);

/* Estimates the standard deviation of the distribution of `values` from their median absolute
 * deviation, so that one stall has no effect. Overwrites `values`. Returns 0 for fewer than two
 * values. */
double harpe_robust_spread(double *values, size_t count);
/* Returns the two-sided 95 % quantile of Student's distribution. */
double harpe_student_quantile(double freedom);

#endif
