/* SPDX-License-Identifier: Apache-2.0 */
/* Where a search looks next: from the trials so far to the setting that is worth a trial. It knows
 * nothing of slices and time. */
#ifndef HARPE_TUNE_SEARCH_H
#define HARPE_TUNE_SEARCH_H

#include "tune/trial.h"

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
