/* SPDX-License-Identifier: Apache-2.0 */
/* Powers from energies: least squares. Each row says that during some time so much was spent on
 * this, so much on that, and that together they took so much energy; the fit finds the powers that
 * explain all rows best. What the rows do not tell stays at the mean power, so that there is always
 * an answer and never a NaN. Pure arithmetic. */
#ifndef HARPE_CLIENT_POWER_FIT_H
#define HARPE_CLIENT_POWER_FIT_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise. Unknowns are numbered from 0 and come into being when first named. */
typedef struct harpe_power_fit {
    size_t count, capacity;
    double *normal; /* capacity x capacity; lower triangle, weighted */
    double *right;
    double energy_j, time_s; /* of all rows, weighted: they give the mean power */
} harpe_power_fit;

/* One row: time_s[c] was spent on unknown c, for each c in `columns`, where each is at most once;
 * `blur_s` is the standard error of the row's length, by which rows are weighted. False (and
 * nothing changed): out of memory. */
bool harpe_power_fit_add(harpe_power_fit *fit, const size_t *columns, size_t length,
                         const double *time_s, double energy_j, double blur_s);
bool harpe_power_fit_copy(const harpe_power_fit *from, harpe_power_fit *to);
void harpe_power_fit_clear(harpe_power_fit *fit);

/* `power_w` gets `count` powers, >= 0; those that no row names are the mean (0 without rows).
 * False: out of memory. O(n^3) in the unknowns that rows name. */
bool harpe_power_fit_solve(const harpe_power_fit *fit, size_t count, double *power_w);
/* Do the rows tell something of this unknown? */
bool harpe_power_fit_knows(const harpe_power_fit *fit, size_t column);

#endif
