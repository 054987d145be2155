/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a period by autocorrelation. The samples come at uneven times, so they are first drawn on
 * an even grid. The first lag at which the power is like itself is the period; lags of many periods
 * then make it exact. */
#include "tune/tune_internal.h"

#include <math.h>

#define LEAST_CORRELATION 0.5 /* at the period, and at many of them */
#define AS_GOOD 0.85          /* a lag whose correlation is this part of the highest is as good */
#define LEAST_SAMPLES 6       /* of a period; a shorter one is not seen */
#define LEAST_DEVIATION 0.01  /* of the power, as a share; less is noise of the sensor */

/* An even grid of values with mean 0, and the sum of the squares. */
typedef struct grid {
    double value[HARPE_PERIOD_SAMPLES];
    size_t count;
    double step_s, square;
} grid;

void harpe_power_samples_add(harpe_power_samples *samples, double time_s, double power_w) {
    size_t at = samples->count++ % HARPE_PERIOD_SAMPLES;
    samples->time_s[at] = time_s;
    samples->power_w[at] = power_w;
}

/* ---- The grid -------------------------------------------------------------------------------- */

static double sample_time_s(const harpe_power_samples *samples, size_t i) {
    return samples->time_s[i % HARPE_PERIOD_SAMPLES];
}

/* Draws the samples on an even grid, by linear interpolation. */
static void draw(const harpe_power_samples *samples, grid *out) {
    size_t count = samples->count < HARPE_PERIOD_SAMPLES ? samples->count : HARPE_PERIOD_SAMPLES;
    size_t first = samples->count - count;
    out->count = 0;
    if (count < 4) return;
    double begin_s = sample_time_s(samples, first);
    out->step_s = (sample_time_s(samples, samples->count - 1) - begin_s) / (double)(count - 1);
    if (!(out->step_s > 0)) return;
    size_t i = first;
    for (size_t k = 0; k < count; k++) {
        double at_s = begin_s + (double)k * out->step_s;
        while (i + 2 < samples->count && sample_time_s(samples, i + 1) < at_s)
            i++;
        double width_s = sample_time_s(samples, i + 1) - sample_time_s(samples, i);
        double share = width_s > 0 ? (at_s - sample_time_s(samples, i)) / width_s : 0;
        double low_w = samples->power_w[i % HARPE_PERIOD_SAMPLES];
        double high_w = samples->power_w[(i + 1) % HARPE_PERIOD_SAMPLES];
        out->value[k] = low_w + fmin(fmax(share, 0), 1) * (high_w - low_w);
    }
    out->count = count;
}

/* Subtracts the mean. Returns false if what remains is too small to mean anything. */
static bool centre(grid *samples) {
    double sum = 0;
    for (size_t i = 0; i < samples->count; i++)
        sum += samples->value[i];
    double mean = sum / (double)samples->count;
    samples->square = 0;
    for (size_t i = 0; i < samples->count; i++) {
        samples->value[i] -= mean;
        samples->square += samples->value[i] * samples->value[i];
    }
    double deviation = sqrt(samples->square / (double)samples->count);
    return deviation > LEAST_DEVIATION * fabs(mean) && isfinite(deviation);
}

/* ---- Correlation ----------------------------------------------------------------------------- */

/* Returns the correlation of the grid with itself `lag` later. */
static double correlation(const grid *samples, size_t lag) {
    double sum = 0, before = 0, after = 0;
    for (size_t i = 0; i + lag < samples->count; i++) {
        double a = samples->value[i];
        double b = samples->value[i + lag];
        sum += a * b;
        before += a * a;
        after += b * b;
    }
    return before > 0 && after > 0 ? sum / sqrt(before * after) : 0;
}

/* Returns the place of the highest correlation near `lag`, between the steps of the grid; 0 if
 * there is no such place or it is too low. */
static double peak_near(const grid *samples, double lag, double reach) {
    size_t low = (size_t)fmax(lag - reach, 1);
    size_t high = (size_t)(lag + reach) + 1;
    size_t best = 0;
    double best_value = LEAST_CORRELATION;
    for (size_t k = low; k <= high && k + 2 < samples->count; k++) {
        double value = correlation(samples, k);
        if (value <= best_value) continue;
        best_value = value;
        best = k;
    }
    if (best < 2) return 0;
    double left = correlation(samples, best - 1);
    double right = correlation(samples, best + 1);
    double bend = left - 2 * best_value + right;
    double shift = bend < 0 ? (left - right) / (2 * bend) : 0;
    return (double)best + fmin(fmax(shift, -1), 1);
}

/* Returns the first lag in [shortest, longest] that is a peak as good as the best one; 0: none. */
static size_t first_peak(const grid *samples, size_t shortest, size_t longest) {
    double value[HARPE_PERIOD_SAMPLES], highest = LEAST_CORRELATION;
    for (size_t k = shortest - 1; k <= longest + 1; k++)
        value[k] = correlation(samples, k);
    for (size_t k = shortest; k <= longest; k++)
        if (value[k] > value[k - 1] && value[k] >= value[k + 1]) highest = fmax(highest, value[k]);
    for (size_t k = shortest; k <= longest; k++)
        if (value[k] > value[k - 1] && value[k] >= value[k + 1] && value[k] >= AS_GOOD * highest &&
            value[k] > LEAST_CORRELATION)
            return k;
    return 0;
}

/* Makes a period exact: looks at 2, 4, 8... of them, up to half of the samples. Returns it in steps
 * of the grid; 0 if it does not hold so long. */
static double refine(const grid *samples, double lag) {
    double period = peak_near(samples, lag, fmax(lag * 0.1, 1));
    for (int many = 2; period > 0 && many * period < (double)samples->count * 0.5; many *= 2)
        period = peak_near(samples, many * period, fmax(period * 0.25, 1)) / many;
    return period;
}

bool harpe_period_find(const harpe_power_samples *samples, double near_s, double least,
                       double *period_s) {
    grid even;
    draw(samples, &even);
    if (even.count < 4 * LEAST_SAMPLES || !centre(&even)) return false;
    double shortest = near_s > 0 ? near_s * 0.8 / even.step_s : LEAST_SAMPLES;
    double longest = (double)even.count / fmax(least, 3);
    if (near_s > 0) longest = fmin(longest, near_s * 1.7 / even.step_s);
    shortest = fmax(shortest, LEAST_SAMPLES);
    if (!(shortest + 1 < longest)) return false;
    size_t lag = first_peak(&even, (size_t)shortest, (size_t)longest);
    if (lag == 0) return false;
    double period = refine(&even, (double)lag);
    if (!(period > 0)) return false;
    *period_s = period * even.step_s;
    return true;
}
