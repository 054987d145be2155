/* SPDX-License-Identifier: Apache-2.0 */
/* Fits powers to energies by least squares. Each row gives the time spent on each unknown and
 * the total energy of that time, and the fit finds the powers that explain all rows best. A
 * power that the rows do not determine stays at the mean power, so there is always an answer and
 * never a NaN. */
#ifndef HARPE_CLIENT_POWER_FIT_H
#define HARPE_CLIENT_POWER_FIT_H

#include <stdbool.h>
#include <stddef.h>

/* Initialise with zeros. Unknowns are numbered from 0, and exist from their first use. */
typedef struct harpe_power_fit {
    size_t count, capacity;
    double *normal; /* capacity x capacity; lower triangle, weighted */
    double *right;
    double energy_j, time_s; /* sums over all rows, weighted, which give the mean power */
} harpe_power_fit;

/* Adds one row: for each c in `columns`, the time time_s[c] was spent on unknown c. `columns`
 * contains no number twice. `blur_s` is the standard error of the row's length and determines its
 * weight. When out of memory, returns false and changes nothing. */
bool harpe_power_fit_add(harpe_power_fit *fit, const size_t *columns, size_t length,
                         const double *time_s, double energy_j, double blur_s);
bool harpe_power_fit_copy(const harpe_power_fit *from, harpe_power_fit *to);
void harpe_power_fit_clear(harpe_power_fit *fit);

/* Writes `count` powers, >= 0, to `power_w`. The power of an unknown that is in no row is the mean
 * (0 without rows). Returns false when out of memory. Takes time O(n^3) for n unknowns that are in
 * rows. */
bool harpe_power_fit_solve(const harpe_power_fit *fit, size_t count, double *power_w);
/* Returns true if the rows contain this unknown. */
bool harpe_power_fit_knows(const harpe_power_fit *fit, size_t column);

#endif
