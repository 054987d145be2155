/* SPDX-License-Identifier: Apache-2.0 */
/* A trial of one setting: the ratios of time and energy between its slices and the slices at the
 * highest setting beside them, and what follows from them. */
#ifndef HARPE_TUNE_TRIAL_H
#define HARPE_TUNE_TRIAL_H

#include "tune/setting.h"

enum { TRIAL_PAIRS_MAX = 256 };

typedef enum harpe_trial_verdict {
    HARPE_TRIAL_OPEN,
    HARPE_TRIAL_ACCEPTED, /* its slowdown is certainly allowed, and its energy is known */
    HARPE_TRIAL_TOO_SLOW,
    HARPE_TRIAL_UNDECIDED, /* given up: the noise hides whether it is too slow */
} harpe_trial_verdict;

/* A mean of logarithms of ratios. */
typedef struct harpe_ratio {
    double mean;
    double error; /* half of its 95 % interval */
    double bound; /* half of the interval that it leaves in 1 of 1,000 cases at each side */
} harpe_ratio;

/* A slice at the setting and its neighbours at the highest one. */
typedef struct harpe_pair {
    double time, energy; /* logarithms of ratios */
    double weight;       /* seconds of the shorter side */
} harpe_pair;

typedef struct harpe_trial {
    harpe_tune_setting setting;
    harpe_tune_knob knob; /* the one whose range is searched */
    harpe_trial_verdict verdict;
    double times[TRIAL_PAIRS_MAX], energies[TRIAL_PAIRS_MAX], weights[TRIAL_PAIRS_MAX];
    size_t pairs;
    harpe_ratio time, energy;
} harpe_trial;

/* Adds a pair and estimates the means again, without pairs whose time is an outlier. `noise` has
 * the standard deviations that are expected of time and energy at weight 1, from earlier
 * measurements. Of more than `window` pairs, the oldest are forgotten. */
void harpe_trial_add(harpe_trial *trial, const harpe_pair *pair, const double noise[2],
                     size_t window);

#endif
