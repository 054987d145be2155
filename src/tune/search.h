/* SPDX-License-Identifier: Apache-2.0 */
/* Where a search looks next: from the trials so far to the setting that is worth a trial. It knows
 * nothing of slices and time. */
#ifndef HARPE_TUNE_SEARCH_H
#define HARPE_TUNE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/tune.h>

/* ---- Settings -------------------------------------------------------------------------------- */

typedef enum harpe_tune_knob {
    HARPE_TUNE_CLOCK,
    HARPE_TUNE_LIMIT,
    HARPE_TUNE_KNOBS
} harpe_tune_knob;

/* The values that a knob may have, highest first: MHz of the graphics clock, W of the power limit.
 */
typedef struct harpe_tune_range {
    const int *values; /* falling, above 0; copied */
    size_t count;      /* 0 or 1: the knob stays as it is */
} harpe_tune_range;

typedef struct harpe_tune_setting {
    int value[HARPE_TUNE_KNOBS]; /* 0: as the GPUs were found (nothing set) */
} harpe_tune_setting;

/* A finished choice, kept for a later run of the same program (`--save`). Ratios are those to the
 * highest setting. Initialise with zeros: nothing was saved. */
typedef struct harpe_tune_saved {
    harpe_tune_setting setting;
    double time_ratio, energy_ratio; /* 0: nothing was saved */
} harpe_tune_saved;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_chooser_options {
    harpe_tune_range range[HARPE_TUNE_KNOBS];
    int gpu_count;       /* 0: 1 */
    double max_slowdown; /* share of time, such as 0.02, above 0; INFINITY: any */
    harpe_tuning_aim aim;
    double eta;             /* HARPE_TUNING_COST: 0 (time) .. 1 (energy) */
    double highest_w;       /* HARPE_TUNING_COST: the highest power limit, of all GPUs together */
    harpe_tune_saved saved; /* checked first, in place of a search */
} harpe_chooser_options;

/* ---- Trials ---------------------------------------------------------------------------------- */

/* A trial of one setting: the ratios of time and energy between its slices and the slices at the
 * highest setting beside them, and what follows from them. */

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

/* ---- Search ---------------------------------------------------------------------------------- */

enum { SEARCH_TRIALS_MAX = 8 }; /* with two knobs; 5 of them for the first one */

/* What the search of one phase of the program has found. */
typedef struct harpe_search {
    harpe_trial trials[SEARCH_TRIALS_MAX];
    size_t trial_count;
    int best;         /* the chosen trial; -1: the highest setting */
    double highest_w; /* power of one GPU at the highest setting */
} harpe_search;

/* Chooses the best of the accepted trials, if it is certainly better than the highest setting. */
void harpe_search_choose(const harpe_chooser_options *options, harpe_search *search);
/* Returns a bound of the time at a setting against the highest one: time grows at most as the clock
 * falls, and a lower setting is not faster than a higher one. */
double harpe_search_worst_ratio(const harpe_chooser_options *options, const harpe_search *search,
                                const harpe_tune_setting *setting);
/* Writes the next setting and the knob that it changes. Settings whose time may be more than
 * `worst_allowed` against the highest one are left out. Returns false if no more trial is worth its
 * time. */
bool harpe_search_next(const harpe_chooser_options *options, const harpe_search *search,
                       double worst_allowed, harpe_tune_setting *setting, harpe_tune_knob *knob);

#endif
