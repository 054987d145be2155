/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the period of a GPU's own activity in samples of its power: the time that a program needs
 * for one round of what it repeats. Computes only; meter.c takes the samples. */
#ifndef HARPE_TUNE_PERIOD_H
#define HARPE_TUNE_PERIOD_H

#include <stdbool.h>
#include <stddef.h>

enum { HARPE_PERIOD_SAMPLES = 2048 };

typedef struct harpe_power_samples {
    double time_s[HARPE_PERIOD_SAMPLES], power_w[HARPE_PERIOD_SAMPLES]; /* a ring */
    size_t count; /* of all samples so far; sample i is at index i modulo its size */
} harpe_power_samples;

void harpe_power_samples_add(harpe_power_samples *samples, double time_s, double power_w);

/* Finds the period in the latest samples, which are at least `least` periods of it. `near_s` is a
 * period that is known (the result is then between 0.8 and 1.7 times as long); 0: none. Returns
 * false if there is no period that is stable over these samples: the power is not like itself many
 * periods later. */
bool harpe_period_find(const harpe_power_samples *samples, double near_s, double least,
                       double *period_s);

#endif
