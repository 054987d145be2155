/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the values of a knob with few trials. Time follows max(floor, a / clock + b): it is flat
 * as long as something else limits the program or the GPU throttles, and then rises in 1 / clock.
 * The law only says where to look; a setting is chosen only after it was measured itself. */
#include "tune/search.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- Trials ---------------------------------------------------------------------------------- */

/* Estimates ratios from pairs of slices. Neighbouring pairs share a slice at the highest setting,
 * so their differences hide a part of the noise of their mean; the estimate corrects that. */

/* The expected noise counts as this many measured differences. */
static const double noise_freedom = 4;
/* Values farther from the median than so many standard deviations, estimated from the median
 * distance, are outliers. */
static const double outlier_distance = 5;
/* With independent noise, the mean of n ratios of a slice to the mean of its two neighbours, which
 * it shares with the next ratios, has the variance 2 / n of a slice; a single ratio has 3 / 2. */
static const double shared_neighbours = 4.0 / 3;

/* Returns the quantile of Student's distribution from that of the normal distribution (Abramowitz
 * and Stegun 26.7.5). */
static double student(double z, double freedom) {
    double z2 = z * z;
    double first = z * (z2 + 1) / 4;
    double second = z * ((5 * z2 + 16) * z2 + 3) / 96;
    double third = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
    return z + (first + (second + third / freedom) / freedom) / freedom;
}

/* Writes to `is_kept` which values are no outliers. Of few values, all are kept. */
static void leave_outliers(const double *values, const double *weights, size_t count,
                           bool *is_kept) {
    double sorted[TRIAL_PAIRS_MAX];
    memcpy(sorted, values, count * sizeof *values);
    double median = harpe_median(sorted, count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = fabs(values[i] - median) * sqrt(weights[i]);
    double allowed = outlier_distance * 1.4826 * harpe_median(sorted, count) + 1e-4;
    for (size_t i = 0; i < count; i++)
        is_kept[i] = count < 5 || fabs(values[i] - median) * sqrt(weights[i]) <= allowed;
}

static harpe_ratio ratio_of(const double *values, const double *weights, const bool *is_kept,
                            size_t count, double noise) {
    double sum = 0, weight = 0, squares = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_kept[i]) continue;
        sum += weights[i] * values[i];
        weight += weights[i];
        kept++;
    }
    double mean = sum / weight;
    for (size_t i = 0; i < count; i++)
        if (is_kept[i]) squares += weights[i] * (values[i] - mean) * (values[i] - mean);
    double freedom = noise_freedom + kept - 1;
    double variance = (noise_freedom * noise * noise + squares) / freedom;
    double deviation = sqrt(shared_neighbours * variance / weight);
    return (harpe_ratio){
        .mean = mean,
        .error = student(1.96, freedom) * deviation,
        .bound = student(3.09, freedom) * deviation,
    };
}

void harpe_trial_add(harpe_trial *trial, const harpe_pair *pair, const double noise[2],
                     size_t window) {
    if (trial->pairs >= window) {
        size_t kept = window - 1;
        size_t first = trial->pairs - kept;
        memmove(trial->times, trial->times + first, kept * sizeof *trial->times);
        memmove(trial->energies, trial->energies + first, kept * sizeof *trial->energies);
        memmove(trial->weights, trial->weights + first, kept * sizeof *trial->weights);
        trial->pairs = kept;
    }
    trial->times[trial->pairs] = pair->time;
    trial->energies[trial->pairs] = pair->energy;
    trial->weights[trial->pairs++] = pair->weight;
    /* What a counter of energy shows too late is in the next slice, so that its errors cancel; none
     * of them is an outlier by itself. */
    bool is_kept[TRIAL_PAIRS_MAX];
    leave_outliers(trial->times, trial->weights, trial->pairs, is_kept);
    trial->time = ratio_of(trial->times, trial->weights, is_kept, trial->pairs, noise[0]);
    trial->energy = ratio_of(trial->energies, trial->weights, is_kept, trial->pairs, noise[1]);
}

/* ---- Search ---------------------------------------------------------------------------------- */

enum { FIRST_KNOB_TRIALS = 5 };

/* The first trial is at this share of the highest clock. There, the time of a compute-bound program
 * shows its law well, and most of what a program can save that does not get slower is saved. */
static const double first_share = 0.62;
/* As long as nothing is too slow, each trial is at this share of the one before. */
static const double next_share = 0.68;
/* The same for power limits, of the power that is drawn. */
static const double first_limit_share = 0.8, next_limit_share = 0.85;
/* A trial is aimed at this share of the allowed slowdown, because a setting that is nearer to the
 * limit than the noise cannot be accepted. */
static const double aimed_share = 0.6;
/* A trial that promises less is not made. */
static const double least_gain = 0.005;
/* The energy falls at least and at most by these shares of a clock's fall, as the search assumes.
 */
static const double least_slope = 0.6, most_slope = 1.5;

/* The trials of one knob as positions in its range: 0 is the highest value. */
typedef struct bracket {
    size_t good; /* the best one; 0 without a trial is the setting that the search of the knob
                    starts from */
    size_t next; /* the nearest below that was tried; the number of values if there is none */
    const harpe_trial *good_trial, *next_trial; /* NULL: none */
    const harpe_trial *beyond;                  /* the nearest below `next` that was too slow */
} bracket;

/* Returns the aim's value of a trial, as a logarithm against the highest setting; less is better.
 */
static double value_of(const harpe_chooser_options *options, const harpe_search *search,
                       const harpe_trial *trial) {
    if (options->aim == HARPE_TUNING_TIME) return trial->time.mean;
    if (options->aim == HARPE_TUNING_ENERGY) return trial->energy.mean;
    int gpus = options->gpu_count > 0 ? options->gpu_count : 1;
    double second_j = (1 - options->eta) * options->highest_w;
    double watts = options->eta * search->highest_w * gpus;
    return log((watts * exp(trial->energy.mean) + second_j * exp(trial->time.mean)) /
               (watts + second_j));
}

static double value_error(const harpe_chooser_options *options, const harpe_trial *trial) {
    if (options->aim == HARPE_TUNING_ENERGY) return trial->energy.error;
    if (options->aim == HARPE_TUNING_TIME) return trial->time.error;
    return fmax(trial->energy.error, trial->time.error);
}

void harpe_search_choose(const harpe_chooser_options *options, harpe_search *search) {
    double best = 0;
    search->best = -1;
    for (size_t i = 0; i < search->trial_count; i++) {
        const harpe_trial *trial = &search->trials[i];
        if (trial->verdict != HARPE_TRIAL_ACCEPTED) continue;
        double value = value_of(options, search, trial);
        if (value < best && value + value_error(options, trial) < 0) {
            best = value;
            search->best = (int)i;
        }
    }
}

static bool is_not_above(const harpe_tune_setting *low, const harpe_tune_setting *high) {
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++)
        if (low->value[k] > high->value[k]) return false;
    return true;
}

/* Returns how much longer a program may take at most at `low` than at `high`. Below the power that
 * it draws, the clock falls faster than the limit, because a part of the power is fixed. */
static double worst_step(const harpe_search *search, const harpe_tune_setting *high,
                         const harpe_tune_setting *low) {
    double step = 1;
    if (low->value[HARPE_TUNE_CLOCK] > 0)
        step *= (double)high->value[HARPE_TUNE_CLOCK] / low->value[HARPE_TUNE_CLOCK];
    if (low->value[HARPE_TUNE_LIMIT] > 0) {
        double drawn_w = fmin(high->value[HARPE_TUNE_LIMIT], search->highest_w * 1.05);
        double fixed_w = 0.3 * drawn_w;
        double limit_w = low->value[HARPE_TUNE_LIMIT];
        if (limit_w < drawn_w) step *= (drawn_w - fixed_w) / fmax(limit_w - fixed_w, 1);
    }
    return step;
}

double harpe_search_worst_ratio(const harpe_chooser_options *options, const harpe_search *search,
                                const harpe_tune_setting *setting) {
    harpe_tune_setting highest = {{0}};
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++)
        if (options->range[k].count > 1) highest.value[k] = options->range[k].values[0];
    double worst = worst_step(search, &highest, setting);
    for (size_t i = 0; i < search->trial_count; i++) {
        const harpe_trial *trial = &search->trials[i];
        if (trial->pairs < 2) continue;
        double bound = exp(trial->time.mean + trial->time.bound);
        if (is_not_above(setting, &trial->setting))
            worst = fmin(worst, fmax(1, bound) * worst_step(search, &trial->setting, setting));
        else if (is_not_above(&trial->setting, setting))
            worst = fmin(worst, fmax(1, bound));
    }
    return worst;
}

static size_t position_of(const harpe_tune_range *range, int value) {
    size_t i = 0;
    while (i + 1 < range->count && range->values[i] > value)
        i++;
    return i;
}

static bool is_slow(const harpe_trial *trial) {
    return trial->verdict == HARPE_TRIAL_TOO_SLOW || trial->verdict == HARPE_TRIAL_UNDECIDED;
}

static bracket bracket_of(const harpe_chooser_options *options, const harpe_search *search,
                          harpe_tune_knob knob) {
    const harpe_tune_range *range = &options->range[knob];
    bracket found = {.next = range->count};
    double best = 0, best_error = 0;
    for (size_t i = 0; i < search->trial_count; i++) {
        const harpe_trial *trial = &search->trials[i];
        if (trial->verdict != HARPE_TRIAL_ACCEPTED) continue;
        size_t position = position_of(range, trial->setting.value[knob]);
        double value = value_of(options, search, trial);
        double error = value_error(options, trial);
        /* If two settings are equally good, the search goes on below the lower one. A setting that
         * takes no longer is worse only if it loses at least what a trial must promise. */
        double good_time = found.good_trial ? found.good_trial->time.mean : 0;
        bool is_free = trial->time.mean - trial->time.error <= good_time;
        double doubt = fmax(fmax(error, best_error), is_free ? least_gain : 0);
        if (value - best > (position > found.good ? doubt : 0)) continue;
        best = value;
        best_error = error;
        found.good_trial = trial;
        found.good = position;
    }
    for (size_t i = 0; i < search->trial_count; i++) {
        const harpe_trial *trial = &search->trials[i];
        size_t position = position_of(range, trial->setting.value[knob]);
        if (trial->knob != knob || position <= found.good || position >= found.next) continue;
        found.next = position;
        found.next_trial = trial;
    }
    size_t beyond = range->count;
    for (size_t i = 0; i < search->trial_count; i++) {
        const harpe_trial *trial = &search->trials[i];
        size_t position = position_of(range, trial->setting.value[knob]);
        if (trial->knob != knob || !is_slow(trial) || position <= found.next) continue;
        if (position >= beyond) continue;
        beyond = position;
        found.beyond = trial;
    }
    return found;
}

/* Returns the value at which the law reaches the slowdown that is aimed at, between a value that is
 * fast enough and one that is too slow. */
static double law_value(const harpe_chooser_options *options, const harpe_tune_range *range,
                        const bracket *at) {
    double allowed = 1 + aimed_share * options->max_slowdown;
    double good = 1.0 / range->values[at->good], slow = 1.0 / range->values[at->next];
    double slow_time = exp(at->next_trial->time.mean);
    double good_time = at->good_trial ? fmin(exp(at->good_trial->time.mean), 1) : 1;
    /* The time may rise from `good` on, or only from where all of it is computing. */
    double least = good + (allowed - good_time) / (slow_time - good_time) * (slow - good);
    double most = slow * allowed / slow_time;
    double inverse = (least + most) / 2;
    if (at->beyond) {
        double beyond_time = exp(at->beyond->time.mean);
        double beyond = 1.0 / at->beyond->setting.value[at->beyond->knob];
        if (beyond_time > slow_time) {
            double slope = (beyond_time - slow_time) / (beyond - slow);
            inverse = fmax(least, fmin(most, slow - (slow_time - allowed) / slope));
        }
    }
    return 1 / inverse;
}

/* Returns the value that is worth a trial, not yet rounded to a value of the range. */
static double promising_value(const harpe_chooser_options *options, const harpe_search *search,
                              harpe_tune_knob knob, const bracket *at) {
    const harpe_tune_range *range = &options->range[knob];
    double good = range->values[at->good];
    if (at->next_trial && is_slow(at->next_trial) &&
        at->next_trial->time.mean > log1p(aimed_share * options->max_slowdown))
        return law_value(options, range, at);
    if (at->next_trial) return sqrt(good * range->values[at->next]);
    bool is_first = at->good == 0;
    if (knob == HARPE_TUNE_CLOCK) return good * (is_first ? first_share : next_share);
    double drawn_w = search->highest_w;
    if (at->good_trial) drawn_w *= exp(at->good_trial->energy.mean - at->good_trial->time.mean);
    return fmin(good, drawn_w) * (is_first ? first_limit_share : next_limit_share);
}

/* Returns how much a lower value may save: the energy falls as it fell on the way so far. */
static double promised_gain(const harpe_chooser_options *options, const harpe_search *search,
                            const harpe_tune_range *range, const bracket *at, size_t position) {
    double way = log((double)range->values[at->good] / range->values[position]);
    double slope = 1; /* of the logarithms of energy and value */
    if (at->good_trial && at->good > 0) {
        double fallen = -value_of(options, search, at->good_trial);
        slope = fallen / log((double)range->values[0] / range->values[at->good]);
    }
    return fmax(least_slope, fmin(most_slope, slope)) * way;
}

static bool next_of_knob(const harpe_chooser_options *options, const harpe_search *search,
                         harpe_tune_knob knob, double worst_allowed, harpe_tune_setting *setting) {
    const harpe_tune_range *range = &options->range[knob];
    bracket at = bracket_of(options, search, knob);
    if (at.next <= at.good + 1) return false;
    double value = promising_value(options, search, knob, &at);
    size_t position = at.good + 1;
    while (position + 1 < at.next && range->values[position + 1] >= value * 0.9999)
        position++;
    /* The nearest value is tried, not the next higher one, if the range is coarse. */
    if (position + 1 < at.next && !at.next_trial &&
        range->values[position] - value > value - range->values[position + 1])
        position++;
    for (; position > at.good; position--) {
        setting->value[knob] = range->values[position];
        if (harpe_search_worst_ratio(options, search, setting) <= worst_allowed) break;
    }
    return position > at.good && promised_gain(options, search, range, &at, position) >= least_gain;
}

bool harpe_search_next(const harpe_chooser_options *options, const harpe_search *search,
                       double worst_allowed, harpe_tune_setting *setting, harpe_tune_knob *knob) {
    harpe_tune_setting start = {{0}};
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++)
        if (options->range[k].count > 1) start.value[k] = options->range[k].values[0];
    for (size_t i = 0; i < search->trial_count; i++)
        if (search->trials[i].verdict == HARPE_TRIAL_ACCEPTED && search->best >= 0)
            start = search->trials[search->best].setting;
    size_t tried[HARPE_TUNE_KNOBS] = {0};
    for (size_t i = 0; i < search->trial_count; i++)
        tried[search->trials[i].knob]++;
    bool has_clock = options->range[HARPE_TUNE_CLOCK].count > 1;
    size_t most[HARPE_TUNE_KNOBS] = {
        FIRST_KNOB_TRIALS, has_clock ? SEARCH_TRIALS_MAX - FIRST_KNOB_TRIALS : FIRST_KNOB_TRIALS};
    for (harpe_tune_knob k = HARPE_TUNE_CLOCK; k < HARPE_TUNE_KNOBS; k++) {
        if (options->range[k].count < 2 || tried[k] >= most[k]) continue;
        if (k == HARPE_TUNE_CLOCK && tried[HARPE_TUNE_LIMIT] > 0) continue;
        *setting = start;
        if (!next_of_knob(options, search, k, worst_allowed, setting)) continue;
        *knob = k;
        return true;
    }
    return false;
}
