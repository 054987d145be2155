/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates ratios from pairs of slices. Neighbouring pairs share a slice at the highest setting,
 * so their differences hide a part of the noise of their mean; the estimate corrects that. */
#include "tune/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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

static double median_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, harpe_compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Writes to `is_kept` which values are no outliers. Of few values, all are kept. */
static void leave_outliers(const double *values, const double *weights, size_t count,
                           bool *is_kept) {
    double sorted[TRIAL_PAIRS_MAX];
    memcpy(sorted, values, count * sizeof *values);
    double median = median_of(sorted, count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = fabs(values[i] - median) * sqrt(weights[i]);
    double allowed = outlier_distance * 1.4826 * median_of(sorted, count) + 1e-4;
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
